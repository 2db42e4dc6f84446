"""Heads: what each wrote adds up to what the model wrote, and every method by head is its paper written out, head by
head.

Everything is float64 with random biases, in every family: grouped queries, windows, norms on the branch, parallel
feed-forwards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import papers_written_out as slow
import pytest
import torch
from conftest import CONFIGURATIONS, DISTINCT, ROUNDED_NORMS, ROUNDED_STREAM, ids, loaded
from torch import Tensor

import mixlens
from mixlens.layer import block as layer_block
from mixlens.scoring import asking, maps

CASES = list(CONFIGURATIONS)
BY_HEAD = ["attention", "effective_attention", "null_attention", "norm", "norm_residual", "norm_residual_ln", "globenc"]
SHAPES = ["bert", "albert", "modernbert", "gpt2", "gpt_neo", "gpt_bigcode", "llama", "mistral", "gemma2", "phi"]
HEADS = 4  # of every tiny configuration


def head_vectors(layer: Any, head: int, stage: str) -> Tensor:
    """P a^h_ij W_O^h v^h_j / p_i, [query, key, d], pair by pair: one head of one source through the model's own
    modules."""
    attention, value, parts, x, a = layer.attention, layer.value, layer.parts, layer.input, layer.attention_output
    heads, n, _ = attention.shape
    groups, _, e = value.shape
    nothing = parts.output(torch.zeros(1, heads * e, dtype=value.dtype))[0]
    u = x + (parts.norm_on_attention(a) if parts.norm_on_attention is not None else a)
    middle = parts.norm_after_attention(u) if parts.norm_after_attention is not None else u
    written = parts.norm_on_mlp(layer.mlp_output) if parts.norm_on_mlp is not None else layer.mlp_output
    w = torch.zeros(n, n, len(nothing), dtype=value.dtype)
    for i in range(n):
        for j in range(n):
            one_head = torch.zeros(1, heads * e, dtype=value.dtype)
            one_head[0, head * e : (head + 1) * e] = value[head // (heads // groups), j]
            w[i, j] = attention[head, i, j] * (parts.output(one_head)[0] - nothing)
            if stage != "attention":
                w[i, j] = slow.frozen(parts.norm_on_attention, w[i, j], a[i])
            if stage in ("norm", "layer"):
                w[i, j] = slow.frozen(parts.norm_after_attention, w[i, j], u[i])
            if stage == "layer":
                w[i, j] = slow.frozen(parts.norm_after_mlp, w[i, j], (middle + written)[i])
    return w


@pytest.mark.parametrize("case", CASES)
def test_heads_and_the_bias_are_what_the_model_wrote(case: str) -> None:
    """sum_h z^h + b_O = what W_O wrote. Softmax computes in float32 in some models, hence 1e-6 of the largest entry."""
    trace = loaded(case).trace(input_ids=ids(7))
    with torch.no_grad():
        for layer in trace.layers:
            block = layer_block.Block(layer)
            wholes = torch.stack([block.written_by(head) for head in range(HEADS)])
            whole = wholes.sum(0) + block.bias
            assert float((whole - layer.attention_output).abs().max()) < 1e-6 * float(
                layer.attention_output.abs().max()
            )
            assert float((wholes.sum(0) - block.all_parts).abs().max()) < 1e-12  # the same sums in another order
            assert all(float(one.abs().max()) > 1e-3 for one in wholes)  # each of them has a share


@pytest.mark.parametrize("case", CASES)
def test_norms_by_head_are_the_length_of_each_vector(case: str) -> None:
    """|a^h_ij f^h_j| at each stage, pair by pair; the residual and all biases but the value's are in no head.

    Norms that compute in float32 whatever the dtype differ from the equation by that much."""
    trace = loaded(case).trace(input_ids=ids(5))
    close = 1e-6 if case in {*ROUNDED_NORMS, *ROUNDED_STREAM} else 1e-9
    with torch.no_grad():
        for name, stage in slow.STAGES.items() if case in SHAPES else [("globenc", "layer")]:
            made = mixlens.mix(trace, name, head="all")
            for index, layer in enumerate(trace.layers):
                for head in (0, 3):
                    expected = head_vectors(layer, head, stage).norm(dim=-1)
                    torch.testing.assert_close(made.scores[index, head], expected, rtol=close, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_attention_by_head_is_the_models_own(case: str) -> None:
    trace = loaded(case).trace(input_ids=ids(6))
    made = mixlens.mix(trace, "attention", head="all")
    torch.testing.assert_close(
        made.scores, torch.stack([layer.attention for layer in trace.layers]), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in BY_HEAD for case in (DISTINCT if name == "globenc" else SHAPES)]
)
def test_all_heads_one_head_batches_and_fast_agree(case: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One head is a slice of all of them; a batch with longer neighbours and `MIXLENS_FAST=off` change nothing.

    1e-9: the same sums in another order; norms in float32 are called by one and frozen by the other, 1e-5."""
    model, texts = loaded(case), [ids(9), ids(4, 1), ids(6, 2)]
    alone = [mixlens.mix(model.trace(input_ids=text), name, head="all") for text in texts]
    for batched, one in zip(mixlens.mix(model.trace(input_ids=texts), name, head="all"), alone, strict=True):
        torch.testing.assert_close(batched.scores, one.scores, rtol=0, atol=1e-10)
        assert batched.tokens == one.tokens
    trace = model.trace(input_ids=texts[0])
    single = mixlens.mix(trace, name, head=2)
    torch.testing.assert_close(alone[0].head(2).scores, single.scores, rtol=0, atol=1e-12)
    assert alone[0].head(2).info["options"] == single.info["options"]
    torch.testing.assert_close(
        model.mix(input_ids=texts[0], name=name, head="all").scores, alone[0].scores, rtol=0, atol=1e-10
    )
    monkeypatch.setenv("MIXLENS_FAST", "off")
    plain = mixlens.mix(trace, name, head="all").scores
    torch.testing.assert_close(plain, alone[0].scores, rtol=0, atol=1e-5 if case in ROUNDED_NORMS else 1e-9)


