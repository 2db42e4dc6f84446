"""A model spread over places by accelerate gives the numbers of the model in one place, and is left as it came."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import DISTINCT, QUICK, hf_model, ids
from test_cli import SENTENCE, refuse, run
from torch import nn

import mixlens
from mixlens.model import families, offload
from mixlens.scoring import attributions as scoring_attributions
from mixlens.scoring import batches, provenance
from mixlens.scoring import maps as scoring_maps

accelerate = pytest.importorskip("accelerate")
MAPS = [name for name in scoring_maps.known() if name != "random"]
SLOW = ("hta", "hta_layer", "hta_layer_x_input")
HEADS = {"bert": "AutoModelForMaskedLM", "gpt2": "AutoModelForCausalLM", "llama": "AutoModelForCausalLM"}


def places(model: Any) -> dict[str, str]:
    """Layers in turn on disk and in memory, the embeddings on disk, too."""
    names = {id(module): name for name, module in model.named_modules()}
    layers = [names[id(parts.layer)] for parts in mixlens.load(model, check=False).parts]
    found = {name: ("disk", "cpu")[number % 2] for number, name in enumerate(layers)}
    for name, module in model.named_modules():
        if module._parameters and not name.startswith(tuple(layer + "." for layer in layers)):
            found[name] = "disk" if "embed" in name or "wte" in name else "cpu"
    return found


def dispatched(model: Any, folder: Path) -> Any:
    model = copy.deepcopy(model)
    return accelerate.dispatch_model(model, places(model), main_device="cpu", offload_dir=str(folder), force_hooks=True)


def state_of(model: Any) -> dict[str, Any]:
    return {
        "places": {
            name: (weights.device.type, weights.requires_grad, weights.grad)
            for name, weights in model.named_parameters()
        },
        "hooks": {
            name: (len(m._forward_hooks), len(m._forward_pre_hooks), m.training) for name, m in model.named_modules()
        },
        "attention": model.config._attn_implementation,
    }


@pytest.mark.parametrize("case", DISTINCT)
def test_every_family_gives_the_same_maps_from_disk(case: str, tmp_path: Path) -> None:
    stock = hf_model(case)
    model = dispatched(stock, tmp_path)
    assert any(weights.device.type == "meta" for weights in model.parameters())
    before = state_of(model)
    one, other = mixlens.load(stock), mixlens.load(model)
    assert other.hf_model is model
    assert other.dispatched
    assert other.device == torch.device("cpu")
    assert other.dtype == torch.float64
    names = [name for name in MAPS if name not in SLOW]
    given = [ids(7), ids(11, seed=1)]
    for expected, made in zip(*(mixlens.mix(lens.trace(input_ids=given), names) for lens in (one, other)), strict=True):
        for name in names:
            torch.testing.assert_close(made[name].scores, expected[name].scores, rtol=1e-10, atol=1e-10)
            assert made[name].info["gap"] < 1e-10
            torch.testing.assert_close(
                made[name].rollout().scores, expected[name].rollout().scores, rtol=1e-10, atol=1e-10
            )
    assert state_of(model) == before


@pytest.mark.filterwarnings("ignore::mixlens.scoring.completeness.IncompleteWarning")  # few steps
@pytest.mark.parametrize("case", list(HEADS))
def test_every_method_gives_the_same_scores_from_disk(case: str, tmp_path: Path) -> None:
    stock = hf_model(case, head=HEADS[case])
    model = dispatched(stock, tmp_path)
    next(iter(mixlens.load(model, check=False).parts[-1].output.parameters())).requires_grad_(False)
    model(torch.tensor([ids(3)]))  # accelerate itself takes tied weights away only after a first call
    before = state_of(model)
    one, other = (mixlens.load(each) for each in (stock, model))
    traces = [lens.trace(input_ids=ids(6)) for lens in (one, other)]
    for name in SLOW:
        expected, made = (mixlens.mix(trace, name).scores for trace in traces)
        torch.testing.assert_close(made, expected, rtol=1e-9, atol=1e-9)
    for name in scoring_attributions.known():
        asked: dict[str, Any] = {"query": 3} if case == "bert" else {}
        asked |= QUICK.get(name, {})
        if name == "blank_out":
            asked["replacement"] = "zero"
        expected, made = (mixlens.attribute(trace, name, **asked).scores for trace in traces)
        torch.testing.assert_close(made, expected, rtol=1e-9, atol=1e-9, msg=name)
    moved = [trace.model.rerun(trace, 1, trace.layers[1].input * 1.1) for trace in traces]
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(traces[1].hidden_states, traces[0].hidden_states, rtol=1e-10, atol=1e-10)
    streamed = [lens.mix(input_ids=ids(6), name="alti").scores for lens in (one, other)]
    torch.testing.assert_close(streamed[1], streamed[0], rtol=1e-10, atol=1e-10)
    assert state_of(model) == before


def saved(folder: Path, case: str) -> Path:
    hf_model(case, head=HEADS[case]).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("case", list(HEADS))
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_name_with_a_device_map_gives_the_same_map(case: str, dtype: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", case)
    one = mixlens.load(folder, dtype=dtype)
    size = sum(weights.numel() * weights.element_size() for weights in one.hf_model.parameters())
    expected = mixlens.mix(one.trace(input_ids=ids(9)), "alti").scores
    assert (one.dispatched, one.placement) == (False, "cpu")
    for asked, away in (
        ({"device_map": "auto"}, 0),
        ({"device_map": "auto", "max_memory": {"cpu": size // 3}}, None),
        ({"device_map": {"": "disk"}, "offload_folder": tmp_path / "offload"}, 3),
    ):
        lens = mixlens.load(folder, dtype=dtype, **asked)
        made = mixlens.mix(lens.trace(input_ids=ids(9)), "alti").scores
        # Weights that lie elsewhere in memory may be multiplied in another order: what the dtype rounds to, over three
        # layers.
        torch.testing.assert_close(made, expected, rtol=0, atol=1e-10 if dtype == "float64" else 2e-2)
        assert lens.dispatched == (away != 0)
        if away is not None:
            assert lens.placement == ("cpu" if away == 0 else "cpu; 3 of 3 layers offloaded")


def test_a_pass_that_is_broken_off_leaves_no_weights_behind(tmp_path: Path) -> None:
    model = dispatched(hf_model("bert"), tmp_path)
    lens = mixlens.load(model)
    before = state_of(model)

    def fail(module: nn.Module, args: Any) -> None:
        raise KeyboardInterrupt

    inside = lens.parts[0].mlp_up
    whole = inside._old_forward
    inside._old_forward = fail
    with pytest.raises((KeyboardInterrupt, TypeError)):
        lens.trace(input_ids=ids(4))
    inside._old_forward = whole
    assert state_of(model) == before
    assert lens.trace(input_ids=ids(4)).layers


def test_a_wrong_entry_and_bad_weights_are_refused_from_disk_too(tmp_path: Path) -> None:
    stock = copy.deepcopy(hf_model("bert"))
    wrong = replace(families.find(stock.config), norm_after_attention="output.LayerNorm")
    with pytest.raises(mixlens.MixlensError, match="is refused"):
        mixlens.load(dispatched(stock, tmp_path / "a"), family=wrong)
    with torch.no_grad():
        stock.encoder.layer[0].output.dense.weight[3, 4] = float("nan")
    with pytest.raises(
        mixlens.MixlensError, match=r"NaN or infinite weights in 'encoder\.layer\.0\.output\.dense\.weight'"
    ):
        mixlens.load(dispatched(stock, tmp_path / "b"))


def test_the_same_weights_have_the_same_fingerprint_wherever_they_are(tmp_path: Path) -> None:
    for case, head in HEADS.items():
        stock = hf_model(case, head=head)
        model = dispatched(stock, tmp_path / case)
        model(torch.tensor([ids(3)]))
        one, other = (provenance.model_fingerprint(mixlens.load(each, check=False)) for each in (stock, model))
        assert one == other


def test_a_loaded_model_that_is_spread_out_is_taken_as_it_is(tmp_path: Path) -> None:
    model = dispatched(hf_model("bert"), tmp_path)
    for asked in ({"device": "cpu"}, {"dtype": "float32"}):
        with pytest.raises(mixlens.MixlensError, match="leave device= and dtype= out"):
            mixlens.load(model, **asked)
    with pytest.raises(mixlens.MixlensError, match="loaded by name"):
        mixlens.load(hf_model("bert"), device_map="auto")


@pytest.mark.parametrize("way", ["cpu_offload", "disk_offload"])
def test_a_model_that_is_offloaded_whole_says_where_it_runs(way: str, tmp_path: Path) -> None:
    for case in HEADS:
        where = {"offload_dir": str(tmp_path / case)} if way == "disk_offload" else {}
        model = getattr(accelerate, way)(copy.deepcopy(hf_model(case)), execution_device=torch.device("cpu"), **where)
        assert {weights.device.type for weights in model.parameters()} == {"meta"}
        one, other = mixlens.load(hf_model(case)), mixlens.load(model)
        assert (other.device, other.dispatched) == (torch.device("cpu"), True)
        expected, made = (mixlens.mix(lens.trace(input_ids=ids(8)), "value_zeroing").scores for lens in (one, other))
        torch.testing.assert_close(made, expected, rtol=1e-10, atol=1e-10)


def test_a_layer_on_two_devices_is_refused(tmp_path: Path) -> None:
    model = dispatched(hf_model("bert"), tmp_path)
    model.encoder.layer[1].output.dense._hf_hook.execution_device = torch.device("cuda:1")
    with pytest.raises(mixlens.MixlensError, match=r"layer 1 of .* is spread over cpu and cuda:1"):
        mixlens.load(model)


def test_the_command_line_spreads_a_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    whole, *others = (
        json.loads(run("explain", SENTENCE, "--json", *asked))["scores"]
        for asked in (
            (),
            ("--device-map", "auto"),
            ("--device-map", '{"": "disk"}'),
            ("--device-map=auto", "--max-memory=cpu=2MB"),
        )
    )
    for scores in others:
        assert scores == pytest.approx(whole, abs=1e-6)
    assert "ok" in run("check", "--device-map", '{"": "disk"}')
    for asked, reason in (
        (("--device-map", "auto", "--device", "cpu"), "is one device"),
        (("--device-map", "{"), "JSON"),
        (("--device-map", "autp"), "unknown device_map 'autp'"),
        (("--device-map", '{"": "nowhere"}'), "cannot load 'agreement' with this device_map"),
        (("--max-memory", "cpu=2MB"), "go with a device_map"),
        (("--device-map", "auto", "--max-memory", "2MB"), "device=size"),
        (("--quantization", "3bit"), "unknown quantization '3bit'"),
    ):
        assert reason in refuse(capsys, monkeypatch, "explain", SENTENCE, *asked)


def test_a_copy_of_an_offloaded_module_stands_alone(tmp_path: Path) -> None:
    module = dispatched(hf_model("bert"), tmp_path).encoder.layer[0].output.dense
    hook = module._hf_hook

    def fail(memo: Any) -> None:
        raise AssertionError("a hook leads to the whole model's weights")

    hook.__deepcopy__ = fail
    made, x = offload.own_copy(module), torch.randn(3, 48, dtype=torch.float64)
    assert not hasattr(made, "_hf_hook")
    assert {weights.device.type for weights in made.parameters()} == {"cpu"}
    assert {weights.device.type for weights in module.parameters()} == {"meta"}
    torch.testing.assert_close(
        made(x), module(x), rtol=0, atol=1e-12
    )  # weights elsewhere in memory: another order of sums
    assert made.weight is not module.weight


def test_a_corpus_run_knows_where_the_model_was(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from test_run import go, table

    rows = ["The keys to the cabinet [MASK] rusty.", "The dog near the trees [MASK] here."]
    go(rows, tmp_path / "whole", model="agreement", methods=["alti", "attcat"])
    spread = {"model": "agreement", "methods": ["alti", "attcat"], "device_map": {"": "disk"}}
    go(rows, tmp_path / "spread", **spread)
    told = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("whole", "spread")]
    assert told[0]["identity"]["model"] == told[1]["identity"]["model"]
    assert "device_map" not in told[0]["identity"]
    assert told[1]["identity"]["device_map"] == "dispatched"
    assert (told[0]["device"], told[1]["device"]) == ("cpu", "cpu; 4 of 4 layers offloaded")
    for one, other in zip(*(table(tmp_path / name) for name in ("whole", "spread")), strict=True):
        assert one["alti"] == pytest.approx(other["alti"], abs=1e-6)
        assert one["attcat"] == pytest.approx(other["attcat"], abs=1e-5)
    assert go(rows, tmp_path / "spread", **spread).done == 0
    with pytest.raises(mixlens.MixlensError, match="device_map"):
        go(rows, tmp_path / "spread", model="agreement", methods=["alti", "attcat"])


def test_the_script_for_machines_with_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks import large_models

    assert large_models.main(["--size", "tiny", "--device", "cpu", "--tokens", "9"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    ways = [json.loads(line) for line in lines[:3]]
    assert [way.get("ok") for way in ways] == [None, True, True]
    assert lines[-1] == "ok"
    monkeypatch.setitem(large_models.ALLOWED, torch.float32, 0.0)  # nothing is so exact
    monkeypatch.setattr(large_models, "find_spec", lambda name: None)
    assert large_models.main(["--size", "tiny", "--device", "cpu", "--tokens", "9"]) == 1


def test_layers_are_scored_together_only_where_they_are_alike() -> None:
    """As on machines with GPUs: neighbours on one of them, whose weights are there; a CPU's one by one."""

    def layer(device: str, *, packed: bool = False) -> Any:
        module = nn.Linear(2, 2)
        if packed:
            module.register_buffer("codes", torch.zeros(2, dtype=torch.int8))
        output = SimpleNamespace(device=torch.device(device))
        return SimpleNamespace(output=output, parts=SimpleNamespace(output=module))

    layers = [
        layer("cuda:0"),
        layer("cuda:0"),
        layer("cuda:0"),
        layer("cuda:1"),
        layer("cuda:1"),
        layer("cpu"),
        layer("cpu"),
    ]
    layers += [layer("cuda:1"), layer("cuda:1", packed=True), layer("cuda:1")]
    found = [list(some) for some in batches.neighbours(layers, 2)]
    assert found == [[0, 1], [2], [3, 4], [5], [6], [7], [8], [9]]
    assert [list(some) for some in batches.neighbours(layers[:3], 9)] == [[0, 1, 2]]
    assert [list(some) for some in batches.neighbours(layers[:3], 1)] == [[0], [1], [2]]
