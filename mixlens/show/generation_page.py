"""The page of a written text: one HTML file from a `Generation`, opening on the answer; and what a notebook shows of it."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch

from ..answers.generation import Generation
from ..answers.generation.text import Group
from ..answers.generation.wording import (
    QUESTION,
    answer,
    cut_note,
    group_shares,
    group_title,
    losses_in_words,
    named_row,
    own_shares,
    prompt_shares,
)
from ..answers.names import NAMES
from ..base.text import THIN, counted, for_terminal, percent
from ..scoring.notices import noticed
from ..scoring.provenance import public_name
from .colors import LIGHT, scaled
from .page_entry import shortened
from .page_file import may_write, write
from .page_template import BASE_SCRIPTS, BASE_STYLES, READ, Kind, filled_page, shown_line, visible

DIGITS = 6  # decimals of a share on the page
GENERATE = Kind(
    (*BASE_STYLES, "generate.css"),
    (*BASE_SCRIPTS, "generate.js"),
    f'startGeneration({READ}, document.getElementById("main"));',
    wide=True,
)


def generation_page(generation: Generation, *, title: str | None = None) -> str:
    """The whole page as one string; its heading is the question, or `title`."""
    content = content_of(generation)
    return filled_page(
        {"generation": content},
        GENERATE,
        title=title or QUESTION,
        subtitle=_about(generation),
        crumb="Written text",
        name=f"{title or QUESTION} {shortened(visible(generation.text.written_shown.strip()), 60)} · mixlens",
        answer=for_terminal(generation.sentence),
    )


def write_generation(generation: Generation, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write the page. A file that is no page of mixlens is not overwritten, unless `force`."""
    place = Path(path)
    may_write(place, force=force)
    write(generation_page(generation), place)
    return place


def _about(generation: Generation) -> str:
    unit = generation.text.unit
    prompt = sum(word.counts for word in generation.columns)
    written = "given" if generation.given else "written"
    model = public_name(generation.info.get("model") or "model")
    return f"{model} · {counted(len(generation.rows), unit)} {written} after a prompt of {counted(prompt, unit)}"


# --- what the page reads ------------------------------------------------------------------------------------------------


def content_of(generation: Generation) -> dict[str, Any]:
    """What the page's script reads: plain numbers, and texts as they can be shown."""
    text = generation.text
    return {
        "parts": [[kind, _shown(part)] for kind, part in answer(generation).parts],
        "finding": _shown(shown_line(generation.sentence.replace(THIN, " "))),
        "given": generation.given,
        "cut": cut_note(generation),
        "unit": text.unit,
        "signed": generation.signed,
        "chat": any(word.segment == "template" for word in text.words),
        "words": [_word(word) for word in text.words],
        "begin": [number for number, word in enumerate(text.words) if word.special and word.segment == "text"],
        "groups": [_group(group, number, text.groups) for number, group in enumerate(text.groups)],
        "rows": [_row(generation, number) for number in range(len(text.rows))],
        "spans": [_span(generation, span) for span in text.spans],
        "chosen": _chosen(generation),
        "notes": noticed(generation.info),
        "facts": _facts(generation),
    }


def _shown(text: str) -> str:
    """A text with what cannot be seen spelled out, but for our own space before %."""
    return THIN.join(map(visible, text.split(THIN)))


def _word(word: Any) -> dict[str, Any]:
    return {"text": visible(word.shown), "before": word.before, "special": word.special, "group": word.group}


def _group(group: Group, number: int, groups: Sequence[Group]) -> dict[str, Any]:
    return {
        "kind": group.kind,
        "role": group.role,
        "name": group_title(group, number, groups),
        "words": list(group.words),
    }


def _row(generation: Generation, number: int) -> dict[str, Any]:
    effects, last = generation.effects, generation.text.first + number
    return {
        "word": last,
        "p": generation.row_probabilities[number],
        "own": _rounded(float(own_shares(generation)[number])),
        "prompt": _rounded(float(prompt_shares(generation)[number])),
        "shares": list(map(_rounded, generation.matrix[number, : last + 1].tolist())),
        "effects": None
        if effects is None
        else list(map(_rounded, effects.words[number, : generation.text.first].tolist())),
        "groupEffects": None if effects is None else list(map(_rounded, effects.groups[number].tolist())),
    }


def _rounded(value: float) -> float | int | None:
    """A number with a few decimals; None for what is not a number, and a short zero."""
    if math.isnan(value):
        return None
    return round(value, DIGITS) or 0


def _span(generation: Generation, span: Group) -> dict[str, Any]:
    """One written sentence: the average of its words."""
    first = generation.text.first
    rows = [number - first for number in span.words]
    own, prompt = (float(shares[rows].mean()) for shares in (own_shares(generation), prompt_shares(generation)))
    words = [generation.columns[number] for number in span.words]
    return {
        "text": visible("".join(word.before + word.shown for word in words).strip()),
        "own": own,
        "prompt": prompt,
        "rest": max(0.0, 1 - own - prompt),
        "groups": group_shares(generation)[rows].mean(0).tolist(),
        "typical": float(torch.tensor(generation.row_probabilities)[rows].log().mean().exp()),
        "lost": [[visible(word), change] for word, change in losses_in_words(generation, rows)],
    }


def _chosen(generation: Generation) -> int:
    """The row that the page opens on: the one of the answer."""
    return named_row(generation)


# --- where the numbers come from ----------------------------------------------------------------------------------------


