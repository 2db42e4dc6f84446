"""Which method to trust: ranks, ties, what random scores reach, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from conftest import needs_fast

import mixlens
from mixlens import data
from mixlens.base.errors import InputError
from mixlens.fast.block import Block
from mixlens.metrics import Interval, removal_curves
from mixlens.metrics.alignment import cue_dot
from mixlens.metrics.arguments import marks_at
from mixlens.metrics.faithfulness import aopc, blank_out_faithfulness, course_of
from mixlens.metrics.subsets import lds
from mixlens.runs.experiments import experiment as experiment_file
from mixlens.runs.experiments import known, tables
from mixlens.runs.experiments.command import experiment_text
from mixlens.runs.experiments.verdict import answers_of, boards_of
from mixlens.runs.judge.judge import every_method, judge, judge_text, lines, ranking
from mixlens.runs.judge.judge_remarks import dropped_told
from mixlens.runs.judge.judged_metrics import CUES, FAITHFULNESS, metrics_of, parse_metric, possible
from mixlens.runs.judge.judged_random import random_scores
from mixlens.runs.judge.judging import Case, explained, is_right, twins_of
from mixlens.runs.judge.scoreboard import Scoreboard, Values
from mixlens.scoring.removal import removable_units
from mixlens.scoring.targets import resolve
from mixlens.types import Attribution, Example, Record


@pytest.fixture(scope="module")
def gap_model() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


def test_the_numbers_are_those_of_the_metrics(gap_model: Any) -> None:
    """Attributions explain the target against its foil, and the metrics measure the target against its foil."""
    made = judge(gap_model, "agreement", methods="random,alti,attcat", n=2, progress=False)
    found = {(r.example, r.method, r.metric): r.value for r in made.records}
    for example in made.setup.examples:
        trace = gap_model.trace(example)
        pair: dict[str, Any] = {"target": example.target, "foil": example.foil}
        attcat = mixlens.attribute(trace, "attcat", **pair)
        alti = mixlens.attribute(trace, "alti")
        cues = marks_at(data.cue_tokens(example, trace), len(trace))
        assert found[str(example.id), "attcat", "aopc"] == aopc(trace, attcat, **pair).value
        expected = blank_out_faithfulness(trace, alti, keep_special=False, **pair)
        assert found[str(example.id), "alti", "blank_out_faithfulness"] == expected
        assert found[str(example.id), "alti", "lds"] == lds(trace, alti, **pair)
        assert found[str(example.id), "alti", "cue_dot"] == pytest.approx(cue_dot(alti, cues), rel=1e-5)
    assert set(made.setup.options["metrics"]) == {*FAITHFULNESS, *CUES}  # this data has cues
    table = ranking(made)
    assert table.columns[-1] == "seconds"
    scores = [cell.mean for cell in table.column("score")]
    assert scores == sorted(scores, reverse=True)
    assert table.column("rank") == [1, 2, 3]
    assert "seconds" not in made.tables[0].csv
    assert [table.name for table in made.tables][:2] == ["ranking", "plausibility"]  # two questions, two tables
    assert "random" in table.column("method")
    assert "compared with itself" not in table.note  # every metric judges every method


def test_a_classifier_of_two_classes_explains_one_against_the_other(model: Any) -> None:
    """log p of one of two classes falls as the difference of the logits does: the same ranking of tokens."""
    made = judge(model, "sentiment", methods="grad_x_input", metrics="aopc", n=1, progress=False)
    trace = model.trace(made.setup.examples[0])
    predicted = int(trace.logits.argmax())
    asked = explained(made.setup.examples[0], trace, "measured")
    assert asked == {"target": "predicted", "foil": 1 - predicted, "score": "logit"}
    contrast, logs = (
        mixlens.attribute(trace, "grad_x_input", target=predicted, foil=foil, score=score)
        for foil, score in ((1 - predicted, "logit"), (None, "log_probability"))
    )
    (record,) = [r for r in made.records if (r.method, r.metric) == ("grad_x_input", "aopc")]
    assert record.value == aopc(trace, contrast, foil=1 - predicted).value
    assert record.value == pytest.approx(aopc(trace, logs).value, abs=1e-6)  # float32; two classes: p among two is p


def test_the_logit_alone_can_be_explained_and_the_same_is_measured(gap_model: Any) -> None:
    """`explains="logit"`: no foil in the scores; the metrics measure the target against its foil all the same."""
    asked: dict[str, Any] = {"metrics": "aopc,blank_out_faithfulness", "n": 1, "progress": False}
    made = judge(gap_model, "agreement", methods="random,attcat", explains="logit", **asked)
    (example,) = made.setup.examples
    trace = gap_model.trace(example)
    pair: dict[str, Any] = {"target": example.target, "foil": example.foil}
    attcat, contrast = (
        mixlens.attribute(trace, "attcat", **question) for question in ({"target": example.target}, pair)
    )
    assert not torch.allclose(attcat.scores, contrast.scores)
    found = {(r.method, r.metric): r.value for r in made.records}
    assert found["attcat", "aopc"] == aopc(trace, attcat, **pair).value
    expected = blank_out_faithfulness(trace, attcat, keep_special=False, **pair)
    assert found["attcat", "blank_out_faithfulness"] == expected
    measured = judge(gap_model, "agreement", methods="random,alti", **asked)
    other = {(r.method, r.metric): r.value for r in measured.records}
    assert [found["random", name] for name in ("aopc", "blank_out_faithfulness")] == [
        other["random", name] for name in ("aopc", "blank_out_faithfulness")
    ]


def test_blank_out_is_not_judged_by_itself(gap_model: Any) -> None:
    asked: dict[str, Any] = {"methods": "blank_out,alti,random", "metrics": "aopc,blank_out_faithfulness", "n": 6}
    made = judge(gap_model, "agreement", progress=False, **asked)
    table = made.tables[0]
    assert table.row("blank_out")["blank_out_faithfulness"] is None
    assert table.row("alti")["blank_out_faithfulness"] is not None
    assert "blank_out has no blank_out_faithfulness: it would be compared with what it is made of." in table.note
    board = boards_of(made.setup, made.records)["ranking"]
    both = board.scores("alti", ["removing"]) - board.scores("blank_out", ["removing"])  # compared by what judges both
    pair = ("alti", "blank_out") if ("alti", "blank_out") in board.differences else ("blank_out", "alti")
    sign = 1 if pair[0] == "alti" else -1
    assert board.differences[pair].mean == pytest.approx(sign * both.mean())


def test_what_is_blank_out_under_another_name_is_not_judged_by_it(gap_model: Any) -> None:
    """The path of one token alone ends in blanking it. The cell does not depend on whether blank_out is judged beside it."""
    asked: dict[str, Any] = {"metrics": "aopc,blank_out_faithfulness", "n": 2, "progress": False}
    for others in ("", ",blank_out"):
        made = judge(gap_model, "agreement", methods=f"random,attcat,sequential_integrated_gradients{others}", **asked)
        table = made.tables[0]
        assert table.row("sequential_integrated_gradients")["blank_out_faithfulness"] is None
        assert table.row("sequential_integrated_gradients")["aopc"] is not None
        assert table.row("attcat")["blank_out_faithfulness"] is not None
        names = (
            "sequential_integrated_gradients has"
            if not others
            else "blank_out and sequential_integrated_gradients have"
        )
        assert f"{names} no blank_out_faithfulness: " in table.note


def test_one_method_under_two_names_is_one_row(gap_model: Any) -> None:
    made = judge(
        gap_model, "agreement", methods="alti,attention,attention_rollout", metrics="aopc", n=3, progress=False
    )
    assert sorted(made.tables[0].column("method")) == ["alti", "attention = attention_rollout"]
    assert "joined by = have the same scores on every text" in made.tables[0].note
    values = {m: [r.value for r in made.records if r.method == m] for m in ("attention", "attention_rollout")}
    assert values["attention"] == values["attention_rollout"]  # to the last bit: rounding moves no token


def test_scores_that_differ_by_rounding_or_scale_are_twins() -> None:
    def of(*scores: float) -> Attribution:
        return Attribution(torch.tensor(scores), ("a", "b", "c"), "made up")

    made = {
        "first": of(1.0, 2.0, -4.0),
        "scaled": of(2.0, 4.00001, -8.0),
        "mirrored": of(-1.0, -2.0, 4.0),
        "other": of(1.0, 2.1, -4.0),
    }
    assert twins_of(made) == {"first": "first", "scaled": "first", "mirrored": "mirrored", "other": "other"}


def ranked(gap_model: Any, values: dict[str, Sequence[float]], metrics: Sequence[str] = ("aopc", "lodds")) -> Any:
    """The tables of made-up methods, each with its aopc on every text; lodds is the same thing, ten times as large."""
    used = known()["judge"]
    n = len(next(iter(values.values())))
    some = tuple(Example("a text", id=str(i)) for i in range(n))
    options = {**used.options, "metrics": list(metrics)}
    setup = Setup(used, (gap_model,), some, tuple(values), options)
    factors = {"aopc": 1.0, "lodds": -10.0, "cue_dot": -1.0}
    records = [
        Record(str(i), method, metric, factors[metric] * numbers[i], {"seconds": 0.1, "spread": abs(factors[metric])})
        for i in range(n)
        for method, numbers in {**values, "random": values.get("random", [0.0] * n)}.items()
        for metric in metrics
    ]
    return setup, used.finish(setup, records), records


def test_a_score_is_in_spreads_of_random_and_metrics_of_one_kind_count_once(gap_model: Any) -> None:
    _, (table, *_), _ = ranked(gap_model, {"a": [1.0, 3.0], "b": [3.0, 4.0]})
    assert {m: table.row(m)["score"].mean for m in ("a", "b")} == pytest.approx({"a": 2.0, "b": 3.5})
    _, tables, _ = ranked(gap_model, {"a": [1.0, 3.0], "b": [3.0, 4.0]}, ("aopc", "lodds", "cue_dot"))
    assert [t.name for t in tables[:2]] == ["ranking", "plausibility"]
    assert {m: tables[0].row(m)["score"].mean for m in ("a", "b")} == pytest.approx({"a": 2.0, "b": 3.5})
    assert {m: tables[1].row(m)["score"].mean for m in ("a", "b")} == pytest.approx({"a": -2.0, "b": -3.5})


def test_a_score_does_not_depend_on_who_else_is_judged(gap_model: Any) -> None:
    noise = np.random.default_rng(0).normal(size=(3, 20))
    both = ranked(gap_model, {"a": noise[0], "b": noise[1]})[1][0]
    three = ranked(gap_model, {"a": noise[0], "c": noise[2] + 9, "b": noise[1]})[1][0]
    assert all(both.row(m)["score"] == three.row(m)["score"] for m in ("a", "b"))


def test_groups_are_not_told_apart_from_their_first(gap_model: Any) -> None:
    noise = np.random.default_rng(0).normal(size=(4, 40))
    values = {"far": noise[0] + 9, "near": noise[1] + 9.1, "low": noise[2] + 4, "random": 0 * noise[3]}
    setup, tables, records = ranked(gap_model, values)
    assert {m: tables[0].row(m)["group"] for m in values} == {"far": 1, "near": 1, "low": 2, "random": 3}
    (answer,) = answers_of(setup, records)
    assert answer.startswith("On these 40 texts ")
    assert "far" in answer
    assert "1 is not told apart from it: " in answer
    assert "it is above 1 other." in answer
    pairs = next(table for table in tables if table.name == "ranking_pairs")
    assert dict(zip(pairs.column("method"), pairs.column("told apart"), strict=True))["low"] == "yes"


def test_methods_that_do_nothing_are_seldom_told_apart() -> None:
    """Ten random methods on 30 texts, 60 times: a difference is found in at most 10 % of the runs (5 % are meant; 60 runs)."""
    request, found = parse_metric("aopc"), 0
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(size=(10, 30))
        values = Values(request, {str(i): row for i, row in enumerate(noise)}, np.zeros(30), np.ones(30))
        found += len(set(Scoreboard((values,), tuple(values.of_methods)).groups.values())) > 1
    assert found <= 6


def test_near_copies_do_not_hide_a_true_difference() -> None:
    """Two methods that differ on one text alone cannot be tested, and the others are told apart all the same."""
    noise = np.random.default_rng(0).normal(size=(2, 40))
    copy = noise[0].copy()
    copy[3] += 0.5
    values = Values(parse_metric("aopc"), {"a": noise[0], "copy": copy, "b": noise[1] + 6}, np.zeros(40), np.ones(40))
    board = Scoreboard((values,), ("a", "copy", "b"))
    assert board.groups == {"b": 1, "a": 2, "copy": 2}


def test_all_methods_are_judged_on_the_same_texts(gap_model: Any) -> None:
    """A text without a value for one method is left out for all; a method without any value leaves out nothing."""
    nan = float("nan")
    _, (table, *_), _ = ranked(gap_model, {"a": [1.0, nan, 3.0], "b": [5.0, 7.0, 6.0], "none": [nan] * 3}, ["aopc"])
    assert table.row("b")["aopc"].mean == 5.5
    assert (table.row("b")["aopc"].n, table.row("a")["aopc"].n) == (2, 2)
    assert "aopc is undefined for a method on 1 texts, which are left out for all." in table.note
    assert table.column("method")[-1] == "none"


@pytest.mark.parametrize(("examples", "few"), [(3, True), (29, True), (30, False)])
def test_a_ranking_of_few_texts_comes_with_a_caution(gap_model: Any, examples: int, few: bool) -> None:
    _, (table, *_), _ = ranked(gap_model, {"a": [1.0] * examples, "b": [3.0] * examples})
    assert (f"Caution: {examples} texts are few." in table.note) == few


def test_one_text_has_no_intervals_and_says_so() -> None:
    told = judge_text(
        "agreement", None, text="The keys to the cabinet [MASK] rusty.", methods="alti,attcat", metrics="aopc"
    )
    assert told.splitlines()[0].endswith(
        "has the highest score in faithfulness; so few texts tell no two methods apart."
    )
    assert "One text has no intervals" in told
    assert "[" not in told.replace("[MASK]", "")
    with pytest.raises(InputError, match="DATA or --text, not both"):
        judge_text("agreement", "agreement", text="a", methods="alti", metrics="aopc")
    with pytest.raises(InputError, match="no texts were given"):
        judge("bert-base-uncased", methods="alti")


def test_where_signs_matter_both_readings_are_shown(gap_model: Any) -> None:
    """The default reading and the other one, of methods for which they differ text by text."""
    made = judge(gap_model, "agreement", methods="attcat,alti,grad_x_input", metrics="aopc,cues", n=20, progress=False)
    names = {(r.method, r.metric) for r in made.records}
    assert ("attcat", "aopc:ranking=magnitude") in names
    assert ("alti", "aopc:ranking=magnitude") not in names  # a map has no signs
    table = next(table for table in made.tables if table.name == "signs")
    for row in table.rows:
        first, second = (
            [r.value for r in made.records if (r.method, r.metric) == (row[0], metric)] for metric in (row[1], row[3])
        )
        assert row[2].mean == pytest.approx(np.mean(first))
        assert row[4].mean == pytest.approx(np.mean(second))
        assert abs(np.mean(first) - np.mean(second)) > 0.01
    forced = judge(gap_model, "agreement", methods="attcat", metrics="aopc", n=2, ranking="magnitude", progress=False)
    both = {r.example: r.value for r in made.records if (r.method, r.metric) == ("attcat", "aopc:ranking=magnitude")}
    for record in forced.records:
        if (record.method, record.metric) == ("attcat", "aopc"):
            assert record.value == both[record.example]
    with pytest.raises(InputError, match="unknown ranking 'absolut'"):
        judge(gap_model, "agreement", methods="attcat", metrics="aopc", n=2, ranking="absolut", progress=False)


def test_random_is_drawn_several_times(gap_model: Any) -> None:
    """More draws: a steadier reference. The mean over draws, and the spread of one."""
    asked: dict[str, Any] = {"methods": "random", "metrics": "cue_dot", "n": 4, "progress": False}
    few, many = (judge(gap_model, "agreement", draws=draws, **asked) for draws in (1, 400))
    assert {r.info["spread"] for r in few.records} == {0.0}
    for record, example in zip(many.records, many.setup.examples, strict=True):
        trace = gap_model.trace(example)
        cues = marks_at(data.cue_tokens(example, trace), len(trace))
        share = cues.sum() / len(trace)  # the expected share of uniform scores
        assert record.value == pytest.approx(share, abs=4 * record.info["spread"] / 20)
    with pytest.raises(InputError, match="draws is a number"):
        judge(gap_model, "agreement", draws=0, **asked)


@pytest.mark.parametrize("unit", ["word", "sentence"])
def test_random_scores_favour_no_unit_by_its_length(model: Any, unit: str) -> None:
    """Each unit goes first equally often. 2000 draws: within 4 standard errors of its share."""
    trace = model.trace("The unfilmable film is long and dull and old. Good. Not bad at all!")
    target = resolve(trace)
    units = removable_units(trace, target, unit)
    assert len({len(one) for one in units}) > 1
    generator, draws = np.random.default_rng(0), 2000
    first = [course_of(trace, random_scores(trace, target, unit, generator), unit=unit).order[0] for _ in range(draws)]
    share = 1 / len(units)
    error = (share * (1 - share) / draws) ** 0.5
    for one in units:
        assert first.count(one) / draws == pytest.approx(share, abs=4 * error), one


def test_random_scores_are_drawn_by_the_unit_of_a_metric(model: Any) -> None:
    """`lds` removes words whatever the run removes; metrics without units look at tokens."""
    text = "The unfilmable plot was not dull."
    trace = model.trace(text)
    (word,) = [positions for _, positions in trace.words if len(positions) > 1]
    for unit, shared in (("token", {"lds"}), ("word", {"lds", "aopc", "blank_out_faithfulness"})):
        made = judge(model, [text], methods="random", metrics="aopc", unit=unit, progress=False)
        case = Case(made.setup, made.setup.examples[0])
        for metric in ("lds", "aopc", "blank_out_faithfulness", "cue_dot"):
            drawn = case.draws(parse_metric(metric))
            assert len(drawn) == made.setup.options["draws"]
            alike = [len({scores[i] for i in word}) == 1 for scores in drawn]
            assert alike == [metric in shared] * len(drawn), (unit, metric)
    assert case.draws(parse_metric("aopc:unit=token"))[0][word[0]] != case.draws(parse_metric("aopc"))[0][word[0]]


def test_right_and_wrong_predictions_are_shown_apart(gap_model: Any) -> None:
    """A target that the model does not prefer to its foil counts as a wrong prediction."""
    some = list(data.load("agreement", n=6, seed=0))
    wrong = [replace(e, target=e.foil, foil=e.target) for e in some[:3]]
    made = judge(gap_model, [*wrong, *some[3:]], methods="alti,attcat", metrics="aopc", progress=False)
    table = next(table for table in made.tables if table.name == "correctness")
    assert table.columns == ("method", "right (3 texts)", "wrong (3 texts)", "right less wrong")
    board = boards_of(made.setup, made.records)["ranking"]
    assert table.row("alti")["wrong (3 texts)"].mean == pytest.approx(board.scores("alti")[:3].mean())
    assert table.row("alti")["right less wrong"] is None  # 3 texts have no interval


def test_labels_tell_right_from_wrong(model: Any) -> None:
    labelled = [Example("a good film", info={"label": name}) for name in ("positive", "negative", "unheard of")]
    assert [is_right(e, model.trace(e)) for e in labelled] == [True, False, None]


def test_labels_that_are_ids_of_classes_are_taken_as_such(model: Any, tmp_path: Path) -> None:
    """Of all texts at once: where one label is no id, none is. What was done is said in one line."""
    texts = ["A good and fine film.", "A dull and bad film.", "A fine story.", "The plot was bad."]

    def told(labels: Sequence[Any], **options: Any) -> tuple[Any, str]:
        place = tmp_path / "texts.jsonl"
        place.write_text(
            "".join(json.dumps({"text": t, "label": label}) + "\n" for t, label in zip(texts, labels, strict=True))
        )
        asked: dict[str, Any] = {"methods": "alti,random", "metrics": "aopc", "progress": False, **options}
        outcome = judge(model, place, **asked)
        rights = {record.example: record.info["right"] for record in outcome.records}
        return list(rights.values()), " ".join(judge_text("sentiment", str(place), **asked).split())

    ids, without = (
        "Labels are taken as the ids of the model's classes: ",
        "there is no table of right and wrong predictions.",
    )
    rights, text = told([1, 0, 0, 1], label_field="label")
    assert rights == [True, True, False, False]
    assert f"{ids}0 = negative, 1 = positive." in text
    assert text.count(ids) == 2  # in the answer, and below the table
    assert "right (2 texts)" in text
    rights, text = told([2, 1, 1, 2], label_field="label")
    assert rights == [None] * 4
    assert f"Labels that are no classes of the model (0 = negative, 1 = positive): '2', '1'; {without}" in text
    rights, text = told(["positive", "negative", "unheard of", "positive"], label_field="label")
    assert rights == [True, True, None, False]
    assert "'unheard of'; their texts count as neither right nor wrong." in text
    rights, text = told(["positive", "negative", "negative", "positive"])
    assert rights == [None] * 4
    assert "The field 'label' of " in text
    assert "was not read: --label-field label makes a table of right and wrong predictions" in text
    rights, text = told(["positive", "negative", "negative", "positive"], label_field="label")
    assert rights == [True, True, False, False]
    assert "abels are " not in text
    assert "was not read" not in text


def test_no_normalised_aopc_leaves_its_bounds(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the beam finds one order alone, the methods and the random draws of a text are its bounds."""
    monkeypatch.setattr(removal_curves, "EXHAUSTIVE", 0)
    monkeypatch.setattr(removal_curves, "_best", lambda course, replacement, beam, sign: sign * 0.4)
    methods = {"random", "attcat", "integrated_gradients", "context_cite"}
    made = judge(model, "sentiment", methods=",".join(sorted(methods)), metrics="naopc", n=3, draws=3, progress=False)
    for example in made.setup.examples:
        values = {record.method: record.value for record in made.records if record.example == str(example.id)}
        assert values.keys() == methods
        assert min(values.values()) >= 0
        assert max(values.values()) <= 1
        assert len({*values.values()} - {0.0, 1.0}) > 1  # one scale for all methods of a text


