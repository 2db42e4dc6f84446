"""Value Zeroing's evaluations (Mohebbi et al. 2023, Quantifying Context Mixing in Transformers)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..asking import every_layer, maps_of
from ..attributions import attribute
from ..data import cue_tokens
from ..data.grammar import number_of
from ..errors import InputError
from ..metrics import Interval, mean_with_interval
from ..metrics.agreement import spearman
from ..metrics.alignment import cue_average_precision, cue_dot, probes_needed
from ..metrics.arguments import marks_at
from ..metrics.probing import MOHEBBI, online_code
from ..types import Attribution, Example, Record, Trace
from .experiment import Setup, experiment
from .figures import curves_of, lines
from .tables import Table, by

PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"
MODEL = "agreement"
DATA = "agreement"
MAPS = (
    "random",
    "attention",
    "norm",
    "norm_residual",
    "norm_residual_ln",
    "globenc:rollout=toolkit",
    "alti",
    "value_zeroing",
)
METHODS = (*MAPS, "grad_x_input", "integrated_gradients", "deeplift")
ALIGNED = {"cue_dot": cue_dot, "cue_average_precision": cue_average_precision, "probes_needed": probes_needed}
DISTANCES = tuple(
    f"value_zeroing:distance={name}{more}" for name in ("cosine", "euclidean", "spearman") for more in ("", ":standardize=true")
)
LANGUAGE = ("masked-lm", "causal-lm")


def target_of(example: Example) -> dict[str, Any]:
    """The example's own target and foil, or what the model predicts."""
    return {"target": "predicted" if example.target is None else example.target, "foil": example.foil}


def layered(setup: Setup, records: Sequence[Record], metrics: Sequence[str], titles: tuple[str, str]) -> list[Table]:
    """Two tables of metrics that were measured in every layer and over all: over all, and by layer."""
    grouped = by(records, "method", "layer", "metric")

    def cell(method: str, layer: int, metric: str) -> Interval | None:
        some = grouped.get((method, layer, metric))
        return None if some is None else mean_with_interval([r.value for r in some], seed=setup.seed)

    depths = sorted({r.info["layer"] for r in records} - {0})
    over = tuple((method, *(cell(method, 0, metric) for metric in metrics)) for method in setup.methods)
    each = tuple(
        (method, layer, *(cell(method, layer, metric) for metric in metrics))
        for method in setup.methods
        for layer in depths
        if (method, layer, metrics[0]) in grouped
    )
    return [
        Table("overall", titles[0], ("method", *metrics), over),
        Table("layers", titles[1], ("method", "layer", *metrics), each),
    ]


def _draw_layers(metrics: Sequence[str]) -> Any:
    def draw(setup: Setup, tables: list[Table], figure: Any) -> None:
        for axes, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
            lines(axes, curves_of(tables[1], metric), x="layer", y=metric.replace("_", " "))

    return draw


def measured(
    example: Example, method: str, layers: Sequence[Attribution], overall: Attribution, measures: dict[str, Any]
) -> list[Record]:
    """Layer 0 is over all layers."""
    return [
        Record(str(example.id), method, name, float(measure(scores)), {"layer": layer})
        for layer, scores in enumerate([overall, *layers])
        for name, measure in measures.items()
    ]


# --- cue alignment ----------------------------------------------------------------------------------------------------


def _finish_alignment(setup: Setup, records: list[Record]) -> list[Table]:
    titles = ("Cue alignment over all layers (rolled out)", "Cue alignment of single layers")
    return layered(setup, records, tuple(ALIGNED), titles)


@experiment(
    name="vz-cue-alignment",
    packages=("scikit-learn",),
    paper=PAPER,
    shows="cue alignment by layer",
    data=DATA,
    model=MODEL,
    methods=METHODS,
    task=LANGUAGE,
    needs=("target", "cues"),
    finish=_finish_alignment,
    figure=_draw_layers(tuple(ALIGNED)[:2]),
)
def cue_alignment(setup: Setup, example: Example) -> list[Record]:
    """Do the scores at the gap find the word that decides what fills it? In every layer, and over all."""
    trace = setup.model.trace(example)
    cues = marks_at(cue_tokens(example, trace), len(trace))
    measures = {name: (lambda scores, f=function: f(scores, cues)) for name, function in ALIGNED.items()}
    records = []
    for method, (layers, overall) in every_layer(trace, setup.requests, **target_of(example)).items():
        records += measured(example, method, layers, overall, measures)
    return records


