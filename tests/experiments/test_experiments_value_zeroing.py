"""Value Zeroing's experiments on tiny cases: numbers against slow replicas, and every claim judged in both directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from outcomes import values
from scipy.stats import spearmanr

import mixlens
from mixlens import data
from mixlens.base.errors import InputError
from mixlens.metrics.agreement import spearman
from mixlens.metrics.alignment import cue_average_precision, cue_dot, probes_needed
from mixlens.metrics.arguments import marks_at
from mixlens.papers.value_zeroing.cues import ATTENTION_ROLLED, DISTANCES
from mixlens.papers.value_zeroing.main import GRADIENTS, METHODS, RIVALS, rolled_out
from mixlens.papers.value_zeroing.probing import curves_in
from mixlens.runs.experiments import Setup, Table, known, run, running
from mixlens.runs.experiments.claims import DIFFERENT, INCOMPARABLE, SAME, UNDECIDED, Measured
from mixlens.runs.experiments.layer_curves import Agreement, agreement, verdict_on_agreement, verdict_on_draws
from mixlens.runs.experiments.plan import PLANS
from mixlens.runs.experiments.prepare import fitting
from mixlens.scoring.asking import parse_method
from mixlens.types import Example, Record


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def gaps() -> list[Example]:
    return list(data.load("agreement", n=3))


def traced(model: Any, example: Example) -> tuple[Any, Any]:
    """The trace and the cue vector."""
    trace = model.trace(example)
    return trace, marks_at(data.cue_tokens(example, trace), len(trace))


def shared(scores: Any) -> Any:
    """Section 4.3: positive values that sum to one."""
    absolute = np.abs(np.asarray(scores, dtype=np.float64))
    return absolute / absolute.sum()


def rolled_slowly(scores: Any, layer: int, *, identity: bool) -> Any:
    """Rows to 1, the identity added or not, rows to 1 again, last layer on the left. [query key]"""
    product = None
    for one in np.asarray(scores, dtype=np.float64)[: layer + 1]:
        matrix = one / one.sum(-1, keepdims=True)
        matrix = (matrix + np.eye(len(matrix))) / 2 if identity else matrix
        product = matrix if product is None else matrix @ product
    return product


# --- cue alignment ------------------------------------------------------------------------------------------------------


def test_cue_alignment_is_that_of_every_layer_and_of_all(model: Any, gaps: list[Example]) -> None:
    made = run(
        "vz-cue-alignment", model=model, data=gaps, methods=["norm", "value_zeroing", "grad_x_input"], progress=False
    )
    measures = {"cue_dot": cue_dot, "cue_average_precision": cue_average_precision, "probes_needed": probes_needed}
    for number, example in enumerate(gaps):
        trace, cues = traced(model, example)
        scores = mixlens.mix(trace, "value_zeroing")
        for layer in range(model.n_layers):
            row = scores.readout("[MASK]", layer=layer)
            for name, measure in measures.items():
                assert values(made, "value_zeroing", name, layer=layer + 1)[number] == pytest.approx(
                    measure(row, cues), rel=1e-6
                )
        for method, identity in (("value_zeroing", False), ("norm", True)):
            whole = rolled_slowly(mixlens.mix(trace, method).scores, model.n_layers - 1, identity=identity)
            expected = whole[trace.query][cues].sum()
            # The model computes in float32, and one row is multiplied through the layers in place of all of them.
            assert values(made, method, "cue_dot", layer=0)[number] == pytest.approx(expected, rel=1e-5)
        gradient = mixlens.attribute(trace, "grad_x_input", target=example.target, layer=2)
        expected = shared(gradient.scores)[cues].sum()
        assert values(made, "grad_x_input", "cue_dot", layer=3)[number] == pytest.approx(expected, rel=1e-5)


def test_attention_rolled_out_to_each_layer_is_a_row_of_its_own(model: Any, gaps: list[Example]) -> None:
    made = run("vz-cue-alignment", model=model, data=gaps[:1], methods=["alti"], progress=False)
    trace, cues = traced(model, gaps[0])
    attention = mixlens.mix(trace, "attention").scores
    for layer in range(model.n_layers):
        expected = rolled_slowly(attention, layer, identity=True)[trace.query][cues].sum()
        assert values(made, "attention, rolled out", "cue_dot", layer=layer + 1) == pytest.approx([expected], rel=1e-5)
    assert values(made, "attention, rolled out", "cue_dot", layer=0) == []
    none = run("vz-cue-alignment", model=model, data=gaps[:1], methods=["alti"], rolled_out="", progress=False)
    assert {record.method for record in none.records} == {"alti"}


def test_options_of_gradients_and_cues(model: Any, gaps: list[Example]) -> None:
    asked: dict[str, Any] = {
        "model": model,
        "data": gaps[:1],
        "methods": ["grad_x_input"],
        "rolled_out": "",
        "progress": False,
    }
    trace, cues = traced(model, gaps[0])

    def dot(layer: int, **aim: Any) -> Any:
        return shared(mixlens.attribute(trace, "grad_x_input", layer=layer, **aim).scores)[cues].sum()

    left = run("vz-cue-alignment", states="leave", **asked)
    assert values(left, "grad_x_input", "cue_dot", layer=1) == pytest.approx([dot(1, target=gaps[0].target)], rel=1e-5)
    pair = run("vz-cue-alignment", gradients_of="pair", **asked)
    aim = {"target": gaps[0].target, "foil": gaps[0].foil}
    assert values(pair, "grad_x_input", "cue_dot", layer=1) == pytest.approx([dot(0, **aim)], rel=1e-5)
    for option, word in (
        ("states", "between"),
        ("identity", "sometimes"),
        ("gradients_of", "label"),
        ("pieces", "last"),
        ("signs", "both"),
    ):
        with pytest.raises(InputError, match=word):
            run("vz-cue-alignment", **asked, **{option: word})


@pytest.mark.parametrize(("identity", "added"), [("missing", False), ("always", True), ("never", False)])
def test_the_identity_is_added_in_a_rollout_as_asked(
    identity: str, added: bool, model: Any, gaps: list[Example]
) -> None:
    asked: dict[str, Any] = {"model": model, "data": gaps[:1], "methods": ["value_zeroing", "norm"], "progress": False}
    made = run("vz-cue-alignment", identity=identity, rolled_out="", **asked)
    trace, cues = traced(model, gaps[0])
    for method, with_identity in (("value_zeroing", added), ("norm", identity != "never")):
        whole = rolled_slowly(mixlens.mix(trace, method).scores, model.n_layers - 1, identity=with_identity)
        expected = whole[trace.query][cues].sum()
        assert values(made, method, "cue_dot", layer=0) == pytest.approx([expected], rel=1e-5)


def test_a_rollout_that_is_written_is_the_one_that_is_used(model: Any, gaps: list[Example]) -> None:
    methods = ["norm:rollout=globenc"]
    made = run("vz-cue-alignment", model=model, data=gaps[:1], methods=methods, rolled_out="", progress=False)
    trace, cues = traced(model, gaps[0])
    expected = cue_dot(mixlens.mix(trace, "norm").rollout("globenc").readout("[MASK]"), cues)
    assert values(made, methods[0], "cue_dot", layer=0) == pytest.approx([expected], rel=1e-5)


# --- faithfulness and accuracy ------------------------------------------------------------------------------------------


def test_faithfulness_of_blank_out_itself_is_one(model: Any, gaps: list[Example]) -> None:
    asked: dict[str, Any] = {"model": model, "data": gaps, "progress": False}
    itself = run("vz-faithfulness", methods=["blank_out:replacement=unk"], signs="signed", gradients_of="pair", **asked)
    assert values(itself, "blank_out:replacement=unk", "spearman") == pytest.approx([1.0] * 3)


def test_faithfulness_is_that_of_positive_scores(model: Any, gaps: list[Example]) -> None:
    made = run("vz-faithfulness", model=model, data=gaps, methods=["alti", "grad_x_input"], progress=False)
    for number, example in enumerate(gaps):
        trace = model.trace(example)
        blanked = mixlens.attribute(
            trace, "blank_out", target=example.target, foil=example.foil, replacement="unk"
        ).scores
        whole = rolled_slowly(mixlens.mix(trace, "alti").scores, model.n_layers - 1, identity=False)[trace.query]
        assert values(made, "alti", "spearman")[number] == pytest.approx(spearmanr(whole, blanked).statistic, abs=1e-6)
        gradient = mixlens.attribute(trace, "grad_x_input", target=example.target).scores
        expected = spearmanr(shared(gradient), blanked).statistic
        assert values(made, "grad_x_input", "spearman")[number] == pytest.approx(expected, abs=1e-6)
    by_layer = run("vz-faithfulness", model=model, data=gaps[:1], methods=["alti"], layers=True, progress=False)
    assert len(values(by_layer, "alti", "spearman")) == model.n_layers + 1


def test_accuracy_counts_targets_above_foils(model: Any, gaps: list[Example]) -> None:
    wrong = replace(gaps[0], target=gaps[0].foil, foil=gaps[0].target, id="wrong")
    made = run("vz-accuracy", model=[model, model], data=[*gaps, wrong], progress=False)
    right = []
    for example in (*gaps, wrong):
        trace = model.trace(example)
        logits = model.logits(trace)[trace.query]
        ids = [model.tokenizer.convert_tokens_to_ids(word) for word in (example.target, example.foil)]
        right.append(float(logits[ids[0]] > logits[ids[1]]))
    assert values(made, "pre-trained", "right") == values(made, "fine-tuned", "right") == right
    table = made.tables[0]
    assert [row[0] for row in table.rows] == ["pre-trained", "fine-tuned"]
    assert table.rows[0][2].mean == pytest.approx(np.mean(right))
    with pytest.raises(InputError, match="3 models have 2 names"):
        run("vz-accuracy", model=[model] * 3, data=gaps, progress=False)


# --- distances ----------------------------------------------------------------------------------------------------------


def test_distances_are_compared_with_the_first(model: Any, gaps: list[Example]) -> None:
    made = run("vz-distances", model=model, data=gaps[:2], methods=DISTANCES[:3], progress=False)
    assert values(made, DISTANCES[0], "like_the_first") == pytest.approx([1.0] * 2 * (model.n_layers + 1))
    trace = model.trace(gaps[0])
    maps = [
        mixlens.mix(trace, "value_zeroing", distance=name).readout("[MASK]", layer=1)
        for name in ("euclidean", "cosine")
    ]
    expected = spearman(*(one.scores for one in maps))
    assert values(made, DISTANCES[2], "like_the_first", layer=2)[0] == pytest.approx(expected, abs=1e-6)
    curves = [[np.mean(values(made, m, "cue_dot", layer=i + 1)) for i in range(model.n_layers)] for m in DISTANCES[:3]]
    pattern = next(table for table in made.tables if table.name == "pattern")
    assert [row[1] for row in pattern.rows] == pytest.approx(
        [spearmanr(curves[0], one).statistic for one in curves[1:]]
    )


# --- probing ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def probed(model: Any) -> tuple[Any, dict[str, list[Record]]]:
    """The setup of a small probing run and its records, by key."""
    used = known()["vz-probing"]
    some = tuple(fitting(list(data.load("agreement", n=60)), used, [model], None))
    options = {**used.options, "epochs": 12, "aligned": 5, "places": "gap,cue"}
    setup = Setup(used, (model,), some, ("random", "value_zeroing", "grad_x_input"), options)
    return setup, dict(used.measure(setup, list(some)))


def test_probing_goes_on_from_the_keys_that_are_done(model: Any, probed: Any) -> None:
    """The same records whether all is measured at once or the second half later."""
    setup, whole = probed
    keys = list(whole)
    assert keys[:2] == ["gap-0", "cue-0"]
    drawn = [int(key.removeprefix("alignment-")) for key in keys[-5:]]
    assert drawn == sorted(set(drawn)) != list(range(5))  # not the first ones: files are often sorted by task
    assert len(keys) == 2 * (model.n_layers + 1) + 5
    rest = dict(setup.experiment.measure(replace(setup, done=frozenset(keys[:7])), list(setup.examples)))
    assert list(rest) == keys[7:]
    assert all(rest[key] == whole[key] for key in rest)
    assert list(setup.experiment.measure(replace(setup, done=frozenset(keys)), list(setup.examples))) == []


def test_probing_is_compression_and_its_correlation_with_cue_alignment(model: Any, probed: Any) -> None:
    setup, whole = probed
    records = [record for unit in whole.values() for record in unit]
    tables = {table.name: table for table in setup.experiment.finish(setup, records)}
    gap = {layer: cell.mean for place, layer, cell in tables["compression"].rows if place == "gap"}
    assert gap[0] == pytest.approx(
        1.0, abs=0.15
    )  # the embedding of [MASK] is the same in every text, but for its place
    assert gap[model.n_layers] > gap[0]
    bits = curves_in(Measured(setup, records, [])).bits
    assert [1 / layer.mean() for layer in bits] == pytest.approx(
        list(gap.values()), rel=1e-4
    )  # records hold six digits
    depth = range(1, model.n_layers + 1)
    for method, cell, p in tables["follows"].rows:
        curve = [
            np.mean([r.value for r in records if r.method == method and r.info["layer"] == layer]) for layer in depth
        ]
        expected = spearmanr(curve, [gap[layer] for layer in depth]).statistic
        assert cell.mean == pytest.approx(expected)
        assert -1 <= cell.low <= cell.high <= 1
        assert 0 < p <= 1
    key = list(whole)[-1]
    trace, cues = traced(model, setup.examples[int(key.removeprefix("alignment-"))])
    row = mixlens.mix(trace, "value_zeroing").readout("[MASK]", layer=1)
    assert whole[key][model.n_layers + 1].value == pytest.approx(cue_dot(row, cues), rel=1e-6)


def test_probing_needs_a_number_and_leaves_out_what_has_none(model: Any) -> None:
    examples = list(data.load("agreement", n=45))
    unknown = replace(examples[0], id="unknown", info={k: v for k, v in examples[0].info.items() if k != "number"})
    asked: dict[str, Any] = {"model": model, "methods": ["random"], "epochs": 2, "aligned": 2, "progress": False}
    with pytest.raises(InputError, match="1 have no 'number'"):
        run("vz-probing", data=[*examples, unknown], **asked)
    made = run("vz-probing", data=[*examples, unknown], leave_out=True, **asked)
    assert made.setup.left_out == 1
    with pytest.raises(InputError, match="must name the gap"):
        run("vz-probing", data=examples, places="cue", **asked)
    with pytest.raises(InputError, match="2 or more"):
        run("vz-probing", data=examples, **{**asked, "aligned": 1})
    with pytest.raises(InputError, match="variant"):
        run("vz-probing", data=examples, variant="other", **asked)


def test_the_released_code_compresses_on_another_scale(model: Any) -> None:
    """Value Zeroing's code takes nats for bits: the uniform code itself compresses to about 1 / ln 2 = 1.44."""
    asked: dict[str, Any] = {"model": model, "methods": ["random"], "aligned": 2, "n": 200, "progress": False}
    made = run("vz-probing", variant="released", **asked)
    assert made.tables[0].rows[0][2].mean == pytest.approx(1.44, abs=0.1)


