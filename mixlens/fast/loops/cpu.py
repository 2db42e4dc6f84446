"""`cpu.c`, compiled by the machine's own compiler the first time it is needed, and kept in the user's cache."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import platform
import shlex
import shutil
import subprocess
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from . import plain
from .compiled import built
from .plain import Norms

SMALL = 64  # matrices of so many rows are multiplied before torch has found its product
OPENMP = ("libgomp", "libiomp", "libomp")
SOURCE = Path(__file__).with_name("cpu.c")
SUFFIX = {torch.float32: "float32", torch.float64: "float64"}
NUMBER = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


def nearer(attention: Tensor, vectors: Tensor, reciprocal: Tensor, y: Tensor, shift: float) -> Tensor:
    *leading, heads, queries, keys = attention.shape
    width, suffix, threads = y.shape[-1], SUFFIX[y.dtype], torch.get_num_threads()
    compiled = _compiled()
    out = y.new_empty(*leading, queries, keys)
    scratch = y.new_empty(threads * getattr(compiled, f"nearer_scratch_{suffix}")(_long(heads), _long(width)))
    # Examples and heads may lie in any order; keys and features are made neighbours.
    if vectors.dim() > 4 or vectors.stride()[-2:] != (width, 1):
        vectors = vectors.contiguous()
    step = vectors.stride()
    strides = heads * keys * width if vectors.dim() > 4 else step[-4] if vectors.dim() == 4 else 0, step[-3]
    attention, reciprocal, y = (one.contiguous() for one in (attention, reciprocal, y))  # held until the call is over
    getattr(compiled, f"nearer_{suffix}")(
        *map(_long, (out[..., 0, 0].numel(), heads, queries, keys, width)),
        *map(_at, (attention, vectors)),
        *map(_long, strides),
        *map(_at, (reciprocal, y)),
        NUMBER[y.dtype](shift),
        *map(_at, (out, scratch)),
        ctypes.c_int(threads),
    )
    return out


def lengths(attention: Tensor, gram: Tensor, reciprocal: Tensor) -> Tensor:
    *leading, heads, queries, keys = attention.shape
    out = attention.new_empty(*leading, queries, keys)
    arguments = [t.contiguous() for t in (attention, gram.movedim(-3, -1), reciprocal)]  # gram: [... head head key]
    sizes = (_long(out[..., 0, 0].numel()), _long(heads), _long(queries), _long(keys))
    loop = getattr(_compiled(), f"lengths_{SUFFIX[out.dtype]}")
    loop(*sizes, *map(_at, arguments), _at(out), ctypes.c_int(torch.get_num_threads()))
    return out


def inner(values: Tensor, metric: Tensor) -> Tensor:
    if metric.dim() > 4:
        return torch.stack([inner(some, one.view(one.shape[-4:])) for some, one in zip(values, metric, strict=True)])
    *leading, heads, keys, e = values.shape
    out = values.new_empty(*leading, heads, heads, keys)
    arguments = (values.transpose(-3, -2).contiguous(), metric.contiguous())
    loop = getattr(_compiled(), f"inner_{SUFFIX[out.dtype]}")
    sizes = map(_long, (math.prod(leading), heads, keys, e))
    loop(*sizes, *map(_at, arguments), _at(out), ctypes.c_int(torch.get_num_threads()))
    return out.movedim(-1, -3)


def ends(
    own: Tensor, every: Tensor, x: Tensor | None, norms: Norms, of_branch: int, part: Tensor, stream: Tensor
) -> tuple[Tensor, Tensor]:
    lengths, others = own.new_empty(own.shape[:-1]), own.new_empty(own.shape[:-1])
    _ends(own, every, x, norms, of_branch, part, stream, None, 0.0, lengths, others, None)
    return lengths, others


def own_nearer(
    own: Tensor, x: Tensor | None, norms: Norms, of_branch: int, part: Tensor, stream: Tensor, y: Tensor, shift: float
) -> Tensor:
    near = own.new_empty(own.shape[:-1])
    _ends(own, None, x, norms, of_branch, part, stream, y, shift, None, None, near)
    return near


def _ends(
    own: Tensor,
    every: Tensor | None,
    x: Tensor | None,
    norms: Norms,
    of_branch: int,
    part: Tensor,
    stream: Tensor,
    y: Tensor | None,
    shift: float,
    *outs: Tensor | None,
) -> None:
    width, threads, kind = own.shape[-1], torch.get_num_threads(), NUMBER[own.dtype]
    rows, layers = own[..., 0].numel(), max((gamma.numel() // width for gamma, _ in norms), default=1)
    scratch = own.new_empty(threads * 3 * width)
    # Held until the call is over.
    vectors, scales, goal = _contiguous(own, every, x), _contiguous(part, stream), _contiguous(y)
    gammas, flags = [gamma.contiguous() for gamma, _ in norms], [int(centred) for _, centred in norms]
    getattr(_compiled(), f"ends_{SUFFIX[own.dtype]}")(
        *map(_long, (rows, max(1, rows // layers), width, len(norms), of_branch)),
        *map(_at, vectors),
        (ctypes.c_void_p * max(1, len(norms)))(*map(Tensor.data_ptr, gammas)),
        (ctypes.c_long * max(1, len(norms)))(*flags),
        *map(_at, (*scales, *goal)),
        kind(shift),
        *map(_at, (*outs, scratch)),
        ctypes.c_int(threads),
    )


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    """The tensors as they lie in the memory that a loop reads; None stays None."""
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def apart(rebuilt: Tensor, added: Tensor | None, seen: Tensor, layers: int | None = None) -> Tensor:
    one_layer = rebuilt.shape == seen.shape and (added is None or added.shape == seen.shape[-1:])
    if layers is not None or not one_layer:
        return plain.apart(rebuilt, added, seen, layers)
    out, width = rebuilt.new_empty(1), rebuilt.shape[-1]
    arguments = [t.contiguous() for t in (rebuilt, rebuilt.new_zeros(width) if added is None else added, seen)]
    loop = getattr(_compiled(), f"apart_{SUFFIX[out.dtype]}")
    loop(
        *map(_long, (rebuilt.numel() // width, width)),
        *map(_at, (*arguments, out)),
        ctypes.c_int(torch.get_num_threads()),
    )
    return out[0]


def running(layers: Tensor) -> tuple[Tensor, Tensor]:
    depth, n = len(layers), layers.shape[-1]
    if n > SMALL or layers.dim() > 3:
        return plain.running(layers)
    layers = layers.contiguous()
    out, sizes = torch.empty_like(layers), layers.new_empty(depth)
    getattr(_compiled(), f"running_{SUFFIX[out.dtype]}")(_long(depth), _long(n), _at(layers), _at(out), _at(sizes))
    return out, sizes


def _at(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _long(value: int) -> ctypes.c_long:
    return ctypes.c_long(value)


def _compiled() -> ctypes.CDLL:
    loops = library()
    assert loops is not None
    return loops


@cache
def library() -> ctypes.CDLL | None:
    """The compiled loops, or None where there is no compiler.

    They share the threads torch has: a second pool beside a spinning one would halve both. Where torch's own OpenMP
    library is not found they run on one thread, and only if torch does too.
    """
    compiler = _compiler()
    if compiler is None:
        return None
    openmp = _openmp_of_torch()
    if openmp is None and torch.get_num_threads() > 1:
        return None
    flags = ["-O3", "-fno-math-errno", "-fopenmp-simd", "-shared", "-fPIC"]
    flags += ["-mcpu=native"] if platform.machine() in ("arm64", "aarch64") else ["-march=native"]
    linked = ["-lm"] if openmp is None else ["-fopenmp", openmp, "-lm"]
    key = hashlib.sha256(repr((SOURCE.read_bytes(), compiler, flags, linked, _processor())).encode()).hexdigest()[:24]
    with built(f"loops-{key}", partial(_compile, [*compiler, *flags], linked)) as place:
        return ctypes.CDLL(str(place))


def _compile(compiler: list[str], linked: list[str], place: Path) -> None:
    """Compile the loops to a file, or raise with the first line of what the compiler says."""
    command = [*compiler, "-o", str(place), str(SOURCE), *linked]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if result.returncode:
        raise RuntimeError((result.stderr.strip() or "the compiler failed").splitlines()[0])


def _compiler() -> list[str] | None:
    """The compiler and its first arguments: what CC says (`gcc`, or `gcc -m64`), else `cc`. None where there is no
    `cc`, and on Windows, whose long integers are too short for the loops; a compiler that CC names and that is not
    there is said."""
    if os.name == "nt":
        return None
    named = shlex.split(os.environ.get("CC", ""))
    words = named or ["cc"]
    place = shutil.which(words[0])
    if place is None and named:
        raise RuntimeError(f"CC names {words[0]!r}, which is not there")
    return None if place is None else [place, *words[1:]]


def _openmp_of_torch() -> str | None:
    """The OpenMP library already in this process, which is torch's."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    places = {line.split()[-1] for line in lines}
    return min((place for place in places if Path(place).name.startswith(OPENMP)), default=None)


def _processor() -> str:
    """What this machine's code may use: a cache on a shared disk must not serve another processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    return platform.machine() + next((line for line in lines if line.startswith(("flags", "Features"))), "")
