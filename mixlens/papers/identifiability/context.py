"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), section 5: from how far context comes, and
what [CLS] takes from where; with the own token's share from the same pass of HTA, or alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...metrics.arguments import Array, array
from ...metrics.intervals import statistic_with_interval
from ...metrics.mixing_stats import DISTANCES, mean_by_distance, own_share, share_around, share_by_distance
from ...runs.experiments.claims import Claim, Measured, Rule, Values, Verdict, in_all, incomparable
from ...runs.experiments.experiment import Setup
from ...runs.experiments.layer_curves import verdict_between_runs, verdict_on_trend
from ...runs.experiments.tables import Table, by
from ...types import Example, Map, Record, Trace
from ..globenc.main import lines, per_layer
from .mixing import DIFFERS_HTA, MIXING, OF_OWN_TOKEN, draw_mixing, every_contribution, finish_mixing, position_records
from .tokens import MRPC_ALONE
from .values import (
    DEPTHS,
    HTA,
    IN_FIGURE,
    Hta,
    Rows,
    by_hta,
    depth_of,
    evaluation,
    method_named,
    of_twelve,
    select,
    thirds,
    three_layers,
)

NAMES = tuple(f"{a}+" if b is None else str(a) if a == b else f"{a}-{b}" for a, b in DISTANCES)  # "1", "4-5", "11+"
AT_DEPTHS = (
    "neighbour",
    "around",
    "from place",
)  # curves over places are kept at three layers, as the paper draws them


# --- what is measured -------------------------------------------------------------------------------------------------


def neighbours(scores: Map, *, reach: int) -> dict[int, Array]:
    """For each offset -reach to reach but 0, [layer pos]: the share of the token that far to the right in a position's
    row."""
    rows = array(scores, "scores", 3)
    total, shares = rows.sum(-1), {}
    for offset in (*range(-reach, 0), *range(1, reach + 1)):
        diagonal = np.diagonal(rows, offset, axis1=-2, axis2=-1)
        sums = total[:, max(0, -offset) : max(0, total.shape[-1] - max(0, offset))]
        shares[offset] = np.where(sums == 0, np.nan, diagonal / np.where(sums == 0, 1, sums))
    return shares


def groups_of(scores: Map, trace: Trace, options: Mapping[str, Any]) -> Iterator[tuple[str, str, Array]]:
    """(metric, group, [layer pos]) of everything that is measured on one map; then what the first token ([CLS]) takes:
    from every position, around the first [SEP], and from a token before and behind it, special tokens left out."""
    means, of_others = mean_by_distance(scores), share_by_distance(scores)
    for g, name in enumerate(NAMES):
        yield "distance", name, means[..., g]
        if options["others"]:
            yield "of others", name, of_others[..., g]
    for offset, values in neighbours(scores, reach=options["reach"]).items():
        yield "neighbour", f"{offset:+d}", values
    yield "context", "all", 1 - own_share(scores)
    row = array(scores, "scores", 3)[:, 0]
    shares = row / row.sum(-1, keepdims=True)
    for place in range(1, len(trace)):
        yield "from place", str(place), shares[:, [place]]
    if any(trace.special[1:]):
        reach = options["around"]
        around = share_around(scores, reach=reach)
        for offset in range(-reach, reach + 1):
            yield "around", f"{offset:+d}", around[:, [offset + reach]]
        middle = trace.special[1:].index(True) + 1
        places = {"first": range(1, middle), "second": range(middle + 1, len(trace))}
        words = {name: [i for i in some if not trace.special[i]] for name, some in places.items()}
        for name, some in words.items() if all(words.values()) else ():
            yield "sentence", name, shares[:, some].mean(-1, keepdims=True)


def context_records(setup: Setup, example: Example, trace: Trace, method: str, scores: Map) -> list[Record]:
    groups = groups_of(scores, trace, setup.options)
    return [record for group in groups for record in layer_records(example, method, *group)]


