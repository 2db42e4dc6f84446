"""The folder of a corpus run. A shard's name holds its number and its checksum: once it is there, it is done and can be checked.

manifest.json                     whose folder it is; when finished: every shard, its rows and its sha256
shards/part-0000000-CHECKSUM.parquet      one row per example, in the order of the data
maps/part-0000000-CHECKSUM.parquet        one row per map, where maps are kept; named by their shard
errors.jsonl                      rows that could not be explained, and why; made from the shards
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..asking import parse_method
from ..errors import InputError, ResultError
from ..files import TEMPORARY, RunFolder, sync_folder, write
from ..maps import method
from ..optional import optional
from ..types import Map

if TYPE_CHECKING:
    from .worker import ShardFiles

SCHEMA = 1
NAME = re.compile(r"part-(\d{7,})-([0-9a-f]{16})\.parquet")
MAPS = 4  # maps read at a time
ASIDE = ".aside-"  # what is no shard of this run is moved out of every reader's sight, not deleted


def file_name(number: int, content: bytes) -> str:
    return f"part-{number:07d}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"


@dataclass(frozen=True)
class Shard:
    """A finished shard."""

    number: int
    file: str
    rows: int
    errors: int
    sha256: str
    input: str  # fingerprint of the rows it was made from
    maps: str | None


class CorpusFolder(RunFolder):
    """See the top of this file."""

    schema = SCHEMA

    def __init__(self, place: Path):
        super().__init__(place)
        self.shards, self.maps, self.errors = place / "shards", place / "maps", place / "errors.jsonl"

    def begin(self, manifest: bytes, *, maps: bool) -> None:
        """The folder is this run's from here on. Half-written files of a run that was killed are cleared away."""
        self.refuse_links(self.shards, self.maps)
        write(self.place / "manifest.json", manifest)
        self.shards.mkdir(exist_ok=True)
        if maps:
            self.maps.mkdir(exist_ok=True)
        sync_folder(self.place)
        self.clear(self.shards, self.maps)

    def listed(self) -> tuple[dict[int, tuple[str, str]], bool]:
        """What the manifest of a finished run says of its shards: number -> (file, sha256). And whether its list is damaged:
        then each shard is judged by its own checksum alone, as in a run that is not finished."""
        if not (self.place / "manifest.json").is_file():
            return {}, False
        shards = self.manifest.get("shards", [])
        kinds = {"number": int, "file": str, "sha256": str}
        whole = isinstance(shards, list) and all(
            isinstance(one, dict) and all(isinstance(one.get(name), kind) for name, kind in kinds.items()) for one in shards
        )
        return ({one["number"]: (one["file"], one["sha256"]) for one in shards}, False) if whole else ({}, True)

    def add(self, files: ShardFiles) -> Shard:
        """One more shard. Its maps come first: the shard itself, once there, says that all is done."""
        self.still_held()
        if files.maps is not None and files.maps_name is not None:
            write(self.maps / files.maps_name, files.maps)
        write(self.shards / files.name, files.content)
        sha256 = hashlib.sha256(files.content).hexdigest()
        return Shard(files.number, files.name, files.rows, len(files.bad), sha256, files.input, files.maps_name)

    def done(self, run: str, listed: Mapping[int, tuple[str, str]]) -> tuple[dict[int, Shard], list[str]]:
        """Every shard that is whole and of this run, by number; and the names of files that were not, moved aside. A shard of
        a number that is `listed` must be the very file that is listed."""
        shards: dict[int, Shard] = {}
        aside: list[str] = []
        for path in sorted(self.shards.iterdir()):
            if path.name.startswith("."):
                continue
            shard = self._whole(path, run, listed)
            if shard is None or shard.number in shards:
                self.put_aside(path, aside)
            else:
                shards[shard.number] = shard
        self._clear_maps({shard.maps for shard in shards.values()}, aside)
        return shards, aside

    def _clear_maps(self, needed: Collection[str | None], aside: list[str]) -> None:
        """Maps without a shard are deleted where they are whole, because they are made again with it; else they go aside."""
        for path in sorted(self.maps.iterdir()) if self.maps.is_dir() else []:
            if path.name in needed or path.name.startswith("."):
                continue
            name = NAME.fullmatch(path.name)
            if name is not None and path.is_file() and file_name(int(name[1]), path.read_bytes()) == path.name:
                path.unlink()
            else:
                self.put_aside(path, aside)

    def put_aside(self, path: Path, aside: list[str]) -> None:
        """Out of every reader's sight, and not over anything that was put aside before."""
        short = path.name
        while len(os.fsencode(short)) > 200:  # a file's name has 255 bytes
            short = short[:-1]
        place = path.with_name(f"{ASIDE}{short}")
        while os.path.lexists(place):
            place = path.with_name(f"{ASIDE}{secrets.token_hex(6)}-{short}")
        os.replace(path, place)
        aside.append(path.name)

    def drop(self, shard: Shard, aside: list[str]) -> None:
        """A shard that turned out not to be made of this run's data goes aside, and its maps with it."""
        self.put_aside(self.shards / shard.file, aside)
        if shard.maps is not None:
            self.put_aside(self.maps / shard.maps, aside)

    def _whole(self, path: Path, run: str, listed: Mapping[int, tuple[str, str]]) -> Shard | None:
        """The shard in a file, where it and its maps are whole and of this run."""
        name = NAME.fullmatch(path.name)
        if name is None or not path.is_file():
            return None
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if not digest.startswith(name[2]) or listed.get(int(name[1]), (path.name, digest)) != (path.name, digest):
            return None
        try:
            shard = read_shard(path, content, run)
        except ResultError:
            return None
        return shard if shard.number == int(name[1]) and self._has_maps(shard) else None

    def _has_maps(self, shard: Shard) -> bool:
        """Whether the maps that a shard names are there and whole."""
        if shard.maps is None:
            return True
        maps = self.maps / shard.maps
        return bool(NAME.fullmatch(shard.maps)) and maps.is_file() and file_name(shard.number, maps.read_bytes()) == shard.maps

    def bad_rows(self, shards: Mapping[int, Shard]) -> Iterator[dict[str, Any]]:
        """The rows that could not be explained, as the shards say, in the order of the data."""
        for number in sorted(shards):
            if shards[number].errors:
                yield from told_by(self.shards / shards[number].file)["errors"]

    def write_errors(self, shards: Mapping[int, Shard]) -> None:
        """errors.jsonl anew, whole. It says nothing that the shards do not say."""
        write(self.errors, (error_line(one).encode() for one in self.bad_rows(shards)))

    def add_errors(self, bad: Iterable[Any]) -> None:
        """For who looks on while it runs; a line cut off by a crash is made good when the run goes on."""
        lines = "".join(error_line(vars(one)) for one in bad)
        if lines:
            with self.errors.open("ab") as file:
                file.write(lines.encode())


