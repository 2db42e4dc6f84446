"""Notes: what a reader must know before the numbers, in the order in which they stand. Each is one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..base.parts import Number, Quote, Sentence, joined, said
from ..base.text import percent, points
from ..scoring.notices import JUDGED, MANY, no_mask, spelled, spelled_words
from .case import Case
from .rules import NO_EFFECT, state_of
from .telling import chance, measured_of, measures, quotes, them, these
from .value import Note, Why

MOST_LISTED = 5  # words in a note
SPECIAL = 0.5  # the part of all scores that special tokens hold, above which a note is given


def caution(name: str, *parts: str | Quote | Number | Sentence) -> Note:
    return Note(name, "caution", said(*parts))


def notes_of(case: Case, why: Why, left_out: Sequence[tuple[str, str]]) -> tuple[Note, ...]:
    return (*_of_text(case, why), *_of_scores(case, why), *_of_checks(why, left_out))


def _of_text(case: Case, why: Why) -> Iterator[Note]:
    """Cut; spelled out by the vocabulary; unknown; special tokens that stand in the text itself (the mask that is
    filled is meant); an answer that is a span; a text without a mask."""
    trace, model, tokenizer = case.trace, case.model, case.model.tokenizer
    if case.cut is not None:
        read = f"{case.cut:,} tokens and the model reads {len(trace):,}"
        yield caution("cut", f"The text was cut: it has {read}. What follows was not read.")
    token = getattr(tokenizer, "unk_token", None)
    (count, total), letters = spelled(trace, token), spelled_words(trace, token)
    named = [k for k in why.answer.for_ if why.words[k].tokens in letters]
    if total and count / total >= MANY:
        text = (
            f"The vocabulary of this model does not know {count} of the {total} {JUDGED}: they are cut into letters or "
            "are unknown, so the scores say little about words. Use a model that was trained on such texts."
        )
        yield Note("shredded", "fail", said(text))
    elif named:
        what = joined(quotes(why.words, named), last=" and ")
        yield caution(
            "shredded", "The vocabulary of this model does not know ", what, ": it reads letters there, not a word."
        )
    number = getattr(tokenizer, "unk_token_id", None)
    if number is not None and trace.words is not None:
        words = [text for text, places in trace.words if all(trace.input_ids[place] == number for place in places)]
        unknown = [Quote(word) for word in dict.fromkeys(words) if word != token]
        more = [f"{len(unknown) - MOST_LISTED:,} more"] if len(unknown) > MOST_LISTED else []
        if unknown:
            listed = joined([*unknown[:MOST_LISTED], *more], last=" and ")
            yield caution("unknown", "The model cannot read ", listed, f": it sees {token} there.")
    meant = tokenizer.mask_token if model.task == "masked-lm" and model.mask_id is not None else None
    texts = [text for text in (trace.text, trace.pair) if text]
    names = getattr(tokenizer, "all_special_tokens", ()) if texts else ()
    typed = [Quote(name) for name in names if name != meant and any(name in text for text in texts)]
    if typed:
        listed, kind = joined(typed, last=" and "), "a special token" if len(typed) == 1 else "special tokens"
        yield caution("typed_special", "The text has ", listed, f" in it: the model reads {kind} there, not words.")
    if model.task == "question-answering" and len(case.own) > 1:
        text = "its words are explained together, by where it starts and where it ends, not one by one."
        yield caution("span", f"The answer is a span: {text}")
    if case.query is not None and no_mask(model, trace):
        yield caution(
            "no_mask", f"There is no {tokenizer.mask_token} in the text: the model sees the word that it predicts here."
        )


def _of_scores(case: Case, why: Why) -> Iterator[Note]:
    """Held by special tokens; by a mark, more than by every word that is named; by the answer's own words; without a
    sign."""
    words, reasons = why.words, [why.words[k] for k in why.answer.for_]
    if why.special_share > SPECIAL:
        held = Number(percent(why.special_share))
        yield caution("special", "Special tokens hold ", held, " of all scores; the shares are of the rest.")
    marks = [k for k, word in enumerate(words) if word.mark]
    mark = max(marks, key=lambda k: abs(words[k].share), default=None)
    strongest = max((abs(word.share) for word in reasons), default=0.0)
    if mark is not None and abs(words[mark].share) > strongest and any(not word.mark for word in reasons):
        score = Number(percent(words[mark].share, sign=True))
        quote = Quote(words[mark].text, word=mark)
        yield caution(
            "marks", "The mark ", quote, " scores more than any word named (", score, "); marks are not named."
        )
    own = sum(abs(word.share) for word in words if set(word.tokens) & case.own)
    if why.task == "question-answering" and own > SPECIAL:
        held = Number(percent(own))
        yield caution(
            "own_words", "The answer’s own words hold ", held, " of the evidence; they stay when words are taken out."
        )
    if not why.method.signed:
        yield caution(
            "no_sign", "This method has no sign: it says how much a word counted, not whether for or against."
        )


def _of_checks(why: Why, left_out: Sequence[tuple[str, str]]) -> Iterator[Note]:
    """Words whose removal does nothing, or raises the answer; methods that disagree, or could not be asked."""
    m, trust, named = measured_of(why), why.trust, these(why.trust.k)
    if m.together and trust.single is not None:
        word = quotes(why.words, [trust.single.word])[0]
        both = said("without ", named, " the ", measures(why), " is ", chance(m.without))
        one = said("without ", word, " alone it is ", chance(trust.single.without))
        yield caution("together", "The words act together: ", both, ", ", one, ".")
    elif m.k and abs(m.size) < NO_EFFECT:
        stays = said(f"Without {named} the ", measures(why), " stays (", Number(points(-m.size)), ")")
        yield Note("no_effect", "fail", said(stays, f": the model does not need {them(m.k)}."))
    if m.raising:
        words = quotes(why.words, [why.answer.for_[place] for place in m.raising])
        alone = [
            said("without ", word, " alone ", chance(m.each[at])) for word, at in zip(words, m.raising, strict=True)
        ]
        scores = "its score" if len(words) == 1 else "their scores"
        told = said(measures(why).capital(), ": ", chance(m.whole), ", but ", joined(alone, last=" and "))
        yield caution("raises", told, f". That contradicts {scores}.")
    if m.k and state_of("agreement", m) == "fail":
        yield caution("disagree", f"The methods disagree: no other of the {m.of} puts {named} first.")
    if left_out:
        methods = joined([said(f"{name} ({reason.rstrip('.')})") for name, reason in left_out], last=" and ")
        yield caution("left_out", "Not asked: ", methods, ".")
