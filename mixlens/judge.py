"""The old name of `mixlens.experiments.judge`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("mixlens.experiments.judge")
