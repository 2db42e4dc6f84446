"""Relevance sent back through the stock model: partial LRP (Voita et al. 2019) and Transformer attribution (Chefer et
al. 2021), by the rules that Chefer et al. wrote for BERT, attached from outside to every family.

What arrives at a function is the relevance of its output; what it sends back is the relevance of its operands.

    linear      positive contributions alone (alpha = 1): R_i = sum_o (x_i w_io)+ R_o / sum_k (x_k w_ko)+; the bias gets none
    product     of two activations (q k^T, A V, gate * up): u (dz / du) R / z, halved, for each operand makes the whole of z
    sum         u R / z; of a residual stream and a branch, rescaled so that each gets the share of its absolute sum
    the rest    activations, softmax, norms (their statistics held still), constant factors: handed on as it is

Each rule hands on all relevance that arrives (but for an output without positive contributions), so the relevance of
every layer's input adds up to the target's: `info["conservation_gap"]` says how nearly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..base.rounding import working_dtype
from ..model.offload import refuse_packed
from ..model.rerun import Attached
from ..model.rows import compare_put_out, compare_written
from ..scoring.completeness import completeness
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ..scoring.targets import Target
from ._backward_rules import Book, Call, Handler, composed, named, rules, send_back
from ._released import inputs_of, rollout_of

VOITA = "Voita et al. 2019, Analyzing Multi-Head Self-Attention"
CHEFER = "Chefer et al. 2021, Transformer Interpretability Beyond Attention Visualization"
GUARD = 1e-9
Relevance = Tensor


def divide(a: Tensor, b: Tensor) -> Tensor:
    """a / (b + 1e-9), as released; a divisor of zero gives zero."""
    shifted = b + GUARD
    return torch.where(b == 0, torch.zeros_like(b), a / torch.where(shifted == 0, torch.full_like(b, GUARD), shifted))


def in_working_precision(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to(working_dtype(tensor.dtype)) for tensor in tensors]


# --- the book: what each function sends back --------------------------------------------------------------------------


def contributions(call: Call, arriving: Relevance, operands: Sequence[Tensor], output: Tensor) -> list[Relevance]:
    """u (dz / du) R / z for each operand u of z."""
    share = divide(*in_working_precision(arriving, output))
    slopes = send_back(call.compute, operands, share)
    return [(operand * slope).to(operand.dtype) for operand, slope in zip(operands, slopes, strict=True)]


def contributed(call: Call) -> Any:
    """Sums, means and selections; products, where each operand gets half."""
    return call.ruled(
        lambda arriving, operands, output: [
            share / len(operands) for share in contributions(call, arriving, operands, output)
        ]
    )


def handed_on(call: Call) -> Any:
    """To the one operand, or the first: what it is scaled by, divided by or normed with is held still."""

    def rule(arriving: Relevance, operands: Sequence[Tensor], output: Tensor) -> Sequence[Relevance | None]:
        return [arriving.sum_to_size(operands[0].shape), *[None] * (len(operands) - 1)]

    return call.ruled(rule)


def held_still(call: Call) -> Any:
    """A norm's statistics: no relevance goes there."""
    return call.stock().detach()


def factor(call: Call) -> Any:
    """A constant factor changes no relevance; two activations share it."""
    return contributed(call) if len(call.operands) > 1 else handed_on(call)


class Readers:
    """Which functions read the operands of a call. The released code copies a tensor for its readers, once for those of
    one kind (queries, keys, values) and once for the kinds (branch, residual); each copy's relevance R becomes x (R /
    x)."""

    def __init__(self, call: Call, kind: str):
        self.kind = kind
        self.counts = []
        for operand in call.operands:
            _, count = call.memory.setdefault(id(operand), (operand, Counter()))  # a reference: the id stays in use
            count[kind] += 1
            self.counts.append(count)

    def copied(self, sent: Sequence[Relevance], operands: Sequence[Tensor]) -> list[Relevance]:
        out = []
        for relevance, operand, count in zip(sent, operands, self.counts, strict=True):
            for _ in range(int(count[self.kind] > 1) + int(len(count) > 1)):
                relevance = operand * divide(relevance, operand)
            out.append(relevance)
        return out


def normed(call: Call) -> Any:
    readers = Readers(call, "norm")
    return call.ruled(lambda arriving, operands, output: readers.copied([arriving], operands))