def test_metrics_of_a_group_that_are_left_out_are_named(gap_model: Any) -> None:
    asked: dict[str, Any] = {"methods": "alti", "progress": False, "text": "The plot was not dull."}
    line = "aopc:replacement=infill is left out: infilling needs a masked language model with this vocabulary, --infill NAME."
    assert line in judge_text("sentiment", None, metrics="fillers", **asked).splitlines()
    assert "left out" not in judge_text("sentiment", None, metrics="aopc:replacement=pad,aopc", **asked)
    asked["text"] = "The keys to the cabinet [MASK] rusty."
    assert "left out" not in judge_text("agreement", None, metrics="fillers", **asked)
    config = SimpleNamespace(pad_token_id=None)
    tiny = SimpleNamespace(name="tiny", tokenizer=None, task="x", hf_model=SimpleNamespace(config=config))
    setup = SimpleNamespace(options={"metrics": ["aopc:replacement=delete"]}, model=tiny)
    assert dropped_told(setup, ["fillers"])[1] == "aopc:replacement=mask is left out: 'tiny' has no mask token."  # type: ignore[arg-type]


def test_fillers_are_compared(gap_model: Any) -> None:
    made = judge(gap_model, "agreement", methods="alti,attcat,random", metrics="fillers", n=3, progress=False)
    ways = ("delete", "pad", "mask", "unk", "infill")
    assert made.setup.options["metrics"] == [f"aopc:replacement={way}" for way in ways]
    table = next(table for table in made.tables if table.name == "fillers")
    assert table.column("metric") == made.setup.options["metrics"]
    assert table.column(table.columns[-1])[0] == 1.0  # with itself


