"""Every experiment of the papers: pure tables and figures, verdicts that follow the records, plans that name what there
is."""

# ruff: noqa: F811
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from outcomes import made_up, setup_of, verdicts
from tiny_models import gap_model, model  # noqa: F401

from mixlens import data, types
from mixlens.papers.alti import consistency, shapes
from mixlens.papers.alti import main as alti
from mixlens.papers.attcat import layers as attcat_layers
from mixlens.papers.attcat import main as attcat
from mixlens.papers.globenc import layers as globenc_layers
from mixlens.papers.globenc import local
from mixlens.papers.globenc import main as globenc
from mixlens.papers.value_zeroing import cues
from mixlens.papers.value_zeroing import main as vz
from mixlens.runs.experiments import claims, known, plan, run, running

pytest.importorskip("scipy")
Means = dict[tuple[Any, ...], float]
FEW = {  # methods of a quick run
    "globenc": ("attention", "globenc"),
    "attcat-faithfulness": ("attcat", "random"),
    "vz-cue-alignment": ("random", "norm", "value_zeroing"),
    "vz-faithfulness": ("random", "norm", "value_zeroing"),
    "vz-distances": cues.DISTANCES[:3],
}
RUN = (
    *("globenc-table1", "globenc-layers", "globenc-hta", "globenc-ln-outliers", "globenc-own-token"),
    *("alti-table2", "alti-table2-sva", "alti-special-tokens", "alti-anisotropy", "alti-relevance-matrices"),
    *("attcat-faithfulness", "attcat-confidence", "attcat-layers"),
    *("vz-cue-alignment", "vz-faithfulness", "vz-distances", "vz-accuracy"),
)


@pytest.mark.parametrize("name", RUN)
def test_tables_and_figures_come_from_records_alone(name: str, model: Any, gap_model: Any) -> None:
    """`finish` twice gives the same and leaves the records as they were; so does the figure."""
    declared = known()[name]
    asked = {"model": gap_model if declared.model == "agreement" else model, "data": declared.data, "n": 2}
    methods = FEW.get(name, FEW.get(name.partition("-")[0])) if declared.methods else None
    made = run(name, methods=methods if name != "globenc-own-token" else None, progress=False, **asked)
    before = [repr(record) for record in made.records]  # a NaN equals itself as text
    again = running.all_tables(made.setup, made.records)
    assert [(t.csv, t.markdown) for t in again] == [(t.csv, t.markdown) for t in made.tables]
    assert [repr(record) for record in made.records] == before
    assert running.drawn(made)["svg"] == running.drawn(made)["svg"]


# --- claims: what the paper reports gives "same" (S), its reverse "different" (D) -------------------------------------


def by_layer(metric: str, curves: dict[str, tuple[float, ...]]) -> Means:
    return {(name, metric, i): mean for name, curve in curves.items() for i, mean in enumerate(curve, 1)}


def reversed_(means: Means) -> Means:
    return {key: -mean for key, mean in means.items()}


PRINTED = dict(zip(globenc.FAMILY, (-0.11, -0.24, 0.19, 0.44, 0.48, 0.73, -0.21, 0.77), strict=True))
TABLE1 = {(method, "rolled out"): mean for method, mean in PRINTED.items()}


@pytest.mark.parametrize(
    ("means", "letters"),
    [
        (TABLE1, "SSSSSS"),
        (reversed_(TABLE1), "DDDDDD"),
        ({**TABLE1, ("norm", "rolled out"): 0.55, ("norm_fixed_residual", "rolled out"): 0.46}, "SSSDSS"),
    ],
)
def test_claims_of_globencs_table_1(means: Means, letters: str) -> None:
    assert verdicts("globenc-table1", made_up(means)) == letters


FLAT = dict.fromkeys(globenc.FAMILY, (-0.6, -0.5, -0.4, -0.4))
CURVES = {
    **FLAT,
    "attention_residual": (-0.6, -0.5, -0.2, 0.1),
    "norm": (-0.5, 0.3, 0.4, 0.45),
    "norm_residual": (-0.48, 0.6, 0.7, 0.73),
    "globenc": (-0.3, 0.74, 0.77, 0.8),
}
RIVALS = dict.fromkeys(globenc.FAMILY, (0.0,) * 4)
DEEPER = dict.fromkeys(globenc_layers.AGGREGATED, (0.3, 0.4, 0.6, 0.5))


