"""The agreement tasks of BLiMP (Warstadt et al. 2020): for each template, where the cue is and which number the gap
has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .grammar import PLURAL, SINGULAR

Places = Callable[[Sequence[str], int], list[int]]  # the words and the place of the gap -> the places of the cue

QUANTIFIERS = ("all", "any", "both", "each", "every", "few", "many", "most", "no", "several", "some")
ARTICLES = ("a", "an", "that", "the", "these", "this", "those")
IRREGULAR: Mapping[str, str] = {
    **dict.fromkeys(
        ("this", "that", "is", "was", "has", "does", "himself", "herself", "itself", "man", "woman"), SINGULAR
    ),
    **dict.fromkeys(("these", "those", "are", "were", "have", "do", "themselves", "men", "women"), PLURAL),
}


@dataclass(frozen=True)
class Template:
    """One task: its short name, the rule that finds the cue (on the 3,000 development rows the rules agree with the
    annotated cues), and which number the longer of two forms has: of verbs the one in -s is singular, of nouns it is
    plural."""

    short: str
    cue: Places
    longer: str | None = None  # None: the word is one of IRREGULAR

    def number(self, target: str, foil: str) -> str | None:
        """The number of the word left out."""
        listed = IRREGULAR.get(target.lower())
        if listed or self.longer is None or len(target) == len(foil):
            return listed
        return self.longer if len(target) > len(foil) else PLURAL if self.longer == SINGULAR else SINGULAR


def subject_phrase(words: Sequence[str], place: int) -> list[int]:
    first = [word.lower() for word in words[:3]]
    return list(range(4 if first == ["a", "lot", "of"] else 2 if first[0] in QUANTIFIERS + ARTICLES else 1))


def noun_of_subject(words: Sequence[str], place: int) -> list[int]:
    return [next((i for i, word in enumerate(words) if word in ("of", "about")), 0) - 1]


def last_word(words: Sequence[str], place: int) -> list[int]:
    return [len(words) - 2]


TEMPLATES: Mapping[str, Template] = {
    "anaphor_number_agreement": Template("ana", subject_phrase),
    "determiner_noun_agreement_2": Template("dna", last_word),
    "determiner_noun_agreement_with_adj_2": Template("dnaa", last_word),
    "distractor_agreement_relational_noun": Template("darn", noun_of_subject, SINGULAR),
    "regular_plural_subject_verb_agreement_1": Template("rpsv", lambda words, place: [place - 1], SINGULAR),
    "regular_plural_subject_verb_agreement_2": Template("rpsv2", lambda words, place: [place + 1], PLURAL),
}
FIVE = tuple(name for name, template in TEMPLATES.items() if template.short != "rpsv2")  # Value Zeroing, Table 1
