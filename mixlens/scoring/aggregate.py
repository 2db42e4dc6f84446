"""Across layers: rollout, flow, sum, readout (Map -> Attribution).

Products stay in the number type's range by powers of two, which round nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..base.doors import door
from ..base.errors import InputError, is_integer
from ..base.optional import optional
from ..fast.loops import running
from ..types import Attribution, Map, Words
from .conventions import FROM_INPUT, ROW_OF_ZEROS, as_convened, convention_of, is_from_input

TOGETHER = 1 << 26  # elements of a map that is rolled out together with others
LONG = 64  # tokens of a map on a CPU from which on putting maps together costs more than it saves


def rows_to_one(scores: Tensor, *, offset: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    """Rows divided by their sum. A row of zeros says nothing of any other token: it becomes its own token, and is
    counted.

    The first row is the token at `offset`.
    """
    total = scores.sum(-1, keepdim=True)
    empty = total <= 0
    shared = (scores / total.masked_fill(empty, 1)).masked_fill_(empty, 0)
    shared.diagonal(offset, -2, -1).masked_fill_(empty[..., 0], 1)
    return shared, {"rows_without_score": empty[..., 0].long()}


# --- products of layers -----------------------------------------------------------------------------------------------


@door
def rollout(
    scores: Map | Sequence[Map] | Mapping[str, Map],
    convention: str | None = None,
    *,
    residual: bool | None = None,
    normalize: bool | None = None,
) -> Any:
    """R_l = M_l ... M_1, last layer on the left: input to layer l, for every l. A list of maps gives a list, a dict a
    dict.

    The convention is the method's own unless named (`abnar`, `globenc`, `toolkit`, `alti`, `value_zeroing`, `chefer`);
    `residual` and `normalize` override it one by one. What was used is in `.info["rollout"]`. Products that would leave
    the range of the number type are rescaled by one scalar a layer, which changes no rank and no share. A map that is
    from the input to every layer already (`hta`, convention "input") is left as it is. Several maps at once are quicker
    on a GPU; `rolled_row` is much quicker where one row alone is wanted.
    """
    if isinstance(scores, Mapping):
        rolled_maps = rollout(list(scores.values()), convention, residual=residual, normalize=normalize)
        return dict(zip(scores, rolled_maps, strict=True))
    if isinstance(scores, Map):
        return rollout([scores], convention, residual=residual, normalize=normalize)[0]
    if not isinstance(scores, Sequence) or not all(isinstance(one, Map) for one in scores):
        raise InputError("rollout takes a Map, a list of maps or a dict of maps, as mix gives them.")
    if not isinstance(convention, str | None):
        raise InputError(f"a rollout convention is a name, not {convention!r:.80}.")
    rolled: dict[int, Map] = {}
    alike: dict[object, list[tuple[int, Tensor, dict[str, Any]]]] = {}  # maps that are multiplied as one
    for number, one in enumerate(scores):
        if is_from_input(one) and convention is None and residual is None and normalize is None:  # it is left as it is
            facts = {"convention": FROM_INPUT, "residual": False, "normalize": False}
            rolled[number] = replace(one, info={**one.info, "rollout": facts})
            continue
        layers, facts = as_convened(one, convention, residual=residual, normalize=normalize)
        alone = layers.device.type == "cpu" or layers.numel() > TOGETHER
        kind = number if alone else (layers.shape, layers.dtype, layers.device, facts["normalize"])
        alike.setdefault(kind, []).append((number, layers, facts))
    for group in alike.values():
        products, rescaled_layers = products_of([layers for _, layers, _ in group], shares=group[0][2]["normalize"])
        for (number, _, facts), product, wrong in zip(group, products, rescaled_layers, strict=True):
            info = {**scores[number].info, "rollout": {**facts, "rescaled_layers": wrong}}
            rolled[number] = replace(scores[number], scores=product, info=info)
    return [rolled[number] for number in range(len(scores))]


def products_of(maps: Sequence[Tensor], *, shares: bool) -> tuple[list[Tensor], list[list[int]]]:
    """The running products of maps [layer n n], plain as long as they fit the number type with room to spare; and of
    each map the layers that were rescaled. `shares`: rows sum to 1, so that everything fits."""
    room = torch.finfo(maps[0].dtype).max ** 0.5
    together = maps[0][:, None] if len(maps) == 1 else torch.stack(list(maps), 1)  # [layer map n n]
    if shares or together.device.type == "cpu":  # on a GPU at once: to try first would cost more
        products, sizes = running(together)
        if all(1 / room < size < room for of_layer in sizes.tolist()[1:] for size in of_layer):
            return list(products.unbind(1)), [[] for _ in maps]
    products, wrong = rescaled(together, room)
    return list(products.unbind(1)), wrong


def rescaled(layers: Tensor, room: float) -> tuple[Tensor, list[list[int]]]:
    """Rows of [layer map n n] made to sum to about 1 by a power of two for each layer and map, so that no product
    leaves the range; brought back where it fits, in two factors, as one alone may leave the range. Else its largest
    entry is 1."""
    _, powers = torch.frexp(torch.linalg.vector_norm(layers, ord=1, dim=-1).amax(-1))  # [layer map]
    products, sizes = running(layers * torch.exp2(-powers.to(layers.dtype))[..., None, None])
    numbers = torch.stack([powers.cumsum(0).double(), sizes.double()]).tolist()  # a GPU is waited for once
    wrong: list[list[int]] = [[] for _ in range(layers.shape[1])]
    factors: list[list[tuple[float, float]]] = []
    for index, (backs, reached) in enumerate(zip(*numbers, strict=True)):
        factors.append([])
        for number, (back, size) in enumerate(zip(backs, reached, strict=True)):
            if index == 0 or (size > 0 and abs(math.log2(size) + back) < math.log2(room)):
                factors[-1].append((2.0 ** (back // 2), 2.0 ** (back - back // 2)))
            else:
                factors[-1].append((1 / max(size, torch.finfo(sizes.dtype).tiny), 1.0))
                wrong[number].append(index)
    back = torch.tensor(factors, dtype=products.dtype).to(products.device, non_blocking=True)[:, :, None, None]
    at_once = all(1e-30 < one * other < 1e30 for of_layer in factors for one, other in of_layer)
    return products.mul_(back.prod(-1)) if at_once else products.mul_(back[..., 0]).mul_(back[..., 1]), wrong


def rolled_row(
    scores: Map,
    query: int | str,
    *,
    layer: int = -1,
    convention: str | None = None,
    residual: bool | None = None,
    normalize: bool | None = None,
) -> Attribution:
    """`scores.rollout(...).readout(query, layer=layer)`, as products of one row with matrices: n times as quick.

    The row is held near 1 by powers of two, which round nothing, and brought back at the end; where that would leave
    the number type's range (as `rollout` rescales) its largest entry stays near 1.
    """
    if is_from_input(scores) and convention is None and residual is None and normalize is None:
        return readout(rollout(scores), query, layer=layer)
    layers, facts = as_convened(scores, convention, residual=residual, normalize=normalize)
    number, position = _layer(layer, len(layers)), find(scores.tokens, query)
    row, power = _near_one(layers[number, position])
    for matrix in reversed(layers[:number].unbind()):
        row, factor = _near_one(row @ matrix)
        power = power + factor
    return _row_of(scores, row.cpu(), position, number, power=float(power), facts=facts)


@torch.no_grad()
def rolled_rows(
    maps: Sequence[Map], queries: Sequence[int | str], *, convention: str | None = None
) -> list[Attribution]:
    """`rolled_row` of each map at its query. Short ones, and on a GPU all, at once: multiplied through the layers
    together."""
    pairs = list(zip(maps, queries, strict=True))
    unlike = any(map(is_from_input, maps)) or len({len(one.scores) for one in maps}) > 1
    long = any(one.scores.device.type == "cpu" and len(one.tokens) > LONG for one in maps)
    if len(maps) == 1 or unlike or long:
        return [rolled_row(one, query, convention=convention) for one, query in pairs]
    every = [convention_of(one, convention) for one in maps]
    if any(one["convention"] != every[0]["convention"] for one in every):
        raise InputError("maps of several conventions cannot be rolled out as one.")
    lengths = [len(one.tokens) for one in maps]
    depth, facts = len(maps[0].scores), every[0]
    whole = maps[0].scores.new_zeros(depth, len(maps), max(lengths), max(lengths))  # nobody looks at what is padded
    for number, (one, n) in enumerate(zip(maps, lengths, strict=True)):
        whole[:, number, :n, :n] = one.scores
    if facts["residual"]:
        whole.diagonal(dim1=-2, dim2=-1).add_(1)
    empty = torch.zeros(())
    if facts["normalize"]:
        totals = whole.sum(-1, keepdim=True)
        inside = torch.arange(max(lengths), device=whole.device) < torch.tensor(lengths, device=whole.device)[:, None]
        empty = ((totals[..., 0] == 0) & inside).sum()
        whole = whole / totals.masked_fill(totals == 0, 1)
    places = [find(one.tokens, query) for one, query in pairs]
    numbers = torch.arange(len(maps), device=whole.device)
    rows, powers = _near_one(whole[-1][numbers, torch.tensor(places, device=whole.device)])
    for layer in reversed(whole[:-1].unbind()):
        rows, factor = _near_one((rows[:, None] @ layer)[:, 0])
        powers = powers + factor
    rows, written = rows.cpu(), powers[:, 0].tolist()
    if int(empty):
        raise InputError(ROW_OF_ZEROS)
    found = zip(maps, rows, lengths, written, places, strict=True)
    return [_row_of(one, row[:n], place, depth - 1, power=power, facts=facts) for one, row, n, power, place in found]


def _near_one(row: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [... pos] with their largest magnitude between 1/2 and 1, and the power of two each was divided by, [...
    1]."""
    _, power = torch.frexp(row.abs().amax(-1, keepdim=True))
    return torch.ldexp(row, -power), power


