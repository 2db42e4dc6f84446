"""The folder of a corpus run. A shard's name holds its number and its checksum: once it is there, it is done and can be
checked.

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

from ...base.errors import InputError, ResultError
from ...base.files import RunFolder, sync_folder, write
from ...base.optional import optional
from ...base.paths import is_file, looking

if TYPE_CHECKING:
    from .worker import ShardFiles

SCHEMA = 1
NAME = re.compile(r"part-(\d{7,})-([0-9a-f]{16})\.parquet")
ASIDE = ".aside-"  # a file that is no shard of this run gets a name that no reader looks for; it is not deleted
ROWS_HELD = 256  # of a shard that is read
ENTRY = {"number": int, "file": str, "sha256": str}  # what the manifest's list says of each shard, and more


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

    def __init__(self, place: Path, *, resume: bool = False):
        super().__init__(place)
        self.resume = resume  # whether no run may begin anew here
        self.shards, self.maps, self.errors = place / "shards", place / "maps", place / "errors.jsonl"

    def may_be_taken(self) -> bool:
        """Whether no row of the run that is here was explained. A file that cannot be read may hold one."""
        listed, damaged = self.listed()
        if self.resume or damaged or (listed and any(shard.get("rows") != 0 for shard in self.manifest["shards"])):
            return False
        return not any(map(_may_hold_rows, (*_visible(self.shards), *_visible(self.maps))))

    def take(self, identity: Mapping[str, Any]) -> None:
        """Delete what another run without any row has left here: `check` let no other pass."""
        if not any(self.differences(identity)):
            return
        self.refuse_links(self.shards, self.maps)
        for path in (*_visible(self.shards), *_visible(self.maps), self.errors, self.place / "manifest.json"):
            path.unlink(missing_ok=True)
        if self.maps.is_dir() and not any(self.maps.iterdir()):
            self.maps.rmdir()

    def begin(self, manifest: bytes, *, maps: bool) -> None:
        """The folder is this run's from here on. Half-written files of a run that was killed are cleared away."""
        self.refuse_links(self.shards, self.maps)
        write(self.place / "manifest.json", manifest)
        self.shards.mkdir(exist_ok=True)
        if maps:
            self.maps.mkdir(exist_ok=True)
        sync_folder(self.place)
        self.clear(self.shards, self.maps)

    def withdraw(self) -> None:
        """Take back what `begin` wrote. A folder that is not empty stays, and so do files of other names."""
        self.still_held()
        for path in (self.place / "manifest.json", self.errors):
            path.unlink(missing_ok=True)
        for folder in (self.shards, self.maps):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def listed(self) -> tuple[dict[int, tuple[str, str]], bool]:
        """What the manifest of a finished run says of its shards: number -> (file, sha256). And whether its list is
        damaged: then each shard is judged by its own checksum alone, as in a run that is not finished."""
        if not (self.place / "manifest.json").is_file():
            return {}, False
        shards = self.manifest.get("shards", [])
        if not isinstance(shards, list) or not all(
            isinstance(shard, dict) and all(isinstance(shard.get(name), kind) for name, kind in ENTRY.items())
            for shard in shards
        ):
            return {}, True
        return {shard["number"]: (shard["file"], shard["sha256"]) for shard in shards}, False

    def add(self, files: ShardFiles) -> Shard:
        """One more shard. Its maps come first: the shard itself, once there, says that all is done."""
        self.still_held()
        if files.maps is not None and files.maps_name is not None:
            write(self.maps / files.maps_name, files.maps)
        write(self.shards / files.name, files.content)
        sha256 = hashlib.sha256(files.content).hexdigest()
        return Shard(files.number, files.name, files.rows, len(files.bad), sha256, files.input, files.maps_name)

    def done(self, run: str, listed: Mapping[int, tuple[str, str]]) -> tuple[dict[int, Shard], list[str]]:
        """Every shard that is whole and of this run, by number; and the names of files that were not, moved aside. A
        shard of a number that is `listed` must be the very file that is listed. Maps without a shard are deleted where
        they are whole, because they are computed again with it; others are moved aside."""
        shards: dict[int, Shard] = {}
        aside: list[str] = []
        for path in _visible(self.shards):
            shard = self._whole(path, run, listed)
            if shard is None or shard.number in shards:
                self.put_aside(path, aside)
            else:
                shards[shard.number] = shard
        needed = {shard.maps for shard in shards.values()}
        for path in [path for path in _visible(self.maps) if path.name not in needed]:
            if _is_whole(path, _number_of(path.name)):
                path.unlink()
            else:
                self.put_aside(path, aside)
        return shards, aside

    def put_aside(self, path: Path, aside: list[str]) -> None:
        """Give a file a name that no reader looks for, and that no file has yet. Its old name is added to `aside`."""
        short = path.name
        while len(os.fsencode(short)) > 200:  # a file's name has at most 255 bytes
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
        """The shard in a file, where it and its maps are whole and of this run, and of the number in its name."""
        number = _number_of(path.name)
        if number is None or not path.is_file():
            return None
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if not _is_listed(path, digest, listed.get(number)):
            return None
        try:
            facts = facts_of(path, content)
            maps = None if facts["maps"] is None else str(facts["maps"])
            rows, errors = int(facts["rows"]), len(facts["errors"])
            shard = Shard(int(facts["number"]), path.name, rows, errors, digest, str(facts["input"]), maps)
            if facts["run"] != run or shard.number != number:
                return None
        except (ResultError, KeyError, TypeError, ValueError):
            return None
        has_maps = maps is None or (_number_of(maps) is not None and _is_whole(self.maps / maps, number))
        return shard if has_maps else None

    def bad_rows(self, shards: Mapping[int, Shard]) -> Iterator[dict[str, Any]]:
        """The rows that could not be explained, as the shards say, in the order of the data."""
        for shard in [shards[number] for number in sorted(shards)]:
            if shard.errors:
                yield from facts_of(self.shards / shard.file)["errors"]

    def write_errors(self, shards: Mapping[int, Shard]) -> None:
        """errors.jsonl anew, whole. It says nothing that the shards do not say."""
        write(self.errors, (_line(row) for row in self.bad_rows(shards)))

    def add_errors(self, bad: Iterable[Any]) -> None:
        """Append lines to errors.jsonl while the run goes on. A line that a crash cut off is written again by
        `write_errors`."""
        if lines := b"".join(_line(vars(row)) for row in bad):
            with self.errors.open("ab") as file:
                file.write(lines)


