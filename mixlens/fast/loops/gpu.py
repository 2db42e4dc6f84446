"""The loops on an NVIDIA GPU: each gives its arguments to a Triton kernel of `map_kernels` or `zeroing_kernels`. Of
pairs by features only the changed activations of Value Zeroing are written out, a tile at a time, for the matrix
product that follows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from . import map_kernels, plain, zeroing_kernels
from .plain import Norms

try:
    import triton
except ImportError:  # a CPU build of torch
    triton = None

TYPES = dict.fromkeys(("gram", "inner", "apart"), (torch.float32,))  # where a loop does not know every number type
# Tile sizes, measured on an H200.
TUNED: dict[str, dict[str, int]] = {
    "changed": {"BQ": 16, "BM": 64, "BK": 16, "num_warps": 4, "num_stages": 2},
    "nearer": {"BQ": 32, "BD": 128, "BK": 4, "num_warps": 4},
    "nearer exactly": {"BQ": 16, "BD": 64, "BK": 1, "num_warps": 4},
    "turned": {"BQ": 4, "num_warps": 4},
    "inner": {"BK": 128, "num_warps": 8},
    "lengths": {"BQ": 8, "BK": 32, "num_warps": 4},
}
# How an activation is called in the kernel, and what it is; the model's own is recognised by what it gives.
ACTIVATIONS = {
    0: torch.nn.functional.gelu,
    1: lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    2: torch.nn.functional.relu,
    3: torch.nn.functional.silu,
}


def available() -> bool:
    return triton is not None and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (7, 0)


def power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def by_key(attention: Tensor) -> Tensor:
    """[... head query key] -> [... key head query]"""
    return attention.movedim(-1, -3).contiguous()


def nearer(attention: Tensor, vectors: Tensor, reciprocal: Tensor, y: Tensor, shift: float) -> Tensor:
    *leading, heads, queries, keys = attention.shape
    weights, vectors, reciprocal, y = by_key(attention), vectors.contiguous(), reciprocal.contiguous(), y.contiguous()
    out = y.new_empty(*leading, queries, keys)
    exact = y.dtype == torch.float64
    tuned = TUNED["nearer exactly" if exact else "nearer"]
    rows, some = tuned["BQ"], tuned["BK"]
    padded = max(16, power_of_two(heads))
    map_kernels.nearer_kernel[(triton.cdiv(keys, some), triton.cdiv(queries, rows), out[..., 0, 0].numel())](
        *(weights, vectors, reciprocal, y, out, y.new_full((1,), shift), heads, padded, queries, keys, y.shape[-1]),
        SKIP=shift == 0,
        EXACT=exact,
        **tuned,
    )
    return out


def gram(vectors: Tensor) -> Tensor:
    """[... head key d] -> [... key head head], seen as the memory [... head head key] that `lengths` reads."""
    *leading, heads, keys, width = vectors.shape
    vectors = vectors.contiguous()
    out = vectors.new_empty(*leading, heads, heads, keys)
    padded = max(16, power_of_two(heads))
    map_kernels.gram_kernel[(keys, out[..., 0, 0, 0].numel())](vectors, out, heads, padded, keys, width, BD=64)
    return out.movedim(-1, -3)


def lengths(attention: Tensor, gram: Tensor, reciprocal: Tensor) -> Tensor:
    *leading, heads, queries, keys = attention.shape
    attention, gram, reciprocal = attention.contiguous(), gram.movedim(-3, -1).contiguous(), reciprocal.contiguous()
    out = attention.new_empty(*leading, queries, keys)
    tuned = TUNED["lengths"]
    grid = (triton.cdiv(keys, tuned["BK"]), triton.cdiv(queries, tuned["BQ"]), out[..., 0, 0].numel())
    map_kernels.lengths_kernel[grid](attention, gram, reciprocal, out, heads, queries, keys, **tuned)
    return out


def inner(values: Tensor, metric: Tensor) -> Tensor:
    """See `gram` for how the memory lies. metric [head head e e], or [layer ... head head e e]."""
    *leading, heads, keys, e = values.shape
    out = values.new_empty(*leading, heads, heads, keys)
    count, layers = out[..., 0, 0, 0].numel(), metric[..., 0, 0, 0, 0].numel()
    map_kernels.inner_kernel[(triton.cdiv(keys, TUNED["inner"]["BK"]), heads, count)](
        *(values.contiguous(), metric.contiguous(), out, heads, keys, e, count // layers),
        HOW="tf32x3",
        ONE=e <= 64,
        BE=max(16, min(64, power_of_two(e))),
        **TUNED["inner"],
    )
    return out.movedim(-1, -3)


def normed(u: Tensor, gamma: Tensor, beta: Tensor, eps: Tensor, centred: bool) -> tuple[Tensor, Tensor]:
    u, width, layers = u.contiguous(), u.shape[-1], eps.numel()
    out, reciprocal = torch.empty_like(u), u.new_empty(*u.shape[:-1], 1)
    of_layer = reciprocal.numel() // layers
    map_kernels.normed_kernel[(reciprocal.numel(),)](
        *(u, gamma.contiguous(), beta.contiguous(), eps.contiguous(), out, reciprocal, width, of_layer),
        CENTRED=centred,
        BD=power_of_two(width),
        num_warps=_warps(width),
    )
    return out, reciprocal


def apart(rebuilt: Tensor, added: Tensor | None, seen: Tensor, layers: int | None = None) -> Tensor:
    out = torch.zeros(layers or 1, dtype=torch.int32, device=seen.device)
    rebuilt, seen = rebuilt.contiguous(), seen.contiguous()
    width, addend = seen.shape[-1], seen if added is None else added.contiguous()
    rows = seen.numel() // width
    map_kernels.apart_kernel[(rows,)](
        *(rebuilt, addend, seen, out, width, rows // len(out)),
        ADDED=added is not None,
        BD=power_of_two(width),
        num_warps=_warps(width),
    )
    worst = out.view(torch.float32)
    return worst if layers else worst[0]


def running(layers: Tensor) -> tuple[Tensor, Tensor]:
    """One map: in as many products as the number of layers has bits, each of many pairs at once, or a GPU would wait
    for Python and stand half empty. Several: layer by layer."""
    if layers.dim() > 3 or layers.shape[-1] > 1024:
        return plain.running(layers)
    products, step = layers.clone(), 1
    while step < len(products):
        products[step:] = products[step:] @ products[:-step]
        step *= 2
    low, high = torch.aminmax(products.flatten(1), dim=-1)
    return products, torch.maximum(-low, high)


def ends(
    own: Tensor, every: Tensor, x: Tensor | None, norms: Norms, of_branch: int, part: Tensor, stream: Tensor
) -> tuple[Tensor, Tensor]:
    others = own.new_empty(own.shape[:-1])
    return _each_end(own, every, x, norms, of_branch, part, stream, None, 0.0, others), others


def own_nearer(
    own: Tensor, x: Tensor | None, norms: Norms, of_branch: int, part: Tensor, stream: Tensor, y: Tensor, shift: float
) -> Tensor:
    return _each_end(own, None, x, norms, of_branch, part, stream, y, shift, None)


def _each_end(
    own: Tensor,
    every: Tensor | None,
    x: Tensor | None,
    norms: Norms,
    of_branch: int,
    part: Tensor,
    stream: Tensor,
    y: Tensor | None,
    shift: float,
    others: Tensor | None,
) -> Tensor:
    out, width = own.new_empty(own.shape[:-1]), own.shape[-1]
    own, part, stream = own.contiguous(), part.contiguous(), stream.contiguous()
    every, x, y = (own if t is None else t.contiguous() for t in (every, x, y))
    change = own.new_full((1,), shift) if shift else own.new_zeros(1)
    gammas, kinds, layers = _norms_of_kernel(norms, own)
    map_kernels.ends_kernel[(out.numel(),)](
        *(
            own,
            every,
            x,
            *gammas,
            part,
            stream,
            y,
            change,
            out,
            out if others is None else others,
            width,
            out.numel() // layers,
        ),
        *kinds,
        BRANCH=of_branch,
        RESIDUAL=x is not own,
        NEARER=y is not own,
        BD=power_of_two(width),
        num_warps=_warps(width),
    )
    return out


def _norms_of_kernel(norms: Norms, own: Tensor) -> tuple[list[Tensor], list[int], int]:
    """The gammas of three norms, their kinds (0 no norm, 1 gamma alone, 2 the mean taken away too), and how many layers
    they are of. `own` stands where there is no norm: nobody reads it."""
    missing = 3 - len(norms)
    gammas = [gamma.contiguous() for gamma, _ in norms] + [own] * missing
    kinds = [2 if centred else 1 for _, centred in norms] + [0] * missing
    return gammas, kinds, max((gamma.numel() // own.shape[-1] for gamma, _ in norms), default=1)


def _warps(width: int) -> int:
    """The warps of a kernel that reads a row of this width at once."""
    return 4 if width <= 2048 else 8


@cache
def _known_activation(function: Any) -> int | None:
    x = torch.linspace(-9, 9, 2001)
    try:
        found = function(x)
    except Exception:
        return None
    close = (number for number, known in ACTIVATIONS.items() if torch.allclose(found, known(x), rtol=1e-5, atol=1e-6))
    return next(close, None)


def activation_number(function: Any) -> int | None:
    """Which of the kernel's activations a model's own is, by what it gives on the CPU; None: none of them."""
    try:
        return _known_activation(function)
    except TypeError:  # not hashable
        return None


def turned(
    *,
    attention: Tensor,
    vectors: Tensor,
    sources: list[Tensor],
    reads: list[Tensor],
    constants: list[Tensor],
    activation: int,
    down: Tensor,
    ratio: Tensor,
    reciprocal: Tensor,
    size: Tensor,
    centred_middle: Tensor | None,
    centred_after: Tensor | None,
    after_scale: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    centred: bool,
    output: Tensor,
    split: bool,
    elements: int,
) -> Tensor:
    """Value Zeroing's distances [query key] of one layer, all in float32. Axes: attention [head query key], vectors
    [head key d], sources [head key m], reads [query m], down [m d]. A tile of sources at a time.

    The large product takes changes in units of `size` [query key], about as large as they are, in half precision with
    float32 sums; `split`: as three such products, as exact as one of float32."""
    heads, queries, keys = attention.shape
    width, hidden = vectors.shape[-1], down.shape[0]
    weights, vectors, output = by_key(attention), vectors.contiguous(), output.contiguous()
    pairs = [one.mT.contiguous() for one in (ratio, reciprocal, size)]  # [key query]
    groups = [[one.contiguous() for one in group] for group in (sources, reads, constants)]
    of_product = [one for group in groups for one in (group[0], group[-1])]
    second = SecondProduct.of(down, split=split)
    scores = torch.empty(queries, keys, device=attention.device, dtype=torch.float32)
    step = max(1, min(keys, elements // (queries * hidden)))
    blocks = power_of_two(width)
    rows = max(1, min(TUNED["turned"]["BQ"], 4096 // blocks))
    middle, *after = _or_nothing(weights, centred_middle, centred_after, after_scale, gamma, beta)
    room = second.room(step * queries)
    tile = TUNED["changed"]
    for first in range(0, keys, step):
        count = min(step, keys - first)
        changes = room[: count * queries]
        grid = (triton.cdiv(hidden, tile["BM"]), triton.cdiv(queries, tile["BQ"]), triton.cdiv(count, tile["BK"]))
        zeroing_kernels.changed_kernel[grid](
            *(weights, *of_product, *pairs, changes),
            *(first, count, heads, max(16, power_of_two(heads)), queries, keys, hidden),
            ACT=activation,
            GATED=len(sources) > 1,
            SPLIT=split,
            HOW="tf32x3",
            **tile,
        )
        written, more = second(changes, nothing=weights)
        zeroing_kernels.turned_kernel[(count, triton.cdiv(queries, rows))](
            *(weights, vectors, written, more, middle, *pairs, *after, output, scores),
            *(first, heads, queries, keys, width),
            ON_STREAM=centred_middle is not None,
            NORMED=gamma is not None,
            CENTRED=centred,
            SPLIT=split,
            BQ=rows,
            BD=blocks,
            num_warps=TUNED["turned"]["num_warps"],
        )
    return scores


def _or_nothing(nothing: Tensor, *tensors: Tensor | None) -> list[Tensor]:
    """The tensors as a kernel reads them; `nothing`, which it does not read, in the place of those that are not
    there."""
    return [nothing if tensor is None else tensor.contiguous() for tensor in tensors]


@dataclass(frozen=True)
class SecondProduct:
    """The feed-forward's second weight [m d] in half precision; with what is left of it, where it is split in two."""

    high: Tensor  # [m d], or twice below each other where it is split: the changes stand side by side then
    low: Tensor | None

    @staticmethod
    def of(down: Tensor, *, split: bool) -> SecondProduct:
        kind = torch.bfloat16 if split else torch.float16
        high = down.to(kind).contiguous()
        if not split:
            return SecondProduct(high, None)
        return SecondProduct(torch.cat([high, high]), (down - high.float()).to(kind).contiguous())

    def room(self, rows: int) -> Tensor:
        """Memory for so many rows of changes."""
        return torch.empty(rows, len(self.high), device=self.high.device, dtype=self.high.dtype)

    def __call__(self, changes: Tensor, *, nothing: Tensor) -> tuple[Tensor, Tensor]:
        """The changes multiplied, in float32; and with what is left of the weight, `nothing` where nothing is."""
        written = torch.mm(changes, self.high, out_dtype=torch.float32)
        if self.low is None:
            return written, nothing
        return written, torch.mm(changes[:, : len(self.low)], self.low, out_dtype=torch.float32)
