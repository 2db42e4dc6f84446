"""The page of a written text: one HTML file from a `Generation`, opening on the answer; and what a notebook shows of
it."""

from __future__ import annotations

import math
import os
import shlex
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..answers.generation import Generation
from ..answers.generation.files import groups_of, parts_of
from ..answers.generation.wording import (
    QUESTION,
    cut_note,
    group_shares,
    group_title,
    has_template,
    losses_in_words,
    named_row,
    own_shares,
    prompt_shares,
    prompt_words,
)
from ..answers.names import name_of
from ..base.text import THIN, counted, for_terminal, percent
from ..scoring.notices import noticed
from ..scoring.provenance import public_name
from .colors import LIGHT, hue_of, scaled
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
    prompt = len(prompt_words(generation))
    written = "given" if generation.given else "written"
    model = public_name(generation.info.get("model") or "model")
    return f"{model} · {counted(len(generation.rows), unit)} {written} after a prompt of {counted(prompt, unit)}"


# --- what the page reads ----------------------------------------------------------------------------------------------


def content_of(generation: Generation) -> dict[str, Any]:
    """What the page's script reads: plain numbers, and texts as they can be shown."""
    text, effects, first = generation.text, generation.effects, generation.text.first
    own, prompt, groups = own_shares(generation), prompt_shares(generation), group_shares(generation)
    rows, spans = [], []
    for number in range(len(text.rows)):
        columns = generation.matrix[number, : first + number + 1]
        rows.append(
            {
                "word": first + number,
                "p": generation.row_probabilities[number],
                "own": round(float(own[number]), DIGITS) or 0,
                "prompt": round(float(prompt[number]), DIGITS) or 0,
                "shares": _rounded(columns),
                "effects": None if effects is None else _rounded(effects.words[number, :first]),
                "groupEffects": None if effects is None else _rounded(effects.groups[number]),
            }
        )
    for span in text.spans:  # written sentences: the averages of their words
        inside, words = [number - first for number in span.words], [text.words[number] for number in span.words]
        of_own, of_prompt = float(own[inside].mean()), float(prompt[inside].mean())
        spans.append(
            {
                "text": visible("".join(word.before + word.shown for word in words).strip()),
                "own": of_own,
                "prompt": of_prompt,
                "rest": max(0.0, 1 - of_own - of_prompt),
                "groups": groups[inside].mean(0).tolist(),
                "typical": float(torch.tensor(generation.row_probabilities)[inside].log().mean().exp()),
                "lost": [[visible(word), change] for word, change in losses_in_words(generation, inside)],
            }
        )
    shown = [
        {"text": visible(word.shown), "before": word.before, "special": word.special, "group": word.group}
        for word in text.words
    ]
    return {
        "parts": [[kind, _shown(part)] for kind, part in parts_of(generation)],
        "finding": _shown(shown_line(generation.sentence.replace(THIN, " "))),
        "given": generation.given,
        "cut": cut_note(generation),
        "unit": text.unit,
        "signed": generation.signed,
        "chat": has_template(generation),
        "words": shown,
        "begin": [number for number, word in enumerate(text.words) if word.special and word.segment == "text"],
        "groups": groups_of(text.groups),
        "rows": rows,
        "spans": spans,
        "chosen": named_row(generation),
        "notes": noticed(generation.info),
        "facts": _facts(generation),
    }


def _shown(text: str) -> str:
    """A text with what cannot be seen spelled out, but for our own space before %."""
    return THIN.join(map(visible, text.split(THIN)))


def _rounded(row: Tensor) -> list[float | None]:
    """Numbers with a few decimals; None for what is not a number, and a short zero."""
    return [None if math.isnan(value) else round(value, DIGITS) or 0 for value in row.tolist()]


# --- where the numbers come from --------------------------------------------------------------------------------------


