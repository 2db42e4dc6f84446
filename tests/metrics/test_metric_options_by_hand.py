"""Metrics on stand-ins: every option is handed on to where it counts, and the numbers are those worked out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.base.errors import InputError
from mixlens.metrics import alignment, faithfulness, removal_curves, subsets
from mixlens.metrics.faithfulness import Course, Degradation
from mixlens.metrics.registry import METRICS, Metric, metric
from mixlens.runs.experiments.claims import Claim
from mixlens.runs.judge import judging
from mixlens.runs.judge.sanity import _same_prediction

QUESTION: dict[str, Any] = {"target": "t", "foil": "f", "label": "l", "ranking": "magnitude", "unit": "word"}


@dataclass(frozen=True)
class Steps(Course):
    """A text of which every unit that goes takes a tenth of the probability, the last one three; it keeps what it was asked."""

    asked: Any = None

    def logs(self, removals: Any, replacement: Any) -> Any:
        self.asked.append((list(map(tuple, removals)), replacement))
        left = [1.0 - sum(0.3 if unit == self.order[-1] else 0.1 for unit in gone) for gone in ((), *removals)]
        return np.log(left)


def steps(monkeypatch: pytest.MonkeyPatch, module: Any, count: int = 4) -> tuple[list[Any], list[Any]]:
    """`course_of` of a module gives `Steps`; the lists hold what it was given, and what was removed."""
    given: list[Any] = []
    asked: list[Any] = []

    def course_of(trace: Any, scores: Any, **options: Any) -> Steps:
        given.append((trace, scores, options))
        return Steps(trace, TARGET, tuple((place,) for place in range(count)), asked)

    monkeypatch.setattr(module, "course_of", course_of)
    return given, asked


REQUEST: Any = "request"
TARGET: Any = None
DEGRADED: Any = Degradation
TRACE: Any = range(4)  # a trace has a length; the stand-ins ask for no more


# --- cues ---------------------------------------------------------------------------------------------------------------


def test_signs_decide_what_is_a_search_for_cues() -> None:
    scores, cues = [-4.0, 1.0, 3.0], [1, 0, 0]
    assert alignment.shares(scores) == pytest.approx([0.5, 0.125, 0.375])
    assert alignment.shares(scores, signs="positive") == pytest.approx([0.0, 0.25, 0.75])
    assert [alignment.cue_dot(scores, cues, signs=signs) for signs in ("absolute", "positive")] == [0.5, 0.0]
    precise = [alignment.cue_average_precision(scores, cues, signs=signs) for signs in ("absolute", "positive")]
    assert precise == pytest.approx([1.0, 1 / 3])
    assert [alignment.probes_needed(scores, cues, signs=signs) for signs in ("absolute", "positive")] == [0, 2]
    assert math.isnan(alignment.cue_average_precision([-1.0, -2.0], [1, 0], signs="positive"))
    assert math.isnan(alignment.probes_needed([-1.0, -2.0], [1, 0], signs="positive"))
    for measure in (alignment.cue_dot, alignment.cue_average_precision, alignment.probes_needed):
        with pytest.raises(InputError, match="unknown signs 'positiv'"):
            measure(scores, cues, signs="positiv")


def test_the_alignment_of_every_layer_takes_the_options_of_its_measure() -> None:
    rows = {0: [1.0, 2.0, -3.0], 1: [3.0, 2.0, 1.0]}
    asked: list[Any] = []

    def readout(query: Any, *, layer: int) -> list[float]:
        asked.append((query, layer))
        return rows[layer]

    scores: Any = SimpleNamespace(scores=[None, None], readout=readout)
    dots = alignment.layer_alignment(scores, [0, 0, 1], query="[MASK]")
    assert dots == pytest.approx((0.5, 1 / 6))
    assert asked == [("[MASK]", 0), ("[MASK]", 1)]
    assert alignment.layer_alignment(scores, [0, 0, 1], query=1, signs="positive") == pytest.approx((0.0, 1 / 6))
    options: dict[str, Any] = {"measure": "probes_needed", "until": "all"}
    assert alignment.layer_alignment(scores, [1, 0, 1], query=1, **options) == (1, 1)
    precise = alignment.layer_alignment(scores, [0, 1, 1], query=1, measure="cue_average_precision")
    assert precise == pytest.approx((1.0, (1 / 2 + 2 / 3) / 2))


# --- taking tokens away -------------------------------------------------------------------------------------------------


def test_drops_of_eraser_keep_or_remove_the_first_units(monkeypatch: pytest.MonkeyPatch) -> None:
    given, asked = steps(monkeypatch, faithfulness)
    removed = faithfulness.comprehensiveness(TRACE, [1], percents=(1, 50), replacement="mask", **QUESTION)
    kept = faithfulness.sufficiency(TRACE, [2], percents=(1, 50), replacement="pad", variant="released", **QUESTION)
    assert given == [(TRACE, [1], QUESTION), (TRACE, [2], QUESTION)]
    units = [(0,), (1,), (2,), (3,)]
    assert asked == [
        ([(), tuple(units[:1]), tuple(units[:2])], "mask"),
        ([tuple(units[1:]), tuple(units[2:])], "pad"),
    ]
    assert removed == DEGRADED(
        *(pytest.approx(0.1), 1.0, (0, 1, 2), pytest.approx((1.0, 0.9, 0.8)), pytest.approx((0.0, 0.1, 0.2))),
    )
    assert kept == DEGRADED(pytest.approx(0.45), 1.0, (3, 2), pytest.approx((0.5, 0.6)), pytest.approx((0.5, 0.4)))
    assert faithfulness.comprehensiveness(TRACE, [1]).removed == (0, 1, 1, 1, 1, 2)
    assert faithfulness.sufficiency(TRACE, [1]).removed == (4, 3, 3, 3, 3, 2)
    usual = {"target": "predicted", "foil": None, "label": None, "ranking": "signed", "unit": "token"}
    assert given[2:] == [(TRACE, [1], usual)] * 2
    assert [replacement for _, replacement in asked[2:]] == ["delete", "delete"]


def test_drops_of_attcat(monkeypatch: pytest.MonkeyPatch) -> None:
    given, asked = steps(monkeypatch, faithfulness)
    fall = faithfulness.aopc(TRACE, [1], percents=(0, 50, 100), replacement="mask", **QUESTION)
    odds = faithfulness.lodds(TRACE, [1], percents=(50, 100), **QUESTION)
    assert given == [(TRACE, [1], QUESTION)] * 2
    assert [replacement for _, replacement in asked] == ["mask", "pad"]
    assert (fall.removed, fall.whole) == ((0, 2, 4), 1.0)
    assert fall.left == pytest.approx((1.0, 0.8, 0.4))
    assert fall.points == pytest.approx((0.0, 0.2, 0.6))
    assert fall.value == pytest.approx(0.8 / 3)
    assert odds.points == pytest.approx((math.log(0.8), math.log(0.4)))
    assert odds.value == pytest.approx((math.log(0.8) + math.log(0.4)) / 2)


@dataclass(frozen=True)
class Tokens:
    """As much of a trace as the order of the notebooks reads."""

    special: tuple[bool, ...]
    token_type_ids: Any

    def __len__(self) -> int:
        return len(self.special)


def test_the_order_of_the_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No segments, the gold label, the last of all tokens never, special tokens left out."""
    asked: list[Any] = []
    monkeypatch.setattr(
        faithfulness, "resolve", lambda trace, *given, **options: asked.append((given, options)) or "resolved"
    )
    trace: Any = Tokens((True, False, False, False, False), "segments")
    course = faithfulness._attcat(trace, [5.0, 1.0, 4.0, -2.0, 3.0], "released", label="good")
    assert course.trace.token_type_ids is None
    assert course.trace.special == trace.special
    assert course.order == ((2,), (4,), (1,))
    assert course.target == "resolved"
    assert asked == [(("gold",), {"score": "log_probability", "label": "good"})]
    with pytest.raises(InputError) as refusal:
        faithfulness._attcat(trace, [0.0] * 5, "released", label=None)
    assert str(refusal.value) == "variant='released' explains the gold label: give label=."
    assert faithfulness._released_counts(9) == []
    assert faithfulness._released_counts(10) == [1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_units_go_in_the_order_of_their_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(faithfulness, "resolve", lambda *given, **options: asked.append((given, options)) or "target")
    monkeypatch.setattr(faithfulness, "removable_units", lambda *given: asked.append(given) or [(0,), (1, 2), (3,)])
    trace: Any = Tokens((False,) * 4, None)
    course = faithfulness.course_of(trace, [1.0, 2.0, -9.0, 1.0], **QUESTION)
    assert course.order == ((1, 2), (0,), (3,))  # by magnitude; tied ones as in the text
    assert (course.trace, course.target) == (trace, "target")
    assert asked == [
        ((trace, "t"), {"foil": "f", "score": "log_probability", "label": "l"}),
        (trace, "target", "word"),
    ]
    assert faithfulness.course_of(trace, [1.0, 2.0, -9.0, 1.0]).order == ((0,), (3,), (1, 2))
    with pytest.raises(InputError) as refusal:
        faithfulness.course_of(trace, [1.0] * 3)
    assert str(refusal.value) == "scores are for 3 tokens, the trace has 4. Special tokens must have scores too."


def test_blanking_is_asked_with_the_options_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        faithfulness, "attribute", lambda *given, **options: asked.append((given, options)) or [0.0, 3.0, 2.0, -4.0]
    )
    monkeypatch.setattr(faithfulness, "resolve", lambda *given, **options: asked.append((given, options)) or "target")
    monkeypatch.setattr(faithfulness, "staying", lambda *given: asked.append(given) or {0})
    trace: Any = Tokens((False,) * 4, None)
    question: dict[str, Any] = {"target": "t", "foil": "f", "query": 2}
    more: dict[str, Any] = {"replacement": "mask", "absolute": True}
    scores = [9.0, 1.0, 2.0, 3.0]
    whole = faithfulness.blank_out_faithfulness(trace, scores, **question, **more)
    part = faithfulness.blank_out_faithfulness(trace, scores, keep_special=False, ranking="magnitude", **question)
    assert whole == pytest.approx(-0.8)  # ranks 4 1 2 3 and 2 4 3 1
    assert part == pytest.approx(0.5)  # ranks 1 2 3 and 2 1 3
    assert asked == [
        ((trace, "blank_out"), {**more, **question}),
        ((trace, "blank_out"), {"replacement": "unk", "absolute": False, **question}),
        ((trace,), {"target": "t", "query": 2}),
        (trace, "target"),
    ]
    assert faithfulness.blank_out_faithfulness(
        trace, scores, blanked=[1.0, 2.0, 3.0, 4.0], how="kendall"
    ) == pytest.approx(0.0)
    assert len(asked) == 4


