"""The papers' evaluations as experiments: one file per paper, found by being in the folder. See
docs/use/experiments.md."""

from .experiment import EXPERIMENTS, Experiment, Outcome, Setup, experiment, known
from .running import run
from .tables import Table

__all__ = ["EXPERIMENTS", "Experiment", "Outcome", "Setup", "Table", "experiment", "known", "run"]
