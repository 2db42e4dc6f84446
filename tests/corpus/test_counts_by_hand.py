"""What is counted of rows, on rows so small that every number can be counted by hand."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from mixlens.runs.corpus import tally as counting
from mixlens.runs.corpus.bins import Bins
from mixlens.runs.corpus.row_words import WrittenWord, apostrophes, is_of_text, words_in, written_words
from mixlens.runs.corpus.tally import ClassCounts, Mean, Share, Tally, drop_rarest, sums_of
from mixlens.runs.corpus.turned_counts import Gaps, RowCheck, Turned, TurnedCounts, check_of, wilson


def row_of(number: int, tokens: list[str], scores: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A row whose first token is of no word."""
    facts = {"row": number, "id": f"r{number}", "seconds": 0.5, "prediction": "yes", "tokens": ["[CLS]", *tokens]}
    return {**facts, "segments": [-1, *[0] * len(tokens)], **scores, **more}


# --- means and shares ---------------------------------------------------------------------------------------------------


def test_a_mean_leaves_out_what_is_no_number() -> None:
    mean = Mean()
    assert (mean.count, mean.total, mean.largest, mean.value) == (0, 0.0, -math.inf, None)
    for value in (-3.0, math.nan, math.inf, -7.0, -math.inf):
        mean.add(value)
    assert (mean.count, mean.total, mean.largest, mean.value) == (2, -10.0, -3.0, -5.0)


def test_a_share_keeps_its_size_and_its_direction() -> None:
    share = Share()
    assert (share.direction, share.of_row, share.rows, share.signed) == (0.0, 0.0, 0, 0.0)
    for value in (0.5, -0.25, math.nan, -0.75):
        share.count_in(value)
    share.rows = 2
    assert (share.count, share.total, share.largest, share.signed) == (3, 1.5, 0.75, -0.5)
    assert (share.value, share.direction, share.of_row) == (0.5, -0.5 / 3, -0.25)


@pytest.mark.parametrize(
    ("most", "left", "dropped"),
    [(3, {"a": 5, "b": 4, "c": 3, "d": 2, "e": 2, "f": 1}, 0), (2, {"a": 5, "b": 4}, 8), (1, {"a": 5}, 12)],
)
def test_the_rarest_are_dropped_beyond_twice_a_bound(most: int, left: dict[str, int], dropped: int) -> None:
    counts = Counter({"f": 1, "a": 5, "b": 4, "c": 3, "d": 2, "e": 2})
    assert drop_rarest(counts, most) == dropped
    assert counts == Counter(left)


def test_the_words_of_a_class_are_counted_once_a_row() -> None:
    counts = ClassCounts()
    assert counts.count("m", [("a", 0.25), ("b", -0.5), ("a", 0.25)]) == 2
    assert counts.count("m", [("b", 0.5), ("c", 0.5)]) == 1
    assert counts.count("n", []) == 0
    assert {word: (share.count, share.rows, share.signed) for word, share in counts.shares["m"].items()} == {
        **{"a": (2, 1, 0.5), "b": (2, 2, 0.0), "c": (1, 1, 0.5)}
    }
    assert (counts.rows, counts.size(), [word for _, word in counts.words()]) == (0, 3, ["a", "b", "c"])
    assert all(word in shares for shares, word in counts.words())


# --- the tally of a row ---------------------------------------------------------------------------------------------------


