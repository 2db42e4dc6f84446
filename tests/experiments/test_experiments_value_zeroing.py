"""Value Zeroing's experiments: each number against one computed apart, rollouts written out, verdicts on curves."""

# ruff: noqa: F811
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from outcomes import LETTERS, table, values
from scipy import stats
from tiny_models import gap_model, gaps, model  # noqa: F401

import mixlens
from mixlens import data, metrics
from mixlens.base import errors
from mixlens.papers.value_zeroing import cues, main, probing
from mixlens.runs.experiments import Setup, claims, known, layer_curves, plan, prepare, run
from mixlens.scoring import asking


def made(name: str, model: Any, some: list[Any], *methods: str, **options: Any) -> Any:
    return run(name, model=model, data=some, methods=list(methods) or None, progress=False, **options)


def traced(model: Any, example: Any) -> tuple[Any, Any]:
    """The trace and the cue vector."""
    trace = model.trace(example)
    return trace, metrics.arguments.marks_at(data.cue_tokens(example, trace), len(trace))


def shared(scores: Any) -> Any:
    """Section 4.3: positive values that sum to one."""
    absolute = np.abs(np.asarray(scores, dtype=np.float64))
    return absolute / absolute.sum()


def rolled_slowly(maps: Any, layer: int, *, identity: bool) -> Any:
    """Rows to 1, the identity added or not, rows to 1 again, last layer on the left. [query key]"""
    product = None
    for one in np.asarray(maps.scores, dtype=np.float64)[: layer + 1]:
        matrix = one / one.sum(-1, keepdims=True)
        matrix = (matrix + np.eye(len(matrix))) / 2 if identity else matrix
        product = matrix if product is None else matrix @ product
    return product


# --- cue alignment ----------------------------------------------------------------------------------------------------


def test_cue_alignment_is_that_of_every_layer_and_of_all(gap_model: Any, gaps: list[Any]) -> None:
    outcome = made("vz-cue-alignment", gap_model, gaps, "norm", "value_zeroing", "grad_x_input")
    for number, example in enumerate(gaps):
        trace, marks = traced(gap_model, example)
        scores = mixlens.mix(trace, "value_zeroing")
        for layer in range(gap_model.n_layers):
            row = scores.readout("[MASK]", layer=layer)
            for name in ("cue_dot", "cue_average_precision", "probes_needed"):
                expected = getattr(metrics.alignment, name)(row, marks)
                assert values(outcome, "value_zeroing", name, layer=layer + 1)[number] == pytest.approx(
                    expected, rel=1e-6
                )
        gradient = mixlens.attribute(trace, "grad_x_input", target=example.target, layer=2)
        expected = shared(gradient.scores)[marks].sum()
        assert values(outcome, "grad_x_input", "cue_dot", layer=3)[number] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("identity", "added"), [("missing", False), ("always", True), ("never", False)])
def test_the_identity_is_added_in_a_rollout_as_asked(
    identity: str, added: bool, gap_model: Any, gaps: list[Any]
) -> None:
    """And attention, rolled out to each layer, is a method of its own: of single layers, and none over all."""
    methods, trace_and_cues = ("value_zeroing", "norm"), traced(gap_model, gaps[0])
    outcome = made("vz-cue-alignment", gap_model, gaps[:1], *methods, identity=identity)
    trace, marks = trace_and_cues
    last, everywhere = gap_model.n_layers - 1, {"value_zeroing": added, "norm": identity != "never"}
    for method, with_identity in everywhere.items():
        whole = rolled_slowly(mixlens.mix(trace, method), last, identity=with_identity)[trace.query][marks].sum()
        # The model computes in float32, and one row is multiplied through the layers in place of all of them.
        assert values(outcome, method, "cue_dot", layer=0) == pytest.approx([whole], rel=1e-5)
    attention = mixlens.mix(trace, "attention")
    for layer in range(gap_model.n_layers):
        whole = rolled_slowly(attention, layer, identity=identity != "never")[trace.query][marks].sum()
        assert values(outcome, cues.ATTENTION_ROLLED, "cue_dot", layer=layer + 1) == pytest.approx([whole], rel=1e-5)
    assert values(outcome, cues.ATTENTION_ROLLED, "cue_dot", layer=0) == []


def test_a_rollout_that_is_written_is_the_one_that_is_used(gap_model: Any, gaps: list[Any]) -> None:
    written = "norm:rollout=globenc"
    outcome = made("vz-cue-alignment", gap_model, gaps[:1], written, rolled_out="")
    trace, marks = traced(gap_model, gaps[0])
    expected = metrics.alignment.cue_dot(mixlens.mix(trace, "norm").rollout("globenc").readout("[MASK]"), marks)
    assert values(outcome, written, "cue_dot", layer=0) == pytest.approx([expected], rel=1e-5)
    assert {record.method for record in outcome.records} == {written}


