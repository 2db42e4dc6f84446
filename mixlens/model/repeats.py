"""Is a pass of a traced text what its trace recorded? An attribution runs the text again: it explains the prediction of its trace
only if the model still does the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..base.errors import ModelError
from ..base.rounding import finite, gap
from ..types import Trace
from .rows import allowed_in_layer, refuse_infinite


def compare_written(trace: Trace, layer: int, written: Tensor) -> None:
    """Refuse what a layer writes now, [pos d], where it is not what it wrote. A trace whose layers were not kept has none."""
    if len(trace.layers):
        seen = trace.layers[layer].output.to(written.device)
        _refuse(
            trace, gap(written.detach().to(seen.dtype), seen), seen, f"what layer {layer % trace.model.n_layers} writes"
        )


def compare_put_out(trace: Trace, output: Any, row: int = 0) -> None:
    """Refuse logits, in this row of a batch, that are not those of the trace. Where they are near 0 they are compared as a
    probability sees them: a difference far below 1 does nothing."""
    for now, seen in _logits(trace, output, row):
        difference = float((now.detach().to(seen) - seen).abs().max()) / max(1.0, float(seen.abs().max()))
        _refuse(trace, finite(difference), seen, "what the model puts out")


def _logits(trace: Trace, output: Any, row: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The logits of the model and of the trace, where both have some."""
    seen = trace.logits
    if seen is None:
        return
    ends = [_field(output, name) for name in ("start_logits", "end_logits")]
    if ends[0] is not None:
        yield torch.stack([end[row, : len(trace)] for end in ends], -1), seen
    elif (logits := _field(output, "logits")) is not None and seen.numel():
        yield logits[row, list(trace.predicts)] if trace.predicts else logits[row], seen


def _field(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def _refuse(trace: Trace, difference: float, like: Tensor, what: str) -> None:
    """Refuse a difference that the rounding of all layers does not explain."""
    refuse_infinite(trace.model, difference, f"{what} is not finite")
    allowed = allowed_in_layer(trace.model, like) * math.sqrt(trace.model.n_layers)
    if not difference <= allowed:
        raise ModelError(
            f"{what} is not what it was when the text was traced (relative gap {difference:.1e}, allowed {allowed:.0e}): the "
            "model, its hooks or its functions were changed since, or it does not do the same twice. Trace the text again."
        )
