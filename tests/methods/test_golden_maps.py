"""Effective attention, HTA and attention flow: the papers' own code and literal derivations on tiny models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_golden import GOLDEN, files, same, trace_of

import mixlens

EFFECTIVE = {
    "effective_sun_marasovic": ("released", None),
    "effective_V_with_bias": ("released", "rank_V_with_bias"),
    "effective_T_with_bias": ("released", "rank_T_with_bias"),
    "effective_T_no_bias_brunner": ("paper", "rank_T_no_bias_brunner"),
}
INPUTS = {"before": "sum", "after": "embout"}
NORMS = {"frobenius": "fro", "spectral": "spec", "sum": "sumvjp"}


@pytest.mark.parametrize("path", files("effective_attention"), ids=lambda p: p.stem)
def test_effective_attention(path: Path) -> None:
    """With the value bias as in the only public code, without it as the paper writes T. A padded input is the same
    input."""
    golden, trace = np.load(path), trace_of(path.stem)
    checked = 0
    for theirs, (variant, rank) in EFFECTIVE.items():
        if theirs not in golden:
            continue
        checked += 1
        for head in range(golden[theirs].shape[1]):
            made = mixlens.mix(trace, "effective_attention", head=head, variant=variant)
            same(made.scores, golden[theirs][:, head], rtol=1e-9, atol=1e-12)
            rest = mixlens.mix(trace, "null_attention", head=head, variant=variant)
            same(rest.scores, golden["raw"][:, head] - golden[theirs][:, head], rtol=0, atol=1e-12)
        average = mixlens.mix(trace, "effective_attention", variant=variant)
        same(average.scores, golden[theirs].mean(1), rtol=1e-9, atol=1e-12)
        if rank is not None:
            assert average.info["rank"].tolist() == golden[rank].tolist()
            assert (average.info["null_dimension"] == len(trace) - average.info["rank"]).all()
    assert checked


@pytest.mark.parametrize("path", files("hta"), ids=lambda p: p.stem)
def test_hta(path: Path) -> None:
    golden, trace = np.load(path), trace_of(path.stem)
    for place, theirs in INPUTS.items():
        for norm, short in NORMS.items():
            made = mixlens.mix(trace, "hta", input=place, norm=norm)
            same(made.scores, golden[f"hta_{theirs}_{short}"])
            same(made.info["raw"], golden[f"hta_{theirs}_{short}_raw"])
    same(mixlens.mix(trace, "hta_layer").scores, golden["layer_hta_fro"])
    same(mixlens.mix(trace, "hta_layer_x_input").scores, golden["layer_htaxinput_fro"])


@pytest.mark.parametrize("path", files("attention_flow"), ids=lambda p: p.stem)
def test_attention_flow(path: Path) -> None:
    golden, attention = np.load(path), mixlens.mix(trace_of(path.stem), "attention")
    flow = attention.flow()
    same(flow.scores, golden["maxflow_row_normalised"], rtol=0, atol=1e-6)
    same(flow.scores[0], golden["A_res_half"][0], rtol=0, atol=1e-9)
    if "rollout" in golden:
        same(attention.rollout().scores, golden["rollout"])
        same(attention.rollout(residual=False).scores, golden["rollout_no_residual"])


@pytest.mark.parametrize(
    "path", sorted((GOLDEN / "attention_flow").glob("*_globenc_maxflow.npz")), ids=lambda p: p.stem
)
def test_flow_of_globencs_maps(path: Path) -> None:
    """Its code takes the matrices as they are, rounded to seven decimals."""
    golden, trace = np.load(path), trace_of(path.stem.replace("_globenc_maxflow", "_f64"))
    for theirs, ours in (("W_FIXEDRES", "attention_fixed_residual"), ("N_ENC", "globenc")):
        made = mixlens.mix(trace, ours)
        same(made.scores, golden[theirs])
        same(made.flow().scores, golden[f"maxflow_{theirs}"], rtol=0, atol=1e-6)
