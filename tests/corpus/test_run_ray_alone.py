"""The parts of a run on Ray without a cluster: where it connects, how many workers it takes, what a worker hands back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

from mixlens.base.errors import InputError, MixlensError  # noqa: E402
from mixlens.runs.corpus import ray_pool, ray_session, ray_worker  # noqa: E402
from mixlens.runs.corpus.plan import Plan  # noqa: E402
from mixlens.runs.corpus.ray_feed import feed_class, tickets_of  # noqa: E402
from mixlens.runs.corpus.ray_tickets import Tickets  # noqa: E402
from mixlens.runs.corpus.ray_watch import WORKER, Watch, WorkerCounts  # noqa: E402
from mixlens.runs.corpus.worker import BadRow, ShardFiles  # noqa: E402

PLAN = Plan(("alti",))
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray deprecates its own settings

# --- the connection ---------------------------------------------------------------------------------------------------


def test_somebody_listens_or_nobody_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ray_session.listens(f"127.0.0.1:{port}") is True
        assert ray_session.listens(f"[127.0.0.1]:{port}") is True
    assert ray_session.listens(f"127.0.0.1:{port}") is False
    assert ray_session.listens("127.0.0.1:99999999") is False
    assert ray_session.listens("local") is True  # no port: Ray's to judge
    assert ray_session.listens("") is True


def test_the_noted_cluster_is_read_from_rays_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert ray_session.noted_address() == ""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("10.0.0.1:6379\n")
    assert ray_session.noted_address() == "10.0.0.1:6379"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> list[dict[str, Any]]:
    """The options of every connection that is asked for; nothing is started."""
    asked: list[dict[str, Any]] = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(ray, "init", lambda **options: asked.append(options))
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 3.0})
    return asked


def pool(address: str = "auto", workers: Any = None, **options: Any) -> ray_pool.Pool:
    return ray_pool.Pool(address, "agreement", options, PLAN, workers)


def test_a_cluster_is_joined_where_one_is_and_begun_where_none_is(
    connections: list[dict[str, Any]], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    assert pool().is_connected_here
    assert connections.pop() == {"address": "local", **quiet}
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        pool(there)
        assert connections.pop() == {"address": there, **quiet}
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray/ray_current_cluster").write_text(there)
        pool()
        assert connections.pop() == quiet  # Ray finds its own note
        monkeypatch.setenv("RAY_ADDRESS", there)
        pool()
        assert connections.pop() == quiet
    with pytest.raises(InputError, match=r"cannot reach a Ray cluster at 'auto': nobody answers there"):
        pool()
    with pytest.raises(InputError, match="nobody answers there"):
        pool(there)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    assert not pool().is_connected_here
    assert not connections


@pytest.mark.parametrize(
    ("resources", "options", "workers", "expected"),
    [
        ({"CPU": 3.0}, {}, None, ((3, 3), 0, "cpu")),
        ({"CPU": 0.5}, {}, None, ((1, 1), 0, "cpu")),
        ({}, {}, None, ((1, 1), 0, "cpu")),
        ({"CPU": 8.0, "GPU": 2.0}, {}, None, ((2, 2), 1, "cuda")),
        ({"CPU": 8.0, "GPU": 2.0}, {"device": "cuda"}, None, ((2, 2), 1, "cuda")),
        ({"CPU": 8.0, "GPU": 2.0}, {"device": "cpu"}, None, ((8, 8), 0, "cpu")),
        ({"CPU": 8.0, "GPU": 2.0}, {}, 5, ((5, 5), 1, "cuda")),
        ({"CPU": 8.0}, {}, (2, 4), ((2, 4), 0, "cpu")),
        ({"CPU": 8.0}, {}, [1, 1], ((1, 1), 0, "cpu")),
    ],
    ids=str,
)
def test_one_worker_for_each_gpu_or_each_cpu_or_as_many_as_asked(
    resources: dict[str, float], options: dict[str, Any], workers: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: resources)
    found = pool(workers=workers, **options)
    assert (found.size, found.gpus, found.device) == expected


@pytest.mark.parametrize(
    "workers", [0, -1, True, 1.5, "2", (0, 2), (2, 1), (1, 2, 3), (1,), (1, True), (True, 1), (1, 2.0)]
)
def test_workers_are_counts(workers: Any) -> None:
    with pytest.raises(InputError, match="workers= must be at least 1"):
        pool(workers=workers)


@pytest.mark.parametrize(("missing", "package"), [("ray", "ray"), ("ray.data", r"ray\[data\]")])
def test_a_package_that_is_missing_is_named(missing: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MixlensError, match=rf"runs on a cluster.*{package}"):
        pool()


# --- while a run lasts ------------------------------------------------------------------------------------------------


def test_settings_of_ray_data_are_of_a_run_and_then_as_before() -> None:
    context = ray.data.DataContext.get_current()
    wanted = {"target_max_block_size": 1, "enable_progress_bars": False, "execution_no_progress_timeout_s": -1}
    there = {name: value for name, value in wanted.items() if hasattr(context, name)}
    assert {"target_max_block_size", "enable_progress_bars"} <= set(there)
    before = {name: getattr(context, name) for name in there}
    with contextlib.suppress(KeyError), ray_session.settings(ray) as lines:
        assert {name: getattr(context, name) for name in there} == there
        for number in range(25):
            ray._private.worker.print_to_stdstream({"lines": [f"line {number}"]})
        ray._private.worker.print_to_stdstream({})
        assert list(lines) == [f"line {number}" for number in range(5, 25)]  # the last twenty
        raise KeyError  # what goes wrong inside changes nothing about the end
    assert {name: getattr(context, name) for name in there} == before


def test_an_interrupt_waits_in_the_main_thread_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ray_session.uninterrupted():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is before
    seen: list[Any] = []

    def elsewhere() -> None:
        with ray_session.uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_cluster_of_our_own_is_begun_with_what_the_user_did_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_worker_niceness", "RAY_USAGE_STATS_ENABLED")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    constants = SimpleNamespace(ENABLE_RAY_CLUSTER=True)
    fake = SimpleNamespace(_private=SimpleNamespace(ray_constants=constants))
    with ray_session.this_machine_alone(fake):
        assert [os.environ[name] for name in names] == ["0"] * 3
        assert constants.ENABLE_RAY_CLUSTER is False
    assert not {*names} & {*os.environ}
    assert constants.ENABLE_RAY_CLUSTER is True
    for name in names:
        monkeypatch.setenv(name, "7")
    with ray_session.this_machine_alone(fake):
        assert [os.environ[name] for name in names] == ["7"] * 3
        assert constants.ENABLE_RAY_CLUSTER is True
    assert [os.environ[name] for name in names] == ["7"] * 3


def test_the_backend_is_silent_unless_the_user_set_its_level(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_BACKEND_LOG_LEVEL", raising=False)
    with ray_session.quiet_backend():
        os.write(2, b"hidden\n")
        assert os.environ["RAY_BACKEND_LOG_LEVEL"] == "fatal"
    os.write(2, b"shown\n")
    assert "RAY_BACKEND_LOG_LEVEL" not in os.environ
    monkeypatch.setenv("RAY_BACKEND_LOG_LEVEL", "info")
    with ray_session.quiet_backend():
        os.write(2, b"asked for\n")
    assert capfd.readouterr().err == "shown\nasked for\n"
    assert os.environ["RAY_BACKEND_LOG_LEVEL"] == "info"


class Core:
    """Ray's core, which ends the process that asks it for anything after its own end."""

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked
        self.let_go = lambda: asked.append("let go")

    def shutdown_driver(self) -> None:
        self.asked.append("ends")
        with pytest.raises(AttributeError, match="let_go"):
            WORKER_OF_RAY.core_worker.let_go()


