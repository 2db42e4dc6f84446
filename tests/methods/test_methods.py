"""Every method: against the paper written out slowly, alone and in batches, causal where the model is."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import papers_written_out as slow
import pytest
import torch
from conftest import CAUSAL, CONFIGURATIONS, DISTINCT, ROUNDED_STREAM, hf_model, ids, loaded
from hypothesis import given, settings
from hypothesis import strategies as st

import mixlens
from mixlens.scoring import asking
from mixlens.scoring.maps import known

CASES = list(CONFIGURATIONS)
STAGES = slow.STAGES
EVERYWHERE = ("attention", "globenc", "value_zeroing", "effective_attention")  # one method of each kind, also on twins
LAYERED = [(name, variant) for name, one in known().items() if not one.whole for variant in one.variants]
RANDOM = [  # seed, layer, target: the row of four tokens
    (0, 0, 0, [0.05519276793651516, 0.3880590440881698, 0.21815887977475965, 0.33858930820055544]),
    (0, 0, 3, [0.35554263314316364, 0.30143125686414995, 0.06769588594015415, 0.27533022405253227]),
    (0, 2, 1, [0.09818992919253822, 0.29912598540952995, 0.10382450920417964, 0.4988595761937522]),
    (7, 1, 2, [0.3682340660201013, 0.10759176840021917, 0.1929442795908555, 0.33122988598882414]),
]
# RMS norms of transformers round to float32 inside, so the model's own output differs from the equation by that much.
LOOSE = dict.fromkeys(ROUNDED_STREAM, 1e-6)


@pytest.mark.parametrize("case", CASES)
def test_norm_family_is_the_length_of_each_vector(case: str) -> None:
    trace = loaded(case).trace(input_ids=ids(5))
    with torch.no_grad():
        for name, stage in STAGES.items():
            made = mixlens.mix(trace, name)
            close = LOOSE.get(case, 1e-9)
            torch.testing.assert_close(made.scores, slow.norms(trace, stage), rtol=close, atol=1e-12)
            torch.testing.assert_close(
                made.info["mixing_ratio"], slow.mixing_ratio(trace, stage), rtol=close, atol=1e-12
            )


@pytest.mark.parametrize("case", CASES)
def test_alti_is_how_much_nearer_each_vector_brings_the_output(case: str) -> None:
    trace = loaded(case).trace(input_ids=ids(6))
    with torch.no_grad():
        torch.testing.assert_close(
            mixlens.mix(trace, "alti").scores, slow.alti(trace), rtol=0, atol=LOOSE.get(case, 1e-12)
        )


@pytest.mark.parametrize("case", CASES)
def test_value_zeroing_is_the_intervention(case: str) -> None:
    """The stock model runs with a hook that zeroes one value: same distances. Eager softmax rounds to float32 in
    gemma2."""
    trace = loaded(case).trace(input_ids=ids(5))
    with torch.no_grad():
        expected = slow.value_zeroing(trace)
    loose = {**dict.fromkeys(ROUNDED_STREAM, 1e-5), "gemma2": 1e-4}.get(case, 1e-9 if case not in CAUSAL else 1e-6)
    torch.testing.assert_close(mixlens.mix(trace, "value_zeroing").scores, expected, rtol=0, atol=loose)


@pytest.mark.parametrize("case", ["bert", "llama"])
def test_attention_family_as_defined(case: str) -> None:
    trace = loaded(case).trace(input_ids=ids(7))
    weights = torch.stack([layer.attention.mean(0) for layer in trace.layers])
    eye = torch.eye(7, dtype=torch.float64)
    torch.testing.assert_close(mixlens.mix(trace, "attention").scores, weights)
    torch.testing.assert_close(mixlens.mix(trace, "attention_fixed_residual").scores, 0.5 * weights + 0.5 * eye)
    lengths = mixlens.mix(trace, "norm").scores
    fixed = 0.5 * lengths / lengths.sum(-1, keepdim=True) + 0.5 * eye
    torch.testing.assert_close(mixlens.mix(trace, "norm_fixed_residual").scores, fixed)
    r = mixlens.mix(trace, "globenc").info["mixing_ratio"]
    for variant in ("paper", "released"):
        made = mixlens.mix(trace, "attention_residual", variant=variant).scores
        for layer in range(3):
            for i in range(7):
                others = weights[layer, i].clone()
                others[i] = 0
                rest = others.sum() if variant == "released" else 1 - weights[layer, i, i]
                row = r[layer, i] * others / rest if float(rest) > 1e-15 else torch.zeros(7, dtype=torch.float64)
                row[i] = 1 - r[layer, i]
                torch.testing.assert_close(made[layer, i], row, rtol=1e-9, atol=1e-12)


def test_alti_row_without_score_is_its_own_token() -> None:
    from mixlens.scoring import aggregate

    shared, told = aggregate.rows_to_one(torch.tensor([[0.0, 0.0], [1.0, 3.0]]))
    assert shared.tolist() == [[1.0, 0.0], [0.25, 0.75]]
    assert told["rows_without_score"].tolist() == [1, 0]


@cache
def padded(case: str, lengths: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """Traces of texts of these lengths, each alone; and all of them in a batch, padded on the right and on the left."""
    model, texts = loaded(case), [ids(n, seed) for seed, n in enumerate(lengths)]
    pads = [max(lengths) - n for n in lengths]
    pad = model.hf_model.config.pad_token_id or 0
    right = model.trace(
        input_ids=[text + [pad] * p for text, p in zip(texts, pads, strict=True)],
        attention_mask=[[1] * len(text) + [0] * p for text, p in zip(texts, pads, strict=True)],
    )
    left = model.trace(
        input_ids=torch.tensor([[pad] * p + text for text, p in zip(texts, pads, strict=True)]),
        attention_mask=torch.tensor([[0] * p + [1] * len(text) for text, p in zip(texts, pads, strict=True)]),
    )
    return [model.trace(input_ids=text) for text in texts], [model.trace(input_ids=texts), right, left]


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in known() for case in (CASES if name in EVERYWHERE else DISTINCT)]
)
def test_alone_in_a_batch_and_padded_give_the_same_map(case: str, name: str) -> None:
    """Right and left padding, longer and shorter neighbours, batched inside `trace` and inside `mix`."""
    # Jacobians take a backward pass for every feature. A head is eight wide: ten tokens have a null space.
    slow = name.startswith("hta")
    alone, batches = padded(case, (4, 2) if slow else (7, 10, 3))
    expected = [mixlens.mix(trace, name).scores for trace in alone]
    every = (
        case in ("bert", "gpt2") and not slow
    )  # what `trace` pads itself is padded on the right, as the second batch is
    for traces in batches if every else batches[1:]:
        for batched, one in zip(mixlens.mix(traces, name), expected, strict=True):
            torch.testing.assert_close(batched.scores, one, rtol=0, atol=1e-10)
    torch.testing.assert_close(mixlens.mix(batches[2][0], name).scores, expected[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in known() for case in (CASES if name in EVERYWHERE else DISTINCT)]
)
def test_maps_are_what_they_claim(case: str, name: str) -> None:
    """Finite, not negative unless signed; rows sum to 1 where claimed; no look ahead in causal models, to the last
    bit."""
    n = 6 if name == "hta" else 12  # a backward pass for every feature of every token
    made = mixlens.mix(loaded(case).trace(input_ids=ids(n)), name)
    assert bool(torch.isfinite(made.scores).all())
    assert known()[name].signed or bool((made.scores >= 0).all())
    if known()[name].distribution:
        torch.testing.assert_close(made.scores.sum(-1), torch.ones(3, n, dtype=torch.float64))
    if case in CAUSAL:
        assert float(made.scores.triu(1).abs().max()) == 0
        assert float(made.rollout().scores.triu(1).abs().max()) == 0
    assert made.info["gap"] < 1e-10
    assert made.info["check"] < 1e-10
    assert made.info["convention"] == known()[name].rollout


@cache
def traces_in_float32(case: str, texts: tuple[tuple[int, ...], ...]) -> tuple[list[Any], list[Any]]:
    """The texts traced one by one, and in one batch."""
    model = loaded(case, dtype=torch.float32)
    return [model.trace(input_ids=list(text)) for text in texts], model.trace(input_ids=[list(text) for text in texts])


@cache
def streamed_in_float32(case: str, texts: tuple[tuple[int, ...], ...], variant: str) -> tuple[list[Any], list[Any]]:
    """For each text, alone and in a batch, the maps of every method that has this variant, by name, from one pass."""
    model, names = loaded(case, dtype=torch.float32), [name for name, other in LAYERED if other == variant]
    alone = [model.mix(input_ids=list(text), name=names, variant=variant) for text in texts]
    return alone, model.mix(input_ids=[list(text) for text in texts], name=names, variant=variant)


def maps_in_float32(case: str, texts: list[list[int]], name: str, variant: str) -> dict[str, list[Any]]:
    """The maps of some texts as a user gets them: in float32, traced and streamed, each text alone and all in a
    batch."""
    alone, together = traces_in_float32(case, tuple(map(tuple, texts)))
    streamed, streamed_together = streamed_in_float32(case, tuple(map(tuple, texts)), variant)
    options: dict[str, Any] = {"variant": variant}
    return {
        "traced alone": [mixlens.mix(trace, name, **options) for trace in alone],
        "traced in a batch": mixlens.mix(together, name, **options),
        "traces put together": mixlens.mix(alone, name, **options),
        "streamed alone": [maps[name] for maps in streamed],
        "streamed in a batch": [maps[name] for maps in streamed_together],
    }


@pytest.mark.parametrize("case", DISTINCT)
def test_in_float32_every_path_gives_the_paper(case: str) -> None:
    """float32 is the default, and the loops of `mixlens.fast.loops` that are compiled for it compute in another order.

    The reference is computed in float64 from the same weights. A score is a sum of products of float32 numbers behind
    three layers: 1e-4 of the score itself, and of a small one, which is the difference of two large ones, 1e-5 of the
    largest in its row (measured: 6e-6). Released Value Zeroing takes 1 - cos in float32, with a floor near 1e-7, and
    rounds a causal layer's to five decimals: a row of such distances may sum to 2e-3, so that one unit, which a number
    near its middle gains or loses on another processor, is 5e-3 of the row."""
    texts = [ids(4), ids(9, 1)]  # a head is eight wide: the second text has a null space, the first has none
    slow.same_weights(hf_model(case), hf_model(case, dtype=torch.float32))
    exact = [loaded(case).trace(input_ids=text) for text in texts]
    for name, variant in LAYERED:
        with torch.no_grad():
            expected = [slow.scores_of(trace, name, variant) for trace in exact]
            ratios = [slow.mixing_ratio(trace, STAGES[name]) if name in STAGES else None for trace in exact]
        small = 1e-2 if (name, variant) == ("value_zeroing", "released") else 1e-5
        for way, made in maps_in_float32(case, texts, name, variant).items():
            for one, right, ratio in zip(made, expected, ratios, strict=True):
                assert one.scores.dtype == torch.float32
                # What is left of attention, often nothing, is a difference of shares of a row.
                size = 1.0 if name == "null_attention" else right.abs().amax(-1, keepdim=True)
                apart = (one.scores.double() - right).abs() - 1e-4 * right.abs() - small * size
                assert float(apart.max()) <= 0, f"{name} ({variant}), {way}: {float(apart.max()):.1e} too far"
                if ratio is not None:
                    torch.testing.assert_close(one.info["mixing_ratio"].double(), ratio, rtol=1e-4, atol=1e-6)


def test_float32_uses_the_compiled_loops() -> None:
    """What the test above says of the compiled loops it says only where they are used."""
    from mixlens.fast import loops as kernels

    if kernels.used(torch.device("cpu")) == "plain":
        pytest.skip("needs a C compiler, and MIXLENS_KERNELS not set to plain")
    made = maps_in_float32("bert", [ids(7), ids(12, 1)], "globenc", "paper")
    assert {one.info["loops"] for maps in made.values() for one in maps} == {"c"}


def test_random_gives_these_numbers() -> None:
    """Seed, layer, target and source each count; the numbers stay the same from version to version."""
    trace = loaded("bert").trace(input_ids=ids(4))
    for seed, layer, i, expected in RANDOM:
        made = mixlens.mix(trace, "random", seed=seed).scores[layer, i]
        torch.testing.assert_close(made, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)
        torch.testing.assert_close(made, slow.random(trace, seed)[layer, i], rtol=1e-12, atol=0)


def test_random_looks_wherever_any_head_looks() -> None:
    """A weight too small for the number type is 0 in one head, and not in the others."""
    weights = torch.full((2, 3, 3), 1 / 3, dtype=torch.float64)
    weights[0, 1] = torch.tensor([0.5, 0.5, 0.0])
    weights[:, 2] = torch.tensor([0.0, 0.5, 0.5])
    block = SimpleNamespace(x=torch.zeros(3, 4, dtype=torch.float64), attention=weights, index=0, dtype=torch.float64)
    made = known()["random"].function(block)
    assert (made > 0).tolist() == [[True] * 3, [True] * 3, [False, True, True]]


def test_random_is_uniform_and_a_function_of_the_seed() -> None:
    trace = loaded("bert").trace(input_ids=ids(40))
    first, again, other = (mixlens.mix(trace, "random", seed=seed).scores for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    shares = (
        (first * 40).flatten().sort().values
    )  # a row of 40 uniform numbers sums to about 20, so shares are about 2 u
    assert abs(float(shares.mean()) - 1) < 0.01
    assert abs(float(shares.quantile(0.25)) - 0.5) < 0.06
    assert abs(float(shares.quantile(0.75)) - 1.5) < 0.06
    assert abs(float(torch.corrcoef(torch.stack([first[0].flatten(), first[1].flatten()]))[0, 1])) < 0.1


def test_several_methods_from_one_trace_equal_one_by_one() -> None:
    traces = loaded("bert").trace(input_ids=[ids(5), ids(8, 1)])
    together = mixlens.mix(traces, list(known()))
    for trace, maps in zip(traces, together, strict=True):
        for name, made in maps.items():
            torch.testing.assert_close(made.scores, mixlens.mix(trace, name).scores, rtol=0, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(
    length=st.integers(1, 20), seed=st.integers(0, 10_000), case=st.sampled_from(["bert", "gpt2", "gemma2", "gpt_neox"])
)
def test_any_input_gives_proven_maps(length: int, seed: int, case: str) -> None:
    trace = loaded(case).trace(input_ids=ids(length, seed))
    for made in mixlens.mix(trace, ["alti", "globenc", "value_zeroing"]).values():
        assert made.scores.shape == (3, length, length)
        assert made.info["gap"] < 1e-10


def test_one_token_is_all_itself() -> None:
    for case in CASES:
        trace = loaded(case).trace(input_ids=ids(1))
        for name, made in mixlens.mix(trace, list(known())).items():
            if known()[name].distribution:
                torch.testing.assert_close(made.scores, torch.ones(3, 1, 1, dtype=torch.float64))


def test_a_hole_in_the_mask_is_never_a_source() -> None:
    """A token hidden in the middle by the caller keeps its place, and nobody takes anything from it."""
    mask = [1, 1, 1, 0, 1, 1, 1]
    trace = loaded("bert").trace(input_ids=ids(7), attention_mask=mask)
    assert len(trace) == 7
    scores = mixlens.mix(trace, "value_zeroing").scores
    assert float(scores[:, [0, 1, 2, 4, 5, 6], 3].abs().max()) == 0


def test_value_zeroing_of_a_bfloat16_model_is_that_of_its_weights() -> None:
    """The layer is run again in float32: small changes do not drown in bfloat16 rounding."""
    half = mixlens.load(hf_model("bert"), dtype="bfloat16")
    scores = mixlens.mix(half.trace(input_ids=ids(6)), "value_zeroing").scores
    exact = mixlens.mix(loaded("bert").trace(input_ids=ids(6)), "value_zeroing").scores
    assert float((scores - exact).abs().max()) < 0.1


def test_a_query_is_an_index_or_a_token() -> None:
    trace = mixlens.load("agreement").trace("The keys [MASK] rusty.")
    place = trace.tokens.index("[MASK]")
    by_token, by_index = (mixlens.mix(trace, "value_zeroing", query=query) for query in ("[MASK]", place))
    assert torch.equal(by_token.scores, by_index.scores)
    assert (by_token.scores[:, place].sum(-1) > 0.99).all()
    assert asking.parse_method("value_zeroing:query=[MASK]").options == {"query": "[MASK]"}
    with pytest.raises(mixlens.MixlensError, match="index or a token"):
        mixlens.mix(trace, "value_zeroing", query=2.5)
