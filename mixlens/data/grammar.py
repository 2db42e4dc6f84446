"""Sentences of a small English grammar, each with the words that decide its answer.

The embedded models are trained on these sentences, so for them the true cue is known, not guessed.

    sentence.text         "The keys to the cabinet [MASK] rusty."
    sentence.target       "were", and sentence.foil is "was"
    sentence.cues         ((4, 8),): the span of "keys"
    sentence.attractors   ((16, 23),): the span of "cabinet", which speaks for the foil

Some pairs of words are put aside: a training sentence has none of them, a held-out sentence has at least
one. Every single word occurs in training; only the combination is new.
"""

import random
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

Span = tuple[int, int]
Pair = tuple[str, str]
_T = TypeVar("_T")

MASK = "[MASK]"
SINGULAR, PLURAL = "singular", "plural"
POSITIVE, NEGATIVE = "positive", "negative"


@dataclass(frozen=True)
class Sentence:
    """One text, its answer, and where in the text the answer is decided."""

    text: str
    task: str  # what is asked: "subject_verb", "determiner_noun", "anaphor"; "plain", "negation", ...
    construction: str  # how the sentence is built: "prepositional phrase", "object relative clause", ...
    target: str  # the right word for [MASK], or the right label
    foil: str  # the same word in the other number, or the other label
    cues: tuple[Span, ...]  # the words that decide the answer
    attractors: tuple[Span, ...]  # the words that speak for another answer
    pairs: tuple[Pair, ...]  # the pairs of words, as lemmas, that may be held out

    @property
    def held_out(self) -> bool:
        """Whether training has never seen some of these words together."""
        return any(is_held_out(pair) for pair in self.pairs)

    @property
    def cue_words(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.cues)

    @property
    def attractor_words(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.attractors)


def is_held_out(pair: Pair) -> bool:
    """True for one pair in five, in either order. A checksum: Python's `hash` differs from run to run."""
    return zlib.crc32(" ".join(sorted(pair)).encode()) % 5 == 0


def agreement(*, seed: int, held_out: bool = False) -> Iterator[Sentence]:
    """Endless sentences whose [MASK] must agree in number: verbs, determiners, reflexive pronouns.

    The number of every other noun is drawn by itself, so only the cue tells the answer.
    """
    return _stream(f"agreement/{seed}", _AGREEMENT, held_out=held_out)


def sentiment(*, seed: int, held_out: bool = False) -> Iterator[Sentence]:
    """Endless statements that are positive or negative as a whole.

    What a concession says ("Although ...") is drawn by itself, so only the deciding clause tells the label.
    """
    return _stream(f"sentiment/{seed}", _SENTIMENT, held_out=held_out)


def number_of(word: str) -> str | None:
    """Singular or plural, for the words of the agreement grammar that show it; None for all others."""
    return _NUMBER.get(word)


# ---------------------------------------------------------------------------------------- building


@dataclass(frozen=True)
class _Word:
    text: str
    lemma: str = ""
    speaks_for: str | None = None  # the answer it suggests: a number or a label
    said_of: tuple[str, ...] = ()  # lemmas of the nouns it describes; each makes a pair with it
    is_noun: bool = False  # any two of these in a sentence make a pair
    is_cue: bool = False


@dataclass(frozen=True)
class _Draft:
    """A sentence in words, before its spans are counted."""

    words: list[_Word]
    answer: str  # a number or a label; words that speak for another are attractors
    target: str
    foil: str


class _Draw:
    """The random choices of one sentence.

    Built on `random()` alone: the one method that Python promises to keep the same in every version.
    """

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._used: list[object] = []

    def chance(self, probability: float) -> bool:
        return self._source.random() < probability

    def pick(self, options: Sequence[_T]) -> _T:
        return options[int(self._source.random() * len(options))]

    def fresh(self, options: Sequence[_T]) -> _T:
        """One that this sentence has not used yet."""
        while (option := self.pick(options)) in self._used:
            pass
        self._used.append(option)
        return option

    def number(self) -> str:
        return self.pick((SINGULAR, PLURAL))

    def label(self) -> str:
        return self.pick((POSITIVE, NEGATIVE))

    def sometimes(self, probability: float, options: Sequence[str]) -> list[_Word]:
        return _plain(self.pick(options)) if self.chance(probability) else []


_Construction = Callable[[_Draw], _Draft]
_Grammar = dict[str, dict[str, _Construction]]  # task, construction


def _stream(seed: str, grammar: _Grammar, *, held_out: bool) -> Iterator[Sentence]:
    source = random.Random(seed)
    constructions = [(task, name) for task, names in grammar.items() for name in names]
    while True:
        task, name = _Draw(source).pick(constructions)
        # Redrawn inside one construction: long ones have more pairs and would grow rare in training.
        while (sentence := _sentence(task, name, grammar[task][name](_Draw(source)))).held_out != held_out:
            pass
        yield sentence


