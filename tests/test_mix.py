"""`mix` and `attribute` as a door: what is refused, what a method of one's own may give, and whether scores have a
sign."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import hf_model, ids, loaded

import mixlens
from mixlens.scoring import registry

CLASSIFIER = "AutoModelForSequenceClassification"


@pytest.fixture
def own() -> Iterator[Any]:
    """Registers a map method for one test."""
    yield lambda function, **facts: mixlens.mixing(paper="mine", rollout="alti", **facts)(function)
    registry.METHODS.pop("mine", None)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (3, {}, "a method is a name, or a list of names, not 3."),
        ([], {}, "no method was asked for."),
        ("altii", {}, "unknown method 'altii'. Did you mean 'alti'? `mixlens methods` lists all."),
        ("alti", {"chunk": 0}, "chunk is a number of elements, at least 1, not 0."),
        ("alti", {"variant": "mine"}, "'alti' has no variant 'mine'. Known: paper, released, released_2022."),
        ("alti", {"precision": "tf32"}, "'alti' has no option 'precision'. Known: variant."),
        ("value_zeroing", {"standardize": 1}, "'standardize' of 'value_zeroing' is of type bool, not int."),
    ],
)
def test_calls_that_are_refused(name: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(mixlens.MixlensError) as error:
        mixlens.mix(loaded("bert").trace(input_ids=ids(4)), name, **options)
    assert str(error.value) == message


def test_an_attribution_is_no_map_and_a_text_no_trace() -> None:
    trace = loaded("bert").trace(input_ids=ids(4))
    for traces, name, message in (
        (trace, "deeplift", "'deeplift' explains a prediction, it makes no map"),
        (3, "alti", "mix takes a Trace or a list of traces, not int."),
        (
            ["a text"],
            "alti",
            "mix takes a Trace or a list of traces, as model.trace gives them; for a text: model.explain.",
        ),
    ):
        with pytest.raises(mixlens.MixlensError, match=message):
            mixlens.mix(traces, name)


@pytest.mark.parametrize("count", [1, 2])
def test_scores_of_another_shape_or_that_are_no_numbers_are_refused(own: Any, count: int) -> None:
    traces = loaded("bert").trace(input_ids=[ids(4)] * count)

    def mine(block: Any, *, wrong: str) -> torch.Tensor:
        scores = torch.ones_like(block.attention[..., 0, :, :])
        return scores[..., :2] if wrong == "shape" else scores.log().reciprocal()

    own(mine)
    with pytest.raises(mixlens.MixlensError, match=r"method 'mine' returned shape .* for a layer; it must be"):
        mixlens.mix(traces, "mine", wrong="shape")
    with pytest.raises(
        mixlens.MixlensError, match=r"'mine' gave a score that is not finite in layer 0\. No map is given."
    ):
        mixlens.mix(traces, "mine", wrong="infinite")


def test_what_a_method_hands_out_is_its_own_and_is_in_info(own: Any) -> None:
    """A tensor of the block is copied: who writes into a map changes no other result."""

    def mine(block: Any) -> tuple[torch.Tensor, dict[str, Any]]:
        return block.attention[..., 0, :, :], {"length": block.x.norm(dim=-1), "word": "same"}

    own(mine)
    trace = loaded("bert").trace(input_ids=ids(5))
    made = mixlens.mix(trace, "mine")
    expected = mixlens.mix(trace, "attention", head=0).scores
    torch.testing.assert_close(made.scores, expected)
    assert (made.info["length"].shape, made.info["word"]) == ((len(trace.layers), 5), "same")
    made.scores.zero_()
    torch.testing.assert_close(mixlens.mix(trace, "attention", head=0).scores, expected)


@pytest.mark.parametrize(
    ("name", "options", "signed"),
    [
        ("alti", {}, False),
        ("effective_attention", {}, True),
        ("grad_x_input", {}, True),
        ("grad_x_input", {"absolute": True}, False),
        ("grad_x_input", {"variant": "released"}, False),
        ("grad_l2", {}, False),
        ("smooth_grad", {"count": 2}, False),
        ("smooth_grad", {"count": 2, "times_input": True}, True),
        ("attcat", {"variant": "released"}, True),
        ("attention_x_grad", {"relu": True}, False),
        ("raw_attention", {}, False),
    ],
)
def test_info_says_whether_scores_have_a_sign(name: str, options: dict[str, Any], signed: bool) -> None:
    trace = mixlens.load(hf_model("bert", head=CLASSIFIER)).trace(input_ids=ids(6))
    found = mixlens.attribute(trace, name, **options)
    assert found.info["signed"] is signed
    assert signed or not bool((found.scores < 0).any())
    asked = {key: value for key, value in options.items() if key != "variant"}
    assert registry.any_method(name).is_signed(options.get("variant"), asked) is signed
