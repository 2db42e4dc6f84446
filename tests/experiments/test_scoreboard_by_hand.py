"""The scoreboard and the tables of a ranking, from values written by hand: scores, orders, groups, cells, notes and sentences.

Intervals themselves are tested with the metrics; here it is asked of what, with which seed and of which kind they are."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixlens.base.errors import InputError
from mixlens.metrics import Interval, mean_with_interval
from mixlens.metrics.agreement import kendall
from mixlens.metrics.comparisons import simultaneous
from mixlens.metrics.intervals import difference_with_interval
from mixlens.runs.experiments import verdict, verdict_notes, verdict_tables
from mixlens.runs.experiments.tables import Table
from mixlens.runs.judge import judge_summary, judged_methods, judged_metrics, scoreboard
from mixlens.runs.judge.judged_metrics import MetricRequest, parse_metric
from mixlens.runs.judge.scoreboard import Scoreboard, Values
from mixlens.types import Example, Record

NAN = math.nan
N = 8
STEPS = np.arange(N, dtype=float)


def values_of(metric: str, of_methods: dict[str, Any], random: Any = None, spread: Any = None) -> Values:
    rows = {name: np.asarray(row, dtype=float) for name, row in of_methods.items()}
    drawn = None if random is None else np.asarray(random, dtype=float)
    return Values(parse_metric(metric), rows, drawn, None if spread is None else np.asarray(spread, dtype=float))


def same(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


# --- values of one metric -------------------------------------------------------------------------------------------------


def test_texts_on_which_every_method_has_a_value() -> None:
    one = values_of("aopc", {"a": [1, NAN, 3], "b": [1, 2, 3], "none": [NAN] * 3}, [1, 2, NAN])
    assert one.defined.tolist() == [True, False, False]
    assert values_of("aopc", {"a": [NAN, NAN]}).defined.tolist() == [False, False]
    assert len(one.rows) == 4
    assert len(values_of("aopc", {"a": [1.0]}).rows) == 1
    assert [one.judges(name) for name in ("a", "random", "c")] == [True, True, False]
    assert not values_of("aopc", {"a": [1.0]}).judges("random")


def test_the_interval_of_a_metric_is_over_shared_texts() -> None:
    row = [1.0, 5.0, 2.0, 4.0, 9.0, 7.0]
    one = values_of("aopc", {"a": row, "b": [NAN, *row[1:]]}, [0, 1, 0, 1, 0, 2])
    assert one.interval("a", 3) == mean_with_interval([NAN, *row[1:]], seed=3, how="studentised")
    assert one.interval("random", 3) == mean_with_interval([NAN, 1, 0, 1, 0, 2], seed=3, how="studentised")
    assert one.interval("c", 3) is None


def test_the_scale_of_a_metric() -> None:
    rows = {"a": [1.0, 3.0]}
    assert values_of("aopc", rows, [0.0, 2.0], [3.0, 4.0]).scale == pytest.approx(math.sqrt(12.5))
    assert values_of("aopc", rows, [0.0, 4.0], [0.0, 0.0]).scale == 2.0
    assert values_of("aopc", rows, [0.0, 4.0]).scale == 2.0
    assert values_of("aopc", rows, [1.0, 1.0]).scale == pytest.approx(np.std([1, 3, 1, 1]))
    assert values_of("aopc", rows).scale == 1.0  # the spread of 1 and 3
    assert values_of("aopc", {"a": [5.0, 5.0]}).scale == 1.0
    assert values_of("aopc", rows, [0.0, 4.0], [NAN, 3.0]).scale == 3.0
    assert values_of("aopc", {"a": [5.0, NAN, 7.0]}).scale == 1.0


def test_a_spread_on_few_texts_is_no_scale() -> None:
    """Where draws are alike on nearly all texts their spread nears 0, and scores in its units would be in the thousands."""
    drawn = [0.0, 4.0] * 5
    rows = {"a": [1.0] * 10}
    assert values_of("aopc", rows, drawn, [0.001] + [0.0] * 9).scale == 2.0
    assert values_of("aopc", rows, drawn, [0.001] + [NAN] + [1e-8] * 8).scale == 2.0  # rounding of single precision
    assert values_of("aopc", rows, drawn, [3.0] * 2 + [0.0] * 8).scale == pytest.approx(
        math.sqrt(1.8)
    )  # on a fifth of the texts
    assert values_of("aopc", rows, drawn, [NAN] * 10).scale == 2.0
    assert values_of("aopc", {"a": [0.0, 3.0]}, [1.0, 1.0 + 1e-8], [0.0, 0.0]).scale == pytest.approx(
        np.std([0, 3, 1, 1])
    )


def test_standard_scores() -> None:
    higher = values_of("aopc", {"a": [1.0, 3.0], "b": [NAN, 4.0]}, [0.5, 1.0], [2.0, 2.0])
    same(higher.standard("a"), [NAN, 1.0])
    same(higher.standard("random"), [NAN, 0.0])
    lower = values_of("lodds", {"a": [1.0, 3.0]}, [0.5, 1.0], [2.0, 2.0])
    same(lower.standard("a"), [-0.25, -1.0])
    alone = values_of("aopc", {"a": [1.0, 3.0], "b": [2.0, 6.0]})
    same(alone.standard("b"), (np.array([2.0, 6.0]) - 3.0) / np.std([1, 3, 2, 6]))


# --- the scoreboard -------------------------------------------------------------------------------------------------------


def board_of() -> Scoreboard:
    """Three methods and random scores: the best is told apart, two are not told apart from each other."""
    wave = np.array([0.0, 0.1, -0.1, 0.05, -0.05, 0.02, -0.02, 0.07])
    turned = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    rows = {"best": 9 + wave, "middle": 3 + wave[::-1], "third": 3 + wave + turned / 50}
    removing = values_of("aopc", rows, wave / 3, np.ones(N))
    second = values_of("comprehensiveness", {name: 2 * row for name, row in rows.items()}, wave, np.full(N, 2.0))
    keeping = values_of("sufficiency", {"best": -5 - wave, "middle": -2 + wave, "third": -2 - wave}, wave, np.ones(N))
    return Scoreboard((removing, second, keeping), ("random", "third", "best", "middle"), 5)


def test_scores_are_means_over_kinds_of_means_over_metrics() -> None:
    board = board_of()
    first, second, third = board.metrics
    assert board.kinds == (first.request.metric.kind, third.request.metric.kind)
    assert board.names() == ["aopc", "comprehensiveness", "sufficiency"]
    assert board.names(kind=third.request.metric.kind) == ["sufficiency"]
    assert board.names(better="lower") == [
        v.request.written for v in board.metrics if v.request.metric.better == "lower"
    ]
    assert board.has_random
    for method in board.methods:
        removing = (first.standard(method) + second.standard(method)) / 2
        same(board.by_kind[method][board.kinds[0]], removing)
        same(board.scores(method), (removing + third.standard(method)) / 2)
        same(board.scores(method, [board.kinds[0]]), removing)
        assert board.means[method] == mean_with_interval(board.scores(method), seed=5, how="studentised")
    assert board.order[0] == "best"
    assert board.order[-1] == "random"
    means = [board.means[method].mean for method in board.order]
    assert means == sorted(means, reverse=True)


def test_pairs_groups_and_leaders() -> None:
    board = board_of()
    pairs = list(board.differences)
    assert pairs == [pair for pair in pairs if board.order.index(pair[0]) < board.order.index(pair[1])]
    assert len(pairs) == 6
    series = {pair: board.scores(pair[0]) - board.scores(pair[1]) for pair in pairs}
    expected = simultaneous({**series, None: np.zeros(N)}, [(pair, None) for pair in pairs], seed=5)
    assert board.differences == {pair: expected[pair, None] for pair in pairs}
    second, third = board.order[1:3]
    assert {second, third} == {"middle", "third"}
    assert (board.told_apart("best", "middle"), board.told_apart("middle", "best")) == (True, True)
    assert not board.told_apart(second, third)
    assert not board.told_apart("best", "unknown")
    assert board.groups == {"best": 1, second: 2, third: 2, "random": 3}
    assert board.leaders == ("best",)
    assert board.below == [second, third]
    assert board.like_random == []
    assert [board.wins(method) for method in ("best", "middle", "random")] == [3, 3, 0]


def test_a_board_without_random_scores_and_with_a_metric_that_judges_few() -> None:
    removing = values_of("aopc", {"a": STEPS, "b": STEPS[::-1]})
    keeping = values_of("sufficiency", {"a": STEPS})
    board = Scoreboard((removing, keeping), ("a", "b"))
    assert not board.has_random
    assert list(board.by_kind["b"]) == [removing.request.metric.kind]
    assert list(board.by_kind["a"]) == [removing.request.metric.kind, keeping.request.metric.kind]
    same(board._difference("a", "b"), removing.standard("a") - removing.standard("b"))
    assert board.like_random == []
    assert board.wins("a") == 0
    assert board.seed == 0


def test_a_method_without_a_score_is_last() -> None:
    board = Scoreboard(
        (values_of("aopc", {"none": [NAN] * 3, "a": [-1.0, -2, -3], "b": [1.0, 2, 3]}),), ("none", "a", "b")
    )
    assert board.order == ("b", "a", "none")


def test_methods_like_random() -> None:
    small = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    board = Scoreboard(
        (values_of("aopc", {"noise": small, "good": 9 + small / 9}, np.zeros(N), np.ones(N)),), ("noise", "good")
    )
    assert board.like_random == ["noise"]
    assert scoreboard.better_than_random(board.metrics[0], seed=0, confidence=0.95) == {"good"}
    worse = values_of("lodds", {"good": 9 + small / 9}, np.zeros(N), np.ones(N))
    assert scoreboard.better_than_random(worse, seed=0, confidence=0.95) == set()
    assert scoreboard.better_than_random(values_of("aopc", {"a": small}), seed=0, confidence=0.95) == set()
    assert (
        scoreboard.better_than_random(board.metrics[0], seed=0, confidence=1 - 1e-12) == set()
    )  # nothing is so certain


@pytest.mark.parametrize(
    ("row", "tested"),
    [
        ([1.0] * 5, True),
        ([1.0] * 4, False),
        ([1.0] * 4 + [0.0], False),
        ([1.0] * 5 + [NAN], True),
        ([1.0] * 4 + [NAN], False),
        ([-1.0] * 8 + [0.0] * 20, True),
        ([1.0] * 7 + [1e-9] * 20, False),
        ([1.0] * 7 + [-1.1e-9] + [0.0] * 20, True),
    ],
)
def test_what_can_be_tested(row: list[float], tested: bool) -> None:
    assert scoreboard.can_be_tested(np.array(row)) is tested
    assert list(scoreboard.against_zero({"x": np.array(row)}, seed=1)) == (["x"] if tested else [])


def test_series_against_zero() -> None:
    assert scoreboard.against_zero({}) == {}
    row = STEPS + 1
    told = scoreboard.against_zero({"x": row, "few": row[:3]}, seed=4, confidence=0.9)
    assert told == {
        "x": simultaneous({"x": row, "zero": np.zeros(N)}, [("x", "zero")], seed=4, confidence=0.9)["x", "zero"]
    }


# --- tables ---------------------------------------------------------------------------------------------------------------


def test_the_leader_against_the_others() -> None:
    board = board_of()
    table = verdict_tables.pairs_table("ranking", "faithfulness", board)
    assert table is not None
    assert (table.name, table.columns) == (
        "ranking_pairs",
        ("method", "best less method", "told apart", "p, adjusted", "texts needed"),
    )
    assert table.title == "best, the highest score in faithfulness, against every other method"
    assert table.note == (
        "Texts needed: so many would tell the two apart among all pairs at once, with 80 % power, if the difference is as large "
        "as here."
    )
    differences = {other: board.differences["best", other] for other in board.order[1:]}
    cells = [(one.mean, one.low, one.high, one.n) for one in differences.values()]
    assert [row[0] for row in table.rows] == list(differences)
    assert [(row[1].mean, row[1].low, row[1].high, row[1].n) for row in table.rows] == cells  # type: ignore[union-attr]
    assert [row[2:] for row in table.rows] == [
        ("yes", verdict_tables.p_text(one.p), None) for one in differences.values()
    ]
    few = Scoreboard((values_of("aopc", {"a": [1.0, 2], "b": [2.0, 3]}),), ("a", "b"))
    assert verdict_tables.pairs_table("ranking", "faithfulness", few) is None
    assert [verdict_tables.size_text(n) for n in (None, 8, 100_000, 100_001)] == [None, 8, 100_000, "more than 100,000"]
    assert [verdict_tables.p_text(p) for p in (0.0005, 0.001, 0.0204, 1.0)] == ["< 0.001", "0.001", "0.020", "1.000"]
    close = np.array([3.0, -2.5, 3.1, -2.4, 3.2, -2.3, 3.3, -2.2])
    unclear = Scoreboard((values_of("aopc", {"a": close, "b": np.zeros(N)}),), ("a", "b"))
    row = verdict_tables.pairs_table("ranking", "faithfulness", unclear).rows[0]  # type: ignore[union-attr]
    assert (row[2], row[4]) == ("no", unclear.differences["a", "b"].needed_for_all)


def records_of(method: str, metric: str, values: Any, **info: Any) -> list[Record]:
    facts = [{key: one[i] for key, one in info.items()} for i in range(len(values))]
    return [Record(str(i), method, metric, float(value), facts[i]) for i, value in enumerate(values)]


def test_signs_that_matter() -> None:
    setup: Any = SimpleNamespace(seed=2)
    flip = STEPS + 1
    records = [
        *records_of("a", "aopc", flip + 3),
        *records_of("a", "aopc:ranking=magnitude", flip * 2),
        *records_of("b", "aopc", flip),
        *records_of("b", "aopc:ranking=magnitude", flip),
        *records_of("c", "aopc", flip),
        *records_of("d", "aopc", 2 * flip + 10),
        *records_of("d", "aopc:ranking=magnitude", flip),
    ]
    table = verdict_tables.signs_table(setup, ["a", "b", "c", "d"], records)
    assert table is not None
    assert (table.name, table.title) == ("signs", "Where signed scores and magnitudes disagree")
    assert table.columns == ("method", "as ranked", "mean", "other reading of the signs", "its mean", "difference")
    assert (
        table.note
        == "Rows are shown where the difference, text by text, is not 0 (95 % intervals, for all methods at once)."
    )
    compared = scoreboard.against_zero({"a": 3 - flip, "b": 0 * flip, "d": flip + 10}, seed=2)
    assert [row[0] for row in table.rows] == [name for name, one in compared.items() if one.sign] == ["d"]
    assert table.rows[0] == (
        *("d", "aopc", mean_with_interval(2 * flip + 10, seed=2, how="studentised"), "aopc:ranking=magnitude"),
        *(mean_with_interval(flip, seed=2, how="studentised"), str(compared["d"])),
    )
    assert verdict_tables.signs_table(setup, ["b", "c"], records) is None


def test_right_and_wrong_predictions() -> None:
    """Five texts and more have an interval, fewer have none; a cell counts the texts of its side alone."""
    board = board_of()
    known: list[Any] = [True, True, False, None, False, True, True, True]
    records = [*records_of("best", "aopc", STEPS, right=known), *records_of("other", "aopc", STEPS, right=[True] * N)]
    table = verdict_tables.correctness_table(board, records)
    assert table is not None
    assert (table.name, table.title) == ("correctness", "Right and wrong predictions")
    assert table.columns == ("method", "right (5 texts)", "wrong (2 texts)", "right less wrong")
    for row, method in zip(table.rows, board.order, strict=True):
        right, wrong = (board.scores(method)[[one is side for one in known]] for side in (True, False))
        assert row[:2] == (method, mean_with_interval(right, seed=5, how="studentised"))
        few: Any = row[2]
        assert (few.mean, few.n, few.undefined) == (pytest.approx(wrong.mean()), 2, 0)
        assert math.isnan(few.low)
        assert math.isnan(few.high)
        assert row[3] is None
    assert table.note.endswith("Caution: 5 right predictions are few. Caution: 2 wrong predictions are few.")
    for rights, there in (
        ([True] * 7 + [False], False),
        ([True] * 6 + [False] * 2, True),
        ([None] * 7 + [True], False),
    ):
        made = verdict_tables.correctness_table(board, records_of("best", "aopc", STEPS, right=rights), "Of labels.")
        assert (made is not None) is there
        assert made is None or " Of labels. Caution: 6 right" in made.note


def test_right_less_wrong_has_an_interval() -> None:
    """Of 35 right and 30 wrong predictions: a difference, and no caution. A text without a score is no part of a side."""
    row = np.random.default_rng(0).normal(size=65) + np.repeat([2.0, 0.0], [35, 30])
    row[0] = NAN
    board = Scoreboard(
        (values_of("aopc", {"a": row, "none": [NAN] * 65}, np.zeros(65), np.ones(65)),), ("a", "none"), 3
    )
    rights = [True] * 35 + [False] * 30
    table = verdict_tables.correctness_table(board, records_of("a", "aopc", row, right=rights))
    assert table is not None
    assert "Caution" not in table.note
    cells = table.row("a")
    assert cells["right less wrong"] == difference_with_interval(row[1:35], row[35:], seed=3)
    assert 1 < cells["right less wrong"].low < cells["right less wrong"].mean < cells["right less wrong"].high < 3
    assert (cells["right (35 texts)"].n, cells["right (35 texts)"].undefined) == (34, 0)
    assert math.isnan(table.row("none")["right (35 texts)"].mean)
    few = verdict_tables.correctness_table(board, records_of("a", "aopc", row, right=[True] * 36 + [False] * 29))
    assert few is not None
    assert few.note.endswith(" Caution: 29 wrong predictions are few.")


def test_fillers_and_the_order_of_methods() -> None:
    rows = {"a": STEPS, "b": STEPS + 1, "c": STEPS - 4}
    first = values_of("aopc:replacement=delete", rows, np.zeros(N), np.ones(N))
    other = values_of("aopc:replacement=pad", {"a": STEPS + 9, "b": STEPS + 1, "c": STEPS - 4})
    plain = values_of("aopc", rows)
    table = verdict_tables.fillers_table(Scoreboard((plain, first, other), ("a", "b", "c"), 7))
    zeros, tau = mean_with_interval(np.zeros(N), seed=7, how="studentised"), float(kendall([1, 2, 0], [2, 1, 0]))
    assert table is not None
    assert table.columns == (
        *("metric", "best method", "best less the next", "told apart", "random scores"),
        "agreement of the order with aopc:replacement=delete",
    )
    assert (table.name, table.title) == ("fillers", "What stands in the place of removed tokens")
    assert [row[:5] for row in table.rows] == [
        ("aopc:replacement=delete", "b", "a: +1.000 [+1.000, +1.000]", "yes", zeros),
        ("aopc:replacement=pad", "a", "b: +8.000 [+8.000, +8.000]", "yes", None),
    ]
    agreement: Any = table.rows[1][5]
    assert table.rows[0][5] == 1.0
    assert [agreement.mean, agreement.low, agreement.high, agreement.n] == pytest.approx(
        [tau, tau, tau, N]
    )  # at every resample
    assert verdict_tables.fillers_table(Scoreboard((plain, first), ("a", "b", "c"))) is None
    alone = [values_of(one.request.written, {"a": STEPS}) for one in (first, other)]
    assert verdict_tables.fillers_table(Scoreboard(tuple(alone), ("a",))) is None


def test_an_order_that_chance_decides_has_a_wide_agreement() -> None:
    """Methods that differ by noise alone: the best is not told apart from the next, and resampled texts give other orders."""
    noise = np.random.default_rng(1).normal(size=(2, 5, 20))
    names = ("v", "w", "x", "y", "z")
    ways = [
        values_of(f"aopc:replacement={way}", dict(zip(names, noise[i], strict=True)))
        for i, way in enumerate(("unk", "pad"))
    ]
    first, second = verdict_tables.fillers_table(Scoreboard(tuple(ways), names, 3)).rows  # type: ignore[union-attr]
    assert (first[3], second[3]) == ("no", "no")
    assert isinstance(second[5], Interval)
    means = noise.mean(-1)
    assert second[5].mean == pytest.approx(float(kendall(means[0], means[1])))
    assert -1 <= second[5].low < second[5].mean < second[5].high <= 1
    assert second[5].high - second[5].low > 0.5
    few = verdict_tables.fillers_table(Scoreboard(tuple(_of_texts(one, 3) for one in ways), names, 3))
    assert [row[2:4] for row in few.rows] == [(None, None)] * 2  # type: ignore[union-attr]


def _of_texts(values: Values, n: int) -> Values:
    return Values(values.request, {name: row[:n] for name, row in values.of_methods.items()})


# --- notes and sentences --------------------------------------------------------------------------------------------------


def setup_of(n: int) -> Any:
    return SimpleNamespace(examples=[Example("x")] * n, seed=5, options={"ranking": "default"})


def test_the_note_below_a_ranking() -> None:
    board = board_of()
    removing, keeping = board.kinds
    ways = {v.request.written: v.request.metric.better for v in board.metrics}
    assert ways == {"aopc": "higher", "comprehensiveness": "higher", "sufficiency": "lower"}
    start = "Higher is better: aopc, comprehensiveness; lower is better: sufficiency."
    score = (
        "Score: how much better than random scores on the same text, in standard deviations of a random draw; the mean over "
        f"kinds of metrics, each of which counts once: {removing} (aopc, comprehensiveness); {keeping} (sufficiency)."
    )
    groups = (
        "Group: the methods that are not told apart from the first of the group, by 95 % intervals of paired differences that "
        "hold for all pairs at once. Members of a group may differ from each other, and members of two groups need not: the "
        "number of a group is no rank."
    )
    twins = "Methods joined by = have the same scores on every text and are one row."
    caution = (
        "Caution: {} texts are few. On others the order may be another: look at the groups, and judge 30 texts or more."
    )
    note = verdict_notes.note_of
    assert note(setup_of(30), board, {"a": ["a"]}) == " ".join([start, score, groups])
    assert note(setup_of(29), board, {"a": ["a"], "b": ["b", "c"]}) == " ".join(
        [start, score, groups, twins, caution.format(29)]
    )
    few = Scoreboard(
        (values_of("lodds", {"a": [1.0, NAN], "blank_out": [2.0, 3]}), values_of("lds", {"a": [1.0, 2]})),
        ("a", "blank_out"),
    )
    assert note(setup_of(1), few, {}) == (
        "Higher is better: lds; lower is better: lodds. blank_out has no lds: it would be compared with what it is made of. A "
        "score without a kind is the mean over the other kinds; two methods are compared over the kinds that both have, so that "
        "the order by score need not be that of the differences. lodds is undefined for a method on 1 texts, which are left out "
        "for all. One text has no intervals, and no two methods are told apart by it."
    )
    assert [verdict_notes._not_judged(names, "aopc") for names in (["a", "b"], ["a", "b", "c"])] == [
        *(
            f"{names} have no aopc: they would be compared with what they are made of."
            for names in ("a and b", "a, b and c")
        )
    ]
    lower = Scoreboard((values_of("lodds", {"a": [1.0, 2]}),), ("a",))
    assert note(setup_of(30), lower, {}) == "Lower is better: lodds."
    forced = setup_of(30)
    forced.options["ranking"] = "magnitude"
    assert note(forced, lower, {}) == "Lower is better: lodds."
    both = Scoreboard(
        (lower.metrics[0], values_of("cue_dot", {"a": [1.0, 2]}), values_of("lds", {"a": [1.0, 2]})), ("a",)
    )
    assert note(forced, both, {}).endswith(" The ranking magnitude does not change lds.")
    assert "does not change" not in note(setup_of(30), both, {})


def test_the_answer_in_a_sentence() -> None:
    answer = verdict._answer
    board = board_of()
    assert answer(8, "faithfulness", board) == (
        "On these 8 texts best has the highest score in faithfulness and is told apart from every other method; it is above 2 "
        "others."
    )
    few = Scoreboard((values_of("aopc", {"a": [1.0], "b": [2.0]}),), ("a", "b"))
    assert answer(1, "plausibility", few) == (
        "On this text b has the highest score in plausibility; so few texts tell no two methods apart."
    )
    noise = np.array([1.0, -1.0] * 4)
    rows = {"x": 9 + noise, "y": 9 - noise, "z": noise / 2}
    tied = Scoreboard((values_of("aopc", rows, np.zeros(N), np.ones(N)),), ("x", "y", "z"))
    assert answer(8, "faithfulness", tied) == (
        "On these 8 texts x has the highest score in faithfulness; 1 is not told apart from it: y; it is above 1 other; not told "
        "apart from random scores: z."
    )
    names = list("abcdefgh")
    assert [verdict.listed(names[:n]) for n in (1, 2, 3, 6, 7, 8)] == [
        *(
            "a",
            "a and b",
            "a, b and c",
            "a, b, c, d, e and f",
            "a, b, c, d, e and 2 others",
            "a, b, c, d, e and 3 others",
        )
    ]


def test_the_answer_where_a_method_has_fewer_kinds() -> None:
    """The order is that of scores over all kinds of each method, the differences are over the kinds that both have: a method
    may have the lower score and be above the leader."""
    wave = np.array([0.0, 0.1, -0.1, 0.05, -0.05, 0.02, -0.02, 0.07])
    easy = values_of("aopc", {"few": 5 + wave, "all": 6 + wave[::-1], "low": wave[::-1] / 2}, np.zeros(N), np.ones(N))
    hard = values_of("insertion", {"all": 1 + wave, "low": wave}, np.zeros(N), np.ones(N))
    board = Scoreboard((easy, hard), ("few", "all", "low"))
    assert board.order[:2] == ("few", "all")
    assert board.lacks("few") == ["keeping"]
    assert board.lacks("all") == []
    assert (board.below, board.above) == (["low"], ["all"])
    pairs = verdict_tables.pairs_table("ranking", "faithfulness", board)
    assert pairs is not None
    assert pairs.note.endswith(" Differences are over the kinds that both have.")
    assert verdict._answer(8, "faithfulness", board) == (
        "On these 8 texts few has the highest score in faithfulness (without the kind keeping) and is told apart from every "
        "other method; it is above 1 other; over the kinds that both have, all is above it; not told apart from random "
        "scores: low."
    )


def ranked(n: int = N) -> tuple[Any, list[Record]]:
    """A run of three methods, two of them twins, and random scores, by three metrics."""
    setup: Any = SimpleNamespace(
        examples=[Example(str(i)) for i in range(n)],
        seed=3,
        methods=("random", "one", "twin", "two"),
        options={"metrics": ["aopc", "cue_dot"], "ranking": "default"},
    )
    rise = np.arange(n, dtype=float)
    records: list[Record] = []
    for metric in ("aopc", "cue_dot"):
        records += records_of("random", metric, rise / 10, spread=[0.5] * n)
        records += records_of("one", metric, 3 + rise)
        records += records_of("twin", metric, 3 + rise, same_as=["one"] * n)
        records += records_of("two", metric, 1 + rise % 3)
    return setup, records


def test_twins_and_boards_of_a_run() -> None:
    setup, records = ranked()
    assert verdict.twins_in(setup, records) == {"random": ["random"], "one": ["one", "twin"], "two": ["two"]}
    mixed = [*records_of("a", "aopc", [1, 2], same_as=["b", "c"])]
    assert verdict.twins_in(SimpleNamespace(methods=("a",)), mixed) == {"a": ["a"]}  # type: ignore[arg-type]
    boards = verdict.boards_of(setup, records)
    assert list(boards) == ["ranking", "plausibility"]
    assert boards["ranking"].methods == ("random", "one", "two")
    assert boards["ranking"].seed == 3
    values = boards["ranking"].metrics[0]
    assert (values.request, list(values.of_methods)) == (parse_metric("aopc"), ["one", "two"])
    same(values.random, np.arange(N) / 10)
    same(values.spread, [0.5] * N)
    same(values.of_methods["two"], 1 + STEPS % 3)
    without = verdict.metric_values(parse_metric("aopc"), ["one"], records_of("one", "aopc", [1, 2]))
    assert (without.random, without.spread) == (None, None)
    unspread = verdict.metric_values(parse_metric("aopc"), [], records_of("random", "aopc", [1, 2]))
    same(unspread.spread, [0, 0])
    kinds = {
        name: verdict.question_of(parse_metric(name))
        for name in ("lodds", "lds", "cue_dot", "rationale_f1", "sufficiency")
    }
    assert kinds == {
        "lodds": "ranking",
        "lds": "ranking",
        "cue_dot": "plausibility",
        "rationale_f1": "plausibility",
        "sufficiency": "ranking",
    }


def test_the_ranking_of_a_run() -> None:
    setup, records = ranked()
    tables = verdict.tables_of(setup, records)
    assert [table.name for table in tables] == ["ranking", "plausibility", "ranking_pairs", "plausibility_pairs"]
    table, board = tables[0], verdict.boards_of(setup, records)["ranking"]
    assert table.title == "Faithfulness: which method finds the tokens that the prediction rests on"
    assert table.columns == (
        "rank",
        "method",
        "group",
        "score",
        "aopc",
        "better than random on",
    )  # one kind is the score
    assert table.column("rank") == [1, 2, 3]
    assert table.column("method") == ["one = twin", "two", "random"]
    assert table.column("group") == [board.groups[name] for name in ("one", "two", "random")]
    assert table.column("score") == [board.means[name] for name in ("one", "two", "random")]
    assert table.column("aopc") == [board.metrics[0].interval(name, 3) for name in ("one", "two", "random")]
    assert table.column("better than random on") == [*(f"{board.wins(name)} of 1" for name in ("one", "two")), "-"]
    assert table.note == verdict_notes.note_of(setup, board, verdict.twins_in(setup, records))
    assert verdict.answers_of(setup, records) == [
        verdict._answer(N, question, one)
        for question, one in zip(
            ("faithfulness", "plausibility"), verdict.boards_of(setup, records).values(), strict=True
        )
    ]


def test_several_kinds_have_a_column_each() -> None:
    setup, records = ranked()
    setup.options["metrics"] = ["aopc", "lodds", "insertion"]
    for metric, methods in (("lodds", ("random", "one", "two")), ("insertion", ("random", "one"))):
        for k, method in enumerate(methods):
            records += records_of(method, metric, STEPS * k, spread=[2.0] * N)
    table = verdict.tables_of(setup, records)[0]
    assert table.columns[:7] == ("rank", "method", "group", "score", "score (removing)", "score (keeping)", "aopc")
    board = verdict.boards_of(setup, records)["ranking"]
    for kind in ("removing", "keeping"):
        for method, cell in zip(board.order, table.column(f"score ({kind})"), strict=True):
            scores = board.by_kind[method].get(kind)
            assert cell == (None if scores is None else pytest.approx(float(np.nanmean(scores))))
    assert table.row("two")["score (keeping)"] is None
    assert judge_summary.metrics_in(table) == ["aopc", "lodds", "insertion"]


def test_the_ranking_of_few_texts() -> None:
    setup, records = ranked(3)
    table = verdict.tables_of(setup, records)[0]
    assert table.column("group") == [None] * 3
    assert table.column("better than random on") == ["-"] * 3
    assert len(verdict.tables_of(setup, records)) == 2


def test_the_best_bar_is_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(verdict, "bars", lambda *given, **options: drawn.append((*given, options)))

    def cell(mean: float) -> Interval:
        return Interval(mean, mean, mean, 3, 0.1)

    for metric, order in (("aopc", ["b", "a", "none", "no"]), ("lodds", ["a", "b", "none", "no"])):
        rows = (
            (1, "none", 1, 0.0, None),
            (2, "a", 1, 0.0, cell(1.0)),
            (3, "no", 1, 0.0, cell(NAN)),
            (4, "b", 1, 0.0, cell(2.0)),
        )
        table = Table("ranking", "t", ("rank", "method", "group", "score", metric), rows, "n")
        verdict.figure_of(setup_of(3), [table], SimpleNamespace(subplots=lambda: "axes"))
        axes, ordered, name, options = drawn.pop()
        assert (axes, name, ordered.column("method"), options["ordered"]) == ("axes", metric, order, True)
        assert (ordered.name, ordered.title, ordered.columns, ordered.note) == ("ranking", "t", table.columns, "n")
        better = parse_metric(metric).metric.better
        assert options["title"].endswith(f", mean and 95 % interval ({better} is better)")


# --- metrics as written ---------------------------------------------------------------------------------------------------


def test_metrics_as_written() -> None:
    assert parse_metric("aopc") == MetricRequest("aopc", "aopc", {})
    assert parse_metric("aopc:replacement=mask") == MetricRequest(
        "aopc:replacement=mask", "aopc", {"replacement": "mask"}
    )
    assert parse_metric("kendall_confidence").options == {"variant": "scores"}
    assert (parse_metric("aopc").sign, parse_metric("lodds").sign) == (1, -1)
    assert parse_metric("aopc:replacement=mask").replacement() == "mask"
    assert parse_metric("aopc").replacement() == judged_metrics.possible()["aopc"].options["replacement"]
    assert parse_metric("cue_dot").replacement() is None
    assert judged_metrics.metrics_of(["cues", "cue_dot", "aopc"]) == [*judged_metrics.CUES, "aopc"]
    assert [one.written for one in judged_metrics.requests_of(["rationales"])] == list(judged_metrics.RATIONALES)
    assert judged_metrics.packages_of(["lds", "cue_average_precision", "aopc"]) == ["scikit-learn", "scipy"]
    assert judged_metrics.packages_of(["aopc"]) == []
    for given, told in (
        (["aopcc"], "unknown metric 'aopcc'. "),
        (["aopc:x"], "'aopc:x': an option is written key=value, such as aopc:replacement=mask."),
        (["aopc:x=1"], "'aopc' has no option 'x'. "),
        ([], "no metric was asked for. "),
    ):
        with pytest.raises(InputError) as error:
            judged_metrics.metrics_of(given)
        assert str(error.value).startswith(told)


def test_a_token_that_a_metric_needs() -> None:
    def model(task: str = "classification", mask: int | None = None, pad: int | None = 0) -> Any:
        config = SimpleNamespace(pad_token_id=pad)
        return SimpleNamespace(
            task=task, hf_model=SimpleNamespace(config=config), tokenizer=SimpleNamespace(mask_token_id=mask)
        )

    missing = judged_metrics.missing_token
    assert missing(model(), "aopc:replacement=mask") == "mask"
    assert missing(model(mask=0), "aopc:replacement=mask") is None
    assert missing(model(), "aopc:replacement=pad") is None
    assert missing(model(pad=None), "aopc:replacement=pad") == "pad"
    assert missing(model(), "aopc:replacement=unk") == "unk"
    assert missing(model(), "aopc:replacement=delete") is None
    assert missing(model(), "aopc:replacement=infill") == "infilled"
    assert missing(model(), "aopc:replacement=infill", infill=True) is None
    assert missing(model("masked-lm", 4), "aopc:replacement=infill") is None


# --- the table in lines ---------------------------------------------------------------------------------------------------


def summary_table(**changes: Any) -> Table:
    columns = (
        "rank",
        "method",
        "group",
        "score",
        "aopc",
        "comprehensiveness",
        "sufficiency",
        "better than random on",
        "seconds",
    )
    whole = Interval(0.12345, 0.1, 0.2, 9, 0.1)
    rows = (
        (1, "alti = attention = lrp", 1, whole, 0.5, whole, 1.0, "2 of 3", 0.25),
        (2, "random", None, -1.0, None, 0.25, 2.0, "-", 1.5),
    )
    return Table("ranking", "t", columns, changes.get("rows", rows), "n")


def test_a_summary_in_lines() -> None:
    assert judge_summary.summary_lines(summary_table(), width=200, one_text=False) == [
        "rank  method      group  score   aopc   comprehensiveness  sufficiency  > random  seconds",
        "1     alti (= 2)  1      0.123   0.500  0.123              1.000        2 of 3    0.250",
        "2     random             -1.000         0.250              2.000        -         1.500",
        "",
        "alti (= 2): the same scores have attention, lrp.",
        "Every metric with its interval, and further tables: --full.",
    ]
    wide = 70  # without comprehensiveness, which is of the kind of aopc
    assert judge_summary.columns_shown(summary_table(), wide, False) == [
        *("rank", "method", "group", "score", "aopc", "sufficiency", "better than random on", "seconds")
    ]
    assert judge_summary.columns_shown(summary_table(), wide - 1, False) == [
        *("rank", "method", "group", "score", "aopc", "better than random on", "seconds")
    ]
    narrow = judge_summary.summary_lines(summary_table(), width=10, one_text=True)
    assert narrow[0] == "method      group  score   > random  seconds"
    assert narrow[-1] == (
        "Not shown: aopc, comprehensiveness, sufficiency. Every metric with its interval, and further tables: --full."
    )


def test_columns_that_say_nothing_are_left_out() -> None:
    rows = ((1, "a", None, 0.5, 1.0, 1.0, 1.0, "-", None), (2, "b", None, 0.25, 1.0, 1.0, 1.0, "-", None))
    assert judge_summary.columns_shown(summary_table(rows=rows), 60, False) == [
        *("rank", "method", "score", "aopc", "comprehensiveness", "sufficiency")
    ]
    assert judge_summary.by_kind(["comprehensiveness", "aopc", "sufficiency"]) == [
        "comprehensiveness",
        "sufficiency",
        "aopc",
    ]
    assert judge_summary.twins_told(summary_table(rows=rows)) == []
    assert [judge_summary.cell_text(cell, "x") for cell in (1, 0.5, None, "t")] == ["1", "0.500", "", "t"]
    assert judge_summary.cell_text("a = b", "x") == "a = b"


# --- methods as asked for -------------------------------------------------------------------------------------------------


def mine(trace: Any) -> Any: ...


def test_methods_as_asked_for() -> None:
    asked = judged_methods.asked_methods
    assert asked(" alti, ,random ") == (["alti", "random"], {})
    assert asked("alti,alti") == (["alti", "alti"], {})
    assert asked(mine) == (["mine"], {"mine": mine})
    assert asked({"x": [1], "y": mine}) == (["x", "y"], {"x": [1], "y": mine})
    assert asked(["alti", mine, {"x": [1]}]) == (["alti", "mine", "x"], {"mine": mine, "x": [1]})
    assert asked([lambda trace: 0])[0] == ["lambda"]
    with pytest.raises(
        InputError, match=r"^a method is a name, a function of a trace, or a dict of a name and scores, not 3\.$"
    ):
        asked([3])
    quick, slow = judged_methods.every_method()
    assert "null_attention" not in quick
    assert not set(quick) & set(slow)
    assert all(map(judged_methods.slow, slow))
    assert not any(map(judged_methods.slow, quick))
    assert asked("all")[0] == quick
    assert asked(["all", "alti"])[0] == quick


def test_scores_that_were_made_elsewhere() -> None:
    examples = [Example("a"), Example("a", pair="b"), Example("c")]
    made = judged_methods.scorers_of({"x": [[1], [2], [3]], "f": mine}, examples)
    assert made["f"] is mine
    traces: Any = [
        SimpleNamespace(text="a", pair="b"),
        SimpleNamespace(text="c", pair=None),
        SimpleNamespace(text="a", pair=None),
    ]
    assert [made["x"](trace) for trace in traces] == [[2], [3], [1]]
    for scores, told in (([[1]], "1"), (3, "no list"), ("abc", "3")):
        with pytest.raises(InputError) as error:
            judged_methods.scorers_of({"x": scores}, examples)
        assert (
            str(error.value) == f"'x' has the scores of {told}, and there are 3 texts. Give a list with those of each."
        )
    with pytest.raises(InputError) as error:
        judged_methods.scorers_of({"x": [1, 2]}, [Example("a"), Example("a")])
    assert str(error.value) == "'x': the text 'a' is there twice, so its scores are not told apart."
