r"""Token heat strips for LaTeX: \colorbox of xcolor, dashed lines of ulem. Every special character is escaped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

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
    """A text that LaTeX sets as it is; pdfLaTeX knows é, not e and an accent."""
    return "".join(SPECIAL.get(char, char) for char in unicodedata.normalize("NFC", printable(text)))


@door
def latex(results: Attribution | Sequence[Attribution], *, standalone: bool = False) -> str:
    r"""Tokens on a background as strong as their score; several attributions are a table with their methods.

    What counts for the target is underlined, what counts against it has a dashed line. Needs \usepackage{xcolor}, for
    dashed lines \usepackage[normalem]{ulem} and, for accented letters, \usepackage[T1]{fontenc}. Other letters are kept
    as they are: a comment names those that only LuaLaTeX or XeLaTeX with a fitting font can set.
    """
    every = [results] if isinstance(results, Attribution) else list(results)
    if not every or not all(isinstance(result, Attribution) for result in every):
        raise InputError(
            "LaTeX is made of an Attribution, or of a list of them. Read a map out first: map.readout(query)."
        )
    if not all(bool(result.scores.isfinite().all()) for result in every):
        raise InputError("there are scores that are not finite: there is nothing true to draw.")
    if isinstance(results, Attribution):
        body = "{\\setlength{\\fboxsep}{1.5pt}\\raggedright\n" + _strip(results) + "\\par}\n"
    else:
        rows = [f"{escaped(one.method)} & \\raggedright\n{_strip(one)}\\tabularnewline\n" for one in every]
        table = "\\begin{tabular}{@{}lp{0.75\\linewidth}@{}}\n" + "".join(rows) + "\\end{tabular}"
        body = "{\\setlength{\\fboxsep}{1.5pt}%\n" + table + "\\par}\n"
    if standalone:
        packages = ("\\documentclass{article}", "\\usepackage[T1]{fontenc}", XCOLOR, ULEM)
        body = "\n".join([*packages, "\\begin{document}", "\\noindent", body + "\\end{document}\n"])
    notes = [heading_line(result.info, result.method) for result in every] + explained_lines(every[0].info)
    letters = {char for one in every for text, _ in pieces(one.tokens) for char in unicodedata.normalize("NFC", text)}
    if strange := sorted(char for char in letters - SPECIAL.keys() if not KNOWN.match(char)):
        named = " ".join(f"{char} (U+{ord(char):04X})" for char in strange)
        notes.append(f"not in the fonts of pdfLaTeX: {named}. Use LuaLaTeX or XeLaTeX with a font that has them.")
    signed = any(bool((result.scores < 0).any()) for result in every)
    notes.append(f"needs {XCOLOR}" + (f" and {ULEM}" if signed else ""))
    return "".join(f"% {note}\n" for note in notes) + body


def _strip(result: Attribution) -> str:
    r"""The tokens of an attribution as colour boxes; a token that continues a word touches the one before it: a line
    break is a space to LaTeX, unless % hides it. \mbox keeps what is underlined in one piece."""
    texts = pieces(result.tokens, words=result.info.get("unit") == "word")
    scores = result.scores.tolist()
    signed, least = bool((result.scores < 0).any()), MARKED * sum(map(abs, scores))
    boxes = []
    for (text, goes_on), score, share in zip(texts, scores, shares(scores), strict=True):
        colours = (scaled(share, f"{hue_of(share, signed=signed)}-tint"), LIGHT["ink"])
        back, front = ("{},{},{}".format(*rgb_of(colour)) for colour in colours)
        written = escaped(text)
        if signed and score and abs(score) >= least:
            written = rf"\{'underline' if score > 0 else 'dashuline'}{{\mbox{{{written}}}}}"
        box = rf"\colorbox[RGB]{{{back}}}{{\color[RGB]{{{front}}}\strut {written}}}"
        boxes.append(("%\n" if goes_on else "\n") + box)
    return "".join(boxes).removeprefix("\n")
