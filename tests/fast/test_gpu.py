"""On a GPU: the same numbers as on the CPU, by the Triton loops and by the plain ones. Skipped where there is none."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from conftest import CONFIGURATIONS, ROUNDED, hf_model, ids
from torch.nn.functional import normalize

import mixlens
from mixlens.base import errors
from mixlens.fast import loops as kernels
from mixlens.scoring import maps as scoring_maps
from mixlens.scoring.maps import known

shares = partial(normalize, p=1.0, dim=-1)  # rows over the sum of their magnitudes

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device: the tests of this file run on a machine with a GPU", allow_module_level=True)
MAPS = [name for name, method in known().items() if not method.whole and name != "random"]


@pytest.mark.parametrize("case", list(CONFIGURATIONS))
def test_a_gpu_gives_the_cpu_s_numbers(case: str) -> None:
    """float32 on the GPU against float64 on the CPU: 1e-5 of a row for Value Zeroing, 5e-6 for ALTI, 2e-6 for the
    others."""
    stock = hf_model(case)
    exact, quick = mixlens.load(stock, device="cpu"), mixlens.load(stock, device="cuda", dtype="float32")
    inputs = [ids(21), ids(9, seed=1)]
    expected, made = (mixlens.mix(lens.trace(input_ids=inputs), MAPS) for lens in (exact, quick))
    allowed = {"value_zeroing": 1e-5, "alti": 5e-6, **dict.fromkeys(("effective_attention", "effective_norm"), 2e-5)}
    allowed["null_attention"] = 2e-5  # attention less its effective part
    for a, b in zip(expected, made, strict=True):
        for name in MAPS:
            assert b[name].scores.device.type == "cuda"
            signed = known()[name].signed  # rows that may sum to nothing are compared as they are
            x, y = (m[name].scores.cpu().double() for m in (a, b))
            apart = float((x - y if signed else shares(x) - shares(y)).abs().max())
            assert apart <= allowed.get(name, 2e-6), f"{name}: {apart:.1e}"


def test_the_fused_loops_are_used_and_the_plain_ones_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.used(torch.device("cuda")) == "triton"
    lens = mixlens.load(hf_model("bert"), device="cuda", dtype="float32")
    trace = lens.trace(input_ids=ids(33))
    fused = mixlens.mix(trace, MAPS)
    monkeypatch.setattr(kernels, "_module", lambda device_type: kernels.plain)
    for name, made in mixlens.mix(trace, MAPS).items():
        x, y = made.scores, fused[name].scores
        apart = float((x - y if known()[name].signed else shares(x) - shares(y)).abs().max())
        assert apart <= 1e-5, f"{name}: {apart:.1e}"


@pytest.fixture
def tf32() -> Iterator[None]:
    """Products in TF32. monkeypatch cannot restore an attribute that torch computes."""
    matmul, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_tf32
    matmul.allow_tf32 = True
    yield
    matmul.allow_tf32 = before


@pytest.mark.usefixtures("tf32")
def test_a_model_that_multiplies_in_tf32_is_judged_as_such() -> None:
    lens = mixlens.load(hf_model("bert"), device="cuda", dtype="float32")
    made = mixlens.mix(lens.trace(input_ids=ids(33)), ["alti", "value_zeroing"])
    assert made["alti"].info["gap"] < 4e-3


def test_twice_the_same_bits() -> None:
    lens = mixlens.load(hf_model("bert"), device="cuda", dtype="float32")
    for name in ("globenc", "alti", "value_zeroing"):
        a, b = (mixlens.mix(lens.trace(input_ids=ids(30)), name).scores for _ in range(2))
        assert torch.equal(a, b), name


def test_out_of_memory_leads_to_smaller_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    lens = mixlens.load(hf_model("bert"), device="cuda", dtype="float32")
    trace = lens.trace(input_ids=ids(30))
    expected = mixlens.mix(trace, ["alti", "value_zeroing"])
    score, calls = scoring_maps.Scorer.scored, []

    def once(self: object, *args: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            torch.empty(1 << 50, device="cuda")
        return score(self, *args)

    monkeypatch.setattr(scoring_maps.Scorer, "scored", once)
    with pytest.warns(UserWarning, match="memory ran out"):
        made = mixlens.mix(trace, ["alti", "value_zeroing"])
    for name, one in made.items():
        assert "memory ran out" in one.info["notes"][0]
        torch.testing.assert_close(one.scores, expected[name].scores, rtol=1e-4, atol=1e-7)


STACKED = [name for name, method in known().items() if method.stacks]


def replayed(lens: mixlens.Model) -> int:
    return sum(one is not None for one in lens.graphs.kept.values())


@pytest.mark.parametrize("case", list(CONFIGURATIONS))
def test_replayed_graphs_give_the_same_bits(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All layers at once and layer by layer, for other texts of the same length, alone and in a padded batch."""
    lens = mixlens.load(hf_model(case), device="cuda", dtype="float32")
    first = {"one": ids(21), "many": [ids(21), ids(13, seed=1)]}
    other = {"one": ids(21, seed=5), "many": [ids(21, seed=5), ids(13, seed=6)]}

    def maps(given: dict[str, object]) -> list[torch.Tensor]:
        made = [
            mixlens.mix(lens.trace(input_ids=given["one"]), STACKED),
            lens.mix(input_ids=given["one"], name=STACKED),
        ]
        made += lens.mix(input_ids=given["many"], name=STACKED)
        return [one[name].scores for one in made for name in STACKED] + [
            one[name].info["mixing_ratio"] for one in made for name in STACKED if "mixing_ratio" in one[name].info
        ]

    monkeypatch.setenv("MIXLENS_GRAPHS", "off")
    expected = maps(other)
    monkeypatch.delenv("MIXLENS_GRAPHS")
    assert not lens.graphs.seen
    for _ in range(4):
        maps(first)
    assert replayed(lens) > 0
    for a, b in zip(maps(other), expected, strict=True):
        assert torch.equal(a, b)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a hook": lambda net: net.encoder.layer[1].output.register_forward_hook(lambda module, args, output: 1.5 * output),
    "a number": lambda net: setattr(net.encoder.layer[1].output.LayerNorm, "eps", 0.5),
    "a new module": lambda net: setattr(net.encoder.layer[1].intermediate, "intermediate_act_fn", torch.nn.ReLU()),
    "a method": lambda net: setattr(
        net.encoder.layer[1].intermediate, "forward", lambda x: 2 * net.encoder.layer[0].intermediate(x)
    ),
    "a weight in place": lambda net: net.encoder.layer[1].intermediate.dense.weight.mul_(1.5),
    "a weight's data": lambda net: setattr(
        net.encoder.layer[1].intermediate.dense.weight,
        "data",
        1.5 * net.encoder.layer[1].intermediate.dense.weight.data,
    ),
    "a new weight": lambda net: setattr(
        net.encoder.layer[1].intermediate.dense,
        "weight",
        torch.nn.Parameter(1.5 * net.encoder.layer[1].intermediate.dense.weight.data),
    ),
}


