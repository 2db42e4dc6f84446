"""Which method to trust: ranks, ties, what random scores reach, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conftest import needs_fast

import mixlens
from mixlens import data
from mixlens.errors import InputError
from mixlens.experiments import core, known
from mixlens.experiments.command import experiment_text
from mixlens.experiments.judge import every_method, judge, judge_text, lines, ranking
from mixlens.experiments.judging import CUES, FAITHFULNESS, _places, metrics_of, possible
from mixlens.fast.block import Block
from mixlens.metrics import Interval
from mixlens.metrics.alignment import cue_dot
from mixlens.metrics.arguments import marks_at
from mixlens.metrics.faithfulness import aopc, blank_out_faithfulness
from mixlens.types import Example, Record


@pytest.fixture(scope="module")
def gap_model() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


def test_the_numbers_are_those_of_the_metrics(gap_model: Any) -> None:
    made = judge(gap_model, "agreement", methods="random,alti,attcat", n=2, progress=False)
    found = {(r.example, r.method, r.metric): r.value for r in made.records}
    for example in made.setup.examples:
        trace = gap_model.trace(example)
        attcat = mixlens.attribute(trace, "attcat", target=example.target)
        alti = mixlens.attribute(trace, "alti")
        cues = marks_at(data.cue_tokens(example, trace), len(trace))
        assert found[str(example.id), "attcat", "aopc"] == aopc(trace, attcat, target=example.target).value
        expected = blank_out_faithfulness(trace, alti, target=example.target)
        assert found[str(example.id), "alti", "blank_out_faithfulness"] == expected
        assert found[str(example.id), "alti", "cue_dot"] == pytest.approx(cue_dot(alti, cues), rel=1e-5)
    assert set(made.setup.options["metrics"]) == {*FAITHFULNESS, *CUES}  # this data has cues
    table = ranking(made)
    assert table.columns[-1] == "seconds"
    assert all(row[-1] > 0 for row in table.rows)
    places = table.column("mean place")
    assert places == sorted(places)
    assert table.column("rank") == [1 + sum(other < own for other in places) for own in places]
    assert "seconds" not in made.tables[0].csv


def test_places_share_ties_and_know_which_way_is_better() -> None:
    assert _places({"a": 1.0, "b": 3.0, "c": 3.0, "d": 2.0}, "aopc") == {"a": 4, "b": 1.5, "c": 1.5, "d": 3}
    assert _places({"a": 1.0, "b": 3.0}, "lodds") == {"a": 1, "b": 2}
    assert _places({"a": float("nan"), "b": -3.0}, "aopc") == {"a": 2, "b": 1}


def ranked(gap_model: Any, means: dict[str, float], examples: int = 3) -> Any:
    """The table of made-up methods, each with its aopc."""
    used = known()["judge"]
    some = tuple(Example("a text", id=str(i)) for i in range(examples))
    setup = core.Setup(used, (gap_model,), some, tuple(means), {"metrics": ["aopc", "lodds"]})
    values = {"aopc": lambda mean: mean, "lodds": lambda mean: -10 * mean}
    records = [
        Record(example.id or "", method, metric, made(mean), {"seconds": 0.1})
        for example in some
        for method, mean in means.items()
        for metric, made in values.items()
    ]
    (table,) = used.finish(setup, records)
    return setup, table


def test_equal_methods_share_a_rank(gap_model: Any) -> None:
    _, table = ranked(gap_model, {"a": 1.0, "b": 3.0, "c": 1.0, "d": 1.0, "e": 0.5})
    assert dict(zip(table.column("method"), table.column("rank"), strict=True)) == {"b": 1, "a": 2, "c": 2, "d": 2, "e": 5}


@pytest.mark.parametrize(("examples", "few"), [(3, True), (29, True), (30, False)])
def test_a_ranking_of_few_texts_comes_with_a_caution(gap_model: Any, examples: int, few: bool) -> None:
    _, table = ranked(gap_model, {"a": 1.0, "b": 3.0}, examples)
    assert (f"Caution: {examples} texts are few." in table.note) == few


def test_bars_stand_in_the_order_of_what_they_show(gap_model: Any) -> None:
    """The best on top, also where the mean place over all metrics says otherwise, and for a metric where lower is better."""
    figure = pytest.importorskip("matplotlib.figure")
    setup, table = ranked(gap_model, {"a": 1.0, "b": 3.0, "c": 2.0, "d": float("nan")})
    table = core.Table(table.name, table.title, table.columns, tuple(reversed(table.rows)), table.note)
    for metrics, order in ((["aopc", "lodds"], ["b", "c", "a", "d"]), (["lodds", "aopc"], ["b", "c", "a", "d"])):
        drawn = figure.Figure()
        known()["judge"].figure(replace(setup, options={"metrics": metrics}), [table], drawn)  # type: ignore[misc]
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
    with pytest.raises(InputError, match="name the fields of a file"):
        mixlens.judge(model, ["a"], text_field="review", **asked)


def test_better_than_random_is_judged_example_by_example(gap_model: Any) -> None:
    """Always a little better is better, though the two means' intervals overlap; sometimes better is not."""
    used = known()["judge"]
    setup = core.Setup(used, (gap_model,), (), ("random", "steady", "unsteady"), {"metrics": ["aopc"]})
    noise = [0.0, 5.0, -5.0, 2.0, -2.0, 1.0]
    records = [
        Record(str(i), method, "aopc", level + shift, {})
        for i, level in enumerate(noise)
        for method, shift in (("random", 0.0), ("steady", 0.1), ("unsteady", 3.0 if i % 2 else -2.0))
    ]
    (table,) = used.finish(setup, records)
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
    assert isinstance(made.tables[0].rows[0][3], Interval)


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
    asked: dict[str, Any] = {"methods": "random,alti", "metrics": "cues", "n": 3, "progress": False, "out": tmp_path / "out"}
    first = judge_text("agreement", "agreement", **asked)
    assert (tmp_path / "out" / "summary.csv").is_file()
    assert first.splitlines()[:-1] == judge_text("agreement", "agreement", **asked).splitlines()[:-1]
    assert first.splitlines()[0] == "agreement: 3 examples"
    assert first.splitlines()[2].split()[:4] == ["rank", "method", "mean", "place"]
    assert first.splitlines()[3].split()[:2] == ["1", "alti"]
    assert "Higher is better: cue_dot, cue_average_precision; lower is better: probes_needed." in first


