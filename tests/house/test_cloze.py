"""Questions made from plain text: what is asked for stands in the paragraph, where the row says, and not in the
question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mixlens import data
from recipes.train.cloze import answers, main, plain, rows

PARAGRAPH = (
    "The old mill by the river was built by Anna Weber in 1874 for the town of Lindau. It ground 300 sacks of corn a "
    "week until "
    "the war , and then it stood empty for two decades. After the flood of March 3, 1946 the family of Jonas Brandt "
    "lived in it "
    "with seven children and many cats. Today it is a museum @-@ like house <unk> that shows the work of millers."
)


def test_what_can_be_asked_for() -> None:
    asked = [(word, PARAGRAPH[start:end]) for word, start, end in answers(PARAGRAPH)]
    assert asked[:4] == [("who", "Anna Weber"), ("when", "1874"), ("what", "Lindau"), ("how many", "300")]
    assert ("when", "March 3, 1946") in asked
    assert ("what", "It") not in asked  # a name has three letters


def test_a_word_with_a_capital_at_the_beginning_is_no_name() -> None:
    assert list(answers("Ravens of the north fly.")) == []
    assert [word for word, _, _ in answers("They came from Norway.")] == ["where"]


def test_wikitext_is_joined_as_people_write() -> None:
    assert plain('a 30 @-@ year <unk> " war " , ( of 1 @.@ 5 m ) it \'s') == 'a 30-year "war", (of 1.5 m) it\'s'


def test_rows_hold_an_answer_at_its_place_and_a_question_without_it() -> None:
    made = list(rows([PARAGRAPH, "too short"], most=4, seed=1))
    assert len(made) == 4
    assert made == list(rows([PARAGRAPH, "too short"], most=4, seed=1)) != list(rows([PARAGRAPH], most=4, seed=2))
    for row in made:
        (answer,) = row["answers"]
        assert row["context"][answer["answer_start"] :].startswith(answer["text"])
        assert row["question"].endswith("?")
        assert f" {answer['text']} " not in f" {row['question'][:-1]} "
        assert len(row["question"].split()) <= 26
        assert any(word in row["question"] for word in ("who", "what", "when", "where", "how many"))


def test_the_command_writes_what_the_recipe_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, out = tmp_path / "texts.jsonl", tmp_path / "cloze.jsonl"
    texts.write_text("".join(json.dumps({"body": text}) + "\n" for text in (PARAGRAPH, PARAGRAPH, "short")))
    assert main([str(texts), "--field", "body", "--out", str(out), "--most", "3"]) == 0
    assert capsys.readouterr().out == f"{out}: 3 questions of 2 paragraphs\n"
    examples = list(data.load("squad1", path=out))
    assert len(examples) == 3
    for example in examples:
        ((start, end),) = example.info["answers"]
        assert example.pair is not None
        assert example.pair[start:end] in PARAGRAPH
