"""Experiments of On Identifiability in Transformers: numbers against ones computed apart, tables by hand, refusals,
claims."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mixlens
import mixlens.runs.experiments.prepare
import mixlens.runs.experiments.running
from mixlens import metrics
from mixlens.base import errors as refusals
from mixlens.metrics import raw_and_effective, token_identity, token_training
from mixlens.papers.identifiability import context, mixing, pos, tokens, values
from mixlens.papers.identifiability import main as paper
from mixlens.runs import experiments
from mixlens.runs.experiments import claims
from mixlens.runs.experiments import plan as plans

pytest.importorskip("scipy")
SPANS = ((0, 3, "DET"), (4, 8, "NOUN"), (9, 13, "VERB"))
TAGGED = mixlens.Example(
    "the keys rust", id="t", info={"pos": SPANS, "penn": ((0, 3, "DT"), (4, 8, "NNS"), (9, 13, "VBP"))}
)
QUICK: dict[str, Any] = {"folds": 1, "epochs": 2}
CHEAP = ("alti",)
ESTIMATED = "hta:probes=2"
LONG = " ".join(["the keys to the cabinet are old , and the dogs are old ."] * 4)


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("agreement")


def setup_of(name: str, **options: Any) -> experiments.Setup:
    used = experiments.known()[name]
    return experiments.Setup(used, (), (), used.methods, {**used.options, **options})


def made_map(scores: Any, **info: Any) -> mixlens.Map:
    values = torch.as_tensor(scores, dtype=torch.float64)
    special = (True, *(False for _ in range(values.shape[-1] - 2)), True)
    return mixlens.Map(values, tuple("abcdefg"[: values.shape[-1]]), "made", info, special)


def word_of(claim: claims.Claim, records: Sequence[mixlens.Record], name: str) -> str:
    return claim.check(setup_of(name), list(records), []).word


def claim_of(name: str, start: str) -> claims.Claim:
    (found,) = [claim for claim in experiments.known()[name].claims if claim.says.startswith(start)]
    return found


def noise(text: int) -> float:
    return 0.001 * math.sin(7 * text + 1)


# --- claims, each on records that say it and on records that say the opposite -----------------------------------------


def record(text: Any, metric: str, value: float, method: str = "hta", **info: Any) -> mixlens.Record:
    return mixlens.Record(str(text), method, metric, value, info)


def effective(text: int, metric: str, value: float, n: int) -> mixlens.Record:
    return record(text, metric, value, "effective_attention", n=n, width=64)


def lengths(sign: int) -> list[mixlens.Record]:
    """Short texts with a correlation of 1, longer ones with one that falls with length; or the opposite."""
    short = [effective(n, "pearson pooled", 1.0 if sign > 0 else 0.9, n) for n in (10, 20, 30)]
    longer = range(70, 128, 5)
    return short + [effective(n, "pearson pooled", 1 - sign * 0.005 * (n - 64) + noise(n), n) for n in longer]


def cuts(sign: int) -> list[mixlens.Record]:
    """Texts that are cut twice: each is compared with itself."""
    both = [(text, n) for text in range(6) for n in (80, 128)]
    return [effective(text, "pearson pooled", -sign * n / 1000 + noise(text * n), n) for text, n in both]


def null_spaces(sign: int) -> list[mixlens.Record]:
    both = [(text, n) for text in range(6) for n in (32, 80, 128)]
    return [effective(t, "null dimension", max(0, sign * (n - 64) + 64 * (sign < 0)) + t, n) for t, n in both]


def attention_by_type(sign: int, left: float = 0.3) -> list[mixlens.Record]:
    """Twelve layers as the paper sees them: raw peaks early, in the middle and deep, a part of them left in effective
    attention; or neither."""
    peaks = {"[CLS]": range(1, 5), "[SEP]": range(5, 9), "period or comma": range(9, 13)}
    records = [effective(text, "pearson pooled", 0.9, 100) for text in range(8)]
    for text, layer, name in product(range(8), range(1, 13), peaks):
        raw = 0.3 + 0.2 * sign * (layer in peaks[name]) + noise(text + layer)
        kept = (left * raw if sign > 0 else 1.5 * raw + 0.2) + (0.1 * sign if name == "period or comma" else 0)
        for method, value in (("attention", raw), ("effective_attention", kept)):
            place = {"type": name, "layer": layer}
            records.append(record(text, "received", value, method, **place))
            for source in ("[SEP]", "others") if name == "[SEP]" else ():
                records.append(record(text, "given", value, method, source=source, **place))
    return records


def rate(kind: str, metric: str, distance: str, value: float, **info: Any) -> mixlens.Record:
    """A rate with eight texts around a value."""
    by_text = [[text, round(1000 * (value + noise(text + len(kind)))), 1000] for text in range(8)]
    return record("all", metric, value, kind, distance=distance, by_text=by_text, low=None, high=None, **info)


def identified(sign: int) -> list[mixlens.Record]:
    """Twelve layers: naive falls behind layer 4, linear stays high, cosine above L2; or everything the other way
    round."""
    records = []
    for layer in range(1, 13):
        near = 0.9 - 0.05 * max(0, layer - 4) if sign > 0 else 0.85 - 0.05 * min(layer, 4)
        own = 0.99 - 0.005 * layer if sign > 0 else 0.2 + 0.005 * layer
        for kind, value in {"naive": near, "linear": own, "mlp": own + 0.2 * (sign < 0)}.items():
            for distance, less in (("cosine", 0.0), ("l2", 0.1 * sign)):
                records.append(rate(kind, "identified", distance, value - less, layer=layer))
    return records


def across(sign: int) -> list[mixlens.Record]:
    """The g of layer t in layer l: worse for later layers, not for earlier ones; or the opposite."""
    records = []
    for kind, d, layer, t in product(("linear", "mlp"), ("cosine", "l2"), range(1, 13), (1, 6, 11, 12)):
        value = 0.9 + 0.05 * (sign < 0) - sign * (0.03 * (layer - t) + 0.1 * (kind == "mlp"))
        value -= 0.1 * sign * (layer == 12 and t == 11)
        records.append(rate(kind, "across", d, value, layer=layer, trained=t))
    return records


def neighbour(sign: int) -> list[mixlens.Record]:
    """Own token above neighbours, near above far, early above late, previous above next; or the opposite."""
    records = []
    for layer, o in product(range(1, 5), range(-3, 4)):
        value = 0.5 - sign * (0.1 * abs(o) + 0.01 * layer) - 0.02 * (o > 0) * (sign > 0)
        records.append(rate("linear", "neighbour", "cosine", value, layer=layer, offset=o))
    return records


def step(sign: int) -> list[mixlens.Record]:
    """Cosine above L2, early above late layers; tuning lowers L2 in the last layer; or the opposite."""
    records = []
    for layer, model_ in product(range(1, 13), (0, 1)):
        tuned, place = 0.2 * sign * (model_ == 1 and layer == 12), {"layer": layer, "model": model_}
        records.append(rate("naive", "step", "cosine", 0.6 + 0.2 * sign - 0.01 * sign * layer, **place))
        records.append(rate("naive", "step", "l2", 0.7 - 0.01 * sign * layer - tuned, **place))
    return records


def sizes(sign: int) -> list[mixlens.Record]:
    values_ = {0.5: 0.74, 0.8: 0.80, 0.9: 0.81, 1.0: 0.82} if sign > 0 else {0.5: 0.74, 0.8: 0.75, 0.9: 0.76, 1.0: 0.85}
    records = [rate("mlp", "size", "l2", value, layer=11, share=share) for share, value in values_.items()]
    for kind, layer in product(("linear", "mlp"), (1, 2, 3)):
        records.append(record("all", "gap", 0.1 + 0.2 * (kind == "mlp") * (sign < 0), kind, layer=layer))
    return records


def shares(sign: int) -> list[mixlens.Record]:
    """Twelve layers of own shares that fall from 0.3, P that rises from 0 behind layer 3; or the opposite."""
    records = []
    for text, layer in product(range(8), range(1, 13)):
        own = 0.3 - 0.02 * layer if sign > 0 else 0.4 + 0.02 * layer
        lost = 0.03 * max(0, layer - 3) + noise(text) * (layer > 3) if sign > 0 else 0.6 - 0.03 * layer
        error = 0.02 * layer - 0.03 * sign - 0.05 * (sign > 0) + noise(text) + 0.5 * (sign < 0)
        records.append(record(text, "own share", own + noise(text * layer), layer=layer))
        records.append(record(text, "not own top", lost, layer=layer))
        records.append(record(text, "error", error, mixing.ERROR_OF, layer=layer))
    return records


def distances(sign: int) -> list[mixlens.Record]:
    """Near context early, far context late, nearest most, [CLS] beside [SEP], the second sentence; or the opposite."""
    records = []
    for text, layer in product(range(8), range(1, 13)):

        def add(metric: str, group: Any, value: float, text: int = text, layer: int = layer, **info: Any) -> None:
            records.append(record(text, metric, value, layer=layer, group=str(group), **info))

        for place, group in enumerate(context.NAMES):
            slope = sign * 0.001 * (layer - 6) * (1 if group == "11+" else -1)
            add("distance", group, 0.1 - 0.01 * sign * place + slope + noise(text * layer) / 9)
        for offset in range(-3, 4):
            value = 0.05 + sign * 0.02 * (abs(offset) == 1) + noise(text + offset)
            for name in ("around", "neighbour")[: 1 + (offset != 0)]:
                add(name, f"{offset:+d}", value, count=10)
        add("context", "all", 0.5 if sign > 0 else 0.9, count=10)
        for name in ("first", "second"):
            add("sentence", name, 0.02 + sign * 0.01 * (name == "second") + noise(text + layer + len(name)))
        for place in range(1, 10):
            add("from place", place, 0.05 + sign * 0.02 * (place in (4, 5, 6)) + noise(text + place))
    return records


def tagged(sign: int) -> list[mixlens.Record]:
    """Six layers: [CLS] and [SEP] alike in the first, lower in the second, [SEP] higher from the fourth on; or the
    opposite.

    Function words vary less from layer to layer, content words always as much as function words in the first; or the
    opposite."""
    words = {"NN": 0.3, "JJ": 0.3, "IN": 0.2, "DT": 0.2} if sign > 0 else {"NN": 0.4, "JJ": 0.4, "IN": 0.6, "DT": 0.6}
    levels = {"[CLS]": 0.45 if sign > 0 else 0.3, "[SEP]": 0.44 if sign > 0 else 0.5, **words}
    steps = {"[CLS]": {2: -0.1}, "[SEP]": {2: -0.1, 4: 0.1}}
    records = []
    for text, layer, tag in product(range(24), range(1, 7), levels):
        later = sign * sum(by for first, by in steps.get(tag, {}).items() if layer >= first)
        wide = (0.8 if sign > 0 else 1.25) ** layer if tag in ("IN", "DT") else 1
        spread = 0.01 * (tag in words) * wide * math.sin(5 * text)
        records.append(
            record(text, "own share", levels[tag] + later + noise(text + layer) + spread, layer=layer, tag=tag)
        )
    return records


OF_LENGTH = ("texts no longer", "raw and effective attention correlate")
OF_TYPES = ("raw attention to", "by effective", "most of raw")


@pytest.mark.parametrize(
    ("name", "records", "starts"),
    [
        ("id-effective-attention", lengths, OF_LENGTH),
        ("id-effective-attention", cuts, OF_LENGTH[1:]),
        ("id-effective-attention", null_spaces, ("longer texts than a head",)),
        ("id-effective-attention", attention_by_type, OF_TYPES),
        *(
            ("id-token-identifiability", identified, ""),
            ("id-across-layers", across, ""),
            ("id-neighbours", neighbour, ""),
        ),
        *(("id-hidden-to-hidden", step, ""), ("id-generalization", sizes, ""), ("id-mixing", shares, "")),
        *(("id-mixing-and-identity", shares, ""), ("id-context", distances, ""), ("id-pos", tagged, "")),
    ],
)
def test_claims(name: str, records: Any, starts: Any) -> None:
    """Said, the opposite said, and nothing measured."""
    judged = [claim for claim in experiments.known()[name].claims if claim.says.startswith(starts)]
    assert len(judged) >= len(starts)
    for claim in judged:
        assert word_of(claim, records(1), name) == "same", claim.says
        assert word_of(claim, records(-1), name) == "different", claim.says
        assert name == "id-mixing" or word_of(claim, [], name) == "not comparable", claim.says


@pytest.mark.parametrize(("name", "records"), [("id-mixing", shares), ("id-context", distances), ("id-pos", tagged)])
def test_claims_about_hta_are_about_hta(name: str, records: Any) -> None:
    for claim in experiments.known()[name].claims:
        other = experiments.Setup(experiments.known()[name], (), (), ("alti",), experiments.known()[name].options)
        assert claim.check(other, records(1), []).text == "not comparable (hta was not run)"


def test_context_that_a_text_does_not_have_is_not_judged() -> None:
    few = [r for r in distances(1) if r.metric == "distance" and r.info["group"] != "11+"]
    lacking = ("the most distant", "the context of [CLS]", "[CLS] takes", "the second", "context remains")
    for start in (*lacking, "the closest neighbours contribute most"):
        assert word_of(claim_of("id-context", start), few, "id-context") == "not comparable"


def test_the_null_space_of_one_cut_or_of_one_text_is_not_judged() -> None:
    name, start = "id-effective-attention", "longer texts than a head"
    told = claim_of(name, start).check(setup_of(name), null_spaces(1), []).ours
    assert "longest - shortest cut of a text +48.000" in told
    for few in ([r for r in null_spaces(1) if r.info["n"] < 128], [r for r in null_spaces(1) if r.example == "0"]):
        assert word_of(claim_of(name, start), few, name) == "not comparable"


def in_layers(metric: str, group: str, curve: Sequence[float]) -> list[mixlens.Record]:
    """What eight texts have in each layer."""
    places = product(range(8), enumerate(curve, 1))
    return [record(text, metric, value + noise(text) / 9, layer=i, group=group) for text, (i, value) in places]


def test_a_g_of_one_layer_on_all_layers(model: Any) -> None:
    """And the rates that the paper prints: a model of 4 layers has its last two where the paper's 11 and 12 are."""
    asked: dict[str, Any] = {"kinds": ("linear",), "distances": ("cosine",), **QUICK}
    outcome = experiments.run("id-across-layers", model=model, data="agreement", n=8, progress=False, **asked)
    cells = {(r.info["trained"], r.info["layer"]): r.value for r in outcome.records}
    assert set(cells) == set(product((1, 2, 3, 4), repeat=2))
    states, question = tokens.states_of(model, outcome.setup.examples, "sum"), tokens.training_of(outcome.setup)
    given = {"kind": "linear", "distance": "cosine", **question}
    assert cells[3, 3] == token_identity.token_identifiability(states.layer(3), states.inputs, **given).value
    named = {table.name: table.rows for table in outcome.tables}
    last, before = named["paper-last-last-layer"], named["paper-last-last-layer-but-one"]
    assert [(row[1], row[2].mean, row[3]) for row in last] == [
        ("first", cells[1, 4], "below 0.70"),
        ("last", cells[4, 4], "0.94"),
    ]
    assert [(row[2].mean, row[3]) for row in before] == [(cells[1, 3], "below 0.70"), (cells[4, 3], "")]


