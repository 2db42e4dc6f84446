"""`run`: a corpus through a model, shard by shard, into a folder that can be killed and continued."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

from ...base.doors import door
from ...base.errors import InputError, MixlensError, ended, is_text
from ...base.files import IDENTITY, in_folder, write
from ...base.optional import optional
from ...base.paths import is_file
from ...data import RowError
from ...fast.loops import used
from ...model.loading import load
from ...model.model import Model
from ...scoring.notices import notices_of_corpus
from .cluster import Pool
from .plan import is_count, plan_of
from .reading import kind
from .rows import Fields, InputRow, Window, fingerprint, place_of, windows
from .run_identity import identity_of, provenance_of, without_gpu
from .shards import SCHEMA, CorpusFolder, Shard
from .sources import Corpus, corpus
from .worker import Worker

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
        from ...show.report import report

        return report(self, path, **options)


@door
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

    `data`: a file (JSONL, CSV, TSV, Parquet, text with a text a line), a dataset of `mixlens data`, a hub id, or texts,
    (text, pair) tuples, Examples or mappings. A field with ids (`ids_field`, by default `input_ids`) is read as it is.
    `target`: as for `attribute`; "gold" takes each row's own target (and foil) or label. `maps`: keep the maps too, as
    "float32" (True) or "float16". `trust`: delete each method's three first words, then ten random sets of three words,
    and note whether the prediction turns (a pass for each). `generate`: let a causal model write so many tokens after
    each row, and explain each of them (`corpus.generations` reads them back). `chat`: rows are conversations: their
    field `messages`, a list of mappings with role and content, or their text as one message; the model's chat template
    writes them out. `truncate`: cut a text that is longer than the model reads (the column `truncated` has the tokens
    it had). `strict`: stop at the first row that cannot be explained, instead of noting it in errors.jsonl. `resume`:
    refuse to begin anew. Memory does not grow with the corpus. `ray`: "auto" or the address of a Ray cluster, whose
    `workers` (by default one for each GPU, else CPU) do the work; `model` is then a name.
    """
    optional("pyarrow.parquet", "pyarrow", "data", what="corpus runs")
    plan = plan_of(methods, target, foil, score, query, maps, batch_tokens, columns, trust, generate, chat, truncate)
    names = {"split": split, "text_field": text_field, "pair_field": pair_field, "ids_field": ids_field}
    folder = CorpusFolder(Path(out), resume=resume)
    if not is_count(shard_rows):
        raise InputError(f"shard_rows= must be at least 1, not {shard_rows!r}.")
    if shard_rows > MOST_ROWS:
        raise InputError(f"shard_rows= must be at most {MOST_ROWS:,}, not {shard_rows}: a shard is held in memory.")
    for name, value in names.items():
        if value is not None and not (isinstance(value, str) and is_text(value)):
            raise InputError(f"{name} is a name, not {value!r:.80}.")
    beside = [f"{name}=" for name in ("pair_field", "ids_field") if names[name] is not None]
    if chat and beside:
        raise InputError(
            f"a conversation has neither a second text nor ids: leave {' and '.join(beside)} out, or chat=."
        )
    if ray is None and workers is not None:
        raise InputError("workers= are those of a Ray cluster: give ray= too.")
    if resume and not is_file(folder.place / "manifest.json"):
        raise InputError(f"{str(folder.place)!r} holds no run to resume. Leave resume= out to begin one.")
    fields = Fields(text_field, pair_field, ids_field, plan.columns, chat=chat)
    with contextlib.ExitStack() as open_:
        source = open_.enter_context(contextlib.closing(corpus(data, fields=fields, split=split, limit=limit)))
        if ray is not None and isinstance(model, Model):
            raise InputError("every Ray worker loads the model itself: give its name or its folder, not a loaded one.")
        here = without_gpu(load_options) if ray is not None else load_options  # with Ray this one is not run
        lens = model if isinstance(model, Model) else load(model, **here)
        worker = Worker(lens, replace(plan, kinds=source.kinds))
        worker.refuse()
        identity = identity_of(worker, source, {"limit": limit, **names, "shard_rows": shard_rows})
        pool = None
        if ray is not None:
            pool = open_.enter_context(contextlib.closing(Pool(ray, model, load_options, worker.plan, workers)))
            kernels = "triton" if pool.device == "cuda" else used(torch.device("cpu"))
            identity |= {"device": pool.device, "kernels": kernels}
        with in_folder(folder.place):
            identity = folder.as_begun(identity)
            folder.check(identity)
            with folder.held(identity):
                return _CorpusRun(folder, worker, source, identity, pool).run(shard_rows, strict, progress)


# --- the long work ----------------------------------------------------------------------------------------------------


