"""A folder holds the rows of one model, one data and one set of options: whatever changes is seen, and nothing is
mixed."""

from __future__ import annotations

import copy
import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import hf_model
from test_run import go, table

import mixlens
from mixlens.base.errors import InputError, MixlensError
from mixlens.runs.corpus import shards
from mixlens.runs.corpus import worker as work
from mixlens.runs.corpus.parquet import parquet_content
from mixlens.runs.experiments import run as experiment
from mixlens.scoring.provenance import model_fingerprint

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROOT = Path(mixlens.__file__).parent
TEXTS = [f"The plot was dull {number}." for number in range(160)]
# A column that nobody asks for. With it a file is longer than what is read at a time (1 MiB), so that a change in the
# middle of a
# run lies before what is read next.
FILLING = " " * 36000
ASKED: dict[str, Any] = {"shard_rows": 20, "methods": ["attention"]}


@pytest.fixture(scope="module")
def sentiment() -> Any:
    return mixlens.load("sentiment")


@pytest.fixture(scope="module")
def undisturbed(sentiment: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], list[Any]]:
    """The rows of a run on a file of this kind, long or not, that nobody changes."""

    @cache
    def rows(kind: str, long: bool) -> list[Any]:
        place = tmp_path_factory.mktemp("undisturbed")
        written(place / f"x{kind}", long)
        go(place / f"x{kind}", place / "run", model=sentiment, **ASKED)
        return table(place / "run")

    return rows


# --- data that changes while it is read -------------------------------------------------------------------------------


def as_jsonl(place: Path, texts: list[str], filling: str = "") -> None:
    place.write_text("".join(json.dumps({"text": text, "filling": filling}) + "\n" for text in texts))


def as_csv(place: Path, texts: list[str], filling: str = "") -> None:
    place.write_text("text,filling\n" + "".join(f'"{text}","{filling}"\n' for text in texts))


def as_parquet(place: Path, texts: list[str], filling: str = "") -> None:
    """Noise, as long as two fillings, for a file that is compressed."""
    noise = [os.urandom(len(FILLING)).hex() for _ in texts]
    parquet.write_table(pa.table({"text": texts, "filling": noise}), place, row_group_size=20)


WRITERS: dict[str, Callable[[Path, list[str], str], None]] = {
    ".jsonl": as_jsonl,
    ".csv": as_csv,
    ".parquet": as_parquet,
}


def written(place: Path, long: bool) -> None:
    WRITERS[place.suffix](place, TEXTS if long else TEXTS[:60], FILLING if long else "")


def truncated(place: Path) -> None:
    os.truncate(place, 0)


