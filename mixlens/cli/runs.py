"""`run` and `summarize`: many texts, folders of results."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..base.errors import InputError, MixlensError, ended, printable, printable_json, unknown_method
from . import completion
from .group import short_warnings
from .options import Foil, LoadOptions, ModelName, Query, Score, Truncate, loads_a_model

if TYPE_CHECKING:
    from ..runs.corpus import Run

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "--output",
        "-o",
        help="A folder for records, tables and figure; the same command goes on where it stopped.",
    ),
]
Count = Annotated[int | None, typer.Option("--n", help="How many examples, drawn by --seed.", min=1)]
Seed = Annotated[int, typer.Option("--seed")]
LeaveOut = Annotated[bool, typer.Option("--leave-out", help="Leave out examples that do not fit, instead of stopping.")]
Methods = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Names with commas between them; options as name:option=value.",
        autocompletion=completion.methods,
    ),
]

RUN_EXAMPLE = "Example:  mixlens run corpus.jsonl --model sentiment --methods alti,attcat --out runs/corpus"
SUMMARIZE_EXAMPLE = "Example:  mixlens summarize runs/corpus    (as a page: mixlens report runs/corpus)"


@loads_a_model
def run(
    data: Annotated[
        str, typer.Argument(help="JSONL, CSV, TSV, Parquet, text (a line each), a dataset of `mixlens data`, a hub id.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "--output", "-o", help="The folder. The same command goes on where it was stopped.")
    ],
    model: ModelName = "agreement",
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            help="Names with commas between them; options as name:option=value.",
            autocompletion=completion.methods,
        ),
    ] = "alti",
    limit: Annotated[int | None, typer.Option("--limit", help="The first so many rows.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Fields to carry along, with commas between them.")
    ] = None,
    text_field: Annotated[str | None, typer.Option("--text-field", help="By default text or sentence.")] = None,
    pair_field: Annotated[str | None, typer.Option("--pair-field", help="The second text.")] = None,
    ids_field: Annotated[
        str | None, typer.Option("--ids-field", help="A field with ids: input that is tokenised already.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Of a dataset.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="The class or word to explain; gold: each row's own target or label.")
    ] = None,
    foil: Foil = None,
    score: Score = None,
    query: Query = None,
    maps: Annotated[bool, typer.Option("--maps", help="Keep the maps too.")] = False,
    maps_dtype: Annotated[str | None, typer.Option("--maps-dtype", help="float32 (default) or float16.")] = None,
    generate: Annotated[
        int | None,
        typer.Option("--generate", help="Let a causal model write this many tokens after each row; explain each."),
    ] = None,
    chat: Annotated[
        bool,
        typer.Option(
            "--chat", help="Rows are conversations: the field messages, a list with role and content; else the text."
        ),
    ] = False,
    truncate: Truncate = False,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Does a prediction turn without each method's three first words, and without ten random sets?"
            " Costs a pass for each.",
        ),
    ] = False,
    batch_tokens: Annotated[
        int | None, typer.Option("--batch-tokens", help="Tokens to a batch; by default what suits.")
    ] = None,
    shard_rows: Annotated[
        int, typer.Option("--shard-rows", help="Rows to a shard: so much work is lost, at most, when a run is killed.")
    ] = 512,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first row that cannot be explained.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on; refuse to begin anew.")] = False,
    ray: Annotated[
        str | None, typer.Option("--ray", help="auto, or the address of a Ray cluster that does the work.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Of the Ray cluster; by default one for each GPU or CPU.", min=1)
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
) -> None:
    """Every method on every row of a corpus: a folder of Parquet shards. Stopped at any time, it goes on."""
    from ..runs.corpus import run as run_corpus

    _refuse_unknown(methods)  # before the model is loaded
    with _safe_to_stop(out), short_warnings():
        done = run_corpus(
            data,
            model=model,
            methods=methods,
            out=out,
            limit=limit,
            columns=_names(columns),
            text_field=text_field,
            pair_field=pair_field,
            ids_field=ids_field,
            split=split,
            target="predicted" if target is None else _number_or_word(target),
            foil=None if foil is None else _number_or_word(foil),
            score=score,
            query=_index_or_token(query),
            maps=_kept_maps(maps, maps_dtype),
            trust=trust,
            generate=generate,
            chat=chat,
            truncate=truncate,
            batch_tokens=batch_tokens,
            shard_rows=shard_rows,
            strict=strict,
            resume=resume,
            ray=ray,
            workers=workers,
            **loading.arguments(),
        )
    _print_run(done, json_)


def _kept_maps(maps: bool, number_type: str | None) -> bool | str:
    """Whether maps are kept, or the number type that they are kept in."""
    if number_type is not None and not maps:
        raise InputError("--maps-dtype is the number type of maps that are kept: give --maps too.")
    return (number_type or "float32") if maps else False


def _refuse_unknown(methods: str) -> None:
    """Refuse names that are neither a map nor an attribution."""
    from ..scoring.attributions import known as attributions
    from ..scoring.maps import known as maps

    known = [*maps(), *attributions()]
    for written in methods.split(","):
        name = written.strip().partition(":")[0]
        if name not in known:
            raise unknown_method(name, known)


@contextmanager
def _safe_to_stop(out: Path) -> Iterator[None]:
    """Ctrl-C within this block ends the command with one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"mixlens: stopped. What is in {printable(str(out))} is safe: the same command goes on.", file=sys.stderr)
        raise typer.Exit(130) from None


