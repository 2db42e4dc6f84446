"""Notes: what a reader must know before the numbers. Each is one sentence, in the same place as the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.model import Model
from ..notices import MANY, no_mask, spelled, spelled_words
from ..types import Trace
from ..wording import listed, percent, points
from .asked import Asked
from .choice import NO_EFFECT, SPECIAL
from .rules import agreement_state
from .sentences import quoted, these
from .value import Agreement, Note, Trust, Word


def notes_of_text(trace: Trace, asked: Asked, cut: int | None, reasons: Sequence[Word]) -> Iterator[Note]:
    """Of the text: cut, spelled out by the vocabulary, without a mask. `reasons`: the words that are named."""
    model = trace.model
    if cut is not None:
        yield Note(
            "cut",
            "caution",
            f"The text was cut: it has {cut:,} tokens and the model reads {len(trace):,}. What follows was not read.",
        )
    yield from _shredded(model, trace, reasons)
    if asked.query is not None and no_mask(model, trace):
        mask = model.tokenizer.mask_token
        yield Note("no_mask", "caution", f"There is no {mask} in the text: the model sees the word that it predicts here.")


def _shredded(model: Model, trace: Trace, reasons: Sequence[Word]) -> Iterator[Note]:
    """Where the vocabulary does not know many of the words, or one that is named."""
    unknown = getattr(model.tokenizer, "unk_token", None)
    count, total = spelled(trace, unknown)
    named = [word.text for word in reasons if word.tokens in spelled_words(trace, unknown)]
    if total and count / total >= MANY:
        text = (
            f"The vocabulary of this model does not know {count} of the {total} words: they are cut into letters or are unknown, "
            "so the scores say little about words. Use a model that was trained on such texts."
        )
        yield Note("shredded", "fail", text)
    elif named:
        yield Note(
            "shredded",
            "caution",
            f"The vocabulary of this model does not know {listed(named)}: it reads letters there, not a word.",
        )


def notes_of_scores(words: Sequence[Word], free: Sequence[int], special_share: float, signed: bool, own: float) -> Iterator[Note]:
    """Of the scores: held by special tokens, by marks, by the answer's own words, without a sign."""
    if special_share > SPECIAL:
        yield Note(
            "special", "caution", f"Special tokens hold {percent(special_share)} of all scores; the shares are of the rest."
        )
    yield from _note_of_marks(words, [words[place] for place in free])
    if own > SPECIAL:
        yield Note(
            "own_words",
            "caution",
            f"The answer’s own words hold {percent(own)} of the evidence; they stay when words are taken out.",
        )
    if not signed:
        yield Note("no_sign", "caution", "This method has no sign: it says how much a word counted, not whether for or against.")


def _note_of_marks(words: Sequence[Word], free: Sequence[Word]) -> Iterator[Note]:
    """A mark that scores more than every word that may be taken out. `free`: these words; of marks alone nothing is said."""
    mark = _strongest_mark(words)
    strongest = max((abs(word.share) for word in free), default=0.0)
    if mark is not None and abs(mark.share) > strongest and any(not word.mark for word in free):
        yield Note(
            "marks",
            "caution",
            f"The mark {quoted(mark.text)} scores more than any word ({percent(mark.share, sign=True)}); marks are not named.",
        )


def _strongest_mark(words: Sequence[Word]) -> Word | None:
    return max((word for word in words if word.mark and not word.special), key=lambda word: abs(word.share), default=None)


def notes_of_trust(trust: Trust, agreement: Agreement, left_out: Sequence[tuple[str, str]]) -> Iterator[Note]:
    """Of the checks: words whose removal does nothing, methods that disagree, methods that could not be asked."""
    change = trust.without - trust.whole
    if trust.k and abs(change) < NO_EFFECT:
        yield Note(
            "no_effect", "fail", f"Without {these(trust.k)} the answer stays ({points(change)}): the model does not need them."
        )
    if trust.k and agreement_state(agreement.same, agreement.of) == "fail":
        yield Note("disagree", "caution", f"The methods disagree: no other of the {agreement.of} puts {these(trust.k)} first.")
    if left_out:
        reasons = listed([f"{name} ({reason.rstrip('.')})" for name, reason in left_out])
        yield Note("left_out", "caution", f"Not asked: {reasons}.")
