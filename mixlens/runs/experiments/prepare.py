"""Before the long work: data is drawn, models are loaded, and everything that can be refused is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...base.errors import InputError, nearest
from ...data import DATASETS, check, for_model, load, truncated
from ...metrics.arguments import refuse_missing
from ...model.loading import load as load_model
from ...model.model import Model
from ...model.vocabulary import token_id
from ...scoring.asking import MethodRequest, parse_method
from ...types import Example
from .experiment import Experiment, Setup, known

Data = str | os.PathLike[str] | Iterable[Example | str | tuple[str, str]]


# --- data and models --------------------------------------------------------------------------------------------------


def examples_of(data: Data, *, n: int | None, seed: int, first: bool = False, **fields: Any) -> list[Example]:
    """`NAME`, `FILE` or `NAME=FILE` (a local copy of a known dataset); or Examples, texts or (text, pair) tuples. With
    `n`: so many, drawn by `seed`, or the `first` of them. `fields` (text_field, pair_field, label_field) name the
    fields of a file, or the split of a dataset."""
    if not isinstance(data, str | os.PathLike):
        given = [f"{name}=" for name, value in fields.items() if value]
        if given:
            raise InputError(f"texts were given, and no file or dataset is read: leave {' and '.join(given)} out.")
        return [_example(value) for value in data][:n]
    name, path = _name_and_path(os.fspath(data))
    if n is None and not path and name in DATASETS and DATASETS[name].stream is not None:
        raise InputError(f"{name!r} has no end: say how many examples, n=.")
    return list(load(name, path=path or None, n=n, seed=None if n is None or first else seed, **fields))


def _name_and_path(data: str) -> tuple[str, str]:
    """The name of a known dataset and its local copy; of another file the file, and no copy."""
    name, _, path = data.partition("=")
    return (name, path) if name in DATASETS else (data, "")


def dataset_name(data: Any) -> str:
    """The name of a known dataset; "" for a file and for examples."""
    name = _name_and_path(os.fspath(data))[0] if isinstance(data, str | os.PathLike) else ""
    return name if name in DATASETS else ""


def _example(value: Any) -> Example:
    if isinstance(value, str):
        return Example(value)
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return Example(*value)
    if not isinstance(value, Example):
        raise InputError(
            f"data is a name, a file, or a list of Examples, texts or (text, pair) tuples, not of {value!r:.80}."
        )
    return value


def models_of(model: Any, **options: Any) -> tuple[Model, ...]:
    """One model or several: loaded, unless they are loaded already."""
    every = model if isinstance(model, list | tuple) else [model]
    return tuple(name if isinstance(name, Model) else load_model(name, **options) for name in every)


# --- a setup ----------------------------------------------------------------------------------------------------------

UNFIT: dict[str, tuple[Callable[[MethodRequest], bool], str]] = {  # what an experiment takes -> what a method must be
    "map": (
        lambda request: request.is_map,
        "{0!r} looks at single layers and takes maps alone; {1!r} is an attribution.",
    ),
    "attribution": (lambda request: not request.is_map, "{0!r} takes attributions alone; {1!r} is a map."),
    "class-specific": (
        lambda request: request.class_specific,
        "{0!r} compares classes, and {1!r} gives every class the same scores. Leave it out.",
    ),
    "any": (lambda _: True, ""),
}


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
    split: str | None = None,
    first: bool = False,
    loading: Mapping[str, Any] | None = None,
    truncate: bool = False,
) -> Setup:
    """The Setup of an experiment; everything that can be refused is refused here, the cheap before the dear."""
    if name not in known():
        raise InputError(f"unknown experiment {name!r}. {nearest(str(name), known())}")
    declared = known()[name]
    for option in options:
        if option not in declared.options:
            raise InputError(f"{name!r} has no option {option!r}. {nearest(option, declared.options)}")
    names = tuple(declared.methods if methods is None else methods)
    requests = _requests(declared, names)
    if model is None and " " in declared.model:  # a note, no name
        raise InputError(f"{declared.name!r} needs {declared.model}: say which, model=.")
    values = {**declared.options, **options}
    refuse_missing(declared.packages(values) if callable(declared.packages) else declared.packages)
    models = models_of(declared.model if model is None else model, **(loading or {}))
    if len(models) < declared.n_models:
        raise InputError(f"{name!r} compares models: give {declared.n_models} or more, not {len(models)}.")
    for one in models:
        if declared.task and one.task not in declared.task:
            raise InputError(
                f"{name!r} needs a model for {' or '.join(declared.task)}; {one.name!r} is one for {one.task}."
            )
    source = declared.data if data is None else data
    found = enumerate(examples_of(source, n=n, seed=seed, first=first, split=split), 1)
    drawn = [replace(example, id=example.id or str(number)) for number, example in found]
    drawn = [truncated(example, models[0]) for example in drawn] if truncate else drawn
    fit = [example for example in drawn if _fits(example, declared, models, labels)] if leave_out else drawn
    examples = tuple(fitting(fit, declared, models, labels))
    more: dict[str, Any] = {"parsed": requests, "labels": labels, "data": dataset_name(source)}
    setup = Setup(declared, models, examples, names, values, seed, len(drawn) - len(examples), **more)
    if declared.prepare is not None:
        declared.prepare(setup)
    return setup


def _requests(declared: Experiment, names: Sequence[str]) -> dict[str, MethodRequest]:
    """The methods, parsed; each is named once and is of a kind that the experiment takes."""
    if declared.methods and not names:
        raise InputError("no method was asked for.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"a method is named twice: {', '.join(twice)}.")
    fits, message = UNFIT[declared.takes]
    requests = {}
    for written in names:
        requests[written] = parse_method(written)
        if not fits(requests[written]):
            raise InputError(message.format(declared.name, requests[written].name))
    return requests


# --- examples that fit a model ----------------------------------------------------------------------------------------


def fitting(
    examples: Sequence[Example], declared: Experiment, models: Sequence[Model], labels: Mapping[str, int] | None
) -> list[Example]:
    """The examples as the first model writes them. An example that one of the models cannot use is refused."""
    rewritten = [for_model(example, models[0]) for example in examples]
    for model in models:
        check(rewritten, model, needs=declared.needs, labels=labels)
    if declared.task and models[0].task in ("masked-lm", "causal-lm"):
        _refuse_language(rewritten, models[0])
    return rewritten


def _fits(example: Example, declared: Experiment, models: Sequence[Model], labels: Mapping[str, int] | None) -> bool:
    try:
        return bool(fitting([example], declared, models, labels))
    except InputError:
        return False


def _refuse_language(examples: Sequence[Example], model: Model) -> None:
    """What a language model cannot read: not exactly one gap, or a target or foil of several tokens."""
    mask = model.tokenizer.mask_token
    texts = {str(example.id): f"{example.text} {example.pair or ''}" for example in examples}
    wrong = [name for name, text in texts.items() if model.task == "masked-lm" and text.count(mask) != 1]
    if wrong and len(examples) == 1:
        raise InputError(
            f"{model.name!r} fills a gap: the text must have {mask} exactly once. Put it where the gap is."
        )
    if wrong:
        raise InputError(
            f"{model.name!r} fills a gap, and {len(wrong)} examples do not have {mask} exactly once "
            f"({_listed(wrong)}). Leave them out."
        )
    pairs = [(example, word) for example in examples for word in (example.target, example.foil)]
    wrong = [
        f"{example.id}: {word!r}" for example, word in pairs if isinstance(word, str) and not _is_token(model, word)
    ]
    if wrong:
        raise InputError(
            f"{len(wrong)} targets or foils are not one token of {model.name!r} ({_listed(wrong)}). Leave these "
            "examples out."
        )


def _listed(names: Sequence[str]) -> str:
    """The first three names, and dots where there are more."""
    return f"{', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"


def _is_token(model: Model, word: str) -> bool:
    try:
        token_id(model, word)
    except InputError:
        return False
    return True


def removable(setup: Setup) -> None:
    """Refuse texts from which no token can be taken away: those with one word, or with the gap alone."""
    few = [str(example.id) for example in setup.examples if setup.model.encode(example).special.count(False) < 2]
    if few and len(setup.examples) == 1:
        raise InputError("the text has fewer than two words to take away. Give a longer one.")
    if few:
        raise InputError(
            f"{len(few)} examples have fewer than two words to take away ({', '.join(few[:3])}). Leave them out."
        )


def one_of(setup: Setup, **words: Iterable[str]) -> None:
    """Refuse an option that is none of its words."""
    for name, known_words in words.items():
        value = setup.options[name]
        if value not in known_words:
            raise InputError(f"unknown {name} {value!r}. {nearest(str(value), known_words)}")
