"""ALTI's Figure 3 (anisotropy) and Figures 8 to 10 (relevance matrices): what representations and relevances look
like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...metrics.geometry import anisotropy, block_anisotropy, transformed_anisotropy
from ...runs.experiments.claims import Claim, Measured, Published, Values, Verdict, pairs_above
from ...runs.experiments.experiment import Outcome, Setup
from ...runs.experiments.figures import curves_of, lines
from ...runs.experiments.prepare import one_of
from ...runs.experiments.tables import Table, layer_records, long_rows
from ...scoring.aggregate import rows_to_one
from ...scoring.asking import maps_of
from ...types import Example, Record, Trace
from .main import ALTI, NORM, NORM_ROLLOUT, higher_with_fewer_layers, paper

# --- Figure 3: anisotropy ---------------------------------------------------------------------------------------------

BLOCK, LAYER, TRANSFORMED = "attention block outputs", "layer outputs", "transformed vectors"
OUTPUTS = {"block": (BLOCK,), "layer": (LAYER,), "both": (BLOCK, LAYER)}
MEASURES: dict[str, tuple[int, Callable[[Trace], Any]]] = {  # the first layer's number, and the curve
    BLOCK: (1, block_anisotropy),
    LAYER: (0, anisotropy),
    TRANSFORMED: (1, transformed_anisotropy),
}
ALIKE = 0.5  # a cosine nearer to 1 than to 0
STORED = "data of Figure 3 in the authors' repository"


def _finish_anisotropy(setup: Setup, records: list[Record]) -> list[Table]:
    note = "Layer 0 is what enters the first layer. All pairs of tokens of a text count; the authors draw one pair for "
    note += "each text."
    rows = long_rows(records, "method", "layer", seed=setup.seed)
    return [Table("anisotropy", "Mean cosine similarity within a text", ("vectors", "layer", "cosine"), rows, note)]


def _draw_anisotropy(setup: Setup, tables: list[Table], figure: Any) -> None:
    lines(figure.subplots(), curves_of(tables[0], "cosine", name="vectors"), x="layer", y="mean cosine similarity")


def apart(run: Measured, method: str, metric: str, *, falls: bool = False) -> dict[str, Values]:
    """How much higher the value is in the last layer than in the first; with `falls` how much lower."""
    first, *_, last = [*(run.layers_of(method) or [0]), *(run.layers_of(method)[-1:] or [0])]
    one, other = (first, last) if falls else (last, first)
    return {f"layer {one} - layer {other}": run[method, metric, one] - run[method, metric, other]}


def _stored(model: str, outputs: str, transformed: str) -> Published:
    """The authors' curves for one model: layer outputs from layer 0 on, transformed vectors from layer 1 on."""
    numbers = {(LAYER, layer): number for layer, number in enumerate(outputs.split())}
    numbers |= {(TRANSFORMED, layer): number for layer, number in enumerate(transformed.split(), 1)}
    return Published(STORED, model, "cosine", numbers, keys=2, absent="-")


@paper(
    name="alti-anisotropy",
    shows="Figure 3, anisotropy",
    options={"outputs": "block"},
    prepare=lambda setup: one_of(setup, outputs=OUTPUTS),
    finish=_finish_anisotropy,
    figure=_draw_anisotropy,
    differs=(
        "Every pair of tokens of a text counts. The paper does not say which pairs it takes; the released code draws "
        "one pair.",
        "The authors' stored numbers are of layer outputs (`outputs=layer` or `both`), where the paper's caption "
        "names attention block outputs.",
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
            lambda run: run.positive(
                {
                    f"layer {layer}": run[BLOCK, "cosine", layer] - run[TRANSFORMED, "cosine", layer]
                    for layer in run.layers_of(TRANSFORMED)
                }
                or {BLOCK: {}}
            ),
        ),
        Claim(
            "Figure 3, section 3",
            "Attention block outputs are highly anisotropic; read here as a cosine above 0.5 in the last layer.",
            "curves, no number in the text; the authors' outputs of the last layer: BERT 0.58, DistilBERT 0.76, "
            "RoBERTa 0.96",
            lambda run: run.positive(
                {f"layer {layer}": run[BLOCK, "cosine", layer] for layer in run.layers_of(BLOCK)[-1:]} or {BLOCK: {}},
                bound=ALIKE,
            ),
        ),
        Claim(
            "Figure 3, section 3",
            "In the first layer transformed vectors are almost isotropic; read here as a cosine below 0.1.",
            "a curve; the authors' numbers: BERT 0.04, RoBERTa 0.09, DistilBERT 0.11",
            lambda run: run.order(
                {"layer 1": run[TRANSFORMED, "cosine", 1], "0.1": dict.fromkeys(run[TRANSFORMED, "cosine", 1], 0.1)},
                [("layer 1", "0.1")],
                lower=True,
            ),
        ),
        Claim(
            "Figure 3, section 3",
            "Transformed vectors are less alike in the first layer than in the last.",
            "a curve; the authors' numbers for BERT: 0.04 and 0.31",
            lambda run: run.positive(apart(run, TRANSFORMED, "cosine")),
        ),
    ),
)
def alike(setup: Setup, example: Example) -> list[Record]:
    """How alike are two tokens' representations, and how alike the transformed vectors that one position is made of?"""
    trace = setup.model.trace(example)
    records = []
    for vectors in (*OUTPUTS[setup.options["outputs"]], TRANSFORMED):
        first, measure = MEASURES[vectors]
        records += layer_records(example.id, vectors, "cosine", measure(trace), first)
    return records


