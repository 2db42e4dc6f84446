"""Text or ids -> `Encoded`, the input of one example; several of them -> batches, and the tensors that the stock model is called
with.

Room for more: image patches and audio frames are tokens without a text; they would be an `Encoded` whose `text` is None and whose
`tokens` are names of places.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..base.errors import InputError, is_integer, is_text, tokens_within
from ..types import Chat, Example, Text, Texts, Trace
from .words import group_words

if TYPE_CHECKING:
    from .model import Model

BATCH_TOKENS = {"cpu": 2048}  # tokens in a batch, by kind of device
BATCH_TOKENS_ELSEWHERE = 8192
CONFIGURED = ("bos", "eos", "cls", "sep", "pad")  # special tokens that a configuration may name
MOST_IDS = 1 << 31  # that tokenizers count to


@dataclass(frozen=True)
class Encoded:
    """One example as the model reads it, without padding."""

    input_ids: tuple[int, ...]
    attention_mask: tuple[int, ...]
    token_type_ids: tuple[int, ...] | None
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    words: Any
    text: str | None = None
    pair: str | None = None
    offsets: tuple[tuple[int, int], ...] | None = None  # the characters of each token, in the text it comes from
    sequences: tuple[int | None, ...] | None = None  # that text: 0, 1 (the pair), or None for a token that was added
    turns: tuple[tuple[str, tuple[int, ...]], ...] | None = (
        None  # of a chat: the role and the positions of each message
    )


def has_segments(one: Any) -> bool:
    """Segments all 0 are no segments: most models take them so anyway, and GPT-2 would add the embedding of token 0."""
    return bool(one.token_type_ids) and any(one.token_type_ids)


# --- texts ------------------------------------------------------------------------------------------------------------


def encode(model: Model, text: Text) -> Encoded:
    """One text as the tokenizer of the model splits it."""
    encoded = _encoded(model, text)
    _refuse_no_embedding(model, encoded)
    return encoded


def _encoded(model: Model, text: Text) -> Encoded:
    _refuse_no_tokenizer(model)
    if isinstance(text, Chat):
        from .chat import encode_chat  # which makes an `Encoded` too

        return encode_chat(model, text)
    example = _example(text)
    fast = bool(getattr(model.tokenizer, "is_fast", False))
    options = {"return_special_tokens_mask": True, "return_offsets_mapping": fast, "verbose": False}
    coded = model.tokenizer(example.text, example.pair, **options)
    ids = tuple(map(int, coded["input_ids"]))
    if not ids:
        raise InputError(f"the tokenizer finds no token in {example.text!r}.")
    names = model.tokens(ids)
    return Encoded(
        input_ids=ids,
        attention_mask=(1,) * len(ids),
        token_type_ids=_optional_tuple(coded.get("token_type_ids")),
        tokens=names,
        special=special_among(model, ids),
        text=example.text,
        pair=example.pair,
        **(_places(example, coded, names) if fast else {"words": None}),
    )


def _refuse_no_tokenizer(model: Model) -> None:
    if model.tokenizer is None:
        raise InputError(
            f"{model.name!r} has no tokenizer, so it cannot read text. Put the tokenizer's files beside config.json; or, in "
            "Python, pass tokenizer= to mixlens.load, or give ids: model.trace(input_ids=[...])."
        )


def _refuse_no_embedding(model: Model, encoded: Encoded) -> None:
    """Refuse a token that was added to the tokenizer and not to the model."""
    count = getattr(model.hf_model.get_input_embeddings(), "num_embeddings", model.hf_model.config.vocab_size)
    if max(encoded.input_ids) >= count:
        place, number = max(enumerate(encoded.input_ids), key=lambda one: one[1])
        raise InputError(
            f"the tokenizer gives {encoded.tokens[place]!r} the id {number}, and {model.name!r} has embeddings for 0 to "
            f"{count - 1}. For tokens that were added, call model.hf_model.resize_token_embeddings(len(model.tokenizer))."
        )


def _optional_tuple(values: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def special_among(model: Model, ids: Sequence[int]) -> tuple[bool, ...]:
    """Which of the ids carry no content."""
    return tuple(map(model.special_ids.__contains__, ids))


def _example(text: str | Example | tuple[str, str]) -> Example:
    """The text as an Example, refused where no tokenizer could read it."""
    example = text if isinstance(text, Example) else Example(*_text_and_pair(text))
    _refuse_other_than_text(example)
    _refuse_unreadable(example)
    return example


def _text_and_pair(text: str | tuple[str, str]) -> tuple[str] | tuple[str, str]:
    """A text alone, or a text and its pair."""
    if not isinstance(text, tuple):
        return (text,)
    if len(text) != 2:
        raise InputError(f"a tuple is a text and its pair, not {len(text)} things.")
    return text


def _refuse_other_than_text(example: Example) -> None:
    if not isinstance(example.text, str) or not isinstance(example.pair, str | None):
        raise InputError(f"a text must be a string, not {type(example.text).__name__}. Got {example.text!r}.")


def _refuse_unreadable(example: Example) -> None:
    if not is_text(example.text + (example.pair or "")):
        raise InputError("the text holds half a character (a lone surrogate), which is no text.")
    if not example.text.strip():
        raise InputError("the text is empty. Give at least one word.")


def _places(example: Example, coded: Any, names: Sequence[str]) -> dict[str, Any]:
    """Where each token lies in its text, and the words that tokens belong to."""
    offsets, sequences = tuple(map(tuple, coded["offset_mapping"])), tuple(coded.sequence_ids(0))
    words = group_words((example.text, example.pair), offsets, sequences, names)
    return {"words": words, "offsets": offsets, "sequences": sequences}


def tokens(model: Model, ids: Sequence[int]) -> tuple[str, ...]:
    """The tokenizer's strings, or the ids as strings where there is no tokenizer."""
    whole = list(map(operator.index, ids))
    for number in whole:
        if not 0 <= number < MOST_IDS:
            raise InputError(f"id {number} is not in the vocabulary of {model.name!r}.")
    return tuple(map(str, whole if model.tokenizer is None else model.tokenizer.convert_ids_to_tokens(whole)))


