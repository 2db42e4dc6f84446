"""Targets, texts with parts taken away, and games over their units, for a model made by hand: its logits are sums of numbers of
its tokens, so that every value is known."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.base.errors import InputError
from mixlens.methods import (
    _baselines,
    _coalitions,
    _points,
    blank_out,
    context_cite,
    lime,
    sequential,
    shap,
    smooth_grad,
)
from mixlens.scoring import removal, targets
from mixlens.scoring.questions import Question
from mixlens.scoring.removal import Answer, Infill, Subsets
from mixlens.scoring.targets import Target
from mixlens.types import Trace

WEIGHTS = {1: 0.0, 2: 0.5, 3: -1.0, 4: 2.0, 5: 0.25, 6: 0.0, 0: 0.0, 9: 4.0}


class Model:
    """A classifier of two classes, or a masked language model of ten tokens, that adds numbers of its tokens up."""

    def __init__(
        self, task: str = "classification", *, mask: int | None = 6, name: str = "tiny", limit: int | None = None
    ):
        self.task, self.name, self.batch_limit, self.dtype = task, name, limit, torch.float32
        config = SimpleNamespace(pad_token_id=0, num_labels=2, vocab_size=10, id2label={0: "Bad", 1: "Good"})
        config.get_text_config = lambda: config
        self.hf_model = SimpleNamespace(config=config)
        self.device = torch.device("cpu")
        self.vocabulary = {"a": 2}
        self.tokenizer = SimpleNamespace(
            mask_token_id=mask,
            unk_token_id=None,
            all_special_ids=[1, 6],
            mask_token="<m>",
            get_vocab=lambda: self.vocabulary,
        )
        self.rows: list[list[int]] = []
        self.passes: list[int] = []
        self.compared: list[bool] = []

    def outputs(self, rows: Any, *, compare: bool = True) -> Any:
        self.compared.append(compare)
        self.rows += [list(row.input_ids) for row in rows]
        self.passes.append(len(rows))
        sums = torch.tensor([sum(WEIGHTS[one] for one in row.input_ids) for row in rows], dtype=torch.float64)
        if self.task == "classification":
            return SimpleNamespace(logits=torch.stack([torch.zeros_like(sums), sums], 1))
        longest = max(len(row.input_ids) for row in rows)
        logits = torch.arange(10.0, dtype=torch.float64).expand(len(rows), longest, 10) * 0.1
        if self.task == "question-answering":
            return SimpleNamespace(
                logits=None, start_logits=logits[:, :, 1] + sums[:, None], end_logits=logits[:, :, 2]
            )
        return SimpleNamespace(logits=logits + torch.arange(longest)[None, :, None] + sums[:, None, None])

    def tokens(self, ids: Any) -> list[str]:
        return [f"t{one}" for one in ids]


def trace_of(model: Any = None, **changes: Any) -> Trace:
    given: dict[str, Any] = {
        "model": model or Model(),
        "tokens": ("[CLS]", "a", "##b", ".", "c", "[SEP]"),
        "input_ids": (1, 2, 3, 4, 5, 1),
        "layers": (),
        "special": (True, False, False, False, False, True),
        "attention_mask": (1, 1, 1, 1, 1, 1),
        "words": (("[CLS]", (0,)), ("ab", (1, 2)), (".", (3,)), ("c", (4,)), ("[SEP]", (5,))),
        "logits": torch.tensor([0.0, 1.75]),
    }
    return Trace(**{**given, **changes})


def target_of(score: str = "logit", **changes: Any) -> Target:
    return Target(
        **{
            "task": "classification",
            "positions": (),
            "ids": (1,),
            "foil": None,
            "score": score,
            "name": "Good",
            **changes,
        }
    )


def refused(call: Any, *given: Any, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        call(*given, **options)
    return str(error.value)


# --- targets --------------------------------------------------------------------------------------------------------------


def test_the_number_of_a_target() -> None:
    logits = torch.tensor([[1.0, 3.0, 0.0], [0.5, 0.25, 2.0]], dtype=torch.float64)
    shares = logits.softmax(-1)
    output = SimpleNamespace(logits=logits)
    assert target_of().of(output).tolist() == [3.0, 0.25]
    assert target_of(foil=2).of(output).tolist() == [3.0, -1.75]
    assert target_of("probability").of(output).tolist() == pytest.approx(shares[:, 1].tolist())
    assert target_of("log_probability").of(output).tolist() == pytest.approx(shares[:, 1].log().tolist())
    among = (shares[:, 1] / (shares[:, 1] + shares[:, 0])).tolist()
    assert target_of("probability", foil=0).of(output).tolist() == pytest.approx(among)
    words = SimpleNamespace(logits=logits[None])  # [batch position vocabulary]
    several = target_of("logit", task="masked-lm", positions=(0, 1), ids=(1, 2))
    assert several.of(words).tolist() == [5.0]
    both = target_of("probability", task="masked-lm", positions=(0, 1), ids=(1, 2)).of(words).tolist()
    assert both == pytest.approx([float(shares[0, 1] * shares[1, 2])])
    span = target_of("logit", task="question-answering", positions=(0, 2), ids=(0, 2))
    assert span.of(SimpleNamespace(start_logits=logits, end_logits=logits + 10)).tolist() == [11.0, 12.5]


def test_targets_that_are_meant() -> None:
    trace = trace_of()
    assert targets.resolve(trace) == target_of()
    assert targets.resolve(trace, None, score="probability") == target_of("probability")
    assert targets.resolve(trace, "bad") == target_of(ids=(0,), name="Bad")
    assert targets.resolve(trace, "gold", label="GOOD") == target_of()
    assert targets.resolve(trace, ("good", 0)) == target_of(foil=0, name="Good - Bad")
    assert targets.resolve(trace, 1, foil="bad") == target_of(foil=0, name="Good - Bad")
    assert refused(targets.resolve, trace, "gold") == "target='gold' needs the gold label: label=..."
    assert refused(targets.resolve, trace, 1, foil=1) == "target and foil are the same (Good)."
    assert refused(targets.resolve, trace, (1, 0, 1)) == "a target and its foil are two, not 3."
    assert (
        refused(targets.resolve, trace, (1, 0), foil=0)
        == "give the foil once: target=(target, foil), or target= and foil=."
    )
    for wrong in (2, -1):
        assert (
            refused(targets.resolve, trace, wrong) == f"target {wrong} is out of range: 'tiny' has 2 outputs, 0 to 1."
        )
    assert refused(targets.resolve, trace, 1, foil=2) == "foil 2 is out of range: 'tiny' has 2 outputs, 0 to 1."
    assert refused(targets.resolve, trace, 1.5) == "a target is a class, a token or an id, not 1.5."
    assert refused(targets.resolve, trace, "\ud800").startswith("the target holds half a character")
    assert refused(targets.resolve, trace, "goood").startswith("'tiny' has no class 'goood'. ")
    assert refused(targets.resolve, trace, score="logits").startswith("unknown score 'logits'. ")
    assert refused(targets.resolve, trace, score=3).startswith("unknown score 3. ")
    assert refused(targets.resolve, trace_of(Model("base"))).startswith("'tiny' was loaded without a head")


def test_spans_that_are_meant() -> None:
    trace = trace_of(Model("question-answering"), logits=torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 3.0]]))

    def span(start: int, end: int) -> Target:
        return Target("question-answering", (start, end), (start, end), None, "logit", f"span {start} to {end}")

    assert targets.resolve(trace) == targets.resolve(trace, None) == span(1, 2)
    assert [targets.resolve(trace, pair) for pair in ((0, 5), (5, 0), (3, 3))] == [span(0, 5), span(5, 0), span(3, 3)]
    for wrong in ((0, 6), (6, 0), (-1, 2), (2, -1)):
        assert refused(targets.resolve, trace, wrong) == f"span {wrong} is out of range: there are 6 tokens, 0 to 5."
    for other in ((1,), (1, 2, 3), 3, "word", (1, "x")):
        assert refused(targets.resolve, trace, other) == (
            f"a question-answering model explains a span: target=(start, end) as token positions, not {other!r}."
        )
    assert refused(targets.resolve, trace, (0, 1), foil=1) == "a span has no foil. Give target=(start, end)."


def test_one_end_of_a_span() -> None:
    logits = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 3.0]])
    trace = trace_of(Model("question-answering"), logits=logits)
    start, end = targets.resolve(trace, (2, None)), targets.resolve(trace, (None, 0), score="probability")
    assert start == Target("question-answering", (2,), (2,), None, "logit", "start 2", ("start_logits",))
    assert end == Target("question-answering", (0,), (0,), None, "probability", "end 0", ("end_logits",))
    output = SimpleNamespace(start_logits=logits[:, :1].mT, end_logits=logits[:, 1:].mT)
    assert start.of(output).tolist() == [1.0]
    assert end.of(output).tolist() == pytest.approx([float(logits[:, 1].softmax(0)[0])], rel=1e-5)  # float32
    assert targets.resolve(trace, (2, 0)).of(output).tolist() == [2.0]
    assert refused(targets.resolve, trace, (None, 6)) == "span (None, 6) is out of range: there are 6 tokens, 0 to 5."
    for other in ((None, None), (None, "x"), ("x", None)):
        assert refused(targets.resolve, trace, other).endswith(
            f"target=(start, end) as token positions, not {other!r}."
        )


def test_where_logits_are_read() -> None:
    rows = torch.tensor([[1.0, 2.0], [4.0, 3.0]])
    trace = trace_of(logits=rows, predicts=(2, 4))
    assert targets.logits_at(trace, (4,)).tolist() == [4.0, 3.0]
    assert targets.logits_at(trace, ()) is rows
    trace.model.logits = lambda one: torch.full((6, 2), 7.0)  # type: ignore[method-assign, assignment]
    assert targets.logits_at(trace, (3,)).tolist() == [7.0, 7.0]


# --- texts with parts taken away --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "n", "passes"), [(None, 6, [64, 6]), (30, 6, [30, 30, 10]), (None, 200, [40, 30])])
def test_questions_about_many_texts(limit: int | None, n: int, passes: list[int]) -> None:
    model = Model(limit=limit)
    longer = trace_of(model) if n == 6 else trace_of(model, tokens=("a",) * n, input_ids=(2,) * n)
    question = Question(longer, target_of(), None, 0)
    rows = [{"input_ids": [2] * (1 + i % 2), "attention_mask": [1], "token_type_ids": None} for i in range(70)]
    assert question.values(rows).tolist() == [0.5, 1.0] * 35
    assert model.passes == [1, *passes]  # first the text itself, whose answer is compared with the trace
    question.about(target_of()).values(rows[:1])
    assert model.passes == [1, *passes, 1]  # not compared again


def test_numbers_of_changed_texts() -> None:
    model = Model()
    trace = trace_of(model, token_type_ids=(0, 0, 0, 1, 1, 1))
    assert removal.outcomes(trace, [[], [1], [2, 3]], target_of()).tolist() == [1.75, 1.25, 0.75]
    assert model.rows == [[1, 2, 3, 4, 5, 1], [1, 3, 4, 5, 1], [1, 2, 5, 1]]
    for way, put in (("mask", 6), ("pad", 0), (9, 9)):
        model.rows.clear()
        expected = 1.75 - 2.0 + WEIGHTS[put]
        assert removal.outcomes(trace, [[3]], target_of(), replacement=way).tolist() == [expected]
        assert model.rows == [[1, 2, 3, put, 5, 1]]
    row = removal._rows(trace, [[0, 4]], "delete")[0]
    assert row == {"input_ids": [2, 3, 4, 1], "attention_mask": [1] * 4, "token_type_ids": [0, 0, 1, 1]}
    assert removal._rows(trace_of(model), [[0]], 9)[0]["token_type_ids"] is None
    told = removal.answers(trace, [[3]], target_of())[0]
    assert told == Answer(-0.25, (0,), target_of(), (1, 2, 3, 5, 1))
    assert (told.is_target, removal.answers(trace, [[]], target_of())[0].is_target) == (False, True)


def test_replacements_that_are_refused() -> None:
    trace = trace_of(Model(mask=None))
    assert refused(removal.outcomes, trace, [[1]], target_of(), replacement="mask") == (
        "'tiny' has no mask token. Use replacement='delete' or the id of a token."
    )
    assert refused(removal.outcomes, trace, [[1]], target_of(), replacement="unk").startswith("'tiny' has no unk token")
    assert refused(removal.outcomes, trace, [[1]], target_of(), replacement="nothing").startswith(
        "unknown replacement 'nothing'"
    )
    for wrong in (10, -1):
        assert refused(removal.outcomes, trace, [[1]], target_of(), replacement=wrong) == (
            f"replacement {wrong} is no token of 'tiny': ids are 0 to 9."
        )


def test_a_position_moves_with_the_tokens_before_it() -> None:
    target = target_of("logit", task="masked-lm", positions=(2, 4), ids=(3, 5))
    trace = trace_of(Model("masked-lm"))
    moved = {
        gone: removal.answers(trace, [list(gone)], target)[0].target.positions
        for gone in ((), (0,), (1, 3), (4,), (2,), (5,))
    }
    assert moved == {(): (2, 4), (0,): (1, 3), (1, 3): (1, 2), (4,): (2, 3), (2,): (1, 3), (5,): (2, 4)}
    assert removal.answers(trace, [[0]], target)[0].target.ids == (3, 5)
    assert removal.answers(trace, [[0]], target, replacement=9)[0].target.positions == (2, 4)
    span = target_of("logit", task="question-answering", positions=(2, 4), ids=(2, 4))
    one = removal.answers(trace_of(Model("question-answering")), [[1]], span)[0]
    assert (one.target.positions, one.target.ids) == ((1, 3), (1, 3))
    first = target_of("logit", task="masked-lm", positions=(0,), ids=(3,))
    assert removal.answers(trace, [[0]], first)[0].target.positions == (0,)


def test_spans_of_texts_of_other_lengths() -> None:
    span = target_of("logit", task="question-answering", positions=(2, 4), ids=(2, 4))
    told = removal.answers(trace_of(Model("question-answering")), [[], [1], [1, 3]], span)
    assert [one.value for one in told] == pytest.approx([1.75 + 0.3, 1.25 + 0.3, -0.75 + 0.3])


def test_gaps_that_are_filled() -> None:
    model = Model("masked-lm")
    trace = trace_of(model, input_ids=(1, 2, 3, 9, 5, 1))
    assert removal.can_fill(model)  # type: ignore[arg-type]
    assert not removal.can_fill(Model())  # type: ignore[arg-type]
    assert not removal.can_fill(Model("masked-lm", mask=None))  # type: ignore[arg-type]
    rows = removal._rows(trace, [[1], [3, 4], []], "infill")
    assert model.rows == [[1, 6, 3, 9, 5, 1], [1, 2, 3, 6, 6, 1], [1, 2, 3, 9, 5, 1]]
    assert [row["input_ids"] for row in rows] == [[1, 9, 3, 9, 5, 1], [1, 2, 3, 8, 9, 1], [1, 2, 3, 9, 5, 1]]
    many = removal._rows(trace, [[1], [3]] * 33, "infill")
    assert [row["input_ids"] for row in many] == [[1, 9, 3, 9, 5, 1], [1, 2, 3, 8, 5, 1]] * 33
    assert model.passes[1:] == [64, 2]
    other = Model("masked-lm", name="other")
    assert removal._rows(trace, [[1]], Infill(other))[0]["input_ids"] == [1, 9, 3, 9, 5, 1]  # type: ignore[arg-type]
    other.vocabulary = {}
    assert refused(removal._rows, trace, [[1]], Infill(other)) == (  # type: ignore[arg-type]
        "'other' cannot fill gaps for 'tiny': their vocabularies differ."
    )
    assert refused(removal._rows, trace_of(), [[1]], "infill").startswith(
        "replacement='infill' needs a masked language model, and 'tiny' is none. Give Infill(model)"
    )


def test_random_subsets_and_log_odds() -> None:
    made = removal.random_subsets(trace_of(), target_of(), unit="word", count=3, seed=(4, 1), share=0.7)
    kept = np.random.default_rng([4, 1]).random((3, 3)) < 0.7
    assert made.kept.tolist() == kept.tolist()
    assert made.units == ((1, 2), (3,), (4,))
    sums = kept @ np.array([-0.5, 2.0, 0.25])
    assert made.log_odds.tolist() == pytest.approx(sums.tolist(), rel=1e-9)
    capped = removal.log_odds(np.array([-1e-12, math.log(0.25)]))
    assert capped.tolist() == pytest.approx([math.log((1 - 1e-7) / 1e-7), math.log(1 / 3)], rel=1e-6)


# --- games ----------------------------------------------------------------------------------------------------------------


def question_of(trace: Any) -> Any:
    """A question whose text is answered as its trace has it; `answers` counts how often it is asked."""
    answers: list[int] = []
    return SimpleNamespace(
        trace=trace, target=target_of(), model=trace.model, answers=answers, answer=lambda: answers.append(len(answers))
    )


def game_of(model: Any = None, unit: str = "word", replacement: Any = "delete", **changes: Any) -> _coalitions.Game:
    trace = trace_of(model, **changes)
    return _coalitions.game_of(question_of(trace), unit, replacement)


def test_a_game_and_its_values() -> None:
    game = game_of()
    assert (game.units, game.replacement, game.passes) == (((1, 2), (3,), (4,)), "delete", 0)
    kept = np.array([[True, False, True], [False, True, False], [True, False, True]])
    assert game.values(kept).tolist() == [-0.25, 2.0, -0.25]
    assert game.passes == 2
    assert (game.value(True), game.value(False)) == (1.75, 0.0)
    assert game.passes == 4
    game.value(True)
    assert game.question.model.passes == [2, 1, 1]  # type: ignore[attr-defined]
    assert game.question.answers == [0]  # type: ignore[attr-defined]
    scores = game.scores([3.0, 1.0, -2.0])
    assert (scores.tolist(), scores.dtype) == ([0.0, 1.5, 1.5, 1.0, -2.0, 0.0], torch.float32)
    assert game_of(replacement=None).replacement == "mask"
    assert game_of(Model(mask=None), replacement=None).replacement == "delete"
    assert game_of(replacement=9).replacement == 9


def test_units_as_a_text_for_shap() -> None:
    game = game_of(unit="token", tokens=("[CLS]", "Ġa", "##b", "▁", " c ", "[SEP]"))
    assert shap._written(game) == ("ab ? c", [(0, 1), (1, 2), (3, 4), (5, 6)])
    assert shap._written(game_of())[0] == "ab . c"
    assert shap._written(game_of(unit="token", words=None)) == ("a b . c", [(0, 1), (2, 3), (4, 5), (6, 7)])
    units = shap._Units(game_of())
    assert units("ab . c") == {"input_ids": [1, 2, 3], "offset_mapping": [(0, 2), (3, 4), (5, 6)]}
    assert units("") == {"input_ids": [], "offset_mapping": []}
    assert units.values([np.array([1, 0, 3]), np.array([0, 2, 0])]).tolist() == [-0.25, 2.0]
    shap._refuse_many("exact", 16)
    shap._refuse_many("partition", 17)
    assert refused(shap._refuse_many, "exact", 17) == (
        "exact values of 17 units take 2^17 texts; at most 16 units are taken. Use algorithm='partition', or unit='word' or "
        "'sentence'."
    )


class Explainers:
    """In the place of the library shap: writes down what it is given, and gives values made up by hand."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self.maskers = SimpleNamespace(Text=self.masker)

    def masker(self, text: Any, **options: Any) -> Any:
        self.given.append(options)
        return SimpleNamespace(text=text, clustering="tree")

    def explainer(self, name: str) -> Any:
        def of(values: Any, masker: Any) -> Any:
            def explained(texts: list[str], **options: Any) -> Any:
                self.given.append((name, masker.clustering, texts, values([[1, 0, 3]]).tolist(), options))
                return SimpleNamespace(values=[[-0.5, 2.0, 0.25]])

            return explained

        return of

    @property
    def PartitionExplainer(self) -> Any:  # noqa: N802 - shap's name
        return self.explainer("partition")

    @property
    def ExactExplainer(self) -> Any:  # noqa: N802 - shap's name
        return self.explainer("exact")


