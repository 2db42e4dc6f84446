"""`run`: an experiment by name, on a model and data, into a folder that can be killed and continued.

Records go into shards; tables and a figure are made from the records.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from ...base.files import IDENTITY, in_folder, write
from ...base.optional import optional
from ...scoring.maps import versions
from ...scoring.provenance import data_fingerprint, model_fingerprint, public_name, whereabouts
from ...types import Example, Record
from . import figure_style
from .claims import beside, judged_claims
from .experiment import Experiment, Outcome, Setup
from .folder import SCHEMA, Folder, Units, through
from .prepare import prepared
from .tables import Table

FLUSH_SECONDS = 5.0  # so much work is lost, at most, when a run is killed
Unit = tuple[float, list[Record]]


def run(
    name: str,
    *,
    model: Any = None,
    data: str | os.PathLike[str] | Iterable[Example] | None = None,
    n: int | None = None,
    first: bool = False,
    out: str | os.PathLike[str] | None = None,
    methods: Sequence[str] | None = None,
    seed: int = 0,
    labels: Mapping[str, int] | None = None,
    leave_out: bool = False,
    split: str | None = None,
    loading: Mapping[str, Any] | None = None,
    truncate: bool = False,
    progress: bool = True,
    **options: Any,
) -> Outcome:
    """Run an experiment, or continue it: the same call with the same `out` goes on where it was stopped.

    `model`: a name, a Model, or a list of them; names are loaded with `loading` (device, dtype and the other arguments
    of `mixlens.load`). `data`: `NAME`, `FILE`, `NAME=FILE` or Examples; `split` is that of a dataset. `n` examples are
    drawn by `seed`, or with `first` they are the first n. An example that does not fit (too long, a target of two
    tokens, no cue) is refused, or with `leave_out` left out and counted; with `truncate` a long text is cut to what the
    model reads, and counted. Without `out` nothing is written. The tables are the same, byte for byte, whether a run
    was interrupted or not.
    """
    refuse_unwritable(out)
    setup = prepared(
        name,
        model=model,
        data=data,
        n=n,
        methods=methods,
        seed=seed,
        labels=labels,
        leave_out=leave_out,
        options=options,
        split=split,
        first=first,
        loading=loading,
        truncate=truncate,
    )
    source = setup.experiment.data if data is None else data
    return run_setup(setup, out=out, source=source, labels=labels, progress=progress)


def refuse_unwritable(out: str | os.PathLike[str] | None) -> None:
    """Refuse a folder where the packages that write its tables and its figure are missing."""
    if out is not None:
        optional("pyarrow.parquet", "pyarrow", "data")
        optional("matplotlib.figure", "matplotlib", "plot")


def run_setup(
    setup: Setup,
    *,
    out: str | os.PathLike[str] | None,
    source: Any,
    labels: Mapping[str, int] | None = None,
    progress: bool = True,
) -> Outcome:
    """`run` of what is prepared. `source` is the data as it was named, for the manifest."""
    if out is None:
        return _outcome(setup, dict(_measured(setup, {}, progress)), None)
    folder, key = Folder(Path(out)), identity(setup, labels)
    with in_folder(folder.place):
        key = folder.as_begun(key)
        folder.check(key)
        with folder.held(key):
            manifest = {"schema": SCHEMA, "identity_schema": IDENTITY, "identity": key, **provenance(setup, source)}
            count = folder.units_when_finished
            folder.begin(_json({**manifest, "finished": False}))
            units = folder.read()
            if len(units) != count:
                _record(setup, folder, units, progress)
                units = folder.read()
            outcome = _outcome(setup, units, folder.place)
            # The first table is summary.csv, each further one a file of its name.
            tables = {f"{one.name if i else 'summary'}.csv": one.csv.encode() for i, one in enumerate(outcome.tables)}
            figures = drawn(outcome) if setup.experiment.figure is not None else {}
            pictures = {f"figure.{kind}": content for kind, content in figures.items()}
            files = {**tables, "summary.md": markdown(outcome).encode(), **pictures}
            for name, content in files.items():
                folder.still_held()
                write(folder.place / name, content)
            ended = {"finished": True, "units": len(units), "seconds": outcome.seconds}
            write(folder.place / "manifest.json", _json({**manifest, **ended}))
            return outcome


# --- what a run rests on ----------------------------------------------------------------------------------------------


def identity(setup: Setup, labels: Mapping[str, int] | None) -> dict[str, Any]:
    """What makes a run this run: a folder with another identity is not written to."""
    return {
        "experiment": setup.experiment.name,
        "model": [model_fingerprint(model) for model in setup.models],
        "data": data_fingerprint(setup.examples),
        "examples": len(setup.examples),
        "methods": list(setup.methods),
        "options": dict(setup.options),
        "labels": None if labels is None else dict(labels),
        "seed": setup.seed,
        **whereabouts(setup.model),
        "versions": {key: value for key, value in versions().items() if key != "python"} | {"numpy": np.__version__},
    }


def provenance(setup: Setup, source: Any) -> dict[str, Any]:
    """What the manifest says beside the identity: names, places and versions for a reader."""
    model = setup.model
    return {
        "paper": setup.experiment.paper,
        "shows": setup.experiment.shows,
        "models": [{"name": public_name(one.name), "revision": one.revision, "task": one.task} for one in setup.models],
        "data": public_name(source) if isinstance(source, str | os.PathLike) else "examples given in Python",
        "left_out": setup.left_out,
        "truncated": setup.truncated,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": model.placement,
        "quantization": model.quantization,
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "machine": platform.machine(),
    }


# --- the long work ----------------------------------------------------------------------------------------------------


def _record(setup: Setup, folder: Folder, done: Units, progress: bool) -> None:
    """Measure what is missing; every few seconds a shard is written."""
    waiting: Units = {}
    last = time.perf_counter()
    try:
        for key, unit in _measured(setup, done, progress):
            waiting[key] = unit
            if time.perf_counter() - last > FLUSH_SECONDS:
                folder.add(waiting)
                waiting, last = {}, time.perf_counter()
    finally:  # also when an example fails, or at Ctrl-C
        if waiting:
            folder.add(waiting)


def _measured(setup: Setup, done: Units, progress: bool) -> Iterator[tuple[str, Unit]]:
    """(key, (seconds, records)) of every unit that is not done: the key of an example is its place."""
    declared, examples = setup.experiment, setup.examples
    units: Iterable[tuple[str, list[Record]]]
    if declared.whole:
        units = (
            one for one in declared.measure(replace(setup, done=frozenset(done)), list(examples)) if one[0] not in done
        )
    else:
        missing = [(str(place), example) for place, example in enumerate(examples) if str(place) not in done]
        units = ((key, declared.measure(setup, example)) for key, example in missing)
    total, begun = (None, 0) if declared.whole else (len(examples), len(done))
    with tqdm(total=total, initial=begun, desc=declared.name, disable=not progress, leave=False) as bar:
        started = time.perf_counter()
        for key, records in units:
            yield key, (time.perf_counter() - started, through(records))
            bar.update()
            started = time.perf_counter()


def _outcome(setup: Setup, units: Units, out: Path | None) -> Outcome:
    records = [record for _, of_unit in units.values() for record in of_unit]
    return Outcome(setup, records, all_tables(setup, records), out, sum(seconds for seconds, _ in units.values()))


def all_tables(setup: Setup, records: list[Record]) -> list[Table]:
    """The tables of the experiment, then the paper's numbers beside ours, then the verdicts on its claims."""
    declared = setup.experiment
    tables = declared.finish(setup, records)
    published = [one for one in declared.published if one.is_about(setup)]
    return [*tables, *beside(published, tables), *judged_claims(declared.claims, setup, records, tables)]