# --- effective attention ----------------------------------------------------------------------------------------------


def test_short_texts_lose_nothing_and_have_no_types(model: Any) -> None:
    outcome = experiments.run("id-effective-attention", model=model, data="agreement", n=2, progress=False)
    found = {r.metric: r.value for r in outcome.records if r.example == outcome.records[0].example and "n" in r.info}
    assert found["null dimension"] == 0  # fewer tokens than a head is wide
    assert found["pearson pooled"] == pytest.approx(1.0)
    length, types = outcome.tables[:2]
    assert {row[:2] for row in length.rows} == {("effective_attention", m) for m in found}
    assert types.rows == ()


def test_a_long_text_has_attention_that_its_output_cannot_tell(model: Any) -> None:
    outcome = experiments.run("id-effective-attention", model=model, data=[mixlens.Example(LONG)], progress=False)
    found = {r.metric: r.value for r in outcome.records if "n" in r.info}
    trace = model.trace(LONG)
    assert found["null dimension"] == len(trace) - model.hf_model.config.hidden_size // 4  # heads of 24
    assert found["pearson pooled"] < 0.999
    types, columns = raw_and_effective.token_types(trace), {}
    for name in set(types):
        columns[name] = [j for j, one in enumerate(types) if one == name]
    for r in outcome.records:
        if r.metric in ("received", "given"):
            source = r.info.get("source")
            queries = [i for i in range(len(trace)) if source is None or (types[i] == "[SEP]") == (source == "[SEP]")]
            weights = trace.layers[r.info["layer"] - 1].attention if r.method == "attention" else None
            if weights is not None:
                heads = [np.mean([float(head[i, columns[r.info["type"]]].sum()) for i in queries]) for head in weights]
                assert r.info["heads"] == pytest.approx(heads, abs=1e-5)
                assert r.value == pytest.approx(np.mean(heads), abs=1e-5)
    raw = [
        r.value for r in outcome.records if r.metric == "received" and r.method == "attention" and r.info["layer"] == 2
    ]
    assert sum(raw) == pytest.approx(1, abs=1e-5)  # rows of attention sum to 1
    heads = next(table for table in outcome.tables if table.name == "heads")
    assert len(heads.columns) == 4 + 4
    assert {row[1] for row in heads.rows} == {"all", "[SEP]", "others"}


