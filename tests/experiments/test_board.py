"""Scores, tables and sentences of `judge`, from values made by hand.

Intervals themselves are tested with the metrics; here it is asked of what, with which seed and of which kind they
are."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mixlens
from mixlens import metrics
from mixlens.base import errors
from mixlens.metrics import agreement, comparisons, intervals
from mixlens.runs import experiments
from mixlens.runs.judge import ask, board, judge, say

NAN = math.nan
N = 8
STEPS = np.arange(N, dtype=float)
WAVE = np.array([0.0, 0.1, -0.1, 0.05, -0.05, 0.02, -0.02, 0.07])
FLIP = np.array([1.0, -1.0] * 4)


def of(metric: str, rows: dict[str, Any], random: Any = None, spread: Any = None) -> board.Values:
    given = rows if random is None else {**rows, "random": random}
    arrays = {name: np.asarray(row, dtype=float) for name, row in given.items()}
    return board.Values(ask.parse_metric(metric), arrays, None if spread is None else np.asarray(spread, dtype=float))


def board_of(*values: board.Values, methods: Any = None, seed: int = 0) -> board.Scoreboard:
    return board.Scoreboard(values, tuple(methods or values[0].methods), seed)


def mean(row: Any, seed: int = 0) -> Any:
    return metrics.mean_with_interval(row, seed=seed, how="studentised")


def same(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


# --- values of one metric -------------------------------------------------------------------------------------------


def test_texts_on_which_every_method_has_a_value() -> None:
    one = of("aopc", {"a": [1, NAN, 3], "b": [1, 2, 3], "none": [NAN] * 3}, [1, 2, NAN])
    assert one.defined.tolist() == [True, False, False]
    assert of("aopc", {"a": [NAN, NAN]}).defined.tolist() == [False, False]
    row = [1.0, 5.0, 2.0, 4.0, 9.0, 7.0]
    one = of("aopc", {"a": row, "b": [NAN, *row[1:]]}, [0, 1, 0, 1, 0, 2])
    assert one.interval("a", 3) == mean([NAN, *row[1:]], 3)
    assert one.interval("random", 3) == mean([NAN, 1, 0, 1, 0, 2], 3)
    assert one.interval("c", 3) is None


@pytest.mark.parametrize(
    ("row", "random", "spread", "scale"),
    [
        ([1.0, 3.0], [0.0, 2.0], [3.0, 4.0], math.sqrt(12.5)),
        ([1.0, 3.0], [0.0, 4.0], [0.0, 0.0], 2.0),
        ([1.0, 3.0], [0.0, 4.0], None, 2.0),
        ([1.0, 3.0], [1.0, 1.0], None, np.std([1, 3, 1, 1])),
        ([1.0, 3.0], None, None, 1.0),
        ([5.0, 5.0], None, None, 1.0),
        ([1.0, 3.0], [0.0, 4.0], [NAN, 3.0], 3.0),
        ([5.0, NAN, 7.0], None, None, 1.0),
        # A spread on few texts is no scale: where draws are alike on nearly all it nears 0, and scores would be in
        # thousands.
        ([1.0] * 10, [0.0, 4.0] * 5, [0.001] + [0.0] * 9, 2.0),
        ([1.0] * 10, [0.0, 4.0] * 5, [0.001, NAN] + [1e-8] * 8, 2.0),  # rounding of single precision
        ([1.0] * 10, [0.0, 4.0] * 5, [3.0] * 2 + [0.0] * 8, math.sqrt(1.8)),  # on a fifth of the texts
        ([1.0] * 10, [0.0, 4.0] * 5, [NAN] * 10, 2.0),
        ([0.0, 3.0], [1.0, 1.0 + 1e-8], [0.0, 0.0], np.std([0, 3, 1, 1])),
    ],
)
def test_the_scale_of_a_metric(row: Any, random: Any, spread: Any, scale: float) -> None:
    assert of("aopc", {"a": row}, random, spread).scale == pytest.approx(scale)


def test_standard_scores() -> None:
    higher = of("aopc", {"a": [1.0, 3.0], "b": [NAN, 4.0]}, [0.5, 1.0], [2.0, 2.0])
    same(higher.standard("a"), [NAN, 1.0])
    same(higher.standard("random"), [NAN, 0.0])
    same(of("lodds", {"a": [1.0, 3.0]}, [0.5, 1.0], [2.0, 2.0]).standard("a"), [-0.25, -1.0])
    alone = of("aopc", {"a": [1.0, 3.0], "b": [2.0, 6.0]})
    same(alone.standard("b"), (np.array([2.0, 6.0]) - 3.0) / np.std([1, 3, 2, 6]))


# --- the scoreboard -------------------------------------------------------------------------------------------------


def three() -> board.Scoreboard:
    """Three methods and random scores: the best is told apart, two are not told apart from each other."""
    rows = {"best": 9 + WAVE, "middle": 3 + WAVE[::-1], "third": 3 + WAVE + FLIP / 50}
    removing = of("aopc", rows, WAVE / 3, np.ones(N))
    second = of("comprehensiveness", {name: 2 * row for name, row in rows.items()}, WAVE, np.full(N, 2.0))
    keeping = of("sufficiency", {"best": -5 - WAVE, "middle": -2 + WAVE, "third": -2 - WAVE}, WAVE, np.ones(N))
    return board_of(removing, second, keeping, methods=("random", "third", "best", "middle"), seed=5)


def test_scores_are_means_over_kinds_of_means_over_metrics() -> None:
    made = three()
    first, second, third = made.metrics
    assert made.kinds == ("removing", "keeping")
    for method in made.methods:
        removing = (first.standard(method) + second.standard(method)) / 2
        same(made.by_kind[method]["removing"], removing)
        same(made.scores(method), (removing + third.standard(method)) / 2)
        same(made.scores(method, ["removing"]), removing)
        assert made.means[method] == mean(made.scores(method), 5)
    assert (made.order[0], made.order[-1]) == ("best", "random")
    none = board_of(of("aopc", {"none": [NAN] * 3, "a": [-1.0, -2, -3], "b": [1.0, 2, 3]}))
    assert none.order == ("b", "a", "none")


def test_pairs_groups_and_leaders() -> None:
    made = three()
    pairs = list(made.differences)
    assert pairs == [pair for pair in pairs if made.order.index(pair[0]) < made.order.index(pair[1])]
    assert len(pairs) == 6
    series = {pair: made.scores(pair[0]) - made.scores(pair[1]) for pair in pairs}
    expected = comparisons.simultaneous({**series, None: np.zeros(N)}, [(pair, None) for pair in pairs], seed=5)
    assert made.differences == {pair: expected[pair, None] for pair in pairs}
    second, third = made.order[1:3]
    assert made.told_apart("best", "middle")
    assert made.told_apart("middle", "best")
    assert not made.told_apart(second, third)
    assert made.groups == {"best": 1, second: 2, third: 2, "random": 3}
    assert (made.leaders, made.apart(1), made.like_random) == (["best"], [second, third, "random"], [])
    assert [made.wins[method] for method in ("best", "middle", "random")] == [3, 3, 0]


def test_a_board_without_random_scores_and_with_a_metric_that_judges_few() -> None:
    removing, keeping = of("aopc", {"a": STEPS, "b": STEPS[::-1]}), of("sufficiency", {"a": STEPS})
    made = board_of(removing, keeping)
    assert not made.has_random
    assert {method: list(kinds) for method, kinds in made.by_kind.items()} == {
        "a": ["removing", "keeping"],
        "b": ["removing"],
    }
    difference = removing.standard("a") - removing.standard("b")
    assert made.differences == board.against_zero(
        {made.order: difference * (1 if made.order[0] == "a" else -1)}, seed=0
    )
    assert (made.like_random, made.wins["a"]) == ([], 0)


def test_methods_like_random() -> None:
    made = board_of(of("aopc", {"noise": FLIP, "good": 9 + FLIP / 9}, np.zeros(N), np.ones(N)))
    assert made.like_random == ["noise"]
    assert made.wins == {"noise": 0, "good": 1}
    assert board_of(of("lodds", {"good": 9 + FLIP / 9}, np.zeros(N), np.ones(N))).wins == {"good": 0}  # lower is better


def test_methods_that_do_nothing_are_seldom_told_apart() -> None:
    """Ten random methods on 30 texts, 60 times: a difference is found in at most 10 % of the runs (5 % are meant)."""
    found = 0
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(size=(10, 30))
        rows = {str(i): row for i, row in enumerate(noise)}
        found += len({*board_of(of("aopc", rows, np.zeros(30), np.ones(30))).groups.values()}) > 1
    assert found <= 6


def test_near_copies_do_not_hide_a_true_difference() -> None:
    """Two methods that differ on one text alone cannot be tested, and the others are told apart all the same."""
    noise = np.random.default_rng(0).normal(size=(2, 40))
    copy = noise[0].copy()
    copy[3] += 0.5
    rows = {"a": noise[0], "copy": copy, "b": noise[1] + 6}
    assert board_of(of("aopc", rows, np.zeros(40), np.ones(40))).groups == {"b": 1, "a": 2, "copy": 2}


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
    assert list(board.against_zero({"x": np.array(row)}, seed=1)) == (["x"] if tested else [])


# --- tables of made-up records --------------------------------------------------------------------------------------

LABELLED = SimpleNamespace(task="masked-lm", name="tiny")


def setup_of(n: int, methods: Any = (), metrics: Any = ("aopc",), **options: Any) -> Any:
    used = experiments.known()["judge"]
    examples = tuple(mixlens.Example("a text", id=str(i)) for i in range(n))
    asked = {**used.options, "metrics": list(metrics), **options}
    return experiments.Setup(used, (LABELLED,), examples, tuple(methods), asked, seed=3)  # type: ignore[arg-type]


def records_of(method: str, metric: str, values: Any, **info: Any) -> list[mixlens.Record]:
    return [
        mixlens.Record(str(i), method, metric, float(value), {key: one[i] for key, one in info.items()})
        for i, value in enumerate(values)
    ]


def run_of(
    rows: dict[str, Any], metrics: Any = ("aopc",), twin: Any = None, **info: Any
) -> tuple[Any, list[mixlens.Record]]:
    """Methods with the same values by every metric (lodds turned round), and random scores of spread 1."""
    n = len(next(iter(rows.values())))
    setup, records = setup_of(n, [*rows, *(twin or {})], metrics), list[mixlens.Record]()
    for metric in metrics:
        sign = ask.parse_metric(metric).sign
        for method, row in {**rows, "random": rows.get("random", np.zeros(n))}.items():
            spread = {"spread": [1.0] * n} if method == "random" else {}
            records += records_of(method, metric, sign * np.asarray(row, dtype=float), **spread, **info)
        for method, other in (twin or {}).items():
            records += records_of(method, metric, sign * np.asarray(rows[other]), same_as=[other] * n, **info)
    return setup, records


def tables_of(*given: Any, **options: Any) -> dict[str, Any]:
    return {table.name: table for table in say.tables_of(*run_of(*given, **options))}


def test_the_ranking_of_a_run() -> None:
    rows = {"random": STEPS / 10, "one": 3 + STEPS, "two": 1 + STEPS % 3}
    setup, records = run_of(rows, ("aopc", "lodds", "insertion", "cue_dot"), twin={"twin": "one"})
    records = [r for r in records if (r.method, r.metric) != ("two", "insertion")]
    tables = say.tables_of(setup, records)
    assert [table.name for table in tables] == ["ranking", "plausibility", "ranking_pairs", "plausibility_pairs"]
    table, made = tables[0], board.boards_of(setup, records)["ranking"]
    assert (made.methods, made.seed) == (("random", "one", "two"), 3)
    assert table.title == "Faithfulness: which method finds the tokens that the prediction rests on"
    kinds = ("score (removing)", "score (keeping)")
    last = ("aopc", "lodds", "insertion", "better than random on")
    assert table.columns == ("rank", "method", "group", "score", *kinds, *last)
    assert tables[1].columns == ("rank", "method", "group", "score", "cue_dot", last[-1])  # one kind is the score
    assert table.column("method") == ["one = twin" if name == "one" else name for name in made.order]
    for row, method in zip(table.rows, made.order, strict=True):
        cells = dict(zip(table.columns, row, strict=True))
        assert (cells["group"], cells["score"]) == (made.groups[method], made.means[method])
        for kind in ("removing", "keeping"):
            scores = made.by_kind[method].get(kind)
            assert cells[f"score ({kind})"] == (None if scores is None else pytest.approx(np.nanmean(scores)))
        for values in made.metrics:
            assert cells[values.request.written] == values.interval(method, 3)
        of_two = 2 if method == "two" else 3
        assert cells[last[-1]] == ("-" if method == "random" else f"{made.wins[method]} of {of_two}")
    assert table.note == say.note_of(setup, made, board.twins_in(setup, records))
    answers = say.answers_of(setup, records)
    assert [answer.startswith("On these 8 texts one has") for answer in answers] == [True, True]
    few = say.tables_of(*run_of({name: row[:3] for name, row in rows.items()}))
    assert [table.name for table in few] == ["ranking"]
    assert (few[0].column("group"), few[0].column(last[-1])) == ([None] * 3, ["-"] * 3)


def test_twins_are_the_same_on_every_text() -> None:
    mixed = records_of("a", "aopc", [1, 2], same_as=["b", "c"])
    assert board.twins_in(setup_of(2, ["a"]), mixed) == {"a": ["a"]}


def test_a_score_does_not_depend_on_who_else_is_judged_and_metrics_of_one_kind_count_once() -> None:
    noise = np.random.default_rng(0).normal(size=(3, 20))
    both = tables_of({"a": noise[0], "b": noise[1]})["ranking"]
    more = tables_of({"a": noise[0], "c": noise[2] + 9, "b": noise[1]}, ("aopc", "lodds", "cue_dot"))["ranking"]
    assert all(both.row(method)["score"] == more.row(method)["score"] for method in ("a", "b"))
    two = tables_of({"a": [1.0, 3.0], "b": [3.0, 4.0]}, ("aopc", "lodds"))["ranking"]
    assert {method: two.row(method)["score"].mean for method in ("a", "b")} == pytest.approx({"a": 2.0, "b": 3.5})


def test_all_methods_are_judged_on_the_same_texts() -> None:
    """A text without a value for one method is left out for all; a method without any value leaves out nothing."""
    table = tables_of({"a": [1.0, NAN, 3.0], "b": [5.0, 7.0, 6.0], "none": [NAN] * 3})["ranking"]
    assert (table.row("b")["aopc"].mean, table.row("b")["aopc"].n, table.row("a")["aopc"].n) == (5.5, 2, 2)
    assert "aopc is undefined for a method on 1 texts, which are left out for all." in table.note
    assert table.column("method")[-1] == "none"


def test_better_than_random_is_judged_example_by_example() -> None:
    """Always a little better is better, though the two means' intervals overlap; sometimes better is not."""
    noise = np.array([0.0, 5.0, -5.0, 2.0, -2.0, 1.0, 3.0, -3.0, 4.0, -4.0])
    small = 0.1 + 0.01 * np.arange(10)
    unsteady = noise + np.where(np.arange(10) % 2, 3.0, -2.0) + small
    table = tables_of({"random": noise, "steady": noise + small, "unsteady": unsteady})["ranking"]
    told = dict(zip(table.column("method"), table.column("better than random on"), strict=True))
    assert told == {"random": "-", "steady": "1 of 1", "unsteady": "0 of 1"}
    assert table.column("method")[0] == "unsteady"  # its mean is the highest all the same


