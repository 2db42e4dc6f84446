"""Example -> Trace. The only folder that knows transformers, hooks and accelerate.

families words wrappers offload     what differs between models; subwords; wrappers; where weights are
kept parts user_code                the store of a model; the modules of its layers; whose code acts in them
attention passes record             attention weights; one call: locks, modes, hooks; one pass recorded
seam                                our function in the attention registry, its proof, and one runner for every pass
encode chat vocabulary tracing      text in; conversations; tokens by name; traces
    rows rerun predict                  a row of a batch alone; the model again with something changed; what it predicts
quantized placing                   packed weights; devices
model loading                       `Model` and `load`
"""

from __future__ import annotations

import importlib
from typing import Any

# The files whose names are names of the folder too, each fetched when first used: `mixlens.model.load`,
# `mixlens.model.Model`.
FILES = (
    *("loading", "model", "rerun", "predict", "tracing", "encode", "seam", "record", "passes", "parts", "user_code"),
    *("vocabulary", "attention", "placing", "quantized", "offload", "words", "families", "wrappers"),
)


def __getattr__(name: str) -> Any:
    if name in FILES:
        return importlib.import_module(f".{name}", __name__)
    for file in () if name.startswith("_") else FILES:
        names = vars(importlib.import_module(f".{file}", __name__))
        if name in names:
            return names[name]
    raise AttributeError(f"module 'mixlens.model' has no attribute {name!r}")
