"""Is a row of a batch what it is alone? The first and the last row of a batch are run once more, each alone, and compared.

Numbers of many texts, or of many changed copies of one text, are made in batches. A hook or a module of the user's own may treat
the rows of a batch differently, or mix them: then these numbers are not those of each text. Where such code acts, texts are run
one at a time (`user_code`), and of a batch that is run all the same every row is compared. In the run of one row every layer
reads what it read in the batch, so that the rounding of one layer does not enter the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.errors import ModelError, RowsError
from ..base.rounding import EIGHT_BITS, LAYER_ROUNDINGS, LAYER_TOLERANCE, TOLERANCE, digits_of_products, finite, gap
from .offload import holds_eight_bits
from .parts import by_layer
from .passes import Hook, first, hidden_argument, with_hidden
from .user_code import acts_in

if TYPE_CHECKING:
    from .model import Model

PUT_OUT = ("logits", "start_logits", "end_logits", "last_hidden_state")  # what stock models put out, of each row
Entries = Callable[[], Sequence[Hook]]
Around = Callable[[Entries], Entries]


class Rows:
    """Rows of a batch of `count`: what each layer read, and what the last one wrote. A batch of one row, or one that is not to
    be compared (`count` 0), costs nothing."""

    def __init__(self, model: Model, count: int):
        self.model, self.count = model, count
        self.numbers = _compared(model, count) if count > 1 else ()
        self.read: list[Tensor] = []  # by each layer, [row pos d]
        self.written: Tensor | None = None  # by the last layer, [row pos d]

    def noting(self, entries: Entries = tuple) -> Entries:
        """The hooks of the batch's pass, and with them those that note its rows."""
        if not self.numbers:
            return entries

        def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
            self.read.append(self._rows(hidden_argument(args, kwargs)))

        def end(module: nn.Module, args: Any, output: Any) -> None:
            self.written = self._rows(first(output))

        return _around(self.model, begin, end)(entries)

    def _rows(self, tensor: Tensor) -> Tensor:
        return tensor.detach()[list(self.numbers)]

    def compare(self, output: Any, alone: Callable[[int, Around], Any]) -> None:
        """Run each of the rows: `alone(row, around)` gives its output, by a pass whose hooks went through `around`. Refuse
        where a layer reads or writes something else than in the batch, or where the head puts out something else."""
        for place, row in enumerate(self.numbers):
            reader = Alone(self, place, self._name(row))
            put_out = alone(row, _around(self.model, reader.begin, reader.end))
            self._compare_heads(output, put_out, row)

    def compare_row(self, row: int, written: tuple[Tensor, Tensor], put_out: tuple[Any, Any]) -> None:
        """Compare a row of a batch with a pass of that row alone which was made before: what the last layer wrote, and the
        outputs, in the batch and alone. The rounding errors of all layers add up, as independent ones do."""
        whole, own = (tensor.detach() for tensor in written)
        layers = len(self.model.parts)
        what = f"what the last layer writes of {self._name(row)}"
        self.refuse(gap(own, whole[row : row + 1]), own, what, layers=layers)
        self._compare_heads(*put_out, row, layers=layers)

    def _name(self, row: int) -> str:
        return f"row {row + 1} of a batch of {self.count}"

    def _compare_heads(self, output: Any, put_out: Any, row: int, *, layers: int = 1) -> None:
        """Logits near 0 are compared as a probability sees them: a difference far below 1 does nothing."""
        for whole, own in ((_field(output, name), _field(put_out, name)) for name in PUT_OUT):
            if whole is not None and own is not None:
                seen = whole.detach()[row : row + 1, : own.shape[1]]
                difference = finite(float((own.detach() - seen).abs().max())) / max(1.0, float(seen.abs().max()))
                self.refuse(difference, own, f"what the model puts out for {self._name(row)}", layers=layers)

    def refuse_unequal(self, written: Tensor, layer: int) -> None:
        """Refuse a batch of copies of one text of which a layer does not write the same, [copy pos d]."""
        if len(written) > 1:
            others = written[1:]
            difference = gap(others, written[:1].expand_as(others))
            what = f"what layer {layer} writes of one of {len(written)} copies of a text"
            self.refuse(difference, written, what, layers=layer + 1)

    def refuse(self, difference: float, like: Tensor, what: str, *, layers: int = 1) -> None:
        """Refuse a difference that the rounding of so many layers does not explain."""
        allowed = allowed_in_layer(self.model, like) * math.sqrt(layers)
        refuse_infinite(self.model, difference, f"{what} is not finite, in the batch or alone")
        if not difference <= allowed:
            raise RowsError(
                f"{what} is not what it is for that row alone (relative gap {difference:.1e}, allowed {allowed:.0e}): a hook or "
                "a module treats the rows of a batch differently, or mixes them. Numbers made in batches would be wrong. Remove "
                "it, or let it do the same to every row."
            )


