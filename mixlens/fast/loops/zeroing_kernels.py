"""Triton kernels of Value Zeroing: the changed activations of a tile of sources, and how far the layer's output turns.
`gpu` starts them."""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch
    triton = None

if triton is not None:
    from .map_kernels import sums

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
    def changed_kernel(
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
        """act(read without source k) - act(read), for a tile of targets and hidden units, a few sources one after the
        other."""
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
            was = _activated(
                before, ACT
            )  # by the same formula as below, so that its own error goes with the difference
        for i in range(BK):
            local = tl.minimum(tl.program_id(2) * BK + i, some - 1)
            k = first_key + local
            turned = tl.load(ratio + k * queries + q, mask=rows, other=0.0)
            scale = tl.load(reciprocal + k * queries + q, mask=rows, other=0.0)
            taken = sums(weights, sources, heads, HP, queries, keys, hidden, 0, k, q, m, False, HOW)
            change = turned[:, None] * own - scale[:, None] * taken
            if GATED:
                gate_taken = sums(weights, gate_sources, heads, HP, queries, keys, hidden, 0, k, q, m, False, HOW)
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
    def turned_kernel(
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
        reached = tl.maximum(
            square + (long + along) * (long + along) / long, 1.1754943508222875e-38
        )  # |still + change|^2
        cosine = (long + along) / tl.sqrt(long * reached)
        far = tl.where(cosine > 0, square / (reached * (1 + tl.abs(cosine))), 1 - cosine)
        tl.store(scores + q * keys + k, tl.where(looks == 0, 0.0, far), mask=rows)
