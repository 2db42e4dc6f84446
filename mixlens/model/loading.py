"""`load`: a hub id, a folder, an embedded model or a loaded Hugging Face model becomes a proven `Model`."""

from __future__ import annotations

import copy
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import nn

from ..base.errors import ModelError, nearest, suggested
from ..base.paths import is_folder
from ..base.wrong_kinds import wrong_kinds_in_one_line
from .families import Family, find
from .model import Model
from .offload import is_dispatched, packed_kinds, weights_of
from .placing import Placing, best_device, number_type
from .quantized import refuse_unrunnable
from .stock import one_line
from .wrappers import refuse_meta, refuse_meta_default, refuse_unlike, unwrapped

EMBEDDED = Path(__file__).parent / "embedded"
TASKS = {  # task: (auto class, endings of config.architectures that mean it)
    "classification": ("AutoModelForSequenceClassification", ("ForSequenceClassification",)),
    "token-classification": ("AutoModelForTokenClassification", ("ForTokenClassification",)),
    "question-answering": ("AutoModelForQuestionAnswering", ("ForQuestionAnswering",)),
    "masked-lm": ("AutoModelForMaskedLM", ("ForMaskedLM", "BertForPreTraining")),
    "causal-lm": ("AutoModelForCausalLM", ("ForCausalLM", "LMHeadModel")),
    "base": ("AutoModel", ("Model",)),
}
TOKENIZER_FILES = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model"),
    *("spiece.model", "sentencepiece.bpe.model", "spm.model", "bpe.codes"),
)
UNKNOWN_TYPE = re.compile(r"model type `([^`]+)` but Transformers does not recognize")
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@wrong_kinds_in_one_line
def load(
    model: Any,
    *,
    tokenizer: Any = None,
    task: str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    family: Family | None = None,
    trust_remote_code: bool = False,
    check: bool = True,
    device_map: str | Mapping[str, Any] | None = None,
    max_memory: Mapping[int | str, int | str] | None = None,
    offload_folder: str | os.PathLike[str] | None = None,
    quantization: Any = None,
) -> Model:
    """A model ready to trace, proven on a short random input (unless `check=False`; every map is still proven on its own).

    `model` is a hub id, a folder, the name of an embedded model ("agreement", "sentiment"), or a loaded Hugging Face
    model (then pass its tokenizer; it is left exactly as it came). float32 unless `dtype` says otherwise ("auto": as
    stored). `task` picks the head; by default the one the configuration names.

    Large models (docs/use/large-models.md): `device_map` spreads the layers ("auto", "balanced", "sequential", module: device),
    within `max_memory` of each device, the rest in main memory and, in `offload_folder`, on disk. `quantization`: "4bit",
    "8bit" or a configuration of transformers.
    """
    _refuse_task(task)
    dtype = number_type(dtype)
    placing = Placing(device, device_map, max_memory, offload_folder, quantization)
    placing.refuse()
    refuse_meta_default()
    by_name = isinstance(model, str | os.PathLike)
    if by_name:
        _refuse_no_name(os.fspath(model))
        source = Source(os.fspath(model), revision, trust_remote_code)
        loaded = _load_named(source, tokenizer, task, placing, dtype, family)
    else:
        loaded = _load_module(model, tokenizer, task, placing, dtype, family)
    refuse_unrunnable(loaded.hf_model, loaded.name, loaded.dtype, ours=by_name)
    refuse_unlike(model)
    if check:
        loaded.proof = loaded.check()
    return loaded


def _refuse_no_name(name: str) -> None:
    if not name.strip():
        embedded = ", ".join(embedded_names())
        raise ModelError(f"no model is named. Give a hub id, a folder, or an embedded model: {embedded}.")


def embedded_names() -> list[str]:
    """The models that come with mixlens."""
    return sorted(place.name for place in EMBEDDED.glob("*") if place.is_dir())


def _refuse_task(task: str | None) -> None:
    if task is not None and task not in TASKS:
        raise ModelError(f"unknown task {task!r}. {nearest(task, TASKS)}")


def task_of(architecture: str) -> str:
    """The task of a class of transformers, by the ending of its name."""
    for task, (_, endings) in TASKS.items():
        if architecture.endswith(endings):
            return task
    return "base"


# --- a model that the user has loaded ---------------------------------------------------------------------------------


def _load_module(
    model: Any,
    tokenizer: Any,
    task: str | None,
    placing: Placing,
    dtype: torch.dtype | str | None,
    family: Family | None,
) -> Model:
    """A model the user already has. It is only ever read; a change of dtype or device is made on a copy."""
    model = _stock_model(model)
    refuse_meta(model)
    _refuse_placing(placing)
    model = _moved(model, placing.device, dtype)
    name = getattr(model, "name_or_path", "") or type(model).__name__
    return Model(
        model, tokenizer, name=name, task=task or task_of(type(model).__name__), family=family or find(model.config)
    )