def _sentence(task: str, construction: str, draft: _Draft) -> Sentence:
    text = ""
    cues: list[Span] = []
    attractors: list[Span] = []
    for word in draft.words:
        text += word.text if not text or word.text == "," else f" {word.text}"
        span = (len(text) - len(word.text), len(text))
        if word.is_cue:
            cues.append(span)
        elif word.speaks_for not in (None, draft.answer):
            attractors.append(span)
    nouns = [word.lemma for word in draft.words if word.is_noun]
    described = [(noun, word.lemma) for word in draft.words for noun in word.said_of]
    return Sentence(
        text=f"{text[0].upper()}{text[1:]}.",
        task=task,
        construction=construction,
        target=draft.target,
        foil=draft.foil,
        cues=tuple(cues),
        attractors=tuple(attractors),
        pairs=(*combinations(nouns, 2), *described),
    )


def _plain(text: str) -> list[_Word]:
    """Words without a part in the answer."""
    return [_Word(word) for word in re.findall(r"[^\s,]+|,", text)]


# ------------------------------------------------------------------------------ words of agreement


@dataclass(frozen=True)
class _Noun:
    singular: str
    plural: str
    kind: str
    reflexive: str  # "" where the noun leaves it open

    def form(self, number: str) -> str:
        return self.singular if number == SINGULAR else self.plural


@dataclass(frozen=True)
class _Verb:
    base: str
    third: str
    past: str
    participle: str

    @property
    def present(self) -> tuple[str, str]:
        """The singular form and the plural form."""
        return self.third, self.base


def _words(table: str) -> tuple[str, ...]:
    return tuple(table.split())


def _nouns(kind: str, reflexive: str, table: str) -> tuple[_Noun, ...]:
    forms = (entry.split("/") for entry in table.split())
    return tuple(_Noun(singular, plural, kind, reflexive) for singular, plural in forms)


def _verbs(table: str) -> tuple[_Verb, ...]:
    return tuple(_Verb(*entry.split("/")) for entry in table.split())


_MEN = _nouns(
    "person",
    "himself",
    """boy/boys man/men king/kings uncle/uncles father/fathers brother/brothers prince/princes actor/actors
    waiter/waiters husband/husbands grandfather/grandfathers""",
)
_WOMEN = _nouns(
    "person",
    "herself",
    """girl/girls woman/women queen/queens aunt/aunts mother/mothers sister/sisters princess/princesses
    actress/actresses waitress/waitresses wife/wives grandmother/grandmothers""",
)
_OTHER_PEOPLE = _nouns(
    "person",
    "",
    """child/children teacher/teachers doctor/doctors artist/artists pilot/pilots lawyer/lawyers thief/thieves
    farmer/farmers singer/singers photographer/photographers gardener/gardeners librarian/librarians
    violinist/violinists firefighter/firefighters""",
)
_ANIMALS = _nouns(
    "animal",
    "itself",
    """cat/cats dog/dogs mouse/mice goose/geese wolf/wolves ox/oxen horse/horses bird/birds fox/foxes
    rabbit/rabbits monkey/monkeys butterfly/butterflies grasshopper/grasshoppers""",
)
_OBJECTS = _nouns(
    "object",
    "",
    """key/keys cabinet/cabinets door/doors book/books lamp/lamps chair/chairs table/tables knife/knives
    box/boxes bottle/bottles letter/letters clock/clocks window/windows picture/pictures shelf/shelves
    drawer/drawers ticket/tickets coat/coats car/cars bus/buses newspaper/newspapers bicycle/bicycles
    telescope/telescopes umbrella/umbrellas""",
)
_PLACES = _nouns(
    "place",
    "",
    """house/houses garden/gardens school/schools museum/museums office/offices hotel/hotels village/villages
    city/cities church/churches library/libraries bridge/bridges tower/towers castle/castles road/roads
    gate/gates""",
)
_PEOPLE = _MEN + _WOMEN + _OTHER_PEOPLE
_LIVING = _PEOPLE + _ANIMALS
_THINGS = _OBJECTS + _PLACES
_NOUNS = _LIVING + _THINGS
_ANTECEDENTS = _MEN + _WOMEN + _ANIMALS
_LEADS_TO = ("key", "door", "ticket", "letter", "road", "gate")
_IN_COMPOUNDS = tuple(noun for noun in _PLACES if noun.singular not in ("road", "gate", "tower"))

