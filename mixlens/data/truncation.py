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
    most, whole = limit or model.max_tokens, len(_encoded(example, model, None)["input_ids"])
    if most is None or whole <= most:
        return example
    if not getattr(model.tokenizer, "is_fast", False):
        raise InputError(
            f"the tokenizer of {model.name!r} does not tell which characters a token has: texts cannot be cut."
        )
    offsets, sides = _offsets(example, model, most)
    text = example.text[: _end(offsets, sides, 0)]
    pair = None if example.pair is None else example.pair[: _end(offsets, sides, 1)]
    return _cut(example, text, pair, whole)


def naming_option(error: TokenLimitError) -> TokenLimitError:
    """The refusal of a text that is too long, with the option that cuts it."""
    return TokenLimitError(f"{str(error).removesuffix('.')}, or let it be cut: --truncate (truncate=True).")


def _encoded(example: Example, model: Model, limit: int | None) -> Any:
    """The text as the tokenizer reads it; of a question and a paragraph the paragraph alone is cut."""
    side = "only_second" if model.task == "question-answering" else "longest_first"
    cut: dict[str, Any] = (
        {} if limit is None else {"truncation": side, "max_length": limit, "return_offsets_mapping": True}
    )
    return model.tokenizer(example.text, example.pair, verbose=False, **cut)


def _offsets(example: Example, model: Model, limit: int) -> tuple[list[tuple[int, int]], list[int | None]]:
    """The characters of each token that is left, and to which of the two texts it belongs."""
    encoded = _encoded(example, model, limit)
    return encoded["offset_mapping"], encoded.sequence_ids(0)


def _end(offsets: list[tuple[int, int]], sides: list[int | None], side: int) -> int:
    return max((end for (_, end), owner in zip(offsets, sides, strict=True) if owner == side), default=0)


def _cut(example: Example, text: str, pair: str | None, whole: int) -> Example:
    """The example with shorter texts, and without the spans that lay behind."""
    info = {**example.info, "truncated": whole}
    info |= {name: _within(info[name], len(text)) for name in SPANS if name in info}
    if "answers" in info and pair is not None:
        info["answers"] = _within(info["answers"], len(pair))
    return replace(example, text=text, pair=pair, cues=_within(example.cues, len(text)), info=info)


def _within(spans: Any, length: int) -> tuple[Any, ...]:
    return tuple(span for span in spans if span[1] <= length)
