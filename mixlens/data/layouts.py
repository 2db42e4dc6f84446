"""How a row becomes an Example. A layout says which fields it needs; the makers below read them and check what they
say."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import InputError, kind_of, readable
from ..types import Example
from .blimp import TEMPLATES
from .grammar import MASK
from .labels import label_of

Row = Mapping[str, Any]
Span = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """One way to write the rows of a dataset. `make` gives None for a row that is not part of it."""

    needs: tuple[str, ...]
    make: Callable[[Row], Example | None]


def needs(*fields: str) -> Callable[[Callable[[Row], Example | None]], Layout]:
    """The layout of a function that reads these fields of a row."""
    return lambda make: Layout(fields, make)


# --- reading fields ---------------------------------------------------------------------------------------------------


def text_of(row: Row, field: str) -> str:
    return readable(row.get(field), field)


def _nested(row: Row, field: str) -> Any:
    """A list or a mapping; in CSV and TSV, which have none, written as JSON."""
    value = row.get(field)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise InputError(f"field {field!r} should hold a list, in CSV written as JSON: [...].") from None


def _list(row: Row, field: str) -> list[Any]:
    value = _nested(row, field)
    if not isinstance(value, list):
        raise InputError(f"field {field!r} holds {kind_of(value)}, not a list.")
    return value


def _words(row: Row, field: str) -> list[str]:
    words = _list(row, field)
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise InputError(f"field {field!r} should hold words, none of them empty.")
    return words


def _whole(row: Row, field: str) -> int:
    value = row.get(field)
    if isinstance(value, str) and re.fullmatch("-?[0-9]+", value.strip()):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"field {field!r} holds {kind_of(value)}, not a whole number.")
    return value


def _place(words: Sequence[str], place: int, field: str) -> int:
    if not 0 <= place < len(words):
        raise InputError(f"field {field!r} points at word {place} of {len(words)}.")
    return place


# --- words and spans --------------------------------------------------------------------------------------------------

CLOSING = frozenset(".,;:?!")


def spread(words: Iterable[str], *, tight: bool = False) -> tuple[str, list[Span]]:
    """The words as one text, and where each of them is. `tight`: no space before a full stop and the like."""
    text, spans = "", []
    for word in words:
        text += word if not text or (tight and word in CLOSING) else f" {word}"
        spans.append((len(text) - len(word), len(text)))
    return text, spans


def found_in(text: str, words: Sequence[str]) -> list[Span]:
    """Where each word is in a text that has them in this order, with nothing but spaces between them."""
    spans, end = [], 0
    for word in words:
        start = text.find(word, end)
        if start < 0 or text[end:start].strip():
            raise InputError(f"the tokens are not those of the text: no {word!r} after character {end}.")
        end = start + len(word)
        spans.append((start, end))
    return spans


def runs(spans: Sequence[Span], marks: Sequence[Any]) -> tuple[Span, ...]:
    """Neighbouring marked words as one span."""
    if len(spans) != len(marks):
        raise InputError(f"{len(marks)} marks for {len(spans)} tokens.")
    joined: list[Span] = []
    last = False
    for span, mark in zip(spans, marks, strict=True):
        if mark:
            joined = [*joined[:-1], (joined[-1][0], span[1])] if last else [*joined, span]
        last = bool(mark)
    return tuple(joined)


# --- classification ---------------------------------------------------------------------------------------------------


def _info(row: Row, label: str, names: Sequence[str], **more: Any) -> dict[str, Any]:
    found = label_of(row.get(label), names)
    return ({} if found is None else {"label": found}) | more


def labelled(text: str, pair: str | None = None, *, labels: Sequence[str], label: str = "label") -> Layout:
    def make(row: Row) -> Example:
        second = None if pair is None else text_of(row, pair)
        return Example(text_of(row, text), second, info=_info(row, label, labels))

    return Layout((text, *((pair,) if pair else ()), label), make)


def marked(*, labels: Sequence[str], label: str) -> Layout:
    """Tokens, and 1 for those that people marked as the reason for their label."""

    @needs("tokens", label, "rationale")
    def layout(row: Row) -> Example:
        text, spans = spread(_words(row, "tokens"))
        return Example(text, info=_info(row, label, labels, rationale=runs(spans, _list(row, "rationale"))))

    return layout


def marked_by_several(*, labels: Sequence[str], meaning: Mapping[str, str] | None = None) -> Layout:
    """HateXplain as published: three people each. The label most of them gave (none: not part of the dataset); every
    token that one of them marked (the authors' union), and none where the label is normal, as in their evaluation."""
    published = ("hatespeech", "normal", "offensive")

    @needs("post_tokens", "annotators", "rationales")
    def layout(row: Row) -> Example | None:
        given = _nested(row, "annotators")
        votes = given["label"] if isinstance(given, Mapping) else [one["label"] for one in given]
        (label, count), *_ = Counter(label_of(vote, published) for vote in votes).most_common(1)
        if count < 2 or label is None:
            return None
        text, spans = spread(_words(row, "post_tokens"))
        people = [] if label == "normal" else [list(marks) for marks in _list(row, "rationales")]
        union = [any(each) for each in zip(*people, strict=True)] if people else [False] * len(spans)
        name = label_of(label if meaning is None else meaning[label], labels)
        return Example(text, info={"label": name, "rationale": runs(spans, union)})

    return layout


# --- questions, parts of speech ---------------------------------------------------------------------------------------


@needs("question", "context", "answers")
def question(row: Row) -> Example:
    """The question is the text, the paragraph the pair; answers are spans of the pair, () where there is none."""
    asked, paragraph = text_of(row, "question"), text_of(row, "context")
    given = _nested(row, "answers")
    if isinstance(given, Mapping):  # the hub: a list of texts and a list of starts
        pairs = list(zip(given["text"], given["answer_start"], strict=True))
    else:
        pairs = [(one["text"], one["start"] if "start" in one else one["answer_start"]) for one in given]
    spans = []
    for words, start in ((words, int(place)) for words, place in pairs):
        if paragraph[start : start + len(words)] != words or not words:
            raise InputError(f"the answer {words!r} is not in the paragraph at character {start}.")
        spans.append((start, start + len(words)))
    return Example(asked, paragraph, info={"answers": tuple(dict.fromkeys(spans))})


@needs("tokens", "upos")
def tagged(row: Row) -> Example:
    """Gold tokens with their universal part of speech. A token tagged `_` (don't) is passed over: its parts follow."""
    tokens, tags = _words(row, "tokens"), _list(row, "upos")
    if len(tokens) != len(tags):
        raise InputError(f"{len(tags)} parts of speech for {len(tokens)} tokens.")
    kept = [(token, tag) for token, tag in zip(tokens, tags, strict=True) if tag != "_"]
    words = [token for token, _ in kept]
    text, spans = (text_of(row, "text"), None) if row.get("text") else spread(words)
    spans = found_in(text, words) if spans is None else spans
    info = {"pos": _tags(spans, [tag for _, tag in kept])}
    if row.get("xpos"):  # the tags of the Penn Treebank of the tokens that have a universal one
        penn = zip(_list(row, "xpos"), tags, strict=True)
        info["penn"] = _tags(spans, [tag for tag, other in penn if other != "_"])
    return Example(text, info=info)


def _tags(spans: Sequence[Any], tags: Sequence[Any]) -> tuple[Any, ...]:
    """(start, end, tag) of each token."""
    return tuple((*span, tag) for span, tag in zip(spans, tags, strict=True))


WORDS = 30  # of a paragraph


@needs("text")
def paragraph(row: Row) -> Example | None:
    """Plain text. A row of fewer words is a heading or empty, and no example."""
    return Example(str(row["text"]).strip()) if len(str(row["text"]).split()) >= WORDS else None


# --- agreement: one word is left out, and another word decides it -----------------------------------------------------

NUMBERS = {"sing": "singular", "plur": "plural", "VBZ": "singular", "VBP": "plural"}


def gap(
    words: Sequence[str], place: int, target: str, foil: str | None, cues: Sequence[int], *, tight: bool, **info: Any
) -> Example:
    """The sentence with [MASK] for one word. Cues are spans, one per word; `info` keeps what is not None."""
    if words[place] != target:
        raise InputError(f"the word left out should be {target!r}, but the sentence has {words[place]!r} there.")
    if place in cues or target == foil:
        raise InputError(f"{target!r} cannot be its own cue, or its own foil.")
    text, spans = spread((MASK if i == place else word for i, word in enumerate(words)), tight=tight)
    kept = {key: value for key, value in info.items() if value is not None}
    return Example(
        text, target=target, foil=foil, cues=tuple(spans[i] for i in cues), info=kept | {"mask": spans[place]}
    )


def word_left_out(words: str, place: str, target: str, foil: str, *, number: str, tight: bool = False) -> Layout:
    """Words, the place of the one to predict, its two forms; and where the file has them, the places of the cue."""

    def make(row: Row) -> Example:
        given, cues = _words(row, words), "cue_indices"
        where = [_place(given, int(i), cues) for i in _list(row, cues)] if row.get(cues) is not None else []
        left_out = _place(given, _whole(row, place), place)
        told = NUMBERS.get(str(row.get(number)), row.get(number))
        more = {"task": row.get("task"), "n_attractors": row.get("n_attractors"), "number": told}
        return gap(given, left_out, text_of(row, target), text_of(row, foil), where, tight=tight, **more)

    return Layout((words, place, target, foil), make)


@needs("UID", "sentence_good", "sentence_bad")
def minimal_pair(row: Row) -> Example:
    """BLiMP as published: two sentences that differ in one word. The rules of the sentence's template find the cue and
    the number."""
    template, both = TEMPLATES[row["UID"]], []
    for side in ("good", "bad"):  # contractions are written out, as Value Zeroing does: "hasn't" is two words
        sentence = text_of(row, f"sentence_{side}")
        for contracted, whole in (
            (r"\b([Ww])on't\b", r"\1ill not"),
            (r"\b([Cc])an't\b", r"\1annot"),
            (r"n't\b", " not"),
        ):
            sentence = re.sub(contracted, whole, sentence)
        both.append(re.findall(r"\S*[^\s.]|\.", sentence))
    good, bad = both
    places = [i for i, (one, other) in enumerate(zip(good, bad, strict=False)) if one != other]
    if len(good) != len(bad) or len(places) != 1:
        raise InputError("the two sentences do not differ in one word.")
    place = places[0]
    cues = [_place(good, i, "the cue") for i in template.cue(good, place)]
    more = {"task": template.short, "number": template.number(good[place], bad[place])}
    return gap(good, place, good[place], bad[place], cues, tight=True, **more)


GAP = "***mask***"


@needs("n_attractors", "masked", "good", "bad")
def sentence_with_gap(row: Row) -> Example:
    """Goldberg's file: the number of attractors, the sentence, the sentence with ***mask***, the verb, its other
    form."""
    words = text_of(row, "masked").split()
    if words.count(GAP) != 1:
        raise InputError(f"the sentence has {words.count(GAP)} times {GAP}, not once.")
    place, verb = words.index(GAP), text_of(row, "good")
    words[place] = verb
    return gap(words, place, verb, text_of(row, "bad"), (), tight=False, n_attractors=_whole(row, "n_attractors"))


@needs("orig_sentence", "subj", "subj_index", "verb_index", "n_diff_intervening")
def parsed_sentence(row: Row) -> Example:
    """Linzen's own file: the subject is known, so it is the cue. Places are counted from 1. It names no other verb
    form."""
    words = text_of(row, "orig_sentence").split()
    subject, verb = (_place(words, _whole(row, f"{part}_index") - 1, f"{part}_index") for part in ("subj", "verb"))
    if words[subject].casefold() != text_of(row, "subj").casefold():
        raise InputError(f"the subject should be {row['subj']!r}, but the sentence has {words[subject]!r} there.")
    more = {"n_attractors": _whole(row, "n_diff_intervening"), "number": NUMBERS.get(str(row.get("verb_pos")))}
    return gap(words, verb, words[verb], None, (subject,), tight=False, **more)
