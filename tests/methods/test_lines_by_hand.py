"""Lines from a baseline to a text, on functions whose integrals are known: Integrated Gradients and conductance."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mixlens.base.errors import InputError
from mixlens.methods import _points

integrated: Any = importlib.import_module("mixlens.methods.integrated")
conductance: Any = importlib.import_module("mixlens.methods.conductance")

Told = list[tuple[int, int, str]]


def asked(function: Callable[[Tensor], Tensor], *, limit: int | None = None, layers: int = 3) -> Any:
    """A question about a model whose number is `function` of what stands at a place; layer l gets 2^l times that."""
    runs: list[tuple[Any, int]] = []

    def run_attached(inputs: dict[str, Any], *, place: Any, value: Tensor, compare: bool) -> Any:
        assert compare == (len(value) not in {count for _, count in runs})  # of each size the first
        assert {key: tuple(given.shape) for key, given in inputs.items() if isinstance(given, Tensor)} == {
            "ids": (len(value), 2)
        }
        runs.append((place, len(value)))
        hidden = [value]
        for _ in range(layers):
            hidden.append(hidden[-1] * 2)
        return SimpleNamespace(output=function(hidden[-1] / 2**layers), inputs=hidden)

    inputs = {"ids": torch.zeros(1, 2), "use_cache": False}
    model = SimpleNamespace(
        device=torch.device("cpu"), batch_limit=limit, run_attached=run_attached, inputs=lambda traces: inputs
    )
    return SimpleNamespace(
        model=model,
        trace=type("Trace", (), {"__len__": lambda self: 2, "layers": [None] * layers, "model": model})(),
        inputs=inputs,
        target=SimpleNamespace(of=lambda output: output),
        layer=None,
        query=1,
        runs=runs,
        compares=lambda count: count not in {before for _, before in runs},
    )


def cubes(value: Tensor) -> Tensor:
    return value.pow(3).sum((-1, -2))


def squares(value: Tensor) -> Tensor:
    return value.pow(2).sum((-1, -2))


X = torch.tensor([[[1.0, 2.0], [-1.0, 3.0]]])
B = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    said: Told = []
    for module in (integrated, conductance):
        monkeypatch.setattr(module, "tell", lambda done, of, what: said.append((done, of, what)))
    return said


# --- Integrated Gradients -------------------------------------------------------------------------------------------------


def test_nodes_of_a_rule() -> None:
    points, weights = integrated.nodes(4, "riemann_right")
    assert (points.tolist(), weights.tolist()) == ([0.25, 0.5, 0.75, 1.0], [0.25] * 4)
    assert points.dtype == weights.dtype == torch.float64
    points, weights = integrated.nodes(2, "gauss_legendre")
    assert points.tolist() == pytest.approx([0.5 - 12**-0.5, 0.5 + 12**-0.5])
    assert weights.tolist() == pytest.approx([0.5, 0.5])
    with pytest.raises(InputError, match=r"^unknown rule 'riemann'\. .*riemann_right"):
        integrated.nodes(2, "riemann")


def test_points_of_a_line() -> None:
    question = asked(cubes)
    line = integrated.Line(question, "word", (X, B), "gauss_legendre", 3)
    assert (line.steps, line.planned, line.chunk, line.values) == (0, 0, 3, {})
    assert line.change.dtype == torch.float64
    between = line.at(torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64))
    assert between.dtype == torch.float32
    assert between.tolist() == [B[0].tolist(), [[0.5, 1.5], [-0.5, 1.5]], X[0].tolist()]
    assert [line.value(point) for point in (0.0, 1.0, 0.5, 0.5, 1.0)] == [1.0, 35.0, 6.75, 6.75, 35.0]
    assert question.runs == [("word", 1)] * 3  # each point once
    assert line.values == {0.0: 1.0, 1.0: 35.0, 0.5: 6.75}
    assert integrated.Line(asked(cubes, limit=5), 0, (X, B), "gauss_legendre", 3).chunk == 5


def test_the_ends_of_a_line_are_not_rounded() -> None:
    x, b = torch.full((1, 2, 2), 0.1, dtype=torch.float16), torch.full((1, 2, 2), 1000.0, dtype=torch.float16)
    line = integrated.Line(asked(lambda value: value.double().sum((-1, -2))), 0, (x, b), "gauss_legendre", 3)
    assert (line.value(0.0), line.value(1.0)) == (4000.0, 4 * float(x[0, 0, 0]))
    assert line.at(torch.tensor([1.0])).dtype == torch.float16


def test_gradients_come_chunk_by_chunk() -> None:
    question = asked(squares)
    line = integrated.Line(question, 1, (X, torch.zeros_like(X)), "gauss_legendre", 2)
    pairs = list(line.gradients(torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)))
    assert question.runs == [(1, 2), (1, 1)]
    gradients, values = torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs])
    assert (gradients.dtype, values.dtype, values.requires_grad) == (torch.float64, torch.float64, False)
    assert values.tolist() == [0.0, 15 / 4, 15.0]
    torch.testing.assert_close(gradients, torch.stack([0 * X[0], X[0], 2 * X[0]]).double())


def test_the_integral_of_a_piece(told: Told) -> None:
    """Of cubes from b = 0, token j gets sum_d x_jd^3 (end^3 - begin^3)."""
    line = integrated.Line(asked(cubes), 0, (X, torch.zeros_like(X)), "gauss_legendre", 2)
    piece = line.piece(0.25, 0.5, 5)
    assert (piece.begin, piece.end, line.steps, line.planned) == (0.25, 0.5, 5, 5)
    assert piece.shares.tolist() == pytest.approx([9 * (1 / 8 - 1 / 64), 26 * (1 / 8 - 1 / 64)], rel=1e-6)
    assert piece.gap < 1e-5
    assert told == [(2, 5, "points"), (4, 5, "points"), (5, 5, "points")]
    line.planned = 20
    line.piece(0.5, 1.0, 3)
    assert (line.steps, line.planned) == (8, 20)
    assert told[3:] == [(7, 20, "points"), (8, 20, "points")]


def test_the_gap_of_a_piece_is_the_largest_of_its_end_and_its_nodes(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = integrated.Line(asked(cubes), 0, (X, torch.zeros_like(X)), "gauss_legendre", 16)
    monkeypatch.setattr(line, "gap_at_nodes", lambda integral, values, begin: 0.25)
    line.values = {0.0: 0.0, 1.0: 35.0 + 2.0}  # the target ends higher than its gradients say
    assert line.piece(0.0, 1.0, 5).gap == pytest.approx(2.0, rel=1e-6)
    line.values = {0.0: 0.0, 1.0: 35.0}
    assert line.piece(0.0, 1.0, 5).gap == 0.25


def test_the_gap_of_a_rule_that_is_coarse(told: Told) -> None:
    """Right ends of squares from b = 0: the integral of 2 t is 1, two right ends make 1.5."""
    line = integrated.Line(asked(squares), 0, (X, torch.zeros_like(X)), "riemann_right", 16)
    piece = line.piece(0.0, 1.0, 2)
    assert piece.shares.tolist() == pytest.approx([1.5 * 5, 1.5 * 10])
    assert piece.gap == pytest.approx(7.5)
    half = line.piece(0.5, 1.0, 1)
    assert half.shares.tolist() == pytest.approx([5.0, 10.0])
    assert half.gap == pytest.approx(15 - 11.25)


def test_gaps_at_nodes(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    line = integrated.Line(asked(squares), 0, (X, B), "gauss_legendre", 16)
    line.values[0.25] = 2.0
    integral = np.array([1.0, 2.0, 3.0])
    assert line.gap_at_nodes(integral, np.array([3.0, 4.5, 4.0]), 0.25) == 1.0
    assert line.gap_at_nodes(integral, np.array([3.0, 6.0, 5.0]), 0.25) == 2.0
    seen: list[Any] = []

    def noted(*given: Any) -> float:
        seen.append(given)
        return 7.0

    monkeypatch.setattr(line, "gap_at_nodes", noted)
    assert [line.piece(0.0, 0.5, steps).gap for steps in (3, 50)] == [7.0, 7.0]  # the larger of the two gaps
    assert line.piece(0.0, 0.5, 51).gap < 1e-4
    assert len(seen) == 2
    integral, values, begin = seen[0]
    points, _ = integrated.nodes(3, "gauss_legendre")
    at_nodes = [float(squares(line.at(t[None] / 2))[0]) for t in points]
    np.testing.assert_allclose(values, at_nodes, rtol=1e-6)
    np.testing.assert_allclose(integral, np.array(at_nodes) - line.value(0.0), rtol=1e-5)
    assert begin == 0.0
    line.rule = "riemann_right"
    line.piece(0.0, 0.5, 3)
    assert len(seen) == 2


class Drawn(integrated.Line):
    """A line whose pieces have gaps that are said beforehand."""

    def __init__(self, gap: Callable[[float, float], float], values: tuple[float, float] = (0.0, 1.0)):
        super().__init__(asked(squares), 0, (X, B), "gauss_legendre", 4)
        self.gap, self.made, self.plans = gap, list[tuple[float, float, int]](), list[int]()
        self.values = dict(zip((0.0, 1.0), values, strict=True))

    def piece(self, begin: float, end: float, steps: int) -> integrated.Piece:
        self.made.append((begin, end, steps))
        self.plans.append(self.planned)
        self.steps += steps
        return integrated.Piece(begin, end, torch.tensor([end - begin, 2.0 * begin]), self.gap(begin, end))


def near_the_baseline(begin: float, end: float) -> float:
    return 1.0 if begin == 0.0 and end > 0.2 else 0.0


def gap_of_the_whole(gap: float, begin: float, end: float) -> float:
    return gap if end - begin == 1 else 0.0


def test_rough_pieces_are_halved() -> None:
    line = Drawn(near_the_baseline)
    shares = line.whole(0.01, 2000)
    halves = [(0.0, 0.5, 12), (0.5, 1.0, 12), (0.0, 0.25, 12), (0.25, 0.5, 12), (0.0, 0.125, 12), (0.125, 0.25, 12)]
    assert line.made == [(0.0, 1.0, 50), *halves]
    assert line.plans == [0, 74, 74, 98, 98, 122, 122]
    assert shares.tolist() == [1.0, 2 * (0.5 + 0.25 + 0.125)]


@pytest.mark.parametrize(
    ("most", "first", "made"),
    [
        (74, 50, [50, 12, 12]),
        (73, 50, [50]),
        (32, 8, [8, 12, 12]),
        (5, 50, [5]),
        (1, 50, [1]),
        (15, 5, [5]),
        (30, 6, [6, 12, 12]),
    ],
)
def test_no_more_points_than_are_allowed(most: int, first: int, made: list[int]) -> None:
    line = Drawn(near_the_baseline)
    line.whole(0.01, most, first)
    assert [steps for _, _, steps in line.made] == made


def test_when_a_line_is_close_enough() -> None:
    for gap, count in ((0.02, 1), (0.021, 3)):
        line = Drawn(partial(gap_of_the_whole, gap), (1.0, -1.0))
        line.whole(0.01, 2000)
        assert len(line.made) == count
    line = Drawn(lambda begin, end: 0.6 if end - begin == 1 else 0.3 if end - begin == 0.5 else 0.0)
    line.whole(0.5, 2000)  # two gaps of 0.3 are too much together
    assert len(line.made) == 5
    line = Drawn(lambda begin, end: 1.0 if end == 1.0 else 0.25)
    line.whole(0.01, 50 + 4 * 12)
    assert line.made[3:] == [(0.5, 0.75, 12), (0.75, 1.0, 12)]  # the roughest first


def test_when_no_piece_can_be_smaller() -> None:
    line, eps = Drawn(near_the_baseline, (-8.0, 1.0)), torch.finfo(torch.float32).eps

    def fine(begin: float, end: float, gap: float) -> bool:
        return line.is_fine(integrated.Piece(begin, end, torch.zeros(1), gap))

    assert fine(0.0, 0.5, 32 * eps)
    assert not fine(0.0, 0.5, 33 * eps)
    assert fine(0.5, 0.5 + eps / 4, 1.0)
    assert not fine(0.5, 0.5 + eps / 2, 1.0)
    rough = Drawn(lambda begin, end: 4 * eps * 0.9, (0.0, 1.0))
    rough.whole(1e-12, 2000)
    assert len(rough.made) == 1


def with_ends(monkeypatch: pytest.MonkeyPatch, module: Any) -> list[Any]:
    seen: list[Any] = []

    def ends_of(*given: Any) -> _points.Ends:
        seen.append(given)
        return _points.Ends(0, X, torch.zeros_like(X), "zeros")

    monkeypatch.setattr(module, "ends_of", ends_of)
    return seen


def test_integrated_gradients_and_what_they_tell(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, question = with_ends(monkeypatch, integrated), asked(cubes)
    scores, info = integrated.integrated_gradients(
        question, steps=2, rule="riemann_right", embedding="sum", baseline="pad"
    )
    assert seen == [(question, "sum", "pad", None)]
    factor = 3 * (1 / 4 + 1) / 2
    assert scores.dtype == torch.float32
    assert scores.tolist() == pytest.approx([9 * factor, 26 * factor])
    assert info["completeness"] == pytest.approx({"sum": 35 * factor, "expected": 35.0, "relative_gap": factor - 1})
    del info["completeness"]
    assert info == {
        "baseline": "zeros",
        "steps": 2,
        "difference": 35.0,
        "completeness_gap": pytest.approx(35 * (factor - 1)),
    }
    scores, info = integrated.integrated_gradients(asked(lambda value: -cubes(value)))
    assert (scores.tolist(), info["steps"]) == (pytest.approx([-9.0, -26.0], rel=1e-5), 50)
    scores, _ = integrated.integrated_gradients(asked(lambda value: -cubes(value)), absolute=True)
    assert scores.tolist() == pytest.approx([9.0, 26.0], rel=1e-5)
    last = asked(cubes)
    last.layer = 3
    with pytest.raises(
        InputError, match=r"^integrated gradients need a layer behind them: layer must be less than the number"
    ):
        integrated.integrated_gradients(last)
    for options in ({"steps": 0}, {"chunk": 0}, {"most_steps": 0}, {"tolerance": 0.0}, {"rule": "x"}):
        with pytest.raises(InputError, match=next(iter(options))):
            integrated.refuse_options(
                **{"rule": "gauss_legendre", "steps": 1, "chunk": 1, "tolerance": 0.1, "most_steps": 1} | options
            )


# --- conductance ----------------------------------------------------------------------------------------------------------


def hidden_line(
    function: Callable[[Tensor], Tensor] = squares, chunk: int = 2, layer: int = 1
) -> conductance.HiddenLine:
    return conductance.HiddenLine(asked(function), _points.Ends("word", X, B, "b"), layer, chunk)


def test_states_of_a_layer(told: Told) -> None:
    line = hidden_line()
    states = list(line.states([0.0, 0.5, 1.0]))
    assert line.question.runs == [("word", 2), ("word", 1)]
    assert told == [(2, 33, "points"), (3, 33, "points")]
    assert [state.value for state in states] == [1.0, 5.0, 15.0]
    assert line.values == {0.0: 1.0, 0.5: 5.0, 1.0: 15.0}
    for state, point in zip(states, (B, (X + B) / 2, X), strict=True):
        assert state.hidden.dtype == state.gradient.dtype == torch.float64
        torch.testing.assert_close(state.hidden, 2 * point[0].double())
        torch.testing.assert_close(state.gradient, point[0].double())  # d squares(h / 2) / d h
    line.planned = 1
    list(line.states([0.25]))
    assert (line.steps, told[-1]) == (4, (4, 4, "points"))


def test_pieces_of_a_hidden_line(told: Told) -> None:
    """Of squares the mean of two gradients is exact: a piece brings each token its own change."""
    flows = hidden_line().pieces(0.5, 1.0, 2)
    assert [(flow.begin, flow.end) for flow in flows] == [(0.5, 0.75), (0.75, 1.0)]
    points = [(B + t * (X - B))[0].double().pow(2).sum(-1) for t in (0.5, 0.75, 1.0)]
    for flow, low, high in zip(flows, points[:2], points[1:], strict=True):
        torch.testing.assert_close(flow.shares, high - low)
        assert flow.gap < 1e-6
    state = conductance.State
    first = (0.0, state(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 3.0], [5.0, 1.0]]), 2.0))
    last = (0.5, state(torch.tensor([[2.0, 4.0], [1.0, 0.0]]), torch.tensor([[3.0, 5.0], [1.0, 1.0]]), 30.0))
    made = conductance._flow(first, last)
    assert (made.begin, made.end, made.shares.tolist(), made.gap) == (0.0, 0.5, [18.0, 1.0], 9.0)


def flow(gap: float, begin: float = 0.0, end: float = 1.0) -> conductance.Flow:
    return conductance.Flow(begin, end, torch.tensor([end - begin]), gap)


def test_pieces_that_are_rough() -> None:
    line = hidden_line()
    line.values = {0.0: 5.0, 1.0: 1.0}
    assert line._rough([flow(0.25), flow(0.25)], 0.125) == []
    flows = [flow(0.5), flow(0.25), flow(0.0625)]
    assert line._rough(flows, 0.125) == flows[:2]  # 0.5 / 6 = 0.083 are allowed to each
    edge = [flow(0.125), flow(0.5)]
    assert line._rough(edge, 0.125) == edge[1:]
    line.values[0.5] = -1e7  # numbers of that size are known to within 4.77
    assert [one.gap for one in line._rough([flow(4.7), flow(4.8)], 0.125)] == [4.8]


class Cut(conductance.HiddenLine):
    """A line whose pieces are rough at one end."""

    def __init__(self, gap: Callable[[float, float], float]):
        super().__init__(asked(squares), _points.Ends(0, X, B, "b"), 0, 4)
        self.gap, self.cuts, self.plans = gap, list[tuple[float, float, int]](), list[int]()
        self.values = {0.0: 0.0, 1.0: 1.0}

    def pieces(self, begin: float, end: float, count: int) -> list[conductance.Flow]:
        self.cuts.append((begin, end, count))
        self.plans.append(self.planned)
        self.steps += count + 1
        points = [begin + (end - begin) * i / count for i in range(count + 1)]
        return [flow(self.gap(a, b), a, b) for a, b in pairwise(points)]


def test_rough_pieces_are_cut_up() -> None:
    def gap(begin: float, end: float) -> float:
        return 1.0 if begin in (0.0, 0.5) and end - begin == 1 / 32 else 0.0

    line = Cut(gap)
    assert line.whole(0.01, 2000).tolist() == pytest.approx([1.0])
    assert line.cuts == [(0.0, 1.0, 32), (0.0, 1 / 32, 8), (0.5, 17 / 32, 8)]
    assert (line.plans, line.steps) == ([33, 51, 51], 51)
    for most, count in ((51, 3), (50, 1)):
        line = Cut(gap)
        assert line.whole(0.01, most).tolist() == pytest.approx([1.0])
        assert len(line.cuts) == count


def test_conductance_and_what_it_tells(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, question = with_ends(monkeypatch, conductance), asked(squares)
    scores, info = conductance.layer_conductance(question, embedding="sum", baseline="pad", chunk=5)
    assert [given[1:] for given in seen] == [("sum", "pad")]
    assert (seen[0][0].trace, seen[0][0].target, seen[0][0].layer, seen[0][0].query) == (
        question.trace,
        question.target,
        None,
        1,
    )
    assert (scores.dtype, scores.tolist()) == (torch.float32, pytest.approx([5.0, 10.0], rel=1e-5))
    assert info["completeness"] == pytest.approx({"sum": 15.0, "expected": 15.0, "relative_gap": 0.0}, abs=1e-5)
    assert {key: value for key, value in info.items() if key != "completeness"} == {
        "baseline": "zeros",
        "at_layer": 1,
        "steps": 33,
    }
    assert question.runs == [(0, 5)] * 6 + [(0, 3)]
    question.layer = 0
    assert conductance.layer_conductance(question)[1]["at_layer"] == 0
    question.layer = 3
    with pytest.raises(InputError, match=r"^gradients of conductance need a layer behind them"):
        conductance.layer_conductance(question)
    for options in ({"chunk": 0}, {"most_steps": 0}, {"tolerance": 0.0}):
        with pytest.raises(InputError, match=f"^{next(iter(options))} must be"):
            conductance.layer_conductance(asked(squares), **options)
