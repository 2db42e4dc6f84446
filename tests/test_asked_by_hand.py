"""Questions and answers of attributions with methods made by hand: what is handed on, what is refused, what the result tells."""

from __future__ import annotations

import importlib
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from mixlens.base.errors import InputError, MixlensError, ModelError
from mixlens.metrics.alignment import cue_average_precision, cue_dot, probes_needed
from mixlens.scoring import scoring
from mixlens.types import Attribution, Map, Trace

attributions: Any = importlib.import_module("mixlens.scoring.attributions")


def trace_of(n: int = 3, name: str = "tiny", **changes: Any) -> Any:
    model = changes.pop("model", None) or SimpleNamespace(
        dtype=torch.float32, name=name, device=torch.device("cpu"), hf_model=nn.Module()
    )
    given = {"model": model, "tokens": tuple("abcdefgh"[:n]), "layers": (None,) * 2, "input_ids": tuple(range(n))}
    return Trace(**{**given, "special": (True,) + (False,) * (n - 1), "attention_mask": (1,) * n, **changes})


def result_of(trace: Any, name: str = "m") -> Attribution:
    return Attribution(torch.ones(len(trace)), trace.tokens, name, {}, trace.special, trace.words)


def refused(call: Any, *given: Any, **options: Any) -> str:
    with pytest.raises(MixlensError) as error:
        call(*given, **options)
    return str(error.value)


# --- what is asked --------------------------------------------------------------------------------------------------------


def test_every_option_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    traces, seen, warned = [trace_of(), trace_of(2)], list[Any](), list[Any]()

    def attribute_each(many: Any, name: str, aims: Any, **options: Any) -> Any:
        seen.append((many, name, aims, options))
        return [result_of(trace) for trace in many]

    monkeypatch.setattr(attributions, "attribute_each", attribute_each)
    monkeypatch.setattr(attributions, "warn_where_open", warned.append)
    one = attributions.attribute(
        traces[0], "m", target=1, foil=2, score="probability", label=3, query=4, layer=5, variant="released", steps=6
    )
    aim = {"target": 1, "foil": 2, "score": "probability", "label": 3, "query": 4, "layer": 5}
    assert seen == [([traces[0]], "m", [aim], {"variant": "released", "steps": 6})]
    assert isinstance(one, Attribution)
    two = attributions.attribute(tuple(traces), "m")
    plain = {"target": "predicted", "foil": None, "score": None, "label": None, "query": None, "layer": None}
    assert seen[1:] == [(traces, "m", [plain] * 2, {"variant": None})]
    assert [len(result.tokens) for result in two] == [3, 2]
    assert warned == [one, *two]
    monkeypatch.setattr(attributions, "attribute_each", lambda *given, **options: [InputError("no such thing")])
    assert refused(attributions.attribute, traces[0], "m") == "no such thing"


def test_answers_come_in_the_order_of_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    method = SimpleNamespace(arguments=lambda variant, options: {"variant": variant, **options})
    monkeypatch.setattr(attributions, "known", lambda: {"m": method})
    monkeypatch.setattr(attributions, "known_maps", lambda: {"alti": None})

    def question(trace: Any, name: str, aim: Any) -> Any:
        if aim.query == 9:
            raise InputError("no such position")
        return trace, name, aim

    def answered(calls: Any, tokens: Any) -> Any:
        seen.append((calls, tokens))
        return {i: f"answer {i}" for i in reversed(calls)}

    monkeypatch.setattr(attributions, "_question", question)
    monkeypatch.setattr(attributions, "_answered", answered)
    traces = [trace_of(), trace_of(), trace_of()]
    answers = attributions.attribute_each(traces, "m", [{}, {"query": 9}, {"query": 1}], variant="v", tokens=7, steps=3)
    assert (answers[0], str(answers[1]), answers[2]) == ("answer 0", "no such position", "answer 2")
    ((calls, tokens),) = seen
    assert (list(calls), tokens) == ([0, 2], 7)
    call = calls[2][1]
    assert (call.method, call.arguments) == (method, {"variant": "v", "steps": 3})
    assert calls[2][0] == (traces[2], "m", attributions.Aim(query=1))
    monkeypatch.setattr(attributions, "_read", lambda *given: given)
    assert attributions.attribute_each(traces[:1], "alti", [{"query": 2}], variant="w", head=1) == [
        (traces[0], "alti", {"query": 2}, "w", {"head": 1})
    ]
    with pytest.raises(ValueError, match="shorter"):
        attributions.attribute_each(traces, "m", [{}])


