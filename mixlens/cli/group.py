"""All commands as one group: readable output in any terminal, a word about waiting, errors in the words of the command
line."""

from __future__ import annotations

import contextlib
import gc
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import typer
import typer.core

from ..base.errors import InputError, MixlensError, ModelError, ResultError, printable
from ..show.encoding import make_readable
from .waiting import PATIENCE, Spinner

LOADS = (
    "why",
    "explain",
    "compare",
    "map",
    "plot",
    "report",
    "judge",
    "experiment",
    "reproduce",
    "run",
    "serve",
    "check",
)
WRITTEN = "mixlens.written"  # key of a context's `meta`: the arguments as they were written
UsageError: Any = typer.BadParameter.__mro__[1]  # click's class, from whichever click typer brings
PYTHON = re.compile(r"\b([a-z_]+)=(\([^()]*\)|'[^']*'|[A-Z]+\b|\.\.\.)?(?!\w)")

DRAWN = (
    " A written text is drawn by `mixlens explain TEXT --generate N -o FILE.html` (a page), in Python by "
    "model.explain(TEXT, generate=N).plot().save(FILE)."
)
# (command, option that it has not) -> where it is found
ELSEWHERE = {("plot", "--generate"): DRAWN, ("plot", "--continuation"): DRAWN}


# --- errors -----------------------------------------------------------------------------------------------------------


def as_written(message: str, options: Iterable[str], methods: Iterable[str] = ()) -> str:
    """An error of the library in the words of the command line: `query=` is `--query`, and an option of a method that
    was asked for, such as replacement='delete' of blank_out, is `--method blank_out:replacement=delete`."""
    names = set(options)
    owners: dict[str, str] = {}
    if "mixlens.scoring.attributions" in sys.modules:
        from ..scoring.registry import seek

        for method in [one.strip().partition(":")[0] for written in methods for one in written.split(",")]:
            entry = seek(method)
            owners |= {} if entry is None else dict.fromkeys(entry.options, method)
    flag = "--methods" if "methods" in names and "method" not in names else "--method"

    def in_words(match: re.Match[str]) -> str:
        name, value = match[1], (match[2] or "").strip("'")
        if name in names:
            return f"--{name.replace('_', '-')} {value.strip('()').replace(', ', ',')}".rstrip()
        return f"{flag} {owners[name]}:{name}={value}" if name in owners and value else match[0]

    return PYTHON.sub(in_words, message)


@contextlib.contextmanager
def usage_errors_in_one_line(written: Sequence[str]) -> Iterator[None]:
    """An error of how a command was written (`written`: its arguments) is shown in one line, as all other errors
    are."""
    try:
        yield
    except UsageError as error:
        if "\n" not in error.format_message():  # else it is the help of a command without arguments
            line = f"mixlens: {usage_line(error, written)}"
            error.show = lambda file=None: print(line, file=file or sys.stderr)
        raise


def usage_line(error: Any, written: Sequence[str]) -> str:
    """What is wrong with a command as it was written, what came, and where all that is allowed is listed."""
    message = " ".join(printable(error.format_message()).split())
    values = [_value_after(flag, written) for flag in getattr(getattr(error, "param", None), "opts", ())]
    came = "".join(f" (not {value!r})" for value in values if value and repr(value) not in message)
    place = error.ctx.command_path if error.ctx else " ".join(["mixlens", *written[:1]])
    end = "" if not came and message.endswith((".", "?")) else "."
    command = error.ctx.command.name if error.ctx else ""
    elsewhere = ELSEWHERE.get((command, getattr(error, "option_name", "")), "")
    return f"{message[:1].lower()}{message[1:]}{came}{end}{elsewhere} See {place} --help."


def _value_after(flag: str, written: Sequence[str]) -> str:
    """The value that was written for an option, as `--option value` or `--option=value`; nothing where there is
    none."""
    for word, value in zip(written, [*written[1:], ""], strict=True):
        if word == flag:
            return value
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return ""


class Commands(typer.core.TyperGroup):
    """All commands. Their output can be read in any terminal, a slow start is announced, and errors name options that
    exist."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        written = list(args)
        with usage_errors_in_one_line(written):
            ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[WRITTEN] = written
        return ctx

    def invoke(self, ctx: Any) -> Any:
        make_readable(sys.stdout)
        # The header above the scores says what they miss: once is enough.
        warnings.filterwarnings("ignore", message=r"\w+: (the scores add|the relevance of a layer adds) up to")
        with usage_errors_in_one_line(ctx.meta.get(WRITTEN, [])):
            return super().invoke(ctx)

    def get_command(self, ctx: Any, name: str) -> Any:
        command = super().get_command(ctx, name)
        if command is not None and not hasattr(command, "_in_its_words"):
            command._in_its_words = True  # type: ignore[attr-defined]
            command.invoke = with_its_words(command, command.invoke)  # type: ignore[method-assign]
        return command


def with_its_words(command: Any, invoke: Any) -> Any:
    """`invoke` of a command, with errors in the words of that command."""

    def invoked(ctx: Any) -> Any:
        try:
            with Loading(command.name):
                return invoke(ctx)
        except MixlensError as error:
            options = [one.name for one in command.params if any(flag.startswith("--") for flag in one.opts)]
            values = (ctx.params.get("method"), ctx.params.get("methods"))
            message = as_written(str(error), options, [value for value in values if isinstance(value, str)])
            if message == str(error):
                raise
            kind = type(error) if type(error) in (InputError, ModelError, ResultError) else MixlensError
            raise kind(message) from error

    return invoked


@contextlib.contextmanager
def short_warnings(*options: str) -> Iterator[None]:
    """Warnings within this block are one line each, without the place in the code; they name these options as flags."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"mixlens: {printable(as_written(str(message), options))}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


# --- waiting ----------------------------------------------------------------------------------------------------------


class Loading(Spinner):
    """The wait of a command that loads a model, until it is loaded.

    Python looks for garbage many times while torch and transformers are imported, and there is none: one eighth of the
    time. It is not looked for until the model is loaded, and what was imported is left out later.
    """

    def __init__(self, command: str | None, *, patience: float = PATIENCE):
        self._quick = command in LOADS and gc.isenabled()
        super().__init__("loading torch, then the model", patience=patience, shown=command in LOADS)

    def __enter__(self) -> Loading:
        LOADING.append(self)
        if self._quick:
            gc.disable()
        super().__enter__()
        return self

    def end(self) -> None:
        super().end()
        if self._quick and not gc.isenabled():
            gc.freeze()
            gc.enable()

    def __exit__(self, *_: Any) -> None:
        self.end()
        if self._quick:
            gc.unfreeze()
        LOADING[:] = [loading for loading in LOADING if loading is not self]


LOADING: list[Loading] = []  # of the command that runs


def loaded() -> None:
    """The model is loaded: the wait is over."""
    for loading in LOADING:
        loading.end()


@contextlib.contextmanager
def working(step: str = "computing") -> Iterator[Callable[[str], None]]:
    """While something is computed: yields a function that is told each step. What is printed comes after it."""
    from ..base.steps import listening

    with Spinner(step, lines=True) as spinner, listening(spinner.hear):
        yield spinner.tell
