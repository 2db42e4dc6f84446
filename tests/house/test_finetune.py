"""The fine-tuning recipes: rows and losses against values by hand; a tiny random model learns, is saved, loads and is
proven."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoTokenizer, BertConfig, BertModel

import mixlens
from mixlens import data as dataset
from mixlens.base import errors
from mixlens.model import loading
from recipes.train import finetune, finetune_rows
from recipes.train.finetune import RECIPES

LIGHT = {"epochs": 12, "batch": 16, "rate": 3e-3, "warmup": 0.0, "length": 40}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a random BERT without a head, and the tokenizer of an embedded model."""

    def made(embedded: str) -> Path:
        place = tmp_path_factory.mktemp("tiny") / embedded
        tokenizer = AutoTokenizer.from_pretrained(loading.EMBEDDED / embedded)
        transformers.set_seed(0)
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **shape)).save_pretrained(place)
        tokenizer.save_pretrained(place)
        return place

    return made


def lens(embedded: str) -> Any:
    return mixlens.load(embedded, check=False)


def test_classification_rows_number_labels_by_the_dataset() -> None:
    examples = [
        mixlens.Example("the film was good", info={"label": "positive"}),
        mixlens.Example("bad", info={"label": "negative"}),
    ]
    rows = finetune_rows.classification_rows(
        examples, lens("sentiment"), RECIPES["classification"], dataset.DATASETS["sentiment"]
    )
    assert [row["labels"] for row in rows] == [1, 0]
    assert rows[0]["input_ids"] == lens("sentiment").tokenizer("the film was good")["input_ids"]
    with pytest.raises(errors.InputError, match="has no label"):
        finetune_rows.classification_rows(
            [mixlens.Example("x")], lens("sentiment"), RECIPES["classification"], dataset.DATASETS["sentiment"]
        )


def test_prompt_rows_hold_the_gap_and_both_words() -> None:
    model = lens("agreement")
    (example,) = islice(dataset.load("agreement", n=1), 1)
    long_word = replace(example, target="unpronounceables")
    too_long = replace(RECIPES["prompt"], length=3)
    (row,) = finetune_rows.prompt_rows([example, long_word], model, RECIPES["prompt"], dataset.DATASETS["agreement"])
    gap, target, foil = row["labels"]
    assert model.tokenizer.convert_ids_to_tokens([row["input_ids"][gap], target, foil]) == [
        "[MASK]",
        example.target,
        example.foil,
    ]
    assert finetune_rows.prompt_rows([example], model, too_long, dataset.DATASETS["agreement"]) == []
    with pytest.raises(errors.InputError, match="no foil"):
        finetune_rows.prompt_rows(
            [replace(example, foil=None)], model, RECIPES["prompt"], dataset.DATASETS["agreement"]
        )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [((0, 3), (3, 3)), ((4, 12), (4, 5)), ((5, 7), (4, 4)), (None, (0, 0)), ((11, 20), (0, 0))],
)
def test_span_in(answer: tuple[int, int] | None, expected: tuple[int, int]) -> None:
    # [CLS] ask [SEP] the|0-3 keys|4-8 rust|9-13 [SEP]
    offsets = [(0, 0), (0, 3), (0, 0), (0, 3), (4, 8), (9, 13), (0, 0)]
    sequences = [None, 0, None, 1, 1, 1, None]
    assert finetune_rows.span_in(offsets, sequences, answer) == expected


def test_qa_rows_are_windows_and_only_those_with_the_answer_ask_for_it() -> None:
    model = lens("agreement")
    paragraph = "the keys to the cabinet are old and the dogs near the window are old"
    start = paragraph.index("window")
    question = mixlens.Example("who is old", paragraph, info={"answers": ((start, start + 6),)})
    recipe = replace(RECIPES["qa"], length=14, stride=2)
    rows = finetune_rows.qa_rows([question], model, recipe, dataset.DATASETS["squad1"])
    told = [(row["start_positions"], row["end_positions"]) for row in rows]
    assert len(rows) > 1
    assert told[0] == (0, 0)
    found = [row for row, span in zip(rows, told, strict=True) if span != (0, 0)]
    assert found
    for row in found:
        ids = row["input_ids"][row["start_positions"] : row["end_positions"] + 1]
        assert model.tokenizer.decode(ids).replace(" ", "") == "window"
    unanswerable = finetune_rows.qa_rows(
        [replace(question, info={"answers": ()})], model, recipe, dataset.DATASETS["squad1"]
    )
    assert {(row["start_positions"], row["end_positions"]) for row in unanswerable} == {(0, 0)}


