"""The old name of `mixlens.model.families`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("mixlens.model.families")
