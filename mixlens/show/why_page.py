"""The page of an answer: one JSON form, in which every text and every number as it is read stands; the script lays it
out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..answers.telling import chance, quotes, ranked, same_first, shown_words
from ..answers.value import Reading, Why, Word
from ..base.parts import Number, Quote, Sentence, Strong, joined, said
from ..base.text import MINUS, THIN, gap, number_word, percent, probability
from .colors import hue_of
from .page_entry import shortened
from .page_file import may_write, write
from .page_template import (
    BASE_SCRIPTS,
    BASE_STYLES,
    READ,
    WHY_SCRIPTS,
    WHY_STYLES,
    Kind,
    filled_page,
    visible,
)

WHY = Kind(
    (*BASE_STYLES, *WHY_STYLES),
    (*BASE_SCRIPTS, *WHY_SCRIPTS),
    f'startWhy({READ}, document.getElementById("main"));',
)
TASKS = {  # what a model is called; what is asked of it
    "classification": ("Classifier", "Why this class?"),
    "token-classification": ("Tagger", "Why this tag?"),
    "question-answering": ("Question answering", "Why this answer?"),
    "masked-lm": ("Masked language model", "Why this word?"),
    "causal-lm": ("Language model", "Why this word?"),
}
SEGMENTS = {"text": "Text", "pair": "Second text", "written": "Written so far"}
SLOTS = ("[MASK]", "<mask>")
MOST_CLASSES = 8  # named above the question
NAMED_BARS = 7  # words beside bars; the rest is one line
MOST_COLUMNS, FEW_COLUMNS = 24, 14  # words of a methods table; a longer text shows those that count most
COLUMNS_ROOM = 800  # pixels that their columns may take
LEAST_SPREAD = 0.05  # of the evidence: methods that are nearer to each other on every word do not disagree
LONG, MOST_TINTED, MARKED = 60, 20, 0.03  # as base.js tints words
LIMIT_NAMES = {
    "removal_ok": "words out, against random: passes from",
    "removal_caution": "words out, against random: caution from",
    "random_turned": "random turned",
    "completeness_ok": "gap of the sum: passes up to",
    "completeness_caution": "gap of the sum: caution up to",
    "agreement_ok": "methods with the same words first: passes above",
}


def why_page(why: Why) -> str:
    """The whole page as one string."""
    return filled_page(
        {"why": shown_why(why)},
        WHY,
        title=why.question,
        subtitle=about_line(why),
        crumb=TASKS[why.task][1],
        name=f"{why.question} {shortened(visible(why.text), 60)} · mixlens",
        answer=why.sentence,
    )


def write_why(why: Why, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write the page. A file that is no page of mixlens is not overwritten, unless `force`."""
    place = Path(path)
    may_write(place, force=force)
    write(why_page(why), place)
    return place


def about_line(why: Why) -> str:
    """The small line above the question: what kind of model this is, and its classes."""
    classes = why.classes or ()
    named = f"classes: {', '.join(classes)}" if len(classes) <= MOST_CLASSES else f"{len(classes)} classes"
    return " · ".join([f"{TASKS[why.task][0]} {why.model}", *([named] if classes else [])])


def shown_why(why: Why) -> dict[str, Any]:
    """What the page shows. A sentence is a list of parts; characters that cannot be seen are spelled out, and numbers
    from which pictures are drawn have seven digits, as maps on pages have."""
    told, gaps = why.told, why.gaps.completeness
    doubt = [check.state for check in why.trust.checks if check.id == "completeness"] == ["fail"]
    notes = [(note.state, note.text) for note in why.notes]
    if doubt and gaps is not None:
        text = said("They miss ", Number(gap(gaps)), " of the model’s output, so the shares below are not exact.")
        notes.insert(
            sum(state == "fail" for state, _ in notes), ("fail", said(Strong("The scores do not add up. "), text))
        )
    words = [
        {
            "text": word.text,
            "before": word.before,
            "segment": word.segment,
            "special": word.special,
            "share": word.share,
        }
        for word in why.words
    ]
    page = {
        "model": why.model,
        "text": why.text,
        "title": str(why.question),
        "sentence": str(why.sentence),
        "question": told.question,
        "answer": said(told.sentence, "."),
        "others": told.others,
        "notes": notes,
        "signed": why.method.signed,
        "doubt": doubt,
        "words": words,
        "specimen": _specimen(why),
        "which": _which(why),
        "trust": _trust(why),
        "falling": _falling(why),
        "methods": _methods(why),
        "provenance": {
            "title": "Where these numbers come from",
            "lead": "model, method, versions, what was checked, the command",
            "rows": _provenance(why),
            "command": why.provenance.get("command"),
        },
    }
    return dict(_shown(page))


