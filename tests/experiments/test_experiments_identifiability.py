"""Experiments of On Identifiability in Transformers: numbers against ones computed apart, tables by hand, refusals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mixlens
import mixlens.experiments.core
from mixlens.errors import InputError
from mixlens.experiments import Setup, known, run
from mixlens.experiments import identifiability as paper
from mixlens.experiments import identifiability_mixing as mixing
from mixlens.metrics import Interval
from mixlens.types import Example, Map, Record

pytest.importorskip("scipy")
TAGGED = Example("the keys rust", id="t", info={"pos": ((0, 3, "DET"), (4, 8, "NOUN"), (9, 13, "VERB"))})
QUICK: dict[str, Any] = {"folds": 1, "epochs": 2}
CHEAP = ("alti",)


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("agreement")


def setup_of(name: str, **options: Any) -> Setup:
    used = known()[name]
    return Setup(used, (), (), used.methods, {**used.options, **options})


def made_map(scores: Any, **info: Any) -> Map:
    values = torch.as_tensor(scores, dtype=torch.float64)
    special = (True, *(False for _ in range(values.shape[-1] - 2)), True)
    return Map(values, tuple("abcdefg"[: values.shape[-1]]), "made", info, special)


# --- effective attention ------------------------------------------------------------------------------------------------


def test_short_texts_lose_nothing_and_the_types_add_up(model: Any) -> None:
    made = run("id-effective-attention", model=model, data="agreement", n=2, progress=False)
    found = {r.metric: r.value for r in made.records if r.example == made.records[0].example and "n" in r.info}
    assert found["null dimension"] == 0  # fewer tokens than a head is wide
    assert found["pearson pooled"] == pytest.approx(1.0)
    length, types = made.tables
    assert {row[:2] for row in length.rows} == {("effective_attention", m) for m in found}
    raw = [[r.value for r in made.records if r.info.get("layer") == i and r.method == "attention"] for i in (1, 4)]
    assert [sum(values) for values in raw] == pytest.approx([2.0, 2.0])  # two texts
    assert {row[1] for row in types.rows} >= {"word", "[CLS]", "[SEP]"}


def test_a_long_text_has_attention_that_its_output_cannot_tell(model: Any) -> None:
    text = " ".join(["the keys to the cabinet are old and the dogs are old"] * 4)
    made = run("id-effective-attention", model=model, data=[Example(text)], progress=False)
    found = {r.metric: r.value for r in made.records if "n" in r.info}
    n = len(model.trace(text))
    assert found["null dimension"] == n - model.hf_model.config.hidden_size // 4  # heads of 24
    assert found["pearson pooled"] < 0.999


def test_lengths_fall_into_their_classes() -> None:
    records = [Record(str(n), "effective_attention", "pearson pooled", n / 100, {"n": n}) for n in (3, 15, 16, 40)]
    records.append(Record("3", "attention", "received", 1.0, {"type": "word", "layer": 1}))
    length, types = paper.finish_effective(setup_of("id-effective-attention"), records)
    assert [(row[2], row[3].mean) for row in length.rows] == [("0-15", pytest.approx(0.09)), ("16-31", 0.16), ("32-63", 0.4)]
    assert types.rows[0][:2] == ("attention", "word")


# --- token identifiability ----------------------------------------------------------------------------------------------


def test_naive_identification_is_the_nearest_input_of_the_text(model: Any) -> None:
    texts = mixlens.experiments.core.examples_of("agreement", n=3, seed=0)
    asked: dict[str, Any] = {"kinds": ("naive",), "distances": ("cosine",), "layers": (0, 3), "offsets": (1,)}
    made = run("id-token-identifiability", model=model, data=texts, progress=False, **asked)
    hits, total = 0, 0
    for text in texts:
        trace = model.trace(text)
        inputs = paper.input_vectors(trace, embedding="sum").double()
        for i, state in enumerate(trace.hidden_states[3].double()):
            near = torch.nn.functional.cosine_similarity(state[None], inputs)
            hits, total = hits + int(near[i] == near.max()), total + 1
    found = {(r.metric, r.info["layer"]): r.value for r in made.records}
    assert found["identified", 3] == pytest.approx(hits / total)
    assert set(found) == {(m, layer) for m in ("identified", "neighbour") for layer in (0, 3)}
    assert [table.name for table in made.tables] == ["identified", "neighbour"]


def test_tables_of_identified_tokens() -> None:
    told = {"distance": "l2", "low": 0.1, "high": 0.3, "std": 0.2, "texts": 5, "folds": [0.2]}
    one = Record("all", "linear", "identified", 0.2, {**told, "layer": 2})
    other = Record("all", "linear", "identified", 0.5, {**told, "layer": 0, "low": None, "high": None})
    across = Record("all", "linear", "across", 0.4, {**told, "layer": 2, "trained": 0})
    first, second = paper.finish_tokens(setup_of("id-token-identifiability"), [one, other, across])
    assert first.columns == ("method", "distance", "layer 0", "layer 2")
    assert first.rows[0][3] == Interval(0.2, 0.1, 0.3, 5, 0.2)
    assert math.isnan(first.rows[0][2].low)
    assert second.rows == (("linear", "l2", 0, Interval(0.4, 0.1, 0.3, 5, 0.2)),)


def test_training_stopped_and_continued_is_the_same(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    asked: dict[str, Any] = {"kinds": ("naive", "linear"), "distances": ("l2",), "layers": (0, 4), "across": True, **QUICK}
    given: dict[str, Any] = {"model": model, "data": "agreement", "n": 8, "progress": False, **asked}
    whole = run("id-token-identifiability", out=tmp_path / "whole", **given)
    real, seen = paper.token_identifiability, []

    def stopping(*args: Any, **options: Any) -> Any:
        seen.append(options["kind"])
        if len(seen) == 4:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(paper, "token_identifiability", stopping)
    with pytest.raises(KeyboardInterrupt):
        run("id-token-identifiability", out=tmp_path / "stopped", **given)
    seen.extend(["-"] * 4)
    again = run("id-token-identifiability", out=tmp_path / "stopped", **given)
    assert seen.count("naive") == 2  # not measured again
    assert [table.csv for table in again.tables] == [table.csv for table in whole.tables]
    assert len(again.tables) == 2


# --- mixing -------------------------------------------------------------------------------------------------------------


def test_own_token(model: Any) -> None:
    made = run("id-mixing", model=model, data="agreement", n=2, methods=("hta:probes=2", *CHEAP), progress=False)
    (example,) = made.setup.examples[:1]
    scores = mixlens.mix(model.trace(example), "alti").rollout().scores.double()
    rows = scores / scores.sum(-1, keepdim=True)
    found = [r for r in made.records if r.example == example.id and r.method == "alti" and r.info["layer"] == 4]
    own = [r.value for r in found if r.metric == "own share"]
    assert own == pytest.approx(rows[3].diagonal().tolist())
    other = [r.value for r in found if r.metric == "not own top"]
    assert other == [float(rows[3, i].max() > rows[3, i, i]) for i in range(len(own))]
    (table,) = made.tables
    assert [row[:2] for row in table.rows] == [(m, k) for m in ("hta:probes=2", "alti") for k in mixing.MIXING]


def test_neighbours_by_hand() -> None:
    scores = made_map([[[2.0, 1.0, 1.0], [3.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    found = mixing.neighbours(scores, reach=2)
    assert set(found) == {-2, -1, 1, 2}
    np.testing.assert_allclose(found[1], [[0.25, 0.25]])
    np.testing.assert_allclose(found[-1], [[0.75, np.nan]])  # a row of zeros has no shares
    np.testing.assert_allclose(found[2], [[0.25]])


def test_a_text_without_such_a_place_has_no_record() -> None:
    made = mixing._layers(Example("x", id="e"), "m", "distance", "11+", np.array([[np.nan, 1.0, 3.0], [np.nan] * 3]))
    assert made == [Record("e", "m", "distance", 2.0, {"layer": 1, "group": "11+"})]
    assert mixing._layers(Example("x", id="e"), "m", "neighbour", "+3", np.zeros((1, 0))) == []
    assert [mixing.group_name(*g) for g in ((1, 1), (4, 5), (11, None))] == ["1", "4-5", "11+"]


def test_context_shares_add_up(model: Any) -> None:
    made = run("id-context", model=model, data="agreement", n=1, methods=CHEAP, progress=False)
    for layer in range(1, 5):
        shares = [r.value for r in made.records if r.metric == "distance" and r.info["layer"] == layer]
        # every group is a mean over the positions that have it, so each position's groups add up to 1 but not their means
        assert 0.9 < sum(shares) < 2
    assert [table.name for table in made.tables] == ["distance", "neighbour", "around"]
    trace = model.trace(made.setup.examples[0])
    row = mixlens.mix(trace, "alti").rollout().scores[-1, 0].double()
    place = len(trace) - 1  # [SEP]
    around = {r.info["group"]: r.value for r in made.records if r.metric == "around" and r.info["layer"] == 4}
    assert around["+0"] == pytest.approx(float(row[place] / row.sum()))
    assert around["-2"] == pytest.approx(float(row[place - 2] / row.sum()))
    assert "+1" not in around  # the text has ended


def test_tags_follow_the_pieces(model: Any) -> None:
    trace = model.trace(TAGGED)
    tags = mixing.tags_of(TAGGED, trace)
    assert tags[0] == tags[-1] == "special"
    assert tags[1:3] == ("DET", "NOUN")
    assert set(tags[3:-1]) == {"VERB"}
    part = Example("the keys rust", info={"pos": ((4, 8, "NOUN"),)})
    assert mixing.tags_of(part, trace)[1:3] == (None, "NOUN")


def test_parts_of_speech(model: Any) -> None:
    made = run("id-pos", model=model, data=[TAGGED], methods=CHEAP, progress=False)
    shares, _, counts = made.tables
    scores = mixlens.mix(model.trace(TAGGED), "alti").rollout().scores.double()
    rows = scores / scores.sum(-1, keepdim=True)
    found = {row[1]: row[-1].mean for row in shares.rows}
    assert found["NOUN"] == pytest.approx(float(rows[-1, 2, 2]))
    assert found["special"] == pytest.approx(float((rows[-1, 0, 0] + rows[-1, -1, -1]) / 2))
    assert dict(counts.rows) == {"DET": 1, "NOUN": 1, "VERB": len(scores[0]) - 4, "special": 2}


# --- all of them --------------------------------------------------------------------------------------------------------

ALL: dict[str, dict[str, Any]] = {
    "id-effective-attention": {"data": "agreement", "n": 2},
    "id-token-identifiability": {"data": "agreement", "n": 7, "layers": (0, 4), "offsets": (1,), "across": True, **QUICK},
    "id-mixing": {"data": "agreement", "n": 2, "methods": CHEAP},
    "id-context": {"data": "agreement", "n": 2, "methods": CHEAP},
    "id-pos": {"data": [TAGGED], "methods": CHEAP},
}


@pytest.mark.parametrize("name", ALL)
def test_the_same_records_give_the_same_tables_and_a_figure(name: str, model: Any) -> None:
    made = run(name, model=model, progress=False, **ALL[name])
    again = made.setup.experiment.finish(made.setup, list(made.records))
    assert [table.csv for table in again] == [table.csv for table in made.tables]
    pytest.importorskip("matplotlib")
    assert mixlens.experiments.core.drawn(made)["svg"].startswith(b"<?xml")


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("id-effective-attention", {"methods": ("alti",)}, "effective_attention"),
        ("id-effective-attention", {"edges": (5, 5)}, "rising"),
        ("id-token-identifiability", {"kinds": ("bilinear",)}, "linear"),
        ("id-token-identifiability", {"kinds": "linear"}, "is a list"),
        ("id-token-identifiability", {"layers": (9,)}, "0 .input. to 4"),
        ("id-token-identifiability", {}, "at least 7"),
        ("id-mixing", {"methods": ("grad_l2",)}, "takes maps alone"),
        ("id-context", {"reach": 0}, "1 or more"),
        ("id-pos", {}, "have no 'pos'"),
    ],
)
def test_refusals(name: str, given: dict[str, Any], told: str, model: Any) -> None:
    with pytest.raises(InputError, match=told):
        run(name, model=model, data="agreement", n=1, progress=False, **given)
