"""Texts that are longer than a model reads, cut to its length as its tokenizer cuts them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError, TokenLimitError
from ..types import Example

if TYPE_CHECKING:
    from ..model.model import Model

SPANS = ("rationale", "pos", "attractors")  # fields of `info` that hold spans of the text


def truncated(example: Example, model: Model, limit: int | None = None) -> Example:
    """The example with its text, and its pair, cut to `limit` tokens (by default as many as the model reads).

    A pair is cut at its longer side, the paragraph of a question alone. Spans behind the cut are dropped. `info["truncated"]`
    is the number of tokens that the whole had. An example that fits is returned as it is.
    """
    most, whole = limit or model.max_tokens, model.tokenizer(example.text, example.pair, verbose=False)["input_ids"]
    if most is None or len(whole) <= most:
        return example
    if not getattr(model.tokenizer, "is_fast", False):
        raise InputError(
            f"the tokenizer of {model.name!r} does not tell which characters a token has: texts cannot be cut."
        )
    cut: dict[str, Any] = {
        "truncation": "only_second" if model.task == "question-answering" else "longest_first",
        "max_length": most,
    }
    encoded = model.tokenizer(example.text, example.pair, verbose=False, return_offsets_mapping=True, **cut)
    ends = {0: 0, 1: 0}  # the last character that is left of the text and of the pair
    for (_, end), side in zip(encoded["offset_mapping"], encoded.sequence_ids(0), strict=True):
        if side is not None:
            ends[side] = max(ends[side], end)

    def within(spans: Any, side: int = 0) -> tuple[Any, ...]:
        return tuple(span for span in spans if span[1] <= ends[side])

    info = {**example.info, "truncated": len(whole)}
    info |= {name: within(info[name]) for name in SPANS if name in info}
    pair = None if example.pair is None else example.pair[: ends[1]]
    if "answers" in info and pair is not None:
        info["answers"] = within(info["answers"], 1)
    return replace(example, text=example.text[: ends[0]], pair=pair, cues=within(example.cues), info=info)


def naming_option(error: TokenLimitError) -> TokenLimitError:
    """The refusal of a text that is too long, with the option that cuts it."""
    return TokenLimitError(f"{str(error).removesuffix('.')}, or let it be cut: --truncate (truncate=True).")
