"""Attributions to a prediction: the papers written out, targets, layers, completeness, and what must be refused."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from conftest import CONFIGURATIONS, DISTINCT, QUICK, SHARED, VOCABULARY, head_of, hf_model, ids, loaded, needs_shared

import mixlens
import mixlens.scoring.maps
import mixlens.show.results_page
from mixlens.scoring import attributions, targets

# Few steps keep these tests quick; test_completeness has what that is warned of.
pytestmark = pytest.mark.filterwarnings("ignore::mixlens.scoring.completeness.IncompleteWarning")
HEADS = {case: "AutoModelForCausalLM" if "neo" in case else head_of(case) for case in CONFIGURATIONS}
# One configuration of each kind (norms after, norms before, rotary, gated with norms on both sides), for the methods
# of other
# tools: what they ask of a model, integrated_gradients and cat ask of every configuration.
KINDS = ("bert", "gpt2", "llama", "gemma3_text")
WAYS = ("grad_x_input", "integrated_gradients", "deeplift", "attcat", "transatt", "partial_lrp", "blank_out")
SLOW = {"integrated_gradients": {"steps": 4}, **QUICK}


def with_head(case: str, head: str | None = None) -> Any:
    return mixlens.load(hf_model(case, head=head or HEADS[case]))


def target_value(model: Any, trace: Any, **changed: Any) -> torch.Tensor:
    """The predicted class's logit from the stock model, nothing of ours but the prediction."""
    output = model.hf_model(torch.tensor([trace.input_ids]), **changed)
    logits = output.logits[0] if output.logits.dim() == 2 else output.logits[0, -1]
    return logits[int(trace.logits.reshape(-1).argmax())]


@pytest.mark.parametrize("case", ["bert", "distilbert", "gpt2", "llama", "gemma2", "modernbert", "opt"])
def test_gradients_at_the_word_embeddings_are_the_stock_models(case: str) -> None:
    model = with_head(case)
    trace = model.trace(input_ids=ids(6))
    table = model.hf_model.get_input_embeddings()
    with torch.enable_grad():
        embeddings = table(torch.tensor([trace.input_ids])).detach().requires_grad_()
        options = {"use_cache": False} if "use_cache" in model.accepts else {}
        handle = table.register_forward_hook(lambda *_: embeddings)
        try:
            value = target_value(model, trace, **options)
        finally:
            handle.remove()
        (gradient,) = torch.autograd.grad(value, [embeddings])
    g, x = gradient[0], embeddings.detach()[0]
    close = (
        {"rtol": 1e-5, "atol": 1e-6}
        if case in ("llama", "gemma2", "modernbert", "opt")
        else {"rtol": 1e-9, "atol": 1e-12}
    )
    for name, expected in (
        ("grad_l2", g.norm(dim=-1)),
        ("grad_x_input", (g * x).sum(-1)),
        ("grad_x_input_l2", (g * x).norm(dim=-1)),
    ):
        torch.testing.assert_close(attributions.attribute(trace, name, embedding="word").scores, expected, **close)
    torch.testing.assert_close(
        attributions.attribute(trace, "grad_x_input", embedding="word", absolute=True).scores,
        (g * x).sum(-1).abs(),
        **close,
    )