def _line(row: Mapping[str, Any]) -> bytes:
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


# --- the files of a folder --------------------------------------------------------------------------------------------


def _visible(folder: Path) -> list[Path]:
    """What is in a folder, without what was moved aside; nothing where there is no folder."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in paths if not path.name.startswith("."))


def _may_hold_rows(path: Path) -> bool:
    """Whether a file is no Parquet file, or one with rows."""
    try:
        with open_parquet(path) as file:
            return bool(file.metadata.num_rows)
    except ResultError:
        return True


def _number_of(name: str) -> int | None:
    """The number in the name of a shard, or of its maps; None for other names."""
    match = NAME.fullmatch(name)
    return None if match is None else int(match[1])


def _is_whole(path: Path, number: int | None) -> bool:
    """Whether a file is named by this number and by its own checksum."""
    return number is not None and path.is_file() and file_name(number, path.read_bytes()) == path.name


def _is_listed(path: Path, digest: str, entry: tuple[str, str] | None) -> bool:
    """Whether a file has the checksum that its name says, and is the one of the manifest's entry, where there is
    one."""
    return digest.startswith(path.stem.rpartition("-")[2]) and entry in (None, (path.name, digest))


def refuse_changed(path: Path, listed: Mapping[int, tuple[str, str]]) -> None:
    """Refuse a shard whose content is not what its name and the manifest's list say."""
    with looking(path), path.open("rb") as file:  # read in pieces: a shard may be large
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not _is_listed(path, digest, listed.get(_number_of(path.name) or 0)):
        raise ResultError(
            f"{path.name!r} is not the file that the run wrote: its checksum is another. Give the run's command "
            "again: it is "
            "moved aside, and its rows are done again."
        )


def _arrow_and_parquet() -> tuple[Any, Any]:
    pa, parquet = (optional(name, "pyarrow", "data", what="corpus runs") for name in ("pyarrow", "pyarrow.parquet"))
    return pa, parquet


def facts_of(path: Path, content: bytes | None = None) -> dict[str, Any]:
    """The facts in a shard's metadata, and how many rows it has."""
    pa, parquet = _arrow_and_parquet()
    try:
        file = parquet.ParquetFile(path if content is None else pa.BufferReader(content))
        facts = json.loads(file.schema_arrow.metadata[b"mixlens"])
        if facts["schema"] != SCHEMA:
            raise ResultError(f"{path.name!r} has schema {facts['schema']!r}; this mixlens reads {SCHEMA}.")
        return {**facts, "rows": file.metadata.num_rows}
    except ResultError:
        raise
    except (pa.ArrowException, KeyError, TypeError, ValueError, OSError, RecursionError) as error:
        raise ResultError(f"{path.name!r} is not a shard of mixlens, or is damaged ({type(error).__name__}).") from None


# --- reading a run ----------------------------------------------------------------------------------------------------


def shard_files(out: str | os.PathLike[str], kind: str = "shards") -> list[Path]:
    """The files of a run, in the order of the data."""
    place = Path(out)
    if not is_file(place / "manifest.json"):
        raise InputError(f"{str(place)!r} holds no run: there is no manifest.json.")
    RunFolder(place).manifest  # noqa: B018 - refused where it is not one of ours
    return sorted(path for path in (place / kind).glob("part-*.parquet") if NAME.fullmatch(path.name))


@contextlib.contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """A Parquet file; one that cannot be read is refused in one line."""
    pa, parquet = _arrow_and_parquet()
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise ResultError(
            f"{path.name!r} cannot be read ({type(error).__name__}). Give the run's command again."
        ) from None


def rows_in(path: Path, columns: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of one file, with all columns or with those of these that it has. `ROWS_HELD` rows are held at a
    time."""
    with open_parquet(path) as file:
        names = None if columns is None else [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=ROWS_HELD, columns=names):
            yield from batch.to_pylist()
