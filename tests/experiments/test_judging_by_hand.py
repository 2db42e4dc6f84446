"""Claims, the lines of a ranking, and the judgement of one text, from values and models made by hand."""

from __future__ import annotations

import math
import re
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.base.errors import InputError
from mixlens.metrics import Interval, mean_with_interval
from mixlens.metrics.comparisons import Difference
from mixlens.runs.experiments import claims
from mixlens.runs.experiments.claims import Claim, Published, Verdict
from mixlens.runs.experiments.tables import Table
from mixlens.runs.judge import judge, judging, sanity
from mixlens.runs.judge.judged_metrics import parse_metric
from mixlens.scoring.asking import parse_method
from mixlens.types import Attribution, Example, Record, Trace

NAN = math.nan
RISE = {str(i): float(i) for i in range(8)}


def plus(number: float, scale: float = 1.0) -> dict[str, float]:
    return {name: scale * value + number for name, value in RISE.items()}


def refused(call: Any, *given: Any, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        call(*given, **options)
    return str(error.value)


# --- claims ---------------------------------------------------------------------------------------------------------------


def test_differences_as_a_verdict_shows_them() -> None:
    shown = {
        "a": Difference(0.5, 0.25, 0.75, 9, 0.01, 5),
        "b": Difference(-0.5, -0.75, -0.25, 9, 0.01, 5),
        "open": Difference(0.5, -math.inf, math.inf, 3, 0.5, 4),
        "many": Difference(0.1, -0.2, 0.4, 9, 0.5, 1234),
        "few": Difference(0.1, -0.2, 0.4, 9, 0.5, 9),
        "none": Difference(0.0, -0.2, 0.2, 9, 1.0, None),
    }
    assert claims._verdict({"a": shown["a"]}, 1.0) == Verdict("same", "a +0.500 [+0.250, +0.750]")
    assert claims._verdict({"a": shown["a"]}, -1.0) == Verdict("same", "a -0.500 [-0.750, -0.250]")
    against = claims._verdict({"a": shown["a"], "b": shown["b"], "none": shown["none"]}, 1.0)
    assert (against.word, against.reason) == ("different", "the other way round: b")
    undecided = claims._verdict({name: shown[name] for name in ("a", "open", "many", "few", "none")}, 1.0)
    assert undecided.word == "not told apart"
    assert undecided.ours == (
        "a +0.500 [+0.250, +0.750]; open +0.500 (no interval from 3 examples); many +0.100 [-0.200, +0.400]; "
        "few +0.100 [-0.200, +0.400]; none +0.000 [-0.200, +0.200]"
    )
    assert undecided.reason == (
        "open: about 4 examples would tell, here 3; many: about 1,234 examples would tell, here 9; "
        "few: 9 examples are too few for all pairs at once; none: no number of examples would tell"
    )
    assert (undecided.text, claims._verdict({"a": shown["a"]}, 1.0).text) == (
        f"not told apart ({undecided.reason})",
        "same",
    )


def test_orders_that_cannot_be_judged() -> None:
    def told(values: Any, pairs: Any) -> tuple[str, str, str]:
        one = claims.order(values, pairs)
        return one.word, one.ours, one.reason

    assert told({}, []) == ("not comparable", "-", "nothing of what the claim compares was run")
    assert told({"a": RISE, "b": {}}, [("a", "b"), ("a", "c")]) == ("not comparable", "-", "not run: b, c")
    assert (
        told({"a": {"1": 1.0, "2": 2.0}, "b": {"1": 1.0}}, [("a", "b")])[2]
        == "fewer than two examples have all these values"
    )
    assert told({"a": {"1": 1.0, "2": 2.0}, "b": {"2": 1.0, "1": 0.0}}, [("a", "b")])[0] == "same"  # 1 - 0 and 2 - 1


def test_bounds_and_layers() -> None:
    one = claims.positive({"x": plus(3)}, bound=2.5)
    assert (one.word, one.ours.split(" [")[0], "bound" in one.ours) == ("same", "x - 2.5 +4.000", False)
    assert claims.positive({"x": plus(3)}).ours.startswith("x +6.500 [")
    inside = {"p": Interval(0.5, 0.25, 0.75, 9, 0.1), "q": Interval(0.5, 0.3, 1.0, 9, 0.1)}
    shown = "p 0.500 [0.250, 0.750]; q 0.500 [0.300, 1.000]"
    assert claims.bounded(inside, low=0.25, high=1.0) == Verdict("same", shown)
    assert claims.bounded(inside, low=0.26) == Verdict("not told apart", shown, "an interval holds the bound")
    assert claims.bounded(inside, high=0.99).word == "not told apart"
    assert claims.bounded(inside, low=0.8) == Verdict("different", shown, "outside: p")
    assert claims.bounded(inside, high=0.2) == Verdict("different", shown, "outside: p, q")
    assert claims.bounded(inside, low=0.75).word == "not told apart"
    assert claims.bounded(inside, high=0.25).reason == "outside: q"
    words = {"1": "same", "2": "same", "3": "same", "4": "different"}
    assert claims.most(words) == Verdict("same", "same: 1, 2, 3; different: 4")
    assert claims.most({**words, "5": "different"}) == Verdict(
        "different", "same: 1, 2, 3; different: 4, 5", "the other way round in 2 of 5"
    )
    bounded = claims.most({**words, "5": "different"}, against="not beyond the bound")
    assert bounded.reason == "not beyond the bound in 2 of 5"
    assert "every layer shows of each layer the pair that speaks least for it" in claims.RULES
    assert claims.most({**words, "5": "not told apart"}) == Verdict(
        "not told apart", "same: 1, 2, 3; different: 4; not told apart: 5", "it holds in 3 of 5"
    )
    assert claims.most({}) == Verdict("not comparable", "-", "no layer has a value")


def test_claims_about_every_layer() -> None:
    wave = {name: 3 + math.sin(5 * value) for name, value in RISE.items()}
    layers = {"1": {"a": wave, "b": dict.fromkeys(RISE, 0.0), "c": dict.fromkeys(RISE, 1.0)}}
    layers["2"] = {"a": dict.fromkeys(RISE, 0.0), "b": wave, "c": dict.fromkeys(RISE, -9.0)}
    pairs = [("a", "b"), ("a", "c")]
    both = claims.in_all(layers, pairs)
    assert both.word == "different"
    assert both.reason == "the other way round: 2, a - b"
    assert both.ours.startswith("1, a - c +")
    assert "; 2, a - b -" in both.ours
    assert claims.in_most(layers, pairs).ours == "same: 1; different: 2"
    assert claims.in_most(layers, pairs).word == "different"
    assert claims.in_most({"1": layers["1"]}, pairs) == Verdict("same", "same: 1")
    assert claims.in_all({"1": {"a": wave}}, pairs).reason == "not run: 1, b, 1, c"
    assert claims.in_most({"1": {"a": wave}}, pairs).reason == "not run: 1, b, 1, c"


def test_methods_of_a_claim() -> None:
    assert claims.short_names(["a:x=1", "b:y=2", "b:y=3", "a:x=1"]) == {
        "a:x=1": "a",
        "b:y=2": "b:y=2",
        "b:y=3": "b:y=3",
    }
    records = [Record(name, "a:x=1", "m", value, {"kept": True}) for name, value in plus(9).items()]
    records += [Record(name, "b", "m", math.sin(value), {"kept": True}) for name, value in RISE.items()]
    records += [Record(name, "b", "m", 100.0, {"kept": False}) for name in RISE] + [
        Record("0", "a:x=1", "other", -99.0)
    ]
    assert claims.values_of(records, "b", "m")["0"] == 50.0
    assert claims.values_of(records, "b", "m", lambda record: record.info["kept"])["0"] == 0.0
    setup = SimpleNamespace(seed=3)
    kept = claims.above("a:x=1", ["b"], "m", where=lambda record: record.info["kept"])(setup, records, [])
    assert (kept.word, kept.ours.startswith("a - b +")) == ("same", True)
    assert claims.above(["a:x=1"], ["b"], "m")(setup, records, []).word == "different"
    assert claims.above(["a:x=1"], ["b"], "m", lower=True)(setup, records, []).word == "same"


def test_tables_beside_the_papers() -> None:
    interval = Interval(0.5, 0.25, 0.75, 9, 0.125)
    table = Table("main", "t", ("method", "layer", "score"), (("a", 1, interval), ("b", 2, 0.5)))
    first = Published("Table 1", "BERT", "score", {"a": "0.61", "c": "0.7"}, std=True)
    second = Published("Table 2", "GPT", "score", {"b": "0.2"})
    other = Published("Table 3", "X", "score", {("a", 1): "9"}, table="main", keys=2, absent="left out")
    made = claims.beside([first, second], [table])
    assert made == [
        Table(
            "paper-main-score",
            "score: ours beside the paper's",
            ("method", "score, here", "BERT (Table 1)", "GPT (Table 2)"),
            (("a", "0.50 ± 0.12", "0.61", ""), ("b", 0.5, "", "0.2"), ("c", "not run", "0.7", "")),
        )
    ]
    assert claims.beside([other], [table])[0].rows == (("a", 1, interval, "9"), ("b", 2, 0.5, ""))
    assert (
        claims.beside([Published("T", "X", "none", {}), Published("T", "X", "score", {}, table="away")], [table]) == []
    )


def test_the_table_of_claims() -> None:
    def check(setup: Any, records: Any, tables: Any) -> Verdict:
        return Verdict("same", f"{len(records)} {len(tables)}", setup.data)

    some = [
        Claim("Table 1", "a is best", "0.5", check, {"y": "Table 9", "z": None}),
        Claim("Table 2", "b is worst", "0.1", check),
    ]

    def rows(data: str) -> Any:
        made = claims.judged_claims(some, SimpleNamespace(data=data, options={}, models=[0]), [1, 2], [1])  # type: ignore[list-item]
        assert made[0].columns == ("the paper says", "where", "paper", "here", "verdict")
        assert (made[0].name, made[0].note) == ("claims", claims.RULES)
        return made[0].rows

    second = ("b is worst", "Table 2", "0.1", "2 1")
    assert rows("x") == (("a is best", "Table 1", "0.5", "2 1", "same (x)"), (*second, "same (x)"))
    assert rows("y") == (("a is best", "Table 9", "of other data: 0.5", "2 1", "same (y)"), (*second, "same (y)"))
    assert rows("z") == ((*second, "same (z)"),)
    assert claims.judged_claims(some[:1], SimpleNamespace(data="z", options={}, models=[0]), [], []) == []


# --- lines ----------------------------------------------------------------------------------------------------------------


def test_a_table_in_parts_that_fit() -> None:
    rows = (
        (1, "a", 0.5, Interval(0.25, 0.2, 0.3, 9, 0.1)),
        (2, "bb", None, Interval(1.0, NAN, NAN, 1, 0.1, undefined=3)),
    )
    table = Table("t", "t", ("rank", "method", "x", "score"), rows)
    assert judge.lines(table) == [
        "rank  method  x      score",
        "1     a       0.500  0.250 [0.200, 0.300]",
        "2     bb             1.000 -3",
    ]
    assert judge.lines(table, width=41, beside=2) == judge.lines(table)
    assert judge.lines(table, width=40, beside=2) == [
        *("rank  method  x", "1     a       0.500", "2     bb", ""),
        *("rank  method  score", "1     a       0.250 [0.200, 0.300]", "2     bb      1.000 -3"),
    ]
    assert judge.lines(table, width=1, beside=1)[:3] == ["rank  method", "1     a", "2     bb"]
    assert len(judge.lines(table, width=1, beside=1)) == 3 * 3 + 2
    assert judge.lines(Table("t", "t", ("a",), (("x",),)), beside=3) == ["a", "x"]
    assert judge._wrapped("aaa bbb-ccc", 5) == ["aaa", "bbb-ccc"]
    assert judge._wrapped("aaa bbb-ccc", None) == ["aaa bbb-ccc"]
    assert judge._names(" a , ,b") == ["a", "b"]
    assert judge._names(("a", "b")) == ["a", "b"]


def outcome_of(n: int = 2, out: Any = None) -> Any:
    rows = ((1, "a = b", None, 0.5, 0.25), (2, "c", None, 0.1, 0.125))
    ranked = Table("ranking", "The title", ("rank", "method", "group", "score", "aopc"), rows, "The note.")
    other = Table("signs", "Signs", ("method", "x"), (("a", 1.0),), "Of signs.")
    records = [Record(str(i), "a", metric, 0.0, {"seconds": 1.0 + i}) for i in range(2) for metric in ("x", "y")]
    records += [Record("0", "c", "x", 0.0, {"seconds": 4.0}), Record("0", "d", "x", 0.0)]
    setup = SimpleNamespace(examples=[Example("x")] * n, model=SimpleNamespace(task="masked-lm"))
    return SimpleNamespace(tables=[ranked, other], records=records, setup=setup, out=out)


def test_seconds_and_rankings() -> None:
    assert judge.seconds(outcome_of()) == {"a": 1.5, "c": 4.0}
    table = judge.ranking(outcome_of())
    assert table.columns == ("rank", "method", "group", "score", "aopc", "seconds")
    assert table.column("seconds") == [1.5, 4.0]
    assert (table.name, table.title, table.note) == ("ranking", "The title", "The note.")


def test_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def judged(*given: Any, **options: Any) -> Any:
        asked.append((given, options))
        return outcome_of(options.get("n", 2), options.get("out"))

    monkeypatch.setattr(judge, "judge", judged)
    monkeypatch.setattr(
        judge, "answers_of", lambda setup, records: [f"The answer to {len(setup.examples)} {len(records)}."]
    )
    full = judge.judge_text("m", "d", methods="a", metrics="x").split("\n")
    table = judge.lines(judge.ranking(outcome_of()), beside=2)
    assert full[:-1] == [
        *("The answer to 2 6.", "", "The title", "", *table, "", "The note.", "", "Signs", ""),
        *("method  x", "a       1.000", "", "Of signs.", ""),
    ]
    assert full[-1].endswith(" s")
    assert asked == [(("m", "d"), {"methods": "a", "metrics": "x"})]
    few = judge.judge_text(
        "m", None, text="t", methods="all", metrics="x", width=200, full=False, n=1, out="folder"
    ).split("\n")
    assert asked[1] == (("m", ["t"]), {"methods": "all", "metrics": "x", "n": 1, "out": "folder"})
    assert few[:-1] == [
        *("The answer to 1 6.", judge.ONE_TEXT, "", "The title", ""),
        *("method   score  aopc   seconds", "a (= 1)  0.500  0.250  1.500", "c        0.100  0.125  4.000", ""),
        *(
            "a (= 1): the same scores have b.",
            "Every metric with its interval, and further tables: --full.",
            "",
            "The note.",
            "",
        ),
        *(judge._wrapped(judge._left_out(), 200)),
        "Records, tables and figure: folder",
    ]
    assert any(line.startswith("Left out, minutes for one text of a large model: ") for line in few)
    assert not any("Signs" in line for line in few)
    assert refused(judge.judge_text, "m", "d", text="t", methods="a", metrics="x") == "give DATA or --text, not both."


def test_what_judge_asks_of_its_data() -> None:
    assert judge._data_of("m", "d") == "d"
    assert (judge._data_of("agreement", None), judge._data_of("sentiment", None)) == ("agreement", "sentiment")
    for other in ("other", 3):
        assert refused(judge._data_of, other, None) == (
            "no texts were given: name a dataset of `mixlens data` or a file (mixlens judge MODEL DATA), or give one text "
            "(mixlens judge MODEL --text '...')."
        )
    cued, marked = Example("x", cues=((0, 1),)), Example("x", cues=((0, 1),), info={"rationale": [1]})
    assert judge._of_marks(["aopc"], [cued, marked]) == list(judge.CUES)
    assert judge._of_marks(["aopc", "cue_dot"], [marked]) == [*judge.CUES[1:], *judge.RATIONALES]
    assert judge._of_marks([], [Example("x"), cued]) == []
    config = SimpleNamespace(pad_token_id=None)
    model: Any = SimpleNamespace(task="x", tokenizer=SimpleNamespace(), hf_model=SimpleNamespace(config=config))
    groups = ["fillers", "aopc:replacement=mask"]
    kept = judge._possible_for([model], groups, judge.metrics_of(groups))
    assert kept == ["aopc:replacement=delete", "aopc:replacement=mask"]
    with_other = judge._possible_for([model, model], groups, judge.metrics_of(groups))
    assert with_other == ["aopc:replacement=delete", "aopc:replacement=mask", "aopc:replacement=infill"]


# --- one text -------------------------------------------------------------------------------------------------------------


def trace_of(task: str = "classification", labels: int = 2, **changes: Any) -> Trace:
    config = SimpleNamespace(num_labels=labels, vocab_size=9, id2label={i: f"c{i}" for i in range(labels)})
    model = SimpleNamespace(task=task, hf_model=SimpleNamespace(config=config), name="tiny", tokenizer=None)
    given: dict[str, Any] = {
        **{"model": model, "tokens": ("a", "b", "c"), "input_ids": (1, 2, 3), "layers": (), "special": (False,) * 3},
        **{"attention_mask": (1, 1, 1), "logits": torch.arange(float(labels))},
    }
    return Trace(**{**given, **changes})


def test_what_is_explained_of_a_text() -> None:
    two, three = trace_of(), trace_of(labels=3)
    of = judging.explained
    assert of(Example("x"), two, "measured") == {"target": "predicted", "foil": 0, "score": "logit"}
    assert of(Example("x"), three, "measured") == {"target": "predicted", "foil": None, "score": "log_probability"}
    assert of(Example("x"), two, "logit") == {"target": "predicted", "foil": None, "score": "logit"}
    assert of(Example("x", target=0), two, "measured") == {"target": 0, "foil": 1, "score": "logit"}
    assert of(Example("x", target=2, foil=0), three, "measured") == {"target": 2, "foil": 0, "score": "logit"}
    assert of(Example("x", foil=0), three, "measured") == {
        "target": "predicted",
        "foil": None,
        "score": "log_probability",
    }
    words = trace_of("masked-lm")
    assert of(Example("x", target="a", foil="b"), words, "measured") == {"target": "a", "foil": "b", "score": "logit"}
    assert of(Example("x", target="a", foil="b"), words, "logit") == {"target": "a", "foil": None, "score": "logit"}
    spans = trace_of("question-answering")
    assert of(Example("x", target="a", foil="b"), spans, "measured") == {
        **{"target": "predicted", "foil": None, "score": "log_probability"}
    }


def test_whether_a_model_is_right() -> None:
    assert judging.is_right(Example("x", info={"label": "c1"}), trace_of()) is True
    assert judging.is_right(Example("x", info={"label": "c0"}), trace_of()) is False
    assert judging.is_right(Example("x", info={"label": "unheard of"}), trace_of()) is None
    assert judging.is_right(Example("x", target="c1"), trace_of()) is None
    assert judging.is_right(Example("x", info={"label": "c1"}), trace_of("question-answering")) is None
    words = trace_of("masked-lm", logits=torch.tensor([[0.0, 2.0, 1.0]]), predicts=(1,))
    object.__setattr__(words.model, "mask_id", 5)
    for target, foil, right in ((1, None, True), (2, None, False), (2, 0, True), (0, 2, False), (1, 2, True)):
        made = SimpleNamespace(target=target, foil=foil, info={})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Trace, "query", property(lambda self: 1))
            patch.setattr("mixlens.scoring.targets.token_name", lambda model, number: str(number))
            assert judging.is_right(made, words) is right  # type: ignore[arg-type]


