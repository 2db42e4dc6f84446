"""Maps of every head: one of them, one layer, and what each head does most.

The rule that names a head, with its limits in ROLES. Each word's row is made to sum to 1 (attention already does) and
all rows of words are averaged; special tokens have no rows. A row is shared out, without rest, between the start mark
(in a causal model without one: the first word), the other marks, the word itself, the word before, the word behind,
and all other words ("spread"). The largest share, leaving out "spread", that reaches its limit names the head; else
its own sentence, where the text has several and its share reaches the limit; else the largest of all shares. Where
that is "spread", and three words (in a text of fewer than twelve: a quarter of its words) hold half of it or more,
the head looks at few words and does not spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, is_integer
from ..base.words import Word, sentences_of, words_in
from ..types import HeadMaps, Map
from .by_word import grouped

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
    """What one head does most. `shares` has every share of its rows; "sentence" and "few" (of "spread") overlap with
    others."""

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


# --- what a head does most --------------------------------------------------------------------------------------------


def roles_of(heads: HeadMaps) -> list[HeadRole]:
    """What each head does most, layer by layer, by the rule above."""
    words, n = words_in(heads), len(heads.tokens)
    groups = tuple((word.text, word.tokens) for word in words)
    cells = cells_of(words, bool(heads.info.get("causal")))
    rows_of_text = [place for place, word in enumerate(words) if not word.special] or list(range(len(words)))
    flat = np.stack([one[rows_of_text] for one in cells.values()]).reshape(len(cells), -1)  # [share, row x word]
    few = max(1, min(FEW, len(rows_of_text) // FEW_OF))
    names = [name for name in ROLES if name != "sentence" or len(sentences_of(words)) > 1]
    first = int(heads.info.get("layer", 0)) if len(heads.scores) == 1 else 0
    roles = []
    for layer, scores in enumerate(heads.scores, first):
        rows = grouped(scores.double().abs(), groups, n).cpu().numpy()[:, rows_of_text]
        whole = rows.sum(-1, keepdims=True)
        shared = rows / np.where(whole > 0, whole, 1.0)  # rows without a score count for nothing
        means = shared.reshape(len(shared), -1) @ flat.T / len(rows_of_text)  # [head share]
        others = (shared * cells["spread"][rows_of_text]).mean(1)  # of all other words
        sums = {**dict(zip(cells, means.T, strict=True)), "few": np.sort(others, -1)[:, -few:].sum(-1)}
        for head in range(len(rows)):
            shares = {name: float(sums[name][head]) for name in names}
            role = role_of(shares)
            roles.append(HeadRole(layer, head, role, ROLES[role].name, shares[role], shares))
    return roles


def cells_of(words: Sequence[Word], causal: bool) -> dict[str, Rows]:
    """Which cells [query key] of words each share is the sum of. All but "sentence" part a row without rest."""
    n = len(words)
    special = np.array([word.special for word in words])
    names = ("start", "begin", "first", "end", "itself", "back", "ahead", "spread", "sentence")
    cells = {name: np.zeros((n, n)) for name in names}
    cells["end"][:, special] = 1
    texts = np.flatnonzero(~special).tolist()
    cells["itself"][texts, texts] = 1
    for before, place in pairwise(texts):
        cells["back"][place, before] = cells["ahead"][before, place] = 1
    if n and (special[0] or causal):  # [CLS] opens a text that is read both ways, <s> one that is read forwards
        for one in cells.values():
            one[:, 0] = 0
        cells["first" if not special[0] else "begin" if causal else "start"][:, 0] = 1
    cells["spread"] = 1 - np.sum(list(cells.values()), 0)
    for sentence in sentences_of(words):
        cells["sentence"][np.ix_(sentence, sentence)] = 1
    return cells


def role_of(shares: Mapping[str, float]) -> str:
    """The role that the shares of a head give it."""
    narrow = max((name for name in shares if name not in ("sentence", "few", "spread")), key=shares.__getitem__)
    if shares[narrow] >= ROLES[narrow].limit:
        return narrow
    if shares.get("sentence", 0.0) >= ROLES["sentence"].limit:
        return "sentence"
    role = max(narrow, "spread", key=shares.__getitem__)
    return "few" if role == "spread" and shares["few"] >= ROLES["few"].limit * shares["spread"] else role
