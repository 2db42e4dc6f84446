"""Whole corpora: every method on every row of a dataset, into a folder that can be killed and continued. See
docs/use/run.md."""

from .page_facts import Overview, overview
from .running import Run, run
from .stored_maps import maps
from .summary import Summary, summarize
from .turned_figure import turned_figure
from .writing import generations

__all__ = ["Overview", "Run", "Summary", "generations", "maps", "overview", "run", "summarize", "turned_figure"]
