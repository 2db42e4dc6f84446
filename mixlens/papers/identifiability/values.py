"""Values that the evaluations of On Identifiability in Transformers (Brunner et al. 2020) share: depths, texts, contrasts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...metrics.comparisons import Difference, simultaneous
from ...metrics.intervals import Interval, mean_with_interval, statistic_with_interval
from ...runs.experiments.claims import (
    DIFFERENT,
    SAME,
    UNDECIDED,
    Examples,
    Verdict,
    bounded,
    in_most,
    incomparable,
    positive,
    values_of,
)
from ...runs.experiments.experiment import Setup
from ...runs.experiments.tables import Table
from ...types import Record

DEPTHS = ("first layer", "middle layer", "last layer")
ALMOST = 0.05  # two rates are almost equal if they differ by less
HTA = "hta"


# --- layers ---------------------------------------------------------------------------------------------------------------


def depth_of(records: Iterable[Record]) -> int:
    """The number of the last layer that the records have."""
    return max((int(record.info["layer"]) for record in records if "layer" in record.info), default=0)


def three_layers(depth: int) -> tuple[int, int, int]:
    """The first, the middle and the last layer: 1, 6 and 12 of 12."""
    return 1, max(1, depth // 2), depth


def thirds(depth: int) -> tuple[range, range, range]:
    """The early, middle and late third of the layers: 1-4, 5-8 and 9-12 of 12."""
    first, second = round(depth / 3), round(2 * depth / 3)
    return range(1, first + 1), range(first + 1, second + 1), range(second + 1, depth + 1)


# --- values of texts ------------------------------------------------------------------------------------------------------


def select(records: Iterable[Record], metric: str, method: str | None = None, **info: Any) -> list[Record]:
    """The records of a metric (and of a method) whose info has these values."""
    return [r for r in records if r.metric == metric and method in (None, r.method) and _agrees(r, info)]


def _agrees(record: Record, info: Mapping[str, Any]) -> bool:
    return all(record.info.get(key) == value for key, value in info.items())


def of_layers(
    records: Iterable[Record], method: str, metric: str, layers: Iterable[int], **info: Any
) -> dict[str, float]:
    """The mean of each text over some layers, of the records whose info has these values."""
    wanted = set(layers)
    return values_of(select(records, metric, method, **info), method, metric, lambda r: r.info.get("layer") in wanted)


def values_in(
    records: Iterable[Record], method: str, metric: str, layer: int, tags: Collection[str]
) -> dict[str, float]:
    """The mean of each text over its tokens with one of these tags, in one layer."""
    return values_of(records, method, metric, lambda r: r.info.get("layer") == layer and r.info.get("tag") in tags)


def less(first: Examples, second: Examples) -> dict[str, float]:
    """first - second on the texts that both have."""
    return {text: value - second[text] for text, value in first.items() if text in second}


def mean_over(values: Sequence[Examples]) -> dict[str, float]:
    """The mean of several values of each text that all of them have."""
    return {text: float(np.mean([one[text] for one in values])) for text in shared_texts(values)}


def shared_texts(values: Sequence[Examples]) -> list[str]:
    """The texts that have every value, in the order of the first."""
    return [text for text in (values[0] if values else ()) if all(text in one for one in values)]


def method_named(setup: Setup, name: str) -> str | None:
    """The first method of the run with this name, whatever its options; None where it was not run."""
    return next((written for written, request in setup.requests.items() if request.name == name), None)


def with_hta(check: Callable[[Setup, Sequence[Record], str], Verdict]) -> Any:
    """A check of a claim about HTA: it also gets the method as it was written. Without HTA nothing can be compared."""

    def whole(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
        method = method_named(setup, HTA)
        return incomparable("hta was not run") if method is None else check(setup, records, method)

    return whole


# --- rules ----------------------------------------------------------------------------------------------------------------


def above_zero(contrasts: Mapping[str, Examples], *, seed: int = 0) -> Verdict:
    """The verdict on "each of these is above 0"; nothing to compare gives none."""
    return positive(contrasts, seed=seed) if contrasts else incomparable("nothing of what the claim compares was run")


def mostly_above_zero(contrasts: Mapping[str, Examples], *, seed: int = 0) -> Verdict:
    """The verdict on "almost all of these are above 0", all compared at once."""
    both = {name: {"difference": one, "0": dict.fromkeys(one, 0.0)} for name, one in contrasts.items()}
    return (
        in_most(both, [("difference", "0")], seed=seed)
        if both
        else incomparable("nothing of what the claim compares was run")
    )


def almost_equal(differences: Mapping[str, Examples], *, margin: float = ALMOST, seed: int = 0) -> Verdict:
    """The verdict on "these differences are at most `margin`", from the mean over texts of each."""
    if not all(len(one) > 1 for one in differences.values()):
        return incomparable("fewer than two examples have all these values")
    intervals = {name: mean_with_interval(list(one.values()), seed=seed) for name, one in differences.items()}
    return bounded(intervals, low=-margin, high=margin)


def unequal(differences: Mapping[str, Examples], *, margin: float = 0.01, seed: int = 0) -> Verdict:
    """The verdict on "some of these differences are not 0". It is the other way round if all of them lie within the margin."""
    texts = shared_texts(list(differences.values()))
    if len(texts) < 2:
        return incomparable("fewer than two examples have all these values")
    values: dict[str, Any] = {name: [one[text] for text in texts] for name, one in differences.items()}
    found = simultaneous({**values, "0": [0.0] * len(texts)}, [(name, "0") for name in differences], seed=seed)
    return _word_on_unequal({name: one for (name, _), one in found.items()}, margin)


def _word_on_unequal(found: Mapping[str, Difference], margin: float) -> Verdict:
    ours = "; ".join(f"{name} {one}" for name, one in found.items())
    if any(one.sign for one in found.values()):
        return Verdict(SAME, ours)
    if all(-margin < one.low and one.high < margin for one in found.values()):
        return Verdict(DIFFERENT, ours, f"all within {margin:g}")
    return Verdict(UNDECIDED, ours, "no interval leaves 0 out")


# --- totals ---------------------------------------------------------------------------------------------------------------


def ratio_with_interval(parts: Sequence[float], wholes: Sequence[float], *, seed: int = 0) -> Interval:
    """sum(parts) / sum(wholes) over texts, with an interval from resampled texts."""
    above, below = np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64)
    return statistic_with_interval(lambda rows: float(above[rows].sum() / below[rows].sum()), len(above), seed=seed)
