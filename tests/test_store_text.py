"""Results as JSON and CSV: JSON comes back bit for bit, and a file that no result wrote is refused in one line."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ids, loaded
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli import SENTENCE, run
from test_store import assert_equal

import mixlens
from mixlens.base import errors


@pytest.fixture(scope="module")
def results() -> list[Any]:
    trace = loaded("bert", head="AutoModelForSequenceClassification").trace(input_ids=ids(5))
    made = mixlens.mix(trace, "globenc")
    return [made, made.rollout(), made.rollout().readout(0), mixlens.attribute(trace, "grad_x_input")]


def test_json_comes_back_bit_for_bit(results: list[Any], tmp_path: Path) -> None:
    """As .safetensors does: the numbers, the tokens and every fact."""
    for number, result in enumerate(results):
        place = tmp_path / f"{number}.json"
        result.save(place)
        result.save(place.with_suffix(".safetensors"))
        assert_equal(mixlens.load_result(place), mixlens.load_result(place.with_suffix(".safetensors")))
        assert json.loads(place.read_text()) == result.to_dict() == json.loads(result.to_json())


@settings(max_examples=40)
@given(
    numbers=st.lists(st.floats(width=32), min_size=1, max_size=5).filter(lambda some: not all(map(math.isnan, some))),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    fact=st.one_of(st.floats(), st.text(max_size=5), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)),
)
def test_any_numbers_survive(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float], dtype: Any, fact: Any
) -> None:
    """Numbers that are not finite too, for which JSON has no word. Scores without a single number are refused."""
    scores = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    fact = fact if not isinstance(fact, str) else fact.encode("utf-8", "replace").decode()
    made = mixlens.Attribution(
        scores, ("a",) * len(scores), "m", {"fact": fact, "low": scores.double()}, (False,) * len(scores)
    )
    place = tmp_path_factory.mktemp("store") / "x.json"
    made.to_json(place)
    json.loads(place.read_text(encoding="utf-8"), parse_constant=pytest.fail)  # JSON as it is written in its standard
    again = mixlens.load_result(place)
    assert again.scores.dtype == dtype
    assert torch.equal(again.scores.isnan(), scores.isnan())
    assert torch.equal(again.scores.nan_to_num(0), scores.nan_to_num(0))
    assert torch.equal(again.info["low"].nan_to_num(0), scores.double().nan_to_num(0))
    same = again.info["fact"]
    assert same == fact or (isinstance(fact, float) and math.isnan(fact) and math.isnan(same))


def head(**changes: Any) -> dict[str, Any]:
    whole = mixlens.Attribution(
        torch.tensor([0.5, 1.5]), ("a", "b"), "m", {"model": "x"}, (False, False), (("ab", (0, 1)),)
    ).to_dict()
    return {**whole, **changes}


HOSTILE: dict[str, Any] = {
    "no object": [1, 2],
    "kind": head(kind="pickle"),
    "kind of a list": head(kind=["map"]),
    "schema": head(schema=99),
    "no scores": {key: value for key, value in head().items() if key != "scores"},
    "short scores": head(scores=[0.5]),
    "nested scores": head(scores=[[0.5], [1.5]]),
    "ragged scores": head(scores=[[0.5], [1.5, 2.5]]),
    "texts as scores": head(scores=["0.5", "1.5"]),
    "objects as scores": head(scores=[{}, {}]),
    "none as scores": head(scores=[None, 0.5]),
    "a huge number": head(scores=[10**400, 1]),
    "whole numbers": head(dtype="int64", scores=[1, 2]),
    "type of numbers": head(dtype="object"),
    "type is a list": head(dtype=["float32"]),
    "tokens": head(tokens=[1, 2]),
    "words": head(words=[["ab", [0, 7]]]),
    "special": head(special=[1, 0]),
    "facts": head(info=[1]),
    "fact of a known name": head(info={"model": 3}),
    "tensor of another shape": head(info={"low": {"tensor": "float32", "shape": [7], "values": [1.0]}}),
    "tensor of a negative shape": head(info={"low": {"tensor": "float32", "shape": [-1], "values": [1.0]}}),
    "tensor without shape": head(info={"low": {"tensor": "float32", "shape": "x", "values": [1.0]}}),
    "number without name": head(info={"x": {"number": "seven"}}),
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_a_file_that_no_result_wrote_is_refused(case: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(HOSTILE[case]))
    with pytest.raises(errors.ResultError, match=r"'x\.json' (is not a mixlens result|holds the kind|has schema)"):
        mixlens.load_result(tmp_path / "x.json")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"kind": NaN}', "\x00", '{"a": ' * 50_000])
def test_text_that_is_no_json_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(errors.ResultError, match=r"'x\.json' is not a mixlens result"):
        mixlens.load_result(tmp_path / "x.json")


def test_the_head_that_the_hostile_ones_are_made_of_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(head()))
    assert mixlens.load_result(tmp_path / "x.json").scores.tolist() == [0.5, 1.5]


def test_tables_have_a_row_for_each_score(results: list[Any], tmp_path: Path) -> None:
    for result in results:
        rows = list(csv.DictReader(io.StringIO(result.to_csv())))
        if isinstance(result, mixlens.Map):
            shape = result.scores.shape
            assert len(rows) == result.scores.numel()
            for row in rows:
                place = tuple(int(row[name]) for name in ("layer", "query", "key"))
                assert float(row["score"]) == float(result.scores[place])
            assert shape[-1] == len(result.tokens)
        else:
            assert [float(row["score"]) for row in rows] == result.scores.tolist()
            assert [row["token"] for row in rows] == list(result.tokens)
    odd = mixlens.Attribution(torch.tensor([1.0]), ('a "comma", and\na line',), "m")
    assert next(csv.DictReader(io.StringIO(odd.to_csv())))["token"] == 'a "comma", and\na line'
    odd.to_csv(tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_bytes().decode() == odd.to_csv()


def test_names_of_files_are_checked(results: list[Any], tmp_path: Path) -> None:
    for call, why in (
        (lambda: results[-1].to_json(tmp_path / "x.txt"), r"ends in \.json"),
        (lambda: results[-1].to_csv(tmp_path / "x.json"), r"ends in \.csv"),
        (lambda: results[-1].save(tmp_path / "x.txt"), r"saved as \.safetensors, \.json or \.csv, not 'x\.txt'"),
        (lambda: results[-1].save(tmp_path / "no" / "x.json"), "no folder"),
    ):
        with pytest.raises(errors.ResultError, match=why):
            call()  # type: ignore[no-untyped-call]
    results[-1].to_csv(tmp_path / "x.csv")
    with pytest.raises(
        errors.ResultError, match=r"a table has the scores alone\. Save a result as \.safetensors or \.json"
    ):
        mixlens.load_result(tmp_path / "x.csv")


def test_the_command_saves_by_the_end_of_the_name(tmp_path: Path) -> None:
    for end in ("json", "csv", "safetensors"):
        run("explain", SENTENCE, "--method", "grad_x_input", "--save", str(tmp_path / f"x.{end}"))
    saved, stored = (mixlens.load_result(tmp_path / f"x.{end}") for end in ("json", "safetensors"))
    assert torch.equal(saved.scores, stored.scores)
    table = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    assert [float(row["score"]) for row in table] == saved.scores.tolist()
