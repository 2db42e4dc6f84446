"""`overview`: what the page of a run shows. One pass over the shards; what is held does not grow with the rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...base.errors import InputError
from .bins import Bins
from .page_labels import Judged, Labels, labels_of
from .page_samples import Candidate, Examples, Lowest, Sampled
from .reading import manifest_of, methods_of, visit_rows
from .tally import CLASSES, ClassCounts, Mean, Tally
from .turned_counts import TurnedCounts

EXAMPLES = 300
LEAST_ROWS = 5  # rows that a word must be in to be listed
SURE = 0.99  # probabilities above this are counted as sure
PROBABILITY = np.linspace(0, 1, 21)
GAP = 10.0 ** np.arange(-18, 1.01, 0.5)
SECONDS = 10.0 ** np.arange(-6, 4.01, 0.25)


# --- values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneClass:
    """The rows with one prediction."""

    name: str
    rows: int
    counted: (
        int  # rows behind `probability` and `top`; fewer than `rows` where the class was dropped as rare and came again
    )
    probability: Bins
    mean: float | None
    top: dict[str, list[tuple[str, float, int]]]  # method -> (word, mean share of the absolute scores, times)
    signed: dict[str, dict[str, list[tuple[str, float, int]]]] = field(
        default_factory=dict
    )  # method -> towards, against
    words: dict[str, dict[str, list[tuple[str, float, int]]]] = field(
        default_factory=dict
    )  # method -> for, against; by rows


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
    special: dict[str, Mean] = field(
        default_factory=dict
    )  # method -> share of the absolute scores of tokens of no word
    removal: TurnedCounts | None = None  # None: the run made no check
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

    `label`: the carried column to compare predictions with, by default `label` (or labels, gold, class) of a classifier.
    """
    _refuse_examples(examples)
    manifest = manifest_of(out)
    counts = PageTally(methods_of(manifest), labels_of(manifest, label), examples)
    reasons = visit_rows(out, manifest, counts.add)
    tally = counts.tally
    named = tally.predicted.most_common(classes)
    return Overview(
        out=str(out),
        manifest=manifest,
        methods=tuple(tally.methods),
        finished=bool(manifest.get("finished")),
        rows=tally.rows,
        errors=reasons.total(),
        reasons=reasons.most_common(20),
        classes=[counts.of_class(name, rows, top, least) for name, rows in named],
        other_classes=len(tally.predicted) - len(named),
        probability=counts.probability,
        judged=counts.labels.judged(),
        not_judged=counts.labels.why_not(),
        agreement=dict(tally.agreement),
        ratios=dict(tally.ratios),
        gap=tally.gap,
        gaps=counts.gaps.trimmed(),
        no_gap=counts.no_gap,
        largest_gaps=counts.largest.lowest_first(),
        lengths=counts.lengths,
        seconds=tally.seconds,
        times=counts.times.trimmed(),
        slow=tally.slowest(10),
        examples=counts.examples.rows(),
        notes=counts.notes(),
        signed=tuple(method for method in tally.methods if method in tally.signed),
        word_agreement=dict(tally.word_agreement),
        special=dict(tally.special),
        removal=tally.removal if tally.removal.rows else None,
        tagged=counts.examples.tagged,
        sure=counts.sure,
    )


def _refuse_examples(count: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 10_000:
        raise InputError(f"examples is how many rows can be looked at, 0 to 10,000, not {count!r}.")


class PageTally:
    """A tally, and what a page shows beside it."""

    def __init__(self, methods: Sequence[str], labels: Labels, examples: int):
        self.tally, self.labels, self.examples = Tally(methods), labels, Examples(examples)
        self.probability, self.gaps, self.times = Bins(PROBABILITY), Bins(GAP), Bins(SECONDS)
        self.no_gap = self.sure = 0
        self.lengths: Counter[int] = Counter()
        self.certain: dict[str, tuple[Bins, Mean]] = {}
        self.largest = Lowest(5)

    def add(self, row: Mapping[str, Any], file: str) -> None:
        """Count one row in everything."""
        seen = self.tally.add(row)
        self.lengths[len(row["tokens"])] += 1
        self.times.add(row["seconds"])
        if row.get("probability") is not None:
            self._add_probability(seen.predicted, row["probability"])
        if row.get("gap") is not None:
            self._add_gap({"row": int(row["row"]), "id": row["id"], "gap": row["gap"]})
        label, correct = self.labels.add(row, seen.predicted)
        self.examples.offer(Candidate(row, file, seen, label, correct, self.labels.column))

    def _add_probability(self, predicted: str, probability: float) -> None:
        self.probability.add(probability)
        self.sure += probability > SURE
        bins, mean = self.certain.setdefault(predicted, (Bins(PROBABILITY), Mean()))
        bins.add(probability)
        mean.add(probability)
        if len(self.certain) > 4 * CLASSES:
            self.certain = {name: pair for name, pair in self.certain.items() if name in self.tally.classes}

    def _add_gap(self, facts: dict[str, Any]) -> None:
        gap = facts["gap"]
        self.no_gap += gap == 0
        if gap > 0:
            self.gaps.add(gap)
        self.largest.offer(-gap, facts["row"], facts.copy)

    def of_class(self, name: str, rows: int, top: int, least: int) -> OneClass:
        bins, mean = self.certain.get(name, (Bins(PROBABILITY), Mean()))
        counted = self.tally.classes.get(name, ClassCounts()).rows
        words, signed = self.tally.top_of_methods(name, top, least), self.tally.signed_top(name, top, least)
        of_rows = self.tally.words_of_rows(name, top, LEAST_ROWS)
        return OneClass(name, rows, counted, bins, mean.value, words, signed, of_rows)

    def notes(self) -> list[str]:
        """What a reader must know of the counts."""
        unnamed = self.tally.unnamed
        rare_words = "There were more different tokens than are counted: the rarest were let go, so top tokens are of frequent ones."
        rare_classes = (
            f"{unnamed:,} rows have a prediction that was too rare to be kept; they count in all other numbers."
        )
        notes = {rare_words: self.tally.has_dropped, rare_classes: unnamed > 0}
        return [note for note, applies in notes.items() if applies]