def test_a_text_is_cut_to_whole_words(model: Any) -> None:
    example = mixlens.Example(LONG, id="x")
    for tokens_ in (6, 20, 33):
        cut = paper.shortened(example, model, tokens_)
        n = len(model.encode(cut).tokens)
        more = mixlens.Example(" ".join(LONG.split()[: len(cut.text.split()) + 1]))
        assert n <= tokens_ < len(model.encode(more).tokens)
        assert LONG.startswith(cut.text)
    assert paper.shortened(example, model, 500) is example
    outcome = experiments.run(
        "id-effective-attention", model=model, data=[example], progress=False, cuts=(12, 40, 90, 91)
    )
    lengths = [r.info["n"] for r in outcome.records if r.metric == "pearson pooled"]
    assert lengths == sorted(set(lengths))
    assert len(lengths) == 3  # the whole text is measured once


def test_lengths_fall_into_their_classes() -> None:
    info = {"width": 64}
    records = [
        mixlens.Record(str(n), "effective_attention", "pearson pooled", n / 100, {"n": n, **info})
        for n in (3, 15, 16, 40)
    ]
    length, _, points, _ = paper.finish_effective(setup_of("id-effective-attention"), records)
    assert [(row[2], row[3].mean) for row in length.rows] == [
        ("0-15", pytest.approx(0.09)),
        ("16-31", 0.16),
        ("32-47", 0.4),
    ]
    assert [row[2] for row in points.rows] == [3, 15, 16, 40]


@pytest.mark.parametrize("start", ["the peak of [SEP]", "the peak of raw", "in layer 4"])
def test_what_is_gone_from_effective_attention_was_in_raw_attention(start: str) -> None:
    """Gone, still there, and never there: the last cannot be compared, and both attentions are shown."""
    name = "id-effective-attention"
    claim = claim_of(name, start)
    assert word_of(claim, attention_by_type(1), name) == "same"
    assert word_of(claim, attention_by_type(1, left=0.9), name) == "different"
    never = [replace(r, value=0.002 if r.metric == "received" else r.value) for r in attention_by_type(1)]
    verdict = claim.check(setup_of(name), never, [])
    assert verdict.text == "not comparable (raw attention does not have it here, so that nothing can be missing)"
    assert "raw" in verdict.ours
    assert "effective" in verdict.ours
    assert word_of(claim, [], name) == "not comparable"


# --- token identifiability --------------------------------------------------------------------------------------------


def test_naive_identification_is_the_nearest_input_of_the_text(model: Any) -> None:
    texts = mixlens.runs.experiments.prepare.examples_of("agreement", n=3, seed=0)
    asked: dict[str, Any] = {"kinds": ("naive",), "distances": ("cosine",), "layers": (0, 3), "offsets": (1,)}
    outcome = experiments.run("id-token-identifiability", model=model, data=texts, progress=False, **asked)
    hits, total = [], []
    for text in texts:
        trace = model.trace(text)
        inputs = token_identity.input_vectors(trace, embedding="sum").double()
        near = [torch.nn.functional.cosine_similarity(state[None], inputs) for state in trace.hidden_states[3].double()]
        hits.append(sum(int(one[i] == one.max()) for i, one in enumerate(near)))
        total.append(len(near))
    found = {(r.metric, r.info["layer"]): r for r in outcome.records if "layer" in r.info}
    assert found["identified", 3].value == pytest.approx(sum(hits) / sum(total))
    assert found["identified", 3].info["by_text"] == [
        [i, h, n] for i, (h, n) in enumerate(zip(hits, total, strict=True))
    ]
    assert set(found) == {(m, layer) for m in ("identified", "neighbour") for layer in (0, 3)}
    assert [table.name for table in outcome.tables][:3] == ["identified", "neighbour", "last"]
    (chance,) = [r.value for r in outcome.records if r.metric == "chance"]
    assert chance == pytest.approx(3 / sum(total))  # 1 / mean length


