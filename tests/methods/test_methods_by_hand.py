"""Pieces of methods on numbers written by hand: quadrature, distances, projections of attention, products of layers, draws."""

from __future__ import annotations

import importlib
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.base import rounding
from mixlens.base.errors import InputError
from mixlens.fast import probes
from mixlens.methods import (
    _backward_rules,
    _quadrature,
    _released,
    _rollout,
    identifiability,
    lrp,
    random,
    value_zeroing,
)
from mixlens.scoring.attributions import differentiable

# The package gives a function this name.
alternative_attention: Any = importlib.import_module("mixlens.scoring.alternative_attention")

# --- quadrature -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 50, 51])
def test_one_rule_is_numpys(count: int) -> None:
    nodes, weights = _quadrature.gauss_legendre(count)
    theirs, of_theirs = np.polynomial.legendre.leggauss(count)
    np.testing.assert_allclose(nodes, (theirs + 1) / 2, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(weights, of_theirs / 2, rtol=1e-12)
    assert (len(nodes), weights.sum()) == (count, pytest.approx(1.0, abs=1e-15))
    if count % 2:
        assert nodes[count // 2] == 0.5
    kept = _quadrature._one_rule(count)
    assert not any(one.flags.writeable for one in kept)


def test_panels_of_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_quadrature, "ONE_RULE", 4)
    assert len(_quadrature.gauss_legendre(4)[0]) == 4
    nodes, weights = _quadrature.gauss_legendre(7)  # panels of 4 and 3 nodes
    long, short = (np.polynomial.legendre.leggauss(size) for size in (4, 3))
    np.testing.assert_allclose(nodes, np.concatenate([(long[0] + 1) / 4, 0.5 + (short[0] + 1) / 4]), rtol=1e-13)
    np.testing.assert_allclose(weights, np.concatenate([long[1] / 4, short[1] / 4]), rtol=1e-12)
    assert len(_quadrature.gauss_legendre(9)[0]) == 9  # three panels of three


def test_the_integral_up_to_each_node() -> None:
    nodes, weights = _quadrature.gauss_legendre(4)
    made = _quadrature.integral_up_to(nodes, weights, 3 * nodes**2 - nodes + 2)
    np.testing.assert_allclose(made, nodes**3 - nodes**2 / 2 + 2 * nodes, rtol=1e-12)


# --- distances of Value Zeroing ---------------------------------------------------------------------------------------------


def test_distances_of_two_vectors() -> None:
    one, other = torch.tensor([[3.0, 4.0]], dtype=torch.float64), torch.tensor([[4.0, 3.0]], dtype=torch.float64)
    assert value_zeroing.cosine(one, other).tolist() == pytest.approx([1 - 24 / 25])
    assert value_zeroing.one_minus_cosine(one, other).tolist() == pytest.approx([1 - 24 / 25])
    assert value_zeroing.euclidean(one, other).tolist() == pytest.approx([math.sqrt(2)])
    assert value_zeroing.cosine(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])).tolist() == [0.5]
    ranks = value_zeroing.centred_ranks(torch.tensor([[5.0, 1.0, 5.0, 7.0]]))
    assert ranks.tolist() == [[0.0, -1.5, 0.0, 1.5]]
    a, b = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64), torch.tensor([[1.0, 3.0, 2.0]], dtype=torch.float64)
    assert value_zeroing.spearman(a, b).tolist() == pytest.approx([0.5])
    assert value_zeroing.finest(value_zeroing.spearman, 3, 0.1) == 12 / 24
    assert value_zeroing.finest(value_zeroing.one_minus_cosine, 3, 0.125) == 0.5
    assert value_zeroing.finest(value_zeroing.cosine, 3, 0.125) == 0.0


def test_what_rounding_does_to_distances() -> None:
    still = value_zeroing.Still(torch.zeros(1), torch.tensor([0.25, 1.0]))
    distances = torch.tensor([[1.0, 4.0], [0.0, 9.0]])
    assert still.error(distances, "euclidean").tolist() == [[0.25, 0.25], [1.0, 1.0]]
    assert still.error(distances, "cosine").tolist() == [[1.25, 2.25], [1.0, 7.0]]


def test_features_in_standard_deviations() -> None:
    still = torch.tensor([[1.0, 5.0], [3.0, 5.0], [100.0, -9.0]])
    view = value_zeroing.standardizer(still, torch.tensor([True, True, False]))
    seen = view(still[None])
    assert seen[0, :2].tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert seen[0, 2].tolist() == [98.0, -14.0]


# --- projections of attention -----------------------------------------------------------------------------------------------


