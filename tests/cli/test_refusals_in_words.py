"""Refusals of the commands name options that exist there, and what the command does take."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_cli import SENTENCE, refuse

import mixlens
from mixlens.base import errors
from mixlens.cli import generation


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose texts stand in a field of another name; the command runs beside it."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "rows.jsonl"
    place.write_text(json.dumps({"sent": "A dull film."}) + "\n")
    return place


RUNS = [
    ([], "rows.jsonl has no field 'text'. Did you mean 'sent'? Known: sent. Name the field: --text-field NAME."),
    (["--text-field", "sen"], "Name the field: --text-field NAME."),
    (
        ["--text-field", "sent", "--pair-field", "x"],
        "has no field 'x'. Known: sent. Name the field: --pair-field NAME.",
    ),
    (["--text-field", "sent", "--columns", "x"], "has no field 'x'. Known: sent."),
    (["--limit", "0"], "--limit must be at least 1, not 0."),
    (["--shard-rows", "0"], "--shard-rows must be at least 1, not 0."),
    (["--shard-rows", "9999999"], "--shard-rows must be at most 1,000,000, not 9999999"),
    (["--batch-tokens", "0"], "--batch-tokens must be at least 1, not 0."),
    (["--resume"], "holds no run to resume. Leave --resume out to begin one."),
    (["--chat", "--pair-field", "x"], "leave --pair-field out, or --chat."),
    (
        ["--generate", "2", "--query", "0", "--maps"],
        "--generate explains each token that the model writes: leave --query and --maps",
    ),
    (["--generate", "0"], "--generate is how many tokens the model writes, at least 1, not 0."),
    (["--text-field", "a", "--ids-field", "b"], "give --text-field or --ids-field, not both."),
    (["--maps-dtype", "float16"], "--maps-dtype is the number type of maps that are kept: give --maps too."),
    (["--workers", "3"], "--workers are those of a Ray cluster: give --ray too."),
]


@pytest.mark.parametrize(("arguments", "told"), RUNS, ids=str)
def test_a_run_names_options(
    arguments: list[str], told: str, corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told in refuse(capsys, monkeypatch, "run", corpus.name, "-m", "sentiment", "-o", "out", *arguments)
    assert not Path("out").exists()


def test_a_target_that_no_method_takes_names_the_methods(
    corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["run rows.jsonl -m sentiment -o out --text-field sent --target positive"]
    told = refuse(capsys, monkeypatch, *arguments)
    assert "'alti' explains a position, whatever the class or word: leave --target out, or take a method that" in told
    both = refuse(capsys, monkeypatch, *arguments, "--score", "logit", "--methods", "alti,attention")
    assert (
        "'alti' and 'attention' explain a position, whatever the class or word: leave --target and --score out" in both
    )


def test_a_dataset_knows_its_fields(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="leave text_field=, pair_field= and ids_field= out"):
        mixlens.run("sentiment", model="sentiment", out=tmp_path / "out", limit=1, text_field="a")


def test_a_map_is_asked_for_a_token_of_the_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = refuse(capsys, monkeypatch, "map --query zzz", SENTENCE)
    assert told.startswith("mixlens: no token 'zzz'. The tokens are: [CLS] the keys")
    assert "attcat" not in told


def test_all_heads_of_a_method_are_refused_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = refuse(capsys, monkeypatch, "map --method attention:head=all", SENTENCE)
    assert told == (
        "mixlens: 'attention' with all heads gives a map for each head, and here it takes one: choose a head, counted "
        "from 0, as "
        "attention:head=0. For all of them: mixlens map --head all, in Python mixlens.mix."
    )


def test_a_target_of_several_tokens_is_not_sent_to_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    several = refuse(capsys, monkeypatch, "explain --target zap", SENTENCE)
    assert several.endswith("smooth_grad.")
    assert refuse(capsys, monkeypatch, "explain --target dog", SENTENCE).endswith("`mixlens why` picks one by itself.")


@pytest.mark.parametrize("command", ["why", "explain", "map"])
def test_a_model_without_a_name_is_refused(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = refuse(capsys, monkeypatch, command, "A text.", "-m", "")
    assert told == "mixlens: no model is named. Give a hub id, a folder, or an embedded model: agreement, sentiment."


def test_an_empty_name_is_no_model() -> None:
    with pytest.raises(mixlens.MixlensError, match="no model is named"):
        mixlens.load(" ")


def test_no_example_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = refuse(capsys, monkeypatch, "judge sentiment --text 'A dull film.' --n 0")
    assert "'--n'" in told
    assert "1 (not '0')" in told


def test_a_text_beside_saved_results_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--from shows saved results as they are: leave texts" in refuse(capsys, monkeypatch, "report x --from y")
    assert "no model folder at './none'" in refuse(capsys, monkeypatch, "report x -m ./none")


def test_a_report_of_no_text_is_refused(tmp_path: Path) -> None:
    for preset in (None, "flow", "why"):
        with pytest.raises(errors.InputError, match=r"^texts= is empty: give one text or more\.$"):
            mixlens.report(mixlens.load("agreement"), tmp_path / "x.html", texts=[], preset=preset)


def test_leaving_out_is_shown_or_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for beside in ("--each", "--json", "--latex"):
        told = refuse(capsys, monkeypatch, "explain 'a b' --generate 2 --leave-out", beside)
        assert f"{beside} shows scores alone: leave --leave-out out, or keep it in a file (--save FILE.json)." in told


def test_what_leaving_out_does_is_refused_beside_the_picture_that_was_asked_for() -> None:
    writing = generation.Writing(generate=2, continuation=None, leave_out=True, each=False, page=None)
    pictures = {"--each": False, "--json": True, "--latex": True}
    with pytest.raises(errors.InputError, match=r"^--json shows scores alone"):
        writing.refuse_effects(None, pictures)
    assert writing.refuse_effects(None, dict.fromkeys(pictures, False)) is None
    assert writing.refuse_effects(Path("x.json"), pictures) is None
    assert replace(writing, leave_out=False).refuse_effects(None, pictures) is None


# --- a name that is nearly one ----------------------------------------------------------------------------------------

MISSPELT = (  # every command that loads a model
    *(
        ("why -m sentimental", SENTENCE),
        ("explain -m sentimental", SENTENCE),
        ("compare -m sentimental", SENTENCE),
    ),
    *(("map -m sentimental", SENTENCE), ("plot -m sentimental -o x.svg", SENTENCE)),
    *(
        ("report -m sentimental -o x.html", SENTENCE),
        ("run rows.jsonl --text-field sent -m sentimental -o o",),
    ),
    *(("judge sentimental --text", SENTENCE), ("check", "sentimental"), ("serve -m sentimental",)),
    ("experiment attcat-confidence -m sentimental --data sentiment --n 1",),
)


@pytest.mark.parametrize("command", MISSPELT, ids=lambda command: command[0])
def test_the_name_of_an_embedded_model_that_is_misspelt_is_suggested(
    command: tuple[str, ...], corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = refuse(capsys, monkeypatch, *command)
    assert message.startswith("mixlens: cannot load 'sentimental': no such folder, and the hub "), message
    assert " Did you mean 'sentiment'? Embedded models are always there: agreement, sentiment." in message


def test_a_misspelt_model_that_would_have_had_sentences_of_its_own_is_suggested(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refuse(capsys, monkeypatch, "judge sentimental").endswith(
        "--text '...'). Did you mean 'sentiment', which has sentences of its own?"
    )
    assert refuse(capsys, monkeypatch, "judge gpt2").endswith("--text '...').")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            ("judge", "sentiment", "sentimant"),
            "no dataset of `mixlens data` and no hub id (owner/name). Did you mean 'sentiment'? K",
        ),
        (("run agrement -o o",), "Did you mean 'agreement'?"),
        (
            ("experiment", "attcat-confidance"),
            "unknown experiment 'attcat-confidance'. Did you mean 'attcat-confidence'? Known: ",
        ),
        (("experiment", "alti-tabel2"), "Did you mean 'alti-table2' or 'alti-table2-sva'? Known: "),
        (("reproduce", "value-zeroin"), "unknown paper 'value-zeroin'. Did you mean 'value-zeroing'? Known: "),
        (("reproduce", "atcat"), "Did you mean 'attcat'? Known: "),
    ],
)
def test_misspelt_names_of_datasets_experiments_and_papers_are_suggested(
    command: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert says in refuse(capsys, monkeypatch, *command)


ASKED = [  # what is asked of one text, and what is said before a model is loaded
    ("plot --kind matrix --method attcat", "kind 'matrix' is drawn of a map, and 'attcat' gives scores of tokens"),
    ("plot --kind strip --rollout", "--rollout and --layer are for maps"),
    ("plot --layer 1", "--rollout and --layer are for maps"),
    ("plot --kind flow --layer 1", "a figure of kind 'flow' goes through all layers"),
    ("plot --kind flow --method alti,globenc", "a figure of kind 'flow' is of one method"),
    ("plot --kind heads --method attention,norm", "a figure of kind 'heads' is of one method"),
    ("plot --kind heads --method attention --rollout", "--rollout multiplies whole layers, not heads."),
    ("plot --kind matrix --no-special", "--no-special leaves tokens out of a row, not of a map."),
    ("plot --kind matrix --pieces --words", "--words joins the pieces that --pieces shows."),
    ("plot --pieces", "--pieces is for --kind matrix of one --method"),
    ("plot --kind pie", "unknown kind 'pie'."),
    (
        "map --method alti:rollout=alti",
        "'alti:rollout=alti' names a rollout convention: give --rollout, or leave it out.",
    ),
    ("map --method attention --head all --rollout", "--head all is a table of one layer's heads"),
    ("map --method attention --head all --query 1", "--head all is a table of one layer's heads"),
    ("explain --json --latex", "--latex and --json are two ways to print the result."),
    ("explain --layers --json", "--layers and --map are pictures in the terminal"),
    ("explain --method attcat --map 1", "'attcat' gives scores of tokens, no map."),
    ("explain --chat --pair x", "--pair is a second text, and a conversation has none"),
    ("explain --messages no.json", "--messages holds the whole conversation: leave the text, --file and --chat out."),
    ("report --messages no.json", "--messages holds the whole conversation: leave texts and --chat out."),
    ("report --label x", "--label and --examples are for the folder of a run."),
    ("report --generate 2 --target x", "which has no --target: leave the one or the other out."),
]


@pytest.mark.parametrize(("asked", "told"), ASKED, ids=str)
def test_what_does_not_go_together_is_said_at_once(
    asked: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mixlens.model.loading.load", None)  # nothing is loaded before the refusal
    command, *options = asked.split()
    out = ["-o", "figure.svg"] if command == "plot" else []
    assert told in refuse(capsys, monkeypatch, command, SENTENCE, *options, *out)


def test_a_figure_is_not_written_over_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.svg").touch()
    told = "'f.svg' is there already. Give another name, or --force to write over it."
    assert told in refuse(capsys, monkeypatch, "plot -o f.svg", SENTENCE)
