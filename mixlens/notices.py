"""What a reader must know before the numbers: nothing is predicted here, or the vocabulary does not know the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .types import Words

SHORT = 1.5  # characters a piece, on average: a word that is cut into pieces this short is spelled, not read
LETTERS = 3  # words with fewer letters say nothing about a vocabulary
MANY = 0.3  # the share of such words from which on it is said
ENOUGH = 20  # words of a corpus by which its model can be judged
GAP = 0.01  # the share of what is explained that scores may miss before it is said


class Read(Protocol):
    """A text as a model reads it: a Trace, or an example that is encoded."""

    @property
    def tokens(self) -> tuple[str, ...]: ...
    @property
    def input_ids(self) -> tuple[int, ...]: ...
    @property
    def words(self) -> Words | None: ...


def no_mask(model: Any, read: Read) -> bool:
    """Does a masked language model have no mask to predict?"""
    return model.task == "masked-lm" and model.mask_id is not None and model.mask_id not in read.input_ids


def spelled(read: Read, unknown: str | None) -> tuple[int, int]:
    """How many words are cut into single letters or not known at all, and how many words there are."""
    found = total = 0
    for word, places in read.words or ():
        if sum(char.isalpha() for char in word) < LETTERS or "[" in word or "<" in word:
            continue
        total += 1
        pieces = [read.tokens[i] for i in places]
        found += len(word) / len(pieces) < SHORT or (unknown is not None and unknown in pieces)
    return found, total


def notices_of(model: Any, read: Read, *, query: int | str | None) -> list[str]:
    """One sentence for each thing that makes the numbers of this text say little. `query`: the position that was asked for."""
    told = []
    mask = getattr(model.tokenizer, "mask_token", None)
    if query is None and no_mask(model, read):
        told.append(
            f"the text has no {mask or 'mask token'}, so this masked language model predicts nothing here; "
            f"{read.tokens[0]} (position 0) is explained instead. Put {mask or 'the mask token'} where a word is to be "
            "predicted, or name a position (--query, in Python query=)."
        )
    found, total = spelled(read, getattr(model.tokenizer, "unk_token", None))
    if total and found / total >= MANY:
        told.append(_spelled(model.name, found, total, "words of this text"))
    return told


def _spelled(name: str, found: int, total: int, what: str) -> str:
    return (
        f"the vocabulary of {name!r} does not know {found} of the {total} {what}: they are cut into letters or are unknown, "
        "so the scores say little about words. Use a model that was trained on such texts (--model)."
    )


def notices_of_corpus(model: Any, texts: Sequence[Read], *, query: Any, targets: bool) -> list[str]:
    """The same, of the first rows of a corpus. `targets`: a method explains a prediction, so a row without one is refused."""
    told: list[str] = []
    if not texts:
        return told
    without = sum(no_mask(model, read) for read in texts)
    if query is None and not targets and without:
        mask = getattr(model.tokenizer, "mask_token", None) or "mask token"
        told.append(
            f"{without} of the first {len(texts)} rows have no {mask}, so this masked language model predicts nothing there; "
            f"the first token is explained. Name a position (--query, in Python query=), or use a classifier."
        )
    unknown = getattr(model.tokenizer, "unk_token", None)
    counts = [spelled(read, unknown) for read in texts]
    found, total = (sum(count[side] for count in counts) for side in (0, 1))
    if total >= ENOUGH and found / total >= MANY:
        told.append(_spelled(model.name, found, total, f"words of the first {len(texts)} rows"))
    return told


def completeness(info: Mapping[str, Any]) -> float | None:
    """How far the scores are from adding up to what they explain, relative to it; None where a method promises no sum."""
    gap = (info.get("completeness") or {}).get("relative_gap")
    return None if gap is None else float(gap)


def noticed(info: Mapping[str, Any]) -> list[str]:
    """What was to be said about the text before its numbers (`.info["notices"]`)."""
    found = info.get("notices")
    return [str(one) for one in found] if isinstance(found, list | tuple) else []


def off_sum(info: Mapping[str, Any]) -> list[str]:
    """One sentence where scores that promise a sum are more than a little off it."""
    gap = completeness(info)
    if gap is None or gap <= GAP:
        return []
    one = info["completeness"]
    return [
        f"the scores add up to {one['sum']:.4g} and what they explain is {one['expected']:.4g}: {gap:.1%} apart. "
        "Trust them less than usual; where the method has steps, more steps bring them closer."
    ]


def notices_in(trace: Any, query: int | str | None) -> dict[str, Any]:
    """`.info["notices"]` of a result, where there is something to say before its numbers."""
    told = notices_of(trace.model, trace, query=query)
    return {"notices": told} if told else {}
