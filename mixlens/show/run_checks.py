"""What the page of a run says of its methods: their names, the one that leads, words taken out, sums, agreement over words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..answers.names import name_of

if TYPE_CHECKING:
    from ..runs.corpus.page_facts import Mean, Overview
    from ..runs.corpus.turned_counts import Gaps, Turned

Facts = dict[str, Any]


def check_facts(facts: Overview) -> Facts:
    """The facts of methods, in the order that the run names them."""
    return {
        "names": list(map(researcher_name, facts.methods)),
        "isSigned": [method in facts.signed for method in facts.methods],
        "lead": leading(facts),
        "special": [_value(facts.special.get(method)) for method in facts.methods],
        "removal": _removal(facts),
        "completeness": _completeness(facts),
        "wordAgreement": agreement_matrix(facts.methods, facts.word_agreement),
        "tagged": {tag: facts.tagged[tag] for tag in ("wrong", "held", "apart", "open")},
        "sure": facts.sure,
    }


def researcher_name(written: str) -> str:
    """A method as figures and pages of runs name it: `alti:variant=released` is "ALTI, variant=released"."""
    method, _, options = written.partition(":")
    return ", ".join([name_of(method).name, *filter(None, options.split(":"))])


def leading(facts: Overview) -> int | None:
    """The method that the words of a page are by: the first of the run that says for and against, else its first. It is named
    before the run, so that it is not chosen by what it turned."""
    signed = [number for number, method in enumerate(facts.methods) if method in facts.signed]
    return next(iter(signed), 0) if facts.methods else None


def _value(mean: Mean | None) -> float | None:
    return None if mean is None else mean.value


def _removal(facts: Overview) -> Facts | None:
    """What turned without words, the method first whose words turn most; None where no row was checked."""
    counts = facts.removal
    if counts is None or not counts.random.rows:
        return None
    methods = [{"method": facts.methods.index(name), **_turned(counts.methods[name])} for name in counts.best_first()]
    edges = list(map(float, counts.random.left.edges))
    return {"edges": edges, "methods": methods, "random": _turned(counts.random), "unchecked": counts.unchecked}


def _turned(turned: Turned) -> Facts:
    low, high = turned.interval() or (None, None)
    counts = list(map(int, turned.left.counts))
    return {
        "rows": turned.rows,
        "draws": turned.draws,
        "share": turned.share,
        "low": low,
        "high": high,
        "counts": counts,
    }


def _completeness(facts: Overview) -> Facts | None:
    """In how many rows scores miss their sum; None where no method names one."""
    counts = facts.removal
    if counts is None or not any(gaps.rows for gaps in counts.gaps.values()):
        return None
    return {"open": counts.open_rows, "methods": [_gaps(counts.gaps[method]) for method in facts.methods]}


def _gaps(gaps: Gaps) -> Facts:
    return {"rows": gaps.rows, "open": gaps.open, "largest": gaps.largest if gaps.rows else None}


def agreement_matrix(methods: Sequence[str], means: Mapping[tuple[str, str], Mean]) -> Facts:
    """[method method]: the mean of rows, and how many there are."""
    n = len(methods)
    mean, rows = np.full((n, n), None), np.zeros((n, n), dtype=np.int64)
    for pair, agreement in means.items():
        i, j = map(list(methods).index, pair)
        mean[i, j] = mean[j, i] = agreement.value
        rows[i, j] = rows[j, i] = agreement.count
    return {"mean": mean.tolist(), "rows": rows.tolist()}