def test_options_of_gradients(gap_model: Any, gaps: list[Any]) -> None:
    trace, marks = traced(gap_model, gaps[0])
    pair = {"target": gaps[0].target, "foil": gaps[0].foil}
    for options, aim in (
        ({"states": "leave"}, {"target": gaps[0].target, "layer": 1}),
        ({"gradients_of": "pair"}, {**pair, "layer": 0}),
    ):
        outcome = made("vz-cue-alignment", gap_model, gaps[:1], "grad_x_input", rolled_out="", **options)
        expected = shared(mixlens.attribute(trace, "grad_x_input", **aim).scores)[marks].sum()
        assert values(outcome, "grad_x_input", "cue_dot", layer=1) == pytest.approx([expected], rel=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("vz-cue-alignment", {"states": "between"}, "between"),
        ("vz-cue-alignment", {"identity": "sometimes"}, "sometimes"),
        ("vz-cue-alignment", {"gradients_of": "label"}, "label"),
        ("vz-cue-alignment", {"pieces": "last"}, "last"),
        ("vz-cue-alignment", {"signs": "both"}, "both"),
        ("vz-probing", {"places": "cue"}, "must name the gap"),
        ("vz-probing", {"aligned": 1}, "2 or more"),
        ("vz-probing", {"variant": "other"}, "variant"),
        ("vz-probing", {}, "needs 40 examples or more"),
        ("vz-accuracy", {"conditions": ""}, "1 models have 0 names"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], told: str, gap_model: Any, gaps: list[Any]) -> None:
    with pytest.raises(errors.InputError, match=told):
        made(name, gap_model, gaps, *(["grad_x_input"] if name != "vz-accuracy" else []), **options)


# --- faithfulness, accuracy, distances --------------------------------------------------------------------------------


def test_faithfulness_is_that_of_positive_scores(gap_model: Any, gaps: list[Any]) -> None:
    outcome = made("vz-faithfulness", gap_model, gaps, "alti", "grad_x_input")
    for number, example in enumerate(gaps):
        trace, aim = gap_model.trace(example), {"target": example.target}
        blanked = mixlens.attribute(trace, "blank_out", foil=example.foil, replacement="unk", **aim).scores
        whole = rolled_slowly(mixlens.mix(trace, "alti"), gap_model.n_layers - 1, identity=False)[trace.query]
        gradient = shared(mixlens.attribute(trace, "grad_x_input", **aim).scores)
        for method, scores in (("alti", whole), ("grad_x_input", gradient)):
            expected = stats.spearmanr(scores, blanked).statistic
            assert values(outcome, method, "spearman")[number] == pytest.approx(expected, abs=1e-6)
    layers = made("vz-faithfulness", gap_model, gaps[:1], "alti", layers=True)
    assert len(values(layers, "alti", "spearman")) == gap_model.n_layers + 1
    written, signed = "blank_out:replacement=unk", {"signs": "signed", "gradients_of": "pair"}
    itself = made("vz-faithfulness", gap_model, gaps, written, **signed)
    assert values(itself, written, "spearman") == pytest.approx([1.0] * 3)


def test_accuracy_counts_targets_above_foils(gap_model: Any, gaps: list[Any]) -> None:
    wrong = replace(gaps[0], target=gaps[0].foil, foil=gaps[0].target, id="wrong")
    outcome = run("vz-accuracy", model=[gap_model, gap_model], data=[*gaps, wrong], progress=False)
    right = []
    for example in (*gaps, wrong):
        trace = gap_model.trace(example)
        logits = gap_model.logits(trace)[trace.query]
        target, foil = (gap_model.tokenizer.convert_tokens_to_ids(word) for word in (example.target, example.foil))
        right.append(float(logits[target] > logits[foil]))
    for row in outcome.tables[0].rows:
        assert values(outcome, row[0], "right") == right
        assert row[2].mean == pytest.approx(np.mean(right))


def test_distances_are_compared_with_the_first(gap_model: Any, gaps: list[Any]) -> None:
    names = cues.DISTANCES[:3]
    outcome = made("vz-distances", gap_model, gaps[:2], *names)
    assert values(outcome, names[0], "like_the_first") == pytest.approx([1.0] * 2 * (gap_model.n_layers + 1))
    trace = gap_model.trace(gaps[0])
    maps = [mixlens.mix(trace, "value_zeroing", distance=name) for name in ("euclidean", "cosine")]
    expected = metrics.agreement.spearman(*(one.readout("[MASK]", layer=1).scores for one in maps))
    assert values(outcome, names[2], "like_the_first", layer=2)[0] == pytest.approx(expected, abs=1e-6)
    layers = range(1, gap_model.n_layers + 1)
    curves = [[np.mean(values(outcome, name, "cue_dot", layer=layer)) for layer in layers] for name in names]
    correlations = [stats.spearmanr(curves[0], one).statistic for one in curves[1:]]
    assert table(outcome, "pattern").column("spearman over layers") == pytest.approx(correlations)


