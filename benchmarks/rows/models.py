"""The models that are measured: BERT-base in shape, random weights with biases and norms that are not zero or one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor

import mixlens


@dataclass(frozen=True)
class Pair:
    """The stock model (its own fast attention), the same weights with attention written out, and ours around the
    first."""

    stock: Any
    eager: Any
    model: mixlens.Model

    def input(self, n: int) -> tuple[list[int], Tensor]:
        ids = torch.randint(1000, 20000, (n,), generator=torch.Generator().manual_seed(n)).tolist()
        return ids, torch.tensor([ids], device=self.stock.device)


def bert(device: str, **changes: Any) -> Pair:
    """Weights a little larger than at initialisation, so that attention is not uniform."""
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    options = {"initializer_range": 0.05, **changes}
    stock = transformers.BertModel(transformers.BertConfig(**options), add_pooling_layer=False).eval()
    for weights in stock.parameters():
        weights.requires_grad_(False)
        if weights.dim() == 1:
            weights.add_(0.05 * torch.randn(weights.shape))
    written_out: Any = {**options, "attn_implementation": "eager"}
    eager = transformers.BertModel(transformers.BertConfig(**written_out), add_pooling_layer=False)
    eager.load_state_dict(stock.state_dict())
    stock, eager = stock.to(device), eager.eval().requires_grad_(False).to(device)
    return Pair(stock, eager, mixlens.load(stock))
