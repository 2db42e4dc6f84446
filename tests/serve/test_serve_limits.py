"""The local server holds its limits: every method stops, slow requests end, other names and origins are refused
whole."""

# ruff: noqa: E402
from __future__ import annotations

import asyncio
import copy
import json
import logging
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi", reason="needs the extra `serve`")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `serve`")

from test_serve import SENTENCE, Client, ended

import mixlens
from mixlens.serve import app as serve_app
from mixlens.serve import guard as guarding
from mixlens.serve import jobs

PAGE = Path(mixlens.__file__).parent / "show" / "page"


@contextmanager
def serving(limits: jobs.Limits, *names: str) -> Iterator[tuple[Client, jobs.Desk]]:
    app = serve_app.application([mixlens.load(name) for name in names], limits=limits)
    place = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(serve_app.settings(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    try:
        yield Client(place.getsockname()[1]), app.desk
    finally:
        server.should_exit = True
        thread.join(10)
        app.desk.close()
        place.close()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Client, jobs.Desk]]:
    with serving(jobs.Limits(tokens=64, seconds=60), "agreement", "sentiment") as made:
        yield made


@pytest.fixture
def client(served: tuple[Client, jobs.Desk]) -> Client:
    return served[0]


@pytest.fixture
def desk(served: tuple[Client, jobs.Desk]) -> jobs.Desk:
    return served[1]


# --- every method stops ---


def running(desk: jobs.Desk, number: str) -> None:
    until = time.monotonic() + 60
    while desk.job(number).state != "running" and time.monotonic() < until:  # type: ignore[union-attr]
        time.sleep(0.01)


def test_a_million_steps_are_cancelled(client: Client, desk: jobs.Desk) -> None:
    """They would take hours: that the job ends at all is that it was stopped."""
    status, made = client.post({"text": SENTENCE, "methods": ["integrated_gradients:steps=1000000"]})
    assert status == 202
    running(desk, made["id"])
    client.raw("DELETE", f"/api/jobs/{made['id']}")
    assert ended(desk, made["id"]).state == "cancelled"
    assert client.done(client.post({"text": SENTENCE, "methods": ["alti"]})[1]["id"])["state"] == "done"


def test_a_million_steps_end_at_the_time_limit() -> None:
    desk = jobs.Desk([mixlens.load("agreement")], jobs.Limits(seconds=0.5))
    try:
        job = desk.submit("agreement", {"text": SENTENCE, "methods": ["integrated_gradients:steps=1000000"]})
        assert ended(desk, job.id).state == "failed"
        assert "stopped after 0.5 seconds" in str(job.error)
    finally:
        desk.close()


def test_the_way_back_through_a_graph_stops_too() -> None:
    """It is one call of torch, and may take longer than all calls before it."""
    stop: list[bool] = []
    finished: list[bool] = []

    class StopComes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            stop.append(True)
            return gradient

    x = torch.ones(3, requires_grad=True)

    def work() -> None:
        torch.autograd.grad(StopComes.apply(x.exp()).sum(), [x])
        finished.append(True)

    with pytest.raises(jobs.StoppedError, match="enough"), jobs.Stoppable(lambda: "enough" if stop else None):
        work()
    assert stop
    assert not finished


@pytest.mark.parametrize("name", ["integrated_gradients", "deeplift", "attcat", "transatt", "grad_l2", "hta_layer"])
def test_it_is_asked_on_every_methods_way_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = mixlens.load("sentiment").trace("The plot was dull.")
    asked: list[bool] = []
    own = jobs.Stoppable.unpacked

    def unpacked(self: jobs.Stoppable, saved: torch.Tensor) -> torch.Tensor:
        asked.append(True)
        return own(self, saved)

    monkeypatch.setattr(jobs.Stoppable, "unpacked", unpacked)
    with jobs.Stoppable(lambda: None):
        mixlens.attribute(trace, name)
    assert len(asked) > len(trace.layers)


@pytest.mark.parametrize("name", ["integrated_gradients", "deeplift", "transatt", "hta_layer"])
def test_asking_changes_no_number(name: str) -> None:
    trace = mixlens.load("sentiment").trace("The plot was dull.")
    with jobs.Stoppable(lambda: None):
        asked = mixlens.attribute(trace, name).scores
    assert torch.equal(asked, mixlens.attribute(trace, name).scores)


