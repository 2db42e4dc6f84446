"""`run`: an experiment by name, on a model and data, into a folder that can be killed and continued.

Everything that can be refused is refused before the long work. Then: records in shards, tables and a figure from the records.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import platform
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..aggregate import CONVENTIONS
from ..attributions import attribute
from ..attributions import known as attributions
from ..data import DATASETS, check, for_model, load
from ..errors import InputError, MixlensError, nearest
from ..files import IDENTITY, in_folder, optional, write
from ..maps import known as maps
from ..maps import mix, versions
from ..metrics.arguments import refuse_missing
from ..model.loading import load as load_model
from ..model.model import Model
from ..provenance import model_fingerprint, public_name, whereabouts
from ..targets import token_id
from ..types import Attribution, Example, Map, Record, Trace
from .folder import SCHEMA, Folder, Units, through
from .tables import Table

FLUSH_SECONDS = 5.0  # so much work is lost, at most, when a run is killed
TAKES = ("any", "map", "attribution", "class-specific")
Measure = Callable[..., Any]


@dataclass(frozen=True)
class Experiment:
    """One evaluation of one paper.

    `measure(setup, example)` gives the records of one example, all methods. With `whole` it is `measure(setup, examples)` and
    yields (key, records), in the same order every time; it skips what is in `setup.done`. `finish(setup, records)` is pure:
    the same records, the same tables. The first of them is summary.csv. `figure(setup, tables, figure)` draws.
    """

    name: str
    paper: str
    shows: str  # which table or figure of the paper
    data: str  # by default
    model: str  # by default, or a note that says what is needed
    methods: tuple[str, ...]  # by default
    task: tuple[str, ...]  # of the model; () for any
    needs: tuple[str, ...]  # what an Example must have
    measure: Measure
    finish: Callable[[Setup, list[Record]], list[Table]]
    figure: Callable[[Setup, list[Table], Any], None] | None = None
    whole: bool = False
    takes: str = "any"  # which methods: any, map (with layers), attribution, class-specific
    options: Mapping[str, Any] = field(default_factory=dict)  # what can be changed, and the defaults
    n_models: int = 1  # at least so many
    prepare: Callable[[Setup], None] | None = None  # more to refuse before the long work
    packages: (
        tuple[str, ...] | Callable[[Mapping[str, Any]], Iterable[str]]
    ) = ()  # beyond the core's; or, given the options, which

    @property
    def summary(self) -> str:
        return (self.measure.__doc__ or "").split("\n")[0]


@dataclass(frozen=True)
class Setup:
    """What `measure`, `finish` and `figure` get."""

    experiment: Experiment
    models: tuple[Model, ...]
    examples: tuple[Example, ...]
    methods: tuple[str, ...]
    options: Mapping[str, Any]
    seed: int = 0
    left_out: int = 0  # examples that do not fit the model
    done: frozenset[str] = frozenset()  # keys of a `whole` experiment that need no measuring again

    @property
    def model(self) -> Model:
        return self.models[0]


@dataclass(frozen=True)
class Outcome:
    """What a run gives back. `out` is None where it wrote nothing."""

    setup: Setup = field(repr=False)
    records: list[Record] = field(repr=False)
    tables: list[Table]
    out: Path | None
    seconds: float  # of measuring, over all starts


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    *,
    name: str,
    paper: str,
    shows: str,
    data: str,
    model: str,
    methods: Sequence[str],
    finish: Callable[[Setup, list[Record]], list[Table]],
    figure: Callable[[Setup, list[Table], Any], None] | None = None,
    task: Sequence[str] = (),
    needs: Sequence[str] = (),
    **more: Any,
) -> Callable[[Measure], Measure]:
    """Register an experiment under its name; the function it decorates is its `measure`. See `Experiment`."""

    def register(measure: Measure) -> Measure:
        made = Experiment(
            name, paper, shows, data, model, tuple(methods), tuple(task), tuple(needs), measure, finish, figure, **more
        )
        assert made.takes in TAKES
        other = EXPERIMENTS.get(name)
        if other is not None and other.measure.__module__ != measure.__module__:
            raise MixlensError(f"two experiments are called {name!r}: in {other.measure.__module__} and {measure.__module__}.")
        EXPERIMENTS[name] = made
        return measure

    return register


@cache
def known() -> dict[str, Experiment]:
    """Every file in this folder, and every entry point of the group `mixlens.experiments`."""
    folder = importlib.import_module(__package__ or "mixlens.experiments")
    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    for point in entry_points(group="mixlens.experiments"):
        point.load()
    return EXPERIMENTS


# --- methods ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A method as written: `name`, or `name:option=value:variant=released`; a map also with `:rollout=` and a convention."""

    name: str
    variant: str | None = None
    rollout: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_map(self) -> bool:
        return self.name in maps()

    @property
    def class_specific(self) -> bool:
        return not self.is_map and attributions()[self.name].needs_target