def test_gradients_at_a_layer_are_of_that_layers_hidden_states() -> None:
    """By finite differences: the hidden states entering layer 1 are moved, and the stock model runs on."""
    model = with_head("bert")
    trace = model.trace(input_ids=ids(5))
    shares = attributions.attribute(trace, "grad_x_input", layer=1).scores
    x = trace.layers[1].input
    step = 1e-6
    for j in range(5):

        def moved(module: Any, args: Any, kwargs: Any, scale: float, j: int = j) -> Any:
            new = x.clone()
            new[j] *= 1 + scale
            return (new[None], *args[1:]), kwargs

        values = []
        for scale in (step, -step):
            handle = model.hf_model.bert.encoder.layer[1].register_forward_pre_hook(
                lambda m, a, k, s=scale: moved(m, a, k, s), with_kwargs=True
            )
            with torch.no_grad():
                values.append(float(target_value(model, trace)))
            handle.remove()
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(float(shares[j]), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("case", DISTINCT)
def test_integrated_gradients_add_up(case: str) -> None:
    """A head or feed-forward with kinks (ReLU), values that are clipped and very rough random models need more
    nodes."""
    trace = with_head(case).trace(input_ids=ids(5))
    read = attributions.attribute(trace, "integrated_gradients", steps=240)
    allowed = {
        "opt": 1e-2,
        "opt-post-norm": 1e-2,
        "distilbert": 1e-2,
        "gemma": 5e-2,
        "gemma3_text": 1e-3,
    }.get(case, 1e-5)
    assert read.info["completeness_gap"] < allowed
    assert abs(float(read.scores.sum()) - read.info["difference"]) == pytest.approx(
        read.info["completeness_gap"], abs=1e-12
    )


def test_integrated_gradients_without_their_sign() -> None:
    trace = with_head("bert").trace(input_ids=ids(6))
    signed, absolute = (
        attributions.attribute(trace, "integrated_gradients", steps=5, absolute=flag) for flag in (False, True)
    )
    assert (signed.scores < 0).any()
    torch.testing.assert_close(absolute.scores, signed.scores.abs())
    assert absolute.info["completeness"] == signed.info["completeness"]  # of the shares with their sign


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_integrated_gradients_at_a_layer_add_up(layer: int) -> None:
    trace = with_head("bert").trace(input_ids=ids(5))
    read = attributions.attribute(trace, "integrated_gradients", steps=60, layer=layer, baseline="zero")
    assert read.info["completeness_gap"] < 1e-6


@pytest.mark.parametrize("baseline", ["mask", "pad", "zero"])
def test_a_baseline_keeps_special_tokens(baseline: str) -> None:
    """What does not change between text and baseline gets no share at all; the rest does."""
    trace = mixlens.load("sentiment").trace("The plot was not dull.")
    for name in ("integrated_gradients", "deeplift"):
        scores = attributions.attribute(trace, name, baseline=baseline, embedding="word").scores
        special = torch.tensor(trace.special)
        assert int(special.sum()) == 2
        assert float(scores[special].abs().max()) == 0
        assert bool((scores[~special] != 0).all())


def test_more_steps_leave_less() -> None:
    trace = with_head("bert").trace(input_ids=ids(5))
    gaps = [
        attributions.attribute(trace, "integrated_gradients", steps=steps).info["completeness_gap"]
        for steps in (2, 8, 32)
    ]
    assert gaps[0] > gaps[1] > gaps[2]


def test_integrated_gradients_are_captums() -> None:
    captum = pytest.importorskip("captum.attr")
    model = with_head("bert")
    trace = model.trace(input_ids=ids(6))
    table = model.hf_model.get_input_embeddings()
    given = torch.tensor([trace.input_ids])
    cls = int(trace.logits.argmax())
    x, b = table(given).detach(), table(torch.zeros_like(given)).detach()
    theirs = captum.IntegratedGradients(lambda e: model.hf_model(inputs_embeds=e).logits).attribute(
        x, b, target=cls, n_steps=20
    )
    ours = attributions.attribute(trace, "integrated_gradients", steps=20, baseline="pad")
    assert ours.info["baseline"] == "pad"
    torch.testing.assert_close(ours.scores, theirs.sum(-1)[0], rtol=1e-6, atol=1e-9)


def test_cat_and_attcat_written_out() -> None:
    model = with_head("bert")
    trace = model.trace(input_ids=ids(6))
    with torch.enable_grad():
        output = model.hf_model(torch.tensor([trace.input_ids]), output_hidden_states=True)
        value = output.logits[0, int(trace.logits.argmax())]
        gradients = torch.autograd.grad(value, output.hidden_states)
    hidden = [states.detach() for states in output.hidden_states]
    expected_cat, expected_attcat, released = torch.zeros(6), torch.zeros(6), torch.zeros(6)
    for layer, j in itertools.product(range(3), range(6)):
        out = float((hidden[layer + 1][0, j] * gradients[layer + 1][0, j]).sum())
        into = float((hidden[layer][0, j] * gradients[layer][0, j]).sum())
        received = float(trace.layers[layer].attention[:, :, j].mean())
        expected_cat[j] += out
        expected_attcat[j] += out * received
        released[j] += into * received
    torch.testing.assert_close(attributions.attribute(trace, "cat").scores.float(), expected_cat, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        attributions.attribute(trace, "attcat").scores.float(), expected_attcat, rtol=1e-5, atol=1e-5
    )
    ours = attributions.attribute(trace, "attcat", variant="released", mask_special=False).scores.float()
    torch.testing.assert_close(ours, released, rtol=1e-5, atol=1e-5)
    parts = sum(attributions.attribute(trace, "attcat", layer=layer).scores for layer in range(3))
    torch.testing.assert_close(parts, attributions.attribute(trace, "attcat").scores)


def test_attention_gradients_are_the_effect_of_changing_attention() -> None:
    """The weights of one layer are nudged in the running model: the target moves as the gradient says."""
    model = with_head("bert")
    trace = model.trace(input_ids=ids(5))
    cls, step = int(trace.logits.argmax()), 1e-6

    def nudged(number: int, weights: torch.Tensor, place: tuple[int, int, int, int], amount: float) -> torch.Tensor:
        if number == place[0]:
            weights = weights.clone()
            weights[0, place[1], place[2], place[3]] += amount
        return weights

    for place in ((2, 1, 0, 3), (2, 3, 0, 4), (1, 0, 2, 3)):
        layer, head, i, j = place

        values = [
            float(
                model.run_attached(model.inputs([trace]), change=lambda n, w, a=a, p=place: nudged(n, w, p, a))
                .output.logits[0, cls]
                .detach()
            )
            for a in (step, -step)
        ]
        run = model.run_attached(model.inputs([trace]))
        (gradient,) = torch.autograd.grad(run.output.logits[0, cls], [run.attention[layer]])
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(float(gradient[0, head, i, j]), rel=1e-5, abs=1e-7)
        if layer == 2:
            torch.testing.assert_close(
                attributions.attribute(trace, "attention_grad").scores, gradient[0].mean(0).sum(0)
            )


def test_attention_baselines_are_rows_of_their_maps() -> None:
    trace = with_head("bert").trace(input_ids=ids(6))
    scores = mixlens.mix(trace, "attention")
    assert torch.equal(attributions.attribute(trace, "raw_attention").scores, scores.scores[-1, 0])
    assert torch.equal(
        attributions.attribute(trace, "attention_rollout", query=3).scores, scores.rollout().scores[-1, 3]
    )
    assert float(attributions.attribute(trace, "raw_attention", variant="released").scores[0]) == 0
    rolled = mixlens.mix(trace, "alti").rollout().readout(0)
    torch.testing.assert_close(attributions.attribute(trace, "alti").scores, rolled.scores, rtol=1e-13, atol=0)


@pytest.mark.parametrize("replacement", [3, "delete", "zero"])
@pytest.mark.parametrize("absolute", [False, True])
def test_blank_out_is_what_happens_to_the_stock_model(replacement: Any, absolute: bool) -> None:
    model = with_head("roberta")
    given = ids(6)
    trace = model.trace(input_ids=given)
    cls = int(trace.logits.argmax())
    table = model.hf_model.get_input_embeddings()

    def probability(tokens: list[int], zeroed: int | None = None) -> float:
        def zero(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
            output = output.clone()
            if zeroed is not None:
                output[0, zeroed] = 0
            return output

        handle = table.register_forward_hook(zero)
        with torch.no_grad():
            out = model.hf_model(torch.tensor([tokens])).logits[0].softmax(-1)[cls]
        handle.remove()
        return float(out)

    read = attributions.attribute(trace, "blank_out", replacement=replacement, absolute=absolute)
    for j in range(6):
        if replacement == "delete":
            without = probability(given[:j] + given[j + 1 :])
        elif replacement == "zero":
            without = probability(given, zeroed=j)
        else:
            without = probability([*given[:j], 3, *given[j + 1 :]])
        expected = probability(given) - without
        assert float(read.scores[j]) == pytest.approx(abs(expected) if absolute else expected, abs=1e-10)


@pytest.mark.parametrize("case", DISTINCT)
def test_every_method_on_every_family(case: str) -> None:
    """Finite, signed where it can be, in a padded batch as alone, and the model is left as it was, to the last bit.
    Every method on `KINDS`; elsewhere one of each way of running the model (`test_freeze` has the numbers of all)."""
    model = with_head(case)
    before = {name: weights.clone() for name, weights in model.hf_model.state_dict().items()}
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.hf_model.modules()]
    traces = model.trace(input_ids=[ids(7), ids(5, 1)])
    alone = model.trace(input_ids=list(traces[1].input_ids))  # the one with padding beside it
    for name in attributions.known() if case in KINDS else WAYS:
        options = SLOW.get(name, {}) | ({"replacement": "zero"} if name == "blank_out" else {})
        many = attributions.attribute(traces, name, **options)
        for read, trace in zip(many, traces, strict=True):
            assert read.scores.shape == (len(trace),)
            assert float(read.scores.abs().max()) > 0, name
        torch.testing.assert_close(
            many[1].scores, attributions.attribute(alone, name, **options).scores, rtol=1e-8, atol=1e-10
        )
        if case in ("bert", "llama"):  # a trace out of a batch, asked by itself
            torch.testing.assert_close(
                many[1].scores, attributions.attribute(traces[1], name, **options).scores, rtol=1e-10, atol=1e-10
            )
    assert all(torch.equal(weights, model.hf_model.state_dict()[name]) for name, weights in before.items())
    assert hooks == [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.hf_model.modules()]
    assert all(weights.grad is None for weights in model.hf_model.parameters())


@pytest.mark.parametrize("name", [name for name, method in attributions.known().items() if method.layers])
def test_methods_that_take_layers_give_one_answer_a_layer(name: str) -> None:
    trace = with_head("bert").trace(input_ids=ids(5))
    options = SLOW.get(name, {})
    answers = [attributions.attribute(trace, name, layer=layer, **options).scores for layer in range(3)]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(answers, 2))


