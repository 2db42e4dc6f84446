"""DeepLift's multipliers on numbers written by hand: halves, near numbers, each rule's value, and what the method tells."""

from __future__ import annotations

import importlib
import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mixlens.methods._backward_rules import Call, rules

# The package gives functions these names.
deeplift: Any = importlib.import_module("mixlens.methods.deeplift")
WIDE = torch.float64


def wide(*numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=WIDE)


def sent_back(function: Any, x: Tensor, b: Tensor, weights: Tensor | None = None) -> tuple[Tensor, set[str]]:
    """Multipliers of sum(weights * function) at the input."""
    both = torch.stack([x, b]).requires_grad_()
    with rules(deeplift.DEEPLIFT, nn.Module()) as block:
        output = function(both)
    arriving = torch.zeros_like(output)
    arriving[0] = 1 if weights is None else weights
    (sent,) = torch.autograd.grad(output, both, arriving)
    return sent[0], block.unruled


# --- halves ---------------------------------------------------------------------------------------------------------------


def test_halves_and_their_mean() -> None:
    x, b = deeplift.halves(wide(1, 2, 5, 8))
    assert (x.tolist(), b.tolist()) == ([1.0, 2.0], [5.0, 8.0])
    assert deeplift.twice(wide(1, 2)).tolist() == [1.0, 2.0, 1.0, 2.0]
    assert deeplift.mean(wide(1, 2, 5, 8)).tolist() == [3.0, 5.0, 3.0, 5.0]
    apart = torch.tensor([True, False, False])
    assert deeplift.ratio(wide(6, 6, 0), wide(2, 2, 0), apart, wide(7, 8, 9)).tolist() == [3.0, 8.0, 9.0]


def test_numbers_that_are_too_near() -> None:
    assert deeplift.near(torch.zeros(1)) == pytest.approx(torch.finfo(torch.float32).eps ** (1 / 3))
    assert deeplift.near(torch.zeros(1, dtype=WIDE)) == pytest.approx(6.055454e-06)
    assert [one.dtype for one in deeplift.wide(torch.zeros(1), torch.zeros(1, dtype=torch.float16))] == [WIDE, WIDE]
    on_mps: Any = SimpleNamespace(device=torch.device("mps"))
    assert deeplift.wide(on_mps) == [on_mps]


# --- rules ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "x", "b", "expected"),
    [
        (lambda z: z**2, 3.0, 1.0, 4.0),  # (9 - 1) / 2
        (lambda z: z.pow(3), 2.0, 0.0, 4.0),
        (lambda z: z.exp(), 1.0, 0.0, math.e - 1),
        (lambda z: 1 / z, 4.0, 2.0, -1 / 8),
        (lambda z: z / 4, 4.0, 2.0, 1 / 4),
        (lambda z: z.relu(), 1.0, -3.0, 1 / 4),
        (lambda z: z.rsqrt(), 4.0, 1.0, -1 / 6),
        (lambda z: z.clamp(max=2.0), 5.0, 1.0, 1 / 4),
        (lambda z: z.tanh(), 0.0, 0.0, 1.0),  # no difference: the slope
        (lambda z: z.relu(), 2.0, 2.0, 1.0),
        (lambda z: z * z, 3.0, 1.0, 4.0),
        (lambda z: 3 - z, 3.0, 1.0, -1.0),
    ],
)
def test_the_multiplier_of_one_number(function: Any, x: float, b: float, expected: float) -> None:
    sent, unruled = sent_back(function, wide(x), wide(b))
    assert sent.tolist() == pytest.approx([expected], rel=1e-12)
    assert unruled == set()


def test_numbers_below_the_least_distance_get_the_slope_halfway() -> None:
    """exp between 0 and d: the ratio above `near`, the slope at d / 2 below; of powers the distance is relative."""
    least = deeplift.near(torch.zeros(1, dtype=WIDE))
    for share in (0.9, 1.1):
        d = least * share
        slope = math.exp(d / 2) if share < 1 else math.expm1(d) / d
        sent, _ = sent_back(torch.exp, wide(d), wide(0.0))
        assert abs(float(sent) - slope) < 1e-15 + 2e-16 / d * (share > 1)
    # Squares of 1e-8 and 2e-8 are told apart, although both are tiny.
    assert sent_back(torch.sqrt, wide(4e-12), wide(1e-12))[0].tolist() == pytest.approx([1e-6 / 3e-12])
    # A kink between two near numbers is seen at any distance.
    assert sent_back(torch.relu, wide(1e-12), wide(-3e-12))[0].tolist() == pytest.approx([0.25])