def _stock_model(model: Any) -> Any:
    """The model of transformers, out of its wrappers; anything else is refused."""
    if not (isinstance(model, nn.Module) and hasattr(model := unwrapped(model), "config")):
        raise ModelError(f"load takes a hub id, a folder or a Hugging Face model, not {type(model).__name__}.")
    if type(model).__name__.endswith("ForMultipleChoice"):
        raise ModelError(
            f"{type(model).__name__} chooses between several texts that it reads at once; mixlens explains one text. Load its "
            f"base model: model.{model.base_model_prefix}."
        )
    return model


def _refuse_placing(placing: Placing) -> None:
    """Refuse to place or to pack the weights of a model that is loaded already; its device alone may be named."""
    if placing != Placing(placing.device):
        raise ModelError(
            "device_map, max_memory, offload_folder and quantization are for models that are loaded by name. A loaded model "
            "is taken as it is: give these to its from_pretrained."
        )


def _moved(model: Any, device: Any, dtype: torch.dtype | str | None) -> Any:
    """The model, or a copy of it in another number type or on another device."""
    wanted = _wanted(device, dtype)
    if wanted:
        _refuse_fixed(model)
    changes = {name: value for name, value in wanted.items() if value != getattr(model, name)}
    return copy.deepcopy(model).to(**changes) if changes else model


def _wanted(device: Any, dtype: torch.dtype | str | None) -> dict[str, Any]:
    """The device and the number type that a user names, as `Module.to` takes them."""
    wanted: dict[str, Any] = {} if device is None else {"device": torch.device(device)}
    return wanted | ({"dtype": dtype} if isinstance(dtype, torch.dtype) else {})


def _refuse_fixed(model: Any) -> None:
    """Refuse to move a model whose weights are packed, or lie where accelerate put them."""
    fixed = "quantised" if packed_kinds(model) else "spread out by accelerate" if is_dispatched(model) else None
    if fixed is not None:
        raise ModelError(f"this model is {fixed}, so it is taken as it is: leave device= and dtype= out.")


# --- a model by its name ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A name that stands for a folder, an embedded model or a model of the hub."""

    name: str
    revision: str | None
    trust_remote_code: bool

    @property
    def folder(self) -> Path | None:
        """The folder of the model; None where it is to be fetched from the hub."""
        embedded = EMBEDDED / self.name
        if is_folder(self.name):
            return Path(self.name)
        return embedded if self.name.isidentifier() and embedded.is_dir() else None

    @property
    def place(self) -> str:
        """What `from_pretrained` is called with."""
        return str(self.folder or self.name)

    def options(self) -> dict[str, Any]:
        """Options of every `from_pretrained`. Where the hub is out of reach, what is cached still loads."""
        options: dict[str, Any] = {"revision": self.revision, "trust_remote_code": self.trust_remote_code}
        return options if self.folder is not None or _hub_in_reach() else options | {"local_files_only": True}

    def refusal(self, error: Exception) -> str:
        """Why the name cannot be loaded."""
        unknown = UNKNOWN_TYPE.search(str(error))
        if unknown:
            return _unknown_type(self.name, unknown[1])
        if Path(self.name).is_file():
            return f"{self.name!r} is a file. A model is a folder with config.json and model.safetensors, or a hub id."
        if self.folder is not None:
            return f"cannot load the model folder {self.name!r}: {one_line(error)}"
        if self.looks_like_path:
            return (
                f"no model folder at {self.name!r}. Give a folder with config.json and model.safetensors, or a hub id."
            )
        meant = suggested(self.name, embedded_names())
        return (
            f"cannot load {self.name!r}: no such folder, and the hub has no such model or cannot be reached."
            f"{meant and ' '}{meant} Embedded models are always there: {', '.join(embedded_names())}. "
            f"The hub's library says: {one_line(error)}"
        )

    @property
    def looks_like_path(self) -> bool:
        """Can this be no hub id, which is a name or an owner and a name?"""
        return self.name.startswith((".", "/", "~")) or self.name.count("/") > 1


def _unknown_type(name: str, kind: str) -> str:
    from transformers import __version__

    return (
        f"cannot load {name!r}: its model type {kind!r} is not known to transformers {__version__}. A later version may know it; "
        "a model that brings its own code needs trust_remote_code= (off by default)."
    )


def _load_named(
    source: Source,
    tokenizer: Any,
    task: str | None,
    placing: Placing,
    dtype: torch.dtype | str | None,
    family: Family | None,
) -> Model:
    """Configuration, weights and tokenizer of a named model, on its device."""
    options = source.options()
    with _quiet():
        config = _configuration(source, options)
        entry, task = family or find(config), task or _configured_task(config)
        places = placing.options(config, dtype)
        weights = _weights(source, task, placing, {"config": config, **places, **options})
        tokenizer = tokenizer if tokenizer is not None else _tokenizer(source, options)
    if "device_map" not in places:
        weights = _on_device(weights, placing.device or best_device())
    commit = getattr(config, "_commit_hash", None)
    return Model(
        weights.eval(), tokenizer, name=source.name, task=task, family=entry, revision=commit or source.revision
    )


