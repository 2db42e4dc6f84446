"""Targets of several tokens: the sum of log-probabilities by hand, gradients that add up, masks that must be there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import hf_model
from made import talker

import mixlens
from mixlens.model import vocabulary
from mixlens.scoring import attributions, sequences, targets

PROMPT = "the cat likes"
WORD = "playing"  # ▁play ing


def by_hand(model: Any, prompt: list[int], pieces: list[int]) -> float:
    with torch.no_grad():
        shares = model.hf_model(torch.tensor([[*prompt, *pieces]])).logits[0].log_softmax(-1)
    return float(sum(shares[len(prompt) + k - 1, piece] for k, piece in enumerate(pieces)))


@pytest.mark.parametrize("case", ["llama", "gpt2"])
def test_the_number_is_the_sum_of_log_probabilities(case: str) -> None:
    model = talker(case)
    trace = model.trace(PROMPT)
    pieces = list(vocabulary.pieces_of(model, WORD))
    assert model.tokens(pieces) == ("▁play", "ing")
    whole = sequences.followed(trace, WORD)
    expected = by_hand(model, list(trace.input_ids), pieces)
    for score, value in (("log_probability", expected), ("probability", 2.718281828459045**expected)):
        number = targets.resolve(whole, WORD, score=score).of(model.outputs([whole]))
        assert float(number) == pytest.approx(value, rel=1e-5)
    assert targets.resolve(whole, WORD).name == WORD


@pytest.mark.parametrize("name", ["grad_x_input", "integrated_gradients", "blank_out"])
def test_scores_are_the_sum_over_the_pieces(name: str) -> None:
    """The target is a sum, and these methods are linear in it: the pieces one by one, each after those before it."""
    model = talker()
    trace = model.trace(PROMPT)
    options = {"score": "log_probability", **({"replacement": "delete"} if name == "blank_out" else {})}
    read = attributions.attribute(trace, name, target=WORD, **options)
    pieces = vocabulary.pieces_of(model, WORD)
    first = attributions.attribute(trace, name, target=pieces[0], **options).scores
    longer = model.trace(input_ids=[*trace.input_ids, *pieces[:-1]])
    second = attributions.attribute(longer, name, target=pieces[1], **options).scores.clone()
    second[: len(first)] += first
    keep = slice(None) if name != "blank_out" else slice(0, len(first) - 1)  # positions that predict are never blanked
    torch.testing.assert_close(read.scores[keep], second[keep], rtol=1e-5, atol=1e-6)
    assert read.tokens == longer.tokens
    assert read.info["target"] == WORD
    assert [word for word, _ in read.words][:4] == ["<s>", "the", "cat", "likes"]


def test_the_usual_score_of_several_tokens_is_the_log_probability() -> None:
    model = talker()
    assert model.explain(PROMPT, method="grad_x_input", target=WORD).info["score"] == "log_probability"
    assert model.explain(PROMPT, method="grad_x_input", target="ball").info["score"] == "logit"


def test_the_prediction_is_that_of_the_text_itself() -> None:
    model = talker()
    told = model.explain(PROMPT, method="grad_x_input", target=WORD).info["prediction"]
    assert told == model.trace(PROMPT).prediction()


def test_several_tokens_take_no_foil_and_no_short_trace() -> None:
    model = talker()
    with pytest.raises(mixlens.MixlensError, match="takes no foil"):
        model.explain(PROMPT, method="grad_x_input", target=WORD, foil="ball")
    with pytest.raises(mixlens.MixlensError, match="which this trace does not hold"):
        targets.resolve(model.trace(PROMPT), WORD)
    with pytest.raises(mixlens.MixlensError, match="is not one token"):
        model.explain(PROMPT, method="grad_x_input", target="snö")  # not in the vocabulary


def test_a_masked_model_needs_as_many_masks() -> None:
    model = mixlens.load("agreement")
    word = next(word for word in ("cabinets", "swimming", "keyboard") if len(vocabulary.pieces_of(model, word)) > 1)
    count = len(vocabulary.pieces_of(model, word))
    with pytest.raises(mixlens.MixlensError, match=f"Write {count} of them"):
        model.explain("The keys [MASK] rusty.", method="grad_x_input", target=word)
    text = f"The keys {'[MASK] ' * count}rusty."
    read = model.explain(text, method="grad_x_input", target=word)
    trace = model.trace(text)
    with torch.no_grad():
        shares = model.hf_model(torch.tensor([trace.input_ids])).logits[0].log_softmax(-1)
    expected = sum(
        float(shares[place, piece])
        for place, piece in zip(trace.predicts, vocabulary.pieces_of(model, word), strict=True)
    )
    assert float(targets.resolve(trace, word, score="log_probability").of(model.outputs([trace]))) == pytest.approx(
        expected, rel=1e-4
    )
    assert read.info["target"] == word


def test_every_name_that_is_printed_can_be_given_back() -> None:
    model = talker()
    for number in range(len(model.tokenizer)):
        for plain in (False, True):
            name = vocabulary.token_name(model, number, plain=plain)
            target: Any = int(name) if name.isdigit() and name == str(number) else name
            assert targets.resolve(model.trace(PROMPT), target).ids == (number,), name


@pytest.mark.parametrize(
    ("prompt", "continuation", "tokens"),
    [
        ("the cat", "is red", ("▁is", "▁red")),
        ("the cat", " is red", ("▁is", "▁red")),
        ("the cat is play", "##ing", ("ing",)),
        ("the cat", ".", (".",)),
    ],
)
def test_a_continuation_is_read_with_its_prompt(prompt: str, continuation: str, tokens: tuple[str, ...]) -> None:
    model = talker()
    assert model.tokens(sequences.continuation_ids(model, model.encode(prompt), continuation)) == tokens


def test_a_model_without_tokenizer_has_no_words() -> None:
    model = mixlens.load(hf_model("llama", head="AutoModelForCausalLM"))
    with pytest.raises(mixlens.MixlensError, match="no tokenizer"):
        attributions.attribute(model.trace(input_ids=[5, 6]), "grad_x_input", target="swimming")
