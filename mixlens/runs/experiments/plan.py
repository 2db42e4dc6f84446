"""What a paper's reproduction is: the models it uses, the runs that make its tables and figures, and every item of the
paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.registry import Registry
from .claims import Verdict
from .experiment import Outcome


@dataclass(frozen=True)
class Role:
    """A model that a paper uses: the name by which `--model ROLE=NAME` replaces it, and the paper's own."""

    name: str
    what: str  # "BERT-base, fine-tuned on SST-2"
    hub: str = ""  # the hub name of the paper's model; empty where none is published


@dataclass(frozen=True)
class Step:
    """One run of one experiment: a folder of the reproduction."""

    name: str
    experiment: str
    models: tuple[str, ...]  # roles
    data: str  # a dataset of `mixlens data`
    shows: str  # which table or figure, and which part of it
    n: int | None = None  # as many examples as in the paper; None for all
    first: bool = False  # whether they are the first n of the data; drawn by the seed otherwise
    fast: int = 12  # with --fast
    methods: tuple[str, ...] | None = None  # None for those of the experiment
    options: Mapping[str, Any] = field(default_factory=dict)
    fast_options: Mapping[str, Any] = field(default_factory=dict)  # that replace options with --fast
    split: str | None = None
    truncate: bool = False  # texts that are too long are cut instead of left out


@dataclass(frozen=True)
class Item:
    """A table, a figure, or a number in the text of a paper: the steps or the command that make it, or why nothing
    does."""

    where: str
    what: str
    steps: tuple[str, ...] = ()
    command: str = ""  # where no step makes it
    reason: str = ""  # where nothing makes it

    def __post_init__(self) -> None:
        assert self.steps or self.command or self.reason


@dataclass(frozen=True)
class Comparison:
    """A statement of a paper about several of its runs, in our words. `check` gets their outcomes in the order of
    `steps`."""

    where: str
    says: str
    paper: str
    steps: tuple[str, ...]
    check: Callable[[Sequence[Outcome]], Verdict]

    def judged(self, outcomes: Mapping[str, Outcome]) -> tuple[str, ...] | None:
        """(steps, claim, where, paper, here, verdict); None where one of the runs was not made."""
        if not set(self.steps) <= set(outcomes):
            return None
        verdict = self.check([outcomes[step] for step in self.steps])
        return (", ".join(self.steps), self.says, self.where, self.paper, verdict.ours, verdict.text)


@dataclass(frozen=True)
class Plan:
    """Everything of one paper in one command: `mixlens reproduce NAME`."""

    name: str
    paper: str
    module: str  # that declares it: __name__
    roles: tuple[Role, ...]
    steps: tuple[Step, ...]
    items: tuple[Item, ...]
    comparisons: tuple[Comparison, ...] = ()

    def role(self, name: str) -> Role:
        return next(role for role in self.roles if role.name == name)


PLANS = Registry[Plan]("paper", folders=("mixlens.papers",), group="mixlens.papers")


def plan(name: str, **declared: Any) -> Plan:
    """Register the plan of a paper: the fields of `Plan`."""
    entry = Plan(name, **declared)
    PLANS.add(name, entry)
    return entry