def test_the_leader_against_the_others() -> None:
    rows = {"best": 9 + WAVE, "close": 9 + WAVE + FLIP / 2, "low": WAVE[::-1]}
    setup, records = run_of(rows)
    made = board.boards_of(setup, records)["ranking"]
    table = next(table for table in say.tables_of(setup, records) if table.name == "ranking_pairs")
    leader = made.order[0]
    assert table.title == f"{leader}, the highest score in faithfulness, against every other method"
    assert table.columns == ("method", f"{leader} less method", "told apart", "p, adjusted", "texts needed")
    assert table.note.startswith(
        "Texts needed: so many would tell the two apart among all pairs at once, with 80 % power"
    )
    for other, interval, apart, p, needed in table.rows:
        one = made.differences[leader, other]  # type: ignore[index]
        assert (interval.mean, interval.low, interval.high, interval.n) == (one.mean, one.low, one.high, one.n)
        assert (apart, needed) == (("yes", None) if one.sign else ("no", needed))
        assert p == ("< 0.001" if one.p < 0.001 else f"{one.p:.3f}")
    assert [row[2] for row in table.rows] == ["no", "yes"]
    tied = 1e-4 * np.sin(np.arange(40.0)) + np.tile([1.0, -1.0], 20)
    needed = tables_of({"a": tied, "b": np.zeros(40)})["ranking_pairs"].row("b" if tied.mean() > 0 else "a")
    assert needed["texts needed"] == "more than 100,000"  # a number that nobody has is not written out


