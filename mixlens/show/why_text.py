"""An answer of `why` in the terminal: the sentence, what happens without its words, the method; then text, bars and trust."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..answers.rules import decides
from ..answers.sentences import called, draws, of_two, random_words, these, turning, which
from ..base.errors import printable
from ..base.text import THIN, counted, gap, percent, probability
from .colors import style_of
from .layout import clipped, columns_of, fitting, text_line
from .text import console
from .views import View

if TYPE_CHECKING:
    from rich.text import Text

    from ..answers import Why
    from ..answers.value import Single, Trust, Word

MOST_BARS = 12
LONGEST_BAR = 20
LEAST_SHARE = 0.03  # of the evidence: words under it carry no mark
MOST_MARKED = 20  # words of a long text that carry a mark
LONG = 60  # words of a long text
LEAST_COLUMN = 30  # columns for the numbers of trust beside what was checked
MARKS = {"ok": "ok", "caution": "!", "fail": "x", "info": " "}
STYLES = {"ok": "green", "caution": "yellow", "fail": "bold red", "info": ""}


def show_why(why: Why, *, color: bool = True) -> None:
    """Prints an answer."""
    console(color=color).print(view(why))


def view(why: Why) -> View:
    """The answer as a picture for rich."""
    return View(lambda width, colours: lines_of(why, width, colours))


def lines_of(why: Why, width: int, colours: int) -> Iterator[Text]:
    """All lines, in the order of a page: the answer, the evidence, whether to trust it, what to know."""
    yield from _answer(why, width, colours)
    yield from _notes(why, width, colours)
    yield text_line()
    yield from _strip(why, width, colours)
    yield text_line()
    yield from _bars(why, width, colours)
    yield text_line()
    yield from _trust(why, width, colours)


def _plain(text: str) -> str:
    return printable(text.replace(THIN, " "))


# --- the answer -----------------------------------------------------------------------------------------------------------


def _answer(why: Why, width: int, colours: int) -> Iterator[Text]:
    """Three lines: the sentence; without its words; the method."""
    yield from _paragraph(why.sentence, width, style="bold" if colours else "")
    yield from _paragraph(without_line(why), width)
    yield from _paragraph(method_line(why), width, style="dim" if colours else "")


def without_line(why: Why) -> str:
    """What is left of the answer without the words that are named."""
    trust, k = why.trust, why.trust.k
    if not k:
        return "no word speaks for the answer, so none was taken out"
    left, says = (f"{probability(trust.without)} {why.answer.target}", "") if why.answer.foil is None else _of_two(why)
    return f"without {these(k)}: {left} ({_chance(trust)}){says}; {trust.filler.text}"


def _of_two(why: Why) -> tuple[str, str]:
    """Against a foil: the answer's share of the two, and what the model says of all that it can say."""
    target, foil, says = why.answer.target, why.answer.foil, why.trust.without_prediction
    two = f"of the two {'words' if why.classes is None else 'classes'} {target} and {foil}"
    then = "still" if says == target else "then"
    return f"{two}, {target} has {probability(why.trust.without)}", f"; the model {then} says {says}"


def _chance(trust: Trust) -> str:
    """The answer without random words."""
    if not trust.random.count:
        return "nothing to compare with"
    return f"{random_words(trust.k)}: {probability(trust.random.mean)} on average, {draws(trust.random)}"


def method_line(why: Why) -> str:
    """The method, why this one, its gap, and how many methods agree."""
    parts = [f"{why.method.name}: {why.method.reason}"]
    parts += [] if why.gaps.completeness is None else [f"completeness gap {gap(why.gaps.completeness)}"]
    parts += [agreement_line(why)] if why.agreement.of > 1 and why.agreement.k else []
    return "; ".join(parts)


def agreement_line(why: Why) -> str:
    one = why.agreement
    first = "the same word" if one.k == 1 else f"the same {counted(one.k, 'word')}"
    return f"{one.same} of {one.of} methods put {first} first"


def _notes(why: Why, width: int, colours: int) -> Iterator[Text]:
    for note in why.notes:
        yield from _paragraph(
            f"{MARKS[note.state]} {note.text}", width, style=STYLES[note.state] if colours else "", indent="  "
        )


def _paragraph(text: str, width: int, *, style: str = "", first: str = "", indent: str = "") -> Iterator[Text]:
    """A text in lines, broken between words; the first begins with `first`, the others with `indent`."""
    for line in _filled(_broken(text), width, indent, first):
        yield text_line((line, style))


def _broken(text: str) -> list[str]:
    """The words of a text; a number and its % are one."""
    return re.split(" (?!%)", _plain(text))