def case_of(metrics: list[str], models: int = 1, **options: Any) -> judging.Case:
    run = {"metrics": metrics, "explains": "measured", "ranking": "default", "unit": "token", "draws": 3, **options}
    requests = {name: parse_method(name) for name in ("alti", "attcat", "blank_out")}
    trace = trace_of()
    model = SimpleNamespace(**vars(trace.model), trace=lambda example: trace)
    example = Example("x", id="7", info={"label": "c1"})
    more: dict[str, Any] = {"model": model, "models": [model] * models, "examples": (example,)}
    return judging.Case(SimpleNamespace(options=run, seed=4, requests=requests, **more), example)  # type: ignore[arg-type]


def test_options_of_a_metric_in_a_run() -> None:
    question = {"target": "predicted", "foil": 0}
    case = case_of(["aopc"])
    assert case.question == question
    assert case.options(parse_metric("aopc")) == {**question, "unit": "token"}
    assert case.options(parse_metric("aopc:replacement=mask:unit=word")) == {
        **question,
        "unit": "word",
        "replacement": "mask",
    }
    assert case.options(parse_metric("lds")) == question
    assert case_of(["lds"], unit="sentence").options(parse_metric("lds")) == {**question, "unit": "sentence"}
    assert case.options(parse_metric("blank_out_faithfulness")) == {**question, "unit": "token", "keep_special": False}
    signed = case_of(["aopc"], ranking="magnitude")
    assert signed.options(parse_metric("aopc"))["ranking"] == "magnitude"
    assert signed.options(parse_metric("cue_dot")) == {"signs": "absolute"}
    assert case_of(["aopc"], ranking="signed").options(parse_metric("cue_dot")) == {"signs": "positive"}
    assert case.options(parse_metric("aopc:replacement=infill"))["replacement"] == "infill"
    filled = case_of(["aopc"], models=2)
    assert filled.options(parse_metric("aopc:replacement=infill"))["replacement"] == judging.Infill(
        filled.setup.models[1]
    )