def test_another_model_fills_gaps_where_the_judged_one_cannot(gap_model: Any, model: Any) -> None:
    some = ["the mother is here", "the keys are old"]
    made = judge(model, some, methods="alti,attcat", metrics="fillers", progress=False)
    assert "aopc:replacement=infill" not in made.setup.options["metrics"]  # of a group, what can be asked
    with pytest.raises(InputError, match="needs a masked language model with this vocabulary: infill=NAME"):
        judge(model, some, methods="alti", metrics="aopc:replacement=infill", progress=False)
    with pytest.raises(InputError, match="their vocabularies differ"):
        judge(model, some, methods="alti", metrics="aopc:replacement=infill", infill=gap_model, progress=False)


def test_metrics_take_options_and_whole_words(gap_model: Any) -> None:
    asked: dict[str, Any] = {"methods": "alti", "n": 1, "progress": False}
    words = judge(gap_model, "agreement", metrics="aopc", unit="word", **asked)
    named = judge(gap_model, "agreement", metrics="aopc:unit=word", **asked)
    first, second = ([r.value for r in made.records if r.metric.startswith("aopc")] for made in (words, named))
    assert first == second
    with pytest.raises(InputError, match="has no option 'replace'"):
        judge(gap_model, "agreement", metrics="aopc:replace=mask", **asked)
    with pytest.raises(InputError, match="an option is written key=value"):
        judge(gap_model, "agreement", metrics="aopc:mask", **asked)


