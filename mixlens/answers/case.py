"""`Case`: one text, one question. The door of `why`: everything that a user gives is read, checked and refused here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError, TokenLimitError, checked_seed, is_integer, nearest
from ..base.words import Word, words_in
from ..data.fit import naming_option, truncated
from ..model.model import Model
from ..model.predict import gives_number
from ..model.vocabulary import token_name
from ..scoring.aggregate import find
from ..scoring.asking import MethodRequest, parse_method
from ..scoring.notices import no_mask
from ..scoring.removal import filler_token
from ..scoring.targets import Target, logits_at, output_id, pieces_meant, resolve
from ..types import Example, Trace

DRAWS = 20
MOST_DRAWS = 1000
FOIL = 0.05  # the probability from which on the second-best word of a language model is the foil
LONGEST_SPAN = 30  # tokens of an answer that a question-answering model is taken to give
NO_ANSWER = "no answer"
PREDICTIONS = 5
LANGUAGE = ("masked-lm", "causal-lm")


@dataclass(frozen=True)
class Choice:
    """The methods for a task, the leading one first, and what stands in the place of a word that is taken out."""

    methods: tuple[str, ...]
    reason: str = "of the methods whose scores have signs and add up it led in `judge` for this task"
    fillers: tuple[str, ...] = ("delete",)  # the first that the model has


USUAL = ("deeplift", "attcat", "blank_out", "integrated_gradients", "alti")
# Chosen by `mixlens judge`; docs/use/why.md has its tables, the number of texts and the rule of the choice.
CHOICES: dict[str, Choice] = {
    "classification": Choice(USUAL),
    "token-classification": Choice(USUAL, fillers=("mask", "unk", "delete")),
    "question-answering": Choice(USUAL),
    "masked-lm": Choice(("integrated_gradients", "attcat", "blank_out", "deeplift", "alti")),
    "causal-lm": Choice(("deeplift", "blank_out:replacement=delete", "transatt", "alti", "globenc")),
}
FILLERS = {
    "delete": "words are deleted",
    "mask": "words are replaced by the mask token",
    "pad": "words are replaced by padding",
    "unk": "words are replaced by the unknown token",
}


@dataclass(frozen=True)
class Settings:
    """What the user chose; None is what the table has for the task."""

    method: str | None
    methods: tuple[str, ...] | None
    filler: str | None
    draws: int
    seed: int


@dataclass(frozen=True)
class Case:
    """A text and what is asked of it. `target` and `foil` are as `attribute` takes them."""

    trace: Trace
    cut: int | None  # the number of tokens of a text that was cut
    words: Sequence[Word]  # tokens, where words are not known
    target: Any
    foil: int | None
    query: int | None  # the position a language model or a tagger is read at
    name: str
    foil_name: str | None
    suggested: bool  # the foil was not named by the user
    word: str | None  # the word that is tagged
    predicted: bool  # the target is what the model predicts
    probability: float
    predictions: tuple[tuple[str, float], ...]
    measured: Target  # the target's probability; against a foil its share of the two
    own: frozenset[int]  # positions of the answer itself
    filler: str
    requests: dict[str, MethodRequest]
    settings: Settings

    @property
    def model(self) -> Model:
        return self.trace.model

    @property
    def free(self) -> list[int]:
        """The words that may be taken out: none of special tokens or of the mask that is filled, none of a span that
        answers; where words are deleted not the one that is tagged; no mark, unless there is nothing else. The last
        word of a causal model's text may go: the one before it then predicts. Where nothing stays, the last word does:
        a text is never empty."""
        trace, task = self.trace, self.model.task
        stays = {place for place, special in enumerate(trace.special) if special}
        stays |= {place for place, token in enumerate(trace.input_ids) if token == self.model.mask_id}
        if task == "question-answering" or (task in ("token-classification", "masked-lm") and self.filler == "delete"):
            stays |= self.own
        stays = stays or set(self.words[-1].tokens)
        free = [k for k, word in enumerate(self.words) if not word.special and not set(word.tokens) & stays]
        return [k for k in free if not self.words[k].mark] or free


def case_of(
    model: Model,
    text: Any,
    *,
    target: Any,
    foil: Any,
    query: int | str | None,
    pair: str | None,
    method: str | None,
    methods: Sequence[str] | None,
    filler: str | None,
    draws: int,
    seed: int,
    truncate: bool,
) -> Case:
    """What the user asks, or what suggests itself. What cannot be answered is refused before the model runs."""
    _refuse_kinds(text, method, methods, draws)
    settings = Settings(method, None if methods is None else tuple(methods), filler, draws, checked_seed(seed))
    choice_for(model)
    if gives_number(model):
        raise InputError(
            f"{model.name!r} gives one number and no class, so there is no answer that could turn. Its number is "
            "explained by explain: target=0, score='logit'."
        )
    wanted = list(settings.methods or methods_for(model))
    if method is not None:
        wanted = [method, *(name for name in wanted if parse_method(name).name != parse_method(method).name)]
    requests = {name: parse_method(name) for name in dict.fromkeys(wanted)}
    filled = filler_for(model, filler)

    cut: int | None = None
    if isinstance(text, Trace):
        if text.model is not model:
            raise InputError(
                f"this trace is of {text.model.name!r}, not of {model.name!r}. Trace the text with the model asked."
            )
        trace = text
    else:
        if pair is not None and not isinstance(text, str):
            raise InputError("give the pair once: (text, pair), or text and pair=.")
        if isinstance(text, tuple) and len(text) == 2:
            text = Example(*text)
        example = Example(text, pair) if isinstance(text, str) else text
        if truncate:
            example = truncated(example, model)
            cut = example.info.get("truncated")
        try:
            trace = model.trace(example)
        except TokenLimitError as error:
            raise error if truncate else naming_option(error) from None

    words = words_in(trace)
    ask = _span_asked if model.task == "question-answering" else _output_asked
    asked = ask(trace, words, target, foil, query)
    return Case(trace=trace, cut=cut, words=words, filler=filled, requests=requests, settings=settings, **asked)


def _refuse_kinds(text: Any, method: Any, methods: Any, draws: Any) -> None:
    """Refuse arguments of another kind than those that can be read."""
    if isinstance(text, list):
        raise InputError(
            f"why answers for one text, not for a list of {len(text)}: ask once for each, or use mixlens.run."
        )
    if isinstance(text, bytes):
        raise InputError("a text is a string, not bytes: decode it first, as text.decode('utf-8').")
    if not isinstance(method, str | None):
        raise InputError(f"method= is the name of one method, not {type(method).__name__}; methods= takes several.")
    if isinstance(methods, str):
        names = [name.strip() for name in methods.split(",")]
        raise InputError(f"methods= is a list of names, not {methods!r}: methods={names}.")
    if not is_integer(draws) or not 1 <= draws <= MOST_DRAWS:
        raise InputError(f"draws is a number of random sets, 1 to {MOST_DRAWS}, not {draws!r}.")


# --- what the table has for a model ----------------------------------------------------------------------------------


def choice_for(model: Model) -> Choice:
    """The row of the table for a model's task; a model without a head is refused."""
    if model.task not in CHOICES:
        raise InputError(
            f"{model.name!r} was loaded without a head, so it says nothing that could be explained. Load it with "
            f"task=, for example task='classification'; known: {', '.join(CHOICES)}."
        )
    return CHOICES[model.task]