def test_batches_are_answered_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    @contextmanager
    def differentiable(models: Any) -> Any:
        opened.append(list(models))
        yield

    monkeypatch.setattr(attributions, "differentiable", differentiable)
    monkeypatch.setattr(attributions, "_batches", lambda questions, tokens: iter([[4, 7], [5]] if tokens == 11 else []))
    left: list[Any] = []

    def answers(call: Any, questions: Any) -> list[str]:
        left.append(sorted(calls))
        return [f"{call} of {question.name}" for question in questions]

    monkeypatch.setattr(attributions, "_answers", answers)
    calls = {i: (SimpleNamespace(model=f"m{i}", name=f"q{i}"), f"call {i}") for i in (4, 5, 7)}
    made = attributions._answered(calls, 11)
    assert made == {4: "call 4 of q4", 7: "call 4 of q7", 5: "call 5 of q5"}
    assert (opened, left) == ([["m4", "m5", "m7"]], [[5], []])


def test_a_question_as_the_user_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    method = SimpleNamespace(id="m", layers=True, needs_target=True, score="logit")
    monkeypatch.setattr(attributions, "known", lambda: {"m": method, "n": method})
    monkeypatch.setattr(attributions, "known_maps", lambda: {"alti": None})
    first, after, seen = trace_of(), trace_of(4), list[Any]()
    monkeypatch.setattr(attributions, "followed", lambda trace, target: after)
    monkeypatch.setattr(attributions, "usual_score", lambda model, target, score: f"usual {target} {score}")

    def resolve(trace: Any, target: Any, **options: Any) -> Any:
        seen.append((trace, target, options))
        return SimpleNamespace(positions=(2, 1))

    monkeypatch.setattr(attributions, "resolve", resolve)
    made = attributions._question(first, "m", attributions.Aim(target=5, foil=6, label=7, layer=-1))
    assert (made.trace, made.layer, made.query, made.user_query) == (after, 2, 2, None)
    assert made._mix is attributions.mix
    assert seen == [(after, 5, {"foil": 6, "score": "usual 5 logit", "label": 7, "query": None})]
    made = attributions._question(first, "m", attributions.Aim(query=1, score="probability", layer=0))
    assert (made.trace, made.layer, made.query, made.user_query) == (first, 0, 2, 1)
    assert seen[1] == (first, "predicted", {"foil": None, "score": "probability", "label": None, "query": 1})
    method.needs_target = False
    made = attributions._question(first, "m", attributions.Aim(query="b"))
    assert (made.trace, made.layer, made.query, made.resolved) == (first, None, 1, None)
    assert refused(attributions._question, first, "m", attributions.Aim(foil=1)) == (
        "'m' explains a position, not a class or token: it takes query=, not target=, foil= or label=."
    )
    assert refused(attributions._question, first, "alto", attributions.Aim()).startswith("unknown method 'alto'. ")
    assert "alti" in refused(attributions._question, first, "alto", attributions.Aim())
    assert refused(attributions._question, first, "m", attributions.Aim(layer="x")) == "a layer is a number, not 'x'."
    assert refused(attributions._question, first, "m", attributions.Aim(layer=3)).startswith("layer 3 is out of range")


def test_the_position_that_is_explained() -> None:
    trace = SimpleNamespace(query=2, tokens=("a", "b", "c"))
    assert attributions._place(trace, None, None) == 2
    assert attributions._place(trace, SimpleNamespace(positions=(1, 0)), 0) == 1
    assert attributions._place(trace, SimpleNamespace(positions=()), "a") == 0


# --- how it is answered ---------------------------------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, room = list[list[int]](), 2
    monkeypatch.setattr(
        attributions, "share_passes", lambda questions: shared.append([one.number for one in questions])
    )

    def answer(call: Any, question: Any) -> str:
        if len(shared[-1]) > room:
            raise torch.OutOfMemoryError("out of memory")
        return f"{call} {question.number}"

    monkeypatch.setattr(attributions, "_answer", answer)
    model = SimpleNamespace(device=torch.device("cpu"))
    questions = [SimpleNamespace(number=i, model=model, trace=[0] * 5) for i in range(5)]
    assert attributions._answers("c", questions) == [f"c {i}" for i in range(5)]
    assert shared[:1] == [[0, 1, 2, 3, 4]]
    assert shared[1:7] == [[0], [1], [2], [3], [4], [0, 1]]
    assert shared[7:8] == [[2, 3, 4]]
    room = 0
    (told,) = attributions._answers("c", questions[:1])
    assert (type(told), str(told)) == (InputError, "memory runs out with 5 tokens")


