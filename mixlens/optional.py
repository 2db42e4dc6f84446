"""Packages of an extra: imported when they are needed, or a refusal that names the command which installs them."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import InputError, MixlensError


def optional(
    module: str,
    package: str,
    extra: str,
    *,
    what: str = "experiments",
    verb: str = "need",
    error: type[MixlensError] = InputError,
) -> Any:
    """The imported module. Where it cannot be imported: "`what` `verb` `package`: pip install 'mixlens[`extra`]'."."""
    try:
        importlib.import_module(module.partition(".")[0])  # also where the submodule is cached and its package is not there
        return importlib.import_module(module)
    except ImportError:
        raise missing(package, extra, what=what, verb=verb, error=error) from None


def missing(package: str, extra: str, *, what: str, verb: str = "need", error: type[MixlensError] = InputError) -> MixlensError:
    """The refusal for a package that is not installed."""
    return error(f"{what} {verb} {package}: pip install 'mixlens[{extra}]'.")
