"""Runs the notebooks again and keeps what they show; when and where they ran is left out.

    python -m recipes.pages.notebooks

A second run gives the same bytes.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
PATHS = re.compile(r"(?:/home|/tmp|/usr|/opt|/root|/Users|[A-Z]:\\\\)[\w/\\.-]+")


def run(path: Path) -> Any:
    """Every cell run by a kernel of this Python, in the order of the page."""
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    book = nbformat.read(path, as_version=4)
    private = Config({"KernelManager": {"transport": "ipc"}})  # no open port
    client = NotebookClient(book, timeout=120, kernel_name="python3", config=private)
    client.execute(env={**os.environ, "PYTHONWARNINGS": "ignore:IProgress"})  # of tqdm, where ipywidgets are missing
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {}
    book["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.validate(book)
    return book


def text_of(book: Any) -> str:
    import nbformat

    return str(nbformat.writes(book, indent=1)).rstrip("\n") + "\n"


def path_in(text: str) -> str | None:
    """A path of this machine that an output names. Pictures are no text."""
    found = PATHS.search(re.sub(r'"image/png": "[^"]*"', "", text))
    return found[0] if found else None


def main() -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        text = text_of(run(path))
        named = path_in(text)
        if named:
            sys.exit(f"{path.name}: an output names a path of this machine: {named}")
        path.write_text(text, encoding="utf-8")
        print(f"{path.name}: {len(text) // 1024} KiB")


if __name__ == "__main__":
    main()