# --- curves over layers -------------------------------------------------------------------------------------------------


def test_agreement_counts_the_orders_that_do_as_well() -> None:
    same = agreement(np.array([1.0, 2.0, 4.0]), np.array([0.1, 0.2, 0.9]))
    assert (same.rho, same.p, same.layers) == (pytest.approx(1), pytest.approx(2 / 6), 3)
    five = agreement(np.arange(5.0), -np.arange(5.0))
    assert (five.rho, five.p, five.sign) == (pytest.approx(-1), pytest.approx(2 / 120), -1)
    many = agreement(np.arange(12.0), np.array([0, 2, 1, 3, 4, 5, 7, 6, 8, 9, 11, 10.0]))
    assert many.sign == 1
    assert many.p < 0.001
    assert np.isnan(agreement(np.ones(4), np.arange(4.0)).p)
    assert agreement(np.ones(4), np.arange(4.0)).sign == 0


def test_verdicts_on_agreement() -> None:
    up, down, unclear = Agreement(0.9, 0.01, 6), Agreement(-0.9, 0.01, 6), Agreement(0.9, 0.06, 6)
    assert verdict_on_agreement({"a": up}).word == SAME
    assert verdict_on_agreement({"a": up, "b": down}).word == DIFFERENT
    assert verdict_on_agreement({"a": down}, negative=True).word == SAME
    assert verdict_on_agreement({"a": up}, negative=True).word == DIFFERENT
    assert verdict_on_agreement({"a": up, "b": unclear}).word == UNDECIDED
    told = {
        4: "no rho",
        5: "only |rho| of 1.00 or more",
        6: "only |rho| of 0.89 or more",
        12: "only |rho| of 0.59 or more",
    }
    for layers, least in told.items():
        one = Agreement(0.1, 0.9, layers)
        assert verdict_on_agreement({"a": one}).reason == f"with {layers} layers {least} can be told from chance: a"
    assert verdict_on_agreement({}).word == INCOMPARABLE