def layer_records(example: Example, method: str, metric: str, group: str, values: Array) -> list[Record]:
    """The mean over positions of [layer pos], one record for each layer; none where the text has no such position."""
    records = []
    wanted = dict.fromkeys(three_layers(len(values))) if metric in AT_DEPTHS else range(1, len(values) + 1)
    for layer in wanted:
        row = values[layer - 1][np.isfinite(values[layer - 1])]
        if len(row):
            info = {"layer": layer, "group": group, "count": len(row)}
            records.append(Record(str(example.id), method, metric, float(row.mean()), info))
    return records


def sums_of(records: Iterable[Record]) -> Values:
    """The sum over positions of each text."""
    sums: dict[str, float] = {}
    for r in records:
        sums[r.example] = sums.get(r.example, 0.0) + r.value * r.info.get("count", 1)
    return Values(sums)


# --- tables and figure ------------------------------------------------------------------------------------------------


def finish_context(setup: Setup, records: list[Record]) -> list[Table]:
    tables = [_by_distance(setup, records), _by_place(setup, records)]
    keys, seed = ("method", "group"), setup.seed
    if others := select(records, "of others"):
        note = "Mean over a text's positions, then over texts."
        tables.append(
            per_layer("others", "By distance, of what comes from others in a layer", others, keys, seed=seed, note=note)
        )
    for metric, title in (
        ("around", "What [CLS] takes from the tokens around the first [SEP] (+0)"),
        ("sentence", "What [CLS] takes from a token of the first and of the second text"),
        ("from place", "What [CLS] takes from each place of the text"),
    ):
        if group := select(records, metric):
            whole = per_layer(metric.replace(" ", "_"), title, group, keys, seed=seed, note="Mean over texts.")
            places = [whole.columns.index(f"layer {layer}") for layer in three_layers(depth_of(group))]
            ordered = sorted(whole.rows, key=lambda row: (str(row[0]), _number(row[1])))
            rows = tuple((*row[:2], *(row[place] for place in places)) for row in ordered)
            printed = metric != "from place"
            tables.append(Table(whole.name, title, (*keys, *DEPTHS), rows, whole.note, printed))
    return tables


def _number(group: Any) -> int:
    """The number that a group is, for its place."""
    return int(group) if group.lstrip("+-").isdigit() else 0


def _share(sums: Array, counts: Array, layer: int, texts: Any) -> float:
    """sum_t S_tl / sum_t N_t for the texts t, divided by its sum over the layers l."""
    means = sums[texts].sum(0) / counts[texts].sum(0)
    return float(means[layer] / means.sum())


def _ratio(parts: Array, wholes: Array, texts: Any) -> float:
    return float(parts[texts].sum() / wholes[texts].sum())


def _by_distance(setup: Setup, records: Sequence[Record]) -> Table:
    """Figure 4a: the mean of each group over all tokens, then each group divided by its sum over the layers."""
    depth, rows = depth_of(records), Rows()
    for key, group in by(select(records, "distance"), "method", "group").items():
        texts = {text: number for number, text in enumerate(dict.fromkeys(r.example for r in group))}
        sums, counts = np.zeros((2, len(texts), depth))
        for r in group:
            place = texts[r.example], int(r.info["layer"]) - 1
            sums[place], counts[place] = r.value * r.info["count"], r.info["count"]
        of_layers = [partial(_share, sums, counts, layer) for layer in range(depth)]
        rows.append((*key, *(statistic_with_interval(one, len(texts), seed=setup.seed) for one in of_layers)))
    columns = ("method", "group", *(f"layer {layer}" for layer in range(1, depth + 1)))
    note = (
        "Mean over the neighbours of a group, then over all tokens; then each group is divided by its sum over the "
        "layers (C.2), so that a row adds up to 1 and shows in which layer a group contributes most. Intervals: texts "
        "are resampled."
    )
    return Table("distance", "Relative contribution of neighbours by distance", columns, tuple(rows), note)


