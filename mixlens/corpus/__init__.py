"""Whole corpora: every method on every row of a dataset, into a folder that can be killed and continued. See docs/run.md."""

from .running import Run, run
from .shards import maps

__all__ = ["Run", "maps", "run"]