def _shown(value: Any) -> Any:
    if isinstance(value, Sentence):
        return _shown(value.plain())
    if isinstance(value, str):
        return THIN.join(map(visible, value.split(THIN)))
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, Mapping):
        return {key: _shown(one) for key, one in value.items()}
    return list(map(_shown, value)) if isinstance(value, list | tuple) else value


def raw(value: float) -> str:
    """A raw number: four digits, sign written."""
    size = abs(value)
    text = "0" if size == 0 else f"{size:.4g}" if 1e-4 <= size < 1e4 else f"{size:.2e}"
    return f"{MINUS}{text}" if value < 0 else text


def share_of(why: Why, word: Word) -> str:
    return percent(word.share, sign=why.method.signed)


# --- the text, and which words counted -------------------------------------------------------------------------------


def _specimen(why: Why) -> dict[str, Any]:
    """The text as it was written, and what is said of each word that is pointed at."""
    unit, signed, target = why.unit, why.method.signed, why.answer.target
    names = SEGMENTS | ({"text": "Question", "pair": "Text"} if why.task == "question-answering" else {})
    used = [name for name in SEGMENTS if any(word.segment == name for word in why.words)]
    held = f"; they held {percent(why.special_share)} of all scores" if why.special_share > 0 else ""
    slots = [k for k, word in enumerate(why.words) if word.text in SLOTS]
    specials = any(word.special and word.text not in SLOTS for word in why.words)
    what = (
        f"share of all evidence in this text; for and against make 100{THIN}%."
        if signed
        else f"share of the answer; all {unit}s make 100{THIN}%. It says how much, not which way."
    )
    marked = f"{unit.capitalize()}s under {MARKED:.0%} carry no mark.".replace("%", f"{THIN}%")
    if len(why.words) > LONG:
        marked = f"The {MOST_TINTED} {unit}s that count most are marked."
    lines = []
    for word in why.words:
        number = Number(raw(word.score))
        if word.special:
            lines.append(said(Quote(word.text), " is a special token: raw score ", number, ", left out of the shares"))
        else:
            of = "the evidence" if signed else "the answer"
            lines.append(
                said(Quote(word.text), " carries ", Number(share_of(why, word)), f" of {of} (raw score ", number, ")")
            )
    return {
        "segments": [
            [name, names[name], f"{names[name]}, each {unit} with its share of the evidence"] for name in used
        ],
        "slots": slots,
        "span": _span(why),
        "special": f"Show special tokens{held}" if specials else None,
        "point": f"Point at a {unit}, or go through the text with the arrow keys.",
        "sides": [f"against {target}", f"for {target}" if signed else "share of the answer"],
        "unit": f"Unit: {what} {marked}",
        "lines": lines,
    }


def _span(why: Why) -> list[int]:
    """The words of the answer where it stands in the text once, for question answering."""
    wanted = "".join(why.answer.target.split())
    if why.task != "question-answering" or not wanted:
        return []
    context = [k for k, word in enumerate(why.words) if word.segment == "pair"]
    runs = [context[i : j + 1] for i in range(len(context)) for j in range(i, min(len(context), i + 40))]
    found = [run for run in runs if "".join("".join(why.words[k].text.split()) for k in run) == wanted]
    return found[0] if len(found) == 1 else []


def _which(why: Why) -> dict[str, Any]:
    """The words beside bars: those that the sentence names, then those with the largest shares; and what the others
    carry."""
    target, signed, shown = why.answer.target, why.method.signed, shown_words(why)
    places, rest = ranked(why, NAMED_BARS)
    sums = {
        "against": -sum(min(0, why.words[k].share) for k in shown),
        "for": sum(max(0, why.words[k].share) for k in shown),
    }
    numbers = [
        [
            word.text,
            "special" if word.special else share_of(why, word),
            raw(word.score),
            " ".join(map(str, word.tokens)),
        ]
        for word in why.words
    ]
    kind, sign = ("evidence", ".") if signed else ("answer", "; it has no sign.")
    lead = f"Share of the {kind}, by {why.method.name}{sign}"
    bars = [
        {"k": k, "name": why.words[k].text, "which": one.which.strip(), "share": why.words[k].share}
        | {"title": f"raw score {raw(why.words[k].score)}"}
        for k, one in zip(places, quotes(why.words, places), strict=True)
    ]
    return {
        "title": "Which words counted, and which way" if signed else "Which words counted",
        "lead": lead,
        "balance": [[side, share, f"{side} {target}"] for side, share in sums.items()] if signed else [],
        "label": f"For {target} {percent(sums['for'])}, against {percent(sums['against'])}",
        "heads": ["← against", "for →"] if signed and all(sums.values()) else None,
        "bars": bars,
        "rest": rest,
        "numbers": ["Every number, with the raw scores", [why.unit, "share", "raw score", "token positions"], numbers],
    }


