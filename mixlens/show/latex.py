r"""Token heat strips for LaTeX: \colorbox of the xcolor package, nothing else. Every special character is escaped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from ..errors import InputError, printable
from ..types import Attribution
from .colors import ink, shade, shares
from .heading import explained_lines, heading_line
from .tokens import pieces

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


def _strange(texts: Iterable[str]) -> list[str]:
    """Characters that are left as they are and that pdfLaTeX has no letters for."""
    characters = {char for text in texts for char in _composed(text)}
    return sorted(char for char in characters - SPECIAL.keys() if not KNOWN.match(char))


def _strip(result: Attribution) -> str:
    """The tokens of an attribution as colour boxes; a token that continues a word touches the one before it."""
    texts = pieces(result.tokens, words=result.info.get("unit") == "word")
    colours = shares(result.scores.tolist())
    boxes = [_separator(goes_on) + _box(text, share) for (text, goes_on), share in zip(texts, colours, strict=True)]
    return "".join(boxes).removeprefix("\n")


def _separator(goes_on: bool) -> str:
    r"""What stands before a box: a line break is a space to LaTeX, unless % hides it."""
    return "%\n" if goes_on else "\n"


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
    body = _paragraph(results) if isinstance(results, Attribution) else _table(every)
    return _comments(every) + (_document(body) if standalone else body)


def _document(body: str) -> str:
    """A whole document around a picture."""
    start = "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{xcolor}\n\\begin{document}\n\\noindent\n"
    return start + body + "\\end{document}\n"


def _refuse(results: Sequence[Attribution]) -> None:
    """Refuse what no picture can be made of."""
    if not results or not all(isinstance(result, Attribution) for result in results):
        raise InputError("LaTeX is made of an Attribution, or of a list of them. Read a map out first: map.readout(query).")
    _refuse_infinite(results)


def _refuse_infinite(results: Sequence[Attribution]) -> None:
    if not all(bool(result.scores.isfinite().all()) for result in results):
        raise InputError("there are scores that are not finite: there is nothing true to draw.")


def _comments(results: Sequence[Attribution]) -> str:
    """The comments above the picture: methods, what is explained, letters that pdfLaTeX does not have, what is needed."""
    methods = [heading_line(result.info, result.method) for result in results]
    notes = [*methods, *explained_lines(results[0].info), *_letter_notes(results), r"needs \usepackage{xcolor}"]
    return "".join(f"% {note}\n" for note in notes)


def _letter_notes(results: Sequence[Attribution]) -> list[str]:
    """A note that names the letters that pdfLaTeX does not have; none where it has all."""
    strange = _strange(text for result in results for text, _ in pieces(result.tokens))
    letters = " ".join(f"{char} (U+{ord(char):04X})" for char in strange)
    note = f"not in the fonts of pdfLaTeX: {letters}. Use LuaLaTeX or XeLaTeX with a font that has them."
    return [note] if strange else []


def _paragraph(result: Attribution) -> str:
    return "{\\setlength{\\fboxsep}{1.5pt}\\raggedright\n" + _strip(result) + "\\par}\n"


def _table(results: Sequence[Attribution]) -> str:
    """A row for each attribution: its method, and its strip."""
    rows = [f"{escaped(result.method)} & \\raggedright\n{_strip(result)}\\tabularnewline\n" for result in results]
    table = "\\begin{tabular}{@{}lp{0.75\\linewidth}@{}}\n" + "".join(rows) + "\\end{tabular}"
    return "{\\setlength{\\fboxsep}{1.5pt}%\n" + table + "\\par}\n"
