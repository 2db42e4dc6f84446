"""The page that answers why: one HTML file from a `Why`, opening on the answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from .page_entry import shortened
from .page_file import may_write, write
from .page_template import (
    BASE_SCRIPTS,
    BASE_STYLES,
    READ,
    WHY_SCRIPTS,
    WHY_STYLES,
    Kind,
    filled_page,
    shown_line,
    visible,
    visible_or_none,
)

WHY = Kind(
    (*BASE_STYLES, *WHY_STYLES),
    (*BASE_SCRIPTS, *WHY_SCRIPTS),
    f'startWhy({READ}, document.getElementById("main"));',
)
KINDS = {
    "classification": "Classifier",
    "token-classification": "Tagger",
    "question-answering": "Question answering",
    "masked-lm": "Masked language model",
    "causal-lm": "Language model",
}
MOST_CLASSES = 8  # named above the question


class HasDict(Protocol):
    """An answer that can be written as plain JSON types."""

    def to_dict(self) -> dict[str, Any]: ...


def why_page(why: HasDict) -> str:
    """The whole page as one string."""
    content = shown_why(why.to_dict())
    return filled_page(
        {"why": content},
        WHY,
        title=content["question"],
        subtitle=about_line(content),
        crumb=crumb_of(content),
        name=f"{content['question']} {shortened(content['text'], 60)} · mixlens",
        answer=content["sentence"],
    )


def write_why(why: HasDict, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write the page. A file that is no page of mixlens is not overwritten, unless `force`."""
    place = Path(path)
    may_write(place, force=force)
    write(why_page(why), place)
    return place


def crumb_of(content: Mapping[str, Any]) -> str:
    """What kind of page this is, in the head of the page."""
    names = {
        "classification": "Why this class?",
        "token-classification": "Why this tag?",
        "question-answering": "Why this answer?",
    }
    return names.get(content["task"], "Why this word?")


def about_line(content: Mapping[str, Any]) -> str:
    """The small line above the question: what kind of model this is, and its classes."""
    kind = KINDS.get(content["task"], "Model")
    classes = content.get("classes") or []
    named = f"classes: {', '.join(classes)}" if len(classes) <= MOST_CLASSES else f"{len(classes)} classes"
    return " · ".join([f"{kind} {content['model']}", *([named] if classes else [])])


def shown_why(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with every text of the reader's as it can be shown: what cannot be seen is spelled out. Numbers have seven
    digits, as maps on pages have."""
    words = [{**one, "text": visible(one["text"])} for one in content["words"]]
    texts = {"text": visible(content["text"] or ""), "pair": visible_or_none(content["pair"])}
    shown = {
        **content,
        **texts,
        "words": words,
        "sentence": shown_line(content["sentence"]),
        "question": shown_line(content["question"]),
    }
    return dict(_rounded(shown))


def _rounded(value: Any) -> Any:
    """The value with seven digits in every number that is not whole."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return list(map(_rounded, value)) if isinstance(value, list | tuple) else value
