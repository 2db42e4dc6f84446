"""All that terminals, notebooks and pages say of values made up by hand. `python tests/show/told.py --again` keeps it anew in
`told.json`."""

from __future__ import annotations

import base64
import io
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kept
import made_values as made
import numpy as np
import told_runs
import torch
import why_example
from rich.console import Console

from mixlens.base.words import Word
from mixlens.show import (
    colors,
    encoding,
    flow_groups,
    flow_numbers,
    flow_page,
    generation_page,
    generation_text,
    head_views,
    heading,
    latex,
    layout,
    map_views,
    notebook,
    page_entry,
    page_rows,
    page_template,
    results_page,
    row_views,
    tables,
    text,
    tokens,
    views,
    why_notebook,
    why_page,
    why_text,
)
from mixlens.show.packing import Precision, decode, encode, fit
from mixlens.types import Attribution, Map

PATH = Path(__file__).with_name("told.json")


def refusal(call: Callable[[], Any]) -> str:
    """What a call says when it refuses."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no refusal"


def lined(picture: Any, *widths: int) -> dict[str, list[str]]:
    """A picture at several widths, without colours."""
    return {str(width): text.rendered(picture, width=width).splitlines() for width in widths or (100,)}


def spans(lines: Any) -> list[list[Any]]:
    """Lines of a terminal with the styles of their parts."""
    found = []
    for line in lines:
        parts = [[line.plain[span.start : span.end], str(span.style)] for span in line.spans if span.style]
        found.append([line.plain, *parts, *([] if line.no_wrap and line.overflow == "ignore" else ["may wrap"])])
    return found


# --- colours, letters, tokens -----------------------------------------------------------------------------------------

SHARES = (-2.0, -1.0, -0.5, -0.49, -0.1, -0.09, 0.0, 0.04, 0.09, 0.1, 0.3, 0.49, 0.5, 1.0, 1.5)


def colours() -> Any:
    styles = {
        f"{share} {count} {ink}": colors.style_of(share, count, ink_only=ink)
        for share, count, ink in product(SHARES, (0, 1, 16, 17, 256), (False, True))
    }
    greys = [(level, level, level) for level in (0, 9, 10, 11, 100, 117, 118, 119, 200, 255)]
    hues = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (10, 200, 90), (130, 100, 140), (0, 114, 178)]
    return {
        "styles": styles,
        "usual": [colors.style_of(0.5, 16), colors.style_of(-0.2, 256)],
        "shades": [list(colors.shade(share)) for share in SHARES],
        "ink": [list(colors.ink(colour)) for colour in (*greys, *hues)],
        "hues": [colors.hue_of(share, signed=signed) for share in (-1.0, -0.0, 0.0, 1.0) for signed in (False, True)],
        "scaled": [colors.scaled(share, end) for share in SHARES for end in ("for", "against-tint")],
        "from paper": [colors.scaled(share, "share", zero="ink") for share in SHARES],
        "shares": [colors.shares(row) for row in ([], [0.0, 0.0], [-4.0, 2.0], [1.0], [-0.5], [0.25, 0.5, -0.125])],
        "rgb": [list(colors.rgb_of("#0A1B2C")), colors.hex_of((1, 255, 16))],
    }


def letters() -> Any:
    ascii_out, latin, plain = (SimpleNamespace(encoding=name, errors=errors) for name, errors in ENCODINGS)
    return {
        "plain": [
            "".join(encoding.PLAIN).encode("ascii", encoding.ERRORS).decode(),
            "é€𝄞\u0007".encode("ascii", encoding.ERRORS).decode(),
        ],
        "can show": [
            encoding.can_show(out, *texts, replaced=replaced)
            for out in (ascii_out, latin, plain, None)
            for texts in ((), ("é",), ("a",))
            for replaced in (True, False)
        ],
        "unknown": encoding.can_show(SimpleNamespace(encoding="no such", errors="")),
        "handler": refusal(lambda: b"\xff".decode("ascii", encoding.ERRORS)),
    }


ENCODINGS = (("ascii", "strict"), ("latin-1", "strict"), ("ascii", encoding.ERRORS))
STRANGE = (
    "Ġ",
    "Ġkeys",
    "▁",
    "▁▁a",
    "Ċ",
    "ĊĊ",
    "word</w>",
    "##",
    "##ing",
    "",
    " ",
    "\u0301x",
    "a\u200bb",
    "[CLS]",
    "<s>",
    "[UNK12]",
)


def shown_tokens() -> Any:
    rows = [
        STRANGE,
        ("un", "##happy"),
        ("Ġa", "b", "<s>", "c", "Ġd", "Ċ", "e"),
        ("a", "b"),
        (),
        ("##a",),
        ("a", "[X]", "##b", "##"),
    ]
    return {
        "shown": [tokens.shown(token) for token in STRANGE],
        "glued": [tokens.glued(row) for row in rows],
        "pieces": [
            [list(piece) for piece in tokens.pieces(row, words=words)] for row in rows for words in (False, True)
        ],
        "usual": [list(piece) for piece in tokens.pieces(("un", "##happy"))],
    }


WIDE = "日本語 abc"
HEBREW = "שלום"


def fitted() -> Any:
    texts = ("", "a", "abc", "abcdef", WIDE, HEBREW)
    ways = ({}, {"right": True}, {"middle": True})
    return {
        "clipped": {
            f"{one} {width}": layout.clipped(one, width) for one in texts for width in (-1, 0, 1, 2, 3, 4, 6, 10, 11)
        },
        "fitting": [
            layout.fitting(one, width, **way) for one in texts for width in (0, 1, 3, 7, 8, 12) for way in ways
        ],
        "turned": [layout.turned(one) for one in ("abc", HEBREW, "ع", "١", "a" + HEBREW)],
        "chopped": [layout.chopped(one, width) for one in texts for width in (1, 2, 3, 6)],
        "columns": [layout.columns_of(one) for one in texts],
        "items": [
            spans(layout.item_lines(items, gap, width, **more))
            for items in ([], ["one"], ["one", "two", "three", "abcdefghijkl"])
            for gap in (" ", " - ")
            for width in (0, 3, 7, 9, 40)
            for more in ({}, {"first": "> ", "style": "bold"})
        ],
        "blocks": [
            [list(block) for block in layout.in_blocks(wide, room, gap=gap)]
            for wide in ([], [3], [3, 3, 3], [9, 1, 2, 5])
            for room in (1, 3, 6, 7, 11, 20)
            for gap in (0, 1)
        ],
    }


def table_texts() -> Any:
    rows = [
        ["name", "kind", "what it is"],
        ["a", "", "one"],
        ["longer", "map", "two words, and some more of them"],
        ["", "b", ""],
    ]
    full = sum(tables.widths_of(rows)) + 4
    console = Console(width=40, color_system=None, record=False, file=io.StringIO())
    with console.capture() as captured:
        console.print(tables.folded(rows))
    return {
        "widths": tables.widths_of(rows),
        "aligned": tables.aligned(rows),
        "listed": {str(width): tables.listed(rows, width) for width in (full, full - 1, 21, 20, 12)},
        "folded": captured.get().splitlines(),
        "hyphens": tables.listed([["a", "well-known-and-long", "x"]], 14),
    }


# --- lines above a picture --------------------------------------------------------------------------------------------

OFF = {"completeness": {"sum": 1.5, "expected": 2.0, "relative_gap": 0.25}}
NEAR = {"completeness": {"sum": 1.5, "expected": 1.5001, "relative_gap": 0.004}}
EXACT = {"completeness": {"sum": 1.5, "expected": 1.5, "relative_gap": 1e-9}}
INFOS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "plain": {"model": "m", "variant": "paper"},
    "variant": {"model": "m\n", "variant": "released", "gap": 2.5e-7, **NEAR, "layer": 0},
    "rollout": {"rollout": {"convention": "alti"}, "options": {"head": 0}, "layer": 3, **EXACT},
    "flow": {"rollout": {"convention": "abnar", "flow": True}, "options": {"head": None}, **OFF},
    "removed": {"special_removed": {"share": 0.25, "sum": 3.0}, "options": None},
    "removed to one": {
        "special_removed": {"sum": 0.00041, "rest_made_to_sum_to_1": True},
        "notices": ["Look.", "a\tb"],
    },
    "removed sum": {"special_removed": {"sum": -1.23456}, "special_tokens": "left out"},
    "not removed": {"special_removed": False, "special_tokens": "kept", "variant": None},
    "norms": {"distribution": False, "target": "x", "score": "logit"},
    "shares": {"distribution": True, "target": "x", "score": "log_prob", "convention": "alti"},
    "target": {"target": "was - were", "score": "log_prob", "query": 2, "query_token": "Ġkeys"},
    "position": {"query": 0, "query_token": "[CLS]"},
    "generated": {"generated": "Ġ.", "query": 7, "query_token": "Ċ", "target": 3, "score": "logit"},
}


def headings() -> Any:
    sizes = (0.0, 1e-9, 0.0004, 0.0005, 0.00051, 0.001, 0.0011, 0.01, 0.125, 1.0, -0.25, -1e-5)
    scores = [[], [0.0], [2.0, -1.0, 0.5], [0.123456, 0.2]]
    rows = [
        made.attribution(),
        made.attribution(method="b", **OFF, notices=["Look."]),
        made.row_of_map(**INFOS["removed"]),
    ]
    other = made.attribution(
        method="c", query=1, query_token="The", notices=["Look.", "Again."], **INFOS["removed sum"]
    )
    names = ["one", "two", "three", "four\n"]
    return {
        "lines": {name: heading.heading_line(info, "alti") for name, info in INFOS.items()},
        "variants": [heading.unusual_variant(info) for info in INFOS.values()],
        "rollouts": [heading.rollout_name(info) for info in INFOS.values()],
        "bound": [heading.bound(size) for size in sizes],
        "percent": [heading.percent(size) for size in sizes],
        "removed": [[heading.removed(info), heading.removed_size(info)] for info in INFOS.values()],
        "notes": {name: heading.notes("alti", info) for name, info in INFOS.items()},
        "in percent": [heading.in_percent(info) for info in INFOS.values()],
        "numbers": [
            [heading.number_of(info, row, 3)(score) for row in scores for score in row] for info in INFOS.values()
        ],
        "units": [heading.unit_lines(info, row) for info in INFOS.values() for row in scores],
        "largest": [heading.largest_of(info, row) for info in INFOS.values() for row in scores],
        "explained": [heading.explained_lines(info) for info in INFOS.values()],
        "predicted": [heading.predicted([]), heading.predicted([("was\n", 0.6225), ("were", 0.0004)])],
        "by each": [
            [
                heading.explained_by_each(some, labels),
                heading.removed_by_each(some, labels),
                heading.notes_of_each(some, labels),
            ]
            for some, labels in (([*rows, other], names), (rows[:1], names[:1]), (rows[:2], names[:2]), ([], []))
        ],
    }


def page_row_lines() -> Any:
    gaps: list[dict[str, Any]] = [
        {"gap": 0.5},
        {"tolerance": 1e-4},
        {"tolerance": 1e-4, **NEAR},
        {"gap": 0.0, **NEAR},
        dict(NEAR),
    ]
    more: list[dict[str, Any]] = [
        {"rollout": {"flow": True, "sum": True}},
        {"rollout": {"flow": True, "convention": "abnar"}},
        {"rollout": {"sum": True}},
        {"rollout": {"convention": "alti"}, "convention": "alti"},
        {"convention": "alti"},
        {"convention": "input"},
        {"target": 0, "score": "log_prob", "at_layer": 0, "notes": ["a", 2]},
        {"precision": "bfloat16"},
        {"precision": "float16", "precision_error": 2e-4, "options": {"a": 1, "b": None}, "paper": "P", "variant": "v"},
    ]
    infos = [*INFOS.values(), *gaps, *more, made.INFO]
    return {
        "entry": [page_rows.about_entry(info, 7) for info in infos],
        "causal": page_rows.about_entry({**made.INFO, "causal": True, "unit": "word", "revision": ""}, 1),
        "method": [page_rows.about_method(info) for info in infos],
    }


# --- pictures of a terminal -------------------------------------------------------------------------------------------


def long_attribution(n: int, **info: Any) -> Attribution:
    scores = [((7 * i) % 31 - 9) / 10 for i in range(n)]
    return Attribution(
        torch.tensor(scores, dtype=torch.float64), tuple(f"w{i}" for i in range(n)), "attcat", {**made.INFO, **info}
    )


def attribution_texts() -> Any:
    one, norms = made.attribution(**OFF), made.row_of_map(distribution=False)
    zeros = made.attribution((0.0, 0.0))
    return {
        "one": lined(text.attribution_view(one), 100, 60, 34, 26, 12),
        "top": lined(text.attribution_view(one, top=3)),
        "all of many": lined(text.attribution_view(long_attribution(31), top=0), 50),
        "few of many": lined(text.attribution_view(long_attribution(31)), 50, 20),
        "thirty": lined(text.attribution_view(long_attribution(30)), 50),
        "words": lined(text.attribution_view(made.attribution().by_word())),
        "norms": lined(text.attribution_view(norms)),
        "zeros": lined(text.view(zeros)),
        "no prediction": lined(text.attribution_view(made.attribution(prediction=None, query_token=None))),
        "colours": text.rendered(text.view(one, top=4), width=60, color=True).splitlines(),
        "refused": refusal(lambda: text.attribution_view(one, top=-1)),
    }


def strips_and_bars() -> Any:
    scores = list(made.SIGNED)
    wide = (WIDE, "日本", "##語", HEBREW)
    found: dict[str, Any] = {}
    for width, count in product((1, 5, 9, 14, 30, 80), (0, 16, 256)):
        found[f"strip {width} {count}"] = spans(
            views.strip_lines(made.TOKENS, scores, width=width, colours=count, words=False)
        )
    for width in (1, 4, 8, 20):
        found[f"wide strip {width}"] = spans(
            views.strip_lines(wide, [1.0, -1.0, 0.5, 0.2], width=width, colours=16, words=True)
        )
    for width in (10, 20, 21, 22, 26, 27, 28, 29, 30, 33, 34, 60):
        found[f"bars {width}"] = spans(_laid(views.bars(made.TOKENS, scores), width, 16 if width % 2 else 256))
    found["wide bars"] = spans(
        _laid(views.bars(wide, [1.0, -1.0, 0.5, 0.2], top=2, number=lambda score: f"<{score}>"), 30, 0)
    )
    found["no bars"] = spans(_laid(views.bars((), ()), 30, 0))
    found["zero bars"] = spans(_laid(views.bars(("a", "b"), (0.0, 0.0)), 30, 256))
    found["counts"] = [views.count_of(top, total, 4) for top in (None, 0, 1, 3, 9) for total in (0, 1, 3, 4, 5, 20)]
    found["first"] = [views.largest_first(row) for row in ([], [1.0, -1.0, 2.0, 0.0], [-3.0, 1.0])]
    found["left out"] = [spans(views.left_out(count, width)) for count in (0, 1, 1234) for width in (12, 80)]
    found["separated"] = spans(views.separated([[layout.text_line(("a", ""))], [], [layout.text_line(("b", "dim"))]]))
    found["wrapped"] = spans(_laid(views.wrapped("one two three", "bold"), 8, 0))
    found["colours"] = [
        _colours(system, no_color) for system in (None, "standard", "256", "truecolor") for no_color in (False, True)
    ]
    return found


def _laid(view: Any, width: int, colours: int) -> Any:
    return view.lay(width, colours)


def _colours(system: Any, no_color: bool) -> int:
    seen: list[int] = []
    view = views.View(lambda width, colours: seen.append(colours) or [])  # type: ignore[func-returns-value]
    console = Console(file=io.StringIO(), color_system=system, no_color=no_color, force_terminal=True)
    console.print(view)
    return seen[0]


def row_texts() -> Any:
    rows = [made.attribution(), made.row_of_map(), made.attribution(method="a method with a long name", **OFF)]
    words = [made.attribution().by_word(), made.row_of_map().by_word()]
    many = [
        long_attribution(61),
        replace(long_attribution(61), method="other", scores=long_attribution(61).scores.flip(0)),
    ]
    sixty = [long_attribution(60)]
    found = {
        "numbers": lined(text.compare_view(rows), 100, 60, 30, 12),
        "names": lined(text.compare_view(rows[:2], names=["x", "y"], top=3)),
        "layers": lined(text.compare_view([made.row_of_map(layer=0), made.row_of_map(layer=1)], layers=True)),
        "words": lined(text.compare_view(words), 80),
        "many": lined(text.compare_view(many), 80),
        "all of many": lined(text.compare_view(many, top=0), 80),
        "sixty": lined(text.compare_view(sixty), 80),
        "refused": [refusal(lambda: text.compare_view([])), refusal(lambda: text.compare_view([rows[0], sixty[0]]))],
    }
    infos = [row.info for row in rows]
    scores = [row.scores.tolist() for row in rows]
    for best, width in product((1, 2, 3), (20, 40, 75, 120)):
        view = row_views.rows([row.method for row in rows], made.TOKENS, scores, infos=infos, best=best)
        found[f"strips {best} {width}"] = spans(_laid(view, width, 256))
    view = row_views.rows(["a"], made.TOKENS, scores[:1], infos=infos[:1])
    found["usual"] = spans(_laid(view, 80, 17))
    found["sixteen"] = spans(_laid(view, 80, 16))
    return found


def map_texts() -> Any:
    one, signed = made.a_map(2, 4, notices=["Look."]), made.a_map(1, 3)
    scores = signed.scores.clone()
    scores[0, 0, 1], scores[0, 1, 0], scores[0, 2, 2], scores[0, 2, 0] = -0.5, 123.0, -9.999, 10.0
    signed = replace(signed, scores=scores)
    big = made.a_map(1, 65)
    found = {
        "map": lined(text.map_view(one), 100, 24, 12),
        "layer": lined(text.map_view(one, layer=0)),
        "signed": lined(text.view(signed), 60, 14),
        "sixty-four": lined(text.map_view(made.a_map(1, 64)), 500)["500"][:6],
        "largest": lined(text.map_view(big), 100, 40),
        "some": lined(map_views.largest_scores(one.tokens, one.scores[0].tolist(), count=3), 40, 30),
        "refused": [refusal(lambda layer=layer: text.map_view(one, layer=layer)) for layer in (-3, -2, -1, 0, 1, 2)],
        "spans": spans(_laid(map_views.matrix(("long token", "b", HEBREW), scores[0].tolist()), 60, 256)),
        "colours": text.rendered(text.view(one, layer=1), width=50, color=True).splitlines(),
    }
    return found


def head_texts() -> Any:
    one = made.heads()
    few = replace(one, method="norm", scores=-one.scores[:, :1], special=(True,) * 10)
    return {
        "last": lined(text.view(one), 120, 80, 60, 52, 45),
        "first": lined(head_views.heads_view(one, layer=0)),
        "many": lined(head_views.heads_view(made.heads(1, 11, notices=["Look."]))),
        "few": lined(head_views.heads_view(few)),
        "pairs": [
            [
                None if pair is None else [pair.query, pair.key, round(pair.share, 9)]
                for pair in head_views.largest_pairs(each.layer(0))
            ]
            for each in (one, few)
        ],
        "spans": spans(head_views._lines(one.layer(0).roles(), head_views.largest_pairs(one.layer(0)), 100, 256)),
    }


def generation_texts() -> Any:
    one = made.generation()
    cases = {
        "effects": one,
        "plain": made.generation(effects=False, given=True, gap=None),
        "signed": made.generation(signed=True),
        "chat": made.chat(),
    }
    found: dict[str, Any] = {}
    for name, case in cases.items():
        for by in (None, "word", "sentence"):
            found[f"{name} {by}"] = lined(generation_text.generation_view(case, by=by), 110, 66, 40, 12)
    for count in (0, 16, 256):
        for name in ("effects", "signed"):
            found[f"styles {name} {count}"] = spans(generation_text._table(cases[name], "word", 80, count))
    found["bounds"] = {str(width): len(generation_text._table(one, None, width, 0)) for width in range(40, 80)}
    found["refused"] = refusal(lambda: generation_text.generation_view(one, by="letter"))
    return found


def why_texts() -> Any:
    cases = {name: made.answer(**changes) for name, changes in ANSWERS.items()}
    found: dict[str, Any] = {}
    for name, case in cases.items():
        widths = (100, 60, 41, 40, 24, 9) if name in ("usual", "pair") else (100,)
        found[name] = {str(width): [line.plain for line in why_text.lines_of(case, width, 0)] for width in widths}
    for count in (16, 256):
        found[f"colours {count}"] = spans(why_text.lines_of(cases["usual"], 70, count))
        found[f"against {count}"] = spans(why_text.lines_of(cases["unsigned"], 70, count))
    found["bars"] = {
        str(width): [line.plain for line in why_text._bars(cases["usual"], width, 0)] for width in range(10, 50, 3)
    }
    return found


def _many_words(n: int) -> list[dict[str, Any]]:
    scores = [((5 * i) % 13 - 4) / 10 for i in range(n)]
    whole = sum(map(abs, scores)) or 1.0
    return [
        {
            **why_example.word(1),
            "text": f"w{i}",
            "before": " " if i else "",
            "score": score,
            "share": score / whole,
            "tokens": [i],
        }
        for i, score in enumerate(scores)
    ]


def _pair() -> list[dict[str, Any]]:
    words = [why_example.word(place) for place in range(len(why_example.WORDS))]
    second = [
        {**words[2], "segment": "pair", "text": text, "before": before}
        for text, before in (("日本語", ""), ("so", "\n\n"), ("b\u200b", " -- \n"))
    ]
    return [*words, *second]


NOTES = [
    {"id": "n", "state": state, "text": f"A note that says {state}."} for state in ("caution", "fail", "ok", "info")
]
RANDOM = why_example.trust()["random"]
ANSWER = why_example.example()["answer"]
ANSWERS: dict[str, dict[str, Any]] = {
    "usual": {"notes": NOTES},
    "foil": {
        "answer": {**ANSWER, "foil": "negative", "for": [6], "against": []},
        "trust": why_example.trust(k=1, verdict="caution"),
    },
    "nothing": {
        "answer": {**ANSWER, "for": [], "against": []},
        "trust": why_example.trust(k=0, single=None, checks=[], verdict="fail", sentence="No."),
        "gaps": {"completeness": None, "reconstruction": None},
        "agreement": {"same": 0, "of": 2, "k": 0},
    },
    "one method": {
        "agreement": {"same": 1, "of": 1, "k": 3},
        "trust": why_example.trust(
            random={**RANDOM, "count": 0, "turned": 0, "values": []}, single={"word": 7, "without": 0.2, "turned": True}
        ),
    },
    "two": {
        "trust": why_example.trust(k=2, random={**RANDOM, "all": True, "count": 1, "turned": 1}),
        "agreement": {"same": 2, "of": 2, "k": 1},
    },
    "unsigned": {"method": {**why_example.example()["method"], "signed": False}},
    "sixty": {"words": _many_words(60), "answer": {**ANSWER, "for": [2], "against": [1]}},
    "many": {"words": _many_words(61), "answer": {**ANSWER, "for": [2], "against": [1]}},
    "pair": {"words": _pair(), "pair": "日本語 so b", "text": "a\u200bb\n" + "x" * 70},
    "zeros": {
        "words": [{**one, "share": 0.0} for one in _many_words(3)],
        "answer": {**ANSWER, "for": [], "against": []},
        "trust": why_example.trust(single=None),
    },
    "one more": {
        "words": [{**one, "share": share} for one, share in zip(_many_words(3), (0.5, 0.47, 0.02999), strict=True)],
        "answer": {**ANSWER, "for": [0], "against": []},
        "trust": why_example.trust(single=None),
    },
    "weak": {
        "words": [{**one, "share": share} for one, share in zip(_many_words(3), (0.01, -0.02, 0.005), strict=True)],
        "answer": {**ANSWER, "for": [0], "against": []},
        "trust": why_example.trust(single=None),
    },
}


# --- notebooks and pages ----------------------------------------------------------------------------------------------


def html_parts(page: str) -> Any:
    """A page or an output with its style and its script taken out."""
    short = re.sub(r"<style>.*?</style>", "<style></style>", page, flags=re.DOTALL)
    short = re.sub(
        r"<script>.*?</script>|<script type=\"text/javascript\">.*?</script>",
        "<script></script>",
        short,
        flags=re.DOTALL,
    )
    short = re.sub(r"'sha256-[^']*'", "'sha256'", re.sub(r'data-mixlens="[0-9a-f]*"', "data-mixlens", short))
    short = re.sub(r"made \d{4}-\d\d-\d\d", "made today", short)
    return re.sub(r"((?:&quot;|\")data(?:&quot;|\"): ?(?:&quot;|\"))[A-Za-z0-9+/=]+", r"\1", short).split("\n")


def notebooks() -> Any:
    big = made.a_map(1, 64)
    long_names = made.a_map(1, 64, tokens=tuple(f"t{i}" for i in range(64)))
    return {
        "attribution": html_parts(notebook.html(made.attribution())),
        "row": html_parts(notebook.html(made.row_of_map(prediction=None))),
        "map": html_parts(notebook.html(made.a_map(2, 3))),
        "large map": notebook.without_script(made.a_map(1, 64))[-80:],
        "last layer alone": re.findall("<summary>.*?</summary>", notebook.without_script(made.a_map(2, 45))),
        "all layers": re.findall("<details.*?</summary>", notebook.without_script(made.a_map(4, 20))),
        "sixty": notebook.without_script(replace(big, tokens=long_names.tokens))[-120:],
        "heads": html_parts(notebook.html(made.heads())),
        "infinite": html_parts(notebook.html(made.attribution((float("inf"), 1.0)))),
        "scripts": [len(notebook.output_script(notebook.OUTPUT_STYLES, notebook.OUTPUT_SCRIPTS, "f")[1])],
        "written": html_parts(generation_page.notebook_html(made.generation())),
        "written against": html_parts(generation_page.notebook_html(made.generation(signed=True))),
        "why": {
            name: html_parts(why_notebook.without_script(made.answer(**changes)))
            for name, changes in ANSWERS.items()
            if name in ("usual", "unsigned", "pair", "zeros", "nothing")
        },
    }


def latex_texts() -> Any:
    words = made.attribution().by_word()
    strange = Attribution(
        torch.tensor([1.0, -0.029, -0.031, 0.0]), ("日", "e\u0301\\{}$", "##`-,", "x"), "a_b", {"model": "m"}
    )
    return {
        "one": latex.latex(made.attribution()).split("\n"),
        "words": latex.latex(words).split("\n"),
        "row": latex.latex(made.row_of_map(), standalone=True).split("\n"),
        "several": latex.latex([made.row_of_map(), strange]).split("\n"),
        "strange": latex.latex(strange).split("\n"),
        "escaped": [latex.escaped(text) for text in ("".join(latex.SPECIAL), "a\tb", "e\u0301")],
        "refused": [
            refusal(lambda some=some: latex.latex(some))
            for some in ([], [made.a_map()], made.attribution((float("nan"),)))
        ],
    }


def entries() -> Any:
    results = [made.attribution(), made.row_of_map(), made.attribution(**OFF, notices=["Look.", "a\u200bb"])]
    maps = [
        made.a_map(2, 3),
        made.a_map(2, 3, method="globenc", convention="globenc"),
        made.a_map(2, 3, rollout={"convention": "alti"}),
    ]
    generated = made.attribution(generated="Ġwas", causal=True, task="causal-lm", text="x" * 90)
    bare = Attribution(torch.tensor([1.0, -2.0]), ("a", "b"), "mine", {})
    return {
        "attributions": without_blocks(page_entry.entry(results, room=2_000_000)),
        "scores": [
            decode(method["scores"]).tolist() for method in page_entry.entry(results, room=2_000_000)["methods"]
        ],
        "maps": [
            without_blocks(page_entry.entry(maps, room=2_000_000)),
            _decoded(page_entry.entry(maps, room=2_000_000)),
        ],
        "more": without_blocks(page_entry.entry([generated], room=9_000, more={"why": "because"})),
        "bare": without_blocks(page_entry.entry([bare], room=9_000)),
        "precision": {
            str(room): page_entry.entry([made.a_map(6, 30)], room=room)["precision"]
            for room in (9_000, 40_000, 300_000)
        },
        "labels": [
            page_entry.labels(some)
            for some in (
                results,
                maps,
                [bare, bare],
                [made.attribution(variant=None, options=None), made.attribution(target=0)],
            )
        ],
        "numbered": [page_entry.numbered(names) for names in ([], ["a"], ["a", "b", "a", "a", "b"])],
        "shortened": [
            page_entry.shortened("abcdefghij", begin, end=end) for begin in (3, 5, 8, 9, 10) for end in (0, 1, 3)
        ],
        "explains": [page_entry.explains(info) for info in INFOS.values()],
        "predicts": [
            page_entry.predicts([made.attribution(task=task, **more)], prediction)
            for task in (None, "classification", "causal-lm", "masked-lm")
            for more in ({}, {"query_token": None}, {"prediction": None})
            for prediction in ([], [("a", 0.5)])
        ],
        "query": [page_entry.query_of([one]) for one in _asked()],
        "signed": [
            page_entry.is_signed(one)
            for one in (
                bare,
                *results,
                made.attribution((1.0, 2.0)),
                made.attribution((1.0,), method="grad_l2"),
                made.row_of_map(),
                made.a_map(),
            )
        ],
        "questions": [
            page_entry.question_of(some)
            for some in ([made.a_map()], results, [made.row_of_map(), made.attribution(target="a\u200b")])
        ],
    }


def _asked() -> list[Any]:
    plain = {"query": None, "query_token": None}
    return [
        made.attribution(),
        made.attribution(**plain),
        made.attribution((1.0, 2.0), **plain),
        made.attribution((1.0, 2.0, 3.0), causal=True, **plain),
        made.attribution((1.0, 2.0), query=2),
        made.attribution((1.0, 2.0), query=1),
        made.attribution((1.0, 2.0), query=-1),
        made.attribution((1.0, 2.0), query="x", query_token=None),
    ]


def without_blocks(value: Any) -> Any:
    """A value with the data of its blocks taken out: how they are packed is tested by itself."""
    if isinstance(value, dict):
        return {
            key: "..." if key == "data" and isinstance(one, str) else without_blocks(one) for key, one in value.items()
        }
    return list(map(without_blocks, value)) if isinstance(value, list | tuple) else value


def _decoded(entry: Any) -> Any:
    """The numbers of the sheets of an entry."""
    return [
        {name: np.round(decode(block), 6).tolist() for name, block in method["sheets"].items()}
        for method in entry["methods"]
    ]


def pages() -> Any:
    why = SimpleNamespace(to_dict=lambda: why_example.example(text="a\u200bb" + "x" * 80))
    told = [
        results_page.Told([made.attribution(), made.a_map(2, 3, text=None)], why=why),
        results_page.Told([], why=why),
    ]
    texts = (
        ["x" * 70 + end + "y" * 30 for end in "ab"]
        + ["z" * 85 + end for end in "ab"]
        + ["z" * 80 + end + "w" * 60 for end in "12"]
    )
    same = [made.attribution(text=text) for text in texts]
    other = made.attribution(model="other/model")
    return {
        "results": html_parts(results_page.page([made.attribution(), made.row_of_map()])),
        "titled": html_parts(
            results_page.page([made.attribution(), other], title="Mine <b>", preset="methods", room=400_000)
        ),
        "told": [
            html_parts(results_page.page_of_texts([one], preset="why"))[:60]
            for one in (*told, results_page.Told([made.attribution()], unanswered="No."))
        ],
        "labels": [
            [one["label"] for one in results_page.entries(some, room=90_000)]
            for some in (same, [other, made.attribution()], same[:1])
        ],
        "subtitles": [
            re.sub(r"\d{4}-\d\d-\d\d", "today", one["subtitle"])
            for one in results_page.entries([other, made.attribution(), made.attribution()], room=90_000)
        ],
        "groups": [
            len(results_page._by_text(some))
            for some in (
                same,
                [made.attribution(), made.attribution((1.0,)), made.row_of_map(), made.attribution(dtype="float16")],
            )
        ],
        "refused": [
            refusal(lambda some=some: results_page.page(some))
            for some in ([], [1], [Attribution(torch.zeros(0), (), "none", {})])
        ],
        "why": html_parts(why_page.why_page(why)),
        "about": [
            why_page.about_line({"task": task, "model": "m", "classes": classes})
            for task in (*why_page.KINDS, "x")
            for classes in (None, [], ["a"], list("abcdefgh"), list("abcdefghi"))
        ],
        "crumbs": [why_page.crumb_of({"task": task}) for task in (*why_page.KINDS, "x")],
        "shown": why_page.shown_why(
            {
                **why_example.example(text=None, pair="c\u200bd", sentence="a\nb", question="q\u200b"),
                "n": (1.23456789, {"x": 1e-9 / 3}, 3, True, None),
            }
        ),
    }


def templates() -> Any:
    kind = page_template.Kind(("tokens.css",), ("dom.js",), "start();", "; rule", True, ((".in", "why.css"),))
    page = page_template.filled_page(
        {"a": "</script>&\u2028"}, kind, title="T <i>\n", subtitle="S\u202f%", answer="A\u200b&", crumb="C", name=""
    )
    style, script = page_template.style_and_script(kind)
    return {
        "page": html_parts(page),
        "plain page": html_parts(page_template.filled_page({}, page_template.REPORT, title="T", subtitle="S")),
        "style": [style.count(".in {\n"), style.index(".in {") == len(page_template.asset("tokens.css")), style[-4:]],
        "script": [script[:22], script[-20:], '"use strict"' in script[30:]],
        "visible": [
            page_template.visible(text) for text in ("a b", "a\u200bb\n\t\u200c\u200d\u3000\u00a0", "\u202e\x00\u202f")
        ],
        "folders": [page_template.folder_name(name) for name in ("./a/b/", "/a/b", "~/c", "a/b", "a/", "/")],
        "lines": [page_template.shown_line(text) for text in ("a\nb\u202f%\u200b", "é")],
        "json": page_template.safe_json({"a": ["<>&\u2028\u2029", "\ud800", 1.5, None]}),
        "values": page_template.plain({"a": (1, Path("x")), 2: None}),
        "none": [page_template.visible_or_none(None), page_template.visible_or_none("\u200b")],
        "policy": page_template.policy(kind) in page and page_template.policy_in(page) == page_template.policy(kind),
        "rules": re.sub(r"'sha256-[^']*'", "'sha256'", page_template.policy(kind)),
    }


def written_pages() -> Any:
    cases = {
        "effects": made.generation(),
        "given": made.generation(
            effects=False, given=True, gap=None, versions=None, paper=None, is_map=False, notices=["Look."]
        ),
        "signed": replace(made.generation(signed=True, method="x"), effects=made._effects("[MASK]")),
        "chat": made.chat(),
    }
    short = replace(cases["effects"], text=replace(cases["effects"].text, unit="token", groups=()), effects=None)
    found: dict[str, Any] = {name: generation_page.content_of(case) for name, case in cases.items()}
    found["tokens"] = generation_page.content_of(short)
    found["page"] = html_parts(generation_page.generation_page(cases["given"]))
    return found


# --- what flows where -------------------------------------------------------------------------------------------------


def flow_map(n: int = 10, **info: Any) -> Map:
    one = made.a_map(3, n, tokens=made.TOKENS[:n], **info)
    return replace(one, special=made.SPECIAL, words=made.WORDS) if n == 10 else one


def flow_pages() -> Any:
    heads = made.heads(3, 2)
    causal = flow_map(10, causal=True, prediction=None, query=8, gap=None, versions=None, pair="A pair", text=None)
    long = long_map(64)
    cases = {
        "words": flow_page.picture_of(flow_map(), heads=heads),
        "causal": flow_page.picture_of(causal),
        "long": flow_page.picture_of(long),
        "asked": flow_page.picture_of(flow_map(method="globenc"), query=4, rollout="toolkit"),
    }
    found: dict[str, Any] = {}
    for name, picture in cases.items():
        found[name] = without_blocks(flow_page.flow_data(picture, 2_000_000))
        found[f"{name} words"] = [flow_page._about(picture), flow_page._asked(picture), picture.column, picture.unit]
    found["blocks"] = {
        name: np.round(decode(block), 5).tolist()
        for name, block in flow_page.flow_data(cases["words"], 2_000_000)["blocks"].items()
        if block["rows"] < 90
    }
    found["rooms"] = [
        [block["coding"] for block in flow_page.flow_data(cases["long"], room)["blocks"].values()]
        for room in (30_000, 100_000, 2_000_000)
    ]
    found["page"] = html_parts(flow_page.flow_page(flow_map(), heads=heads))
    found["counted"] = [flow_page.counted_number(count, "word") for count in (0, 1, 2, 1234)]
    found["refused"] = [
        refusal(lambda: flow_page.flow_page(long, megabytes=0.2)),
        refusal(lambda: flow_page.picture_of(made.attribution())),  # type: ignore[arg-type]
        refusal(lambda: flow_page.picture_of(flow_map(), query=10)),
        refusal(lambda: flow_page.picture_of(flow_map(), query=-1)),
        refusal(lambda: flow_page.picture_of(flow_map(), heads=made.heads(2))),
        refusal(lambda: flow_page.picture_of(flow_map(9), heads=heads)),
        refusal(lambda: flow_page.picture_of(replace(flow_map(), scores=-flow_map().scores), rollout="globenc")),
        refusal(
            lambda: flow_page.picture_of(replace(flow_map(), scores=1.0011 * flow_map().scores), rollout="globenc")
        ),
        refusal(
            lambda: flow_page.picture_of(replace(flow_map(), scores=1.0009 * flow_map().scores), rollout="globenc")
        ),
        refusal(
            lambda: flow_page.picture_of(
                replace(flow_map(), scores=flow_map().scores * float("nan")), rollout="globenc"
            )
        ),
    ]
    return found


def long_map(n: int) -> Map:
    """Five sentences of a dozen words and a mark each."""
    tokens = tuple("." if i % 13 == 12 else f"W{i}" for i in range(n))
    words = tuple((token, (i,)) for i, token in enumerate(tokens))
    one = made.a_map(
        2, n, tokens=tokens, text=" ".join(tokens).replace(" .", "."), query=3, prediction=[("yes\u200b", 0.99967)]
    )
    return replace(one, words=words, special=(False,) * n)


def words_of(*texts: str, special: Sequence[int] = ()) -> list[Word]:
    return [Word(text, " " if place else "", (place,), 0, place in special) for place, text in enumerate(texts)]


def grouped(words: Sequence[Word], query: int, *, causal: bool = False) -> list[Any]:
    return [
        [group.kind, group.name, group.title, list(group.words)]
        for group in flow_groups.groups_of(words, query, causal=causal)
    ]


def sentences(*sizes: int) -> list[Word]:
    """A text of sentences of so many words, the last of which is a mark."""
    texts = [text for size in sizes for text in [*(f"W{i}" for i in range(size - 1)), "."]]
    return words_of(*texts)


def flow_columns() -> Any:
    marks = words_of("[CLS]", "a", "[SEP]", "[MASK]", "b", "[SEP]", "[PAD]", special=(0, 2, 3, 5, 6))
    found: dict[str, Any] = {
        "marks": [grouped(marks, query, causal=causal) for query in (0, 3, 4) for causal in (False, True)],
        "forty": grouped(sentences(41), 5)[:3],
        "forty-one": grouped(sentences(20, 22), 5),
        "one long": [[one[0], one[1], one[2], one[3][0], len(one[3])] for one in grouped(sentences(61, 3), 63)],
        "longer": [[one[0], one[1], one[3][0], len(one[3])] for one in grouped(sentences(62, 3), 63)],
        "many": [[one[0], one[1], one[3][0], len(one[3])] for one in grouped(sentences(*[2] * 41), 81)],
        "many enough": [[one[0], one[1], one[3][0], len(one[3])] for one in grouped(sentences(*[2] * 40), 79)],
        "long": [[one[1], one[3][0], len(one[3])] for one in grouped(sentences(100, 61, 60, 7), 3)],
        "units": [
            flow_groups.unit_of([flow_groups.Group(kind, "", "", (0,)) for kind in kinds])
            for kinds in ((), ("mark",), ("mark", "sentence", "word"), ("answer", "part"))
        ],
    }
    return found


def flow_arrays() -> Any:
    layers = made.a_map(3, 4).scores.numpy()
    layers[1, 2] = [0.5, 0.4988, 0.0012, 0.0]
    columns, words = [[0], [1, 3], [2]], [[0, 1], [2], [3]]
    flow = flow_numbers.flow_of(layers, 2, columns, words)
    bands = flow.bands
    found: dict[str, Any] = {
        name: np.round(getattr(flow, name), 9).tolist()
        for name in (
            "shares",
            "origins",
            "undrawn",
            "rolled",
            "alone",
            "rolled_words",
            "alone_words",
            "words",
            "input_bands",
        )
    }
    found |= {
        f"bands {name}": np.round(getattr(bands, name), 9).tolist()
        for name in ("layer", "above", "below", "share", "parts")
    }
    found["heads"] = np.round(
        flow_numbers.heads_by_group(made.heads(1, 2), [[0], [1, 2, 3], [4, 5, 6, 7, 8], [9]]), 9
    ).tolist()
    found["layers"] = [
        np.round(flow_numbers.layers_of(made.a_map(1, 3), name)[0], 9).tolist() for name in (None, "abnar", "globenc")
    ]
    found["membership"] = flow_numbers.membership([[0, 2], [3]], 5).tolist()
    return found


# --- packed numbers ---------------------------------------------------------------------------------------------------


def packed() -> Any:
    plain = np.array([[0.0, 0.5, 1.0, 0.123456], [0.0, 0.0, 0.0, 0.0], [3.0, 2.0, 1.0, 0.001]])
    signed = plain * np.array([1, -1, 1, -1])
    kinds = (Precision("float32"), Precision("bits16"), Precision("bits8"), Precision("top", 2), Precision("top", 9))
    found: dict[str, Any] = {
        "blocks": [opened(encode(rows, kind)) for rows in (plain, signed) for kind in kinds],
        "decoded": [np.round(decode(encode(rows, kind)), 7).tolist() for rows in (plain, signed) for kind in kinds],
        "descriptions": [kind.description(signed=signed) for kind in kinds for signed in (False, True)],
        "usual": kinds[1].description(),
    }
    sheets = [
        np.abs(np.sin(np.arange(12_000).reshape(-1, 60) ** 1.1)),
        np.abs(np.cos(np.arange(9_000).reshape(-1, 60))),
    ]
    rooms = (1_000, 2_000, 6_000, 12_000, 25_000, 40_000, 60_000, 90_000, 200_000)
    found["fits"] = {str(room): _fitted(sheets, room) for room in rooms}
    found["small"] = {str(room): _fitted([plain], room) for room in (40, 60, 100, 1000)}
    found["refused"] = [
        refusal(lambda rows=rows: encode(rows, kinds[0]))
        for rows in (np.full((1, 2), np.inf), plain * 1e40, plain * np.nan)
    ]
    found["none"] = _fitted([], 10)
    return found


def opened(block: Any) -> Any:
    """A block with its bytes as they are before they are deflated."""
    return {**block, "data": zlib.decompress(base64.b64decode(block["data"])).hex(" ", 4)}


def _fitted(sheets: Any, room: int) -> Any:
    told = refusal(lambda: fit(sheets, room))
    if told != "no refusal":
        return told
    precision, blocks = fit(sheets, room)
    used = sum(len(block["data"]) for block in blocks)
    return [precision.kind, len(blocks), used <= room, precision.kind != "top" or used > 0.8 * room]


CASES: dict[str, Callable[[], Any]] = {
    "colours": colours,
    "letters": letters,
    "tokens": shown_tokens,
    "fitted": fitted,
    "tables": table_texts,
    "headings": headings,
    "page rows": page_row_lines,
    "attributions": attribution_texts,
    "strips and bars": strips_and_bars,
    "rows": row_texts,
    "maps": map_texts,
    "heads": head_texts,
    "written": generation_texts,
    "why": why_texts,
    "notebooks": notebooks,
    "latex": latex_texts,
    "entries": entries,
    "pages": pages,
    "templates": templates,
    "written pages": written_pages,
    "flow pages": flow_pages,
    "flow columns": flow_columns,
    "flow numbers": flow_arrays,
    "packed": packed,
    **told_runs.CASES,
}


def told(name: str) -> Any:
    return kept.plain(CASES[name]())


if __name__ == "__main__":
    kept.main(PATH, {name: (lambda name=name: told(name)) for name in CASES})
