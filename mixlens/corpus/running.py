"""`run`: a corpus through a model, shard by shard, into a folder that can be killed and continued."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import InputError, MixlensError, nearest
from ..fast.loops import used
from ..files import IDENTITY, in_folder, optional, write
from ..limits import methods_within
from ..maps import versions
from ..model.loading import load
from ..model.model import Model
from ..model.words import is_text
from ..notices import notices_of_corpus
from ..provenance import model_fingerprint, public_name, whereabouts
from ..targets import SCORES
from .ray_pool import Pool
from .rows import LIMITS, Corpus, Fields, Given, RowError, corpus, fingerprint, windows
from .shards import SCHEMA, CorpusFolder, Shard
from .summary import kind
from .worker import DTYPES, OWN, RATIO, Made, Plan, Worker

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
        from ..report import report

        return report(self, path, **options)


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
    plan = _plan(methods, target, foil, score, query, maps, batch_tokens, columns)
    if not isinstance(shard_rows, int) or isinstance(shard_rows, bool) or shard_rows < 1:
        raise InputError(f"shard_rows must be at least 1, not {shard_rows!r}.")
    if shard_rows > MOST_ROWS:
        raise InputError(f"shard_rows must be at most {MOST_ROWS:,}, not {shard_rows}: a shard is held in memory.")
    for name, value in {"text_field": text_field, "pair_field": pair_field, "ids_field": ids_field, "split": split}.items():
        if value is not None and not (isinstance(value, str) and is_text(value)):
            raise InputError(f"{name} is a name, not {value!r:.80}.")
    folder = CorpusFolder(Path(out))
    if resume and not (folder.place / "manifest.json").is_file():
        raise InputError(f"{str(folder.place)!r} holds no run to resume. Leave resume out to begin one.")
    found = corpus(data, fields=Fields(text_field, pair_field, ids_field, plan.columns), split=split, limit=limit)
    pool = None
    try:
        plan = replace(plan, kinds=found.kinds)
        if ray is not None and isinstance(model, Model):
            raise InputError("every Ray worker loads the model itself: give its name or its folder, not a loaded one.")
        here = load_options if ray is None else _without_gpu(load_options)
        lens = model if isinstance(model, Model) else load(model, **here)
        worker = Worker(lens, plan)
        worker.refuse()
        asked_for = {"limit": limit, "split": split, "text_field": text_field, "pair_field": pair_field, "ids_field": ids_field}
        own = _identity(worker, found, {**asked_for, "shard_rows": shard_rows})
        if ray is not None:
            pool = Pool(ray, model, load_options, plan, workers)
            own["device"] = pool.device
            own["kernels"] = "triton" if pool.device == "cuda" else used(torch.device("cpu"))
        with in_folder(folder.place):
            folder.check(own)
            with folder.held(own):
                return _run(folder, worker, found, own, shard_rows, strict, progress, pool)
    finally:
        found.close()
        if pool is not None:
            pool.close()


def _without_gpu(options: dict[str, Any]) -> dict[str, Any]:
    """Load options for the process that only writes: GPUs are for the workers, and a model that is spread stays on disk."""
    others = {key: value for key, value in options.items() if key not in ("device", "device_map", "max_memory", "offload_folder")}
    if options.get("device_map") is None or options.get("quantization") is not None:
        return {**others, "device": "cpu"}
    return {**others, "device_map": {"": "disk"}, "offload_folder": options.get("offload_folder")}


def _plan(
    methods: Any, target: Any, foil: Any, score: Any, query: Any, maps: Any, batch_tokens: Any, columns: Sequence[str]
) -> Plan:
    if not isinstance(methods, str | Sequence) or not isinstance(columns, str | Sequence):
        raise InputError("methods and columns are lists of names.")
    named = [one.strip() for one in methods.split(",")] if isinstance(methods, str) else list(methods)
    named = [one for one in named if one]
    methods_within(named, LIMITS.methods)
    if not all(isinstance(one, str) for one in named):
        raise InputError("methods are names, as `mixlens methods` lists them.")
    if len(set(named)) != len(named):
        raise InputError(f"a method is named twice: {', '.join(sorted({m for m in named if named.count(m) > 1}))}.")
    kept = "float32" if maps is True else maps or None
    if kept is not None and kept not in DTYPES:
        raise InputError(f"maps are kept as {' or '.join(DTYPES)}, not {maps!r}.")
    if batch_tokens is not None and (not isinstance(batch_tokens, int) or isinstance(batch_tokens, bool) or batch_tokens < 1):
        raise InputError(f"batch_tokens must be at least 1, not {batch_tokens!r}.")
    options = {"score": score, "foil": foil, "query": query, "target": target}
    for name, value in options.items():
        pair = value if name == "target" and isinstance(value, tuple) and len(value) == 2 else (value,)
        kinds = str | None if name == "score" else str | int | None
        if not all(isinstance(one, kinds) and not isinstance(one, bool) for one in pair):
            raise InputError(f"{name} is a word{'' if name == 'score' else ' or a number'}, not {value!r:.80}.")
    if score is not None and score not in SCORES:
        raise InputError(f"unknown score {score!r}. {nearest(score, SCORES)}")
    for text in (*named, *(one for value in options.values() for one in (value if isinstance(value, tuple) else (value,)))):
        if isinstance(text, str) and not is_text(text):
            raise InputError(f"{text!r} holds half a character (a lone surrogate), which is no text.")
    carried = tuple([columns] if isinstance(columns, str) else columns)
    for one in carried:
        if not isinstance(one, str) or one in OWN or one in named or one.startswith(RATIO) or carried.count(one) > 1:
            raise InputError(f"the column {one!r} is named twice, or is one that every run writes ({', '.join(OWN)}).")
        if not one.isprintable() or not is_text(one):
            raise InputError(f"{one!r} is no name of a column.")
    return Plan(tuple(named), target, foil, score, query, kept, batch_tokens, carried)


def _identity(worker: Worker, found: Corpus, asked_for: dict[str, Any]) -> dict[str, Any]:
    """What makes a run this run: a folder with another identity is not written to."""
    plan = {key: value for key, value in asdict(worker.plan).items() if key not in ("methods", "kinds")}
    plan |= {"kinds": dict(worker.plan.kinds)} if worker.plan.kinds else {}
    return {
        "kind": "corpus",
        "model": model_fingerprint(worker.model),
        "data": found.fingerprint or found.name,
        "methods": list(worker.plan.methods),
        "options": {**plan, **asked_for},
        "dtype": str(worker.model.dtype).removeprefix("torch."),
        **whereabouts(worker.model),
        "versions": {key: value for key, value in versions().items() if key != "python"},
    }


def _provenance(worker: Worker, found: Corpus) -> dict[str, Any]:
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
        "data": public_name(found.name),
        "versions": versions(),
        "device": model.placement,
        "quantization": model.quantization,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "columns": {field.name: str(field.type) for field in worker.schema()},
    }


def _classes(model: Model) -> list[str] | None:
    """What a classifier's outputs are called, in its own order; what labels are compared with."""
    config = model.hf_model.config
    return [str(config.id2label.get(i, i)) for i in range(config.num_labels)] if model.task == "classification" else None


