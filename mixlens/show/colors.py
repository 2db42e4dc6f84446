"""One palette for every picture, safe for colour-blind readers: blue counts towards, orange against."""

from __future__ import annotations

from collections.abc import Sequence

TOWARDS = (0, 114, 178)  # Okabe and Ito's blue
AGAINST = (213, 94, 0)  # and vermillion
# Lines beside each other: the same palette without its yellow, which is lost on white. Marks tell them apart in grey, too.
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#767676")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "d")
DASHES = ("-", "--", ":", "-.")


def shares(scores: Sequence[float]) -> list[float]:
    """Scores scaled so that the largest magnitude is 1."""
    largest = max(map(abs, scores), default=0.0)
    return [score / largest for score in scores] if largest > 0 else [0.0] * len(scores)


def shade(share: float) -> tuple[int, int, int]:
    """White for 0, the full hue for 1 or -1."""
    hue = TOWARDS if share >= 0 else AGAINST
    red, green, blue = (round(255 + (channel - 255) * min(1.0, abs(share))) for channel in hue)
    return red, green, blue


def ink(background: tuple[int, int, int]) -> tuple[int, int, int]:
    """Black or white, whichever reads better on this background."""
    luminance = _luminance(background)
    return (0, 0, 0) if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else (255, 255, 255)


def _luminance(color: tuple[int, int, int]) -> float:
    """The relative luminance of a colour (WCAG)."""
    red, green, blue = map(_linear, color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: int) -> float:
    """A channel of sRGB, 0 to 255, as an amount of light, 0 to 1 (WCAG)."""
    value = channel / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def hex_of(color: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


# --- styles of a terminal ---------------------------------------------------------------------------------------------

STRONG, WEAK = 0.5, 0.1  # of sixteen colours: shares that fill the background, and those that colour the letters
SIXTEEN = {True: ("black on bright_cyan", "cyan"), False: ("black on yellow", "yellow")}  # towards, against


def style_of(share: float, colours: int, *, ink_only: bool = False) -> str:
    """A style for rich, for terminals of 0, 16 or 256 colours (or more)."""
    if colours == 0:
        return ""
    return _style_of_sixteen(share, ink_only) if colours <= 16 else _style_of_shades(share, ink_only)


def _style_of_sixteen(share: float, ink_only: bool) -> str:
    """Sixteen colours have no shades: there are three steps, and two hues that every terminal shows differently."""
    background, letters = SIXTEEN[share >= 0]
    if ink_only or WEAK <= abs(share) < STRONG:
        return letters
    return background if abs(share) >= STRONG else ""


def _style_of_shades(share: float, ink_only: bool) -> str:
    back = shade(share)
    return hex_of(back) if ink_only else f"{hex_of(ink(back))} on {hex_of(back)}"
