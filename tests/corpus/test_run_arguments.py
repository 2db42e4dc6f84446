"""What a run is asked: each bad value is refused where it stands among good ones, and numbers at a limit pass."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import mixlens
from mixlens.base.errors import InputError
from mixlens.base.files import RunFolder
from mixlens.data.rows import RowError
from mixlens.runs.corpus.plan import Plan, is_count, plan_of, refuse_target
from mixlens.runs.corpus.rows import Fields, InputRow, fingerprint, windows, written
from mixlens.runs.corpus.sources import corpus
from mixlens.scoring.asking import parse_method
from mixlens.types import Example

ASKED: dict[str, Any] = {
    **{"methods": ["alti", "attcat"], "target": "predicted", "foil": None, "score": None, "query": None, "maps": None},
    **{"batch_tokens": None, "columns": ()},
}


def plan(**changed: Any) -> Plan:
    return plan_of(**{**ASKED, **changed})


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_a_plan_holds_what_was_asked() -> None:
    found = plan(
        methods=" alti, attcat ,", foil=3, score="logit", query="keys", maps=True, batch_tokens=1, columns="label"
    )
    assert found == Plan(("alti", "attcat"), "predicted", 3, "logit", "keys", "float32", 1, ("label",))
    assert plan(target=("was", 7)).target == ("was", 7)
    assert [plan(maps=maps).maps for maps in (None, False, "float16", "float32")] == [None, None, "float16", "float32"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"methods": ["alti", 7]}, "methods are names"),
        ({"methods": [7, "alti"]}, "methods are names"),
        ({"methods": 7}, "methods and columns are lists of names"),
        ({"columns": 7}, "methods and columns are lists of names"),
        ({"methods": ["b", "a", "b", "a", "c"]}, r"a method is named twice: a, b\."),
        ({"methods": [f"m{i}" for i in range(65)]}, "65 methods were asked for; 64 are allowed"),
        ({"methods": []}, "no method was asked for"),
        ({"maps": "float64"}, "maps are kept as float32 or float16, not 'float64'"),
        ({"batch_tokens": 0}, "batch_tokens= must be at least 1, not 0"),
        ({"batch_tokens": True}, "batch_tokens= must be at least 1, not True"),
        ({"score": 3}, "score is a word, not 3"),
        ({"score": "logits"}, "unknown score 'logits'. Did you mean 'logit'"),
        ({"foil": 0.5}, "foil is a word or a number, not 0.5"),
        ({"query": True}, "query is a word or a number, not True"),
        ({"target": ("was", 0.5)}, "target is a word or a number"),
        ({"target": (0.5, "was")}, "target is a word or a number"),
        ({"target": ("a", "b", "c")}, "target is a word or a number"),
        ({"foil": ("a", "b")}, "foil is a word or a number"),
        ({"target": ("was", "\ud83d")}, "half a character"),
        ({"columns": ("label", "label")}, "label"),
        ({"columns": ("label", "tokens")}, "tokens"),
        ({"columns": ("label", "alti")}, "alti"),
    ],
    ids=str,
)
def test_one_bad_value_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        plan(**changed)


@pytest.mark.parametrize("name", ["row", "seconds", "mixing_ratio:alti", "a\u200b", "a\n", "\ud83d", 7])
def test_a_column_has_a_name_of_its_own(name: Any) -> None:
    with pytest.raises(InputError, match=r"is named twice, or is one that every run writes|is no name of a column"):
        plan(columns=("label", name))


def test_a_target_that_no_row_could_have_is_refused() -> None:
    model = mixlens.load("sentiment")
    specific, maps = ({name: parse_method(name)} for name in ("attcat", "alti"))
    for fine in (
        {},
        {"target": "gold"},
        {"target": None},
        {"target": "positive", "foil": "negative"},
        {"target": 1, "foil": 0},
    ):
        refuse_target(model, plan(**fine), {**maps, **specific})
    refuse_target(model, plan(), maps)
    for wrong in ({"target": "positiv"}, {"target": 2}, {"foil": "negativ"}, {"target": "positive", "foil": 9}):
        with pytest.raises(InputError, match=r"positiv|negativ|2|9"):
            refuse_target(model, plan(**wrong), specific)
    for useless in ({"target": "positive"}, {"foil": "positive"}, {"score": "logit"}):
        with pytest.raises(InputError, match=r"explains? a position, whatever the class or word"):
            refuse_target(model, plan(**useless), maps)
    base = SimpleNamespace(task="base", name="m")
    with pytest.raises(InputError, match="'m' was loaded without a head, so 'attcat' has no prediction"):
        refuse_target(base, plan(), specific)  # type: ignore[arg-type]


def test_counts_are_whole_numbers_from_one() -> None:
    assert [is_count(value) for value in (1, 7, 0, -1, True, 1.0, "1", None)] == [True, True, *[False] * 6]


def test_as_many_methods_as_are_allowed() -> None:
    assert len(plan(methods=[f"m{i}" for i in range(64)]).methods) == 64


# --- rows -------------------------------------------------------------------------------------------------------------


def rows_of(data: Any, **options: Any) -> list[InputRow | RowError]:
    return list(corpus(data, fields=Fields(**options), split=None, limit=None).rows())


@pytest.mark.parametrize(
    "ids", [[5, "x"], ["x", 5], [5, True], [5, 6.5], [5, None], {"a": 1}, 5, "[5, true]", "[5", "5", ["5"]]
)
def test_ids_are_whole_numbers_all_of_them(ids: Any) -> None:
    good, bad = rows_of([{"input_ids": [5, 6]}, {"input_ids": ids}], ids="input_ids")
    assert isinstance(good, InputRow)
    assert good.input_ids == [5, 6]
    assert isinstance(bad, RowError)
    assert "field 'input_ids' does not hold a list of integers" in str(bad)


@pytest.mark.parametrize("name", ["token_type_ids", "attention_mask"])
def test_types_and_masks_are_whole_numbers_too(name: str) -> None:
    good, written_out, bad = rows_of(
        [{"input_ids": [5, 6], name: value} for value in ([0, 1], "[0, 1]", [0, "1"])], ids="input_ids"
    )
    assert getattr(good, name) == getattr(written_out, name) == [0, 1]
    assert isinstance(bad, RowError)
    assert f"field {name!r}" in str(bad)


def test_ids_that_are_missing_are_said() -> None:
    (row,) = rows_of([{"input_ids": None}], ids="input_ids")
    assert "field 'input_ids' holds no ids" in str(row)


def test_rows_have_the_number_the_name_and_the_target_that_they_say() -> None:
    values = [
        {"text": "a", "id": "x", "target": "was", "label": "no", "foil": 3},
        {"text": "b", "id": 7, "label": 1, "foil": 0.5},
        {"text": "c", "id": "", "target": 0.5, "label": 0.5},
        {"text": "d", "id": True, "target": None},
    ]
    found = rows_of(values, text="text", columns=())
    assert [(row.row, row.id, row.text, row.target, row.foil) for row in found if isinstance(row, InputRow)] == [
        (1, "x", "a", "was", 3),
        (2, "7", "b", 1, None),
        (3, "3", "c", None, None),
        (4, "4", "d", None, None),
    ]


def test_rows_of_every_kind_in_one_list() -> None:
    found = rows_of(["a", ("b", "c"), {"text": "d"}, 7, ("e", "f", "g"), ""])
    assert [(row.text, row.pair) for row in found if isinstance(row, InputRow)] == [
        ("a", None),
        ("b", "c"),
        ("d", None),
    ]
    assert [row.number for row in found if isinstance(row, RowError)] == [4, 5, 6]
    assert "int, not a text" in str(found[3])
    assert "tuple, not a text" in str(found[4])


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "3", 2**70])
def test_a_limit_that_is_no_count_is_refused(limit: Any) -> None:
    with pytest.raises(InputError, match="limit= must be at"):
        corpus(["a"], fields=Fields(), split=None, limit=limit)


@pytest.mark.parametrize(("limit", "total"), [(1, 1), (3, 3), (4, 3), (None, 3)])
def test_a_limit_cuts_the_rows_and_their_number(limit: int | None, total: int) -> None:
    source = corpus(["a", "b", "c"], fields=Fields(), split=None, limit=limit)
    assert source.total == total
    assert [row.text for row in source.rows() if isinstance(row, InputRow)] == ["a", "b", "c"][:total]
    endless = corpus((text for text in "abc"), fields=Fields(), split=None, limit=limit)
    assert endless.total == limit


@pytest.mark.parametrize(("data", "options"), [(b"abc", {}), ({"a": 1}, {}), (7, {}), (["a"], {"split": "test"})])
def test_data_of_no_rows_is_refused(data: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"data is a file|have no split"):
        corpus(data, fields=Fields(), **{"split": None, "limit": None, **options})


def test_a_dataset_is_read_by_its_split_with_its_bad_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def read(name: str, **options: Any) -> Any:
        asked.append((name, options))
        return iter([Example("a", id="x", target="was", foil="were"), RowError("s", 2, "bad", "row")])

    monkeypatch.setattr("mixlens.runs.corpus.sources.read", read)
    source = corpus("agreement", fields=Fields(columns=("target",)), split="test", limit=5)
    good, bad = source.rows()
    assert isinstance(good, InputRow)
    assert (good.row, good.id, good.text, good.target, good.foil, good.columns) == (
        1,
        "x",
        "a",
        "was",
        "were",
        ("was",),
    )
    assert isinstance(bad, RowError)
    assert asked == [("agreement", {"split": "test", "keep_bad": True})]


def test_windows_are_numbered_and_their_last_may_be_short() -> None:
    rows = rows_of(["a", "b", "c", "d", "e"])
    assert [(number, len(window)) for number, window in windows(iter(rows), 2)] == [(0, 2), (1, 2), (2, 1)]
    assert [row for _, window in windows(iter(rows), 2) for row in window] == rows


def test_a_fingerprint_is_of_everything_in_the_rows() -> None:
    kinds = [
        ["a"],
        ["b"],
        [("a", "b")],
        [{"text": "a", "id": "x"}],
        [{"text": "a", "target": "y"}],
        ["a", "a"],
        [7],
        [""],
    ]
    found = [fingerprint(rows_of(rows)) for rows in kinds]
    assert len(set(found)) == len(found)
    assert found == [fingerprint(rows_of(rows)) for rows in kinds]
    assert {len(one) for one in found} == {16}


def test_a_carried_value_is_text() -> None:
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    assert [written(value) for value in (None, "é", 7, True, ["é", 1])] == [None, "é", "7", "true", '["é", 1]']
    assert written(holds_itself) == "list"


# --- the folder of another run ----------------------------------------------------------------------------------------


def refusal(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> str:
    from mixlens.base.files import IDENTITY

    manifest = {"schema": RunFolder.schema, "identity_schema": IDENTITY, "identity": before}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="belongs to another run") as caught:
        RunFolder(folder).check(now)
    return str(caught.value).partition("another run (")[2].partition("). Give another folder")[0]


def test_values_that_differ_are_written_whole_up_to_a_length(tmp_path: Path) -> None:
    from mixlens.base.files import SHORT

    fits, long = "x" * (SHORT - 2), "x" * (SHORT - 1)  # with quotes: SHORT characters, and one more
    assert refusal(tmp_path, {"a": fits, "b": 1}, {"a": "y", "b": 1}) == f'a: "{fits}" there, "y" here'
    assert refusal(tmp_path, {"a": long}, {"a": "y"}) == f'a: "{"x" * (SHORT - 4)}... there, "y" here'
    assert refusal(tmp_path, {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == "c: 2 there, 3 here"
    assert refusal(tmp_path, {"chat": "64db"}, {"chat": "f854"}) == "the chat template changed"
    assert refusal(tmp_path, {"a": 1}, {"b": 1}) == "a: 1 there, null here; b: null there, 1 here"


def test_of_lists_only_long_ones_are_told_by_what_each_has_alone(tmp_path: Path) -> None:
    from mixlens.base.files import SHORT

    short, many = ["a", "b"], [f"m{i}" for i in range(SHORT)]
    assert refusal(tmp_path, {"a": short}, {"a": ["b"]}) == 'a: ["a", "b"] there, ["b"] here'
    assert refusal(tmp_path, {"a": many}, {"a": [*many[1:], "x"]}) == 'a: also ["m0"] there, also ["x"] here'
    assert refusal(tmp_path, {"a": short}, {"a": [*many, "a"]}).startswith('a: also ["b"] there, also ["m0", "m1", ')
    assert (
        refusal(tmp_path, {"a": many}, {"a": many[::-1]}) == "a: the same in another order, or another number of times"
    )
    edge = ["x" * (SHORT - 4)]  # as JSON of SHORT characters
    assert refusal(tmp_path, {"a": edge}, {"a": ["y"]}).endswith('there, ["y"] here')
    assert "also" not in refusal(tmp_path, {"a": edge}, {"a": ["y"]})
    assert "also" in refusal(tmp_path, {"a": [edge[0] + "x"]}, {"a": ["y"]})


def test_files_of_a_run_are_those_that_a_run_writes(tmp_path: Path) -> None:
    from mixlens.runs.corpus.shards import shard_files

    with pytest.raises(InputError, match=r"holds no run: there is no manifest\.json"):
        shard_files(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": 1, "identity": {}}))
    assert shard_files(tmp_path) == shard_files(tmp_path, "maps") == []
    (tmp_path / "shards").mkdir()
    first, second = (f"part-000000{number}-0123456789abcdef.parquet" for number in (0, 1))
    names = [
        second,
        first,
        "part-x.parquet",
        f"{first}.old",
        "other.parquet",
        f"x{first}",
        first.replace("-0123", "-xyz3"),
    ]
    for name in names:
        (tmp_path / "shards" / name).write_bytes(b"")
    assert [path.name for path in shard_files(tmp_path)] == [first, second]
    (tmp_path / "manifest.json").write_text("[")
    with pytest.raises(InputError, match="is not a manifest of mixlens"):
        shard_files(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_scores_are_stored_as_wide_as_the_model_computes(dtype: torch.dtype) -> None:
    pytest.importorskip("pyarrow")
    from mixlens.runs.corpus.parquet import schema_of

    asked = Plan(("alti", "attcat"), columns=("label", "n"), kinds=(("n", "int64"),))
    schema = schema_of(asked, dtype, ["alti"])
    kinds = {name: str(schema.field(name).type).replace("element", "item") for name in schema.names}
    scores = "list<item: double>" if dtype == torch.float64 else "list<item: float>"
    assert (kinds["alti"], kinds["attcat"], kinds["mixing_ratio:alti"]) == (scores, scores, "list<item: float>")
    assert (kinds["label"], kinds["n"], kinds["row"], kinds["seconds"]) == ("string", "int64", "int64", "double")
    assert schema.names[-5:] == ["n", "alti", "attcat", "mixing_ratio:alti", "seconds"]
