"""The ways to a map: asked of the model or of a trace, one row or all, alone or in a batch, with what must be refused
in each."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from conftest import hf_model, ids, loaded
from torch.nn.functional import normalize

import mixlens
from mixlens import types

shares = partial(normalize, p=1.0, dim=-1)  # rows over the sum of their magnitudes


@pytest.mark.parametrize("case", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("query", [0, 2, -1])
def test_one_row_asked_of_the_model_is_the_row_of_the_trace(case: str, query: int) -> None:
    """`model.mix` of one input and of a list, each with one row: what `mixlens.mix` of the traces says."""
    model, texts = loaded(case), [ids(6), ids(4, 1), ids(9, 2)]
    expected = [mixlens.mix(model.trace(input_ids=text), "value_zeroing", query=query) for text in texts]
    alone = [model.mix(input_ids=text, name="value_zeroing", query=query) for text in texts]
    several = model.mix(input_ids=texts, name="value_zeroing", query=query)
    traced = mixlens.mix(model.trace(input_ids=texts), "value_zeroing", query=query)
    for made in (alone, several, traced):
        assert len(made) == len(texts)
        for one, right, text in zip(made, expected, texts, strict=True):
            assert one.info["options"]["query"] == query % len(text)
            assert float(one.scores[:, query].abs().sum()) > 0
            # The row of a batch is computed in products of another size: rounding of float64, 1e-10 of a share.
            torch.testing.assert_close(one.scores, right.scores, rtol=0, atol=1e-10)


def test_a_token_may_be_the_row_asked_of_the_model() -> None:
    model, texts = mixlens.load("agreement"), ["The keys [MASK] rusty.", "The keys to the old cabinet [MASK] rusty."]
    for made, text in zip(model.mix(texts, "value_zeroing", query="[MASK]"), texts, strict=True):
        trace = model.trace(text)
        assert made.info["options"]["query"] == trace.tokens.index("[MASK]")
        expected = mixlens.mix(trace, "value_zeroing", query="[MASK]").scores
        torch.testing.assert_close(made.scores, expected, rtol=1e-4, atol=1e-6)  # float32, in batches of another size


@pytest.mark.parametrize("case", ["bert", "gpt2"])
def test_rows_without_score_have_one_shape(case: str) -> None:
    """[layer, token], whether the whole map was asked for or one row of it."""
    model, n = loaded(case), 6
    for made in (
        mixlens.mix(model.trace(input_ids=ids(n)), "value_zeroing"),
        mixlens.mix(model.trace(input_ids=ids(n)), "value_zeroing", query=2),
        *mixlens.mix(model.trace(input_ids=[ids(n), ids(9, 1)]), "value_zeroing", query=2)[:1],
        model.mix(input_ids=ids(n), name="value_zeroing", query=2),
    ):
        assert made.info["rows_without_score"].shape == (3, n)


def test_rows_without_score_are_told_of_the_row_that_was_asked_for() -> None:
    """The released code rounds the distances of a causal layer to five decimals: where attention writes next to nothing
    all of them are 0. Such a row is its own token, and is counted."""
    model, n = mixlens.load(copy.deepcopy(hf_model("gpt2"))), 5
    with torch.no_grad():
        model.parts[1].output.weight.mul_(1e-6)
    whole = mixlens.mix(model.trace(input_ids=ids(n)), "value_zeroing", variant="released")
    assert whole.info["rows_without_score"].tolist() == [[0] * n, [1] * n, [0] * n]
    for made in (
        mixlens.mix(model.trace(input_ids=ids(n)), "value_zeroing", variant="released", query=2),
        model.mix(input_ids=ids(n), name="value_zeroing", variant="released", query=2),
    ):
        assert made.info["rows_without_score"].tolist() == [[0] * n, [0, 0, 1, 0, 0], [0] * n]
        assert made.scores[1, 2].tolist() == [0, 0, 1, 0, 0]


def test_a_row_of_a_batch_is_cut_out_also_where_all_rows_share_a_mask() -> None:
    """A mask of one row is that of every row; what has a row for each example gives its own, without padding."""
    whole = loaded("bert").trace(input_ids=[ids(5), ids(5, 1)])[1].layers.batch[0]
    mask = torch.rand(1, 1, 5, 5, generator=torch.Generator().manual_seed(0)) > 0.5
    cut = types.LayersOf([replace(whole, mask=mask)], row=1, n=4)[0]
    assert torch.equal(cut.mask, mask[0, :, :4, :4])
    assert torch.equal(cut.input, whole.input[1, :4])
    own = torch.cat([mask, ~mask])
    assert torch.equal(types.LayersOf([replace(whole, mask=own)], row=1, n=4)[0].mask, ~mask[0, :, :4, :4])


def test_a_batch_with_one_stale_trace_is_refused() -> None:
    """A trace holds what the model computed with the weights of then. With other weights now no map of it is given,
    alone or beside a trace that is right; the right one alone gets the map that a model with these weights gives."""
    stock = copy.deepcopy(hf_model("bert"))
    model = mixlens.load(stock)
    old = model.trace(input_ids=ids(5))
    for part in model.parts:
        part.output.weight.data.mul_(1.5)
    new = model.trace(input_ids=ids(5, 1))
    for batch in ([old, new], [new, old], [old]):
        for name in ("globenc", "alti", "attention"):
            with pytest.raises(mixlens.MixlensError, match="does not match its parts"):
                mixlens.mix(batch, name)
    expected = mixlens.mix(mixlens.load(copy.deepcopy(stock)).trace(input_ids=ids(5, 1)), "globenc").scores
    torch.testing.assert_close(mixlens.mix([new], "globenc")[0].scores, expected, rtol=1e-10, atol=1e-12)


def test_shares_of_a_row_of_zeros_are_zeros() -> None:
    """Divided by the sum of magnitudes; a row that has none stays as it is, and is no NaN."""
    made = shares(torch.tensor([[0.0, 0.0, 0.0], [1.0, -3.0, 0.0]]))
    assert made.tolist() == [[0.0, 0.0, 0.0], [0.25, -0.75, 0.0]]


@pytest.mark.parametrize("name", ["cat", "attcat"])
def test_segments_count_in_the_paper_and_not_in_the_released_code(name: str) -> None:
    """The released AttCAT never passes segment ids: its scores are those of one segment, whatever the segments are."""
    model = mixlens.load(hf_model("bert", head="AutoModelForSequenceClassification"))
    one, two = (model.trace(input_ids=ids(7), token_type_ids=segments) for segments in ([0] * 7, [0, 0, 0, 0, 1, 1, 1]))
    for variant, counts in (("paper", True), ("released", False)):
        # The target is named, so that the segments do not choose another one.
        a, b = (mixlens.attribute(trace, name, target=1, variant=variant).scores for trace in (one, two))
        assert torch.equal(a, b) != counts
        assert not counts or float((a - b).abs().max()) > 1e-3 * float(a.abs().max())
