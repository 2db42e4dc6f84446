"""What each command hands to the library: all arguments, by default and with every option; and what it prints and
refuses."""

from __future__ import annotations

import gc
import importlib
import io
import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import mixlens
from mixlens import cli
from mixlens.base import errors
from mixlens.cli import explain as explaining
from mixlens.cli import group, options, pages, runs, waiting
from mixlens.runs.corpus import running

LOADED = {"task": None, "device": None, "dtype": None, "trust_remote_code": False}
LOADING = [
    "--task",
    "causal-lm",
    "--device",
    "cpu",
    "--dtype",
    "float64",
    "--trust-remote-code",
    "--quantization",
    "4bit",
]
ASKED = {"task": "causal-lm", "device": "cpu", "dtype": "float64", "trust_remote_code": True, "quantization": "4bit"}
runner = CliRunner()

PICTURES = "--layers and --map are pictures in the terminal: leave --generate, --continuation, --json and --latex out."


class Recorder:
    """Stands for a function: keeps what it was called with."""

    def __init__(self, answer: Any = None):
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.answer = answer

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls.append((given, named))
        return self.answer


def invoked(line: str, *words: str) -> Any:
    result = runner.invoke(cli.app, [*shlex.split(line), *words], env={"COLUMNS": "120"})
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def refused(line: str, *words: str) -> str:
    result = runner.invoke(cli.app, [*shlex.split(line), *words])
    assert isinstance(result.exception, mixlens.MixlensError), (result.output, result.exception)
    return str(result.exception)


# --- run and summarize ------------------------------------------------------------------------------------------------


def test_run_hands_over_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Recorder(running.Run(Path("o"), 3, 0, 2, 4.0))
    monkeypatch.setattr("mixlens.runs.corpus.run", record)
    assert invoked("run data.csv --out o").stdout == "3 rows in o/shards (2 done now, 2.0 s each)\n"
    usual = {
        **{"model": "agreement", "methods": "alti", "out": Path("o"), "limit": None, "columns": [], "text_field": None},
        **{"pair_field": None, "ids_field": None, "split": None, "target": "predicted", "foil": None, "score": None},
        **{
            "query": None,
            "maps": False,
            "trust": False,
            "generate": None,
            "chat": False,
            "truncate": False,
            "batch_tokens": None,
            "shard_rows": 512,
        },
        **{"strict": False, "resume": False, "ray": None, "workers": None, **LOADED},
    }
    assert record.calls == [(("data.csv",), usual)]
    words = [
        "--model",
        "m",
        "--methods",
        "alti, attcat:variant=paper",
        "--limit",
        "9",
        "--columns",
        "a, b",
        "--text-field",
        "t",
    ]
    words += [
        "--pair-field",
        "p",
        "--ids-field",
        "i",
        "--split",
        "s",
        "--target",
        "12",
        "--foil",
        "7",
        "--score",
        "logit",
    ]
    words += [
        "--query",
        "-2",
        "--maps",
        "--maps-dtype",
        "float16",
        "--trust",
        "--generate",
        "3",
        "--chat",
        "--truncate",
        "--batch-tokens",
        "99",
    ]
    words += ["--shard-rows", "8", "--strict", "--resume", "--ray", "auto", "--workers", "8", *LOADING]
    invoked("run data.csv --out o", *words)
    given = {
        **{"model": "m", "methods": "alti, attcat:variant=paper", "out": Path("o"), "limit": 9, "columns": ["a", "b"]},
        **{
            "text_field": "t",
            "pair_field": "p",
            "ids_field": "i",
            "split": "s",
            "target": 12,
            "foil": 7,
            "score": "logit",
        },
        **{
            "query": -2,
            "maps": "float16",
            "trust": True,
            "generate": 3,
            "chat": True,
            "truncate": True,
            "batch_tokens": 99,
        },
        **{"shard_rows": 8, "strict": True, "resume": True, "ray": "auto", "workers": 8, **ASKED},
    }
    assert record.calls[1] == (("data.csv",), given)
    invoked(
        "run data.csv --out o --target good --foil bad --query -- --maps --workers 4",
    )
    named = record.calls[2][1]
    assert [named[name] for name in ("target", "foil", "query", "maps", "workers")] == [
        "good",
        "bad",
        "--",
        "float32",
        4,
    ]
    assert refused("run d --out o --methods alti,nope:x=1").startswith("unknown method 'nope'. ")
    assert len(record.calls) == 3