def test_records_of_random_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []

    def value(self: Any, request: Any, scores: Any, method: Any) -> float:
        drawn.append((request.written, scores, method))
        return float(scores.sum())

    monkeypatch.setattr(judging.Case, "value", value)
    case = case_of(["aopc", "kendall_confidence", "lodds"])
    records = list(judging._random_records(case))
    generator = np.random.default_rng([4, zlib.crc32(b"a b c")])
    sums = [generator.random(3).sum() for _ in range(3)]
    expected = {"seconds": 0.0, "spread": pytest.approx(np.std(sums, ddof=1)), "right": True}
    assert [(one.example, one.method, one.metric, one.value, one.info) for one in records] == [
        ("7", "random", name, pytest.approx(np.mean(sums)), expected) for name in ("aopc", "lodds")
    ]
    assert {method for _, _, method in drawn} == {None}
    single = next(judging._random_records(case_of(["aopc"], draws=1)))
    assert single.info["spread"] == 0.0


def test_records_of_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def value(self: Any, request: Any, scores: Any, method: Any) -> float:
        asked.append((request.written, scores, method.name))
        return float(len(asked))

    monkeypatch.setattr(judging.Case, "value", value)
    case = case_of(["aopc", "blank_out_faithfulness"])

    def records(method: str, twin: str, scores: Any) -> list[Any]:
        made = judging._records_of(case, method, twin, scores, {"x": 1})
        return [(one.example, one.method, one.metric, one.value, one.info) for one in made]

    facts = {"x": 1}
    assert records("alti", "alti", "A") == [
        ("7", "alti", "aopc", 1.0, facts),
        ("7", "alti", "blank_out_faithfulness", 2.0, facts),
    ]
    assert records("attcat", "alti", "A") == [
        ("7", "attcat", "aopc", 1.0, facts),
        ("7", "attcat", "blank_out_faithfulness", 2.0, facts),
        ("7", "attcat", "aopc:ranking=magnitude", 3.0, facts),
    ]
    assert [one[2] for one in records("blank_out", "blank_out", "B")] == ["aopc", "aopc:ranking=magnitude"]
    assert asked[2:] == [
        ("aopc:ranking=magnitude", "A", "attcat"),
        ("aopc", "B", "blank_out"),
        ("aopc:ranking=magnitude", "B", "blank_out"),
    ]
    assert [one.written for one in judging.other_signs(case_of(["aopc", "cue_average_precision"]).setup)] == [
        *("aopc:ranking=magnitude", "cue_average_precision:signs=positive")
    ]
    assert judging.other_signs(case_of(["aopc", "aopc:ranking=magnitude"]).setup) == []
    assert judging.other_signs(case_of(["aopc"], ranking="signed").setup) == []


