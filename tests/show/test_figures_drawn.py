"""Figures of every kind lie, measure and look as `drawn.json` says: places in inches, font sizes, line widths and
colours.

What is meant to change is stored anew by `python tests/show/drawn.py --again`, and shows in the diff of `drawn.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("matplotlib")
import drawn

STORED = json.loads(drawn.PATH.read_text())
# A layout measures its texts. Another version of the font library moves an edge by less than a hundredth of an inch;
# the smallest
# change that is meant to be seen, half a point of one font size among a hundred texts, moves a mean by 0.005 points or
# more and
# the largest or least by 0.5.
TOLERANCE = 0.01


def differences(here: Any, there: Any, path: str) -> Iterator[str]:
    """Where two nested values differ, one line each."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted({*here, *there}):
            yield from differences(here.get(key), there.get(key), f"{path} > {key}")
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for place, (one, other) in enumerate(zip(here, there, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")
    elif here != there if isinstance(here, str | int | None) else there is None or abs(here - there) > TOLERANCE:
        yield f"{path}: {here!r}, stored {there!r}"


@pytest.mark.parametrize("name", drawn.FIGURES)
def test_a_figure_is_drawn_as_it_was(name: str) -> None:
    assert name in STORED, f"no numbers of {name!r} are stored: `python tests/show/drawn.py --again`"
    assert not list(differences(json.loads(json.dumps(drawn.drawn(name))), STORED[name], name))