def methods_for(model: Model) -> tuple[str, ...]:
    """The methods of the table; leaving words out needs no mask token where a model has none."""
    methods = choice_for(model).methods
    if model.mask_id is not None:
        return methods
    return tuple("blank_out:replacement=delete" if one == "blank_out" else one for one in methods)


def known_fillers(model: Model) -> list[str]:
    return [filler for filler in FILLERS if filler == "delete" or filler_token(model, filler) is not None]


def filler_for(model: Model, wanted: str | None) -> str:
    """The filler that is wanted, or the first of the table that the model has; one that it has not is refused."""
    known = known_fillers(model)
    if wanted is None:
        return next(filler for filler in choice_for(model).fillers if filler in known)
    if wanted not in FILLERS:
        raise InputError(f"unknown filler {wanted!r}. {nearest(wanted, FILLERS)}")
    if wanted not in known:
        raise InputError(
            f"{model.name!r} has no {wanted} token to put in the place of a word. Take filler={known[0]!r}."
        )
    return wanted


# --- what is asked ---------------------------------------------------------------------------------------------------


def output_name(model: Model, number: int) -> str:
    """A class by its label, a token by its word."""
    if model.task.endswith("classification"):
        return str(model.hf_model.config.id2label.get(number, number))
    return token_name(model, number, plain=True)


def _output_asked(
    trace: Trace, words: Sequence[Word], target: Any, foil: Any, query: int | str | None
) -> dict[str, Any]:
    """A class of the text, or a word or a tag at a position. Of a language model's own prediction the second-best word
    is the foil, where it has a share or where the best one has less than half."""
    model, own = trace.model, target in (None, "predicted")
    if not own and (pieces := pieces_meant(model, target)):
        command = shlex.join(
            [
                "mixlens",
                "explain",
                "TEXT",
                "-m",
                model.name,
                "--method",
                choice_for(model).methods[0],
                "--target",
                target,
            ]
        )
        raise InputError(
            f"why explains one token, and target {target!r} is {len(pieces)} of {model.name!r} "
            f"({' '.join(model.tokens(pieces))}). Ask: {command}"
        )
    named = None if own else output_id(model, target, "target")
    place = _place(trace, words, query)
    logits = logits_at(trace, () if place is None else (place,)).float()
    best = int(logits.argmax())
    number = best if named is None else named
    shares = logits.softmax(-1)
    against: int | None = None
    if foil is not None:
        against = output_id(model, foil, "foil")
    elif model.task in LANGUAGE and own:
        first, second = shares.topk(2).values.tolist()
        against = int(logits.topk(2).indices[1]) if second >= FOIL or first < 0.5 else None
    top = shares.topk(min(PREDICTIONS, len(shares)))
    return {
        "target": number,
        "foil": against,
        "query": place,
        "name": output_name(model, number),
        "foil_name": None if against is None else output_name(model, against),
        "suggested": foil is None and against is not None,
        "word": next((word.text for word in words if place in word.tokens), None)
        if model.task == "token-classification"
        else None,
        "predicted": number == best,
        "probability": float(shares[number]),
        "predictions": tuple(
            (output_name(model, one), share)
            for one, share in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ),
        "measured": resolve(trace, number, foil=against, score="probability", query=place),
        "own": frozenset() if place is None else frozenset({place}),
    }


