"""Pictures in the terminal and the notebook: exact strings, and no text that can do harm."""

from __future__ import annotations

import torch

from mixlens.show.colors import AGAINST, TOWARDS, ink, shade, shares
from mixlens.show.notebook import html
from mixlens.show.text import attribution_view, compare_view, map_view, rendered
from mixlens.show.tokens import shown
from mixlens.types import Attribution, Map

INFO = {
    "model": "agreement",
    "variant": "paper",
    "rollout": {"convention": "alti"},
    "layer": 3,
    "gap": 2.4e-7,
    "query": 2,
    "query_token": "[MASK]",
    "prediction": [("were", 0.625), ("was", 0.25)],
}


def test_an_attribution_without_colour_is_numbers_and_bars() -> None:
    read = Attribution(torch.tensor([0.125, 0.5, -0.25]), ("The", "keys", "[MASK]"), "alti", INFO)
    assert rendered(attribution_view(read), width=80).splitlines() == [
        "model agreement · method alti · rollout alti · after layer 4 · gap 2e-07",
        "predicts  were 62.5%   was 25.0%",
        "explains  [MASK] (position 2)",
        "",
        "The keys [MASK]",
        "",
        " 0  The     0.125  ██████",
        " 1  keys    0.5    ████████████████████████",
        " 2  [MASK]  -0.25  ▒▒▒▒▒▒▒▒▒▒▒▒",
    ]


def test_colour_is_two_hues_and_readable_ink() -> None:
    read = Attribution(torch.tensor([1.0, -1.0, 0.0]), ("a", "b", "c"), "alti", {"model": "m"})
    colored = rendered(attribution_view(read), color=True)
    for red, green, blue in (TOWARDS, AGAINST):
        assert f"48;2;{red};{green};{blue}" in colored
    assert "48;2;255;255;255m" in colored


def test_ink_has_the_contrast_of_readable_text() -> None:
    def luminance(color: tuple[int, int, int]) -> float:
        parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for step in range(-20, 21):
        back = shade(step / 20)
        light, dark = sorted((luminance(back), luminance(ink(back))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_shares_are_of_the_largest_magnitude() -> None:
    assert shares([1.0, -4.0, 2.0]) == [0.25, -1.0, 0.5]
    assert shares([0.0, 0.0]) == [0.0, 0.0]
    assert shares([]) == []


def test_pieces_of_a_word_stay_together() -> None:
    read = Attribution(torch.ones(4), ("un", "##happy", "Ġkeys", "▁x"), "alti", {"model": "m"})
    assert "unhappy keys x" in rendered(attribution_view(read))


def test_a_layer_as_a_matrix() -> None:
    made = Map(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]), ("a", "b"), "alti", {"model": "m"})
    assert [line.strip() for line in rendered(map_view(made)).splitlines()] == [
        "model m · method alti · after layer 1 · rows: position, columns: what it took",
        "",
        "a     b",
        "a 1.00  0.00",
        "b 0.25  0.75",
    ]


def test_several_methods_under_one_sentence() -> None:
    reads = [Attribution(torch.tensor([0.25, 0.75]), ("a", "b"), name, INFO) for name in ("alti", "globenc")]
    lines = rendered(compare_view(reads)).splitlines()
    assert lines[4:7] == ["           a   b", " alti     33 100", " globenc  33 100"]


def test_hostile_tokens_are_text() -> None:
    assert shown("a\u200bb\x1b[31m\n") == "a\\u200bb\\u001b[31m\\u000a"
    assert shown("") == "␣"
    hostile = ("<script>alert(1)</script>", "[bold red]x[/]", "&amp;", '"onload="')
    for result in (
        Attribution(torch.ones(4), hostile, "alti", {"model": "<b>m</b>", "prediction": [("<i>", 0.5)]}),
        Map(torch.ones(2, 4, 4), hostile, "alti", {"model": "<b>m</b>"}),
    ):
        page = html(result)
        for piece in ("<script>", "<b>m", "<i>", '""'):
            assert piece not in page
        assert "&lt;script&gt;" in page
        assert result._repr_html_() == page
    assert "[bold red]x[/]" in rendered(attribution_view(Attribution(torch.ones(4), hostile, "alti", {"model": "m"})))
