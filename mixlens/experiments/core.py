"""The old name of `mixlens.experiments.experiment`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("mixlens.experiments.experiment")
