"""The growth curves as SVG: text stays text, lines are labelled where they end, colours that most eyes tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Okabe and Ito's palette. The straightforward code has its method's colour, dashed.
COLOURS = {
    "forward": "#000000",
    "norm_maps": "#0072B2",
    "alti": "#D55E00",
    "effective_attention": "#009E73",
    "value_zeroing_row": "#E69F00",
    "value_zeroing": "#CC79A7",
    "hta_layer": "#56B4E9",
}


def lines_of(rows: list[dict[str, Any]]) -> dict[str, tuple[str, list[int], list[float]]]:
    """Title, n and milliseconds a layer, for each line."""
    found: dict[str, tuple[str, list[int], list[float]]] = {}
    for row in rows:
        if row["id"].removeprefix("slow_") in COLOURS:
            _, n, took = found.setdefault(row["id"], (row["title"], [], []))
            n.append(row["n"])
            took.append(1000 * row["seconds_per_layer"])
    return found


def spread_out(wanted: list[float], apart: float) -> list[float]:
    """The heights nearest to the wanted ones that leave room for a line of text between any two (in the order
    given)."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    heights = [wanted[i] for i in order]
    for _ in range(200):
        for i in range(1, len(heights)):
            missing = apart - (heights[i] - heights[i - 1])
            if missing > 1e-9:
                heights[i] += missing / 2
                heights[i - 1] -= missing / 2
    placed = [0.0] * len(wanted)
    for i, height in zip(order, heights, strict=True):
        placed[i] = height
    return placed


def draw(part: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    lines = lines_of(part["rows"])
    with mpl.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "mixlens", "font.family": "sans-serif", "font.size": 10}
    ):
        figure, axes = plt.subplots(figsize=(9.5, 6.2))
        low, high = 1e9, 0.0
        for name, (_, n, took) in lines.items():
            slow = name.startswith("slow_")
            axes.plot(
                n,
                took,
                color=COLOURS[name.removeprefix("slow_")],
                linestyle=(0, (4, 2)) if slow else "-",
                linewidth=1.4 if slow else 2.2,
                marker="o",
                markersize=3 if slow else 4,
            )
            low, high = min(low, *took), max(high, *took)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_ylim(low / 1.6, high * 1.6)
        sizes = sorted({n for _, some, _ in lines.values() for n in some})
        axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
        axes.set_xlim(sizes[0] / 1.1, sizes[-1] * 1.1)
        axes.minorticks_off()
        axes.grid(True, which="major", linewidth=0.4, color="#cccccc")
        axes.set_xlabel("tokens")
        axes.set_ylabel("milliseconds a layer, traced forward pass included")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        figure.subplots_adjust(left=0.09, right=0.68, top=0.97, bottom=0.09)
        names = list(lines)
        ends = [axes.transData.transform((lines[name][1][-1], lines[name][2][-1])) for name in names]
        heights = spread_out([float(end[1]) for end in ends], 15.0)
        for name, height in zip(names, heights, strict=True):
            title, colour = lines[name][0], COLOURS[name.removeprefix("slow_")]
            axes.annotate(
                title,
                xy=(lines[name][1][-1], lines[name][2][-1]),
                xytext=(axes.transAxes.transform((1.03, 0))[0] * 72 / figure.dpi, height * 72 / figure.dpi),
                textcoords="figure points",
                va="center",
                color=colour,
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2},
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None, "Title": "Cost against the number of tokens"})
        plt.close(figure)