def test_tables_of_identified_tokens() -> None:
    told = {
        "distance": "l2",
        "low": 0.1,
        "high": 0.3,
        "std": 0.2,
        "texts": 5,
        "folds": [0.2],
        "epochs": [30, 10],
        "by_text": [],
    }
    one = mixlens.Record("all", "linear", "identified", 0.2, {**told, "layer": 2})
    other = mixlens.Record("all", "linear", "identified", 0.5, {**told, "layer": 0, "low": None, "high": None})
    across = mixlens.Record("all", "linear", "across", 0.4, {**told, "layer": 2, "trained": 0})
    first, second, last, _, epochs = tokens.finish_tokens(setup_of("id-token-identifiability"), [one, other, across])
    assert first.columns == ("method", "distance", "layer 0", "layer 2")
    assert first.rows[0][3] == metrics.Interval(0.2, 0.1, 0.3, 5, 0.2)
    assert math.isnan(first.rows[0][2].low)
    assert second.rows == (("linear", "l2", 0, metrics.Interval(0.4, 0.1, 0.3, 5, 0.2)),)
    assert last.rows == (("linear, l2", metrics.Interval(0.2, 0.1, 0.3, 5, 0.2)),)
    assert epochs.rows == (("linear", "l2", 4, 10, 20.0, 30),)  # the g on another layer is no other training


