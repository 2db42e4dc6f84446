"""The grammar says what it promises. Numbers and labels are looked up here again, in words of our own."""

import re
import zlib
from itertools import combinations, islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

import mixlens
from mixlens.data import grammar
from mixlens.data.grammar import agreement, sentiment

STREAMS = {"agreement": agreement, "sentiment": sentiment}
EMBEDDED = Path(mixlens.__file__).parent / "model/embedded"


def words(text: str) -> set[str]:
    return set(text.split())


NOUNS = words(
    """boy man king uncle father brother prince actor waiter husband grandfather girl woman queen aunt mother
    sister princess actress waitress wife grandmother child teacher doctor artist pilot lawyer thief farmer
    singer photographer gardener librarian violinist firefighter cat dog mouse goose wolf ox horse bird fox
    rabbit monkey butterfly grasshopper key cabinet door book lamp chair table knife box bottle letter clock
    window picture shelf drawer ticket coat car bus newspaper bicycle telescope umbrella house garden school
    museum office hotel village city church library bridge tower castle road gate"""
)
IRREGULAR = {
    "men": "man",
    "women": "woman",
    "children": "child",
    "mice": "mouse",
    "geese": "goose",
    "oxen": "ox",
    "wives": "wife",
    "knives": "knife",
    "thieves": "thief",
    "wolves": "wolf",
    "shelves": "shelf",
}
PLURAL_ANSWERS = {"are", "were", "have", "do", "these", "those", "themselves"}
SINGULAR_ANSWERS = {"is", "was", "has", "does", "this", "that", "himself", "herself", "itself"}
NEGATORS = {"not", "never", "hardly", "nobody", "nothing"}
GOOD = words(
    """good great wonderful excellent brilliant superb lovely fantastic charming delightful amazing perfect
    splendid pleasant impressive terrific beautiful fine outstanding unforgettable love enjoy adore like
    praise recommend"""
)
BAD = words(
    """bad awful terrible dull boring poor horrible dreadful mediocre weak ugly annoying lousy pathetic
    miserable ridiculous unpleasant forgettable disappointing underwhelming hate dislike despise criticise
    regret mock"""
)


def lemma(noun: str) -> str | None:
    """The singular of a noun in either number; None for words that are no nouns."""
    endings = ((r"ies$", "y"), (r"es$", ""), (r"s$", ""), (r"$", ""))
    guesses = [IRREGULAR.get(noun, noun), *(re.sub(ending, repair, noun) for ending, repair in endings)]
    return next((guess for guess in guesses if guess in NOUNS), None)


def is_plural(word: str) -> bool:
    """By lookup for nouns and function words; of the verbs left, the plural has no s."""
    if noun := lemma(word):
        return word != noun
    return word in PLURAL_ANSWERS or (word not in SINGULAR_ANSWERS and not word.endswith("s"))


def is_good(word: str) -> bool:
    """By lookup, in any form of the verb: love, loves, loved."""
    bases = [word, *(word.removesuffix(ending) for ending in ("s", "d", "ed", "ted"))]
    return next(base in GOOD for base in bases if base in GOOD | BAD)


def sample(name: str, *, seed: int, held_out: bool = False, n: int = 40) -> list[grammar.Sentence]:
    return list(islice(STREAMS[name](seed=seed, held_out=held_out), n))


def words_of(*sentences: grammar.Sentence) -> list[str]:
    """In reading order, the masked word filled in; the labels of sentiment are no words of the text."""
    texts = [sentence.text.replace("[MASK]", sentence.target) for sentence in sentences]
    return re.findall(r"[a-z]+", " ".join(texts).lower())


@st.composite
def sentences(draw: st.DrawFn, name: str) -> list[grammar.Sentence]:
    return sample(name, seed=draw(st.integers(0, 10**9)), held_out=draw(st.booleans()))


any_stream = pytest.mark.parametrize("name", STREAMS)
quickly = settings(max_examples=25, deadline=None)


@any_stream
@given(data=st.data())
@quickly
def test_spans_cut_out_whole_words(name: str, data: st.DataObject) -> None:
    for sentence in data.draw(sentences(name)):
        without_mask = sentence.text.replace("[MASK]", "." * len("[MASK]"))
        words = {match.span() for match in re.finditer(r"[A-Za-z]+", without_mask)}
        assert sentence.cues
        assert not set(sentence.cues) & set(sentence.attractors)
        assert {*sentence.cues, *sentence.attractors} <= words


@given(sentences("agreement"))
@quickly
def test_cues_of_agreement_are_nouns_and_tell_the_number(drawn: list[grammar.Sentence]) -> None:
    for sentence in drawn:
        plural = is_plural(sentence.target)
        assert is_plural(sentence.foil) != plural
        assert grammar.number_of(sentence.target) == ("plural" if plural else "singular")
        assert all(lemma(word) for word in sentence.cue_words)
        assert plural == (len(sentence.cues) == 2 or is_plural(sentence.cue_words[0]))
        assert all(is_plural(word.lower()) != plural for word in sentence.attractor_words)


@given(sentences("agreement"))
@quickly
def test_attractors_of_agreement_are_all_the_nouns_of_the_other_number(drawn: list[grammar.Sentence]) -> None:
    for sentence in drawn:
        plural = is_plural(sentence.target)
        words = [(match.group(), match.span()) for match in re.finditer(r"[a-z]+", sentence.text)]
        misleading = {span for word, span in words if lemma(word) and is_plural(word) != plural}
        found = {span for span in sentence.attractors if lemma(sentence.text[slice(*span)])}
        assert found == misleading - set(sentence.cues)


