"""`why`: the answer first."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..base.errors import InputError, printable_json
from ..base.files import refuse_foreign
from ..base.paths import is_folder
from ..scoring import command_words
from . import completion, group
from .keeping import Force, tell_written
from .options import File, Foil, LoadOptions, NoColor, Pair, Text, Truncate, loads_a_model

WHY_EXAMPLES = """Examples:

mixlens why 'A dull film, but the cast is wonderful.'

mixlens why 'The keys to the cabinet [MASK] rusty.' -m agreement --target were --foil was

mixlens why --file review.txt -m FOLDER -o why.html

Exit code 0 with an answer, also with one that its checks contradict; 2 where there is none."""
WhyModel = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="A hub id, a folder, or an embedded model: sentiment (default), agreement.",
        autocompletion=completion.models,
    ),
]
Target = Annotated[
    str | None,
    typer.Option("--target", help="The class, word or span to explain; by default what the model says."),
]
Query = Annotated[
    str | None,
    typer.Option("--query", help="A word that a tagger tags or a language model predicts: the word or an index."),
]
Lead = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="The method that leads, of `mixlens methods`; by default the table's for the task.",
        autocompletion=completion.methods,
    ),
]
Others = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Compare these methods instead; names with commas between them.",
        autocompletion=completion.methods,
    ),
]
FillerName = Annotated[
    str | None, typer.Option("--filler", help="In the place of words taken out: delete (default), mask, pad or unk.")
]
Page = Annotated[Path | None, typer.Option("--out", "--output", "-o", help="Also write one HTML page.")]
Csv = Annotated[Path | None, typer.Option("--csv", help="Also write a table of words and methods to this file.")]


@loads_a_model
def why(
    text: Text = None,
    model: WhyModel = "sentiment",
    pair: Pair = None,
    target: Target = None,
    foil: Foil = None,
    query: Query = None,
    method: Lead = None,
    methods: Others = None,
    filler: FillerName = None,
    draws: Annotated[
        int, typer.Option("--draws", help="Random sets of words; all sets where there are 200 or fewer.")
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", help="Of the random sets.")] = 0,
    truncate: Truncate = False,
    file: File = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a picture.")] = False,
    csv: Csv = None,
    out: Page = None,
    generate: Annotated[int | None, typer.Option("--generate", hidden=True)] = None,
    force: Force = False,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
    no_color: NoColor = False,
) -> None:
    """Why does the model say this of a text? Which words made it, and can that be trusted?

    The sentence comes first, then what happens without its words, then the text, the words for and against, and what
    was checked. ok: the answer falls at least 20 points more without the named words than without random ones (! from 5
    points), scores add up to within 1 % (! to 5 %), more than half of the methods put the same words first. An answer
    of less than 50 % counts as if it had 50 %: it cannot fall by much.
    """
    if generate is not None:
        raise InputError(
            f"why answers for one word or class. For a text that the model writes: mixlens explain --generate "
            f"{generate}."
        )
    written = command_words.text_of(text, file)
    names = None if methods is None else list(command_words.methods_of(methods))
    if method is not None:
        command_words.method_of(method)
    from ..show.page_file import may_write

    if out is not None:
        may_write(out, force=force)
    if csv is not None:
        if csv.suffix.lower() != ".csv":
            raise InputError(f"--csv writes a .csv file, not {csv.name!r}.")
        if not is_folder(csv.absolute().parent):
            raise InputError(f"no folder {str(csv.parent)!r} to write {csv.name!r} in.")
        refuse_foreign(csv, force=force)
    lens = loading.load(model)
    from ..answers import why as ask
    from ..show.encoding import can_show

    with group.working() as tell:
        answer = ask(
            lens,
            written,
            pair=pair,
            target=None if target is None else command_words.target_of(lens, target),
            foil=None if foil is None else command_words.target_of(lens, foil),
            query=query,
            method=method,
            methods=names,
            filler=filler,
            draws=draws,
            seed=seed,
            truncate=truncate,
            progress=tell,
        )
    if csv is not None:
        answer.to_csv(csv, force=force)
    if out is not None:
        answer.report(out, force=force)
    if json_:
        line = printable_json(answer.to_json())
        print(line if can_show(sys.stdout, line, replaced=False) else json.dumps(answer.to_dict()))
    else:
        answer.show(color=not no_color)
    tell_written(out, csv)
