"""The design tokens: pages, notebooks and Python have the same, and text can be read on every tint."""

from __future__ import annotations

import re

import pytest

from mixlens.show import colors, page_template

SCALES = ("for", "against", "share")


def blocks() -> list[dict[str, str]]:
    """The colours of each block of tokens.css that defines paper and hues."""
    found = re.findall(r"\{([^{}]*--for-tint[^{}]*)\}", page_template.asset("tokens.css"))
    return [dict(re.findall(r"--([a-z-]+): (#[0-9A-F]{6})", block)) for block in found]


def luminance(color: str) -> float:
    parts = [channel / 255 for channel in colors.rgb_of(color)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_dark_is_there_twice_and_has_what_light_has() -> None:
    light, chosen, system = blocks()
    assert system == chosen  # chosen by the reader, or by the system
    assert light.keys() == chosen.keys() == colors.LIGHT.keys()


@pytest.mark.parametrize("tokens", blocks()[:2], ids=["light", "dark"])
def test_text_can_be_read(tokens: dict[str, str]) -> None:
    for hue in SCALES:
        assert contrast(tokens["ink"], tokens[f"{hue}-tint"]) >= 4.5
        assert contrast(tokens[f"{hue}-ink"], tokens["surface"]) >= 4.5
        assert contrast(tokens[hue], tokens["surface"]) >= 3
    for back in ("paper", "surface", "sunk"):
        assert contrast(tokens["ink"], tokens[back]) >= 4.5
        assert contrast(tokens["soft"], tokens[back]) >= 4.5
    assert contrast(tokens["edge"], tokens["surface"]) >= 3
    assert contrast(tokens["focus"], tokens["paper"]) >= 3


def test_a_scale_is_a_straight_mix() -> None:
    assert colors.scaled(0, "for-tint") == "#ffffff"
    assert colors.scaled(-1, "against") == "#c2500a"
    assert colors.scaled(0.5, "for-tint") == "#a4cfe8"
    assert [colors.hue_of(score, signed=signed) for score, signed in ((1, True), (-1, True), (-1, False))] == [
        "for",
        "against",
        "share",
    ]


@pytest.mark.parametrize("color", [(0, 114, 178), (213, 94, 0), (255, 255, 255), (117, 117, 117), (10, 200, 90)])
def test_ink_is_black_or_white_whichever_has_more_contrast(color: tuple[int, int, int]) -> None:
    back, ink = colors.hex_of(color), colors.hex_of(colors.ink(color))
    other = "#000000" if ink == "#ffffff" else "#ffffff"
    assert contrast(ink, back) >= max(4.5, contrast(other, back))
