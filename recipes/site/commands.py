"""Every command with its arguments and options, from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PAGE = "reference/commands.md"


def text() -> str:
    """One section for each command."""
    import typer

    from mixlens.cli.app import app

    group: Any = typer.main.get_command(app)
    return "\n".join(line for name, command in group.commands.items() for line in section(name, command))


def section(name: str, command: Any) -> Iterator[str]:
    """A command: what it does, how it is called, its options, its examples."""
    import typer

    context = typer.Context(command, info_name=f"mixlens {name}")
    yield from (f"## mixlens {name}", "", paragraphs(command.help or ""), "")
    yield from ("```text", " ".join([f"mixlens {name}", *command.collect_usage_pieces(context)]), "```", "")
    yield from table([record for one in command.params if (record := one.get_help_record(context)) is not None])
    if command.epilog:
        yield from ("```text", command.epilog.replace("\b\n", "").strip(), "```", "")


def table(rows: list[tuple[str, str]]) -> Iterator[str]:
    """Names on the left, help on the right."""
    yield from ("| argument or option | |", "|---|---|")
    yield from (f"| `{name.replace('|', '/')}` | {plain(told)} |" for name, told in rows)
    yield ""


def plain(told: str) -> str:
    """Help as one line in which Markdown and HTML mean nothing; what stands in backquotes is code."""
    code = " ".join(told.split()).replace("|", r"\|").split("`")
    code[::2] = [
        part.replace("<", "&lt;").replace("[", r"\[").replace("*", r"\*").replace("_", r"\_") for part in code[::2]
    ]
    return "`".join(code)


def paragraphs(told: str) -> str:
    return "\n\n".join(plain(part) for part in told.replace("\b", "").split("\n\n"))