def test_questions_without_an_answer_are_left_out_where_the_dataset_has_none(tmp_path: Path) -> None:
    answer = {"text": "old", "answer_start": 13}
    rows = [
        {"question": f"what are they {i}", "context": "the keys are old", "answers": [answer] if i % 2 else []}
        for i in range(8)
    ]
    place = tmp_path / "squad.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked: dict[str, Any] = {"path": place, "split": None, "n": None, "share": 0.25, "seed": 0}
    for name, kept in (("squad1", 4), ("squad2", 8)):
        sides = finetune.train_and_held_out(dataset.DATASETS[name], **asked)
        assert sum(map(len, sides)) == kept


def test_prompt_loss_is_target_against_foil_at_the_gap() -> None:
    logits = torch.zeros(2, 3, 5)
    logits[0, 1] = torch.tensor([9.0, 1.0, 0.0, 9.0, 9.0])  # target 1, foil 2: other words do not count
    logits[1, 2] = torch.tensor([0.0, 0.0, 0.0, 0.0, 3.0])  # target 3, foil 4: wrong
    labels = torch.tensor([[1, 1, 2], [2, 3, 4]])
    output = SimpleNamespace(logits=logits)
    expected = (torch.log1p(torch.exp(torch.tensor(-1.0))) + torch.log1p(torch.exp(torch.tensor(3.0)))) / 2
    torch.testing.assert_close(finetune_rows.prompt_loss(output, labels), expected)
    assert finetune_rows.right("prompt", output, {"labels": labels}).tolist() == [True, False]


def test_right_answers_need_both_ends() -> None:
    output = SimpleNamespace(start_logits=torch.eye(3)[[1, 1, 0]], end_logits=torch.eye(3)[[2, 1, 0]])
    batch = {"start_positions": torch.tensor([1, 1, 0]), "end_positions": torch.tensor([2, 2, 0])}
    assert finetune_rows.right("qa", output, batch).tolist() == [True, False, True]


def test_divided_is_whole_and_repeatable() -> None:
    examples = [mixlens.Example(str(i)) for i in range(20)]
    train, aside = finetune.divided(examples, share=0.25, seed=1)
    assert len(aside) == 5
    assert sorted((*train, *aside), key=lambda e: int(e.text)) == examples
    assert finetune.divided(examples, share=0.25, seed=1) == (train, aside)
    assert finetune.divided(examples, share=0.25, seed=2) != (train, aside)
    with pytest.raises(errors.InputError, match="cannot be divided"):
        finetune.divided(examples[:1], share=0.5, seed=0)


def blimp_row(i: int, number: str) -> dict[str, Any]:
    words = {"singular": ("dog", "barks", "bark"), "plural": ("dogs", "bark", "barks")}[number]
    uid = "regular_plural_subject_verb_agreement_1"
    return {
        "id": str(i),
        "UID": uid,
        **{f"sentence_{side}": f"The {words[0]} {words[j]}." for side, j in (("good", 1), ("bad", 2))},
    }


