"""What a paper says, beside what a run gives: published numbers, claims, and verdicts that follow from written rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from ...metrics.comparisons import Difference, simultaneous
from ...metrics.intervals import Interval
from ...types import Record
from .tables import Cell, Table

SAME, DIFFERENT, UNDECIDED, INCOMPARABLE = "same", "different", "not told apart", "not comparable"
MOST = 0.75  # the share of layers that "almost every layer" asks for
WORDS = (SAME, DIFFERENT, UNDECIDED, INCOMPARABLE)
RULES = (
    "A claim of order (A above B) is judged by the differences A - B on the same examples, with 95 % intervals that hold "
    "for all pairs of the claim at once (max-t over 2,000 common resamples). **same**: every interval is above 0. "
    "**different**: one interval or more is below 0. **not told apart**: neither; the number of examples that would decide "
    "it (80 % power, for that pair alone) is given. For a claim that A is below B, read above and below exchanged. A claim of "
    "a bound is judged likewise by the differences from the bound. A claim about almost every layer is judged by all layers "
    "at once: **same** "
    "where it holds in three quarters of the layers or more, **different** where it is the other way round in more than a "
    "quarter of them. A claim about every layer shows of each layer the pair that speaks least for it. A claim that something "
    "rises or falls with depth is judged by Spearman's rank correlation of layer and value in each text: its mean over the "
    "texts is compared with 0, as a bound is. A claim that compares two runs is judged by the differences of their means; the "
    "texts of each run are resampled apart (1,000 times). Where a value belongs to a layer and not to a text, layers are "
    "resampled. A claim that two things differ is **same** where one interval leaves out 0. "
    "**not comparable**: the run does not measure what the paper measures, or lacks what the claim takes for granted; the reason "
    "is given. "
    "Numbers of the paper stand beside ours for the reader; they come from other models and are not tested for equality. "
    "Claims about ranks over layers are judged by the share of all orders of the layers that correlate as highly in either "
    "direction (p below 0.05; the verdict names the smallest rho that so few layers can tell from chance), and claims that one "
    "such correlation is above another by 1,000 resamples of the examples; for these no number of examples is given. Exact "
    "values, such as correlations of weights, have no interval and are compared with the bound as they are; a claim that two "
    "numbers are almost equal holds where the interval of their difference lies within the width that the claim names."
)
Examples = Mapping[str, float]  # example -> value
Check = Callable[[Any, Sequence[Record], Sequence[Table]], "Verdict"]


@dataclass(frozen=True)
class Verdict:
    """One of the four words, what was measured, and the reason."""

    word: str
    ours: str
    reason: str = ""

    def __post_init__(self) -> None:
        assert self.word in WORDS

    @property
    def text(self) -> str:
        return f"{self.word} ({self.reason})" if self.reason else self.word


@dataclass(frozen=True)
class Claim:
    """A statement of the paper in our words, where it stands, its numbers there, and how a run is judged by it.

    `check(setup, records, tables)` gives the verdict. It is pure: the same records give the same verdict. A paper may say the
    same of other data elsewhere: `at` maps the name of such data to that place, or to None where it says nothing of this data.
    `given` has the options of runs that it is about, `models` the number of models that it is about; other runs are not judged by
    it.
    """

    where: str
    says: str
    paper: str
    check: Check
    at: Mapping[str, str | None] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    models: int | None = None

    def is_about(self, setup: Any) -> bool:
        fits = self.models in (None, len(setup.models))
        return fits and all(setup.options.get(name) == value for name, value in self.given.items())

    def place(self, data: str) -> str | None:
        """Where the paper says it of this data; None where it does not."""
        return self.at.get(data, self.where)

    def numbers(self, data: str) -> str:
        """The paper's numbers. Those of a place that is about other data are marked."""
        return f"of other data: {self.paper}" if data in self.at else self.paper


@dataclass(frozen=True)
class Published:
    """Numbers of the paper as printed, for one setting. They stand beside one column of one table of ours.

    `numbers` maps the first cells of a row of our table (one cell, or a tuple of `keys` cells) to the printed number.
    """

    where: str  # "Table 2"
    setting: str  # "BERT, SST-2"
    column: str  # of our table
    numbers: Mapping[Any, str]
    table: str = ""  # the name of our table; the first one without a name
    keys: int = 1
    std: bool = False  # the numbers are mean ± standard deviation, so ours is written like that too
    absent: str = "not run"  # what stands for ours where our table has no such row
    given: Mapping[str, Any] = field(default_factory=dict)  # the options of runs that they stand beside

    def is_about(self, setup: Any) -> bool:
        return all(setup.options.get(name) == value for name, value in self.given.items())

    @property
    def title(self) -> str:
        return f"{self.setting} ({self.where})"


