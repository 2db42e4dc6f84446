"""What taking words out of a text says: how the answer falls, and whether the words that are named can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

from . import choice, rules, sentences, trust
from .asked import Asked, output_name, span_text
from .value import Agreement, Filler, Gaps, Trust, Word
from .words import Piece


def fall_of(removal: trust.Removal, plan: trust.Plan, asked: Asked) -> rules.Fall:
    """How the answer falls without the named words and without random ones."""
    random, single = trust.random_of(removal, plan), trust.single_of(removal, plan)
    return rules.Fall(
        whole=removal.value(()),
        without=removal.value(plan.named),
        random=random.mean,
        k=len(plan.named),
        turned=removal.turned(plan.named),
        count=random.count,
        random_turned=random.turned,
        predicted=asked.predicted,
        single=None if single is None else single.without,
        each=trust.each_of(removal, plan),
    )


def trust_of(
    removal: trust.Removal,
    plan: trust.Plan,
    fall: rules.Fall,
    asked: Asked,
    filler: str,
    agreement: Agreement,
    gaps: Gaps,
    words: Sequence[Word],
    pieces: Sequence[Piece],
) -> Trust:
    """Everything that taking words out says."""
    random, single = trust.random_of(removal, plan), trust.single_of(removal, plan)
    state = rules.removal_state(fall) if fall.k else "fail"
    raising = sentences.called(words, [plan.named[place] for place in rules.raising(fall)])
    complete = None if gaps.completeness is None else rules.completeness_state(gaps.completeness)
    verdict = rules.verdict(state, complete, rules.agreement_state(agreement.same, agreement.of))
    return Trust(
        verdict=verdict,
        sentence=sentences.verdict_sentence(verdict, fall, asked, words[single.word].text if single else "", raising),
        k=fall.k,
        filler=Filler(filler, choice.FILLERS[filler]),
        measures=sentences.measures(asked),
        whole=fall.whole,
        without=fall.without,
        without_prediction=prediction_without(removal, plan, pieces),
        turned=fall.turned,
        random=random,
        alone=removal.value(set(plan.free) - set(plan.named)),
        empty=removal.value(plan.free),
        single=single,
        curve=trust.curve_of(removal, plan),
        checks=sentences.checks(fall, random, single, agreement, gaps, words, asked.foil_name),
        but=sentences.but(fall, *_against_foil(removal, plan, pieces, asked), raising) if fall.k else "",
        without_each=fall.each,
    )


def _against_foil(
    removal: trust.Removal, plan: trust.Plan, pieces: Sequence[Piece], asked: Asked
) -> tuple[tuple[str, str] | None, str]:
    """The answer and its foil, and what the model says without the named words where that is neither; None without a foil."""
    if asked.foil_name is None:
        return None, ""
    says = prediction_without(removal, plan, pieces)
    return (asked.name, asked.foil_name), "" if says in (asked.name, asked.foil_name) else says


def prediction_without(removal: trust.Removal, plan: trust.Plan, pieces: Sequence[Piece]) -> str:
    """What the model says without the named words."""
    answer, trace = removal.known[frozenset(plan.named)], removal.trace
    if trace.model.task != "question-answering":
        return output_name(trace.model, answer.predicted[0])
    if answer.is_target:
        return span_text(trace, pieces, *removal.target.ids)
    start, end = answer.predicted
    text = trace.model.tokenizer.decode(list(answer.input_ids[start : end + 1]), skip_special_tokens=True).strip()
    return str(text) or "no answer"
