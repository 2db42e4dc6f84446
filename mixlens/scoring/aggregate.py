"""Across layers: rollout, flow, sum, readout (Map -> Attribution)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError, is_integer
from ..base.optional import optional
from ..base.wrong_kinds import wrong_kinds_in_one_line
from ..types import Attribution, Map, Words
from .conventions import FROM_INPUT, ROW_OF_ZEROS, Wish, as_convened, is_from_input
from .products import products_of

TOGETHER = 1 << 26  # elements of a map that is rolled out together with others


def rows_to_one(scores: Tensor, *, offset: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    """Rows divided by their sum. A row of zeros says nothing of any other token: it becomes its own token, and is counted.

    The first row is the token at `offset`.
    """
    total = scores.sum(-1, keepdim=True)
    empty = total <= 0
    shared = (scores / total.masked_fill(empty, 1)).masked_fill_(empty, 0)
    shared.diagonal(offset, -2, -1).masked_fill_(empty[..., 0], 1)
    return shared, {"rows_without_score": empty[..., 0].long()}


@wrong_kinds_in_one_line
def rollout(
    scores: Map | Sequence[Map] | Mapping[str, Map],
    convention: str | None = None,
    *,
    residual: bool | None = None,
    normalize: bool | None = None,
) -> Any:
    """R_l = M_l ... M_1, last layer on the left: input to layer l, for every l. A list of maps gives a list, a dict a dict.

    The convention is the method's own unless named (`abnar`, `globenc`, `toolkit`, `alti`, `value_zeroing`, `chefer`);
    `residual` and `normalize` override it one by one. What was used is in `.info["rollout"]`. Products that would leave
    the range of the number type are rescaled by one scalar a layer, which changes no rank and no share. A map that is
    from the input to every layer already (`hta`, convention "input") is left as it is. Several maps at once are quicker
    on a GPU; `rolled_row` is much quicker where one row alone is wanted.
    """
    wish = Wish(convention, residual, normalize)
    if isinstance(scores, Mapping):
        return dict(zip(scores, _rolled_out(list(scores.values()), wish), strict=True))
    return _rolled_out([scores], wish)[0] if isinstance(scores, Map) else _rolled_out(scores, wish)


def _rolled_out(scores: Sequence[Map], wish: Wish) -> list[Map]:
    """`rollout` of each map."""
    _refuse_other_than_maps(scores, wish)
    rolled: dict[int, Map] = {}
    alike: dict[object, list[Convened]] = {}
    for number, one in enumerate(scores):
        if wish.leaves(one):
            facts = {"convention": FROM_INPUT, "residual": False, "normalize": False}
            rolled[number] = replace(one, info={**one.info, "rollout": facts})
        else:
            convened = Convened(
                number, one, *as_convened(one, wish.convention, residual=wish.residual, normalize=wish.normalize)
            )
            alike.setdefault(convened.kind, []).append(convened)
    for group in alike.values():
        rolled |= _multiplied(group)
    return [rolled[number] for number in range(len(scores))]


def _refuse_other_than_maps(scores: Any, wish: Wish) -> None:
    if not isinstance(scores, Sequence) or not all(isinstance(one, Map) for one in scores):
        raise InputError("rollout takes a Map, a list of maps or a dict of maps, as mix gives them.")
    if not isinstance(wish.convention, str | None):
        raise InputError(f"a rollout convention is a name, not {wish.convention!r:.80}.")


@dataclass(frozen=True, eq=False)
class Convened:
    """One of several maps, its layers [layer query key] made ready by a convention."""

    number: int
    scores: Map
    layers: Tensor
    facts: dict[str, Any]

    @property
    def kind(self) -> object:
        """What maps have in common that are multiplied as one: their shape, on one GPU. Others are multiplied apart."""
        if self.layers.device.type == "cpu" or self.layers.numel() > TOGETHER:
            return self.number
        return self.layers.shape, self.layers.dtype, self.layers.device, self.facts["normalize"]


def _multiplied(group: Sequence[Convened]) -> dict[int, Map]:
    """The rollouts of maps that are multiplied as one, by their number."""
    products, rescaled = products_of([one.layers for one in group], shares=group[0].facts["normalize"])
    rolled: dict[int, Map] = {}
    for one, product, layers in zip(group, products, rescaled, strict=True):
        info = {**one.scores.info, "rollout": {**one.facts, "rescaled_layers": layers}}
        rolled[one.number] = replace(one.scores, scores=product, info=info)
    return rolled


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

    The row is held near 1 by powers of two, which round nothing, and brought back at the end; where that would leave the
    number type's range (as `rollout` rescales) its largest entry stays near 1.
    """
    if Wish(convention, residual, normalize).leaves(scores):
        return readout(rollout(scores), query, layer=layer)
    layers, facts = as_convened(scores, convention, residual=residual, normalize=normalize)
    number, position = _layer(layer, len(layers)), find(scores.tokens, query)
    row, power = _near_one(layers[number, position])
    for matrix in reversed(layers[:number].unbind()):
        row, factor = _near_one(row @ matrix)
        power = power + factor
    return _row_of(scores, row.cpu(), float(power), facts, position, number)


