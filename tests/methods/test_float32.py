"""Methods that need the whole model, in float32, the number type a user gets: against float64 from the same weights.

Maps that are scored layer by layer are in test_methods.py. What float64 gives is held against the papers, written out
on the stock model, in the files of each method."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from conftest import QUICK, hf_model, ids, loaded
from papers_written_out import same_weights
from test_hta import input_jacobians, layer_hta, pair_norm, wide

import mixlens
from mixlens.scoring import maps
from mixlens.scoring.attributions import known as attributions

CASES = ["bert", "gpt2", "llama"]
WHOLE = [name for name, method in maps.known().items() if method.whole]
VARIANTS = [(name, variant) for name, method in attributions().items() for variant in method.variants]


def near(made: torch.Tensor, exact: torch.Tensor, *, small: float = 1e-5) -> None:
    """Within 1e-4 of the score and `small` of the largest: a score is a sum over features of products of float32
    numbers, each right to 1e-7, behind three layers; a small score is a difference of large ones."""
    assert made.dtype == torch.float32
    apart = (made.double() - exact).abs() - 1e-4 * exact.abs() - small * exact.abs().max()
    assert float(apart.max()) <= 0


@pytest.mark.parametrize("case", CASES)
def test_hidden_token_attribution_is_the_norm_of_each_pairs_jacobian(case: str) -> None:
    """Alone and in a batch, against one backward pass for every feature of every token."""
    texts = [ids(3), ids(4, 1)]
    same_weights(hf_model(case), hf_model(case, dtype=torch.float32))
    same_weights(hf_model(case), hf_model(case, attention="eager"))
    narrow = loaded(case, dtype=torch.float32)
    assert WHOLE == ["hta_layer", "hta_layer_x_input", "hta"]
    for i, text in enumerate(texts):
        by_layer = layer_hta(wide(case), text)
        n, jacobians = len(text), input_jacobians(case, text, after=False)
        norms = [[[pair_norm(j[q, :, k], "frobenius") for k in range(n)] for q in range(n)] for j in jacobians]
        raw = torch.tensor(norms, dtype=torch.float64)
        expected = {"hta_layer": by_layer[0], "hta_layer_x_input": by_layer[1], "hta": raw / raw.sum(-1, keepdim=True)}
        for name, right in expected.items():
            near(mixlens.mix(narrow.trace(input_ids=text), name).scores, right)
            near(mixlens.mix(narrow.trace(input_ids=texts), name)[i].scores, right)


@pytest.mark.parametrize("name", WHOLE)
def test_what_needs_all_layers_is_not_streamed(name: str) -> None:
    with pytest.raises(mixlens.MixlensError, match=r"needs all layers at once: use mixlens\.mix"):
        loaded("bert", dtype=torch.float32).mix(input_ids=ids(3), name=name)


@cache
def traced(case: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Two texts, each alone in float64, each alone in float32, and both in a batch in float32, from the same
    weights."""
    head = "AutoModelForSequenceClassification"
    same_weights(hf_model(case, head=head), hf_model(case, head=head, dtype=torch.float32))
    exact, narrow = loaded(case, head=head), loaded(case, head=head, dtype=torch.float32)
    texts = [ids(5), ids(8, 1)]
    one_by_one = ([model.trace(input_ids=text) for text in texts] for model in (exact, narrow))
    return *one_by_one, narrow.trace(input_ids=texts)  # type: ignore[return-value]


@pytest.mark.filterwarnings(
    "ignore::mixlens.scoring.completeness.IncompleteWarning"
)  # eight steps are few, in both number types
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("name", "variant"), VARIANTS, ids=[f"{name}-{variant}" for name, variant in VARIANTS])
def test_attributions_in_float32_alone_and_in_a_batch(case: str, name: str, variant: str) -> None:
    options: dict[str, Any] = {"integrated_gradients": {"steps": 8}, "blank_out": {"replacement": 3}, **QUICK}.get(
        name, {}
    )
    if attributions()[name].needs_target:
        options = {**options, "target": 1}
    exact, narrow, batch = traced(case)
    expected = [mixlens.attribute(trace, name, variant=variant, **options).scores for trace in exact]
    alone = [mixlens.attribute(trace, name, variant=variant, **options) for trace in narrow]
    several = mixlens.attribute(batch, name, variant=variant, **options)
    for made in (alone, several):
        for one, right in zip(made, expected, strict=True):
            near(one.scores, right)
