"""Corpus runs: what is in the folder is what the library says of each text, whatever the file, the batch or the
interruption."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import hf_model, ids
from typer.testing import CliRunner

import mixlens
from mixlens import data
from mixlens.base.errors import InputError, MixlensError
from mixlens.cli.app import app
from mixlens.layer.identities import Unproven
from mixlens.model import rows as model_rows
from mixlens.model import user_code
from mixlens.runs.corpus import maps, shards
from mixlens.runs.corpus import worker as work
from mixlens.scoring import maps as scoring_maps
from mixlens.scoring.maps import known as known_maps
from mixlens.types import Example

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TEXTS = [
    "The keys to the cabinet [MASK] rusty.",
    "The key [MASK] rusty.",
    "The teachers near the old library [MASK] happy about the big umbrellas.",
    "The mother washed [MASK].",
    "The dogs [MASK] here.",
    "The mouse next to the boxes [MASK] small.",
    "The girls who saw the boy [MASK] tired.",
]


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def sentiment() -> Any:
    return mixlens.load("sentiment")


def go(rows: Any, out: Path, **options: Any) -> Any:
    return mixlens.run(rows, out=out, progress=False, **options)


def table(out: Path) -> list[dict[str, Any]]:
    """Every row of a run, in order, without the seconds."""
    found = [row for path in shards.shard_files(out) for row in parquet.read_table(path).to_pylist()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in found]


def bad(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "errors.jsonl").read_text().splitlines()]


# --- what is written --------------------------------------------------------------------------------------------------


def test_each_row_is_what_the_library_says_of_the_text_alone(model: Any, tmp_path: Path) -> None:
    methods = ["alti", "globenc", "alti:variant=released", "attcat", "random"]
    made = go(TEXTS, tmp_path / "run", model=model, methods=methods, shard_rows=3)
    rows = table(tmp_path / "run")
    assert made.rows == len(rows) == len(TEXTS)
    assert [row["text"] for row in rows] == TEXTS
    assert [row["row"] for row in rows] == list(range(1, len(TEXTS) + 1))
    for row, text in zip(rows, TEXTS, strict=True):
        trace = model.trace(text)
        assert tuple(row["tokens"]) == trace.tokens
        assert row["query"] == trace.query
        word, probability = trace.prediction(k=1)[0]
        assert row["prediction"] == word
        assert row["probability"] == pytest.approx(probability, abs=1e-5)
        for method in ("alti", "globenc", "attcat"):
            torch.testing.assert_close(
                torch.tensor(row[method]), mixlens.attribute(trace, method).scores, atol=2e-5, rtol=1e-4
            )
        released = mixlens.attribute(trace, "alti", variant="released").scores
        torch.testing.assert_close(torch.tensor(row["alti:variant=released"]), released, atol=2e-5, rtol=1e-4)
        ratio = mixlens.mix(trace, "globenc").info["mixing_ratio"].mean(-1)
        torch.testing.assert_close(torch.tensor(row["mixing_ratio:globenc"]), ratio, atol=1e-5, rtol=1e-4)
        assert 0 <= row["gap"] < 1e-4
        covered = [
            text[a:b].lower() for a, b, s in zip(row["starts"], row["ends"], row["segments"], strict=True) if s == 0
        ]
        assert [c if t != "[MASK]" else t for c, t in zip(covered, row["tokens"][1:-1], strict=True)] == [
            token.removeprefix("##") for token in row["tokens"][1:-1]
        ]


def test_maps_alone_are_streamed_to_the_same_numbers(model: Any, tmp_path: Path) -> None:
    go(TEXTS, tmp_path / "streamed", model=model, methods=["alti", "globenc"])
    go(TEXTS, tmp_path / "kept", model=model, methods=["alti", "globenc", "attcat"])
    assert work.Worker(model, work.Plan(("alti", "globenc"))).streams
    assert not work.Worker(model, work.Plan(("alti", "attcat"))).streams
    assert not work.Worker(model, work.Plan(("hta",))).streams
    for one, other in zip(table(tmp_path / "streamed"), table(tmp_path / "kept"), strict=True):
        for method in ("alti", "globenc"):
            torch.testing.assert_close(torch.tensor(one[method]), torch.tensor(other[method]), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_maps_come_back(model: Any, tmp_path: Path, dtype: str) -> None:
    go(TEXTS, tmp_path / "run", model=model, methods=["alti", "attention"], maps=dtype, shard_rows=2)
    found = list(maps(tmp_path / "run"))
    assert [(row, made.method) for row, made in found] == [(i, m) for i in range(1, 8) for m in ("alti", "attention")]
    exact = dict(enumerate(TEXTS, 1))
    for row, made in found:
        whole = mixlens.mix(model.trace(exact[row]), made.method)
        torch.testing.assert_close(made.scores, whole.scores, atol=1e-5 if dtype == "float32" else 1e-3, rtol=1e-3)
        assert made.tokens == whole.tokens
        made.rollout().readout(0)


def test_the_manifest_tells_all(model: Any, tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    go(file, tmp_path / "run", model=model, shard_rows=4)
    told = json.loads((tmp_path / "run/manifest.json").read_text())
    assert told["finished"]
    assert told["schema"] == 1
    assert told["identity"]["data"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert told["model"]["name"] == "agreement"
    assert {"mixlens", "torch", "transformers", "python"} <= set(told["versions"])
    assert [one["rows"] for one in told["shards"]] == [4, 3]
    for one in told["shards"]:
        content = (tmp_path / "run/shards" / one["file"]).read_bytes()
        assert one["sha256"] == hashlib.sha256(content).hexdigest()
        assert one["sha256"][:16] in one["file"]


def test_every_kind_of_file_gives_the_same_rows(sentiment: Any, tmp_path: Path) -> None:
    rows = [
        {"text": f"a {w} film", "label": i % 2, "note": f"n{i}"}
        for i, w in enumerate(["good", "bad", "great", "awful"])
    ]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "x.txt").write_text("".join(row["text"] + "\n" for row in rows))
    with (tmp_path / "x.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    found = {}
    for kind in ("jsonl", "csv", "parquet", "txt"):
        carried = [] if kind == "txt" else ["label", "note"]
        go(tmp_path / f"x.{kind}", tmp_path / kind, model=sentiment, columns=carried, methods="alti,grad_x_input")
        found[kind] = table(tmp_path / kind)
    assert [row["label"] for row in found["jsonl"]] == [row["label"] for row in found["csv"]] == ["0", "1", "0", "1"]
    assert [row["label"] for row in found["parquet"]] == [0, 1, 0, 1]
    assert [row["note"] for row in found["csv"]] == ["n0", "n1", "n2", "n3"]
    for kind, made in found.items():
        for one, other in zip(made, found["jsonl"], strict=True):
            assert {key: one[key] for key in ("text", "alti", "grad_x_input", "prediction")} == {
                key: other[key] for key in ("text", "alti", "grad_x_input", "prediction")
            }, kind


def test_pairs_ids_examples_and_names(model: Any, sentiment: Any, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"a": TEXTS[0], "b": "The key was new."}) + "\n")
    go(tmp_path / "pairs.jsonl", tmp_path / "pairs", model=model, text_field="a", pair_field="b")
    (row,) = table(tmp_path / "pairs")
    assert tuple(row["tokens"]) == model.trace((TEXTS[0], "The key was new.")).tokens
    assert set(row["segments"]) == {-1, 0, 1}
    trace = model.trace(TEXTS[0])
    (tmp_path / "ids.jsonl").write_text(json.dumps({"input_ids": list(trace.input_ids)}) + "\n")
    go(tmp_path / "ids.jsonl", tmp_path / "ids", model=model)
    (row,) = table(tmp_path / "ids")
    assert row["text"] is None
    torch.testing.assert_close(torch.tensor(row["alti"]), mixlens.attribute(trace, "alti").scores, atol=1e-5, rtol=1e-4)
    go(
        "agreement",
        tmp_path / "named",
        model=model,
        methods=["grad_x_input"],
        target="gold",
        limit=3,
        columns=["construction"],
    )
    for row, example in zip(table(tmp_path / "named"), data.load("agreement", n=3), strict=True):
        assert (row["text"], row["construction"]) == (example.text, example.info["construction"])
        assert row["target"] == f"{example.target} - {example.foil}"
    go([Example("a good film"), "a film", ("a film", "good"), {"text": "bad"}], tmp_path / "mixed", model=sentiment)
    assert len(table(tmp_path / "mixed")) == 4


def test_a_model_without_a_tokenizer_reads_ids(tmp_path: Path) -> None:
    bare = mixlens.load(hf_model("gpt2", head="AutoModelForCausalLM"))
    rows = [{"input_ids": ids(n, seed=n)} for n in (3, 5, 4)]
    go(rows, tmp_path / "run", model=bare, methods=["alti", "grad_l2"])
    for row, given in zip(table(tmp_path / "run"), rows, strict=True):
        trace = bare.trace(input_ids=given["input_ids"])
        assert row["query"] == len(trace) - 1
        torch.testing.assert_close(
            torch.tensor(row["grad_l2"], dtype=torch.float64),
            mixlens.attribute(trace, "grad_l2").scores,
            atol=1e-9,
            rtol=1e-7,
        )


def test_the_readers_everybody_has(model: Any, tmp_path: Path) -> None:
    """As in docs/use/run.md."""
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    out = tmp_path / "run"
    go(TEXTS, out, model=model, shard_rows=3)
    frame = pandas.read_parquet(f"{out}/shards")
    assert list(frame["text"]) == TEXTS
    read = datasets.load_dataset(
        "parquet", data_files=f"{out}/shards/*.parquet", split="train", cache_dir=str(tmp_path / "cache")
    )
    assert read["text"][:] == TEXTS
    assert len(read[0]["alti"]) == len(read[0]["tokens"])


READERS = """
import json, sys
import duckdb, polars

