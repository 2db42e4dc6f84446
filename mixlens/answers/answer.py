"""`why`: a model and a text -> `Why`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base.doors import door
from ..base.errors import InputError, MixlensError
from ..model.model import Model
from ..scoring.asking import MethodRequest, scores_of
from ..scoring.attributions import attribute_each
from ..scoring.notices import completeness
from ..scoring.provenance import versions
from ..scoring.removal import Answer as Left
from ..scoring.removal import answers_without, random_sets
from ..types import Attribution, Example, Trace
from . import rules
from .case import DRAWS, FILLERS, Case, case_of, choice_for, output_name, span_text
from .names import name_of
from .notes import notes_of
from .value import Agreement, Answer, Curve, Filler, Gaps, Method, Random, Reading, Single, Trust, Why, Word, from_dict

__all__ = ["Why", "from_dict", "why"]

ALL_SETS = 200  # sets of words up to which all are taken
MOST_STEPS, FEW_STEPS = 12, 6  # words of a removal curve, in a short text and in a long one
LONG = 64  # tokens from which on a text is long
CURVE_TOKENS = 1300  # that the random orders of a curve may take, as they are many and drawn only for the picture
Progress = Callable[[str], None]  # told of each step in words


@dataclass(frozen=True)
class Scored:
    """One method's scores by word (sums of its tokens'), as shares of all evidence (special tokens have none), its
    result."""

    request: MethodRequest
    scores: tuple[float, ...]
    shares: tuple[float, ...]
    result: Attribution

    @property
    def signed(self) -> bool:
        return self.request.signed


@door
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
    draws: int = DRAWS,
    seed: int = 0,
    truncate: bool = False,
    progress: Progress | None = None,
) -> Why:
    """Which words made the model say this, and can that be trusted for this text?

    `target` is the predicted class or word unless named, `foil` what it is explained against; `query` a word that a
    tagger tags. `method` leads in the place of the table's choice, `methods` are those it is compared with. `filler`
    ("delete", "mask", "pad", "unk") stands in the place of words that are taken out, `draws` random sets of words by
    `seed`. `truncate` cuts a text that is longer than the model reads.
    """
    chosen: dict[str, Any] = {"method": method, "methods": methods, "filler": filler, "draws": draws, "seed": seed}
    case = case_of(model, text, target=target, foil=foil, query=query, pair=pair, truncate=truncate, **chosen)
    tell = progress or (lambda step: None)
    scored, left_out = _scored(case, tell)
    lead = scored[0]
    words = tuple(
        Word(
            text=word.text,
            before=word.before,
            segment="pair" if word.source == 1 else "text",
            special=word.special,
            mark=word.mark and not word.special,
            score=score,
            share=share,
            tokens=word.tokens,
        )
        for word, score, share in zip(case.words, lead.scores, lead.shares, strict=True)
    )
    reasons = rules.named(lead.scores, case.free, 1)
    against = rules.named(lead.scores, case.free, -1) if lead.signed else []
    tell("words taken out")
    trust = _trust(case, lead.scores, reasons)
    readings = tuple(_reading(one, case.free, reasons, leads=one is lead) for one in scored)
    same = sum(one.same_first == len(reasons) for one in readings)
    total = sum(map(abs, lead.scores))
    held = sum(abs(score) for score, word in zip(lead.scores, words, strict=True) if word.special)
    certainty = "sure" if case.probability >= rules.LEANS else "leans"
    labels = model.hf_model.config.id2label if model.task.endswith("classification") else None
    answer = Why(
        model=model_name(model),
        task=model.task,
        classes=None if labels is None else tuple(str(labels[number]) for number in sorted(labels)),
        text=case.trace.text or "",
        pair=case.trace.pair,
        answer=Answer(
            case.name,
            case.foil_name,
            case.probability,
            certainty,
            tuple(reasons),
            tuple(against),
            case.predicted,
            case.word,
        ),
        predictions=case.predictions,
        unit="token" if case.trace.words is None or case.trace.text is None else "word",
        words=words,
        special_share=held / total if total else 0.0,
        method=_method(case, lead),
        methods=readings,
        trust=trust,
        agreement=Agreement(same, len(readings), len(reasons)),
        notes=(),
        gaps=Gaps(completeness(lead.result.info), None if model.proof is None else model.proof.gap),
        limits=dict(rules.LIMITS),
        provenance=_provenance(case, scored),
    )
    return replace(answer, notes=notes_of(case, answer, left_out))


# --- scores ----------------------------------------------------------------------------------------------------------


def _scored(case: Case, tell: Progress) -> tuple[list[Scored], list[tuple[str, str]]]:
    """Every method that can answer, the leading one first, then those with signs; and those that cannot, with their
    reasons. A method that the user named to lead must answer."""
    trace = case.trace
    query = case.query if case.query is not None else next(iter(case.measured.positions), None)
    found: list[Scored] = []
    left_out: list[tuple[str, str]] = []
    for number, (written, request) in enumerate(case.requests.items()):
        name = name_of(request.name).name
        tell(f"{name}, method {number + 1} of {len(case.requests)}")
        question: dict[str, Any] = {"target": case.target, "foil": case.foil, "query": query}
        if case.model.task == "question-answering" and not request.is_map:
            question["query"] = None
        try:
            if request.is_map:
                result = scores_of(trace, request, **question)[0]
            else:  # without the warning of scores that do not add up: the answer itself says so
                aim = question if request.class_specific else {"query": question["query"]}
                options = request.options_for(trace)
                given = attribute_each([trace], request.name, [aim], variant=request.variant, **options)[0]
                if isinstance(given, MixlensError):
                    raise given
                result = given
        except MixlensError as error:
            if written == case.settings.method or len(case.requests) == 1:
                raise
            left_out.append((name, str(error)))
            continue
        scores = tuple(float(result.scores[list(word.tokens)].double().sum()) for word in case.words)
        total = sum(abs(score) for score, word in zip(scores, case.words, strict=True) if not word.special)
        shares = [
            0.0 if word.special or not total else score / total for score, word in zip(scores, case.words, strict=True)
        ]
        found.append(Scored(request, scores, tuple(shares), result))
    if not found:
        raise InputError(f"no method could answer: {left_out[0][0]}: {left_out[0][1]}")
    return [found[0], *sorted(found[1:], key=lambda one: not one.signed)], left_out


def _reading(one: Scored, free: Sequence[int], reasons: Sequence[int], *, leads: bool) -> Reading:
    everyday, name = name_of(one.request.name)
    same = len(reasons) if leads else len(rules.first_words(one.shares, free, len(reasons)) & set(reasons))
    gap = completeness(one.result.info)
    return Reading(one.request.name, name, everyday, one.signed, one.scores, one.shares, same, gap)


def _method(case: Case, lead: Scored) -> Method:
    everyday, name = name_of(lead.request.name)
    chosen = case.settings.method is not None or case.settings.methods is not None
    reason = "you chose it" if chosen else choice_for(case.model).reason
    return Method(lead.request.name, name, everyday, str(lead.result.info.get("paper") or ""), reason, lead.signed)


# --- words taken out -------------------------------------------------------------------------------------------------


def _trust(case: Case, scores: Sequence[float], named: Sequence[int]) -> Trust:
    """The answer without the named words, together and each alone, without every other word, without random sets of as
    many (drawn by the seed), and as words go one by one: the highest score first, and in random orders."""
    trace, free, draws = case.trace, case.free, case.settings.draws
    generator = np.random.default_rng(case.settings.seed)
    every = max(ALL_SETS, draws)
    sets, all_sets = random_sets(free, len(named), draws, generator, apart=frozenset(named), all_up_to=every)
    steps = min(len(free), MOST_STEPS if len(trace) <= LONG else FEW_STEPS)
    count = min(draws, max(2, CURVE_TOKENS // max(1, steps * len(trace))))
    orders = [sorted(free, key=lambda word: -scores[word])[:steps]]
    orders += [list(map(int, generator.permutation(free)[:steps])) for _ in range(count)]
    prefixes = [[frozenset(order[:size]) for size in range(len(order) + 1)] for order in orders]
    whole, gone, alone, rest = frozenset[int](), frozenset(named), frozenset(free) - set(named), frozenset(free)
    each = [frozenset({word}) for word in named]
    wanted = [whole, gone, alone, rest, *each, *sets, *(one for order in prefixes for one in order)]
    left = answers_without(trace, case.measured, [word.tokens for word in case.words], wanted, replacement=case.filler)

    def turned(one: frozenset[int]) -> bool:
        """Does the model, which says this of the whole text, say something else now, of all that it can say? Where it
        does not say the target, it can turn from it to the foil alone."""
        if left[whole].is_target:
            return not left[one].is_target
        return case.measured.foil is not None and left[whole].value >= 0.5 > left[one].value

    values = [left[one].value for one in sets]
    shown = values or [left[whole].value]
    first, *random = [tuple(left[one].value for one in order) for order in prefixes]
    most = min(named, key=lambda word: left[frozenset({word})].value, default=None)
    return Trust(
        k=len(named),
        filler=Filler(case.filler, FILLERS[case.filler]),
        whole=left[whole].value,
        without=left[gone].value,
        without_prediction=_says(case, left[gone]),
        turned=turned(gone),
        random=Random(
            float(np.mean(shown)), min(shown), max(shown), len(values), all_sets, sum(map(turned, sets)), tuple(values)
        ),
        alone=left[alone].value,
        empty=left[rest].value,
        single=None if most is None else Single(most, left[frozenset({most})].value, turned(frozenset({most}))),
        curve=Curve(first, tuple(random)),
        without_each=tuple(left[one].value for one in each),
    )


def _says(case: Case, left: Left) -> str:
    """What the model says without the named words."""
    if case.model.task != "question-answering":
        return output_name(case.model, left.predicted[0])
    if left.is_target:
        return span_text(case.trace, case.words, *case.measured.ids)
    start, end = left.predicted
    text = case.model.tokenizer.decode(list(left.input_ids[start : end + 1]), skip_special_tokens=True).strip()
    return str(text) or "no answer"


# --- what an answer rests on -----------------------------------------------------------------------------------------


def model_name(model: Model) -> str:
    """The last part of a folder; a hub id as it is."""
    path = Path(model.name)
    return path.name if path.is_absolute() or path.is_dir() or model.name.startswith(".") else model.name


def _provenance(case: Case, scored: Sequence[Scored]) -> dict[str, Any]:
    """Versions and options, as plain types, and the command that gives this answer again. The path to a folder is left
    out of it: FOLDER stands in its place."""
    model, known, settings = case.model, versions(), case.settings
    keys = ("paper", "variant", "options", "target", "score", "baseline", "steps", "completeness", "convention", "gap")
    facts = {
        one.request.name: {key: _jsonable(one.result.info[key]) for key in keys if key in one.result.info}
        for one in scored
    }
    name = model_name(model)
    options = {
        "--pair": case.trace.pair,
        "--query": case.word,
        "--method": settings.method,
        "--target": None if case.predicted else case.name,
        "--foil": None if case.suggested else case.foil_name,
        "--methods": None if settings.methods is None else ",".join(settings.methods),
        "--filler": settings.filler,
        "--draws": None if settings.draws == DRAWS else str(settings.draws),
        "--seed": None if settings.seed == 0 else str(settings.seed),
    }
    command = ["mixlens", "why", case.trace.text or "", "-m", name if name == model.name else f"FOLDER/{name}"]
    command += [part for flag, value in options.items() if value is not None for part in (flag, value)]
    return {
        **{name: known[name] for name in ("mixlens", "torch", "transformers", "python")},
        "revision": model.revision,
        "family": model.family.name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "quantization": model.quantization,
        "seed": settings.seed,
        "draws": settings.draws,
        "tokens": len(case.trace),
        "methods": facts,
        "command": shlex.join(command),
    }


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_jsonable, value))
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)
