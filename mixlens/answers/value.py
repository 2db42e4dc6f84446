"""`Why` and what it is made of: facts alone, frozen, written as plain JSON types and read back."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from ..base.errors import ResultError
from ..base.files import write_result
from ..base.parts import Sentence, read, said

KIND = "why"
EMPTY = said()


@dataclass(frozen=True)
class Word:
    """One word of the text (or one token, where words are not known), with the leading method's score."""

    text: str
    before: str  # the characters between the word before and this one
    segment: str  # "text", "pair", "written" or "template"
    special: bool
    mark: bool  # punctuation alone
    score: float
    share: float  # of all evidence, signed; special tokens are left out
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """What is explained, and the words that are named as reasons, by their indices."""

    target: str
    foil: str | None
    probability: float
    certainty: str  # "sure" or "leans"
    for_: tuple[int, ...]
    against: tuple[int, ...]
    predicted: bool = True  # the target is what the model says
    word: str | None = None  # the word that is tagged


@dataclass(frozen=True)
class Method:
    """The method that leads."""

    id: str
    name: str
    everyday: str
    paper: str
    reason: str
    signed: bool


@dataclass(frozen=True)
class Reading:
    """The scores of one method."""

    id: str
    name: str
    everyday: str
    signed: bool
    scores: tuple[float, ...]
    shares: tuple[float, ...]
    same_first: int  # how many of the answer's words are among its own largest
    gap: float | None  # relative distance of the sum of scores from what it should be


@dataclass(frozen=True)
class Filler:
    """What stands in the place of a word that is taken out."""

    id: str
    text: str


@dataclass(frozen=True)
class Random:
    """The answer without random sets of as many words, other than the named one; of the whole text where there is
    none."""

    mean: float
    low: float
    high: float
    count: int
    all_: bool  # every other set there is
    turned: int
    values: tuple[float, ...]


@dataclass(frozen=True)
class Single:
    """The answer without one named word alone: the one whose removal does most."""

    word: int
    without: float
    turned: bool


@dataclass(frozen=True)
class Curve:
    """The answer after 0, 1, 2, ... words are taken out: the highest score first, and in random orders."""

    first: tuple[float, ...]
    random: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Check:
    """One thing that was checked; where it changed the answer, from which number to which, and between which it
    ranges."""

    id: str
    state: str  # "ok", "caution", "fail" or "info"
    title: Sentence
    detail: Sentence
    before: float | None = None
    after: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Told:
    """What an answer says, beside what stands in its trust."""

    question: Sentence
    sentence: Sentence
    without: Sentence
    method: Sentence
    others: Sentence  # what else the model could say; empty where there is little


@dataclass(frozen=True)
class Trust:
    """What taking words out of this text says: whether the words that are named are those the model uses."""

    k: int
    filler: Filler
    whole: float
    without: float
    without_prediction: str
    turned: bool
    random: Random
    alone: float
    empty: float
    single: Single | None
    curve: Curve
    without_each: tuple[float, ...] = ()  # without each named word alone, in the order of `Answer.for_`
    # told of these facts, as soon as they stand in a `Why`
    verdict: str = ""  # "ok", "caution" or "fail"
    sentence: Sentence = EMPTY
    checks: tuple[Check, ...] = ()
    measures: Sentence = EMPTY  # what the numbers are: "probability of negative", "share of were against was"
    but: Sentence = EMPTY  # what the headline adds where the removal of the words does not bear them out


@dataclass(frozen=True)
class Agreement:
    """How many methods put the same k words first."""

    same: int
    of: int
    k: int


@dataclass(frozen=True)
class Note:
    """What a reader must know before the numbers."""

    id: str
    state: str  # "caution" or "fail"
    text: Sentence


@dataclass(frozen=True)
class Gaps:
    """Relative gaps: of the scores' sum, and of the model rebuilt from its parts."""

    completeness: float | None
    reconstruction: float | None


