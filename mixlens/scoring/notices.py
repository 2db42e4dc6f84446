"""Notices: sentences a reader must know before the numbers, such as that nothing is predicted or that words are
unknown."""

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


def judged_words(read: Read, unknown: str | None) -> list[tuple[tuple[int, ...], bool]]:
    """The positions of each word with enough letters to be judged by, and that is no special token such as [CLS] or
    <s>; and whether it is cut into letters or holds the token `unknown`."""
    found = []
    for word, places in read.words or ():
        if sum(char.isalpha() for char in word) >= LETTERS and "[" not in word and "<" not in word:
            is_cut = len(word) / len(places) < SHORT or any(read.tokens[i] == unknown for i in places)
            found.append((places, is_cut))
    return found


def spelled(read: Read, unknown: str | None) -> tuple[int, int]:
    """Of the words that are judged: how many are cut into letters or hold the token `unknown`, and how many there
    are."""
    words = judged_words(read, unknown)
    return sum(is_cut for _, is_cut in words), len(words)


def spelled_words(read: Read, unknown: str | None) -> set[tuple[int, ...]]:
    """The positions of each word that is cut into letters or holds the token `unknown`."""
    return {places for places, is_cut in judged_words(read, unknown) if is_cut}


def notices_of(model: Any, read: Read, *, query: int | str | None) -> list[str]:
    """One sentence for each fact that makes the numbers of this text say little. `query`: the position a user named,
    or None."""
    notices = []
    whole, logits = getattr(read, "info", {}).get("truncated"), getattr(read, "logits", None)
    if whole is not None:
        notices.append(
            f"the text was cut: it has {whole:,} tokens and the model reads {len(read.tokens):,}. What follows was "
            "not read."
        )
    if query is None and no_mask(model, read):
        mask = getattr(model.tokenizer, "mask_token", None)
        notices.append(
            f"the text has no {mask or 'mask token'}, so this masked language model predicts nothing here; "
            f"{read.tokens[0]} (position 0) is explained instead. Put {mask or 'the mask token'} where a word is to be "
            "predicted, or name a position (--query, in Python query=)."
        )
    if (
        model.task == "classification" and logits is not None and len(logits) == 1
    ):  # one that is only encoded has no logits
        notices.append(f"this model gives one number and no class: {float(logits[0]):.4g} for this text.")
    count, total = spelled(read, getattr(model.tokenizer, "unk_token", None))
    return notices + _vocabulary_notice(model.name, count, total, "this text")


def notices_of_corpus(model: Any, texts: Sequence[Read], *, query: Any, targets: bool) -> list[str]:
    """The notices for the first rows of a corpus. `targets`: a method explains a prediction, so a row without one is
    refused."""
    notices = []
    without = 0 if query is not None or targets else sum(no_mask(model, read) for read in texts)
    if without:
        mask = getattr(model.tokenizer, "mask_token", None) or "mask token"
        notices.append(
            f"{without} of the first {len(texts)} rows have no {mask}, so this masked language model predicts "
            "nothing there; "
            f"the first token is explained. Name a position (--query, in Python query=), or use a classifier."
        )
    unknown = getattr(model.tokenizer, "unk_token", None)
    count, total = map(sum, zip((0, 0), *(spelled(read, unknown) for read in texts), strict=True))
    known = [] if total < ENOUGH else _vocabulary_notice(model.name, count, total, f"the first {len(texts)} rows")
    return notices + known


def _vocabulary_notice(name: str, count: int, total: int, where: str) -> list[str]:
    """A notice where many of the words are not in the vocabulary."""
    if not total or count / total < MANY:
        return []
    return [
        f"the vocabulary of {name!r} does not know {count} of the {total} {JUDGED} in {where}: they are cut into "
        "letters or are "
        "unknown, so the scores say little about words. Use a model that was trained on such texts (--model)."
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
