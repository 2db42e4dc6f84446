"""The inner loops: what each one says it computes, written out by hand; the compiled form of each beside the plain one.

The compiled `nearer`, `lengths` and `inner` are held against the plain ones for any shape in test_speed_guard.py.
"""

from __future__ import annotations

import inspect
import platform
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mixlens.base import budget
from mixlens.fast import loops as kernels
from mixlens.fast.loops import cpu, plain

LOOPS = ["nearer", "lengths", "gram", "inner", "ends", "own_nearer", "apart", "normed", "running"]
COMPILED = ["nearer", "lengths", "inner", "ends", "own_nearer", "apart", "running"]
HEADS, N, D = 3, 5, 7
AXES = {"no axis": (), "a batch": (2,), "layers of a batch": (2, 3)}
# In float32 a sum of some twenty numbers near 1 is right to 1e-6; in float64 to 1e-14.
CLOSE = {torch.float32: {"rtol": 1e-5, "atol": 2e-5}, torch.float64: {"rtol": 1e-12, "atol": 1e-12}}


@pytest.fixture(params=["plain", "compiled"])
def form(request: pytest.FixtureRequest) -> Any:
    if request.param == "plain":
        return plain
    if kernels._module("cpu") is plain:
        pytest.skip("needs a C compiler, and MIXLENS_KERNELS not set to plain")
    return cpu


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


class Draw:
    """Random tensors, a sequence of them by a seed."""

    def __init__(self, dtype: torch.dtype):
        self.dtype, self.seeded = dtype, torch.Generator().manual_seed(5)

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.seeded, dtype=torch.float64).to(self.dtype)


def examples(axes: tuple[int, ...]) -> list[Any]:
    """Every index of some leading axes."""
    return (
        list(torch.cartesian_prod(*(torch.arange(size) for size in axes)).view(-1, len(axes)).tolist())
        if axes
        else [[]]
    )


def at(tensor: Tensor, index: list[int]) -> Tensor:
    return tensor[tuple(index)].double()


