"""The old name of `mixlens.saving`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("mixlens.saving")
