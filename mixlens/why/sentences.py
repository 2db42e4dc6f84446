"""The answer in words: the question, the sentence, the lines of trust. Plain sentences, percent, no code names."""

from __future__ import annotations

from collections.abc import Sequence

from ..wording import counted, gap, number_word, points, probability, sentence_case
from .asked import Asked
from .rules import agreement_state, certainty, completeness_state, removal_state
from .value import Agreement, Check, Gaps, Random, Single, Word, named

BUT = {
    "fail": ", but taking these words out changes little",
    "worse": ", but taking random words out changes more",
}


def quoted(text: str) -> str:
    return f"“{text}”"


def question(asked: Asked, task: str) -> str:
    """The title: what is asked."""
    target = asked.name
    if task == "token-classification":
        return f"Why did the model tag {quoted(asked.word or '')} as {target}?"
    if task == "question-answering":
        return f"Why did the model answer {quoted(target)}?"
    if not asked.predicted:
        return f"What speaks for {target}?"
    rather = f" rather than {asked.foil_name}" if asked.foil_name is not None else ""
    return f"Why did the model say {target}{rather}?"


def headline(asked: Asked, words: Sequence[Word], reasons: Sequence[int], against: Sequence[int], but: str) -> str:
    """One plain sentence: the answer, the words for it, the word against it, and whether that holds."""
    start = f"{head(asked)} ({probability(asked.probability)})"
    because = f", because of {', '.join(named(words, reasons))}" if reasons else "; no word speaks for it"
    despite = f"; against it: {', '.join(named(words, against))}" if against else ""
    return f"{start}{because}{despite}{but if reasons else ''}"


def head(asked: Asked) -> str:
    """What the model says, before its probability."""
    what = f"{asked.word}: {asked.name}" if asked.word is not None else asked.name
    rather = f" rather than {asked.foil_name}" if asked.foil_name is not None else ""
    leans = "leans to " if asked.predicted and certainty(asked.probability) == "leans" else ""
    return f"{leans}{what}{rather}"


def but(state: str, whole: float, without: float, random: float) -> str:
    """What contradicts the headline, where words were taken out in vain."""
    if state != "fail":
        return ""
    return BUT["worse"] if whole - random > max(0.0, whole - without) else BUT["fail"]


def measures(asked: Asked) -> str:
    """What the numbers of trust are."""
    return f"probability of {asked.name}" if asked.foil_name is None else f"share of {asked.name} against {asked.foil_name}"


# --- trust --------------------------------------------------------------------------------------------------------------


def these(k: int) -> str:
    """ "this word", "these three words"."""
    return "this word" if k == 1 else f"these {counted(k, 'word')}"


def random_words(k: int) -> str:
    return "one random word" if k == 1 else f"{number_word(k)} random words"


def draws(random: Random) -> str:
    return f"all {random.count:,} sets" if random.all_ else f"{random.count:,} draws"


def verdict_sentence(verdict: str, removal: str, k: int, whole: float, without: float, turned: bool, random: Random) -> str:
    """The answer to "can I trust this?"."""
    if not k:
        return "No: no word speaks for the answer, so there is nothing to take out."
    fell = f"without {'it' if k == 1 else 'them'} the answer changes by {points(without - whole)}"
    chance = f"without {random_words(k)} by {points(random.mean - whole)}"
    turns = f"the answer turns without {'it' if k == 1 else 'them'}"
    if removal == "fail":
        return f"No: {fell}, {chance}."
    start = {"ok": "Yes", "caution": "Partly", "fail": "No"}[verdict]
    why = "" if verdict == removal else " See the lines that are marked."
    return f"{start}, for {these(k)}: {turns if turned else f'{fell}, {chance}'}.{why}"


def checks(
    k: int,
    whole: float,
    without: float,
    random: Random,
    single: Single | None,
    agreement: Agreement,
    gaps: Gaps,
    words: Sequence[Word],
) -> tuple[Check, ...]:
    """Everything that was checked, one line each."""
    found = [_removal(k, whole, without, random)] if k else []
    found += [_agreement(agreement)] if agreement.of > 1 and k else []
    found += [] if gaps.completeness is None else [_completeness(gaps.completeness)]
    found += [] if single is None else [_single(single, whole, words)]
    return (*found, *([] if gaps.reconstruction is None else [_reconstruction(gaps.reconstruction)]))


def _removal(k: int, whole: float, without: float, random: Random) -> Check:
    turned = f"{random.turned} of {random.count} turn the answer"
    detail = f"{sentence_case(random_words(k))}: {probability(random.mean)} on average ({draws(random)}, {turned})."
    title = f"Without {these(k)}: {probability(whole)} becomes {probability(without)}."
    return Check("removal", removal_state(whole, without, random.mean), title, detail)


def _agreement(agreement: Agreement) -> Check:
    first = "the same word" if agreement.k == 1 else f"the same {counted(agreement.k, 'word')}"
    title = f"{sentence_case(number_word(agreement.same))} of {number_word(agreement.of)} methods put {first} first."
    detail = "The leading method is one of them." if agreement.same > 1 else "Every other method puts other words first."
    return Check("agreement", agreement_state(agreement.same, agreement.of), title, detail)


def _completeness(size: float) -> Check:
    state = completeness_state(size)
    title = {"ok": "Nothing is missing.", "caution": "A little is missing.", "fail": "The scores do not add up."}[state]
    return Check("completeness", state, title, f"The scores add up to the model’s output: gap {gap(size)}.")


def _single(single: Single, whole: float, words: Sequence[Word]) -> Check:
    word = quoted(words[single.word].text)
    title = f"One word decides: {word}." if single.turned else "No single word decides."
    still = "it is" if single.turned else "it is still"
    return Check(
        "single", "info", title, f"Without {word} alone {still} {probability(single.without)}; with it {probability(whole)}."
    )


def _reconstruction(size: float) -> Check:
    return Check("reconstruction", "info", "The model was taken apart and put together again.", f"Largest gap {size:.1e}.")