def _facts(generation: Generation) -> list[list[str]]:
    """What a reader needs to trust the numbers, or to make them again: by a chat's messages, or by the prompt."""
    info, text, effects, method = generation.info, generation.text, generation.effects, generation.method
    everyday, name = name_of(method)
    model, paper = public_name(info.get("model") or ""), info.get("paper") or ""
    chosen = "given by the reader" if generation.given else "the likeliest token each time"
    how = "the mean of its tokens’ rows" if generation.is_map else "the sum of its tokens’ scores"
    joined = f"a column adds up its tokens; a written word of several tokens is {how}, its probability their product"
    left_out = "not measured"
    if effects is not None:
        way = "deleted" if effects.replacement == "delete" else f"replaced by {effects.replacement}"
        kind = text.groups[0].kind if text.groups else "sentence"
        left_out = f"words of the prompt are {way}, the written text stays; one pass for each word and each {kind}"
    source = "--messages MESSAGES.json" if has_template(generation) else shlex.quote(text.prompt or "")
    writes = f"--generate {len(generation)}"
    if generation.given:
        writes = f"--continuation {shlex.quote(text.written.strip())}"
    command = f"mixlens explain {source} -m {shlex.quote(model)} --method {method} {writes} -o page.html"
    gap = f"{info['gap']:.1e}, allowed {info.get('tolerance', 0):.0e}" if "gap" in info else None
    rows = {
        "Model": f"{model}, {info.get('family', '?')}, {info.get('dtype', '?')}; {chosen}",
        "Made of": f"{everyday} ({name}), read at the position that wrote each token. {paper}".strip(),
        "Words": "the words are not known, so tokens stand for them" if text.unit == "token" else joined,
        "Left out": left_out,
        "Gap": gap,
        "Versions": ", ".join(f"{package} {version}" for package, version in (info.get("versions") or {}).items()),
        "Make it again": command,
    }
    return [[title, told] for title, told in rows.items() if told is not None]


# --- notebooks --------------------------------------------------------------------------------------------------------

CELLS = 6000  # cells of a table in a notebook; a larger one is by sentence
STYLE = "border-collapse:collapse;font:13px/1.4 system-ui,sans-serif;font-variant-numeric:tabular-nums"


UPRIGHT = "writing-mode:vertical-rl;transform:rotate(180deg);font-weight:400;padding:4px 0;text-align:left"
RIGHT = "text-align:right;padding:0 6px"
MARKED = {"": "{}", "strong": "<b>{}</b>", "quote": "<i>{}</i>"}


def notebook_html(generation: Generation) -> str:
    """The answer and the table, in one piece of HTML without scripts."""
    said = "".join(MARKED[kind].format(escape(for_terminal(part))) for kind, part in parts_of(generation))
    head = f'<div style="font:600 16px/1.4 system-ui,sans-serif">{QUESTION}</div><div style="margin:4px 0 10px">{said}</div>'  # noqa: E501
    frame = f"max-width:100%;overflow-x:auto;background:{LIGHT['surface']};color:{LIGHT['ink']};padding:8px"
    unit = "Percent of the written word; a row adds up to 100 % with its own words and special tokens."
    unit = " ".join(filter(None, [unit, cut_note(generation)]))
    note = f'<div style="font-size:12px;color:{LIGHT["soft"]};margin-top:6px">{unit} Method {escape(generation.method)}.</div>'  # noqa: E501
    return f'<div style="{frame}">{head}{_table(generation)}{note}</div>'


def _table(generation: Generation) -> str:
    """Written words as rows, with their probabilities and what their own words hold; words of the prompt as columns, or
    its sentences where the table would be large."""
    numbers, groups = prompt_words(generation), generation.text.groups
    names, shares, upright = [generation.columns[n].text for n in numbers], generation.matrix[:, numbers], UPRIGHT
    if len(numbers) * len(generation.rows) > CELLS:
        names = [group_title(group, number, groups) for number, group in enumerate(groups)]
        shares, upright = group_shares(generation), "padding:0 6px"
    most = (float(shares.abs().max()) if shares.numel() else 0.0) or 1.0
    head = "".join(f'<th style="{upright}">{escape(visible(name))}</th>' for name in names)
    lines = f'<tr><td></td><td></td>{head}<th style="padding:0 6px">own</th></tr>'
    for row, sure, own, values in zip(
        generation.rows, generation.row_probabilities, own_shares(generation).tolist(), shares.tolist(), strict=True
    ):
        soft = f"{RIGHT};color:{LIGHT['soft']}"
        cells = "".join(_cell(share, most, generation.signed) for share in values)
        lines += f'<tr><th style="{RIGHT};font-weight:400">{escape(visible(row.shown))}</th>'
        lines += f'<td style="{soft}">{percent(sure)}</td>{cells}<td style="{RIGHT}">{percent(own)}</td></tr>'
    return f'<table style="{STYLE}">{lines}</table>'


def _cell(share: float, most: float, signed: bool) -> str:
    hue = hue_of(share, signed=signed)
    shown = f"{100 * share:.0f}".replace("-", "−") if abs(share) >= 0.005 else "·"
    style = f"background:{scaled(share / most, f'{hue}-tint')};color:{LIGHT['ink']};text-align:center;padding:0 3px"
    return f'<td style="{style}" title="{percent(share)}">{shown}</td>'