# --- faithfulness -----------------------------------------------------------------------------------------------------


def _finish_faithfulness(setup: Setup, records: list[Record]) -> list[Table]:
    titles = ("Spearman's rank correlation with blank-out, over all layers", "The same in single layers")
    return layered(setup, records, ("spearman",), titles)


@experiment(
    name="vz-faithfulness",
    packages=("scipy",),
    paper=PAPER,
    shows="faithfulness: correlation with blank-out",
    data=DATA,
    model=MODEL,
    methods=METHODS,
    task=(*LANGUAGE, "classification"),
    options={"replacement": "unk", "absolute": False},
    finish=_finish_faithfulness,
    figure=_draw_layers(("spearman",)),
)
def faithfulness(setup: Setup, example: Example) -> list[Record]:
    """Do the scores rank the tokens as blanking each of them out does? In every layer, and over all."""
    trace = setup.model.trace(example)
    target = target_of(example)
    reference = attribute(trace, "blank_out", **target, **setup.options).scores
    measures = {"spearman": lambda scores: spearman(scores.scores, reference)}
    records = []
    for method, (layers, overall) in every_layer(trace, setup.requests, **target).items():
        records += measured(example, method, layers, overall, measures)
    return records


# --- distances --------------------------------------------------------------------------------------------------------


def _finish_distances(setup: Setup, records: list[Record]) -> list[Table]:
    first = setup.methods[0]
    overall, layers = layered(setup, records, ("cue_dot", "like_the_first"), ("", "Single layers"))
    note = f"like_the_first: Spearman's rank correlation with the same row of `{first}`."
    title = "Value Zeroing by other distances: cue alignment over all layers"
    return [Table("overall", title, overall.columns, overall.rows, note), layers]


def _prepare_distances(setup: Setup) -> None:
    if len(setup.methods) < 2:
        raise InputError("vz-distances compares distances: give two or more methods.")


@experiment(
    name="vz-distances",
    packages=("scipy",),
    paper=PAPER,
    shows="the appendix on other distances",
    data=DATA,
    model=MODEL,
    methods=DISTANCES,
    task=LANGUAGE,
    needs=("target", "cues"),
    takes="map",
    prepare=_prepare_distances,
    finish=_finish_distances,
    figure=_draw_layers(("cue_dot", "like_the_first")),
)
def distances(setup: Setup, example: Example) -> list[Record]:
    """Does it matter how the change of a representation is measured?"""
    trace = setup.model.trace(example)
    cues = marks_at(cue_tokens(example, trace), len(trace))
    first: list[Attribution] = []
    records = []
    for method, (layers, overall) in every_layer(trace, setup.requests).items():
        rows = [overall, *layers]
        first = first or rows
        for layer, (scores, other) in enumerate(zip(rows, first, strict=True)):
            values = {"cue_dot": cue_dot(scores, cues), "like_the_first": spearman(scores.scores, other.scores)}
            records += [Record(str(example.id), method, name, value, {"layer": layer}) for name, value in values.items()]
    return records


# --- probing ----------------------------------------------------------------------------------------------------------

PLACES = ("gap", "cue", "other")