@given(sentences("sentiment"))
@quickly
def test_cues_of_sentiment_add_up_to_the_label(drawn: list[grammar.Sentence]) -> None:
    for sentence in drawn:
        assert {sentence.target, sentence.foil} == {"positive", "negative"}
        negations, labels = 0, []
        for word in map(str.lower, sentence.cue_words):
            if word in NEGATORS:
                negations += 1
            else:
                labels.append(is_good(word) != (negations % 2 == 1))
                negations = 0
        assert negations == 0
        assert set(labels) == {sentence.target == "positive"}
        assert len(labels) == 1 or sentence.construction == "conjunction"


@any_stream
@given(data=st.data())
@quickly
def test_text_is_one_sentence_with_the_mask_where_it_belongs(name: str, data: st.DataObject) -> None:
    for sentence in data.draw(sentences(name)):
        assert re.fullmatch(r"(\[MASK\]|[A-Z][a-z]*)(,? (\[MASK\]|I|[a-z]+))*\.", sentence.text)
        assert sentence.text.count("[MASK]") == (name == "agreement")


@given(seed=st.integers(0, 10**9))
@quickly
def test_training_never_puts_two_nouns_of_a_held_out_pair_together(seed: int) -> None:
    for sentence in sample("agreement", seed=seed):
        nouns = [noun for noun in map(lemma, words_of(sentence)) if noun]
        assert not any(grammar.is_held_out(pair) for pair in combinations(nouns, 2)), sentence.text


@given(seed=st.integers(0, 10**9))
@quickly
def test_training_never_says_a_held_out_word_of_a_noun(seed: int) -> None:
    judged = r"[Tt]h(?:e|is) (\w+) (?:is|was) (?:not |never |hardly )?(?:very |really |quite |truly )?(\w+)"
    for sentence in sample("sentiment", seed=seed):
        for topic, adjective in re.findall(judged, sentence.text):
            assert not (adjective in GOOD | BAD and grammar.is_held_out((topic, adjective))), sentence.text
    described = r"^The (?:\w+ )?(\w+) (?:is|are|was|were) (?:very |really |quite |rather )?(\w+)\.$"
    for sentence in sample("agreement", seed=seed):
        for word, adjective in re.findall(described, sentence.text.replace("[MASK]", sentence.target)):
            noun = lemma(word)  # None for an adverb between noun and verb
            assert not (noun and grammar.is_held_out((noun, adjective))), sentence.text


@any_stream
@given(seed=st.integers(0, 10**9))
@quickly
def test_held_out_sentences_have_a_held_out_pair_of_their_own_words(name: str, seed: int) -> None:
    for sentence in sample(name, seed=seed, held_out=True):
        pairs = [pair for pair in sentence.pairs if grammar.is_held_out(pair)]
        assert pairs
        assert sentence.held_out
        lemmas = {lemma(word) or word for word in words_of(sentence)}
        assert {noun for noun, _ in pairs} <= lemmas
    assert not any(sentence.held_out for sentence in sample(name, seed=seed))


def test_a_fifth_of_all_pairs_is_held_out_in_either_order() -> None:
    pairs = list(combinations(sorted(NOUNS), 2))
    assert 0.18 < sum(map(grammar.is_held_out, pairs)) / len(pairs) < 0.22
    assert all(grammar.is_held_out((a, b)) == grammar.is_held_out((b, a)) for a, b in pairs)


@any_stream
def test_every_single_word_occurs_in_training(name: str) -> None:
    seen = set(words_of(*sample(name, seed=5, n=6000)))
    assert set(words_of(*sample(name, seed=5, held_out=True, n=3000))) <= seen


@any_stream
def test_same_seed_same_sentences_on_every_machine(name: str) -> None:
    first = sample(name, seed=0, n=200)
    assert first == sample(name, seed=0, n=200)
    assert first != sample(name, seed=1, n=200)
    known = {"agreement": 1986213040, "sentiment": 2910051996}
    assert zlib.crc32("\n".join(sentence.text for sentence in first).encode()) == known[name]


@any_stream
def test_nothing_but_the_cue_tells_the_answer(name: str) -> None:
    drawn = sample(name, seed=6, n=3000)
    for construction in {(sentence.task, sentence.construction) for sentence in drawn}:
        like = [sentence for sentence in drawn if (sentence.task, sentence.construction) == construction]
        answers = [is_plural(s.target) if name == "agreement" else s.target == "positive" for s in like]
        assert 0.35 < sum(answers) / len(like) < 0.65 or construction[1] == "coordination"
    concerned = {"prepositional phrase", "despite last"}
    attracted = [bool(sentence.attractors) for sentence in drawn if sentence.construction in concerned]
    assert 0.3 < sum(attracted) / len(attracted) < 0.6


@any_stream
@given(data=st.data())
@quickly
def test_tokenizer_covers_every_character_and_keeps_cues_whole(name: str, data: st.DataObject) -> None:
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / name)
    for sentence in data.draw(sentences(name)):
        encoded = tokenizer(sentence.text, return_offsets_mapping=True)
        tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"])[1:-1]
        spans = encoded["offset_mapping"][1:-1]
        assert "[UNK]" not in tokens
        cut = [sentence.text[start:end] for start, end in spans]
        assert "".join(cut) == sentence.text.replace(" ", "")
        assert "".join(cut).lower() == "".join(token.removeprefix("##") for token in tokens).lower()
        for start, end in sentence.cues:
            assert any(start == first for first, _ in spans)
            assert any(end == last for _, last in spans)
        if name == "agreement":
            answers = [tokenizer.tokenize(word) for word in (sentence.target, sentence.foil)]
            assert answers == [[sentence.target], [sentence.foil]]