# --- targets ---


def test_targets_of_a_classifier() -> None:
    model = with_head("bert")
    trace = model.trace(input_ids=ids(5))
    model.hf_model.config.id2label = {0: "bad", 1: "good"}
    predicted = int(trace.logits.argmax())
    assert targets.resolve(trace).ids == (predicted,)
    assert targets.resolve(trace, "GOOD").ids == (1,)
    assert targets.resolve(trace, "gold", label="bad").ids == (0,)
    assert targets.resolve(trace, ("good", "bad")).foil == 0
    assert targets.resolve(trace, 0, foil=1).name == "bad - good"


@pytest.mark.parametrize("score", ["logit", "probability", "log_probability"])
@pytest.mark.parametrize("foil", [None, 7])
def test_scores_of_a_masked_language_model(score: str, foil: int | None) -> None:
    model = with_head("bert", "AutoModelForMaskedLM")
    trace = model.trace(input_ids=ids(5))
    logits = model.logits(trace)[2]
    target = targets.resolve(trace, 11, foil=foil, score=score, query=2)
    value = float(target.of(model.outputs([trace])))
    pair = logits[[11, 7]]
    share = (logits.softmax(-1)[11] if foil is None else pair.softmax(-1)[0]).item()
    expected = {
        "logit": float(logits[11] - (0 if foil is None else logits[7])),
        "probability": share,
        "log_probability": float(torch.tensor(share, dtype=torch.float64).log()),
    }[score]
    assert value == pytest.approx(expected, rel=1e-9)