def special_ids(model: Model) -> set[int]:
    """Ids that carry no content: what the tokenizer adds around a text, or what the configuration names."""
    if model.tokenizer is not None:
        return set(model.tokenizer.all_special_ids) - {model.tokenizer.mask_token_id, model.tokenizer.unk_token_id}
    return {i for name in CONFIGURED for i in _configured_ids(model, name) if isinstance(i, int)}


def _configured_ids(model: Model, name: str) -> Sequence[Any]:
    """What the configuration has under the name of a special token: it may name several ends of a text in one list."""
    entry = getattr(model.hf_model.config, f"{name}_token_id", None)
    return entry if isinstance(entry, list | tuple) else [entry]


# --- ids --------------------------------------------------------------------------------------------------------------


def encode_ids(model: Model, ids: Any, types: Any = None, mask: Any = None) -> Encoded:
    """Ids as they are. Padding at the ends (mask 0) is cut off: a padded input is the same input."""
    if ids is None:
        raise InputError("input_ids must be a list of integers, not None.")
    ids, types, mask = (
        _integers("input_ids", ids),
        _integers("token_type_ids", types),
        _integers("attention_mask", mask),
    )
    _refuse_lengths(ids, types, mask)
    _refuse_types(model, types)
    mask = _mask_of(ids, mask)
    _refuse_ids(model, ids)
    read = slice(mask.index(1), len(mask) - mask[::-1].index(1))
    return Encoded(
        input_ids=tuple(ids[read]),
        attention_mask=tuple(mask[read]),
        token_type_ids=None if types is None else tuple(types[read]),
        tokens=model.tokens(ids[read]),
        special=special_among(model, ids[read]),
        words=None,
    )


def _mask_of(ids: list[int], mask: list[int] | None) -> list[int]:
    """The mask, or one that shows every token; refused where it shows none."""
    _refuse_mask(mask)
    mask = [1] * len(ids) if mask is None else mask
    if not any(mask):
        raise InputError("input_ids is empty, or attention_mask hides every token. Give at least one token.")
    return mask