def test_signs_that_matter() -> None:
    other, flip = "aopc:ranking=magnitude", STEPS + 1
    rows = {"a": (flip + 3, flip * 2), "b": (flip, flip), "c": (flip, None), "d": (2 * flip + 10, flip)}
    records = [record for name, (row, _) in rows.items() for record in records_of(name, "aopc", row)]
    records += [r for name, (_, row) in rows.items() if row is not None for r in records_of(name, other, row)]
    setup = setup_of(N, rows)
    table = next(table for table in say.tables_of(setup, records) if table.name == "signs")
    compared = board.against_zero({"a": 3 - flip, "b": 0 * flip, "d": flip + 10}, seed=3)
    assert table.columns == ("method", "as ranked", "mean", "other reading of the signs", "its mean", "difference")
    assert table.rows == (("d", "aopc", mean(2 * flip + 10, 3), other, mean(flip, 3), str(compared["d"])),)
    without = [record for record in records if record.method in "bc"]
    assert "signs" not in {table.name for table in say.tables_of(setup_of(N, "bc"), without)}


def correctness(row: Any, right: Any, **more: Any) -> Any:
    return tables_of({"a": row, **more}, right=right).get("correctness")


def test_right_and_wrong_predictions() -> None:
    """Five texts and more have an interval, fewer have none; a cell counts the texts of its side alone."""
    known: list[Any] = [True, True, False, None, False, True, True, True]
    table = correctness(STEPS, known)
    assert table.columns == ("method", "right (5 texts)", "wrong (2 texts)", "right less wrong")
    right, wrong = (STEPS[[one is side for one in known]] for side in (True, False))
    cells = table.row("a")
    assert cells["right (5 texts)"] == mean(right, 3)
    few = cells["wrong (2 texts)"]
    assert (few.mean, few.n, few.undefined, math.isnan(few.low)) == (pytest.approx(wrong.mean()), 2, 0, True)
    assert cells["right less wrong"] is None
    assert table.note.endswith("Caution: 5 right predictions are few. Caution: 2 wrong predictions are few.")
    assert correctness(STEPS, [True] * 6 + [False] * 2) is not None
    assert all(correctness(STEPS, some) is None for some in ([True] * 7 + [False], [None] * 7 + [True]))