def linear(*, each_sign: bool) -> Handler:
    """Positive contributions: of positive inputs through positive weights, and of negative through negative.
    `each_sign`: either kind gets the whole relevance, an error of the released original rules that about doubles it."""

    def handler(call: Call) -> Any:
        if len(call.operands) > 1:
            return contributed(call)
        weight, apply = weight_of(call)
        readers = Readers(call, "linear")

        def rule(arriving: Relevance, operands: Sequence[Tensor], output: Tensor) -> Sequence[Relevance]:
            sent = positive_shares(apply, *in_working_precision(arriving, operands[0], weight), each_sign=each_sign)
            return readers.copied([sent.to(operands[0].dtype)], operands)

        return call.ruled(rule)

    return handler


def positive_shares(
    apply: Callable[..., Tensor], arriving: Relevance, x: Tensor, w: Tensor, *, each_sign: bool
) -> Relevance:
    """R_i = sum_o (x_i w_io)+ R_o / sum_k (x_k w_ko)+."""
    signs = [(x.clamp(min=0), w.clamp(min=0)), (x.clamp(max=0), w.clamp(max=0))]
    wholes = [apply(x_part, w_part) for x_part, w_part in signs]
    wholes = wholes if each_sign else [wholes[0] + wholes[1]] * 2
    sent = torch.zeros_like(x)
    for (x_part, w_part), whole in zip(signs, wholes, strict=True):
        (slope,) = send_back(partial(apply, w=w_part), [x_part], divide(arriving, whole))
        sent = sent + x_part * slope
    return sent


def weight_of(call: Call) -> tuple[Tensor, Callable[..., Tensor]]:
    """The weights w of a function linear in x, and how they are applied: without the bias."""
    if call.name == "linear":
        return call.argument(1, "weight").t(), lambda x, w: x @ w
    if call.name == "addmm":
        return call.argument(2, "mat2"), lambda x, w: x @ w
    first, second = call.argument(0, "input"), call.argument(1, "mat2" if call.name in ("mm", "bmm") else "other")
    return (second, lambda x, w: x @ w) if call.operands[0] is first else (first, lambda x, w: w @ x)


def rescale(shares: Sequence[Relevance], total: Tensor) -> list[Relevance]:
    """Each branch scaled to the share its sum has among the absolute sums, so that a sum near zero multiplies
    nothing."""
    sums = [share.sum() for share in shares]
    absolute = torch.stack([part.abs() for part in sums]).sum()
    return [
        share * divide(divide(part.abs(), absolute) * total, part) for share, part in zip(shares, sums, strict=True)
    ]


def addition(*, rescaled: bool) -> Handler:
    """A residual: two activations added. A bias or a position added to one gets nothing."""

    def handler(call: Call) -> Any:
        if len(call.operands) == 1:
            return handed_on(call)
        readers = Readers(call, "add")

        def rule(arriving: Relevance, operands: Sequence[Tensor], output: Tensor) -> Sequence[Relevance]:
            shares = contributions(call, arriving, operands, output)
            return readers.copied(rescale(shares, arriving.sum()) if rescaled else shares, operands)

        return call.ruled(rule)

    return handler


def softmax(*, rescaled: bool) -> Handler:
    """Handed on to the logits and, as released, through the addition of the mask, which gets nothing."""

    def handler(call: Call) -> Any:
        def rule(arriving: Relevance, operands: Sequence[Tensor], output: Tensor) -> Sequence[Relevance]:
            relevance, logits = in_working_precision(arriving, operands[0])
            share = torch.where(relevance == 0, relevance, logits * divide(relevance, logits))
            return [(rescale([share], relevance.sum())[0] if rescaled else share).to(operands[0].dtype)]

        return call.ruled(rule)

    return handler


def book(*, each_sign: bool, rescaled: bool) -> Book:
    return Book(
        functions={
            **named(linear(each_sign=each_sign), "linear addmm matmul bmm mm"),
            **named(addition(rescaled=rescaled), "add sub"),
            **named(softmax(rescaled=rescaled), "softmax"),
            **named(contributed, "mean sum cumsum getitem index_select einsum baddbmm"),
            **named(factor, "mul"),
            **named(normed, "layer_norm rms_norm group_norm"),
            **named(held_still, "rsqrt"),
            **named(handed_on, "gelu silu tanh sigmoid relu relu6 leaky_relu elu softplus mish hardswish hardtanh"),
            **named(handed_on, "erf exp log pow square sqrt abs clamp div rdiv rsub neg log_softmax"),
        },
        activation=handed_on,
    )


RULES = {  # books by their names in `.info`
    "chefer": book(each_sign=False, rescaled=True),
    "original": book(each_sign=False, rescaled=False),
    "original_released": book(each_sign=True, rescaled=False),
}


