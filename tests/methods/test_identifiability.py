"""Effective attention, rank, and other weights that give the same output: against the linear algebra written out."""

from __future__ import annotations

import copy
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CAUSAL, CONFIGURATIONS, hf_model, ids, loaded
from papers_written_out import t_of, without_null_space

import mixlens
from mixlens import layer as layers
from mixlens.methods import identifiability

CASES = list(CONFIGURATIONS)


@pytest.mark.parametrize("case", CASES)
def test_effective_attention_is_attention_off_the_null_space(case: str) -> None:
    """Row by row, head by head, within what the row may see; its output is attention's own, and the two maps add up."""
    trace = loaded(case).trace(input_ids=ids(12))
    for variant in ("released", "paper"):
        with torch.no_grad():
            for head in (0, 3):
                made = mixlens.mix(trace, "effective_attention", head=head, variant=variant).scores.numpy()
                rest = mixlens.mix(trace, "null_attention", head=head, variant=variant).scores.numpy()
                for index, layer in enumerate(trace.layers):
                    t, a = t_of(layer, head, bias=variant == "released"), layer.attention[head].numpy()
                    for i in range(12):
                        seen = a[i] > 0
                        np.testing.assert_allclose(
                            made[index, i, seen], without_null_space(a[i, seen], t[seen]), rtol=0, atol=1e-10
                        )
                        assert not made[index, i, ~seen].any()
                    np.testing.assert_allclose(made[index] @ t, a @ t, rtol=0, atol=1e-11 * np.abs(t).max())
                    np.testing.assert_allclose(made[index] + rest[index], a, rtol=0, atol=1e-14)
        if case not in CAUSAL:
            assert float(np.abs(rest).max()) > 1e-3  # twelve tokens, eight dimensions: there is something to take off


def test_mean_over_heads_and_short_texts() -> None:
    """Up to the head's width the null space is empty, and effective attention is attention."""
    trace = loaded("bert").trace(input_ids=ids(12))
    heads = torch.stack([mixlens.mix(trace, "effective_attention", head=h).scores for h in range(4)])
    torch.testing.assert_close(mixlens.mix(trace, "effective_attention").scores, heads.mean(0))
    short = loaded("bert").trace(input_ids=ids(8))
    torch.testing.assert_close(mixlens.mix(short, "effective_attention").scores, mixlens.mix(short, "attention").scores)


def test_only_with_the_bias_is_the_output_unchanged() -> None:
    trace = loaded("bert").trace(input_ids=ids(14))
    layer = trace.layers[1]
    with torch.no_grad():
        t = torch.from_numpy(t_of(layer, 2, bias=True))
    for variant, same in (("released", True), ("paper", False)):
        made = mixlens.mix(trace, "effective_attention", head=2, variant=variant).scores[1]
        assert (float((made @ t - layer.attention[2] @ t).abs().max()) < 1e-12) == same


def test_rank_and_null_dimension_come_per_head_in_any_batch() -> None:
    """Fewer tokens than heads, beside a longer neighbour: what belongs to a head is not cut to the tokens."""
    texts = [ids(3), ids(14, 1), ids(9, 2)]
    for name in ("effective_attention", "null_attention"):
        for text, made in zip(texts, mixlens.mix(loaded("bert").trace(input_ids=texts), name), strict=True):
            assert made.info["rank"].tolist() == [[min(len(text), 8)] * 4] * 3
            assert made.info["null_dimension"].tolist() == [[max(len(text) - 8, 0)] * 4] * 3


