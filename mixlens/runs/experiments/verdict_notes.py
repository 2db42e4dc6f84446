"""What stands below a ranking: which way is better, what the score and the groups are, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...scoring.asking import RANDOM
from ..judge.scoreboard import Scoreboard
from .experiment import Setup

FEWER_KINDS = (
    "A score without a kind is the mean over the other kinds; two methods are compared over the kinds that both have, so that "
    "the order by score need not be that of the differences."
)
SURE = 30  # texts from which on a ranking is more than a hint


def note_of(setup: Setup, board: Scoreboard, twins: Mapping[str, Sequence[str]]) -> str:
    """How to read a ranking, and what is left out of it."""
    parts = [
        _directions(board),
        _signs(setup.options["ranking"], board),
        _score(board),
        _groups(board),
        _twins(twins),
        _circular(board),
        *_undefined(board),
    ]
    return " ".join([*filter(None, parts), *filter(None, [_caution(len(setup.examples))])])


def _directions(board: Scoreboard) -> str:
    ways = {way: ", ".join(board.names(better=way)) for way in ("higher", "lower")}
    directions = "; ".join(f"{way} is better: {names}" for way, names in ways.items() if names)
    return f"{directions[0].upper()}{directions[1:]}."


def _signs(ranking: str, board: Scoreboard) -> str:
    """The metrics that a reading of the signs for the whole run does not change."""
    names = [v.request.written for v in board.metrics if not {"ranking", "signs"} & {*v.request.metric.options}]
    return "" if ranking == "default" or not names else f"The ranking {ranking} does not change {', '.join(names)}."


def _score(board: Scoreboard) -> str:
    if not board.has_random:
        return ""
    kinds = "; ".join(f"{kind} ({', '.join(board.names(kind=kind))})" for kind in board.kinds)
    return (
        "Score: how much better than random scores on the same text, in standard deviations of a random draw; the mean over "
        f"kinds of metrics, each of which counts once: {kinds}."
    )


def _groups(board: Scoreboard) -> str:
    if not board.differences:
        return ""
    return (
        "Group: the methods that are not told apart from the first of the group, by 95 % intervals of paired differences that "
        "hold for all pairs at once. Members of a group may differ from each other, and members of two groups need not: the "
        "number of a group is no rank."
    )


def _twins(twins: Mapping[str, Sequence[str]]) -> str:
    joined = any(len(group) > 1 for group in twins.values())
    return "Methods joined by = have the same scores on every text and are one row." if joined else ""


def _circular(board: Scoreboard) -> str:
    """Which methods a metric does not judge, since it would compare them with what they are made of, and what that does."""
    ranked = sorted(set(board.methods) - {RANDOM})
    left_out = {v.request.name: [method for method in ranked if not v.judges(method)] for v in board.metrics}
    told = [_not_judged(names, metric) for metric, names in left_out.items() if names]
    return " ".join([*told, FEWER_KINDS]) if told else ""


def _not_judged(names: Sequence[str], metric: str) -> str:
    if len(names) == 1:
        return f"{names[0]} has no {metric}: it would be compared with what it is made of."
    return (
        f"{', '.join(names[:-1])} and {names[-1]} have no {metric}: they would be compared with what they are made of."
    )


def _undefined(board: Scoreboard) -> list[str]:
    left = {values.request.written: int((~values.defined).sum()) for values in board.metrics}
    return [
        f"{name} is undefined for a method on {n} texts, which are left out for all." for name, n in left.items() if n
    ]


def _caution(n: int) -> str:
    if n == 1:
        return "One text has no intervals, and no two methods are told apart by it."
    if n >= SURE:
        return ""
    return f"Caution: {n} texts are few. On others the order may be another: look at the groups, and judge {SURE} texts or more."
