"""`report` and `serve`: pages for a browser."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import InputError, MixlensError, printable
from ..base.optional import installing
from ..scoring import command_words
from ..show.page_file import MEGABYTES
from . import completion, group
from .generation import GenerateCount, GivenText, IsChat, MessageFile, Writing, conversations_of
from .keeping import tell_notices
from .options import AttributionTarget, Foil, LoadOptions, ModelName, Pair, Query, loads_a_model

if TYPE_CHECKING:
    from ..scoring.asking import MethodRequest

REPORT_EXAMPLES = """Example:  mixlens report 'The keys to the cabinet [MASK] rusty.' --methods alti,globenc,attcat -o report.html

A text that the model writes:  mixlens report 'The cat likes' --generate 12 --model MY-WRITER -o written.html

A whole run:  mixlens report runs/corpus -o corpus.html

A saved result:  mixlens report --from map.safetensors -o map.html"""  # noqa: E501
SERVE_EXAMPLE = "Example:  mixlens serve --model agreement --model sentiment"


@loads_a_model
def report(
    texts: Annotated[
        list[str] | None, typer.Argument(help="One text or several, each in quotes; or the folder of a `mixlens run`.")
    ] = None,
    output: Annotated[Path, typer.Option("--out", "--output", "-o", help="The file to write.")] = Path("report.html"),
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="Names with commas between them; options as name:option=value. Default: those of the preset, or "
            "three maps.",
            autocompletion=completion.methods,
        ),
    ] = None,
    from_: Annotated[
        list[Path] | None,
        typer.Option("--from", help="A saved result to show instead (.safetensors, .json); may be given again."),
    ] = None,
    model: ModelName = "agreement",
    query: Query = None,
    target: AttributionTarget = None,
    foil: Foil = None,
    pair: Pair = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            help="What the page is for: why (the answer alone), flow (what flows where), methods (compared).",
        ),
    ] = None,
    generate: GenerateCount = None,
    continuation: GivenText = None,
    chat: IsChat = False,
    messages: MessageFile = None,
    title: Annotated[str | None, typer.Option("--title", help="The heading of the page.")] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", help="Of a run: the carried column that says what is right. Default: label."),
    ] = None,
    examples: Annotated[
        int | None, typer.Option("--examples", help="Of a run: about how many rows to show (60).", min=0)
    ] = None,
    megabytes: Annotated[
        float, typer.Option("--megabytes", help="The most that one text, or a run, may take in the file.")
    ] = MEGABYTES,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is not a report, too.")] = False,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
) -> None:
    """One HTML file: the maps of texts, saved results, a text that the model writes, or a run. Opens from disk, needs
    no network."""
    from ..show.report import checked, may_write, refuse_preset
    from ..show.report import report as write_report

    may_write(output, force=force)
    page: dict[str, Any] = {"title": title, "megabytes": megabytes, "force": force}
    refuse_preset(preset)
    texts, saved = texts or [], from_ or []
    folder = _run_folder(texts)
    writing = Writing(generate, continuation, True, False, None)
    question = (methods, target, foil, query, pair, preset, writing.asked, chat, messages)
    if folder is None and (label, examples) != (None, None):
        raise InputError("--label and --examples are for the folder of a run.")
    if folder is not None:
        if any([saved, *question]):
            raise InputError(
                "a run is shown as it is: leave --from, --methods, --target, --foil, --query, --pair, --preset, "
                "--generate, "
                "--continuation, --chat and --messages out."
            )
        with group.working("reading the run"):
            write_report(folder, output, label=label, examples=examples, **page)
    elif saved:
        if any([texts, *question]):
            raise InputError(
                "--from shows saved results as they are: leave texts, --methods, --target, --foil, --query, --pair, "
                "--preset, "
                "--generate, --continuation, --chat and --messages out."
            )
        write_report(_results_in(saved), output, **page)
    else:
        inputs = _inputs(texts, pair, chat, messages)
        if writing.asked:
            only = {"target": target, "query": query, "preset": preset}
            request = _method_of_written(inputs, methods, foil, only, megabytes)
        else:  # what cannot be asked is refused before the model is loaded
            names = None if methods is None else checked(methods.split(","))
        lens = loading.load(model)
        if len(texts) == 1 and len(texts[0].split()) == 1:
            meant = "For a run give its folder."
            if os.path.isfile(texts[0]):
                rows = f"It is a file: mixlens run {texts[0]} --out FOLDER explains its rows, then mixlens report"
                meant = f"{rows} FOLDER shows them."
            line = f"{texts[0]!r:.200} is no folder, so it is shown as a text of one word. {meant}"
            print(f"mixlens: {printable(line)}", file=sys.stderr)
        with group.working("computing the page"):
            if writing.asked:
                result = writing.generated(lens, inputs[0], request, (None, foil, None), keep_special=True)
                write_report(result, output, title=title, force=force)
            else:
                against = None if foil is None else command_words.target_of(lens, foil)
                goal = {"target": command_words.target_of(lens, target), "foil": against}
                write_report(lens, output, texts=inputs, methods=names, preset=preset, query=query, **goal, **page)
        if not writing.asked:
            tell_notices(lens, map(lens.encode, inputs), query)
    print(printable(f"{output} ({output.stat().st_size / 1e6:.2f} MB)"))


def _method_of_written(
    inputs: Sequence[Any], methods: str | None, foil: str | None, others: Mapping[str, str | None], megabytes: float
) -> MethodRequest:
    """The method of a page of one written text, which explains every written word and holds every number."""
    given = [f"--{name}" for name, value in others.items() if value is not None]
    given += ["--megabytes"] if megabytes != MEGABYTES else []
    if given:
        raise InputError(
            "--generate and --continuation make a page of what each written word rests on, which has no "
            f"{' and no '.join(given)}: leave the one or the other out."
        )
    if len(inputs) > 1:
        raise InputError(f"the page of a written text goes with one text, not with {len(inputs)}.")
    requests = command_words.methods_of(methods or "alti")
    if len(requests) > 1:
        raise InputError(
            f"the page of a written text is made by one method, not by {len(requests)}: name one with --methods."
        )
    command_words.refuse_target(requests, {"foil": foil})
    return next(iter(requests.values()))


def _results_in(files: Sequence[Path]) -> Any:
    """The saved results of a report, or the written text that a single file holds."""
    from ..answers.generation import Generation
    from ..answers.generation.files import is_generation
    from ..scoring.saving import load_result

    if not any(map(is_generation, files)):
        return list(map(load_result, files))
    if len(files) > 1:
        raise InputError("the page of a written text shows that text alone: give its file to --from without others.")
    return Generation.load(files[0])


def _inputs(texts: Sequence[str], pair: str | None, chat: bool, messages: Path | None) -> list[Any]:
    """The texts of a report, one text with its pair, or conversations."""
    conversations = conversations_of(texts, chat, messages, pair)
    if conversations is not None:
        return conversations
    if not texts:
        raise InputError("give at least one text, --messages, the folder of a run, or --from with a saved result.")
    if pair is None:
        return list(texts)
    if len(texts) > 1:
        raise InputError(f"--pair goes with one text, not with {len(texts)}.")
    return [(texts[0], pair)]


def _run_folder(arguments: Sequence[str]) -> Path | None:
    """The folder of a run, if the arguments name one. A path without a folder is no text that anyone wants
    explained."""
    for argument in arguments:
        is_folder = os.path.isdir(argument)  # False also for a text that is too long for a name
        if is_folder and len(arguments) > 1:
            raise InputError(f"{argument!r} is a folder, and a report shows one run: give it alone.")
        if not is_folder and "/" in argument and not any(map(str.isspace, argument)):
            raise InputError(
                f"there is no folder {argument!r:.200}. Give the folder of a run, or texts with spaces in them."
            )
    return Path(arguments[0]) if len(arguments) == 1 and os.path.isdir(arguments[0]) else None


@loads_a_model
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A hub id, a folder or an embedded model; may be given again.",
            autocompletion=completion.models,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on. Others than 127.0.0.1 open it to others.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", help="0 takes any free one.", min=0, max=65535)] = 8765,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A name by which browsers may reach it; may be given again."),
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="The longest text, in tokens.", min=1)] = 512,
    queue: Annotated[int, typer.Option("--queue", help="How many texts may wait.", min=1)] = 8,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds that one text may take.", min=0.1)] = 120.0,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
) -> None:
    """Ask why, what flows where, or how methods compare, in the browser. Listens on this machine alone."""
    try:
        from ..serve.app import Limits, run
    except ImportError as error:
        raise MixlensError(f"the local page needs {error.name}: {installing('serve')}.") from None
    names = list(dict.fromkeys(model or ["agreement", "sentiment"]))
    limits = Limits(tokens=max_tokens, queue=queue, seconds=time_limit)
    lenses = [loading.load(name) for name in names]
    run(lenses, host=host, port=port, allowed=tuple(allow_host or ()), limits=limits)