def test_right_less_wrong_has_an_interval() -> None:
    """Of 35 right and 30 wrong predictions: a difference, and no caution. A text without a score is no part of a
    side."""
    row = np.random.default_rng(0).normal(size=65) + np.repeat([2.0, 0.0], [35, 30])
    row[0] = NAN
    table = correctness(row, [True] * 35 + [False] * 30, none=[NAN] * 65)
    assert "Caution" not in table.note
    cells = table.row("a")
    assert cells["right less wrong"] == intervals.difference_with_interval(row[1:35], row[35:], seed=3)
    assert 1 < cells["right less wrong"].low < cells["right less wrong"].high < 3
    assert (cells["right (35 texts)"].n, cells["right (35 texts)"].undefined) == (34, 0)
    assert math.isnan(table.row("none")["right (35 texts)"].mean)
    few = correctness(row, [True] * 36 + [False] * 29)
    assert few.note.endswith(" Caution: 29 wrong predictions are few.")


def fillers(first: dict[str, Any], second: dict[str, Any], **spread: Any) -> Any:
    ways = ("aopc:replacement=delete", "aopc:replacement=pad")
    setup = setup_of(len(next(iter(first.values()))), first, ("aopc", *ways))
    records = [r for method, row in first.items() for r in records_of(method, "aopc", row)]
    for way, rows in zip(ways, (first, second), strict=True):
        records += [r for method, row in rows.items() for r in records_of(method, way, row)]
    return next((table for table in say.tables_of(setup, records) if table.name == "fillers"), None)