@pytest.mark.parametrize(
    ("curves", "alone", "letters"),
    [
        (CURVES, 0.0, "SSSSSSS"),
        ({name: tuple(-mean for mean in curve) for name, curve in CURVES.items()}, 0.5, "DDDDDDD"),
        ({}, 0.0, "-------"),
        ({**CURVES, "norm_residual": (-0.48, 0.1, 0.6, 0.73)}, 0.0, "...SD.."),  # rises more in its second half
        ({**CURVES, "attention_residual": (-0.6, -0.5, -0.7, 0.3)}, 0.0, "...DS.."),  # most, but not in every layer
        ({**RIVALS, "globenc": (1.0, 1, 1, -1)}, 0.0, "S......"),  # almost every layer is three quarters
        ({**RIVALS, "globenc": (1.0, 1, -1, -1)}, 0.0, "D......"),
        ({**RIVALS, "globenc": (1.0, 1, 0.0, 0.0001)}, 0.0, "U......"),
        (DEEPER, 0.3, "......S"),
        ({**DEEPER, "norm": (0.3, 0.7, 0.4, 0.4)}, 0.3, "......D"),  # the last layer alone gains more than the first
        (dict.fromkeys(globenc_layers.AGGREGATED, (0.5,)), 0.3, "......-"),  # one layer has no deeper ones
    ],
)
def test_claims_of_globencs_layers(curves: dict[str, tuple[float, ...]], alone: float, letters: str) -> None:
    level = {name: (alone,) * len(curve) for name, curve in curves.items()}
    found = verdicts("globenc-layers", made_up(by_layer("rolled out", curves) | by_layer("alone", level)))
    assert re.fullmatch(letters, found), found


@pytest.mark.parametrize(("means", "letters"), [((0.8, 0.6, 0.9), "SS"), ((0.5, 0.9, 0.4), "DD")])
def test_claims_of_hta(means: tuple[float, ...], letters: str) -> None:
    curves = {name: (mean,) for name, mean in zip(local.LOCAL, means, strict=True)}
    assert verdicts("globenc-hta", made_up(by_layer(local.WHOLE, curves))) == letters


@pytest.mark.parametrize(
    ("shares", "letters"),
    [
        ((0.8, 0.1), "SS"),
        ((0.2, 0.4), "DD"),
        ((0.9, 0.8, 0.7, *[0.2] * 9), "SS"),  # the first quarter: each of layers 1 to 3 of 12
        ((0.9, 0.8, 0.3, *[0.2] * 9), "DS"),
        ((0.9, *[0.2] * 4), "SS"),
        ((0.9, *[0.2] * 5), "DS"),  # of 6 layers the first two
        ((), "--"),
    ],
)
def test_claims_of_the_own_token(shares: tuple[float, ...], letters: str) -> None:
    assert verdicts("globenc-own-token", made_up(by_layer(globenc_layers.OWN, {"globenc": shares}))) == letters


@pytest.mark.parametrize(
    ("correlations", "features", "letter"),
    [
        ((-0.9, -0.8, -0.9, 0.1), 4, "S"),
        ((-0.9, -0.1, -0.2, -0.7), 4, "D"),  # negative, but not large
        ((1.0, 1.0), 2, "-"),  # two points are always on a line
        ((), 4, "-"),
    ],
)
def test_the_claim_of_the_norms(correlations: tuple[float, ...], features: int, letter: str) -> None:
    records = [
        types.Record("-", "-", name, value, {"layer": layer})
        for layer, one in enumerate(correlations, 1)
        for name, value in zip(local.OUTLIERS, (features, 2, 2, 0.1, one), strict=True)
    ]
    assert verdicts("globenc-ln-outliers", records) == letter


def of_table2(attention: float, norm: float, ours: float, wide: float = 0.3, narrow: float = 0.1) -> list[Any]:
    rollouts = made_up({(alti.ATTENTION, "spearman"): attention, (alti.NORM, "spearman"): norm}, spread=wide)
    return rollouts + made_up({(alti.ALTI, "spearman"): ours}, spread=narrow)