@torch.no_grad()
def test_a_hook_between_two_layers_is_refused_where_a_pass_was_replayed() -> None:
    stock = copy.deepcopy(hf_model("bert")).float().to("cuda")
    lens = mixlens.load(stock)
    for _ in range(4):
        lens.trace(input_ids=ids(21))
    assert replayed(lens) == 1
    hook = stock.base_model.encoder.layer[1].register_forward_pre_hook(lambda module, args: (1.5 * args[0],))
    with pytest.raises(errors.ModelError, match="layer 2 does not read what layer 1 wrote"):
        lens.trace(input_ids=ids(21))
    hook.remove()
    lens.trace(input_ids=ids(21))


@pytest.mark.parametrize("change", list(CHANGES))
@torch.no_grad()
def test_a_replayed_pass_follows_every_change_of_the_model(change: str) -> None:
    stock = copy.deepcopy(hf_model("bert")).float().to("cuda")
    lens = mixlens.load(stock)
    for _ in range(4):
        before = lens.trace(input_ids=ids(21))
    assert replayed(lens) == 1
    CHANGES[change](stock.base_model)
    after = lens.trace(input_ids=ids(21))
    expected = stock(input_ids=torch.tensor([ids(21)], device="cuda"), output_hidden_states=True).hidden_states
    assert not torch.equal(after.layers[-1].output, before.layers[-1].output)
    torch.testing.assert_close(after.hidden_states, torch.cat(expected), rtol=1e-4, atol=1e-5)


