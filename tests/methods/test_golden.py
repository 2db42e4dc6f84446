"""The papers' own code, run on tiny models: our numbers are theirs. Needs the golden values beside the project."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SHARED

import mixlens

GOLDEN = SHARED / "golden"
if not SHARED.is_dir():
    pytest.skip("needs the folder `shared` (golden values) beside the project", allow_module_level=True)
GLOBENC = {
    "W": "attention",
    "W_FIXEDRES": "attention_fixed_residual",
    "W_RES": "attention_residual",
    "N": "norm",
    "N_FIXEDRES": "norm_fixed_residual",
    "N_RES": "norm_residual",
    "N_RESLN": "norm_residual_ln",
    "N_ENC": "globenc",
}


FOLDERS = ("globenc", "kobayashi", "alti", "value_zeroing", "context_mixing_toolkit")


def files(folder: str) -> list[Path]:
    return sorted((GOLDEN / folder).glob("*_f64*.npz")) if GOLDEN.is_dir() else []


@cache
def trace_of(stem: str) -> Any:
    inputs = json.loads((GOLDEN / "models" / "inputs.json").read_text())
    name, case = next((stem[: stem.index(f"_{c}_")], c) for c in inputs if f"_{c}_" in stem)
    chosen = dict(inputs[case])
    if name.startswith(("gpt2", "roberta", "distilbert")):
        chosen.pop("token_type_ids")
    model = mixlens.load(GOLDEN / "models" / name, dtype="float64")
    return model.trace(**chosen)


def same(made: Any, expected: np.ndarray, *, rtol: float = 1e-9, atol: float = 1e-13) -> None:
    n = made.shape[-1]
    np.testing.assert_allclose(
        np.asarray(made), expected[..., :n, :n] if expected.ndim > 2 else expected[..., :n], rtol=rtol, atol=atol
    )


def test_every_folder_of_golden_values_holds_some() -> None:
    """The tests below are one for each file: without files there would be none, and nobody would see it."""
    for folder in (*FOLDERS, "effective_attention", "hta", "attention_flow"):
        assert files(folder), folder


@pytest.mark.parametrize("path", files("globenc"), ids=lambda p: p.stem)
def test_globenc_and_the_norm_family(path: Path) -> None:
    golden, trace = np.load(path), trace_of(path.stem)
    for theirs, ours in GLOBENC.items():
        made = mixlens.mix(trace, ours)
        same(made.scores, golden[theirs])
        same(made.rollout("globenc").scores, golden[f"rollout_{theirs}"])
        if f"ratio_{theirs}" in golden and "mixing_ratio" in made.info:
            np.testing.assert_allclose(made.info["mixing_ratio"], golden[f"ratio_{theirs}"], rtol=1e-9)


@pytest.mark.parametrize("path", files("kobayashi"), ids=lambda p: p.stem)
def test_kobayashi(path: Path) -> None:
    golden, trace = np.load(path), trace_of(path.stem)
    same(mixlens.mix(trace, "norm").scores, golden["k20_N"])
    for theirs in ("N", "N_RES", "N_RESLN"):
        made = mixlens.mix(trace, GLOBENC[theirs])
        same(made.scores, golden[f"k21_{theirs}"])
        np.testing.assert_allclose(made.info["mixing_ratio"], golden[f"k21_ratio_{theirs}"], rtol=1e-9)


@pytest.mark.parametrize("path", files("alti"), ids=lambda p: p.stem)
def test_alti(path: Path) -> None:
    golden, trace = np.load(path), trace_of(path.stem)
    released = mixlens.mix(trace, "alti", variant="released_2022" if "commit4c0759a" in path.stem else "released")
    same(released.scores, golden["alti_layer"])
    same(released.rollout().scores, golden["alti_rollout"])
    if "commit4c0759a" in path.stem:
        return
    if "tiny_eps" not in path.stem:  # eps of 0.05 is not rounding: only `released` leaves it out
        ours = mixlens.mix(trace, "alti")
        same(ours.scores, golden["alti_layer"], rtol=0, atol=1e-5)
        same(ours.rollout().scores, golden["alti_rollout"], rtol=0, atol=1e-5)
    same(mixlens.mix(trace, "norm_residual_ln").rollout("alti").scores, golden["norm_rollout"])
    same(mixlens.mix(trace, "attention").rollout().scores, golden["attn_rollout"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("path", files("value_zeroing"), ids=lambda p: p.stem)
def test_value_zeroing(path: Path) -> None:
    golden, trace = np.load(path), trace_of(path.stem)
    for variant in ("paper", "released"):
        made = mixlens.mix(trace, "value_zeroing", variant=variant)
        same(made.scores, golden["vz_layer"], atol=1e-12)
        same(made.rollout().scores, golden["vz_rollout"], atol=1e-12)
    hidden = trace.hidden_states
    np.testing.assert_allclose(hidden, golden["hidden_states"][:, : hidden.shape[1]], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("path", files("context_mixing_toolkit"), ids=lambda p: p.stem)
def test_toolkit(path: Path) -> None:
    """Its GPT-2 code rounds distances to five decimals: that is the `released` variant for causal models."""
    golden, trace = np.load(path), trace_of(path.stem)
    same(mixlens.mix(trace, "attention").scores, golden["attention"])
    same(mixlens.mix(trace, "attention").rollout().scores, golden["attention_rollout"])
    made = mixlens.mix(trace, "value_zeroing", variant="released")
    same(made.scores, golden["value_zeroing"], atol=1e-12)
    same(made.rollout().scores, golden["value_zeroing_rollout_res_false"], atol=1e-12)
    if "gpt2" in path.stem:
        # Unrounded against rounded: 1e-5 on each distance, and a row of distances may sum to as little as 0.01.
        same(mixlens.mix(trace, "value_zeroing").scores, golden["value_zeroing"], rtol=0, atol=1e-3)
    if "n_enc" in golden:
        for theirs, ours in {"": "norm", "_res": "norm_residual", "_res_ln": "norm_residual_ln"}.items():
            same(mixlens.mix(trace, ours).scores, golden[f"attention_norm{theirs}"])
        same(mixlens.mix(trace, "globenc").scores, golden["n_enc"])
        same(mixlens.mix(trace, "globenc").rollout("toolkit").scores, golden["globenc_rownorm_then_rollout"])


@pytest.mark.parametrize(
    ("name", "alti_within", "zeroing_within"), [("minilm-sst2", 5e-6, 1e-4), ("stories260K", 5e-6, 1e-4)]
)
def test_float32_is_as_good_as_float64_on_a_real_model(name: str, alti_within: float, zeroing_within: float) -> None:
    texts = [
        "it 's a charming and often affecting journey .",
        "unflinchingly bleak and desperate",
        "a dull , lifeless mess .",
    ]
    folder = SHARED / "models" / name
    narrow, wide = (mixlens.load(folder, dtype=dtype).trace(texts) for dtype in ("float32", "float64"))
    for method, within in (("alti", alti_within), ("value_zeroing", zeroing_within)):
        for a, b in zip(mixlens.mix(narrow, method), mixlens.mix(wide, method), strict=True):
            assert a.scores.dtype == torch.float32
            assert float((a.scores.double() - b.scores).abs().max()) < within
