"""The old name of `mixlens.layer.block`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("mixlens.layer.block")