def test_a_replayed_trace_keeps_its_numbers() -> None:
    """What an earlier trace holds is not written over by the next one; and the output is the model's own."""
    stock = copy.deepcopy(hf_model("bert")).float().to("cuda")
    lens = mixlens.load(stock)
    traces = [lens.trace(input_ids=ids(21, seed=seed)) for seed in range(6)]
    assert replayed(lens) == 1
    for seed, trace in enumerate(traces):
        given = torch.tensor([ids(21, seed=seed)], device="cuda")
        with torch.no_grad():
            expected = torch.cat(stock(input_ids=given, output_hidden_states=True).hidden_states)
        torch.testing.assert_close(trace.hidden_states, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["in place", "new tensor", "data"])
@pytest.mark.parametrize("streams", [False, True])
def test_graphs_follow_the_weights(how: str, streams: bool) -> None:
    stock = copy.deepcopy(hf_model("bert")).float().to("cuda")
    lens = mixlens.load(stock)
    given = ids(21)

    def maps() -> list[torch.Tensor]:
        made = lens.mix(input_ids=given, name=STACKED) if streams else mixlens.mix(lens.trace(input_ids=given), STACKED)
        return [one.scores for one in made.values()]

    for _ in range(4):
        before = maps()
    assert replayed(lens) > 0
    with torch.no_grad():
        for parts in lens.parts:
            for weight in (parts.output.weight, parts.norm_after_attention.weight):
                changed = 1.5 * weight + 0.01
                if how == "in place":
                    weight.copy_(changed)
                elif how == "data":
                    weight.data.copy_(changed)
                else:
                    weight.data = changed
    after = maps()
    assert not any(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    for a, b in zip(
        after,
        [one.scores for one in mixlens.mix(mixlens.load(stock).trace(input_ids=given), STACKED).values()],
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_what_cannot_be_replayed_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that waits for the GPU: no graph, the same map, and the GPU goes on working."""
    lens = mixlens.load(hf_model("bert"), device="cuda", dtype="float32")
    used = known()["globenc"]

    def waits(block: object) -> object:
        torch.cuda.synchronize()
        return used.function(block)

    expected = mixlens.mix(lens.trace(input_ids=ids(21)), "globenc").scores
    monkeypatch.setitem(known(), "globenc", dataclasses.replace(used, function=waits))
    for _ in range(5):
        assert torch.equal(mixlens.mix(lens.trace(input_ids=ids(21)), "globenc").scores, expected)
    assert None in lens.graphs.kept.values()
    assert replayed(lens) == 1  # the pass itself


def test_long_changes_beyond_half_precision_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Value Zeroing of feed-forwards whose activations do not fit float16: the same distances as in float64."""
    from mixlens.fast import zeroing

    monkeypatch.setattr(zeroing, "WHOLE_FROM", 1)
    stock = copy.deepcopy(hf_model("bert"))
    with torch.no_grad():
        for layer in stock.base_model.encoder.layer:
            layer.intermediate.dense.weight.mul_(3e5)
            layer.output.dense.weight.div_(3e5)
    exact = mixlens.mix(mixlens.load(stock, device="cpu").trace(input_ids=ids(21)), "value_zeroing").scores
    made = mixlens.mix(
        mixlens.load(stock, device="cuda", dtype="float32").trace(input_ids=ids(21)), "value_zeroing"
    ).scores
    assert float((made.cpu().double() - exact).abs().max()) <= 1e-5


def test_one_product_of_changes_is_near_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for long texts, where it is used: relative to each score."""
    from mixlens.fast import zeroing

    monkeypatch.setattr(zeroing, "WHOLE_FROM", 1)
    for case in ("bert", "llama"):
        exact = mixlens.mix(mixlens.load(hf_model(case), device="cpu").trace(input_ids=ids(21)), "value_zeroing").scores
        lens = mixlens.load(hf_model(case), device="cuda", dtype="float32")
        made = mixlens.mix(lens.trace(input_ids=ids(21)), "value_zeroing").scores.cpu().double()
        there = exact > 0
        assert float(((made - exact)[there] / exact[there]).abs().max()) <= 2e-3
        assert float((made - exact).abs().max()) <= 2e-4


@pytest.mark.parametrize("case", list(CONFIGURATIONS))
def test_layers_on_two_devices_give_the_numbers_of_one(case: str) -> None:
    """The first layers run on the CPU, the others on the GPU; all in float64."""
    accelerate = pytest.importorskip("accelerate")
    stock, model = hf_model(case), copy.deepcopy(hf_model(case))
    names = {id(module): name for name, module in model.named_modules()}
    layers = list(dict.fromkeys(names[id(parts.layer)] for parts in mixlens.load(model, check=False).parts))
    inside = tuple(layer + "." for layer in layers)
    places = {
        name: "cpu" for name, m in model.named_modules() if name and m._parameters and not name.startswith(inside)
    }
    places |= {layer: "cpu" if number == 0 else 0 for number, layer in enumerate(layers)}
    spread = mixlens.load(accelerate.dispatch_model(model, places, main_device="cpu"))
    assert spread.devices == (["cpu", "cuda:0"] if len(layers) > 1 else ["cpu"])
    inputs = [ids(11), ids(7, seed=1)]
    traces = [lens.trace(input_ids=inputs) for lens in (mixlens.load(stock, device="cpu"), spread)]
    close = 1e-5 if case in ROUNDED else 1e-9  # devices round float32 differently
    torch.testing.assert_close(traces[1][0].hidden_states, traces[0][0].hidden_states, rtol=close, atol=close)
    for a, b in zip(*(mixlens.mix(each, [*MAPS, "hta_layer"]) for each in traces), strict=True):
        for name, made in b.items():
            assert made.scores.device.type == "cpu"
            torch.testing.assert_close(made.scores, a[name].scores, rtol=max(close, 1e-7), atol=max(close, 1e-7))


def test_layers_brought_in_to_a_gpu_give_the_numbers_of_a_gpu() -> None:
    accelerate = pytest.importorskip("accelerate")
    for case in ("bert", "llama"):
        stock = hf_model(case, dtype=torch.float32)
        model = accelerate.cpu_offload(copy.deepcopy(stock), execution_device=torch.device("cuda:0"))
        quick, spread = mixlens.load(stock, device="cuda"), mixlens.load(model)
        assert spread.device == torch.device("cuda:0")
        expected, made = (mixlens.mix(lens.trace(input_ids=ids(12)), MAPS) for lens in (quick, spread))
        for name in MAPS:
            assert made[name].scores.device.type == "cuda"
            torch.testing.assert_close(made[name].scores, expected[name].scores, rtol=1e-3, atol=1e-5)


def test_rows_of_a_corpus_are_the_cpu_s() -> None:
    """Batches, rows of rollouts and predictions at once: the same rows as on a CPU, text by text."""
    from mixlens.runs.corpus import rows as corpus_rows
    from mixlens.runs.corpus import worker as corpus_worker

    texts = [
        "The keys to the cabinet [MASK] rusty.",
        "The dog [MASK] here.",
        "The dogs near the old house [MASK] tired today.",
    ]
    given = [
        corpus_rows.InputRow(i, str(i), text, None, None, None, None, None, None, ()) for i, text in enumerate(texts, 1)
    ]
    methods = ("alti", "globenc", "attention:rollout=abnar", "norm", "value_zeroing", "attcat", "grad_x_input")
    rows = {}
    for device in ("cpu", "cuda"):
        worker = corpus_worker.Worker(mixlens.load("agreement", device=device), corpus_worker.Plan(methods=methods))
        rows[device] = worker._batch(given, [worker.encode(one) for one in given])
    for a, b in zip(rows["cpu"], rows["cuda"], strict=True):
        assert (a["prediction"], a["query"], a["target"]) == (b["prediction"], b["query"], b["target"])
        assert a["probability"] == pytest.approx(b["probability"], abs=1e-5)
        for name in methods:
            x, y = (torch.as_tensor(one[name]).double() for one in (a, b))
            assert float((x - y).abs().max()) <= 2e-4 * float(x.abs().max()), name
