"""How a paper turns the maps of layers into one: what is done to each layer [query key] before layers are multiplied."""

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


@dataclass(frozen=True)
class Wish:
    """The convention that a user asks for, by its name or one by one; None: as the method's paper has it."""

    convention: str | None = None
    residual: bool | None = None
    normalize: bool | None = None

    def leaves(self, scores: Map) -> bool:
        """Is this map left as it is: from the input to every layer already, and nothing is asked for?"""
        return self == Wish() and is_from_input(scores)

    def of(self, scores: Map) -> dict[str, Any]:
        """What is to be done to the layers of a map: the convention's name, residual and normalize."""
        _refuse_rolled_out(scores)
        name = self.convention or str(scores.info.get("convention", "alti"))
        if name not in CONVENTIONS:
            raise InputError(f"unknown rollout convention {name!r}. {nearest(name, CONVENTIONS)}")
        known = CONVENTIONS[name]
        residual = known.residual if self.residual is None else self.residual
        return {
            "convention": name,
            "residual": residual,
            "normalize": known.normalize if self.normalize is None else self.normalize,
        }


def is_from_input(scores: Map) -> bool:
    """Is this map from the input to every layer by its method, and not by a rollout?"""
    return scores.info.get("convention") == FROM_INPUT and scores.info.get("rollout") is None


def _refuse_rolled_out(scores: Map) -> None:
    """Refuse to multiply the layers of a map that are from the input already, by a rollout or by the method."""
    if scores.info.get("rollout") is not None:
        raise InputError("this map is rolled out already. Roll out the map that mix gave.")
    if is_from_input(scores):
        raise InputError(
            f"{scores.method!r} is from the input to every layer already: its layers are not to be multiplied."
        )


def as_convened(
    scores: Map, convention: str | None, *, residual: bool | None, normalize: bool | None
) -> tuple[Tensor, dict[str, Any]]:
    """The layers [layer query key] as a convention wants them, and what was done: its name, residual and normalize."""
    if "arithmetic" in scores.info:
        raise InputError(f"{scores.method!r} is made of other maps and is not rolled out. Roll each of them out first.")
    facts = Wish(convention, residual, normalize).of(scores)
    layers = scores.scores
    if facts["residual"]:
        layers = layers + torch.eye(layers.shape[-1], dtype=layers.dtype, device=layers.device)
    return (_with_rows_of_one(layers) if facts["normalize"] else layers), facts


def _with_rows_of_one(layers: Tensor) -> Tensor:
    """Rows over their sums; a row of zeros is refused."""
    total = layers.sum(-1, keepdim=True)
    if bool((total == 0).any()):
        raise InputError(ROW_OF_ZEROS)
    return layers / total
