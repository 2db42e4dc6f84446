"""The page "What flows where": from the words of the input, layer by layer, into the position that the answer is read
from."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..answers.names import name_of
from ..base.doors import door
from ..base.errors import InputError
from ..base.text import at_most, number_word, percent, probability
from ..base.words import Word, words_in
from ..model.model import Model
from ..scoring.aggregate import find
from ..scoring.head_maps import roles_of
from ..scoring.maps import mix
from ..scoring.provenance import public_name
from ..types import HeadMaps, Map, Text, Trace
from .flow_groups import COLUMNS, Group, groups_of, unit_of
from .flow_numbers import DRAWN, Flow, flow_of, heads_by_group, layers_of
from .packing import EXACT, HALF, Precision, encode, fit
from .page_entry import query_of, shortened, versions_line
from .page_file import MEGABYTES, may_write, room_of, write
from .page_template import BASE_SCRIPTS, BASE_STYLES, FLOW_SCRIPTS, READ, Kind, filled_page, visible
from .tokens import shown

FLOW = Kind(
    (*BASE_STYLES, "flow.css"),
    (*BASE_SCRIPTS, *FLOW_SCRIPTS),
    f'startFlow({READ}, document.getElementById("main")).catch((error) => document.body.append(String(error)));',
    wide=True,
)
WORDS_ROOM, HEADS_ROOM = 0.3, 0.3  # parts of the page's room that numbers of words and of heads may take
NAMED = 3  # columns and words that the answer names


@dataclass(frozen=True)
class Picture:
    """All that the page is made of."""

    scores: Map
    words: list[Word]
    groups: list[Group]
    flow: Flow
    query: int
    convention: str
    heads: HeadMaps | None
    read: tuple[int, ...]  # the positions that are read: the query, or all pieces of a word

    @property
    def unit(self) -> str:
        return unit_of(self.groups)

    @property
    def column(self) -> int:
        """The column that the answer is read at."""
        return next(number for number, group in enumerate(self.groups) if group.kind == "answer")

    @property
    def title(self) -> str:
        """What is read, in a sentence: a word, a special token, or a piece of a word."""
        group = self.groups[self.column]
        if set(self.read) == set(group.tokens):
            return group.title
        return f"“{shown(self.scores.tokens[self.query])}” of {group.title}"

    @property
    def asked(self) -> str:
        """What the question names: the predicted class or word, or a position."""
        return f"the answer {visible(self.prediction[0][0])}" if self.prediction else self.title

    @property
    def prediction(self) -> list[tuple[str, float]]:
        return list(self.scores.info.get("prediction") or [])


@door
def flow_results(
    model: Model, text: Text | Trace, *, method: str = "alti", query: int | str | None = None
) -> tuple[Map, HeadMaps]:
    """What `write_flow` takes, from one pass: the map of a text with what the model predicts, and the attention of its
    heads."""
    trace = text if isinstance(text, Trace) else model.trace(text)
    place = trace.query if query is None else find(trace.tokens, query)
    scores, heads = mix(trace, method), mix(trace, "attention", head="all")
    prediction = trace.prediction() if place == trace.query else []
    return replace(scores, info={**scores.info, "query": place, "prediction": prediction}), heads


@door
def write_flow(
    scores: Map,
    path: str | os.PathLike[str],
    *,
    heads: HeadMaps | None = None,
    query: int | None = None,
    rollout: str | None = None,
    megabytes: float = MEGABYTES,
    force: bool = False,
) -> Path:
    """Write the page of a map (not rolled out). `heads`: attention of every head, `mix(trace, "attention",
    head="all")`.

    `query` is the position that the answer is read at: by default the map's own, else where the model predicts. A file
    that is no page of mixlens is not overwritten, unless `force`."""
    place = Path(path)
    may_write(place, force=force)
    write(flow_page(scores, heads=heads, query=query, rollout=rollout, megabytes=megabytes), place)
    return place


def flow_page(
    scores: Map,
    *,
    heads: HeadMaps | None = None,
    query: int | None = None,
    rollout: str | None = None,
    megabytes: float = MEGABYTES,
) -> str:
    """The whole page as one string."""
    picture = picture_of(scores, heads=heads, query=query, rollout=rollout)
    room = room_of(megabytes)
    page = filled_page(
        flow_data(picture, room),
        FLOW,
        title=f"What flowed into {picture.asked}?",
        subtitle=_about(picture),
        crumb="What flows where?",
        name=f"What flowed into {picture.asked}? · mixlens",
        answer="".join(text for text, _ in answer_of(picture)),
    )
    if len(page.encode()) > room:
        raise InputError(
            f"the page takes {len(page.encode()) / 1e6:.1f} MB, more than {megabytes}. Allow more megabytes."
        )
    return page


def picture_of(
    scores: Map,
    *,
    heads: HeadMaps | None = None,
    query: int | Sequence[int] | None = None,
    rollout: str | None = None,
    most: int = COLUMNS,
) -> Picture:
    """The words, the columns (at most so many groups of words) and the numbers of a map. `query`: a position, or all
    positions of one word, which are averaged."""
    if not isinstance(scores, Map):
        raise InputError(f"a flow page is made of a Map, not of {type(scores).__name__}.")
    if heads is not None and (heads.tokens != scores.tokens or len(heads.scores) != len(scores.scores)):
        raise InputError("the heads are not of the same tokens and layers as the map.")
    query = query_of([scores]) if query is None else query
    read = (query,) if isinstance(query, int) else tuple(query)
    for place in read:
        if place not in range(len(scores.tokens)):
            raise InputError(f"query {place!r} is out of range: there are {len(scores.tokens)} tokens.")
    layers, facts = layers_of(scores, rollout)
    words = words_in(scores)
    number = next(number for number, word in enumerate(words) if read[0] in word.tokens)
    groups = groups_of(words, number, causal=bool(scores.info.get("causal")), most=most)
    flow = flow_of(layers, read, [group.tokens for group in groups], [word.tokens for word in words])
    return Picture(scores, words, groups, flow, read[0], facts["convention"], heads, read)


# --- in words ---------------------------------------------------------------------------------------------------------


def counted_number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _about(picture: Picture) -> str:
    """The small line above the question."""
    texts = [word for word in picture.words if not word.special]
    marks = sum(word.mark for word in texts)
    words = counted_number(len(texts) - marks, "word") + (f" and {counted_number(marks, 'mark')}" if marks else "")
    sizes = [words, counted_number(len(picture.scores.tokens), "token")]
    if picture.unit != "word":
        sizes.append(counted_number(sum(group.kind == picture.unit for group in picture.groups), picture.unit))
    return f"{public_name(picture.scores.info.get('model', 'a model'))} · a text of {', '.join(sizes)}"


def answer_of(picture: Picture) -> list[tuple[str, bool]]:
    """The answer as pieces of text, each with whether it is strong: the largest columns; of a long text its strongest
    words, too (marks and the position itself are none)."""
    flow, groups, words = picture.flow, picture.groups, picture.words
    columns = [number for number, group in enumerate(groups) if group.kind == picture.unit]
    first = sorted(columns, key=lambda number: -flow.shares[0, number])[:NAMED]
    together = percent(float(sum(flow.shares[0, number] for number in first)))
    noun = "words and marks" if picture.unit == "word" else f"{picture.unit}s"
    pieces = [(f"{together} of it comes from {number_word(len(first))} of {len(columns)} {noun}: ", False)]
    found = [(groups[number].name, float(flow.shares[0, number])) for number in first]
    if picture.unit == "word":
        return pieces + _named(found)
    itself = groups[picture.column].words
    texts = [at for at, word in enumerate(words) if not word.special and not word.mark and at not in itself]
    strongest = sorted(texts, key=lambda at: -flow.words[at])[:NAMED]
    pieces += _named([(f"number {found[0][0]}", found[0][1]), *found[1:]])
    pieces.append((" The strongest words are ", False))
    return pieces + _named([(shown(words[at].text), float(flow.words[at])) for at in strongest])


def _named(items: Sequence[tuple[str, float]]) -> list[tuple[str, bool]]:
    """a (22 %), b (14 %) and c (11 %)."""
    pieces: list[tuple[str, bool]] = []
    for number, (name, share) in enumerate(items):
        joint = "" if number == 0 else " and " if number == len(items) - 1 else ", "
        pieces += [(joint, False), (name, True), (f" ({percent(share)})", False)]
    return [*pieces, (".", False)]


# --- the data ---------------------------------------------------------------------------------------------------------


def flow_data(picture: Picture, room: int) -> dict[str, Any]:
    """What the script of the page reads."""
    flow, bands, groups, words = picture.flow, picture.flow.bands, picture.groups, picture.words
    prediction = picture.prediction
    precision, word_blocks = fit([_rows(flow.rolled_words), _rows(flow.alone_words)], int(WORDS_ROOM * room))
    blocks = {
        **{name: encode(_rows(getattr(flow, name)), EXACT) for name in ("shares", "origins", "rolled", "alone")},
        **dict(zip(("rolledWords", "aloneWords"), word_blocks, strict=True)),
        "inputBands": encode(flow.input_bands, HALF),
        "bandShares": encode(bands.share[None], EXACT),
        "bandParts": encode(bands.parts, HALF),
    }
    heads: dict[str, Any] = {}
    if picture.heads is not None:  # attention between columns, and what each head does most
        grouped = heads_by_group(picture.heads, [group.tokens for group in groups])
        held, (blocks["heads"],) = fit([_rows(grouped)], int(HEADS_ROOM * room))
        roles: list[list[dict[str, Any]]] = [[] for _ in picture.heads.scores]
        for role in roles_of(picture.heads):
            roles[role.layer].append({"name": role.name, "share": role.share})
        heads = {"count": grouped.shape[1], "roles": roles, "holds": held.description()}
    return {
        "kind": "flow",
        "answer": {
            "name": visible(prediction[0][0]) if prediction else None,
            "sure": probability(prediction[0][1]) if prediction else None,
            "asked": picture.asked,
            "read": picture.title,
            "column": picture.column,
        },
        "sentence": [[text, strong] for text, strong in answer_of(picture)],
        "unit": picture.unit,
        "layers": len(flow.rolled),
        "columns": [
            {
                "kind": group.kind,
                "name": visible(group.name),
                "title": visible(group.title),
                "text": group.text,
                "words": list(group.words),
                "mark": group.kind == "mark" or group.mark,
            }
            for group in groups
        ],
        "words": [
            {
                "text": visible(shown(word.text)),
                "before": word.before,
                "special": word.special,
                "share": float(np.float32(share)),
            }
            for word, share in zip(words, flow.words.tolist(), strict=True)
        ],
        "bands": {name: getattr(bands, name).tolist() for name in ("layer", "above", "below")},
        "blocks": blocks,
        "heads": heads,
        "drawn": DRAWN,
        "undrawn": flow.undrawn,
        "method": dict(zip(("everyday", "name"), name_of(picture.scores.method), strict=True)),
        "facts": _facts(picture, precision, heads),
    }


def _rows(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, array.shape[-1])


def _facts(picture: Picture, precision: Precision, heads: Mapping[str, Any]) -> list[list[str]]:
    """Where the numbers come from: words first, then raw numbers, then the command that makes this page again."""
    info, method = picture.scores.info, picture.scores.method
    names, model = name_of(method), public_name(info.get("model", "?"))
    about = f"{model}, {info.get('family', 'model')}, {len(picture.flow.rolled)} layers, {info.get('dtype', '')}"
    least = f"all from {100 * DRAWN:.2f}\u202f% of the answer"
    rows = [
        ["Model", about.strip(", ")],
        ["Text", shortened(visible(info.get("text") or " ".join(picture.scores.tokens)), 300)],
        ["Method", f"{names.everyday} ({names.name}; {info.get('paper', '')}); variant {info.get('variant')}"],
        ["Layers", f"multiplied by the convention “{picture.convention}”: rows add up to 1"],
        ["Read at", f"{picture.title}, token {picture.query}"],
        ["Columns", "sums over what gave, averages over what took; bands are sums. Grouping never changes a total"],
        ["Bands", f"{least}; the others are {at_most(picture.flow.undrawn)} of a level"],
        ["Held here", f"columns: every number, in 32 bits; words of a column: {precision.description()}"],
    ]
    if heads:
        told = f"attention weights, {heads['holds']}. Names: the largest share by a fixed rule (docs: heads)"
        rows.append(["Heads", told])
    if "gap" in info:
        gap = f"largest gap against the model {info['gap']:.1e} (allowed: {info.get('tolerance', 0):.0e})"
        rows.append(["Rebuilt layers", gap])
    text, pair = (shortened(visible(info.get(name) or ""), 300) for name in ("text", "pair"))
    command = ["mixlens", "report", text, *(["--pair", pair] if pair else []), "-m", model, "--preset", "flow"]
    command += [] if method == "alti" else ["--methods", method]
    again = shlex.join([*command, "--query", str(picture.query), "-o", "flow.html"])
    return [*rows, ["Versions", versions_line(info.get("versions") or {})], ["Made again by", again]]
