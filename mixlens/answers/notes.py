"""Notes: what a reader must know before the numbers. Each is one sentence, in the same place as the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..base.text import listed, percent, points, probability, sentence_case
from ..model.model import Model
from ..scoring.notices import JUDGED, MANY, no_mask, spelled, spelled_words
from ..types import Trace
from .asked import Asked
from .choice import MOST_LISTED, NO_EFFECT, SPECIAL
from .rules import Fall, act_together, agreement_state, raising
from .sentences import called, quoted, them, these
from .value import Agreement, Note, Single, Trust, Word

SPAN = "The answer is a span: its words are explained together, by where it starts and where it ends, not one by one."


def notes_of_text(trace: Trace, asked: Asked, cut: int | None, reasons: Sequence[Word]) -> Iterator[Note]:
    """Of the text: cut, spelled out by the vocabulary, without a mask. Of an answer: a span.
    `reasons`: the words that are named."""
    model = trace.model
    if cut is not None:
        yield Note(
            "cut",
            "caution",
            f"The text was cut: it has {cut:,} tokens and the model reads {len(trace):,}. What follows was not read.",
        )
    yield from _shredded(model, trace, reasons)
    yield from _unknown(model, trace)
    yield from _typed(model, trace)
    if model.task == "question-answering" and len(asked.own) > 1:
        yield Note("span", "caution", SPAN)
    if asked.query is not None and no_mask(model, trace):
        mask = model.tokenizer.mask_token
        yield Note(
            "no_mask", "caution", f"There is no {mask} in the text: the model sees the word that it predicts here."
        )


def _shredded(model: Model, trace: Trace, reasons: Sequence[Word]) -> Iterator[Note]:
    """Where the vocabulary does not know many of the words, or one that is named."""
    unknown = getattr(model.tokenizer, "unk_token", None)
    count, total = spelled(trace, unknown)
    named = [word.text for word in reasons if word.tokens in spelled_words(trace, unknown)]
    if total and count / total >= MANY:
        text = (
            f"The vocabulary of this model does not know {count} of the {total} {JUDGED}: they are cut into letters or are "
            "unknown, so the scores say little about words. Use a model that was trained on such texts."
        )
        yield Note("shredded", "fail", text)
    elif named:
        yield Note(
            "shredded",
            "caution",
            f"The vocabulary of this model does not know {listed(named)}: it reads letters there, not a word.",
        )


def _unknown(model: Model, trace: Trace) -> Iterator[Note]:
    """Words that are the unknown token and nothing else: the model sees that a word stands there, not which."""
    number = getattr(model.tokenizer, "unk_token_id", None)
    if number is None or trace.words is None:
        return
    words = [text for text, places in trace.words if all(trace.input_ids[place] == number for place in places)]
    unknown = [quoted(word) for word in dict.fromkeys(words) if word != model.tokenizer.unk_token]
    if unknown:
        more = [f"{len(unknown) - MOST_LISTED:,} more"] if len(unknown) > MOST_LISTED else []
        names = listed([*unknown[:MOST_LISTED], *more])
        yield Note("unknown", "caution", f"The model cannot read {names}: it sees {model.tokenizer.unk_token} there.")


def _typed(model: Model, trace: Trace) -> Iterator[Note]:
    """Special tokens that stand in the text itself; the mask of a model that fills it is meant."""
    meant = model.tokenizer.mask_token if model.task == "masked-lm" and model.mask_id is not None else None
    texts = [text for text in (trace.text, trace.pair) if text]
    names = getattr(model.tokenizer, "all_special_tokens", ()) if texts else ()
    typed = [quoted(name) for name in names if name != meant and any(name in text for text in texts)]
    if typed:
        what = "a special token" if len(typed) == 1 else "special tokens"
        yield Note(
            "typed_special", "caution", f"The text has {listed(typed)} in it: the model reads {what} there, not words."
        )


def notes_of_scores(
    words: Sequence[Word], reasons: Sequence[int], special_share: float, signed: bool, own: float
) -> Iterator[Note]:
    """Of the scores: held by special tokens, by marks, by the answer's own words, without a sign."""
    if special_share > SPECIAL:
        yield Note(
            "special",
            "caution",
            f"Special tokens hold {percent(special_share)} of all scores; the shares are of the rest.",
        )
    yield from _note_of_marks(words, [words[place] for place in reasons])
    if own > SPECIAL:
        yield Note(
            "own_words",
            "caution",
            f"The answer’s own words hold {percent(own)} of the evidence; they stay when words are taken out.",
        )
    if not signed:
        yield Note(
            "no_sign",
            "caution",
            "This method has no sign: it says how much a word counted, not whether for or against.",
        )


def _note_of_marks(words: Sequence[Word], reasons: Sequence[Word]) -> Iterator[Note]:
    """A mark that scores more than every word that is named; where marks themselves are named nothing is said."""
    mark = _strongest_mark(words)
    strongest = max((abs(word.share) for word in reasons), default=0.0)
    if mark is not None and abs(mark.share) > strongest and any(not word.mark for word in reasons):
        score = percent(mark.share, sign=True)
        yield Note(
            "marks",
            "caution",
            f"The mark {quoted(mark.text)} scores more than any word named ({score}); marks are not named.",
        )


def _strongest_mark(words: Sequence[Word]) -> Word | None:
    return max(
        (word for word in words if word.mark and not word.special), key=lambda word: abs(word.share), default=None
    )


def notes_of_trust(
    trust: Trust,
    fall: Fall,
    agreement: Agreement,
    left_out: Sequence[tuple[str, str]],
    words: Sequence[Word],
    reasons: Sequence[int] = (),
) -> Iterator[Note]:
    """Of the checks: words whose removal does nothing, or raises the answer, methods that disagree, methods that could not be
    asked. `reasons`: the words that are named."""
    if act_together(fall) and trust.single is not None:
        yield Note("together", "caution", _together(trust, trust.single, words))
    elif trust.k and abs(fall.size) < NO_EFFECT:
        stays = f"Without {these(trust.k)} the {trust.measures} stays ({points(-fall.size)})"
        yield Note("no_effect", "fail", f"{stays}: the model does not need {them(trust.k)}.")
    if raising(fall):
        yield Note("raises", "caution", _raised(trust, fall, words, reasons))
    if trust.k and agreement_state(agreement.same, agreement.of) == "fail":
        yield Note(
            "disagree", "caution", f"The methods disagree: no other of the {agreement.of} puts {these(trust.k)} first."
        )
    if left_out:
        methods = listed([f"{name} ({reason.rstrip('.')})" for name, reason in left_out])
        yield Note("left_out", "caution", f"Not asked: {methods}.")


def _raised(trust: Trust, fall: Fall, words: Sequence[Word], reasons: Sequence[int]) -> str:
    """Named words that contradict their scores, with the numbers."""
    places = raising(fall)
    names = called(words, [reasons[place] for place in places])
    alone = [f"without {name} alone {probability(fall.each[place])}" for name, place in zip(names, places, strict=True)]
    scores = "its score" if len(names) == 1 else "their scores"
    return (
        f"{sentence_case(trust.measures)}: {probability(fall.whole)}, but {listed(alone)}. That contradicts {scores}."
    )


def _together(trust: Trust, single: Single, words: Sequence[Word]) -> str:
    (word,) = called(words, [single.word])
    alone = f"without {word} alone it is {probability(single.without)}"
    return f"The words act together: without {these(trust.k)} the {trust.measures} is {probability(trust.without)}, {alone}."
