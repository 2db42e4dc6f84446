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
Wanted = TargetName  # its old name


@dataclass(frozen=True)
class Target:
    """`ids` at `positions`: one entry for a class or a token, two (start, end) for a span, one for each token of a word of
    several. `foil` is subtracted. `ends`: the logits of a question-answering model that `ids` index."""

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
        share = self._log_share(logits, target)
        return share if self.score == "log_probability" else share.exp()

    def _log_share(self, logits: Tensor, target: int) -> Tensor:
        """The logarithm of the target's probability among all, among the two with a foil."""
        if self.foil is None:
            return logits.log_softmax(-1)[:, target]
        return logits[:, [target, self.foil]].log_softmax(-1)[:, 0]


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
    (target, foil) pair, or a (start, end) span of a question-answering model, of which (start, None) and (None, end) are one
    end alone. A word of several tokens is the sum of their scores: one at each mask of a masked language model, or one after
    the other (see `sequences`)."""
    _refuse_unknown_score(score)
    _refuse_headless(trace.model)
    _refuse_share_of_number(trace.model, score)
    target = _gold(label) if target == "gold" else target
    if trace.model.task == "question-answering":
        return _span(trace, target, foil, score)
    if isinstance(target, tuple):
        target, foil = _pair(target, foil)
    pieces = pieces_meant(trace.model, target)
    if pieces:
        return _sequence(trace, str(target), pieces, foil, score)
    return _class_or_token(trace, target, foil, score, query)


def _class_or_token(trace: Trace, target: Any, foil: str | int | None, score: str, query: int | str | None) -> Target:
    model = trace.model
    positions = () if model.task == "classification" else (_position(trace, query),)
    number = _number(trace, target, positions)
    against = None if foil is None else output_id(model, foil, "foil")
    if against == number:
        raise InputError(f"target and foil are the same ({_name(model, number)}).")
    name = " - ".join(_name(model, one) for one in (number, against) if one is not None)
    return Target(model.task, positions, (number,), against, score, name)


def _number(trace: Trace, target: Any, positions: tuple[int, ...]) -> int:
    """The class or token that is meant: the predicted one, or the one that is named."""
    if target in ("predicted", None):
        return int(logits_at(trace, positions).argmax())
    return output_id(trace.model, target, "target")


def _refuse_unknown_score(score: Any) -> None:
    if not isinstance(score, str) or score not in SCORES:
        raise InputError(f"unknown score {score!r}. {nearest(str(score), SCORES)}")


def _refuse_headless(model: Model) -> None:
    if model.task == "base":
        raise InputError(
            f"{model.name!r} was loaded without a head, so it predicts nothing to explain. Load it with task=, for example "
            "task='classification' or task='masked-lm', or use a method that needs no prediction."
        )


def _refuse_share_of_number(model: Model, score: str) -> None:
    if score != "logit" and gives_number(model):
        raise InputError(
            f"{model.name!r} gives one number and no class, so it has no probability. Methods explain the number itself: "
            "score='logit'."
        )


def _gold(label: str | int | None) -> str | int:
    if label is None:
        raise InputError("target='gold' needs the gold label: label=...")
    return label


def _pair(pair: tuple[Any, ...], foil: Any) -> tuple[Any, Any]:
    """The target and the foil of a pair."""
    if len(pair) != 2:
        raise InputError(f"a target and its foil are two, not {len(pair)}.")
    if foil is not None:
        raise InputError("give the foil once: target=(target, foil), or target= and foil=.")
    return pair[0], pair[1]


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
    _refuse_no_mask(trace)
    return trace.query


def _refuse_no_mask(trace: Trace) -> None:
    if trace.model.task == "masked-lm" and not trace.predicts:
        mask = getattr(trace.model.tokenizer, "mask_token", None) or "[MASK]"
        raise InputError(
            f"the text has no mask token to predict. Put {mask} where a word is to be predicted, or give query=."
        )


# --- names and ids of classes and tokens --------------------------------------------------------------------------------


def output_id(model: Model, name: Any, role: str) -> int:
    """The id of a class or a token that is written as an id or by its name."""
    if is_integer(name):
        return _known_id(model, name, role)
    if not isinstance(name, str):
        raise InputError(f"a {role} is a class, a token or an id, not {name!r}.")
    if not is_text(name):
        raise InputError(f"the {role} holds half a character (a lone surrogate), which is no text.")
    return class_id(model, name) if model.task.endswith("classification") else token_id(model, name, role)


def _known_id(model: Model, number: int, role: str) -> int:
    config = model.hf_model.config
    count = config.num_labels if model.task.endswith("classification") else config.vocab_size
    if not 0 <= number < count:
        raise InputError(f"{role} {number} is out of range: {model.name!r} has {count} outputs, 0 to {count - 1}.")
    return number


def class_id(model: Model, name: str) -> int:
    """The class of this name, in upper or lower case."""
    names = model.hf_model.config.id2label
    ids = {str(label).lower(): int(i) for i, label in names.items()}
    if name.lower() not in ids:
        raise InputError(
            f"{model.name!r} has no class {name!r}. {nearest(name, [str(label) for label in names.values()])}"
        )
    return ids[name.lower()]


def _name(model: Model, number: int) -> str:
    if model.task.endswith("classification"):
        return str(model.hf_model.config.id2label.get(number, number))
    return token_name(model, number)


# --- words of several tokens ---------------------------------------------------------------------------------------------

GIVEN = "given_pieces"  # in `.info` of a trace: how many tokens of a word of several tokens stand behind its text


def pieces_meant(model: Model, target: Any) -> tuple[int, ...]:
    """The tokens of a target of a language model that is a word of several; empty for any other target."""
    is_word = isinstance(target, str) and target != "predicted" and is_text(target)
    return pieces_of(model, target) if is_word and model.task in ("masked-lm", "causal-lm") else ()


def _sequence(trace: Trace, word: str, pieces: tuple[int, ...], foil: Any, score: str) -> Target:
    """The tokens of a word, each where it is predicted; `score` is summed (a probability multiplied) over them."""
    if foil is not None:
        raise InputError(
            f"target {word!r} is {_told(trace.model, pieces)}: such a target takes no foil. Leave the foil out."
        )
    places = _mask_places(trace, word, pieces) if trace.model.task == "masked-lm" else _last_places(trace, word, pieces)
    return Target(trace.model.task, places, pieces, None, score, word)


def _mask_places(trace: Trace, word: str, pieces: tuple[int, ...]) -> tuple[int, ...]:
    """The masks of the text, as many as the word has tokens."""
    count = len(trace.predicts)
    if count != len(pieces):
        mask = getattr(trace.model.tokenizer, "mask_token", None) or "[MASK]"
        raise InputError(
            f"target {word!r} is not one token of {trace.model.name!r} but {_told(trace.model, pieces)}, and the text has "
            f"{count} {mask}. Write {len(pieces)} of them, or choose a word that is one token."
        )
    return trace.predicts


def _last_places(trace: Trace, word: str, pieces: tuple[int, ...]) -> tuple[int, ...]:
    """The last positions of a text that was traced with the word's tokens behind it, but for the last of them."""
    given = len(pieces) - 1
    if trace.info.get(GIVEN) != given or trace.input_ids[-given:] != pieces[:-1]:
        raise InputError(
            f"target {word!r} is not one token of {trace.model.name!r} but {_told(trace.model, pieces)}, which this trace does "
            "not hold. Use model.explain or mixlens.attribute, which trace them, or choose a word that is one token."
        )
    return tuple(range(len(trace) - given - 1, len(trace)))


