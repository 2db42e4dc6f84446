"""Tokens that share a word of the text stand together, by the characters that each covers."""

from __future__ import annotations

import pytest

from mixlens.model import words


@pytest.mark.parametrize(
    ("text", "spans", "expected"),
    [
        ("undo it", [(0, 2), (2, 4), (5, 7)], [("undo", (0, 1)), ("it", (2,))]),
        ("undo it", [(0, 2), (2, 4), (4, 7)], [("undo", (0, 1)), ("it", (2,))]),  # with the space before it
        ("well-known,", [(0, 4), (4, 5), (5, 10), (10, 11)], [("well-known", (0, 1, 2)), (",", (3,))]),
        ("man's", [(0, 3), (3, 4), (4, 5)], [("man's", (0, 1, 2))]),
        ("你好", [(0, 1), (1, 2)], [("你", (0,)), ("好", (1,))]),
        ("你好", [(0, 2)], [("你好", (0,))]),
        ("?!", [(0, 1), (1, 2)], [("?", (0,)), ("!", (1,))]),
        ("a b c", [(0, 3), (3, 5)], [("a b", (0,)), ("c", (1,))]),  # a token that spans words joins them
        ("ab cd", [(0, 1), (1, 4), (4, 5)], [("ab cd", (0, 1, 2))]),
        ("  a", [(0, 2), (2, 3)], [("t0", (0,)), ("a", (1,))]),  # a token of spaces stands alone
        ("ab", [(0, 1), (1, 1), (1, 2)], [("a", (0,)), ("t1", (1,)), ("b", (2,))]),
    ],
)
def test_tokens_of_one_word_stand_together(text: str, spans: list[tuple[int, int]], expected: list[object]) -> None:
    names = [f"t{i}" for i in range(len(spans))]
    assert list(words.group_words([text], spans, [0] * len(spans), names)) == expected


def test_tokens_of_two_texts_and_of_none() -> None:
    spans, sequences = [(0, 0), (0, 2), (2, 3), (0, 3), (0, 0)], [None, 0, 0, 1, 2]
    made = words.group_words(["one", "one", None], spans, sequences, list("vwxyz"))
    assert made == (("v", (0,)), ("one", (1, 2)), ("one", (3,)), ("z", (4,)))
