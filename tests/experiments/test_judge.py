"""Which method to trust: ranks, ties, what random scores reach, and what is refused."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from conftest import needs_fast

import mixlens
from mixlens import data, metrics
from mixlens.base import errors
from mixlens.fast import block
from mixlens.metrics import agreement, alignment, arguments, faithfulness, removal_curves, subsets
from mixlens.runs.experiments import command, prepare
from mixlens.runs.judge import ask, board, judge, measure
from mixlens.scoring import asking, removal, targets


@pytest.fixture(scope="module")
def gap_model() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


def test_the_numbers_are_those_of_the_metrics(gap_model: Any) -> None:
    """Attributions explain the target against its foil, and the metrics measure the target against its foil."""
    made = mixlens.judge(gap_model, "agreement", methods="random,alti,attcat", n=2, progress=False)
    found = {(r.example, r.method, r.metric): r.value for r in made.records}
    for example in made.setup.examples:
        trace = gap_model.trace(example)
        pair: dict[str, Any] = {"target": example.target, "foil": example.foil}
        attcat = mixlens.attribute(trace, "attcat", **pair)
        alti = mixlens.attribute(trace, "alti")
        cues = arguments.marks_at(data.cue_tokens(example, trace), len(trace))
        assert found[str(example.id), "attcat", "aopc"] == faithfulness.aopc(trace, attcat, **pair).value
        expected = faithfulness.blank_out_faithfulness(trace, alti, keep_special=False, **pair)
        assert found[str(example.id), "alti", "blank_out_faithfulness"] == expected
        assert found[str(example.id), "alti", "lds"] == subsets.lds(trace, alti, **pair)
        assert found[str(example.id), "alti", "cue_dot"] == pytest.approx(alignment.cue_dot(alti, cues), rel=1e-5)
    assert set(made.setup.options["metrics"]) == {*ask.FAITHFULNESS, *ask.CUES}  # this data has cues
    table = judge.ranking(made)
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
    made = mixlens.judge(model, "sentiment", methods="grad_x_input", metrics="aopc", n=1, progress=False)
    trace = model.trace(made.setup.examples[0])
    predicted = int(trace.logits.argmax())
    asked = measure.explained(made.setup.examples[0], trace, "measured")
    assert asked == {"target": "predicted", "foil": 1 - predicted, "score": "logit"}
    contrast, logs = (
        mixlens.attribute(trace, "grad_x_input", target=predicted, foil=foil, score=score)
        for foil, score in ((1 - predicted, "logit"), (None, "log_probability"))
    )
    (record,) = [r for r in made.records if (r.method, r.metric) == ("grad_x_input", "aopc")]
    assert record.value == faithfulness.aopc(trace, contrast, foil=1 - predicted).value
    assert record.value == pytest.approx(
        faithfulness.aopc(trace, logs).value, abs=1e-6
    )  # float32; two classes: p among two is p


def test_the_logit_alone_can_be_explained_and_the_same_is_measured(gap_model: Any) -> None:
    """`explains="logit"`: no foil in the scores; the metrics measure the target against its foil all the same."""
    asked: dict[str, Any] = {"metrics": "aopc,blank_out_faithfulness", "n": 1, "progress": False}
    made = mixlens.judge(gap_model, "agreement", methods="random,attcat", explains="logit", **asked)
    (example,) = made.setup.examples
    trace = gap_model.trace(example)
    pair: dict[str, Any] = {"target": example.target, "foil": example.foil}
    attcat, contrast = (
        mixlens.attribute(trace, "attcat", **question) for question in ({"target": example.target}, pair)
    )
    assert not torch.allclose(attcat.scores, contrast.scores)
    found = {(r.method, r.metric): r.value for r in made.records}
    assert found["attcat", "aopc"] == faithfulness.aopc(trace, attcat, **pair).value
    expected = faithfulness.blank_out_faithfulness(trace, attcat, keep_special=False, **pair)
    assert found["attcat", "blank_out_faithfulness"] == expected
    measured = mixlens.judge(gap_model, "agreement", methods="random,alti", **asked)
    other = {(r.method, r.metric): r.value for r in measured.records}
    assert [found["random", name] for name in ("aopc", "blank_out_faithfulness")] == [
        other["random", name] for name in ("aopc", "blank_out_faithfulness")
    ]


def test_blank_out_is_not_judged_by_itself(gap_model: Any) -> None:
    asked: dict[str, Any] = {"methods": "blank_out,alti,random", "metrics": "aopc,blank_out_faithfulness", "n": 6}
    made = mixlens.judge(gap_model, "agreement", progress=False, **asked)
    table = made.tables[0]
    assert table.row("blank_out")["blank_out_faithfulness"] is None
    assert table.row("alti")["blank_out_faithfulness"] is not None
    assert "blank_out has no blank_out_faithfulness: it would be compared with what it is made of." in table.note
    found = board.boards_of(made.setup, made.records)["ranking"]
    both = found.scores("alti", ["removing"]) - found.scores("blank_out", ["removing"])  # compared by what judges both
    pair = ("alti", "blank_out") if ("alti", "blank_out") in found.differences else ("blank_out", "alti")
    sign = 1 if pair[0] == "alti" else -1
    assert found.differences[pair].mean == pytest.approx(sign * both.mean())


def test_what_is_blank_out_under_another_name_is_not_judged_by_it(gap_model: Any) -> None:
    """The path of one token alone ends in blanking it. The cell does not depend on whether blank_out is judged beside
    it."""
    asked: dict[str, Any] = {"metrics": "aopc,blank_out_faithfulness", "n": 2, "progress": False}
    for others in ("", ",blank_out"):
        made = mixlens.judge(
            gap_model, "agreement", methods=f"random,attcat,sequential_integrated_gradients{others}", **asked
        )
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
    made = mixlens.judge(
        gap_model, "agreement", methods="alti,attention,attention_rollout", metrics="aopc", n=3, progress=False
    )
    assert sorted(made.tables[0].column("method")) == ["alti", "attention = attention_rollout"]
    assert "joined by = have the same scores on every text" in made.tables[0].note
    values = {m: [r.value for r in made.records if r.method == m] for m in ("attention", "attention_rollout")}
    assert values["attention"] == values["attention_rollout"]  # to the last bit: rounding moves no token


def test_one_text_has_no_intervals_and_says_so() -> None:
    told = judge.judge_text(
        "agreement", None, text="The keys to the cabinet [MASK] rusty.", methods="alti,attcat", metrics="aopc"
    )
    assert told.splitlines()[0].endswith(
        "has the highest score in faithfulness; so few texts tell no two methods apart."
    )
    assert "One text has no intervals" in told
    assert "[" not in told.replace("[MASK]", "")


def test_where_signs_matter_both_readings_are_shown(gap_model: Any) -> None:
    """The default reading and the other one, of methods for which they differ text by text."""
    made = mixlens.judge(
        gap_model, "agreement", methods="attcat,alti,grad_x_input", metrics="aopc,cues", n=20, progress=False
    )
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
    forced = mixlens.judge(
        gap_model, "agreement", methods="attcat", metrics="aopc", n=2, ranking="magnitude", progress=False
    )
    both = {r.example: r.value for r in made.records if (r.method, r.metric) == ("attcat", "aopc:ranking=magnitude")}
    for record in forced.records:
        if (record.method, record.metric) == ("attcat", "aopc"):
            assert record.value == both[record.example]


def test_random_is_drawn_several_times(gap_model: Any) -> None:
    """More draws: a steadier reference. The mean over draws, and the spread of one."""
    asked: dict[str, Any] = {"methods": "random", "metrics": "cue_dot", "n": 4, "progress": False}
    few, many = (mixlens.judge(gap_model, "agreement", draws=draws, **asked) for draws in (1, 400))
    assert {r.info["spread"] for r in few.records} == {0.0}
    for record, example in zip(many.records, many.setup.examples, strict=True):
        trace = gap_model.trace(example)
        cues = arguments.marks_at(data.cue_tokens(example, trace), len(trace))
        share = cues.sum() / len(trace)  # the expected share of uniform scores
        assert record.value == pytest.approx(share, abs=4 * record.info["spread"] / 20)


@pytest.mark.parametrize("unit", ["word", "sentence"])
def test_random_scores_favour_no_unit_by_its_length(model: Any, unit: str) -> None:
    """Each unit goes first equally often. 2000 draws: within 4 standard errors of its share."""
    trace = model.trace("The unfilmable film is long and dull and old. Good. Not bad at all!")
    target = targets.resolve(trace)
    units = removal.removable_units(trace, target, unit)
    assert len({len(one) for one in units}) > 1
    generator, draws = np.random.default_rng(0), 2000
    first = [
        faithfulness.course_of(trace, measure.random_scores(trace, target, unit, generator), unit=unit).order[0]
        for _ in range(draws)
    ]
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
        made = mixlens.judge(model, [text], methods="random", metrics="aopc", unit=unit, progress=False)
        case = measure.Case(made.setup, made.setup.examples[0])
        for metric in ("lds", "aopc", "blank_out_faithfulness", "cue_dot"):
            drawn = case.draws(ask.parse_metric(metric))
            assert len(drawn) == made.setup.options["draws"]
            alike = [len({scores[i] for i in word}) == 1 for scores in drawn]
            assert alike == [metric in shared] * len(drawn), (unit, metric)
    assert (
        case.draws(ask.parse_metric("aopc:unit=token"))[0][word[0]] != case.draws(ask.parse_metric("aopc"))[0][word[0]]
    )


def test_right_and_wrong_predictions_are_shown_apart(gap_model: Any) -> None:
    """A target that the model does not prefer to its foil counts as a wrong prediction."""
    some = list(data.load("agreement", n=6, seed=0))
    wrong = [replace(e, target=e.foil, foil=e.target) for e in some[:3]]
    made = mixlens.judge(gap_model, [*wrong, *some[3:]], methods="alti,attcat", metrics="aopc", progress=False)
    table = next(table for table in made.tables if table.name == "correctness")
    assert table.columns == ("method", "right (3 texts)", "wrong (3 texts)", "right less wrong")
    found = board.boards_of(made.setup, made.records)["ranking"]
    assert table.row("alti")["wrong (3 texts)"].mean == pytest.approx(found.scores("alti")[:3].mean())
    assert table.row("alti")["right less wrong"] is None  # 3 texts have no interval


def test_labels_that_are_ids_of_classes_are_taken_as_such(model: Any, tmp_path: Path) -> None:
    """Of all texts at once: where one label is no id, none is. What was done is said in one line."""
    texts = ["A good and fine film.", "A dull and bad film.", "A fine story.", "The plot was bad."]

    def told(labels: Sequence[Any], **options: Any) -> tuple[Any, str]:
        place = tmp_path / "texts.jsonl"
        place.write_text(
            "".join(json.dumps({"text": t, "label": label}) + "\n" for t, label in zip(texts, labels, strict=True))
        )
        asked: dict[str, Any] = {"methods": "alti,random", "metrics": "aopc", "progress": False, **options}
        outcome = mixlens.judge(model, place, **asked)
        rights = {record.example: record.info["right"] for record in outcome.records}
        return list(rights.values()), " ".join(judge.judge_text("sentiment", str(place), **asked).split())

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
    made = mixlens.judge(
        model, "sentiment", methods=",".join(sorted(methods)), metrics="naopc", n=3, draws=3, progress=False
    )
    for example in made.setup.examples:
        values = {record.method: record.value for record in made.records if record.example == str(example.id)}
        assert values.keys() == methods
        assert min(values.values()) >= 0
        assert max(values.values()) <= 1
        assert len({*values.values()} - {0.0, 1.0}) > 1  # one scale for all methods of a text


def test_metrics_of_a_group_that_are_left_out_are_named(gap_model: Any) -> None:
    asked: dict[str, Any] = {"methods": "alti", "progress": False, "text": "The plot was not dull."}
    lack = "infilling needs a masked language model with this vocabulary, --infill NAME"
    line = f"aopc:replacement=infill is left out: {lack}."
    assert line in judge.judge_text("sentiment", None, metrics="fillers", **asked).splitlines()
    assert "left out" not in judge.judge_text("sentiment", None, metrics="aopc:replacement=pad,aopc", **asked)
    asked["text"] = "The keys to the cabinet [MASK] rusty."
    assert "left out" not in judge.judge_text("agreement", None, metrics="fillers", **asked)


def test_fillers_are_compared(gap_model: Any) -> None:
    made = mixlens.judge(gap_model, "agreement", methods="alti,attcat,random", metrics="fillers", n=3, progress=False)
    ways = ("delete", "pad", "mask", "unk", "infill")
    assert made.setup.options["metrics"] == [f"aopc:replacement={way}" for way in ways]
    table = next(table for table in made.tables if table.name == "fillers")
    assert table.column("metric") == made.setup.options["metrics"]
    assert table.column(table.columns[-1])[0] == 1.0  # with itself


def test_another_model_fills_gaps_where_the_judged_one_cannot(gap_model: Any, model: Any) -> None:
    some = ["the mother is here", "the keys are old"]
    made = mixlens.judge(model, some, methods="alti,attcat", metrics="fillers", progress=False)
    assert "aopc:replacement=infill" not in made.setup.options["metrics"]  # of a group, what can be asked
    with pytest.raises(errors.InputError, match="their vocabularies differ"):
        mixlens.judge(model, some, methods="alti", metrics="aopc:replacement=infill", infill=gap_model, progress=False)


def test_metrics_take_options_and_whole_words(gap_model: Any) -> None:
    asked: dict[str, Any] = {"methods": "alti", "n": 1, "progress": False}
    words = mixlens.judge(gap_model, "agreement", metrics="aopc", unit="word", **asked)
    named = mixlens.judge(gap_model, "agreement", metrics="aopc:unit=word", **asked)
    first, second = ([r.value for r in made.records if r.metric.startswith("aopc")] for made in (words, named))
    assert first == second


def test_plain_texts_are_judged(model: Any) -> None:
    made = mixlens.judge(
        model, ["a good film", ("a bad film", "of the year")], methods="random,attcat", metrics="aopc", progress=False
    )
    assert [(e.text, e.pair) for e in made.setup.examples] == [("a good film", None), ("a bad film", "of the year")]


def test_fields_of_a_file_can_be_named(model: Any, tmp_path: Path) -> None:
    place = tmp_path / "reviews.csv"
    place.write_text("review,verdict\na good film,1\na bad film,0\n")
    with pytest.raises(errors.InputError, match=r"no field 'text'.*Name them: text_field="):
        mixlens.judge(model, place, methods="alti", progress=False)
    asked: dict[str, Any] = {"methods": "alti", "metrics": "aopc", "progress": False}
    made = mixlens.judge(model, place, text_field="review", label_field="verdict", **asked)
    assert [(e.text, e.info["label"]) for e in made.setup.examples] == [("a good film", "1"), ("a bad film", "0")]


FILMS = ("a good film", "a bad film")
MARKED = mixlens.Example("a good film", cues=((2, 6),))


@pytest.mark.parametrize(
    ("given", "asked", "told"),
    [
        (
            FILMS,
            {"metrics": "cues"},
            "'cue_dot' needs cues, and 2 examples have none (1 ...). Leave it out, or take data that",
        ),
        ([MARKED, "a film"], {"metrics": "cues"}, "'cue_dot' needs cues, and 1 examples have none (2 ...)."),
        (FILMS, {"metrics": "rationales"}, "'rationale_auprc' needs rationale, and 2"),
        (
            FILMS[:1],
            {"metrics": "rationale_f1"},
            "'rationale_f1' needs rationale, and the text has none. Leave it out, or",
        ),
        (
            FILMS,
            {"metrics": "kendall_confidence"},
            "compares classes, and 'alti' gives every class the same scores. Leave",
        ),
        (
            "agreement",
            {"methods": "attcat", "metrics": "kendall_confidence"},
            "classes, and 'agreement' has no classes. Leave",
        ),
        (FILMS, {"methods": "alty"}, "unknown method 'alty'"),
        (["film"], {}, "the text has fewer than two words"),
        (
            FILMS,
            {"metrics": "aopc:replacement=infill"},
            "needs a masked language model with this vocabulary: infill=NAME. Or",
        ),
        (FILMS, {"metrics": "aopc:replace=mask"}, "has no option 'replace'"),
        (FILMS, {"ranking": "absolut"}, "unknown ranking 'absolut'. "),
        (FILMS, {"explains": "loggit"}, "unknown explains 'loggit'. "),
        (FILMS, {"unit": "line"}, "unknown unit 'line'. "),
        (FILMS, {"draws": 0}, "draws is a number of random rankings, at least 1, not 0."),
        (FILMS, {"draws": 1.5}, "draws is a number of random rankings, at least 1, not 1.5."),
        ([3], {}, "a list of Examples, texts or (text, pair) tuples, not of 3"),
        ("sentiment", {"text_field": "review"}, "knows its own fields: leave text_field= out"),
        (FILMS, {"text_field": "review"}, "no file or dataset is read: leave "),
    ],
)
def test_what_cannot_be_judged_is_refused_first(given: Any, asked: Any, told: str, tmp_path: Path) -> None:
    name = "agreement" if given == "agreement" else "sentiment"
    options = {"methods": "alti", "metrics": "aopc", "n": 2, **asked}
    with pytest.raises(errors.InputError, match=re.escape(told)):
        mixlens.judge(name, given, progress=False, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_texts_must_be_given(model: Any) -> None:
    with pytest.raises(errors.InputError, match="DATA or --text, not both"):
        judge.judge_text("agreement", "agreement", text="a", methods="alti", metrics="aopc")
    for name, meant in (
        ("bert-base-uncased", r"'\.\.\.'\)\.$"),
        ("sentimen", "Did you mean 'sentiment', which has sentences of its"),
    ):
        with pytest.raises(errors.InputError, match=f"no texts were given.*{meant}"):
            mixlens.judge(name, methods="alti")


def test_metrics_that_compare_classes_have_a_table_of_their_own(model: Any) -> None:
    """The attributions of the classes that are not predicted are made by the same method."""
    made = mixlens.judge(model, FILMS, methods="attcat,cat", metrics="kendall_confidence", progress=False)
    assert [table.name for table in made.tables] == ["others"]
    assert isinstance(made.tables[0].rows[0][4], metrics.Interval)
    trace = model.trace(FILMS[0])
    predicted = int(trace.logits.argmax())
    asked = measure.explained(made.setup.examples[0], trace, "measured")
    own = mixlens.attribute(trace, "attcat", **asked)
    other = mixlens.attribute(trace, "attcat", target=1 - predicted)
    value = next(r.value for r in made.records if (r.example, r.method) == ("1", "attcat"))
    assert value == agreement.kendall_confidence(own, [other], variant="scores")


def test_rationales_are_judged_where_every_text_has_them(model: Any) -> None:
    marked = [mixlens.Example("a very good film", id="1", info={"rationale": ((2, 11),)})]
    made = mixlens.judge(model, marked, methods="alti", metrics="faithfulness", progress=False)
    assert {"rationale_auprc", "rationale_f1"} <= set(made.setup.options["metrics"])


def test_a_model_without_a_pad_token_is_judged_by_the_rest(gap_model: Any) -> None:
    config = transformers.LlamaConfig(
        vocab_size=len(gap_model.tokenizer),
        **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    )
    config.pad_token_id = None
    torch.manual_seed(0)
    causal = mixlens.load(transformers.LlamaForCausalLM(config).eval(), tokenizer=gap_model.tokenizer)
    some = [mixlens.Example("the keys to the cabinet", id="1"), mixlens.Example("the mother washed the mouse", id="2")]
    made = mixlens.judge(causal, some, methods="random,alti,grad_x_input", progress=False)
    assert "lodds" not in made.setup.options["metrics"]
    assert "aopc" in made.setup.options["metrics"]
    with pytest.raises(errors.InputError, match="'lodds' replaces tokens by the pad token"):
        mixlens.judge(causal, some, methods="alti", metrics="lodds", progress=False)


def test_the_folder_goes_on_and_the_text_says_what_was_found(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "methods": "random,alti",
        "metrics": "cues",
        "n": 3,
        "progress": False,
        "out": tmp_path / "out",
    }
    first = judge.judge_text("agreement", "agreement", **asked)
    assert (tmp_path / "out" / "summary.csv").is_file()
    assert first.splitlines()[:-1] == judge.judge_text("agreement", "agreement", **asked).splitlines()[:-1]
    assert first.splitlines()[0].startswith("On these 3 texts alti has the highest score in plausibility;")
    assert first.splitlines()[4].split()[:4] == ["rank", "method", "group", "score"]
    assert first.splitlines()[5].split()[:2] == ["1", "alti"]
    assert "Higher is better: cue_dot, cue_average_precision; lower is better: probes_needed." in first


# --- one text -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(model: Any) -> Any:
    """A classifier of three classes with random weights."""
    config = copy.deepcopy(model.hf_model.config)
    config.num_labels = 3
    torch.manual_seed(0)
    return mixlens.load(type(model.hf_model)(config).eval(), tokenizer=model.tokenizer)


def test_what_is_explained_of_a_text(model: Any, three: Any, gap_model: Any) -> None:
    text, gap = "a good film", "the keys [MASK] old"
    predicted = int(model.trace(text).logits.argmax())
    logs = {"score": "log_probability", "foil": None}

    def of(example: mixlens.Example, judged: Any = model, explains: str = "measured") -> dict[str, Any]:
        return measure.explained(example, judged.trace(example.text), explains)

    assert of(mixlens.Example(text)) == {"target": "predicted", "foil": 1 - predicted, "score": "logit"}
    assert of(mixlens.Example(text), three) == {"target": "predicted", **logs}
    assert of(mixlens.Example(text, foil=0), three) == {"target": "predicted", **logs}
    assert of(mixlens.Example(text), model, "logit") == {"target": "predicted", "foil": None, "score": "logit"}
    assert of(mixlens.Example(text, target=0)) == {"target": 0, "foil": 1, "score": "logit"}
    assert of(mixlens.Example(text, target=2, foil=0), three) == {"target": 2, "foil": 0, "score": "logit"}
    words = mixlens.Example(gap, target="are", foil="is")
    assert of(words, gap_model) == {"target": "are", "foil": "is", "score": "logit"}
    assert of(words, gap_model, "logit") == {"target": "are", "foil": None, "score": "logit"}


def test_whether_a_model_is_right(model: Any, gap_model: Any) -> None:
    """By the class that a label names; of a gap, by its target: the most likely word, or above its foil."""
    classes = {"positive": 1, "negative": 0}
    for label, right in (("positive", True), ("negative", False), ("unheard of", None), (None, None)):
        example = mixlens.Example("a good film", info={"label": label})
        assert ask.classes_of([example], model) == ({label: classes[label]} if label in classes else {})
        assert measure.is_right(example, model.trace(example), classes) is right
    text = "the keys to the cabinet [MASK] old ."
    trace = gap_model.trace(text)
    first, second = (word for word, _ in trace.prediction(2))
    for target, foil, right in (
        *(
            (first, None, True),
            (second, None, False),
            (first, second, True),
            (second, first, False),
            (None, None, None),
        ),
    ):
        assert measure.is_right(mixlens.Example(text, target=target, foil=foil), trace, {}) is right


def test_scores_that_differ_by_rounding_or_scale_are_twins() -> None:
    rows = {
        **{"first": (1.0, 2.0, -4.0), "scaled": (2.0, 4.00001, -8.0), "mirrored": (-1.0, -2.0, 4.0)},
        **{"other": (1.0, 2.1, -4.0), "zero": (0.0, 0.0, 0.0)},
    }
    made = {name: mixlens.Attribution(torch.tensor(row), ("a", "b", "c"), "made up") for name, row in rows.items()}
    assert measure.twins_of(made) == {name: "first" if name == "scaled" else name for name in rows}


def test_options_of_a_metric_in_a_run(model: Any) -> None:
    """What is written, then the question, the unit and the ranking of the run, as each metric calls them."""

    def options(metric: str, **run: Any) -> dict[str, Any]:
        made = prepare.prepared(
            "judge",
            model=model,
            data=["a good film"],
            n=None,
            methods=["alti"],
            seed=0,
            labels=None,
            leave_out=False,
            options=run,
        )
        case = measure.Case(made, made.examples[0])
        assert case.options(ask.parse_metric("lodds")).items() >= case.question.items()
        return {name: one for name, one in case.options(ask.parse_metric(metric)).items() if name not in case.question}

    assert options("aopc") == {"unit": "token"}
    assert options("aopc:replacement=mask:unit=word") == {"unit": "word", "replacement": "mask"}
    assert (options("lds"), options("lds", unit="sentence")) == ({}, {"unit": "sentence"})
    assert options("blank_out_faithfulness") == {"unit": "token", "keep_special": False}
    assert options("aopc", ranking="magnitude") == {"unit": "token", "ranking": "magnitude"}
    assert options("cue_dot", ranking="magnitude") == {"signs": "absolute"}
    assert options("cue_dot", ranking="signed") == {"signs": "positive"}


def test_no_method_is_judged_by_what_it_is_made_of() -> None:
    """blank_out by blanking, and the methods whose file draws texts with many units taken away by the metric that
    does."""
    files = (Path(mixlens.__file__).parent / "methods").glob("[!_]*.py")
    drawing = [
        path.stem for path in files if re.search(r"import .*\b(game_of|random_subsets)\b", path.read_text("utf-8"))
    ]
    assert len(drawing) == 3
    circular = {(method, "lds") for method in drawing} | {("blank_out", "blank_out_faithfulness")}
    for method in ("alti", "blank_out", *drawing):
        for metric in ("aopc", "lds", "blank_out_faithfulness"):
            found = measure.is_circular(asking.parse_method(method), ask.parse_metric(metric))
            assert found is ((method, metric) in circular)


# --- what is printed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        ("agreement", {}, "agreement"),
        ("texts.csv", {}, "texts.csv"),
        ("texts.csv", {"text_field": "words"}, "examples given in Python"),
        ("examples", {}, "examples given in Python"),
    ],
)
def test_a_manifest_names_the_data_as_it_was_named(
    source: str, options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "texts.csv").write_text("text,words\nThe film was good.,The plot was dull.\n")
    texts: dict[str, Any] = {"agreement": "agreement", "texts.csv": tmp_path / "texts.csv"}
    given = texts.get(source) or [mixlens.Example("The film was good.")]
    model = "agreement" if source == "agreement" else "sentiment"
    asked: dict[str, Any] = {"methods": "random,alti", "metrics": "aopc", "n": 1, "progress": False, **options}
    made = mixlens.judge(model, given, out=tmp_path / "out", **asked)
    assert json.loads((tmp_path / "out/manifest.json").read_text())["data"] == expected
    spent = {record.method: record.info["seconds"] for record in made.records}
    table = judge.ranking(made)
    assert dict(zip(table.column("method"), table.column("seconds"), strict=True)) == judge.seconds(made) == spent


def test_one_text_is_told_to_be_no_ranking() -> None:
    asked: dict[str, Any] = {"methods": "random,alti,attcat", "metrics": "aopc", "width": 80, "full": False}
    told = judge.judge_text("sentiment", None, text="The plot was not dull.", progress=False, **asked)
    assert "One text: the order below is not a ranking" in told
    assert not any(line.startswith("rank ") for line in told.splitlines())
    assert max(map(len, told.splitlines())) <= 80
    several = judge.judge_text("sentiment", None, n=2, progress=False, **asked)
    assert "One text" not in several
    assert any(line.startswith("rank ") for line in several.splitlines())


def test_slow_methods_are_named_where_all_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "every_method", lambda: ([], ["slow_one", "slow_two"]))
    monkeypatch.setattr(ask, "every_method", lambda: (["random", "alti"], []))
    asked: dict[str, Any] = {"metrics": "aopc", "width": 80, "n": 2, "progress": False}
    told = judge.judge_text("sentiment", None, methods="all", **asked)
    assert "Left out, minutes for one text of a large model: slow_one, slow_two." in told
    assert max(map(len, told.splitlines())) <= 80
    assert told.startswith("On these 2 texts ")
    assert re.search(r"\n[\d.]+ s$", told)
    assert "Left out" not in judge.judge_text("sentiment", None, methods="alti", **asked)


def test_the_list_and_the_text_of_experiments() -> None:
    told = command.experiment_text(None)
    assert "alti-table2" in told
    assert "vz-probing" in told
    asked: dict[str, Any] = {"model": "sentiment", "n": 2, "methods": "alti", "progress": False}
    shown = command.experiment_text("alti-table2", options=["keep_special=false"], **asked)
    assert shown.startswith("alti-table2 (Table 2, SST2: correlation with gradients): 2 examples")
    for name, options, refusal in (
        ("alti-table2", ["reference"], "key=value"),
        ("alti-tabl2", [], "mean 'alti-table2'"),
    ):
        with pytest.raises(errors.InputError, match=refusal):
            command.experiment_text(name, n=2, options=options)


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
    """Four map methods on two texts: two forward passes, one block for each layer of each text, data drawn once."""
    passes: list[Any] = []
    blocks = counted(monkeypatch, block.Block, "__init__")
    draws = counted(monkeypatch, sys.modules["mixlens.runs.experiments.prepare"], "load")
    hook = gap_model.hf_model.register_forward_pre_hook(lambda module, args: passes.append(args))
    methods = ["attention", "globenc", "alti", "value_zeroing:rollout=alti"]
    try:
        made = mixlens.judge(gap_model, "agreement", methods=methods, metrics="cue_dot", n=2, progress=False)
    finally:
        hook.remove()
    assert len([record for record in made.records if record.method != "random"]) == 8
    assert len(passes) == 2
    assert len(blocks) == 2 * gap_model.n_layers
    assert len(draws) == 1
