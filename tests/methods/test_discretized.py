"""Discretised Integrated Gradients: the path and the sum written out number by number; what must hold of every path."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import ids, loaded
from hypothesis import given, settings
from hypothesis import strategies as st
from test_peers_gradients import embedded, gradient

from mixlens.base.errors import InputError
from mixlens.methods import _word_paths
from mixlens.scoring import attributions, completeness

HEAD = "AutoModelForSequenceClassification"
NAME = "discretized_integrated_gradients"
PAD = 0
pytestmark = pytest.mark.filterwarnings(
    "ignore::mixlens.scoring.completeness.IncompleteWarning"
)  # few steps miss their sum


def trace_of(case: str = "bert", n: int = 6) -> Any:
    return loaded(case, head=HEAD).trace(input_ids=ids(n))


# --- written out ------------------------------------------------------------------------------------------------------


def moved(a: list[float], p: list[float], b: list[float], steps: int) -> list[float]:
    """The anchor a, where it lies between p and b; else a step of the straight line."""
    return [
        a_d if min(p_d, b_d) <= a_d <= max(p_d, b_d) else p_d - (p_d - b_d) / steps
        for a_d, p_d, b_d in zip(a, p, b, strict=True)
    ]


def word_path(
    table: list[list[float]], word: int, blank: int, strategy: str, steps: int, count: int
) -> list[list[float]]:
    """The points from the baseline to a word, one number after the other."""
    b, points, seen = table[blank], [table[word]], [word]
    for _ in range(steps):
        last = seen[-1]
        others = [i for i in range(len(table)) if i != last]
        near = sorted(others, key=lambda i: math.dist(table[i], table[last]))[:count]
        costs = {}
        for i in (i for i in near if i != blank and i not in seen):
            made = moved(table[i], table[last], b, steps)
            inside = [min(u, v) <= a <= max(u, v) for a, u, v in zip(table[i], table[last], b, strict=True)]
            costs[i] = math.dist(table[i], made) if strategy == "greedy" else -sum(inside)
        best = min(costs, key=lambda i: costs[i], default=blank) if last != blank else blank
        seen.append(best)
        points.append(moved(table[best], points[-1], b, steps))
    return [b, *reversed(points)]


def summed(value: Any, path: torch.Tensor, rule: str) -> torch.Tensor:
    """[pos]: the gradients along a path [t pos d], each times a step."""
    slopes = [gradient(value, point) for point in path]
    total = torch.zeros(path.shape[1], dtype=torch.float64)
    for t in range(len(path) - 1):
        slope = {
            "riemann_left": slopes[t],
            "riemann_right": slopes[t + 1],
            "trapezoid": (slopes[t] + slopes[t + 1]) / 2,
        }[rule]
        total += (slope * (path[t + 1] - path[t])).sum(-1)
    return total


def written_out(trace: Any, strategy: str, rule: str, factor: int, steps: int, count: int) -> torch.Tensor:
    value, x = embedded(trace)
    table = trace.model.hf_model.get_input_embeddings().weight.detach().double().tolist()
    columns = [
        [x[j].tolist()] * (steps + 2) if trace.special[j] else word_path(table, word, PAD, strategy, steps, count)
        for j, word in enumerate(trace.input_ids)
    ]
    path = torch.tensor(columns, dtype=torch.float64).transpose(0, 1)
    for _ in range(factor):
        path = torch.stack(
            [half for t in range(len(path) - 1) for half in (path[t], (path[t] + path[t + 1]) / 2)] + [path[-1]]
        )
    return summed(value, path, rule)


@pytest.mark.parametrize("strategy", ["greedy", "maxcount"])
@pytest.mark.parametrize(
    ("case", "rule", "factor", "count"),
    [
        *(("bert", "riemann_left", 0, 12), ("gpt2", "trapezoid", 1, 12), ("llama", "riemann_right", 0, 12)),
        ("bert", "riemann_left", 0, 2),  # soon no word is left, and the path is at the baseline and stays there
    ],
)
def test_path_and_sum_written_out(case: str, strategy: str, rule: str, factor: int, count: int) -> None:
    trace = trace_of(case)
    options = {"steps": 5, "strategy": strategy, "rule": rule, "factor": factor}
    read = attributions.attribute(trace, NAME, baseline=PAD, neighbours=count, chunk=4, **options)
    torch.testing.assert_close(read.scores, written_out(trace, count=count, **options), rtol=1e-9, atol=1e-12)
    assert read.info["steps"] == 2**factor * 6 + (rule == "trapezoid")
    special = torch.tensor(trace.special)
    assert float(read.scores[special].abs().sum()) == 0


# --- what it is where the path is known -------------------------------------------------------------------------------


def test_where_every_other_word_is_the_baseline_the_path_is_one_straight_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right sum is then Integrated Gradients with the one point x, the left sum the gradient at the baseline times
    x - b."""
    trace = trace_of(n=5)
    value, x = embedded(trace)
    table = trace.model.hf_model.get_input_embeddings().weight
    same = table[PAD].expand_as(table).clone()
    same[list(trace.input_ids)] = x
    monkeypatch.setattr(table, "data", same)
    options: dict[str, Any] = {"baseline": PAD, "steps": 4, "neighbours": 96}
    right = attributions.attribute(trace, NAME, rule="riemann_right", **options)
    one = attributions.attribute(trace, "integrated_gradients", baseline=PAD, steps=1, rule="riemann_right")
    torch.testing.assert_close(right.scores, one.scores, rtol=1e-9, atol=1e-12)
    assert right.info["steps"] == 1
    assert right.info["difference"] == pytest.approx(one.info["difference"], abs=1e-12)
    b = torch.where(torch.tensor(trace.special)[:, None], x, table[PAD])
    left = attributions.attribute(trace, NAME, **options)
    torch.testing.assert_close(left.scores, (gradient(value, b) * (x - b)).sum(-1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", ["bert", "gpt2"])
def test_small_steps_add_up(case: str) -> None:
    """The trapezoid's error falls fourfold with every halving of small steps; from 3 to 5 halvings sixteenfold, here
    eightfold at least, as the first steps are large."""
    trace = trace_of(case)
    read = {
        f: attributions.attribute(trace, NAME, baseline=PAD, steps=4, neighbours=20, rule="trapezoid", factor=f)
        for f in (3, 5)
    }
    expected = attributions.attribute(trace, "integrated_gradients", baseline=PAD).info["difference"]
    assert read[5].info["difference"] == pytest.approx(expected, abs=1e-9)
    assert read[5].info["completeness_gap"] < read[3].info["completeness_gap"] / 8
    assert read[5].info["completeness"]["relative_gap"] < 0.01
    assert float(read[5].scores.sum()) == pytest.approx(expected, rel=0.01)


def test_a_foil_is_explained_as_by_integrated_gradients() -> None:
    trace = trace_of()
    aims: dict[str, Any] = {"target": 1, "foil": 0, "baseline": "zero"}
    read = attributions.attribute(trace, NAME, steps=4, neighbours=20, rule="trapezoid", factor=5, **aims)
    assert read.info["difference"] == pytest.approx(
        attributions.attribute(trace, "integrated_gradients", **aims).info["difference"], abs=1e-9
    )
    assert read.info["completeness"]["relative_gap"] < 0.01


def test_a_sum_that_is_missed_is_warned_of_with_what_to_do() -> None:
    with pytest.warns(completeness.IncompleteWarning, match="factor=3 or higher, with rule=trapezoid"):
        attributions.attribute(trace_of(), NAME, steps=1, neighbours=2)


# --- every path -------------------------------------------------------------------------------------------------------


def paths_in(table: torch.Tensor, **options: Any) -> _word_paths.WordPaths:
    stock = torch.nn.Embedding.from_pretrained(table)
    model: Any = SimpleNamespace(hf_model=SimpleNamespace(get_input_embeddings=lambda: stock), name="words")
    return _word_paths.WordPaths(
        _word_paths.Vocabulary(model), **{"strategy": "greedy", "steps": 3, "neighbours": 4, "blank": 0, **options}
    )


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    words=st.integers(2, 14),
    steps=st.integers(1, 6),
    neighbours=st.integers(1, 20),
    strategy=st.sampled_from(["greedy", "maxcount"]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_no_dimension_of_a_path_turns_back(
    seed: int, words: int, steps: int, neighbours: int, strategy: str, dtype: torch.dtype
) -> None:
    table = torch.randn(words, 5, generator=torch.Generator().manual_seed(seed)).to(dtype)
    paths = paths_in(table, strategy=strategy, steps=steps, neighbours=neighbours)
    own = torch.arange(words)
    x, b = table.double(), table[:1].double().expand(words, -1)
    points = _word_paths.halved(paths.points(x, b, own)).to(dtype)
    assert points.shape == (2 * (steps + 1) + 1, words, 5)
    assert torch.equal(points[0], b.to(dtype))
    assert torch.equal(points[-1], table)
    forward = (points[1:].double() - points[:-1].double()) * (x - b).sign()
    assert bool((forward >= 0).all())
    assert bool((points[:, 0] == table[0]).all())  # from the baseline to itself


@pytest.mark.parametrize("strategy", ["greedy", "maxcount"])
def test_a_table_that_is_held_gives_the_path_of_one_that_is_read_at_every_step(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = torch.randn(40, 6, generator=torch.Generator().manual_seed(3))
    x, b, own = table[5:20], table[:1].expand(15, -1), torch.arange(5, 20)
    seen: list[int] = []
    read = _word_paths.Vocabulary.vectors
    monkeypatch.setattr(
        _word_paths.Vocabulary, "vectors", lambda self, ids: (seen.append(ids.numel()), read(self, ids))[1]
    )
    held = paths_in(table, strategy=strategy).points(x, b, own)
    assert seen.count(40) == 1
    monkeypatch.setattr(_word_paths, "HELD", 0)
    again = paths_in(table, strategy=strategy).points(x, b, own)
    assert seen.count(40) == 1 + 3
    assert torch.equal(held, again)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_model_without_a_table_of_words_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of()
    monkeypatch.setattr(trace.model.hf_model, "get_input_embeddings", torch.nn.Identity)
    with pytest.raises(InputError, match=r"has no table of word embeddings.*Use integrated_gradients\.") as refusal:
        attributions.attribute(trace, NAME)
    assert "\n" not in str(refusal.value)


def test_special_tokens_stay_and_have_no_score() -> None:
    import mixlens

    trace = mixlens.load("sentiment").trace("A dull film.")
    read = attributions.attribute(trace, NAME, steps=2, neighbours=5)
    assert trace.special == (True, False, False, False, False, True)
    assert [float(score) == 0 for score in read.scores] == list(trace.special)
