"""The old name of `mixlens.data.grammar`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("mixlens.data.grammar")