WORKER_OF_RAY = SimpleNamespace()


def test_while_ray_ends_nobody_reaches_its_core() -> None:
    asked: list[str] = []
    core = WORKER_OF_RAY.core_worker = Core(asked)

    def shutdown() -> None:
        WORKER_OF_RAY.core_worker.let_go()  # it has not ended yet
        WORKER_OF_RAY.core_worker.shutdown_driver()
        del WORKER_OF_RAY.core_worker

    fake = SimpleNamespace(
        _private=SimpleNamespace(worker=SimpleNamespace(global_worker=WORKER_OF_RAY)), shutdown=shutdown
    )
    ray_session.disconnect(fake)
    assert asked == ["let go", "ends"]
    assert vars(core) == {"asked": asked, "let_go": core.let_go}
    fake.shutdown = lambda: asked.append("again")
    ray_session.disconnect(fake)  # it ended before
    assert asked[2:] == ["again"]


@pytest.mark.parametrize("before", [True, False])
def test_a_thread_that_goes_on_after_the_end_starts_no_cluster_of_its_own(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's functions start a cluster where there is none."""
    hook, end, started = ray._private.auto_init_hook, threading.Event(), list[str]()
    monkeypatch.setattr(hook, "enable_auto_connect", before)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda: started.append(threading.current_thread().name))

    def late() -> None:
        hook.auto_init_ray()
        end.wait()
        hook.auto_init_ray()

    with ray_session.settings(ray):
        hook.auto_init_ray()
    assert hook.enable_auto_connect is before
    with ray_session.settings(ray):
        left = threading.Thread(target=late, name="left")
        left.start()
    hook.auto_init_ray()
    end.set()
    left.join()
    after = threading.Thread(target=hook.auto_init_ray, name="after")
    after.start()
    after.join()
    assert started == (["MainThread", "MainThread", "after"] if before else [])


