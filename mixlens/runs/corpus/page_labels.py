"""Predictions against a carried column: which column holds labels, and how many predictions are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.errors import InputError, nearest
from ...data.labels import label_of, same
from .reading import mapping, names
from .tally import NONE

LABELS = ("label", "labels", "gold", "class")  # carried columns that are read as labels when none is named


@dataclass(frozen=True)
class Judged:
    """Counts of predictions that are compared with a carried column of labels."""

    column: str
    rows: int  # with a label that is one of the model's classes
    correct: int
    unknown: int  # with a label that is not
    without: int
    table: Counter[tuple[str, str]]  # (label, prediction) -> rows


class Labels:
    """Predictions compared with the labels in one column. A number is the model's own class number, as for `target="gold"`."""

    def __init__(self, column: str | None, classes: Sequence[str], why_not: str | None = None):
        self.column, self.classes, self._why_not = column, list(classes), why_not
        self.rows = self.correct = self.unknown = self.without = 0
        self.table: Counter[tuple[str, str]] = Counter()

    def add(self, row: Mapping[str, Any], predicted: str) -> tuple[str | None, bool | None]:
        """The row's label, and whether it is what was predicted."""
        if self.column is None or predicted == NONE:
            return None, None
        label = self._counted_label(row.get(self.column))
        if label is None:
            return None, None
        right = same(label, predicted)
        self.rows, self.correct = self.rows + 1, self.correct + right
        if self.classes:
            self.table[label, predicted] += 1
        return label, right

    def _counted_label(self, value: Any) -> str | None:
        """The label that a value means. Where it means none, it is counted as unknown, or as a row without a label."""
        try:
            label = _class_of(value, self.classes) if self.classes else _text_of(value)
        except InputError:
            self.unknown += 1
            return None
        self.without += label is None
        return label

    def judged(self) -> Judged | None:
        """What was counted; None where no row has a label."""
        if not self.rows:
            return None
        return Judged(str(self.column), self.rows, self.correct, self.unknown, self.without, self.table)

    def why_not(self) -> str | None:
        if self.column is None or self.rows:
            return self._why_not
        known = f" ({', '.join(self.classes[:12])})" if self.classes else ""
        return (
            f"No row has a label in the column {self.column!r} that is a class of the model{known}, so there is no accuracy. "
            f"{self.unknown:,} rows have another value, {self.without:,} have none."
        )


def _class_of(value: Any, classes: Sequence[str]) -> str | None:
    """The class that a value names; a number without decimals is a class number."""
    is_number = isinstance(value, float) and value.is_integer()
    return label_of(int(value) if is_number else value, classes)


def _text_of(value: Any) -> str | None:
    """A value as text without spaces around it; None where nothing is left."""
    return None if value is None else str(value).strip() or None


def labels_of(manifest: Mapping[str, Any], label: str | None) -> Labels:
    """The labels in the column that `label` names, or in a column with a usual name. If there is none, `why_not` says so."""
    model, identity = mapping(manifest.get("model")), mapping(manifest.get("identity"))
    carried, classes = names(mapping(identity.get("options")).get("columns")), names(model.get("classes"))
    if label is None:
        return _usual_labels(carried, classes)
    if label not in carried:
        known = nearest(label, carried) if carried else "This run carried none: --columns."
        raise InputError(f"the run carried no column {label!r}. {known}")
    return Labels(label, classes)


def _usual_labels(carried: Sequence[str], classes: Sequence[str]) -> Labels:
    column = next((name for name in LABELS if name in carried), None)
    if column is None:
        return Labels(None, ())
    if classes:
        return Labels(column, classes)
    why_not = f"The model has no classes by name, so the column {column!r} is not compared with what it predicts."
    return Labels(None, (), why_not)