def refuse_infinite(model: Model, difference: float, told: str) -> None:
    """Refuse numbers that are not finite in words of their own: no hook is at fault."""
    if math.isinf(difference):
        raise ModelError(
            f"{told}: the weights hold NaN or infinite numbers, a hook or a module makes them, or {model.dtype} is too narrow. "
            "No number is given."
        )


def allowed_in_layer(model: Model, like: Tensor) -> float:
    """What the order of sums may do in one layer: that of the coarser of the two number types, at least float32's, in which
    some norms of a float64 model compute."""
    types = (digits_of_products(like, dtype) for dtype in (like.dtype, model.dtype, torch.float32))
    allowed = max(LAYER_TOLERANCE.get(dtype, TOLERANCE[torch.float32]) for dtype in types)
    eight_bits = any(holds_eight_bits(parts.output) for parts in model.parts)
    return max(allowed, EIGHT_BITS * LAYER_ROUNDINGS) if eight_bits else allowed


def _compared(model: Model, count: int) -> Sequence[int]:
    """The rows of a batch that are compared: the first and the last; all where a user's own code acts in the model."""
    return range(count) if acts_in(model) else (0, count - 1)


class Alone:
    """Hooks of a pass of one row: its layers read what they read in the batch, and what they would have read is compared."""

    def __init__(self, rows: Rows, place: int, told: str):
        self.rows, self.place, self.told, self.calls = rows, place, told, 0

    def begin(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        x = hidden_argument(args, kwargs)
        self.calls += 1
        return with_hidden(
            args, kwargs, self._compared(x, self.rows.read[self.calls - 1], f"what layer {self.calls - 1} reads")
        )

    def end(self, module: nn.Module, args: Any, output: Any) -> Any:
        if self.calls < len(self.rows.read) or self.rows.written is None:
            return None
        x = self._compared(first(output), self.rows.written, "what the last layer writes")
        return (x, *output[1:]) if isinstance(output, tuple) else x

    def _compared(self, x: Tensor, both: Tensor, what: str) -> Tensor:
        """What stood in the batch in the place of x [1 pos d]."""
        expected = both[self.place : self.place + 1, : x.shape[1]].to(x.device)
        self.rows.refuse(gap(x.detach(), expected), x, f"{what} of {self.told}")
        return expected


def _around(model: Model, begin: Callable[..., Any], end: Callable[..., Any]) -> Around:
    """Hooks around those of a pass: `begin` comes after all that changes what a layer reads, `end` before a pass is ended."""

    def around(entries: Entries) -> Entries:
        def all_entries() -> list[Hook]:
            layers = [parts.layer for parts in by_layer(model.parts).values()]
            return [
                *((layer, "after", end) for layer in layers),
                *entries(),
                *((layer, "before", begin) for layer in layers),
            ]

        return all_entries

    return around


def _field(output: Any, name: str) -> Tensor | None:
    """A tensor that a model put out, by its name; None where there is none."""
    return output.get(name) if isinstance(output, dict) else getattr(output, name, None)
