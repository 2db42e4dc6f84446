"""What the JSON API reads and writes: a class for each body, a field for each of its keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from ..show.report import METHODS
from .work import MOST_WRITTEN, WRITES


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
    target: str | int | None = Field(
        None, description="The class or word attributions explain; by default the predicted one."
    )
    foil: str | int | None = Field(None, description="Explain the target against this class or word.")
    query: str | int | None = Field(None, description="The position to read: a token or an index.")
    question: Literal["maps", "why", "flow", "methods", "written"] = Field(
        "maps", description="maps of `methods`; why, flow, methods or written: an answer, at /api/jobs/{id}/answer."
    )
    filler: str | None = Field(
        None, description="What stands in the place of words that why takes out: delete, mask, pad, unk."
    )
    truncate: bool = Field(False, description="Cut a text that is too long, and explain its beginning.")
    generate: int = Field(
        WRITES, ge=1, le=MOST_WRITTEN, description="How many tokens a causal model writes, for `written`."
    )


class Counted(BaseModel):
    """A text whose tokens are counted."""

    model_config = ConfigDict(extra="forbid", strict=True)
    text: str = Field(description="The text.")
    model: str | None = Field(None, description="A name of /api/models; by default the first.")
    pair: str | None = Field(None, description="A second text, for models that read two.")


class Count(BaseModel):
    """How long a text is for a model."""

    tokens: int
    most: int = Field(description="The longest text that is taken.")
    notes: list[str]


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
    question: str = Field("maps", description="What was asked.")
    steps: list[str] = Field([], description="Of an answer: its steps in words.")
    begun: int = Field(0, description="How many of the steps have begun.")
    within: str = Field("", description="How far the step is that runs, where it tells: 64 of 500 texts.")
    known: list[tuple[str, float]] = Field([], description="What the model says, as soon as it is known.")
    behind: int = Field(0, description="How many wait behind it.")
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
MethodName = Annotated[str, Query(description="One of the methods asked for.", max_length=200)]
LayerNumber = Annotated[int | None, Query(description="Counted from 1; by default the last.")]
SheetName = Annotated[str, Query(description="rollout (from the input) or layer (that layer alone).")]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refused} for status in (400, 403, 404, 408, 409, 413, 422, 429, 503)
}