def asked(written: str) -> Asked:
    """The method that is meant, its options checked by name."""
    name, *pairs = written.split(":")
    if name not in maps() and name not in attributions():
        raise InputError(f"unknown method {name!r}. {nearest(name, [*maps(), *attributions()])}")
    options: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise InputError(f"{written!r}: an option is written key=value, such as {name}:variant=paper.")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    variant = options.pop("variant", None)
    rollout = options.pop("rollout", None) if name in maps() else None
    if rollout is not None and rollout not in CONVENTIONS:
        raise InputError(f"unknown rollout convention {rollout!r}. {nearest(str(rollout), CONVENTIONS)}")
    (maps()[name] if name in maps() else attributions()[name]).arguments(variant, options)
    return Asked(name, variant, rollout, options)


def _options(one: Asked, trace: Trace) -> dict[str, Any]:
    """Random scores differ from text to text, unless a seed is named: the same noise everywhere would not average out."""
    if one.name == "random" and "seed" not in one.options:
        return {**one.options, "seed": zlib.crc32(" ".join(trace.tokens).encode())}
    return dict(one.options)


def map_of(trace: Trace, written: str) -> Map:
    """The map of one layer after the other (not rolled out)."""
    one = asked(written)
    made: Map = mix(trace, one.name, variant=one.variant, **_options(one, trace))
    return made


def rolled(scores: Map, written: str, query: int | str) -> Attribution:
    """A row of the rolled-out map, by the convention that is named, else by its paper's."""
    return scores.rollout(asked(written).rollout).readout(query)


def scores_of(
    trace: Trace, written: str, *, target: Any = "predicted", foil: Any = None, query: int | str | None = None
) -> tuple[Attribution, float]:
    """The attribution by any method (a map: rolled out by its paper's convention, the row of `query`), and its seconds."""
    one = asked(written)
    started = time.perf_counter()
    if one.is_map:
        made = rolled(map_of(trace, written), written, trace.query if query is None else query)
    else:
        given: dict[str, Any] = {"query": query, "variant": one.variant, **one.options}
        made = attribute(trace, one.name, **given, **({"target": target, "foil": foil} if one.class_specific else {}))
    return made, time.perf_counter() - started


def layers_of(
    trace: Trace, written: str, *, target: Any = "predicted", foil: Any = None, query: int | None = None
) -> tuple[list[Attribution], Attribution]:
    """A method layer by layer, and over all layers. A map: the row of `query`; an attribution: to the hidden states that
    enter the layer. No layers for an attribution that is not defined at single ones."""
    one = asked(written)
    place = trace.query if query is None else query
    if one.is_map:
        whole = map_of(trace, written)
        return [whole.readout(place, layer=layer) for layer in range(len(whole.scores))], rolled(whole, written, place)
    overall, _ = scores_of(trace, written, target=target, foil=foil, query=query)
    if not attributions()[one.name].layers:
        return [], overall
    asked_for: dict[str, Any] = {"target": target, "foil": foil, "query": query, "variant": one.variant, **one.options}
    layers = [attribute(trace, one.name, layer=layer, **asked_for) for layer in range(len(trace.layers))]
    return layers, overall


# --- before the long work ---------------------------------------------------------------------------------------------


