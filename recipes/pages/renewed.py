"""Some runs of a paper made anew, written into the page that is there. For `recipes.pages.results --step`.

A page holds a section for each run and a table of all claims, each with the name of its run. Those of other runs stay. What was
not made, and every item of the paper, follow the plan as it is today.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mixlens.runs.experiments.claims import RULES
from mixlens.runs.experiments.reproduction_page import ITEMS, NOT_MADE, verdict_counts

CLAIMS = "What replicates"
RUN = 2  # the column of a claim that names its run
COUNTED = re.compile(r"^Of \d+ claims: [^.]*\.", re.MULTILINE)
Row = list[str]


def renewed(old: str, new: str, titles: Mapping[str, str]) -> str:
    """The old page with the runs of the new one: `titles` are those of their sections, by the names of the runs."""
    sections, fresh = _sections(old), _sections(new)
    for title in titles.values():
        sections[title] = fresh[title]
    sections = _followed(sections, fresh)
    sections[CLAIMS] = _with_rows(sections[CLAIMS], _merged(claim_rows(old), claim_rows(new), list(titles)))
    text = "".join(sections.values())
    rows = claim_rows(text)
    return COUNTED.sub(f"Of {len(rows)} claims: {verdict_counts(rows)}.", text, count=1)


def _followed(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """The old sections with the items of today's plan, and with the runs of that plan that the page does not have."""
    items = {title: text for title, text in new.items() if title.startswith(ITEMS)}
    runs = {title: text for title, text in old.items() if title != NOT_MADE and not title.startswith(ITEMS)}
    head, *rows = [line for line in new.get(NOT_MADE, "|").splitlines() if line.startswith("|")]
    absent = [row for row in rows[1:] if _cells(row)[0] not in runs]
    listed = {NOT_MADE: "\n".join([f"## {NOT_MADE}", "", head, *rows[:1], *absent, "", ""])} if absent else {}
    return {**runs, **listed, **items}


def claim_rows(page: str) -> list[Row]:
    """The cells of every claim of a page."""
    lines = [line for line in _sections(page)[CLAIMS].splitlines() if line.startswith("|")]
    return [_cells(line) for line in lines[2:]]


def _cells(line: str) -> Row:
    """The cells of a row of Markdown, whose own bars are escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _merged(old: Sequence[Row], new: Sequence[Row], steps: Sequence[str]) -> list[Row]:
    """The rows of the new page in the place of those of the same run, or of the same runs that are compared. Those of runs that
    the old page does not have come last."""
    fresh: dict[str, list[Row]] = {}
    for row in new:
        if _is_anew(row, steps):
            fresh.setdefault(row[RUN], []).append(row)
    merged: list[Row] = []
    for row in old:
        merged += fresh.pop(row[RUN], []) if _is_anew(row, steps) else [row]
    return [*merged, *(row for rows in fresh.values() for row in rows)]


def _is_anew(row: Row, steps: Sequence[str]) -> bool:
    """Whether all runs that a claim is about were made anew."""
    return set(row[RUN].split(", ")) <= set(steps)


def _with_rows(section: str, rows: Sequence[Row]) -> str:
    """The section of claims with these rows, and with the rules by which claims are judged today."""
    lines = section.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("|"))
    table = [*lines[first : first + 2], *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([*lines[:first], *table, "", f"How a verdict is reached: {RULES}", "", ""])


def _sections(page: str) -> dict[str, str]:
    """The parts of a page by their headings, in turn; what stands before the first has none."""
    parts = re.split(r"(?m)^(?=## )", page)
    return {part.partition("\n")[0].removeprefix("## ") if part.startswith("## ") else "": part for part in parts}
