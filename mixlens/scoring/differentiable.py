"""A block in which gradients can be taken, whatever the caller has switched off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch

from ..model.model import Model


@contextmanager
def differentiable(models: Sequence[Model]) -> Iterator[None]:
    """Torch's default settings for gradients, whatever the caller has set: they are recorded, also under `no_grad` and
    `inference_mode`, in the model's precision, not that of `autocast`. A compiled module runs as it was written."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in {"cpu", *(model.device.type for model in models)}:
            if torch.amp.is_autocast_available(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield
