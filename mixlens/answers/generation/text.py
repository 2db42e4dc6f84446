"""The words of a prompt and of what was written after it, in groups: sentences, or the turns of a chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...scoring.continuing import Continuation

ENDS = (".", "!", "?")
CLOSING = "\"'”’)]»"  # marks that may follow the end of a sentence and belong to it


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
    prompt, whole = continuation.prompt, continuation.whole
    known = continuation.words_before(len(whole))
    special = (*prompt.special, *whole.special[continuation.begin :])
    words = _token_words(continuation, special) if known is None else _known_words(continuation, special)
    words, groups = _grouped(words, prompt.turns)
    words, spans = _with_sentences(words, [number for number, word in enumerate(words) if word.segment == "written"])
    return WrittenText(
        prompt=prompt.text,
        pair=prompt.pair,
        written=continuation.written
        if continuation.tokenizer is not None
        else " ".join(whole.tokens[continuation.begin :]),
        tokens=whole.tokens,
        begin=continuation.begin,
        words=(*words[:-1], replace(words[-1], cut=cut)),
        groups=tuple(groups),
        spans=tuple(spans),
        unit="token" if known is None else "word",
    )


# --- words ------------------------------------------------------------------------------------------------------------


def _token_words(continuation: Continuation, special: Sequence[bool]) -> list[Word]:
    """Every token as a word."""
    tokens, begin = continuation.whole.tokens, continuation.begin
    names = ["written" if place >= begin else "text" for place in range(len(tokens))]
    return [
        Word(token, " ", name, is_special, False, (place,))
        for place, (token, name, is_special) in enumerate(zip(tokens, names, special, strict=True))
    ]


def _known_words(continuation: Continuation, special: Sequence[bool]) -> list[Word]:
    """The words with the characters between them. A word that the written text goes on with is two: its part in the prompt,
    and its part that was written. Tokens of spaces alone belong to the word behind them."""
    known = continuation.words_before(len(continuation.whole)) or ()
    parts = [(name, part) for name, positions in known for part in _parts(positions, continuation.begin)]
    spans, is_chat, end = continuation.spans(), continuation.prompt.turns is not None, {0: 0, 1: 0}
    words: list[Word] = []
    for name, part in parts:
        sequence, start, stop = _place(part, spans)
        text, before = _template_text(continuation, part, spans) if is_chat and sequence is None else name, ""
        if sequence is not None:
            source = continuation.text_of(sequence)
            text = source[start:stop].strip()
            before, end[sequence] = source[end[sequence] : stop - len(text)], stop
        words.append(_word(text, before, _segment(part[0] >= continuation.begin, sequence, is_chat), part, special))
    joined = _joined(_joined(_joined(words, _is_template_run), _is_blank), _ends_blank)
    return _named(joined, continuation.whole.tokens)


def _template_text(
    continuation: Continuation, positions: Sequence[int], spans: Sequence[tuple[int | None, int, int]]
) -> str:
    """The characters of tokens of a template; of a special token that was written, its name."""
    if positions[0] >= continuation.begin:
        return continuation.whole.tokens[positions[0]]
    _, start, stop = _place(positions, spans)
    return (continuation.prompt.text or "")[start:stop]


def _word(text: str, before: str, segment: str, positions: tuple[int, ...], special: Sequence[bool]) -> Word:
    is_special = all(special[place] for place in positions)
    mark = bool(text) and not is_special and not any(char.isalnum() for char in text)
    return Word(text, before if before.isspace() or not before else " ", segment, is_special, mark, positions)


def _joined(words: Sequence[Word], belongs: Callable[[Word, Word], bool]) -> list[Word]:
    """The words, those that belong together as one."""
    joined: list[Word] = []
    for word in words:
        if joined and belongs(joined[-1], word):
            word = _as_one(joined.pop(), word)
        joined.append(word)
    return joined


def _as_one(first: Word, word: Word) -> Word:
    """Two neighbours as one word, of the kind of the second."""
    text, before, mark = first.text + word.text, first.before or word.before, first.mark or word.mark
    return replace(word, text=text, before=before, mark=mark, tokens=(*first.tokens, *word.tokens))


def _is_blank(word: Word, behind: Word) -> bool:
    """A token of spaces alone, before a word of the same text."""
    return not word.text and word.segment == behind.segment and not behind.special


def _ends_blank(word: Word, behind: Word) -> bool:
    """A word before the spaces that end its text."""
    return not behind.text and word.segment == behind.segment and not (word.special or behind.special)


def _is_template_run(word: Word, behind: Word) -> bool:
    """Two tokens of a template beside each other."""
    return word.segment == behind.segment == "template"


def _named(words: Sequence[Word], tokens: Sequence[str]) -> list[Word]:
    """Words without a visible character are called by their token."""
    texts = [" ".join(word.text.split()) for word in words]
    return [replace(word, text=text or tokens[word.tokens[0]]) for word, text in zip(words, texts, strict=True)]


def _parts(positions: tuple[int, ...], begin: int) -> Iterator[tuple[int, ...]]:
    """The positions before the written text, and those of it; one of the two where the word is not divided."""
    for part in (tuple(p for p in positions if p < begin), tuple(p for p in positions if p >= begin)):
        if part:
            yield part


def _place(positions: Sequence[int], spans: Sequence[tuple[int | None, int, int]]) -> tuple[int | None, int, int]:
    """The text that positions belong to, their first character, and the one behind the last."""
    sequence, start, _ = spans[positions[0]]
    return sequence, start, max(spans[place][2] for place in positions)


def _segment(written: bool, sequence: int | None, chat: bool) -> str:
    if written:
        return "written"
    if sequence is None:
        return "template" if chat else "text"
    return "pair" if sequence else "text"


# --- groups -----------------------------------------------------------------------------------------------------------


def _grouped(words: Sequence[Word], turns: Any) -> tuple[list[Word], list[Group]]:
    """The words with the number of their group, and the groups of the prompt: turns of a chat, else sentences."""
    inside = [number for number, word in enumerate(words) if word.counts]
    if turns is None:
        return _with_sentences(words, inside)
    found = [_turn(words, inside, role, set(places)) for role, places in turns]
    groups = [turn for turn in found if turn.words]
    return _with_numbers(words, groups), groups


def _turn(words: Sequence[Word], inside: Sequence[int], role: str, places: set[int]) -> Group:
    """A turn: the words `inside` whose first token stands at its places."""
    return Group("turn", role, tuple(number for number in inside if words[number].tokens[0] in places))


def _with_sentences(words: Sequence[Word], inside: Sequence[int]) -> tuple[list[Word], list[Group]]:
    """The words with the number of their sentence, and the sentences among the words `inside`."""
    sentences: list[list[int]] = [[]]
    for number in inside:
        if _begins(words, sentences[-1], number):
            sentences.append([])
        sentences[-1].append(number)
    groups = [Group("sentence", None, tuple(members)) for members in sentences if members]
    return _with_numbers(words, groups), groups


def _begins(words: Sequence[Word], sentence: Sequence[int], number: int) -> bool:
    """Whether a word begins a new sentence: of another text, or behind the end of one."""
    if not sentence:
        return False
    other_text = words[sentence[-1]].segment != words[number].segment
    return other_text or (_is_ended(words, sentence) and words[number].text not in (*CLOSING, *ENDS))


def _is_ended(words: Sequence[Word], sentence: Sequence[int]) -> bool:
    """Whether the last word that is no closing mark ends a sentence."""
    before = [words[one] for one in sentence if words[one].text not in CLOSING]
    return bool(before) and before[-1].text.endswith(ENDS)


def _with_numbers(words: Sequence[Word], groups: Sequence[Group]) -> list[Word]:
    numbers = {word: number for number, group in enumerate(groups) for word in group.words}
    return [replace(word, group=numbers[i]) if i in numbers else word for i, word in enumerate(words)]
