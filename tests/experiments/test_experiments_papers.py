"""Each paper's experiments on tiny cases: the numbers are those of the metrics, written out; extremes are what they must be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import mixlens
from mixlens import data
from mixlens.experiments import Table, core, known, run
from mixlens.experiments.prepare import fitting
from mixlens.experiments.running import all_tables
from mixlens.experiments.value_zeroing import DISTANCES
from mixlens.metrics import Interval
from mixlens.metrics.agreement import spearman
from mixlens.metrics.alignment import cue_average_precision, cue_dot, probes_needed
from mixlens.metrics.arguments import marks_at
from mixlens.types import Example


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


@pytest.fixture(scope="module")
def gap_model() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def texts() -> list[Example]:
    return list(data.load("sentiment", n=3))


@pytest.fixture(scope="module")
def gaps() -> list[Example]:
    return list(data.load("agreement", n=3))


def values(outcome: Any, method: str, metric: str, **info: Any) -> list[float]:
    return [
        r.value
        for r in outcome.records
        if (r.method, r.metric) == (method, metric) and all(r.info[key] == value for key, value in info.items())
    ]


def cell(table: Table, method: str, column: str) -> Any:
    return table.rows[table.column("method").index(method)][table.columns.index(column)]


# --- Value Zeroing ----------------------------------------------------------------------------------------------------


def test_cue_alignment_is_that_of_every_layer_and_of_all(gap_model: Any, gaps: list[Example]) -> None:
    made = run("vz-cue-alignment", model=gap_model, data=gaps, methods=["value_zeroing", "grad_x_input"], progress=False)
    for number, example in enumerate(gaps):
        trace = gap_model.trace(example)
        cues = marks_at(data.cue_tokens(example, trace), len(trace))
        scores = mixlens.mix(trace, "value_zeroing")
        rows = [scores.rollout().readout("[MASK]"), *(scores.readout("[MASK]", layer=i) for i in range(gap_model.n_layers))]
        for layer, row in enumerate(rows):
            for name, measure in (
                ("cue_dot", cue_dot),
                ("cue_average_precision", cue_average_precision),
                ("probes_needed", probes_needed),
            ):
                # One row is multiplied through the layers here, all rows there: other sums, in float32.
                assert values(made, "value_zeroing", name, layer=layer)[number] == pytest.approx(measure(row, cues), rel=1e-6)
        gradient = mixlens.attribute(trace, "grad_x_input", target=example.target, foil=example.foil, layer=2)
        assert values(made, "grad_x_input", "cue_dot", layer=3)[number] == cue_dot(gradient, cues)
    assert len(made.tables[1].rows) == 2 * gap_model.n_layers


def test_faithfulness_of_blank_out_itself_is_one(gap_model: Any, gaps: list[Example]) -> None:
    made = run("vz-faithfulness", model=gap_model, data=gaps, methods=["blank_out:replacement=unk", "alti"], progress=False)
    assert values(made, "blank_out:replacement=unk", "spearman") == pytest.approx([1.0] * 3)
    assert cell(made.tables[0], "blank_out:replacement=unk", "spearman").mean == pytest.approx(1)
    trace = gap_model.trace(gaps[0])
    blanked = mixlens.attribute(trace, "blank_out", target=gaps[0].target, foil=gaps[0].foil, replacement="unk")
    rolled = mixlens.mix(trace, "alti").rollout().readout("[MASK]")
    assert values(made, "alti", "spearman", layer=0)[0] == pytest.approx(spearman(rolled.scores, blanked.scores), abs=1e-6)


def test_distances_are_compared_with_the_first(gap_model: Any, gaps: list[Example]) -> None:
    made = run("vz-distances", model=gap_model, data=gaps[:2], methods=DISTANCES[:3], progress=False)
    assert values(made, DISTANCES[0], "like_the_first") == pytest.approx([1.0] * 2 * (gap_model.n_layers + 1))
    trace = gap_model.trace(gaps[0])
    maps = [mixlens.mix(trace, "value_zeroing", distance=name).readout("[MASK]", layer=1) for name in ("euclidean", "cosine")]
    assert values(made, DISTANCES[2], "like_the_first", layer=2)[0] == pytest.approx(
        spearman(*(one.scores for one in maps)), abs=1e-6
    )


def test_probing_goes_on_from_the_keys_that_are_done(gap_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same records whether all is measured at once or the second half later; the gap knows more above than below."""
    some = tuple(fitting(list(data.load("agreement", n=60)), known()["vz-probing"], [gap_model], None))
    used = known()["vz-probing"]
    setup = core.Setup(used, (gap_model,), some, ("alti",), {"epochs": 12})
    whole = dict(used.measure(setup, list(some)))
    keys = list(whole)
    assert keys[0] == "gap-0"
    assert keys[-1] == "alignment"
    assert len(keys) == 3 * (gap_model.n_layers + 1) + 1
    rest = dict(used.measure(replace(setup, done=frozenset(keys[:9])), list(some)))
    assert list(rest) == keys[9:]
    assert all(rest[key] == whole[key] for key in rest)
    assert list(used.measure(replace(setup, done=frozenset(keys)), list(some))) == []
    tables = used.finish(setup, [record for records in whole.values() for record in records])
    gap = {layer: c.mean for place, layer, c in tables[0].rows if place == "gap"}
    assert gap[0] == pytest.approx(1.0, abs=0.15)  # the embedding of [MASK] is the same in every text, but for its place
    assert gap[gap_model.n_layers] > gap[0]
    assert tables[1].rows[0][0] == "alti"


# --- every experiment -------------------------------------------------------------------------------------------------

OURS = [
    *("vz-cue-alignment", "vz-faithfulness", "vz-distances"),
    *("attcat-faithfulness", "attcat-confidence"),
]


@pytest.mark.parametrize("name", OURS)
def test_tables_and_figures_come_from_records_alone(
    name: str, model: Any, gap_model: Any, texts: list[Example], gaps: list[Example]
) -> None:
    """`finish` twice gives the same and leaves the records as they were; so does the figure."""
    used = known()[name]
    at_gap = used.model == "agreement"
    methods = [
        method for method in used.methods if core.asked(method).name not in ("integrated_gradients", "deeplift", "transatt")
    ]
    asked: dict[str, Any] = {"model": gap_model if at_gap else model, "data": (gaps if at_gap else texts)[:2]}
    made = run(name, methods=methods[:3], progress=False, **asked)
    before = [(r.example, r.method, r.metric, r.value, dict(r.info)) for r in made.records]
    again = all_tables(made.setup, made.records)
    assert [(t.csv, t.markdown) for t in again] == [(t.csv, t.markdown) for t in made.tables]
    assert [(r.example, r.method, r.metric, r.value, dict(r.info)) for r in made.records] == before
    assert core.drawn(made)["svg"] == core.drawn(made)["svg"]
    assert any(isinstance(one, Interval) for row in made.tables[0].rows for one in row)
