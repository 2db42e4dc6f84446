"""Loading: hub ids, folders, models at hand, any head; and everything that must be refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conftest import CONFIGURATIONS, hf_model, ids, loaded
from safetensors.torch import load_file, save_file

import mixlens
from mixlens.model import loading


def saved(tmp_path: Path, case: str = "bert", head: str = "AutoModel") -> Path:
    """A folder with config.json and model.safetensors, nothing else."""
    folder = tmp_path / f"{case}-{head}"
    hf_model(case, head=head).float().save_pretrained(folder)
    hf_model(case, head=head).double()
    (folder / "generation_config.json").unlink(missing_ok=True)
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors"}
    return folder


def test_a_folder_with_weights_alone_reads_ids(tmp_path: Path) -> None:
    model = mixlens.load(saved(tmp_path), dtype="float64")
    trace = model.trace(input_ids=[7, 8, 9], token_type_ids=[0, 0, 1], attention_mask=[1, 1, 1])
    assert trace.tokens == ("7", "8", "9")
    assert mixlens.mix(trace, "alti").rollout().readout("8").scores.shape == (3,)
    with pytest.raises(mixlens.MixlensError, match=r"has no tokenizer.*Put the tokenizer's files beside config\.json"):
        model.trace("a text")


def test_a_configuration_may_name_several_ends_of_a_text() -> None:
    """Chat models end a turn with one id and a text with another: without a tokenizer, all of them are special."""
    hf = copy.deepcopy(hf_model("llama"))
    hf.config.eos_token_id = [11, 12]
    hf.config.bos_token_id = 10
    hf.config.pad_token_id = None
    model = mixlens.load(hf)
    assert model.special_ids == {10, 11, 12}
    assert model.trace(input_ids=[10, 30, 12]).special == (True, False, True)


@pytest.mark.parametrize(
    ("case", "head", "task"),
    [
        ("bert", "AutoModel", "base"),
        ("bert", "AutoModelForSequenceClassification", "classification"),
        ("bert", "AutoModelForMaskedLM", "masked-lm"),
        ("roberta", "AutoModelForTokenClassification", "token-classification"),
        ("distilbert", "AutoModelForQuestionAnswering", "question-answering"),
        ("modernbert", "AutoModelForMaskedLM", "masked-lm"),
        ("gpt2", "AutoModelForCausalLM", "causal-lm"),
        ("llama", "AutoModelForCausalLM", "causal-lm"),
        ("gemma3_text", "AutoModelForCausalLM", "causal-lm"),
        ("gpt2", "AutoModelForSequenceClassification", "classification"),
    ],
)
def test_the_head_is_the_one_the_configuration_names(tmp_path: Path, case: str, head: str, task: str) -> None:
    folder = saved(tmp_path, case, head)
    model = mixlens.load(folder, dtype="float64")
    assert model.task == task
    given = ids(6)
    traces = model.trace(input_ids=[given, given[:4]])
    stock = hf_model(case, head=head)
    with torch.no_grad():
        output = stock(torch.tensor([given]))
    if task == "base":
        assert traces[0].logits is None
        assert traces[0].prediction() == []
    elif task == "question-answering":
        torch.testing.assert_close(
            traces[0].logits, torch.stack([output.start_logits[0], output.end_logits[0]], -1), atol=1e-5, rtol=1e-5
        )
    elif task == "classification":
        torch.testing.assert_close(traces[0].logits, output.logits[0], atol=1e-5, rtol=1e-5)
        assert sum(p for _, p in traces[0].prediction()) == pytest.approx(1)
    elif task == "causal-lm":
        torch.testing.assert_close(traces[0].logits, output.logits[0, -1:], atol=1e-5, rtol=1e-5)
        assert int(traces[0].prediction(1)[0][0]) == int(output.logits[0, -1].argmax())
    elif task == "token-classification":
        torch.testing.assert_close(traces[0].logits, output.logits[0], atol=1e-5, rtol=1e-5)
    assert mixlens.load(stock).task == task


def test_every_task_loads_by_name(tmp_path: Path) -> None:
    for task, (auto, _) in loading.TASKS.items():
        if task != "causal-lm":
            assert mixlens.load(saved(tmp_path, "bert", auto), task=task).task == task


def test_a_head_that_is_not_in_the_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, "bert")
    with pytest.raises(mixlens.MixlensError, match=r"no weights for .* classification model \(classifier"):
        mixlens.load(folder, task="classification")


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {k: v for k, v in weights.items() if "layer.1.attention" not in k},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(mixlens.MixlensError, match="no weights for"):
        mixlens.load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(mixlens.MixlensError, match="cannot load the model folder"):
        mixlens.load(folder)


def test_a_bias_that_is_not_stored_is_zero(tmp_path: Path) -> None:
    folder = saved(tmp_path, "gpt2")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {k: v for k, v in weights.items() if not k.endswith("c_attn.bias")},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    model = mixlens.load(folder)
    assert not bool(model.hf_model.h[0].attn.c_attn.bias.any())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers_are_refused(tmp_path: Path, bad: float) -> None:
    folder = saved(tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.output.dense.weight"][3, 4] = bad
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(mixlens.MixlensError, match=r"NaN or infinite weights in 'encoder.layer.1.output.dense.weight'"):
        mixlens.load(folder)


def test_a_damaged_weights_file_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(mixlens.MixlensError, match="cannot load the model folder"):
        mixlens.load(folder)


def test_a_file_and_a_type_of_tomorrow_are_refused_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a"}\n')
    with pytest.raises(mixlens.MixlensError) as told:
        mixlens.load(rows)
    assert (
        str(told.value)
        == f"{str(rows)!r} is a file. A model is a folder with config.json and model.safetensors, or a hub id."
    )
    folder = saved(tmp_path)
    (folder / "config.json").write_text('{"model_type": "tomorrow"}')
    with pytest.raises(mixlens.MixlensError) as told:
        mixlens.load(folder)
    assert str(told.value) == (
        f"cannot load {str(folder)!r}: its model type 'tomorrow' is not known to transformers "
        f"{transformers.__version__}. A "
        "later version may know it; a model that brings its own code needs trust_remote_code= (off by default)."
    )


def test_an_unknown_model_type_is_refused() -> None:
    model = transformers.AutoModel.from_config(
        transformers.AutoConfig.for_model(
            "deberta-v2",
            vocab_size=30,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    )
    with pytest.raises(
        mixlens.MixlensError, match=r"no family for model type 'deberta-v2'\. `mixlens families`.*add-a-family"
    ):
        mixlens.load(model)


@pytest.mark.parametrize("name", ["no-such-org/no-such-model", "nothing-here", "./no/such/folder", "/no/such/folder"])
def test_what_cannot_be_found_is_said_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(mixlens.MixlensError) as refusal:
        mixlens.load(name)
    assert "\n" not in str(refusal.value)
    assert repr(name) in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "clasification"}, "Did you mean 'classification'"),
        ({"dtype": "int8"}, "unknown dtype 'int8'"),
        ({"device": "cuda:99"}, "cannot use device"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(mixlens.MixlensError, match=message):
        mixlens.load(saved(tmp_path), **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either a text or input_ids"),
        ({"input_ids": []}, "empty"),
        ({"input_ids": [5, 6], "attention_mask": [0, 0]}, "hides every token"),
        ({"input_ids": [5, 97]}, "id 97 is not in the vocabulary"),
        ({"input_ids": [5, -1]}, "id -1 is not in the vocabulary"),
        ({"input_ids": [5, 6], "attention_mask": [1]}, "one length"),
        ({"input_ids": [5, 6], "token_type_ids": [0, 0, 0]}, "one length"),
        ({"input_ids": [5.0, 6.0]}, "list of integers"),
        ({"input_ids": ["a"]}, "list of integers"),
        ({"input_ids": list(range(5, 46))}, "41 tokens, .* reads at most 40"),
        ({"input_ids": [5], "batch_size": 0}, "at least 1"),
        ({"input_ids": [[5], [6]], "attention_mask": [[1]]}, "same number of examples"),
    ],
)
def test_bad_ids_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(mixlens.MixlensError, match=message):
        loaded("bert").trace(**arguments)


def test_roberta_counts_positions_from_its_padding_id() -> None:
    assert loaded("roberta").max_tokens == 38
    assert loaded("bert").max_tokens == 40
    loaded("roberta").trace(input_ids=ids(38))
    with pytest.raises(mixlens.MixlensError, match="39 tokens"):
        loaded("roberta").trace(input_ids=ids(39))


def test_a_float16_model_on_the_cpu_gives_the_right_map(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    half, wide = mixlens.load(folder, dtype="float16"), mixlens.load(folder, dtype="float64")
    a, b = (mixlens.mix(model.trace(input_ids=ids(7)), "alti").scores for model in (half, wide))
    assert a.dtype == torch.float32
    assert float((a - b).abs().max()) < 0.02


def test_float32_is_the_default_and_auto_is_what_is_stored(tmp_path: Path) -> None:
    folder = tmp_path / "half"
    copy.deepcopy(hf_model("bert")).to(torch.bfloat16).save_pretrained(folder)  # what is rounded does not come back
    assert mixlens.load(folder).dtype == torch.float32
    assert mixlens.load(folder, dtype="auto").dtype == torch.bfloat16


def test_remote_code_stays_off(tmp_path: Path) -> None:
    """A folder that brings its own code is refused unless the user says so; the code does not run."""
    folder, ran = tmp_path / "remote", tmp_path / "ran"
    folder.mkdir()
    (folder / "code.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    (folder / "config.json").write_text(
        json.dumps({"model_type": "mine", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}})
    )
    with pytest.raises(mixlens.MixlensError):
        mixlens.load(folder)
    assert not ran.exists()


def test_all_tiny_configurations_are_small() -> None:
    assert all(sum(p.numel() for p in hf_model(case).parameters()) < 200_000 for case in CONFIGURATIONS)


def test_segments_that_are_all_zero_are_no_segments() -> None:
    """GPT-2 would add the embedding of token 0 to every position; and a batch must not change that."""
    model = loaded("gpt2")
    plain, zeros = model.trace(input_ids=ids(4)), model.trace(input_ids=ids(4), token_type_ids=[0, 0, 0, 0])
    assert torch.equal(plain.hidden_states, zeros.hidden_states)
    one, two = model.trace(input_ids=[ids(4), ids(4)], token_type_ids=[[0, 0, 0, 0], [0, 7, 7, 0]])
    torch.testing.assert_close(one.hidden_states, plain.hidden_states)
    alone = model.trace(input_ids=ids(4), token_type_ids=[0, 7, 7, 0])
    torch.testing.assert_close(two.hidden_states, alone.hidden_states)
    assert not torch.equal(two.hidden_states, plain.hidden_states)


@pytest.mark.parametrize(
    ("asked", "missing", "extra"),
    [
        ({"device_map": "auto"}, "accelerate", "large"),
        ({"quantization": "4bit"}, "bitsandbytes", "quantized"),
    ],
)
def test_what_large_models_need_is_said(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], missing: str, extra: str
) -> None:
    monkeypatch.setattr("mixlens.model.placing.find_spec", lambda name: None if name == missing else name)
    with pytest.raises(mixlens.MixlensError, match=rf"{missing}: pip install .*\[{extra}\]'"):
        mixlens.load("agreement", **asked)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"device_map": "auto", "device": "cpu"}, "device='cpu' is one device"),
        ({"device_map": "outo"}, "unknown device_map 'outo'"),
        ({"device_map": 3}, "not int"),
        ({"max_memory": {"cpu": "1GB"}}, "go with a device_map"),
        ({"quantization": "2bit"}, "unknown quantization '2bit'"),
    ],
)
def test_places_that_cannot_be_meant_are_refused(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(mixlens.MixlensError, match=reason):
        mixlens.load("agreement", **asked)


def test_what_is_no_single_stack_of_layers_is_refused_by_name() -> None:
    small = {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    choice = transformers.BertForMultipleChoice(transformers.BertConfig(**small))
    with pytest.raises(
        mixlens.MixlensError, match=r"BertForMultipleChoice chooses between several texts.*model\.bert\.$"
    ):
        mixlens.load(choice)
    assert mixlens.load(choice.bert.eval()).task == "base"
    config = transformers.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(mixlens.MixlensError, match=r"'t5' has an encoder and a decoder.*`mixlens families`"):
        mixlens.load(transformers.T5Model(config))
