"""The small functions that everything rests on, with values made up by hand: numbers as written, sentences,
roundings, words, conventions of rollouts, sums that close, tiles, running products, and notices. Both sides of every
limit."""

from __future__ import annotations

import inspect
import math
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import mixlens
from mixlens.base import text as wording
from mixlens.base import words as sentences
from mixlens.scoring import aggregate, completeness, notices, registry, removal

NAN = math.nan

# --- wording ----------------------------------------------------------------------------------------------------------


def ascii_of(text: str) -> str:
    return wording.for_terminal(text, unicode=False)


@pytest.mark.parametrize(
    ("share", "plain", "signed"),
    [
        (0.0, "0 %", "0 %"),
        (-0.0, "0 %", "0 %"),
        (0.00049, "<0.1 %", "<0.1 %"),
        (-0.00049, "<0.1 %", "<0.1 %"),
        (0.0005, "0.1 %", "+0.1 %"),
        (0.0994, "9.9 %", "+9.9 %"),
        (0.09996, "10 %", "+10 %"),
        (0.1, "10 %", "+10 %"),
        (-0.05, "-5.0 %", "-5.0 %"),
        (1.5, "150 %", "+150 %"),
        (NAN, "? %", "? %"),
    ],
)
def test_percent(share: float, plain: str, signed: str) -> None:
    assert (ascii_of(wording.percent(share)), ascii_of(wording.percent(share, sign=True))) == (plain, signed)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        *(
            (0.0, "0 %"),
            (0.00049, "<0.1 %"),
            (0.0005, "0.1 %"),
            (0.5, "50.0 %"),
            (0.99949, "99.9 %"),
            (0.9995, ">99.9 %"),
        ),
        *((0.99999, ">99.9 %"), (1.0, "100 %"), (NAN, "? %"), (-0.25, "-25 %"), (1.25, "125 %")),
    ],
)
def test_probability(value: float, written: str) -> None:
    assert ascii_of(wording.probability(value)) == written


@pytest.mark.parametrize(
    ("change", "written"),
    [
        *((0.0, "0 points"), (0.00049, "<0.1 points"), (-0.00049, "<0.1 points"), (0.0005, "+0.1 points")),
        *(
            (0.01, "+1 point"),
            (-0.01, "-1 point"),
            (0.02, "+2 points"),
            (0.0949, "+9.5 points"),
            (0.0994, "+9.9 points"),
        ),
        *((0.0996, "+10 points"), (-0.174, "-17 points"), (0.0995, "+10 points")),
    ],
)
def test_points(change: float, written: str) -> None:
    assert ascii_of(wording.points(change)) == written


@pytest.mark.parametrize(
    ("share", "written"),
    [
        *(
            (0.0, "0 %"),
            (9.9e-9, "<0.000001 %"),
            (1e-8, "0.000001 %"),
            (2e-7, "0.00002 %"),
            (0.004, "0.4 %"),
            (0.01, "1 %"),
        ),
        *((0.5, "50 %"), (20.0, "2000 %")),
    ],
)
def test_gap(share: float, written: str) -> None:
    assert ascii_of(wording.gap(share)) == written


def test_counts_ordinals_and_lists() -> None:
    assert [wording.counted(count, "word") for count in (0, 1, 2, 12, 13, 1234)] == [
        *("no words", "one word", "two words", "twelve words", "13 words", "1,234 words")
    ]
    assert wording.number_word(-1) == "-1"
    numbers = (1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 101, 111, 113, 114, 1013)
    assert [wording.ordinal(place) for place in numbers] == [
        *("1st", "2nd", "3rd", "4th", "10th", "11th", "12th", "13th", "14th", "20th", "21st", "22nd", "23rd", "101st"),
        *("111th", "113th", "114th", "1013th"),
    ]
    lists = [wording.listed(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])]
    assert lists == ["", "a", "a and b", "a, b and c"]
    assert wording.listed(["a", "b"], last="or") == "a or b"
    assert [wording.sentence_case(text) for text in ("", "a", "aB c", "Über")] == ["", "A", "AB c", "Über"]
    assert wording.for_terminal("\u22125\u202f%") == "\u22125 %"
    assert wording.for_terminal("\u22125\u202f%", unicode=False) == "-5 %"


# --- sentences --------------------------------------------------------------------------------------------------------


def result_of(**given: Any) -> Any:
    return SimpleNamespace(**{"special": (), "words": None, "info": {}, **given})


