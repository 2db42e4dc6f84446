"""mixlens: which tokens flow into which in a Transformer, layer by layer, proven against the model itself.

The house in the order of the pipeline. A file imports only from its own folder and from what stands before it here.

    interrupts errors wrong_kinds paths wording registry optional files budget steps rounding layer_trace types
    data            text -> Example
    model           Example -> Trace: the only folder that knows transformers, hooks and accelerate
    layer           LayerTrace -> exact parts: equations only
    fast            the same numbers, sooner
    provenance conventions products aggregate by_word sentences head_maps arithmetic
    targets completeness notices continuing sequences differentiable questions removal
    methods         Block or Question -> scores: one file per paper
    scored_tensors scoring maps attributions alternative_attention asking command_words
    result_facts saving_text saving
    generation      a prompt and what was written after it -> Generation
    metrics         Attribution -> number
    averages foreign
    why             a text -> the answer, its reasons and whether to trust them
    show            values -> strings and pictures
    experiments     examples x methods x metrics -> Records
    corpus          a corpus -> Parquet shards
    report
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
    "mix": "maps",
    "attribute": "attributions",
    "attribution": "attributions",
    "methods": "maps",
    "mixing": "maps",
    "rollout": "aggregate",
    "flow": "aggregate",
    "readout": "aggregate",
    "identifiability": "alternative_attention",
    "alternative_attention": "alternative_attention",
    "load_result": "saving",
    "why": "why",
    "Why": "why",
    "mean": "averages",
    "attribution_from": "foreign",
    "report": "report",
    "plot": "show.figure.drawing",
    "judge": "experiments.judge",
    "run": "corpus",
    "summarize": "corpus",
    "families": "model.families",
    "Family": "model.families",
    "Example": "types",
    "Chat": "types",
    "chat_text": "model.chat",
    "Generation": "generation",
    "Trace": "types",
    "Map": "types",
    "HeadMaps": "types",
    "Attribution": "types",
    "Record": "types",
    "MixlensError": "errors",
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
    from .aggregate import flow, readout, rollout
    from .alternative_attention import alternative_attention, identifiability
    from .attributions import attribute, attribution
    from .averages import mean
    from .corpus import run, summarize
    from .errors import MixlensError
    from .experiments.judge import judge
    from .foreign import attribution_from
    from .generation import Generation
    from .maps import methods, mix, mixing
    from .model.chat import chat_text
    from .model.families import Family, families
    from .model.loading import load
    from .model.model import Model
    from .report import report
    from .saving import load_result
    from .show.figure.drawing import plot
    from .types import Attribution, Chat, Example, HeadMaps, Map, Record, Trace
    from .why import Why, why


class _Face(ModuleType):
    """The import system puts every submodule on its package; `families`, `judge`, `methods`, `mixing` are functions to a user."""

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