def test_a_projection_without_full_rank_is_seen() -> None:
    """Head 1 of W_O keeps five of its eight dimensions: its T has rank five, and more of attention cannot be told."""
    model = copy.deepcopy(hf_model("bert"))
    with torch.no_grad():
        model.encoder.layer[1].attention.output.dense.weight[:, 8:11] = 0
    trace = mixlens.load(model).trace(input_ids=ids(12))
    made = mixlens.mix(trace, "effective_attention", head=1)
    assert made.info["rank"].tolist() == [[8, 8, 8, 8], [8, 5, 8, 8], [8, 8, 8, 8]]
    with torch.no_grad():
        t, a = t_of(trace.layers[1], 1, bias=True), trace.layers[1].attention[1].numpy()
    for i in range(12):
        np.testing.assert_allclose(made.scores[1, i], without_null_space(a[i], t), rtol=0, atol=1e-11)
    told = mixlens.identifiability(trace, head=1)[1]
    assert (told.rank, told.null_dimension, told.identifiable) == (5, 7, False)


@pytest.mark.parametrize("case", ["bert", "gpt2", "llama", "mistral", "gpt_neo"])
@pytest.mark.parametrize("n", [1, 8, 9, 10])
def test_identifiable_means_no_other_weights_that_sum_to_one(case: str, n: int) -> None:
    """By the rank of [T, 1] of each position's own tokens. A window of four is always identifiable with eight
    dimensions."""
    trace = loaded(case).trace(input_ids=ids(n))
    told = mixlens.identifiability(trace)
    assert [(one.layer, one.head) for one in told] == [(layer, head) for layer in range(3) for head in range(4)]
    with torch.no_grad():
        for one in told:
            layer = trace.layers[one.layer]
            t = t_of(layer, one.head, bias=True)
            assert (one.n, one.d_v, one.rank) == (n, 8, np.linalg.matrix_rank(t))
            assert one.null_dimension == n - one.rank
            alone = []
            for row in layer.attention[one.head]:
                seen = (row > 0).numpy()
                alone.append(np.linalg.matrix_rank(np.hstack([t[seen], np.ones((seen.sum(), 1))])) == seen.sum())
            assert one.identifiable == all(alone)
    windowed = case in ("mistral",)
    assert all(one.identifiable for one in told) == (n <= 9 or windowed)


def test_rank_belongs_to_one_head() -> None:
    trace = loaded("bert").trace(input_ids=ids(5))
    assert [(one.layer, one.head) for one in mixlens.identifiability(trace, head=2)] == [(0, 2), (1, 2), (2, 2)]
    for wrong in ("mean", 4, -1, True):
        with pytest.raises(mixlens.MixlensError, match="rank and null space belong to one head"):
            mixlens.identifiability(trace, head=wrong)  # type: ignore[arg-type]
    with pytest.raises(mixlens.MixlensError, match="head 4 does not exist"):
        mixlens.mix(trace, "effective_attention", head=4)


@pytest.mark.parametrize("case", ["bert", "gpt2", "llama", "gemma2", "gpt_neo", "gpt_neox", "opt", "olmo2"])
def test_other_weights_and_the_same_output(case: str) -> None:
    """In the simplex, nothing where the mask forbids, far from the model's own, and the model run with them says the
    same."""
    trace = loaded(case).trace(input_ids=list(range(10, 26)))
    layer, head = (0, 1) if case in ("gpt_neo", "gemma2") else (1, 2)
    found = mixlens.alternative_attention(trace, layer=layer, head=head)
    own = trace.layers[layer].attention[head]
    assert float(found.attention.min()) >= 0
    torch.testing.assert_close(found.attention.sum(-1), torch.ones(16, dtype=torch.float64), rtol=0, atol=1e-12)
    assert not found.attention[~layers.Block(trace.layers[layer]).reach].any()
    torch.testing.assert_close(found.distance, (found.attention - own).abs().sum(-1) / 2)
    assert found.output_difference < 1e-9
    with torch.no_grad():
        t = torch.from_numpy(t_of(trace.layers[layer], head, bias=True))
        torch.testing.assert_close(found.attention @ t, own @ t, rtol=0, atol=1e-11 * float(t.abs().max()))
    free = layers.Block(trace.layers[layer]).reach.sum(-1) > 9
    assert float(found.distance[~free].max() if bool((~free).any()) else 0) == 0
    if case != "gemma2":  # a window of four leaves nothing free
        assert float(found.distance[free].mean()) > (
            1e-4 if case in ("opt", "gpt_neo") else 0.1
        )  # these two are peaked


