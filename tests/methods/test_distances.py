"""Value Zeroing by other distances, of plain and of standardised representations: the intervention, measured
literally."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import papers_written_out as slow
import pytest
import torch
from conftest import hf_model, ids, loaded
from scipy import stats
from torch import Tensor

import mixlens
from mixlens import layer as layers
from mixlens.base.errors import ModelError
from mixlens.fast import block
from mixlens.methods import value_zeroing


def spearman(moved: Tensor, still: Tensor) -> Any:
    return 1 - stats.spearmanr(moved.numpy(), still.numpy()).statistic


def cosine(moved: Tensor, still: Tensor) -> Any:
    """1 - cos in extended precision: in float64 a small distance would be rounding alone."""
    a, b = moved.numpy().astype(np.longdouble), still.numpy().astype(np.longdouble)
    return float(1 - (a @ b) / np.sqrt((a @ a) * (b @ b)))


LITERAL = {
    "cosine": cosine,
    "euclidean": lambda moved, still: (moved - still).pow(2).sum().sqrt(),
    "spearman": spearman,
}


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("distance", list(LITERAL))
@pytest.mark.parametrize("case", ["bert", "gpt2", "modernbert", "gpt_neo"])
def test_distances_are_those_of_the_intervention(case: str, distance: str, standardize: bool) -> None:
    trace = loaded(case).trace(input_ids=ids(5))
    with torch.no_grad():
        expected = slow.value_zeroing(trace, LITERAL[distance], standardize=standardize)
    made = mixlens.mix(trace, "value_zeroing", distance=distance, standardize=standardize)
    loose = 1e-9 if case in ("bert", "gpt2") else 1e-5  # the others round to float32 inside
    torch.testing.assert_close(made.scores, expected, rtol=0, atol=loose)
    assert made.info["options"] == {"distance": distance, "standardize": standardize, "query": None}


def test_tied_features_share_their_mean_rank() -> None:
    vectors = torch.randint(0, 4, (5, 3, 9), generator=torch.Generator().manual_seed(0)).double()
    expected = stats.rankdata(vectors.numpy(), axis=-1, method="average")
    np.testing.assert_allclose(value_zeroing.centred_ranks(vectors), expected - expected.mean(-1, keepdims=True))


@pytest.mark.parametrize("distance", list(LITERAL))
def test_standardised_over_the_sentences_own_tokens_in_any_batch(distance: str) -> None:
    """Padding has no share in mean and deviation; a single token is all itself."""
    for case in ("bert", "gpt2"):
        texts = [ids(5), ids(9, 1), ids(1, 2)]
        together = mixlens.mix(
            loaded(case).trace(input_ids=texts), "value_zeroing", distance=distance, standardize=True
        )
        for text, made in zip(texts, together, strict=True):
            alone = mixlens.mix(
                loaded(case).trace(input_ids=text), "value_zeroing", distance=distance, standardize=True
            )
            torch.testing.assert_close(made.scores, alone.scores, rtol=0, atol=1e-10)
            torch.testing.assert_close(made.scores.sum(-1), torch.ones(3, len(text), dtype=torch.float64))


def test_rounding_of_attention_is_that_of_logits_within_their_cap() -> None:
    """gemma2 caps its logits: what lies beyond the cap cannot be rounded by more than the cap is."""
    layer = loaded("gemma2").trace(input_ids=ids(6)).layers[0]
    assert layer.softcap == 2.0
    eps = torch.finfo(torch.float64).eps
    with torch.no_grad():
        ten = layers.Block(replace(layer, query=10 * layer.query))
        free = value_zeroing.rounding_of_attention(layers.Block(replace(layer, query=10 * layer.query, softcap=None)))
        capped = value_zeroing.rounding_of_attention(ten)
    assert float(free.max()) > 2 * eps
    torch.testing.assert_close(capped, free.clamp(max=2 * eps), rtol=0, atol=0)


@pytest.mark.parametrize(("dtype", "wrong"), [(torch.float64, 1e-5), (torch.float32, 0.05)])
def test_a_distance_that_is_not_the_modules_own_is_refused(
    dtype: torch.dtype, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64 a distance is held to more digits than in float32."""
    trace = loaded("bert", dtype=dtype).trace(input_ids=ids(7))
    mixlens.mix(trace, "value_zeroing", distance="euclidean")
    for one in (layers.Block, block.Block):
        right = one.moved_without_each
        monkeypatch.setattr(
            one, "moved_without_each", lambda *args, right=right, **kwargs: right(*args, **kwargs) * (1 + wrong)
        )
    with pytest.raises(ModelError, match="value_zeroing: relative gap"):
        mixlens.mix(trace, "value_zeroing", distance="euclidean")


@pytest.mark.parametrize("chunk", [1, 40, 10**6])
def test_no_module_is_called_on_no_position(chunk: int) -> None:
    """Of one early query of a causal model most sources are read by nobody."""
    model = mixlens.load(copy.deepcopy(hf_model("llama")))
    whole = mixlens.mix(model.trace(input_ids=ids(12)), "value_zeroing")
    sizes: list[int] = []
    for layer in model.hf_model.layers:
        layer.mlp.up_proj.register_forward_hook(lambda module, args, output: sizes.append(args[0].numel()))
    made = mixlens.mix(model.trace(input_ids=ids(12)), "value_zeroing", query=2, chunk=chunk)
    assert sizes
    assert min(sizes) > 0
    torch.testing.assert_close(made.scores[:, 2], whole.scores[:, 2], rtol=0, atol=1e-5)  # its norms round to float32
