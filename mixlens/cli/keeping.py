"""Files that a command writes beside what it prints: the option that writes over them (`files.refuse_foreign` is the rule), and a
line that names them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import printable

Force = Annotated[bool, typer.Option("--force", help="Write over a file that is no result or page of mixlens, too.")]


def tell_written(*files: Path | None) -> None:
    """One line on what was written; not among the output, which may be read by another program."""
    names = [str(file) for file in files if file is not None]
    if names:
        print(printable(f"mixlens: wrote {', '.join(names)}"), file=sys.stderr)