def _configured_task(config: Any) -> str:
    """The task of the class that a configuration names; of none, the base model."""
    return task_of((getattr(config, "architectures", None) or ["Model"])[0])


def _configuration(source: Source, options: Mapping[str, Any]) -> Any:
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(source.place, **options)
    except Exception as error:
        raise ModelError(source.refusal(error)) from error


def _weights(source: Source, task: str, placing: Placing, options: Mapping[str, Any]) -> Any:
    """The stock model with the head of this task, complete."""
    import transformers

    auto = getattr(transformers, TASKS[task][0])
    try:
        model, report = auto.from_pretrained(source.place, output_loading_info=True, **options)
    except Exception as error:
        raise ModelError(_refusal_of_weights(source, placing, error)) from error
    _refuse_missing(source.name, task, model, report)
    return model


def _refusal_of_weights(source: Source, placing: Placing, error: Exception) -> str:
    """Why the weights cannot be loaded; where they are placed or packed in a special way, that is the likely reason."""
    words = ", ".join(key for key in ("device_map", "quantization") if getattr(placing, key) is not None)
    return f"cannot load {source.name!r} with this {words}: {one_line(error)}" if words else source.refusal(error)


def _tokenizer(source: Source, options: Mapping[str, Any]) -> Any:
    """The tokenizer, or None where the model has none."""
    import transformers

    if _has_no_tokenizer(source.folder):
        return None
    try:
        return transformers.AutoTokenizer.from_pretrained(source.place, **options)
    except Exception as error:
        if source.folder is not None:
            raise ModelError(f"cannot read the tokenizer of {source.name!r}: {one_line(error)}") from error
        return None


def _has_no_tokenizer(folder: Path | None) -> bool:
    """Is this a folder without a file of a tokenizer?"""
    return folder is not None and not any((folder / file).exists() for file in TOKENIZER_FILES)


def _on_device(model: Any, device: Any) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"cannot use device {str(device)!r}: {one_line(error)}") from error


def _refuse_missing(name: str, task: str, model: nn.Module, report: Mapping[str, Any]) -> None:
    """Weights that are not in the file are random: a map of those says nothing."""
    random = [*_random_keys(task, model, set(report["missing_keys"])), *map(_key, report.get("mismatched_keys", []))]
    if random:
        listed = ", ".join(random[:3]) + (", ..." if len(random) > 3 else "")
        raise ModelError(
            f"{name!r} has no weights for {len(random)} parts of a {task} model ({listed}). "
            "Random weights would give a map of nothing. Use a complete checkpoint, or another task=."
        )


def _random_keys(task: str, model: nn.Module, missing: set[str]) -> list[str]:
    """The names of weights that are random because they are not in the file, less two harmless kinds.

    A bias that is not stored is zero, and the pooler of a model without a classification head is not used.
    """
    unused = {key for key in missing if "pooler" in key and task != "classification"}
    return sorted(missing - unused - _zero_biases(model, missing))


def _zero_biases(model: nn.Module, keys: set[str]) -> set[str]:
    """Those of the keys that are biases and zero. Weights are read only where there is a bias among the keys."""
    biases = {key for key in keys if key.endswith(".bias")}
    if not biases:
        return set()
    return {key for key, weights in weights_of(model) if key in biases and not bool(weights.any())}


def _key(entry: Any) -> str:
    """The name of a mismatched weight; transformers lists names, or tuples of name and shapes."""
    return str(entry[0] if isinstance(entry, tuple) else entry)


def _hub_in_reach() -> bool:
    """Whether the hub's name can be looked up at all. Behind a proxy only the proxy knows."""
    from huggingface_hub import constants

    return any(map(os.environ.get, PROXIES)) or _is_known(urlsplit(constants.ENDPOINT).hostname)


def _is_known(host: str | None) -> bool:
    """Does this machine find an address for the host?"""
    try:
        return bool(host and socket.getaddrinfo(host, 443))
    except OSError:
        return False


@contextmanager
def _quiet() -> Iterator[None]:
    """No load report and no progress bar of other packages: `load` checks what matters and says it itself."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging

    verbosity, bars, hub_verbosity = logging.get_verbosity(), logging.is_progress_bar_enabled(), hub.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.set_verbosity_error()
    accelerate = getLogger("accelerate.big_modeling")  # logs what was offloaded, which `placement` says
    level = accelerate.level
    accelerate.setLevel(ERROR)
    try:
        yield
    finally:
        accelerate.setLevel(level)
        logging.set_verbosity(verbosity)
        hub.set_verbosity(hub_verbosity)
        if bars:
            logging.enable_progress_bar()
