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

from ..base.doors import door
from ..base.errors import ModelError, nearest, suggested
from ..base.paths import is_folder
from .families import Family, find
from .model import Model
from .offload import is_dispatched, packed_kinds, weights_of
from .passes import one_line
from .placing import Placing, best_device, number_type
from .quantized import refuse_unrunnable
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


@door
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
    """A model ready to trace, proven on a short random input (unless `check=False`; every map is still proven on its
    own).

    `model` is a hub id, a folder, the name of an embedded model ("agreement", "sentiment"), or a loaded Hugging Face
    model (then pass its tokenizer; it is left exactly as it came). float32 unless `dtype` says otherwise ("auto": as
    stored). `task` picks the head; by default the one the configuration names.

    Large models (docs/use/large-models.md): `device_map` spreads the layers ("auto", "balanced", "sequential", module:
    device), within `max_memory` of each device, the rest in main memory and, in `offload_folder`, on disk.
    `quantization`: "4bit", "8bit" or a configuration of transformers.
    """
    if task is not None and task not in TASKS:
        raise ModelError(f"unknown task {task!r}. {nearest(task, TASKS)}")
    dtype = number_type(dtype)
    placing = Placing(device, device_map, max_memory, offload_folder, quantization)
    placing.refuse()
    refuse_meta_default()
    if by_name := isinstance(model, str | os.PathLike):
        source = Source(os.fspath(model), revision, trust_remote_code)
        loaded = _load_named(source, tokenizer, task, placing, dtype, family)
    else:
        loaded = _load_module(model, tokenizer, task, placing, dtype, family)
    refuse_unrunnable(loaded.hf_model, loaded.name, loaded.dtype, ours=by_name)
    refuse_unlike(model)
    if check:
        loaded.proof = loaded.check()
    return loaded


