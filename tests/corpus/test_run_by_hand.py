"""The parts of a run with stand-ins for model, folder and cluster: what each hands to the next, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import queue
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow")

from mixlens.base.errors import InputError, LongError, MixlensError, ResultError
from mixlens.data import RowError
from mixlens.runs.corpus import (
    ray_pool,
    ray_session,
    ray_worker,
    run_identity,
    running,
    shards,
    sources,
    stored_maps,
    worker,
    writing,
)
from mixlens.runs.corpus.answers import Answer, answer_columns, input_columns, map_numbers, or_raise, spans
from mixlens.runs.corpus.parquet import maps_content, schema_of, table_of
from mixlens.runs.corpus.plan import Plan
from mixlens.runs.corpus.rows import Fields, InputRow, row_of
from mixlens.runs.corpus.shards import CorpusFolder, Shard, file_name
from mixlens.runs.corpus.worker import BadRow, ShardFiles, Worker
from mixlens.types import Example


def files_of(number: int = 0, rows: int = 1, bad: tuple[BadRow, ...] = (), **more: Any) -> ShardFiles:
    given = {"content": b"x", "name": f"f{number}", "maps": None, "maps_name": None, "input": "i"}
    return ShardFiles(**{"number": number, "rows": rows, "bad": bad, **given, **more})


# --- refusals of a run ------------------------------------------------------------------------------------------------


def test_bad_rows_that_end_a_run() -> None:
    alike = (BadRow(3, "a", "has 5 tokens"), BadRow(4, "b", "has 7 tokens"))
    other = (alike[0], BadRow(4, "b", "is empty"))
    with pytest.raises(InputError) as told:
        running._refuse_bad(files_of(bad=alike[:1]), True, first=False)
    assert str(told.value) == "row 3: has 5 tokens (strict: nothing is left out)"
    with pytest.raises(MixlensError) as told_all:
        running._refuse_bad(files_of(rows=0, bad=alike), False, first=True)
    assert str(told_all.value) == "none of the first 2 rows can be explained: has 5 tokens."
    for files, strict, first in (
        *((files_of(rows=0, bad=alike), False, False), (files_of(rows=1, bad=alike), False, True)),
        *(
            (files_of(rows=0, bad=alike[:1]), False, True),
            (files_of(rows=0, bad=other), False, True),
            (files_of(), True, True),
        ),
    ):
        running._refuse_bad(files, strict, first=first)


def test_files_moved_aside_are_named_up_to_five() -> None:
    for count, names in ((5, "a, b, c, d, e"), (6, "a, b, c, d, e ...")):
        with pytest.warns(UserWarning, match="damaged") as told:
            running._warn_aside(list("abcdef"[:count]), stacklevel=1)
        assert (
            str(told[0].message) == f"damaged, or not of this run: {names}. Moved aside; what is missing is done again."
        )
    running._warn_aside([], stacklevel=1)


def test_a_run_without_an_explained_row_tells_the_most_frequent_reason() -> None:
    rows = [{"reason": "is empty"}, {"reason": "has 5 tokens"}, {"reason": "has 6 tokens"}]
    folder: Any = SimpleNamespace(bad_rows=lambda done: iter(rows), errors=Path("o/errors.jsonl"))
    with pytest.raises(MixlensError) as told:
        running._refuse_all(folder, {}, 1234)
    assert str(told.value) == (
        "none of the 1,234 rows could be explained; 2 of them because: has 5 tokens. Each row's reason is in 'o/errors.jsonl'."
    )


def test_sizes_and_names_that_are_refused(tmp_path: Path) -> None:
    running._refuse_shards(1)
    running._refuse_shards(1_000_000)
    with pytest.raises(InputError, match=r"^shard_rows= must be at least 1, not 0\.$"):
        running._refuse_shards(0)
    with pytest.raises(
        InputError, match=r"^shard_rows= must be at most 1,000,000, not 1000001: a shard is held in memory\.$"
    ):
        running._refuse_shards(1_000_001)
    running._refuse_names({"split": None, "text_field": "x"})
    for value in (3, "\ud800"):
        with pytest.raises(InputError, match=r"^split is a name, not "):
            running._refuse_names({"text_field": None, "split": value})
    folder = CorpusFolder(tmp_path)
    running._refuse_resume(folder, False)
    with pytest.raises(InputError, match=r"holds no run to resume\. Leave resume= out to begin one\.$"):
        running._refuse_resume(folder, True)
    (tmp_path / "manifest.json").touch()
    running._refuse_resume(folder, True)


def test_rows_that_cannot_be_read_name_the_data() -> None:
    def rows(error: Exception) -> Any:
        yield "first"
        raise error

    for error, kind, message in (
        (
            OSError(5, "Input/output error"),
            InputError,
            "the data cannot be read: Input/output error. The same command goes on.",
        ),
        (OSError("odd"), InputError, "the data cannot be read: odd. The same command goes on."),
        (ResultError("own"), ResultError, "own"),
    ):
        guarded = running._guarded(rows(error))
        assert next(guarded) == "first"
        with pytest.raises(kind) as told:
            next(guarded)
        assert str(told.value) == message
    assert list(running._guarded(iter(["a", "b"]))) == ["a", "b"]  # type: ignore[list-item]


def test_notices_are_of_the_first_window(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def encode(row: Any) -> Any:
        if row == 3:
            raise InputError("bad")
        return f"code {row}"

    monkeypatch.setattr(
        running, "notices_of_corpus", lambda model, texts, **named: asked.append((model, texts, named)) or ["careful"]
    )
    monkeypatch.setattr(running, "NOTICED", 3)
    requests = {"alti": SimpleNamespace(class_specific=False)}
    made: Any = SimpleNamespace(encode=encode, requests=requests, model="model", plan=SimpleNamespace(query="q"))
    made.shorter = lambda row: row
    rows = [1, RowError("s", 1, "r", "row"), 2, 3, 4]
    with pytest.warns(UserWarning, match=r"^careful$") as told:
        found = list(running._with_notices(made, iter([(0, rows), (1, [5])])))  # type: ignore[list-item]
    assert (found, len(told)) == ([(0, rows), (1, [5])], 1)
    assert asked == [("model", ["code 1", "code 2"], {"query": "q", "targets": False})]
    requests["attcat"] = SimpleNamespace(class_specific=True)
    running._notices(made, [])
    assert asked[1] == ("model", [], {"query": "q", "targets": True})
    assert list(running._with_notices(made, iter([]))) == []


def test_where_the_model_of_this_process_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Any] = []
    monkeypatch.setattr(running, "load", lambda name, **named: loads.append((name, named)) or "model")
    options = {"device": "cuda", "dtype": "float64"}
    assert running._model_here("m", options, on_ray=False) == "model"  # type: ignore[comparison-overlap]
    running._model_here("m", options, on_ray=True)
    assert loads == [("m", options), ("m", {"dtype": "float64", "device": "cpu"})]
    made = object.__new__(running.Model)
    assert running._model_here(made, {}, on_ray=False) is made
    with pytest.raises(
        InputError, match=r"^every Ray worker loads the model itself: give its name or its folder, not a loaded"
    ):
        running._model_here(made, {}, on_ray=True)


def test_the_checksum_of_a_chat_template() -> None:
    model: Any = SimpleNamespace(tokenizer=SimpleNamespace(chat_template="{{ x }}"))
    expected = hashlib.sha256(b'"{{ x }}"').hexdigest()[:16]
    assert run_identity._template(model) == expected
    model.tokenizer.chat_template = {"b": "2", "a": "1"}
    assert run_identity._template(model) == hashlib.sha256(b'{"a": "1", "b": "2"}').hexdigest()[:16]
    assert run_identity._template(SimpleNamespace(tokenizer=None)) == hashlib.sha256(b"null").hexdigest()[:16]  # type: ignore[arg-type]


def test_load_options_of_the_process_that_only_writes() -> None:
    assert run_identity.without_gpu({"dtype": "x", "device": "cuda"}) == {"dtype": "x", "device": "cpu"}
    spread = {"device_map": "auto", "max_memory": {0: "1"}, "offload_folder": "f", "dtype": "x"}
    assert run_identity.without_gpu(spread) == {"dtype": "x", "device_map": {"": "disk"}, "offload_folder": "f"}
    packed = {**spread, "quantization": "4bit"}
    assert run_identity.without_gpu(packed) == {"dtype": "x", "quantization": "4bit", "device": "cpu"}
    places: Any = SimpleNamespace(device="cuda")
    assert run_identity.places_of(places) == {"device": "cuda", "kernels": "triton"}
    places.device = "cpu"
    assert run_identity.places_of(places)["kernels"] == run_identity.used(torch.device("cpu"))


def test_options_of_a_plan_in_an_identity() -> None:
    usual = {
        "target": "predicted",
        "foil": None,
        "score": None,
        "query": None,
        "maps": None,
        "batch_tokens": None,
        "columns": (),
    }
    plain = run_identity._plan_options(SimpleNamespace(plan=Plan(("a",))))  # type: ignore[arg-type]
    assert running._without_idle({"options": plain}) == {"options": usual}
    whole = Plan(("a",), "t", 1, "logit", 2, "float16", 9, ("x",), (("x", "int64"),), True, 3)
    options = run_identity._plan_options(SimpleNamespace(plan=whole))  # type: ignore[arg-type]
    assert running._without_idle({"options": options})["options"] == {
        **{
            "target": "t",
            "foil": 1,
            "score": "logit",
            "query": 2,
            "maps": "float16",
            "batch_tokens": 9,
            "columns": ("x",),
        },
        **{"kinds": {"x": "int64"}, "trust": True, "generate": 3},
    }
    cut = {"options": {"truncate": True}}
    assert running._without_idle(cut) == {"options": {"truncate": True}}
    assert "python" not in run_identity._library_versions()
    config = SimpleNamespace(id2label={0: "a"}, num_labels=2)
    model: Any = SimpleNamespace(task="classification", hf_model=SimpleNamespace(config=config))
    assert run_identity._classes(model) == ["a", "1"]
    model.task = "causal-lm"
    assert run_identity._classes(model) is None


# --- the work ---------------------------------------------------------------------------------------------------------


class MadeFolder(CorpusFolder):
    def __init__(self, place: Path):
        super().__init__(place)
        self.dropped: list[Shard] = []

    def drop(self, shard: Shard, aside: list[str]) -> None:
        self.dropped.append(shard)
        aside.append(shard.file)


def shard(number: int, rows: int = 2, errors: int = 0, source: str = "i") -> Shard:
    return Shard(number, f"part-{number}", rows, errors, "sha", source, None)


def corpus_run(folder: Any, **more: Any) -> Any:
    made = object.__new__(running._CorpusRun)
    made.folder, made.done, made.aside, made.key, made.pool = folder, {}, [], "key", None
    made.identity, made.facts = {"device": "cpu", "model": "hash", "kernels": "c", "n": 1}, {"schema": 1}
    made.source = SimpleNamespace(total=None, rows=lambda: iter([]), source=None, unchanged=lambda: None)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_windows_without_a_shard_of_the_same_rows_are_missing(tmp_path: Path) -> None:
    folder = MadeFolder(tmp_path)
    rows = [row_of(number, {"text": f"t{number}"}, Fields("text"), "s", "row") for number in range(1, 6)]
    made = corpus_run(folder)
    made.source.rows, made.source.source = lambda: iter(rows), "a file"
    same = running.fingerprint(rows[:2])
    made.done = {0: shard(0, source=same), 1: shard(1, source="other"), 3: shard(3), 4: shard(4)}
    with pytest.warns(UserWarning, match=r"^damaged") as told:
        found = list(made._missing(2))
    assert [(number, len(window)) for number, window in found] == [(1, 2), (2, 1)]
    assert [one.number for one in folder.dropped] == [1, 3, 4]
    assert (list(made.done), made.aside, len(told)) == ([0], ["part-1", "part-3", "part-4"], 3)
    made.source.source, made.done = None, {1: shard(1, source="other")}
    with pytest.raises(
        InputError, match=r"^the data is not what it was: rows from 3 on differ from those that were explained"
    ):
        list(made._missing(2))
    made.done = {3: shard(3)}
    with pytest.raises(
        InputError, match=r"^the data is not what it was: part-3 was made of rows that are not there any more\.$"
    ):
        list(made._missing(2))


def test_what_workers_must_have_in_common_with_the_run(tmp_path: Path) -> None:
    made = corpus_run(MadeFolder(tmp_path))
    assert made._expected() == {"device": "cpu", "kernels": "c", "model": "hash"}
    made.identity["quantization"] = "4bit"
    assert made._expected() == {"device": "cpu", "kernels": "c", "quantization": "4bit"}
    asked: list[Any] = []
    made.pool = SimpleNamespace(shards=lambda *given: asked.append(given) or "shards")
    assert made._shards("missing", "tick") == "shards"
    assert asked == [("missing", "key", made._expected(), "tick")]
    made.pool, made.worker = None, SimpleNamespace(window=lambda *given: given)
    assert list(made._shards([(3, "rows")], "tick")) == [(3, "rows", "key", "tick")]


def test_a_run_adds_shards_and_counts_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[Any] = []

    class Bar:
        def __init__(self, **named: Any):
            bars.append(named)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        update = staticmethod(lambda count: None)

    monkeypatch.setattr(running, "tqdm", Bar)
    monkeypatch.setattr(running, "_with_notices", lambda worker, missing: missing)
    made = corpus_run(MadeFolder(tmp_path), worker=None)
    made.source.total = 9
    bad = (BadRow(7, None, "r"),)
    made._shards = lambda missing, tick: [files_of(1, 3, bad), files_of(2, 1)]
    made.folder.add = lambda files: shard(files.number, files.rows, len(files.bad))
    made.done = {0: shard(0, 2, 1)}
    for progress, disable in ((None, None), (True, False), (False, True)):
        assert made._work(2, False, progress) == 5
        assert bars[-1]["disable"] is disable
    assert bars[0] == {"total": 9, "initial": 3, "unit": "row", "desc": "run", "disable": None, "smoothing": 0.1}
    assert sorted(made.done) == [0, 1, 2]
    assert (tmp_path / "errors.jsonl").read_text() == '{"row": 7, "id": null, "reason": "r"}\n' * 3
    with pytest.raises(InputError, match=r"^row 7: r"):
        made._work(2, True, None)


def test_the_end_of_a_run(tmp_path: Path) -> None:
    steps: list[str] = []
    made = corpus_run(MadeFolder(tmp_path))
    made._begin, made._work = lambda: None, lambda size, strict, progress: 7
    made.source.unchanged = lambda: steps.append("source")
    made.folder.still_held = lambda: steps.append("held")
    made.folder.write_errors = lambda done: steps.append("errors")
    made.done, made.aside = {1: shard(1, 2, 1), 0: shard(0, 3, 4)}, ["x"]
    found = made.run(2, False, None)
    assert (found.out, found.rows, found.errors, found.done, found.aside) == (tmp_path, 5, 5, 7, ("x",))
    assert 0 <= found.seconds < 60
    assert steps == ["source", "held", "errors"]
    written = json.loads((tmp_path / "manifest.json").read_text())
    assert (written["schema"], written["finished"], written["rows"], written["errors"]) == (1, True, 5, 5)
    assert [one["number"] for one in written["shards"]] == [0, 1]
    assert (tmp_path / "manifest.json").read_text() == json.dumps(written, ensure_ascii=False, indent=1) + "\n"
    made.folder.bad_rows = lambda done: iter([{"reason": "r"}])
    made.done = {0: shard(0, 0, 1)}
    assert made.run(2, False, None).errors == 1  # one bad row alone is no refusal here
    made.done = {0: shard(0, 0, 2)}
    with pytest.raises(MixlensError, match=r"^none of the 2 rows could be explained; 1 of them because: r\. "):
        made.run(2, False, None)


def test_shards_that_are_computed_again_leave_the_list(tmp_path: Path) -> None:
    made = corpus_run(MadeFolder(tmp_path))
    made.done = {1: shard(1)}
    made._shorten_list([{"number": 1}])
    assert not (tmp_path / "manifest.json").exists()
    made._shorten_list([{"number": 0}, {"number": 1}])
    assert json.loads((tmp_path / "manifest.json").read_text()) == {
        "schema": 1,
        "finished": False,
        "shards": [{"number": 1}],
    }


# --- the folder -------------------------------------------------------------------------------------------------------


def parquet_of(run: str = "run", number: int = 0, **facts: Any) -> bytes:
    import pyarrow as pa

    from mixlens.runs.corpus.parquet import parquet_content

    whole = {"schema": 1, "run": run, "number": number, "input": "i", "maps": None, "errors": [{"row": 1}], **facts}
    return parquet_content(table_of([{"row": 5}, {"row": 6}], pa.schema([("row", pa.int64())]), whole))


def test_a_shard_says_what_it_is(tmp_path: Path) -> None:
    content = parquet_of()
    path = tmp_path / file_name(0, content)
    path.write_bytes(content)
    assert path.name.startswith("part-0000000-")
    import hashlib

    digest = hashlib.sha256(content).hexdigest()
    assert path.name == f"part-0000000-{digest[:16]}.parquet"
    assert shards.read_shard(path, content, "run") == Shard(0, path.name, 2, 1, digest, "i", None)
    assert list(shards.rows_in(path)) == [{"row": 5}, {"row": 6}]
    assert list(shards.rows_in(path, ["row", "none"])) == [{"row": 5}, {"row": 6}]
    with pytest.raises(ResultError) as told:
        shards.read_shard(path, content, "other")
    assert str(told.value) == f"{path.name!r} is a shard of another run."
    with pytest.raises(ResultError, match="is no shard of a corpus run"):
        shards.read_shard(path, parquet_of(number="x"), "run")  # type: ignore[arg-type]
    with pytest.raises(ResultError, match="has schema 2; this mixlens reads 1"):
        shards.facts_of(path, parquet_of(schema=2))
    with pytest.raises(ResultError, match=r"is not a shard of mixlens, or is damaged \(ArrowInvalid\)\.$"):
        shards.facts_of(path, b"x")
    path.write_bytes(b"x")
    with pytest.raises(ResultError, match=r"cannot be read \(ArrowInvalid\)\. Give the run's command again\.$"):
        list(shards.rows_in(path))


def test_which_files_of_a_folder_are_done(tmp_path: Path) -> None:
    folder = CorpusFolder(tmp_path)
    folder.begin(b"{}", maps=True)
    assert (folder.shards.is_dir(), folder.maps.is_dir(), (tmp_path / "manifest.json").read_bytes()) == (
        True,
        True,
        b"{}",
    )
    maps = b"maps"
    maps_name, lost_name = file_name(1, maps), file_name(9, b"lost")
    good = {number: parquet_of(number=number, maps=maps_name if number == 1 else None) for number in (0, 1)}
    for number, content in good.items():
        (folder.shards / file_name(number, content)).write_bytes(content)
    (folder.maps / maps_name).write_bytes(maps)
    (folder.maps / lost_name).write_bytes(b"lost")  # whole, and of no shard: computed again
    (folder.maps / "part-0000008-0000000000000000.parquet").write_bytes(b"damaged")
    bad = [parquet_of(number=2, maps=file_name(2, b"none")), parquet_of("other", 3), parquet_of(number=5)]
    names = [
        file_name(2, bad[0]),
        file_name(3, bad[1]),
        file_name(4, bad[2]),
        "part-0000006-0000000000000000.parquet",
        "note.txt",
    ]
    for name, content in zip(names, [*bad, good[0], b"x"], strict=True):
        (folder.shards / name).write_bytes(content)
    done, aside = folder.done("run", {})
    assert (list(done), done[1].maps) == ([0, 1], maps_name)
    assert sorted(aside) == sorted([*names, "part-0000008-0000000000000000.parquet"])
    assert not (folder.maps / lost_name).exists()
    assert sorted(path.name for path in folder.shards.iterdir() if not path.name.startswith(".")) == sorted(
        file_name(number, content) for number, content in good.items()
    )
    assert (folder.shards / ".aside-note.txt").read_bytes() == b"x"
    listed = {0: (done[0].file, "0" * 64), 1: (done[1].file, done[1].sha256)}
    again, moved = folder.done("run", listed)
    assert (list(again), moved) == ([1], [done[0].file])
    folder.drop(again[1], moved)
    assert moved[1:] == [done[1].file, maps_name]


def test_two_files_of_one_name_are_both_kept_aside(tmp_path: Path) -> None:
    folder, aside = CorpusFolder(tmp_path), list[str]()
    for content in (b"1", b"2"):
        (tmp_path / "x").write_bytes(content)
        folder.put_aside(tmp_path / "x", aside)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert (aside, len(names), ".aside-x" in names) == (["x", "x"], 2, True)
    long = tmp_path / ("é" * 120)
    long.touch()
    folder.put_aside(long, aside)
    assert (tmp_path / f".aside-{'é' * 100}").exists()
    assert shards._short("a" * 200) == "a" * 200
    assert shards._short("a" * 201) == "a" * 200


def test_the_list_of_shards_in_a_manifest(tmp_path: Path) -> None:
    folder = CorpusFolder(tmp_path)
    assert folder.listed() == ({}, False)
    entry = {"number": 3, "file": "f", "sha256": "s"}
    for content, found in (
        *(([entry], ({3: ("f", "s")}, False)), ([], ({}, False)), ("x", ({}, True)), ([entry, 3], ({}, True))),
        *(([{**entry, "number": "3"}], ({}, True)), ([{"number": 3}], ({}, True))),
    ):
        (tmp_path / "manifest.json").write_text(json.dumps({"identity": {}, "shards": content}))
        assert folder.listed() == found
    (tmp_path / "manifest.json").write_text(json.dumps({"identity": {}}))
    assert folder.listed() == ({}, False)


def test_a_shard_is_added_after_its_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[Path] = []
    monkeypatch.setattr(shards, "write", lambda place, content: order.append(place))
    folder = CorpusFolder(tmp_path)
    bad = (BadRow(1, None, "r"),)
    found = folder.add(files_of(4, 2, bad, name="n", maps=b"m", maps_name="mn", content=b"c"))
    assert order == [tmp_path / "maps" / "mn", tmp_path / "shards" / "n"]
    assert (found.number, found.file, found.rows, found.errors, found.input, found.maps) == (4, "n", 2, 1, "i", "mn")
    folder.add(files_of(5, name="o"))
    assert order[2:] == [tmp_path / "shards" / "o"]
    folder.add_errors([])
    assert not folder.errors.exists()


# --- where rows come from ---------------------------------------------------------------------------------------------


def test_rows_given_in_python() -> None:
    known = Example("the text", target="t", foil="f", id=7, info={"x": 1, "label": "l"})
    found = sources.corpus([known], fields=Fields(columns=("x", "cues")), split=None, limit=None)
    assert (found.name, found.fingerprint, found.total, found.kinds, found.source) == (
        "rows given in Python",
        None,
        1,
        (),
        None,
    )
    assert list(found.rows()) == [InputRow(1, "7", "the text", None, None, None, None, "t", "f", ("1", "[]"))]
    (row,) = sources.corpus([Example("a", info={"label": 0})], fields=Fields(), split=None, limit=None).rows()
    assert (row.id, row.target) == ("1", 0)  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"^the examples have no field 'y'\. "):
        list(sources.corpus([known], fields=Fields(columns=("y",)), split=None, limit=None).rows())
    values = ["a", ("b", "c"), ("d",), 3, {"text": "e"}, Example(3)]  # type: ignore[arg-type]
    rows = list(sources.corpus(iter(values), fields=Fields(), split=None, limit=None).rows())
    assert [(row.text, row.pair) if isinstance(row, InputRow) else row.reason for row in rows] == [
        *(("a", None), ("b", "c"), "tuple, not a text, a (text, pair), an Example or a mapping"),
        *("int, not a text, a (text, pair), an Example or a mapping", ("e", None), "the text is int, not a string"),
    ]
    assert [row.number if isinstance(row, RowError) else row.row for row in rows] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(InputError, match=r"^rows that are given in Python have no split: leave split= out\.$"):
        sources.corpus(["a"], fields=Fields(), split="train", limit=None)
    first = sources.corpus(["a", "b", "c"], fields=Fields(), split=None, limit=2)
    assert (first.total, len(list(first.rows())), len(list(first.rows()))) == (2, 2, 2)
    assert sources.corpus(["a"], fields=Fields(), split=None, limit=2).total == 1
    assert sources.corpus(iter("ab"), fields=Fields(), split=None, limit=5).total == 5


def test_the_fields_that_are_meant() -> None:
    usual = sources._usual_fields
    assert usual(Fields(), ["sentence", "input_ids"], "s") == Fields(text="sentence")
    assert usual(Fields(), ["input_ids"], "s") == Fields(ids="input_ids")
    assert usual(Fields(ids="x"), ["x", "text"], "s") == Fields(ids="x")
    for fields, names, told in (
        (
            Fields(text="a", ids="b"),
            ["a", "b"],
            "a row is read as text or as ids: give text_field= or ids_field=, not both.",
        ),
        (Fields(pair="b"), ["input_ids", "b"], "ids hold both texts already: leave pair_field= out."),
        (Fields(text="a", pair="p", columns=("z",)), ["a", "p"], "s has no field 'z'. Known: a, p."),
        (Fields(pair="q"), ["text"], "s has no field 'q'. Known: text. Name the field: pair_field=NAME."),
        (Fields(), ["other"], "s has no field 'text'. Known: other. Name the field: text_field=NAME."),
    ):
        with pytest.raises(InputError) as found:
            usual(fields, names, "s")
        assert str(found.value) == told


def test_a_quote_that_is_not_closed_is_warned_of() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        sources._warn_of_quote(RowError("s", 1, "r", "row"))
        sources._warn_of_quote({"a": 1})
        assert told == []
        sources._warn_of_quote(RowError("s", 1, "r", "line", 3))
    assert [str(one.message).endswith(". Close the quote, and begin anew in another folder.") for one in told] == [True]


# --- the columns of a row ---------------------------------------------------------------------------------------------


def test_columns_of_a_row() -> None:
    row = InputRow(3, "i", "t", None, None, None, None, None, None, ())
    code: Any = SimpleNamespace(tokens=("a", "\ud800"), input_ids=(1, 2), offsets=((0, 1), (1, 4)), sequences=(None, 0))
    assert input_columns(row, code) == {
        "row": 3,
        "id": "i",
        "text": "t",
        "pair": None,
        "input_ids": [1, 2],
        "tokens": ["a", "\\ud800"],
    }
    assert spans(code) == {"starts": [0, 1], "ends": [1, 4], "segments": [-1, 0]}
    code.sequences = None
    assert spans(code) == {}
    maps: Any = {"a": SimpleNamespace(info={"gap": 0.25}), "b": SimpleNamespace(info={"gap": 0.5})}
    answer: Any = Answer(None, maps, {}, [("w", 0.75), ("v", 0.1)], 0.0)  # type: ignore[arg-type]
    assert answer_columns(answer) == {"prediction": "w", "probability": 0.75, "target": None, "gap": 0.5}
    none: Any = Answer(None, {}, {}, [], 0.0)  # type: ignore[arg-type]
    assert answer_columns(none) == {"prediction": None, "probability": None, "target": None, "gap": None}
    numbers = map_numbers({"a": SimpleNamespace(scores=torch.ones(1, 2, 2, dtype=torch.float64))}, torch.float16)  # type: ignore[dict-item]
    assert (numbers["a"].dtype, numbers["a"].shape) == (np.float16, (1, 2, 2))
    assert or_raise(3) == 3
    with pytest.raises(InputError):
        or_raise(InputError("x"))


@pytest.mark.parametrize(("kind", "width"), [("float16", "halffloat"), ("float32", "float")])
def test_maps_as_a_file(kind: str, width: str, tmp_path: Path) -> None:
    rows = [{"row": 4, "maps": {"a": np.arange(8.0).reshape(2, 2, 2).astype(kind), "b": np.ones((1, 2, 2), kind)}}]
    path = tmp_path / "maps"
    path.write_bytes(maps_content(3, rows, kind))
    first, second = shards.rows_in(path)
    assert first == {"row": 4, "method": "a", "layers": 2, "tokens": 2, "scores": list(np.arange(8.0))}
    assert (second["method"], second["layers"], second["scores"]) == ("b", 1, [1.0] * 4)
    with shards.open_parquet(path) as file:
        assert str(file.schema_arrow.field("scores").type.value_type) == width
        assert json.loads(file.schema_arrow.metadata[b"mixlens"]) == {"schema": 1, "number": 3}


def test_the_schema_of_a_shard() -> None:
    plan = Plan(("m", "n"), columns=("x", "y"), kinds=(("x", "int64"),), trust=True, generate=2)
    schema = schema_of(plan, torch.float64, ["m"])
    assert schema.names == [
        *(
            "row",
            "id",
            "text",
            "pair",
            "input_ids",
            "tokens",
            "starts",
            "ends",
            "segments",
            "query",
            "prediction",
            "probability",
        ),
        *("target", "gap", "x", "y", "m", "n", "mixing_ratio:m", "without:m", "without:n", "turned:m", "turned:n"),
        *(
            "completeness:m",
            "completeness:n",
            "without_random",
            "turned_random",
            "written",
            "written_ids",
            "probabilities",
            "layout",
        ),
        *("written:m", "written:n", "seconds"),
    ]
    types = {name: str(schema.field(name).type) for name in schema.names}
    assert (types["row"], types["x"], types["y"], types["m"]) == ("int64", "int64", "string", "list<item: double>")
    assert (types["mixing_ratio:m"], types["turned:m"], types["written:m"]) == (
        "list<item: float>",
        "bool",
        "list<item: double>",
    )
    assert (types["segments"], types["query"], types["gap"], types["written_ids"]) == (
        "list<item: int8>",
        "int32",
        "double",
        "list<item: int32>",
    )
    plain = schema_of(Plan(("m",)), torch.float32, [])
    assert (plain.names[-2:], str(plain.field("m").type)) == (["m", "seconds"], "list<item: float>")


# --- the work on a window ---------------------------------------------------------------------------------------------


def made_worker(plan: Plan, **requests: Any) -> Any:
    made = object.__new__(Worker)
    made.plan, made.requests = plan, requests
    made.model = SimpleNamespace(device=torch.device("cpu"))
    return made


def input_row(number: int, **more: Any) -> InputRow:
    given = {"text": "t", "pair": None, "input_ids": None, "token_type_ids": None, "attention_mask": None}
    return InputRow(**{"row": number, "id": f"r{number}", **given, "target": None, "foil": None, "columns": (), **more})


def test_a_window_is_split_into_good_and_bad_rows() -> None:
    made, ticks = made_worker(Plan(("m",))), list[int]()

    def encode(row: InputRow) -> Any:
        if row.row == 2:
            raise LongError("too long")
        if row.row == 5:
            raise MemoryError
        return SimpleNamespace(input_ids=[row.row])

    made.encode = encode
    made.model.batches = lambda codes, none, tokens: [[1, 0]] if len(codes) == 2 else []
    made._batch = lambda rows, encoded, compare: [
        {"row": row.row} if row.row != 4 else InputError("refused") for row in rows
    ]
    made._files = lambda *given: given
    rows = [input_row(4), input_row(2), RowError("s", 3, "no row", "row"), input_row(1), input_row(5)]
    number, run, source, good, bad = made.window(7, rows, "run", ticks.append)
    assert (number, run, source, good) == (7, "run", worker.fingerprint(rows), [{"row": 1}])
    assert bad == [
        *(BadRow(2, "r2", "too long"), BadRow(3, "3", "no row"), BadRow(4, "r4", "refused")),
        BadRow(5, "r5", "memory runs out while the text is cut into tokens."),
    ]
    assert ticks == [3, 2]
    assert worker._bad_row(input_row(1), InputError("x" * 500)).reason == "x" * 400
    assert worker._bad_row(input_row(1), ValueError()).reason == "ValueError"


def test_a_batch_that_fails_is_halved() -> None:
    made, asked = made_worker(Plan(("m",))), list[Any]()

    def answers(rows: Any, encoded: Any, compare: bool) -> Any:
        asked.append(list(rows))
        if 3 in rows:
            raise InputError("three")
        return [f"answer {row}" for row in rows]

    made._answers_of_batch, made._row_or_reason = answers, lambda row, code, answer: (row, code, answer)
    codes = [SimpleNamespace(input_ids=[0] * number) for number in range(5)]
    found = made._batch([1, 2, 3, 4, 5], codes)
    assert asked == [[1, 2, 3, 4, 5], [1, 2], [3, 4, 5], [3], [4, 5]]
    assert [str(one) if isinstance(one, InputError) else one[2] for one in found] == [
        *("answer 1", "answer 2", "three", "answer 4", "answer 5")
    ]
    code: Any = SimpleNamespace(input_ids=[1, 2, 3])
    assert str(worker._reason(MemoryError(), code)) == "memory runs out with 3 tokens"
    assert str(worker._reason(torch.OutOfMemoryError("CUDA out of memory"), code)) == "memory runs out with 3 tokens"
    with pytest.raises(RuntimeError, match="other"):
        worker._reason(RuntimeError("other"), code)


def test_the_seconds_of_a_batch_are_shared_by_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made, clock = made_worker(Plan(("m",))), iter([10.0, 16.0])
    made.streams = False
    made._trace = lambda encoded, compare: (["t1", "t2", "t3"], [{}, {}, {}])
    made._attribution_scores = lambda rows, traces: {"a": [1, 2, 3]}
    made._map_scores = lambda traces, maps: {"m": [4, 5, 6]}
    monkeypatch.setattr(worker, "predictions", lambda traces, k: [f"p{k} of {trace}" for trace in traces])
    monkeypatch.setattr(worker.time, "perf_counter", lambda: next(clock))
    found = made._answers_of_batch([input_row(1), input_row(2), input_row(3)], ["c1", "c2", "c3"], True)
    assert [one.seconds for one in found] == [2.0] * 3
    assert found[1] == worker.Answer("t2", {}, {"m": 5, "a": 2}, "p1 of t2", 2.0)


def test_what_is_asked_of_one_row() -> None:
    specific, other = SimpleNamespace(class_specific=True), SimpleNamespace(class_specific=False)
    made = made_worker(Plan(("m",), target="t", foil="f", score="logit", query=2))
    assert made._question(other, input_row(1)) == {"query": 2}
    assert made._question(specific, input_row(1)) == {"query": 2, "target": "t", "foil": "f", "score": "logit"}
    gold = made_worker(Plan(("m",), target="gold"))
    assert gold._question(specific, input_row(1, target="a", foil="b")) == {
        "query": None,
        "target": "a",
        "foil": "b",
        "score": None,
    }
    assert (
        str(gold._question(specific, input_row(1)))
        == "the row has no target and no label, so there is no gold target to explain."
    )
    both = made_worker(Plan(("m",), target="gold", foil="c"))
    assert both._question(specific, input_row(1, target="a", foil="b"))["foil"] == "c"
    assert gold._question(specific, input_row(1, target=0, foil=None)) == {
        "query": None,
        "target": 0,
        "foil": None,
        "score": None,
    }


def test_tokens_of_one_row() -> None:
    made, asked = made_worker(Plan(("m",))), list[Any]()
    made.model.encode_all = lambda *given: (asked.append(given), (["code"], None))[1]
    assert made.encode(input_row(1)) == "code"
    made.encode(input_row(1, pair="p", input_ids=[1], token_type_ids=[2], attention_mask=[3]))
    assert asked == [("t", None, None, None), (("t", "p"), [1], [2], [3])]


def test_rows_of_a_batch_that_is_refused_are_rolled_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def together(maps: Any, places: Any, *, convention: Any) -> Any:
        if "bad" in maps:
            raise InputError("refused")
        return [(one, place, convention, "together") for one, place in zip(maps, places, strict=True)]

    def alone(one: Any, place: int, *, convention: Any) -> Any:
        if one == "bad":
            raise InputError("this one")
        return (one, place, convention)

    monkeypatch.setattr(worker, "rolled_rows", together)
    monkeypatch.setattr(worker, "rolled_row", alone)
    assert worker._rows_at(["a", "x", "b"], [1, 2, 3], "c", [0, 2]) == [
        ("a", 1, "c", "together"),
        ("b", 3, "c", "together"),
    ]  # type: ignore[list-item, comparison-overlap]
    found = worker._rows_at(["a", "bad"], [1, 2], "c", [0, 1])  # type: ignore[list-item]
    assert (found[0], str(found[1])) == (("a", 1, "c"), "this one")
    assert worker._rows_at([], [], None, []) == []


def test_columns_of_scores() -> None:
    made = made_worker(Plan(("m", "n")), m=SimpleNamespace(is_map=True), n=SimpleNamespace(is_map=False))
    read: Any = SimpleNamespace(scores=torch.tensor([1.0, 2.0]), info={"target": "t"})
    assert list(made._scores("m", read, "old")) == ["m"]
    assert made._scores("n", read, "old")["target"] == "t"
    read.info["target"] = None
    assert made._scores("n", read, "old")["target"] == "old"
    assert made._scores("n", read, "old")["n"].tolist() == [1.0, 2.0]


# --- written texts and maps that were kept ----------------------------------------------------------------------------


def test_rows_of_growing_length() -> None:
    table = writing._table([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], 2, 3)
    assert table.tolist() == [[1.0, 2.0, 0.0, 0.0, 0.0], [3.0, 4.0, 5.0, 0.0, 0.0], [6.0, 7.0, 8.0, 9.0, 0.0]]
    manifest = {
        "identity": {"methods": ["a", "b"], "options": {"generate": 2}, "dtype": "float32"},
        "versions": {"v": 1},
    }
    manifest["model"] = {"name": "n", "revision": "r", "family": "f", "task": "t"}
    assert [writing._method(manifest, name) for name in (None, "b")] == ["a", "b"]
    with pytest.raises(InputError, match=r"^the run has no method 'c'\. It has a, b\.$"):
        writing._method(manifest, "c")
    with pytest.raises(
        InputError, match=r"^this run has no written texts\. Give generate= to run, on the command line"
    ):
        writing._method({"identity": {"methods": ["a"]}}, None)
    assert writing._provenance(manifest) == {
        **{"model": "n", "revision": "r", "family": "f", "task": "t", "dtype": "float32", "versions": {"v": 1}}
    }
    scores = torch.tensor([[1.0, 2.0, 0.0, 0.0], [3.0, 6.0, 5.0, 0.0]], dtype=torch.float64)

    class Result(SimpleNamespace):
        def __len__(self) -> int:
            return 2

    columns = writing._score_columns("m", Result(text=SimpleNamespace(begin=2), scores=scores))  # type: ignore[arg-type]
    assert {name: values.tolist() for name, values in columns.items()} == {
        "m": [2.0, 4.0],
        "written:m": [1.0, 2.0, 3.0, 6.0, 5.0],
    }


def test_maps_of_rows_that_are_wanted(tmp_path: Path) -> None:
    every, some = stored_maps._Wanted(None), stored_maps._Wanted([5, 9])
    assert (every.holds(1), every.is_complete(), every.is_in(tmp_path)) == (True, False, True)
    assert (some.holds(5), some.holds(6), some.is_complete(), some.missing) == (True, False, False, {5, 9})
    path = tmp_path / "part"
    path.write_bytes(parquet_of())
    assert (some.is_in(path), some.missing, some.is_complete()) == (True, {9}, False)
    assert not some.is_in(path)
    some.missing = set()
    assert some.is_complete()
    assert stored_maps._Wanted([]).is_complete()
    with pytest.raises(ResultError, match=r"^the maps of 'part' are not there\. Give the run's command again\.$"):
        stored_maps._place(tmp_path / "shards" / "part", "part-0000000-0123456789abcdef.parquet")


# --- Ray, without a cluster -------------------------------------------------------------------------------------------


def test_the_pipeline_that_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Data:
        def map_batches(self, what: Any, **named: Any) -> Data:
            asked.setdefault("steps", []).append((what, named))
            return self

        def iter_batches(self, **named: Any) -> Any:
            asked["read"] = named
            yield SimpleNamespace(to_pylist=lambda: ["row 1", "row 2"])

    feed = SimpleNamespace(_actor_id=b"\xab")

    def options(**named: Any) -> Any:
        asked["feed"] = named
        return SimpleNamespace(remote=lambda: feed)

    strategy = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft))
    made = object.__new__(ray_pool.Pool)
    fake = SimpleNamespace(
        util=SimpleNamespace(scheduling_strategies=strategy),
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "here"),
        remote=lambda kind: SimpleNamespace(options=options),
        _private=SimpleNamespace(state=SimpleNamespace(actors=dict)),
        data=SimpleNamespace(from_items=lambda items: Data(), ActorPoolStrategy=lambda **named: named),
    )
    import contextlib

    made.ray, made.settings, made.size, made.gpus = fake, contextlib.ExitStack(), (2, 5), 1
    made.model, made.options, made.plan = "m", {"o": 1}, "plan"  # type: ignore[assignment]
    monkeypatch.setattr(ray_pool, "settings", lambda ray: contextlib.nullcontext(["lines"]))
    monkeypatch.setattr(ray_pool, "tickets_of", lambda given: ("tickets of", given))
    arrivals = made._begin({"device": "cpu"}, "run")
    assert made.pump is not None
    made.pump.join(20)
    assert [arrivals.get_nowait() for _ in range(3)] == ["row 1", "row 2", None]
    assert asked["feed"] == {
        **{"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "max_concurrency": 1000},
        "scheduling_strategy": ("here", False),
    }
    assert asked["read"] == {"batch_size": None, "batch_format": "pyarrow", "prefetch_batches": 0}
    assert asked["steps"][0] == (("tickets of", feed), {"batch_size": 1, "num_cpus": 0})
    remote, named = asked["steps"][1]
    assert remote is ray_pool.Remote
    assert named == {
        **{"batch_size": 1, "batch_format": "pyarrow", "num_cpus": 1, "num_gpus": 1},
        "fn_constructor_args": (feed, "m", {"o": 1}, "plan", {"device": "cpu"}, "run"),
        "compute": {"min_size": 2, "max_size": 5, "max_tasks_in_flight_per_actor": 2},
    }
    assert (made.printed, made.watch is not None and made.watch.feed, made.pump.daemon) == (["lines"], "ab", True)
    made.gpus = 0
    made._begin({}, "run")
    assert asked["steps"][3][1]["num_gpus"] is None


def test_what_ends_the_pipeline_is_an_error_of_mixlens() -> None:
    def fails(**_: Any) -> Any:
        raise OSError("disk")

    arrivals: queue.Queue[Any] = queue.Queue()
    ray_pool._pump(SimpleNamespace(iter_batches=fails), arrivals)
    assert isinstance(arrivals.get_nowait(), OSError)
    assert arrivals.empty()
    own = InputError("own")
    outer = RuntimeError("ray")
    outer.__cause__ = own
    assert ray_pool._failure(outer) is own
    carried = RuntimeError("ray")
    carried.cause = own  # type: ignore[attr-defined]
    assert ray_pool._failure(carried) is own
    other = ray_pool._failure(ValueError("x " * 400))
    assert (
        str(other)
        == f"Ray gave up (ValueError: {('x ' * 400).strip()[-300:]}). What is done is safe: the same command goes on."
    )
    assert isinstance(other.__cause__, ValueError)


def test_what_is_done_while_no_window_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(ray_pool, "time", SimpleNamespace(monotonic=lambda: now[0]))
    seen: list[Any] = []
    over = [False]
    pool: Any = SimpleNamespace(
        look_after=lambda tickets, worked: seen.append(worked) or (begun[0], "seen"),
        not_begun=lambda seen: f"why {seen}",
    )
    repeated: list[bool] = []
    wait = ray_pool._Wait(pool, SimpleNamespace(repeat_all=lambda: repeated.append(True)))  # type: ignore[arg-type]
    wait.patience = SimpleNamespace(done=lambda seconds: None, is_over=lambda: over[0])  # type: ignore[assignment]
    begun = [False]
    wait.done(2.0)
    wait.look()
    wait.look()
    assert (seen, repeated) == ([True, False], [])
    now[0] = 160.0
    wait.look()
    now[0] = 160.5
    with pytest.warns(UserWarning, match=r"^why seen$") as told:
        wait.look()
    assert len(told) == 1
    wait.look()  # it is said once; a second warning would be an error here
    over[0] = True
    wait.look()
    assert repeated == [True]
    fresh = ray_pool._Wait(pool, wait.tickets)
    begun[0], now[0] = True, 999.0
    fresh.patience = wait.patience
    fresh.look()
    assert not fresh.warned
    assert fresh.patience is wait.patience


def test_places_of_a_cluster() -> None:
    fake = SimpleNamespace(cluster_resources=lambda: {"GPU": 2.0, "CPU": 7.5})
    assert ray_pool._resources(fake, {}) == (2, 7)
    assert ray_pool._resources(fake, {"device": "cpu"}) == (0, 7)
    assert ray_pool._resources(fake, {"device": "cuda"}) == (2, 7)
    assert ray_pool._resources(SimpleNamespace(cluster_resources=dict), {}) == (0, 1)
    assert [ray_pool._sizes(given) for given in (None, 3, (2, 3), [2, 2])] == [None, (3, 3), (2, 3), (2, 2)]
    for given in (0, (3, 2), (1, 2, 3), True, "2", (0, 1)):
        with pytest.raises(InputError) as told:
            ray_pool._sizes(given)
        assert str(told.value) == f"workers= must be at least 1, or the least and the most of them, not {given!r}."


def test_a_worker_of_the_cluster_says_that_it_began_and_that_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    actor = SimpleNamespace(current_actor="actor")
    fake = SimpleNamespace(
        get=lambda what, timeout: what,
        get_runtime_context=lambda: actor,
        exceptions=SimpleNamespace(GetTimeoutError=KeyError),
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    feed = SimpleNamespace(
        begun=SimpleNamespace(remote=lambda here: said.append(("begun", here))),
        ready=SimpleNamespace(remote=lambda: said.append("ready")),
    )
    lens = SimpleNamespace(device=torch.device("cpu"))
    loads: list[Any] = []
    monkeypatch.setattr(ray_worker, "load", lambda name, **named: loads.append((name, named)) or lens)
    monkeypatch.setattr(ray_worker, "whereabouts", lambda lens: {"kernels": "c", "device": "odd"})
    monkeypatch.setattr(ray_worker, "model_fingerprint", lambda lens: "hash")
    monkeypatch.setattr(ray_worker, "Worker", lambda lens, plan: ("worker", lens, plan))
    expected = {"kernels": "c", "model": "hash", "device": "cpu"}
    made: Any = ray_worker.Remote(feed, "m", {"dtype": "x"}, "plan", expected, "run")  # type: ignore[arg-type]
    assert (made.worker, made.run, made.feed, loads) == (("worker", lens, "plan"), "run", feed, [("m", {"dtype": "x"})])
    assert made.here == {"process": os.getpid(), "machine": platform.node(), "actor": "actor"}
    assert said == [("begun", made.here), "ready"]
    for name, known in expected.items():
        other: Any = ray_worker.Remote(feed, "m", {}, "plan", {**expected, name: "other"}, "run")  # type: ignore[arg-type]
        assert isinstance(other.worker, InputError)
        told = f"another {name} than the run's: {known}, not other (on the Ray worker {platform.node()})"
        assert str(other.worker) == told
    made.row = lambda ticket: {
        "ticket": ticket,
        **({} if ticket else {"seconds": 0.5, "facts": "f", "content": b"c", "maps": b"m"}),
    }
    import pyarrow as pa

    table = made(pa.table({"ticket": [1, 0]}))
    assert table.to_pylist() == [
        {"ticket": 1, "seconds": None, "facts": None, "content": None, "maps": None},
        {"ticket": 0, "seconds": 0.5, "facts": "f", "content": b"c", "maps": b"m"},
    ]
    assert str(table.schema.field("content").type) == "large_binary"


def test_files_travel_as_bytes_and_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = files_of(3, 2, (BadRow(1, None, "é"),), content=b"c", maps=b"m", maps_name="n")
    row = ray_worker._row_of(whole)
    assert sorted(row) == ["content", "facts", "maps"]
    assert ray_worker.files_of(row) == whole
    for kind, raised in (("InputError", InputError), ("NoSuchError", MixlensError)):
        with pytest.raises(raised, match=r"^m$") as told:
            ray_worker.files_of({"facts": json.dumps({"error": [kind, "m"]})})
        assert type(told.value) is raised


def test_a_window_that_came_back_is_told_to_the_one_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds that it took decide how long is waited; an empty queue is looked after."""
    done: list[Any] = []

    class Wait:
        def __init__(self, pool: Any, tickets: Any):
            pass

        def done(self, seconds: float) -> None:
            done.append(seconds)

        def look(self) -> None:
            done.append("looked")
            arrivals.put({"ticket": 0, "facts": "{}", "seconds": 2.5})

    class Tickets:
        def __init__(self, ray: Any, feed: Any):
            self.left = 2

        def fill(self, windows: Any, limit: int) -> bool:
            done.append(limit)
            self.left -= len(done) > 3
            return self.left > 1

    class Empty(queue.Queue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            assert timeout == 1.0
            return super().get(False)

    arrivals = Empty()
    monkeypatch.setattr(ray_pool, "_Wait", Wait)
    monkeypatch.setattr(ray_pool, "Tickets", Tickets)
    made: Any = object.__new__(ray_pool.Pool)
    made.ray, made.feed, made.size = None, None, (1, 3)
    made._begin = lambda expected, run: arrivals
    made._files = lambda row, tickets: files_of(0, 3, (BadRow(1, None, "r"),))
    ticks: list[int] = []
    assert len(list(made.shards([], "run", {}, ticks.append))) == 1
    assert (done, ticks) == ([7, "looked", 7, 2.5, 7], [4])


def test_ray_is_set_for_a_run_and_then_as_before() -> None:
    context = SimpleNamespace(target_max_block_size=9, enable_progress_bars=True)
    printed: list[Any] = []
    worker_module = SimpleNamespace(print_to_stdstream=printed.append)
    data = SimpleNamespace(DataContext=SimpleNamespace(get_current=lambda: context))
    hook = SimpleNamespace(enable_auto_connect=True)
    fake = SimpleNamespace(data=data, _private=SimpleNamespace(worker=worker_module, auto_init_hook=hook))
    before = worker_module.print_to_stdstream
    handlers = [logging.StreamHandler(), logging.StreamHandler()]
    handlers[0].set_name("console")
    logger = logging.getLogger("ray.data")
    for handler in handlers:
        logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with ray_session.settings(fake) as lines:
                assert vars(context) == {"target_max_block_size": 1, "enable_progress_bars": False}
                assert hook.enable_auto_connect is not True
                assert [len(handler.filters) for handler in handlers] == [1, 0]
                assert not handlers[0].filters[0](None)  # type: ignore[operator]
                worker_module.print_to_stdstream({"lines": [f"line {number}" for number in range(25)]})
                worker_module.print_to_stdstream({})
                warnings.warn("The minimum number of concurrent actors is small", stacklevel=1)
                assert list(lines) == [f"line {number}" for number in range(5, 25)]
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
    assert vars(context) == {"target_max_block_size": 9, "enable_progress_bars": True}
    assert ([len(handler.filters) for handler in handlers], printed) == ([0, 0], [])
    assert hook.enable_auto_connect is True
    assert worker_module.print_to_stdstream == before
