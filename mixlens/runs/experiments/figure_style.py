"""One style for the figures of results: type, lines and names. A finished figure is tidied, so that nothing lies over
another."""

from __future__ import annotations

from itertools import combinations
from textwrap import wrap
from typing import Any

import numpy as np

from ...answers.names import NAMES
from ...base.optional import optional
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
    edge, ink = LIGHT["edge"], LIGHT["ink"]
    ticks = {"color": edge, "labelcolor": ink, "labelsize": AXES, "major.width": 0.5}
    return {
        "axes.edgecolor": edge,
        "axes.labelcolor": ink,
        "axes.labelsize": AXES,
        "axes.linewidth": 0.5,
        "axes.prop_cycle": optional("cycler", "cycler", "plot").cycler(color=LINES),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": SIZE,
        "font.size": SIZE,
        "image.cmap": "Greys",
        "legend.fontsize": AXES,
        "legend.frameon": False,
        "lines.linewidth": 1.2,
        "lines.markersize": 4,
        "text.color": ink,
        **{f"{axis}tick.{name}": value for axis in "xy" for name, value in ticks.items()},
    }


def figure_size(rows: int = 0) -> tuple[float, float]:
    """The size of a figure in inches: higher where it has many rows of labels."""
    return WIDTH, max(3.6, ROW * rows + 0.9)


def tints(*tokens: str) -> Any:
    """A scale of colours: from the first to the last of these."""
    colors = optional("matplotlib.colors", "matplotlib", "plot")
    return colors.LinearSegmentedColormap.from_list("-".join(tokens), [LIGHT[token] for token in tokens])


# --- names ------------------------------------------------------------------------------------------------------------


def method_label(written: str) -> str:
    """A method as researchers call it, with its options in words: `hta:probes=4` is "Hidden Token Attribution, probes
    4"."""
    name, _, rest = written.partition(":")
    if name not in NAMES:
        return written
    options = [option.removesuffix("=true").replace("=", " ").replace("_", " ") for option in rest.split(":") if option]
    return ", ".join([NAMES[name].name, *options])


def axis_label(name: str) -> str:
    """The name of an axis in words."""
    return AXIS_NAMES.get(name, name.replace("_", " "))


# --- a finished figure ------------------------------------------------------------------------------------------------


def tidy(figure: Any) -> None:
    """Names in words, room for every label, one legend below the axes, and no curve hidden by another."""
    for axes in figure.axes:
        axes.set_xlabel(axis_label(axes.get_xlabel()))
        axes.set_ylabel(axis_label(axes.get_ylabel()))
        for axis, width in ((axes.xaxis, UPRIGHT_LABEL), (axes.yaxis, LABEL)):
            texts = [label.get_text() for label in axis.get_ticklabels()]
            if any(text.partition(":")[0] in NAMES for text in texts):
                axis.set_ticks(axis.get_ticklocs(), ["\n".join(wrap(method_label(text), width)) for text in texts])
        _show_hidden(axes)
        # Layers are whole numbers: a tick for each that has a point, where they are few.
        curves = [line for line in axes.get_lines() if line.get_marker() != "None"]
        places = sorted({float(place) for line in curves for place in line.get_xdata()})
        if axes.get_xlabel() == "layer" and 0 < len(places) <= MOST_TICKS:
            axes.set_xticks(places, [f"{place:g}" for place in places])
    legend_lines = _gather_legends(figure)
    # A figure is as high as its rows of labels need, and its legend.
    named = [axes for axes in figure.axes if any(any(map(str.isalpha, t.get_text())) for t in axes.get_yticklabels())]
    rows = max((len(axes.get_yticks()) for axes in named), default=0)
    down = max(
        (axes.get_subplotspec().get_gridspec().nrows for axes in figure.axes if axes.get_subplotspec()), default=1
    )
    high = max(figure.get_figheight(), figure_size(rows * down)[1]) + 0.15 * legend_lines
    figure.set_size_inches(figure.get_figwidth(), high)
    for text in figure.findobj(optional("matplotlib.text", "matplotlib", "plot").Text):
        text.set_fontsize(max(SMALL, text.get_fontsize()))  # the smallest that can be read


def _show_hidden(axes: Any) -> None:
    """Of two curves that lie on each other the lower one is drawn wider, so that both are seen."""
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) > 1]
    low, high = axes.get_ylim()
    for lower, upper in combinations(lines, 2):
        (x, y), (u, v) = (np.asarray([line.get_xdata(), line.get_ydata()], float) for line in (lower, upper))
        if x.shape == u.shape and (x == u).all() and (np.abs(y - v) <= NEAR * abs(high - low)).all():
            lower.set(linewidth=max(3.4, lower.get_linewidth() + 1.6), alpha=0.45)


def _gather_legends(figure: Any) -> int:
    """All legends as one below the axes, each name once: a legend within axes lies over what is drawn. How many lines
    it has."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        if axes.get_legend() is not None or figure.legends:
            for name, handle in zip(*axes.get_legend_handles_labels()[::-1], strict=True):
                named.setdefault(name, handle)
        if axes.get_legend() is not None:
            axes.get_legend().remove()
    for legend in figure.legends[:]:
        legend.remove()
    if not named:
        return 0
    labels = [", ".join(map(method_label, name.split(", "))) for name in named]
    widest = max(0.5 + 0.056 * len(label) for label in labels)  # inches
    columns = max(1, min(len(labels), int(figure.get_figwidth() / widest)))
    style = {"fontsize": AXES, "frameon": False, "columnspacing": 1.4, "handlelength": 2.4}
    figure.legend(list(named.values()), labels, loc="outside lower center", ncols=columns, **style)
    return -(-len(labels) // columns)
