"""Map, Attribution, curves -> pictures for papers: heat strips, bars, heat maps, methods side by side, curves.

Text stays text, the colours are those of every other picture, and the same value gives the same bytes. A figure neither
reads nor changes the global state of matplotlib, so figures can be made without a display and in several threads.
"""

from __future__ import annotations

from ...base.errors import InputError
from ...base.optional import installing

try:
    import matplotlib  # noqa: F401
except ImportError:
    raise InputError(f"figures need matplotlib: {installing('plot')}.") from None

from .drawing import KINDS, KINDS_OF_SEVERAL, plot
from .histograms import histogram_rows
from .layout import WIDTHS
from .line_plot import curves
from .picture import FORMATS, Picture, check_path, content, save

__all__ = [
    "FORMATS",
    "KINDS",
    "KINDS_OF_SEVERAL",
    "WIDTHS",
    "Picture",
    "check_path",
    "content",
    "curves",
    "histogram_rows",
    "plot",
    "save",
]
