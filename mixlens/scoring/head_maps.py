"""Maps of every head: one of them, one layer, words for subwords, and what each head does most.

The rule that names a head, with its limits in ROLES. Each word's row is made to sum to 1 (attention already does) and all rows
of words are averaged; special tokens have no rows. A row is shared out, without rest, between the start mark (in a causal model
without one: the first word), the other marks, the word itself, the word before, the word behind, and all other words ("spread").
The largest share, leaving out "spread", that reaches its limit names the head; else its own sentence, where the text has several
and its share reaches the limit; else the largest of all shares. Where that is "spread", and three words (in a text of fewer
than twelve: a quarter of its words) hold half of it or more, the head looks at few words and does not spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..base.errors import InputError, is_integer
from ..base.words import Word, sentences_of, words_in
from ..types import HeadMaps, Map, Words

Rows = NDArray[np.float64]


class Role(NamedTuple):
    """What a head may do most: the name that is shown, and the share from which on it names the head."""

    name: str
    limit: float


ROLES: Mapping[str, Role] = {
    "start": Role("rests on the start mark", 0.3),
    "begin": Role("rests on the begin mark", 0.3),
    "first": Role("rests on the first word", 0.3),
    "end": Role("rests on the end mark", 0.3),
    "itself": Role("stays on the word itself", 0.3),
    "back": Role("looks one word back", 0.3),
    "ahead": Role("looks one word ahead", 0.3),
    "sentence": Role("stays in its sentence", 0.6),
    "few": Role("looks at few words", 0.5),  # the limit is a part of "spread", not of the whole row
    "spread": Role("spreads over the text", 0.0),
}
FEW = 3  # words that are few
FEW_OF = 4  # and no more than one in so many words of the text


@dataclass(frozen=True)
class HeadRole:
    """What one head does most. `shares` has every share of its rows; "sentence" and "few" (of "spread") overlap with others."""

    layer: int
    head: int
    id: str
    name: str
    share: float
    shares: Mapping[str, float]


# --- parts of the maps ------------------------------------------------------------------------------------------------


def map_of_head(heads: HeadMaps, head: int) -> Map:
    """One head in every layer, as `mix(..., head=head)` gives it."""
    count = heads.scores.shape[1]
    if not is_integer(head) or not 0 <= head < count:
        raise InputError(f"head {head!r} does not exist: a layer has heads 0 to {count - 1}.")
    info = {**heads.info, "options": {**(heads.info.get("options") or {}), "head": head}}
    return Map(heads.scores[:, head], heads.tokens, heads.method, info, heads.special, heads.words)


def heads_of_layer(heads: HeadMaps, layer: int) -> HeadMaps:
    """The heads of one layer, [1 head query key]; `.info["layer"]` says which."""
    depth = len(heads.scores)
    if not is_integer(layer) or not -depth <= layer < depth:
        raise InputError(f"layer {layer!r} is out of range: there are {depth} layers, 0 to {depth - 1}.")
    number = layer % depth
    return replace(heads, scores=heads.scores[number : number + 1], info={**heads.info, "layer": number})


def heads_by_word(heads: HeadMaps) -> HeadMaps:
    """Summed over the keys of a word, averaged over its queries; a layer at a time."""
    if heads.words is None:
        raise InputError("the words are not known: the input was ids, or the tokenizer gives no character offsets.")
    words = heads.words
    facts = {key: value for key, value in heads.info.items() if not isinstance(value, torch.Tensor)}
    return replace(
        heads,
        scores=torch.stack([grouped(layer, words, len(heads.tokens)) for layer in heads.scores]),
        tokens=tuple(word for word, _ in words),
        special=_special_words(heads.special, words) if heads.special else (),
        words=tuple((word, (number,)) for number, (word, _) in enumerate(words)),
        info={**facts, "unit": "word"},
    )


def _special_words(special: Sequence[bool], words: Words) -> tuple[bool, ...]:
    """Whether all tokens of a word are special, of each word."""
    return tuple(all(special[i] for i in places) for _, places in words)


def grouped(scores: torch.Tensor, words: Words, n: int) -> torch.Tensor:
    """[... query key] of tokens as [... word word]: averaged over queries, summed over keys."""
    count = len(words)
    number = torch.full((n,), count, device=scores.device)  # tokens of no word go to one more word, which is left out
    for word, (_, places) in enumerate(words):
        number[list(places)] = word
    sizes = torch.tensor([len(places) for _, places in words], dtype=scores.dtype, device=scores.device)
    by_key = scores.new_zeros(*scores.shape[:-1], count + 1).index_add_(-1, number, scores)
    by_both = scores.new_zeros(*scores.shape[:-2], count + 1, count + 1).index_add_(-2, number, by_key)
    return by_both[..., :count, :count] / sizes[:, None]


# --- what a head does most --------------------------------------------------------------------------------------------


def roles_of(heads: HeadMaps) -> list[HeadRole]:
    """What each head does most, layer by layer, by the rule above."""
    words = words_in(heads)
    groups = tuple((word.text, word.tokens) for word in words)
    places = _places(words, bool(heads.info.get("causal")))
    first = int(heads.info.get("layer", 0)) if len(heads.scores) == 1 else 0
    roles = []
    for layer, scores in enumerate(heads.scores):
        rows = grouped(scores.double().abs(), groups, len(heads.tokens)).cpu().numpy()
        roles += [_role(layer + first, head, shares) for head, shares in enumerate(_shares(rows, words, places))]
    return roles


def _places(words: Sequence[Word], causal: bool) -> dict[str, Rows]:
    """Which cells [query key] of words each share is the sum of. All but "sentence" part a row without rest."""
    n = len(words)
    special = np.array([word.special for word in words])
    places = {
        name: np.zeros((n, n))
        for name in ("start", "begin", "first", "end", "itself", "back", "ahead", "spread", "sentence")
    }
    places["end"][:, special] = 1
    texts = np.flatnonzero(~special).tolist()
    places["itself"][texts, texts] = 1
    for before, place in pairwise(texts):
        places["back"][place, before] = places["ahead"][before, place] = 1
    if n and (special[0] or causal):
        for cells in places.values():
            cells[:, 0] = 0
        places[_opening(bool(special[0]), causal)][:, 0] = 1
    places["spread"] = 1 - np.sum(list(places.values()), 0)
    for sentence in sentences_of(words):
        places["sentence"][np.ix_(sentence, sentence)] = 1
    return places


def _opening(special: bool, causal: bool) -> str:
    """The share of the first word. [CLS] opens a text that is read both ways, <s> one that is read forwards."""
    if not special:
        return "first"
    return "begin" if causal else "start"


def _shares(rows: Rows, words: Sequence[Word], places: Mapping[str, Rows]) -> list[dict[str, float]]:
    """The shares of each head, averaged over the rows of words; rows without a score count for nothing."""
    texts = _rows_of_text(words)
    chosen = rows[:, texts]
    whole = chosen.sum(-1, keepdims=True)
    shared = chosen / np.where(whole > 0, whole, 1.0)
    cells = np.stack([one[texts] for one in places.values()]).reshape(len(places), -1)
    means = shared.reshape(len(rows), -1) @ cells.T / len(texts)  # [head place]
    sums = {**dict(zip(places, means.T, strict=True)), "few": _few(shared * places["spread"][texts])}
    names = _names_of_shares(words)
    return [{name: float(sums[name][head]) for name in names} for head in range(len(rows))]


def _few(others: Rows) -> Rows:
    """[head]: what the words that are looked at most hold of [head row key], averaged over the rows."""
    count = max(1, min(FEW, others.shape[1] // FEW_OF))
    return np.sort(others.mean(1), -1)[:, -count:].sum(-1)


def _rows_of_text(words: Sequence[Word]) -> list[int]:
    """The words that are not special; all, where every one is."""
    return [place for place, word in enumerate(words) if not word.special] or list(range(len(words)))


def _names_of_shares(words: Sequence[Word]) -> list[str]:
    """All names of ROLES; a text of one sentence has no "sentence"."""
    several = len(sentences_of(words)) > 1
    return [name for name in ROLES if several or name != "sentence"]


def _role(layer: int, head: int, shares: Mapping[str, float]) -> HeadRole:
    """The role that the shares of a head give it."""
    narrow = max((name for name in shares if name not in ("sentence", "few", "spread")), key=shares.__getitem__)
    if shares[narrow] >= ROLES[narrow].limit:
        role = narrow
    elif shares.get("sentence", 0.0) >= ROLES["sentence"].limit:
        role = "sentence"
    else:
        role = max(narrow, "spread", key=shares.__getitem__)
    if role == "spread" and shares["few"] >= ROLES["few"].limit * shares["spread"]:
        role = "few"
    return HeadRole(layer, head, role, ROLES[role].name, shares[role], dict(shares))
