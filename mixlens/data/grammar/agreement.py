"""Sentences whose [MASK] must agree in number with one word, the cue: verbs, determiners, reflexive pronouns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from .lexicon import (
    ADJECTIVES,
    ANTECEDENTS,
    BELONG,
    COPULAS,
    DEGREES,
    DETERMINERS,
    DO,
    DONE_BY_PEOPLE,
    HANDLING,
    HAVE,
    IN_COMPOUNDS,
    INTRANSITIVE,
    LEADS_TO,
    LINKING,
    LIVING,
    MANNERS,
    MEETING,
    NOUNS,
    OBJECTS,
    PEOPLE,
    PLURAL,
    PREPOSITIONS,
    SAID,
    SINGULAR,
    STANDING,
    SURELY,
    THEMSELVES,
    THINGS,
    TIMES,
    TO_ONESELF,
    TOUCHING,
    Noun,
)
from .sentence import MASK, Draft, Draw, Grammar, Sentence, Word, plain, stream


def agreement(*, seed: int, held_out: bool = False) -> Iterator[Sentence]:
    """Endless sentences whose [MASK] must agree in number: verbs, determiners, reflexive pronouns.

    The number of every other noun is drawn by itself, so only the cue tells the answer.
    """
    return stream(f"agreement/{seed}", _AGREEMENT, held_out=held_out)


# --- phrases ----------------------------------------------------------------------------------------------------------

_Modifier = Callable[[Draw, Noun], list[Word]]


def _the(draw: Draw, noun: Noun, number: str | None = None, *, is_cue: bool = False) -> list[Word]:
    """The noun with its article; without a `number`, that is drawn."""
    return [Word("the"), *_nominal(draw, noun, number or draw.number(), is_cue=is_cue)]


def _nominal(
    draw: Draw,
    noun: Noun,
    number: str,
    *,
    is_cue: bool = False,
    adjective: float = 0.2,
) -> list[Word]:
    """The noun alone, or with an adjective before it."""
    head = Word(noun.form(number), noun.singular, speaks_for=number, is_noun=True, is_cue=is_cue)
    return [_adjective(draw, [noun]), head] if draw.chance(adjective) else [head]


def _adjective(draw: Draw, nouns: Sequence[Noun]) -> Word:
    adjective = draw.fresh(ADJECTIVES[nouns[0].kind])
    return _about(adjective, adjective, *nouns)


def _about(text: str, lemma: str, *nouns: Noun) -> Word:
    """A word that says something of the nouns and shows no number."""
    return Word(text, lemma, said_of=tuple(noun.singular for noun in nouns))


def _nothing(draw: Draw, noun: Noun) -> list[Word]:
    return []


def _place(draw: Draw, noun: Noun) -> list[Word]:
    """Near the old houses."""
    preposition = draw.pick(PREPOSITIONS[noun.kind])
    return [*plain(preposition), *_the(draw, draw.fresh(NOUNS))]


def _purpose_or_place(draw: Draw, noun: Noun) -> list[Word]:
    """To the cabinet; near the old houses."""
    if noun.singular in LEADS_TO and draw.chance(0.4):
        return [Word("to"), *_the(draw, draw.fresh(THINGS))]
    return _place(draw, noun)


def _two_places(draw: Draw, noun: Noun) -> list[Word]:
    return _purpose_or_place(draw, noun) + _place(draw, noun)


def _reduced_relative(draw: Draw, noun: Noun) -> list[Word]:
    """The girls admire: a clause whose object is the noun."""
    number, person, verb = draw.number(), draw.fresh(PEOPLE), draw.pick(DONE_BY_PEOPLE[noun.kind])
    action = _about(verb.past, verb.base, person, noun)
    if draw.chance(0.5):
        action = replace(action, text=_in_number(verb.present, number), speaks_for=number)
    return [*_the(draw, person, number), action]


def _object_relative(draw: Draw, noun: Noun) -> list[Word]:
    """That the girls admire."""
    return [_relative_pronoun(draw, noun), *_reduced_relative(draw, noun)]


def _subject_relative(draw: Draw, noun: Noun) -> list[Word]:
    """That admired the girls: in the past, since a present verb would tell the number of the noun."""
    others, verbs = (THINGS, TOUCHING) if noun in THINGS else (LIVING, MEETING)
    other, verb = draw.fresh(others), draw.pick(verbs)
    action = _about(verb.past, verb.base, noun, other)
    return [_relative_pronoun(draw, noun), action, *_the(draw, other)]


def _relative_pronoun(draw: Draw, noun: Noun) -> Word:
    return Word(draw.pick(("that", "who") if noun.kind == "person" else ("that", "which")))


_Subject = tuple[list[Word], list[Noun], str]  # its words, its nouns, its number


def _subject(draw: Draw, options: Sequence[Noun], modifier: _Modifier) -> _Subject:
    """The boy near the houses."""
    noun, number = draw.fresh(options), draw.number()
    return [*_the(draw, noun, number, is_cue=True), *modifier(draw, noun)], [noun], number


def _couple(draw: Draw, options: Sequence[Noun]) -> _Subject:
    """The boy and the girls: two nouns of one kind, plural together whatever each is."""
    first = draw.fresh(options)
    second = draw.fresh([noun for noun in options if noun.kind == first.kind])
    one, other = (_the(draw, noun, is_cue=True) for noun in (first, second))
    return [*one, Word("and"), *other], [first, second], PLURAL


def _in_number(row: tuple[str, str], number: str) -> str:
    return row[0] if number == SINGULAR else row[1]


# --- constructions ----------------------------------------------------------------------------------------------------


def _masked(words: list[Word], row: tuple[str, str], number: str) -> Draft:
    """A draft whose words hold the [MASK]; row is its answer in the singular and in the plural."""
    return Draft(words, number, _in_number(row, number), _in_number(row[::-1], number))


def _verb_masked(draw: Draw, subject: list[Word], nouns: Sequence[Noun], number: str) -> Draft:
    """The subject and what it is, has done or does, in one of seven shapes."""
    noun, mask = nouns[0], Word(MASK)
    shape = draw.pick(("be", "be", "be somewhere", "seem", "have done", "not do", "do", "do to"))
    verb = draw.pick(INTRANSITIVE[noun.kind]) if shape in ("have done", "not do", "do") else BELONG
    match shape:
        case "be":
            rest, row = [mask, *draw.sometimes(0.2, DEGREES), _adjective(draw, nouns)], draw.pick(COPULAS)
        case "be somewhere":
            rest, row = [mask, *_place(draw, noun)], draw.pick(COPULAS)
        case "seem":
            rest, row = [mask, _adjective(draw, nouns)], draw.pick(LINKING).present
        case "have done":
            rest, row = [mask, _about(verb.participle, verb.base, *nouns)], HAVE
        case "not do":
            rest, row = [mask, Word("not"), _about(verb.base, verb.base, *nouns)], DO
        case "do":
            rest, row = [_about(MASK, verb.base, *nouns), *plain(draw.pick(MANNERS))], verb.present
        case _:
            to, others = [Word("to")], PEOPLE
            if noun in LIVING:
                to, verb, others = [], draw.pick(MEETING), LIVING
            other = draw.fresh(others)
            rest = [_about(MASK, verb.base, *nouns, other), *to, *_the(draw, other)]
            row = verb.present
    return _masked([*subject, *draw.sometimes(0.1, SURELY), *rest], row, number)


def _reflexive_masked(draw: Draw, subject: list[Word], nouns: Sequence[Noun], number: str) -> Draft:
    verb = draw.pick(TO_ONESELF)
    words = [*subject, _about(verb, verb, *nouns), Word(MASK), *draw.sometimes(0.3, TIMES)]
    return _masked(words, (nouns[0].reflexive, THEMSELVES), number)


def _verb_after(modifier: _Modifier, draw: Draw) -> Draft:
    """The keys <modifier> [MASK] rusty."""
    return _verb_masked(draw, *_subject(draw, NOUNS, modifier))


def _reflexive_after(modifier: _Modifier, draw: Draw) -> Draft:
    """The boy <modifier> hurt [MASK]."""
    return _reflexive_masked(draw, *_subject(draw, ANTECEDENTS, modifier))


def _verb_after_couple(draw: Draw) -> Draft:
    """The boy and the girl near the house [MASK] tall."""
    words, nouns, number = _couple(draw, NOUNS)
    modifier = draw.pick((_nothing, _place))
    return _verb_masked(draw, words + modifier(draw, nouns[1]), nouns, number)


def _reflexive_after_couple(draw: Draw) -> Draft:
    """The boy and the girl hurt [MASK]."""
    return _reflexive_masked(draw, *_couple(draw, ANTECEDENTS))


def _verb_after_fronted_place(draw: Draw) -> Draft:
    """Near the cabinets, the key [MASK] rusty."""
    noun, number = draw.fresh(NOUNS), draw.number()
    subject = [*_place(draw, noun), Word(","), *_the(draw, noun, number, is_cue=True)]
    return _verb_masked(draw, subject, [noun], number)


def _verb_before_subject(draw: Draw) -> Draft:
    """Near the cabinets [MASK] the old key."""
    noun, number = draw.fresh(NOUNS), draw.number()
    verb = draw.pick(STANDING["living" if noun in LIVING else "thing"])
    mask, row = draw.pick(((Word(MASK), COPULAS[1]), (_about(MASK, verb.base, noun), verb.present)))
    return _masked([*_place(draw, noun), mask, *_the(draw, noun, number, is_cue=True)], row, number)


def _verb_in_object_relative(draw: Draw) -> Draft:
    """The key that the boys [MASK] is rusty."""
    noun, person, outside, number = draw.fresh(NOUNS), draw.fresh(PEOPLE), draw.number(), draw.number()
    verb = draw.pick(DONE_BY_PEOPLE[noun.kind])
    words = [
        *_the(draw, noun, outside),
        _relative_pronoun(draw, noun),
        *_the(draw, person, number, is_cue=True),
        _about(MASK, verb.base, person, noun),
        Word(_in_number(draw.pick(COPULAS), outside), speaks_for=outside),
        _adjective(draw, [noun]),
    ]
    return _masked(words, verb.present, number)


def _verb_in_subject_relative(draw: Draw) -> Draft:
    """The boys who [MASK] the girl smiled."""
    noun, other, number, verb = draw.fresh(LIVING), draw.fresh(LIVING), draw.number(), draw.pick(MEETING)
    end = draw.pick(INTRANSITIVE[noun.kind])
    words = [
        *_the(draw, noun, number, is_cue=True),
        _relative_pronoun(draw, noun),
        _about(MASK, verb.base, noun, other),
        *_the(draw, other),
        _about(end.past, end.base, noun),
    ]
    return _masked(words, verb.present, number)


def _determiner_of_subject(modifier: _Modifier, draw: Draw) -> Draft:
    """[MASK] old keys <modifier> disappeared."""
    noun, number = draw.fresh(NOUNS), draw.number()
    verb = draw.pick(INTRANSITIVE[noun.kind])
    words = [
        Word(MASK),
        *_nominal(draw, noun, number, is_cue=True, adjective=0.5),
        *modifier(draw, noun),
        _about(verb.past, verb.base, noun),
        *draw.sometimes(0.3, TIMES),
    ]
    return _masked(words, draw.pick(DETERMINERS), number)


def _determiner_of_object(modifier: _Modifier, draw: Draw, *, in_compound: bool = False) -> Draft:
    """The boy found [MASK] (garden) chairs <modifier>."""
    noun, person, number = draw.fresh(OBJECTS), draw.fresh(PEOPLE), draw.number()
    verb = draw.pick(HANDLING)
    words = [
        *_the(draw, person),
        _about(verb.past, verb.base, person, noun),
        Word(MASK),
        *(_nominal(draw, draw.fresh(IN_COMPOUNDS), SINGULAR) if in_compound else []),
        *_nominal(draw, noun, number, is_cue=True, adjective=0.0 if in_compound else 0.5),
        *modifier(draw, noun),
        *draw.sometimes(0.3, TIMES),
    ]
    return _masked(words, draw.pick(DETERMINERS), number)


def _reported(clause: Callable[[_Modifier, Draw], Draft], modifiers: Sequence[_Modifier], draw: Draw) -> Draft:
    """The teachers said that <clause>."""
    speaker = _the(draw, draw.fresh(PEOPLE))
    draft = clause(draw.pick(modifiers), draw)
    return replace(draft, words=[*speaker, Word(draw.pick(SAID)), Word("that"), *draft.words])


_AGREEMENT: Grammar = {
    "subject_verb": {
        "simple": partial(_verb_after, _nothing),
        "prepositional phrase": partial(_verb_after, _purpose_or_place),
        "two prepositional phrases": partial(_verb_after, _two_places),
        "object relative clause": partial(_verb_after, _object_relative),
        "reduced relative clause": partial(_verb_after, _reduced_relative),
        "subject relative clause": partial(_verb_after, _subject_relative),
        "inside object relative clause": _verb_in_object_relative,
        "inside subject relative clause": _verb_in_subject_relative,
        "coordination": _verb_after_couple,
        "complement clause": partial(_reported, _verb_after, (_nothing, _purpose_or_place)),
        "fronted phrase": _verb_after_fronted_place,
        "inversion": _verb_before_subject,
    },
    "determiner_noun": {
        "simple": partial(_determiner_of_subject, _nothing),
        "prepositional phrase": partial(_determiner_of_subject, _purpose_or_place),
        "object relative clause": partial(_determiner_of_subject, _object_relative),
        "object": partial(_determiner_of_object, _nothing),
        "object with prepositional phrase": partial(_determiner_of_object, _purpose_or_place),
        "compound noun": partial(_determiner_of_object, _nothing, in_compound=True),
    },
    "anaphor": {
        "simple": partial(_reflexive_after, _nothing),
        "prepositional phrase": partial(_reflexive_after, _place),
        "object relative clause": partial(_reflexive_after, _object_relative),
        "subject relative clause": partial(_reflexive_after, _subject_relative),
        "coordination": _reflexive_after_couple,
        "complement clause": partial(_reported, _reflexive_after, (_nothing, _place)),
    },
}