def test_bars_stand_in_the_order_of_what_they_show(gap_model: Any) -> None:
    """The best on top, also where the mean place over all metrics says otherwise, and for a metric where lower is better."""
    figure = pytest.importorskip("matplotlib.figure")
    means = {"a": 1.0, "b": 3.0, "c": 2.0, "d": float("nan")}
    for metrics, order in ((["aopc", "lodds"], ["b", "c", "a", "d"]), (["lodds", "aopc"], ["b", "c", "a", "d"])):
        setup, (table, *_), _ = ranked(gap_model, {name: [mean] * 3 for name, mean in means.items()}, metrics)
        table = tables.Table(table.name, table.title, table.columns, tuple(reversed(table.rows)), table.note)
        drawn = figure.Figure()
        known()["judge"].figure(setup, [table], drawn)  # type: ignore[misc]
        (axes,) = drawn.axes
        assert [label.get_text() for label in axes.get_yticklabels()] == order
        assert ("lower is better" in axes.get_xlabel()) == (metrics[0] == "lodds")


def test_plain_texts_are_judged(model: Any) -> None:
    made = mixlens.judge(
        model, ["a good film", ("a bad film", "of the year")], methods="random,attcat", metrics="aopc", progress=False
    )
    assert [(e.text, e.pair) for e in made.setup.examples] == [("a good film", None), ("a bad film", "of the year")]
    with pytest.raises(InputError, match=r"a list of Examples, texts or \(text, pair\) tuples, not of 3"):
        mixlens.judge(model, [3], progress=False)  # type: ignore[list-item]


