"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), section 5.2: how much of a hidden state comes from its
own token, and whether a token can be identified where another contributes more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...metrics.intervals import mean_with_interval
from ...metrics.mixing_stats import BRUNNER, not_own_top, own_share, quantile_with_interval
from ...metrics.token_identity import Identified, Search
from ...runs.experiments.claims import Claim, Examples, Published, Verdict, bounded
from ...runs.experiments.experiment import Outcome, Setup, experiment
from ...runs.experiments.layer_curves import first_quarter, verdict_between_runs
from ...runs.experiments.tables import Table, by
from ...scoring.asking import MethodRequest, map_of, maps_of, parse_method
from ...types import Example, Map, Record, Trace
from ..globenc.main import lines, per_layer
from .tokens import DIFFERS_TRAINED, TRAINED, States, Trial, Units, missing, prepare_kinds, states_of, trial_units
from .values import DEPTHS, HTA, above_zero, depth_of, less, method_named, of_layers, select, three_layers, with_hta


def contributions(trace: Trace, method: str) -> Map:
    """From the input to every layer's output: HTA as it is, other maps rolled out as their papers do, or as is said."""
    return rolled_out(map_of(trace, method), parse_method(method))


def rolled_out(scores: Map, request: MethodRequest) -> Map:
    return scores.rollout(request.rollout)


def every_contribution(trace: Trace, setup: Setup) -> Iterator[tuple[str, Map]]:
    """`contributions` of every method, one after the other."""
    for method, scores in maps_of(trace, setup.requests).items():
        yield method, rolled_out(scores, setup.requests[method])


OWN, NOT_OWN = "own share", "not own top"
MIXING = (OWN, NOT_OWN)
DIFFERS_HTA = (
    "Equation 11 takes the L2 norm of the gradient of a vector, which is a matrix. Here it is the Frobenius norm; "
    "hta:norm=spectral and hta:norm=sum (the gradient of the summed output) are the other readings, and give other shares.",
    "HTA takes a forward pass for every dimension of every token. hta:probes=N estimates it from N random directions a token: "
    "shares stay what they are, but P becomes too large, since another token's noise may be above the own token. On 12 sentences "
    "of the embedded agreement model, last layer, P is 0.05 exactly, 0.10 by 2 directions, 0.06 by 8.",
)


def position_records(
    example: Example, method: str, scores: Map, tags: Sequence[str | None] | None = None
) -> list[Record]:
    """One record for every position and layer: own share, and whether another token contributes more.

    With tags: for the positions that have one.
    """
    shares = zip(MIXING, (own_share(scores), not_own_top(scores)), strict=True)
    rows = [(metric, layer, row) for metric, values in shares for layer, row in enumerate(values, 1)]
    return [
        Record(str(example.id), method, metric, float(row[place]), {"layer": layer, **tag})
        for metric, layer, row in rows
        for place, tag in _tagged_places(len(scores.tokens), tags)
    ]


def _tagged_places(n: int, tags: Sequence[str | None] | None) -> list[tuple[int, dict[str, str]]]:
    """(position, its tag for a record): every position without tags, those with a tag otherwise."""
    if tags is None:
        return [(place, {}) for place in range(n)]
    return [(place, {"tag": tag}) for place, tag in enumerate(tags) if tag is not None]


# --- tables and figure ------------------------------------------------------------------------------------------------------

