"""What a paper says, beside what a run gives: published numbers, claims, and verdicts that follow from written rules.

A claim is a line: where the paper says it, what it says in our words, its numbers, and a rule over what a run measured:

Claim("Table 1", "GlobEnc is above raw attention.", "0.77 against -0.11", above("globenc", ["attention"], "rolled out"))
Claim("Figure 3", "It rises.", "a curve", lambda run: run.positive({"rise": run["globenc", "rho", 12] - run["globenc",
"rho", 1]}))
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np

from ...base.optional import optional
from ...metrics.comparisons import Difference, simultaneous
from ...metrics.intervals import Interval
from ...types import Record
from .tables import Cell, Table

SAME, DIFFERENT, UNDECIDED, INCOMPARABLE = "same", "different", "not told apart", "not comparable"
MOST = 0.75  # the share of layers that "almost every layer" asks for
WORDS = (SAME, DIFFERENT, UNDECIDED, INCOMPARABLE)
RULES = (
    "A claim of order (A above B) is judged by the differences A - B on the same examples, with 95 % intervals that "
    "hold for all pairs of the claim at once (max-t over 2,000 common resamples). **same**: every interval is above "
    "0. **different**: one interval or more is below 0. **not told apart**: neither; the number of examples that "
    "would decide it (80 % power, for that pair alone) is given. For a claim that A is below B, read above and below "
    "exchanged. A claim of a bound is judged likewise by the differences from the bound. A claim about almost every "
    "layer is judged by all layers at once: **same** where it holds in three quarters of the layers or more, "
    "**different** where it is the other way round in more than a quarter of them. A claim about every layer shows of "
    "each layer the pair that speaks least for it. A claim that something rises or falls with depth is judged by "
    "Spearman's rank correlation of layer and value in each text: its mean over the texts is compared with 0, as a "
    "bound is. A claim that compares two runs is judged by the differences of their means; the texts of each run are "
    "resampled apart (1,000 times). Where a value belongs to a layer and not to a text, layers are resampled. A claim "
    "that two things differ is **same** where one interval leaves out 0. **not comparable**: the run does not measure "
    "what the paper measures, or lacks what the claim takes for granted; the reason is given. Numbers of the paper "
    "stand beside ours for the reader; they come from other models and are not tested for equality. Claims about "
    "ranks over layers are judged by the share of all orders of the layers that correlate as highly in either "
    "direction (p below 0.05; the verdict names the smallest rho that so few layers can tell from chance), and claims "
    "that one such correlation is above another by 1,000 resamples of the examples; for these no number of examples "
    "is given. Exact values, such as correlations of weights, have no interval and are compared with the bound as "
    "they are; a claim that two numbers are almost equal holds where the interval of their difference lies within the "
    "width that the claim names."
)
Examples = Mapping[str, float]  # example -> value
Layers = Mapping[str, Mapping[str, Examples]]  # the name of a layer -> method -> values
Where = Callable[[Record], bool]
NOTHING_RUN = "nothing of what the claim compares was run"
TOO_FEW = "fewer than two examples have all these values"


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


# --- what a run measured ----------------------------------------------------------------------------------------------


class Values(dict[str, float]):
    """The value of each example. Arithmetic is by example, of those that both sides have."""

    def _with(self, other: Examples | float, act: Callable[[float, float], float]) -> Values:
        if isinstance(other, Mapping):
            return Values({example: act(value, other[example]) for example, value in self.items() if example in other})
        return Values({example: act(value, other) for example, value in self.items()})

    def __sub__(self, other: Examples | float) -> Values:
        return self._with(other, operator.sub)

    def __mul__(self, other: Examples | float) -> Values:
        return self._with(other, operator.mul)

    __rmul__ = __mul__

    def __abs__(self) -> Values:
        return Values({example: abs(value) for example, value in self.items()})


def mean_over(several: Sequence[Examples]) -> Values:
    """The mean of several values of each example, for the examples that all of them have."""
    shared = [example for example in several[0] if all(example in one for one in several)] if several else []
    return Values({example: float(np.mean([one[example] for one in several])) for example in shared})


@dataclass(frozen=True)
class Measured:
    """What a run measured: `run[method, metric, layer]` are the values of its examples. The rules for claims stand on
    it."""

    setup: Any = field(repr=False)
    records: list[Record] = field(repr=False)
    tables: list[Table]

    @cached_property
    def _groups(self) -> dict[tuple[str, str], list[Record]]:
        groups: dict[tuple[str, str], list[Record]] = {}
        for record in self.records:
            groups.setdefault((record.method, record.metric), []).append(record)
        return groups

    def __getitem__(self, asked: tuple[Any, ...]) -> Values:
        """The value of each example, of one (method, metric), (method, metric, layer) or (method, metric, layers): the
        mean over its records."""
        method, metric, *layers = asked
        records = self._groups.get((method, metric), [])
        if layers:
            wanted = layers[0] if isinstance(layers[0], Container) else (layers[0],)
            records = [record for record in records if record.info["layer"] in wanted]
        groups: dict[str, list[float]] = {}
        for record in records:
            groups.setdefault(record.example, []).append(record.value)
        return Values({e: float(one[0] if len(one) == 1 else np.mean(one)) for e, one in groups.items()})

    def where(self, condition: Where) -> Self:
        """The same with the records of which the condition is true."""
        return replace(self, records=[record for record in self.records if condition(record)])

    def layers_of(self, method: str | None) -> list[int]:
        """The layers that a method has values for, in order; with None those of all methods."""
        return sorted({int(r.info["layer"]) for r in self.records if method in (None, r.method) and "layer" in r.info})

    @cached_property
    def layers(self) -> list[int]:
        return self.layers_of(None) or [0]

    @property
    def first(self) -> int:
        return self.layers[0]

    @property
    def middle(self) -> int:
        """The layer half-way up: 6 of 12, 3 of 6."""
        return max(1, self.last // 2)

    @property
    def last(self) -> int:
        return self.layers[-1]

    @property
    def frame(self) -> Any:
        """All records as a data frame of pandas: a row each, with a column for each fact of `info`."""
        pandas = optional("pandas", "pandas", "pandas")
        rows = [
            {**r.info, "example": r.example, "method": r.method, "metric": r.metric, "value": r.value}
            for r in self.records
        ]
        return pandas.DataFrame(rows)

    def order(
        self, values: Mapping[str, Examples], pairs: Sequence[tuple[str, str]], *, lower: bool = False
    ) -> Verdict:
        return order(values, pairs, seed=self.setup.seed, lower=lower)

    def positive(self, contrasts: Mapping[str, Examples], *, bound: float = 0.0) -> Verdict:
        return positive(contrasts, bound=bound, seed=self.setup.seed)

    def in_most(self, values: Layers, pairs: Sequence[tuple[str, str]]) -> Verdict:
        return in_most(values, pairs, seed=self.setup.seed)

    def in_all(self, values: Layers, pairs: Sequence[tuple[str, str]], *, lower: bool = False) -> Verdict:
        return in_all(values, pairs, seed=self.setup.seed, lower=lower)


Rule = Callable[[Measured], Verdict]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper in our words, where it stands, its numbers there, and the rule by which a run is judged.

    A rule is pure: the same records give the same verdict. A paper may say the same of other data elsewhere: `at` maps
    the name of such data to that place, or to None where it says nothing of this data. `given` has the options of runs
    that it is about, `models` the number of models that it is about; other runs are not judged by it.
    """

    where: str
    says: str
    paper: str
    rule: Rule
    at: Mapping[str, str | None] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    models: int | None = None

    def check(self, setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
        return self.rule(Measured(setup, list(records), list(tables)))

    def is_about(self, setup: Any) -> bool:
        return self.models in (None, len(setup.models)) and _given(self.given, setup)


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
        return _given(self.given, setup)


def _given(options: Mapping[str, Any], setup: Any) -> bool:
    return all(setup.options.get(name) == value for name, value in options.items())


# --- tables -----------------------------------------------------------------------------------------------------------


def beside(published: Sequence[Published], tables: Sequence[Table]) -> list[Table]:
    """Our columns with the paper's numbers beside them: one table for each column that has published numbers."""
    groups: dict[tuple[str, str], list[Published]] = {}
    for one in published:
        groups.setdefault((one.table or tables[0].name, one.column), []).append(one)
    named = {table.name: table for table in tables}
    return [
        _beside(named[name], column, group)
        for (name, column), group in groups.items()
        if name in named and column in named[name].columns
    ]


def _beside(table: Table, column: str, published: Sequence[Published]) -> Table:
    """Our cells, then the printed ones. Rows of the paper that the run did not measure come last."""
    first, place = published[0], table.columns.index(column)
    printed = [
        {key if isinstance(key, tuple) else (key,): told for key, told in one.numbers.items()} for one in published
    ]
    ours: list[tuple[tuple[Cell, ...], Cell]] = []
    for row in table.rows:
        cell = row[place]
        told = f"{cell.mean:.2f} ± {cell.std:.2f}" if first.std and isinstance(cell, Interval) else cell
        ours.append((row[: first.keys], told))
    known = {key for key, _ in ours}
    ours += [(key, first.absent) for key in dict.fromkeys(chain.from_iterable(printed)) if key not in known]
    rows = tuple((*key, cell, *(one.get(key, "") for one in printed)) for key, cell in ours)
    titles = (f"{one.setting} ({one.where})" for one in published)
    name = f"paper-{table.name}-{column}".replace(" ", "-")
    columns = (*table.columns[: first.keys], f"{column}, here", *titles)
    return Table(name, f"{column}: ours beside the paper's", columns, rows)


def judged_claims(
    claims: Sequence[Claim], setup: Any, records: Sequence[Record], tables: Sequence[Table]
) -> list[Table]:
    """The claims of the paper, one row each, with their verdicts. No claims, no table."""
    rows = []
    for claim in claims:
        place = claim.at.get(setup.data, claim.where)
        if place is not None and claim.is_about(setup):
            verdict = claim.check(setup, records, tables)
            numbers = f"of other data: {claim.paper}" if setup.data in claim.at else claim.paper
            rows.append((claim.says, place, numbers, verdict.ours, verdict.text))
    columns = ("the paper says", "where", "paper", "here", "verdict")
    title = "What the paper says, and what this run says"
    return [Table("claims", title, columns, tuple(rows), RULES)] if rows else []


# --- values of a run --------------------------------------------------------------------------------------------------


def short_names(methods: Iterable[str]) -> dict[str, str]:
    """Each method as a verdict calls it: without its options, where no other method of the claim has that name."""
    unique = dict.fromkeys(methods)
    bare = [method.partition(":")[0] for method in unique]
    return {method: name if bare.count(name) == 1 else method for method, name in zip(unique, bare, strict=True)}


# --- rules ------------------------------------------------------------------------------------------------------------


def above(
    methods: str | Sequence[str], rivals: Iterable[str], metric: str, *, where: Where | None = None, lower: bool = False
) -> Rule:
    """The claim that each of `methods` is above each of `rivals` on a metric (below, with `lower`), example by
    example."""
    firsts = (methods,) if isinstance(methods, str) else tuple(methods)
    seconds = tuple(rivals)
    return pairs_above([(first, rival) for first in firsts for rival in seconds], metric, where=where, lower=lower)


def pairs_above(
    pairs: Sequence[tuple[str, str]],
    metric: str,
    *,
    where: Where | None = None,
    lower: bool = False,
    layer: Callable[[Measured], Any] | None = None,
) -> Rule:
    """The claim that the first method of each pair is above the second on a metric (below, with `lower`), example by
    example; with `layer` in that layer (or those layers) of a run."""
    names = short_names(chain.from_iterable(pairs))

    def rule(run: Measured) -> Verdict:
        some = run if where is None else run.where(where)
        place = () if layer is None else (layer(run),)
        values = {short: some[(name, metric, *place)] for name, short in names.items()}
        return run.order(values, [(names[a], names[b]) for a, b in pairs], lower=lower)

    return rule


def order(
    values: Mapping[str, Examples], pairs: Sequence[tuple[str, str]], *, seed: int = 0, lower: bool = False
) -> Verdict:
    """The verdict on "the first of each pair is above the second" (below, with `lower`), from values by example."""
    found = _differences(values, pairs, seed, lower)
    return found if isinstance(found, Verdict) else _told({f"{a} - {b}": one for (a, b), one in found.items()}, lower)


def positive(contrasts: Mapping[str, Examples], *, bound: float = 0.0, seed: int = 0) -> Verdict:
    """The verdict on "each of these is above `bound`", from values by example. A name says what a contrast is."""
    values = {"bound": dict.fromkeys(chain.from_iterable(contrasts.values()), bound), **contrasts}
    verdict = order(values, [(name, "bound") for name in contrasts], seed=seed)
    told = f" - {bound:g}" if bound else ""
    return Verdict(verdict.word, *(text.replace(" - bound", told) for text in (verdict.ours, verdict.reason)))


def in_most(values: Layers, pairs: Sequence[tuple[str, str]], *, seed: int = 0) -> Verdict:
    """The verdict on "the first of each pair is above the second in almost every layer". All layers are compared at
    once."""
    of_layers, found = _in_layers(values, pairs, seed, False)
    if isinstance(found, Verdict):
        return found
    return most({layer: _word([found[pair] for pair in some]) for layer, some in of_layers.items()})


def in_all(values: Layers, pairs: Sequence[tuple[str, str]], *, seed: int = 0, lower: bool = False) -> Verdict:
    """The verdict on "the first of each pair is above the second in every layer" (below, with `lower`), all at once.

    Of each layer the pair that speaks least for the claim is shown: the intervals hold for all pairs, so it may be
    picked afterwards.
    """
    of_layers, found = _in_layers(values, pairs, seed, lower)
    if isinstance(found, Verdict):
        return found
    lowest = [min(some, key=lambda pair: (found[pair].sign, found[pair].low)) for some in of_layers.values()]
    shown = _told({f"{a} - {b.partition(', ')[2]}": found[a, b] for a, b in lowest}, lower)
    return replace(shown, word=_word(list(found.values())))


def _in_layers(
    values: Layers, pairs: Sequence[tuple[str, str]], seed: int, lower: bool
) -> tuple[dict[str, list[Any]], Any]:
    """The pairs of each layer, and the differences of all."""
    flat = {f"{layer}, {name}": one for layer, of_layer in values.items() for name, one in of_layer.items()}
    of_layers = {layer: [(f"{layer}, {a}", f"{layer}, {b}") for a, b in pairs] for layer in values}
    return of_layers, _differences(flat, list(chain.from_iterable(of_layers.values())), seed, lower)


def most(words: Mapping[str, str], *, against: str = "the other way round") -> Verdict:
    """The verdict on "in almost every layer", from the word of each layer. `against` says what a layer that differs
    does."""
    if not words:
        return incomparable("no layer has a value")
    layers = {word: [layer for layer, one in words.items() if one == word] for word in WORDS[:3]}
    ours = "; ".join(f"{word}: {', '.join(names)}" for word, names in layers.items() if names)
    same, different = len(layers[SAME]), len(layers[DIFFERENT])
    if same >= MOST * len(words):
        return Verdict(SAME, ours)
    if different > (1 - MOST) * len(words):
        return Verdict(DIFFERENT, ours, f"{against} in {different} of {len(words)}")
    return Verdict(UNDECIDED, ours, f"it holds in {same} of {len(words)}")


def incomparable(reason: str, ours: str = "-") -> Verdict:
    """The run does not measure what the paper measures."""
    return Verdict(INCOMPARABLE, ours, reason)


def bounded(intervals: Mapping[str, Interval], *, low: float = -np.inf, high: float = np.inf) -> Verdict:
    """The verdict on "each of these lies between `low` and `high`", from intervals that were made elsewhere."""
    ours = "; ".join(f"{name} {one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" for name, one in intervals.items())
    outside = [name for name, one in intervals.items() if one.high < low or one.low > high]
    if outside:
        return Verdict(DIFFERENT, ours, f"outside: {', '.join(outside)}")
    inside = all(one.low >= low and one.high <= high for one in intervals.values())
    return Verdict(SAME, ours) if inside else Verdict(UNDECIDED, ours, "an interval holds the bound")


def by_signs(signs: Mapping[str, float], ours: str, undecided: Callable[[list[str]], str]) -> Verdict:
    """Different where one sign is negative, same where all are positive; else not told apart, for the reason given."""
    against = [name for name, sign in signs.items() if sign < 0]
    if against:
        return Verdict(DIFFERENT, ours, f"the other way round: {', '.join(against)}")
    level = [name for name, sign in signs.items() if sign == 0]
    return Verdict(UNDECIDED, ours, undecided(level)) if level else Verdict(SAME, ours)


def _word(differences: Sequence[Difference]) -> str:
    """The word by the rule for order."""
    return by_signs({str(i): one.sign for i, one in enumerate(differences)}, "", "; ".join).word


def _differences(
    values: Mapping[str, Examples], pairs: Sequence[tuple[str, str]], seed: int, lower: bool
) -> dict[tuple[str, str], Difference] | Verdict:
    """The differences of the pairs on the examples that have every value, or why these pairs cannot be compared."""
    if not pairs:
        return incomparable(NOTHING_RUN)
    absent = [name for name in dict.fromkeys(chain.from_iterable(pairs)) if not values.get(name)]
    if absent:
        return incomparable(f"not run: {', '.join(absent)}")
    shared = [example for example in values[pairs[0][0]] if all(example in one for one in values.values())]
    if len(shared) < 2:
        return incomparable(TOO_FEW)
    sign = -1.0 if lower else 1.0
    arrays = {name: sign * np.array([one[example] for example in shared]) for name, one in values.items()}
    return simultaneous(arrays, pairs, seed=seed)


def _told(differences: Mapping[str, Difference], lower: bool) -> Verdict:
    """The word by the rule for order. Differences are shown as they are measured, before `lower` turns their sign."""
    sign = -1.0 if lower else 1.0
    ours = "; ".join(f"{name} {_shown(one, sign)}" for name, one in differences.items())
    signs = {name: float(one.sign) for name, one in differences.items()}
    return by_signs(signs, ours, lambda level: "; ".join(f"{name}: {_needed(differences[name])}" for name in level))


def _shown(one: Difference, sign: float) -> str:
    if not np.isfinite(one.high):
        return f"{sign * one.mean:+.3f} (no interval from {one.n} examples)"
    low, high = sorted((sign * one.low, sign * one.high))
    digits = 3 if min(abs(low), abs(high)) >= 0.0005 else 5  # an end that decides a verdict is not written as 0
    return f"{sign * one.mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _needed(one: Difference) -> str:
    if one.needed is None:
        return "no number of examples would tell"
    if one.needed <= one.n:
        return f"{one.n} examples are too few for all pairs at once"
    about = "more than 100,000" if one.needed > 100_000 else f"about {one.needed:,}"
    return f"{about} examples would tell, here {one.n:,}"
