"""Experiments: refused before the long work, killed and continued to the same bytes, tables from records alone."""

# ruff: noqa: F811
from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import gap_model, model  # noqa: F401

import mixlens
from mixlens import data, metrics, types
from mixlens.base import errors
from mixlens.base import files as disk
from mixlens.runs.experiments import Experiment, Setup, Table, experiment, figures, folder, known, prepare, run, running
from mixlens.scoring import asking, provenance

TOY = ["a film", "a good film", "a very good film", "a bad plot", "the plot is bad"]


def examples(texts: list[str] = TOY) -> list[types.Example]:
    return [types.Example(text, id=str(i), info={"label": "positive"}) for i, text in enumerate(texts)]


def lengths(setup: Setup, example: types.Example) -> list[types.Record]:
    """How long is a text?"""
    return [
        types.Record(
            str(example.id),
            method,
            "length",
            len(example.text) / (i + 3),
            {"seconds": time.perf_counter(), "odd": "ä|\n"},
        )
        for i, method in enumerate(setup.methods)
    ]


def by_key(setup: Setup, found: list[types.Example]) -> Iterator[tuple[str, list[types.Record]]]:
    """The same, and it says what it was asked again."""
    for example in found:
        if str(example.id) not in setup.done:
            MEASURED.append(str(example.id))
            yield str(example.id), lengths(setup, example)


MEASURED: list[str] = []


def finish(setup: Setup, records: list[types.Record]) -> list[Table]:
    rows = tuple((m, metrics.mean_with_interval([r.value for r in records if r.method == m])) for m in setup.methods)
    return [Table("lengths", "Lengths", ("method", "length"), rows), Table("more", "More", ("n",), ((len(records),),))]


def draw(setup: Setup, tables: list[Table], figure: Any) -> None:
    figures.bars(figure.subplots(), tables[0], "length")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    methods = ("alti", "attention")
    made = Experiment("toy", "Nobody 2026", "Table 0", "sentiment", "sentiment", lengths, finish, draw, methods=methods)
    monkeypatch.setitem(known(), "toy", made)
    monkeypatch.setitem(known(), "toy-whole", replace(made, name="toy-whole", measure=by_key, whole=True))
    MEASURED.clear()
    return made


def reports(place: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(place.iterdir())
        if path.suffix in (".csv", ".md", ".svg", ".png")
    }


# --- what a run writes ------------------------------------------------------------------------------------------------


def test_a_run_writes_records_tables_figure_and_where_they_come_from(
    toy: Experiment, model: Any, tmp_path: Path
) -> None:
    made = run("toy", model=model, data=examples(), out=tmp_path / "out", progress=False)
    assert set(reports(tmp_path / "out")) == {"summary.csv", "more.csv", "summary.md", "figure.svg", "figure.png"}
    assert [(r.example, r.method, r.value) for r in made.records[:2]] == [("0", "alti", 2.0), ("0", "attention", 1.5)]
    assert made.records[0].info["odd"] == "ä|\n"
    told = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert told["finished"]
    assert told["schema"] == folder.SCHEMA
    assert told["identity"]["methods"] == ["alti", "attention"]
    assert told["identity"]["data"] == provenance.data_fingerprint(made.setup.examples)
    assert told["models"] == [{"name": "sentiment", "revision": model.revision, "task": "classification"}]
    assert {"mixlens", "torch", "transformers", "python"} <= set(told["versions"])
    first = next(csv.DictReader((tmp_path / "out" / "summary.csv").read_text().splitlines()))
    assert float(first["length"]) == pytest.approx(np.mean([len(text) / 3 for text in TOY]), abs=1e-5)
    assert first["length_n"] == "5"
    assert "figure.svg" in reports(tmp_path / "out")
    assert not list((tmp_path / "out").rglob(".tmp-*"))


def test_without_a_folder_nothing_is_written_and_the_tables_are_the_same(
    toy: Experiment, model: Any, tmp_path: Path
) -> None:
    kept = run("toy", model=model, data=examples(), out=tmp_path / "out", progress=False)
    free = run("toy", model=model, data=examples(), progress=False)
    assert [table.csv for table in free.tables] == [table.csv for table in kept.tables]
    assert free.out is None


