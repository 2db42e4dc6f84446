"""mixlens: which tokens flow into which in a Transformer, layer by layer, proven against the model itself.

The house in the order of the pipeline. A file imports only from its own folder and from what stands before it here.

    base            refusals, registries, files, memory, numbers and words
    types           the nouns: frozen values
    data            text -> Example
    model           Example -> Trace: the only folder that knows transformers, hooks and accelerate
    layer           LayerTrace -> exact parts: equations only
    fast            the same numbers, sooner
    scoring         Trace -> Map, Attribution: what is asked, what is scored as one, and its proof
    methods         Block or Question -> scores: one file per paper
    metrics         Attribution -> number
    answers         a text -> the answer, its reasons and whether to trust them; a prompt and what was written after it
    show            values -> strings and pictures
    runs            examples x methods x metrics -> Records; a corpus -> Parquet shards; which method to trust
    papers          the papers' evaluations, one folder each
    serve           the page on this machine
    cli             the command line
    __main__
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are fetched when first used, so that `mixlens --help` needs no torch.
_PUBLIC = {
    "load": "model.loading",
    "Model": "model.model",
    "mix": "scoring.maps",
    "attribute": "scoring.attributions",
    "attribution": "scoring.attributions",
    "methods": "scoring.maps",
    "mixing": "scoring.maps",
    "rollout": "scoring.aggregate",
    "flow": "scoring.aggregate",
    "readout": "scoring.aggregate",
    "identifiability": "scoring.alternative_attention",
    "alternative_attention": "scoring.alternative_attention",
    "load_result": "scoring.saving",
    "why": "answers",
    "Why": "answers",
    "mean": "metrics.averages",
    "attribution_from": "metrics.foreign",
    "report": "show.report",
    "plot": "show.figure.drawing",
    "judge": "runs.judge.judge",
    "run": "runs.corpus",
    "summarize": "runs.corpus",
    "families": "model.families",
    "Family": "model.families",
    "Example": "types",
    "Chat": "types",
    "chat_text": "model.chat",
    "Generation": "answers.generation",
    "Trace": "types",
    "Map": "types",
    "HeadMaps": "types",
    "Attribution": "types",
    "Record": "types",
    "MixlensError": "base.errors",
}
__all__ = [
    "Attribution",
    "Chat",
    "Example",
    "Family",
    "Generation",
    "HeadMaps",
    "Map",
    "MixlensError",
    "Model",
    "Record",
    "Trace",
    "Why",
    "__version__",
    "alternative_attention",
    "attribute",
    "attribution",
    "attribution_from",
    "chat_text",
    "families",
    "flow",
    "identifiability",
    "judge",
    "load",
    "load_result",
    "mean",
    "methods",
    "mix",
    "mixing",
    "plot",
    "readout",
    "report",
    "rollout",
    "run",
    "summarize",
    "why",
]

if TYPE_CHECKING:
    from .answers import Why, why
    from .answers.generation import Generation
    from .base.errors import MixlensError
    from .metrics.averages import mean
    from .metrics.foreign import attribution_from
    from .model.chat import chat_text
    from .model.families import Family, families
    from .model.loading import load
    from .model.model import Model
    from .runs.corpus import run, summarize
    from .runs.judge.judge import judge
    from .scoring.aggregate import flow, readout, rollout
    from .scoring.alternative_attention import alternative_attention, identifiability
    from .scoring.attributions import attribute, attribution
    from .scoring.maps import methods, mix, mixing
    from .scoring.saving import load_result
    from .show.figure.drawing import plot
    from .show.report import report
    from .types import Attribution, Chat, Example, HeadMaps, Map, Record, Trace


class _Face(ModuleType):
    """The import system puts every submodule on its package; `families`, `judge`, `methods`, `mixing` are functions to
    a user."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


def __getattr__(name: str) -> Any:
    if name in ("data", "metrics"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mixlens' has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