@pytest.mark.parametrize(
    ("done", "told"),
    [
        (running.Run(Path("o"), 2, 0, 0, 1.0), "2 rows in o/shards (0 done now)\n"),
        (running.Run(Path("o"), 0, 0, 0, 1.0), "0 rows in o/shards (0 done now)\n"),
        (
            running.Run(Path("o"), 2, 5, 7, 3.5),
            "2 rows in o/shards (7 done now, 2.0 a second)\n5 rows could not be explained: o/errors.jsonl says why\n",
        ),
    ],
)
def test_what_a_run_prints(monkeypatch: pytest.MonkeyPatch, done: running.Run, told: str) -> None:
    monkeypatch.setattr("mixlens.runs.corpus.run", Recorder(done))
    assert invoked("run d --out o").stdout == told
    made = json.loads(invoked("run d --out o --json").stdout)
    assert made == {
        "out": "o",
        "rows": done.rows,
        "errors": done.errors,
        "done": done.done,
        "seconds": done.seconds,
        "aside": [],
    }


def test_a_run_without_a_row_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixlens.runs.corpus.run", Recorder(running.Run(Path("o"), 0, 1, 1, 1.0)))
    assert refused("run d --out o") == "no row could be explained: 'o/errors.jsonl' says why."
    result = runner.invoke(cli.app, "run d --out o --json")
    assert json.loads(result.stdout)["errors"] == 1
    assert str(result.exception) == "no row could be explained: 'o/errors.jsonl' says why."


def test_a_run_that_is_stopped_and_one_that_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mixlens.runs.corpus.run", stopped)
    result = runner.invoke(cli.app, "run d --out o")
    assert (result.exit_code, result.stderr) == (
        130,
        "mixlens: stopped. What is in o is safe: the same command goes on.\n",
    )

    def warns(*_: Any, **__: Any) -> running.Run:
        warnings.warn("row \x1b was left out", stacklevel=2)
        return running.Run(Path("o"), 1, 0, 1, 0.01)

    monkeypatch.setattr("mixlens.runs.corpus.run", warns)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = warnings.showwarning
        result = invoked("run d --out o")
        assert warnings.showwarning is shown
    assert result.stderr == "mixlens: row \\u001b was left out\n"
    assert result.stdout == "1 rows in o/shards (1 done now, 100 a second)\n"


@pytest.mark.parametrize(
    ("rows", "seconds", "told"),
    [
        (10, 1.0, "10 a second"),
        (8, 1.0, "8.0 a second"),
        (4, 4.0, "1.0 a second"),
        (2, 3.0, "1.5 s each"),
        (300, 2.0, "150 a second"),
    ],
)
def test_rates(rows: int, seconds: float, told: str) -> None:
    assert runs.rate_of(rows, seconds) == told