@pytest.mark.parametrize(
    ("algorithm", "evaluations", "asked", "clustering"),
    [("partition", 40, 40, "tree"), ("partition", 3, 3, "tree"), ("partition", 2, 3, "tree"), ("exact", 40, 8, None)],
)
def test_what_shap_is_asked_for(
    algorithm: str, evaluations: int, asked: int, clustering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Explainers()
    monkeypatch.setattr(shap, "_library", lambda: library)
    trace = trace_of()
    question = question_of(trace)
    scores, facts = shap.shap(question, algorithm=algorithm, unit="word", replacement="delete", evaluations=evaluations)
    assert library.given == [
        {"mask_token": 0, "output_type": "token_ids"},
        (algorithm, clustering, ["ab . c"], [-0.25], {"max_evals": asked, "batch_size": 64, "silent": True}),
    ]
    assert scores.tolist() == [0.0, -0.25, -0.25, 2.0, 0.25, 0.0]
    assert facts == {
        **{"replacement": "delete", "nothing_kept": 0.0, "passes": 3},
        "completeness": {"sum": 1.75, "expected": 1.75, "relative_gap": 0.0},
    }
    assert refused(shap.shap, question, algorithm="exakt").startswith("unknown algorithm 'exakt'. ")
    assert refused(shap.shap, question, evaluations=0) == "evaluations must be at least 1 and at most 1,000,000, not 0."
    alone = trace_of(special=(True, True, True, False, True, True))
    single = question_of(alone)
    made, told = shap.shap(single, algorithm=algorithm, evaluations=1, replacement="delete")
    assert (made.tolist(), told["passes"], told["nothing_kept"]) == ([0.0, 0.0, 0.0, 2.0, 0.0, 0.0], 2, -0.25)


def test_the_weights_of_lime_on_a_sum_are_near_its_terms() -> None:
    pytest.importorskip("lime")
    trace = trace_of()
    question = question_of(trace)
    scores, facts = lime.lime(question, unit="word", count=200)
    assert scores.tolist() == pytest.approx([0.0, -0.25, -0.25, 2.0, 0.25, 0.0], abs=0.25)  # ridge
    assert set(facts) == {"replacement", "fit", "intercept", "passes"}
    assert (facts["replacement"], facts["passes"]) == ("delete", 8)
    assert facts["fit"] > 0.97
    assert abs(facts["intercept"]) < 0.25
    again = lime.lime(question, unit="word", count=200)[0]
    assert torch.equal(again, scores)
    assert not torch.equal(lime.lime(question, unit="word", count=200, seed=1)[0], scores)
    assert not torch.equal(lime.lime(question, unit="word", count=200, kernel_width=10.0)[0], scores)
    assert lime._values(game_of(), ["0 - 2", "- 1 -"]).tolist() == [[-0.25], [2.0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count must be at least 1 and at most 1,000,000, not 0."),
        ({"count": 1_000_001}, "count must be at least 1 and at most 1,000,000, not 1000001."),
        ({"count": 1}, "count is a number of texts, at least 2, not 1."),
        ({"kernel_width": 0.0}, "kernel_width is a number above 0, such as 25, not 0.0."),
        ({"kernel_width": math.inf}, "kernel_width is a number above 0, such as 25, not inf."),
        ({"seed": -1}, "seed is a number from 0 to 4294967295, not -1."),
        ({"seed": 2**32}, "seed is a number from 0 to 4294967295, not 4294967296."),
    ],
)
def test_numbers_that_lime_refuses(options: dict[str, Any], message: str) -> None:
    assert refused(lime.lime, SimpleNamespace(), **options) == message


def test_limits_of_numbers() -> None:
    lime._refuse_numbers(2, 1e-9, 0)
    lime._refuse_numbers(2, 1e9, 2**32 - 1)
    _points.refuse_count(count=1, steps=1_000_000)
    _points.refuse_draws(0, 0, count=1)
    assert refused(_points.refuse_count, count=1, steps=0) == "steps must be at least 1 and at most 1,000,000, not 0."
    assert refused(_points.refuse_draws, 0.1, 0, count=0).startswith("count must be")
    for wrong in (-0.1, math.inf):
        assert refused(_points.refuse_draws, wrong, 0) == (
            f"noise is a share of the range of the embeddings, 0 or more, such as 0.15, not {wrong}."
        )
    assert refused(_points.refuse_draws, 0.1, -1) == "seed is a number, 0 or more, not -1."
    question: Any = SimpleNamespace(layer=2, trace=SimpleNamespace(layers=[1, 2]))
    assert refused(_points.refuse_last_layer, question, "such gradients") == (
        "such gradients need a layer behind them: layer must be less than the number of layers."
    )
    question.layer = 1
    _points.refuse_last_layer(question, "such gradients")
    context_cite._refuse_numbers(2, 0.0, 0)
    for given, told in (
        ((1, 0.0, 0), "count is a number of subsets, at least 2, not 1."),
        ((2, -0.1, 0), "penalty is that of LASSO, 0 or more, not -0.1."),
        ((2, math.inf, 0), "penalty is that of LASSO, 0 or more, not inf."),
        ((2, 0.1, -1), "seed is a number, 0 or more, not -1."),
    ):
        assert refused(context_cite._refuse_numbers, *given) == told


@pytest.mark.parametrize("option", ["steps", "chunk", "most_steps"])
def test_numbers_of_steps_that_are_refused(option: str) -> None:
    for wrong in (0, 1_000_001):
        told = refused(sequential.sequential_integrated_gradients, SimpleNamespace(), **{option: wrong})
        assert told == f"{option} must be at least 1 and at most 1,000,000, not {wrong}."


def test_how_many_points_a_pass_holds() -> None:
    def question(n: int, limit: int | None = None, device: str = "cpu") -> Any:
        return SimpleNamespace(model=SimpleNamespace(device=torch.device(device), batch_limit=limit), trace=[0] * n)

    assert _points.chunk_of(question(10), 16) == 16
    assert _points.chunk_of(question(1024), 16) == 4
    assert _points.chunk_of(question(5000), 16) == 1
    assert _points.chunk_of(question(1024, device="cuda"), 100) == 64
    assert _points.chunk_of(question(10, 3), 16) == 3
    types = {
        torch.float16: torch.float32,
        torch.bfloat16: torch.float32,
        torch.float32: torch.float32,
        torch.float64: torch.float64,
    }
    assert {one: _points.as_scores(torch.zeros(1), torch.zeros(1, dtype=one)).dtype for one in types} == types
    assert _points.wide_dtype(torch.zeros(1)) == torch.float64


def test_noise_is_a_share_of_the_range() -> None:
    x = torch.tensor([[[0.0, 4.0], [1.0, -1.0]]])
    chunks = list(smooth_grad.noisy(x, 0.5, 5, 2, np.random.default_rng(0)))
    assert [len(one) for one in chunks] == [2, 2, 1]
    generator = np.random.default_rng(0)
    expected = np.concatenate([generator.standard_normal((size, 2, 2)) for size in (2, 2, 1)])
    torch.testing.assert_close(torch.cat(chunks), (x.double() + 2.5 * torch.from_numpy(expected)).float())
    assert torch.equal(torch.cat(list(smooth_grad.noisy(x, 0.0, 3, 2, generator))), x.expand(3, 2, 2))


def test_sparse_weights_of_a_sum() -> None:
    pytest.importorskip("sklearn")
    kept = np.random.default_rng(0).random((40, 3)) < 0.5
    kept = np.concatenate([kept, np.ones((40, 1), dtype=bool)], 1)
    odds = kept @ np.array([1.0, -2.0, 0.0, 5.0]) + 3
    weights, fit = context_cite.sparse_weights(Subsets(((0,), (1,), (2,), (3,)), kept, odds), 1e-9)
    assert weights.tolist() == pytest.approx([1.0, -2.0, 0.0, 0.0], abs=1e-6)
    assert fit == pytest.approx(1.0)
    sparse, worse = context_cite.sparse_weights(Subsets(((0,), (1,), (2,), (3,)), kept, odds), 0.2)
    assert 0 < sparse[0] < 0.9
    assert -1.9 < sparse[1] < 0
    assert 0 < worse < 0.99
    none, nothing = context_cite.sparse_weights(Subsets(((0,), (1,)), kept[:, :2], np.ones(40)), 0.1)
    assert (none.tolist(), nothing) == ([0.0, 0.0], 0.0)


def test_ids_that_stand_for_nothing() -> None:
    question: Any = SimpleNamespace(model=Model())
    assert [_baselines.known_id(question, one) for one in (0, 9)] == [0, 9]
    for wrong in (-1, 10):
        assert (
            refused(_baselines.known_id, question, wrong) == f"id {wrong} is not in the vocabulary of 'tiny' (0 to 9)."
        )
    assert _baselines.tokens_of(question) == {"mask": 6, "pad": 0}
    question.model.tokenizer = None
    assert _baselines.tokens_of(question) == {"mask": None, "pad": 0}
    assert (
        refused(blank_out.blank_token, question, "mask")
        == "'tiny' has no mask token. Use replacement='delete', 'zero' or an id."
    )
    assert blank_out.blank_token(SimpleNamespace(model=Model()), "mask") == 6  # type: ignore[arg-type]
    assert blank_out.blank_token(question, 9) == 9
    for fine in ("mask", "unk", "delete", "zero", 3):
        blank_out.refuse_unknown(fine)
    for bad in ("nothing", True, None, 1.5):
        assert refused(blank_out.refuse_unknown, bad).startswith(f"unknown replacement {bad!r}. ")


def test_a_row_without_a_position() -> None:
    trace = trace_of(token_type_ids=(0, 0, 0, 1, 1, 1), attention_mask=(1, 1, 0, 1, 1, 1))
    assert blank_out.row_of(trace, (7, 8, 9, 5, 4, 3), 1) == {
        **{"input_ids": [7, 9, 5, 4, 3], "attention_mask": [1, 0, 1, 1, 1], "token_type_ids": [0, 0, 1, 1, 1]}
    }
    assert blank_out.row_of(trace_of(), (1, 2, 3, 4, 5, 6))["token_type_ids"] is None
    assert len(blank_out.row_of(trace, (7, 8, 9, 5, 4, 3))["input_ids"]) == 6
