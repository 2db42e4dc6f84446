"""What a corpus run asks of every row, checked before a row is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...base.errors import InputError, is_text, methods_within, nearest
from ...base.text import listed
from ...model.model import Model
from ...scoring.asking import MethodRequest
from ...scoring.attributions import known as attributions
from ...scoring.targets import SCORES, output_id
from .rows import LIMITS

COLUMNS = (  # columns of every run; a carried column may not have the name of one
    *("row", "id", "text", "pair", "input_ids", "tokens", "starts", "ends", "segments"),
    *("word_texts", "words_before", "word_of_token", "query"),
    *("prediction", "probability", "target", "gap", "seconds"),
)
WORDS, BEFORE, WORD_OF = COLUMNS[9:12]  # the words of a row, what stands before each, and of each token its word
RATIO = "mixing_ratio:"  # then the method
WITHOUT = "without:"  # then the method: the probability left for the prediction without the method's first words
TURNED = "turned:"  # then the method: whether the prediction turned
COMPLETENESS = "completeness:"  # then the method: by how much its scores miss their sum
RANDOM_WITHOUT, RANDOM_TURNED = "without_random", "turned_random"  # the same for each random set of words
WRITTEN_SCORES = "written:"  # then the method: its scores for every written token, one row after the other
WRITTEN = ("written", "written_ids", "probabilities", "layout")  # what the model wrote, and its words
CUT = "truncated"  # how many tokens the text had before it was cut
PREFIXES = (RATIO, WITHOUT, TURNED, COMPLETENESS, WRITTEN_SCORES)
COMPUTED = (*COLUMNS, RANDOM_WITHOUT, RANDOM_TURNED)
DTYPES = ("float32", "float16")


@dataclass(frozen=True)
class Plan:
    """What is asked of every row."""

    methods: tuple[str, ...]
    target: Any = "predicted"
    foil: str | int | None = None
    score: str | None = None
    query: int | str | None = None
    maps: str | None = None  # the number type maps are kept in
    batch_tokens: int | None = None
    columns: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()  # (column, type) of carried columns that are no text
    trust: bool = False  # whether the first words are taken out, and random words beside them
    generate: int | None = None  # how many tokens the model writes after each row, which are then explained
    chat: bool = False  # whether rows are conversations, which the model's chat template writes out
    truncate: bool = False  # whether a text that is longer than the model reads is cut


def plan_of(
    methods: Any,
    target: Any,
    foil: Any,
    score: Any,
    query: Any,
    maps: Any,
    batch_tokens: Any,
    columns: Any,
    trust: Any = False,
    generate: Any = None,
    chat: Any = False,
    truncate: Any = False,
) -> Plan:
    """The plan that the arguments of `run` mean."""
    if not all(isinstance(names, str | Sequence) for names in (methods, columns)):
        raise InputError("methods and columns are lists of names.")
    names = list(filter(None, map(str.strip, methods.split(",")) if isinstance(methods, str) else methods))
    methods_within(names, LIMITS.methods)
    if not all(isinstance(name, str) for name in names):
        raise InputError("methods are names, as `mixlens methods` lists them.")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"a method is named twice: {', '.join(sorted(twice))}.")
    number_type = "float32" if maps is True else maps or None
    if number_type not in (None, *DTYPES):
        raise InputError(f"maps are kept as {' or '.join(DTYPES)}, not {maps!r}.")
    if batch_tokens is not None and not is_count(batch_tokens):
        raise InputError(f"batch_tokens= must be at least 1, not {batch_tokens!r}.")
    _refuse_question(names, target, foil, score, query)
    flags = {"trust": trust, "chat": chat, "truncate": truncate}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InputError(f"{name} is True or False, not {value!r:.80}.")
    if chat and truncate:
        raise InputError(
            "truncate= cuts a text, and a conversation is written out whole: leave truncate= out, or chat=."
        )
    if generate is not None:
        if not is_count(generate):
            raise InputError(f"generate= is how many tokens the model writes, at least 1, not {generate!r:.80}.")
        others = {"target": target != "predicted", "query": query is not None, "maps": maps, "trust": trust}
        given = [f"{name}=" for name, value in others.items() if value]
        if given:
            raise InputError(f"generate= explains each token that the model writes: leave {' and '.join(given)} out.")
    carried = tuple([columns] if isinstance(columns, str) else columns)
    _refuse_columns(carried, names, trust=trust, generate=generate is not None, truncate=truncate)
    return Plan(
        tuple(names), target, foil, score, query, number_type, batch_tokens, carried, generate=generate, **flags
    )


def is_count(value: Any) -> bool:
    """A whole number of at least 1; True is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _refuse_question(names: Sequence[str], target: Any, foil: Any, score: Any, query: Any) -> None:
    """Refuse a score that is not known, and what is neither a word nor a number; a target may be a pair of them."""
    if not isinstance(score, str | None):
        raise InputError(f"score is a word, not {score!r:.80}.")
    parts = list(target) if isinstance(target, tuple) and len(target) == 2 else [target]
    for name, value, of_value in (("foil", foil, [foil]), ("query", query, [query]), ("target", target, parts)):
        if not all(isinstance(part, str | int | None) and not isinstance(part, bool) for part in of_value):
            raise InputError(f"{name} is a word or a number, not {value!r:.80}.")
    if score not in (None, *SCORES):
        raise InputError(f"unknown score {score!r}. {nearest(score, SCORES)}")
    for word in (*names, score, foil, query, *parts):
        if isinstance(word, str) and not is_text(word):
            raise InputError(f"{word!r} holds half a character (a lone surrogate), which is no text.")


def _refuse_columns(
    columns: Sequence[Any], methods: Sequence[str], *, trust: bool, generate: bool, truncate: bool
) -> None:
    """Refuse the name of a column that a run writes itself; what is no name is taken too."""
    computed = (*(COMPUTED if trust else COLUMNS), *(WRITTEN if generate else ()), *((CUT,) if truncate else ()))
    prefixes = PREFIXES if trust or generate else RATIO
    for name in columns:
        taken = not isinstance(name, str) or name in (*computed, *methods) or name.startswith(prefixes)
        if taken or columns.count(name) > 1:
            raise InputError(
                f"the column {name!r} is named twice, or is one that every run writes ({', '.join(computed)})."
            )
        if not name.isprintable() or not is_text(name):
            raise InputError(f"{name!r} is no name of a column.")


def is_computed(column: str) -> bool:
    """Whether a run wrote the column itself, and not a method's scores."""
    return column in (*COMPUTED, *WRITTEN[1:]) or column.startswith(PREFIXES)


def refuse_target(model: Model, plan: Plan, requests: dict[str, MethodRequest]) -> None:
    """Refuse a target, a foil or a score that no row could have."""
    specific = [written for written, request in requests.items() if request.class_specific]
    usual = {"target": "predicted", "foil": None, "score": None}
    given = [f"{name}=" for name, value in usual.items() if getattr(plan, name) != value]
    if not specific and given:
        who, verb = listed(list(map(repr, requests))), "explains" if len(requests) == 1 else "explain"
        known = [name for name, method in attributions().items() if method.needs_target]
        raise InputError(
            f"{who} {verb} a position, whatever the class or word: leave {listed(given)} out, or take a method that "
            "explains a "
            f"class or word: {', '.join(known)}."
        )
    if specific and model.task == "base":
        raise InputError(f"{model.name!r} was loaded without a head, so {specific[0]!r} has no prediction to explain.")
    if specific and model.task != "question-answering":
        for role, value in (("target", plan.target), ("foil", plan.foil)):
            if value not in (None, "predicted", "gold"):
                output_id(model, value, role)
