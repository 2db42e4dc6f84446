"""What the shell offers for the value of an option when Tab is pressed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

EMBEDDED = Path(__file__).parents[1] / "model" / "embedded"


def models(incomplete: str) -> list[str]:
    """The embedded models, found without torch. Where none fits, shells offer files."""
    return [name for name in sorted(place.name for place in EMBEDDED.iterdir()) if name.startswith(incomplete)]


def methods(incomplete: str) -> list[str]:
    """Maps and attributions; after a comma the next of several."""
    from ..scoring.maps import methods as known

    return _next_of(known(), incomplete)


def judged_methods(incomplete: str) -> list[str]:
    """What `judge --methods` takes: two groups, and names."""
    from ..scoring.maps import methods as known

    return _next_of(["all", "peers", *known()], incomplete)


def metrics(incomplete: str) -> list[str]:
    """What `judge --metrics` takes: groups, and names."""
    from ..runs.judge.ask import GROUPS, possible

    return _next_of([*GROUPS, *possible()], incomplete)


def experiments(incomplete: str) -> list[str]:
    """The experiments of the papers."""
    from ..runs.experiments.experiment import known

    return _next_of(known(), incomplete)


def papers(incomplete: str) -> list[str]:
    """The papers that `reproduce` knows."""
    from ..runs.experiments.command import PLANS

    return _next_of(PLANS.known(), incomplete)


def _next_of(names: Iterable[str], incomplete: str) -> list[str]:
    """The names that begin as what stands behind the last comma, each with what stands before it."""
    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + name for name in names if name.startswith(begun)]
