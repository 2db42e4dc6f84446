"""Notices: sentences a reader must know before the numbers, such as that nothing is predicted or that words are unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..types import Words
from .completeness import advice

SHORT = 1.5  # characters: a word whose pieces are shorter on average is spelled out, letter by letter
LETTERS = 3  # words with fewer letters tell nothing about a vocabulary
JUDGED = "words of three letters or more"  # LETTERS, in a sentence
MANY = 0.3  # the share of spelled words above which a notice is given
ENOUGH = 20  # words of a corpus, below which its vocabulary is not judged
GAP = 0.01  # the relative distance of a sum from what it should be, above which a notice is given


class Read(Protocol):
    """A text as a model reads it: a Trace, or an example that is encoded."""

    @property
    def tokens(self) -> tuple[str, ...]: ...
    @property
    def input_ids(self) -> tuple[int, ...]: ...
    @property
    def words(self) -> Words | None: ...


def no_mask(model: Any, read: Read) -> bool:
    """Whether the model predicts masked words and the text has no mask."""
    return model.task == "masked-lm" and model.mask_id is not None and model.mask_id not in read.input_ids


def spelled(read: Read, unknown: str | None) -> tuple[int, int]:
    """Of the words with LETTERS letters or more: how many are cut into letters or hold the token `unknown`, and how many there
    are."""
    words = [(word, [read.tokens[i] for i in positions]) for word, positions in read.words or () if _is_word(word)]
    return sum(_is_spelled(word, pieces, unknown) for word, pieces in words), len(words)


def spelled_words(read: Read, unknown: str | None) -> set[tuple[int, ...]]:
    """The positions of each word that is cut into letters or holds the token `unknown`."""
    words = [(word, positions) for word, positions in read.words or () if _is_word(word)]
    return {positions for word, positions in words if _is_spelled(word, [read.tokens[i] for i in positions], unknown)}


def _is_spelled(word: str, pieces: Sequence[str], unknown: str | None) -> bool:
    return len(word) / len(pieces) < SHORT or unknown in pieces


def _is_word(word: str) -> bool:
    """Whether a word has enough letters to be judged by, and is no special token such as [CLS] or <s>."""
    return sum(char.isalpha() for char in word) >= LETTERS and "[" not in word and "<" not in word


def notices_of(model: Any, read: Read, *, query: int | str | None) -> list[str]:
    """One sentence for each fact that makes the numbers of this text say little. `query`: the position a user named, or None."""
    notices = [_no_mask_notice(model, read)] if query is None and no_mask(model, read) else []
    count, total = spelled(read, getattr(model.tokenizer, "unk_token", None))
    return (
        _cut_notice(read)
        + notices
        + _number_notice(model, read)
        + _vocabulary_notice(model.name, count, total, "this text")
    )


def _cut_notice(read: Any) -> list[str]:
    """That a text was cut, where its trace says how many tokens it had."""
    whole = getattr(read, "info", {}).get("truncated")
    if whole is None:
        return []
    return [
        f"the text was cut: it has {whole:,} tokens and the model reads {len(read.tokens):,}. What follows was not read."
    ]


def _number_notice(model: Any, read: Any) -> list[str]:
    """The number itself, where a model gives one and no class."""
    logits = getattr(read, "logits", None)  # an example that is only encoded has none
    if model.task != "classification" or logits is None or len(logits) != 1:
        return []
    return [f"this model gives one number and no class: {float(logits[0]):.4g} for this text."]


def _no_mask_notice(model: Any, read: Read) -> str:
    mask = getattr(model.tokenizer, "mask_token", None)
    return (
        f"the text has no {mask or 'mask token'}, so this masked language model predicts nothing here; "
        f"{read.tokens[0]} (position 0) is explained instead. Put {mask or 'the mask token'} where a word is to be "
        "predicted, or name a position (--query, in Python query=)."
    )


def _vocabulary_notice(name: str, count: int, total: int, where: str) -> list[str]:
    """A notice where many of the words are not in the vocabulary."""
    if not total or count / total < MANY:
        return []
    return [
        f"the vocabulary of {name!r} does not know {count} of the {total} {JUDGED} in {where}: they are cut into letters or are "
        "unknown, so the scores say little about words. Use a model that was trained on such texts (--model)."
    ]


def notices_of_corpus(model: Any, texts: Sequence[Read], *, query: Any, targets: bool) -> list[str]:
    """The notices for the first rows of a corpus. `targets`: a method explains a prediction, so a row without one is refused."""
    notices = _mask_notice(model, texts) if query is None and not targets else []
    unknown = getattr(model.tokenizer, "unk_token", None)
    count, total = map(sum, zip((0, 0), *(spelled(read, unknown) for read in texts), strict=True))
    if total < ENOUGH:
        return notices
    return notices + _vocabulary_notice(model.name, count, total, f"the first {len(texts)} rows")


def _mask_notice(model: Any, texts: Sequence[Read]) -> list[str]:
    """A notice where rows have no mask to predict."""
    without = sum(no_mask(model, read) for read in texts)
    if not without:
        return []
    mask = getattr(model.tokenizer, "mask_token", None) or "mask token"
    return [
        f"{without} of the first {len(texts)} rows have no {mask}, so this masked language model predicts nothing there; "
        f"the first token is explained. Name a position (--query, in Python query=), or use a classifier."
    ]


def completeness(info: Mapping[str, Any]) -> float | None:
    """The relative gap between the sum of the scores and what they explain; None where the method promises no sum."""
    gap = (info.get("completeness") or {}).get("relative_gap")
    return None if gap is None else float(gap)


def adds_up(info: Mapping[str, Any]) -> bool:
    """Whether scores miss the sum that they promise by no more than GAP; a method that promises none misses nothing."""
    gap = completeness(info)
    return gap is None or gap <= GAP


def noticed(info: Mapping[str, Any]) -> list[str]:
    """The notices that a result carries (`.info["notices"]`)."""
    notices = info.get("notices")
    return [str(notice) for notice in notices] if isinstance(notices, list | tuple) else []


def off_sum(method: str, info: Mapping[str, Any]) -> list[str]:
    """A notice where the scores of a method that promise a sum miss it by more than GAP."""
    gap = completeness(info)
    if gap is None or adds_up(info):
        return []
    sums = info["completeness"]
    return [
        f"the scores add up to {sums['sum']:.4g} and what they explain is {sums['expected']:.4g}: {gap:.1%} apart. "
        f"Trust them less than usual.{advice(method, info)}"
    ]


def notices_in(trace: Any, query: int | str | None) -> dict[str, Any]:
    """{"notices": [...]} for `.info` of a result; empty where there is no notice."""
    notices = notices_of(trace.model, trace, query=query)
    return {"notices": notices} if notices else {}
