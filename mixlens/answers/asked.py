"""What is asked about a text: the target and its foil, where they are read, and what the model predicts there."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError
from ..model.model import Model
from ..model.vocabulary import token_name
from ..scoring.aggregate import find
from ..scoring.notices import no_mask
from ..scoring.targets import Target, logits_at, output_id, pieces_meant, resolve
from ..types import Trace
from .choice import FOIL, choice_for
from .words import Piece

LANGUAGE = ("masked-lm", "causal-lm")
LONGEST_SPAN = 30  # tokens of an answer that a question-answering model is taken to give
NO_ANSWER = "no answer"
PREDICTIONS = 5


@dataclass(frozen=True)
class Asked:
    """What is asked. `target` and `foil` are as `attribute` takes them."""

    target: Any
    foil: int | None
    query: int | None  # the position a language model or a tagger is read at
    name: str
    foil_name: str | None
    suggested: bool  # the foil was not named by the user
    word: str | None  # the word that is tagged
    predicted: bool  # the target is what the model predicts
    probability: float
    predictions: tuple[tuple[str, float], ...]
    measured: Target  # the target's probability; against a foil its share of the two
    own: frozenset[int]  # positions of the answer itself


def asked_of(trace: Trace, pieces: Sequence[Piece], *, target: Any, foil: Any, query: int | str | None) -> Asked:
    """What the user asks, or what suggests itself."""
    if trace.model.task == "question-answering":
        return _span_asked(trace, pieces, target, foil)
    named = None if target in (None, "predicted") else _one_output(trace.model, target)
    place = _place(trace, pieces, query)
    logits = logits_at(trace, () if place is None else (place,)).float()
    number = int(logits.argmax()) if named is None else named
    against = _foil(trace.model, logits, number, target, foil)
    measured = resolve(trace, number, foil=against, score="probability", query=place)
    shares = logits.softmax(-1)
    return Asked(
        target=number,
        foil=against,
        query=place,
        name=output_name(trace.model, number),
        foil_name=None if against is None else output_name(trace.model, against),
        suggested=foil is None and against is not None,
        word=_word_at(pieces, place) if trace.model.task == "token-classification" else None,
        predicted=number == int(logits.argmax()),
        probability=float(shares[number]),
        predictions=_best(trace.model, shares),
        measured=measured,
        own=frozenset() if place is None else frozenset({place}),
    )


def _one_output(model: Model, target: Any) -> int:
    """The class or the one token that is meant. A word of several tokens is refused with the command that explains it."""
    pieces = pieces_meant(model, target)
    if pieces:
        method = choice_for(model).methods[0]
        command = shlex.join(["mixlens", "explain", "TEXT", "-m", model.name, "--method", method, "--target", target])
        raise InputError(
            f"why explains one token, and target {target!r} is {len(pieces)} of {model.name!r} "
            f"({' '.join(model.tokens(pieces))}). Ask: {command}"
        )
    return output_id(model, target, "target")


def output_name(model: Model, number: int) -> str:
    """A class by its label, a token by its word."""
    if model.task.endswith("classification"):
        return str(model.hf_model.config.id2label.get(number, number))
    return token_name(model, number, plain=True)


def _best(model: Model, shares: Tensor) -> tuple[tuple[str, float], ...]:
    top = shares.topk(min(PREDICTIONS, len(shares)))
    return tuple(
        (output_name(model, number), share)
        for number, share in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    )


def _foil(model: Model, logits: Tensor, number: int, target: Any, foil: Any) -> int | None:
    """The foil that is named; of a language model's own prediction the second-best word, where it has a share or where the
    best one has less than half."""
    if foil is not None:
        return output_id(model, foil, "foil")
    if model.task not in LANGUAGE or target not in (None, "predicted"):
        return None
    best, second = logits.softmax(-1).topk(2).values.tolist()
    return int(logits.topk(2).indices[1]) if second >= FOIL or best < 0.5 else None


# --- where it is read ---------------------------------------------------------------------------------------------------


def _place(trace: Trace, pieces: Sequence[Piece], query: int | str | None) -> int | None:
    """The position that predicts; None for a class of the whole text."""
    task = trace.model.task
    if task == "classification":
        _refuse_query(query)
        return None
    if query is not None:
        return place_of(trace, pieces, query)
    if task == "token-classification":
        raise InputError(
            f"a tagger says something of every word. Name one: query=WORD. It tags: {_tags(trace, pieces)}."
        )
    _refuse_no_mask(trace)
    return trace.query


def _refuse_no_mask(trace: Trace) -> None:
    if no_mask(trace.model, trace):
        mask = trace.model.tokenizer.mask_token
        raise InputError(
            f"the text has no {mask}, so {trace.model.name!r} predicts nothing here. Put {mask} where a word is to be predicted, "
            "or name a word: query=WORD."
        )


def _refuse_query(query: int | str | None) -> None:
    if query is not None:
        raise InputError(
            "query= names a word for a tagger or a language model; a classifier is asked about the whole text."
        )


def place_of(trace: Trace, pieces: Sequence[Piece], query: int | str) -> int:
    """The position of a word of the text (its first token), of a token, or of an index."""
    places = _places_of_word(pieces, query) if isinstance(query, str) else []
    if len(places) == 1:
        return places[0]
    if places:
        raise InputError(f"the word {query!r} occurs {len(places)} times, at {places}. Say which one by its index.")
    return find(trace.tokens, _index_or_token(query))


def _places_of_word(pieces: Sequence[Piece], word: str) -> list[int]:
    """The first token of every word of this name; capitals do not count."""
    return [piece.tokens[0] for piece in pieces if piece.text.lower() == word.lower()]


def _index_or_token(query: int | str) -> int | str:
    """An index that is written in digits is a number."""
    return int(query) if isinstance(query, str) and query.lstrip("-").isdigit() else query


def _word_at(pieces: Sequence[Piece], place: int | None) -> str | None:
    return next((piece.text for piece in pieces if place in piece.tokens), None)


def _tags(trace: Trace, pieces: Sequence[Piece]) -> str:
    """The tag of each word, of at most twelve."""
    logits = trace.model.logits(trace)
    words = [piece for piece in pieces if not piece.special and not piece.mark]
    tags = [f"{piece.text} {output_name(trace.model, int(logits[piece.tokens[0]].argmax()))}" for piece in words[:12]]
    return ", ".join(tags) + (", ..." if len(words) > 12 else "")


# --- spans --------------------------------------------------------------------------------------------------------------


def _span_asked(trace: Trace, pieces: Sequence[Piece], target: Any, foil: Any) -> Asked:
    """The best span of the context, or the words that are named."""
    if foil is not None:
        raise InputError("an answer of several words has no foil. Leave foil= out.")
    spans = _spans(trace, pieces)
    start, end = spans[0][0] if target in (None, "predicted") else _named_span(trace, pieces, target)
    measured = resolve(trace, (start, end), score="probability")
    name = span_text(trace, pieces, start, end)
    shares = _span_shares(trace)
    return Asked(
        target=(start, end),
        foil=None,
        query=None,
        name=name,
        foil_name=None,
        suggested=False,
        word=None,
        predicted=(start, end) == spans[0][0],
        probability=float(shares[0][start] * shares[1][end]),
        predictions=tuple((span_text(trace, pieces, *span), share) for span, share in spans),
        measured=measured,
        own=frozenset(range(start, end + 1)),
    )


def _span_shares(trace: Trace) -> tuple[Tensor, Tensor]:
    """[pos] of the start and of the end."""
    assert trace.logits is not None
    start, end = trace.logits.float().softmax(0).unbind(-1)
    return start, end


def _spans(trace: Trace, pieces: Sequence[Piece]) -> list[tuple[tuple[int, int], float]]:
    """The most probable spans of the context, and "no answer" (the first token), with their probabilities."""
    start, end = _span_shares(trace)
    places = _places_of_context(trace, pieces)
    both = start[:, None] * end[None, :]
    allowed = torch.zeros_like(both, dtype=torch.bool)
    inside = torch.tensor(places, dtype=torch.long)
    allowed[inside[:, None], inside[None, :]] = True
    allowed &= torch.ones_like(allowed).triu().tril(LONGEST_SPAN - 1)
    allowed[0, 0] = True
    flat = both.masked_fill(~allowed, -1).flatten().topk(min(PREDICTIONS, int(allowed.sum())))
    n = len(trace)
    return [
        ((number // n, number % n), share)
        for number, share in zip(flat.indices.tolist(), flat.values.tolist(), strict=True)
    ]


def _segment_of_context(trace: Trace) -> str:
    return "text" if trace.pair is None else "pair"


def _places_of_context(trace: Trace, pieces: Sequence[Piece]) -> list[int]:
    """The tokens of the context that are not special."""
    segment = _segment_of_context(trace)
    places = [place for piece in pieces if piece.segment == segment for place in piece.tokens]
    return sorted(place for place in places if not trace.special[place])


def span_text(trace: Trace, pieces: Sequence[Piece], start: int, end: int) -> str:
    """The words of a span as they stand in the text."""
    if end < start or all(trace.special[start : end + 1]):
        return NO_ANSWER
    words = [piece for piece in pieces if set(piece.tokens) & set(range(start, end + 1))]
    return "".join(f"{piece.before if number else ''}{piece.text}" for number, piece in enumerate(words))


def _named_span(trace: Trace, pieces: Sequence[Piece], target: Any) -> tuple[int, int]:
    """The positions of a span: two numbers, or words of the context."""
    if isinstance(target, tuple):
        found = resolve(trace, target).ids
        return found[0], found[1]
    begin = _begin_in_context(trace, target)
    end = begin + len(str(target))
    segment = _segment_of_context(trace)
    inside = [piece for piece in pieces if piece.segment == segment and piece.begin < end and piece.end > begin]
    return inside[0].tokens[0], inside[-1].tokens[-1]


def _begin_in_context(trace: Trace, target: Any) -> int:
    """The first character of a target in the context; capitals do not count."""
    context = trace.text if trace.pair is None else trace.pair
    begin = (context or "").lower().find(str(target).lower())
    if begin < 0 or not str(target).strip():
        raise InputError(
            f"the context has no {target!r}. A target is a part of the context, or start,end as token positions."
        )
    return begin
