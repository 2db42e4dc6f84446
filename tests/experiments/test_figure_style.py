"""Figures of results: every label can be read, nothing lies over anything, names are words."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from mixlens import answers, metrics, show
from mixlens.runs.experiments import Table, figures
from mixlens.runs.experiments import figure_style as style

NAMES = answers.names.NAMES


def interval(mean: float) -> metrics.Interval:
    return metrics.Interval(mean, mean - 0.05, mean + 0.05, 9, 0.1)


def table(names: Any) -> Table:
    numbers = np.random.default_rng(0).normal(size=len(names))
    return Table(
        "t", "", ("method", "aopc"), tuple((name, interval(n)) for name, n in zip(names, numbers, strict=True))
    )


def drawn(draw: Any) -> Figure:
    with matplotlib.rc_context(style.settings()):
        figure = Figure(figsize=style.figure_size(), layout="constrained")
        draw(figure)
        style.tidy(figure)
        figure.canvas.draw()
    return figure


def curves(*names: str, places: int = 6) -> dict[str, list[tuple[float, metrics.Interval]]]:
    numbers = np.random.default_rng(1).random((len(names), places))
    return {name: [(i + 1, interval(n)) for i, n in enumerate(row)] for name, row in zip(names, numbers, strict=True)}


def test_many_labels_do_not_touch_and_are_sorted_by_what_is_shown() -> None:
    figure = drawn(lambda page: figures.bars(page.subplots(), table(list(NAMES)), "aopc"))
    (axes,) = figure.axes
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert len(boxes) == len(NAMES) > 28
    assert all(upper.y0 >= lower.y1 - 0.5 for upper, lower in pairwise(boxes))  # half a pixel
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(widths, reverse=True)
    assert {label.get_text() for label in axes.get_yticklabels()} == {name.name for name in NAMES.values()}
    assert axes.get_xlabel() == "AOPC: mean fall of the probability as the highest scores go"


def test_a_table_that_is_ordered_keeps_its_order() -> None:
    figure = drawn(
        lambda page: figures.bars(page.subplots(), table(["alti", "attcat", "globenc"]), "aopc", ordered=True)
    )
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["ALTI", "AttCAT", "GlobEnc"]


def test_legends_are_one_below_the_axes() -> None:
    def two(page: Figure) -> None:
        for axes in page.subplots(1, 2):
            for name, points in curves("alti", "hta:probes=4").items():
                axes.plot(*zip(*((at, cell.mean) for at, cell in points), strict=True), marker=".", label=name)
            axes.set_xlabel("layer")
            axes.set_ylabel("cue_dot")
            axes.legend(fontsize=4)

    figure = drawn(two)
    assert all(axes.get_legend() is None for axes in figure.axes)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ALTI", "Hidden Token Attribution, probes 4"]
    assert all(legend.get_window_extent().y1 <= axes.get_window_extent().y0 for axes in figure.axes)
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == list("123456")
    assert figure.axes[0].get_ylabel() == "score of the cue"
    assert to_hex(figure.axes[0].lines[1].get_color()) == show.colors.LINES[1]  # not the library's own cycle


def test_a_curve_under_another_is_seen() -> None:
    same = curves("alti", "globenc")
    same["attention"] = same["alti"]
    figure = drawn(lambda page: figures.lines(page.subplots(), same, x="layer", y="spearman"))
    widths = {line.get_label(): line.get_linewidth() for line in figure.axes[0].lines}
    assert widths["alti"] > 2 * widths["attention"]
    assert widths["globenc"] == widths["attention"]


def test_curves_of_one_place_are_bars() -> None:
    figure = drawn(
        lambda page: figures.lines(
            page.subplots(), curves("alti", "globenc", "attcat", places=1), x="layer", y="accuracy"
        )
    )
    (axes,) = figure.axes
    assert len(axes.patches) == 3
    assert (axes.get_title(loc="left"), axes.get_xlabel()) == ("layer 1", "share that is right")


@pytest.mark.parametrize("kind", ["bars", "lines"])
def test_sizes_and_hues(kind: str) -> None:
    """Type is 6.5 to 8 points, and no hue of a sign is used where there is no sign."""
    several = curves(*list(NAMES)[:8])
    draw = {"bars": lambda page: figures.bars(page.subplots(), table(list(NAMES)), "aopc")}
    figure = drawn(draw.get(kind, lambda page: figures.lines(page.subplots(), several, x="layer", y="spearman")))
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()]
    assert (min(sizes), max(sizes)) >= (6.5, 7.0)
    assert max(sizes) <= 8
    used = {to_hex(one.get_color()) for one in figure.axes[0].lines} | {
        to_hex(one.get_facecolor()) for one in figure.axes[0].patches
    }
    signs = {
        show.colors.LIGHT[name].lower()
        for name in ("for", "against", "share", "for-tint", "against-tint", "share-tint")
    }
    assert not used & signs


def test_names_that_are_no_methods_stay() -> None:
    assert style.method_label("hta:probes=4:variant=released") == "Hidden Token Attribution, probes 4, variant released"
    assert style.method_label("value_zeroing:standardize=true") == "Value Zeroing, standardize"
    assert style.method_label("tuned, -3") == "tuned, -3"
    assert style.axis_label("relative_contribution") == "relative contribution"