def test_words_stand_where_the_text_has_them() -> None:
    words = (("[CLS]", (0,)), ("It", (1,)), ("rains", (2, 3)), ("?", (4,)), ("[SEP]", (5,)), ("So", (6,)), ("it", (7,)))
    made = result_of(
        tokens=tuple("abcdefgh"),
        special=(True, False, False, False, False, True, False, False),
        words=words,
        info={"text": "  It rains ?", "pair": "\nSo, it"},
    )
    assert sentences.words_in(made) == [
        sentences.Word("[CLS]", "", (0,), -1, True),
        sentences.Word("It", "  ", (1,), 0, False),
        sentences.Word("rains", " ", (2, 3), 0, False),
        sentences.Word("?", " ", (4,), 0, False),
        sentences.Word("[SEP]", "", (5,), -1, True),
        sentences.Word("So", "\n", (6,), 1, False),
        sentences.Word("it", ", ", (7,), 1, False),
    ]


def test_words_that_the_text_does_not_have() -> None:
    made = result_of(tokens=("a", "zz", "b", "a"), info={"text": "a b", "pair": None})
    assert sentences.words_in(made) == [
        sentences.Word("a", "", (0,), 0, False),
        sentences.Word("zz", " ", (1,), 0, False),
        sentences.Word("b", " ", (2,), 0, False),
        sentences.Word("a", " ", (3,), 0, False),
    ]
    paired = result_of(tokens=("x", "y", "y"), info={"text": "x", "pair": "y"})
    assert [(word.source, word.before) for word in sentences.words_in(paired)] == [(0, ""), (1, ""), (1, " ")]
    half = result_of(tokens=("<s>", "ab"), special=(True, False), words=(("<s>ab", (0, 1)),), info={})
    assert sentences.words_in(half) == [sentences.Word("<s>ab", " ", (0, 1), 0, False)]


def split(text: str, *, special: tuple[int, ...] = ()) -> list[str]:
    """Sentences of a text whose words have a space before them unless they begin with "_"; "|" is a new paragraph."""
    words: list[sentences.Word] = []
    before = ""
    for number, part in enumerate(text.split(" ")):
        lead = "" if not words or part.startswith("_") else " "
        if part == "|":
            before = "\n\n"
            continue
        place = (number,)
        words.append(
            sentences.Word(
                part.removeprefix("_"), before or lead, place, -1 if number in special else 0, number in special
            )
        )
        before = ""
    return [
        "".join(words[place].before + words[place].text for place in one).strip()
        for one in sentences.sentences_of(words)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains _. So it does _.", ["It rains.", "So it does."]),
        ("it rains _. so it does _.", ["it rains.", "so it does."]),
        ("It rains _. so it does _.", ["It rains. so it does."]),
        ("It rains _! So _? Yes _… No", ["It rains!", "So?", "Yes…", "No"]),
        ("Dr _. No came _. He", ["Dr. No came.", "He"]),
        ("Dr _! No", ["Dr!", "No"]),
        ("A _. Smith came", ["A. Smith came"]),
        ("AB _. Smith came", ["AB.", "Smith came"]),
        ("a _. Smith came", ["a.", "Smith came"]),
        ("He said _: “It rains _. _” So", ["He said: “It rains.”", "So"]),
        ("It rains _. _) _] So", ["It rains.)]", "So"]),
        ("It is 3 _. _5 Volts", ["It is 3.5 Volts"]),
        ("It rains _. ) So", ["It rains. )", "So"]),
        ("It rains _. . So", ["It rains. .", "So"]),
        ("It | rains", ["It", "rains"]),
        (". It", [".", "It"]),
        (") It", [") It"]),
        (". _) It", [".)", "It"]),
        ("It rains _.” So", ["It rains.”", "So"]),
        ("It rains.) _” So", ["It rains.)”", "So"]),
        ("It rains _.”) so", ["It rains.”) so"]),
        ("Dr _.) No came", ["Dr.) No came"]),
        ("It (rains) So", ["It (rains) So"]),
        ("", [""]),
    ],
)
def test_sentences_end_where_marks_end_them(text: str, expected: list[str]) -> None:
    assert split(text) == expected


def test_one_line_break_begins_nothing_and_another_text_does() -> None:
    def numbers(*words: tuple[str, str, int]) -> list[list[int]]:
        return sentences.sentences_of(
            [sentences.Word(text, before, (0,), source, source < 0) for text, before, source in words]
        )

    assert numbers(("A", "", 0), ("b", "\n", 0)) == [[0, 1]]
    assert numbers(("A", "", 0), ("b", "\n\n", 0)) == [[0], [1]]
    assert numbers(("[CLS]", "", -1), ("A", "", 0), ("[SEP]", "", -1), ("b", "", 1), ("[SEP]", "", -1)) == [[1], [3]]
    assert numbers() == []
    assert numbers(("<S>", "", -1), ("it", "", 0), (".", "", 0), ("so", " ", 0)) == [
        [1, 2],
        [3],
    ]  # all in small letters


