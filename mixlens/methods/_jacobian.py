"""Jacobians of what a layer does to one token at a time: queries, keys and values before attention, all that is behind
it.

In these every token depends on itself alone, so one backward pass answers for all tokens at once. Rows are outputs,
columns inputs: [pos out in]. A Jacobian that is the same for all tokens (a plain linear map) is held once: [1 out in].
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from ..layer import Block
from ..layer.weights import linear_weight
from ..model.parts import LayerParts
from ..model.rerun import beginning


def slices(n: int, each: int, room: int = 1 << 23) -> Iterator[slice]:
    """0 to n in steps such that `each` numbers for every index stay within the room."""
    step = max(1, room // max(1, each))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def token_jacobian(y: Tensor, x: Tensor) -> Tensor:
    """d y_j / d x_j of a graph from x [1 pos in] to y [1 head pos e], in which every token goes its own way.

    If one random direction is answered alike by all tokens, the Jacobian is the same for all, and every token is asked
    for another row of it.
    """
    _, heads, n, e = y.shape
    rows = heads * e

    def like_y(flat: Tensor) -> Tensor:
        return flat.to(y.dtype).unflatten(-1, (heads, e)).transpose(-3, -2).unsqueeze(-4)  # [... 1 head pos e]

    direction = torch.randn(rows, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(y.device)
    (answer,) = torch.autograd.grad(y, x, like_y(direction.expand(n, rows)), retain_graph=True)
    same = (answer - answer[:, :1]).abs().max() <= 64 * torch.finfo(x.dtype).eps * answer.abs().max()
    passes = -(-rows // n) if same else rows
    asked = (
        torch.arange(passes * n, device=x.device).view(passes, n)
        if same
        else torch.arange(passes, device=x.device)[:, None]
    )
    answers = []
    for some in slices(passes, n * rows):
        wanted = asked[some].expand(-1, n)[..., None] == torch.arange(rows, device=x.device)
        answers.append(batched_gradient(y, x, like_y(wanted))[:, 0])
    found = torch.cat(answers)  # [pass pos in]
    return found.flatten(0, 1)[None, :rows] if same else found.transpose(0, 1)


def batched_gradient(y: Tensor, x: Tensor, cotangents: Tensor) -> Tensor:
    """The gradients of many cotangents at once. torch's search for numbers that are not finite does not take them: it
    is off."""
    with torch.autograd.set_detect_anomaly(False):
        return torch.autograd.grad(y, x, cotangents, retain_graph=True, is_grads_batched=True)[0]


def pull(norm: nn.Module | None, at: Tensor, rows: Tensor) -> Tensor:
    """rows @ J with J the norm's Jacobian at `at` [pos d]: a cotangent per row, [pos row d]."""
    if norm is None:
        return rows
    rows = rows.expand(len(at), -1, -1)
    with torch.enable_grad():
        point = beginning(at[:, None].expand_as(rows))
        return torch.autograd.grad(norm(point), point, rows)[0]


def push(norm: nn.Module | None, at: Tensor, columns: Tensor) -> Tensor:
    """J @ columns with J the norm's Jacobian at `at` [pos d]: a tangent per column, [pos d column]."""
    if norm is None:
        return columns
    tangents = columns.transpose(-1, -2).expand(len(at), -1, -1).contiguous()  # no copy where columns were made so
    with forward_ad.dual_level():
        moved = norm(forward_ad.make_dual(at[:, None].expand_as(tangents).contiguous(), tangents))
        return forward_ad.unpack_dual(moved).tangent.transpose(-1, -2)


def feed_forward(part: LayerParts, h: Tensor) -> Tensor:
    """d mlp(h) / d h: two linear maps and, between them, a slope per feature (two where there is a gate)."""
    made = [part.mlp_up(h)]
    if part.mlp_gate is not None and part.mlp_gate is not part.mlp_up:
        made.append(part.mlp_gate(h))
    with torch.enable_grad():
        made = [beginning(features) for features in made]
        hidden = part.mlp_hidden(*made, *[None] * (2 - len(made)))
        slopes = torch.autograd.grad(hidden.sum(), made)
    down = linear_weight(part.mlp_down, hidden.shape[-1], h.dtype, h)  # [m d]
    modules = [part.mlp_up] if len(made) == 1 else [part.mlp_up, part.mlp_gate]
    ups = [
        linear_weight(module, h.shape[-1], h.dtype, h).contiguous() for module in modules if module is not None
    ]  # [d m]
    if part.mlp_gate is part.mlp_up:
        slopes, ups = slopes[0].chunk(2, -1), [half.contiguous() for half in ups[0].chunk(2, -1)]
    inner = slopes[0][:, None] * ups[0]  # [pos in m]
    for slope, up in zip(slopes[1:], ups[1:], strict=True):
        inner.addcmul_(slope[:, None], up)
    return (inner @ down).transpose(-1, -2)


def behind_attention(block: Block, tokens: slice) -> tuple[Tensor, Tensor]:
    """M_i = d y_i / d a_i and D_i = d y_i / d x_i, where a_i is what attention wrote and x_i the layer's input
    otherwise.

    The chain rule along u = x + norm(a), m = norm(u), f = mlp(norm(m)), y = norm(m + norm(f)), as the family lays it
    out."""
    part = block.wide_modules
    x, a, u, m = (t[tokens] for t in (block.x, block.attention_output, block.stream, block.middle))
    before = x if part.parallel else m
    h = before if part.norm_before_mlp is None else part.norm_before_mlp(before)
    written = part.mlp(h)
    inside = push(part.norm_on_mlp, written, pull(part.norm_before_mlp, before, feed_forward(part, h)))
    end = m + (written if part.norm_on_mlp is None else part.norm_on_mlp(written))
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand(len(x), -1, -1)
    if not part.parallel:
        inside.diagonal(dim1=-2, dim2=-1).add_(1)  # m goes on beside the feed-forward
    from_m = push(part.norm_after_mlp, end, eye if part.parallel else inside)
    from_u = pull(part.norm_after_attention, u, from_m)
    from_x = from_u + push(part.norm_after_mlp, end, inside) if part.parallel else from_u
    return pull(part.norm_on_attention, a, from_u), from_x
