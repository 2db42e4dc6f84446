"""Across layers: rollout, flow, sum, readout (Map -> Attribution)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .errors import InputError, nearest
from .fast.products import products_of
from .optional import optional
from .types import Attribution, Map


@dataclass(frozen=True)
class Convention:
    """How a paper turns layer maps into one: is the identity added, are rows made to sum to 1 before the product?"""

    residual: bool
    normalize: bool
    source: str


CONVENTIONS = {
    "abnar": Convention(True, True, "Abnar and Zuidema 2020: (A + I) / row sum"),
    "globenc": Convention(False, False, "Modarressi et al. 2022: the matrices as they are"),
    "toolkit": Convention(False, True, "GlobEnc as the Value Zeroing authors ran it: rows made to sum to 1"),
    "alti": Convention(False, True, "Ferrando et al. 2022: rows sum to 1, nothing added"),
    "value_zeroing": Convention(False, True, "Mohebbi et al. 2023: rows sum to 1, nothing added"),
    "chefer": Convention(True, True, "Chefer et al. 2021: (M + I) / row sum"),
}
TOGETHER = 1 << 26  # elements of a map that is rolled out together with others
ROW_OF_ZEROS = (
    "a row of this map sums to 0, so it cannot be normalised. Roll it out by a convention that does not: "
    "rollout(normalize=False), or name:rollout=globenc where a method is written with its options."
)
FROM_INPUT = "input"  # the convention of maps that are from the input to every layer already


def rows_to_one(scores: Tensor, *, offset: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    """Rows divided by their sum. A row of zeros says nothing of any other token: it becomes its own token, and is counted.

    The first row is the token at `offset`.
    """
    total = scores.sum(-1, keepdim=True)
    empty = total <= 0
    shared = (scores / total.masked_fill(empty, 1)).masked_fill_(empty, 0)
    shared.diagonal(offset, -2, -1).masked_fill_(empty[..., 0], 1)
    return shared, {"rows_without_score": empty[..., 0].long()}


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
    if isinstance(scores, Mapping):
        made = rollout(list(scores.values()), convention, residual=residual, normalize=normalize)
        return dict(zip(scores, made, strict=True))
    if isinstance(scores, Map):
        return rollout([scores], convention, residual=residual, normalize=normalize)[0]
    if not isinstance(scores, Sequence) or not all(isinstance(one, Map) for one in scores):
        raise InputError("rollout takes a Map, a list of maps or a dict of maps, as mix gives them.")
    if convention is not None and not isinstance(convention, str):
        raise InputError(f"a rollout convention is a name, not {convention!r:.80}.")
    rolled: dict[int, Map] = {}
    alike: dict[Any, list[tuple[int, Tensor, dict[str, Any]]]] = {}  # maps of one shape on one GPU are multiplied as one
    for number, one in enumerate(scores):
        if convention is residual is normalize is None and _from_input(one):
            told = {"convention": FROM_INPUT, "residual": False, "normalize": False}
            rolled[number] = replace(one, info={**one.info, "rollout": told})
            continue
        layers, told = as_convened(one, convention, residual=residual, normalize=normalize)
        apart = layers.device.type == "cpu" or layers.numel() > TOGETHER
        kind = (layers.shape, layers.dtype, layers.device, told["normalize"])
        alike.setdefault(number if apart else kind, []).append((number, layers, told))
    for group in alike.values():
        products, rescaled = products_of([layers for _, layers, _ in group], shares=group[0][2]["normalize"])
        for (number, _, told), product, which in zip(group, products, rescaled, strict=True):
            info = {**scores[number].info, "rollout": {**told, "rescaled_layers": which}}
            rolled[number] = replace(scores[number], scores=product, info=info)
    return [rolled[number] for number in range(len(scores))]


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
    if convention is residual is normalize is None and _from_input(scores):
        return readout(rollout(scores), query, layer=layer)
    layers, told = as_convened(scores, convention, residual=residual, normalize=normalize)
    number, position = _layer(layer, len(layers)), find(scores.tokens, query)
    row, power = _near_one(layers[number, position])
    for matrix in reversed(layers[:number].unbind()):
        row, moved = _near_one(row @ matrix)
        power = power + moved
    return _row_of(scores, row.cpu(), float(power), told, position, number)


def _row_of(scores: Map, row: Tensor, power: float, told: Mapping[str, Any], position: int, layer: int) -> Attribution:
    """A row that was divided by 2^power, brought back where it fits."""
    fits = abs(power) < math.log2(torch.finfo(row.dtype).max) / 2
    if fits:
        row = torch.ldexp(row, torch.tensor(int(power)))
    info = {
        **scores.info,
        "rollout": {**told, "rescaled_layers": [] if fits else [layer]},
        **{"query": position, "query_token": scores.tokens[position], "layer": layer},
    }
    return Attribution(row.clone(), scores.tokens, scores.method, info, scores.special, scores.words)


@torch.no_grad()
def rolled_rows(maps: Sequence[Map], queries: Sequence[int | str], *, convention: str | None = None) -> list[Attribution]:
    """`rolled_row` of each map at its query. Short ones, and on a GPU all, at once: multiplied through the layers together."""
    if len(maps) == 1 or _by_itself(maps) or any(map(_from_input, maps)) or len({len(one.scores) for one in maps}) > 1:
        return [rolled_row(one, query, convention=convention) for one, query in zip(maps, queries, strict=True)]
    places = [find(one.tokens, query) for one, query in zip(maps, queries, strict=True)]
    name, residual, normalize = _convention(maps[0], convention, None, None)
    depth, lengths, like = len(maps[0].scores), [len(one.tokens) for one in maps], maps[0].scores
    whole = like.new_zeros(depth, len(maps), max(lengths), max(lengths))  # nobody looks at what is padded
    for number, (one, n) in enumerate(zip(maps, lengths, strict=True)):
        if _convention(one, convention, None, None)[0] != name:
            raise InputError("maps of several conventions cannot be rolled out as one.")
        whole[:, number, :n, :n] = one.scores
    if residual:
        whole.diagonal(dim1=-2, dim2=-1).add_(1)
    totals = whole.sum(-1, keepdim=True) if normalize else None
    rows = torch.arange(len(maps), device=like.device)
    row, power = _near_one(_shared(whole[-1], totals, -1)[rows, torch.tensor(places, device=like.device)])
    for index in range(depth - 2, -1, -1):
        row, moved = _near_one((row[:, None] @ _shared(whole[index], totals, index))[:, 0])
        power = power + moved
    inside = torch.arange(max(lengths), device=like.device) < torch.tensor(lengths, device=like.device)[:, None]
    empty = torch.zeros((), device=like.device) if totals is None else ((totals[..., 0] == 0) & inside).sum()
    held, powers, wrong = row.cpu(), power[:, 0].tolist(), int(empty)
    if wrong:
        raise InputError(ROW_OF_ZEROS)
    told = {"convention": name, "residual": residual, "normalize": normalize}
    made = zip(maps, places, lengths, held, powers, strict=True)
    return [_row_of(one, scores[:n], back, told, place, depth - 1) for one, place, n, scores, back in made]


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


def _from_input(scores: Map) -> bool:
    return scores.info.get("convention") == FROM_INPUT and scores.info.get("rollout") is None


def as_convened(
    scores: Map, convention: str | None, *, residual: bool | None, normalize: bool | None
) -> tuple[Tensor, dict[str, Any]]:
    """The layers [layer query key] as a convention wants them, and what was done: its name, residual and normalize."""
    name, residual, normalize = _convention(scores, convention, residual, normalize)
    layers = scores.scores
    if residual:
        layers = layers + torch.eye(layers.shape[-1], dtype=layers.dtype, device=layers.device)
    if normalize:
        total = layers.sum(-1, keepdim=True)
        if bool((total == 0).any()):
            raise InputError(ROW_OF_ZEROS)
        layers = layers / total
    return layers, {"convention": name, "residual": residual, "normalize": normalize}


def _convention(scores: Map, convention: str | None, residual: bool | None, normalize: bool | None) -> tuple[str, bool, bool]:
    """A convention's name, and whether the identity is added and rows are made to sum to 1."""
    if scores.info.get("rollout") is not None:
        raise InputError("this map is rolled out already. Roll out the map that mix gave.")
    name = convention or str(scores.info.get("convention", "alti"))
    if _from_input(scores):
        raise InputError(f"{scores.method!r} is from the input to every layer already: its layers are not to be multiplied.")
    if name not in CONVENTIONS:
        raise InputError(f"unknown rollout convention {name!r}. {nearest(name, CONVENTIONS)}")
    used = CONVENTIONS[name]
    return name, used.residual if residual is None else residual, used.normalize if normalize is None else normalize


