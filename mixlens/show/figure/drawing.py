"""Paper figures: heat strips, bars, maps, layers by tokens, methods side by side, curves. A value in, a Picture out.

Text stays text, colours are those of every other picture, the same value gives the same bytes. Nothing of matplotlib's
global state is changed or left behind, so it works without a display and in threads.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError, nearest, printable
from ...files import write
from ...types import Attribution, Map, Result
from ..colors import AGAINST, TOWARDS, hex_of, ink, shade
from ..text import pieces, shown

try:
    import matplotlib
    from matplotlib import font_manager, style
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import Rectangle
    from matplotlib.text import Text
    from matplotlib.textpath import text_to_path
except ImportError:
    raise InputError("figures need matplotlib: pip install 'mixlens[plot]'.") from None

WIDTHS = {"single": 3.3, "double": 6.8}  # inches: one column of a paper, and both
FORMATS: dict[str, dict[str, Any]] = {  # what says when or by whom a file was made is left out
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
SAVING: Any = {"svg.fonttype": "none", "svg.hashsalt": "mixlens", "pdf.fonttype": 42, "text.usetex": False}
PLAIN_FONT = "DejaVu Sans"  # comes with matplotlib
MISSING = re.compile(r"Glyph (\d+) .*missing from font")
SIZE, SMALL = 7.0, 5.0  # points: text, and the smallest that can be read in print
GAP = 0.06  # inches between things, and around the figure
BETWEEN = 0.1  # and between heat maps beside each other
LINE = 1.25  # height of a line of text, in its size
MOST_HIGH = 9.0  # inches, a page
KINDS = {"Attribution": ("strip", "bars"), "Map": ("matrix", "layers", "grid")}
KINDS_OF_SEVERAL = {"Attribution": ("rows", "strip"), "Map": ("matrix", "layers")}
TAKES = {  # the options that mean something for a kind only
    "strip": (),
    "bars": ("top",),
    "rows": ("numbers", "scale"),
    "matrix": ("layer", "numbers", "scale"),
    "layers": ("query", "numbers", "scale"),
    "grid": ("numbers",),
}
_LOCK = threading.RLock()  # matplotlib's settings are one for all threads


class Picture(Figure):
    """A matplotlib Figure that saves itself with real text, and shows itself in a notebook."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write .svg, .pdf or .png, whole or not at all; the same figure gives the same bytes."""
        save(self, path)

    def savefig(self, *args: Any, **options: Any) -> None:
        with _LOCK, matplotlib.rc_context(SAVING):
            super().savefig(*args, **options)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        wide, high = (round(96 * float(inches)) for inches in self.get_size_inches())
        return content(self, ".png", dpi=160), {"width": wide, "height": high}


@contextlib.contextmanager
def _settings(font: str | Sequence[str] | None, *, own: bool) -> Iterator[None]:
    """Sizes and fonts of ours while a figure is drawn. On a figure of ours nothing of the user's style remains."""
    families = [*([font] if isinstance(font, str) else font or ()), PLAIN_FONT]
    for family in families:
        try:
            font_manager.findfont(FontProperties(family=family), fallback_to_default=False)
        except ValueError:
            raise InputError(f"no font {family!r} here. Give the name of an installed one, or leave font= out.") from None
    ours = {"font.family": families, "font.size": SIZE, "axes.linewidth": 0.6, "axes.unicode_minus": True, "text.usetex": False}
    with _LOCK, _quiet(), style.context(["default", ours] if own else [ours]):
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[list[str]]:
    """Characters that no font here has are collected, not warned of one by one."""
    missing: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield missing
    for warning in caught:
        found = MISSING.search(str(warning.message))
        if found is None:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif chr(int(found[1])) not in missing:
            missing.append(chr(int(found[1])))


# --- files ------------------------------------------------------------------------------------------------------------


def check_path(path: str | os.PathLike[str]) -> Path:
    """Refuse what cannot be written, before the long work."""
    place = Path(path)
    if place.suffix.lower() not in FORMATS:
        raise InputError(f"a figure is saved as {', '.join(FORMATS)}, not {place.name!r}.")
    if not place.parent.is_dir():
        raise InputError(f"no folder {str(place.parent)!r} to save in.")
    if place.is_dir():
        raise InputError(f"{str(place)!r} is a folder.")
    return place


