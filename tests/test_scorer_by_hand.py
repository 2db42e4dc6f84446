"""The scorer with blocks and methods made by hand: numbers of layers, pieces when memory runs out, seconds, precision, shapes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mixlens.base.budget import settings
from mixlens.base.errors import MixlensError
from mixlens.methods._mixing import Method
from mixlens.scoring import scoring

CPU = torch.device("cpu")


def layer_of(n: int = 2, batch: int | None = None, device: Any = CPU) -> Any:
    shape = (n, 3) if batch is None else (batch, n, 3)
    return SimpleNamespace(input=SimpleNamespace(device=device, shape=shape))


def scorer_of(size: int = 1, **given: Any) -> scoring.Scorer:
    call = scoring.Call(
        given.pop("name", "alti"), None, given.pop("chunk", None), given.pop("precision", "float32"), given
    )
    return scoring.Scorer(call, size, ("a", "b"), SimpleNamespace(device=CPU, kept=SimpleNamespace()))  # type: ignore[arg-type]


def method_of(function: Any, **facts: Any) -> Method:
    return Method("alti", function, "p", ("paper",), "1", "alti", True, **facts)


def test_layers_are_numbered_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring.fast, "block_of", lambda layer, index=0, **options: (layer, index, options))
    monkeypatch.setattr(scoring, "without_batch", lambda layer: f"{layer} cut")
    scorer = scorer_of()
    one = scorer.blocks_of(["x"], 4)  # type: ignore[list-item]
    assert (one.several, one.singles) == (None, [("x", 4, {"scratch": scorer.scratch})])
    two = scorer.blocks_of(["x", "y"], 4)  # type: ignore[list-item]
    assert two.several == (["x", "y"], 4, {})
    assert two.singles == []
    assert two.of(method_of(None, stacks=True)) == [two.several]
    assert two.of(method_of(None)) == [("x cut", 4, {}), ("y cut", 5, {})]
    assert two.of(method_of(None)) is two.singles
    assert one.of(method_of(None, stacks=True)) is one.singles
    batch = scorer_of(size=2).blocks_of(["x", "y"], 0)  # type: ignore[list-item]
    assert batch.of(method_of(None)) == [("x", 0, {}), ("y", 1, {})]
    shared = SimpleNamespace(block=lambda layer, index, scratch: ("shared", layer, index, scratch))
    scorer.blocks = shared
    assert scorer.block("x", 3) == ("shared", "x", 3, scorer.scratch)  # type: ignore[arg-type]
    assert scorer.cut_batch(["x"]) == ["x cut"]  # type: ignore[list-item]
    assert scorer.cut_batch(["x", "y"]) == ["x", "y"]  # type: ignore[list-item]
    assert scorer_of(size=2).cut_batch(["x"]) == ["x"]  # type: ignore[list-item]


def test_all_layers_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "together_at_once", lambda layer, depth: 2)
    monkeypatch.setattr(scoring.Scorer, "computed", lambda self, layers, start, chunk: (list(layers), start, chunk))
    scorer = scorer_of(size=2, chunk=9)
    assert scorer.all_layers(["a", "b", "c", "d", "e"]) == [  # type: ignore[list-item]
        *((["a", "b"], 0, 9), (["c", "d"], 2, 9), (["e"], 4, 9)),
    ]
    assert scorer.scored(["a"], 3, 7) == (["a"], 3, 7)  # type: ignore[list-item]


def test_memory_that_runs_out_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    errors: list[Exception] = [MemoryError()]

    def scored(self: Any, layers: Any, start: int, chunk: int | None) -> Any:
        asked.append((len(layers), start, chunk))
        if errors:
            raise errors.pop()
        return start, {}, [("alti", torch.zeros(1), {})]

    monkeypatch.setattr(scoring.Scorer, "scored", scored)
    scorer = scorer_of(chunk=64)
    with pytest.warns(UserWarning, match=r"memory ran out in layer 3"):
        scorer.score([layer_of(), layer_of()], 3)
    assert asked == [(2, 3, 64), (1, 3, 4), (1, 4, 4)]
    assert len(scorer.results.scores["alti"]) == 2
    errors[:] = [RuntimeError("something else")]
    with pytest.raises(RuntimeError, match=r"^something else$"):
        scorer.score([layer_of()], 0)


def test_scores_and_identities_of_some_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Block(SimpleNamespace):
        @property
        def rebuilt(self) -> None:
            seen.append(("rebuilt", settings().chunk))

    block: Any = Block(x=torch.zeros(2, 3), identities={})
    monkeypatch.setattr(scoring.fast, "block_of", lambda layer, index, **options: block)

    def identities(several: Any, singles: Any) -> Any:
        seen.append(("identities", settings().chunk, several, singles))
        return {"parts": (torch.zeros(1), 1.0)}

    monkeypatch.setattr(scoring, "identities_of", identities)
    scorer = scorer_of()

    def function(given: Any, **options: Any) -> Any:
        seen.append(("scored", settings().chunk, given is block))
        return torch.arange(4.0).view(2, 2), {"ratio": torch.ones(2)}

    scorer.by_layer = {"alti": method_of(function)}
    start, told, scored = scorer.computed([layer_of()], 5, 7)
    assert (start, list(told)) == (5, ["parts"])
    name, scores, extras = scored[0]
    assert (name, scores.tolist(), extras["ratio"].tolist()) == ("alti", [[[[0.0, 1.0], [2.0, 3.0]]]], [[[1.0, 1.0]]])  # type: ignore[union-attr]
    assert seen == [("rebuilt", None), ("scored", 7, True), ("identities", 7, None, [block])]


def test_seconds_are_those_between_begin_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 10.5, 20.0, 20.25, 30.0, 32.0])
    monkeypatch.setattr(scoring.time, "perf_counter", lambda: next(clock))
    scorer = scorer_of()
    for _ in range(2):
        with scorer.timed("proof", [layer_of()]):
            pass
    assert scorer.seconds == {"proof": 0.75, "alti": 0.0}
    trace: Any = SimpleNamespace(model=SimpleNamespace(quantization=None))
    trace = type("Traced", (SimpleNamespace,), {"__len__": lambda self: 2})(model=trace.model)
    entry = method_of(lambda trace, **options: torch.zeros(3, 2, 2))
    scores, extra = scorer.whole("alti", entry, trace)
    assert (scores.shape, extra, scorer.seconds["alti"]) == ((3, 2, 2), {}, 2.0)
    monkeypatch.setattr(scoring.time, "perf_counter", lambda: 0.0)
    with pytest.raises(MixlensError, match=r"^method 'alti' returned shape \(3, 2, 1\); it must be \[layer, 2, 2\]\.$"):
        scorer.whole("alti", method_of(lambda trace, **options: torch.zeros(3, 2, 1)), trace)


def test_what_a_lower_precision_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU alone; measured once, against the same layer in float32."""
    exact = torch.tensor([[1.0, 3.0], [2.0, 2.0]])

    def function(block: Any, **options: Any) -> Any:
        return exact + (torch.tensor([[1.0, -1.0], [0.0, 0.0]]) if settings().precision == "tf32" else 0)

    asked: list[Any] = []

    def block_of(layers: Any) -> Any:
        asked.append(layers)
        return SimpleNamespace()

    monkeypatch.setattr(scoring.fast, "block_of", block_of)
    block: Any = SimpleNamespace(x=SimpleNamespace(device=torch.device("cuda")), layer="one")
    scorer = scorer_of(precision="tf32")
    scorer.by_layer = {"alti": method_of(function)}
    scores, _ = scorer.method_scores("alti", block)
    assert scores.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert scorer.errors == {"alti": 0.25}
    scorer.method_scores("alti", block)
    assert asked == ["one"]
    several: Any = SimpleNamespace(x=block.x, layer="one", layers=("one", "two"), several=True)
    other = scorer_of(precision="tf32")
    other.by_layer = scorer.by_layer
    other.method_scores("alti", several)
    assert asked[1:] == [("one", "two")]
    on_cpu: Any = SimpleNamespace(x=torch.zeros(1))
    plain = scorer_of(precision="tf32")
    plain.by_layer = scorer.by_layer
    assert plain.method_scores("alti", on_cpu)[0].tolist() == exact.tolist()
    full = scorer_of()
    full.by_layer = scorer.by_layer
    assert full.method_scores("alti", SimpleNamespace(x=block.x))[0].tolist() == exact.tolist()  # type: ignore[arg-type]
    assert (plain.errors, full.errors) == ({}, {})