def test_summarize(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Recorder(SimpleNamespace(json=lambda: "{}", text=lambda: "text"))
    monkeypatch.setattr("mixlens.runs.corpus.summarize", record)
    assert invoked("summarize o").stdout == "text\n"
    assert invoked("summarize o --top 1 --classes 2 --least-rows 3 --json").stdout == "{}\n"
    given = [{"top": 8, "classes": 8, "least_rows": 5}, {"top": 1, "classes": 2, "least_rows": 3}]
    assert record.calls == [((Path("o"),), each) for each in given]
    assert runner.invoke(cli.app, "summarize o --least-rows 0").exit_code == 2
    assert runner.invoke(cli.app, "summarize o --top 0").exit_code == 2
    assert runner.invoke(cli.app, "summarize o --classes 0").exit_code == 2


# --- judge, experiment, reproduce -------------------------------------------------------------------------------------


def test_judge_hands_over_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Recorder("verdict")
    monkeypatch.setattr("mixlens.runs.judge.judge.judge_text", record)
    assert invoked("judge m").stdout == "verdict\n"
    usual = {
        **{
            "text": None,
            "methods": "all",
            "metrics": "faithfulness",
            "n": 50,
            "out": None,
            "seed": 0,
            "leave_out": False,
        },
        **{
            "explains": "measured",
            "ranking": "default",
            "unit": "token",
            "draws": 5,
            "infill": None,
            "full": False,
            "width": 120,
        },
        **{"loading": LOADED, "text_field": None, "pair_field": None, "label_field": None},
    }
    assert record.calls == [(("m", None), usual)]
    words = ["--methods", "peers", "--metrics", "cues", "--n", "3", "--out", "o", "--seed", "4", "--leave-out"]
    words += ["--explains", "logit", "--ranking", "signed", "--unit", "word", "--draws", "6", "--infill", "i", "--full"]
    invoked("judge m d", *words, "--text-field", "a", "--pair-field", "b", "--label-field", "c", *LOADING)
    given = {
        **{"text": None, "methods": "peers", "metrics": "cues", "n": 3, "out": Path("o"), "seed": 4, "leave_out": True},
        **{
            "explains": "logit",
            "ranking": "signed",
            "unit": "word",
            "draws": 6,
            "infill": "i",
            "full": True,
            "width": 120,
        },
        **{"loading": ASKED, "text_field": "a", "pair_field": "b", "label_field": "c"},
    }
    assert record.calls[1] == (("m", "d"), given)
    invoked("judge m --text t")
    assert record.calls[2] == (("m", None), {**usual, "text": "t"})
    assert refused("judge m --text t --n 7") == (
        "--text is one text, and --n 7 draws from DATA. Leave one of them out."
    )
    first = "judge takes the model first: mixlens judge 'a b' DATA, or for one text mixlens judge 'a b' --text '...'."
    assert refused("judge 'A dull film.' -m 'a b'") == refused("judge --text t --model 'a b'") == first


def test_experiment_hands_over_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Recorder("told")
    monkeypatch.setattr("mixlens.runs.experiments.command.experiment_text", record)
    assert invoked("experiment").stdout == "told\n"
    usual = {
        **{
            "options": (),
            "model": None,
            "data": None,
            "n": None,
            "out": None,
            "methods": None,
            "seed": 0,
            "first": False,
        },
        **{
            "leave_out": False,
            "truncate": False,
            "split": None,
            "labels": record.calls[0][1]["labels"],
            "loading": LOADED,
        },
        "width": 120,
    }
    assert record.calls == [((None,), usual)]
    assert not usual["labels"]
    words = ["--model", "m", "--data", "d", "--n", "3", "--first", "--out", "o", "--methods", "alti", "--seed", "4"]
    words += ["--leave-out", "--truncate", "--option", "k=v", "--split", "s", "--labels", "negative=0,positive=1"]
    invoked("experiment name", *words, *LOADING)
    given = {
        **{
            "options": ["k=v"],
            "model": "m",
            "data": "d",
            "n": 3,
            "out": Path("o"),
            "methods": "alti",
            "seed": 4,
            "first": True,
        },
        **{"leave_out": True, "truncate": True, "split": "s", "labels": record.calls[1][1]["labels"], "loading": ASKED},
        "width": 120,
    }
    assert record.calls[1] == (("name",), given)
    assert given["labels"]
    invoked("experiment name --model m --model n")
    assert record.calls[2][1]["model"] == ["m", "n"]


def test_reproduce_hands_over_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(paper: Any, *, said: Any, **named: Any) -> str:
        said("a step")
        calls.append((paper, named))
        return "text"

    calls: list[Any] = []
    monkeypatch.setattr("mixlens.runs.experiments.command.reproduce_text", told)
    result = invoked("reproduce")
    assert (result.stdout, result.stderr) == ("text\n", "mixlens: a step\n")
    usual = {"models": {}, "data": {}, "out": None, "fast": False, "only": None, "seed": 0, "sizes": {}, "options": {}}
    usual["loading"] = LOADED
    assert calls == [(None, usual)]
    words = [
        "--model",
        "sst2=m",
        "--data",
        "sst2=f",
        "--out",
        "o",
        "--fast",
        "--only",
        "a",
        "--size",
        "a=3",
        "--seed",
        "4",
    ]
    words += ["--option", "a:k=[1, 2]"]
    invoked("reproduce alti", *words, *LOADING)
    given = {"models": {"sst2": "m"}, "data": {"sst2": "f"}, "out": Path("o"), "fast": True, "only": ["a"], "seed": 4}
    assert calls[1] == ("alti", {**given, "sizes": {"a": 3}, "options": {"a": {"k": [1, 2]}}, "loading": ASKED})
    invoked("reproduce alti --model m")
    assert calls[2][1]["models"] == "m"
    invoked("reproduce alti --model a=b --model c=d")
    assert calls[3][1]["models"] == {"a": "b", "c": "d"}


def test_the_help_of_an_experiment_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("mixlens.runs.experiments.experiment")
    monkeypatch.setattr(module, "known", lambda: {"mine": "the experiment"})
    monkeypatch.setattr(
        "mixlens.runs.experiments.command.help_text", lambda experiment: f"About {experiment}.\nSecond line."
    )
    out = invoked("experiment mine --help").stdout
    assert "\nAbout the experiment.\nSecond line.\n" in out
    assert "About" not in invoked("experiment other -h").stdout
    assert "About" not in invoked("experiment --help").stdout


# --- report and serve -------------------------------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """`report` of the library, which writes a file of 12,345 bytes."""
    record = Recorder()

    def write(what: Any, path: Path, **named: Any) -> None:
        record(what, path, **named)
        path.write_bytes(b"x" * 12_345)

    monkeypatch.setattr(importlib.import_module("mixlens.show.report"), "report", write)
    monkeypatch.setattr(
        options.LoadOptions,
        "load",
        lambda self, name: SimpleNamespace(task="classification", name=name, of=self, encode=lambda text: text),
    )
    monkeypatch.setattr(pages, "tell_notices", lambda lens, reads, query: None)
    return record


def test_a_report_of_texts(written: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoked("report 'a text'").stdout == "report.html (0.01 MB)\n"
    ((lens, path), named), *_ = written.calls
    assert (lens.name, lens.of, path) == ("agreement", options.LoadOptions(), Path("report.html"))
    usual = {"texts": ["a text"], "methods": None, "preset": None, "target": "predicted", "foil": None, "query": None}
    assert named == {**usual, "title": None, "megabytes": 2.0, "force": False}
    (tmp_path / "report.html").unlink()
    words = ["--pair", "q", "--methods", "alti,attcat", "--model", "m", "--target", "3", "--foil", "1", "--query", "w"]
    words += ["--preset", "flow", "--title", "T", "--megabytes", "1.5", "--force", "-o", "p.html", "--dtype", "float64"]
    invoked("report 'a text'", *words)
    (lens, path), named = written.calls[1]
    assert (lens.name, lens.of, path) == ("m", options.LoadOptions(dtype="float64"), Path("p.html"))
    assert named.pop("methods") is not None
    given = {"texts": [("a text", "q")], "preset": "flow", "target": 3, "foil": 1, "query": "w"}
    assert named == {**given, "title": "T", "megabytes": 1.5, "force": True}
    (tmp_path / "p.html").unlink()
    invoked("report 'a text' 'and another' -o p.html")
    assert written.calls[2][1]["texts"] == ["a text", "and another"]


def test_a_report_of_a_run_and_of_saved_results(
    written: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    invoked("report run -o a.html --label gold --examples 0 --title T")
    page = {"title": "T", "megabytes": 2.0, "force": False}
    assert written.calls == [((Path("run"), Path("a.html")), {"label": "gold", "examples": 0, **page})]
    monkeypatch.setattr("mixlens.scoring.saving.load_result", lambda file: f"result of {file}")
    invoked("report --from x.json --from y.json -o b.html")
    assert written.calls[1] == ((["result of x.json", "result of y.json"], Path("b.html")), {**page, "title": None})
    for option in (
        ["--from", "x.json"],
        ["--methods", "alti"],
        ["--target", "a"],
        ["--foil", "a"],
        ["--query", "a"],
        ["--pair", "a"],
    ):
        assert refused("report run -o c.html", *option).startswith("a run is shown as it is: leave --from, --methods")
    for option in (["a text"], ["--methods", "alti"], ["--preset", "why"]):
        assert refused("report --from x.json -o c.html", *option).startswith("--from shows saved results as they are:")
    for option in (["--label", "x"], ["--examples", "3"]):
        assert refused("report 'a text' -o c.html", *option) == "--label and --examples are for the folder of a run."
    assert (
        refused("report -o c.html")
        == "give at least one text, --messages, the folder of a run, or --from with a saved result."
    )
    assert refused("report 'a b' 'c d' --pair 'x y' -o c.html") == "--pair goes with one text, not with 2."
    assert refused("report run 'a b' -o c.html") == "'run' is a folder, and a report shows one run: give it alone."
    assert refused("report no/run -o c.html").startswith(
        "there is no folder 'no/run'. Give the folder of a run, or texts"
    )
    assert len(written.calls) == 2
    assert invoked("report 'and/or not' -o c.html").stderr == ""
    result = invoked("report word -o d.html")
    assert (
        result.stderr
        == "mixlens: 'word' is no folder, so it is shown as a text of one word. For a run give its folder.\n"
    )
    assert written.calls[-1][1]["texts"] == ["word"]


def test_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    served = pytest.importorskip("mixlens.serve.app")
    record = Recorder()
    monkeypatch.setattr(served, "run", record)
    monkeypatch.setattr(options.LoadOptions, "load", lambda self, name: (name, self.dtype))
    invoked("serve")
    usual = {
        "host": "127.0.0.1",
        "port": 8765,
        "allowed": (),
        "limits": served.Limits(tokens=512, queue=8, seconds=120.0),
    }
    assert record.calls == [(([("agreement", None), ("sentiment", None)],), usual)]
    words = [
        "--model",
        "b",
        "--model",
        "a",
        "--model",
        "b",
        "--host",
        "h",
        "--port",
        "0",
        "--allow-host",
        "x",
        "--allow-host",
        "y",
    ]
    invoked("serve", *words, "--max-tokens", "3", "--queue", "2", "--time-limit", "1.5", "--dtype", "float64")
    given = {"host": "h", "port": 0, "allowed": ("x", "y"), "limits": served.Limits(tokens=3, queue=2, seconds=1.5)}
    assert record.calls[1] == (([("b", "float64"), ("a", "float64")],), given)
    for words in (
        ["--port", "65536"],
        ["--port", "-1"],
        ["--max-tokens", "0"],
        ["--queue", "0"],
        ["--time-limit", "0.05"],
    ):
        assert runner.invoke(cli.app, ["serve", *words]).exit_code == 2
    assert len(record.calls) == 2


# --- why --------------------------------------------------------------------------------------------------------------


def test_why_hands_over_every_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = SimpleNamespace(
        **{"to_csv": Recorder(), "report": Recorder(), "show": Recorder(), "to_json": lambda: '{"a": "ä"}'},
        to_dict=lambda: {"a": "ä"},
    )
    record = Recorder(answer)
    monkeypatch.setattr(importlib.import_module("mixlens.answers"), "why", record)
    loads: list[Any] = []
    lens = SimpleNamespace(task="classification", tokenizer=None)
    monkeypatch.setattr(options.LoadOptions, "load", lambda self, name: loads.append((name, self)) or lens)
    invoked("why 'a text'")
    (given, named), *_ = record.calls
    assert given == (lens, "a text")
    assert callable(named.pop("progress"))
    usual = {"pair": None, "target": None, "foil": None, "query": None, "method": None, "methods": None, "filler": None}
    assert named == {**usual, "draws": 20, "seed": 0, "truncate": False}
    assert (answer.show.calls, answer.to_csv.calls, answer.report.calls) == ([((), {"color": True})], [], [])
    table, page = tmp_path / "w.csv", tmp_path / "w.html"
    words = [
        "-m",
        "m",
        "--pair",
        "p",
        "--target",
        "1",
        "--foil",
        "bad",
        "--query",
        "w",
        "--method",
        "attcat",
        "--methods",
        "alti, cat",
    ]
    words += [
        "--filler",
        "mask",
        "--draws",
        "3",
        "--seed",
        "4",
        "--truncate",
        "--csv",
        str(table),
        "-o",
        str(page),
        "--force",
    ]
    invoked("why 'a text'", *words, "--no-color", "--dtype", "float64")
    (given, named) = record.calls[1]
    del named["progress"]
    asked = {
        "pair": "p",
        "target": 1,
        "foil": "bad",
        "query": "w",
        "method": "attcat",
        "methods": ["alti", "cat"],
        "filler": "mask",
    }
    assert named == {**asked, "draws": 3, "seed": 4, "truncate": True}
    assert loads == [("sentiment", options.LoadOptions()), ("m", options.LoadOptions(dtype="float64"))]
    assert answer.to_csv.calls == [((table,), {"force": True})]
    assert answer.report.calls == [((page,), {"force": True})]
    assert answer.show.calls[1:] == [((), {"color": False})]
    assert json.loads(invoked("why 'a text' --json").stdout) == {"a": "ä"}
    assert len(answer.show.calls) == 2
    message = f"no folder {str(tmp_path / 'none')!r} to write 'w.csv' in."
    assert refused("why 'a text' --csv", str(tmp_path / "none" / "w.csv")) == message
    assert refused("why 'a text' --generate 3").endswith(
        "For a text that the model writes: mixlens explain --generate 3."
    )
    assert refused("why 'a text' --method nope").startswith("unknown method 'nope'")
    page.write_text("mine")
    assert str(page) in refused("why 'a text' -o", str(page))


# --- explain, with a model that writes --------------------------------------------------------------------------------


class Written(list[Any]):
    """What was written; of it, what is left without words."""

    def __init__(self) -> None:
        super().__init__()
        self.save, self.to_csv, self.report, self.show, self.effects = Recorder(), Recorder(), Recorder(), Recorder(), 0

    def with_effects(self) -> Written:
        self.effects += 1
        return self


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Any:
    lens = SimpleNamespace(task="causal-lm", tokenizer=None, explain=Recorder(), loads=[])

    def loaded(self: Any, name: str) -> Any:
        lens.loads.append((name, self))
        lens.explain.answer = Written()
        return lens, {}

    monkeypatch.setattr(options.LoadOptions, "timed_load", loaded)
    return lens


def test_explain_of_a_written_text(writer: Any, tmp_path: Path) -> None:
    invoked("explain 'a text' --generate 3")
    shared = {"keep_special": True, "generate": 3, "continuation": None, "variant": None}
    assert writer.explain.calls == [(("a text",), {"method": "alti", **shared})]
    answer = writer.explain.answer
    assert (answer.effects, answer.show.calls, answer.save.calls, answer.report.calls) == (
        0,
        [((), {"by": None, "effects": False, "color": True})],
        [],
        [],
    )
    words = ["--continuation", "two words", "--method", "attcat", "--foil", "6", "--score", "probability"]
    invoked("explain 'a text'", *words, "--no-special", "--leave-out", "--no-color", "--save", str(tmp_path / "a.CSV"))
    asked = {"method": "attcat", "keep_special": False, "generate": None, "continuation": "two words", "variant": None}
    assert writer.explain.calls[1] == (("a text",), {**asked, "target": "predicted", "foil": 6, "score": "probability"})
    answer = writer.explain.answer
    assert (answer.effects, answer.to_csv.calls, answer.save.calls) == (
        1,
        [((tmp_path / "a.CSV",), {"force": False})],
        [],
    )
    assert answer.show.calls == [((), {"by": "sentence", "effects": True, "color": False})]
    page = tmp_path / "p.html"
    invoked("explain 'a text' --generate 2 -o", str(page), "--save", str(tmp_path / "a.json"), "--each")
    answer = writer.explain.answer
    assert (answer.effects, answer.report.calls, answer.show.calls) == (1, [((page,), {"force": False})], [])
    assert (answer.save.calls, answer.to_csv.calls) == ([((tmp_path / "a.json",), {"force": False})], [])
    assert writer.loads[0] == ("agreement", options.LoadOptions())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--leave-out"], "--leave-out is for a written text: give --generate N or --continuation TEXT too."),
        (["--each"], "--each is for a written text: give --generate N or --continuation TEXT too."),
        (["--out", "new.html"], "--out is for a written text: give --generate N or --continuation TEXT too."),
        (
            ["--generate", "2", "--save", "x.safetensors"],
            "--save of a written text is a .json or .csv file, not 'x.safetensors'.",
        ),
        (["--latex", "--json"], "--latex and --json are two ways to print the result. Leave one out."),
        (
            ["--layers", "--json"],
            PICTURES,
        ),
        (
            ["--map", "1", "--latex"],
            PICTURES,
        ),
        (
            ["--layers", "--generate", "1"],
            PICTURES,
        ),
        (
            ["--method", "attcat", "--map", "1"],
            "'attcat' gives scores of tokens, no map. Leave --map out, or see `mixlens methods` for maps.",
        ),
        (
            ["--messages", "m.json"],
            "--messages holds the whole conversation: leave the text, --file and --chat out.",
        ),
    ],
)
def test_what_explain_refuses_before_it_loads(writer: Any, words: list[str], told: str) -> None:
    assert refused("explain 'a text'", *words) == told
    assert writer.loads == []


# --- options of loading -----------------------------------------------------------------------------------------------


def test_what_is_handed_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Recorder(SimpleNamespace(proof=None))
    monkeypatch.setattr("mixlens.model.loading.load", record)
    monkeypatch.setattr("mixlens.layer.proof.check", lambda lens: "proven")
    over: list[bool] = []
    monkeypatch.setattr(group, "loaded", lambda: over.append(True))
    loading = options.LoadOptions(device_map=' {"a": 0}', max_memory="0=20GiB, cpu = 60GiB", offload_folder=Path("f"))
    lens, seconds = loading.timed_load("m")
    large = {"device_map": {"a": 0}, "max_memory": {0: "20GiB", "cpu": "60GiB"}, "offload_folder": Path("f")}
    assert record.calls == [(("m",), {"check": False, **LOADED, **large})]
    assert (lens.proof, list(seconds), over) == ("proven", ["weights", "model check"], [True])
    assert all(0 <= value < 60 for value in seconds.values())
    record.answer = SimpleNamespace(proof=None)
    assert options.LoadOptions().load("m", check=False).proof is None
    assert options.LoadOptions().load("m").proof == "proven"
    assert options.LoadOptions(device_map="auto").arguments()["device_map"] == "auto"
    for written in ("0", "=1", "0=1,", "a="):
        with pytest.raises(errors.InputError, match=r"^--max-memory is device=size with commas between them"):
            options.LoadOptions(max_memory=written).arguments()
    with pytest.raises(errors.InputError) as told:
        options.LoadOptions(device_map="{x").arguments()
    assert str(told.value) == """--device-map is a word or JSON as {"module": device}, not '{x'."""


def test_layers_are_counted_from_one() -> None:
    lens = SimpleNamespace(n_layers=3, name="m")
    assert [options.layer_index(lens, layer) for layer in (1, 3, -1, -3)] == [0, 2, -1, -3]
    for layer in (0, 4, -4):
        with pytest.raises(errors.InputError) as told:
            options.layer_index(lens, layer)
        assert str(told.value) == f"layer {layer} does not exist: 'm' has layers 1 to 3, or -1 for the last."
    assert options.input_of("a", None, None) == "a"
    assert options.input_of("a", None, "b") == ("a", "b")


# --- errors in the words of the command line --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("give query=WORD.", "give --query WORD."),
        ("leave device_map= out", "leave --device-map out"),
        ("take task='classification'", "take --task classification"),
        ("target=(1, 2) is", "--target 1,2 is"),
        ("with nothing=1 in", "with nothing=1 in"),
        ("replacement='delete' is", "--method blank_out:replacement=delete is"),
        ("replacement= is", "replacement= is"),
        ("query=...", "--query ..."),
    ],
)
def test_errors_in_the_words_of_the_command_line(message: str, told: str) -> None:
    names = ["query", "device_map", "task", "target", "method", "methods"]
    assert group.as_written(message, names, ["alti, blank_out:x=1"]) == told