def test_a_sentence_that_is_taken_out_is_a_sentence_that_is_shown() -> None:
    """One definition: neither "Dr." nor dots before a small letter end a sentence."""
    text = "Dr. Smith made it. The plot was dull ... but he liked it."
    trace = mixlens.load("sentiment").trace(text)
    words = sentences.words_in(trace)
    shown = [[i for number in numbers for i in words[number].tokens] for numbers in sentences.sentences_of(words)]
    assert [list(unit) for unit in removal.units_of(trace, "sentence", ())] == shown
    assert len(shown) == 2


def test_marks() -> None:
    told = {text: sentences.Word(text, "", (0,), 0, False).mark for text in (".", "?!", "$", "", "a", "3", "a.", "☺")}
    assert told == {".": True, "?!": True, "$": True, "": False, "a": False, "3": False, "a.": False, "☺": False}


# --- rounding ---------------------------------------------------------------------------------------------------------


# --- words ------------------------------------------------------------------------------------------------------------

WORDS = (("ab", (0, 1)), ("c", (2,)))


# --- conventions ------------------------------------------------------------------------------------------------------

LAYERS = torch.tensor([[[1.0, 3.0], [2.0, 2.0]], [[0.0, 1.0], [5.0, 0.0]]], dtype=torch.float64)


# --- sums that close --------------------------------------------------------------------------------------------------


# --- tiles and settings -----------------------------------------------------------------------------------------------


# --- running products -------------------------------------------------------------------------------------------------


def test_products_out_of_range_are_brought_to_one() -> None:
    """The largest entry of a layer that does not fit is 1; layers that fit again are what they are."""
    eye = torch.eye(2, dtype=torch.float64)
    large, small = torch.stack([eye * 1e120] * 3), torch.stack([eye * 1e-100, eye * 1e-100, eye * 1e140])
    made, wrong = aggregate.products_of([large, small, torch.stack([eye, eye * 2, eye * 3])], shares=False)
    assert wrong == [[1, 2], [1], []]
    assert made[0].diagonal(dim1=1, dim2=2).flatten().tolist() == pytest.approx([1e120] * 2 + [1.0] * 4, rel=1e-12)
    assert made[1].diagonal(dim1=1, dim2=2).flatten().tolist() == pytest.approx(
        [1e-100] * 2 + [1.0] * 2 + [1e-60] * 2, rel=1e-12
    )
    assert made[2].diagonal(dim1=1, dim2=2).tolist() == [[1.0] * 2, [2.0] * 2, [6.0] * 2]
    zeros, wrong = aggregate.products_of([torch.stack([eye, eye * 0, eye])], shares=False)
    assert (zeros[0][1:].abs().sum(), wrong) == (0, [[1, 2]])


def test_rescaled_products_are_the_same_bits() -> None:
    """Powers of two round nothing."""
    layers = torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 5
    layers[:, 1] *= 1e-9
    made, wrong = aggregate.rescaled(layers, torch.finfo(torch.float64).max ** 0.5)
    assert wrong == [[], []]
    assert torch.equal(made[0], layers[0])
    torch.testing.assert_close(made[2], layers[2] @ (layers[1] @ layers[0]), rtol=1e-13, atol=0)


# --- notices ----------------------------------------------------------------------------------------------------------


def model_of(task: str = "masked-lm", **tokenizer: Any) -> Any:
    names = {"unk_token": "[UNK]", "mask_token": "[MASK]", **tokenizer}
    return SimpleNamespace(task=task, mask_id=9, name="tiny", tokenizer=SimpleNamespace(**names))


def read_of(*words: str, pieces: int = 1, ids: tuple[int, ...] = (1,)) -> Any:
    """Each word in so many pieces."""
    tokens = tuple(f"{word}{i}" for word in words for i in range(pieces))
    places = tuple((word, tuple(range(pieces * number, pieces * (number + 1)))) for number, word in enumerate(words))
    return SimpleNamespace(tokens=tokens, input_ids=ids, words=places)


def test_words_that_are_spelled_out() -> None:
    assert notices.spelled(read_of("abc", "abcd", "[abcdef]", "<abcdef>", "ab1", pieces=2), None) == (0, 2)
    assert notices.spelled(read_of("abc", "abcd", "abcde", pieces=3), None) == (
        2,
        3,
    )  # 5 / 3 is above 1.5, 4 / 3 is not
    assert notices.spelled(read_of("abc"), "abc0") == (1, 1)
    assert notices.spelled(SimpleNamespace(tokens=(), input_ids=(), words=None), None) == (0, 0)
    read = read_of("abcdef", "abc", "ab", pieces=3)
    assert notices.spelled_words(read, None) == {(3, 4, 5)}
    assert notices.spelled_words(read, "abcdef1") == {(0, 1, 2), (3, 4, 5)}


NO_MASK = (
    "the text has no [MASK], so this masked language model predicts nothing here; abc0 (position 0) is explained "
    "instead. Put "
    "[MASK] where a word is to be predicted, or name a position (--query, in Python query=)."
)