def test_singular_values_that_count() -> None:
    eps = torch.finfo(torch.float32).eps
    values = torch.tensor([[1.0, 9 * eps, 8 * eps, 0.0]])
    assert identifiability.kept(values, 8, 3).tolist() == [[True, True, False, False]]
    assert identifiability.kept(values, 3, 8).tolist() == [[True, True, False, False]]
    assert identifiability.kept(values, 3, 2).tolist() == [[True, True, True, False]]
    assert identifiability.kept(10 * values, 8, 3).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [3, 4, 9])
def test_rows_are_projected_within_what_they_may_see(n: int, dtype: torch.dtype) -> None:
    """Row by row: attention times the projection on the columns of the first i + 1 value vectors."""
    generator = torch.Generator().manual_seed(n)
    vectors = torch.randn(2, n, 4, generator=generator, dtype=torch.float64)
    vectors[1, 5:6] = vectors[1, 2:3] if n > 5 else vectors[1, 5:6]
    attention = torch.rand(2, n, n, generator=generator, dtype=torch.float64).tril()
    attention = attention / attention.sum(-1, keepdim=True)
    expected = torch.zeros_like(attention)
    for head in range(2):
        for i in range(n):
            seen = vectors[head, : i + 1]
            expected[head, i, : i + 1] = attention[head, i, : i + 1] @ seen @ torch.linalg.pinv(seen)
    made = identifiability.within_past(vectors.to(dtype), attention.to(dtype), 8)
    torch.testing.assert_close(made.double(), expected, rtol=0, atol=2e-5 if dtype == torch.float32 else 1e-9)
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    for reach, there in ((causal, True), (torch.ones(n, n, dtype=torch.bool), False)):
        block: Any = SimpleNamespace(values=vectors.to(dtype), attention=attention.to(dtype), reach=reach, dtype=dtype)
        block.projection = torch.randn(2, 4, 8, generator=generator, dtype=torch.float64).to(dtype)
        projected, facts = identifiability.effective(block, bias=True)
        whole = attention @ vectors @ torch.linalg.pinv(vectors)
        torch.testing.assert_close(projected.double(), expected if there else whole, rtol=0, atol=2e-5)
        rank = min(n, 4)
        assert (facts["rank"].tolist(), facts["null_dimension"].tolist()) == ([rank, rank], [n - rank, n - rank])


def test_a_projection_that_loses_rank() -> None:
    block: Any = SimpleNamespace(values=torch.eye(2)[None], value_bias=torch.ones(2), dtype=torch.float32)
    block.projection = torch.tensor([[[1.0, 2.0, 0.0], [0.0, 1.0, 0.0]]])
    assert identifiability.transformed(block) is block.values
    assert identifiability.transformed(block, bias=False).tolist() == [[[0.0, -1.0], [-1.0, 0.0]]]
    block.projection = torch.tensor([[[1.0, 2.0, 0.0], [2.0, 4.0, 0.0]]])
    assert identifiability.transformed(block).tolist() == [[[1.0, 2.0, 0.0], [2.0, 4.0, 0.0]]]


def test_the_farthest_other_weights() -> None:
    """Two tokens with the same vector may exchange their weights: the farthest corner gives all to the one that had less."""
    pytest.importorskip("scipy.optimize")
    own = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64)
    same = torch.tensor([[1.0, 1.0], [1.0, 1.0], [5.0, 1.0]], dtype=torch.float64)
    made = alternative_attention._farthest(own, same, 2, torch.Generator().manual_seed(0))
    assert made.tolist() == pytest.approx([0.4, 0.0, 0.6], abs=1e-9)
    alone = alternative_attention._farthest(own, torch.eye(3, dtype=torch.float64), 3, torch.Generator().manual_seed(0))
    assert alone is own
    free = alternative_attention._farthest(
        own, torch.ones(3, 1, dtype=torch.float64), 3, torch.Generator().manual_seed(0)
    )
    assert free.tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-9)
    block: Any = SimpleNamespace(attention=torch.zeros(3, 2, 2))
    assert alternative_attention._heads(block, None) == [0, 1, 2]
    assert alternative_attention._heads(block, 2) == [2]
    for wrong in (3, -1, True, "0"):
        with pytest.raises(InputError, match=r"cannot be asked: rank and null space belong to one head, 0 to 2"):
            alternative_attention._heads(block, wrong)


# --- layers, inputs and draws ---------------------------------------------------------------------------------------------------


def test_products_of_layers_with_the_identity() -> None:
    first, second = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    plain = (second + torch.eye(2)) @ (first + torch.eye(2))
    assert torch.equal(_rollout.rollout_of([first, second], normalize=False), plain)
    rows = [(layer + torch.eye(2)) / (layer + torch.eye(2)).sum(-1, keepdim=True) for layer in (first, second)]
    torch.testing.assert_close(_rollout.rollout_of([first, second], normalize=True), rows[1] @ rows[0])