def _row_of(
    scores: Map, row: Tensor, position: int, layer: int, *, power: float = 0.0, facts: Mapping[str, Any] | None = None
) -> Attribution:
    """One row of a map as a result of its own. `facts`: of a rollout, whose row was divided by 2^power: it is brought
    back where it fits."""
    rolled: dict[str, Any] = {}
    if facts is not None:
        fits = abs(power) < math.log2(torch.finfo(row.dtype).max) / 2
        row = torch.ldexp(row, torch.tensor(int(power))) if fits else row
        rolled = {"rollout": {**facts, "rescaled_layers": [] if fits else [layer]}}
    info = {**scores.info, **rolled, "query": position, "query_token": scores.tokens[position], "layer": layer}
    return Attribution(row.clone(), scores.tokens, scores.method, info, scores.special, scores.words)


# --- flows and sums ---------------------------------------------------------------------------------------------------


@torch.no_grad()
@door
def flow(
    scores: Map,
    convention: str | None = None,
    *,
    query: int | str | None = None,
    layer: int = -1,
    residual: bool | None = None,
    normalize: bool | None = None,
) -> Map | Attribution:
    """Attention flow (Abnar and Zuidema 2020): the most that can flow from position i after layer l down to each
    input token.

    Node (layer, token); the edge from i to j of a layer carries up to the score of i and j, made ready by the same
    conventions as for `rollout` (for attention: (A + I) / row sum). A maximum flow for each input token by itself, rows
    divided by their sum: the first layer equals the capacities. Without `query` all layers and positions, a Map: n^2
    flows a layer. With `query` that position after `layer` alone, an Attribution: n flows.
    """
    layers, facts = as_convened(scores, convention, residual=residual, normalize=normalize)
    if bool((layers < 0).any()):
        raise InputError(f"{scores.method!r} has negative scores, and a capacity cannot be negative.")
    info = {**scores.info, "rollout": {**facts, "flow": True}}
    depth, n, _ = layers.shape
    if query is None:
        from tqdm.auto import tqdm

        rows = (row for number in range(depth) for row in _flows(layers, number, range(n)))
        flows = torch.stack(list(tqdm(rows, total=depth * n, desc="flow", delay=2, leave=False, disable=None)))
        return replace(scores, scores=rows_to_one(flows.view_as(layers))[0], info=info)
    whole, position, number = torch.zeros_like(layers), find(scores.tokens, query), _layer(layer, depth)
    whole[number, position] = next(_flows(layers, number, [position]))
    return readout(replace(scores, scores=rows_to_one(whole)[0], info=info), position, layer=number)


