"""SmoothGrad: the gradient, averaged over inputs with noise.

g_j = 1/m sum_k d target / d x_j (x + e_k),  e_k ~ N(0, sigma^2),  sigma = noise (max x - min x);     s_j = |g_j|_2 or g_j . x_j
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..base.steps import tell
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ._points import as_scores, chunk_of, gradients_at, place_of, refuse_draws, refuse_last_layer, wide_dtype

PAPER = "Smilkov et al. 2017, SmoothGrad: Removing Noise by Adding Noise"


def noisy(x: Tensor, noise: float, count: int, chunk: int, generator: np.random.Generator) -> Iterator[Tensor]:
    """x + e_k, [k pos d], one chunk after the other. Noise is drawn in float64 on the CPU: the same on every device."""
    wide = x.to(wide_dtype(x))
    sigma = noise * (wide.max() - wide.min())
    for start in range(0, count, chunk):
        draws = generator.standard_normal((min(chunk, count - start), *x.shape[1:]))
        yield (wide + sigma * torch.from_numpy(draws).to(wide)).to(x.dtype)
        tell(min(start + chunk, count), count, "draws")


@attribution(
    paper=PAPER,
    cost="count x 3",
    layers=True,
    peer=True,
    check=(refuse_draws, "noise", "seed", "count", "chunk"),
    signed=False,
    unless=("times_input",),
)
def smooth_grad(
    question: Question,
    *,
    embedding: str = "word",
    count: int = 50,
    noise: float = 0.15,
    seed: int = 0,
    times_input: bool = False,
    chunk: int = 16,
) -> Tensor:
    """|mean over `count` noisy inputs of d target / d x_j|_2; with `times_input` that mean times x_j, which has a sign.

    The noise is normal; its standard deviation is `noise` times the largest less the smallest number of the embeddings.
    With noise=0 these are grad_l2 and grad_x_input."""
    refuse_draws(noise, seed, count=count, chunk=chunk)
    refuse_last_layer(question, "smoothed gradients")
    x = question.place(question.run, embedding).detach()
    inputs = noisy(x, noise, count, chunk_of(question, chunk), np.random.default_rng(seed))
    sums = [gradient.sum(0) for gradient in gradients_at(question, place_of(question, embedding), inputs)]
    mean = torch.stack(sums).sum(0) / count
    return as_scores((mean * x[0]).sum(-1) if times_input else mean.norm(dim=-1), x)
