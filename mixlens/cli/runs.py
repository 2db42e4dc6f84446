"""`run` and `summarize`: many texts, folders of results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..base.errors import InputError, MixlensError, ended, printable, printable_json
from . import completion
from .group import short_warnings
from .options import Foil, LoadOptions, ModelName, Query, Score, Truncate, loads_a_model

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
    from ..scoring.registry import any_method

    for written in methods.split(","):  # before the model is loaded
        any_method(written.strip().partition(":")[0])
    if maps_dtype is not None and not maps:
        raise InputError("--maps-dtype is the number type of maps that are kept: give --maps too.")
    try:
        with short_warnings():
            done = run_corpus(
                data,
                model=model,
                methods=methods,
                out=out,
                limit=limit,
                columns=[name.strip() for name in columns.split(",")] if columns else [],
                text_field=text_field,
                pair_field=pair_field,
                ids_field=ids_field,
                split=split,
                target="predicted" if target is None else int(target) if target.isdigit() else target,
                foil=int(foil) if foil is not None and foil.isdigit() else foil,
                score=score,
                query=int(query) if query is not None and query.lstrip("-").isdigit() else query,
                maps=(maps_dtype or "float32") if maps else False,
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
    except KeyboardInterrupt:
        print(f"mixlens: stopped. What is in {printable(str(out))} is safe: the same command goes on.", file=sys.stderr)
        raise typer.Exit(130) from None
    errors = done.out / "errors.jsonl"
    if json_:
        print(printable_json(json.dumps({**vars(done), "out": str(done.out)})))
    if done.errors and not done.rows:
        try:
            reason = ended(str(json.loads(errors.read_text(encoding="utf-8").partition("\n")[0])["reason"]))
        except (OSError, ValueError, KeyError, TypeError):  # the file was changed in the meantime
            reason = f"{str(errors)!r} says why."
        raise MixlensError(f"no row could be explained: {reason}")
    if not json_:
        rate = f", {rate_of(done.done, done.seconds)}" if done.done else ""
        print(printable(f"{done.rows} rows in {done.out / 'shards'} ({done.done} done now{rate})"))
        if done.errors:
            print(printable(f"{done.errors} rows could not be explained: {errors} says why"))


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
    """What a run found: words for and against each class, what turns without them, agreement, mixing, gaps, slow rows,
    errors."""
    from ..runs.corpus import summarize as summary_of
    from ..show.tables import fitted
    from ..show.text import console

    summary = summary_of(folder, top=top, classes=classes, least_rows=least_rows)
    print(summary.json() if json_ else fitted(summary.text(), console().width))