def test_verdicts_on_draws() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, (3, 500))
    points = {"a": 0.9, "b": 0.0, "c": 0.85}
    draws = {name: value + noise[i] for i, (name, value) in enumerate(points.items())}
    assert verdict_on_draws(points, draws, [("a", "b")]).word == SAME
    assert verdict_on_draws(points, draws, [("b", "a")]).word == DIFFERENT
    assert verdict_on_draws(points, draws, [("a", "b"), ("a", "c")]).word == UNDECIDED
    assert verdict_on_draws(points, draws, [("a", "z")]).word == INCOMPARABLE
    still = {name: np.full(500, value) for name, value in points.items()}
    assert verdict_on_draws(points, still, [("a", "c")]).word == SAME  # nothing varies


# --- claims -------------------------------------------------------------------------------------------------------------

DEPTH, N = 6, 30
FIGURE_4 = next(item for item in PLANS.find("value-zeroing").items if item.where == "Figure 4")
SETUP = SimpleNamespace(seed=0, methods=METHODS, models=(None, None), options={"conditions": "pre-trained,fine-tuned"})
Level = Callable[[str, int], float]  # method and layer -> mean


def noisy(metric: str, level: Level, methods: Any = METHODS, depth: int = DEPTH) -> list[Record]:
    """Made-up records: N examples of each method and layer, 0 (over all) to `depth`, about a level."""
    noise = np.random.default_rng(1).normal(0, 0.02, (len(methods), depth + 1, N))
    return [
        Record(str(i), method, metric, level(method, layer) + noise[m, layer, i], {"layer": layer})
        for m, method in enumerate(methods)
        for layer in range(depth + 1)
        for i in range(N)
    ]


