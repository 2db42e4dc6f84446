"""What results say of themselves: the largest scores, and their defaults."""

from __future__ import annotations

import torch
from conftest import hf_model, ids

import mixlens


def test_the_top_tokens_are_those_of_the_largest_magnitude() -> None:
    """In falling order, with their sign; five unless said otherwise, and never more than there are."""
    tokens = tuple("abcdefg")
    read = mixlens.Attribution(torch.tensor([0.1, -0.9, 0.3, 0.0, 0.7, -0.2, 0.5]), tokens, "by hand")
    order = ["b", "e", "g", "c", "f", "a", "d"]
    for k in (1, 2, 7, 9):
        assert [token for token, _ in read.top(k)] == order[:k]
    assert [token for token, _ in read.top()] == order[:5]
    assert [round(score, 6) for _, score in read.top(3)] == [-0.9, 0.7, 0.5]
    assert read.top(0) == []


def test_a_row_is_of_the_last_layer_unless_said_otherwise() -> None:
    scores = torch.arange(2 * 3 * 3, dtype=torch.float64).view(2, 3, 3)
    made = mixlens.Map(scores, ("a", "b", "c"), "by hand")
    assert torch.equal(made.readout(1).scores, scores[1, 1])
    assert torch.equal(made.readout("c", layer=0).scores, scores[0, 2])


def test_a_result_tells_its_variant_and_the_other_options_apart() -> None:
    """`info["variant"]` is the variant, `info["options"]` what else was chosen or is the default."""
    trace = mixlens.load(hf_model("bert", head="AutoModelForSequenceClassification")).trace(input_ids=ids(4))
    read = mixlens.attribute(trace, "attcat", target=1, variant="released", mask_special=False)
    assert (read.info["variant"], read.info["options"]) == ("released", {"mask_special": False, "aggregation": "sum"})
    read = mixlens.attribute(trace, "attcat", target=1)
    assert (read.info["variant"], read.info["options"]) == ("paper", {"mask_special": True, "aggregation": "sum"})
    made = mixlens.mix(trace, "effective_attention", variant="paper", head=2)
    assert (made.info["variant"], made.info["options"]) == ("paper", {"head": 2})


def test_where_the_time_went_is_told_in_seconds_that_are_not_negative() -> None:
    """A method that reads layers, and one that reads a whole trace."""
    trace = mixlens.load(hf_model("bert")).trace(input_ids=ids(4))
    for name in ("alti", "hta_layer"):
        seconds = mixlens.mix(trace, name).info["seconds"]
        assert set(seconds) == {"forward", "proof", "map", "batch"}
        assert seconds["map"] > 0
        assert min(seconds.values()) >= 0
