"""All that is drawn on a figure, a line for each artist: places, sizes, colours, ticks, limits. Letters have one width
here, so that the numbers do not depend on a font library. `python tests/show/artists.py --again` keeps the lines anew
in `artists.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kept
import made_values as made
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

import mixlens
from mixlens import metrics
from mixlens.show import figure
from mixlens.show.figure import layout

PATH = Path(__file__).with_name("artists.json")
MANY = 20  # patches of one axes that are written out; more are summed up


class EqualLetters:
    """Measures texts as if every letter were half as wide as high."""

    def get_text_width_height_descent(self, text: str, font: Any, ismath: bool) -> tuple[float, float, float]:
        return 0.5 * font.get_size_in_points() * len(text), 0.0, 0.0


@contextmanager
def equal_letters() -> Iterator[None]:
    real = layout.text_to_path
    layout.text_to_path = EqualLetters()  # type: ignore[assignment]
    try:
        yield
    finally:
        layout.text_to_path = real


# --- lines ------------------------------------------------------------------------------------------------------------


def number(value: Any) -> str:
    return f"{round(float(value), 9) + 0.0:.5g}"


def numbers(values: Any) -> str:
    return " ".join(map(number, np.ravel(np.asarray(values, dtype=float))))


def lines_of(page: Figure) -> list[str]:
    """All lines of a figure."""
    wide, high = page.get_size_inches()
    title = page._suptitle
    found = [f"page {numbers([wide, high])}"]
    found += [] if title is None else [f"suptitle {text_line(title)} {title._linespacing:g}"]
    for axes in page.axes:
        found += axes_lines(axes, wide, high, laid_out=page.get_layout_engine() is None)
        for inner in axes.child_axes:
            found += ["inner", *axes_lines(inner, wide, high, laid_out=False)]
    for legend in page.legends:
        texts = [text.get_text() for text in legend.get_texts()]
        facts = (
            legend._ncols,
            legend._fontsize,
            legend.get_frame_on(),
            legend.columnspacing,
            legend.handlelength,
            legend._loc,
        )
        found.append(f"legend {texts} {facts}")
    return found


def axes_lines(axes: Axes, wide: float, high: float, *, laid_out: bool) -> Iterator[str]:
    left, low, across, up = axes.get_position().bounds
    place = [left * wide, low * high, across * wide, up * high] if laid_out else []
    yield f"axes {numbers(place)} x {numbers(axes.get_xlim())} y {numbers(axes.get_ylim())} on {axes.axison} {axes.get_gid()}"  # noqa: E501
    if axes.axison:
        yield from frame_lines(axes)
    yield from artist_lines(axes)


def frame_lines(axes: Axes) -> Iterator[str]:
    """Ticks, labels and spines."""
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        yield from axis_lines(name, axis)
    for which in ("left", "center", "right"):
        title = {"left": axes._left_title, "center": axes.title, "right": axes._right_title}[which]
        if title.get_text():
            pad = numbers(axes.titleOffsetTrans.get_matrix()[1, 2] * 72)
            yield f"title {which} {title.get_text()!r} {title.get_fontsize()} {title.get_parse_math()} pad {pad}"
    spines = [
        f"{side} {spine.get_linewidth():g} {to_hex(spine.get_edgecolor())}"
        for side, spine in axes.spines.items()
        if spine.get_visible()
    ]
    yield f"spines {'; '.join(spines)}"


def axis_lines(name: str, axis: Any) -> Iterator[str]:
    label, ticks = axis.get_label(), axis.get_major_ticks()
    texts = [tick.get_text() for tick in axis.get_ticklabels()]
    if label.get_text():
        side = f"pad {axis.labelpad:g} {axis.get_label_position()}"
        yield f"{name}label {label.get_text()!r} {label.get_fontsize()} {label.get_parse_math()} {side}"
    if ticks and texts:
        tick = ticks[0]
        line, text = tick.tick1line, tick.label1 if tick.label1.get_visible() else tick.label2
        stroke = f"{line.get_markeredgewidth():g} {to_hex(line.get_color())}"
        facts = f"length {line.get_markersize():g} width {stroke} pad {tick.get_pad():g}"
        letters = f"{text.get_fontsize():g} {text.get_rotation():g} {to_hex(text.get_color())} {text.get_parse_math()}"
        yield f"{name}ticks {numbers(axis.get_ticklocs())} {texts} {facts} {letters} {axis.get_ticks_position()}"


def artist_lines(axes: Axes) -> Iterator[str]:
    patches = [patch_line(patch) for patch in axes.patches]
    yield from patches if len(patches) <= MANY else summed(patches)
    for line in axes.lines:
        yield line_line(line)
    for text in axes.texts:
        yield f"text {text_line(text)} {space_of(text, axes)}"
    for image in axes.images:
        yield image_line(image)
    for collection in axes.collections:
        yield collection_line(collection)


def summed(lines: Sequence[str]) -> Iterator[str]:
    """Every seventh line of many, and how many there are."""
    yield f"{len(lines)} patches"
    yield from lines[::7]
    yield lines[-1]


def text_line(text: Text) -> str:
    where = f"{text.get_horizontalalignment()} {text.get_verticalalignment()}"
    facts = f"{text.get_fontsize():g} {text.get_rotation():g} {to_hex(text.get_color())} {text.get_weight()} {text.get_parse_math()}"  # noqa: E501
    return f"{text.get_text()!r} {numbers(text.get_unitless_position())} {where} {facts}"


def space_of(text: Text, axes: Axes) -> str:
    if text.get_transform() == axes.transData:
        return "data"
    return (
        "axes"
        if text.get_transform() == axes.transAxes
        else f"shifted {numbers(text.get_transform().transform((0, 0)) / axes.figure.dpi)}"
    )


def patch_line(patch: Any) -> str:
    box = isinstance(patch, Rectangle)
    place = [*patch.get_xy(), patch.get_width(), patch.get_height()] if box else patch.get_path().vertices
    hues = f"{to_hex(patch.get_facecolor(), keep_alpha=True)} {to_hex(patch.get_edgecolor(), keep_alpha=True)}"
    return f"patch {numbers(place)} {hues} {patch.get_linewidth():g} {patch.get_hatch()} {patch.get_clip_on()} {patch.get_gid()}"  # noqa: E501


def line_line(line: Line2D) -> str:
    style = f"{line.get_color()} {line.get_linewidth():g} {line._unscaled_dash_pattern} {line.get_linestyle()}"
    marks = f"{line.get_marker()} {line.get_markersize():g} {line.get_solid_capstyle()} {line.get_clip_on()}"
    name = str(line.get_label()).partition("_child")[0]
    return f"line {numbers(line.get_xdata())} to {numbers(line.get_ydata())} {style} {marks} {name}"


def image_line(image: AxesImage) -> str:
    array = np.ma.asarray(image.get_array(), dtype=float)
    held = np.ma.filled(array, -9.0)
    weights = np.arange(1, held.size + 1).reshape(held.shape)
    hues = image.get_cmap()(np.linspace(0, 1, 9))
    sums = [
        held.sum(),
        (held * weights).sum(),
        hues.sum(),
        (hues * np.arange(1, hues.size + 1).reshape(hues.shape)).sum(),
    ]
    style = f"{image.get_interpolation()} {image.origin} {image.get_cmap().name} {image.get_cmap().N} {image.axes.get_aspect()}"  # noqa: E501
    return f"image {held.shape} {numbers(sums)} clim {numbers(image.get_clim())} extent {numbers(image.get_extent())} {style}"  # noqa: E501


def collection_line(collection: Collection) -> str:
    path = collection.get_paths()[0].vertices
    hues = [to_hex(one, keep_alpha=True) for one in collection.get_facecolor()]
    return f"collection {numbers(path)} {hues} {collection.get_alpha()} {numbers(collection.get_linewidth())}"


# --- figures ----------------------------------------------------------------------------------------------------------


def on_axes(draw: Callable[[Axes], Any], size: tuple[float, float] = (4, 3)) -> Figure:
    page = Figure(figsize=size)
    draw(page.add_axes((0.125, 0.25, 0.5, 0.5)))
    return page


def long_row(n: int, *, signed: bool = False, **info: Any) -> Any:
    """Many tokens, some of which continue a word."""
    tokens = tuple(f"##{i}" if i % 5 == 3 else f"word{i}" for i in range(n))
    scores = [((7 * i) % 11 - (4 if signed else 0)) / 10 for i in range(n)]
    one = made.attribution()
    facts = {**one.info, **info}
    return type(one)(made.torch.tensor(scores, dtype=made.torch.float64), tokens, "attcat", facts)


def interval(mean: float) -> metrics.Interval:
    return metrics.Interval(mean, mean - 0.25, mean + 0.5, 9, 0.1)


def curve(count: int, points: int) -> dict[str, list[metrics.Interval]]:
    return {f"curve {c}": [interval(c + p) for p in range(points)] for c in range(count)}


HISTOGRAM = {"alti": [3.0, 0.0, 1.25, 12.0], "a row with a rather long name": [0.0, 2.0, 4.0, 1234.0]}
FIGURES: dict[str, Callable[[], Any]] = {
    "strip": lambda: made.attribution().plot(),
    "strip of shares, wide": lambda: made.row_of_map().plot(width="double", vmax=0.25),
    "strip of words without colours": lambda: (
        made.attribution().by_word().plot(colorbar=False, title="Mine · " + "long " * 30)
    ),
    "long strip": lambda: long_row(61, signed=True, target=None).plot(title=""),
    "strip of 60": lambda: long_row(60).plot(width=9),
    "strip on axes": lambda: on_axes(lambda axes: made.attribution().plot(ax=axes)),
    "strip on small axes": lambda: on_axes(lambda axes: long_row(30).plot(ax=axes, title="T"), (3, 1.2)),
    "strips": lambda: mixlens.plot([made.attribution(), made.row_of_map()], kind="strip"),
    "strips by name": lambda: mixlens.plot(
        {"one": made.attribution(), "attcat": made.attribution()}, kind="strip", colorbar=False
    ),
    "bars": lambda: made.attribution().plot(kind="bars"),
    "bars of shares": lambda: made.row_of_map().plot(kind="bars", top=3, title="Some"),
    "all bars": lambda: made.row_of_map().plot(kind="bars", top=10),
    "bars of zeros": lambda: made.attribution((0.0, 0.0, 0.0), target=None).plot(kind="bars"),
    "bars against": lambda: made.attribution((-0.5, 0.0, -2.0), target="no", score=None).plot(kind="bars"),
    "bars on axes": lambda: on_axes(lambda axes: made.attribution().plot(kind="bars", ax=axes, top=4)),
    "bars on small axes": lambda: on_axes(lambda axes: long_row(40).plot(kind="bars", ax=axes), (4, 2)),
    "many bars": lambda: long_row(90, signed=True).plot(kind="bars"),
    "matrix": lambda: made.a_map().plot(),
    "matrix, first layer": lambda: made.a_map(3).plot(layer=0, vmax=0.2, title="First", width=6),
    "matrix with numbers": lambda: made.a_map(2, 3).plot(layer=1, numbers=True, colorbar=False, width=2.5),
    "matrix on axes": lambda: on_axes(lambda axes: made.a_map().plot(ax=axes, layer=-2)),
    "matrix on axes without colours": lambda: on_axes(
        lambda axes: made.a_map(2, 3).plot(ax=axes, colorbar=False, numbers=True)
    ),
    "matrix of signs": lambda: signed_map().plot(),
    "matrix of signs with numbers": lambda: signed_map().plot(numbers=True, width="double"),
    "large matrix": lambda: made.a_map(1, 45).plot(),
    "layers": lambda: made.a_map(3).plot(kind="layers"),
    "layers of a norm": lambda: norm_map().plot(kind="layers", query=2, numbers=True, width=6),
    "layers on one scale": lambda: norm_map().plot(kind="layers", query="w1", scale="all"),
    "many layers": lambda: made.a_map(60, 3).plot(kind="layers"),
    "grid": lambda: made.a_map(5, 3).plot(kind="grid", width=4),
    "grid with numbers": lambda: made.a_map(2, 3).plot(kind="grid", numbers=True),
    "words": lambda: made.pair_map().plot(layer=1),
    "words without a text": lambda: made.pair_map(text=None, pair=None, prediction=None).plot(layer=0, colorbar=False),
    "pieces": lambda: made.pair_map().plot(layer=0, pieces=True, width="double"),
    "words with numbers": lambda: made.pair_map().plot(layer=2, numbers=True, width="double", title="Words"),
    "words read at one": lambda: made.pair_map(query=5, prediction=[]).plot(layer=0, vmax=0.1),
    "words of a norm": lambda: made.pair_map(method="norm").plot(layer=0, width=4),
    "runs of words": lambda: made.long_map(50).plot(width="single"),
    "words on axes": lambda: on_axes(lambda axes: made.pair_map().plot(ax=axes, layer=0)),
    "flow": lambda: made.pair_map().plot(kind="flow"),
    "wide flow": lambda: made.pair_map(4).plot(kind="flow", width="double", top=2, title="Flow"),
    "flow into a word": lambda: made.pair_map().plot(kind="flow", query="unhappy"),
    "flow into a piece": lambda: made.pair_map(query=3).plot(kind="flow", width=5),
    "flow of many words": lambda: made.long_map(50).plot(kind="flow"),
    "heads": lambda: made.heads().plot(),
    "heads of one layer": lambda: made.heads().plot(layer=0, title="Heads", numbers=False),
    "rows": lambda: mixlens.plot([made.row_of_map(), made.attribution()]),
    "rows on one scale": lambda: mixlens.plot(
        [made.attribution(), made.attribution(method="blank_out")], scale="all", numbers=True, width=8
    ),
    "rows of two units": lambda: mixlens.plot(
        [made.row_of_map(), made.attribution()], scale="all", numbers=True, width=8, vmax=0.5
    ),
    "rows of one unit": lambda: mixlens.plot(
        [made.row_of_map(), made.row_of_map(method="alti")], scale="all", colorbar=False
    ),
    "rows of layers": lambda: mixlens.plot([made.row_of_map(layer=0), made.row_of_map(layer=1)], labels=["a", "b"]),
    "rows on axes": lambda: on_axes(lambda axes: mixlens.plot([made.row_of_map(), made.row_of_map()], ax=axes)),
    "matrices": lambda: mixlens.plot([made.a_map(), made.a_map(3, method="globenc")], layer=1),
    "matrices of norms": lambda: mixlens.plot({"one": norm_map(), "two": norm_map()}, width=5, title="Norms"),
    "layers of two": lambda: mixlens.plot(
        [made.a_map(), made.a_map(method="globenc", variant="released")], kind="layers"
    ),
    "curves": lambda: figure.curves(
        {"alti": [0.1, 0.4, 0.2], "b $5": [interval(0.5)] * 3}, title="A $ title", y="score $"
    ),
    "curves at places": lambda: figure.curves(
        {"a": [1, 2], "b": [(0.5, interval(1.0)), (2.5, 3.0)]}, at=[0.25, 4], width=6
    ),
    "one place": lambda: figure.curves({"a": [interval(1.0)], "b": [2.0], "c": [interval(1.5)]}, x="after", y="score"),
    "one curve of one place": lambda: figure.curves({"a": [interval(1.0)]}),
    "many curves": lambda: figure.curves(curve(9, 13), width="double"),
    "more curves": lambda: figure.curves(curve(34, 14)),
    "curves on axes": lambda: on_axes(lambda axes: figure.curves(curve(2, 3), ax=axes, x="step", title="T")),
    "histograms": lambda: figure.histogram_rows(HISTOGRAM, edges=[0, 0.25, 0.5, 0.75, 1]),
    "histograms with values": lambda: figure.histogram_rows(
        HISTOGRAM, edges=[1, 2, 4, 5, 9], values={"alti": "12 %"}, value_name="turned", x="left $", grey="alti", width=6
    ),
    "empty histograms": lambda: figure.histogram_rows({"a": [0, 0]}, edges=[0, 1, 3], value_name="v"),
    "written words": lambda: made.generation().plot(),
    "written words against": lambda: made.generation(signed=True).plot(title="Mine", width=5, vmax=0.4),
    "written sentences": lambda: made.generation().plot(kind="sentences", width=3),
    "written sentences against": lambda: made.generation(signed=True).plot(kind="sentences", vmax=0.5),
    "left out": lambda: made.generation().plot(kind="left_out", width=4),
    "narrow words": lambda: made.generation(effects=False).plot(width=2.6),
    "chat": lambda: made.chat().plot(kind="words", width=3.2),
}


def signed_map() -> Any:
    one = made.a_map(1, 4, target="yes", score="logit")
    scores = one.scores.clone()
    scores[0, 0, 2], scores[0, 3, 1], scores[0, 2, 2], scores[0, 1, 3] = -0.4, -0.018, -0.02, -120.0
    return made.replace(one, scores=scores)


def norm_map() -> Any:
    one = made.a_map(3, 4, method="norm")
    scores = one.scores * made.torch.tensor([1.0, 20.0, 300.0])[:, None, None]
    scores[1, 2] = 0
    return made.replace(one, scores=scores)


def drawn(name: str) -> list[str]:
    with equal_letters():
        return lines_of(FIGURES[name]())


CASES = {name: (lambda name=name: drawn(name)) for name in FIGURES}

if __name__ == "__main__":
    kept.main(PATH, CASES)
