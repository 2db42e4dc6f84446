"""Another way back: for the length of a block, the functions a stock model calls get other backward rules.

    with rules(BOOK, module, activations) as block:
        output = module(...)
    torch.autograd.grad(output[0, 0], x)          # after the block: multipliers (DeepLift), relevance (LRP), ...

What the model computes stays the same to the last bit; only what `torch.autograd` sends back changes. A book says by
name what a function sends back (`torch.mul`, `Tensor.mul` and `*` are all "mul"), so no modelling file is copied and
every family is served by the same lines. Inside the block parameters are held still, so that "requires a gradient"
means "depends on the input": that is how a product of two activations differs from a product with a weight.

A method that is gradient x input of a model with factors held still (norm statistics, attention weights, slopes of
activations) is one more book: each factor is a handler that detaches it or halves what arrives. One function of
Question and Book, beside `rules`, can then run all such methods: the pass inside the block, the gradient at
`question.place` after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from ..model.passes import hooks

# (what arrives from above, operands, output) -> what each operand is sent
Rule = Callable[[Tensor, Sequence[Tensor], Tensor], Sequence[Tensor | None]]
# Names that only say the same thing in another way.
SAME = {
    "radd": "add",
    "rmul": "mul",
    "multiply": "mul",
    "subtract": "sub",
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "rtruediv": "rdiv",
    "negative": "neg",
    "concat": "cat",
    "rmatmul": "matmul",
    "special_expit": "sigmoid",
}
# Functions that only move, copy, choose or cast numbers: what they send back is right in every book.
STRUCTURE = """
    get size dim numel len view reshape view_as reshape_as transpose swapaxes swapdims permute movedim t contiguous
    clone detach to type type_as float double half bfloat16 cat stack hstack vstack chunk split split_with_sizes
    tensor_split unbind getitem setitem select narrow index_select gather take take_along_dim scatter masked_select
    masked_fill masked_scatter where expand expand_as repeat repeat_interleave tile broadcast_to unsqueeze squeeze
    flatten unflatten roll flip triu tril diagonal unfold pad dropout copy index_copy index_add index_put
    requires_grad retain_grad register_hook
"""
STRUCTURAL = frozenset(STRUCTURE.split())


def name_of(function: Callable[..., Any]) -> tuple[str, bool]:
    """The book's name for a function, and whether it changes its first argument in place."""
    name = getattr(function, "__name__", "")
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        in_place = name in ("iadd", "isub", "imul", "itruediv", "idiv", "ipow", "imatmul")
        name = name[1:] if in_place else name
    else:
        in_place = name.endswith("_") and not name.endswith("__")
        name = name.strip("_")
    return SAME.get(name, name), in_place


class _Ruled(torch.autograd.Function):
    """compute(*operands), whose backward pass is a rule."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Tensor], rule: Rule, *operands: Tensor) -> Tensor:
        output = compute(*operands)
        ctx.rule = rule
        ctx.save_for_backward(*operands, output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> Any:
        *operands, output = ctx.saved_tensors
        return None, None, *ctx.rule(arriving, operands, output)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of one function while a book is open. `operands` are the arguments that depend on the input."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    memory: dict[Any, Any] = field(default_factory=dict)  # shared by all calls of the block, cleared after it

    @cached_property
    def places(self) -> list[int | str]:
        everything: list[tuple[int | str, Any]] = [*enumerate(self.args), *self.kwargs.items()]
        return [place for place, value in everything if isinstance(value, Tensor) and value.requires_grad]

    @cached_property
    def operands(self) -> list[Tensor]:
        return [self.kwargs[place] if isinstance(place, str) else self.args[place] for place in self.places]

    def argument(self, number: int, name: str, default: Any = None) -> Any:
        """An argument by its position or its name."""
        return self.args[number] if len(self.args) > number else self.kwargs.get(name, default)

    def compute(self, *operands: Tensor) -> Tensor:
        """The function with other numbers in its operands' places."""
        args, kwargs = list(self.args), dict(self.kwargs)
        for place, operand in zip(self.places, operands, strict=True):
            if isinstance(place, str):
                kwargs[place] = operand
            else:
                args[place] = operand
        return self.function(*args, **kwargs)

    def stock(self) -> Any:
        """As torch does it, forward and back: right for what is linear in its one operand."""
        return self.function(*self.args, **self.kwargs)

    def ruled(self, rule: Rule) -> Tensor:
        """The function's value, and `rule` on the way back."""
        output = _Ruled.apply(self.compute, rule, *self.operands)
        # The rule needs the values of a linear layer as they are here, and a model may clip them in place afterwards.
        return output.clone() if self.name == "linear" else output