def test_a_row_is_counted_in_everything() -> None:
    tally = Tally(["m", "n", "o"])
    first = row_of(
        4, ["good", "film", "x"], {"m": [2.0, 3.0, -1.0, 0.0], "n": [0.0, 1.0, 2.0, 3.0], "o": None}, gap=0.5
    )
    first |= {"mixing_ratio:m": [0.25, 0.75], "mixing_ratio:n": None}
    seen = tally.add(first)
    assert (seen.predicted, list(seen.scores), seen.check) == ("yes", ["m", "n"], None)
    assert seen.scores["m"].tolist() == [2.0, 3.0, -1.0, 0.0]
    assert seen.scores["m"].dtype == np.float64
    # Ranks of all tokens: m 3 4 1 2, n 1 2 3 4; of words: m 3 1 2, n 1 2 3.
    assert seen.agreement == {("m", "n"): pytest.approx(1 - 6 * (4 + 4 + 4 + 4) / (4 * 15))}
    assert seen.word_agreement == {("m", "n"): pytest.approx(1 - 6 * (4 + 1 + 1) / (3 * 8))}
    second = row_of(2, ["good"], {"m": [0.0, 0.0], "n": [1.0, 3.0], "o": [4.0, 12.0]}, prediction=None, seconds=1.5)
    second |= {"mixing_ratio:m": [0.75, 0.25], "mixing_ratio:o": [1.0]}
    seen = tally.add(second)
    assert seen.predicted == "(none)"
    nan = pytest.approx(math.nan, nan_ok=True)
    assert seen.agreement == {("m", "n"): nan, ("m", "o"): nan, ("n", "o"): pytest.approx(1.0)}
    assert seen.word_agreement == {}  # of one word
    assert (tally.rows, tally.predicted, tally.unnamed) == (2, Counter({"yes": 1, "(none)": 1}), 0)
    assert (tally.tokens.total, tally.seconds.total, tally.seconds.largest) == (6, 2.0, 1.5)
    assert (tally.gap.count, tally.gap.value) == (1, 0.5)
    assert {pair: mean.count for pair, mean in tally.agreement.items()} == {("m", "n"): 1, ("m", "o"): 0, ("n", "o"): 1}
    assert {pair: mean.count for pair, mean in tally.word_agreement.items()} == {
        ("m", "n"): 1,
        ("m", "o"): 0,
        ("n", "o"): 0,
    }
    assert tally.agreement["m", "n"].value == pytest.approx(-0.6)
    assert tally.word_agreement["m", "n"].value == pytest.approx(-0.5)
    assert {name: [mean.value for mean in layers] for name, layers in tally.ratios.items()} == {
        "m": [0.5, 0.5],
        "o": [1.0],
    }
    # Of no word: 2 of 6, nothing of 6, 1 of 4, 4 of 16; a row of zeros has no share.
    assert {name: (mean.count, mean.value) for name, mean in tally.special.items()} == {
        **{"m": (1, pytest.approx(1 / 3)), "n": (2, 0.125), "o": (1, 0.25)}
    }
    assert tally.signed == {"m"}
    assert {name: counts.rows for name, counts in tally.classes.items()} == {"yes": 1, "(none)": 1}
    assert tally.classes["yes"].shares["m"]["good"].signed == 0.75
    assert tally.classes["yes"].shares["m"]["film"].signed == -0.25
    assert tally.classes["(none)"].shares == {
        **{"m": {}},
        "n": {"good": Share(1, 1.0, 1.0, 1.0, 1)},
        "o": {"good": Share(1, 1.0, 1.0, 1.0, 1)},
    }
    assert (tally.entries, tally.has_dropped) == (3 + 3 + 2, False)
    assert tally.slowest(1) == [{"row": 2, "id": "r2", "tokens": 2, "seconds": 1.5}]
    assert [facts["row"] for facts in tally.slowest(9)] == [2, 4]


def test_a_method_that_did_not_score_these_tokens_has_no_words() -> None:
    tally = Tally(["m", "n"])
    tally.add(row_of(0, ["a", "b"], {"m": [1.0, 1.0, 3.0], "n": [1.0, 1.0]} | {"n": None}))
    assert list(tally.classes["yes"].shares) == ["m"]
    by_word = tally._count_words("yes", row_of(0, ["a", "b"], {}), {"m": np.ones(3), "n": np.ones(2)})
    assert {name: sums.tolist() for name, sums in by_word.items()} == {"m": [1.0, 1.0]}


def test_one_token_and_two_tokens() -> None:
    """Agreement begins with the second token."""
    tally = Tally(["m", "n"])
    alone = {"row": 0, "id": "0", "seconds": 0.1, "prediction": "", "tokens": ["a"], "m": [1.0], "n": [2.0]}
    assert tally.add(alone).agreement == {}
    both = {**alone, "tokens": ["a", "b"], "m": [1.0, 2.0], "n": [2.0, 1.0]}
    seen = tally.add(both)
    assert (seen.predicted, seen.agreement, seen.word_agreement) == ("(none)", *[{("m", "n"): pytest.approx(-1.0)}] * 2)


