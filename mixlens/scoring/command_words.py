"""What a command names in words: a text, methods, a target and a position.

The module imports torch only when a function is called, because the command line imports it at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError, printable
from .asking import MethodRequest, parse_method

if TYPE_CHECKING:
    from ..model.model import Model
    from ..types import Trace

STDIN = "-"


def text_of(text: str | None, file: Path | None) -> str:
    """The text itself, `-` for standard input, or the content of --file. Line breaks at the end are no part of it."""
    if (text is None) == (file is None):
        raise InputError("give one text: in quotes, - to read it from standard input, or --file FILE.")
    try:
        if file is not None:
            return file.read_text(encoding="utf-8-sig").rstrip("\r\n")
        if text == STDIN:
            return sys.stdin.read().removeprefix("\ufeff").rstrip("\r\n")
    except OSError as error:
        raise InputError(f"--file: {str(file)!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        if file is None:
            raise InputError(f"standard input is not text in {sys.stdin.encoding}.") from None
        raise InputError(f"--file: {str(file)!r} is not text in UTF-8.") from None
    if os.path.isfile(str(text)):  # False also for a text that is too long for a name
        line = f"{text!r} is a file, and its name is explained as a text. For what it holds: --file {text}"
        print(f"mixlens: {printable(line)}", file=sys.stderr)
    return str(text)


# --- methods ----------------------------------------------------------------------------------------------------------


def method_of(written: str, variant: str | None = None) -> MethodRequest:
    """`name`, or `name:option=value`; --variant is the same as `:variant=`. An unknown method is refused."""
    request = parse_method(written.strip())
    if variant is None:
        return request
    if request.variant is not None and request.variant != variant:
        raise InputError(f"--variant {variant} and {written!r} name two variants. Leave one out.")
    parse_method(f"{request.name}:variant={variant}")  # refused where the method has no such variant
    return replace(request, variant=variant)


def methods_of(written: str, variant: str | None = None) -> dict[str, MethodRequest]:
    """Names with commas between them, each as it was written, and its request."""
    names = list(filter(None, map(str.strip, written.split(","))))
    if not names:
        raise InputError("no method was asked for. Give names with commas between them.")
    return {name: method_of(name, variant) for name in names}


def class_methods() -> str:
    """The methods that explain a class or a word, with commas."""
    from .registry import known_attributions

    return ", ".join(name for name, method in known_attributions().items() if method.needs_target)


def refuse_target(methods: Mapping[str, MethodRequest], options: Mapping[str, str | None]) -> None:
    """--target, --foil and --score need a method that explains a class or a word; without one they are refused."""
    if all(value is None for value in options.values()) or any(one.class_specific for one in methods.values()):
        return
    who, verb = ", ".join(map(repr, methods)), "explains" if len(methods) == 1 else "explain"
    *first, last = [f"--{name}" for name in options]
    left = f"{', '.join(first)} and {last}" if first else last
    raise InputError(
        f"{who} {verb} a position, whatever the class or word: leave {left} out, "
        f"or take a method that explains a class or word: {class_methods()}."
    )


def head_of(request: MethodRequest, head: str | None) -> MethodRequest:
    """A method with the head of --head: a number counted from 1, or all. A method without heads is refused."""
    if head is None:
        return request
    from .registry import method

    known = method(request.name)  # an attribution to a prediction has no map
    if head != "all" and not (head.isdecimal() and int(head) > 0):
        raise InputError(f"--head is a number, counted from 1, or all, not {head!r:.40}.")
    options = {**request.options, "head": head if head == "all" else int(head) - 1}
    known.arguments(request.variant, options)
    return replace(request, options=options)


def refuse_head(trace: Trace, request: MethodRequest) -> None:
    """Refuse a head that the model's layers do not have; heads are counted from 1, as --head does."""
    head, layer = request.options.get("head"), trace.layers[0]
    heads = (layer.weights if layer.query is None else layer.query).shape[-3]  # type: ignore[union-attr]
    if isinstance(head, int) and head >= heads:
        raise InputError(
            f"head {head + 1} does not exist: {trace.model.name!r} has heads 1 to {heads} in a layer, or all."
        )


# --- targets and positions --------------------------------------------------------------------------------------------


def target_of(lens: Model, written: str | None) -> Any:
    """A class, a word, an id, or `start,end` of a span. Digits that are a token of a language model are that token."""
    from ..model.vocabulary import token_id

    if written is None:
        return "predicted"
    if written == "gold":
        raise InputError(
            "--target gold takes each row's own label, in `mixlens run`. Here, name the class or the word."
        )
    if written.isdigit():
        if lens.task in ("masked-lm", "causal-lm") and lens.tokenizer is not None:
            try:
                return token_id(lens, written)
            except InputError:
                pass  # no token has this name, so the digits are an id
        return int(written)
    start, _, end = written.partition(",")
    is_span = lens.task == "question-answering" and start.strip().isdigit() and end.strip().isdigit()
    return (int(start), int(end)) if is_span else written


def targets_of(lens: Model, target: str | None, foil: str | None, score: str | None) -> dict[str, Any]:
    """The options that a method for a class or a word gets."""
    return {"target": target_of(lens, target), "foil": None if foil is None else target_of(lens, foil), "score": score}


def place_of(trace: Trace, query: str | None) -> int | None:
    """The position of a token of the text, or of an index."""
    from .aggregate import find

    if query is None:
        return None
    try:
        return find(trace.tokens, query)
    except InputError:
        if query.lstrip("-").isdigit():
            return find(trace.tokens, int(query))
        raise


def row_of(trace: Trace, query: str | None) -> int | None:
    """`place_of` the row of a map. The refusal of a class of the model says what explains one."""
    try:
        return place_of(trace, query)
    except InputError as error:
        if query in (getattr(trace.model.hf_model.config, "id2label", None) or {}).values():
            raise InputError(
                f"{error} A class is explained by mixlens explain --method deeplift --target {query}."
            ) from None
        raise


def place_meant(trace: Trace, query: str | None, target: str | None, method: str) -> int | None:
    """The position that a method for positions explains: --query, or a --target that is a token or an index. A class
    or a word is refused: `why` picks a method by itself, but for a word of several tokens, which it refuses."""
    from .targets import pieces_meant

    if query is not None or target is None:
        return place_of(trace, query)
    try:
        return place_of(trace, target)
    except InputError as error:
        if "occurs" in str(error) or "out of range" in str(error):
            raise
        by_itself = "" if pieces_meant(trace.model, target) else " `mixlens why` picks one by itself."
        raise InputError(
            f"{method!r} explains a position, and no token of the text is {target!r}. For a class or a word take a "
            "method "
            f"that explains one (--method): {class_methods()}.{by_itself}"
        ) from None
