"""What cannot be asked of a method, and what is said instead."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import hf_model, ids, loaded

import mixlens

REFUSED: list[tuple[str, str, dict[str, Any], str]] = [  # head, method, options, message
    ("SequenceClassification", "grad_l2", {"target": 2}, "target 2 is out of range: .* has 2 outputs, 0 to 1"),
    ("SequenceClassification", "grad_l2", {"target": 1, "foil": 2}, "foil 2 is out of range"),
    ("SequenceClassification", "grad_l2", {"target": 1, "foil": 1}, "target and foil are the same"),
    ("SequenceClassification", "grad_l2", {"target": (1, 0, 1)}, "a target and its foil are two, not 3"),
    ("SequenceClassification", "grad_l2", {"target": (1, 0), "foil": 0}, "give the foil once"),
    ("SequenceClassification", "grad_l2", {"target": 1.5}, "a target is a class, a token or an id, not 1.5"),
    ("SequenceClassification", "grad_l2", {"target": "gold"}, "needs the gold label"),
    ("SequenceClassification", "grad_l2", {"target": "goood"}, "has no class 'goood'"),
    ("SequenceClassification", "grad_l2", {"score": "logits"}, "unknown score 'logits'"),
    ("QuestionAnswering", "grad_l2", {"target": (0, 6)}, r"span \(0, 6\) is out of range: there are 6 tokens, 0 to 5"),
    ("QuestionAnswering", "grad_l2", {"target": (None, 6)}, r"span \(None, 6\) is out of range"),
    (
        "QuestionAnswering",
        "grad_l2",
        {"target": (None, None)},
        "explains a span: target=.start, end. as token positions",
    ),
    ("QuestionAnswering", "grad_l2", {"target": "word"}, "a question-answering model explains a span"),
    ("QuestionAnswering", "grad_l2", {"target": (0, 1), "foil": 1}, "a span has no foil"),
    ("SequenceClassification", "blank_out", {"replacement": "nothing"}, "unknown replacement 'nothing'"),
    ("SequenceClassification", "blank_out", {"replacement": 97}, "id 97 is not in the vocabulary of .* .0 to 96."),
    ("SequenceClassification", "deeplift", {"baseline": "mask"}, "has no mask token. Use baseline='zero'"),
    ("SequenceClassification", "context_cite", {"count": 1}, "count is a number of subsets, at least 2, not 1"),
    ("SequenceClassification", "context_cite", {"penalty": -0.1}, "penalty is that of LASSO, 0 or more, not -0.1"),
    ("SequenceClassification", "context_cite", {"seed": -1}, "seed is a number, 0 or more, not -1"),
    (
        "SequenceClassification",
        "context_cite",
        {"replacement": 97},
        "replacement 97 is no token of .*: ids are 0 to 96",
    ),
    ("SequenceClassification", "smooth_grad", {"count": 1_000_001}, "count must be at least 1 and at most 1,000,000"),
    ("SequenceClassification", "layer_conductance", {"layer": 3}, "gradients of conductance need a layer behind them"),
    ("SequenceClassification", "integrated_gradients", {"tolerance": 0.0}, "tolerance must be above 0, such as 0.01"),
    (
        "SequenceClassification",
        "discretized_integrated_gradients",
        {"strategy": "max"},
        "unknown strategy 'max'. .*maxcount",
    ),
    (
        "SequenceClassification",
        "discretized_integrated_gradients",
        {"rule": "gauss_legendre"},
        "unknown rule 'gauss_legendre'",
    ),
    ("SequenceClassification", "discretized_integrated_gradients", {"steps": 0}, "steps must be at least 1"),
    ("SequenceClassification", "discretized_integrated_gradients", {"neighbours": 0}, "neighbours must be at least 1"),
    (
        "SequenceClassification",
        "discretized_integrated_gradients",
        {"factor": -1},
        "factor is how often every step is halved, 0 to 10, not -1",
    ),
    ("SequenceClassification", "discretized_integrated_gradients", {"chunk": 0}, "chunk must be at least 1"),
    (
        "SequenceClassification",
        "discretized_integrated_gradients",
        {"baseline": "nothing"},
        "unknown baseline 'nothing'",
    ),
    ("SequenceClassification", "discretized_integrated_gradients", {"layer": 1}, "not defined at single layers"),
    ("SequenceClassification", "smooth_grad", {"count": 0}, "count must be at least 1"),
    ("SequenceClassification", "smooth_grad", {"noise": -1.0}, "noise is a share of the range of the embeddings"),
    ("SequenceClassification", "smooth_grad", {"seed": -1}, "seed is a number, 0 or more"),
    ("SequenceClassification", "smooth_grad", {"layer": 3}, "need a layer behind them"),
    ("SequenceClassification", "smooth_grad", {"embedding": "nowhere"}, "unknown embedding 'nowhere'"),
    ("SequenceClassification", "gradient_shap", {"baseline": "everything"}, "unknown baseline 'everything'"),
    ("SequenceClassification", "gradient_shap", {"chunk": 0}, "chunk must be at least 1"),
    ("SequenceClassification", "layer_conductance", {"layer": 3}, "need a layer behind them"),
    ("SequenceClassification", "layer_conductance", {"tolerance": 0.0}, "tolerance must be above 0"),
    ("SequenceClassification", "sequential_integrated_gradients", {"rule": "no"}, "unknown rule 'no'"),
    ("SequenceClassification", "sequential_integrated_gradients", {"layer": 1}, "not defined at single layers"),
]


@pytest.mark.parametrize(("head", "name", "options", "message"), REFUSED)
def test_questions_that_cannot_be_asked(head: str, name: str, options: dict[str, Any], message: str) -> None:
    trace = mixlens.load(hf_model("bert", head=f"AutoModelFor{head}")).trace(input_ids=ids(6))
    with pytest.raises(mixlens.MixlensError, match=message):
        mixlens.attribute(trace, name, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("value_zeroing", {"query": 6}, "6 is out of range"),
        ("value_zeroing", {"distance": "euclidian"}, "'euclidian'.*euclidean"),
        ("value_zeroing", {"variant": "released", "distance": "spearman"}, "knows the cosine distance alone"),
        ("value_zeroing", {"variant": "released", "standardize": True}, "knows the cosine distance alone"),
        *(("alti", {"chunk": chunk}, "chunk is a number of elements, at least 1") for chunk in (-3, True, 1.5, "9")),
        ("hta", {"norm": "l1"}, "no norm 'l1'.*frobenius"),
        ("hta", {"input": "x"}, "no input 'x'.*before"),
        ("hta", {"probes": 1}, "2 or more"),
        ("hta", {"probes": 5, "norm": "spectral"}, "Frobenius"),
        ("hta", {"probe": 5}, "no option 'probe'.*probes"),
        (b"alti", {}, "a method is a name"),
        (["alti", "altii"], {}, "Did you mean 'alti'"),
        ("zzz", {}, r"^unknown method 'zzz'\. `mixlens methods` lists all\.$"),
        ("alti", {"variant": "papper"}, "no variant 'papper'. Did you mean 'paper'"),
        ("random", {"sead": 1}, "no option 'sead'. Did you mean 'seed'"),
    ],
)
def test_maps_that_cannot_be_made(name: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(mixlens.MixlensError, match=message):
        mixlens.mix(loaded("bert").trace(input_ids=ids(6)), name, **options)
