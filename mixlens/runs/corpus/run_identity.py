"""What a run is known by, and what its manifest says of the model, the data and the machine."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from ...fast.loops import used
from ...model.model import Model
from ...scoring.maps import versions
from ...scoring.provenance import model_fingerprint, public_name, whereabouts
from .cluster import Pool
from .sources import Corpus
from .worker import Worker

PLACES = ("device", "device_map", "max_memory", "offload_folder")  # options of loading that say where the weights are


def identity_of(worker: Worker, source: Corpus, options: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run this run: a folder with another identity is not written to."""
    return {
        "kind": "corpus",
        "model": model_fingerprint(worker.model),
        "data": source.fingerprint or source.name,
        "methods": list(worker.plan.methods),
        "options": {**_plan_options(worker), **options},
        "dtype": str(worker.model.dtype).removeprefix("torch."),
        **whereabouts(worker.model),
        "versions": _library_versions(),
    }


def _plan_options(worker: Worker) -> dict[str, Any]:
    """The plan without its methods; with the types of carried columns where some are no text; with `trust`, `generate` and
    the chat template where they are set."""
    plan = asdict(worker.plan)
    del plan["methods"], plan["kinds"], plan["trust"], plan["chat"]
    generate = plan.pop("generate")
    kinds = {"kinds": dict(worker.plan.kinds)} if worker.plan.kinds else {}
    trust = {"trust": True} if worker.plan.trust else {}
    chat = {"chat": _template(worker.model)} if worker.plan.chat else {}
    return {**plan, **kinds, **trust, **({} if generate is None else {"generate": generate}), **chat}


def _template(model: Model) -> str:
    """A checksum of the chat template, which is no part of a model's own fingerprint."""
    template = getattr(model.tokenizer, "chat_template", None)
    return hashlib.sha256(json.dumps(template, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _library_versions() -> dict[str, Any]:
    """The versions of everything but Python, which may differ between two parts of a run."""
    known = dict(versions())
    known.pop("python", None)
    return known


def places_of(pool: Pool) -> dict[str, str]:
    """The entries of an identity that say where the workers of a pool compute."""
    return {"device": pool.device, "kernels": "triton" if pool.device == "cuda" else used(torch.device("cpu"))}


def without_gpu(options: Mapping[str, Any]) -> dict[str, Any]:
    """Load options for the process that only writes: GPUs are for the workers, and a model that is spread stays on disk."""
    others = {name: value for name, value in options.items() if name not in PLACES}
    if options.get("device_map") is None or options.get("quantization") is not None:
        return {**others, "device": "cpu"}
    return {**others, "device_map": {"": "disk"}, "offload_folder": options.get("offload_folder")}


def provenance_of(worker: Worker, source: Corpus) -> dict[str, Any]:
    """What the manifest says beside the identity: names, places and versions for a reader."""
    model = worker.model
    return {
        "model": {
            "name": public_name(model.name),
            "revision": model.revision,
            "task": model.task,
            "family": model.family.name,
            "classes": _classes(model),
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


def _classes(model: Model) -> list[str] | None:
    """The names of a classifier's outputs, in the model's order; labels are compared with them."""
    if model.task != "classification":
        return None
    config = model.hf_model.config
    return [str(config.id2label.get(number, number)) for number in range(config.num_labels)]
