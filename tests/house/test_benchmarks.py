"""The benchmarks measure what they say: right answers only, every row kept, the page from the results alone."""

from __future__ import annotations

import json
import re
import sys
import time
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are beside the package, not in it

import mixlens  # noqa: E402
from benchmarks import __main__ as command  # noqa: E402
from benchmarks.page import figure, page  # noqa: E402
from benchmarks.page.targets import TARGETS, Target  # noqa: E402
from benchmarks.peers import __main__ as peers  # noqa: E402
from benchmarks.rows import corpus, growth, large, measure, memory, rows, straightforward  # noqa: E402
from benchmarks.rows.models import Pair, bert  # noqa: E402

TINY = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 20000,
}


@cache
def tiny(**changes: Any) -> Pair:
    return bert("cpu", **{**TINY, **changes})


@pytest.fixture
def results(tmp_path: Path) -> measure.Results:
    return measure.Results(tmp_path / "cpu.json")


# --- the straightforward code is right --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exact() -> tuple[Any, mixlens.Trace, Tensor]:
    """Ours and the straightforward code, both in float64."""
    pair = tiny()
    model = mixlens.load(pair.stock, dtype="float64")
    ids, given = pair.input(14)
    import copy

    return copy.deepcopy(pair.eager).double(), model.trace(input_ids=ids), given


@torch.no_grad()
def test_the_straightforward_code_gives_our_maps(exact: Any) -> None:
    eager, trace, given = exact
    norms = straightforward.norm_maps(eager, given)
    slow = {
        **norms,
        "alti": straightforward.alti(eager, given),
        "attention": straightforward.attention(eager, given),
        "effective_attention": straightforward.effective_attention(eager, given),
    }
    for name, expected in slow.items():
        torch.testing.assert_close(mixlens.mix(trace, name).scores, expected, rtol=1e-8, atol=1e-11)
    zeroed = straightforward.value_zeroing(eager, given).double()  # handed out as float32
    torch.testing.assert_close(mixlens.mix(trace, "value_zeroing").scores, zeroed, rtol=1e-5, atol=1e-8)
    rolled = mixlens.mix(trace, "alti").rollout().scores
    torch.testing.assert_close(rolled, straightforward.rollout(slow["alti"]), rtol=1e-8, atol=1e-11)


def test_the_straightforward_jacobians_are_ours(exact: Any) -> None:
    eager, trace, given = exact
    expected = straightforward.hta_layer(eager, given, together=100)
    torch.testing.assert_close(mixlens.mix(trace, "hta_layer").scores, expected, rtol=1e-8, atol=1e-11)


# --- measuring --------------------------------------------------------------------------------------------------------


def test_rounds_are_interleaved_and_compared_with_their_neighbours() -> None:
    seen: list[str] = []

    def forward() -> None:
        seen.append("f")
        time.sleep(0.002)

    def work() -> None:
        seen.append("w")
        time.sleep(0.008)

    ratio = measure.beside(forward, work, device="cpu", budget=0, least=4)
    assert re.fullmatch("f+(wf){4}", "".join(seen))
    assert ratio.rounds == 4
    assert 0 < ratio.low <= ratio.median <= ratio.high


def test_a_long_work_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    measure.beside(lambda: None, lambda: seen.append(1) or time.sleep(0.01), device="cpu", budget=9, patience=0.005)
    assert seen == [1]
    monkeypatch.setattr(measure, "PATIENCE", 0.005)
    assert measure.median_seconds(lambda: seen.append(1) or time.sleep(0.01), device="cpu", budget=9) >= 0.01
    assert len(seen) == 2


