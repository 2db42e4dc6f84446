"""What is to be explained: one number the model puts out. A class, a token, a pair of them, or a span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .errors import InputError, is_text, nearest
from .model.model import Model
from .types import Trace

_NAMES: WeakKeyDictionary[Model, dict[tuple[int, bool], str]] = WeakKeyDictionary()  # names of tokens, found once
SCORES = ("logit", "probability", "log_probability")
Wanted = str | int | tuple[Any, Any] | None


@dataclass(frozen=True)
class Target:
    """`ids` at `positions`: one entry for a class or a token, two (start, end) for a span. `foil` is subtracted."""

    task: str
    positions: tuple[int, ...]  # where token-level logits are read; () for a class of the whole text
    ids: tuple[int, ...]
    foil: int | None
    score: str
    name: str

    def of(self, output: Any) -> Tensor:
        """The number, for every example of a batch: [batch], differentiable."""
        if self.task == "question-answering":
            rows = [output.start_logits, output.end_logits]
        elif self.task == "classification":
            rows = [output.logits]
        else:
            rows = [output.logits[:, self.positions[0]]]
        scores = torch.stack([self._score(row, wanted) for row, wanted in zip(rows, self.ids, strict=True)])
        return scores.prod(0) if self.score == "probability" else scores.sum(0)

    def _score(self, logits: Tensor, wanted: int) -> Tensor:
        """logit (minus the foil's); or the probability among all, among the two with a foil; or its logarithm."""
        if self.score == "logit":
            return logits[:, wanted] - (logits[:, self.foil] if self.foil is not None else 0)
        chosen = logits if self.foil is None else logits[:, [wanted, self.foil]]
        share = chosen.log_softmax(-1)[:, wanted if self.foil is None else 0]
        return share if self.score == "log_probability" else share.exp()


def resolve(
    trace: Trace,
    target: Wanted = "predicted",
    *,
    foil: str | int | None = None,
    score: str = "logit",
    label: str | int | None = None,
    query: int | str | None = None,
) -> Target:
    """The Target a user means. `target` is "predicted", "gold" (then give `label`), a class id or name, a token, a
    (target, foil) pair, or a (start, end) span of a question-answering model."""
    model = trace.model
    if not isinstance(score, str) or score not in SCORES:
        raise InputError(f"unknown score {score!r}. {nearest(str(score), SCORES)}")
    if model.task == "base":
        raise InputError(
            f"{model.name!r} was loaded without a head, so it predicts nothing to explain. Load it with task=, for example "
            "task='classification' or task='masked-lm', or use a method that needs no prediction."
        )
    if target == "gold":
        if label is None:
            raise InputError("target='gold' needs the gold label: label=...")
        target = label
    if model.task == "question-answering":
        return _span(trace, target, foil, score)
    if isinstance(target, tuple):
        if len(target) != 2:
            raise InputError(f"a target and its foil are two, not {len(target)}.")
        if foil is not None:
            raise InputError("give the foil once: target=(target, foil), or target= and foil=.")
        target, foil = target
    positions = () if model.task == "classification" else (_position(trace, query),)
    if target == "predicted" or target is None:
        wanted = int(logits_at(trace, positions).argmax())
    else:
        wanted = output_id(model, target, "target")
    against = None if foil is None else output_id(model, foil, "foil")
    if against == wanted:
        raise InputError(f"target and foil are the same ({_name(model, wanted)}).")
    name = _name(model, wanted) + ("" if against is None else f" - {_name(model, against)}")
    return Target(model.task, positions, (wanted,), against, score, name)


def logits_at(trace: Trace, positions: tuple[int, ...]) -> Tensor:
    """[class] or [vocabulary], from the trace where it was kept, else from one more forward pass."""
    assert trace.logits is not None
    if not positions:
        return trace.logits
    if positions[0] in trace.predicts:
        return trace.logits[trace.predicts.index(positions[0])]
    return trace.model.logits(trace)[positions[0]]


def _position(trace: Trace, query: int | str | None) -> int:
    from .aggregate import find

    if query is not None:
        return find(trace.tokens, query)
    if trace.model.task == "masked-lm" and not trace.predicts:
        mask = getattr(trace.model.tokenizer, "mask_token", None) or "[MASK]"
        raise InputError(f"the text has no mask token to predict. Put {mask} where a word is to be predicted, or give query=.")
    return trace.query


def output_id(model: Model, wanted: Any, role: str) -> int:
    """The id of a class or a token that is written as an id or by its name."""
    count = model.hf_model.config.num_labels if model.task.endswith("classification") else model.hf_model.config.vocab_size
    if isinstance(wanted, bool) or not isinstance(wanted, int | str):
        raise InputError(f"a {role} is a class, a token or an id, not {wanted!r}.")
    if isinstance(wanted, str) and not is_text(wanted):
        raise InputError(f"the {role} holds half a character (a lone surrogate), which is no text.")
    if isinstance(wanted, int):
        if not 0 <= wanted < count:
            raise InputError(f"{role} {wanted} is out of range: {model.name!r} has {count} outputs, 0 to {count - 1}.")
        return wanted
    if model.task.endswith("classification"):
        labels = {str(name).lower(): int(i) for i, name in model.hf_model.config.id2label.items()}
        if wanted.lower() not in labels:
            names = [str(name) for name in model.hf_model.config.id2label.values()]
            raise InputError(f"{model.name!r} has no class {wanted!r}. {nearest(wanted, names)}")
        return labels[wanted.lower()]
    return token_id(model, wanted, role)


CONTINUES = "##"  # a piece that goes on with a word; mixlens writes and reads it so for every tokenizer
MARKS = (CONTINUES, "Ġ", "▁", "Ċ")


def token_id(model: Model, word: str, role: str = "target") -> int:
    """The one token a word is: `play`, or the name that mixlens prints (`▁play`, `Ġthe`, `##ing`).

    Byte-level tokenizers write a word inside a text with the space before it, so a plain word means that token; the piece
    without the space is `##` and the piece.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise InputError(f"{model.name!r} has no tokenizer: give the {role} as an id.")
    if word.startswith(MARKS) or word.endswith("</w>"):
        found = _in_vocabulary(tokenizer, word)
        if found is None and word.startswith(CONTINUES):
            found = _in_vocabulary(tokenizer, word.removeprefix(CONTINUES))
        if found is not None:
            return found
    pieces = {text: tokenizer.encode(text, add_special_tokens=False) for text in (f" {word}", word)}
    single = [ids[0] for ids in pieces.values() if len(ids) == 1 and ids[0] != tokenizer.unk_token_id]
    if single:
        return int(single[0])
    found = _in_vocabulary(tokenizer, word)
    if found is not None:
        return found
    split = tokenizer.convert_ids_to_tokens(pieces[word])
    raise InputError(
        f"{role} {word!r} is not one token of {model.name!r} but {len(split)} ({' '.join(split)}). Choose a word that is."
    )


def _in_vocabulary(tokenizer: Any, token: str) -> int | None:
    """The id of this very token, if there is one."""
    found = tokenizer.convert_tokens_to_ids(token)
    return found if isinstance(found, int) and tokenizer.convert_ids_to_tokens(found) == token else None


def _name(model: Model, number: int) -> str:
    if model.task.endswith("classification"):
        return str(model.hf_model.config.id2label.get(number, number))
    return token_name(model, number)


def token_name(model: Model, number: int, *, plain: bool = False) -> str:
    """A name of a token by which `token_id` finds it again; its number where there is none.

    The tokenizer's own name, or with `plain` first the word without marks.
    """
    if model.tokenizer is None:
        return str(number)
    known = _NAMES.setdefault(model, {})
    if (number, plain) not in known:
        own = model.tokens([number])[0]
        words = [model.tokenizer.decode([number]).strip()] if plain else []
        found = (name for name in (*words, own, CONTINUES + own) if name and _means(model, name) == number)
        known[number, plain] = next(found, str(number))
    return known[number, plain]


def _means(model: Model, name: str) -> int | None:
    try:
        return token_id(model, name)
    except InputError:
        return None


def _span(trace: Trace, target: Any, foil: Any, score: str) -> Target:
    n = len(trace)
    if foil is not None:
        raise InputError("a span has no foil. Give target=(start, end).")
    if target == "predicted" or target is None:
        assert trace.logits is not None
        start, end = (int(i) for i in trace.logits.argmax(0))
    else:
        if not (isinstance(target, tuple) and len(target) == 2 and all(isinstance(i, int) for i in target)):
            raise InputError(
                f"a question-answering model explains a span: target=(start, end) as token positions, not {target!r}."
            )
        start, end = target
        if not (0 <= start < n and 0 <= end < n):
            raise InputError(f"span {target} is out of range: there are {n} tokens, 0 to {n - 1}.")
    return Target("question-answering", (start, end), (start, end), None, score, f"span {start} to {end}")
