"""A text that a model went on with: the text and its words before every token that the model wrote."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from ..model.encode import Encoded
from ..model.model import Model
from ..model.words import JOINING, WORD, group_words
from ..types import Trace, Words

PART = "\ufffd"  # what a part of a character is decoded to


class Continuation:
    """A prompt and what a model wrote after it. `place` is the position of a token that the model wrote.

    The characters of a written token are those by which the text grows when the token is decoded after all before it.
    """

    def __init__(self, model: Model, prompt: Encoded, whole: Trace):
        self.prompt, self.whole = prompt, whole
        self.begin = len(prompt.input_ids)
        self.tokenizer: Any = model.tokenizer
        self.paired = prompt.pair is not None  # then the model goes on with the pair, not with the text

    @property
    def last(self) -> str:
        """The text that the model went on with."""
        return (self.prompt.pair if self.paired else self.prompt.text) or ""

    def _decoded(self, count: int) -> str:
        return self._text_of_ids(self.whole.input_ids[:count])

    def _text_of_ids(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def goes_on_with(self, *tokens: int) -> bool:
        """Whether these tokens, written next, go on with the last word of the text: a word of the longer text has
        characters of both. A token that changes the last character goes on with it too: the text ended in a part of a
        character."""
        if self.tokenizer is None:
            return False
        ids = self.whole.input_ids
        text, longer = self._text_of_ids(ids), self._text_of_ids((*ids, *tokens))
        spans = (match.span() for match in WORD.finditer(longer))
        return not longer.startswith(text) or any(start < len(text) < stop for start, stop in spans)

    def may_join(self, *tokens: int) -> bool:
        """Whether these tokens, written next, are no more than a mark that makes one word with letters on both of its
        sides (it's, red-hot), or a part of a character: the token after them decides."""
        if self.tokenizer is None:
            return False
        ids = self.whole.input_ids
        text, longer = self._text_of_ids(ids), self._text_of_ids((*ids, *tokens))
        return longer.startswith(text) and longer[len(text) :].rstrip(PART) in ("", *JOINING)

    @cached_property
    def ends(self) -> list[int]:
        """Where each written token ends, in characters of the written text; the first entry is its beginning, 0."""
        start = len(self._decoded(self.begin))
        return [len(self._decoded(count)) - start for count in range(self.begin, len(self.whole) + 1)]

    @cached_property
    def written(self) -> str:
        return self._decoded(len(self.whole))[len(self._decoded(self.begin)) :]

    def _grown(self, place: int) -> str:
        return f"{self.last}{self.written[: self.ends[place - self.begin]]}"

    def text_before(self, place: int) -> str | None:
        """The text before a place; of a text and its pair, the first."""
        if self.tokenizer is None:
            return self.whole.text
        return self.prompt.text if self.paired else self._grown(place)

    def words_before(self, place: int) -> Words | None:
        """The words before a place; None where the tokenizer does not tell the characters of a token."""
        offsets, sequences = self.prompt.offsets, self.prompt.sequences
        if self.tokenizer is None or offsets is None or sequences is None:
            return None
        texts = (self.prompt.text, self._grown(place)) if self.paired else (self._grown(place), None)
        count = place - self.begin
        spans, added = self._spans(count), self._sequences(count)
        return group_words(texts, [*offsets, *spans], [*sequences, *added], self.whole.tokens[:place])

    def text_of(self, sequence: int) -> str:
        """The text (0) or its pair (1), with what was written behind it."""
        grown = self._grown(len(self.whole))
        return grown if bool(sequence) == self.paired else self.prompt.text or ""

    def spans(self) -> list[tuple[int | None, int, int]]:
        """Of each token the text it belongs to, its first character there and the one behind its last."""
        offsets, sequences, count = self.prompt.offsets or (), self.prompt.sequences or (), len(self.whole) - self.begin
        places = zip([*sequences, *self._sequences(count)], [*offsets, *self._spans(count)], strict=True)
        return [(sequence, start, stop) for sequence, (start, stop) in places]

    def _spans(self, count: int) -> list[tuple[int, int]]:
        """The characters of the first `count` written tokens, in the text that the model went on with."""
        ends = [len(self.last) + end for end in self.ends[: count + 1]]
        return list(pairwise(ends))

    def _sequences(self, count: int) -> list[int | None]:
        """The text that each of the first `count` written tokens belongs to; None for special ones."""
        special = self.whole.special[self.begin : self.begin + count]
        return [None if one else int(self.paired) for one in special]
