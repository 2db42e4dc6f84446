"""Text or ids -> `Encoded`, the input of one example; several of them -> batches, and the tensors that the stock model is called
with.

Room for more: image patches and audio frames are tokens without a text; they would be an `Encoded` whose `text` is None and whose
`tokens` are names of places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InputError, is_text, tokens_within
from ..types import Example, Texts, Trace
from .words import group_words

if TYPE_CHECKING:
    from .model import Model

BATCH_TOKENS = {"cpu": 2048}  # tokens in a batch, by kind of device
BATCH_TOKENS_ELSEWHERE = 8192
CONFIGURED = ("bos", "eos", "cls", "sep", "pad")  # special tokens that a configuration may name


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


def has_segments(one: Any) -> bool:
    """Segments all 0 are no segments: most models take them so anyway, and GPT-2 would add the embedding of token 0."""
    return bool(one.token_type_ids) and any(one.token_type_ids)


# --- texts ------------------------------------------------------------------------------------------------------------


def encode(model: Model, text: str | Example | tuple[str, str]) -> Encoded:
    """One text as the tokenizer of the model splits it."""
    example = _example(text)
    if model.tokenizer is None:
        raise InputError(
            f"{model.name!r} has no tokenizer, so it cannot read text. Pass tokenizer= to mixlens.load, "
            "or give ids: model.trace(input_ids=[...])."
        )
    fast = bool(getattr(model.tokenizer, "is_fast", False))
    options = {"return_special_tokens_mask": True, "return_offsets_mapping": fast, "verbose": False}
    coded = model.tokenizer(example.text, example.pair, **options)
    ids = tuple(int(i) for i in coded["input_ids"])
    if not ids:
        raise InputError(f"the tokenizer finds no token in {example.text!r}.")
    special, names = model.special_ids, model.tokens(ids)
    return Encoded(
        input_ids=ids,
        attention_mask=(1,) * len(ids),
        token_type_ids=tuple(coded["token_type_ids"]) if "token_type_ids" in coded else None,
        tokens=names,
        special=tuple(i in special for i in ids),
        text=example.text,
        pair=example.pair,
        **(_places(example, coded, names) if fast else {"words": None}),
    )


def _example(text: str | Example | tuple[str, str]) -> Example:
    """The text as an Example, refused where no tokenizer could read it."""
    if isinstance(text, tuple) and len(text) != 2:
        raise InputError(f"a tuple is a text and its pair, not {len(text)} things.")
    example = text if isinstance(text, Example) else Example(*(text if isinstance(text, tuple) else (text,)))
    _refuse_unreadable(example)
    return example


def _refuse_unreadable(example: Example) -> None:
    if not isinstance(example.text, str) or not isinstance(example.pair, str | None):
        raise InputError(f"a text must be a string, not {type(example.text).__name__}. Got {example.text!r}.")
    if not (is_text(example.text) and is_text(example.pair or "")):
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
    if model.tokenizer is None:
        return tuple(map(str, ids))
    return tuple(map(str, model.tokenizer.convert_ids_to_tokens(list(ids))))


def special_ids(model: Model) -> set[int]:
    """Ids that carry no content: what the tokenizer adds around a text, or what the configuration names."""
    if model.tokenizer is not None:
        return set(model.tokenizer.all_special_ids) - {model.tokenizer.mask_token_id, model.tokenizer.unk_token_id}
    entries = [getattr(model.hf_model.config, f"{name}_token_id", None) for name in CONFIGURED]
    # A configuration may name several ends of a text in one list.
    lists = [entry if isinstance(entry, list | tuple) else [entry] for entry in entries]
    return {i for ids in lists for i in ids if isinstance(i, int)}


# --- ids --------------------------------------------------------------------------------------------------------------


def encode_ids(model: Model, ids: Any, types: Any = None, mask: Any = None) -> Encoded:
    """Ids as they are. Padding at the ends (mask 0) is cut off: a padded input is the same input."""
    ids, types, mask = (
        _integers(name, values) for name, values in (("input_ids", ids), ("token_type_ids", types), ("attention_mask", mask))
    )
    _refuse_lengths(ids, types, mask)
    _refuse_types(model, types)
    _refuse_mask(mask)
    mask = mask if mask is not None else [1] * len(ids)
    if not any(mask):
        raise InputError("input_ids is empty, or attention_mask hides every token. Give at least one token.")
    _refuse_ids(model, ids)
    start, end = mask.index(1), len(mask) - mask[::-1].index(1)
    ids = ids[start:end]
    return Encoded(
        input_ids=tuple(ids),
        attention_mask=tuple(mask[start:end]),
        token_type_ids=None if types is None else tuple(types[start:end]),
        tokens=model.tokens(ids),
        special=tuple(map(model.special_ids.__contains__, ids)),
        words=None,
    )


def _integers(name: str, values: Any) -> Any:
    """A list of integers, from a list or a tensor; None stays None."""
    if values is None:
        return None
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, Sequence) or not set(map(type, values)) <= {int}:
        raise InputError(f"{name} must be a list of integers, not {values!r:.80}.")
    return list(values)


def _refuse_lengths(ids: list[int], types: list[int] | None, mask: list[int] | None) -> None:
    for name, row in (("token_type_ids", types), ("attention_mask", mask)):
        if row is not None and len(row) != len(ids):
            raise InputError(f"{name} has {len(row)} entries, input_ids has {len(ids)}. They must be of one length.")


def _refuse_types(model: Model, types: list[int] | None) -> None:
    config = model.hf_model.config
    kinds = getattr(config, "type_vocab_size", None) or config.vocab_size  # GPT-2 looks segments up among tokens
    if types is not None and any(not 0 <= i < kinds for i in types):
        raise InputError(f"token_type_ids of {model.name!r} are 0 to {kinds - 1}.")


def _refuse_mask(mask: list[int] | None) -> None:
    if mask is not None and any(i not in (0, 1) for i in mask):
        raise InputError("attention_mask is 1 for a token that is read and 0 for one that is not.")


def _refuse_ids(model: Model, ids: list[int]) -> None:
    vocabulary = model.hf_model.config.vocab_size
    if not (min(ids) >= 0 and max(ids) < vocabulary):
        wrong = next(i for i in ids if not 0 <= i < vocabulary)
        raise InputError(f"id {wrong} is not in the vocabulary of {model.name!r} (0 to {vocabulary - 1}).")


# --- several examples -------------------------------------------------------------------------------------------------


def encode_all(
    model: Model, text: Texts | None, input_ids: Any, token_type_ids: Any = None, attention_mask: Any = None
) -> tuple[list[Encoded], bool]:
    """The examples that are to be run, checked; and whether there were many or one alone."""
    if (text is None) == (input_ids is None):
        raise InputError("give either a text or input_ids=, not both and not neither.")
    if input_ids is not None:
        rows, many = _rows([input_ids, token_type_ids, attention_mask])
        encoded = [model.encode_ids(*row) for row in rows]
    else:
        many = isinstance(text, Sequence) and not isinstance(text, str | tuple)
        texts: Any = text if many else [text]
        encoded = [model.encode(one) for one in texts]
    for one in encoded:
        tokens_within(len(one.input_ids), model.max_tokens, repr(model.name))
    return encoded, many


def _rows(columns: list[Any]) -> tuple[list[tuple[Any, ...]], bool]:
    """(ids, types, mask) of each example; and whether there were many."""
    if not _is_nested(columns[0]):
        return [tuple(columns)], False
    count = len(columns[0])
    if any(column is not None and (not hasattr(column, "__len__") or len(column) != count) for column in columns):
        raise InputError("input_ids, token_type_ids and attention_mask must hold the same number of examples.")
    filled = [[None] * count if column is None else column for column in columns]
    return list(zip(*filled, strict=True)), True


def _is_nested(ids: Any) -> bool:
    if hasattr(ids, "dim"):
        return ids.dim() == 2
    return isinstance(ids, Sequence) and bool(len(ids)) and (isinstance(ids[0], Sequence) or hasattr(ids[0], "tolist"))


def batches(
    model: Model, encoded: Sequence[Encoded | Trace], batch_size: int | None, tokens: int | None = None
) -> Iterator[list[int]]:
    """Indices, sorted by length, in batches of about 2,048 tokens, on a GPU 8,192 (or of `batch_size` examples)."""
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size must be at least 1, not {batch_size}.")
    batch_size = model.batch_limit or batch_size
    tokens = tokens or BATCH_TOKENS.get(model.device.type, BATCH_TOKENS_ELSEWHERE)
    batch: list[int] = []
    for i in _by_length(encoded):
        room = batch_size or max(1, tokens // len(encoded[i].input_ids))
        if batch and (len(batch) >= room or not _go_together(model, encoded[batch[0]], encoded[i])):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _by_length(encoded: Sequence[Encoded | Trace]) -> list[int]:
    """Indices by length; examples with segments come last."""
    return sorted(range(len(encoded)), key=lambda i: (has_segments(encoded[i]), len(encoded[i].input_ids), i))


def _go_together(model: Model, one: Encoded | Trace, other: Encoded | Trace) -> bool:
    """May these two share a batch? Attention code of a family's own rounds in float32, in an order that depends on the padded
    length: there no example is padded."""
    padded = len(one.input_ids) != len(other.input_ids)
    return has_segments(one) == has_segments(other) and not (padded and model.family.attention is not None)


# --- tensors ----------------------------------------------------------------------------------------------------------


def inputs(model: Model, encoded: Sequence[Encoded | Trace]) -> dict[str, Any]:
    """What the stock model is called with: one batch, padded on the right, [batch pos]."""
    n, device = max(len(one.input_ids) for one in encoded), model.device
    tensors: dict[str, Any] = {
        "input_ids": _padded([one.input_ids for one in encoded], model.pad_id, n, device),
        "attention_mask": _padded([one.attention_mask for one in encoded], 0, n, device),
    }
    if "token_type_ids" in model.accepts and any(map(has_segments, encoded)):
        tensors["token_type_ids"] = _padded(list(map(_segments, encoded)), 0, n, device)
    if "use_cache" in model.accepts:
        tensors["use_cache"] = False
    return tensors


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
    n = tensors["input_ids"].shape[1]
    if all(len(one.input_ids) == n and all(one.attention_mask) for one in encoded):
        del tensors["attention_mask"]
    return tensors
