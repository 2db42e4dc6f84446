"""The local server: right numbers, clear refusals, one worker, bounded memory, and no use by other sites."""

# ruff: noqa: E402
from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi", reason="needs the extra `serve`")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `serve`")

import mixlens
from mixlens.base import errors
from mixlens.serve import app as serve_app
from mixlens.serve import jobs

SENTENCE = "The keys to the cabinet [MASK] rusty."
LIMITS = jobs.Limits(tokens=64, characters=2000, queue=3, seconds=60, kept=4, methods=4)


class Client:
    """Requests as any program sends them, to a server that really listens."""

    def __init__(self, port: int):
        self.port = port

    def raw(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        status, _, body = self.raw("GET", path, **headers)
        return status, json.loads(body)

    def post(self, wanted: Any, **headers: str) -> tuple[int, Any]:
        given = {"Content_Type": "application/json", **headers}
        status, _, body = self.raw("POST", "/api/jobs", json.dumps(wanted).encode(), **given)
        return status, json.loads(body)

    def done(self, number: str, seconds: float = 60) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            status, told = self.get(f"/api/jobs/{number}")
            assert status == 200, told
            if told["state"] in ("done", "failed", "cancelled"):
                return told
            time.sleep(0.02)
        raise AssertionError(f"job {number} is still {told}")


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Client, Any]]:
    app = serve_app.application([mixlens.load("agreement"), mixlens.load("sentiment")], limits=LIMITS)
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


@pytest.fixture
def desk(served: tuple[Client, Any]) -> jobs.Desk:
    return served[1].desk


# --- what it gives ----------------------------------------------------------------------------------------------------


def test_the_numbers_are_the_librarys(client: Client) -> None:
    status, made = client.post({"text": SENTENCE, "methods": ["alti", "attcat"], "target": "were", "foil": "was"})
    assert status == 202
    assert client.done(made["id"])["state"] == "done"
    model = mixlens.load("agreement")
    trace = model.trace(SENTENCE)
    for sheet, layer, wanted in (
        ("rollout", 2, mixlens.mix(trace, "alti").rollout().scores[1]),
        ("layer", 3, mixlens.mix(trace, "alti").scores[2]),
    ):
        status, told = client.get(f"/api/jobs/{made['id']}/scores?method=alti&layer={layer}&sheet={sheet}")
        assert status == 200
        np.testing.assert_allclose(told["scores"], wanted.numpy(), atol=1e-6)
        assert told["tokens"] == list(trace.tokens)
    _, told = client.get(f"/api/jobs/{made['id']}/scores?method=attcat")
    np.testing.assert_allclose(
        told["scores"][0], mixlens.attribute(trace, "attcat", target="were", foil="was").scores, atol=1e-5
    )
    _, entry = client.get(f"/api/jobs/{made['id']}/page")
    assert [one["name"] for one in entry["methods"]] == ["alti", "attcat"]
    assert entry["prediction"][0][0] == trace.prediction()[0][0]


def test_classification_is_served_too(client: Client) -> None:
    status, made = client.post({"model": "sentiment", "text": "a good film", "methods": ["globenc", "grad_x_input"]})
    assert status == 202
    assert client.done(made["id"])["state"] == "done"
    _, entry = client.get(f"/api/jobs/{made['id']}/page")
    assert sum(share for _, share in entry["prediction"]) == pytest.approx(1, abs=1e-4)


def test_models_and_methods_are_listed(client: Client) -> None:
    _, told = client.get("/api/models")
    assert [one["name"] for one in told["models"]] == ["agreement", "sentiment"]
    assert told["models"][0]["mask"] == "[MASK]"
    assert told["models"][0]["max_tokens"] == LIMITS.tokens
    _, told = client.get("/api/methods")
    assert {one["name"] for one in told["methods"]} == set(mixlens.methods())


