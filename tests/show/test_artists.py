"""Every figure has the artists that `artists.json` keeps: each text, patch, line, image, tick and limit, with its
colours.

What is meant to change is kept anew by `python tests/show/artists.py --again`, and shows in the diff of `artists.json`.
"""

from __future__ import annotations

from itertools import zip_longest

import pytest

pytest.importorskip("matplotlib")
import artists
import kept

KEPT = kept.read(artists.PATH) if artists.PATH.exists() else {}


@pytest.mark.parametrize("name", artists.FIGURES)
def test_a_figure_has_the_artists_that_are_kept(name: str) -> None:
    assert name in KEPT, f"nothing is kept of {name!r}: `python tests/show/artists.py --again`"
    pairs = zip_longest(artists.drawn(name), KEPT[name], fillvalue="nothing")
    assert not [f"{here}  <- kept: {there}" for here, there in pairs if not kept.near(here, there)]