def _row_of(scores: Map, row: Tensor, power: float, facts: Mapping[str, Any], position: int, layer: int) -> Attribution:
    """A row that was divided by 2^power, brought back where it fits."""
    fits = abs(power) < math.log2(torch.finfo(row.dtype).max) / 2
    if fits:
        row = torch.ldexp(row, torch.tensor(int(power)))
    rolled = {"rollout": {**facts, "rescaled_layers": [] if fits else [layer]}}
    return _attribution(scores, row.clone(), position, layer, rolled)


def _attribution(scores: Map, row: Tensor, position: int, layer: int, info: Mapping[str, Any]) -> Attribution:
    """One row of a map as a result of its own."""
    place = {"query": position, "query_token": scores.tokens[position], "layer": layer}
    return Attribution(
        row, scores.tokens, scores.method, {**scores.info, **info, **place}, scores.special, scores.words
    )


@torch.no_grad()
def rolled_rows(
    maps: Sequence[Map], queries: Sequence[int | str], *, convention: str | None = None
) -> list[Attribution]:
    """`rolled_row` of each map at its query. Short ones, and on a GPU all, at once: multiplied through the layers together."""
    pairs = list(zip(maps, queries, strict=True))
    if _one_by_one(maps):
        return [rolled_row(one, query, convention=convention) for one, query in pairs]
    places = [find(one.tokens, query) for one, query in pairs]
    facts, whole = _one_convention(maps, Wish(convention)), _padded(maps)
    if facts["residual"]:
        whole.diagonal(dim1=-2, dim2=-1).add_(1)
    totals = whole.sum(-1, keepdim=True) if facts["normalize"] else None
    rows, powers = _multiplied_rows(whole, totals, places)
    empty = _rows_of_zeros(totals, maps)
    rows, numbers = rows.cpu(), powers[:, 0].tolist()
    _refuse_rows_of_zeros(empty)
    results = zip(maps, places, rows, numbers, strict=True)
    return [
        _row_of(one, row[: len(one.tokens)], power, facts, place, len(whole) - 1) for one, place, row, power in results
    ]


def _refuse_rows_of_zeros(count: Tensor | None) -> None:
    if count is not None and int(count):
        raise InputError(ROW_OF_ZEROS)


def _one_by_one(maps: Sequence[Map]) -> bool:
    """Are the rows of these maps multiplied one after the other: of one map, of maps unlike each other, or of long ones?"""
    unlike = any(map(is_from_input, maps)) or len({len(one.scores) for one in maps}) > 1
    return len(maps) == 1 or _by_itself(maps) or unlike


def _one_convention(maps: Sequence[Map], wish: Wish) -> dict[str, Any]:
    """What is to be done to the layers of all maps; refused where it is not the same for all."""
    every = [wish.of(one) for one in maps]
    if any(facts["convention"] != every[0]["convention"] for facts in every):
        raise InputError("maps of several conventions cannot be rolled out as one.")
    return every[0]


def _padded(maps: Sequence[Map]) -> Tensor:
    """The maps as one tensor, [layer map query key]; nobody looks at what is padded."""
    longest = max(len(one.tokens) for one in maps)
    whole = maps[0].scores.new_zeros(len(maps[0].scores), len(maps), longest, longest)
    for number, one in enumerate(maps):
        n = len(one.tokens)
        whole[:, number, :n, :n] = one.scores
    return whole


