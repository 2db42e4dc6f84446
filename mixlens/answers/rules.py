"""When a check passes, asks for caution or fails: numbers in, a state out. The limits are in choice.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .choice import FIRST, LEANS, LIMITS, MOST_NAMED, NO_EFFECT, WEAKEST

WORST = ("ok", "caution", "fail")
HALF = 0.5


@dataclass(frozen=True)
class Fall:
    """The answer of the whole text, without the words that are named, and without random sets of as many words."""

    whole: float
    without: float
    random: float  # the mean over random sets
    k: int = 1  # words that are named
    turned: bool = False  # without them the model says something else
    count: int = 20  # random sets
    random_turned: int = 0  # random sets without which the model says something else
    predicted: bool = True  # the answer is what the model says
    single: float | None = None  # without the one named word whose removal does most
    each: tuple[float, ...] = ()  # without each named word alone, in their order

    @property
    def size(self) -> float:
        """How much the answer falls without the named words; negative where it rises."""
        return self.whole - self.without


def advantage(fall: Fall) -> float:
    """How much more the answer falls without the named words than without random ones, in probability.

    Random words that raise the answer count as if they left it as it is. A predicted answer of less than 50 % cannot fall by
    much: it is counted as if it had 50 %. One that the model does not predict counts as it is measured.
    """
    scale = HALF / fall.whole if fall.predicted and 0 < fall.whole < HALF else 1.0
    return (min(fall.random, fall.whole) - fall.without) * scale


def removal_state(fall: Fall) -> str:
    """Of words taken out, against random words taken out."""
    if act_together(fall):
        return "caution"
    state = _state_of_fall(fall)
    return "caution" if state == "ok" and _asks_for_caution(fall) else state


def _asks_for_caution(fall: Fall) -> bool:
    return not fall.count or is_even(fall) or random_sets_turn(fall) or bool(raising(fall))


def _state_of_fall(fall: Fall) -> str:
    if fall.size < NO_EFFECT:
        return "fail"
    more = advantage(fall)
    return "ok" if more >= LIMITS["removal_ok"] else "caution" if more >= LIMITS["removal_caution"] else "fail"


def act_together(fall: Fall) -> bool:
    """Whether the answer falls no more without all named words than without random ones, and does without one of them alone: "not
    bad"."""
    if fall.k < 2 or fall.single is None or _state_of_fall(fall) != "fail":
        return False
    return _state_of_fall(replace(fall, without=fall.single)) == "ok"


def raising(fall: Fall) -> list[int]:
    """Which of several named words contradict their scores: without one of them alone the answer is likelier. Places among the
    named words. Words that act together may do so by nature, and a word that is named alone fails."""
    if fall.k < 2 or act_together(fall):
        return []
    return [place for place, value in enumerate(fall.each) if value - fall.whole > LIMITS["removal_caution"]]


def decides(whole: float, without: float, *, turned: bool, predicted: bool) -> bool:
    """Whether the removal of one word decides: the model says something else. A target that it does not say has nothing to turn
    from: there the word takes more than half of it, and 20 points."""
    most = not predicted and without < HALF * whole and whole - without >= LIMITS["removal_ok"]
    return turned or most


def is_even(fall: Fall) -> bool:
    """Whether the model says the answer but was not sure of it, so that little turns it."""
    return fall.predicted and fall.whole < LEANS


def random_sets_turn(fall: Fall) -> bool:
    """Whether many random sets turn the answer, too."""
    return fall.count > 0 and fall.random_turned >= LIMITS["random_turned"] * fall.count


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
    """The words against the answer that are named, the lowest score first; of equal ones the first in the text.

    A word with less than a third of the strongest score, for or against, is not named.
    """
    order = sorted((word for word in free if scores[word] < 0), key=lambda word: scores[word])
    strongest = max((abs(scores[word]) for word in free), default=0.0)
    return [word for word in order if -scores[word] >= WEAKEST * strongest][: most_named(len(free))]


def first_words(shares: Sequence[float], free: Sequence[int], k: int) -> set[int]:
    """The k words with the highest shares of a method's row. One under 3 % (in a long text: under the mean) is no first word."""
    least = min(FIRST, 1 / max(1, len(free)))
    return {word for word in sorted(free, key=lambda word: -shares[word])[:k] if shares[word] >= least}