# --- probing ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def probed(gap_model: Any) -> tuple[Any, dict[str, list[Any]]]:
    """The setup of a small probing run and its records, by key."""
    used = known()["vz-probing"]
    some = tuple(prepare.fitting(list(data.load("agreement", n=60)), used, [gap_model], None))
    options = {**used.options, "epochs": 12, "aligned": 5, "places": "gap,cue"}
    setup = Setup(used, (gap_model,), some, ("random", "value_zeroing", "grad_x_input"), options)
    return setup, dict(used.measure(setup, list(some)))


def test_probing_goes_on_from_the_keys_that_are_done(gap_model: Any, probed: Any) -> None:
    """The same records whether all is measured at once or the second half later."""
    setup, whole = probed
    keys = list(whole)
    assert keys[:2] == ["gap-0", "cue-0"]
    drawn = [int(key.removeprefix("alignment-")) for key in keys[-5:]]
    assert drawn == sorted(set(drawn)) != list(range(5))  # not the first ones: files are often sorted by task
    assert len(keys) == 2 * (gap_model.n_layers + 1) + 5
    for done in (7, len(keys)):
        again = replace(setup, done=frozenset(keys[:done]))
        rest = dict(setup.experiment.measure(again, list(setup.examples)))
        assert rest == {key: whole[key] for key in keys[done:]}


def test_probing_is_compression_and_its_correlation_with_cue_alignment(gap_model: Any, probed: Any) -> None:
    setup, whole = probed
    records = [record for unit in whole.values() for record in unit]
    outcome = claims.Measured(setup, records, setup.experiment.finish(setup, records))
    gap = {layer: cell.mean for place, layer, cell in table(outcome, "compression").rows if place == "gap"}
    assert gap[0] == pytest.approx(1.0, abs=0.15)  # the embedding of [MASK] is the same, but for its place
    assert gap[gap_model.n_layers] > gap[0]
    bits = probing.curves_in(outcome).bits
    assert [1 / layer.mean() for layer in bits] == pytest.approx(list(gap.values()), rel=1e-4)  # six digits are kept
    layers = range(1, gap_model.n_layers + 1)
    for method, cell, p in table(outcome, "follows").rows:
        curve = [np.mean(list(outcome[method, "cue_dot", layer].values())) for layer in layers]
        assert cell.mean == pytest.approx(stats.spearmanr(curve, [gap[layer] for layer in layers]).statistic)
        assert -1 <= cell.low <= cell.high <= 1
        assert 0 < p <= 1
    key = list(whole)[-1]
    trace, marks = traced(gap_model, setup.examples[int(key.removeprefix("alignment-"))])
    expected = metrics.alignment.cue_dot(mixlens.mix(trace, "value_zeroing").readout("[MASK]", layer=1), marks)
    assert whole[key][gap_model.n_layers + 1].value == pytest.approx(expected, rel=1e-6)


def test_probing_leaves_out_what_has_no_number(gap_model: Any) -> None:
    examples = list(data.load("agreement", n=45))
    unknown = replace(examples[0], id="unknown", info={k: v for k, v in examples[0].info.items() if k != "number"})
    asked: dict[str, Any] = {"epochs": 2, "aligned": 2}
    with pytest.raises(errors.InputError, match="1 have no 'number'"):
        made("vz-probing", gap_model, [*examples, unknown], "random", **asked)
    outcome = made("vz-probing", gap_model, [*examples, unknown], "random", leave_out=True, **asked)
    assert outcome.setup.left_out == 1


def test_the_released_code_compresses_on_another_scale(gap_model: Any) -> None:
    """Value Zeroing's code takes nats for bits: the uniform code itself compresses to about 1 / ln 2 = 1.44."""
    examples = list(data.load("agreement", n=200))
    outcome = made("vz-probing", gap_model, examples, "random", variant="released", aligned=2)
    assert outcome.tables[0].rows[0][2].mean == pytest.approx(1.44, abs=0.1)


# --- curves over layers -----------------------------------------------------------------------------------------------