_OF_LIVING = _verbs(
    """sleep/sleeps/slept/slept run/runs/ran/run wait/waits/waited/waited eat/eats/ate/eaten
    swim/swims/swam/swum rest/rests/rested/rested"""
)
_OF_PEOPLE = _verbs(
    """laugh/laughs/laughed/laughed smile/smiles/smiled/smiled work/works/worked/worked
    travel/travels/travelled/travelled sing/sings/sang/sung dance/dances/danced/danced
    complain/complains/complained/complained"""
)
_INTRANSITIVE = {
    "person": _OF_LIVING + _OF_PEOPLE,
    "animal": _OF_LIVING + _verbs("jump/jumps/jumped/jumped hide/hides/hid/hidden"),
    "object": _verbs(
        """shine/shines/shone/shone fall/falls/fell/fallen rattle/rattles/rattled/rattled
        disappear/disappears/disappeared/disappeared break/breaks/broke/broken"""
    ),
    "place": _verbs(
        """change/changes/changed/changed decay/decays/decayed/decayed grow/grows/grew/grown
        collapse/collapses/collapsed/collapsed vanish/vanishes/vanished/vanished"""
    ),
}
_MEETING = _verbs(
    """admire/admires/admired/admired like/likes/liked/liked know/knows/knew/known
    help/helps/helped/helped follow/follows/followed/followed watch/watches/watched/watched
    avoid/avoids/avoided/avoided trust/trusts/trusted/trusted fear/fears/feared/feared"""
)
_HANDLING = _verbs(
    """own/owns/owned/owned need/needs/needed/needed use/uses/used/used want/wants/wanted/wanted
    paint/paints/painted/painted sell/sells/sold/sold find/finds/found/found lose/loses/lost/lost
    keep/keeps/kept/kept"""
)
_VISITING = _verbs(
    """visit/visits/visited/visited leave/leaves/left/left remember/remembers/remembered/remembered
    describe/describes/described/described love/loves/loved/loved"""
)
_DONE_BY_PEOPLE = {"person": _MEETING, "animal": _MEETING, "object": _HANDLING, "place": _VISITING}
_TOUCHING = _verbs(
    """touch/touches/touched/touched block/blocks/blocked/blocked resemble/resembles/resembled/resembled
    cover/covers/covered/covered"""
)
_LINKING = _verbs(
    """seem/seems/seemed/seemed look/looks/looked/looked remain/remains/remained/remained
    appear/appears/appeared/appeared"""
)
_BELONG = _Verb("belong", "belongs", "belonged", "belonged")
_STANDING = {
    "living": _verbs("stand/stands/stood/stood sit/sits/sat/sat"),
    "thing": _verbs("stand/stands/stood/stood lie/lies/lay/lain"),
}
_COPULAS = (("is", "are"), ("was", "were"))
_HAVE, _DO = ("has", "have"), ("does", "do")
_DETERMINERS = (("this", "these"), ("that", "those"))
_THEMSELVES = "themselves"
_ADJECTIVES = {
    "person": _words("tall happy tired clever famous rich polite nervous lonely brave young calm"),
    "animal": _words("hungry wild tame quick young tired calm thirsty gentle strong"),
    "object": _words("rusty heavy dusty cheap expensive wooden empty new dirty wet useless old light"),
    "place": _words("large small beautiful ancient crowded modern ugly empty old quiet dark safe"),
}
_PREPOSITIONS = {
    "person": ("near", "behind", "beside", "with", "next to", "in front of"),
    "animal": ("near", "behind", "beside", "with", "next to", "under"),
    "object": ("near", "behind", "beside", "under", "on", "from", "in front of"),
    "place": ("near", "behind", "beside", "next to", "across from"),
}
_TO_ONESELF = _words("hurt washed saved defended protected saw admired helped calmed blamed")
_SAID = ("said", "thought", "believed", "noticed")
_TIMES = ("yesterday", "again", "last week")
_MANNERS = ("often", "again", "slowly", "every day", "at night", "in the morning", "now and then")
_SURELY = ("still", "probably", "clearly", "often")
_DEGREES = ("very", "really", "quite", "rather")


def _number_lexicon() -> dict[str, str]:
    tables = (*_INTRANSITIVE.values(), *_DONE_BY_PEOPLE.values(), *_STANDING.values(), _LINKING, [_BELONG])
    rows = [
        *_COPULAS,
        _HAVE,
        _DO,
        *_DETERMINERS,
        *((noun.reflexive, _THEMSELVES) for noun in _ANTECEDENTS),
        *((noun.singular, noun.plural) for noun in _NOUNS),
        *(verb.present for table in tables for verb in table),
    ]
    return {word: number for row in rows for word, number in zip(row, (SINGULAR, PLURAL), strict=True)}


_NUMBER = _number_lexicon()


# ---------------------------------------------------------------------------- phrases of agreement

_Modifier = Callable[[_Draw, _Noun], list[_Word]]


def _the(draw: _Draw, noun: _Noun, number: str, *, is_cue: bool = False) -> list[_Word]:
    return [_Word("the"), *_nominal(draw, noun, number, is_cue=is_cue)]


def _nominal(
    draw: _Draw,
    noun: _Noun,
    number: str,
    *,
    is_cue: bool = False,
    adjective: float = 0.2,
) -> list[_Word]:
    """The noun alone, or with an adjective before it."""
    head = _Word(noun.form(number), noun.singular, speaks_for=number, is_noun=True, is_cue=is_cue)
    return [_adjective(draw, [noun]), head] if draw.chance(adjective) else [head]


def _adjective(draw: _Draw, nouns: Sequence[_Noun]) -> _Word:
    adjective = draw.fresh(_ADJECTIVES[nouns[0].kind])
    return _about(adjective, adjective, *nouns)


def _about(text: str, lemma: str, *nouns: _Noun) -> _Word:
    """A word that says something of the nouns and shows no number."""
    return _Word(text, lemma, said_of=tuple(noun.singular for noun in nouns))