def test_insertion_keeps_the_first_units(monkeypatch: pytest.MonkeyPatch) -> None:
    given, asked = steps(monkeypatch, removal_curves)
    value = removal_curves.insertion(TRACE, [1], percents=(0, 50, 100), replacement="mask", **QUESTION)
    assert value == pytest.approx((0.4 + 0.6 + 1.0) / 3)
    assert given == [(TRACE, [1], QUESTION)]
    units = ((0,), (1,), (2,), (3,))
    assert asked == [([units, units[2:], ()], "mask")]


def test_aopc_between_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units cost 0.1, 0.1 and 0.3: the best order takes the third first, the worst last."""
    given, asked = steps(monkeypatch, removal_curves, 3)
    value = removal_curves.naopc(TRACE, [1], replacement="mask", beam=2, **QUESTION)
    lowest, highest = (0.1 + 0.2 + 0.5) / 3, (0.3 + 0.4 + 0.5) / 3
    assert value == pytest.approx(0.0, abs=1e-9)
    assert given == [(TRACE, [1], QUESTION)]
    assert {replacement for _, replacement in asked} == {"mask"}
    course = removal_curves.course_of(TRACE, [1])
    assert removal_curves.aopc_bounds(course) == pytest.approx((lowest, highest))
    assert removal_curves.naopc(TRACE, [1], bounds=(0.0, 1.0)) == pytest.approx(lowest)
    assert removal_curves.naopc(TRACE, [1], bounds=(0.5, 0.5)) == 0.0  # the order itself is the worst that is known
    assert math.isnan(removal_curves.naopc(TRACE, [1], bounds=(lowest, lowest + 1e-7)))  # nothing but rounding
    bounds: list[Any] = []
    monkeypatch.setattr(
        removal_curves, "aopc_bounds", lambda course, **options: bounds.append(options) or (0.0, lowest)
    )
    assert removal_curves.naopc(TRACE, [1], replacement="pad", beam=7) == pytest.approx(1.0)
    assert bounds == [{"replacement": "pad", "beam": 7}]


def test_subsets_are_drawn_with_the_options_or_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = np.array([[1, 0], [0, 1], [1, 1]])
    made: Any = SimpleNamespace(kept=kept, units=[(0, 1), (2,)], log_odds=np.array([1.0, 2.0, 3.0]))
    drawn: list[Any] = []
    monkeypatch.setattr(subsets, "removable_units", lambda *given: drawn.append(given) or [(0, 1), (2,)])
    monkeypatch.setattr(subsets, "halves", lambda *given: drawn.append(given) or kept)
    monkeypatch.setattr(subsets, "measured_subsets", lambda *given, **options: drawn.append((given, options)) or made)
    monkeypatch.setattr(subsets, "resolve", lambda *given, **options: drawn.append((given, options)) or "resolved")
    trace: Any = Tokens((False,) * 3, None)
    options: dict[str, Any] = {"count": 5, "unit": "sentence", "replacement": "mask", "seed": 3}
    assert subsets.lds(trace, [1.0, 1.0, 5.0], target="t", foil="f", **options) == pytest.approx(1.0)
    assert drawn == [
        ((trace, "t"), {"foil": "f", "score": "log_probability"}),
        (trace, "resolved", "sentence"),
        (2, 5, (3, 1)),
        ((trace, "resolved", [(0, 1), (2,)], kept), {"replacement": "mask"}),
    ]
    assert subsets.lds(trace, [5.0, 5.0, 1.0], subsets=made) == pytest.approx(0.5)
    assert len(drawn) == 4
    assert subsets.held_out_subsets(trace, count=2) is made
    with pytest.raises(InputError) as refusal:
        subsets.held_out_subsets(trace, count=1)
    assert str(refusal.value) == "count is a number of subsets, at least 2, not 1."


# --- what registers and judges --------------------------------------------------------------------------------------------


def test_a_metric_is_registered_with_all_that_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Metric] = []

    def register(entry: Any) -> Any:
        return lambda function: made.append(entry(function.__name__, function))

    monkeypatch.setattr(METRICS, "register", register)

    def some(scores: Any, cues: Any, *, signs: str = "absolute", variant: str = "paper", k: int = 3) -> float:
        return 0.0

    metric(paper="P", needs=["scores", "cues"], better="lower", variants=["paper", "released"], cost="n", kind="K")(
        some
    )
    metric(paper="P", needs=["scores"], better="higher")(some)
    assert made == [
        Metric("some", some, "P", ("paper", "released"), "n", ("scores", "cues"), "lower", "K"),
        Metric("some", some, "P", ("paper",), "0", ("scores",), "higher", "some"),
    ]
    assert made[0].options == {"signs": "absolute", "k": 3}
    with pytest.raises(AssertionError):
        metric(paper="P", needs=["scores"], better="best")
    with pytest.raises(AssertionError):
        metric(paper="P", needs=["scores", "tea"], better="lower")


def test_bounds_of_a_case_are_those_of_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no order that is measured on the text passes them: those of the methods and of the random draws."""
    given, asked = list[Any](), list[Any]()
    monkeypatch.setattr(
        judging, "course_of", lambda *one, **options: given.append((one, options)) or f"course {len(given)}"
    )
    monkeypatch.setattr(judging, "aopc_bounds", lambda course, **options: asked.append((course, options)) or (0.1, 0.9))
    options: dict[str, Any] = {"unit": "word", "replacement": "mask", "beam": 7, "ranking": "signed"}
    case: Any = SimpleNamespace(
        trace=TRACE,
        question={"target": "t", "foil": "f"},
        options=lambda request: dict(options),
        scores={"a": "A", "b": "B"},
        draws=lambda request: ["drawn"] if request is REQUEST else [],
    )
    assert judging._bounds(case, REQUEST) == {"bounds": (0.1, 0.9)}
    ((trace, zeros), asking) = given[0]
    assert trace is TRACE
    assert zeros.tolist() == [0.0] * 4
    assert asking == {"target": "t", "foil": "f", "unit": "word", "ranking": "signed"}
    assert [one for one, _ in given[1:]] == [(TRACE, "A"), (TRACE, "B"), (TRACE, "drawn")]
    assert all(more == asking for _, more in given)
    orders = ["course 2", "course 3", "course 4"]
    assert asked == [("course 1", {"replacement": "mask", "beam": 7, "orders": orders})]
    options.pop("beam")
    options.pop("replacement")
    judging._bounds(case, REQUEST)
    assert list(asked[1][1]) == ["orders"]