@torch.no_grad()
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
    layers, told = as_convened(scores, convention, residual=residual, normalize=normalize)
    if bool((layers < 0).any()):
        raise InputError(f"{scores.method!r} has negative scores, and a capacity cannot be negative.")
    info = {**scores.info, "rollout": {**told, "flow": True}}
    depth, n, _ = layers.shape
    if query is not None:
        whole, position, number = torch.zeros_like(layers), find(scores.tokens, query), _layer(layer, depth)
        whole[number, position] = next(_flows(layers, number, [position]))
        return readout(replace(scores, scores=rows_to_one(whole)[0], info=info), position, layer=number)
    from tqdm.auto import tqdm

    rows = (row for number in range(depth) for row in _flows(layers, number, range(n)))
    flows = list(tqdm(rows, total=depth * n, desc="flow", delay=2, leave=False, disable=None))
    return replace(scores, scores=rows_to_one(torch.stack(flows).view_as(layers))[0], info=info)


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
    told = {"convention": "sum", "residual": False, "normalize": False, "sum": True}
    return replace(scores, scores=scores.scores.sum(0, keepdim=True), info={**scores.info, "rollout": told})


def bare(token: str) -> str:
    """A token without its tokenizer's marks for "new word" or "goes on"."""
    for mark in ("Ġ", "▁", "##", "Ċ"):
        token = token.removeprefix(mark)
    return token.removesuffix("</w>") or token


