"""What maps, hidden states and norms say: pair by pair and token by token, as the papers define it."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import papers_written_out as slow
import pytest
import torch
from conftest import CONFIGURATIONS, hf_model, ids, loaded
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import mixlens
from mixlens.base.errors import InputError
from mixlens.metrics import geometry, mixing_stats
from mixlens.metrics import raw_and_effective as effective

PAIR = ("The film was dull.", "The plot was not good, and slow.")


def made_map(scores: Any, special: tuple[bool, ...] = (), **info: Any) -> mixlens.Map:
    scores = torch.as_tensor(scores, dtype=torch.float64)
    n = scores.shape[-1]
    return mixlens.Map(scores, tuple(f"t{i}" for i in range(n)), "made", info, special or (False,) * n)


def random_map(n: int = 15, layers: int = 2, **info: Any) -> mixlens.Map:
    scores = torch.rand(layers, n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return made_map(scores.tril() if info.get("causal") else scores, **info)


# --- directions -------------------------------------------------------------------------------------------------------


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(F.cosine_similarity(a.detach(), b.detach(), dim=0))


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 7), st.integers(1, 5), st.integers(0, 99))
def test_the_mean_cosine_is_that_of_all_pairs(n: int, d: int, seed: int) -> None:
    vectors = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    pairs = [cosine(a, b) for a, b in itertools.combinations(vectors, 2)]
    assert float(geometry.mean_cosine(vectors)) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert float(geometry.mean_cosine(3 * vectors)) == pytest.approx(np.mean(pairs), abs=1e-12)


def test_vectors_of_one_direction_and_of_none() -> None:
    line = torch.tensor([[1.0, 2.0], [2.0, 4.0], [0.5, 1.0]])
    assert float(geometry.mean_cosine(line)) == pytest.approx(1)
    assert float(geometry.mean_cosine(torch.eye(3))) == pytest.approx(0)
    assert float(geometry.mean_cosine(torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]))) == pytest.approx(1 / 3)
    assert torch.isnan(geometry.mean_cosine(torch.ones(1, 2)))


def test_anisotropy_of_every_layer() -> None:
    trace = loaded("bert").trace(input_ids=ids(6))
    expected = [np.mean([cosine(a, b) for a, b in itertools.combinations(layer, 2)]) for layer in trace.hidden_states]
    assert geometry.anisotropy(trace).tolist() == pytest.approx(expected, abs=1e-12)
    assert np.isnan(geometry.anisotropy(loaded("bert").trace(input_ids=ids(1)))).all()


def test_anisotropy_of_attention_blocks() -> None:
    trace = loaded("bert").trace(input_ids=ids(6))
    expected = []
    for layer, parts in zip(trace.layers, trace.model.parts, strict=True):
        outputs = parts.norm_after_attention(layer.input + layer.attention_output)  # ALTI, eq. 1
        expected.append(np.mean([cosine(a, b) for a, b in itertools.combinations(outputs, 2)]))
    assert geometry.block_anisotropy(trace).tolist() == pytest.approx(expected, abs=1e-12)
    before = loaded("gpt2").trace(input_ids=ids(6))  # no norm behind attention: the stream itself
    stream = before.layers[0].input + before.layers[0].attention_output
    pairs = [cosine(a, b) for a, b in itertools.combinations(stream, 2)]
    assert geometry.block_anisotropy(before)[0] == pytest.approx(np.mean(pairs), abs=1e-12)
    assert np.isnan(geometry.block_anisotropy(loaded("bert").trace(input_ids=ids(1)))).all()


@pytest.mark.parametrize("case", ["bert", "gpt2", "llama", "gemma2"])
def test_anisotropy_of_transformed_vectors(case: str) -> None:
    trace = loaded(case).trace(input_ids=ids(5))
    expected = []
    for layer in trace.layers:
        w = slow.vectors(layer, "norm")
        reach = [[j for j in range(5) if bool((layer.attention[:, i, j] > 0).any())] for i in range(5)]
        rows = [
            np.mean([cosine(w[i, a], w[i, b]) for a, b in itertools.combinations(places, 2)])
            for i, places in enumerate(reach)
            if len(places) > 1
        ]
        expected.append(np.mean(rows))
    assert geometry.transformed_anisotropy(trace).tolist() == pytest.approx(
        expected, abs=1e-6 if case != "bert" else 1e-10
    )


# --- norms ------------------------------------------------------------------------------------------------------------


def test_an_outlier_is_at_least_so_far_off() -> None:
    weights = np.array([0.0, 0.0, 0.0, 0.0, 5.0])  # mean 1, standard deviation 2: the last is exactly 2 of them off
    assert geometry.outliers(weights, sigma=2.0) == (4,)
    assert geometry.outliers(weights, sigma=2.01) == ()
    assert geometry.outliers(np.ones(4)) == ()


@pytest.mark.parametrize("case", list(CONFIGURATIONS))
def test_the_norms_of_every_family(case: str) -> None:
    """Random weights near 1, found by asking the norms: two random vectors are neither equal nor opposite."""
    model = loaded(case)
    if case == "gpt_neox":  # attention and feed-forward side by side still have a norm each
        assert model.parts[0].parallel
    if model.family.norm_before_attention == model.family.norm_before_mlp is not None:
        with pytest.raises(InputError, match="two norms"):
            geometry.norm_outliers(model)
        return
    made = geometry.norm_outliers(model)
    without = {"modernbert": [0]}.get(case, [])  # its first layer has no norm before attention
    assert [one.layer for one in made] == [layer for layer in range(len(model.parts)) if layer not in without]
    if case == "olmo":  # its norms have no weights: all are 1, and what does not vary does not correlate
        assert all(np.isnan(one.pearson) and one.shared == () for one in made)
    else:
        assert all(-0.9 < one.pearson < 0.9 for one in made)


def test_a_model_without_two_norms_says_so() -> None:
    model = copy.copy(loaded("bert"))
    model.parts = [replace(parts, norm_after_mlp=None) for parts in model.parts]
    with pytest.raises(InputError, match=r"no layer of .* has two norms"):
        geometry.norm_outliers(model)


# --- mixing -----------------------------------------------------------------------------------------------------------


def test_own_tokens_by_hand() -> None:
    scores = made_map([[[2, 1, 1], [0, 1, 3], [1, 1, 1]]])
    assert mixing_stats.own_share(scores)[0] == pytest.approx([0.5, 0.25, 1 / 3])
    assert mixing_stats.not_own_top(scores)[0].tolist() == [0, 1, 0]  # a tie is no loss
    assert np.isnan(mixing_stats.own_share(made_map([[[0, 0], [0, 1]]]))[0, 0])


def test_the_mixing_ratio_comes_with_norm_maps() -> None:
    trace = loaded("bert").trace(input_ids=ids(5))
    made = mixing_stats.mixing_ratio(mixlens.mix(trace, "norm_residual"))
    for number, layer in enumerate(trace.layers):
        w = slow.vectors(layer, "residual").detach()
        for i in range(5):
            others = (w[i].sum(0) - w[i, i]).norm()
            assert made[number, i] == pytest.approx(float(others / (others + w[i, i].norm())))
    with pytest.raises(InputError, match="'alti' has no mixing ratio"):
        mixing_stats.mixing_ratio(mixlens.mix(trace, "alti"))


@pytest.mark.parametrize("causal", [False, True])
def test_distances_written_out(causal: bool) -> None:
    scores = random_map(causal=causal)
    made, single = (mixing_stats.share_by_distance(scores, per_token=per_token) for per_token in (False, True))
    means = mixing_stats.mean_by_distance(scores)
    groups = ([1], [2], [3], [4, 5], list(range(6, 11)), list(range(11, 15)))
    for layer, i, (g, group) in itertools.product(range(2), range(15), enumerate(groups)):
        places = [j for j in range(15) if abs(i - j) in group and (j < i or not causal)]
        row = scores.scores[layer, i] / scores.scores[layer, i].sum()
        mean = np.mean([float(row[j]) for j in places]) if places else np.nan
        assert means[layer, i, g] == pytest.approx(mean, nan_ok=True)
        others = sum(float(scores.scores[layer, i, j]) for j in range(15) if j != i)
        if not places or not others:
            assert np.isnan(made[layer, i, g])
            continue
        taken = sum(float(scores.scores[layer, i, j]) for j in places) / others
        assert made[layer, i, g] == pytest.approx(taken)
        assert single[layer, i, g] == pytest.approx(taken / len(places))
    assert np.nansum(made[:, 1:], -1) == pytest.approx(1)
    with pytest.raises(InputError, match="1 <= first"):
        mixing_stats.share_by_distance(scores, groups=[(0, 2)])


def test_means_by_part_of_speech() -> None:
    values = [np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.array([[7.0, 8.0], [9.0, np.nan]])]
    made = mixing_stats.by_tag(values, [["N", "V", None], ["N", "N"]])
    assert [one.mean for one in made["N"]] == pytest.approx([16 / 3, 13 / 2])
    assert [one.undefined for one in made["N"]] == [0, 1]
    assert [one.n for one in made["N"]] == [2, 2]  # texts
    assert [one.mean for one in made["V"]] == [2, 5]
    assert set(made) == {"N", "V"}
    every = mixing_stats.by_layer(values)
    assert [one.mean for one in every] == pytest.approx([21 / 5, 24 / 4])
    with pytest.raises(InputError, match="2 examples and tags for 1"):
        mixing_stats.by_tag(values, [["N"]])
    with pytest.raises(InputError, match=r"example 1: values of shape \(2, 2\).* have 1"):
        mixing_stats.by_tag(values, [["N", "V", None], ["N"]])


# --- raw and effective ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["bert", "gpt2"])
@pytest.mark.parametrize("variant", ["released", "paper"])
def test_raw_against_effective_attention(case: str, variant: str) -> None:
    trace = loaded(case).trace(input_ids=ids(14))  # more tokens than a head is wide
    made = effective.raw_against_effective(trace, variant=variant)
    raw, kept = [], []
    for head in range(4):
        projected = mixlens.mix(trace, "effective_attention", head=head, variant=variant).scores
        for index, layer in enumerate(trace.layers):
            seen = (
                torch.tril(torch.ones(14, 14, dtype=torch.bool))
                if case == "gpt2"
                else torch.ones(14, 14, dtype=torch.bool)
            )
            raw.append(layer.attention[head][seen])
            kept.append(projected[index][seen])
            assert made.per_head[index, head] == pytest.approx(np.corrcoef(raw[-1], kept[-1])[0, 1], abs=1e-10)
    assert made.value == pytest.approx(np.corrcoef(torch.cat(raw), torch.cat(kept))[0, 1], abs=1e-10)
    assert made.value < 0.999
    assert made.n == 14


def test_short_texts_have_nothing_to_hide() -> None:
    """No more tokens than a head is wide: attention is identifiable, and effective attention is attention."""
    made = effective.raw_against_effective(loaded("bert").trace(input_ids=ids(6)))
    assert made.per_head == pytest.approx(1)


def test_by_length() -> None:
    made = effective.by_length([1.0, 2.0, 3.0, 9.0], [4, 5, 8, 64], edges=(0, 8, 16, 32))
    assert {key: (one.mean, one.n) for key, one in made.items()} == {(0, 8): (1.5, 2), (8, 16): (3.0, 1)}
    with pytest.raises(InputError, match="4 values and 1 lengths"):
        effective.by_length([1.0, 2.0, 3.0, 9.0], [1], edges=(0, 8))
    with pytest.raises(InputError, match="rising"):
        effective.by_length([1.0], [1], edges=(8, 0))


def test_attention_by_type_of_token() -> None:
    trace = mixlens.load("sentiment").trace(PAIR)
    types = effective.token_types(trace)
    assert set(types) == {"[CLS]", "[SEP]", "period or comma", "word"}
    assert [types[i] for i, token in enumerate(trace.tokens) if token in ".,"] == ["period or comma"] * 3
    marks = replace(random_map(3), tokens=("!", "a.", "?!"), special=(False,) * 3)
    assert effective.token_types(marks) == ("punctuation", "word", "punctuation")
    raw, kept = (mixlens.mix(trace, name) for name in ("attention", "effective_attention"))
    made = effective.received_by_type(raw)
    assert sum(made.values()) == pytest.approx(1, abs=1e-5)  # rows of attention sum to 1
    for scores in (raw, kept):
        found = effective.received_by_type(scores)
        for name in set(types):
            keys = [i for i, one in enumerate(types) if one == name]
            expected = [np.mean([sum(float(row[j]) for j in keys) for row in layer]) for layer in scores.scores]
            assert found[name].tolist() == pytest.approx(expected, abs=1e-6)
    for layer, (one, weights) in enumerate(zip(effective.attention_of_heads(trace), trace.layers, strict=True)):
        keys = effective.places_of(types, "[SEP]")
        assert keys == [i for i, token in enumerate(trace.tokens) if token == "[SEP]"]
        given = effective.given_to(one.raw, [0, 2], keys)
        expected = [float(sum(head[i, j] for i in (0, 2) for j in keys)) / 2 for head in weights.attention]
        assert given.tolist() == pytest.approx(expected, abs=1e-6)
        assert one.effective.mean(0) == pytest.approx(kept.scores[layer].double().numpy(), abs=1e-6)
        assert np.isnan(effective.given_to(one.raw, [], keys)).all()
    with pytest.raises(InputError, match="2 types for"):
        effective.received_by_type(raw, types=["a", "b"])


def test_a_map_that_is_not_finite_is_refused() -> None:
    broken = random_map()
    broken = replace(broken, scores=broken.scores.where(broken.scores < 0.9, torch.nan))
    for measure in (
        mixing_stats.own_share,
        mixing_stats.not_own_top,
        mixing_stats.share_by_distance,
        effective.received_by_type,
    ):
        with pytest.raises(InputError, match="not finite"):
            measure(broken)


def test_quantiles_of_groups_written_out() -> None:
    values, groups = np.array([3.0, 1.0, 2.0, 10.0, 5.0]), ["a", "a", "b", "c", "c"]
    generator = np.random.default_rng(3)
    found = []
    for _ in range(50):
        counts = dict(zip("abc", generator.multinomial(3, [1 / 3] * 3), strict=True))
        drawn = sorted(value for value, group in zip(values, groups, strict=True) for _ in range(counts[group]))
        found.append(next(value for i, value in enumerate(drawn, 1) if i >= 0.4 * len(drawn)))
    made = mixing_stats.quantile_with_interval(values, groups, share=0.4, confidence=0.8, seed=3, resamples=50)
    assert (made.low, made.high) == pytest.approx(tuple(np.quantile(found, [0.1, 0.9])))
    assert (made.mean, made.n, made.std, made.confidence) == (
        pytest.approx(np.quantile(values, 0.4)),
        3,
        pytest.approx(values.std()),
        0.8,
    )
    alone = mixing_stats.quantile_with_interval(values, ["a"] * 5)
    assert (alone.mean, alone.n, np.isnan(alone.low), alone.confidence) == (3.0, 1, True, 0.95)


def test_shares_around_a_token() -> None:
    scores = torch.tensor([[[1.0, 2.0, 3.0, 4.0]] * 4, [[0.0, 0.0, 0.0, 0.0]] * 4], dtype=torch.float64)
    made = mixlens.Map(scores, ("a", "[SEP]", "b", "[SEP]"), "m", {}, (True, True, False, True))
    told = mixing_stats.share_around(made, reach=2)
    np.testing.assert_allclose(told[0], [np.nan, 0.1, 0.2, 0.3, 0.4])
    assert np.isnan(told[1]).all()
    np.testing.assert_allclose(mixing_stats.share_around(made, centre=3, reach=1)[0], [0.3, 0.4, np.nan])
    with pytest.raises(InputError, match="no special token behind its first"):
        mixing_stats.share_around(random_map())


def test_features_that_are_outliers_of_both_norms_are_named_in_order() -> None:
    """Features 1, 8 and 16: not the order in which Python's sets hold them."""
    stock = copy.deepcopy(hf_model("bert"))
    layer = stock.encoder.layer[1]
    with torch.no_grad():
        for norm, places in (
            (layer.attention.output.LayerNorm, [16, 8, 1, 30]),
            (layer.output.LayerNorm, [1, 8, 16, 3]),
        ):
            norm.weight.fill_(1.0)
            norm.weight[places] = 9.0
    found = geometry.norm_outliers(mixlens.load(stock), sigma=2.0)[1]
    assert (found.layer, found.first, found.second, found.shared) == (1, (1, 8, 16, 30), (1, 3, 8, 16), (1, 8, 16))
    first, second = layer.attention.output.LayerNorm.weight.tolist(), layer.output.LayerNorm.weight.tolist()
    assert found.pearson == pytest.approx(np.corrcoef(first, second)[0, 1])
    either = [1, 3, 8, 16, 30]
    expected = np.corrcoef([first[i] for i in either], [second[i] for i in either])[0, 1]
    assert found.pearson_at_outliers == pytest.approx(expected)
