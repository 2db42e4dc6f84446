"""Is a row of a batch what it is alone? The first and the last row of a batch are run once more, each alone, and
compared.

Numbers of many texts, or of many changed copies of one text, are made in batches. A hook or a module of the user's own
may treat the rows of a batch differently, or mix them: then these numbers are not those of each text. Where such code
acts, texts are run one at a time (`user_code`), and of a batch that is run all the same every row is compared. In the
run of one row every layer reads what it read in the batch, so that the rounding of one layer does not enter the next.

And is a pass of a traced text what its trace recorded? An attribution runs the text again: it explains the prediction
of its trace only if the model still does the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.errors import ModelError, RowsError
from ..base.rounding import EIGHT_BITS, LAYER_ROUNDINGS, LAYER_TOLERANCE, TOLERANCE, digits_of_products, finite, gap
from ..types import Trace
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
    """Rows of a batch of `count`: what each layer read, and what the last one wrote. A batch of one row, or one that is
    not to be compared (`count` 0), costs nothing."""

    def __init__(self, model: Model, count: int):
        self.model, self.count = model, count
        # The first and the last; all where a user's own code acts in the model.
        self.numbers = () if count <= 1 else range(count) if acts_in(model) else (0, count - 1)
        self.read: list[Tensor] = []  # by each layer, [row pos d]
        self.written: Tensor | None = None  # by the last layer, [row pos d]

    def noting(self, entries: Entries = tuple) -> Entries:
        """The hooks of the batch's pass, and with them those that note its rows."""

        def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
            self.read.append(hidden_argument(args, kwargs).detach()[list(self.numbers)])

        def end(module: nn.Module, args: Any, output: Any) -> None:
            self.written = first(output).detach()[list(self.numbers)]

        return _around(self.model, begin, end, entries) if self.numbers else entries

    def compare(self, output: Any, alone: Callable[[int, Around], Any]) -> None:
        """Run each of the rows: `alone(row, around)` gives its output, by a pass whose hooks went through `around`.
        Refuse where a layer reads or writes something else than in the batch, or where the head puts out something
        else. In such a pass the layers read what they read in the batch, and what they would have read is compared."""
        place = calls = 0  # the row's place among those that are compared; layers of its pass that were called

        def compared(x: Tensor, both: Tensor, what: str) -> Tensor:
            expected = both[place : place + 1, : x.shape[1]].to(x.device)
            self.refuse(gap(x.detach(), expected), x, f"{what} of {self.name(self.numbers[place])}")
            return expected

        def begin(module: nn.Module, args: Any, kwargs: Any) -> Any:
            nonlocal calls
            x = compared(hidden_argument(args, kwargs), self.read[calls], f"what layer {calls} reads")
            calls += 1
            return with_hidden(args, kwargs, x)

        def end(module: nn.Module, args: Any, output: Any) -> Any:
            if calls < len(self.read) or self.written is None:
                return None
            x = compared(first(output), self.written, "what the last layer writes")
            return (x, *output[1:]) if isinstance(output, tuple) else x

        for row in self.numbers:
            place, calls = self.numbers.index(row), 0
            self.compare_heads(output, alone(row, partial(_around, self.model, begin, end)), row)

    def name(self, row: int) -> str:
        return f"row {row + 1} of a batch of {self.count}"

    def compare_heads(self, output: Any, put_out: Any, row: int, *, layers: int = 1) -> None:
        for whole, own in ((_field(output, name), _field(put_out, name)) for name in PUT_OUT):
            if whole is not None and own is not None:
                difference = _difference(own, whole.detach()[row : row + 1, : own.shape[1]])
                self.refuse(difference, own, f"what the model puts out for {self.name(row)}", layers=layers)

    def refuse_unequal(self, written: Tensor, layer: int) -> None:
        """Refuse a batch of copies of one text of which a layer does not write the same, [copy pos d]."""
        if len(written) > 1:
            others = written[1:]
            what = f"what layer {layer} writes of one of {len(written)} copies of a text"
            self.refuse(gap(others, written[:1].expand_as(others)), written, what, layers=layer + 1)

    def refuse(self, difference: float, like: Tensor, what: str, *, layers: int = 1) -> None:
        """Refuse a difference that the rounding of so many layers does not explain."""
        allowed = _allowed(self.model, like, layers, difference, f"{what} is not finite, in the batch or alone")
        if not difference <= allowed:
            raise RowsError(
                f"{what} is not what it is for that row alone (relative gap {difference:.1e}, allowed {allowed:.0e}): "
                f"a hook or "
                "a module treats the rows of a batch differently, or mixes them. Numbers made in batches would be "
                "wrong. Remove "
                "it, or let it do the same to every row."
            )


