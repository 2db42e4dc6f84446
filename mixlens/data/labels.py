"""Names of labels: as a row writes them, as the dataset names them, and the class of a model that each is. None is
guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError

if TYPE_CHECKING:
    from ..model.model import Model

# Spellings that mean the same, beside upper case, spaces, hyphens and underscores. Not in this list: not the same.
ALIASES = (
    ("negative", "neg"),
    ("positive", "pos"),
    ("entailment", "entails"),
    ("contradiction", "contradicts"),
    ("not_equivalent", "not_paraphrase"),
    ("equivalent", "paraphrase"),
    ("not_duplicate", "not_duplicates"),
    ("duplicate", "duplicates"),
    ("hatespeech", "hate"),
    ("offensive", "offensive_language"),
    ("non-toxic", "not_toxic"),
)


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-]", "", name).casefold()


_SAME = {_plain(name): _plain(group[0]) for group in ALIASES for name in group}


def same(one: str, other: str) -> bool:
    """Whether two names mean the same label."""
    a, b = _plain(one), _plain(other)
    return _SAME.get(a, a) == _SAME.get(b, b)


def label_of(value: Any, names: Sequence[str]) -> str | None:
    """The dataset's name for a label that is a number or a name; None for a row without one (-1, as in hidden test
    sets)."""
    text = "" if value is None else str(int(value) if isinstance(value, bool) else value).strip()
    if text in ("", "-1"):
        return None
    is_number = re.fullmatch("[0-9]+", text)
    matches = list(names[int(text) :][:1]) if is_number else [name for name in names if same(name, text)]
    if not matches:
        raise InputError(
            f"label {value!r} is neither one of {', '.join(names)} nor a number from 0 to {len(names) - 1}."
        )
    return matches[0]


def label_ids(labels: Iterable[str], model: Model, *, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """The class of the model that each label is, by name. `given` names the classes instead; a model whose classes are
    only called LABEL_0, LABEL_1 ... needs it, since models of the same task put them in different orders."""
    names = sorted(set(labels))
    if model.task != "classification":
        raise InputError(
            f"{model.name!r} is a {model.task} model: it has no classes to compare {', '.join(names)} with."
        )
    classes = {int(i): str(name) for i, name in model.hf_model.config.id2label.items()}
    overview = f"{model.name!r} has {', '.join(f'{i} = {name}' for i, name in sorted(classes.items()))}"
    if given is not None:
        missing = [label for label in names if given.get(label) not in classes]
        if missing:
            raise InputError(f"labels= gives no class for {', '.join(map(repr, missing))}: {dict(given)}. {overview}.")
        return {label: given[label] for label in names}
    if not names_classes(model):
        form = ", ".join(f"{label!r}: ?" for label in names)
        raise InputError(f"{overview}, which does not say what they mean. Say it: labels={{{form}}}.")
    matches = {label: [i for i, name in classes.items() if same(label, name)] for label in names}
    unknown = [label for label, ids in matches.items() if len(ids) != 1]
    if unknown:
        raise InputError(
            f"the label set does not match: {', '.join(map(repr, unknown))} of the data (of {', '.join(names)}) "
            f"names no one class of the model. {overview}. If they mean the same, say which is which: labels={{...}}."
        )
    return {label: ids[0] for label, ids in matches.items()}


def names_classes(model: Model) -> bool:
    """Whether a model's classes have names; LABEL_0, LABEL_1 ... are none."""
    names = model.hf_model.config.id2label.values()
    return not all(re.fullmatch(r"label[\s_]?\d+", str(name), re.IGNORECASE) for name in names)
