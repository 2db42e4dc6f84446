"""AttCAT's Figure 4: scores by layer, and layers summed or multiplied (Qiang et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor

from ...metrics.faithfulness import aopc, lodds
from ...runs.experiments.claims import Claim, Published, Rule, above, incomparable
from ...runs.experiments.experiment import Setup
from ...runs.experiments.figure_style import tints
from ...runs.experiments.layer_curves import verdict_on_trend
from ...runs.experiments.prepare import removable
from ...runs.experiments.tables import Table, by, interval_of
from ...scoring.attributions import attribute
from ...types import Attribution, Example, Record, Trace
from .main import paper, refuse_variant

SUM, ROLLOUT = "attcat", "attcat:aggregation=rollout"
CHANGES = {"aopc": aopc, "lodds": lodds}
SENTENCE = "I do not like this movie"  # of Figure 4, by the notebook that draws it


def _falls_with_depth(metric: str) -> Rule:
    """The rank correlation of layer and `metric` in each example is below 0."""
    return lambda run: verdict_on_trend(
        {metric: [run[SUM, metric, layer] for layer in range(1, run.last + 1)]}, falls=True, seed=run.setup.seed
    )


SPREADS = (
    "spread: standard deviation over the tokens. relative spread: in mean magnitudes of the layer, 0 where all are "
    "equal."
)


def _finish_layers(setup: Setup, records: list[Record]) -> list[Table]:
    grouped = by(records, "method", "metric", "layer")

    def means(method: str, layer: int, *metrics: str) -> list[Any]:
        return [interval_of(grouped[method, metric, layer], setup.seed) for metric in metrics]

    depth = max(r.info["layer"] for r in records)
    spreads = ("size", "spread", "relative spread")
    layers = tuple((layer, *means(SUM, layer, *spreads)) for layer in range(1, depth + 1))
    ways = tuple((name, *means(method, 0, "size", *CHANGES)) for name, method in (("Sum", SUM), ("Rollout", ROLLOUT)))
    note = "size: mean of the scores' magnitudes, in units of the heat map (of a layer: where the largest of all "
    note += "layers is 1). AOPC: higher is better; LOdds: lower is better. "
    note += "Scores have the form of option variant; a Table 1 of the other form has other values."
    # One text as in Figure 4: a row for each token, its score in each layer, and the rows Rollout and Sum.
    picture = next(r.info["picture"] for r in records if "picture" in r.info)
    heat = tuple(zip(picture["tokens"], *picture["scores"], strict=True))
    title = f"Normalised impact scores: {shorten(' '.join(picture['tokens']), 80)}"
    return [
        Table("operations", "Layers added (Sum) and multiplied (Rollout)", ("operation", "size", *CHANGES), ways, note),
        Table("layers", "AttCAT by layer", ("layer", *spreads), layers, SPREADS),
        Table("heatmap", title, ("token", *picture["rows"]), heat),
    ]


def _draw_layers(setup: Setup, tables: list[Table], figure: Any) -> None:
    table, axes = tables[2], figure.subplots()
    scores: list[list[Any]] = [list(row[1:]) for row in table.rows]
    largest = max(abs(score) for row in scores for score in row)
    picture = axes.imshow(
        list(zip(*scores, strict=True)),
        cmap=tints("against", "surface", "for"),
        vmin=-largest,
        vmax=largest,
        aspect="auto",
    )
    axes.set_xticks(range(len(scores)), table.column("token"), rotation=90)
    axes.set_yticks(range(len(table.columns) - 1), table.columns[1:])
    figure.colorbar(picture, ax=axes, label="against ← normalised impact score → for")


def _prepare_layers(setup: Setup) -> None:
    refuse_variant(setup)
    removable(setup)


@paper(
    name="attcat-layers",
    shows="Figure 4, impact scores by layer, summed and rolled out",
    options={"variant": "released", "sentence": None},
    prepare=_prepare_layers,
    finish=_finish_layers,
    figure=_draw_layers,
    claims=(
        Claim(
            "Figure 4, section 6.2",
            "The scores become more uniform as the layer goes deeper: their spread over the tokens, in mean "
            "magnitudes, falls",
            "a heat map without numbers",
            _falls_with_depth("relative spread"),
        ),
        Claim(
            "Figure 4, section 6.2",
            "The scores become less impactful as the layer goes deeper: their mean magnitude falls with depth",
            "a heat map without numbers",
            _falls_with_depth("size"),
        ),
        Claim(
            "Figure 4, section 6.2",
            "The rollout gives only minimal scores, the sum does not",
            "a heat map without numbers; with the sum 0.72 for 'not' and -0.37 for 'like'",
            lambda run: incomparable(
                "a product of numbers below 1 is small by construction, as the notebook's plain product of the layers "
                "is"
            ),
        ),
        Claim(
            "Sections 4.3 and 6.2",
            "The sum over layers is more effective than the rollout (AOPC)",
            "said of Figure 4, one sentence; no number",
            above(SUM, (ROLLOUT,), "aopc"),
        ),
        Claim(
            "Sections 4.3 and 6.2",
            "The sum over layers is more effective than the rollout (LOdds)",
            "said of Figure 4, one sentence; no number",
            above(SUM, (ROLLOUT,), "lodds", lower=True),
        ),
    ),
    published=(
        Published(
            "Figure 4, section 6.2",
            "BERT, SST2",
            "Sum",
            {"not": "0.72", "like": "-0.37"},
            table="heatmap",
            given={"variant": "released", "sentence": SENTENCE},
        ),
    ),
    differs=(
        "The paper gives no formula for the rollout of vectors nor for what is normalised. As in the notebook of the "
        "figure, the layers' scores are multiplied as they are, and layers, Rollout and Sum are divided by the norm "
        "of all of them, special tokens among them. variant=paper: each layer is divided by its largest magnitude "
        "before it is multiplied, the layers by the largest of all, Sum by its own.",
        "The paper shows one sentence; here the claims are measured on all. Option sentence= is the text that is "
        "drawn, the first one without it.",
        "Layer inputs, as released: a head that reads one token has no gradient at the last layer's other outputs, so "
        "that by eq. 10 the last row and the product would be 0 for every word (variant=paper).",
        "Special tokens are left out of the rows.",
        "AOPC and LOdds of the two operations are ours: the paper judges them by eye.",
    ),
)
def layers(setup: Setup, example: Example) -> list[Record]:
    """Do AttCAT's layers fade with depth, and is their sum more faithful than their product?"""
    trace, name = setup.model.trace(example), str(example.id)
    both = _both(trace, setup.options["variant"])
    records = []
    for layer, row in enumerate(_scaled(both[SUM].info["per_layer"].cpu()[:, _words(trace)]), 1):
        size, spread = float(row.abs().mean()), float(row.std(correction=0))
        spreads = {"size": size, "spread": spread, "relative spread": spread / size if size else 0.0}
        records += [Record(name, SUM, metric, value, {"layer": layer}) for metric, value in spreads.items()]
    if example is setup.examples[0]:
        records[0] = replace(records[0], info={**records[0].info, "picture": _picture(setup, trace)})
    *_, product, total = _rows(trace, both, setup.options["variant"])
    for way, row in ((SUM, total), (ROLLOUT, product)):
        records.append(Record(name, way, "size", float(row.abs().mean()), {"layer": 0}))
        records += [Record(name, way, m, change(trace, both[way]).value, {"layer": 0}) for m, change in CHANGES.items()]
    return records