def content(figure: Figure, kind: str, *, dpi: int = 300) -> bytes:
    """The bytes of a figure as .svg, .pdf or .png."""
    out = io.BytesIO()
    about = dict(FORMATS[kind])
    if kind != ".png" and figure.get_suptitle():
        about["Title"] = figure.get_suptitle().replace("\n", " ")
    with _LOCK, _quiet() as missing, matplotlib.rc_context(SAVING):
        figure.savefig(out, format=kind[1:], metadata=about, dpi=dpi)
    if missing and kind != ".svg":  # in SVG the text is left to the fonts of whoever looks at it
        listed = " ".join(f"{char} (U+{ord(char):04X})" for char in missing[:5]) + (" ..." if len(missing) > 5 else "")
        warnings.warn(f"no font of this figure has {listed}. Save it as .svg, or name a font that has: font=...", stacklevel=3)
    return out.getvalue()


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Whole or not at all."""
    place = check_path(path)
    try:
        write(place, content(figure, place.suffix.lower()))
    except OSError as error:
        raise InputError(f"cannot write {str(place)!r}: {error.strerror}.") from None


# --- the public verbs -------------------------------------------------------------------------------------------------


def plot(
    results: Result | Sequence[Result] | Mapping[str, Result],
    *,
    kind: str | None = None,
    layer: int | None = None,
    query: int | str | None = None,
    ax: Axes | None = None,
    width: str | float | None = None,
    title: str | None = None,
    labels: Sequence[str] | None = None,
    numbers: bool | None = None,
    top: int | None = None,
    scale: str | None = None,
    vmax: float | None = None,
    colorbar: bool = True,
    font: str | Sequence[str] | None = None,
    save: str | os.PathLike[str] | None = None,
) -> Any:
    """A paper figure of one result, or of several with methods as rows (a list, or a dict by name). Gives a Picture.

    Attribution: "strip" (default), "bars" (`top=10`: the largest). Map: "matrix" of one `layer` (default, the last),
    "layers" (rows layers, columns tokens, for one `query`), "grid" of all layers. Several attributions: "rows", "strip";
    several maps: "matrix", "layers". `width` is "single" (3.3 inches), "double" (6.8) or inches; `scale` is "own" (each
    row, or each matrix, by its own largest score) or "all"; `numbers=True` writes scores into cells; `vmax` sets the end
    of the colours. With `ax` it is drawn there and the Axes are given back; `save` writes it to a file, too.
    """
    several = not isinstance(results, Attribution | Map)
    given = [results] if isinstance(results, Attribution | Map) else _several(results)
    names = list(results) if isinstance(results, Mapping) else None
    noun = type(given[0]).__name__
    known = (KINDS_OF_SEVERAL if several else KINDS)[noun]
    kind = known[0] if kind is None else kind
    if kind not in known:
        what = f"several {noun}s" if several else f"{'an' if noun == 'Attribution' else 'a'} {noun}"
        raise InputError(f"{what} cannot be drawn as {kind!r}. {nearest(str(kind), known)}")
    own = {"layer": layer, "query": query, "numbers": numbers, "top": top, "scale": scale}
    for option, value in own.items():
        if value is not None and (option not in TAKES[kind] or (option == "scale" and kind == "matrix" and not several)):
            raise InputError(f"a figure of kind {kind!r}{'' if several else ' of one result'} takes no {option}=.")
    for result in given:
        _check(result)
    if labels is not None and len(labels) != len(given):
        raise InputError(f"{len(labels)} labels for {len(given)} results. Give one for each.")
    if scale not in (None, "own", "all"):
        raise InputError(f"unknown scale {scale!r}. {nearest(str(scale), ('own', 'all'))}")
    if vmax is not None and not (math.isfinite(vmax) and vmax > 0):
        raise InputError(f"vmax must be a number above 0, not {vmax!r}.")
    if ax is not None and not isinstance(ax, Axes):
        raise InputError(f"ax must be matplotlib Axes, not {type(ax).__name__}.")
    if ax is not None and (kind == "grid" or (several and kind != "rows")):
        raise InputError(f"a figure of kind {kind!r} has many axes, so it takes no ax=.")
    if save is not None:
        check_path(save)
    told = [str(name) for name in labels or names or _names(given)]
    asked = Asked(ax, _width(width, kind, several), title, numbers or False, vmax, colorbar)
    with _settings(font, own=ax is None):
        if kind == "bars":
            made = _bars(given[0], asked, top)
        elif kind == "strip":
            made = _strips(given, told, asked)
        elif kind == "rows":
            made = _rows(given, told, asked, scale or "own")
        elif kind == "matrix":
            made = _matrices(given, told, asked, -1 if layer is None else layer, scale)
        elif kind == "layers":
            made = _layers(given, told, asked, query, scale)
        else:
            made = _grid(given[0], asked)
    return _done(made, ax, save)


def curves(
    made: Mapping[str, Sequence[Any]],
    *,
    at: Sequence[float] | None = None,
    x: str = "layer",
    y: str = "",
    ax: Axes | None = None,
    width: str | float | None = None,
    title: str | None = None,
    font: str | Sequence[str] | None = None,
    save: str | os.PathLike[str] | None = None,
) -> Any:
    """One curve for each name, intervals as bands: faithfulness curves, metrics by layer.

    Each is a sequence of numbers or `Interval`s, at `at` (by default 1, 2, 3, ...), or of (place, number) pairs.
    """
    from ..curves import lines

    points = {str(name): _points(str(name), values, at) for name, values in made.items()}
    if not points:
        raise InputError("there is nothing to draw: no curves were given.")
    if ax is not None and not isinstance(ax, Axes):
        raise InputError(f"ax must be matplotlib Axes, not {type(ax).__name__}.")
    if save is not None:
        check_path(save)
    with _settings(font, own=ax is None):
        axes = ax
        if axes is None:
            wide = _width(width, "curves", False)
            page = Picture(figsize=(wide, 0.62 * wide + 0.16 * math.ceil(len(points) / 3)), layout="constrained")
            axes = page.add_subplot()
            axes.spines[["top", "right"]].set_visible(False)
        if title:
            axes.set_title(title, loc="left", fontsize=SIZE, parse_math=False)
        lines(axes, {_literal(name): line for name, line in points.items()}, x=_literal(x), y=_literal(y))
        if ax is None:
            page.draw_without_rendering()  # laid out once, so that saving it twice gives the same bytes
            page.set_layout_engine("none")
    return _done(axes.figure, ax, save)


def _done(made: Any, ax: Axes | None, path: str | os.PathLike[str] | None) -> Any:
    if path is not None:
        save(made if ax is None else ax.get_figure(root=True), path)  # type: ignore[arg-type]
    return made if ax is None else ax


def _points(name: str, values: Sequence[Any], at: Sequence[float] | None) -> list[tuple[float, Any]]:
    from ...metrics import Interval

    if at is not None and len(at) != len(values):
        raise InputError(f"curve {name!r} has {len(values)} points and at= has {len(at)} places. Give one for each.")
    if not len(values):
        raise InputError(f"curve {name!r} has no points.")
    points = []
    for number, value in enumerate(values):
        place, value = value if isinstance(value, tuple) else (number + 1 if at is None else at[number], value)
        one = value if isinstance(value, Interval) else Interval(float(value), math.nan, math.nan, 1, math.nan)
        points.append((float(place), one))
    return points


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What every kind of figure is told."""

    ax: Axes | None
    width: float
    title: str | None
    numbers: bool
    vmax: float | None
    colorbar: bool


