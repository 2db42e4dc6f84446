"""Scores of other tools as Attributions, and functions that score a trace as methods: shown, saved and judged like
ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base.doors import door
from ..base.errors import InputError
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


@door
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

    `scores`: numbers, one for each token (a list, numpy, torch); captum's [1, n, d] or [n, d], which are summed over d;
    a shap Explanation, of several outputs the one that `output` numbers; an inseq result, of which `output` is the
    number of the written token; a ferret Explanation; an Attribution of the same tokens; or (word, score) pairs, all
    words in their order, of which the tokens of a word share its score. Scores that do not fit the tokens are refused.
    `target` names what they explain."""
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


# --- what other tools give ----------------------------------------------------------------------------------------


def aligned(trace: Trace | Sequence[str], scores: Any, output: int | None = None) -> tuple[Tensor, dict[str, Any]]:
    """[pos], and where the scores come from."""
    tokens = list(trace.tokens if isinstance(trace, Trace) else map(str, trace))
    if isinstance(scores, Attribution):
        _refuse_other_tokens(tokens, scores.tokens, "the attribution")
        return scores.scores.double(), {"from": f"mixlens {scores.method}"}
    pairs = list(scores.items()) if isinstance(scores, Mapping) else scores
    if isinstance(pairs, list | tuple) and pairs and all(map(_is_pair, pairs)):
        return _of_pairs(trace, tokens, pairs)
    values: Any = scores
    origin: dict[str, Any] = {"from": type(scores).__name__}
    if _has(scores, "values base_values data"):  # shap: [n], [n, output], or the same behind an axis of one text
        values, origin = _array(scores.values), {"from": "shap.Explanation"}
        values = values[0] if len(values) == 1 and len(tokens) != 1 else values
        if values.ndim == 2:
            values = values[:, _chosen(output, values.shape[1], "shap's outputs")]
        origin |= {} if output is None else {"output": output}
    elif _has(scores, "target_attributions source_attributions"):  # inseq: [token, written token], maybe a last axis
        of_target = scores.source_attributions is None
        values = _array(scores.target_attributions if of_target else scores.source_attributions)
        values = np.moveaxis(values, 1, 0)[_chosen(output, values.shape[1], "the written tokens")]
        values = np.nan_to_num(values[: len(tokens)], nan=0.0)  # tokens behind the written one have no score
        origin = {"from": f"inseq.{type(scores).__name__}", "output": output}
    elif _has(scores, "tokens scores explainer"):
        _refuse_other_tokens(tokens, scores.tokens, "ferret")
        values, origin = scores.scores, {"from": f"ferret {scores.explainer}"}
    elif type(scores).__module__ != "builtins":
        origin = {"from": f"{type(scores).__module__.partition('.')[0]}.{type(scores).__name__}"}
    return _of_numbers(tokens, _array(values), origin)


def _has(scores: Any, names: str) -> bool:
    return all(hasattr(scores, name) for name in names.split())


def _is_pair(given: Any) -> bool:
    """A name and what belongs to it."""
    return isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[0], str)


def _of_numbers(tokens: Sequence[str], values: Any, origin: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """Numbers for each token, or vectors, which are summed."""
    while values.ndim > 1 and len(values) == 1 and len(tokens) != 1:
        values = values[0]
    if values.ndim == 2 and len(values) == len(tokens):
        origin = {**origin, "summed_over": values.shape[1]}
        values = values.sum(-1)
    if values.shape != (len(tokens),):
        raise InputError(
            f"there are {len(tokens)} tokens ({' '.join(tokens)!r:.120}) and scores of the shape "
            f"{list(values.shape)}. Give one for each token, or (word, score) pairs."
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


def _refuse_other_tokens(tokens: Sequence[str], theirs: Sequence[Any], tool: str) -> None:
    names = [str(token) for token in theirs]
    if names != tokens:
        raise InputError(
            f"{tool}'s tokens are not those of the trace: {' '.join(names)!r:.120} and {' '.join(tokens)!r:.120}."
        )


def _chosen(output: int | None, count: int, what: str) -> int:
    if output is None or not -count <= output < count:
        raise InputError(f"{what} are {count}: say which, output=0 to {count - 1}, not {output!r}.")
    return output


def _of_pairs(trace: Any, tokens: list[str], pairs: Sequence[Any]) -> tuple[Tensor, dict[str, Any]]:
    """Words in their order, each with a score that its tokens share. Special tokens may be left out: their score is 0.

    They name the words without special tokens, all words, the tokens without special ones, or all tokens: the first of
    these lists that has their names. Capitals do not count."""
    special = trace.special if isinstance(trace, Trace) and trace.special else (False,) * len(tokens)
    words: list[Unit] = list(trace.words or ()) if isinstance(trace, Trace) else []
    single: list[Unit] = [(token, (i,)) for i, token in enumerate(tokens)]
    lists: list[list[Unit]] = []
    for units in (words, single):
        lists += [[unit for unit in units if not all(special[i] for i in unit[1])], units] if units else []
    names = [name.lower() for name, _ in pairs]
    wanted = next((units for units in lists if [word.lower() for word, _ in units] == names), None)
    if wanted is None:
        given, told = (" ".join(name for name, _ in some) for some in (pairs, lists[0]))
        raise InputError(f"the words do not fit the text: {given!r:.120} were given, and its words are {told!r:.120}.")
    values = torch.zeros(len(tokens), dtype=torch.float64)
    for (_, positions), (_, score) in zip(wanted, pairs, strict=True):
        values[list(positions)] = float(_array(score)) / len(positions)
    return values, {"from": "pairs of words and scores", "words": len(pairs)}


# --- functions as methods ---------------------------------------------------------------------------------------------


@contextmanager
def as_methods(functions: Mapping[str, Scorer]) -> Iterator[None]:
    """While the block runs, each function `trace -> scores` is a method of this name. One that has a parameter `target`
    gets what is explained (a `Target`) and counts as a method that explains a class or a word."""
    for name, function in functions.items():
        if not callable(function):
            raise InputError(f"a method from outside is a function of a trace, not {function!r:.60}.")
        if not METHOD_NAME.fullmatch(name):
            raise InputError(f"a method's name is of letters, digits, '_', '-' and spaces, not {name!r:.60}.")
        if name in known() or name in known_maps():
            raise InputError(f"there is a method {name!r} already. Give yours another name.")
    try:
        for name, function in functions.items():
            ATTRIBUTIONS[name] = method_of(name, function)
        yield
    finally:
        for name in functions:
            ATTRIBUTIONS.pop(name, None)


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
