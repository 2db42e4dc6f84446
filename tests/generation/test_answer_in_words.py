"""What is said of a written text, on made-up numbers: on average, of the word that needs the prompt, of marks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import mixlens
from mixlens.answers.generation import leaving_out, text, value

TOKENS = ("<s>", "The", "cat", ".", "A", "do", "g", "sat", "s", "!")
BEGIN = 7
GROUPS = (text.Group("sentence", None, (1, 2, 3)), text.Group("sentence", None, (4, 5)))
AVERAGE = "On average 50 % on the prompt, 42 % on the words just written and 8.3 % on special tokens."
SCORES = (
    (1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0),
    (1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, 4.0, 0.0, 0.0),
    (0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0),
)


def word(name: str, *tokens: int, segment: str = "text", group: int | None = None, **more: bool) -> text.Word:
    before = "" if name in ("<s>", "The", ".", "!") else " "
    return text.Word(name, before, segment, more.get("special", False), more.get("mark", False), tokens, group)


PROMPT = (
    word("<s>", 0, special=True),
    word("The", 1, group=0),
    word("cat", 2, group=0),
    word(".", 3, group=0, mark=True),
    word("A", 4, group=1),
    word("dog", 5, 6, group=1),
)
WORDS = (*PROMPT, word("sats", 7, 8, segment="written"), word("!", 9, segment="written", mark=True))
THREE = (*PROMPT, *(word(name, 7 + k, segment="written") for k, name in enumerate(("sat", "s", "up"))))


def made(
    scores: Any = SCORES,
    lost: Any = None,
    *,
    by_word: Any = None,
    groups: Any = GROUPS,
    words: Any = WORDS,
    **more: Any,
) -> value.Generation:
    """`lost`: [row group], what leaving out each sentence does; `by_word`: [row column]."""
    span = text.Group("sentence", None, tuple(range(6, len(words))))
    written = text.WrittenText("The cat. A dog", None, "sats!", TOKENS, BEGIN, words, groups, (span,), "word")
    table, effects = torch.tensor(scores, dtype=torch.float64), None
    if lost is not None:
        changes = torch.tensor(lost, dtype=torch.float64)
        each = torch.zeros(len(changes), len(words)) if by_word is None else torch.tensor(by_word)
        effects = leaving_out.Effects("delete", each.double(), changes)
    info = {"model": "m", "paper": "p", "prediction": [("x", 0.5)], "other": object}
    steps = [mixlens.Attribution(table[k, : BEGIN + k], TOKENS[: BEGIN + k], "alti", info, (True,)) for k in range(3)]
    return value.Generation(tuple(steps), written, table, (0.5, 0.5, 0.75), more.get("is_map", False), False, effects)


NONE = [0.0] * 10
LOST = [[-0.15, -0.1], [-0.5, 0.0]]
OWN = [NONE, [0.0, 1.0, *[0.0] * 5, 4.0, 0.0, 0.0], SCORES[2]]
EDGE = [NONE, [0.0, 2.0, *[0.0] * 5, 3.0, 0.0, 0.0], SCORES[2]]  # 60 % own words
MARK = [SCORES[0], SCORES[1], [0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("generation", "sentence"),
    [
        (made(), f"{AVERAGE} Of the prompt, “cat” gave most to one word: 33 % of sats."),
        (made([NONE, [*[0.0] * 7, 1.0, 0.0, 0.0], SCORES[2]]), "Mostly on the words just written: 75 % on average."),
        (
            made([NONE, [0.0, 1.0, *[0.0] * 5, 1.0, 0.0, 0.0], SCORES[2]]),
            "On average 50 % on the words just written, 50 % on the prompt. ",
        ),
        (
            made([[1.0, *[0.0] * 9]] * 3),
            "On nothing that this method sees: all of it went to special tokens.",
        ),
        (
            made([[6.0, 0.0, 1.0, *[0.0] * 7], NONE, [6.0, *[0.0] * 6, 4.0, 0.0, 0.0]]),
            "Mostly on special tokens: 73 % on average, 20 % on the words just written.",
        ),
        (
            made([[2.0, 2.0, *[0.0] * 8], [*[0.0] * 7, 3.0, 0.0, 0.0], [2.0, 2.0, *[0.0] * 5, 3.0, 0.0, 0.0]]),
            "On average 43 % on the words just written, 29 % on the prompt and 29 % on special",
        ),
        (
            made(lost=LOST),
            f"{AVERAGE} The prompt counts most for sats: 50 % of that word is made of the prompt, and without "
            f"sentence 1 "
            "(“The cat.”) its probability would be 10 % instead of 25 %.",
        ),
        (made(lost=[[-0.005, 0.0], [0.0, 0.0]]), f"{AVERAGE} Leaving out no single part changes much."),
        (made(lost=[[-0.5, 0.0], [0.0, 0.0]]), "would be 0 % instead of 25 %"),
        (
            made(lost=LOST, by_word=[[0.0, 0.1, -0.2, 0.0, -0.05, math.nan, 0.0, 0.0], [0.0] * 8], groups=GROUPS[:1]),
            "and without “cat” its probability would be 5.0 % instead of 25 %.",
        ),
        (
            made([SCORES[0], SCORES[1], [-1.0, *[0.0] * 9]], LOST),
            "50 % of its evidence is in the prompt",
        ),
        (made(MARK), "33 % of sats. Marks are left out: “!” took 75 % from “A”."),
        (made(MARK, LOST), "instead of 25 %. Marks are left out: “!” has 75 % in the prompt."),
        (made(OWN, LOST), "The prompt comes back for sats: 20 %"),
        (made(EDGE, LOST), "The prompt counts most for sats"),
        (  # the first word loses most, the third has the larger share in the prompt
            made(
                [SCORES[0], SCORES[1], [0.0, 0.0, 1.0, *[0.0] * 7]],
                [[-0.2, 0.0], [0.0, 0.0], [0.0, -0.001]],
                words=THREE,
            ),
            "The prompt counts most for up: 100 % of that word is made of the prompt, but leaving out no single part "
            "changes "
            "its probability much.",
        ),
    ],
)
def test_the_answer(generation: value.Generation, sentence: str) -> None:
    assert sentence in generation.sentence.replace("\u202f", " ")
    told = generation.to_dict()
    quoted = {"quote": "“{}”", "strong": "{}", "": "{}"}
    assert "".join(quoted[kind].format(part) for kind, part in told["parts"]) == generation.sentence


def test_a_template_is_named_beside_special_tokens() -> None:
    marks = made([[6.0, 0.0, 1.0, *[0.0] * 7], NONE, [6.0, *[0.0] * 6, 4.0, 0.0, 0.0]])
    chat = replace(marks, text=replace(marks.text, words=(word("<s>", 0, segment="template"), *WORDS[1:])))
    assert chat.sentence.startswith("Mostly on special tokens and the chat template: 73")


def test_rows_are_words_and_their_magnitudes_sum_to_one() -> None:
    generation = made()
    assert [one.text for one in generation.rows] == ["sats", "!"]
    assert generation.word_scores.tolist()[1] == [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 2.0, 0.0]
    assert generation.matrix.tolist()[0] == pytest.approx([1 / 6, 0, 1 / 3, 0, 0, 1 / 6, 1 / 3, 0])
    assert made(is_map=True).word_scores.tolist()[0] == [1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 2.0, 0.0]  # a mean of rows
    assert generation.row_probabilities == (0.25, 0.75)
    assert (generation.signed, made([NONE, NONE, [-1.0, *[0.0] * 9]]).signed) == (False, True)
    assert made([NONE, NONE, [-1.0, *[0.0] * 9]]).matrix.tolist() == [[0.0] * 8, [-1.0, *[0.0] * 7]]


def test_turns_are_counted_among_those_of_their_role() -> None:
    turns = tuple(text.Group("turn", role, ()) for role in ("system", "user", "assistant", "user"))
    names = [group["name"] for group in made(groups=turns).to_dict()["groups"]]
    assert names == ["system turn 1", "user turn 1", "assistant turn 1", "user turn 2"]