def test_a_span_is_start_plus_end() -> None:
    model = with_head("distilbert", "AutoModelForQuestionAnswering")
    trace = model.trace(input_ids=ids(6))
    output = model.outputs([trace])
    value = targets.resolve(trace, (1, 3)).of(output)
    torch.testing.assert_close(value[0], output.start_logits[0, 1] + output.end_logits[0, 3])
    product = targets.resolve(trace, (1, 3), score="probability").of(output)
    torch.testing.assert_close(product[0], output.start_logits[0].softmax(-1)[1] * output.end_logits[0].softmax(-1)[3])
    best = targets.resolve(trace)
    assert best.ids == (int(output.start_logits.argmax()), int(output.end_logits.argmax()))
    assert attributions.attribute(trace, "grad_x_input", target=(1, 3)).scores.shape == (6,)


def test_a_word_is_one_token() -> None:
    model = mixlens.load("agreement")
    assert model.tokens([targets.token_id(model, "were")]) == ("were",)
    trace = model.trace("The keys to the cabinet [MASK] rusty.")
    read = attributions.attribute(trace, "attcat", target=("were", "was"))
    assert read.info["target"] == "were - was"
    for wrong in ("uncopyrightable", "were was"):
        with pytest.raises(mixlens.MixlensError, match="is not one token"):
            attributions.attribute(trace, "attcat", target="were", foil=wrong)


