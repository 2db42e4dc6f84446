"""What a user's own function does, as a checksum: two functions of one name and place may do different things.

It is of the instructions and constants, of what they name in the function's own file, and of the numbers that the function
holds. It is the same in every process with one version of Python. What a function sets while it works (a count, the last
output) is left out, and of lists and dictionaries, which it may fill, only the kind is told.
"""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from .packages import package

STOCK = ("torch", "transformers", "builtins")  # packages whose functions are told by their names
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


class Known:
    """What was told: the numbers of functions and objects, by their ids; and names that their code sets while it works."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.changing: set[str] = set()

    def begin(self, value: Any) -> None:
        self.numbers[id(value)] = len(self.numbers)


def code_print(function: Any, owner: type | None = None) -> str:
    """Eight letters that another function does not share. `owner`: the class whose other methods the function may call."""
    known = Known()
    lines = [*_told(function, known), *(_methods(owner, known) if owner is not None else ())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]


def _told(value: Any, known: Known) -> Iterator[str]:
    """Lines of a value. What was told before is not told again: functions call one another."""
    for kinds, tell in VALUES:
        if isinstance(value, kinds):
            yield from tell(value, known)
            return
    if id(value) in known.numbers:
        yield f"number {known.numbers[id(value)]}"
        return
    known.begin(value)
    tell = next((tell for kinds, tell in CODE if isinstance(value, kinds)), _object)
    yield from tell(value, known)


def _plain(value: Any, known: Known) -> Iterator[str]:
    yield f"{type(value).__name__} {value!r}"


def _several(values: Iterable[Any], known: Known) -> Iterator[str]:
    """Of a set sorted: it has another order in every process."""
    told = ["; ".join(_told(one, known)) for one in values]
    yield f"{type(values).__name__} {sorted(told) if isinstance(values, frozenset) else told}"


def _tensor(value: Tensor, known: Known) -> Iterator[str]:
    yield f"{type(value).__name__} {tuple(value.shape)} {value.dtype} {_numbers(value)}"


def _numbers(value: Tensor) -> str:
    if value.device.type == "meta" or value.layout is not torch.strided:
        return str(value.layout)
    flat = value.detach().cpu().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy()).hexdigest()  # type: ignore[arg-type]


def _named(value: Any, known: Known) -> Iterator[str]:
    yield f"{type(value).__name__} {value.__module__}.{value.__qualname__}"


def _module(value: nn.Module, known: Known) -> Iterator[str]:
    yield f"module {type(value).__qualname__}"  # those of the model are told where they stand


# --- functions --------------------------------------------------------------------------------------------------------


def _function(value: FunctionType, known: Known) -> Iterator[str]:
    if package(value.__module__ or "") in STOCK and package(value.__globals__.get("__name__", "")) in STOCK:
        yield from _named(value, known)
        return
    if value.__name__ != "__init__":
        known.changing |= _set_by(value.__code__)
    yield from _told(value.__code__, known)
    yield from _told(value.__defaults__, known)
    yield from _pairs(value.__kwdefaults__ or {}, known)
    yield from _pairs(_around(value), known)
    yield from _pairs(_globals(value), known)


def _around(function: FunctionType) -> dict[str, Any]:
    """The variables of the functions around it that it reads."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if _is_set(cell)}


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asked for, to see
    except ValueError:
        return False
    return True


def _globals(function: FunctionType) -> dict[str, Any]:
    """What it and the functions inside it name in their file: functions, and plain values."""
    names = sorted(set(_names(function.__code__)))
    known = {name: function.__globals__[name] for name in names if name in function.__globals__}
    return {name: value for name, value in known.items() if isinstance(value, (FunctionType, Tensor, *PLAIN))}


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inside in _inside(code):
        yield from _names(inside)


def _set_by(code: CodeType) -> set[str]:
    """The names of attributes and of variables outside of a function that it sets, such as a count of its calls."""
    found = {
        one.argval for one in dis.get_instructions(code) if one.opname in ("STORE_DEREF", "STORE_GLOBAL", "STORE_ATTR")
    }
    return found.union(*map(_set_by, _inside(code)))


def _inside(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _code(value: CodeType, known: Known) -> Iterator[str]:
    """Without its name, its file and its lines."""
    yield f"code {value.co_code.hex()} {value.co_exceptiontable.hex()} {value.co_names} {value.co_freevars}"
    yield from _told(value.co_consts, known)


def _bound(value: MethodType, known: Known) -> Iterator[str]:
    yield from _told(value.__func__, known)
    yield from _told(value.__self__, known)


def _partial(value: partial[Any], known: Known) -> Iterator[str]:
    yield from _told(value.func, known)
    yield from _told(value.args, known)
    yield from _pairs(value.keywords, known)


# --- objects ----------------------------------------------------------------------------------------------------------


def _object(value: Any, known: Known) -> Iterator[str]:
    """Its class; of a class of the user's the methods, and what the object holds."""
    yield f"object {type(value).__module__}.{type(value).__qualname__}"
    if package(type(value).__module__) not in STOCK:
        yield from _methods(type(value), known)
        yield from _pairs(getattr(value, "__dict__", {}), known)


def _methods(owner: type, known: Known) -> Iterator[str]:
    """The methods of a class of the user's, and its fractions."""
    for one in owner.__mro__:
        if package(one.__module__) not in STOCK:
            held = {name: _method(value) for name, value in vars(one).items()}
            yield from _pairs(
                {name: value for name, value in held.items() if isinstance(value, (FunctionType, float))}, known
            )


def _method(value: Any) -> Any:
    """The function of a static or class method, or of a property; anything else as it is."""
    return value.fget if isinstance(value, property) else getattr(value, "__func__", value)


def _pairs(values: Mapping[str, Any], known: Known) -> Iterator[str]:
    """Names and values, but for those that the code sets while it works."""
    for name, value in values.items():
        if name not in known.changing:
            yield f"{name}:"
            yield from _told(value, known)


Tell = Callable[[Any, Known], Iterator[str]]
VALUES: tuple[tuple[Any, Tell], ...] = (  # kinds of values, and how each is told
    (PLAIN, _plain),
    ((tuple, frozenset), _several),
    (Tensor, _tensor),
    (nn.Module, _module),
    ((type, BuiltinFunctionType), _named),
    (CodeType, _code),
)
CODE: tuple[tuple[Any, Tell], ...] = ((FunctionType, _function), (MethodType, _bound), (partial, _partial))
