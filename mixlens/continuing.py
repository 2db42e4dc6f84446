"""A text that a model went on with: what it is at every step, and its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .model.words import group_words
from .types import Trace, Words

if TYPE_CHECKING:
    from .model.model import Model


def continued(model: Model, text: Any, whole: Trace) -> tuple[Callable[[int], str | None], Callable[[int], Words] | None]:
    """Of a text that a model went on with: the text before a place, and its words; None where words are not known.

    The characters of a written token are those by which the text grows when the token is decoded after all before it.
    """
    if model.tokenizer is None:
        return (lambda place: whole.text), None
    given = model.encode(text)
    begin, last = len(given.input_ids), given.text if given.pair is None else given.pair
    tokenizer: Any = model.tokenizer

    def decoded(count: int) -> str:
        return str(tokenizer.decode(list(whole.input_ids[:count]), clean_up_tokenization_spaces=False))

    start = len(decoded(begin))
    ends = [len(decoded(count)) - start for count in range(begin, len(whole) + 1)]  # of the written text, token by token
    written = decoded(len(whole))[start:]

    def text_before(place: int) -> str | None:
        grown = written[: ends[place - begin]]
        return f"{last}{grown}" if given.pair is None else given.text

    if given.offsets is None or given.sequences is None:
        return text_before, None
    offsets, sequences = given.offsets, given.sequences
    base, sequence = len(last or ""), 0 if given.pair is None else 1

    def words_before(place: int) -> Words:
        grown = f"{last}{written[: ends[place - begin]]}"
        texts = (grown, None) if given.pair is None else (given.text, grown)
        spans = [(base + ends[i], base + ends[i + 1]) for i in range(place - begin)]
        added = [None if whole.special[begin + i] else sequence for i in range(place - begin)]
        return group_words(texts, [*offsets, *spans], [*sequences, *added], whole.tokens[:place])

    return text_before, words_before
