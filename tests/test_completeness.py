"""Scores that have to add up do: steps are added until they do, the gap is told, and what stays open is warned of."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import DISTINCT, SHARED, head_of, hf_model, ids, loaded, needs_shared

import mixlens
from mixlens.methods import _quadrature as quadrature
from mixlens.methods import integrated
from mixlens.scoring import attributions, completeness

CAUSAL_HEAD = "AutoModelForCausalLM"
TEXT = "Once upon a time, there was a little girl named Lily. She loved to"


# --- nodes ---


@pytest.mark.parametrize("count", [*range(1, 13), 50, 51, 100, 201])
def test_nodes_and_weights_are_numpys(count: int) -> None:
    """numpy's are eigenvalues of a matrix with as many rows; ours are as exact as the last digits of both (some
    1e-14)."""
    theirs, weights = np.polynomial.legendre.leggauss(count)
    points, ours = quadrature.gauss_legendre(count)
    np.testing.assert_allclose(points, (theirs + 1) / 2, rtol=0, atol=1e-15)
    np.testing.assert_allclose(ours, weights / 2, rtol=0, atol=1e-14)


@pytest.mark.parametrize("count", [3000, 10_000, 10_001, 25_000])
def test_many_nodes_integrate_what_few_cannot(count: int) -> None:
    """sin(2000 t) has some 640 turns between 0 and 1. 1e-12: rounding of some 10^4 terms."""
    points, weights = quadrature.gauss_legendre(count)
    assert len(points) == len(weights) == count
    assert bool((np.diff(points) > 0).all())
    assert 0 < points[0] < points[-1] < 1
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
    assert float(weights @ np.sin(2000 * points)) == pytest.approx((1 - np.cos(2000)) / 2000, abs=1e-12)


def test_a_million_nodes_need_no_matrix() -> None:
    """As a matrix they would take 7 TiB, so that this raises MemoryError where one is made."""
    points, weights = integrated.nodes(integrated.MOST_STEPS, "gauss_legendre")
    assert points.shape == weights.shape == (1_000_000,)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-10)


def test_the_integral_up_to_each_node_is_exact_for_a_polynomial() -> None:
    points, weights = quadrature.gauss_legendre(6)
    np.testing.assert_allclose(quadrature.integral_up_to(points, weights, 5 * points**4), points**5, rtol=0, atol=1e-14)
    np.testing.assert_allclose(quadrature.integral_up_to(points, weights, np.ones(6)), points, rtol=0, atol=1e-14)


@pytest.mark.parametrize("option", ["steps", "chunk", "most_steps"])
def test_numbers_out_of_bounds_are_refused(option: str) -> None:
    trace = loaded("bert", head="AutoModelForSequenceClassification").trace(input_ids=ids(4))
    for value in (0, -3, 1_000_001):
        with pytest.raises(
            mixlens.MixlensError, match=rf"{option} must be at least 1 and at most 1,000,000, not {value}"
        ):
            attributions.attribute(trace, "integrated_gradients", **{option: value})
    for value in (0.0, -1.0, float("nan")):
        with pytest.raises(mixlens.MixlensError, match="tolerance must be above 0"):
            attributions.attribute(trace, "integrated_gradients", tolerance=value)


# --- steps are added until the sum closes ---


def abrupt(dtype: torch.dtype = torch.float32, eps: float = 1e-6) -> Any:
    """A Llama whose norms do not see how long the embeddings are until they are nearly zero."""
    model = copy.deepcopy(hf_model("llama", head=CAUSAL_HEAD))  # the original is shared
    with torch.no_grad():
        for name, module in model.named_modules():
            if hasattr(module, "variance_epsilon"):
                module.variance_epsilon = eps
            if name.endswith(("q_proj", "k_proj")):
                module.weight.mul_(3)
    return mixlens.load(model.to(dtype))


def test_a_path_that_is_abrupt_near_the_baseline_gets_the_steps_it_needs() -> None:
    trace = abrupt().trace(input_ids=ids(8))
    with pytest.warns(
        completeness.IncompleteWarning,
        match=r"integrated_gradients: the scores add up to .* off, in float32\) after 50 steps",
    ):
        few = attributions.attribute(trace, "integrated_gradients", steps=50, baseline="zero")
    assert few.info["completeness"]["relative_gap"] > 0.05
    assert few.info["steps"] == 50
    read = attributions.attribute(trace, "integrated_gradients", baseline="zero")
    assert 50 < read.info["steps"] <= 2000
    assert read.info["completeness"]["relative_gap"] <= completeness.CLOSED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", completeness.IncompleteWarning)
        many = attributions.attribute(trace, "integrated_gradients", steps=4000, baseline="zero")
    assert many.info["completeness"]["relative_gap"] < 1e-3
    # Each token's score, not their sum alone, is within the tolerance of that of 4,000 steps.
    assert float((read.scores - many.scores).abs().max()) < 2 * completeness.CLOSED * abs(many.info["difference"])


def test_steps_that_suffice_are_not_added_to() -> None:
    """And the numbers are those of 50 steps, to the last bit: what was published with them stands."""
    trace = mixlens.load("sentiment").trace("The plot was dull but the acting was brilliant.")
    read, exactly = (
        attributions.attribute(trace, "integrated_gradients"),
        attributions.attribute(trace, "integrated_gradients", steps=50),
    )
    assert read.info["steps"] == exactly.info["steps"] == 50
    assert torch.equal(read.scores, exactly.scores)
    assert read.info["completeness"]["relative_gap"] < 1e-4


def test_steps_end_at_their_bound_and_that_is_warned_of() -> None:
    trace = abrupt().trace(input_ids=ids(8))
    with pytest.warns(completeness.IncompleteWarning, match="most_steps="):
        read = attributions.attribute(trace, "integrated_gradients", baseline="zero", most_steps=60, tolerance=1e-6)
    assert read.info["steps"] <= 60
    tight = attributions.attribute(trace, "integrated_gradients", baseline="zero", tolerance=1e-4)
    assert tight.info["completeness"]["relative_gap"] <= 1e-4


@pytest.mark.parametrize("rule", integrated.RULES)
def test_every_rule_closes(rule: str) -> None:
    trace = abrupt().trace(input_ids=ids(5))
    read = attributions.attribute(trace, "integrated_gradients", baseline="zero", rule=rule, most_steps=6000)
    assert read.info["completeness"]["relative_gap"] <= completeness.CLOSED


def test_two_errors_that_cancel_are_seen() -> None:
    """A slope whose integral over the whole line is right by chance and wrong on the way."""
    line = integrated.Line.__new__(integrated.Line)
    points, _ = integrated.nodes(8, "gauss_legendre")
    line.rule, line.steps, line.planned, line.chunk, line.values = "gauss_legendre", 0, 0, 8, {0.0: 0.0, 1.0: 0.0}
    line.change = torch.ones(1, 1, 1, dtype=torch.float64)
    slopes = torch.where(points < 0.5, 1.0, -1.0).double()  # the values below say that nothing changes anywhere

    def gradients(points: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield slopes[:, None, None], torch.zeros(len(points), dtype=torch.float64)

    line.gradients = gradients  # type: ignore[method-assign]
    piece = line.piece(0.0, 1.0, 8)
    assert float(piece.shares.sum()) == pytest.approx(0, abs=1e-12)
    assert piece.gap > 0.4


@needs_shared
@pytest.mark.parametrize(
    ("dtype", "allowed"), [("float32", completeness.CLOSED), ("float16", completeness.CLOSED), ("bfloat16", 0.05)]
)
@pytest.mark.parametrize("text", [TEXT, "The dog ran", "One day, Tom saw a big"])
@pytest.mark.filterwarnings("ignore::mixlens.scoring.completeness.IncompleteWarning")
def test_integrated_gradients_of_a_trained_llama_add_up(text: str, dtype: str, allowed: float) -> None:
    """bfloat16: its numbers have 8 bits, so the target itself is known to some 1 %, and each of its pieces too."""
    trace = mixlens.load(SHARED / "models" / "stories260K", dtype=dtype).trace(text)
    read = attributions.attribute(trace, "integrated_gradients")
    assert read.info["completeness"]["relative_gap"] <= allowed
    assert read.info["steps"] < 600
    assert read.info["dtype"] == dtype


# --- what is told ---


def test_what_a_gap_is_a_share_of() -> None:
    told = completeness.completeness(torch.tensor([3.0, -1.0]), 2.5)
    assert told == {"sum": 2.0, "expected": 2.5, "relative_gap": pytest.approx(0.2)}
    assert completeness.completeness(torch.zeros(2), 0.0)["relative_gap"] == 0
    assert completeness.completeness(torch.zeros(2), 1.0)["relative_gap"] == 1
    against = completeness.completeness(torch.tensor([1.0, -1.0 + 1e-7]), 0.0)  # they cancel: rounding is no gap
    assert against["relative_gap"] < completeness.CLOSED


@pytest.mark.parametrize("case", DISTINCT)
def test_every_method_that_adds_up_tells_how_nearly(case: str) -> None:
    trace = loaded(case, head=CAUSAL_HEAD if "neo" in case else head_of(case)).trace(input_ids=ids(4))
    for name, gap, options in (
        ("deeplift", "delta_gap", {}),
        ("transatt", "conservation_gap", {}),
        ("partial_lrp", "conservation_gap", {}),
        ("integrated_gradients", "completeness_gap", {"baseline": 7}),  # from a token the line needs fewest points
    ):
        read = attributions.attribute(trace, name, **options)
        told = read.info["completeness"]
        assert told["relative_gap"] <= completeness.CLOSED
        assert abs(told["sum"] - told["expected"]) == pytest.approx(read.info[gap], abs=1e-9)
        if gap != "conservation_gap":
            assert told["sum"] == pytest.approx(float(read.scores.sum()), abs=1e-9)
            assert told["expected"] == read.info["difference"]
    for name in ("attcat", "grad_x_input", "raw_attention"):
        assert "completeness" not in attributions.attribute(trace, name).info  # these promise no sum


def test_released_code_is_not_warned_of() -> None:
    """Its rules lose count of relevance, which is what it was published with."""
    trace = loaded("bert", head="AutoModelForSequenceClassification").trace(input_ids=ids(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = attributions.attribute(trace, "partial_lrp", variant="released_chefer")
    assert read.info["completeness"]["relative_gap"] > completeness.CLOSED


def test_the_gap_is_kept_in_a_file(tmp_path: Any) -> None:
    trace = mixlens.load("sentiment").trace("The plot was dull.")
    read = attributions.attribute(trace, "integrated_gradients")
    read.save(tmp_path / "x.safetensors")
    assert mixlens.load_result(tmp_path / "x.safetensors").info["completeness"] == read.info["completeness"]


def test_memory_that_runs_out_in_python_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(integrated, "nodes", full)
    trace = loaded("bert", head="AutoModelForSequenceClassification").trace(input_ids=ids(4))
    with pytest.raises(mixlens.MixlensError, match="memory runs out with 4 tokens"):
        attributions.attribute(trace, "integrated_gradients")
