"""Saved and loaded: the same bits, the same provenance, and nothing half-written."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch
from conftest import ids, loaded
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mixlens


def assert_equal(a: mixlens.Map | mixlens.Attribution, b: mixlens.Map | mixlens.Attribution) -> None:
    assert type(a) is type(b)
    assert a.scores.dtype == b.scores.dtype
    assert torch.equal(a.scores, b.scores)
    assert (a.tokens, a.method, a.special, a.words) == (b.tokens, b.method, b.special, b.words)
    assert a.info.keys() == b.info.keys()
    for key, value in a.info.items():
        assert torch.equal(value, b.info[key]) if isinstance(value, torch.Tensor) else value == b.info[key], key


@pytest.mark.parametrize("name", ["alti", "globenc", "value_zeroing"])
def test_results_come_back_bit_for_bit(tmp_path: Path, name: str) -> None:
    made = mixlens.mix(loaded("bert").trace(input_ids=ids(6)), name)
    for number, result in enumerate((made, made.rollout(), made.rollout().readout(0))):
        path = tmp_path / f"{number}.safetensors"
        result.save(path)
        assert_equal(result, mixlens.load_result(path))


def test_provenance_is_in_the_file(tmp_path: Path) -> None:
    mixlens.mix(loaded("bert").trace(input_ids=ids(6)), "alti", variant="released").save(tmp_path / "x.safetensors")
    info = mixlens.load_result(tmp_path / "x.safetensors").info
    assert (info["model"], info["method"], info["variant"], info["family"]) == ("BertModel", "alti", "released", "bert")
    assert set(info["versions"]) == {"mixlens", "torch", "transformers", "python"}
    assert {"revision", "options", "gap", "check", "paper", "dtype", "input_ids"} <= set(info)


@settings(max_examples=40)
@given(
    tokens=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=5),
    method=st.text(max_size=5),
    wide=st.booleans(),
    data=st.data(),
)
def test_any_tokens_and_numbers_survive(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[str], method: str, wide: bool, data: st.DataObject
) -> None:
    tokens = [token.encode("utf-8", "replace").decode() for token in tokens]
    numbers = data.draw(st.lists(st.floats(width=32), min_size=len(tokens), max_size=len(tokens)))
    scores = torch.tensor(numbers, dtype=torch.float64 if wide else torch.float32)
    assume(not scores.isnan().all())  # a file without any number is refused
    path = tmp_path_factory.mktemp("store") / "x.safetensors"
    mixlens.Attribution(
        scores, tuple(tokens), method.encode("utf-8", "replace").decode(), {"note": tokens}, (False,) * len(tokens)
    ).save(path)
    back = mixlens.load_result(path)
    assert back.tokens == tuple(tokens)
    assert back.scores.dtype == scores.dtype
    assert back.scores.numpy().tobytes() == scores.numpy().tobytes()


def test_tables(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    made = mixlens.mix(loaded("bert").trace(input_ids=[7, 8, 9]), "alti")
    frame = made.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    row = frame[(frame.layer == 1) & (frame["query"] == 2) & (frame.key == 0)].iloc[0]
    assert (row.score, row.query_token, row.key_token) == (float(made.scores[1, 2, 0]), "9", "7")
    assert made.readout(0).to_pandas().score.tolist() == made.scores[-1, 0].tolist()
    numbers = made.to_numpy()
    numbers[:] = 0  # a copy: the result is a value
    assert float(made.scores.sum()) > 0


@pytest.mark.parametrize(
    "content", [b"", b"not a file", struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 1 << 60) + b"{}"]
)
def test_what_is_not_a_result_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(mixlens.MixlensError, match="not a mixlens result"):
        mixlens.load_result(path)


def test_a_damaged_header_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    for told in ({"kind": "Map"}, {"kind": "os.system", "schema": 1}, {"schema": 99}, []):
        save_file({"scores": torch.ones(1)}, tmp_path / "x.safetensors", metadata={"mixlens": json.dumps(told)})
        with pytest.raises(mixlens.MixlensError):
            mixlens.load_result(tmp_path / "x.safetensors")


def test_saving_where_it_cannot_be_saved_leaves_nothing(tmp_path: Path) -> None:
    made = mixlens.mix(loaded("bert").trace(input_ids=ids(3)), "alti")
    with pytest.raises(mixlens.MixlensError, match="safetensors"):
        made.save(tmp_path / "x.npz")
    with pytest.raises(mixlens.MixlensError, match="no folder"):
        made.save(tmp_path / "missing" / "x.safetensors")
    broken = mixlens.Attribution(made.scores[0, 0], made.tokens, "alti", {"bad": object()})
    with pytest.raises(TypeError):
        broken.save(tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(mixlens.MixlensError, match="no file"):
        mixlens.load_result(tmp_path / "x.safetensors")
