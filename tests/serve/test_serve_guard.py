"""The guard without a socket: every head, body and answer is made by hand, and every refusal is looked at as a whole."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `serve`")

from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: E402

from mixlens.base.errors import InputError  # noqa: E402
from mixlens.serve import app as serve_app  # noqa: E402
from mixlens.serve import guard as serve_guard  # noqa: E402
from mixlens.serve.connections import Prompt, prompt  # noqa: E402
from mixlens.serve.guard import HEADERS, Guard, Head, Receiver, Refusal, Sender, head_of, host_name  # noqa: E402
from mixlens.serve.jobs import Limits  # noqa: E402

JSON = [(b"Host", b"localhost:80"), (b"Content-Type", b"application/json; charset=utf-8"), (b"Content-Length", b"3")]
USUAL = [[name.decode(), value.decode()] for name, value in HEADERS]


def scope(method: str = "GET", path: str = "/api", headers: Any = JSON, kind: str = "http") -> dict[str, Any]:
    return {"type": kind, "scheme": "http", "method": method, "path": path, "headers": headers}


def body(*parts: bytes) -> Any:
    """A receiver of these parts; after them nobody is there."""
    messages = [{"type": "http.request", "body": part, "more_body": i < len(parts) - 1} for i, part in enumerate(parts)]

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    return receive


class Spy:
    """An application that says what it was given, and how many are answered at the time."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.seen: list[Any] = []
        self.failure, self.guard = failure, None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append([scope["type"], (await receive())["body"], getattr(self.guard, "busy", None)])
        if self.failure is not None:
            raise self.failure
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Cache-Control", b"mine")]})
        await send({"type": "http.response.body", "body": b"ok"})


def asked(scope: Any, receive: Any, *, app: Any = None, **limits: Any) -> tuple[Any, ...]:
    """(status, headers, body) of the answer; nothing where nothing was sent."""
    guard = Guard(app or Spy(), None, Limits(**limits), ("localhost", "Named.Host"))  # type: ignore[arg-type]
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    if isinstance(guard.app, Spy):
        guard.app.guard = guard
    asyncio.run(guard(scope, receive, send))
    assert guard.busy == 0
    if not sent:
        return ()
    headers = [[name.decode(), value.decode()] for name, value in sent[0]["headers"]]
    content = b"".join(one.get("body", b"") for one in sent[1:])
    return sent[0]["status"], headers, content if content == b"ok" else json.loads(content)


def refused(status: int, message: str, *more: list[str], **body: Any) -> tuple[Any, ...]:
    """The answer to a request that is refused."""
    content = {"error": message, **body}
    length = str(len(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()))
    return status, [*more, ["content-length", length], ["content-type", "application/json"], *USUAL], content


def test_a_request_is_let_in_with_its_whole_body() -> None:
    spy = Spy()
    assert asked(scope("POST"), body(b"a", b"b", b"c"), app=spy) == (
        200,
        [["Cache-Control", "mine"], *(one for one in USUAL if one[0] != "cache-control")],
        b"ok",
    )
    assert spy.seen == [["http", b"abc", 1]]


def test_other_scopes() -> None:
    spy = Spy()
    assert asked(scope(kind="websocket"), body(b""), app=spy) == ()
    assert spy.seen == []

    async def lifespan(scope: Any, receive: Any, send: Any) -> None:
        spy.seen.append(await receive())

    asked(scope(kind="lifespan"), body(b"x"), app=lifespan)
    assert spy.seen == [{"type": "http.request", "body": b"x", "more_body": False}]


def test_a_client_that_is_gone_is_not_answered() -> None:
    spy = Spy()
    assert asked(scope("POST"), body(), app=spy) == ()
    assert spy.seen == []


@pytest.mark.parametrize(("size", "limit"), [(3, 3), (4, 3), (0, 0)])
def test_a_body_is_as_large_as_the_limit_at_most(size: int, limit: int) -> None:
    headers = [*JSON[:2], (b"content-length", b"0")]
    parts = [b"x"] * size or [b""]
    answer = asked(scope("POST", headers=headers), body(*parts), body=limit)
    whole = refused(413, f"the request is over {limit} bytes. Send less.", ["connection", "close"])
    assert answer[0] == (200 if size <= limit else 413)
    assert size <= limit or answer == whole


@pytest.mark.parametrize(
    ("length", "status"), [(b"100000", 200), (b"100001", 413), (b"-1", 413), (b"1e3", 413), (b"", 413), (b"0", 200)]
)
def test_a_length_that_is_announced_is_believed_if_it_is_too_large(length: bytes, status: int) -> None:
    assert asked(scope("POST", headers=[*JSON[:2], (b"content-length", length)]), body(b"{}"))[0] == status


