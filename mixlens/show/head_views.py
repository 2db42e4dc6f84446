"""The heads of one layer in a terminal: what each does most, with its share, and the two words it brings together most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..base.words import Word, words_in
from ..scoring.head_maps import HeadRole, grouped
from ..types import HeadMaps
from .colors import style_of
from .heading import heading_line, notes
from .layout import clipped, fitting, text_line, turned
from .tokens import shown
from .views import View, wrapped

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

BAR = 10  # columns of 100 %
WORD = 14  # columns of a word


@dataclass(frozen=True)
class Pair:
    """The largest score between two different words: who took, from whom, and which share of its row that is."""

    query: str
    key: str
    share: float


def heads_view(result: HeadMaps, *, layer: int = -1) -> RenderableType:
    """One line for each head of a layer, counted from 1."""
    from rich.console import Group
    from rich.text import Text

    one = result.layer(layer)
    roles, pairs = one.roles(), largest_pairs(one)
    lines = View(lambda width, colours: _lines(roles, pairs, width, colours))
    head = [
        wrapped(heading_line(one.info, one.method), "dim"),
        *(wrapped(note, "bold") for note in notes(one.method, one.info)),
    ]
    return Group(*head, wrapped(_meaning(one)), Text(), lines)


def _meaning(result: HeadMaps) -> str:
    what = "its attention" if result.method == "attention" else "its rows"
    return f"what each head does most, in percent of {what}; then the two words it brings together most (← took from)"


def largest_pairs(result: HeadMaps) -> list[Pair | None]:
    """Of each head of one layer the largest share of a row between two different words; None where there are no two."""
    words = words_in(result)
    rows = grouped(
        result.scores[0].double().abs(), tuple((word.text, word.tokens) for word in words), len(result.tokens)
    )
    shares = rows / rows.sum(-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    special = torch.tensor([word.special for word in words], device=rows.device)
    itself = torch.eye(len(words), dtype=torch.bool, device=rows.device)
    between = shares.masked_fill(itself | special[:, None] | special[None, :], 0.0)
    return [_pair(words, head) for head in between.cpu()]


def _pair(words: Sequence[Word], shares: torch.Tensor) -> Pair | None:
    place = int(shares.argmax())
    query, key = divmod(place, len(words))
    share = float(shares[query, key])
    return Pair(words[query].text, words[key].text, share) if share > 0 else None


def _lines(roles: Sequence[HeadRole], pairs: Sequence[Pair | None], width: int, colours: int) -> Iterator[Text]:
    number, name = len(str(len(roles))), max(len(role.name) for role in roles)
    for role, pair in zip(roles, pairs, strict=True):
        start = f" head {role.head + 1:>{number}}  {role.name:<{name}}  {_percent(role.share):>5}  "
        bar = "█" * round(role.share * BAR)
        room = width - len(start) - BAR - 2
        rest = fitting("", BAR - len(bar)) + "  " + clipped(_pair_text(pair), room) if room > 8 and pair else ""
        yield text_line((start, ""), (bar, style_of(1.0, colours, ink_only=True)), (rest.rstrip(), "dim"))


def _pair_text(pair: Pair | None) -> str:
    if pair is None:
        return ""
    query, key = (turned(clipped(shown(text), WORD)) for text in (pair.query, pair.key))
    return f"{query} ← {key} {_percent(pair.share)}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"
