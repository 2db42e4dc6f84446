"""Datasets as iterators of Example: by name from the hub, from local files, from the embedded grammar. See
docs/use/data.md."""

from .catalog import DATASETS, Dataset, listing
from .fit import check, cue_tokens, for_model, span_tokens, truncated
from .labels import label_ids
from .reading import field_names, load, read
from .rows import RowError, rows

__all__ = [
    "DATASETS",
    "Dataset",
    "RowError",
    "check",
    "cue_tokens",
    "field_names",
    "for_model",
    "label_ids",
    "listing",
    "load",
    "read",
    "rows",
    "span_tokens",
    "truncated",
]
