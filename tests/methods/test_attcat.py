"""AttCAT and the attention baselines beside it: the share of one layer, and the released forms."""

from __future__ import annotations

import pytest
import torch
from conftest import hf_model, ids

import mixlens


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("name", ["cat", "attcat"])
def test_one_layers_share_is_its_row_of_all(name: str, variant: str) -> None:
    """Layers are counted from 0; the number after the last, hidden states that leave the model, is the last layer's
    share."""
    model = mixlens.load(hf_model("bert", head="AutoModelForSequenceClassification"))
    trace = model.trace(input_ids=ids(6))
    whole = mixlens.attribute(trace, name, variant=variant)
    shares = whole.info["per_layer"]
    assert shares.shape == (3, 6)
    torch.testing.assert_close(shares.sum(0), whole.scores, rtol=1e-12, atol=1e-12)
    for layer, row in ((0, 0), (1, 1), (2, 2), (3, 2), (-1, 2), (-4, 0)):
        made = mixlens.attribute(trace, name, variant=variant, layer=layer)
        torch.testing.assert_close(made.scores, shares[row], rtol=0, atol=0)
        assert made.info["at_layer"] == layer % 4
    for layer in (4, -5):
        with pytest.raises(mixlens.MixlensError, match=f"layer {layer} is out of range"):
            mixlens.attribute(trace, name, variant=variant, layer=layer)
