"""The check of a run as a paper figure: what is left of predictions without first words, and without random words."""

from __future__ import annotations

import os
from typing import Any

from ...base.errors import InputError
from ...base.text import percent
from .counts import LEFT, Counts
from .reading import manifest_of, methods_of, visit_rows

RANDOM_WORDS = "three random words"


def turned_figure(out: str | os.PathLike[str], **options: Any) -> Any:
    """A histogram row for each method of a run that was made with `trust`, that one first whose words turn most; random
    words last. Gives a Picture. Options: `width`, `font`, `save`, as for `mixlens.plot`."""
    from ...show.figure.histograms import histogram_rows

    manifest = manifest_of(out)
    counts = Counts(methods_of(manifest))
    visit_rows(out, manifest, counts.add)
    removal = counts.removal
    if not removal.random.rows:
        raise InputError(
            f"no row of {str(out)!r} was checked. Make the run with trust=True (--trust), in texts of four words or "
            "more."
        )
    ways = {method: removal.methods[method] for method in removal.best_first()} | {RANDOM_WORDS: removal.random}
    return histogram_rows(  # rows in each column; a draw is a part of its row
        {name: (way.left.counts / (way.draws / way.rows)).tolist() for name, way in ways.items()},
        edges=LEFT.tolist(),
        values={name: percent(way.share or 0.0) for name, way in ways.items()},
        value_name="turned",
        x="probability left for what was predicted",
        grey=RANDOM_WORDS,
        **options,
    )
