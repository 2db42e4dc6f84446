"""The questions of the local server: its answers are the library's, its steps are true, its refusals say what to do."""

# ruff: noqa: E402
from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `serve`")

from test_serve import Client

import mixlens
from mixlens.serve import app as serve_app
from mixlens.serve import (
    describe,
    jobs,
    questions,
    work,
)
from mixlens.show import (
    flow_page,
    page_file,
    page_template,
)

SENTENCE = "The keys to the cabinet [MASK] rusty."
REVIEW = "a good film but a dull plot"
STORIES = Path(__file__).resolve().parents[3] / "shared/models/stories260K"


@cache
def loaded(name: str) -> Any:
    return mixlens.load(name)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Client, Any]]:
    app = serve_app.application([loaded("agreement"), loaded("sentiment")], limits=jobs.Limits(tokens=64, kept=16))
    place = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    try:
        yield Client(place.getsockname()[1]), app
    finally:
        server.should_exit = True
        thread.join(10)
        app.desk.close()
        place.close()


@pytest.fixture
def client(served: tuple[Client, Any]) -> Client:
    return served[0]


def answer(client: Client, **wanted: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where the job stood at its end, and its answer."""
    status, made = client.post(wanted)
    assert status == 202, made
    told = client.done(made["id"])
    assert told["state"] == "done", told
    return told, client.get(f"/api/jobs/{made['id']}/answer")[1]


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "text", "choices"),
    [
        ("agreement", SENTENCE, {}),
        ("agreement", SENTENCE, {"target": "were", "foil": "was"}),
        ("sentiment", REVIEW, {"target": "negative", "filler": "mask"}),
        ("sentiment", REVIEW, {"methods": ["attcat", "alti"]}),
    ],
)
def test_why_is_the_librarys_answer(client: Client, model: str, text: str, choices: dict[str, Any]) -> None:
    told, got = answer(client, model=model, text=text, question="why", **choices)
    wanted = loaded(model).why(text, **choices).to_dict()
    assert got["kind"] == "why"
    for name in ("question", "sentence", "agreement", "model"):
        assert got["why"][name] == wanted[name]
    assert [word["text"] for word in got["why"]["words"]] == [word["text"] for word in wanted["words"]]
    shares = [word["share"] for word in wanted["words"]]
    assert [word["share"] for word in got["why"]["words"]] == pytest.approx(
        shares, abs=1e-5
    )  # seven digits, another thread
    assert got["why"]["method"]["reason"] == wanted["method"]["reason"]
    assert told["known"][0][0] == wanted["predictions"][0][0]


def test_every_step_is_told_and_all_have_begun_at_the_end(client: Client) -> None:
    told, _ = answer(client, model="sentiment", text=REVIEW, question="why")
    methods = [one["everyday"] for one in loaded("sentiment").why(REVIEW).to_dict()["methods"]]
    assert told["begun"] == len(told["steps"]) == 3 + len(methods)
    assert told["steps"][0] == "Read the text: 9 tokens, 7 words"
    assert set(methods) == set(told["steps"][2:-1])
    told, _ = answer(client, model="sentiment", text=REVIEW, question="methods")
    assert told["begun"] == len(told["steps"]) == 4 + len(methods)
    told, _ = answer(client, model="sentiment", text=REVIEW, question="flow")
    assert told["begun"] == len(told["steps"]) == len(work.steps_of("flow", (), 9))


def test_what_flows_where_is_the_page_of_flow(client: Client) -> None:
    _, got = answer(client, model="sentiment", text=REVIEW, question="flow")
    scores, heads = flow_page.flow_results(loaded("sentiment"), REVIEW)
    wanted = flow_page.flow_data(flow_page.picture_of(scores, heads=heads), page_file.room_of(page_file.MEGABYTES))
    assert got["flow"]["sentence"] == [list(piece) for piece in wanted["sentence"]]
    assert [word["share"] for word in got["flow"]["words"]] == pytest.approx(
        [word["share"] for word in wanted["words"]], abs=1e-6
    )


def test_an_answer_is_also_one_file_that_runs_its_own_script_alone(client: Client) -> None:
    for question, starts in (("why", "startWhy("), ("flow", "startFlow("), ("methods", "startPage(")):
        status, made = client.post({"model": "sentiment", "text": REVIEW, "question": question})
        assert status == 202
        client.done(made["id"])
        status, headers, body = client.raw("GET", f"/api/jobs/{made['id']}/file")
        page = body.decode()
        assert (status, starts in page) == (200, True)
        assert headers["content-security-policy"].startswith(page_template.policy_in(page))
        assert "connect-src" not in headers["content-security-policy"]
        _, headers, same = client.raw("GET", f"/api/jobs/{made['id']}/file?save=true")
        assert headers["content-disposition"] == 'attachment; filename="mixlens-answer.html"'
        assert same == body


def test_maps_have_no_answer_and_answers_have_no_maps(client: Client) -> None:
    _, made = client.post({"text": SENTENCE, "methods": ["alti"]})
    client.done(made["id"])
    for part in ("answer", "file"):
        status, told = client.get(f"/api/jobs/{made['id']}/{part}")
        assert (status, "has maps, and no answer" in told["error"]) == (409, True)
    told, _ = answer(client, text=SENTENCE, question="flow")
    status, refused = client.get(f"/api/jobs/{told['id']}/page")
    assert (status, "there is no result" in refused["error"]) == (409, True)


@pytest.mark.skipif(not STORIES.is_dir(), reason="needs ../shared/models/stories260K")
def test_written_words_of_a_causal_model() -> None:
    desk = jobs.Desk([loaded(str(STORIES))], jobs.Limits())
    try:
        (name,) = desk.models
        text = "Once upon a time there was a little"
        asked = {**questions.example_question(desk.models[name], text, 9), "generate": 5}
        job = desk.submit(name, asked, question="written")
        end = time.monotonic() + 60
        while job.ended is None and time.monotonic() < end:
            time.sleep(0.01)
        assert job.state == "done", job.error
        assert job.answer is not None
        wanted = loaded(str(STORIES)).explain(text, method="alti", generate=5)
        content = job.answer.content["generation"]
        assert len(content["rows"]) == len(wanted.rows)
        assert content["rows"][0]["effects"] is not None
        assert job.begun == len(job.steps)
        assert "startGeneration(" in job.answer.file
    finally:
        desk.close()


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "more", "says"),
    [
        (
            {"text": "keys " * 80, "question": "why"},
            {"kind": "too_long", "field": "text", "tokens": 82, "most": 64},
            "at most 64",
        ),
        ({"text": "keys " * 80}, {"kind": "too_long", "field": "text", "tokens": 82, "most": 64}, "at most 64"),
        (
            {"text": "The keys.", "question": "why"},
            {"kind": "no_mask", "field": "text", "mask": "[MASK]"},
            "Put [MASK] where",
        ),
        (
            {"model": "sentiment", "text": "x", "question": "why", "target": "neutral"},
            {"kind": "unknown_class", "field": "target"},
            "Known: negative, positive",
        ),
        (
            {"model": "sentiment", "text": "x", "question": "methods", "foil": 7},
            {"kind": "unknown_class", "field": "foil"},
            "0 to 1",
        ),
        ({"text": SENTENCE, "question": "written"}, {}, "writes no text"),
        ({"text": SENTENCE, "question": "flow", "methods": ["attcat"]}, {}, "shown by a map"),
        ({"text": SENTENCE, "question": "flow", "methods": ["alti", "norm"]}, {}, "by one method, not by 2"),
        ({"text": SENTENCE, "question": "why", "filler": "blank"}, {}, "unknown filler 'blank'"),
        ({"text": SENTENCE, "question": "why", "methods": []}, {}, "no method was asked for"),
        ({"text": SENTENCE, "question": "because"}, {}, "question: Input should be"),
        ({"text": SENTENCE, "filler": "mask"}, {}, "filler goes with a question"),
        (
            {"text": SENTENCE, "question": "why", "generate": 65},
            {},
            "generate: Input should be less than or equal to 64",
        ),
    ],
)
def test_refusals_say_what_came_what_is_allowed_and_where(
    client: Client, wanted: Any, more: dict[str, Any], says: str
) -> None:
    status, told = client.post(wanted)
    assert status == 422
    assert says in told["error"]
    assert "\n" not in told["error"]
    assert {name: told[name] for name in more} == more


def test_a_long_text_is_cut_where_that_is_wanted_and_the_answer_says_so(client: Client) -> None:
    told, got = answer(client, model="sentiment", text="a good film " * 40, question="why", truncate=True)
    line = "The text has 122 tokens; the first 64 are explained, the rest was not read."
    assert told["notes"] == [line]
    assert [note for note in got["why"]["notes"] if note["id"] == "cut"] == [
        {"id": "cut", "state": "caution", "text": line, "parts": [line]}
    ]
    assert got["why"]["provenance"]["tokens"] == 64
    told, got = answer(client, model="sentiment", text=REVIEW, question="why", truncate=True)
    assert (told["notes"], [note for note in got["why"]["notes"] if note["id"] == "cut"]) == ([], [])


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("  \n", 0), ("a good film", 5), ("a " * 500, 502), ("<b>", None), ("\ud800", "half a character")],
)
def test_tokens_are_counted_by_the_models_tokenizer(client: Client, text: str, tokens: Any) -> None:
    body = json.dumps({"model": "sentiment", "text": text}).encode()
    status, _, answered = client.raw("POST", "/api/tokens", body, Content_Type="application/json")
    told = json.loads(answered)
    if isinstance(tokens, str):
        assert (status, tokens in told["error"]) == (422, True)
        return
    wanted = len(loaded("sentiment").encode(text).input_ids) if tokens is None else tokens
    assert (status, told["tokens"], told["most"]) == (200, wanted, 64)


# --- times ------------------------------------------------------------------------------------------------------------


def test_times_are_measured_while_nobody_waits() -> None:
    desk = jobs.Desk([loaded("sentiment")], jobs.Limits())
    try:
        assert desk.times == {}
        serve_app.measure(desk)
        job = desk.submit(
            "sentiment", {"text": REVIEW, "methods": ["alti"]}
        )  # goes first: a trial is put off, and done later
        end = time.monotonic() + 60
        while len(desk.times) < 3 and time.monotonic() < end:
            time.sleep(0.02)
        assert job.state == "done"
        assert set(desk.times) == {("sentiment", question) for question in ("why", "flow", "methods")}
        tokens = len(loaded("sentiment").encode(describe.EXAMPLES["classification"]).input_ids)
        assert all(seconds > 0 and count == tokens for seconds, count in desk.times.values())
        assert desk.job("") is None  # an example is nobody's job
    finally:
        desk.close()


def test_a_text_goes_before_examples_that_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = []

    def slow(model: Any, question: str, asked: Any, track: Any) -> Any:
        trials.append(question)
        track.plan(["waits"])
        if len(trials) > 1:
            raise mixlens.base.errors.InputError("enough")
        while True:
            track.note("waits", 0.0)
            time.sleep(0.01)

    monkeypatch.setattr("mixlens.serve.jobs.answered", slow)
    desk = jobs.Desk([loaded("sentiment")], jobs.Limits())
    try:
        desk.measure("sentiment", questions.example_question(loaded("sentiment"), REVIEW, 9), "why")
        end = time.monotonic() + 30
        while not trials and time.monotonic() < end:
            time.sleep(0.01)
        job = desk.submit("sentiment", {"text": REVIEW, "methods": ["alti"]})
        while job.ended is None and time.monotonic() < end:
            time.sleep(0.01)
        assert job.state == "done"
        while len(trials) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        assert trials == ["why", "why"]  # it was put off, and begun again
        assert desk.times == {}  # neither was answered
    finally:
        desk.close()


# --- the page ---------------------------------------------------------------------------------------------------------


def test_no_name_of_the_pages_scripts_is_there_twice() -> None:
    """They share one function: a second function of a name would silently take the place of the first."""
    names = re.findall(
        r"^(?:async )?(?:function|class|const|let) (\w+)",
        page_template.asset(*page_template.SERVED.scripts),
        flags=re.MULTILINE,
    )
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_styles_of_an_answer_hold_inside_it_alone() -> None:
    style, _ = page_template.style_and_script(page_template.SERVED)
    for selector in (".shows-why {", ".shows-flow {", ".shows-written {"):
        assert style.count(selector) == 1
    assert style.count("{") == style.count("}")
