"""The page of a corpus run: what `corpus.overview` counted, as one HTML file. Template, style and coding are a report's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError
from ..base.text import counted, listed
from ..types import Map
from .packing import EXACT, Precision, encode
from .page_template import (
    BASE_SCRIPTS,
    BASE_STYLES,
    READ,
    Kind,
    filled_page,
    folder_name,
    plain,
    safe_json,
    visible,
    visible_or_none,
)
from .run_facts import run_facts, short, short_or_none

if TYPE_CHECKING:
    from ..runs.corpus.page_facts import Overview, Sampled

RUN = Kind(
    (*BASE_STYLES, "run.css"),
    (*BASE_SCRIPTS, "core.js", "run_maps.js", "run_rows.js", "run_folds.js", "run.js"),
    f'startRun({READ}, document.getElementById("main"));',
)
NOTES = 3_000  # characters kept for what is said about things left out
COARSE = Precision("bits8")  # maps: what the eye can tell apart
MOST_NAMED = 3  # classes in the question of the page
FILES = (".jsonl", ".csv", ".tsv", ".parquet", ".txt")  # data that is called by its file's name, not by its folder's
Maps = Callable[[Collection[int]], Iterable[tuple[int, Map]]]
Example = dict[str, Any]


def page(facts: Overview, *, maps: Maps | None = None, title: str | None = None, room: int = 2_000_000) -> str:
    """The whole page as one string of at most `room` bytes. `maps` gives the kept maps of some rows, where a run has them."""
    data, names = run_facts(facts), _headings(facts, title)
    left = _room_left(data, names, room)
    examples, size = _fitting(facts.examples, left if maps is None else left // 2)
    data["notes"] += _left_out_notes(len(examples), len(facts.examples))
    if maps is not None and examples:
        chosen = [facts.examples[place] for place in examples]
        data["held"] = _add_maps(list(examples.values()), _maps_within(chosen, maps, left - size))
    data["examples"] = sorted(examples.values(), key=lambda example: example["row"])
    return filled_page({"run": data}, RUN, **names)


def _headings(facts: Overview, title: str | None) -> dict[str, str]:
    """The question of the page, and the line above it."""
    model, source = named(facts)
    name = f"{model} on {source}"
    count = counted(len(facts.methods), "method")
    subtitle = f"Run over {facts.rows:,} rows of {source} · {model} · {count}"
    return {"title": title or question(facts), "subtitle": subtitle, "crumb": "A whole run", "name": title or name}


def question(facts: Overview) -> str:
    """What the words of a run decide: its classes by name where they are few."""
    names = sorted(group.name for group in facts.classes)
    if not facts.rows or not _is_classifier(facts):
        return f"Which words decide what {named(facts)[0]} says?"
    if len(names) > MOST_NAMED or facts.other_classes:
        return "Which words decide the class?"
    return f"Which words decide {listed([short(name) for name in names])}?"


def _is_classifier(facts: Overview) -> bool:
    model = facts.manifest.get("model")
    return isinstance(model, Mapping) and model.get("task") == "classification"


def named(facts: Overview) -> tuple[str, str]:
    """The model and the data, as a heading calls them."""
    model = facts.manifest.get("model")
    name = str(model.get("name")) if isinstance(model, Mapping) else "a model"
    return folder_name(name), _data_name(str(facts.manifest.get("data") or "a corpus"))


def _data_name(data: str) -> str:
    """The name of a file without its folders; any other data as it is."""
    return data.rstrip("/").rpartition("/")[2] if data.endswith(FILES) else data


def _room_left(data: Mapping[str, Any], names: Mapping[str, str], room: int) -> int:
    """The bytes that are left for examples and maps; a page whose numbers alone take more is refused."""
    left = room - NOTES - len(filled_page({"run": data}, RUN, **names).encode())
    if left < 0:
        raise InputError(f"the numbers of this run alone take {(room - left) / 1e6:.2f} MB. Allow more megabytes.")
    return left


def _left_out_notes(count: int, total: int) -> list[str]:
    """A note that says how many examples are left out; none where all are there."""
    note = f"{total - count} of {total} chosen examples are left out: the file has no room for them. More megabytes hold more."
    return [note] if count < total else []


# --- examples ---------------------------------------------------------------------------------------------------------


def _fitting(examples: Sequence[Sampled], room: int) -> tuple[dict[int, Example], int]:
    """As many as there is room for, by their place in the list; and the room they take."""
    every = dict(enumerate(map(example, examples)))
    sizes = {place: len(safe_json(plain(facts)).encode()) + 1 for place, facts in every.items()}
    places = _first_that_fit(sizes, room)
    return {place: every[place] for place in places}, sum(sizes[place] for place in places)


def _first_that_fit(sizes: Mapping[int, float], room: float) -> list[int]:
    """The keys, from the first to the last, of those sizes for which there is still room."""
    keys = []
    for key, size in sizes.items():
        if size <= room:
            keys.append(key)
            room -= size
    return keys


def example(sample: Sampled) -> Example:
    """What the page knows of one row."""
    return {
        "row": sample.row,
        "id": short(sample.id),
        "text": visible(sample.text),
        "pair": visible_or_none(sample.pair),
        "tokens": list(map(short, sample.tokens)),
        "special": [place for place, special in enumerate(sample.special) if special],
        "leftOut": sample.left_out,
        "query": sample.query,
        "prediction": short(sample.prediction),
        "probability": sample.probability,
        "target": visible_or_none(sample.target),
        "label": short_or_none(sample.label),
        "correct": sample.correct,
        "gap": sample.gap,
        "seconds": sample.seconds,
        "agreement": sample.agreement,
        "carried": [[visible(name), visible(value)] for name, value in sample.carried],
        "why": list(sample.why),
        "tags": list(sample.tags),
        "words": [[visible(word.text), visible(word.before), word.segment, list(word.tokens)] for word in sample.words],
        "check": _check(sample),
        "methods": list(sample.methods),
        "scores": _scores(sample),
        "maps": None,
    }


def _check(sample: Sampled) -> Example | None:
    """What was left without words, by method and of each draw, and gaps of completeness by method."""
    check = sample.check
    if check is None:
        return None
    return {
        "left": [check.left.get(method) for method in sample.methods],
        "turned": [check.turned.get(method) for method in sample.methods],
        "randomLeft": check.random_left,
        "randomTurned": check.random_turned,
        "gaps": [check.gaps.get(method) for method in sample.methods],
    }


def _scores(sample: Sampled) -> Example | None:
    """The scores of a row as a block; None where no method explains it."""
    return encode(sample.scores, EXACT) if sample.scores.size else None


# --- maps -------------------------------------------------------------------------------------------------------------


def _add_maps(examples: Sequence[Example], blocks: Mapping[int, list[Example]]) -> str:
    """Puts the blocks of maps into their examples, by row. Gives the sentence about the maps that the page holds."""
    for facts in examples:
        facts["maps"] = blocks.get(facts["row"])
    without = len(examples) - len(blocks)
    rest = (
        f" Those of {without} are left out: the file has no room for them, or the text is too long." if without else ""
    )
    return f"Maps of {len(blocks)} examples are here, {COARSE.description()}.{rest}"


def _maps_within(examples: Sequence[Sampled], maps: Maps, room: int) -> dict[int, list[Example]]:
    """The maps of as many examples as there is room for, those that come first before others."""
    blocks = _MapBlocks(_likely_rows(examples, maps, room), room)
    for row, scores in maps(blocks.rows) if blocks.rows else ():
        blocks.add(row, scores)
    return blocks.by_row


def _likely_rows(examples: Sequence[Sampled], maps: Maps, room: int) -> set[int]:
    """The rows whose maps should fit, by a guess of the characters they take."""
    whole = [sample for sample in examples if not sample.left_out]
    layers = _layers_of(maps, whole)
    sizes = {sample.row: layers * len(sample.tokens) ** 2 * 0.8 for sample in whole}
    return set(_first_that_fit(sizes, room)) if layers else set()


def _layers_of(maps: Maps, examples: Sequence[Sampled]) -> int:
    """The layers of all maps of the first example together."""
    return sum(len(scores.scores) for sample in examples[:1] for _, scores in maps([sample.row]))


class _MapBlocks:
    """Blocks of the maps of some rows, by row. `rows` are those that there is still room for."""

    def __init__(self, rows: set[int], room: int):
        self.rows, self.room = rows, room
        self.by_row: dict[int, list[Example]] = {}

    def add(self, row: int, scores: Map) -> None:
        """Takes in a map of a row; a row that cannot be held gets no more maps."""
        block = _map_block(scores) if row in self.rows else None
        if block is None:
            self.rows.discard(row)
        else:
            self._keep(row, block)

    def _keep(self, row: int, block: Example) -> None:
        """Holds a block; where that takes more than the room, all maps of its row go."""
        self.by_row.setdefault(row, []).append(block)
        self.room -= _size_of(block)
        if self.room < 0:
            self.room += sum(map(_size_of, self.by_row.pop(row)))
            self.rows.discard(row)


def _size_of(block: Example) -> int:
    return len(safe_json(block)) + 10


def _map_block(scores: Map) -> Example | None:
    """A map as the page reads it; None where a score is not finite, as after an overflow of float16."""
    try:
        block = encode(scores.scores.numpy().reshape(-1, len(scores.tokens)), COARSE)
    except InputError:
        return None
    return {"method": scores.method, "depth": len(scores.scores), "block": block}
