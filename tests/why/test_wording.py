"""Numbers and sentences as they are written: percent, points, and what a check says in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixlens.base import text as wording


@pytest.mark.parametrize(
    ("share", "written"),
    [
        (0.404, "40 %"),
        (0.094, "9.4 %"),
        (0.0996, "10 %"),
        (0.0994, "9.9 %"),
        (0.0004, "<0.1 %"),
        (0.0, "0 %"),
        (1.0, "100 %"),
    ],
)
def test_shares_have_one_decimal_under_ten(share: float, written: str) -> None:
    assert wording.percent(share).replace(wording.THIN, " ") == written


@pytest.mark.parametrize(
    ("share", "written"), [(0.19, "+19 %"), (-0.198, "−20 %"), (-0.0004, "<0.1 %"), (0.0004, "<0.1 %"), (0.0, "0 %")]
)
def test_signed_shares_always_say_their_sign(share: float, written: str) -> None:
    assert wording.percent(share, sign=True).replace(wording.THIN, " ") == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.999, "99.9 %"),
        (0.99961, ">99.9 %"),
        (1.0, "100 %"),
        (0.00053, "0.1 %"),
        (0.0004, "<0.1 %"),
        (0.945, "94.5 %"),
        (0.0, "0 %"),
    ],
)
def test_probabilities_have_one_decimal_and_are_never_rounded_to_certainty(value: float, written: str) -> None:
    assert wording.probability(value).replace(wording.THIN, " ") == written


@pytest.mark.parametrize(
    ("change", "written"),
    [(-0.17, "−17 points"), (0.033, "+3.3 points"), (-0.01, "−1 point"), (-0.0001, "<0.1 points"), (0.0, "0 points")],
)
def test_changes_are_points(change: float, written: str) -> None:
    assert wording.points(change) == written


@pytest.mark.parametrize(
    ("gap", "written"),
    [(1e-5, "0.001 %"), (0.0123, "1 %"), (0.98, "98 %"), (0.0, "0 %"), (1e-10, "<0.000001 %"), (0.004, "0.4 %")],
)
def test_gaps_have_a_digit_that_counts(gap: float, written: str) -> None:
    assert wording.gap(gap).replace(wording.THIN, " ") == written


def test_counts_and_lists_are_words() -> None:
    assert [wording.counted(count, "word") for count in (1, 3, 13)] == ["one word", "three words", "13 words"]
    assert [wording.listed(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert wording.for_terminal(f"{wording.MINUS}9{wording.THIN}%", unicode=False) == "-9 %"


@given(st.floats(0, 1))
def test_what_is_not_zero_is_never_written_as_zero_nor_as_certain(value: float) -> None:
    share, chance = wording.percent(value), wording.probability(value)
    assert (share.startswith("0.0") or share == f"0{wording.THIN}%") <= (value == 0)
    assert (chance in (f"0{wording.THIN}%", f"0.0{wording.THIN}%")) == (value == 0)
    assert (chance in (f"100{wording.THIN}%", f"100.0{wording.THIN}%")) == (value == 1)
