"""`why`: a model and a text -> `Why`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import InputError, MixlensError, TokenLimitError, checked_seed, is_integer
from ..base.wrong_kinds import wrong_kinds_in_one_line
from ..data.truncation import naming_option, truncated
from ..model.model import Model
from ..scoring.asking import MethodRequest, parse_method, scores_of
from ..scoring.attributions import attribute_each
from ..scoring.notices import completeness
from ..types import Attribution, Example, Trace
from . import choice, rules, sentences, trust
from .asked import Asked, asked_of
from .facts import classes_of, model_name, provenance_of
from .names import is_signed, name_of
from .notes import notes_of_scores, notes_of_text, notes_of_trust
from .outcome import fall_of, trust_of
from .value import Agreement, Answer, Gaps, Method, Reading, Why, Word
from .words import Piece, pieces_of, removable

Progress = Callable[[str], None]  # told of each step in words


@dataclass(frozen=True)
class Settings:
    """What the user chose; None is what the table has for the task."""

    method: str | None = None
    methods: tuple[str, ...] | None = None
    filler: str | None = None
    draws: int = choice.DRAWS
    seed: int = 0


@wrong_kinds_in_one_line
def why(
    model: Model,
    text: str | Example | tuple[str, str] | Trace,
    *,
    target: Any = None,
    foil: str | int | None = None,
    query: int | str | None = None,
    pair: str | None = None,
    method: str | None = None,
    methods: Sequence[str] | None = None,
    filler: str | None = None,
    draws: int = choice.DRAWS,
    seed: int = 0,
    truncate: bool = False,
    progress: Progress | None = None,
) -> Why:
    """Which words made the model say this, and can that be trusted for this text?

    `target` is the predicted class or word unless named, `foil` what it is explained against; `query` a word that a tagger tags.
    `method` leads in the place of the table's choice, `methods` are those it is compared with. `filler` ("delete", "mask",
    "pad", "unk") stands in the place of words that are taken out, `draws` random sets of words by `seed`. `truncate` cuts a text
    that is longer than the model reads.
    """
    _refuse_kinds(text, method, methods)
    settings = Settings(
        method, None if methods is None else tuple(methods), filler, _checked_draws(draws), checked_seed(seed)
    )
    tell = progress or _silent
    choice.refuse_unanswerable(model)
    requests = _requests(model, settings)
    filled = choice.filler_for(model, filler)
    trace, cut = _traced(model, text, pair, truncate)
    pieces, unit = pieces_of(trace)
    asked = asked_of(trace, pieces, target=target, foil=foil, query=query)
    readings, lead, left_out = _readings(trace, asked, pieces, requests, settings, tell)
    return _put_together(trace, asked, pieces, unit, readings, lead, left_out, filled, settings, cut, tell)


def _refuse_kinds(text: Any, method: Any, methods: Any) -> None:
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


def _silent(step: str) -> None:
    return None


def _checked_draws(draws: int) -> int:
    if not is_integer(draws) or not 1 <= draws <= choice.MOST_DRAWS:
        raise InputError(f"draws is a number of random sets, 1 to {choice.MOST_DRAWS}, not {draws!r}.")
    return draws


def _traced(model: Model, text: Any, pair: str | None, truncate: bool) -> tuple[Trace, int | None]:
    """The trace, and the number of tokens of a text that was cut; None where it was not."""
    if isinstance(text, Trace):
        if text.model is not model:
            raise InputError(
                f"this trace is of {text.model.name!r}, not of {model.name!r}. Trace the text with the model asked."
            )
        return text, None
    example = _example(text, pair)
    if not truncate:
        return _whole(model, example), None
    shorter = truncated(example, model)
    return model.trace(shorter), shorter.info.get("truncated")


def _whole(model: Model, example: Any) -> Trace:
    """The trace of a text that is not cut; one that is too long is refused with what to do."""
    try:
        trace: Trace = model.trace(example)
    except TokenLimitError as error:
        raise naming_option(error) from None
    return trace


def _example(text: Any, pair: str | None) -> Any:
    """The text and its pair, which is given once."""
    if pair is None:
        return (
            Example(*text)
            if isinstance(text, tuple) and len(text) == 2
            else Example(text)
            if isinstance(text, str)
            else text
        )
    if not isinstance(text, str):
        raise InputError("give the pair once: (text, pair), or text and pair=.")
    return Example(text, pair)


# --- scores -------------------------------------------------------------------------------------------------------------


def _requests(model: Model, settings: Settings) -> dict[str, MethodRequest]:
    """The methods as written, the leading one first; an unknown name is refused before the model runs."""
    names = list(settings.methods or choice.methods_for(model))
    if settings.method is not None:
        lead = parse_method(settings.method)
        names = [settings.method, *(name for name in names if parse_method(name).name != lead.name)]
    return {name: parse_method(name) for name in dict.fromkeys(names)}


@dataclass(frozen=True)
class Scored:
    """One method's scores by word, and its attribution."""

    request: MethodRequest
    scores: tuple[float, ...]
    result: Attribution

    @property
    def signed(self) -> bool:
        return is_signed(self.request)


