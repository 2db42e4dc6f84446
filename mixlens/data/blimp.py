"""The agreement tasks of BLiMP (Warstadt et al. 2020): for each template, where the cue is and which number the gap has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .grammar import PLURAL, SINGULAR

Places = Callable[[Sequence[str], int], list[int]]  # the words and the place of the gap -> the places of the cue
Number = Callable[[str, str], str | None]  # the target and the foil -> the number of the target

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
    """One task: its short name, the rule that finds the cue, and the rule that tells the number of the word left out."""

    short: str
    cue: Places
    number: Number


# --- where the cue is. On the 3,000 development rows the rules agree with the annotated cues. ---------------------------


def _subject_phrase(words: Sequence[str], place: int) -> list[int]:
    first = [word.lower() for word in words[:3]]
    return list(range(4 if first == ["a", "lot", "of"] else 2 if first[0] in QUANTIFIERS + ARTICLES else 1))


def _noun_of_subject(words: Sequence[str], place: int) -> list[int]:
    return [next((i for i, word in enumerate(words) if word in ("of", "about")), 0) - 1]


def _last_word(words: Sequence[str], place: int) -> list[int]:
    return [len(words) - 2]


def _word_before(words: Sequence[str], place: int) -> list[int]:
    return [place - 1]


def _word_after(words: Sequence[str], place: int) -> list[int]:
    return [place + 1]


# --- which number the target has ----------------------------------------------------------------------------------------


def number_of_word(target: str, foil: str) -> str | None:
    """The number of a determiner, a reflexive pronoun, an auxiliary or an irregular noun, from a list."""
    return IRREGULAR.get(target.lower())


def number_of_verb(target: str, foil: str) -> str | None:
    """A verb: the form with the ending -s (VBZ) is singular, its other form (VBP) is plural."""
    return IRREGULAR.get(target.lower()) or _by_length(target, foil, longer=SINGULAR, shorter=PLURAL)


def number_of_noun(target: str, foil: str) -> str | None:
    """A noun: the longer form is plural ("dogs", "ladies", "children"), the shorter one is singular."""
    return IRREGULAR.get(target.lower()) or _by_length(target, foil, longer=PLURAL, shorter=SINGULAR)


def _by_length(target: str, foil: str, *, longer: str, shorter: str) -> str | None:
    if len(target) == len(foil):
        return None
    return longer if len(target) > len(foil) else shorter


TEMPLATES: Mapping[str, Template] = {
    "anaphor_number_agreement": Template("ana", _subject_phrase, number_of_word),
    "determiner_noun_agreement_2": Template("dna", _last_word, number_of_word),
    "determiner_noun_agreement_with_adj_2": Template("dnaa", _last_word, number_of_word),
    "distractor_agreement_relational_noun": Template("darn", _noun_of_subject, number_of_verb),
    "regular_plural_subject_verb_agreement_1": Template("rpsv", _word_before, number_of_verb),
    "regular_plural_subject_verb_agreement_2": Template("rpsv2", _word_after, number_of_noun),
}
FIVE = tuple(name for name, template in TEMPLATES.items() if template.short != "rpsv2")  # Value Zeroing, Table 1