def _run(
    folder: CorpusFolder,
    worker: Worker,
    found: Corpus,
    own: Any,
    size: int,
    strict: bool,
    progress: bool | None,
    pool: Pool | None,
) -> Run:
    from tqdm import tqdm

    started = time.perf_counter()
    key = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16]
    told = {"schema": SCHEMA, "identity_schema": IDENTITY, "identity": own, "run": key, **_provenance(worker, found)}
    listed, damaged = folder.listed()
    if damaged:
        warnings.warn("the list of shards in manifest.json is damaged: each shard is judged by its own checksum.", stacklevel=3)
    before = [] if damaged or not listed else folder.manifest["shards"]
    folder.begin(_json({**told, "finished": False, "shards": before}), maps=worker.plan.maps is not None)
    done, aside = folder.done(key, listed)
    kept = [one for one in before if one["number"] in done]
    if len(kept) < len(before):  # what is done again is another file: the list must not hold it to the old one
        write(folder.place / "manifest.json", _json({**told, "finished": False, "shards": kept}))
    _say_aside(aside)
    folder.write_errors(done)
    worked = 0
    there = sum(shard.rows + shard.errors for shard in done.values())
    shown = None if progress is None else not progress
    with tqdm(total=found.total, initial=there, unit="row", desc="run", disable=shown, smoothing=0.1) as bar:
        every = _missing(_read(found.rows()), size, done, folder, aside if found.source is not None else None)
        missing = _noticed(worker, every)
        if pool is None:
            making = _made(worker, missing, key, bar.update)
        else:
            # Quantised weights may be packed in another way on a GPU: there the places are compared alone.
            same = ["device", "device_map", "kernels", "quantization", *([] if "quantization" in own else ["model"])]
            making = pool.made(missing, key, {name: own[name] for name in same if name in own}, bar.update)
        for made in making:
            _refuse(made, strict, first=not done)
            done[made.number] = folder.add(made)
            folder.add_errors(made.bad)
            worked += made.rows + len(made.bad)
    found.unchanged()
    folder.still_held()
    folder.write_errors(done)
    ordered = [asdict(done[number]) for number in sorted(done)]
    rows, errors = (sum(shard[what] for shard in ordered) for what in ("rows", "errors"))
    seconds = time.perf_counter() - started
    write(folder.place / "manifest.json", _json({**told, "finished": True, "rows": rows, "errors": errors, "shards": ordered}))
    if errors > 1 and not rows:
        _say_none(folder, done, errors)
    return Run(folder.place, rows, errors, worked, seconds, tuple(aside))