def _multiplied_rows(whole: Tensor, totals: Tensor | None, places: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The row of each map at its place, multiplied through all layers, [map key]; and the power of two it was divided by."""
    numbers = torch.arange(whole.shape[1], device=whole.device)
    row, power = _near_one(_shared(whole[-1], totals, -1)[numbers, torch.tensor(places, device=whole.device)])
    for index in range(len(whole) - 2, -1, -1):
        row, factor = _near_one((row[:, None] @ _shared(whole[index], totals, index))[:, 0])
        power = power + factor
    return row, power


def _rows_of_zeros(totals: Tensor | None, maps: Sequence[Map]) -> Tensor | None:
    """How many rows sum to 0, as a tensor that a GPU need not be waited for; None where rows are not divided by their sums."""
    if totals is None:
        return None
    lengths = torch.tensor([len(one.tokens) for one in maps], device=totals.device)
    inside = torch.arange(totals.shape[-2], device=totals.device) < lengths[:, None]
    return ((totals[..., 0] == 0) & inside).sum()


def _by_itself(maps: Sequence[Map]) -> bool:
    """Long ones on a CPU: putting them together costs more than it saves."""
    return any(one.scores.device.type == "cpu" and one.scores.shape[-1] > 64 for one in maps)


def _shared(layer: Tensor, totals: Tensor | None, index: int) -> Tensor:
    """A layer's rows over their sums, where that is wanted; rows that are padded stay zero."""
    return layer if totals is None else layer / totals[index].masked_fill(totals[index] == 0, 1)


def _near_one(row: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [... pos] with their largest magnitude between 1/2 and 1, and the power of two each was divided by, [... 1]."""
    _, power = torch.frexp(row.abs().amax(-1, keepdim=True))
    return torch.ldexp(row, -power), power


@torch.no_grad()
@wrong_kinds_in_one_line
def flow(
    scores: Map,
    convention: str | None = None,
    *,
    query: int | str | None = None,
    layer: int = -1,
    residual: bool | None = None,
    normalize: bool | None = None,
) -> Map | Attribution:
    """Attention flow (Abnar and Zuidema 2020): the most that can flow from position i after layer l down to each input token.

    Node (layer, token); the edge from i to j of a layer carries up to the score of i and j, made ready by the same
    conventions as for `rollout` (for attention: (A + I) / row sum). A maximum flow for each input token by itself, rows
    divided by their sum: the first layer equals the capacities. Without `query` all layers and positions, a Map: n^2
    flows a layer. With `query` that position after `layer` alone, an Attribution: n flows.
    """
    layers, facts = as_convened(scores, convention, residual=residual, normalize=normalize)
    if bool((layers < 0).any()):
        raise InputError(f"{scores.method!r} has negative scores, and a capacity cannot be negative.")
    info = {**scores.info, "rollout": {**facts, "flow": True}}
    if query is None:
        return replace(scores, scores=rows_to_one(_all_flows(layers))[0], info=info)
    whole, position, number = torch.zeros_like(layers), find(scores.tokens, query), _layer(layer, len(layers))
    whole[number, position] = next(_flows(layers, number, [position]))
    return readout(replace(scores, scores=rows_to_one(whole)[0], info=info), position, layer=number)


def _all_flows(layers: Tensor) -> Tensor:
    """The maximum flow from every position after every layer to each input token, [layer query key]."""
    from tqdm.auto import tqdm

    depth, n, _ = layers.shape
    rows = (row for number in range(depth) for row in _flows(layers, number, range(n)))
    flows = list(tqdm(rows, total=depth * n, desc="flow", delay=2, leave=False, disable=None))
    return torch.stack(flows).view_as(layers)


def _flows(layers: Tensor, layer: int, queries: Iterable[int]) -> Iterator[Tensor]:
    """For each position after `layer`: the maximum flow to each input token, [key]. Token i after layer l: node (l + 1) n + i."""
    n, dtype = layers.shape[-1], layers.dtype
    edges = layers[: layer + 1].double().cpu()
    number, query, key = edges.nonzero().unbind(-1)
    graph = _igraph().Graph(n=(layer + 2) * n, directed=True)
    graph.add_edges(torch.stack([(number + 1) * n + query, number * n + key], -1).tolist())
    capacity = edges[number, query, key].tolist()
    for i in queries:
        yield torch.tensor([graph.maxflow_value((layer + 1) * n + i, j, capacity) for j in range(n)], dtype=dtype)


def _igraph() -> Any:
    return optional("igraph", "igraph", "flow", what="attention flow", verb="needs")


def layer_sum(scores: Map) -> Map:
    """The scores of all layers added up: a map of one layer, [1 query key]. No product, nothing normalised (AttCAT's way)."""
    if scores.info.get("rollout") is not None:
        raise InputError("this map is rolled out already. Sum the map that mix gave.")
    facts = {"convention": "sum", "residual": False, "normalize": False, "sum": True}
    return replace(scores, scores=scores.scores.sum(0, keepdim=True), info={**scores.info, "rollout": facts})


def bare(token: str) -> str:
    """A token without its tokenizer's marks for "new word" or "goes on"."""
    for mark in ("Ġ", "▁", "##", "Ċ"):
        token = token.removeprefix(mark)
    return token.removesuffix("</w>") or token


def find(tokens: Sequence[str], query: int | str) -> int:
    """The position a query means: an index (negative from the end), or a token that occurs once."""
    if is_integer(query):
        return _index(len(tokens), int(query))
    if not isinstance(query, str):
        raise InputError(f"a query is an index or a token, not {query!r}.")
    places = _places(tokens, query) or _places(list(map(bare, tokens)), query)
    if len(places) != 1:
        raise InputError(_not_one(tokens, query, places))
    return places[0]


def _places(tokens: Sequence[str], query: str) -> list[int]:
    return [place for place, token in enumerate(tokens) if token == query]


def _index(n: int, query: int) -> int:
    if not -n <= query < n:
        raise InputError(f"query {query} is out of range: there are {n} tokens, {-n} to {n - 1}.")
    return query % n


def _not_one(tokens: Sequence[str], query: str, places: Sequence[int]) -> str:
    """Why a token is no query: it occurs never, or several times."""
    if places:
        return f"token {query!r} occurs {len(places)} times, at {places}. Say which one by its index."
    listed = " ".join(tokens[:40]) + (" ..." if len(tokens) > 40 else "")
    return f"no token {query!r}. The tokens are: {listed}. An index works too."


def _layer(layer: int, depth: int) -> int:
    if not is_integer(layer):
        raise InputError(f"a layer is a number, not {layer!r:.80}.")
    if not -depth <= layer < depth:
        raise InputError(f"layer {layer} is out of range: the map has {depth} layers, 0 to {depth - 1}.")
    return layer % depth


@wrong_kinds_in_one_line
def readout(scores: Map, query: int | str, *, layer: int = -1, keep_special: bool = True) -> Attribution:
    """One row: what position `query` of this layer is made of. Without special tokens: see `without_special`."""
    layer, position = _layer(layer, scores.scores.shape[0]), find(scores.tokens, query)
    whole = _attribution(scores, scores.scores[layer, position].cpu().clone(), position, layer, {})
    return whole if keep_special else without_special(whole)


def shares_of_one(info: Mapping[str, Any]) -> bool:
    """Are the rows behind this result shares of 1? Said by the method and its rollout, never by the numbers. Scores below 0 are
    no shares: what is left of such a row may sum to nothing."""
    if info.get("signed"):
        return False
    rows, rolled = bool(info.get("distribution", False)), info.get("rollout")
    return _are_shares_rolled_out(rows, rolled) if rolled else rows


def _are_shares_rolled_out(rows: bool, rolled: Mapping[str, Any]) -> bool:
    """Are rows shares of 1 after this rollout? `rows`: they were before."""
    untouched = not rolled["residual"] and not rolled.get("sum")
    return bool(rolled.get("flow") or rolled["normalize"] or (rows and untouched))


def without_special(whole: Attribution) -> Attribution:
    """Special tokens left out. Shares (rows that sum to 1, see `shares_of_one`) are made to sum to 1 again; any other score
    stays as it is. `.info["special_removed"]` says how many tokens went, the sum of their scores and, of a map's row, their
    share of it."""
    content = [i for i, special in enumerate(whole.special) if not special]
    if not content:
        raise InputError("every token is special; nothing would be left.")
    row = whole.scores[content]
    total = row.sum()
    shares = shares_of_one(whole.info) and float(total) > 0
    return replace(
        whole,
        scores=row / total if shares else row,
        tokens=tuple(whole.tokens[i] for i in content),
        special=(False,) * len(content),
        words=words_at(whole.words, content),
        info={**whole.info, "special_tokens": "removed", "special_removed": _removed(whole, shares=shares)},
    )


def words_at(words: Words | None, positions: Sequence[int]) -> Words | None:
    """The words that consist of these positions alone, by the new numbers of the positions."""
    if words is None:
        return None
    number = {old: new for new, old in enumerate(positions)}
    return tuple(
        (word, tuple(map(number.__getitem__, places))) for word, places in words if number.keys() >= set(places)
    )


def _removed(whole: Attribution, *, shares: bool) -> dict[str, Any]:
    """How many special tokens there are, the sum of their scores and, of a map's row, their share of it. `shares`: the rest is
    made to sum to 1."""
    special = whole.scores[[i for i, special in enumerate(whole.special) if special]]
    facts: dict[str, Any] = {"tokens": len(special), "sum": float(special.sum()), "rest_made_to_sum_to_1": shares}
    size = float(whole.scores.abs().sum())
    if "distribution" in whole.info and size > 0:
        facts["share"] = float(special.abs().sum()) / size
    return facts