def error_line(one: Mapping[str, Any]) -> str:
    return json.dumps(dict(one), ensure_ascii=False) + "\n"


def read_shard(path: Path, content: bytes | None = None, run: str | None = None) -> Shard:
    """What a shard says of itself; refused where it is none of ours (or, with `run`, of another run)."""
    content = path.read_bytes() if content is None else content
    facts = told_by(path, content)
    try:
        if run is not None and facts["run"] != run:
            raise ResultError(f"{path.name!r} is a shard of another run.")
        return Shard(
            int(facts["number"]),
            path.name,
            int(facts["rows"]),
            len(facts["errors"]),
            hashlib.sha256(content).hexdigest(),
            str(facts["input"]),
            None if facts["maps"] is None else str(facts["maps"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ResultError):
            raise
        raise ResultError(f"{path.name!r} is no shard of a corpus run.") from None


def told_by(path: Path, content: bytes | None = None) -> dict[str, Any]:
    """The facts in a shard's head, and how many rows it has."""
    pa, parquet = (optional(name, "pyarrow", "data", what="corpus runs") for name in ("pyarrow", "pyarrow.parquet"))
    try:
        file = parquet.ParquetFile(path if content is None else pa.BufferReader(content))
        facts = json.loads(file.schema_arrow.metadata[b"mixlens"])
        if facts["schema"] != SCHEMA:
            raise ResultError(f"{path.name!r} has schema {facts['schema']!r}; this mixlens reads {SCHEMA}.")
        return {**facts, "rows": file.metadata.num_rows}
    except (pa.ArrowException, KeyError, TypeError, ValueError, OSError, RecursionError) as error:
        if isinstance(error, ResultError):
            raise
        raise ResultError(f"{path.name!r} is not a shard of mixlens, or is damaged ({type(error).__name__}).") from None


# --- reading a run ----------------------------------------------------------------------------------------------------


def shard_files(out: str | os.PathLike[str], kind: str = "shards") -> list[Path]:
    """The files of a run, in the order of the data."""
    place = Path(out)
    if not (place / "manifest.json").is_file():
        raise InputError(f"{str(place)!r} holds no run: there is no manifest.json.")
    RunFolder(place).manifest  # noqa: B018 - refused where it is not one of ours
    folder = place / kind
    return sorted(path for path in folder.glob("part-*.parquet") if NAME.fullmatch(path.name)) if folder.is_dir() else []


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A Parquet file; what cannot be read of it is said in one line."""
    pa, parquet = (optional(name, "pyarrow", "data", what="corpus runs") for name in ("pyarrow", "pyarrow.parquet"))
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise ResultError(f"{path.name!r} cannot be read ({type(error).__name__}). Give the run's command again.") from None


def batches(path: Path, columns: list[str] | None = None) -> Iterator[list[dict[str, Any]]]:
    """The rows of one file, some at a time."""
    with opened(path) as file:
        there = None if columns is None else [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=256, columns=there):
            yield batch.to_pylist()


def maps(out: str | os.PathLike[str], rows: Collection[int] | None = None) -> Iterator[tuple[int, Map]]:
    """(row, Map) for every map a run kept (`maps=`), or for those of some rows, in the order of the data. Few are held at a
    time: maps are large."""
    missing = None if rows is None else set(rows)
    for path in shard_files(out):
        name = told_by(path).get("maps") if missing is None or missing else None
        if name is None:
            continue
        if missing is not None:
            here = missing & {row["row"] for batch in batches(path, ["row"]) for row in batch}
            if not here:
                continue
            missing -= here
        tokens = {row["row"]: row["tokens"] for batch in batches(path, ["row", "tokens"]) for row in batch}
        yield from _maps_in(path, str(name), tokens, rows)


def _maps_in(path: Path, name: str, tokens: Mapping[int, list[str]], rows: Collection[int] | None) -> Iterator[tuple[int, Map]]:
    """The maps of one shard, read from the file that it names."""
    place = path.parent.parent / "maps" / name
    if not NAME.fullmatch(name) or not place.is_file():
        raise ResultError(f"the maps of {path.name!r} are not there. Give the run's command again.")
    with opened(place) as file:
        for batch in file.iter_batches(batch_size=MAPS):
            for i, number in enumerate(batch.column("row").to_pylist()):
                if rows is None or number in rows:
                    yield number, _map(batch, i, tokens.get(number), name)


def _map(batch: Any, i: int, tokens: list[str] | None, name: str) -> Map:
    layers, n, method = (batch.column(field)[i].as_py() for field in ("layers", "tokens", "method"))
    try:
        scores = torch.tensor(batch.column("scores")[i].values.to_numpy(zero_copy_only=False), dtype=torch.float32)
        if tokens is None or len(tokens) != n:
            raise ValueError(n)
        return Map(scores.reshape(layers, n, n), tuple(tokens), method, _facts(method))
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise ResultError(f"the maps {name!r} are damaged. Give the run's command again.") from None


def _facts(written: str) -> dict[str, Any]:
    name = parse_method(written).name
    return {"method": name, "convention": method(name).rollout, "rollout": None}


def half_written(place: Path) -> list[Path]:
    """Temporary files, for whoever wants to see that there are none."""
    return sorted(place.rglob(f"{TEMPORARY}*"))