def _nothing(draw: _Draw, noun: _Noun) -> list[_Word]:
    return []


def _place(draw: _Draw, noun: _Noun) -> list[_Word]:
    """Near the old houses."""
    preposition = draw.pick(_PREPOSITIONS[noun.kind])
    return [*_plain(preposition), *_the(draw, draw.fresh(_NOUNS), draw.number())]


def _purpose_or_place(draw: _Draw, noun: _Noun) -> list[_Word]:
    """To the cabinet; near the old houses."""
    if noun.singular in _LEADS_TO and draw.chance(0.4):
        return [_Word("to"), *_the(draw, draw.fresh(_THINGS), draw.number())]
    return _place(draw, noun)


def _two_places(draw: _Draw, noun: _Noun) -> list[_Word]:
    return _purpose_or_place(draw, noun) + _place(draw, noun)


def _reduced_relative(draw: _Draw, noun: _Noun) -> list[_Word]:
    """The girls admire: a clause whose object is the noun."""
    number, person, verb = draw.number(), draw.fresh(_PEOPLE), draw.pick(_DONE_BY_PEOPLE[noun.kind])
    action = _about(verb.past, verb.base, person, noun)
    if draw.chance(0.5):
        action = replace(action, text=_in_number(verb.present, number), speaks_for=number)
    return [*_the(draw, person, number), action]


def _object_relative(draw: _Draw, noun: _Noun) -> list[_Word]:
    """That the girls admire."""
    return [_relative_pronoun(draw, noun), *_reduced_relative(draw, noun)]


def _subject_relative(draw: _Draw, noun: _Noun) -> list[_Word]:
    """That admired the girls: in the past, since a present verb would tell the number of the noun."""
    others, verbs = (_THINGS, _TOUCHING) if noun in _THINGS else (_LIVING, _MEETING)
    other, verb = draw.fresh(others), draw.pick(verbs)
    action = _about(verb.past, verb.base, noun, other)
    return [_relative_pronoun(draw, noun), action, *_the(draw, other, draw.number())]


def _relative_pronoun(draw: _Draw, noun: _Noun) -> _Word:
    return _Word(draw.pick(("that", "who") if noun.kind == "person" else ("that", "which")))


def _couple(draw: _Draw, options: Sequence[_Noun]) -> tuple[list[_Word], list[_Noun]]:
    """The boy and the girls: two nouns of one kind, plural together whatever each is."""
    first = draw.fresh(options)
    second = draw.fresh([noun for noun in options if noun.kind == first.kind])
    one, other = (_the(draw, noun, draw.number(), is_cue=True) for noun in (first, second))
    return [*one, _Word("and"), *other], [first, second]


def _in_number(row: tuple[str, str], number: str) -> str:
    return row[0] if number == SINGULAR else row[1]


# ---------------------------------------------------------------------- constructions of agreement


def _masked(words: list[_Word], row: tuple[str, str], number: str) -> _Draft:
    """A draft whose words hold the [MASK]; row is its answer in the singular and in the plural."""
    return _Draft(words, number, _in_number(row, number), _in_number(row[::-1], number))


_Rest = tuple[list[_Word], tuple[str, str]]  # the words from [MASK] on; the answer in both numbers


def _verb_masked(draw: _Draw, subject: list[_Word], nouns: Sequence[_Noun], number: str) -> _Draft:
    shape = draw.pick((_being, _being, _being_somewhere, _seeming, _having, _not_doing, _doing, _doing_to))
    rest, row = shape(draw, nouns)
    return _masked([*subject, *draw.sometimes(0.1, _SURELY), *rest], row, number)


def _being(draw: _Draw, nouns: Sequence[_Noun]) -> _Rest:
    return [_Word(MASK), *draw.sometimes(0.2, _DEGREES), _adjective(draw, nouns)], draw.pick(_COPULAS)


def _being_somewhere(draw: _Draw, nouns: Sequence[_Noun]) -> _Rest:
    return [_Word(MASK), *_place(draw, nouns[0])], draw.pick(_COPULAS)


def _seeming(draw: _Draw, nouns: Sequence[_Noun]) -> _Rest:
    return [_Word(MASK), _adjective(draw, nouns)], draw.pick(_LINKING).present


def _having(draw: _Draw, nouns: Sequence[_Noun]) -> _Rest:
    verb = draw.pick(_INTRANSITIVE[nouns[0].kind])
    return [_Word(MASK), _about(verb.participle, verb.base, *nouns)], _HAVE


def _not_doing(draw: _Draw, nouns: Sequence[_Noun]) -> _Rest:
    verb = draw.pick(_INTRANSITIVE[nouns[0].kind])
    return [_Word(MASK), _Word("not"), _about(verb.base, verb.base, *nouns)], _DO


def _doing(draw: _Draw, nouns: Sequence[_Noun]) -> _Rest:
    verb = draw.pick(_INTRANSITIVE[nouns[0].kind])
    return [_about(MASK, verb.base, *nouns), *_plain(draw.pick(_MANNERS))], verb.present


