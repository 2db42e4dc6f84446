"""Hidden Token Attribution (Brunner et al. 2020, On Identifiability in Transformers): how steep an output is in each
token.

Within one layer the norm of the Jacobian of every pair of tokens has a closed form. With a^h_ij attention, c the slope
of the logits' cap (1 without one), s their scale, Q, K, V the Jacobians of one token's query, key and value, M_i and
D_i those of all that is behind attention, R_i = M_i W_O and vbar_i = sum_k a_ik v_k:

    i != j:  J_ij = R_i sum_h ( a^h_ij V^h_j + u^h_ij (s K^hT_j q^h_i)^T ),      u^h_ij = a^h_ij c^h_ij (v^h_j - vbar^h_i)
    i = j:   the same, plus D_i, plus R_i sum_h s sum_k u^h_ik k^hT_k Q^h_i
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from tqdm.auto import tqdm

from .. import fast
from ..base.errors import InputError, ModelError, nearest
from ..base.rounding import TOLERANCE, largest_gap, working_dtype
from ..base.steps import tell
from ..layer import Block
from ..model.attention import repeat_heads
from ..model.offload import refuse_packed
from ..model.rerun import LayerGraph
from ..scoring.aggregate import rows_to_one
from ..scoring.registry import Extras, mixing
from ..types import Trace
from ._jacobian import batched_gradient, behind_attention, pull, slices, token_jacobian

PAPER = "Brunner et al. 2020, On Identifiability in Transformers"
GLOBENC = "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution"
NORMS = ("frobenius", "spectral", "sum")


@dataclass(frozen=True)
class Attending:
    """What attention brings to the Jacobian. Heads that share a key and value are written out."""

    weights: Tensor  # a, [head query key]
    slopes: Tensor  # a c
    query: Tensor  # s q, [head pos e]
    key: Tensor  # s k
    value: Tensor
    mean: Tensor  # vbar
    of_query: Tensor  # Q, [pos head e d], or [1 head e d] where all tokens have the same
    of_key: Tensor
    of_value: Tensor

    def steps(self, targets: slice, sources: slice) -> Tensor:
        """u, [head query key e]"""
        return self.slopes[:, targets, sources, None] * (self.value[:, None, sources] - self.mean[:, targets, None])

    def own(self, tokens: slice) -> Tensor:
        """What the weighted values at i owe to x_i: by its value, its key and its query, [pos head*e d]."""
        place = torch.arange(tokens.start, tokens.stop, device=self.query.device)
        q, k, v = (j[tokens] if len(j) > 1 else j for j in (self.of_query, self.of_key, self.of_value))
        u = self.steps(tokens, slice(None))
        weight, step = self.weights[:, place, place].t(), u[:, place - tokens.start, place].transpose(0, 1)
        by_value = weight[..., None, None] * v
        by_key = step[..., None] * (self.query[:, tokens].transpose(0, 1)[..., None, :] @ k)
        by_query = torch.einsum("hika,hkb->ihab", u, self.key) @ q
        return by_query.add_(by_value).add_(by_key).flatten(1, 2)

    def backward(self, cotangent: Tensor) -> Tensor:
        """What one backward pass would say to x, [pos d], of cotangents [head pos e] at the weighted values."""
        logits = self.slopes * (
            cotangent @ self.value.transpose(-1, -2) - (cotangent * self.mean).sum(-1, keepdim=True)
        )
        query, key = torch.einsum("hij,hje->ihe", logits, self.key), torch.einsum("hij,hie->jhe", logits, self.query)
        value = torch.einsum("hij,hie->jhe", self.weights, cotangent)
        pairs = ((query, self.of_query), (key, self.of_key), (value, self.of_value))
        return torch.stack([(given.flatten(1)[:, None] @ j.flatten(1, 2))[:, 0] for given, j in pairs]).sum(0)


def attending(graph: LayerGraph, block: Block, *, times_input: bool) -> Attending:
    layer, dtype, heads = block.layer, block.dtype, block.attention.shape[0]
    assert layer.query is not None
    assert layer.key is not None

    def jacobian(y: Tensor | None) -> Tensor:
        assert y is not None
        found = pull(block.wide_modules.norm_before_attention, block.x, token_jacobian(y, graph.read).to(dtype))
        found = found * block.x[:, None] if times_input else found
        return found.unflatten(1, (y.shape[1], y.shape[3])).repeat_interleave(heads // y.shape[1], dim=1)

    query, key = layer.query.to(dtype), repeat_heads(layer.key.to(dtype), heads) * layer.scaling
    slopes = block.attention
    if layer.softcap is not None:
        slopes = slopes * (1 - torch.tanh(query @ key.transpose(-1, -2) / layer.softcap) ** 2)
    return Attending(
        block.attention,
        slopes,
        query * layer.scaling,
        key,
        block.values,
        block.attention @ block.values,
        *(jacobian(y) for y in (graph.query, graph.key, graph.value)),
    )


def gram(left: Tensor, right: Tensor, heads: int) -> Tensor:
    """left^h_j right^gT_j for all pairs of heads of [pos head*e d], [head head pos e e]"""
    return (left @ right.transpose(-1, -2)).unflatten(-1, (heads, -1)).unflatten(1, (heads, -1)).permute(1, 3, 0, 2, 4)


def pair_squares(gamma: Tensor, vv: Tensor, vk: Tensor, k: Tensor, a: Tensor, u: Tensor, q: Tensor) -> Tensor:
    """|J_ij|_F^2 for i != j, [query key], from Gamma_i = R_i^T R_i, V_j V_j^T, V_j K_j^T and K_j, by pairs of heads h,
    g:

    sum_hg  a^h a^g <Gamma^hg, V^h V^gT>  +  2 a^h u^gT Gamma^gh V^h K^gT q^g  +  (u^hT Gamma^hg u^g) (K^hT q^h . K^gT q^g)
    """
    values = torch.einsum("hgiab,hgjab->hgij", gamma, vv)
    moved = torch.einsum("hgiab,gijb->hgija", gamma, u)
    crossed = (moved * torch.einsum("hgjab,gib->hgija", vk, q)).sum((1, -1))
    keys = (u[:, None] * moved).sum(-1)
    turned = torch.einsum("jhad,hia->ijhd", k, q)
    turned = (turned @ turned.transpose(-1, -2)).permute(2, 3, 0, 1)
    return (a[:, None] * a * values + keys * turned).sum((0, 1)) + 2 * (a * crossed).sum(0)


def closed_form(graph: LayerGraph, block: Block, *, times_input: bool) -> tuple[Tensor, float]:
    """|J_ij|_F, [query key], exactly; and how far a gradient put together from the same pieces is from autograd's.

    About 7 n d^3 operations (5 more where tokens have Jacobians of their own) and 5 n^2 d^2. Held: n d^2 numbers (4 n
    d^2)."""
    pieces, projection, (n, d) = attending(graph, block, times_input=times_input), block.projection, block.x.shape
    heads, e = projection.shape[:2]
    squares, gamma, own = (block.x.new_empty(shape) for shape in ((n, n), (heads, heads, n, e, e), (n,)))
    direction = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(block.x)
    attended, gradient = block.x.new_empty(n, heads * e), block.x.new_empty(n, d)
    for tokens in slices(n, 12 * d * d):
        behind, beside = behind_attention(block, tokens)  # M, D
        beside = beside * block.x[tokens, None] if times_input else beside
        right = behind @ projection.flatten(0, 1).t()  # R
        own[tokens] = torch.linalg.matrix_norm(torch.baddbmm(beside, right, pieces.own(tokens)))
        gamma[:, :, tokens] = gram(right.transpose(-1, -2), right.transpose(-1, -2), heads)
        attended[tokens], gradient[tokens] = ((direction[tokens, None] @ j)[:, 0] for j in (right, beside))
    alike = len(pieces.of_key) == len(pieces.of_value) == 1
    for sources in [slice(0, n)] if alike else slices(n, 9 * d * d):
        v, k = (j[sources] if len(j) > 1 else j for j in (pieces.of_value, pieces.of_key))
        vv, vk = (gram(v.flatten(1, 2), other.flatten(1, 2), heads).contiguous() for other in (v, k))
        for targets in slices(n, 4 * (sources.stop - sources.start) * heads * d):
            a, u, q = pieces.weights[:, targets, sources], pieces.steps(targets, sources), pieces.query[:, targets]
            squares[targets, sources] = pair_squares(gamma[:, :, targets], vv, vk, k, a, u, q)
    squares.diagonal().copy_(own**2)
    gradient = gradient + pieces.backward(attended.view(n, heads, e).transpose(0, 1))
    (expected,) = torch.autograd.grad(graph.output, graph.input, direction[None].to(graph.output))
    expected = expected[0].to(gradient) * (block.x if times_input else 1)
    return squares.clamp(min=0).sqrt(), largest_gap(gradient, expected)


def row_by_row(graph: LayerGraph, *, times_input: bool) -> Tensor:
    """|J_ij|_F by one vector-Jacobian product for every feature of every token: where queries and keys cannot be
    seen."""
    y, x = graph.output, graph.input
    _, n, d = y.shape
    squares = y.new_zeros(n, n)
    for some in slices(n * d, 4 * n * d):
        wanted = torch.arange(some.start, some.stop, device=y.device)[:, None] == torch.arange(n * d, device=y.device)
        rows = batched_gradient(y, x, wanted.view(-1, 1, n, d).to(y))[:, 0] * (x[0] if times_input else 1)
        squares.index_add_(0, torch.arange(some.start, some.stop, device=y.device) // d, rows.pow(2).sum(-1))
    return squares.sqrt()


def layer_norms(trace: Trace, name: str, *, times_input: bool) -> tuple[Tensor, Extras]:
    """|d y_i / d x_j|_F within each layer, [layer query key]."""
    maps, gaps, forms = [], [], []
    for index, (layer, graph) in enumerate(zip(trace.layers, trace.model.local_graphs(trace), strict=True)):
        if layer.query is None:
            made, off = row_by_row(graph, times_input=times_input).detach(), 0.0
        else:
            made, off = closed_form(graph, fast.block_of(layer, index), times_input=times_input)
        if not off <= max(TOLERANCE[layer.input.dtype], TOLERANCE[torch.float32]):
            wide = layer.input.dtype == torch.float64
            wider = "" if wide else " If the weights are very large, load with dtype='float64'."
            raise ModelError(
                f"layer {index}: a gradient put together from the parts is not the model's (relative gap {off:.1e}), "
                f"so {name!r} gives no map. Other methods do not rest on it: ask for them without {name!r}.{wider}"
            )
        maps.append(made.to(trace.model.device))
        gaps.append(off)
        forms.append("autograd" if layer.query is None else "closed form")
    form = forms[0] if len(set(forms)) == 1 else ", ".join(forms)
    return torch.stack(maps), {"form": form, "gradient_gap": torch.tensor(gaps, dtype=torch.float64)}


@mixing(paper=PAPER, rollout="alti", distribution=False, whole=True, cost="d / 2")
def hta_layer(trace: Trace) -> tuple[Tensor, Extras]:
    """HTA of one layer alone: |d y_i / d x_j|_F from the layer's input to its output; rows are not divided by their sum.

    In closed form, or by autograd where a model's own code keeps its queries and keys: `.info["form"]` says which.
    `.info["gradient_gap"]`: how far a gradient put together from the closed form's pieces is from the model's, per
    layer."""
    return layer_norms(trace, "hta_layer", times_input=False)


@mixing(paper=GLOBENC, rollout="alti", distribution=False, whole=True, cost="d")
def hta_layer_x_input(trace: Trace) -> tuple[Tensor, Extras]:
    """HTA x Inputs of one layer (eq. 18): |d y_i / d x_j diag(x_j)|_F, each column times that feature of x_j, as `hta_layer`."""
    return layer_norms(trace, "hta_layer_x_input", times_input=True)


class Directions:
    """Directions at the embeddings, pushed through the whole model: one pass gives J r for every layer at once.

    Streamed in batches of copies of the input, so that no more than a few million numbers are held.
    """

    def __init__(self, trace: Trace, *, after: bool):
        self.trace, self.after, self.n = trace, after, len(trace)
        self.sizes: set[int] = set()  # of batches of copies that were compared with one copy alone
        widths: list[int] = []

        def note(x: Tensor) -> Tensor:
            widths.append(x.shape[-1])
            return x

        trace.model.run_from(trace, note, lambda layer, output: None, after=after)
        self.width = widths[0]
        self.shape = (len(trace.layers), self.n, self.n)  # of norms, [layer query key]

    def push(self, keys: Tensor, directions: Tensor, each: Callable[[int, Tensor], None]) -> None:
        """`directions` [copy in], each at the token `keys` [copy] says: each(layer, J direction [copy query d])."""
        copies = torch.arange(len(keys))

        def enter(x: Tensor) -> Tensor:
            tangents = torch.zeros_like(x)
            tangents[copies, keys] = directions.to(x)
            return forward_ad.make_dual(x, tangents)

        def leave(layer: int, output: Tensor) -> None:
            each(layer, forward_ad.unpack_dual(output).tangent.to(working_dtype(output.dtype)))

        with forward_ad.dual_level(), fast.linear_tangents():
            compare = len(keys) not in self.sizes
            self.trace.model.run_from(self.trace, enter, leave, after=self.after, copies=len(keys), compare=compare)
        self.sizes.add(len(keys))

    def batches(self, total: int) -> list[slice]:
        """0 to total, as many copies at a time as fit."""
        each = self.n * 4 * self.trace.layers[0].input.shape[-1]
        return list(slices(total, each, room=1 << (22 if self.trace.model.device.type == "cpu" else 27)))


def watched(steps: Sequence[Any]) -> Iterator[Any]:
    """With a bar, where that takes more than two seconds and someone watches."""
    for done, step in enumerate(tqdm(steps, desc="hta", delay=2, leave=False, disable=None), 1):
        yield step
        tell(done, len(steps), "passes")


def column_norms(directions: Directions, *, summed: bool) -> Tensor:
    """|J_ij|_F, or |sum of the rows of J_ij|_2 if `summed`, from every column of every J: [layer query key]."""
    squares, width = torch.zeros(directions.shape, dtype=torch.float64), directions.width
    for some in watched(directions.batches(directions.n * width)):
        column = torch.arange(some.start, some.stop)

        def add(layer: int, moved: Tensor, column: Tensor = column) -> None:
            lengths = moved.sum(-1).pow(2) if summed else moved.pow(2).sum(-1)  # [copy query]
            squares[layer].index_add_(1, column // width, lengths.t().double().cpu())

        directions.push(column // width, torch.eye(width)[column % width], add)
    return squares.sqrt()


def spectral_norms(directions: Directions) -> Tensor:
    """|J_ij|_2, [layer query key]. One source's Jacobians in all layers are held at a time, or of some of its
    targets."""
    (depth, n, _), width = directions.shape, directions.width
    norms = torch.zeros(directions.shape, dtype=torch.float64)
    d = directions.trace.layers[0].input.shape[-1]
    for targets, key in watched([(t, key) for t in slices(n, depth * width * d, room=1 << 27) for key in range(n)]):
        found: list[list[Tensor]] = [[] for _ in range(depth)]

        def keep(layer: int, moved: Tensor, targets: slice = targets, found: list[list[Tensor]] = found) -> None:
            found[layer].append(moved[:, targets].cpu())

        for some in directions.batches(width):
            directions.push(torch.full((some.stop - some.start,), key), torch.eye(width)[some], keep)
        for layer, columns in enumerate(found):
            jacobians = torch.cat(columns).movedim(0, -1)  # [query d in]
            norms[layer, targets, key] = torch.linalg.matrix_norm(jacobians, ord=2).double()
    return norms


def estimated_norms(directions: Directions, probes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Root of the mean of |J_ij r|^2 over random signs r (Hutchinson: unbiased for |J_ij|_F^2), and its error."""
    depth, n, _ = directions.shape
    signs = torch.randint(0, 2, (probes * n, directions.width), generator=torch.Generator().manual_seed(seed)) * 2 - 1
    samples = torch.zeros(depth, probes * n, n, dtype=torch.float64)
    for some in watched(directions.batches(probes * n)):

        def keep(layer: int, moved: Tensor, some: slice = some) -> None:
            samples[layer, some] = moved.pow(2).sum(-1).double().cpu()

        directions.push(torch.arange(some.start, some.stop) % n, signs[some], keep)
    by_probe = samples.view(depth, probes, n, n).transpose(-1, -2)  # [layer probe query key]
    estimate, error = by_probe.mean(1).sqrt(), by_probe.std(1) / probes**0.5
    return estimate, torch.where(estimate > 0, error / (2 * estimate), 0.0)


