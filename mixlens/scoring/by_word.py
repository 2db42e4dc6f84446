"""Scores of subwords as scores of words: summed over the keys of a word, averaged over its queries."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from ..base.errors import InputError
from ..types import Attribution, HeadMaps, Map, Words
from .aggregate import find

Kind = TypeVar("Kind", Map, HeadMaps, Attribution)


def tokens_meant(result: Map | HeadMaps | Attribution, query: int | str) -> tuple[int, ...]:
    """The tokens a query means where words are known: all of a word that occurs once, else one token, as `find` has
    it."""
    places = [tokens for word, tokens in result.words or () if word == query]
    if len(places) > 1:
        first = [tokens[0] for tokens in places]
        raise InputError(f"the word {query!r} occurs {len(places)} times, at {first}. Say which one by its index.")
    return tuple(places[0]) if places else (find(result.tokens, query),)


def by_word(result: Kind) -> Kind:
    """The result with words for tokens: a map's layers one by one."""
    words = result.words
    if words is None:
        raise InputError("the words are not known: the input was ids, or the tokenizer gives no character offsets.")
    n, facts = len(result.tokens), {key: one for key, one in result.info.items() if not isinstance(one, Tensor)}
    if isinstance(result, Attribution):
        scores = by_key(result.scores, words, n)
    else:
        scores = torch.stack([grouped(layer, words, n) for layer in result.scores])
    return replace(
        result,
        scores=scores,
        tokens=tuple(word for word, _ in words),
        special=tuple(all(result.special[i] for i in places) for _, places in words) if result.special else (),
        words=tuple((word, (number,)) for number, (word, _) in enumerate(words)),
        info={**facts, "unit": "word"},
    )


def by_key(scores: Tensor, words: Words, n: int, dim: int = -1) -> Tensor:
    """[... token ...] summed over the tokens of each word, [... word ...], along one axis."""
    number = torch.full(
        (n,), len(words), device=scores.device
    )  # tokens of no word go to one more word, which is left out
    for word, (_, places) in enumerate(words):
        number[list(places)] = word
    shape = list(scores.shape)
    shape[dim] = len(words) + 1
    return scores.new_zeros(shape).index_add_(dim, number, scores).narrow(dim, 0, len(words))


def grouped(scores: Tensor, words: Words, n: int) -> Tensor:
    """[... query key] of tokens as [... word word]: averaged over queries, summed over keys."""
    sizes = torch.tensor([len(places) for _, places in words], dtype=scores.dtype, device=scores.device)
    return by_key(by_key(scores, words, n), words, n, dim=-2) / sizes[:, None]
