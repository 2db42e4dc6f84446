"""Refusals: what is escaped can be read back, limits are inclusive, and one bad value among good ones is enough."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixlens.base import errors

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
    assert unescaped(errors.printable(text)) == text
    assert json.loads(errors.printable_json(json.dumps(text, ensure_ascii=False))) == text
    assert errors.printable_json(json.dumps(text, ensure_ascii=False)).isprintable()


def test_a_visible_text_stays_as_it_is() -> None:
    for text in ("", "plain", "日本語", "a\\u200b", "❤\ufe0f"):
        assert errors.printable(text) == text
    assert errors.printable("a\u200bb👩\u200bc") == "a\\u200bb👩\\u200bc"
    assert errors.printable("\U000e0041") == "\\U000e0041"
    assert errors.printable("\uffa0") == "\\uffa0"


def test_a_text_of_whole_characters_is_read() -> None:
    assert errors.readable(" a text ", "text") == " a text "
    assert errors.readable("abc", "text", most=3) == "abc"
    with pytest.raises(errors.LongError, match=r"field 'text' has 1,001 characters; 1,000 are allowed"):
        errors.readable("a" * 1001, "text", most=1000)
    for value, reason in {"": "is empty", " \n": "is empty", "a\ud83d": "half a character"}.items():
        with pytest.raises(errors.InputError, match=reason):
            errors.readable(value, "text")
    assert errors.is_text("a👩")
    assert not errors.is_text("a\ud83d")


def test_what_is_no_text_is_named_by_its_type_and_beginning() -> None:
    assert errors.kind_of(None) == "nothing"
    assert errors.kind_of(7) == "int '7'"
    assert errors.kind_of(["x" * 80]) == f"list {str(['x' * 80])[:40]!r}"
    with pytest.raises(errors.InputError, match=r"^field 'text' holds float '0.5', not text\.$"):
        errors.readable(0.5, "text")


def test_a_limit_is_inclusive() -> None:
    errors.tokens_within(8, 8, "the model")
    errors.tokens_within(9, None, "the model")
    with pytest.raises(errors.InputError, match="the text has 9 tokens, the page reads at most 8"):
        errors.tokens_within(9, 8, "the page")
    errors.methods_within(["a", "b"], 2)
    errors.methods_within(["a"] * 99)
    with pytest.raises(errors.InputError, match="3 methods were asked for; 2 are allowed"):
        errors.methods_within(["a", "b", "c"], 2)
    with pytest.raises(errors.InputError, match="no method was asked for"):
        errors.methods_within([])


def test_names_are_suggested_in_order_of_likeness() -> None:
    known = ("value_zeroing", "alti", "attention", "globenc")
    assert errors.nearest("alit", known) == "Did you mean 'alti'? Known: alti, attention, globenc, value_zeroing."
    assert errors.nearest("zzz", known) == "Known: alti, attention, globenc, value_zeroing."
    assert errors.suggested("zzz", known) == ""
    assert errors.suggested("atention", known) == "Did you mean 'attention'?"
    assert (
        errors.suggested("abcd", ["abce", "abcf", "abcg", "abch"]) == "Did you mean 'abch' or 'abcg' or 'abcf'?"
    )  # three at most
    near = ("sentiment", "agreement")  # they share half of their letters
    assert errors.nearest("sentimental", near) == "Did you mean 'sentiment'? Known: agreement, sentiment."
    assert errors.nearest("agrement", near) == "Did you mean 'agreement'? Known: agreement, sentiment."
    assert errors.suggested("abcdef", ["abcxyz"]) == ""  # half of the letters is enough for `nearest` alone
    assert errors.nearest("abcdef", ["abcxyz"]) == "Did you mean 'abcxyz'? Known: abcxyz."


def test_an_unknown_method_is_refused_with_the_nearest_names_and_the_command_that_lists_all() -> None:
    known = ("value_zeroing", "alti", "attention", "globenc")
    assert (
        str(errors.unknown_method("alit", known))
        == "unknown method 'alit'. Did you mean 'alti'? `mixlens methods` lists all."
    )
    assert str(errors.unknown_method("zzz", known)) == "unknown method 'zzz'. `mixlens methods` lists all."
