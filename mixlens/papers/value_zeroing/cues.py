"""Value Zeroing, evaluation 1 (section 5, Figures 1, 2, A.2 to A.4) and the choice of distance (Appendix A.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...metrics import mean_with_interval
from ...metrics.agreement import spearman
from ...metrics.alignment import SIGNS, cue_average_precision, cue_dot, probes_needed
from ...metrics.arguments import one_of
from ...runs.experiments.claims import (
    Claim,
    Measured,
    Rule,
    Values,
    Verdict,
    above,
    bounded,
    incomparable,
    mean_over,
    short_names,
)
from ...runs.experiments.experiment import Setup
from ...runs.experiments.layer_curves import Agreement, agreement, verdict_on_agreement, verdict_on_trend
from ...runs.experiments.tables import Table
from ...scoring.asking import map_of, parse_method
from ...types import Example, Record
from .main import (
    CUE_OPTIONS,
    DIFFERS_DATA,
    DIFFERS_GRADIENTS,
    DIFFERS_ROLLOUT,
    GRADIENTS,
    LANGUAGE,
    METHODS,
    OURS,
    RIVALS,
    ROLLOUT_OPTIONS,
    Rows,
    cues_of,
    heats,
    layer_table,
    measured,
    names_in,
    overall_table,
    refuse_few_methods,
    refuse_unknown_words,
    rolled_out,
    rows_of,
    value_zeroing,
)

ALIGNED = {"cue_dot": cue_dot, "cue_average_precision": cue_average_precision, "probes_needed": probes_needed}
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
NEXT = " in the next"
UNNOTICED = 0.05  # a difference of cue alignment below this is called none


# --- claims -----------------------------------------------------------------------------------------------------------


def needing(names: Sequence[str], told: str, rule: Rule) -> Rule:
    """A rule for runs that have all of these methods."""
    return lambda run: rule(run) if all(run[name, "cue_dot"] for name in names) else incomparable(f"needs {told}")


def single(run: Measured) -> range:
    """The single layers of a run: layer 0 is over all of them."""
    return range(1, run.last + 1)


def by_layer(run: Measured, values: Callable[[int], Any], more: str = "") -> dict[str, Any]:
    return {f"layer {layer}{more}": values(layer) for layer in single(run)}


def first_in_every_layer(metric: str, *, lower: bool = False) -> Rule:
    """Value Zeroing against every other map in every layer, Attn-rollout too, all at once; with `lower` less is
    better."""

    def rule(run: Measured) -> Verdict:
        rivals = [name for name in (*RIVALS, ATTENTION_ROLLED) if run[name, metric, 1]]
        if not rivals or not run[OURS, metric, 1]:
            return incomparable("needs value_zeroing and another map")
        values = by_layer(run, lambda layer: {name: run[name, metric, layer] for name in (OURS, *rivals)})
        return run.in_all(values, [(OURS, rival) for rival in rivals], lower=lower)

    return rule


def below_random(metric: str) -> Rule:
    """Random scores against raw attention, in each layer."""
    pair = ("random", "attention")
    told = ": random - attention"
    return needing(
        pair,
        "random and attention",
        lambda run: run.positive(
            by_layer(run, lambda layer: run[pair[0], metric, layer] - run[pair[1], metric, layer], told)
        ),
    )


def fall_with_depth(run: Measured) -> Verdict:
    """Gradients: the rank correlation of layer and the cue's share in each sentence is below 0."""
    names = [name for name in GRADIENTS if run[name, "cue_dot", 1]]
    if not names:
        return incomparable("needs a gradient method")
    curves = {name: [run[name, "cue_dot", layer] for layer in single(run)] for name in names}
    return verdict_on_trend(curves, falls=True, seed=run.setup.seed)


def rise_towards_the_input(run: Measured) -> Verdict:
    """Gradients: the cue's share in each layer is above that in the next one."""
    names = {name: short for name, short in short_names(GRADIENTS).items() if run[name, "cue_dot", 1]}
    steps = {
        f"layer {layer}": {
            f"{short}{more}": run[name, "cue_dot", place] for name, short in names.items() for more, place in places
        }
        for layer in range(1, run.last)
        for places in [(("", layer), (NEXT, layer + 1))]
    }
    return run.in_all(steps, [(short, f"{short}{NEXT}") for short in names.values()])


def rollout_gain(run: Measured, name: str) -> Values:
    """The cue's share after rollout less the mean of its shares in single layers."""
    return run[name, "cue_dot", 0] - mean_over([run[name, "cue_dot", layer] for layer in single(run)])


def mean_above(methods: str | Sequence[str], rivals: Sequence[str], metric: str) -> Rule:
    """`above` on the mean of single layers."""
    return above(methods, rivals, metric, where=lambda record: bool(record.info["layer"]))


