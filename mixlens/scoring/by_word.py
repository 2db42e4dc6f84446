"""Scores of subwords as scores of words: [word, pos] sums keys and averages queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError
from ..types import Attribution, Map, Words
from .aggregate import find


def _word_matrix(words: Words | None, n: int, dtype: torch.dtype) -> tuple[Tensor, Words]:
    """[word, pos]: 1 where a token belongs to a word."""
    if words is None:
        raise InputError("the words are not known: the input was ids, or the tokenizer gives no character offsets.")
    belongs = torch.zeros(len(words), n, dtype=dtype)
    for number, (_, places) in enumerate(words):
        belongs[number, list(places)] = 1
    return belongs, words


def _info_by_word(info: Any) -> dict[str, Any]:
    facts = {key: value for key, value in info.items() if not isinstance(value, Tensor)}
    return {**facts, "unit": "word"}


def tokens_meant(result: Any, query: int | str) -> tuple[int, ...]:
    """The tokens a query means in a figure by words: all of a word that occurs once, else one token, as `find` has it."""
    places = [tokens for word, tokens in result.words or () if word == query]
    if len(places) > 1:
        first = [tokens[0] for tokens in places]
        raise InputError(f"the word {query!r} occurs {len(places)} times, at {first}. Say which one by its index.")
    return tuple(places[0]) if places else (find(result.tokens, query),)


def map_by_word(scores: Map) -> Map:
    """Summed over the keys of a word, averaged over its queries."""
    belongs, words = _word_matrix(scores.words, len(scores.tokens), scores.scores.dtype)
    belongs = belongs.to(scores.scores.device)
    mean = belongs / belongs.sum(-1, keepdim=True)
    return replace(
        scores,
        scores=mean @ scores.scores @ belongs.T,
        tokens=tuple(word for word, _ in words),
        special=_special_words(scores.special, words),
        words=tuple((word, (number,)) for number, (word, _) in enumerate(words)),
        info=_info_by_word(scores.info),
    )


def attribution_by_word(scores: Attribution) -> Attribution:
    """Summed over the tokens of a word."""
    belongs, words = _word_matrix(scores.words, len(scores.tokens), scores.scores.dtype)
    return replace(
        scores,
        scores=belongs @ scores.scores,
        tokens=tuple(word for word, _ in words),
        special=_special_words(scores.special, words),
        words=tuple((word, (number,)) for number, (word, _) in enumerate(words)),
        info=_info_by_word(scores.info),
    )


def _special_words(special: Sequence[bool], words: Words) -> tuple[bool, ...]:
    return tuple(all(special[i] for i in places) for _, places in words) if special else ()