class _CorpusRun:
    """One call of `run` on a folder that it holds. `done`: the finished shards, by number; `aside`: files moved
    aside."""

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
        folder = self.folder
        self._begin()
        try:
            worked = self._work(size, strict, progress)
        except MixlensError:  # a run that is refused before its first shard leaves nothing that could be read as a run
            if not self.done and not self.aside:
                folder.withdraw()
            raise
        self.source.unchanged()
        folder.still_held()
        folder.write_errors(self.done)
        shards = [asdict(self.done[number]) for number in sorted(self.done)]
        rows, errors = sum(shard["rows"] for shard in shards), sum(shard["errors"] for shard in shards)
        seconds = time.perf_counter() - started
        self._write_manifest({"finished": True, "rows": rows, "errors": errors, "shards": shards})
        if errors > 1 and not rows:  # an error, whatever the reasons were
            kinds = Counter(kind(str(row["reason"])) for row in folder.bad_rows(self.done))
            ((most, count),) = kinds.most_common(1)
            first = next(row for row in folder.bad_rows(self.done) if kind(str(row["reason"])) == most)
            raise MixlensError(
                f"none of the {errors:,} rows could be explained; {count:,} of them because: "
                f"{ended(str(first['reason']))} "
                f"Each row's reason is in {str(folder.errors)!r}."
            )
        return Run(folder.place, rows, errors, worked, seconds, tuple(self.aside))

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
        still = [shard for shard in before if shard["number"] in self.done]
        if len(still) < len(before):  # those that are computed again will be other files than the ones listed
            self._write_manifest({"finished": False, "shards": still})
        _warn_aside(self.aside, stacklevel=5)
        folder.write_errors(self.done)

    def _write_manifest(self, facts: Mapping[str, Any]) -> None:
        write(self.folder.place / "manifest.json", _json({**self.facts, **facts}))

    def _work(self, size: int, strict: bool, progress: bool | None) -> int:
        """Compute the shards that are missing, here or by the workers of the pool; the number of rows in them."""
        worked = 0
        present = sum(shard.rows + shard.errors for shard in self.done.values())
        hidden = None if progress is None else not progress
        with tqdm(
            total=self.source.total, initial=present, unit="row", desc="run", disable=hidden, smoothing=0.1
        ) as bar:
            missing = self._missing(size)
            if self.pool is not None:
                # Quantised weights may be packed in another way on a GPU: of these only the places are compared.
                names = ["device", "device_map", "kernels", "quantization"]
                names += [] if "quantization" in self.identity else ["model"]
                expected = {name: self.identity[name] for name in names if name in self.identity}
                made = self.pool.shards(missing, self.key, expected, bar.update)
            else:
                made = (self.worker.window(number, rows, self.key, bar.update) for number, rows in missing)
            for files in made:
                if files.bad and strict:
                    raise InputError(f"row {files.bad[0].row}: {files.bad[0].reason} (strict: nothing is left out)")
                alike = len({kind(row.reason) for row in files.bad}) == 1
                if not self.done and not files.rows and len(files.bad) > 1 and alike:
                    reason = ended(files.bad[0].reason)
                    raise MixlensError(f"none of the first {len(files.bad)} rows can be explained: {reason}")
                self.done[files.number] = self.folder.add(files)
                self.folder.add_errors(files.bad)
                worked += files.rows + len(files.bad)
        return worked

    def _missing(self, size: int) -> Iterator[Window]:
        """The windows that have no shard of the same rows. What a reader must know of the numbers of the first rows is
        a warning before the work."""
        number, before, noticed = -1, set(self.done), False
        for number, rows in windows(self.source.rows(), size):
            if number in before:
                if self.done[number].input == fingerprint(rows):
                    continue
                self._drop(number, f"rows from {place_of(rows[0])} on differ from those that were explained before.")
            for notice in () if noticed else _notices(self.worker, rows):
                warnings.warn(notice, stacklevel=4)
            noticed = True
            yield number, rows
        for beyond in sorted(one for one in before if one > number):
            self._drop(beyond, f"{self.done[beyond].file} was made of rows that are not there any more.")

    def _drop(self, number: int, reason: str) -> None:
        """Move a shard of other rows aside, to be computed again. Where the data is no file that is known to be the
        same, the data may have changed, and the run is refused."""
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


def _json(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode()


def _notices(worker: Worker, rows: Sequence[InputRow | RowError]) -> list[str]:
    """What a reader must know of these rows' numbers. Rows that cannot be read are reported as errors later."""
    texts = []
    for row in [row for row in rows if not isinstance(row, RowError)][:NOTICED]:
        with contextlib.suppress(MixlensError):
            texts.append(worker.encode(worker.shorter(row)))
    targets = any(request.class_specific for request in worker.requests.values())
    return notices_of_corpus(worker.model, texts, query=worker.plan.query, targets=targets)