def tokenizer_of(kind: str) -> Any:
    """A small tokenizer that marks new words with "▁" (as SentencePiece), "Ġ" (byte level), or the rest of one with
    "##"."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(set("abcdefghijklmnopqrstuvwxyz#"))
    if kind == "##":
        known = ["[UNK]", *letters, *(f"##{one}" for one in letters), "the", "play", "##ing"]
        made = Tokenizer(models.WordPiece({one: i for i, one in enumerate(known)}, unk_token="[UNK]"))
        made.pre_tokenizer, made.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    else:
        known = [
            "[UNK]",
            *letters,
            *"ĠĊ▁",
            *(kind + one for one in letters),
            "pl",
            "ay",
            "play",
            kind + "play",
            "in",
            "ing",
        ]
        merges = [(kind, one) for one in letters] + [
            ("p", "l"),
            ("a", "y"),
            ("pl", "ay"),
            (kind, "play"),
            ("i", "n"),
            ("in", "g"),
        ]
        merges = [*merges[len(letters) :], *merges[: len(letters)]]
        made = Tokenizer(models.BPE({one: i for i, one in enumerate(known)}, merges, unk_token="[UNK]"))
        sentence_piece = pre_tokenizers.Metaspace("▁", prepend_scheme="always"), decoders.Metaspace("▁")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        made.pre_tokenizer, made.decoder = sentence_piece if kind == "▁" else byte_level
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")


@pytest.mark.parametrize("kind", ["##", "▁", "Ġ"])
def test_every_name_that_is_printed_can_be_given_back(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    model = mixlens.load(hf_model("gpt2", head="AutoModelForCausalLM"), tokenizer=tokenizer)
    assert len(tokenizer) <= VOCABULARY
    assert model.tokens([targets.token_id(model, "play")])[0] == {"##": "play", "▁": "▁play", "Ġ": "Ġplay"}[kind]
    for number in range(1, len(tokenizer)):
        own = targets.token_name(model, number)
        shown = targets.token_name(model, number, plain=True)
        assert targets.token_id(model, own) == number, (own, number)
        assert targets.token_id(model, shown) == number, (shown, number)
        if kind == "##" or own.startswith(kind):
            assert own == model.tokens([number])[0]  # the tokenizer's own name
    trace = model.trace("the play")
    for target in ("predicted", *range(1, len(tokenizer), 7)):
        name = attributions.attribute(trace, "grad_x_input", target=target).info["target"]
        again = attributions.attribute(trace, "grad_x_input", target=name)
        assert torch.equal(again.scores, attributions.attribute(trace, "grad_x_input", target=target).scores)
    for name, probability in trace.prediction():
        if not name.isdigit():  # of the 97 outputs some have no token
            logits = trace.logits[0].softmax(-1)
            assert float(logits[targets.token_id(model, name)]) == pytest.approx(
                probability, rel=1e-6
            )  # shown in float32


@pytest.mark.parametrize("target", [(3, "x"), ("x", 3), (3,), (3, 4, 5), "3", 3])
def test_a_span_is_two_positions(target: Any) -> None:
    trace = loaded("bert", head="AutoModelForQuestionAnswering").trace(input_ids=ids(6))
    with pytest.raises(mixlens.MixlensError, match="explains a span"):
        attributions.attribute(trace, "grad_x_input", target=target)


@pytest.mark.parametrize(
    ("head", "arguments", "message"),
    [
        ("AutoModel", {}, "without a head"),
        ("AutoModelForSequenceClassification", {"target": 2}, "target 2 is out of range"),
        ("AutoModelForSequenceClassification", {"target": -1}, "out of range"),
        ("AutoModelForSequenceClassification", {"target": "LABEL_9"}, "no class 'LABEL_9'"),
        ("AutoModelForSequenceClassification", {"target": "gold"}, "needs the gold label"),
        ("AutoModelForSequenceClassification", {"target": 0, "foil": 0}, "are the same"),
        ("AutoModelForSequenceClassification", {"target": (0, 1), "foil": 1}, "give the foil once"),
        ("AutoModelForSequenceClassification", {"score": "logits"}, "Did you mean 'logit'"),
        ("AutoModelForSequenceClassification", {"layer": 9}, "layer 9 is out of range"),
        ("AutoModelForSequenceClassification", {"embedding": "words"}, "Did you mean 'word'"),
        ("AutoModelForSequenceClassification", {"target": 1.5}, "not 1.5"),
        ("AutoModelForMaskedLM", {"target": 5}, "no mask token to predict"),
        ("AutoModelForMaskedLM", {"target": "were", "query": 0}, "has no tokenizer"),
        ("AutoModelForQuestionAnswering", {"target": 3}, "explains a span"),
        ("AutoModelForQuestionAnswering", {"target": (0, 9)}, "out of range"),
        ("AutoModelForQuestionAnswering", {"target": (0, 1), "foil": 2}, "has no foil"),
    ],
)
def test_targets_that_cannot_be_meant_are_refused(head: str, arguments: dict[str, Any], message: str) -> None:
    trace = with_head("bert", head).trace(input_ids=ids(4))
    with pytest.raises(mixlens.MixlensError, match=message):
        attributions.attribute(trace, "grad_l2", **arguments)


def test_options_that_cannot_be_meant_are_refused() -> None:
    trace = with_head("bert").trace(input_ids=ids(4))
    for name, arguments, message in (
        ("grad_l3", {}, "Did you mean 'grad_l2'"),
        ("attcat", {"variant": "relesed"}, "Did you mean 'released'"),
        ("grad_l2", {"absolut": True}, "no option 'absolut'"),
        ("blank_out", {"replacement": "mask"}, "has no mask token"),
        ("blank_out", {"replacement": "masc"}, "Did you mean 'mask'"),
        ("raw_attention", {"target": 1}, "explains a position"),
        ("raw_attention", {"layer": 1}, "not defined at single layers"),
        ("integrated_gradients", {"baseline": "mask"}, "has no mask token"),
        ("integrated_gradients", {"baseline": "noise"}, "unknown baseline"),
        ("integrated_gradients", {"steps": 0}, "at least 1"),
        ("integrated_gradients", {"rule": "trapezoid"}, "unknown rule"),
        ("integrated_gradients", {"layer": 3}, "need a layer behind them"),
    ):
        with pytest.raises(mixlens.MixlensError, match=message):
            attributions.attribute(trace, name, **arguments)


# --- golden values ---


def golden_trace(model: str, text: str, *, segments: bool = False) -> Any:
    given = json.loads((SHARED / "golden" / "models" / "inputs.json").read_text())[text]
    if not segments:
        given.pop("token_type_ids")
    return mixlens.load(SHARED / "golden" / "models" / model, dtype="float64").trace(**given)


@needs_shared
@pytest.mark.parametrize("name", ["bert_tiny", "roberta_tiny", "electra_tiny", "distilbert_tiny"])
def test_golden_gradients(name: str) -> None:
    golden = np.load(SHARED / "golden" / "gradients" / f"{name}_n9_f64.npz")
    trace = golden_trace(name, "n9", segments=name not in ("roberta_tiny", "distilbert_tiny"))

    def same(method: str, key: str, **options: Any) -> None:
        np.testing.assert_allclose(
            attributions.attribute(trace, method, **options).scores, golden[key], rtol=1e-9, atol=1e-12
        )

    for k in range(3):
        for short, score in (("logit", "logit"), ("prob", "probability")):
            for theirs, ours in (("word", "word"), ("sum", "sum"), ("embout", "after")):
                for method, key in (
                    ("grad_l2", "grad_l2"),
                    ("grad_x_input", "gradxinput_sum"),
                    ("grad_x_input_l2", "gradxinput_l2"),
                ):
                    same(method, f"class{k}/{short}/{theirs}/{key}", target=k, score=score, embedding=ours)
        same("cat", f"class{k}/CAT_outputs", target=k)
        same("cat", f"class{k}/CAT_inputs", target=k, variant="released", mask_special=False)
        same("attcat", f"class{k}/AttCAT_outputs_colmean", target=k)
        same("attcat", f"class{k}/AttCAT_inputs_colmean_AS_CODED", target=k, variant="released", mask_special=False)
        if trace.special[0]:  # a tokenizer or configuration that names [CLS] and [SEP], which the baseline keeps
            ig = {"target": k, "score": "probability", "steps": 100, "baseline": 103}
            same("integrated_gradients", f"class{k}/prob/word/ig_gausslegendre100_sum", **ig)
            same("integrated_gradients", f"class{k}/prob/word/ig_riemann_right100_sum", rule="riemann_right", **ig)


GOLDEN_ATTCAT = sorted(path.name for path in (SHARED / "golden" / "attcat").glob("bert_tiny_*_f64.npz"))


@needs_shared
@pytest.mark.parametrize("case", [name[10:-8] for name in GOLDEN_ATTCAT] or ["n9"])
def test_golden_attcat(case: str) -> None:
    golden = np.load(SHARED / "golden" / "attcat" / f"bert_tiny_{case}_f64.npz")
    trace = golden_trace("bert_tiny", case)
    for k in range(3):
        for mask in ("maskones", "maskspecial"):
            read = attributions.attribute(
                trace, "attcat", target=k, variant="released", mask_special=mask == "maskspecial"
            )
            np.testing.assert_allclose(read.scores, golden[f"{mask}/class{k}/AttCAT"], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(
                read.info["per_layer"], golden[f"{mask}/class{k}/AttCAT_per_layer"], rtol=1e-9, atol=1e-12
            )
            read = attributions.attribute(
                trace, "attention_x_grad", target=k, variant="released", mask_special=mask == "maskspecial"
            )
            np.testing.assert_allclose(
                read.scores, np.nan_to_num(golden[f"{mask}/class{k}/AttGrads"]), rtol=1e-9, atol=1e-12
            )
    for name, key, tolerance in (("raw_attention", "RawAtt", 1e-9), ("attention_rollout", "Rollout", 1e-6)):
        for mask in ("maskones", "maskspecial"):
            read = attributions.attribute(trace, name, variant="released", mask_special=mask == "maskspecial")
            np.testing.assert_allclose(read.scores, golden[f"{mask}/{key}"], rtol=tolerance, atol=1e-12)


@needs_shared
def test_released_methods_hide_special_tokens_as_the_notebooks_do() -> None:
    """Without an option, every released method of AttCAT is the one with special tokens hidden from attention."""
    golden = np.load(SHARED / "golden" / "attcat" / "bert_tiny_n9_f64.npz")
    trace = golden_trace("bert_tiny", "n9")
    for name, key in (
        ("attcat", "class1/AttCAT"),
        ("transatt", "class1/TransAtt"),
        ("partial_lrp", "class1/PartialLRP"),
        ("attention_x_grad", "class1/AttGrads"),
        ("raw_attention", "RawAtt"),
        ("attention_rollout", "Rollout"),
    ):
        aim = {"target": 1} if key.startswith("class") else {}
        read = attributions.attribute(trace, name, variant="released", **aim)
        np.testing.assert_allclose(read.scores, golden[f"maskspecial/{key}"], rtol=1e-6, atol=1e-12)


@needs_shared
@pytest.mark.parametrize("name", ["bert_tiny", "bert_tiny_eps", "roberta_tiny"])
def test_golden_gradients_as_altis_code_takes_them(name: str) -> None:
    """The embedding output goes through the embedding module a second time; the probability; shares."""
    golden = np.load(SHARED / "golden" / "alti" / f"{name}_n9_f64.npz")
    trace = golden_trace(name, "n9", segments=name != "roberta_tiny")
    for method, key, options in (
        ("grad_l2", "grad_l2_norm_sum1", {}),
        ("grad_x_input", "gradxinput_abs", {}),
        ("integrated_gradients", "ig100_gausslegendre_abs", {"steps": 100, "baseline": 103}),
        ("blank_out", "blankout_mask_absdiff", {"replacement": 103}),
    ):
        if method != "integrated_gradients" or trace.special[0]:
            read = attributions.attribute(trace, method, variant="released", **options)
            np.testing.assert_allclose(read.scores, golden[key], rtol=1e-8, atol=1e-12, err_msg=method)


@needs_shared
def test_golden_blank_out() -> None:
    golden = np.load(SHARED / "golden" / "blankout" / "bert_tiny_mlm_n14_f64.npz")
    model = mixlens.load(SHARED / "golden" / "models" / "bert_tiny_mlm", dtype="float64")
    trace = model.trace(input_ids=golden["input_ids"])
    asked = {"target": int(golden["target_id"]), "query": int(golden["mask_pos"])}
    foil = int(golden["foil_id"])
    for key, options in (
        ("vz_signed_unk", {"replacement": 100, "foil": foil}),
        ("vz_signed_mask", {"replacement": 103, "foil": foil}),
        ("vz_signed_zero_wordemb", {"replacement": "zero", "foil": foil}),
        ("alti_absdiff_fullsoftmax_mask", {"replacement": 103, "absolute": True}),
    ):
        np.testing.assert_allclose(
            attributions.attribute(trace, "blank_out", **asked, **options).scores, golden[key], rtol=1e-9, atol=1e-13
        )


# --- explaining in one line ---


def test_explain_takes_maps_and_attributions() -> None:
    model = mixlens.load("agreement")
    text = "The keys to the cabinet [MASK] rusty."
    trace = model.trace(text)
    read = model.explain(text, method="grad_x_input", target="were", foil="was")
    torch.testing.assert_close(
        read.scores, attributions.attribute(trace, "grad_x_input", target=("were", "was")).scores
    )
    rolled = mixlens.mix(trace, "globenc").rollout().readout("[MASK]")
    torch.testing.assert_close(model.explain(text, method="globenc").scores, rolled.scores)
    assert "[CLS]" not in model.explain(text, method="attcat", keep_special=False).tokens


@pytest.mark.parametrize("name", ["grad_x_input", "alti"])
def test_every_generated_token_is_explained_by_what_came_before(name: str) -> None:
    """Each is what explaining the text up to there gives, token by token."""
    model = with_head("llama", "AutoModelForCausalLM")
    trace = model.trace(input_ids=ids(4))
    written = model.generate(trace, 3)
    with torch.no_grad():
        expected = model.hf_model(torch.tensor([ids(4)])).logits[0, -1].argmax()
    assert written[0] == int(expected)
    monkey = pytest.MonkeyPatch()
    monkey.setattr(type(model), "encode", lambda self, text: self.encode_ids(ids(4)))
    try:
        results = model.explain("anything", method=name, generate=3)
    finally:
        monkey.undo()
    assert [read.info["generated"] for read in results] == [str(i) for i in written]
    so_far = ids(4)
    for read, token in zip(results, written, strict=True):
        alone = model.trace(input_ids=so_far)
        options = {"target": token} if name == "grad_x_input" else {}
        torch.testing.assert_close(
            read.scores, attributions.attribute(alone, name, **options).scores, rtol=1e-5, atol=1e-6
        )
        assert read.info["prediction"][0][0] == str(token)
        so_far = [*so_far, token]


@pytest.mark.parametrize("kind", ["▁", "Ġ"])
def test_words_of_a_text_that_was_gone_on_with(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A written piece goes on with the word before it, a written word is one of its own, and every step knows its
    text."""
    model = mixlens.load(hf_model("gpt2", head="AutoModelForCausalLM"), tokenizer=tokenizer_of(kind))
    piece, word = (model.tokenizer.convert_tokens_to_ids(name) for name in ("ing", f"{kind}play"))
    monkeypatch.setattr(type(model), "generate", lambda self, trace, count: [piece, word, piece][:count])
    text = "a cat play"
    steps = model.explain(text, method="grad_x_input", generate=3)
    assert [read.info["text"] for read in steps] == ["a cat play", "a cat playing", "a cat playing play"]
    assert [[word for word, _ in read.words] for read in steps] == [
        ["a", "cat", "play"],
        ["a", "cat", "playing"],
        ["a", "cat", "playing", "play"],
    ]
    for read in steps:
        assert [i for _, places in read.words for i in places] == list(range(len(read.tokens)))
        whole = read.by_word()
        assert float(whole.scores.sum()) == pytest.approx(float(read.scores.sum()), abs=1e-9)  # float64
        assert whole.tokens == tuple(read.info["text"].split())
    assert not [
        read for read in model.explain(text, method="alti", generate=2, keep_special=False) if read.words is None
    ]


