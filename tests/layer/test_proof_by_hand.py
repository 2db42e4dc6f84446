"""What is proven of a layer and of a model, on tensors written by hand: which gap is worst, what is allowed, what is refused."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from mixlens.base.errors import ModelError
from mixlens.base.rounding import EIGHT_BITS, EPS, LAYER_TOLERANCE, TOLERANCE, apart
from mixlens.layer import identities, proof
from mixlens.layer.identities import Identities, Unproven

# --- of a layer -----------------------------------------------------------------------------------------------------------


def block_of(dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
    block: Any = Identities()
    given: dict[str, Any] = {
        "layer": SimpleNamespace(input=torch.zeros(2, 4, dtype=dtype), parts=SimpleNamespace(layer=nn.Linear(1, 1))),
        **{
            "x": torch.ones(2, 4, dtype=dtype),
            "modules": SimpleNamespace(output=nn.Linear(1, 1)),
            "compared": {},
            "index": 3,
        },
        **{"norms": {}, "normed": {}, "bias": torch.zeros(4, dtype=dtype)},
    }
    vars(block).update({**given, **changes})
    return block


class Coarse(nn.Module):
    """A norm that computes in float32."""

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return u.float().double() * 2


def test_what_rounding_may_do() -> None:
    for dtype in (torch.float64, torch.float32, torch.float16):
        block = block_of(dtype)
        assert block.tolerance("parts") == TOLERANCE[dtype]
        assert block.tolerance("layer") == LAYER_TOLERANCE[dtype]
    coarse = block_of(modules=SimpleNamespace(output=nn.Linear(1, 1), norm_after_mlp=Coarse()))
    assert coarse.tolerance("layer") == LAYER_TOLERANCE[torch.float32]
    assert coarse.tolerance("stream") == TOLERANCE[torch.float32]
    assert coarse.tolerance("norm_after_mlp") == TOLERANCE[torch.float32]
    assert coarse.tolerance("parts") == TOLERANCE[torch.float64]
    assert (coarse.eps, block_of().eps) == (EPS[torch.float32], EPS[torch.float64])
    exact = block_of(modules=SimpleNamespace(output=nn.Linear(1, 1), norm_after_mlp=nn.Identity()))
    assert exact.tolerance("layer") == LAYER_TOLERANCE[torch.float64]
    assert coarse.rounds_inside(Coarse(), coarse.x)
    assert not block_of(torch.float32).rounds_inside(Coarse(), torch.ones(2, 4))


def test_what_modules_of_eight_bits_may_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "holds_eight_bits", lambda module: True)
    half = block_of(torch.float16)
    assert half.tolerance("parts") == max(TOLERANCE[torch.float16], 4 * EIGHT_BITS)
    assert half.tolerance("layer") == max(LAYER_TOLERANCE[torch.float16], 8 * EIGHT_BITS)
    assert block_of(torch.float32).tolerance("parts") == TOLERANCE[torch.float32]


def test_rounding_of_terms_that_cancel() -> None:
    attention = torch.tensor([[[0.5, 0.5], [1.0, 0.0]]], dtype=torch.float64)
    values = torch.tensor([[[3.0, 4.0], [-3.0, -3.5]]], dtype=torch.float64)
    made = block_of(attention=attention, values=values).rounding
    each = math.sqrt(0.25 * 25 + 0.25 * (9 + 12.25))
    assert made.tolist() == pytest.approx([each / 0.25, 1.0])


def whole_block(dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
    one = torch.arange(8.0, dtype=dtype).view(2, 4) + 1
    given = {
        "all_parts": one,
        "attention_output": one,
        "stream_after_mlp": one + 1,
        "output": one + 1,
        "middle": one + 3,
        "stream": one + 2,
    }
    return block_of(dtype, **{**given, **changes})


def test_identities_of_a_layer() -> None:
    block = whole_block()
    assert {name: (float(gap), allowed) for name, (gap, allowed) in block.identities.items()} == {
        "parts": (0.0, 1e-10),
        "stream": (0.0, 1e-10),
    }
    assert block.gaps == block.prove() == {"parts": 0.0, "stream": 0.0}
    block.bias = torch.full((4,), 0.5, dtype=torch.float64)
    gap = float(apart(block.all_parts, block.bias, block.attention_output))
    assert block.gaps["parts"] == pytest.approx(gap) != 0
    with pytest.raises(Unproven) as error:
        block.prove()
    told = f"layer 3: the model's own output does not match its parts (parts: relative gap {gap:.1e}, allowed 1e-10)."
    assert str(error.value).startswith(told)
    normed = {"norm_after_mlp": (block.output, None), "norm_on_attention": (block.stream - block.x, None)}
    normed["norm_after_attention"] = (block.middle + 1, None)
    norms = {"norm_on_attention": 1, "norm_after_attention": 1}
    after = whole_block(stream_after_mlp=None, normed=normed, norms=norms)
    gaps = after.gaps
    assert list(gaps) == ["parts", "stream", "norm_on_attention", "norm_after_attention"]
    assert (gaps["stream"], gaps["norm_on_attention"]) == (0.0, 0.0)
    assert gaps["norm_after_attention"] == pytest.approx(float(apart(after.middle + 1, None, after.middle)))


def test_identities_in_half_precision_are_over_their_rounding() -> None:
    wide = torch.arange(8.0).view(2, 4) + 1
    attention, values = torch.tensor([[[0.5, 0.5], [1.0, 0.0]]]), torch.tensor([[[3.0, 4.0], [-3.0, -3.5]]])
    given = {
        "all_parts": wide + 0.5,
        "attention_output": wide,
        "stream_after_mlp": wide,
        "output": wide,
        "attention": attention,
    }
    block = whole_block(torch.float16, **given, values=values, bias=torch.zeros(4), x=wide)
    over = wide + 0.5 / block.rounding[:, None]
    assert float(block.identities["parts"][0]) == pytest.approx(float(apart(over, None, wide)))


def test_what_a_method_compares_by_itself() -> None:
    block = whole_block()
    seen = torch.ones(2, 4, dtype=torch.float64)
    block.compare("layer", seen + 0.5, seen)
    block.compare("own", seen * 3, seen, allowed=0.25)
    compared = {name: (float(gap), allowed) for name, (gap, allowed) in block.compared.items()}
    assert compared == {"layer": (0.5, LAYER_TOLERANCE[torch.float64]), "own": (2.0, 0.25)}
    assert set(block.identities) == {"parts", "stream", "layer", "own"}
    half = block_of(torch.float16)
    half.compare("own", seen.half() + 0.5, seen.half())
    assert half.compared["own"][0].dtype == torch.float32
    told = identities.refusal("weights", 3.0, 1.0, 2)
    assert told.startswith(
        "layer 2: its modules give other answers than a moment ago (weights: 3.0e+00 times what rounding does)."
    )


# --- of a model -----------------------------------------------------------------------------------------------------------


def test_the_worst_gap_of_each_identity() -> None:
    worst = proof.Worst()
    for name, gap, allowed, layer in (
        ("layer", 0.5, 1.0, 0),
        ("parts", 0.0, 2.0, 0),
        ("layer", 0.25, 3.0, 1),
        ("layer", 0.5, 0.5, 2),
    ):
        worst.take(name, gap, allowed, layer)
    made = worst.proof(9)
    assert (made.gaps, list(made.gaps)) == (
        {"parts": 0.0, "layer": 0.5},
        [name for name in proof.IDENTITIES if name in ("parts", "layer")],
    )
    assert (made.allowed, made.worst_layer) == ({"layer": 3.0, "parts": 2.0}, {"layer": 2, "parts": 0})


def test_random_ids_are_no_padding() -> None:
    config = SimpleNamespace(vocab_size=3)
    model: Any = SimpleNamespace(hf_model=SimpleNamespace(config=config), pad_token=None)
    plain = proof.random_ids(model, 40)
    assert (set(plain), plain == proof.random_ids(model, 40), len(plain)) == ({0, 1, 2}, True, 40)
    for pad in (0, 2):
        model.pad_token = pad
        assert proof.random_ids(model, 40) == [(one + 1) % 3 if one == pad else one for one in plain]
    assert proof._ending_in_padding(model, [5, 6]) == [5, 2]
    assert proof._ending_in_padding(model, [5]) == [5]
    model.pad_token = None
    assert proof._ending_in_padding(model, [5, 6]) == [5, 6]


def test_embeddings_are_a_straight_line() -> None:
    base = torch.ones(1, 2, 4, dtype=torch.float64)

    def model(bent: float = 0.0, lost: float = 0.0, norm: Any = "a norm", missing: bool = False) -> Any:
        def embedded(encoded: Any, *, factor: float, instead: Any = None) -> Any:
            read = None if missing and factor == 1.0 else base * factor + base * 5 + bent * factor**2
            return read, base * (2.0 if instead is not None else factor) + (lost if instead is not None else 0.0)

        return SimpleNamespace(embedded=embedded, embedding_norm=norm)

    assert proof._embedding_gap(model(), None) == 0.0  # type: ignore[arg-type]
    assert proof._embedding_gap(model(bent=0.5), None) == pytest.approx(1 / 3)  # type: ignore[arg-type]
    assert proof._embedding_gap(model(lost=0.5), None) == pytest.approx(0.25)  # type: ignore[arg-type]
    assert proof._embedding_gap(model(bent=0.5, lost=0.5), None) == pytest.approx(1 / 3)  # type: ignore[arg-type]
    assert proof._embedding_gap(model(lost=0.5, norm=None), None) == 0.0  # type: ignore[arg-type]
    assert proof._embedding_gap(model(missing=True), None) == math.inf  # type: ignore[arg-type]


def test_the_position_that_a_head_reads() -> None:
    own = torch.ones(1, 2, dtype=torch.float64)

    def model(here: float, elsewhere: float) -> Any:
        def changed(encoded: Any, places: list[int]) -> torch.Tensor:
            assert encoded.input_ids == [5, 6, 0]
            return own + {(): 0.0, (1,): here, (0, 2): elsewhere}[tuple(places)]

        encode = lambda ids: SimpleNamespace(input_ids=ids)  # noqa: E731
        return SimpleNamespace(pad_token=0, encode_ids=encode, changed_logits=changed, dtype=torch.float64)

    assert proof._head_gap(model(1.0, 0.0), [5, 6, 7]) == 0.0
    assert proof._head_gap(model(1.0, 0.25), [5, 6, 7]) == pytest.approx(0.25)
    assert proof._head_gap(model(1e-9, 0.0), [5, 6, 7]) == math.inf


def test_weights_that_are_no_numbers() -> None:
    model: Any = SimpleNamespace(hf_model=nn.Linear(2, 2), name="tiny")
    proof._refuse_not_finite(model)
    model.hf_model.register_buffer("count", torch.tensor([1]))
    with torch.no_grad():
        model.hf_model.bias[1] = math.nan
    with pytest.raises(
        ModelError, match=r"^'tiny' holds NaN or infinite weights in 'bias'\. Use an intact checkpoint\.$"
    ):
        proof._refuse_not_finite(model)
    kinds = {
        torch.float16: torch.float64,
        torch.float32: torch.float64,
        torch.float64: torch.float64,
        torch.bfloat16: torch.float32,
    }
    assert {one: proof._sum_dtype(torch.zeros(1, dtype=one)) for one in kinds} == kinds