def _flows(layers: Tensor, layer: int, queries: Iterable[int]) -> Iterator[Tensor]:
    """For each position after `layer`: the maximum flow to each input token, [key]. Token i after layer l: node (l +
    1) n + i."""
    igraph = optional("igraph", "igraph", "flow", what="attention flow", verb="needs")
    n, dtype = layers.shape[-1], layers.dtype
    edges = layers[: layer + 1].double().cpu()
    number, query, key = edges.nonzero().unbind(-1)
    graph = igraph.Graph(n=(layer + 2) * n, directed=True)
    graph.add_edges(torch.stack([(number + 1) * n + query, number * n + key], -1).tolist())
    capacity = edges[number, query, key].tolist()
    for i in queries:
        yield torch.tensor([graph.maxflow_value((layer + 1) * n + i, j, capacity) for j in range(n)], dtype=dtype)


def layer_sum(scores: Map) -> Map:
    """The scores of all layers added up: a map of one layer, [1 query key]. No product, nothing normalised (AttCAT's
    way)."""
    if scores.info.get("rollout") is not None:
        raise InputError("this map is rolled out already. Sum the map that mix gave.")
    facts = {"convention": "sum", "residual": False, "normalize": False, "sum": True}
    return replace(scores, scores=scores.scores.sum(0, keepdim=True), info={**scores.info, "rollout": facts})