def same(made: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert made.dtype == dtype
    torch.testing.assert_close(made.double(), expected, **CLOSE[dtype])


def test_every_loop_is_listed() -> None:
    """A loop that is added gets its test here."""

    def defined(module: Any) -> set[str]:
        found = inspect.getmembers(module, inspect.isfunction)
        return {name for name, one in found if one.__module__ == module.__name__ and name in vars(plain)}

    public = {
        name for name, one in inspect.getmembers(kernels, inspect.isfunction) if "_form(" in inspect.getsource(one)
    }
    assert public - {"_form"} == set(LOOPS)
    assert defined(cpu) == set(COMPILED)


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
def test_nearer_and_lengths(axes: tuple[int, ...], form: Any, dtype: torch.dtype) -> None:
    draw = Draw(dtype)
    attention, vectors = draw(*axes, HEADS, N, N).softmax(-1), draw(*axes, HEADS, N, D)
    reciprocal, y, shift = draw(*axes, N).abs() + 0.5, draw(*axes, N, D), -0.01
    near, long = torch.zeros(*axes, N, N, dtype=torch.float64), torch.zeros(*axes, N, N, dtype=torch.float64)
    for index in examples(axes):
        a, v, scale, goal = (at(t, index) for t in (attention, vectors, reciprocal, y))
        for q in range(N):
            for k in range(N):
                t = scale[q] * sum((a[h, q, k] * v[h, k] for h in range(HEADS)), torch.zeros(D, dtype=torch.float64))
                near[(*index, q, k)] = goal[q].abs().sum() - (goal[q] + shift - t).abs().sum()
                long[(*index, q, k)] = t.norm()
    same(form.nearer(attention, vectors, reciprocal, y, shift), near, dtype)
    same(form.lengths(attention, plain.gram(vectors), reciprocal), long, dtype)


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
def test_gram_and_inner(axes: tuple[int, ...], form: Any, dtype: torch.dtype) -> None:
    """Vectors that are linear in the values have the inner products that the metric gives, without the vectors."""
    draw = Draw(dtype)
    values, weights = draw(*axes, HEADS, N, 4), draw(HEADS, 4, D)
    vectors = values @ weights
    metric = torch.einsum("hed,gfd->hgef", weights, weights)
    expected = torch.zeros(*axes, N, HEADS, HEADS, dtype=torch.float64)
    for index in examples(axes):
        v = at(vectors, index)
        for k in range(N):
            for h in range(HEADS):
                for g in range(HEADS):
                    expected[(*index, k, h, g)] = v[h, k] @ v[g, k]
    if form is plain:
        same(form.gram(vectors), expected, dtype)
    torch.testing.assert_close(form.inner(values, metric).double(), expected, rtol=1e-4, atol=1e-4)
    if axes:  # a metric for every layer
        by_layer = torch.stack([metric * (number + 1) for number in range(axes[0])])
        by_layer = by_layer.view(axes[0], *[1] * (len(axes) - 1), *metric.shape)
        factors = torch.arange(1, axes[0] + 1).view(-1, *[1] * (expected.dim() - 1))
        torch.testing.assert_close(form.inner(values, by_layer).double(), expected * factors, rtol=1e-4, atol=1e-4)


def frozen(z: Tensor, norms: list[tuple[Tensor, bool]]) -> Tensor:
    for gamma, centred in norms:
        z = (z - z.mean() if centred else z) * gamma.double()
    return z


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize(("count", "of_branch"), [(0, 0), (2, 0), (2, 1), (2, 2)])
@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
def test_ends_and_own_nearer(
    axes: tuple[int, ...], count: int, of_branch: int, residual: bool, form: Any, dtype: torch.dtype
) -> None:
    """Each layer has norms of its own: [layer 1 d] beside [layer pos d]."""
    draw, shift = Draw(dtype), -0.01
    own, every, y = draw(*axes, N, D), draw(*axes, N, D), draw(*axes, N, D)
    x = draw(*axes, N, D) if residual else None
    norms = [(draw(*axes[:1], *[1] * len(axes), D) + 1, centred) for centred in (True, False)[:count]]
    part, stream = draw(*axes, N).abs() + 0.5, draw(*axes, N).abs() + 0.5
    length, others, near = (torch.zeros(*axes, N, dtype=torch.float64) for _ in range(3))
    for index in examples(axes):
        for i in range(N):
            here = [*index, i]
            of_layer = [(gamma[index[0], ..., 0, :] if axes else gamma, centred) for gamma, centred in norms]
            of_layer = [(gamma.flatten(), centred) for gamma, centred in of_layer]
            whole = frozen(at(own, here), of_layer) * at(part, here)
            if x is not None:
                whole = whole + frozen(at(x, here), of_layer[of_branch:]) * at(stream, here)
            goal = at(y, here)
            length[tuple(here)] = whole.norm()
            others[tuple(here)] = (frozen(at(every, here) - at(own, here), of_layer) * at(part, here)).norm()
            near[tuple(here)] = goal.abs().sum() - (goal + shift - whole).abs().sum()
    made = form.ends(own, every, x, norms, of_branch, part, stream)
    same(made[0], length, dtype)
    same(made[1], others, dtype)
    same(form.own_nearer(own, x, norms, of_branch, part, stream, y, shift), near, dtype)


def rows_apart(rebuilt: Tensor, seen: Tensor) -> Tensor:
    """Token by token: the root mean square of differences, each over its feature's size or the token's typical size."""
    found = []
    for made, there in zip(rebuilt.flatten(0, -2), seen.flatten(0, -2), strict=True):
        typical = sum(float(x) ** 0.5 for x in there.abs()) / len(there)
        parts = [(float(a - b) / max(abs(float(b)), typical**2)) ** 2 for a, b in zip(made, there, strict=True)]
        found.append((sum(parts) / len(parts)) ** 0.5)
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("added", [True, False])
def test_apart(added: bool, form: Any, dtype: torch.dtype) -> None:
    draw = Draw(dtype)
    rebuilt, seen, bias = draw(2, N, D), draw(2, N, D), draw(D) if added else None
    for low in (1, -1):
        seen[1, 2, 3], rebuilt[0, 4, 6] = 900.0 * low, 30.0 * low  # a massive entry, and a large difference
        whole = rebuilt.double() + (0 if bias is None else bias.double())
        rows = rows_apart(whole, seen.double()).view(2, N)
        same(form.apart(rebuilt, bias, seen), rows.max(), dtype)
        same(form.apart(rebuilt, None if bias is None else bias.expand(2, 1, D), seen, 2), rows.amax(1), dtype)
    assert float(form.apart(seen, None, seen)) == 0
    nothing = torch.zeros(2, D, dtype=dtype)
    assert float(form.apart(nothing, None, nothing)) == 0, "a row of zeros that is rebuilt as zeros"
    rebuilt[1, 0, 0] = float("nan")
    assert bool(form.apart(rebuilt, bias, seen).isnan())


@pytest.mark.parametrize("centred", [True, False])
def test_normed(centred: bool, dtype: torch.dtype) -> None:
    """A norm of its own for every layer: torch's, where the mean is taken off."""
    draw = Draw(dtype)
    u, gamma, beta, eps = draw(2, 3, N, D), draw(2, D), draw(2, D), torch.tensor([1e-3, 0.5], dtype=dtype)
    made, reciprocal = plain.normed(u, gamma, beta, eps, centred)
    assert reciprocal.shape == (2, 3, N, 1)
    for layer in range(2):
        z, g, b = u[layer].double(), gamma[layer].double(), beta[layer].double()
        if centred:
            expected = torch.nn.functional.layer_norm(z, (D,), g, b, float(eps[layer]))
            z = z - z.mean(-1, keepdim=True)
        else:
            expected = torch.nn.functional.rms_norm(z, (D,), g, float(eps[layer])) + b
        same(made[layer], expected, dtype)
        same(reciprocal[layer], (z.pow(2).mean(-1, keepdim=True) + eps[layer].double()).rsqrt(), dtype)


@pytest.mark.parametrize("n", [1, 5, cpu.SMALL, cpu.SMALL + 1])
@pytest.mark.parametrize("batch", [(), (1,), (3,)])
def test_running(
    n: int, batch: tuple[int, ...], form: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = Draw(dtype)(4, *batch, n, n) / n
    right, expected = layers[0].double(), []
    for layer in layers:
        right = layer.double() if not expected else layer.double() @ right
        expected.append(right)
    monkeypatch.setattr(kernels, "_module", lambda device_type: form)
    with torch.no_grad():
        made, sizes = kernels.running(layers)
    same(made, torch.stack(expected), dtype)
    same(sizes, torch.stack(expected).abs().amax((-1, -2)), dtype)


@pytest.mark.parametrize("times", [1, 8])
@pytest.mark.parametrize(
    ("sources", "each", "chunk"), [(0, 3, 7), (1, 5, None), (10, 3, 7), (10, 3, 1), (10, 0, 4), (7, 10**9, None)]
)
def test_tiles_cover_every_source_once(sources: int, each: int, chunk: int | None, times: int) -> None:
    """In order, of about one size, and none larger than a tile may be, unless it is one source."""
    with budget.setting(chunk=chunk):
        room = budget.tile_elements(torch.device("cpu"), times)
        found = list(budget.tiles(sources, each, torch.device("cpu"), times=times))
    assert room == (chunk or times * budget.AUTOMATIC["cpu"])
    assert [i for some in found for i in range(some.start, some.stop)] == list(range(sources))
    sizes = [some.stop - some.start for some in found]
    assert max(sizes) - min(sizes) <= 1
    assert all(size == 1 or size * each <= room for size in sizes)
    fewer = len(sizes) - 1
    assert not fewer or -(-sources // fewer) * max(1, each) > room  # one tile less would not do


def test_the_compiled_loops_are_used_for_float32_without_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels._module("cpu") is plain:
        pytest.skip("needs a C compiler, and MIXLENS_KERNELS not set to plain")
    narrow, wide, half = (torch.zeros(2, dtype=one) for one in (torch.float32, torch.float64, torch.bfloat16))
    with torch.no_grad():
        assert kernels.fused("inner", narrow) is cpu
        assert kernels.fused("inner", wide) is None
        assert kernels.fused("turned", narrow) is None  # it has none for a CPU
        assert kernels._form("lengths", wide) is cpu.lengths
        assert kernels._form("lengths", half) is plain.lengths
        assert kernels._form("gram", narrow) is plain.gram
    monkeypatch.setattr(
        kernels, "_module", lambda kind: SimpleNamespace(inner="of double", TYPES={"inner": (wide.dtype,)})
    )
    with torch.no_grad():
        assert (kernels._form("inner", narrow), kernels._form("inner", wide)) == (plain.inner, "of double")
    assert kernels.used(torch.device("cuda")) == "triton"
    monkeypatch.undo()
    with torch.enable_grad():
        assert kernels.fused("inner", narrow) is None
        assert kernels._form("lengths", narrow) is plain.lengths


def test_a_loop_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compiled loop in turn, off by a little more than it may be, in its first or in its second result."""
    if kernels._module("cpu") is plain:
        pytest.skip("needs a C compiler, and MIXLENS_KERNELS not set to plain")
    assert kernels.disagreements(cpu, "cpu") == []
    for name in COMPILED:
        right = getattr(cpu, name)

        def wrong(*given: Any, right: Any = right) -> Any:
            made = right(*given)
            return (made[0], made[1] * (1 + 1e-4)) if isinstance(made, tuple) else made * (1 + 1e-4)

        with monkeypatch.context() as patched:
            patched.setattr(cpu, name, wrong)
            found = kernels.disagreements(cpu, "cpu")
        assert {one.split(",")[0].split()[0] for one in found} == {name}
        assert {dtype for dtype in ("float32", "float64") if any(dtype in one for one in found)} == {
            "float32",
            "float64",
        }


@pytest.mark.parametrize("name", ["gram", "apart", "running"])
def test_a_loop_that_reads_float64_as_float32_is_found(name: str) -> None:
    """Its sums are those of float64, so that only numbers with more digits than float32 has show what it does."""

    def coarse(*given: Any) -> Any:
        return getattr(plain, name)(*(one.float().double() if isinstance(one, Tensor) else one for one in given))

    found = kernels.disagreements(SimpleNamespace(**{name: coarse}), "cpu")
    assert found
    assert all(one.startswith(name) and "float64" in one for one in found)


@pytest.mark.parametrize("found", [True, False], ids=["torch's OpenMP", "no OpenMP"])
@pytest.mark.parametrize("threads", [1, 2])
def test_several_threads_need_the_openmp_library_of_torch(
    found: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second pool of threads is never made: without torch's own library the loops run on one thread, or not at
    all."""
    if kernels._module("cpu") is plain:
        pytest.skip("needs a C compiler, and MIXLENS_KERNELS not set to plain")
    monkeypatch.setattr(cpu, "_openmp_of_torch", cpu._openmp_of_torch if found else lambda: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    cpu.library.cache_clear()
    try:
        assert (cpu.library() is not None) == (threads == 1 or (found and cpu._openmp_of_torch() is not None))
    finally:
        cpu.library.cache_clear()


def test_the_loops_are_built_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the user's own cache, whole or not at all; what is there is taken, and another source gets another file."""
    if kernels._module("cpu") is plain:
        pytest.skip("needs a C compiler, and MIXLENS_KERNELS not set to plain")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder, built = tmp_path / "mixlens", []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *given, **more: built.append(1) or run(*given, **more))
    try:
        for _ in range(2):
            cpu.library.cache_clear()
            assert cpu.library() is not None
        assert len(built) == 1
        (kept,) = folder.iterdir()
        assert re.fullmatch(r"loops-[0-9a-f]{24}-[0-9a-f]{24}\.so", kept.name)
        assert folder.stat().st_mode & 0o777 == 0o700
        other = tmp_path / "cpu.c"
        other.write_text(cpu.SOURCE.read_text() + "/* another */\n")
        monkeypatch.setattr(cpu, "SOURCE", other)
        cpu.library.cache_clear()
        assert cpu.library() is not None
        assert len(built) == len(list(folder.iterdir())) == 2
    finally:
        cpu.library.cache_clear()


def test_a_build_is_for_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the processor can do is part of a build's name: a cache on a shared disk serves several machines."""
    told = {
        "x86": "vendor_id: a\nflags\t: sse avx\nbugs: b\n",
        "arm": "BogoMIPS: 2\nFeatures\t: fp asimd\n",
        "none": "a: b\n",
    }
    line = {"x86": "flags\t: sse avx", "arm": "Features\t: fp asimd", "none": ""}
    for kind, text in told.items():
        monkeypatch.setattr(Path, "read_text", lambda self, text=text: text)
        assert cpu._processor() == platform.machine() + line[kind]

    def missing(self: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert cpu._processor() == platform.machine() + platform.processor()
    assert cpu._openmp_of_torch() is None
