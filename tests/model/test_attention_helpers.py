"""A function that attention calls is replaced after a model was loaded: a trace would be of another model, and is
refused."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import CONFIGURATIONS, hf_model, ids, loaded
from torch import Tensor
from transformers.models.llama import modeling_llama

import mixlens
from mixlens.base import errors
from mixlens.model import user_code

OWN, OWN_SDPA, OWN_REPEAT = F.softmax, F.scaled_dot_product_attention, modeling_llama.repeat_kv


def without_first(logits: Tensor, dim: int = -1, **options: Any) -> Tensor:
    weights = OWN(logits, dim=dim, **options).clone()
    weights[..., 0] = 0
    return weights


@functools.wraps(OWN)
def borrowed(logits: Tensor, dim: int = -1, **options: Any) -> Tensor:
    return without_first(logits, dim=dim, **options)


def attended(*given: Any, **options: Any) -> Tensor:
    return 0.5 * OWN_SDPA(*given, **options)


def repeated(values: Tensor, count: int) -> Tensor:
    return OWN_REPEAT(values, count).flip(1)


@pytest.mark.parametrize(
    ("attention", "place", "name", "function"),
    [
        ("eager", F, "softmax", without_first),
        ("eager", F, "softmax", borrowed),
        ("eager", modeling_llama, "repeat_kv", repeated),
        ("sdpa", F, "scaled_dot_product_attention", attended),
    ],
)
def test_a_helper_that_is_replaced_after_loading_is_seen(
    attention: str, place: Any, name: str, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy.deepcopy(hf_model("llama", attention=attention)).float()
    lens = mixlens.load(model)
    expected = mixlens.mix(lens.trace(input_ids=ids(9)), "alti").scores
    with monkeypatch.context() as patch:
        patch.setattr(place, name, function)
        with pytest.raises(errors.ModelError, match=r"attention|does not match its parts"):
            mixlens.mix(lens.trace(input_ids=ids(9)), "alti")
    torch.testing.assert_close(mixlens.mix(lens.trace(input_ids=ids(9)), "alti").scores, expected)


def test_a_helper_that_does_the_same_is_compared_on_every_text(monkeypatch: pytest.MonkeyPatch) -> None:
    lens = mixlens.load(copy.deepcopy(hf_model("llama", attention="eager")).float())

    def softmax(logits: Tensor, dim: int = -1, **options: Any) -> Tensor:
        weights = OWN(logits, dim=dim, **options)
        return without_first(logits, dim=dim, **options) if logits.shape[-1] > 12 else weights

    monkeypatch.setattr(F, "softmax", softmax)
    lens.trace(input_ids=ids(9))
    with pytest.raises(errors.ModelError, match="attention"):
        lens.trace(input_ids=ids(14))


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_the_helpers_of_stock_models_are_trusted(case: str) -> None:
    assert not user_code.foreign_functions(loaded(case))
