"""Text or ids -> `Encoded`, the input of one example; several of them -> batches, and the tensors that the stock model
is called with.

Room for more: image patches and audio frames are tokens without a text; they would be an `Encoded` whose `text` is None
and whose
`tokens` are names of places.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..base.doors import door
from ..base.errors import InputError, is_integer, is_text, tokens_within
from ..types import Chat, Example, Text, Texts, Trace
from .words import group_words

if TYPE_CHECKING:
    from .model import Model

BATCH_TOKENS = {"cpu": 2048}  # tokens in a batch, by kind of device
BATCH_TOKENS_ELSEWHERE = 8192
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
    if model.tokenizer is None:
        raise InputError(
            f"{model.name!r} has no tokenizer, so it cannot read text. Put the tokenizer's files beside config.json; "
            f"or, in "
            "Python, pass tokenizer= to mixlens.load, or give ids: model.trace(input_ids=[...])."
        )
    if isinstance(text, Chat):
        from .chat import encode_chat  # which makes an `Encoded` too

        encoded = encode_chat(model, text)
    else:
        encoded = _encoded(model, text)
    count = getattr(model.hf_model.get_input_embeddings(), "num_embeddings", model.hf_model.config.vocab_size)
    number = max(encoded.input_ids)
    if number >= count:  # a token that was added to the tokenizer and not to the model
        token = encoded.tokens[encoded.input_ids.index(number)]
        raise InputError(
            f"the tokenizer gives {token!r} the id {number}, and {model.name!r} has embeddings for 0 to "
            f"{count - 1}. For tokens that were added, call "
            f"model.hf_model.resize_token_embeddings(len(model.tokenizer))."
        )
    return encoded


def _encoded(model: Model, text: str | Example | tuple[str, str]) -> Encoded:
    """A text, or one and its pair, refused where no tokenizer could read it."""
    if isinstance(text, tuple) and len(text) != 2:
        raise InputError(f"a tuple is a text and its pair, not {len(text)} things.")
    if not isinstance(text, Example):
        text = Example(*text) if isinstance(text, tuple) else Example(text)
    if not isinstance(text.text, str) or not isinstance(text.pair, str | None):
        raise InputError(f"a text must be a string, not {type(text.text).__name__}. Got {text.text!r}.")
    if not is_text(text.text + (text.pair or "")):
        raise InputError("the text holds half a character (a lone surrogate), which is no text.")
    if not text.text.strip():
        raise InputError("the text is empty. Give at least one word.")
    fast = bool(getattr(model.tokenizer, "is_fast", False))
    options = {"return_special_tokens_mask": True, "return_offsets_mapping": fast, "verbose": False}
    coded = model.tokenizer(text.text, text.pair, **options)
    ids, types = tuple(map(int, coded["input_ids"])), coded.get("token_type_ids")
    if not ids:
        raise InputError(f"the tokenizer finds no token in {text.text!r}.")
    names = model.tokens(ids)
    places: dict[str, Any] = {"words": None}
    if fast:
        offsets, sequences = tuple(map(tuple, coded["offset_mapping"])), tuple(coded.sequence_ids(0))
        words = group_words((text.text, text.pair), offsets, sequences, names)
        places = {"words": words, "offsets": offsets, "sequences": sequences}
    return Encoded(
        input_ids=ids,
        attention_mask=(1,) * len(ids),
        token_type_ids=None if types is None else tuple(types),
        tokens=names,
        special=special_among(model, ids),
        text=text.text,
        pair=text.pair,
        **places,
    )


def special_among(model: Model, ids: Sequence[int]) -> tuple[bool, ...]:
    """Which of the ids carry no content."""
    return tuple(map(model.special_ids.__contains__, ids))


@door
def tokens(model: Model, ids: Sequence[int]) -> tuple[str, ...]:
    """The tokenizer's strings, or the ids as strings where there is no tokenizer."""
    whole = list(map(operator.index, ids))
    for number in whole:
        if not 0 <= number < MOST_IDS:
            raise InputError(f"id {number} is not in the vocabulary of {model.name!r}.")
    return tuple(map(str, whole if model.tokenizer is None else model.tokenizer.convert_ids_to_tokens(whole)))


# --- ids --------------------------------------------------------------------------------------------------------------


def encode_ids(model: Model, ids: Any, types: Any = None, mask: Any = None) -> Encoded:
    """Ids as they are. Padding at the ends (mask 0) is cut off: a padded input is the same input."""
    if ids is None:
        raise InputError("input_ids must be a list of integers, not None.")
    ids, types, mask = (
        _integers(name, values)
        for name, values in (("input_ids", ids), ("token_type_ids", types), ("attention_mask", mask))
    )
    for name, row in (("token_type_ids", types), ("attention_mask", mask)):
        if row is not None and len(row) != len(ids):
            raise InputError(f"{name} has {len(row)} entries, input_ids has {len(ids)}. They must be of one length.")
    config = model.hf_model.config
    kinds = getattr(config, "type_vocab_size", None) or config.vocab_size  # GPT-2 looks segments up among tokens
    if types and not (min(types) >= 0 and max(types) < kinds):
        raise InputError(f"token_type_ids of {model.name!r} are 0 to {kinds - 1}.")
    mask = [1] * len(ids) if mask is None else mask
    if not set(mask) <= {0, 1}:
        raise InputError("attention_mask is 1 for a token that is read and 0 for one that is not.")
    if not any(mask):
        raise InputError("input_ids is empty, or attention_mask hides every token. Give at least one token.")
    wrong = [i for i in ids if not 0 <= i < config.vocab_size]
    if wrong:
        raise InputError(f"id {wrong[0]} is not in the vocabulary of {model.name!r} (0 to {config.vocab_size - 1}).")
    read = slice(mask.index(1), len(mask) - mask[::-1].index(1))
    return Encoded(
        input_ids=tuple(ids[read]),
        attention_mask=tuple(mask[read]),
        token_type_ids=None if types is None else tuple(types[read]),
        tokens=model.tokens(ids[read]),
        special=special_among(model, ids[read]),
        words=None,
    )