@mixing(paper=PAPER, rollout="input", whole=True, cost="3 n d")
def hta(
    trace: Trace, *, norm: str = "frobenius", input: str = "before", probes: int | None = None, seed: int = 0
) -> tuple[Tensor, Extras]:
    """HTA (section 5): norm of d y_i / d x_j from the input embedding x_j to the output of every layer; rows sum to 1.

    `norm`: "frobenius", "spectral", or "sum" (the gradient of the summed output, as one backward pass with ones gives
    it). `input`: x "before" the embedding norm, or as it enters the first layer ("after"). Exact, unless `probes` asks
    for an estimate of the Frobenius norm from so many random directions per token. The norms themselves are in
    `.info["raw"]`, the standard error of their estimate (to first order) in `.info["standard_error"]`."""
    for name, given, known in (("norm", norm, NORMS), ("input", input, ("before", "after"))):
        if given not in known:
            raise InputError(f"hta has no {name} {given!r}. {nearest(str(given), known)}")
    if probes is not None and (isinstance(probes, bool) or probes < 2 or norm != "frobenius"):
        raise InputError(
            f"probes must be 2 or more, and estimate the Frobenius norm; got probes={probes}, norm={norm!r}."
        )
    refuse_packed(
        trace.model.hf_model,
        "hta",
        "pushes directions forward through the whole model",
        "Load the model without quantization, or use hta_layer, whose gradients are checked.",
    )
    directions, told = Directions(trace, after=input == "after"), {}
    if probes is not None:
        raw, told["standard_error"] = estimated_norms(directions, probes, seed)
    elif norm == "spectral":
        raw = spectral_norms(directions)
    else:
        raw = column_norms(directions, summed=norm == "sum")
    dtype = working_dtype(trace.layers[0].input.dtype)
    told = {name: value.to(dtype) for name, value in {**told, "raw": raw}.items()}
    scores, empty = rows_to_one(told["raw"])
    return scores, {**told, **empty}
