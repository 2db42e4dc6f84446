"""The answer in words: the question, the sentence, the lines of trust. Plain sentences, percent, no code names."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.text import counted, gap, listed, number_word, ordinal, points, probability, sentence_case
from . import rules
from .asked import NO_ANSWER, Asked
from .rules import Fall, agreement_state, certainty, completeness_state, removal_state
from .value import Agreement, Check, Gaps, Random, Single, Word

OF_TWO = " of the two"


def quoted(text: str) -> str:
    return f"“{text}”"


def called(words: Sequence[Word], places: Sequence[int]) -> list[str]:
    """The words at these indices in quotes; of one that stands in the text more than once also which one: “the” (4th word)."""
    return [f"{quoted(words[place].text)}{which(words, place)}" for place in places]


def which(words: Sequence[Word], place: int) -> str:
    """ " (4th word)" of a word that stands in the text more than once."""
    shown = [i for i, word in enumerate(words) if not word.special]
    twins = [i for i in shown if words[i].text == words[place].text]
    if len(twins) < 2:
        return ""
    other = " of the second text" if words[place].segment == "pair" else ""
    same = [i for i in shown if words[i].segment == words[place].segment]
    if words[place].mark:  # marks are not counted as words
        here = [i for i in same if i in twins]
        if len(here) == 1:
            return f" ({other.strip() or 'of the first text'})"
        return f" ({ordinal(here.index(place) + 1)} of {len(here)}{other})"
    return f" ({ordinal([i for i in same if not words[i].mark].index(place) + 1)} word{other})"


def question(asked: Asked, task: str) -> str:
    """The title: what is asked."""
    if not asked.predicted:
        return f"What speaks for {_wanted(asked, task)}?"
    if task == "token-classification":
        return f"Why did the model tag {quoted(asked.word or '')} as {asked.name}{_rather(asked)}?"
    if task == "question-answering":
        return f"Why did the model answer {quoted(asked.name)}?"
    return f"Why did the model say {asked.name}{_rather(asked)}?"


def _wanted(asked: Asked, task: str) -> str:
    """A target that the model does not predict, in the title."""
    if task == "token-classification":
        return f"tagging {quoted(asked.word or '')} as {asked.name}{_rather(asked)}"
    return f"the answer {quoted(asked.name)}" if task == "question-answering" else f"{asked.name}{_rather(asked)}"


def _rather(asked: Asked) -> str:
    return f" rather than {asked.foil_name}" if asked.foil_name is not None else ""


def headline(
    asked: Asked,
    words: Sequence[Word],
    reasons: Sequence[int],
    against: Sequence[int],
    but: str,
    measured: float | None = None,
) -> str:
    """One plain sentence: the answer, the words for it, whether that holds, and the words against it. `measured`: the number of
    trust of the whole text, which is the share of two words where there is a foil."""
    two = _of_two(asked, measured)
    start, because = _said(asked, two) if asked.predicted else _unsaid(asked, two)
    reason = f"{because}{', '.join(called(words, reasons))}{but}" if reasons else "; no word speaks for it"
    despite = f"; against it: {', '.join(called(words, against))}" if against else ""
    return f"{start}{reason}{despite}"


def _of_two(asked: Asked, measured: float | None) -> str:
    """Against a foil: the answer's share of the two, where it is another number than its probability."""
    if asked.foil_name is None or measured is None or probability(measured) == probability(asked.probability):
        return ""
    return f"{probability(measured)}{OF_TWO}"


def _said(asked: Asked, two: str) -> tuple[str, str]:
    """What the model says, and what leads to the words for it."""
    leans = "leans to " if certainty(asked.probability) == "leans" else ""
    numbers = "; ".join([probability(asked.probability), *([two] if two else [])])
    return f"{leans}{_what(asked)} ({numbers})", ", because of "


def _unsaid(asked: Asked, two: str) -> tuple[str, str]:
    """What is asked for, what the model says instead, and what leads to the words for what is asked for."""
    best, share = asked.predictions[0]
    says = "gives" if best == NO_ANSWER else "says"
    share_of_two = f" ({two})" if two else ""
    start = f"{probability(asked.probability)} for {_what(asked)}{share_of_two}; the model {says} {best} ({probability(share)})"
    return start, f"; for {asked.name}: "