def test_errors_of_one_question_and_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributions, "share_passes", lambda questions: None)
    errors: dict[int, Exception] = {0: InputError("not this one")}

    def answer(call: Any, question: Any) -> str:
        if question.number in errors:
            raise errors[question.number]
        return "made"

    monkeypatch.setattr(attributions, "_answer", answer)
    hf_model = nn.Linear(1, 1)
    model = SimpleNamespace(device=torch.device("cpu"), hf_model=hf_model, name="tiny")
    questions = [SimpleNamespace(number=i, model=model, trace=[0]) for i in range(2)]
    call = SimpleNamespace(method=SimpleNamespace(id="m"))
    assert [str(one) for one in attributions._answers(call, questions)] == ["not this one", "made"]
    errors[1] = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        attributions._answers(call, questions)
    with torch.inference_mode():
        hf_model.bias = nn.Parameter(torch.zeros(1))
    with pytest.raises(ModelError) as told:
        attributions._answers(call, questions)
    assert str(told.value) == (
        "the weights of 'tiny' were made under torch.inference_mode, so 'm' cannot take gradients through them. "
        "Load the model outside of it."
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_what_an_attribution_tells(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of(words=(("a", (0,)), ("bc", (1, 2))))
    monkeypatch.setattr(Trace, "prediction", lambda self: "yes")
    monkeypatch.setattr(attributions, "provenance", lambda given: {"model": given.model.name})
    monkeypatch.setattr(attributions, "notices_in", lambda given, query: {"notices": [query]})
    through: list[Any] = []

    def through_quantized(*given: Any) -> Any:
        through.append(given)
        return nullcontext()

    monkeypatch.setattr(attributions, "through_quantized", through_quantized)
    scores = torch.tensor([1.0, -2.0, 0.5], dtype=dtype, requires_grad=True)
    asked: list[Any] = []

    def function(question: Any, **arguments: Any) -> Any:
        asked.append((question, arguments))
        return (scores, {"steps": 3, "method": "own"}) if "variant" in arguments else scores

    method = SimpleNamespace(id="m", function=function, paper="P", variants=("paper", "released"))
    target = SimpleNamespace(name="yes", score="logit")
    question = SimpleNamespace(trace=trace, resolved=target, query=1, layer=2, user_query="b")
    made = attributions._answer(attributions.Call(method, {"variant": "released", "steps": 3}), question)
    assert asked == [(question, {"variant": "released", "steps": 3})]
    assert through == [(trace.model, "m")]
    assert (made.scores.dtype, made.scores.requires_grad) == (torch.float32 if dtype == torch.float16 else dtype, False)
    assert (made.scores.tolist(), made.tokens, made.method) == ([1.0, -2.0, 0.5], ("a", "b", "c"), "m")
    assert (made.special, made.words) == (trace.special, trace.words)
    info = {
        **{
            "model": "tiny",
            "method": "own",
            "paper": "P",
            "variant": "released",
            "options": {"steps": 3},
            "target": "yes",
        },
        **{
            "score": "logit",
            "query": 1,
            "query_token": "b",
            "at_layer": 2,
            "prediction": "yes",
            "notices": ["b"],
            "steps": 3,
        },
    }
    assert made.info == info
    question.resolved = None
    plain = attributions._answer(attributions.Call(method, {"k": 1}), question).info
    del info["steps"]
    assert plain == {**info, "method": "m", "variant": "paper", "options": {"k": 1}, "target": None, "score": None}


# --- rows of maps, and texts ----------------------------------------------------------------------------------------------


def test_the_row_of_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, seen = trace_of(), list[Any]()
    monkeypatch.setattr(Trace, "query", 1)
    scores = Map(torch.ones(2, 3, 3), trace.tokens, "alti", {"options": {"head": 1}}, trace.special, trace.words)
    monkeypatch.setattr(Trace, "prediction", lambda self: "yes")
    monkeypatch.setattr(attributions, "notices_in", lambda given, query: {"notices": [query]})
    monkeypatch.setattr(attributions, "refuse_all_heads", lambda *given: seen.append(given))

    def rolled_row(*given: Any, **options: Any) -> Any:
        seen.append((*given, options))
        return SimpleNamespace(
            scores=torch.zeros(3), tokens=("x",) * 3, info={"rollout": 1}, special=(False,) * 3, words=None
        )

    def mix(*given: Any, **options: Any) -> Any:
        seen.append((given, options))
        return scores

    monkeypatch.setattr(attributions, "rolled_row", rolled_row)
    monkeypatch.setattr(attributions, "mix", mix)
    made = attributions.row_of_map(trace, scores)
    assert seen[:1] == [("alti", {"head": 1})]
    assert seen[1][1:] == (1, {"layer": -1, "convention": None})
    assert made.info == {"rollout": 1, "prediction": "yes", "notices": [None]}
    assert (made.method, made.tokens, made.special, made.words) == ("alti", ("x",) * 3, (False,) * 3, None)
    seen.clear()
    made = attributions._read(trace, "alti", {"query": "c", "layer": 0}, "v", {"rollout": "abnar", "head": 2})
    assert seen[0] == ((trace, "alti"), {"variant": "v", "head": 2})
    assert seen[2][1:] == (2, {"layer": 0, "convention": "abnar"})
    assert made.info["notices"] == ["c"]
    told = attributions._read(trace, "alti", {"layer": "x"}, None, {})
    assert (type(told), str(told)) == (InputError, "a layer is a number, not 'x'.")


def test_a_text_or_a_trace_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    own = trace_of()
    own.model.trace = lambda text: {"a text": own}[text]
    seen: list[Any] = []

    def attribute(trace: Any, name: str, options: Any) -> Attribution:
        seen.append((trace, name, options))
        return result_of(trace)

    monkeypatch.setattr(attributions, "_attribute", attribute)
    assert len(attributions.explain(own.model, "a text", "m", keep_special=True, k=1).tokens) == 3
    assert len(attributions.explain(own.model, own, "m", keep_special=False).tokens) == 2
    assert seen == [(own, "m", {"k": 1}), (own, "m", {})]
    other = trace_of(name="other")
    assert refused(attributions.explain, own.model, other, "m", keep_special=True) == (
        "this trace is of 'other', not of 'tiny'. Trace the text with the model explained."
    )


# --- elsewhere ------------------------------------------------------------------------------------------------------------


def test_the_largest_move_of_a_score_counts_up_and_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of [layer query key]: the largest of all layers, whether a share went up or down."""
    exact = torch.tensor([[[1.0, 3.0], [2.0, 2.0]], [[1.0, 1.0], [4.0, 0.0]]])
    call = scoring.Call("alti", None, None, "tf32", {})
    scorer = scoring.Scorer(call, 1, ("a", "b"), SimpleNamespace(device=torch.device("cpu"), kept=SimpleNamespace()))  # type: ignore[arg-type]
    scorer.by_layer = {"alti": SimpleNamespace(function=lambda block, **options: exact)}  # type: ignore[dict-item]
    monkeypatch.setattr(scoring.fast, "block_of", lambda layers: SimpleNamespace())
    block: Any = SimpleNamespace(layer="one")
    moved = exact.clone()
    assert scorer._precision_error("alti", block, moved) == 0.0
    moved[1, 1] = torch.tensor([3.0, -1.0])  # shares 0.75 and -0.25: both went down by 0.25
    assert scorer._precision_error("alti", block, moved) == 0.25
    moved[0, 0] = torch.tensor([3.0, 1.0])
    assert scorer._precision_error("alti", block, moved) == 0.5


def test_cues_among_scores_that_speak_for_the_target() -> None:
    scores, cues = [-4.0, 3.0, 1.0], [0, 0, 1]
    assert (cue_dot(scores, cues), cue_dot(scores, cues, signs="positive")) == (0.125, 0.25)
    assert cue_average_precision(scores, cues) == pytest.approx(1 / 3)
    assert cue_average_precision(scores, cues, signs="positive") == pytest.approx(1 / 2)
    assert (probes_needed(scores, cues), probes_needed(scores, cues, signs="positive")) == (2.0, 1.0)
