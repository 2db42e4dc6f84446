"""Relevance: the released code's numbers, the rules written out, nothing lost on the way down, nothing left behind."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import CONFIGURATIONS, ROUNDED, SHARED, head_of, hf_model, ids, loaded, needs_shared
from test_untouched import assert_same, state_of
from torch import Tensor, nn

import mixlens
from mixlens.methods import _backward_rules, deeplift, lrp
from mixlens.scoring import attributions, targets

CLASSIFIER = "AutoModelForSequenceClassification"
GOLDEN = SHARED / "golden"


def files(folder: str) -> list[Path]:
    return sorted((GOLDEN / folder).glob("bert_tiny_*_f64.npz")) if GOLDEN.is_dir() else []


@cache
def golden_trace(stem: str) -> Any:
    """Released code never passes segment ids, so the pair is traced without."""
    given = json.loads((GOLDEN / "models" / "inputs.json").read_text())[stem.split("_")[2]]
    model = mixlens.load(GOLDEN / "models" / "bert_tiny", dtype="float64")
    return model.trace(input_ids=given["input_ids"], attention_mask=given["attention_mask"])


def same(made: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(made), expected, rtol=1e-9, atol=1e-13)


# --- golden values ---


@needs_shared
@pytest.mark.parametrize("path", files("attcat"), ids=lambda path: path.stem)
@pytest.mark.parametrize("mask", ["maskones", "maskspecial"])
def test_golden_attcat(path: Path, mask: str) -> None:
    golden, trace, hidden = np.load(path), golden_trace(path.stem), mask == "maskspecial"
    for k in range(3):
        for name, key in (("transatt", "TransAtt"), ("partial_lrp", "PartialLRP")):
            read = attributions.attribute(trace, name, target=k, variant="released", mask_special=hidden)
            same(read.scores, golden[f"{mask}/class{k}/{key}"])
            assert read.info["rules"] == "chefer"
        question = attributions.Question(trace, targets.resolve(trace, k), None, 0)
        inputs = lrp.inputs_of(question, "released", mask_special=hidden)
        same(torch.stack(lrp.relevance(question, "chefer", inputs)[0]), golden[f"{mask}/class{k}/attn_cam_lrp"])
        run = trace.model.run_attached(inputs)
        gradients = torch.autograd.grad(question.target.of(run.output)[0], run.attention)
        same(torch.cat(gradients), golden[f"{mask}/class{k}/attn_grad"])


@needs_shared
@pytest.mark.parametrize("path", files("chefer"), ids=lambda path: path.stem)
def test_golden_chefer(path: Path) -> None:
    golden, trace = np.load(path), golden_trace(path.stem)
    for k in range(3):
        same(
            attributions.attribute(trace, "transatt", target=k, variant="released_chefer").scores,
            golden[f"class{k}/transformer_attribution"],
        )
        same(
            attributions.attribute(trace, "partial_lrp", target=k, variant="released_chefer").scores,
            golden[f"class{k}/partial_lrp_origLRP"],
        )


@needs_shared
def test_golden_relevance_of_the_input() -> None:
    """All the way down: what the released code calls full LRP."""
    for folder, book, prefix, key in (
        ("attcat", "chefer", "maskones/", "FullLRP"),
        ("chefer", "original_released", "", "full_lrp_origLRP"),
    ):
        for path in files(folder):
            golden, trace = np.load(path), golden_trace(path.stem)
            model = trace.model
            for k in range(3):
                with _backward_rules.rules(lrp.RULES[book], model.hf_model):
                    run = model.run_attached(model.inputs([trace]))
                (sent,) = torch.autograd.grad(run.output.logits[0, k], [run.inputs[0]])
                same(sent[0].sum(-1)[1:], golden[f"{prefix}class{k}/{key}"][1:])


# --- every family ---


@pytest.mark.parametrize("case", list(CONFIGURATIONS))
def test_no_relevance_is_lost_in_any_family(case: str) -> None:
    """1 at the logit, and 1 in the input of every layer, to what the guard of 1e-9 in every division takes."""
    trace = loaded(case, head=head_of(case)).trace(input_ids=ids(7))
    for name in ("transatt", "partial_lrp"):
        read = attributions.attribute(trace, name)
        assert read.info["functions_without_rule"] == []
        assert read.info["conservation_gap"] < 1e-6
        assert read.info["relevance_per_layer"] == pytest.approx([1.0] * 4, abs=1e-6)
        assert float(read.scores.min()) >= 0
        assert float(read.scores.max()) > 0
    assert float(attributions.attribute(trace, "transatt").scores.sum()) == pytest.approx(
        1, abs=1e-10
    )  # rows of a rolled-out map


@pytest.mark.parametrize("case", list(CONFIGURATIONS))
def test_the_model_computes_the_same_while_the_book_is_open(case: str) -> None:
    model = loaded(case, head=head_of(case))
    inputs = model.inputs([model.trace(input_ids=ids(6))])
    plain = model.run_attached(inputs)
    for book in (deeplift.DEEPLIFT, *lrp.RULES.values()):
        with _backward_rules.rules(
            book, model.hf_model, _backward_rules.composed(model.hf_model, [parts.mlp_act for parts in model.parts])
        ):
            ruled = model.run_attached(inputs)
        for name in ("inputs", "outputs", "attention"):
            assert all(torch.equal(a, b) for a, b in zip(getattr(plain, name), getattr(ruled, name), strict=True))
        assert torch.equal(plain.output.logits, ruled.output.logits)
        if case not in ROUNDED:
            with torch.no_grad():
                torch.testing.assert_close(model.hf_model(**inputs).logits, ruled.output.logits, rtol=0, atol=1e-10)


# --- the rules written out ---


class OneLayer(nn.Module):
    """Attention over three tokens, residual, norm, feed-forward, residual, read at the first position."""

    def __init__(self, d: int):
        super().__init__()
        self.q, self.k, self.v, self.o, self.up, self.down = (nn.Linear(d, d) for _ in range(6))
        self.norm, self.read = nn.LayerNorm(d), nn.Linear(d, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.attention = (self.q(x) @ self.k(x).transpose(-1, -2) * 0.5).softmax(-1)
        h = self.norm(x + self.o(self.attention @ self.v(x)))
        return self.read(h + self.down(F.gelu(self.up(h))))[:, 0]


def linear_down(layer: nn.Linear, x: list[float], r: list[float]) -> list[float]:
    """Each output's relevance goes to the inputs that pushed it up, in proportion; the bias gets none."""
    sent = [0.0] * len(x)
    for o, weights in enumerate(layer.weight.tolist()):
        pushed = [max(0.0, x[i] * weights[i]) for i in range(len(x))]
        if any(pushed):
            sent = [old + r[o] * part / sum(pushed) for old, part in zip(sent, pushed, strict=True)]
    return sent


