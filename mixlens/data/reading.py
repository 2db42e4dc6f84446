"""`load`: a dataset by name. `read`: any file or hub dataset that has texts. Both give Examples, one at a time."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from ..base.errors import InputError, nearest
from ..base.paths import is_file, is_folder, is_there
from ..types import Example
from .catalog import DATASETS, Dataset
from .grammar import MASK, Sentence, number_of
from .hub import Hub, hub_rows
from .layouts import text_of
from .portions import portion, refuse_unknown_half
from .rows import READERS, Numbered, RowError, rows, unit_of
from .source import Source

Named = str | os.PathLike[str]
TABLES = ", ".join(kind for kind in READERS if kind != ".txt")  # the kinds that have fields
HOPELESS = 1000  # after so many rows, none of which can be read, the file is of another kind than its name says
TEXT_FIELDS = ("text", "sentence")  # the first of these that a row has is its text, where no other field is named
Convert = Callable[[Any], Example | None]  # a row to an example, or to nothing
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
    """Examples of a dataset of `mixlens data`: from the hub, or from `path`, a file or a folder that holds
    `{split}.jsonl` (or .csv, .tsv, .parquet) with the documented fields. A file alone, or a hub id, is read as `read`
    does, and takes its
    `text_field`, `pair_field` and `label_field`.

    `n` takes the first n; with `seed`, n drawn at random, the same for the same seed, in the order of the file. The two
    grammars have no end: `n` takes the first n sentences of stream `seed` (0). Their splits are train and heldout
    (default): pairs of words that the embedded models have never seen together. `blimp_vz` is divided into two equal
    halves, train and test, wherever it is read from. Every dataset also reads the rows that `data.stored` writes.

    What is wrong with the whole is refused here, before the first example; a row that is wrong raises when it comes.
    """
    _refuse_count("n", n)
    fields: dict[str, Any] = {"text_field": text_field, "pair_field": pair_field, "label_field": label_field}
    dataset = DATASETS.get(str(name))
    if dataset is None:
        if path is not None:
            raise InputError(f"unknown dataset {str(name)!r}. {nearest(str(name), DATASETS)}")
        return _sample(read(name, split=split, **fields), n, seed)
    _refuse_fields(str(name), {f"{key}=": value for key, value in fields.items()})
    if dataset.stream is not None and path is None:
        return islice(_generated(dataset, split, seed or 0), n)
    return _sample(_strict(_of_dataset(dataset, path, split)), n, seed)


def _refuse_count(name: str, count: int | None) -> None:
    if count is not None and count < 1:
        raise InputError(f"{name} must be at least 1, not {count}.")
    if count is not None and count > sys.maxsize:
        raise InputError(f"{name} must be at most {sys.maxsize:,}, not {count}.")


def _sample(examples: Iterator[Example], n: int | None, seed: int | None) -> Iterator[Example]:
    """The first n; with a seed n of them drawn at random, each with the same chance, in their order: one pass, n in
    memory."""
    if seed is None:
        return islice(examples, n)
    if n is None:
        raise InputError("seed= draws a sample: say how many, n=.")
    draw = random.Random(seed).random  # the one method that Python promises to keep the same in every version
    sample: list[tuple[int, Example]] = []
    for i, example in enumerate(examples):
        if i < n:
            sample.append((i, example))
        elif (place := int(draw() * (i + 1))) < n:
            sample[place] = (i, example)
    return iter([example for _, example in sorted(sample, key=lambda pair: pair[0])])


def _refuse_fields(name: str, fields: dict[str, str | None]) -> None:
    """A dataset of the catalog has documented fields: nobody names others."""
    names = [key for key, value in fields.items() if value is not None]
    if names:
        raise InputError(f"{name!r} knows its own fields: leave {', '.join(names)} out.")


def read(
    source: Named,
    *,
    text_field: str | None = None,
    pair_field: str | None = None,
    label_field: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    keep_bad: bool = False,
) -> Iterator[Any]:
    """Examples of any file with texts (JSONL, CSV, TSV, Parquet, plain text with one text per line), of a dataset of
    `mixlens data`, or of a hub dataset `owner/name` or `owner/name:configuration`. Ids are row numbers, as in the file.

    The text is the field `text_field`, by default "text" or "sentence", whichever is there; `label_field` is kept as
    info["label"], as it is written. With `keep_bad` a row that cannot be used comes out as a RowError in its place.
    """
    _refuse_count("limit", limit)
    fields = {"text_field": text_field, "pair_field": pair_field, "label_field": label_field}
    name = os.fspath(source)
    if name not in DATASETS or is_file(name):
        examples = _of_texts(name, split, **fields)
    else:
        _refuse_fields(name, fields)
        if DATASETS[name].stream is not None:
            return load(name, split=split, n=limit)
        examples = _of_dataset(DATASETS[name], None, split)
    return islice(examples if keep_bad else _strict(examples), limit)


# --- rows to examples -------------------------------------------------------------------------------------------------


def _of_dataset(dataset: Dataset, path: Named | None, split: str | None) -> Iterator[Example | RowError]:
    """The examples of a dataset of the catalog, from a local file or from the hub. A dataset of two halves has one
    split on the hub, or one file."""
    if dataset.halves:
        refuse_unknown_half(split)
        whole = _strict(_of_dataset(replace(dataset, halves=False), path, None))
        return portion(whole, split, balanced=dataset.balanced)
    numbered: Iterator[Any]
    if path is not None:
        place = _file(dataset, Path(path), split)
        source, unit = place.name, unit_of(place)
        numbered = rows(place, keep_bad=True, columns=dataset.columns)
    elif dataset.hub is None:
        raise InputError(
            f"{dataset.name!r} is not on the hub. Give a local file as path=: {TABLES}, with the fields "
            f"{dataset.fields}."
        )
    else:
        instead = f"A local file would do, as path=: {TABLES}, with the fields {dataset.fields}."
        source, unit = str(dataset.hub), "row"
        numbered = hub_rows(dataset.hub, split=split, instead=instead)
    refusal = f"{source} holds no example of {dataset.name!r}."
    fields, numbered = fields_of(numbered)
    if fields and dataset.layout(fields) is None:
        names = ", ".join(map(repr, fields))
        raise InputError(
            f"{source} is not written as {dataset.name!r}: it needs the fields {dataset.fields}. It has: {names}."
        )
    return not_empty(_examples(numbered, dataset.example, source, unit), refusal)


def rows_of(name: str, *, split: str | None, content: Source | None = None) -> tuple[str, str, Iterator[Any]]:
    """The name of a file or a hub dataset, the word for one of its rows, and its numbered rows, bad ones as
    RowErrors."""
    place = Path(name)
    if content is not None or is_file(place) or place.suffix.lower() in READERS:
        _refuse_split(place, split)
        return place.name, unit_of(place), rows(place, keep_bad=True, content=content)
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or is_there(name):
        raise InputError(
            f"{name!r} is no file, no dataset of `mixlens data` and no hub id (owner/name). {nearest(name, DATASETS)}"
        )
    id_, _, config = name.partition(":")
    instead = f"A local file would do: {', '.join(READERS)}."
    return name, "row", hub_rows(Hub(id_, "train", (config or None,)), split=split, instead=instead)


def _of_texts(
    name: str, split: str | None, *, text_field: str | None, pair_field: str | None, label_field: str | None
) -> Iterator[Example | RowError]:
    """The examples of any rows that have a text."""
    source, unit, numbered = rows_of(name, split=split)
    fields, numbered = fields_of(not_empty(numbered, f"{source} holds no row."))
    text_name = text_field or next((field for field in TEXT_FIELDS if field in fields), TEXT_FIELDS[0])
    for field in (text_name, pair_field, label_field):
        if field is not None and fields and field not in fields:  # none are known where no row could be read
            known = ", ".join(map(repr, fields))
            raise InputError(
                f"{source} has no field {field!r}. It has: {known}. Name them: text_field=, pair_field=, label_field=."
            )

    def example(row: Any) -> Example:
        label = None if label_field is None else row.get(label_field)
        info = {} if label is None else {"label": str(label)}
        return Example(text_of(row, text_name), None if pair_field is None else text_of(row, pair_field), info=info)

    return _examples(numbered, example, source, unit, own_ids=False)


def _examples(
    numbered: Iterator[Any], convert: Convert, source: str, unit: str, *, own_ids: bool = True
) -> Iterator[Example | RowError]:
    """Each row as an example, or as the RowError that says why it is none; nothing for a row that the dataset leaves
    out."""
    for number, row in numbered:
        try:
            example = row if isinstance(row, RowError) else convert(row)
        except InputError as error:
            example = RowError(source, number, str(error), unit)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
        ) as error:  # a field of another shape than its name promises
            example = RowError(source, number, f"not as documented ({type(error).__name__}: {error})", unit)
        if isinstance(example, Example):
            id_ = row.get("id") if own_ids else None
            yield replace(example, id=str(number) if id_ in (None, "") else str(id_))
        elif example is not None:
            yield example


def _generated(dataset: Dataset, split: str | None, seed: int) -> Iterator[Example]:
    """The sentences of a grammar."""
    splits = {"train": False, "heldout": True, None: True}
    if split not in splits:
        raise InputError(f"{dataset.name!r} has no split {split!r}. {nearest(str(split), ('train', 'heldout'))}")
    assert dataset.stream is not None
    stream = enumerate(dataset.stream(seed=seed, held_out=splits[split]), 1)
    return (_generated_example(dataset, one, f"{dataset.name}-{split or 'heldout'}-{seed}-{i}") for i, one in stream)


def _generated_example(dataset: Dataset, sentence: Sentence, id_: str) -> Example:
    info: dict[str, Any] = {
        "task": sentence.task,
        "construction": sentence.construction,
        "attractors": sentence.attractors,
    }
    if dataset.labels:
        info["label"] = sentence.target
        return Example(sentence.text, cues=sentence.cues, id=id_, info=info)
    start = sentence.text.index(MASK)
    info |= {"mask": (start, start + len(MASK)), "number": number_of(sentence.target)}
    return Example(sentence.text, cues=sentence.cues, target=sentence.target, foil=sentence.foil, id=id_, info=info)


# --- which file, how many ---------------------------------------------------------------------------------------------


def _file(dataset: Dataset, path: Path, split: str | None) -> Path:
    """The file itself, or the one file of a folder that holds the split."""
    if not is_folder(path):
        _refuse_split(path, split)
        return path
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in READERS)
    matches = [file for file in files if split in (None, file.stem)]
    if len(matches) == 1:
        return matches[0]
    count = "no file"
    if files or split is not None:
        count = f"{len(matches)} files" + (f" for split {split!r}" if split else "")
    names = ", ".join(file.name for file in files) or "none"
    raise InputError(
        f"{str(path)!r} has {count} to read {dataset.name!r} from. There are: {names}. Give split= or the file."
    )


def _refuse_split(place: Path, split: str | None) -> None:
    if split is not None:
        raise InputError(f"{place.name!r} is one file and is read whole: leave split= out.")


def _strict(examples: Iterator[Example | RowError]) -> Iterator[Example]:
    """The examples; a RowError is raised when it comes. The first is read now, so that a file of another shape is
    refused now."""

    def checked() -> Iterator[Example]:
        for example in examples:
            if isinstance(example, RowError):
                raise example
            yield example

    rest = checked()
    return chain([next(rest)], rest)


def not_empty(items: Iterator[_T], refusal: str) -> Iterator[_T]:
    """The same items. The first is read now: where there is none, an InputError says `refusal`."""
    first = next(items, None)
    if first is None:
        raise InputError(refusal)
    return chain([first], items)


def fields_of(numbered: Numbered | Iterator[Any]) -> tuple[tuple[str, ...], Iterator[Any]]:
    """The fields of the first row that can be read, and all the rows."""
    head: list[Any] = []
    for number, row in numbered:
        head.append((number, row))
        if not isinstance(row, RowError):
            return tuple(row), chain(head, numbered)
        if len(head) == HOPELESS:
            raise InputError(f"none of the first {HOPELESS} rows can be read. The first: {head[0][1]}")
    return (), iter(head)


def field_names(name: str | None) -> tuple[str, ...]:
    """The fields of a local file that is read as texts; () where it is none."""
    if name is None or name in DATASETS or not is_file(name):
        return ()
    return fields_of(rows_of(name, split=None)[2])[0]
