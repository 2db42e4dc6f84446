"""Whether scores add up to what their method says they add up to: a change of the target, or all of its relevance."""

from __future__ import annotations

import warnings

from torch import Tensor

from .types import Attribution

CLOSED = 0.01  # of what scores have to add up to: further off than this is warned of


class IncompleteWarning(UserWarning):
    """Scores that do not add up to what they have to."""


def completeness(scores: Tensor, expected: float) -> dict[str, float]:
    """What scores add up to, what they have to add up to, and how far apart the two are, as a share of the latter.

    Where scores for and against the target add up to nearly nothing, the share is of a 100,000th of all of them.
    """
    exact = scores.double() if scores.device.type != "mps" else scores
    total, size = float(exact.sum()), float(exact.abs().sum())
    over = max(abs(expected), 1e-5 * size)
    return {"sum": total, "expected": expected, "relative_gap": abs(total - expected) / over if over else 0.0}


def warn_where_open(made: Attribution) -> None:
    """Scores that do not add up as their method says they do. Published code that is known not to is left alone."""
    told = made.info.get("completeness")
    if told is None or told["relative_gap"] <= CLOSED or str(made.info.get("variant", "")).startswith("released"):
        return
    what = "the relevance of a layer adds" if "conservation_gap" in made.info else "the scores add"
    advice = {
        "integrated_gradients": " Give more of them (steps=, or most_steps=), or another baseline=.",
        "deeplift": " See info['functions_without_rule'].",
    }.get(made.method, "")
    if made.info.get("dtype") not in ("float32", "float64"):
        advice = " Load the model in float32, which rounds less."
    after = f" after {made.info['steps']} steps" if "steps" in made.info else ""
    warnings.warn(
        f"{made.method}: {what} up to {told['sum']:.4g}, not to {told['expected']:.4g} ({told['relative_gap']:.1%} off, "
        f"in {made.info.get('dtype')}){after}.{advice}",
        IncompleteWarning,
        stacklevel=3,
    )