def _by_place(setup: Setup, records: Sequence[Record]) -> Table:
    """Figure 4b: the total from each relative place, divided by the total from all other tokens of the layer."""
    groups, layers = by(select(records, "neighbour"), "method", "group"), three_layers(depth_of(records))
    rows = Rows()
    for key in sorted(groups, key=lambda key: (setup.methods.index(key[0]), int(key[1]))):
        cells = []
        for layer in layers:
            parts = sums_of(select(groups[key], "neighbour", layer=layer))
            wholes = sums_of(select(records, "context", key[0], layer=layer))
            both = (np.array([one.get(text, 0.0) for text in wholes]) for one in (parts, wholes))
            cells.append(statistic_with_interval(partial(_ratio, *both), len(wholes), seed=setup.seed))
        rows.append((*key, *cells))
    title = "Total contribution by relative place, of all that comes from others"
    note = (
        "Summed over all tokens and divided by what comes from all other tokens in the layer. Intervals: texts are "
        "resampled."
    )
    return Table("neighbour", title, ("method", "group", *DEPTHS), tuple(rows), note)


def draw_context(panels: Sequence[Any], setup: Setup, tables: Sequence[Table]) -> None:
    """Figures 4a, 4b, 18a and 18b in four panels."""
    named, method = {table.name: table for table in tables}, setup.methods[0]
    first = tuple(row for row in named["distance"].rows if row[0] == method)
    lines(Table("", "", named["distance"].columns, first), panels[0], labels=2)
    panels[0].set_ylabel("relative contribution of a group")
    panels[0].legend(fontsize=6)
    titles = {
        "neighbour": "total by relative place (Figure 4b)",
        "from_place": "what [CLS] takes by place (Figure 18a)",
        "around": "what [CLS] takes around the first [SEP] (Figure 18b)",
    }
    for axes, (name, title) in zip(panels[1:], titles.items(), strict=True):
        if name in named:
            rows: Any = [row for row in named[name].rows if row[0] == method]
            for number, depth in enumerate(DEPTHS, 2):
                axes.plot([int(row[1]) for row in rows], [row[number].mean for row in rows], marker=".", label=depth)
            axes.set_xlabel("place")
            axes.legend(fontsize=6)
        axes.set_title(title, fontsize=8)


# --- claims -----------------------------------------------------------------------------------------------------------

BESIDE = ("-1", "+1")


def near_context_is_early(hta: Hta) -> Mapping[str, Values]:
    """The first third of the layers against the others: a curve that rises first and falls later may have any trend."""
    depth, first = hta.depth, of_twelve(4, hta.depth)
    early, late = (hta("distance", part, group="1") for part in (range(1, first + 1), range(first + 1, depth + 1)))
    return {f"layers 1 to {first} - layers {first + 1} to {depth}": early - late}


def far_context_is_late(hta: Hta) -> Verdict:
    """The division by the sum over the layers (C.2) changes no rank."""
    curve = [hta("distance", layer, group=NAMES[-1]) for layer in hta.layers]
    if not all(curve):
        return incomparable("no text has neighbours 11 or more away")
    return verdict_on_trend({"11th and on": curve}, seed=hta.seed)


def nearest_above(metric: str, against: Callable[[str, str], bool], absent: str) -> Rule:
    """The nearest places against others (where `against` says so) in each of the layers of the figure, by what all
    positions of a text have from each, as the totals of Figure 4b. A place that few texts have is left out; `absent`
    says what texts without the nearest lack."""

    def told(hta: Hta) -> Verdict:
        layers: dict[str, dict[str, Values]] = {}
        for layer in hta.figure_layers:
            places = sorted({r.info["group"] for r in hta.records(metric)}, key=int)
            sums = {place: sums_of(hta.records(metric, layer=layer, group=place)) for place in places}
            most = max(map(len, sums.values()), default=0)
            layers[f"layer {layer}"] = {place: one for place, one in sums.items() if 2 * len(one) >= most}
        if not all(place in places for place in BESIDE for places in layers.values()):
            return incomparable(absent)
        pairs = [(near, place) for near in BESIDE for place in next(iter(layers.values())) if against(near, place)]
        return in_all(layers, pairs, seed=hta.seed)

    return by_hta(told)