def _several(results: Any) -> list[Result]:
    given = list(results.values()) if isinstance(results, Mapping) else list(results) if isinstance(results, Sequence) else None
    if given is None or any(not isinstance(one, Attribution | Map) for one in given):
        raise InputError(f"a figure is made of an Attribution, a Map or several of one kind, not of {type(results).__name__}.")
    if not given:
        raise InputError("there is nothing to draw: no results were given.")
    if len({type(one) for one in given}) > 1:
        raise InputError("attributions and maps cannot stand in one figure. Read the maps out first: map.readout(query).")
    if any(one.tokens != given[0].tokens for one in given):
        raise InputError("these results are not of the same tokens, so they cannot share one axis.")
    return given


def _check(result: Result) -> None:
    n, shape = len(result.tokens), tuple(result.scores.shape)
    if not n:
        raise InputError("there are no tokens to draw.")
    if shape != ((n,) if isinstance(result, Attribution) else (*shape[:1], n, n)) or 0 in shape:
        raise InputError(f"scores of shape {shape} do not fit {n} tokens.")
    if not np.isfinite(_array(result)).all():
        raise InputError(f"{result.method!r} has scores that are not finite: there is nothing true to draw.")


def _width(width: str | float | None, kind: str, several: bool) -> float:
    if width is None:
        return WIDTHS["double" if kind in ("grid", "rows") or several else "single"]
    if isinstance(width, str):
        if width not in WIDTHS:
            raise InputError(f"unknown width {width!r}: single, double, or inches. {nearest(width, WIDTHS)}")
        return WIDTHS[width]
    if isinstance(width, bool) or not isinstance(width, int | float) or not 1.5 <= width <= 30:
        raise InputError(f"a width is single, double, or 1.5 to 30 inches, not {width!r}.")
    return float(width)


def _array(result: Result) -> NDArray[np.float64]:
    return result.scores.detach().double().cpu().numpy()


def _names(given: Sequence[Result]) -> list[str]:
    """Methods; where they are all the same, what tells the results apart."""
    methods = [result.method for result in given]
    if len(set(methods)) == len(methods):
        return methods
    for key, told in (("at_layer", "layer"), ("layer", "layer"), ("variant", ""), ("target", "")):
        values = [result.info.get(key) for result in given]
        if None not in values and len({(m, str(v)) for m, v in zip(methods, values, strict=True)}) == len(given):
            one = len(set(methods)) == 1
            number = [int(v) + (key == "layer") if told else v for v in values]  # type: ignore[arg-type]
            return [f"{told} {v}".strip() if one else f"{m} {told} {v}" for m, v in zip(methods, number, strict=True)]
    return [f"{method} {number + 1}" for number, method in enumerate(methods)]


def _about(result: Result, *more: str, method: bool = True) -> str:
    """The title: method, variant, rollout, and what else there is to say."""
    info = result.info
    parts = [result.method] if method else []
    if info.get("variant") not in (None, "paper"):
        parts.append(str(info["variant"]))
    if info.get("rollout"):
        parts.append(f"{'flow' if info['rollout'].get('flow') else 'rollout'} {info['rollout']['convention']}")
    if isinstance(result, Attribution) and info.get("layer") is not None:
        parts.append(f"layer {info['layer'] + 1}")
    if info.get("at_layer") is not None:
        parts.append(f"input of layer {info['at_layer'] + 1}")
    if info.get("target") is not None:
        parts.append(f"{str(info.get('score', 'score')).replace('_', ' ')} of {info['target']}")
    elif isinstance(result, Attribution) and "query_token" in info:
        parts.append(f"at {shown(info['query_token'])}")
    return printable(" · ".join([*parts, *more]))


