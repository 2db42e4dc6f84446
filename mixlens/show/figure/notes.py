"""The legend of a figure in words: swatches with what they mean, and sentences, in as many lines as they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..colors import LIGHT
from .layout import GAP, SMALL, axes_at, cut, put, text_width

LINE = 0.135  # inches from one line to the next
BETWEEN = 0.14  # inches between two notes of one line
WIDER = 1.05  # a screen's letters are a little wider than those that are measured


@dataclass(frozen=True)
class Note:
    """A sentence, with a swatch of this colour and width in inches before it where there is one. A line that continues a sentence
    is indented by as many inches as its swatch takes."""

    text: str
    colour: str = ""
    swatch: float = 0.0
    hatch: str = ""
    frame: bool = False
    indent: float = 0.0

    @property
    def before(self) -> float:
        """The inches before the text."""
        return self.swatch + 0.05 if self.swatch else self.indent

    @property
    def wide(self) -> float:
        return self.before + WIDER * text_width(self.text, SMALL)


def wrapped(notes: Sequence[Note], room: float) -> list[list[Note]]:
    """The notes in lines; one that has no room in a line of its own is broken between words."""
    rows: list[list[Note]] = []
    for note in notes:
        pieces = _broken(note, room)
        if rows and len(pieces) == 1 and sum(one.wide + BETWEEN for one in rows[-1]) + note.wide <= room:
            rows[-1].append(note)
        else:
            rows += [[piece] for piece in pieces]
    return rows


def _broken(note: Note, room: float) -> list[Note]:
    """A note in as many as it has lines; the swatch stands before the first."""
    lines = [""]
    for word in (cut(word, SMALL, room / WIDER) for word in note.text.split(" ")):
        longer = f"{lines[-1]} {word}".strip()
        fits = not lines[-1] or note.before + WIDER * text_width(longer, SMALL) <= room
        lines = [*lines[:-1], longer] if fits else [*lines, word]
    return [replace(note, text=lines[0]), *(Note(line, indent=note.before) for line in lines[1:])]


def note_height(rows: Sequence[Sequence[Note]]) -> float:
    return LINE * len(rows) + GAP


def write_notes(page: Figure, rows: Sequence[Sequence[Note]], left: float, top: float) -> None:
    """The lines on axes of their own, by inches from the left and from the top of the page."""
    wide, high = float(page.get_size_inches()[0]) - left, note_height(rows)
    axes = axes_at(page, left, top, wide, high)
    axes.set(xlim=(0, wide), ylim=(high, 0))
    axes.axis("off")
    axes.set_gid("notes")
    for number, row in enumerate(rows):
        x = 0.0
        for note in row:
            _write(axes, note, x, GAP / 2 + (number + 0.5) * LINE)
            x += note.wide + BETWEEN


def _write(axes: Axes, note: Note, x: float, y: float) -> None:
    if note.swatch:
        axes.add_patch(_swatch(note, x, y))
    put(axes, x + note.before, y, note.text, fontsize=SMALL, va="center_baseline")


def _swatch(note: Note, x: float, y: float) -> Rectangle:
    """A box of the note's colour, with its hatch or its frame."""
    edge = LIGHT["ink"] if note.frame else LIGHT["edge"] if note.hatch else "none"
    line = 0.8 if note.frame else 0.0
    return Rectangle(
        (x, y - 0.04),
        note.swatch,
        0.08,
        facecolor=note.colour,
        edgecolor=edge,
        linewidth=line,
        hatch=note.hatch or None,
    )
