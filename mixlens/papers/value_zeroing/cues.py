"""Value Zeroing, evaluation 1 (section 5, Figures 1, 2, A.2 to A.4) and the choice of distance (Appendix A.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...metrics import mean_with_interval
from ...metrics.agreement import spearman
from ...metrics.alignment import SIGNS, cue_average_precision, cue_dot, probes_needed
from ...metrics.arguments import one_of
from ...runs.experiments.claims import (
    Check,
    Claim,
    Examples,
    Verdict,
    above,
    bounded,
    difference,
    in_all,
    incomparable,
    positive,
    short_names,
)
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.layer_curves import Agreement, agreement, verdict_on_agreement, verdict_on_trend
from ...runs.experiments.tables import Table
from ...scoring.asking import map_of, parse_method
from ...types import Attribution, Example, Record, Trace
from .main import (
    CUE_OPTIONS,
    DATA,
    DIFFERS_DATA,
    DIFFERS_GRADIENTS,
    DIFFERS_ROLLOUT,
    GRADIENTS,
    LANGUAGE,
    METHODS,
    MODEL,
    PAPER,
    RIVALS,
    ROLLOUT_OPTIONS,
    Rows,
    by_layer,
    cues_of,
    curve_of,
    depth_of,
    heats,
    layer_table,
    mean_of,
    measured,
    names_in,
    overall_table,
    refuse_few_methods,
    refuse_unknown_words,
    rolled_out,
    rows_of,
)

ALIGNED = {"cue_dot": cue_dot, "cue_average_precision": cue_average_precision, "probes_needed": probes_needed}
OURS = "value_zeroing"
FIGURES = "Figures 1 and 2"
DISTANCES = tuple(
    f"value_zeroing:distance={name}{more}"
    for name in ("cosine", "euclidean", "spearman")
    for more in ("", ":standardize=true")
)
TITLES = {
    "cue_dot": (
        "Cue alignment by layer: dot product, the cue's share of the scores",
        "`rolled out`: from the input to each layer.",
    ),
    "cue_average_precision": ("Cue alignment by layer: average precision (eq. 12)", ""),
    "probes_needed": ("Cue alignment by layer: Probes-needed (Figure A.2)", "Lower is better."),
}
ATTENTION_ROLLED = "attention, rolled out"  # Attn-rollout of section 4.3, as the option rolled_out names it
NEXT = "in the next"
UNNOTICED = 0.05  # a difference of cue alignment below this is called none


# --- claims -------------------------------------------------------------------------------------------------------------


def single_layers(record: Record) -> bool:
    return bool(record.info["layer"])


def first_in_every_layer(metric: str, *, lower: bool = False) -> Check:
    """Value Zeroing against every other map in every layer, Attn-rollout too, all at once; with `lower` less is better."""

    def check(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
        values = by_layer(records, metric)
        rivals = [name for name in (*RIVALS, ATTENTION_ROLLED) if (name, 1) in values]
        if (OURS, 1) not in values or not rivals:
            return incomparable("needs value_zeroing and another map")
        layers = range(1, depth_of(values) + 1)
        of_layers = {f"layer {layer}": {name: values[name, layer] for name in (OURS, *rivals)} for layer in layers}
        return in_all(of_layers, [(OURS, rival) for rival in rivals], seed=setup.seed, lower=lower)

    return check


def below_random(metric: str) -> Check:
    """Random scores against raw attention, in each layer."""

    def check(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
        values = by_layer(records, metric)
        if any((name, 1) not in values for name in ("random", "attention")):
            return incomparable("needs random and attention")
        layers = range(1, depth_of(values) + 1)
        pairs = {layer: difference(values["random", layer], values["attention", layer]) for layer in layers}
        return positive({f"layer {layer}: random - attention": pair for layer, pair in pairs.items()}, seed=setup.seed)

    return check


def fall_with_depth(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """Gradients: the rank correlation of layer and the cue's share in each sentence is below 0."""
    values = by_layer(records, "cue_dot")
    names = [name for name in GRADIENTS if (name, 1) in values]
    if not names:
        return incomparable("needs a gradient method")
    curves = {name: [values[name, layer] for layer in range(1, depth_of(values) + 1)] for name in names}
    return verdict_on_trend(curves, falls=True, seed=setup.seed)


