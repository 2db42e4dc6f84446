"""AttCAT (Qiang et al. 2022) and the attention baselines it is compared with.

CAT^l_j = sum_d h^l_jd d target / d h^l_jd                                                       (eq. 10), [layer pos]
AttCAT_j = sum_l mean_i mean_h A^lh_ij CAT^l_j                                                   (eq. 11-12), [pos]
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..questions import Question
from ._attribution import attribution
from ._released import released_inputs

PAPER = "Qiang et al. 2022, AttCAT: Explaining Transformers via Attentive Class Activation Tokens"
ABNAR = "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers"
BARKAN = "Barkan et al. 2021, Grad-SAM: Explaining Transformers via Gradient Self-Attention Maps"


def class_activation(question: Question, variant: str, *, mask_special: bool) -> tuple[Tensor, Tensor]:
    """CAT^l_j, [layer pos], and the attention each token receives, mean over heads and then queries, [layer pos].

    The paper takes each layer's output; the released code each layer's input, never passes segment ids and hides the
    special tokens from attention while it explains.
    """
    if variant == "released":
        run = question.model.run_attached(released_inputs(question, mask_special=mask_special))
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
def attcat(question: Question, *, variant: str = "paper", mask_special: bool = True) -> tuple[Tensor, dict[str, Tensor]]:
    """AttCAT (eq. 11-12): CAT weighted by the attention the token receives (mean over heads, then queries), summed over layers.

    `released`: layer inputs instead of outputs, special tokens hidden from attention (`mask_special=False`: not hidden).
    """
    activation, received = class_activation(question, variant, mask_special=mask_special)
    weighted = activation * received
    return _over_layers(question, weighted), {"per_layer": weighted}


def _over_layers(question: Question, scores: Tensor) -> Tensor:
    """The sum over layers, or the share of the layer asked for: [layer pos] -> [pos]."""
    return scores.sum(0) if question.layer is None else scores[min(question.layer, len(scores) - 1)]


def _without_first(scores: Tensor, variant: str) -> Tensor:
    """The released notebooks set the entry of the readout token, which they take to be the first, to 0."""
    if variant == "released":
        scores = scores.clone()
        scores[0] = 0
    return scores


@attribution(paper=PAPER, variants=("paper", "released"), cost="1", needs_target=False)
def raw_attention(question: Question, *, variant: str = "paper") -> Tensor:
    """RawAtt: the last layer's attention, mean over heads, row of the readout token. `released`: entry 0 set to 0."""
    return _without_first(question.map("attention").scores[-1, question.query], variant)


@attribution(paper=ABNAR, variants=("paper", "released"), cost="1", needs_target=False)
def attention_rollout(question: Question, *, variant: str = "paper") -> Tensor:
    """Rollout: the product of (A + I) / row sum over all layers, row of the readout token. `released`: entry 0 set to 0."""
    return _without_first(question.map("attention").rollout("abnar").scores[-1, question.query], variant)


@attribution(paper=PAPER)
def attention_grad(question: Question) -> Tensor:
    """Grads: d target / d A of the last layer, mean over heads, summed over queries. (As released it is no token score.)"""
    (gradient,) = question.gradient(question.run.attention[-1])
    return gradient.mean(0).sum(0)


@attribution(paper=BARKAN, variants=("paper", "released"))
def attention_x_grad(question: Question, *, variant: str = "paper") -> Tensor:
    """AttGrads: A * d target / d A over all layers, mean over heads, summed over queries and layers, signed.

    `released`: the last layer alone, each head weighted by its mean gradient, negative values cut, the matrix scaled to
    0..1 (0 everywhere where it is constant; the released code gives NaN), row of the readout token, entry 0 set to 0.
    """
    attention = question.run.attention
    gradients = question.gradient(*attention)
    if variant == "released":
        return _without_first(_scaled(attention[-1][0], gradients[-1])[question.query], variant)
    shares = [(a[0] * g).mean(0).sum(0).to(question.model.device) for a, g in zip(attention, gradients, strict=True)]
    return sum(shares, torch.zeros_like(shares[-1]))


def _scaled(attention: Tensor, gradient: Tensor) -> Tensor:
    """max(0, mean_h A^h mean(dA^h)), scaled to 0..1: [head query key] -> [query key]."""
    weight = gradient.mean((-1, -2), keepdim=True)
    positive = (attention * weight).mean(0).clamp(min=0)
    spread = positive.max() - positive.min()
    return (positive - positive.min()) / spread if bool(spread > 0) else torch.zeros_like(positive)
