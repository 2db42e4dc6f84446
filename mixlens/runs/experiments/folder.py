"""The folder of an experiment: shards of records, a manifest, the tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from ...base.errors import ResultError
from ...base.files import RunFolder, sync_folder, write
from ...base.optional import optional
from ...types import Record

SCHEMA = 1
COLUMNS = ("example", "method", "metric", "value", "info")
Units = dict[str, tuple[float, list[Record]]]  # each unit of work: its seconds and its records


class Folder(RunFolder):
    """`manifest.json` says whose folder it is; `records/part-*.parquet` hold what is measured so far."""

    schema = SCHEMA

    def __init__(self, place: Path):
        super().__init__(place)
        self.records = place / "records"

    def begin(self, manifest: bytes) -> None:
        """The folder is this run's from here on. Half-written files of a run that was killed are cleared away."""
        self.refuse_links(self.records)
        write(self.place / "manifest.json", manifest)
        self.records.mkdir(exist_ok=True)
        sync_folder(self.place)
        self.clear(self.records)

    @property
    def units_when_finished(self) -> int | None:
        """How many units the run had when it ended; None where it did not end. Then nothing of it is measured again."""
        told = self.manifest if (self.place / "manifest.json").is_file() else {}
        return told.get("units") if told.get("finished") is True else None

    def read(self) -> Units:
        """Every unit that was measured, in the order in which they were written."""
        units: Units = {}
        for path in sorted(self.records.glob("part-*.parquet")):
            for key, unit in _shard(path).items():
                units.setdefault(key, unit)
        return units

    def add(self, units: Units) -> None:
        """One more shard."""
        self.still_held()
        pa, parquet = optional("pyarrow", "pyarrow", "data"), optional("pyarrow.parquet", "pyarrow", "data")
        numbers = [int(path.stem.removeprefix("part-")) for path in self.records.glob("part-*.parquet")]
        rows = [
            {"unit": key, **{name: getattr(record, name) for name in COLUMNS[:4]}, "info": _json(record)}
            for key, (_, records) in units.items()
            for record in records
        ]
        schema = pa.schema([(name, pa.float64() if name == "value" else pa.string()) for name in ("unit", *COLUMNS)])
        told = {"schema": SCHEMA, "seconds": {key: seconds for key, (seconds, _) in units.items()}}
        content = BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows, schema.with_metadata({"mixlens": json.dumps(told)})), content)
        write(self.records / f"part-{max(numbers, default=-1) + 1:05d}.parquet", content.getvalue())


def _shard(path: Path) -> Units:
    parquet, pa = optional("pyarrow.parquet", "pyarrow", "data"), optional("pyarrow", "pyarrow", "data")
    try:
        table = parquet.read_table(path)
        told = json.loads(table.schema.metadata[b"mixlens"])
        units: Units = {key: (seconds, []) for key, seconds in told["seconds"].items()}
        for row in table.to_pylist():
            units[row["unit"]][1].append(record_of(*(row[name] for name in COLUMNS)))
        return units
    except (pa.ArrowException, KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
        raise ResultError(
            f"{str(path)!r} cannot be read ({type(error).__name__}). Move it away and run again: what it held is "
            "measured again."
        ) from None


def record_of(example: str, method: str, metric: str, value: float, info: str) -> Record:
    return Record(example, method, metric, value, json.loads(info))


def _json(record: Record) -> str:
    return json.dumps(dict(record.info), ensure_ascii=False)


def through(records: Sequence[Record]) -> list[Record]:
    """As if written and read again, so that a run without a folder has the same records."""
    return [record_of(r.example, r.method, r.metric, float(r.value), _json(r)) for r in records]
