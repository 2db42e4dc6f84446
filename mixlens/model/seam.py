"""The seam: our function in the public attention registry of transformers, which hands over queries, keys and values.

They come after head splitting and position rotation, whatever the family. The stock model's code is not changed: its
configurations name our function for the length of a pass, and their own one again when it ends. Our function is proven
to compute what the model's own does: only then is a trace a trace of this model. Every pass goes through `run`; what it
is to find out is a list of hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.errors import ModelError
from ..base.rounding import EPS, HALF, LAYER_TOLERANCE, TOLERANCE, gap
from .attention import attention_weights, repeat_heads
from .parts import by_layer, layer_parts, modules_of
from .passes import (
    PASS,
    Hook,
    call,
    evaluating,
    first,
    hidden_argument,
    hooks,
    one_line,
    plain_numbers,
    unwatched,
    with_hidden,
    within_pass,
)
from .record import Recorder
from .user_code import foreign_functions, implementation, named_errors, refuse_changed
from .wrappers import refuse_meta_default

if TYPE_CHECKING:
    from .model import Model

REGISTERED = "mixlens"  # our name in the attention registry of transformers
UNKNOWN = ("position_bias", "s_aux")  # options of attention that are not modelled


def configurations(model: nn.Module) -> list[Any]:
    """The configurations by which modules choose their attention; a copied layer may have one of its own."""
    configs = (module.__dict__.get("config") for module in model.modules())
    return list({id(config): config for config in configs if hasattr(config, "_attn_implementation")}.values())


@contextmanager
def registered_attention(configs: Sequence[Any], *, capped: bool = True) -> Iterator[None]:
    """Our attention function for the length of the block, then the model's own again.

    `capped`: whether it caps logits where a layer asks for that. Some functions of transformers ignore the cap, and a
    trace is of what the model does.
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

    for name in UNKNOWN:
        if options.get(name) is not None:
            raise ModelError(f"{type(module).__name__} adds {name} to its attention, which mixlens does not model yet.")
    if not PASS.get().capped:
        options.pop("softcap", None)
    softcap, scaling = options.get("softcap"), options.get("scaling")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    recorder = PASS.get().recorder
    if recorder is not None:
        recorder.put_attention(query, key, value, attention_mask, scaling, softcap)
    # The fast kernel cannot cap logits, nor show or change its weights; for float32 on a GPU there is none.
    if recorder is None or not recorder.records:  # no layer has begun that somebody follows
        shown = quicker = False
    else:
        shown = recorder.attached or recorder.change is not None
        quicker = quicker_written_out(query)
    if softcap is not None or shown:
        return _written_out(query, key, value, attention_mask, scaling, softcap, recorder), None
    if quicker:
        return _written_out(query * scaling, key, value, attention_mask, 1.0, None, recorder), None
    output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return output, None


def _written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float,
    softcap: float | None,
    recorder: Recorder | None,
) -> Tensor:
    """softmax(scaling q k^T) v, [batch query head e], by two products. The recorder may change the weights, and holds
    them where it keeps graphs."""
    weights = attention_weights(query, key, mask, scaling=scaling, softcap=softcap)
    if recorder is not None and recorder.records:
        weights = recorder.put_weights(weights)
    output = weights.to(value.dtype) @ repeat_heads(value, query.shape[1])
    return output.transpose(1, 2).contiguous()


def quicker_written_out(query: Tensor) -> bool:
    """Float32 on a GPU: two products and a softmax take two thirds of the time, as long as the weights are not
    large."""
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


# --- the proof --------------------------------------------------------------------------------------------------------


def our_attention(model: Model) -> AbstractContextManager[None]:
    """Our entry in the registry, for families that ask the registry. It is proven once for each set of functions of the
    model's own attention; the proof finds whether these cap its logits."""
    if model.family.attention is not None:
        return nullcontext()
    if any(config._attn_implementation == REGISTERED for config in model.configs):  # a pass inside a pass
        return registered_attention(model.configs, capped=PASS.get().capped)
    functions = implementation(model)
    for proven, capped in model.proven_attention:
        if proven == functions:
            return registered_attention(model.configs, capped=capped)
    capped = prove(model)
    model.proven_attention.append((functions, capped))
    return registered_attention(model.configs, capped=capped)


def prove_foreign(model: Model, inputs: Mapping[str, Any]) -> None:
    """Compare foreign attention with ours on these inputs; nothing where the attention is transformers' own."""
    if model.family.attention is None and not PASS.get().running and foreign_functions(model):
        with model.lock, unwatched(running=True), evaluating(model.hf_model):
            prove(model, inputs)