QUANTILES = {"5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95}


def quantile_rows(
    records: Sequence[Record], fields: Sequence[str], layers: Sequence[int], seed: int
) -> list[tuple[Any, ...]]:
    """The quantiles of own share, one row for each group and quantile, one cell for each layer."""
    return [
        (*key, name, *(quantile_of(by(group, "layer").get((layer,), []), share, seed) for layer in layers))
        for key, group in by(records, *fields).items()
        for name, share in QUANTILES.items()
    ]


def quantile_of(records: Sequence[Record], share: float, seed: int) -> Any:
    """A quantile over tokens, with an interval from resampled texts; None without a token."""
    defined = [r for r in records if not np.isnan(r.value)]
    if not defined:
        return None
    return quantile_with_interval(
        np.array([r.value for r in defined]), [r.example for r in defined], share=share, seed=seed
    )


def finish_mixing(setup: Setup, records: list[Record]) -> list[Table]:
    title = "A position's own token: its share, and how often another contributes more"
    mixing = per_layer("mixing", title, records, ("method", "metric"), seed=setup.seed, note=_TOKENS)
    layers = range(1, depth_of(records) + 1)
    rows = quantile_rows(select(records, OWN), ("method",), layers, setup.seed)
    columns = ("method", "quantile", *(f"layer {layer}" for layer in layers))
    boxes = Table("quantiles", "Share of the own token, quantiles over tokens", columns, tuple(rows), _RESAMPLED)
    return [mixing, boxes, *_at_three_depths(setup, mixing, boxes)]


_TOKENS = "Mean over all positions. Intervals: texts are resampled, not positions."
_RESAMPLED = "Intervals: texts are resampled, not tokens."


def _at_three_depths(setup: Setup, mixing: Table, boxes: Table) -> list[Table]:
    """The numbers that the paper gives: medians and P in the first, middle and last layer, by HTA."""
    method = method_named(setup, HTA)
    if method is None:
        return []
    median = _three("median of own share", boxes, (method, "median"))
    rows = (median, _three("P, not the main contributor", mixing, (method, NOT_OWN)))
    return [Table("depths", "First, middle and last layer, by HTA", ("statistic", *DEPTHS), rows, printed=False)]


def _three(label: str, table: Table, key: tuple[str, str]) -> tuple[Any, ...]:
    """One row of a table at three layers."""
    (cells,) = (row[2:] for row in table.rows if row[:2] == key)
    return (label, *(cells[layer - 1] for layer in three_layers(len(cells))))


def figure_mixing(setup: Setup, tables: list[Table], figure: Any) -> None:
    draw_mixing(figure.subplots(1, 2), setup, tables)


def draw_mixing(panels: Sequence[Any], setup: Setup, tables: Sequence[Table]) -> None:
    """Figure 3 in two panels."""
    (left, right), named = panels, {table.name: table for table in tables}
    _draw_boxes(left, named["quantiles"], setup.methods[0])
    whole = named["mixing"]
    lines(Table(whole.name, whole.title, whole.columns, tuple(row for row in whole.rows if row[1] == NOT_OWN)), right)
    right.set_ylabel("another token contributes more")
    right.legend()


def _draw_boxes(axes: Any, table: Table, method: str) -> None:
    """A box from the quantiles of each layer; whiskers reach from 5 to 95 % of the tokens."""
    cells: dict[Any, Any] = {row[1]: row[2:] for row in table.rows if row[0] == method}
    names = dict(zip(("whislo", "q1", "med", "q3", "whishi"), QUANTILES, strict=True))
    depth = len(table.columns) - 2
    axes.bxp(
        [{key: cells[name][i].mean for key, name in names.items()} | {"label": i + 1} for i in range(depth)],
        showfliers=False,
    )
    axes.set_xlabel("layer")
    axes.set_ylabel(f"share of the own token ({method})")


# --- claims -----------------------------------------------------------------------------------------------------------------


def _falls(values: Sequence[Examples], first: int, *, rises: bool = False) -> dict[str, Examples]:
    """Each layer less the next one (the next less the layer, with `rises`)."""
    steps = enumerate(pairwise(values), first)
    return {f"{i} {'to' if rises else '-'} {i + 1}": less(b, a) if rises else less(a, b) for i, (a, b) in steps}


@with_hta
def below_a_third(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    first = select(records, OWN, method, layer=1)
    return bounded({"median of layer 1": quantile_of(first, 0.5, setup.seed)}, high=1 / 3)


@with_hta
def share_falls(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    values = [of_layers(records, method, OWN, [layer]) for layer in range(1, depth_of(records) + 1)]
    return above_zero(_falls(values, 1), seed=setup.seed)


@with_hta
def own_token_first(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """The first quarter of the layers: 1 to 3 of 12."""
    early = range(1, first_quarter(depth_of(records)) + 1)
    values = {f"layer {layer}": list(of_layers(records, method, NOT_OWN, [layer]).values()) for layer in early}
    return bounded({name: mean_with_interval(one, seed=setup.seed) for name, one in values.items()}, high=0.01)


@with_hta
def own_token_typically_first(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """P, the share of tokens to which another contributes more, is below one half in every layer."""
    layers = range(1, depth_of(records) + 1)
    shares = {f"0.5 - P, layer {i}": of_layers(records, method, NOT_OWN, [i]) for i in layers}
    return above_zero(
        {name: {text: 0.5 - p for text, p in one.items()} for name, one in shares.items()}, seed=setup.seed
    )


@with_hta
def others_rise(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """From the last layer of the first quarter to the last but one: the paper has the same P in the last two."""
    depth = depth_of(records)
    start = first_quarter(depth)
    values = [of_layers(records, method, NOT_OWN, [layer]) for layer in range(start, max(start + 1, depth - 1) + 1)]
    return above_zero(_falls(values, start, rises=True), seed=setup.seed)


def shares_are_larger(runs: Sequence[Outcome]) -> Verdict:
    """Own share and P of the first run above those of the second, in each layer; without layers where P is 0 in all texts."""
    first, second = (_means_by_layer(run) for run in runs)
    names = [name for name in first if name in second and _varies(first[name], second[name])]
    return verdict_between_runs({name: first[name] for name in names}, second, seed=runs[0].setup.seed)


def _means_by_layer(run: Outcome) -> dict[str, Examples]:
    """The mean of each text: own share and P in every layer, by HTA; nothing where it was not run."""
    method, layers = method_named(run.setup, HTA), range(1, depth_of(run.records) + 1)
    if method is None:
        return {}
    return {f"{name}, layer {i}": of_layers(run.records, method, m, [i]) for m, name in SHOWN.items() for i in layers}


def _varies(first: Examples, second: Examples) -> bool:
    return any(value != 0 for one in (first, second) for value in one.values())


SHOWN = {OWN: "own share", NOT_OWN: "P"}
AT_D2: dict[str, str | None] = {"cola": "D.2.1, Figure 40", "mnli": "D.2.2, Figure 42"}
# Of CoLA the paper says something else, that shares and P are slightly larger: `shares_are_larger`.
AT_MNLI: dict[str, str | None] = {**AT_D2, "cola": None}
MIXING_CLAIMS = (
    Claim(
        "5.2, Figure 3a", "after layer 1 the own token's median share is below a third", "0.306", below_a_third, AT_MNLI
    ),
    Claim(
        "5.2, Figure 3a",
        "the share decreases monotonically with depth",
        "0.306, 0.144, 0.107 in layers 1, 6, 12",
        share_falls,
        AT_D2,
    ),
    Claim(
        "5.2, Figure 3b",
        "in the first three of 12 layers (the first quarter) the own token always contributes most (P at most 0.01)",
        "P = 0",
        own_token_first,
        AT_MNLI,
    ),
    Claim(
        "section 1; 5.2, Figure 3b",
        "the own token typically remains the largest contributor (read here as: P is below one half in every layer)",
        "P at most 0.30",
        own_token_typically_first,
        AT_D2,
    ),
    Claim(
        "5.2, Figure 3b",
        "behind the first layers P, the share of tokens whose own input does not contribute most, increases monotonically up to "
        "the last layer but one (the paper has the same P in the last two)",
        "0.18 in layer 6, 0.30 in layers 11 and 12",
        others_rise,
        AT_D2,
    ),
)
MIXING_NUMBERS = tuple(
    Published(
        "5.2, Figure 3",
        "BERT, MRPC",
        column,
        {"median of own share": median, "P, not the main contributor": p},
        "depths",
    )
    for column, median, p in zip(DEPTHS, ("0.306", "0.144", "0.107"), ("0", "0.18", "0.30"), strict=True)
)


@experiment(
    name="id-mixing",
    paper=BRUNNER,
    shows="Figures 3, 40, 42: the own token's contribution (section 5.2, D.2)",
    data="agreement",
    model="agreement",
    methods=("hta",),
    finish=finish_mixing,
    figure=figure_mixing,
    takes="map",
    differs=DIFFERS_HTA,
    claims=MIXING_CLAIMS,
    published=MIXING_NUMBERS,
)
def own_token(setup: Setup, example: Example) -> list[Record]:
    """How much of a hidden state comes from its own input token, and how often does another token contribute more?"""
    trace = setup.model.trace(example)
    return [r for method, scores in every_contribution(trace, setup) for r in position_records(example, method, scores)]


# --- P beside the identifiability error (5.2) -------------------------------------------------------------------------------


def finish_both(setup: Setup, records: list[Record]) -> list[Table]:
    title = "How often another token contributes more (P), and how often the token is not identified"
    return [per_layer("both", title, records, ("metric", "method"), seed=setup.seed, note=_RESAMPLED)]


def figure_both(setup: Setup, tables: list[Table], figure: Any) -> None:
    axes = figure.subplots()
    lines(tables[0], axes, labels=2)
    axes.legend()


@with_hta
def mixing_above_error(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """Behind the first quarter of the layers: in the paper's first three layers P is 0, which is above no error."""
    depth = depth_of(records)
    layers = range(first_quarter(depth) + 1, depth + 1)
    errors = [of_layers(records, ERROR_OF, "error", [layer]) for layer in layers]
    shares = [of_layers(records, method, NOT_OWN, [layer]) for layer in layers]
    pairs = zip(layers, shares, errors, strict=True)
    return above_zero(
        {f"P - error, layer {layer}": less(share, error) for layer, share, error in pairs}, seed=setup.seed
    )


ERROR_OF = "linear g, cosine"


@experiment(
    name="id-mixing-and-identity",
    paper=BRUNNER,
    shows="P beside the token identifiability error (section 5.2)",
    data="agreement",
    model="agreement",
    methods=("hta",),
    finish=finish_both,
    figure=figure_both,
    whole=True,
    takes="map",
    options={"kinds": ("linear",), "distances": ("cosine",), "folds": 10, **TRAINED},
    prepare=prepare_kinds,
    differs=(
        *DIFFERS_TRAINED,
        *DIFFERS_HTA,
        "The paper does not say which g its error is of; here it is the linear one by cosine.",
    ),
    claims=(
        Claim(
            "5.2",
            "P is above the token identifiability error in every layer behind the first quarter: 4 to 12 of 12 (the paper says "
            "in every layer, but by its Figure 3b P is 0 in the first three)",
            "0.30 against 1 − 0.93 in layer 12",
            mixing_above_error,
        ),
    ),
)
def mixing_and_identity(setup: Setup, examples: list[Example]) -> Units:
    """Where another token contributes more, can the own token still be identified?"""
    states = states_of(setup.model, examples, setup.options["embedding"])
    yield from missing(setup, ((f"mixing/{number}", _mixing_of(setup, one)) for number, one in enumerate(examples)))
    errors = [_errors_of(examples, states, layer) for layer in range(1, setup.model.n_layers + 1)]
    yield from trial_units(setup, "linear", "cosine", errors)


def _mixing_of(setup: Setup, example: Example) -> Callable[[], list[Record]]:
    """P of one text in every layer."""

    def measure() -> list[Record]:
        maps = every_contribution(setup.model.trace(example), setup)
        shares = [(method, layer, row) for method, scores in maps for layer, row in enumerate(not_own_top(scores), 1)]
        return [
            Record(str(example.id), method, NOT_OWN, float(row.mean()), {"layer": layer})
            for method, layer, row in shares
        ]

    return measure


def _errors_of(examples: Sequence[Example], states: States, layer: int) -> Trial:
    """The share of tokens of each tested text that g does not identify."""

    def records(found: Identified) -> list[Record]:
        rows = [(str(examples[text].id), 1 - hits / total) for text, hits, total in found.by_text]
        return [Record(name, ERROR_OF, "error", error, {"layer": layer}) for name, error in rows]

    return Trial(f"identity/{layer}", Search(states.layer(layer), states.inputs), records)
