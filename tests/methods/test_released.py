"""Released forms of gradients, written out on the stock model: the embeddings' output goes through the embeddings
again."""

from __future__ import annotations

import pytest
import torch
from conftest import hf_model, ids

import mixlens

HEAD = "AutoModelForSequenceClassification"


def test_released_gradients_are_of_what_is_embedded_twice() -> None:
    """Of the class's probability; a length or a product without its sign, shares of their sum."""
    stock = hf_model("bert", head=HEAD)
    trace = mixlens.load(stock).trace(input_ids=ids(6))
    once = trace.layers[0].input[None].detach().clone().requires_grad_()
    with torch.enable_grad():
        probability = stock(inputs_embeds=once).logits[0].softmax(-1)[1]
        (gradient,) = torch.autograd.grad(probability, [once])
    steepness, product = gradient[0].norm(dim=-1), (gradient[0] * once[0].detach()).sum(-1).abs()
    for name, expected in (("grad_l2", steepness), ("grad_x_input", product)):
        made = mixlens.attribute(trace, name, variant="released", target=1).scores
        torch.testing.assert_close(made, expected / expected.sum(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["grad_l2", "grad_x_input", "integrated_gradients"])
def test_what_cannot_be_embedded_twice_is_refused(name: str) -> None:
    """No layers; no embeddings of another width than the layers, as ELECTRA's."""
    whole, narrow = (mixlens.load(hf_model(case, head=HEAD)).trace(input_ids=ids(5)) for case in ("bert", "electra"))
    for trace, options in ((whole, {"layer": 1}), (narrow, {})):
        with pytest.raises(mixlens.MixlensError, match="the released form embeds twice"):
            mixlens.attribute(trace, name, variant="released", target=1, **options)
