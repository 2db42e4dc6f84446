"""Names of labels: what a row says, what the dataset calls it, which class of the model it is. Nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError

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
    a, b = _plain(one), _plain(other)
    return _SAME.get(a, a) == _SAME.get(b, b)


def label_of(value: Any, names: Sequence[str]) -> str | None:
    """The dataset's name for a label given as a number or a name; None for a row without one (-1, as in hidden test sets)."""
    text = "" if value is None else str(int(value) if isinstance(value, bool) else value).strip()
    if text in ("", "-1"):
        return None
    if re.fullmatch("[0-9]+", text):
        found = [names[int(text)]] if int(text) < len(names) else []
    else:
        found = [name for name in names if same(name, text)]
    if not found:
        raise InputError(f"label {value!r} is neither one of {', '.join(names)} nor a number from 0 to {len(names) - 1}.")
    return found[0]


def label_ids(labels: Iterable[str], model: Model, *, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Which class of the model each label is, by name. `given` says it outright; classes that are only called LABEL_0,
    LABEL_1 ... need it, since models of the same task put them in different orders."""
    wanted = sorted(set(labels))
    if model.task != "classification":
        raise InputError(f"{model.name!r} is a {model.task} model: it has no classes to compare {', '.join(wanted)} with.")
    classes = {int(i): str(name) for i, name in model.hf_model.config.id2label.items()}
    told = f"{model.name!r} has {', '.join(f'{i} = {name}' for i, name in sorted(classes.items()))}"
    if given is not None:
        missing = [label for label in wanted if given.get(label) not in classes]
        if missing:
            raise InputError(f"labels= gives no class for {', '.join(map(repr, missing))}: {dict(given)}. {told}.")
        return {label: given[label] for label in wanted}
    if all(re.fullmatch(r"label[\s_]?\d+", name, re.IGNORECASE) for name in classes.values()):
        guess = ", ".join(f"{label!r}: ?" for label in wanted)
        raise InputError(f"{told}, which does not say what they mean. Say it: labels={{{guess}}}.")
    found = {label: [i for i, name in classes.items() if same(label, name)] for label in wanted}
    unknown = [label for label, ids in found.items() if len(ids) != 1]
    if unknown:
        raise InputError(
            f"the label set does not match: {', '.join(map(repr, unknown))} of the data (of {', '.join(wanted)}) "
            f"names no one class of the model. {told}. If they mean the same, say which is which: labels={{...}}."
        )
    return {label: ids[0] for label, ids in found.items()}
