"""The answer as a notebook shows it where scripts do not run."""

from __future__ import annotations

import re

import made_values as made

from mixlens.show.colors import scaled


def test_the_strongest_word_has_the_full_colour_whatever_its_sign() -> None:
    example = made.why_example
    words = [{**example.word(place), "share": 0.01} for place in range(len(example.WORDS))]
    words[1].update(text="bad", share=-0.6)
    words[2].update(text="good", share=0.3)
    shown = made.answer(words=words)._repr_html_()
    colours = dict(re.findall(r"background:(#\w+);[^>]*>(bad|good)<", shown))
    assert colours == {scaled(1.0, "against-tint"): "bad", scaled(0.5, "for-tint"): "good"}