def _what(asked: Asked) -> str:
    what = f"{asked.word}: {asked.name}" if asked.word is not None else asked.name
    return f"{what}{_rather(asked)}"


def but(fall: Fall, pair: tuple[str, str] | None = None, says: str = "", raising: Sequence[str] = ()) -> str:
    """What the headline adds to the words that are named, where their removal does not bear them out. `pair`: the answer and its
    foil, where the share of the two is measured; `says`: what the model says without the words, where that is neither of them;
    `raising`: the words that contradict their scores."""
    if rules.act_together(fall):
        return ", which act together"
    if not fall.count and removal_state(fall) != "fail":
        return ", with nothing to compare with"
    then = f" (the model then says {quoted(says)})" if says else ""
    if removal_state(fall) == "fail":
        return _failed(fall, pair) + then
    return f", though taking {listed(raising, last='or')} out alone makes {_likelier(pair)}" if raising else ""


def _likelier(pair: tuple[str, str] | None) -> str:
    return "it more likely" if pair is None else f"{pair[0]} likelier against {pair[1]}"


def _failed(fall: Fall, pair: tuple[str, str] | None) -> str:
    """Why a removal fails."""
    what = "this word" if fall.k == 1 else "these words"
    if fall.size <= -rules.NO_EFFECT:
        return f", but taking {what} out makes {_likelier(pair)}"
    if fall.whole - fall.random > max(0.0, fall.size):
        return ", but taking random words out changes more"
    if fall.size < rules.LIMITS["removal_caution"]:
        return f", but taking {what} out changes little"
    return f", but taking {what} out changes no more than random words do"


def measures(asked: Asked) -> str:
    """What the numbers of trust are."""
    return (
        f"probability of {asked.name}"
        if asked.foil_name is None
        else f"share of {asked.name} against {asked.foil_name}"
    )


# --- trust --------------------------------------------------------------------------------------------------------------


def these(k: int) -> str:
    """ "this word", "these three words"."""
    return "this word" if k == 1 else f"these {counted(k, 'word')}"


def random_words(k: int) -> str:
    return "one random word" if k == 1 else f"{number_word(k)} random words"


def them(k: int) -> str:
    return "it" if k == 1 else "them"


def draws(random: Random) -> str:
    if not random.all_:
        return f"{random.count:,} draws" if random.count != 1 else "one draw"
    return f"all {random.count:,} other sets" if random.count != 1 else "the one other set"


def turning(count: int, *, predicted: bool = True, foil: str | None = None) -> str:
    """ "; in 9 the model says something else". Where the model does not say the target, it can turn to the foil alone."""
    if predicted:
        return (
            f"; in {count:,} the model says something else" if count else "; in none does the model say something else"
        )
    if foil is None:
        return ""
    return f"; in {count:,} {foil} is likelier" if count else f"; in none is {foil} likelier"


def verdict_sentence(verdict: str, fall: Fall, asked: Asked, single: str, raising: Sequence[str] = ()) -> str:
    """The answer to "can I trust this?". `single`: the one named word whose removal does most; `raising`: those that contradict
    their scores."""
    if not fall.k:
        return "No: no word speaks for the answer, so there is nothing to take out."
    removal = removal_state(fall)
    if rules.act_together(fall):
        alone = f"without {quoted(single)} alone it is {probability(fall.single or 0)}"
        return f"{START[verdict]}: the words act together. {_changes(fall, asked)}; {alone}."
    if removal == "fail":
        return f"No: {_unsaid_first(asked)}{_compared(fall, asked)}."
    marked = "" if verdict == removal else " See the lines that are marked."
    return (
        f"{START[verdict]}, for {these(fall.k)}: {_unsaid_first(asked)}{_found(fall, asked)}{_raised(raising)}.{marked}"
    )


START = {"ok": "Yes", "caution": "Partly", "fail": "No"}


def _raised(raising: Sequence[str]) -> str:
    return f"; taking {listed(raising, last='or')} out alone raises it" if raising else ""


def _unsaid_first(asked: Asked) -> str:
    return "" if asked.predicted else f"the model does not say {asked.name}; "