def _integers(name: str, values: Any) -> Any:
    """A list of integers, from a list or a tensor; None stays None."""
    if values is None:
        return None
    numbers = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(numbers, bytes | bytearray) or not (
        isinstance(numbers, Sequence) and set(map(type, numbers)) <= {int}
    ):
        raise InputError(f"{name} must be a list of integers, not {numbers!r:.80}.")
    return list(numbers)


def _refuse_lengths(ids: list[int], types: list[int] | None, mask: list[int] | None) -> None:
    for name, row in (("token_type_ids", types), ("attention_mask", mask)):
        if row is not None and len(row) != len(ids):
            raise InputError(f"{name} has {len(row)} entries, input_ids has {len(ids)}. They must be of one length.")


def _refuse_types(model: Model, types: list[int] | None) -> None:
    kinds = _segment_kinds(model.hf_model.config)
    if types and not (min(types) >= 0 and max(types) < kinds):
        raise InputError(f"token_type_ids of {model.name!r} are 0 to {kinds - 1}.")


def _segment_kinds(config: Any) -> int:
    """How many segments a model knows; GPT-2 looks segments up among tokens."""
    return getattr(config, "type_vocab_size", None) or config.vocab_size


def _refuse_mask(mask: list[int] | None) -> None:
    if mask is not None and not set(mask) <= {0, 1}:
        raise InputError("attention_mask is 1 for a token that is read and 0 for one that is not.")


def _refuse_ids(model: Model, ids: list[int]) -> None:
    vocabulary = model.hf_model.config.vocab_size
    if min(ids) < 0 or max(ids) >= vocabulary:
        wrong = next(i for i in ids if not 0 <= i < vocabulary)
        raise InputError(f"id {wrong} is not in the vocabulary of {model.name!r} (0 to {vocabulary - 1}).")


# --- several examples -------------------------------------------------------------------------------------------------


def encode_all(
    model: Model, text: Texts | None, input_ids: Any, token_type_ids: Any = None, attention_mask: Any = None
) -> tuple[list[Encoded], bool]:
    """The examples that are to be run, checked; and whether there were many or one alone."""
    if (text is None) == (input_ids is None):
        raise InputError("give either a text or input_ids=, not both and not neither.")
    if text is None:
        rows, many = _rows([input_ids, token_type_ids, attention_mask])
        encoded = [model.encode_ids(*row) for row in rows]
    else:
        texts, many = _texts(text)
        encoded = list(map(model.encode, texts))
    _refuse_long(model, encoded)
    return encoded, many


def _texts(text: Texts) -> tuple[Any, bool]:
    """The texts, and whether there were many."""
    many = isinstance(text, Sequence) and not isinstance(text, str | tuple)
    return (text if many else [text]), many


def _refuse_long(model: Model, encoded: Sequence[Encoded]) -> None:
    for one in encoded:
        tokens_within(len(one.input_ids), model.max_tokens, repr(model.name))


def _rows(columns: list[Any]) -> tuple[list[tuple[Any, ...]], bool]:
    """(ids, types, mask) of each example; and whether there were many."""
    if not _is_nested(columns[0]):
        return [tuple(columns)], False
    count = len(columns[0])
    filled = [[None] * count if column is None else column for column in columns]
    _refuse_uneven(filled, count)
    return list(zip(*filled, strict=True)), True


def _refuse_uneven(columns: list[Any], count: int) -> None:
    if not all(hasattr(column, "__len__") and len(column) == count for column in columns):
        raise InputError("input_ids, token_type_ids and attention_mask must hold the same number of examples.")


def _is_nested(ids: Any) -> bool:
    """Are these the ids of several examples?"""
    if hasattr(ids, "dim"):
        return ids.dim() == 2
    return isinstance(ids, Sequence) and bool(len(ids)) and _is_row(ids[0])


def _is_row(ids: Any) -> bool:
    return isinstance(ids, Sequence) or hasattr(ids, "tolist")