def words(name: str, records: list[Record], setup: Any = SETUP) -> list[str]:
    return [claim.check(setup, records, []).word for claim in known()[name].claims]


def as_published(method: str, layer: int) -> float:
    """Cue alignment as the paper has it."""
    if method in GRADIENTS:
        return 0.9 - 0.12 * layer
    if layer == 0 and method in ("globenc", "alti"):
        return 0.4
    return {"value_zeroing": 0.6, "norm": 0.35, "random": 0.25, "attention": 0.1}.get(method, 0.15)


def flipped(level: Level) -> Level:
    return lambda method, layer: 1 - level(method, layer)


def test_claims_of_cue_alignment_in_both_directions() -> None:
    def every(level: Level) -> list[Record]:
        lower = noisy("probes_needed", flipped(level))
        return [*noisy("cue_dot", level), *noisy("cue_average_precision", level), *lower]

    assert words("vz-cue-alignment", every(as_published)) == [SAME] * 11
    assert words("vz-cue-alignment", every(flipped(as_published))) == [DIFFERENT] * 11
    assert words("vz-cue-alignment", noisy("cue_dot", as_published, ("transatt",))) == [INCOMPARABLE] * 11


def test_one_layer_in_which_another_map_is_better_is_against_the_claim() -> None:
    def but_one(method: str, layer: int) -> float:
        return 0.9 if (method, layer) == ("norm", 3) else as_published(method, layer)

    assert words("vz-cue-alignment", noisy("cue_dot", but_one))[0] == DIFFERENT
    probes = words("vz-cue-alignment", noisy("probes_needed", flipped(but_one)))
    assert (probes[2], words("vz-cue-alignment", noisy("probes_needed", flipped(as_published)))[2]) == (DIFFERENT, SAME)


