"""The ends of ranges, and choices between two ways to read what was asked."""

from __future__ import annotations

import pytest
from conftest import ids, loaded
from typer.testing import CliRunner

import mixlens
from mixlens.aggregate import find
from mixlens.cli import app


def test_a_token_is_found_as_it_is_written_before_it_is_found_without_its_mark() -> None:
    tokens = ("▁play", "play", "##ing", "Ġthe", ".")
    assert find(tokens, "play") == 1
    assert find(tokens, "▁play") == 0
    assert find(tokens, "ing") == 2
    assert find(tokens, "the") == 3
    assert find(tokens, "Ġthe") == 3
    with pytest.raises(mixlens.MixlensError, match="no token 'pla'"):
        find(tokens, "pla")


@pytest.mark.parametrize("method", ["grad_l2", "grad_x_input"])
def test_hidden_states_are_counted_from_both_ends(method: str) -> None:
    trace = loaded("bert", head="AutoModelForSequenceClassification").trace(input_ids=ids(5))
    depth = len(trace.layers)
    first, last = (mixlens.attribute(trace, method, layer=layer).scores for layer in (0, depth))
    assert mixlens.attribute(trace, method, layer=-depth - 1).scores.tolist() == first.tolist()
    assert mixlens.attribute(trace, method, layer=-1).scores.tolist() == last.tolist()
    for layer in (depth + 1, -depth - 2):
        with pytest.raises(mixlens.MixlensError, match="out of range"):
            mixlens.attribute(trace, method, layer=layer)


def test_times_are_of_steps_alone() -> None:
    out = CliRunner().invoke(app, ["explain", "The keys [MASK] rusty.", "--timing"]).output
    named = [line.split("  ")[0].strip() or line.split()[0] for line in out.splitlines() if line.endswith(" ms")]
    assert {"forward", "alti", "proof", "total"} <= set(named)
    assert "batch" not in out
