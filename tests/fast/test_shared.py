"""Calls on one trace share what was decomposed: the same numbers, proven each time, within a budget, one call at a
time."""

from __future__ import annotations

import copy
import gc
import threading
from typing import Any

import pytest
import torch
from conftest import hf_model, ids, loaded, needs_fast

import mixlens
from mixlens.base import errors
from mixlens.fast import block as fast_block
from mixlens.fast import shared
from mixlens.scoring import registry

NORMS = ["norm", "norm_residual", "norm_residual_ln", "globenc", "alti", "value_zeroing"]

pytestmark = needs_fast


@pytest.fixture
def blocks_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    numbers: list[int] = []
    begin = fast_block.Block.__init__

    def counted(self: fast_block.Block, *args: Any, **options: Any) -> None:
        numbers.append(1)
        begin(self, *args, **options)

    monkeypatch.setattr(fast_block.Block, "__init__", counted)
    return numbers


@pytest.mark.parametrize("case", ["bert", "gpt2", "llama", "gemma3_text"])
def test_maps_one_by_one_are_the_maps_of_one_call(case: str, blocks_made: list[int]) -> None:
    lens = mixlens.load(hf_model(case))
    expected = mixlens.mix(lens.trace(input_ids=ids(7)), NORMS)
    trace = lens.trace(input_ids=ids(7))
    blocks_made.clear()
    for _ in range(2):
        for name in NORMS:
            one = mixlens.mix(trace, name)
            # The same operations in other memory: sums may be in another order.
            torch.testing.assert_close(one.scores, expected[name].scores, rtol=1e-10, atol=1e-12)
            assert one.info["gap"] <= one.info["tolerance"]
    assert len(blocks_made) == len(lens.parts), "each layer is decomposed once"


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("change", ["weight", "bias", "norm"])
def test_a_model_that_changed_is_refused_at_the_next_call(change: str, counted: bool, dtype: str) -> None:
    """By a change that torch counts, such as an optimizer's step, and by one that it does not."""
    stock = copy.deepcopy(hf_model("bert")).to(getattr(torch, dtype))
    lens = mixlens.load(stock)
    trace = lens.trace(input_ids=ids(7))
    mixlens.mix(trace, "norm")
    output = stock.encoder.layer[1].attention.output
    changed = {"weight": output.dense.weight, "bias": output.dense.bias, "norm": output.LayerNorm.weight}[change]
    with torch.no_grad():
        changed.mul_(1.5) if counted else changed.data.mul_(1.5)
    with pytest.raises(errors.ModelError, match="No map is given"):
        mixlens.mix(trace, "norm_residual_ln")
    fresh = mixlens.mix(lens.trace(input_ids=ids(7)), "norm_residual_ln")
    exact = mixlens.mix(mixlens.load(copy.deepcopy(stock)).trace(input_ids=ids(7)), "norm_residual_ln")
    torch.testing.assert_close(fresh.scores, exact.scores, rtol=1e-6, atol=1e-6)  # half precision is scored in float32


@pytest.mark.parametrize("method", ["attention", "alti", "value_zeroing"])
def test_a_trace_that_was_written_into_is_refused_at_once(method: str) -> None:
    """These attention weights are the very tensor that the kept blocks hold."""
    trace = mixlens.load(hf_model("gptj")).trace(input_ids=ids(9))
    mixlens.mix(trace, method)
    trace.layers[1].weights[..., 0] = 0
    for _ in range(2):
        with pytest.raises(errors.ModelError, match="No map is given"):
            mixlens.mix(trace, method)


@pytest.mark.parametrize(("case", "name"), [("gptj", "weights"), ("gptj", "value"), ("bert", "value")])
@pytest.mark.parametrize("method", ["alti", "value_zeroing"])
def test_what_is_written_into_a_trace_uncounted_changes_no_kept_block(method: str, case: str, name: str) -> None:
    """Through numpy, whose writes torch does not count."""
    trace = mixlens.load(hf_model(case)).trace(input_ids=ids(9))
    scores = mixlens.mix(trace, method).scores
    getattr(trace.layers[1], name).detach().numpy()[..., 0] = 0
    torch.testing.assert_close(mixlens.mix(trace, method).scores, scores)


def test_blocks_go_with_their_trace_and_stay_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    lens = mixlens.load(hf_model("bert"))
    traces = [lens.trace(input_ids=ids(7, seed)) for seed in range(4)]
    for trace in traces:
        mixlens.mix(trace, "norm")
    assert len(lens.kept.blocks) == 4
    del trace, traces[0]
    gc.collect()
    assert len(lens.kept.blocks) == 3
    size = next(iter(lens.kept.blocks.values()))[1].size
    monkeypatch.setattr(shared, "BUDGET", 2 * size)
    mixlens.mix(traces[0], "alti")
    assert len(lens.kept.blocks) == 2
    monkeypatch.setattr(shared, "BUDGET", size - 1)
    assert shared.shared_blocks(lens.trace(input_ids=ids(7))) is None


def test_large_blocks_are_kept_from_the_second_call_on(monkeypatch: pytest.MonkeyPatch, blocks_made: list[int]) -> None:
    monkeypatch.setattr(shared, "AT_ONCE", 0)
    lens = mixlens.load(hf_model("bert"))
    trace = lens.trace(input_ids=ids(7))
    counts = []
    for name in NORMS[:4]:
        blocks_made.clear()
        mixlens.mix(trace, name)
        counts.append(len(blocks_made))
    assert counts == [3, 3, 0, 0]


def test_two_threads_on_one_trace_get_the_right_maps() -> None:
    trace = loaded("bert").trace(input_ids=ids(9))
    expected = {name: mixlens.mix(loaded("bert").trace(input_ids=ids(9)), name).scores for name in NORMS}
    wrong: list[str] = []

    def work(name: str) -> None:
        for _ in range(20):
            if not torch.allclose(mixlens.mix(trace, name).scores, expected[name], rtol=1e-10, atol=1e-12):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in NORMS[:4]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_a_user_does_to_a_map_does_not_reach_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what a method writes into its block."""
    known = dict(registry.METHODS)

    @mixlens.mixing(paper="none", rollout="alti", distribution=False)
    def raw(block: Any) -> torch.Tensor:
        """A view of what the block holds."""
        return block.attention[..., 0, :, :]

    @mixlens.mixing(paper="none", rollout="alti", distribution=False)
    def rude(block: Any) -> torch.Tensor:
        """Writes into what the block holds."""
        return block.attention.mul_(2).mean(-3)

    try:
        expected = mixlens.mix(loaded("bert").trace(input_ids=ids(7)), "alti").scores
        trace = loaded("bert").trace(input_ids=ids(7))
        mixlens.mix(trace, "raw").scores.mul_(5)
        torch.testing.assert_close(mixlens.mix(trace, "alti").scores, expected, rtol=1e-10, atol=1e-12)
        mixlens.mix(trace, "rude")
        torch.testing.assert_close(mixlens.mix(trace, "alti").scores, expected, rtol=1e-10, atol=1e-12)
    finally:
        for name in [name for name in registry.METHODS if name not in known]:
            del registry.METHODS[name]


def test_weights_whose_changes_torch_does_not_count_are_not_shared(blocks_made: list[int]) -> None:
    with torch.inference_mode():
        stock = copy.deepcopy(hf_model("bert"))
    lens = mixlens.load(stock)
    trace = lens.trace(input_ids=ids(7))
    mixlens.mix(trace, "norm")
    blocks_made.clear()
    mixlens.mix(trace, "norm")
    assert len(blocks_made) == len(lens.parts)
