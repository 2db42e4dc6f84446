"""What terminals, notebooks and pages say of values made up by hand is, as a whole, what `told.json` keeps.

What is meant to change is kept anew by `python tests/show/told.py --again`, and shows in the diff of `told.json`.
"""

from __future__ import annotations

import kept
import pytest
import told

KEPT = kept.read(told.PATH) if told.PATH.exists() else {}


@pytest.mark.parametrize("name", told.CASES)
def test_what_is_told_is_what_is_kept(name: str) -> None:
    assert name in KEPT, f"nothing is kept of {name!r}: `python tests/show/told.py --again`"
    assert not list(kept.differences(told.told(name), KEPT[name], name))[:9]
