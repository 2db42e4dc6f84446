"""What a run is known by, and what its manifest says of the model, the data and the machine."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from ...scoring.maps import versions
from ...scoring.provenance import model_fingerprint, public_name, whereabouts
from .sources import Corpus
from .worker import Worker

PLACES = ("device", "device_map", "max_memory", "offload_folder")  # options of loading that say where the weights are


def identity_of(worker: Worker, source: Corpus, options: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run this run: a folder with another identity is not written to. Options that earlier versions did
    not have are named where they are set: the types of carried columns that are no text, `trust`, `generate`,
    `truncate`, and a checksum of the chat template, which is no part of a model's own fingerprint."""
    plan = asdict(worker.plan)
    later = {name: plan.pop(name) for name in ("kinds", "trust", "generate", "chat", "truncate")}
    del plan["methods"]
    if later["chat"]:
        template = getattr(worker.model.tokenizer, "chat_template", None)
        said = json.dumps(template, sort_keys=True, default=str)
        later["chat"] = hashlib.sha256(said.encode()).hexdigest()[:16]
    later["kinds"] = dict(worker.plan.kinds)
    return {
        "kind": "corpus",
        "model": model_fingerprint(worker.model),
        "data": source.fingerprint or source.name,
        "methods": list(worker.plan.methods),
        "options": {**plan, **{name: value for name, value in later.items() if value}, **options},
        "dtype": str(worker.model.dtype).removeprefix("torch."),
        **whereabouts(worker.model),
        # Python may differ between two parts of a run
        "versions": {name: version for name, version in versions().items() if name != "python"},
    }


def without_gpu(options: Mapping[str, Any]) -> dict[str, Any]:
    """Load options for the process that only writes: GPUs are for the workers, and a model that is spread stays on
    disk."""
    others = {name: value for name, value in options.items() if name not in PLACES}
    if options.get("device_map") is None or options.get("quantization") is not None:
        return {**others, "device": "cpu"}
    return {**others, "device_map": {"": "disk"}, "offload_folder": options.get("offload_folder")}


def provenance_of(worker: Worker, source: Corpus) -> dict[str, Any]:
    """What the manifest says beside the identity: names, places and versions for a reader. The classes of a classifier
    are in the model's order; labels are compared with them."""
    model, classes = worker.model, None
    if model.task == "classification":
        config = model.hf_model.config
        classes = [str(config.id2label.get(number, number)) for number in range(config.num_labels)]
    return {
        "model": {
            "name": public_name(model.name),
            "revision": model.revision,
            "task": model.task,
            "family": model.family.name,
            "classes": classes,
        },
        "check": None if model.proof is None else model.proof.gap,
        "data": public_name(source.name),
        "versions": versions(),
        "device": model.placement,
        "quantization": model.quantization,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "columns": {field.name: str(field.type) for field in worker.schema()},
    }
