"""A figure and its files: the settings while it is drawn, the same bytes for the same figure, whole files or none."""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from ...base.errors import InputError
from ...base.files import write
from ...base.paths import is_folder
from ..colors import LIGHT
from .layout import AXES, SIZE

FORMATS: dict[str, dict[str, Any]] = {  # by None the metadata leaves out the date and the program
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
SAVING: Any = {"svg.fonttype": "none", "svg.hashsalt": "mixlens", "pdf.fonttype": 42, "text.usetex": False}
STYLE: Any = {  # type and lines in place of matplotlib's own
    "font.size": SIZE,
    **dict.fromkeys(("axes.labelsize", "xtick.labelsize", "ytick.labelsize"), AXES),
    **dict.fromkeys(("hatch.linewidth", "axes.linewidth"), 0.6),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), LIGHT["edge"]),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor", "axes.labelcolor", "text.color"), LIGHT["ink"]),
    "axes.unicode_minus": True,
    "text.usetex": False,
}
PLAIN_FONT = "DejaVu Sans"  # comes with matplotlib
MISSING = re.compile(r"Glyph (\d+) .*missing from font", re.DOTALL)  # it names the character, which may be a line break
LOCK = threading.RLock()  # all threads share the settings of matplotlib


class Picture(Figure):
    """A matplotlib Figure that saves itself with real text, and shows itself in a notebook."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write .svg, .pdf or .png, whole or not at all; the same figure gives the same bytes."""
        save(self, path)

    def savefig(self, *args: Any, **options: Any) -> None:
        with LOCK, matplotlib.rc_context(SAVING):
            super().savefig(*args, **options)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        wide, high = (round(96 * float(inches)) for inches in self.get_size_inches())
        return content(self, ".png", dpi=160), {"width": wide, "height": high}


# --- settings ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def settings(font: str | Sequence[str] | None, *, new_figure: bool) -> Iterator[None]:
    """The sizes and fonts of mixlens while a figure is drawn. A new figure takes nothing else from the user's style."""
    families = [*([font] if isinstance(font, str) else font or ()), PLAIN_FONT]
    for family in families:
        try:
            font_manager.findfont(FontProperties(family=family), fallback_to_default=False)
        except ValueError:
            raise InputError(
                f"no font {family!r} here. Give the name of an installed one, or leave font= out."
            ) from None
    ours = {**STYLE, "font.family": families}
    with LOCK, missing_characters(), style.context(["default", ours] if new_figure else [ours]):
        yield


@contextlib.contextmanager
def missing_characters() -> Iterator[list[str]]:
    """The list fills, at the end of the block, with the characters that no font has. Other warnings pass through."""
    missing: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield missing
    for warning in caught:
        match = MISSING.search(str(warning.message))
        if match is None:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif chr(int(match[1])) not in missing:
            missing.append(chr(int(match[1])))


# --- files ------------------------------------------------------------------------------------------------------------


def check_path(path: str | os.PathLike[str]) -> Path:
    """The path of a figure; a path that cannot be written is refused before the long work."""
    place = Path(path)
    if place.suffix.lower() not in FORMATS:
        raise InputError(f"a figure is saved as {', '.join(FORMATS)}, not {place.name!r}.")
    if not is_folder(place.parent):
        raise InputError(f"no folder {str(place.parent)!r} to save in.")
    if is_folder(place):
        raise InputError(f"{str(place)!r} is a folder.")
    return place


def check_save(path: str | os.PathLike[str] | None) -> None:
    """Refuse a path that cannot be written, where there is one."""
    if path is not None:
        check_path(path)


def content(figure: Figure, kind: str, *, dpi: int = 300) -> bytes:
    """The bytes of a figure as .svg, .pdf or .png."""
    out, metadata = io.BytesIO(), dict(FORMATS[kind])
    title = figure.get_suptitle()
    if title and kind != ".png":
        metadata["Title"] = title.replace("\n", " ")
    with LOCK, missing_characters() as missing, matplotlib.rc_context(SAVING):
        figure.savefig(out, format=kind[1:], metadata=metadata, dpi=dpi)
    if missing and kind != ".svg":  # an SVG leaves its text to the fonts of the reader
        names = " ".join([*(f"{char} (U+{ord(char):04X})" for char in missing[:5]), *(["..."] if missing[5:] else [])])
        warnings.warn(
            f"no font of this figure has {names}. Save it as .svg, or name a font that has: font=...", stacklevel=3
        )
    return out.getvalue()


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write the figure to a file, whole or not at all."""
    place = check_path(path)
    try:
        write(place, content(figure, place.suffix.lower()))
    except OSError as error:
        raise InputError(f"cannot write {str(place)!r}: {error.strerror}.") from None


def finished(figure: Any, ax: Axes | None, path: str | os.PathLike[str] | None) -> Any:
    """The figure, or the user's axes where it was drawn on them; saved where there is a path."""
    result, whole = (figure, figure) if ax is None else (ax, ax.get_figure(root=True))
    if path is not None:
        save(whole, path)  # type: ignore[arg-type]
    return result


def check_axes(ax: Any) -> None:
    if ax is not None and not isinstance(ax, Axes):
        raise InputError(f"ax must be matplotlib Axes, not {type(ax).__name__}.")
