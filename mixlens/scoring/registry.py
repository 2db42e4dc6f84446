"""The methods there are: map methods (`@mixing`), attributions to a prediction (`@attribution`), and what is known of
each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..base.errors import InputError, unknown_method
from ..base.registry import Registered, Registry, parameters_of

ALL = "all"  # as `head`: every head, [... head query key]
Extras = dict[str, Tensor | str]
Scores = Tensor | tuple[Tensor, dict[str, Tensor]] | tuple[Tensor, Extras]
Scored = Tensor | tuple[Tensor, dict[str, Any]]  # [pos], and what goes into `.info` beside it
Check = tuple[Any, ...]  # a function that refuses, and the names of the options that it looks at


@dataclass(frozen=True, kw_only=True)
class ScoringMethod(Registered):
    """A method, and whether its scores have a sign."""

    signed: bool  # do scores below zero have a meaning, such as "against the target"?
    unless: tuple[str, ...] = ()  # variants, and options that are set, with which it is the other way round

    def is_signed(self, variant: str | None, options: Mapping[str, Any]) -> bool:
        """Whether scores below zero have a meaning: said by the method, its variant and its options, never by the
        numbers."""
        return self.signed != any(name == variant or bool(options.get(name)) for name in self.unless)


@dataclass(frozen=True)
class Method(ScoringMethod):
    """A registered map method. `function(block, **options)` scores one layer: [... query key].

    What a method hands out beside its scores ends up in `.info`: [... query] unless named in `per_head`, or a word.
    """

    rollout: str  # the convention its paper rolls it out by
    distribution: bool  # rows sum to 1
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
            others = ", ".join(name for name, entry in known_maps().items() if entry.has_heads)
            raise InputError(f"{self.id!r} has no option 'head': it scores all heads together. By head: {others}.")
        return super().arguments(variant, options)


@dataclass(frozen=True)
class AttributionMethod(ScoringMethod):
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
            defaults = parameters_of(self.function)
            refuse(**{name: options.get(name, defaults[name].default) for name in names})


METHODS = Registry[Method]("method", folders=("mixlens.methods",), group="mixlens.methods")
ATTRIBUTIONS = Registry[AttributionMethod]("method", folders=("mixlens.methods",), group="mixlens.methods")


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

    With `whole` it gets a Trace and returns [layer query key]: for what is not a matter of one layer alone. With
    `stacks` its Block may hold several layers, [layer ... query key].
    """

    def entry(name: str, function: Callable[..., Scores]) -> Method:
        facts = tuple(variants), cost, rollout, distribution, whole, tuple(per_head), stacks, tuple(extras)
        return Method(name, function, paper, *facts, signed=signed)

    return METHODS.register(entry)


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
    signed: bool | None = None,
    unless: Sequence[str] = (),
) -> Callable[[Callable[..., Scored]], Callable[..., Scored]]:
    """Register an attribution method under its function's name. It gets a Question and returns [pos].

    Scores are `signed`, for and against the target, unless said otherwise; those of a position are not. `unless`
    names the variants, and the options that are set, with which it is the other way round.
    """

    def entry(name: str, function: Callable[..., Scored]) -> AttributionMethod:
        facts = tuple(variants), cost, score, needs_target, layers, peer, check
        has_sign = needs_target if signed is None else signed
        return AttributionMethod(name, function, paper, *facts, signed=has_sign, unless=tuple(unless))

    return ATTRIBUTIONS.register(entry)


# --- what is known ----------------------------------------------------------------------------------------------------


def known_maps() -> dict[str, Method]:
    """Every map method: of the files in `methods/`, and of every entry point of the group `mixlens.methods`."""
    return METHODS.known()


def known_attributions() -> dict[str, AttributionMethod]:
    """Every attribution method: of the files in `methods/`, and of other packages."""
    return ATTRIBUTIONS.known()


def methods() -> list[str]:
    """Every method there is: maps (for `mix`), then attributions to a prediction (for `attribute`)."""
    return [*known_maps(), *known_attributions()]


def seek(name: Any) -> Method | AttributionMethod | None:
    """The method of this name, a map or an attribution. A file of its own name is imported alone, before all others."""
    if not isinstance(name, str):
        raise InputError(f"a method is a name, not {name!r:.80}.")
    if name not in METHODS and name not in ATTRIBUTIONS:
        METHODS.import_file(name)
    return METHODS.get(name) or ATTRIBUTIONS.get(name) or known_maps().get(name) or known_attributions().get(name)


def any_method(name: Any) -> Method | AttributionMethod:
    """The method of this name, or a refusal."""
    entry = seek(name)
    if entry is None:
        raise unknown_method(name, methods())
    return entry


def method(name: Any) -> Method:
    """The map method of this name, or a refusal."""
    entry = seek(name)
    if isinstance(entry, AttributionMethod):
        raise InputError(
            f"{name!r} explains a prediction, it makes no map: use mixlens.attribute(trace, {name!r}, target=...), "
            "or on the "
            f"command line mixlens explain --method {name}."
        )
    if entry is None:
        raise unknown_method(name, known_maps())
    return entry


def refuse_all_heads(name: str, options: Mapping[str, Any]) -> None:
    """Refuse "all" heads where one map is needed."""
    if options.get("head") == ALL:
        raise InputError(
            f"{name!r} with all heads gives a map for each head, and here it takes one: choose a head, counted from "
            "0, as "
            f"{name}:head=0. For all of them: mixlens map --head {ALL}, in Python mixlens.mix."
        )