# --- tables -------------------------------------------------------------------------------------------------------------


def beside(published: Sequence[Published], tables: Sequence[Table]) -> list[Table]:
    """Our columns with the paper's numbers beside them: one table for each column that has published numbers."""
    groups: dict[tuple[str, str], list[Published]] = {}
    for one in published:
        groups.setdefault((one.table or tables[0].name, one.column), []).append(one)
    named = {table.name: table for table in tables}
    return [
        _beside(named[name], column, group) for (name, column), group in groups.items() if _has(named.get(name), column)
    ]


def _has(table: Table | None, column: str) -> bool:
    return table is not None and column in table.columns


def _beside(table: Table, column: str, published: Sequence[Published]) -> Table:
    keys, place = published[0].keys, table.columns.index(column)
    columns = (*table.columns[:keys], f"{column}, here", *(one.title for one in published))
    rows = tuple((*row[:keys], _ours(row[place], published[0]), *_printed(row[:keys], published)) for row in table.rows)
    absent = _absent(table, published)
    return Table(
        f"paper-{table.name}-{column}".replace(" ", "-"), f"{column}: ours beside the paper's", columns, rows + absent
    )


def _ours(cell: Cell, published: Published) -> Cell:
    return f"{cell.mean:.2f} ± {cell.std:.2f}" if published.std and isinstance(cell, Interval) else cell


def _printed(key: tuple[Cell, ...], published: Iterable[Published]) -> list[str]:
    name = key[0] if len(key) == 1 else key
    return [one.numbers.get(name, "") for one in published]


def _absent(table: Table, published: Sequence[Published]) -> tuple[tuple[Cell, ...], ...]:
    """Rows of the paper that our table does not have: the run did not measure them."""
    keys = published[0].keys
    present = {row[:keys] for row in table.rows}
    names = dict.fromkeys(_as_key(name) for one in published for name in one.numbers)
    return tuple((*key, published[0].absent, *_printed(key, published)) for key in names if key not in present)


def _as_key(name: Any) -> tuple[Any, ...]:
    return name if isinstance(name, tuple) else (name,)


def judged_claims(
    claims: Sequence[Claim], setup: Any, records: Sequence[Record], tables: Sequence[Table]
) -> list[Table]:
    """The claims of the paper, one row each, with their verdicts. No claims, no table."""
    data, about = setup.data, [claim for claim in claims if claim.is_about(setup)]
    rows = [(claim, place) for claim in about if (place := claim.place(data)) is not None]
    if not rows:
        return []
    judged = [(claim, place, claim.check(setup, records, tables)) for claim, place in rows]
    cells = tuple(
        (claim.says, place, claim.numbers(data), verdict.ours, verdict.text) for claim, place, verdict in judged
    )
    columns = ("the paper says", "where", "paper", "here", "verdict")
    return [Table("claims", "What the paper says, and what this run says", columns, cells, RULES)]


# --- values of a run ----------------------------------------------------------------------------------------------------


def values_of(
    records: Iterable[Record], method: str, metric: str, where: Callable[[Record], bool] | None = None
) -> dict[str, float]:
    """The value of each example: the mean over its records of this method and metric for which `where` is true."""
    groups: dict[str, list[float]] = {}
    for record in records:
        if (record.method, record.metric) == (method, metric) and (where is None or where(record)):
            groups.setdefault(record.example, []).append(record.value)
    return {example: float(np.mean(numbers)) for example, numbers in groups.items()}


# --- rules --------------------------------------------------------------------------------------------------------------


def above(
    methods: str | Sequence[str],
    rivals: Sequence[str],
    metric: str,
    *,
    where: Callable[[Record], bool] | None = None,
    lower: bool = False,
) -> Check:
    """The claim that each of `methods` is above each of `rivals` on a metric (below, with `lower`), example by example."""
    firsts = (methods,) if isinstance(methods, str) else tuple(methods)
    return pairs_above([(first, rival) for first in firsts for rival in rivals], metric, where=where, lower=lower)