def prove(model: Model, inputs: Mapping[str, Any] | None = None) -> bool:
    """The stock model run with its own attention and with ours, on a few random tokens or on `inputs`: refused where
    they differ, since a trace would then be of another model. Says whether the model's own attention caps its logits.

    Every layer reads the same in both runs, so that rounding of one layer does not enter the next. A family of which
    some layer does not ask the registry passes: a trace finds that, and says it.
    """
    inputs = _few_tokens(model) if inputs is None else inputs
    names = ", ".join(dict.fromkeys(str(config._attn_implementation) for config in model.configs))
    layer_inputs: list[Tensor] = []
    try:
        expected = _attention_outputs(model, inputs, layer_inputs, None)
    except (RuntimeError, ImportError, TypeError) as error:
        raise ModelError(
            f"{model.name!r} cannot run with its own attention ({names}) here: {one_line(error)}. "
            "Load it with attn_implementation='sdpa' or 'eager'."
        ) from error
    tolerance = max(LAYER_TOLERANCE[model.dtype], TOLERANCE[torch.float32])  # eager attention has a softmax in float32
    # In half precision logits may be rounded too, a large one by more than 1.
    eps = EPS[model.dtype] if model.dtype in HALF else 0.0
    gaps: list[float] = []
    for capped in (True, False):
        sizes: list[float] = []
        with registered_attention(model.configs, capped=capped):
            outputs = _attention_outputs(model, inputs, layer_inputs, sizes)
        if len(sizes) != len(outputs):
            return capped
        layers = zip(outputs, expected, sizes, strict=True)
        gaps.append(max(gap(ours, theirs) * tolerance / (tolerance + 2 * eps * size) for ours, theirs, size in layers))
        if gaps[-1] <= tolerance:
            return capped
    advice = (
        "Load it with attn_implementation='sdpa' or 'eager', unpatched."
        if foreign_functions(model)
        else f"Its weights are too large for {model.dtype}, or its modules were changed: load it in float32, or anew."
    )
    raise ModelError(
        f"{model.name!r} computes attention by a function of its own ({names}), and a trace would be of another model: "
        f"what attention writes would differ by {min(gaps):.1e} (relative, allowed {tolerance:.0e}). {advice}"
    )


def _few_tokens(model: Model) -> dict[str, Any]:
    """Nine random tokens (or as many as the model reads), none of them padding, as inputs."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    vocabulary, length = model.hf_model.config.vocab_size, min(9, model.max_tokens or 9)
    ids = torch.randint(0, vocabulary, (length,), generator=generator, device="cpu").tolist()
    return model.inputs([model.encode_ids([i if i != model.pad_id else (i + 1) % vocabulary for i in ids])])


def _attention_outputs(
    model: Model, inputs: Mapping[str, Any], layer_inputs: list[Tensor], sizes: list[float] | None
) -> list[Tensor]:
    """What attention writes in each layer, [batch pos d].

    Without `sizes`, the layers' inputs are added to `layer_inputs`. With `sizes`, the layers read `layer_inputs` again,
    and an upper bound of each layer's largest logit is added to `sizes`.
    """
    outputs: list[Tensor] = []
    recorder = Recorder((1, 1), sizes=sizes)

    def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
        x = hidden_argument(args, kwargs)
        recorder.records.append({})
        if sizes is None:
            layer_inputs.append(x)
            return None
        return with_hidden(args, kwargs, layer_inputs[len(recorder.records) - 1].to(x.device))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        outputs.append(first(output))

    entries: list[Hook] = [(parts.layer, "before", enter) for parts in by_layer(model.parts).values()]
    projections = {id(parts.output): parts.output for parts in model.parts}
    entries += [(module, "after", leave) for module in projections.values()]
    with hooks(entries), within_pass(recorder=None if sizes is None else recorder):
        call(model, inputs)
    return outputs


# --- the runner -------------------------------------------------------------------------------------------------------


class Done(BaseException):
    """A hook raises it where a pass need not go on. No `except Exception` of a model's own code stops it."""


def run(
    model: Model,
    inputs: Mapping[str, Any],
    entries: Callable[[], Sequence[Hook]] = tuple,
    *,
    recorder: Recorder | None = None,
    gradients: bool = False,
) -> Any:
    """The stock model's output; None where a hook ended the pass (`Done`). Every pass over the stock model goes through
    here.

    `entries` gives the hooks: it is called when the modules that the model has now are known. `recorder` gets what
    attention reads.
    """
    with suppress(Done), model.lock, unwatched(running=True), evaluating(model.hf_model, gradients=gradients):
        refuse_changed(model)
        parts = layer_parts(model.hf_model.base_model, model.family, model.kept)
        if parts != model.parts:  # a module was replaced since the model was loaded
            model.parts, model.configs = parts, configurations(model.hf_model)
            model.kept.clear_graphs()
        with our_attention(model), hooks(entries()), within_pass(recorder=recorder):
            return call(model, inputs)
    return None


@contextmanager
def computing(model: Model) -> Iterator[None]:
    """For calls of single modules: in evaluation mode, as they were traced (a LoRA module in training mode may drop
    part of its input), and in their own numbers."""
    refuse_meta_default()
    if any(module.training for module in modules_of(model.hf_model)):
        with model.lock, unwatched(), evaluating(model.hf_model), named_errors():
            yield
    else:
        with unwatched(), plain_numbers(), named_errors():
            yield
