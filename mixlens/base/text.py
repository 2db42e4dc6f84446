"""Numbers and lists as pages, terminal and paper write them: percent, points, "three words", "a, b and c"."""

from __future__ import annotations

import math
from collections.abc import Sequence

THIN = "\u202f"  # the space before %
MINUS = "\u2212"
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def percent(share: float, *, sign: bool = False) -> str:
    """A share: one decimal under 10 %, none from 10 % on; never "0.0 %" for what is not zero."""
    size = abs(share)
    if math.isnan(size):
        return f"?{THIN}%"
    mark = _sign(share) if sign else (MINUS if share < 0 else "")
    if 0 < size < 0.0005:
        return f"<0.1{THIN}%"
    digits = 1 if round(100 * size, 1) < 10 and size > 0 else 0
    return f"{mark}{100 * size:.{digits}f}{THIN}%"


def at_most(share: float) -> str:
    """A bound in words: "at most 4.0 %", "under 0.1 %"."""
    text = percent(share)
    return f"under {text[1:]}" if text.startswith("<") else f"at most {text}"


def probability(value: float) -> str:
    """A probability: one decimal; "<0.1 %" and ">99.9 %" for what would round to nothing or to certainty."""
    if math.isnan(value):
        return f"?{THIN}%"
    if 0 < value < 0.0005:
        return f"<0.1{THIN}%"
    if 0.9995 <= value < 1:
        return f">99.9{THIN}%"
    return f"{100 * value:.1f}{THIN}%" if 0 < value < 1 else f"{100 * value:.0f}{THIN}%"


def points(change: float) -> str:
    """A change of a probability: "−17 points"."""
    size = abs(100 * change)
    if 0 < size < 0.05:
        return "<0.1 points"
    number = f"{size:.0f}" if size >= 9.95 else f"{size:.1f}"
    unit = "point" if number == "1.0" else "points"
    return f"{_sign(change)}{number.removesuffix('.0')} {unit}"


def _sign(number: float) -> str:
    return MINUS if number < 0 else "+" if number > 0 else ""


def gap(share: float) -> str:
    """A gap in percent with one digit that counts: "0.001 %"."""
    if share == 0:
        return f"0{THIN}%"
    if share < 1e-8:
        return f"<0.000001{THIN}%"
    digits = max(0, min(6, -math.floor(math.log10(100 * share))))
    return f"{100 * share:.{digits}f}{THIN}%"


def counted(count: int, noun: str) -> str:
    """ "three words", "one word", "13 words"."""
    return f"{number_word(count)} {noun if count == 1 else noun + 's'}"


def number_word(count: int) -> str:
    return COUNTS[count] if 0 <= count < len(COUNTS) else f"{count:,}"


def ordinal(place: int) -> str:
    """ "1st", "2nd", "11th"."""
    ending = "th" if 10 < place % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"


def listed(items: Sequence[str], *, last: str = "and") -> str:
    """ "a", "a and b", "a, b and c"."""
    return f"{', '.join(items[:-1])} {last} {items[-1]}" if len(items) > 1 else "".join(items)


def sentence_case(text: str) -> str:
    """The text with its first letter large."""
    return text[:1].upper() + text[1:]


def for_terminal(text: str, *, unicode: bool = True) -> str:
    """A text with plain spaces before %; and with ASCII signs where a terminal has no others."""
    plain = text.replace(THIN, " ")
    return plain if unicode else plain.replace(MINUS, "-")
