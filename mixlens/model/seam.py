"""The seam: our function in the public attention registry of transformers, which hands over queries, keys and values.

They come after head splitting and position rotation, whatever the family. The stock model's code is not changed: its
configurations name our function for the length of a pass, and their own one again when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.errors import ModelError
from .attention import attention_weights, repeat_heads
from .passes import current_pass, within_pass

if TYPE_CHECKING:
    from .record import Recorder

REGISTERED = "mixlens"  # our name in the attention registry of transformers
UNKNOWN = ("position_bias", "s_aux")  # options of attention that are not modelled


def configurations(model: nn.Module) -> list[Any]:
    """The configurations by which modules choose their attention; a copied layer may have one of its own."""
    configs = (module.__dict__.get("config") for module in model.modules())
    return list({id(config): config for config in configs if hasattr(config, "_attn_implementation")}.values())


@contextmanager
def registered_attention(configs: Sequence[Any], *, capped: bool = True) -> Iterator[None]:
    """Our attention function for the length of the block, then the model's own again.

    `capped`: whether it caps logits where a layer asks for that. Some functions of transformers ignore the cap, and a trace is
    of what the model does.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(REGISTERED, _attention)
    AttentionMaskInterface.register(REGISTERED, _mask)
    names = [config._attn_implementation for config in configs]
    with within_pass(capped=capped):
        try:
            for config in configs:
                config._attn_implementation = REGISTERED
            yield
        finally:
            for config, name in zip(configs, names, strict=True):
                config._attn_implementation = name


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Our entry in the attention registry: it notes its arguments, then lets the fast kernel do the work."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    _refuse_unknown(module, options)
    if not current_pass().capped:
        options.pop("softcap", None)
    softcap, scaling = options.get("softcap"), _scaling(query, options)
    recorder = current_pass().recorder
    if recorder is not None:
        recorder.put_attention(query, key, value, attention_mask, scaling, softcap)
    # The fast kernel cannot cap logits, nor show or change its weights; for float32 on a GPU there is none.
    if softcap is not None or _shows_weights(recorder):
        return _written_out(query, key, value, attention_mask, scaling, softcap, recorder), None
    if _is_recording(recorder) and quicker_written_out(query):
        return _written_out(query * scaling, key, value, attention_mask, 1.0, None, recorder), None
    output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return output, None


def _is_recording(recorder: Recorder | None) -> bool:
    """Does a recorder follow a layer that has begun?"""
    return recorder is not None and bool(recorder.records)


def _scaling(query: Tensor, options: dict[str, Any]) -> float:
    """The factor of the logits: e^-1/2 where the model names none."""
    scaling = options.get("scaling")
    return query.shape[-1] ** -0.5 if scaling is None else scaling


def _refuse_unknown(module: nn.Module, options: dict[str, Any]) -> None:
    for name in UNKNOWN:
        if options.get(name) is not None:
            raise ModelError(f"{type(module).__name__} adds {name} to its attention, which mixlens does not model yet.")


def _shows_weights(recorder: Recorder | None) -> bool:
    """Are the weights of the layer that runs to be shown to somebody?"""
    return recorder is not None and bool(recorder.records) and (recorder.attached or recorder.change is not None)


def _written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float,
    softcap: float | None,
    recorder: Recorder | None,
) -> Tensor:
    """softmax(scaling q k^T) v, [batch query head e], by two products. The recorder may change the weights, and holds them where
    it keeps graphs."""
    weights = attention_weights(query, key, mask, scaling=scaling, softcap=softcap)
    if recorder is not None and recorder.records:
        weights = recorder.put_weights(weights)
    output = weights.to(value.dtype) @ repeat_heads(value, query.shape[1])
    return output.transpose(1, 2).contiguous()


def quicker_written_out(query: Tensor) -> bool:
    """Float32 on a GPU: two products and a softmax take two thirds of the time, as long as the weights are not large."""
    batch, heads, n, _ = query.shape
    return (
        query.is_cuda
        and query.dtype == torch.float32
        and batch * heads * n * n <= 1 << 25
        and not torch.is_grad_enabled()
    )


def _mask(*args: Any, **options: Any) -> Tensor | None:
    """The mask written out, also where the kernel could do without: a trace must know who may look where."""
    from transformers.masking_utils import sdpa_mask

    if (
        options.get("allow_is_bidirectional_skip")
        and options.get("attention_mask") is None
        and options.get("local_size") is None
    ):
        return None  # as sdpa_mask does, but also while a pass is captured
    return sdpa_mask(*args, **{**options, "allow_is_causal_skip": False})
