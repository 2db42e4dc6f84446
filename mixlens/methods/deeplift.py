"""DeepLift (Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences).

The input and a baseline run as one batch: the first half of every tensor is the input's (x), the second the baseline's
(b). The gradient of every function is replaced by a multiplier m with sum m (x - b) = its change, exactly; the chain
rule (eq. 3) then makes the scores of the input add up to the change of the target (eq. 1), through attention, norms and
gated feed-forwards alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from ..model.rerun import compare_rows
from ..scoring.completeness import completeness
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ._backward_rules import Book, Call, Handler, composed, named, rules, send_back
from ._baselines import baseline_run

PAPER = "Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences"


def halves(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The input's half and the baseline's. The batch axis comes first, also where a model flattens positions into
    it."""
    x, b = tensor.chunk(2)
    return x, b


def twice(tensor: Tensor) -> Tensor:
    """The same numbers for input and baseline."""
    return torch.cat([tensor, tensor])


def mean(tensor: Tensor) -> Tensor:
    """(x + b) / 2, for input and baseline."""
    x, b = halves(tensor)
    return twice((x + b) / 2)


def ratio(change: Tensor, over: Tensor, apart: Tensor, otherwise: Tensor) -> Tensor:
    """change / over where `apart` says so, else `otherwise`."""
    return torch.where(apart, change / torch.where(apart, over, torch.ones_like(over)), otherwise)


def near(x: Tensor) -> float:
    """The distance of two numbers below which the ratio of their differences is more rounding than slope."""
    return float(torch.finfo(x.dtype).eps ** (1 / 3))


def wide(*tensors: Tensor) -> list[Tensor]:
    """The tensors in float64, where the device has it: exponentials of input and baseline share one scale."""
    return [tensor if tensor.device.type == "mps" else tensor.double() for tensor in tensors]


# --- the book: what each function sends back --------------------------------------------------------------------------


