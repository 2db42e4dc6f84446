"""DeepLift: the scores add up to the target's change in every family, the paper written out, and nothing is left
behind."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import CONFIGURATIONS, ROUNDED, head_of, hf_model, ids, loaded
from torch import Tensor, nn

import mixlens
from mixlens.methods import _backward_rules, deeplift
from mixlens.scoring import attributions

CLASSIFIER = "AutoModelForSequenceClassification"


def gap_allowed(case: str) -> float:
    """float32 rounds by 6e-8; the target (about 1) is behind some thirty such norms and softmaxes, and their errors add
    up: up to 1e-6 was seen without vector instructions. A wrong rule leaves 1e-2 and more."""
    return 1e-5 if case in ROUNDED else 1e-12


def multipliers(function: Callable[[Tensor], Tensor], x: Tensor, b: Tensor) -> tuple[Tensor, Tensor, set[str]]:
    """What DeepLift sends back from all outputs of a function of a batch of two; how they change; what it did not
    know."""
    both = torch.stack([x, b]).requires_grad_()
    with _backward_rules.rules(deeplift.DEEPLIFT, nn.Module()) as block:
        output = function(both)
    (sent,) = torch.autograd.grad(output[0].sum(), both)
    return sent[0], (output[0] - output[1]).sum().detach(), block.unruled


# --- summation to delta ---


@pytest.mark.parametrize("case", list(CONFIGURATIONS))
def test_scores_add_up_to_what_the_stock_model_changes(case: str) -> None:
    """The stock model alone says how much the logit changes when every token becomes token 7."""
    model = loaded(case, head=head_of(case))
    given = ids(7)
    read = attributions.attribute(model.trace(input_ids=given), "deeplift", baseline=7, target=1)
    with torch.no_grad():
        logits = [model.hf_model(torch.tensor([tokens])).logits[0] for tokens in (given, [7] * 7)]
        logits = [values[1] if values.dim() == 1 else values[-1, 1] for values in logits]
    assert float(read.scores.sum()) == pytest.approx(float(logits[0] - logits[1]), abs=gap_allowed(case))
    assert read.info["delta_gap"] < gap_allowed(case)
    assert read.info["functions_without_rule"] == []


@pytest.mark.parametrize("case", ["bert", "gpt2", "opt", "llama"])
def test_scores_add_up_at_every_place(case: str) -> None:
    trace = loaded(case, head=CLASSIFIER).trace(input_ids=ids(6))
    places: list[dict[str, Any]] = [{"embedding": name} for name in ("word", "sum", "after")]
    for place in places + [{"layer": layer} for layer in range(4)]:
        assert attributions.attribute(trace, "deeplift", **place).info["delta_gap"] < gap_allowed(case)


@pytest.mark.parametrize("foil", [None, 11])
@pytest.mark.parametrize("score", ["logit", "probability", "log_probability"])
def test_scores_add_up_for_every_score_of_a_language_model(score: str, foil: int | None) -> None:
    trace = loaded("electra", head="AutoModelForMaskedLM").trace(input_ids=ids(6))
    read = attributions.attribute(trace, "deeplift", target=5, foil=foil, score=score, query=2)
    assert read.info["difference"] != 0
    assert read.info["delta_gap"] < 1e-12
    assert read.info["functions_without_rule"] == []


@pytest.mark.parametrize("score", ["logit", "probability"])
def test_scores_add_up_for_a_span(score: str) -> None:
    trace = loaded("distilbert", head="AutoModelForQuestionAnswering").trace(input_ids=ids(6))
    assert attributions.attribute(trace, "deeplift", target=(1, 4), score=score).info["delta_gap"] < 1e-12


@pytest.mark.parametrize("case", ["mistral", "phi3", "olmo2"])
def test_a_baseline_of_zeros_does_not_blow_up(case: str) -> None:
    """These have no bias: the baseline's stream is zero in every layer, and the inverse of its length is a thousand
    each time."""
    read = attributions.attribute(loaded(case, head=CLASSIFIER).trace(input_ids=ids(7)), "deeplift", baseline="zero")
    assert float(read.scores.abs().sum()) < 100 * abs(read.info["difference"])
    assert read.info["delta_gap"] < 1e-5


def test_a_token_that_is_its_own_baseline_gets_nothing() -> None:
    given = ids(6)
    given[3] = 7
    read = attributions.attribute(loaded("bert", head=CLASSIFIER).trace(input_ids=given), "deeplift", baseline=7)
    assert float(read.scores[3]) == 0
    assert (read.scores != 0).sum() == 5


def test_the_mask_token_is_the_baseline_where_there_is_one() -> None:
    trace = mixlens.load("agreement", dtype="float64").trace("The keys to the cabinet [MASK] rusty.")
    read = attributions.attribute(trace, "deeplift", target=("were", "was"))
    assert read.info["baseline"] == "mask"
    assert read.info["delta_gap"] < 1e-12
    assert {token for token, score in zip(read.tokens, read.scores, strict=True) if score == 0} == {
        "[CLS]",
        "[MASK]",
        "[SEP]",
    }
    assert attributions.attribute(trace, "deeplift", target=("were", "was"), baseline="zero").info["baseline"] == "zero"


# --- the rules ---

OTHER = torch.linspace(-1.2, 1.7, 4, dtype=torch.float64)
SQUARE = torch.linspace(-1, 1, 16, dtype=torch.float64).reshape(4, 4)


def in_place(y: Tensor, x: Tensor) -> Tensor:
    y += x * x
    y -= 2 * x.exp()
    y *= x
    y /= x * x + 1
    y **= 2
    return y


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {  # of a batch of two matrices, 3 x 4
    "scalars": lambda x: (1 - x) * 2 + 3 / (x * x + 1) - x / 4 - (-x),
    "powers": lambda x: (
        x**2 + x.pow(3) + 2**x + (x.square() + 1).rsqrt() + torch.sqrt(x.abs() + 1) + torch.reciprocal(x * x + 2)
    ),
    "activations": lambda x: (
        F.gelu(x) * torch.sigmoid(x) + F.silu(x).tanh() + x.relu() + F.leaky_relu(x) + F.softplus(x)
    ),
    "logarithms": lambda x: torch.log(x.exp() + 1) + x.clamp(min=-0.5, max=0.5) + torch.maximum(x, OTHER),
    "constants": lambda x: (
        F.linear(x, SQUARE, OTHER) * OTHER + x @ SQUARE - torch.addmm(OTHER, x.view(-1, 4), SQUARE).view(x.shape)
    ),
    "products": lambda x: (x @ x.transpose(-1, -2)) @ x * x + torch.einsum("bij,bkj->bik", x, x) @ x,
    "batched": lambda x: torch.bmm(x, x.transpose(1, 2)) @ torch.baddbmm(x, x @ x.mT, x),
    "broadcast": lambda x: x * x.mean(-1, keepdim=True) + x[:, :1] * x + x / (x.pow(2).sum(1, keepdim=True) + 1),
    "quotient": lambda x: x.exp() / (2 + x * x) + x.sum((1, 2), keepdim=True) / x.exp(),
    "softmax": lambda x: F.softmax(x * 3, dim=-1) * x + torch.softmax(x, 1) + x.softmax(-1) @ x.mT @ x,
    "far softmax": lambda x: (x * 400).softmax(-1) * OTHER,
    "log softmax": lambda x: x.log_softmax(-1) * x + F.log_softmax(x * 200, dim=1),
    "masked": lambda x: (
        x.masked_fill(x.detach() > 9, -math.inf).softmax(-1) * x
        + x.masked_fill(torch.tensor([True, False, False, True]), -math.inf).softmax(-1) * OTHER
        + (x + torch.tensor([0.0, -1e300, 0.0, 0.0])).softmax(-1) * OTHER
    ),
    "choices": lambda x: (
        torch.where(OTHER > 0, x * x, torch.zeros_like(x)) + torch.cat([x[..., 2:], -x[..., :2]], -1) * x
    ),
    "layer norm": lambda x: F.layer_norm(x, (4,), OTHER, OTHER, 1e-5) * x + F.layer_norm(x, (3, 4)),
    "rms norm": lambda x: F.rms_norm(x, (4,), OTHER, 1e-6) * x + F.rms_norm(x, (4,)),
    "norms as torch takes them": lambda x: (
        torch.layer_norm(x, (4,), OTHER, OTHER, 1e-3) * x
        + torch.rms_norm(x, (4,), OTHER, 1e-3) * OTHER
        + torch.layer_norm(x, (4,)) * OTHER
        + torch.rms_norm(x, (4,)) * x
    ),
    "rms norm by hand": lambda x: (
        OTHER * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)) + torch.rsqrt(x * x + 1) * x
    ),
    "in place": lambda x: (x * 1).mul_(x).add_(x).add_(1).sub_(x).relu_() + F.relu(x * 1, inplace=True) * x,
    "in place, seen elsewhere": lambda x: (y := x * 1, z := y.view(2, 12), y.mul_(x), z.sigmoid_(), y * x)[-1],
    "in place, by operators": lambda x: in_place(x * 1, x),
    "casts": lambda x: x.double().to(torch.float64).type_as(x).contiguous().view(2, 12).chunk(2, -1)[0].exp(),
    "all along an axis": lambda x: torch.stack([x, x + 1, x * x], 1).prod(1),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_every_rule_hands_on_the_whole_change(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    x, b = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    b[0, 0] = x[0, 0]  # no difference at all, and hardly one
    b[0, 1] = x[0, 1] + 1e-9
    sent, change, unruled = multipliers(FUNCTIONS[name], x, b)
    assert unruled == set()
    assert float((sent * (x - b)).sum()) == pytest.approx(float(change), abs=1e-12 * (1 + float(change.abs())))
    with torch.no_grad():
        plain = FUNCTIONS[name](torch.stack([x, b]))
    assert float((plain[0] - plain[1]).sum()) == pytest.approx(float(change), rel=1e-12, abs=1e-12)
    at_itself, _, _ = multipliers(FUNCTIONS[name], x, x)
    with torch.enable_grad():
        leaf = torch.stack([x, x]).requires_grad_()
        (gradient,) = torch.autograd.grad(FUNCTIONS[name](leaf)[0].sum(), leaf)
    torch.testing.assert_close(at_itself, gradient[0], rtol=1e-8, atol=1e-10)  # where nothing changes: the gradient


def test_far_apart_logits_give_bounded_scores() -> None:
    x, b = torch.tensor([900.0, 0, -900, 3]).double(), torch.tensor([-900.0, 5, 0, 40]).double()
    sent, change, _ = multipliers(lambda z: z.softmax(-1) * OTHER, x, b)
    assert float((sent * (x - b)).sum()) == pytest.approx(float(change), abs=1e-12)
    assert float((sent * (x - b)).abs().sum()) < 10


def test_a_function_without_a_rule_is_named() -> None:
    _, _, unruled = multipliers(
        lambda x: torch.cumprod(x, -1) + torch.maximum(x, x * 2), *torch.randn(2, 3, 4).double()
    )
    assert unruled == {"cumprod", "maximum"}


def test_an_activation_of_several_functions_counts_as_one() -> None:
    act = hf_model("gpt2").h[0].mlp.act
    assert type(act).__name__ == "NewGELUActivation"
    net = nn.Sequential(copy.deepcopy(act))
    x, b = torch.randn(2, 5, dtype=torch.float64)
    both = torch.stack([x, b]).requires_grad_()
    assert _backward_rules.composed(net, [act]) == [net[0]]
    with _backward_rules.rules(deeplift.DEEPLIFT, net, _backward_rules.composed(net, [act])):
        out = net(both)
    (sent,) = torch.autograd.grad(out[0].sum(), both)
    torch.testing.assert_close(sent[0], (act(x) - act(b)) / (x - b), rtol=1e-10, atol=0)
    assert _backward_rules.composed(nn.Sequential(nn.ReLU()), [nn.ReLU()]) == []


def test_an_activation_with_weights_of_its_own_is_rescaled() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.PReLU(4), nn.Linear(4, 1)).double()
    both = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    with _backward_rules.rules(deeplift.DEEPLIFT, net):
        out = net(both)
    (sent,) = torch.autograd.grad(out[0, 0], both)
    change, x, b = (out[0, 0] - out[1, 0]).detach(), *both.detach()
    assert float((sent[0] * (x - b)).sum()) == pytest.approx(float(change), abs=1e-12)
    assert all(weights.requires_grad for weights in net.parameters())


class Pair:
    """One number of the input and of the baseline, and how it was made: DeepLift scalar by scalar."""

    def __init__(self, x: float, b: float, made_of: tuple[tuple[Pair, float], ...] = ()):
        self.x, self.b, self.made_of = x, b, made_of  # (part, multiplier from part to this)

    def __add__(self, other: Pair | float) -> Pair:
        other = other if isinstance(other, Pair) else Pair(other, other)
        return Pair(self.x + other.x, self.b + other.b, ((self, 1), (other, 1)))

    def __sub__(self, other: Pair) -> Pair:
        return self + other * -1.0

    def __mul__(self, other: Pair | float) -> Pair:
        other = other if isinstance(other, Pair) else Pair(other, other)
        mean, other_mean = (self.x + self.b) / 2, (other.x + other.b) / 2
        return Pair(self.x * other.x, self.b * other.b, ((self, other_mean), (other, mean)))

    def __truediv__(self, other: Pair) -> Pair:
        """q = u / v means u = q v: delta u = mean(v) delta q + mean(q) delta v, solved for delta q."""
        x, b, below = self.x / other.x, self.b / other.b, (other.x + other.b) / 2
        return Pair(x, b, ((self, 1 / below), (other, -(x + b) / 2 / below)))

    def through(self, function: Callable[[float], float]) -> Pair:
        x, b = function(self.x), function(self.b)
        return Pair(x, b, ((self, (x - b) / (self.x - self.b)),))


def total(terms: list[Pair]) -> Pair:
    return sum(terms[1:], start=terms[0])


def carried(end: Pair, start: list[Pair]) -> list[float]:
    """The chain rule (eq. 3), along every path from start to end."""
    order: list[Pair] = []
    seen: set[int] = set()

    def visit(pair: Pair) -> None:
        if id(pair) not in seen:
            seen.add(id(pair))
            for part, _ in pair.made_of:
                visit(part)
            order.append(pair)

    visit(end)
    reach = {id(end): 1.0}
    for pair in reversed(order):
        for part, multiplier in pair.made_of:
            reach[id(part)] = reach.get(id(part), 0.0) + reach.get(id(pair), 0.0) * multiplier
    return [reach.get(id(pair), 0.0) for pair in start]


class OneLayer(nn.Module):
    """Attention, residual, norm, gated feed-forward, read at the first position."""

    def __init__(self, norm: nn.Module, d: int = 4):
        super().__init__()
        self.q, self.k, self.v, self.up, self.gate = (nn.Linear(d, d) for _ in range(5))
        self.norm: Any = norm
        self.read = nn.Linear(d, 1)

    def forward(self, x: Tensor) -> Tensor:
        attention = (self.q(x) @ self.k(x).transpose(-1, -2) * 0.5).softmax(-1)
        h = self.norm(x + attention @ self.v(x))
        return self.read(F.gelu(self.gate(h)) * self.up(h))[:, 0, 0]


def one_layer_written_out(net: OneLayer, x: list[list[Pair]]) -> Pair:
    n, d = len(x), len(x[0])

    def linear(layer: nn.Linear, row: list[Pair]) -> list[Pair]:
        w, c = layer.weight.tolist(), layer.bias.tolist()
        return [total([row[i] * w[o][i] for i in range(d)]) + c[o] for o in range(len(w))]

    q, k, v = ([linear(layer, row) for row in x] for layer in (net.q, net.k, net.v))
    logits = [total([q[0][i] * k[j][i] for i in range(d)]) * 0.5 for j in range(n)]
    log_sum = total([z.through(math.exp) for z in logits]).through(math.log)
    attention = [(z - log_sum).through(math.exp) for z in logits]
    u = [x[0][i] + total([attention[j] * v[j][i] for j in range(n)]) for i in range(d)]
    mean = total(u) * (1 / d)
    c = [u[i] - mean for i in range(d)] if isinstance(net.norm, nn.LayerNorm) else u
    root = (total([value * value for value in c]) * (1 / d) + net.norm.eps).through(math.sqrt)
    gamma, beta = net.norm.weight.tolist(), getattr(net.norm, "bias", torch.zeros(d)).tolist()
    h = [c[i] / root * gamma[i] + beta[i] for i in range(d)]
    gate, up = linear(net.gate, h), linear(net.up, h)
    hidden = [gate[i].through(lambda z: 0.5 * z * (1 + math.erf(z / math.sqrt(2)))) * up[i] for i in range(d)]
    return linear(net.read, hidden)[0]


class NormByHand(nn.RMSNorm):
    """A product with a reciprocal: a division."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + (self.eps or 0)) * self.weight


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm, NormByHand])
def test_the_paper_written_out_number_by_number(norm: Any) -> None:
    torch.manual_seed(5)
    net = OneLayer(norm(4, eps=0.25)).double()
    nn.init.normal_(net.norm.weight)
    x, b = torch.randn(2, 3, 4, dtype=torch.float64)
    pairs = [[Pair(float(x[i, j]), float(b[i, j])) for j in range(4)] for i in range(3)]
    end = one_layer_written_out(net, pairs)
    assert end.x == pytest.approx(float(net(x[None]).detach()), rel=1e-12)
    both = torch.stack([x, b]).requires_grad_()
    with _backward_rules.rules(deeplift.DEEPLIFT, net):
        out = net(both)
    (sent,) = torch.autograd.grad(out[0], both)
    slowly = torch.tensor([carried(end, row) for row in pairs], dtype=torch.float64)
    torch.testing.assert_close(sent[0], slowly, rtol=1e-10, atol=1e-12)
    assert float((slowly * (x - b)).sum()) == pytest.approx(end.x - end.b, abs=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_captums_deeplift_where_captum_is_right() -> None:
    """Modules in a row, each an elementwise non-linearity: what captum was written for."""
    captum = pytest.importorskip("captum.attr")
    torch.manual_seed(1)
    net = nn.Sequential(
        *(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 6), nn.Sigmoid()),
        *(nn.Linear(6, 6), nn.ELU(), nn.Linear(6, 6), nn.Softplus(), nn.Linear(6, 2)),
    ).double()
    x, b = torch.randn(2, 5, dtype=torch.float64)
    theirs = captum.DeepLift(net).attribute(x[None], b[None], target=1)[0]
    both = torch.stack([x, b]).requires_grad_()
    with _backward_rules.rules(deeplift.DEEPLIFT, net):
        out = net(both)
    (sent,) = torch.autograd.grad(out[0, 1], both)
    torch.testing.assert_close(sent[0] * (x - b), theirs.detach(), rtol=1e-8, atol=1e-10)


def wide(*numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


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
    sent, _, unruled = multipliers(function, wide(x), wide(b))
    assert sent.tolist() == pytest.approx([expected], rel=1e-12)
    assert unruled == set()


def test_numbers_below_the_least_distance_get_the_slope_halfway() -> None:
    """exp between 0 and d: the ratio above `near`, the slope at d / 2 below; of powers the distance is relative."""
    least = torch.finfo(torch.float64).eps ** (1 / 3)
    for share in (0.9, 1.1):
        d = least * share
        slope = math.exp(d / 2) if share < 1 else math.expm1(d) / d
        sent, *_ = multipliers(torch.exp, wide(d), wide(0.0))
        assert abs(float(sent) - slope) < 1e-15 + 2e-16 / d * (share > 1)
    # Squares of 1e-8 and 2e-8 are told apart, although both are tiny.
    assert multipliers(torch.sqrt, wide(4e-12), wide(1e-12))[0].tolist() == pytest.approx([1e-6 / 3e-12])
    # A kink between two near numbers is seen at any distance.
    assert multipliers(torch.relu, wide(1e-12), wide(-3e-12))[0].tolist() == pytest.approx([0.25])
