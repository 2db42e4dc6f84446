"""What `judge` says: the ranked tables with their notes, the answer in one sentence, and all of it in lines for a
terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from ...base.text import listed, sentence_case
from ...data import field_names
from ...metrics import Interval
from ...metrics.agreement import kendall
from ...metrics.intervals import difference_with_interval
from ...scoring.asking import RANDOM
from ...types import Record
from ..experiments.experiment import Setup
from ..experiments.figure_style import axis_label
from ..experiments.figures import bars
from ..experiments.tables import Cell, Table, by
from .ask import GROUPS, OTHER_SIGNS, classes_of, labels_of, missing_token, parse_metric
from .board import FEWEST, QUESTIONS, Scoreboard, Values, against_zero, boards_of, mean_of, twins_in

Rows = list[tuple[Cell, ...]]  # of a table
NAMED = 5  # methods or labels that a sentence names
SURE = 30  # texts from which on a ranking is more than a hint
MANY = 100_000  # texts
RESAMPLES = 500  # of texts, for the interval of an agreement
LABEL = "label"  # the field of a file that holds labels, as most have it
TWINS = " = "  # between methods that have the same scores
TITLES = {
    "ranking": "Faithfulness: which method finds the tokens that the prediction rests on",
    "plausibility": "Plausibility: which method finds the tokens that are known to decide, or that people marked",
    "others": "Other metrics",
}
ONE_TEXT = (
    "One text: the order below is not a ranking, and another text may turn it round. Judge 30 texts or more to rank "
    "methods: mixlens judge MODEL DATA --n 50."
)


# --- the ranking, and what stands below it ----------------------------------------------------------------------------


def tables_of(setup: Setup, records: list[Record]) -> list[Table]:
    """The rankings, the leader against every other method, and what depends on signs, on correctness and on fillers."""
    boards, twins = boards_of(setup, records), twins_in(setup, records)
    first = next(iter(boards.values()))
    details = [
        *(_pairs(name, board) for name, board in boards.items()),
        _signs(setup, list(twins), records),
        _correctness(first, records, labels_told(setup)),
        _fillers(first),
    ]
    rankings = [_ranking(setup, name, board, twins) for name, board in boards.items()]
    return [*rankings, *(table for table in details if table is not None)]


def _ranking(setup: Setup, name: str, board: Scoreboard, twins: Mapping[str, Sequence[str]]) -> Table:
    """Where there are several kinds of metrics, their means have columns: the score is the mean of these."""
    kinds, rows = board.kinds if len(board.kinds) > 1 else (), Rows()
    for rank, method in enumerate(board.order, 1):
        group = board.groups[method] if board.differences else None
        row: list[Cell] = [rank, TWINS.join(twins[method]), group, board.means[method]]
        for kind in kinds:
            of = board.by_kind[method].get(kind)
            row.append(None if of is None else math.nan if np.isnan(of).all() else float(np.nanmean(of)))
        cells = [values.interval(method, board.seed) for values in board.metrics]
        tested = method != RANDOM and board.differences
        wins = (
            [f"{board.wins[method]} of {len(cells) - cells.count(None)}" if tested else "-"] if board.has_random else []
        )
        rows.append((*row, *cells, *wins))
    metrics = [values.request.written for values in board.metrics]
    last = ["better than random on"] if board.has_random else []
    columns = ("rank", "method", "group", "score", *(f"score ({kind})" for kind in kinds), *metrics, *last)
    return Table(name, TITLES[name], columns, tuple(rows), note_of(setup, board, twins))


def note_of(setup: Setup, board: Scoreboard, twins: Mapping[str, Sequence[str]]) -> str:
    """How to read a ranking: which way is better, what the score and the groups are, and what is left out."""
    requests, ranking, n = [values.request for values in board.metrics], setup.options["ranking"], len(setup.examples)
    ways = {way: [one.written for one in requests if one.metric.better == way] for way in ("higher", "lower")}
    parts = [
        sentence_case("; ".join(f"{way} is better: {', '.join(names)}" for way, names in ways.items() if names)) + "."
    ]
    unread = [one.written for one in requests if not {"ranking", "signs"} & {*one.metric.options}]
    if ranking != "default" and unread:
        parts.append(f"The ranking {ranking} does not change {', '.join(unread)}.")
    if board.has_random:
        of = {kind: ", ".join(one.written for one in requests if one.kind == kind) for kind in board.kinds}
        parts.append(
            "Score: how much better than random scores on the same text, in standard deviations of a random draw; the "
            "mean over kinds of metrics, each of which counts once: "
            f"{'; '.join(f'{kind} ({names})' for kind, names in of.items())}."
        )
    if board.differences:
        parts.append(
            "Group: the methods that are not told apart from the first of the group, by 95 % intervals of paired "
            "differences that hold for all pairs at once. Members of a group may differ from each other, and members "
            "of two groups need not: the number of a group is no rank."
        )
    if any(len(group) > 1 for group in twins.values()):
        parts.append("Methods joined by = have the same scores on every text and are one row.")
    parts += _not_judged(board)
    for values in board.metrics:
        if left := int((~values.defined).sum()):
            parts.append(
                f"{values.request.written} is undefined for a method on {left} texts, which are left out for all."
            )
    if n == 1:
        parts.append("One text has no intervals, and no two methods are told apart by it.")
    elif n < SURE:
        parts.append(
            f"Caution: {n} texts are few. On others the order may be another: look at the groups, and judge {SURE} "
            "texts or more."
        )
    return " ".join(parts)


def _not_judged(board: Scoreboard) -> list[str]:
    """Which methods a metric does not judge, since it would compare them with what they are made of, and what that
    does."""
    ranked, told = sorted({*board.methods} - {RANDOM}), {}
    for values in board.metrics:
        names, metric = [method for method in ranked if method not in values.of], values.request.name
        if len(names) == 1:
            told[metric] = f"{names[0]} has no {metric}: it would be compared with what it is made of."
        elif names:
            told[metric] = f"{listed(names)} have no {metric}: they would be compared with what they are made of."
    fewer = (
        "A score without a kind is the mean over the other kinds; two methods are compared over the kinds that both "
        "have, so that the order by score need not be that of the differences."
    )
    return [*told.values(), fewer] if told else []


# --- the tables behind a ranking --------------------------------------------------------------------------------------


def _pairs(name: str, board: Scoreboard) -> Table | None:
    """The method with the highest score against every other, where they can be compared."""
    leader, rows = board.order[0], Rows()
    for (first, other), one in board.differences.items():
        if first == leader:
            needed = None if one.sign else one.needed_for_all
            size = "more than 100,000" if needed is not None and needed > MANY else needed
            p = "< 0.001" if one.p < 0.001 else f"{one.p:.3f}"
            interval = Interval(one.mean, one.low, one.high, one.n, math.nan)
            rows.append((other, interval, "yes" if one.sign else "no", p, size))
    columns = ("method", f"{leader} less method", "told apart", "p, adjusted", "texts needed")
    note = (
        "Texts needed: so many would tell the two apart among all pairs at once, with 80 % power, if the difference is "
        "as large as here."
    )
    note += " Differences are over the kinds that both have." if any(map(board.lacks, board.methods)) else ""
    title = f"{leader}, the highest score in {QUESTIONS[name]}, against every other method"
    return Table(f"{name}_pairs", title, columns, tuple(rows), note) if rows else None


def _signs(setup: Setup, methods: Sequence[str], records: Sequence[Record]) -> Table | None:
    """The methods for which it matters whether tokens are ranked by signed scores or by their magnitude."""
    groups, rows = by(records, "method", "metric"), Rows()
    for names in OTHER_SIGNS.items():
        both = [method for method in methods if all((method, name) in groups for name in names)]
        one, other = ({m: np.array([record.value for record in groups[m, name]]) for m in both} for name in names)
        compared = against_zero({method: one[method] - other[method] for method in both}, seed=setup.seed)
        for method, difference in compared.items():
            if difference.sign:
                means = [mean_of(values[method], setup.seed) for values in (one, other)]
                rows.append((method, names[0], means[0], names[1], means[1], str(difference)))
    columns = ("method", "as ranked", "mean", "other reading of the signs", "its mean", "difference")
    note = "Rows are shown where the difference, text by text, is not 0 (95 % intervals, for all methods at once)."
    return Table("signs", "Where signed scores and magnitudes disagree", columns, tuple(rows), note) if rows else None


def _correctness(board: Scoreboard, records: Sequence[Record], labels: str) -> Table | None:
    """The scores on texts that the model gets right and on those that it gets wrong, where both are known. `labels`:
    what is said of labels."""
    first = (records[0].method, records[0].metric)
    known = [record.info.get("right") for record in records if (record.method, record.metric) == first]
    sides = {name: np.array([right is side for right in known]) for name, side in (("right", True), ("wrong", False))}
    sizes = {name: int(side.sum()) for name, side in sides.items()}
    if min(sizes.values()) < 2:
        return None
    rows = Rows()
    for method in board.order:
        scores = board.scores(method)
        values = [scores[side & ~np.isnan(scores)] for side in sides.values()]
        means = []
        for row in values:
            alone = Interval(float(row.mean()) if len(row) else math.nan, math.nan, math.nan, len(row), math.nan)
            means.append(mean_of(row, board.seed) if len(row) >= FEWEST else alone)
        enough = min(map(len, values)) >= FEWEST
        rows.append((method, *means, difference_with_interval(*values, seed=board.seed) if enough else None))
    note = (
        "The score of the first table, on the texts that the model predicts right and on those that it predicts wrong. "
        "Right less wrong: the difference of the two means; the texts of each side are resampled apart, for each "
        f"method by itself. No interval is made from fewer than {FEWEST} texts."
    )
    parts = [
        note,
        labels,
        *(f"Caution: {size} {name} predictions are few." for name, size in sizes.items() if size < SURE),
    ]
    columns = ("method", *(f"{name} ({size} texts)" for name, size in sizes.items()), "right less wrong")
    return Table("correctness", "Right and wrong predictions", columns, tuple(rows), " ".join(filter(None, parts)))


def _fillers(board: Scoreboard) -> Table | None:
    """How much the order of the methods depends on what stands in the place of a token that is taken away."""
    fillers = [values for values in board.metrics if "replacement" in values.request.options]
    if len(fillers) < 2 or len(fillers[0].methods) < 2:
        return None
    rows = Rows()
    for values in fillers:
        of = {method: np.where(values.defined, values.of[method], np.nan) for method in values.methods}
        best, *others = sorted(of, key=lambda method: -values.request.sign * float(np.nanmean(of[method])))
        less = against_zero({method: of[best] - of[method] for method in others}, seed=board.seed).get(others[0])
        next_one = (None, None) if less is None else (f"{others[0]}: {less}", "yes" if less.sign else "no")
        random = mean_of(values.of[RANDOM], board.seed) if RANDOM in values.of else None
        agreement = 1.0 if values is fillers[0] else _agreement(values, fillers[0], board.seed)
        rows.append((values.request.written, best, *next_one, random, agreement))
    against = f"agreement of the order with {fillers[0].request.written}"
    columns = ("metric", "best method", "best less the next", "told apart", "random scores", against)
    note = (
        "Best less the next: the method with the second mean, and the paired difference of the two, with a 95 % "
        "interval that holds for the best against all others. Agreement: Kendall's tau between the two orders of the "
        f"methods, 1 where they are the same; its interval is the middle 95 % of {RESAMPLES} resamples of the texts."
    )
    return Table("fillers", "What stands in the place of removed tokens", columns, tuple(rows), note)


def _agreement(one: Values, other: Values, seed: int) -> Interval:
    """Kendall's tau between the orders of the methods by two metrics, and its interval over resampled texts."""
    table = np.stack([[values.standard(method) for method in one.methods] for values in (one, other)])
    shared = table[:, :, ~np.isnan(table).any((0, 1))]
    n = shared.shape[-1]
    picked = np.random.default_rng(seed).integers(0, n, size=(RESAMPLES if n >= FEWEST else 0, n))
    taus = [float(kendall(*shared[:, :, places].mean(-1))) for places in picked]
    low, high, spread = (*np.nanpercentile(taus, [2.5, 97.5]), np.nanstd(taus)) if taus else (math.nan,) * 3
    return Interval(float(kendall(*shared.mean(-1))), float(low), float(high), n, float(spread))