def unknown(count: int, total: int, what: str) -> str:
    return (
        f"the vocabulary of 'tiny' does not know {count} of the {total} {what}: they are cut into letters or are "
        "unknown, so the "
        "scores say little about words. Use a model that was trained on such texts (--model)."
    )


def test_notices_of_a_text() -> None:
    read = read_of("abc", "abcdef", "abcdef", "abcdef", pieces=3)  # one of four is spelled: 0.25
    assert notices.notices_of(model_of(), read, query=None) == [NO_MASK]
    assert notices.notices_of(model_of(), read, query=0) == []
    assert notices.notices_of(model_of("causal-lm"), read, query=None) == []
    assert notices.notices_in(SimpleNamespace(model=model_of("causal-lm"), **vars(read)), None) == {}
    three = read_of("abc", "abcdef", "abcdef", pieces=3)
    assert notices.notices_of(model_of(), three, query=None) == [
        NO_MASK,
        unknown(1, 3, "words of three letters or more in this text"),
    ]
    ten = read_of(*["abc"] * 3, *["abcdef"] * 7, pieces=3)  # 0.3
    assert notices.notices_of(model_of(), ten, query=1) == [
        unknown(3, 10, "words of three letters or more in this text")
    ]
    assert notices.notices_in(SimpleNamespace(model=model_of(), **vars(ten)), 1) == {
        "notices": [unknown(3, 10, "words of three letters or more in this text")]
    }
    unnamed = notices.notices_of(model_of(mask_token=None), read_of("abc"), query=None)
    assert unnamed == [NO_MASK.replace("no [MASK]", "no mask token").replace("Put [MASK]", "Put the mask token")]
    assert not notices.no_mask(model_of(), read_of("abc", ids=(1, 9)))
    assert notices.no_mask(model_of(), read_of("abc"))
    assert not notices.no_mask(SimpleNamespace(task="masked-lm", mask_id=None), read_of("abc"))


def test_notices_of_a_corpus() -> None:
    def told(count: int, targets: bool = False, query: Any = None, task: str = "masked-lm") -> list[str]:
        texts = [read_of("abc", "abcdef", pieces=3), *[read_of("abc", ids=(9,), pieces=3)] * (count - 1)]
        return notices.notices_of_corpus(model_of(task), texts, query=query, targets=targets)

    mask = (
        "1 of the first {} rows have no [MASK], so this masked language model predicts nothing there; the first "
        "token is "
        "explained. Name a position (--query, in Python query=), or use a classifier."
    )
    assert told(18) == [mask.format(18)]  # 19 words
    assert told(19) == [mask.format(19), unknown(19, 20, "words of three letters or more in the first 19 rows")]
    assert told(19, targets=True) == told(19, query=2) == told(19, task="causal-lm")
    assert told(19, query=2) == [unknown(19, 20, "words of three letters or more in the first 19 rows")]
    assert notices.notices_of_corpus(model_of(mask_token=None), [read_of("abc")], query=None, targets=False) == [
        mask.format(1).replace("[MASK]", "mask token")
    ]
    assert notices.notices_of_corpus(model_of(), [], query=None, targets=False) == []


def test_notices_of_results() -> None:
    open_sum = {"completeness": {"sum": 1.5, "expected": 2.0, "relative_gap": 0.25}}
    assert notices.completeness(open_sum) == 0.25
    assert notices.completeness({}) is None
    assert notices.completeness({"completeness": None}) is None
    assert notices.noticed({"notices": ["a", 2]}) == ["a", "2"]
    assert notices.noticed({"notices": ("a",)}) == ["a"]
    assert notices.noticed({"notices": "a"}) == notices.noticed({}) == []
    apart = "the scores add up to 1.5 and what they explain is 2: 25.0% apart. Trust them less than usual."
    assert notices.off_sum("lrp", open_sum) == [apart]
    assert notices.off_sum("discretized_integrated_gradients", open_sum) == [
        f"{apart} Give smaller steps (factor=3 or higher, with rule=trapezoid)."
    ]
    assert notices.off_sum("lrp", {**open_sum, "dtype": "float16"}) == [
        f"{apart} Load the model in float32, which rounds less."
    ]
    closed = {"completeness": {"sum": 1.0, "expected": 1.0, "relative_gap": 0.01}}
    assert notices.off_sum("lrp", closed) == notices.off_sum("lrp", {}) == []
    assert notices.adds_up(closed)
    assert notices.adds_up({})
    assert not notices.adds_up(open_sum)


def test_every_advice_names_options_that_its_method_has() -> None:
    """An advice is printed after the scores of a method: what it says to give must be an option there."""
    for method, told in completeness.ADVICE.items():
        options = inspect.signature(registry.ATTRIBUTIONS.find(method).function).parameters
        assert {*re.findall(r"(\w+)=", told)} <= {*options}, method
