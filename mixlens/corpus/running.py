"""`run`: a corpus through a model, shard by shard, into a folder that can be killed and continued."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

from ..errors import InputError, MixlensError, is_text
from ..fast.loops import used
from ..files import IDENTITY, in_folder, write
from ..maps import versions
from ..model.loading import load
from ..model.model import Model
from ..notices import notices_of_corpus
from ..optional import optional
from ..provenance import model_fingerprint, public_name, whereabouts
from .page import write_page
from .plan import is_count, plan_of
from .ray_pool import Pool
from .rows import Corpus, Fields, Given, RowError, corpus, fingerprint, windows
from .shards import SCHEMA, CorpusFolder, Shard
from .summary import kind
from .worker import ShardFiles, Worker

if TYPE_CHECKING:
    import pandas

NOTICED = 64  # rows that are looked at before the work: does the model know such texts?
SHARD_ROWS = 512  # rows to a shard: as much work as is lost, at most, when a run is killed
MOST_ROWS = 1_000_000  # rows to a shard: they are held in memory together
Window = tuple[int, list[Given | RowError]]


@dataclass(frozen=True)
class Run:
    """A finished run."""

    out: Path
    rows: int  # explained
    errors: int  # in errors.jsonl
    done: int  # rows this call worked on; the others were there already
    seconds: float
    aside: tuple[str, ...] = ()  # files that were damaged or of another run: moved aside, and done again

    def to_pandas(self) -> pandas.DataFrame:
        """All rows in one table."""
        return optional("pandas", "pandas", "pandas", what="tables").read_parquet(self.out / "shards")

    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """One HTML file that shows the whole run; as `mixlens.report(run, path)`."""
        return write_page(self.out, path, **options)


def run(
    data: Any,
    *,
    model: str | os.PathLike[str] | Model = "agreement",
    methods: str | Sequence[str] = ("alti",),
    out: str | os.PathLike[str],
    limit: int | None = None,
    columns: Sequence[str] = (),
    text_field: str | None = None,
    pair_field: str | None = None,
    ids_field: str | None = None,
    split: str | None = None,
    target: Any = "predicted",
    foil: str | int | None = None,
    score: str | None = None,
    query: int | str | None = None,
    maps: bool | str = False,
    batch_tokens: int | None = None,
    shard_rows: int = SHARD_ROWS,
    strict: bool = False,
    resume: bool = False,
    progress: bool | None = None,
    ray: str | None = None,
    workers: int | tuple[int, int] | None = None,
    **load_options: Any,
) -> Run:
    """Explain every row of a corpus; or go on: the same call with the same `out` continues where it was stopped.

    `data`: a file (JSONL, CSV, TSV, Parquet, text with a text a line), a dataset of `mixlens data`, a hub id, or texts,
    (text, pair) tuples, Examples or mappings. A field with ids (`ids_field`, by default `input_ids`) is read as it is.
    `target`: as for `attribute`; "gold" takes each row's own target (and foil) or label. `maps`: keep the maps too, as
    "float32" (True) or "float16". `strict`: stop at the first row that cannot be explained, instead of noting it in
    errors.jsonl. `resume`: refuse to begin anew. Memory does not grow with the corpus. `ray`: "auto" or the address of a
    Ray cluster, whose `workers` (by default one for each GPU, else CPU) do the work; `model` is then a name.
    """
    optional("pyarrow.parquet", "pyarrow", "data", what="corpus runs")
    plan = plan_of(methods, target, foil, score, query, maps, batch_tokens, columns)
    names = {"split": split, "text_field": text_field, "pair_field": pair_field, "ids_field": ids_field}
    _refuse_shards(shard_rows)
    _refuse_names(names)
    folder = CorpusFolder(Path(out))
    if resume and not (folder.place / "manifest.json").is_file():
        raise InputError(f"{str(folder.place)!r} holds no run to resume. Leave resume out to begin one.")
    source = corpus(data, fields=Fields(text_field, pair_field, ids_field, plan.columns), split=split, limit=limit)
    pool = None
    try:
        plan = replace(plan, kinds=source.kinds)
        if ray is not None and isinstance(model, Model):
            raise InputError("every Ray worker loads the model itself: give its name or its folder, not a loaded one.")
        lens = model if isinstance(model, Model) else load(model, **(load_options if ray is None else _without_gpu(load_options)))
        worker = Worker(lens, plan)
        worker.refuse()
        key = _identity(worker, source, {"limit": limit, **names, "shard_rows": shard_rows})
        if ray is not None:
            pool = Pool(ray, model, load_options, plan, workers)
            key["device"] = pool.device
            key["kernels"] = "triton" if pool.device == "cuda" else used(torch.device("cpu"))
        with in_folder(folder.place):
            folder.check(key)
            with folder.held(key):
                return _CorpusRun(folder, worker, source, key, pool).run(shard_rows, strict, progress)
    finally:
        source.close()
        if pool is not None:
            pool.close()


def _refuse_shards(rows: Any) -> None:
    if not is_count(rows):
        raise InputError(f"shard_rows must be at least 1, not {rows!r}.")
    if rows > MOST_ROWS:
        raise InputError(f"shard_rows must be at most {MOST_ROWS:,}, not {rows}: a shard is held in memory.")


def _refuse_names(names: Mapping[str, Any]) -> None:
    for name, value in names.items():
        if value is not None and not (isinstance(value, str) and is_text(value)):
            raise InputError(f"{name} is a name, not {value!r:.80}.")


def _without_gpu(options: dict[str, Any]) -> dict[str, Any]:
    """Load options for the process that only writes: GPUs are for the workers, and a model that is spread stays on disk."""
    others = {key: value for key, value in options.items() if key not in ("device", "device_map", "max_memory", "offload_folder")}
    if options.get("device_map") is None or options.get("quantization") is not None:
        return {**others, "device": "cpu"}
    return {**others, "device_map": {"": "disk"}, "offload_folder": options.get("offload_folder")}


def _identity(worker: Worker, source: Corpus, options: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run this run: a folder with another identity is not written to."""
    plan = {key: value for key, value in asdict(worker.plan).items() if key not in ("methods", "kinds")}
    plan |= {"kinds": dict(worker.plan.kinds)} if worker.plan.kinds else {}
    return {
        "kind": "corpus",
        "model": model_fingerprint(worker.model),
        "data": source.fingerprint or source.name,
        "methods": list(worker.plan.methods),
        "options": {**plan, **options},
        "dtype": str(worker.model.dtype).removeprefix("torch."),
        **whereabouts(worker.model),
        "versions": {key: value for key, value in versions().items() if key != "python"},
    }