SHOWN = "a heat map; no number in the text"
CLAIMS = (
    Claim(
        f"section 5, {FIGURES}, A.3 and A.4",
        "Across all layers Value Zeroing gives cue words a larger share than every other context mixing method (dot "
        "product).",
        SHOWN,
        first_in_every_layer("cue_dot"),
    ),
    Claim(
        f"section 5, {FIGURES}, A.3 and A.4",
        "Across all layers Value Zeroing ranks cue words higher than every other context mixing method (average "
        "precision).",
        SHOWN,
        first_in_every_layer("cue_average_precision"),
    ),
    Claim(
        "Appendix A.2, Figure A.2",
        "Across all layers Value Zeroing needs fewer probes to find the cue words than every other context mixing "
        "method.",
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
        "With the norm of the transformed values (Attn-norm) attention finds cue words much better (here: by any "
        "margin).",
        SHOWN,
        mean_above("norm", ("attention",), "cue_dot"),
    ),
    Claim(
        "section 5",
        "With residual connection and layer normalization (Attn-norm + RES + LN) the norms seem to find no cue words: "
        "read here as a smaller share for cue words than Attn-norm gives.",
        SHOWN,
        mean_above("norm", ("norm_residual_ln",), "cue_dot"),
    ),
    Claim(
        "section 5",
        "GlobEnc and ALTI benefit from rollout: they give cue words a larger share after it than in single layers.",
        SHOWN,
        needing(
            ("globenc", "alti"),
            "globenc and alti",
            lambda run: run.positive(
                {f"{name}: rolled out - single layers": rollout_gain(run, name) for name in ("globenc", "alti")}
            ),
        ),
    ),
    Claim(
        "section 5",
        "Without rollout GlobEnc and ALTI do not give good scores: read here as a smaller share for cue words, mean "
        "over layers, than Value Zeroing and Attn-norm give.",
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
        "Gradient-based scores of cue words go up monotonically towards the embedding: each layer's are above the "
        "next one's.",
        SHOWN,
        rise_towards_the_input,
    ),
)


# --- cue alignment ----------------------------------------------------------------------------------------------------


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


@value_zeroing(
    name="vz-cue-alignment",
    packages=("scikit-learn",),
    shows="Figures 1, 2, A.2, A.3, A.4: cue alignment by layer",
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
    cues, signs = cues_of(setup, trace, example), setup.options["signs"]
    measures = {name: partial(function, cues=cues, signs=signs) for name, function in ALIGNED.items()}
    records: list[Record] = []
    for method, rows in rows_of(setup, trace, example).items():
        records += measured(example, method, rows, measures)
    for written in names_in(
        setup.options["rolled_out"]
    ):  # the map rolled out from the input to each layer (section 4.3)
        request, scores, identity = parse_method(written), map_of(trace, written), setup.options["identity"]
        places = range(len(scores.scores))
        rolled = Rows(tuple(rolled_out(scores, request, trace.query, identity, layer=layer) for layer in places))
        records += measured(example, f"{written}, rolled out", rolled, measures)
    return records


# --- distances --------------------------------------------------------------------------------------------------------


def _patterns(setup: Setup, records: list[Record]) -> dict[str, Agreement]:
    """How alike the curves over layers of each further distance and of the first are."""
    run = Measured(setup, records, [])
    curves = {
        name: np.array([np.nanmean(list(run[name, "cue_dot", layer].values())) for layer in single(run)])
        for name in setup.methods
    }
    first, *others = setup.methods
    return {name: agreement(curves[name], curves[first]) for name in others}


def _finish_distances(setup: Setup, records: list[Record]) -> list[Table]:
    first = setup.methods[0]
    note = f"like_the_first: Spearman's rank correlation of the tokens' scores with those of `{first}`."
    cues = "Value Zeroing by other distances: cue alignment by layer (dot product)"
    return [
        layer_table(setup, records, "cue_dot", cues),
        layer_table(
            setup, records, "like_the_first", "How like the first distance they score the tokens, by layer", note
        ),
        Table(
            "pattern",
            f"The same pattern? Spearman's rank correlation over layers of cue alignment with that of `{first}`",
            ("method", "spearman over layers", "p"),
            tuple((method, one.rho, one.p) for method, one in _patterns(setup, records).items()),
            "p: the share of orders of the layers that agree as well by chance, in either direction.",
        ),
        overall_table(setup, records, ("cue_dot", "like_the_first"), "Over all layers (rolled out; not in the paper)"),
    ]


def unnoticed(run: Measured) -> Verdict:
    """Standardised representations against representations as they are: the mean difference over layers is small."""
    methods = run.setup.methods
    plain = [name for name in methods if f"{name}:standardize=true" in methods]
    if not plain:
        return incomparable("needs a distance with and without standardize")
    intervals = {}
    for name in plain:
        changes = [
            run[f"{name}:standardize=true", "cue_dot", layer] - run[name, "cue_dot", layer] for layer in single(run)
        ]
        change = list(mean_over(changes).values())
        told = f"{name.partition('=')[2]}: normalised - plain"
        intervals[told] = mean_with_interval(change, seed=run.setup.seed)
    return bounded(intervals, low=-UNNOTICED, high=UNNOTICED)


@value_zeroing(
    name="vz-distances",
    packages=("scipy",),
    shows="Figure A.1: cue alignment by layer with other distances",
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
        "Representations are standardised over the tokens of a sentence; Timkey and van Schijndel, whom the paper "
        "follows, standardise over a corpus.",
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
            "Spearman's and Euclidean distance, and all three with normalised representations, show the same pattern "
            "over layers as cosine distance.",
            "curves; no number in the text",
            lambda run: verdict_on_agreement(_patterns(run.setup, run.records)),
        ),
    ),
)
def distances(setup: Setup, example: Example) -> list[Record]:
    """Does it matter how the change of a representation is measured?"""
    trace = setup.model.trace(example)
    cues = cues_of(setup, trace, example)
    every = {method: [rows.overall, *rows.layers] for method, rows in rows_of(setup, trace, example).items()}
    first = every[setup.methods[0]]
    records = []
    for method, rows in every.items():
        for layer, (scores, other) in enumerate(zip(rows, first, strict=True)):  # over all layers, then layer by layer
            assert scores is not None
            assert other is not None
            values = {"cue_dot": cue_dot(scores, cues), "like_the_first": spearman(scores.scores, other.scores)}
            records += [Record(str(example.id), method, *value, {"layer": layer}) for value in values.items()]
    return records
