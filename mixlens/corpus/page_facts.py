"""`overview`: what the page of a run shows. One pass over the shards; what is held does not grow with the rows."""

from __future__ import annotations

import heapq
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..data.labels import label_of, same
from ..errors import InputError, nearest
from .plan import OWN, RATIO
from .summary import CLASSES, NONE, Mean, Seen, Tally, gone_over, manifest_of, mapping, methods_of, names, own_of

LABELS = ("label", "labels", "gold", "class")  # carried columns that are read as labels when none is named
EXAMPLES = 60
PROBABILITY = np.linspace(0, 1, 21)
GAP = 10.0 ** np.arange(-18, 1.01, 0.5)
SECONDS = 10.0 ** np.arange(-6, 4.01, 0.25)
LONG = 1_024  # tokens of an example that are shown
TEXT = 4_000  # and characters
FIELD = 200  # characters of a carried value
WHY = ("evenly spaced", "methods disagree", "least certain", "wrong")


# --- values -----------------------------------------------------------------------------------------------------------


@dataclass
class Bins:
    """How many values fall between two edges; the last edge is inside, what is beyond the edges counts in the last bins."""

    edges: np.ndarray
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not len(self.counts):
            self.counts = np.zeros(len(self.edges) - 1, dtype=np.int64)

    def add(self, value: float) -> None:
        place = int(np.searchsorted(self.edges, value, side="right")) - 1
        self.counts[min(max(place, 0), len(self.counts) - 1)] += 1

    def trimmed(self) -> Bins:
        """Without empty bins at both ends."""
        there = np.nonzero(self.counts)[0]
        if not len(there):
            return self
        first, last = int(there[0]), int(there[-1])
        return Bins(self.edges[first : last + 2], self.counts[first : last + 1])


@dataclass(frozen=True)
class Sampled:
    """One row that can be looked at. `scores`: [method token]; `why` it was chosen."""

    row: int
    id: str
    text: str
    pair: str | None
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    left_out: int  # tokens beyond those that are shown
    query: int
    prediction: str
    probability: float | None
    target: str | None
    label: str | None
    correct: bool | None
    gap: float | None
    seconds: float
    agreement: float | None  # mean Spearman correlation over the pairs of methods
    carried: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    scores: np.ndarray = field(repr=False)
    file: str  # the shard it is in
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class OneClass:
    """The rows with one prediction."""

    name: str
    rows: int
    counted: int  # rows behind `probability` and `top`: all of them, unless the class was rare for long
    probability: Bins
    mean: float | None
    top: dict[str, list[tuple[str, float, int]]]  # method -> (word, mean share of the absolute scores, times)
    signed: dict[str, dict[str, list[tuple[str, float, int]]]] = field(default_factory=dict)  # method -> towards, against


@dataclass(frozen=True)
class Judged:
    """Predictions against a carried column."""

    column: str
    rows: int  # with a label that is one of the model's classes
    correct: int
    unknown: int  # with a label that is not
    without: int
    table: Counter[tuple[str, str]]  # (label, prediction) -> rows


@dataclass(frozen=True)
class Overview:
    """All that the page of a run shows, but for the maps."""

    out: str
    manifest: Mapping[str, Any]
    methods: tuple[str, ...]
    finished: bool
    rows: int
    errors: int
    reasons: list[tuple[str, int]]
    classes: list[OneClass]  # the most frequent first
    other_classes: int  # how many predictions are not in `classes`
    probability: Bins
    judged: Judged | None
    not_judged: str | None  # why not
    agreement: dict[tuple[str, str], Mean]
    ratios: dict[str, list[Mean]]
    gap: Mean
    gaps: Bins
    no_gap: int  # rows whose gap is 0
    largest_gaps: list[dict[str, Any]]
    lengths: Counter[int]
    seconds: Mean
    times: Bins
    slow: list[dict[str, Any]]
    examples: list[Sampled]  # those that say most first
    notes: list[str]


# --- samples ----------------------------------------------------------------------------------------------------------


class Spaced:
    """Some of what comes, evenly spaced, however much comes: when there are too many, every other one goes."""

    def __init__(self, most: int):
        self.most, self.step, self.seen = max(2, most + most % 2), 1, 0
        self.kept: list[Any] = []

    def offer(self, made: Callable[[], Any]) -> None:
        if self.seen % self.step == 0:
            if len(self.kept) == self.most:
                self.kept, self.step = self.kept[::2], 2 * self.step
            if self.seen % self.step == 0:
                self.kept.append(made())
        self.seen += 1


class Lowest:
    """The `most` with the lowest value; of equal ones the first rows."""

    def __init__(self, most: int):
        self.most, self.seen = most, 0
        self.heap: list[tuple[float, int, int, Any]] = []

    def offer(self, value: float, row: int, made: Callable[[], Any]) -> None:
        if not self.most or not math.isfinite(value):
            return
        self.seen += 1  # no two are equal, whatever rows are called
        key = (-value, -row, -self.seen)
        if len(self.heap) < self.most:
            heapq.heappush(self.heap, (*key, made()))
        elif key > self.heap[0][:3]:
            heapq.heapreplace(self.heap, (*key, made()))

    def found(self) -> list[Any]:
        return [one[-1] for one in sorted(self.heap, key=lambda one: one[:3], reverse=True)]