def test_fillers_and_the_order_of_methods() -> None:
    rows = {"a": STEPS, "b": STEPS + 1, "c": STEPS - 4}
    table = fillers({**rows, "random": np.zeros(N)}, {**rows, "a": STEPS + 9})
    tau = float(agreement.kendall([1, 2, 0], [2, 1, 0]))
    assert table.columns == (
        *("metric", "best method", "best less the next", "told apart", "random scores"),
        "agreement of the order with aopc:replacement=delete",
    )
    assert [row[:5] for row in table.rows] == [
        ("aopc:replacement=delete", "b", "a: +1.000 [+1.000, +1.000]", "yes", mean(np.zeros(N), 3)),
        ("aopc:replacement=pad", "a", "b: +8.000 [+8.000, +8.000]", "yes", None),
    ]
    one, other = (row[5] for row in table.rows)
    assert (one, other.mean, other.low, other.high, other.n) == pytest.approx((1.0, tau, tau, tau, N))
    assert fillers({"a": STEPS}, {"a": STEPS}) is None


def test_an_order_that_chance_decides_has_a_wide_agreement() -> None:
    """Methods that differ by noise alone: the best is not told apart from the next, other texts give other orders."""
    noise = np.random.default_rng(1).normal(size=(2, 5, 20))
    both = [dict(zip("vwxyz", rows, strict=True)) for rows in noise]
    first, second = fillers(*both).rows
    assert (first[3], second[3]) == ("no", "no")
    assert second[5].mean == pytest.approx(float(agreement.kendall(*noise.mean(-1))))
    assert -1 <= second[5].low < second[5].mean < second[5].high <= 1
    assert second[5].high - second[5].low > 0.5
    few = fillers(*({name: row[:3] for name, row in rows.items()} for rows in both))
    assert [row[2:4] for row in few.rows] == [(None, None)] * 2


# --- notes and sentences --------------------------------------------------------------------------------------------


