"""Verdicts follow from their rules; the paper's numbers stand beside ours."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixlens.metrics import Interval
from mixlens.runs.experiments.claims import (
    DIFFERENT,
    INCOMPARABLE,
    SAME,
    UNDECIDED,
    Claim,
    Published,
    above,
    beside,
    bounded,
    in_all,
    in_most,
    judged_claims,
    most,
    order,
    pairs_above,
    positive,
    short_names,
)
from mixlens.runs.experiments.layer_curves import trend, verdict_between_runs, verdict_on_trend
from mixlens.runs.experiments.running import all_tables
from mixlens.runs.experiments.tables import Table
from mixlens.types import Record

SETUP = SimpleNamespace(seed=0, data="", options={"variant": "paper"}, models=("one",))


def judged(rule: Any, records: list[Record]) -> Any:
    return Claim("", "", "", rule).check(SETUP, records, [])


def _values(mean: float, *, n: int = 40, seed: int = 0) -> dict[str, float]:
    return {str(i): mean + value for i, value in enumerate(np.random.default_rng(seed).normal(0, 0.1, n))}


def test_the_rule_of_order_gives_each_word() -> None:
    a, b, near = _values(1, seed=1), _values(0, seed=2), _values(1.001, seed=3)
    assert order({"a": a, "b": b}, [("a", "b")]).word == SAME
    assert order({"a": a, "b": b}, [("b", "a")]).word == DIFFERENT
    assert order({"a": a, "b": b}, [("b", "a")], lower=True).word == SAME
    undecided = order({"a": a, "near": near}, [("near", "a")])
    assert undecided.word == UNDECIDED
    assert "examples would tell" in undecided.reason
    assert order({"a": a}, [("a", "b")]).word == INCOMPARABLE


def test_one_pair_against_the_claim_decides() -> None:
    values = {"a": _values(1, seed=1), "b": _values(0, seed=2), "c": _values(2, seed=3)}
    verdict = order(values, [("a", "b"), ("a", "c")])
    assert verdict.word == DIFFERENT
    assert "a - c" in verdict.reason
    assert "a - b" not in verdict.reason


def test_a_lower_value_is_shown_with_its_own_sign() -> None:
    verdict = order({"a": _values(0, seed=1), "b": _values(1, seed=2)}, [("a", "b")], lower=True)
    assert verdict.word == SAME
    assert verdict.ours.startswith("a - b -1.0")


def test_values_come_from_the_records_of_the_metric() -> None:
    records = [Record(e, "x", "m", value, {"layer": 1}) for e, value in _values(1, seed=1).items()]
    records += [Record(e, "x", "m", -5.0, {"layer": 2}) for e in _values(1)]
    records += [Record(e, "y", "m", value, {"layer": 1}) for e, value in _values(0, seed=2).items()]
    assert judged(above("x", ["y"], "m", where=lambda r: r.info["layer"] == 1), records).word == SAME
    assert judged(above("x", ["y"], "m"), records).word == DIFFERENT


def test_bounds() -> None:
    assert positive({"gain": _values(0.5)}, bound=0.3).word == SAME
    assert positive({"gain": _values(0.5)}, bound=0.7).word == DIFFERENT
    assert "gain - 0.7" in positive({"gain": _values(0.5)}, bound=0.7).ours
    assert bounded({"x": Interval(0.5, 0.4, 0.6, 9, 0.1)}, low=0.3).word == SAME
    assert bounded({"x": Interval(0.5, 0.4, 0.6, 9, 0.1)}, high=0.3).word == DIFFERENT
    assert bounded({"x": Interval(0.5, 0.4, 0.6, 9, 0.1)}, low=0.5).word == UNDECIDED
    assert bounded({"x": Interval(0.5, 0.4, 0.6, 9, 0.1)}, high=0.7).word == SAME  # a bound that is not given holds
    assert bounded({"x": Interval(0.5, 0.4, 0.6, 9, 0.1)}).word == SAME


def test_the_paper_stands_beside_ours_and_rows_that_were_not_run_are_named() -> None:
    table = Table("t", "T", ("method", "rho"), (("alti", 0.5), ("norm", 0.4)))
    published = [Published("Table 2", "BERT", "rho", {"alti": "0.75 ± 0.1", "globenc": "0.6"})]
    [both] = beside(published, [table])
    assert both.columns == ("method", "rho, here", "BERT (Table 2)")
    assert both.rows == (("alti", 0.5, "0.75 ± 0.1"), ("norm", 0.4, ""), ("globenc", "not run", "0.6"))


def test_claims_are_a_table_with_its_rule() -> None:
    claim = Claim("Table 2", "a is above b", "0.7 against 0.5", lambda *_: order({}, [("a", "b")]))
    [table] = judged_claims([claim], SETUP, [], [])
    assert table.rows[0][:3] == ("a is above b", "Table 2", "0.7 against 0.5")
    assert "not comparable (not run: a, b)" in str(table.rows[0][4])
    assert "max-t" in table.note
    assert judged_claims([], SETUP, [], []) == []


@pytest.mark.parametrize(
    ("given", "judged"), [({}, 1), ({"variant": "paper"}, 1), ({"variant": "released"}, 0), ({"k": 3}, 0)]
)
def test_a_claim_is_judged_in_the_runs_it_is_about(given: dict[str, Any], judged: int) -> None:
    claim = Claim("Table 2", "a is above b", "", lambda *_: order({}, [("a", "b")]), given=given)
    assert len(judged_claims([claim], SETUP, [], [])) == judged


def test_ends_near_nothing_and_needs_beyond_reach_are_written_so() -> None:
    near = {"a": {str(i): 0.0004 + 0.00001 * (i % 3) for i in range(30)}}
    assert re.search(r"a \+0\.00041 \[\+0\.0004\d, \+0\.0004\d\]", positive(near).ours)
    flat = {"a": {str(i): float((-1) ** i) + 1e-6 for i in range(30)}}
    assert positive(flat).reason == "a: more than 100,000 examples would tell, here 30"


def test_a_claim_about_nothing_is_not_comparable() -> None:
    assert positive({}).word == "not comparable"


def test_a_claim_about_almost_every_layer_needs_three_quarters_of_them() -> None:
    high, low = _values(1, seed=1), _values(0, seed=2)
    layers = {f"layer {i}": {"a": high, "b": low} for i in range(1, 5)}
    assert in_most(layers, [("a", "b")]).word == SAME
    one_off = {**layers, "layer 4": {"a": low, "b": high}}
    verdict = in_most(one_off, [("a", "b")])
    assert verdict.word == SAME
    assert verdict.ours == "same: layer 1, layer 2, layer 3; different: layer 4"
    two_off = {**one_off, "layer 3": {"a": low, "b": high}}
    assert in_most(two_off, [("a", "b")]).word == DIFFERENT
    near = _values(1.0001, seed=1)
    level = {**layers, "layer 3": {"a": low, "b": low}, "layer 4": {"a": near, "b": _values(1, seed=4)}}
    assert in_most(level, [("a", "b")]).word == UNDECIDED
    assert in_most({"layer 1": {"a": high}}, [("a", "b")]).word == INCOMPARABLE
    assert most({}).word == INCOMPARABLE


def test_pairs_and_their_short_names() -> None:
    records = [Record(e, "x:steps=3", "m", value, {}) for e, value in _values(1, seed=1).items()]
    records += [Record(e, "y", "m", value, {}) for e, value in _values(0, seed=2).items()]
    verdict = judged(pairs_above([("x:steps=3", "y")], "m"), records)
    assert verdict.word == SAME
    assert verdict.ours.startswith("x - y ")
    assert judged(pairs_above([("y", "x:steps=3")], "m"), records).word == DIFFERENT
    assert short_names(["a:b=1", "c", "a:b=2"]) == {"a:b=1": "a:b=1", "c": "c", "a:b=2": "a:b=2"}


def test_mean_and_deviation_stand_beside_mean_and_deviation() -> None:
    table = Table("t", "T", ("method", "rho"), (("alti", Interval(0.512, 0.4, 0.6, 9, 0.128)),))
    published = [
        Published("Table 2", "BERT", "rho", {"alti": "0.75 ± 0.10", "globenc": "0.60 ± 0.10"}, std=True, absent="-")
    ]
    [both] = beside(published, [table])
    assert both.rows == (("alti", "0.51 ± 0.13", "0.75 ± 0.10"), ("globenc", "-", "0.60 ± 0.10"))


def test_few_examples_leave_no_interval() -> None:
    verdict = order({"a": {"1": 1.0, "2": 1.1}, "b": {"1": 0.0, "2": 0.3}}, [("a", "b")])
    assert verdict.word == UNDECIDED
    assert "no interval from 2 examples" in verdict.ours


def test_a_claim_about_every_layer_compares_all_rivals_of_all_layers() -> None:
    high, low = _values(1, seed=1), _values(0, seed=2)
    layers = {f"layer {i}": {"a": high, "b": low, "c": low} for i in (1, 2)}
    pairs = [("a", "b"), ("a", "c")]
    assert in_all(layers, pairs).word == SAME
    verdict = in_all({**layers, "layer 2": {"a": high, "b": low, "c": _values(2, seed=3)}}, pairs)
    assert verdict.word == DIFFERENT
    assert verdict.reason == "the other way round: layer 2, a - c"
    undecided = in_all({**layers, "layer 2": {"a": high, "b": low, "c": _values(1.001, seed=3)}}, pairs)
    assert undecided.word == UNDECIDED
    assert undecided.reason.startswith("layer 2, a - c: about ")
    assert in_all(layers, [("a", "d")]).text == "not comparable (not run: layer 1, d, layer 2, d)"


def test_a_claim_stands_where_the_paper_makes_it_of_this_data() -> None:
    check = lambda *_: order({"a": _values(1, seed=1), "b": _values(0, seed=2)}, [("a", "b")])  # noqa: E731
    claim = Claim("4.2", "a is above b", "0.93", check, {"cola": "D.1.1", "mnli": None})
    rows = {
        data: judged_claims([claim], SimpleNamespace(seed=0, data=data, options={}, models=("one",)), [], [])
        for data in ("", "mrpc", "cola", "mnli")
    }
    assert rows["mnli"] == []
    assert {data: table[0].rows[0][1:3] for data, table in rows.items() if table} == {
        "": ("4.2", "0.93"),
        "mrpc": ("4.2", "0.93"),
        "cola": ("D.1.1", "of other data: 0.93"),
    }


@pytest.mark.parametrize(("variant", "tables"), [("paper", 1), ("released", 2)])
def test_numbers_of_the_paper_stand_beside_the_runs_they_are_about(variant: str, tables: int) -> None:
    ours = Table("rates", "", ("method", "rate"), (("a", 0.5),))
    published = Published("Table 1", "BERT", "rate", {"a": "0.4"}, given={"variant": "released"})
    declared = SimpleNamespace(finish=lambda setup, records: [ours], published=(published,), claims=())
    setup: Any = SimpleNamespace(seed=0, data="", options={"variant": variant}, models=("one",), experiment=declared)
    assert len(all_tables(setup, [])) == tables


def test_a_trend_is_the_rank_correlation_of_layer_and_value_in_each_text() -> None:
    """Text b has no value in layer 2 and is left out; a constant curve has no trend."""
    layers = [
        {"a": 0.1, "b": 1.0, "c": 2.0, "d": 0.3},
        {"a": 0.4, "c": 2.0, "d": 0.2},
        {"a": 0.2, "b": 3.0, "c": 2.0, "d": 0.1},
    ]
    assert trend(layers) == pytest.approx({"a": 0.5, "c": 0.0, "d": -1.0})
    assert trend([]) == {}


def test_a_claim_about_depth_is_judged_by_the_trend() -> None:
    rising = [_values(0.1 * layer, seed=layer) for layer in range(6)]
    assert verdict_on_trend({"x": rising}).word == SAME
    assert verdict_on_trend({"x": rising}, falls=True).word == DIFFERENT
    assert verdict_on_trend({"x": rising[::-1]}, falls=True).ours.startswith("rank correlation of layer and x -0.")
    assert (
        verdict_on_trend({"x": rising, "y": rising[::-1]}).reason
        == "the other way round: rank correlation of layer and y"
    )
    assert verdict_on_trend({"x": [_values(0, seed=layer) for layer in range(6)]}).word == UNDECIDED
    assert verdict_on_trend({"x": [{}]}).word == INCOMPARABLE


def test_two_runs_are_compared_by_their_means() -> None:
    """Of texts that differ in number; a value that is no number leaves its text out."""
    high, low = (
        {"x": _values(1, seed=1), "y": _values(2, seed=2)},
        {"x": _values(0, n=25, seed=3), "y": _values(1, n=25, seed=4)},
    )
    verdict = verdict_between_runs(high, low)
    means = [np.mean(list(high[name].values())) - np.mean(list(low[name].values())) for name in "xy"]
    assert verdict.word == SAME
    assert verdict.ours.startswith(f"x {means[0]:+.3f} [+0.")
    assert f"; y {means[1]:+.3f} [" in verdict.ours
    assert verdict_between_runs(low, high).word == DIFFERENT
    assert verdict_between_runs(high, {"x": high["x"], "y": low["y"]}).word == UNDECIDED
    assert verdict_between_runs({"x": {**high["x"], "0": np.nan}}, low).word == SAME
    assert verdict_between_runs({"x": {"0": 1.0}}, low).word == INCOMPARABLE
    assert verdict_between_runs({}, low).word == INCOMPARABLE
    assert verdict_between_runs(high, low).ours == verdict.ours  # the same resamples