def test_a_causal_head_does_not_look_ahead() -> None:
    for name in BY_HEAD:
        scores = mixlens.mix(loaded("llama").trace(input_ids=ids(9)), name, head="all").scores
        assert not scores.triu(1).any(), name


def test_the_value_is_a_value(tmp_path: Path) -> None:
    trace = loaded("bert").trace(input_ids=ids(6))
    heads = mixlens.mix(trace, "norm", head="all")
    assert list(heads.to_numpy().shape) == [3, HEADS, 6, 6]
    one = heads.layer(-1)
    assert torch.equal(one.scores, heads.scores[2:])
    assert one.info["layer"] == 2
    heads.save(tmp_path / "heads.safetensors")
    again = mixlens.load_result(tmp_path / "heads.safetensors")
    assert isinstance(again, mixlens.HeadMaps)
    assert torch.equal(again.scores, heads.scores)
    assert (again.tokens, again.method, again.special) == (heads.tokens, heads.method, heads.special)
    frame = heads.to_pandas()
    row = frame[(frame.layer == 1) & (frame["head"] == 3) & (frame["query"] == 4) & (frame.key == 2)]
    assert row.score.item() == float(heads.scores[1, 3, 4, 2])
    with pytest.raises(mixlens.MixlensError, match="the words are not known"):
        heads.by_word()
    for wrong in (4, -1, True, "x"):
        with pytest.raises(mixlens.MixlensError, match="does not exist: a layer has heads 0 to 3"):
            heads.head(wrong)  # type: ignore[arg-type]
    with pytest.raises(mixlens.MixlensError, match="there are 3 layers, 0 to 2"):
        heads.layer(3)


def test_what_has_no_heads_is_refused_in_one_line() -> None:
    trace = loaded("bert").trace(input_ids=ids(4))
    assert [name for name, entry in maps.known().items() if entry.has_heads] == BY_HEAD
    for name in ("alti", "value_zeroing", "attention_fixed_residual", "attention_residual", "random"):
        with pytest.raises(mixlens.MixlensError, match=r"has no option 'head'.*By head: attention, ") as refusal:
            mixlens.mix(trace, name, head=1)
        assert "\n" not in str(refusal.value)
    for wrong in (4, -1, "every", True):
        with pytest.raises(mixlens.MixlensError, match=r"heads 0 to 3, or 'all'|is of type"):
            mixlens.mix(trace, "norm", head=wrong)
    with pytest.raises(mixlens.MixlensError, match="gives a map for each head"):
        mixlens.attribute(trace, "attention", head="all")
    with pytest.raises(mixlens.MixlensError, match="gives a map for each head"):
        asking.parse_method("attention:head=all")
