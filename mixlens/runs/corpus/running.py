"""`run`: a corpus through a model, shard by shard, into a folder that can be killed and continued."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from ...base.errors import InputError, MixlensError, ended, is_text
from ...base.files import IDENTITY, in_folder, write
from ...base.optional import optional
from ...base.paths import is_file
from ...base.wrong_kinds import wrong_kinds_in_one_line
from ...data import RowError
from ...model.loading import load
from ...model.model import Model
from ...scoring.notices import notices_of_corpus
from .cluster import Pool
from .page import write_page
from .plan import is_count, plan_of
from .reading import kind
from .rows import Fields, InputRow, Rows, Window, fingerprint, place_of, windows
from .run_identity import identity_of, places_of, provenance_of, without_gpu
from .shards import SCHEMA, CorpusFolder, Shard
from .sources import Corpus, corpus
from .worker import ShardFiles, Worker

if TYPE_CHECKING:
    import pandas

NOTICED = 64  # rows that are looked at before the work: does the model know such texts?
SHARD_ROWS = 512  # rows to a shard: as much work as is lost, at most, when a run is killed
MOST_ROWS = 1_000_000  # rows to a shard: they are held in memory together


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


@wrong_kinds_in_one_line
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
    trust: bool = False,
    generate: int | None = None,
    chat: bool = False,
    truncate: bool = False,
    batch_tokens: int | None = None,
    shard_rows: int = SHARD_ROWS,
    strict: bool = False,
    resume: bool = False,
    progress: bool | None = None,
    ray: str | None = None,
    workers: int | None = None,
    **load_options: Any,
) -> Run:
    """Explain every row of a corpus; or go on: the same call with the same `out` continues where it was stopped.

    `data`: a file (JSONL, CSV, TSV, Parquet, text with a text a line), a dataset of `mixlens data`, a hub id, or texts, (text,
    pair) tuples, Examples or mappings. A field with ids (`ids_field`, by default `input_ids`) is read as it is. `target`: as
    for `attribute`; "gold" takes each row's own target (and foil) or label. `maps`: keep the maps too, as "float32" (True) or
    "float16". `trust`: delete each method's three first words, then ten random sets of three words, and note whether the
    prediction turns (a pass for each). `generate`: let a causal model write so many tokens after each row, and explain each of
    them (`corpus.generations` reads them back). `chat`: rows are conversations: their field `messages`, a list of mappings with
    role and content, or their text as one message; the model's chat template writes them out. `truncate`: cut a text that is
    longer than the model reads (the column `truncated` has the tokens it had). `strict`: stop at the first row
    that cannot be explained, instead of noting it in errors.jsonl. `resume`: refuse to begin anew. Memory does not grow with
    the corpus. `ray`: "auto" or the address of a Ray cluster, whose `workers` (by default one for each GPU, else CPU) do the
    work; `model` is then a name.
    """
    optional("pyarrow.parquet", "pyarrow", "data", what="corpus runs")
    plan = plan_of(methods, target, foil, score, query, maps, batch_tokens, columns, trust, generate, chat, truncate)
    names = {"split": split, "text_field": text_field, "pair_field": pair_field, "ids_field": ids_field}
    _refuse_shards(shard_rows)
    _refuse_names(names)
    _refuse_beside_chat(chat, {"pair_field": pair_field, "ids_field": ids_field})
    _refuse_workers(ray, workers)
    folder = CorpusFolder(Path(out), resume=resume)
    _refuse_resume(folder, resume)
    fields = Fields(text_field, pair_field, ids_field, plan.columns, chat=chat)
    with contextlib.ExitStack() as open_:
        source = open_.enter_context(contextlib.closing(corpus(data, fields=fields, split=split, limit=limit)))
        worker = Worker(_model_here(model, load_options, on_ray=ray is not None), replace(plan, kinds=source.kinds))
        worker.refuse()
        identity = _without_idle(identity_of(worker, source, {"limit": limit, **names, "shard_rows": shard_rows}))
        pool = None
        if ray is not None:
            pool = open_.enter_context(contextlib.closing(Pool(ray, model, load_options, worker.plan, workers)))
            identity |= places_of(pool)
        with in_folder(folder.place):
            identity = folder.as_begun(identity)
            folder.check(identity)
            with folder.held(identity):
                return _CorpusRun(folder, worker, source, identity, pool).run(shard_rows, strict, progress)


def _without_idle(identity: dict[str, Any]) -> dict[str, Any]:
    """The identity of a run that cuts nothing has no word about it, as before there was such an option."""
    if not identity["options"].get("truncate"):
        identity["options"].pop("truncate", None)
    return identity


def _refuse_shards(rows: Any) -> None:
    if not is_count(rows):
        raise InputError(f"shard_rows= must be at least 1, not {rows!r}.")
    if rows > MOST_ROWS:
        raise InputError(f"shard_rows= must be at most {MOST_ROWS:,}, not {rows}: a shard is held in memory.")


def _refuse_names(names: Mapping[str, Any]) -> None:
    for name, value in names.items():
        if not _is_name(value):
            raise InputError(f"{name} is a name, not {value!r:.80}.")


def _refuse_beside_chat(chat: bool, names: Mapping[str, Any]) -> None:
    given = [f"{name}=" for name, value in names.items() if value is not None]
    if chat and given:
        raise InputError(
            f"a conversation has neither a second text nor ids: leave {' and '.join(given)} out, or chat=."
        )


def _is_name(value: Any) -> bool:
    """Whether this is a text that a field or a split can be called, or None."""
    return value is None or (isinstance(value, str) and is_text(value))


def _refuse_workers(ray: str | None, workers: Any) -> None:
    if ray is None and workers is not None:
        raise InputError("workers= are those of a Ray cluster: give ray= too.")


def _refuse_resume(folder: CorpusFolder, resume: bool) -> None:
    if resume and not is_file(folder.place / "manifest.json"):
        raise InputError(f"{str(folder.place)!r} holds no run to resume. Leave resume= out to begin one.")


def _model_here(model: str | os.PathLike[str] | Model, options: dict[str, Any], *, on_ray: bool) -> Model:
    """The model of this process. With Ray the workers have models of their own, and this one is not run."""
    if not isinstance(model, Model):
        return load(model, **(without_gpu(options) if on_ray else options))
    if on_ray:
        raise InputError("every Ray worker loads the model itself: give its name or its folder, not a loaded one.")
    return model


# --- the long work ------------------------------------------------------------------------------------------------------


class _CorpusRun:
    """One call of `run` on a folder that it holds. `done`: the finished shards, by number; `aside`: files moved aside."""

    def __init__(
        self, folder: CorpusFolder, worker: Worker, source: Corpus, identity: dict[str, Any], pool: Pool | None
    ):
        self.folder, self.worker, self.source, self.identity, self.pool = folder, worker, source, identity, pool
        self.key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        facts = {"schema": SCHEMA, "identity_schema": IDENTITY, "identity": identity, "run": self.key}
        self.facts = {**facts, **provenance_of(worker, source)}
        self.done: dict[int, Shard] = {}
        self.aside: list[str] = []

    def run(self, size: int, strict: bool, progress: bool | None) -> Run:
        started = time.perf_counter()
        self._begin()
        worked = self._work_or_withdraw(size, strict, progress)
        self.source.unchanged()
        self.folder.still_held()
        self.folder.write_errors(self.done)
        shards = [asdict(self.done[number]) for number in sorted(self.done)]
        rows, errors = _total(shards, "rows"), _total(shards, "errors")
        seconds = time.perf_counter() - started
        self._write_manifest({"finished": True, "rows": rows, "errors": errors, "shards": shards})
        if errors > 1 and not rows:
            _refuse_all(self.folder, self.done, errors)
        return Run(self.folder.place, rows, errors, worked, seconds, tuple(self.aside))

    def _begin(self) -> None:
        """Find the shards that are finished already, and move all other files aside."""
        folder = self.folder
        folder.take(self.identity)
        listed, damaged = folder.listed()
        if damaged:
            message = "the list of shards in manifest.json is damaged: each shard is judged by its own checksum."
            warnings.warn(message, stacklevel=5)
        before = folder.manifest["shards"] if listed else []
        folder.begin(_json({**self.facts, "finished": False, "shards": before}), maps=self.worker.plan.maps is not None)
        self.done, self.aside = folder.done(self.key, listed)
        self._shorten_list(before)
        _warn_aside(self.aside, stacklevel=5)
        folder.write_errors(self.done)

    def _shorten_list(self, before: Sequence[Mapping[str, Any]]) -> None:
        """Take shards that must be computed again off the manifest's list: each will be another file than the one listed."""
        still = [shard for shard in before if shard["number"] in self.done]
        if len(still) < len(before):
            self._write_manifest({"finished": False, "shards": still})

    def _write_manifest(self, facts: Mapping[str, Any]) -> None:
        write(self.folder.place / "manifest.json", _json({**self.facts, **facts}))

    def _work_or_withdraw(self, size: int, strict: bool, progress: bool | None) -> int:
        """`_work`; a run that is refused before its first shard leaves nothing that could be read as a run."""
        try:
            return self._work(size, strict, progress)
        except MixlensError:
            if not self.done and not self.aside:
                self.folder.withdraw()
            raise

    def _work(self, size: int, strict: bool, progress: bool | None) -> int:
        """Compute the shards that are missing; the number of rows in them."""
        worked = 0
        present = sum(shard.rows + shard.errors for shard in self.done.values())
        hidden = None if progress is None else not progress
        with tqdm(
            total=self.source.total, initial=present, unit="row", desc="run", disable=hidden, smoothing=0.1
        ) as bar:
            for files in self._shards(_with_notices(self.worker, self._missing(size)), bar.update):
                _refuse_bad(files, strict, first=not self.done)
                self.done[files.number] = self.folder.add(files)
                self.folder.add_errors(files.bad)
                worked += files.rows + len(files.bad)
        return worked

    def _shards(self, missing: Iterable[Window], tick: Any) -> Iterator[ShardFiles]:
        """The files of each missing shard, computed here or by the workers of the pool."""
        if self.pool is not None:
            return self.pool.shards(missing, self.key, self._expected(), tick)
        return (self.worker.window(number, rows, self.key, tick) for number, rows in missing)

    def _expected(self) -> dict[str, Any]:
        """What the model of every worker must have in common with the identity. Quantised weights may be packed in another
        way on a GPU: of these only the places are compared."""
        names = ["device", "device_map", "kernels", "quantization"]
        names += [] if "quantization" in self.identity else ["model"]
        return {name: self.identity[name] for name in names if name in self.identity}

    def _missing(self, size: int) -> Iterator[Window]:
        """The windows that have no shard of the same rows."""
        number, before = -1, set(self.done)
        for number, rows in windows(_guarded(self.source.rows()), size):
            if number not in before or self._drop_changed(number, rows):
                yield number, rows
        self._drop_beyond(number, before)

    def _drop_beyond(self, last: int, before: set[int]) -> None:
        """Drop the shards after the last window of the data."""
        for number in sorted(number for number in before if number > last):
            self._drop(number, f"{self.done[number].file} was made of rows that are not there any more.")

    def _drop_changed(self, number: int, rows: Sequence[InputRow | RowError]) -> bool:
        """Drop the shard of this number if it was made of other rows; whether it was."""
        changed = self.done[number].input != fingerprint(rows)
        if changed:
            self._drop(number, f"rows from {place_of(rows[0])} on differ from those that were explained before.")
        return changed

    def _drop(self, number: int, reason: str) -> None:
        """Move a shard of other rows aside, to be computed again. Where the data is no file that is known to be the same, the
        data may have changed, and the run is refused."""
        if self.source.source is None:
            raise InputError(f"the data is not what it was: {reason}")
        gone: list[str] = []
        self.folder.drop(self.done.pop(number), gone)
        self.aside += gone
        _warn_aside(gone, stacklevel=4)


