"""Texts that are too long are cut as the tokenizer cuts them, and counted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mixlens
from mixlens import data
from mixlens.base.errors import InputError, MixlensError
from mixlens.cli.app import app
from mixlens.runs.experiments import run
from mixlens.types import Example

LONG = " ".join(["a good film and a bad plot ."] * 40)


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


def test_a_text_is_cut_to_what_the_model_reads(model: Any) -> None:
    whole = Example(LONG, id="1", cues=((0, 1), (len(LONG) - 1, len(LONG))), info={"label": "positive"})
    cut = data.truncated(whole, model)
    ids = model.tokenizer(LONG, truncation=True, max_length=model.max_tokens)["input_ids"]
    assert model.tokenizer(cut.text)["input_ids"] == ids
    assert cut.info["truncated"] == len(model.tokenizer(LONG)["input_ids"])
    assert cut.cues == ((0, 1),)
    assert data.truncated(Example("a good film"), model) == Example("a good film")
    spans = ((0, 1), (len(LONG) - 1, len(LONG)))
    tagged = Example(LONG, info=dict.fromkeys(("attractors", "rationale", "pos", "penn"), spans))
    kept = data.truncated(tagged, model).info
    assert all(kept[name] == ((0, 1),) for name in tagged.info), "spans behind the cut are dropped, of every kind"


def test_a_pair_is_cut_at_its_longer_side(model: Any) -> None:
    cut = data.truncated(Example("a good film", LONG), model, limit=20)
    assert cut.text == "a good film"
    assert len(model.tokenizer(cut.text, cut.pair)["input_ids"]) == 20


def test_an_experiment_counts_what_is_cut(model: Any) -> None:
    examples = [
        Example(LONG, id="1", info={"label": "positive"}),
        Example("a good film", id="2", info={"label": "positive"}),
    ]
    with pytest.raises(InputError, match="are longer than the"):
        run("attcat-faithfulness", model=model, data=examples, methods=["cat"], progress=False)
    made = run("attcat-faithfulness", model=model, data=examples, methods=["cat"], truncate=True, progress=False)
    assert made.setup.truncated == 1
    assert len(made.setup.examples) == 2


def test_a_command_cuts_a_text_where_it_is_told_to(model: Any) -> None:
    refused = CliRunner().invoke(app, ["explain", LONG, "-m", "sentiment"])
    assert "Shorten or split it, or let it be cut: --truncate (truncate=True)." in str(refused.exception)
    told = CliRunner().invoke(app, ["explain", LONG, "-m", "sentiment", "--truncate", "--json"])
    assert told.exit_code == 0, told.output
    result = json.loads(told.stdout)
    whole = len(model.tokenizer(LONG)["input_ids"])
    assert len(result["tokens"]) == model.max_tokens
    notices = result["info"]["notices"]
    assert (
        notices[0]
        == f"the text was cut: it has {whole} tokens and the model reads {model.max_tokens}. What follows was not read."
    )


@pytest.mark.parametrize("others", [["--generate", "2"], ["--continuation", "x"], ["--chat"]], ids=str)
def test_what_is_written_is_not_cut(others: list[str]) -> None:
    refused = CliRunner().invoke(app, ["explain", "x", "--truncate", *others])
    assert "--truncate cuts one text that is explained" in str(refused.exception)


def test_a_run_cuts_rows_and_says_so(model: Any, tmp_path: Path) -> None:
    done = mixlens.run(
        [LONG, "a good film"], model=model, out=tmp_path / "out", truncate=True, columns=(), progress=False
    )
    first, second = done.to_pandas().to_dict("records")
    assert (first["truncated"], len(first["tokens"])) == (len(model.tokenizer(LONG)["input_ids"]), model.max_tokens)
    assert LONG.startswith(first["text"])
    assert math.isnan(second["truncated"])
    summary = mixlens.summarize(tmp_path / "out")
    assert summary.cut == 1
    assert "1 rows were cut to what the model reads" in summary.text()
    same = mixlens.mix(model.trace(first["text"]), "alti").rollout().readout(0)
    assert first["alti"] == pytest.approx(same.scores.tolist(), abs=1e-5)
    with pytest.raises(InputError, match="another run"):
        mixlens.run([LONG, "a good film"], model=model, out=tmp_path / "out", progress=False)


def test_a_run_that_is_refused_leaves_no_run(model: Any, tmp_path: Path) -> None:
    for options in ({}, {"strict": True}):
        with pytest.raises(MixlensError, match=r"or let it be cut: --truncate \(truncate=True\)\."):
            mixlens.run([LONG, LONG], model=model, out=tmp_path / "out", progress=False, **options)
        with pytest.raises(InputError, match="holds no run"):
            mixlens.summarize(tmp_path / "out")
    assert mixlens.run(["a good film"], model=model, out=tmp_path / "out", progress=False).rows == 1


def test_a_conversation_is_not_cut(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave truncate= out, or chat="):
        mixlens.run(["x"], out=tmp_path / "out", chat=True, truncate=True)