def test_scores_that_are_the_same() -> None:
    def scores(*values: float) -> Attribution:
        return Attribution(torch.tensor(values, dtype=torch.float64), ("a", "b"), "m")

    given = {
        "a": scores(1, 2),
        "b": scores(2, 4),
        "c": scores(-1, -2),
        "d": scores(1, 2.0001),
        "e": scores(1.0003, 2),
        "f": scores(0, 0),
    }
    assert judging.twins_of(given) == {"a": "a", "b": "a", "c": "c", "d": "a", "e": "e", "f": "f"}
    blank, other = parse_method("blank_out"), parse_method("alti")
    faithful, metric = parse_metric("blank_out_faithfulness"), parse_metric("aopc")
    told = [judging.is_circular(*pair) for pair in ((blank, faithful), (blank, metric), (other, faithful))]
    assert told == [True, False, False]


def test_runs_that_are_refused() -> None:
    def setup(
        metrics: list[str], task: str = "classification", examples: Any = (), methods: Any = ("attcat",), **options: Any
    ) -> Any:
        run = {"metrics": metrics, "explains": "measured", "ranking": "default", "unit": "token", "draws": 1, **options}
        config = SimpleNamespace(pad_token_id=0)
        model = SimpleNamespace(
            task=task, name="tiny", tokenizer=SimpleNamespace(), hf_model=SimpleNamespace(config=config)
        )
        requests = {name: parse_method(name) for name in methods}
        return SimpleNamespace(options=run, examples=examples, requests=requests, model=model, models=[model])

    def told(*given: Any, **options: Any) -> str:
        return refused(judging._prepare, setup(*given, **options))

    for draws in (0, 1.5, "3"):
        assert told(["aopc"], draws=draws) == f"draws is a number of random rankings, at least 1, not {draws!r}."
    assert told(["aopc"], explains="loggit").startswith("unknown explains 'loggit'. ")
    assert told(["aopc"], ranking="none").startswith("unknown ranking 'none'. ")
    assert told(["aopc"], unit="line").startswith("unknown unit 'line'. ")
    examples = [Example("x", id="a", cues=((0, 1),)), Example("x", id="b"), Example("x", id="c")]
    assert told(["cue_dot"], examples=examples) == (
        "'cue_dot' needs cues, and 2 examples have none (b ...). Leave it out, or take data that has cues."
    )
    assert told(["rationale_f1"], examples=examples) == (
        "'rationale_f1' needs rationale, and 3 examples have none (a ...). Leave it out, or take data that has rationale."
    )
    assert told(["kendall_confidence"], methods=("attcat", "alti")) == (
        "'kendall_confidence' compares classes, and 'alti' gives every class the same scores. Leave it out."
    )
    assert told(["kendall_confidence"], task="masked-lm") == (
        "'kendall_confidence' compares classes, and 'tiny' has no classes. Leave it out."
    )
    assert told(["aopc:replacement=mask"]) == (
        "'aopc:replacement=mask' replaces tokens by the mask token, and 'tiny' has none. Leave it out."
    )
    assert told(["aopc:replacement=infill"]) == (
        "'aopc:replacement=infill' needs a masked language model with this vocabulary: infill=NAME. Or leave it out."
    )


