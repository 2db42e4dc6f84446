"""What a figure draws, in numbers: where each text, patch, line and image lies, how large it is and what colours it
has.

`python tests/show/drawn.py --again` stores the numbers of all figures anew in `drawn.json`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

import mixlens
from mixlens import Attribution, Map, metrics
from mixlens.show import figure

PATH = Path(__file__).with_name("drawn.json")
WORDS = (
    *(
        "the",
        "old",
        "keys",
        "to",
        "the",
        "small",
        "cabinet",
        "of",
        "the",
        "house",
        "were",
        "very",
        "rusty",
        "but",
        "nobody",
    ),
    *("cared", "about", "unhappiness", "and"),
)
INFO = {"model": "m", "variant": "paper", "rollout": {"convention": "alti"}, "causal": False}


def scores_of(n: int, *, signed: bool = False) -> torch.Tensor:
    """n numbers between 0 and 1, or between -1 and 1, that repeat nowhere."""
    steps = (torch.arange(n, dtype=torch.float64) * 0.6180339887498949) % 1
    return 2 * steps - 1 if signed else steps


def read(n: int = 6, *, signed: bool = False, method: str = "alti") -> Attribution:
    about = {**INFO, "layer": 2, "query": 5, "query_token": WORDS[5]}
    return Attribution(scores_of(n, signed=signed), tuple(WORDS[i % len(WORDS)] for i in range(n)), method, about)


def map_of(layers: int = 3, n: int = 6, *, method: str = "alti") -> Map:
    scores = scores_of(layers * n * n).view(layers, n, n)
    return Map(scores / scores.sum(-1, keepdim=True), tuple(WORDS[i % len(WORDS)] for i in range(n)), method, INFO)


def several_curves(count: int) -> dict[str, list[metrics.Interval]]:
    return {
        f"curve {c}": [metrics.Interval(c + p, c + p - 0.5, c + p + 0.25, 9, 0.1) for p in range(4)]
        for c in range(count)
    }


def on_axes(draw: Callable[[Any], Any]) -> Figure:
    """A figure drawn on axes of a figure of the caller."""
    page = Figure(figsize=(4, 3))
    draw(page.add_subplot())
    return page


FIGURES: dict[str, Callable[[], Any]] = {
    "strip": lambda: read().plot(),
    "strip of several lines": lambda: read(60, signed=True).plot(title="A title"),
    "strip on axes": lambda: on_axes(lambda axes: read(20).plot(ax=axes, colorbar=False)),
    "bars": lambda: read(9, signed=True).plot(kind="bars"),
    "bars on axes": lambda: on_axes(lambda axes: read(9).plot(kind="bars", ax=axes, top=4)),
    "largest bars": lambda: read(40, signed=True).plot(kind="bars", top=5, vmax=2.0),
    "matrix": lambda: map_of().plot(layer=1),
    "matrix on axes": lambda: on_axes(lambda axes: map_of().plot(ax=axes, numbers=True)),
    "wide matrix with numbers": lambda: map_of(n=12).plot(numbers=True, width="double", title="Numbers"),
    "large matrix": lambda: map_of(1, 70).plot(),
    "layers": lambda: map_of().plot(kind="layers"),
    "layers of many tokens": lambda: map_of(12, 30).plot(
        kind="layers", query=3, numbers=True, scale="all", width="double"
    ),
    "grid": lambda: map_of(7).plot(kind="grid"),
    "grid with numbers": lambda: map_of(4, 4).plot(kind="grid", numbers=True, width=5.0),
    "rows": lambda: mixlens.plot([read(), read(signed=True, method="attcat")]),
    "rows with numbers": lambda: mixlens.plot({"a": read(12), "a longer name": read(12)}, numbers=True, scale="all"),
    "strips": lambda: mixlens.plot([read(25), read(25, signed=True, method="attcat")], kind="strip"),
    "maps": lambda: mixlens.plot({"one": map_of(), "two": map_of(4), "three": map_of(5)}, layer=0),
    "maps of one scale": lambda: mixlens.plot([map_of(), map_of(method="globenc")], layer=2, scale="all", numbers=True),
    "maps by layer": lambda: mixlens.plot([map_of(), map_of(method="globenc")], kind="layers", query=2),
    "curves": lambda: figure.curves(
        {"a": [0.1, 0.4, 0.2], "b": [metrics.Interval(0.2, 0.1, 0.3, 9, 0.1)] * 3}, title="A title"
    ),
    "many curves": lambda: figure.curves(several_curves(19), x="layer", y="score", width="double"),
    "long curves": lambda: figure.curves({"a": list(range(14)), "b": [(0.5, 1.0), (2.5, 3.0)]}),
}


def drawn(name: str) -> dict[str, Any]:
    """The size of a figure; of each kind of artist the number, the colours, and least, mean and largest of each
    measure."""
    page = FIGURES[name]()
    page.canvas.draw()
    kinds: dict[str, list[tuple[list[float], list[str]]]] = {}
    for artist in visible(page):
        for kind, measure in MEASURES.items():
            if isinstance(artist, kind):
                kinds.setdefault(kind.__name__, []).append(measure(artist, page.dpi))
                break
    return {"inches": [round(float(size), 3) for size in page.get_size_inches()]} | {
        kind: {
            "colours": dict(sorted(Counter(colour for _, colours in rows for colour in colours).items())),
            "measures": _summary(np.array([row for row, _ in rows])),
        }
        for kind, rows in sorted(kinds.items())
    }


def visible(artist: Artist) -> Iterator[Artist]:
    """The artist and all that it holds, without what is not shown."""
    if artist.get_visible():
        yield artist
        for child in artist.get_children():
            yield from visible(child)


def _summary(rows: np.ndarray) -> list[list[float]]:
    """[row measure] -> number of rows; least, mean and largest of each measure; mean weighted by the place in the
    list."""
    weights = np.arange(1, len(rows) + 1)[:, None] / len(rows)
    found = [rows.min(0), rows.mean(0), rows.max(0), (rows * weights).mean(0)]
    return [[float(len(rows))], *([round(float(one), 4) for one in row] for row in found)]


def _place(artist: Any, dpi: float) -> list[float]:
    """Left, bottom, width and height in inches."""
    box = artist.get_window_extent()
    return [float(one) / dpi for one in (box.x0, box.y0, box.width, box.height)]


def _text(text: Text, dpi: float) -> tuple[list[float], list[str]]:
    """Where it is anchored, in inches; font size, angle, weight. Its extent depends on the version of the font
    library."""
    if not text.get_text():
        return [0.0] * 5, []
    x, y = text.get_transform().transform(text.get_unitless_position()) / dpi
    aligned = f"{text.get_text()}|{text.get_horizontalalignment()}|{text.get_verticalalignment()}"
    return [float(x), float(y), text.get_fontsize(), text.get_rotation(), text.get_zorder()], [
        to_hex(text.get_color()),
        aligned,
    ]


def _patch(patch: Patch, dpi: float) -> tuple[list[float], list[str]]:
    colours = [to_hex(patch.get_facecolor(), keep_alpha=True), to_hex(patch.get_edgecolor(), keep_alpha=True)]
    return [*_place(patch, dpi), patch.get_linewidth(), patch.get_zorder(), patch.get_clip_on()], [
        *colours,
        str(patch.get_gid()),
    ]


def _line(line: Line2D, dpi: float) -> tuple[list[float], list[str]]:
    path = line.get_transform().transform_path(line.get_path()).get_extents()
    place = [float(one) / dpi for one in (path.x0, path.y0, path.width, path.height)]
    styles = [to_hex(line.get_color()), f"{line.get_linestyle()} {line.get_marker()}"]
    return [*(one if np.isfinite(one) else 0.0 for one in place), line.get_linewidth(), line.get_markersize()], styles


def _collection(collection: Collection, dpi: float) -> tuple[list[float], list[str]]:
    widths = [float(np.sum(collection.get_linewidth())), float(collection.get_alpha() or 1)]
    return [*_place(collection, dpi), *widths], [to_hex(one, keep_alpha=True) for one in collection.get_facecolor()]


def _image(image: AxesImage, dpi: float) -> tuple[list[float], list[str]]:
    values = np.ma.filled(np.ma.asarray(image.get_array(), dtype=float), 0.0)
    return [*_place(image, dpi), *map(float, image.get_clim()), float(values.mean())], [image.get_cmap().name]


MEASURES: dict[type, Callable[..., tuple[list[float], list[str]]]] = {
    Text: _text,
    Patch: _patch,
    Line2D: _line,
    Collection: _collection,
    AxesImage: _image,
}


def main() -> None:
    lines = (f"{json.dumps(name)}: {json.dumps(drawn(name), ensure_ascii=True)}" for name in FIGURES)
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--again"]:
        sys.exit("`python tests/show/drawn.py --again` stores the numbers of all figures anew.")
    main()