def _names(written: str | None) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in written.split(",")] if written else []


def _number_or_word(written: str) -> int | str:
    return int(written) if written.isdigit() else written


def _index_or_token(written: str | None) -> int | str | None:
    return int(written) if written is not None and written.lstrip("-").isdigit() else written


def _print_run(done: Run, json_: bool) -> None:
    """Print what a run did; a run without any row is an error."""
    if json_:
        print(printable_json(json.dumps({**vars(done), "out": str(done.out)})))
    _refuse_no_row(done)
    if not json_:
        _print_counts(done)


def _refuse_no_row(done: Run) -> None:
    if done.errors and not done.rows:
        raise MixlensError(f"no row could be explained: {_reason_in(done.out / 'errors.jsonl')}")


def _reason_in(errors: Path) -> str:
    """The reason of the first row that could not be explained, as its file says it."""
    try:
        first = json.loads(errors.read_text(encoding="utf-8").partition("\n")[0])
        return ended(str(first["reason"]))
    except (OSError, ValueError, KeyError, TypeError):  # the file was changed in the meantime
        return f"{str(errors)!r} says why."


def _print_counts(done: Run) -> None:
    rate = f", {rate_of(done.done, done.seconds)}" if done.done else ""
    print(printable(f"{done.rows} rows in {done.out / 'shards'} ({done.done} done now{rate})"))
    if done.errors:
        print(printable(f"{done.errors} rows could not be explained: {done.out / 'errors.jsonl'} says why"))


def rate_of(rows: int, seconds: float) -> str:
    """Rows a second; the seconds of one row where a row takes longer than a second."""
    each = seconds / rows
    return (
        f"{1 / each:.0f} a second" if each <= 0.1 else f"{1 / each:.1f} a second" if each <= 1 else f"{each:.1f} s each"
    )


def summarize(
    folder: Annotated[Path, typer.Argument(help="The folder of a `mixlens run`, finished or not.")],
    top: Annotated[int, typer.Option("--top", help="Tokens for each class.", min=1)] = 8,
    classes: Annotated[int, typer.Option("--classes", help="The most frequent classes.", min=1)] = 8,
    least_rows: Annotated[
        int, typer.Option("--least-rows", help="Rows that a listed word is in, at least.", min=1)
    ] = 5,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What a run found: words for and against each class, what turns without them, agreement, mixing, gaps, slow rows, errors."""
    from ..runs.corpus import summarize as summary_of
    from ..show.tables import fitted
    from ..show.text import console

    summary = summary_of(folder, top=top, classes=classes, least_rows=least_rows)
    print(summary.json() if json_ else fitted(summary.text(), console().width))