# --- sanity ---------------------------------------------------------------------------------------------------------------


def test_another_target() -> None:
    of = sanity._other_target
    assert of(trace_of(), {"target": 1, "foil": 0, "score": "logit"}) is None
    assert of(trace_of(), {"target": 1, "foil": None, "score": "logit"}) is None
    three = trace_of(labels=3)
    assert of(three, {"target": 1, "foil": None, "score": "p"}) == {"target": 2, "foil": None, "score": "p"}
    assert of(three, {"target": 2, "foil": None, "score": "p"}) == {"target": 0, "foil": None, "score": "p"}
    assert of(trace_of("masked-lm"), {"target": 1, "foil": None, "score": "p"}) is None
    assert sanity._fixed({"target": "predicted", "foil": 0}, trace_of()) == {"target": 1, "foil": 0}
    spans = {"target": "predicted"}
    assert sanity._fixed(spans, trace_of("question-answering")) is spans


def test_the_table_of_checks() -> None:
    redraws = [[0.0, 1.0], [0.5, 3.5], [0.25, 0.0]]  # their means over texts: 0.25 and 1.5
    records = [Record(str(i), "a", "weights", float(i), {"redraws": redraws[i % 3]}) for i in range(6)]
    records += [Record(str(i), "a", "noise", float(i + 1)) for i in range(6)]
    records += [Record(str(i), "b", "noise", 1.0) for i in range(3)]
    setup: Any = SimpleNamespace(methods=("b", "a"), options={"checks": ["weights", "target", "noise"], "redraws": 2})
    table = sanity._finish(setup, records)[0]
    columns = ("method", "weights", "sd over redraws", "noise")
    assert (table.name, table.title, table.columns) == ("sanity", "Sanity checks", columns)
    first, second = (mean_with_interval([float(i + k) for i in range(6)], how="studentised") for k in (0, 1))
    spread = pytest.approx(1.25 / math.sqrt(2))
    assert table.rows == (
        ("b", None, None, mean_with_interval([1.0] * 3, how="studentised")),
        ("a", first, spread, second),
    )
    assert "of their magnitudes. weights: lower is better; noise: higher is better. A method" in table.note
    assert "over the tokens that may be taken away; " in table.note
    assert (
        "weights: of each text the mean over 2 redraws, whose interval is over texts alone; sd over redraws: "
        in table.note
    )
    assert table.note.endswith(" target is left out: " + sanity.NO_THIRD)
    records += [Record(str(i), "a", "target", value) for i, value in enumerate((0.5, math.nan))]
    told = sanity._finish(setup, records)[0]
    assert told.columns == (*columns, "target")
    assert "of their magnitudes, but for the target. weights" in told.note
    assert "target is left out" not in told.note
    noise = sanity._finish(setup, [record for record in records if record.metric == "noise"])[0]
    assert noise.columns == ("method", "noise")
    assert "redraws" not in noise.note
    undefined = [Record("0", "a", "weights", 0.5, {"redraws": row}) for row in ([math.nan, 1.0], [0.0, 3.0])]
    assert sanity.spread_of_redraws(undefined) == pytest.approx(2 / math.sqrt(2))  # of 0 and 2
    assert sanity.spread_of_redraws([Record("0", "a", "weights", 0.5, {"redraws": [0.5]})]) is None
    assert sanity.mean_of_defined([math.nan, 1.0, 2.0]) == 1.5
    assert math.isnan(sanity.mean_of_defined([math.nan]))
    assert len({*sanity.redraw_seeds(0, 5), *sanity.redraw_seeds(1, 5)}) == 10


