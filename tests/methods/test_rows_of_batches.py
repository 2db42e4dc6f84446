"""A hook or a module that treats the rows of a batch differently: methods that run altered copies of a text in batches refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import QUICK
from torch import Tensor

import mixlens

BATCHED = [
    "blank_out",
    "smooth_grad",
    "gradient_shap",
    "context_cite",
    "shap",
    "lime",
    "integrated_gradients",
    "deeplift",
    "layer_conductance",
]
WORDS = "The plot was dull but the actors were wonderful."


def first_row(output: Tensor) -> Tensor:
    return torch.cat([output[:1] * 1.5, output[1:]])


def last_row(output: Tensor) -> Tensor:
    return torch.cat([output[:-1], output[-1:] * 1.5])


def against_the_others(output: Tensor) -> Tensor:
    return output - 0.5 * output.mean(0, keepdim=True)


Change = Callable[[Tensor], Tensor]
CHANGES = [first_row, last_row, against_the_others]


@pytest.fixture(scope="module")
def lens() -> mixlens.Model:
    return mixlens.load("sentiment")


@pytest.fixture
def hooked(lens: mixlens.Model) -> Iterator[Callable[[str, Change], None]]:
    """A function that lets a change act on what a module puts out, until the test ends."""
    handles: list[Any] = []

    def hook(path: str, change: Change) -> None:
        module = lens.hf_model.get_submodule(path)
        handles.append(module.register_forward_hook(lambda module, args, output: change(output)))

    yield hook
    for handle in handles:
        handle.remove()


def refused(lens: mixlens.Model, name: str) -> None:
    trace = lens.trace(WORDS)  # alone: nothing is wrong with it
    with pytest.raises(mixlens.MixlensError, match="rows of a batch") as refusal:
        mixlens.attribute(trace, name, **QUICK.get(name, {}))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", BATCHED)
def test_altered_copies_in_a_batch_are_compared_with_one_alone(
    lens: mixlens.Model, hooked: Callable[[str, Change], None], name: str, change: Change
) -> None:
    hooked("bert.encoder.layer.1.output.dense", change)
    refused(lens, name)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("blank_out", "bert.embeddings.word_embeddings"),  # its place is taken by the points of smooth_grad
        *(
            (name, path)
            for name in ("blank_out", "smooth_grad")
            for path in ("bert.embeddings.LayerNorm", "bert.pooler", "classifier")
        ),
    ],
)
def test_the_embeddings_and_the_head_are_compared_too(
    lens: mixlens.Model, hooked: Callable[[str, Change], None], name: str, path: str
) -> None:
    hooked(path, first_row)
    refused(lens, name)


@pytest.mark.parametrize("change", [first_row, last_row])  # copies of one text do not differ from their mean
@pytest.mark.parametrize("name", ["hta", "value_zeroing"])
def test_maps_by_copies_of_a_text(lens: mixlens.Model, hooked: Callable[[str, Change], None], name: str, change: Change) -> None:
    hooked("bert.encoder.layer.1.output.dense", change)
    trace = lens.trace("A dull plot.")
    with pytest.raises(mixlens.MixlensError):
        mixlens.mix(trace, name)


@pytest.mark.parametrize("change", CHANGES)
def test_several_texts_at_once(lens: mixlens.Model, hooked: Callable[[str, Change], None], change: Change) -> None:
    texts = [WORDS, "A dull plot.", "The actors were wonderful and the plot was not."]
    traces = lens.trace(texts)
    hooked("bert.encoder.layer.1.output.dense", change)
    for made in (
        lambda: lens.trace(texts),
        lambda: lens.mix(texts, "alti"),
        lambda: mixlens.attribute(traces, "grad_l2"),
        lambda: lens.outputs(traces),
    ):
        with pytest.raises(mixlens.MixlensError, match="rows of a batch"):
            made()
    assert len(lens.trace(texts, batch_size=1)) == 3  # each text alone is what the model does


def test_a_hook_that_does_the_same_to_every_row_is_no_reason_to_refuse(
    lens: mixlens.Model, hooked: Callable[[str, Change], None]
) -> None:
    """In half precision too, where the sums of a batch are rounded in another way."""
    hooked("bert.encoder.layer.1.output.dense", lambda output: output * 1.5)
    for name in ("blank_out", "smooth_grad", "integrated_gradients"):
        mixlens.attribute(lens.trace(WORDS), name, **QUICK.get(name, {}))
    half = mixlens.load("sentiment", dtype="bfloat16")
    half.trace([WORDS, "A dull plot.", "The actors were wonderful."])
    mixlens.attribute(half.trace(WORDS), "blank_out")


@pytest.mark.parametrize("change", [first_row, last_row])
def test_a_run_is_refused_by_the_first_batch_of_a_shard(
    lens: mixlens.Model, hooked: Callable[[str, Change], None], change: Change, tmp_path: Path
) -> None:
    """Later batches are not compared, so the first one may not be made row by row instead."""
    hooked("bert.encoder.layer.1.output.dense", change)
    texts = [WORDS, "A dull plot.", "The actors were wonderful.", "A film."]
    with pytest.raises(mixlens.MixlensError, match="rows of a batch"):
        mixlens.run(texts, out=tmp_path / "run", model=lens, methods=["alti"], progress=False)