def sum_down(
    a: list[list[float]], b: list[list[float]], r: list[list[float]], rescaled: bool
) -> list[list[list[float]]]:
    """In proportion to the two terms; then each branch gets the share of its absolute sum, over the whole text."""
    places = [(t, i) for t in range(len(a)) for i in range(len(a[0]))]
    both = [[[0.0] * len(a[0]) for _ in a] for _ in range(2)]
    for t, i in places:
        both[0][t][i] = a[t][i] / (a[t][i] + b[t][i]) * r[t][i]
        both[1][t][i] = b[t][i] / (a[t][i] + b[t][i]) * r[t][i]
    if rescaled:
        sums = [sum(branch[t][i] for t, i in places) for branch in both]
        whole = sum(r[t][i] for t, i in places)
        for branch, total in zip(both, sums, strict=True):
            for t, i in places:
                branch[t][i] *= abs(total) / (abs(sums[0]) + abs(sums[1])) * whole / total
    return both


@pytest.mark.parametrize("book", ["chefer", "original"])
def test_the_rules_written_out_number_by_number(book: str) -> None:
    """From one class down to the attention and to the input, with loops."""
    torch.manual_seed(2)
    net, rescaled, n, d = OneLayer(10).double(), book == "chefer", 3, 10
    x = torch.randn(1, n, d, dtype=torch.float64)
    with torch.no_grad():  # the forward pass, part by part
        q, k, v = (layer(x)[0].tolist() for layer in (net.q, net.k, net.v))
        a = (net.q(x) @ net.k(x).transpose(-1, -2) * 0.5).softmax(-1)
        context = (a @ net.v(x))[0]
        branch = net.o(context)
        h = net.norm(x[0] + branch)
        up = net.up(h)
        f = net.down(F.gelu(up))
    rows, zero = range(n), [[0.0] * d for _ in range(n)]
    # the head reads the first position
    r = [linear_down(net.read, (h + f)[0].tolist(), [0.0, 1.0]), *zero[1:]]
    r_h, r_f = sum_down(h.tolist(), f.tolist(), r, rescaled)
    for t in rows:
        r_gelu = linear_down(net.down, F.gelu(up)[t].tolist(), r_f[t])
        r_h[t] = [old + new for old, new in zip(r_h[t], linear_down(net.up, h[t].tolist(), r_gelu), strict=True)]
    r_x, r_branch = sum_down(x[0].tolist(), branch.tolist(), r_h, rescaled)
    r_context = [linear_down(net.o, context[t].tolist(), r_branch[t]) for t in rows]
    # context = attention values: each gets half
    weights, c = a[0].tolist(), context.tolist()
    r_a, r_v = [[0.0] * n for _ in rows], [[0.0] * d for _ in rows]
    for i in rows:
        for j in rows:
            for e in range(d):
                part = weights[i][j] * v[j][e] / c[i][e] * r_context[i][e] / 2
                r_a[i][j] += part
                r_v[j][e] += part
    # logits = queries keys: each gets half
    r_q, r_k = [[0.0] * d for _ in rows], [[0.0] * d for _ in rows]
    for i in rows:
        for j in rows:
            dot = sum(q[i][e] * k[j][e] for e in range(d))
            for e in range(d):
                part = q[i][e] * k[j][e] / dot * r_a[i][j] / 2
                r_q[i][e] += part
                r_k[j][e] += part
    for t in rows:
        for layer, r_out in ((net.q, r_q), (net.k, r_k), (net.v, r_v)):
            r_x[t] = [
                old + new for old, new in zip(r_x[t], linear_down(layer, x[0, t].tolist(), r_out[t]), strict=True)
            ]
    leaf = x.clone().requires_grad_()
    with _backward_rules.rules(lrp.RULES[book], net) as block:
        out = net(leaf)
    sent_a, sent_x = torch.autograd.grad(out[0, 1], [net.attention, leaf])
    assert block.unruled == set()
    torch.testing.assert_close(sent_a[0], torch.tensor(r_a, dtype=torch.float64), rtol=1e-6, atol=1e-7)  # the guard
    torch.testing.assert_close(sent_x[0], torch.tensor(r_x, dtype=torch.float64), rtol=1e-6, atol=1e-7)
    assert float(sent_x.sum()) == pytest.approx(1, abs=1e-6)