def examples_of(
    data: str | os.PathLike[str] | Iterable[Example | str | tuple[str, str]],
    *,
    n: int | None,
    seed: int,
    **fields: str | None,
) -> list[Example]:
    """`NAME`, `FILE` or `NAME=FILE` (a local copy of a known dataset); or Examples, texts or (text, pair) tuples. With `n`: so
    many, drawn by `seed`. `fields` (text_field, pair_field, label_field) name what is what in a file."""
    if not isinstance(data, str | os.PathLike):
        if any(fields.values()):
            raise InputError("text_field=, pair_field= and label_field= name the fields of a file; leave them out here.")
        found = [_example(one) for one in data]
        return found if n is None else found[:n]
    name, _, path = os.fspath(data).partition("=")
    if name not in DATASETS:
        name, path = os.fspath(data), ""
    if name in DATASETS and DATASETS[name].stream is not None and n is None:
        raise InputError(f"{name!r} has no end: say how many examples, n=.")
    return list(load(name, path=path or None, n=n, seed=None if n is None else seed, **fields))


def _example(given: Any) -> Example:
    if isinstance(given, str):
        return Example(given)
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(one, str) for one in given):
        return Example(*given)
    if not isinstance(given, Example):
        raise InputError(f"data is a name, a file, or a list of Examples, texts or (text, pair) tuples, not of {given!r:.80}.")
    return given


def models_of(model: Any, **options: Any) -> tuple[Model, ...]:
    given = model if isinstance(model, list | tuple) else [model]
    return tuple(one if isinstance(one, Model) else load_model(one, **options) for one in given)


def prepared(
    name: str,
    *,
    model: Any,
    data: Any,
    n: int | None,
    methods: Sequence[str] | None,
    seed: int,
    labels: Mapping[str, int] | None,
    leave_out: bool,
    options: Mapping[str, Any],
) -> Setup:
    """Everything that can be refused, refused; what is left is a Setup."""
    if name not in known():
        raise InputError(f"unknown experiment {name!r}. {nearest(str(name), known())}")
    used = known()[name]
    for option in options:
        if option not in used.options:
            raise InputError(f"{name!r} has no option {option!r}. {nearest(option, used.options)}")
    chosen = tuple(used.methods if methods is None else methods)
    if used.methods and not chosen:
        raise InputError("no method was asked for.")
    if len(set(chosen)) != len(chosen):
        raise InputError(f"a method is named twice: {', '.join(sorted({m for m in chosen if chosen.count(m) > 1}))}.")
    for written in chosen:
        _takes(used, written)
    if model is None and " " in used.model:  # a note, no name
        raise InputError(f"{name!r} needs {used.model}: say which, model=.")
    given = {**used.options, **options}
    refuse_missing(used.packages(given) if callable(used.packages) else used.packages)
    models = models_of(used.model if model is None else model)
    if len(models) < used.n_models:
        raise InputError(f"{name!r} compares models: give {used.n_models} or more, not {len(models)}.")
    for one in models:
        if used.task and one.task not in used.task:
            raise InputError(f"{name!r} needs a model for {' or '.join(used.task)}; {one.name!r} is one for {one.task}.")
    found = examples_of(used.data if data is None else data, n=n, seed=seed)
    found = [replace(e, id=e.id or str(i)) for i, e in enumerate(found, 1)]
    drawn_from = len(found)
    if leave_out:
        found = [one for one in found if _fits(one, used, models, labels)]
    found = _fitting(found, used, models, labels)
    setup = Setup(used, models, tuple(found), chosen, given, seed, drawn_from - len(found))
    if used.prepare is not None:
        used.prepare(setup)
    return setup


def _fitting(
    examples: Sequence[Example], used: Experiment, models: Sequence[Model], labels: Mapping[str, int] | None
) -> list[Example]:
    """The examples as the first model writes them, all of use to every model."""
    found = [for_model(example, models[0]) for example in examples]
    for one in models:
        check(found, one, needs=used.needs, labels=labels)
    if used.task and models[0].task == "masked-lm":
        _one_gap(found, models[0])
    if used.task and models[0].task in ("masked-lm", "causal-lm"):
        _one_token(found, models[0])
    return found


def _fits(example: Example, used: Experiment, models: Sequence[Model], labels: Mapping[str, int] | None) -> bool:
    try:
        return bool(_fitting([example], used, models, labels))
    except InputError:
        return False


def _takes(used: Experiment, written: str) -> None:
    one = asked(written)
    if used.takes == "map" and not one.is_map:
        raise InputError(f"{used.name!r} looks at single layers and takes maps alone; {one.name!r} is an attribution.")
    if used.takes == "attribution" and one.is_map:
        raise InputError(f"{used.name!r} takes attributions alone; {one.name!r} is a map.")
    if used.takes == "class-specific" and not one.class_specific:
        raise InputError(f"{used.name!r} compares classes, and {one.name!r} gives every class the same scores. Leave it out.")