def test_two_operands_get_the_mean_of_the_other() -> None:
    def product(z: Tensor) -> Tensor:
        return z[:, :1] * z[:, 1:]

    sent, _ = sent_back(product, wide(3, 5), wide(1, 7))
    assert sent.tolist() == [6.0, 2.0]  # mean(5, 7) and mean(3, 1)

    def quotient(z: Tensor) -> Tensor:
        return z[:, :1] / z[:, 1:]

    sent, _ = sent_back(quotient, wide(3, 5), wide(1, 7))
    # u = y v: dy = (du - mean(y) dv) / mean(v)
    assert sent.tolist() == pytest.approx([1 / 6, -(3 / 5 + 1 / 7) / 2 / 6])


@pytest.mark.parametrize("reversed_", [False, True])
def test_a_product_with_a_reciprocal_is_a_division(reversed_: bool) -> None:
    """u rsqrt(v): dy = (du - mean(y) d(sqrt v)) / mean(sqrt v)."""

    def normed(z: Tensor) -> Tensor:
        r = torch.rsqrt(z[:, 1:])
        return r * z[:, :1] if reversed_ else z[:, :1] * r

    sent, _ = sent_back(normed, wide(3, 4), wide(1, 16))
    y = (3 / 2 + 1 / 4) / 2
    assert sent.tolist() == pytest.approx([1 / 3, -y / 3 * (2 - 4) / (4 - 16)])


def test_what_a_division_sends_back() -> None:
    m, u, r, y = wide(1, 2), wide(3, 1).float(), wide(0.5, 0.25).float(), wide(1.5, 0.25)
    to_u, to_r = deeplift.divided(m, u, r, y)
    assert (to_u.dtype, to_r.dtype) == (torch.float32, torch.float32)
    assert to_u.tolist() == pytest.approx([1 / 3, 2 / 3])  # 2 r_x r_b / (r_x + r_b)
    assert to_r.tolist() == pytest.approx([1.75 / 0.75, 3.5 / 0.75])
    to_u, to_r = deeplift.divided(
        wide([1, 1], [2, 2]), wide([3], [1]), wide([0.5, 0.5], [0.25, 0.25]), wide([1.5, 1.5], [0.25, 0.25])
    )
    assert to_u.tolist() == [pytest.approx([2 / 3]), pytest.approx([4 / 3])]  # an operand that was spread gets the sum
    assert to_r.shape == (2, 2)


def test_products_along_an_axis_and_calls_without_a_rule() -> None:
    sent, unruled = sent_back(lambda z: z.prod(1), wide(3, 5), wide(1, 7))
    assert (sent.tolist(), unruled) == ([6.0, 2.0], set())
    sent, unruled = sent_back(lambda z: z[:1].prod().expand(2), wide(3, 5), wide(1, 7))
    assert unruled == {"prod"}
    both = wide(1.0, 2.0).requires_grad_()
    assert deeplift.smooth(Call("maximum", torch.maximum, (both, both * 2), {})) is NotImplemented


def test_the_slope_of_exponentials() -> None:
    made = deeplift.slope_of_exp(wide(1.0, 2.0, -math.inf, 0.0, 2.0, -math.inf))
    once = [math.e - 1, math.exp(2), 0.0]
    assert made.tolist() == pytest.approx([*once, *once])


def test_softmax_of_two_numbers() -> None:
    """p = 1 / (1 + e^-(u - v)): the change of log p by exponentials, their sum and its logarithm."""
    x, b = wide(1.0, 0.0), wide(0.0, 0.0)
    s_x, s_b = 1 + math.exp(-1), 2 * math.exp(-1)  # after the largest, 1, is taken away
    slope_of_log = (math.log(s_x) - math.log(s_b)) / (s_x - s_b)
    by_exp = [1 - math.exp(-1), math.exp(-1)]
    expected = [1 - slope_of_log * by_exp[0], -slope_of_log * by_exp[1]]
    sent, _ = sent_back(lambda z: z.log_softmax(-1), x, b, wide(1, 0))
    assert sent.tolist() == pytest.approx(expected)
    sent, _ = sent_back(lambda z: F.log_softmax(z, dim=1), x, b, wide(0, 2))
    assert sent.tolist() == pytest.approx([-2 * slope_of_log * by_exp[0], 2 - 2 * slope_of_log * by_exp[1]])
    p_x, p_b = 1 / (1 + math.exp(-1)), 0.5
    factor = (p_x - p_b) / (math.log(p_x) - math.log(p_b))
    sent, _ = sent_back(lambda z: torch.softmax(z, -1), x, b, wide(1, 0))
    assert sent.tolist() == pytest.approx([factor * one for one in expected])
    m, z = wide([1.0, 0.0], [1.0, 0.0]), wide([700.0, -700.0], [-800.0, 800.0])
    assert deeplift.through_log_softmax(m, z, -1).isfinite().all()


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("gamma", [None, [2.0, 0.5, -1.0]])
def test_what_a_norm_sends_back(centred: bool, gamma: list[float] | None) -> None:
    """c = z - mean(z), r = sqrt(mean(c c) + eps), y = gamma c / r, each step by its own multiplier."""
    x, b, weight = wide(1.0, -2.0, 4.0), wide(0.5, 1.0, -1.0), None if gamma is None else wide(*gamma)
    arriving, eps = wide(1.0, 3.0, -2.0), 0.25

    def function(z: Tensor) -> Tensor:
        return F.layer_norm(z, (3,), weight, None, eps) if centred else F.rms_norm(z, (3,), weight, eps)

    sent, unruled = sent_back(function, x, b, arriving)
    c = [z - z.mean() if centred else z for z in (x, b)]
    r = [(one.pow(2).mean() + eps).sqrt() for one in c]
    m = arriving if weight is None else arriving * weight
    middle, root = (c[0] / r[0] + c[1] / r[1]) / 2, (r[0] + r[1]) / 2
    to_c = m / root - (m * middle).sum() / root / root * (c[0] + c[1]) / 2 / 3
    torch.testing.assert_close(sent, to_c - to_c.mean() if centred else to_c)
    changed = function(torch.stack([x, b]))
    assert float((sent * (x - b)).sum()) == pytest.approx(float((arriving * (changed[0] - changed[1])).sum()))
    assert unruled == set()


