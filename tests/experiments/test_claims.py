"""Verdicts follow from their rules; the paper's numbers stand beside ours."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from outcomes import LETTERS, made_up

from mixlens import metrics
from mixlens.runs.experiments import Table, claims, layer_curves, running


def of(mean: float, *, n: int = 40, seed: int = 0) -> claims.Values:
    return claims.Values({str(i): mean + x for i, x in enumerate(np.random.default_rng(seed).normal(0, 0.1, n))})


HIGH, LOW, HIGHEST, NEAR = of(1, seed=1), of(0, seed=2), of(2, seed=3), of(1.001, seed=3)
VALUES = {"a": HIGH, "b": LOW, "c": HIGHEST, "near": NEAR}


def setup(**changed: Any) -> Any:
    return SimpleNamespace(**{"seed": 0, "data": "", "options": {"variant": "paper"}, "models": ("one",), **changed})


def judged(rule: Any, records: Any = ()) -> Any:
    return claims.Claim("", "", "", rule).check(setup(), records, [])


@pytest.mark.parametrize(
    ("pairs", "lower", "letter", "reason"),
    [
        ([("a", "b")], False, "S", ""),
        ([("b", "a")], False, "D", "the other way round: b - a"),
        ([("b", "a")], True, "S", ""),
        ([("near", "a")], False, "U", "examples would tell"),
        ([("a", "z")], False, "-", "not run: z"),
        ([("a", "b"), ("a", "c")], False, "D", "the other way round: a - c"),  # one pair against the claim decides
        ([], False, "-", "nothing of what the claim compares was run"),
    ],
)
def test_the_rule_of_order(pairs: Any, lower: bool, letter: str, reason: str) -> None:
    verdict = claims.order(VALUES, pairs, lower=lower)
    assert LETTERS[verdict.word] == letter
    assert reason in verdict.reason
    if lower:  # a lower value is shown with its own sign
        assert verdict.ours.startswith("b - a -1.0")


def test_values_are_of_the_records_of_a_metric_and_of_a_layer() -> None:
    records = made_up({("x", "m", 1): 1.0, ("x", "m", 2): -5.0, ("y", "m", 1): 0.0})
    run = claims.Measured(setup(), records, [])
    whole, first, second = run["x", "m"], run["x", "m", 1], run["x", "m", 2]
    assert whole == {e: pytest.approx((first[e] + second[e]) / 2) for e in first}
    assert run["x", "m", range(1, 3)] == whole
    assert (run["z", "m"], run.layers, run.first, run.middle, run.last) == ({}, [1, 2], 1, 1, 2)
    assert run.layers_of("y") == [1]
    assert (first - second)["0"] == first["0"] - second["0"]
    assert 2 * first == first * 2 == {example: 2 * value for example, value in first.items()}
    assert abs(second) == second * -1
    assert first - {"0": 1.0} == {"0": first["0"] - 1.0}  # of the examples that both have
    assert claims.mean_over([first, {"0": 3.0}]) == {"0": (first["0"] + 3.0) / 2}
    assert list(run.frame["layer"].unique()) == [1, 2]
    in_the_first = claims.above("x", ["y"], "m", where=lambda r: r.info["layer"] == 1)
    by_name = claims.pairs_above([("x", "y")], "m", layer=lambda run: run.first)
    letters = [LETTERS[judged(rule, records).word] for rule in (in_the_first, by_name, claims.above("x", ["y"], "m"))]
    assert letters == ["S", "S", "D"]


def test_methods_are_called_by_short_names() -> None:
    records = made_up({("x:steps=3", "m"): 1.0, ("y", "m"): 0.0})
    verdict = judged(claims.above("x:steps=3", ["y"], "m"), records)
    assert verdict.word == claims.SAME
    assert verdict.ours.startswith("x - y ")
    assert claims.short_names(["a:b=1", "c", "a:b=2"]) == {"a:b=1": "a:b=1", "c": "c", "a:b=2": "a:b=2"}


def test_bounds() -> None:
    assert claims.positive({"gain": of(0.5)}, bound=0.3).word == claims.SAME
    above = claims.positive({"gain": of(0.5)}, bound=0.7)
    assert above.word == claims.DIFFERENT
    assert "gain - 0.7" in above.ours
    assert claims.positive({}).word == claims.INCOMPARABLE
    cell = metrics.Interval(0.5, 0.4, 0.6, 9, 0.1)
    for bounds, letter in (
        ({"low": 0.3}, "S"),
        ({"high": 0.3}, "D"),
        ({"low": 0.5}, "U"),
        ({"high": 0.7}, "S"),
        ({}, "S"),
    ):
        assert LETTERS[claims.bounded({"x": cell}, **bounds).word] == letter


def test_ends_near_nothing_and_needs_beyond_reach_are_written_so() -> None:
    near = {"a": {str(i): 0.0004 + 0.00001 * (i % 3) for i in range(30)}}
    assert re.search(r"a \+0\.00041 \[\+0\.0004\d, \+0\.0004\d\]", claims.positive(near).ours)
    flat = {"a": {str(i): float((-1) ** i) + 1e-6 for i in range(30)}}
    assert claims.positive(flat).reason == "a: more than 100,000 examples would tell, here 30"
    few = claims.order({"a": {"1": 1.0, "2": 1.1}, "b": {"1": 0.0, "2": 0.3}}, [("a", "b")])
    assert few.word == claims.UNDECIDED
    assert "no interval from 2 examples" in few.ours


LAYERS = {f"layer {i}": {"a": HIGH, "b": LOW} for i in range(1, 5)}


@pytest.mark.parametrize(
    ("changed", "letter"),
    [
        ({}, "S"),
        ({"layer 4": {"a": LOW, "b": HIGH}}, "S"),  # almost every layer is three quarters of them
        ({"layer 3": {"a": LOW, "b": HIGH}, "layer 4": {"a": LOW, "b": HIGH}}, "D"),
        ({"layer 3": {"a": LOW, "b": LOW}, "layer 4": {"a": NEAR, "b": HIGH}}, "U"),
        ({"layer 4": {"a": HIGH}}, "-"),
    ],
)
def test_a_claim_about_almost_every_layer(changed: Any, letter: str) -> None:
    verdict = claims.in_most({**LAYERS, **changed}, [("a", "b")])
    assert LETTERS[verdict.word] == letter
    if list(changed) == ["layer 4"] and letter == "S":
        assert verdict.ours == "same: layer 1, layer 2, layer 3; different: layer 4"
    assert claims.most({}).word == claims.INCOMPARABLE


@pytest.mark.parametrize(
    ("third", "letter", "reason"),
    [
        (LOW, "S", ""),
        (HIGHEST, "D", "the other way round: layer 2, a - c"),
        (NEAR, "U", "layer 2, a - c: about "),
        (None, "-", "not run: layer 2, c"),
    ],
)
def test_a_claim_about_every_layer_compares_all_rivals_of_all_layers(third: Any, letter: str, reason: str) -> None:
    layers = {f"layer {i}": {"a": HIGH, "b": LOW, "c": LOW if i == 1 else third} for i in (1, 2)}
    verdict = claims.in_all(layers, [("a", "b"), ("a", "c")])
    assert LETTERS[verdict.word] == letter
    assert verdict.reason.startswith(reason)


# --- beside the paper -------------------------------------------------------------------------------------------------


def test_the_paper_stands_beside_ours_and_rows_that_were_not_run_are_named() -> None:
    cell = metrics.Interval(0.512, 0.4, 0.6, 9, 0.128)
    table = Table("t", "T", ("method", "rho"), (("alti", cell), ("norm", 0.4)))
    numbers = {"alti": "0.75 ± 0.1", "globenc": "0.6"}
    for how, first, absent in (({}, cell, "not run"), ({"std": True, "absent": "-"}, "0.51 ± 0.13", "-")):
        [both] = claims.beside([claims.Published("Table 2", "BERT", "rho", numbers, **how)], [table])
        assert both.columns == ("method", "rho, here", "BERT (Table 2)")
        assert both.rows == (("alti", first, "0.75 ± 0.1"), ("norm", 0.4, ""), ("globenc", absent, "0.6"))


def test_claims_are_a_table_with_its_rule() -> None:
    claim = claims.Claim("Table 2", "a is above b", "0.7 against 0.5", lambda run: run.order({}, [("a", "b")]))
    [table] = claims.judged_claims([claim], setup(), [], [])
    told = "not comparable (not run: a, b)"
    assert table.rows == (("a is above b", "Table 2", "0.7 against 0.5", "-", told),)
    assert "max-t" in table.note
    assert claims.judged_claims([], setup(), [], []) == []


@pytest.mark.parametrize(
    ("given", "judged"), [({}, 1), ({"variant": "paper"}, 1), ({"variant": "released"}, 0), ({"k": 3}, 0)]
)
def test_claims_and_numbers_are_of_the_runs_they_are_about(given: dict[str, Any], judged: int) -> None:
    claim = claims.Claim("Table 2", "a is above b", "", lambda run: run.order({}, [("a", "b")]), given=given)
    published = claims.Published("Table 1", "BERT", "rate", {"a": "0.4"}, given=given)
    ours = Table("rates", "", ("method", "rate"), (("a", 0.5),))
    declared = SimpleNamespace(finish=lambda *_: [ours], published=(published,), claims=(claim,))
    assert len(running.all_tables(setup(experiment=declared), [])) == 1 + 2 * judged


def test_a_claim_stands_where_the_paper_makes_it_of_this_data() -> None:
    places = {"cola": "D.1.1", "mnli": None}
    claim = claims.Claim("4.2", "a is above b", "0.93", lambda run: run.order(VALUES, [("a", "b")]), places)
    rows = {data: claims.judged_claims([claim], setup(data=data), [], []) for data in ("", "mrpc", "cola", "mnli")}
    assert rows.pop("mnli") == []
    assert {data: table[0].rows[0][1:3] for data, table in rows.items()} == {
        "": ("4.2", "0.93"),
        "mrpc": ("4.2", "0.93"),
        "cola": ("D.1.1", "of other data: 0.93"),
    }


# --- depth, and two runs ----------------------------------------------------------------------------------------------


def test_a_trend_is_the_rank_correlation_of_layer_and_value_in_each_text() -> None:
    """Text b has no value in layer 2 and is left out; a constant curve has no trend."""
    layers = [
        {"a": 0.1, "b": 1.0, "c": 2.0, "d": 0.3},
        {"a": 0.4, "c": 2.0, "d": 0.2},
        {"a": 0.2, "b": 3.0, "c": 2.0, "d": 0.1},
    ]
    assert layer_curves.trend(layers) == pytest.approx({"a": 0.5, "c": 0.0, "d": -1.0})
    assert layer_curves.trend([]) == {}


RISING = [of(0.1 * layer, seed=layer) for layer in range(6)]


@pytest.mark.parametrize(
    ("curves", "falls", "letter"),
    [
        ({"x": RISING}, False, "S"),
        ({"x": RISING}, True, "D"),
        ({"x": RISING[::-1]}, True, "S"),
        ({"x": RISING, "y": RISING[::-1]}, False, "D"),
        ({"x": [of(0, seed=layer) for layer in range(6)]}, False, "U"),
        ({"x": [{}]}, False, "-"),
    ],
)
def test_a_claim_about_depth_is_judged_by_the_trend(curves: Any, falls: bool, letter: str) -> None:
    verdict = layer_curves.verdict_on_trend(curves, falls=falls)
    assert LETTERS[verdict.word] == letter
    assert letter == "-" or verdict.ours.startswith("rank correlation of layer and x ")


def test_two_runs_are_compared_by_their_means() -> None:
    """Of texts that differ in number; a value that is no number leaves its text out."""
    between = layer_curves.verdict_between_runs
    high = {"x": HIGH, "y": of(2, seed=2)}
    low = {"x": of(0, n=25, seed=3), "y": of(1, n=25, seed=4)}
    x, y = (np.mean(list(high[name].values())) - np.mean(list(low[name].values())) for name in "xy")
    verdict = between(high, low)
    assert verdict.ours.startswith(f"x {x:+.3f} [+0.")
    assert f"; y {y:+.3f} [" in verdict.ours
    assert between(high, low) == verdict  # the same resamples
    for first, second, letter in (
        (high, low, "S"),
        (low, high, "D"),
        (high, {"x": high["x"], "y": low["y"]}, "U"),
        ({"x": {**high["x"], "0": np.nan}}, low, "S"),
        ({"x": {"0": 1.0}}, low, "-"),
        ({}, low, "-"),
    ):
        assert LETTERS[between(first, second).word] == letter
