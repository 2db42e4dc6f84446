"""What a corpus run asks of every row, checked before a row is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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
    columns: Sequence[str],
    trust: Any = False,
    generate: Any = None,
    chat: Any = False,
    truncate: Any = False,
) -> Plan:
    """The plan that the arguments of `run` mean."""
    _refuse_no_names(methods, columns)
    names = _method_names(methods)
    number_type = _number_type(maps)
    _refuse_batch(batch_tokens)
    _refuse_question(score, foil, query, target)
    _refuse_half_characters([*names, score, foil, query, *(target if isinstance(target, tuple) else (target,))])
    carried = tuple([columns] if isinstance(columns, str) else columns)
    _refuse_flag("trust", trust)
    _refuse_flag("chat", chat)
    _refuse_flag("truncate", truncate)
    _refuse_cut_chat(chat, truncate)
    _refuse_generate(
        generate, {"target": target != "predicted", "query": query is not None, "maps": maps, "trust": trust}
    )
    _refuse_columns(carried, names, _computed(trust, generate, truncate))
    flags = {"trust": trust, "generate": generate, "chat": chat, "truncate": truncate}
    return Plan(tuple(names), target, foil, score, query, number_type, batch_tokens, carried, **flags)


def is_count(value: Any) -> bool:
    """A whole number of at least 1; True is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _refuse_no_names(*lists: Any) -> None:
    if not all(isinstance(names, str | Sequence) for names in lists):
        raise InputError("methods and columns are lists of names.")


def _method_names(methods: str | Sequence[Any]) -> list[str]:
    written = map(str.strip, methods.split(",")) if isinstance(methods, str) else methods
    names = list(filter(None, written))
    methods_within(names, LIMITS.methods)
    if not all(isinstance(name, str) for name in names):
        raise InputError("methods are names, as `mixlens methods` lists them.")
    _refuse_twice(names)
    return names


def _refuse_twice(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"a method is named twice: {', '.join(sorted(twice))}.")


def _number_type(maps: Any) -> str | None:
    """The number type that maps are kept in; None: they are not kept."""
    name = "float32" if maps is True else maps or None
    if name not in (None, *DTYPES):
        raise InputError(f"maps are kept as {' or '.join(DTYPES)}, not {maps!r}.")
    return name


def _refuse_batch(tokens: Any) -> None:
    if tokens is not None and not is_count(tokens):
        raise InputError(f"batch_tokens= must be at least 1, not {tokens!r}.")


def _refuse_question(score: Any, foil: Any, query: Any, target: Any) -> None:
    """Refuse a score that is not known, and what is neither a word nor a number; a target may be a pair of them."""
    if not isinstance(score, str | None):
        raise InputError(f"score is a word, not {score!r:.80}.")
    _refuse_no_word("foil", foil, [foil])
    _refuse_no_word("query", query, [query])
    _refuse_no_word("target", target, target if _is_pair(target) else [target])
    if score not in (None, *SCORES):
        raise InputError(f"unknown score {score!r}. {nearest(score, SCORES)}")


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _refuse_no_word(name: str, value: Any, parts: Sequence[Any]) -> None:
    if not all(isinstance(part, str | int | None) and not isinstance(part, bool) for part in parts):
        raise InputError(f"{name} is a word or a number, not {value!r:.80}.")


def _refuse_half_characters(values: Iterable[Any]) -> None:
    words = [value for value in values if isinstance(value, str)]
    for word in words:
        if not is_text(word):
            raise InputError(f"{word!r} holds half a character (a lone surrogate), which is no text.")


def _refuse_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{name} is True or False, not {value!r:.80}.")


def _refuse_cut_chat(chat: bool, truncate: bool) -> None:
    if chat and truncate:
        raise InputError(
            "truncate= cuts a text, and a conversation is written out whole: leave truncate= out, or chat=."
        )


def _refuse_generate(generate: Any, others: dict[str, Any]) -> None:
    """Refuse a number of tokens that is none, and what a written text does not go with."""
    if generate is None:
        return
    if not is_count(generate):
        raise InputError(f"generate= is how many tokens the model writes, at least 1, not {generate!r:.80}.")
    given = [f"{name}=" for name, value in others.items() if value]
    if given:
        raise InputError(f"generate= explains each token that the model writes: leave {' and '.join(given)} out.")


def _computed(trust: bool, generate: int | None, truncate: bool) -> tuple[str, ...]:
    """The columns that a run computes besides the scores of its methods."""
    cut = (CUT,) if truncate else ()
    return (*(COMPUTED if trust else COLUMNS), *(WRITTEN if generate is not None else ()), *cut)


def _refuse_columns(columns: Sequence[Any], methods: Sequence[str], computed: Sequence[str]) -> None:
    for name in columns:
        if columns.count(name) > 1 or _is_taken(name, methods, computed):
            raise InputError(
                f"the column {name!r} is named twice, or is one that every run writes ({', '.join(computed)})."
            )
        _refuse_name(name)


def _refuse_name(column: str) -> None:
    if not column.isprintable() or not is_text(column):
        raise InputError(f"{column!r} is no name of a column.")


def _is_taken(name: Any, methods: Sequence[str], computed: Sequence[str]) -> bool:
    """Whether a run writes a column of this name itself; what is no name is taken too."""
    prefixes = PREFIXES if RANDOM_WITHOUT in computed or "written" in computed else RATIO
    return not isinstance(name, str) or name in (*computed, *methods) or name.startswith(prefixes)


def is_computed(column: str) -> bool:
    """Whether a run wrote the column itself, and not a method's scores."""
    return column in (*COMPUTED, *WRITTEN[1:]) or column.startswith(PREFIXES)


def refuse_target(model: Model, plan: Plan, requests: dict[str, MethodRequest]) -> None:
    """Refuse a target, a foil or a score that no row could have."""
    first = _first_for_a_target(requests)
    if first is None:
        _refuse_any_target(plan, list(requests))
    elif model.task == "base":
        raise InputError(f"{model.name!r} was loaded without a head, so {first!r} has no prediction to explain.")
    elif model.task != "question-answering":
        _refuse_unknown_output(model, plan.target, "target")
        _refuse_unknown_output(model, plan.foil, "foil")


def _first_for_a_target(requests: dict[str, MethodRequest]) -> str | None:
    """The first method that explains a class or a word."""
    return next((written for written, request in requests.items() if request.class_specific), None)


def _refuse_any_target(plan: Plan, methods: Sequence[str]) -> None:
    usual = {"target": "predicted", "foil": None, "score": None}
    given = [f"{name}=" for name, value in usual.items() if getattr(plan, name) != value]
    if given:
        who, verb = listed(list(map(repr, methods))), "explains" if len(methods) == 1 else "explain"
        known = [name for name, method in attributions().items() if method.needs_target]
        raise InputError(
            f"{who} {verb} a position, whatever the class or word: leave {listed(given)} out, or take a method that explains a "
            f"class or word: {', '.join(known)}."
        )


def _refuse_unknown_output(model: Model, value: Any, role: str) -> None:
    """Refuse a class or a word that the model does not have."""
    if value not in (None, "predicted", "gold"):
        output_id(model, value, role)