def rise_towards_the_input(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """Gradients: the cue's share in each layer is above that in the next one."""
    values = by_layer(records, "cue_dot")
    names = {name: short for name, short in short_names(GRADIENTS).items() if (name, 1) in values}
    steps = {f"layer {layer}": _step(values, names, layer) for layer in range(1, depth_of(values))}
    return in_all(steps, [(short, f"{short} {NEXT}") for short in names.values()], seed=setup.seed)


def _step(values: Mapping[tuple[str, int], Examples], names: Mapping[str, str], layer: int) -> dict[str, Examples]:
    """The values of a layer and of the next one, by name."""
    here = {short: values[name, layer] for name, short in names.items()}
    return here | {f"{short} {NEXT}": values[name, layer + 1] for name, short in names.items()}


def rollout_helps(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """GlobEnc and ALTI: the cue's share after rollout less the mean of its shares in single layers."""
    values = by_layer(records, "cue_dot")
    names = ("globenc", "alti")
    if any((name, 0) not in values for name in names):
        return incomparable("needs globenc and alti")
    single = {name: mean_of([values[name, layer] for layer in range(1, depth_of(values) + 1)]) for name in names}
    contrasts = {
        f"{name}: rolled out - single layers": difference(values[name, 0], one) for name, one in single.items()
    }
    return positive(contrasts, seed=setup.seed)


def mean_above(methods: str | Sequence[str], rivals: Sequence[str], metric: str, **more: Any) -> Check:
    """`above` on the mean of single layers."""
    return above(methods, rivals, metric, where=single_layers, **more)


SHOWN = "a heat map; no number in the text"
CLAIMS = (
    Claim(
        f"section 5, {FIGURES}, A.3 and A.4",
        "Across all layers Value Zeroing gives cue words a larger share than every other context mixing method (dot product).",
        SHOWN,
        first_in_every_layer("cue_dot"),
    ),
    Claim(
        f"section 5, {FIGURES}, A.3 and A.4",
        "Across all layers Value Zeroing ranks cue words higher than every other context mixing method (average precision).",
        SHOWN,
        first_in_every_layer("cue_average_precision"),
    ),
    Claim(
        "Appendix A.2, Figure A.2",
        "Across all layers Value Zeroing needs fewer probes to find the cue words than every other context mixing method.",
        SHOWN,
        first_in_every_layer("probes_needed", lower=True),
    ),
    Claim(
        "section 5",
        "Raw attention gives cue words less than random scores do, in every layer (dot product).",
        SHOWN,
        below_random("cue_dot"),
    ),
    Claim(
        "section 5",
        "Raw attention ranks cue words lower than random scores do, in every layer (average precision).",
        SHOWN,
        below_random("cue_average_precision"),
    ),
    Claim(
        "section 5",
        "With the norm of the transformed values (Attn-norm) attention finds cue words much better (here: by any margin).",
        SHOWN,
        mean_above("norm", ("attention",), "cue_dot"),
    ),
    Claim(
        "section 5",
        "With residual connection and layer normalization (Attn-norm + RES + LN) the norms seem to find no cue words: read here "
        "as a smaller share for cue words than Attn-norm gives.",
        SHOWN,
        mean_above("norm", ("norm_residual_ln",), "cue_dot"),
    ),
    Claim(
        "section 5",
        "GlobEnc and ALTI benefit from rollout: they give cue words a larger share after it than in single layers.",
        SHOWN,
        rollout_helps,
    ),
    Claim(
        "section 5",
        "Without rollout GlobEnc and ALTI do not give good scores: read here as a smaller share for cue words, mean over "
        "layers, than Value Zeroing and Attn-norm give.",
        SHOWN,
        mean_above((OURS, "norm"), ("globenc", "alti"), "cue_dot"),
    ),
    Claim(
        "section 5",
        "Gradient-based scores highlight cue words only in the earlier layers: the cue's share falls with depth.",
        SHOWN,
        fall_with_depth,
    ),
    Claim(
        "section 6",
        "Gradient-based scores of cue words go up monotonically towards the embedding: each layer's are above the next one's.",
        SHOWN,
        rise_towards_the_input,
    ),
)


# --- cue alignment ------------------------------------------------------------------------------------------------------


def _finish_alignment(setup: Setup, records: list[Record]) -> list[Table]:
    over = "Not in the paper, which excludes rollout from this evaluation (section 4.3)."
    title = "Cue alignment over all layers (maps rolled out; gradients at the input)"
    single = [layer_table(setup, records, metric, *words) for metric, words in TITLES.items()]
    return [*single, overall_table(setup, records, tuple(ALIGNED), title, over)]


def _prepare_alignment(setup: Setup) -> None:
    refuse_unknown_words(setup)
    one_of("signs", setup.options["signs"], SIGNS)
    for written in names_in(setup.options["rolled_out"]):
        parse_method(written)


def _measures(setup: Setup, trace: Trace, example: Example) -> dict[str, Any]:
    cues, signs = cues_of(setup, trace, example), setup.options["signs"]
    return {name: partial(function, cues=cues, signs=signs) for name, function in ALIGNED.items()}


@experiment(
    name="vz-cue-alignment",
    packages=("scikit-learn",),
    paper=PAPER,
    shows="Figures 1, 2, A.2, A.3, A.4: cue alignment by layer",
    data=DATA,
    model=MODEL,
    methods=METHODS,
    task=LANGUAGE,
    needs=("target", "cues"),
    options={**CUE_OPTIONS, **ROLLOUT_OPTIONS, "rolled_out": "attention"},
    prepare=_prepare_alignment,
    finish=_finish_alignment,
    figure=heats(tuple(ALIGNED)),
    differs=(
        *DIFFERS_DATA,
        *DIFFERS_GRADIENTS,
        *DIFFERS_ROLLOUT,
        "Every token of a cue word counts; the paper's script takes the first token of each (option pieces=first).",
    ),
    claims=CLAIMS,
)
def cue_alignment(setup: Setup, example: Example) -> list[Record]:
    """Do the scores at the gap find the word that decides what fills it? In every layer, and over all."""
    trace = setup.model.trace(example)
    measures = _measures(setup, trace, example)
    records: list[Record] = []
    for method, rows in rows_of(setup, trace, example).items():
        records += measured(example, method, rows, measures)
    for written in names_in(setup.options["rolled_out"]):
        records += measured(example, f"{written}, rolled out", _rolled_rows(setup, trace, written), measures)
    return records


def _rolled_rows(setup: Setup, trace: Trace, written: str) -> Rows:
    """The row of a map rolled out from the input to each layer (Attn-rollout of section 4.3)."""
    request, scores = parse_method(written), map_of(trace, written)
    layers, identity = range(len(scores.scores)), setup.options["identity"]
    return Rows(tuple(rolled_out(scores, request, trace.query, identity, layer=layer) for layer in layers), None)


# --- distances ----------------------------------------------------------------------------------------------------------


def _pattern(records: Sequence[Record], method: str, first: str) -> Agreement:
    """How alike the curves over layers of two distances are."""
    values = by_layer(records, "cue_dot")
    depth = depth_of(values)
    return agreement(curve_of(values, method, depth), curve_of(values, first, depth))


def _finish_distances(setup: Setup, records: list[Record]) -> list[Table]:
    first = setup.methods[0]
    note = f"like_the_first: Spearman's rank correlation of the tokens' scores with those of `{first}`."
    patterns = {method: _pattern(records, method, first) for method in setup.methods[1:]}
    rows = tuple((method, one.rho, one.p) for method, one in patterns.items())
    return [
        layer_table(
            setup, records, "cue_dot", "Value Zeroing by other distances: cue alignment by layer (dot product)"
        ),
        layer_table(
            setup, records, "like_the_first", "How like the first distance they score the tokens, by layer", note
        ),
        Table(
            "pattern",
            f"The same pattern? Spearman's rank correlation over layers of cue alignment with that of `{first}`",
            ("method", "spearman over layers", "p"),
            rows,
            "p: the share of orders of the layers that agree as well by chance, in either direction.",
        ),
        overall_table(setup, records, ("cue_dot", "like_the_first"), "Over all layers (rolled out; not in the paper)"),
    ]


def same_pattern(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """Every other distance rises and falls over layers as the first does."""
    patterns = {method: _pattern(records, method, setup.methods[0]) for method in setup.methods[1:]}
    return verdict_on_agreement(patterns)


def unnoticed(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """Standardised representations against representations as they are: the mean difference over layers is small."""
    values = by_layer(records, "cue_dot")
    plain = [name for name in setup.methods if f"{name}:standardize=true" in setup.methods]
    if not plain:
        return incomparable("needs a distance with and without standardize")
    changes = {name: _change(values, name) for name in plain}
    intervals = {
        f"{name.partition('=')[2]}: normalised - plain": mean_with_interval(list(one.values()), seed=setup.seed)
        for name, one in changes.items()
    }
    return bounded(intervals, low=-UNNOTICED, high=UNNOTICED)


def _change(values: Any, name: str) -> dict[str, float]:
    """The mean over layers of what standardising changes, for each example."""
    layers = range(1, depth_of(values) + 1)
    return mean_of([difference(values[f"{name}:standardize=true", layer], values[name, layer]) for layer in layers])


@experiment(
    name="vz-distances",
    packages=("scipy",),
    paper=PAPER,
    shows="Figure A.1: cue alignment by layer with other distances",
    data=DATA,
    model=MODEL,
    methods=DISTANCES,
    task=LANGUAGE,
    needs=("target", "cues"),
    takes="map",
    options={"pieces": "all"},
    prepare=refuse_few_methods,
    finish=_finish_distances,
    figure=heats(("cue_dot", "like_the_first")),
    differs=(
        *DIFFERS_DATA,
        "Representations are standardised over the tokens of a sentence; Timkey and van Schijndel, whom the paper follows, "
        "standardise over a corpus.",
        "The paper does not say of which model Figure A.1 is.",
    ),
    claims=(
        Claim(
            "Appendix A.1, Figure A.1",
            f"Normalising representations makes no noticeable difference (here: under {UNNOTICED} of cue alignment).",
            "curves; no number in the text",
            unnoticed,
        ),
        Claim(
            "Appendix A.1, Figure A.1",
            "Spearman's and Euclidean distance, and all three with normalised representations, show the same pattern over layers "
            "as cosine distance.",
            "curves; no number in the text",
            same_pattern,
        ),
    ),
)
def distances(setup: Setup, example: Example) -> list[Record]:
    """Does it matter how the change of a representation is measured?"""
    trace = setup.model.trace(example)
    cues = cues_of(setup, trace, example)
    every = rows_of(setup, trace, example)
    first = _all_rows(every[setup.methods[0]])
    records = []
    for method, rows in every.items():
        for layer, (scores, other) in enumerate(zip(_all_rows(rows), first, strict=True)):
            values = {"cue_dot": cue_dot(scores, cues), "like_the_first": spearman(scores.scores, other.scores)}
            records += [
                Record(str(example.id), method, name, value, {"layer": layer}) for name, value in values.items()
            ]
    return records


def _all_rows(rows: Rows) -> list[Attribution]:
    """Over all layers first, then layer by layer."""
    assert rows.overall is not None
    return [rows.overall, *rows.layers]