def _doing_to(draw: _Draw, nouns: Sequence[_Noun]) -> _Rest:
    living = nouns[0] in _LIVING
    verb, others = (draw.pick(_MEETING), _LIVING) if living else (_BELONG, _PEOPLE)
    other = draw.fresh(others)
    to = [] if living else [_Word("to")]
    return [_about(MASK, verb.base, *nouns, other), *to, *_the(draw, other, draw.number())], verb.present


def _verb_after(modifier: _Modifier) -> _Construction:
    """The keys <modifier> [MASK] rusty."""

    def construction(draw: _Draw) -> _Draft:
        noun, number = draw.fresh(_NOUNS), draw.number()
        subject = [*_the(draw, noun, number, is_cue=True), *modifier(draw, noun)]
        return _verb_masked(draw, subject, [noun], number)

    return construction


def _verb_after_couple(draw: _Draw) -> _Draft:
    """The boy and the girl near the house [MASK] tall."""
    subject, nouns = _couple(draw, _NOUNS)
    modifier = draw.pick((_nothing, _place))
    return _verb_masked(draw, subject + modifier(draw, nouns[1]), nouns, PLURAL)


def _verb_after_fronted_place(draw: _Draw) -> _Draft:
    """Near the cabinets, the key [MASK] rusty."""
    noun, number = draw.fresh(_NOUNS), draw.number()
    subject = [*_place(draw, noun), _Word(","), *_the(draw, noun, number, is_cue=True)]
    return _verb_masked(draw, subject, [noun], number)


def _verb_before_subject(draw: _Draw) -> _Draft:
    """Near the cabinets [MASK] the old key."""
    noun, number = draw.fresh(_NOUNS), draw.number()
    verb = draw.pick(_STANDING["living" if noun in _LIVING else "thing"])
    mask, row = draw.pick(((_Word(MASK), _COPULAS[1]), (_about(MASK, verb.base, noun), verb.present)))
    return _masked([*_place(draw, noun), mask, *_the(draw, noun, number, is_cue=True)], row, number)


def _verb_in_object_relative(draw: _Draw) -> _Draft:
    """The key that the boys [MASK] is rusty."""
    noun, person, outside, number = draw.fresh(_NOUNS), draw.fresh(_PEOPLE), draw.number(), draw.number()
    verb = draw.pick(_DONE_BY_PEOPLE[noun.kind])
    words = [
        *_the(draw, noun, outside),
        _relative_pronoun(draw, noun),
        *_the(draw, person, number, is_cue=True),
        _about(MASK, verb.base, person, noun),
        _Word(_in_number(draw.pick(_COPULAS), outside), speaks_for=outside),
        _adjective(draw, [noun]),
    ]
    return _masked(words, verb.present, number)


def _verb_in_subject_relative(draw: _Draw) -> _Draft:
    """The boys who [MASK] the girl smiled."""
    noun, other, number, verb = draw.fresh(_LIVING), draw.fresh(_LIVING), draw.number(), draw.pick(_MEETING)
    end = draw.pick(_INTRANSITIVE[noun.kind])
    words = [
        *_the(draw, noun, number, is_cue=True),
        _relative_pronoun(draw, noun),
        _about(MASK, verb.base, noun, other),
        *_the(draw, other, draw.number()),
        _about(end.past, end.base, noun),
    ]
    return _masked(words, verb.present, number)


def _determiner_of_subject(modifier: _Modifier) -> _Construction:
    """[MASK] old keys <modifier> disappeared."""

    def construction(draw: _Draw) -> _Draft:
        noun, number = draw.fresh(_NOUNS), draw.number()
        verb = draw.pick(_INTRANSITIVE[noun.kind])
        words = [
            _Word(MASK),
            *_nominal(draw, noun, number, is_cue=True, adjective=0.5),
            *modifier(draw, noun),
            _about(verb.past, verb.base, noun),
            *draw.sometimes(0.3, _TIMES),
        ]
        return _masked(words, draw.pick(_DETERMINERS), number)

    return construction


def _determiner_of_object(modifier: _Modifier, *, in_compound: bool = False) -> _Construction:
    """The boy found [MASK] (garden) chairs <modifier>."""

    def construction(draw: _Draw) -> _Draft:
        noun, person, number = draw.fresh(_OBJECTS), draw.fresh(_PEOPLE), draw.number()
        verb = draw.pick(_HANDLING)
        words = [
            *_the(draw, person, draw.number()),
            _about(verb.past, verb.base, person, noun),
            _Word(MASK),
            *(_nominal(draw, draw.fresh(_IN_COMPOUNDS), SINGULAR) if in_compound else []),
            *_nominal(draw, noun, number, is_cue=True, adjective=0.0 if in_compound else 0.5),
            *modifier(draw, noun),
            *draw.sometimes(0.3, _TIMES),
        ]
        return _masked(words, draw.pick(_DETERMINERS), number)

    return construction


