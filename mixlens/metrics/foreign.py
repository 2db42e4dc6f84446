"""Scores of other tools as Attributions, and functions that score a trace as methods: shown, saved and judged like ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.wrong_kinds import wrong_kinds_in_one_line
from ..scoring.asking import METHOD_NAME
from ..scoring.maps import known as known_maps
from ..scoring.notices import notices_in
from ..scoring.provenance import provenance
from ..scoring.questions import Question
from ..scoring.registry import ATTRIBUTIONS, AttributionMethod
from ..scoring.registry import known_attributions as known
from ..types import Attribution, Trace

PAPER = "scores given from outside"
Scorer = Callable[..., Any]
Unit = tuple[str, tuple[int, ...]]  # a word or a token, and its positions


@wrong_kinds_in_one_line
def attribution_from(
    trace: Trace | Sequence[str],
    scores: Any,
    *,
    name: str = "my method",
    signed: bool = True,
    target: str | None = None,
    output: int | None = None,
) -> Attribution:
    """An Attribution with scores of another tool, for a trace (or a list of tokens).

    `scores`: numbers, one for each token (a list, numpy, torch); captum's [1, n, d] or [n, d], which are summed over d; a shap
    Explanation, of several outputs the one that `output` numbers; an inseq result, of which `output` is the number of the written
    token; a ferret Explanation; an Attribution of the same tokens; or (word, score) pairs, all words in their order, of which the
    tokens of a word share its score. Scores that do not fit the tokens are refused. `target` names what they explain.
    """
    tokens = trace.tokens if isinstance(trace, Trace) else tuple(map(str, trace))
    values, origin = aligned(trace, scores, output)
    _refuse_values(values, len(tokens), signed)
    facts: dict[str, Any] = {"method": name, "paper": PAPER, "signed": signed, "foreign": origin}
    facts |= {} if target is None else {"target": str(target), "score": "score"}
    if not isinstance(trace, Trace):
        return Attribution(values, tokens, str(name), facts)
    place = {"query": trace.query, "query_token": tokens[trace.query], "prediction": trace.prediction()}
    info = {**provenance(trace), **place, **facts, **notices_in(trace, trace.query)}
    return Attribution(values, tokens, str(name), info, trace.special, trace.words)


def _refuse_values(values: Tensor, n: int, signed: bool) -> None:
    if values.shape != (n,):
        raise InputError(
            f"there are {n} tokens and scores of the shape {list(values.shape)}. Give one score for each token."
        )
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"score {int((~torch.isfinite(values)).nonzero()[0])} is not a finite number.")
    if not signed and bool((values < 0).any()):
        place = int((values < 0).nonzero()[0])
        raise InputError(f"signed=False, and score {place} is {float(values[place]):.4g}. Give signed=True.")


# --- what other tools give ------------------------------------------------------------------------------------------------


def aligned(trace: Trace | Sequence[str], scores: Any, output: int | None = None) -> tuple[Tensor, dict[str, Any]]:
    """[pos], and where the scores come from."""
    tokens = list(trace.tokens if isinstance(trace, Trace) else map(str, trace))
    for fits, read in READERS:
        if fits(scores):
            return read(trace, tokens, scores, output)
    return _of_numbers(tokens, scores, {"from": _type_name(scores)})


def _type_name(scores: Any) -> str:
    kind = type(scores)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def _of_numbers(tokens: Sequence[str], scores: Any, origin: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """Numbers for each token, or vectors, which are summed."""
    values = _array(scores)
    while values.ndim > 1 and len(values) == 1 and len(tokens) != 1:
        values = values[0]
    if values.ndim == 2 and len(values) == len(tokens):
        origin = {**origin, "summed_over": values.shape[1]}
        values = values.sum(-1)
    if values.shape != (len(tokens),):
        raise InputError(
            f"there are {len(tokens)} tokens ({' '.join(tokens)!r:.120}) and scores of the shape {list(values.shape)}. Give one "
            "for each token, or (word, score) pairs."
        )
    return torch.from_numpy(values), origin


def _array(scores: Any) -> Any:
    """[...] in float64."""
    plain = scores.detach().cpu().double().numpy() if isinstance(scores, Tensor) else scores
    try:
        return np.array(plain, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"scores are numbers, one for each token, or (word, score) pairs, not {scores!r:.80}."
        ) from None


def _same_tokens(tokens: Sequence[str], theirs: Sequence[Any], tool: str) -> None:
    names = [str(token) for token in theirs]
    if names != list(tokens):
        raise InputError(
            f"{tool}'s tokens are not those of the trace: {' '.join(names)!r:.120} and {' '.join(tokens)!r:.120}."
        )


def _is_attribution(scores: Any) -> bool:
    return isinstance(scores, Attribution)


def _of_attribution(
    trace: Any, tokens: list[str], scores: Attribution, output: int | None
) -> tuple[Tensor, dict[str, Any]]:
    _same_tokens(tokens, scores.tokens, "the attribution")
    return scores.scores.double(), {"from": f"mixlens {scores.method}"}


def _is_shap(scores: Any) -> bool:
    return hasattr(scores, "values") and hasattr(scores, "base_values") and hasattr(scores, "data")


def _of_shap(trace: Any, tokens: list[str], scores: Any, output: int | None) -> tuple[Tensor, dict[str, Any]]:
    """values [n], [n, output], or the same behind an axis of one text."""
    values = _array(scores.values)
    values = values[0] if len(values) == 1 and len(tokens) != 1 else values
    if values.ndim == 2:
        values = values[:, _chosen(output, values.shape[1], "shap's outputs")]
    return _of_numbers(tokens, values, {"from": "shap.Explanation", **({} if output is None else {"output": output})})


def _chosen(output: int | None, count: int, what: str) -> int:
    if output is None or not -count <= output < count:
        raise InputError(f"{what} are {count}: say which, output=0 to {count - 1}, not {output!r}.")
    return output


def _is_inseq(scores: Any) -> bool:
    return hasattr(scores, "target_attributions") and hasattr(scores, "source_attributions")


def _of_inseq(trace: Any, tokens: list[str], scores: Any, output: int | None) -> tuple[Tensor, dict[str, Any]]:
    """[prefix token, written token], and maybe a last axis that is summed; tokens behind the written one have no score."""
    of_target = scores.source_attributions is None
    values = _array(scores.target_attributions if of_target else scores.source_attributions)
    column = np.moveaxis(values, 1, 0)[_chosen(output, values.shape[1], "the written tokens")]
    shorter = np.nan_to_num(column[: len(tokens)], nan=0.0)
    return _of_numbers(tokens, shorter, {"from": f"inseq.{type(scores).__name__}", "output": output})


def _is_ferret(scores: Any) -> bool:
    return hasattr(scores, "tokens") and hasattr(scores, "scores") and hasattr(scores, "explainer")


def _of_ferret(trace: Any, tokens: list[str], scores: Any, output: int | None) -> tuple[Tensor, dict[str, Any]]:
    _same_tokens(tokens, scores.tokens, "ferret")
    return _of_numbers(tokens, scores.scores, {"from": f"ferret {scores.explainer}"})


def _is_pairs(scores: Any) -> bool:
    given = list(scores.items()) if isinstance(scores, Mapping) else scores
    return isinstance(given, list | tuple) and bool(given) and all(map(_is_pair, given))


def _is_pair(given: Any) -> bool:
    """A name and what belongs to it."""
    return isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[0], str)


def _of_pairs(trace: Any, tokens: list[str], scores: Any, output: int | None) -> tuple[Tensor, dict[str, Any]]:
    """Words in their order, each with a score that its tokens share. Special tokens may be left out: their score is 0."""
    pairs = list(scores.items()) if isinstance(scores, Mapping) else list(scores)
    wanted = _named_units(_units(trace, tokens), [word for word, _ in pairs])
    values = torch.zeros(len(tokens), dtype=torch.float64)
    for (_, positions), (_, score) in zip(wanted, pairs, strict=True):
        values[list(positions)] = float(_array(score)) / len(positions)
    return values, {"from": "pairs of words and scores", "words": len(pairs)}


def _named_units(units: Sequence[list[Unit]], names: Sequence[str]) -> list[Unit]:
    """The first of the lists of words that has these names; capitals do not count."""
    wanted = next(
        (some for some in units if [word.lower() for word, _ in some] == [name.lower() for name in names]), None
    )
    if wanted is None:
        told = " ".join(word for word, _ in units[0])
        raise InputError(
            f"the words do not fit the text: {' '.join(names)!r:.120} were given, and its words are {told!r:.120}."
        )
    return wanted


def _units(trace: Any, tokens: list[str]) -> list[list[Unit]]:
    """What pairs may name, in order: the words without special tokens, all words, the tokens without special ones, all tokens."""
    special = trace.special if isinstance(trace, Trace) and trace.special else (False,) * len(tokens)
    words = list(trace.words or ()) if isinstance(trace, Trace) else []
    single: list[Unit] = [(token, (i,)) for i, token in enumerate(tokens)]
    lists = [units for units in (words, single) if units]
    return [some for units in lists for some in (_without_special(units, special), units)]


def _without_special(units: Sequence[Unit], special: Sequence[bool]) -> list[Unit]:
    return [unit for unit in units if not all(special[i] for i in unit[1])]


Reader = tuple[Callable[[Any], bool], Callable[[Any, list[str], Any, int | None], tuple[Tensor, dict[str, Any]]]]
READERS: tuple[Reader, ...] = (
    (_is_attribution, _of_attribution),
    (_is_shap, _of_shap),
    (_is_inseq, _of_inseq),
    (_is_ferret, _of_ferret),
    (_is_pairs, _of_pairs),
)


# --- functions as methods -------------------------------------------------------------------------------------------------


@contextmanager
def as_methods(functions: Mapping[str, Scorer]) -> Iterator[None]:
    """While the block runs, each function `trace -> scores` is a method of this name. One that has a parameter `target` gets what
    is explained (a `Target`) and counts as a method that explains a class or a word."""
    for name, function in functions.items():
        _refuse_name(name, function)
    try:
        for name, function in functions.items():
            ATTRIBUTIONS[name] = method_of(name, function)
        yield
    finally:
        for name in functions:
            ATTRIBUTIONS.pop(name, None)


def _refuse_name(name: str, function: Any) -> None:
    if not callable(function):
        raise InputError(f"a method from outside is a function of a trace, not {function!r:.60}.")
    if not METHOD_NAME.fullmatch(name):
        raise InputError(f"a method's name is of letters, digits, '_', '-' and spaces, not {name!r:.60}.")
    if name in known() or name in known_maps():
        raise InputError(f"there is a method {name!r} already. Give yours another name.")


def method_of(name: str, function: Scorer) -> AttributionMethod:
    """The entry of a function `trace -> scores` for the registry of methods."""
    has_target = "target" in inspect.signature(function).parameters

    def scored(question: Question) -> tuple[Tensor, dict[str, Any]]:
        trace = question.trace
        values, origin = aligned(trace, function(trace, target=question.resolved) if has_target else function(trace))
        _refuse_values(values, len(trace), True)
        return values.to(question.model.dtype), {"foreign": origin, "signed": True}

    scored.__doc__ = inspect.getdoc(function) or PAPER
    return AttributionMethod(name, scored, PAPER, ("paper",), "?", "logit", has_target, False, signed=True)
