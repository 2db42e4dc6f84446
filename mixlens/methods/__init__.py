"""One file per method or per paper. A file is found by being in this folder (docs/add-a-method.md)."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points


@cache
def register_all() -> None:
    """Import every file of this folder and every entry point of the group `mixlens.methods`: each registers its methods."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for point in entry_points(group="mixlens.methods"):
        point.load()