def test_the_flag_of_methods() -> None:
    assert group.as_written("replacement='pad'", ["methods"], ["blank_out"]) == "--methods blank_out:replacement=pad"
    assert group.as_written("replacement='pad'", [], ["blank_out"]) == "--method blank_out:replacement=pad"
    assert group.as_written("replacement='pad'", ["methods"], ["unknown"]) == "replacement='pad'"
    assert group.as_written("replacement='pad'", ["methods"]) == "replacement='pad'"


def test_an_error_keeps_its_kind() -> None:
    class OwnError(errors.InputError):
        pass

    command = SimpleNamespace(
        name="methods",
        params=[SimpleNamespace(name="query", opts=["--query", "-q"]), SimpleNamespace(name="text", opts=["text"])],
    )
    ctx = SimpleNamespace(params={"method": None, "methods": ["x"]})
    for kind, raised in (
        (errors.InputError, errors.InputError),
        (errors.ModelError, errors.ModelError),
        (errors.ResultError, errors.ResultError),
        (OwnError, mixlens.MixlensError),
    ):

        def fails(_: Any, kind: Any = kind) -> None:
            raise kind("query=X and text=Y")

        with pytest.raises(mixlens.MixlensError) as told:
            group.with_its_words(command, fails)(ctx)
        assert (type(told.value), str(told.value)) == (raised, "--query X and text=Y")

    def same(_: Any) -> None:
        raise OwnError("no option")

    with pytest.raises(OwnError):
        group.with_its_words(command, same)(ctx)
    assert group.with_its_words(command, lambda ctx: ctx)(7) == 7