# --- the answer, and what the tables lack -----------------------------------------------------------------------------


def answers_of(setup: Setup, records: Sequence[Record]) -> list[str]:
    """One sentence for each question: which method has the highest score, and which are not told apart from it or from
    random scores."""
    boards = boards_of(setup, records)
    return [answer_of(len(setup.examples), QUESTIONS[name], board) for name, board in boards.items()]


def answer_of(n: int, question: str, board: Scoreboard) -> str:
    texts, leader = "this text" if n == 1 else f"these {n} texts", board.order[0]
    if not board.differences:
        first = [method for method in board.order if board.means[method].mean == board.means[leader].mean]
        has = (
            f"{leader} has the highest score" if len(first) < 2 else f"{_some(first)} have the same score, the highest"
        )
        return f"On {texts} {has} in {question}; so few texts tell no two methods apart."
    told = "".join(f" (without the kind {kind})" for kind in board.lacks(leader))
    near, below, above, chance = board.leaders[1:], board.apart(1), board.apart(-1), board.like_random
    if near:
        told += f"; {len(near)} {'is' if len(near) == 1 else 'are'} not told apart from it: {_some(near)}"
    else:
        told += " and is told apart from every other method"
    below = [method for method in below if method != RANDOM]
    if below:
        told += f"; it is above {len(below)} other{'s' if len(below) > 1 else ''}"
    if above:
        told += f"; over the kinds that both have, {_some(above)} {'is' if len(above) == 1 else 'are'} above it"
    if chance:
        told += f"; not told apart from random scores: {_some(chance)}"
    return f"On {texts} {leader} has the highest score in {question}{told}."


