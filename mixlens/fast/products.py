"""The products of a rollout, M_1, M_2 M_1, ..., that stay in the number type's range: powers of two round nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .loops import running


def products_of(maps: Sequence[Tensor], *, shares: bool) -> tuple[list[Tensor], list[list[int]]]:
    """The running products of maps [layer n n], plain as long as they fit the number type with room to spare; and of each
    map the layers that were rescaled. `shares`: rows sum to 1, so that everything fits."""
    room = torch.finfo(maps[0].dtype).max ** 0.5
    together = maps[0][:, None] if len(maps) == 1 else torch.stack(list(maps), 1)  # [layer map n n]
    if shares or together.device.type == "cpu":
        plain, sizes = running(together)
        reached = sizes.tolist()
        if all(1 / room < size < room for of_layer in reached[1:] for size in of_layer):
            return list(plain.unbind(1)), [[] for _ in maps]
    products, wrong = rescaled(together, room)  # on a GPU at once: to try first would cost more
    return list(products.unbind(1)), wrong


def rescaled(layers: Tensor, room: float) -> tuple[Tensor, list[list[int]]]:
    """Rows of [layer map n n] made to sum to about 1 by a power of two for each layer and map, so that no product leaves the
    range; brought back where it fits."""
    _, powers = torch.frexp(torch.linalg.vector_norm(layers, ord=1, dim=-1).amax(-1))  # [layer map]
    scaled = layers * torch.exp2(-powers.to(layers.dtype))[..., None, None]
    products, sizes = running(scaled)
    told = torch.stack([powers.cumsum(0).double(), sizes.double()]).tolist()  # a GPU is waited for once
    wrong: list[list[int]] = [[] for _ in range(layers.shape[1])]
    factors: list[list[tuple[float, float]]] = []  # two, as one alone may leave the range
    for index, (backs, reached) in enumerate(zip(*told, strict=True)):
        factors.append([])
        for number, (back, size) in enumerate(zip(backs, reached, strict=True)):
            if index == 0 or (size > 0 and abs(math.log2(size) + back) < math.log2(room)):
                factors[-1].append((2.0 ** (back // 2), 2.0 ** (back - back // 2)))
            else:
                factors[-1].append((1 / max(size, torch.finfo(sizes.dtype).tiny), 1.0))
                wrong[number].append(index)
    back = torch.tensor(factors, dtype=layers.dtype).to(layers.device, non_blocking=True)[:, :, None, None]
    whole = all(1e-30 < one * other < 1e30 for of_layer in factors for one, other in of_layer)
    return products.mul_(back.prod(-1)) if whole else products.mul_(back[..., 0]).mul_(back[..., 1]), wrong