def pairs_above(
    pairs: Sequence[tuple[str, str]], metric: str, *, where: Callable[[Record], bool] | None = None, lower: bool = False
) -> Check:
    """The claim that the first method of each pair is above the second on a metric (below, with `lower`), example by example."""

    names = short_names([name for pair in pairs for name in pair])

    def check(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
        values = {short: values_of(records, name, metric, where) for name, short in names.items()}
        return order(values, [(names[a], names[b]) for a, b in pairs], seed=setup.seed, lower=lower)

    return check


def short_names(methods: Sequence[str]) -> dict[str, str]:
    """Each method as a verdict calls it: without its options, where no other method of the claim has that name."""
    unique = dict.fromkeys(methods)
    bare = [method.partition(":")[0] for method in unique]
    return {method: name if bare.count(name) == 1 else method for method, name in zip(unique, bare, strict=True)}


def order(
    values: Mapping[str, Examples], pairs: Sequence[tuple[str, str]], *, seed: int = 0, lower: bool = False
) -> Verdict:
    """The verdict on "the first of each pair is above the second" (below, with `lower`), from values by example."""
    refusal = _refusal(values, pairs)
    if refusal is not None:
        return refusal
    sign = -1.0 if lower else 1.0
    differences = _differences(values, pairs, seed, sign)
    return _verdict({f"{a} - {b}": one for (a, b), one in differences.items()}, sign)


def in_most(
    values: Mapping[str, Mapping[str, Examples]], pairs: Sequence[tuple[str, str]], *, seed: int = 0
) -> Verdict:
    """The verdict on "the first of each pair is above the second in almost every layer".

    `values` maps the name of each layer to the values by method and example. All layers are compared at once.
    """
    flat = dict(chain.from_iterable(_in_layer(layer, of_layer) for layer, of_layer in values.items()))
    of_layers = {layer: [(f"{layer}, {a}", f"{layer}, {b}") for a, b in pairs] for layer in values}
    every = list(chain.from_iterable(of_layers.values()))
    refusal = _refusal(flat, every)
    if refusal is not None:
        return refusal
    differences = _differences(flat, every, seed, 1.0)
    return most({layer: _word([differences[pair] for pair in of_layer]) for layer, of_layer in of_layers.items()})


def in_all(
    values: Mapping[str, Mapping[str, Examples]],
    pairs: Sequence[tuple[str, str]],
    *,
    seed: int = 0,
    lower: bool = False,
) -> Verdict:
    """The verdict on "the first of each pair is above the second in every layer" (below, with `lower`), all at once.

    Of each layer the pair that speaks least for the claim is shown: the intervals hold for all pairs, so it may be picked
    afterwards.
    """
    flat = dict(chain.from_iterable(_in_layer(layer, of_layer) for layer, of_layer in values.items()))
    of_layers = {layer: [(f"{layer}, {a}", f"{layer}, {b}") for a, b in pairs] for layer in values}
    refusal = _refusal(flat, list(chain.from_iterable(of_layers.values())))
    if refusal is not None:
        return refusal
    sign = -1.0 if lower else 1.0
    every = _differences(flat, list(chain.from_iterable(of_layers.values())), seed, sign)
    lowest = [min(some, key=lambda pair: (every[pair].sign, every[pair].low)) for some in of_layers.values()]
    shown = _verdict({f"{a} - {b.partition(', ')[2]}": every[a, b] for a, b in lowest}, sign)
    return Verdict(_word(list(every.values())), shown.ours, shown.reason)


def _in_layer(layer: str, values: Mapping[str, Examples]) -> list[tuple[str, Examples]]:
    return [(f"{layer}, {name}", one) for name, one in values.items()]


def most(words: Mapping[str, str], *, against: str = "the other way round") -> Verdict:
    """The verdict on "in almost every layer", from the word of each layer. `against` says what a layer that differs does."""
    if not words:
        return incomparable("no layer has a value")
    same, different, _ = layers = [_layers_with(word, words) for word in (SAME, DIFFERENT, UNDECIDED)]
    ours = "; ".join(f"{word}: {', '.join(names)}" for word, names in zip(WORDS, layers, strict=False) if names)
    if len(same) >= MOST * len(words):
        return Verdict(SAME, ours)
    if len(different) > (1 - MOST) * len(words):
        return Verdict(DIFFERENT, ours, f"{against} in {len(different)} of {len(words)}")
    return Verdict(UNDECIDED, ours, f"it holds in {len(same)} of {len(words)}")


def _layers_with(word: str, words: Mapping[str, str]) -> list[str]:
    return [layer for layer, one in words.items() if one == word]


def _word(differences: Sequence[Difference]) -> str:
    """The word by the rule for order."""
    if any(one.sign < 0 for one in differences):
        return DIFFERENT
    return SAME if all(one.sign > 0 for one in differences) else UNDECIDED


def _refusal(values: Mapping[str, Examples], pairs: Sequence[tuple[str, str]]) -> Verdict | None:
    """Why these pairs cannot be compared; None where they can."""
    if not pairs:
        return incomparable("nothing of what the claim compares was run")
    absent = [name for name in dict.fromkeys(chain.from_iterable(pairs)) if not values.get(name)]
    if absent:
        return incomparable(f"not run: {', '.join(absent)}")
    few = len(_shared(values, pairs)) < 2
    return incomparable("fewer than two examples have all these values") if few else None


def _shared(values: Mapping[str, Examples], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The examples that have every value, in the order of the first method."""
    return [example for example in values[pairs[0][0]] if all(example in one for one in values.values())]


def _differences(
    values: Mapping[str, Examples], pairs: Sequence[tuple[str, str]], seed: int, sign: float
) -> dict[tuple[str, str], Difference]:
    shared = _shared(values, pairs)
    arrays = {name: sign * np.array([one[example] for example in shared]) for name, one in values.items()}
    return simultaneous(arrays, pairs, seed=seed)


def positive(contrasts: Mapping[str, Examples], *, bound: float = 0.0, seed: int = 0) -> Verdict:
    """The verdict on "each of these is above `bound`", from values by example. A name says what a contrast is."""
    examples = {example for one in contrasts.values() for example in one}
    values: dict[str, Examples] = {"bound": dict.fromkeys(examples, bound), **contrasts}
    verdict = order(values, [(name, "bound") for name in contrasts], seed=seed)
    name = "" if bound == 0 else f" - {bound:g}"
    return Verdict(verdict.word, *(text.replace(" - bound", name) for text in (verdict.ours, verdict.reason)))


def difference(one: Examples, other: Examples) -> dict[str, float]:
    """one - other, for the examples that both have."""
    return {example: value - other[example] for example, value in one.items() if example in other}


def incomparable(reason: str, ours: str = "-") -> Verdict:
    """The run does not measure what the paper measures."""
    return Verdict(INCOMPARABLE, ours, reason)


def bounded(intervals: Mapping[str, Interval], *, low: float = -np.inf, high: float = np.inf) -> Verdict:
    """The verdict on "each of these lies between `low` and `high`", from intervals that were made elsewhere."""
    ours = _intervals_shown(intervals)
    outside = [name for name, one in intervals.items() if one.high < low or one.low > high]
    if outside:
        return Verdict(DIFFERENT, ours, f"outside: {', '.join(outside)}")
    inside = all(one.low >= low and one.high <= high for one in intervals.values())
    return Verdict(SAME, ours) if inside else Verdict(UNDECIDED, ours, "an interval holds the bound")


def _intervals_shown(intervals: Mapping[str, Interval]) -> str:
    return "; ".join(f"{name} {one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" for name, one in intervals.items())


def _verdict(differences: Mapping[str, Difference], sign: float) -> Verdict:
    """The word by the rule for order. Differences are shown as they are measured, before `lower` turns their sign."""
    ours = "; ".join(f"{name} {_shown(one, sign)}" for name, one in differences.items())
    against = [name for name, one in differences.items() if one.sign < 0]
    undecided = {name: one for name, one in differences.items() if one.sign == 0}
    if against:
        return Verdict(DIFFERENT, ours, f"the other way round: {', '.join(against)}")
    if undecided:
        return Verdict(UNDECIDED, ours, "; ".join(_needed(name, one) for name, one in undecided.items()))
    return Verdict(SAME, ours)


def _shown(one: Difference, sign: float) -> str:
    if not np.isfinite(one.high):
        return f"{sign * one.mean:+.3f} (no interval from {one.n} examples)"
    low, high = sorted((sign * one.low, sign * one.high))
    digits = 3 if min(abs(low), abs(high)) >= 0.0005 else 5  # an end that decides a verdict is not written as 0
    return f"{sign * one.mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _needed(name: str, one: Difference) -> str:
    if one.needed is None:
        return f"{name}: no number of examples would tell"
    if one.needed <= one.n:
        return f"{name}: {one.n} examples are too few for all pairs at once"
    about = "more than 100,000" if one.needed > 100_000 else f"about {one.needed:,}"
    return f"{name}: {about} examples would tell, here {one.n:,}"
