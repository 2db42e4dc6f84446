"""The loops as Triton kernels. Sums are in float32 (float64 for float64); nothing of pairs by features is written out,
but the changed activations of Value Zeroing, a tile at a time, for the matrix product that follows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ...budget import settings
from . import plain
from .plain import Norms

try:
    import triton
    import triton.language as tl
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


if triton is not None:

    @triton.jit
    def _sums(
        weights,
        vectors,
        heads: tl.constexpr,
        HP: tl.constexpr,
        queries,
        keys,
        width,
        b,
        k,
        q,
        d,
        EXACT: tl.constexpr,
        HOW: tl.constexpr,
    ):
        """sum_h weights[b k h q] vectors[b h k d], for a tile of q and d. Three tensor-core products are as exact as float32."""
        if EXACT:
            total = tl.zeros((q.shape[0], d.shape[0]), dtype=vectors.dtype.element_ty)
            for h in range(heads):
                a = tl.load(weights + ((b * keys + k) * heads + h) * queries + q, mask=q < queries, other=0.0)
                f = tl.load(vectors + ((b * heads + h) * keys + k) * width + d, mask=d < width, other=0.0)
                total += a[:, None] * f[None, :]
            return total
        else:
            h = tl.arange(0, HP)
            a = tl.load(
                weights + ((b * keys + k) * heads + h[None, :]) * queries + q[:, None],
                mask=(q < queries)[:, None] & (h < heads)[None, :],
                other=0.0,
            )
            f = tl.load(
                vectors + ((b * heads + h[:, None]) * keys + k) * width + d[None, :],
                mask=(h < heads)[:, None] & (d < width)[None, :],
                other=0.0,
            )
            return tl.dot(a, f, input_precision=HOW)

    @triton.jit
    def _nearer(
        weights,
        vectors,
        reciprocal,
        y,
        out,
        shift,
        heads: tl.constexpr,
        HP: tl.constexpr,
        queries,
        keys,
        width,
        SKIP: tl.constexpr,
        EXACT: tl.constexpr,
        BQ: tl.constexpr,
        BD: tl.constexpr,
        BK: tl.constexpr,
    ):
        k0 = tl.program_id(0) * BK
        q = tl.program_id(1) * BQ + tl.arange(0, BQ)
        b = tl.program_id(2).to(tl.int64)
        there = q < queries
        scale = tl.load(reciprocal + b * queries + q, mask=there, other=0.0)
        moved = tl.load(shift)  # a number handed over by itself would be float32
        columns = tl.arange(0, BK)
        total = tl.zeros((BQ, BK), dtype=y.dtype.element_ty)
        looks = tl.zeros((BQ,), dtype=y.dtype.element_ty)
        if SKIP:  # sources that nobody here looked at (a causal model's later ones) bring nothing nearer
            for i in tl.static_range(BK):
                for h in range(heads):
                    k = tl.minimum(k0 + i, keys - 1)
                    looks += tl.abs(tl.load(weights + ((b * keys + k) * heads + h) * queries + q, mask=there, other=0.0))
        if not SKIP or tl.max(looks, 0) > 0:
            for start in range(0, width, BD):
                d = start + tl.arange(0, BD)
                inside = d < width
                goal = tl.load(
                    y + (b * queries + q[:, None]) * width + d[None, :], mask=there[:, None] & inside[None, :], other=0.0
                )
                length = tl.abs(goal)
                for i in tl.static_range(BK):
                    k = tl.minimum(k0 + i, keys - 1)
                    part = _sums(weights, vectors, heads, HP, queries, keys, width, b, k, q, d, EXACT, "tf32x3")
                    near = tl.where(inside[None, :], length - tl.abs(goal + moved - part * scale[:, None]), 0.0)
                    total += tl.where(columns == i, 1.0, 0.0).to(total.dtype)[None, :] * tl.sum(near, 1)[:, None]
        k = k0 + columns
        tl.store(out + (b * queries + q[:, None]) * keys + k[None, :], total, mask=there[:, None] & (k < keys)[None, :])

    @triton.jit
    def _gram(vectors, out, heads: tl.constexpr, HP: tl.constexpr, keys, width, BD: tl.constexpr):
        """<f^h_k, f^g_k>: out[b h g k]."""
        k = tl.program_id(0)
        b = tl.program_id(1).to(tl.int64)
        h = tl.arange(0, HP)
        total = tl.zeros((HP, HP), dtype=tl.float32)
        for start in range(0, width, BD):
            d = start + tl.arange(0, BD)
            f = tl.load(
                vectors + ((b * heads + h[:, None]) * keys + k) * width + d[None, :],
                mask=(h < heads)[:, None] & (d < width)[None, :],
                other=0.0,
            )
            total += tl.dot(f, tl.trans(f), input_precision="tf32x3")
        place = out + ((b * heads + h[:, None]) * heads + h[None, :]) * keys + k
        tl.store(place, total, mask=(h < heads)[:, None] & (h < heads)[None, :])

    @triton.jit
    def _lengths(attention, gram, reciprocal, out, heads: tl.constexpr, queries, keys, BQ: tl.constexpr, BK: tl.constexpr):
        """Four heads against four at a time: what is loaded once is used four times."""
        q = tl.program_id(1) * BQ + tl.arange(0, BQ)
        k = tl.program_id(0) * BK + tl.arange(0, BK)
        b = tl.program_id(2).to(tl.int64)
        there = (q < queries)[:, None] & (k < keys)[None, :]
        tile = attention + b * heads * queries * keys + q[:, None] * keys + k[None, :]
        line = gram + b * heads * heads * keys + k
        seen = k < keys
        scale = tl.load(reciprocal + b * queries + q, mask=q < queries, other=0.0)
        total = tl.zeros((BQ, BK), dtype=scale.dtype)
        step = queries * keys
        for h in range(0, heads, 4):
            a0 = tl.load(tile + h * step, mask=there, other=0.0)
            a1 = tl.load(tile + (h + 1) * step, mask=there & (h + 1 < heads), other=0.0)
            a2 = tl.load(tile + (h + 2) * step, mask=there & (h + 2 < heads), other=0.0)
            a3 = tl.load(tile + (h + 3) * step, mask=there & (h + 3 < heads), other=0.0)
            for g in range(h, heads, 4):
                twice = tl.where(g > h, 2.0, 1.0).to(scale.dtype)
                for i in tl.static_range(4):
                    on = seen & (g + i < heads)
                    other = tl.load(tile + (g + i) * step, mask=there & (g + i < heads), other=0.0) * twice
                    row = line + (h * heads + g + i) * keys
                    mixed = tl.load(row, mask=on, other=0.0)[None, :] * a0
                    mixed += tl.load(row + heads * keys, mask=on & (h + 1 < heads), other=0.0)[None, :] * a1
                    mixed += tl.load(row + 2 * heads * keys, mask=on & (h + 2 < heads), other=0.0)[None, :] * a2
                    mixed += tl.load(row + 3 * heads * keys, mask=on & (h + 3 < heads), other=0.0)[None, :] * a3
                    total += mixed * other
        length = tl.sqrt(tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL))
        tl.store(out + (b * queries + q[:, None]) * keys + k[None, :], length * scale[:, None], mask=there)

    @triton.jit
    def _inner(
        values,
        metric,
        out,
        heads: tl.constexpr,
        keys,
        e,
        of_layer,
        HOW: tl.constexpr,
        ONE: tl.constexpr,
        BK: tl.constexpr,
        BE: tl.constexpr,
    ):
        """values[b h k] . metric[layer h g] values[b g k]: out[b h g k] and out[b g h k], for one h and every g from it on."""
        k = tl.program_id(0) * BK + tl.arange(0, BK)
        h = tl.program_id(1)
        b = tl.program_id(2).to(tl.int64)
        rows = k < keys
        first = tl.arange(0, BE)
        mine = values + ((b * heads + h) * keys + k[:, None]) * e
        left = tl.load(mine + first[None, :], mask=rows[:, None] & (first < e)[None, :], other=0.0)
        for g in range(h, heads):
            between = metric + ((b // of_layer * heads + h) * heads + g) * e * e
            others = values + ((b * heads + g) * keys + k[:, None]) * e
            total = tl.zeros((BK,), dtype=tl.float32)
            if ONE:
                tile = tl.load(
                    between + first[:, None] * e + first[None, :], mask=(first < e)[:, None] & (first < e)[None, :], other=0.0
                )
                right = tl.load(others + first[None, :], mask=rows[:, None] & (first < e)[None, :], other=0.0)
                total = tl.sum(tl.dot(left, tile, input_precision=HOW) * right, 1)
            else:
                for to in range(0, e, BE):
                    f = to + tl.arange(0, BE)
                    through = tl.zeros((BK, BE), dtype=tl.float32)
                    for start in range(0, e, BE):
                        c = start + tl.arange(0, BE)
                        some = tl.load(mine + c[None, :], mask=rows[:, None] & (c < e)[None, :], other=0.0)
                        tile = tl.load(between + c[:, None] * e + f[None, :], mask=(c < e)[:, None] & (f < e)[None, :], other=0.0)
                        through += tl.dot(some, tile, input_precision=HOW)
                    right = tl.load(others + f[None, :], mask=rows[:, None] & (f < e)[None, :], other=0.0)
                    total += tl.sum(through * right, 1)
            tl.store(out + ((b * heads + h) * heads + g) * keys + k, total, mask=rows)
            tl.store(out + ((b * heads + g) * heads + h) * keys + k, total, mask=rows)

    @triton.jit
    def _normed(u, gamma, beta, eps, out, reciprocal, width, of_layer, CENTRED: tl.constexpr, BD: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        d = tl.arange(0, BD)
        inside = d < width
        layer = row // of_layer
        z = tl.load(u + row * width + d, mask=inside, other=0.0)
        if CENTRED:
            z = tl.where(inside, z - tl.sum(z, 0) / width, 0.0)
        scale = 1 / tl.sqrt(tl.sum(z * z, 0) / width + tl.load(eps + layer))
        z = z * scale * tl.load(gamma + layer * width + d, mask=inside, other=0.0)
        tl.store(out + row * width + d, z + tl.load(beta + layer * width + d, mask=inside, other=0.0), mask=inside)
        tl.store(reciprocal + row, scale)

    @triton.jit
    def _apart(rebuilt, added, seen, out, width, of_layer, ADDED: tl.constexpr, BD: tl.constexpr):
        """As whole numbers: the bits of magnitudes are in the same order, and a NaN is above them all."""
        row = tl.program_id(0).to(tl.int64)
        d = tl.arange(0, BD)
        inside = d < width
        layer = row // of_layer
        made = tl.load(rebuilt + row * width + d, mask=inside, other=0.0)
        if ADDED:
            made += tl.load(added + layer * width + d, mask=inside, other=0.0)
        there = tl.load(seen + row * width + d, mask=inside, other=0.0)
        size = tl.sum(tl.sqrt(tl.abs(there)), 0) / width
        size = tl.maximum(size * size, 1e-37)
        apart = (made - there) / tl.maximum(tl.abs(there), size)
        worst = tl.sqrt(tl.sum(tl.where(inside, apart * apart, 0.0), 0) / width)
        tl.atomic_max(out + layer, tl.abs(worst).to(tl.int32, bitcast=True))

    @triton.jit
    def _through(z, inside, width, at, g0, g1, g2, C0: tl.constexpr, C1: tl.constexpr, C2: tl.constexpr):
        """Up to three frozen norms on a row, without their scales. C: 0 no norm, 1 gamma alone, 2 the mean taken away too."""
        if C0 > 0:
            if C0 == 2:
                z = tl.where(inside, z - tl.sum(z, 0) / width, 0.0)
            z = z * tl.load(g0 + at, mask=inside, other=0.0)
        if C1 > 0:
            if C1 == 2:
                z = tl.where(inside, z - tl.sum(z, 0) / width, 0.0)
            z = z * tl.load(g1 + at, mask=inside, other=0.0)
        if C2 > 0:
            if C2 == 2:
                z = tl.where(inside, z - tl.sum(z, 0) / width, 0.0)
            z = z * tl.load(g2 + at, mask=inside, other=0.0)
        return z

    @triton.jit
    def _ends(
        own,
        every,
        x,
        g0,
        g1,
        g2,
        part,
        stream,
        y,
        shift,
        out,
        others,
        width,
        rows_of_layer,
        C0: tl.constexpr,
        C1: tl.constexpr,
        C2: tl.constexpr,
        BRANCH: tl.constexpr,
        RESIDUAL: tl.constexpr,
        NEARER: tl.constexpr,
        BD: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)
        d = tl.arange(0, BD)
        inside = d < width
        at = row // rows_of_layer * width + d
        scale = tl.load(part + row)
        mine = tl.load(own + row * width + d, mask=inside, other=0.0)
        whole = _through(mine, inside, width, at, g0, g1, g2, C0, C1, C2) * scale
        if RESIDUAL:
            r = tl.load(x + row * width + d, mask=inside, other=0.0)
            r = _through(r, inside, width, at, g0, g1, g2, 0 if BRANCH > 0 else C0, 0 if BRANCH > 1 else C1, C2)
            whole += r * tl.load(stream + row)
        if NEARER:
            goal = tl.load(y + row * width + d, mask=inside, other=0.0)
            near = tl.where(inside, tl.abs(goal) - tl.abs(goal + tl.load(shift) - whole), 0.0)
            tl.store(out + row, tl.sum(near, 0))
        else:
            tl.store(out + row, tl.sqrt(tl.sum(whole * whole, 0)))
            rest = tl.load(every + row * width + d, mask=inside, other=0.0) - mine
            rest = _through(rest, inside, width, at, g0, g1, g2, C0, C1, C2)
            tl.store(others + row, tl.sqrt(tl.sum(rest * rest, 0)) * scale)

    @triton.jit
    def _activated(x, ACT: tl.constexpr):
        if ACT == 0:
            # erf by Abramowitz and Stegun 7.1.26, smooth and right to 1.5e-7; only differences of it are used
            z = tl.abs(x) * 0.7071067811865476
            t = 1.0 / (1.0 + 0.3275911 * z)
            p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
            tail = 0.5 * p * tl.exp(-z * z)  # 1 - Phi(|x|)
            return x * tl.where(x >= 0, 1.0 - tail, tail)
        elif ACT == 1:
            inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
            return x * tl.sigmoid(2 * inner)
        elif ACT == 2:
            return tl.maximum(x, 0.0)
        else:
            return x * tl.sigmoid(x)

    @triton.jit
    def _changed(
        weights,
        sources,
        gate_sources,
        read,
        gate_read,
        constant,
        gate_constant,
        ratio,
        reciprocal,
        size,
        out,
        first_key,
        some,
        heads: tl.constexpr,
        HP: tl.constexpr,
        queries,
        keys,
        hidden,
        ACT: tl.constexpr,
        GATED: tl.constexpr,
        SPLIT: tl.constexpr,
        HOW: tl.constexpr,
        BQ: tl.constexpr,
        BM: tl.constexpr,
        BK: tl.constexpr,
    ):
        """act(read without source k) - act(read), for a tile of targets and hidden units, a few sources one after the other."""
        q = tl.program_id(1) * BQ + tl.arange(0, BQ)
        m = tl.program_id(0) * BM + tl.arange(0, BM)
        rows, inside = q < queries, m < hidden
        both = rows[:, None] & inside[None, :]
        where = q[:, None] * hidden + m[None, :]
        before = tl.load(read + where, mask=both, other=0.0)
        own = before - tl.load(constant + m, mask=inside, other=0.0)[None, :]
        if GATED:
            gate_before = tl.load(gate_read + where, mask=both, other=0.0)
            gate_own = gate_before - tl.load(gate_constant + m, mask=inside, other=0.0)[None, :]
            was = _activated(gate_before, ACT)
        if not GATED:
            was = _activated(before, ACT)  # by the same formula as below, so that its own error goes with the difference
        for i in range(BK):
            local = tl.minimum(tl.program_id(2) * BK + i, some - 1)
            k = first_key + local
            turned = tl.load(ratio + k * queries + q, mask=rows, other=0.0)
            scale = tl.load(reciprocal + k * queries + q, mask=rows, other=0.0)
            taken = _sums(weights, sources, heads, HP, queries, keys, hidden, 0, k, q, m, False, HOW)
            change = turned[:, None] * own - scale[:, None] * taken
            if GATED:
                gate_taken = _sums(weights, gate_sources, heads, HP, queries, keys, hidden, 0, k, q, m, False, HOW)
                opened = _activated(gate_before + turned[:, None] * gate_own - scale[:, None] * gate_taken, ACT)
                # act(g') u' - act(g) u = (act(g') - act(g)) u + act(g') (u' - u)
                moved = (opened - was) * before + opened * change
            else:
                moved = _activated(before + change, ACT) - was
            moved = moved / tl.load(size + k * queries + q, mask=rows, other=1.0)[:, None]
            at = out + (local.to(tl.int64) * queries + q[:, None]) * (2 * hidden if SPLIT else hidden) + m[None, :]
            rounded = moved.to(out.dtype.element_ty)
            tl.store(at, rounded, mask=both)
            if SPLIT:
                tl.store(at + hidden, (moved - rounded.to(tl.float32)).to(out.dtype.element_ty), mask=both)

    @triton.jit
    def _turned(
        weights,
        vectors,
        written,
        more_written,
        centred_middle,
        ratio,
        reciprocal,
        size,
        centred_after,
        after_scale,
        gamma,
        beta,
        output,
        scores,
        first_key,
        heads: tl.constexpr,
        queries,
        keys,
        width,
        ON_STREAM: tl.constexpr,
        NORMED: tl.constexpr,
        CENTRED: tl.constexpr,
        SPLIT: tl.constexpr,
        BQ: tl.constexpr,
        BD: tl.constexpr,
    ):
        """1 - cos between the layer's output and its output without source k, from the change alone."""
        k = first_key + tl.program_id(0)
        q = tl.program_id(1) * BQ + tl.arange(0, BQ)
        d = tl.arange(0, BD)
        rows, inside = q < queries, d < width
        both = rows[:, None] & inside[None, :]
        where = q[:, None] * width + d[None, :]
        pair = (tl.program_id(0).to(tl.int64) * queries + q[:, None]) * width + d[None, :]
        taken = tl.zeros((BQ, BD), dtype=tl.float32)
        looks = tl.zeros((BQ,), dtype=tl.float32)
        for h in range(heads):
            a = tl.load(weights + (k * heads + h) * queries + q, mask=rows, other=0.0)
            looks += tl.abs(a)
            taken += a[:, None] * tl.load(vectors + (h * keys + k) * width + d, mask=inside, other=0.0)[None, :]
        change = tl.load(written + pair, mask=both, other=0.0).to(tl.float32)
        if SPLIT:
            change += tl.load(more_written + pair, mask=both, other=0.0)
        change = change * tl.load(size + k * queries + q, mask=rows, other=1.0)[:, None]
        if ON_STREAM:
            scale = tl.load(reciprocal + k * queries + q, mask=rows, other=0.0)
            turned = tl.load(ratio + k * queries + q, mask=rows, other=0.0)
            change += turned[:, None] * tl.load(centred_middle + where, mask=both, other=0.0) - scale[:, None] * taken
        else:
            change -= taken
        still = tl.load(output + where, mask=both, other=0.0)
        if NORMED:
            if CENTRED:
                change = tl.where(inside[None, :], change - tl.sum(change, 1)[:, None] / width, 0.0)
            stream = tl.load(centred_after + where, mask=both, other=0.0)
            s = tl.load(after_scale + q, mask=rows, other=1.0)
            added = tl.sum(change * (2 * stream + change), 1) / width
            new = tl.sqrt(s * s + added)
            g = tl.load(gamma + d, mask=inside, other=0.0)
            offset = tl.load(beta + d, mask=inside, other=0.0)
            shrunk = -added / (new * (s + new))  # s / new - 1
            change = g[None, :] * change / new[:, None] + shrunk[:, None] * (still - offset[None, :])
            change = tl.where(inside[None, :], change, 0.0)
        long = tl.maximum(tl.sum(still * still, 1), 1.1754943508222875e-38)
        along = tl.sum(still * change, 1)
        aside = change - still * (along / long)[:, None]
        square = tl.sum(aside * aside, 1)
        reached = tl.maximum(square + (long + along) * (long + along) / long, 1.1754943508222875e-38)  # |still + change|^2
        cosine = (long + along) / tl.sqrt(long * reached)
        far = tl.where(cosine > 0, square / (reached * (1 + tl.abs(cosine))), 1 - cosine)
        tl.store(scores + q * keys + k, tl.where(looks == 0, 0.0, far), mask=rows)


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
    _nearer[(triton.cdiv(keys, some), triton.cdiv(queries, rows), out[..., 0, 0].numel())](
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
    _gram[(keys, out[..., 0, 0, 0].numel())](vectors, out, heads, max(16, power_of_two(heads)), keys, width, BD=64)
    return out.movedim(-1, -3)


def lengths(attention: Tensor, gram: Tensor, reciprocal: Tensor) -> Tensor:
    *leading, heads, queries, keys = attention.shape
    attention, gram, reciprocal = attention.contiguous(), gram.movedim(-3, -1).contiguous(), reciprocal.contiguous()
    out = attention.new_empty(*leading, queries, keys)
    tuned = TUNED["lengths"]
    grid = (triton.cdiv(keys, tuned["BK"]), triton.cdiv(queries, tuned["BQ"]), out[..., 0, 0].numel())
    _lengths[grid](attention, gram, reciprocal, out, heads, queries, keys, **tuned)
    return out


def inner(values: Tensor, metric: Tensor) -> Tensor:
    """See `gram` for how the memory lies. metric [head head e e], or [layer ... head head e e]."""
    *leading, heads, keys, e = values.shape
    out = values.new_empty(*leading, heads, heads, keys)
    count, layers = out[..., 0, 0, 0].numel(), metric[..., 0, 0, 0, 0].numel()
    _inner[(triton.cdiv(keys, TUNED["inner"]["BK"]), heads, count)](
        *(values.contiguous(), metric.contiguous(), out, heads, keys, e, count // layers),
        HOW="tf32x3" if settings().precision == "float32" else "tf32",
        ONE=e <= 64,
        BE=max(16, min(64, power_of_two(e))),
        **TUNED["inner"],
    )
    return out.movedim(-1, -3)


def normed(u: Tensor, gamma: Tensor, beta: Tensor, eps: Tensor, centred: bool) -> tuple[Tensor, Tensor]:
    u, width, layers = u.contiguous(), u.shape[-1], eps.numel()
    out, reciprocal = torch.empty_like(u), u.new_empty(*u.shape[:-1], 1)
    of_layer = reciprocal.numel() // layers
    _normed[(reciprocal.numel(),)](
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
    _apart[(rows,)](
        *(rebuilt, addend, seen, out, width, rows // len(out)),
        ADDED=added is not None,
        BD=power_of_two(width),
        num_warps=_warps(width),
    )
    worst = out.view(torch.float32)
    return worst if layers else worst[0]


def running(layers: Tensor) -> tuple[Tensor, Tensor]:
    """One map: in as many products as the number of layers has bits, each of many pairs at once, or a GPU would wait for
    Python and stand half empty. Several: layer by layer."""
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
    _ends[(out.numel(),)](
        *(own, every, x, *gammas, part, stream, y, change, out, out if others is None else others, width, out.numel() // layers),
        *kinds,
        BRANCH=of_branch,
        RESIDUAL=x is not own,
        NEARER=y is not own,
        BD=power_of_two(width),
        num_warps=_warps(width),
    )
    return out


def _norms_of_kernel(norms: Norms, own: Tensor) -> tuple[list[Tensor], list[int], int]:
    """The gammas of three norms, their kinds (0 no norm, 1 gamma alone, 2 the mean taken away too), and how many layers they are
    of. `own` stands where there is no norm: nobody reads it."""
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
    precision: str,
    split: bool,
    elements: int,
) -> Tensor:
    """Value Zeroing's distances [query key] of one layer, all in float32. Axes: attention [head query key], vectors
    [head key d], sources [head key m], reads [query m], down [m d]. A tile of sources at a time.

    The large product takes changes in units of `size` [query key], about as large as they are, in half precision with float32
    sums; `split`: as three such products, as exact as one of float32."""
    heads, queries, keys = attention.shape
    width, hidden = vectors.shape[-1], down.shape[0]
    weights, vectors, output = by_key(attention), vectors.contiguous(), output.contiguous()
    pairs = [one.mT.contiguous() for one in (ratio, reciprocal, size)]  # [key query]
    groups = [[one.contiguous() for one in group] for group in (sources, reads, constants)]
    of_product = [one for group in groups for one in (group[0], group[-1])]
    second = SecondProduct.of(down, split=split, coarse=precision == "bfloat16")
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
        _changed[(triton.cdiv(hidden, tile["BM"]), triton.cdiv(queries, tile["BQ"]), triton.cdiv(count, tile["BK"]))](
            *(weights, *of_product, *pairs, changes),
            *(first, count, heads, max(16, power_of_two(heads)), queries, keys, hidden),
            ACT=activation,
            GATED=len(sources) > 1,
            SPLIT=split,
            HOW="tf32x3" if precision == "float32" else "tf32",
            **tile,
        )
        written, more = second(changes, nothing=weights)
        _turned[(count, triton.cdiv(queries, rows))](
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
    """The tensors as a kernel reads them; `nothing`, which it does not read, in the place of those that are not there."""
    return [nothing if tensor is None else tensor.contiguous() for tensor in tensors]


@dataclass(frozen=True)
class SecondProduct:
    """The feed-forward's second weight [m d] in half precision; with what is left of it, where it is split in two."""

    high: Tensor  # [m d], or twice below each other where it is split: the changes stand side by side then
    low: Tensor | None

    @staticmethod
    def of(down: Tensor, *, split: bool, coarse: bool) -> SecondProduct:
        kind = torch.bfloat16 if split or coarse else torch.float16
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