def test_inputs_of_released_code() -> None:
    inputs: dict[str, Any] = {
        "input_ids": torch.tensor([[1, 2, 3]]),
        "attention_mask": torch.tensor([[1, 1, 1]]),
        "token_type_ids": 0,
    }
    trace = SimpleNamespace(special=(True, False, True))
    question: Any = SimpleNamespace(inputs=inputs, trace=trace, model=SimpleNamespace(device=torch.device("cpu")))

    def told(variant: str, mask: bool | None) -> tuple[bool, list[int]]:
        made = _released.inputs_of(question, variant, mask_special=mask)
        return "token_type_ids" in made, made["attention_mask"].tolist()[0]

    shown, hidden = [1, 1, 1], [0, 1, 0]
    given = [
        ("paper", None),
        ("paper", True),
        ("released", None),
        ("released", False),
        ("other", None),
        ("other", True),
    ]
    assert [told(*one) for one in given] == [
        *((True, shown), (True, hidden), (False, hidden), (False, shown), (False, shown), (False, hidden)),
    ]
    assert inputs["attention_mask"].tolist() == [shown]


def test_random_scores_are_a_function_of_seed_layer_and_positions() -> None:
    def mixed(number: int) -> float:
        number &= 2**64 - 1
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            number = ((number ^ (number >> shift)) * factor) & (2**64 - 1)
        return (number >> 11) / 2**53

    reach = torch.ones(1, 3, 3).tril()
    block: Any = SimpleNamespace(x=torch.zeros(3, 2), index=2, attention=reach, dtype=torch.float64)
    made = random.random(block, seed=5)
    rows = [[mixed((i << 24) + j + (2 << 48) + 0x9E3779B9 * 6) * (j <= i) for j in range(3)] for i in range(3)]
    expected = [[one / sum(row) for one in row] for row in rows]
    torch.testing.assert_close(made, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)


def test_gradients_are_taken_whatever_is_switched_off() -> None:
    weights = torch.ones(2, 2, requires_grad=True)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16), differentiable([]):
        product = weights @ weights
        assert (product.requires_grad, product.dtype, torch.is_inference_mode_enabled()) == (True, torch.float32, False)
        assert not torch.is_autocast_enabled("cpu")
    with torch.no_grad(), differentiable([]):
        assert torch.is_grad_enabled()
    assert torch.is_grad_enabled()


# --- relevance, and what is compared --------------------------------------------------------------------------------------------


def test_a_divisor_of_zero_gives_zero() -> None:
    a, b = torch.tensor([2.0, 3.0, 0.0, 5.0]), torch.tensor([4.0, 0.0, 0.0, -lrp.GUARD])
    made = lrp.divide(a.double(), b.double())
    guard = float(b[3])
    assert made.tolist()[:3] == pytest.approx([2 / (4 + lrp.GUARD), 0.0, 0.0])
    assert made.tolist()[3] == pytest.approx(5 / (guard + lrp.GUARD if guard + lrp.GUARD else lrp.GUARD))
    exact = lrp.divide(torch.tensor([5.0], dtype=torch.float64), torch.tensor([-lrp.GUARD], dtype=torch.float64))
    assert exact.tolist() == pytest.approx([5 / lrp.GUARD])


def test_a_book_tells_its_rules_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    for name in ("linear", "addition", "softmax"):
        monkeypatch.setattr(lrp, name, lambda name=name, **options: (asked.setdefault(name, options) and name) or name)
    for each_sign, rescaled in ((True, False), (False, True)):
        asked.clear()
        made = lrp.book(each_sign=each_sign, rescaled=rescaled)
        assert asked == {
            "linear": {"each_sign": each_sign},
            "addition": {"rescaled": rescaled},
            "softmax": {"rescaled": rescaled},
        }
        functions: Any = made.functions
        assert [functions[name] for name in ("matmul", "sub", "softmax")] == ["linear", "addition", "softmax"]
        assert (functions["mul"], functions["rsqrt"], functions["gelu"]) == (lrp.factor, lrp.held_still, lrp.handed_on)
        assert made.activation is lrp.handed_on


