"""Example -> Trace. The only folder that knows transformers, hooks and accelerate."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """`mixlens.model.load` and the other names of model.py, fetched when first used."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module(".model", __name__), name)
