"""Results as numbers: what holds of vectors holds of Attributions and Maps, and a result of two says what both were."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mixlens
from mixlens.base import errors
from mixlens.metrics import intervals

TEXT = "A dull film with a wonderful cast."


@pytest.fixture(scope="module")
def trace() -> Any:
    return mixlens.load("sentiment").trace(TEXT)


@pytest.fixture(scope="module")
def pair(trace: Any) -> Any:
    return mixlens.attribute(trace, "grad_x_input"), mixlens.attribute(trace, "attcat")


@pytest.fixture(scope="module")
def maps(trace: Any) -> Any:
    made = mixlens.mix(trace, ["alti", "attention"])
    return made["alti"], made["attention"]


# --- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pair", "maps"])
def test_sums_are_those_of_the_scores(kind: str, request: pytest.FixtureRequest) -> None:
    a, b = request.getfixturevalue(kind)
    assert torch.equal((a + b).scores, a.scores + b.scores)
    assert torch.equal((a - b).scores, a.scores - b.scores)
    assert torch.equal((a - a).scores, torch.zeros_like(a.scores))
    assert torch.equal((-a).scores, -a.scores)
    assert torch.equal((3 * a).scores, (a * 3.0).scores)
    assert torch.equal((a / 4).scores, a.scores / 4)
    torch.testing.assert_close(
        (a - b + b).scores, a.scores, rtol=0, atol=1e-6
    )  # float32: one rounding of numbers of size 1
    assert (a - b).tokens == a.tokens
    assert type(a - b) is type(a)


def test_both_sides_are_recorded_and_only_what_holds_of_both_is_said(trace: Any, pair: Any) -> None:
    a, b = pair
    made = a - b
    facts = made.info["arithmetic"]
    assert made.method == "grad_x_input - attcat"
    assert (facts["operation"], facts["left"]["method"], facts["right"]["method"]) == ("-", "grad_x_input", "attcat")
    assert "method" in facts["differ"]
    assert made.info["target"] == a.info["target"]
    other = mixlens.attribute(trace, "attcat", target=1 - int(trace.logits.argmax()))
    against = b - other
    assert against.method == f"attcat ({b.info['target']}) - attcat ({other.info['target']})"
    assert against.info["arithmetic"]["differ"] == ["target"]
    assert "target" not in against.info  # neither of the two is what the difference explains
    assert (against - b).info["arithmetic"]["left"]["arithmetic"]["differ"] == ["target"]


def test_a_target_is_not_said_without_its_score(trace: Any, tmp_path: Any) -> None:
    """Of the logit and of the probability of one class: neither is what the difference explains, and a file of it is
    read."""
    logit, probability = (mixlens.attribute(trace, "grad_x_input", score=score) for score in ("logit", "probability"))
    made = logit - probability
    assert made.info["arithmetic"]["differ"] == ["score"]
    assert not {"score", "target"} & set(made.info)
    made.save(tmp_path / "x.json")
    assert mixlens.load_result(tmp_path / "x.json").info["query_token"] == "[CLS]"


def test_what_one_method_says_of_its_scores_is_not_said_of_a_sum(trace: Any, maps: Any) -> None:
    complete = mixlens.attribute(trace, "integrated_gradients", steps=20)
    for made in (complete - complete, 2 * complete, complete.normalize(), complete[1:3]):
        assert "completeness" not in made.info
    alti, attention = maps
    with pytest.raises(errors.InputError, match=r"'alti - attention' is made of other maps and is not rolled out"):
        (alti - attention).rollout()
    rolled = alti.rollout() - attention.rollout()
    assert float(rolled.scores.sum(-1).abs().max()) < 1e-5  # both have rows that sum to 1


def test_what_does_not_fit_is_refused_in_one_line(trace: Any, pair: Any, maps: Any) -> None:
    a, _ = pair
    other = mixlens.attribute(trace.model.trace("A dull film with a dreadful cast."), "attcat")
    longer = mixlens.attribute(trace.model.trace("A dull film."), "attcat")
    twice = mixlens.attribute(trace.model.trace("The film was dull, dull."), "attcat")
    for wrong, why in (
        (lambda: a - other, r"not of the same tokens: at \d+ they are 'wonderful' and"),
        (lambda: a - longer, r"13 and \d+ tokens\. For the mean over different texts use mixlens\.mean"),
        (lambda: a - maps[0], "Attribution and Map do not add up"),
        (lambda: a + 1, r"Attribution and int do not add up: give two of the same kind, or Attribution \* number"),
        (lambda: maps[0] - maps[0].sum(), "layers"),
        (lambda: a * "2", "multiplied by a finite number, not by '2'"),
        (lambda: a * float("nan"), "multiplied by a finite number"),
        (lambda: a * True, "multiplied by a finite number"),
        (lambda: a / 0, "divided by a number other than 0"),
        (lambda: a.normalize("sum"), "unknown normalization 'sum'"),
        (lambda: a["dreadful"], "dreadful"),
        (lambda: twice["dull"], r"the word 'dull' occurs 2 times, at \[\d+, \d+\]"),
        (lambda: a[99], "out of range"),
        (lambda: a[5:5], "no token is left"),
        (lambda: a["dull":"cast"], r"a slice is of positions"),
        (lambda: maps[0]["dull"], r"one row is m\.readout"),
    ):
        with pytest.raises(errors.InputError, match=why):
            wrong()  # type: ignore[no-untyped-call]
    with pytest.raises(TypeError, match="not iterable"):
        list(a)


# --- parts ------------------------------------------------------------------------------------------------------------


def test_parts_are_found_by_position_and_by_word(pair: Any, maps: Any) -> None:
    a, _ = pair
    assert a[2] == float(a.scores[2])
    assert a[-1] == float(a.scores[-1])
    assert a["wonderful"] == pytest.approx(float(a.scores[a.tokens.index("wonderful")]))
    word, places = next((word, places) for word, places in a.words if len(places) > 1)
    assert a[word] == pytest.approx(float(a.scores[list(places)].sum()), abs=1e-6)  # a word is the sum of its pieces
    some = a[2:5]
    assert some.tokens == a.tokens[2:5]
    assert torch.equal(some.scores, a.scores[2:5])
    assert some.info["part"] == {"positions": [2, 3, 4], "of": len(a.tokens)}
    assert "query" not in some.info  # [CLS] is gone
    assert a[:3].info["query"] == 0
    listed = a[["wonderful", "dull", 0]]
    assert listed.tokens == ("[CLS]", "dull", "wonderful")
    assert listed.words == (("[CLS]", (0,)), ("dull", (1,)), ("wonderful", (2,)))
    alti, _ = maps
    assert torch.equal(alti[1:4].scores, alti.scores[:, 1:4, 1:4])


@pytest.mark.parametrize(
    ("how", "size"),
    [("share", lambda s: s.abs().sum(-1)), ("max", lambda s: s.abs().amax(-1)), ("length", lambda s: s.norm(dim=-1))],
)
def test_normalized_scores_have_size_one_and_keep_their_signs(how: str, size: Any, pair: Any, maps: Any) -> None:
    for result in (pair[0], maps[0] - maps[1]):
        made = result.normalize(how)
        torch.testing.assert_close(size(made.scores), torch.ones_like(size(made.scores)), rtol=1e-5, atol=1e-6)
        assert torch.equal(made.scores.sign(), result.scores.sign())
        assert made.info["normalized"] == how
    assert float((0 * pair[0]).normalize(how).scores.abs().sum()) == 0


# --- means ------------------------------------------------------------------------------------------------------------


def test_a_mean_over_one_text_has_an_interval_for_each_token(trace: Any) -> None:
    several = [
        mixlens.attribute(trace, name) for name in ("grad_x_input", "attcat", "cat", "attention_grad", "deeplift")
    ]
    made = mixlens.mean(several)
    stacked = torch.stack([one.scores.double() for one in several])
    torch.testing.assert_close(made.scores, stacked.mean(0), rtol=1e-12, atol=1e-12)
    expected = intervals.mean_with_interval(stacked[:, 2].numpy(), how="studentised")
    assert (float(made.info["low"][2]), float(made.info["high"][2])) == (expected.low, expected.high)
    assert made.info["n"].tolist() == [5] * len(trace)
    assert made.words == trace.words
    assert mixlens.mean(several[:1]).info["low"].isnan().all()  # one has no interval


def test_a_mean_over_texts_is_by_word_or_by_group(trace: Any) -> None:
    texts = ["A dull film.", "The film was dull, dull.", "A wonderful cast."]
    several = [mixlens.attribute(trace.model.trace(text), "grad_x_input") for text in texts]
    made = mixlens.mean(several, by="word")
    words = [dict_of_sums(one) for one in several]
    for i, word in enumerate(made.tokens):
        values = [sums[word] for sums in words if word in sums]
        assert float(made.scores[i]) == pytest.approx(sum(values) / len(values), abs=1e-6)
        assert int(made.info["n"][i]) == len(values)
    assert "[cls]" not in made.tokens
    assert made.scores.abs().tolist() == sorted(made.scores.abs().tolist(), reverse=True)
    groups = mixlens.mean(several, by=lambda word: {"dull": "against", "wonderful": "for"}.get(word.lower()))
    assert sorted(groups.tokens) == ["against", "for"]
    assert groups.info["unit"] == "group"


def dict_of_sums(result: Any) -> dict[str, float]:
    sums: dict[str, float] = {}
    for word, places in result.words:
        if not all(result.special[i] for i in places):
            sums[word.lower()] = sums.get(word.lower(), 0.0) + float(result.scores[list(places)].sum())
    return sums


def test_means_that_are_none_are_refused(trace: Any, pair: Any, maps: Any) -> None:
    short = mixlens.attribute(trace.model.trace("A dull film."), "attcat")
    for given, options, why in (
        ([], {}, "nothing to average"),
        ([maps[0]], {}, "mean takes a list of attributions, not of Map"),
        ([pair[0], short], {}, "number 1 is of other tokens than the first"),
        ([pair[0]], {"by": "sentence"}, "by is 'token', 'word' or a function of a word"),
        ([pair[0]], {"by": lambda word: None}, "no word is left to average"),
    ):
        with pytest.raises(errors.InputError, match=why):
            mixlens.mean(given, **options)


def test_what_is_made_of_results_can_be_shown_saved_and_drawn(
    pair: Any, maps: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for made in (
        pair[0] - pair[1],
        -pair[0],
        pair[0][2:5],
        pair[0].normalize(),
        mixlens.mean(pair),
        maps[0] - maps[1],
        maps[0][:3],
    ):
        made.show(color=False)
        assert made.method.split()[0].lstrip("-") in capsys.readouterr().out
        assert "<" in made._repr_html_()
        made.save(tmp_path / "x.json")
        again = mixlens.load_result(tmp_path / "x.json")
        assert torch.equal(again.scores, made.scores)
        assert again.info.get("arithmetic") == made.info.get("arithmetic")
