"""Gradients of the target: their length, their product with the input, and what papers read from both.

grad_l2_j = |g_j|_2        grad_x_input_j = g_j . x_j        grad_x_input_l2_j = |g_j * x_j|_2        g_j = d target / d x_j
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..base.errors import InputError
from ..model.rerun import Attached
from ..scoring.questions import Question
from ..scoring.registry import attribution

SIMONYAN = "Simonyan et al. 2014, Deep Inside Convolutional Networks"
DENIL = "Denil et al. 2014, Extraction of Salient Sentences"
GLOBENC = "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution"


def gradient_and_input(question: Question, embedding: str, variant: str = "paper") -> tuple[Tensor, Tensor]:
    """d target / d x and x, [pos d] each."""
    if variant == "released":
        # As ALTI's released code takes them: the embeddings' output goes through the embedding module again (positions,
        # segments and norm twice), and the target is a probability.
        once = once_embedded(question, question.run)
        again = question.model.run_attached(question.inputs, place="word", value=once.clone().requires_grad_())
        value = replace(question.target, score="probability").of(again.output)[0]
        (gradient,) = torch.autograd.grad(value, [again.word])
        return gradient[0], once[0]
    x = question.place(question.run, embedding)
    (gradient,) = question.gradient(x)
    return gradient, x[0].detach()


def once_embedded(question: Question, run: Attached) -> Tensor:
    """The embedding module's output, refused where it is not as wide as the module's input."""
    once = run.inputs[0].detach()
    if question.layer is not None or once.shape != run.word.shape:
        raise InputError(
            "the released form embeds twice: it has no layers, and needs embeddings as wide as the layers."
        )
    return once


def shared(scores: Tensor) -> Tensor:
    """Scores divided by their sum, as the released code reports them."""
    return scores / scores.sum()


@attribution(paper=SIMONYAN, variants=("paper", "released"), layers=True, signed=False)
def grad_l2(question: Question, *, variant: str = "paper", embedding: str = "sum") -> Tensor:
    """|d target / d x_j|_2: how steep the target is in token j.

    `released` (ALTI's code): of the probability, embedded twice, divided by the sum.
    """
    gradient, _ = gradient_and_input(question, embedding, variant)
    steepness = gradient.norm(dim=-1)
    return shared(steepness) if variant == "released" else steepness


@attribution(paper=DENIL, variants=("paper", "released"), layers=True, unless=("released", "absolute"))
def grad_x_input(
    question: Question, *, variant: str = "paper", embedding: str | None = None, absolute: bool = False
) -> Tensor:
    """d target / d x_j . x_j: the target's first-order share of token j, signed unless `absolute`.

    By default x is the sum of embeddings ("sum"); where a norm follows it, as in BERT, what that norm puts out
    ("after"): before a norm, whose output does not depend on the length of x, the product is zero but for rounding.
    `released` (ALTI's code): of the probability, embedded twice, absolute, divided by the sum."""
    by_default = "sum" if question.model.embedding_norm is None else "after"
    gradient, x = gradient_and_input(question, embedding or by_default, variant)
    share = (gradient * x).sum(-1)
    return shared(share.abs()) if variant == "released" else share.abs() if absolute else share


@attribution(paper=GLOBENC, layers=True, signed=False)
def grad_x_input_l2(question: Question, *, embedding: str = "sum") -> Tensor:
    """|d target / d x_j * x_j|_2 (GlobEnc eq. 17): the length of the elementwise product."""
    gradient, x = gradient_and_input(question, embedding)
    return (gradient * x).norm(dim=-1)
