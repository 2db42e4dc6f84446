"""ALTI's Figure 3 (anisotropy) and Figures 8 to 10 (relevance matrices): what representations and relevances look like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...base.errors import InputError, nearest
from ...metrics import mean_with_interval
from ...metrics.geometry import anisotropy, block_anisotropy, transformed_anisotropy
from ...runs.experiments.claims import Check, Claim, Published, Verdict, order, positive, short_names, values_of
from ...runs.experiments.experiment import Outcome, Setup, experiment
from ...runs.experiments.figures import curves_of, lines
from ...runs.experiments.tables import Table, by
from ...scoring.aggregate import rows_to_one
from ...scoring.asking import maps_of
from ...types import Example, Map, Record, Trace
from .main import ALTI, NORM, NORM_ROLLOUT, PAPER, higher_with_fewer_layers

# --- Figure 3: anisotropy -----------------------------------------------------------------------------------------------

BLOCK, LAYER, TRANSFORMED = "attention block outputs", "layer outputs", "transformed vectors"
OUTPUTS = {"block": (BLOCK,), "layer": (LAYER,), "both": (BLOCK, LAYER)}
MEASURES: dict[str, tuple[int, Callable[[Trace], Any]]] = {  # the first layer's number, and the curve
    BLOCK: (1, block_anisotropy),
    LAYER: (0, anisotropy),
    TRANSFORMED: (1, transformed_anisotropy),
}
ALIKE, ISOTROPIC = 0.5, 0.1  # a cosine nearer to 1 than to 0; one that counts as "almost" 0
STORED = "data of Figure 3 in the authors' repository"


def _finish_anisotropy(setup: Setup, records: list[Record]) -> list[Table]:
    rows = [
        (vectors, layer, mean_with_interval([r.value for r in group], seed=setup.seed))
        for (vectors, layer), group in by(records, "method", "layer").items()
    ]
    note = "Layer 0 is what enters the first layer. All pairs of tokens of a text count; the authors draw one pair for each text."
    return [
        Table("anisotropy", "Mean cosine similarity within a text", ("vectors", "layer", "cosine"), tuple(rows), note)
    ]


def _draw_anisotropy(setup: Setup, tables: list[Table], figure: Any) -> None:
    lines(figure.subplots(), curves_of(tables[0], "cosine", name="vectors"), x="layer", y="mean cosine similarity")


def _prepare_anisotropy(setup: Setup) -> None:
    if setup.options["outputs"] not in OUTPUTS:
        raise InputError(
            f"unknown outputs {setup.options['outputs']!r}. {nearest(str(setup.options['outputs']), OUTPUTS)}"
        )


def at_layer(records: Sequence[Record], method: str, metric: str, layer: int) -> dict[str, float]:
    """The values of one method at one layer, by example."""
    return values_of(records, method, metric, lambda record: record.info["layer"] == layer)


def layers_of(records: Sequence[Record], method: str) -> list[int]:
    """The layers that a method has values for, in order."""
    return sorted({int(record.info["layer"]) for record in records if record.method == method})


def contrast(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    """first - second, of the examples that have both."""
    return {example: first[example] - second[example] for example in first if example in second}


def _outputs_are_more_alike(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    sides = {
        f"layer {layer}": [at_layer(records, vectors, "cosine", layer) for vectors in (BLOCK, TRANSFORMED)]
        for layer in layers_of(records, TRANSFORMED)
    }
    return positive({name: contrast(*both) for name, both in sides.items()} or {BLOCK: {}}, seed=setup.seed)


def _outputs_are_alike(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    last = {f"layer {layer}": at_layer(records, BLOCK, "cosine", layer) for layer in layers_of(records, BLOCK)[-1:]}
    return positive(last or {BLOCK: {}}, bound=ALIKE, seed=setup.seed)


def _first_layer_is_isotropic(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    first = at_layer(records, TRANSFORMED, "cosine", 1)
    values = {"layer 1": first, f"{ISOTROPIC:g}": dict.fromkeys(first, ISOTROPIC)}
    return order(values, [("layer 1", f"{ISOTROPIC:g}")], seed=setup.seed, lower=True)


def _anisotropy_rises(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    layers = layers_of(records, TRANSFORMED) or [0]
    first, last = layers[0], layers[-1]
    sides = [at_layer(records, TRANSFORMED, "cosine", layer) for layer in (last, first)]
    return positive({f"layer {last} - layer {first}": contrast(*sides)}, seed=setup.seed)


def _stored(model: str, outputs: str, transformed: str) -> Published:
    """The authors' curves for one model: layer outputs from layer 0 on, transformed vectors from layer 1 on."""
    numbers = {(LAYER, layer): number for layer, number in enumerate(outputs.split())}
    numbers |= {(TRANSFORMED, layer): number for layer, number in enumerate(transformed.split(), 1)}
    return Published(STORED, model, "cosine", numbers, keys=2, absent="-")


