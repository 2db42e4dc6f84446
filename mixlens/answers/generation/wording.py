"""The answer in words: what the written words rest on, on average, and the word that the prompt comes back for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ...base.parts import Quote, Sentence, Strong, said
from ...base.text import counted, percent

if TYPE_CHECKING:
    from .text import Group, Word
    from .value import Generation

QUESTION = "What did each written word rest on?"
SHOWN = 4  # words of a group that are quoted
BACK = 0.6  # the share of own words from which on a prompt that counts has come back
HALF = 0.5
ROUNDING = 1e-9  # of a sum of shares
LEAST = 0.01  # the smallest loss of probability that is worth a sentence: one point


class Loss(NamedTuple):
    """The largest loss of a written word when a part of the prompt is left out."""

    row: int
    what: Sentence  # the part, in words
    change: float


# --- shares of a row --------------------------------------------------------------------------------------------------


def own_shares(generation: Generation) -> Tensor:
    """[row]: the part of each row that its own words hold, in magnitudes."""
    return generation.matrix[:, generation.text.first :].abs().sum(-1)


def prompt_words(generation: Generation) -> list[int]:
    """The columns of the prompt's words; neither the begin mark nor a template's tokens."""
    return [number for number, word in enumerate(generation.columns) if word.counts]


def prompt_shares(generation: Generation) -> Tensor:
    """[row]: the part that words of the prompt hold."""
    return generation.matrix[:, prompt_words(generation)].abs().sum(-1)


def group_shares(generation: Generation) -> Tensor:
    """[row group]: the part that each sentence or turn of the prompt holds, in magnitudes."""
    sums = [generation.matrix[:, list(group.words)].abs().sum(-1) for group in generation.text.groups]
    return torch.stack(sums, -1) if sums else torch.zeros(len(generation.rows), 0, dtype=torch.float64)


def has_template(generation: Generation) -> bool:
    return any(word.segment == "template" for word in generation.columns)


# --- the answer -------------------------------------------------------------------------------------------------------


def answer(generation: Generation) -> Sentence:
    """One sentence on the average, and one on the word that needs the prompt most: one that it comes back for, else the
    one that it counts most for."""
    average, loss = _average(generation), largest_loss(generation)
    if loss is None:
        more = _about_cells(generation)
        return said(average, " Leaving out no single part changes much." if generation.effects is not None else more)
    row = named_row(generation)
    comes_back = _has_come_back(generation, loss.row)
    told = _about_row(generation, row, "comes back for" if comes_back else "counts most for")
    shares = prompt_shares(generation)
    most = max(_marks(generation), key=lambda mark: float(shares[mark]), default=row)
    if comes_back or float(shares[most]) <= float(shares[row]):
        return said(average, told)
    return said(average, told, _mark_left_out(generation, most), f" has {percent(float(shares[most]))} in the prompt.")


def cut_note(generation: Generation) -> str | None:
    """What a reader must know of a last word that the model had not finished; None where it is whole."""
    if not generation.cut:
        return None
    length = counted(len(generation), "token")
    return f"The text was cut after {length}; its last word is not whole: the likeliest next token goes on with it."


def _average(generation: Generation) -> Sentence:
    own, prompt = (float(shares.mean()) for shares in (own_shares(generation), prompt_shares(generation)))
    if own == 0 and prompt == 0:
        return said("On nothing that this method sees: all of it went to special tokens.")
    marks = float(generation.matrix.abs().sum(-1).mean()) - own - prompt
    special = "special tokens and the chat template" if has_template(generation) else "special tokens"
    shares = {"the words just written": own, "the prompt": prompt, special: marks}
    (where, share), *others = sorted(shares.items(), key=lambda part: -part[1])
    if share <= HALF + ROUNDING:
        named = " and ".join(f"{percent(part)} on {name}" for name, part in others if part > ROUNDING)
        return said("On average ", Strong(percent(share)), f" on {where}, {named}.")
    more = f", {percent(others[0][1])} on {others[0][0]}" if share == marks and others[0][1] else ""
    return said(f"Mostly on {where}: ", Strong(percent(share)), f" on average{more}.")


def _has_come_back(generation: Generation, row: int) -> bool:
    """Whether the words just written hold most of a row that the prompt still decides."""
    return float(own_shares(generation)[row]) > BACK


def named_row(generation: Generation) -> int:
    """The row of the answer. A prompt comes back for the word with the largest loss, and counts most for the word that
    has most of its share in it: the sentence chooses by what it says."""
    loss = largest_loss(generation)
    if loss is not None and _has_come_back(generation, loss.row):
        return loss.row
    shares = prompt_shares(generation)
    return max(_plain_rows(generation) or range(len(generation.rows)), key=lambda row: float(shares[row]))


def _about_row(generation: Generation, row: int, how: str) -> Sentence:
    share = percent(float(prompt_shares(generation)[row]))
    made = "of its evidence is in the prompt" if generation.signed else "of that word is made of the prompt"
    begin = said(f" The prompt {how} ", Strong(generation.rows[row].shown), f": {share} {made}")
    loss, whole = loss_of(generation, row), generation.row_probabilities[row]
    if loss is None:
        return said(begin, ", but leaving out no single part changes its probability much.")
    after = f" its probability would be {percent(max(0.0, whole + loss.change))} instead of {percent(whole)}."
    return said(begin, ", and without ", loss.what, after)


def _mark_left_out(generation: Generation, row: int) -> Sentence:
    """The begin of a sentence on a written mark, as marks are not named."""
    return said(" Marks are left out: ", Quote(generation.rows[row].shown))


def _is_plain(word: Word) -> bool:
    """A word that is neither a mark nor a special token."""
    return not word.mark and not word.special


def _plain_rows(generation: Generation) -> list[int]:
    return [number for number, row in enumerate(generation.rows) if _is_plain(row)]


def _marks(generation: Generation) -> list[int]:
    return [number for number, row in enumerate(generation.rows) if row.mark and not row.special]


def _about_cells(generation: Generation) -> Sentence:
    """The word of the prompt that gave most to one written word; where a mark took more, that too: marks are not
    named."""
    largest, mark = (_largest_cell(generation, rows(generation)) for rows in (_plain_rows, _marks))
    if largest is None:
        return said()
    row, gave, share = largest
    took = Strong(generation.rows[row].shown)
    told = said(" Of the prompt, ", gave, f" gave most to one word: {percent(share)} of ", took, ".")
    if mark is None or mark[2] <= share:
        return told
    return said(told, _mark_left_out(generation, mark[0]), f" took {percent(mark[2])} from ", mark[1], ".")


def _largest_cell(generation: Generation, rows: Sequence[int]) -> tuple[int, Quote, float] | None:
    """Of these rows and the words of the prompt: the row, the word and the share of the largest cell."""
    numbers = prompt_words(generation)
    if not numbers or not rows:
        return None
    table = generation.matrix[list(rows)][:, numbers].abs()
    row, column = divmod(int(table.argmax()), len(numbers))
    return rows[row], Quote(generation.columns[numbers[column]].text), float(table[row, column])


# --- what leaving out does --------------------------------------------------------------------------------------------


def largest_loss(generation: Generation) -> Loss | None:
    """The largest loss of a written word that is no mark, by a sentence or turn, or by a word where there is one
    group."""
    losses = [loss for row in _plain_rows(generation) if (loss := loss_of(generation, row)) is not None]
    return min(losses, key=lambda loss: loss.change, default=None)


def loss_of(generation: Generation, row: int) -> Loss | None:
    """The largest loss of one row; None where it is too small, or was not measured."""
    if generation.effects is None:
        return None
    groups = generation.text.groups
    by_group = len(groups) > 1
    lost = torch.nan_to_num((generation.effects.groups if by_group else generation.effects.words)[row], nan=0.0)
    if not lost.numel() or float(lost.min()) > -LEAST:
        return None
    column = int(lost.argmin())
    what = said(Quote(generation.columns[column].text))
    if by_group:
        quote = Quote(quoted(generation, groups[column], row))
        what = said(f"{group_title(groups[column], column, groups)} (", quote, ")")
    return Loss(row, what, float(lost[column]))


def group_title(group: Group, number: int, groups: Sequence[Group]) -> str:
    """`sentence 2`, or `user turn 1`: a turn is counted among those of its role."""
    if group.kind == "sentence":
        return f"sentence {number + 1}"
    return f"{group.role} turn {sum(other.role == group.role for other in groups[: number + 1])}"


def quoted(generation: Generation, group: Group, row: int) -> str:
    """A few words of a group, up to the one that gave most to a row."""
    words = group.words
    most = max(range(len(words)), key=lambda i: abs(float(generation.matrix[row, words[i]])))
    begin = max(0, min(most - SHOWN + 1, len(words) - SHOWN))
    shown = [generation.columns[number] for number in words[begin : begin + SHOWN]]
    text = "".join(word.before + word.text for word in shown).strip()
    return f"{'… ' if begin else ''}{text}{' …' if begin + SHOWN < len(words) else ''}"


def losses_in_words(generation: Generation, rows: Sequence[int], count: int = 2) -> list[tuple[str, float]]:
    """The words of the prompt without which these rows would lose most, with the mean change."""
    if generation.effects is None or not rows:
        return []
    mean = torch.nan_to_num(generation.effects.words[list(rows)].mean(0), nan=0.0).tolist()
    lost = [number for number in prompt_words(generation) if mean[number] < 0]
    return [(generation.columns[number].text, mean[number]) for number in sorted(lost, key=mean.__getitem__)[:count]]
