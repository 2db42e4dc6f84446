"""The linear datamodelling score: do the scores of what is kept predict what the model does with it? (ContextCite, section 3.)"""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from ..removal import Replacement, Subsets, by_unit, random_subsets
from ..targets import TargetName, resolve
from ..types import Trace
from .agreement import spearman
from .arguments import Scores
from .faithfulness import scores_of
from .registry import metric

PAPER = "Cohen-Wang et al. 2024, ContextCite: Attributing Model Generation to Context"
HELD_OUT = 1  # subsets of this stream; the method `context_cite` learns from stream 0


@metric(paper=PAPER, needs=("trace", "scores", "rerun"), better="higher", cost="64", kind="subsets")
def lds(
    trace: Trace,
    scores: Scores,
    *,
    count: int = 64,
    unit: str = "word",
    replacement: Replacement = "delete",
    target: TargetName = "predicted",
    foil: str | int | None = None,
    seed: int = 0,
    subsets: Subsets | None = None,
) -> float:
    """Spearman's rank correlation, over random subsets of the words, between the sum of the scores of the words that are kept
    and the model's log-odds of the target, log p / (1 - p), on these words alone.

    Half the words are kept, `count` times. NaN where all sums or all log-odds are equal. `subsets`: those of `held_out_subsets`,
    where they are at hand.
    """
    values = scores_of(trace, scores)
    if subsets is None:
        drawn: dict[str, Any] = {"count": count, "unit": unit, "replacement": replacement, "seed": seed}
        subsets = held_out_subsets(trace, target=target, foil=foil, **drawn)
    return spearman(subsets.kept @ by_unit(values, subsets.units), subsets.log_odds)


def held_out_subsets(
    trace: Trace,
    *,
    count: int = 64,
    unit: str = "word",
    replacement: Replacement = "delete",
    target: TargetName = "predicted",
    foil: str | int | None = None,
    seed: int = 0,
) -> Subsets:
    """The random subsets of `lds`, drawn apart from those that the method `context_cite` learns from."""
    if count < 2:
        raise InputError(f"count is a number of subsets, at least 2, not {count!r}.")
    resolved = resolve(trace, target, foil=foil, score="log_probability")
    return random_subsets(trace, resolved, unit=unit, count=count, seed=(seed, HELD_OUT), replacement=replacement)