@experiment(
    name="alti-anisotropy",
    paper=PAPER,
    shows="Figure 3, anisotropy",
    data="sentiment",
    model="sentiment",
    methods=(),
    options={"outputs": "block"},
    prepare=_prepare_anisotropy,
    finish=_finish_anisotropy,
    figure=_draw_anisotropy,
    differs=(
        "Every pair of tokens of a text counts. The paper does not say which pairs it takes; the released code draws one pair.",
        "The authors' stored numbers are of layer outputs (`outputs=layer` or `both`), where the paper's caption names "
        "attention block outputs.",
    ),
    published=(
        _stored(
            "BERT",
            "0.084 0.177 0.216 0.180 0.195 0.216 0.217 0.206 0.221 0.234 0.325 0.438 0.577",
            "0.040 0.056 0.061 0.055 0.057 0.048 0.071 0.064 0.089 0.106 0.172 0.309",
        ),
        _stored("DistilBERT", "0.065 0.199 0.191 0.240 0.299 0.471 0.759", "0.105 0.100 0.073 0.122 0.141 0.384"),
        _stored(
            "RoBERTa",
            "0.176 0.420 0.597 0.644 0.641 0.655 0.705 0.739 0.716 0.740 0.826 0.878 0.959",
            "0.094 0.067 0.064 0.080 0.075 0.078 0.111 0.142 0.199 0.284 0.395 0.659",
        ),
    ),
    claims=(
        Claim(
            "Figure 3, section 3",
            "Transformed vectors are less alike than attention block outputs, in every layer.",
            "curves",
            _outputs_are_more_alike,
        ),
        Claim(
            "Figure 3, section 3",
            "Attention block outputs are highly anisotropic; read here as a cosine above 0.5 in the last layer.",
            "curves, no number in the text; the authors' outputs of the last layer: BERT 0.58, DistilBERT 0.76, RoBERTa 0.96",
            _outputs_are_alike,
        ),
        Claim(
            "Figure 3, section 3",
            "In the first layer transformed vectors are almost isotropic; read here as a cosine below 0.1.",
            "a curve; the authors' numbers: BERT 0.04, RoBERTa 0.09, DistilBERT 0.11",
            _first_layer_is_isotropic,
        ),
        Claim(
            "Figure 3, section 3",
            "Transformed vectors are less alike in the first layer than in the last.",
            "a curve; the authors' numbers for BERT: 0.04 and 0.31",
            _anisotropy_rises,
        ),
    ),
)
def alike(setup: Setup, example: Example) -> list[Record]:
    """How alike are two tokens' representations, and how alike the transformed vectors that one position is made of?"""
    trace = setup.model.trace(example)
    return [
        Record(str(example.id), vectors, "cosine", float(value), {"layer": layer})
        for vectors in (*OUTPUTS[setup.options["outputs"]], TRANSFORMED)
        for layer, value in enumerate(MEASURES[vectors][1](trace), MEASURES[vectors][0])
    ]


# --- Figures 8 to 10: relevance matrices ----------------------------------------------------------------------------------

ATTENTION = "attention:rollout=abnar"  # the map behind attention_rollout
DISTANCE, SPECIAL = "distance of rows", "share of special tokens"
ROLLED = {"Attn Rollout": ATTENTION, "Norm Rollout": NORM, "ALTI": ALTI}


def _finish_matrices(setup: Setup, records: list[Record]) -> list[Table]:
    rows = [
        (method, metric, layer, mean_with_interval([r.value for r in group], seed=setup.seed))
        for (method, metric, layer), group in by(records, "method", "metric", "layer").items()
    ]
    note = f"*{DISTANCE}*: half the sum of absolute differences between a row and the mean row, 0 where all rows are the same. "
    note += f"*{SPECIAL}*: the part of a row that special tokens have."
    return [
        Table("matrices", "Rows of the relevance matrix R^l", ("method", "metric", "layer", "mean"), tuple(rows), note)
    ]


