"""The products of a rollout, M_1, M_2 M_1, ..., that stay in the number type's range: powers of two round nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..fast.loops import running

Factors = tuple[float, float]  # two, as one alone may leave the range


def products_of(maps: Sequence[Tensor], *, shares: bool) -> tuple[list[Tensor], list[list[int]]]:
    """The running products of maps [layer n n], plain as long as they fit the number type with room to spare; and of each
    map the layers that were rescaled. `shares`: rows sum to 1, so that everything fits."""
    room = torch.finfo(maps[0].dtype).max ** 0.5
    together = maps[0][:, None] if len(maps) == 1 else torch.stack(list(maps), 1)  # [layer map n n]
    plain = _plain_products(together, room) if shares or together.device.type == "cpu" else None
    products, wrong = plain or rescaled(together, room)  # on a GPU at once: to try first would cost more
    return list(products.unbind(1)), wrong


def _plain_products(layers: Tensor, room: float) -> tuple[Tensor, list[list[int]]] | None:
    """The products of [layer map n n] as they are; None where one of them comes near the end of the range."""
    products, sizes = running(layers)
    if not all(1 / room < size < room for of_layer in sizes.tolist()[1:] for size in of_layer):
        return None
    return products, [[] for _ in range(layers.shape[1])]


def rescaled(layers: Tensor, room: float) -> tuple[Tensor, list[list[int]]]:
    """Rows of [layer map n n] made to sum to about 1 by a power of two for each layer and map, so that no product leaves the
    range; brought back where it fits."""
    _, powers = torch.frexp(torch.linalg.vector_norm(layers, ord=1, dim=-1).amax(-1))  # [layer map]
    scaled = layers * torch.exp2(-powers.to(layers.dtype))[..., None, None]
    products, sizes = running(scaled)
    numbers = torch.stack([powers.cumsum(0).double(), sizes.double()]).tolist()  # a GPU is waited for once
    wrong: list[list[int]] = [[] for _ in range(layers.shape[1])]
    factors: list[list[Factors]] = []
    for index, (backs, reached) in enumerate(zip(*numbers, strict=True)):
        fits = [index == 0 or _fits(back, size, room) for back, size in zip(backs, reached, strict=True)]
        factors.append(
            [_factors(*entry, tiny=torch.finfo(sizes.dtype).tiny) for entry in zip(backs, reached, fits, strict=True)]
        )
        for number in (number for number, fit in enumerate(fits) if not fit):
            wrong[number].append(index)
    return _brought_back(products, factors), wrong


def _fits(back: float, size: float, room: float) -> bool:
    """Is a product whose largest entry is `size` within the range when it is multiplied by 2^back?"""
    return size > 0 and abs(math.log2(size) + back) < math.log2(room)


def _factors(back: float, size: float, fits: bool, *, tiny: float) -> Factors:
    """What brings a product back: 2^back in two factors; where that does not fit, what brings its largest entry to 1."""
    return (2.0 ** (back // 2), 2.0 ** (back - back // 2)) if fits else (1 / max(size, tiny), 1.0)


def _brought_back(products: Tensor, factors: Sequence[Sequence[Factors]]) -> Tensor:
    """Products [layer map n n] multiplied by their two factors, at once where that stays within the range."""
    back = torch.tensor(factors, dtype=products.dtype).to(products.device, non_blocking=True)[:, :, None, None]
    whole = all(1e-30 < one * other < 1e30 for of_layer in factors for one, other in of_layer)
    return products.mul_(back.prod(-1)) if whole else products.mul_(back[..., 0]).mul_(back[..., 1])