def _reflexive_masked(draw: _Draw, subject: list[_Word], nouns: Sequence[_Noun], number: str) -> _Draft:
    verb = draw.pick(_TO_ONESELF)
    words = [*subject, _about(verb, verb, *nouns), _Word(MASK), *draw.sometimes(0.3, _TIMES)]
    return _masked(words, (nouns[0].reflexive, _THEMSELVES), number)


def _reflexive_after(modifier: _Modifier) -> _Construction:
    """The boy <modifier> hurt [MASK]."""

    def construction(draw: _Draw) -> _Draft:
        noun, number = draw.fresh(_ANTECEDENTS), draw.number()
        subject = [*_the(draw, noun, number, is_cue=True), *modifier(draw, noun)]
        return _reflexive_masked(draw, subject, [noun], number)

    return construction


def _reflexive_after_couple(draw: _Draw) -> _Draft:
    """The boy and the girl hurt [MASK]."""
    subject, nouns = _couple(draw, _ANTECEDENTS)
    return _reflexive_masked(draw, subject, nouns, PLURAL)


def _reported(*clauses: _Construction) -> _Construction:
    """The teachers said that <clause>."""

    def construction(draw: _Draw) -> _Draft:
        speaker = _the(draw, draw.fresh(_PEOPLE), draw.number())
        draft = draw.pick(clauses)(draw)
        return replace(draft, words=[*speaker, _Word(draw.pick(_SAID)), _Word("that"), *draft.words])

    return construction


_AGREEMENT: _Grammar = {
    "subject_verb": {
        "simple": _verb_after(_nothing),
        "prepositional phrase": _verb_after(_purpose_or_place),
        "two prepositional phrases": _verb_after(_two_places),
        "object relative clause": _verb_after(_object_relative),
        "reduced relative clause": _verb_after(_reduced_relative),
        "subject relative clause": _verb_after(_subject_relative),
        "inside object relative clause": _verb_in_object_relative,
        "inside subject relative clause": _verb_in_subject_relative,
        "coordination": _verb_after_couple,
        "complement clause": _reported(_verb_after(_nothing), _verb_after(_purpose_or_place)),
        "fronted phrase": _verb_after_fronted_place,
        "inversion": _verb_before_subject,
    },
    "determiner_noun": {
        "simple": _determiner_of_subject(_nothing),
        "prepositional phrase": _determiner_of_subject(_purpose_or_place),
        "object relative clause": _determiner_of_subject(_object_relative),
        "object": _determiner_of_object(_nothing),
        "object with prepositional phrase": _determiner_of_object(_purpose_or_place),
        "compound noun": _determiner_of_object(_nothing, in_compound=True),
    },
    "anaphor": {
        "simple": _reflexive_after(_nothing),
        "prepositional phrase": _reflexive_after(_place),
        "object relative clause": _reflexive_after(_object_relative),
        "subject relative clause": _reflexive_after(_subject_relative),
        "coordination": _reflexive_after_couple,
        "complement clause": _reported(_reflexive_after(_nothing), _reflexive_after(_place)),
    },
}


# ------------------------------------------------------------------------------ words of sentiment

_ADJECTIVES_FOR = {
    POSITIVE: _words(
        """good great wonderful excellent brilliant superb lovely fantastic charming delightful amazing
        perfect splendid pleasant impressive terrific beautiful fine outstanding unforgettable"""
    ),
    NEGATIVE: _words(
        """bad awful terrible dull boring poor horrible dreadful mediocre weak ugly annoying lousy pathetic
        miserable ridiculous unpleasant forgettable disappointing underwhelming"""
    ),
}
_VERBS_FOR = {
    POSITIVE: _verbs(
        """love/loves/loved/loved enjoy/enjoys/enjoyed/enjoyed adore/adores/adored/adored
        like/likes/liked/liked praise/praises/praised/praised
        recommend/recommends/recommended/recommended"""
    ),
    NEGATIVE: _verbs(
        """hate/hates/hated/hated dislike/dislikes/disliked/disliked despise/despises/despised/despised
        criticise/criticises/criticised/criticised regret/regrets/regretted/regretted
        mock/mocks/mocked/mocked"""
    ),
}
_NEUTRAL = _words("long short old new simple familiar quiet modern typical unusual traditional")
_TOPICS = (  # a sentence stays within one row
    _words("""film movie plot acting music script story cast ending dialogue opening camerawork soundtrack
    screenplay"""),
    _words("meal food soup bread wine dessert menu service coffee salad atmosphere restaurant"),
    _words("hotel room bed breakfast view pool garden staff lobby bathroom balcony location"),
)
_WITHOUT_ARTICLE = _words("acting music dialogue camerawork food bread wine coffee service staff")
_JUDGES = ("I", "we", "they", "the critics", "the guests", "my friends", "most people")
_NEGATORS = ("not", "never", "hardly")
_OPPOSITE = {POSITIVE: NEGATIVE, NEGATIVE: POSITIVE}
_STRAY_NOT = _Word("not", speaks_for="the other label")  # turns no opinion around, but looks as if it did


# ---------------------------------------------------------------------------- phrases of sentiment