def _filled(words: Sequence[str], width: int, indent: str = "", first: str = "") -> Iterator[str]:
    line = first
    for word in words:
        longer = f"{line} {word}" if line.strip() else line + word
        if columns_of(longer) > width and line.strip():
            yield line
            longer = indent + word
        while columns_of(longer) > max(1, width):
            head = clipped(longer, max(2, width)).removesuffix("…")
            yield head
            longer = longer[len(head) :]
        line = longer
    yield line


# --- the text -------------------------------------------------------------------------------------------------------------


def shown_words(why: Why) -> list[int]:
    """The words of a text as a reader sees them: special tokens are left out."""
    return [place for place, word in enumerate(why.words) if not word.special]


def marked_words(why: Why) -> set[int]:
    """The words that carry a mark: those with a share of the evidence, of a long text the strongest."""
    places = [place for place in shown_words(why) if abs(why.words[place].share) >= _least(why)]
    return set(named_first(why, places)[:MOST_MARKED])


def named_first(why: Why, places: Iterable[int]) -> list[int]:
    """The words that the answer names, then the others from the largest share to the smallest."""
    named = {*why.answer.for_, *why.answer.against}
    return sorted({*places, *named}, key=lambda place: (place not in named, -abs(why.words[place].share)))


def _least(why: Why) -> float:
    """In a long text every share is small: there the strongest are marked."""
    return LEAST_SHARE if len(shown_words(why)) <= LONG else 0.0


def _strip(why: Why, width: int, colours: int) -> Iterator[Text]:
    """The text with its own spaces, and under each line a line of + and -."""
    marked = marked_words(why)
    largest = max((abs(why.words[place].share) for place in marked), default=1.0) or 1.0
    for line in _text_lines(why, max(1, width)):
        yield text_line(*((text, _style(why, place, marked, largest, colours)) for text, place in line))
        below = "".join(_signs(why, place, marked) * columns_of(text) for text, place in line).rstrip()
        if below and why.method.signed:
            yield text_line((below, ""))


def _style(why: Why, place: int | None, marked: set[int], largest: float, colours: int) -> str:
    if place is None or place not in marked:
        return ""
    return style_of(why.words[place].share / largest, colours)


def _signs(why: Why, place: int | None, marked: set[int]) -> str:
    if place is None or place not in marked:
        return " "
    return "+" if why.words[place].share > 0 else "-"


def _text_lines(why: Why, width: int) -> list[list[tuple[str, int | None]]]:
    """The words in lines, each with its index; what stands between two words has none."""
    lines: list[list[tuple[str, int | None]]] = [[]]
    end, segment = 0, None
    for place in shown_words(why):
        word = why.words[place]
        between = _between(word, first=not lines[-1])
        if segment not in (None, word.segment):
            lines.append([])
            end, between = 0, ""
        segment = word.segment
        for part in _parts(_plain(word.text), width):
            if end and end + columns_of(between) + columns_of(part) > width:
                lines.append([])
                end, between = 0, ""
            lines[-1] += [(between, None)] if between else []
            lines[-1].append((part, place))
            end += columns_of(between) + columns_of(part)
            between = ""
    return lines


def _between(word: Word, *, first: bool) -> str:
    """The characters before a word on one line."""
    return (
        ""
        if first
        else _plain(" ".join(word.before.split("\n")))
        if word.before.strip()
        else " "
        if word.before
        else ""
    )


def _parts(text: str, width: int) -> list[str]:
    """A word in parts that are not wider than the terminal."""
    parts = [""]
    for char in text:
        if parts[-1] and columns_of(parts[-1] + char) > width:
            parts.append("")
        parts[-1] += char
    return parts


# --- bars -----------------------------------------------------------------------------------------------------------------


def bar_words(why: Why) -> list[int]:
    """The words with bars, from most for to most against: at most twelve, those that are named among them."""
    shown = shown_words(why)
    strong = [place for place in shown if abs(why.words[place].share) >= LEAST_SHARE] or shown
    return sorted(named_first(why, strong)[:MOST_BARS], key=lambda place: -why.words[place].share)


def _bars(why: Why, width: int, colours: int) -> Iterator[Text]:
    places = bar_words(why)
    shares = [why.words[place].share for place in places]
    numbers = [_plain(percent(share, sign=why.method.signed)) for share in shares]
    names = [_plain(f"{why.words[place].text}{which(why.words, place)}") for place in places]
    label, bar = _room(names, numbers, width)
    largest = max(map(abs, shares), default=0.0) or 1.0
    for name, share, number in zip(names, shares, numbers, strict=True):
        blocks = ("█" if share >= 0 else "▒") * round(abs(share) / largest * bar)
        style = style_of(1.0 if share >= 0 else -1.0, colours, ink_only=True)
        start = f"  {fitting(name, label)}  {number:>{max(map(len, numbers))}}"
        yield text_line((start, ""), (f"  {blocks}" if blocks else "", style))
    yield from _paragraph(rest_line(why, places), width, first="  ", indent="  ", style="dim" if colours else "")


