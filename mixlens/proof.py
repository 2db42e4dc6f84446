"""The old name of `mixlens.layer.proof`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("mixlens.layer.proof")