@dataclass(frozen=True)
class _Opinion:
    """What one clause says of one topic, by a word of that label or by negating one of the other."""

    topic: str
    label: str
    negated: bool = False
    is_cue: bool = False

    def adjective(self, draw: _Draw) -> _Word:
        adjective = draw.fresh(_ADJECTIVES_FOR[self._label_of_word])
        return self._mark(_Word(adjective, adjective, said_of=(self.topic,)))

    def verb(self, draw: _Draw, form: Callable[[_Verb], str]) -> _Word:
        verb = draw.fresh(_VERBS_FOR[self._label_of_word])
        return self._mark(_Word(form(verb), verb.base, said_of=(self.topic,)))

    def negator(self, text: str) -> _Word:
        return self._mark(_Word(text))

    @property
    def _label_of_word(self) -> str:
        return _OPPOSITE[self.label] if self.negated else self.label

    def _mark(self, word: _Word) -> _Word:
        return replace(word, speaks_for=self.label, is_cue=self.is_cue)


_Clause = Callable[[_Draw, _Opinion], list[_Word]]


def _adjective_clause(draw: _Draw, opinion: _Opinion) -> list[_Word]:
    """The plot was (not) very good."""
    degree = draw.sometimes(0.3, ("very", "really", "quite", "truly"))
    if opinion.negated:
        no, *very = draw.pick((*_NEGATORS, "not very", "not really")).split()
        degree = [opinion.negator(no), *map(_Word, very)]
    return [*_topic(draw, opinion.topic), _be(draw), *degree, opinion.adjective(draw)]


def _nominal_clause(draw: _Draw, opinion: _Opinion) -> list[_Word]:
    """It was (not) a good plot."""
    no = [opinion.negator(draw.pick(_NEGATORS))] if opinion.negated else []
    adjective = opinion.adjective(draw)
    if opinion.topic not in _WITHOUT_ARTICLE:
        no.append(_Word("an" if adjective.text[0] in "aeiou" else "a"))
    return [_Word("it"), _be(draw), *no, adjective, _Word(opinion.topic)]


def _verb_clause(draw: _Draw, opinion: _Opinion) -> list[_Word]:
    """We love the plot; we never loved the plot; we did not love the plot."""
    judge, topic = _plain(draw.fresh(_JUDGES)), _topic(draw, opinion.topic)
    present = draw.chance(0.4)
    if opinion.negated and draw.chance(0.7):
        do = _Word("do" if present else "did")
        return [*judge, do, opinion.negator("not"), opinion.verb(draw, _base), *topic]
    never = [opinion.negator("never")] if opinion.negated else []
    return [*judge, *never, opinion.verb(draw, _base if present else _past), *topic]


def _negative_subject_clause(draw: _Draw, opinion: _Opinion) -> list[_Word]:
    """Nobody loved the plot; nothing about the plot was good."""
    topic = _topic(draw, opinion.topic)
    if draw.chance(0.5):
        return [opinion.negator("nobody"), opinion.verb(draw, draw.pick((_past, _third))), *topic]
    return [opinion.negator("nothing"), _Word("about"), *topic, _be(draw), opinion.adjective(draw)]


def _any_clause(draw: _Draw, opinion: _Opinion) -> list[_Word]:
    clauses = (_adjective_clause, _adjective_clause, _nominal_clause, _verb_clause)
    return draw.pick((*clauses, _negative_subject_clause) if opinion.negated else clauses)(draw, opinion)


def _neutral_clause(draw: _Draw, topic: str) -> list[_Word]:
    """The plot was (not) long: neither good nor bad."""
    no = [_STRAY_NOT] if draw.chance(0.3) else []
    return [*_topic(draw, topic), _be(draw), *no, _Word(draw.pick(_NEUTRAL))]


def _topic(draw: _Draw, topic: str) -> list[_Word]:
    return [_Word(draw.pick(("the", "the", "this"))), _Word(topic)]


def _be(draw: _Draw) -> _Word:
    return _Word(draw.pick(("was", "was", "is")))


def _past(verb: _Verb) -> str:
    return verb.past


def _base(verb: _Verb) -> str:
    return verb.base


def _third(verb: _Verb) -> str:
    return verb.third


# ---------------------------------------------------------------------- constructions of sentiment


def _labelled(words: list[_Word], label: str) -> _Draft:
    return _Draft(words, label, label, _OPPOSITE[label])


def _alone(clause: _Clause, *, negated: bool = False) -> _Construction:
    def construction(draw: _Draw) -> _Draft:
        label = draw.label()
        topic = draw.fresh(draw.pick(_TOPICS))
        return _labelled(clause(draw, _Opinion(topic, label, negated, is_cue=True)), label)

    return construction


def _denied(*, negated: bool) -> _Construction:
    """It is not true that the plot was good; with negated, that it was not good."""

    def construction(draw: _Draw) -> _Draft:
        label = draw.label()
        opinion = _Opinion(draw.fresh(draw.pick(_TOPICS)), _OPPOSITE[label], negated, is_cue=True)
        denial = [_Word("it"), _Word("is"), opinion.negator("not"), _Word("true"), _Word("that")]
        return _labelled([*denial, *_any_clause(draw, opinion)], label)

    return construction