# --- trust, the curve, methods ---------------------------------------------------------------------------------------


def _trust(why: Why) -> dict[str, Any]:
    told, filler = why.told, why.trust.filler.text
    checks = [
        {"state": one.state, "title": one.title, "detail": one.detail, "before": one.before, "after": one.after}
        | {"band": None if one.low is None else [one.low, one.high], "strong": one.id == "removal"}
        for one in why.trust.checks
        if one.id != "reconstruction"
    ]
    return {
        "title": "Can I trust this?",
        "state": why.trust.verdict,
        "sentence": why.trust.sentence,
        "checks": checks,
        "without": told.without,
        "axis": [f"0{THIN}%", why.trust.measures, f"100{THIN}%"],
        "marks": [" whole text", f" words taken out ({filler})"],
    }


def _falling(why: Why) -> dict[str, Any] | None:
    """The curve, and every number of it."""
    first, random, k = why.trust.curve.first, why.trust.curve.random, why.trust.k
    if not k or len(first) < 3:
        return None
    measured, steps = why.trust.measures, len(first) - 1
    mean = [sum(order[i] for order in random) / len(random) for i in range(len(first))] if random else []
    at = min(k, steps)
    shown = [k for k in shown_words(why) if not why.words[k].mark]
    drawn = f" Dashed: the average of {len(random):,} random orders; thin: each of them." if random else ""
    last = said(" The last point has no word left (", chance(why.trust.empty), ").") if steps >= len(shown) else said()
    finding = said(
        measured.capital(), " as words are taken out, highest score first: ", chance(first[0]), " at first, "
    )
    finding = said(finding, chance(first[at]), f" after {number_word(at)}")
    finding = said(finding, said("; in random order ", chance(mean[at])) if mean else "", ".")
    heads = ["words taken out", "highest score first", *([f"random order, mean of {len(random)}"] if mean else [])]
    rows = [[str(i), probability(one), *([probability(mean[i])] if mean else [])] for i, one in enumerate(first)]
    steeper = " as words go. The steeper the solid line, the better the scores point at what the model uses."
    return {
        "title": "How fast the answer falls",
        "lead": said("The ", measured, steeper),
        "told": said(f"Solid: the highest score first.{drawn}", last, f" Taken out means: {why.trust.filler.text}."),
        "caption": measured,
        "finding": str(finding),
        "axis": "words taken out",
        "ticks": [[value, f"{value:.0%}".replace("%", f"{THIN}%")] for value in (0, 0.5, 1)],
        "points": [f"{i} taken out: {probability(value)}" for i, value in enumerate(first)],
        "first": first,
        "random": random,
        "mean": mean,
        "numbers": ["Every number", heads, rows],
    }


def _methods(why: Why) -> dict[str, Any] | None:
    """Methods as rows and words as columns: the words that are named or that methods disagree on, then those with the
    largest shares, in the order of the text. Methods without a sign stand below a divider."""
    if len(why.methods) < 2:
        return None
    signed, target = [one for one in why.methods if one.signed], why.answer.target
    shown = shown_words(why)
    spread = {
        k: (min(one.shares[k] for one in signed), max(one.shares[k] for one in signed))
        for k in shown
        if len(signed) > 1
    }
    apart = max(spread, key=lambda k: spread[k][1] - spread[k][0], default=None)
    if apart is not None and spread[apart][1] - spread[apart][0] < LEAST_SPREAD:
        apart = None
    columns = shown
    width = sum(max(34, 12 + 8 * min(14, len(why.words[k].text))) for k in shown)
    if len(shown) > MOST_COLUMNS or width > COLUMNS_ROOM:
        named = {*why.answer.for_, *why.answer.against, *([] if apart is None else [apart])}
        order = sorted(shown, key=lambda k: (k not in named, -max(abs(one.shares[k]) for one in why.methods)))
        columns = sorted(order[: max(FEW_COLUMNS, len(named))])
    rest = [k for k in shown if k not in columns]
    same, of = why.agreement.same, why.agreement.of
    told = f"{number_word(same).capitalize()} of {number_word(of)} put {same_first(why)}."
    told = (
        f"All {number_word(of)} put {same_first(why)}."
        if same == of
        else told
        if same > 1
        else f"No other method puts {same_first(why)}."
    )
    lead = said("Each row is one method’s share of the evidence in percent. ", told)
    if apart is not None:
        ends = joined([Number(percent(share, sign=True)) for share in spread[apart]], " to ")
        lead = said(lead, " They disagree most about ", *quotes(why.words, [apart]), " (", ends, ").")
    keys = [["against", f"{MINUS} against"], ["for", f"+ for {target}"]] if signed else []
    keys += [["share", "no sign"]] if len(signed) < len(why.methods) else []
    unit = "Percent of the row; the strongest colour is its largest. · is under 0.5. Special tokens are left out"
    most = number_word(len(columns))
    left = f"The {most} words named or with the largest shares; the others are added up without their sign."
    return {
        "title": f"The same text, read by {number_word(len(why.methods))} methods",
        "lead": lead,
        "label": "Methods and words",
        "heads": [
            "Method",
            "Word",
            f"{len(rest):,} others" if rest else None,
            same_first(why).removeprefix("the ").capitalize(),
        ],
        "words": [[k, shortened(why.words[k].text, 14)] for k in columns],
        "rows": [_method_row(why, one, columns, rest) for one in why.methods],
        "divider": "Without a sign: how much, not in which direction",
        "keys": keys,
        "below": [f"{unit}.", *([left] if rest else [])],
    }