def _draw_matrices(setup: Setup, tables: list[Table], figure: Any) -> None:
    whole = tables[0]
    for axes, metric in zip(figure.subplots(1, 2), (DISTANCE, SPECIAL), strict=True):
        drawn = Table("", "", whole.columns, tuple(row for row in whole.rows if row[1] == metric))
        lines(axes, curves_of(drawn, "mean"), x="layer", y=metric)


def row_distance(relevances: Tensor) -> Tensor:
    """[layer]: the mean over rows of half the L1 distance from the mean row, of [layer query key] with rows that sum to 1."""
    return (relevances - relevances.mean(-2, keepdim=True)).abs().sum(-1).mean(-1) / 2


def special_share(relevances: Tensor, special: Sequence[bool]) -> Tensor:
    """[layer]: the part of a row that special tokens have, mean over rows."""
    return relevances[..., torch.tensor(special, device=relevances.device)].sum(-1).mean(-1)


def _in_last_layer(metric: str, pairs: Sequence[tuple[str, str]], *, lower: bool = False) -> Check:
    names = short_names([name for pair in pairs for name in pair])

    def check(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
        last = max((int(record.info["layer"]) for record in records), default=0)
        values = {short: at_layer(records, name, metric, last) for name, short in names.items()}
        return order(values, [(names[a], names[b]) for a, b in pairs], seed=setup.seed, lower=lower)

    return check


def _rows_converge(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    layers = layers_of(records, ATTENTION) or [0]
    sides = [at_layer(records, ATTENTION, DISTANCE, layer) for layer in (layers[0], layers[-1])]
    return positive({f"layer {layers[0]} - layer {layers[-1]}": contrast(*sides)}, seed=setup.seed)


def rows_converge_in_bigger_models(runs: Sequence[Outcome]) -> Verdict:
    """The rows of Attn Rollout's last matrix in the first run, of a model with fewer layers, less alike than in the second."""
    return higher_with_fewer_layers(
        runs, [{"distance of rows, last layer": _last_distances(run.records)} for run in runs]
    )


def _last_distances(records: Sequence[Record]) -> dict[str, float]:
    return at_layer(records, ATTENTION, DISTANCE, max(layers_of(records, ATTENTION), default=0))


@experiment(
    name="alti-relevance-matrices",
    paper=PAPER,
    shows="Figures 8 to 10, relevance matrices across layers",
    data="sentiment",
    model="sentiment",
    methods=tuple(ROLLED.values()),
    takes="map",
    finish=_finish_matrices,
    figure=_draw_matrices,
    differs=(
        "The paper shows the matrices of one sentence, and so does `mixlens plot --kind grid --rollout`. The distance of rows is "
        "our measure of what section 5 says of them.",
        NORM_ROLLOUT,
    ),
    claims=(
        Claim(
            "Figure 8, section 5",
            "The rows of Attn Rollout's relevance matrix become alike with depth: nearer in the last layer than in the first.",
            "pictures",
            _rows_converge,
        ),
        Claim(
            "Figures 8 and 10, section 5",
            "In the last layer the rows of Attn Rollout are more alike than those of ALTI.",
            "pictures",
            _in_last_layer(DISTANCE, [(ATTENTION, ALTI)], lower=True),
        ),
        Claim(
            "Figures 8 and 10, section 5",
            "In the last layer Attn Rollout gives [CLS] and [SEP] more than ALTI does.",
            "pictures",
            _in_last_layer(SPECIAL, [(ATTENTION, ALTI)]),
        ),
    ),
)
def matrices(setup: Setup, example: Example) -> list[Record]:
    """Do all positions of a text end with the same relevances, and how much of these do special tokens have?"""
    trace = setup.model.trace(example)
    records = []
    for method, scores in maps_of(trace, setup.requests).items():
        relevances = _relevances(scores, setup.requests[method].rollout)
        curves = {DISTANCE: row_distance(relevances), SPECIAL: special_share(relevances, trace.special)}
        records += [
            Record(str(example.id), method, metric, float(value), {"layer": layer})
            for metric, values in curves.items()
            for layer, value in enumerate(values, 1)
        ]
    return records


def _relevances(scores: Map, convention: str | None) -> Tensor:
    """R^l of every layer, [layer query key], with rows that sum to 1."""
    return rows_to_one(scores.rollout(convention).scores.double())[0]
