"""`python -m recipes.house`: what it counts, on code that is counted by hand."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from recipes import house  # noqa: E402
from recipes.sources import parsed  # noqa: E402

CODE = """\
from functools import cache
STORE: dict[str, int] = {}
FULL = {"a": 1}
SETTING = ContextVar("setting")


@cache
def plain(x):
    return x


def branching(x, y):
    for one in x:
        if one and y or not x:
            return [a for a in x if a]

    def inner():
        return 1 if x else 2
    return None
"""


def test_the_table_counts_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.py").write_text(CODE)
    (tmp_path / "two.py").write_text("A = []\n")
    assert house.main([str(tmp_path)]) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [
        ["files / lines", "2 / 20"],
        ["median / largest file", "10 / 19"],
        ["files over 400 lines", "0"],
        ["functions", "3"],
        ["function length, median / 90 %", "2 / 8"],
        ["complexity, mean / largest", "3.33 / 7"],
        ["ContextVars / caches / empty mutable globals", "1 / 1 / 2"],
    ]


@pytest.mark.parametrize(("code", "expected"), [("pass", 1), ("x or y or z", 3), ("while x: pass", 2), ("assert x", 2)])
def test_complexity_is_branches_plus_one(code: str, expected: int) -> None:
    function = parsed(f"def f(x, y, z):\n    {code}\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert house.complexity(function) == expected


def test_a_folder_without_python_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.main([str(tmp_path)]) == 2
    assert "no Python file" in capsys.readouterr().err