def _total(shards: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(shard[name] for shard in shards)


def _warn_aside(aside: Sequence[str], *, stacklevel: int) -> None:
    if aside:
        names = ", ".join(aside[:5]) + (" ..." if len(aside) > 5 else "")
        message = f"damaged, or not of this run: {names}. Moved aside; what is missing is done again."
        warnings.warn(message, stacklevel=stacklevel)


def _refuse_all(folder: CorpusFolder, done: dict[int, Shard], errors: int) -> None:
    """A run without a single explained row is an error, whatever the reasons were."""
    kinds = Counter(kind(str(row["reason"])) for row in folder.bad_rows(done))
    (most, count), *_ = kinds.most_common(1)
    first = next(row for row in folder.bad_rows(done) if kind(str(row["reason"])) == most)
    raise MixlensError(
        f"none of the {errors:,} rows could be explained; {count:,} of them because: {ended(str(first['reason']))} "
        f"Each row's reason is in {str(folder.errors)!r}."
    )


def _refuse_bad(files: ShardFiles, strict: bool, *, first: bool) -> None:
    """Refuse any bad row where `strict`, and a `first` shard without one good row, all of them bad for one kind of reason."""
    if files.bad and strict:
        raise InputError(f"row {files.bad[0].row}: {files.bad[0].reason} (strict: nothing is left out)")
    if first and _all_alike(files):
        raise MixlensError(f"none of the first {len(files.bad)} rows can be explained: {ended(files.bad[0].reason)}")


def _all_alike(files: ShardFiles) -> bool:
    """Whether a shard has several rows, all of them bad for one kind of reason."""
    return not files.rows and len(files.bad) > 1 and len({kind(row.reason) for row in files.bad}) == 1


def _json(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode()


# --- the rows -----------------------------------------------------------------------------------------------------------


def _guarded(rows: Rows) -> Rows:
    """The rows. An error of the system while they are read names the data, not the folder that is written to."""
    while (row := _next_row(rows)) is not None:
        yield row


def _next_row(rows: Rows) -> InputRow | RowError | None:
    try:
        return next(rows, None)
    except MixlensError:
        raise
    except OSError as error:
        raise InputError(f"the data cannot be read: {error.strerror or error}. The same command goes on.") from error


def _with_notices(worker: Worker, missing: Iterator[Window]) -> Iterator[Window]:
    """The same windows. What a reader must know of the numbers of the first rows is a warning before the work."""
    for number, rows in islice(missing, 1):
        for notice in _notices(worker, rows):
            warnings.warn(notice, stacklevel=4)
        yield number, rows
    yield from missing


def _notices(worker: Worker, rows: Sequence[InputRow | RowError]) -> list[str]:
    """What a reader must know of these rows' numbers. Rows that cannot be read are reported as errors later."""
    texts = []
    for row in [row for row in rows if not isinstance(row, RowError)][:NOTICED]:
        with contextlib.suppress(MixlensError):
            texts.append(worker.encode(worker.shorter(row)))
    targets = any(request.class_specific for request in worker.requests.values())
    return notices_of_corpus(worker.model, texts, query=worker.plan.query, targets=targets)
