"""Refusals: what is escaped can be read back, limits are inclusive, and one bad value among good ones is enough."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixlens.base.errors import (
    InputError,
    LongError,
    is_text,
    kind_of,
    methods_within,
    nearest,
    printable,
    printable_json,
    readable,
    suggested,
    tokens_within,
    unknown_method,
)

PIECES = (
    "a",
    " ",
    "é",
    "日",
    "👩",
    "👩\u200d👧",
    "❤\ufe0f",
    "🏽",
    "\u200d",
    "\u200b",
    "\u202e",
    "\ufe0f",
    "\x1b",
    "\n",
    "\U000e0041",
    "\u3164",
)


def unescaped(text: str) -> str:
    return re.sub(r"\\U([0-9a-f]{8})|\\u([0-9a-f]{4})", lambda found: chr(int(found[1] or found[2], 16)), text)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_what_is_escaped_can_be_read_back(text: str) -> None:
    """No character is lost, moved or written twice, whatever stands beside an emoji."""
    assert unescaped(printable(text)) == text
    assert json.loads(printable_json(json.dumps(text, ensure_ascii=False))) == text
    assert printable_json(json.dumps(text, ensure_ascii=False)).isprintable()


def test_a_visible_text_stays_as_it_is() -> None:
    for text in ("", "plain", "日本語", "a\\u200b", "❤\ufe0f"):
        assert printable(text) == text
    assert printable("a\u200bb👩\u200bc") == "a\\u200bb👩\\u200bc"
    assert printable("\U000e0041") == "\\U000e0041"
    assert printable("\uffa0") == "\\uffa0"


def test_a_text_of_whole_characters_is_read() -> None:
    assert readable(" a text ", "text") == " a text "
    assert readable("abc", "text", most=3) == "abc"
    with pytest.raises(LongError, match=r"field 'text' has 1,001 characters; 1,000 are allowed"):
        readable("a" * 1001, "text", most=1000)
    for value, reason in {"": "is empty", " \n": "is empty", "a\ud83d": "half a character"}.items():
        with pytest.raises(InputError, match=reason):
            readable(value, "text")
    assert is_text("a👩")
    assert not is_text("a\ud83d")


def test_what_is_no_text_is_named_by_its_type_and_beginning() -> None:
    assert kind_of(None) == "nothing"
    assert kind_of(7) == "int '7'"
    assert kind_of(["x" * 80]) == f"list {str(['x' * 80])[:40]!r}"
    with pytest.raises(InputError, match=r"^field 'text' holds float '0.5', not text\.$"):
        readable(0.5, "text")


def test_a_limit_is_inclusive() -> None:
    tokens_within(8, 8, "the model")
    tokens_within(9, None, "the model")
    with pytest.raises(InputError, match="the text has 9 tokens, the page reads at most 8"):
        tokens_within(9, 8, "the page")
    methods_within(["a", "b"], 2)
    methods_within(["a"] * 99)
    with pytest.raises(InputError, match="3 methods were asked for; 2 are allowed"):
        methods_within(["a", "b", "c"], 2)
    with pytest.raises(InputError, match="no method was asked for"):
        methods_within([])


def test_names_are_suggested_in_order_of_likeness() -> None:
    known = ("value_zeroing", "alti", "attention", "globenc")
    assert nearest("alit", known) == "Did you mean 'alti'? Known: alti, attention, globenc, value_zeroing."
    assert nearest("zzz", known) == "Known: alti, attention, globenc, value_zeroing."
    assert suggested("zzz", known) == ""
    assert suggested("atention", known) == "Did you mean 'attention'?"
    assert (
        suggested("abcd", ["abce", "abcf", "abcg", "abch"]) == "Did you mean 'abch' or 'abcg' or 'abcf'?"
    )  # three at most
    near = ("sentiment", "agreement")  # they share half of their letters
    assert nearest("sentimental", near) == "Did you mean 'sentiment'? Known: agreement, sentiment."
    assert nearest("agrement", near) == "Did you mean 'agreement'? Known: agreement, sentiment."
    assert suggested("abcdef", ["abcxyz"]) == ""  # half of the letters is enough for `nearest` alone
    assert nearest("abcdef", ["abcxyz"]) == "Did you mean 'abcxyz'? Known: abcxyz."


def test_an_unknown_method_is_refused_with_the_nearest_names_and_the_command_that_lists_all() -> None:
    known = ("value_zeroing", "alti", "attention", "globenc")
    assert (
        str(unknown_method("alit", known)) == "unknown method 'alit'. Did you mean 'alti'? `mixlens methods` lists all."
    )
    assert str(unknown_method("zzz", known)) == "unknown method 'zzz'. `mixlens methods` lists all."
