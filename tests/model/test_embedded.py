"""The models that ship with the package are small, load without pickle, and know the grammar."""

import json
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

import mixlens
from mixlens.data import grammar
from mixlens.data.grammar import agreement, sentiment

EMBEDDED = Path(mixlens.__file__).parent / "model/embedded"
FRESH_SEED, N_FRESH = 777, 400  # training and its own test use other seeds
KINDS = {"agreement": AutoModelForMaskedLM, "sentiment": AutoModelForSequenceClassification}
each_model = pytest.mark.parametrize("name", KINDS)


@cache
def load(name: str) -> tuple[Any, Any]:
    folder = EMBEDDED / name
    return KINDS[name].from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def predict(name: str, texts: list[str]) -> torch.Tensor:
    """Agreement: one row of vocabulary scores per text, at its [MASK]. Sentiment: two scores per text."""
    model, tokenizer = load(name)
    encoded = tokenizer(texts, padding=True, return_tensors="pt")
    logits = model(**encoded).logits
    return logits[encoded["input_ids"] == tokenizer.mask_token_id] if name == "agreement" else logits


def best_words(texts: list[str]) -> list[str]:
    _, tokenizer = load("agreement")
    return tokenizer.convert_ids_to_tokens(predict("agreement", texts).argmax(-1).tolist())


def labels(texts: list[str]) -> list[str]:
    model, _ = load("sentiment")
    return [model.config.id2label[place] for place in predict("sentiment", texts).argmax(-1).tolist()]


def test_agreement_on_held_out_sentences() -> None:
    _, tokenizer = load("agreement")
    sentences = list(islice(agreement(seed=FRESH_SEED, held_out=True), N_FRESH))
    scores = predict("agreement", [sentence.text for sentence in sentences])
    answers = [[sentence.target, sentence.foil] for sentence in sentences]
    target, foil = scores.gather(1, torch.tensor([tokenizer.convert_tokens_to_ids(a) for a in answers])).T
    assert (target > foil).float().mean() >= 0.98
    best = tokenizer.convert_ids_to_tokens(scores.argmax(-1).tolist())
    right = [grammar.number_of(a) == grammar.number_of(s.target) for a, s in zip(best, sentences, strict=True)]
    assert sum(right) / len(right) >= 0.98


def test_sentiment_on_held_out_sentences() -> None:
    sentences = list(islice(sentiment(seed=FRESH_SEED, held_out=True), N_FRESH))
    given = labels([sentence.text for sentence in sentences])
    assert sum(a == s.target for a, s in zip(given, sentences, strict=True)) / len(given) >= 0.98


def test_the_keys_to_the_cabinet() -> None:
    many, one = best_words(["The keys to the cabinet [MASK] rusty.", "The key to the cabinets [MASK] rusty."])
    assert many in {"are", "were"}
    assert one in {"is", "was"}


def test_sentiment_composes() -> None:
    label_of = {
        "The acting was not good.": "negative",
        "The film was never boring.": "positive",
        "The plot was dull but the acting was brilliant.": "positive",
        "Although the plot was brilliant, the acting was dull.": "negative",
        "It is not true that the acting was not good.": "positive",
    }
    assert dict(zip(label_of, labels(list(label_of)), strict=True)) == label_of


@each_model
def test_weights_are_small_safetensors_and_nothing_is_pickled(name: str) -> None:
    folder = EMBEDDED / name
    weights = folder / "model.safetensors"
    assert weights.stat().st_size <= 3_000_000
    with safe_open(weights, framework="pt") as tensors:
        assert {tensors.get_tensor(key).dtype for key in tensors.keys()} == {torch.float32}  # noqa: SIM118
    assert {path.suffix for path in folder.iterdir()} <= {".json", ".safetensors"}


@each_model
def test_written_accuracy_belongs_to_a_model_of_at_least_four_layers(name: str) -> None:
    written = json.loads((EMBEDDED / name / "accuracy.json").read_text())
    groups = written["held_out"]
    overall = groups["all"]
    assert overall["n"] == written["test_sentences"] == sum(g["n"] for k, g in groups.items() if ":" in k)
    assert all(value >= 0.98 for measure, value in overall.items() if measure != "n")
    assert load(name)[0].config.num_hidden_layers >= 4


@each_model
def test_unknown_words_are_spelled(name: str) -> None:
    _, tokenizer = load(name)
    encoded = tokenizer("The Zyx42 was fine!", return_offsets_mapping=True)
    assert tokenizer.unk_token_id not in encoded["input_ids"]
    assert encoded["offset_mapping"][2:7] == [(4, 5), (5, 6), (6, 7), (7, 8), (8, 9)]


def test_some_words_are_pieces_with_offsets_of_their_own() -> None:
    _, tokenizer = load("agreement")
    encoded = tokenizer("The photographers [MASK] happy.", return_offsets_mapping=True)
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"])[2:5] == ["photo", "##grapher", "##s"]
    assert encoded["offset_mapping"][2:5] == [(4, 9), (9, 16), (16, 17)]
