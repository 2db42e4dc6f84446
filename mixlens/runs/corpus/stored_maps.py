"""Reading the maps that a run kept."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import torch

from ...base.errors import InputError, ResultError
from ...scoring.asking import parse_method
from ...scoring.maps import method
from ...types import Map
from .shards import NAME, facts_of, open_parquet, rows_in, shard_files

TOGETHER = 4  # maps read at a time


class _Wanted:
    """The rows whose maps are asked for; None: all rows. `missing`: those that no shard had so far."""

    def __init__(self, rows: Collection[int] | None):
        self.rows = None if rows is None else set(rows)
        self.missing = set(self.rows or ())

    def holds(self, row: int) -> bool:
        return self.rows is None or row in self.rows

    def is_complete(self) -> bool:
        return self.rows is not None and not self.missing

    def is_in(self, path: Path) -> bool:
        """Whether a shard has one of the missing rows; it has them, so they are missing no more."""
        if self.rows is None:
            return True
        here = self.missing & {row["row"] for row in rows_in(path, ["row"])}
        self.missing -= here
        return bool(here)


def maps(out: str | os.PathLike[str], rows: Collection[int] | None = None) -> Iterator[tuple[int, Map]]:
    """(row, Map) for every map a run kept (`maps=`), or for those of some rows, in the order of the data. Few are held at a
    time: maps are large."""
    wanted = _Wanted(rows)
    for path in shard_files(out):
        if wanted.is_complete():
            return
        name = facts_of(path).get("maps")
        if name is not None and wanted.is_in(path):
            yield from _maps_of_shard(path, str(name), wanted)


def _maps_of_shard(path: Path, name: str, wanted: _Wanted) -> Iterator[tuple[int, Map]]:
    """The maps of one shard, read from the file that it names."""
    tokens = {row["row"]: row["tokens"] for row in rows_in(path, ["row", "tokens"])}
    for row, batch, index in _entries(_place(path, name)):
        if wanted.holds(row):
            yield row, _map(batch, index, tokens.get(row), name)


def _place(shard: Path, name: str) -> Path:
    """Where the maps of a shard are."""
    place = shard.parent.parent / "maps" / name
    if not NAME.fullmatch(name) or not place.is_file():
        raise ResultError(f"the maps of {shard.name!r} are not there. Give the run's command again.")
    return place


def _entries(place: Path) -> Iterator[tuple[int, Any, int]]:
    """(row, batch, index in the batch) of every map in a file."""
    with open_parquet(place) as file:
        for batch in file.iter_batches(batch_size=TOGETHER):
            yield from ((row, batch, index) for index, row in enumerate(batch.column("row").to_pylist()))


def _map(batch: Any, index: int, tokens: Any, name: str) -> Map:
    layers, n, written = (batch.column(field)[index].as_py() for field in ("layers", "tokens", "method"))
    try:
        scores = torch.tensor(batch.column("scores")[index].values.to_numpy(zero_copy_only=False), dtype=torch.float32)
        if len(tokens) != n:
            raise ValueError(n)
        return Map(scores.reshape(layers, n, n), tuple(tokens), written, _facts(written))
    except InputError:
        raise
    except (AttributeError, TypeError, ValueError, RuntimeError):
        raise ResultError(f"the maps {name!r} are damaged. Give the run's command again.") from None


def _facts(written: str) -> dict[str, Any]:
    name = parse_method(written).name
    return {"method": name, "convention": method(name).rollout, "rollout": None}
