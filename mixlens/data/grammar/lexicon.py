"""The words of the two grammars: each noun and verb in all its forms, adjectives, and the lists a sentence draws
from."""

from dataclasses import dataclass

SINGULAR, PLURAL = "singular", "plural"
POSITIVE, NEGATIVE = "positive", "negative"


@dataclass(frozen=True)
class Noun:
    singular: str
    plural: str
    kind: str
    reflexive: str  # "" where the noun leaves it open

    def form(self, number: str) -> str:
        return self.singular if number == SINGULAR else self.plural


@dataclass(frozen=True)
class Verb:
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


def _nouns(kind: str, reflexive: str, table: str) -> tuple[Noun, ...]:
    forms = (entry.split("/") for entry in table.split())
    return tuple(Noun(singular, plural, kind, reflexive) for singular, plural in forms)


def _verbs(table: str) -> tuple[Verb, ...]:
    return tuple(Verb(*entry.split("/")) for entry in table.split())


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
OBJECTS = _nouns(
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
PEOPLE = _MEN + _WOMEN + _OTHER_PEOPLE
LIVING = PEOPLE + _ANIMALS
THINGS = OBJECTS + _PLACES
NOUNS = LIVING + THINGS
ANTECEDENTS = _MEN + _WOMEN + _ANIMALS
LEADS_TO = ("key", "door", "ticket", "letter", "road", "gate")
IN_COMPOUNDS = tuple(noun for noun in _PLACES if noun.singular not in ("road", "gate", "tower"))

_OF_LIVING = _verbs(
    """sleep/sleeps/slept/slept run/runs/ran/run wait/waits/waited/waited eat/eats/ate/eaten
    swim/swims/swam/swum rest/rests/rested/rested"""
)
_OF_PEOPLE = _verbs(
    """laugh/laughs/laughed/laughed smile/smiles/smiled/smiled work/works/worked/worked
    travel/travels/travelled/travelled sing/sings/sang/sung dance/dances/danced/danced
    complain/complains/complained/complained"""
)
INTRANSITIVE = {
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
MEETING = _verbs(
    """admire/admires/admired/admired like/likes/liked/liked know/knows/knew/known
    help/helps/helped/helped follow/follows/followed/followed watch/watches/watched/watched
    avoid/avoids/avoided/avoided trust/trusts/trusted/trusted fear/fears/feared/feared"""
)
HANDLING = _verbs(
    """own/owns/owned/owned need/needs/needed/needed use/uses/used/used want/wants/wanted/wanted
    paint/paints/painted/painted sell/sells/sold/sold find/finds/found/found lose/loses/lost/lost
    keep/keeps/kept/kept"""
)
_VISITING = _verbs(
    """visit/visits/visited/visited leave/leaves/left/left remember/remembers/remembered/remembered
    describe/describes/described/described love/loves/loved/loved"""
)
DONE_BY_PEOPLE = {"person": MEETING, "animal": MEETING, "object": HANDLING, "place": _VISITING}
TOUCHING = _verbs(
    """touch/touches/touched/touched block/blocks/blocked/blocked resemble/resembles/resembled/resembled
    cover/covers/covered/covered"""
)
LINKING = _verbs(
    """seem/seems/seemed/seemed look/looks/looked/looked remain/remains/remained/remained
    appear/appears/appeared/appeared"""
)
BELONG = Verb("belong", "belongs", "belonged", "belonged")
STANDING = {
    "living": _verbs("stand/stands/stood/stood sit/sits/sat/sat"),
    "thing": _verbs("stand/stands/stood/stood lie/lies/lay/lain"),
}
COPULAS = (("is", "are"), ("was", "were"))
HAVE, DO = ("has", "have"), ("does", "do")
DETERMINERS = (("this", "these"), ("that", "those"))
THEMSELVES = "themselves"
ADJECTIVES = {
    "person": _words("tall happy tired clever famous rich polite nervous lonely brave young calm"),
    "animal": _words("hungry wild tame quick young tired calm thirsty gentle strong"),
    "object": _words("rusty heavy dusty cheap expensive wooden empty new dirty wet useless old light"),
    "place": _words("large small beautiful ancient crowded modern ugly empty old quiet dark safe"),
}
PREPOSITIONS = {
    "person": ("near", "behind", "beside", "with", "next to", "in front of"),
    "animal": ("near", "behind", "beside", "with", "next to", "under"),
    "object": ("near", "behind", "beside", "under", "on", "from", "in front of"),
    "place": ("near", "behind", "beside", "next to", "across from"),
}
TO_ONESELF = _words("hurt washed saved defended protected saw admired helped calmed blamed")
SAID = ("said", "thought", "believed", "noticed")
TIMES = ("yesterday", "again", "last week")
MANNERS = ("often", "again", "slowly", "every day", "at night", "in the morning", "now and then")
SURELY = ("still", "probably", "clearly", "often")
DEGREES = ("very", "really", "quite", "rather")


_PRESENT = (*INTRANSITIVE.values(), *DONE_BY_PEOPLE.values(), *STANDING.values(), LINKING, [BELONG])
_ROWS = (  # the singular form and the plural form
    *COPULAS,
    HAVE,
    DO,
    *DETERMINERS,
    *((noun.reflexive, THEMSELVES) for noun in ANTECEDENTS),
    *((noun.singular, noun.plural) for noun in NOUNS),
    *(verb.present for table in _PRESENT for verb in table),
)
_NUMBER = {word: number for row in _ROWS for word, number in zip(row, (SINGULAR, PLURAL), strict=True)}


def number_of(word: str) -> str | None:
    """Singular or plural, for the words of the agreement grammar that show it; None for all others."""
    return _NUMBER.get(word)


# --- sentiment --------------------------------------------------------------------------------------------------------

ADJECTIVES_FOR = {
    POSITIVE: _words(
        """good great wonderful excellent brilliant superb lovely fantastic charming delightful amazing
        perfect splendid pleasant impressive terrific beautiful fine outstanding unforgettable"""
    ),
    NEGATIVE: _words(
        """bad awful terrible dull boring poor horrible dreadful mediocre weak ugly annoying lousy pathetic
        miserable ridiculous unpleasant forgettable disappointing underwhelming"""
    ),
}
VERBS_FOR = {
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
NEUTRAL = _words("long short old new simple familiar quiet modern typical unusual traditional")
TOPICS = (  # a sentence stays within one row
    _words("""film movie plot acting music script story cast ending dialogue opening camerawork soundtrack
    screenplay"""),
    _words("meal food soup bread wine dessert menu service coffee salad atmosphere restaurant"),
    _words("hotel room bed breakfast view pool garden staff lobby bathroom balcony location"),
)
WITHOUT_ARTICLE = _words("acting music dialogue camerawork food bread wine coffee service staff")
JUDGES = ("I", "we", "they", "the critics", "the guests", "my friends", "most people")
NEGATORS = ("not", "never", "hardly")
