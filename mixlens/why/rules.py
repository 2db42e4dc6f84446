"""When a check passes, asks for caution or fails: numbers in, a state out. The limits are in choice.py."""

from __future__ import annotations

from collections.abc import Sequence

from .choice import LEANS, LIMITS, MOST_NAMED, WEAKEST

WORST = ("ok", "caution", "fail")
HALF = 0.5


def advantage(whole: float, without: float, random: float) -> float:
    """How much more the answer falls without the named words than without random ones, in probability.

    An answer of less than 50 % cannot fall by much: it is counted as if it had 50 %.
    """
    scale = HALF / whole if 0 < whole < HALF else 1.0
    return (random - without) * scale


def removal_state(whole: float, without: float, random: float) -> str:
    """Of words taken out, against random words taken out."""
    more = advantage(whole, without, random)
    return "ok" if more >= LIMITS["removal_ok"] else "caution" if more >= LIMITS["removal_caution"] else "fail"


def completeness_state(gap: float) -> str:
    """Of scores that should add up to a number."""
    return "ok" if gap <= LIMITS["completeness_ok"] else "caution" if gap <= LIMITS["completeness_caution"] else "fail"


def agreement_state(same: int, of: int) -> str:
    """Of methods that put the same words first, the leading one among them."""
    if of < 2:
        return "info"
    return "ok" if same > LIMITS["agreement_ok"] * of else "caution" if same > 1 else "fail"


def verdict(removal: str, completeness: str | None, agreement: str) -> str:
    """Of the whole answer. Methods that disagree ask for caution: the removal of words decides, not a vote."""
    states = [removal, completeness or "ok", "caution" if agreement in ("caution", "fail") else "ok"]
    return max(states, key=WORST.index)


def certainty(probability: float) -> str:
    return "sure" if probability >= LEANS else "leans"


# --- which words are named ----------------------------------------------------------------------------------------------


def most_named(free: int) -> int:
    """How many words may be named: three, and at most half of a short text."""
    return max(1, min(MOST_NAMED, free // 2))


def named_for(scores: Sequence[float], free: Sequence[int]) -> list[int]:
    """The words for the answer that are named, the highest score first; of equal ones the first in the text.

    A word with less than a third of the highest score is not named.
    """
    order = sorted((word for word in free if scores[word] > 0), key=lambda word: -scores[word])
    return [word for word in order if scores[word] >= WEAKEST * scores[order[0]]][: most_named(len(free))]


def named_against(scores: Sequence[float], free: Sequence[int]) -> list[int]:
    """The word against the answer, where it carries at least a third of the strongest."""
    lowest = min(free, key=lambda word: scores[word], default=None)
    strongest = max((abs(scores[word]) for word in free), default=0.0)
    return [lowest] if lowest is not None and scores[lowest] < 0 and -scores[lowest] >= WEAKEST * strongest else []


def first_words(scores: Sequence[float], free: Sequence[int], k: int) -> set[int]:
    """The k words with the highest scores."""
    return set(sorted(free, key=lambda word: -scores[word])[:k])