# --- what a worker hands back -----------------------------------------------------------------------------------------


class FakeWorker:
    def window(self, number: int, rows: list[Any], run: str) -> ShardFiles:
        if not rows:
            raise InputError("no rows")
        bad = (BadRow(**dict.fromkeys(BadRow.__dataclass_fields__, 1)),)
        facts: dict[str, Any] = dict.fromkeys(ShardFiles.__dataclass_fields__, 0)
        return ShardFiles(**{**facts, "bad": bad, "content": b"content", "maps": b"maps", "rows": len(rows)})


def remote(worker: Any, window: Any) -> Any:
    """An actor without its cluster: the Feed hands out one window."""
    made = ray_worker.Remote.__new__(ray_worker.Remote)
    made.worker, made.run, made.here = worker, "run", {}
    made.get = lambda call: call()
    made.feed = SimpleNamespace(take=SimpleNamespace(remote=lambda ticket, here: window))
    return made


def test_a_ticket_comes_back_with_the_files_and_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((100.0, 102.5))
    monkeypatch.setattr(ray_worker, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    row = remote(FakeWorker(), ((3, ["a", "b"]),)).row(9)
    assert row["ticket"] == 9
    assert row["seconds"] == 2.5
    assert (row["content"], row["maps"]) == (b"content", b"maps")
    facts = json.loads(row["facts"])
    assert facts["rows"] == 2
    assert facts["bad"] == [dict.fromkeys(BadRow.__dataclass_fields__, 1)]
    assert not {"content", "maps"} & set(facts)


def test_a_ticket_that_is_done_comes_back_empty_and_an_error_by_its_kind() -> None:
    assert remote(FakeWorker(), None).row(9) == {"ticket": 9}
    for made in (remote(FakeWorker(), ((3, []),)), remote(InputError("no rows"), ((3, ["a"]),))):
        row = made.row(9)
        assert row["ticket"] == 9
        assert json.loads(row["facts"]) == {"error": ["InputError", "no rows"]}


def test_a_window_that_is_long_in_coming_is_asked_for_again() -> None:
    """Each call has an end, so that a Feed that died and was started again gets the question too."""
    answers = iter((None, None, "window"))
    asked: list[float] = []

    class GetTimeoutError(Exception):
        pass

    def get(answer: str | None, *, timeout: float | None = None) -> str:
        asked.append(float("inf") if timeout is None else timeout)
        if answer is None:
            raise GetTimeoutError
        return answer

    ray = SimpleNamespace(get=get, exceptions=SimpleNamespace(GetTimeoutError=GetTimeoutError))
    assert ray_worker._waiting(ray)(lambda: next(answers)) == "window"
    assert asked == [60, 60, 60]


# --- the loop over windows --------------------------------------------------------------------------------------------


class Feed:
    """What the actor that hands out windows is asked, and its answer."""

    def __init__(self) -> None:
        self.put_calls: list[Any] = []
        self.answer: Any = (0, 0, [], 0)
        self.put = SimpleNamespace(remote=lambda *asked: self.put_calls.append(asked))
        self.state = SimpleNamespace(remote=lambda: self.answer)


class FakePool(ray_pool.Pool):
    """A pool of two places; rows come from a queue."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.ray = SimpleNamespace(get=lambda what, timeout: what, put=lambda window: window, exceptions=ray.exceptions)
        self.size, self.gpus, self.model = (2, 2), 0, "agreement"
        self.table: dict[str, Any] = {}
        self.watch = Watch(lambda: self.table, "feed")
        self.printed = deque()
        self.loaded, self.answered = 0, time.monotonic()
        self.arrivals: queue.Queue[Any] = queue.Queue()

    def _begin(self, expected: Any, run: str) -> queue.Queue[Any]:
        return self.arrivals


def row_of(ticket: int, rows: int = 2) -> dict[str, Any]:
    return {"ticket": ticket, **remote(FakeWorker(), ((ticket, ["a"] * rows),)).row(ticket)}


def test_shards_come_as_they_are_done_each_once() -> None:
    made, ticks = FakePool(), list[int]()
    for ticket in (1, 0, 1, 2):  # the second answer for ticket 1 is thrown away
        made.arrivals.put(row_of(ticket, rows=ticket + 1))
    files = list(made.shards(iter([(n, ["a"] * (n + 1)) for n in range(3)]), "run", {}, ticks.append))
    assert [one.rows for one in files] == [2, 1, 3]
    assert ticks == [3, 2, 4]  # rows, and the one bad row of each
    assert [one.content for one in files] == [b"content"] * 3
    assert [one.bad for one in files] == [(BadRow(**dict.fromkeys(BadRow.__dataclass_fields__, 1)),)] * 3


def test_few_windows_are_held_at_a_time() -> None:
    made, read = FakePool(), list[int]()

    def windows() -> Any:
        for number in range(50):
            read.append(number)
            yield number, ["a"]

    shards = made.shards(windows(), "run", {}, lambda _: None)
    made.arrivals.put(row_of(0))
    next(shards)
    assert len(read) == ray_pool.AHEAD * 2 + 1
    made.arrivals.put(row_of(1))
    next(shards)
    assert len(read) == ray_pool.AHEAD * 2 + 2


def test_a_ticket_without_an_answer_is_given_out_again() -> None:
    made = FakePool()
    made.arrivals.put({"ticket": 0, "facts": None})
    made.arrivals.put(row_of(1))
    assert len(list(made.shards(iter([(0, ["a", "b"])]), "run", {}, lambda _: None))) == 1
    assert [sorted(windows) for windows, *_ in made.feed.put_calls] == [[0], [1], []]


def test_an_error_and_an_early_end_are_raised() -> None:
    for row, says in (
        (
            {"ticket": 0, "facts": json.dumps({"error": ["InputError", "no such model"]}), "seconds": 0.0},
            "no such model",
        ),
        (None, r"Ray gave up \(it ended before its time\)"),
        (OSError("disk"), r"Ray gave up \(OSError: disk\)"),
        (InputError("refused"), "refused"),
    ):
        made = FakePool()
        made.arrivals.put(row)
        with pytest.raises(MixlensError, match=says):
            list(made.shards(iter([(0, ["a"])]), "run", {}, lambda _: None))


def looked(made: FakePool, tickets: Tickets | None = None) -> tuple[bool, WorkerCounts]:
    return made.look_after(tickets or Tickets(made.ray, made.feed), worked=False)


def test_workers_that_die_while_they_load_are_named_by_their_machines_in_order() -> None:
    made = FakePool()
    machines = [f"machine-{letter}" for letter in "hgfedcba"]
    made.feed.answer = (0, 2 + ray_pool.CRASHES, [{"machine": one} for one in machines * 2], 0)
    assert looked(made)[0] is True
    made.feed.answer = (0, 3 + ray_pool.CRASHES, [{"machine": one} for one in machines * 2], 0)
    with pytest.raises(MixlensError, match=rf"\({', '.join(sorted(machines))}\): 6 began and none came through"):
        looked(made)


def test_a_feed_that_was_started_again_empty_is_told_what_is_out() -> None:
    made = FakePool()
    tickets = Tickets(made.ray, made.feed)
    for number in range(3):
        tickets.give((number, []))
    assert [tickets.take(ticket) for ticket in (0, 2)] == [True, True]
    made.feed.put_calls.clear()
    made.feed.answer = (3, 0, [], 0)
    looked(made, tickets)
    assert not made.feed.put_calls
    made.feed.answer = (2, 0, [], 0)
    looked(made, tickets)
    assert made.feed.put_calls == [({1: ((1, []),)}, [], 3, False)]


def test_the_silence_of_the_feed_is_counted_from_its_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakePool()
    monkeypatch.setattr(ray_pool, "time", SimpleNamespace(monotonic=lambda: 5000.0))
    made.answered = 1.0
    looked(made)
    assert made.answered == 5000.0
    assert made.loaded == 0
    made.feed.answer = (0, 0, [], 2)
    looked(made)
    assert made.loaded == 2
    made.feed.answer = ray.exceptions.GetTimeoutError()
    made.ray.get = fails
    for silence, ends in ((ray_pool.SILENCE, False), (ray_pool.SILENCE + 1, True)):
        made.answered = 5000.0 - silence
        with (
            pytest.raises(MixlensError, match="has not answered for 181 seconds") if ends else contextlib.nullcontext()
        ):
            looked(made)


def fails(*_: Any, **__: Any) -> None:
    """An answer of Ray that does not come in time."""
    raise ray.exceptions.GetTimeoutError


# --- where windows wait -----------------------------------------------------------------------------------------------


def worker_of(name: str) -> dict[str, Any]:
    return {"actor": SimpleNamespace(_actor_id=name), "machine": name}


def test_windows_wait_until_they_are_taken_and_what_is_done_is_gone() -> None:
    async def asked() -> None:
        feed = feed_class()()
        await feed.put({0: "a", 1: "b"}, [], 2, False)
        assert await feed.tickets(1) == 2
        assert await feed.take(1, worker_of("x")) == "b"
        await feed.put({}, [1, 7], 1, False)  # fewer tickets than were told before: the larger number stands
        assert await feed.take(1, worker_of("x")) is None
        assert await feed.take(0, worker_of("y")) == "a"
        assert await feed.state() == (2, 0, [worker_of("x"), worker_of("y")], 0)
        await feed.put({}, [], 0, True)
        await feed.put({}, [], 0, False)  # an end stays one
        assert await feed.tickets(2) == 2
        assert await feed.take(9, worker_of("x")) is None

    asyncio.run(asyncio.wait_for(asked(), 20))


def test_who_asks_for_a_window_that_is_not_there_yet_waits_for_it() -> None:
    async def asked() -> None:
        feed = feed_class()()
        more, window = (asyncio.ensure_future(one) for one in (feed.tickets(0), feed.take(0, worker_of("x"))))
        await asyncio.sleep(0.01)
        assert not more.done()
        assert not window.done()
        await feed.put({0: "a"}, [], 1, False)
        assert (await more, await window) == (1, "a")

    asyncio.run(asyncio.wait_for(asked(), 20))


def test_workers_that_begin_are_counted_until_one_is_ready() -> None:
    async def asked() -> list[Any]:
        feed, seen = feed_class()(), []
        for step in (
            feed.begun(worker_of("x")),
            feed.begun(worker_of("y")),
            feed.ready(),
            feed.begun(worker_of("x")),
            feed.ready(),
        ):
            await step
            given, began, workers, loaded = await feed.state()
            seen.append((given, began, len(workers), loaded))
        return seen

    assert asyncio.run(asked()) == [(0, 1, 1, 0), (0, 2, 2, 0), (0, 0, 2, 1), (0, 1, 2, 1), (0, 0, 2, 2)]


def test_tickets_are_put_out_once_each_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [2, ray.exceptions.GetTimeoutError(), 5, 5]

    def get(at: int, timeout: float) -> int:
        answer = answers.pop(0)
        asked.append(at)
        if isinstance(answer, Exception):
            raise answer
        return answer

    asked: list[int] = []
    monkeypatch.setattr(ray, "get", get)
    feed = SimpleNamespace(tickets=SimpleNamespace(remote=lambda at: at))
    assert list(tickets_of(feed)(None)) == [{"ticket": [number]} for number in range(5)]
    assert asked == [0, 2, 2, 5]


# --- the end ----------------------------------------------------------------------------------------------------------


class Pump:
    """A thread that ends once it has been waited for so many times."""

    def __init__(self, joins: int):
        self.left, self.waited = joins, list[float]()

    def join(self, timeout: float) -> None:
        self.waited.append(timeout)
        self.left -= 1

    def is_alive(self) -> bool:
        return self.left > 0


def closing(*, own: bool, begun: bool, joins: int = 1) -> tuple[FakePool, list[str]]:
    made, steps = FakePool(), list[str]()
    made.is_connected_here, made.settings = own, contextlib.ExitStack()
    made.settings.callback(lambda: steps.append("settings"))
    fake: Any = made.ray
    fake.kill = lambda feed: steps.append("feed killed")
    fake.shutdown = lambda: steps.append("shutdown")
    fake.get = lambda what, timeout: steps.append("told the end")
    made.pump = Pump(joins) if begun else None  # type: ignore[assignment]
    made.table["ab"] = {"ActorClassName": WORKER, "State": "ALIVE"}
    fake.ActorID = bytes.hex
    core = SimpleNamespace(
        kill_actor=lambda name, for_good: steps.append(f"worker {name} killed, for good: {for_good}")
    )
    fake._private = SimpleNamespace(worker=SimpleNamespace(global_worker=SimpleNamespace(core_worker=core)))
    return made, steps


def test_a_pool_that_never_began_closes_its_settings_and_its_own_cluster() -> None:
    for own in (False, True):
        made, steps = closing(own=own, begun=False)
        made.close()
        assert steps == [*(["shutdown"] if own else []), "settings"]
    made, steps = closing(own=False, begun=True)
    made.feed = None
    made.close()
    assert steps == ["settings"]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("joins", [1, 2])
def test_a_pool_that_began_ends_its_work_its_workers_and_its_feed(own: bool, joins: int) -> None:
    made, steps = closing(own=own, begun=True, joins=joins)
    pump: Any = made.pump
    made.close()
    killed = ["worker ab killed, for good: True"] if joins > 1 else []
    assert steps == ["told the end", *killed, "feed killed", *(["shutdown"] if own else []), "settings"]
    assert pump.waited == [0 if own else 5, *([20] if joins > 1 else [])]
    assert made.feed.put_calls == [({}, [], 0, True)]


def test_a_feed_that_does_not_answer_hinders_no_end() -> None:
    made, steps = closing(own=True, begun=True)
    made.ray.get = made.ray.kill = fails  # type: ignore[attr-defined]
    made.close()
    assert steps == ["shutdown", "settings"]