def test_a_claim_is_about_the_runs_that_it_names() -> None:
    def check(*given: Any) -> Any:
        return None

    claim = Claim("Table 1", "says", "1 > 2", check, {"SST-2": "Table 2", "IMDB": None}, {"layers": "all", "n": 3})

    def run_of(models: int = 1, **options: Any) -> Any:
        return SimpleNamespace(options=options, models=("m",) * models)

    assert claim.is_about(run_of(layers="all", n=3, seed=0))
    assert not claim.is_about(run_of(layers="all", n=4))
    assert not claim.is_about(run_of(layers="all"))
    assert Claim("Table 1", "says", "", check).is_about(run_of())
    two = Claim("Table 1", "says", "", check, models=2)
    assert [two.is_about(run_of(models)) for models in (1, 2, 3)] == [False, True, False]
    assert [claim.place(data) for data in ("SST-2", "IMDB", "other")] == ["Table 2", None, "Table 1"]
    assert [claim.numbers(data) for data in ("SST-2", "other")] == ["of other data: 1 > 2", "1 > 2"]


def test_a_prediction_is_the_same_by_its_name_alone() -> None:
    def trace(*predicted: tuple[str, float]) -> Any:
        return SimpleNamespace(prediction=lambda k: list(predicted)[:k])

    assert _same_prediction(trace(("a", 0.5)), trace(("a", 0.9)))
    assert not _same_prediction(trace(("a", 0.5)), trace(("b", 0.5)))
    assert _same_prediction(trace(), trace(("b", 0.5)))


def test_a_lead_is_over_the_foil_or_over_the_highest_other() -> None:
    logits = torch.tensor([[1.0, 4.0, 2.0], [5.0, 4.0, 9.0]])
    lead: Any = SimpleNamespace(foil=None)
    assert removal_curves.Lead._lead(lead, logits, 1).tolist() == [2.0, -5.0]
    lead.foil = 0
    assert removal_curves.Lead._lead(lead, logits, 1).tolist() == [3.0, -1.0]
    assert logits.tolist() == [[1.0, 4.0, 2.0], [5.0, 4.0, 9.0]]


def test_the_place_at_which_running_counts_reach_a_share() -> None:
    import numpy as np

    from mixlens.metrics.mixing_stats import _first_at

    assert [_first_at(np.array([0, 1, 3, 4]), share) for share in (0.1, 0.25, 0.5, 0.75, 1.0)] == [1, 1, 2, 2, 3]
    assert _first_at(np.array([0, 0, 0]), 0.5) == 2  # nothing was counted
