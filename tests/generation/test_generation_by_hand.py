"""A written text made by hand: its words, its table, its answer, its files, and what leaving out does."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mixlens.answers.generation import explaining, files, leaving_out, text, wording
from mixlens.answers.generation.leaving_out import Effects
from mixlens.answers.generation.text import Group, Word, WrittenText
from mixlens.answers.generation.value import Generation
from mixlens.base.errors import InputError, ResultError
from mixlens.types import Attribution, LayersOf

TOKENS = ("<s>", "The", "cat", ".", "A", "do", "g", "sat", "s", "!")
BEGIN = 7


def word(
    name: str, *tokens: int, before: str = " ", segment: str = "text", group: int | None = None, **more: bool
) -> Word:
    return Word(name, before, segment, more.get("special", False), more.get("mark", False), tokens, group)


WORDS = (
    word("<s>", 0, before="", special=True),
    word("The", 1, before="", group=0),
    word("cat", 2, group=0),
    word(".", 3, before="", group=0, mark=True),
    word("A", 4, group=1),
    word("dog", 5, 6, group=1),
    word("sats", 7, 8, segment="written", group=0),
    word("!", 9, before="", segment="written", group=0, mark=True),
)
GROUPS = (Group("sentence", None, (1, 2, 3)), Group("sentence", None, (4, 5)))
SCORES = (
    (1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0),
    (1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, 4.0, 0.0, 0.0),
    (0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0),
)


def made(
    scores: Any = SCORES, *, is_map: bool = False, effects: Any = None, groups: Any = GROUPS, words: Any = WORDS
) -> Generation:
    whole = WrittenText(
        "The cat. A dog", None, "sats!", TOKENS, BEGIN, words, groups, (Group("sentence", None, (6, 7)),), "word"
    )
    table = torch.tensor(scores, dtype=torch.float64)
    info = [{"model": "m", "paper": "p", "gap": 0.5, "prediction": [("x", 0.5)], "other": object} for _ in range(3)]
    steps = [
        Attribution(table[k, : BEGIN + k], TOKENS[: BEGIN + k], "alti", info[k], (True, *[False] * (BEGIN + k - 1)))
        for k in range(3)
    ]
    return Generation(tuple(steps), whole, table, (0.5, 0.5, 0.75), is_map, False, effects)


def lost(words: Any, groups: Any) -> Effects:
    return Effects("delete", torch.tensor(words, dtype=torch.float64), torch.tensor(groups, dtype=torch.float64))


NAN = math.nan
LOST = lost(
    [[0.0, 0.1, -0.2, 0.0, -0.05, NAN, 0.0, 0.0], [0.0, 0.0, -0.3, 0.0, 0.0, 0.0, 0.0, 0.0]],
    [[-0.15, -0.1], [-0.5, 0.0]],
)


# --- the table --------------------------------------------------------------------------------------------------------


def test_rows_are_words_and_their_magnitudes_sum_to_one() -> None:
    generation = made()
    assert (len(generation), generation.method, generation.info["gap"]) == (3, "alti", 0.5)
    assert generation[1] is generation.steps[1]
    assert generation[1:] == list(generation.steps[1:])
    assert [one.text for one in generation.rows] == ["sats", "!"]
    assert generation.word_scores.tolist() == [
        [2.0, 0.0, 4.0, 0.0, 0.0, 2.0, 4.0, 0.0],
        [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 2.0, 0.0],
    ]
    assert generation.matrix.tolist()[0] == pytest.approx([1 / 6, 0, 1 / 3, 0, 0, 1 / 6, 1 / 3, 0])
    assert generation.matrix.tolist()[1] == [0.0, 0.0, 0.25, 0.0, 0.25, 0.0, 0.5, 0.0]
    assert made(is_map=True).word_scores.tolist()[0] == [1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 2.0, 0.0]
    assert generation.row_probabilities == (0.25, 0.75)
    assert not generation.signed
    negative = made([[0.0] * 10, [0.0] * 10, [-1.0, *[0.0] * 9]])
    assert negative.signed
    assert negative.matrix.tolist() == [[0.0] * 8, [-1.0, *[0.0] * 7]]
    assert not made([[0.0] * 10] * 3).signed


def test_shares_of_own_words_of_the_prompt_and_of_groups() -> None:
    generation = made([[1.0, 0.0, -2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [*[0.0] * 7, -4.0, 0.0, 0.0], SCORES[2]])
    assert wording.own_shares(generation).tolist() == [0.5, 0.5]
    assert wording.prompt_shares(generation).tolist() == [0.375, 0.5]
    assert wording.group_shares(generation).tolist() == [[0.25, 0.125], [0.25, 0.25]]
    none = wording.group_shares(made(groups=()))
    assert (none.shape, none.dtype) == ((2, 0), torch.float64)


# --- the answer -------------------------------------------------------------------------------------------------------


def test_the_answer_without_effects() -> None:
    parts = wording.answer(made()).parts
    others = " on the prompt, 42\u202f% on the words just written and 8.3\u202f% on special tokens."
    assert parts[:3] == (("", "On average "), ("strong", "50\u202f%"), ("", others))
    assert parts[3:] == (
        *(
            ("", " Of the prompt, "),
            ("quote", "cat"),
            ("", " gave most to one word: 33\u202f% of "),
            ("strong", "sats"),
            ("", "."),
        ),
    )
    assert (
        made().sentence
        == f"On average 50\u202f%{others} Of the prompt, “cat” gave most to one word: 33\u202f% of sats."
    )
    own = made([[0.0] * 10, [*[0.0] * 7, 1.0, 0.0, 0.0], SCORES[2]])
    assert own.sentence.startswith("Mostly on the words just written: 75\u202f% on average.")
    even = made([[0.0] * 10, [0.0, 1.0, *[0.0] * 5, 1.0, 0.0, 0.0], SCORES[2]])
    assert even.sentence.startswith("On average 50\u202f% on the words just written, 50\u202f% on the prompt. ")
    nothing = made([[1.0, *[0.0] * 9]] * 3)
    assert nothing.sentence.startswith("On nothing that this method sees: all of it went to special tokens.")


def test_the_answer_says_mostly_of_the_part_that_has_more_than_half() -> None:
    """Of three parts: written words, the prompt, and special tokens with those of a template."""
    marks = made([[6.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 10, [6.0, *[0.0] * 6, 4.0, 0.0, 0.0]])
    more = "on average, 20\u202f% on the words just written."
    assert marks.sentence.startswith(f"Mostly on special tokens: 73\u202f% {more}")
    template = (word("<s>", 0, before="", segment="template"), *WORDS[1:])
    chat = replace(marks, text=replace(marks.text, words=template))
    assert chat.sentence.startswith(f"Mostly on special tokens and the chat template: 73\u202f% {more}")
    three = made([[2.0, 2.0, *[0.0] * 8], [*[0.0] * 7, 3.0, 0.0, 0.0], [2.0, 2.0, *[0.0] * 5, 3.0, 0.0, 0.0]])
    assert three.sentence.startswith(
        "On average 43\u202f% on the words just written, 29\u202f% on the prompt and 29\u202f% on special"
    )


def test_the_answer_with_effects() -> None:
    generation = made(effects=LOST)
    assert wording.loss_of(generation, 0) == wording.Loss(
        0, (("", "sentence 1 ("), ("quote", "The cat."), ("", ")")), -0.15
    )
    assert wording.largest_loss(generation) == wording.loss_of(generation, 0)  # a mark is no word that is named
    assert wording.named_row(generation) == 0
    assert generation.sentence == (
        "On average 50\u202f% on the prompt, 42\u202f% on the words just written and 8.3\u202f% on special tokens. The prompt "
        "counts most for sats: 50\u202f% of that word is made of the prompt, and without sentence 1 (“The cat.”) its "
        "probability would be 10\u202f% instead of 25\u202f%."
    )
    little = made(effects=lost([[0.0] * 8] * 2, [[-0.005, 0.0], [0.0, 0.0]]))
    assert wording.largest_loss(little) is None
    assert little.sentence.endswith(" on special tokens. Leaving out no single part changes much.")
    exact = made(effects=lost([[0.0] * 8] * 2, [[-0.01, 0.0], [0.0, 0.0]]))
    assert wording.loss_of(exact, 0) is not None
    alone = made(effects=LOST, groups=GROUPS[:1])
    assert wording.loss_of(alone, 0) == wording.Loss(0, (("quote", "cat"),), -0.2)
    assert wording.loss_of(made(), 0) is None
    signed = made([SCORES[0], SCORES[1], [-1.0, *[0.0] * 9]], effects=LOST)
    assert "50\u202f% of its evidence is in the prompt" in signed.sentence
    more = made(effects=lost([[0.0] * 8] * 2, [[-0.5, 0.0], [0.0, 0.0]]))
    assert "would be 0\u202f% instead of 25\u202f%" in more.sentence


def test_a_written_mark_that_took_more_than_every_word_is_told() -> None:
    took = made([SCORES[0], SCORES[1], [0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0, 0.0, 0.0]])
    assert took.sentence.endswith(
        "“cat” gave most to one word: 33\u202f% of sats. Marks are left out: “!” took 75\u202f% from “A”."
    )
    equal = made([SCORES[0], SCORES[1], [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0]])
    assert equal.sentence.endswith("33\u202f% of sats.")
    counts = made([SCORES[0], SCORES[1], [0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0, 0.0, 0.0]], effects=LOST)
    assert counts.sentence.endswith("instead of 25\u202f%. Marks are left out: “!” has 75\u202f% in the prompt.")
    assert "Marks" not in made(effects=LOST).sentence  # 50 % each


def test_a_prompt_that_comes_back() -> None:
    own = [[0.0] * 10, [0.0, 1.0, *[0.0] * 5, 4.0, 0.0, 0.0], SCORES[2]]
    assert "The prompt comes back for sats: 20\u202f%" in made(own, effects=LOST).sentence
    edge = [[0.0] * 10, [0.0, 2.0, *[0.0] * 5, 3.0, 0.0, 0.0], SCORES[2]]  # 60 %
    assert "The prompt counts most for sats" in made(edge, effects=LOST).sentence


def test_a_word_that_the_prompt_counts_most_for_and_that_loses_nothing() -> None:
    """Two plain words: the first loses most, the second has the larger share in the prompt."""
    words = (
        *WORDS[:6],
        word("sat", 7, segment="written"),
        word("s", 8, segment="written"),
        word("up", 9, segment="written"),
    )
    scores = [SCORES[0], SCORES[1], [0.0, 0.0, 1.0, *[0.0] * 7]]
    effects = lost([[0.0] * 9] * 3, [[-0.2, 0.0], [0.0, 0.0], [0.0, -0.001]])
    generation = made(scores, effects=effects, words=words)
    assert wording.named_row(generation) == 2
    assert generation.sentence.endswith(
        "The prompt counts most for up: 100\u202f% of that word is made of the prompt, but leaving out no single part changes "
        "its probability much."
    )


def test_names_of_groups() -> None:
    turns = [Group("turn", role, ()) for role in ("system", "user", "assistant", "user")]
    assert [wording.group_title(turn, number, turns) for number, turn in enumerate(turns)] == [
        *("system turn 1", "user turn 1", "assistant turn 1", "user turn 2")
    ]
    assert wording.group_title(GROUPS[1], 1, GROUPS) == "sentence 2"


@pytest.mark.parametrize(
    ("most", "quoted"), [(0, "w0 w1 w2 w3 …"), (3, "w0 w1 w2 w3 …"), (4, "… w1 w2 w3 w4 …"), (5, "… w2 w3 w4 w5")]
)
def test_a_group_is_quoted_up_to_the_word_that_gave_most(most: int, quoted: str) -> None:
    columns = [word(f"w{number}", number) for number in range(6)]
    matrix = torch.zeros(2, 6)
    matrix[1, most] = -1.0
    generation: Any = SimpleNamespace(matrix=matrix, columns=columns)
    assert wording.quoted(generation, Group("sentence", None, tuple(range(6))), 1) == quoted
    short = Group("sentence", None, (2, 3))
    assert wording.quoted(generation, short, 1) == "w2 w3"


def test_words_without_which_rows_lose_most() -> None:
    generation = made(effects=LOST)
    assert wording.losses_in_words(generation, [0]) == [("cat", pytest.approx(-0.2)), ("A", pytest.approx(-0.05))]
    assert wording.losses_in_words(generation, [0, 1]) == [("cat", pytest.approx(-0.25)), ("A", pytest.approx(-0.025))]
    assert wording.losses_in_words(generation, [0, 1], 1) == [("cat", pytest.approx(-0.25))]
    assert wording.losses_in_words(generation, []) == []
    assert wording.losses_in_words(made(), [0]) == []
    begin = made(effects=lost([[-0.5, -0.1, *[0.0] * 6]] * 2, [[0.0, 0.0]] * 2))
    assert wording.losses_in_words(begin, [0]) == [("The", pytest.approx(-0.1))]
    assert wording.Answer((("", "a"), ("quote", "b"), ("strong", "c"))).plain == "a“b”c"
    assert wording.spoken_change(-0.17) == "\u221217 points"


# --- files ------------------------------------------------------------------------------------------------------------


def test_everything_in_plain_types() -> None:
    plain = files.to_dict(made(effects=LOST))
    names = (
        "kind",
        "schema",
        "model",
        "task",
        "text",
        "pair",
        "written",
        "given",
        "unit",
        "begin",
        "filler",
        "signed",
        "is_map",
    )
    assert [plain[name] for name in names] == [
        *("generation", 1, "m", "causal-lm", "The cat. A dog", None, "sats!", False, "word", 7, "delete", False, False)
    ]
    assert plain["tokens"] == list(TOKENS)
    assert plain["words"][5] == {
        **{
            "text": "dog",
            "before": " ",
            "segment": "text",
            "special": False,
            "mark": False,
            "tokens": [5, 6],
            "group": 1,
            "cut": False,
        }
    }
    assert plain["groups"][1] == {"kind": "sentence", "role": None, "name": "sentence 2", "words": [4, 5]}
    assert plain["spans"] == [{"kind": "sentence", "role": None, "name": "sentence 1", "words": [6, 7]}]
    first = plain["rows"][0]
    assert (first["word"], first["probability"], first["prompt"]) == (6, 0.25, pytest.approx(0.5))
    assert (first["own"], first["scores"]) == (pytest.approx(1 / 3), [2.0, 0.0, 4.0, 0.0, 0.0, 2.0, 4.0, 0.0])
    assert first["shares"] == pytest.approx([1 / 6, 0, 1 / 3, 0, 0, 1 / 6, 1 / 3, 0])
    assert first["effects"] == [0.0, 0.1, -0.2, 0.0, -0.05, None, 0.0, 0.0]
    assert (first["group_effects"], plain["rows"][1]["word"]) == ([-0.15, -0.1], 7)
    assert plain["method"] == {"id": "alti", "paper": "p"}
    assert plain["probabilities"] == [0.5, 0.5, 0.75]
    assert plain["scores"] == [list(row) for row in SCORES]
    assert plain["predictions"] == [[["x", 0.5]]] * 3
    assert plain["provenance"] == {"model": "m", "paper": "p", "gap": 0.5}
    assert plain["sentence"] == made(effects=LOST).sentence
    assert "".join(part[1] for part in plain["parts"]).startswith("On average 50\u202f% on the prompt")
    without = files.to_dict(made())
    assert (without["filler"], without["rows"][0]["effects"], without["rows"][0]["group_effects"]) == (None, None, None)


def test_read_back_from_a_file(tmp_path: Path) -> None:
    place = tmp_path / "g.json"
    whole = made(effects=LOST)
    text_of_file = whole.to_json(place)
    assert place.read_text() == text_of_file + "\n"
    assert json.loads(text_of_file) == files.to_dict(whole)
    again = Generation.load(place)
    assert (again.text, again.probabilities, again.is_map, again.given, again.whole) == (
        whole.text,
        whole.probabilities,
        False,
        False,
        None,
    )
    assert torch.equal(again.scores, whole.scores)
    assert again.effects is not None
    torch.testing.assert_close(again.effects.words, LOST.words, equal_nan=True)
    torch.testing.assert_close(again.effects.groups, LOST.groups)
    assert again.effects.replacement == "delete"
    step = again[1]
    assert (step.method, step.tokens, step.special, step.scores.tolist()) == (
        "alti",
        TOKENS[:8],
        (True, *[False] * 7),
        list(SCORES[1][:8]),
    )
    assert step.info == {
        **{
            "model": "m",
            "paper": "p",
            "gap": 0.5,
            "prediction": [("x", 0.5)],
            "probability": 0.5,
            "generated": "s",
            "given": False,
        },
        **{"query": 7, "query_token": "sat"},
    }
    made().save(tmp_path / "h.json")
    assert Generation.load(tmp_path / "h.json").effects is None
    with pytest.raises(InputError, match=r"^this generation was read from a file, so there is no model to run again\."):
        Generation.load(tmp_path / "h.json").with_effects()
    assert again.with_effects() is again


def test_a_line_for_every_cell(tmp_path: Path) -> None:
    lines = made(effects=LOST).to_csv(tmp_path / "g.csv").splitlines()
    assert (tmp_path / "g.csv").read_text().splitlines() == lines
    assert lines[0] == "row,written,probability,column,word,segment,group,score,share,effect"
    assert len(lines) == 1 + 7 + 8
    assert lines[1] == "1,sats,0.25,1,<s>,text,,2.0,0.16666666666666666,"
    assert lines[2] == "1,sats,0.25,2,The,text,1,0.0,0.0,0.1"
    assert lines[6] == "1,sats,0.25,6,dog,text,2,2.0,0.16666666666666666,"
    assert lines[7] == "1,sats,0.25,7,sats,written,1,4.0,0.3333333333333333,"
    assert lines[15] == "2,!,0.75,8,!,written,1,0.0,0.0,"
    assert made().to_csv().splitlines()[2] == "1,sats,0.25,2,The,text,1,0.0,0.0,"


def test_files_that_cannot_be(tmp_path: Path) -> None:
    for path, told in (
        (tmp_path / "g.txt", "this is saved as .json, not 'g.txt'."),
        (tmp_path / "no" / "g.json", f"no folder {str(tmp_path / 'no')!r} to save in."),
    ):
        with pytest.raises(ResultError) as found:
            made().to_json(path)
        assert str(found.value) == told
    made().to_json(tmp_path / "G.JSON")
    with pytest.raises(ResultError, match=r"^no file '.*none\.json'\.$"):
        files.load(tmp_path / "none.json")
    plain = files.to_dict(made())
    for change, told in (
        ({"kind": "map"}, "this is no generation of schema 1, but 'map' of 1."),
        ({"schema": 2}, "this is no generation of schema 1, but 'generation' of 2."),
        ({"scores": [[0.0] * 10] * 2}, "its scores, words and tokens do not fit together."),
        ({"scores": [[0.0] * 9] * 3}, "its scores, words and tokens do not fit together."),
        ({"scores": [[math.inf] * 10] * 3}, "its scores, words and tokens do not fit together."),
        ({"probabilities": [0.5] * 2}, "its scores, words and tokens do not fit together."),
        ({"words": plain["words"][1:]}, "its scores, words and tokens do not fit together."),
        ({"begin": 10, "scores": [], "probabilities": []}, "its scores, words and tokens do not fit together."),
    ):
        with pytest.raises(ResultError) as found:
            files.from_dict({**plain, **change})
        assert str(found.value) == told
    damaged = tmp_path / "d.json"
    for content, name in (("{", "JSONDecodeError"), ("[]", "TypeError"), ("{}", "KeyError")):
        damaged.write_text(content)
        with pytest.raises(ResultError) as found:
            files.load(damaged)
        assert str(found.value) == f"'d.json' is not a mixlens generation (or is damaged): {name}."


def test_facts_and_numbers_in_a_file(tmp_path: Path) -> None:
    """Facts that JSON has not are written as text; whole numbers come back as decimals; a map and a given text stay so."""
    generation = made(is_map=True)
    generation.steps[0].info.update(options={"a": (1, 2), "p": Path("x")})
    plain = json.loads(generation.to_json())
    assert plain["provenance"]["options"] == {"a": [1, 2], "p": "x"}
    whole = files.from_dict({**plain, "scores": [[1] * 10] * 3, "probabilities": [1, 0, 1], "given": True})
    assert (whole.scores.dtype, whole.is_map, whole.given, whole.probabilities) == (
        torch.float64,
        True,
        True,
        (1.0, 0.0, 1.0),
    )
    assert (type(whole.probabilities[0]), whole[0].info["given"]) == (float, True)
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(made(), probabilities=(NAN, 0.5, 0.5)).to_json()
    assert "\r" not in made().to_csv()
    assert "ä" in replace(made(), text=replace(made().text, written="ä")).to_json()
    with pytest.raises(ResultError, match=r"^its scores, words and tokens do not fit together\.$"):
        files.from_dict({**plain, "scores": [[NAN] + [0.0] * 9, [0.0] * 10, [0.0] * 10]})
    words = [{**plain["words"][0], "tokens": [0, 1]}]
    one = {"tokens": ["a", "b"], "begin": 1, "words": words, "groups": [], "spans": [], "predictions": [[]]}
    assert len(files.from_dict({**plain, **one, "scores": [[1.0, 0.0]], "probabilities": [0.5]})) == 1
    with pytest.raises(ResultError, match=r"^its scores, words and tokens do not fit together\.$"):
        files.from_dict({**plain, **one, "begin": 2, "scores": torch.zeros(0, 2).tolist(), "probabilities": []})


# --- what leaving out does --------------------------------------------------------------------------------------------


class MadeTrace(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.input_ids)


# --- words ------------------------------------------------------------------------------------------------------------


class MadeContinuation(SimpleNamespace):
    def words_before(self, place: int) -> Any:
        return self.known

    def spans(self) -> Any:
        return self.places

    def text_of(self, sequence: int) -> str:
        return self.sources[sequence]


def continuation(**more: Any) -> Any:
    """<s> The cat . "A do" | g sat: the written text goes on with the word "dog"."""
    tokens = ("<s>", "The", "cat", ".", "A", "do", "g", "sat", ".")
    prompt = SimpleNamespace(text="The cat. A do", pair=None, special=(True, *[False] * 5), turns=None)
    whole = SimpleNamespace(tokens=tokens, special=(True, *[False] * 8))
    source = "The cat. A dog sat."
    places = [
        (None, 0, 0),
        (0, 0, 3),
        (0, 3, 7),
        (0, 7, 8),
        (0, 8, 10),
        (0, 10, 13),
        (0, 13, 14),
        (0, 14, 18),
        (0, 18, 19),
    ]
    known = (
        ("<s>", (0,)),
        ("The", (1,)),
        ("cat", (2,)),
        (".", (3,)),
        ("A", (4,)),
        ("dog", (5, 6)),
        ("sat", (7,)),
        (".", (8,)),
    )
    given = {"prompt": prompt, "whole": whole, "begin": 6, "written": "g sat.", "tokenizer": object(), "known": known}

    class Whole(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.tokens)

    made_one = MadeContinuation(**{**given, "places": places, "sources": {0: source}, **more})
    made_one.whole = Whole(**vars(made_one.whole))
    return made_one


def test_words_of_a_prompt_and_of_what_follows() -> None:
    found = text.written_text(continuation())
    assert found.words == (
        *(word("<s>", 0, before="", special=True), word("The", 1, before="", group=0), word("cat", 2, group=0)),
        *(word(".", 3, before="", mark=True, group=0), word("A", 4, group=1), word("do", 5, group=1)),
        *(word("g", 6, before="", segment="written", group=0), word("sat", 7, segment="written", group=0)),
        word(".", 8, before="", segment="written", mark=True, group=0),
    )
    assert found.groups == (Group("sentence", None, (1, 2, 3)), Group("sentence", None, (4, 5)))
    assert found.spans == (Group("sentence", None, (6, 7, 8)),)
    assert (found.prompt, found.pair, found.written, found.begin, found.unit) == (
        "The cat. A do",
        None,
        "g sat.",
        6,
        "word",
    )
    assert (found.first, [one.text for one in found.rows]) == (6, ["g", "sat", "."])
    assert [one.counts for one in found.words] == [False, *[True] * 5, False, False, False]


def test_tokens_where_words_are_not_known() -> None:
    found = text.written_text(continuation(known=None, tokenizer=None))
    assert (found.unit, found.written) == ("token", "g sat .")
    assert found.words[0] == word("<s>", 0, special=True)
    assert (found.words[5].segment, found.words[6].segment, found.words[6].tokens) == ("text", "written", (6,))
    assert not any(one.mark for one in found.words)


def test_turns_of_a_chat_and_its_template() -> None:
    """<|user|> and a line break are of the template; two turns, one of them empty."""
    chat = continuation()
    chat.prompt.turns = (("system", ()), ("user", (1, 2)), ("assistant", (4, 5)))
    chat.prompt.text = "<s>x"
    chat.places[3] = (None, 0, 3)
    found = text.written_text(chat)
    assert found.words[0].segment == "template"
    assert (found.words[3].text, found.words[3].segment, found.words[3].group) == ("<s>", "template", None)
    assert found.groups == (Group("turn", "user", (1, 2)), Group("turn", "assistant", (4, 5)))
    assert [one.group for one in found.words[:6]] == [None, 0, 0, None, 1, 1]


@pytest.mark.parametrize(
    ("texts", "sentences"),
    [
        (["Go", ".", "Now"], [(0, 1), (2,)]),
        (["Go", ".", "”", "Now"], [(0, 1, 2), (3,)]),
        (["Go", "!", "?", "Now"], [(0, 1, 2), (3,)]),
        (["Go.", "Now"], [(0,), (1,)]),
        (["”", "Go", "on"], [(0, 1, 2)]),
        ([], []),
    ],
)
def test_sentences(texts: list[str], sentences: list[tuple[int, ...]]) -> None:
    words = [word(name, number) for number, name in enumerate(texts)]
    numbered, groups = text._with_sentences(words, range(len(words)))
    assert [group.words for group in groups] == sentences
    assert [one.group for one in numbered] == [
        next(k for k, some in enumerate(sentences) if i in some) for i in range(len(words))
    ]


def test_another_text_is_another_sentence() -> None:
    words = [word("a", 0), word("b", 1, segment="pair"), word("c", 2, segment="pair")]
    assert [group.words for group in text._with_sentences(words, [0, 1, 2])[1]] == [(0,), (1, 2)]


def test_spaces_belong_to_the_word_behind_them_or_end_a_text() -> None:
    blank = word("", 1, before="\n")
    assert text._joined([word("a", 0), blank, word("b", 2, before="")], text._is_blank) == [
        *(word("a", 0), word("b", 1, 2, before="\n")),
    ]
    assert text._joined([word("a", 0), blank], text._ends_blank) == [word("a", 0, 1)]
    assert text._joined([word("a", 0, special=True), blank], text._ends_blank) == [word("a", 0, special=True), blank]
    assert text._joined([word("", 0), word("b", 1, segment="written")], text._is_blank)[0].text == ""
    assert text._joined([word("", 0), word("b", 1, special=True)], text._is_blank)[0].text == ""
    template = [word("<", 0, segment="template"), word("u", 1, segment="template"), word("x", 2)]
    assert [one.text for one in text._joined(template, text._is_template_run)] == ["<u", "x"]
    assert [one.text for one in text._named([word(" a  b ", 0), word(" \n", 1)], ("t0", "t1"))] == ["a b", "t1"]


def test_parts_and_segments() -> None:
    assert [list(text._parts(positions, 3)) for positions in ((0, 1), (2, 3, 4), (3,))] == [
        [(0, 1)],
        [(2,), (3, 4)],
        [(3,)],
    ]
    assert text._place((1, 2), [(None, 0, 0), (1, 4, 9), (1, 5, 7)]) == (1, 4, 9)
    cases = ((True, 0, True), (False, None, True), (False, None, False), (False, 1, False), (False, 0, True))
    assert [text._segment(*case) for case in cases] == ["written", "template", "text", "pair", "text"]
    assert text._word("x", "ab", "text", (0,), [False]).before == " "
    assert text._word("!", "\n", "text", (0, 1), [True, False]) == word("!", 0, 1, before="\n", mark=True)
    assert text._word("!", "", "text", (0, 1), [True, True]) == word("!", 0, 1, before="", special=True)


# --- what was written -------------------------------------------------------------------------------------------------


def test_scores_of_steps_are_rows_of_growing_length() -> None:
    steps = [SimpleNamespace(scores=torch.ones(2)), SimpleNamespace(scores=2 * torch.ones(3))]
    table = explaining._table(steps, 4)  # type: ignore[arg-type]
    assert (table.tolist(), table.dtype) == ([[1.0, 1.0, 0.0, 0.0], [2.0, 2.0, 2.0, 0.0]], torch.float64)


@pytest.mark.parametrize(("chosen", "likeliest"), [(2.0, True), (1.96, True), (1.9, False)])
def test_what_was_written_has_the_largest_logit_within_rounding(chosen: float, likeliest: bool) -> None:
    """The mean of 2, x, -2, -2 is about -0.5 x: two hundredths of the distance are about 0.05."""
    logits = torch.tensor([[9.0, 0.0, 0.0, 0.0], [2.0, chosen, -2.0, -2.0], [0.0, 5.0, 0.0, 0.0]])
    written: Any = SimpleNamespace(logits=logits, places=range(2, 4), whole=SimpleNamespace(input_ids=[7, 7, 1, 1]))
    assert explaining._is_likeliest(written) is likeliest


@dataclass(frozen=True)
class Traced:
    """The fields of a trace that a written text reads."""

    tokens: tuple[str, ...]
    input_ids: tuple[int, ...]
    layers: Any
    special: tuple[bool, ...]
    attention_mask: tuple[int, ...]
    words: Any = None
    text: Any = "whole"
    pair: Any = None
    logits: Any = None
    predicts: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)


def written_by(model: Any, **more: Any) -> Any:
    """Two tokens of a prompt and two that were written."""
    whole = Traced(tuple("abcd"), (3, 1, 2, 0), LayersOf("batch", 1, 4), (False, False, False, True), (1, 1, 1, 1))  # type: ignore[arg-type]
    prompt = SimpleNamespace(input_ids=(3, 1), special=(True, False), pair="p", text="t", turns=None)
    return explaining.Written(model, prompt, whole, **{"given": True, **more})  # type: ignore[arg-type]


def test_a_written_text_by_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.log(
        torch.tensor([[0.25] * 4, [0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25] * 4], dtype=torch.float64)
    )
    logits += 1.0  # a softmax does not see it
    model = SimpleNamespace(logits=lambda whole: logits)
    written = written_by(model)
    assert (written.logits is logits, written.places, written.special) == (
        True,
        range(2, 4),
        (True, False, False, True),
    )
    assert written.probabilities == pytest.approx([0.3, 0.7], abs=1e-12)
    assert written_by(model, known_logits="known").logits == "known"
    half = written_by(model, known_logits=logits.to(torch.bfloat16))
    assert half.probabilities == pytest.approx([0.3, 0.7], abs=0.01)
    go_on = SimpleNamespace(words_before=lambda place: f"words {place}", text_before=lambda place: f"text {place}")
    monkeypatch.setattr(explaining.Written, "continuation", go_on)
    before = written.before(3)
    assert (before.tokens, before.input_ids, before.special, before.attention_mask) == (
        tuple("abc"),
        (3, 1, 2),
        (True, False, False),
        (1, 1, 1),
    )
    assert (before.words, before.text, before.pair, before.predicts) == ("words 3", "text 3", "p", (2,))
    assert torch.equal(before.logits, logits[2:3])
    assert (before.layers.batch, before.layers.row, before.layers.n) == ("batch", 1, 3)
    monkeypatch.setattr(explaining, "named", lambda model, row, k: (row.tolist(), k))
    named = explaining._named(written, Attribution(torch.zeros(3), tuple("abc"), "m", {"old": 1}), 3)
    assert named.info == {
        **{"old": 1, "generated": "d", "prediction": (logits[2].tolist(), 5), "probability": pytest.approx(0.7)},
        **{"text": "text 3", "pair": "p", "given": True},
    }
    row = Attribution(torch.arange(4.0), tuple("abcd"), "m", {}, (False,) * 4)
    begun = explaining._begun(written, row, 3)
    assert (begun.scores.tolist(), begun.tokens, begun.special, begun.words) == (
        [0.0, 1.0, 2.0],
        tuple("abc"),
        (True, False, False),
        "words 3",
    )


def test_what_is_asked_about_each_written_token(monkeypatch: pytest.MonkeyPatch) -> None:
    written = written_by(None)
    options = {"layer": 2, "foil": "f", "score": "logit"}
    assert explaining._aim(written, "attcat", 3, options) == {
        "layer": 2,
        "query": 2,
        "target": 0,
        "foil": "f",
        "score": "logit",
    }
    monkeypatch.setattr(explaining, "known", lambda: {"m": SimpleNamespace(needs_target=False)})
    assert explaining._aim(written, "m", 2, options) == {"layer": 2, "query": 1}
    assert explaining._aim(written, "other", 2, {})["target"] == 2
    asked: list[Any] = []
    monkeypatch.setattr(explaining.Written, "before", lambda self, place: f"before {place}")
    monkeypatch.setattr(
        explaining, "attribute_each", lambda *given, **named: asked.append((given, named)) or ["a", "b"]
    )
    monkeypatch.setattr(explaining, "warn_where_open", asked.append)
    given = {
        "variant": "v",
        "steps": 3,
        "target": "predicted",
        "query": None,
        "foil": None,
        "score": None,
        "label": 1,
        "layer": 0,
    }
    assert explaining._attributions(written, "m", given) == ["a", "b"]  # type: ignore[comparison-overlap]
    assert asked == [
        (
            (["before 2", "before 3"], "m", [{"layer": 0, "query": 1}, {"layer": 0, "query": 2}]),
            {"variant": "v", "steps": 3},
        ),
        *("a", "b"),
    ]
    with pytest.raises(InputError):
        explaining._or_raise(InputError("x"))


def test_rows_of_one_map_of_the_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    written, asked = written_by(None), list[Any]()
    monkeypatch.setattr(explaining, "mix", lambda *given, **named: asked.append((given, named)) or "map")
    monkeypatch.setattr(explaining, "_rolled", lambda *given: asked.append(given) or ["x", "y"])
    monkeypatch.setattr(explaining, "_begun", lambda written, row, place: (row, place))
    given = {"variant": "v", "head": 1, "layer": 2, "rollout": "r", "query": None, "target": "predicted", "foil": None}
    assert explaining._map_rows(written, "alti", given) == [("x", 2), ("y", 3)]  # type: ignore[comparison-overlap]
    assert asked == [((written.whole, "alti"), {"variant": "v", "head": 1}), (written.whole, "map", [1, 2], "r", 2)]


def test_a_text_is_written_or_given(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    prompt = SimpleNamespace(input_ids=(1, 2))
    model: Any = SimpleNamespace(encode=lambda text: prompt, max_tokens=2, name="m")
    model.generate = lambda prompt, count: asked.append(("generate", prompt, count)) or [7]
    model.trace = lambda *, input_ids: asked.append(("trace", input_ids)) or "whole"
    monkeypatch.setattr(explaining, "refuse_generation", lambda *given: asked.append(given[1:]))
    monkeypatch.setattr(explaining, "continuation_ids", lambda model, prompt, text: [8, 9])
    found = explaining.write(model, "x", generate=4)
    assert (found.model, found.prompt, found.whole, found.given, found.known_logits) == (
        model,
        prompt,
        "whole",
        False,
        None,
    )
    assert asked == [("generate", prompt, 4), ("trace", [1, 2, 7])]
    asked.clear()
    assert explaining.write(model, "x", continuation="y").given is True
    assert asked == [(2, 1, "continuation"), (2, 2, "continuation"), ("trace", [1, 2, 8, 9])]
    alone = explaining.write_alone(model, prompt, 5)  # type: ignore[arg-type]
    assert (alone.given, asked[-2:]) == (False, [("generate", prompt, 5), ("trace", [1, 2, 7])])
    model.max_tokens = 1
    with pytest.raises(InputError, match=r"^the text has 2 tokens, 'm' reads at most 1\."):
        explaining.write(model, "x", generate=4)
    with pytest.raises(InputError, match=r"^generate= lets the model write"):
        explaining.write(model, "x", generate=4, continuation="y")


def test_texts_are_written_in_batches_and_those_that_differ_again(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: Any = [SimpleNamespace(input_ids=(1,)), SimpleNamespace(input_ids=(2, 3))]
    encoded: list[Any] = []
    monkeypatch.setattr(explaining, "generate_each", lambda model, prompts, count: [[9] * count, [8]])
    monkeypatch.setattr(explaining, "write_alone", lambda model, prompt, count: ("alone", model, prompt, count))
    model: Any = SimpleNamespace(
        encode_ids=lambda ids: encoded.append(ids) or ids, run_traced=lambda wholes: (wholes, None)
    )
    model.outputs = lambda wholes: SimpleNamespace(logits=torch.zeros(2, 5, 4))
    monkeypatch.setattr(explaining, "_is_likeliest", lambda text: text.prompt is prompts[1])
    first, second = explaining.write_each(model, prompts, 2)
    assert encoded == [[1, 9, 9], [2, 3, 8]]
    assert first == ("alone", model, prompts[0], 2)  # type: ignore[comparison-overlap]
    assert (second.model, second.prompt, second.whole, second.given) == (model, prompts[1], [2, 3, 8], False)
    assert second.known_logits is not None
    assert second.known_logits.shape == (3, 4)


def test_explaining_a_prediction_or_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    for name in ("refuse_other_model", "explain_prediction", "write", "explain_written"):
        monkeypatch.setattr(
            explaining, name, lambda *given, name=name, **named: asked.append((name, given, named)) or name
        )
    assert explaining.explain("m", "t", "alti", query=1) == "explain_prediction"  # type: ignore[arg-type]
    assert asked == [
        ("refuse_other_model", ("m", "t"), {}),
        ("explain_prediction", ("m", "t", "alti"), {"keep_special": True, "query": 1}),
    ]
    for given in ({"generate": 3}, {"continuation": "x"}):
        asked.clear()
        assert explaining.explain("m", "t", "alti", keep_special=False, variant="v", **given) == "explain_written"  # type: ignore[arg-type]
        assert asked[1:] == [
            ("write", ("m", "t"), {"generate": None, "continuation": None, **given}),
            ("explain_written", ("write", "alti"), {"keep_special": False, "variant": "v"}),
        ]


def test_what_cannot_be_asked_of_a_written_text() -> None:
    for options in ({"target": "a"}, {"query": 0}):
        with pytest.raises(
            InputError, match=r"^generate= and continuation= explain each written token; leave target= and query="
        ):
            explaining.refuse_asked("attcat", options)
    explaining.refuse_asked("alti", {"target": "predicted", "query": None, "foil": None})
    explaining.refuse_asked("attcat", {"foil": "a", "score": "logit"})
    with pytest.raises(
        InputError, match=r"^generate= lets the model write, continuation= is what it is to have written\."
    ):
        explaining._refuse_two(1, "x")
    explaining._refuse_two(1, None)
    explaining._refuse_two(None, "x")
    assert explaining._text_of("x") == "x"


def test_probabilities_of_words_are_added_up_in_float64() -> None:
    found = leaving_out._by_word(made(), [-1e-9, -2e-9, -0.5])
    assert found == pytest.approx([math.exp(-3e-9), math.exp(-0.5)], rel=1e-14)
    assert found[0] != 1.0