def at_mean(call: Call, arriving: Tensor, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The ordinary gradient, taken halfway between input and baseline."""
    return send_back(call.compute, [mean(operand) for operand in operands], arriving)


def product(call: Call) -> Any:
    """Linear in one operand; of two (both may be the same tensor), delta(u v) = mean(v) delta u + mean(u) delta v."""
    if len(call.operands) == 1:
        return call.stock()
    reciprocal = [call.name == "mul" and id(operand) in call.memory for operand in call.operands]

    def rule(arriving: Tensor, operands: Sequence[Tensor], output: Tensor) -> Sequence[Tensor]:
        if not any(reciprocal):
            return at_mean(call, arriving, operands)
        u, r = operands if reciprocal[1] else reversed(operands)
        to_u, to_r = divided(arriving, u, r, output)
        return (to_u, to_r) if reciprocal[1] else (to_r, to_u)

    return call.ruled(rule)


def divided(arriving: Tensor, u: Tensor, r: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """y = u r, where r is a reciprocal: u = y / r, so delta y = (delta u - mean(y) delta(1 / r)) / mean(1 / r).

    As exact as the product's rule, and bounded where that is not: the reciprocal of a baseline near zero is huge.
    """
    m, wide_r, wide_y = wide(arriving, r, y)
    (r_x, r_b), (y_x, y_b) = halves(wide_r), halves(wide_y)
    to_u = m * twice(2 * r_x * r_b / (r_x + r_b))
    to_r = m * twice((y_x + y_b) / (r_x + r_b))
    return to_u.sum_to_size(u.shape).to(u.dtype), to_r.sum_to_size(r.shape).to(r.dtype)


def inverse(call: Call) -> Any:
    """A reciprocal, noted for the product it goes into: an elementwise function."""
    output = power(call)
    call.memory[id(output)] = output  # a reference, so that no other tensor gets its id
    return output


def product_of_all(call: Call) -> Any:
    """The product along an axis, one factor after the other."""
    axis = call.argument(1, "dim")
    if axis is None:
        return NotImplemented
    return reduce(lambda u, v: product(Call("mul", torch.mul, (u, v), {})), call.operands[0].unbind(axis))


def elementwise(too_near: Callable[[Tensor, Tensor], Tensor]) -> Handler:
    """The Rescale rule (section 3.5.2): (f(x) - f(b)) / (x - b), and f' halfway where the two are too near to
    divide."""

    def handler(call: Call) -> Any:
        if len(call.operands) > 1:
            return NotImplemented

        def rule(arriving: Tensor, operands: Sequence[Tensor], output: Tensor) -> Sequence[Tensor]:
            x, b = halves(operands[0])
            apart = (x - b).abs() > too_near(x, b)  # not so for two masked numbers, both minus infinity
            (x, b), (f_x, f_b) = (halves(tensor) for tensor in wide(operands[0], output))
            sent = (arriving * twice(ratio(f_x - f_b, x - b, apart, torch.zeros_like(x)))).sum_to_size(
                operands[0].shape
            )
            (derivative,) = at_mean(call, arriving, operands)
            return [torch.where(twice(apart), sent.to(derivative.dtype), derivative)]

        return call.ruled(rule)

    return handler


smooth = elementwise(lambda x, b: torch.full_like(x, near(x)))
power = elementwise(lambda x, b: near(x) * torch.minimum(x.abs(), b.abs()))  # relative, because these have no scale
kinked = elementwise(lambda x, b: torch.zeros_like(x))  # straight on both sides, and the kink may lie between


def quotient(call: Call) -> Any:
    """u / v = u (1 / v), and 1 / v changes by -delta v / (v v_b)."""
    if len(call.operands) == 1:
        return call.stock() if call.places[0] in (0, "input") else power(call)

    def rule(arriving: Tensor, operands: Sequence[Tensor], output: Tensor) -> Sequence[Tensor]:
        u, v = operands
        to_u, to_inverse = divided(arriving, u, 1 / v, output)
        v_x, v_b = halves(v)
        return to_u, -to_inverse / twice(v_x * v_b)

    return call.ruled(rule)


def slope_of_exp(z: Tensor) -> Tensor:
    """(e^x - e^b) / (x - b), which is 0 for two masked numbers, both minus infinity."""
    x, b = halves(z)
    return twice(ratio(x.exp() - b.exp(), x - b, (x - b).abs() > near(z), (x.exp() + b.exp()) / 2))


def through_log_softmax(m: Tensor, z: Tensor, axis: int) -> Tensor:
    """out = z - log s, s = sum exp(z): elementwise, linear, elementwise, a difference."""
    x, b = halves(z)
    largest = torch.maximum(
        x.amax(axis, keepdim=True), b.amax(axis, keepdim=True)
    )  # subtracted from both: changes no multiplier
    z = z - twice(largest)
    s_x, s_b = halves(z.exp().sum(axis, keepdim=True))
    log_x, log_b = halves(z.logsumexp(axis, keepdim=True))  # the baseline's whole sum may underflow, its logarithm not
    apart = (s_x - s_b).abs() > near(z) * torch.maximum(s_x, s_b)
    slope_of_log = twice(ratio(log_x - log_b, s_x - s_b, apart, 2 / (s_x + s_b)))
    return m - m.sum(axis, keepdim=True) * slope_of_log * slope_of_exp(z)


def softmax(*, log: bool) -> Handler:
    """The exponential of log softmax, so that there is no divisor: e^z / s as a product of e^z and 1 / s is as exact,
    but where input and baseline differ much one of the two is huge, and so are its scores."""

    def handler(call: Call) -> Any:
        axis = call.argument(1, "dim")

        def rule(arriving: Tensor, operands: Sequence[Tensor], output: Tensor) -> Sequence[Tensor]:
            m, z = wide(arriving, operands[0])
            m = m if log else m * slope_of_exp(z.log_softmax(axis))
            return [through_log_softmax(m, z, axis).to(operands[0].dtype)]

        return call.ruled(rule)

    return handler


def norm(*, centred: bool) -> Handler:
    """c = z - mean(z) (z itself where not `centred`), v = mean(c c) + eps, out = gamma c / sqrt(v) + beta: linear, a
    product, elementwise, a division."""

    def handler(call: Call) -> Any:
        shape, gamma = call.argument(1, "normalized_shape"), call.argument(2, "weight")
        eps = call.argument(4 if centred else 3, "eps", 1e-5 if centred else None)
        axes = tuple(range(-len(shape), 0))

        def rule(arriving: Tensor, operands: Sequence[Tensor], output: Tensor) -> Sequence[Tensor]:
            m, z = wide(arriving, operands[0])
            m = m if gamma is None else m * gamma
            c = z - z.mean(axes, keepdim=True) if centred else z
            root = (c.pow(2).mean(axes, keepdim=True) + (torch.finfo(output.dtype).eps if eps is None else eps)).sqrt()
            to_root = -(m * mean(c / root)).sum(axes, keepdim=True) / mean(root)
            to_c = m / mean(root) + to_root / mean(root) * mean(c) / math.prod(shape)
            return [(to_c - to_c.mean(axes, keepdim=True) if centred else to_c).to(operands[0].dtype)]

        return call.ruled(rule)

    return handler


DEEPLIFT = Book(
    functions={
        **named(Call.stock, "add sub rsub neg mean sum cumsum"),
        **named(
            product, "mul matmul bmm mm mv dot inner outer einsum linear addmm baddbmm addbmm bilinear conv1d conv2d"
        ),
        **named(smooth, "gelu silu tanh sigmoid logsigmoid softplus mish elu celu selu hardswish"),
        **named(smooth, "erf erfc exp expm1 rpow sin cos atan"),
        **named(power, "pow square sqrt reciprocal rdiv log log2 log10"),
        **named(kinked, "relu relu6 leaky_relu prelu threshold hardtanh hardsigmoid"),
        **named(kinked, "abs clamp clamp_min clamp_max clip maximum minimum"),
        **{
            "rsqrt": inverse,
            "div": quotient,
            "prod": product_of_all,
            "softmax": softmax(log=False),
            "log_softmax": softmax(log=True),
        },
        **{"layer_norm": norm(centred=True), "rms_norm": norm(centred=False)},
    },
    activation=smooth,
)


# --- the method -------------------------------------------------------------------------------------------------------


@contextmanager
def without_padding(config: Any) -> Iterator[None]:
    """A padding id for the length of a block: heads that find the last token by it refuse two texts without one.
    Neither text is padded here."""
    before = config.pad_token_id
    config.pad_token_id = -1 if before is None else before
    try:
        yield
    finally:
        config.pad_token_id = before


@attribution(paper=PAPER, cost="6", layers=True)
def deeplift(
    question: Question, *, embedding: str = "word", baseline: str | int | None = None
) -> tuple[Tensor, dict[str, Any]]:
    """m_j . (x_j - b_j): multipliers that carry the whole change of the target from baseline to input back to the tokens.

    Rescale rule for every elementwise function, the exact symmetric rule for every product: attention, layer norm and
    gates are no exception, so the scores add up to target(x) - target(b). `info["delta_gap"]` says how nearly.
    Baseline: special tokens stay, every other token becomes the mask token (or `baseline`, as in Integrated Gradients).
    """
    below, name = baseline_run(question, baseline)
    model, hf_model = question.model, question.model.hf_model
    inputs = {key: twice(value) if isinstance(value, Tensor) else value for key, value in question.inputs.items()}
    words = torch.cat([question.run.word, below.word]).detach()
    book = rules(DEEPLIFT, hf_model, composed(hf_model, (parts.mlp_act for parts in model.parts)))
    with model.lock, torch.enable_grad(), without_padding(hf_model.config), book as block:
        run = model.run_attached(inputs, place="word", value=words, compare=False)  # input and baseline as one batch
        target = question.target.of(run.output)
    compare_rows(question.model, run, [question.run, below])
    place = question.place(run, embedding)
    (multiplier,) = torch.autograd.grad(target[0], [place])
    x, b = halves(place.detach())
    scores = (multiplier[:1] * (x - b)).sum(-1)[0]
    delta = float((target[0] - target[1]).detach())
    return scores, {
        "baseline": name,
        "difference": delta,
        "delta_gap": abs(float(scores.sum()) - delta),
        "completeness": completeness(scores, delta),
        "functions_without_rule": sorted(block.unruled),
    }
