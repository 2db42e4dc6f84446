"""One palette for every picture, safe for colour-blind readers: blue counts towards, orange against."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

TOWARDS = (0, 114, 178)  # Okabe and Ito's blue
AGAINST = (213, 94, 0)  # and vermillion
# Lines beside each other: no hue that means for, against or share. Marks and dashes tell them apart in grey, too.
LINES = ("#15181e", "#0f8a7e", "#b83280", "#8a7400", "#767d88", "#3d8b37", "#7c4a2d", "#d08fb5")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "d")
DASHES = ("-", "--", ":", "-.")


# The design tokens of pages, light. Each hue: ink for text, fill for bars and cells without a number, tint behind text.
# Blue is for, orange against, violet has no sign.
TOKENS = (Path(__file__).parent / "page" / "tokens.css").read_text(encoding="utf-8")
LIGHT: Mapping[str, str] = MappingProxyType(
    dict(re.findall(r"--([a-z-]+): (#[0-9A-F]{6})", TOKENS.partition("@media")[0]))
)


def rgb_of(color: str) -> tuple[int, int, int]:
    """The channels of #RRGGBB."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def hue_of(score: float, *, signed: bool) -> str:
    """The hue of a score: "for" or "against" where scores have a sign, else "share"."""
    return ("against" if score < 0 else "for") if signed else "share"


def scaled(strength: float, end: str, *, zero: str = "surface") -> str:
    """A step of a light scale as #rrggbb: `zero` for 0, the token `end` ("for-tint" behind text, "for" without) for
    1."""
    return mixed(end, zero, min(1.0, abs(strength)))


def mixed(token: str, ground: str, part: float) -> str:
    """A light token over another, `part` of it, as #rrggbb."""
    top, below = rgb_of(LIGHT[token]), rgb_of(LIGHT[ground])
    red, green, blue = (round(b + (a - b) * part) for a, b in zip(top, below, strict=True))
    return hex_of((red, green, blue))


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
    values = (channel / 255 for channel in background)
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in values)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue  # WCAG, from channels of sRGB
    return (0, 0, 0) if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else (255, 255, 255)


def hex_of(color: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


# --- styles of a terminal ---------------------------------------------------------------------------------------------

WEAK = 0.1  # sixteen colours have no shades: the sign of a share that is no weaker colours its letters
SIGNS = {True: "cyan", False: "yellow"}  # towards, against


def style_of(share: float, colours: int, *, ink_only: bool = False) -> str:
    """A style for rich, for terminals of 0, 16 or 256 colours (or more)."""
    if colours <= 16:
        return SIGNS[share >= 0] if colours and abs(share) >= WEAK else ""
    back = shade(share)
    return hex_of(back) if ink_only else f"{hex_of(ink(back))} on {hex_of(back)}"
