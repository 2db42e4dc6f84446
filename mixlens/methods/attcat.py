"""AttCAT (Qiang et al. 2022) and the attention baselines it is compared with.

CAT^l_j = sum_d h^l_jd d target / d h^l_jd                                                       (eq. 10), [layer pos]
AttCAT_j = sum_l mean_i mean_h A^lh_ij CAT^l_j                                                   (eq. 11-12), [pos]
"""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

from ..base.errors import InputError, nearest
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ._released import inputs_of, rollout_of

PAPER = "Qiang et al. 2022, AttCAT: Explaining Transformers via Attentive Class Activation Tokens"
AGGREGATIONS = ("sum", "rollout")
ABNAR = "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers"


def class_activation(question: Question, variant: str, *, mask_special: bool) -> tuple[Tensor, Tensor]:
    """CAT^l_j, [layer pos], and the attention each token receives, mean over heads and then queries, [layer pos].

    The paper takes each layer's output; the released code each layer's input, never passes segment ids and hides the
    special tokens from attention while it explains.
    """
    if variant == "released":
        run = question.model.run_attached(inputs_of(question, variant, mask_special=mask_special))
        hidden = run.inputs
        gradients = [g[0] for g in torch.autograd.grad(question.target.of(run.output)[0], hidden)]
    else:
        run, hidden = question.run, question.run.outputs
        gradients = [*question.gradient(*hidden)]
    device = question.model.device  # layers may have run on several devices
    activation = torch.stack([(h[0] * g).sum(-1).to(device) for h, g in zip(hidden, gradients, strict=True)])
    received = torch.stack([attention[0].mean(0).mean(0).to(device) for attention in run.attention])
    return activation.detach(), received.detach()


@attribution(paper=PAPER, variants=("paper", "released"), layers=True)
def cat(question: Question, *, variant: str = "paper", mask_special: bool = True) -> tuple[Tensor, dict[str, Tensor]]:
    """CAT (eq. 10): gradient times hidden state, summed over features and layers. Sign: towards or against the target.

    `released`: layer inputs instead of outputs. `layer=l` gives the share of one layer, counted from 0.
    """
    activation, _ = class_activation(question, variant, mask_special=mask_special)
    return _over_layers(question, activation), {"per_layer": activation}


@attribution(paper=PAPER, variants=("paper", "released"), layers=True)
def attcat(
    question: Question, *, variant: str = "paper", mask_special: bool = True, aggregation: str = "sum"
) -> tuple[Tensor, dict[str, Tensor]]:
    """AttCAT (eq. 11-12): CAT weighted by the attention the token receives (mean over heads, then queries), summed over layers.

    The paper does not say whether alpha_i is a row or a column of attention; the released code takes what token i
    receives. `released`: layer inputs instead of outputs, special tokens hidden from attention (`mask_special=False`:
    not hidden). `aggregation="rollout"`: the layers multiplied instead of added: the row "Rollout" of Figure 4, for
    which the paper gives no formula. `released`: their plain product, in float64; else each layer is divided by its
    largest score first."""
    activation, received = class_activation(question, variant, mask_special=mask_special)
    weighted = activation * received
    if aggregation not in AGGREGATIONS:
        raise InputError(f"unknown aggregation {aggregation!r}. {nearest(str(aggregation), AGGREGATIONS)}")
    if aggregation == "sum" or question.layer is not None:
        scores = _over_layers(question, weighted)
    elif variant == "released":  # twelve small numbers are too small for float32
        scores = weighted.cpu().double().prod(0)
    else:
        largest = weighted.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(weighted.dtype).tiny)
        scores = (weighted / largest).prod(0)
    return scores, {"per_layer": weighted}


def _over_layers(question: Question, scores: Tensor) -> Tensor:
    """The sum over layers, or the share of the layer asked for: [layer pos] -> [pos]."""
    return scores.sum(0) if question.layer is None else scores[min(question.layer, len(scores) - 1)]


def _without_first(scores: Tensor, variant: str) -> Tensor:
    """The released notebooks set the entry of the readout token, which they take to be the first, to 0."""
    if variant == "released":
        scores = scores.clone()
        scores[0] = 0
    return scores