def _provenance(worker: Worker, source: Corpus) -> dict[str, Any]:
    """What the manifest says beside the identity: names, places and versions for a reader."""
    model = worker.model
    return {
        "model": {
            "name": public_name(model.name),
            "revision": model.revision,
            "task": model.task,
            "family": model.family.name,
            "classes": _classes(model),
        },
        "check": None if model.proof is None else model.proof.gap,
        "data": public_name(source.name),
        "versions": versions(),
        "device": model.placement,
        "quantization": model.quantization,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "columns": {field.name: str(field.type) for field in worker.schema()},
    }


def _classes(model: Model) -> list[str] | None:
    """The names of a classifier's outputs, in the model's order; labels are compared with them."""
    config = model.hf_model.config
    return [str(config.id2label.get(i, i)) for i in range(config.num_labels)] if model.task == "classification" else None


# --- the long work ------------------------------------------------------------------------------------------------------


class _CorpusRun:
    """One call of `run` on a folder that it holds. `done`: the shards that are there, by number; `aside`: files moved aside."""

    def __init__(self, folder: CorpusFolder, worker: Worker, source: Corpus, identity: dict[str, Any], pool: Pool | None):
        self.folder, self.worker, self.source, self.identity, self.pool = folder, worker, source, identity, pool
        self.key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        facts = {"schema": SCHEMA, "identity_schema": IDENTITY, "identity": identity, "run": self.key}
        self.facts = {**facts, **_provenance(worker, source)}
        self.done: dict[int, Shard] = {}
        self.aside: list[str] = []

    def run(self, size: int, strict: bool, progress: bool | None) -> Run:
        started = time.perf_counter()
        self._begin()
        worked = self._work(size, strict, progress)
        self.source.unchanged()
        self.folder.still_held()
        self.folder.write_errors(self.done)
        shards = [asdict(self.done[number]) for number in sorted(self.done)]
        rows, errors = (sum(shard[what] for shard in shards) for what in ("rows", "errors"))
        seconds = time.perf_counter() - started
        self._write_manifest({"finished": True, "rows": rows, "errors": errors, "shards": shards})
        if errors > 1 and not rows:
            _refuse_all(self.folder, self.done, errors)
        return Run(self.folder.place, rows, errors, worked, seconds, tuple(self.aside))

    def _begin(self) -> None:
        """Find the shards that are done already, and put everything else aside."""
        folder = self.folder
        listed, damaged = folder.listed()
        if damaged:
            warnings.warn(
                "the list of shards in manifest.json is damaged: each shard is judged by its own checksum.", stacklevel=5
            )
        before = [] if damaged or not listed else folder.manifest["shards"]
        folder.begin(_json({**self.facts, "finished": False, "shards": before}), maps=self.worker.plan.maps is not None)
        self.done, self.aside = folder.done(self.key, listed)
        left = [one for one in before if one["number"] in self.done]
        if len(left) < len(before):  # what is done again is another file: the list must not hold it to the old one
            self._write_manifest({"finished": False, "shards": left})
        _warn_aside(self.aside, stacklevel=5)
        folder.write_errors(self.done)

    def _write_manifest(self, facts: Mapping[str, Any]) -> None:
        write(self.folder.place / "manifest.json", _json({**self.facts, **facts}))

    def _work(self, size: int, strict: bool, progress: bool | None) -> int:
        """Make the shards that are missing; how many rows that were."""
        worked = 0
        there = sum(shard.rows + shard.errors for shard in self.done.values())
        hidden = None if progress is None else not progress
        with tqdm(total=self.source.total, initial=there, unit="row", desc="run", disable=hidden, smoothing=0.1) as bar:
            for files in self._made(_noticed(self.worker, self._missing(size)), bar.update):
                _refuse(files, strict, first=not self.done)
                self.done[files.number] = self.folder.add(files)
                self.folder.add_errors(files.bad)
                worked += files.rows + len(files.bad)
        return worked

    def _made(self, missing: Iterable[Window], tick: Any) -> Iterator[ShardFiles]:
        if self.pool is None:
            return (self.worker.window(number, rows, self.key, tick) for number, rows in missing)
        # Quantised weights may be packed in another way on a GPU: there the places are compared alone.
        names = ["device", "device_map", "kernels", "quantization", *([] if "quantization" in self.identity else ["model"])]
        expected = {name: self.identity[name] for name in names if name in self.identity}
        return self.pool.made(missing, self.key, expected, tick)

    def _missing(self, size: int) -> Iterator[Window]:
        """The windows without a shard. A window that has one must hold the same rows as the shard was made of. Where the data is
        a file that is known to be the same, a shard of other rows is at fault: it goes aside, and is done again."""
        number, before = -1, set(self.done)
        for number, rows in windows(_read(self.source.rows()), size):
            if number not in before:
                yield number, rows
            elif self.done[number].input != fingerprint(rows):
                first = rows[0].number if isinstance(rows[0], RowError) else rows[0].row
                self._drop(number, f"rows from {first} on differ from those that were explained before.")
                yield number, rows
        for at in sorted(at for at in before if at > number):
            self._drop(at, f"{self.done[at].file} was made of rows that are not there any more.")

    def _drop(self, number: int, reason: str) -> None:
        """Put a shard of other rows aside; refuse where the data may have changed."""
        if self.source.source is None:
            raise InputError(f"the data is not what it was: {reason}")
        gone: list[str] = []
        self.folder.drop(self.done.pop(number), gone)
        self.aside += gone
        _warn_aside(gone, stacklevel=4)