def test_the_eps_of_a_norm_that_names_none() -> None:
    x, b = wide(1e-3, -2e-3), wide(-1e-3, 3e-3)
    named, _ = sent_back(lambda z: F.layer_norm(z, (2,), None, None, 1e-5), x, b, wide(1, 0))
    assert torch.equal(sent_back(lambda z: F.layer_norm(z, (2,)), x, b, wide(1, 0))[0], named)
    tiny = torch.finfo(WIDE).eps
    x, b = wide(1e-8, -2e-8), wide(-1e-8, 3e-8)
    named, _ = sent_back(lambda z: F.rms_norm(z, (2,), None, tiny), x, b, wide(1, 0))
    torch.testing.assert_close(sent_back(lambda z: F.rms_norm(z, (2,)), x, b, wide(1, 0))[0], named, rtol=1e-12, atol=0)


# --- the method -----------------------------------------------------------------------------------------------------------


def test_a_padding_id_for_the_length_of_a_block() -> None:
    for before, within in ((None, -1), (0, 0), (5, 5)):
        config = SimpleNamespace(pad_token_id=before)
        with deeplift.without_padding(config):
            assert config.pad_token_id == within
        assert config.pad_token_id == before
        with pytest.raises(ZeroDivisionError), deeplift.without_padding(config):
            raise ZeroDivisionError
        assert config.pad_token_id == before


class Squares(nn.Module):
    """A model whose number is the sum of squares of its word vectors, halved for the second feature."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(pad_token_id=None)

    def forward(self, word: Tensor) -> Tensor:
        assert self.config.pad_token_id == -1
        return (word.pow(2) * torch.tensor([1.0, 0.5], dtype=word.dtype)).sum((-1, -2)) + torch.sinc(word).sum(
            (-1, -2)
        ) * 0


def test_scores_and_what_deeplift_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    hf_model, seen = Squares(), []

    def run_attached(inputs: dict[str, Any], *, place: str, value: Tensor, compare: bool = True) -> Any:
        seen.append((inputs["ids"].tolist(), inputs["use_cache"], place, value.requires_grad, compare))
        value.requires_grad_()
        return SimpleNamespace(word=value, output=hf_model(value))

    model = SimpleNamespace(hf_model=hf_model, lock=nullcontext(), parts=[], run_attached=run_attached)
    x, b = wide([[1, 2], [3, 4]]), wide([[0, 2], [1, 0]])
    question = SimpleNamespace(
        model=model,
        inputs={"ids": torch.tensor([[7, 8]]), "use_cache": False},
        run=SimpleNamespace(word=x),
        target=SimpleNamespace(of=lambda output: output),
        place=lambda run, embedding: {"word": run.word}[embedding],
    )
    asked: list[Any] = []

    def baseline_run(*given: Any) -> tuple[Any, str]:
        asked.append(given)
        return SimpleNamespace(word=b), "pad"

    compared: list[Any] = []
    monkeypatch.setattr(deeplift, "baseline_run", baseline_run)
    monkeypatch.setattr(deeplift, "compare_rows", lambda *given: compared.append(given))
    scores, info = deeplift.deeplift(question, baseline=3)
    assert asked == [(question, 3)]
    assert seen == [([[7, 8], [7, 8]], False, "word", False, False)]
    ((_, run, alone),) = compared
    assert run.word.shape == (2, 2, 2)
    assert [one.word.tolist() for one in alone] == [x.tolist(), b.tolist()]
    assert scores.tolist() == pytest.approx([1.0, 8 + 8.0])
    assert info.pop("completeness") == pytest.approx({"sum": 17.0, "expected": 17.0, "relative_gap": 0.0})
    assert info.pop("delta_gap") == pytest.approx(0.0, abs=1e-12)
    assert info == {"baseline": "pad", "difference": pytest.approx(17.0), "functions_without_rule": ["sinc"]}
