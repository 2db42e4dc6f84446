"""`overview`: what the page of a run shows. One pass over the shards; what is held does not grow with the rows."""

from __future__ import annotations

import math
import os
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import zip_longest
from typing import Any

import numpy as np

from ...base.errors import InputError, nearest
from ...base.words import Word
from ...data.labels import label_of, same
from .counts import NONE, OPEN, Bins, Counts, Listed, Mean, Removal, RowCheck, RowFacts
from .plan import WORD_OF, is_computed
from .reading import manifest_of, mapping, methods_of, names, visit_rows
from .row_words import words_of
from .shards import facts_of, shard_files

EXAMPLES = 300
LEAST_ROWS = 5  # rows that a word must be in to be listed
CLASSES = 400  # classes whose probabilities are counted apart
PROBABILITY = np.linspace(0, 1, 21)
GAP = 10.0 ** np.arange(-18, 1.01, 0.5)
SECONDS = 10.0 ** np.arange(-6, 4.01, 0.25)
LABELS = ("label", "labels", "gold", "class")  # carried columns that are read as labels when none is named
LONG = 1_024  # tokens of an example that are shown
TEXT = 4_000  # and characters
FIELD = 200  # characters of a carried value
SURE = 0.99  # probabilities above this are counted as sure
SURELY_WRONG = 0.95  # a wrong prediction above this is sure of it
APART = 0.10  # a mean correlation of the methods below this is a disagreement
HELD = 0.90  # a prediction above which, without any method's first words, nothing turned it
WHY = ("evenly spaced", "methods disagree", "least certain", "wrong", "nothing turned it", "does not add up")


# --- values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneClass:
    """The rows with one prediction."""

    name: str
    rows: int
    counted: int  # rows behind `probability`; fewer than `rows` where the class was dropped as rare and came again
    probability: Bins
    mean: float | None
    top: dict[str, Listed]  # method -> (word, mean share of the absolute scores, times)
    signed: dict[str, dict[str, Listed]] = field(default_factory=dict)  # method -> towards, against
    words: dict[str, dict[str, Listed]] = field(default_factory=dict)  # method -> for, against; by rows