def _readings(
    trace: Trace,
    asked: Asked,
    pieces: Sequence[Piece],
    requests: Mapping[str, MethodRequest],
    settings: Settings,
    tell: Progress,
) -> tuple[list[Scored], Scored, list[tuple[str, str]]]:
    """Every method that can answer, the leading one, and those that cannot with their reasons. A method that the user named to
    lead must answer."""
    found: list[Scored] = []
    left_out: list[tuple[str, str]] = []
    for number, (written, request) in enumerate(requests.items()):
        tell(f"{name_of(request.name).name}, method {number + 1} of {len(requests)}")
        try:
            found.append(_scored(trace, asked, pieces, request))
        except MixlensError as error:
            if written == settings.method or len(requests) == 1:
                raise
            left_out.append((name_of(request.name).name, str(error)))
    if not found:
        raise InputError(f"no method could answer: {left_out[0][0]}: {left_out[0][1]}")
    lead = found[0]
    return [lead, *sorted((one for one in found if one is not lead), key=lambda one: not one.signed)], lead, left_out


def _scored(trace: Trace, asked: Asked, pieces: Sequence[Piece], request: MethodRequest) -> Scored:
    """A method's scores: those of a word are the sum of its tokens'."""
    query = _query_of(asked)
    question: dict[str, Any] = {"target": asked.target, "foil": asked.foil, "query": query}
    if trace.model.task == "question-answering":
        question["query"] = query if request.is_map else None
    result = scores_of(trace, request, **question)[0] if request.is_map else _attributed(trace, request, question)
    return Scored(request, tuple(float(result.scores[list(piece.tokens)].double().sum()) for piece in pieces), result)


def _query_of(asked: Asked) -> int | None:
    """The position that is read: the one asked for, else the first that the target is measured at."""
    if asked.query is not None:
        return asked.query
    return asked.measured.positions[0] if asked.measured.positions else None


def _attributed(trace: Trace, request: MethodRequest, question: Mapping[str, Any]) -> Attribution:
    """What `attribute` gives, without its warning of scores that do not add up: the answer itself says so."""
    aim = question if request.class_specific else {"query": question["query"]}
    result = attribute_each([trace], request.name, [aim], variant=request.variant, **request.options_for(trace))[0]
    if isinstance(result, MixlensError):
        raise result
    return result


def shares_of(scores: Sequence[float], pieces: Sequence[Piece]) -> tuple[float, ...]:
    """Scores as shares of all evidence: their sizes sum to 1 over words that are not special; special tokens have 0."""
    total = sum(abs(score) for score, piece in zip(scores, pieces, strict=True) if not piece.special)
    return tuple(
        0.0 if piece.special or not total else score / total for score, piece in zip(scores, pieces, strict=True)
    )


# --- the answer ---------------------------------------------------------------------------------------------------------