def test_the_api_describes_itself_without_a_network(client: Client) -> None:
    _, told = client.get("/openapi.json")
    assert {"/api/jobs", "/api/jobs/{number}", "/api/models", "/api/methods"} <= set(told["paths"])
    status, headers, body = client.raw("GET", "/docs")
    page = body.decode()
    assert status == 200
    assert all(path in page for path in told["paths"])
    assert not re.search(r"<script|https?://", page)
    assert "default-src 'none'" in headers["content-security-policy"]


def test_the_page_may_run_only_its_own_script_and_talk_to_its_own_server(client: Client) -> None:
    status, headers, body = client.raw("GET", "/")
    policy = headers["content-security-policy"]
    assert status == 200
    for rule in ("default-src 'none'", "script-src 'sha256-", "connect-src 'self'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert b"startForm(" in body


# --- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "status", "message"),
    [
        ({"text": ""}, 422, "field 'text' is empty"),
        ({"text": "  \n "}, 422, "field 'text' is empty"),
        ({"text": 3}, 422, "text: Input should be a valid string. Got 3."),
        ({"text": None}, 422, "text"),
        ({}, 422, "text: Field required"),
        ([], 422, "the body"),
        ({"text": "x", "method": "alti"}, 422, "method: Extra inputs are not permitted"),
        ({"text": "x", "methods": "alti"}, 422, "methods: Input should be a valid list"),
        ({"text": "x", "methods": []}, 422, "no method was asked for"),
        ({"text": "x", "methods": ["alit"]}, 422, "Did you mean 'alti'"),
        ({"text": "x", "methods": ["discretized_integrated_gradients:strategy=zz"]}, 422, "unknown strategy 'zz'"),
        ({"text": "x", "methods": ["alti:head=3"]}, 422, "no option 'head'"),
        ({"text": "x", "methods": ["alti", "norm", "globenc", "random", "attention"]}, 422, "4 are allowed at once"),
        ({"text": "x", "model": "bert"}, 404, "no model 'bert' is served. Known: agreement, sentiment."),
        ({"text": "keys " * 80}, 422, "this page reads at most 64"),
        ({"text": "x" * 2001}, 413, "field 'text' has 2,001 characters; 2,000 are allowed"),
        ({"text": "x", "pair": "x" * 2001}, 413, "field 'pair' has 2,001 characters"),
        ({"text": "\ud800"}, 422, "half a character"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(client: Client, wanted: Any, status: int, message: str) -> None:
    got, told = client.post(wanted)
    assert (got, message in told["error"]) == (status, True), told


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x" * 2001, "2,001 characters; 2,000 are allowed"),
        ("", "is empty"),
        (" \n", "is empty"),
        ("a\ud800", "half a character"),
    ],
)
def test_a_run_refuses_the_same_text_in_the_same_words(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("mixlens.runs.corpus.rows.LIMITS", errors.Limits(LIMITS.characters, LIMITS.methods))
    mixlens.run([{"text": text}], out=tmp_path / "run", progress=False)
    reason = json.loads((tmp_path / "run/errors.jsonl").read_text())["reason"]
    assert says in reason
    assert client.post({"text": text})[1]["error"] == reason


def test_a_run_refuses_too_many_tokens_in_the_same_words(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    mixlens.run(["a " * 900], out=tmp_path / "run", progress=False)
    desk = jobs.Desk([mixlens.load("agreement")], jobs.Limits(tokens=10_000))
    try:
        with pytest.raises(errors.InputError, match="'agreement' reads at most") as refused:
            desk.read("agreement", "a " * 900)
    finally:
        desk.close()
    reason = json.loads((tmp_path / "run/errors.jsonl").read_text())["reason"]
    assert reason == f"{str(refused.value).removesuffix('.')}, or let it be cut: --truncate (truncate=True)."


@pytest.mark.parametrize(
    ("methods", "says"),
    [
        (["alti", "norm", "globenc", "random", "attention"], "4 are allowed at once"),
        (["alit"], "Did you mean 'alti'"),
        ([], "no method"),
    ],
)
def test_a_run_refuses_the_same_methods_in_the_same_words(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, methods: list[str], says: str
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("mixlens.runs.corpus.plan.LIMITS", errors.Limits(LIMITS.characters, LIMITS.methods))
    with pytest.raises(errors.InputError, match=says) as refused:
        mixlens.run(["a [MASK]"], methods=methods, out=tmp_path / "run", progress=False)
    assert client.post({"text": "a [MASK]", "methods": methods})[1]["error"] == str(refused.value)


def test_what_only_the_model_can_refuse_fails_with_a_reason(client: Client) -> None:
    _, made = client.post({"text": SENTENCE, "methods": ["attcat"], "target": "unhappyish"})
    told = client.done(made["id"])
    assert told["state"] == "failed"
    assert "not one token" in told["error"]
    status, refused = client.get(f"/api/jobs/{made['id']}/page")
    assert status == 409
    assert "is failed" in refused["error"]


def test_bodies_that_are_no_json_or_too_large_are_refused(client: Client) -> None:
    sent = {"Content_Type": "application/json"}
    status, _, body = client.raw("POST", "/api/jobs", b"{not json", **sent)
    assert (status, "error" in json.loads(body)) == (422, True)
    status, _, body = client.raw("POST", "/api/jobs", b" " * (LIMITS.body + 1), **sent)
    assert (status, "over" in json.loads(body)["error"]) == (413, True)
    status, _, body = client.raw("POST", "/api/jobs", b'{"text": "x"}', Content_Type="text/plain")
    assert (status, "application/json" in json.loads(body)["error"]) == (415, True)


def test_a_body_of_unknown_length_is_cut_off(client: Client) -> None:
    """One byte more than is allowed, and no end: the server answers without waiting for more, and nothing is in flight
    then."""
    head = b"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"  # noqa: E501
    left = LIMITS.body + 1
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as line:
        line.sendall(head)
        while left:
            size = min(left, 10_000)
            line.sendall(f"{size:x}\r\n".encode() + b" " * size + b"\r\n")
            left -= size
        answer = http.client.HTTPResponse(line)
        answer.begin()
        assert answer.status == 413
        assert "over" in json.loads(answer.read())["error"]
    assert client.get("/api/models")[0] == 200


def test_what_is_not_there_is_a_404_in_json(client: Client) -> None:
    for path in ("/nothing", "/api/jobs/nothing", "/api/jobs/nothing/page", "/api/../etc/passwd"):
        status, told = client.get(path)
        assert status == 404
        assert "error" in told
    status, _, body = client.raw("PUT", "/api/jobs", b"{}", Content_Type="application/json")
    assert (status, "not allowed" in json.loads(body)["error"]) == (405, True)


def test_scores_that_do_not_exist_are_refused(client: Client) -> None:
    _, made = client.post({"text": SENTENCE, "methods": ["alti"]})
    client.done(made["id"])
    path = f"/api/jobs/{made['id']}/scores"
    for asked, status, message in (
        ("", 422, "method: Field required"),
        ("?method=globenc", 404, "Known: alti"),
        ("?method=alti&layer=99", 422, "layers 1 to"),
        ("?method=alti&layer=x", 422, "valid integer"),
        ("?method=alti&sheet=flow", 422, "Known: layer, rollout"),
    ):
        got, told = client.get(path + asked)
        assert (got, message in told["error"]) == (status, True), told


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_sites_cannot_drive_it(client: Client, headers: dict[str, str]) -> None:
    status, told = client.post({"text": SENTENCE}, **headers)
    assert status in (400, 403), told
    status, _, body = client.raw("GET", "/api/models", **headers)
    assert status in (400, 403), body
    assert b"agreement" not in body


def test_its_own_page_can(client: Client) -> None:
    origin = f"http://127.0.0.1:{client.port}"
    status, made = client.post({"text": SENTENCE, "methods": ["random"]}, Origin=origin, Sec_Fetch_Site="same-origin")
    assert status == 202
    client.done(made["id"])
    status, headers, _ = client.raw("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")  # a link to it
    assert status == 200
    assert not any(name.startswith("access-control") for name in headers)


# --- one worker -------------------------------------------------------------------------------------------------------


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The worker stands still at every text until the event is set, but can be stopped."""
    going = threading.Event()

    def slow(model: Any, text: Any, *, note: Any, **_: Any) -> Any:
        while not going.is_set():
            note("standing still", 0.5)
            torch.zeros(1).add(1)
            time.sleep(0.01)
        raise errors.InputError("went on")

    monkeypatch.setattr("mixlens.serve.jobs.gather", slow)
    yield going
    going.set()


def ended(desk: jobs.Desk, number: str, seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        job = desk.job(number)
        if job is None or job.ended is not None:
            return job
        time.sleep(0.01)
    raise AssertionError("it does not end")


def test_a_full_queue_says_so_and_empties(client: Client, desk: jobs.Desk, held_up: threading.Event) -> None:
    taken = []
    for _ in range(20):
        status, told = client.post({"text": SENTENCE, "methods": ["alti"]})
        if status == 202:
            taken.append(told["id"])
        else:
            assert status == 429
            assert "queue is full" in told["error"]
    assert LIMITS.queue <= len(taken) <= LIMITS.queue + 1
    _, _, _ = client.raw("GET", "/api/models")
    held_up.set()
    assert [ended(desk, number).state for number in taken] == ["failed"] * len(taken)
    status, told = client.post({"text": SENTENCE, "methods": ["alti"]})
    assert status == 202
    ended(desk, told["id"])  # before another test makes the worker stand still


def test_running_and_waiting_jobs_are_cancelled(client: Client, desk: jobs.Desk, held_up: threading.Event) -> None:
    numbers = [client.post({"text": SENTENCE})[1]["id"] for _ in range(2)]
    end = time.monotonic() + 60
    while desk.job(numbers[0]).state != "running" and time.monotonic() < end:  # type: ignore[union-attr]
        time.sleep(0.01)
    assert desk.job(numbers[0]).state == "running"  # type: ignore[union-attr]
    _, told = client.get(f"/api/jobs/{numbers[1]}")
    assert (told["state"], told["ahead"]) == ("waiting", 1)
    assert json.loads(client.raw("DELETE", f"/api/jobs/{numbers[1]}")[2])["state"] == "cancelled"
    client.raw("DELETE", f"/api/jobs/{numbers[0]}")
    assert ended(desk, numbers[0]).state == "cancelled"


def test_an_error_inside_does_not_end_the_worker(
    monkeypatch: pytest.MonkeyPatch, desk: jobs.Desk, client: Client
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a secret path")

    with monkeypatch.context() as patch:
        patch.setattr("mixlens.serve.jobs.gather", broken)
        job = ended(desk, client.post({"text": SENTENCE})[1]["id"])
    assert job.state == "failed"
    assert "ZeroDivisionError" in job.error
    assert "secret" not in job.error
    assert client.done(client.post({"text": SENTENCE, "methods": ["alti"]})[1]["id"])["state"] == "done"


def test_a_stop_comes_between_operations_and_leaves_gradients_as_they_were() -> None:
    calls = 0

    def reason() -> str | None:
        nonlocal calls
        calls += 1
        return "enough" if calls > 5 else None

    model = mixlens.load("agreement")
    for name in ("value_zeroing", "integrated_gradients"):
        calls = 0
        with pytest.raises(jobs.StoppedError, match="enough"), jobs.Stoppable(reason):
            mixlens.attribute(model.trace(SENTENCE), name)
        assert torch.is_grad_enabled()
        assert model.hf_model.config._attn_implementation != "mixlens"
        hooks = [m for m in model.hf_model.modules() if m._forward_hooks or m._forward_pre_hooks]
        assert hooks == []
    with jobs.Stoppable(lambda: None):
        again = mixlens.attribute(model.trace(SENTENCE), "value_zeroing")
    torch.testing.assert_close(again.scores, mixlens.attribute(model.trace(SENTENCE), "value_zeroing").scores)


def test_what_tidies_up_after_a_stop_runs() -> None:
    tidied = []

    def work() -> None:
        try:
            torch.zeros(1).add(1)
        finally:
            tidied.append(torch.ones(1).mul(2))

    with pytest.raises(jobs.StoppedError), jobs.Stoppable(lambda: "enough"):
        work()
    assert float(tidied[0]) == 2
    stop = []
    with jobs.Stoppable(lambda: "enough" if stop else None), torch.no_grad():
        stop.append(True)  # the very next thing is the switch back, and that is not stopped
    assert torch.is_grad_enabled()


def test_only_the_last_results_are_kept(client: Client, desk: jobs.Desk) -> None:
    numbers = []
    for _ in range(LIMITS.kept + 4):
        _, made = client.post({"text": "keys [MASK]", "methods": ["random"]})
        numbers.append(made["id"])
        client.done(made["id"])
    assert client.get(f"/api/jobs/{numbers[0]}")[0] == 404
    assert client.get(f"/api/jobs/{numbers[-1]}/page")[0] == 200
    assert len(desk._jobs) <= LIMITS.kept + LIMITS.queue + 2


def test_bad_servers_are_refused() -> None:
    model = mixlens.load("agreement")
    with pytest.raises(errors.InputError, match="two models are called"):
        jobs.Desk([model, model], jobs.Limits())
    with pytest.raises(errors.InputError, match="no model"):
        jobs.Desk([], jobs.Limits())
    taken = socket.create_server(("127.0.0.1", 0))
    with pytest.raises(errors.InputError, match="cannot listen"):
        serve_app.run([model], host="127.0.0.1", port=taken.getsockname()[1])
    taken.close()


# --- a flood ----------------------------------------------------------------------------------------------------------


def resident(process: int) -> float:
    """Megabytes in memory."""
    with open(f"/proc/{process}/status") as file:
        return next(int(line.split()[1]) / 1000 for line in file if line.startswith("VmRSS"))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs Linux: memory is read from /proc")
def test_a_flood_is_refused_clearly_and_the_server_stays_up() -> None:
    command = [
        sys.executable,
        "-m",
        "mixlens",
        "serve",
        "-m",
        "agreement",
        "--port",
        "0",
        "--queue",
        "4",
        "--time-limit",
        "30",
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            assert found is not None, line + str(
                process.stderr.read() if process.stderr and process.poll() is not None else ""
            )
            client = Client(int(found[1]))
            first = client.post({"text": SENTENCE, "methods": ["alti"]})[1]["id"]
            assert client.done(first)["state"] == "done"
            before = resident(process.pid)
            wanted = {
                "text": "keys " * 50 + "[MASK]",
                "methods": ["alti", "hta", "value_zeroing", "integrated_gradients"],
            }

            def one(_: int) -> tuple[int, Any]:
                try:
                    return client.post(wanted)
                except (ConnectionError, http.client.HTTPException):
                    return 0, {}

            with ThreadPoolExecutor(200) as pool:
                answers = list(pool.map(one, range(200)))
            counts = Counter(status for status, _ in answers)
            assert set(counts) <= {202, 429, 503}, counts
            assert 1 <= counts[202] <= 40  # the worker goes on taking texts from the queue while they come
            assert all("error" in told for status, told in answers if status != 202)
            assert resident(process.pid) < before + 400
            for status, told in answers:
                if status == 202:
                    client.raw("DELETE", f"/api/jobs/{told['id']}")
            last = client.post({"text": SENTENCE, "methods": ["alti"]})
            assert last[0] == 202
            assert client.done(last[1]["id"])["state"] == "done"
            assert process.poll() is None
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=15)
    assert "Traceback" not in errors