def test_rows_are_written_one_by_one_and_other_parts_stay(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    first = measure.Results(path)
    first.begin("rows", command="python -m benchmarks", device="cpu")
    first.put("rows", {"id": "a"})
    assert json.loads(path.read_text())["rows"]["rows"] == [{"id": "a"}]
    second = measure.Results(path)  # as after a cut
    second.begin("memory", command="python -m benchmarks --only memory", device="cpu")
    held = json.loads(path.read_text())
    assert held["rows"]["rows"] == [{"id": "a"}]
    assert held["memory"]["rows"] == []
    assert set(held["rows"]["machine"]) == {"device", "threads", "loops", "python", "torch", "transformers", "mixlens"}
    assert [file.name for file in tmp_path.iterdir()] == ["cpu.json"]


def test_plain_loops_are_plain_and_go_away() -> None:
    from mixlens.fast import loops as kernels

    before = kernels.used(torch.device("cpu"))
    with measure.plain_loops():
        assert kernels.used(torch.device("cpu")) == "plain"
    assert kernels.used(torch.device("cpu")) == before


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model of the rows, small."""
    monkeypatch.setattr(
        rows, "bert", lambda device, **changes: tiny(**{k: v for k, v in changes.items() if k in TINY and v < 48})
    )


@pytest.mark.usefixtures("small")
def test_every_row_is_measured_and_agrees(results: measure.Results, capsys: pytest.CaptureFixture[str]) -> None:
    assert rows.measure(results, device="cpu", sizes=[12], command="x", budget=0) == []
    made = {row["id"]: row for row in results.held["rows"]["rows"]}
    asked = {row for _, part, row, n in TARGETS if part == "rows"} - {
        "hta_layer"
    }  # that one is measured beside n = 128
    assert asked <= set(made)
    for name in ("norm_maps", "alti", "value_zeroing", "value_zeroing_row", "effective_attention", "five_together"):
        assert made[name]["disagreement"] <= 1e-5
        assert made[name]["slow_ratio"] > 0
        assert made[name]["ratio"] > 0
    assert "x a forward pass" in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_a_wrong_answer_is_not_timed(results: measure.Results, monkeypatch: pytest.MonkeyPatch) -> None:
    right = straightforward.alti
    monkeypatch.setattr(straightforward, "alti", lambda *given: right(*given).flip(-1))
    refused = rows.measure(results, device="cpu", sizes=[12], command="x", budget=0)
    assert [told.split(",")[0] for told in refused] == ["alti", "five_together"]
    row = next(row for row in results.held["rows"]["rows"] if row["id"] == "alti")
    assert "refused" in row
    assert "ratio" not in row
    assert "not measured: differs" in "\n".join(page.rows("cpu", results.held["rows"]))


def test_a_part_that_breaks_is_said_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> list[str]:
        raise ValueError("no such luck")

    monkeypatch.setattr(rows, "measure", broken)
    monkeypatch.setattr(command.memory, "measure", lambda *_, **__: [])
    assert command.main(["--only", "rows,memory,large", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "NOT MEASURED: rows: ValueError: no such luck" in told.err
    assert "-- memory" in told.out
    assert "large: skipped, it needs a GPU" in told.out
    with pytest.raises(SystemExit):
        command.arguments(["--only", "rows,nothing"])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_peak_memory_is_seen() -> None:
    pair = tiny()
    plain = memory.peak("plain", 40, "cpu", pair)
    slow = memory.peak("straightforward", 400, "cpu", pair)  # 400 x 400 x 48 floats: 31 MB, several times
    assert slow - plain > 60
    assert set(memory.WORKS) == {what for what in memory.WORKS if callable(memory.work(pair, what, 8))}


def test_growth_stops_where_the_next_point_would_take_too_long(
    results: measure.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "bert", lambda device, **changes: tiny(num_hidden_layers=2))
    monkeypatch.setattr(growth, "median_seconds", lambda work, **_: work() is None or 0.3)
    growth.measure(results, device="cpu", command="x", longest=1.3, budget=0, sizes=[4, 8])
    made = results.held["growth"]["rows"]
    assert {row["n"] for row in made if row["id"] == "forward"} == {4, 8}
    assert {row["n"] for row in made if row["id"] == "slow_hta_layer"} == {4}
    lines = figure.lines_of(made)
    assert lines["forward"] == ("plain forward pass", [4, 8], [150.0, 150.0])
    assert "trace" not in lines


def test_labels_do_not_overlap() -> None:
    placed = figure.spread_out([10.0, 11.0, 11.5, 40.0], 5.0)
    assert all(b - a >= 4.99 for a, b in pairwise(placed))
    assert placed[3] == 40.0


def test_the_figure_is_text_and_the_same_every_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = {"forward": "plain forward pass", "alti": "ALTI", "slow_alti": "straightforward ALTI"}
    made = [
        {"id": name, "title": title, "n": n, "seconds_per_layer": n**2 * 1e-6}
        for name, title in names.items()
        for n in (16, 32)
    ]
    drawn = []
    for name in ("a.svg", "b.svg"):
        figure.draw({"rows": made}, tmp_path / name)
        drawn.append((tmp_path / name).read_text())
    assert drawn[0] == drawn[1]
    assert all(re.search(rf"<text[^>]*>{title}</text>", drawn[0]) for title in names.values())


# --- the corpus -------------------------------------------------------------------------------------------------------


def test_every_sentence_is_in_one_batch() -> None:
    coded = [[0] * n for n in (3, 9, 1, 4, 4, 30, 2)]
    made = list(corpus.batches(coded, 12))
    assert sorted(i for batch in made for i in batch) == list(range(7))
    assert all(len(batch) == 1 or len(batch) * max(len(coded[i]) for i in batch) <= 12 for batch in made)


def test_the_corpus_says_what_it_needs(
    results: measure.Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert corpus.measure(results, device="cpu", command="x", budget=0, shared=tmp_path / "nowhere") == []
    assert "skipped, it needs the models and data beside the project" in capsys.readouterr().out
    assert "corpus" not in results.held


@pytest.mark.skipif(not corpus.SHARED.is_dir(), reason="needs the folder `shared` (models) beside the project")
def test_the_plain_pass_reads_the_corpus_in_order() -> None:
    stock, tokenizer, model = corpus.load(corpus.SHARED, "cpu")
    texts = corpus.sentences(corpus.SHARED / "data" / "sst2", 12)
    together = corpus.plain(stock, tokenizer, texts, 64)
    alone = torch.stack([model.trace(text).logits for text in texts])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


# --- a large model ----------------------------------------------------------------------------------------------------


def test_the_large_model_is_streamed(results: measure.Results) -> None:
    """The same code on a CPU, small."""
    shape = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 2000,
    }
    large.measure(results, device="cpu", command="x", budget=0, tokens=24, shape=shape)
    made = {row["id"]: row for row in results.held["large"]["rows"]}
    assert set(made) == {"norm_maps", "alti"}
    assert all(row["ms_per_layer"] > 0 and row["gap"] < 0.1 for row in made.values())
    assert "ms a layer" in "\n".join(page.large(results.held["large"]))


# --- peers ------------------------------------------------------------------------------------------------------------


def test_a_peer_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(folder: Path) -> Path:
        raise RuntimeError("ERROR: No matching distribution found for inseq")

    monkeypatch.setattr(peers, "environment", no_network)
    assert peers.main(["--only", "inseq", "--out", str(tmp_path)]) == 0
    (row,) = json.loads((tmp_path / "peers.json").read_text())["peers"]["rows"]
    assert row["failed"] == "ERROR: No matching distribution found for inseq"
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'Traceback' >&2\necho 'ValueError: not today' >&2\nexit 1\n")
    python.chmod(0o755)
    shape = {"vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 80}
    assert peers.zeroed(python, "gpt2", shape, rounds=1)["failed"] == "ValueError: not today"


def test_captum_is_measured(results: measure.Results, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("captum")
    monkeypatch.setattr(peers, "TOKENS", 5)
    results.begin("peers", command="x", device="cpu")
    peers.with_captum(results, budget=0, steps=4)
    made = {row["id"]: row for row in results.held["peers"]["rows"]}
    assert "failed" not in made["integrated_gradients"]
    assert made["integrated_gradients"]["disagreement"] < 1e-3


# --- the page ---------------------------------------------------------------------------------------------------------


def test_targets_are_judged_both_ways() -> None:
    assert Target("ratio", 2.0).met({"ratio": 2.0})
    assert not Target("ratio", 2.0).met({"ratio": 2.01})
    assert Target("share", 0.4, at_least=True).met({"share": 0.41})
    assert not Target("share", 0.4, at_least=True).met({"share": 0.39})
    assert Target("share", 0.4, at_least=True).words == "≥ 40 %"


def test_the_page_says_what_is_missed() -> None:
    row = {
        "id": "alti",
        "title": "ALTI + rollout",
        "n": 128,
        "layers": 12,
        "ratio": 2.9,
        "spread": [2.8, 3.1],
        "rounds": 5,
        "slow_ratio": 19.0,
        "disagreement": 1e-6,
        "ms_per_layer": 30.0,
    }
    told = {"device": "a processor", "threads": 2, "loops": "c", "torch": "2", "transformers": "5"}
    part = {"command": "python -m benchmarks", "machine": told, "shape": "BERT-base", "rows": [row]}
    text = page.page({"cpu": {"rows": part}})
    assert "| ALTI + rollout | 128 | ≤ 2.3 x | 2.90 x (2.80 to 3.10) | **no** |" in text
    assert "- ALTI + rollout, n = 128: 2.90, asked ≤ 2.3 x." in text
    assert "GPU: not measured yet." in text
    met = page.page({"cpu": {"rows": {**part, "rows": [{**row, "ratio": 1.9}]}}})
    assert "CPU: every target is met." in met


def test_the_page_is_what_the_results_say() -> None:
    found = page.read(page.RESULTS)
    assert found, "no results are kept"
    assert (page.DOCS / "performance.md").read_text() == page.page(found), "run python -m benchmarks.page"
    for device in ("cpu", "cuda"):
        if "growth" in found.get(device, {}):
            assert (page.DOCS / page.FIGURES / f"growth-{device}.svg").exists()


def test_the_results_hold_no_names_of_machines_and_no_paths() -> None:
    import platform

    files = sorted(page.RESULTS.glob("*.json"))
    assert files, "no results are kept"
    for file in files:
        text = file.read_text()
        # As a word: the name of a machine may be two letters, which many words hold.
        assert not re.search(rf"(?<![\w.-]){re.escape(platform.node())}(?![\w.-])", text) or not platform.node(), (
            file.name
        )
        assert not re.search(r"(?<![\w.:/<])/\w+/", text), file.name  # nothing that begins at the root of a disk
