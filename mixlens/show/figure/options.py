"""What the user chose for a figure, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes


@dataclass(frozen=True)
class Options:
    """The choices of a figure. The last ones are read by some kinds alone."""

    ax: Axes | None  # draw here instead of on a new figure
    width: float  # inches
    title: str | None  # None: the title that the results give
    vmax: float | None  # the score that has the full hue
    colorbar: bool
    layer: int | None = None  # None: the last
    query: int | str | None = None  # None: where a prediction is read
    numbers: bool | None = None  # write scores into cells
    top: int | None = None  # draw so many of the largest scores; None: all
    scale: str | None = None  # "own" or "all"; None: as it fits the unit of the scores
    pieces: bool | None = None  # a matrix has a row for each piece of a word; None: for each word
    rollout: str | None = None  # the convention by which a flow multiplies layers; None: the method's own

    def title_or(self, usual: str) -> str:
        return usual if self.title is None else self.title