@pytest.mark.parametrize(
    ("method", "kind", "status"),
    [
        ("POST", b"application/json", 200),
        ("POST", b" Application/JSON ;x", 200),
        ("PUT", b"text/plain", 415),
        ("PATCH", b"", 415),
        ("POST", b"json", 415),
        ("GET", b"text/plain", 200),
        ("DELETE", b"text/plain", 200),
    ],
)
def test_a_body_is_json(method: str, kind: bytes, status: int) -> None:
    answer = asked(scope(method, headers=[JSON[0], (b"content-type", kind)]), body(b""))
    assert answer[0] == status
    if status == 415:
        assert answer == refused(415, f"the body must be application/json, not {kind.decode()!r}.")


def test_a_body_without_a_kind_or_a_length() -> None:
    assert asked(scope("POST", headers=JSON[:1]), body(b"")) == refused(
        415, "the body must be application/json, not ''."
    )
    assert asked(scope("POST", headers=JSON[:2]), body(b""))[0] == 200


def test_hosts_by_name() -> None:
    message = "host 'evil.org' is not served. Allowed: localhost, named.host. Start with --allow-host to add one."
    assert asked(scope(headers=[(b"host", b"evil.org")]), body(b"")) == refused(403, message)
    assert asked(scope(headers=[(b"host", b"NAMED.host:1")]), body(b""))[0] == 200
    assert asked(scope(headers=[]), body(b""))[2]["error"].startswith("host '' is not served.")
    assert [host_name(host) for host in ("[::1]:80", "a-b_c.d:99999", "A", "a:123456", "[x]", "")] == [
        "::1",
        "a-b_c.d",
        "a",
        "",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"origin": "http://localhost:80"}, "/api", 200),
        ({"origin": "HTTP://LOCALHOST:80"}, "/api", 200),
        ({"origin": "https://localhost:80"}, "/api", 403),
        ({"origin": "http://localhost"}, "/api", 403),
        ({"sec-fetch-site": "none"}, "/api", 200),
        ({"sec-fetch-site": "same-origin"}, "/api", 200),
        ({"sec-fetch-site": "same-site"}, "/api", 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, "/", 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, "/docs", 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, "/api", 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}, "/", 403),
        ({"sec-fetch-site": "cross-site"}, "/", 403),
    ],
)
def test_other_sites(headers: dict[str, str], path: str, status: int) -> None:
    given = [JSON[0], *((name.encode(), value.encode()) for name, value in headers.items())]
    answer = asked(scope(path=path, headers=given), body(b""))
    assert answer[0] == status
    if status == 403:
        who = repr(headers["origin"]) if "origin" in headers else "other sites"
        assert answer == refused(403, f"requests from {who} are not answered: only this server's own page may ask.")
    posted = asked(scope("POST", path, [*JSON, *given[1:]]), body(b""))
    assert posted[0] == (403 if path != "/api" else status)


@pytest.mark.parametrize("name", ["host", "origin"])
def test_headers_that_are_sent_twice(name: str) -> None:
    headers = [(b"host", b"localhost"), (b"origin", b"http://localhost"), (name.title().encode(), b"http://localhost")]
    assert asked(scope(headers=headers), body(b"")) == refused(400, f"the request has more than one {name}. Send one.")
    assert asked(scope(headers=headers[:2]), body(b""))[0] == 200


def test_no_more_at_once_than_the_limit() -> None:
    message = "more than 0 requests at once. Try again in a few seconds."
    assert asked(scope(), body(b""), at_once=0) == refused(503, message, ["retry-after", "5"])
    assert asked(scope(), body(b""), at_once=1)[0] == 200


def test_a_body_that_does_not_come_in_time() -> None:
    async def never() -> Any:
        await asyncio.sleep(60)

    message = "the request was not here after 0.01 seconds. Send it at once."
    assert asked(scope(), never, arrival=0.01) == refused(408, message, ["connection", "close"])


def test_a_failure_is_told_by_its_name_alone(logged: list[logging.LogRecord]) -> None:
    answer = asked(scope(), body(b""), app=Spy(KeyError("secret")))
    assert answer == refused(500, "this went wrong inside (KeyError).")
    assert [(record.name, record.getMessage()) for record in logged] == [
        ("mixlens.serve", "a request failed: KeyError: 'secret'")
    ]
    assert asked(scope(), body(b""), app=Spy(Refusal(429, "Full.", allowed=3))) == refused(429, "Full.", allowed=3)