def _some(names: Sequence[str]) -> str:
    """The names, the first five of them where they are many."""
    many = len(names) > NAMED + 1
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others" if many else listed(names)


def labels_told(setup: Setup) -> str:
    """That labels are ids of classes, or are no classes; "" where they are names of classes, or there are none."""
    labels = labels_of(setup.examples)
    if not labels or setup.model.task != "classification":
        return ""
    names = {str(number): str(name) for number, name in setup.model.hf_model.config.id2label.items()}
    classes = classes_of(setup.examples, setup.model)
    unknown = [repr(label) for label in labels if label not in classes]
    if unknown:
        some = "their texts count as neither right nor wrong"
        ends = some if len(unknown) < len(labels) else "there is no table of right and wrong predictions"
        told = ", ".join(unknown[:NAMED]) + " ..." * (len(unknown) > NAMED)
        return f"Labels that are no classes of the model ({', '.join(map(' = '.join, names.items()))}): {told}; {ends}."
    by_id = sorted((label for label, one in classes.items() if label == str(one) != names[label]), key=int)
    told = ", ".join(f"{label} = {names[label]}" for label in by_id)
    return f"Labels are taken as the ids of the model's classes: {told}." if told else ""


def remarks_of(setup: Setup, groups: Sequence[str], data: str | None, fields: Mapping[str, Any]) -> list[str]:
    """What the tables lack, and why. `groups`: the metrics as written; `data`, `fields`: the file and the names of its
    fields as given."""
    told = []
    for name in chain.from_iterable(GROUPS.get(group, ()) for group in groups):
        if name not in setup.options["metrics"]:
            token = missing_token(setup.model, parse_metric(name))
            lack = f"{setup.model.name!r} has no {token} token"
            if token == "infilled":
                lack = "infilling needs a masked language model with this vocabulary, --infill NAME"
            told.append(f"{name} is left out: {lack}.")
    told += filter(None, [labels_told(setup)])
    if setup.model.task == "classification" and not fields.get("label_field") and LABEL in field_names(data):
        told.append(
            f"The field {LABEL!r} of {data} was not read: --label-field {LABEL} makes a table of right and wrong "
            "predictions where the labels are classes of the model."
        )
    return told


