"""Triton kernels of maps: distances, lengths, norms, and how far a rebuilt output is from the model's. Sums are in
float32 (float64 for float64); nothing of pairs by features is written out. `gpu` starts them."""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch
    triton = None

if triton is not None:

    @triton.jit
    def sums(
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
        """sum_h weights[b k h q] vectors[b h k d], for a tile of q and d. Three tensor-core products are as exact as
        float32."""
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
    def nearer_kernel(
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
                    looks += tl.abs(
                        tl.load(weights + ((b * keys + k) * heads + h) * queries + q, mask=there, other=0.0)
                    )
        if not SKIP or tl.max(looks, 0) > 0:
            for start in range(0, width, BD):
                d = start + tl.arange(0, BD)
                inside = d < width
                goal = tl.load(
                    y + (b * queries + q[:, None]) * width + d[None, :],
                    mask=there[:, None] & inside[None, :],
                    other=0.0,
                )
                length = tl.abs(goal)
                for i in tl.static_range(BK):
                    k = tl.minimum(k0 + i, keys - 1)
                    part = sums(weights, vectors, heads, HP, queries, keys, width, b, k, q, d, EXACT, "tf32x3")
                    near = tl.where(inside[None, :], length - tl.abs(goal + moved - part * scale[:, None]), 0.0)
                    total += tl.where(columns == i, 1.0, 0.0).to(total.dtype)[None, :] * tl.sum(near, 1)[:, None]
        k = k0 + columns
        tl.store(out + (b * queries + q[:, None]) * keys + k[None, :], total, mask=there[:, None] & (k < keys)[None, :])

    @triton.jit
    def gram_kernel(vectors, out, heads: tl.constexpr, HP: tl.constexpr, keys, width, BD: tl.constexpr):
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
    def lengths_kernel(
        attention, gram, reciprocal, out, heads: tl.constexpr, queries, keys, BQ: tl.constexpr, BK: tl.constexpr
    ):
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
    def inner_kernel(
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
        """values[b h k] . metric[layer h g] values[b g k]: out[b h g k] and out[b g h k], for one h and every g from it
        on."""
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
                    between + first[:, None] * e + first[None, :],
                    mask=(first < e)[:, None] & (first < e)[None, :],
                    other=0.0,
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
                        tile = tl.load(
                            between + c[:, None] * e + f[None, :], mask=(c < e)[:, None] & (f < e)[None, :], other=0.0
                        )
                        through += tl.dot(some, tile, input_precision=HOW)
                    right = tl.load(others + f[None, :], mask=rows[:, None] & (f < e)[None, :], other=0.0)
                    total += tl.sum(through * right, 1)
            tl.store(out + ((b * heads + h) * heads + g) * keys + k, total, mask=rows)
            tl.store(out + ((b * heads + g) * heads + h) * keys + k, total, mask=rows)

    @triton.jit
    def normed_kernel(u, gamma, beta, eps, out, reciprocal, width, of_layer, CENTRED: tl.constexpr, BD: tl.constexpr):
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
    def apart_kernel(rebuilt, added, seen, out, width, of_layer, ADDED: tl.constexpr, BD: tl.constexpr):
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
        """Up to three frozen norms on a row, without their scales. C: 0 no norm, 1 gamma alone, 2 the mean taken away
        too."""
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
    def ends_kernel(
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
