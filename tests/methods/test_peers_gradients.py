"""SmoothGrad, GradientSHAP, conductance and sequential Integrated Gradients, written out on the stock model; and
captum's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import hf_model, ids, loaded

import mixlens
from mixlens.scoring import attributions

HEAD = "AutoModelForSequenceClassification"
CASES = ["bert", "gpt2", "llama"]


def trace_of(case: str = "bert", n: int = 6) -> Any:
    return loaded(case, head=HEAD).trace(input_ids=ids(n))


def embedded(trace: Any) -> tuple[Any, torch.Tensor]:
    """The stock model as a function of word embeddings, [t pos d] -> [t]; and the text's embeddings [pos d]."""
    stock, given = trace.model.hf_model, torch.tensor([trace.input_ids])
    target = int(trace.logits.argmax())

    def value(points: torch.Tensor) -> torch.Tensor:
        return stock(inputs_embeds=points).logits[:, target]

    return value, stock.get_input_embeddings()(given).detach()[0]


def gradient(value: Any, point: torch.Tensor) -> torch.Tensor:
    point = point.detach()[None].requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(value(point).sum(), point)[0][0]


# --- SmoothGrad -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times_input", [False, True])
def test_smooth_grad_is_the_mean_gradient_over_the_same_noise(times_input: bool) -> None:
    trace = trace_of()
    value, x = embedded(trace)
    draws = np.random.default_rng(3).standard_normal((5, *x.shape))
    noisy = [x + 0.2 * (x.max() - x.min()) * torch.from_numpy(e) for e in draws]
    mean = torch.stack([gradient(value, point) for point in noisy]).mean(0)
    expected = (mean * x).sum(-1) if times_input else mean.norm(dim=-1)
    read = attributions.attribute(trace, "smooth_grad", count=5, noise=0.2, seed=3, times_input=times_input, chunk=5)
    torch.testing.assert_close(read.scores, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_without_noise_smooth_grad_is_the_gradient(case: str) -> None:
    trace = trace_of(case)
    plain = attributions.attribute(trace, "smooth_grad", count=3, noise=0.0)
    torch.testing.assert_close(
        plain.scores, attributions.attribute(trace, "grad_l2", embedding="word").scores, rtol=1e-9, atol=1e-12
    )
    product = attributions.attribute(trace, "smooth_grad", count=2, noise=0.0, times_input=True)
    torch.testing.assert_close(
        product.scores, attributions.attribute(trace, "grad_x_input", embedding="word").scores, rtol=1e-9, atol=1e-12
    )


def test_smooth_grad_is_captums_up_to_the_draws() -> None:
    """captum draws by torch's global generator: many draws of both agree to the error of a mean of 4,000 draws."""
    captum = pytest.importorskip("captum.attr")
    trace = trace_of(n=4)
    value, x = embedded(trace)
    torch.manual_seed(0)
    deviation = 0.05 * float(x.max() - x.min())
    tunnel = captum.NoiseTunnel(captum.Saliency(value))
    theirs = tunnel.attribute(
        x[None], nt_type="smoothgrad", nt_samples=4000, nt_samples_batch_size=500, stdevs=deviation, abs=False
    )
    read = attributions.attribute(trace, "smooth_grad", count=4000, noise=0.05, chunk=500)
    torch.testing.assert_close(read.scores, theirs[0].norm(dim=-1), rtol=0.05, atol=0)


# --- GradientSHAP -----------------------------------------------------------------------------------------------------


def test_gradient_shap_written_out() -> None:
    """Which baseline each point has, how far from it the points are, then noise: the same however many points a pass
    holds."""
    trace = trace_of()
    value, x = embedded(trace)
    b = trace.model.hf_model.get_input_embeddings().weight[0].detach().expand_as(x)
    generator = np.random.default_rng(7)
    generator.integers(1, size=4)
    shares = generator.random(4)
    noise = generator.standard_normal((4, *x.shape))
    total = torch.zeros(len(x), dtype=torch.float64)
    for e, a in zip(noise, shares, strict=True):
        noisy = x + 0.1 * (x.max() - x.min()) * torch.from_numpy(e)
        total += ((noisy - b) * gradient(value, b + a * (noisy - b))).sum(-1) / 4
    for chunk in (4, 3, 1):
        read = attributions.attribute(trace, "gradient_shap", count=4, noise=0.1, seed=7, baseline="pad", chunk=chunk)
        torch.testing.assert_close(read.scores, total, rtol=1e-9, atol=1e-12)


def test_gradient_shap_goes_to_integrated_gradients() -> None:
    trace = trace_of(n=4)
    exact = attributions.attribute(trace, "integrated_gradients", baseline="pad")
    read = attributions.attribute(trace, "gradient_shap", count=2000, baseline="pad", chunk=250)
    assert read.info["difference"] == pytest.approx(exact.info["difference"], abs=1e-12)
    off = float(read.scores.sum()) - read.info["difference"]
    assert 0 < abs(off) < 4 * read.info["standard_error"]  # four standard errors; the draws are fixed by the seed
    torch.testing.assert_close(read.scores, exact.scores, rtol=0, atol=0.1 * float(exact.scores.abs().max()))


def test_gradient_shap_of_every_baseline_is_the_mean_over_baselines() -> None:
    trace = trace_of(n=4)
    pad, zero, every = (
        attributions.attribute(trace, "gradient_shap", baseline=name, count=2) for name in ("pad", "zero", "every")
    )
    assert every.info["baseline"] == "pad zero"
    assert every.info["difference"] == pytest.approx((pad.info["difference"] + zero.info["difference"]) / 2, abs=1e-12)


# --- conductance ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_conductance_adds_up_at_every_layer(case: str) -> None:
    trace = trace_of(case)
    # From one token to another: a line that begins at zero or at padding runs through a norm's bend: many points.
    whole = attributions.attribute(trace, "integrated_gradients", baseline=7)
    for layer in range(3):
        # The weights are drawn otherwise on other processors: the bound is far away.
        read = attributions.attribute(
            trace, "layer_conductance", layer=layer, baseline=7, tolerance=5e-3, most_steps=20_000
        )
        assert read.info["completeness"]["expected"] == pytest.approx(whole.info["difference"], abs=1e-9)
        assert read.info["completeness"]["relative_gap"] < 5e-3
        assert read.info["at_layer"] == layer


def test_conductance_of_the_embeddings_is_integrated_gradients() -> None:
    """What enters layer 0 of a model without an embedding norm is the word embedding plus a constant."""
    trace = trace_of("gpt2")
    read = attributions.attribute(trace, "layer_conductance", layer=0, tolerance=1e-4, most_steps=20_000)
    exact = attributions.attribute(trace, "integrated_gradients", tolerance=1e-6)
    torch.testing.assert_close(read.scores, exact.scores, rtol=0, atol=1e-3 * float(exact.scores.abs().max()))


def hidden_line(trace: Any, layer: int, points: int) -> tuple[torch.Tensor, torch.Tensor]:
    """h(t) and d target / d h(t) of the stock BERT at equal distances from padding to the text: [t pos d] each."""
    _, x = embedded(trace)
    b = trace.model.hf_model.get_input_embeddings().weight[0].detach().expand_as(x)
    states, slopes = [], []
    for t in np.linspace(0, 1, points):
        with torch.enable_grad():
            point = (b + t * (x - b))[None].requires_grad_()
            output = trace.model.hf_model(inputs_embeds=point, output_hidden_states=True)
            hidden = output.hidden_states[layer]
            states.append(hidden[0].detach())
            slopes.append(torch.autograd.grad(output.logits[0, int(trace.logits.argmax())], hidden)[0][0])
    return torch.stack(states), torch.stack(slopes)


def test_conductance_written_out() -> None:
    """The integral of d target / d h . dh by 400 trapezia, on the stock model."""
    trace = trace_of(n=4)
    hidden, slope = hidden_line(trace, 2, 401)
    expected = ((slope[1:] + slope[:-1]) / 2 * (hidden[1:] - hidden[:-1])).sum((0, -1))
    read = attributions.attribute(
        trace, "layer_conductance", layer=2, baseline="pad", tolerance=1e-4, most_steps=20_000
    )
    torch.testing.assert_close(read.scores, expected, rtol=0, atol=1e-3 * float(expected.abs().max()))


def test_captums_conductance_leaves_out_the_ends_of_the_line() -> None:
    """captum takes differences between Gauss-Legendre nodes, which do not reach 0 and 1, and the gradient at the lower
    one: its sum is off by more than ours with as many points, and comes nearer with more of them."""
    captum = pytest.importorskip("captum.attr")
    trace = trace_of(n=4)
    value, x = embedded(trace)
    b = trace.model.hf_model.get_input_embeddings().weight[0].detach().expand_as(x)
    stock = trace.model.hf_model
    conductance = captum.LayerConductance(value, stock.bert.encoder.layer[1])
    ours = attributions.attribute(trace, "layer_conductance", layer=2, baseline="pad")
    expected = ours.info["completeness"]["expected"]
    sums = {n: float(conductance.attribute(x[None], b[None], n_steps=n).detach().sum()) for n in (32, 512)}
    off = {n: abs(total - expected) / abs(expected) for n, total in sums.items()}
    assert ours.info["steps"] == 33
    assert ours.info["completeness"]["relative_gap"] < off[512] < off[32]


# --- Sequential Integrated Gradients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_sequential_integrated_gradients_are_blank_out_of_embeddings(case: str) -> None:
    """On a line on which one token changes, the integral of the gradient is the change of the target."""
    trace = trace_of(case)
    read = attributions.attribute(trace, "sequential_integrated_gradients", baseline="zero", tolerance=1e-4)
    expected = attributions.attribute(trace, "blank_out", replacement="zero", score="logit").scores
    special = torch.tensor(trace.special)
    torch.testing.assert_close(
        read.scores[~special], expected[~special], rtol=0, atol=1e-3 * float(expected.abs().max())
    )
    assert float(read.scores[special].abs().sum()) == 0
    assert read.info["completeness"]["relative_gap"] < 0.01


def test_sequential_steps_written_out() -> None:
    """Two steps of the right-hand rule, token by token."""
    trace = trace_of(n=4)
    value, x = embedded(trace)
    expected = torch.zeros(4, dtype=torch.float64)
    for j in (j for j in range(4) if not trace.special[j]):
        for t in (0.5, 1.0):
            point = x.clone()
            point[j] = t * x[j]
            expected[j] += (gradient(value, point)[j] * x[j]).sum() / 2
    options = {"baseline": "zero", "steps": 2, "rule": "riemann_right"}
    with pytest.warns(mixlens.scoring.completeness.IncompleteWarning):
        read = attributions.attribute(trace, "sequential_integrated_gradients", **options)
    torch.testing.assert_close(read.scores, expected, rtol=1e-9, atol=1e-12)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_hidden_states_of_the_stock_model_are_not_touched() -> None:
    model = hf_model("bert", head=HEAD)
    trace = mixlens.load(model).trace(input_ids=ids(5))
    before = [weights.clone() for weights in model.parameters()]
    for name in ("smooth_grad", "gradient_shap", "layer_conductance", "sequential_integrated_gradients"):
        first, again = attributions.attribute(trace, name), attributions.attribute(trace, name)
        assert torch.equal(first.scores, again.scores)  # the same draws, the same bits
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