def test_attention_rolled_out_is_one_of_the_rivals() -> None:
    """Section 4.3 lists Attn-rollout; its records are of the option rolled_out, and it has no value over all layers."""

    def but_one(method: str, layer: int) -> float:
        return 0.9 if (method, layer) == (ATTENTION_ROLLED, 3) else as_published(method, layer)

    methods = (*METHODS, ATTENTION_ROLLED)
    assert words("vz-cue-alignment", noisy("cue_dot", as_published, methods))[0] == SAME
    (claim, *_) = known()["vz-cue-alignment"].claims
    verdict = claim.check(SETUP, noisy("cue_dot", but_one, methods), [])
    assert (verdict.word, verdict.ours.count(ATTENTION_ROLLED)) == (DIFFERENT, 1)
    assert known()["vz-cue-alignment"].options["rolled_out"] == "attention"


def test_good_layerwise_scores_of_one_of_both_are_against_the_claim() -> None:
    def one_is_good(method: str, layer: int) -> float:
        return 0.5 if method == "alti" and layer > 0 else as_published(method, layer)

    told = "Without rollout GlobEnc and ALTI do not give good scores"
    (claim,) = [claim for claim in known()["vz-cue-alignment"].claims if claim.says.startswith(told)]
    verdict = claim.check(SETUP, noisy("cue_dot", one_is_good), [])
    assert (verdict.word, verdict.reason) == (DIFFERENT, "the other way round: norm - alti")


