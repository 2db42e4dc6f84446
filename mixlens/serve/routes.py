"""The addresses of the server: the page, the JSON API, and how errors are answered."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from ..base.errors import nearest
from ..show.packing import EXACT, decode
from ..show.page_entry import Entry
from ..show.page_template import SERVED, filled_page, policy, policy_in
from .describe import about_methods, about_model, docs_page, docs_policy, refusal_line
from .guard import Refusal, clipped
from .jobs import Desk, Job
from .questions import counted, submitted
from .schemas import (
    ERRORS,
    Count,
    Counted,
    JobId,
    LayerNumber,
    Made,
    MethodName,
    Progress,
    Scores,
    SheetName,
    Standing,
    Wanted,
)
from .work import Answered


class Routes:
    """What is answered at each address. The docstrings are those of the API's description."""

    def __init__(self, app: FastAPI, desk: Desk):
        self.app, self.desk = app, desk

    def front(self) -> HTMLResponse:
        title, said = (
            "Ask what a prediction rests on",
            "Everything is computed on this machine. Nothing is sent anywhere.",
        )
        page = filled_page(
            {}, SERVED, title=title, subtitle="", answer=said, crumb="On this machine", name=f"{title} · mixlens"
        )
        return HTMLResponse(page, headers={"Content-Security-Policy": policy(SERVED) + "; frame-ancestors 'none'"})

    def docs(self) -> HTMLResponse:
        return HTMLResponse(docs_page(self.app.openapi()), headers={"Content-Security-Policy": docs_policy()})

    def models_(self) -> dict[str, Any]:
        """Name, task, layers, longest text, mask token and classes of each; and the limits of this server."""
        limits = {name: getattr(self.desk.limits, name) for name in ("tokens", "characters", "methods", "seconds")}
        return {"models": [about_model(self.desk, model) for model in self.desk.models.values()], "limits": limits}

    def methods_(self) -> dict[str, Any]:
        """Name, kind (map or attribution), paper, cost in forward passes, variants, options and one line about each."""
        return {"methods": about_methods()}

    def ask(self, request: Wanted) -> Made:
        """The text waits its turn. Follow it at /api/jobs/{id}; it is refused at once where that is seen before it
        runs. What only a run shows (a baseline that this model has not) ends the job as failed, with the reason."""
        job = submitted(self.desk, request)
        return Made(id=job.id, ahead=self.desk.ahead(job))

    def count(self, request: Counted) -> Count:
        """How many tokens a text has, how many are taken, and what is worth knowing about it before it is sent."""
        return counted(self.desk, request)

    def job_of(self, number: str) -> Job:
        job = self.desk.job(number)
        if job is None:
            memory = f"The last {self.desk.limits.kept} results are kept"
            raise Refusal(404, f"no job {clipped(number)!r}. {memory}; ask again with POST /api/jobs.")
        return job

    def entry_of(self, number: str) -> Entry:
        """The maps of a job; a job that has none is refused."""
        job = self.job_of(number)
        if job.entry is None:
            raise _unfinished(job, "result")
        return job.entry

    def answer_of(self, number: str) -> Answered:
        """The answer to a question; a job that has none is refused."""
        job = self.job_of(number)
        if job.question == "maps":
            raise Refusal(409, f"job {number!r} has maps, and no answer. See /api/jobs/{number}/page.")
        if job.answer is None:
            raise _unfinished(job, "answer")
        return job.answer

    def answer(self, number: JobId) -> JSONResponse:
        """Of a question other than maps: what the page shows of it, as plain JSON."""
        return JSONResponse(self.answer_of(number).content)

    def file(self, number: JobId, save: bool = False) -> HTMLResponse:
        """The same answer as one HTML file that opens from disk; with `save` a browser stores it."""
        page = self.answer_of(number).file
        headers = {"Content-Security-Policy": policy_in(page) + "; frame-ancestors 'none'"}
        if save:
            headers["Content-Disposition"] = 'attachment; filename="mixlens-answer.html"'
        return HTMLResponse(page, headers=headers)

    def standing(self, number: JobId) -> Standing:
        """State, how many are before it, what is being done and how far, and the error if it failed."""
        job = self.job_of(number)
        same = ("id", "state", "seconds", "error", "question", "begun")
        return Standing(
            **{name: getattr(job, name) for name in same},
            ahead=self.desk.ahead(job),
            behind=self.desk.behind(job),
            progress=Progress(doing=job.doing, share=job.share),
            steps=list(job.steps),
            within=job.within if job.state == "running" else "",
            known=list(job.known),
            notes=list(job.notes),
        )

    def cancel(self, number: JobId) -> Standing:
        """A waiting job is gone at once, a running one stops at its next operation."""
        self.desk.cancel(self.job_of(number))
        return self.standing(number)

    def page_of(self, number: JobId) -> JSONResponse:
        """Tokens, words, prediction, provenance, and the maps as blocks: quantised, deflated, in base64."""
        return JSONResponse(self.entry_of(number))

    def scores_of(
        self, number: JobId, method: MethodName, layer: LayerNumber = None, sheet: SheetName = "rollout"
    ) -> Scores:
        """scores[query][key] of one layer of a map, or [[...]] of an attribution, as precisely as the result is
        held."""
        entry = self.entry_of(number)
        methods = {one["label"]: one for one in entry["methods"]}
        if method not in methods:
            message = f"this result has no method {clipped(method)!r}. {nearest(method, list(methods))}"
            raise Refusal(404, message, allowed=list(methods))
        one, tokens = methods[method], entry["tokens"]
        told: dict[str, Any] = {"method": method, "tokens": tokens}
        if one["kind"] != "map":
            rows = decode(one["scores"]).tolist()
            return Scores(**told, layer=None, sheet=None, scores=rows, precision=EXACT.description())
        if sheet not in one["sheets"]:
            raise Refusal(422, f"{method!r} has no sheet {clipped(sheet)!r}. {nearest(sheet, one['sheets'])}")
        at = one["depth"] if layer is None else layer
        if not 1 <= at <= one["depth"]:
            raise Refusal(422, f"layer {layer} does not exist: there are layers 1 to {one['depth']}.")
        rows = decode(one["sheets"][sheet])[(at - 1) * len(tokens) : at * len(tokens)].tolist()
        return Scores(**told, layer=at, sheet=sheet, scores=rows, precision=entry["holds"])


