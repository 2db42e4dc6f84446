r"""Token heat strips for LaTeX: \colorbox of the xcolor package, nothing else. Every special character is escaped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ..errors import InputError, printable
from ..types import Attribution
from .colors import ink, shade, shares
from .text import explained, pieces, told

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r'\string"{}',  # active in some languages
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": "-{}",  # two of them would become a dash
    ",": ",{}",  # and two of these a quotation mark
    "␣": r"\textvisiblespace{}",
    "⏎": r"$\hookleftarrow$",
    "◌": r"$\circ$",
    "…": r"\ldots{}",
    "−": r"$-$",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "‘": r"\textquoteleft{}",
    "’": r"\textquoteright{}",
    "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}",
    "€": r"\texteuro{}",
    "•": r"\textbullet{}",
    "·": r"\textperiodcentered{}",
    "←": r"$\leftarrow$",
    "→": r"$\rightarrow$",
}
KNOWN = re.compile("[\x20-\x7e\xa0-\xff\u0100-\u017f]")  # what pdfLaTeX can set by itself (some of it in T1)


def escaped(text: str) -> str:
    """A text that LaTeX sets as it is."""
    return "".join(SPECIAL.get(char, char) for char in _composed(printable(text)))


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)  # pdfLaTeX knows é, not e and an accent


def _strange(texts: Sequence[str]) -> list[str]:
    """Characters kept as they are that pdfLaTeX has no letters for."""
    return sorted({char for text in texts for char in _composed(text) if char not in SPECIAL and not KNOWN.match(char)})


def _strip(result: Attribution) -> str:
    """The tokens of an attribution as colour boxes; a token that continues a word touches the one before it."""
    texts = pieces(result.tokens, words=result.info.get("unit") == "word")
    boxes: list[str] = []
    for (text, goes_on), share in zip(texts, shares(result.scores.tolist()), strict=True):
        before = "%\n" if goes_on and boxes else "\n" if boxes else ""
        boxes.append(before + _box(text, share))
    return "".join(boxes)


def _box(text: str, share: float) -> str:
    back = shade(share)
    front = "{},{},{}".format(*ink(back))
    return rf"\colorbox[RGB]{{{back[0]},{back[1]},{back[2]}}}{{\color[RGB]{{{front}}}\strut {escaped(text)}}}"


def latex(results: Attribution | Sequence[Attribution], *, standalone: bool = False) -> str:
    r"""Tokens on a background as strong as their score; several attributions are a table with their methods.

    Needs \usepackage{xcolor} and, for accented letters, \usepackage[T1]{fontenc}. Other letters are kept as they are: a
    comment names those that only LuaLaTeX or XeLaTeX with a fitting font can set.
    """
    every = [results] if isinstance(results, Attribution) else list(results)
    _refuse(every)
    head = "".join(f"% {note}\n" for note in [*_notes(every), r"needs \usepackage{xcolor}"])
    body = _paragraph(results) if isinstance(results, Attribution) else _table(every)
    if not standalone:
        return head + body
    start = "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{xcolor}\n\\begin{document}\n\\noindent\n"
    return head + start + body + "\\end{document}\n"


def _refuse(results: Sequence[Attribution]) -> None:
    if not results or any(not isinstance(result, Attribution) for result in results):
        raise InputError("LaTeX is made of an Attribution, or of a list of them. Read a map out first: map.readout(query).")
    if any(not bool(result.scores.isfinite().all()) for result in results):
        raise InputError("there are scores that are not finite: there is nothing true to draw.")


def _notes(results: Sequence[Attribution]) -> list[str]:
    """The comments above the picture: method, what is explained, letters that pdfLaTeX does not have."""
    notes = [told(result.info, result.method) for result in results]
    notes += [explained(results[0].info)] if "query_token" in results[0].info else []
    strange = _strange([text for result in results for text, _ in pieces(result.tokens)])
    if strange:
        letters = " ".join(f"{char} (U+{ord(char):04X})" for char in strange)
        notes.append(f"not in the fonts of pdfLaTeX: {letters}. Use LuaLaTeX or XeLaTeX with a font that has them.")
    return notes


def _paragraph(result: Attribution) -> str:
    return "{\\setlength{\\fboxsep}{1.5pt}\\raggedright\n" + _strip(result) + "\\par}\n"


def _table(results: Sequence[Attribution]) -> str:
    """A row for each attribution: its method, and its strip."""
    rows = [f"{escaped(result.method)} & \\raggedright\n{_strip(result)}\\tabularnewline\n" for result in results]
    table = "\\begin{tabular}{@{}lp{0.75\\linewidth}@{}}\n" + "".join(rows) + "\\end{tabular}"
    return "{\\setlength{\\fboxsep}{1.5pt}%\n" + table + "\\par}\n"