def _integers(name: str, values: Any) -> Any:
    """A list of integers, from a list or a tensor; None stays None."""
    if values is None:
        return None
    numbers = values.tolist() if hasattr(values, "tolist") else values
    is_list = isinstance(numbers, Sequence) and not isinstance(numbers, bytes | bytearray)
    if not is_list or not set(map(type, numbers)) <= {int}:
        raise InputError(f"{name} must be a list of integers, not {numbers!r:.80}.")
    return list(numbers)


# --- several examples -------------------------------------------------------------------------------------------------


def encode_all(
    model: Model, text: Texts | None, input_ids: Any = None, token_type_ids: Any = None, attention_mask: Any = None
) -> tuple[list[Encoded], bool]:
    """The examples that are to be run, checked; and whether there were many or one alone."""
    if (text is None) == (input_ids is None):
        raise InputError("give either a text or input_ids=, not both and not neither.")
    if text is None:
        rows, many = _rows([input_ids, token_type_ids, attention_mask])
        encoded = [model.encode_ids(*row) for row in rows]
    else:
        many = isinstance(text, Sequence) and not isinstance(text, str | tuple)
        texts: Any = text if many else [text]
        encoded = list(map(model.encode, texts))
    for one in encoded:
        tokens_within(len(one.input_ids), model.max_tokens, repr(model.name))
    return encoded, many


def _rows(columns: list[Any]) -> tuple[list[tuple[Any, ...]], bool]:
    """(ids, types, mask) of each example; and whether there were many."""
    ids = columns[0]
    if hasattr(ids, "dim"):
        many = ids.dim() == 2
    else:
        many = isinstance(ids, Sequence) and bool(len(ids))
        many = many and (isinstance(ids[0], Sequence) or hasattr(ids[0], "tolist"))
    if not many:
        return [tuple(columns)], False
    filled = [[None] * len(ids) if column is None else column for column in columns]
    if not all(hasattr(column, "__len__") and len(column) == len(ids) for column in filled):
        raise InputError("input_ids, token_type_ids and attention_mask must hold the same number of examples.")
    return list(zip(*filled, strict=True)), True


@door
def batches(
    model: Model, encoded: Sequence[Encoded | Trace], batch_size: int | None, tokens: int | None = None
) -> list[list[int]]:
    """Indices, sorted by length (examples with segments last), in batches of about 2,048 tokens, on a GPU 8,192 (or of
    `batch_size` examples).

    Attention code of a family's own rounds in float32, in an order that depends on the padded length: there no example
    is padded.
    """
    if batch_size is not None and not (is_integer(batch_size) and batch_size >= 1):
        raise InputError(f"batch_size must be a whole number and at least 1, not {batch_size!r}.")
    most = model.batch_limit or batch_size
    tokens = tokens or BATCH_TOKENS.get(model.device.type, BATCH_TOKENS_ELSEWHERE)
    padded = model.family.attention is None
    found: list[list[int]] = []
    before = (False, 0)  # segments and length of the last batch
    for segments, n, i in sorted((has_segments(one), len(one.input_ids), i) for i, one in enumerate(encoded)):
        room = max(1, tokens // n) if most is None else most
        if found and len(found[-1]) < room and segments == before[0] and (padded or n == before[1]):
            found[-1].append(i)
        else:
            before = (segments, n)
            found.append([i])
    return found


# --- tensors ----------------------------------------------------------------------------------------------------------


@door
def inputs(model: Model, encoded: Sequence[Encoded | Trace]) -> dict[str, Any]:
    """What the stock model is called with: one batch, padded on the right, [batch pos]."""
    if not len(encoded):
        raise InputError("there is nothing to run: no text was given.")
    n, device = max(len(one.input_ids) for one in encoded), model.device
    tensors: dict[str, Any] = {
        "input_ids": _padded([one.input_ids for one in encoded], model.pad_id, n, device),
        "attention_mask": _padded([one.attention_mask for one in encoded], 0, n, device),
    }
    if "token_type_ids" in model.accepts and any(map(has_segments, encoded)):
        segments = [one.token_type_ids or [0] * len(one.input_ids) for one in encoded]
        tensors["token_type_ids"] = _padded(segments, 0, n, device)
    if "use_cache" in model.accepts:  # of decoders: nothing is kept for the next token
        tensors["use_cache"] = False
    return tensors


def _padded(rows: Sequence[Sequence[int]], fill: int, n: int, device: torch.device) -> Tensor:
    if all(row == (1,) * n for row in rows):  # nothing to send to a GPU
        return torch.ones(len(rows), n, dtype=torch.long, device=device)
    table = torch.tensor([[*row, *[fill] * (n - len(row))] for row in rows], device="cpu")
    return table.to(device, non_blocking=True)


def unmasked_inputs(model: Model, encoded: Sequence[Encoded]) -> dict[str, Any]:
    """`inputs` without a mask where nothing is hidden: the model need not find that out, which makes a GPU wait."""
    tensors = model.inputs(encoded)
    n = tensors["input_ids"].shape[1]
    if all(len(one.input_ids) == n and all(one.attention_mask) for one in encoded):
        del tensors["attention_mask"]
    return tensors
