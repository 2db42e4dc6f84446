"""What a command was asked: its text, its methods with their options, and errors in the words of the command line."""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.core

from .errors import InputError, MixlensError, ModelError, ResultError
from .show.encoding import make_readable

if TYPE_CHECKING:
    from .experiments.experiment import Asked
    from .model.model import Model
    from .types import Trace

LOADS = ("explain", "compare", "map", "plot", "report", "judge", "experiment", "run", "serve", "check")
PATIENCE = 1.0  # seconds without a word
STDIN = "-"


# --- texts ------------------------------------------------------------------------------------------------------------


def text_of(text: str | None, file: Path | None) -> str:
    """The text itself, `-` for standard input, or the content of --file. Line breaks at the end are no part of it."""
    if (text is None) == (file is None):
        raise InputError("give one text: in quotes, - to read it from standard input, or --file FILE.")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8-sig").rstrip("\r\n")
        except OSError as error:
            raise InputError(f"--file: {str(file)!r} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise InputError(f"--file: {str(file)!r} is not text in UTF-8.") from None
    if text != STDIN:
        return str(text)
    try:
        return sys.stdin.read().removeprefix("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError:
        raise InputError(f"standard input is not text in {sys.stdin.encoding}.") from None


# --- methods ----------------------------------------------------------------------------------------------------------


def method_of(written: str, variant: str | None = None) -> Asked:
    """`name`, or `name:option=value`; --variant is the same as `:variant=`. What is not known is refused here."""
    from dataclasses import replace

    from .experiments.experiment import asked

    made = asked(written.strip())
    if variant is None:
        return made
    if made.variant is not None and made.variant != variant:
        raise InputError(f"--variant {variant} and {written!r} name two variants. Leave one out.")
    asked(f"{made.name}:variant={variant}")  # refused where the method has no such variant
    return replace(made, variant=variant)


def methods_of(written: str, variant: str | None = None) -> dict[str, Asked]:
    """Names with commas between them, each as it was written, and what it means."""
    names = [name.strip() for name in written.split(",") if name.strip()]
    if not names:
        raise InputError("no method was asked for. Give names with commas between them.")
    return {name: method_of(name, variant) for name in names}


def class_methods() -> list[str]:
    """The methods that explain a class or a word."""
    from .attributions import known

    return [name for name, one in known().items() if one.needs_target]


def refuse_target(methods: Mapping[str, Asked], given: Mapping[str, str | None]) -> None:
    """--target, --foil and --score are for methods that explain a class or a word: one of them at least."""
    if all(value is None for value in given.values()) or any(one.class_specific for one in methods.values()):
        return
    *names, last = (f"--{name}" for name in given)
    who = ", ".join(map(repr, methods))
    raise InputError(
        f"{who} {'explains' if len(methods) == 1 else 'explain'} a position, whatever the class or word: leave "
        f"{', '.join(names)} and {last} out, or take a method that explains a class or word: {', '.join(class_methods())}."
    )


def target_of(lens: Model, given: str | None) -> Any:
    """A class, a word, an id, or `start,end` of a span. Digits that are a token of a language model are that token."""
    from .targets import token_id

    if given is None:
        return "predicted"
    if given == "gold":
        raise InputError("--target gold takes each row's own label, in `mixlens run`. Here, name the class or the word.")
    if given.isdigit() and lens.task in ("masked-lm", "causal-lm") and lens.tokenizer is not None:
        try:
            return token_id(lens, given)
        except InputError:  # no token is called so: an id
            return int(given)
    parts = given.split(",")
    if lens.task == "question-answering" and len(parts) == 2 and all(part.strip().isdigit() for part in parts):
        return int(parts[0]), int(parts[1])
    return int(given) if given.isdigit() else given


def targets_of(lens: Model, target: str | None, foil: str | None, score: str | None) -> dict[str, Any]:
    """What a method that explains a class or a word is told."""
    return {"target": target_of(lens, target), "foil": None if foil is None else target_of(lens, foil), "score": score}


def place_of(trace: Trace, query: str | None) -> int | None:
    """A token of the text, or an index."""
    from .aggregate import find

    if query is None:
        return None
    try:
        return find(trace.tokens, query)
    except InputError:
        if query.lstrip("-").isdigit():
            return find(trace.tokens, int(query))
        raise


def place_meant(trace: Trace, query: str | None, target: str | None, method: str) -> int | None:
    """The position of a method that explains one: --query, or a --target that is a token or an index."""
    if query is not None or target is None:
        return place_of(trace, query)
    try:
        return place_of(trace, target)
    except InputError as error:
        if "occurs" in str(error) or "out of range" in str(error):
            raise
        raise InputError(
            f"{method!r} explains a position, and no token of the text is {target!r}. For a class or a word take a method "
            f"that explains one (--method): {', '.join(class_methods())}."
        ) from None


# --- the command line itself ------------------------------------------------------------------------------------------

PYTHON = re.compile(r"\b([a-z_]+)=(\([^()]*\)|'[^']*'|[A-Z]+\b|\.\.\.)?(?!\w)")


def as_written(message: str, options: Iterable[str], methods: Iterable[str] = ()) -> str:
    """An error of the library in the words of the command line: `query=` is `--query`, and an option of a method that was
    asked for, such as replacement='delete' of blank_out, is `--method blank_out:replacement=delete`."""
    known = set(options)
    own = _method_options(methods)

    def written(found: re.Match[str]) -> str:
        name, value = found[1], (found[2] or "").strip("'")
        if name in known:
            simple = value.strip("()").replace(", ", ",")
            return f"--{name.replace('_', '-')}" + (f" {simple}" if simple else "")
        if name in own and value:
            return f"--method {own[name]}:{name}={value}"
        return found[0]

    return PYTHON.sub(written, message)


def _method_options(methods: Iterable[str]) -> dict[str, str]:
    """The options of the methods that were asked for, each with its method's name."""
    names = [name.strip().partition(":")[0] for one in methods for name in one.split(",")]
    if not names or "mixlens.attributing" not in sys.modules:
        return {}
    from .attributions import known as attributions
    from .maps import known as maps

    every = {**maps(), **attributions()}
    return {option: name for name in names if name in every for option in every[name].options}


class Commands(typer.core.TyperGroup):
    """All commands: their output can be read in any terminal, waiting is told of, and errors name options that exist."""

    def invoke(self, ctx: Any) -> Any:
        make_readable(sys.stdout)
        # What scores miss stands above them, in the header: once is enough.
        warnings.filterwarnings("ignore", message=r"\w+: (the scores add|the relevance of a layer adds) up to")
        return super().invoke(ctx)

    def get_command(self, ctx: Any, name: str) -> Any:
        found = super().get_command(ctx, name)
        if found is not None and not hasattr(found, "_in_its_words"):
            found._in_its_words = True  # type: ignore[attr-defined]
            found.invoke = _in_its_words(found, found.invoke)  # type: ignore[method-assign]
        return found


def _in_its_words(command: Any, invoke: Any) -> Any:
    def told(ctx: Any) -> Any:
        try:
            with Loading(command.name):
                return invoke(ctx)
        except MixlensError as error:
            options = [parameter.name for parameter in command.params if any(one.startswith("--") for one in parameter.opts)]
            methods = [value for name in ("method", "methods") if isinstance(value := ctx.params.get(name), str)]
            message = as_written(str(error), options, methods)
            if message == str(error):
                raise
            kind = type(error) if type(error) in (InputError, ModelError, ResultError) else MixlensError
            raise kind(message) from error

    return told


class Loading:
    """A line on a terminal when nothing has come for a while: most of that time torch and the weights are read."""

    def __init__(self, command: str | None, *, patience: float = PATIENCE):
        wanted = command in LOADS and sys.stderr is not None and sys.stderr.isatty()
        self._timer = threading.Timer(patience, self._say) if wanted else None

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
        LOADING[:] = [one for one in LOADING if one is not self]


LOADING: list[Loading] = []  # of the command that runs


def loaded() -> None:
    """The model is there: nothing more needs to be said about waiting."""
    for one in LOADING:
        one.end()