def test_a_dataset_of_two_halves_is_divided_as_it_says_itself(tmp_path: Path) -> None:
    rows = [
        blimp_row(i, "singular" if i % 3 else "plural") for i in range(24)
    ]  # 16 singular, 8 plural: 8 of each are kept
    path = tmp_path / "blimp.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    asked: dict[str, Any] = {"path": path, "n": None, "seed": 3}
    train, test = finetune.train_and_held_out(dataset.DATASETS["blimp_vz"], split=None, share=0.5, **asked)
    assert (train, test) == tuple(list(dataset.load("blimp_vz", path=path, split=half)) for half in ("train", "test"))
    assert len(train) == len(test) == 8
    fewer = finetune.train_and_held_out(dataset.DATASETS["blimp_vz"], split=None, share=0.5, **{**asked, "n": 6})
    assert [len(side) for side in fewer] == [3, 3]
    part = finetune.train_and_held_out(dataset.DATASETS["blimp_vz"], split="train", share=0.25, **asked)
    assert sorted(e.id or "" for side in part for e in side) == sorted(e.id or "" for e in train)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "clasification"}, "classification"),
        ({"data": "agreement"}, "asks to fill the gap"),
        ({"data": "sst3"}, "is unknown"),
        ({"recipe": replace(RECIPES["classification"], batch=0)}, "batch must be above 0"),
        ({"recipe": replace(RECIPES["classification"], warmup=1.5)}, "shares below 1"),
    ],
)
def test_refusals(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    given = {"kind": "classification", "model": "sentiment", "data": "sentiment", "out": tmp_path / "new", **change}
    with pytest.raises(errors.InputError, match=told):
        finetune.finetune(given.pop("kind"), **given)
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("mine")
    with pytest.raises(errors.InputError, match="not empty"):
        finetune.finetune("classification", model="sentiment", data="sentiment", out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


def test_missing_accelerate_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(finetune.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(errors.InputError, match=r"pip install .*\[train\]'"):
        finetune.finetune("classification", model="sentiment", data="sentiment", out=tmp_path / "new", n=4)


def test_command_line_refuses_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert finetune.main(["qa", "--model", "agreement", "--data", "sst2", "--out", "new"]) == 1
    assert capsys.readouterr().err.startswith("error: dataset 'sst2' asks to classify; qa takes one of squad1")


def test_command_line_changes_the_recipe_and_takes_several_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(finetune, "finetune", lambda kind, **given: seen.append((kind, given)))
    given = [
        "prompt",
        "--model",
        "m",
        "--data",
        "blimp",
        "--out",
        "o",
        "--seed",
        "1",
        "2",
        "--rate",
        "0.1",
        "--held-out",
        "0.5",
    ]
    list(finetune.results(finetune.arguments().parse_args(given)))
    assert [(kind, one["seed"], one["out"]) for kind, one in seen] == [
        ("prompt", i, Path(f"o/seed-{i}")) for i in (1, 2)
    ]
    assert seen[0][1]["recipe"] == replace(RECIPES["prompt"], rate=0.1, held_out=0.5)


# --- training: needs accelerate ---------------------------------------------------------------------------------------


def trained(kind: str, model: Path, out: Path, **given: Any) -> finetune.Result:
    pytest.importorskip("accelerate")
    changes = {**LIGHT, **given.pop("changes", {})}
    return finetune.finetune(kind, model=model, out=out, recipe=replace(RECIPES[kind], **changes), quiet=True, **given)


def test_classification_learns_is_saved_and_proven(tiny: Any, tmp_path: Path) -> None:
    rows = [
        {"sentence": f"the {w} film was {'good' if i % 2 else 'bad'}", "label": i % 2}
        for i, w in enumerate("abcdefgh" * 8)
    ]
    data = tmp_path / "toy.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows))
    made = trained(
        "classification", tiny("sentiment"), tmp_path / "out", data="sst2", path=data, changes={"held_out": 0.25}
    )
    assert made.losses[-1] < made.losses[0] / 2
    assert made.after > 0.9 > made.before
    saved = mixlens.load(tmp_path / "out")
    assert saved.task == "classification"
    assert saved.hf_model.config.label2id == {"negative": 0, "positive": 1}
    assert saved.check().failed == []
    told = json.loads((tmp_path / "out" / "training.json").read_text())
    assert (told["seed"], told["examples"], told["held_out"], told["rate"]) == (42, 48, 16, 3e-3)
    aside = list(dataset.load("sst2", path=tmp_path / "out" / "held_out.jsonl"))
    assert [example.id for example in aside] == told["held_out_ids"]
    assert aside == [example for example in dataset.load("sst2", path=data) if example.id in told["held_out_ids"]]
    assert len(aside) == 16


def test_prompt_tuning_learns_and_is_the_same_again(tiny: Any, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"data": "agreement", "n": 120, "changes": {"epochs": 5}}
    model = tiny("agreement")
    one, other = (trained("prompt", model, tmp_path / name, **asked) for name in ("one", "other"))
    assert one.losses[-1] < one.losses[0]
    assert one.losses == other.losses
    saved = mixlens.load(tmp_path / "one")
    assert saved.task == "masked-lm"
    assert saved.check().failed == []


def test_question_answering_learns(tiny: Any, tmp_path: Path) -> None:
    words = ("keys", "dogs", "cabinet", "window")
    rows = []
    for i in range(48):
        paragraph = f"the {words[i % 4]} are old"
        rows.append({"question": "who is old", "context": paragraph, "answers": [{"text": words[i % 4], "start": 4}]})
    data = tmp_path / "toy.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows))
    asked: dict[str, Any] = {"data": "squad1", "path": data, "changes": {"held_out": 0.2, "stride": 4, "epochs": 12}}
    made = trained("qa", tiny("agreement"), tmp_path / "out", **asked)
    assert made.losses[-1] < made.losses[0] / 2
    assert made.after == 1.0
    saved = mixlens.load(tmp_path / "out")
    assert saved.task == "question-answering"
    assert saved.check().failed == []


def test_a_model_without_a_mask_token_is_refused(tiny: Any, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    place = tiny("agreement")
    settings = json.loads((place / "tokenizer_config.json").read_text())
    settings["mask_token"] = None
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    (place / "special_tokens_map.json").unlink(missing_ok=True)
    with pytest.raises(errors.ModelError, match="mask token"):
        trained("prompt", place, tmp_path / "out", data="agreement", n=10)
