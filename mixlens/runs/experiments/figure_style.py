"""One style for the figures of results: type, lines and names. A finished figure is tidied, so that nothing lies over another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from textwrap import wrap
from typing import Any

import numpy as np

from ...answers.names import NAMES
from ...show.colors import LIGHT, LINES
from ...show.curves import MOST_TICKS

WIDTH = 174 / 25.4  # inches: the text width of a paper
SIZE, AXES, SMALL = 8.0, 7.0, 6.5  # points
ROW = 0.165  # inches of a row of labels, so that they do not touch
LABEL = 60  # characters of one line of a label
UPRIGHT_LABEL = 24  # the same below an axis, where labels stand upright and take their height from the plot
NEAR = 0.01  # of the axis: two curves that are nearer than this everywhere hide each other
AXIS_NAMES = {
    "spearman": "Spearman's rank correlation (1 = same order)",
    "kendall": "Kendall's rank correlation (1 = same order)",
    "aopc": "AOPC: mean fall of the probability as the highest scores go",
    "log_odds": "log-odds: mean change as the highest scores go",
    "comprehensiveness": "comprehensiveness: fall of the probability without the first words",
    "sufficiency": "sufficiency: fall of the probability with the first words alone",
    "lodds": "LOdds: mean change of log p as the highest scores become padding",
    "count": "answer tokens among the highest scores, mean",
    "accuracy": "share that is right",
    "cue_dot": "score of the cue",
    "cue dot": "score of the cue",
    "like_the_first": "likeness to the first token",
}


def settings() -> dict[str, Any]:
    """What matplotlib draws with, in place of its defaults."""
    edge = {"axes.edgecolor": LIGHT["edge"], "xtick.color": LIGHT["edge"], "ytick.color": LIGHT["edge"]}
    ink = {"text.color": LIGHT["ink"], "axes.labelcolor": LIGHT["ink"], "xtick.labelcolor": LIGHT["ink"]}
    sizes = {
        "font.size": SIZE,
        "axes.titlesize": SIZE,
        "axes.labelsize": AXES,
        "xtick.labelsize": AXES,
        "ytick.labelsize": AXES,
    }
    lines = {"axes.linewidth": 0.5, "lines.linewidth": 1.2, "lines.markersize": 4, "xtick.major.width": 0.5}
    forms = {"axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left", "image.cmap": "Greys"}
    more = {
        "ytick.labelcolor": LIGHT["ink"],
        "legend.fontsize": AXES,
        "legend.frameon": False,
        "ytick.major.width": 0.5,
    }
    return {**edge, **ink, **sizes, **lines, **forms, **more, "axes.prop_cycle": _cycle()}


def _cycle() -> Any:
    from ...base.optional import optional

    return optional("cycler", "cycler", "plot").cycler(color=LINES)


def figure_size(rows: int = 0) -> tuple[float, float]:
    """The size of a figure in inches: higher where it has many rows of labels."""
    return WIDTH, max(3.6, ROW * rows + 0.9)


def share_tints() -> Any:
    """Colours of cells with a number in them: from white to the tint of a share."""
    return _colours(["surface", "share-tint"])


def signed_fills() -> Any:
    """Colours of cells without a number: against, nothing, for."""
    return _colours(["against", "surface", "for"])


def _colours(tokens: Sequence[str]) -> Any:
    from ...base.optional import optional

    colors = optional("matplotlib.colors", "matplotlib", "plot")
    return colors.LinearSegmentedColormap.from_list("-".join(tokens), [LIGHT[token] for token in tokens])


# --- names ----------------------------------------------------------------------------------------------------------------


def method_label(written: str) -> str:
    """A method as researchers call it, with its options in words: `hta:probes=4` is "Hidden Token Attribution, probes 4"."""
    name, _, rest = written.partition(":")
    if name not in NAMES:
        return written
    options = [option.removesuffix("=true").replace("=", " ").replace("_", " ") for option in rest.split(":") if option]
    return ", ".join([NAMES[name].name, *options])


def axis_label(name: str) -> str:
    """The name of an axis in words."""
    return AXIS_NAMES.get(name, name.replace("_", " "))


# --- a finished figure ----------------------------------------------------------------------------------------------------


def tidy(figure: Any) -> None:
    """Names in words, room for every label, one legend below the axes, and no curve hidden by another."""
    for axes in figure.axes:
        _name_axes(axes)
        _show_hidden(axes)
        _mark_layers(axes)
    _make_room(figure, _gather_legends(figure))
    _enlarge(figure)


def _name_axes(axes: Any) -> None:
    axes.set_xlabel(axis_label(axes.get_xlabel()))
    axes.set_ylabel(axis_label(axes.get_ylabel()))
    for axis, width in ((axes.xaxis, UPRIGHT_LABEL), (axes.yaxis, LABEL)):
        texts = [label.get_text() for label in axis.get_ticklabels()]
        if any(text.partition(":")[0] in NAMES for text in texts):
            axis.set_ticks(axis.get_ticklocs(), ["\n".join(wrap(method_label(text), width)) for text in texts])


def _show_hidden(axes: Any) -> None:
    """Of two curves that lie on each other the lower one is drawn wider, so that both are seen."""
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) > 1]
    low, high = axes.get_ylim()
    for lower, upper in combinations(lines, 2):
        if _coincide(lower, upper, NEAR * abs(high - low)):
            lower.set(linewidth=max(3.4, lower.get_linewidth() + 1.6), alpha=0.45)


def _coincide(one: Any, other: Any, distance: float) -> bool:
    """Whether two curves have the same places and nearly the same heights."""
    (x, y), (u, v) = (
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)) for line in (one, other)
    )
    return x.shape == u.shape and bool((x == u).all()) and bool((np.abs(y - v) <= distance).all())


def _mark_layers(axes: Any) -> None:
    """Layers are whole numbers: a tick for each that has a point, where they are few."""
    curves = [line for line in axes.get_lines() if line.get_marker() != "None"]
    places = sorted({float(place) for line in curves for place in line.get_xdata()})
    if axes.get_xlabel() == "layer" and 0 < len(places) <= MOST_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])


def _gather_legends(figure: Any) -> int:
    """All legends as one below the axes, each name once: a legend within axes lies over what is drawn. How many lines it has."""
    named = _named_handles(figure.axes)
    for axes in figure.axes:
        if axes.get_legend() is not None:
            axes.get_legend().remove()
    for legend in figure.legends[:]:
        legend.remove()
    if not named:
        return 0
    labels = [_label_of_curve(name) for name in named]
    columns = _columns(labels, figure.get_figwidth())
    style = {"fontsize": AXES, "frameon": False, "columnspacing": 1.4, "handlelength": 2.4}
    figure.legend(list(named.values()), labels, loc="outside lower center", ncols=columns, **style)
    return -(-len(labels) // columns)


def _named_handles(every: Iterable[Any]) -> dict[str, Any]:
    """What legends name: of axes that have one, and of a figure that has."""
    handles: dict[str, Any] = {}
    for axes in every:
        found, names = axes.get_legend_handles_labels()
        if axes.get_legend() is not None or axes.figure.legends:
            handles |= {name: handle for name, handle in zip(names, found, strict=True) if name not in handles}
    return handles


def _label_of_curve(name: str) -> str:
    """Several names with commas between them, each in words."""
    return ", ".join(map(method_label, name.split(", ")))


def _columns(names: Sequence[str], room: float) -> int:
    """How many columns of names fit the room in inches."""
    widest = max(0.5 + 0.056 * len(name) for name in names)
    return max(1, min(len(names), int(room / widest)))


def _make_room(figure: Any, legend_lines: int) -> None:
    """A figure is as high as its rows of labels need, and its legend."""
    rows = max((len(axes.get_yticks()) for axes in figure.axes if _has_names(axes)), default=0)
    down = max(
        (axes.get_subplotspec().get_gridspec().nrows for axes in figure.axes if axes.get_subplotspec()), default=1
    )
    high = max(figure.get_figheight(), figure_size(rows * down)[1]) + 0.15 * legend_lines
    figure.set_size_inches(figure.get_figwidth(), high)


def _has_names(axes: Any) -> bool:
    """Whether the rows of axes are names, not numbers."""
    return any(any(map(str.isalpha, label.get_text())) for label in axes.get_yticklabels())


def _enlarge(figure: Any) -> None:
    """No text is smaller than the smallest that can be read."""
    from ...base.optional import optional

    for text in figure.findobj(optional("matplotlib.text", "matplotlib", "plot").Text):
        text.set_fontsize(max(SMALL, text.get_fontsize()))