def _changes(fall: Fall, asked: Asked) -> str:
    """What the answer does without the named words."""
    every = "all " if fall.k > 2 else ""
    return sentence_case(f"without {them(fall.k)} {every}{_measured(asked)} changes by {points(-fall.size)}")


def _measured(asked: Asked) -> str:
    """What changes: the answer, where that is what the model says and its probability is measured."""
    return "the answer" if asked.predicted and asked.foil_name is None else f"the {measures(asked)}"


def _compared(fall: Fall, asked: Asked) -> str:
    """The change without the named words, beside that without random ones."""
    fell = f"without {them(fall.k)} {_measured(asked)} changes by {points(-fall.size)}"
    if not fall.count:
        return f"{fell}; there is nothing to compare with"
    return f"{fell}, without {random_words(fall.k)} by {points(fall.random - fall.whole)}"


def _found(fall: Fall, asked: Asked) -> str:
    """What the removal says where it does not fail, with what asks for caution."""
    if not fall.turned or not fall.count or not asked.predicted:
        return _compared(fall, asked)
    turns = f"without {them(fall.k)} the model says something else"
    if rules.random_sets_turn(fall):
        return f"{turns}, but also without {fall.random_turned:,} of {fall.count:,} random sets"
    if rules.is_even(fall):
        return f"{turns}, but the answer was near even before ({probability(fall.whole)}{of_two(asked.foil_name)})"
    return turns


def of_two(foil: str | None) -> str:
    """What the numbers of trust are a share of, where there is a foil."""
    return "" if foil is None else OF_TWO


def checks(
    fall: Fall,
    random: Random,
    single: Single | None,
    agreement: Agreement,
    gaps: Gaps,
    words: Sequence[Word],
    foil: str | None = None,
) -> tuple[Check, ...]:
    """Everything that was checked, one line each."""
    found = [_removal(fall, random, foil)] if fall.k else []
    found += [_agreement(agreement)] if agreement.of > 1 and fall.k else []
    found += [] if gaps.completeness is None else [_completeness(gaps.completeness)]
    found += [] if single is None else [_single(single, fall, words, of_two(foil))]
    return (*found, *([] if gaps.reconstruction is None else [_reconstruction(gaps.reconstruction)]))


def _removal(fall: Fall, random: Random, foil: str | None) -> Check:
    mean = f"{sentence_case(random_words(fall.k))}: {probability(random.mean)} on average"
    told = f"{draws(random)}{turning(random.turned, predicted=fall.predicted, foil=foil)}"
    detail = f"{mean} ({told})." if random.count else "There is nothing to compare with."
    title = f"Without {these(fall.k)}: {probability(fall.whole)}{of_two(foil)} becomes {probability(fall.without)}."
    return Check("removal", removal_state(fall), title, detail)


def _agreement(agreement: Agreement) -> Check:
    first = "the same word" if agreement.k == 1 else f"the same {counted(agreement.k, 'word')}"
    title = f"{sentence_case(number_word(agreement.same))} of {number_word(agreement.of)} methods put {first} first."
    detail = (
        "The leading method is one of them." if agreement.same > 1 else "Every other method puts other words first."
    )
    return Check("agreement", agreement_state(agreement.same, agreement.of), title, detail)


def _completeness(size: float) -> Check:
    state = completeness_state(size)
    title = {"ok": "Nothing is missing.", "caution": "A little is missing.", "fail": "The scores do not add up."}[state]
    return Check("completeness", state, title, f"The scores add up to the model’s output: gap {gap(size)}.")


def _single(single: Single, fall: Fall, words: Sequence[Word], unit: str) -> Check:
    word = called(words, [single.word])[0]
    decides = rules.decides(fall.whole, single.without, turned=single.turned, predicted=fall.predicted)
    title = f"One word decides: {word}." if decides else "No single word decides."
    still = "it is" if decides else "it is still"
    detail = f"Without {word} alone {still} {probability(single.without)}{unit}; with it {probability(fall.whole)}."
    return Check("single", "info", title, detail)


def _reconstruction(size: float) -> Check:
    return Check(
        "reconstruction", "info", "The model was taken apart and put together again.", f"Largest gap {size:.1e}."
    )