def test_the_proof_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are merely others change the output: the run is a run."""
    trace = loaded("bert").trace(input_ids=ids(16))
    with monkeypatch.context() as patch:
        patch.setattr(
            sys.modules["mixlens.scoring.alternative_attention"], "_farthest", lambda own, *more: own.flip(-1)
        )
        assert mixlens.alternative_attention(trace, layer=1, head=2).output_difference > 1e-3
    moved = trace.model.run_with_attention(trace, 1, lambda weights: weights.flip(-1))
    assert float((moved - trace.layers[1].output).abs().max()) > 1e-2
    still = trace.model.run_with_attention(trace, 1, lambda weights: weights)
    torch.testing.assert_close(still, trace.layers[1].output, rtol=0, atol=1e-12)
    with pytest.raises(mixlens.MixlensError, match="layer 3 does not exist"):
        trace.model.run_with_attention(trace, 3, lambda weights: weights)


@pytest.mark.parametrize("case", CASES)
def test_attention_written_by_hand_reaches_the_layer(case: str) -> None:
    """All weight on the token itself, through the model, against the layer rebuilt from its parts."""
    trace = loaded(case).trace(input_ids=ids(6))
    layer = trace.layers[1]
    block = layers.Block(layer, 1)
    with torch.no_grad():
        moved = trace.model.run_with_attention(
            trace, 1, lambda weights: torch.eye(6, dtype=torch.float64).expand_as(weights)
        )
        own = torch.einsum("kho,h->ko", block.head_vectors, torch.ones(4, dtype=torch.float64)) + block.bias
        torch.testing.assert_close(moved, block.after_attention(own), rtol=1e-9, atol=1e-9)


def test_the_same_word_twice_is_never_identifiable() -> None:
    """Before positions enter (rotary models, first layer), equal words have equal values: attention may move between
    them."""
    trace = loaded("llama").trace(input_ids=[10, 11, 12, 11])
    assert [one.identifiable for one in mixlens.identifiability(trace)] == [False] * 4 + [True] * 8
    own = trace.layers[0].attention[3, 3]
    found = mixlens.alternative_attention(trace, layer=0, head=3)
    most = max(float(own[1]), float(own[3]))
    torch.testing.assert_close(
        found.distance, torch.tensor([0.0, 0.0, 0.0, most], dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert found.output_difference < 1e-9


def test_a_seed_gives_the_same_weights_and_an_identifiable_head_its_own() -> None:
    trace = loaded("bert").trace(input_ids=ids(14))
    first, again = (mixlens.alternative_attention(trace, layer=0, head=0, seed=3) for _ in range(2))
    assert torch.equal(first.attention, again.attention)
    short = loaded("bert").trace(input_ids=ids(9))
    found = mixlens.alternative_attention(short, layer=0, head=0)
    assert torch.equal(found.attention, short.layers[0].attention[0])
    assert float(found.distance.max()) == 0


def test_float32_and_missing_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = mixlens.load(hf_model("bert", dtype=torch.float32)).trace(input_ids=ids(14))
    assert mixlens.alternative_attention(trace, layer=2, head=1).output_difference < 1e-5
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(mixlens.MixlensError, match=r"pip install .*\[analysis\]'"):
        mixlens.alternative_attention(trace, layer=2, head=1)


@pytest.mark.parametrize(("width", "rank"), [(12, 5), (1000, 4)])
def test_the_quick_rule_of_full_rank_is_no_laxer_than_that_of_singular_values(width: int, rank: int) -> None:
    """A singular value counts above eps * max(n, d) of the largest: 1e-5 does for twelve rows, and not for a width of
    1000."""
    q, _ = torch.linalg.qr(torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    turned, _ = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    vectors = (q * torch.tensor([1.0, 0.8, 0.6, 0.5, 1e-5]) @ turned).float()[None]
    basis, found = identifiability.column_space(vectors, torch.ones(12, dtype=torch.bool), width)
    assert found.tolist() == [rank]
    assert int(basis[0].norm(dim=0).gt(0.5).sum()) == rank


@pytest.mark.parametrize(("width", "row"), [(5, [0.9, 0.1]), (1000, [0.5, 0.5])])
def test_two_sources_that_are_nearly_one_share_what_they_get(width: int, row: list[float]) -> None:
    """Their vectors are 1e-5 apart: told apart by the rule for a small width, and one direction by that for a large
    one."""
    vectors = torch.randn(1, 6, 5, generator=torch.Generator().manual_seed(2))
    vectors[0, 1] = vectors[0, 0] * (1 + 1e-6)
    vectors[0, 1, 0] += 1e-5 * float(vectors[0, 0].norm())
    attention = torch.full((1, 6, 6), 1.0).tril() / torch.arange(1, 7)[:, None]
    attention[0, 1, :2] = torch.tensor([0.9, 0.1])
    made = identifiability.within_past(vectors, attention, width)
    torch.testing.assert_close(made[0, 1, :2], torch.tensor(row), rtol=0, atol=1e-3)
    assert not made[0, 1, 2:].any()


@pytest.mark.parametrize("blur", [1e-6, 1e-4])
def test_corners_whose_support_is_not_clear_are_approached_without_a_negative_weight(
    blur: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A linear program that gives its corner with an error: weights stay a distribution, and the output stays the
    same."""
    import scipy.optimize

    solve = scipy.optimize.linprog
    generator = torch.Generator().manual_seed(0)

    def linprog(*args: Any, **options: Any) -> Any:
        found = solve(*args, **options)
        error = blur * torch.rand(len(found.x), generator=generator, dtype=torch.float64).numpy()
        return SimpleNamespace(x=found.x + error)

    trace = loaded("bert").trace(input_ids=ids(20))
    exact = mixlens.alternative_attention(trace, layer=1, head=2)
    monkeypatch.setattr(scipy.optimize, "linprog", linprog)
    found = mixlens.alternative_attention(trace, layer=1, head=2)
    assert bool((found.attention >= 0).all())
    torch.testing.assert_close(found.attention.sum(-1), torch.ones(20, dtype=torch.float64), rtol=0, atol=1e-9)
    assert found.output_difference < 1e-9  # float64
    assert float(found.distance.max()) > 0.5 * float(exact.distance.max()) > 0