def _around(model: Model, begin: Callable[..., Any], end: Callable[..., Any], entries: Entries) -> Entries:
    """Hooks around those of a pass: `begin` comes after all that changes what a layer reads, `end` before a pass is
    ended."""

    def all_entries() -> list[Hook]:
        layers = [parts.layer for parts in by_layer(model.parts).values()]
        ends, begins = [(layer, "after", end) for layer in layers], [(layer, "before", begin) for layer in layers]
        return [*ends, *entries(), *begins]

    return all_entries


def _difference(now: Tensor, seen: Tensor) -> float:
    """Of logits: near 0 they are compared as a probability sees them, where a difference far below 1 does nothing."""
    return finite(float((now.detach().to(seen) - seen).abs().max()) / max(1.0, float(seen.abs().max())))


def _allowed(model: Model, like: Tensor, layers: int, difference: float, told: str) -> float:
    """What the order of sums may do in so many layers: that of the coarser of the two number types, at least float32's,
    in which some norms of a float64 model compute. A difference that is not finite is refused in words of its own: no
    hook is at fault."""
    if math.isinf(difference):
        raise ModelError(
            f"{told}: the weights hold NaN or infinite numbers, a hook or a module makes them, or {model.dtype} is "
            f"too narrow. "
            "No number is given."
        )
    types = [digits_of_products(like, dtype) for dtype in {like.dtype, model.dtype, torch.float32}]
    allowed = max([LAYER_TOLERANCE.get(dtype, TOLERANCE[torch.float32]) for dtype in types])
    if any(holds_eight_bits(parts.output) for parts in model.parts):
        allowed = max(allowed, EIGHT_BITS * LAYER_ROUNDINGS)
    return allowed * math.sqrt(layers)


def _field(output: Any, name: str) -> Tensor | None:
    """A tensor that a model put out, by its name; None where there is none."""
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


# --- a pass and its trace ---------------------------------------------------------------------------------------------


def compare_written(trace: Trace, layer: int, written: Tensor) -> None:
    """Refuse what a layer writes now, [pos d], where it is not what it wrote. A trace whose layers were not kept has
    none."""
    if len(trace.layers):
        seen = trace.layers[layer].output.to(written.device)
        difference = gap(written.detach().to(seen.dtype), seen)
        _refuse_changed(trace, difference, seen, f"what layer {layer % trace.model.n_layers} writes")


def compare_put_out(trace: Trace, output: Any, row: int = 0) -> None:
    """Refuse logits, in this row of a batch, that are not those of the trace."""
    seen, now = trace.logits, _field(output, "logits")
    start, end = _field(output, "start_logits"), _field(output, "end_logits")
    if start is not None and end is not None:
        now = torch.stack([start[row, : len(trace)], end[row, : len(trace)]], -1)
    elif now is not None:
        now = now[row, list(trace.predicts)] if trace.predicts else now[row]
    if now is not None and seen is not None and seen.numel():
        _refuse_changed(trace, _difference(now, seen), seen, "what the model puts out")


def _refuse_changed(trace: Trace, difference: float, like: Tensor, what: str) -> None:
    """Refuse a difference that the rounding of all layers does not explain."""
    allowed = _allowed(trace.model, like, trace.model.n_layers, difference, f"{what} is not finite")
    if not difference <= allowed:
        raise ModelError(
            f"{what} is not what it was when the text was traced (relative gap {difference:.1e}, allowed "
            f"{allowed:.0e}): the "
            "model, its hooks or its functions were changed since, or it does not do the same twice. Trace the text "
            "again."
        )