def test_the_slowest_of_equal_rows_is_the_first() -> None:
    """32 rows are held; of rows that took equally long those with the lowest number."""
    tally = Tally([])
    for number in range(40):
        tally.add({"row": 100 - number, "id": "", "seconds": float(number // 20), "prediction": "x", "tokens": []})
    assert len(tally.slow) == 32
    assert [facts["row"] for facts in tally.slowest(50)] == [*range(61, 81), *range(81, 93)]
    assert [facts["row"] for facts in tally.slowest(3)] == [61, 62, 63]


def test_what_is_counted_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "NAMES", 2)
    monkeypatch.setattr(counting, "CLASSES", 2)
    monkeypatch.setattr(counting, "TOKENS", 3)
    tally = Tally(["m"])
    for name in ("c", "b", "a", "d"):
        tally.add(row_of(0, [name], {"m": [0.0, 1.0]}, prediction=name))
    assert (len(tally.predicted), len(tally.classes), tally.entries, tally.has_dropped) == (4, 4, 4, False)
    tally.add(row_of(0, ["a"], {"m": [0.0, 1.0]}, prediction="a"))
    tally.add(row_of(0, ["e", "f", "g"], {"m": [0.0, 1.0, 1.0, 1.0]}, prediction="a"))
    assert (list(tally.classes), tally.entries, tally.has_dropped) == (["c", "b", "a", "d"], 3, True)
    assert [[*counts.shares["m"]] for counts in tally.classes.values()] == [[], [], ["a", "g"], ["d"]]
    tally.add(row_of(0, ["z"], {"m": [0.0, 1.0]}, prediction="z"))
    assert tally.unnamed == 3  # of five names the two most frequent are left
    assert sorted(tally.predicted.items(), key=lambda pair: -pair[1])[0] == ("a", 3)
    assert len(tally.predicted) == 2
    assert len(tally.classes) == 2
    assert "a" in tally.classes


def test_classes_that_are_dropped_take_their_words_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rarest go first; of equally rare ones the first of the alphabet."""
    monkeypatch.setattr(counting, "CLASSES", 1)
    tally = Tally(["m"])
    for name in ("c", "b"):
        tally.add(row_of(0, [name, name + "2"], {"m": [0.0, 1.0, 1.0]}, prediction=name))
    assert (list(tally.classes), tally.entries) == (["c", "b"], 4)
    tally.add(row_of(0, ["a"], {"m": [0.0, 1.0]}, prediction="a"))
    assert (list(tally.classes), tally.entries) == (["c"], 2)


def listed_tally() -> Tally:
    """Words of two methods: m has scores below 0, n has none."""
    tally = Tally(["m", "n"])
    for number in range(3):
        scores = {"m": [0.0, 4.0, -2.0, 1.0, 1.0], "n": [0.0, 1.0, 1.0, 1.0, 1.0]}
        tally.add(row_of(number, ["up", "down", "!", "it"], scores))
    tally.add(row_of(3, ["rare", "rare", "it"], {"m": [0.0, 1.0, 1.0, -2.0], "n": [0.0, 0.0, 0.0, 1.0]}))
    return tally


def test_top_words_by_the_share_of_an_occurrence() -> None:
    tally = listed_tally()
    assert tally.top("yes", "m", 9, 3) == [("up", 0.5, 3), ("down", 0.25, 3), ("it", 0.21875, 4), ("!", 0.125, 3)]
    assert tally.top("yes", "m", 2, 4) == [("it", 0.21875, 4)]
    assert tally.top("yes", "m", 3, 5) == [
        ("up", 0.5, 3),
        ("rare", 0.25, 2),
        ("down", 0.25, 3),
    ]  # none is as frequent: all
    assert tally.top("no", "m", 3, 1) == []
    assert tally.top_of_methods("yes", 1, 3) == {"m": [("up", 0.5, 3)], "n": [("it", 0.4375, 4)]}
    assert tally.signed_top("yes", 2, 3) == {
        "m": {"towards": [("up", 0.5, 3), ("!", 0.125, 3)], "against": [("down", -0.25, 3), ("it", -0.03125, 4)]}
    }
    assert tally.signed_top("yes", 1, 3)["m"] == {"towards": [("up", 0.5, 3)], "against": [("down", -0.25, 3)]}


def test_words_by_the_share_of_a_row() -> None:
    tally = listed_tally()
    assert tally.words_of_rows("yes", 9, 1) == {
        "m": {"for": [("up", 0.5, 3), ("rare", 0.5, 1)], "against": [("down", -0.25, 3), ("it", -0.03125, 4)]},
        "n": {"for": [("it", 0.4375, 4), ("up", 0.25, 3), ("down", 0.25, 3)], "against": []},
    }
    assert tally.words_of_rows("yes", 1, 3)["m"] == {"for": [("up", 0.5, 3)], "against": [("down", -0.25, 3)]}
    assert tally.words_of_rows("no", 1, 1) == {name: {"for": [], "against": []} for name in ("m", "n")}


def test_sums_leave_out_tokens_of_no_word() -> None:
    found = sums_of(["a", "b", "c"], np.array([-1, 0, 0, 1, -1]), np.array([9.0, 1.0, 2.0, 4.0, 9.0]))
    assert found.tolist() == [3.0, 4.0, 0.0]


# --- bins -------------------------------------------------------------------------------------------------------------------


def test_bins_take_their_lower_edge_and_the_last_one_both() -> None:
    bins = Bins(np.array([0.0, 1.0, 2.0, 4.0]))
    for value in (-5.0, 0.0, 0.5, 1.0, 3.0, 4.0, 9.0):
        bins.add(value)
    assert bins.counts.tolist() == [3, 1, 3]
    assert bins.counts.dtype == np.int64


def test_empty_bins_at_both_ends_go() -> None:
    bins = Bins(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), np.array([0, 2, 0, 1, 0]))
    trimmed = bins.trimmed()
    assert (trimmed.edges.tolist(), trimmed.counts.tolist()) == ([1.0, 2.0, 3.0, 4.0], [2, 0, 1])
    empty = Bins(np.array([0.0, 1.0, 2.0]))
    assert empty.trimmed() is empty


# --- what turned ---------------------------------------------------------------------------------------------------------------


def test_a_row_of_several_draws_counts_once() -> None:
    turned = Turned()
    assert (turned.share, turned.interval()) == (None, None)
    turned.add([True, False, False, True], [0.0, 0.31, 0.97, 1.0])
    turned.add([True], [0.26])
    assert (turned.rows, turned.draws, turned.turned, turned.share) == (2, 5, 1.5, 0.75)
    assert {place: count for place, count in enumerate(turned.left.counts.tolist()) if count} == {
        0: 1,
        5: 1,
        6: 1,
        19: 2,
    }
    assert turned.interval() == wilson(1.5, 2)


def test_wilsons_interval_solves_its_equation() -> None:
    """At both ends p: (share - p)^2 = z^2 p (1 - p) / n, with z = 1.959964."""
    for successes, count in ((3, 10), (1.5, 2), (40, 50)):
        low, high = wilson(successes, count)
        assert 0 < low < successes / count < high < 1
        for end in (low, high):
            assert (successes / count - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / count)
    assert wilson(0, 5)[0] == pytest.approx(0.0, abs=1e-12)
    assert wilson(5, 5)[1] == pytest.approx(1.0, abs=1e-12)
    assert wilson(0, 5)[1] == pytest.approx(1 - wilson(5, 5)[0])


def test_the_tally_of_a_row_without_a_score() -> None:
    """No method scored it: there is nothing to compare, and nothing to share."""
    tally = Tally(["m", "n"])
    seen = tally.add(row_of(0, ["a", "'", "s"], {}, text="a's", pair=None, starts=[0, 0, 1, 2], ends=[0, 1, 2, 3]))
    assert (seen.scores, seen.agreement, seen.word_agreement) == ({}, {}, {})
    small = tally.add(row_of(1, ["a"], {"m": [2, 6]}, gap=None))
    assert small.scores["m"].dtype == np.float64
    assert (tally.special["m"].value, tally.gap.count) == (0.25, 0)


def test_apostrophes_of_a_text_are_joined_in_lists() -> None:
    tally = Tally(["m"])
    row = row_of(0, ["it", "'", "s"], {"m": [0.0, 0.25, 0.125, 0.125]}, text="it 's", pair=None)
    tally.add({**row, "starts": [0, 0, 3, 4], "ends": [0, 2, 4, 5]})
    assert {word: share.signed for word, share in tally.classes["yes"].shares["m"].items()} == {"it": 0.5, "'s": 0.5}


@pytest.mark.parametrize(("words", "left"), [(6, 6), (7, 3)])
def test_words_are_dropped_beyond_twice_the_bound(monkeypatch: pytest.MonkeyPatch, words: int, left: int) -> None:
    monkeypatch.setattr(counting, "TOKENS", 3)
    tally = Tally(["m"])
    tally.add(row_of(0, [f"w{number}" for number in range(words)], {"m": [0.0, *[1.0] * words]}))
    assert (tally.entries, tally.has_dropped, len(tally.classes["yes"].shares["m"])) == (left, left == 3, left)


def test_wilsons_interval_stays_between_nothing_and_all() -> None:
    for count in range(1, 300):
        assert wilson(0, count)[0] >= 0.0
        assert wilson(count, count)[1] <= 1.0


def test_words_on_neither_side_and_words_with_marks() -> None:
    """A word whose shares cancel is neither for nor against; one with a letter in it is a word."""
    tally = Tally(["m"])
    tally.add(row_of(0, ["it's", "even", "up"], {"m": [0.0, 0.25, 0.25, 0.5]}))
    tally.add(row_of(1, ["it's", "even", "up"], {"m": [0.0, 0.25, -0.25, 0.5]}))
    assert tally.signed_top("yes", 9, 1) == {"m": {"towards": [("up", 0.5, 2), ("it's", 0.25, 2)], "against": []}}
    assert tally.words_of_rows("yes", 9, 1) == {"m": {"for": [("up", 0.5, 2), ("it's", 0.25, 2)], "against": []}}


def test_two_endings_of_one_row_are_joined() -> None:
    tally = Tally(["m"])
    text, spans = "it 's he 'll go", [(0, 0), (0, 2), (3, 4), (4, 5), (6, 8), (9, 10), (10, 12), (13, 15)]
    row = row_of(0, [text[a:b] for a, b in spans[1:]], {"m": [0.0, *[0.125] * 6, 0.25]}, text=text, pair=None)
    tally.add({**row, "starts": [a for a, _ in spans], "ends": [b for _, b in spans]})
    assert {word: share.signed for word, share in tally.classes["yes"].shares["m"].items()} == {
        **{"it": 0.125, "'s": 0.25, "he": 0.125, "'ll": 0.25, "go": 0.25}
    }


def test_small_scores_have_a_share_of_no_word() -> None:
    tally = Tally(["m"])
    tally.add(row_of(0, ["a"], {"m": [0.125, 0.375]}))
    assert tally.special["m"].value == 0.25


def test_gaps_above_one_percent_are_open() -> None:
    gaps = Gaps()
    for gap in (0.01, 0.011, 0.5, 0.0):
        gaps.add(gap)
    assert gaps == Gaps(rows=4, open=2, largest=0.5)


def test_the_check_of_a_row_is_in_its_columns() -> None:
    assert check_of({"without:m": 0.5}, ["m"]) is None
    row = {
        "without_random": [0.5, 0.75],
        "turned_random": [True, False],
        "without:m": 0.0,
        "turned:m": False,
        "without:n": None,
    }
    row |= {"turned:n": None, "completeness:m": 0.0, "completeness:n": 0.25, "completeness:o": 0.5}
    assert check_of(row, ["m", "n"]) == RowCheck(
        {"m": 0.0}, {"m": False}, [0.5, 0.75], [True, False], {"m": 0.0, "n": 0.25}
    )
    assert check_of({"without_random": None, "turned_random": None}, ["m"]) == RowCheck({}, {}, [], [], {})


@pytest.mark.parametrize(
    ("left", "held"), [({}, False), ({"m": 0.9}, True), ({"m": 0.95, "n": 0.89}, False), ({"m": 0.91, "n": 0.99}, True)]
)
def test_nothing_turned_a_row_that_holds_without_every_methods_words(left: dict[str, float], held: bool) -> None:
    check = RowCheck(left, {}, [], [], {"m": 0.25, "n": 0.5} if held else {})
    assert (check.nothing_turned, check.gap) == (held, 0.5 if held else None)


def test_checks_are_counted_by_method() -> None:
    counts = TurnedCounts(["m", "n", "o", "p"])
    counts.add(
        RowCheck({"m": 0.5, "n": 0.2}, {"m": False, "n": True}, [0.1, 0.9], [True, False], {"m": 0.01, "n": 0.0})
    )
    counts.add(RowCheck({"m": 0.1, "n": 0.2, "o": 0.9}, {"m": True, "n": True, "o": True}, [0.4], [True], {"m": 0.02}))
    counts.add(RowCheck({}, {}, [], [], {"m": 0.5}))
    counts.add(RowCheck({}, {}, [], [], {}))
    assert (counts.rows, counts.unchecked, counts.open_rows) == (4, 2, 2)
    assert {name: (turned.rows, turned.turned) for name, turned in counts.methods.items()} == {
        **{"m": (2, 1.0), "n": (2, 2.0), "o": (1, 1.0), "p": (0, 0.0)}
    }
    assert (counts.random.rows, counts.random.draws, counts.random.turned) == (2, 3, 1.5)
    assert counts.gaps == {"m": Gaps(3, 2, 0.5), "n": Gaps(1, 0, 0.0), "o": Gaps(), "p": Gaps()}
    assert counts.best_first() == ["n", "o", "m"]


def test_a_tally_counts_the_check_of_a_row() -> None:
    tally = Tally(["m"])
    check = {"without_random": [0.5], "turned_random": [False], "without:m": 0.75, "turned:m": True}
    seen = tally.add(row_of(0, ["a"], {"m": [0.0, 1.0]}, **check))
    assert seen.check == RowCheck({"m": 0.75}, {"m": True}, [0.5], [False], {})
    assert (tally.removal.rows, tally.removal.methods["m"].turned) == (1, 1.0)


# --- words of a row -------------------------------------------------------------------------------------------------------------


PAIR = {
    **{"text": "Do n't", "pair": "It 's", "tokens": ["[CLS]", "do", "n", "'", "t", "[SEP]", "it", "'", "s", "[SEP]"]},
    **{"segments": [-1, 0, 0, 0, 0, -1, 1, 1, 1, -1]},
    **{"starts": [0, 0, 3, 4, 5, 0, 0, 3, 4, 0], "ends": [0, 2, 4, 5, 6, 0, 2, 4, 5, 0]},
}


def test_words_of_a_text_and_its_pair() -> None:
    names, places = words_in(PAIR)
    assert (names, places.tolist()) == (["do", "n't", "it", "'", "s"], [-1, 0, 1, 1, 1, -1, 2, 3, 4, -1])
    assert written_words(PAIR) == [
        *(WrittenWord("Do", "", 0, (1,)), WrittenWord("n't", " ", 0, (2, 3, 4)), WrittenWord("It", "", 1, (6,))),
        *(WrittenWord("'", " ", 1, (7,)), WrittenWord("s", "", 1, (8,))),
    ]
    assert apostrophes(PAIR, names) == [3]
    longer = {**PAIR, "text": "Do n't ever", "pair": "It  's"}
    longer |= {"starts": [0, 0, 3, 4, 5, 0, 0, 4, 5, 0], "ends": [0, 2, 4, 5, 6, 0, 2, 5, 6, 0]}
    assert [word.before for word in written_words(longer)] == ["", " ", "", "  ", ""]
    assert apostrophes(PAIR, ["no", "mark"]) == []


def test_words_without_known_characters_are_tokens() -> None:
    row = {"tokens": ["<s>", "▁it", "'", "##s", "ll"], "segments": [-1, 0, 0, 0, 0]}
    assert is_of_text(row) == [False, True, True, True, True]
    assert is_of_text({"tokens": ["a", "b"], "segments": []}) == [True, True]
    assert written_words(row) == [
        *(WrittenWord("it", "", 0, (1,)), WrittenWord("'", " ", 0, (2,))),
        *(WrittenWord("s", " ", 0, (3,)), WrittenWord("ll", " ", 0, (4,))),
    ]
    assert apostrophes(row, ["it", "'", "s", "ll"]) == []  # a space is between them
    names, places = words_in(row)
    assert (names, places.tolist()) == (["it", "'", "s", "ll"], [-1, 0, 1, 2, 3])
    assert words_in({**row, "text": "it 's ll", "starts": [0] * 5, "ends": [0] * 5, "segments": None})[0] == [
        "<s>",
        "it",
        "'",
        "s",
        "ll",
    ]


@pytest.mark.parametrize(
    ("text", "marks"),
    [("a 's", [1]), ("a 'll", [1]), ("a 'all", []), ("a '1", []), ("a ’s", [1]), ('a "s', []), ("a ' s", [])],
)
def test_endings_have_up_to_two_letters(text: str, marks: list[int]) -> None:
    cut = [text.index("a"), 2, 4 if "' s" in text else 3]
    spans = [(0, 1), (2, 3), (cut[2], len(text))]
    row = {"tokens": [text[a:b] for a, b in spans], "segments": [0, 0, 0], "text": text, "pair": None}
    row |= {"starts": [a for a, _ in spans], "ends": [b for _, b in spans]}
    assert apostrophes(row, [text[a:b] for a, b in spans]) == marks
