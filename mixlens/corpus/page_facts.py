"""`overview`: what the page of a run shows. One pass over the shards; what is held does not grow with the rows."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import InputError
from .page_labels import Judged, Labels, labels_of
from .page_samples import Bins, Lowest, Sampled, Spaced, sampled, spread
from .summary import CLASSES, Mean, Tally, gone_over, manifest_of, methods_of

EXAMPLES = 60
PROBABILITY = np.linspace(0, 1, 21)
GAP = 10.0 ** np.arange(-18, 1.01, 0.5)
SECONDS = 10.0 ** np.arange(-6, 4.01, 0.25)
WHY = ("evenly spaced", "methods disagree", "least certain", "wrong")


# --- values -----------------------------------------------------------------------------------------------------------


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
    wide = _Wide(methods_of(manifest), labels_of(manifest, label), examples)
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
                self.certain = {name: pair for name, pair in self.certain.items() if name in self.tally.classes}
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

        def sample() -> Sampled:
            return sampled(row, file, seen, label, correct, mean_agreement, self.labels.column)

        self.spaced.offer(sample)
        if mean_agreement is not None:
            self.chosen["methods disagree"].offer(mean_agreement, number, sample)
        if probability is not None:
            self.chosen["least certain"].offer(probability, number, sample)
            if correct is False:
                self.chosen["wrong"].offer(-probability, number, sample)

    def of_class(self, name: str, rows: int, top: int, least: int) -> OneClass:
        bins, mean = self.certain.get(name, (Bins(PROBABILITY), Mean()))
        tokens = {method: self.tally.top(name, method, top, least) for method in self.tally.methods}
        counted = self.tally.classes[name].rows if name in self.tally.classes else 0
        return OneClass(name, rows, counted, bins, mean.value, tokens, self.tally.signed_top(name, top, least))

    def examples(self) -> list[Sampled]:
        """Each row once, with all that it was chosen for. The kinds take turns: a cut at any place leaves some of each."""
        if self.spaced is None:
            return []
        kinds = [spread(self.spaced.kept), *(self.chosen[why].found() for why in WHY[1:])]
        rows: dict[int, Sampled] = {}
        for turn in range(max(map(len, kinds))):
            for why, kind in zip(WHY, kinds, strict=True):
                if turn < len(kind):
                    one = rows.setdefault(kind[turn].row, kind[turn])
                    rows[one.row] = replace(one, why=(*one.why, why))
        return list(rows.values())

    def notes(self) -> list[str]:
        notes = []
        if self.tally.let_go:
            notes.append(
                "There were more different tokens than are counted: the rarest were let go, so top tokens are of frequent ones."
            )
        if self.tally.unnamed:
            notes.append(
                f"{self.tally.unnamed:,} rows have a prediction that was too rare to be kept; they count in all other numbers."
            )
        return notes