def share_within(hta: Hta, layer: int) -> Values:
    """Of each text: the part of its context that comes from the places that were measured, less one half."""
    near, whole = (sums_of(hta.records(metric, layer=layer)) for metric in ("neighbour", "context"))
    return Values({text: near.get(text, 0.0) / total - 0.5 for text, total in whole.items() if total > 0})


def context_is_local(hta: Hta) -> Mapping[str, Values]:
    reach = max((int(r.info["group"]) for r in hta.records("neighbour")), default=0)
    return {f"layer {i}: share of up to {reach} away - 0.5": share_within(hta, i) for i in hta.figure_layers}


def far_context_is_smaller(runs: Sequence[Measured]) -> Verdict:
    """What comes from the places that were measured: more in the first run than in the second, layer by layer."""
    of_runs = [Hta(run, method_named(run.setup, HTA) or "") for run in runs]
    near, far = (
        {f"up to 10 away, layer {i}": share_within(hta, i) for i in (hta.figure_layers if hta.method else ())}
        for hta in of_runs
    )
    return verdict_between_runs(near, far, seed=runs[0].setup.seed)


def middle_gives_most(hta: Hta) -> Mapping[str, Values]:
    """The mean share that [CLS] takes from a token of the middle third of the other places, less of the first and of
    the last."""
    contrasts: dict[str, Values] = {}
    for layer in hta.figure_layers:
        texts: dict[str, dict[int, float]] = {}
        for r in hta.records("from place", layer=layer):
            texts.setdefault(r.example, {})[int(r.info["group"])] = r.value
        parts = [Values(), Values(), Values()]
        for text, places in texts.items():
            for part, third in zip(parts, thirds(max(places)), strict=True):
                if len(places) > 2:
                    part[text] = float(np.mean([places[place] for place in third]))
        first, middle, last = parts
        contrasts[f"layer {layer}: middle - first third"] = middle - first
        contrasts[f"layer {layer}: middle - last third"] = middle - last
    return contrasts


AT_D2: dict[str, str | None] = {"cola": "D.2.1, Figure 41", "mnli": "D.2.2, Figure 43"}
OF_CONTEXT = (
    Claim(
        "5.3, Figure 4a",
        "the closest neighbours contribute more in the first layers (read here as the first third) than in later ones",
        IN_FIGURE,
        by_hta(near_context_is_early),
        AT_D2,
    ),
    Claim(
        "5.3, Figure 4a",
        "the most distant neighbours contribute most in deeper layers: their contribution rises with depth",
        IN_FIGURE,
        by_hta(far_context_is_late),
        AT_D2,
    ),
    Claim(
        "5.3, Figure 4b",
        "the closest neighbours contribute most, regardless of depth: in the first, middle and last layer the nearest "
        "token of each side more than each other of that side that is up to 10 away (totals over the positions of a "
        "text, as in the figure)",
        IN_FIGURE,
        nearest_above(
            "neighbour", lambda near, place: place[0] == near[0] and place != near, "no text has tokens on both sides"
        ),
        AT_D2,
    ),
    Claim(
        "5.3, Figure 4b",
        "context remains mostly local (read here as: in the first, middle and last layer more than half of it comes "
        "from tokens up to 10 places away)",
        IN_FIGURE,
        by_hta(context_is_local, absent="no text has two tokens"),
        AT_D2,
    ),
    Claim(
        "C.3, Figure 18a",
        "the context of [CLS] comes mainly from the middle of the input; read here as: in the first, middle and last "
        "layer a token of the middle third of the places gives more than one of the first and of the last third",
        "from the tokens around position 30, roughly the middle",
        by_hta(middle_gives_most),
        MRPC_ALONE,
    ),
    Claim(
        "C.3, Figure 18b",
        "[CLS] takes most from the tokens directly before and after [SEP]: in the first, middle and last layer more "
        "from each than from each other place up to 10 from [SEP]",
        IN_FIGURE,
        nearest_above("around", lambda near, place: place not in BESIDE, "no text has tokens on both sides of a [SEP]"),
        MRPC_ALONE,
    ),
    Claim(
        "C.3, Figure 18b",
        "the second sentence contributes more to [CLS] than the first (read here as: a token of the second sentence "
        "more than one of the first), in the first, middle and last layer",
        "it seems so",
        by_hta(
            lambda hta: {
                f"layer {i}: a token of the second - of the first text": hta("sentence", i, group="second")
                - hta("sentence", i, group="first")
                for i in hta.figure_layers
            },
            absent="no example has two texts",
        ),
        MRPC_ALONE,
    ),
)


