"""`fast/` gives the numbers of `layer/`: every verb of Block and Parts, in every family, alone, in a batch, layers at
once.

Both are float64. They sum in other orders, so they agree to 1e-9 of the largest entry, and not to the bit. Norms that
compute in float32 whatever the model's number type (`ROUNDED_NORMS`) are called by one and frozen by the other: 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import CONFIGURATIONS, DISTINCT, ROUNDED_NORMS, ids, loaded

import mixlens
from mixlens import fast, layer
from mixlens.fast import block as fast_block
from mixlens.fast import parts as fast_parts
from mixlens.layer import block as layer_block
from mixlens.methods import value_zeroing
from mixlens.scoring import batches
from mixlens.scoring import maps as scoring_maps

CASES = list(CONFIGURATIONS)
VALUES = (
    *("x", "attention", "values", "projection", "bias", "reach", "value_bias", "head_vectors", "own_part", "all_parts"),
    *(
        "stream",
        "middle",
        "mlp_output",
        "stream_after_mlp",
        "attention_output",
        "output",
        "head_width",
        "rounding",
        "eps",
    ),
)
BLOCK_VERBS: dict[str, Callable[[Any], Any]] = {
    "whole_gap": lambda block: block.whole_gap(block.all_parts + 1, block.bias, block.attention_output),
    **{name: (lambda block, name=name: getattr(block, name)) for name in VALUES},
    "part": lambda block: block.part(2),
    "written_by": lambda block: [block.written_by(head) for head in (0, 3)],
    "projected": lambda block: block.projected(block.attention @ block.values),
    "output_weight": lambda block: block.output_weight(),
    "seen": lambda block: block.seen("output"),
    "of_targets": lambda block: block.of_targets(block.x),
    "first_target": lambda block: torch.tensor(block.first_target),
    "has": lambda block: torch.tensor(block.has("norm_before_mlp")),
    "read": lambda block: [block.read(place) for place in block.norms],
    "called": lambda block: block.called("norm_after_mlp", block.stream),
    "frozen": lambda block: [block.frozen(getattr(block.modules, place)).gamma for place in block.norms],
    "norms": lambda block: [norm.gamma for norm in block.norms.values()],
    "normed": lambda block: [tensor for pair in block.normed.values() for tensor in pair],
    "passed": lambda block: [norm.gamma for norm in block.passed(list(block.norms))[0]],
    "chain": lambda block: [block.chain(stage).part(block.x) for stage in layer_block.STAGES],
    "after_attention": lambda block: block.after_attention(block.attention_output * 1.1),
    "wide_modules": lambda block: block.wide_modules.mlp(block.x),
    "moved_without_each": lambda block: [
        block.moved_without_each(measure, lambda vectors: vectors, block.output.unsqueeze(-3))
        for measure in (value_zeroing.cosine, value_zeroing.euclidean)
    ],
    "at": lambda block: [block.at(slice(1, 3)).stream, block.at(slice(1, 3)).attention, block.at(slice(1, 3)).output],
    "parts": lambda block: [block.parts(stage).lengths() for stage in layer_block.STAGES],
    "rebuilt": lambda block: [tensor for three in block.rebuilt.values() for tensor in three if tensor is not None],
    "apart": lambda block: block.apart(block.x, None, block.output),
    "tolerance": lambda block: torch.tensor([block.tolerance(name) for name in ("parts", "stream", "layer")]),
    "rounds_inside": lambda block: (
        torch.tensor(block.rounds_inside(block.modules.output, block.attention_output * 0 + 1))
        if block.modules.output.weight.shape[0] == block.modules.output.weight.shape[1]
        else torch.zeros(())
    ),
}
# What says how far a block is from the model: gaps are rounding, so they are compared with their tolerance alone.
GAPS = {"identities", "gaps", "prove", "compare", "refusal", "compared"}
DATA = {"layer", "index", "modules", "dtype", "targets", "is_stock"}
PART_VERBS: dict[str, Callable[[Any], Any]] = {
    "lengths": lambda parts: parts.lengths(),
    "others": lambda parts: parts.others(),
    "head_lengths": lambda parts: [parts.head_lengths(head) for head in (0, 3)],
    "nearer": lambda parts: parts.nearer(parts.block.middle, shift=-1e-6),
    "each": lambda parts: [vectors for _, vectors in parts.each()],
    "reciprocals": lambda parts: list(parts.reciprocals),
    "scaled": lambda parts: [
        of(parts.scaled(parts.block.x.norm(dim=-1, keepdim=True)))
        for of in (lambda one: one.nearer(one.block.middle), lambda one: one.lengths(), lambda one: one.others())
    ],
}


def same(fast_value: Any, plain_value: Any, loose: float) -> None:
    if isinstance(plain_value, list):
        assert len(fast_value) == len(plain_value)
        for one, other in zip(fast_value, plain_value, strict=True):
            same(one, other, loose)
    elif isinstance(plain_value, torch.Tensor) and plain_value.is_floating_point():
        scale = float(plain_value.abs().max()) if plain_value.numel() else 1.0
        torch.testing.assert_close(fast_value, plain_value, rtol=0, atol=loose * max(scale, 1e-300))
    else:
        assert torch.equal(torch.as_tensor(fast_value), torch.as_tensor(plain_value))


def test_every_verb_is_compared() -> None:
    """A verb that is added to the plain block or to the parts is compared here, or this fails."""
    block = layer.Block(loaded("bert").trace(input_ids=ids(4)).layers[0])
    names = {name for name in {*dir(block)} if not name.startswith("_")}
    assert names == {*BLOCK_VERBS, *GAPS, *DATA}
    assert {name for name in vars(layer.Parts) if not name.startswith("_")} == set(PART_VERBS)


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_every_verb_of_a_block_is_the_plain_one(case: str) -> None:
    loose = 1e-5 if case in ROUNDED_NORMS else 1e-9
    traces = loaded(case).trace(input_ids=[ids(6), ids(4, seed=1)])
    batch = batches.stacked([trace.layers[1] for trace in traces])
    for one in (traces[0].layers[1], batch):
        quick, plain = fast_block.Block(one, 1), layer.Block(one, 1)
        for name, verb in BLOCK_VERBS.items():
            if name == "value_bias" or (name == "at" and one is batch):
                continue
            same(verb(quick), verb(plain), loose)
        for stage in layer_block.STAGES:
            for verb in PART_VERBS.values():
                same(verb(quick.parts(stage)), verb(plain.parts(stage)), loose)
        assert isinstance(quick.parts("norm"), fast_parts.Parts)
        gaps = plain.prove()
        assert {*quick.prove()} - {"weights"} == {*gaps}


@pytest.mark.parametrize("case", DISTINCT)
def test_every_map_without_fast_is_the_map(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loose = 1e-5 if case in ROUNDED_NORMS else 1e-8
    traces = loaded(case).trace(input_ids=[ids(6), ids(4, seed=1)])
    names = [name for name, entry in scoring_maps.known().items() if not entry.whole]
    quick = [mixlens.mix(trace, names) for trace in traces]
    monkeypatch.setenv("MIXLENS_FAST", "off")
    assert type(fast.block_of(traces[0].layers[0])) is layer.Block
    for maps in (mixlens.mix(traces, names), quick):
        for trace, one in zip(traces, maps, strict=True):
            for name in names:
                plain = mixlens.mix(trace, name).scores
                same(one[name].scores, plain, loose)