def test_the_note_below_a_ranking() -> None:
    made = three()
    parts = [
        "Higher is better: aopc, comprehensiveness; lower is better: sufficiency.",
        "Score: how much better than random scores on the same text, in standard deviations of a random draw; the mean "
        "over kinds of metrics, each of which counts once: removing (aopc, comprehensiveness); keeping (sufficiency).",
        "Group: the methods that are not told apart from the first of the group, by 95 % intervals of paired "
        "differences that hold for all pairs at once. Members of a group may differ from each other, and members of "
        "two groups need not: the number of a group is no rank.",
    ]
    twins = "Methods joined by = have the same scores on every text and are one row."
    caution = (
        "Caution: 29 texts are few. On others the order may be another: look at the groups, and judge 30 texts or more."
    )
    assert say.note_of(setup_of(30), made, {"a": ["a"]}) == " ".join(parts)
    assert say.note_of(setup_of(29), made, {"b": ["b", "c"]}) == " ".join([*parts, twins, caution])
    few = board_of(of("lodds", {"a": [1.0, NAN], "blank_out": [2.0, 3]}), of("lds", {"a": [1.0, 2]}))
    assert say.note_of(setup_of(1), few, {}) == (
        "Higher is better: lds; lower is better: lodds. blank_out has no lds: it would be compared with what it is "
        "made of. A score without a kind is the mean over the other kinds; two methods are compared over the kinds "
        "that both have, so that the order by score need not be that of the differences. lodds is undefined for a "
        "method on 1 texts, which are left out for all. One text has no intervals, and no two methods are told apart "
        "by it."
    )
    several = board_of(of("aopc", {name: [1.0, 2] for name in "abcd"}), of("lds", {"d": [1.0, 2]}))
    assert " a, b and c have no lds: they would be compared with what they are made of. " in say.note_of(
        setup_of(30), several, {}
    )
    both = board_of(*(of(name, {"a": [1.0, 2]}) for name in ("lodds", "cue_dot", "lds")))
    assert say.note_of(setup_of(30, ranking="magnitude"), both, {}).endswith(
        " The ranking magnitude does not change lds."
    )
    assert "does not change" not in say.note_of(setup_of(30), both, {})


EASY = {"few": 5 + WAVE, "all": 6 + WAVE[::-1], "low": WAVE[::-1] / 2}
LACKING = board_of(
    of("aopc", EASY, np.zeros(N), np.ones(N)),
    of("insertion", {"all": 1 + WAVE, "low": WAVE}, np.zeros(N), np.ones(N)),
)
TIED = board_of(of("aopc", {"x": 9 + FLIP, "y": 9 - FLIP, "z": FLIP / 2}, np.zeros(N), np.ones(N)))


@pytest.mark.parametrize(
    ("n", "made", "told"),
    [
        (8, three(), "On these 8 texts best {} and is told apart from every other method; it is above 2 others."),
        (
            1,
            board_of(of("aopc", {"a": [1.0], "b": [2.0]})),
            "On this text b {}; so few texts tell no two methods apart.",
        ),
        (
            *(3, board_of(of("aopc", {name: [1.0] for name in "abcdefgh"}))),
            "On these 3 texts a, b, c, d, e and 3 others have the same score, the highest in faithfulness; so few "
            "texts tell no two methods apart.",
        ),
        (
            *(8, TIED),
            "On these 8 texts x {}; 1 is not told apart from it: y; it is above 1 other; not told apart from random "
            "scores: z.",
        ),
        (  # the order is that of scores over all kinds of each method, differences are over the kinds that both have
            *(8, LACKING),
            "On these 8 texts few {} (without the kind keeping) and is told apart from every other method; it is above "
            "1 other; over the kinds that both have, all is above it; not told apart from random scores: low.",
        ),
    ],
)
def test_the_answer_in_a_sentence(n: int, made: board.Scoreboard, told: str) -> None:
    assert say.answer_of(n, "faithfulness", made) == told.format("has the highest score in faithfulness")


def test_bars_stand_in_the_order_of_what_they_show() -> None:
    """The best on top, also where the mean place over all metrics says otherwise, and where lower is better."""
    figure = pytest.importorskip("matplotlib.figure")
    means = {"d": NAN, "c": 2.0, "b": 3.0, "a": 1.0}
    for names in (["aopc", "lodds"], ["lodds", "aopc"]):
        setup, records = run_of({name: [one] * 3 for name, one in means.items()}, names)
        drawn = figure.Figure()
        setup.experiment.figure(setup, say.tables_of(setup, records), drawn)
        (axes,) = drawn.axes
        assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "c", "a", "d"]
        assert ("lower is better" in axes.get_xlabel()) == (names[0] == "lodds")
        assert ", mean and 95 % interval (" in axes.get_xlabel()