def _meaning(given: Sequence[Result], signed: bool, scale: str = "all") -> str:
    """What the colours mean."""
    if signed:
        return "against (−), towards (+)" + (", of the largest" if scale == "own" else "")
    if scale == "own":
        return "score, of the largest"
    sums = [_array(result).sum(-1) for result in given]
    return "share" if all(np.allclose(total, 1, atol=1e-3) for total in sums) else "score"


def _colours(values: Sequence[NDArray[np.float64]], vmax: float | None) -> tuple[ListedColormap, Normalize, bool]:
    """One hue from 0 up; two hues with white at 0 as soon as one score is negative."""
    signed = any(bool((one < 0).any()) for one in values)
    end = vmax or max((float(np.abs(one).max()) for one in values), default=0.0) or 1.0
    steps = range(-255, 256) if signed else range(256)
    table = np.array([shade(step / 255) for step in steps]) / 255
    return ListedColormap(table), Normalize(-end if signed else 0.0, end), signed


# --- measuring and writing --------------------------------------------------------------------------------------------


def _inches(text: str, size: float) -> float:
    """How wide a text is."""
    family = matplotlib.rcParams["font.family"]
    wide, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(family=family, size=size), ismath=False)
    return float(wide) / 72


def _cut(text: str, size: float, room: float) -> str:
    """A text no wider than the room; what is cut off is an ellipsis."""
    if _inches(text, size) <= room:
        return text
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _inches(text[:middle] + "…", size) <= room else (low, middle - 1)
    return text[:low] + "…"


def _literal(text: str) -> str:
    """A text whose dollars are not mathematics, where matplotlib offers no better way to say so."""
    return printable(text).replace("$", r"\$")


def _put(axes: Axes, x: float, y: float, text: str, **options: Any) -> Text:
    return axes.text(x, y, text, parse_math=False, usetex=False, **options)


