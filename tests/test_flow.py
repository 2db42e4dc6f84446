"""Attention flow: against maximum flow by augmenting paths, written out; and sums over layers."""

from __future__ import annotations

import sys

import pytest
import torch
from conftest import ids, loaded
from test_aggregate import a_map

import mixlens
from mixlens.scoring import conventions
from mixlens.show import heading


def maximum_flow(layers: torch.Tensor, layer: int, query: int, key: int) -> float:
    """Ford and Fulkerson: while a path with room is left from (layer + 1, query) down to (0, key), send what fits."""
    n = layers.shape[-1]
    room: dict[tuple[tuple[int, int], tuple[int, int]], float] = {}
    for number in range(layer + 1):
        for i in range(n):
            for j in range(n):
                room[(number + 1, i), (number, j)] = float(layers[number, i, j])
                room[(number, j), (number + 1, i)] = 0.0
    start, end, sent = (layer + 1, query), (0, key), 0.0
    while True:
        paths = {start: [start]}
        queue = [start]
        while queue and end not in paths:
            here = queue.pop(0)
            for there in [(here[0] + step, i) for step in (-1, 1) for i in range(n)]:
                if there not in paths and room.get((here, there), 0.0) > 1e-13:
                    paths[there] = [*paths[here], there]
                    queue.append(there)
        if end not in paths:
            return sent
        steps = list(zip(paths[end], paths[end][1:], strict=False))
        most = min(room[step] for step in steps)
        for a, b in steps:
            room[a, b] -= most
            room[b, a] += most
        sent += most


def some_layers(depth: int, n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(depth, n, n, dtype=torch.float64, generator=generator), -1)


@pytest.mark.parametrize("name", ["abnar", "globenc", "toolkit"])
def test_flow_is_the_maximum_flow_to_each_input(name: str) -> None:
    given = some_layers(3, 4) * (3.0 if name != "abnar" else 1.0)
    used, layers = conventions.CONVENTIONS[name], given
    layers = layers + torch.eye(4, dtype=torch.float64) if used.residual else layers
    layers = layers / layers.sum(-1, keepdim=True) if used.normalize else layers
    made = a_map(given).flow(name)
    for layer in range(3):
        for i in range(4):
            row = torch.tensor([maximum_flow(layers, layer, i, j) for j in range(4)], dtype=torch.float64)
            torch.testing.assert_close(made.scores[layer, i], row / row.sum(), rtol=0, atol=1e-9)
    torch.testing.assert_close(made.scores[0], layers[0] / layers[0].sum(-1, keepdim=True))
    assert made.info["rollout"] == {
        "convention": name,
        "residual": used.residual,
        "normalize": used.normalize,
        "flow": True,
    }
    assert not torch.allclose(made.scores[-1], a_map(given).rollout(name).scores[-1], atol=1e-3)


def test_the_methods_own_convention_is_the_default() -> None:
    trace = loaded("bert").trace(input_ids=ids(5))
    attention = mixlens.mix(trace, "attention")
    assert torch.equal(attention.flow().scores, attention.flow("abnar").scores)
    torch.testing.assert_close(
        attention.flow("abnar", residual=False).scores[0], attention.flow("alti").scores[0], rtol=1e-12, atol=1e-15
    )
    assert "flow abnar" in heading.heading_line(attention.flow().info, "attention")


def test_one_position_is_its_row() -> None:
    scores = a_map(some_layers(3, 5))
    whole = scores.flow("abnar")
    for layer, query in ((-1, "t2"), (1, 4), (0, -1)):
        one = mixlens.flow(scores, "abnar", query=query, layer=layer)
        assert isinstance(one, mixlens.Attribution)
        place = one.info["query"]
        torch.testing.assert_close(
            one.scores, whole.scores[layer, place], rtol=1e-12, atol=0
        )  # float64, the same flows
        assert (one.info["layer"], one.info["query_token"]) == (layer % 3, f"t{place}")


def test_causal_maps_stay_causal_and_rows_sum_to_one() -> None:
    made = mixlens.mix(loaded("gpt2").trace(input_ids=ids(6)), "alti").flow()
    assert float(made.scores.triu(1).abs().max()) == 0
    torch.testing.assert_close(made.scores.sum(-1), torch.ones(3, 6, dtype=torch.float64))


def test_one_target_asks_for_one_flow_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every target of every layer, which takes minutes of a deep graph. Flows are counted, not timed."""
    import igraph

    asked, flow = [], igraph.Graph.maxflow_value
    monkeypatch.setattr(igraph.Graph, "maxflow_value", lambda *given: asked.append(given[1:3]) or flow(*given))
    one = mixlens.flow(a_map(some_layers(6, 8)), "abnar", query=3)
    assert asked == [(6 * 8 + 3, source) for source in range(8)]
    assert float(one.scores.sum()) == pytest.approx(1)
    asked.clear()
    a_map(some_layers(2, 3)).flow("abnar")
    assert len(asked) == 2 * 3 * 3


def test_what_cannot_flow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = a_map(some_layers(2, 3))
    with pytest.raises(mixlens.MixlensError, match="negative scores"):
        a_map(scores.scores - 0.5).flow("globenc")
    for used in (scores.rollout(), scores.flow(), scores.sum()):
        with pytest.raises(mixlens.MixlensError, match="already"):
            used.flow()
        with pytest.raises(mixlens.MixlensError, match="already"):
            used.rollout()
        with pytest.raises(mixlens.MixlensError, match="already"):
            used.sum()
    with pytest.raises(mixlens.MixlensError, match="layer 2 is out of range"):
        mixlens.flow(scores, query=0, layer=2)
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(mixlens.MixlensError, match=r"pip install .*\[flow\]'"):
        scores.flow()


def test_a_sum_adds_the_layers() -> None:
    scores = a_map(some_layers(3, 4))
    added = scores.sum()
    torch.testing.assert_close(added.scores, (scores.scores[0] + scores.scores[1] + scores.scores[2])[None])
    torch.testing.assert_close(added.readout(1).scores, added.scores[0, 1])
