"""The terminal writes shares in percent, and names the unit of other scores."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import mixlens
from mixlens.scoring.notices import notices_of
from mixlens.show.text import compare_view, rendered, view

SENTENCE = "The keys to the cabinet [MASK] rusty."


@cache
def trace() -> Any:
    return mixlens.load("agreement").trace(SENTENCE)


@cache
def alti() -> Any:
    return mixlens.mix(trace(), "alti")


def test_a_row_of_shares_is_written_in_percent() -> None:
    row = alti().rollout().readout("[MASK]")
    scores = dict(row.top(2))
    lines = rendered(view(row, top=2)).splitlines()
    assert lines[-2].split()[1:4] == ["rusty", f"{100 * scores['rusty']:.0f}", "%"]
    assert lines[-1].split()[1:4] == ["keys", f"{100 * scores['keys']:.0f}", "%"]


def test_percentages_stand_under_each_other() -> None:
    row = replace(alti().readout(0), scores=alti().scores[0, 0] * 0)
    row.scores[:3] = row.scores.new_tensor([0.95, 0.0499, 0.0001])
    lines = rendered(view(row, top=3)).splitlines()[-3:]
    assert [line[: line.index("%") + 1].split()[-2:] for line in lines] == [["95", "%"], ["5.0", "%"], ["<0.1", "%"]]
    assert len({line.index("%") for line in lines}) == 1


def test_a_map_of_shares_is_written_in_percent() -> None:
    text = rendered(view(alti()), width=200)
    assert "rows: position, columns: what it took, in percent" in text
    cells = text.splitlines()[-1].split()[1:]
    expected = [float(score) for score in alti().scores[-1, -1]]
    for cell, score in zip(cells, expected, strict=True):
        digits = 1 if 0 < round(100 * score, 1) < 10 else 0
        assert cell == ("<0.1" if 0 < score < 0.0005 else f"{100 * score:.{digits}f}")


def test_the_largest_scores_of_a_long_map_are_in_percent() -> None:
    long = mixlens.load("agreement").trace("The keys " + "and the keys " * 30 + "[MASK] old.")
    lines = rendered(view(mixlens.mix(long, "attention"))).splitlines()
    assert lines[-1].split()[1] == "%"


def test_a_map_in_a_unit_of_its_own_stays() -> None:
    text = rendered(view(mixlens.mix(trace(), "norm")), width=200)
    assert "in percent" not in text


def test_scores_that_add_up_name_their_unit() -> None:
    added = rendered(view(mixlens.attribute(trace(), "integrated_gradients", target="were")))
    assert "\nscores in logits\n" in added
    assert "%" not in added.splitlines()[-1]
    shares = rendered(view(mixlens.attribute(trace(), "integrated_gradients", target="were", score="log_probability")))
    assert "\nscores in nats (of the log probability)\n" in shares
    points = rendered(view(mixlens.attribute(trace(), "integrated_gradients", target="were", score="probability")))
    assert "\nscores in probability\n" in points
    assert "\nscores in a unit of the method's own\n" in rendered(
        view(mixlens.attribute(trace(), "attcat", target="were"))
    )


@pytest.mark.parametrize(
    ("method", "unit", "after"),
    [
        ("blank_out", "probability", " (of the probability)"),
        ("gradient_shap", "logits", " (of the logit)"),
        ("deeplift", "logits", " (of the logit)"),
        ("attcat", "a unit of the method's own", ""),
        ("transatt", "a unit of the method's own", ""),
    ],
)
def test_one_method_and_several_name_the_same_unit(method: str, unit: str, after: str) -> None:
    result = mixlens.attribute(trace(), method, target="were")
    assert f"\nscores in {unit}\n" in rendered(view(result))
    largest = f"{max(map(abs, result.scores.tolist())):.3g}{after}"
    assert f"{method} = {largest}\n" in rendered(compare_view([result])) + "\n"


def test_a_notice_counts_the_words_that_it_judges() -> None:
    """Words of fewer than three letters say nothing about a vocabulary, and are not counted."""
    model = mixlens.load("agreement")
    (notice,) = notices_of(model, model.trace("It is a [MASK] of wobbly gadgets."), query=None)
    assert "does not know 2 of the 2 words of three letters or more in this text" in notice