def _unfinished(job: Job, what: str) -> Refusal:
    because = f" ({job.error})" if job.error else ""
    return Refusal(409, f"job {job.id!r} is {job.state}{because}: there is no {what}. See /api/jobs/{job.id}.")


def add_routes(app: FastAPI, desk: Desk) -> None:
    """Every address of the server."""
    routes, job = Routes(app, desk), "/api/jobs/{number}"
    app.get("/", response_class=HTMLResponse, include_in_schema=False)(routes.front)
    app.get("/docs", response_class=HTMLResponse, include_in_schema=False)(routes.docs)
    app.get("/api/models", summary="The models that are served")(routes.models_)
    app.get("/api/methods", summary="The methods there are")(routes.methods_)
    app.post("/api/jobs", status_code=202, response_model=Made, responses=ERRORS, summary="Ask for a text")(routes.ask)
    app.post("/api/tokens", response_model=Count, responses=ERRORS, summary="Count the tokens of a text")(routes.count)
    app.get(job, response_model=Standing, responses=ERRORS, summary="Where a job stands")(routes.standing)
    app.delete(job, response_model=Standing, responses=ERRORS, summary="Cancel a job")(routes.cancel)
    app.get(f"{job}/page", responses=ERRORS, summary="A result as the page reads it")(routes.page_of)
    app.get(f"{job}/answer", responses=ERRORS, summary="An answer as plain JSON")(routes.answer)
    app.get(f"{job}/file", response_class=HTMLResponse, responses=ERRORS, summary="An answer as one file")(routes.file)
    app.get(f"{job}/scores", response_model=Scores, responses=ERRORS, summary="A result as plain numbers")(
        routes.scores_of
    )


# --- errors -----------------------------------------------------------------------------------------------------------


async def _refused(request: Request, refusal: Refusal) -> JSONResponse:
    return refusal.answer()


async def _not_valid(request: Request, wrong: RequestValidationError) -> JSONResponse:
    return JSONResponse({"error": refusal_line(wrong.errors()), "allowed": "see /docs"}, 422)


async def _not_there(request: Request, error: HTTPException) -> JSONResponse:
    what = f"{request.method} {clipped(request.url.path)}"
    message = {404: f"there is no {what}.", 405: f"{what} is not allowed."}.get(error.status_code, str(error.detail))
    return JSONResponse({"error": f"{message} See /docs for what there is."}, error.status_code)


def add_error_answers(app: FastAPI) -> None:
    """Every error is answered with one line of JSON."""
    app.exception_handler(Refusal)(_refused)
    app.exception_handler(RequestValidationError)(_not_valid)
    app.exception_handler(HTTPException)(_not_there)