def test_gradients_fall_with_every_layer() -> None:
    """Layer 1 above all others is not enough, where the cue's share rises from there on."""

    def late(method: str, layer: int) -> float:
        return as_published(method, layer) if method not in GRADIENTS else 0.9 if layer == 1 else 0.05 * layer

    assert words("vz-cue-alignment", noisy("cue_dot", late))[-2:] == [DIFFERENT, DIFFERENT]


def test_one_step_of_one_gradient_is_against_the_monotonic_rise() -> None:
    """The cue's share falls with depth on the whole, but layer 4 of DeepLift is above layer 3."""

    def one_step(method: str, layer: int) -> float:
        return as_published(method, layer) + 0.2 * ((method, layer) == ("deeplift", 4))

    verdict = known()["vz-cue-alignment"].claims[-1].check(SETUP, noisy("cue_dot", one_step), [])
    assert verdict.word == DIFFERENT
    assert verdict.reason == "the other way round: layer 3, deeplift - deeplift in the next"


def test_claims_of_faithfulness_in_both_directions() -> None:
    def level(method: str, layer: int) -> float:
        return {"value_zeroing": 0.3, "random": 0.0, "attention": -0.1}.get(method, 0.1)

    assert words("vz-faithfulness", noisy("spearman", level)) == [SAME] * 3
    assert words("vz-faithfulness", noisy("spearman", lambda m, i: -level(m, i))) == [DIFFERENT] * 3
    equal = words(
        "vz-faithfulness", noisy("spearman", lambda m, i: 0.2 if m == "deeplift" else 0.2 * (m == "value_zeroing"))
    )
    assert equal[0] == UNDECIDED
    assert words("vz-faithfulness", []) == [INCOMPARABLE] * 3


def test_the_claim_of_accuracy_in_both_directions() -> None:
    def right(share: float, condition: str) -> list[Record]:
        return [Record(str(i), condition, "right", float(i < share * N), {"task": ""}) for i in range(N)]

    assert words("vz-accuracy", right(0.5, "pre-trained") + right(0.9, "fine-tuned")) == [SAME]
    assert words("vz-accuracy", right(0.9, "pre-trained") + right(0.5, "fine-tuned")) == [DIFFERENT]
    alone = SimpleNamespace(seed=0, models=(None,), options=SETUP.options)
    assert words("vz-accuracy", right(0.9, "pre-trained"), alone) == [INCOMPARABLE]


