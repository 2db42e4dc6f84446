"""A command that is written wrongly is refused in one line: what is wrong, what came, where all that is allowed is
listed."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from mixlens import cli


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["why", "x", "--foo"], ["no such option: --foo", "--foil", "See", "why --help."]),
        (["--foo"], ["no such option: --foo", "--help."]),
        (["explian"], ["'explian'", "explain"]),
        (["nosuch"], ["no such command 'nosuch'. See"]),
        (["why", "x", "-m"], ["'-m'", "argument. See mixlens why --help."]),
        (["judge", "--n", "abc", "agreement"], ["'--n'", "'abc'", "judge --help."]),
        (["judge", "--n=1.5", "agreement"], ["'--n'", "'1.5'", "judge --help."]),
        (["judge"], ["'model'", "judge --help."]),
        (["why", "a", "b"], ["(b). See", "why --help."]),
        (["why", "a", "\x1b[31m"], ["why --help."]),
    ],
)
def test_one_line_says_what_is_wrong(arguments: list[str], parts: list[str]) -> None:
    ran = CliRunner().invoke(cli.app, arguments, prog_name="mixlens")
    assert ran.exit_code == 2
    lines = ran.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("mixlens: ")
    assert not [part for part in parts if part not in lines[0]], lines[0]
    assert "\x1b" not in lines[0]
    assert not ran.stdout
    assert ".." not in lines[0]
    assert "?." not in lines[0]


def test_the_help_of_why_says_how_an_answer_under_half_is_counted() -> None:
    told = CliRunner().invoke(cli.app, ["why", "--help"], prog_name="mixlens").stdout
    assert "An answer of less than 50 % counts as if it had 50 %" in " ".join(told.split())


@pytest.mark.parametrize("option", ["--generate", "--continuation"])
def test_a_figure_of_a_written_text_is_drawn_elsewhere(option: str) -> None:
    ran = CliRunner().invoke(cli.app, ["plot", "Once", option, "3"], prog_name="mixlens")
    assert ran.stderr.startswith(f"mixlens: no such option: {option}")
    assert ran.stderr.endswith(
        ". A written text is drawn by `mixlens explain TEXT --generate N -o FILE.html` (a page), in Python by "
        "model.explain(TEXT, generate=N).plot().save(FILE). See mixlens plot --help.\n"
    )
    other = CliRunner().invoke(cli.app, ["check", option, "3"], prog_name="mixlens")
    assert "written text" not in other.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["why", "-h"], []])
def test_help_is_as_long_as_it_was(arguments: list[str]) -> None:
    ran = CliRunner().invoke(cli.app, arguments, prog_name="mixlens")
    assert len((ran.stdout + ran.stderr).splitlines()) > 10
