"""Sources are parsed alike whatever the other threads of the process do."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipes.sources import parsed

SOURCE = Path(__file__).read_text(encoding="utf-8")


def yield_to_others(phase: str, info: object) -> None:
    """What a gc callback may do: let another thread run."""
    time.sleep(0)


@pytest.fixture
def other_threads() -> Iterator[None]:
    """Two threads that write tracebacks, for which Python parses sources, and a garbage collector that lets them
    run."""
    done, switch = threading.Event(), sys.getswitchinterval()

    def work() -> None:
        while not done.is_set():
            try:
                (1).missing + 2  # type: ignore[attr-defined]
            except AttributeError:
                traceback.format_exc()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    gc.callbacks.append(yield_to_others)
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(switch)
        gc.callbacks.remove(yield_to_others)


def test_a_source_is_parsed_while_other_threads_parse(other_threads: None) -> None:
    trees = [parsed(SOURCE) for _ in range(40)]
    assert {ast.dump(tree) for tree in trees} == {ast.dump(trees[0])}


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_is_left_as_it_was(is_enabled: bool) -> None:
    before = gc.isenabled()
    try:
        gc.enable() if is_enabled else gc.disable()
        parsed("x = 1")
        with pytest.raises(SyntaxError):
            parsed("x =")
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable() if before else gc.disable()