def test_the_list_and_the_text_of_experiments() -> None:
    told = experiment_text(None)
    assert "alti-table2" in told
    assert "vz-probing" in told
    shown = experiment_text("alti-table2", model="sentiment", n=2, methods="alti", options=["keep_special=false"], progress=False)
    assert shown.startswith("alti-table2 (Table 2, correlation with gradients): 2 examples")
    with pytest.raises(InputError, match="key=value"):
        experiment_text("alti-table2", n=2, options=["reference"])
    with pytest.raises(InputError, match="Did you mean 'alti-table2'"):
        experiment_text("alti-tabl2")


@pytest.mark.parametrize("width", [40, 80, 190])
def test_a_wide_table_goes_below_with_its_names_said_again(width: int) -> None:
    from mixlens.experiments import Table

    cell = Interval(0.5, 0.25, 0.75, 3, 0.1)
    names = tuple(f"metric_{i}" for i in range(7))
    table = Table("t", "", ("rank", "method", *names), tuple((i, f"method_{i}", *[cell] * 7) for i in range(3)))
    told = lines(table, width=width, beside=2)
    assert max(map(len, told)) <= width
    assert all(sum(line.count(name) for line in told) == 1 for name in names)
    assert sum(line.startswith("2     method_2  0.500 [0.250, 0.750]") for line in told) == told.count("") + 1
    assert sum(line.count("0.500 [0.250, 0.750]") for line in told) == 21


def test_lines_are_aligned() -> None:
    from mixlens.experiments import Table

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
    draws = counted(monkeypatch, sys.modules["mixlens.experiments.prepare"], "load")
    options = counted(monkeypatch, sys.modules["mixlens.asking"], "_option")
    hook = gap_model.hf_model.register_forward_pre_hook(lambda module, args: passes.append(args))
    methods = ["attention", "globenc", "alti", "value_zeroing:rollout=alti"]
    try:
        made = judge(gap_model, "agreement", methods=methods, metrics="cue_dot", n=2, progress=False)
    finally:
        hook.remove()
    assert len(made.records) == 8
    assert len(passes) == 2
    assert len(blocks) == 2 * gap_model.n_layers
    assert len(draws) == 1
    assert len(options) == 1