def batches(
    model: Model, encoded: Sequence[Encoded | Trace], batch_size: int | None, tokens: int | None = None
) -> Iterator[list[int]]:
    """Indices, sorted by length, in batches of about 2,048 tokens, on a GPU 8,192 (or of `batch_size` examples)."""
    _refuse_batch_size(batch_size)
    rooms = _rooms(model, encoded, model.batch_limit or batch_size, tokens)
    batch: list[int] = []
    for i in _by_length(encoded):
        if batch and not (len(batch) < rooms[i] and _go_together(model, encoded[batch[0]], encoded[i])):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _refuse_batch_size(batch_size: int | None) -> None:
    if batch_size is not None and not (is_integer(batch_size) and batch_size >= 1):
        raise InputError(f"batch_size must be a whole number and at least 1, not {batch_size!r}.")


def _rooms(
    model: Model, encoded: Sequence[Encoded | Trace], batch_size: int | None, tokens: int | None
) -> Sequence[int]:
    """How many examples a batch may have whose longest example is this one, for each example."""
    if batch_size is not None:
        return [batch_size] * len(encoded)
    tokens = tokens or BATCH_TOKENS.get(model.device.type, BATCH_TOKENS_ELSEWHERE)
    return [max(1, tokens // len(one.input_ids)) for one in encoded]


def _by_length(encoded: Sequence[Encoded | Trace]) -> list[int]:
    """Indices by length; examples with segments come last."""
    return sorted(range(len(encoded)), key=lambda i: (has_segments(encoded[i]), len(encoded[i].input_ids), i))


def _go_together(model: Model, one: Encoded | Trace, other: Encoded | Trace) -> bool:
    """May these two share a batch? Attention code of a family's own rounds in float32, in an order that depends on the padded
    length: there no example is padded."""
    same_length = len(one.input_ids) == len(other.input_ids)
    return has_segments(one) == has_segments(other) and (same_length or model.family.attention is None)


# --- tensors ----------------------------------------------------------------------------------------------------------


def inputs(model: Model, encoded: Sequence[Encoded | Trace]) -> dict[str, Any]:
    """What the stock model is called with: one batch, padded on the right, [batch pos]."""
    if not len(encoded):
        raise InputError("there is nothing to run: no text was given.")
    n, device = max(len(one.input_ids) for one in encoded), model.device
    tensors: dict[str, Any] = {
        "input_ids": _padded([one.input_ids for one in encoded], model.pad_id, n, device),
        "attention_mask": _padded([one.attention_mask for one in encoded], 0, n, device),
    }
    if _takes_segments(model, encoded):
        tensors["token_type_ids"] = _padded(list(map(_segments, encoded)), 0, n, device)
    return tensors | _no_cache(model)


def _no_cache(model: Model) -> dict[str, Any]:
    """The option of decoders that keeps nothing for the next token."""
    return {"use_cache": False} if "use_cache" in model.accepts else {}


def _takes_segments(model: Model, encoded: Sequence[Encoded | Trace]) -> bool:
    return "token_type_ids" in model.accepts and any(map(has_segments, encoded))


def _segments(one: Encoded | Trace) -> Sequence[int]:
    """The segment of each token; all 0 where there are none."""
    return one.token_type_ids or [0] * len(one.input_ids)


def _padded(rows: Sequence[Sequence[int]], fill: int, n: int, device: torch.device) -> Tensor:
    if all(row == (1,) * n for row in rows):  # nothing to send to a GPU
        return torch.ones(len(rows), n, dtype=torch.long, device=device)
    table = torch.tensor([[*row, *[fill] * (n - len(row))] for row in rows], device="cpu")
    return table.to(device, non_blocking=True)


def unmasked_inputs(model: Model, encoded: Sequence[Encoded]) -> dict[str, Any]:
    """`inputs` without a mask where nothing is hidden: the model need not find that out, which makes a GPU wait."""
    tensors = model.inputs(encoded)
    if _hides_nothing(encoded, tensors["input_ids"].shape[1]):
        del tensors["attention_mask"]
    return tensors


def _hides_nothing(encoded: Sequence[Encoded], n: int) -> bool:
    """Are all examples of length n, and is every token read?"""
    return all(len(one.input_ids) == n and all(one.attention_mask) for one in encoded)