# --- tables in lines ------------------------------------------------------------------------------------------------

HALF = metrics.Interval(0.5, 0.25, 0.75, 3, 0.1)


def table_of(columns: Any, *rows: Any) -> experiments.Table:
    return experiments.Table("ranking", "t", tuple(columns), rows, "n")


def test_a_table_in_parts_that_fit() -> None:
    table = table_of(
        ("rank", "method", "x", "score"),
        (1, "a", 0.5, HALF),
        (2, "bb", None, metrics.Interval(1.0, NAN, NAN, 1, 0.1, undefined=3)),
    )
    whole = ["rank  method  x      score", "1     a       0.500  0.500 [0.250, 0.750]", "2     bb             1.000 -3"]
    assert say.lines(table) == say.lines(table, width=41, beside=2) == whole
    assert say.lines(table, width=40, beside=2) == [
        *("rank  method  x", "1     a       0.500", "2     bb", ""),
        *("rank  method  score", "1     a       0.500 [0.250, 0.750]", "2     bb      1.000 -3"),
    ]
    assert say.lines(table, width=1, beside=1)[:4] == ["rank  method", "1     a", "2     bb", ""]
    assert say.lines(table_of("a", ("x",)), beside=3) == ["a", "x"]
    assert say.wrapped("aaa bbb-ccc", 5) == ["aaa", "bbb-ccc"]


@pytest.mark.parametrize("beside", [1, 2, 3])
@pytest.mark.parametrize("width", range(24, 70, 9))
def test_a_part_of_a_table_is_as_wide_as_fits_and_no_wider(width: int, beside: int) -> None:
    """Each part holds as many columns as fit: with the first column of the next part it would be too wide."""
    columns = [f"{'column'[: 2 + i % 5]}{i}" for i in range(11)]
    heads = [line.split() for line in say.lines(table_of(columns, columns), width=width, beside=beside)[::3]]
    assert [name for head in heads for name in head[beside:]] == columns[beside:]
    for head, after in pairwise(heads):
        assert head[:beside] == columns[:beside]
        assert len("  ".join([*head, after[beside]])) > width
        assert len(head) == beside + 1 or len("  ".join(head)) <= width


ROWS = (
    (1, "alti = attention = lrp", 1, HALF, 0.5, HALF, 1.0, "2 of 3", 0.25),
    (2, "random", None, -1.0, None, 0.25, 2.0, "-", 1.5),
)
RANKED = (
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


def test_a_summary_in_lines() -> None:
    """As many metrics as fit, one of each kind before a second one; columns that say nothing are left out."""

    def told(width: int, rows: Any = ROWS, one_text: bool = False) -> list[str]:
        return say.summary_lines(table_of(RANKED, *rows), width=width, one_text=one_text)

    assert told(200) == [
        "rank  method      group  score   aopc   comprehensiveness  sufficiency  > random  seconds",
        "1     alti (= 2)  1      0.500   0.500  0.500              1.000        2 of 3    0.250",
        "2     random             -1.000         0.250              2.000        -         1.500",
        "",
        "alti (= 2): the same scores have attention, lrp.",
        "Every metric with its interval, and further tables: --full.",
    ]
    assert told(70)[0].split()[4:6] == [
        "aopc",
        "sufficiency",
    ]  # without comprehensiveness, which is of the kind of aopc
    assert told(69)[0].split()[4:6] == ["aopc", ">"]
    narrow = told(10, one_text=True)
    assert narrow[0] == "method      group  score   > random  seconds"
    assert narrow[-1].startswith("Not shown: aopc, comprehensiveness, sufficiency. Every metric")
    empty = [(1, "a", None, 0.5, 1.0, 1.0, 1.0, "-", None), (2, "b", None, 0.25, 1.0, 1.0, 1.0, "-", None)]
    assert told(60, empty)[0].split() == ["rank", "method", "score", "aopc", "comprehensiveness", "sufficiency"]


def test_seconds_and_rankings() -> None:
    records = [
        mixlens.Record(str(i), "a", metric, 0.0, {"seconds": 1.0 + i}) for i in range(2) for metric in ("x", "y")
    ]
    records += [mixlens.Record("0", "c", "x", 0.0, {"seconds": 4.0}), mixlens.Record("0", "d", "x", 0.0)]
    ranked = table_of(("rank", "method"), (1, "a = b"), (2, "c"))
    outcome = experiments.Outcome(setup_of(2), records, [ranked], None, 0.0)
    assert judge.seconds(outcome) == {"a": 1.5, "c": 4.0}
    assert judge.ranking(outcome) == table_of(("rank", "method", "seconds"), (1, "a = b", 1.5), (2, "c", 4.0))


# --- what is asked --------------------------------------------------------------------------------------------------


def mine(trace: Any) -> Any: ...


def test_metrics_as_written() -> None:
    parsed = ask.parse_metric("aopc:replacement=mask")
    assert (parsed.name, parsed.options, parsed.sign) == ("aopc", {"replacement": "mask"}, 1)
    assert ask.parse_metric("kendall_confidence").options == {"variant": "scores"}
    assert ask.parse_metric("lodds").sign == -1
    assert [one.written for one in ask.requests_of(["cues", "cue_dot", "aopc"])] == [*ask.CUES, "aopc"]
    assert ask.packages_of(["lds", "cue_average_precision", "aopc"]) == ["scikit-learn", "scipy"]
    assert "kendall_confidence" in ask.possible()
    assert "online_code" not in ask.possible()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: ask.requests_of(["aopcc"]), r"unknown metric 'aopcc'. Did you mean 'aopc'"),
        (lambda: ask.requests_of(["anisotropy"]), "unknown metric 'anisotropy'"),
        (
            lambda: ask.requests_of(["aopc:x"]),
            "'aopc:x': an option is written key=value, such as aopc:replacement=mask.",
        ),
        (lambda: ask.requests_of(["aopc:x=1"]), "'aopc' has no option 'x'. "),
        (lambda: ask.requests_of([]), "no metric was asked for. "),
        (
            lambda: ask.asked_methods([3]),
            r"a method is a name, a function of a trace, or a dict .* and scores, not 3\.$",
        ),
        (
            lambda: ask.scorers_of({"x": [[1]]}, [mixlens.Example("a")] * 3),
            "'x' has the scores of 1, and there are 3 texts. Give",
        ),
        (lambda: ask.scorers_of({"x": 3}, []), "'x' has the scores of no list, and there are 0 texts"),
        (
            lambda: ask.scorers_of({"x": [1, 2]}, [mixlens.Example("a")] * 2),
            "'x': the text 'a' is there twice, so its scores",
        ),
    ],
)
def test_what_is_asked_and_cannot_be(call: Any, told: str) -> None:
    with pytest.raises(errors.InputError, match=f"^{told}"):
        call()


