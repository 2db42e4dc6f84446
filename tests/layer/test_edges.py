"""The ends of ranges, and choices between two ways to read what was asked."""

from __future__ import annotations

import pytest
import torch
from conftest import ids, loaded
from typer.testing import CliRunner

import mixlens
from mixlens.cli.app import app
from mixlens.methods import hta, value_zeroing
from mixlens.scoring import alternative_attention as alternative
from mixlens.scoring import attributions, maps


@pytest.mark.parametrize("method", ["grad_l2", "grad_x_input"])
def test_hidden_states_are_counted_from_both_ends(method: str) -> None:
    trace = loaded("bert", head="AutoModelForSequenceClassification").trace(input_ids=ids(5))
    depth = len(trace.layers)
    first, last = (mixlens.attribute(trace, method, layer=layer).scores for layer in (0, depth))
    assert mixlens.attribute(trace, method, layer=-depth - 1).scores.tolist() == first.tolist()
    assert mixlens.attribute(trace, method, layer=-1).scores.tolist() == last.tolist()
    for layer in (depth + 1, -depth - 2):
        with pytest.raises(mixlens.MixlensError, match="out of range"):
            mixlens.attribute(trace, method, layer=layer)


def test_an_empty_null_space_leaves_nothing() -> None:
    """Rounding errors alone would be rolled out and rescaled, and look like a result."""
    made = mixlens.mix(mixlens.load("agreement").trace("The keys to the cabinet [MASK] rusty."), "null_attention")
    assert not made.info["null_dimension"].any()
    assert not made.scores.any()
    assert not made.rollout().scores.any()
    long = mixlens.mix(loaded("bert").trace(input_ids=ids(30)), "null_attention")
    assert long.info["null_dimension"].all()
    assert (long.scores.abs().amax((-1, -2)) > 1e-3).all()


@pytest.mark.parametrize("method", ["null_attention", "effective_attention"])
def test_scores_below_zero_are_never_made_shares(method: str) -> None:
    """What attention has in the null space may be rounding alone: divided by its sum it would look like a result."""
    lens, text = mixlens.load("agreement"), "The keys to the cabinet [MASK] rusty."
    whole, rest = (lens.explain(text, method=method, keep_special=keep) for keep in (True, False))
    kept = [score for score, special in zip(whole.scores.tolist(), whole.special, strict=True) if not special]
    assert rest.scores.tolist() == kept
    assert not rest.info["special_removed"]["rest_made_to_sum_to_1"]


def test_times_are_of_steps_alone() -> None:
    out = CliRunner().invoke(app, ["explain", "The keys [MASK] rusty.", "--timing"]).output
    named = [line.split("  ")[0].strip() or line.split()[0] for line in out.splitlines() if line.endswith(" ms")]
    assert {"forward", "alti", "proof", "total"} <= set(named)
    assert "batch" not in out


def test_traces_of_two_models_are_explained_each_by_its_own() -> None:
    head = "AutoModelForSequenceClassification"
    first, second = loaded("bert", head=head), loaded("roberta", head=head)
    traces = [model.trace(input_ids=ids(6)) for model in (first, second, first)]
    made = mixlens.attribute(traces, "grad_x_input", target=1)
    for trace, one in zip(traces, made, strict=True):
        alone = mixlens.attribute(trace, "grad_x_input", target=1).scores
        assert one.scores.tolist() == pytest.approx(
            alone.tolist(), rel=1e-9, abs=1e-12
        )  # float64, in a batch and alone


def test_a_rollout_of_tiny_float64_scores_is_their_product() -> None:
    """1e-60 squared is a float64, though the scale that brings it back is no float32; the last product is rescaled."""
    torch.manual_seed(0)
    layers = (
        torch.rand(4, 4, 4, dtype=torch.float64)
        * torch.tensor([1e-60, 1e-60, 1e-60, 1e-200], dtype=torch.float64)[:, None, None]
    )
    made = mixlens.Map(layers, ("a", "b", "c", "d"), "norm", info={"convention": "globenc", "rollout": None})
    rolled = made.rollout(residual=False, normalize=False).scores
    torch.testing.assert_close(rolled[1], layers[1] @ layers[0], rtol=1e-12, atol=0)
    assert float(rolled[3].max()) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(5))
def test_a_corner_of_what_attention_may_be_is_exact(seed: int) -> None:
    """As many weights as there are constraints at the most, all others 0 to the last bit, and no constraint broken."""
    pytest.importorskip("scipy", reason="needs scipy: pip install 'mixlens[analysis]'")
    seeded = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(9, 4, dtype=torch.float64, generator=seeded)).Q
    own = torch.rand(9, dtype=torch.float64, generator=seeded).softmax(-1)
    cost = torch.rand(9, dtype=torch.float64, generator=seeded)
    corner = alternative._corner(cost, basis, own)
    assert 1 <= int((corner > 0).sum()) <= 4
    assert float((basis.T @ (corner - own)).abs().max()) < 1e-12
    assert float(cost @ corner) <= float(cost @ own)


def test_a_gradient_that_is_refused_names_float64_where_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hta, "closed_form", lambda *given, **options: (torch.zeros(5, 5), 1.0))
    for dtype, named in ((torch.float32, True), (torch.float64, False)):
        with pytest.raises(mixlens.MixlensError, match="'hta_layer' gives no map") as refused:
            mixlens.mix(loaded("bert", dtype=dtype).trace(input_ids=ids(5)), "hta_layer")
        assert ("dtype='float64'" in str(refused.value)) == named


def test_the_finest_steps_of_distances() -> None:
    """Two neighbouring ranks that change places move Spearman's rho by 12 / (d (d^2 - 1))."""
    first = torch.arange(10.0, dtype=torch.float64)
    second = first[[0, 1, 2, 4, 3, 5, 6, 7, 8, 9]]
    assert value_zeroing.finest(value_zeroing.spearman, 10, 1e-7) == pytest.approx(
        float(value_zeroing.spearman(first, second))
    )
    assert value_zeroing.finest(value_zeroing.one_minus_cosine, 10, 1e-7) == 4e-7
    assert value_zeroing.finest(value_zeroing.cosine, 10, 1e-7) == 0


def test_a_variant_is_no_option() -> None:
    every = {**maps.known(), **attributions.known()}
    assert any(len(method.variants) > 1 for method in every.values())
    for name, method in every.items():
        assert "variant" not in method.options, name
    assert set(maps.known()["value_zeroing"].options) == {"distance", "standardize", "query"}


def test_a_head_that_is_not_there_has_no_alternative() -> None:
    trace = loaded("bert").trace(input_ids=ids(5))
    for head in (4, -1):
        with pytest.raises(mixlens.MixlensError, match="head"):
            mixlens.alternative_attention(trace, layer=0, head=head)