def embedded_names() -> list[str]:
    """The models that come with mixlens."""
    return sorted(place.name for place in EMBEDDED.glob("*") if place.is_dir())


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
    if not (isinstance(model, nn.Module) and hasattr(model := unwrapped(model), "config")):
        raise ModelError(f"load takes a hub id, a folder or a Hugging Face model, not {type(model).__name__}.")
    if type(model).__name__.endswith("ForMultipleChoice"):
        raise ModelError(
            f"{type(model).__name__} chooses between several texts that it reads at once; mixlens explains one text. "
            f"Load its "
            f"base model: model.{model.base_model_prefix}."
        )
    refuse_meta(model)
    if placing != Placing(placing.device):
        raise ModelError(
            "device_map, max_memory, offload_folder and quantization are for models that are loaded by name. A loaded "
            "model "
            "is taken as it is: give these to its from_pretrained."
        )
    wanted: dict[str, Any] = {} if placing.device is None else {"device": torch.device(placing.device)}
    if isinstance(dtype, torch.dtype):
        wanted["dtype"] = dtype
    fixed = "quantised" if packed_kinds(model) else "spread out by accelerate" if is_dispatched(model) else None
    if wanted and fixed is not None:
        raise ModelError(f"this model is {fixed}, so it is taken as it is: leave device= and dtype= out.")
    changes = {name: value for name, value in wanted.items() if value != getattr(model, name)}
    model = copy.deepcopy(model).to(**changes) if changes else model
    name = getattr(model, "name_or_path", "") or type(model).__name__
    return Model(
        model, tokenizer, name=name, task=task or task_of(type(model).__name__), family=family or find(model.config)
    )


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
        if unknown := UNKNOWN_TYPE.search(str(error)):
            from transformers import __version__

            return (
                f"cannot load {self.name!r}: its model type {unknown[1]!r} is not known to transformers "
                f"{__version__}. A later "
                "version may know it; a model that brings its own code needs trust_remote_code= (off by default)."
            )
        if Path(self.name).is_file():
            return f"{self.name!r} is a file. A model is a folder with config.json and model.safetensors, or a hub id."
        if self.folder is not None:
            return f"cannot load the model folder {self.name!r}: {one_line(error)}"
        if (
            self.name.startswith((".", "/", "~")) or self.name.count("/") > 1
        ):  # a hub id is a name or an owner and a name
            return (
                f"no model folder at {self.name!r}. Give a folder with config.json and model.safetensors, or a hub id."
            )
        meant = suggested(self.name, embedded_names())
        return (
            f"cannot load {self.name!r}: no such folder, and the hub has no such model or cannot be reached."
            f"{meant and ' '}{meant} Embedded models are always there: {', '.join(embedded_names())}. "
            f"The hub's library says: {one_line(error)}"
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
    if not source.name.strip():
        embedded = ", ".join(embedded_names())
        raise ModelError(f"no model is named. Give a hub id, a folder, or an embedded model: {embedded}.")
    options = source.options()
    with _quiet():
        from transformers import AutoConfig

        try:
            config = AutoConfig.from_pretrained(source.place, **options)
        except Exception as error:
            raise ModelError(source.refusal(error)) from error
        # The task of the class that a configuration names; of none, the base model.
        entry = family or find(config)
        task = task or task_of((getattr(config, "architectures", None) or ["Model"])[0])
        places = placing.options(config, dtype)
        weights = _weights(source, task, placing, {"config": config, **places, **options})
        tokenizer = tokenizer if tokenizer is not None else _tokenizer(source, options)
    if "device_map" not in places:
        device = placing.device or best_device()
        try:
            weights = weights.to(device)
        except (RuntimeError, AssertionError) as error:
            raise ModelError(f"cannot use device {str(device)!r}: {one_line(error)}") from error
    commit = getattr(config, "_commit_hash", None)
    return Model(
        weights.eval(), tokenizer, name=source.name, task=task, family=entry, revision=commit or source.revision
    )


def _weights(source: Source, task: str, placing: Placing, options: Mapping[str, Any]) -> Any:
    """The stock model with the head of this task, complete: weights that are not in the file are random, and a map of
    those says nothing. Where weights are placed or packed in a special way, that is the likely reason of a failure.

    Two kinds of missing weights are harmless. A bias that is not stored is zero, and the pooler of a model without a
    classification head is not used.
    """
    import transformers

    try:
        auto = getattr(transformers, TASKS[task][0])
        model, report = auto.from_pretrained(source.place, output_loading_info=True, **options)
    except Exception as error:
        words = ", ".join(key for key in ("device_map", "quantization") if getattr(placing, key) is not None)
        told = f"cannot load {source.name!r} with this {words}: {one_line(error)}" if words else source.refusal(error)
        raise ModelError(told) from error
    missing = {key for key in report["missing_keys"] if task == "classification" or "pooler" not in key}
    biases = {key for key in missing if key.endswith(".bias")}
    if biases:  # weights are read only where there is a bias among the keys
        missing -= {key for key, weights in weights_of(model) if key in biases and not bool(weights.any())}
    # transformers lists names, or tuples of name and shapes
    mismatched = [str(one[0] if isinstance(one, tuple) else one) for one in report.get("mismatched_keys", [])]
    if random := [*sorted(missing), *mismatched]:
        listed = ", ".join(random[:3]) + (", ..." if len(random) > 3 else "")
        raise ModelError(
            f"{source.name!r} has no weights for {len(random)} parts of a {task} model ({listed}). "
            "Random weights would give a map of nothing. Use a complete checkpoint, or another task=."
        )
    return model


def _tokenizer(source: Source, options: Mapping[str, Any]) -> Any:
    """The tokenizer, or None where the model has none: a folder without a file of one."""
    import transformers

    folder = source.folder
    if folder is not None and not any((folder / file).exists() for file in TOKENIZER_FILES):
        return None
    try:
        return transformers.AutoTokenizer.from_pretrained(source.place, **options)
    except Exception as error:
        if folder is not None:
            raise ModelError(f"cannot read the tokenizer of {source.name!r}: {one_line(error)}") from error
        return None


def _hub_in_reach() -> bool:
    """Whether the hub's name can be looked up at all. Behind a proxy only the proxy knows."""
    from huggingface_hub import constants

    if any(map(os.environ.get, PROXIES)):
        return True
    host = urlsplit(constants.ENDPOINT).hostname
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
