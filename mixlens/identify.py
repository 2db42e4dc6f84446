"""The old name of `mixlens.alternative_attention`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("mixlens.alternative_attention")