def test_generate_is_refused_where_nothing_is_written() -> None:
    with pytest.raises(mixlens.MixlensError, match="needs a causal language model"):
        mixlens.load("agreement").explain("The keys [MASK] rusty.", generate=3)


@needs_shared
@pytest.mark.parametrize("mask", ["maskones", "maskspecial"])
def test_golden_attcat_of_a_question_answering_model(mask: str) -> None:
    """The released SQuAD notebook explains the best start and the best end, and adds the two."""
    import transformers
    from safetensors.torch import load_file

    golden_models = SHARED / "golden" / "models"
    golden = np.load(SHARED / "golden" / "attcat_squad" / "bert_tiny_pair13_f64.npz")
    config = transformers.AutoConfig.from_pretrained(golden_models / "bert_tiny", num_labels=2)
    model = transformers.BertForQuestionAnswering(config)
    encoder = {
        key: value
        for key, value in load_file(golden_models / "bert_tiny" / "model.safetensors").items()
        if "bert." in key
    }
    head = {
        key.removeprefix("bert_tiny."): value
        for key, value in load_file(golden_models / "qa_heads.safetensors").items()
    }
    kept = {key: value for key, value in {**encoder, **head}.items() if key in model.state_dict()}
    assert set(kept) == set(model.state_dict()) - {"bert.embeddings.position_ids"}
    model.load_state_dict(kept)
    tokenizer = transformers.AutoTokenizer.from_pretrained(golden_models / "bert_tiny")
    given = json.loads((golden_models / "inputs.json").read_text())["pair13"]
    given.pop("token_type_ids")
    trace = mixlens.load(model.double().eval(), tokenizer=tokenizer).trace(**given)
    read = attributions.attribute(trace, "attcat", variant="released", mask_special=mask == "maskspecial")
    np.testing.assert_allclose(read.scores, golden[f"{mask}/attcat_sum"], rtol=1e-9, atol=1e-12)
    for key, target in (
        ("start", (int(golden[f"{mask}/pred_start"]), None)),
        ("end", (None, int(golden[f"{mask}/pred_end"]))),
    ):
        read = attributions.attribute(
            trace, "attcat", variant="released", mask_special=mask == "maskspecial", target=target
        )
        np.testing.assert_allclose(read.scores, golden[f"{mask}/attcat_{key}"], rtol=1e-9, atol=1e-12)
    for name, key in (("raw_attention", "rawatt_as_coded"), ("attention_rollout", "rollout_as_coded")):
        read = attributions.attribute(trace, name, variant="released_squad", mask_special=mask == "maskspecial")
        np.testing.assert_allclose(read.scores, golden[f"{mask}/{key}"], rtol=1e-9, atol=1e-12)