def _facts(generation: Generation) -> list[list[str]]:
    """What a reader needs to trust the numbers, or to make them again."""
    info, text = generation.info, generation.text
    everyday, name = NAMES.get(generation.method, (generation.method, generation.method))
    written = "given by the reader" if generation.given else "the likeliest token each time"
    model = public_name(info.get("model") or "")
    rows = [
        ["Model", f"{model}, {info.get('family', '?')}, {info.get('dtype', '?')}; {written}"],
        [
            "Made of",
            f"{everyday} ({name}), read at the position that wrote each token. {info.get('paper') or ''}".strip(),
        ],
        ["Words", _joined(text.unit, generation.is_map)],
        ["Left out", _left_out(generation)],
    ]
    gap = [] if "gap" not in info else [["Gap", f"{info['gap']:.1e}, allowed {info.get('tolerance', 0):.0e}"]]
    versions = ", ".join(f"{name} {version}" for name, version in (info.get("versions") or {}).items())
    return [*rows, *gap, ["Versions", versions], ["Make it again", _command(generation, model)]]


def _joined(unit: str, is_map: bool) -> str:
    if unit == "token":
        return "the words are not known, so tokens stand for them"
    how = "the mean of its tokens’ rows" if is_map else "the sum of its tokens’ scores"
    return f"a column adds up its tokens; a written word of several tokens is {how}, its probability their product"


def _left_out(generation: Generation) -> str:
    if generation.effects is None:
        return "not measured"
    way = "deleted" if generation.effects.replacement == "delete" else f"replaced by {generation.effects.replacement}"
    return f"words of the prompt are {way}, the written text stays; one pass for each word and each {_kind(generation)}"


def _kind(generation: Generation) -> str:
    return generation.text.groups[0].kind if generation.text.groups else "sentence"


def _command(generation: Generation, model: str) -> str:
    """The command that makes this page again; a chat is made again from its messages."""
    chat = any(word.segment == "template" for word in generation.columns)
    source = "--messages MESSAGES.json" if chat else shlex.quote(generation.text.prompt or "")
    text = generation.text.written.strip()
    what = f"--continuation {shlex.quote(text)}" if generation.given else f"--generate {len(generation)}"
    return f"mixlens explain {source} -m {shlex.quote(model)} --method {generation.method} {what} -o page.html"


# --- notebooks ----------------------------------------------------------------------------------------------------------

CELLS = 6000  # cells of a table in a notebook; a larger one is by sentence
STYLE = "border-collapse:collapse;font:13px/1.4 system-ui,sans-serif;font-variant-numeric:tabular-nums"


def notebook_html(generation: Generation) -> str:
    """The answer and the table, in one piece of HTML without scripts."""
    said = "".join(_marked(kind, part) for kind, part in answer(generation).parts)
    head = f'<div style="font:600 16px/1.4 system-ui,sans-serif">{QUESTION}</div><div style="margin:4px 0 10px">{said}</div>'
    frame = f"max-width:100%;overflow-x:auto;background:{LIGHT['surface']};color:{LIGHT['ink']};padding:8px"
    unit = "Percent of the written word; a row adds up to 100 % with its own words and special tokens."
    unit = " ".join(filter(None, [unit, cut_note(generation)]))
    note = f'<div style="font-size:12px;color:{LIGHT["soft"]};margin-top:6px">{unit} Method {escape(generation.method)}.</div>'
    return f'<div style="{frame}">{head}{_table(generation)}{note}</div>'


def _marked(kind: str, part: str) -> str:
    text = escape(for_terminal(part))
    return f"<b>{text}</b>" if kind == "strong" else f"<i>{text}</i>" if kind == "quote" else text


def _table(generation: Generation) -> str:
    """Written words as rows; words of the prompt as columns, or its sentences where the table would be large."""
    numbers = [number for number, word in enumerate(generation.columns) if word.counts]
    groups = generation.text.groups
    by_word = len(numbers) * len(generation.rows) <= CELLS
    names = [generation.columns[n].text for n in numbers] if by_word else _titles(groups)
    shares = generation.matrix[:, numbers] if by_word else group_shares(generation)
    most = float(shares.abs().max()) if shares.numel() else 1.0
    head = "".join(
        f'<th style="{UPRIGHT if by_word else "padding:0 6px"}">{escape(visible(name))}</th>' for name in names
    )
    lines = "".join(
        _line(generation, number, shares[number].tolist(), most or 1.0) for number in range(len(generation.rows))
    )
    return f'<table style="{STYLE}"><tr><td></td><td></td>{head}<th style="padding:0 6px">own</th></tr>{lines}</table>'


UPRIGHT = "writing-mode:vertical-rl;transform:rotate(180deg);font-weight:400;padding:4px 0;text-align:left"


def _titles(groups: Sequence[Group]) -> list[str]:
    return [group_title(group, number, groups) for number, group in enumerate(groups)]


def _line(generation: Generation, number: int, shares: Sequence[float], most: float) -> str:
    """One written word: its probability, its cells, and what its own words hold."""
    word, sure = escape(visible(generation.rows[number].shown)), percent(generation.row_probabilities[number])
    label = f'<th style="{RIGHT};font-weight:400">{word}</th><td style="{RIGHT};color:{LIGHT["soft"]}">{sure}</td>'
    cells = "".join(_cell(share, most, generation.signed) for share in shares)
    return f'<tr>{label}{cells}<td style="{RIGHT}">{percent(float(own_shares(generation)[number]))}</td></tr>'


RIGHT = "text-align:right;padding:0 6px"


def _cell(share: float, most: float, signed: bool) -> str:
    hue = ("against" if share < 0 else "for") if signed else "share"
    shown = f"{100 * share:.0f}".replace("-", "−") if abs(share) >= 0.005 else "·"
    style = f"background:{scaled(share / most, f'{hue}-tint')};color:{LIGHT['ink']};text-align:center;padding:0 3px"
    return f'<td style="{style}" title="{percent(share)}">{shown}</td>'