shards = sys.argv[1] + "/shards/*.parquet"
texts = polars.read_parquet(shards)["text"].to_list()
print(json.dumps([texts, duckdb.sql(f"select count(*) from '{shards}'").fetchall()]))
"""


def test_polars_and_duckdb(model: Any, tmp_path: Path) -> None:
    """In a process of their own: the threads of polars do not survive a fork, and other tests fork this process."""
    if find_spec("polars") is None or find_spec("duckdb") is None:
        pytest.skip("needs polars and duckdb: `make test` installs them, with the extra `dev`")
    go(TEXTS, tmp_path / "run", model=model, shard_rows=3)
    read = subprocess.run(
        [sys.executable, "-c", READERS, str(tmp_path / "run")], capture_output=True, text=True, check=True, timeout=300
    )
    assert json.loads(read.stdout) == [TEXTS, [[len(TEXTS)]]]


def test_the_data_is_read_as_it_is_needed(model: Any, tmp_path: Path) -> None:
    """Memory does not grow with the corpus: no row is read before the shard before it is on the disk."""
    out, ahead = tmp_path / "run", []

    def rows() -> Iterator[str]:
        for number in range(23):
            written = len(list(out.glob("shards/part-*.parquet")))
            ahead.append(number - 4 * written)
            yield TEXTS[number % len(TEXTS)]

    assert go(rows(), out, model=model, shard_rows=4).rows == 23
    assert max(ahead) < 4


def test_progress_says_rate_and_time_left(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixlens.run(TEXTS, model=model, out=tmp_path / "run", progress=True)
    said = capsys.readouterr().err
    assert "7/7" in said
    assert "row/s" in said


# --- rows that cannot be explained ------------------------------------------------------------------------------------


def test_bad_rows_are_named_and_the_rest_goes_on(model: Any, tmp_path: Path) -> None:
    lines: list[bytes] = [
        json.dumps({"text": TEXTS[0]}).encode(),
        b'{"text": ""}',
        b'{"text": 7, "id": "seven"}',
        b"{broken",
        b'{"text": "\xff"}',
        b'{"text": "\\ud800"}',
        json.dumps({"text": "key " * 600}).encode(),
        json.dumps({"text": "[MASK] and [MASK]"}).encode(),
        b'{"other": 1}',
        json.dumps({"text": TEXTS[1], "id": "../../etc/x"}).encode(),
    ]
    (tmp_path / "x.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    made = go(tmp_path / "x.jsonl", tmp_path / "run", model=model)
    assert (made.rows, made.errors) == (2, 8)
    found = {one["row"]: one["reason"] for one in bad(tmp_path / "run")}
    assert list(found) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert [one["id"] for one in bad(tmp_path / "run")] == ["2", "seven", "4", "5", "6", "7", "8", "9"]
    for row, reason in {
        2: "empty",
        3: "not text",
        4: "not JSON",
        5: "UTF-8",
        6: "surrogate",
        7: "tokens",
        8: "2 mask",
    }.items():
        assert reason in found[row]
    assert table(tmp_path / "run")[1]["id"] == "../../etc/x"  # a value like any other: no file is named after it
    assert not list(tmp_path.parent.rglob("etc"))
    with pytest.raises(InputError, match=r"row 2: .*empty"):
        go(tmp_path / "x.jsonl", tmp_path / "strict", model=model, strict=True)
    with pytest.raises(InputError, match="holds no run"):
        shards.shard_files(tmp_path / "strict")


def test_when_no_row_can_be_explained_it_says_so_at_once(model: Any, tmp_path: Path) -> None:
    with pytest.raises(MixlensError, match="none of the first 3 rows can be explained: no token 'xyz'"):
        go(["a [MASK]"] * 3, tmp_path / "run", model=model, query="xyz")


def test_one_bad_example_of_a_batch_does_not_spoil_the_others(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(TEXTS, tmp_path / "fine", model=model)
    own = model.run_traced

    def fails(encoded: Any, **options: Any) -> Any:
        if any("umbrellas" in (one.text or "") for one in encoded):
            raise torch.OutOfMemoryError("out of memory")
        return own(encoded, **options)

    monkeypatch.setattr(model, "run_traced", fails)
    made = go(TEXTS, tmp_path / "run", model=model)
    assert (made.rows, made.errors) == (len(TEXTS) - 1, 1)
    assert "memory runs out" in bad(tmp_path / "run")[0]["reason"]
    fine = {row["text"]: row for row in table(tmp_path / "fine")}
    for row in table(tmp_path / "run"):
        torch.testing.assert_close(
            torch.tensor(row["alti"]), torch.tensor(fine[row["text"]]["alti"]), atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"methods": "altii"}, "Did you mean 'alti'"),
        ({"methods": "alti,alti"}, "named twice"),
        ({"methods": []}, "no method"),
        ({"methods": "attcat", "target": "unbelievableness"}, "not one token"),
        ({"methods": "alti", "target": "are"}, "'alti' explains a position"),
        ({"columns": ["text"]}, "every run writes"),
        ({"columns": ["nothing"]}, "no field 'nothing'"),
        ({"text_field": "nothing"}, "no field 'nothing'"),
        ({"limit": 0}, "at least 1"),
        ({"shard_rows": 0}, "at least 1"),
        ({"batch_tokens": 0}, "at least 1"),
        ({"maps": "int8"}, "float32 or float16"),
        ({"resume": True}, "no run to resume"),
    ],
)
def test_refused_before_the_long_work(model: Any, tmp_path: Path, options: dict[str, Any], says: str) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps({"text": TEXTS[0]}) + "\n")
    with pytest.raises(InputError, match=says):
        go(tmp_path / "x.jsonl", tmp_path / "run", model=model, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("module", "extra", "options"), [("pyarrow.parquet", "data", {}), ("ray", "ray", {"ray": "auto"})]
)
def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, extra: str, options: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"pip install .*\[{extra}\]'"):
        go(TEXTS, tmp_path / "run", model="agreement", **options)


# --- small things -----------------------------------------------------------------------------------------------------


def test_no_folder_for_maps_that_nobody_keeps(model: Any, tmp_path: Path) -> None:
    go(TEXTS[:2], tmp_path / "run", model=model)
    assert sorted(one.name for one in (tmp_path / "run").iterdir() if not one.name.startswith(".")) == [
        "errors.jsonl",
        "manifest.json",
        "shards",
    ]
    assert list(maps(tmp_path / "run")) == []
    go(TEXTS[:2], tmp_path / "run", model=model)  # goes on without one, too
    go(TEXTS[:2], tmp_path / "kept", model=model, maps=True)
    assert (tmp_path / "kept/maps").is_dir()


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    columns = {
        "text": pa.array([f"a {word} film" for word in ("good", "bad", "great", "awful", "fine")]),
        "label": pa.array([1, 0, None, 0, 1], pa.int8()),
        "price": pa.array([0.5, None, 2.0, float("nan"), 1e300]),
        "small": pa.array([0.1, 0.2, 0.3, 0.4, 0.5], pa.float32()),
        "seen": pa.array([True, False, None, True, True]),
        "name": pa.array(["x", None, "z", "1", ""]),
        "kind": pa.array(["a", "b", "a", None, "b"]).dictionary_encode(),
        "huge": pa.array([2**64 - 1, 0, 1, 2, 3], pa.uint64()),
        "list": pa.array([[1, 2], [], None, [3], [4]]),
        "when": pa.array([0, 1, 2, 3, 4], pa.timestamp("s")),
    }
    parquet.write_table(pa.table(columns), tmp_path / "x.Parquet")
    return tmp_path / "x.Parquet"


def test_columns_of_parquet_keep_their_types(sentiment: Any, typed: Path, tmp_path: Path) -> None:
    carried = ["label", "price", "small", "seen", "name", "kind", "huge", "list", "when"]
    go(typed, tmp_path / "run", model=sentiment, columns=carried, shard_rows=2)
    wanted = {"label": pa.int64(), "price": pa.float64(), "small": pa.float64(), "seen": pa.bool_()}
    tables = [parquet.read_table(path) for path in shards.shard_files(tmp_path / "run")]
    for made in tables:  # the same in every shard
        for name in carried:
            assert made.schema.field(name).type == wanted.get(name, pa.string()), name
    made, given = pa.concat_tables(tables), parquet.read_table(typed)
    for name in ("label", "seen", "small", "name", "kind"):
        assert made[name].to_pylist() == given[name].to_pylist()
    assert repr(made["price"].to_pylist()) == repr(given["price"].to_pylist())
    assert made["huge"].to_pylist()[0] == str(2**64 - 1)  # what fits no 64-bit integer, lists and dates: as text
    assert made["list"].to_pylist() == ["[1, 2]", "[]", None, "[3]", "[4]"]
    assert json.loads(made["when"].to_pylist()[1]).startswith("1970-01-01")


def test_a_run_with_typed_columns_goes_on(
    sentiment: Any, typed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"model": sentiment, "columns": ["label", "price", "seen"], "shard_rows": 2}
    go(typed, tmp_path / "whole", **asked)
    go(typed, tmp_path / "run", **asked)
    shards.shard_files(tmp_path / "run")[1].unlink()
    assert go(typed, tmp_path / "run", **asked).done == 2
    assert repr(table(tmp_path / "run")) == repr(table(tmp_path / "whole"))
    monkeypatch.setattr("mixlens.runs.corpus.sources.typed_columns", lambda *_: ())  # shards of two kinds are not mixed
    with pytest.raises(InputError, match="another run"):
        go(typed, tmp_path / "run", **asked)


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("\n".join(TEXTS) + "\n")
    asked = [
        "run",
        str(tmp_path / "x.txt"),
        "--out",
        str(tmp_path / "run"),
        "--methods",
        "alti,attcat",
        "--target",
        "are",
    ]
    ran = CliRunner().invoke(app, [*asked, "--foil", "is", "--limit", "5", "--maps", "--maps-dtype", "float16"])
    assert ran.exit_code == 0, ran.output
    assert "5 rows" in ran.output
    assert table(tmp_path / "run")[0]["target"] == "are - is"
    again = CliRunner().invoke(
        app, [*asked, "--foil", "is", "--limit", "5", "--maps", "--maps-dtype", "float16", "--resume"]
    )
    assert "(0 done now)" in again.output


def test_a_batch_that_found_its_weights_changed_is_scored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `mix` does: what was kept of weights is made anew, and no row goes to the errors."""
    own, refused, anew = scoring_maps.Scorer.maps, [], []

    def maps(self: Any, traces: Any) -> Any:
        if not anew:
            refused.append(1)
            raise Unproven("changed")
        return own(self, traces)

    lens = mixlens.load("agreement")
    monkeypatch.setattr(scoring_maps.Scorer, "maps", maps)
    monkeypatch.setattr(lens.kept, "forget", lambda: anew.append(1))
    made = go(["The keys [MASK] rusty.", "The dog [MASK] here."], tmp_path / "run", model=lens, methods=["alti"])
    assert (made.rows, made.errors, len(refused)) == (2, 0, 1)


def test_a_run_makes_no_pass_but_those_of_its_rows(
    sentiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which methods hand out a mixing ratio is known from their registration: texts of one length are one batch, one
    pass. The first batch of a shard is compared with its first and its last row alone."""
    rows: list[int] = []
    for module in (user_code, model_rows):
        monkeypatch.setattr(module, "acts_in", lambda model: False)  # the hook that counts is a user's
    hook = sentiment.hf_model.register_forward_pre_hook(
        lambda module, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    texts = ["A dull film.", "A good film.", "A film that was good.", "A film that was dull."]
    try:
        made = go(texts, tmp_path / "out", model=sentiment, methods="globenc", batch_tokens=16)
    finally:
        hook.remove()
    assert rows == [2, 1, 1, 2]
    assert "mixing_ratio:globenc" in made.to_pandas().columns


def test_methods_declare_the_mixing_ratio_that_they_hand_out(model: Any) -> None:
    """Every map method, by its own scores: a column of a run rests on the declaration."""
    trace = model.trace("A dull film.")
    for name, method in sorted(known_maps().items()):
        given = "mixing_ratio" in mixlens.mix(trace, name).info
        assert given == ("mixing_ratio" in method.extras), name
