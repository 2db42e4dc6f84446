"""Packages of an extra: imported when they are needed, or a refusal that names the command which installs them."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path
from typing import Any

from .errors import InputError, MixlensError

PROJECT = "pyproject.toml"  # beside the package in a clone


def optional(
    module: str,
    package: str,
    extra: str,
    *,
    what: str = "experiments",
    verb: str = "need",
    error: type[MixlensError] = InputError,
) -> Any:
    """The imported module. Where it cannot be imported: "`what` `verb` `package`: pip install ...", as `installing`
    has it."""
    try:
        importlib.import_module(
            module.partition(".")[0]
        )  # also where the submodule is cached and its package is not there
        return importlib.import_module(module)
    except ImportError:
        raise missing(package, extra, what=what, verb=verb, error=error) from None


def missing(
    package: str, extra: str, *, what: str, verb: str = "need", error: type[MixlensError] = InputError
) -> MixlensError:
    """The refusal for a package that is not installed."""
    return error(f"{what} {verb} {package}: {installing(extra)}.")


def installing(extra: str, *, package: Path = Path(__file__).parents[1]) -> str:
    """The command that installs an extra. In a clone of the project it is that of the clone: mixlens may be on no
    index."""
    project, here = package.parent / PROJECT, Path(PROJECT)
    if not project.is_file():
        return f"pip install 'mixlens[{extra}]'"
    clone = "." if here.is_file() and here.samefile(project) else str(package.parent)
    return f"pip install -e {shlex.quote(f'{clone}[{extra}]')}"