def relevance(question: Question, book_name: str, inputs: dict[str, Any]) -> tuple[list[Relevance], dict[str, Any]]:
    """R of every layer's attention, [head query key]; and for `.info`: the sum of relevance of each layer's input and
    of the last one's output, and how far apart these sums are.

    Relevance starts as 1 at the target's logit, whatever the score. With a foil it is R of the target less R of the
    foil: started together they would add up to nothing, and a rescaled sum hands on nothing of it."""
    model, target = question.model, question.target
    refuse_packed(
        model.hf_model,
        "layer-wise relevance",
        "parts the weights of every linear map by their sign",
        "Load the model without quantization, or use another method: deeplift and the gradients work.",
    )
    activations = composed(model.hf_model, (parts.mlp_act for parts in model.parts))
    with model.lock, rules(RULES[book_name], model.hf_model, activations) as block:
        run = model.run_attached(inputs)
    if inputs is question.inputs:
        compare_written(question.trace, -1, run.outputs[-1][0])
        compare_put_out(question.trace, run.output)
    attention, totals = started_at(run, target, target.ids)
    if target.foil is not None:
        attention = [r - foil for r, foil in zip(attention, started_at(run, target, (target.foil,))[0], strict=True)]
    furthest = max(totals, key=lambda total: abs(total - totals[-1]))
    return attention, {
        "rules": book_name,
        "relevance_per_layer": totals,
        "conservation_gap": abs(totals[-1] - furthest),
        "completeness": completeness(torch.tensor([furthest], dtype=torch.float64), totals[-1]),
        "functions_without_rule": sorted(block.unruled),
    }


def started_at(run: Attached, target: Target, ids: tuple[int, ...]) -> tuple[list[Relevance], list[float]]:
    """Relevance that starts as 1 at the logits of `ids`: of every layer's attention, [head query key], and the sum over
    each layer's input and the last one's output."""
    with torch.enable_grad():
        logit = replace(target, ids=ids, foil=None, score="logit").of(run.output)[0]
    places = [*run.attention, *run.inputs, run.outputs[-1]]
    sent = torch.autograd.grad(logit, places, retain_graph=target.foil is not None)
    depth = len(run.attention)
    return [attention[0] for attention in sent[:depth]], [float(hidden.sum()) for hidden in sent[depth:]]


# --- the methods ------------------------------------------------------------------------------------------------------


@attribution(paper=VOITA, variants=("paper", "released", "released_chefer"), cost="6", signed=False)
def partial_lrp(
    question: Question, *, variant: str = "paper", mask_special: bool | None = None
) -> tuple[Tensor, dict[str, Any]]:
    """Partial LRP: mean over heads of max(0, R) of the last layer's attention, row of the readout token (a span: mean of two).

    `paper`: the original rules (sums not rescaled). `released`: as AttCAT ran it, Chefer's rules, special tokens hidden
    from attention (`mask_special=False`: not hidden), entry 0 set to 0. `released_chefer`: as Chefer's pipeline ran it,
    the original rules with a linear rule that loses count, entry 0 set to 0. LRP depends on how a function is written:
    a LoRA model and the same model with its adapter merged get other scores."""
    book_name = {"paper": "original", "released": "chefer", "released_chefer": "original_released"}[variant]
    attention, info = relevance(question, book_name, inputs_of(question, variant, mask_special=mask_special))
    scores = question.row(attention[-1].clamp(min=0).mean(0))
    if variant != "paper":
        scores[0] = 0
    return scores, info


@attribution(paper=CHEFER, variants=("paper", "released", "released_chefer"), cost="9", signed=False)
def transatt(
    question: Question, *, variant: str = "paper", normalize: bool = True, mask_special: bool | None = None
) -> tuple[Tensor, dict[str, Any]]:
    """Transformer attribution: M = mean over heads of max(0, dA * R); the product of (M + I) / row sum, row of the readout.

    Eq. 13-14 of the paper do not divide by the row sum, the released code does (`normalize=False`: not). `released`: as
    AttCAT ran it, special tokens hidden from attention (`mask_special=False`: not hidden), entry 0 set to 0.
    `released_chefer`: as Chefer's code, entry 0 set to the row's minimum. The scores depend on how a function is
    written: a LoRA model before and after its adapter is merged gets other scores."""
    inputs = inputs_of(question, variant, mask_special=mask_special)
    attention, info = relevance(question, "chefer", inputs)
    run = question.model.run_attached(inputs)
    with torch.enable_grad():
        target = question.target.of(run.output)[0]
    gradients = torch.autograd.grad(target, run.attention)
    layers = [(g[0] * r).clamp(min=0).mean(0) for g, r in zip(gradients, attention, strict=True)]  # eq. 13
    scores = question.row(rollout_of(layers, normalize=normalize))
    if variant != "paper":
        scores[0] = 0 if variant == "released" else scores.min()
    return scores, info
