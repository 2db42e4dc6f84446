"""The table below a picture on a page: the model, what it ran on, and how a method computed its numbers, a row each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..scoring.conventions import CONVENTIONS
from ..scoring.notices import completeness
from .heading import removed, sum_line

Info = Mapping[str, Any]


def known_rows(rows: Iterable[tuple[str, str | None]]) -> list[list[str]]:
    """The rows that have a value."""
    return [[name, value] for name, value in rows if value is not None]


# --- what is the same for every method --------------------------------------------------------------------------------


def about_entry(info: Info, n: int) -> list[list[str]]:
    """The model, and what it ran on."""
    return known_rows(
        [
            ("Model", str(info.get("model", "not known"))),
            ("Revision", or_not_known(info.get("revision"))),
            ("Family and task", or_not_known(values_line(info, "family", "task"))),
            ("Number type", str(info.get("dtype", "not known"))),
            ("Tokens", _tokens_line(n, info)),
            ("Versions", or_not_known(versions_line(info.get("versions") or {}))),
            ("Model check", check_line(info.get("check"))),
            ("Unit", text_or_none(info.get("unit"))),
            ("Special tokens", _special_line(info)),
        ]
    )


def or_not_known(value: Any) -> str:
    """A value as text, and words for an empty one."""
    return str(value or "not known")


def _tokens_line(n: int, info: Info) -> str:
    """How many tokens there are, and whether each sees those before it alone."""
    return f"{n}, looks back only" if info.get("causal") else f"{n}"


def values_line(info: Info, *names: str) -> str:
    """The values that these names have."""
    return ", ".join(str(info[name]) for name in names if info.get(name))


def versions_line(versions: Info) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def options_line(options: Info) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def check_line(gap: float | None) -> str | None:
    return None if gap is None else f"{gap:.1e}: the largest gap of all identities, on a random input"


def text_or_none(value: Any) -> str | None:
    """A value as text; None where it is empty."""
    return str(value) if value else None


def _special_line(info: Info) -> str | None:
    """What was done with special tokens, and what those held that were left out."""
    return removed(info) or str(info["special_tokens"]) if info.get("special_tokens") else None


# --- one method -------------------------------------------------------------------------------------------------------


def about_method(info: Info) -> list[list[str]]:
    """What belongs to this method alone: variant, options, paper, and how well the layers add up."""
    rows = known_rows(
        [
            ("Variant", str(info.get("variant", "not known"))),
            ("Options", options_line(info.get("options") or {}) or "none"),
            ("Paper", text_or_none(info.get("paper"))),
            ("Reconstruction gap", _gap_line(info)),
            ("Completeness", _completeness_line(info)),
            ("Rolled out", _rollout_line(info)),
            ("Rollout", _convention_line(info)),
            ("Target", _target_line(info)),
            ("At layer", _layer_line(info)),
            ("Products in", _precision_line(info)),
        ]
    )
    return rows + [["Note", str(note)] for note in info.get("notes") or []]


def _gap_line(info: Info) -> str | None:
    """How well the layers of a map are rebuilt from their parts."""
    if info.get("gap") is not None:
        return f"{info['gap']:.1e}{_allowed(info)}: the layers rebuilt from their parts, against the model"
    if completeness(info) is not None or info.get("tolerance") is None:
        return None
    return f"not measured by this method (a map's may be at most {info['tolerance']:.0e})"


def _allowed(info: Info) -> str:
    return "" if info.get("tolerance") is None else f" (allowed: {info['tolerance']:.0e})"


def _completeness_line(info: Info) -> str | None:
    """How far the scores of an attribution are from adding up to what they explain; a map has its gap instead."""
    gap = completeness(info)
    if gap is None or info.get("gap") is not None:
        return None
    sums = info["completeness"]
    what = f"the scores add up to {sums['sum']:.6g}, what they explain is {sums['expected']:.6g}"
    return f"{sum_line(info, gap)}: {what}"


def _rollout_line(info: Info) -> str | None:
    return rolled(info["rollout"]) if info.get("rollout") else None


def rolled(rollout: Info) -> str:
    """How the layers of a map were put together."""
    if rollout.get("flow"):
        return "flow" if rollout.get("sum") else f"flow {rollout.get('convention')}"
    return "sum of layers" if rollout.get("sum") else f"rollout {rollout.get('convention')}"


def _convention_line(info: Info) -> str | None:
    """How a map is to be rolled out."""
    name = info.get("convention")
    if info.get("rollout") or not name:
        return None
    return f"{name}: {CONVENTIONS[name].source if name in CONVENTIONS else 'from the input already'}"


def _target_line(info: Info) -> str | None:
    if info.get("target") is None:
        return None
    return f"{info['target']} ({str(info.get('score')).replace('_', ' ')})"


def _layer_line(info: Info) -> str | None:
    return None if info.get("at_layer") is None else f"{info['at_layer']} (0 is the input)"


def _precision_line(info: Info) -> str | None:
    """The number type of the products, and the error it brings."""
    return f"{info['precision']}, error {info.get('precision_error', 0):.1e}" if info.get("precision") else None
