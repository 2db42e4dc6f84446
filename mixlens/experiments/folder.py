"""The folder of a run: shards of records, a manifest, the tables. A file is there whole or not at all; nothing is overwritten
that another run wrote."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ..errors import InputError, ResultError
from ..types import Record

SCHEMA = 1
TEMPORARY = ".tmp-"
LOCK = ".lock"
COLUMNS = ("example", "method", "metric", "value", "info")
Units = dict[str, tuple[float, list[Record]]]  # each unit of work: its seconds and its records


def optional(module: str, package: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"experiments need {package}: pip install 'mixlens[{extra}]'.") from None


def write(place: Path, content: bytes) -> None:
    """Written beside its place, flushed to the disk, then moved there whole."""
    beside = place.with_name(f"{TEMPORARY}{place.name}")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _move(beside, place)


def _move(beside: Path, place: Path) -> None:
    os.replace(beside, place)
    if os.name == "posix":
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class Folder:
    """`manifest.json` says whose folder it is; `records/part-*.parquet` hold what is measured so far."""

    def __init__(self, place: Path):
        self.place, self.records = place, place / "records"

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuse a folder that is not empty and not of this very run."""
        if self.place.exists() and not self.place.is_dir():
            raise InputError(f"{str(self.place)!r} is a file; the results need a folder of their own.")
        if not (self.place / "manifest.json").is_file():
            there = (
                [p.name for p in self.place.iterdir() if not p.name.startswith((TEMPORARY, LOCK))] if self.place.is_dir() else []
            )
            if there:
                raise InputError(
                    f"{str(self.place)!r} is not empty ({', '.join(sorted(there)[:3])}) and holds no run. Give another folder: "
                    "nothing is overwritten."
                )
            return
        manifest = self.manifest
        if manifest.get("schema") != SCHEMA:
            raise InputError(f"{str(self.place)!r} has schema {manifest.get('schema')!r}; this mixlens writes {SCHEMA}.")
        before, now = manifest["identity"], json.loads(json.dumps(identity))
        different = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if different:
            told = "; ".join(f"{key}: {_brief(before.get(key))} there, {_brief(now.get(key))} here" for key in different)
            raise InputError(f"{str(self.place)!r} belongs to another run ({told}). Give another folder: nothing is overwritten.")

    @property
    def manifest(self) -> dict[str, Any]:
        try:
            made = json.loads((self.place / "manifest.json").read_text(encoding="utf-8"))
            return cast(dict[str, Any], made) if "identity" in made else {}
        except (ValueError, TypeError):
            raise InputError(f"{str(self.place / 'manifest.json')!r} is not a manifest of mixlens.") from None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """One run at a time writes here. A killed run lets go by itself."""
        self.place.mkdir(parents=True, exist_ok=True)
        with (self.place / LOCK).open("w") as file:
            try:
                import fcntl
            except ImportError:  # not on Windows
                yield
                return
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"another run is writing to {str(self.place)!r}. Wait for it, or give another folder.") from None
            yield

    def begin(self, manifest: bytes) -> None:
        """The folder is this run's from here on. Half-written files of a run that was killed are cleared away."""
        write(self.place / "manifest.json", manifest)
        self.records.mkdir(exist_ok=True)
        for folder in (self.place, self.records):
            for path in folder.glob(f"{TEMPORARY}*"):
                path.unlink()

    def read(self) -> Units:
        """Every unit that was measured, in the order in which they were written."""
        units: Units = {}
        for path in sorted(self.records.glob("part-*.parquet")):
            for key, unit in _shard(path).items():
                units.setdefault(key, unit)
        return units

    def add(self, units: Units) -> None:
        """One more shard."""
        pa, parquet = optional("pyarrow", "pyarrow", "data"), optional("pyarrow.parquet", "pyarrow", "data")
        numbers = [int(path.stem.removeprefix("part-")) for path in self.records.glob("part-*.parquet")]
        place = self.records / f"part-{max(numbers, default=-1) + 1:05d}.parquet"
        flat = [(key, record) for key, (_, records) in units.items() for record in records]
        columns = {"unit": pa.array([key for key, _ in flat], pa.string())}
        for name in COLUMNS[:3]:
            columns[name] = pa.array([getattr(record, name) for _, record in flat], pa.string())
        columns["value"] = pa.array([record.value for _, record in flat], pa.float64())
        columns["info"] = pa.array([json.dumps(dict(record.info), ensure_ascii=False) for _, record in flat], pa.string())
        seconds = {key: seconds for key, (seconds, _) in units.items()}
        told = {"mixlens": json.dumps({"schema": SCHEMA, "seconds": seconds})}
        beside = place.with_name(f"{TEMPORARY}{place.name}")
        parquet.write_table(pa.table(columns).replace_schema_metadata(told), beside)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        _move(beside, place)


def _shard(path: Path) -> Units:
    parquet = optional("pyarrow.parquet", "pyarrow", "data")
    pa = optional("pyarrow", "pyarrow", "data")
    try:
        table = parquet.read_table(path)
        told = json.loads(table.schema.metadata[b"mixlens"])
        units: Units = {key: (seconds, []) for key, seconds in told["seconds"].items()}
        for row in table.to_pylist():
            units[row["unit"]][1].append(record_of(*(row[name] for name in COLUMNS)))
        return units
    except (pa.ArrowException, KeyError, TypeError, ValueError, OSError) as error:
        raise ResultError(
            f"{str(path)!r} cannot be read ({type(error).__name__}). Move it away and run again: what it held is measured again."
        ) from None


def record_of(example: str, method: str, metric: str, value: float, info: str) -> Record:
    return Record(example, method, metric, value, json.loads(info))


def through(records: Sequence[Record]) -> list[Record]:
    """As if written and read again, so that a run without a folder has the same records."""
    return [record_of(r.example, r.method, r.metric, float(r.value), json.dumps(dict(r.info))) for r in records]


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