# --- waiting ----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def wait_for(happened: Callable[[], bool]) -> None:
    """Until it happened; a spinner that does not turn fails after half a minute instead of never."""
    for _ in range(30_000):
        if happened():
            return
        time.sleep(0.001)
    pytest.fail("the spinner does not turn")


def test_a_spinner_turns_and_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(waiting, "TICK", 0.001)
    with waiting.Spinner("first", patience=0.0) as spinner:
        wait_for(lambda: out.getvalue().count(waiting.ERASE) >= 3)
        spinner.tell("second")
        wait_for(lambda: "second" in out.getvalue())
    text = out.getvalue()
    assert text.startswith("\r\x1b[K⠋ mixlens: first\r\x1b[K⠙ mixlens: first")
    assert text.endswith("mixlens: second\r\x1b[K")
    spinner.end()
    assert out.getvalue() == text
    spinner._draw("x")
    assert out.getvalue() == text


def test_a_long_wait_without_a_terminal_is_told_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(waiting, "TICK", 0.001)
    with group.working("short"):
        pass
    assert out.getvalue() == ""  # two seconds have not passed
    monkeypatch.setattr(waiting, "SLOW", 0.0)
    with group.working("first") as tell:
        wait_for(lambda: "first" in out.getvalue())
        tell("second")
        wait_for(lambda: "second" in out.getvalue())
    assert (
        out.getvalue() == "mixlens: first (0 s)\nmixlens: second (0 s)\n"
    )  # a step is told once, and again after ten seconds
    monkeypatch.setattr(waiting, "OFTEN", 0.0)
    with group.working("third"):
        wait_for(lambda: out.getvalue().count("third") >= 3)