def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        raise ValueError

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(app, None, Limits(), ["localhost"])(scope(), body(b""), send))  # type: ignore[arg-type]
    assert sent == [{"type": "http.response.start", "status": 200, "headers": list(HEADERS)}]


def test_a_client_that_does_not_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def wait_for(sending: Any, seconds: float) -> None:
        waited.append(seconds)
        await sending

    async def send(message: Any) -> None: ...

    monkeypatch.setattr(serve_guard.asyncio, "wait_for", wait_for)
    asyncio.run(Sender(send)({"type": "http.response.body"}))
    assert waited == [60.0]


def test_the_receiver_gives_the_body_once() -> None:
    receiver = Receiver(b"ab", body(b"later"))
    assert asyncio.run(receiver()) == {"type": "http.request", "body": b"ab", "more_body": False}
    assert asyncio.run(receiver())["body"] == b"later"


def test_heads() -> None:
    head = head_of(scope("PUT", "/x", [(b"Host", b"a"), (b"X\xe9", b"\xe9"), (b"host", b"B")]))
    assert head == Head("http", "PUT", "/x", [("host", "a"), ("xé", "é"), ("host", "B")])
    assert (head.headers, head.host, head.times("host"), head.times("x")) == ({"host": "B", "xé": "é"}, "B", 2, 0)
    assert Head("http", "GET", "/", []).host == ""
    assert [Head("", method, "", []).has_body for method in ("POST", "PUT", "PATCH", "GET", "DELETE", "HEAD")] == [
        True
    ] * 3 + [False] * 3
    navigates = [("sec-fetch-mode", "navigate")]
    assert not Head("http", "POST", "/", navigates).visits_page
    assert Head("http", "GET", "/", navigates).visits_page


# --- connections ------------------------------------------------------------------------------------------------------


class Transport:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def is_closing(self) -> bool:
        return self.closed > 0


class Timer:
    def __init__(self, seconds: float, call: Any):
        self.seconds, self.call, self.ended = seconds, call, False

    def cancel(self) -> None:
        self.ended = True

    def cancelled(self) -> bool:
        return self.ended


class Clock:
    now = 10.0

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Any) -> Timer:
        return Timer(seconds, call)


def connection(monkeypatch: pytest.MonkeyPatch, others: set[Any], limits: Limits) -> Any:
    for name in ("connection_made", "connection_lost", "data_received"):
        monkeypatch.setattr(H11Protocol, name, lambda self, given: self.seen.append(given))
    made = prompt(limits).__new__(prompt(limits))
    made.seen, made.loop, made.connections, made.cycle, made.transport = [], Clock(), others, None, Transport()
    others.add(made)
    return made


def test_connections_wait_as_long_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    one = connection(monkeypatch, set(), Limits(arrival=7.0))
    one.connection_made("transport")
    assert (one.seen, one.since, one.deadline.seconds, one.deadline.ended) == (["transport"], 10.0, 7.0, False)
    one.data_received(b"GET")
    assert (one.seen[1:], one.deadline.ended) == ([b"GET"], False)
    one.cycle = SimpleNamespace(response_complete=False)
    assert not one.waits()
    one.data_received(b" / ")
    assert one.deadline.ended
    one.late()
    assert one.transport.closed == 0
    one.cycle.response_complete = True
    assert one.waits()
    one.loop.now = 11.0
    one.data_received(b"next")
    assert (one.since, one.deadline.ended) == (11.0, False)
    one.deadline.call()
    one.late()
    assert one.transport.closed == 1
    one.connection_lost(None)
    assert one.deadline.ended
    assert one.seen[-1] is None


def test_the_one_that_has_waited_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    others: set[Any] = {object()}
    first, second, third = (connection(monkeypatch, others, Limits(connections=2)) for _ in range(3))
    others -= {second, third}
    for number, one in enumerate((first, second, third)):
        others.add(one)
        one.loop.now = 3.0 + number
        first.cycle = SimpleNamespace(response_complete=False)
        one.connection_made("t")
        assert [each.transport.closed for each in (first, second, third)] == [0, int(number == 2), 0]
    for one in (second, third):
        one.cycle = SimpleNamespace(response_complete=False)
    third.connection_made("t")
    assert third.transport.closed == 1
    assert (prompt(Limits()).__name__, issubclass(prompt(Limits()), Prompt), Prompt.limits) == (
        "Prompt",
        True,
        Limits(),
    )


