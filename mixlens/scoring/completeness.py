"""Whether scores add up to what their method says they add up to: a change of the target, or all of its relevance."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..types import Attribution

CLOSED = 0.01  # the relative gap above which a user is warned
NEARLY_NOTHING = 1e-5  # of the sum of magnitudes: the least a gap is divided by
MORE_STEPS = " Give more steps (steps=, or most_steps=), or another baseline=."
ADVICE = {
    "integrated_gradients": MORE_STEPS,
    "sequential_integrated_gradients": MORE_STEPS,
    "layer_conductance": " Give more steps (most_steps=), or another baseline=.",
    "discretized_integrated_gradients": " Give smaller steps (factor=3 or higher, with rule=trapezoid).",
    "deeplift": " See info['functions_without_rule'].",
}
WIDER = " Load the model in float32, which rounds less."


class IncompleteWarning(UserWarning):
    """Scores that do not add up to what they have to."""


def completeness(scores: Tensor, expected: float) -> dict[str, float]:
    """The sum of scores, what it has to be, and their distance as a share of the latter.

        relative_gap = |sum_j s_j - expected| / max(|expected|, 1e-5 sum_j |s_j|)

    The second divisor holds where scores for and against the target add up to nearly nothing.
    """
    exact = scores.double() if scores.device.type != "mps" else scores
    total, size = float(exact.sum()), float(exact.abs().sum())
    over = max(abs(expected), NEARLY_NOTHING * size)
    return {"sum": total, "expected": expected, "relative_gap": abs(total - expected) / over if over else 0.0}


def warn_where_open(result: Attribution) -> None:
    """Warn of scores that do not add up as their method says. Released code that is known not to is not warned of."""
    info = result.info
    totals = info.get("completeness")
    if totals is None or totals["relative_gap"] <= CLOSED or str(info.get("variant", "")).startswith("released"):
        return
    what = "the relevance of a layer adds" if "conservation_gap" in info else "the scores add"
    after = f" after {info['steps']} steps" if "steps" in info else ""
    told = (
        f"{result.method}: {what} up to {totals['sum']:.4g}, not to {totals['expected']:.4g} "
        f"({totals['relative_gap']:.1%} off, in {info.get('dtype')}){after}.{advice(result.method, info)}"
    )
    warnings.warn(told, IncompleteWarning, stacklevel=3)


def advice(method: str, info: Mapping[str, Any]) -> str:
    """What brings the scores of a method closer to their sum, as a sentence after a space; empty where nothing is
    known to."""
    return ADVICE.get(method, "") if info.get("dtype", "float32") in ("float32", "float64") else WIDER