@dataclass(frozen=True)
class Why:
    """Why a model said what it said of one text: the answer, the words for and against it, and whether to trust
    that."""

    model: str
    task: str
    classes: tuple[str, ...] | None
    text: str
    pair: str | None
    answer: Answer
    predictions: tuple[tuple[str, float], ...]
    unit: str
    words: tuple[Word, ...] = field(repr=False)
    special_share: float
    method: Method = field(repr=False)
    methods: tuple[Reading, ...] = field(repr=False)
    trust: Trust = field(repr=False)
    agreement: Agreement = field(repr=False)
    notes: tuple[Note, ...] = field(repr=False)
    gaps: Gaps = field(repr=False)
    limits: Mapping[str, float] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)
    told: Told = field(init=False, repr=False, compare=False)
    question: str = field(init=False, default="")
    sentence: str = field(init=False, default="")

    def __post_init__(self) -> None:
        from .telling import tell

        told, trust = tell(self)
        for name, value in {"told": told, "question": told.question, "sentence": told.sentence, "trust": trust}.items():
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `mixlens.answers.from_dict` reads them back. Sentences as text where they always stood, as
        parts in "told", and beside each note's text."""
        notes = [{**_plain(one), "parts": one.text.plain()} for one in self.notes]
        told = {one.name: getattr(self.told, one.name).plain() for one in fields(self.told)}
        return {"kind": KIND, **_plain(self), "notes": notes, "told": told}

    def to_json(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """JSON; with a path, written there too. A file that is no result of mixlens is kept, unless `force`."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
        if path is not None:
            write_result(text + "\n", path, force=force)
        return text

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """One row for each word, one column for each method; with a path, written there too. A file that is no result
        of mixlens is kept, unless `force`."""
        out = io.StringIO()
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(
            ["word", "segment", "special", "mark", "score", "share", *(reading.id for reading in self.methods)]
        )
        for place, word in enumerate(self.words):
            facts = [word.text, word.segment, int(word.special), int(word.mark), word.score, word.share]
            rows.writerow([*facts, *(reading.scores[place] for reading in self.methods)])
        if path is not None:
            write_result(out.getvalue(), path, force=force)
        return out.getvalue()

    def show(self, *, color: bool = True) -> None:
        """Print to the terminal."""
        from ..show.text import console
        from ..show.why_text import view

        console(color=color).print(view(self))

    def report(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """One HTML file that opens on the answer. A file that is no page of mixlens is kept, unless `force`."""
        from ..show.why_page import write_why

        return write_why(self, path, force=force)

    def _repr_html_(self) -> str:
        from ..show.why_notebook import html

        return html(self)


def _plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples as lists. `for_` is named `for`, which Python keeps for
    itself."""
    if is_dataclass(value):
        return {one.name.rstrip("_"): _plain(getattr(value, one.name)) for one in fields(value) if one.name != "told"}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value


def from_dict(content: Mapping[str, Any]) -> Why:
    """The `Why` that `to_dict` wrote. Its sentences are told anew from the facts; those of notes are kept."""
    try:
        if content["kind"] != KIND:
            raise ResultError(f"this is {content['kind']!r:.40}, not {KIND!r}.")
        notes = [{**one, "text": one.get("parts", [one["text"]])} for one in content["notes"]]
        why: Why = _made(Why, {**content, "notes": notes})
        return why
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ResultError):
            raise
        raise ResultError(
            f"this is no answer of `mixlens why` (or is damaged): {type(error).__name__} {error}."
        ) from error


def _made(kind: Any, value: Any) -> Any:
    """A value of this type, of its plain form."""
    if kind is Sentence:
        return read(value) if isinstance(value, list) else said(value)
    if is_dataclass(kind):
        types = get_type_hints(kind)
        known = [one for one in fields(kind) if one.init and (one.name.rstrip("_") in value or one.default is MISSING)]
        values = {one.name: _made(types[one.name], value[one.name.rstrip("_")]) for one in known}
        return kind(**values)  # type: ignore[operator]
    if get_origin(kind) is UnionType:
        return None if value is None else _made(get_args(kind)[0], value)
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        each = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_made(one, item) for one, item in zip(each, value, strict=True))
    return float(value) if kind is float else value
