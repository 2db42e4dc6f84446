"""Reading the maps that a run kept."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any

import torch

from ...base.errors import InputError, ResultError
from ...scoring.asking import parse_method
from ...scoring.maps import method
from ...types import Map
from .shards import NAME, facts_of, open_parquet, rows_in, shard_files

TOGETHER = 4  # maps read at a time


def maps(out: str | os.PathLike[str], rows: Collection[int] | None = None) -> Iterator[tuple[int, Map]]:
    """(row, Map) for every map a run kept (`maps=`), or for those of some rows, in the order of the data. Few are held
    at a time: maps are large."""
    missing = None if rows is None else set(rows)
    for path in shard_files(out):
        name = facts_of(path).get("maps")
        if missing is not None and not missing:
            return
        if name is None:
            continue
        if missing is not None:
            here = missing & {row["row"] for row in rows_in(path, ["row"])}
            if not here:
                continue
            missing -= here
        place = path.parent.parent / "maps" / str(name)
        if not NAME.fullmatch(str(name)) or not place.is_file():
            raise ResultError(f"the maps of {path.name!r} are not there. Give the run's command again.")
        tokens = {row["row"]: row["tokens"] for row in rows_in(path, ["row", "tokens"])}
        with open_parquet(place) as file:
            for batch in file.iter_batches(batch_size=TOGETHER):
                for index, row in enumerate(batch.column("row").to_pylist()):
                    if rows is None or row in rows:
                        yield row, _map(batch, index, tokens.get(row), place.name)


def _map(batch: Any, index: int, tokens: Any, name: str) -> Map:
    layers, n, written = (batch.column(field)[index].as_py() for field in ("layers", "tokens", "method"))
    try:
        scores = torch.tensor(batch.column("scores")[index].values.to_numpy(zero_copy_only=False), dtype=torch.float32)
        if len(tokens) != n:
            raise ValueError(n)
        known = parse_method(written).name
        facts = {"method": known, "convention": method(known).rollout, "rollout": None}
        return Map(scores.reshape(layers, n, n), tuple(tokens), written, facts)
    except InputError:
        raise
    except (AttributeError, TypeError, ValueError, RuntimeError):
        raise ResultError(f"the maps {name!r} are damaged. Give the run's command again.") from None
