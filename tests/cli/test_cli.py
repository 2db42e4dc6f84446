"""The command line as a user types it: pictures, JSON, files, and one-line errors with exit code 2."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import mixlens
from mixlens import cli

SENTENCE = "The keys to the cabinet [MASK] rusty."
runner = CliRunner()


def run(line: str, *words: str, columns: int = 120, given: str | None = None) -> str:
    asked = [*shlex.split(line), *words]
    result = runner.invoke(cli.app, asked, env={"COLUMNS": str(columns)}, input=given)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refuse(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["mixlens", *shlex.split(line), *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_explain_shows_model_method_prediction_and_heat_map() -> None:
    out = run("explain --no-color", SENTENCE)
    assert "model agreement · method alti · rollout alti" in out
    predicted = re.search(r"predicts  (\w+) ([\d.]+)%", out)
    assert predicted is not None
    assert predicted[1] in {"are", "were"}
    assert "explains  [MASK]" in out
    assert re.search(r"keys\s+\d+ %\s+█+", out)


def test_explain_json_is_what_the_library_gives() -> None:
    told = json.loads(run("explain --method globenc --json", SENTENCE))
    read = mixlens.load("agreement").explain(SENTENCE, method="globenc")
    assert told["tokens"] == list(read.tokens)
    assert told["scores"] == pytest.approx(read.scores.tolist(), rel=1e-5)
    assert told["info"]["query_token"] == "[MASK]"
    assert told["info"]["rollout"]["convention"] == "globenc"


def test_save_and_words_and_special(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    run("explain", SENTENCE, "--save", str(path), "--no-special", "--words", "--query", "keys")
    back = mixlens.load_result(path)
    assert "[CLS]" not in back.tokens
    assert back.info["query_token"] == "keys"
    assert float(back.scores.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("query", ["3", "-1", "cabinet"])
def test_a_query_is_a_token_or_an_index(query: str) -> None:
    told = json.loads(run("explain", SENTENCE, "--target", query, "--json"))
    assert told["info"]["query"] in {3, len(told["tokens"]) - 1, told["tokens"].index("cabinet")}


def test_map_shows_one_layer() -> None:
    out = run("map --layer 3 --method value_zeroing --no-color", SENTENCE)
    assert "after layer 3" in out
    told = json.loads(run("map --layer 3 --method value_zeroing --json", SENTENCE))
    scores = torch.tensor(told["scores"])
    assert scores.shape[0] == mixlens.load("agreement").n_layers
    torch.testing.assert_close(scores.sum(-1), torch.ones(scores.shape[:2]), rtol=1e-4, atol=1e-4)


def test_compare_runs_several_methods() -> None:
    out = run("compare --methods attention,alti,random --no-color", SENTENCE)
    assert [line.split()[0] for line in out.splitlines() if line.startswith((" attention", " alti", " random"))] == [
        "attention",
        "alti",
        "random",
    ]


def test_methods_and_families_list_what_there_is() -> None:
    out = run("methods")
    assert all(name in out for name in mixlens.methods())
    out = run("families")
    assert all(name in out.replace("\n", " ") for name in ("bert", "gpt_neox", "gemma2", "olmo2"))


def test_check_prints_every_gap() -> None:
    out = run("check agreement --dtype float64")
    assert out.count("ok ") == len(mixlens.load("agreement").proof.gaps)
    assert "FAILS" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("explain --method alit", SENTENCE),
            "unknown method 'alit'. Did you mean 'alti'? `mixlens methods` lists all.",
        ),
        (("explain '' --model agreement",), "the text is empty"),
        (("explain", "   "), "the text is empty"),
        (("explain --model no-such/model", SENTENCE), "cannot load 'no-such/model'"),
        (("explain --query locks", SENTENCE), "no token 'locks'"),
        (("explain", "[MASK] keys [MASK] rusty."), "2 mask tokens, at [1, 3]"),
        (("explain --query 99", SENTENCE), "out of range"),
        (("explain", "key " * 600), "reads at most"),
        (("explain --dtype int4", SENTENCE), "unknown dtype 'int4'"),
        (("explain --variant pape", SENTENCE), "Did you mean 'paper'"),
        (("explain --save x.txt", SENTENCE), "saved as .safetensors"),
        (("map --layer 9", SENTENCE), "layer 9 does not exist"),
        (("map --layer 0", SENTENCE), "layer 0 does not exist"),
        (("compare --methods alti,nope", SENTENCE), "unknown method 'nope'"),
        (("compare --methods ,", SENTENCE), "no method was asked for"),
        (("check", "/no/such/folder"), "no model folder"),
        (("explain --map 9", SENTENCE), "layer 9 does not exist"),
        (("explain --method attcat --map 1", SENTENCE), "gives scores of tokens, no map"),
        (("explain --method blank_out --layers", SENTENCE), "not defined at single layers"),
        (("explain --layers --json", SENTENCE), "leave --generate, --continuation, --json and --latex out"),
        (("explain --latex --json", SENTENCE), "Leave one out"),
        (("compare --latex --json", SENTENCE), "Leave one out"),
        (("plot -o x.gif", SENTENCE), "saved as .svg, .pdf, .png, not 'x.gif'"),
        (("plot -o no/such/x.svg", SENTENCE), "no folder 'no/such'"),
        (("plot -o x.svg --kind matrx", SENTENCE), "unknown kind 'matrx'. Did you mean 'matrix'"),
        (("plot -o x.svg --kind matrix --method attcat", SENTENCE), "is drawn of a map"),
        (("plot -o x.svg --kind rows", SENTENCE), "an Attribution cannot be drawn as 'rows'"),
        (("plot -o x.svg --layer 2", SENTENCE), "are for maps"),
        (("plot -o x.svg --kind matrix --layer 7", SENTENCE), "layer 7 does not exist"),
        (("plot -o x.svg --width broad", SENTENCE), "unknown width 'broad'"),
        (("plot -o x.svg --kind grid --no-special", SENTENCE), "leaves tokens out of a row"),
        (("plot -o x.svg --foil was", SENTENCE), "leave --foil and --score out"),
        (("plot -o x.svg --method nope", SENTENCE), "unknown method 'nope'"),
    ],
)
def test_errors_are_one_line(
    arguments: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    assert message in refuse(capsys, monkeypatch, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_the_installed_command_prints_no_traceback() -> None:
    command = [sys.executable, "-m", "mixlens", "explain", "", "--model", "agreement"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "mixlens: the text is empty. Give at least one word.\n"
    assert done.stdout == ""


def test_check_shows_the_gaps_of_a_model_that_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from mixlens.model import families

    monkeypatch.setattr("mixlens.model.loading.find", lambda config: replace(families.BERT, norm_after_mlp=None))
    monkeypatch.setattr(sys, "argv", ["mixlens", "check", "agreement"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    told = capsys.readouterr()
    assert end.value.code == 2
    assert "FAILS" in told.out
    assert re.fullmatch(r"mixlens: \d of \d+ identities do not hold on 'agreement'.\n", told.err)


def test_every_command_has_help() -> None:
    for command in ("explain", "map", "compare", "plot", "methods", "families", "check", "data", "experiment", "judge"):
        assert "Usage:" in run(command, "--help")
    for command in ("explain", "map", "compare", "check"):
        assert "Example:" in run(command, "--help")


def test_explain_by_layer_and_with_a_map() -> None:
    out = run("explain --layers --no-color", SENTENCE)
    rolled = mixlens.mix(mixlens.load("agreement").trace(SENTENCE), "alti").rollout()
    for number in range(4):
        row = rolled.scores[number, 6]
        shares = [f"{100 * share:.0f}" for share in (row / row.max()).tolist()]
        line = next(line for line in out.splitlines() if line.startswith(f" layer {number + 1} "))
        assert line.split()[2:] == shares
    assert "predicts  are" in out
    by_gradient = run("explain --layers --method grad_x_input --target were --no-special", SENTENCE)
    assert [line.split("  ")[0] for line in by_gradient.splitlines() if line.startswith((" input", " after"))] == [
        " input",
        *(f" after {number}" for number in range(1, 5)),
    ]
    with_map = run("explain --map 2 --no-color", SENTENCE)
    assert with_map.endswith("\n" + run("map --layer 2 --no-color", SENTENCE))
    assert run("explain --top 2", SENTENCE).splitlines()[-2].split()[1] == "rusty"


def test_latex_is_what_the_library_gives() -> None:
    read = mixlens.load("agreement").explain(SENTENCE, method="attcat", target="were", foil="was")
    assert run("explain --method attcat --target were --foil was --latex", SENTENCE) == read.to_latex()
    assert run("compare --latex", SENTENCE).count("tabularnewline") == 4


@pytest.mark.parametrize(
    ("arguments", "images"),
    [
        ((), 1),
        (("--method", "attcat", "--target", "were", "--foil", "was", "--kind", "bars", "--top", "3"), 0),
        (
            ("--kind", "matrix", "--layer", "2", "--numbers", "--width", "6"),
            1,
        ),  # the cells of words are drawn, the colour bar is an image
        (("--kind", "layers", "--rollout", "--query", "keys"), 2),
        (("--kind", "layers", "--words", "--target", "keys"), 2),
        (("--kind", "grid", "--words"), 5),
        (
            ("--method", "attention,alti,attcat", "--no-special", "--words"),
            3,
        ),  # a colour bar with a sign, and one without
        (("--method", "attention,alti", "--kind", "strip"), 2),
        (("--method", "attention,alti", "--kind", "matrix"), 3),
    ],
)
def test_plot_writes_a_figure(arguments: tuple[str, ...], images: int, tmp_path: Path) -> None:
    place = tmp_path / "x.svg"
    assert run("plot", SENTENCE, "-o", str(place), *arguments) == f"wrote {place}\n"
    page = place.read_text()
    assert page.count("<image") == images  # the heat maps and the colour bar
    assert "keys" in page
    assert [path.name for path in tmp_path.iterdir()] == ["x.svg"]


def test_plot_is_what_the_library_draws(tmp_path: Path) -> None:
    run("plot", SENTENCE, "-o", str(tmp_path / "a.svg"), "--kind", "layers", "--rollout", "--method", "globenc")
    rolled = mixlens.mix(mixlens.load("agreement").trace(SENTENCE), "globenc").rollout()
    rolled.plot(kind="layers", query="[MASK]", save=tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    run("plot", SENTENCE, "-o", str(tmp_path / "c.svg"), "--kind", "matrix", "--layer", "1", "--numbers")
    alti = mixlens.mix(mixlens.load("agreement").trace(SENTENCE), "alti")
    for numbers in (True, None):
        alti.plot(kind="matrix", layer=0, numbers=numbers, save=tmp_path / f"{numbers}.svg")
    assert (
        (tmp_path / "c.svg").read_bytes()
        == (tmp_path / "True.svg").read_bytes()
        != (tmp_path / "None.svg").read_bytes()
    )


def test_plot_keeps_a_file_that_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "x.png"
    place.write_text("mine")
    assert "is there already" in refuse(capsys, monkeypatch, "plot", SENTENCE, "-o", str(place))
    assert place.read_text() == "mine"
    run("plot", SENTENCE, "-o", str(place), "--force")
    assert place.read_bytes().startswith(b"\x89PNG")


def test_nothing_hidden_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an error nor JSON hands a terminal something to obey."""
    told = refuse(capsys, monkeypatch, "explain --method '\x1b[31malti\x9b'", SENTENCE)
    assert told.isprintable()
    out = run("explain 'The keys \x9b31m to \u202e [MASK] rusty.' --json")
    assert out.rstrip("\n").isprintable()
    assert "\x9b" in json.loads(out)["info"]["text"]


def test_timing_says_where_the_time_went() -> None:
    out = run("explain 'The keys to the cabinet [MASK] rusty.' --timing")
    for part in ("load and check", "forward", "proof", "alti", "total"):
        assert part in out
    parts = {
        line.rsplit(maxsplit=2)[0].strip(): float(line.rsplit(maxsplit=2)[1])
        for line in out.splitlines()
        if line.endswith(" ms")
    }
    assert 0 < parts["forward"] + parts["proof"] + parts["alti"] <= parts["total"]
    assert "total" in run("explain 'The keys to the cabinet [MASK] rusty.' --timing --method attcat")


def test_an_experiment_draws_its_examples_whole_unless_it_is_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(
        importlib.import_module("mixlens.runs.experiments.command"),
        "experiment_text",
        lambda *_, **given: asked.append(given) or "made",
    )
    flags = ("first", "leave_out", "truncate")
    assert run("experiment vz-cue-alignment") == run("experiment vz-cue-alignment --first") == "made\n"
    assert [[given[flag] for flag in flags] for given in asked] == [[False] * 3, [True, False, False]]
