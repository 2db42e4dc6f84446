"""Whole values that are kept in a file beside the tests, and how a value is compared with the one that is kept.

`python tests/show/NAME.py --again` writes the file anew; what is meant to change shows in its diff.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|#[0-9a-fA-F]{6,8}")
CLOSE = 2e-4  # numbers are kept with five digits
LONG = re.compile(
    r"-?\d+\.\d{9,}(?:e[+-]?\d+)?|-?\d+(?:\.\d+)?e-\d+"
)  # a number with all its digits, as JSON writes it


def plain(value: Any) -> Any:
    """The value as JSON has it."""
    return json.loads(json.dumps(value, ensure_ascii=False))


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def write(path: Path, cases: Mapping[str, Callable[[], Any]]) -> None:
    path.write_text(_written({name: cases[name]() for name in cases}, 2) + "\n", encoding="utf-8")


def _written(value: Any, depth: int) -> str:
    """JSON with a line for each part down to this depth."""
    if not depth or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[\n" + ",\n".join(_written(one, depth - 1) for one in value) + "\n]"
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_written(one, depth - 1)}" for key, one in value.items()) + "\n}"


def differences(here: Any, there: Any, path: str) -> Iterator[str]:
    """Where two nested values differ, one line each. Numbers with a point may differ in their last digit, also within a
    text:
    processors add up in other orders."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in [*here, *(key for key in there if key not in here)]:
            yield from differences(here.get(key, "nothing"), there.get(key, "nothing"), f"{path} > {key}")
        if list(here) != list(there) and {*here} == {*there}:
            yield f"{path}: the order is {list(here)}, kept {list(there)}"
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for place, (one, other) in enumerate(zip(here, there, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")
    elif not _same(here, there):
        yield f"{path}: {here!r}, kept {there!r}"


def _same(here: Any, there: Any) -> bool:
    if isinstance(here, float) or isinstance(there, float):
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (here, there))
        return numbers and _as_near(here, there)
    return type(here) is type(there) and (here == there or (isinstance(here, str) and _same_text(here, there)))


def _same_text(here: str, there: str) -> bool:
    """Whether two texts are the same but for the rounding of numbers that stand there with all their digits."""
    if LONG.sub("#", here) != LONG.sub("#", there):
        return False
    pairs = zip(LONG.findall(here), LONG.findall(there), strict=True)
    return all(_as_near(float(one), float(other)) for one, other in pairs)


def _as_near(here: float, there: float) -> bool:
    return math.isclose(here, there, rel_tol=1e-9, abs_tol=1e-12)


def near(here: str, there: str) -> bool:
    """Whether two lines are the same but for the last digits of their numbers; what is quoted is the same as a
    whole."""
    one, other = (QUOTED.sub("'", line) for line in (here, there))
    if QUOTED.findall(here) != QUOTED.findall(there) or NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(math.isclose(float(first), float(second), rel_tol=CLOSE, abs_tol=1e-5) for first, second in pairs)


def main(path: Path, cases: Mapping[str, Callable[[], Any]]) -> None:
    if sys.argv[1:] != ["--again"]:
        sys.exit(f"`python {sys.argv[0]} --again` writes {path.name} anew.")
    write(path, cases)
