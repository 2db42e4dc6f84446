"""Statements that are positive or negative as a whole, by the clause that decides."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from .lexicon import (
    ADJECTIVES_FOR,
    JUDGES,
    NEGATIVE,
    NEGATORS,
    NEUTRAL,
    POSITIVE,
    TOPICS,
    VERBS_FOR,
    WITHOUT_ARTICLE,
)
from .sentence import Draft, Draw, Grammar, Sentence, Word, plain, stream

_OPPOSITE = {POSITIVE: NEGATIVE, NEGATIVE: POSITIVE}
_STRAY_NOT = Word("not", speaks_for="the other label")  # turns no opinion around, but looks as if it did


def sentiment(*, seed: int, held_out: bool = False) -> Iterator[Sentence]:
    """Endless statements that are positive or negative as a whole.

    What a concession says ("Although ...") is drawn by itself, so only the deciding clause tells the label.
    """
    return stream(f"sentiment/{seed}", _SENTIMENT, held_out=held_out)


# --- clauses ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Opinion:
    """What one clause says of one topic, by a word of that label or by negating one of the other."""

    topic: str
    label: str
    negated: bool = False
    is_cue: bool = False

    @property
    def label_of_word(self) -> str:
        return _OPPOSITE[self.label] if self.negated else self.label

    def adjective(self, draw: Draw) -> Word:
        adjective = draw.fresh(ADJECTIVES_FOR[self.label_of_word])
        return self.mark(Word(adjective, adjective, said_of=(self.topic,)))

    def verb(self, draw: Draw, form: str) -> Word:
        """`form`: "base", "third" or "past"."""
        verb = draw.fresh(VERBS_FOR[self.label_of_word])
        return self.mark(Word(getattr(verb, form), verb.base, said_of=(self.topic,)))

    def mark(self, word: Word) -> Word:
        return replace(word, speaks_for=self.label, is_cue=self.is_cue)


_Clause = Callable[[Draw, _Opinion], list[Word]]


def _adjective_clause(draw: Draw, opinion: _Opinion) -> list[Word]:
    """The plot was (not) very good."""
    degree = draw.sometimes(0.3, ("very", "really", "quite", "truly"))
    if opinion.negated:
        no, *very = draw.pick((*NEGATORS, "not very", "not really")).split()
        degree = [opinion.mark(Word(no)), *map(Word, very)]
    return [*_topic(draw, opinion.topic), _be(draw), *degree, opinion.adjective(draw)]


def _nominal_clause(draw: Draw, opinion: _Opinion) -> list[Word]:
    """It was (not) a good plot."""
    no = [opinion.mark(Word(draw.pick(NEGATORS)))] if opinion.negated else []
    adjective = opinion.adjective(draw)
    if opinion.topic not in WITHOUT_ARTICLE:
        no.append(Word("an" if adjective.text[0] in "aeiou" else "a"))
    return [Word("it"), _be(draw), *no, adjective, Word(opinion.topic)]


def _verb_clause(draw: Draw, opinion: _Opinion) -> list[Word]:
    """We love the plot; we never loved the plot; we did not love the plot."""
    judge, topic = plain(draw.fresh(JUDGES)), _topic(draw, opinion.topic)
    present = draw.chance(0.4)
    if opinion.negated and draw.chance(0.7):
        do = Word("do" if present else "did")
        return [*judge, do, opinion.mark(Word("not")), opinion.verb(draw, "base"), *topic]
    never = [opinion.mark(Word("never"))] if opinion.negated else []
    return [*judge, *never, opinion.verb(draw, "base" if present else "past"), *topic]


def _negative_subject_clause(draw: Draw, opinion: _Opinion) -> list[Word]:
    """Nobody loved the plot; nothing about the plot was good."""
    topic = _topic(draw, opinion.topic)
    if draw.chance(0.5):
        return [opinion.mark(Word("nobody")), opinion.verb(draw, draw.pick(("past", "third"))), *topic]
    return [opinion.mark(Word("nothing")), Word("about"), *topic, _be(draw), opinion.adjective(draw)]


def _any_clause(draw: Draw, opinion: _Opinion) -> list[Word]:
    clauses = (_adjective_clause, _adjective_clause, _nominal_clause, _verb_clause)
    return draw.pick((*clauses, _negative_subject_clause) if opinion.negated else clauses)(draw, opinion)


def _neutral_clause(draw: Draw, topic: str) -> list[Word]:
    """The plot was (not) long: neither good nor bad."""
    no = [_STRAY_NOT] if draw.chance(0.3) else []
    return [*_topic(draw, topic), _be(draw), *no, Word(draw.pick(NEUTRAL))]


def _topic(draw: Draw, topic: str) -> list[Word]:
    return [Word(draw.pick(("the", "the", "this"))), Word(topic)]


def _be(draw: Draw) -> Word:
    return Word(draw.pick(("was", "was", "is")))


# --- constructions ----------------------------------------------------------------------------------------------------


def _labelled(words: list[Word], label: str) -> Draft:
    return Draft(words, label, label, _OPPOSITE[label])


def _alone(clause: _Clause, draw: Draw, *, negated: bool = False) -> Draft:
    label = draw.label()
    topic = draw.fresh(draw.pick(TOPICS))
    return _labelled(clause(draw, _Opinion(topic, label, negated, is_cue=True)), label)


def _denied(draw: Draw, *, negated: bool) -> Draft:
    """It is not true that the plot was good; with negated, that it was not good."""
    label = draw.label()
    opinion = _Opinion(draw.fresh(draw.pick(TOPICS)), _OPPOSITE[label], negated, is_cue=True)
    denial = [*plain("it is"), opinion.mark(Word("not")), *plain("true that")]
    return _labelled([*denial, *_any_clause(draw, opinion)], label)


def _negation_elsewhere(draw: Draw) -> Draft:
    """The plot, which was not long, was good."""
    label = draw.label()
    opinion = _Opinion(draw.fresh(draw.pick(TOPICS)), label, negated=draw.chance(0.3), is_cue=True)
    aside = [Word(","), Word("which"), _be(draw), _STRAY_NOT, Word(draw.pick(NEUTRAL)), Word(",")]
    the, topic, *rest = _adjective_clause(draw, opinion)
    return _labelled([the, topic, *aside, *rest], label)


def _concession(draw: Draw, topic: str) -> list[Word]:
    """A clause that does not decide: good, bad or neither, whatever the label is."""
    if draw.chance(0.25):
        return _neutral_clause(draw, topic)
    return _any_clause(draw, _Opinion(topic, draw.label(), negated=draw.chance(0.25)))


def _despite(draw: Draw, topic: str) -> list[Word]:
    """Despite the dull plot."""
    neutral = Word(draw.pick(NEUTRAL))
    adjective = neutral if draw.chance(0.25) else _Opinion(topic, draw.label()).adjective(draw)
    return [*plain("despite the"), adjective, Word(topic)]


def _although(draw: Draw, topic: str) -> list[Word]:
    """Although the plot was dull."""
    although = plain(draw.pick(("although", "although", "even though")))
    return [*although, *_concession(draw, topic)]


def _contrast(order: str, draw: Draw) -> Draft:
    """A deciding clause, joined with something about another topic that does not decide."""
    label, topics = draw.label(), draw.pick(TOPICS)
    opinion = _Opinion(draw.fresh(topics), label, negated=draw.chance(0.25), is_cue=True)
    decision, other = _any_clause(draw, opinion), draw.fresh(topics)
    match order:
        case "but":  # The plot was dull but the acting was brilliant.
            words = [*_concession(draw, other), *draw.sometimes(0.5, (",",)), Word("but"), *decision]
        case "although first":  # Although the plot was dull, the acting was brilliant.
            words = [*_although(draw, other), Word(","), *decision]
        case "although last":
            words = [*decision, *draw.sometimes(0.3, (",",)), *_although(draw, other)]
        case "despite first":  # Despite the dull plot, the acting was brilliant.
            words = [*_despite(draw, other), Word(","), *decision]
        case _:
            words = [*decision, *_despite(draw, other)]
    return _labelled(words, label)


def _relative_clause(draw: Draw) -> Draft:
    """The film that the critics hated was brilliant."""
    label, topic = draw.label(), draw.fresh(draw.pick(TOPICS))
    opinion = _Opinion(topic, label, negated=draw.chance(0.25), is_cue=True)
    others = _verb_clause(draw, _Opinion(topic, draw.label(), negated=draw.chance(0.25)))[:-2]
    the, noun, *rest = _adjective_clause(draw, opinion)
    return _labelled([the, noun, Word("that"), *others, *rest], label)


def _conjunction(draw: Draw) -> Draft:
    """The plot was dull and the acting was awful."""
    label, topics = draw.label(), draw.pick(TOPICS)
    opinions = [_Opinion(draw.fresh(topics), label, draw.chance(0.25), is_cue=True) for _ in range(2)]
    one, other = (_any_clause(draw, opinion) for opinion in opinions)
    return _labelled([*one, Word("and"), *other], label)


_ORDERS = ("but", "although first", "although last", "despite first", "despite last")
_SENTIMENT: Grammar = {
    "plain": {
        "adjective": partial(_alone, _adjective_clause),
        "noun phrase": partial(_alone, _nominal_clause),
        "verb": partial(_alone, _verb_clause),
        "conjunction": _conjunction,
    },
    "negation": {
        "negated adjective": partial(_alone, _adjective_clause, negated=True),
        "negated noun phrase": partial(_alone, _nominal_clause, negated=True),
        "negated verb": partial(_alone, _verb_clause, negated=True),
        "negative subject": partial(_alone, _negative_subject_clause, negated=True),
        "denied statement": partial(_denied, negated=False),
        "double negation": partial(_denied, negated=True),
        "negation elsewhere": _negation_elsewhere,
    },
    "contrast": {
        **{order: partial(_contrast, order) for order in _ORDERS},
        "relative clause": _relative_clause,
    },
}
