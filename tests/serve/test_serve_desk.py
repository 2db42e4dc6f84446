"""The desk with models made up by hand: who waits, who is before whom, what is kept, stopped, timed and said of
failures."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi", reason="needs the extra `serve`")

import mixlens
from mixlens.base import errors
from mixlens.serve import jobs
from mixlens.show import report


class Tokenizer:
    """One token for each word, and one before them."""

    mask_token, mask_token_id = "[M]", 7


class Model:
    def __init__(self, name: str = "a", task: str = "masked-lm", max_tokens: int | None = 5):
        self.name, self.task, self.max_tokens = name, task, max_tokens
        self.tokenizer: Any = Tokenizer()

    def encode(self, text: Any) -> Any:
        words = (" ".join(text) if isinstance(text, tuple) else text).split()
        return SimpleNamespace(input_ids=[1, *(7 if word == "[M]" else 2 for word in words)])


class Held:
    """The work of the desk, held up until it is let go; it tells what it was given."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.seen: list[Any] = []

    def gather(self, model: Any, *, note: Any, **arguments: Any) -> Any:
        self.seen.append(("maps", model.name, arguments))
        self.begun.set()
        note("half", 0.5)
        assert self.go.wait(20)
        note("done", 1.0)
        return "results"

    def answered(self, model: Any, question: str, asked: Any, watch: Any) -> Any:
        self.seen.append((question, model.name, asked))
        watch.plan(["one", "two"])
        watch.next("more")
        self.begun.set()
        while not self.go.wait(0.005):
            if reason := watch.reason():
                raise jobs.StoppedError(reason)
        watch.know([("yes", 0.5)])
        return "an answer"


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    work = Held()
    monkeypatch.setattr(jobs, "gather", work.gather)
    monkeypatch.setattr(jobs, "answered", work.answered)
    monkeypatch.setattr(jobs, "entry", lambda results, room: {"of": results, "room": room})
    monkeypatch.setattr(jobs, "page_room", lambda: 400)
    return work


@pytest.fixture
def desk(held: Held) -> Iterator[jobs.Desk]:
    made = jobs.Desk([Model(), Model("b", "classification", None)], jobs.Limits(queue=2, kept=1, tokens=9))  # type: ignore[list-item]
    yield made
    held.go.set()
    made.close()
    assert not made._thread.is_alive()


def until(true: Callable[[], Any]) -> None:
    """Wait until it is true: 20 s end the wait."""
    for _ in range(10_000):
        if true():
            return
        time.sleep(0.002)
    raise TimeoutError("it did not become true")


# --- jobs one after the other -----------------------------------------------------------------------------------------


def test_a_job_from_the_queue_to_its_end(desk: jobs.Desk, held: Held) -> None:
    first = desk.submit("a", {"text": "x"}, ["a note"])
    assert held.begun.wait(20)
    assert (first.state, first.question, first.notes, first.error, first.ended, first.stop) == (
        "running",
        "maps",
        ("a note",),
        None,
        None,
        None,
    )
    assert (first.doing, first.share, first.entry, first.answer) == ("half", 0.5, None, None)
    assert 0 <= first.seconds < 20
    second, third = desk.submit("b", {"tokens": 4}, question="why"), desk.submit("b", {"tokens": 3}, (), "flow")
    assert (second.state, second.doing, second.share, second.steps, second.begun, second.known) == (
        "waiting",
        "waiting",
        0.0,
        [],
        0,
        [],
    )
    assert [desk.ahead(job) for job in (first, second, third)] == [1, 1, 2]
    assert [desk.behind(job) for job in (first, second, third)] == [2, 1, 0]
    assert desk.full()
    with pytest.raises(
        jobs.FullError, match=r"^the queue is full: 2 texts are waiting\. Try again in a few seconds\.$"
    ):
        desk.submit("a", {})
    assert [desk.job(job.id) for job in (first, second, third)] == [first, second, third]
    assert desk.job("none") is None
    desk.cancel(third)
    assert (third.state, third.error, third.stop) == ("cancelled", "cancelled before it began.", "cancelled.")
    assert not desk.full()
    assert desk.behind(second) == 0
    held.go.set()
    until(lambda: second.ended is not None)
    assert (first.state, first.doing, first.share, first.entry) == (
        "done",
        "done",
        1.0,
        {"of": "results", "room": 1_999_600},
    )
    assert (second.state, second.answer, second.entry, second.known) == ("done", "an answer", None, [("yes", 0.5)])
    assert (second.steps, second.begun, second.doing, second.share) == (["more", "two"], 1, "more", 0.0)
    assert held.seen == [("maps", "a", {"text": "x"}), ("why", "b", {"tokens": 4, "question": "why"})]
    until(lambda: [name for name, _ in desk.times] == ["b"])
    assert list(desk.times) == [("b", "why")]
    assert desk.times["b", "why"][1] == 4
    assert [desk.ahead(job) for job in (first, second)] == [0, 0]
    last = desk.submit("a", {"text": "y"})
    assert [desk.job(job.id) for job in (first, second, third, last)] == [
        None,
        None,
        third,
        last,
    ]  # the last that was taken in
    assert len({first.id, second.id, third.id, last.id}) == 4
    assert len(first.id) == 12


