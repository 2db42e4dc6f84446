"""What an experiment is: its declaration, its registry, what its functions get (Setup) and what a run gives back
(Outcome)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...base.registry import Registry
from ...model.model import Model
from ...scoring.asking import MethodRequest, parse_method
from ...types import Example, Record
from .claims import Claim, Measured, Published
from .tables import Table

Measure = Callable[..., Any]
Packages = tuple[str, ...] | Callable[[Mapping[str, Any]], Iterable[str]]


@dataclass(frozen=True)
class Experiment:
    """One evaluation of one paper.

    `measure(setup, example)` gives the records of one example, all methods. With `whole` it is `measure(setup,
    examples)` and yields (key, records), in the same order every time; it skips what is in `setup.done`. `finish(setup,
    records)` is pure: the same records, the same tables. The first of them is summary.csv. `figure(setup, tables,
    figure)` draws. After the tables of `finish` come those of `published` (the paper's numbers beside ours) and of
    `claims` (verdicts).
    """

    name: str
    paper: str
    shows: str  # which table or figure of the paper
    data: str  # by default
    model: str  # by default, or a note that says what is needed
    measure: Measure
    finish: Callable[[Setup, list[Record]], list[Table]]
    figure: Callable[[Setup, list[Table], Any], None] | None = None
    methods: tuple[str, ...] = ()  # by default
    task: tuple[str, ...] = ()  # of the model; () for any
    needs: tuple[str, ...] = ()  # what an Example must have
    whole: bool = False
    takes: str = "any"  # which methods: any, map (with layers), attribution, class-specific
    options: Mapping[str, Any] = field(default_factory=dict)  # what can be changed, and the defaults
    n_models: int = 1  # at least so many
    prepare: Callable[[Setup], None] | None = None  # more to refuse before the long work
    packages: Packages = ()  # beyond those of the core, or a function of the options that names them
    differs: tuple[str, ...] = ()  # what is not as in the paper, one sentence each
    published: tuple[Published, ...] = ()  # numbers of the paper, set beside ours
    claims: tuple[Claim, ...] = ()  # statements of the paper, each with the rule that judges a run by it

    def __post_init__(self) -> None:
        assert self.takes in ("any", "map", "attribution", "class-specific")

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self.measure.__module__

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring of `measure`."""
        return " ".join((self.measure.__doc__ or "").partition("\n\n")[0].split())


@dataclass(frozen=True)
class Setup:
    """What `measure`, `finish` and `figure` get."""

    experiment: Experiment
    models: tuple[Model, ...]
    examples: tuple[Example, ...]
    methods: tuple[str, ...]
    options: Mapping[str, Any]
    seed: int = 0
    left_out: int = 0  # examples that do not fit the model
    done: frozenset[str] = frozenset()  # keys of a `whole` experiment that need no measuring again
    parsed: Mapping[str, MethodRequest] = field(
        default_factory=dict, repr=False
    )  # those of `methods` that are parsed already
    labels: Mapping[str, int] | None = None  # the class of each label of the data, where the user says it
    data: str = ""  # the name of the dataset, where it has one

    @property
    def model(self) -> Model:
        return self.models[0]

    @property
    def truncated(self) -> int:
        """How many examples were cut to the length that the model reads."""
        return sum("truncated" in example.info for example in self.examples)

    @cached_property
    def requests(self) -> Mapping[str, MethodRequest]:
        """Every method as written, parsed once."""
        return {written: self.parsed.get(written) or parse_method(written) for written in self.methods}


@dataclass(frozen=True)
class Outcome(Measured):
    """What a run gives back. `out` is None where it wrote nothing."""

    out: Path | None = None
    seconds: float = 0.0  # of measuring, over all starts


EXPERIMENTS = Registry[Experiment](
    "experiment", folders=("mixlens.papers", "mixlens.runs.judge"), group="mixlens.experiments"
)


def experiment(*, name: str, **declared: Any) -> Callable[[Measure], Measure]:
    """Register an experiment under its name; the function it decorates is its `measure`, the rest are the fields of
    `Experiment`."""
    lists: dict[str, Any] = {one: tuple(declared[one]) for one in ("methods", "task", "needs") if one in declared}

    def entry(title: str, measure: Measure) -> Experiment:
        return Experiment(title, measure=measure, **{**declared, **lists})

    return EXPERIMENTS.register(entry, name=name)


def known() -> dict[str, Experiment]:
    """Every experiment by name: those of this folder, and those of entry points of the group `mixlens.experiments`."""
    return EXPERIMENTS.known()
