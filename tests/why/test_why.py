"""`why` on the embedded models, in float64: shares, sums, and every number of trust against the stock model run
literally."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection
from functools import cache
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mixlens
from mixlens import answers
from mixlens.answers import case
from mixlens.base import errors

TEXT = "A dull film, but the cast is wonderful."
MASKED = "The keys to the cabinet [MASK] rusty."


@cache
def lens(name: str) -> Any:
    return mixlens.load(name, dtype="float64")


@cache
def answer(name: str = "sentiment", text: str = TEXT, **options: Any) -> mixlens.Why:
    return mixlens.why(lens(name), text, **options)


# --- scores -----------------------------------------------------------------------------------------------------------


def test_words_rebuild_the_text_and_shares_sum_to_one() -> None:
    why = answer()
    assert "".join(word.before + word.text for word in why.words if not word.special) == TEXT
    assert [word.text for word in why.words if word.special] == ["[CLS]", "[SEP]"]
    assert [word.text for word in why.words if word.mark] == [",", "."]
    for reading in why.methods:
        assert sum(map(abs, reading.shares)) == pytest.approx(1, abs=1e-12)
        assert [share for share, word in zip(reading.shares, why.words, strict=True) if word.special] == [0, 0]
    assert [word.share for word in why.words] == list(why.methods[0].shares)
    total = sum(map(abs, why.methods[0].scores))
    assert why.special_share == pytest.approx(
        sum(abs(word.score) for word in why.words if word.special) / total, abs=1e-12
    )


def test_a_word_scores_the_sum_of_its_tokens() -> None:
    text = "The staff was unpleasant and disappointing."
    why, model = answer(text=text), lens("sentiment")
    assert any(len(word.tokens) > 1 for word in why.words)
    for reading, written in zip(why.methods, sorted_methods(why), strict=True):
        scores = mixlens.attribute(model.trace(text), written).scores
        for score, word in zip(reading.scores, why.words, strict=True):
            assert score == pytest.approx(float(sum(scores[place] for place in word.tokens)), abs=1e-12)


def sorted_methods(why: mixlens.Why) -> list[str]:
    return [reading.id for reading in why.methods]


def test_signed_methods_come_before_the_others_and_the_leading_one_first() -> None:
    why = answer()
    assert why.methods[0].id == why.method.id == case.CHOICES["classification"].methods[0]
    signs = [reading.signed for reading in why.methods]
    assert signs == sorted(signs, reverse=True)
    assert set(sorted_methods(why)) == set(case.methods_for(lens("sentiment")))
    assert all(reading.everyday != reading.id for reading in why.methods)


def test_every_method_has_both_names_and_one_without_a_sign_gives_no_negative_score() -> None:
    from mixlens.answers import names
    from mixlens.scoring import asking, attributions, maps

    assert set(names.NAMES) >= {*maps.known(), *attributions.known()}
    assert (
        len({name.name for name in names.NAMES.values()})
        == len({name.everyday for name in names.NAMES.values()})
        == len(names.NAMES)
    )
    trace = lens("sentiment").trace(TEXT)
    for method in attributions.known():
        if not asking.parse_method(method).signed:
            assert float(mixlens.attribute(trace, method).scores.min()) >= 0, method
    assert not asking.parse_method("blank_out:absolute=true").signed
    assert asking.parse_method("blank_out").signed


# --- trust, by the stock model alone ----------------------------------------------------------------------------------


def without(why: mixlens.Why, model: Any, gone: Collection[int]) -> torch.Tensor:
    """[class]: the probabilities of a text without these words, as transformers computes them."""
    away = {token for place in gone for token in why.words[place].tokens}
    ids = model.encode(why.text).input_ids
    kept = torch.tensor([[token for place, token in enumerate(ids) if place not in away]])
    with torch.no_grad():
        return model.hf_model(input_ids=kept).logits[0].softmax(-1)


@pytest.mark.parametrize(
    "text", [TEXT, "The staff was unpleasant, disappointing and old."]
)  # the second names words of many tokens
def test_every_number_of_trust_is_what_the_stock_model_says(text: str) -> None:
    why, model = answer(text=text), lens("sentiment")
    assert (text == TEXT) or max(len(why.words[place].tokens) for place in why.answer.for_) > 1
    trust, words = why.trust, [i for i, word in enumerate(why.words) if not word.special and not word.mark]
    label = list(why.classes or ()).index(why.answer.target)

    def chance(gone: Collection[int]) -> float:
        return float(without(why, model, gone)[label])

    named = why.answer.for_
    near = {"abs": 1e-9, "rel": 0}  # rounding of float64, in another order of sums
    assert trust.whole == pytest.approx(chance(()), **near)
    assert why.answer.probability == pytest.approx(chance(()), abs=1e-6)  # the prediction's softmax is in float32
    assert trust.without == pytest.approx(chance(named), **near)
    assert trust.alone == pytest.approx(chance([w for w in words if w not in named]), **near)
    assert trust.empty == pytest.approx(chance(words), **near)
    assert trust.single is not None
    assert trust.single.without == pytest.approx(min(chance([one]) for one in named), **near)
    sets = [one for one in combinations(words, len(named)) if set(one) != set(named)]
    assert trust.random.all_
    assert trust.random.values == pytest.approx([chance(one) for one in sets], **near)
    assert trust.random.mean == pytest.approx(sum(map(chance, sets)) / len(sets), **near)
    assert trust.random.turned == sum(int(without(why, model, one).argmax()) != label for one in sets)
    assert (trust.random.low, trust.random.high) == (min(trust.random.values), max(trust.random.values))
    assert trust.without_prediction == (why.classes or ())[int(without(why, model, named).argmax())]
    assert trust.turned == (trust.without_prediction != why.answer.target)
    order = sorted(words, key=lambda place: -why.words[place].score)
    assert trust.curve.first == pytest.approx([chance(order[:count]) for count in range(len(order) + 1)], **near)
    assert all(curve[0] == trust.curve.first[0] and curve[-1] == trust.curve.first[-1] for curve in trust.curve.random)


def test_a_filler_stands_in_the_place_of_words() -> None:
    why, model = answer(filler="mask"), lens("sentiment")
    away = {token for place in why.answer.for_ for token in why.words[place].tokens}
    ids = [model.mask_id if place in away else token for place, token in enumerate(model.encode(TEXT).input_ids)]
    with torch.no_grad():
        shares = model.hf_model(input_ids=torch.tensor([ids])).logits[0].softmax(-1)
    label = list(why.classes or ()).index(why.answer.target)
    assert why.trust.without == pytest.approx(float(shares[label]), abs=1e-9)
    assert why.trust.filler.id == "mask"


def test_a_foil_is_measured_among_the_two() -> None:
    why, model = answer("agreement", MASKED, target="were", foil="was"), lens("agreement")
    ids, place = model.encode(MASKED).input_ids, model.encode(MASKED).input_ids.index(model.mask_id)
    with torch.no_grad():
        logits = model.hf_model(input_ids=torch.tensor([ids])).logits[0, place]
    were, was = (model.tokenizer.convert_tokens_to_ids(word) for word in ("were", "was"))
    assert why.trust.whole == pytest.approx(float(torch.sigmoid(logits[were] - logits[was])), abs=1e-9)
    assert why.answer.probability == pytest.approx(float(logits.softmax(-1)[were]), abs=1e-6)
    assert why.answer.foil == "was"
    assert why.words[why.answer.for_[0]].text == "keys"
    assert why.trust.turned  # "was" is the more probable one without the keys
    assert "[MASK]" not in [why.words[place].text for place in why.answer.for_]


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_a_language_model_is_asked_against_its_second_word_and_says_so() -> None:
    why = answer("agreement", MASKED)
    assert why.answer.target == why.predictions[0][0]
    assert why.answer.foil == why.predictions[1][0]
    assert why.question == f"Why did the model say {why.predictions[0][0]} rather than {why.predictions[1][0]}?"


def test_an_answer_turns_where_the_model_says_something_else_of_its_whole_vocabulary() -> None:
    """The foil suggests itself; a third word may be what the model says without the named words."""
    model, text = lens("agreement"), "The author [MASK] old."
    why = mixlens.why(model, text, methods=["grad_x_input"])
    assert why.answer.foil is not None
    ids = model.encode(text).input_ids

    def says(gone: Collection[int]) -> str:
        away = {token for place in gone for token in why.words[place].tokens}
        kept = [token for place, token in enumerate(ids) if place not in away]
        with torch.no_grad():
            logits = model.hf_model(input_ids=torch.tensor([kept])).logits[0, kept.index(model.mask_id)]
        return str(model.tokenizer.convert_ids_to_tokens(int(logits.argmax())))

    words = [
        place for place, word in enumerate(why.words) if not word.special and not word.mark and word.text != "[MASK]"
    ]
    others = [one for one in combinations(words, len(why.answer.for_)) if set(one) != set(why.answer.for_)]
    assert why.trust.without_prediction == says(why.answer.for_)
    assert why.trust.turned == (says(why.answer.for_) != why.answer.target)
    assert why.trust.random.turned == sum(says(one) != why.answer.target for one in others)


def test_another_target_turns_the_signs_of_a_classifier_with_two_classes() -> None:
    other = "negative" if answer().answer.target == "positive" else "positive"
    why = answer(target=other)
    assert why.question == f"What speaks for {other}?"
    assert why.trust.random.turned == 0  # the model cannot turn from what it does not say
    assert why.answer.probability == pytest.approx(1 - answer().answer.probability, abs=1e-6)
    assert why.words[why.answer.for_[0]].score > 0


def test_a_method_of_ones_own_leads_and_one_without_sign_says_so() -> None:
    why = answer(method="alti")
    assert why.method.id == why.methods[0].id == "alti"
    assert not why.method.signed
    assert why.answer.against == ()
    assert "no_sign" in [note.id for note in why.notes]
    assert why.method.reason == "you chose it"
    assert min(word.share for word in why.words) >= 0
    assert sorted_methods(answer(methods=("attcat", "globenc"))) == ["attcat", "globenc"]
    assert sorted_methods(
        answer(method="integrated_gradients:steps=5", methods=("integrated_gradients", "attcat"))
    ) == [
        "integrated_gradients",
        "attcat",
    ]


# --- notes ------------------------------------------------------------------------------------------------------------


def ids_of(why: mixlens.Why) -> list[str]:
    return [note.id for note in why.notes]


def test_a_vocabulary_that_does_not_know_the_words_is_said() -> None:
    assert "shredded" in ids_of(answer(text="Unflinchingly bleak and desperate."))
    assert "shredded" not in ids_of(answer())
    one = answer(
        text="A dull, lifeless film that wastes a wonderful cast."
    )  # two of seven are spelled, and one of them is named
    note = next(note for note in one.notes if note.id == "shredded")
    assert note.state == "caution"
    assert "does not know “lifeless”:" in note.text


def test_a_word_that_is_the_unknown_token_and_a_special_token_in_the_text_are_said() -> None:
    texts = {note.id: note.text for note in answer(text="A dull 𝔘 film [SEP] with a cast, 𝔘 𝔙.").notes}
    assert texts["unknown"] == "The model cannot read “𝔘” and “𝔙”: it sees [UNK] there."
    assert texts["typed_special"] == "The text has “[SEP]” in it: the model reads a special token there, not words."
    assert not {"unknown", "typed_special"} & {
        *ids_of(answer()),
        *ids_of(answer("agreement", MASKED)),
    }  # a mask is meant
    assert "typed_special" in ids_of(answer(text="A dull [MASK]."))  # a classifier fills none


def test_one_word_has_nothing_to_compare_with() -> None:
    why = answer(text="Wonderful")
    assert why.trust.random.count == 0
    assert why.trust.random.mean == why.trust.whole
    assert why.trust.verdict == "caution"
    assert why.sentence.endswith("because of “Wonderful”, with nothing to compare with")


def test_a_target_that_the_model_does_not_say_has_no_easy_yes() -> None:
    why = answer("agreement", MASKED, target="keys")
    assert why.trust.verdict == "fail"
    assert "no_effect" in ids_of(why)
    assert not why.answer.predicted
    assert why.trust.sentence.startswith(
        "No: the model does not say keys; without it the probability of keys changes by"
    )
    best, share = why.predictions[0]
    assert f"for keys; the model says {best} ({100 * share:.1f}" in why.sentence
    assert "because" not in why.sentence


def test_an_answer_of_an_older_file_is_read() -> None:
    content = answer().to_dict()
    del content["trust"]["but"], content["answer"]["predicted"]
    assert answers.from_dict(content) == answer()


def test_a_text_that_is_cut_says_so_and_one_that_is_not_is_refused() -> None:
    model = lens("sentiment")
    long = "the film was good " * 400
    with pytest.raises(errors.InputError, match="reads at most"):
        mixlens.why(model, long)
    why = mixlens.why(model, long, truncate=True, methods=["grad_x_input"], draws=1)
    assert "cut" in ids_of(why)
    assert sum(len(word.tokens) for word in why.words) <= model.max_tokens
    assert "cut" not in ids_of(mixlens.why(model, TEXT, truncate=True, methods=["grad_x_input"]))


def test_words_that_change_nothing_contradict_the_headline() -> None:
    model = lens("sentiment")
    constant = mixlens.load("sentiment", dtype="float64")
    with torch.no_grad():
        constant.hf_model.classifier.weight.zero_()
        constant.hf_model.classifier.weight[0, 0], constant.hf_model.classifier.weight[1, 0] = 1e-9, -1e-9
    why = mixlens.why(constant, TEXT, methods=["grad_x_input", "attcat"])
    assert why.trust.verdict == "fail"
    assert "no_effect" in ids_of(why)
    assert why.sentence.endswith(("changes little", "changes more"))
    assert model is not constant


def test_under_sixty_percent_the_answer_leans() -> None:
    constant = mixlens.load("sentiment", dtype="float64")
    with torch.no_grad():
        constant.hf_model.classifier.weight.mul_(1e-3)
    why = mixlens.why(constant, TEXT, methods=["grad_x_input"])
    assert why.answer.certainty == "leans"
    assert why.sentence.startswith(f"leans to {why.answer.target} (")
    assert answer().answer.certainty == "sure"


def test_scores_that_do_not_add_up_fail() -> None:
    why = answer(method="integrated_gradients:steps=1", methods=("attcat",))
    assert why.gaps.completeness is not None
    assert why.gaps.completeness > 0.05
    assert why.trust.verdict == "fail"
    assert {check.id: check.state for check in why.trust.checks}["completeness"] == "fail"


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "bad"}, "has no class 'bad'"),
        ({"method": "deeplyft"}, "unknown method 'deeplyft'"),
        ({"filler": "zero"}, "unknown filler 'zero'"),
        ({"draws": 0}, "draws is a number of random sets, 1 to 1000, not 0"),
        ({"seed": -1}, "seed is a number, 0 or more"),
        ({"query": "film"}, "a classifier is asked about the whole text"),
        ({"foil": "positive", "target": "positive"}, "target and foil are the same"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InputError) as refused:
        mixlens.why(lens("sentiment"), TEXT, **options)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_masked_model_without_a_mask_is_refused_and_with_a_word_it_says_what_it_sees() -> None:
    with pytest.raises(errors.InputError, match=r"the text has no \[MASK\]"):
        mixlens.why(lens("agreement"), "The keys were rusty.")
    why = mixlens.why(lens("agreement"), "The keys to the cabinet were rusty.", query="were", methods=["grad_x_input"])
    assert "no_mask" in ids_of(why)


def test_a_trace_of_another_model_and_two_pairs_are_refused() -> None:
    with pytest.raises(errors.InputError, match="Trace the text with the model asked"):
        mixlens.why(lens("sentiment"), lens("agreement").trace(MASKED))
    with pytest.raises(errors.InputError, match="give the pair once"):
        mixlens.why(lens("sentiment"), ("a", "b"), pair="c")


# --- files ------------------------------------------------------------------------------------------------------------


def test_json_is_read_back_as_the_same_value(tmp_path: Any) -> None:
    why = answer()
    content = json.loads(why.to_json())
    assert content == why.to_dict()
    assert content["kind"] == "why"
    assert content["answer"]["for"] == list(why.answer.for_)
    assert content["trust"]["random"]["all"] is True
    assert answers.from_dict(content) == why
    why.to_json(tmp_path / "why.json")
    assert mixlens.load_result(tmp_path / "why.json") == why
    (tmp_path / "other.json").write_text('{"kind": "map"}')
    with pytest.raises(errors.ResultError):
        mixlens.load_result(tmp_path / "other.json")


def test_csv_has_a_row_for_each_word_and_a_column_for_each_method() -> None:
    why = answer()
    rows = list(csv.DictReader(io.StringIO(why.to_csv())))
    assert [row["word"] for row in rows] == [word.text for word in why.words]
    for reading in why.methods:
        assert [float(row[reading.id]) for row in rows] == list(reading.scores)


def test_a_path_is_never_printed() -> None:
    model = mixlens.load("sentiment")
    for name, told in (("/tmp/models/mine", "mine"), ("./mine", "mine"), ("org/name", "org/name")):
        model.name = name
        assert mixlens.why(model, "A dull film.", methods=["grad_x_input"], draws=1).model == told
    model.name = "/tmp/models/mine"
    command = mixlens.why(model, "A dull film.", methods=["grad_x_input"], draws=1).provenance["command"]
    assert "-m FOLDER/mine" in command
    assert "/tmp" not in command


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from(["good", "dull", "not", "the", "film", ",", ".", "Zyx", "cast", "été", "12", "disappointing"]),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from([" ", "  ", "\n"]),
)
def test_any_text_has_an_answer_whose_numbers_fit(words: list[str], between: str) -> None:
    text = between.join(words)
    why = mixlens.why(lens("sentiment"), text, methods=["grad_x_input", "alti"], draws=2)
    assert "".join(word.before + word.text for word in why.words if not word.special) == text
    assert sum(abs(word.share) for word in why.words) == pytest.approx(1, abs=1e-9)
    free = [place for place, word in enumerate(why.words) if not word.special and not word.mark]
    free = free or [place for place, word in enumerate(why.words) if not word.special]
    assert set(why.answer.for_) <= set(free)
    assert len(why.answer.for_) == why.trust.k <= max(1, min(3, len(free) // 2))
    assert 0 <= why.trust.random.low <= why.trust.random.mean + 1e-12
    assert why.trust.random.mean <= why.trust.random.high + 1e-12
    assert answers.from_dict(json.loads(why.to_json())) == why