def test_a_spinner_says_nothing_where_no_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert waiting.Spinner("x")._thread is not None
    assert waiting.Spinner("x", shown=True)._thread is not None
    assert waiting.Spinner("x", shown=False)._thread is None
    assert waiting.Spinner("x")._thread.daemon  # type: ignore[union-attr]
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        assert not waiting.has_terminal()
        assert waiting.Spinner("x", shown=True)._thread is None
        assert (waiting.Spinner("x", lines=True)._thread is None) == (stream is None)
        assert waiting.Spinner("x")._thread is None
    assert waiting.line_of("/", "step", 1.99) == "/ mixlens: step"
    assert waiting.line_of("/", "step", 2.0) == "/ mixlens: step (2 s)"


@pytest.mark.parametrize(("command", "quick"), [("explain", True), ("methods", False), (None, False)])
def test_garbage_waits_until_a_model_is_loaded(command: str | None, quick: bool) -> None:
    assert gc.isenabled()
    with group.Loading(command) as loading:
        assert (gc.isenabled(), loading in group.LOADING) == (not quick, True)
        group.loaded()
        assert gc.isenabled()
        assert (gc.get_freeze_count() > 0) is quick
    assert (gc.isenabled(), gc.get_freeze_count(), group.LOADING) == (True, 0, [])
    with group.Loading(command):
        pass
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, 0)