def find(tokens: Sequence[str], query: int | str) -> int:
    """The position a query means: an index (negative from the end), or a token that occurs once."""
    n = len(tokens)
    if isinstance(query, bool) or not isinstance(query, int | str):
        raise InputError(f"a query is an index or a token, not {query!r}.")
    if isinstance(query, int):
        if not -n <= query < n:
            raise InputError(f"query {query} is out of range: there are {n} tokens, {-n} to {n - 1}.")
        return query % n
    places = [i for i, token in enumerate(tokens) if token == query] or [
        i for i, token in enumerate(tokens) if bare(token) == query
    ]
    if len(places) == 1:
        return places[0]
    listed = " ".join(tokens[:40]) + (" ..." if n > 40 else "")
    if not places:
        raise InputError(f"no token {query!r}. The tokens are: {listed}. An index works too.")
    raise InputError(f"token {query!r} occurs {len(places)} times, at {places}. Say which one by its index.")


def _layer(layer: int, depth: int) -> int:
    if not isinstance(layer, int) or isinstance(layer, bool):
        raise InputError(f"a layer is a number, not {layer!r:.80}.")
    if not -depth <= layer < depth:
        raise InputError(f"layer {layer} is out of range: the map has {depth} layers, 0 to {depth - 1}.")
    return layer % depth


def readout(scores: Map, query: int | str, *, layer: int = -1, keep_special: bool = True) -> Attribution:
    """One row: what position `query` of this layer is made of. Without special tokens: see `without_special`."""
    layer, position = _layer(layer, scores.scores.shape[0]), find(scores.tokens, query)
    row = scores.scores[layer, position].cpu()
    info = {**scores.info, "query": position, "query_token": scores.tokens[position], "layer": layer}
    whole = Attribution(row.clone(), scores.tokens, scores.method, info, scores.special, scores.words)
    return whole if keep_special else without_special(whole)


def shares_of_one(info: Mapping[str, Any]) -> bool:
    """Are the rows behind this result shares of 1? Said by the method and its rollout, never by the numbers. Scores below 0 are
    no shares: what is left of such a row may sum to nothing."""
    if info.get("signed"):
        return False
    rolled = info.get("rollout")
    rows = bool(info.get("distribution", False))
    if not rolled:
        return rows
    return bool(rolled.get("flow") or rolled["normalize"] or (rows and not rolled["residual"] and not rolled.get("sum")))


def without_special(whole: Attribution) -> Attribution:
    """Special tokens left out. Shares (rows that sum to 1, see `shares_of_one`) are made to sum to 1 again; any other score
    stays as it is. `.info["special_removed"]` says how many tokens went, the sum of their scores and, of a map's row, their
    share of it."""
    kept = [i for i, special in enumerate(whole.special) if not special]
    if not kept:
        raise InputError("every token is special; nothing would be left.")
    row = whole.scores[kept]
    total = row.sum()
    number = {old: new for new, old in enumerate(kept)}
    words = (
        None
        if whole.words is None
        else tuple((word, tuple(number[i] for i in places)) for word, places in whole.words if all(i in number for i in places))
    )
    shares = shares_of_one(whole.info) and float(total) > 0
    gone = [i for i, special in enumerate(whole.special) if special]
    removed: dict[str, Any] = {"tokens": len(gone), "sum": float(whole.scores[gone].sum()), "rest_made_to_sum_to_1": shares}
    size = float(whole.scores.abs().sum())
    if "distribution" in whole.info and size > 0:
        removed["share"] = float(whole.scores[gone].abs().sum()) / size
    return replace(
        whole,
        scores=row / total if shares else row,
        tokens=tuple(whole.tokens[i] for i in kept),
        special=tuple(False for _ in kept),
        words=words,
        info={**whole.info, "special_tokens": "removed", "special_removed": removed},
    )
