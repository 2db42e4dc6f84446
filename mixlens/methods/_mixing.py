"""Map methods: the `@mixing` decorator, and every method that is registered by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..base.errors import InputError, unknown_method
from ..base.registry import Registered, Registry

ALL = "all"  # as `head`: every head, [... head query key]
Extras = dict[str, Tensor | str]
Scores = Tensor | tuple[Tensor, dict[str, Tensor]] | tuple[Tensor, Extras]


@dataclass(frozen=True)
class Method(Registered):
    """A registered map method. `function(block, **options)` scores one layer: [... query key].

    What a method hands out beside its scores ends up in `.info`: [... query] unless named in `per_head`, or a word.
    """

    rollout: str  # the convention its paper rolls it out by
    distribution: bool  # rows sum to 1
    signed: bool = False  # scores may be negative
    whole: bool = False  # `function(trace, **options)` scores all layers of one trace: [layer query key]
    per_head: tuple[str, ...] = ()  # names of extras that are [... head]
    stacks: bool = False  # takes several layers at once, [layer ... query key]: quicker on a GPU
    extras: tuple[str, ...] = ()  # names of what it always hands out beside its scores, such as "mixing_ratio"

    @property
    def has_heads(self) -> bool:
        """Whether it scores one head too, by the option `head`."""
        return "head" in self.options

    def arguments(self, variant: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
        """All keyword arguments of a call, checked."""
        if "head" in options and not self.has_heads:
            others = ", ".join(name for name, entry in known().items() if entry.has_heads)
            raise InputError(f"{self.id!r} has no option 'head': it scores all heads together. By head: {others}.")
        return super().arguments(variant, options)


METHODS = Registry[Method]("method", folders=("mixlens.methods",), group="mixlens.methods")


def mixing(
    *,
    paper: str,
    rollout: str,
    variants: Sequence[str] = ("paper",),
    distribution: bool = True,
    cost: str = "< 1",
    signed: bool = False,
    whole: bool = False,
    per_head: Sequence[str] = (),
    stacks: bool = False,
    extras: Sequence[str] = (),
) -> Callable[[Callable[..., Scores]], Callable[..., Scores]]:
    """Register a map method under its function's name. It gets one layer as a Block, and returns [... query key].

    With `whole` it gets a Trace and returns [layer query key]: for what is not a matter of one layer alone. With `stacks` its
    Block may hold several layers, [layer ... query key].
    """

    def entry(name: str, function: Callable[..., Scores]) -> Method:
        names = tuple(variants), cost, rollout, distribution, signed, whole, tuple(per_head), stacks, tuple(extras)
        return Method(name, function, paper, *names)

    return METHODS.register(entry)


def refuse_all_heads(name: str, options: Mapping[str, Any]) -> None:
    """Refuse "all" heads where one map is needed."""
    if options.get("head") == ALL:
        raise InputError(
            f"{name!r} with all heads gives a map for each head, and here it takes one: choose a head, counted from 0, as "
            f"{name}:head=0. For all of them: mixlens map --head {ALL}, in Python mixlens.mix."
        )


def known() -> dict[str, Method]:
    """Every map method: of the files in this folder, and of every entry point of the group `mixlens.methods`."""
    return METHODS.known()


def method(name: str) -> Method:
    if not isinstance(name, str):
        raise InputError(f"a method is a name, not {name!r:.80}.")
    if name not in known():
        from ._attribution import ATTRIBUTIONS

        if name in ATTRIBUTIONS:
            raise InputError(
                f"{name!r} explains a prediction, it makes no map: use mixlens.attribute(trace, {name!r}, target=...), or on the "
                f"command line mixlens explain --method {name}."
            )
        raise unknown_method(name, known())
    return known()[name]