def cut(place: Path) -> None:
    os.truncate(place, place.stat().st_size // 2)


def overwritten(place: Path) -> None:
    content = place.read_bytes()
    with place.open("r+b") as file:  # the same file, not another one of its name
        file.write(b"".join(reversed(content.splitlines(keepends=True))))


def appended(place: Path) -> None:
    with place.open("ab") as file:
        file.write(b'{"text": "one more"}\n')


CHANGES = [truncated, cut, overwritten, appended]
CASES = [(kind, change, False) for kind in WRITERS for change in CHANGES]  # files that are read in one piece
CASES += [(".jsonl", change, True) for change in CHANGES] + [(".csv", overwritten, True), (".parquet", cut, True)]


@pytest.mark.parametrize(("kind", "change", "long"), CASES)
def test_data_that_changes_while_it_is_read_ends_the_run(
    kind: str,
    change: Callable[[Path], None],
    long: bool,
    sentiment: Any,
    undisturbed: Callable[[str, bool], list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No row of other bytes stays, the manifest does not say that it is finished, and with the file as it was it goes
    on."""
    file, out, own = tmp_path / f"x{kind}", tmp_path / "run", work.Worker.window
    written(file, long)
    before, whole = file.read_bytes(), undisturbed(kind, long)

    def window(self: Any, number: int, *rest: Any) -> Any:
        if number == 1:
            change(file)
        return own(self, number, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(work.Worker, "window", window)
        with pytest.raises(InputError, match="changed while it was read"):
            go(file, out, model=sentiment, **ASKED)
    assert not json.loads((out / "manifest.json").read_text())["finished"]
    rows = table(out)
    assert rows == whole[: len(rows)]
    file.write_bytes(before)
    go(file, out, model=sentiment, **ASKED)
    assert table(out) == whole
    assert json.loads((out / "manifest.json").read_text())["finished"]


def test_a_file_moved_over_the_one_that_is_read_changes_nothing(
    sentiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, own = tmp_path / "x.jsonl", work.Worker.window
    as_jsonl(file, TEXTS, FILLING)

    def window(self: Any, number: int, *rest: Any) -> Any:
        if number == 1:
            as_jsonl(tmp_path / "other", ["Another text."])
            os.replace(tmp_path / "other", file)
        return own(self, number, *rest)

    monkeypatch.setattr(work.Worker, "window", window)
    assert go(file, tmp_path / "run", model=sentiment, **ASKED).rows == len(TEXTS)
    assert [row["text"] for row in table(tmp_path / "run")] == TEXTS


def test_a_shard_of_other_rows_than_the_file_holds_is_done_again(sentiment: Any, tmp_path: Path) -> None:
    """The file is the one that the manifest names, so the shard is at fault: a run once trusted what it had read."""
    file, texts = tmp_path / "x.jsonl", TEXTS[:100]
    as_jsonl(file, texts)
    go(file, tmp_path / "whole", model=sentiment, **ASKED)
    out = Path(shutil.copytree(tmp_path / "whole", tmp_path / "run"))
    shard = shards.shard_files(out)[2]
    content, told = parquet.read_table(shard), shards.facts_of(shard)
    del told["rows"]
    made = parquet_content(content.replace_schema_metadata({"mixlens": json.dumps({**told, "input": "0" * 16})}))
    shard.unlink()
    (out / "shards" / shards.file_name(2, made)).write_bytes(made)
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**manifest, "finished": False, "shards": []}))
    with pytest.warns(UserWarning, match="damaged, or not of this run"):
        done = go(file, out, model=sentiment, **ASKED)
    assert done.done == 20
    assert table(out) == table(tmp_path / "whole")


def test_a_pipe_is_refused_in_one_line(sentiment: Any, tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs pipes with names, which this system does not have")
    os.mkfifo(tmp_path / "x.jsonl")
    with pytest.raises(InputError, match="pipe or a device"):
        go(tmp_path / "x.jsonl", tmp_path / "run", model=sentiment)


# --- the model --------------------------------------------------------------------------------------------------------


def _weights(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Path], None]:
    def changed(place: Path) -> None:
        from safetensors.torch import load_file, save_file

        weights = load_file(place / "model.safetensors")
        change(weights)
        save_file(weights, place / "model.safetensors", metadata={"format": "pt"})

    return changed


def _one_bit(weights: dict[str, torch.Tensor]) -> None:
    name = max(weights, key=lambda one: weights[one].numel())
    flat = weights[name].view(-1).view(torch.int32)
    flat[flat.numel() // 3 + 1] ^= 1


def _swapped(weights: dict[str, torch.Tensor]) -> None:
    """Two rows change places: every sum over the numbers stays."""
    name = next(one for one in sorted(weights) if "word_embeddings" in one)
    weights[name] = weights[name][[0, 1, 2, 4, 3, *range(5, len(weights[name]))]].contiguous()


def _config(**change: Any) -> Callable[[Path], None]:
    def changed(place: Path) -> None:
        told = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**told, **change}))

    return changed


def _vocabulary(place: Path) -> None:
    told = json.loads((place / "tokenizer.json").read_text())
    vocabulary = told["model"]["vocab"]
    one, other = [word for word in vocabulary if word.isalpha()][:2]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    (place / "tokenizer.json").write_text(json.dumps(told))


def _reading(**change: Any) -> Callable[[Path], None]:
    def changed(place: Path) -> None:
        told = json.loads((place / "tokenizer_config.json").read_text())
        (place / "tokenizer_config.json").write_text(json.dumps({**told, **change}))

    return changed


CHANGES: dict[str, Callable[[Path], None]] = {
    "one bit of one weight": _weights(_one_bit),
    "two rows swapped": _weights(_swapped),
    "names of classes": _config(id2label={"0": "GOOD", "1": "BAD"}, label2id={"GOOD": 0, "BAD": 1}),
    "epsilon": _config(layer_norm_eps=0.5),
    "activation": _config(hidden_act="relu"),
    "heads": _config(num_attention_heads=2),
    "vocabulary": _vocabulary,
    "capital letters": _reading(do_lower_case=False),
    "longest text": _reading(model_max_length=64),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_model_does_not_go_on_with_a_run(change: str, tmp_path: Path) -> None:
    place = Path(shutil.copytree(ROOT / "model/embedded/sentiment", tmp_path / "model"))
    texts = ["The plot was dull.", "A great film."]
    go(texts, tmp_path / "run", model=place)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    CHANGES[change](place)
    with pytest.raises(InputError, match=r"belongs to another run \(model: "):
        go(texts, tmp_path / "run", model=place)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_folder_of_a_version_that_knew_hooks_is_continued(sentiment: Any, tmp_path: Path) -> None:
    out, texts = tmp_path / "run", ["The plot was dull.", "A great film.", "A film."]
    running = sys.modules["mixlens.runs.corpus.running"]
    identity = running.identity_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "identity_of", lambda *given: {**identity(*given), "modules": "0123"})
        go(texts, out, model=sentiment, shard_rows=1)
    shards.shard_files(out)[-1].unlink()
    assert go(texts, out, model=sentiment, shard_rows=1).done == 1


def test_an_experiment_knows_its_model_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    place = Path(shutil.copytree(ROOT / "model/embedded/agreement", tmp_path / "model"))
    asked: dict[str, Any] = {"n": 3, "methods": ["alti"], "out": tmp_path / "out", "progress": False}
    experiment("vz-cue-alignment", model=str(place), **asked)
    CHANGES["epsilon"](place)
    with pytest.raises(InputError, match=r"belongs to another run \(model: "):
        experiment("vz-cue-alignment", model=str(place), **asked)


def test_the_same_model_is_the_same_wherever_it_lies_and_whatever_it_read(tmp_path: Path) -> None:
    one = mixlens.load("sentiment")
    before = model_fingerprint(one)
    one.trace("a good film")
    one.tokenizer(
        ["a", "b c"], padding=True, truncation=True, max_length=5
    )  # the tokenizer remembers how it was called
    place = shutil.copytree(ROOT / "model/embedded/sentiment", tmp_path / "elsewhere")
    assert model_fingerprint(one) == before == model_fingerprint(mixlens.load(str(place)))
    assert model_fingerprint(mixlens.load("sentiment", dtype="float64")) != before


def test_a_large_weight_is_hashed_piece_by_piece_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mixlens.load(hf_model("bert"))
    monkeypatch.setattr(sys.modules["mixlens.scoring.provenance"], "PIECE", 256)
    before = model_fingerprint(model)
    assert model_fingerprint(model) == before
    for name, weights in model.hf_model.named_parameters():
        for place in (0, weights.numel() // 2, weights.numel() - 1):
            flat = weights.detach().view(-1).view(torch.int64)
            flat[place] ^= 1
            assert model_fingerprint(model) != before, (name, place)
            flat[place] ^= 1
    assert model_fingerprint(model) == before


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_the_scales_of_packed_weights_are_numbers_too(bits: str) -> None:
    pytest.importorskip("bitsandbytes")
    model = mixlens.load("agreement", quantization=bits, check=False)
    before = model_fingerprint(model)
    for weights in model.hf_model.parameters():
        scales = (
            getattr(weights, "SCB", None)
            if bits == "8bit"
            else getattr(getattr(weights, "quant_state", None), "absmax", None)
        )
        if scales is not None:
            scales.view(-1)[-1] *= 2
            assert model_fingerprint(model) != before
            scales.view(-1)[-1] /= 2
    assert model_fingerprint(model) == before


def test_a_folder_that_another_version_began_is_refused_in_one_line_and_can_be_read(
    sentiment: Any, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    go(["The plot was dull."] * 3, out, model=sentiment)
    manifest = json.loads((out / "manifest.json").read_text())
    del manifest["identity_schema"]
    manifest["identity"]["model"] = "0123456789abcdef"
    del manifest["identity"]["kernels"]
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"begun by another version of mixlens .*summarize") as error:
        go(["The plot was dull."] * 3, out, model=sentiment)
    assert "\n" not in str(error.value)
    assert mixlens.summarize(out).rows == 3


def test_the_form_of_the_loops_is_a_part_of_a_run(
    sentiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(["The plot was dull."] * 3, tmp_path / "run", model=sentiment)
    used = json.loads((tmp_path / "run/manifest.json").read_text())["identity"]["kernels"]
    monkeypatch.setattr(sys.modules["mixlens.scoring.provenance"], "used", lambda _: "another")
    with pytest.raises(InputError, match=rf'kernels: "{used}" there, "another" here'):
        go(["The plot was dull."] * 3, tmp_path / "run", model=sentiment)


def test_a_manifest_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    place = shutil.copytree(ROOT / "model/embedded/sentiment", tmp_path / "my-model")
    file = tmp_path / "mine.txt"
    file.write_text("The plot was dull.\n")
    go(file, tmp_path / "run", model=str(place))
    told = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (told["model"]["name"], told["data"]) == ("my-model", "mine.txt")
    assert str(tmp_path) not in (tmp_path / "run/manifest.json").read_text()


# --- what is said of another run --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"limit": 3}, "limit: null there, 3 here"),
        ({"shard_rows": 7}, "shard_rows: 512 there, 7 here"),
        ({"batch_tokens": 99}, "batch_tokens: null there, 99 here"),
        ({"columns": ["note"]}, 'columns: [] there, ["note"] here'),
        ({"text_field": "text"}, 'text_field: null there, "text" here'),
        (
            {"target": 1, "methods": ["grad_x_input"]},
            'methods: ["attention"] there, ["grad_x_input"] here; target: "predicted" there',
        ),
    ],
)
def test_the_option_that_differs_is_named_and_no_other(
    change: dict[str, Any], says: str, sentiment: Any, tmp_path: Path
) -> None:
    rows = [{"text": "The plot was dull.", "note": "a"}] * 4
    go(rows, tmp_path / "run", model=sentiment, methods=["attention"])
    with pytest.raises(MixlensError, match="belongs to another run") as error:
        go(rows, tmp_path / "run", model=sentiment, **{"methods": ["attention"], **change})
    assert f"({says}" in str(error.value)
    assert str(error.value).count(" there") == 1 + says.count(";")


def test_of_long_lists_what_differs_is_said(sentiment: Any, tmp_path: Path) -> None:
    many = [f"integrated_gradients:steps={number}" for number in range(1, 9)]
    go(["The plot was dull."] * 2, tmp_path / "run", model=sentiment, methods=many)
    with pytest.raises(
        InputError, match=r'methods: also \["integrated_gradients:steps=8"\] there, also \["alti"\] here'
    ):
        go(["The plot was dull."] * 2, tmp_path / "run", model=sentiment, methods=[*many[:-1], "alti"])


def test_a_set_in_a_configuration_has_no_order(sentiment: Any) -> None:
    """Strings are put into sets in another order in every process."""
    model = mixlens.load(copy.deepcopy(sentiment.hf_model), tokenizer=sentiment.tokenizer)
    found = []
    for heads in ({"a", "b", "c"}, frozenset("cba"), {"a", "b"}):
        model.hf_model.config.tied = heads
        found.append(model_fingerprint(model))
    assert found[0] == found[1] != found[2]
