"""How a paper turns the maps of layers into one: what is done to each layer [query key] before layers are
multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError, nearest
from ..types import Map


@dataclass(frozen=True)
class Convention:
    """How a paper turns layer maps into one: is the identity added, are rows made to sum to 1 before the product?"""

    residual: bool
    normalize: bool
    source: str


CONVENTIONS = {
    "abnar": Convention(True, True, "Abnar and Zuidema 2020: (A + I) / row sum"),
    "globenc": Convention(False, False, "Modarressi et al. 2022: the matrices as they are"),
    "toolkit": Convention(False, True, "GlobEnc as the Value Zeroing authors ran it: rows made to sum to 1"),
    "alti": Convention(False, True, "Ferrando et al. 2022: rows sum to 1, nothing added"),
    "value_zeroing": Convention(False, True, "Mohebbi et al. 2023: rows sum to 1, nothing added"),
    "chefer": Convention(True, True, "Chefer et al. 2021: (M + I) / row sum"),
}
ROW_OF_ZEROS = (
    "a row of this map sums to 0, so it cannot be normalised. Roll it out by a convention that does not: "
    "rollout(normalize=False), or name:rollout=globenc where a method is written with its options."
)
FROM_INPUT = "input"  # the convention of maps that are from the input to every layer already


def is_from_input(scores: Map) -> bool:
    """Is this map from the input to every layer by its method, and not by a rollout?"""
    return scores.info.get("convention") == FROM_INPUT and scores.info.get("rollout") is None


def known_convention(name: Any) -> Convention:
    """The convention of this name, or a refusal."""
    if not isinstance(name, str) or name not in CONVENTIONS:
        raise InputError(f"unknown rollout convention {name!r}. {nearest(str(name), CONVENTIONS)}")
    return CONVENTIONS[name]


def convention_of(
    scores: Map, convention: str | None = None, *, residual: bool | None = None, normalize: bool | None = None
) -> dict[str, Any]:
    """What is to be done to the layers of a map: the convention's name, by default that of the method's paper,
    `residual` and `normalize`. A map whose layers are from the input already, by a rollout or by its method, is
    refused."""
    if scores.info.get("rollout") is not None:
        raise InputError("this map is rolled out already. Roll out the map that mix gave.")
    if is_from_input(scores):
        raise InputError(
            f"{scores.method!r} is from the input to every layer already: its layers are not to be multiplied."
        )
    name = convention or str(scores.info.get("convention", "alti"))
    known = known_convention(name)
    return {
        "convention": name,
        "residual": known.residual if residual is None else residual,
        "normalize": known.normalize if normalize is None else normalize,
    }


def as_convened(
    scores: Map, convention: str | None, *, residual: bool | None, normalize: bool | None
) -> tuple[Tensor, dict[str, Any]]:
    """The layers [layer query key] as a convention wants them, and what was done: its name, residual and normalize."""
    if "arithmetic" in scores.info:
        raise InputError(f"{scores.method!r} is made of other maps and is not rolled out. Roll each of them out first.")
    facts = convention_of(scores, convention, residual=residual, normalize=normalize)
    layers = scores.scores
    if facts["residual"]:
        layers = layers + torch.eye(layers.shape[-1], dtype=layers.dtype, device=layers.device)
    if facts["normalize"]:
        total = layers.sum(-1, keepdim=True)
        if bool((total == 0).any()):
            raise InputError(ROW_OF_ZEROS)
        layers = layers / total
    return layers, facts
