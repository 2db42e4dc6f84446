"""The product of layers with the identity added, for methods that are matrices of their own and no maps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def rollout_of(layers: Sequence[Tensor], *, normalize: bool) -> Tensor:
    """The product of (M + I), last layer on the left (eq. 14); with `normalize` each is divided by its row sums."""
    rolled = torch.eye(len(layers[0]), dtype=layers[0].dtype, device=layers[0].device)
    for layer in layers:
        mixed = layer.to(rolled.device)
        mixed = mixed + torch.eye(len(mixed), dtype=mixed.dtype, device=mixed.device)
        rolled = (mixed / mixed.sum(-1, keepdim=True) if normalize else mixed) @ rolled
    return rolled
