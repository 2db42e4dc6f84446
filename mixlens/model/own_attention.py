"""The model's own attention, and the proof that ours computes the same: only then is a trace a trace of this model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.errors import ModelError
from ..base.rounding import EPS, HALF, LAYER_TOLERANCE, TOLERANCE, gap
from .packages import called_by, packages_of
from .parts import by_layer
from .passes import (
    Hook,
    apart_from_others,
    current_pass,
    evaluating,
    first,
    hidden_argument,
    hooks,
    modules_of,
    recorded,
    with_hidden,
)
from .record import Recorder
from .seam import REGISTERED, registered_attention
from .stock import call, one_line

if TYPE_CHECKING:
    from .model import Model

TRUSTED = {"transformers", "torch"}  # packages whose attention functions do the same for every text


def our_attention(model: Model) -> AbstractContextManager[None]:
    """Our entry in the registry, for families that ask the registry. It is proven once for each function of the model's own."""
    if model.family.attention is not None:
        return nullcontext()
    if any(config._attn_implementation == REGISTERED for config in model.configs):  # a pass inside a pass
        return registered_attention(model.configs, capped=current_pass().capped)
    return registered_attention(model.configs, capped=_proven(model))


def _proven(model: Model) -> bool:
    """Does the model's own attention cap its logits? Found by the proof, once for each set of its functions."""
    functions = implementation(model)
    for proven, capped in model.proven_attention:
        if proven == functions:
            return capped
    capped = prove(model)
    model.proven_attention.append((functions, capped))
    return capped


def implementation(model: Model) -> tuple[Any, Any, Any]:
    """What computes attention in the stock model now: functions that are registered, those in its own code, and which of its
    modules, or whether its configurations, look back alone."""
    modules = [part for parts in model.parts for part in modules_of(parts.layer)]
    causal = tuple(part.__dict__["is_causal"] for part in modules if "is_causal" in part.__dict__)
    masks = tuple(getattr(config, name, None) for config in model.configs for name in ("is_decoder", "is_causal"))
    registered, written = _registered_functions(model), _eager_functions(modules)
    return registered, (*written, *_helpers(registered, written)), (causal, masks)


def _helpers(registered: Sequence[tuple[str, Any, Any]], written: Sequence[Any]) -> list[Any]:
    """The functions that the attention functions call, and those that these call: a softmax, `repeat_kv`."""
    helpers = [helper for function in (*written, *(one for _, one, _ in registered)) for helper in called_by(function)]
    return helpers + [
        inner for helper in helpers if packages_of(helper) == {"transformers"} for inner in called_by(helper)
    ]


def _registered_functions(model: Model) -> tuple[tuple[str, Any, Any], ...]:
    """(name, attention function, mask function) of each implementation that the configurations name."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    names = dict.fromkeys(config._attn_implementation for config in model.configs)
    return tuple((name, ALL_ATTENTION_FUNCTIONS.get(name), ALL_MASK_ATTENTION_FUNCTIONS.get(name)) for name in names)


def _eager_functions(modules: Sequence[nn.Module]) -> tuple[Any, ...]:
    """The attention function in each file that the modules come from; None for a file without one, and for what was
    written in none."""
    files = dict.fromkeys(type(part).__module__ for part in modules)
    return tuple(getattr(sys.modules.get(file), "eager_attention_forward", None) for file in files)


def is_foreign(model: Model) -> bool:
    """Is a function that computes the stock model's attention, or its mask, not one of transformers'? What such a function
    does may depend on anything, so it is compared on every text."""
    return bool(foreign_functions(model))


def foreign_functions(model: Model) -> list[Any]:
    """The functions of the stock model's attention and of its masks that are not transformers' own."""
    registered, written, _ = implementation(model)
    return [function for function in chain(written, *(pair for _, *pair in registered)) if not _is_trusted(function)]


def _is_trusted(function: Any) -> bool:
    """Is it written in one of the trusted packages? What is not written in Python has none."""
    return function is None or packages_of(function) <= TRUSTED


def prove_foreign(model: Model, inputs: Mapping[str, Any]) -> None:
    """Compare foreign attention with ours on these inputs; nothing where the attention is transformers' own."""
    if model.family.attention is None and not current_pass().running and is_foreign(model):
        with model.lock, apart_from_others(), evaluating(model.hf_model):
            prove(model, inputs)