def test_claims_of_altis_table_2() -> None:
    assert verdicts("alti-table2", of_table2(0.0, 0.3, 0.6)) == "SS"
    assert verdicts("alti-table2", of_table2(0.0, 0.9, 0.6, 0.1, 0.3)) == "DD"
    assert verdicts("alti-table2", made_up({(alti.NORM, "spearman"): 0.3})) == "--"
    even = made_up({(alti.BLANK_OUT, alti.EVEN): 0.05}, spread=0.001)
    for ours, last, ignored, letters in ((0.5, 0.3, 0.8, "SSS"), (0.1, 0.01, 0.2, "DDD")):
        shares = made_up({(alti.BLANK_OUT, alti.LAST): last, (alti.BLANK_OUT, alti.IGNORED): ignored}, spread=0.01)
        assert verdicts("alti-table2-sva", of_table2(0.0, 0.3, ours, 0.05, 0.05) + even + shares) == letters


def of_a_model(layers: int, means: Means) -> Any:
    setup = setup_of("alti-table2")
    setup.model = type("Model", (), {"n_layers": layers})
    return claims.Measured(setup, made_up(means), [])


def test_claims_about_two_runs() -> None:
    """The model with fewer layers comes first; of two as deep the claim says nothing."""
    high, low = ({(method, "spearman"): mean for method in alti.METHODS} for mean in (0.5, 0.2))
    for check, first, second in (
        (alti.rollout_needs_few_layers, high, low),
        (shapes.rows_converge_in_bigger_models, *(of_rows(last) for last in (0.6, 0.2))),
    ):
        assert check([of_a_model(6, first), of_a_model(12, second)]).word == claims.SAME
        assert check([of_a_model(6, second), of_a_model(12, first)]).word == claims.DIFFERENT
        level = check([of_a_model(6, first), of_a_model(6, second)])
        assert level.text == "not comparable (the first model has 6 layers, the second 6)"
    both = [of_a_model(6, high), of_a_model(6, low)]
    assert [alti.lower_in_the_second(runs).word for runs in (both, both[::-1])] == [claims.SAME, claims.DIFFERENT]


def of_rows(last: float) -> Means:
    """The distance of rows in the last of two layers, and a first layer that tells nothing."""
    return {(shapes.ATTENTION, shapes.DISTANCE, 1): 1 - last, (shapes.ATTENTION, shapes.DISTANCE, 2): last}


@pytest.mark.parametrize(("gradient", "released", "letters"), [(0.5, 0.5, "SS"), (0.1, 0.5, "DS"), (0.5, 0.1, "SD")])
def test_claims_of_altis_figure_6(gradient: float, released: float, letters: str) -> None:
    """Each form of grad_l2 is judged by itself: one may hold where the other does not."""
    means = {alti.ATTENTION: 0.9, alti.NORM: 0.8, alti.GRADIENT: gradient, alti.RELEASED: released, alti.ALTI: 0.3}
    ranks = {(method, "rank"): mean for method, mean in means.items()}
    assert verdicts("alti-special-tokens", made_up(ranks, token="[CLS]") + made_up(ranks, token=",")) == letters


@pytest.mark.parametrize(
    ("block", "first", "last", "letters"),
    [(0.8, 0.04, 0.3, "SSSS"), (0.1, 0.5, 0.2, "DDDD"), (0.3, 0.04, 0.2, "SDSS")],
)
def test_claims_of_altis_figure_3(block: float, first: float, last: float, letters: str) -> None:
    means = by_layer("cosine", {shapes.BLOCK: (block, block), shapes.TRANSFORMED: (first, last)})
    assert verdicts("alti-anisotropy", made_up(means, spread=0.02)) == letters
    assert verdicts("alti-anisotropy", []) == "----"


@pytest.mark.parametrize(("rows", "special", "letters"), [((0.9, 0.1), 0.8, "SSS"), ((0.2, 0.9), 0.1, "DDD")])
def test_claims_of_altis_figure_8(rows: tuple[float, float], special: float, letters: str) -> None:
    means = by_layer(shapes.DISTANCE, {shapes.ATTENTION: rows}) | {(alti.ALTI, shapes.DISTANCE, 2): 0.5}
    means |= {(shapes.ATTENTION, shapes.SPECIAL, 2): special, (alti.ALTI, shapes.SPECIAL, 2): 0.3}
    assert verdicts("alti-relevance-matrices", made_up(means)) == letters


