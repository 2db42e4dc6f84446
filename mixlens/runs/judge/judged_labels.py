"""Which predictions are right, by labels that are classes of the model or by targets, and what is said of labels."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence

from ...base.errors import InputError
from ...data import label_ids
from ...model.model import Model
from ...scoring.targets import logits_at, resolve
from ...types import Example, Trace
from ..experiments.experiment import Setup

NAMED = 5  # labels that a sentence names


def is_right(example: Example, trace: Trace, classes: Mapping[str, int] | None = None) -> bool | None:
    """Whether the model predicts what is known to be right: the label, or the target (above the foil); None: nothing is known.
    `classes`: those of all labels of the data, by default that of this one."""
    if trace.model.task == "classification":
        known = classes_of(labels_of([example]), trace.model) if classes is None else classes
        return _predicts(trace, example, known)
    is_word = trace.model.task in ("masked-lm", "causal-lm") and example.target is not None
    return _prefers(trace, example) if is_word else None


def _predicts(trace: Trace, example: Example, classes: Mapping[str, int]) -> bool | None:
    known = classes.get(str(example.info.get("label")))
    return None if known is None else known == resolve(trace).ids[0]


def _prefers(trace: Trace, example: Example) -> bool:
    if example.foil is None:
        return resolve(trace).ids == resolve(trace, example.target).ids
    pair = resolve(trace, example.target, foil=example.foil)
    logits = logits_at(trace, pair.positions)
    return bool(logits[pair.ids[0]] > logits[pair.foil])


# --- labels and classes -------------------------------------------------------------------------------------------------


def labels_of(examples: Iterable[Example]) -> list[str]:
    """The labels of the texts, each once."""
    labels = dict.fromkeys(example.info.get("label") for example in examples)
    return [str(label) for label in labels if label is not None]


def classes_of(labels: Sequence[str], model: Model) -> dict[str, int]:
    """The class of each label that names one. Where none does, and each is the id of a class, that class."""
    return dict(ChainMap(*(_named_class(label, model) for label in labels))) or _ids(labels, model)


def _named_class(label: str, model: Model) -> dict[str, int]:
    """The class of this name; nothing where the names of the classes are not those of the labels."""
    try:
        return label_ids([label], model)
    except InputError:
        return {}


def _ids(labels: Sequence[str], model: Model) -> dict[str, int]:
    """The classes that labels are the ids of, where all are."""
    return dict(zip(labels, map(int, labels), strict=True)) if set(labels) <= set(_names(model)) else {}


def _names(model: Model) -> dict[str, str]:
    """The names of the classes by the text of their ids."""
    return {str(number): str(name) for number, name in model.hf_model.config.id2label.items()}


# --- what is said -------------------------------------------------------------------------------------------------------


def data_classes(setup: Setup) -> dict[str, int]:
    """The classes of all labels of a run; of none where the model has no classes."""
    return classes_of(labels_of(setup.examples), setup.model) if setup.model.task == "classification" else {}


def labels_told(setup: Setup) -> str:
    """That labels are ids of classes, or are no classes; "" where they are names of classes, or there are none."""
    labels = labels_of(setup.examples)
    if not labels or setup.model.task != "classification":
        return ""
    return _told(labels, setup.model)


def _told(labels: Sequence[str], model: Model) -> str:
    names, classes = _names(model), classes_of(labels, model)
    unknown = [repr(label) for label in labels if label not in classes]
    return _unknown_told(unknown, names, some=len(unknown) < len(labels)) if unknown else _ids_told(classes, names)


def _ids_told(classes: Mapping[str, int], names: Mapping[str, str]) -> str:
    """Labels that are names are not explained."""
    by_id = [label for label, class_ in classes.items() if label == str(class_) != names[label]]
    told = ", ".join(f"{label} = {names[label]}" for label in sorted(by_id, key=int))
    return f"Labels are taken as the ids of the model's classes: {told}." if told else ""


def _unknown_told(unknown: Sequence[str], names: Mapping[str, str], *, some: bool) -> str:
    listed = ", ".join(unknown[:NAMED]) + " ..." * (len(unknown) > NAMED)
    classes = ", ".join(map(" = ".join, names.items()))
    ends = (
        "their texts count as neither right nor wrong" if some else "there is no table of right and wrong predictions"
    )
    return f"Labels that are no classes of the model ({classes}): {listed}; {ends}."
