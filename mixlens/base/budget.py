"""How large a temporary may be, and the settings of a call. No tensor of n x n x d is ever held: sources are taken in
tiles.

The settings are one value in one context variable. A thread that sets one does not change it for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch

# A CPU's tile stays in its cache; a GPU's is large enough to keep it busy.
AUTOMATIC = {"cpu": 1 << 18}
LARGE = 1 << 26


@dataclass(frozen=True)
class Settings:
    """What a call sets for everything below it."""

    chunk: int | None = None  # the most elements of a temporary; None: by the kind of device
    wide: bool = False  # the range of half precision was not enough: float32 everywhere
    timing: bool = False  # a GPU is synchronised, so that seconds are those of the work
    listener: Callable[[Any], None] | None = None  # told how far a method is (steps.py)


SETTINGS: ContextVar[Settings] = ContextVar("mixlens_settings", default=Settings())  # noqa: B039 - frozen


def settings() -> Settings:
    """The settings of the call that is under way."""
    return SETTINGS.get()


@contextmanager
def setting(**changes: Any) -> Iterator[None]:
    """Other settings within the block."""
    token = SETTINGS.set(replace(SETTINGS.get(), **changes))
    try:
        yield
    finally:
        SETTINGS.reset(token)


def tile_elements(device: torch.device, times: int = 1) -> int:
    """How many elements a tile may have: what the user said, else `times` the device's own number."""
    return settings().chunk or times * AUTOMATIC.get(device.type, LARGE)


def tiles(sources: int, each: int, device: torch.device, *, times: int = 1) -> Iterator[slice]:
    """Slices of the sources, so that `each` elements a source stay within a tile."""
    most = max(1, tile_elements(device, times) // max(1, each))
    count = max(1, -(-sources // most))  # of about one size each
    for number in range(count):
        yield slice(number * sources // count, (number + 1) * sources // count)


def is_out_of_memory(error: BaseException) -> bool:
    """Does this error say that memory ran out, torch's or Python's?"""
    text = str(error)
    return (
        isinstance(error, torch.OutOfMemoryError | MemoryError)
        or "can't allocate memory" in text
        or "out of memory" in text
    )