def test_methods_as_asked_for() -> None:
    asked = ask.asked_methods
    assert asked(" alti, ,random ") == (["alti", "random"], {})
    assert asked("alti,alti") == (["alti", "alti"], {})
    assert asked(mine) == (["mine"], {"mine": mine})
    assert asked(["alti", mine, {"x": [1]}]) == (["alti", "mine", "x"], {"mine": mine, "x": [1]})
    assert asked([lambda trace: 0])[0] == ["lambda"]
    quick, slow = ask.every_method()
    assert {"alti", "value_zeroing", "attcat", "random", "integrated_gradients"} <= set(quick)
    assert set(slow) == {"hta", "hta_layer", "hta_layer_x_input"}
    assert "null_attention" not in quick + slow
    assert asked("all")[0] == asked(["all", "alti"])[0] == quick


def test_scores_that_were_made_elsewhere() -> None:
    examples = [mixlens.Example("a"), mixlens.Example("a", pair="b"), mixlens.Example("c")]
    made = ask.scorers_of({"x": [[1], [2], [3]], "f": mine}, examples)
    assert made["f"] is mine
    traces: Any = [SimpleNamespace(text=text, pair=pair) for text, pair in (("a", "b"), ("c", None), ("a", None))]
    assert [made["x"](trace) for trace in traces] == [[2], [3], [1]]


@pytest.mark.parametrize(
    ("way", "task", "tokens", "infill", "missing"),
    [
        ("mask", "classification", {}, False, "mask"),
        ("mask", "classification", {"mask": 0}, False, None),
        ("pad", "classification", {}, False, None),
        ("pad", "classification", {"pad": None}, False, "pad"),
        ("unk", "classification", {}, False, "unk"),
        ("delete", "classification", {}, False, None),
        ("infill", "classification", {}, False, "infilled"),
        ("infill", "classification", {}, True, None),
        ("infill", "masked-lm", {"mask": 4}, False, None),
    ],
)
def test_a_token_that_a_metric_needs(way: str, task: str, tokens: Any, infill: bool, missing: str | None) -> None:
    config = SimpleNamespace(pad_token_id=tokens.get("pad", 0))
    tokenizer = SimpleNamespace(mask_token_id=tokens.get("mask"))
    model: Any = SimpleNamespace(task=task, hf_model=SimpleNamespace(config=config), tokenizer=tokenizer)
    assert ask.missing_token(model, ask.parse_metric(f"aopc:replacement={way}"), infill=infill) == missing