def test_the_source_that_moves_a_target_most_is_run_again() -> None:
    """Two targets, one head; what is behind attention is the identity, and the distance the length of a difference."""
    vectors = torch.tensor([[[3.0, 4.0]], [[1.0, 0.0]]])  # [key head d]
    wrote = torch.tensor([[1.0, 1.0], [2.0, 2.0]])
    still = value_zeroing.Still(wrote[None], torch.tensor([0.0, 0.0]))

    def told(distances: list[list[float]], attention: list[list[float]]) -> float:
        block: Any = SimpleNamespace(
            attention=torch.tensor([attention]),
            head_vectors=vectors,
            attention_output=wrote,
            after_attention=lambda a: a,
            compared={},
        )
        options = {"distance": "euclidean", "allowed": 0.5}
        value_zeroing.compare_largest(
            block, torch.tensor(distances), value_zeroing.euclidean, lambda v: v, still, **options
        )  # type: ignore[arg-type]
        gap, allowed = block.compared["value_zeroing"]
        assert allowed == 0.5
        return float(gap)

    assert told([[2.5, 0.5], [0.0, 1.0]], [[0.5, 0.5], [0.0, 1.0]]) == pytest.approx(0.0)
    assert told([[2.0, 0.5], [0.0, 1.0]], [[0.5, 0.5], [0.0, 1.0]]) == pytest.approx(0.2)
    assert told([[2.5, 0.5], [0.0, 3.0]], [[0.5, 0.5], [0.0, 1.0]]) == pytest.approx(2.0)
    assert (
        told([[2.5, 0.5], [3.0, 1.0]], [[0.5, 0.5], [0.0, 1.0]]) == 0.0
    )  # its largest is of a source it took nothing from
    noisy = value_zeroing.Still(wrote[None], torch.tensor([0.25, 0.0]))
    assert noisy.error(torch.tensor([[1.0], [1.0]]), "euclidean").tolist() == [[0.25], [0.0]]


def test_rows_and_what_rounding_does_to_them() -> None:
    attention = torch.tensor([[[0.5, 0.5], [0.0, 1.0]]])
    scores, error = torch.tensor([[1.0, 3.0], [5.0, 2.0]]), torch.tensor([[0.25, 0.5], [9.0, 0.125]])
    shares, facts = value_zeroing.with_rounding(scores, error, attention, first=0)
    assert shares.tolist() == [[0.25, 0.75], [0.0, 1.0]]
    assert facts["rounding_error"].tolist() == [0.125, 0.0625]
    assert facts["rows_without_score"].tolist() == [0, 0]
    empty = value_zeroing.with_rounding(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 1, 2), first=1)
    assert (empty[0].tolist(), empty[1]["rounding_error"].tolist()) == ([[0.0, 1.0]], [0.0])
    block: Any = SimpleNamespace(x=torch.zeros(3, 2), attention=torch.zeros(1, 3, 3))
    whole, rows = value_zeroing.in_all_rows(block, 1, torch.tensor([[0.5, 0.25, 0.25]]), {"e": torch.tensor([7.0])})
    assert whole.tolist() == [[0.0] * 3, [0.5, 0.25, 0.25], [0.0] * 3]
    assert rows["e"].tolist() == [0.0, 7.0, 0.0]


def test_what_value_zeroing_refuses() -> None:
    value_zeroing.refuse_query(None, 3)
    value_zeroing.refuse_query(0, 3)
    value_zeroing.refuse_query(2, 3)
    for wrong in (-1, 3):
        with pytest.raises(InputError, match=rf"^query {wrong} is out of range: there are 3 tokens, 0 to 2\.$"):
            value_zeroing.refuse_query(wrong, 3)
    value_zeroing.refuse_distance("cosine", standardize=False, variant="released")
    value_zeroing.refuse_distance("euclidean", standardize=True, variant="paper")
    for distance, standardize in (("euclidean", False), ("cosine", True)):
        with pytest.raises(InputError, match=r"^the released code knows the cosine distance alone\."):
            value_zeroing.refuse_distance(distance, standardize=standardize, variant="released")
    with pytest.raises(InputError, match=r"^value_zeroing has no distance 'cosin'\. "):
        value_zeroing.refuse_distance("cosin", standardize=False, variant="paper")


def test_names_of_functions() -> None:
    def told(name: str) -> tuple[str, bool]:
        return _backward_rules.name_of(SimpleNamespace(__name__=name))  # type: ignore[arg-type]

    assert told("__iadd__") == ("add", True)
    assert told("__radd__") == ("add", False)
    assert told("__truediv__") == ("div", False)
    assert told("__itruediv__") == ("div", True)
    assert told("mul_") == ("mul", True)
    assert told("_softmax") == ("softmax", False)
    assert told("multiply") == ("mul", False)
    assert told("index_select") == ("index_select", False)


def test_answers_of_modules_to_their_probes() -> None:
    one, other = torch.ones(1, 2), torch.ones(1, 2) * 2
    made = probes._largest_change([(one * 1.5, one), (other, other)])
    assert float(made) == pytest.approx(0.5 / rounding.SAME_ANSWER[torch.float32])
    alone = probes._largest_change([(one * 1.5, one)])
    assert float(alone) == pytest.approx(float(made))


def test_long_work_has_a_bar_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixlens.methods import hta

    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(hta, "tqdm", lambda steps, **options: asked.append(options) or steps)
    assert list(hta.watched("ab")) == ["a", "b"]
    assert asked == [{"desc": "hta", "delay": 2, "leave": False, "disable": None}]
