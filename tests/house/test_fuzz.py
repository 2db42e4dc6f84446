"""Whatever is put in, a result or a MixlensError comes out: texts of any Unicode, odd ids, odd options, odd and hostile
files."""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import conftest
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import mixlens
from mixlens.base import errors
from mixlens.runs import corpus
from mixlens.runs.corpus import shards
from mixlens.scoring import attributions, maps

parquet = pytest.importorskip("pyarrow.parquet")
ROOT = Path(mixlens.__file__).parent
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3) | st.tuples(inner, inner)
    ),
    max_leaves=4,
)
texts = st.text(st.characters(), max_size=30) | st.sampled_from(
    [
        "[MASK]",
        "The keys [MASK] rusty.",
        "\ud800",
        "\x00",
        "\u202e",
        "\u200d" * 9,
        "a" * 3000,
        "[SEP][CLS][PAD]",
        "𝔘",
        " \n\t",
    ]
)
sized = st.recursive(  # anything, but no number that asks for a billion steps
    st.none()
    | st.booleans()
    | st.integers(-5, 40)
    | st.floats(-50, 50)
    | st.sampled_from([float("nan"), float("inf"), -float("inf")])
    | st.text(max_size=8)
    | st.binary(max_size=4)
    | st.sampled_from(["paper", "mask", "word", "sum", "frobenius", "before", "pad"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3) | st.tuples(inner, inner)
    ),
    max_leaves=4,
)
numbers = st.integers(-3, 700) | st.integers() | st.booleans() | st.none() | st.floats()


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def sentiment() -> Any:
    return mixlens.load("sentiment")