# --- the application --------------------------------------------------------------------------------------------------


def test_how_uvicorn_serves() -> None:
    config = serve_app.settings(SimpleNamespace(limits=Limits(arrival=2.0)))
    assert config.http.limits.arrival == 2.0  # type: ignore[union-attr]
    assert (config.log_level, config.access_log, config.server_header) == ("warning", False, False)
    assert (config.timeout_keep_alive, config.timeout_graceful_shutdown) == (5, 3)


@pytest.mark.parametrize(
    ("host", "lines"),
    [
        ("127.0.0.1", ["mixlens serves a, b on http://127.0.0.1:81/  (Ctrl-C stops it)"]),
        ("::1", ["mixlens serves a, b on http://[::1]:81/  (Ctrl-C stops it)"]),
        (
            "0.0.0.0",
            [
                "mixlens serves a, b on http://0.0.0.0:81/  (Ctrl-C stops it)",
                "It listens on more than this machine alone: whoever reaches it can use it.",
            ],
        ),
    ],
)
def test_what_is_announced(host: str, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    serve_app._announce(SimpleNamespace(desk=SimpleNamespace(models={"a": 1, "b": 2})), host, 81)
    assert capsys.readouterr().out.splitlines() == lines


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            InputError, match=rf"^cannot listen on 127.0.0.1 port {port}: .+\. Choose another --port, or 0 for any\.$"
        ):
            serve_app._listening("127.0.0.1", port)


def test_a_host_that_is_no_address() -> None:
    with pytest.raises(InputError, match=r"^'300\.1\.1\.1' is no address of this machine\. --host takes one"):
        serve_app._listening("300.1.1.1", 0)


def test_which_kind_of_address_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[Any] = []
    monkeypatch.setattr(serve_app.socket, "create_server", lambda place, family: asked_for.append((place, family)))
    serve_app._listening("::1", 3)
    serve_app._listening("localhost", 4)
    assert asked_for == [(("::1", 3), socket.AF_INET6), (("localhost", 4), socket.AF_INET)]


class Place:
    def __enter__(self) -> Place:
        return self

    def __exit__(self, *failure: Any) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return "h", 99


def test_a_server_runs_until_it_is_stopped_and_closes_its_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    desk = SimpleNamespace(close=lambda: done.append("closed"))
    app = SimpleNamespace(desk=desk)
    place = Place()

    class Server:
        def __init__(self, config: Any):
            done.append(config)

        def run(self, sockets: Any) -> None:
            done.append(sockets)
            raise KeyboardInterrupt

    monkeypatch.setattr(serve_app, "application", lambda models, **more: done.append((models, more)) or app)
    monkeypatch.setattr(serve_app, "_listening", lambda host, port: done.append((host, port)) or place)
    monkeypatch.setattr(serve_app, "_announce", lambda app, host, port: done.append(("said", host, port)))
    monkeypatch.setattr(serve_app, "measure", done.append)
    monkeypatch.setattr(serve_app, "settings", lambda app: "settings")
    monkeypatch.setattr(serve_app.uvicorn, "Server", Server)
    serve_app.run(["m"], host="h", port=1, allowed=("x",), limits=Limits(kept=3))  # type: ignore[list-item]
    first = (["m"], {"limits": Limits(kept=3), "allowed": ("x", "h")})
    assert done == [first, ("h", 1), ("said", "h", 99), desk, "settings", [place], "closed"]
    done.clear()
    serve_app.run(["m"], host="h", port=1)  # type: ignore[list-item]
    assert done[0] == (["m"], {"limits": None, "allowed": ("h",)})


def test_every_question_is_timed_on_the_example_of_every_model(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Any] = []
    desk = SimpleNamespace(
        models={"a": "A", "b": "B", "c": "C"},
        count=lambda name, text: len(text),
        measure=lambda *given: timed.append(given),
    )
    about = {
        "A": {"example": "one", "questions": [{"name": "why"}, {"name": "flow"}]},
        "B": {"example": "", "questions": [{"name": "why"}]},
        "C": {"example": "four", "questions": [{"name": "why"}]},
    }
    monkeypatch.setattr(serve_app, "about_model", lambda desk, model: about[model])
    monkeypatch.setattr(serve_app, "example_question", lambda model, text, tokens: (model, text, tokens))
    serve_app.measure(desk)  # type: ignore[arg-type]
    assert timed == [
        ("a", ("A", "one", 3), "why"),
        ("a", ("A", "one", 3), "flow"),
        ("c", ("C", "four", 4), "why"),
    ]