def _put_together(
    trace: Trace,
    asked: Asked,
    pieces: Sequence[Piece],
    unit: str,
    scored: Sequence[Scored],
    lead: Scored,
    left_out: Sequence[tuple[str, str]],
    filler: str,
    settings: Settings,
    cut: int | None,
    tell: Progress,
) -> Why:
    words = _words(pieces, lead)
    free = removable(pieces, _staying(trace, asked, pieces, filler))
    reasons = rules.named_for(lead.scores, free)
    against = rules.named_against(lead.scores, free) if lead.signed else []
    tell("words taken out")
    plan = trust.plan_of(lead.scores, reasons, free, tokens=len(trace), draws=settings.draws, seed=settings.seed)
    removal = trust.Removal(trace, asked.measured, pieces, filler)
    removal.run(plan.every())
    readings = tuple(_reading(one, pieces, free, reasons, leads=one is lead) for one in scored)
    agreement = Agreement(sum(one.same_first == len(reasons) for one in readings), len(readings), len(reasons))
    gaps = Gaps(completeness(lead.result.info), None if trace.model.proof is None else trace.model.proof.gap)
    fall = fall_of(removal, plan, asked)
    trusted = trust_of(removal, plan, fall, asked, filler, agreement, gaps, words, pieces)
    special = _special_share(words, pieces, lead)
    own = _own_share(words, asked) if trace.model.task in OWN else 0
    notes = [
        *notes_of_text(trace, asked, cut, [words[place] for place in reasons]),
        *notes_of_scores(words, reasons, special, lead.signed, own),
        *notes_of_trust(trusted, fall, agreement, left_out, words, reasons),
    ]
    return Why(
        model=model_name(trace.model),
        task=trace.model.task,
        classes=classes_of(trace.model),
        text=trace.text or "",
        pair=trace.pair,
        question=sentences.question(asked, trace.model.task),
        sentence=sentences.headline(asked, words, reasons, against, trusted.but, fall.whole),
        answer=Answer(
            asked.name,
            asked.foil_name,
            asked.probability,
            rules.certainty(asked.probability),
            tuple(reasons),
            tuple(against),
            asked.predicted,
        ),
        predictions=asked.predictions,
        unit=unit,
        words=words,
        special_share=special,
        method=_method(lead, settings, trace.model),
        methods=readings,
        trust=trusted,
        agreement=agreement,
        notes=tuple(notes),
        gaps=gaps,
        limits=dict(choice.LIMITS),
        provenance=provenance_of(trace, settings, scored, asked),
    )


OWN = ("question-answering",)  # tasks whose answer is made of words of the text


def _words(pieces: Sequence[Piece], lead: Scored) -> tuple[Word, ...]:
    shares = shares_of(lead.scores, pieces)
    return tuple(
        Word(
            piece.text,
            piece.before,
            piece.segment,
            piece.special,
            piece.mark and not piece.special,
            score,
            share,
            piece.tokens,
        )
        for piece, score, share in zip(pieces, lead.scores, shares, strict=True)
    )


def _own_share(words: Sequence[Word], asked: Asked) -> float:
    """The part of the evidence that the answer's own words hold."""
    return sum(abs(word.share) for word in words if set(word.tokens) & asked.own)


def _staying(trace: Trace, asked: Asked, pieces: Sequence[Piece], filler: str) -> set[int]:
    """Positions that are never taken out: special tokens, the mask that is filled, the words of a span; where words are deleted
    also the word that is tagged. The last word of a causal model's text may go: the one before it then predicts. Where nothing
    stays, the last word does: a text is never empty."""
    special = {place for place, flag in enumerate(trace.special) if flag}
    masks = {place for place, token in enumerate(trace.input_ids) if token == trace.model.mask_id}
    stays = special | masks | (set(asked.own) if _own_stay(trace.model.task, filler) else set())
    return stays or set(pieces[-1].tokens)


def _own_stay(task: str, filler: str) -> bool:
    """Whether the answer's own positions stay: those of a span; of a tag or a mask where words are deleted."""
    return task == "question-answering" or (task in ("token-classification", "masked-lm") and filler == "delete")


def _special_share(words: Sequence[Word], pieces: Sequence[Piece], lead: Scored) -> float:
    """The part of all scores that special tokens hold."""
    total = sum(map(abs, lead.scores))
    held = sum(abs(score) for score, piece in zip(lead.scores, pieces, strict=True) if piece.special)
    return held / total if total else 0.0


def _reading(
    one: Scored, pieces: Sequence[Piece], free: Sequence[int], reasons: Sequence[int], *, leads: bool
) -> Reading:
    everyday, name = name_of(one.request.name)
    shares = shares_of(one.scores, pieces)
    same = len(reasons) if leads else len(rules.first_words(shares, free, len(reasons)) & set(reasons))
    return Reading(
        one.request.name, name, everyday, one.signed, one.scores, shares, same, completeness(one.result.info)
    )


def _method(lead: Scored, settings: Settings, model: Model) -> Method:
    everyday, name = name_of(lead.request.name)
    chosen = settings.method is not None or settings.methods is not None
    reason = "you chose it" if chosen else choice.choice_for(model).reason
    return Method(lead.request.name, name, everyday, str(lead.result.info.get("paper") or ""), reason, lead.signed)