# --- in lines ---------------------------------------------------------------------------------------------------------


def wrapped(text: str, width: int | None) -> list[str]:
    return [text] if width is None else textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def lines(table: Table, *, width: int | None = None, beside: int = 1) -> list[str]:
    """A table for the terminal. Where it is wider than `width`, it is cut into parts, and each part begins with the
    first `beside` columns."""
    rows = [list(table.columns), *([_cell(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    room = math.inf if width is None else width - sum(widths[:beside]) - 2 * beside
    parts: list[list[int]] = [[]]
    for i in range(beside, len(widths)):
        if parts[-1] and sum(widths[j] + 2 for j in parts[-1]) + widths[i] > room:
            parts.append([])
        parts[-1].append(i)
    text: list[str] = []
    for part in parts:
        columns = [*range(min(beside, len(widths))), *part]
        text += ["", *_aligned([[row[i] for i in columns] for row in rows])]
    return text[1:]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells, each column as wide as its widest."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(cell: Any) -> str:
    """A mean with its interval where it has one, and how many values are not defined."""
    if isinstance(cell, Interval):
        reach = "" if math.isnan(cell.low) else f" [{cell.low:.3f}, {cell.high:.3f}]"
        return f"{cell.mean:.3f}{reach}" + (f" -{cell.undefined}" if cell.undefined else "")
    return f"{cell:.3f}" if isinstance(cell, float) else "" if cell is None else str(cell)


FIRST, LAST = ("rank", "method", "group", "score"), ("better than random on", "seconds")
SHORT = {"better than random on": "> random"}


def metrics_in(table: Table) -> list[str]:
    """The columns that are metrics, and no part of a score."""
    return [name for name in table.columns if name not in (*FIRST, *LAST) and not name.startswith("score (")]


def summary_lines(table: Table, *, width: int, one_text: bool) -> list[str]:
    """A ranking with one row for each method and means without intervals: the first and the last columns that say
    something, and between them the metrics for which there is room, one of each kind before a second one. Then what is
    not in it."""
    columns, metrics = {}, metrics_in(table)
    for name, cells in zip(table.columns, zip(*table.rows, strict=True), strict=True):
        says_nothing = name in (*FIRST, *LAST) and all(cell in (None, "-") for cell in cells)
        if not says_nothing and not (one_text and name == "rank"):
            columns[name] = [SHORT.get(name, name), *(_mean_of_cell(cell, name) for cell in cells)]
    kinds: dict[str, str] = {}
    for name in metrics:
        kinds.setdefault(parse_metric(name).kind, name)
    shown = [name for name in columns if name in (*FIRST, *LAST)]
    for name in sorted(metrics, key=lambda name: name not in kinds.values()):
        wider = [*shown, name]
        if sum(max(map(len, columns[one])) for one in wider) + 2 * (len(wider) - 1) <= width:
            shown = wider
    body = _aligned([*zip(*(columns[name] for name in columns if name in shown), strict=True)])
    groups = [str(name).split(TWINS) for name in table.column("method")]
    twins = [f"{name} (= {len(rest)}): the same scores have {', '.join(rest)}." for name, *rest in groups if rest]
    left = [name for name in metrics if name not in shown]
    said = f"Not shown: {', '.join(left)}. " if left else ""
    return [*body, "", *twins, f"{said}Every metric with its interval, and further tables: --full."]


def _mean_of_cell(cell: Any, column: str) -> str:
    """A cell without its interval; of methods with the same scores the first, and how many others there are."""
    if column == "method":
        name, *others = str(cell).split(TWINS)
        return f"{name} (= {len(others)})" if others else name
    return _cell(cell.mean if isinstance(cell, Interval) else cell)


# --- the figure -------------------------------------------------------------------------------------------------------


def figure_of(setup: Setup, tables: list[Table], figure: Any) -> None:
    """The first metric as bars, the best on top: in the order of what is drawn, not of the score over all metrics."""
    table, name = tables[0], metrics_in(tables[0])[0]
    request, place = parse_metric(name), tables[0].columns.index(name)

    def lowness(row: Iterable[Cell]) -> float:
        cell = [*row][place]
        mean = cell.mean if isinstance(cell, Interval) else math.nan
        return math.inf if math.isnan(mean) else -request.sign * mean

    ordered = replace(table, rows=tuple(sorted(table.rows, key=lowness)))
    shown = "" if len(setup.examples) == 1 else ", mean and 95 % interval"
    title = f"{axis_label(name)}{shown} ({request.metric.better} is better)"
    bars(figure.subplots(), ordered, name, title=title, ordered=True)
