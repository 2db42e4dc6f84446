"""`Why` and what it is made of: frozen values, written as plain JSON types and read back."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from ..base.errors import ResultError
from ..base.files import refuse_foreign, write

KIND = "why"


@dataclass(frozen=True)
class Word:
    """One word of the text (or one token, where words are not known), with its score."""

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
    """The answer without random sets of as many words, other than the named one; of the whole text where there is none."""

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
    """One thing that was checked."""

    id: str
    state: str  # "ok", "caution", "fail" or "info"
    title: str
    detail: str


@dataclass(frozen=True)
class Trust:
    """Whether the words that are named are those the model uses, in this text."""

    verdict: str
    sentence: str
    k: int
    filler: Filler
    measures: str  # what the numbers below are: "probability of negative", "were against was"
    whole: float
    without: float
    without_prediction: str
    turned: bool
    random: Random
    alone: float
    empty: float
    single: Single | None
    curve: Curve
    checks: tuple[Check, ...]
    but: str = ""  # what the answer adds to the words that are named, where their removal does not bear them out
    without_each: tuple[float, ...] = ()  # without each named word alone, in the order of `Answer.for_`


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
    text: str


@dataclass(frozen=True)
class Gaps:
    """Relative gaps: of the scores' sum, and of the model rebuilt from its parts."""

    completeness: float | None
    reconstruction: float | None


@dataclass(frozen=True)
class Why:
    """Why a model said what it said of one text: the answer, the words for and against it, and whether to trust that."""

    model: str
    task: str
    classes: tuple[str, ...] | None
    text: str
    pair: str | None
    question: str
    sentence: str
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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `mixlens.answers.from_dict` reads them back."""
        return {"kind": KIND, **_plain(self)}

    def to_json(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """JSON; with a path, written there too. A file that is no result of mixlens is kept, unless `force`."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
        return _written(text + "\n", path, force).rstrip("\n")

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """One row for each word, one column for each method; with a path, written there too. A file that is no result of
        mixlens is kept, unless `force`."""
        out = io.StringIO()
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(
            ["word", "segment", "special", "mark", "score", "share", *(reading.id for reading in self.methods)]
        )
        for place, word in enumerate(self.words):
            facts = [word.text, word.segment, int(word.special), int(word.mark), word.score, word.share]
            rows.writerow([*facts, *(reading.scores[place] for reading in self.methods)])
        return _written(out.getvalue(), path, force)

    def show(self, *, color: bool = True) -> None:
        """Print to the terminal."""
        from ..show.why_text import show_why

        show_why(self, color=color)

    def report(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """One HTML file that opens on the answer. A file that is no page of mixlens is kept, unless `force`."""
        from ..show.why_page import write_why

        return write_why(self, path, force=force)

    def _repr_html_(self) -> str:
        from ..show.why_notebook import html

        return html(self)


def _written(text: str, path: str | os.PathLike[str] | None, force: bool) -> str:
    """The text, after it was written to a file, whole or not at all."""
    if path is None:
        return text
    refuse_foreign(Path(path), force=force)
    try:
        write(Path(path), text.encode())
    except OSError as error:
        raise ResultError(f"{str(path)!r} could not be written: {error.strerror or error}.") from None
    return text


# --- plain types and back -----------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples as lists. A field `for_` is named `for`, which Python keeps for itself."""
    if is_dataclass(value):
        return {one.name.rstrip("_"): _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value


def from_dict(content: Mapping[str, Any]) -> Why:
    """The `Why` that `to_dict` wrote."""
    try:
        if content["kind"] != KIND:
            raise ResultError(f"this is {content['kind']!r:.40}, not {KIND!r}.")
        values: dict[str, Any] = {one.name: content[one.name] for one in fields(Why)}
        values |= {name: _made(kind, content[name]) for name, kind in PARTS.items()}
        values |= {name: tuple(_made(kind, one) for one in content[name]) for name, kind in LISTS.items()}
        values["predictions"] = tuple((str(name), float(share)) for name, share in content["predictions"])
        values["classes"] = None if content["classes"] is None else tuple(content["classes"])
        return Why(**values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ResultError):
            raise
        raise ResultError(
            f"this is no answer of `mixlens why` (or is damaged): {type(error).__name__} {error}."
        ) from error


def _made(kind: type, content: Mapping[str, Any] | None) -> Any:
    """A dataclass of its plain form, its own parts included."""
    if content is None:
        return None
    known = [one for one in fields(kind) if one.name.rstrip("_") in content or one.default is MISSING]
    values = {one.name: content[one.name.rstrip("_")] for one in known}
    for name, value in values.items():
        if (kind, name) in INNER:
            values[name] = _made(INNER[kind, name], value)
        elif name == "checks":
            values[name] = tuple(_made(Check, one) for one in value)
        else:
            values[name] = _frozen(value)
    return kind(**values)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


PARTS: dict[str, type] = {"answer": Answer, "method": Method, "trust": Trust, "agreement": Agreement, "gaps": Gaps}
INNER: dict[tuple[type, str], type] = {
    (Trust, "filler"): Filler,
    (Trust, "random"): Random,
    (Trust, "single"): Single,
    (Trust, "curve"): Curve,
}
LISTS: dict[str, type] = {"words": Word, "methods": Reading, "notes": Note}
