"""Models with a `forward` of a user's own around that of transformers: they load, and their numbers are the stock
model's."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import transformers
from conftest import hf_model, ids, loaded
from torch.testing import assert_close

import mixlens

CLASSIFIER = "AutoModelForSequenceClassification"
SEGMENTS = {"input_ids": ids(9), "token_type_ids": [0] * 4 + [1] * 5}


class AnyForSequenceClassification(transformers.BertForSequenceClassification):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


class NamedForSequenceClassification(transformers.BertForSequenceClassification):
    def forward(self, input_ids: Any = None, attention_mask: Any = None, **kwargs: Any) -> Any:
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, **kwargs)


class GuardedForSequenceClassification(transformers.BertForSequenceClassification):
    """It turns every error into one of its own."""

    def forward(self, input_ids: Any = None, **kwargs: Any) -> Any:
        try:
            return super().forward(input_ids=input_ids, **kwargs)
        except Exception as error:
            raise RuntimeError("the model failed") from error


def subclassed(kind: type) -> Any:
    stock = hf_model("bert", head=CLASSIFIER)
    model = kind(copy.deepcopy(stock.config)).double().eval()
    model.load_state_dict(stock.state_dict())
    return model


def patched(*, wraps: bool) -> Any:
    model = copy.deepcopy(hf_model("bert", head=CLASSIFIER))
    stock = model.forward

    def timed(*args: Any, **kwargs: Any) -> Any:
        return stock(*args, **kwargs)

    model.forward = functools.wraps(stock)(timed) if wraps else timed
    return model


@pytest.mark.parametrize(
    "made",
    [
        lambda: subclassed(AnyForSequenceClassification),
        lambda: subclassed(NamedForSequenceClassification),
        lambda: subclassed(GuardedForSequenceClassification),
        lambda: patched(wraps=True),
        lambda: patched(wraps=False),
    ],
    ids=["any name", "names", "guarded", "wraps", "patched"],
)
def test_numbers_are_those_of_the_stock_model(made: Callable[[], Any]) -> None:
    trace = mixlens.load(made()).trace(**SEGMENTS)
    stock = loaded("bert", head=CLASSIFIER).trace(**SEGMENTS)
    assert_close(trace.logits, stock.logits, rtol=0, atol=0)  # also the segments were read
    for name in ("alti", "value_zeroing", "hta_layer"):
        assert_close(mixlens.mix(trace, name).scores, mixlens.mix(stock, name).scores)


def test_a_forward_that_takes_few_names_gets_no_others() -> None:
    class Few(transformers.BertModel):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return super().forward(input_ids, attention_mask)

    assert mixlens.load(Few(hf_model("bert").config), check=False).accepts == {"input_ids", "attention_mask"}