def prove(model: Model, inputs: Mapping[str, Any] | None = None) -> bool:
    """The stock model run with its own attention and with ours, on a few random tokens or on `inputs`: refused where they
    differ, since a trace would then be of another model. Says whether the model's own attention caps its logits.

    Every layer reads the same in both runs, so that rounding of one layer does not enter the next.
    """
    inputs = _few_tokens(model) if inputs is None else inputs
    expected, layer_inputs = _run_as_it_is(model, inputs)
    tolerance = max(LAYER_TOLERANCE[model.dtype], TOLERANCE[torch.float32])  # eager attention has a softmax in float32
    gaps: list[float] = []
    for capped in (True, False):
        gaps.append(_gap_of_ours(model, inputs, expected, layer_inputs, capped=capped, tolerance=tolerance))
        if gaps[-1] <= tolerance:
            return capped
    raise ModelError(
        f"{model.name!r} computes attention by a function of its own ({_names(model)}), and a trace would be of another model: "
        f"what attention writes would differ by {min(gaps):.1e} (relative, allowed {tolerance:.0e}). {_advice(model)}"
    )


def _gap_of_ours(
    model: Model,
    inputs: Mapping[str, Any],
    expected: list[Tensor],
    layer_inputs: list[Tensor],
    *,
    capped: bool,
    tolerance: float,
) -> float:
    """By how much our attention writes something else than `expected`; 0 where some layer does not ask the registry, which a
    trace finds and says."""
    sizes: list[float] = []
    with registered_attention(model.configs, capped=capped):
        outputs = _attention_outputs(model, inputs, layer_inputs, sizes)
    return _largest_gap(model.dtype, outputs, expected, sizes, tolerance) if len(sizes) == len(outputs) else 0.0


def _few_tokens(model: Model) -> dict[str, Any]:
    """Nine random tokens (or as many as the model reads), none of them padding, as inputs."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    vocabulary, length = model.hf_model.config.vocab_size, min(9, model.max_tokens or 9)
    ids = torch.randint(0, vocabulary, (length,), generator=generator, device="cpu").tolist()
    return model.inputs([model.encode_ids([i if i != model.pad_id else (i + 1) % vocabulary for i in ids])])


def _run_as_it_is(model: Model, inputs: Mapping[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """What attention writes in each layer with the model's own attention, and what the layers read."""
    layer_inputs: list[Tensor] = []
    try:
        return _attention_outputs(model, inputs, layer_inputs, None), layer_inputs
    except (RuntimeError, ImportError, TypeError) as error:
        raise ModelError(
            f"{model.name!r} cannot run with its own attention ({_names(model)}) here: {one_line(error)}. "
            "Load it with attn_implementation='sdpa' or 'eager'."
        ) from error


def _attention_outputs(
    model: Model, inputs: Mapping[str, Any], layer_inputs: list[Tensor], sizes: list[float] | None
) -> list[Tensor]:
    """What attention writes in each layer, [batch pos d].

    Without `sizes`, the layers' inputs are added to `layer_inputs`. With `sizes`, the layers read `layer_inputs` again, and an
    upper bound of each layer's largest logit is added to `sizes`.
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
    entries += [
        (module, "after", leave) for module in {id(parts.output): parts.output for parts in model.parts}.values()
    ]
    with hooks(entries), recorded(None if sizes is None else recorder):
        call(model, inputs)
    return outputs


def _largest_gap(
    dtype: torch.dtype, outputs: list[Tensor], expected: list[Tensor], sizes: list[float], tolerance: float
) -> float:
    """The largest relative difference of a layer. In half precision logits may be rounded too, a large one by more than 1."""
    eps = EPS[dtype] if dtype in HALF else 0.0
    layers = zip(outputs, expected, sizes, strict=True)
    return max(gap(ours, theirs) * tolerance / (tolerance + 2 * eps * size) for ours, theirs, size in layers)


def _names(model: Model) -> str:
    return ", ".join(dict.fromkeys(str(config._attn_implementation) for config in model.configs))


def _advice(model: Model) -> str:
    if is_foreign(model):
        return "Load it with attn_implementation='sdpa' or 'eager', unpatched."
    return f"Its weights are too large for {model.dtype}, or its modules were changed: load it in float32, or anew."
