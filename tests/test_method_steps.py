"""How far a method is: it tells every step to whoever listens, and computes the same whether anybody does."""

from __future__ import annotations

import importlib
import threading
import time
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import mixlens
from mixlens.base import steps
from mixlens.cli import waiting
from mixlens.methods import _coalitions
from mixlens.scoring import questions, targets
from mixlens.serve import jobs
from mixlens.serve import questions as served
from mixlens.show import report

SENTENCE = "The keys to the cabinet [MASK] rusty."
REVIEW = "The plot was dull, but the acting was wonderful."


@cache
def loaded(name: str) -> Any:
    return mixlens.load(name)


def heard(method: str, text: str = SENTENCE, model: str = "agreement", **options: Any) -> tuple[list[steps.Step], Any]:
    found: list[steps.Step] = []
    trace = loaded(model).trace(text)
    with steps.listening(found.append):
        result = mixlens.attribute(trace, method, **options)
    return found, result


@pytest.mark.parametrize(
    ("method", "options", "noun", "count"),
    [
        ("integrated_gradients", {"steps": 20, "chunk": 8}, "points", 20),
        ("integrated_gradients", {}, "points", None),
        ("layer_conductance", {"chunk": 8}, "points", None),
        ("smooth_grad", {"count": 20, "chunk": 8}, "draws", 20),
        ("gradient_shap", {"count": 20, "chunk": 8}, "draws", 20),
        ("blank_out", {}, "texts", 10),
        ("blank_out", {"replacement": "delete"}, "texts", 10),
        ("blank_out", {"replacement": "zero"}, "texts", 10),
        ("sequential_integrated_gradients", {}, "tokens", 8),
        ("context_cite", {"count": 16}, "texts", 16),
    ],
)
def test_long_methods_tell_their_steps_and_their_numbers_stay(
    method: str, options: Any, noun: str, count: int | None
) -> None:
    if method == "context_cite":
        pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'mixlens[judge]'")
    found, result = heard(method, **options)
    assert {step.noun for step in found} == {noun}
    done = [step.done for step in found]
    assert done == sorted(set(done))  # every step once, forwards
    assert found[-1].done == found[-1].count == (count or found[-1].count)
    assert all(step.done <= step.count for step in found)
    alone = mixlens.attribute(loaded("agreement").trace(SENTENCE), method, **options)
    torch.testing.assert_close(result.scores, alone.scores, rtol=0, atol=0)


def test_a_method_that_searches_words_tells_the_search_too() -> None:
    found, _ = heard("discretized_integrated_gradients", factor=1, rule="trapezoid", steps=12)
    assert [step.text for step in found[:12]] == [f"{done} of 12 anchors" for done in range(1, 13)]
    assert {step.noun for step in found[12:]} == {"points"}
    assert found[-1].text == "27 of 27 points"
    shares = [step.share for step in found]
    assert shares == sorted(shares)  # a bar never goes back
    assert (shares[11], shares[-1]) == (0.5, 1.0)


def test_points_that_are_added_on_the_way_are_planned_then() -> None:
    found, result = heard("integrated_gradients", tolerance=1e-9, most_steps=400)
    assert result.info["steps"] > 50
    assert found[-1].done == result.info["steps"]
    planned = [step.count for step in found]
    assert planned == sorted(planned)
    assert planned[0] < planned[-1]


def test_texts_of_a_game_are_counted_over_all_calls() -> None:
    """Libraries ask for a few texts at a time."""
    trace = loaded("sentiment").trace(REVIEW)
    found: list[steps.Step] = []
    question = questions.Question(trace, targets.resolve(trace, 1), None, 0)
    game = _coalitions.game_of(question, "word", None, planned=12)
    rows = np.random.default_rng(0).random((12, len(game.units))) < 0.5
    with steps.listening(found.append):
        game.values(rows[:5])
        game.values(rows[5:])
    assert [step.done for step in found] == [5, 12]
    assert {step.count for step in found} == {12}


# --- listeners --------------------------------------------------------------------------------------------------------


def test_a_listener_hears_its_own_block_and_thread_alone() -> None:
    found: list[steps.Step] = []
    steps.tell(1, 2, "texts")  # nobody listens
    with steps.listening(found.append):
        steps.tell(1, 2, "texts")
        with steps.part_of(10, 20, "rows"):
            steps.tell(3, 4, "texts")
        thread = threading.Thread(target=steps.tell, args=(9, 9, "texts"))
        thread.start()
        thread.join()
    steps.tell(2, 2, "texts")
    assert found == [steps.Step(1, 2, "texts"), steps.Step(13, 20, "rows")]
    with steps.part_of(1, 2, "rows"):
        steps.tell(1, 1, "texts")  # nobody listens here either