def _finish_probing(setup: Setup, records: list[Record]) -> list[Table]:
    coded = [r for r in records if r.metric == "compression"]
    rows = [
        (r.method, r.info["layer"], Interval(r.value, r.info["low"], r.info["high"], r.info["n"], r.info["std"])) for r in coded
    ]
    depth = max(r.info["layer"] for r in coded)
    gap = [r.value for r in coded if r.method == "gap" and r.info["layer"]]
    followed = tuple(
        (method, spearman([r.value for r in some], gap))
        for (method,), some in by([r for r in records if r.metric == "cue_dot"], "method").items()
    )
    note = "Compression of the number (singular or plural) by online coding; 1.0: nothing is known. Layer 0 is the embedding."
    rises = "Does cue alignment rise where the gap comes to know the number? Spearman over layers"
    return [
        Table("compression", "What representations know of the number", ("place", "layer", "compression"), tuple(rows), note),
        Table("follows", rises, ("method", "spearman"), followed, f"Over {depth} layers alone: no interval."),
    ]


def _number(example: Example) -> str | None:
    return example.info.get("number") or (number_of(example.target) if isinstance(example.target, str) else None)


def _prepare_probing(setup: Setup) -> None:
    missing = [str(example.id) for example in setup.examples if _number(example) is None]
    if missing:
        raise InputError(f"{len(missing)} examples do not say whether the gap is singular or plural ({', '.join(missing[:3])}).")
    if len(setup.examples) < 40 or len({_number(example) for example in setup.examples}) < 2:
        raise InputError("probing needs 40 examples or more, singular and plural ones.")


@experiment(
    name="vz-probing",
    packages=("scipy",),
    paper=PAPER,
    shows="probing for number by layer",
    data=DATA,
    model=MODEL,
    methods=("attention", "globenc", "alti", "value_zeroing"),
    task=LANGUAGE,
    needs=("target", "cues"),
    takes="map",
    whole=True,
    options={"epochs": 100},
    prepare=_prepare_probing,
    finish=_finish_probing,
    figure=lambda setup, tables, figure: lines(
        figure.subplots(), curves_of(tables[0], "compression", name="place"), x="layer", y="compression"
    ),
)
def probing(setup: Setup, examples: list[Example]) -> Iterator[tuple[str, list[Record]]]:
    """From which layer on does the gap know the number, and the cue, and another word? By minimum description length."""
    depth = setup.model.n_layers
    cells = [(place, layer) for layer in range(depth + 1) for place in PLACES]
    if all(f"{place}-{layer}" in setup.done for place, layer in cells) and "alignment" in setup.done:
        return
    labels = [_number(example) for example in examples]
    states: dict[str, list[Any]] = {place: [] for place in PLACES}
    alignment: dict[str, list[list[float]]] = {method: [] for method in setup.methods}
    generator = np.random.default_rng(setup.seed)
    for example in examples:
        trace = setup.model.trace(example)
        cues = cue_tokens(example, trace)
        at = {"gap": trace.query, "cue": cues[0], "other": _other(trace, cues, generator)}
        for place, position in at.items():
            states[place].append(trace.hidden_states[:, position].cpu().double().numpy())
        if "alignment" not in setup.done:
            marked = marks_at(cues, len(trace))
            for method, scores in maps_of(trace, setup.requests).items():
                row = [cue_dot(scores.readout(trace.query, layer=layer), marked) for layer in range(depth)]
                alignment[method].append(row)
    for place, layer in cells:
        if f"{place}-{layer}" not in setup.done:
            features = np.stack([hidden[layer] for hidden in states[place]])
            code = online_code(features, labels, percents=MOHEBBI, epochs=setup.options["epochs"], seed=setup.seed)
            rate = code.compression
            info = {"layer": layer, "low": rate.low, "high": rate.high, "std": rate.std, "n": rate.n}
            yield f"{place}-{layer}", [Record("all", place, "compression", rate.mean, info)]
    if "alignment" not in setup.done:
        records = []
        for method, rows in alignment.items():
            curve = np.nanmean(np.array(rows), axis=0)
            records += [Record("all", method, "cue_dot", float(value), {"layer": layer}) for layer, value in enumerate(curve, 1)]
        yield "alignment", records


def _other(trace: Trace, cues: Sequence[int], generator: np.random.Generator) -> int:
    """A token that is neither the gap, nor a cue, nor special; the last one where there is none."""
    free = [i for i, special in enumerate(trace.special) if not special and i != trace.query and i not in cues]
    return int(generator.choice(free)) if free else len(trace) - 1