def test_the_function_is_public_and_its_file_too() -> None:
    import subprocess
    import sys

    code = "import mixlens.judge, mixlens; from mixlens.judge import judge, ranking; print(mixlens.judge is judge)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


def test_fields_of_a_file_can_be_named(model: Any, tmp_path: Path) -> None:
    place = tmp_path / "reviews.csv"
    place.write_text("review,verdict\na good film,1\na bad film,0\n")
    with pytest.raises(InputError, match=r"no field 'text'.*Name them: text_field="):
        mixlens.judge(model, place, methods="alti", progress=False)
    asked: dict[str, Any] = {"methods": "alti", "metrics": "aopc", "progress": False}
    made = mixlens.judge(model, place, text_field="review", label_field="verdict", **asked)
    assert [(e.text, e.info["label"]) for e in made.setup.examples] == [("a good film", "1"), ("a bad film", "0")]
    with pytest.raises(InputError, match="knows its own fields: leave text_field= out"):
        mixlens.judge(model, "sentiment", text_field="review", **asked)
    with pytest.raises(InputError, match="no file or dataset is read: leave "):
        mixlens.judge(model, ["a"], text_field="review", **asked)


def test_better_than_random_is_judged_example_by_example(gap_model: Any) -> None:
    """Always a little better is better, though the two means' intervals overlap; sometimes better is not."""
    noise = np.array([0.0, 5.0, -5.0, 2.0, -2.0, 1.0, 3.0, -3.0, 4.0, -4.0])
    small = 0.1 + 0.01 * np.arange(10)
    values = {
        "random": noise,
        "steady": noise + small,
        "unsteady": noise + np.where(np.arange(10) % 2, 3.0, -2.0) + small,
    }
    _, (table, *_), _ = ranked(gap_model, values, ["aopc"])
    told = dict(zip(table.column("method"), table.column("better than random on"), strict=True))
    assert told == {"random": "-", "steady": "1 of 1", "unsteady": "0 of 1"}
    assert table.column("method")[0] == "unsteady"  # its mean is the highest all the same


