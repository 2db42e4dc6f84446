"""What is to be explained: one number the model puts out. A class, a token, a pair of them, or a span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError, is_integer, is_text, nearest
from ..model.model import Model
from ..model.predict import gives_number
from ..model.vocabulary import pieces_of, token_id, token_name
from ..types import Trace
from .aggregate import find

SCORES = ("logit", "probability", "log_probability")
TargetName = str | int | tuple[Any, Any] | None  # what a user writes for a target


@dataclass(frozen=True)
class Target:
    """`ids` at `positions`: one entry for a class or a token, two (start, end) for a span, one for each token of a
    word of several. `foil` is subtracted. `ends`: the logits of a question-answering model that `ids` index."""

    task: str
    positions: tuple[int, ...]  # where token-level logits are read; () for a class of the whole text
    ids: tuple[int, ...]
    foil: int | None
    score: str
    name: str
    ends: tuple[str, ...] = ("start_logits", "end_logits")

    def of(self, output: Any) -> Tensor:
        """The number, for every example of a batch: [batch], differentiable."""
        scores = torch.stack(
            [self._score(logits, i) for logits, i in zip(self.logits_of(output), self.ids, strict=True)]
        )
        return scores.prod(0) if self.score == "probability" else scores.sum(0)

    def logits_of(self, output: Any) -> list[Tensor]:
        """What `ids` index, [batch class] each."""
        if self.task == "question-answering":
            return [getattr(output, name) for name in self.ends]
        if self.task == "classification":
            return [output.logits]
        return [output.logits[:, position] for position in self.positions]

    def _score(self, logits: Tensor, target: int) -> Tensor:
        """The logit (minus the foil's); or the probability among all, among the two with a foil; or its logarithm."""
        if self.score == "logit":
            return logits[:, target] - (0 if self.foil is None else logits[:, self.foil])
        both = logits if self.foil is None else logits[:, [target, self.foil]]
        share = both.log_softmax(-1)[:, target if self.foil is None else 0]
        return share if self.score == "log_probability" else share.exp()


def resolve(
    trace: Trace,
    target: TargetName = "predicted",
    *,
    foil: str | int | None = None,
    score: str = "logit",
    label: str | int | None = None,
    query: int | str | None = None,
) -> Target:
    """The Target a user means. `target` is "predicted", "gold" (then give `label`), a class id or name, a token, a
    (target, foil) pair, or a (start, end) span of a question-answering model, of which (start, None) and (None, end)
    are one end alone. A word of several tokens is the sum of their scores: one at each mask of a masked language
    model, or one after the other (see `sequences`)."""
    model = trace.model
    if not isinstance(score, str) or score not in SCORES:
        raise InputError(f"unknown score {score!r}. {nearest(str(score), SCORES)}")
    if model.task == "base":
        raise InputError(
            f"{model.name!r} was loaded without a head, so it predicts nothing to explain. Load it with task=, for "
            "example "
            "task='classification' or task='masked-lm', or use a method that needs no prediction."
        )
    if score != "logit" and gives_number(model):
        raise InputError(
            f"{model.name!r} gives one number and no class, so it has no probability. Methods explain the number "
            "itself: "
            "score='logit'."
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
    pieces = pieces_meant(model, target)
    if pieces:
        return _sequence(trace, str(target), pieces, foil, score)
    positions = () if model.task == "classification" else (_position(trace, query),)
    predicted = target in ("predicted", None)
    number = int(logits_at(trace, positions).argmax()) if predicted else output_id(model, target, "target")
    against = None if foil is None else output_id(model, foil, "foil")
    if against == number:
        raise InputError(f"target and foil are the same ({_name(model, number)}).")
    name = " - ".join(_name(model, one) for one in (number, against) if one is not None)
    return Target(model.task, positions, (number,), against, score, name)


def logits_at(trace: Trace, positions: tuple[int, ...]) -> Tensor:
    """[class] or [vocabulary], of the trace where it holds them, else of one more forward pass."""
    assert trace.logits is not None
    if not positions:
        return trace.logits
    if positions[0] in trace.predicts:
        return trace.logits[trace.predicts.index(positions[0])]
    return trace.model.logits(trace)[positions[0]]


def _position(trace: Trace, query: int | str | None) -> int:
    if query is not None:
        return find(trace.tokens, query)
    if trace.model.task == "masked-lm" and not trace.predicts:
        raise InputError(
            f"the text has no mask token to predict. Put {_mask(trace.model)} where a word is to be predicted, or "
            "give query=."
        )
    return trace.query


def _mask(model: Model) -> str:
    return getattr(model.tokenizer, "mask_token", None) or "[MASK]"


# --- names and ids of classes and tokens ------------------------------------------------------------------------------


def output_id(model: Model, name: Any, role: str) -> int:
    """The id of a class or a token that is written as an id or by its name."""
    config = model.hf_model.config
    of_classes = model.task.endswith("classification")
    if is_integer(name):
        count = config.num_labels if of_classes else config.vocab_size
        if not 0 <= name < count:
            raise InputError(f"{role} {name} is out of range: {model.name!r} has {count} outputs, 0 to {count - 1}.")
        return int(name)
    if not isinstance(name, str):
        raise InputError(f"a {role} is a class, a token or an id, not {name!r}.")
    if not is_text(name):
        raise InputError(f"the {role} holds half a character (a lone surrogate), which is no text.")
    if not of_classes:
        return token_id(model, name, role)
    ids = {str(label).lower(): int(i) for i, label in config.id2label.items()}
    if name.lower() not in ids:
        raise InputError(f"{model.name!r} has no class {name!r}. {nearest(name, map(str, config.id2label.values()))}")
    return ids[name.lower()]


def _name(model: Model, number: int) -> str:
    if model.task.endswith("classification"):
        return str(model.hf_model.config.id2label.get(number, number))
    return token_name(model, number)


# --- words of several tokens ------------------------------------------------------------------------------------------

GIVEN = "given_pieces"  # in `.info` of a trace: how many tokens of a word of several tokens stand behind its text


def pieces_meant(model: Model, target: Any) -> tuple[int, ...]:
    """The tokens of a target of a language model that is a word of several; empty for any other target."""
    is_word = isinstance(target, str) and target != "predicted" and is_text(target)
    return pieces_of(model, target) if is_word and model.task in ("masked-lm", "causal-lm") else ()


def _sequence(trace: Trace, word: str, pieces: tuple[int, ...], foil: Any, score: str) -> Target:
    """The tokens of a word, each where it is predicted: at as many masks of the text, or at the last positions of a
    text that was traced with the word's tokens behind it, but for the last of them. `score` is summed (a probability
    multiplied) over them."""
    model, given = trace.model, len(pieces) - 1
    told = f"{len(pieces)} ({' '.join(model.tokens(pieces))})"
    if foil is not None:
        raise InputError(f"target {word!r} is {told}: such a target takes no foil. Leave the foil out.")
    not_one = f"target {word!r} is not one token of {model.name!r} but {told}"
    if model.task == "masked-lm":
        places = trace.predicts
        if len(places) != len(pieces):
            raise InputError(
                f"{not_one}, and the text has {len(places)} {_mask(model)}. Write {len(pieces)} of them, or choose a "
                "word that is "
                "one token."
            )
    else:
        if trace.info.get(GIVEN) != given or trace.input_ids[-given:] != pieces[:-1]:
            raise InputError(
                f"{not_one}, which this trace does not hold. Use model.explain or mixlens.attribute, which trace "
                "them, or choose "
                "a word that is one token."
            )
        places = tuple(range(len(trace) - given - 1, len(trace)))
    return Target(model.task, places, pieces, None, score, word)


# --- spans ------------------------------------------------------------------------------------------------------------


def _span(trace: Trace, target: Any, foil: Any, score: str) -> Target:
    """Two positions, of which one may be None: then the other end alone is explained."""
    if foil is not None:
        raise InputError("a span has no foil. Give target=(start, end).")
    if target in ("predicted", None):
        assert trace.logits is not None
        start, end = (int(i) for i in trace.logits.argmax(0))
    else:
        given = [one for one in target if one is not None] if isinstance(target, tuple) and len(target) == 2 else []
        if not given or not all(isinstance(one, int) for one in given):
            raise InputError(
                f"a question-answering model explains a span: target=(start, end) as token positions, not {target!r}."
            )
        if min(given) < 0 or max(given) >= len(trace):
            raise InputError(f"span {target} is out of range: there are {len(trace)} tokens, 0 to {len(trace) - 1}.")
        start, end = target
    task = "question-answering"
    if start is not None and end is not None:
        return Target(task, (start, end), (start, end), None, score, f"span {start} to {end}")
    side, place = ("start", start) if end is None else ("end", end)
    return Target(task, (place,), (place,), None, score, f"{side} {place}", (f"{side}_logits",))