# --- the pass ---------------------------------------------------------------------------------------------------------


def overview(
    out: str | os.PathLike[str],
    *,
    examples: int = EXAMPLES,
    label: str | None = None,
    top: int = 12,
    classes: int = 12,
    least: int = 3,
) -> Overview:
    """What the folder of a run holds, finished or not, and up to about `examples` rows to look at.

    `label`: the carried column to compare predictions with, by default `label` (or labels, gold, class) of a classifier.
    """
    if not isinstance(examples, int) or isinstance(examples, bool) or not 0 <= examples <= 10_000:
        raise InputError(f"examples is how many rows can be looked at, 0 to 10,000, not {examples!r}.")
    manifest = manifest_of(out)
    wide = _Wide(methods_of(manifest), _labels(manifest, label), examples)
    failed = gone_over(out, manifest, wide.add)
    tally = wide.tally
    named = tally.predicted.most_common(classes)
    return Overview(
        out=str(out),
        manifest=manifest,
        methods=tuple(tally.methods),
        finished=bool(manifest.get("finished")),
        rows=tally.rows,
        errors=failed.total(),
        reasons=failed.most_common(20),
        classes=[wide.of_class(name, rows, top, least) for name, rows in named],
        other_classes=len(tally.predicted) - len(named),
        probability=wide.probability,
        judged=wide.labels.judged() if wide.labels.rows else None,
        not_judged=wide.labels.why_not(),
        agreement=dict(tally.agreement),
        ratios=dict(tally.ratios),
        gap=tally.gap,
        gaps=wide.gaps.trimmed(),
        no_gap=wide.no_gap,
        largest_gaps=wide.largest.found(),
        lengths=wide.lengths,
        seconds=tally.seconds,
        times=wide.times.trimmed(),
        slow=tally.slowest(10),
        examples=wide.examples(),
        notes=wide.notes(),
    )


class _Wide:
    """A tally, and what a page shows beside it."""

    def __init__(self, methods: Sequence[str], labels: Labels, examples: int):
        self.tally, self.labels = Tally(methods), labels
        self.probability, self.gaps, self.times = Bins(PROBABILITY), Bins(GAP), Bins(SECONDS)
        self.no_gap = 0
        self.lengths: Counter[int] = Counter()
        self.certain: dict[str, tuple[Bins, Mean]] = {}
        part = examples // 6
        self.spaced = Spaced(examples // 2) if examples else None
        self.chosen = {why: Lowest(part) for why in WHY[1:]}
        self.largest = Lowest(5)

    def add(self, row: Mapping[str, Any], file: str) -> None:
        seen = self.tally.add(row)
        self.lengths[len(row["tokens"])] += 1
        self.times.add(row["seconds"])
        probability, gap, number = row.get("probability"), row.get("gap"), int(row["row"])
        if probability is not None:
            self.probability.add(probability)
            bins, mean = self.certain.setdefault(seen.predicted, (Bins(PROBABILITY), Mean()))
            bins.add(probability)
            mean.add(probability)
            if len(self.certain) > 4 * CLASSES:
                self.certain = {name: found for name, found in self.certain.items() if name in self.tally.classes}
        if gap is not None:
            self.no_gap += gap == 0
            if gap > 0:
                self.gaps.add(gap)
            self.largest.offer(-gap, number, lambda: {"row": number, "id": row["id"], "gap": gap})
        label, correct = self.labels.add(row, seen.predicted)
        agreement = [value for value in seen.agreement.values() if math.isfinite(value)]
        mean_agreement = sum(agreement) / len(agreement) if agreement else None
        if self.spaced is None:
            return

        def made() -> Sampled:
            return _sampled(row, file, seen, label, correct, mean_agreement, self.labels.column)

        self.spaced.offer(made)
        if mean_agreement is not None:
            self.chosen["methods disagree"].offer(mean_agreement, number, made)
        if probability is not None:
            self.chosen["least certain"].offer(probability, number, made)
            if correct is False:
                self.chosen["wrong"].offer(-probability, number, made)

    def of_class(self, name: str, rows: int, top: int, least: int) -> OneClass:
        bins, mean = self.certain.get(name, (Bins(PROBABILITY), Mean()))
        tokens = {method: self.tally.top(name, method, top, least) for method in self.tally.methods}
        counted = self.tally.classes[name].rows if name in self.tally.classes else 0
        return OneClass(name, rows, counted, bins, mean.value, tokens, self.tally.signed_top(name, top, least))

    def examples(self) -> list[Sampled]:
        """Each row once, with all that it was chosen for. The kinds take turns: a cut at any place leaves some of each."""
        if self.spaced is None:
            return []
        kinds = [_spread(self.spaced.kept), *(self.chosen[why].found() for why in WHY[1:])]
        found: dict[int, Sampled] = {}
        for turn in range(max(map(len, kinds))):
            for why, kind in zip(WHY, kinds, strict=True):
                if turn < len(kind):
                    one = found.setdefault(kind[turn].row, kind[turn])
                    found[one.row] = replace(one, why=(*one.why, why))
        return list(found.values())

    def notes(self) -> list[str]:
        told = []
        if self.tally.let_go:
            told.append(
                "There were more different tokens than are counted: the rarest were let go, so top tokens are of frequent ones."
            )
        if self.tally.unnamed:
            told.append(
                f"{self.tally.unnamed:,} rows have a prediction that was too rare to be kept; they count in all other numbers."
            )
        return told


def _spread(items: Sequence[Any]) -> list[Any]:
    """First, middle, quarters ...: however many are taken from the front, they are spread over all."""
    bits = max(1, (len(items) - 1).bit_length())
    order = sorted(range(len(items)), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))
    return [items[i] for i in order]


