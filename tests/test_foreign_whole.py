"""Scores of other tools on tokens made up by hand: the whole result, the whole message, and every shape on both sides
of its limit. Traces are made of names alone; no model runs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import mixlens
from mixlens.base import errors
from mixlens.metrics import foreign
from mixlens.scoring import registry

TOKENS = ("[CLS]", "Un", "##real", "film", "[SEP]")
WORDS = (("[CLS]", (0,)), ("Unreal", (1, 2)), ("film", (3,)), ("[SEP]", (4,)))
SPECIAL = (True, False, False, False, True)


def trace_of(**changes: Any) -> mixlens.Trace:
    given: dict[str, Any] = {
        "model": SimpleNamespace(dtype=torch.float32),
        "tokens": TOKENS,
        "input_ids": (1, 2, 3, 4, 5),
        "layers": (),
        "special": SPECIAL,
        "attention_mask": (1,) * 5,
        "words": WORDS,
    }
    return mixlens.Trace(**{**given, **changes})


def read(trace: Any, scores: Any, output: int | None = None) -> tuple[list[float], dict[str, Any]]:
    values, origin = foreign.aligned(trace, scores, output)
    assert values.dtype == torch.float64
    return values.tolist(), origin


def refused(trace: Any, scores: Any, output: int | None = None) -> str:
    with pytest.raises(errors.InputError) as error:
        foreign.aligned(trace, scores, output)
    return str(error.value)


def test_a_list_of_tokens_gives_these_facts_and_no_others() -> None:
    made = foreign.attribution_from(["a", 7], [1, -2])  # type: ignore[list-item]
    assert made.info == {"method": "my method", "paper": foreign.PAPER, "signed": True, "foreign": {"from": "list"}}
    assert (made.tokens, made.method, made.special, made.words) == (("a", "7"), "my method", (), None)
    assert (made.scores.tolist(), made.scores.dtype) == ([1.0, -2.0], torch.float64)
    named = foreign.attribution_from(["a"], (0.5,), name="mine", signed=False, target="yes")
    assert named.info == {
        **{"method": "mine", "paper": foreign.PAPER, "signed": False, "foreign": {"from": "tuple"}},
        **{"target": "yes", "score": "score"},
    }


def test_a_trace_gives_its_place_its_prediction_and_its_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "provenance", lambda trace: {"model": "m", "method": "of no method"})
    monkeypatch.setattr(foreign, "notices_in", lambda trace, query: {"notices": [f"{len(trace)} {query}"]})
    monkeypatch.setattr(mixlens.Trace, "query", property(lambda self: 2))
    monkeypatch.setattr(mixlens.Trace, "prediction", lambda self: [("good", 0.75)])
    made = foreign.attribution_from(trace_of(), [0.0, 1.0, 2.0, 3.0, 4.0], name="mine", target="good")
    assert made.info == {
        **{"model": "m", "query": 2, "query_token": "##real", "prediction": [("good", 0.75)]},
        **{
            "method": "mine",
            "paper": foreign.PAPER,
            "signed": True,
            "foreign": {"from": "list"},
            "target": "good",
            "score": "score",
        },
        "notices": ["5 2"],
    }
    assert (made.tokens, made.special, made.words, made.method) == (TOKENS, SPECIAL, WORDS, "mine")


@pytest.mark.parametrize(
    ("scores", "signed", "message"),
    [
        ([1.0, math.nan], True, "score 1 is not a finite number."),
        ([1.0, -math.inf], False, "score 1 is not a finite number."),
        ([0.0, -0.25], False, "signed=False, and score 1 is -0.25. Give signed=True."),
    ],
)
def test_values_that_are_refused(scores: Any, signed: bool, message: str) -> None:
    with pytest.raises(errors.InputError) as error:
        foreign.attribution_from(["a", "b"], scores, signed=signed)
    assert str(error.value) == message


def test_zeros_are_not_negative() -> None:
    assert foreign.attribution_from(["a", "b"], [0.0, -0.0], signed=False).scores.tolist() == [0.0, 0.0]


def shap_of(values: Any) -> Any:
    return SimpleNamespace(values=values, base_values=0.0, data=None)


def test_shap_explanations_of_every_shape() -> None:
    whole = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])  # [token, output]
    assert read(["a", "b"], shap_of(whole), 2) == ([3.0, 6.0], {"from": "shap.Explanation", "output": 2})
    assert read(["a", "b"], shap_of(whole), -3) == ([1.0, 4.0], {"from": "shap.Explanation", "output": -3})
    assert read(["a", "b"], shap_of(whole[None]), 0) == ([1.0, 4.0], {"from": "shap.Explanation", "output": 0})
    assert read(["a", "b"], shap_of(np.array([[7.0, 8.0]]))) == ([7.0, 8.0], {"from": "shap.Explanation"})
    assert read(["a"], shap_of(np.array([[7.0, 8.0]])), 1) == ([8.0], {"from": "shap.Explanation", "output": 1})
    assert read(["a", "b"], shap_of([7, 8])) == ([7.0, 8.0], {"from": "shap.Explanation"})
    for output in (3, -4, None):
        assert (
            refused(["a", "b"], shap_of(whole), output)
            == f"shap's outputs are 3: say which, output=0 to 2, not {output!r}."
        )


@pytest.mark.parametrize("left_out", ["values", "base_values", "data"])
def test_an_explanation_without_one_of_its_fields_is_none(left_out: str) -> None:
    given = vars(shap_of([1.0]))
    del given[left_out]
    assert refused(["a"], SimpleNamespace(**given)).startswith("scores are numbers, one for each token")


class Written(SimpleNamespace):
    """An inseq result by what it has."""


PAIRS = {
    "words without special tokens, capitals aside": ([("unREAL", 3.0), ("film", 1.0)], [0.0, 1.5, 1.5, 1.0, 0.0]),
    "all words": ([("[CLS]", 1), ("Unreal", 2), ("film", 3), ("[SEP]", 4)], [1.0, 1.0, 1.0, 3.0, 4.0]),
    "tokens without special ones": ([["Un", 1], ["##real", 2], ["film", 3]], [0.0, 1.0, 2.0, 3.0, 0.0]),
    "all tokens": (tuple(zip(TOKENS, range(5), strict=True)), [0.0, 1.0, 2.0, 3.0, 4.0]),
    "a dict": ({"Unreal": torch.tensor(2.0), "film": np.float32(0.5)}, [0.0, 1.0, 1.0, 0.5, 0.0]),
}


def test_pairs_for_a_trace_without_words_or_marks() -> None:
    pairs = [("un", 1.0), ("##REAL", 2.0), ("film", 3.0)]
    assert read(trace_of(words=None), pairs)[0] == [0.0, 1.0, 2.0, 3.0, 0.0]
    assert read(["un", "##real", "film"], pairs)[0] == [1.0, 2.0, 3.0]
    assert read(trace_of(special=()), [("[CLS]", 1), ("Unreal", 2), ("film", 3), ("[SEP]", 4)])[0] == [
        1.0,
        1.0,
        1.0,
        3.0,
        4.0,
    ]
    told = "the words do not fit the text: 'film' were given, and its words are "
    assert refused(trace_of(), [("film", 1.0)]) == told + "'Unreal film'."
    assert refused(trace_of(special=()), [("film", 1.0)]) == told + "'[CLS] Unreal film [SEP]'."
    assert refused(["un", "film"], [("film", 1.0)]) == told + "'un film'."


def test_a_word_with_a_special_part_is_no_special_word() -> None:
    trace = trace_of(tokens=("<s>", "a"), special=(True, False), words=(("<s>a", (0, 1)),))
    assert read(trace, [("<s>a", 3.0)])[0] == [1.5, 1.5]


# --- functions as methods ---------------------------------------------------------------------------------------------


def plain(trace: Any) -> Any:
    """Of the length
    of each token."""
    return [len(token) for token in trace.tokens]


def aimed(trace: Any, target: Any) -> Any:
    return [target] * len(trace)


def test_the_entry_of_a_function() -> None:
    trace = trace_of()
    question: Any = SimpleNamespace(trace=trace, resolved=2.5, model=trace.model)
    entry = foreign.method_of("plain one", plain)
    assert entry == type(entry)(
        "plain one", entry.function, foreign.PAPER, ("paper",), "?", "logit", False, False, signed=True
    )
    assert entry.function.__doc__ == "Of the length\nof each token."
    values, facts = entry.function(question)
    assert (values.tolist(), values.dtype) == ([5.0, 2.0, 6.0, 4.0, 5.0], torch.float32)
    assert facts == {"foreign": {"from": "list"}, "signed": True}
    other = foreign.method_of("aimed", aimed)
    assert (other.needs_target, other.function.__doc__) == (True, foreign.PAPER)
    assert other.function(question)[0].tolist() == [2.5] * 5
    assert foreign.method_of("negative", lambda trace: [-1.0] * 5).function(question)[0].tolist() == [-1.0] * 5
    with pytest.raises(errors.InputError) as error:
        foreign.method_of("no number", lambda trace: [math.nan] * 5).function(question)
    assert str(error.value) == "score 0 is not a finite number."


def test_functions_are_methods_within_the_block_alone() -> None:
    before = list(registry.known_attributions())
    with foreign.as_methods({"one": plain, "two": aimed}):
        assert list(registry.known_attributions()) == [*before, "one", "two"]
        assert (
            registry.known_attributions()["one"].needs_target,
            registry.known_attributions()["two"].needs_target,
        ) == (False, True)
    assert list(registry.known_attributions()) == before
    with pytest.raises(RuntimeError), foreign.as_methods({"one": plain}):
        raise RuntimeError
    assert list(registry.known_attributions()) == before


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"mine": 3}, "a method from outside is a function of a trace, not 3."),
        ({"a,b": plain}, "a method's name is of letters, digits, '_', '-' and spaces, not 'a,b'."),
        ({"attcat": plain}, "there is a method 'attcat' already. Give yours another name."),
        ({"alti": plain}, "there is a method 'alti' already. Give yours another name."),
        ({"good": plain, "": plain}, "a method's name is of letters, digits, '_', '-' and spaces, not ''."),
    ],
)
def test_functions_that_are_refused(functions: Any, message: str) -> None:
    before = list(registry.known_attributions())
    with pytest.raises(errors.InputError) as error, foreign.as_methods(functions):
        raise AssertionError("the block is not entered")
    assert str(error.value) == message
    assert list(registry.known_attributions()) == before
