"""What the user chose for a figure, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes


@dataclass(frozen=True)
class Options:
    """The choices that every kind of figure reads."""

    ax: Axes | None  # draw here instead of on a new figure
    width: float  # inches
    title: str | None  # None: the title that the results give
    numbers: bool  # write scores into cells
    vmax: float | None  # the score that has the full hue
    colorbar: bool

    def title_or(self, usual: str) -> str:
        return usual if self.title is None else self.title
