"""The lines above a picture: model, method, how well it adds up, what is explained, and in which unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import text as wording
from ..base.errors import printable
from ..base.text import for_terminal
from ..scoring.aggregate import shares_of_one
from ..scoring.notices import adds_up, completeness, noticed, off_sum
from ..types import Attribution, Prediction
from .tokens import shown

Info = Mapping[str, Any]
UNITS = {"logit": "logits", "probability": "probability", "log_probability": "nats (of the log probability)"}
CHANGES = ("blank_out", "lime", "gradient_shap", "grad_x_input")  # changes of the target, which need not add up
RELEVANCE = ("partial_lrp", "transatt")  # what adds up is the relevance inside, not the scores


# --- one line about a result ------------------------------------------------------------------------------------------


def heading_line(info: Info, method: str) -> str:
    """One line: which model, method and variant, how it was rolled out, how well it adds up, what was left out."""
    variant, gap, head = unusual_variant(info), completeness(info), (info.get("options") or {}).get("head")
    parts = [
        f"model {info.get('model', '?')}",
        f"method {method}",
        variant and f"variant {variant}",
        f"head {head + 1}" if isinstance(head, int) else None,  # counted from 1, as layers are
        rollout_name(info),
        f"after layer {info['layer'] + 1}" if "layer" in info else None,
        f"gap {info['gap']:.0e}" if "gap" in info else None,
        None if gap is None else sum_line(info, gap),
        removed(info),
    ]
    return printable(" · ".join(filter(None, parts)))


def unusual_variant(info: Info) -> str | None:
    """The variant of a method, where it is not the one of the paper."""
    return None if info.get("variant") in (None, "paper") else str(info["variant"])


def rollout_name(info: Info) -> str | None:
    """How the layers were put together, and by which convention."""
    rollout = info.get("rollout")
    return f"{'flow' if rollout.get('flow') else 'rollout'} {rollout['convention']}" if rollout else None


def sum_line(info: Info, gap: float) -> str:
    """That the scores add up, to within a bound of at least 0.1%, or that they do not, by so much."""
    return f"adds up to within {percent(max(gap, 0.001))}" if adds_up(info) else f"does not add up ({percent(gap)} off)"


def percent(share: float) -> str:
    """0.4%, and 2e-05% where one digit after the point would be 0."""
    size = 100 * share
    return f"{size:.1f}%" if abs(size) >= 0.05 or not size else f"{size:.0e}%"


# --- special tokens that were left out --------------------------------------------------------------------------------


def removed(info: Info) -> str | None:
    """What the special tokens that were left out held."""
    size = removed_size(info)
    if size is None:
        return None
    rest = "; the rest sums to 1" if info["special_removed"].get("rest_made_to_sum_to_1") else ""
    return f"special tokens left out ({size}{rest})"


def removed_size(info: Info) -> str | None:
    """The share of a map's row that the special tokens held; the sum of their scores where these have no whole."""
    facts = info.get("special_removed")
    if not isinstance(facts, Mapping):
        return None
    share = facts.get("share", facts.get("sum") if facts.get("rest_made_to_sum_to_1") else None)
    return f"their sum: {float(facts['sum']):.4g}" if share is None else f"{percent(float(share))} of the row"


def removed_by_each(results: Sequence[Attribution], names: Sequence[str]) -> list[str]:
    """One line on what the special tokens held in every row; no line where none were left out."""
    sizes = {name: removed_size(result.info) for result, name in zip(results, names, strict=True)}
    parts = [
        f"{printable(name)} {size.removeprefix('their sum: ').removesuffix(' of the row')}"
        for name, size in sizes.items()
        if size is not None
    ]
    return [f"special tokens left out: {', '.join(parts)}"] if parts else []


# --- notes, and what is predicted and explained -----------------------------------------------------------------------


def notes(method: str, info: Info) -> list[str]:
    """What must be known before the numbers of a method, a line each."""
    return [f"note: {printable(notice)}" for notice in [*noticed(info), *off_sum(method, info)]]


