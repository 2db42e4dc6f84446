"""The HTML file around numbers: template, style, script and data in one string that needs no network and no server."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from ..base.text import THIN

ASSETS = Path(__file__).parent / "page"
MARK = '<meta name="generator" content="mixlens report">'
FIELD = re.compile(r"\{([^}]*)\}")
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
UNSAFE = re.compile("[<>&\u2028\u2029]")
INVISIBLE_KEPT = "\n\t\u200c\u200d\u3000\u00a0"  # line breaks, joiners, wide spaces


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    return json.loads(json.dumps(value, default=str))


def safe_json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text.encode("utf-8", "replace").decode()  # a lone surrogate is no character


def visible(text: str) -> str:
    """A text with what cannot be seen, or turns the direction of writing, spelled out. Line breaks and joiners stay."""
    return "".join(char if char.isprintable() or char in INVISIBLE_KEPT else f"\\u{ord(char):04x}" for char in text)


def visible_or_none(text: str | None) -> str | None:
    return None if text is None else visible(text)


def folder_name(model: str) -> str:
    """The last part of a local folder; a hub id as it is."""
    return model.rstrip("/").rpartition("/")[2] if model.startswith((".", "/", "~")) else model


@cache
def asset(*names: str) -> str:
    """Files of the page, one after the other. "use strict" is removed: the script around them says it once."""
    text = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)
    return text.replace('"use strict";\n', "")


def script_of(*names: str, start: str) -> str:
    """One script inside a function, so that none of its names is global."""
    return f'(() => {{\n"use strict";\n{asset(*names)}\n{start}\n}})();\n'


# --- the page ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of page: its files, and what starts it. `wide`: 1,280 px of content, not 1,080."""

    styles: tuple[str, ...]
    scripts: tuple[str, ...]
    start: str
    rules: str = ""  # more of its Content-Security-Policy
    wide: bool = False
    nested: tuple[tuple[str, str], ...] = ()  # (selector, file): a style that holds inside that selector alone


READ = 'JSON.parse(document.getElementById("data").textContent)'
BASE_STYLES = ("tokens.css", "base.css")  # before the styles of every page
BASE_SCRIPTS = ("dom.js", "base.js")  # before the scripts of every page; base.js says what they offer
WHY_STYLES, WHY_SCRIPTS = ("why.css",), ("why.js",)  # the sections of an answer, on any page
SHOWN = (*BASE_SCRIPTS, *WHY_SCRIPTS, "core.js", "views.js", "page.js")
REPORT_STYLES = (*BASE_STYLES, *WHY_STYLES, "views.css", "page.css")
START = f'const page = startPage({READ}, document.getElementById("main"));'
REPORT = Kind(REPORT_STYLES, SHOWN, START)
FLOW_SCRIPTS = ("core.js", "bands.js", "matrix.js", "heads.js", "flow.js")
SERVED = Kind(
    (*BASE_STYLES, "serve.css"),
    (*BASE_SCRIPTS, *WHY_SCRIPTS, *FLOW_SCRIPTS, "generate.js", "serve_form.js", "serve_states.js", "serve.js"),
    'startForm(document.getElementById("main"));',
    "; connect-src 'self'",
    nested=((".shows-why", "why.css"), (".shows-flow", "flow.css"), (".shows-written", "generate.css")),
)


def subtitle_of(models: Sequence[str], methods: Sequence[str]) -> str:
    return f"{', '.join(models)} · {', '.join(methods)} · made {datetime.date.today().isoformat()} with mixlens"


def filled_page(
    data: Mapping[str, Any],
    kind: Kind,
    *,
    title: str,
    subtitle: str,
    crumb: str = "",
    name: str | None = None,
    answer: str = "",
) -> str:
    """The template with everything inside. Only our own style and script may run in it, by their hashes.

    `title` is the question, the only h1; `subtitle` the small line above it; `crumb` says in the head of the page what
    kind of page it is; `name` is the name of the browser's window, by default the title; `answer` a sentence that
    stands there without scripts."""
    style, script = style_and_script(kind)
    fields = {
        "policy": policy(kind),
        "name": escape(shown_line(name or title)),
        "title": escape(shown_line(title)),
        "subtitle": escape(shown_line(subtitle)),
        "answer": f'<p class="answer">{escape(shown_line(answer))}</p>' if answer else "",
        "crumb": escape(shown_line(crumb)),
        "width": "wide" if kind.wide else "usual",
        "style": style,
        "data": safe_json(plain({"format": 1, **data})),
        "script": script,
    }
    return FIELD.sub(lambda match: fields[match[1]], asset("page.html"))


def shown_line(text: str) -> str:
    """A text on one line: what cannot be printed is a space. The thin space before % stays."""
    return "".join(char if char.isprintable() or char == THIN else " " for char in text)


@cache
def style_and_script(kind: Kind) -> tuple[str, str]:
    inside = [f"{selector} {{\n{asset(name)}\n}}\n" for selector, name in kind.nested]
    return "".join([asset(*kind.styles), *inside]), script_of(*kind.scripts, start=kind.start)


def policy(kind: Kind) -> str:
    """The Content-Security-Policy: nothing from anywhere, but this style and this script, by their hashes."""
    style, script = (
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for text in style_and_script(kind)
    )
    rules = f"default-src 'none'; style-src {style}; script-src {script}; img-src data:"
    return f"{rules}; base-uri 'none'; form-action 'none'{kind.rules}"


def policy_in(page: str) -> str:
    """The Content-Security-Policy that a page of ours names in its head."""
    found = POLICY.search(page)
    assert found is not None, "every page of the template names its policy"
    return found[1]