def test_claims_of_distances_in_both_directions() -> None:
    setup = SimpleNamespace(seed=0, methods=DISTANCES)

    def rising(method: str, layer: int) -> float:
        return 0.1 * layer

    def other(method: str, layer: int) -> float:
        return 0.1 * (layer if method == DISTANCES[0] else DEPTH - layer)

    assert words("vz-distances", noisy("cue_dot", rising, DISTANCES), setup) == [SAME, SAME]
    assert words("vz-distances", noisy("cue_dot", other, DISTANCES), setup)[1] == DIFFERENT
    far = noisy("cue_dot", lambda m, i: 0.1 * i + 0.2 * m.endswith("true"), DISTANCES)
    assert words("vz-distances", far, setup) == [DIFFERENT, SAME]


def probing_records(level: Level, bits: Callable[[int], float], depth: int) -> list[Record]:
    noise = np.random.default_rng(2).normal(0, 0.01, (depth + 1, N))
    info = {"low": 1.0, "high": 1.0, "std": 0.0, "n": N}
    coded = [
        Record(
            "all",
            "gap",
            "compression",
            1 / bits(layer),
            {**info, "layer": layer, "bits": list(bits(layer) + noise[layer])},
        )
        for layer in range(depth + 1)
    ]
    return [*coded, *noisy("cue_dot", level, depth=depth)]


def test_claims_of_probing_in_both_directions() -> None:
    depth = 12

    def level(method: str, layer: int) -> float:
        slope = 0.05 if method == "value_zeroing" else -0.05 if method in GRADIENTS else 0.0
        peak = 0.3 * (method == "value_zeroing" and layer in (4, 9))
        return 0.5 + slope * layer + peak + (0.0 if slope else 0.2 * (layer % 3))

    def bits(layer: int) -> float:
        return 0.9 - 0.02 * layer - 0.1 * (layer >= 4) - 0.1 * (layer >= 9)

    assert words("vz-probing", probing_records(level, bits, depth)) == [SAME] * 7
    against = words("vz-probing", probing_records(level, lambda layer: 1.8 - bits(layer), depth))
    assert against == [*[DIFFERENT] * 6, SAME]
    short = words("vz-probing", probing_records(level, bits, 4))
    assert short[0] == UNDECIDED  # four layers cannot tell
    assert short[-2:] == [INCOMPARABLE, INCOMPARABLE]


def test_alignment_at_the_layers_of_the_jumps_is_that_of_both() -> None:
    """Layer 4 and layer 9 are each compared with the other ten: one alone is against the claim; so many layers must there be."""

    def records(peaks: tuple[int, ...], depth: int = 12) -> list[Record]:
        def level(method: str, layer: int) -> float:
            return 0.7 if layer in peaks else 0.2 if layer in (4, 9) else 0.4

        return probing_records(level, lambda layer: 0.9, depth)

    def word(some: list[Record]) -> str:
        return words("vz-probing", some)[-1]

    assert [word(records(peaks)) for peaks in ((4, 9), (4,), (9,), (3, 8))] == [SAME, DIFFERENT, DIFFERENT, DIFFERENT]
    assert word(records((4, 9), 6)) == INCOMPARABLE
    assert word([one for one in records((4, 9)) if one.method != "value_zeroing"]) == INCOMPARABLE


# --- tables, figures, the plan ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vz-cue-alignment", "vz-faithfulness", "vz-distances", "vz-accuracy"])
def test_tables_and_figures_come_from_records_alone(name: str, model: Any, gaps: list[Example]) -> None:
    """`finish` twice gives the same and leaves the records as they were; so does the figure."""
    used = known()[name]
    made = run(name, model=model, data=gaps[:2], methods=used.methods[:3], progress=False)
    before = [(r.example, r.method, r.metric, r.value, dict(r.info)) for r in made.records]
    again = used.finish(made.setup, made.records)
    assert [(t.csv, t.markdown) for t in again] == [(t.csv, t.markdown) for t in made.tables[: len(again)]]
    assert [(r.example, r.method, r.metric, r.value, dict(r.info)) for r in made.records] == before
    assert running.drawn(made)["svg"] == running.drawn(made)["svg"]
    assert isinstance(made.tables[0], Table)