def test_agreement_counts_the_orders_that_do_as_well() -> None:
    for one, other, rho, p, sign in (
        ([1.0, 2.0, 4.0], [0.1, 0.2, 0.9], 1, 2 / 6, 0),
        (np.arange(5.0), -np.arange(5.0), -1, 2 / 120, -1),
        (np.ones(4), np.arange(4.0), np.nan, np.nan, 0),
    ):
        found = layer_curves.agreement(np.array(one), np.array(other))
        assert (found.rho, found.p) == pytest.approx((rho, p), nan_ok=True)
        assert (found.sign, found.layers) == (sign, len(one))
    many = layer_curves.agreement(np.arange(12.0), np.array([0, 2, 1, 3, 4, 5, 7, 6, 8, 9, 11, 10.0]))
    assert (many.sign, many.p < 0.001) == (1, True)


@pytest.mark.parametrize(
    ("rhos", "negative", "letter"),
    [
        ({"a": (0.9, 0.01)}, False, "S"),
        ({"a": (0.9, 0.01), "b": (-0.9, 0.01)}, False, "D"),
        ({"a": (-0.9, 0.01)}, True, "S"),
        ({"a": (0.9, 0.01)}, True, "D"),
        ({"a": (0.9, 0.06)}, False, "U"),
        ({}, False, "-"),
    ],
)
def test_verdicts_on_agreement(rhos: dict[str, tuple[float, float]], negative: bool, letter: str) -> None:
    curves = {name: layer_curves.Agreement(rho, p, 6) for name, (rho, p) in rhos.items()}
    assert LETTERS[layer_curves.verdict_on_agreement(curves, negative=negative).word] == letter


@pytest.mark.parametrize(
    ("layers", "least"), [(4, "no rho"), (5, "only |rho| of 1.00 or more"), (12, "only |rho| of 0.59 or more")]
)
def test_the_smallest_rho_that_can_be_told_from_chance(layers: int, least: str) -> None:
    one = layer_curves.Agreement(0.1, 0.9, layers)
    told = layer_curves.verdict_on_agreement({"a": one}).reason
    assert told == f"with {layers} layers {least} can be told from chance: a"


def test_verdicts_on_draws() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, (3, 500))
    points = {"a": 0.9, "b": 0.0, "c": 0.85}
    draws = {name: value + noise[i] for i, (name, value) in enumerate(points.items())}
    still = {name: np.full(500, value) for name, value in points.items()}
    for drawn, pairs, letter in (
        (draws, [("a", "b")], "S"),
        (draws, [("b", "a")], "D"),
        (draws, [("a", "b"), ("a", "c")], "U"),
        (draws, [("a", "z")], "-"),
        (still, [("a", "c")], "S"),  # nothing varies
    ):
        assert LETTERS[layer_curves.verdict_on_draws(points, drawn, pairs).word] == letter


# --- the plan ---------------------------------------------------------------------------------------------------------


def methods_in(command: str) -> list[str]:
    return command.partition("--method ")[2].split()[0].split(",")


def test_figures_of_the_plan_are_rolled_out_as_table_3_is(gap_model: Any, gaps: list[Any]) -> None:
    """Figures A.6 to A.18 and 4: each command's map, rolled out, has the row that the experiment of Table 3 has."""
    commands = {item.where: item.command for item in plan.PLANS.find("value-zeroing").items}
    trace = gap_model.trace(gaps[0])
    written = {}
    for i in range(5, 18, 2):
        single, after = commands[f"Figure A.{i}"], commands[f"Figure A.{i + 1}"]
        assert ("--rollout" in single, "--rollout" in after) == (False, True)
        written[methods_in(single)[0]] = methods_in(after)[0]
    assert tuple(written) == (*main.RIVALS, "value_zeroing")
    for single, after in written.items():
        request = asking.parse_method(after)
        drawn = mixlens.mix(trace, request.name).rollout(request.rollout).readout(trace.query)
        table3 = main.rolled_out(mixlens.mix(trace, single), asking.parse_method(single), trace.query)
        # One row is multiplied through the layers there, whole maps here, in float32.
        np.testing.assert_allclose(drawn.scores, table3.scores, rtol=1e-4, atol=1e-6)
    requests = {one: asking.parse_method(one) for one in methods_in(commands["Figure 4"])}
    assert [one for one, request in requests.items() if request.is_map] == list(written.values())
    gradients = [(one.name, one.options.get("absolute")) for one in requests.values() if not one.is_map]
    assert gradients == [("grad_x_input", True), ("integrated_gradients", True), ("deeplift", None)]
    assert "--foil" not in commands["Figure 4"]  # gradients of the target alone (section 4.3)
    assert "--target were --foil is" in commands["Figure 4, blank-out"]  # among the two (section 7)