def test_all_methods_but_the_slow_ones(gap_model: Any) -> None:
    quick, slow = every_method()
    assert {"alti", "value_zeroing", "attcat", "random", "integrated_gradients"} <= set(quick)
    assert set(slow) == {"hta", "hta_layer", "hta_layer_x_input"}
    assert "null_attention" not in quick + slow


def test_metrics_are_groups_or_names() -> None:
    assert metrics_of(["faithfulness", "aopc", "cue_dot"]) == [*FAITHFULNESS, "cue_dot"]
    with pytest.raises(InputError, match=r"unknown metric 'aopcc'. Did you mean 'aopc'"):
        metrics_of(["aopcc"])
    with pytest.raises(InputError, match="unknown metric 'anisotropy'"):
        metrics_of(["anisotropy"])
    assert "kendall_confidence" in possible()
    assert "online_code" not in possible()


def test_what_cannot_be_judged_is_refused_first(gap_model: Any, model: Any, tmp_path: Path) -> None:
    plain = [Example("a good film", id="1"), Example("a bad film", id="2")]
    out = tmp_path / "out"
    asked: dict[str, Any] = {"progress": False, "out": out, "n": 2}
    with pytest.raises(InputError, match=r"'cue_dot' needs cues, and 2 examples have none"):
        judge(model, plain, methods="alti", metrics="cues", **asked)
    with pytest.raises(InputError, match=r"'rationale_auprc' needs rationale, and 2"):
        judge(model, plain, methods="alti", metrics="rationales", **asked)
    with pytest.raises(InputError, match="'alti' gives every class the same scores"):
        judge(model, plain, methods="alti,attcat", metrics="kendall_confidence", **asked)
    with pytest.raises(InputError, match="'agreement' has no classes"):
        judge(gap_model, "agreement", methods="attcat", metrics="kendall_confidence", **asked)
    with pytest.raises(InputError, match="unknown method 'alty'"):
        judge(model, plain, methods="alty", **asked)
    with pytest.raises(InputError, match="fewer than two words"):
        judge(model, [Example("film", id="1")], methods="alti", **asked)
    assert not out.exists()
    made = judge(model, plain, methods="attcat,cat", metrics="kendall_confidence", progress=False)
    assert [table.name for table in made.tables] == ["others"]
    assert isinstance(made.tables[0].rows[0][4], Interval)


