"""The words of a traced text: their characters, what stands between them, and which may be taken out."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

from ..model.encode import Encoded
from ..types import Trace

OTHER = ""  # the text of tokens that a tokenizer added


@dataclass(frozen=True)
class Piece:
    """One word of a text before it has a score."""

    text: str
    before: str
    segment: str
    special: bool
    tokens: tuple[int, ...]
    begin: int = 0  # characters of its text
    end: int = 0

    @property
    def mark(self) -> bool:
        """Punctuation alone."""
        return bool(self.text) and all(map(_is_mark, self.text))


def _is_mark(char: str) -> bool:
    kind = unicodedata.category(char)
    return kind.startswith("P") or (kind.startswith("S") and char.isascii())


def pieces_of(trace: Trace) -> tuple[list[Piece], str]:
    """The words of a text in their order, and the unit: "word", or "token" where words are not known."""
    encoded = _encoded(trace)
    if encoded is None or encoded.offsets is None or trace.words is None:
        return [_token(trace, place) for place in range(len(trace))], "token"
    return _with_gaps(trace, encoded), "word"


def _encoded(trace: Trace) -> Encoded | None:
    """The text of a trace as it was read; None where a trace was made of ids."""
    if trace.text is None:
        return None
    encoded = trace.model.encode(trace.text if trace.pair is None else (trace.text, trace.pair))
    return encoded if encoded.input_ids == trace.input_ids else None


def _token(trace: Trace, place: int) -> Piece:
    return Piece(trace.tokens[place], " " if place else "", "text", trace.special[place], (place,))


def _with_gaps(trace: Trace, encoded: Encoded) -> list[Piece]:
    """Each word with the characters between the word before it and itself."""
    texts, ends = [trace.text or OTHER, trace.pair or OTHER], [0, 0]
    pieces: list[Piece] = []
    for surface, places in trace.words or ():
        special = all(trace.special[place] for place in places)
        source = None if encoded.sequences is None else encoded.sequences[places[0]]
        if source is None:
            pieces.append(Piece(surface, OTHER, "text", special, places))
            continue
        begin, end = _characters(texts[source], encoded, places)
        before = texts[source][ends[source] : begin]
        pieces.append(Piece(surface, before, ("text", "pair")[source], special, places, begin, end))
        ends[source] = max(ends[source], end)
    return pieces


def _characters(text: str, encoded: Encoded, places: Sequence[int]) -> tuple[int, int]:
    """Where a word begins and ends; the space before it, which some tokenizers count as part of a token, is left out."""
    assert encoded.offsets is not None
    start, stop = encoded.offsets[places[0]]
    begin = stop - len(text[start:stop].lstrip())
    return begin, max(encoded.offsets[place][1] for place in places)


def removable(pieces: Sequence[Piece], staying: Collection[int]) -> list[int]:
    """The indices of words that may be taken out: no special token, no token that stays, no mark unless there is nothing else."""
    free = [i for i, piece in enumerate(pieces) if not piece.special and not set(piece.tokens) & set(staying)]
    words = [i for i in free if not pieces[i].mark]
    return words or free


def positions_of(pieces: Sequence[Piece], chosen: Collection[int]) -> list[int]:
    """The positions of the tokens of the chosen words."""
    return sorted(chain.from_iterable(pieces[i].tokens for i in chosen))