def test_likeness_of_scores() -> None:
    pytest.importorskip("scipy.stats")
    tokens, rows = ("a", "b", "c", "d"), ([1.0, 2.0, -3.0, 9.0], [-1.0, -2.0, 3.0, 0.0])
    one, other = (Attribution(torch.tensor(row), tokens, "m") for row in rows)
    assert sanity.likeness("target", one, other, [0, 1, 2]) == pytest.approx(-1.0)
    assert sanity.likeness("weights", one, other, [0, 1, 2]) == pytest.approx(1.0)
    assert sanity.likeness("weights", one, other, [2, 3]) == pytest.approx(-1.0)
    assert all(math.isnan(sanity.likeness("weights", one, other, places)) for places in ([2], []))


def test_checks_that_are_refused() -> None:
    def told(checks: Any, radius: float = 0.1) -> str:
        return refused(sanity._prepare, SimpleNamespace(options={"checks": checks, "radius": radius, "redraws": 1}))

    for wrong in (["weight"], []):
        assert told(wrong) == f"checks are some of weights, labels, target, noise, not {wrong!r}."
    for radius in (0.0, 1.0):
        assert (
            told(["noise"], radius)
            == f"radius is a share of a word vector's length, above 0 and below 1, not {radius}."
        )
    sanity._prepare(SimpleNamespace(options={"checks": ["noise"], "radius": 0.999, "redraws": 1}))  # type: ignore[arg-type]