def test_the_same_run_twice_gives_the_same_bytes_and_measures_nothing_again(
    toy: Experiment, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"model": model, "data": examples(), "progress": False}
    run("toy", out=tmp_path / "a", **asked)
    run("toy", out=tmp_path / "b", **asked)
    assert reports(tmp_path / "a") == reports(tmp_path / "b")

    def never(setup: Setup, example: types.Example) -> list[types.Record]:
        raise AssertionError("measured again")

    never.__doc__ = lengths.__doc__
    monkeypatch.setitem(known(), "toy", replace(toy, measure=never))
    run("toy", out=tmp_path / "a", **asked)
    assert reports(tmp_path / "a") == reports(tmp_path / "b")


def test_finish_is_pure(toy: Experiment, model: Any) -> None:
    made = run("toy", model=model, data=examples(), progress=False)
    before = list(made.records)
    again = toy.finish(made.setup, made.records)
    assert [(t.csv, t.markdown) for t in again] == [(t.csv, t.markdown) for t in made.tables]
    assert made.records == before


# --- killed and continued ---------------------------------------------------------------------------------------------


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("name", ["toy", "toy-whole"])
def test_stopped_at_any_file_a_run_goes_on_to_the_same_bytes(
    name: str, toy: Experiment, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended before and after each file is moved to its place: two manifests, five shards, three reports."""
    plain = replace(toy, name=name, figure=None, **({"measure": by_key, "whole": True} if name == "toy-whole" else {}))
    asked: dict[str, Any] = {"model": model, "data": examples(), "progress": False}
    monkeypatch.setattr(running, "FLUSH_SECONDS", -1.0)  # a shard for every example
    monkeypatch.setitem(known(), name, plain)
    run(name, out=tmp_path / "whole", **asked)
    expected = reports(tmp_path / "whole")
    for stop in range(10):
        for after in (False, True):
            out = tmp_path / f"{stop}-{after}"
            with monkeypatch.context() as m:
                m.setattr(disk, "move", _ending_move(stop, after))
                m.setattr(folder.Folder, "add", _dying_add(folder.Folder.add))
                with pytest.raises(Killed):
                    run(name, out=out, **asked)
            begun = (out / "manifest.json").exists()
            assert begun == (stop > 0 or after)
            if begun:
                assert json.loads((out / "manifest.json").read_text())["finished"] == (stop == 9 and after)
            run(name, out=out, **asked)
            assert reports(out) == expected, (stop, after)
            assert not list(out.rglob(".tmp-*"))


def _ending_move(stop: int, after: bool) -> Any:
    """The process ends before, or after, this file is moved."""
    move, moves = disk.move, iter(range(100))

    def ended(beside: Path, place: Path) -> None:
        number = next(moves)
        if number != stop or after:
            move(beside, place)
        if number == stop:
            raise Killed

    return ended


def _dying_add(add: Any) -> Any:
    """A killed process writes nothing more, so neither does a `finally`."""
    dead: list[bool] = []

    def once(self: Any, units: Any) -> None:
        if dead:
            return
        try:
            add(self, units)
        except Killed:
            dead.append(True)
            raise

    return once


def test_what_is_done_is_not_done_again(
    toy: Experiment, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(setup: Setup, found: list[types.Example]) -> Iterator[tuple[str, list[types.Record]]]:
        for key, records in by_key(setup, found):
            if key == "3":
                raise KeyboardInterrupt
            yield key, records

    broken = replace(toy, name="toy-whole", measure=fails, whole=True)
    asked: dict[str, Any] = {"model": model, "data": examples(), "progress": False, "out": tmp_path}
    with monkeypatch.context() as m:
        m.setitem(known(), "toy-whole", broken)
        with pytest.raises(KeyboardInterrupt):
            run("toy-whole", **asked)
    MEASURED.clear()
    run("toy-whole", **asked)
    assert MEASURED == ["3", "4"]


SLOW = """
    import sys, time
    import torch
    from dataclasses import replace
    from mixlens.runs.experiments import known, run, running

    torch.set_num_threads(1)
    running.FLUSH_SECONDS = -1.0
    used = known()["vz-cue-alignment"]
    def slowly(setup, example):
        time.sleep(0.2)
        return used.measure(setup, example)
    known()["vz-cue-alignment"] = replace(used, measure=slowly)
    run("vz-cue-alignment", n=5, out=sys.argv[1], methods=["alti", "attcat"], progress=False)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs kill -9")
def test_killed_and_started_again_a_run_ends_in_the_same_bytes(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(SLOW), str(tmp_path / "out")])
    shards = tmp_path / "out" / "records"
    while len(list(shards.glob("part-*.parquet"))) < 2 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not json.loads((tmp_path / "out" / "manifest.json").read_text())["finished"]
    assert not (tmp_path / "out" / "summary.csv").exists()
    done = len(list(shards.glob("part-*.parquet")))
    assert 2 <= done < 5
    asked: dict[str, Any] = {"n": 5, "methods": ["alti", "attcat"], "progress": False}
    run("vz-cue-alignment", out=tmp_path / "out", **asked)
    run("vz-cue-alignment", out=tmp_path / "whole", **asked)
    assert reports(tmp_path / "out") == reports(tmp_path / "whole")
    assert len(reports(tmp_path / "whole")) == 8  # five tables, the page, the figure twice