@pytest.mark.parametrize(
    ("means", "letters"),
    [((0.9, 0.7, 0.5, 0.3), "SS"), ((0.3, 0.5, 0.7, 0.9), "DD"), ((0.700001, 0.7, 0.2, 0.3), "US")],
)
def test_claims_of_altis_figure_7_count_what_both_models_predict_alike(means: tuple[float, ...], letters: str) -> None:
    alike = {(method, "spearman"): mean for method, mean in zip(consistency.METHODS, means, strict=True)}
    records = made_up(alike, alike=True) + made_up({key: -5 * mean for key, mean in alike.items()}, alike=False)
    assert verdicts("alti-consistency", records) == letters


LAST = ("raw_attention", "attention_rollout", "random")
LEVEL = {(method, metric): 0.0 for method in attcat.METHODS for metric in ("aopc", "lodds")}
BETTER = LEVEL | {(m, k): v for m in attcat.METHODS if m not in LAST for k, v in (("aopc", 1.0), ("lodds", -1.0))}
BETTER |= {("attcat", "aopc"): 2.0, ("attcat", "lodds"): -2.0}
PAPER, RELEASED = {"variant": "paper"}, {"variant": "released"}


@pytest.mark.parametrize(
    ("means", "options", "letters"),
    [
        (BETTER, PAPER, "SSSSSSSSSS"),
        (reversed_(BETTER), PAPER, "DDDDDDDDDD"),
        (LEVEL, PAPER, "UUUUUUUU.D"),  # 0.048 of LOdds is more than the noise
        ({**BETTER, ("attention_grad", "aopc"): 9.0, ("attention_grad", "lodds"): -9.0}, PAPER, "DDDD......"),
        # Grads is no token score in the released code: there it decides nothing.
        ({**BETTER, ("attention_grad", "aopc"): 9.0, ("attention_grad", "lodds"): -9.0}, RELEASED, "SSSS......"),
        ({**BETTER, ("attention_grad", "aopc"): -9.0, ("attention_grad", "lodds"): 9.0}, RELEASED, "SSSSSS...."),
        # a marked drop is as large as the smallest of the paper
        ({**LEVEL, ("attcat", "aopc"): 0.02, ("attcat", "lodds"): -0.2}, PAPER, "........SS"),
        ({**LEVEL, ("attcat", "aopc"): -0.02, ("attcat", "lodds"): 0.2}, PAPER, "........DD"),
    ],
)
def test_claims_of_attcats_table_1(means: Means, options: dict[str, str], letters: str) -> None:
    found = verdicts("attcat-faithfulness", made_up(means, spread=0.01, n=100), options=options)
    assert re.fullmatch(letters, found), found


TAUS = {(method, "kendall"): 0.3 for method in attcat.CLASSES} | {("attcat", "kendall"): 0.0}
TAUS |= {("partial_lrp", "kendall"): 0.9}


@pytest.mark.parametrize(
    ("means", "letters"),
    [(TAUS, "SSS"), (reversed_(TAUS), "DSD"), ({**TAUS, ("attcat", "kendall"): -0.5}, "SDS")],  # by sign, by size
)
def test_claims_of_attcats_table_2(means: Means, letters: str) -> None:
    assert verdicts("attcat-confidence", made_up(means, spread=0.01)) == letters


def test_the_claim_of_attcats_figure_3_is_judged_on_answered_questions_alone() -> None:
    counts = {(method, "count"): 1.0 for method in attcat.METHODS} | {("attcat", "count"): 3.0}
    answered = made_up(counts | {("random", "count"): 9.0}, n=30, answered=True)  # random is not in the paper
    others = [types.Record(f"x{r.example}", r.method, r.metric, -r.value, {"answered": False}) for r in answered]
    (claim,) = known()["attcat-qa"].claims
    verdict = claim.check(setup_of("attcat-qa"), answered + others, [])
    assert verdict.word == claims.SAME
    assert verdict.ours.startswith("on the 30 of 60 questions that the model answers: ")
    assert verdicts("attcat-qa", made_up(reversed_(counts), answered=True)) == "D"
    assert verdicts("attcat-qa", made_up(counts, n=29, answered=True)) == "-"


