"""The answers of the API about one job: where it stands, and its result as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.errors import nearest
from ..show.packing import EXACT, decode
from ..show.page_entry import Entry
from .guard import Refusal, clipped
from .jobs import Desk, Job
from .schemas import Progress, Scores, Standing
from .work import Answered


def job_of(desk: Desk, number: str) -> Job:
    """The job with this id."""
    job = desk.job(number)
    if job is None:
        memory = f"The last {desk.limits.kept} results are kept"
        raise Refusal(404, f"no job {clipped(number)!r}. {memory}; ask again with POST /api/jobs.")
    return job


def entry_of(desk: Desk, number: str) -> Entry:
    """The result of a job; a job that has none is refused."""
    job = job_of(desk, number)
    if job.entry is None:
        because = f" ({job.error})" if job.error else ""
        raise Refusal(409, f"job {number!r} is {job.state}{because}: there is no result. See /api/jobs/{number}.")
    return job.entry


def answer_of(desk: Desk, number: str) -> Answered:
    """The answer to a question; a job that has none is refused."""
    job = job_of(desk, number)
    if job.question == "maps":
        raise Refusal(409, f"job {number!r} has maps, and no answer. See /api/jobs/{number}/page.")
    if job.answer is None:
        because = f" ({job.error})" if job.error else ""
        raise Refusal(409, f"job {number!r} is {job.state}{because}: there is no answer. See /api/jobs/{number}.")
    return job.answer


def standing_of(desk: Desk, job: Job) -> Standing:
    """Where a job stands."""
    return Standing(
        id=job.id,
        state=job.state,
        ahead=desk.ahead(job),
        seconds=job.seconds,
        progress=Progress(doing=job.doing, share=job.share),
        error=job.error,
        question=job.question,
        steps=list(job.steps),
        begun=job.begun,
        within=job.within if job.state == "running" else "",
        known=list(job.known),
        behind=desk.behind(job),
        notes=list(job.notes),
    )


# --- plain numbers ----------------------------------------------------------------------------------------------------


def plain_scores(entry: Entry, label: str, layer: int | None, sheet: str) -> Scores:
    """One layer of a map, or an attribution, as plain numbers."""
    method = _method_of(entry, label)
    if method["kind"] == "map":
        return _layer_scores(entry, method, layer, sheet)
    rows = decode(method["scores"]).tolist()
    precision = EXACT.description()
    return Scores(method=label, tokens=entry["tokens"], layer=None, sheet=None, scores=rows, precision=precision)


def _method_of(entry: Entry, label: str) -> Mapping[str, Any]:
    """The method of a result that has this label."""
    methods = {method["label"]: method for method in entry["methods"]}
    if label not in methods:
        message = f"this result has no method {clipped(label)!r}. {nearest(label, list(methods))}"
        raise Refusal(404, message, allowed=list(methods))
    return methods[label]


def _layer_scores(entry: Entry, method: Mapping[str, Any], layer: int | None, sheet: str) -> Scores:
    """One layer of one sheet of a map; by default the last layer."""
    label, tokens = method["label"], entry["tokens"]
    if sheet not in method["sheets"]:
        raise Refusal(422, f"{label!r} has no sheet {clipped(sheet)!r}. {nearest(sheet, method['sheets'])}")
    at = _layer_within(layer, method["depth"])
    rows = decode(method["sheets"][sheet])[(at - 1) * len(tokens) : at * len(tokens)].tolist()
    return Scores(method=label, tokens=tokens, layer=at, sheet=sheet, scores=rows, precision=entry["holds"])


def _layer_within(layer: int | None, depth: int) -> int:
    """A layer, counted from 1; by default the last."""
    if layer is None:
        return depth
    if not 1 <= layer <= depth:
        raise Refusal(422, f"layer {layer} does not exist: there are layers 1 to {depth}.")
    return layer
