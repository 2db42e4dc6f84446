"""The register of attribution methods: functions of a Question, registered by `@attribution`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..base.registry import Registered, Registry

Scored = Tensor | tuple[Tensor, dict[str, Any]]  # [pos], and what goes into `.info` beside it


Check = tuple[Any, ...]  # a function that refuses, and the names of the options that it looks at


@dataclass(frozen=True)
class AttributionMethod(Registered):
    """A registered attribution method. `function(question, **options)` scores every token: [pos]."""

    score: str  # what of the target is explained unless the user says otherwise: logit or probability
    needs_target: bool
    layers: bool  # takes layer=
    peer: bool = False  # a method of other tools, to compare with: judged where it is named, or by the group "peers"
    check: Check | None = None  # refuses values of options that no text and no model could be asked with

    def refuse_values(self, options: Mapping[str, Any]) -> None:
        """Refuse values that the method itself would refuse, before there is a text."""
        if self.check is not None:
            refuse, *names = self.check
            parameters = inspect.signature(self.function).parameters
            refuse(**{name: options.get(name, parameters[name].default) for name in names})


ATTRIBUTIONS = Registry[AttributionMethod]("method", folders=("mixlens.methods",), group="mixlens.methods")


def attribution(
    *,
    paper: str,
    variants: Sequence[str] = ("paper",),
    cost: str = "3",
    score: str = "logit",
    needs_target: bool = True,
    layers: bool = False,
    peer: bool = False,
    check: Check | None = None,
) -> Callable[[Callable[..., Scored]], Callable[..., Scored]]:
    """Register an attribution method under its function's name. It gets a Question and returns [pos], signed."""

    def entry(name: str, function: Callable[..., Scored]) -> AttributionMethod:
        return AttributionMethod(name, function, paper, tuple(variants), cost, score, needs_target, layers, peer, check)

    return ATTRIBUTIONS.register(entry)


def known() -> dict[str, AttributionMethod]:
    """Every attribution method: of the files in this folder, and of other packages."""
    return ATTRIBUTIONS.known()