def _negation_elsewhere(draw: _Draw) -> _Draft:
    """The plot, which was not long, was good."""
    label = draw.label()
    opinion = _Opinion(draw.fresh(draw.pick(_TOPICS)), label, negated=draw.chance(0.3), is_cue=True)
    aside = [_Word(","), _Word("which"), _be(draw), _STRAY_NOT, _Word(draw.pick(_NEUTRAL)), _Word(",")]
    the, topic, *rest = _adjective_clause(draw, opinion)
    return _labelled([the, topic, *aside, *rest], label)


def _concession(draw: _Draw, topic: str) -> list[_Word]:
    """A clause that does not decide: good, bad or neither, whatever the label is."""
    if draw.chance(0.25):
        return _neutral_clause(draw, topic)
    return _any_clause(draw, _Opinion(topic, draw.label(), negated=draw.chance(0.25)))


def _noun_concession(draw: _Draw, topic: str) -> list[_Word]:
    """Despite the dull plot."""
    neutral = _Word(draw.pick(_NEUTRAL))
    adjective = neutral if draw.chance(0.25) else _Opinion(topic, draw.label()).adjective(draw)
    return [_Word("despite"), _Word("the"), adjective, _Word(topic)]


def _contrast(join: Callable[[_Draw, list[_Word], str], list[_Word]]) -> _Construction:
    """A deciding clause, joined with something about another topic that does not decide."""

    def construction(draw: _Draw) -> _Draft:
        label, topics = draw.label(), draw.pick(_TOPICS)
        opinion = _Opinion(draw.fresh(topics), label, negated=draw.chance(0.25), is_cue=True)
        return _labelled(join(draw, _any_clause(draw, opinion), draw.fresh(topics)), label)

    return construction


def _but(draw: _Draw, decision: list[_Word], other: str) -> list[_Word]:
    """The plot was dull but the acting was brilliant."""
    return [*_concession(draw, other), *draw.sometimes(0.5, (",",)), _Word("but"), *decision]


def _although_first(draw: _Draw, decision: list[_Word], other: str) -> list[_Word]:
    """Although the plot was dull, the acting was brilliant."""
    return [*_although(draw), *_concession(draw, other), _Word(","), *decision]


def _although_last(draw: _Draw, decision: list[_Word], other: str) -> list[_Word]:
    """The acting was brilliant although the plot was dull."""
    return [*decision, *draw.sometimes(0.3, (",",)), *_although(draw), *_concession(draw, other)]


def _although(draw: _Draw) -> list[_Word]:
    return _plain(draw.pick(("although", "although", "even though")))


def _despite_first(draw: _Draw, decision: list[_Word], other: str) -> list[_Word]:
    """Despite the dull plot, the acting was brilliant."""
    return [*_noun_concession(draw, other), _Word(","), *decision]


def _despite_last(draw: _Draw, decision: list[_Word], other: str) -> list[_Word]:
    """The acting was brilliant despite the dull plot."""
    return [*decision, *_noun_concession(draw, other)]


def _relative_clause(draw: _Draw) -> _Draft:
    """The film that the critics hated was brilliant."""
    label, topic = draw.label(), draw.fresh(draw.pick(_TOPICS))
    opinion = _Opinion(topic, label, negated=draw.chance(0.25), is_cue=True)
    others = _verb_clause(draw, _Opinion(topic, draw.label(), negated=draw.chance(0.25)))[:-2]
    the, noun, *rest = _adjective_clause(draw, opinion)
    return _labelled([the, noun, _Word("that"), *others, *rest], label)


def _conjunction(draw: _Draw) -> _Draft:
    """The plot was dull and the acting was awful."""
    label, topics = draw.label(), draw.pick(_TOPICS)
    opinions = [_Opinion(draw.fresh(topics), label, draw.chance(0.25), is_cue=True) for _ in range(2)]
    one, other = (_any_clause(draw, opinion) for opinion in opinions)
    return _labelled([*one, _Word("and"), *other], label)


_SENTIMENT: _Grammar = {
    "plain": {
        "adjective": _alone(_adjective_clause),
        "noun phrase": _alone(_nominal_clause),
        "verb": _alone(_verb_clause),
        "conjunction": _conjunction,
    },
    "negation": {
        "negated adjective": _alone(_adjective_clause, negated=True),
        "negated noun phrase": _alone(_nominal_clause, negated=True),
        "negated verb": _alone(_verb_clause, negated=True),
        "negative subject": _alone(_negative_subject_clause, negated=True),
        "denied statement": _denied(negated=False),
        "double negation": _denied(negated=True),
        "negation elsewhere": _negation_elsewhere,
    },
    "contrast": {
        "but": _contrast(_but),
        "although first": _contrast(_although_first),
        "although last": _contrast(_although_last),
        "despite first": _contrast(_despite_first),
        "despite last": _contrast(_despite_last),
        "relative clause": _relative_clause,
    },
}