def asked(call: Callable[[], Any]) -> Any:
    """A result, or nothing where mixlens refused; any other exception fails the test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except mixlens.MixlensError:
        return None


# --- texts and ids ----------------------------------------------------------------------------------------------------


def test_any_text(model: Any) -> None:
    came = 0

    @QUICK
    @given(text=texts | st.tuples(texts, texts) | st.lists(texts, max_size=3) | anything)
    @example(text="The keys [MASK] rusty.")
    @example(text=["a", ("b", "c")])
    def each(text: Any) -> None:
        nonlocal came
        for made in (asked(lambda: model.trace(text)), asked(lambda: model.mix(text))):
            for one in made if isinstance(made, list) else [made]:
                assert one is None or len(one.tokens)
                came += one is not None

    each()
    assert came >= 6  # the two examples: a trace and a map of each text


def test_any_ids(model: Any) -> None:
    came = 0

    @QUICK
    @given(
        ids=st.lists(numbers, max_size=6) | st.lists(st.lists(numbers, max_size=3), max_size=3) | anything,
        types=st.none() | st.lists(numbers, max_size=6) | anything,
        mask=st.none() | st.lists(st.integers(0, 1) | numbers, max_size=6) | anything,
    )
    @example(ids=[[3]], types=False, mask=None)
    @example(ids=[[3], None], types=None, mask=None)
    @example(ids=[b"\x03", None], types=None, mask=None)
    @example(ids=[3, 4], types=[0, 1], mask=[1, 1])
    def each(ids: Any, types: Any, mask: Any) -> None:
        nonlocal came
        traces = (
            asked(lambda: model.trace(input_ids=ids)),
            asked(lambda: model.trace(input_ids=ids, token_type_ids=types, attention_mask=mask)),
        )
        for made in traces:
            rows = made if isinstance(made, list) else [made]
            for one, given_ids in (
                zip(rows, ids if isinstance(made, list) else [ids], strict=True) if made is not None else ()
            ):
                assert list(one.input_ids) == [int(i) for i in given_ids]
                assert all(torch.isfinite(layer.output).all() for layer in one.layers)
                came += 1

    each()
    assert came >= 3  # [[3]] alone, and [3, 4] both ways


@pytest.mark.parametrize(
    ("ids", "came"), [(b"\x03", "b'\\\\x03'"), (bytearray(b"\x03"), "bytearray"), ([[3], None], "None")]
)
def test_ids_that_are_no_list_are_refused(model: Any, ids: Any, came: str) -> None:
    """Bytes are a sequence of integers to Python, and no list of ids."""
    with pytest.raises(errors.InputError, match=rf"^input_ids must be a list of integers, not {came}"):
        model.trace(input_ids=ids)


def test_any_segments_and_masks_of_one_length(model: Any) -> None:
    came = 0

    @QUICK
    @given(
        rows=st.lists(st.tuples(st.integers(0, 500), numbers, st.integers(-1, 3)), min_size=1, max_size=5),
    )
    @example(rows=[(7, 0, 1), (8, 1, 1), (9, 1, 0)])
    def each(rows: list[tuple[int, Any, int]]) -> None:
        nonlocal came
        ids, types, mask = (list(column) for column in zip(*rows, strict=True))
        for options in ({"token_type_ids": types}, {"attention_mask": mask}):
            made = asked(lambda options=options: model.trace(input_ids=ids, **options))
            assert made is None or all(torch.isfinite(layer.output).all() for layer in made.layers)
            came += made is not None

    each()
    assert came >= 2


# --- options ----------------------------------------------------------------------------------------------------------


@QUICK
@given(
    name=st.sampled_from(["alti", "globenc", "value_zeroing", "attention", "random", "effective_attention"]) | anything,
    option=st.sampled_from(
        [
            "variant",
            "chunk",
            "precision",
            "query",
            "seed",
            "distance",
            "norm",
            "batch_size",
            "head",
            "standardize",
            "x",
            "layer",
        ]
    ),
    value=anything | st.sampled_from(["paper", "released", "tf32", "float32", "cosine"]),
)
def test_any_option_of_mix(model: Any, name: Any, option: str, value: Any) -> None:
    trace = model.trace("The keys [MASK] rusty.")
    made = asked(lambda: mixlens.mix(trace, name, **{option: value}))
    if isinstance(made, mixlens.Map):
        assert torch.isfinite(made.scores).all()
        asked(lambda: made.rollout(value))
        asked(lambda: made.readout(value))
        asked(lambda: made.readout(0, layer=value))


def test_any_target(model: Any, sentiment: Any) -> None:
    came = 0
    traces = (model.trace("The keys [MASK] rusty."), sentiment.trace("a good film"))

    @QUICK
    @given(
        name=st.sampled_from(["attcat", "grad_x_input", "alti", "blank_out", "raw_attention", "deeplift", "hta_layer"])
        | anything,
        target=anything | st.sampled_from(["predicted", "gold", "positive", "were", "", " ", "\ud800", -1, 10**30]),
        foil=st.none() | anything | st.sampled_from(["negative", "was", 0, 1]),
        option=st.sampled_from(
            ["score", "label", "query", "layer", "variant", "absolute", "replacement", "baseline", "embedding", "x"]
        ),
        value=anything,
    )
    @example(name="attcat", target="were", foil="was", option="layer", value=1)
    @example(name="grad_x_input", target="positive", foil="negative", option="query", value=2)
    def each(name: Any, target: Any, foil: Any, option: str, value: Any) -> None:
        nonlocal came
        for trace in traces:
            for options in ({"target": target, "foil": foil}, {option: value}):
                made = asked(lambda trace=trace, options=options: mixlens.attribute(trace, name, **options))
                assert made is None or (isinstance(made, mixlens.Attribution) and torch.isfinite(made.scores).all())
                came += made is not None

    each()
    assert came >= 4  # of each example its target on the model that has it, and its option on one of them


FEW_STEPS: dict[str, dict[str, Any]] = {"integrated_gradients": {"steps": 4}, **conftest.QUICK}
METHOD_OPTIONS = [
    (name, option) for name, used in {**maps.known(), **attributions.known()}.items() for option in used.options
]


def test_the_options_that_cost_are_among_those_that_are_tried() -> None:
    assert {("integrated_gradients", "steps"), ("integrated_gradients", "chunk"), ("hta", "probes")} <= set(
        METHOD_OPTIONS
    )


@pytest.mark.filterwarnings(
    "ignore::mixlens.scoring.completeness.IncompleteWarning"
)  # one step is allowed, and warned of
@pytest.mark.parametrize(("name", "option"), METHOD_OPTIONS)
def test_any_value_of_a_methods_own_option(model: Any, sentiment: Any, name: str, option: str) -> None:
    """Sizes are bounded here: what is large takes its time, and is no error. The other options are those that are
    quick."""
    came = 0
    traces = (model.trace("The keys [MASK] rusty."), sentiment.trace("a good film"))
    own = {**maps.known(), **attributions.known()}[name].options[option]
    others = FEW_STEPS.get(name, {})

    @settings(QUICK, max_examples=2)  # beside those below
    @given(value=sized)
    @example(value=own)
    @example(value=0)
    @example(value=-1)
    @example(value=1)
    @example(value=2.5)
    @example(value=True)
    @example(value="7")
    @example(value=float("nan"))
    @example(value=[3])
    def each(value: Any) -> None:
        nonlocal came
        for trace in traces:
            made = asked(lambda trace=trace: mixlens.attribute(trace, name, **{**others, option: value}))
            assert made is None or torch.isfinite(made.scores).all()
            came += made is not None

    each()
    assert came > 0  # at least what the option is without being given


# --- runs -------------------------------------------------------------------------------------------------------------


@QUICK
@given(
    rows=st.lists(
        texts | anything | st.fixed_dictionaries({"text": texts | anything, "id": anything}), min_size=1, max_size=5
    )
)
@example(rows=[(), ("a",), ("a", "b", "c"), ("a [MASK]", "b"), mixlens.Example(7)])  # type: ignore[arg-type]
def test_any_rows(model: Any, tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    out = tmp_path_factory.mktemp("fuzz") / "run"
    made = asked(lambda: mixlens.run(rows, model=model, out=out, progress=False, shard_rows=2))
    if made is not None:
        assert made.rows + made.errors == len(rows)
        assert sorted(
            [row["row"] for path in shards.shard_files(out) for row in parquet.read_table(path).to_pylist()]
            + [json.loads(line)["row"] for line in (out / "errors.jsonl").read_text().split("\n") if line]
        ) == list(range(1, len(rows) + 1))


@QUICK
@given(
    name=st.sampled_from(
        [
            "methods",
            "limit",
            "columns",
            "target",
            "foil",
            "score",
            "query",
            "maps",
            "batch_tokens",
            "shard_rows",
            "split",
            "text_field",
            "pair_field",
            "ids_field",
        ]
    ),
    value=anything
    | st.sampled_from(["alti", ["alti:x=1"], ["random:seed=a"], "alti:rollout=\ud800", "value_zeroing:query=0"])
    | st.builds(
        lambda pair, value: [
            f"{pair[0]}:{pair[1]}={value if isinstance(value, str) else json.dumps(value, default=str)}"
        ],
        st.sampled_from(METHOD_OPTIONS),
        sized,
    ),
)
def test_any_option_of_a_run(model: Any, tmp_path_factory: pytest.TempPathFactory, name: str, value: Any) -> None:
    out = tmp_path_factory.mktemp("fuzz") / "run"
    rows = [{"text": "The keys [MASK] rusty.", "note": 1}, {"text": "The key [MASK] here."}]
    asked(
        lambda: mixlens.run(rows, model=model, out=out, progress=False, **{"methods": ["alti", "attcat"], name: value})
    )


@QUICK
@given(content=st.binary(max_size=80), kind=st.sampled_from([".jsonl", ".csv", ".tsv", ".parquet", ".txt"]))
def test_any_file(model: Any, tmp_path_factory: pytest.TempPathFactory, content: bytes, kind: str) -> None:
    place = tmp_path_factory.mktemp("fuzz")
    (place / f"x{kind}").write_bytes(content)
    asked(lambda: mixlens.run(place / f"x{kind}", model=model, out=place / "run", progress=False))


# --- hostile files ----------------------------------------------------------------------------------------------------


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, place: Path):
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


def test_nothing_in_the_package_unpickles() -> None:
    for path in ROOT.rglob("*.py"):
        source = path.read_text()
        found = re.search(
            r"\bpickle|\bdill\b|joblib\.load|torch\.load|allow_pickle|import shelve|import marshal|yaml\.load", source
        )
        assert not found, f"{path}: {found and found[0]}"


@pytest.mark.parametrize("kind", [".safetensors", ".jsonl", ".csv", ".parquet", ".txt"])
def test_a_malicious_file_runs_nothing(model: Any, tmp_path: Path, kind: str) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    pickle.loads(pickle.dumps(Bomb(tmp_path / "control")))
    assert (tmp_path / "control").is_dir()  # the bomb works
    file = tmp_path / f"x{kind}"
    for content in (bomb, struct.pack("<Q", len(bomb)) + bomb, b"PAR1" + bomb + b"PAR1"):
        file.write_bytes(content)
        if kind == ".safetensors":
            assert asked(lambda: mixlens.load_result(file)) is None
        else:
            asked(lambda: mixlens.run(file, model=model, out=tmp_path / "out", progress=False))
    torch.save({"scores": Bomb(tmp_path / "exploded")}, tmp_path / "y.safetensors")
    assert asked(lambda: mixlens.load_result(tmp_path / "y.safetensors")) is None
    assert not (tmp_path / "exploded").exists()


def test_a_malicious_shard_runs_nothing_and_names_no_other_file(model: Any, tmp_path: Path) -> None:
    import pyarrow as pa

    out = tmp_path / "run"
    rows = ["The keys [MASK] rusty."]
    mixlens.run(rows, model=model, out=out, progress=False, maps=True)
    (path,) = shards.shard_files(out)
    told = {**shards.facts_of(path), "maps": "../../secret.parquet"}
    table = parquet.read_table(path)
    parquet.write_table(table, tmp_path / "secret.parquet")
    hostile = tmp_path / "hostile.parquet"
    parquet.write_table(table.replace_schema_metadata({"mixlens": json.dumps(told)}), hostile)
    path.unlink()
    place = path.with_name(shards.file_name(0, hostile.read_bytes()))
    place.write_bytes(hostile.read_bytes())
    with pytest.raises(mixlens.MixlensError, match="are not there"):
        list(corpus.maps(out))
    with pytest.warns(UserWarning, match=place.name):
        made = mixlens.run(rows, model=model, out=out, progress=False, maps=True)
    assert made.done == 1
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    parquet.write_table(
        pa.table({"row": [1]}).replace_schema_metadata({b"mixlens": bomb, b"pandas": bomb, b"ARROW:schema": bomb}),
        hostile,
    )
    (out / "shards" / shards.file_name(1, hostile.read_bytes())).write_bytes(hostile.read_bytes())
    with pytest.warns(UserWarning, match="damaged"):
        mixlens.run(rows, model=model, out=out, progress=False, maps=True)
    assert not (tmp_path / "exploded").exists()


WHOLE = {
    "kind": "Attribution",
    "schema": 1,
    "tokens": ["a", "b"],
    "method": "alti",
    "info": {},
    "special": [False, False],
    "words": None,
}


def test_any_result_file(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    came, file = 0, tmp_path / "x.safetensors"

    @QUICK
    @given(
        told=anything
        | st.fixed_dictionaries(
            {
                "schema": st.just(1) | anything,
                "kind": st.sampled_from(["Map", "Attribution"]) | anything,
                "tokens": anything,
                "method": anything,
                "info": anything,
                "special": anything,
                "words": anything,
            }
        ),
        cut=st.integers(0, 400) | st.none(),
    )
    @example(told=WHOLE, cut=None)
    @example(told=WHOLE, cut=40)
    def each(told: Any, cut: int | None) -> None:
        nonlocal came
        save_file({"scores": torch.zeros(2)}, file, metadata={"mixlens": json.dumps(told, default=str)})
        file.write_bytes(file.read_bytes()[:cut])
        made = asked(lambda: mixlens.load_result(file))
        assert made is None or isinstance(made, mixlens.Map | mixlens.Attribution)
        came += made is not None

    each()
    assert came >= 1  # the whole one
