"""Called by MkDocs for each page: the list of commands, and the line that says how a page is made."""

from __future__ import annotations

from typing import Any

from recipes.site import commands, origin


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with what is made when the site is built."""
    path = page.file.src_uri
    body = f"{markdown}\n\n{commands.text()}" if path == commands.PAGE else markdown
    return f"{body}\n\n---\n\n{origin.line(path, markdown)}\n"