def _say_aside(aside: Sequence[str]) -> None:
    if aside:
        names = ", ".join(aside[:5]) + (" ..." if len(aside) > 5 else "")
        warnings.warn(f"damaged, or not of this run: {names}. Moved aside; what is missing is done again.", stacklevel=4)


def _say_none(folder: CorpusFolder, done: dict[int, Shard], errors: int) -> None:
    """A run of which nothing came is an error, whatever the reasons were."""
    kinds = Counter(kind(str(one["reason"])) for one in folder.bad_rows(done))
    (most, count), *_ = kinds.most_common(1)
    first = next(one for one in folder.bad_rows(done) if kind(str(one["reason"])) == most)
    raise MixlensError(
        f"none of the {errors:,} rows could be explained; {count:,} of them because: {first['reason']} "
        f"Each row's reason is in {str(folder.errors)!r}."
    )


def _read(rows: Iterator[Given | RowError]) -> Iterator[Given | RowError]:
    """The rows; what the system refuses while they are read is said of the data, not of the folder that is written to."""
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


def _missing(
    rows: Iterator[Given | RowError], size: int, done: dict[int, Shard], folder: CorpusFolder, aside: list[str] | None
) -> Iterator[Window]:
    """The windows that no shard was made of yet. Those that were must hold the same rows as then. Where the data is a file that
    is known to be the same (`aside` is given), a shard of other rows is at fault: it goes aside, and is done again."""
    number, before = -1, set(done)
    for number, some in windows(rows, size):
        if number not in before:
            yield number, some
        elif done[number].input != fingerprint(some):
            if aside is None:
                first = some[0].number if isinstance(some[0], RowError) else some[0].row
                raise InputError(
                    f"the data is not what it was: rows from {first} on differ from those that were explained before."
                )
            _drop(folder, done, number, aside)
            yield number, some
    for at in sorted(at for at in before if at > number):
        if aside is None:
            raise InputError(f"the data is not what it was: {done[at].file} was made of rows that are not there any more.")
        _drop(folder, done, at, aside)


def _drop(folder: CorpusFolder, done: dict[int, Shard], number: int, aside: list[str]) -> None:
    gone: list[str] = []
    folder.drop(done.pop(number), gone)
    aside += gone
    _say_aside(gone)


def _noticed(worker: Worker, windows: Iterator[Window]) -> Iterator[Window]:
    """The same windows; what the first rows say little about is told before the work."""
    for place, (number, some) in enumerate(windows):
        if place == 0:
            for told in notices_of_rows(worker, [one for one in some if not isinstance(one, RowError)][:NOTICED]):
                warnings.warn(told, stacklevel=4)
        yield number, some


def notices_of_rows(worker: Worker, rows: Sequence[Given]) -> list[str]:
    """What a reader must know of these rows' numbers; rows that cannot be read are told of by their errors."""
    texts = []
    for one in rows:
        with suppress(MixlensError):
            texts.append(worker._encode(one))
    targets = any(used.class_specific for used in worker.asked.values())
    return notices_of_corpus(worker.model, texts, query=worker.plan.query, targets=targets)


def _made(worker: Worker, wanted: Iterable[Window], key: str, tick: Any) -> Iterator[Made]:
    for number, some in wanted:
        yield worker.window(number, some, key, tick)


def _refuse(made: Made, strict: bool, *, first: bool) -> None:
    """With `strict` any bad row; else a first shard without one good row, all of them bad for one kind of reason."""
    if made.bad and strict:
        raise InputError(f"row {made.bad[0].row}: {made.bad[0].reason} (strict: nothing is left out)")
    if first and not made.rows and len(made.bad) > 1 and len({kind(one.reason) for one in made.bad}) == 1:
        raise MixlensError(f"none of the first {len(made.bad)} rows can be explained: {made.bad[0].reason}")


def _json(told: dict[str, Any]) -> bytes:
    return (json.dumps(told, ensure_ascii=False, indent=1) + "\n").encode()
