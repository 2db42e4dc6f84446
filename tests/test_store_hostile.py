"""A file that says it is a result and is none: refused in one line, or every view of it works."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ids, loaded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

import mixlens
from mixlens import cli


def facts(kind: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """What a real result writes: the head as a value, and its tensors."""
    made = mixlens.mix(loaded("bert").trace(input_ids=ids(2)), "globenc")
    result = made if kind == "Map" else made.rollout().readout(0)
    info = {key: value for key, value in result.info.items() if not isinstance(value, torch.Tensor)}
    told = {
        "kind": kind,
        "schema": 1,
        "tokens": list(result.tokens),
        "method": result.method,
        "info": {**info, "prediction": [["a", 0.5]], "target": "a", "score": "logit", "query": 0, "query_token": "x"},
        "special": list(result.special),
        "words": [["x", [0]], ["y", [1]]],
    }
    return told, {"scores": result.scores.contiguous()}


def written(place: Path, told: Any, tensors: dict[str, torch.Tensor]) -> Path:
    save_file(tensors, place, metadata={"mixlens": told if isinstance(told, str) else json.dumps(told)})
    return place


def seen(result: mixlens.Map | mixlens.Attribution, folder: Path) -> None:
    """Every way to look at it."""
    from mixlens.show import text

    text.rendered(text.view(result))
    result._repr_html_()
    ways = [lambda: mixlens.report(result, folder / "x.html"), result.by_word]
    ways += [result.to_latex, lambda: result.top(2)] if isinstance(result, mixlens.Attribution) else [result.rollout]
    for way in ways:
        with contextlib.suppress(mixlens.MixlensError):
            way()


HEADS: dict[str, dict[str, Any]] = {
    "a token too many": {"tokens": ["a", "b", "c"]},
    "tokens that are numbers": {"tokens": [1, 2]},
    "tokens that are a text": {"tokens": "ab"},
    "no token": {"tokens": []},
    "a method that is a list": {"method": ["alti"]},
    "special that is too long": {"special": [True, False, True]},
    "special that is text": {"special": ["a", "b"]},
    "a word without a place": {"words": [["a", []], ["b", [1]]]},
    "a word beyond the text": {"words": [["a", [0]], ["b", [2]]]},
    "a word at a place below 0": {"words": [["a", [-1]]]},
    "one place for two words": {"words": [["a", [0]]] * 2},
    "words that are numbers": {"words": [[1, [0]]]},
    "words that are a text": {"words": "ab"},
    "facts that are a list": {"info": []},
    "facts that are nothing": {"info": None},
    "a kind that is a list": {"kind": ["Map"]},
    "a schema that is a list": {"schema": [1]},
}
FACTS: dict[str, dict[str, Any]] = {
    "a gap that is a text": {"gap": "small"},
    "a gap that is nothing": {"gap": None},
    "a gap of 400 digits": {"gap": 10**400},
    "a rollout that is a text": {"rollout": "alti"},
    "a rollout without a convention": {"rollout": {"residual": True}},
    "options that are a list": {"options": [1]},
    "versions that are a text": {"versions": "1.0"},
    "a layer that is a text": {"layer": "1"},
    "a layer at the end of numbers": {"at_layer": 10**30},
    "a text that is a number": {"text": 7},
    "a pair that is a list": {"pair": ["a"]},
    "a prediction that is a text": {"prediction": "were"},
    "a prediction without a number": {"prediction": [["a", "b"]]},
    "a prediction of three": {"prediction": [["a", 0.5, 1]]},
    "a token that is a number": {"query_token": 7},
    "a token without a place": {"query": None},
    "a target without a score": {"score": None},
    "notes that are a number": {"notes": 7},
    "a check that is a text": {"check": "fine"},
    "a tolerance that is a list": {"tolerance": [1]},
    "facts a thousand deep": {"own": json.loads("[" * 900 + "]" * 900)},
}


@pytest.mark.parametrize("kind", ["Map", "Attribution"])
@pytest.mark.parametrize("case", [*HEADS, *FACTS])
def test_a_head_that_no_result_has_is_refused(kind: str, case: str, tmp_path: Path) -> None:
    told, tensors = facts(kind)
    told = {**told, **HEADS[case]} if case in HEADS else {**told, "info": {**told["info"], **FACTS[case]}}
    with pytest.raises(mixlens.MixlensError, match=r"not a mixlens result|schema") as error:
        mixlens.load_result(written(tmp_path / "x.safetensors", told, tensors))
    assert "\n" not in str(error.value)


SCORES: dict[str, torch.Tensor] = {
    "of three tokens": torch.ones(2, 3, 3),
    "of three queries": torch.ones(2, 3, 2),
    "of three keys": torch.ones(2, 2, 3),
    "of no layer": torch.ones(0, 2, 2),
    "of a million layers of nothing": torch.ones(1_000_000, 0, 0),
    "flat": torch.ones(8),
    "of whole numbers": torch.ones(2, 2, 2, dtype=torch.int64),
    "of complex numbers": torch.ones(2, 2, 2, dtype=torch.complex64),
    "of eight bits": torch.ones(2, 2, 2).to(torch.float8_e4m3fn),
    "of yes and no": torch.ones(2, 2, 2, dtype=torch.bool),
    "of no number at all": torch.full((2, 2, 2), float("nan")),
}


@pytest.mark.parametrize("case", SCORES)
def test_scores_that_no_map_has_are_refused(case: str, tmp_path: Path) -> None:
    told, _ = facts("Map")
    with pytest.raises(mixlens.MixlensError, match="its scores"):
        mixlens.load_result(written(tmp_path / "x.safetensors", told, {"scores": SCORES[case]}))


def test_tensors_that_no_result_has_are_refused(tmp_path: Path) -> None:
    told, tensors = facts("Map")
    for name in ("other", "info.gap", "info.rollout", "info.prediction"):
        with pytest.raises(mixlens.MixlensError, match="not a mixlens result"):
            mixlens.load_result(written(tmp_path / "x.safetensors", told, {**tensors, name: torch.ones(2)}))


def test_a_head_of_brackets_is_refused(tmp_path: Path) -> None:
    _, tensors = facts("Map")
    for told in (
        "[" * 200_000,
        "[" * 200_000 + "]" * 200_000,
        "nothing",
        '{"kind": "Map"',
        '{"kind": "Map", "schema": NaN}',
    ):
        with pytest.raises(mixlens.MixlensError, match=r"not a mixlens result|schema"):
            mixlens.load_result(written(tmp_path / "x.safetensors", told, tensors))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NAMES = sorted(
    {*facts("Map")[0]["info"], "layer", "at_layer", "generated", "unit", "special_tokens", "notes", "precision", "gaps"}
)


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    kind=st.sampled_from(["Map", "Attribution"]),
    info=st.dictionaries(st.sampled_from(NAMES), JSON, min_size=1, max_size=3),
    head=st.dictionaries(st.sampled_from(["tokens", "method", "special", "words", "kind"]), JSON, max_size=1),
)
def test_any_facts_are_refused_or_can_be_seen(
    kind: str, info: dict[str, Any], head: dict[str, Any], tmp_path: Path
) -> None:
    told, tensors = facts(kind)
    told = {**told, "info": {**told["info"], **info}, **head}
    try:
        result = mixlens.load_result(written(tmp_path / "x.safetensors", told, tensors))
    except mixlens.MixlensError:
        return
    seen(result, tmp_path)


def test_the_command_says_it_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told, tensors = facts("Map")
    place = written(tmp_path / "x.safetensors", {**told, "tokens": ["a", "b", "c"]}, tensors)
    monkeypatch.setattr(sys, "argv", ["mixlens", "report", "--from", str(place), "-o", str(tmp_path / "x.html")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("mixlens: 'x.safetensors' is not a mixlens result")
    assert len(said.splitlines()) == 1


def test_what_is_real_can_be_seen(tmp_path: Path) -> None:
    for kind in ("Map", "Attribution"):
        told, tensors = facts(kind)
        seen(mixlens.load_result(written(tmp_path / "x.safetensors", told, tensors)), tmp_path)
        with safe_open(tmp_path / "x.safetensors", framework="pt") as file:
            assert json.loads(file.metadata()["mixlens"])["kind"] == kind