@dataclass
class Judged:
    """Predictions compared with a carried column of labels. A number is the model's own class number, as for
    `target="gold"`; of a model without classes by name, words are compared."""

    column: str
    rows: int = 0  # with a label that is one of the model's classes
    correct: int = 0
    unknown: int = 0  # with a label that is not
    without: int = 0
    table: Counter[tuple[str, str]] = field(default_factory=Counter)  # (label, prediction) -> rows
    classes: Sequence[str] = ()

    def add(self, value: Any, predicted: str) -> tuple[str | None, bool | None]:
        """The label that a value means, and whether it is what was predicted."""
        try:
            if self.classes:
                whole = int(value) if isinstance(value, float) and value.is_integer() else value
                label = label_of(whole, self.classes)
            else:
                label = None if value is None else str(value).strip() or None
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

    def why_not(self) -> str | None:
        """Why there is no accuracy."""
        if self.rows:
            return None
        known = f" ({', '.join(self.classes[:12])})" if self.classes else ""
        return (
            f"No row has a label in the column {self.column!r} that is a class of the model{known}, so there is no "
            "accuracy. "
            f"{self.unknown:,} rows have another value, {self.without:,} have none."
        )


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
    agreement: float | None  # mean Spearman correlation over the pairs of methods, over words
    carried: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    scores: np.ndarray = field(repr=False)
    file: str  # the shard it is in
    why: tuple[str, ...] = ()
    words: tuple[Word, ...] = ()
    check: RowCheck | None = None
    tags: tuple[str, ...] = ()  # the lists of rows worth a look that it belongs to


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
    signed: tuple[str, ...] = ()  # methods with scores below 0
    word_agreement: dict[tuple[str, str], Mean] = field(default_factory=dict)
    special: dict[str, Mean] = field(default_factory=dict)  # method -> share of the scores of tokens of no word
    removal: Removal | None = None  # None: the run made no check
    tagged: Counter[str] = field(default_factory=Counter)  # list of rows worth a look -> rows
    sure: int = 0  # rows with a probability above SURE


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

    `label`: the carried column to compare predictions with, by default `label` (or labels, gold, class) of a
    classifier.
    """
    if not isinstance(examples, int) or isinstance(examples, bool) or not 0 <= examples <= 10_000:
        raise InputError(f"examples is how many rows can be looked at, 0 to 10,000, not {examples!r}.")
    manifest = manifest_of(out)
    judged, why_not = judged_by(manifest, label)
    seen = _Pass(methods_of(manifest), judged, examples, sum(facts_of(p)["rows"] for p in shard_files(out)))
    reasons = visit_rows(out, manifest, seen.add)
    counts = seen.counts
    named = counts.predicted.most_common(classes)
    notes = []
    if counts.has_dropped:
        notes += [
            "There were more different tokens than are counted: the rarest were let go, so top tokens are of frequent "
            "ones."
        ]
    if counts.unnamed:
        notes += [
            f"{counts.unnamed:,} rows have a prediction that was too rare to be kept; they count in all other numbers."
        ]
    return Overview(
        out=str(out),
        manifest=manifest,
        methods=tuple(counts.methods),
        finished=bool(manifest.get("finished")),
        rows=counts.rows,
        errors=reasons.total(),
        reasons=reasons.most_common(20),
        classes=[
            OneClass(
                name, rows, *seen.certainty(name), *counts.word_lists(name, top=top, least=least, least_rows=LEAST_ROWS)
            )
            for name, rows in named
        ],
        other_classes=len(counts.predicted) - len(named),
        probability=seen.probability,
        judged=judged if judged is not None and judged.rows else None,
        not_judged=why_not if judged is None else judged.why_not(),
        agreement=counts.agreement,
        ratios=counts.ratios,
        gap=counts.gap,
        gaps=seen.gaps.trimmed(),
        no_gap=seen.no_gap,
        largest_gaps=seen.of("largest gaps"),
        lengths=seen.lengths,
        seconds=counts.seconds,
        times=seen.times.trimmed(),
        slow=counts.slowest(10),
        examples=seen.samples(),
        notes=notes,
        signed=tuple(method for method in counts.methods if method in counts.signed),
        word_agreement=counts.word_agreement,
        special=counts.special,
        removal=counts.removal if counts.removal.rows else None,
        tagged=seen.tagged,
        sure=seen.sure,
    )


class _Pass:
    """What a page shows beside the counts of a summary."""

    def __init__(self, methods: Sequence[str], judged: Judged | None, examples: int, rows: int):
        self.counts, self.judged, self.examples = Counts(methods), judged, examples
        self.probability, self.gaps, self.times = Bins(PROBABILITY), Bins(GAP), Bins(SECONDS)
        self.no_gap = self.sure = 0
        self.lengths: Counter[int] = Counter()
        self.tagged: Counter[str] = Counter()
        self.certain: dict[str, tuple[Bins, Mean]] = {}
        self.step, self.room = spacing(rows, examples // 2), examples if rows <= examples else 0
        self.spaced: list[Sampled] = []
        self.every: list[Sampled] = []  # all rows, where there is room for them
        # reason -> (a value that is low where the reason is strong, row, what is held of it), the lowest first
        self.chosen: dict[str, list[tuple[float, int, Any]]] = defaultdict(list)

    def add(self, row: Mapping[str, Any], file: str) -> None:
        """Count one row in everything."""
        number = self.counts.rows
        seen = self.counts.add(row)
        self.lengths[len(row["tokens"])] += 1
        self.times.add(row["seconds"])
        probability, gap = row.get("probability"), row.get("gap")
        if probability is not None:
            self.probability.add(probability)
            self.sure += probability > SURE
            bins, mean = self.certain.setdefault(seen.predicted, (Bins(PROBABILITY), Mean()))
            bins.add(probability)
            mean.add(probability)
            if len(self.certain) > CLASSES:
                often = {name for name, _ in self.counts.predicted.most_common(CLASSES // 4)}
                self.certain = {name: pair for name, pair in self.certain.items() if name in often}
        if gap is not None:
            self.no_gap += gap == 0
            if gap > 0:
                self.gaps.add(gap)
        label, correct = None, None
        if self.judged is not None and seen.predicted != NONE:
            label, correct = self.judged.add(row.get(self.judged.column), seen.predicted)
        reasons = reasons_of(row, seen, correct)
        apart, _, wrong, held, opened = reasons.values()
        belongs = {
            "wrong": wrong is not None and -wrong > SURELY_WRONG,
            "held": held is not None,
            "apart": apart is not None and apart < APART,
            "open": opened is not None,
        }
        tags = tuple(tag for tag, belonging in belongs.items() if belonging)
        self.tagged.update(tags)
        column = None if self.judged is None else self.judged.column
        make = cache(lambda: sampled(row, seen, column, file=file, label=label, correct=correct, tags=tags))
        if self.examples and number % self.step == 0:
            self.spaced.append(make())
        if number < self.room:
            self.every.append(make())
        for why, value in reasons.items():
            self._choose(why, value, int(row["row"]), make)
        facts = {"row": int(row["row"]), "id": row["id"], "gap": gap}
        self._choose("largest gaps", None if gap is None else -gap, facts["row"], lambda: facts)

    def _choose(self, why: str, value: float | None, row: int, make: Callable[[], Any]) -> None:
        """Hold a row while its value is among the lowest; of equal values those of the first rows are."""
        held, most = self.chosen[why], 5 if why == "largest gaps" else self.examples // 6
        if value is None or not most or not math.isfinite(value):
            return
        if len(held) < most or (value, row) < held[-1][:2]:
            insort(held, (value, row, make()), key=lambda entry: entry[:2])
            del held[most:]

    def of(self, why: str) -> list[Any]:
        """What is held for a reason, the strongest first."""
        return [made for *_, made in self.chosen[why]]

    def certainty(self, name: str) -> tuple[int, Bins, float | None]:
        """Of the rows with one prediction: how many were counted, their probabilities, and the mean of these."""
        bins, mean = self.certain.get(name, (Bins(PROBABILITY), Mean()))
        return int(bins.counts.sum()) if name in self.certain else self.counts.predicted[name], bins, mean.value

    def samples(self) -> list[Sampled]:
        """Each row once, with all reasons it was chosen for. The kinds take turns: a cut at any place leaves some of
        each. Where all rows are held, those that were not chosen come last."""
        rows: dict[int, Sampled] = {}
        for turn in zip_longest(spread(self.spaced), *map(self.of, WHY[1:])):
            for why, sample in zip(WHY, turn, strict=True):
                if sample is not None:
                    known = rows.setdefault(sample.row, sample)
                    rows[sample.row] = replace(known, why=(*known.why, why))
        return [*rows.values(), *(sample for sample in self.every if sample.row not in rows)]


# --- examples ---------------------------------------------------------------------------------------------------------


def spacing(rows: int, most: int) -> int:
    """The smallest power of two at whose multiples there are no more than `most` rows."""
    most, step = max(2, most + most % 2), 1
    while -(-rows // step) > most:
        step *= 2
    return step


def spread(items: Sequence[Any]) -> list[Any]:
    """The items in the order first, middle, quarters, eighths: any number of them from the front is spread over all."""
    bits = len(items).bit_length()
    return [items[i] for i in sorted(range(len(items)), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))]


def reasons_of(row: Mapping[str, Any], seen: RowFacts, correct: bool | None) -> dict[str, float | None]:
    """Of each reason to show a row a value that is low where the reason is strong; None where it does not apply."""
    probability, check = row.get("probability"), seen.check
    left = None if check is None else min(check.left.values(), default=None)
    gap = None if check is None else check.gap
    values = (
        seen.agreement,
        probability,
        -probability if correct is False and probability is not None else None,
        -left if left is not None and left >= HELD else None,
        -gap if gap is not None and gap > OPEN else None,
    )
    return dict(zip(WHY[1:], values, strict=True))


def sampled(row: Mapping[str, Any], seen: RowFacts, column: str | None, **known: Any) -> Sampled:
    """The row as the page shows it: long texts and values are cut. `column`: the carried column of labels."""
    tokens, value, label = row["tokens"], None if column is None else row.get(column), known.pop("label")
    return Sampled(
        row=int(row["row"]),
        id=cut(str(row["id"]), FIELD),
        text=cut(row.get("text") or " ".join(tokens), TEXT),
        pair=None if row.get("pair") is None else cut(row["pair"], TEXT),
        tokens=tuple(tokens[:LONG]),
        special=tuple(number < 0 for number in row[WORD_OF][:LONG]),
        left_out=max(0, len(tokens) - LONG),
        query=int(row["query"]),
        prediction=seen.predicted,
        probability=row.get("probability"),
        target=row.get("target"),
        label=label if label is not None or value is None else cut(str(value), FIELD),
        gap=row.get("gap"),
        seconds=float(row["seconds"]),
        agreement=seen.agreement,
        carried=tuple(
            (name, cut(str(value), FIELD))
            for name, value in row.items()
            if value is not None and not is_computed(name) and name not in seen.scores
        ),
        methods=tuple(seen.scores),
        scores=np.array([values[:LONG] for values in seen.scores.values()]).reshape(len(seen.scores), -1),
        words=tuple(word for word in words_of(row) if max(word.tokens) < LONG),
        check=seen.check,
        **known,
    )


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def judged_by(manifest: Mapping[str, Any], label: str | None) -> tuple[Judged | None, str | None]:
    """What compares predictions with the column that `label` names, or one with a usual name; or why nothing does."""
    model, identity = mapping(manifest.get("model")), mapping(manifest.get("identity"))
    carried, classes = names(mapping(identity.get("options")).get("columns")), names(model.get("classes"))
    if label is not None and label not in carried:
        known = nearest(label, carried) if carried else "This run carried none: --columns."
        raise InputError(f"the run carried no column {label!r}. {known}")
    column = label or next((name for name in LABELS if name in carried), None)
    if column is None:
        return None, None
    if label is None and not classes:
        return (
            None,
            f"The model has no classes by name, so the column {column!r} is not compared with what it predicts.",
        )
    return Judged(column, classes=classes), None