def _one_gap(examples: Sequence[Example], model: Model) -> None:
    mask = model.tokenizer.mask_token
    wrong = [str(example.id) for example in examples if f"{example.text} {example.pair or ''}".count(mask) != 1]
    if wrong:
        raise InputError(
            f"{model.name!r} fills a gap, and {len(wrong)} examples do not have {mask} exactly once ({', '.join(wrong[:3])}"
            f"{' ...' if len(wrong) > 3 else ''})."
        )


def removable(setup: Setup) -> None:
    """Refuse texts from which no token can be taken away: those with one word, or with the gap alone."""
    few = []
    for example in setup.examples:
        encoded = setup.model.encode(example)
        free = sum(not special for special in encoded.special)
        if free < 2:
            few.append(str(example.id))
    if few:
        raise InputError(f"{len(few)} examples have fewer than two words to take away ({', '.join(few[:3])}). Leave them out.")


def _one_token(examples: Sequence[Example], model: Model) -> None:
    wrong = []
    for example in examples:
        for role in ("target", "foil"):
            word = getattr(example, role)
            try:
                token_id(model, word, role) if isinstance(word, str) else None
            except InputError:
                wrong.append(f"{example.id}: {word!r}")
    if wrong:
        raise InputError(
            f"{len(wrong)} targets or foils are not one token of {model.name!r} ({', '.join(wrong[:3])}"
            f"{' ...' if len(wrong) > 3 else ''}). Leave these examples out."
        )


def fingerprint(examples: Sequence[Example]) -> str:
    """Of everything an example holds, in order."""
    told = hashlib.sha256()
    for e in examples:
        row = [e.id, e.text, e.pair, e.target, e.foil, e.cues, e.info]
        told.update(json.dumps(row, ensure_ascii=False, sort_keys=True, default=str).encode())
    return told.hexdigest()[:16]


def identity(setup: Setup, labels: Mapping[str, int] | None) -> dict[str, Any]:
    """What makes a run this run: a folder with another identity is not written to."""
    return {
        "experiment": setup.experiment.name,
        "model": [model_fingerprint(model) for model in setup.models],
        "data": fingerprint(setup.examples),
        "examples": len(setup.examples),
        "methods": list(setup.methods),
        "options": dict(setup.options),
        "labels": None if labels is None else dict(labels),
        "seed": setup.seed,
        **whereabouts(setup.model),
        "versions": {key: value for key, value in versions().items() if key != "python"} | {"numpy": np.__version__},
    }


def provenance(setup: Setup, data: Any) -> dict[str, Any]:
    model = setup.model
    return {
        "paper": setup.experiment.paper,
        "shows": setup.experiment.shows,
        "models": [{"name": public_name(one.name), "revision": one.revision, "task": one.task} for one in setup.models],
        "data": public_name(data) if isinstance(data, str | os.PathLike) else "examples given in Python",
        "left_out": setup.left_out,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": model.placement,
        "quantization": model.quantization,
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "machine": platform.machine(),
    }


# --- the long work ----------------------------------------------------------------------------------------------------


def run(
    name: str,
    *,
    model: Any = None,
    data: str | os.PathLike[str] | Iterable[Example] | None = None,
    n: int | None = None,
    out: str | os.PathLike[str] | None = None,
    methods: Sequence[str] | None = None,
    seed: int = 0,
    labels: Mapping[str, int] | None = None,
    leave_out: bool = False,
    progress: bool = True,
    **options: Any,
) -> Outcome:
    """Run an experiment, or continue it: the same call with the same `out` goes on where it was stopped.

    `model`: a name, a Model, or a list of them. `data`: `NAME`, `FILE`, `NAME=FILE` or Examples. An example that does not fit
    (too long, a target of two tokens, no cue) is refused, or with `leave_out` left out and counted. Without `out` nothing is
    written. The tables are the same, byte for byte, whether a run was interrupted or not.
    """
    if out is not None:
        optional("pyarrow.parquet", "pyarrow", "data")
        optional("matplotlib.figure", "matplotlib", "plot")
    asked_for: dict[str, Any] = {"model": model, "data": data, "n": n, "methods": methods, "seed": seed, "labels": labels}
    setup = prepared(name, **asked_for, leave_out=leave_out, options=options)
    if out is None:
        units: Units = {}
        for key, unit in _measured(setup, units, progress):
            units[key] = unit
        return _outcome(setup, units, None)
    folder = Folder(Path(out))
    own = identity(setup, labels)
    with in_folder(folder.place):
        folder.check(own)
        with folder.held(own):
            source = setup.experiment.data if data is None else data
            told = {"schema": SCHEMA, "identity_schema": IDENTITY, "identity": own, **provenance(setup, source)}
            folder.begin(_json({**told, "finished": False}))
            done = folder.read()
            _record(setup, folder, done, progress)
            outcome = _outcome(setup, folder.read(), folder.place)
            for place, content in _reports(outcome).items():
                folder.still_held()
                write(folder.place / place, content)
            write(folder.place / "manifest.json", _json({**told, "finished": True, "seconds": outcome.seconds}))
    return outcome