def _warn_aside(aside: Sequence[str], *, stacklevel: int) -> None:
    if aside:
        names = ", ".join(aside[:5]) + (" ..." if len(aside) > 5 else "")
        message = f"damaged, or not of this run: {names}. Moved aside; what is missing is done again."
        warnings.warn(message, stacklevel=stacklevel)


def _refuse_all(folder: CorpusFolder, done: dict[int, Shard], errors: int) -> None:
    """A run without a single explained row is an error, whatever the reasons were."""
    kinds = Counter(kind(str(one["reason"])) for one in folder.bad_rows(done))
    (most, count), *_ = kinds.most_common(1)
    first = next(one for one in folder.bad_rows(done) if kind(str(one["reason"])) == most)
    raise MixlensError(
        f"none of the {errors:,} rows could be explained; {count:,} of them because: {first['reason']} "
        f"Each row's reason is in {str(folder.errors)!r}."
    )


def _read(rows: Iterator[Given | RowError]) -> Iterator[Given | RowError]:
    """The rows; an error of the system while they are read is said of the data, not of the folder that is written to."""
    while True:
        try:
            one = next(rows, None)
        except OSError as error:
            if isinstance(error, MixlensError):
                raise
            raise InputError(f"the data cannot be read: {error.strerror or error}. The same command goes on.") from error
        if one is None:
            return
        yield one


def _noticed(worker: Worker, windows: Iterator[Window]) -> Iterator[Window]:
    """The same windows; what the first rows say little about is told before the work."""
    for place, (number, rows) in enumerate(windows):
        if place == 0:
            for notice in notices_of_rows(worker, [one for one in rows if not isinstance(one, RowError)][:NOTICED]):
                warnings.warn(notice, stacklevel=4)
        yield number, rows


def notices_of_rows(worker: Worker, rows: Sequence[Given]) -> list[str]:
    """What a reader must know of these rows' numbers; rows that cannot be read have errors of their own."""
    texts = []
    for one in rows:
        with suppress(MixlensError):
            texts.append(worker.encode(one))
    targets = any(request.class_specific for request in worker.requests.values())
    return notices_of_corpus(worker.model, texts, query=worker.plan.query, targets=targets)


def _refuse(files: ShardFiles, strict: bool, *, first: bool) -> None:
    """With `strict` any bad row; else a first shard without one good row, all of them bad for one kind of reason."""
    if files.bad and strict:
        raise InputError(f"row {files.bad[0].row}: {files.bad[0].reason} (strict: nothing is left out)")
    if first and not files.rows and len(files.bad) > 1 and len({kind(one.reason) for one in files.bad}) == 1:
        raise MixlensError(f"none of the first {len(files.bad)} rows can be explained: {files.bad[0].reason}")


def _json(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode()