# --- reports ----------------------------------------------------------------------------------------------------------


def markdown(outcome: Outcome) -> str:
    """summary.md: what was asked, of which model, and the tables."""
    setup, declared = outcome.setup, outcome.setup.experiment
    models = ", ".join(f"`{Path(str(model.name)).name}`" for model in setup.models)
    left_out = f" ({setup.left_out} that do not fit the model left out)" if setup.left_out else ""
    cut = f" ({setup.truncated} cut to the length that the model reads)" if setup.truncated else ""
    sample = f"Model: {models}. {len(setup.examples)} examples{left_out}{cut}. Seed {setup.seed}."
    head = [f"## {declared.name}", "", declared.summary, "", f"*{declared.paper}: {declared.shows}.*", "", sample, ""]
    return "\n".join([*head, *(table.markdown for table in outcome.tables if table.printed), *differences(declared)])


def differences(declared: Experiment) -> list[str]:
    """What is not as in the paper, as lines of Markdown."""
    return ["### Differs from the paper", "", *(f"- {one}" for one in declared.differs), ""] if declared.differs else []


def drawn(outcome: Outcome) -> dict[str, bytes]:
    """The figure as SVG and PNG, the same bytes every time."""
    figures, matplotlib = (
        optional("matplotlib.figure", "matplotlib", "plot"),
        optional("matplotlib", "matplotlib", "plot"),
    )
    files = {}
    with matplotlib.rc_context({"svg.hashsalt": "mixlens", "svg.fonttype": "none", **figure_style.settings()}):
        figure = figures.Figure(figsize=figure_style.figure_size(), layout="constrained")
        assert outcome.setup.experiment.figure is not None
        outcome.setup.experiment.figure(outcome.setup, outcome.tables, figure)
        figure_style.tidy(figure)
        for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            content = BytesIO()
            figure.savefig(content, format=kind, metadata=metadata, dpi=150)
            files[kind] = content.getvalue()
    return files


def _json(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode()