def test_claims_of_attcats_figure_4() -> None:
    """The trend over all layers counts: five layers that rise before one that falls are not what the paper says."""
    ways = {(attcat_layers.SUM, "aopc", 0): 1.0, (attcat_layers.ROLLOUT, "aopc", 0): 0.0}
    ways |= {(attcat_layers.SUM, "lodds", 0): -1.0, (attcat_layers.ROLLOUT, "lodds", 0): 0.0}
    for curve, letter in (
        ((1.0, 0.5, 0.3, 0.2, 0.1, 0.05), "S"),
        ((0.05, 0.1, 0.2, 0.3, 0.5, 1.0), "D"),
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.05), "D"),
        ((), "-"),
    ):
        falling = by_layer("relative spread", {"attcat": curve}) | by_layer("size", {"attcat": curve})
        assert verdicts("attcat-layers", made_up(falling | ways, spread=0.001)) == f"{letter}{letter}-SS"
    assert verdicts("attcat-layers", made_up(reversed_(ways)))[3:] == "DD"


DEPTH, MEASURES = 6, ("cue_dot", "cue_average_precision", "probes_needed")
MAPS = (*vz.METHODS, cues.ATTENTION_ROLLED)


def as_published(method: str, layer: int) -> float:
    """Cue alignment as the paper has it."""
    if method in vz.GRADIENTS:
        return 0.9 - 0.12 * layer
    if layer == 0 and method in ("globenc", "alti"):
        return 0.4
    return {"value_zeroing": 0.6, "norm": 0.35, "random": 0.25, "attention": 0.1}.get(method, 0.15)


def of_cues(changed: dict[tuple[str, int], float] | None = None, sign: float = 1.0) -> list[Any]:
    levels = {(method, layer): as_published(method, layer) for method in MAPS for layer in range(DEPTH + 1)}
    levels |= changed or {}
    signs = dict(zip(MEASURES, (sign, sign, -sign), strict=True))  # of probes fewer are better
    means = {(m, k, i): signs[k] * level for (m, i), level in levels.items() for k in MEASURES}
    return made_up(means, spread=0.02, n=30)


@pytest.mark.parametrize(
    ("changed", "sign", "letters"),
    [
        ({}, 1.0, "SSSSSSSSSSS"),
        ({}, -1.0, "DDDDDDDDDDD"),
        ({("norm", 3): 0.9}, 1.0, "DDD........"),  # one layer in which another map is better
        ({(cues.ATTENTION_ROLLED, 3): 0.9}, 1.0, "DDD........"),  # section 4.3 lists Attn-rollout
        ({("alti", layer): 0.5 for layer in range(1, 7)}, 1.0, "........D.."),  # good by itself
        ({(m, i): 0.9 if i == 1 else 0.05 * i for m in vz.GRADIENTS for i in range(1, 7)}, 1.0, ".........DD"),
        ({("deeplift", 4): 0.7}, 1.0, "..........D"),  # one step of one gradient
    ],
)
def test_claims_of_cue_alignment(changed: dict[tuple[str, int], float], sign: float, letters: str) -> None:
    found = verdicts("vz-cue-alignment", of_cues(changed, sign))
    assert re.fullmatch(letters, found), found
    assert verdicts("vz-cue-alignment", made_up({("transatt", "cue_dot", 1): 1.0})) == "-" * 11


