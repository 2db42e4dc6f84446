"""The web side: the page and the JSON API. What guards them is in `guard`, everything that computes in `jobs`."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from ..errors import InputError, LongError, MixlensError, methods_within, nearest, readable
from ..maps import versions
from ..model.model import Model
from ..report import METHODS, checked
from ..show.packing import decode
from ..show.page_template import SERVED, filled_page, policy
from .describe import about_methods, about_model, docs_page, docs_policy, refusal_line
from .guard import LOOPBACK, Guard, Refusal, clipped, prompt
from .jobs import Desk, FullError, Job, Limits

__all__ = ["Limits", "application", "run"]


class Refused(BaseModel):
    """Every error: what came, what is allowed, what to do."""

    error: str


class Wanted(BaseModel):
    """One text, and what is to be shown of it."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"example": {"model": "agreement", "text": "The keys [MASK] rusty.", "methods": ["alti"]}},
    )
    text: str = Field(description="The text; with the model's mask token where a word is to be predicted.")
    model: str | None = Field(None, description="A name of /api/models; by default the first.")
    methods: list[str] = Field(list(METHODS), description="Names of /api/methods; options as in alti:variant=released.")
    pair: str | None = Field(None, description="A second text, for models that read two.")
    target: str | int | None = Field(None, description="The class or word attributions explain; by default the predicted one.")
    foil: str | int | None = Field(None, description="Explain the target against this class or word.")
    query: str | int | None = Field(None, description="The position to read: a token or an index.")


class Made(BaseModel):
    """A job that was taken in."""

    id: str
    ahead: int = Field(description="How many are done before it.")


class Progress(BaseModel):
    doing: str
    share: float = Field(description="How far it is, 0 to 1.")


class Standing(BaseModel):
    """Where a job stands: waiting, running, done, failed or cancelled."""

    id: str
    state: str
    ahead: int
    seconds: float
    progress: Progress
    error: str | None = None
    notes: list[str] = Field([], description="What is worth knowing about the text, such as that it has no mask token.")


class Scores(BaseModel):
    """Plain numbers of one method: of a map one layer [query][key], of an attribution one row [1][token]."""

    method: str
    tokens: list[str]
    layer: int | None
    sheet: str | None
    scores: list[list[float]]
    precision: str


JobId = Annotated[str, Path(description="As POST /api/jobs gave it.", max_length=40)]
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": Refused} for status in (400, 403, 404, 408, 409, 413, 422, 429, 503)}


