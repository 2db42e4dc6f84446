"""`judge`: which method to trust on a model, in one command."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from ..base.errors import InputError
from . import completion
from .options import LoadOptions, loads_a_model
from .runs import LeaveOut, Out, Seed

JUDGE_EXAMPLE = "Example:  mixlens judge sentiment --n 20    (one text: mixlens judge sentiment --text 'A good film.')"
Model = Annotated[
    str, typer.Argument(help="A hub id, a folder or an embedded model.", autocompletion=completion.models)
]
Data = Annotated[
    str | None,
    typer.Argument(
        help="A dataset of `mixlens data`, a file, or NAME=FILE. The embedded models have sentences of their own."
    ),
]
MethodNames = Annotated[
    str,
    typer.Option(
        "--methods",
        help="all, peers (of other tools: shap, lime ...), or names with commas; options as name:option=value.",
        autocompletion=completion.judged_methods,
    ),
]
Metrics = Annotated[
    str,
    typer.Option(
        "--metrics",
        help="faithfulness, cues, rationales, fillers, or names; options as aopc:replacement=mask.",
        autocompletion=completion.metrics,
    ),
]
TEXTS = 50  # that are judged where --n is not given
TextCount = Annotated[
    int | None, typer.Option("--n", help="How many examples, drawn by --seed.", min=1, show_default=str(TEXTS))
]
OneText = Annotated[str | None, typer.Option("--text", help="Judge the methods on this one text instead of DATA.")]
Explains = Annotated[
    str,
    typer.Option(
        "--explains",
        help="What methods explain: measured, the target against its foil, as metrics measure it; or logit, the "
        "target's alone.",
    ),
]
Ranking = Annotated[
    str,
    typer.Option(
        "--ranking",
        help="signed, magnitude, or default: signed for removal and rationales, magnitude for cues. lds: always "
        "signed.",
    ),
]
Unit = Annotated[str, typer.Option("--unit", help="What is taken away or blanked at a time: token, word or sentence.")]
Draws = Annotated[
    int, typer.Option("--draws", help="Random rankings for each text, with which every method is compared.", min=1)
]
InfillModel = Annotated[
    str | None, typer.Option("--infill", help="A masked language model that fills gaps, for aopc:replacement=infill.")
]


def _refuse_model_option(model: str | None) -> None:
    """The model of `judge` is its first argument; other commands have it as -m."""
    if model is not None:
        name = shlex.quote(model)
        raise InputError(
            f"judge takes the model first: mixlens judge {name} DATA, or for one text mixlens judge {name} --text "
            f"'...'."
        )


def _refuse_count(text: str | None, n: int | None) -> None:
    """One text is judged whole: --n has nothing to draw from."""
    if text is not None and n is not None:
        raise InputError(f"--text is one text, and --n {n} draws from DATA. Leave one of them out.")


OtherModel = Annotated[
    str | None,
    typer.Option("--model", "-m", hidden=True, is_eager=True, expose_value=False, callback=_refuse_model_option),
]


@loads_a_model
def judge(
    model: Model,
    data: Data = None,
    text: OneText = None,
    methods: MethodNames = "all",
    metrics: Metrics = "faithfulness",
    n: TextCount = None,
    out: Out = None,
    seed: Seed = 0,
    leave_out: LeaveOut = False,
    explains: Explains = "measured",
    ranking: Ranking = "default",
    unit: Unit = "token",
    draws: Draws = 5,
    infill: InfillModel = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every metric with its interval, and the further tables.")
    ] = False,
    text_field: Annotated[
        str | None, typer.Option("--text-field", help="Of a file: by default text or sentence.")
    ] = None,
    pair_field: Annotated[str | None, typer.Option("--pair-field", help="Of a file: the second text.")] = None,
    label_field: Annotated[str | None, typer.Option("--label-field", help="Of a file: the label of a row.")] = None,
    other_model: OtherModel = None,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
) -> None:
    """Which method should I trust on my model? Ranked tables, with intervals and seconds an example.

    The first lines are the answer: which method has the highest score, and which are not told apart from it.
    Faithfulness (does the prediction fall where a method says it rests?) and plausibility (does a method find the words
    that are known to decide?) have a table each.

    Columns: `score` is how much better than random scores a method is, in standard deviations of a random draw, mean
    over kinds of metrics. `group`: methods of one group are not told apart from its first; its number is no rank. Then
    the mean of as many metrics as fit the line (--full: all of them, with 95 % intervals); on how many metrics a method
    is better than random, for all metrics and methods at once; seconds for one text.

    --full also has the score of each kind of metrics, and further tables: the method with the highest score against
    every other, with the number of texts that would tell them apart; fillers, where several were asked for; where the
    signs of scores matter; right and wrong predictions apart. docs/use/judging.md explains every column and every
    pitfall.
    """
    _refuse_count(text, n)
    from ..runs.judge.judge import judge_text
    from ..show.text import console

    fields: dict[str, Any] = {"text_field": text_field, "pair_field": pair_field, "label_field": label_field}
    options: dict[str, Any] = {
        "methods": methods,
        "metrics": metrics,
        "n": TEXTS if n is None else n,
        "out": out,
        "seed": seed,
        "leave_out": leave_out,
    }
    options |= {"explains": explains, "ranking": ranking, "unit": unit, "draws": draws, "infill": infill}
    options |= {"full": full, "width": console().width, "loading": loading.arguments()}
    print(judge_text(model, data, text=text, **options, **fields))
