"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), section 5: own token and context from one pass of HTA.

`id-mixing` and `id-context` measure the same from two passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...metrics.mixing_stats import BRUNNER
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.tables import Table
from ...types import Example, Record
from .context import CONTEXT_OPTIONS, DIFFERS_CONTEXT, context_records, draw_context, finish_context, prepare_context
from .context_claims import CONTEXT_CLAIMS
from .mixing import (
    MIXING,
    MIXING_CLAIMS,
    MIXING_NUMBERS,
    draw_mixing,
    every_contribution,
    finish_mixing,
    position_records,
)


def split_records(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """The records of the own token, and those of the context."""
    return [r for r in records if r.metric in MIXING], [r for r in records if r.metric not in MIXING]


def finish_contributions(setup: Setup, records: list[Record]) -> list[Table]:
    own, context = split_records(records)
    return [*finish_mixing(setup, own), *finish_context(setup, context)]


def figure_contributions(setup: Setup, tables: list[Table], figure: Any) -> None:
    figure.set_size_inches(10, 10)
    panels = figure.subplots(3, 2).ravel()
    draw_mixing(panels[:2], setup, tables)
    draw_context(panels[2:], setup, tables)


@experiment(
    name="id-contributions",
    paper=BRUNNER,
    shows="Figures 3, 4, 18, 40-43: own token and context (sections 5.2, 5.3, C.2, C.3, D.2)",
    data="agreement",
    model="agreement",
    methods=("hta",),
    finish=finish_contributions,
    figure=figure_contributions,
    takes="map",
    options=CONTEXT_OPTIONS,
    prepare=prepare_context,
    differs=DIFFERS_CONTEXT,
    claims=(*MIXING_CLAIMS, *CONTEXT_CLAIMS),
    published=MIXING_NUMBERS,
)
def contributions_of_input(setup: Setup, example: Example) -> list[Record]:
    """How much of a hidden state comes from its own input token, and from how far away does the rest come?"""
    trace = setup.model.trace(example)
    records: list[Record] = []
    for method, scores in every_contribution(trace, setup):
        records += position_records(example, method, scores) + context_records(setup, example, trace, method, scores)
    return records
