"""What stands above a picture: model, method, how well it adds up, what is explained, and in which unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..aggregate import shares_of_one
from ..errors import printable
from ..notices import completeness, noticed, off_sum
from ..types import Attribution, Prediction
from .tokens import shown


def told(info: Mapping[str, Any], method: str) -> str:
    """One line: which model, method and variant, how it was rolled out, how well it adds up, what was left out."""
    parts = [f"model {info.get('model', '?')}", f"method {method}"]
    if info.get("variant") not in (None, "paper"):
        parts.append(f"variant {info['variant']}")
    if info.get("rollout"):
        parts.append(f"{'flow' if info['rollout'].get('flow') else 'rollout'} {info['rollout']['convention']}")
    if "layer" in info:
        parts.append(f"after layer {info['layer'] + 1}")
    if "gap" in info:
        parts.append(f"gap {info['gap']:.0e}")
    if (off := completeness(info)) is not None:
        parts.append(f"adds up to within {bound(off)}")
    if (gone := removed(info)) is not None:
        parts.append(gone)
    return printable(" · ".join(parts))


def bound(share: float) -> str:
    """A percentage that the share is not above: 0.4%, and 0.1% of whatever is smaller."""
    return percent(max(share, 0.001))


def percent(share: float) -> str:
    """0.4%, and 2e-05% where one digit after the point would be 0."""
    size = 100 * share
    return f"{size:.1f}%" if abs(size) >= 0.05 or not size else f"{size:.0e}%"


def removed(info: Mapping[str, Any]) -> str | None:
    """What the special tokens that were left out held."""
    held = removed_size(info)
    if held is None:
        return None
    rest = "; the rest sums to 1" if info["special_removed"].get("rest_made_to_sum_to_1") else ""
    return f"special tokens left out ({held}{rest})"


def removed_size(info: Mapping[str, Any]) -> str | None:
    """Their share of a map's row, else the sum of their scores."""
    one = info.get("special_removed")
    if not isinstance(one, Mapping):
        return None
    share = one["share"] if "share" in one else one["sum"] if one.get("rest_made_to_sum_to_1") else None
    return f"their sum: {float(one['sum']):.4g}" if share is None else f"{percent(float(share))} of the row"


def removed_by_each(results: Sequence[Attribution], names: Sequence[str]) -> list[str]:
    """The same, row by row."""
    sizes = {name: removed_size(result.info) for result, name in zip(results, names, strict=True)}
    plain = {
        name: size.removeprefix("their sum: ").removesuffix(" of the row") for name, size in sizes.items() if size is not None
    }
    held = [f"{printable(name)} {size}" for name, size in plain.items()]
    return [f"special tokens left out: {', '.join(held)}"] if held else []


def notes(info: Mapping[str, Any]) -> list[str]:
    """What must be known before the numbers, a line each."""
    return [f"note: {printable(one)}" for one in (*noticed(info), *off_sum(info))]


def notes_of_each(results: Sequence[Attribution], names: Sequence[str]) -> list[str]:
    """The same of several rows: once what is about the text, and with a name what is about one of them."""
    of_text = dict.fromkeys(one for result in results for one in noticed(result.info))
    of_rows = [f"{name}: {one}" for result, name in zip(results, names, strict=True) for one in off_sum(result.info)]
    return [f"note: {printable(one)}" for one in (*of_text, *of_rows)]


def predicted(prediction: Prediction) -> str:
    return "predicts  " + "   ".join(words_of(prediction))


def words_of(prediction: Prediction) -> list[str]:
    return [f"{printable(word)} {share:.1%}" for word, share in prediction]  # by names that can be given back


def explained(info: Mapping[str, Any]) -> str:
    """What the scores are about: a generated token, a class or word, or a position."""
    place = f"{shown(info['query_token'])} (position {info['query']})"
    if info.get("generated") is not None:
        return f"explains  {shown(info['generated'])}, written after {place}"
    if info.get("target") is not None:
        return f"explains  {info['score'].replace('_', ' ')} of {printable(str(info['target']))} at {place}"
    return f"explains  {place}"


def explained_by_each(results: Sequence[Attribution], names: Sequence[str]) -> list[str]:
    """What the rows of a comparison are about: once where it is the same for all, else with the names of the rows."""
    groups: dict[str, list[str]] = {}
    for result, name in zip(results, names, strict=True):
        if "query_token" in result.info:
            groups.setdefault(explained(result.info), []).append(printable(name))
    if len(groups) < 2:
        return list(groups)
    return [f"{about}: {', '.join(who)}" for about, who in groups.items()]


# --- units ------------------------------------------------------------------------------------------------------------


def in_percent(info: Mapping[str, Any]) -> bool:
    """Is this a row of a map whose unit nobody can read (norms, products of norms)? Then it is shown in percent of the row."""
    return "distribution" in info and not shares_of_one(info)


def number_of(info: Mapping[str, Any], scores: Sequence[float], digits: int) -> Callable[[float], str]:
    """How a score of this row is written."""
    if not in_percent(info):
        return lambda score: f"{score:.{digits}g}"
    whole = sum(map(abs, scores))
    return lambda score: f"{100 * score / whole if whole > 0 else 0.0:.1f}%"


def unit_of(info: Mapping[str, Any], scores: Sequence[float]) -> str | None:
    """A sentence about the unit, where it is not plain."""
    if not in_percent(info):
        return None
    return f"in percent of the row; its sum is {sum(map(abs, scores)):.3g}, in a unit of the method's own"


def largest_of(info: Mapping[str, Any], scores: Sequence[float]) -> str:
    """The largest score of a row, with what it is a number of."""
    size = max(map(abs, scores), default=0.0)
    told_as = number_of(info, scores, 3)(size)
    if in_percent(info):
        return f"{told_as} of the row"
    if info.get("target") is not None and info.get("score") is not None:
        return f"{told_as} (of the {str(info['score']).replace('_', ' ')})"
    return told_as
