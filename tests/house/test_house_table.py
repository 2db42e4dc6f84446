"""`python -m recipes.house`: what it counts, on code that is counted by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes import house

CODE = """\
from functools import cache  # a comment is no token


def _once(x):
    return x


def _often(x):
    return _once(x) + 1


def public(x):
    return _often(_often(_often(x)))
"""


def test_the_table_counts_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.py").write_text(CODE)
    (tmp_path / "two.py").write_text("A = []\n")
    assert house.main([str(tmp_path)]) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [
        ["files / lines", "2 / 14"],
        ["tokens", "46"],
        ["functions", "3"],
        ["function length, median / 90 %", "2 / 2"],
        ["private functions with one caller, per 1,000 lines", f"{1000 / 14:.1f}"],
    ]


def test_a_folder_without_python_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.main([str(tmp_path)]) == 2
    assert "no Python file" in capsys.readouterr().err