# --- positions --------------------------------------------------------------------------------------------------------


def bare(token: str) -> str:
    """A token without its tokenizer's marks for "new word" or "goes on"."""
    for mark in ("Ġ", "▁", "##", "Ċ"):
        token = token.removeprefix(mark)
    return token.removesuffix("</w>") or token


def find(tokens: Sequence[str], query: int | str) -> int:
    """The position a query means: an index (negative from the end), or a token that occurs once."""
    n = len(tokens)
    if is_integer(query):
        place = int(query)
        if not -n <= place < n:
            raise InputError(f"query {place} is out of range: there are {n} tokens, {-n} to {n - 1}.")
        return place % n
    if not isinstance(query, str):
        raise InputError(f"a query is an index or a token, not {query!r}.")
    exact = [place for place, token in enumerate(tokens) if token == query]
    places = exact or [place for place, token in enumerate(tokens) if bare(token) == query]
    if not places:
        listed = " ".join(tokens[:40]) + (" ..." if n > 40 else "")
        raise InputError(f"no token {query!r}. The tokens are: {listed}. An index works too.")
    if len(places) > 1:
        raise InputError(f"token {query!r} occurs {len(places)} times, at {places}. Say which one by its index.")
    return places[0]


def _layer(layer: int, depth: int) -> int:
    if not is_integer(layer):
        raise InputError(f"a layer is a number, not {layer!r:.80}.")
    if not -depth <= layer < depth:
        raise InputError(f"layer {layer} is out of range: the map has {depth} layers, 0 to {depth - 1}.")
    return layer % depth


@door
def readout(scores: Map, query: int | str, *, layer: int = -1, keep_special: bool = True) -> Attribution:
    """One row: what position `query` of this layer is made of. Without special tokens: see `without_special`."""
    layer, position = _layer(layer, scores.scores.shape[0]), find(scores.tokens, query)
    whole = _row_of(scores, scores.scores[layer, position].cpu(), position, layer)
    return whole if keep_special else without_special(whole)


# --- special tokens ---------------------------------------------------------------------------------------------------


def shares_of_one(info: Mapping[str, Any]) -> bool:
    """Are the rows behind this result shares of 1? Said by the method and its rollout, never by the numbers. Scores
    below 0 are no shares: what is left of such a row may sum to nothing."""
    rows, rolled = bool(info.get("distribution", False)), info.get("rollout")
    if info.get("signed") or not rolled:
        return rows and not info.get("signed")
    untouched = not rolled["residual"] and not rolled.get("sum")
    return bool(rolled.get("flow") or rolled["normalize"] or (rows and untouched))


def without_special(whole: Attribution) -> Attribution:
    """Special tokens left out. Shares (rows that sum to 1, see `shares_of_one`) are made to sum to 1 again; any other
    score stays as it is. `.info["special_removed"]` says how many tokens went, the sum of their scores and, of a
    map's row, their share of it."""
    content = [i for i, special in enumerate(whole.special) if not special]
    if not content:
        raise InputError("every token is special; nothing would be left.")
    row, gone = whole.scores[content], whole.scores[[i for i, special in enumerate(whole.special) if special]]
    total, size = row.sum(), float(whole.scores.abs().sum())
    shares = shares_of_one(whole.info) and float(total) > 0
    removed: dict[str, Any] = {"tokens": len(gone), "sum": float(gone.sum()), "rest_made_to_sum_to_1": shares}
    if "distribution" in whole.info and size > 0:
        removed["share"] = float(gone.abs().sum()) / size
    return replace(
        whole,
        scores=row / total if shares else row,
        tokens=tuple(whole.tokens[i] for i in content),
        special=(False,) * len(content),
        words=words_at(whole.words, content),
        info={**whole.info, "special_tokens": "removed", "special_removed": removed},
    )


def words_at(words: Words | None, positions: Sequence[int]) -> Words | None:
    """The words that consist of these positions alone, by the new numbers of the positions."""
    if words is None:
        return None
    number = {old: new for new, old in enumerate(positions)}
    return tuple(
        (word, tuple(map(number.__getitem__, places))) for word, places in words if number.keys() >= set(places)
    )