def test_claims_of_vz_faithfulness_accuracy_and_distances() -> None:
    means = {"value_zeroing": 0.3, "random": 0.0, "attention": -0.1}
    level = {(method, "spearman", 0): means.get(method, 0.1) for method in vz.METHODS}
    assert verdicts("vz-faithfulness", made_up(level)) == "SSS"
    assert verdicts("vz-faithfulness", made_up(reversed_(level))) == "DDD"
    assert verdicts("vz-faithfulness", []) == "---"
    right = {("pre-trained", "right"): 0.2, ("fine-tuned", "right"): 0.9}
    assert [verdicts("vz-accuracy", made_up(one)) for one in (right, reversed_(right))] == ["S", "D"]
    assert verdicts("vz-accuracy", made_up(right), models=(None,)) == "-"

    def distances(slope: float, standardised: float = 0.0) -> list[Any]:
        curve = [0.1 * layer for layer in range(DEPTH + 1)]
        means = {(cues.DISTANCES[0], "cue_dot", layer): value for layer, value in enumerate(curve)}
        for name in cues.DISTANCES[1:]:
            more = standardised * name.endswith("true")
            means |= {(name, "cue_dot", layer): slope * value + more for layer, value in enumerate(curve)}
        return made_up(means, spread=0.02)

    assert verdicts("vz-distances", distances(1.0)) == "SS"
    assert verdicts("vz-distances", distances(-1.0))[1] == "D"
    assert verdicts("vz-distances", distances(1.0, 0.2)) == "DS"


def of_probing(levels: Any, bits: Any, depth: int = 12) -> list[Any]:
    means = {(method, "cue_dot", i): levels(method, i) for method in vz.METHODS for i in range(1, depth + 1)}
    noise = np.random.default_rng(2).normal(0, 0.01, (depth + 1, 30))
    facts = {"low": 1.0, "high": 1.0, "std": 0.0, "n": 30}
    coded = [
        types.Record("all", "gap", "compression", 1 / bits(i), {**facts, "layer": i, "bits": list(bits(i) + noise[i])})
        for i in range(depth + 1)
    ]
    return coded + made_up(means, spread=0.02, n=30)


def test_claims_of_probing() -> None:
    """Layers 4 and 9 are each compared with the other ten: one alone is against the claim; so many layers must there
    be."""

    def rising(method: str, layer: int) -> float:
        slope = 0.05 if method == vz.OURS else -0.05 if method in vz.GRADIENTS else 0.0
        peak = 0.3 * (method == vz.OURS and layer in (4, 9))
        return 0.5 + slope * layer + peak + (0.0 if slope else 0.2 * (layer % 3))

    def bits(layer: int) -> float:
        return 0.9 - 0.02 * layer - 0.1 * (layer >= 4) - 0.1 * (layer >= 9)

    assert verdicts("vz-probing", of_probing(rising, bits)) == "SSSSSSS"
    assert verdicts("vz-probing", of_probing(rising, lambda layer: 1.8 - bits(layer))) == "DDDDDDS"
    assert re.fullmatch("U....--", verdicts("vz-probing", of_probing(rising, bits, 4)))  # four layers cannot tell
    for peaks, letter in (((4, 9), "S"), ((4,), "D"), ((9,), "D"), ((3, 8), "D")):
        heights = {4: 0.2, 9: 0.2} | dict.fromkeys(peaks, 0.7)
        found = of_probing(lambda _, layer, heights=heights: heights.get(layer, 0.4), lambda _: 0.9)
        assert verdicts("vz-probing", found)[-1] == letter
        assert verdicts("vz-probing", [r for r in found if r.method != vz.OURS])[-1] == "-"


# --- what is declared -------------------------------------------------------------------------------------------------

OF_THE_PAPERS = sorted(name for name in known() if name.split("-")[0] in ("alti", "globenc", "vz", "id", "attcat"))
PROMISED = re.compile(r"\b(far more|much|considerably|significantly)\b")


@pytest.mark.parametrize("name", OF_THE_PAPERS)
def test_an_experiment_of_a_paper_says_what_differs_and_is_in_a_plan(name: str) -> None:
    declared = known()[name]
    assert declared.differs, "what differs from the paper is not said"
    assert declared.claims or declared.published, "neither a claim nor a number of the paper"
    plans = plan.PLANS.known().values()
    commands = [item.command for one in plans for item in one.items]
    assert name in [step.experiment for one in plans for step in one.steps] or any(name in one for one in commands)
    for claim in declared.claims if not name.startswith(("id", "attcat")) else ():
        # Rules of order ask for any margin: a claim with a word such as "much" says so.
        assert not PROMISED.search(claim.says) or "(here: " in claim.says or "read here as " in claim.says, claim.says


