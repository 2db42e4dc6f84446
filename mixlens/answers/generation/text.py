"""The words of a prompt and of what was written after it, in groups: sentences, or the turns of a chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...base import words as base
from ...scoring.continuing import Continuation
from ...types import Words

SOURCES = {"text": 0, "pair": 1, "written": 2}


@dataclass(frozen=True)
class Word:
    """A word of the prompt or of the written text, or a token where the words are not known."""

    text: str
    before: str  # the characters between the word before and this one
    segment: str  # "text", "pair", "written" or "template"
    special: bool
    mark: bool  # punctuation alone
    tokens: tuple[int, ...]
    group: int | None = None  # the number of its sentence or turn; of a written word, of its written sentence
    cut: bool = False  # the last written word, where the model was stopped inside it

    @property
    def shown(self) -> str:
        """The word for a reader: with an ellipsis where it is cut."""
        return f"{self.text}…" if self.cut else self.text

    @property
    def counts(self) -> bool:
        """Whether it is a word of the prompt: no begin mark and no token of a template."""
        return self.segment in ("text", "pair") and not self.special


@dataclass(frozen=True)
class Group:
    """A sentence of the prompt or of the written text, or a turn of a chat: the numbers of its words."""

    kind: str  # "sentence" or "turn"
    role: str | None
    words: tuple[int, ...]


@dataclass(frozen=True)
class WrittenText:
    """A prompt and what was written after it, word by word."""

    prompt: str | None
    pair: str | None
    written: str
    tokens: tuple[str, ...]
    begin: int  # the position of the first written token
    words: tuple[Word, ...]
    groups: tuple[Group, ...]  # of the prompt
    spans: tuple[Group, ...]  # sentences of the written text
    unit: str  # "word" or "token"

    @property
    def first(self) -> int:
        """The number of the first written word."""
        return next(number for number, word in enumerate(self.words) if word.segment == "written")

    @property
    def rows(self) -> tuple[Word, ...]:
        """The written words."""
        return self.words[self.first :]

    @property
    def cut(self) -> bool:
        """Whether the model was stopped inside its last word."""
        return self.words[-1].cut

    @property
    def written_shown(self) -> str:
        """The written text for a reader: with an ellipsis where it is cut."""
        return f"{self.written}…" if self.cut else self.written


def written_text(continuation: Continuation, *, cut: bool = False) -> WrittenText:
    """The words of a prompt and of what follows it. `cut`: the model was stopped inside the last of them."""
    prompt, whole, begin = continuation.prompt, continuation.whole, continuation.begin
    special = (*prompt.special, *whole.special[begin:])
    known = continuation.words_before(len(whole))
    if known is None:
        segments = ["written" if place >= begin else "text" for place in range(len(whole))]
        words = [Word(whole.tokens[i], " ", segments[i], special[i], False, (i,)) for i in range(len(whole))]
    else:
        words = _known_words(continuation, known, special)
    groups = _sentences(words, ("text", "pair"))
    if prompt.turns is not None:
        inside = [number for number, word in enumerate(words) if word.counts]
        turns = [
            Group("turn", role, tuple(number for number in inside if words[number].tokens[0] in set(places)))
            for role, places in prompt.turns
        ]
        groups = [turn for turn in turns if turn.words]
    spans = _sentences(words, ("written",))
    for found in (groups, spans):
        for number, group in enumerate(found):
            for place in group.words:
                words[place] = replace(words[place], group=number)
    written = " ".join(whole.tokens[begin:]) if continuation.tokenizer is None else continuation.written
    return WrittenText(
        prompt=prompt.text,
        pair=prompt.pair,
        written=written,
        tokens=whole.tokens,
        begin=begin,
        words=(*words[:-1], replace(words[-1], cut=cut)),
        groups=tuple(groups),
        spans=tuple(spans),
        unit="token" if known is None else "word",
    )


def _known_words(continuation: Continuation, known: Words, special: Sequence[bool]) -> list[Word]:
    """The words with the characters between them. A word that the written text goes on with is two: its part in the
    prompt, and its part that was written. Tokens of spaces alone belong to the word behind them, or end their text;
    neighbours of a template are one word. Words without a visible character are called by their token."""
    tokens, begin, spans = continuation.whole.tokens, continuation.begin, continuation.spans()
    is_chat, end = continuation.prompt.turns is not None, {0: 0, 1: 0}
    words: list[Word] = []
    for name, positions in known:
        parts = (tuple(p for p in positions if p < begin), tuple(p for p in positions if p >= begin))
        for part in filter(None, parts):
            sequence, start, _ = spans[part[0]]
            stop, text, before = max(spans[place][2] for place in part), name, ""
            if sequence is not None:
                source = continuation.text_of(sequence)
                text = source[start:stop].strip()
                before, end[sequence] = source[end[sequence] : stop - len(text)], stop
                before = before if before.isspace() or not before else " "
            elif is_chat:  # the characters of a template's tokens; of a special token that was written, its name
                text = tokens[part[0]] if part[0] >= begin else (continuation.prompt.text or "")[start:stop]
            prompted = ("template" if is_chat else "text") if sequence is None else ("text", "pair")[sequence]
            is_special = all(special[place] for place in part)
            mark = bool(text) and not is_special and not any(char.isalnum() for char in text)
            segment = "written" if part[0] >= begin else prompted
            words.append(Word(text, before, segment, is_special, mark, part))
    words = _joined(words, lambda word, next_: word.segment == "template")
    words = _joined(words, lambda word, next_: not word.text and not next_.special)
    words = _joined(words, lambda word, next_: not next_.text and not (word.special or next_.special))
    return [replace(word, text=" ".join(word.text.split()) or tokens[word.tokens[0]]) for word in words]


def _joined(words: Sequence[Word], belongs: Callable[[Word, Word], bool]) -> list[Word]:
    """The words; neighbours of one text that belong together are one, of the kind of the second."""
    joined: list[Word] = []
    for word in words:
        if joined and joined[-1].segment == word.segment and belongs(joined[-1], word):
            first = joined.pop()
            before, mark = first.before or word.before, first.mark or word.mark
            word = replace(
                word, text=first.text + word.text, before=before, mark=mark, tokens=first.tokens + word.tokens
            )
        joined.append(word)
    return joined


def _sentences(words: Sequence[Word], segments: Sequence[str]) -> list[Group]:
    """The sentences of these texts."""
    told = [
        base.Word(
            word.text,
            word.before,
            word.tokens,
            SOURCES.get(word.segment, -1),
            word.segment not in segments or (word.special and word.segment != "written"),
        )
        for word in words
    ]
    return [Group("sentence", None, tuple(numbers)) for numbers in base.sentences_of(told)]