def _record(setup: Setup, folder: Folder, done: Units, progress: bool) -> None:
    """Measure what is missing; every few seconds a shard."""
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


def _measured(setup: Setup, done: Units, progress: bool) -> Iterator[tuple[str, tuple[float, list[Record]]]]:
    """(key, (seconds, records)) of every unit that is not done."""
    from tqdm import tqdm

    used = setup.experiment
    total = None if used.whole else len(setup.examples)
    with tqdm(total=total, initial=0 if used.whole else len(done), desc=used.name, disable=not progress, leave=False) as bar:
        started = time.perf_counter()
        for key, records in _units(setup, frozenset(done)):
            yield key, (time.perf_counter() - started, through(records))
            bar.update()
            started = time.perf_counter()


def _units(setup: Setup, done: frozenset[str]) -> Iterator[tuple[str, list[Record]]]:
    if setup.experiment.whole:
        for key, records in setup.experiment.measure(replace(setup, done=done), list(setup.examples)):
            if key not in done:
                yield key, records
        return
    for i, example in enumerate(setup.examples):
        if str(i) not in done:
            yield str(i), setup.experiment.measure(setup, example)


def _outcome(setup: Setup, units: Units, out: Path | None) -> Outcome:
    records = [record for _, some in units.values() for record in some]
    return Outcome(setup, records, setup.experiment.finish(setup, records), out, sum(seconds for seconds, _ in units.values()))


def _reports(outcome: Outcome) -> dict[str, bytes]:
    """File name -> content: the first table is summary.csv, each further one a file of its name."""
    made = {f"{table.name if i else 'summary'}.csv": table.csv.encode() for i, table in enumerate(outcome.tables)}
    made["summary.md"] = markdown(outcome).encode()
    if outcome.setup.experiment.figure is not None:
        made |= {f"figure.{kind}": content for kind, content in drawn(outcome).items()}
    return made


def markdown(outcome: Outcome) -> str:
    setup = outcome.setup
    used = setup.experiment
    models = ", ".join(f"`{Path(str(model.name)).name}`" for model in setup.models)
    lines = [f"## {used.name}", "", f"{used.summary}", "", f"*{used.paper}: {used.shows}.*", ""]
    left_out = f" ({setup.left_out} that do not fit the model left out)" if setup.left_out else ""
    lines += [f"Model: {models}. {len(setup.examples)} examples{left_out}. Seed {setup.seed}.", ""]
    return "\n".join([*lines, *(table.markdown for table in outcome.tables)])


def drawn(outcome: Outcome) -> dict[str, bytes]:
    """The figure as SVG and PNG, the same bytes every time."""
    figures, matplotlib = optional("matplotlib.figure", "matplotlib", "plot"), optional("matplotlib", "matplotlib", "plot")
    made = {}
    with matplotlib.rc_context({"svg.hashsalt": "mixlens", "svg.fonttype": "none", "font.size": 9}):
        figure = figures.Figure(figsize=(7, 4), layout="constrained")
        assert outcome.setup.experiment.figure is not None
        outcome.setup.experiment.figure(outcome.setup, outcome.tables, figure)
        for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            content = BytesIO()
            figure.savefig(content, format=kind, metadata=metadata, dpi=150)
            made[kind] = content.getvalue()
    return made


def _json(told: Mapping[str, Any]) -> bytes:
    return (json.dumps(told, ensure_ascii=False, indent=1) + "\n").encode()