def test_scores_that_are_not_finite_are_looked_for_where_a_sum_is_not() -> None:
    scorer = scorer_of()
    maps: Any = [{"alti": SimpleNamespace(scores=torch.tensor([[[1.0, torch.inf], [0.0, 0.0]]]))}]
    scorer._refuse_not_finite(maps, {"alti": 1.0})  # a finite sum needs no look
    for sums in ({"alti": torch.inf}, {}):
        with pytest.raises(MixlensError, match=r"not finite in layer 0"):
            scorer._refuse_not_finite(maps, sums)
    assert not scorer.replayable
    assert not scorer.of_heads("alti")
    assert scorer_of(name="attention", head="all").of_heads("attention")


def test_what_may_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that take several layers at once, in float32, on one GPU that is not timed."""
    monkeypatch.setattr(scoring, "is_spread", lambda network: network == "spread")

    def told(*stacks: bool, precision: str = "float32", device: str = "cuda", network: str = "whole") -> bool:
        scorer = scorer_of(precision=precision)
        scorer.call.chosen = {str(i): (method_of(None, stacks=one), {}) for i, one in enumerate(stacks)}
        scorer.model = SimpleNamespace(device=torch.device(device), hf_model=network)  # type: ignore[assignment]
        return scorer.replayable

    assert told(True, True)
    assert not told(True, False)
    assert not told(True, precision="tf32")
    assert not told(True, device="cpu")
    assert not told(True, network="spread")
    with scoring.setting(timing=True):
        assert not told(True)


def test_extras_go_to_the_cpu_in_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a GPU do."""
    from mixlens.scoring import scored_tensors

    monkeypatch.setattr(
        scored_tensors, "_shares_copy", lambda value, dtype: isinstance(value, torch.Tensor) and value.dtype == dtype
    )
    given: dict[str, Any] = {
        "a": {"x": torch.arange(6.0).view(2, 3), "n": torch.tensor([7])},
        "b": {"y": torch.tensor([8.0, 9.0]), "w": "word"},
    }
    extras: Any = {name: dict(entry) for name, entry in given.items()}
    assert scored_tensors.read_numbers(torch.tensor([1.0, 2.0]), torch.tensor([3.0]), extras) == [1.0, 2.0, 3.0]
    assert extras["a"]["x"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert (extras["a"]["n"].tolist(), extras["b"]["y"].tolist(), extras["b"]["w"]) == ([7], [8.0, 9.0], "word")


def test_a_method_of_a_whole_trace_knows_the_chunk() -> None:
    seen: list[Any] = []

    def function(trace: Any, **options: Any) -> Any:
        seen.append(settings().chunk)
        return torch.zeros(1, 2, 2)

    traced = type("Traced", (SimpleNamespace,), {"__len__": lambda self: 2})
    scorer_of(chunk=7).whole("alti", method_of(function), traced(model=SimpleNamespace(quantization=None)))
    assert seen == [7]
    assert settings().chunk != 7
