"""What the model predicts, and where: the prediction by name, the position that a head reads, the tokens that come
next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..base.doors import door
from ..base.errors import InputError, is_integer
from ..types import LayersOf, LayerTrace, Prediction, Trace
from .attention import looks_ahead
from .encode import Encoded
from .passes import evaluating, unwatched, within_pass
from .vocabulary import token_name

if TYPE_CHECKING:
    from .model import Model

NAMED = ("classification", "masked-lm", "causal-lm")  # tasks whose prediction is one class or one token


def gives_number(model: Model) -> bool:
    """Whether a model gives one number for a text, as a regression does, and no class."""
    return model.task == "classification" and getattr(model.hf_model.config, "num_labels", None) == 1


def default_query(trace: Trace) -> int:
    """Where the prediction is read: the one mask, the last token of a causal model, else the first token."""
    if trace.model.task == "masked-lm" and trace.predicts:
        if len(trace.predicts) > 1:
            raise InputError(
                f"the text has {len(trace.predicts)} mask tokens, at {list(trace.predicts)}. Say which one: "
                f"query=INDEX."
            )
        return trace.predicts[0]
    if not is_causal(trace):
        return 0
    return head_position(trace.model, trace.input_ids) if trace.model.task == "classification" else len(trace) - 1


def head_position(model: Model, ids: Sequence[int]) -> int:
    """The position that a decoder's classifier reads: the last token that is not the padding token, as transformers
    finds it.

    A text may end in that token: many models pad with their end-of-text token.
    """
    if model.pad_token is None:
        return len(ids) - 1
    return max((place for place, token in enumerate(ids) if token != model.pad_token), default=0)


def is_causal(trace: Trace) -> bool:
    """No token may look ahead in any layer, by the masks the model used."""
    if len(trace) <= 1:
        return False
    if "causal" in trace.info:
        return trace.info["causal"]
    layers: Iterable[LayerTrace] = trace.layers
    if isinstance(trace.layers, LayersOf) and trace.layers.batch[0].weights is None:  # one layer for each mask
        numbers = {id(layer.mask): number for number, layer in enumerate(trace.layers.batch)}
        layers = map(trace.layers.__getitem__, numbers.values())
    return not any(map(looks_ahead, layers))


# --- the prediction by name -------------------------------------------------------------------------------------------


@door
def prediction(trace: Trace, *, k: int = 5) -> Prediction:
    """The k most probable classes or tokens; empty where the model predicts none for a whole text."""
    if k < 1:
        raise InputError(f"k= is how many are named, at least 1, not {k}.")
    row = _row(trace)
    return [] if row is None else named(trace.model, row, k=k)


def _row(trace: Trace) -> Tensor | None:
    """The logits of the prediction, [class] or [vocabulary]."""
    if trace.logits is None or trace.model.task in ("question-answering", "token-classification"):
        return None
    if trace.model.task == "classification":
        return trace.logits if len(trace.logits) > 1 else None  # the probability of one output is 1, whatever the text
    return trace.logits[0] if len(trace.logits) else None


def predictions(traces: Sequence[Trace], *, k: int = 5) -> list[Prediction]:
    """`prediction` of each; on a GPU the most probable of all are found at once, so that it is waited for once."""
    logits, model = traces[0].logits, traces[0].model
    if logits is None or logits.device.type == "cpu" or model.task not in NAMED:
        return [prediction(trace, k=k) for trace in traces]
    rows = {number: row for number, row in enumerate(map(_row, traces)) if row is not None and row.numel()}
    tables = _named_rows(model, torch.stack(list(rows.values())), k) if rows else []
    by_number = dict(zip(rows, tables, strict=True))
    return [by_number.get(number, []) for number in range(len(traces))]


def named(model: Model, logits: Tensor, *, k: int) -> Prediction:
    """The k most probable outputs of one row of logits, by name."""
    return _named_rows(model, logits[None], k)[0]


def _named_rows(model: Model, logits: Tensor, k: int) -> list[Prediction]:
    """The k most probable outputs of every row of logits [row output], by name."""
    top = logits.float().softmax(-1).topk(min(k, logits.shape[-1]))
    rows = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    tables = []
    for ids, values in rows:
        if model.task == "classification":
            names = [str(model.hf_model.config.id2label.get(number, number)) for number in ids]
        else:
            names = [token_name(model, number, plain=True) for number in ids]
        tables.append(list(zip(names, values, strict=True)))
    return tables


# --- what comes next --------------------------------------------------------------------------------------------------


def generate(model: Model, start: Encoded | Trace, count: int) -> list[int]:
    """The `count` ids that the model writes after `start`, greedily."""
    refuse_generation(model, len(start.input_ids), count)
    return _written(model, [start], count)[0]


def generate_each(model: Model, starts: Sequence[Encoded], count: int) -> list[list[int]]:
    """`generate` after each of several texts, in one call. Texts of unequal length are padded on the left, and only
    where the stock model is told the positions of its tokens; else those of equal length go together."""
    for start in starts:
        refuse_generation(model, len(start.input_ids), count)
    # Padding on the left changes nothing where positions are counted from the first token, attention is not code of the
    # family,
    # and no logits are capped (then a position that may look nowhere is not a number, and spoils others).
    capped = getattr(model.hf_model.config.get_text_config(), "attn_logit_softcapping", None) is not None
    pads = "position_ids" in model.accepts and model.family.attention is None and not capped
    groups: dict[int, list[int]] = {}
    for number, start in enumerate(starts):
        groups.setdefault(0 if pads else len(start.input_ids), []).append(number)
    written: dict[int, list[int]] = {}
    ends = end_ids(model)
    for numbers in groups.values():
        for number, ids in zip(numbers, _written(model, [starts[number] for number in numbers], count), strict=True):
            stop = next((place + 1 for place, one in enumerate(ids) if one in ends), len(ids))
            written[number] = ids[:stop]  # what follows the end of a text fills a row of a batch
    return [written[number] for number in range(len(starts))]


def _written(model: Model, starts: Sequence[Encoded | Trace], count: int) -> list[list[int]]:
    """What the stock model writes after each of several texts, padded on the left."""
    longest = max(len(start.input_ids) for start in starts)
    ids = [[model.pad_id] * (longest - len(start.input_ids)) + list(start.input_ids) for start in starts]
    mask = [[0] * (longest - len(start.input_ids)) + list(start.attention_mask) for start in starts]
    with model.lock, unwatched(running=True), evaluating(model.hf_model), within_pass(recorder=None):
        written = model.hf_model.generate(
            input_ids=torch.tensor(ids, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=model.pad_id,
        )
    return written[:, longest:].tolist()


def end_ids(model: Model) -> set[int]:
    """The ids after which the stock model writes no more."""
    named = getattr(model.hf_model.generation_config, "eos_token_id", None)
    return set(named if isinstance(named, list | tuple) else [named]) - {None}


def refuse_generation(model: Model, length: int, count: int, option: str = "generate") -> None:
    """Refuse to let a model write that writes no text, or more than it reads."""
    if model.task != "causal-lm":
        raise InputError(
            f"{model.name!r} is a {model.task} model and writes no text. {option}= needs a causal language model."
        )
    if not is_integer(count):
        raise InputError(f"generate is a whole number of tokens, not {count!r}.")
    if count < 1:
        raise InputError(f"generate must be at least 1, not {count}.")
    if model.max_tokens is not None and length + count > model.max_tokens:
        raise InputError(
            f"{length} tokens and {count} more are over the {model.max_tokens} that {model.name!r} reads. "
            "Shorten the text, or write less."
        )
