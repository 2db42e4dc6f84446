"""All commands as one group: readable output in any terminal, a word about waiting, errors in the words of the command line."""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import typer.core

from ..errors import InputError, MixlensError, ModelError, ResultError
from ..show.encoding import make_readable

LOADS = ("explain", "compare", "map", "plot", "report", "judge", "experiment", "reproduce", "run", "serve", "check")
PATIENCE = 1.0  # seconds of silence before a command says that it loads
PYTHON = re.compile(r"\b([a-z_]+)=(\([^()]*\)|'[^']*'|[A-Z]+\b|\.\.\.)?(?!\w)")


# --- errors -------------------------------------------------------------------------------------------------------------


def as_written(message: str, options: Iterable[str], methods: Iterable[str] = ()) -> str:
    """An error of the library in the words of the command line: `query=` is `--query`, and an option of a method that was
    asked for, such as replacement='delete' of blank_out, is `--method blank_out:replacement=delete`."""
    names, owners = set(options), _method_options(methods)
    return PYTHON.sub(lambda match: _in_words(match, names, owners), message)


def _in_words(match: re.Match[str], options: set[str], owners: Mapping[str, str]) -> str:
    """One `name=value` of Python as the command line writes it; what is no option stays as it is."""
    name, value = match[1], (match[2] or "").strip("'")
    if name in options:
        simple = value.strip("()").replace(", ", ",")
        return f"--{name.replace('_', '-')}" + (f" {simple}" if simple else "")
    return f"--method {owners[name]}:{name}={value}" if name in owners and value else match[0]


def _method_options(methods: Iterable[str]) -> dict[str, str]:
    """The options of the methods that were asked for, each with its method's name."""
    names = [name.strip().partition(":")[0] for written in methods for name in written.split(",")]
    if not names or "mixlens.attributions" not in sys.modules:
        return {}
    from ..attributions import known as attributions
    from ..maps import known as maps

    every = {**maps(), **attributions()}
    return {option: name for name in names if name in every for option in every[name].options}


class Commands(typer.core.TyperGroup):
    """All commands. Their output can be read in any terminal, a slow start is announced, and errors name options that exist."""

    def invoke(self, ctx: Any) -> Any:
        make_readable(sys.stdout)
        # The header above the scores says what they miss: once is enough.
        warnings.filterwarnings("ignore", message=r"\w+: (the scores add|the relevance of a layer adds) up to")
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
            message = _message(error, command, ctx)
            if message == str(error):
                raise
            kind = type(error) if type(error) in (InputError, ModelError, ResultError) else MixlensError
            raise kind(message) from error

    return invoked


def _message(error: MixlensError, command: Any, ctx: Any) -> str:
    options = [parameter.name for parameter in command.params if any(flag.startswith("--") for flag in parameter.opts)]
    methods = [value for name in ("method", "methods") if isinstance(value := ctx.params.get(name), str)]
    return as_written(str(error), options, methods)


# --- waiting ------------------------------------------------------------------------------------------------------------


class Loading:
    """A line on a terminal after a while of silence: most of that time torch and the weights are read."""

    def __init__(self, command: str | None, *, patience: float = PATIENCE):
        announces = command in LOADS and sys.stderr is not None and sys.stderr.isatty()
        self._timer = threading.Timer(patience, self._say) if announces else None

    def _say(self) -> None:
        print("mixlens: loading (torch, then the model) ...", file=sys.stderr, flush=True)

    def __enter__(self) -> Loading:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
            LOADING.append(self)
        return self

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def __exit__(self, *_: Any) -> None:
        self.end()
        LOADING[:] = [loading for loading in LOADING if loading is not self]


LOADING: list[Loading] = []  # of the command that runs


def loaded() -> None:
    """The model is loaded: the line about waiting is not printed any more."""
    for loading in LOADING:
        loading.end()