def test_gradient_times_input_is_not_taken_before_a_norm() -> None:
    """A norm does not see how long its input is, so that before it the product is zero; it is taken behind it by
    default."""
    normed = with_head("bert").trace(input_ids=ids(7))
    before, behind = (
        attributions.attribute(normed, "grad_x_input", target=1, embedding=place).scores for place in ("sum", "after")
    )
    lengths = attributions.attribute(normed, "grad_x_input_l2", target=1, embedding="sum").scores
    assert before.abs().max() < 1e-6 * lengths.max()
    torch.testing.assert_close(attributions.attribute(normed, "grad_x_input", target=1).scores, behind)
    plain = with_head("gpt2").trace(input_ids=ids(7))
    torch.testing.assert_close(
        attributions.attribute(plain, "grad_x_input", target=1).scores,
        attributions.attribute(plain, "grad_x_input", target=1, embedding="sum").scores,
    )


# --- how often the sentence is run ------------------------------------------------------------------------------------


@pytest.fixture
def forward_passes() -> Any:
    """Counts the forward passes of the stock models that it is given."""
    handles: list[Any] = []

    def watch(model: Any) -> list[int]:
        count: list[int] = []
        handles.append(model.hf_model.register_forward_hook(lambda *_: count.append(1)))
        return count

    yield watch
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize(("name", "passes"), [("alti", 1), ("attention_rollout", 1), ("attcat", 2), ("deeplift", 4)])
def test_explain_runs_the_sentence_once_beside_the_methods_own_passes(
    name: str, passes: int, forward_passes: Any
) -> None:
    """One traced pass serves prediction, target and map; AttCAT takes one more with its graph, DeepLift also its
    baseline's and that of both. A trace in the place of the text is not run again."""
    model = mixlens.load("agreement")
    text = "The keys to the cabinet [MASK] rusty."
    trace, count = model.trace(text), forward_passes(model)
    result = model.explain(text, method=name)
    assert len(count) == passes
    again = model.explain(trace, method=name)
    assert len(count) == 2 * passes - 1
    assert torch.equal(result.scores, again.scores)
    assert again.info["prediction"] == result.info["prediction"]


