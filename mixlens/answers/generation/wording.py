"""The answer in words: what the written words rest on, on average, and the word that the prompt comes back for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...base.text import counted, percent, points

if TYPE_CHECKING:
    from .text import Group, Word
    from .value import Generation

QUESTION = "What did each written word rest on?"
SHOWN = 4  # words of a group that are quoted
BACK = 0.6  # the share of own words from which on a prompt that counts has come back
HALF = 0.5
ROUNDING = 1e-9  # of a sum of shares
LEAST = 0.01  # the smallest loss of probability that is worth a sentence: one point


@dataclass(frozen=True)
class Answer:
    """A text in parts: ("", words of ours) or ("strong", ...) or ("quote", words of the model's text)."""

    parts: tuple[tuple[str, str], ...]

    @property
    def plain(self) -> str:
        """The answer as one text; what is quoted stands in quotation marks."""
        return "".join(f"“{text}”" if kind == "quote" else text for kind, text in self.parts)


@dataclass(frozen=True)
class Loss:
    """The largest loss of a written word when a part of the prompt is left out."""

    row: int
    what: tuple[tuple[str, str], ...]  # the part, in words
    change: float


# --- shares of a row ----------------------------------------------------------------------------------------------------


def own_shares(generation: Generation) -> Tensor:
    """[row]: the part of each row that its own words hold, in magnitudes."""
    return generation.matrix[:, generation.text.first :].abs().sum(-1)


def prompt_shares(generation: Generation) -> Tensor:
    """[row]: the part that words of the prompt hold; neither the begin mark nor a template's tokens."""
    counts = [number for number, word in enumerate(generation.columns) if word.counts]
    return generation.matrix[:, counts].abs().sum(-1)


def group_shares(generation: Generation) -> Tensor:
    """[row group]: the part that each sentence or turn of the prompt holds, in magnitudes."""
    sums = [generation.matrix[:, list(group.words)].abs().sum(-1) for group in generation.text.groups]
    return torch.stack(sums, -1) if sums else torch.zeros(len(generation.rows), 0, dtype=torch.float64)


# --- the answer ---------------------------------------------------------------------------------------------------------


def answer(generation: Generation) -> Answer:
    """One sentence on the average, and one on the word that needs the prompt most."""
    return Answer((*_average(generation), *_comes_back(generation)))


def cut_note(generation: Generation) -> str | None:
    """What a reader must know of a last word that the model had not finished; None where it is whole."""
    if not generation.cut:
        return None
    length = counted(len(generation), "token")
    return f"The text was cut after {length}; its last word is not whole: the likeliest next token goes on with it."


def _average(generation: Generation) -> Sequence[tuple[str, str]]:
    own, prompt = (float(shares.mean()) for shares in (own_shares(generation), prompt_shares(generation)))
    if own == 0 and prompt == 0:
        return [("", "On nothing that this method sees: all of it went to special tokens.")]
    marks = float(generation.matrix.abs().sum(-1).mean()) - own - prompt
    shares = {"the words just written": own, "the prompt": prompt, _marks_name(generation): marks}
    largest, *others = sorted(shares.items(), key=lambda part: -part[1])
    if largest[1] <= HALF + ROUNDING:
        return _each_part([largest, *others])
    more = f", {percent(others[0][1])} on {others[0][0]}" if largest[1] == marks and others[0][1] else ""
    return [("", f"Mostly on {largest[0]}: "), ("strong", percent(largest[1])), ("", f" on average{more}.")]


def _each_part(shares: Sequence[tuple[str, float]]) -> Sequence[tuple[str, str]]:
    """The parts of which none has more than half, the largest first; one that has nothing is not named."""
    (where, share), *others = [(name, share) for name, share in shares if share > ROUNDING]
    named = " and ".join(f"{percent(share)} on {name}" for name, share in others)
    return [("", "On average "), ("strong", percent(share)), ("", f" on {where}, {named}.")]


def _marks_name(generation: Generation) -> str:
    """What is neither a word of the prompt nor of the written text."""
    has_template = any(word.segment == "template" for word in generation.columns)
    return "special tokens and the chat template" if has_template else "special tokens"


def _comes_back(generation: Generation) -> Sequence[tuple[str, str]]:
    """The written word that needs the prompt: one that it comes back for, else the one that it counts most for."""
    loss = largest_loss(generation)
    if loss is None:
        return (
            _about_cell(generation)
            if generation.effects is None
            else [("", " Leaving out no single part changes much.")]
        )
    row = named_row(generation)
    if _has_come_back(generation, loss.row):
        return _about_row(generation, row, "comes back for", loss_of(generation, row))
    return [
        *_about_row(generation, row, "counts most for", loss_of(generation, row)),
        *_mark_with_more(generation, row),
    ]


def _has_come_back(generation: Generation, row: int) -> bool:
    """Whether the words just written hold most of a row that the prompt still decides."""
    return float(own_shares(generation)[row]) > BACK


def named_row(generation: Generation) -> int:
    """The row of the answer. A prompt comes back for the word with the largest loss, and counts most for the word that has
    most of its share in it: the sentence chooses by what it says."""
    loss = largest_loss(generation)
    if loss is not None and _has_come_back(generation, loss.row):
        return loss.row
    shares = prompt_shares(generation)
    return max(_plain_rows(generation) or range(len(generation.rows)), key=lambda row: float(shares[row]))


def _about_row(generation: Generation, row: int, how: str, loss: Loss | None) -> Sequence[tuple[str, str]]:
    share = percent(float(prompt_shares(generation)[row]))
    made = (
        f"{share} of its evidence is in the prompt"
        if generation.signed
        else f"{share} of that word is made of the prompt"
    )
    begin = [("", f" The prompt {how} "), ("strong", generation.rows[row].shown), ("", f": {made}")]
    if loss is None:
        return [*begin, ("", ", but leaving out no single part changes its probability much.")]
    whole = generation.row_probabilities[row]
    after = percent(max(0.0, whole + loss.change))
    return [
        *begin,
        ("", ", and without "),
        *loss.what,
        ("", f" its probability would be {after} instead of {percent(whole)}."),
    ]


def _mark_with_more(generation: Generation, row: int) -> Sequence[tuple[str, str]]:
    """The mark that has more of its share in the prompt than the word that is named: marks are not named."""
    shares = prompt_shares(generation)
    most = max(_mark_rows(generation), key=lambda mark: float(shares[mark]), default=row)
    if float(shares[most]) <= float(shares[row]):
        return []
    return [*_left_out(generation, most), ("", f" has {percent(float(shares[most]))} in the prompt.")]


def _left_out(generation: Generation, row: int) -> Sequence[tuple[str, str]]:
    """The begin of a sentence on a written mark."""
    return [("", " Marks are left out: "), ("quote", generation.rows[row].shown)]


def _plain_rows(generation: Generation) -> list[int]:
    return [number for number, row in enumerate(generation.rows) if _is_plain(row)]


def _mark_rows(generation: Generation) -> list[int]:
    return [number for number, row in enumerate(generation.rows) if row.mark and not row.special]


def _is_plain(word: Word) -> bool:
    """A word that is neither a mark nor a special token."""
    return not word.mark and not word.special


def _about_cell(generation: Generation) -> Sequence[tuple[str, str]]:
    """The word of the prompt that gave most to one written word; where a mark took more, that too: marks are not named."""
    rows, marks = _plain_rows(generation), _mark_rows(generation)
    largest = _largest_cell(generation, rows)
    if largest is None:
        return []
    row, gave, share = largest
    took = generation.rows[row].shown
    said = [
        ("", " Of the prompt, "),
        ("quote", gave),
        ("", f" gave most to one word: {percent(share)} of "),
        ("strong", took),
    ]
    mark = _largest_cell(generation, marks)
    if mark is None or mark[2] <= share:
        return [*said, ("", ".")]
    return [
        *said,
        ("", "."),
        *_left_out(generation, mark[0]),
        ("", f" took {percent(mark[2])} from "),
        ("quote", mark[1]),
        ("", "."),
    ]


def _largest_cell(generation: Generation, rows: Sequence[int]) -> tuple[int, str, float] | None:
    """Of these rows and the words of the prompt: the row, the word and the share of the largest cell."""
    numbers = [number for number, word in enumerate(generation.columns) if word.counts]
    if not numbers or not rows:
        return None
    table = generation.matrix[list(rows)][:, numbers].abs()
    row, column = divmod(int(table.argmax()), len(numbers))
    return rows[row], generation.columns[numbers[column]].text, float(table[row, column])


# --- what leaving out does ----------------------------------------------------------------------------------------------


def largest_loss(generation: Generation) -> Loss | None:
    """The largest loss of a written word that is no mark, by a sentence or turn, or by a word where there is one group."""
    losses = [loss for row in _plain_rows(generation) if (loss := loss_of(generation, row)) is not None]
    return min(losses, key=lambda loss: loss.change, default=None)


def loss_of(generation: Generation, row: int) -> Loss | None:
    """The largest loss of one row; None where it is too small, or was not measured."""
    if generation.effects is None:
        return None
    by_group = len(generation.text.groups) > 1
    lost = torch.nan_to_num((generation.effects.groups if by_group else generation.effects.words)[row], nan=0.0)
    if not lost.numel() or float(lost.min()) > -LEAST:
        return None
    column = int(lost.argmin())
    what = group_name(generation, column, row) if by_group else (("quote", generation.columns[column].text),)
    return Loss(row, what, float(lost[column]))


def group_name(generation: Generation, number: int, row: int) -> tuple[tuple[str, str], ...]:
    """`sentence 2 (… with her red ball …)`: the words around the one that gave most to a row."""
    group = generation.text.groups[number]
    title = group_title(group, number, generation.text.groups)
    return (("", f"{title} ("), ("quote", quoted(generation, group, row)), ("", ")"))


def group_title(group: Group, number: int, groups: Sequence[Group]) -> str:
    """`sentence 2`, or `user turn 1`: a turn is counted among those of its role."""
    if group.kind == "sentence":
        return f"sentence {number + 1}"
    same = [other for other in groups[: number + 1] if other.role == group.role]
    return f"{group.role} turn {len(same)}"


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
    mean = torch.nan_to_num(generation.effects.words[list(rows)].mean(0), nan=0.0)
    order = [
        number for number in mean.argsort().tolist() if float(mean[number]) < 0 and generation.columns[number].counts
    ]
    return [(generation.columns[number].text, float(mean[number])) for number in order[:count]]


def spoken_change(change: float) -> str:
    """`−17 points`."""
    return points(change)