def _sampled(
    row: Mapping[str, Any],
    file: str,
    seen: Seen,
    label: str | None,
    correct: bool | None,
    agreement: float | None,
    column: str | None,
) -> Sampled:
    tokens, methods = row["tokens"], tuple(seen.scores)
    own = own_of(row)
    ours = {*OWN, *methods, *(name for name in row if name.startswith(RATIO))}
    carried = tuple((name, _cut(str(value), FIELD)) for name, value in row.items() if name not in ours and value is not None)
    scores = np.array([found[:LONG] for found in seen.scores.values()]).reshape(len(methods), -1)
    return Sampled(
        row=int(row["row"]),
        id=_cut(str(row["id"]), FIELD),
        text=_cut(row.get("text") or " ".join(tokens), TEXT),
        pair=None if row.get("pair") is None else _cut(row["pair"], TEXT),
        tokens=tuple(tokens[:LONG]),
        special=tuple(not mine for mine in own[:LONG]),
        left_out=max(0, len(tokens) - LONG),
        query=int(row["query"]),
        prediction=seen.predicted,
        probability=row.get("probability"),
        target=row.get("target"),
        label=label if label is not None or column is None or row.get(column) is None else _cut(str(row[column]), FIELD),
        correct=correct,
        gap=row.get("gap"),
        seconds=float(row["seconds"]),
        agreement=agreement,
        carried=carried,
        methods=methods,
        scores=scores,
        file=file,
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# --- labels -----------------------------------------------------------------------------------------------------------


class Labels:
    """Predictions against one carried column. A number is the model's own class number, as for `target="gold"`."""

    def __init__(self, column: str | None, classes: Sequence[str], why_not: str | None = None):
        self.column, self.classes, self._why_not = column, list(classes), why_not
        self.rows = self.correct = self.unknown = self.without = 0
        self.table: Counter[tuple[str, str]] = Counter()

    def add(self, row: Mapping[str, Any], predicted: str) -> tuple[str | None, bool | None]:
        """The row's label, and whether it is what was predicted."""
        if self.column is None or predicted == NONE:
            return None, None
        try:
            label = self._label(row.get(self.column))
        except InputError:
            self.unknown += 1
            return None, None
        if label is None:
            self.without += 1
            return None, None
        right = same(label, predicted)
        self.rows, self.correct = self.rows + 1, self.correct + right
        if self.classes:
            self.table[label, predicted] += 1
        return label, right

    def _label(self, value: Any) -> str | None:
        if self.classes:
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            return label_of(whole, self.classes)
        return None if value is None or not str(value).strip() else str(value).strip()

    def judged(self) -> Judged:
        return Judged(str(self.column), self.rows, self.correct, self.unknown, self.without, self.table)

    def why_not(self) -> str | None:
        if self.column is None or self.rows:
            return self._why_not
        known = f" ({', '.join(self.classes[:12])})" if self.classes else ""
        return (
            f"No row has a label in the column {self.column!r} that is a class of the model{known}, so there is no accuracy. "
            f"{self.unknown:,} rows have another value, {self.without:,} have none."
        )


def _labels(manifest: Mapping[str, Any], label: str | None) -> Labels:
    model, own = mapping(manifest.get("model")), mapping(manifest.get("identity"))
    carried, classes = names(mapping(own.get("options")).get("columns")), names(model.get("classes"))
    if label is not None:
        if label not in carried:
            there = nearest(label, carried) if carried else "This run carried none: --columns."
            raise InputError(f"the run carried no column {label!r}. {there}")
        return Labels(label, classes)
    found = next((one for one in LABELS if one in carried), None)
    if found is None:
        return Labels(None, (), None)
    if not classes:
        return Labels(
            None, (), f"The model has no classes by name, so the column {found!r} is not compared with what it predicts."
        )
    return Labels(found, classes)
