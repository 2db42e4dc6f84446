"""Sentences of a small English grammar, each with the words that decide its answer.

The embedded models are trained on these sentences, so for them the true cue is known, not guessed.

    sentence.text         "The keys to the cabinet [MASK] rusty."
    sentence.target       "were", and sentence.foil is "was"
    sentence.cues         ((4, 8),): the span of "keys"
    sentence.attractors   ((16, 23),): the span of "cabinet", which speaks for the foil

Some pairs of words are put aside: a training sentence has none of them, a held-out sentence has at least
one. Every single word occurs in training; only the combination is new.
"""

from .agreement import agreement
from .lexicon import NEGATIVE, PLURAL, POSITIVE, SINGULAR, number_of
from .sentence import MASK, Pair, Sentence, Span, is_held_out
from .sentiment import sentiment

__all__ = [
    "MASK",
    "NEGATIVE",
    "PLURAL",
    "POSITIVE",
    "SINGULAR",
    "Pair",
    "Sentence",
    "Span",
    "agreement",
    "is_held_out",
    "number_of",
    "sentiment",
]