def test_memory_that_runs_out_is_told_and_the_server_goes_on(
    client: Client, desk: jobs.Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("mixlens.serve.jobs.gather", full)
        job = ended(desk, client.post({"text": SENTENCE})[1]["id"])
    assert job.state == "failed"
    assert job.error == "memory runs out with this text and these methods. Shorten it, or ask for less."
    assert client.done(client.post({"text": SENTENCE, "methods": ["alti"]})[1]["id"])["state"] == "done"


# --- slow requests ---


def sent(port: int, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(data)
    return connection


def answer(connection: socket.socket) -> bytes:
    """All that comes until the other side closes; no more than 60 seconds."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:  # closed before all that was sent was read
        pass
    return b"".join(parts)


HALF_A_BODY = (
    b"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{"
)


def test_half_a_body_takes_no_place() -> None:
    with serving(jobs.Limits(tokens=64, at_once=2), "agreement") as (client, _), ExitStack() as stack:
        for _ in range(4):  # more are held than may be answered at once
            stack.enter_context(sent(client.port, HALF_A_BODY))
        assert client.get("/api/models")[0] == 200


def test_a_request_in_pieces_is_answered(client: Client) -> None:
    body = json.dumps({"text": SENTENCE, "methods": ["random"]}).encode()
    head = f"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"  # noqa: E501
    whole = head.encode() + b"Connection: close\r\n\r\n" + body
    with sent(client.port, whole[:30]) as connection:
        for at in range(30, len(whole), 40):
            connection.sendall(whole[at : at + 40])
        assert answer(connection).startswith(b"HTTP/1.1 202")


def test_no_more_connections_than_the_limit() -> None:
    with serving(jobs.Limits(connections=3), "agreement") as (client, _), ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(sent(client.port, HALF_A_BODY))
        assert client.raw("GET", "/api/models")[0] == 503


# --- who may ask ---


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:8000", "127.0.0.1"),
        ("LOCALHOST", "localhost"),
        ("[::1]:80", "::1"),
        ("evil.com@127.0.0.1", ""),
        ("127.0.0.1#.evil.com", ""),
        ("127.0.0.1/evil", ""),
        ("127.0.0.1:80:80", ""),
        ("127.0.0.1:", ""),
        ("127.0.0.1 ", ""),
        ("[::1", ""),
        ("::1", ""),
        ("", ""),
    ],
)
def test_a_host_is_a_name_and_a_port_and_nothing_else(host: str, name: str) -> None:
    assert guarding.host_name(host) == name


@pytest.mark.parametrize("host", ["evil.com@127.0.0.1", "127.0.0.1#.evil.com", "127.0.0.1?x", "localhost."])
def test_a_host_that_only_looks_like_ours_is_refused(client: Client, host: str) -> None:
    status, told = client.get("/api/models", Host=host)
    assert status in (400, 403), told


@pytest.mark.parametrize(
    "origin", ["https://{}", "file://{}", "http://{}/", "http://x@{}", "http://[bad", "{}", "", "http://{}.evil"]
)
def test_an_origin_is_ours_as_a_whole_or_not_at_all(client: Client, origin: str) -> None:
    status, told = client.get("/api/models", Origin=origin.format(f"127.0.0.1:{client.port}"))
    assert status == 403, told
    assert "only this server's own page" in told["error"]


def test_two_hosts_or_origins_are_refused(client: Client) -> None:
    ours = f"Origin: http://127.0.0.1:{client.port}\r\n".encode()
    head = f"GET /api/models HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nConnection: close\r\n".encode()
    with sent(client.port, head + ours + b"Origin: http://evil.example\r\n\r\n") as connection:
        assert answer(connection).startswith(b"HTTP/1.1 400")
    with sent(client.port, head + ours + b"\r\n") as connection:
        assert answer(connection).startswith(b"HTTP/1.1 200")


# --- what is shown ---


def test_a_folder_is_called_by_its_own_name() -> None:
    model = mixlens.load("agreement")
    folders = []
    for place in ("/somewhere/private/mine", "/elsewhere/mine", "org/model"):
        one = copy.copy(model)
        one.name = place
        folders.append(one)
    desk = jobs.Desk(folders, jobs.Limits())
    try:
        assert list(desk.models) == ["mine", "mine (2)", "org/model"]
        assert [one.name for one in folders] == [
            "/somewhere/private/mine",
            "/elsewhere/mine",
            "org/model",
        ]  # theirs is theirs
        job = desk.submit("mine (2)", {"text": SENTENCE, "methods": ["alti"]})
        assert ended(desk, job.id).state == "done"
        assert job.entry["model"] == "mine (2)"  # type: ignore[index]
        assert "elsewhere" not in json.dumps(job.entry)
    finally:
        desk.close()


def test_a_text_without_a_mask_is_told_so(client: Client) -> None:
    told = client.done(client.post({"text": "The keys are rusty.", "methods": ["alti"]})[1]["id"])
    assert told["state"] == "done"
    assert told["notes"] == [
        "The text has no [MASK], so no word of it is predicted. Write [MASK] in place of a word to see what for."
    ]
    for model, text in (("agreement", SENTENCE), ("sentiment", "The plot was dull.")):
        wanted = {"model": model, "text": text, "methods": ["alti"]}
        assert client.done(client.post(wanted)[1]["id"])["notes"] == []


FORM = """
const asked = [], shown = [], marked = [];
const counted = String, percent = String, listed = (all) => all;
function errorState(says, acts) { return { ...says, acts: acts.map(([text]) => text) }; }
const refusal = { ok: false, status: 429, json: async () => ({ error: "full. Wait." }) };
globalThis.fetch = async (path) => { asked.push(path); return refusal; };
const text = { value: TEXT, focus() {} };
const page = Object.assign(Object.create(ServedPage.prototype), {
  job: null, below: { replaceChildren() {} }, put: (name, what) => shown.push([name, what]),
  form: {
    text, question: "why", chosenModel: { labels: [], seconds: {} }, clearWrong() {}, busy() {},
    wanted: () => ({ text: text.value, question: "why" }), markWrong: (...where) => marked.push(where),
  },
});
(async () => {
  ACT;
  console.log(JSON.stringify({ asked, shown, marked, text: text.value }));
})();
"""


@pytest.fixture
def acted() -> Callable[[str, str], dict[str, Any]]:
    """The script of the page without a browser: what it asks for and shows after one act, with this text in its
    form."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node on the PATH, which runs the page's script")

    def run_act(act: str, text: str) -> dict[str, Any]:
        script = FORM.replace("TEXT", json.dumps(text)).replace("ACT", act)
        ran = subprocess.run(
            [node], input=(PAGE / "serve.js").read_text() + script, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        told: dict[str, Any] = json.loads(ran.stdout)
        return told

    return run_act


def test_an_empty_text_is_told_and_not_sent(acted: Callable[[str, str], dict[str, Any]]) -> None:
    for text in ("", "  \n"):
        told = acted("await page.explain()", text)
        ((name, error),) = told["shown"]
        assert (name, error["title"], error["acts"][0]) == ("error", "There is no text yet", "Try an example")
        assert (told["asked"], told["marked"]) == ([], [["text", "There is no text yet."]])


def test_a_refusal_is_told_in_its_parts(acted: Callable[[str, str], dict[str, Any]]) -> None:
    told = acted("await page.explain()", "a text")
    ((_, error),) = told["shown"]
    assert told["asked"] == ["api/jobs"]
    assert (error["came"], error["todo"], error["acts"][0]) == (["Full."], "Wait.", "Try again")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("The keys were rusty.", "The keys were [MASK]."),
        ("don't", "[MASK]"),
        ("l’été", "[MASK]"),
        ("鍵 錆", "鍵 [MASK]"),
        ("...", "... [MASK]"),
    ],
)
def test_a_mask_takes_the_place_of_the_last_word(
    acted: Callable[[str, str], dict[str, Any]], text: str, masked: str
) -> None:
    assert acted('page.explain = () => {}; page.maskLast("[MASK]")', text)["text"] == masked


@pytest.mark.parametrize("begins", [True, False])
def test_an_answer_that_fails_is_logged_and_is_not_begun_again(begins: bool, logged: list[logging.LogRecord]) -> None:
    start = {"type": "http.response.start", "status": 200, "headers": []}
    sent: list[dict[str, Any]] = []

    async def application_that_fails(scope: Any, receive: Any, send: Any) -> None:
        if begins:
            await send(start)
        raise RuntimeError("secret")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "scheme": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"host", b"localhost")],
        "query_string": b"",
    }
    guard = guarding.Guard(application_that_fails, None, jobs.Limits(), ("localhost",))  # type: ignore[arg-type]
    asyncio.run(guard(scope, receive, send))
    assert [message["status"] for message in sent if "status" in message] == [200 if begins else 500]
    assert "a request failed: RuntimeError: secret" in [record.getMessage() for record in logged]
    assert all(b"secret" not in message.get("body", b"") for message in sent)
    assert guard.busy == 0
