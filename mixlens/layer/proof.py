"""A family's entry is not believed: every identity it implies is checked on the model itself.

Run when a model is loaded (a short random input) and by `mixlens check`. A model that fails is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import ModelError
from ..base.rounding import TOLERANCE, gap, working_dtype
from ..model.attention import values_in
from ..model.encode import Encoded
from ..model.model import Model
from ..model.offload import linearity_hint, weights_of
from ..model.predict import head_position, is_causal
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
    "embeddings": "the first layer reads the embeddings through the embedding norm that the entry names, and through no other",  # noqa: E501
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
    ids = random_ids(model, min(tokens, model.max_tokens or tokens)) if input_ids is None else list(input_ids)
    encoded = model.encode_ids(ids)
    traces, records = model.run_traced([encoded], watch=True)
    worst = Worst()
    with model.computing(), torch.no_grad():
        for index, record in enumerate(records):
            block = Block(traces[0].layers[index], index)
            following = (
                records[index + 1]["input"][0].to(block.output.device) if index + 1 < len(records) else block.output
            )
            for name, value in {**block.gaps, **_more_gaps(block, record, following)}.items():
                worst.take(name, value, block.tolerance(name), index)
        worst.take("embeddings", _embedding_gap(model, encoded), TOLERANCE[model.dtype], 0)
        if model.task == "classification" and is_causal(traces[0]):
            worst.take("head", _head_gap(model, ids), TOLERANCE[model.dtype], len(records) - 1)
    return worst.proof(len(ids))


def random_ids(model: Model, count: int) -> list[int]:
    """Ids of random tokens, the same in every call; none of them is the padding token."""
    config, seeded = model.hf_model.config, torch.Generator(device="cpu").manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (count,), generator=seeded, device="cpu").tolist()
    return [i if i != model.pad_token else (i + 1) % config.vocab_size for i in ids]


class Worst:
    """The largest gap of each identity so far, how large it may be, and the layer that it is in."""

    def __init__(self) -> None:
        self.gaps: dict[str, float] = {}
        self.allowed: dict[str, float] = {}
        self.layers: dict[str, int] = {}

    def take(self, name: str, gap: float, allowed: float, layer: int) -> None:
        self.allowed[name] = max(allowed, self.allowed.get(name, 0.0))
        if gap >= self.gaps.get(name, -1.0):
            self.gaps[name], self.layers[name] = gap, layer

    def proof(self, tokens: int) -> Proof:
        """The gaps in the order of IDENTITIES."""
        return Proof(
            {name: self.gaps[name] for name in IDENTITIES if name in self.gaps}, self.allowed, self.layers, tokens
        )


def _embedding_gap(model: Model, encoded: Encoded) -> float:
    """Embeddings of no length, as they are, and twice as long: a straight line in what the norm reads (without one: the
    first layer), unless another norm came before. And what it reads is all that the first layer knows of them."""
    (none, _), (once, _), (twice, expected) = (model.embedded(encoded, factor=factor) for factor in (0.0, 1.0, 2.0))
    if none is None or once is None or twice is None:
        return float("inf")
    _, reached = model.embedded(encoded, factor=1.0, instead=twice)
    straight = gap(twice - none, 2 * (once - none))
    return straight if model.embedding_norm is None else max(straight, gap(reached, expected))


def _head_gap(model: Model, ids: list[int]) -> float:
    """Of a decoder's classifier: nothing but the token at `head_position` reaches its logits. Another last hidden state
    there changes them; other ones elsewhere do not."""
    encoded = model.encode_ids(_ending_in_padding(model, ids))
    place = head_position(model, encoded.input_ids)
    others = [i for i in range(len(encoded.input_ids)) if i != place]
    own = model.changed_logits(encoded, [])
    elsewhere = gap(model.changed_logits(encoded, others), own) if others else 0.0
    here = gap(model.changed_logits(encoded, [place]), own)
    return elsewhere if here > 100 * TOLERANCE[model.dtype] else float("inf")


def _ending_in_padding(model: Model, ids: list[int]) -> list[int]:
    """The ids with the padding token at the end, where there is one: a text may end in it."""
    return ids if model.pad_token is None or len(ids) < 2 else [*ids[:-1], model.pad_token]


def _more_gaps(block: Block, record: dict[str, Any], following: Tensor) -> dict[str, float]:
    """What only a watched pass can see: what the values and the feed-forward read. `following`: what the next layer
    reads."""
    part, dtype = block.modules, block.layer.input.dtype
    read = {
        "norm_before_attention": block.layer.input,
        "norm_before_mlp": block.layer.input if part.parallel else block.middle,
    }
    seen = {"norm_before_attention": record["attention_input"][0], "norm_before_mlp": record["mlp_input"][0]}
    gaps = {name: gap(block.called(name, read[name]), seen[name]) for name in read}
    gaps["values"] = gap(values_in(part, record["value_seen"][0], block.layer.value), block.layer.value)
    gaps["mlp"] = gap(
        part.mlp(seen["norm_before_mlp"].unsqueeze(0))[0], block.layer.mlp_output
    )  # as a batch, for hooks
    gaps["stream"] = gap(block.called("norm_after_mlp", block.stream_after_mlp), block.output)
    rebuilt = block.after_attention(block.all_parts + block.bias)
    return gaps | _norm_gaps(block) | {"layer": gap(rebuilt.to(working_dtype(dtype)), following)}


def _norm_gaps(block: Block) -> dict[str, float]:
    """By how much each frozen norm differs from the norm; and the norm after attention from what the model wrote
    there."""
    gaps = {
        place: gap(norm(block.read(place)), block.called(place, block.read(place)))
        for place, norm in block.norms.items()
    }
    if "norm_after_attention" in gaps:
        written = gap(block.called("norm_after_attention", block.stream), block.middle)
        gaps["norm_after_attention"] = max(gaps["norm_after_attention"], written)
    return gaps


def measured(model: Model, input_ids: Sequence[int] | None = None, *, tokens: int = 9) -> Proof:
    """Measure, and refuse a model whose numbers are not finite or whose parts do not even fit together."""
    _refuse_not_finite(model)
    try:
        return measure(model, input_ids, tokens=tokens)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{model.name!r} is not what the family entry {model.family.name!r} says: its parts do not fit together "
            f"({' '.join(str(error).split())[:160]}). See docs/extend/add-a-family.md."
        ) from error


def _refuse_not_finite(model: Model) -> None:
    for name, weights in weights_of(model.hf_model):
        if weights.is_floating_point() and not bool(torch.isfinite(weights.sum(dtype=_sum_dtype(weights)))):
            raise ModelError(f"{model.name!r} holds NaN or infinite weights in {name!r}. Use an intact checkpoint.")


def check(model: Model, input_ids: Sequence[int] | None = None, *, tokens: int = 9) -> Proof:
    """Measure, and refuse a model that is not what its family's entry says."""
    proof = measured(model, input_ids, tokens=tokens)
    if proof.failed:
        raise ModelError(_refusal(model, proof, proof.failed[0]))
    return proof


def _refusal(model: Model, proof: Proof, name: str) -> str:
    """The line that says which identity fails, by how much and in which layer."""
    layer = proof.worst_layer[name]
    return (
        f"{model.name!r} is not what the family entry {model.family.name!r} says: {IDENTITIES[name]} - but the "
        f"relative gap "
        f"is {proof.gaps[name]:.1e} in layer {layer} (allowed {proof.allowed[name]:.0e} for "
        f"{str(model.dtype).removeprefix('torch.')}). {len(proof.failed)} of {len(proof.gaps)} identities fail. "
        "No map would be true, so the model is refused. See docs/extend/add-a-family.md."
        + linearity_hint([model.parts[min(layer, len(model.parts) - 1)].layer])
    )


def _sum_dtype(weights: Tensor) -> torch.dtype:
    return torch.float64 if weights.dtype in (torch.float16, torch.float32, torch.float64) else torch.float32