# --- figures ----------------------------------------------------------------------------------------------------------


def request(*, is_map: bool = True, **more: Any) -> Any:
    return SimpleNamespace(**{"is_map": is_map, "class_specific": not is_map, "rollout": None, "options": {}, **more})


# --- explain, map and compare: steps ----------------------------------------------------------------------------------


def result_of(method: str = "alti", **info: Any) -> Any:
    return SimpleNamespace(method=method, tokens=("a", "\x1b", "ä"), scores=torch.tensor([0.5, 0.25, 0.25]), info=info)


def test_json_of_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    explaining.print_json(result_of(values=torch.tensor([1.0]), name="n"))
    out = capsys.readouterr().out
    assert out == (
        '{"method": "alti", "tokens": ["a", "\\u001b", "ä"], "scores": [0.5, 0.25, 0.25], '
        '"info": {"values": [1.0], "name": "n"}}\n'
    )


def test_json_shows_what_a_terminal_would_hide(capsys: pytest.CaptureFixture[str]) -> None:
    explaining.print_json(SimpleNamespace(method="m", tokens=("\u200b",), scores=torch.zeros(1), info={}))  # type: ignore[arg-type]
    assert capsys.readouterr().out == '{"method": "m", "tokens": ["\\u200b"], "scores": [0.0], "info": {}}\n'


def test_json_for_a_terminal_that_lacks_a_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    explaining.print_json(result_of())
    out.flush()
    assert b'"\\u00e4"' in out.buffer.getvalue()  # type: ignore[attr-defined]
