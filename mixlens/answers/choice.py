"""What `why` takes for each task, and the limits by which it judges: the one table of both.

The methods were chosen by `mixlens judge`; docs/use/why.md has its tables, the number of texts and the rule of the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from ..base.errors import InputError, nearest
from ..model.model import Model
from ..model.predict import gives_number
from ..scoring.removal import filler_token

MOST_NAMED = 3  # words that are named as reasons
MOST_LISTED = 5  # words in a note
WEAKEST = 1 / 3  # of the strongest: a word for or against the answer that scores less is not named
LEANS = 0.6  # the probability under which the answer "leans"
FOIL = 0.05  # the probability from which on the second-best word of a language model is the foil
ALL_SETS = 200  # sets of words up to which all are taken
DRAWS = 20
MOST_DRAWS = 1000
MOST_STEPS, FEW_STEPS = 12, 6  # words of a removal curve, in a short text and in a long one
LONG = 64  # tokens from which on a text is long
CURVE_TOKENS = 1300  # that the random orders of a curve may take, as they are many and drawn only for the picture
NO_EFFECT = 0.01  # probability: without these words the answer is the same
FIRST = 0.03  # the share of a method's row under which a word does not count as one of its first
SPECIAL = 0.5  # the part of all scores that special tokens hold, above which a note is given

LIMITS = MappingProxyType(
    {
        "removal_ok": 0.20,  # how much more the answer falls without the named words than without random ones
        "removal_caution": 0.05,  # also: how much a named word that is taken out alone may raise the answer
        "random_turned": 0.4,  # the part of random sets that turn the answer, from which on turning it says little
        "completeness_ok": 0.01,  # relative distance of the scores' sum from what it should be
        "completeness_caution": 0.05,
        "agreement_ok": 0.5,  # more than this part of the methods put the same words first
    }
)


@dataclass(frozen=True)
class Choice:
    """The methods for a task, the leading one first, and what stands in the place of a word that is taken out."""

    methods: tuple[str, ...]
    reason: str
    fillers: tuple[str, ...] = ("delete",)  # the first that the model has


LED = "of the methods whose scores have signs and add up it led in `judge` for this task"
CHOICES: dict[str, Choice] = {
    "classification": Choice(("deeplift", "attcat", "blank_out", "integrated_gradients", "alti"), LED),
    "token-classification": Choice(
        ("deeplift", "attcat", "blank_out", "integrated_gradients", "alti"), LED, ("mask", "unk", "delete")
    ),
    "question-answering": Choice(("deeplift", "attcat", "blank_out", "integrated_gradients", "alti"), LED),
    "masked-lm": Choice(("integrated_gradients", "attcat", "blank_out", "deeplift", "alti"), LED),
    "causal-lm": Choice(("deeplift", "blank_out:replacement=delete", "transatt", "alti", "globenc"), LED),
}
FILLERS = {
    "delete": "words are deleted",
    "mask": "words are replaced by the mask token",
    "pad": "words are replaced by padding",
    "unk": "words are replaced by the unknown token",
}


def choice_for(model: Model) -> Choice:
    """The row of the table for a model's task; a model without a head is refused."""
    if model.task not in CHOICES:
        raise InputError(
            f"{model.name!r} was loaded without a head, so it says nothing that could be explained. Load it with task=, for "
            f"example task='classification'; known: {', '.join(CHOICES)}."
        )
    return CHOICES[model.task]


def refuse_unanswerable(model: Model) -> None:
    """Refuse a model without a head, and one whose answer is a number."""
    choice_for(model)
    if gives_number(model):
        raise InputError(
            f"{model.name!r} gives one number and no class, so there is no answer that could turn. Its number is explained by "
            "explain: target=0, score='logit'."
        )


def methods_for(model: Model) -> tuple[str, ...]:
    """The methods of the table; leaving words out needs no mask token where a model has none."""
    methods = choice_for(model).methods
    if model.mask_id is not None:
        return methods
    return tuple("blank_out:replacement=delete" if one == "blank_out" else one for one in methods)


def filler_for(model: Model, wanted: str | None) -> str:
    """The filler that is wanted, or the first of the table that the model has; one that it has not is refused."""
    if wanted is None:
        return next(filler for filler in choice_for(model).fillers if _has(model, filler))
    if wanted not in FILLERS:
        raise InputError(f"unknown filler {wanted!r}. {nearest(wanted, FILLERS)}")
    if not _has(model, wanted):
        known = known_fillers(model)
        raise InputError(
            f"{model.name!r} has no {wanted} token to put in the place of a word. Take filler={known[0]!r}."
        )
    return wanted


def known_fillers(model: Model) -> list[str]:
    """The fillers that a model has."""
    return [filler for filler in FILLERS if _has(model, filler)]


def _has(model: Model, filler: str) -> bool:
    return filler == "delete" or filler_token(model, filler) is not None
