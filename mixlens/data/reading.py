"""`load`: a dataset by name. `read`: any file or hub dataset that has texts. Both give Examples, one at a time."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from ..errors import InputError, nearest
from ..types import Example
from .catalog import DATASETS, Dataset
from .hub import Hub, hub_rows
from .labels import label_of
from .layouts import text_of
from .rows import READERS, Numbered, RowError, reader_of, rows
from .source import Source

Named = str | os.PathLike[str]
TABLES = ", ".join(kind for kind in READERS if kind != ".txt")  # the kinds that have fields
HOPELESS = 1000  # rows without one that can be read: another kind of file than its name says
TEXT_FIELDS = ("text", "sentence")  # taken, in this order, where nobody says which field is the text
_T = TypeVar("_T")


def load(
    name: Named,
    *,
    path: Named | None = None,
    split: str | None = None,
    n: int | None = None,
    seed: int | None = None,
    text_field: str | None = None,
    pair_field: str | None = None,
    label_field: str | None = None,
) -> Iterator[Example]:
    """Examples of a dataset of `mixlens data`: from the hub, or from `path`, a file or a folder that holds `{split}.jsonl`
    (or .csv, .tsv, .parquet) with the documented fields. A file alone, or a hub id, is read as `read` does, and takes its
    `text_field`, `pair_field` and `label_field`.

    `n` takes the first n; with `seed`, n drawn at random, the same for the same seed, in the order of the file. The two
    grammars have no end: `n` takes the first n sentences of stream `seed` (0). Their splits are train and heldout
    (default): pairs of words that the embedded models have never seen together.

    What is wrong with the whole is refused here, before the first example; a row that is wrong raises when it comes.
    """
    _at_least_one(n=n)
    fields: dict[str, Any] = {"text_field": text_field, "pair_field": pair_field, "label_field": label_field}
    if str(name) not in DATASETS:
        if path is not None:
            raise InputError(f"unknown dataset {str(name)!r}. {nearest(str(name), DATASETS)}")
        return _sample(read(name, split=split, **fields), n, seed)
    if given := [key for key, value in fields.items() if value is not None]:
        raise InputError(f"{str(name)!r} knows its own fields: leave {', '.join(f'{key}=' for key in given)} out.")
    dataset = DATASETS[str(name)]
    if dataset.stream is not None:
        if path is not None:
            raise InputError(f"{dataset.name!r} is made, not read: leave path= out.")
        return islice(_made(dataset, split, seed or 0), n)
    return _sample(_strict(_of_dataset(dataset, path, split)), n, seed)


@overload
def read(
    source: Named,
    *,
    text_field: str | None = None,
    pair_field: str | None = None,
    label_field: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    keep_bad: Literal[False] = False,
) -> Iterator[Example]: ...
@overload
def read(
    source: Named,
    *,
    text_field: str | None = None,
    pair_field: str | None = None,
    label_field: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    keep_bad: bool,
) -> Iterator[Example | RowError]: ...
def read(
    source: Named,
    *,
    text_field: str | None = None,
    pair_field: str | None = None,
    label_field: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    keep_bad: bool = False,
) -> Any:
    """Examples of any file with texts (JSONL, CSV, TSV, Parquet, plain text with one text per line), of a dataset of
    `mixlens data`, or of a hub dataset `owner/name` or `owner/name:configuration`. Ids are row numbers, as in the file.

    The text is the field `text_field`, by default "text" or "sentence", whichever is there; `label_field` is kept as
    info["label"], as it is written. With `keep_bad` a row that cannot be used comes out as a RowError in its place.
    """
    _at_least_one(limit=limit)
    asked = {"text_field": text_field, "pair_field": pair_field, "label_field": label_field}
    name = os.fspath(source)
    if name in DATASETS and not Path(name).is_file():
        given = [key for key, value in asked.items() if value is not None]
        if given:
            raise InputError(f"{name!r} knows its own fields: leave {', '.join(given)} out.")
        if DATASETS[name].stream is not None:
            return load(name, split=split, n=limit)
        found = _of_dataset(DATASETS[name], None, split)
    else:
        found = _of_texts(name, split=split, **asked)
    return islice(found if keep_bad else _strict(found), limit)


# --- rows to examples -------------------------------------------------------------------------------------------------


def _of_dataset(dataset: Dataset, path: Named | None, split: str | None) -> Iterator[Example | RowError]:
    if path is not None:
        place = _file(dataset, Path(path), split)
        source, unit, found = place.name, _unit(place), rows(place, keep_bad=True, columns=dataset.columns)
    elif dataset.hub is not None:
        instead = f"A local file would do, as path=: {TABLES}, with the fields {dataset.fields}."
        source, unit, found = str(dataset.hub), "row", hub_rows(dataset.hub, split=split, instead=instead)
    else:
        raise InputError(
            f"{dataset.name!r} is not on the hub. Give a local file as path=: {TABLES}, with the fields {dataset.fields}."
        )
    none = f"{source} holds no example of {dataset.name!r}."
    fields, found = _fields(_begun(found, none))
    if fields and dataset.layout(fields) is None:
        there = ", ".join(map(repr, fields))
        raise InputError(f"{source} is not written as {dataset.name!r}: it needs the fields {dataset.fields}. It has: {there}.")
    return _begun(_examples(found, dataset.example, source, unit), none)


def rows_of(name: str, *, split: str | None, content: Source | None = None) -> tuple[str, str, Iterator[Any]]:
    """The rows of a file or a hub dataset, as `rows` gives them (bad ones too); its name, and what a row is called there."""
    place = Path(name)
    if content is not None or place.is_file() or place.suffix.lower() in READERS:
        if split is not None:
            raise InputError(f"{place.name!r} is one file and is read whole: leave split= out.")
        return place.name, _unit(place), rows(place, keep_bad=True, content=content)
    if place.exists() or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise InputError(
            f"{name!r} is no file, no dataset of `mixlens data` and no hub id (owner/name). {nearest(name, DATASETS)}"
        )
    id_, _, config = name.partition(":")
    instead = f"A local file would do: {', '.join(READERS)}."
    return name, "row", hub_rows(Hub(id_, "train", (config or None,)), split=split, instead=instead)


def _of_texts(
    name: str, *, text_field: str | None, pair_field: str | None, label_field: str | None, split: str | None
) -> Iterator[Example | RowError]:
    source, unit, found = rows_of(name, split=split)
    fields, found = _fields(_begun(found, f"{source} holds no row."))
    asked = [text_field or next((one for one in TEXT_FIELDS if one in fields), TEXT_FIELDS[0]), pair_field, label_field]
    missing = [one for one in asked if one is not None and fields and one not in fields]
    if missing:
        there = ", ".join(map(repr, fields))
        raise InputError(
            f"{source} has no field {missing[0]!r}. It has: {there}. Name them: text_field=, pair_field=, label_field=."
        )

    def example(row: Any) -> Example:
        text, pair, label = asked
        known = {} if label is None or row.get(label) is None else {"label": str(row[label])}
        return Example(text_of(row, str(text)), None if pair is None else text_of(row, pair), info=known)

    return _examples(found, example, source, unit, own_ids=False)


def _examples(
    found: Numbered | Iterator[Any], make: Callable[[Any], Example | None], source: str, unit: str, *, own_ids: bool = True
) -> Iterator[Example | RowError]:
    for number, row in found:
        if isinstance(row, RowError):
            yield row
            continue
        try:
            example = make(row)
        except InputError as error:
            yield RowError(source, number, str(error), unit)
            continue
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # a field of another shape than its name promises
            yield RowError(source, number, f"not as documented ({type(error).__name__}: {error})", unit)
            continue
        if example is not None:
            own = row.get("id") if own_ids else None
            yield replace(example, id=str(number) if own in (None, "") else str(own))


def _made(dataset: Dataset, split: str | None, seed: int) -> Iterator[Example]:
    assert dataset.stream is not None
    splits = {"train": False, "heldout": True, None: True}
    if split not in splits:
        raise InputError(f"{dataset.name!r} has no split {split!r}. {nearest(str(split), ('train', 'heldout'))}")
    return _sentences(dataset, dataset.stream(seed=seed, held_out=splits[split]), f"{dataset.name}-{split or 'heldout'}-{seed}")


def _sentences(dataset: Dataset, stream: Iterator[Any], prefix: str) -> Iterator[Example]:
    for i, one in enumerate(stream, 1):
        info = {"task": one.task, "construction": one.construction, "attractors": one.attractors}
        if dataset.labels:
            yield Example(
                one.text, cues=one.cues, id=f"{prefix}-{i}", info=info | {"label": label_of(one.target, dataset.labels)}
            )
        else:
            start = one.text.index("[MASK]")
            known = info | {"mask": (start, start + len("[MASK]"))}
            yield Example(one.text, target=one.target, foil=one.foil, cues=one.cues, id=f"{prefix}-{i}", info=known)


# --- which file, how many ---------------------------------------------------------------------------------------------


def _file(dataset: Dataset, path: Path, split: str | None) -> Path:
    if not path.is_dir():
        if split is not None:
            raise InputError(f"{path.name!r} is one file and is read whole: leave split= out.")
        reader_of(path)
        return path
    files = sorted(one for one in path.iterdir() if one.suffix.lower() in READERS)
    fitting = [one for one in files if split in (None, one.stem)]
    if len(fitting) != 1:
        there = ", ".join(one.name for one in files) or "none"
        what = "no file" if split is None and not files else f"{len(fitting)} files" + (f" for split {split!r}" if split else "")
        raise InputError(f"{str(path)!r} has {what} to read {dataset.name!r} from. There are: {there}. Give split= or the file.")
    return fitting[0]


def _unit(place: Path) -> str:
    return "row" if place.suffix.lower() == ".parquet" else "line"


def _strict(found: Iterator[Example | RowError]) -> Iterator[Example]:
    """The first example is made now, so that a file of another shape is refused now."""

    def raising() -> Iterator[Example]:
        for one in found:
            if isinstance(one, RowError):
                raise one
            yield one

    going = raising()
    return chain([next(going)], going)


def _begun(found: Iterator[_T], otherwise: str) -> Iterator[_T]:
    """The same, with the first drawn already; refused where there is none."""
    first = next(found, None)
    if first is None:
        raise InputError(otherwise)
    return chain([first], found)


def _fields(found: Numbered | Iterator[Any]) -> tuple[tuple[str, ...], Iterator[Any]]:
    """The fields of the first row that can be read, and all the rows."""
    before: list[Any] = []
    for number, row in found:
        before.append((number, row))
        if not isinstance(row, RowError):
            return tuple(row), chain(before, found)
        if len(before) == HOPELESS:
            raise InputError(f"none of the first {HOPELESS} rows can be read. The first: {before[0][1]}")
    return (), iter(before)


def _at_least_one(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, not {value}.")
        if value is not None and value > sys.maxsize:
            raise InputError(f"{name} must be at most {sys.maxsize:,}, not {value}.")


def _sample(found: Iterator[Example], n: int | None, seed: int | None) -> Iterator[Example]:
    """The first n, or n drawn with the same chance each (reservoir sampling: one pass, n held), in their order."""
    if seed is None:
        return islice(found, n)
    if n is None:
        raise InputError("seed= draws a sample: say how many, n=.")
    draw = random.Random(seed).random  # the one method that Python promises to keep the same in every version
    kept: list[tuple[int, Example]] = []
    for i, example in enumerate(found):
        if i < n:
            kept.append((i, example))
        elif (place := int(draw() * (i + 1))) < n:
            kept[place] = (i, example)
    return iter([example for _, example in sorted(kept, key=lambda pair: pair[0])])