def test_a_causal_layer_in_float32_is_not_factorised_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve tokens, eight dimensions a head: one basis for the rank, and running sums for the rows."""
    trace = loaded("gpt2", dtype=torch.float32).trace(input_ids=ids(12))
    column_space, calls = identifiability.column_space, list[int]()
    monkeypatch.setattr(identifiability, "column_space", lambda *given: calls.append(1) or column_space(*given))
    made = mixlens.mix(trace, "effective_attention")
    assert len(calls) == len(trace.layers)
    exact = mixlens.mix(loaded("gpt2").trace(input_ids=ids(12)), "effective_attention")
    torch.testing.assert_close(made.scores.double(), exact.scores, rtol=0, atol=2e-5)  # float32


def test_a_sure_row_behind_a_doubtful_one_stays() -> None:
    """Rows e0, e0, e1, e2, e1: the first three are dependent, and all of them together have full rank again."""
    vectors = torch.eye(3)[[0, 0, 1, 2, 1]]
    attention = torch.arange(1.0, 26.0).view(5, 5).tril()
    rows = [attention[i, : i + 1] @ vectors[: i + 1] @ torch.linalg.pinv(vectors[: i + 1]) for i in range(5)]
    expected = torch.stack([torch.cat([row, torch.zeros(4 - i)]) for i, row in enumerate(rows)])
    torch.testing.assert_close(
        identifiability.within_past(vectors[None], attention[None], 3)[0], expected, rtol=1e-4, atol=1e-4
    )