def _told(model: Model, pieces: tuple[int, ...]) -> str:
    return f"{len(pieces)} ({' '.join(model.tokens(pieces))})"


# --- spans --------------------------------------------------------------------------------------------------------------


def _span(trace: Trace, target: Any, foil: Any, score: str) -> Target:
    if foil is not None:
        raise InputError("a span has no foil. Give target=(start, end).")
    start, end = _predicted_span(trace) if target in ("predicted", None) else _known_span(target, len(trace))
    if end is None:
        return _one_end("start", start, score)
    if start is None:
        return _one_end("end", end, score)
    return Target("question-answering", (start, end), (start, end), None, score, f"span {start} to {end}")


def _one_end(end: str, place: int, score: str) -> Target:
    return Target("question-answering", (place,), (place,), None, score, f"{end} {place}", (f"{end}_logits",))


def _predicted_span(trace: Trace) -> tuple[int, int]:
    assert trace.logits is not None
    start, end = (int(i) for i in trace.logits.argmax(0))
    return start, end


def _known_span(target: Any, n: int) -> tuple[Any, Any]:
    """Two positions, of which one may be None: then the other end alone is explained."""
    given = _places_of(target)
    if not given:
        raise InputError(
            f"a question-answering model explains a span: target=(start, end) as token positions, not {target!r}."
        )
    if min(given) < 0 or max(given) >= n:
        raise InputError(f"span {target} is out of range: there are {n} tokens, 0 to {n - 1}.")
    start, end = target
    return start, end


def _places_of(target: Any) -> list[int]:
    """The positions that a pair names, without None; none where it is not a pair of positions."""
    given = [end for end in target if end is not None] if _is_pair(target) else []
    return given if all(isinstance(end, int) for end in given) else []


def _is_pair(target: Any) -> bool:
    return isinstance(target, tuple) and len(target) == 2
