"""What a result rests on: versions, model, text; fingerprints of the model (numbers, configuration, tokenizer) and
the data."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.rounding import TOLERANCE
from ..fast.loops import used
from ..model.offload import weights_of
from ..model.predict import is_causal
from ..types import Example, Trace

if TYPE_CHECKING:
    from ..model.model import Model

PIECE = 1 << 26  # bytes that one thread hashes at a time
# Where a configuration came from and who wrote it: the same model has others on another machine.
VOLATILE = ("_name_or_path", "name_or_path", "transformers_version", "_commit_hash")
TOKENIZER = (
    *("model_max_length", "padding_side", "truncation_side", "model_input_names", "split_special_tokens"),
    *("clean_up_tokenization_spaces", "add_prefix_space", "add_bos_token", "add_eos_token", "do_lower_case"),
)


@cache
def versions() -> dict[str, str]:
    import transformers

    from .. import __version__

    return {
        "mixlens": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def provenance(trace: Trace, other: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a result rests on. `other`: that of a trace of the same batch, whose model need not be asked again."""
    model = trace.model
    if other is None:
        dtype = model.dtype
        name = str(dtype).removeprefix("torch.")
        other = {"dtype": name, "quantization": model.quantization, "tolerance": TOLERANCE[dtype]}
    return {
        "model": model.name,
        "revision": model.revision,
        "family": model.family.name,
        "task": model.task,
        "dtype": other["dtype"],
        "quantization": other["quantization"],
        "versions": dict(versions()),
        "text": trace.text,
        "pair": trace.pair,
        "input_ids": list(trace.input_ids),
        "causal": is_causal(trace),
        "check": None if model.proof is None else model.proof.gap,
        "tolerance": other["tolerance"],
    }


def whereabouts(model: Model) -> dict[str, str]:
    """What of a model's places and packing changes numbers: kinds of devices, the form of the inner loops, whether it
    is spread out, quantisation."""
    places = {
        "device": "+".join(sorted({device.split(":")[0] for device in model.devices})),
        "kernels": used(model.device),
    }
    if model.dispatched:
        places["device_map"] = "dispatched"
    if model.quantization is not None:
        places["quantization"] = model.quantization
    return places


def public_name(name: object) -> str:
    """A model or a file as others may read it: a path of this machine by its last part alone, any other name as it
    is."""
    text = str(name)
    private = os.path.isabs(text) or text.startswith(("~", "./", "../", ".\\", "..\\"))
    return Path(text).name or text if private else text


# --- fingerprints -----------------------------------------------------------------------------------------------------


def model_fingerprint(model: Model) -> str:
    """Of every number of every weight and persistent buffer, the configuration (class names too) and the tokenizer.
    The same on every device and machine; another training, another setting or another vocabulary gives another."""
    config = model.hf_model.config
    settings = config.to_dict() if hasattr(config, "to_dict") else vars(config)
    kind = {**settings, "class": type(model.hf_model).__name__}
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        weights = [
            (name, f"{tuple(one.shape)} {one.dtype}", checksum(one, pool)) for name, one in tensors_of(model.hf_model)
        ]
    digest = hashlib.sha256()
    for part in (*sorted(weights), model.task, plain(kind), tokenizer_facts(model.tokenizer)):
        digest.update(json.dumps(part, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that belongs to a checkpoint: weights, buffers that are stored (those that are computed anew say
    nothing that the configuration does not), and the scales that bitsandbytes keeps beside packed numbers, which mean
    nothing without."""
    yield from weights_of(model)
    for path, module in model.named_modules():
        held = {name: one for name, one in module._buffers.items() if name not in module._non_persistent_buffers_set}
        for name, weights in module._parameters.items():
            state: Any = getattr(weights, "quant_state", None)
            packed = state.as_dict(packed=True) if hasattr(state, "as_dict") else {}
            held |= {f"{name}.{key}": one for key, one in {**packed, "SCB": getattr(weights, "SCB", None)}.items()}
        for name, one in held.items():
            if isinstance(one, Tensor) and one.device.type != "meta":
                yield f"{path}.{name}", one


def checksum(weights: Tensor, pool: ThreadPoolExecutor) -> str:
    """Of the tensor's bytes, a piece for each thread."""
    flat: Any = weights.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()
    if len(flat) <= PIECE:
        return hashlib.sha256(flat).hexdigest()
    pieces = pool.map(lambda start: hashlib.sha256(flat[start : start + PIECE]).digest(), range(0, len(flat), PIECE))
    return hashlib.sha256(b"".join(pieces)).hexdigest()


def plain(value: Any) -> Any:
    """As JSON, without what differs from machine to machine."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items() if key not in VOLATILE}
    if isinstance(value, list | tuple):
        return list(map(plain, value))
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(plain(one), sort_keys=True) for one in value)
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    is_plain = value is None or isinstance(value, str | int | float | bool)
    return value if is_plain else type(value).__name__  # the text of most objects holds their address


def tokenizer_facts(tokenizer: Any) -> Any:
    """The settings and rules of a tokenizer; of one that is written in Python, its vocabulary and the checksums of
    the files that it saves: its merges, or its sentencepiece model. None where there is no tokenizer."""
    if tokenizer is None:
        return None
    facts: dict[str, Any] = {name: getattr(tokenizer, name, None) for name in TOKENIZER}
    special = getattr(tokenizer, "special_tokens_map", None)
    facts |= {"class": type(tokenizer).__name__, "special": special and {str(k): str(v) for k, v in special.items()}}
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if hasattr(backend, "to_str"):  # truncation and padding are settings of the last call, not of the tokenizer
        rules = json.loads(backend.to_str()).items()
        return plain({**facts, "backend": {key: one for key, one in rules if key not in ("truncation", "padding")}})
    files: list[str] = []
    with TemporaryDirectory(prefix="mixlens-") as folder, suppress(AttributeError, NotImplementedError, ValueError):
        tokenizer.save_vocabulary(folder)
        written = [path for path in sorted(Path(folder).iterdir()) if path.is_file()]
        files = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in written]
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else None
    return plain({**facts, "vocabulary": vocabulary, "files": files})


def data_fingerprint(examples: Sequence[Example]) -> str:
    """Of everything an example holds, in order."""
    digest = hashlib.sha256()
    for e in examples:
        row = [e.id, e.text, e.pair, e.target, e.foil, e.cues, e.info]
        digest.update(json.dumps(row, ensure_ascii=False, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]
