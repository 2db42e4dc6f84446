"""A pytest plugin: writes down which lines of mixlens each test runs, for `recipes.mutants.covering`.

Nothing is written while tests run: some of them take rights or space away. Each process writes one file at its end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

from .covering import FOLDER

measured = Coverage(data_file=None, source_pkgs=["mixlens"], config_file=False, check_preimported=False)


def pytest_configure(config: Any) -> None:
    if hasattr(config, "workerinput"):
        measured.start()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_setup(item: Any) -> Iterator[None]:
    measured.switch_context(f"{item.nodeid}|setup")
    yield


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    measured.switch_context(f"{item.nodeid}|run")
    yield
    measured.switch_context("between tests")


def pytest_sessionfinish(session: Any) -> None:
    if not hasattr(session.config, "workerinput"):
        return
    measured.stop()
    data = measured.get_data()
    told = {file: data.contexts_by_lineno(file) for file in data.measured_files()}
    folder = Path(os.environ[FOLDER])
    (folder / f"{session.config.workerinput['workerid']}.json").write_text(json.dumps(told))
