"""What the tables of `judge` lack, and why: metrics of a group that the model cannot be asked, labels that say nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from ...data import field_names
from ..experiments.experiment import Setup
from .judged_labels import labels_told
from .judged_metrics import GROUPS, missing_token

LABEL = "label"  # the field of a file that holds labels, as most have it


def remarks_of(setup: Setup, groups: Sequence[str], data: str | None, fields: Mapping[str, Any]) -> list[str]:
    """One line for each. `groups`: the metrics as written; `data`, `fields`: the file and the names of its fields as given."""
    return [
        line for line in (*dropped_told(setup, groups), labels_told(setup), unread_told(setup, data, fields)) if line
    ]


def dropped_told(setup: Setup, groups: Sequence[str]) -> list[str]:
    """The metrics of a group that were left out, and what the model lacks for them."""
    left = [name for name in _of_groups(groups) if name not in setup.options["metrics"]]
    return [f"{name} is left out: {_lack(setup, name)}." for name in left]


def _of_groups(groups: Sequence[str]) -> list[str]:
    return list(chain.from_iterable(GROUPS.get(group, ()) for group in groups))


def _lack(setup: Setup, metric: str) -> str:
    token = missing_token(setup.model, metric)
    if token == "infilled":
        return "infilling needs a masked language model with this vocabulary, --infill NAME"
    return f"{setup.model.name!r} has no {token} token"


def unread_told(setup: Setup, data: str | None, fields: Mapping[str, Any]) -> str:
    """That a file has labels which were not asked for."""
    if setup.model.task != "classification" or fields.get("label_field") or LABEL not in field_names(data):
        return ""
    return (
        f"The field {LABEL!r} of {data} was not read: --label-field {LABEL} makes a table of right and wrong predictions where "
        "the labels are classes of the model."
    )
