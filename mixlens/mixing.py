"""The old name of `mixlens.maps`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("mixlens.maps")