# --- the experiments --------------------------------------------------------------------------------------------------


def prepare_context(setup: Setup) -> None:
    for name in ("reach", "around"):
        if not isinstance(setup.options[name], int) or setup.options[name] < 1:
            raise InputError(f"{name}= is a number of tokens, 1 or more, not {setup.options[name]!r}.")


def figure_context(setup: Setup, tables: list[Table], figure: Any) -> None:
    figure.set_size_inches(10, 7)
    draw_context(figure.subplots(2, 2).ravel(), setup, tables)


def finish_contributions(setup: Setup, records: list[Record]) -> list[Table]:
    own, context = ([r for r in records if (r.metric in MIXING) is mine] for mine in (True, False))
    return [*finish_mixing(setup, own), *finish_context(setup, context)]


def figure_contributions(setup: Setup, tables: list[Table], figure: Any) -> None:
    figure.set_size_inches(10, 10)
    panels = figure.subplots(3, 2).ravel()
    draw_mixing(panels[:2], setup, tables)
    draw_context(panels[2:], setup, tables)


of_hta = partial(
    evaluation,
    methods=("hta",),
    takes="map",
    options={"reach": 10, "around": 10, "others": False},
    prepare=prepare_context,
    differs=(
        *DIFFERS_HTA,
        "Figures 4b and 18 are normalized, and the paper does not say by what. Here a total is divided by all that "
        "comes from other tokens in the layer (4b), and what [CLS] takes is a share of its row (18).",
        "Option others=true also gives the share of each group in all that comes from other tokens. The paper has no "
        "such table.",
    ),
)


@of_hta(
    name="id-context",
    shows="Figures 4, 18, 41, 43: the contribution of the context (section 5.3, C.2, C.3, D.2)",
    finish=finish_context,
    figure=figure_context,
    claims=OF_CONTEXT,
)
def context(setup: Setup, example: Example) -> list[Record]:
    """From how far away does what a position takes from others come? And what does [CLS] take around [SEP]?"""
    trace = setup.model.trace(example)
    maps = every_contribution(trace, setup)
    return [record for method, scores in maps for record in context_records(setup, example, trace, method, scores)]


@of_hta(
    name="id-contributions",
    shows="Figures 3, 4, 18, 40-43: own token and context (sections 5.2, 5.3, C.2, C.3, D.2)",
    finish=finish_contributions,
    figure=figure_contributions,
    claims=(*OF_OWN_TOKEN["claims"], *OF_CONTEXT),
    published=OF_OWN_TOKEN["published"],
)
def contributions_of_input(setup: Setup, example: Example) -> list[Record]:
    """How much of a hidden state comes from its own input token, and from how far away does the rest come?"""
    trace = setup.model.trace(example)
    records: list[Record] = []
    for method, scores in every_contribution(trace, setup):
        records += position_records(example, method, scores) + context_records(setup, example, trace, method, scores)
    return records