def test_rationales_are_judged_where_every_text_has_them(model: Any) -> None:
    marked = [Example("a very good film", id="1", info={"rationale": ((2, 11),)})]
    made = judge(model, marked, methods="alti", metrics="faithfulness", progress=False)
    assert {"rationale_auprc", "rationale_f1"} <= set(made.setup.options["metrics"])


def test_a_model_without_a_pad_token_is_judged_by_the_rest(gap_model: Any) -> None:
    config = transformers.LlamaConfig(
        vocab_size=len(gap_model.tokenizer),
        **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    )
    config.pad_token_id = None
    torch.manual_seed(0)
    causal = mixlens.load(transformers.LlamaForCausalLM(config).eval(), tokenizer=gap_model.tokenizer)
    some = [Example("the keys to the cabinet", id="1"), Example("the mother washed the mouse", id="2")]
    made = judge(causal, some, methods="random,alti,grad_x_input", progress=False)
    assert "lodds" not in made.setup.options["metrics"]
    assert "aopc" in made.setup.options["metrics"]
    with pytest.raises(InputError, match="'lodds' replaces tokens by the pad token"):
        judge(causal, some, methods="alti", metrics="lodds", progress=False)


def test_the_folder_goes_on_and_the_text_says_what_was_found(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "methods": "random,alti",
        "metrics": "cues",
        "n": 3,
        "progress": False,
        "out": tmp_path / "out",
    }
    first = judge_text("agreement", "agreement", **asked)
    assert (tmp_path / "out" / "summary.csv").is_file()
    assert first.splitlines()[:-1] == judge_text("agreement", "agreement", **asked).splitlines()[:-1]
    assert first.splitlines()[0].startswith("On these 3 texts alti has the highest score in plausibility;")
    assert first.splitlines()[4].split()[:4] == ["rank", "method", "group", "score"]
    assert first.splitlines()[5].split()[:2] == ["1", "alti"]
    assert "Higher is better: cue_dot, cue_average_precision; lower is better: probes_needed." in first


