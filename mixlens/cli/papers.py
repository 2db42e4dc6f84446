"""`experiment` and `reproduce`: the evaluations of the papers, one at a time or all of one paper."""

from __future__ import annotations

import sys
import textwrap
from typing import Annotated, Any

import typer
import typer.core

from . import completion
from .options import LoadOptions, loads_a_model
from .runs import Count, LeaveOut, Methods, Out, Seed

EXPERIMENT_EXAMPLE = "Example:  mixlens experiment vz-cue-alignment --n 100 --out runs/cues"
REPRODUCE_EXAMPLE = "Example:  mixlens reproduce alti --fast --model bert-sst2=FOLDER --data sst2=FILE --out runs/alti"

HELP = frozenset(("-h", "--help"))
ABOUT = "mixlens.experiment"  # the key of the context where the lines about an experiment wait for the help


class ExperimentCommand(typer.core.TyperCommand):
    """`mixlens experiment NAME --help` also says what the experiment NAME is and what differs from its paper."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        if words and HELP & set(args):  # without a word nothing heavy is imported
            from ..runs.experiments.command import help_text
            from ..runs.experiments.experiment import known

            name = next((word for word in words if word in known()), None)
            ctx.meta[ABOUT] = [] if name is None else ["", *help_text(known()[name]).splitlines()]
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        for line in ctx.meta.get(ABOUT, ()):
            formatter.write(f"{textwrap.fill(line, formatter.width)}\n")
        super().format_epilog(ctx, formatter)


@loads_a_model
def experiment(
    name: Annotated[
        str | None,
        typer.Argument(help="Without one: the experiments there are.", autocompletion=completion.experiments),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A hub id, a folder or an embedded model; several times where models are compared.",
            autocompletion=completion.models,
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="A dataset of `mixlens data`, a file, or NAME=FILE.")
    ] = None,
    n: Count = None,
    first: Annotated[bool, typer.Option("--first", help="The first --n examples instead of drawn ones.")] = False,
    out: Out = None,
    methods: Methods = None,
    seed: Seed = 0,
    leave_out: LeaveOut = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are longer than the model reads.")
    ] = False,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="key=value, an option of the experiment.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Of a dataset.")] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", help="The class of each label of the data: negative=0,positive=1.")
    ] = None,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
) -> None:
    """An experiment of one of the papers, on any model: records, tables, figure. Stopped at any time, it goes on."""
    from ..runs.experiments.command import experiment_text, labels_of
    from ..show.text import console

    options = {
        "model": model[0] if model and len(model) == 1 else model,
        "data": data,
        "n": n,
        "out": out,
        "methods": methods,
        "seed": seed,
    }
    more = {
        "first": first,
        "leave_out": leave_out,
        "truncate": truncate,
        "split": split,
        "labels": labels_of(labels),
        "loading": loading.arguments(),
    }
    print(experiment_text(name, options=option or (), width=console().width, **options, **more))


@loads_a_model
def reproduce(
    paper: Annotated[
        str | None,
        typer.Argument(help="Without one: the papers, their models, data and steps.", autocompletion=completion.papers),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="ROLE=NAME replaces a model of the paper, STEP:ROLE=NAME of one step; a NAME alone, all.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="DATASET=FILE, a local copy of a dataset; several times.")
    ] = None,
    out: Out = None,
    fast: Annotated[bool, typer.Option("--fast", help="A few examples for each run.")] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="One step; several times.")] = None,
    sizes: Annotated[
        list[str] | None, typer.Option("--size", help="STEP=N, so many examples for one step; several times.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", help="STEP:KEY=VALUE, an option of one step's experiment (identity:folds=1); several times."
        ),
    ] = None,
    seed: Seed = 0,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
) -> None:
    """Everything of one paper in one command: its tables and figures, ours beside theirs. Stopped at any time, it goes
    on."""
    from ..runs.experiments.command import pairs_of, reproduce_text, sizes_of, step_options_of
    from ..show.tables import fitted
    from ..show.text import console

    models: Any = model[0] if model and len(model) == 1 and "=" not in model[0] else pairs_of(model or (), "--model")
    files = pairs_of(data or (), "--data")
    options: dict[str, Any] = {"models": models, "data": files, "out": out, "fast": fast, "only": only, "seed": seed}
    options |= {"sizes": sizes_of(sizes or ()), "options": step_options_of(option or ())}
    print(fitted(reproduce_text(paper, said=_said, loading=loading.arguments(), **options), console().width))


def _said(line: str) -> None:
    print(f"mixlens: {line}", file=sys.stderr, flush=True)