def _room(names: Sequence[str], numbers: Sequence[str], width: int) -> tuple[int, int]:
    """The columns of the words and of the longest bar; a narrow terminal has no bars."""
    longest = max(map(columns_of, names), default=0)
    room = width - 6 - max(map(len, numbers), default=0)
    bar = _longest_bar(room, longest)
    return max(1, min(longest, room - bar)), bar


def _longest_bar(room: int, longest: int) -> int:
    """The columns of the longest bar beside words of this length; words are cut for a bar of 6, and a narrow room has none."""
    if room - longest >= 6:
        return min(LONGEST_BAR, room - longest)
    return 6 if room >= 14 else 0


def rest_line(why: Why, places: Sequence[int]) -> str:
    """What is not drawn, and the unit."""
    rest = [why.words[place] for place in shown_words(why) if place not in set(places) and why.words[place].share]
    carried = percent(sum(abs(word.share) for word in rest))
    more = (
        f"{len(rest):,} more carry {carried} together; "
        if len(rest) > 1
        else f"1 more carries {carried}; "
        if rest
        else ""
    )
    unit = "share of evidence" if why.method.signed else "share of evidence, without a sign"
    return f"{more}{unit}, {why.method.name}"


# --- trust ----------------------------------------------------------------------------------------------------------------


def _trust(why: Why, width: int, colours: int) -> Iterator[Text]:
    """One line for each check, and the sentence that sums them up."""
    rows = list(trust_rows(why))
    name = max((columns_of(row[1]) for row in rows), default=0)
    for number, (state, title, value) in enumerate(rows):
        start = "Trust" if number == 0 else "     "
        mark = (f"{MARKS[state]:<2}", STYLES[state] if colours else "")
        fits = 11 + name + 2 + columns_of(value) <= width
        lines = [f"{title:<{name}}  {value}"] if fits else _trust_lines(title, value, name, width)
        yield text_line((f"{start}  ", ""), mark, (f"  {lines[0]}", ""))
        for line in lines[1:]:
            yield text_line((f"{' ' * 11}{line}", ""))
    style = STYLES[why.trust.verdict] if colours else ""
    indent = " " * 7 if width > 40 else ""
    yield from _paragraph(why.trust.sentence, width, style=style, first=indent, indent=indent)


def _trust_lines(title: str, value: str, name: int, width: int) -> list[str]:
    """A check and its number in lines that fit: the number in its own column, on a narrow terminal below its name."""
    words = _broken(" ".join(value.split()))
    room = width - 11 - name - 2
    if room < LEAST_COLUMN:
        return list(_filled([*f"{title}:".split(" "), *words], max(8, width - 11)))
    return [f"{title if not number else '':<{name}}  {line}" for number, line in enumerate(_filled(words, room))]


def trust_rows(why: Why) -> Iterable[tuple[str, str, str]]:
    """State, what was checked, and its number."""
    trust, states = why.trust, {check.id: check.state for check in why.trust.checks}
    if trust.k:
        yield from _removal_rows(why, states["removal"])
    if "agreement" in states:
        same = "same word first" if trust.k == 1 else f"same {counted(trust.k, 'word')} first"
        yield states["agreement"], same, f"{why.agreement.same} of {why.agreement.of} methods"
    if why.gaps.completeness is not None:
        yield states["completeness"], "scores add up", f"gap {_plain(gap(why.gaps.completeness))}"
    if trust.single is not None and trust.k > 1:
        yield _single_row(why, trust.single)


def _single_row(why: Why, single: Single) -> tuple[str, str, str]:
    """Whether one of the named words decides alone."""
    word = _plain(called(why.words, [single.word])[0])
    one = decides(why.trust.whole, single.without, turned=single.turned, predicted=why.answer.predicted)
    title = "one word decides" if one else "no single word decides"
    return "info", title, f"without {word} alone {_plain(probability(single.without))}{of_two(why.answer.foil)}"


def _removal_rows(why: Why, state: str) -> Iterator[tuple[str, str, str]]:
    """Without the words that are named, without words drawn at random, and with the named ones alone."""
    trust = why.trust
    measured = "" if why.answer.foil is None else f"{_plain(trust.measures)} "
    yield state, f"without {these(trust.k)}", f"{measured}{_arrow(trust.whole, trust.without)}"
    if trust.random.count:
        turned = turning(trust.random.turned, predicted=why.answer.predicted, foil=why.answer.foil)
        told = f"({draws(trust.random)}{_plain(turned)})"
        yield "info", f"without {random_words(trust.k)}", f"{_arrow(trust.whole, trust.random.mean)}  {told}"
    yield "info", "with these alone" if trust.k > 1 else "with this word alone", _arrow(trust.whole, trust.alone)


def _arrow(before: float, after: float) -> str:
    return _plain(f"{probability(before)} -> {probability(after)}")