@pytest.mark.parametrize(("kept", "left"), [(1, "5"), (2, "45"), (4, "1345"), (5, "1345"), (9, "1345")])
def test_the_last_jobs_that_have_ended_are_kept(held: Held, kept: int, left: str) -> None:
    desk = jobs.Desk([Model()], jobs.Limits(kept=kept))  # type: ignore[list-item]
    for name in "12345":
        desk._jobs[name] = jobs.Job(name, None, {}, ended=None if name == "2" else 1.0)  # type: ignore[arg-type]
    desk._forget_old()
    assert "".join(desk._jobs).replace("2", "") == left
    assert "2" in desk._jobs
    desk.close()


def test_a_running_job_is_cancelled_at_its_next_step(desk: jobs.Desk, held: Held) -> None:
    job = desk.submit("a", {"tokens": 1}, question="why")
    assert held.begun.wait(20)
    desk.cancel(job)
    assert job.stop == "cancelled."
    until(lambda: job.ended is not None)
    assert (job.state, job.error, job.answer) == ("cancelled", "cancelled.", None)
    job.stop = "another"
    desk.cancel(job)
    assert job.stop == "another"


def test_examples_are_timed_while_nobody_waits_and_later_if_somebody_comes(desk: jobs.Desk, held: Held) -> None:
    desk.measure("b", {"tokens": 2}, "flow")
    assert held.begun.wait(20)
    trial = desk._trial
    assert trial is not None
    assert (trial.id, trial.question, trial.arguments, trial.state) == ("", "flow", {"tokens": 2}, "running")
    held.begun.clear()
    job = desk.submit("a", {"text": "x"})
    assert trial.stop == "a text came first."
    assert held.begun.wait(20)
    until(lambda: job.state == "running" and desk._trial is None)
    assert (trial.state, trial.error) == ("failed", "a text came first.")
    assert [(one.id, one.question, one.arguments) for one in desk._trials] == [("", "flow", {"tokens": 2})]
    assert [desk.job("")] == [None]
    held.go.set()
    until(lambda: [name for name, _ in desk.times] == ["b"])
    assert list(desk.times) == [("b", "flow")]
    until(lambda: desk._trial is None)
    assert not desk._trials


def test_a_desk_that_closes_stops_all(held: Held) -> None:
    desk = jobs.Desk([Model()], jobs.Limits())  # type: ignore[list-item]
    job = desk.submit("a", {"tokens": 1}, question="why")
    assert held.begun.wait(20)
    waiting = desk.submit("a", {"tokens": 1}, question="why")
    waiting.stop = "already."
    desk.close()
    assert (job.state, job.error, waiting.stop) == ("failed", "the server is closing.", "already.")
    assert not desk._thread.is_alive()
    assert (desk._thread.daemon, desk._thread.name) == (True, "mixlens-worker")