def notes_of_each(results: Sequence[Attribution], names: Sequence[str]) -> list[str]:
    """The notes of several rows: those about the text once, those about one row with its name."""
    of_text = dict.fromkeys(notice for result in results for notice in noticed(result.info))
    pairs = zip(results, names, strict=True)
    of_rows = [f"{name}: {notice}" for result, name in pairs for notice in off_sum(result.method, result.info)]
    return [f"note: {printable(notice)}" for notice in [*of_text, *of_rows]]


def words_of(prediction: Prediction) -> list[str]:
    """Each predicted word with its probability, written so that the word can be given back as a target."""
    return [f"{printable(word)} {share:.1%}" for word, share in prediction]


def explained_lines(info: Info) -> list[str]:
    """What the scores are about: a generated token, a class or word, or a position; no line where a result is about
    none."""
    if "query_token" not in info:
        return []
    place = f"{shown(info['query_token'])} (position {info['query']})"
    if info.get("generated") is not None:
        return [f"explains  {shown(info['generated'])}, written after {place}"]
    if info.get("target") is None:
        return [f"explains  {place}"]
    what = f"explains  {info['score'].replace('_', ' ')} of {printable(str(info['target']))}"
    is_span = info.get("task") == "question-answering" and str(info["target"]).startswith("span ")
    return [f"{what}: its start and its end together" if is_span else f"{what} at {place}"]


def explained_by_each(results: Sequence[Attribution], names: Sequence[str]) -> list[str]:
    """What the rows of a comparison are about: once where it is the same for all, else with the names of the rows."""
    groups: dict[str, list[str]] = {}
    for result, name in zip(results, names, strict=True):
        for line in explained_lines(result.info):
            groups.setdefault(line, []).append(printable(name))
    return list(groups) if len(groups) < 2 else [f"{line}: {', '.join(rows)}" for line, rows in groups.items()]


# --- units ------------------------------------------------------------------------------------------------------------


def are_shares(info: Info) -> bool:
    """Are these scores of a map whose rows sum to 1?"""
    return "distribution" in info and shares_of_one(info)


def in_percent(info: Info) -> bool:
    """Is this a row of a map whose unit nobody can read (norms, products of norms)? Then it is shown in percent of the
    row."""
    return "distribution" in info and not shares_of_one(info)


def number_of(info: Info, scores: Sequence[float], digits: int) -> Callable[[float], str]:
    """The function that writes a score of this row."""
    whole = sum(map(abs, scores)) if in_percent(info) else 1.0
    if are_shares(info) or in_percent(info):
        return lambda score: share_text(score / whole if whole > 0 else 0.0)
    return lambda score: f"{score:.{digits}g}"


def share_text(share: float) -> str:
    """A share in percent, as every page writes it, with a plain space."""
    return for_terminal(wording.percent(share))


def unit_lines(info: Info, scores: Sequence[float]) -> list[str]:
    """A sentence about the unit; none of shares, which are in percent, and where the unit is not known."""
    if in_percent(info):
        return [f"in percent of the row; its sum is {sum(map(abs, scores)):.3g}, in a unit of the method's own"]
    if info.get("target") is None:
        return []
    unit = UNITS.get(str(info.get("score")), "the target's unit")
    return [f"scores in {unit}" if _in_unit_of_target(info) else "scores in a unit of the method's own"]


def _in_unit_of_target(info: Info) -> bool:
    """Are the scores parts or changes of the number that they explain, and so in its unit?"""
    method = info.get("method")
    return method in CHANGES or (completeness(info) is not None and method not in RELEVANCE)


def largest_of(info: Info, scores: Sequence[float]) -> str:
    """The largest score of a row, with what it is a number of."""
    size = number_of(info, scores, 3)(max(map(abs, scores), default=0.0))
    if in_percent(info):
        return f"{size} of the row"
    explains_score = info.get("target") is not None and info.get("score") is not None and _in_unit_of_target(info)
    return f"{size} (of the {str(info['score']).replace('_', ' ')})" if explains_score else size
