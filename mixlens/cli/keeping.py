"""Files that a command writes beside what it prints: the option that writes over them (`files.refuse_foreign` is the
rule), and a line that names them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..base.errors import printable

if TYPE_CHECKING:
    from ..model.model import Model
    from ..scoring.notices import Read

Force = Annotated[bool, typer.Option("--force", help="Write over a file that is no result or page of mixlens, too.")]


def tell_notices(lens: Model, reads: Iterable[Read], query: int | str | None) -> None:
    """What a reader must know of numbers that a file shows and the terminal does not, each once; not among the
    output."""
    from ..scoring.notices import notices_of

    for notice in dict.fromkeys(notice for read in reads for notice in notices_of(lens, read, query=query)):
        print(printable(f"mixlens: {notice}"), file=sys.stderr)


def tell_written(*files: Path | None) -> None:
    """One line on what was written; not among the output, which may be read by another program."""
    names = [str(file) for file in files if file is not None]
    if names:
        print(printable(f"mixlens: wrote {', '.join(names)}"), file=sys.stderr)
