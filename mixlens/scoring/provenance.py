"""What a result rests on: versions, model, text; fingerprints of the model (numbers, configuration, tokenizer) and the data."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
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
    about = _about_numbers(model) if other is None else other
    return {
        "model": model.name,
        "revision": model.revision,
        "family": model.family.name,
        "task": model.task,
        "dtype": about["dtype"],
        "quantization": about["quantization"],
        "versions": dict(versions()),
        "text": trace.text,
        "pair": trace.pair,
        "input_ids": list(trace.input_ids),
        "causal": is_causal(trace),
        "check": None if model.proof is None else model.proof.gap,
        "tolerance": about["tolerance"],
    }


def _about_numbers(model: Model) -> dict[str, Any]:
    """What a model's weights are asked for: their number type, their packing, and the rounding that is allowed."""
    dtype = model.dtype
    name = str(dtype).removeprefix("torch.")
    return {"dtype": name, "quantization": model.quantization, "tolerance": TOLERANCE[dtype]}


def model_fingerprint(model: Model) -> str:
    """Of every number of every weight and persistent buffer, the configuration (class names too) and the tokenizer. The same
    on every device and machine; another training, another setting or another vocabulary gives another."""
    digest = hashlib.sha256()
    for part in (*sorted(_weights(model.hf_model)), model.task, _plain(_config(model)), _tokenizer(model.tokenizer)):
        digest.update(json.dumps(part, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def data_fingerprint(examples: Sequence[Example]) -> str:
    """Of everything an example holds, in order."""
    digest = hashlib.sha256()
    for e in examples:
        row = [e.id, e.text, e.pair, e.target, e.foil, e.cues, e.info]
        digest.update(json.dumps(row, ensure_ascii=False, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]


def whereabouts(model: Model) -> dict[str, str]:
    """What of a model's places and packing changes numbers: kinds of devices, the form of the inner loops, whether it is spread
    out, quantisation."""
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
    """A model or a file as others may read it: a path of this machine by its last part alone, any other name as it is."""
    text = str(name)
    private = os.path.isabs(text) or text.startswith(("~", "./", "../", ".\\", "..\\"))
    return Path(text).name or text if private else text


# --- weights ----------------------------------------------------------------------------------------------------------


def _weights(model: nn.Module) -> Iterator[tuple[str, str, str]]:
    """Name, kind and checksum of every tensor that belongs to a checkpoint."""
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        for name, weights in _tensors(model):
            yield name, f"{tuple(weights.shape)} {weights.dtype}", _checksum(weights, pool)


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from weights_of(model)
    for path, module in model.named_modules():
        yield from ((f"{path}.{name}", tensor) for name, tensor in chain(_buffers(module), _scales(module)))


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The buffers that are stored; those that are computed anew say nothing that the configuration does not."""
    for name, buffer in module._buffers.items():
        if _has_numbers(buffer) and name not in module._non_persistent_buffers_set:
            yield name, buffer  # type: ignore[misc]


def _has_numbers(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.device.type != "meta"


def _scales(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The scales that bitsandbytes keeps beside packed numbers; without them the numbers mean nothing."""
    for name, weights in module._parameters.items():
        state: Any = getattr(weights, "quant_state", None)
        packed = state.as_dict(packed=True) if hasattr(state, "as_dict") else {}
        parts = {**packed, "SCB": getattr(weights, "SCB", None)}
        yield from ((f"{name}.{part}", tensor) for part, tensor in parts.items() if _has_numbers(tensor))


def _checksum(weights: Tensor, pool: ThreadPoolExecutor) -> str:
    """Of the tensor's bytes, a piece for each thread."""
    flat: Any = weights.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()
    if len(flat) <= PIECE:
        return hashlib.sha256(flat).hexdigest()
    pieces = pool.map(lambda start: hashlib.sha256(flat[start : start + PIECE]).digest(), range(0, len(flat), PIECE))
    return hashlib.sha256(b"".join(pieces)).hexdigest()


# --- configuration and tokenizer --------------------------------------------------------------------------------------


def _config(model: Model) -> dict[str, Any]:
    config = model.hf_model.config
    settings = config.to_dict() if hasattr(config, "to_dict") else vars(config)
    return {**settings, "class": type(model.hf_model).__name__}


def _plain(value: Any) -> Any:
    """As JSON, without what differs from machine to machine."""
    for kinds, plain in PLAIN:
        if isinstance(value, kinds):
            return plain(value)
    return type(value).__name__  # the text of most objects holds their address


def _plain_mapping(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): _plain(one) for key, one in mapping.items() if key not in VOLATILE}


def _plain_list(values: Iterable[Any]) -> list[Any]:
    return list(map(_plain, values))


def _plain_set(values: Iterable[Any]) -> list[str]:
    return sorted(json.dumps(_plain(one), sort_keys=True) for one in values)


PLAIN: tuple[tuple[Any, Callable[[Any], Any]], ...] = (  # kinds of values, and what each becomes
    (Mapping, _plain_mapping),
    ((list, tuple), _plain_list),
    ((set, frozenset), _plain_set),
    ((str, int, float, bool, type(None)), lambda value: value),
    ((torch.dtype, torch.device), str),
)


def _tokenizer(tokenizer: Any) -> Any:
    """The whole of a tokenizer, or None where there is none."""
    if tokenizer is None:
        return None
    facts: dict[str, Any] = {name: getattr(tokenizer, name, None) for name in TOKENIZER}
    special = getattr(tokenizer, "special_tokens_map", None)
    facts |= {"class": type(tokenizer).__name__, "special": special and {str(k): str(v) for k, v in special.items()}}
    return _plain(facts | _vocabulary(tokenizer))


def _vocabulary(tokenizer: Any) -> dict[str, Any]:
    """The rules of a tokenizer; of one that is written in Python, its vocabulary and the checksums of its files."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if hasattr(backend, "to_str"):
        whole = json.loads(backend.to_str())
        # Truncation and padding are settings of the last call, not of the tokenizer.
        return {"backend": {name: value for name, value in whole.items() if name not in ("truncation", "padding")}}
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else None
    return {"vocabulary": vocabulary, "files": _files(tokenizer)}


def _files(tokenizer: Any) -> list[str]:
    """Checksums of the files that a tokenizer written in Python saves: its merges, or its sentencepiece model."""
    with TemporaryDirectory(prefix="mixlens-") as folder:
        try:
            tokenizer.save_vocabulary(folder)
        except (AttributeError, NotImplementedError, ValueError):
            return []
        return [_file_checksum(path) for path in sorted(Path(folder).iterdir()) if path.is_file()]


def _file_checksum(path: Path) -> str:
    return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