Handler = Callable[[Call], Any]  # the function's output, or NotImplemented where the book has no rule for such a call


@dataclass(frozen=True)
class Book:
    """What each function sends back, by name, and what an activation module sends back, whatever functions it calls."""

    functions: Mapping[str, Handler]
    activation: Handler


class Rewiring(TorchFunctionMode):
    """The open book. `unruled`: functions of the input that the book has no rule for; torch's gradient stands for
    them."""

    def __init__(self, book: Book):
        super().__init__()
        self.book = book
        self.memory: dict[Any, Any] = {}
        self.unruled: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not torch.is_grad_enabled():  # inside the forward pass of a rule, or where nothing is sent back
            return func(*args, **kwargs)
        name, in_place = name_of(func)
        handler = self.book.functions.get(name)
        if handler is None:
            output = func(*args, **kwargs)
            if name not in STRUCTURAL and isinstance(output, Tensor) and output.requires_grad:
                self.unruled.add(name)
            return output
        call = Call(name, func, tuple(args), kwargs, self.memory)
        if call.operands and (in_place or kwargs.get("inplace")):
            return self.changed_in_place(handler, call)
        return self.handled(handler, call)

    def handled(self, handler: Handler, call: Call) -> Any:
        output = handler(call) if call.operands else NotImplemented  # none where they stand in a list
        if output is NotImplemented:
            output = call.stock()
            if isinstance(output, Tensor) and output.requires_grad:
                self.unruled.add(call.name)
        return output

    def changed_in_place(self, handler: Handler, call: Call) -> Tensor:
        """The same function into a new tensor, which then takes the old one's place. Torch refuses where a rule saved
        it."""
        homes = (torch, torch.nn.functional)
        function = next(getattr(home, call.name) for home in homes if getattr(home, call.name, None) is not None)
        kwargs = {key: value for key, value in call.kwargs.items() if key != "inplace"}
        changed, *others = call.args
        return changed.copy_(
            self.handled(handler, replace(call, function=function, args=(changed.clone(), *others), kwargs=kwargs))
        )

    def as_one(self, activation: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        """A forward hook: an activation that calls several functions counts as one, so its output is computed again."""
        call = Call("activation", activation.forward, args, {}, self.memory)
        return self.book.activation(call) if torch.is_grad_enabled() and call.operands else None


@contextmanager
def rules(book: Book, module: nn.Module, activations: Iterable[nn.Module] = ()) -> Iterator[Rewiring]:
    """Open a book for what `module` computes inside the block. Take gradients after it.

    Modes, hooks and `requires_grad` of the parameters are as before when the block ends, whatever happens.
    """
    # By name: where weights are offloaded, every call puts other parameters in their place.
    settings = [
        (part, name, weights.requires_grad)
        for part in module.modules()
        for name, weights in part._parameters.items()
        if weights is not None
    ]
    mode = Rewiring(book)
    try:
        for part, name, _ in settings:
            getattr(part, name).requires_grad_(False)
        with hooks([(activation, "after", mode.as_one) for activation in activations]), mode:
            yield mode
    finally:
        for part, name, setting in settings:
            getattr(part, name).requires_grad_(setting)
        mode.memory.clear()  # its tensors refer to the graph, and the graph to it: a reference cycle


def composed(module: nn.Module, examples: Iterable[Any]) -> list[nn.Module]:
    """All activation modules of the classes of `examples`, in the heads too. Torch's classes are left out: each of them
    calls one function, which a book knows by name."""
    kinds = {type(example) for example in examples if isinstance(example, nn.Module)}
    return [part for part in module.modules() if type(part) in kinds and not type(part).__module__.startswith("torch.")]


# --- parts of rules ---------------------------------------------------------------------------------------------------


def named(handler: Handler, names: str) -> dict[str, Handler]:
    """One handler for several functions."""
    return dict.fromkeys(names.split(), handler)


def send_back(compute: Callable[..., Tensor], operands: Sequence[Tensor], arriving: Tensor) -> tuple[Tensor, ...]:
    """The ordinary gradient of `compute` at `operands`, times what arrives."""
    with torch.enable_grad():
        leaves = [operand.detach().requires_grad_() for operand in operands]
        output = compute(*leaves)
        return torch.autograd.grad(output, leaves, arriving.to(output.dtype))