def test_training_stopped_and_continued_is_the_same(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    asked: dict[str, Any] = {
        "kinds": ("naive", "linear"),
        "distances": ("l2",),
        "layers": (0, 4),
        "across": True,
        **QUICK,
    }
    given: dict[str, Any] = {"model": model, "data": "agreement", "n": 8, "progress": False, **asked}
    whole = experiments.run("id-token-identifiability", out=tmp_path / "whole", **given)
    real, seen = tokens.identified_rates, []

    def stopping(*args: Any, **options: Any) -> Any:
        seen.append(options["kind"])
        if len(seen) == 4:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(tokens, "identified_rates", stopping)
    with pytest.raises(KeyboardInterrupt):
        experiments.run("id-token-identifiability", out=tmp_path / "stopped", **given)
    seen.extend(["-"] * 4)
    again = experiments.run("id-token-identifiability", out=tmp_path / "stopped", **given)
    assert seen.count("naive") == 2  # not measured again
    assert [table.csv for table in again.tables] == [table.csv for table in whole.tables]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("id-token-identifiability", {"layers": (0, 2), "offsets": (1,), "across": True}),
        ("id-across-layers", {"trained": (1, 4)}),
        ("id-generalization", {"layers": (1, 3), "shares": (0.5, 1.0)}),
        ("id-neighbours", {"layers": (2,), "offsets": (-1, 0, 2)}),
        ("id-hidden-to-hidden", {}),
        ("id-mixing-and-identity", {"methods": ["alti"]}),
    ],
)
def test_g_that_are_trained_side_by_side_give_the_same_tables(
    name: str, options: dict[str, Any], model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU trains them: all g of one kind and distance at once. Rates are shares of tokens, so equal weights but
    for rounding give equal rates."""
    pytest.importorskip("matplotlib")
    asked = {
        "model": model,
        "data": "agreement",
        "n": 8,
        "progress": False,
        "distances": ("cosine", "l2"),
        **options,
        **QUICK,
    }
    alone = experiments.run(name, **asked)
    sizes: list[int] = []
    real = token_training.best_fits

    def counted(splits: Any, **given: Any) -> Any:
        sizes.append(len(splits))
        return real(splits, **given)

    monkeypatch.setattr(token_identity, "best_fits", counted)
    monkeypatch.setattr(token_identity.fast, "trained_at_once", lambda device, size: 100)
    together = experiments.run(name, **asked)
    assert max(sizes) > 1
    assert [(r.method, r.metric, r.info.get("layer"), r.info.get("offset")) for r in together.records] == [
        (r.method, r.metric, r.info.get("layer"), r.info.get("offset")) for r in alone.records
    ]
    assert [r.value for r in together.records] == pytest.approx([r.value for r in alone.records], abs=1e-6)


def test_the_paper_has_no_limit_of_epochs_and_the_search_uses_its_rates() -> None:
    for name in (
        "id-token-identifiability",
        "id-across-layers",
        "id-generalization",
        "id-neighbours",
        "id-hidden-to-hidden",
    ):
        training = tokens.training_of(setup_of(name))["training"]
        assert (training.epochs, training.rates, training.rate) == (None, (), 1e-4)
    searched = tokens.training_of(setup_of("id-neighbours", search=True))["training"]
    assert searched.rates == (0.003, 0.001, 0.0003, 0.0001, 0.00003, 0.00001, 0.000003)


def test_the_rate_that_serves_the_validation_texts_best_is_used() -> None:

    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sides = (x[:40], 2 * x[:40]), (x[40:], 2 * x[40:])
    training = token_training.Training(batch=20, epochs=5, rates=(1e-6, 1e-1, 1e-5))
    best = token_training.best_fit(*sides, kind="linear", distance="l2", training=training, seed=0)
    assert (best.rate, best.epochs) == (1e-1, 5)
    torch.manual_seed(0)
    alone = token_training.fit(
        *sides, kind="linear", distance="l2", training=token_training.Training(rate=1e-1, batch=20, epochs=5)
    )
    assert best.loss == alone.loss


def naive(curve: Sequence[float]) -> list[mixlens.Record]:
    return [
        rate("naive", "identified", d, value, layer=layer)
        for d in ("cosine", "l2")
        for layer, value in enumerate(curve, 1)
    ]


def test_a_fall_is_counted_by_the_layer() -> None:
    """An even fall is no late one, though eight layers fall more than three. A first third of one layer falls from the
    input."""
    claim, name = claim_of("id-token-identifiability", "without a g, by both"), "id-token-identifiability"
    assert word_of(claim, naive([0.9 - 0.05 * layer for layer in range(12)]), name) != "same"
    late = naive([0.9, 0.9, 0.89, 0.88, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    assert word_of(claim, late, name) == "same"
    behind, before = (0.88 - 0.1) / 8, (0.9 - 0.88) / 3
    assert f"layer 4 - up to it {behind - before:+.3f}" in claim.check(setup_of(name), late, []).ours
    assert word_of(claim, naive([0.98, 0.9, 0.8, 0.7]), name) == "same"
    assert word_of(claim, naive([0.8, 0.75, 0.7, 0.65]), name) == "different"


def test_a_training_that_was_cut_short_is_not_judged() -> None:
    claim, records = claim_of("id-token-identifiability", "a trained g"), identified(1)
    for record in records:
        record.info["epochs"] = [7, 100] if record.method == "linear" else []
    verdicts = [
        claim.check(setup_of("id-token-identifiability", epochs=cap), records, []).text for cap in (None, 101, 100)
    ]
    assert verdicts == [
        "same",
        "same",
        "not comparable (not run: linear g by cosine, layer 12, or cut short by epochs=100)",
    ]


def test_a_run_without_a_kind_says_what_was_not_run() -> None:
    records = [r for r in identified(1) if r.method != "naive"]
    verdict = claim_of("id-token-identifiability", "a trained g").check(
        setup_of("id-token-identifiability"), records, []
    )
    assert verdict.text == "not comparable (not run: naive g by cosine, layer 12)"


# --- other layers, other texts, neighbours ----------------------------------------------------------------------------


def test_train_and_test_texts_by_hand(model: Any) -> None:
    asked: dict[str, Any] = {"kinds": ("linear",), "layers": (2,), "shares": (0.5, 1.0), **QUICK}
    outcome = experiments.run("id-generalization", model=model, data="agreement", n=10, progress=False, **asked)
    found = {r.metric: r for r in outcome.records if r.metric != "size"}
    order = np.random.default_rng(0).permutation(10).tolist()
    assert [row[0] for row in found["train"].info["by_text"]] == sorted(order[:7])
    assert [row[0] for row in found["test"].info["by_text"]] == sorted(order[8:])
    assert found["gap"].value == pytest.approx(found["train"].value - found["test"].value)
    sizes = {r.info["share"]: r for r in outcome.records if r.metric == "size"}
    assert set(sizes) == {0.5, 1.0}
    assert all(r.info["layer"] == 3 for r in sizes.values())  # the last but one
    assert [row[0] for row in sizes[0.5].info["by_text"]] == sorted(order[8:])  # the same test texts
    assert outcome.tables[1].column("training texts") == ["50%", "100%"]


def test_neighbours_are_those_of_the_metric(model: Any) -> None:
    asked: dict[str, Any] = {"kinds": ("naive",), "distances": ("l2",), "layers": (2,), "offsets": (-1, 0, 2)}
    outcome = experiments.run("id-neighbours", model=model, data="agreement", n=3, progress=False, **asked)
    states = tokens.states_of(model, outcome.setup.examples, "sum")
    for r in outcome.records:
        offset, hits, total = r.info["offset"], 0, 0
        for state, inputs in zip(states.layer(2), states.inputs, strict=True):
            for i in range(len(state)):
                if 0 <= i + offset < len(state):
                    far = torch.linalg.vector_norm(state[i].double() - inputs.double(), dim=-1)
                    hits, total = hits + int(far[i + offset] == far.min()), total + 1
        assert r.value == pytest.approx(hits / total)


def test_from_one_layer_to_the_next_of_two_models(model: Any) -> None:
    asked: dict[str, Any] = {"kinds": ("naive",), "distances": ("l2",)}
    other = mixlens.load("sentiment")
    outcome = experiments.run(
        "id-hidden-to-hidden", model=[model, other], data=["the old keys", "the dog"], progress=False, **asked
    )
    for r in outcome.records:
        hits, total = 0, 0
        for example in outcome.setup.examples:
            trace = (model, other)[r.info["model"]].trace(example)
            states = trace.hidden_states
            before = (
                token_identity.input_vectors(trace, embedding="sum")
                if r.info["layer"] == 1
                else states[r.info["layer"] - 1]
            )
            far = torch.cdist(
                states[r.info["layer"]].double(), before.double(), compute_mode="donot_use_mm_for_euclid_dist"
            )
            hits, total = hits + int((far.diagonal() <= far.min(-1).values).sum()), total + len(trace)
        assert r.value == pytest.approx(hits / total)
    assert {row[0] for row in outcome.tables[0].rows} == {"1: agreement", "2: sentiment"}


def with_rate(record: mixlens.Record, value: float) -> mixlens.Record:
    return replace(record, info={**record.info, "by_text": rate("linear", "", "", value).info["by_text"]})


def test_an_even_drop_is_no_sudden_one() -> None:
    """Every g finds 0.03 less in the next layer: nothing sets the last layer apart."""
    even = [with_rate(r, 0.9 - 0.03 * r.info["layer"]) for r in across(1)]
    verdict = claim_of("id-across-layers", "generalizing from").check(setup_of("id-across-layers"), even, [])
    assert verdict.word != "same"
    shown = [text.partition(": ")[0] for text in verdict.ours.split("; ")]
    assert [text[: len("drop behind layer 11 - behind layer 1")] for text in shown] == [
        "drop behind layer 11 - behind layer 1",
        "drop behind layer 11 - behind layer 6",
    ]
    few = [r for r in across(1) if r.info["layer"] < 4]
    assert (
        "a layer between"
        in claim_of("id-across-layers", "generalizing from").check(setup_of("id-across-layers"), few, []).reason
    )


def test_the_middle_g_needs_both_patterns() -> None:
    """A g that is best in its own layer falls behind it, and finds less in earlier layers."""
    peak = [with_rate(r, 0.9 - 0.03 * abs(r.info["layer"] - 6)) for r in across(1)]
    verdict = claim_of("id-across-layers", "the g of the middle").check(setup_of("id-across-layers"), peak, [])
    assert (verdict.word, verdict.reason) == ("different", "the other way round: g of layer 6: layer 1 - own")


def test_tuning_that_moves_all_layers_alike_moves_the_last_no_more() -> None:
    alike = [r for r in step(1) if r.info["model"] == 0]
    alike += [rate("naive", "step", r.info["distance"], r.value - 0.2, layer=r.info["layer"], model=1) for r in alike]
    name = "id-hidden-to-hidden"
    assert word_of(claim_of(name, "fine-tuning lowers the rate across the last layer by"), alike, name) == "same"
    assert word_of(claim_of(name, "the last layers"), alike, name) != "same"


# --- mixing -----------------------------------------------------------------------------------------------------------


def test_own_token(model: Any) -> None:
    outcome = experiments.run(
        "id-mixing", model=model, data="agreement", n=2, methods=(ESTIMATED, *CHEAP), progress=False
    )
    (example,) = outcome.setup.examples[:1]
    scores = mixlens.mix(model.trace(example), "alti").rollout().scores.double()
    rows = scores / scores.sum(-1, keepdim=True)
    found = [r for r in outcome.records if r.example == example.id and r.method == "alti" and r.info["layer"] == 4]
    own = [r.value for r in found if r.metric == "own share"]
    assert own == pytest.approx(rows[3].diagonal().tolist())
    other = [r.value for r in found if r.metric == "not own top"]
    assert other == [float(rows[3, i].max() > rows[3, i, i]) for i in range(len(own))]
    table, boxes, depths = outcome.tables[:3]
    assert [row[:2] for row in table.rows] == [(m, k) for m in (ESTIMATED, "alti") for k in mixing.MIXING]
    values = [
        r.value for r in outcome.records if r.method == ESTIMATED and r.metric == "own share" and r.info["layer"] == 2
    ]
    medians = {row[:2]: row[2:] for row in boxes.rows}
    assert medians[ESTIMATED, "median"][1].mean == pytest.approx(np.median(values))
    assert medians[ESTIMATED, "75 %"][1].mean == pytest.approx(np.quantile(values, 0.75))
    assert depths.rows[0][:3] == (
        "median of own share",
        medians[ESTIMATED, "median"][0],
        medians[ESTIMATED, "median"][1],
    )
    beside = [t for t in outcome.tables if t.name.startswith("paper-")]
    assert [table.rows[0][-1] for table in beside] == ["0.306", "0.144", "0.107"]


def test_p_is_judged_behind_the_first_quarter() -> None:
    """P is 0 in the first three of twelve layers, as in the paper: no error is below it."""
    claim, name = claim_of("id-mixing-and-identity", "P is above"), "id-mixing-and-identity"
    first = [replace(r, value=0.01 * (r.metric == "error")) if r.info["layer"] < 4 else r for r in shares(1)]
    assert word_of(claim, first, name) == "same"
    fourth = [replace(r, value=0.5) if (r.metric, r.info["layer"]) == ("error", 4) else r for r in first]
    assert word_of(claim, fourth, name) == "different"


def test_mixing_and_identity_of_the_same_texts(model: Any) -> None:
    outcome = experiments.run(
        "id-mixing-and-identity", model=model, data="agreement", n=8, methods=CHEAP, progress=False, **QUICK
    )
    lost = {r.example: r.value for r in outcome.records if r.metric == "not own top" and r.info["layer"] == 4}
    for example in outcome.setup.examples[:2]:
        scores = mixlens.mix(model.trace(example), "alti").rollout()
        assert lost[str(example.id)] == pytest.approx(mixing.not_own_top(scores)[3].mean())
    errors = [r for r in outcome.records if r.metric == "error" and r.info["layer"] == 4]
    assert {r.example for r in errors} < set(lost)  # the texts that were tested
    assert all(0 <= r.value <= 1 for r in errors)


# --- context ----------------------------------------------------------------------------------------------------------


def test_neighbours_by_hand() -> None:
    scores = made_map([[[2.0, 1.0, 1.0], [3.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    found = context.neighbours(scores, reach=2)
    assert set(found) == {-2, -1, 1, 2}
    np.testing.assert_allclose(found[1], [[0.25, 0.25]])
    np.testing.assert_allclose(found[-1], [[0.75, np.nan]])  # a row of zeros has no shares
    np.testing.assert_allclose(found[2], [[0.25]])


def test_a_text_without_such_a_place_has_no_record() -> None:
    found = context.layer_records(
        mixlens.Example("x", id="e"), "m", "distance", "11+", np.array([[np.nan, 1.0, 3.0], [np.nan] * 3])
    )
    assert found == [mixlens.Record("e", "m", "distance", 2.0, {"layer": 1, "group": "11+", "count": 2})]
    assert context.layer_records(mixlens.Example("x", id="e"), "m", "neighbour", "+3", np.zeros((1, 0))) == []
    assert context.NAMES == ("1", "2", "3", "4-5", "6-10", "11+")


def test_context_written_out(model: Any) -> None:
    """Figures 4a and 4b, token by token: means within groups, over all tokens, then over the layers; totals by
    place."""
    outcome = experiments.run("id-context", model=model, data="agreement", n=3, methods=CHEAP, progress=False)
    maps = [mixlens.mix(model.trace(e), "alti").rollout().scores.double().numpy() for e in outcome.setup.examples]
    tables = {table.name: table for table in outcome.tables}
    for row in tables["distance"].rows:
        wanted = {"1": [1], "2": [2], "3": [3], "4-5": [4, 5], "6-10": range(6, 11), "11+": range(11, 99)}[str(row[1])]
        means = []
        for layer in range(4):
            cells = []
            for scores in maps:
                for i, taken in enumerate(scores[layer] / scores[layer].sum(-1, keepdims=True)):
                    places = [j for j in range(len(taken)) if abs(i - j) in wanted]
                    cells += [np.mean(taken[places])] if places else []
            means.append(np.mean(cells))
        assert [cell.mean for cell in row[2:]] == pytest.approx([mean / sum(means) for mean in means])
    found = {str(row[1]): row[4].mean for row in tables["neighbour"].rows}
    last = [scores[3] / scores[3].sum(-1, keepdims=True) for scores in maps]
    whole = sum(float(one.sum() - one.trace()) for one in last)
    for offset in (-2, 1):
        assert found[f"{offset:+d}"] == pytest.approx(sum(float(np.trace(one, offset)) for one in last) / whole)
    assert [int(name) for name in found] == sorted(int(name) for name in found)


def test_what_the_first_token_takes(model: Any) -> None:
    pair = mixlens.Example("the keys", "the dogs are old", id="p")
    outcome = experiments.run("id-context", model=model, data=[pair], methods=CHEAP, progress=False, around=3)
    trace = model.trace(pair)
    row = mixlens.mix(trace, "alti").rollout().scores[-1, 0].double()
    row, middle = row / row.sum(), trace.tokens.index("[SEP]")
    found = {(r.metric, r.info["group"]): r.value for r in outcome.records if r.info["layer"] == 4}
    assert found["around", "+0"] == pytest.approx(float(row[middle]))
    assert found["around", "-2"] == pytest.approx(float(row[middle - 2]))
    assert found["from place", "2"] == pytest.approx(float(row[2]))
    assert found["sentence", "first"] == pytest.approx(float(row[1:middle].mean()))
    assert found["sentence", "second"] == pytest.approx(float(row[middle + 1 : -1].mean()))
    assert "around" in {table.name for table in outcome.tables}
    assert not next(table for table in outcome.tables if table.name == "from_place").printed


def test_one_pass_gives_both(model: Any) -> None:
    given: dict[str, Any] = {"model": model, "data": "agreement", "n": 2, "methods": CHEAP, "progress": False}
    both, own, around = (experiments.run(name, **given) for name in ("id-contributions", "id-mixing", "id-context"))
    files = {table.name: table.csv for table in both.tables}
    for table in (*own.tables, *around.tables):
        assert table.name == "claims" or files[table.name] == table.csv
    assert len(both.tables[-1].rows) == len(own.tables[-1].rows) + len(around.tables[-1].rows)


def test_near_context_is_judged_by_the_first_third_and_far_context_by_its_trend() -> None:
    """Near: a curve that is lowest in the first layer, and falls from the second on, is not higher in the first
    layers."""
    near, far = (
        claim_of("id-context", "the closest neighbours contribute more"),
        claim_of("id-context", "the most distant"),
    )
    curve = (0.5, 0.1, 0.2, 0.21, 0.22, 0.23)
    hill = in_layers("distance", "1", (0.140, 0.190, 0.178, 0.169, 0.167, 0.156))
    assert (
        word_of(near, [replace(r, value=r.value - noise(int(r.example)) / 9.01) for r in hill], "id-context")
        == "different"
    )
    assert word_of(near, in_layers("distance", "1", (0.5, 0.4, 0.3, 0.2, 0.1)), "id-context") == "same"
    assert word_of(far, in_layers("distance", "11+", [-value for value in curve]), "id-context") == "different"


def test_what_cls_takes_is_judged_in_each_layer_of_the_figure() -> None:
    """One of the three layers the other way round: the mean over the layers would hide it."""
    second = claim_of("id-context", "the second sentence")
    first = in_layers("sentence", "first", [0.1] * 6)
    assert word_of(second, first + in_layers("sentence", "second", [0.5] * 6), "id-context") == "same"
    assert word_of(second, first + in_layers("sentence", "second", [0.5] * 5 + [0.05]), "id-context") == "different"
    middle = claim_of("id-context", "the context of [CLS]")
    places = [
        r for place in range(1, 10) for r in in_layers("from place", str(place), [0.2 if 3 < place < 7 else 0.1] * 6)
    ]
    assert word_of(middle, places, "id-context") == "same"
    turned = [replace(r, value=0.5) if (r.info["layer"], r.info["group"]) == (6, "9") else r for r in places]
    assert word_of(middle, turned, "id-context") == "different"


def test_places_beside_the_separator_are_judged_in_each_layer() -> None:
    """[SEP] itself above the place behind it in the first layer alone: the mean over the layers would hide it."""
    claim, name = claim_of("id-context", "[CLS] takes"), "id-context"
    right = [r for r in distances(1) if r.metric == "around"]
    assert word_of(claim, right, name) == "same"
    turned = [replace(r, value=0.08) if (r.info["layer"], r.info["group"]) == (1, "+0") else r for r in right]
    verdict = claim.check(setup_of(name), turned, [])
    assert verdict.word == "different"
    assert verdict.reason.startswith("the other way round: layer 1, ")
    assert "layer 12" not in verdict.reason


def test_the_nearest_is_compared_with_others_of_its_side() -> None:
    """-2 above +1 is no reason against it, +2 above +1 is."""
    claim, name = claim_of("id-context", "the closest neighbours contribute most"), "id-context"
    right = [r for r in distances(1) if r.metric == "neighbour"]
    left = [replace(r, value=r.value + 0.1) if r.info["group"].startswith("-") else r for r in right]
    assert word_of(claim, left, name) == "same"
    assert word_of(claim, [replace(r, value=0.2) if r.info["group"] == "+2" else r for r in right], name) == "different"
    few = {"count": 1}  # one position has much from there, but all positions together have little
    rare = [replace(r, value=0.2, info={**r.info, **few}) if r.info["group"] == "+2" else r for r in right]
    assert word_of(claim, rare, name) == "same"


def test_the_share_of_the_near_places_is_of_all_that_comes_from_others() -> None:
    """By hand: 10 positions take 0.1 each from -1 and 5 positions 0.2 each from +1, of 2.5 and of 5 that come from
    others."""
    places = [("neighbour", "-1", 0.1, 10), ("neighbour", "+1", 0.2, 5)]

    def records(whole: float) -> list[mixlens.Record]:
        every = [*places, ("context", "all", whole, 10)]
        return [
            mixlens.Record(str(t), "hta", metric, value + noise(t) / 99, {"layer": 1, "group": group, "count": count})
            for t in range(8)
            for metric, group, value, count in every
        ]

    claim = claim_of("id-context", "context remains")
    near, far = (claim.check(setup_of("id-context"), records(whole), []) for whole in (0.25, 0.5))
    assert (near.word, far.word) == ("same", "different")
    assert near.ours.startswith("layer 1: share of up to 1 away - 0.5 +0.300")
    assert far.ours.startswith("layer 1: share of up to 1 away - 0.5 -0.100")


def test_far_context_of_two_data_sets_is_compared() -> None:
    def outcome(sign: int, method: str = "hta:probes=2") -> Any:
        turned = [replace(r, method=method) for r in distances(sign)]
        return experiments.Outcome(replace(setup_of("id-context"), methods=(method,)), turned, [], None, 0.0)

    assert context.far_context_is_smaller([outcome(1), outcome(-1)]).word == "same"
    assert context.far_context_is_smaller([outcome(-1), outcome(1)]).word == "different"
    assert context.far_context_is_smaller([outcome(1, "alti"), outcome(1)]).word == "not comparable"


def test_own_shares_of_two_data_sets_are_compared_layer_by_layer() -> None:
    """P is 0 in layers 1 to 3 of both: there is nothing to compare there."""

    def outcome(shift: float, method: str = "hta:probes=2") -> Any:
        turned = [replace(r, method=method, value=r.value + shift * (r.value != 0)) for r in shares(1)]
        setup = replace(setup_of("id-mixing"), methods=(method,))
        return experiments.Outcome(setup, turned, [], None, 0.0)

    verdict = mixing.shares_are_larger([outcome(0.1), outcome(0.0)])
    assert verdict.word == "same"
    assert "own share, layer 1 +0.100" in verdict.ours
    assert "P, layer 4 " in verdict.ours
    assert "P, layer 3 " not in verdict.ours
    assert mixing.shares_are_larger([outcome(0.0), outcome(0.1)]).word == "different"
    assert mixing.shares_are_larger([outcome(0.1, "alti"), outcome(0.0)]).word == "not comparable"


# --- parts of speech --------------------------------------------------------------------------------------------------


def test_tags_follow_the_pieces(model: Any) -> None:
    trace = model.trace(TAGGED)
    tags = pos.tags_of(TAGGED, trace)
    assert (tags[0], tags[-1]) == ("[CLS]", "[SEP]")
    assert tags[1:3] == ("DET", "NOUN")
    assert set(tags[3:-1]) == {"VERB"}
    assert pos.tags_of(TAGGED, trace, "penn")[1:3] == ("DT", "NNS")
    part = mixlens.Example("the keys rust", info={"pos": ((4, 8, "NOUN"),)})
    assert pos.tags_of(part, trace)[1:3] == (None, "NOUN")


def test_parts_of_speech(model: Any) -> None:
    outcome = experiments.run("id-pos", model=model, data=[TAGGED], methods=CHEAP, progress=False)
    medians, _, boxes, counts = outcome.tables[:4]
    scores = mixlens.mix(model.trace(TAGGED), "alti").rollout().scores.double()
    rows = scores / scores.sum(-1, keepdim=True)
    found = {row[1]: row[-1].mean for row in medians.rows}
    assert found["NNS"] == pytest.approx(float(rows[-1, 2, 2]))
    assert found["[SEP]"] == pytest.approx(float(rows[-1, -1, -1]))
    assert list(found.values()) == sorted(found.values(), reverse=True)  # in the order of the last layer
    assert found["VBP"] == pytest.approx(np.median([float(rows[-1, i, i]) for i in range(3, len(scores[0]) - 1)]))
    assert dict(counts.rows) == {"DT": 1, "NNS": 1, "VBP": len(scores[0]) - 4, "[CLS]": 1, "[SEP]": 1}
    assert len(boxes.rows) == 4 * 5
    assert not boxes.printed


def test_the_last_figure_has_pronouns_and_to_and_symbols() -> None:
    """Pronouns, "to" and symbols are above the content words: that is against Figure 37, and says nothing of Figure
    29."""
    last, fourth = (claim_of("id-pos", start) for start in ("in the last layer", "from layer 4"))
    for tag in ("DT", "IN", "PRP", "PRP$", "TO", "SYM", "DET", "ADP", "PRON"):
        records = [
            mixlens.Record(str(text), "hta", "own share", level + noise(text), {"layer": layer, "tag": name})
            for text in range(24)
            for layer in (1, 2, 3)
            for name, level in {"NN": 0.3, "VBZ": 0.3, "NOUN": 0.3, tag: 0.5}.items()
        ]
        assert word_of(last, records, "id-pos") == "different", tag
        assert (word_of(fourth, records, "id-pos") == "not comparable") is (tag not in pos.FUNCTION)


def hta_of(records: Sequence[mixlens.Record]) -> Any:
    return values.Hta(claims.Measured(setup_of("id-pos"), list(records), []), "hta")


def test_the_width_of_a_type_is_that_of_its_tokens() -> None:
    """By hand: 21 tokens at 0, 0.05 ... 1 are 0.5 wide from 25 to 75 %. A type of few tokens has no width."""
    tokens_ = [mixlens.Record("1", "hta", "own share", i / 20, {"layer": 1, "tag": "IN"}) for i in range(21)]
    few = [replace(r, info={**r.info, "tag": "DT"}) for r in tokens_[:19]]
    assert pos.widths(hta_of([*tokens_, *few]), 1, pos.FUNCTION) == pytest.approx({"IN": 0.5})
    assert pos.widths(hta_of(tokens_), 1, pos.CONTENT) == {}


def test_types_are_counted_and_those_of_few_tokens_are_not() -> None:
    """One tag of many tokens above the bound among five: most are below. A median over all tokens would be above it."""
    claim = claim_of("id-pos", "in layer 1 most other types")
    many = {"NN": 0.3, "DT": 0.3, "IN": 0.3, "JJ": 0.3, "VB": 0.6, "UH": 0.9}
    records = [
        mixlens.Record(str(text), "hta", "own share", level + noise(text + copy), {"layer": 1, "tag": tag})
        for tag, level in many.items()
        for text in range(4 if tag == "UH" else 24)
        for copy in range(20 if tag == "VB" else 1)
    ]
    verdict = claim.check(setup_of("id-pos"), records, [])
    assert (verdict.word, verdict.ours) == ("same", "same: NN, DT, IN, JJ; different: VB")


def test_the_words_of_the_claim_are_those_of_figure_29() -> None:
    assert {"NNP", "NNS", "NN", "VBN", "VB", "VBD", "VBP", "JJ", "JJS", "RBR", "RBS"} == {
        t for t in pos.CONTENT if t in PENN
    }
    assert {"WP", "WDT", "IN", "CC", "SYM", "PRP$", "POS", "DT"} == {t for t in pos.FUNCTION if t in PENN}


PENN = {"NNP", "NNPS", "NNS", "NN", "VBN", "VB", "VBD", "VBP", "VBZ", "VBG", "JJ", "JJR", "JJS", "RB", "RBR", "RBS"} | {
    "WP", "WDT", "IN", "CC", "SYM", "PRP", "PRP$", "POS", "DT", "TO", "MD", "CD"
}  # fmt: skip


# --- all of them ------------------------------------------------------------------------------------------------------

ALL: dict[str, dict[str, Any]] = {
    "id-effective-attention": {"data": [mixlens.Example(LONG, id="1"), mixlens.Example("the keys", id="2")]},
    "id-token-identifiability": {
        "data": "agreement",
        "n": 7,
        "layers": (0, 4),
        "offsets": (1,),
        "across": True,
        **QUICK,
    },
    "id-across-layers": {"data": "agreement", "n": 7, "distances": ("l2",), **QUICK},
    "id-generalization": {"data": "agreement", "n": 7, "layers": (4,), "shares": (0.5,), **QUICK},
    "id-neighbours": {"data": "agreement", "n": 7, "layers": (4,), "kinds": ("linear",), **QUICK},
    "id-hidden-to-hidden": {"data": "agreement", "n": 7, "distances": ("l2",), **QUICK},
    "id-mixing": {"data": "agreement", "n": 2, "methods": (ESTIMATED,)},
    "id-mixing-and-identity": {"data": "agreement", "n": 7, "methods": (ESTIMATED,), **QUICK},
    "id-context": {
        "data": [mixlens.Example("the keys to the cabinet are old", "the dogs are old", id="1")],
        "methods": (ESTIMATED,),
    },
    "id-contributions": {
        "data": [mixlens.Example("the keys are old", "the dogs are old", id="1")],
        "methods": (ESTIMATED,),
    },
    "id-pos": {"data": [TAGGED], "methods": (ESTIMATED,)},
}


@pytest.mark.parametrize("name", ALL)
def test_the_same_records_give_the_same_tables_and_a_figure(name: str, model: Any) -> None:
    outcome = experiments.run(name, model=model, progress=False, **ALL[name])
    again = mixlens.runs.experiments.running.all_tables(outcome.setup, list(outcome.records))
    assert [table.csv for table in again] == [table.csv for table in outcome.tables]
    assert outcome.tables[-1].name == "claims"
    pytest.importorskip("matplotlib")
    assert mixlens.runs.experiments.running.drawn(outcome)["svg"].startswith(b"<?xml")


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("id-effective-attention", {"methods": ("alti",)}, "effective_attention"),
        ("id-effective-attention", {"edges": (5, 5)}, "rising"),
        ("id-effective-attention", {"cuts": (2,)}, "4 or more"),
        ("id-token-identifiability", {"kinds": ("bilinear",)}, "linear"),
        ("id-token-identifiability", {"kinds": "linear"}, "is a list"),
        ("id-token-identifiability", {"layers": (9,)}, "0 .input. to 4"),
        ("id-token-identifiability", {}, "at least 7"),
        ("id-across-layers", {"kinds": ("naive",)}, "is not trained"),
        ("id-across-layers", {"trained": (0,), "n": 7}, "from 1 to 4"),
        ("id-generalization", {"shares": (0,), "n": 7}, "above 0"),
        ("id-neighbours", {"offsets": (), "n": 7}, "list of places"),
        ("id-mixing", {"methods": ("grad_l2",)}, "takes maps alone"),
        ("id-context", {"reach": 0}, "1 or more"),
        ("id-pos", {}, "have no 'pos'"),
        ("id-pos", {"data": [TAGGED], "tags": "brown"}, "penn or universal"),
        ("id-pos", {"data": [mixlens.Example("the keys", info={"pos": ((0, 3, "DET"),)})]}, "no penn tags"),
    ],
)
def test_refusals(name: str, given: dict[str, Any], told: str, model: Any) -> None:
    with pytest.raises(refusals.InputError, match=told):
        experiments.run(name, **{"model": model, "data": "agreement", "n": 1, "progress": False, **given})


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_the_words_of_figures_19_to_25_are_named_by_their_places() -> None:
    """Most of these words are in both sentences: by its word alone a position would be refused."""
    (item,) = [item for item in plans.PLANS.find("identifiability").items if item.where == "Figures 19-25"]
    first = (
        "[CLS] he said the foods ##er ##vic ##e pie business doesn ' t fit the company ' s long - term growth strategy "
        ". [SEP]"
    )
    places = {int(re.findall(r"--query (\d+)", item.command)[0]): "said"}
    places |= {int(place): word for place, word in re.findall(r"(\d+) (\[?\w+\]?)[,)]", item.command)}
    assert len(places) == 7
    assert all(first.split()[place] == word for place, word in places.items())


def test_the_plan_names_every_figure_and_every_step_is_used() -> None:
    plan = plans.PLANS.find("identifiability")
    named = [item.where.partition(";")[0] for item in plan.items if item.where.startswith("Figure")]
    spans = [re.findall(r"(\d+)[a-c]?(?:-(\d+))?", where) for where in named]
    numbers = {n for some in spans for first, last in some for n in range(int(first), int(last or first) + 1)}
    assert numbers == set(range(1, 44))
    used = {name for item in plan.items for name in item.steps}
    assert used == {step.name for step in plan.steps}
    for step_ in plan.steps:
        declared = experiments.known()[step_.experiment]
        assert set(step_.options) | set(step_.fast_options) <= {*declared.options, "methods"}
        assert set(step_.models) <= {role.name for role in plan.roles}