# --- Figures 8 to 10: relevance matrices ------------------------------------------------------------------------------

ATTENTION = "attention:rollout=abnar"  # the map behind attention_rollout
DISTANCE, SPECIAL = "distance of rows", "share of special tokens"
ROLLED = {"Attn Rollout": ATTENTION, "Norm Rollout": NORM, "ALTI": ALTI}


def _finish_matrices(setup: Setup, records: list[Record]) -> list[Table]:
    note = (
        f"*{DISTANCE}*: half the sum of absolute differences between a row and the mean row, 0 where all rows are the "
    )
    note += f"same. *{SPECIAL}*: the part of a row that special tokens have."
    rows = long_rows(records, "method", "metric", "layer", seed=setup.seed)
    return [Table("matrices", "Rows of the relevance matrix R^l", ("method", "metric", "layer", "mean"), rows, note)]


def _draw_matrices(setup: Setup, tables: list[Table], figure: Any) -> None:
    whole = tables[0]
    for axes, metric in zip(figure.subplots(1, 2), (DISTANCE, SPECIAL), strict=True):
        drawn = Table("", "", whole.columns, tuple(row for row in whole.rows if row[1] == metric))
        lines(axes, curves_of(drawn, "mean"), x="layer", y=metric)


def row_distance(relevances: Tensor) -> Tensor:
    """[layer]: the mean over rows of half the L1 distance from the mean row, of [layer query key] with rows that sum to
    1."""
    return (relevances - relevances.mean(-2, keepdim=True)).abs().sum(-1).mean(-1) / 2


def special_share(relevances: Tensor, special: Sequence[bool]) -> Tensor:
    """[layer]: the part of a row that special tokens have, mean over rows."""
    return relevances[..., torch.tensor(special, device=relevances.device)].sum(-1).mean(-1)


def rows_converge_in_bigger_models(runs: Sequence[Outcome]) -> Verdict:
    """The rows of Attn Rollout's last matrix in the first run, of a model with fewer layers, less alike than in the
    second."""
    last = [{"distance of rows, last layer": run[ATTENTION, DISTANCE, run.layers_of(ATTENTION)[-1:]]} for run in runs]
    return higher_with_fewer_layers(runs, last)


@paper(
    name="alti-relevance-matrices",
    shows="Figures 8 to 10, relevance matrices across layers",
    methods=tuple(ROLLED.values()),
    takes="map",
    finish=_finish_matrices,
    figure=_draw_matrices,
    differs=(
        "The paper shows the matrices of one sentence, and so does `mixlens plot --kind grid --rollout`. The distance "
        "of rows is our measure of what section 5 says of them.",
        NORM_ROLLOUT,
    ),
    claims=(
        Claim(
            "Figure 8, section 5",
            "The rows of Attn Rollout's relevance matrix become alike with depth: nearer in the last layer than in "
            "the first.",
            "pictures",
            lambda run: run.positive(apart(run, ATTENTION, DISTANCE, falls=True)),
        ),
        Claim(
            "Figures 8 and 10, section 5",
            "In the last layer the rows of Attn Rollout are more alike than those of ALTI.",
            "pictures",
            pairs_above([(ATTENTION, ALTI)], DISTANCE, lower=True, layer=lambda run: run.last),
        ),
        Claim(
            "Figures 8 and 10, section 5",
            "In the last layer Attn Rollout gives [CLS] and [SEP] more than ALTI does.",
            "pictures",
            pairs_above([(ATTENTION, ALTI)], SPECIAL, layer=lambda run: run.last),
        ),
    ),
)
def matrices(setup: Setup, example: Example) -> list[Record]:
    """Do all positions of a text end with the same relevances, and how much of these do special tokens have?"""
    trace = setup.model.trace(example)
    records = []
    for method, scores in maps_of(trace, setup.requests).items():
        # R^l of every layer, [layer query key], with rows that sum to 1
        relevances = rows_to_one(scores.rollout(setup.requests[method].rollout).scores.double())[0]
        records += layer_records(example.id, method, DISTANCE, row_distance(relevances))
        records += layer_records(example.id, method, SPECIAL, special_share(relevances, trace.special))
    return records
