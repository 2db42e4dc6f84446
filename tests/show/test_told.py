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


def test_values_differ_by_more_than_rounding() -> None:
    kept_page = 'style="width: 12.5%" {"share":0.32349559525613913,"gap":2.5e-07}'
    same = 'style="width: 12.5%" {"share":0.3234955952561391,"gap":2.5000000000000004e-07}'
    others = [
        kept_page.replace("12.5", "12.6"),
        kept_page.replace("0.32349559525613913", "0.32349559625613913"),
        kept_page.replace("2.5e-07", "2.6e-05"),
        kept_page.replace("gap", "gaps"),
        kept_page + " ",
    ]
    assert not list(kept.differences({"page": [same]}, {"page": [kept_page]}, "it"))
    assert all(list(kept.differences([other], [kept_page], "it")) for other in others)
    assert list(kept.differences([1], [1.5], "it"))
    assert list(kept.differences([True], [1.0], "it"))
    assert not list(kept.differences([0.1 + 0.2], [0.3], "it"))