def _both(trace: Trace, variant: str) -> dict[str, Attribution]:
    """AttCAT with its layers added and multiplied."""
    added = attribute(trace, "attcat", variant=variant)
    return {SUM: added, ROLLOUT: attribute(trace, "attcat", variant=variant, aggregation="rollout")}


def _words(trace: Trace) -> list[int]:
    return [i for i, special in enumerate(trace.special) if not special]


def _rows(trace: Trace, both: Mapping[str, Attribution], variant: str) -> Tensor:
    """[layer + 2, word]: the scores of the layers, Rollout and Sum, normalised as `variant` has it."""
    layers, words = both[SUM].info["per_layer"].cpu().double(), _words(trace)
    total, product = both[SUM].scores.cpu().double(), both[ROLLOUT].scores.cpu().double()
    if variant == "released":
        every = torch.stack([*layers, product, total])
        return (every / every.norm().clamp(min=torch.finfo(torch.float64).tiny))[:, words]
    return torch.stack([*_scaled(layers[:, words]), product[words], _scaled(total[words])])


def _scaled(scores: Tensor) -> Tensor:
    """The scores in float64, with a largest magnitude of 1 (all of them 0 where they are)."""
    return scores.double() / scores.double().abs().max().clamp(min=torch.finfo(torch.float64).tiny)


def _picture(setup: Setup, first: Trace) -> dict[str, Any]:
    """What Figure 4 draws, of option sentence= or of the first text: rounded to four digits, so that records stay
    small."""
    sentence, variant = setup.options["sentence"], setup.options["variant"]
    trace = first if sentence is None else setup.model.trace(sentence)
    rows = _rows(trace, _both(trace, variant), variant).tolist()
    names = [*(f"L{layer}" for layer in range(len(rows) - 2)), "Rollout", "Sum"]
    scores = [[round(x, 4) for x in row] for row in rows]
    return {"tokens": [trace.tokens[i] for i in _words(trace)], "rows": names, "scores": scores}
