"""Called by MkDocs for each page: the list of commands, the stored tables of a paper, and the line that says how a page
is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recipes.pages import stored
from recipes.site import commands, origin

ROOT = Path(__file__).resolve().parents[2]


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with what is made when the site is built."""
    path = page.file.src_uri
    body = f"{markdown}\n\n{commands.text()}" if path == commands.PAGE else markdown
    folder = ROOT / "docs" / "measured" / "results" / "stored" / Path(path).stem
    if path == f"measured/results/{folder.name}.md" and folder.is_dir():
        body = f"{body}\n\n{stored.tables(folder.name, folder)}"
    return f"{body}\n\n---\n\n{origin.line(path, markdown)}\n"
