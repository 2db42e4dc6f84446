"""One model in several threads, several models on one stock model or configuration, a trace inside a trace.

Threads switch as often as the interpreter allows. Every call gives the numbers of a call alone, and the stock model is
left as it came.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers
from conftest import CONFIGURATIONS, hf_model, ids, randomise

import mixlens

NAMES = ["value_zeroing", "alti", "globenc"]


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(*jobs: Callable[[], Any], times: int = 1) -> list[Any]:
    """Each job in a thread of its own, all started together, `times` over; what they return. An error in one is raised
    here."""
    results: list[Any] = []
    errors: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], Any]) -> None:
        try:
            start.wait()
            for _ in range(times):
                results.append(job())
        except BaseException as error:  # raised again below, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def maps(lens: Any, n: int) -> dict[str, torch.Tensor]:
    return {name: made.scores for name, made in mixlens.mix(lens.trace(input_ids=ids(n)), NAMES).items()}


def assert_same(made: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, scores in expected.items():
        torch.testing.assert_close(made[name], scores, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("case", ["bert", "llama", "gpt_neo", "albert"])
def test_one_model_in_several_threads(case: str) -> None:
    model = copy.deepcopy(hf_model(case))
    lens, before = mixlens.load(model), model.config._attn_implementation
    expected = {n: maps(lens, n) for n in (5, 6, 7)}
    made = at_once(*(lambda n=n: (n, maps(lens, n)) for n in expected), times=8)
    assert len(made) == 24
    for n, scores in made:
        assert_same(scores, expected[n])
    assert model.config._attn_implementation == before
    assert (
        not any(module._forward_hooks or module._forward_pre_hooks for module in model.encoder.modules())
        if case == "bert"
        else True
    )


@pytest.mark.parametrize("method", ["attcat", "deeplift", "partial_lrp", "hta_layer", "integrated_gradients"])
def test_attributions_beside_maps(method: str) -> None:
    model = copy.deepcopy(hf_model("bert", head="AutoModelForSequenceClassification"))
    lens = mixlens.load(model)
    expected, scores = maps(lens, 6), mixlens.attribute(lens.trace(input_ids=ids(7)), method).scores
    done = at_once(
        lambda: assert_same(maps(lens, 6), expected),
        lambda: torch.testing.assert_close(
            mixlens.attribute(lens.trace(input_ids=ids(7)), method).scores, scores, rtol=1e-9, atol=1e-12
        ),
        times=4,
    )
    assert len(done) == 8
    assert all(weights.requires_grad for weights in model.parameters())


@pytest.mark.parametrize("shared", ["the model", "the configuration"])
def test_two_models_on_one_stock_model_or_one_configuration(shared: str) -> None:
    first = copy.deepcopy(hf_model("llama"))
    second = first
    if shared == "the configuration":
        second = transformers.AutoModel.from_config(first.config)
        second.config = first.config
        for module in second.modules():
            if hasattr(module, "config"):
                module.config = first.config
        randomise(second, seed=3)
        second = second.to(torch.float64).eval()
    before = first.config._attn_implementation
    lenses = [mixlens.load(first), mixlens.load(second)]
    expected = [maps(lens, 6) for lens in lenses]
    pairs = list(zip(lenses, expected, strict=True))
    done = at_once(
        *(lambda lens=lens, right=right: assert_same(maps(lens, 6), right) for lens, right in pairs), times=8
    )
    assert len(done) == 16
    assert first.config._attn_implementation == second.config._attn_implementation == before


def test_a_user_who_calls_the_stock_model_meanwhile() -> None:
    model = copy.deepcopy(hf_model("llama", head="AutoModelForCausalLM"))
    lens, given = mixlens.load(model), torch.tensor([ids(8)])
    with torch.no_grad():
        logits = model(given).logits
    expected = maps(lens, 6)

    def call() -> None:
        with torch.no_grad():
            torch.testing.assert_close(model(given).logits, logits, rtol=1e-9, atol=1e-9)

    assert len(at_once(lambda: assert_same(maps(lens, 6), expected), call, times=8)) == 16


@pytest.mark.parametrize("case", ["bert", "llama", "gpt_neo"])
@pytest.mark.parametrize("inner", ["trace", "mix", "attribute", "rerun"])
def test_a_trace_inside_a_trace(case: str, inner: str) -> None:
    """A user's hook asks mixlens about another text while the model runs."""
    model = copy.deepcopy(hf_model(case))
    lens, seen = mixlens.load(model), [1]  # the hook sleeps until it is empty; it is there all the time
    other = lens.trace(input_ids=ids(5))

    def ask(module: torch.nn.Module, args: Any, output: Any) -> None:
        if seen:
            return
        seen.append(1)
        if inner == "trace":
            assert_same(maps(lens, 4), inside)
        elif inner == "mix":
            torch.testing.assert_close(lens.mix(input_ids=ids(4), name="alti").scores, inside["alti"])
        elif inner == "attribute":
            mixlens.attribute(lens.trace(input_ids=ids(4)), "attention_rollout")
        else:
            torch.testing.assert_close(lens.rerun(other, 1, other.layers[1].input), again)

    handle = lens.parts[1].mlp_up.register_forward_hook(ask)
    expected, inside = maps(lens, 7), maps(lens, 4)
    again = lens.rerun(other, 1, other.layers[1].input)
    seen.clear()
    assert_same(maps(lens, 7), expected)
    assert seen
    handle.remove()


def test_loading_beside_mixing() -> None:
    """A second load of another model forgets nothing that the first one uses."""
    lens = mixlens.load(copy.deepcopy(hf_model("bert")))
    expected = maps(lens, 6)
    other = copy.deepcopy(hf_model("gpt2"))
    assert len(at_once(lambda: assert_same(maps(lens, 6), expected), lambda: mixlens.load(other), times=5)) == 10


def test_every_family_is_left_as_it_came_by_two_threads() -> None:
    for case in CONFIGURATIONS:
        model = copy.deepcopy(hf_model(case))
        before = model.config._attn_implementation
        lens = mixlens.load(model)
        at_once(lambda lens=lens: maps(lens, 5), lambda lens=lens: maps(lens, 6))
        assert model.config._attn_implementation == before, case
