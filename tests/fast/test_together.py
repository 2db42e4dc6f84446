"""Shortcuts change no number: layers scored together, one row alone, ranks without singular values, norms asked
once."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from conftest import CONFIGURATIONS, hf_model, ids, loaded, needs_fast

import mixlens
from mixlens import layer as mixlens_layer
from mixlens.fast import zeroing
from mixlens.scoring import maps as scoring_maps

CASES = list(CONFIGURATIONS)
STACKING = [name for name, method in scoring_maps.known().items() if method.stacks]


@pytest.mark.parametrize("case", CASES)
def test_attention_written_out_is_the_kernel_s(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for float32 on a GPU: the same hidden states, alone and in a padded batch."""
    lens, inputs = loaded(case), [ids(7), ids(4, seed=1)]
    expected = [trace.hidden_states for trace in lens.trace(input_ids=inputs)]
    monkeypatch.setattr(sys.modules["mixlens.model.seam"], "quicker_written_out", lambda query: True)
    for trace, hidden in zip(lens.trace(input_ids=inputs), expected, strict=True):
        torch.testing.assert_close(trace.hidden_states, hidden, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_layers_scored_at_once_are_the_layers_one_by_one(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lens = loaded(case)
    one, many = lens.trace(input_ids=ids(7)), lens.trace(input_ids=[ids(7), ids(4)])
    apart = [mixlens.mix(traces, STACKING) for traces in (one, many)]
    monkeypatch.setattr(sys.modules["mixlens.scoring.maps"], "together_at_once", lambda layer, depth: depth)
    together = [mixlens.mix(traces, STACKING) for traces in (one, many)]
    assert len(STACKING) >= 8
    pairs = [(apart[0], together[0]), *zip(apart[1], together[1], strict=True)]
    for a, b in pairs:
        for name in STACKING:
            torch.testing.assert_close(b[name].scores, a[name].scores, rtol=1e-10, atol=1e-12)
            assert b[name].info["gap"] == pytest.approx(a[name].info["gap"], abs=1e-12)
            if "mixing_ratio" in a[name].info:
                torch.testing.assert_close(
                    b[name].info["mixing_ratio"], a[name].info["mixing_ratio"], rtol=1e-10, atol=1e-12
                )


@needs_fast
@pytest.mark.parametrize(
    ("names", "at_once"),
    [("alti", 3), ("value_zeroing", 1), (["value_zeroing", "effective_attention"], 1), (["value_zeroing", "alti"], 3)],
)
def test_layers_are_one_block_only_where_a_method_takes_it(
    names: str | list[str], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that every method of a call scores one by one are not decomposed, and proven, a second time as one
    block."""
    maps, asked = sys.modules["mixlens.scoring.maps"], list[int]()
    trace = loaded("bert").trace(input_ids=ids(5))
    expected = mixlens.mix(trace, names)
    neighbours = maps.neighbours
    monkeypatch.setattr(maps, "together_at_once", lambda layer, depth: depth)
    monkeypatch.setattr(maps, "neighbours", lambda layers, most: asked.append(most) or neighbours(layers, most))
    made = mixlens.mix(trace, names)
    assert asked == [at_once]
    for one, other in zip(
        *([each] if isinstance(each, mixlens.Map) else each.values() for each in (made, expected)), strict=True
    ):
        torch.testing.assert_close(one.scores, other.scores, rtol=1e-10, atol=1e-12)  # the same sums in another order


@pytest.mark.parametrize("case", CASES)
def test_one_query_is_its_row_of_the_whole_map(case: str) -> None:
    trace = loaded(case).trace(input_ids=ids(6))
    whole = mixlens.mix(trace, "value_zeroing").scores
    loose = 1e-10 if case in ("bert", "gpt2", "distilbert", "electra") else 1e-5  # other norms round to float32 inside
    for query in (0, 3, -1):
        row = mixlens.mix(trace, "value_zeroing", query=query)
        assert row.info["options"]["query"] == query % 6
        torch.testing.assert_close(row.scores[:, query], whole[:, query], rtol=0, atol=loose)
        others = [i for i in range(6) if i != query % 6]
        assert not row.scores[:, others].any()


@pytest.mark.parametrize("case", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("lost", [0, 3])
def test_effective_attention_by_small_factorisations_is_that_by_singular_values(case: str, lost: int) -> None:
    """In float32 (quick) against float64 (singular values), also where a head's values do not span all its width."""
    stock = copy.deepcopy(hf_model(case, dtype=torch.float32))  # its weights are changed below
    exact = mixlens.load(stock, dtype="float64")
    for lens in (exact, quick := mixlens.load(stock, dtype="float32")):
        with torch.no_grad():
            for part in lens.parts:  # the last values of every head say nothing
                values = part.value.weight if case != "gpt2" else part.value.weight.T
                heads = (
                    lens.hf_model.config.num_key_value_heads
                    if case == "llama"
                    else lens.hf_model.config.num_attention_heads
                )
                width = values.shape[0] // (3 if case == "gpt2" else 1) // heads
                own = values[-heads * width :].view(heads, width, -1)
                own[:, width - lost :] = 0
                if part.value.bias is not None:
                    part.value.bias[-heads * width :].view(heads, width)[:, width - lost :] = 0
    for n in (3, 9, 20):
        a, b = (mixlens.mix(lens.trace(input_ids=ids(n)), "effective_attention") for lens in (quick, exact))
        assert torch.equal(a.info["rank"], b.info["rank"])
        assert int(a.info["rank"].max()) <= min(n, width - lost)
        torch.testing.assert_close(a.scores.double(), b.scores, rtol=0, atol=2e-4 if lost else 2e-5)


@needs_fast
def test_targets_that_take_nothing_are_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A causal model's earlier targets do not see a later source: half of the pairs are never computed."""
    rows = []
    whole = zeroing.without

    def counted(block: mixlens_layer.Block, sources: slice, tile: torch.Tensor, *, few: bool = False) -> torch.Tensor:
        rows.append(tile[..., 0].numel())
        return whole(block, sources, tile, few=few)

    monkeypatch.setattr(zeroing, "without", counted)
    lens, n = loaded("gpt2"), 16
    trace = lens.trace(input_ids=ids(n))
    expected = mixlens.mix(trace, "value_zeroing").scores
    rows.clear()
    made = mixlens.mix(trace, "value_zeroing", chunk=1)
    assert sum(rows) == len(lens.parts) * n * (n + 1) // 2
    torch.testing.assert_close(made.scores, expected, rtol=1e-9, atol=1e-12)
