"""What an answer rests on, as plain types: the model by name, versions, options, and the command that gives it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model.model import Model
from ..scoring.provenance import versions
from ..types import Trace
from . import choice
from .asked import Asked

if TYPE_CHECKING:
    from .answering import Scored, Settings


def model_name(model: Model) -> str:
    """The last part of a folder; a hub id as it is."""
    path = Path(model.name)
    return path.name if path.is_absolute() or path.is_dir() or model.name.startswith(".") else model.name


def classes_of(model: Model) -> tuple[str, ...] | None:
    if not model.task.endswith("classification"):
        return None
    labels = model.hf_model.config.id2label
    return tuple(str(labels[number]) for number in sorted(labels))


def provenance_of(trace: Trace, settings: Settings, scored: Sequence[Scored], asked: Asked) -> dict[str, Any]:
    model, known = trace.model, versions()
    return {
        **{name: known[name] for name in ("mixlens", "torch", "transformers", "python")},
        "revision": model.revision,
        "family": model.family.name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "quantization": model.quantization,
        "seed": settings.seed,
        "draws": settings.draws,
        "tokens": len(trace),
        "methods": {one.request.name: _facts(one) for one in scored},
        "command": command(trace, settings, asked),
    }


def _facts(one: Scored) -> dict[str, Any]:
    """What a method's scores rest on, as plain types."""
    info = one.result.info
    keys = ("paper", "variant", "options", "target", "score", "baseline", "steps", "completeness", "convention", "gap")
    return {key: _jsonable(info[key]) for key in keys if key in info}


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_jsonable, value))
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)


def command(trace: Trace, settings: Settings, asked: Asked) -> str:
    """The command that gives this answer again."""
    options = {"--pair": trace.pair, "--query": asked.word, "--method": settings.method}
    options |= {
        "--target": None if asked.predicted else asked.name,
        "--foil": None if asked.suggested else asked.foil_name,
    }
    options |= _settings_options(settings)
    parts = ["mixlens", "why", trace.text or "", "-m", _model_argument(trace.model)]
    parts += [part for flag, value in options.items() if value is not None for part in (flag, value)]
    return shlex.join(parts)


def _model_argument(model: Model) -> str:
    """The model as it is named on the command line. The path to a folder is left out: FOLDER stands in its place."""
    name = model_name(model)
    return name if name == model.name else f"FOLDER/{name}"


def _settings_options(settings: Settings) -> dict[str, str | None]:
    """How it is answered, beside the leading method; None for what is usual."""
    return {
        "--methods": None if settings.methods is None else ",".join(settings.methods),
        "--filler": settings.filler,
        "--draws": _unless_usual(settings.draws, choice.DRAWS),
        "--seed": _unless_usual(settings.seed, 0),
    }


def _unless_usual(value: int, usual: int) -> str | None:
    return None if value == usual else str(value)