def test_word_vectors_are_moved_by_a_share_of_their_length() -> None:
    table = torch.nn.Embedding(4, 3).double()
    model: Any = SimpleNamespace(hf_model=SimpleNamespace(get_input_embeddings=lambda: table))
    ids = torch.tensor([[1, 3, 1]])
    before = table(ids)
    noise = torch.randn(4, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    with sanity.jittered(model, radius=0.25, seed=5):
        after = table(ids)
    direction = noise / noise.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(after - before, 0.25 * before.norm(dim=-1, keepdim=True) * direction[ids])
    assert torch.equal(table(ids), before)


def test_the_same_prediction() -> None:
    def trace(*names: str) -> Any:
        return SimpleNamespace(prediction=lambda k: [(name, 0.5) for name in names][:k])

    assert sanity._same_prediction(trace("a", "b"), trace("a", "c"))
    assert not sanity._same_prediction(trace("a"), trace("b"))
    assert sanity._same_prediction(trace(), trace("b"))
    three = trace_of(labels=3).model
    one: Any = SimpleNamespace(options={"checks": ["labels", "target"]}, models=[1], model=three)
    assert sanity.Checks(one).names == ["target"]
    one.models = [1, 2]
    assert sanity.Checks(one).names == ["labels", "target"]
    assert sanity.Checks(one).random_models == []


def test_no_method_is_judged_by_what_it_is_made_of() -> None:
    asked = {name: parse_method(name) for name in ("blank_out", "context_cite", "lime", "shap", "alti")}
    for method, metric, circular in (
        *(("blank_out", "blank_out_faithfulness", True), ("context_cite", "lds", True), ("blank_out", "lds", False)),
        *(("context_cite", "blank_out_faithfulness", False), ("lime", "lds", True), ("context_cite", "aopc", False)),
        *(("shap", "lds", True), ("shap", "aopc", False), ("alti", "lds", False)),
    ):
        assert judging.is_circular(asked[method], parse_metric(metric)) is circular


def test_every_method_that_learns_from_subsets_has_no_lds() -> None:
    """The methods whose file draws texts with many units taken away at once."""
    files = (Path(judging.__file__).parents[1] / "methods").glob("[!_]*.py")
    drawing = [
        path.stem for path in files if re.search(r"import .*\b(game_of|random_subsets)\b", path.read_text("utf-8"))
    ]
    assert sorted(drawing) == sorted(judging.LEARN_FROM_SUBSETS)


def test_the_attributions_of_the_classes_that_are_not_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    trace: Any = SimpleNamespace(logits=torch.tensor([0.5, 2.0, -1.0]))
    monkeypatch.setattr(judging, "scores_of", lambda trace, request, target="predicted": ((request, target), 0.1))
    assert judging._other_classes(trace, parse_method("cat")) == [(parse_method("cat"), 0), (parse_method("cat"), 2)]
