"""LayerTrace: what one layer of a forward pass read and wrote; and the layers of one example of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from ..model.parts import LayerParts


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """One layer of one forward pass. Axes: [... pos d] and [... head pos e]; `...` is a batch axis or nothing.

    Queries and keys are kept (n x d), not attention (heads x n x n): it is computed again when a method asks.
    """

    parts: LayerParts = field(repr=False)
    input: Tensor
    value: Tensor  # [... key_head pos e]
    attention_output: Tensor  # what W_O wrote, bias included
    mlp_output: Tensor
    output: Tensor
    query: Tensor | None = None  # [... head pos e], after position rotation
    key: Tensor | None = None
    mask: Tensor | None = None  # [... 1 query key]: bool (True = may look) or added to the logits
    scaling: float = 1.0
    softcap: float | None = None
    weights: Tensor | None = None  # attention itself, where the model hands out nothing else
    middle: Tensor | None = None  # what the norm after attention put out, where there is one

    @property
    def attention(self) -> Tensor:
        """[... head query key] in at least float32. A row that may look nowhere is zero."""
        from ..model.attention import attention_of

        return attention_of(self)


class LayersOf(Sequence[LayerTrace]):
    """The layers of one example of a traced batch, padding cut off: each is cut out when it is first asked for."""

    def __init__(self, batch: Sequence[LayerTrace], row: int, n: int):
        self.batch, self.row, self.n = batch, row, n  # the whole batch stays, so that many traces can be scored as one
        self._cut: dict[int, LayerTrace] = {}

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        number = range(len(self))[index]
        if number not in self._cut:
            self._cut[number] = _cut(self.batch[number], self.row, self.n)
        return self._cut[number]


POSITIONS = ("input", "attention_output", "mlp_output", "output", "middle", "query", "key", "value")  # [... pos .]
PAIRS = ("mask", "weights")  # [... query key]


def _cut(layer: LayerTrace, row: int, n: int) -> LayerTrace:
    """One example of a batch, its first n positions."""
    changes: dict[str, Any] = {}
    for name, whole in tensors_of(layer).items():
        one = whole[row if whole.shape[0] > 1 else 0]
        changes[name] = one[..., :n, :] if name in POSITIONS else one[..., :n, :n]
    return replace(layer, **changes)


def tensors_of(layer: LayerTrace) -> dict[str, Any]:
    """The tensors of a layer that have an axis of positions, by name."""
    tensors = {name: getattr(layer, name) for name in POSITIONS + PAIRS}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def without_batch(layer: LayerTrace) -> LayerTrace:
    """A batch of one example without its batch axis."""
    if layer.input.dim() == 2:
        return layer
    return replace(layer, **{name: tensor[0] for name, tensor in tensors_of(layer).items()})
