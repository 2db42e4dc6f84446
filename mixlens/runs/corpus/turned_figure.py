"""The check of a run as a paper figure: what is left of predictions without first words, and without random words."""

from __future__ import annotations

import os
from typing import Any

from ...base.errors import InputError
from ...base.text import percent
from .reading import manifest_of, methods_of, visit_rows
from .tally import Tally
from .turned_counts import LEFT, Turned, TurnedCounts

RANDOM_WORDS = "three random words"


def turned_figure(out: str | os.PathLike[str], **options: Any) -> Any:
    """A histogram row for each method of a run that was made with `trust`, that one first whose words turn most; random words
    last. Gives a Picture. Options: `width`, `font`, `save`, as for `mixlens.plot`."""
    from ...show.figure.histograms import histogram_rows

    counts = _counts(out)
    ways = {method: counts.methods[method] for method in counts.best_first()} | {RANDOM_WORDS: counts.random}
    return histogram_rows(
        {name: _rows(way) for name, way in ways.items()},
        edges=LEFT.tolist(),
        values={name: percent(way.share or 0.0) for name, way in ways.items()},
        value_name="turned",
        x="probability left for what was predicted",
        grey=RANDOM_WORDS,
        **options,
    )


def _counts(out: str | os.PathLike[str]) -> TurnedCounts:
    """The checks of a run's rows; a run without any is refused."""
    manifest = manifest_of(out)
    tally = Tally(methods_of(manifest))
    visit_rows(out, manifest, lambda row, _: tally.add(row))
    if not tally.removal.random.rows:
        raise InputError(
            f"no row of {str(out)!r} was checked. Make the run with trust=True (--trust), in texts of four words or more."
        )
    return tally.removal


def _rows(way: Turned) -> list[float]:
    """Rows in each column; a draw is a part of its row."""
    each = way.draws / way.rows
    return [float(count) / each for count in way.left.counts]
