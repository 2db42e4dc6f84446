"""Histogram rows: the columns are the counts, on one scale; of a run they are what its rows say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text
from test_run import go, table

from mixlens import data
from mixlens.base import errors
from mixlens.runs.corpus import turned_figure
from mixlens.show import colors
from mixlens.show.figure import content, histogram_rows

COUNTS = {"alti": [3, 0, 1, 8], "random words": [0.5, 0, 0, 11.5]}


def heights(made: Any) -> list[list[float]]:
    return [[bar.get_height() for bar in axes.patches] for axes in made.axes]


def test_rows_are_counts_on_one_scale() -> None:
    made = histogram_rows(
        COUNTS, edges=[0, 0.25, 0.5, 0.75, 1], values={"alti": "52 %"}, value_name="turned", grey="random words"
    )
    assert heights(made) == list(COUNTS.values())
    assert len({axes.get_ylim() for axes in made.axes}) == 1
    assert to_hex(made.axes[1].patches[0].get_facecolor()) == colors.LIGHT["edge"].lower()
    texts = [text.get_text() for text in made.findobj(Text) if text.get_text()]
    for text in ("ALTI", "52 %", "turned", "3", "8", "0.5", "12", "0\u2009%", "100\u2009%"):
        assert text in texts
    assert min(text.get_fontsize() for text in made.findobj(Text) if text.get_text()) >= 6.5
    assert content(made, ".svg") == content(made, ".svg")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(errors.InputError, match="no rows were given"):
        histogram_rows({}, edges=[0, 1])
    with pytest.raises(errors.InputError, match="'a' has 2 counts, and 2 edges have 1 columns"):
        histogram_rows({"a": [1, 2]}, edges=[0, 1])


def test_the_figure_of_a_run(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    texts = [one.text for one in data.load("sentiment", n=12)]
    go(texts, tmp_path / "run", model="sentiment", methods=["alti", "attcat"], trust=True)
    made, rows = turned_figure(tmp_path / "run", save=tmp_path / "x.svg"), table(tmp_path / "run")
    shares = {name: np.mean([row[f"turned:{name}"] for row in rows]) for name in ("alti", "attcat")}
    best, other = sorted(shares, key=lambda name: -shares[name])
    for drawn, name in zip(heights(made), (best, other), strict=False):
        assert drawn == np.histogram([row[f"without:{name}"] for row in rows], bins=20, range=(0, 1))[0].tolist()
    draws = np.histogram(np.concatenate([row["without_random"] for row in rows]), bins=20, range=(0, 1))[0]
    assert heights(made)[-1] == pytest.approx(draws / (draws.sum() / len(rows)))
    go(texts[:2], tmp_path / "plain", model="sentiment", methods=["alti"])
    with pytest.raises(errors.InputError, match="Make the run with trust=True"):
        turned_figure(tmp_path / "plain")