def application(models: Sequence[Model], *, limits: Limits | None = None, allowed: Sequence[str] = ()) -> Any:
    """The whole application, guarded. Browsers may reach it by the names of this machine alone, and `allowed`."""
    limits = limits or Limits()
    desk = Desk(models, limits)
    app = FastAPI(
        title="mixlens",
        version=versions()["mixlens"],
        description="Which tokens flow into which: maps and attributions of a text, computed on this machine.",
        docs_url=None,  # the usual page fetches its script from elsewhere
        redoc_url=None,
        responses={422: {"model": Refused}},
    )
    app.state.desk = desk

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def front() -> HTMLResponse:
        title, subtitle = "mixlens", "Which tokens flow into which, layer by layer. Computed on this machine."
        page = filled_page({"entries": []}, SERVED, title=title, subtitle=subtitle)
        return HTMLResponse(page, headers={"Content-Security-Policy": policy(SERVED) + "; frame-ancestors 'none'"})

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()), headers={"Content-Security-Policy": docs_policy()})

    @app.get("/api/models", summary="The models that are served")
    def models_() -> dict[str, Any]:
        """Name, task, layers, longest text, mask token and classes of each; and the limits of this server."""
        told = {"tokens": limits.tokens, "characters": limits.characters, "methods": limits.methods, "seconds": limits.seconds}
        return {"models": [about_model(desk, model) for model in desk.models.values()], "limits": told}

    @app.get("/api/methods", summary="The methods there are")
    def methods_() -> dict[str, Any]:
        """Name, kind (map or attribution), paper, cost in forward passes, variants, options and one line about each."""
        return {"methods": about_methods()}

    @app.post("/api/jobs", status_code=202, response_model=Made, responses=ERRORS, summary="Ask for a text")
    def ask(wanted: Wanted) -> Made:
        """The text waits its turn. Follow it at /api/jobs/{id}; it is refused at once if it cannot be done."""
        if desk.full():
            raise Refusal(429, f"the queue is full: {limits.queue} texts are waiting. Try again in a few seconds.")
        name = wanted.model if wanted.model is not None else next(iter(desk.models))
        if name not in desk.models:
            raise Refusal(
                404, f"no model {clipped(name)!r} is served. {nearest(name[:80], desk.models)}", allowed=list(desk.models)
            )
        try:
            for field, text in (("text", wanted.text), ("pair", wanted.pair)):
                if field == "text" or text is not None:
                    readable(text, field, most=limits.characters)
            methods_within(wanted.methods, limits.methods)
            names = checked([clipped(one) for one in wanted.methods])
            text_in = wanted.text if wanted.pair is None else (wanted.text, wanted.pair)
            desk.read(name, text_in)
            target, foil = (None if one is None else target_of(desk.models[name], one) for one in (wanted.target, wanted.foil))
            question: dict[str, Any] = {"text": text_in, "methods": names, "foil": foil, "query": wanted.query}
            question["target"] = "predicted" if target is None else target
            job = desk.submit(name, question, desk.notes(name, text_in))
        except FullError as full:
            raise Refusal(429, str(full)) from None
        except LongError as long:
            raise Refusal(413, str(long), allowed=limits.characters) from None
        except MixlensError as refusal:
            raise Refusal(422, str(refusal)) from None
        return Made(id=job.id, ahead=desk.ahead(job))

    def found(number: str) -> Job:
        job = desk.job(number)
        if job is None:
            kept = f"The last {limits.kept} results are kept"
            raise Refusal(404, f"no job {clipped(number)!r}. {kept}; ask again with POST /api/jobs.")
        return job

    def finished(number: str) -> Any:
        job = found(number)
        if job.entry is None:
            because = f" ({job.error})" if job.error else ""
            raise Refusal(409, f"job {number!r} is {job.state}{because}: there is no result. See /api/jobs/{number}.")
        return job.entry

    @app.get("/api/jobs/{number}", response_model=Standing, responses=ERRORS, summary="Where a job stands")
    def standing(number: JobId) -> Standing:
        """State, how many are before it, what is being done and how far, and the error if it failed."""
        job = found(number)
        progress = Progress(doing=job.doing, share=job.share)
        return Standing(
            id=job.id,
            state=job.state,
            ahead=desk.ahead(job),
            seconds=job.seconds,
            progress=progress,
            error=job.error,
            notes=list(job.notes),
        )

    @app.delete("/api/jobs/{number}", response_model=Standing, responses=ERRORS, summary="Cancel a job")
    def cancel(number: JobId) -> Standing:
        """A waiting job is gone at once, a running one stops at its next operation."""
        desk.cancel(found(number))
        return standing(number)

    @app.get("/api/jobs/{number}/page", responses=ERRORS, summary="A result as the page reads it")
    def page_of(number: JobId) -> JSONResponse:
        """Tokens, words, prediction, provenance, and the maps as blocks: quantised, deflated, in base64."""
        return JSONResponse(finished(number))

    @app.get("/api/jobs/{number}/scores", response_model=Scores, responses=ERRORS, summary="A result as plain numbers")
    def scores_of(
        number: JobId,
        method: Annotated[str, Query(description="One of the methods asked for.", max_length=200)],
        layer: Annotated[int | None, Query(description="Counted from 1; by default the last.")] = None,
        sheet: Annotated[str, Query(description="rollout (from the input) or layer (that layer alone).")] = "rollout",
    ) -> Scores:
        """scores[query][key] of one layer of a map, or [[...]] of an attribution, as precisely as the result is held."""
        entry = finished(number)
        labels = [one["label"] for one in entry["methods"]]
        if method not in labels:
            raise Refusal(404, f"this result has no method {clipped(method)!r}. {nearest(method, labels)}", allowed=labels)
        one, tokens = entry["methods"][labels.index(method)], entry["tokens"]
        if one["kind"] == "attribution":
            rows, exact = decode(one["scores"]), "every number, in 32 bits (7 digits)"
            return Scores(method=method, tokens=tokens, layer=None, sheet=None, scores=rows.tolist(), precision=exact)
        if sheet not in one["sheets"]:
            raise Refusal(422, f"{method!r} has no sheet {clipped(sheet)!r}. {nearest(sheet, one['sheets'])}")
        depth, n = one["depth"], len(tokens)
        if layer is not None and not 1 <= layer <= depth:
            raise Refusal(422, f"layer {layer} does not exist: there are layers 1 to {depth}.")
        at = depth if layer is None else layer
        rows = decode(one["sheets"][sheet])[(at - 1) * n : at * n]
        return Scores(method=method, tokens=tokens, layer=at, sheet=sheet, scores=rows.tolist(), precision=entry["holds"])

    @app.exception_handler(Refusal)
    async def refused(request: Request, refusal: Refusal) -> JSONResponse:
        headers = {"Retry-After": "5"} if refusal.status in (429, 503) else {}
        return JSONResponse(refusal.body, refusal.status, headers=headers)

    @app.exception_handler(RequestValidationError)
    async def not_valid(request: Request, wrong: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": refusal_line(wrong.errors()), "allowed": "see /docs"}, 422)

    @app.exception_handler(HTTPException)
    async def not_there(request: Request, error: HTTPException) -> JSONResponse:
        what = f"{request.method} {clipped(request.url.path)}"
        message = {404: f"there is no {what}.", 405: f"{what} is not allowed."}.get(error.status_code, str(error.detail))
        return JSONResponse({"error": f"{message} See /docs for what there is."}, error.status_code)

    return Guard(app, desk, limits, (*LOOPBACK, *allowed))


def target_of(model: Model, written: str | int) -> Any:
    """A class, a word or an id; of a question-answering model `start,end`."""
    parts = str(written).split(",")
    if model.task == "question-answering" and len(parts) == 2 and all(part.strip().isdigit() for part in parts):
        return int(parts[0]), int(parts[1])
    return int(written) if isinstance(written, str) and written.isdigit() else written


# --- running it -------------------------------------------------------------------------------------------------------


def settings(app: Any) -> uvicorn.Config:
    """How uvicorn serves the application: connections that send nothing, or half a request, are closed."""
    return uvicorn.Config(
        app,
        http=prompt(app.limits),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=3,
    )


def run(models: Sequence[Model], *, host: str, port: int, allowed: Sequence[str] = (), limits: Limits | None = None) -> None:
    """Serve until Ctrl-C."""
    app = application(models, limits=limits, allowed=(*allowed, host))
    try:
        place = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        app.desk.close()
        raise InputError(f"cannot listen on {host} port {port}: {error.strerror}. Choose another --port, or 0 for any.") from None
    shown = f"[{host}]" if ":" in host else host
    print(
        f"mixlens serves {', '.join(app.desk.models)} on http://{shown}:{place.getsockname()[1]}/  (Ctrl-C stops it)", flush=True
    )
    if host not in LOOPBACK:
        print("It listens on more than this machine alone: whoever reaches it can use it.", flush=True)
    try:
        uvicorn.Server(settings(app)).run(sockets=[place])
    except KeyboardInterrupt:
        pass
    finally:
        app.desk.close()
        place.close()