def _place(trace: Trace, words: Sequence[Word], query: int | str | None) -> int | None:
    """The position that predicts; None for a class of the whole text. A query is a word of the text (its first token;
    capitals do not count), a token, or an index."""
    model = trace.model
    if model.task == "classification":
        if query is not None:
            raise InputError(
                "query= names a word for a tagger or a language model; a classifier is asked about the whole text."
            )
        return None
    if isinstance(query, str):
        places = [word.tokens[0] for word in words if word.text.lower() == query.lower()]
        if len(places) > 1:
            raise InputError(f"the word {query!r} occurs {len(places)} times, at {places}. Say which one by its index.")
        if places:
            return places[0]
        query = int(query) if query.lstrip("-").isdigit() else query
    if query is not None:
        return find(trace.tokens, query)
    if model.task == "token-classification":
        logits = model.logits(trace)
        free = [word for word in words if not word.special and not word.mark]
        tags = [f"{word.text} {output_name(model, int(logits[word.tokens[0]].argmax()))}" for word in free[:12]]
        told = ", ".join(tags) + (", ..." if len(free) > 12 else "")
        raise InputError(f"a tagger says something of every word. Name one: query=WORD. It tags: {told}.")
    if no_mask(model, trace):
        mask = model.tokenizer.mask_token
        raise InputError(
            f"the text has no {mask}, so {model.name!r} predicts nothing here. Put {mask} where a word is to be "
            "predicted, or name a word: query=WORD."
        )
    return trace.query


# --- spans -----------------------------------------------------------------------------------------------------------


def span_text(trace: Trace, words: Sequence[Word], start: int, end: int) -> str:
    """The words of a span as they stand in the text."""
    if end < start or all(trace.special[start : end + 1]):
        return NO_ANSWER
    inside = [word for word in words if set(word.tokens) & set(range(start, end + 1))]
    return "".join(f"{word.before if number else ''}{word.text}" for number, word in enumerate(inside))


def _span_asked(trace: Trace, words: Sequence[Word], target: Any, foil: Any, query: Any) -> dict[str, Any]:
    """The best span of the context, or the words that are named."""
    if foil is not None:
        raise InputError("an answer of several words has no foil. Leave foil= out.")
    assert trace.logits is not None
    starts, ends = trace.logits.float().softmax(0).unbind(-1)
    source = int(trace.pair is not None)
    spans = _best_spans(trace, words, source, starts, ends)
    start, end = spans[0][0]
    if isinstance(target, tuple):
        start, end = resolve(trace, target).ids[:2]
    elif target not in (None, "predicted"):
        context = (trace.text if trace.pair is None else trace.pair) or ""
        begin = context.lower().find(str(target).lower())
        if begin < 0 or not str(target).strip():
            raise InputError(
                f"the context has no {target!r}. A target is a part of the context, or start,end as token positions."
            )
        inside = [
            word
            for word in words
            if word.source == source and word.begin < begin + len(str(target)) and word.end > begin
        ]
        start, end = inside[0].tokens[0], inside[-1].tokens[-1]
    return {
        "target": (start, end),
        "foil": None,
        "query": None,
        "name": span_text(trace, words, start, end),
        "foil_name": None,
        "suggested": False,
        "word": None,
        "predicted": (start, end) == spans[0][0],
        "probability": float(starts[start] * ends[end]),
        "predictions": tuple((span_text(trace, words, *span), share) for span, share in spans),
        "measured": resolve(trace, (start, end), score="probability"),
        "own": frozenset(range(start, end + 1)),
    }


def _best_spans(
    trace: Trace, words: Sequence[Word], source: int, starts: Tensor, ends: Tensor
) -> list[tuple[tuple[int, int], float]]:
    """The most probable spans of the context, and "no answer" (the first token), with their probabilities."""
    places = sorted(
        place for word in words if word.source == source for place in word.tokens if not trace.special[place]
    )
    both = starts[:, None] * ends[None, :]
    allowed = torch.zeros_like(both, dtype=torch.bool)
    inside = torch.tensor(places, dtype=torch.long)
    allowed[inside[:, None], inside[None, :]] = True
    allowed &= torch.ones_like(allowed).triu().tril(LONGEST_SPAN - 1)
    allowed[0, 0] = True
    top = both.masked_fill(~allowed, -1).flatten().topk(min(PREDICTIONS, int(allowed.sum())))
    n = len(trace)
    return [
        ((number // n, number % n), share)
        for number, share in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]