def _attention(question: Question, variant: str, mask_special: bool | None) -> Tensor:
    """[layer query key]: attention, mean over heads. As released: of a pass without segment ids, special tokens
    hidden."""
    if variant == "paper" and not mask_special:
        return question.map("attention").scores
    notebook = "released" if variant == "released_squad" else variant  # those of SQuAD hide special tokens too
    run = question.model.run_attached(inputs_of(question, notebook, mask_special=mask_special))
    return torch.stack([layer[0].mean(0).to(question.model.device) for layer in run.attention]).detach()


@attribution(paper=PAPER, variants=("paper", "released", "released_squad"), cost="1", needs_target=False)
def raw_attention(question: Question, *, variant: str = "paper", mask_special: bool | None = None) -> Tensor:
    """RawAtt: the last layer's attention, mean over heads, row of the readout token.

    `released`: special tokens hidden from attention (`mask_special=False`: not hidden), entry 0 set to 0.
    `released_squad`: as the notebooks of SQuAD compute it, the mean over layers, last row."""
    attention = _attention(question, variant, mask_special)
    if variant == "released_squad":
        return attention.mean(0)[-1]
    return _without_first(attention[-1, question.query], variant)


@attribution(paper=ABNAR, variants=("paper", "released", "released_squad"), cost="1", needs_target=False)
def attention_rollout(question: Question, *, variant: str = "paper", mask_special: bool | None = None) -> Tensor:
    """Rollout: the product of (A + I) / row sum over all layers, row of the readout token.

    `released`: special tokens hidden from attention (`mask_special=False`: not hidden), entry 0 set to 0.
    `released_squad`: as the notebooks of SQuAD compute it, products without the residual, mean over layers and rows.
    """
    if variant == "paper" and not mask_special:
        return question.map("attention").rollout("abnar").scores[-1, question.query]
    layers = [*_attention(question, variant, mask_special)]
    if variant == "released_squad":
        return torch.stack([*accumulate(layers, lambda below, layer: layer @ below)]).mean((0, 1))
    return _without_first(rollout_of(layers, normalize=True)[question.query], variant)


@attribution(paper=PAPER)
def attention_grad(question: Question) -> Tensor:
    """Grads: d target / d A of the last layer, mean over heads, summed over queries.

    The paper's Figure 2 gives a matrix and does not say how it becomes token scores: the sum over queries is our
    choice. As released it is no token score."""
    (gradient,) = question.gradient(question.run.attention[-1])
    return gradient.mean(0).sum(0)


@attribution(paper=PAPER, variants=("paper", "released"), unless=("released", "relu"))
def attention_x_grad(
    question: Question, *, variant: str = "paper", relu: bool = False, mask_special: bool | None = None
) -> Tensor:
    """AttGrads (Figure 2): A * d target / d A over all layers, mean over heads, summed over queries and layers, signed.

    `relu`: negative gradients are cut, as Grad-SAM does (Barkan et al. 2021). `released`: the last layer alone, special
    tokens hidden from attention (`mask_special=False`: not hidden), each head weighted by its mean gradient, negative
    values cut, the matrix scaled to 0..1 (0 everywhere where it is constant; the released code gives NaN), row of the
    readout token (a span: mean of two), entry 0 set to 0."""
    if variant == "released" or mask_special:
        run = question.model.run_attached(inputs_of(question, variant, mask_special=mask_special))
        attention = run.attention
        gradients = tuple(g[0] for g in torch.autograd.grad(question.target.of(run.output)[0], attention))
    else:
        attention = question.run.attention
        gradients = question.gradient(*attention)
    if variant == "released":  # max(0, mean_h A^h mean(dA^h)), scaled to 0..1
        weight = gradients[-1].mean((-1, -2), keepdim=True)
        positive = (attention[-1][0] * weight).mean(0).clamp(min=0)
        low, high = positive.min(), positive.max()
        scaled = (positive - low) / (high - low) if bool(high > low) else torch.zeros_like(positive)
        return _without_first(question.row(scaled), variant)
    slopes = [gradient.clamp(min=0) if relu else gradient for gradient in gradients]
    shares = [(a[0] * g).mean(0).sum(0).to(question.model.device) for a, g in zip(attention, slopes, strict=True)]
    return sum(shares, torch.zeros_like(shares[-1]))