def test_steps_in_words_and_shares() -> None:
    assert steps.Step(64, 500, "texts").text == "64 of 500 texts"
    assert steps.Step(1500, 2000, "points").text == "1,500 of 2,000 points"
    assert (steps.Step(64, 256, "texts").share, steps.Step(0, 0, "texts").share, steps.Step(9, 8, "texts").share) == (
        0.25,
        0.0,
        1.0,
    )
    assert steps.Step(9, 8, "texts").text == "9 of 9 texts"


def test_the_spinner_says_how_far_a_step_is() -> None:
    spinner = waiting.Spinner("computing", shown=False)
    with steps.listening(spinner.hear):
        steps.tell(3, 8, "texts")
        assert waiting.line_of("|", spinner._now, 0.0) == "| mixlens: computing, 3 of 8 texts"
    spinner.tell("AttCAT, method 2 of 5")
    assert spinner._now == "AttCAT, method 2 of 5"  # the next step begins anew


def test_gathered_results_tell_the_method_and_how_far_it_is() -> None:
    notes: list[tuple[str, float]] = []
    report.gather(
        loaded("agreement"),
        SENTENCE,
        ["integrated_gradients:steps=20:chunk=8", "alti"],
        note=lambda *one: notes.append(one),
    )
    assert ("integrated_gradients, 8 of 20 points", pytest.approx(8 / 20 / 2)) in notes
    shares = [share for _, share in notes]
    assert shares == sorted(shares)


def test_a_job_knows_how_far_its_step_is_and_stops_there() -> None:
    job = jobs.Job("x", loaded("agreement"), {})
    watch = jobs.Watch(job, 60.0)
    watch.hear(steps.Step(1, 2, "texts"))  # before the first step
    assert (job.within, job.share) == ("", 0.0)
    watch.plan(["Read", "Run", "AttCAT", "Draw"])
    for _ in range(3):
        watch.next()
    watch.hear(steps.Step(3, 4, "points"))
    assert (job.within, job.share, job.doing) == ("3 of 4 points", (2 + 0.75) / 4, "AttCAT")
    watch.next()
    assert (job.within, job.share) == ("", 0.75)
    job.stop = "cancelled."
    with pytest.raises(jobs.StoppedError, match="cancelled"):
        watch.hear(steps.Step(1, 4, "points"))


def test_the_served_answer_tells_steps_within_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, str, float]] = []
    hear = jobs.Watch.hear

    def recorded(self: jobs.Watch, step: steps.Step) -> None:
        hear(self, step)
        seen.append((self.job.begun, self.job.within, self.job.share))

    monkeypatch.setattr(jobs.Watch, "hear", recorded)
    model = loaded("sentiment")
    desk = jobs.Desk([model], jobs.Limits())
    try:
        asked = served.example_question(model, REVIEW, 12) | {
            "methods": ["integrated_gradients:steps=20:chunk=8", "blank_out"]
        }
        job = desk.submit("sentiment", asked, question="why")
        end = time.monotonic() + 60
        while job.ended is None and time.monotonic() < end:
            time.sleep(0.01)
        assert job.state == "done", job.error
    finally:
        desk.close()
    assert (3, "8 of 20 points", (2 + 0.4) / len(job.steps)) in seen
    assert {begun for begun, _, _ in seen} == {3, 4, 5}  # two methods, and the words that are taken out
    assert [share for *_, share in seen] == sorted(share for *_, share in seen)


def test_shap_names_its_preparation_and_can_be_stopped_right_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    job = jobs.Job("x", loaded("agreement"), {})
    watch, seen = jobs.Watch(job, 60.0), []
    watch.plan(["SHAP"])
    watch.next()

    def library() -> None:
        seen.append(job.within)
        job.stop = "cancelled."  # while the library is being imported

    monkeypatch.setattr(importlib.import_module("mixlens.methods.shap"), "_library", library)
    with pytest.raises(jobs.StoppedError, match="cancelled"), steps.listening(watch.hear):
        mixlens.attribute(loaded("agreement").trace(SENTENCE), "shap")
    assert seen == ["preparing shap"]
    assert job.share == 0