def test_a_sum_that_cancels_hands_on_what_it_got() -> None:
    """Two branches of opposite sign: in proportion they get 11 and -10 times the relevance, rescaled 0.52 and 0.48 of
    it."""
    a, b = torch.full((1, 4), 1.1), torch.full((1, 4), -1.0)
    for book, expected in (("chefer", (1.1 / 2.1, 1 / 2.1)), ("original", (11.0, -10.0))):
        leaves = [a.double().requires_grad_(), b.double().requires_grad_()]
        with _backward_rules.rules(lrp.RULES[book], nn.Module()):
            out = leaves[0] + leaves[1]
        sent = torch.autograd.grad(out, leaves, torch.full_like(out, 0.25))
        assert [float(part.sum()) for part in sent] == pytest.approx(expected, rel=1e-6)


def test_what_is_scaled_normed_or_divided_keeps_its_relevance() -> None:
    x = torch.randn(1, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    other = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    sent_down = torch.randn(1, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for function in (
        lambda x: -2 * x / 7 + other,
        lambda x: 1 - x,
        lambda x: x.clone().mul_(3).tanh_(),
        lambda x: other * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        lambda x: F.gelu(F.layer_norm(x, (4,), other, other)),
        lambda x: x.float().to(torch.float64).view(3, 4).t().contiguous().t()[None],
        lambda x: x / x.exp(),
    ):
        leaf = x.clone().requires_grad_()
        with _backward_rules.rules(lrp.RULES["chefer"], nn.Module()) as block:
            out = function(leaf)
        (sent,) = torch.autograd.grad(out, leaf, sent_down)
        assert block.unruled == set()
        torch.testing.assert_close(sent, sent_down, rtol=1e-6, atol=1e-7)


def test_an_activation_of_several_functions_counts_as_one() -> None:
    """Its own sums and products would each take their guard, and share relevance of both signs out among positions."""
    model = loaded("gpt2", head=CLASSIFIER)
    act = model.parts[0].mlp_act
    assert type(act).__name__ == "NewGELUActivation"
    x, down = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    leaf = x.clone().requires_grad_()
    with _backward_rules.rules(lrp.RULES["chefer"], act, _backward_rules.composed(act, [act])):
        out = act(leaf)
    assert torch.equal(torch.autograd.grad(out, leaf, down)[0], down)
    trace = model.trace(input_ids=ids(5))
    found = []
    for activations in (_backward_rules.composed(model.hf_model, [act]), []):
        with _backward_rules.rules(lrp.RULES["chefer"], model.hf_model, activations):
            run = model.run_attached(model.inputs([trace]))
        (sent,) = torch.autograd.grad(run.output.logits[0, 1], [run.attention[-1]])
        found.append(sent[0].clamp(min=0).mean(0)[-1][1:])
    ours = attributions.attribute(trace, "partial_lrp", target=1, variant="released").scores[1:]
    torch.testing.assert_close(ours, found[0], rtol=1e-12, atol=0)
    assert not torch.allclose(ours, found[1], rtol=1e-11, atol=0)


def test_a_linear_model_hands_on_positive_contributions() -> None:
    torch.manual_seed(0)
    net = nn.Linear(5, 3).double()
    x = torch.randn(1, 5, dtype=torch.float64, requires_grad=True)
    expected = torch.tensor(linear_down(net, x[0].tolist(), [0.0, 0.0, 1.0]), dtype=torch.float64)
    for call in (net, lambda x: torch.addmm(net.bias, x, net.weight.t()), lambda x: x @ net.weight.t() + net.bias):
        with _backward_rules.rules(lrp.RULES["chefer"], net):
            out = call(x)
        (sent,) = torch.autograd.grad(out[0, 2], x)
        torch.testing.assert_close(sent[0], expected, rtol=1e-7, atol=1e-10)
        assert float(sent.sum()) == pytest.approx(1, abs=1e-7)
    with _backward_rules.rules(lrp.RULES["original_released"], net):
        out = net(x)
    (sent,) = torch.autograd.grad(out.sum(), x)
    signs = [(x.sign() == sign) & (net.weight.sign() == sign) for sign in (1, -1)]
    assert float(sent.sum()) == pytest.approx(float(sum(pushed.any(1).sum() for pushed in signs)), abs=1e-6)
    assert float(sent.sum()) > 3.5  # the slip: both signs get the whole


# --- variants, targets ---


def test_variants_differ_by_the_first_entry() -> None:
    trace = loaded("bert", head=CLASSIFIER).trace(input_ids=ids(6))
    paper, attcat, chefer = (
        attributions.attribute(trace, "transatt", variant=v).scores for v in ("paper", "released", "released_chefer")
    )
    assert torch.equal(paper[1:], attcat[1:])
    assert torch.equal(paper[1:], chefer[1:])
    assert (float(attcat[0]), float(chefer[0])) == (0.0, float(paper.min()))
    assert float(paper[0]) > 0.5
    assert float(attributions.attribute(trace, "partial_lrp", variant="released").scores[0]) == 0
    assert float(attributions.attribute(trace, "partial_lrp").scores[0]) > 0
    unnormed = attributions.attribute(trace, "transatt", normalize=False).scores
    assert float(unnormed.sum()) > 1.0001
    assert unnormed.argsort().tolist() == paper.argsort().tolist()


def test_transatt_is_the_product_of_its_layers() -> None:
    trace = loaded("bert", head=CLASSIFIER).trace(input_ids=ids(5))
    question = attributions.Question(trace, targets.resolve(trace, 1), None, 0)
    attention, _ = lrp.relevance(question, "chefer", question.inputs)
    gradients = question.gradient(*question.run.attention)
    rolled = np.eye(5)
    for layer in range(3):
        mixed = np.eye(5)
        for i in range(5):
            for j in range(5):
                mixed[i, j] += np.mean(
                    [max(0.0, float(gradients[layer][h, i, j] * attention[layer][h, i, j])) for h in range(4)]
                )
        rolled = (mixed / mixed.sum(1, keepdims=True)) @ rolled
    np.testing.assert_allclose(attributions.attribute(trace, "transatt", target=1).scores, rolled[0], rtol=1e-10)


def test_a_foil_is_subtracted_and_the_score_does_not_matter() -> None:
    trace = loaded("bert", head="AutoModelForMaskedLM").trace(input_ids=ids(6))
    alone = [attributions.Question(trace, targets.resolve(trace, token, query=2), None, 2) for token in (11, 7)]
    wanted, foil = (lrp.relevance(question, "original", question.inputs)[0][-1] for question in alone)
    read = attributions.attribute(trace, "partial_lrp", target=11, foil=7, query=2)
    torch.testing.assert_close(read.scores, (wanted - foil).clamp(min=0).mean(0)[2], rtol=1e-9, atol=1e-12)
    assert float(read.scores.max()) > 0
    again = attributions.attribute(trace, "partial_lrp", target=11, foil=7, query=2, score="probability")
    assert torch.equal(read.scores, again.scores)
    assert float(attributions.attribute(trace, "transatt", target=11, foil=7, query=2).scores.sum()) == pytest.approx(1)


def test_hidden_special_tokens_are_not_looked_at() -> None:
    trace = mixlens.load("sentiment", dtype="float64").trace("a wonderful film")
    special = torch.tensor(trace.special)
    hidden = attributions.attribute(trace, "partial_lrp", mask_special=True).scores
    assert float(hidden[special].abs().max()) == 0
    assert float(hidden[~special].min()) >= 0
    assert float(attributions.attribute(trace, "partial_lrp").scores[special].max()) > 0


@pytest.mark.parametrize("case", ["bert", "gpt2", "llama", "gpt_neo", "qwen3"])
def test_nothing_is_left_behind_not_even_by_an_error(case: str) -> None:
    model = copy.deepcopy(hf_model(case, head=CLASSIFIER)).train().requires_grad_()
    next(model.parameters()).requires_grad_(False)
    lens = mixlens.load(model)
    trace = lens.trace(input_ids=ids(5))
    before, pad = state_of(model), model.config.pad_token_id
    first = {name: attributions.attribute(trace, name).scores for name in ("transatt", "partial_lrp", "deeplift")}
    assert_same(before, state_of(model))

    for name, rows in (("transatt", 1), ("partial_lrp", 1), ("deeplift", 2)):  # text and baseline run together

        def fail(module: nn.Module, args: Any, rows: int = rows) -> None:
            if len(args[0]) == rows:
                raise KeyboardInterrupt

        handle = lens.parts[-1].mlp_down.register_forward_pre_hook(fail)
        with pytest.raises(KeyboardInterrupt):
            attributions.attribute(trace, name)
        handle.remove()
        assert_same(before, state_of(model))
    assert model.config.pad_token_id == pad
    x = torch.tensor([3.0, 1.0], requires_grad=True)
    assert torch.autograd.grad((x * x)[0], x)[0].tolist() == [6, 0]  # no longer by a rule
    for name, scores in first.items():
        assert torch.equal(attributions.attribute(trace, name).scores, scores)