@pytest.mark.parametrize("name", sorted(plan.PLANS.known()))
def test_a_plan_names_what_there_is(name: str) -> None:
    """Experiments, roles, datasets, options and steps of a plan exist; every item says what makes it, or why nothing
    does."""
    whole = plan.PLANS.known()[name]
    roles, steps = {role.name for role in whole.roles}, [step.name for step in whole.steps]
    assert whole.name == name
    assert len(set(steps)) == len(steps)
    for step in whole.steps:
        declared = known()[step.experiment]
        assert set(step.models) <= roles
        assert step.data in data.DATASETS
        assert {*step.options, *step.fast_options} <= {*declared.options, "methods"}
        assert len(step.models) >= declared.n_models
    assert {step for item in whole.items for step in item.steps} == set(steps)
    assert {step for one in whole.comparisons for step in one.steps} <= set(steps)


@pytest.mark.parametrize(
    ("name", "wheres"),
    [
        ("globenc", [f"Figure {i}" for i in (1, 2, 3, 4, 5, *(f"A.{i}" for i in range(1, 7)))]),
        ("globenc", ["Table 1", "Table 2", "Table A.1", "Table A.2"]),
        ("alti", [*(f"Figure {i}" for i in range(1, 11)), *(f"Table {i}" for i in range(1, 10))]),
        ("value-zeroing", [*(f"Figure A.{i}" for i in range(1, 19)), *(f"Figure {i}" for i in range(1, 5))]),
        ("attcat", ["Table 1", "Table 2", "Figure 3", "Figure 4", "Figure 5b"]),
    ],
)
def test_a_plan_has_every_table_and_figure(name: str, wheres: list[str]) -> None:
    told = " ".join(item.where for item in plan.PLANS.find(name).items)
    assert [where for where in wheres if where not in told] == []


def test_commands_of_items_name_a_model_and_the_texts_that_a_paper_prints() -> None:
    """Commands that have no model and no mask are refused: the embedded model fills gaps. attcat-qa has no embedded
    model."""
    commands = {(name, item.where): item.command for name, one in plan.PLANS.known().items() for item in one.items}
    needing = ("mixlens explain", "mixlens plot", "mixlens compare", "mixlens experiment attcat-qa")
    assert [key for key, one in commands.items() if one.startswith(needing) and "--model " not in one] == []
    for where, words in (("Figure 6", "research into military brats"), ("Figures 19-25", "foodservice pie business")):
        assert words in commands["identifiability", where]
    assert commands["attcat", "Figure 5b"].endswith("--no-special")  # the first token would hide the words
    for where in ("Figure A.2", "Figure A.3"):
        assert commands["globenc", where].endswith(f"(then {', '.join(globenc.FAMILY[1:])} for --method)")
        assert "--method attention:rollout=globenc " in commands["globenc", where]  # no identity, as eq. 12 has it


def test_numbers_of_the_papers_are_of_methods_that_run() -> None:
    printed = {name: [tuple(one.numbers) for one in known()[name].published] for name in OF_THE_PAPERS}
    assert set(printed["globenc-table1"]) == {globenc.FAMILY}
    assert set(printed["vz-faithfulness"]) == set(printed["vz-probing"][:2]) == {vz.METHODS}
    assert set(printed["attcat-faithfulness"]) == {attcat.METHODS[1:]}
    assert set(printed["alti-table2"]) == set(printed["alti-table2-sva"]) == {alti.METHODS}


def test_what_differs_is_said_wherever_it_matters() -> None:
    said = {name: " ".join(known()[name].differs) for name in OF_THE_PAPERS}
    for name in ("alti-table2", "alti-special-tokens", "alti-consistency"):
        assert {alti.LOGIT, alti.PLACE} <= set(known()[name].differs)
    for name in ("alti-table2", "alti-table2-sva", "alti-special-tokens", "alti-relevance-matrices"):
        assert alti.NORM_ROLLOUT in known()[name].differs
    for name in ("vz-cue-alignment", "vz-probing", "vz-faithfulness"):
        assert "gradients_of=pair" in said[name]
    assert "read=released_v2" in said["attcat-qa"]
    assert "[CLS], [SEP] and the question's too" in said["attcat-qa"]
    assert "validation_mismatched" in said["globenc-table1"]
    options = {step.name: step.options.get("read") for step in plan.PLANS.find("attcat").steps}
    assert (options["figure3-squad1-released"], options["figure3-squad2-released"]) == ("released", "released_v2")