def _method_row(why: Why, one: Reading, columns: Sequence[int], rest: Sequence[int]) -> dict[str, Any]:
    def whole(share: float, signed: bool) -> str:
        size = abs(100 * share)
        sign = (MINUS if share < 0 else "+") if signed else ""
        return "·" if size < 0.5 else f"{sign}{size:.0f}"

    largest = max((abs(one.shares[k]) for k in columns), default=0.0) or 1.0
    cells = [
        {"k": k, "text": whole(one.shares[k], one.signed), "hue": hue_of(one.shares[k], signed=one.signed)}
        | {"strength": 0 if abs(one.shares[k]) < 0.005 else abs(one.shares[k]) / largest}
        | {"title": f"{percent(one.shares[k])} (raw score {raw(one.scores[k])})"}
        for k in columns
    ]
    others = whole(sum(abs(one.shares[k]) for k in rest), signed=False) if rest else None
    same = f"{one.same_first} of {why.agreement.k}"
    return {"names": [one.everyday, one.name], "signed": one.signed, "cells": cells, "rest": others, "same": same}


# --- where it comes from ---------------------------------------------------------------------------------------------


def _provenance(why: Why) -> list[list[str]]:
    """Names and values of what is known."""
    known = {name: value for name, value in why.provenance.items() if name not in ("command", "methods")}
    gaps, method, filler = why.gaps, why.method, why.trust.filler
    held = f"held {percent(why.special_share)} of all scores without sign; left out of the shares"
    limits = [
        f"{LIMIT_NAMES[name]} {f'{100 * value:.0f} points' if name.startswith('removal') else percent(value)}"
        for name, value in why.limits.items()
    ]
    sums = None if gaps.completeness is None else f"gap {gap(gaps.completeness)} ({gaps.completeness:.1e})"
    names = {one.id: one.name for one in why.methods}
    rows = {
        "Model": why.model,
        "Task": why.task.replace("-", " "),
        "Classes": ", ".join(why.classes or ()),
        "Method": f"{method.name} ({method.id}). {method.reason}",
        "Paper": method.paper,
        "Scores add up": sums,
        "Layers rebuilt from their parts": None
        if gaps.reconstruction is None
        else f"largest gap {gaps.reconstruction:.1e}",
        "Words taken out": f"{filler.text} ({filler.id})",
        "Special tokens": held if why.special_share > 0 else None,
        **{name.capitalize(): _plainly(value) for name, value in known.items()},
        **{f"Options of {names.get(one, one)}": _plainly(facts) for one, facts in why.provenance["methods"].items()},
        "Limits of the checks": "; ".join(limits),
    }
    return [[name, value] for name, value in rows.items() if value]


def _plainly(value: Any, name: str = "") -> str:
    """A value as text, `name = value` of what a table holds; what is not given is left out."""
    if isinstance(value, Mapping):
        told = [
            _plainly(one, name if key == "options" else f"{name} {key}".strip().replace("_", " "))
            for key, one in value.items()
        ]
        return "; ".join(filter(None, told))
    if isinstance(value, list | tuple):
        text = ", ".join(filter(None, map(_plainly, value)))
    else:
        text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{name} = {text}" if name and text else text