def methods_in(command: str) -> list[str]:
    return command.partition("--method ")[2].split()[0].split(",")


def test_figures_of_the_plan_are_rolled_out_as_table_3_is(model: Any, gaps: list[Example]) -> None:
    """Figures A.6 to A.18 and 4: each command's map, rolled out, has the row that the experiment of Table 3 has."""
    commands = {item.where: item.command for item in PLANS.find("value-zeroing").items}
    trace, query = model.trace(gaps[0]), model.trace(gaps[0]).query
    written = {}
    for i in range(5, 18, 2):
        single, after = commands[f"Figure A.{i}"], commands[f"Figure A.{i + 1}"]
        assert ("--rollout" in single, "--rollout" in after) == (False, True)
        written[methods_in(single)[0]] = methods_in(after)[0]
    assert tuple(written) == (*RIVALS, "value_zeroing")
    for single, after in written.items():
        request = parse_method(after)
        drawn = mixlens.mix(trace, request.name).rollout(request.rollout).readout(query)
        table3 = rolled_out(mixlens.mix(trace, single), parse_method(single), query)
        # One row is multiplied through the layers there, whole maps here, in float32.
        np.testing.assert_allclose(drawn.scores, table3.scores, rtol=1e-4, atol=1e-6)
    whole = commands["Figure 4"]
    assert [one for one in methods_in(whole) if parse_method(one).is_map] == list(written.values())
    assert "--target were" in whole
    assert "--foil" not in whole  # gradients of the target alone (section 4.3)
    assert "--target were --foil is" in commands["Figure 4, blank-out"]  # among the two (section 7)


def test_gradients_of_figure_4_are_absolute_where_they_can_be() -> None:
    gradients = [parse_method(one) for one in methods_in(FIGURE_4.command) if not parse_method(one).is_map]
    assert [(one.name, one.options) for one in gradients] == [
        ("grad_x_input", {"absolute": True}),
        ("integrated_gradients", {"absolute": True}),
        ("deeplift", {}),
    ]
    with pytest.raises(InputError, match="absolute"):
        parse_method("deeplift:absolute=true")  # the item says that DL keeps its signs


@pytest.mark.parametrize("name", ["vz-cue-alignment", "vz-probing", "vz-faithfulness"])
def test_what_is_our_choice_about_gradients_is_said(name: str) -> None:
    declared = known()[name]
    (said,) = [one for one in declared.differs if "absolute values" in one]
    assert (declared.options["signs"], declared.options["gradients_of"]) == ("absolute", "target")
    assert all(words in said for words in ("option signs", "target word's logit", "gradients_of=pair"))


def test_published_numbers_are_of_methods_that_run() -> None:
    for name in ("vz-faithfulness", "vz-probing"):
        for one in known()[name].published:
            if one.keys == 1:
                assert tuple(one.numbers) == METHODS
    assert set(RIVALS) < set(METHODS)


def test_the_plan_names_experiments_roles_and_options_that_exist() -> None:
    plan = PLANS.find("value-zeroing")
    for step in plan.steps:
        declared = known()[step.experiment]
        assert {*step.options, *step.fast_options} <= set(declared.options)
        assert all(plan.role(role) for role in step.models)
        assert step.data in data.DATASETS
    steps = {step.name for step in plan.steps}
    assert all(set(item.steps) <= steps for item in plan.items)
    assert {name for item in plan.items for name in item.steps} == steps  # every run is of an item of the paper
    wheres = [item.where for item in plan.items]
    assert {f"Figure A.{i}" for i in range(1, 19)} <= set(wheres)
    assert {"Table 1", "Table 2", "Table 3", "Figure 1", "Figure 2", "Figure 3", "Figure 4"} <= set(wheres)