# --- refusals ---------------------------------------------------------------------------------------------------------


def gap(text: str, target: str = "are", **more: Any) -> dict[str, Any]:
    return {"model": "agreement", "data": [types.Example(text, target=target, id="one", **more)]}


def text(words: str, label: str | None = None) -> dict[str, Any]:
    return {"model": "sentiment", "data": [types.Example(words, id="one", info={"label": label} if label else {})]}


FILM, RUSTY, LONG_WORD = text("a good film"), "The keys [MASK] rusty.", "unbelievableness"


@pytest.mark.parametrize(
    ("name", "asked", "told"),
    [
        ("alti-tabel2", {}, "unknown experiment 'alti-tabel2'. Did you mean 'alti-table2'"),
        ("toy", {**FILM, "methods": ["altii"]}, "unknown method 'altii'. Did you mean 'alti'"),
        ("toy", {**FILM, "methods": ["alti:distance=cosine"]}, "has no option 'distance'"),
        ("toy", {**FILM, "methods": ["alti:released"]}, "key=value"),
        ("toy", {"methods": ["alti:rollout=abnr"]}, "unknown rollout convention 'abnr'. Did you mean 'abnar'"),
        ("toy", {**FILM, "k": 3}, "has no option 'k'"),
        ("toy", {**FILM, "methods": ["alti", "alti"]}, "named twice: alti"),
        ("toy", {**FILM, "methods": []}, "no method was asked for"),
        ("toy", {"data": "sentiment"}, "has no end: say how many"),
        ("toy", {"data": "sentimnt"}, "no file, no dataset"),
        (
            "vz-cue-alignment",
            {"model": "sentiment", "n": 2},
            "needs a model for masked-lm or causal-lm; 'sentiment' is one for classification",
        ),
        ("vz-cue-alignment", gap(RUSTY), r"1 have no 'cues' \(one\)"),
        (
            "vz-cue-alignment",
            gap(RUSTY, LONG_WORD, cues=((4, 8),)),
            r"1 targets or foils are not one token of 'agreement' \(one: 'unbelievableness'\)",
        ),
        ("vz-faithfulness", gap(RUSTY, foil=LONG_WORD), "1 targets or foils are not one token"),
        (
            "vz-cue-alignment",
            gap("The keys are rusty.", cues=((4, 8),)),
            r"the text must have \[MASK\] exactly once",
        ),
        ("alti-table2", text("film " * 600), "longer than the [0-9]+ tokens it reads .one"),
        (
            "attcat-faithfulness",
            {**text("a good film", "happy"), "variant": "released"},
            "the label set does not match: 'happy'",
        ),
        ("attcat-faithfulness", {**FILM, "variant": "released"}, "examples have none"),
        ("attcat-faithfulness", {**FILM, "variant": "papers"}, "unknown variant 'papers'"),
        ("attcat-faithfulness", text("film"), "the text has fewer than two words to take away"),
        ("attcat-confidence", {"n": 2, "methods": ["alti", "attcat"]}, "'alti' gives every class the same scores"),
        ("vz-distances", {"n": 2, "methods": ["attcat"]}, "takes maps alone; 'attcat' is an attribution"),
        ("attcat-qa", {"n": 2}, "'attcat-qa' needs a question-answering model, .*: say which, model="),
        ("alti-consistency", {"model": "sentiment", "n": 2}, "compares models: give 2 or more"),
        ("alti-table2", {"n": 2, "reference": "grad_l3"}, "unknown method 'grad_l3'"),
        ("vz-distances", {"n": 2, "methods": ["value_zeroing"]}, "two or more methods"),
        ("vz-probing", {"n": 5}, "needs 40 examples or more"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    name: str, asked: dict[str, Any], told: str, toy: Experiment, tmp_path: Path
) -> None:
    with pytest.raises(errors.InputError, match=told):
        run(name, out=tmp_path / "out", progress=False, **asked)
    assert not (tmp_path / "out").exists()


def test_examples_that_do_not_fit_can_be_left_out_and_are_counted(gap_model: Any, tmp_path: Path) -> None:
    good = list(data.load("agreement", n=2))
    bad = types.Example("The keys [MASK] rusty.", target="unbelievableness", cues=((4, 8),), id="bad")
    asked: dict[str, Any] = {"model": gap_model, "methods": ["alti"], "leave_out": True, "progress": False}
    made = run("vz-cue-alignment", data=[*good, bad], out=tmp_path / "out", **asked)
    assert [example.id for example in made.setup.examples] == [example.id for example in good]
    assert "2 examples (1 that do not fit the model left out)" in (tmp_path / "out" / "summary.md").read_text()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["left_out"] == 1
    with pytest.raises(errors.InputError, match="no examples"):
        run("vz-cue-alignment", data=[bad], **asked)


def test_a_folder_of_another_run_is_not_touched(toy: Experiment, model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("toy", model=model, data=examples(), out=out, progress=False)
    before = {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    for asked, what in (
        ({"data": examples(TOY[:3])}, "data: .* there, .* here; examples: 5 there, 3 here"),
        ({"data": examples(), "methods": ["alti"]}, 'methods: \\["alti", "attention"\\] there, \\["alti"\\] here'),
        ({"data": examples(), "seed": 1}, "seed: 0 there, 1 here"),
        ({"data": examples(), "model": mixlens.load("agreement")}, "model: "),
    ):
        with pytest.raises(errors.InputError, match=f"belongs to another run .*{what}.* nothing is overwritten"):
            run("toy", **{"model": model, "out": out, "progress": False, **asked})
    with pytest.raises(errors.InputError, match='experiment: "toy" there, "toy-whole" here'):
        run("toy-whole", model=model, data=examples(), out=out, progress=False)
    assert {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()} == before


def test_a_folder_or_file_that_is_no_run_is_not_touched(toy: Experiment, model: Any, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"model": model, "data": examples(), "progress": False}
    (tmp_path / "file").write_text("mine")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("mine")
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "manifest.json").write_text("[1")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text('{"identity": {}, "schema": 0}')
    for name, what in (
        ("file", "is a file"),
        ("notes", "not empty .thesis.txt. and holds no run"),
        ("json", "not a manifest of mixlens"),
        ("old", "has schema 0"),
    ):
        with pytest.raises(errors.InputError, match=what):
            run("toy", out=tmp_path / name, **asked)
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "mine"
    assert sorted(path.name for path in (tmp_path / "notes").iterdir()) == ["thesis.txt"]


def test_two_runs_do_not_write_to_one_folder(toy: Experiment, model: Any, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    asked: dict[str, Any] = {"model": model, "data": examples(), "progress": False, "out": tmp_path}
    with folder.Folder(tmp_path).held(), pytest.raises(errors.InputError, match="another run is writing"):
        run("toy", **asked)
    run("toy", **asked)


def test_a_damaged_shard_is_named(toy: Experiment, model: Any, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"model": model, "data": examples(), "progress": False, "out": tmp_path}
    run("toy", **asked)
    shard = tmp_path / "records" / "part-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(errors.MixlensError, match=r"part-00000.parquet' cannot be read .* measured again"):
        run("toy", **asked)
    before = reports(tmp_path)
    shard.unlink()
    run("toy", **asked)
    assert reports(tmp_path) == before


@pytest.mark.parametrize(("module", "extra"), [("pyarrow.parquet", "data"), ("matplotlib.figure", "plot")])
def test_a_missing_package_is_said_before_the_work(
    module: str, extra: str, toy: Experiment, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(errors.InputError, match=f"pip install .*\\[{extra}\\]'"):
        run("toy", model=model, data=examples(), out=tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


# --- small parts ------------------------------------------------------------------------------------------------------


def test_tables_are_written_as_expected() -> None:
    cell = metrics.Interval(0.5, 0.25, 0.75, 4, 0.125, undefined=1)
    table = Table("t", "A title", ("method", "value", "n"), (("a|b", cell, 3), ("c", None, 1234.5)), "A note.")
    assert table.csv.splitlines() == [
        "method,value,value_low,value_high,value_std,value_n,value_undefined,n",
        *("a|b,0.5,0.25,0.75,0.125,4,1,3", "c,,,,,,,1234.5"),
    ]
    assert table.markdown.splitlines() == [
        *("### A title", "", "| method | value | n |", "| --- | --- | --- |"),
        *("| a\\|b | 0.500 [0.250, 0.750] (1 undefined) | 3 |", "| c |  | 1234 |", "", "A note."),
    ]
    nothing = metrics.Interval(np.nan, np.nan, np.nan, 0, np.nan)
    assert "| undefined |" in Table("t", "", ("x",), ((nothing,),)).markdown


def test_a_method_is_read_as_written() -> None:
    found = asking.parse_method("value_zeroing:distance=euclidean:standardize=true:rollout=alti:variant=released")
    assert (found.name, found.variant, found.rollout) == ("value_zeroing", "released", "alti")
    assert found.options == {"distance": "euclidean", "standardize": True}
    assert found.is_map
    assert not found.class_specific
    assert asking.parse_method("attcat").class_specific
    assert not asking.parse_method("raw_attention").class_specific


def test_scores_are_those_of_the_methods(model: Any) -> None:
    trace = model.trace("a very good film")
    made, seconds = asking.scores_of(trace, "globenc:rollout=toolkit")
    expected = mixlens.mix(trace, "globenc").rollout("toolkit").readout(trace.query)
    close = {"rtol": 1e-4, "atol": 1e-6}  # the model is in float32; one pass may compute what two passes do apart
    torch.testing.assert_close(made.scores, expected.scores, **close)
    assert seconds > 0
    made = asking.scores_of(trace, "attcat", target=0)[0]
    torch.testing.assert_close(made.scores, mixlens.attribute(trace, "attcat", target=0).scores, **close)


def test_random_scores_differ_from_text_to_text_and_not_from_run_to_run(model: Any) -> None:
    traces = [model.trace(text) for text in ("a very good film", "a very bad film", "a very good film")]
    first, second, third = (asking.scores_of(trace, "random")[0].scores.tolist() for trace in traces)
    assert first == third
    assert metrics.agreement.spearman(first, second) < 0.99
    assert (
        asking.scores_of(traces[0], "random:seed=1")[0].scores.tolist()
        == asking.scores_of(traces[1], "random:seed=1")[0].scores.tolist()
    )


def test_data_by_name_file_or_name_and_file(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps({"sentence": f"film {i}", "label": i % 2, "id": i}) + "\n" for i in range(20)))
    assert [e.info["label"] for e in prepare.examples_of(f"sst2={path}", n=None, seed=0)[:2]] == [
        "negative",
        "positive",
    ]
    drawn = prepare.examples_of(f"sst2={path}", n=5, seed=1)
    assert drawn == prepare.examples_of(f"sst2={path}", n=5, seed=1)
    assert drawn != prepare.examples_of(f"sst2={path}", n=5, seed=2)
    assert [e.text for e in prepare.examples_of(path, n=None, seed=0)] == [f"film {i}" for i in range(20)]
    assert len(prepare.examples_of("agreement", n=3, seed=0)) == 3
    odd = tmp_path / "a=b.jsonl"
    odd.write_text(path.read_text())
    assert prepare.examples_of(odd, n=2, seed=0) == prepare.examples_of(path, n=2, seed=0)
    with pytest.raises(errors.InputError, match="is no file, no dataset"):
        prepare.examples_of("sst3=some", n=2, seed=0)


def test_fingerprints_tell_data_and_models_apart(model: Any) -> None:
    some = examples()
    assert provenance.data_fingerprint(some) == provenance.data_fingerprint(list(some))
    for other in (
        some[::-1],
        some[:-1],
        [replace(some[0], foil="x"), *some[1:]],
        [replace(some[0], info={}), *some[1:]],
    ):
        assert provenance.data_fingerprint(other) != provenance.data_fingerprint(some)
    assert provenance.model_fingerprint(model) == provenance.model_fingerprint(mixlens.load("sentiment"))
    assert provenance.model_fingerprint(model) != provenance.model_fingerprint(mixlens.load("agreement"))


def test_every_experiment_says_what_it_is() -> None:
    for name, one in known().items():
        assert name == one.name
        assert one.summary.endswith(("?", ".", ")"))
        assert one.paper
        assert one.shows
        for method in one.methods:
            asking.parse_method(method)
    papers = {"alti-table2", "globenc-table1", "vz-probing", "attcat-qa", "id-across-layers", "judge"}
    assert papers <= set(known())


def test_two_experiments_of_one_name_are_refused(toy: Experiment) -> None:
    with pytest.raises(errors.MixlensError, match="two experiments are called 'judge'"):
        experiment(name="judge", paper="", shows="", data="", model="", methods=(), finish=finish)(lengths)
