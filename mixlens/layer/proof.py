"""A family's entry is not believed: every identity it implies is checked on the model itself.

Run when a model is loaded (a short random input) and by `mixlens check`. A model that fails is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import ModelError
from ..model.attention import values_in
from ..model.encode import Encoded
from ..model.model import Model
from ..model.offload import linearity_hint, weights_of
from ..model.predict import head_position, is_causal
from ..rounding import TOLERANCE, gap, working_dtype
from .block import Block

IDENTITIES = {
    "values": "what `value` put out is what attention used, laid out as the entry says",
    "norm_before_attention": "attention read the layer's input through the norm before it",
    "parts": "the parts of all source tokens, bias included, sum to what attention wrote",
    "stream": "residuals, branch norms and norms on the stream give the layer's output",
    "norm_before_mlp": "the feed-forward read what the entry says it reads",
    "mlp": "up, gate, activation and down give what the feed-forward wrote",
    "norm_on_attention": "the norm on attention's branch, frozen, gives what the norm gives",
    "norm_after_attention": "the norm after attention, frozen, gives what the norm gives",
    "norm_after_mlp": "the norm after the feed-forward, frozen, gives what the norm gives",
    "layer": "the layer rebuilt from its parts gives the next layer's input",
    "head": "the classifier reads the last token that is not padding",
    "embeddings": "the first layer reads the embeddings through the embedding norm that the entry names, and through no other",
}


@dataclass(frozen=True)
class Proof:
    """The largest relative gap of each identity over all layers, and what rounding may do."""

    gaps: dict[str, float]
    allowed: dict[str, float]
    worst_layer: dict[str, int]
    tokens: int

    @property
    def failed(self) -> list[str]:
        return [name for name, value in self.gaps.items() if not value <= self.allowed[name]]

    @property
    def gap(self) -> float:
        """The largest gap of the layers rebuilt from their parts."""
        return max(self.gaps[name] for name in ("parts", "stream", "layer"))


def measure(model: Model, input_ids: Sequence[int] | None = None, *, tokens: int = 9) -> Proof:
    """Every identity on one input (random ids unless given), without judging it."""
    limit = model.max_tokens or tokens
    if input_ids is None:
        seeded = torch.Generator(device="cpu").manual_seed(0)
        pad, shape = getattr(model.hf_model.config, "pad_token_id", None), (min(tokens, limit),)
        drawn = torch.randint(0, model.hf_model.config.vocab_size, shape, generator=seeded, device="cpu").tolist()
        input_ids = [i if i != pad else (i + 1) % model.hf_model.config.vocab_size for i in drawn]
    encoded = model.encode_ids(list(input_ids))
    traces, records = model.run_traced([encoded], watch=True)
    gaps: dict[str, float] = {}
    allowed: dict[str, float] = {}
    worst: dict[str, int] = {}
    with model.computing(), torch.no_grad():
        for index, record in enumerate(records):
            block = Block(traces[0].layers[index], index)
            after = records[index + 1]["input"][0].to(block.output.device) if index + 1 < len(records) else block.output
            for name, value in {**block.gaps, **_more_gaps(block, record, after)}.items():
                allowed[name] = max(block.tolerance(name), allowed.get(name, 0.0))
                if value >= gaps.get(name, -1.0):
                    gaps[name], worst[name] = value, index
        gaps["embeddings"], worst["embeddings"] = _embedding_gap(model, encoded), 0
        allowed["embeddings"] = TOLERANCE[model.dtype]
        if model.task == "classification" and is_causal(traces[0]):
            gaps["head"], worst["head"] = _head_gap(model, list(input_ids)), len(records) - 1
            allowed["head"] = TOLERANCE[model.dtype]
    return Proof({name: gaps[name] for name in IDENTITIES if name in gaps}, allowed, worst, len(input_ids))


def _embedding_gap(model: Model, encoded: Encoded) -> float:
    """Embeddings of no length, as they are, and twice as long: a straight line in what the norm reads (without one: the first
    layer), unless another norm came before. And what it reads is all that the first layer knows of them."""
    (none, _), (once, _), (twice, expected) = (model.embedded(encoded, factor=factor) for factor in (0.0, 1.0, 2.0))
    if none is None or once is None or twice is None:
        return float("inf")
    _, reached = model.embedded(encoded, factor=1.0, instead=twice)
    straight = gap(twice - none, 2 * (once - none))
    return straight if model.embedding_norm is None else max(straight, gap(reached, expected))


def _head_gap(model: Model, ids: list[int]) -> float:
    """Of a decoder's classifier: nothing but the token at `head_position` reaches its logits. Another last hidden state there
    changes them; other ones elsewhere do not."""
    pad = getattr(model.hf_model.config, "pad_token_id", None)
    ids = ids if pad is None or len(ids) < 2 else [*ids[:-1], pad]  # a text may end in the padding token
    encoded = model.encode_ids(ids)
    place = head_position(model, encoded.input_ids)

    def logits(changed: Sequence[int]) -> Tensor:
        return model.changed_logits(encoded, changed)

    own, others = logits([]), [i for i in range(len(encoded.input_ids)) if i != place]
    moved = gap(logits(others), own) if others else 0.0
    return moved if gap(logits([place]), own) > 100 * TOLERANCE[model.dtype] else float("inf")


def _more_gaps(block: Block, record: dict[str, Any], after: Tensor) -> dict[str, float]:
    """What only a watched pass can see: what the values and the feed-forward read."""
    part, dtype = block.modules, block.layer.input.dtype
    read = {"norm_before_attention": block.layer.input, "norm_before_mlp": block.layer.input if part.parallel else block.middle}
    seen = {"norm_before_attention": record["attention_input"][0], "norm_before_mlp": record["mlp_input"][0]}
    gaps = {name: gap(block.called(name, read[name]), seen[name]) for name in read}
    gaps["values"] = gap(values_in(part, record["value_seen"][0], block.layer.value), block.layer.value)
    gaps["mlp"] = gap(part.mlp(seen["norm_before_mlp"]), block.layer.mlp_output)
    gaps["stream"] = gap(block.called("norm_after_mlp", block.stream_after_mlp), block.output)
    for place, norm in block.norms.items():
        gaps[place] = gap(norm(block.read(place)), block.called(place, block.read(place)))
    if part.norm_after_attention is not None:
        gaps["norm_after_attention"] = max(
            gaps["norm_after_attention"], gap(block.called("norm_after_attention", block.stream), block.middle)
        )
    rebuilt = block.after_attention(block.all_parts + block.bias)
    gaps["layer"] = gap(rebuilt.to(working_dtype(dtype)), after)
    return gaps


def measured(model: Model, input_ids: Sequence[int] | None = None, *, tokens: int = 9) -> Proof:
    """Measure, and refuse a model whose numbers are not finite or whose parts do not even fit together."""
    for name, weights in weights_of(model.hf_model):
        if weights.is_floating_point() and not bool(torch.isfinite(weights.sum(dtype=_sum_dtype(weights)))):
            raise ModelError(f"{model.name!r} holds NaN or infinite weights in {name!r}. Use an intact checkpoint.")
    try:
        return measure(model, input_ids, tokens=tokens)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{model.name!r} is not what the family entry {model.family.name!r} says: its parts do not fit together "
            f"({' '.join(str(error).split())[:160]}). See docs/extend/add-a-family.md."
        ) from error


def check(model: Model, input_ids: Sequence[int] | None = None, *, tokens: int = 9) -> Proof:
    """Measure, and refuse a model that is not what its family's entry says."""
    proof = measured(model, input_ids, tokens=tokens)
    if proof.failed:
        name = proof.failed[0]
        raise ModelError(
            f"{model.name!r} is not what the family entry {model.family.name!r} says: {IDENTITIES[name]} - but the relative gap "
            f"is {proof.gaps[name]:.1e} in layer {proof.worst_layer[name]} (allowed {proof.allowed[name]:.0e} for "
            f"{str(model.dtype).removeprefix('torch.')}). {len(proof.failed)} of {len(proof.gaps)} identities fail. "
            "No map would be true, so the model is refused. See docs/extend/add-a-family.md."
            + linearity_hint([model.parts[min(proof.worst_layer[name], len(model.parts) - 1)].layer])
        )
    return proof


def _sum_dtype(weights: Tensor) -> torch.dtype:
    return torch.float64 if weights.dtype in (torch.float16, torch.float32, torch.float64) else torch.float32
