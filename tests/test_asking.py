"""What a command can be asked, and that nothing it answers is a dead end or a surprise."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import hf_model
from test_attributions import tokenizer_of
from test_cli import refuse, run

import mixlens
from mixlens import cli
from mixlens.base import errors
from mixlens.base import text as wording
from mixlens.cli import group
from mixlens.scoring import asking, attributions, maps, notices

SENTENCE = "The keys to the cabinet [MASK] rusty."
REVIEW = "A dull, lifeless film that wastes a wonderful cast."


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny causal model in a folder, with a tokenizer that has no mask token."""
    place = tmp_path_factory.mktemp("models") / "causal"
    hf_model("gpt2", head="AutoModelForCausalLM", dtype=torch.float32).save_pretrained(place)
    tokenizer_of("Ġ").save_pretrained(place)
    return str(place)


# --- texts


def test_a_text_from_standard_input_or_a_file(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run("explain --no-color", SENTENCE)
    assert run("explain - --no-color", given=SENTENCE + "\n") == expected
    place = tmp_path / "text.txt"
    place.write_text(SENTENCE + "\r\n", encoding="utf-8-sig", newline="")
    assert run("explain --file", str(place), "--no-color") == expected
    for command in ("map", "compare"):
        assert run(command, "-", "--no-color", given=SENTENCE) == run(command, "--file", str(place), "--no-color")
    run("plot - -o", str(tmp_path / "a.svg"), given=SENTENCE)
    place.write_bytes(b"\xff\xfe\xff")
    assert "is not text in UTF-8" in refuse(capsys, monkeypatch, "explain --file", str(place))
    assert "cannot be read: No such file" in refuse(capsys, monkeypatch, "explain --file", str(tmp_path / "none"))
    for arguments in (("explain",), ("map",), ("compare", SENTENCE, "--file", str(place)), ("plot -o x.svg",)):
        assert "give one text: in quotes, - to read it from standard input, or --file" in refuse(
            capsys, monkeypatch, *arguments
        )


def test_a_report_of_a_text_longer_than_a_file_name(tmp_path: Path) -> None:
    text = "good film " * 30  # 300 characters: no system has names so long
    told = run("report", text, "-m", "sentiment", "--methods", "attcat", "-o", str(tmp_path / "x.html"))
    assert told.startswith(str(tmp_path / "x.html"))
    assert "good film good film" in (tmp_path / "x.html").read_text()
    run("report", text, "good film / " * 25, "-m", "sentiment", "--methods", "attcat", "-o", str(tmp_path / "y.html"))


def test_a_long_path_that_is_no_folder_is_refused_in_one_line(capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    told = refuse(capsys, monkeypatch, "report", "a/" * 300, "-o", str(tmp_path / "x.html"))
    assert "there is no folder 'a/a/" in told
    assert len(told) < 400


# --- methods and their options


def test_every_command_takes_options_of_methods(tmp_path: Path) -> None:
    written = "value_zeroing:distance=euclidean"
    library = mixlens.mix(mixlens.load("agreement").trace(SENTENCE), "value_zeroing", distance="euclidean")
    told = json.loads(run("map", SENTENCE, "--method", written, "--json"))
    torch.testing.assert_close(torch.tensor(told["scores"]), library.scores, rtol=1e-5, atol=1e-7)  # float32
    row = library.rollout().readout("[MASK]").scores.tolist()
    for command in (("explain --method", written), ("compare --methods", written)):
        told = json.loads(run(*command, SENTENCE, "--json"))
        assert told["method"] == "value_zeroing"
        assert told["info"]["options"]["distance"] == "euclidean"
        assert told["scores"] == pytest.approx(row, rel=1e-4)  # products of float32 matrices in two orders
    run("plot", SENTENCE, "--method", f"{written},alti:variant=released", "-o", str(tmp_path / "x.svg"))
    page = (tmp_path / "x.svg").read_text()
    assert "distance=euclidean" in page
    assert "alti:variant=released" in run(
        "compare", SENTENCE, "--methods", f"alti,alti:variant=released,{written}", "--no-color"
    )
    rolled = json.loads(run("explain --method attention:rollout=abnar --json", SENTENCE))
    assert rolled["info"]["rollout"]["convention"] == "abnar"
    by_layer = run("explain", SENTENCE, "--method", written, "--layers", "--no-color")
    last = library.rollout().readout("[MASK]").scores
    shares = [f"{100 * share:.0f}" for share in (last / last.max()).tolist()]
    assert next(line for line in by_layer.splitlines() if line.startswith(" layer 4")).split()[2:] == shares


def test_the_variant_is_said_once(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    both = json.loads(run("explain --method alti:variant=released --variant released --json", SENTENCE))
    assert both["info"]["variant"] == "released"
    told = refuse(capsys, monkeypatch, "explain --method alti:variant=released --variant paper", SENTENCE)
    assert "name two variants" in told
    assert "has no variant 'nope'" in refuse(capsys, monkeypatch, "explain --variant nope", SENTENCE)
    assert "has no option 'distanc'" in refuse(
        capsys, monkeypatch, "compare --methods value_zeroing:distanc=2", SENTENCE
    )
    assert "give --rollout" in refuse(capsys, monkeypatch, "map --method alti:rollout=abnar", SENTENCE)


def test_what_an_error_advises_can_be_typed(causal: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("explain 'the play' -m", causal)
    told = refuse(capsys, monkeypatch, *asked, "--method", "blank_out")
    advised = re.search(r"Use --method (blank_out:replacement=\w+)", told)
    assert advised is not None, told
    run(*asked, "--method", advised[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "[MASK] keys [MASK] rusty."), "Say which one: --query INDEX."),
        (("explain --method attcat", REVIEW), "or give --query."),
        (
            ("explain --task base --method attcat", SENTENCE),
            "Load it with --task, for example --task classification",
        ),
        (("explain --method raw_attention --foil x", SENTENCE), "leave --foil and --score out"),
        (
            ("plot --method raw_attention --score logit -o x.svg", SENTENCE),
            "leave --foil and --score out",
        ),
        (("explain --target gold --method attcat", SENTENCE), "`mixlens run`"),
        (("report --target were -o x.html", SENTENCE), "maps explain a position: give --query."),
    ],
)
def test_errors_name_options_that_are_there(
    arguments: tuple[str, ...], message: str, capsys: Any, monkeypatch: Any
) -> None:
    assert message in refuse(capsys, monkeypatch, *arguments)


def test_an_error_is_left_alone_where_the_command_has_no_such_option() -> None:
    told = "give query=, label=... or target=(start, end); use steps=20 or task='base'."
    assert (
        group.as_written(told, ["query", "target"])
        == "give --query, label=... or --target start,end; use steps=20 or task='base'."
    )
    assert group.as_written(told, []) == told
    assert group.as_written("use text_field=.", ["text_field"]) == "use --text-field."


def test_an_error_that_is_made_of_parts_is_told_too() -> None:
    """The errors of a row are made of file, row and reason: their text can be told in other words, they cannot."""
    from types import SimpleNamespace

    from mixlens import data

    def failing(ctx: Any) -> None:
        raise data.RowError("corpus.csv", 3, "no text: give text_field=.", "line")

    command = SimpleNamespace(name="judge", params=[SimpleNamespace(name="text_field", opts=["--text-field"])])
    with pytest.raises(mixlens.MixlensError, match=r"corpus\.csv.*give --text-field\."):
        group.with_its_words(command, failing)(SimpleNamespace(params={}))


def test_judge_names_fields(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "reviews.csv"
    place.write_text("review,verdict\na good film,1\na bad film,0\n")
    told = refuse(capsys, monkeypatch, "judge sentiment", str(place))
    assert "Name them: --text-field, --pair-field, --label-field." in told
    asked = (
        "--text-field",
        "review",
        "--label-field",
        "verdict",
        "--methods",
        "random,attcat:variant=released,alti",
        "--metrics",
    )
    out = run("judge sentiment", str(place), *asked, "faithfulness", columns=80)
    assert max(len(line.strip()) for line in out.splitlines()) <= 80  # blanks that clear the progress bar are no text
    assert "On these 2 texts" in out
    assert "Caution: 2 texts are few." in out.replace("\n", " ")
    assert "--full" in out
    full = run("judge sentiment", str(place), *asked, "faithfulness", "--full", columns=80)
    assert max(len(line.strip()) for line in full.splitlines()) <= 80
    assert full.count("attcat:variant=released") > 1  # in every block of columns


# --- targets


def test_a_target_of_a_method_that_explains_a_position(
    capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for arguments in (
        ("explain 'a good film' -m sentiment --target negative",),
        ("plot 'a good film' -m sentiment --target negative -o", str(tmp_path / "x.svg")),
        ("explain 'a good film' -m sentiment --method raw_attention --target negative",),
    ):
        told = refuse(capsys, monkeypatch, *arguments)
        assert "explains a position, and no token of the text is 'negative'" in told
        assert "attcat" in told
        assert "deeplift" in told
    told = refuse(capsys, monkeypatch, "map 'a good film' -m sentiment --target negative")
    assert "no token 'negative'." in told
    assert told.endswith("A class is explained by mixlens explain --method deeplift --target negative.")
    told = refuse(capsys, monkeypatch, "compare --target were", SENTENCE)
    assert "explain a position, whatever the class or word: leave --target, --foil and --score out" in told
    told = json.loads(run("explain 'a good film' -m sentiment --method deeplift --target negative --json"))
    assert told["info"]["target"] == "negative"


def test_compare_takes_a_target_and_says_who_explains_what() -> None:
    asked = ("--methods", "alti,attcat", "--target", "were", "--foil", "was")
    lines = [json.loads(line) for line in run("compare", SENTENCE, *asked, "--json").splitlines()]
    trace = mixlens.load("agreement").trace(SENTENCE)
    assert lines[1]["info"]["target"] == "were - was"
    expected = mixlens.attribute(trace, "attcat", target="were", foil="was").scores.tolist()
    assert lines[1]["scores"] == pytest.approx(expected, rel=1e-5, abs=1e-8)  # float32 gradients
    out = run("compare", SENTENCE, *asked, "--no-color")
    assert "explains  [MASK] (position 6): alti\n" in out
    assert "explains  logit of were - was at [MASK] (position 6): attcat\n" in out


def test_a_map_shows_one_row_alone() -> None:
    made = mixlens.mix(mixlens.load("agreement").trace(SENTENCE), "alti").readout("keys", layer=1)
    out = run("map --layer 2 --query keys --no-color", SENTENCE)
    for token, score in zip(made.tokens, made.scores.tolist(), strict=True):
        assert re.search(rf"{re.escape(token)} +{re.escape(wording.percent(score).replace(wording.THIN, ' '))}", out), (
            token
        )


def test_names_that_are_printed_can_be_typed(causal: str) -> None:
    out = run("explain 'the play' --method grad_x_input --no-color -m", causal)
    printed = re.search(r"predicts  (\S+) [\d.]+%   (\S+) ", out)
    target = re.search(r"logit of (\S+) at", out)
    assert printed is not None
    assert target is not None
    predicted = json.loads(run("explain 'the play' --method grad_x_input --json -m", causal))["scores"]
    for name in (printed[1], target[1]):
        again = json.loads(run("explain 'the play' -m", causal, "--method", "grad_x_input", "--target", name, "--json"))
        assert again["scores"] == predicted
    other = json.loads(
        run("explain 'the play' -m", causal, "--method", "grad_x_input", "--target", printed[2], "--json")
    )
    assert other["scores"] != predicted


def test_layers_count_from_both_ends(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    depth = mixlens.load("agreement").n_layers
    for counted, same in ((-1, depth), (-depth, 1)):
        assert run("map", SENTENCE, "--layer", str(counted), "--no-color") == run(
            "map", SENTENCE, "--layer", str(same), "--no-color"
        )
    for wrong in (-depth - 1, 0, depth + 1):
        assert f"layer {wrong} does not exist" in refuse(capsys, monkeypatch, "map", SENTENCE, "--layer", str(wrong))


# --- what is said before the numbers


@pytest.mark.parametrize("command", ["explain", "compare"])
def test_a_text_without_a_mask_is_told_before_the_table(command: str) -> None:
    out = run(command, REVIEW, "--no-color", columns=400)
    lines = out.splitlines()
    table = next(i for i, line in enumerate(lines) if "[CLS]" in line and "note" not in line and "explains" not in line)
    assert any("note: the text has no [MASK]" in line for line in lines[:table])
    assert any("does not know 5 of the 7 words of three letters or more in this text" in line for line in lines[:table])
    assert "no [MASK]" not in run(command, REVIEW, "--query", "1", "--no-color")
    known = run(command, SENTENCE, "--no-color")
    assert "note:" not in known
    assert json.loads(run("explain --json", REVIEW))["info"]["notices"]
    assert "notices" not in json.loads(run("explain --json", SENTENCE))["info"]


def test_a_map_tells_of_words_that_are_not_known() -> None:
    assert "note: the vocabulary of 'agreement' does not know 5 of the 7 words of three letters or more" in run(
        "map --no-color", REVIEW, columns=400
    )
    assert "note:" not in run("map --no-color", SENTENCE)


def test_a_vocabulary_that_knows_the_words_is_not_blamed() -> None:
    """Long words in a few pieces, short words, marks, numbers and Chinese are all well."""
    model = mixlens.load("sentiment")

    class Read:
        input_ids = (1, 2)

        def __init__(self, *words: tuple[str, int]):
            self.words, self.tokens, start = [], [], 0
            for word, pieces in words:
                self.words.append((word, tuple(range(start, start + pieces))))
                self.tokens += ["x"] * pieces
                start += pieces

    def told(*words: tuple[str, int]) -> list[str]:
        return notices.notices_of(model, Read(*words), query=None)  # type: ignore[arg-type]

    assert not told(("incomprehensibilities", 6), ("unhappy", 2), ("a", 1), ("2024", 4), ("电", 1), (".", 1))
    assert not told(("dull", 4), ("film", 1), ("with", 1), ("stars", 1))  # one of four
    assert told(("dull", 4), ("film", 1), ("lifeless", 8))
    assert not told()
    unknown = Read(("dull", 1), ("film", 1))
    unknown.tokens = [model.tokenizer.unk_token, "film"]
    assert notices.notices_of(model, unknown, query=None)  # type: ignore[arg-type]


def test_a_run_tells_of_rows_that_say_little(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.warns(UserWarning, match="the first 2 rows") as found:
        mixlens.run([REVIEW * 2, REVIEW], model="agreement", out=tmp_path / "a", progress=False)
    told = " ".join(str(one.message) for one in found)
    assert "2 of the first 2 rows have no [MASK]" in told
    assert "in the first 2 rows: they are cut into letters" in told
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixlens.run([SENTENCE], model="agreement", out=tmp_path / "b", progress=False)
        mixlens.run(["a good film"], model="sentiment", out=tmp_path / "c", progress=False)
    model = mixlens.load("agreement")
    texts = [model.encode(REVIEW)]
    assert not [one for one in notices.notices_of_corpus(model, texts, query=2, targets=False) if "MASK" in one]
    assert not [one for one in notices.notices_of_corpus(model, texts, query=None, targets=True) if "MASK" in one]


# --- terminals


def printed(monkeypatch: pytest.MonkeyPatch, encoding: str, line: str, *words: str) -> bytes:
    """What the command writes to a terminal of this encoding."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict", newline="\n")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "argv", ["mixlens", *shlex.split(line), *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    out.flush()
    return out.buffer.getvalue()  # type: ignore[attr-defined, no-any-return]


def in_plain_letters(told: str) -> None:
    assert re.search(r"keys +-?0\.\d+ +[#-]+", told)
    assert re.search(r"rusty +-?0\.\d+ +[#-]+", told)
    assert re.search(r"model agreement [·|] method attcat", told)


def test_the_command_prints_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding in ("latin-1", "ascii"):
        told = printed(monkeypatch, encoding, "explain 'The keys [MASK] rusty.' --method attcat")
        in_plain_letters(told.decode(encoding))


def test_the_command_prints_where_the_locale_says_nothing() -> None:
    """A process of its own: what Python makes of such a locale is decided as it starts."""
    command = [sys.executable, "-m", "mixlens", "explain", "The keys [MASK] rusty.", "--method", "attcat"]
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("LANG", "LC_ALL", "PYTHONUTF8", "PYTHONIOENCODING")
    }
    env = {**kept, "HF_HUB_OFFLINE": "1", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    in_plain_letters(done.stdout.decode("latin-1"))


def test_json_is_json_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    told = printed(monkeypatch, "ascii", "explain 'The keys 👩\u200d👧 日本 [MASK] rusty.' --json")
    assert json.loads(told)["info"]["text"] == "The keys 👩‍👧 日本 [MASK] rusty."


@pytest.mark.parametrize("columns", [60, 80, 300])
def test_lists_fit_the_terminal(columns: int) -> None:
    for command in ("methods", "families"):
        out = run(command, columns=columns)
        assert max(map(len, out.splitlines())) <= columns
        assert "…" not in out
    words = " ".join(out.split())
    assert "use_parallel_residual=True" in words
    assert "use_parallel_residual=False" in words
    told = " ".join(run("methods", columns=columns).split())
    for method in (*maps.known().values(), *attributions.known().values()):
        assert " ".join(method.summary.split()) in told


def test_waiting_is_told_of_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        tty = True

        def isatty(self) -> bool:
            return self.tty

    def said(command: str, *, tty: bool, quick: bool = False) -> str:
        out = Terminal()
        out.tty = tty
        monkeypatch.setattr(sys, "stderr", out)
        with group.Loading(command, patience=0.0 if not quick else 60.0) as loading:
            while tty and not quick and loading._thread is not None and not loading._drawn:
                time.sleep(0.001)
        return out.getvalue()

    assert "mixlens: loading" in said("explain", tty=True)
    assert said("explain", tty=True).endswith("\r\x1b[K")  # the line is erased
    assert said("explain", tty=False) == ""
    assert said("families", tty=True) == ""
    assert said("explain", tty=True, quick=True) == ""


def test_timing_says_what_loading_was() -> None:
    out = run("explain --timing", SENTENCE)
    parts = {
        line.rsplit(maxsplit=2)[0].strip(): float(line.rsplit(maxsplit=2)[1])
        for line in out.splitlines()
        if line.endswith(" ms")
    }
    inside = [parts[name] for name in ("import", "weights", "model check")]
    assert min(inside) >= 0  # what is imported already takes no time
    assert parts["weights"] > 0
    assert parts["model check"] > 0
    assert sum(inside) <= parts["load and check"] + 0.3  # each is rounded to 0.1 ms
    assert parts["load and check"] <= parts["total"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("discretized_integrated_gradients:strategy=zz", "unknown strategy 'zz'"),
        ("discretized_integrated_gradients:factor=11", "0 to 10, not 11"),
        ("integrated_gradients:rule=zz", "unknown rule 'zz'"),
        ("sequential_integrated_gradients:steps=0", "steps must be at least 1"),
        ("layer_conductance:tolerance=-1", "tolerance must be above 0"),
        ("smooth_grad:count=0", "count must be at least 1"),
        ("gradient_shap:noise=-1", "0 or more"),
        ("lime:count=0", "count must be at least 1"),
        ("shap:evaluations=0", "evaluations must be at least 1"),
        ("blank_out:replacement=zz", "unknown replacement 'zz'"),
    ],
)
def test_values_that_no_text_could_be_asked_with_are_refused_before_there_is_one(written: str, message: str) -> None:
    with pytest.raises(errors.InputError, match=message):
        asking.parse_method(written)


def test_every_check_passes_the_defaults_of_its_method() -> None:
    for name in attributions.known():
        asking.parse_method(name)
