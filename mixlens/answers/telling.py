"""Every sentence of an answer, made once, of its facts: plain sentences, percent, no code names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.parts import Number, Quote, Sentence, Strong, joined, said
from ..base.text import counted, gap, number_word, ordinal, percent, points, probability
from .case import NO_ANSWER
from .rules import LIMITS, NO_EFFECT, Measured, decides, state_of
from .value import Check, Told, Trust

if TYPE_CHECKING:
    from .value import Why, Word

START = {"ok": "Yes", "caution": "Partly", "fail": "No"}


def tell(why: Why) -> tuple[Told, Trust]:
    """What an answer says; and its trust with the verdict, its reasons and what was checked."""
    m = measured_of(why)
    more = _but(why, m)
    told = Told(_question(why), _headline(why, more), _without(why), _method(why), _others(why))
    verdict, checks = state_of("verdict", m), tuple(_checks(why, m))
    sentence = _verdict(why, m)
    return told, replace(why.trust, verdict=verdict, sentence=sentence, checks=checks, measures=measures(why), but=more)


def measured_of(why: Why) -> Measured:
    """The numbers that rules judge."""
    trust, random = why.trust, why.trust.random
    return Measured(
        whole=trust.whole,
        without=trust.without,
        random=random.mean,
        k=trust.k,
        turned=trust.turned,
        count=random.count,
        random_turned=random.turned,
        predicted=why.answer.predicted,
        single=None if trust.single is None else trust.single.without,
        each=trust.without_each,
        same=why.agreement.same,
        of=why.agreement.of,
        gap=why.gaps.completeness,
    )


# --- words that several sentences need -------------------------------------------------------------------------------


def these(k: int) -> str:
    return "this word" if k == 1 else f"these {counted(k, 'word')}"


def them(k: int) -> str:
    return "it" if k == 1 else "them"


def random_words(k: int) -> str:
    return "one random word" if k == 1 else f"{number_word(k)} random words"


def chance(value: float) -> Number:
    return Number(probability(value))


def rather(why: Why) -> Sentence:
    return said() if why.answer.foil is None else said(" rather than ", Strong(why.answer.foil))


def measures(why: Why) -> Sentence:
    """What the numbers of trust are."""
    target, foil = Strong(why.answer.target), why.answer.foil
    return said("probability of ", target) if foil is None else said("share of ", target, " against ", Strong(foil))


def of_two(why: Why) -> str:
    """What the numbers of trust are a share of, where there is a foil."""
    return "" if why.answer.foil is None else " of the two"


def likelier(why: Why) -> Sentence:
    target, foil = Strong(why.answer.target), why.answer.foil
    return said("it more likely") if foil is None else said(target, " likelier against ", Strong(foil))


def draws(why: Why) -> str:
    random = why.trust.random
    if not random.all_:
        return f"{random.count:,} draws" if random.count != 1 else "one draw"
    return f"all {random.count:,} other sets" if random.count != 1 else "the one other set"


def quotes(words: Sequence[Word], places: Sequence[int]) -> list[Quote]:
    """The words at these indices; of one that stands in the text more than once also which one: “the” (4th word).
    Marks are not counted as words."""
    shown = [i for i, word in enumerate(words) if not word.special]
    made = []
    for place in places:
        one, which = words[place], ""
        twins = [i for i in shown if words[i].text == one.text]
        if len(twins) > 1:
            other = " of the second text" if one.segment == "pair" else ""
            same = [i for i in shown if words[i].segment == one.segment and words[i].mark == one.mark]
            here = [i for i in same if i in twins]
            if not one.mark:
                which = f" ({ordinal(same.index(place) + 1)} word{other})"
            elif len(here) == 1:
                which = f" ({other.strip() or 'of the first text'})"
            else:
                which = f" ({ordinal(here.index(place) + 1)} of {len(here)}{other})"
        made.append(Quote(one.text, which, place))
    return made


def raisers(why: Why, m: Measured) -> Sentence:
    """The named words that contradict their scores: “a”, “b” or “c”."""
    return joined(quotes(why.words, [why.answer.for_[place] for place in m.raising]), last=" or ")


def shown_words(why: Why) -> list[int]:
    """The words of a text as a reader sees them: special tokens are left out."""
    return [place for place, word in enumerate(why.words) if not word.special]


def named_first(why: Why, places: Sequence[int]) -> list[int]:
    """The words that the answer names, then the others from the largest share to the smallest."""
    named = {*why.answer.for_, *why.answer.against}
    return sorted({*places, *named}, key=lambda place: (place not in named, -abs(why.words[place].share)))


def ranked(why: Why, most: int, least: float = 0.0) -> tuple[list[int], Sentence]:
    """The words beside bars, from most for to most against: those that are named, and those whose share is no less than
    `least`; and what the others carry."""
    shown = shown_words(why)
    strong = [k for k in shown if abs(why.words[k].share) >= least] or shown
    chosen = named_first(why, strong)[: max(most, len(why.answer.for_) + len(why.answer.against))]
    places = sorted((k for k in chosen if why.words[k].share), key=lambda k: -why.words[k].share)
    rest = [why.words[k] for k in shown if k not in places and why.words[k].share]
    carried = Number(percent(sum(abs(word.share) for word in rest)))
    marks = any(word.mark for word in rest)
    if len(rest) < 2:
        what = "mark" if marks else why.unit
        return places, said(f"One more {what} carries ", carried, ".") if rest else said()
    what = f"{why.unit}s and marks" if marks else f"{why.unit}s"
    return places, said(f"{len(rest):,} more {what} carry ", carried, " together.")


# --- the answer ------------------------------------------------------------------------------------------------------


def _question(why: Why) -> Sentence:
    """The title: what is asked."""
    answer, name, against = why.answer, Strong(why.answer.target), str(rather(why))
    if answer.word is not None:
        tagged = said(Quote(answer.word), " as ", name, against)
        return said("Why did the model tag " if answer.predicted else "What speaks for tagging ", tagged, "?")
    if why.task == "question-answering":
        return said(
            "Why did the model answer " if answer.predicted else "What speaks for the answer ",
            Quote(answer.target),
            "?",
        )
    return said("Why did the model say " if answer.predicted else "What speaks for ", name, against, "?")


def _headline(why: Why, more: Sentence) -> Sentence:
    """One plain sentence: the answer, the words for it, whether that holds, and the words against it. The answer's
    share of two words stands there where it is another number than its probability."""
    answer, name = why.answer, Strong(why.answer.target)
    share = chance(answer.probability)
    what = said(f"{answer.word}: " if answer.word is not None else "", name, rather(why))
    two = said()
    if answer.foil is not None and probability(why.trust.whole) != share.text:
        two = said(chance(why.trust.whole), of_two(why))
    if answer.predicted:
        leans = "leans to " if answer.certainty == "leans" else ""
        start, because = said(leans, what, " (", share, "; " if two else "", two, ")"), said(", because of ")
    else:
        best, of_best = why.predictions[0]
        says = "gives" if best == NO_ANSWER else "says"
        shared = said(" (", two, ")") if two else said()
        start = said(share, " for ", what, shared, f"; the model {says} ", Strong(best), " (", chance(of_best), ")")
        because = said("; for ", name, ": ")
    reason = (
        said(because, joined(quotes(why.words, answer.for_)), more) if answer.for_ else said("; no word speaks for it")
    )
    despite = said("; against it: ", joined(quotes(why.words, answer.against))) if answer.against else said()
    return said(start, reason, despite)


def _but(why: Why, m: Measured) -> Sentence:
    """What the headline adds to the words that are named, where their removal does not bear them out."""
    if not m.k:
        return said()
    if m.together:
        return said(", which act together")
    failed = state_of("removal", m) == "fail"
    if not failed:
        if not m.count:
            return said(", with nothing to compare with")
        return said(", though taking ", raisers(why, m), " out alone makes ", likelier(why)) if m.raising else said()
    what = "this word" if m.k == 1 else "these words"
    if m.size <= -NO_EFFECT:
        told = said(f", but taking {what} out makes ", likelier(why))
    elif m.whole - m.random > max(0.0, m.size):
        told = said(", but taking random words out changes more")
    else:
        little = "little" if m.size < LIMITS["removal_caution"] else "no more than random words do"
        told = said(f", but taking {what} out changes {little}")
    says, answer = why.trust.without_prediction, why.answer
    then = answer.foil is not None and says not in (answer.target, answer.foil)
    return said(told, " (the model then says “", Strong(says), "”)") if then else told


def _without(why: Why) -> Sentence:
    """What is left of the answer without the words that are named."""
    trust, answer, name = why.trust, why.answer, Strong(why.answer.target)
    if not trust.k:
        return said("no word speaks for the answer, so none was taken out")
    random = said("nothing to compare with")
    if trust.random.count:
        random = said(f"{random_words(trust.k)}: ", chance(trust.random.mean), f" on average, {draws(why)}")
    left, says = said(chance(trust.without), " ", name), said()
    if answer.foil is not None:
        two = f"of the two {'words' if why.classes is None else 'classes'} "
        left = said(two, name, " and ", Strong(answer.foil), ", ", name, " has ", chance(trust.without))
        still = "still" if trust.without_prediction == answer.target else "then"
        says = said(f"; the model {still} says ", Strong(trust.without_prediction))
    return said(f"without {these(trust.k)}: ", left, " (", random, ")", says, f"; {trust.filler.text}")


def _method(why: Why) -> Sentence:
    """The method, why this one, its gap, and how many methods agree."""
    parts = [said(f"{why.method.name}: {why.method.reason}")]
    if why.gaps.completeness is not None:
        parts.append(said("completeness gap ", Number(gap(why.gaps.completeness))))
    if why.agreement.of > 1 and why.agreement.k:
        parts.append(said(f"{why.agreement.same} of {why.agreement.of} methods put {same_first(why)}"))
    return joined(parts, "; ")


def same_first(why: Why) -> str:
    k = why.agreement.k
    return f"the same {'word' if k == 1 else counted(k, 'word')} first"


def _others(why: Why) -> Sentence:
    """What the model says beside the target."""
    answer = why.answer
    others = [one for one in why.predictions[1 if answer.predicted else 0 : 5] if one[0] != answer.target]
    if len(others) < 2 or why.task == "question-answering":
        return said()
    listed = joined([said(Strong(name), " ", chance(share)) for name, share in others])
    return said("After it: " if answer.predicted else "The model’s own: ", listed, ".")


# --- trust -----------------------------------------------------------------------------------------------------------


def _verdict(why: Why, m: Measured) -> Sentence:
    """The answer to "can I trust this?"."""
    if not m.k:
        return said("No: no word speaks for the answer, so there is nothing to take out.")
    answer, verdict, removal = why.answer, state_of("verdict", m), state_of("removal", m)
    what = said("the answer") if m.predicted and answer.foil is None else said("the ", measures(why))
    change = said(what, " changes by ", Number(points(-m.size)))
    if m.together and why.trust.single is not None:
        alone = said("without ", *quotes(why.words, [why.trust.single.word]), " alone it is ", chance(m.single or 0))
        every = "all " if m.k > 2 else ""
        return said(f"{START[verdict]}: the words act together. Without {them(m.k)} {every}", change, "; ", alone, ".")
    told = said(f"without {them(m.k)} ", change)
    if not m.count:
        told = said(told, "; there is nothing to compare with")
    elif removal == "fail" or not m.turned or not m.predicted:
        told = said(told, f", without {random_words(m.k)} by ", Number(points(m.random - m.whole)))
    else:
        told = said(f"without {them(m.k)} the model says something else")
        if m.random_sets_turn:
            told = said(told, f", but also without {m.random_turned:,} of {m.count:,} random sets")
        elif m.even:
            told = said(told, ", but the answer was near even before (", chance(m.whole), of_two(why), ")")
    if not m.predicted:
        told = said("the model does not say ", Strong(answer.target), "; ", told)
    if removal == "fail":
        return said("No: ", told, ".")
    raised = said("; taking ", raisers(why, m), " out alone raises it") if m.raising else said()
    marked = "" if verdict == removal else " See the lines that are marked."
    return said(f"{START[verdict]}, for {these(m.k)}: ", told, raised, f".{marked}")


def _checks(why: Why, m: Measured) -> list[Check]:
    """Everything that was checked, one line each."""
    trust, two, k = why.trust, of_two(why), m.k
    found: list[Check] = []
    if k:
        title = said(f"Without {these(k)}: ", chance(m.whole), two, " becomes ", chance(m.without), ".")
        says = "still" if trust.without_prediction == why.answer.target else "now"
        then = said(f"The model {says} says ", Strong(trust.without_prediction), ".")
        found.append(Check("removal", state_of("removal", m), title, then, m.whole, m.without))
        if m.count:
            title = said(f"Without {random_words(k)}: ", chance(m.random), " on average.")
            low, high = trust.random.low, trust.random.high
            ends = said(", from ", chance(low), " to ", chance(high)) if low < high else said()
            turning = said(f"; in {m.random_turned:,} " if m.random_turned else "; in none ")
            if m.predicted:
                does = "the model says" if m.random_turned else "does the model say"
                turning = said(turning, f"{does} something else")
            elif why.answer.foil is not None:
                foil = Strong(why.answer.foil)
                turning = (
                    said(turning, foil, " is likelier") if m.random_turned else said(turning, "is ", foil, " likelier")
                )
            else:
                turning = said()
            detail = said(draws(why), ends, turning, ".").capital()
            found.append(Check("random", "info", title, detail, m.whole, m.random, low, high))
        else:
            found.append(
                Check("random", "info", said("There is nothing to compare with."), said("No other set of words."))
            )
        title = said(f"With {these(k)} alone: ", chance(trust.alone), ".")
        found.append(Check("alone", "info", title, said("Every other word taken out."), m.whole, trust.alone))
    if m.of > 1 and k:
        title = said(f"{number_word(m.same)} of {number_word(m.of)} methods put {same_first(why)}.").capital()
        detail = said(
            "The leading method is one of them." if m.same > 1 else "Every other method puts other words first."
        )
        found.append(Check("agreement", state_of("agreement", m), title, detail))
    if m.gap is not None:
        state = state_of("completeness", m)
        missing = {"ok": "Nothing is missing.", "caution": "A little is missing.", "fail": "The scores do not add up."}[
            state
        ]
        detail = said("The scores add up to the model’s output: gap ", Number(gap(m.gap)), ".")
        found.append(Check("completeness", state, said(missing), detail))
    if trust.single is not None:
        word = quotes(why.words, [trust.single.word])[0]
        one = decides(m, turned=trust.single.turned)
        title = said("One word decides: ", word, ".") if one else said("No single word decides.")
        still = "it is " if one else "it is still "
        left = said(
            "Without ", word, f" alone {still}", chance(trust.single.without), f"{two}; with it ", chance(m.whole), "."
        )
        found.append(Check("single", "info", title, left))
    if why.gaps.reconstruction is not None:
        size = said("Largest gap ", Number(f"{why.gaps.reconstruction:.1e}"), ".")
        found.append(Check("reconstruction", "info", said("The model was taken apart and put together again."), size))
    return found
