"""The names that this module held before it was cut into files, for code that imports them from here."""

from ..asking import MethodRequest as Asked
from ..asking import layers_of, map_of, rolled, scores_of
from ..asking import parse_method as asked
from ..provenance import data_fingerprint as fingerprint
from ..provenance import model_fingerprint, public_name, whereabouts
from .experiment import EXPERIMENTS, TAKES, Experiment, Outcome, Setup, experiment, known
from .folder import Folder
from .prepare import examples_of, models_of, prepared, removable
from .running import drawn, identity, markdown, provenance, run
from .tables import Table

__all__ = [
    "EXPERIMENTS",
    "TAKES",
    "Asked",
    "Experiment",
    "Folder",
    "Outcome",
    "Setup",
    "Table",
    "asked",
    "drawn",
    "examples_of",
    "experiment",
    "fingerprint",
    "identity",
    "known",
    "layers_of",
    "map_of",
    "markdown",
    "model_fingerprint",
    "models_of",
    "prepared",
    "provenance",
    "public_name",
    "removable",
    "rolled",
    "run",
    "scores_of",
    "whereabouts",
]