def test_a_map_at_hand_is_read_without_another_pass(forward_passes: Any) -> None:
    model = mixlens.load("agreement")
    trace = model.trace("The keys to the cabinet [MASK] rusty.")
    scores, count = mixlens.mix(trace, "globenc"), forward_passes(model)
    row, alone = (
        attributions.row_of_map(trace, scores, query="keys", layer=1),
        attributions.attribute(trace, "globenc", query="keys", layer=1),
    )
    assert not count
    assert torch.equal(row.scores, alone.scores)
    assert row.info.keys() == alone.info.keys()
    assert row.info["rollout"] == alone.info["rollout"]
    assert row.info["prediction"] == alone.info["prediction"]


def test_a_text_that_a_model_goes_on_with_is_not_traced_before(
    forward_passes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace of the whole text, and one pass for the predictions at every place; `generate` is the model's own."""
    model = with_head("llama", "AutoModelForCausalLM")
    monkeypatch.setattr(type(model), "encode", lambda self, text: self.encode_ids(ids(4)))
    monkeypatch.setattr(type(model), "generate", lambda self, prompt, count: ids(count, seed=1))
    count = forward_passes(model)
    assert len(model.explain("anything", method="alti", generate=2)) == 2
    assert len(count) == 2


def test_a_trace_of_another_model_is_not_explained() -> None:
    trace = mixlens.load("agreement").trace("The keys [MASK] rusty.")
    with pytest.raises(mixlens.MixlensError, match="not of 'sentiment'"):
        mixlens.load("sentiment").explain(trace)


@pytest.mark.parametrize(("options", "maps"), [(["--layers", "--map", "2"], 1), (["--method", "attcat"], 0)])
def test_the_command_traces_the_sentence_once_and_makes_its_map_once(
    options: list[str], maps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from mixlens import cli

    traced, scored = [], []
    trace, method = mixlens.Model.trace, mixlens.scoring.maps.known()["alti"]

    def counted_trace(self: Any, *given: Any, **others: Any) -> Any:
        traced.append(given)
        return trace(self, *given, **others)

    def counted_alti(block: Any, **others: Any) -> Any:
        scored.append(block)
        return method.function(block, **others)

    model = mixlens.load("agreement")
    # The command loads a model and proves it, with passes of its own: here it gets one that is proven.
    monkeypatch.setattr("mixlens.model.loading.load", lambda *_, **__: model)
    monkeypatch.setattr("mixlens.layer.proof.check", lambda _: model.proof)
    monkeypatch.setattr(mixlens.Model, "trace", counted_trace)
    # Its signature is that of the method, so that options are checked as before.
    monkeypatch.setitem(
        mixlens.scoring.maps.known(),
        "alti",
        dataclasses.replace(method, function=functools.wraps(method.function)(counted_alti)),
    )
    result = CliRunner().invoke(cli.app, ["explain", "The keys to the cabinet [MASK] rusty.", *options])
    assert result.exit_code == 0, result.output
    assert len(traced) == 1
    assert len(scored) == maps * model.n_layers  # a CPU scores one layer at a time