def test_the_list_and_the_text_of_experiments() -> None:
    told = experiment_text(None)
    assert "alti-table2" in told
    assert "vz-probing" in told
    shown = experiment_text(
        "alti-table2", model="sentiment", n=2, methods="alti", options=["keep_special=false"], progress=False
    )
    assert shown.startswith("alti-table2 (Table 2, SST2: correlation with gradients): 2 examples")
    with pytest.raises(InputError, match="key=value"):
        experiment_text("alti-table2", n=2, options=["reference"])
    with pytest.raises(InputError, match="Did you mean 'alti-table2'"):
        experiment_text("alti-tabl2")


@pytest.mark.parametrize("width", [40, 80, 190])
def test_a_wide_table_goes_below_with_its_names_said_again(width: int) -> None:
    from mixlens.runs.experiments import Table

    cell = Interval(0.5, 0.25, 0.75, 3, 0.1)
    names = tuple(f"metric_{i}" for i in range(7))
    table = Table("t", "", ("rank", "method", *names), tuple((i, f"method_{i}", *[cell] * 7) for i in range(3)))
    told = lines(table, width=width, beside=2)
    assert max(map(len, told)) <= width
    assert all(sum(line.count(name) for line in told) == 1 for name in names)
    assert sum(line.startswith("2     method_2  0.500 [0.250, 0.750]") for line in told) == told.count("") + 1
    assert sum(line.count("0.500 [0.250, 0.750]") for line in told) == 21


def test_lines_are_aligned() -> None:
    from mixlens.runs.experiments import Table

    table = Table("t", "", ("a", "long name"), (("x", Interval(0.5, 0.25, 0.75, 3, 0.1)), ("yyy", None), ("z", 0.25)))
    assert lines(table) == ["a    long name", "x    0.500 [0.250, 0.750]", "yyy", "z    0.250"]


# --- work is done once


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """A list with one entry for every call of a function or a method."""
    calls: list[Any] = []
    function = getattr(owner, name)

    def wrapper(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return function(*args, **options)

    monkeypatch.setattr(owner, name, wrapper)
    return calls


@needs_fast
def test_each_text_is_traced_once_and_each_layer_proven_once(gap_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four map methods on two texts: two forward passes, one block for each layer of each text, data drawn once, names parsed
    once."""
    passes: list[Any] = []
    blocks = counted(monkeypatch, Block, "__init__")
    draws = counted(monkeypatch, sys.modules["mixlens.runs.experiments.prepare"], "load")
    options = counted(monkeypatch, sys.modules["mixlens.scoring.asking"], "_option")
    hook = gap_model.hf_model.register_forward_pre_hook(lambda module, args: passes.append(args))
    methods = ["attention", "globenc", "alti", "value_zeroing:rollout=alti"]
    try:
        made = judge(gap_model, "agreement", methods=methods, metrics="cue_dot", n=2, progress=False)
    finally:
        hook.remove()
    assert len([record for record in made.records if record.method != "random"]) == 8
    assert len(passes) == 2
    assert len(blocks) == 2 * gap_model.n_layers
    assert len(draws) == 1
    assert len(options) == 1
