"""Whole corpora: every method on every row of a dataset, into a folder that can be killed and continued. See docs/run.md."""

from .running import Run, run
from .shards import maps
from .summary import Summary, summarize

__all__ = ["Run", "Summary", "maps", "run", "summarize"]