def _broken(title: str, size: float, room: float) -> list[str]:
    """The title in lines, broken between its parts."""
    lines: list[str] = []
    for part in title.split(" · ") if title else []:
        longer = f"{lines[-1]} · {part}" if lines else part
        if lines and _inches(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(_cut(part, size, room))
    return lines


def _titled(page: Picture, lines: Sequence[str]) -> None:
    if lines:
        wide, high = page.get_size_inches()
        text = page.suptitle("\n".join(lines), x=GAP / wide, y=1 - GAP / high, ha="left", va="top", fontsize=SIZE)
        text.set_parse_math(False)
        text.set_linespacing(LINE)


def _height(lines: Sequence[str]) -> float:
    """Inches that a title takes."""
    return len(lines) * SIZE * LINE / 72 + (GAP if lines else 0)


def _axes(page: Picture, left: float, top: float, wide: float, high: float) -> Axes:
    """Axes by inches from the left and from the top."""
    width, height = page.get_size_inches()
    return page.add_axes((left / width, 1 - (top + high) / height, wide / width, high / height))


def _ticks(colours: tuple[ListedColormap, Normalize, bool]) -> list[str]:
    _, norm, signed = colours
    high = f"{float(f'{float(norm.vmax or 1):.2g}'):g}"
    return [f"−{high}", "0", high] if signed else ["0", high]


def _beside(colours: tuple[ListedColormap, Normalize, bool]) -> float:
    """Inches that an upright colour bar takes."""
    return BETWEEN + 0.08 + max(_inches(text, SMALL + 1) for text in _ticks(colours)) + 0.2 + GAP


def _lying(
    page: Picture, left: float, top: float, room: float, colours: tuple[ListedColormap, Normalize, bool], meaning: str
) -> None:
    """A colour bar below, its ends and its meaning inside the room."""
    out = max(_inches(text, SMALL + 1) for text in _ticks(colours)) / 2
    wide = min(1.4, max(0.3, room - 2 * out))
    over = max(out if colours[2] else 0.02, (_inches(meaning, SMALL + 1) - wide) / 2)
    left = min(left + over, left + room - wide - over) if room > wide + 2 * over else left + over
    _legend(_axes(page, left, top, wide, 0.07), colours, meaning, upright=False)


def _legend(axes: Axes, colours: tuple[ListedColormap, Normalize, bool], label: str, *, upright: bool) -> None:
    """The colour bar: from the least to the largest, 0 marked, and what it means."""
    cmap, norm, signed = colours
    low, high = float(norm.vmin or 0), float(norm.vmax or 1)
    steps = np.linspace(low, high, 128)
    extent = (0.0, 1.0, low, high) if upright else (low, high, 0.0, 1.0)
    image = steps[:, None] if upright else steps[None, :]
    axes.imshow(image, cmap=cmap, norm=norm, aspect="auto", origin="lower", extent=extent, interpolation="nearest")
    ticks, texts = [low, 0.0, high] if signed else [low, high], _ticks(colours)
    if upright:
        axes.set_yticks(ticks, texts)
        axes.set_xticks([])
        axes.yaxis.tick_right()
        axes.yaxis.set_label_position("right")
        axes.set_ylabel(label, fontsize=SMALL + 1, labelpad=1)
    else:
        axes.set_xticks(ticks, texts)
        axes.set_yticks([])
        axes.set_xlabel(label, fontsize=SMALL + 1, labelpad=1)
    axes.tick_params(labelsize=SMALL + 1, length=1.5, width=0.4, pad=1.5)
    axes.set_gid("colours")
    for spine in axes.spines.values():
        spine.set_linewidth(0.4)


# --- strips -----------------------------------------------------------------------------------------------------------


def _placed(tokens: Sequence[str], room: float, size: float) -> tuple[list[tuple[int, float, float, str]], int]:
    """Each token's line, left edge and width in inches and text; and how many lines there are."""
    pad, space = 0.35 * size / 72, 0.3 * size / 72
    boxes: list[tuple[float, str, bool]] = []
    for text, goes_on in pieces(tokens):
        text = _cut(text, size, room - 2 * pad)
        boxes.append((_inches(text, size) + 2 * pad, text, goes_on))
    placed, line, used = [], 0, 0.0
    for number, (wide, text, goes_on) in enumerate(boxes):
        word = wide  # a word stays on one line if it can
        for later, _, follows in boxes[number + 1 :]:
            if not follows:
                break
            word += later
        gap = 0.0 if goes_on or not used else space
        if used and used + gap + (word if not goes_on and word <= room else wide) > room + 1e-9:
            line, used, gap = line + 1, 0.0, 0.0
        placed.append((line, used + gap, wide, text))
        used += gap + wide
    return placed, line + 1


def _strip(axes: Axes, result: Attribution, colours: Any, room: float, size: float) -> None:
    """Tokens on a background as strong as their score. The axes are in inches."""
    placed, lines = _placed(result.tokens, room, size)
    high, pitch = 1.6 * size / 72, 1.9 * size / 72
    _, norm, _ = colours
    for number, (score, (line, left, wide, text)) in enumerate(zip(_array(result), placed, strict=True)):
        share = max(-1.0, min(1.0, float(score) / float(norm.vmax or 1)))
        back = shade(share)
        top = line * pitch
        box = Rectangle((left, top), wide, high, facecolor=hex_of(back), edgecolor="#b0b0b0", linewidth=0.3, clip_on=False)
        box.set_gid(f"token-{number}")
        axes.add_patch(box)
        middle, base = left + wide / 2, top + 0.73 * high
        _put(axes, middle, base, text, ha="center", va="baseline", fontsize=size, color=hex_of(ink(back)))
    axes.set_xlim(0, room)
    axes.set_ylim(lines * pitch - (pitch - high), 0)
    axes.set_axis_off()


def _strip_size(tokens: Sequence[str], room: float, high: float | None) -> tuple[float, float]:
    """Font size and height in inches; smaller where axes that were given have less room."""
    for size in (8.0, SIZE, 6.0, SMALL):
        lines = _placed(tokens, room, size)[1]
        needed = (lines * 1.9 - 0.3) * size / 72
        if high is None or needed <= high:
            break
    return size, needed


def _strips(given: Sequence[Result], names: Sequence[str], asked: Asked) -> Any:
    """One strip below the other, each with its own colours."""
    results = [result for result in given if isinstance(result, Attribution)]
    all_colours = [_colours([_array(result)], asked.vmax) for result in results]
    if asked.ax is not None:
        axes = asked.ax
        figure = axes.get_figure(root=True)
        assert figure is not None
        box = axes.get_window_extent()
        room, high = (float(pixels) / figure.dpi for pixels in (box.width, box.height))
        size, needed = _strip_size(results[0].tokens, room, high)
        _strip(axes, results[0], all_colours[0], room, size)
        if needed < high:
            axes.set_ylim(high, 0)  # boxes keep their shape
        title = _about(results[0]) if asked.title is None else asked.title
        axes.set_title("\n".join(_broken(title, SIZE, room)), loc="left", fontsize=SIZE, parse_math=False)
        return figure
    room = asked.width - 2 * GAP
    several = len(results) > 1
    size, each = _strip_size(results[0].tokens, room, None)
    title = _about(results[0]) if asked.title is None and not several else asked.title or ""
    lines = _broken(title, SIZE, room)
    heads = [
        _broken(printable(f"{name} · {_about(result, method=name != result.method)}" if several else ""), SIZE, room)
        for name, result in zip(names, results, strict=True)
    ]
    below = 0.42 if asked.colorbar else 0.0
    heights = [_height(head) + each + below for head in heads]
    page = Picture(figsize=(asked.width, GAP + _height(lines) + sum(heights) + GAP * len(results)))
    _titled(page, lines)
    top = GAP + _height(lines)
    for result, head, high, colours in zip(results, heads, heights, all_colours, strict=True):
        axes = _axes(page, GAP, top + _height(head), room, each)
        _strip(axes, result, colours, room, size)
        if head:
            axes.set_title("\n".join(head), loc="left", fontsize=SIZE, pad=3, parse_math=False)
        if asked.colorbar:
            _lying(page, GAP, top + high - below + 0.09, room, colours, _meaning([result], colours[2]))
        top += high + GAP
    return page


# --- bars -------------------------------------------------------------------------------------------------------------


def _bars(result: Result, asked: Asked, top: int | None) -> Any:
    scores = _array(result)
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise InputError(f"top must be a whole number of at least 1, not {top!r}.")
    places = list(range(len(scores)))
    if top is not None:
        places = sorted(places, key=lambda i: -abs(scores[i]))[:top]
    signed = bool((scores < 0).any())
    more = () if top is None or top >= len(scores) else (f"the largest {top}",)
    title = _about(result, *more) if asked.title is None else asked.title
    texts = [_cut(shown(result.tokens[i]), SIZE, 0.35 * asked.width) for i in places]
    pitch = max(0.02, min(0.15, (MOST_HIGH - 1) / len(places)))
    axes, page = asked.ax, None
    if axes is None:
        left = max(_inches(text, SIZE) for text in texts) + 2 * GAP
        lines = _broken(title, SIZE, asked.width - 2 * GAP)
        above, high = GAP + _height(lines), pitch * (len(places) + 0.4)
        page = Picture(figsize=(asked.width, above + high + 0.33))
        _titled(page, lines)
        axes = _axes(page, left, above, asked.width - left - 3 * GAP, high)
    else:
        axes.set_title(title, loc="left", fontsize=SIZE, parse_math=False)
        pitch = float(axes.get_window_extent().height) / axes.figure.dpi / (len(places) + 0.4)
    heights = [float(scores[i]) for i in places]
    colours = [hex_of(TOWARDS if score >= 0 else AGAINST) for score in heights]
    axes.barh(range(len(places)), heights, height=0.78, color=colours)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_ylim(len(places) - 0.3, -0.7)
    size, step = _thinned(pitch)
    axes.set_yticks(range(0, len(places), step), texts[::step], fontsize=size, parse_math=False)
    axes.set_xlabel(_meaning([result], signed), fontsize=SIZE, labelpad=1)
    axes.tick_params(axis="x", labelsize=SMALL + 1, length=2, width=0.5, pad=1.5)
    axes.tick_params(axis="y", length=0, pad=2)
    axes.locator_params(axis="x", nbins=4)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return page or axes.figure


def _thinned(pitch: float) -> tuple[float, int]:
    """Font size, and how many rows go to one label so that labels do not touch."""
    for size in (SIZE, 6.0, SMALL):
        if size * 1.15 / 72 <= pitch:
            return size, 1
    return SMALL, math.ceil(SMALL * 1.15 / 72 / pitch)


# --- maps -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """One heat map: numbers [row column] and what stands above them."""

    values: NDArray[np.float64]
    head: str = ""


def _rows(given: Sequence[Result], names: Sequence[str], asked: Asked, scale: str) -> Any:
    """Methods as rows, tokens as columns."""
    values = _by_row(np.stack([_array(result) for result in given]), scale)
    first = given[0]
    same = len({result.method for result in given}) == 1
    place = f"at {shown(first.info['query_token'])}" if "query_token" in first.info else ""
    about = {key: value for key, value in first.info.items() if key not in ("layer", "at_layer")}  # the rows say them
    auto = _about(replace(first, info=about)) if same else place
    title = auto if asked.title is None else asked.title
    labels = [printable(name) for name in names]
    return _heat([Panel(values)], scale, asked, title, tokens=first.tokens, given=given, rows=labels, row_name="")


def _matrices(given: Sequence[Result], names: Sequence[str], asked: Asked, layer: int, scale: str | None) -> Any:
    """One layer of each map: what each position (row) took from each token (column)."""
    depth = given[0].scores.shape[0]
    for result in given:
        if isinstance(layer, bool) or not isinstance(layer, int) or not -result.scores.shape[0] <= layer < result.scores.shape[0]:
            raise InputError(f"layer {layer!r} is out of range: the map has {depth} layers, 0 to {depth - 1}.")
    told = [f"layer {layer % result.scores.shape[0] + 1}" for result in given]
    several = len(given) > 1
    panels = [
        Panel(_array(result)[layer], f"{name} · {_about(result, where, method=False)}" if several else "")
        for result, name, where in zip(given, names, told, strict=True)
    ]
    title = ("" if several else _about(given[0], told[0])) if asked.title is None else asked.title
    return _heat(*_scaled(panels, given, scale), asked, title, tokens=given[0].tokens, given=given)


def _layers(given: Sequence[Result], names: Sequence[str], asked: Asked, query: int | str | None, scale: str | None) -> Any:
    """Rows layers, columns tokens: what one position is made of after each layer."""
    from ...aggregate import find

    first = given[0]
    place = _usual(first) if query is None else find(first.tokens, query)
    several = len(given) > 1
    if len({result.scores.shape[0] for result in given}) > 1:
        raise InputError("these maps have different numbers of layers, so they cannot share one axis.")
    scale = _usual_scale(given) if scale is None else scale
    heads = [f"{name} · {_about(result, method=False)}".removesuffix(" · ") for result, name in zip(given, names, strict=True)]
    values = [_by_row(_array(result)[:, place], scale) for result in given]
    panels = [Panel(rows, head if several else "") for rows, head in zip(values, heads, strict=True)]
    at = f"at {shown(first.tokens[place])}"
    title = (at if several else _about(first, at)) if asked.title is None else asked.title
    rows = [str(number + 1) for number in range(first.scores.shape[0])]
    return _heat(panels, scale, asked, title, tokens=first.tokens, rows=rows, row_name="layer", given=given)


def _grid(result: Result, asked: Asked) -> Any:
    """A map for every layer."""
    panels = [Panel(values, f"layer {number + 1}") for number, values in enumerate(_array(result))]
    title = _about(result, f"layers 1 to {len(panels)}") if asked.title is None else asked.title
    return _heat(panels, "all", asked, title, tokens=result.tokens, given=[result])


def _usual(result: Result) -> int:
    """Where a prediction is read: the one mask token, the last token of a causal model, else the first."""
    masks = [i for i, token in enumerate(result.tokens) if token in ("[MASK]", "<mask>")]
    if len(masks) > 1:
        raise InputError(f"there are {len(masks)} mask tokens, at {masks}. Say which one: query=INDEX.")
    return masks[0] if masks else len(result.tokens) - 1 if result.info.get("causal") else 0


def _by_row(values: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    """Rows as they are, or each by its own largest score."""
    largest = np.abs(values).max(-1, keepdims=True)
    return values if scale == "all" else values / np.where(largest > 0, largest, 1.0)


def _usual_scale(given: Sequence[Result]) -> str:
    """Shares can be compared; scores of other units, or that grow from layer to layer, cannot."""
    return "all" if _meaning(given, False) == "share" else "own"


def _scaled(panels: list[Panel], given: Sequence[Result], scale: str | None) -> tuple[list[Panel], str]:
    """Several matrices on one scale, or each on its own."""
    scale = "all" if len(panels) == 1 else _usual_scale(given) if scale is None else scale
    if scale == "all":
        return panels, scale
    return [Panel(panel.values / (np.abs(panel.values).max() or 1.0), panel.head) for panel in panels], scale


def _heat(
    panels: Sequence[Panel],
    scale: str,
    asked: Asked,
    title: str,
    *,
    tokens: Sequence[str],
    given: Sequence[Result],
    rows: Sequence[str] | None = None,
    row_name: str = "position (query)",
) -> Any:
    """Heat maps beside and below each other with one colour scale; labels at the left and at the bottom only."""
    columns = [shown(token) for token in tokens]
    square, rows = rows is None, columns if rows is None else rows
    colours = _colours([panel.values for panel in panels], asked.vmax)
    meaning = _meaning(given, colours[2], scale)
    if asked.ax is not None:
        axes = asked.ax
        box = axes.get_window_extent()
        pitch, high = (float(size) / axes.figure.dpi for size in (box.width / len(columns), box.height / len(rows)))
        _draw(axes, panels[0], colours, pitch, high, asked.numbers, lined=not square)
        _name_columns(axes, columns, pitch, square)
        _name_rows(axes, rows, high, row_name)
        axes.set_title(
            "\n".join(_broken(title, SIZE, float(box.width) / axes.figure.dpi)), loc="left", fontsize=SIZE, parse_math=False
        )
        if asked.colorbar:
            _legend(axes.inset_axes((1.03, 0.0, 0.04, 1.0)), colours, meaning, upright=True)
        return axes.figure
    lines = _broken(title, SIZE, asked.width - 2 * GAP)
    above = GAP + _height(lines)
    for upright in (True, False):  # the colour bar stands beside what is high enough for it, and lies below the rest
        at = _Places(panels, rows, columns, asked, _beside(colours) if upright and asked.colorbar else GAP, row_name, square)
        if upright and square and at.whole >= _inches(meaning, SMALL + 1):
            break
    below = 0.38 if asked.colorbar and not upright else 0.0
    page = Picture(figsize=(asked.width, above + at.head + at.whole + at.foot + below + GAP))
    _titled(page, lines)
    for number, panel in enumerate(panels):
        row, column = divmod(number, at.beside)
        axes = _axes(page, at.left + column * (at.wide + BETWEEN), above + at.head + row * at.step, at.wide, at.high)
        _draw(axes, panel, colours, at.pitch, at.row, asked.numbers, lined=not square)
        if at.heads[number]:
            axes.set_title("\n".join(at.heads[number]), loc="left", fontsize=SIZE - 1, pad=2.5, parse_math=False)
        if number + at.beside >= len(panels):
            _name_columns(axes, columns, at.pitch, square)
        if column == 0:
            _name_rows(axes, [_cut(text, SIZE, at.label) for text in rows], at.row, row_name)
    if asked.colorbar and upright:
        right = at.left + at.beside * (at.wide + BETWEEN) - 0.02
        _legend(_axes(page, right, above + at.head, 0.08, min(1.5, at.whole)), colours, meaning, upright=True)
    elif asked.colorbar:
        _lying(page, at.left, above + at.head + at.whole + at.foot + 0.04, asked.width - at.left - GAP, colours, meaning)
    return page


class _Places:
    """Where everything of a sheet of heat maps goes, in inches."""

    def __init__(
        self,
        panels: Sequence[Panel],
        rows: Sequence[str],
        columns: Sequence[str],
        asked: Asked,
        right: float,
        name: str,
        square: bool,
    ):
        self.label = min(0.3 * asked.width, max(_inches(row, SIZE) for row in rows))
        self.left = GAP + self.label + 0.06 + (0.17 if name else 0.0)
        room = asked.width - self.left - right
        beside = min(len(panels), max(1, int((room + BETWEEN) / (0.95 if square else 1.9))))
        self.beside = math.ceil(len(panels) / math.ceil(len(panels) / beside))  # as even as can be
        down = math.ceil(len(panels) / self.beside)
        most = 0.42 if square else 0.6  # few tokens do not make large cells
        self.pitch = min((room - BETWEEN * (self.beside - 1)) / self.beside / len(columns), most)
        self.row = self.pitch if square else max(0.12, min(0.17, (MOST_HIGH - 1.5) / len(rows) / down))
        self.wide, self.high = self.pitch * len(columns), self.row * len(rows)
        self.heads = [_broken(printable(panel.head), SIZE - 1, self.wide) for panel in panels]
        self.head = max(map(len, self.heads)) * (SIZE - 1) * LINE / 72 + (0.03 if any(self.heads) else 0.0)
        self.step = self.head + self.high + GAP
        self.whole = (down - 1) * self.step + self.high
        self.foot = _foot(columns, self.pitch) + (0.14 if square else 0.0)


def _draw(
    axes: Axes,
    panel: Panel,
    colours: tuple[ListedColormap, Normalize, bool],
    wide: float,
    high: float,
    numbers: bool,
    *,
    lined: bool,
) -> None:
    """The cells of one heat map; the numbers in them, where they are wanted."""
    cmap, norm, _ = colours
    axes.imshow(panel.values, cmap=cmap, norm=norm, aspect="auto", interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_linewidth(0.4)
    if lined:
        for row in range(1, len(panel.values)):
            axes.axhline(row - 0.5, color="white", linewidth=0.8)
    if not numbers:
        return
    texts = [[_number(float(value)) for value in row] for row in panel.values]
    size = min(6.0, high * 72 / 1.1)
    size *= min(1.0, 0.92 * wide / max(_inches(text, size) for row in texts for text in row))
    if size < 3.5:
        raise InputError(f"cells of {wide:.2f} inches are too small for numbers. Give a larger width=, or leave numbers out.")
    for i, line in enumerate(texts):
        for j, text in enumerate(line):
            share = float(np.clip(panel.values[i, j] / float(norm.vmax or 1), -1, 1))
            _put(axes, j, i, text, ha="center", va="center", fontsize=size, color=hex_of(ink(shade(share))))


def _number(value: float) -> str:
    text = f"{value:.2f}" if abs(value) < 100 else f"{value:.2g}"
    return re.sub(r"^(-?)0\.", r"\1.", text).replace("-", "−")


KEYS = "taken from (key)"
LONGEST = 0.85  # inches of a label below a column


def _lies(texts: Sequence[str], pitch: float) -> bool:
    """Do the labels of columns fit without being turned?"""
    return max(_inches(text, SIZE) for text in texts) <= 0.9 * pitch


def _foot(texts: Sequence[str], pitch: float) -> float:
    """Inches that the labels of columns take."""
    if _lies(texts, pitch):
        return 0.16
    size, step = _thinned(pitch)
    return min(LONGEST, max(_inches(text, size) for text in texts[::step])) + 0.04


def _name_columns(axes: Axes, texts: Sequence[str], pitch: float, square: bool) -> None:
    flat = _lies(texts, pitch)
    size, step = (SIZE, 1) if flat else _thinned(pitch)
    kept = [_cut(text, size, LONGEST) for text in texts[::step]]
    turned: dict[str, Any] = {} if flat else {"rotation": 90}
    axes.set_xticks(range(0, len(texts), step), kept, fontsize=size, parse_math=False, **turned)
    axes.tick_params(axis="x", length=1.5 if step > 1 else 0, width=0.4, pad=2)
    if square and _inches(KEYS, SMALL + 1) <= pitch * len(texts):
        axes.set_xlabel(KEYS, fontsize=SMALL + 1, labelpad=1)


def _name_rows(axes: Axes, texts: Sequence[str], pitch: float, name: str) -> None:
    size, step = _thinned(pitch)
    axes.set_yticks(range(0, len(texts), step), texts[::step], fontsize=size, parse_math=False)
    axes.tick_params(axis="y", length=1.5 if step > 1 else 0, width=0.4, pad=2)
    if name and _inches(name, SMALL + 1) <= pitch * len(texts):
        axes.set_ylabel(name, fontsize=SMALL + 1, labelpad=2.5)
