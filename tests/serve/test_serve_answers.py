"""What the server answers, part by part and without a server: jobs, questions, addresses, and the work behind each question."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi", reason="needs the extra `serve`")

from fastapi import FastAPI

import mixlens
from mixlens.answers.choice import FILLERS
from mixlens.answers.value import Note
from mixlens.base.errors import InputError, LongError
from mixlens.serve import answers, app, describe, questions, work
from mixlens.serve.guard import Refusal
from mixlens.serve.jobs import FullError, Job, Limits
from mixlens.serve.routes import add_error_answers, add_routes
from mixlens.serve.schemas import Counted, Wanted
from mixlens.serve.times import Times
from mixlens.serve.work import Answered
from mixlens.show.page_entry import entry
from mixlens.types import Attribution, Map


def refused(call: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(Refusal) as refusal:
        call()
    assert str(refusal.value) == refusal.value.body["error"]
    return refusal.value.status, refusal.value.body


def desk_of(*jobs: Job, **more: Any) -> Any:
    facts = {
        "limits": Limits(kept=3),
        "job": {job.id: job for job in jobs}.get,
        "ahead": lambda job: 5,
        "behind": lambda job: 6,
    }
    return SimpleNamespace(**facts, **more)


def job(name: str = "j", **facts: Any) -> Job:
    return Job(name, None, {}, created=1.0, started=2.0, ended=4.5, **facts)  # type: ignore[arg-type]


# --- jobs -------------------------------------------------------------------------------------------------------------


def test_a_job_by_its_id() -> None:
    one = job()
    assert answers.job_of(desk_of(one), "j") is one
    message = "no job 'k'. The last 3 results are kept; ask again with POST /api/jobs."
    assert refused(lambda: answers.job_of(desk_of(one), "k")) == (404, {"error": message})
    assert refused(lambda: answers.job_of(desk_of(), "k" * 200))[1]["error"].startswith(
        f"no job {'k' * 117 + '...'!r}. "
    )


def test_results_and_answers_of_jobs() -> None:
    desk = desk_of(
        *(job("maps", entry={"a": 1}), job("failed", state="failed", error="no."), job("waiting")),
        *(job("why", question="why", answer="an answer"), job("open", question="why", state="running")),
        job("bad", question="flow", state="failed", error="no."),
    )
    assert answers.entry_of(desk, "maps") == {"a": 1}
    assert answers.answer_of(desk, "why") == "an answer"
    told = [refused(lambda name=name: answers.entry_of(desk, name)) for name in ("failed", "waiting", "why")]
    assert told == [
        (409, {"error": "job 'failed' is failed (no.): there is no result. See /api/jobs/failed."}),
        (409, {"error": "job 'waiting' is waiting: there is no result. See /api/jobs/waiting."}),
        (409, {"error": "job 'why' is waiting: there is no result. See /api/jobs/why."}),
    ]
    told = [refused(lambda name=name: answers.answer_of(desk, name)) for name in ("maps", "open", "bad")]
    assert told == [
        (409, {"error": "job 'maps' has maps, and no answer. See /api/jobs/maps/page."}),
        (409, {"error": "job 'open' is running: there is no answer. See /api/jobs/open."}),
        (409, {"error": "job 'bad' is failed (no.): there is no answer. See /api/jobs/bad."}),
    ]


STANDING = {
    **{
        "id": "j",
        "state": "done",
        "ahead": 5,
        "seconds": 2.5,
        "progress": {"doing": "x", "share": 0.5},
        "error": "e",
        "question": "flow",
    },
    **{"steps": ["a", "b"], "begun": 1, "within": "", "known": [["w", 0.25]], "behind": 6, "notes": ["n"]},
}


def full_job() -> Job:
    facts = {
        "state": "done",
        "doing": "x",
        "share": 0.5,
        "error": "e",
        "question": "flow",
        "steps": ["a", "b"],
        "begun": 1,
    }
    return job(**facts, known=[("w", 0.25)], notes=("n",), answer=Answered({"kind": "flow"}, PAGE))  # type: ignore[arg-type]


PAGE = '<head><meta http-equiv="Content-Security-Policy" content="mine"></head>'


def test_where_a_job_stands() -> None:
    assert json.loads(answers.standing_of(desk_of(), full_job()).model_dump_json()) == STANDING


# --- plain numbers ----------------------------------------------------------------------------------------------------


def an_entry() -> Any:
    scores = torch.tensor([[[0.5, 0.5], [0.25, 0.75]], [[1.0, 0.0], [0.5, 0.5]]])
    a_map = Map(scores, ("a", "b"), "alti", {})
    return entry([a_map, Attribution(torch.tensor([1.0, -2.0]), ("a", "b"), "attcat", {})], room=100_000)


EXACT = "every number, in 32 bits (7 digits)"


def test_scores_as_plain_numbers() -> None:
    made = an_entry()
    last = [[1.0, 0.0], [0.5, 0.5]]
    assert answers.plain_scores(made, "alti", None, "layer").model_dump() == {
        **{"method": "alti", "tokens": ["a", "b"], "layer": 2, "sheet": "layer", "scores": last, "precision": EXACT},
    }
    assert answers.plain_scores(made, "alti", 1, "layer").scores == [[0.5, 0.5], [0.25, 0.75]]
    assert answers.plain_scores(made, "alti", 2, "rollout").scores == [[0.5, 0.5], [0.375, 0.625]]
    assert answers.plain_scores({**made, "holds": "little"}, "alti", 2, "rollout").precision == "little"
    assert answers.plain_scores({**made, "holds": "little"}, "attcat", 7, "x").model_dump() == {
        **{
            "method": "attcat",
            "tokens": ["a", "b"],
            "layer": None,
            "sheet": None,
            "scores": [[1.0, -2.0]],
            "precision": EXACT,
        },
    }
    unknown = "this result has no method 'altj'. Did you mean 'alti'? Known: alti, attcat."
    assert refused(lambda: answers.plain_scores(made, "altj", None, "layer")) == (
        404,
        {"error": unknown, "allowed": ["alti", "attcat"]},
    )
    sheet = "'alti' has no sheet 'layers'. Did you mean 'layer'? Known: layer, rollout."
    assert refused(lambda: answers.plain_scores(made, "alti", None, "layers")) == (422, {"error": sheet})
    for layer in (0, 3):
        line = f"layer {layer} does not exist: there are layers 1 to 2."
        assert refused(lambda layer=layer: answers.plain_scores(made, "alti", layer, "layer")) == (422, {"error": line})


# --- questions --------------------------------------------------------------------------------------------------------


class Desk:
    """A desk that takes every job and says what it was given."""

    def __init__(self, *tasks: str, full: bool = False, notes: tuple[str, ...] = ()) -> None:
        self.models = {task: model_of(task) for task in tasks or ("masked-lm",)}
        self.limits, self.taken = Limits(methods=2, characters=30, queue=4), []
        self.full, self.notes = (lambda: full), (lambda name, text: list(notes))
        self.failure: Exception | None = None

    def tokens_at_most(self, model: Any) -> int:
        return 6

    def count(self, name: str, text: Any) -> int:
        return len(" ".join(text).split() if isinstance(text, tuple) else text.split())

    def read(self, name: str, text: Any) -> int:
        if self.count(name, text) > 6:
            raise InputError("too long.")
        if text == "bad text":
            raise InputError("not read.")
        return self.count(name, text)

    def cut(self, name: str, text: Any) -> Any:
        return ("cut", "A line.")

    def submit(self, *given: Any) -> Any:
        if self.failure:
            raise self.failure
        self.taken.append(given)
        return "job"


def model_of(task: str) -> Any:
    labels = {0: "negative", 1: "positive"}
    tokenizer = SimpleNamespace(
        mask_token="[M]", mask_token_id=3, pad_token_id=0, unk_token_id=1, pad_token="[P]", unk_token="[U]"
    )
    config = SimpleNamespace(id2label=labels, label2id={name: number for number, name in labels.items()}, num_labels=2)
    hf_model = SimpleNamespace(config=config)
    return SimpleNamespace(
        name=task,
        task=task,
        tokenizer=tokenizer,
        mask_id=3,
        max_tokens=9,
        hf_model=hf_model,
        classes=list(labels.values()),
    )


def wanted(**facts: Any) -> Wanted:
    return Wanted(**{"text": "one two", **facts})


def test_maps_of_a_text() -> None:
    desk: Any = Desk("masked-lm", "causal-lm", notes=("No mask.",))
    asked = wanted(methods=["alti", "attcat"], query=1, target="7", foil="w", pair="three")
    assert questions.submitted(desk, asked) == "job"
    question = {"text": ("one two", "three"), "methods": ["alti", "attcat"], "query": 1, "target": 7, "foil": "w"}
    assert desk.taken == [("masked-lm", question, ["No mask."])]
    questions.submitted(desk, wanted(model="causal-lm", truncate=True, methods=["alti"]))
    question = {"text": "cut", "methods": ["alti"], "query": None, "target": "predicted", "foil": None}
    assert desk.taken[1:] == [("causal-lm", question, ["A line.", "No mask."])]


def test_other_questions_of_a_text() -> None:
    desk: Any = Desk("causal-lm")
    questions.submitted(desk, wanted(question="why", target="x"))
    usual = {"methods": None, "target": "x", "foil": None, "query": None, "filler": None, "generate": 20}
    assert desk.taken == [("causal-lm", {**usual, "text": "one two", "cut": None, "tokens": 2}, [], "why")]
    questions.submitted(
        desk, wanted(question="written", methods=["alti"], truncate=True, generate=3, filler="mask", query=0, foil=4)
    )
    mine = {"methods": ["alti"], "target": None, "foil": 4, "query": 0, "filler": "mask", "generate": 3}
    assert desk.taken[1:] == [
        ("causal-lm", {**mine, "text": "cut", "cut": "A line.", "tokens": 1}, ["A line."], "written")
    ]
    example = questions.example_question(model_of("causal-lm"), "text", 8)
    assert example == {**usual, "target": None, "text": "text", "cut": None, "tokens": 8}


def test_what_is_refused_of_a_question() -> None:
    no_mask = "this model fills in [M], and the text has none. Put [M] where a word is missing."
    cases: list[tuple[Any, Wanted, int, dict[str, Any]]] = [
        (
            Desk(full=True),
            wanted(),
            429,
            {"error": "the queue is full: 4 texts are waiting. Try again in a few seconds."},
        ),
        (
            Desk(),
            wanted(model="maskedlm"),
            404,
            {
                "error": "no model 'maskedlm' is served. Did you mean 'masked-lm'? Known: masked-lm.",
                "allowed": ["masked-lm"],
            },
        ),
        (Desk(), wanted(text=" "), 422, {"error": "field 'text' is empty."}),
        (Desk(), wanted(pair=" "), 422, {"error": "field 'pair' is empty."}),
        (
            Desk(),
            wanted(text="x" * 31),
            413,
            {"error": "field 'text' has 31 characters; 30 are allowed. Shorten or split it.", "allowed": 30},
        ),
        (
            Desk(),
            wanted(pair="x" * 31),
            413,
            {"error": "field 'pair' has 31 characters; 30 are allowed. Shorten or split it.", "allowed": 30},
        ),
        (
            Desk(),
            wanted(methods=["alti", "attcat", "globenc"]),
            422,
            {"error": "3 methods were asked for; 2 are allowed at once."},
        ),
        (
            Desk(),
            wanted(methods=["alti"], filler="pad"),
            422,
            {"error": "filler goes with a question: send question too (why, flow, methods, written)."},
        ),
        (
            Desk(),
            wanted(methods=["alti"], generate=3),
            422,
            {"error": "generate goes with a question: send question too (why, flow, methods, written)."},
        ),
        (
            Desk(),
            wanted(text="w " * 7, methods=["alti"]),
            422,
            {"error": "too long.", "kind": "too_long", "field": "text", "tokens": 7, "most": 6},
        ),
        (Desk(), wanted(text="bad text", methods=["alti"]), 422, {"error": "not read."}),
        (
            Desk(notes=("x",)),
            wanted(question="why"),
            422,
            {"error": no_mask, "kind": "no_mask", "field": "text", "mask": "[M]"},
        ),
        (
            Desk(notes=("x",)),
            wanted(question="methods"),
            422,
            {"error": no_mask, "kind": "no_mask", "field": "text", "mask": "[M]"},
        ),
    ]
    for desk, asked, status, body in cases:
        assert refused(lambda desk=desk, asked=asked: questions.submitted(desk, asked)) == (status, body)
        assert desk.taken == []
    for more in ({"question": "flow"}, {"question": "why", "query": 0}):
        desk = Desk(notes=("x",))
        assert questions.submitted(desk, wanted(**more)) == "job"
    desk = Desk()
    desk.failure = FullError("full.")
    assert refused(lambda: questions.submitted(desk, wanted(methods=["alti"]))) == (429, {"error": "full."})  # type: ignore[arg-type]


def test_a_class_that_is_not_known_is_refused_at_once() -> None:
    desk: Any = Desk("classification")
    questions.submitted(desk, wanted(question="why", target="positive", foil="0"))
    assert (desk.taken[0][1]["target"], desk.taken[0][1]["foil"]) == (1, 0)
    status, body = refused(lambda: questions.submitted(desk, wanted(question="why", foil="good")))
    assert (status, body["kind"], body["field"]) == (422, "unknown_class", "foil")


def test_targets_as_they_are_named() -> None:
    answering, other = model_of("question-answering"), model_of("masked-lm")
    assert [questions.target_of(answering, name) for name in ("3,5", "3, 5", "3", "a,b", "1,2,3", 4, "3,b", "a,3")] == [
        (3, 5),
        (3, 5),
        3,
        "a,b",
        "1,2,3",
        4,
        "3,b",
        "a,3",
    ]
    assert [questions.target_of(other, name) for name in ("3,5", "12", "-1", "w", 4)] == ["3,5", 12, "-1", "w", 4]


def test_tokens_are_counted() -> None:
    desk: Any = Desk("masked-lm", "causal-lm", notes=("n",))
    assert questions.counted(desk, Counted(text=" \n")).model_dump() == {"tokens": 0, "most": 6, "notes": []}
    assert questions.counted(desk, Counted(text="a b", pair="c", model="causal-lm")).model_dump() == {
        "tokens": 3,
        "most": 6,
        "notes": ["n"],
    }
    assert refused(lambda: questions.counted(desk, Counted(text="x" * 31)))[0] == 413
    assert refused(lambda: questions.counted(desk, Counted(text="x", pair="")))[0] == 422
    assert refused(lambda: questions.counted(desk, Counted(text="x", model="y")))[0] == 404
    assert questions._refusal_of(LongError("l"), Limits(characters=8)).body == {"error": "l", "allowed": 8}


# --- addresses --------------------------------------------------------------------------------------------------------


def asked(server: Any, path: str, method: str = "GET", body: Any = None) -> tuple[int, dict[str, str], Any]:
    path, _, query = path.partition("?")
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
    }
    scope |= {
        "query_string": query.encode(),
        "headers": headers,
        "server": ("localhost", 80),
        "client": ("c", 1),
        "root_path": "",
    }
    content = b"" if body is None else json.dumps(body).encode()
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(server(scope, receive, send))
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"] if name != b"content-length"}
    text = b"".join(one.get("body", b"") for one in sent[1:]).decode()
    return sent[0]["status"], told, json.loads(text) if told.get("content-type") == "application/json" else text


@pytest.fixture(scope="module")
def server() -> FastAPI:
    made = FastAPI(title="t", description="About.", docs_url=None, redoc_url=None)
    maps = job("maps", entry=an_entry())
    desk = desk_of(full_job(), maps, models={}, cancel=lambda one: setattr(one, "error", "gone"))
    add_routes(made, desk)
    add_error_answers(made)
    return made


def test_every_address_answers(server: FastAPI) -> None:
    plain = {"content-type": "application/json"}
    assert asked(server, "/api/jobs/j") == (200, plain, STANDING)
    assert asked(server, "/api/jobs/j/answer") == (200, plain, {"kind": "flow"})
    html = {"content-security-policy": "mine; frame-ancestors 'none'", "content-type": "text/html; charset=utf-8"}
    assert asked(server, "/api/jobs/j/file") == (200, html, PAGE)
    saved = {**html, "content-disposition": 'attachment; filename="mixlens-answer.html"'}
    assert asked(server, "/api/jobs/j/file?save=true") == (200, saved, PAGE)
    assert asked(server, "/api/jobs/maps/page") == (200, plain, json.loads(json.dumps(an_entry())))
    status, _, told = asked(server, "/api/jobs/maps/scores?method=alti")
    assert (status, told["sheet"], told["layer"], told["scores"]) == (200, "rollout", 2, [[0.5, 0.5], [0.375, 0.625]])
    status, _, told = asked(server, "/api/jobs/maps/scores?method=alti&layer=1&sheet=layer")
    assert (told["sheet"], told["layer"], told["scores"]) == ("layer", 1, [[0.5, 0.5], [0.25, 0.75]])
    assert asked(server, "/api/jobs/maps", "DELETE")[2]["error"] == "gone"
    assert asked(server, "/api/methods")[2] == {"methods": json.loads(json.dumps(describe.about_methods()))}
    limits = {"tokens": 512, "characters": 20_000, "methods": 8, "seconds": 120.0}
    assert asked(server, "/api/models") == (200, plain, {"models": [], "limits": limits})


def test_errors_are_one_line(server: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"content-type": "application/json"}
    no_job = "no job 'x'. The last 3 results are kept; ask again with POST /api/jobs."
    assert asked(server, "/api/jobs/x") == (404, plain, {"error": no_job})
    assert asked(server, "/none") == (404, plain, {"error": "there is no GET /none. See /docs for what there is."})
    status, _, body = asked(server, "/api/jobs/x", "PUT")
    assert (status, body) == (405, {"error": "PUT /api/jobs/x is not allowed. See /docs for what there is."})
    status, _, body = asked(server, "/api/jobs", "POST", {"text": 3})
    assert (status, body["allowed"]) == (422, "see /docs")
    assert body["error"].startswith("text: ")
    assert body["error"].endswith(" Got 3. Send JSON as /docs describes it.")
    for status in (429, 503, 409):
        monkeypatch.setattr(
            "mixlens.serve.routes.submitted",
            lambda desk, request, status=status: (_ for _ in ()).throw(Refusal(status, "No.")),
        )
        more = {"retry-after": "5"} if status != 409 else {}
        assert asked(server, "/api/jobs", "POST", {"text": "x"}) == (status, {**more, **plain}, {"error": "No."})


def test_a_job_that_is_taken_in(server: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixlens.serve.routes.submitted", lambda desk, request: job(request.text))
    assert asked(server, "/api/jobs", "POST", {"text": "x"}) == (
        202,
        {"content-type": "application/json"},
        {"id": "x", "ahead": 5},
    )
    monkeypatch.setattr(
        "mixlens.serve.routes.counted", lambda desk, request: {"tokens": 1, "most": 2, "notes": [request.text]}
    )
    assert asked(server, "/api/tokens", "POST", {"text": "x"})[2] == {"tokens": 1, "most": 2, "notes": ["x"]}


def test_the_two_pages(server: FastAPI) -> None:
    status, headers, page = asked(server, "/")
    assert status == 200
    assert headers["content-security-policy"].endswith("connect-src 'self'; frame-ancestors 'none'")
    for part in ("<title>Ask what a prediction rests on · mixlens</title>", "<h1>Ask what a prediction rests on</h1>"):
        assert part in page
    assert '<p class="answer">Everything is computed on this machine. Nothing is sent anywhere.</p>' in page
    assert "On this machine" in page
    status, headers, page = asked(server, "/docs")
    assert (status, headers["content-security-policy"]) == (200, describe.docs_policy())
    assert page == describe.docs_page(server.openapi())


def test_the_api_describes_its_addresses(server: FastAPI) -> None:
    api = server.openapi()
    found = {
        f"{verb} {path}": (one["summary"], list(one["responses"]))
        for path, verbs in api["paths"].items()
        for verb, one in verbs.items()
    }
    errors = ["400", "403", "404", "408", "409", "413", "422", "429", "503"]
    number = "/api/jobs/{number}"
    assert found == {
        "get /api/models": ("The models that are served", ["200"]),
        "get /api/methods": ("The methods there are", ["200"]),
        "post /api/jobs": ("Ask for a text", ["202", *errors]),
        "post /api/tokens": ("Count the tokens of a text", ["200", *errors]),
        f"get {number}": ("Where a job stands", ["200", *errors]),
        f"delete {number}": ("Cancel a job", ["200", *errors]),
        f"get {number}/page": ("A result as the page reads it", ["200", *errors]),
        f"get {number}/answer": ("An answer as plain JSON", ["200", *errors]),
        f"get {number}/file": ("An answer as one file", ["200", *errors]),
        f"get {number}/scores": ("A result as plain numbers", ["200", *errors]),
    }
    bodies = {
        key: one["responses"][code]["content"]["application/json"]["schema"].get("$ref", "").rpartition("/")[2]
        for key, code in {
            "post /api/jobs": "202",
            f"get {number}": "200",
            f"delete {number}": "200",
            f"get {number}/scores": "200",
            "post /api/tokens": "200",
        }.items()
        for one in [api["paths"][key.split()[1]][key.split()[0]]]
    }
    assert list(bodies.values()) == ["Made", "Standing", "Standing", "Scores", "Count"]
    assert list(api["paths"][f"{number}/file"]["get"]["responses"]["200"]["content"]) == ["text/html"]


def test_the_application_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(app, "Desk", lambda models, limits: made.append((models, limits)) or SimpleNamespace(models={}))
    guarded = app.application(["m"], allowed=("Host",))  # type: ignore[list-item]
    assert made == [(["m"], Limits())]
    assert guarded.allowed == {"127.0.0.1", "localhost", "::1", "host"}
    inner = guarded.app
    assert (inner.title, inner.version, inner.docs_url, inner.redoc_url) == ("mixlens", mixlens.__version__, None, None)
    assert (
        inner.description == "Which tokens flow into which: maps and attributions of a text, computed on this machine."
    )
    assert (inner.state.desk, guarded.desk, guarded.limits) == (guarded.desk, inner.state.desk, Limits())
    assert 422 in inner.router.responses
    assert asked(inner, "/none")[2] == {"error": "there is no GET /none. See /docs for what there is."}
    app.application(["m"], limits=Limits(kept=2))  # type: ignore[list-item]
    assert made[1][1] == Limits(kept=2)


# --- models -----------------------------------------------------------------------------------------------------------


def test_a_model_as_it_is_listed() -> None:
    times = Times()
    times.took("classification", "why", 1.5, 9)
    desk: Any = SimpleNamespace(tokens_at_most=lambda model: 64, times=times)
    model, masked = model_of("classification"), model_of("masked-lm")
    for one in (model, masked):
        one.family, one.n_layers = SimpleNamespace(name="bert"), 3
    model.hf_model.config.id2label = {number: f"c{number}" for number in range(101)}
    assert describe.about_model(desk, model) == {
        "name": "classification",
        "task": "classification",
        "family": "bert",
        "layers": 3,
        "max_tokens": 64,
        "mask": "[M]",
        "labels": [f"c{number}" for number in range(100)],
        "example": "The plot was dull but the acting was brilliant.",
        "questions": describe.questions_for(model),
        "methods": ["deeplift", "attcat", "blank_out", "integrated_gradients", "alti"],
        "fillers": {name: FILLERS[name] for name in ("delete", "mask", "unk")},
        "seconds": {"why": {"seconds": 1.5, "tokens": 9}},
    }
    told = describe.about_model(desk, masked)
    assert (told["labels"], told["example"], told["seconds"]) == ([], "The keys to the cabinet [M] rusty.", {})
    masked.task = "base"
    told = describe.about_model(desk, masked)
    assert (told["labels"], told["example"], told["questions"], told["methods"]) == ([], "", [], [])


@pytest.mark.parametrize(
    ("task", "titles"),
    [
        ("base", []),
        ("classification", ["Why this class?", "What flows where?", "Compare methods"]),
        (
            "causal-lm",
            ["Why this word?", "What flows where?", "Compare methods", "What did each written word rest on?"],
        ),
    ],
)
def test_questions_that_a_model_can_be_asked(task: str, titles: list[str]) -> None:
    found = describe.questions_for(model_of(task))
    assert [one["title"] for one in found] == titles
    assert [one["name"] for one in found] == ["why", "flow", "methods", "written"][: len(titles)]
    assert [one["help"] for one in found] == [
        "Words for and against it, and whether to trust them.",
        "How the words travel through the layers to the answer.",
        "Five methods under the same sentence.",
        "The model writes on; each word with what it came from.",
    ][: len(titles)]


# --- work -------------------------------------------------------------------------------------------------------------


class Track:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def plan(self, steps: Any) -> None:
        self.told.append(list(steps))

    def next(self, text: str | None = None) -> None:
        self.told.append(text)

    def know(self, predictions: Any) -> None:
        self.told.append(predictions)


class Trace:
    """A trace of four tokens that predicts."""

    def __init__(self, model: Any, text: Any):
        self.model, self.text, self.predicts = model, text, ()

    def __len__(self) -> int:
        return 4

    def prediction(self) -> Any:
        return [("yes", 0.5)]


READ = ["Read the text: 4 tokens", "Run the model"]
OUT = "Take the top words out, then random words"


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every function that does the work tells what it was given."""
    seen: list[Any] = []

    def spy(name: str, answer: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            seen.append((name, *(one for one in given if not isinstance(one, Trace | SimpleNamespace)), more))
            if "progress" in more:
                for step in ("a", "b", "c"):
                    more.pop("progress")(step) if step == "a" else None
            return answer(*given) if callable(answer) else answer

        return call

    pieces = [
        SimpleNamespace(special=special, mark=mark)
        for special, mark in ((True, False), (False, False), (False, True), (False, False))
    ]
    monkeypatch.setattr(work, "pieces_of", lambda trace: (pieces, "word"))
    for name, answer in ANSWERS.items():
        monkeypatch.setattr(work, name, spy(name, answer))
    return seen


def made_why() -> Any:
    return WHY


class Why:
    notes: tuple[Any, ...] = ("first",)

    def to_dict(self) -> Any:
        return {"notes": self.notes}


WHY = Why()
GENERATION = SimpleNamespace(with_effects=lambda: "with effects")
ANSWERS: dict[str, Any] = {
    "why": WHY,
    "shown_why": lambda content: content,
    "why_page": "why page",
    "gather": "results",
    "page_of_texts": "page of texts",
    "flow_results": ("scores", "heads"),
    "picture_of": "picture",
    "flow_data": "flow data",
    "flow_page": "flow page",
    "write": "text",
    "explain_written": GENERATION,
    "content_of": "content",
    "generation_page": "generation page",
    "compared": None,
}


def worker(task: str = "classification", predicts: tuple[int, ...] = ()) -> Any:
    model = model_of(task)

    def trace(text: Any) -> Trace:
        made = Trace(model, text)
        made.predicts = predicts
        return made

    model.trace = trace
    return model


def question(**facts: Any) -> dict[str, Any]:
    usual = {
        "text": "t",
        "methods": None,
        "target": None,
        "foil": None,
        "query": None,
        "filler": None,
        "generate": 5,
        "tokens": 4,
        "cut": None,
    }
    return {**usual, **facts}


def test_why_is_worked_out_step_by_step(worked: list[Any]) -> None:
    track = Track()
    asked = question(question="why", target=1, foil=0, query=2, filler="pad")
    answer = work.answered(worker(), "why", asked, track)
    assert answer == Answered({"kind": "why", "why": {"notes": ("first",)}}, "why page")
    names = [
        "Difference from a blank text",
        "Attention × gradient",
        "Leave each word out",
        "Path of gradients",
        "What flowed into the answer",
    ]
    read = "Read the text: 4 tokens, 2 words and 1 mark"
    assert track.told == [[*READ, *names, OUT], None, None, read, [("yes", 0.5)]]
    choices = {"target": 1, "foil": 0, "query": 2, "filler": "pad"}
    assert worked == [
        ("compared", 4, {}),
        ("compared", 4, {}),
        ("why", {"methods": None, **choices}),
        ("shown_why", {"notes": ("first",)}, {}),
        ("why_page", WHY, {}),
    ]


def test_why_by_chosen_methods_of_a_text_that_was_cut(worked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    track = Track()
    monkeypatch.setattr(
        work, "replace", lambda answer, notes: SimpleNamespace(notes=notes, to_dict=lambda: {"notes": notes})
    )

    def why(model: Any, trace: Any, *, methods: Any, progress: Any, **choices: Any) -> Any:
        for step in ("a", "b", "c"):
            progress(step)
        worked.append(methods)
        return WHY

    monkeypatch.setattr(work, "why", why)
    asked = question(question="methods", methods=["attcat", "alti:rollout=abnar"], cut="Cut.", query=2)
    answer = work.answered(worker("masked-lm"), "methods", asked, track)
    noted = ("first", Note("cut", "caution", "Cut."))
    assert answer == Answered({"kind": "methods", "why": {"notes": noted}}, "page of texts")
    steps = [*READ, "Attention × gradient", "What flowed into the answer", OUT, "Every method, layer by layer"]
    assert track.told == [steps, None, None, "Read the text: 4 tokens, 2 words and 1 mark", None, None, None]
    gathered = ("gather", ["attcat", "alti:rollout=abnar"], {"query": 2, "target": "predicted", "foil": None})
    assert worked[:2] == [["attcat", "alti:rollout=abnar"], gathered]
    told = worked[3]
    assert (told[0], told[1][0].results, told[1][0].why.notes, told[2]) == (
        "page_of_texts",
        "results",
        noted,
        {"room": 2_000_000, "preset": "methods"},
    )
    work.answered(worker(), "methods", question(question="methods", target=0, foil=1), track)
    assert [one[-1] for one in worked if one and one[0] == "gather"][1] == {"query": None, "target": 0, "foil": 1}


def test_what_flows_where_is_worked_out(worked: list[Any]) -> None:
    track = Track()
    answer = work.answered(worker("masked-lm", (2,)), "flow", question(query=3), track)
    assert answer == Answered({"kind": "flow", "flow": "flow data"}, "flow page")
    steps = [*READ, "Follow the words through the layers", "Draw the bands"]
    assert track.told == [steps, None, None, "Read the text: 4 tokens, 2 words and 1 mark", [("yes", 0.5)], None]
    assert worked == [
        ("flow_results", {"method": "alti", "query": 3}),
        ("picture_of", "scores", {"heads": "heads"}),
        ("flow_data", "picture", 2_000_000, {}),
        ("flow_page", "scores", {"heads": "heads"}),
    ]
    work.answered(worker(), "flow", question(methods=["globenc"]), track)
    assert worked[4] == ("flow_results", {"method": "globenc", "query": None})


def test_written_words_are_worked_out(worked: list[Any]) -> None:
    track = Track()
    answer = work.answered(worker("causal-lm"), "written", question(), track)
    assert answer == Answered({"kind": "written", "generation": "content"}, "generation page")
    steps = [*READ, "Write the text", "What each written word rests on", "Leave words of the prompt out"]
    assert track.told == [steps, None, None, "Read the text: 4 tokens, 2 words and 1 mark", [("yes", 0.5)], None, None]
    assert worked == [
        ("write", "t", {"generate": 5}),
        ("explain_written", "text", "alti", {}),
        ("content_of", "with effects", {}),
        ("generation_page", "with effects", {}),
    ]
    work.answered(worker("causal-lm"), "written", question(methods=["globenc"]), track)
    assert worked[5] == ("explain_written", "text", "globenc", {})


def test_a_text_without_marks_and_without_a_prediction(worked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "pieces_of", lambda trace: ([SimpleNamespace(special=False, mark=False)], "word"))
    track = Track()
    work.answered(worker("masked-lm"), "flow", question(), track)
    assert track.told[3:] == ["Read the text: 4 tokens, 1 word", None]


def test_methods_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("classification")
    monkeypatch.setattr(work, "compared", lambda model, tokens: ["c"] if tokens > 5 else None)
    assert work.methods_of(model, ["a"], 9) == ["a"]
    assert work.methods_of(model, None, 9) == ["c"]
    assert work.methods_of(model, None, 3) == ["deeplift", "attcat", "blank_out", "integrated_gradients", "alti"]


REFUSALS = [
    (
        "classification",
        "written",
        None,
        "'classification' writes no text, so there are no written words. Ask another question: why, flow, methods.",
    ),
    (
        "base",
        "why",
        None,
        "'base' was loaded without a head, so it says nothing. Load it with --task, or ask for maps.",
    ),
    ("causal-lm", "flow", ["alti", "globenc"], "this question is answered by one method, not by 2. Choose one."),
    ("causal-lm", "written", [], "this question is answered by one method, not by 0. Choose one."),
    (
        "causal-lm",
        "flow",
        ["attcat"],
        "what flows where is shown by a map, such as alti, not by 'attcat'. Choose a map.",
    ),
    (
        "causal-lm",
        "flow",
        ["alti:variant=released"],
        "what flows where is shown by a map, such as alti, not by 'alti:variant=released'. Choose a map.",
    ),
    (
        "causal-lm",
        "flow",
        ["attention:head=1"],
        "what flows where is shown by a map, such as alti, not by 'attention:head=1'. Choose a map.",
    ),
]


@pytest.mark.parametrize(("task", "question", "methods", "message"), REFUSALS)
def test_questions_that_cannot_be_answered(task: str, question: str, methods: list[str] | None, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        work.refuse_question(model_of(task), question, methods)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("task", "question", "methods"),
    [
        ("causal-lm", "written", None),
        ("causal-lm", "written", ["attcat"]),
        ("causal-lm", "flow", ["globenc"]),
        ("masked-lm", "why", ["alti", "attcat"]),
        ("classification", "methods", []),
        ("classification", "flow", None),
    ],
)
def test_questions_that_can(task: str, question: str, methods: list[str] | None) -> None:
    work.refuse_question(model_of(task), question, methods)
