"""mixlens: which tokens flow into which in a Transformer, layer by layer, proven against the model itself."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are fetched when first used, so that `mixlens --help` needs no torch.
_PUBLIC = {
    "load": "model",
    "Model": "model",
    "mix": "mixing",
    "attribute": "attributing",
    "attribution": "attributing",
    "methods": "mixing",
    "mixing": "mixing",
    "rollout": "aggregate",
    "flow": "aggregate",
    "readout": "aggregate",
    "identifiability": "identify",
    "alternative_attention": "identify",
    "load_result": "store",
    "report": "reporting",
    "plot": "show.figure",
    "judge": "judge",
    "run": "corpus",
    "summarize": "corpus",
    "families": "families",
    "Family": "families",
    "Example": "types",
    "Trace": "types",
    "Map": "types",
    "Attribution": "types",
    "Record": "types",
    "MixlensError": "errors",
}
__all__ = [
    "Attribution",
    "Example",
    "Family",
    "Map",
    "MixlensError",
    "Model",
    "Record",
    "Trace",
    "__version__",
    "alternative_attention",
    "attribute",
    "attribution",
    "families",
    "flow",
    "identifiability",
    "judge",
    "load",
    "load_result",
    "methods",
    "mix",
    "mixing",
    "plot",
    "readout",
    "report",
    "rollout",
    "run",
    "summarize",
]

if TYPE_CHECKING:
    from .aggregate import flow, readout, rollout
    from .attributing import attribute, attribution
    from .corpus import run, summarize
    from .errors import MixlensError
    from .families import Family, families
    from .identify import alternative_attention, identifiability
    from .judge import judge
    from .mixing import methods, mix, mixing
    from .model import Model, load
    from .reporting import report
    from .show.figure import plot
    from .store import load_result
    from .types import Attribution, Example, Map, Record, Trace


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
