r"""Token heat strips for LaTeX: \colorbox of xcolor, dashed lines of ulem. Every special character is escaped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from ..base.doors import door
from ..base.errors import InputError, printable
from ..types import Attribution
from .colors import LIGHT, hue_of, rgb_of, scaled, shares
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
MARKED = 0.03  # of the sum of all magnitudes: from here on a token is underlined, for, or dashed, against
XCOLOR, ULEM = r"\usepackage{xcolor}", r"\usepackage[normalem]{ulem}"
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
    scores = result.scores.tolist()
    signed, least = _is_signed(result), MARKED * sum(map(abs, scores))
    marks = [_mark(score, least) if signed else "" for score in scores]
    boxes = [
        _separator(goes_on) + _box(text, share, mark, signed=signed)
        for (text, goes_on), share, mark in zip(texts, shares(scores), marks, strict=True)
    ]
    return "".join(boxes).removeprefix("\n")


def _is_signed(result: Attribution) -> bool:
    return bool((result.scores < 0).any())


def _mark(score: float, least: float) -> str:
    """The line below a token: solid for, dashed against, none below a score that is weak."""
    if abs(score) < least or not score:
        return ""
    return r"\underline" if score > 0 else r"\dashuline"


def _separator(goes_on: bool) -> str:
    r"""What stands before a box: a line break is a space to LaTeX, unless % hides it."""
    return "%\n" if goes_on else "\n"


def _box(text: str, share: float, mark: str, *, signed: bool) -> str:
    """A token on its tint. \\mbox keeps what is underlined in one piece."""
    back, front = (
        "{},{},{}".format(*rgb_of(colour))
        for colour in (scaled(share, f"{hue_of(share, signed=signed)}-tint"), LIGHT["ink"])
    )
    written = f"{mark}{{\\mbox{{{escaped(text)}}}}}" if mark else escaped(text)
    return rf"\colorbox[RGB]{{{back}}}{{\color[RGB]{{{front}}}\strut {written}}}"


@door
def latex(results: Attribution | Sequence[Attribution], *, standalone: bool = False) -> str:
    r"""Tokens on a background as strong as their score; several attributions are a table with their methods.

    What counts for the target is underlined, what counts against it has a dashed line. Needs \usepackage{xcolor}, for dashed
    lines \usepackage[normalem]{ulem} and, for accented letters, \usepackage[T1]{fontenc}. Other letters are kept as they are: a
    comment names those that only LuaLaTeX or XeLaTeX with a fitting font can set.
    """
    every = [results] if isinstance(results, Attribution) else list(results)
    _refuse(every)
    body = _paragraph(results) if isinstance(results, Attribution) else _table(every)
    return _comments(every) + (_document(body) if standalone else body)


def _document(body: str) -> str:
    """A whole document around a picture."""
    packages = [
        "\\documentclass{article}",
        "\\usepackage[T1]{fontenc}",
        XCOLOR,
        ULEM,
        "\\begin{document}",
        "\\noindent",
        "",
    ]
    start = "\n".join(packages)
    return start + body + "\\end{document}\n"


def _refuse(results: Sequence[Attribution]) -> None:
    """Refuse what no picture can be made of."""
    if not results or not all(isinstance(result, Attribution) for result in results):
        raise InputError(
            "LaTeX is made of an Attribution, or of a list of them. Read a map out first: map.readout(query)."
        )
    _refuse_infinite(results)


def _refuse_infinite(results: Sequence[Attribution]) -> None:
    if not all(bool(result.scores.isfinite().all()) for result in results):
        raise InputError("there are scores that are not finite: there is nothing true to draw.")


def _comments(results: Sequence[Attribution]) -> str:
    """The comments above the picture: methods, what is explained, letters that pdfLaTeX does not have, what is needed."""
    methods = [heading_line(result.info, result.method) for result in results]
    notes = [*methods, *explained_lines(results[0].info), *_letter_notes(results), _needs(results)]
    return "".join(f"% {note}\n" for note in notes)


def _needs(results: Sequence[Attribution]) -> str:
    """The packages that a document must load."""
    return f"needs {XCOLOR}" + (f" and {ULEM}" if any(map(_is_signed, results)) else "")


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
