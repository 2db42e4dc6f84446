"""Rows of a dataset on the hub, through the `datasets` library: data files only, nothing that runs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from ..base.errors import InputError
from .rows import Row, needed

CONVERTED = "refs/convert/parquet"  # the hub's own Parquet copy of datasets that were published as a script


@dataclass(frozen=True)
class Hub:
    """Where a dataset lies on the hub. Several configurations are read one after the other."""

    id: str
    split: str = "validation"
    configs: tuple[str | None, ...] = (None,)
    folder: str | None = None  # inside the repository, where there are no configurations
    revision: str | None = None

    def __str__(self) -> str:
        named = [name for name in (*self.configs, self.folder) if name]
        return self.id + (f":{named[0]}" if len(named) == 1 else f" ({len(named)} configurations)" if named else "")


def hub_rows(hub: Hub, *, split: str | None, instead: str) -> Iterator[tuple[int, Row]]:
    """(number, row), counted from 1. Everything is there, or refused, before the first row: nothing fails on the way.

    `instead` says what would do without the hub. What was fetched once lies in the cache of `datasets`, on disk, not in
    memory; HF_HUB_OFFLINE=1 reads it from there.
    """
    library = needed("datasets", f"reading {hub.id!r} from the hub")
    if not library.config.HF_HUB_OFFLINE and _unreachable():
        raise InputError(
            f"the hub cannot be reached, so {hub.id!r} cannot be fetched. {instead} "
            "If it was fetched before, set HF_HUB_OFFLINE=1 to read it from the cache."
        )
    try:
        parts = [
            library.load_dataset(hub.id, config, split=split or hub.split, data_dir=hub.folder, revision=hub.revision)
            for config in hub.configs
        ]
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"cannot read {hub.id!r}, split {split or hub.split!r}, from the hub: {reason}. {instead}"
        ) from None
    return _numbered(parts)


def _numbered(parts: list[Any]) -> Iterator[tuple[int, Row]]:
    number = 0
    for part in parts:
        # Parts of speech come as numbers whose names only the hub knows. A single label stays a number: the table names
        # it.
        lists: dict[str, Any] = {column: getattr(kind, "feature", None) for column, kind in part.features.items()}
        names = {column: kind.names for column, kind in lists.items() if hasattr(kind, "names")}
        for row in part:
            number += 1
            yield number, row | {column: [names[column][i] for i in row[column]] for column in names}


def _unreachable() -> bool:
    """One try of a few seconds. Left to itself, `datasets` tries for half a minute before it says so."""
    if getproxies():
        return False  # a proxy may know the way when we do not
    address = urlsplit(needed("huggingface_hub", "reading from the hub").constants.ENDPOINT)
    try:
        socket.create_connection(
            (address.hostname, address.port or (80 if address.scheme == "http" else 443)), timeout=5
        ).close()
    except OSError:
        return True
    return False
