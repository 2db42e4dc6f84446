"""What the evaluations of Value Zeroing share (Mohebbi et al. 2023): methods, scores by layer and over all, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import InputError, MixlensError
from ...data import cue_tokens
from ...metrics.alignment import first_pieces
from ...metrics.arguments import Marks, marks_at, one_of
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.figure_style import WIDTH, tints
from ...runs.experiments.tables import Table, by, interval_of
from ...scoring.aggregate import rolled_row, rows_to_one
from ...scoring.asking import MethodRequest, maps_of, rolled
from ...scoring.attributions import attribute_each
from ...types import Attribution, Example, Map, Record, Trace

PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"
value_zeroing = partial(experiment, paper=PAPER, data="agreement", model="agreement")
LANGUAGE = ("masked-lm", "causal-lm")
MAPS = ("random", "attention", "norm", "norm_residual", "norm_residual_ln", "globenc", "alti", "value_zeroing")
GRADIENTS = ("grad_x_input", "integrated_gradients:steps=20", "deeplift")
OURS = "value_zeroing"
METHODS = (*MAPS[:-1], *GRADIENTS, MAPS[-1])  # the order of Tables 2 and 3
RIVALS = MAPS[1:-1]  # the other context mixing methods; random scores mix nothing
NAMES = {  # as the paper writes them
    "random": "Rand",
    "attention": "Attn",
    "norm": "Attn-norm",
    "norm_residual": "Attn-norm + RES",
    "norm_residual_ln": "Attn-norm + RES + LN",
    "globenc": "GlobEnc",
    "alti": "ALTI",
    "grad_x_input": "GradXinput",
    "integrated_gradients:steps=20": "IG",
    "deeplift": "DL",
    "value_zeroing": "Value Zeroing",
    "attention, rolled out": "Attn-rollout",
}
LOWER_IS_BETTER = ("probes_needed",)

# In a rollout rows sum to 1, and the identity is added to: the maps that hold no residual connection, all maps, or
# none.
WITH_IDENTITY: Mapping[str, tuple[str, ...]] = {
    "missing": ("attention", "norm"),
    "always": tuple(name for name in MAPS if name != "random"),
    "never": (),
}
WORDS: Mapping[str, tuple[str, ...]] = {  # option -> the words it takes, the default first
    "gradients_of": ("target", "pair"),
    "states": ("enter", "leave"),
    "identity": tuple(WITH_IDENTITY),
    "pieces": ("all", "first"),
}
GRADIENT_OPTIONS: Mapping[str, Any] = {name: WORDS[name][0] for name in ("gradients_of", "states")}
ROLLOUT_OPTIONS: Mapping[str, Any] = {"identity": WORDS["identity"][0]}
CUE_OPTIONS: Mapping[str, Any] = {**GRADIENT_OPTIONS, "signs": "absolute", "pieces": "all"}
DIFFERS_DATA = (
    "The cues are found by one rule for each BLiMP template; the paper used spaCy (its released code neuralcoref too).",
    "One task is balanced, and words of more than one token of the model are left out: both as in the released code; "
    "the paper does not say so. Here the rows to keep are drawn without replacement, and words are left out after "
    "balancing, not before.",
    "Train and Test are drawn by another seed than the paper's, which is not published.",
)
DIFFERS_GRADIENTS = (
    "Gradients at layer l are taken at the states that enter it, which are what a map of layer l mixes; the paper "
    "does not say whether it takes the states that enter or leave a layer (option states=leave).",
    "The paper does not name the steps and the baseline of IG or the implementation of DL. Here IG takes 20 "
    "Gauss-Legendre nodes, both start from a text of mask tokens, and DL's multipliers are exact through attention "
    "and norms. The DeepLift of captum knows none of BERT's functions; there it is the gradient times the difference "
    "from the baseline.",
    "Section 4.3 makes scores positive and does not say how: here absolute values are taken (option signs). The "
    "gradient of the true label is that of the target word's logit (option gradients_of=pair: less the foil's).",
)
DIFFERS_ROLLOUT = (
    "The paper names Abnar and Zuidema's rollout for all scores and releases the code for Value Zeroing alone. Here "
    "every row is made to sum to 1. Without the option `identity` the identity is added for Attn and Attn-norm, whose "
    "maps hold no residual connection, and for no other; identity=always adds it for all, identity=never for none, as "
    "the released code of Value Zeroing (name:rollout=CONVENTION changes it for one method).",
)


class Rows(NamedTuple):
    """The scores of one method for one example: of every layer (none where it is not defined there), and over all."""

    layers: tuple[Attribution, ...]
    overall: Attribution | None = None


def names_in(written: str) -> list[str]:
    """The names of an option that holds several, with commas between them."""
    return [name.strip() for name in str(written).split(",") if name.strip()]


# --- scores -----------------------------------------------------------------------------------------------------------


def refuse_unknown_words(setup: Setup) -> None:
    """Refuse an option that is none of the words it takes."""
    for name, words in WORDS.items():
        if name in setup.options:
            one_of(name, setup.options[name], words)


def aim_of(example: Example, options: Mapping[str, Any]) -> dict[str, Any]:
    """What gradients explain: the target word (the true label, section 4.3), or with "pair" the target less the
    foil."""
    target = "predicted" if example.target is None else example.target
    foil = example.foil if options.get("gradients_of") == "pair" else None
    return {"target": target, "foil": foil}


def rows_of(
    setup: Setup, trace: Trace, example: Example, *, layers: bool = True, overall: bool = True
) -> dict[str, Rows]:
    """The rows of every method of the setup at the position that predicts. Maps share the proof of each layer."""
    requests, options = setup.requests, setup.options
    maps = maps_of(trace, {written: request for written, request in requests.items() if request.is_map})
    rows = {}
    for written, request in requests.items():
        if request.is_map:
            scores = maps.pop(written)
            single = [scores.readout(trace.query, layer=layer) for layer in range(len(scores.scores) if layers else 0)]
            whole = rolled_out(scores, request, trace.query, options.get("identity")) if overall else None
            rows[written] = Rows(tuple(single), whole)
            continue
        # All layers share their passes. A method that no target changes is not told of one.
        first = WORDS["states"].index(options.get("states") or "enter")
        question = aim_of(example, options) if request.class_specific else {}
        depth = len(trace.layers) if layers and request.has_layers else 0
        aims = [{**question, "layer": place} for place in range(first, first + depth)] + [question] * overall
        answers: list[Any] = attribute_each(
            [trace] * len(aims), request.name, aims, variant=request.variant, **request.options
        )
        for answer in answers:
            if isinstance(answer, MixlensError):
                raise answer
        rows[written] = Rows(tuple(answers[:depth]), answers[-1] if overall else None)
    return rows


def rolled_out(
    scores: Map, request: MethodRequest, query: int, identity: str | None = None, *, layer: int = -1
) -> Attribution:
    """The row of a map rolled out up to a layer: rows to 1, the identity added as the option says; a convention that is
    written with the method is used instead."""
    if request.rollout is not None or request.name not in MAPS:
        return rolled(scores, request, query)
    shares = replace(scores, scores=rows_to_one(scores.scores)[0])
    added = request.name in WITH_IDENTITY[identity or "missing"]
    return rolled_row(shares, query, layer=layer, convention="abnar" if added else "value_zeroing")


def cues_of(setup: Setup, trace: Trace, example: Example) -> Marks:
    """The cue vector (eq. 11): every token of a cue, or with pieces=first the first token of each of its words."""
    cues = marks_at(cue_tokens(example, trace), len(trace))
    return first_pieces(trace, cues) if setup.options.get("pieces") == "first" else cues


# --- records and tables -----------------------------------------------------------------------------------------------


def measured(example: Example, method: str, rows: Rows, measures: Mapping[str, Any]) -> list[Record]:
    """One record for each layer and measure; layer 0 is over all layers."""
    every = [(0, rows.overall), *enumerate(rows.layers, 1)]
    return [
        Record(str(example.id), method, name, float(measure(scores)), {"layer": layer})
        for layer, scores in every
        if scores is not None
        for name, measure in measures.items()
    ]


def layer_table(setup: Setup, records: Sequence[Record], metric: str, title: str, note: str = "") -> Table:
    """Methods by layers: the mean of a metric, as in the paper's heat maps. The note says how wide the intervals
    are."""
    single = [record for record in records if record.metric == metric and record.info["layer"]]
    rows, widths, depth = [], [], 0
    for (method,), group in by(single, "method").items():
        cells = [interval_of(some, setup.seed) for some in by(group, "layer").values()]
        rows.append((method, *(cell.mean for cell in cells)))
        widths += [cell.high - cell.low for cell in cells if not np.isnan(cell.low)]
        depth = max(depth, len(cells))
    widest = f"Means; the widest 95 % interval reaches {max(widths) / 2:.3f} to each side." if widths else ""
    columns = ("method", *(f"layer {layer}" for layer in range(1, depth + 1)))
    return Table(metric, title, columns, tuple(rows), f"{widest} {note}".strip())


def overall_table(setup: Setup, records: Sequence[Record], metrics: Sequence[str], title: str, note: str = "") -> Table:
    """One row for each method, with the mean of every metric over all layers."""
    groups = by([record for record in records if record.info["layer"] == 0], "method", "metric")
    rows = ((name, *(interval_of(groups.get((name, one)), setup.seed) for one in metrics)) for name in setup.methods)
    return Table("overall", title, ("method", *metrics), tuple(rows), note)


def named_table(tables: Sequence[Table], name: str) -> Table:
    return next(table for table in tables if table.name == name)


# --- figures ----------------------------------------------------------------------------------------------------------


def heat(axes: Any, table: Table) -> None:
    """Methods by layers as the paper draws them: darker is better, the last layer on top, the number in each cell."""
    methods = table.column("method")
    grid = np.array([row[1:] for row in table.rows], dtype=np.float64).T[::-1]  # [layer method]
    sign = -1 if table.name in LOWER_IS_BETTER else 1
    axes.imshow(sign * grid, cmap=tints("surface", "share-tint"), aspect="auto")
    axes.set_xticks(range(len(methods)), [NAMES.get(method, method) for method in methods], rotation=90)
    axes.set_yticks(range(len(grid)), [str(layer) for layer in range(len(grid), 0, -1)])
    axes.set_ylabel("layer")
    axes.set_title(table.name.replace("_", " "))
    for (row, column), number in np.ndenumerate(grid):
        if not np.isnan(number):
            text = f"{number:.2f}".replace("0.", ".", 1).replace("-", "−")  # without the zero before its point
            axes.text(column, row, text, ha="center", va="center", fontsize=6.5)


HEAT = 3.2  # inches: the height of one heat map


def heats(metrics: Sequence[str]) -> Any:
    """A figure with one heat map for each metric, one below the other: the numbers in the cells need the width."""

    def draw(setup: Setup, tables: list[Table], figure: Any) -> None:
        figure.set_size_inches(WIDTH, HEAT * len(metrics))
        for axes, metric in zip(figure.subplots(len(metrics), 1, squeeze=False)[:, 0], metrics, strict=True):
            heat(axes, named_table(tables, metric))

    return draw


def refuse_few_methods(setup: Setup) -> None:
    """Refuse a comparison with nothing, and an option that is none of the words it takes."""
    refuse_unknown_words(setup)
    if len(setup.methods) < 2:
        raise InputError(f"{setup.experiment.name} compares methods: give two or more methods.")
