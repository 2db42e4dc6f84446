"""Python sources as trees."""

from __future__ import annotations

import ast
import gc


def parsed(source: str) -> ast.Module:
    """The tree of a source, made while the garbage collector rests.

    CPython 3.11 counts the depth of the tree once for all threads. A collection in the middle of `ast.parse` calls
    Python code (gc.callbacks, finalizers), which lets another thread go on; if that one parses too, as Python does to
    write a traceback into a log, `ast.parse` raises "SystemError: AST constructor recursion depth mismatch"."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if was_enabled:
            gc.enable()
