"""LaTeX of heat strips: the colours of the scores, every special character escaped, and it compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from mixlens import Attribution
from mixlens.base.errors import InputError
from mixlens.show import colors
from mixlens.show.latex import escaped, latex

ASCII = tuple(chr(code) for code in range(32, 127))
INFO = {"model": "a_b%", "query": 0, "query_token": "x", "target": "50%", "score": "logit"}


def read(tokens: tuple[str, ...], scores: list[float] | None = None, method: str = "alti") -> Attribution:
    made = torch.tensor(scores) if scores is not None else torch.linspace(-1, 1, len(tokens))
    return Attribution(made, tokens, method, INFO)


def test_letter_by_letter() -> None:
    assert read(("a", "un", "##happy"), [1.0, -1.0, 0.0]).to_latex() == (
        "% model a_b% · method alti\n"
        "% explains  logit of 50% at x (position 0)\n"
        "% needs \\usepackage{xcolor} and \\usepackage[normalem]{ulem}\n"
        "{\\setlength{\\fboxsep}{1.5pt}\\raggedright\n"
        "\\colorbox[RGB]{74,159,209}{\\color[RGB]{21,24,30}\\strut \\underline{\\mbox{a}}}\n"
        "\\colorbox[RGB]{236,149,84}{\\color[RGB]{21,24,30}\\strut \\dashuline{\\mbox{un}}}%\n"
        "\\colorbox[RGB]{255,255,255}{\\color[RGB]{21,24,30}\\strut happy}\\par}\n"
    )


def test_two_hues() -> None:
    made = read(("a", "b"), [2.0, -2.0]).to_latex()
    for hue in ("for-tint", "against-tint"):
        assert "{},{},{}".format(*colors.rgb_of(colors.LIGHT[hue])) in made


def test_scores_without_a_sign_are_violet_and_not_underlined() -> None:
    made = read(("a", "b"), [1.0, 0.25]).to_latex()
    assert "{},{},{}".format(*colors.rgb_of(colors.LIGHT["share-tint"])) in made
    assert "line{" not in made
    assert "ulem" not in made


def test_a_weak_token_is_not_underlined() -> None:
    made = read(("a", "b", "c"), [1.0, -0.02, 0.05]).to_latex()
    assert [name for name in ("a", "b", "c") if f"{{\\mbox{{{name}}}}}" in made] == ["a", "c"]


def test_specials_are_escaped() -> None:
    assert escaped(r"\{}$&#%_^~") == (r"\textbackslash{}\{\}\$\&\#\%\_\textasciicircum{}\textasciitilde{}")
    assert escaped("--") == "-{}-{}"
    assert (
        escaped("<|\"'`>")
        == r"\textless{}\textbar{}\string" + '"{}' + r"\textquotesingle{}\textasciigrave{}\textgreater{}"
    )
    assert escaped("\x1b") == r"\textbackslash{}u001b"


@pytest.mark.parametrize(
    "token", [r"\input{/etc/passwd}", r"\write18{ls}", "}%", "\n\\end{document}", "^^5c", "\r%", "a\x00b"]
)
def test_no_token_is_a_command(token: str) -> None:
    body = read((token,), [1.0]).to_latex().split("\\strut ", 1)[1]
    body = body[: body.rindex("}\\par}")]
    rest = re.sub(r"\\textbackslash\{\}|\\textasciicircum\{\}|\\[{}$&#%_]|-\{\}|,\{\}", "", body)
    assert not set(rest) & set("\\{}$&#%_^~\n\r\x00"), body


def test_a_comment_cannot_be_broken_out_of() -> None:
    bad = Attribution(torch.ones(1), ("a",), "m\n\\evil", {"model": "x\r\\evil\u2028y"})
    head = bad.to_latex().split("{\\setlength")[0]
    assert all(line.startswith("% ") for line in head.splitlines())


def test_letters_beyond_latin_are_kept_and_named() -> None:
    made = read(("日本", "é", "שלום", "␣")).to_latex()
    assert "日本" in made
    note = next(line for line in made.splitlines() if "not in the fonts of pdfLaTeX" in line)
    assert "日 (U+65E5)" in note
    assert "ש (U+05E9)" in note
    assert "é" not in note
    assert r"\textvisiblespace{}" in made
    assert "pdfLaTeX" not in read(("é", "a")).to_latex()


def test_several_are_a_table() -> None:
    made = latex([read(("a", "b"), method="alti"), read(("a", "b"), method="grad_x_input")])
    assert made.count("\\tabularnewline") == 2
    assert "grad\\_x\\_input & " in made


def test_nothing_and_what_is_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="made of an Attribution"):
        latex([])
    with pytest.raises(InputError, match="not finite"):
        read(("a",), [float("nan")]).to_latex()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("several", [False, True])
def test_pdflatex_compiles_every_character(tmp_path: Path, several: bool) -> None:
    tokens = (
        *ASCII,
        "--",
        ",,",
        "?`",
        "fi",
        "é",
        "ß",
        "ł",
        "…",
        "␣",
        "Ċ",
        "“x”",
        "e\u0301",
        "\x1b[0m",
        r"\end{document}",
    )
    made = latex([read(tokens), read(tokens, method="a_b")] if several else read(tokens), standalone=True)
    (tmp_path / "x.tex").write_text(made, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "x.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    log = done.stdout.decode(errors="replace")
    assert done.returncode == 0, log[-2000:]
    assert "Overfull" not in log
    assert "Missing character" not in log
