"""Sentences of a text, and what a head does most: on maps made by hand, where the answer is known."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

import mixlens
from mixlens.base import words as wording
from mixlens.scoring import head_maps

TEXT = "One two three. Four five six."
TOKENS = ("[CLS]", "One", "two", "three", ".", "Four", "five", "si", "##x", ".", "[SEP]")
PLACES = [(0,), (1,), (2,), (3,), (4,), (5,), (6,), (7, 8), (9,), (10,)]
SURFACES = ["[CLS]", "One", "two", "three", ".", "Four", "five", "six", ".", "[SEP]"]
WORDS = tuple(zip(SURFACES, PLACES, strict=True))
SPECIAL = tuple(token.startswith("[") for token in TOKENS)


def maps(
    *heads: Tensor, causal: bool = False, special: tuple[bool, ...] = SPECIAL, text: str = TEXT
) -> mixlens.HeadMaps:
    info = {"text": text, "pair": None, "causal": causal}
    return mixlens.HeadMaps(torch.stack(heads)[None], TOKENS, "attention", info, special, WORDS)


def looking(*columns: int) -> Tensor:
    """Every token looks at these tokens alone, with equal weights."""
    scores = torch.zeros(11, 11, dtype=torch.float64)
    scores[:, list(columns)] = 1 / len(columns)
    return scores


def shifted(step: int) -> Tensor:
    """Every token looks `step` tokens further; those at the end at the first token."""
    scores = torch.zeros(11, 11, dtype=torch.float64)
    for query in range(11):
        scores[query, query + step if 0 <= query + step < 11 else 0] = 1
    return scores


def within() -> Tensor:
    """Every token looks at its own sentence, evenly."""
    scores = torch.zeros(11, 11, dtype=torch.float64)
    scores[1:5, 1:5] = 1 / 4
    scores[5:10, 5:10] = 1 / 5
    scores[[0, 10], 0] = 1
    return scores


def test_heads_made_by_hand_get_their_names() -> None:
    even = torch.full((11, 11), 1 / 11, dtype=torch.float64)
    roles = maps(
        looking(0), looking(10), torch.eye(11, dtype=torch.float64), shifted(-1), shifted(1), within(), even
    ).roles()
    assert [role.id for role in roles] == ["start", "end", "itself", "back", "ahead", "sentence", "spread"]
    assert [role.name for role in roles] == [head_maps.ROLES[role.id].name for role in roles]
    assert [role.head for role in roles] == list(range(7))
    assert {role.layer for role in roles} == {0}
    assert roles[0].share == roles[1].share == roles[2].share == 1.0
    # Eight words: seven have one before; "six" is two tokens, and the second looks at the first, so half of its row
    # is itself.
    assert roles[3].share == pytest.approx((6 + 0.5) / 8)
    assert roles[5].share == pytest.approx(1.0)
    for role in roles:
        assert sum(share for name, share in role.shares.items() if name not in ("sentence", "few")) == pytest.approx(
            1.0
        )


def test_the_limits_are_those_of_the_table() -> None:
    """A mixture of "back" and two columns: at its limit the narrow role names the head, under it the largest share
    does."""
    limit = head_maps.ROLES["back"].limit
    far = looking(1, 5)  # two words; few are neighbours of all others
    share = maps(shifted(-1)).roles()[0].shares["back"]
    for weight, expected in ((limit / share + 0.02, "back"), (0.05, "few")):
        role = maps(weight * shifted(-1) + (1 - weight) * far).roles()[0]
        assert role.id == expected
        assert (role.shares["back"] >= limit) == (expected == "back")


def long_maps(head: Tensor) -> mixlens.HeadMaps:
    """A text of twenty words in one sentence, one token each."""
    words = tuple((f"w{place}", (place,)) for place in range(20))
    return mixlens.HeadMaps(head[None, None], tuple(word for word, _ in words), "attention", {}, (False,) * 20, words)


@pytest.mark.parametrize("columns", [(9,), (3, 15), (3, 9, 15)])
def test_a_head_with_few_dark_columns_does_not_spread(columns: tuple[int, ...]) -> None:
    """Columns share a head with even attention: from half of what no other role has, it looks at few words."""
    dark = torch.zeros(20, 20, dtype=torch.float64)
    dark[:, list(columns)] = 1 / len(columns)
    even = torch.full((20, 20), 1 / 20, dtype=torch.float64)
    for weight in (0.2, 0.35, 0.5, 0.75):
        head = weight * dark + (1 - weight) * even
        role = long_maps(head).roles()[0]
        others = [[float(head[i, j]) for j in range(20)] for i in range(20)]
        for i in range(20):
            for j in (i - 1, i, i + 1):
                if 0 <= j < 20:
                    others[i][j] = 0.0  # the roles "back", "itself" and "ahead"
        held = sorted((sum(row[j] for row in others) / 20 for j in range(20)), reverse=True)
        assert role.shares["few"] == pytest.approx(sum(held[:3]), abs=1e-12)  # float64, 400 numbers
        assert role.shares["spread"] == pytest.approx(sum(held), abs=1e-12)
        assert role.id == ("few" if sum(held[:3]) >= 0.5 * sum(held) else "spread")
        assert role.share == role.shares[role.id]
    assert role.id == "few"  # at 75 %
    assert long_maps(0.2 * dark + 0.8 * even).roles()[0].id == "spread"
    assert long_maps(even).roles()[0].id == "spread"


def test_marks_by_the_kind_of_model() -> None:
    """<s> of a model that reads forwards is the begin mark; without a mark its first word is where heads rest."""
    head = looking(0)
    assert maps(head, causal=True).roles()[0].id == "begin"
    assert maps(head, causal=True, special=(False,) * 10 + (True,)).roles()[0].id == "first"


def test_one_sentence_is_no_sentence() -> None:
    """All of it is in the same sentence: that says nothing of a head."""
    tokens = tuple("abcdefgh")
    even = torch.full((1, 1, 8, 8), 1 / 8, dtype=torch.float64)
    role = mixlens.HeadMaps(even, tokens, "attention", {"text": "a b c d e f g h"}, (False,) * 8).roles()[0]
    assert role.id == "spread"
    assert "sentence" not in role.shares
    assert "sentence" in maps(within()).roles()[0].shares


def test_a_layer_keeps_its_number() -> None:
    heads = mixlens.HeadMaps(
        torch.stack([looking(0)[None], looking(10)[None]]), TOKENS, "attention", {"text": TEXT}, SPECIAL, WORDS
    )
    assert [(role.layer, role.id) for role in heads.roles()] == [(0, "start"), (1, "end")]
    assert [(role.layer, role.id) for role in heads.layer(1).roles()] == [(1, "end")]


def test_words_are_summed_over_keys_and_averaged_over_queries() -> None:
    scores = torch.rand(2, 11, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    made = head_maps.grouped(scores, WORDS, 11)
    for q, (_, queries) in enumerate(WORDS):
        for k, (_, keys) in enumerate(WORDS):
            expected = sum(scores[1, i, j] for i in queries for j in keys) / len(queries)
            assert float(made[1, q, k]) == pytest.approx(float(expected), abs=1e-15)
    by_word = maps(scores[0], scores[1]).by_word()
    torch.testing.assert_close(by_word.scores[0], made, rtol=0, atol=1e-15)
    assert by_word.tokens == tuple(SURFACES)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It was long. I slept!", ["It was long.", "I slept!"]),
        ("it was long. i slept.", ["it was long.", "i slept."]),
        (
            "Mr. Smith paid 3.50 dollars, i.e. little. J. Doe did not.",
            ["Mr. Smith paid 3.50 dollars, i.e. little.", "J. Doe did not."],
        ),
        ('He said "no." Then he left...', ['He said "no."', "Then he left..."]),
        ("What?! Really? Yes (I think.) So be it", ["What?!", "Really?", "Yes (I think.)", "So be it"]),
        ("Title\n\nIt begins here", ["Title", "It begins here"]),
        ("no mark at all", ["no mark at all"]),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    surfaces = re.findall(r"\w+(?:['-]\w+)*|[^\w\s]", text)
    words = tuple((surface, (place,)) for place, surface in enumerate(surfaces))
    scores = torch.eye(len(surfaces))[None, None]
    heads = mixlens.HeadMaps(scores, tuple(surfaces), "attention", {"text": text}, (False,) * len(surfaces), words)
    found = wording.words_in(heads)
    assert "".join(word.before + word.text for word in found) == text
    made = [
        "".join(found[place].before + found[place].text for place in sentence).strip()
        for sentence in wording.sentences_of(found)
    ]
    assert made == sentences


def test_a_pair_is_two_sentences_and_marks_are_in_none() -> None:
    tokens = ("[CLS]", "Who", "came", "[SEP]", "Bob", "came", "[SEP]")
    words = tuple((token, (place,)) for place, token in enumerate(tokens))
    special = tuple(token.startswith("[") for token in tokens)
    heads = mixlens.HeadMaps(
        torch.eye(7)[None, None], tokens, "attention", {"text": "Who came", "pair": "Bob came"}, special, words
    )
    found = wording.words_in(heads)
    assert [word.source for word in found] == [-1, 0, 0, -1, 1, 1, -1]
    assert wording.sentences_of(found) == [[1, 2], [4, 5]]