def test_a_trial_is_stopped_too_when_a_desk_closes(held: Held) -> None:
    desk = jobs.Desk([Model()], jobs.Limits())  # type: ignore[list-item]
    desk.measure("a", {"tokens": 2}, "why")
    assert held.begun.wait(20)
    trial = desk._trial
    desk.close()
    assert trial is not None
    assert (trial.stop, trial.error, list(desk._trials)) == ("the server is closing.", "the server is closing.", [])


# --- texts ------------------------------------------------------------------------------------------------------------


def test_how_long_a_text_may_be(desk: jobs.Desk, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [desk.tokens_at_most(model) for model in desk.models.values()] == [5, 9]
    assert desk.tokens_at_most(Model(max_tokens=20)) == 9  # type: ignore[arg-type]
    assert [desk.read("a", "w " * 4), desk.count("a", "w " * 40), desk.read("b", ("w", "w w"))] == [5, 41, 4]
    with pytest.raises(errors.InputError, match=r"^the text has 6 tokens, 'a' reads at most 5. Shorten or split it.$"):
        desk.read("a", "w " * 5)
    with pytest.raises(
        errors.InputError, match=r"^the text has 10 tokens, this page reads at most 9. Shorten or split it.$"
    ):
        desk.read("b", "w " * 9)

    def truncated(example: mixlens.Example, reader: Any, most: int) -> mixlens.Example:
        assert reader is desk._readers["a"]
        if example.text == "short":
            return example
        return mixlens.Example(example.text[:2], example.pair, info={"truncated": 12, "most": most})

    monkeypatch.setattr(jobs, "truncated", truncated)
    line = "The text has 12 tokens; the first 5 are explained, the rest was not read."
    assert desk.cut("a", "short") == ("short", None)
    assert desk.cut("a", "longer") == ("lo", line)
    assert desk.cut("a", ("longer", "pair")) == (("lo", "pair"), line)


def test_a_text_without_a_mask(desk: jobs.Desk, held: Held) -> None:
    line = "The text has no [M], so no word of it is predicted. Write [M] in place of a word to see what for."
    assert [desk.notes("a", "w"), desk.notes("a", "w [M]"), desk.notes("b", "w")] == [[line], [], []]
    desk.models["a"].tokenizer = SimpleNamespace()
    assert desk.notes("a", "w") == []


# --- models -----------------------------------------------------------------------------------------------------------


def test_a_model_without_a_tokenizer() -> None:
    model: Any = Model()
    model.tokenizer = None
    with pytest.raises(errors.InputError, match=r"^'a' has no tokenizer, so it cannot read what is typed.$"):
        jobs.Desk([model], jobs.Limits())


# --- what is followed, and stopped ------------------------------------------------------------------------------------


def job(**facts: Any) -> jobs.Job:
    return jobs.Job("id", None, {}, **facts)  # type: ignore[arg-type]


def test_seconds_are_those_of_waiting_and_then_of_running() -> None:
    now = time.monotonic()
    assert 5 <= job(created=now - 5).seconds < 15
    assert 3 <= job(created=now - 90, started=now - 3).seconds < 13
    assert job(created=1.0, started=4.0, ended=6.0).seconds == 2.0
    assert job(created=1.0, ended=6.0).seconds == 5.0
    one = job()
    one.finish("failed", "why")
    assert (one.state, one.error, one.ended is not None) == ("failed", "why", True)


def test_a_watch_says_when_it_is_enough() -> None:
    late = job(started=1.0, ended=3.0)
    assert jobs.Watch(late, 2.0).reason() is None
    reason = "stopped after 1.5 seconds, the most one text may take. Shorten it, or ask for less."
    assert jobs.Watch(late, 1.5).reason() == reason
    assert late.stop == reason
    stopped = job(started=1.0, ended=99.0, stop="cancelled.")
    assert jobs.Watch(stopped, 1.0).reason() == "cancelled."
    watch = jobs.Watch(stopped, 200.0)
    with pytest.raises(jobs.StoppedError, match=r"^cancelled.$"):
        watch.note("half", 0.999)
    assert (stopped.doing, stopped.share) == ("half", 0.999)
    watch.note("done", 1.0)
    assert (stopped.doing, stopped.share) == ("done", 1.0)


def test_steps_that_are_followed() -> None:
    one = job(started=1.0, ended=1.0)
    watch = jobs.Watch(one, 9.0)
    watch.plan(("a", "b", "c", "d"))
    assert (one.steps, one.begun) == (["a", "b", "c", "d"], 0)
    told = []
    for text in (None, None, "A", None):
        watch.next(text)
        told.append((one.begun, one.doing, one.share))
    assert told == [(1, "a", 0.0), (2, "b", 0.25), (3, "c", 0.5), (4, "d", 0.75)]
    assert one.steps == ["A", "b", "c", "d"]
    watch.plan(["x"])
    assert (one.steps, one.begun) == (["x"], 0)
    watch.know((("w", 0.5),))
    assert one.known == [("w", 0.5)]


def test_a_job_of_maps_tells_its_steps_and_how_far_each_is() -> None:
    one = job(started=1.0, ended=1.0)
    watch = jobs.Watch(one, 9.0)
    watch.plan(report.steps_of(["integrated_gradients:steps=500", "alti", "attention", "integrated_gradients:steps=9"]))
    assert one.steps == ["running the model", "integrated_gradients", "alti, attention", "integrated_gradients"]
    told = []
    for doing, share in (
        ("running the model", 0.0),
        ("integrated_gradients", 0.0),
        ("integrated_gradients, 64 of 500 points", 0.04),
        ("alti, attention", 0.3),
        ("alti, attention, layer 2 of 4", 0.5),
        ("integrated_gradients", 0.6),
        ("done", 1.0),
    ):
        watch.gathered(doing, share)
        told.append((one.begun, one.within, one.share))
    assert told == [
        *((1, "", 0.0), (2, "", 0.0), (2, "64 of 500 points", 0.04), (3, "", 0.3), (3, "layer 2 of 4", 0.5)),
        *((4, "", 0.6), (4, "", 1.0)),
    ]


def test_failures_in_words(logged: list[logging.LogRecord]) -> None:
    inside = "this went wrong inside (KeyError). The server goes on; try another text."
    assert jobs._failed(errors.InputError("no.")) == ("failed", "no.")
    assert not logged
    assert jobs._failed(KeyError("k")) == ("failed", inside)
    assert [record.getMessage() for record in logged] == ["a job failed: KeyError: 'k'"]


def test_a_reason_stops_the_next_operation_once() -> None:
    reasons: list[str] = []
    asked: list[int] = []

    def reason() -> str | None:
        asked.append(1)
        return reasons[0] if reasons else None

    with jobs.Stoppable(reason) as stoppable:
        one = torch.ones(2)
        assert torch.add(one, one, alpha=2)[0] == 3
        assert asked
        reasons.append("enough.")
        torch.set_grad_enabled(torch.is_grad_enabled())
        with pytest.raises(jobs.StoppedError, match=r"^enough\.$"):
            torch.add(one, one)
        assert stoppable.has_stopped
        count = len(asked)
        assert torch.add(one, one)[0] == 2
    torch.ones(2)
    assert len(asked) == count
    with jobs.Stoppable(lambda: asked.append(2)):
        pass
    count = len(asked)
    torch.add(one, one)
    assert len(asked) == count  # nothing is asked behind the block


def test_a_backward_pass_is_stopped_at_a_saved_tensor() -> None:
    reasons: list[str] = []
    weight = torch.ones(3, requires_grad=True)
    with jobs.Stoppable(lambda: reasons[0] if reasons else None) as stoppable:
        loss = (weight * weight).sum()
        reasons.append("late.")
        with pytest.raises(jobs.StoppedError, match="late"):
            stoppable.unpacked(weight)
        assert stoppable.unpacked(weight) is weight
    assert loss.item() == 3.0


def test_gradients_are_on_after_every_job(desk: jobs.Desk, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[bool] = []

    def answered(*given: Any) -> str:
        modes.append(torch.is_grad_enabled())
        torch.set_grad_enabled(False)
        return "done"

    monkeypatch.setattr(jobs, "answered", answered)
    made = [desk.submit("a", {"tokens": 1}, question="why") for _ in range(2)]
    until(lambda: all(one.ended is not None for one in made))
    assert modes == [True, True]
