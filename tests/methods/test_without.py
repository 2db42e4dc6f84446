"""Which families take Value Zeroing's quick way (tests/fast/test_equals_plain.py compares its numbers with the plain
way)."""

from __future__ import annotations

import pytest
import torch
from conftest import CONFIGURATIONS, ROUNDED_NORMS, ids, loaded

from mixlens.fast import block as fast_block
from mixlens.fast import zeroing


@pytest.mark.parametrize("case", list(CONFIGURATIONS))
def test_first_product_put_together_is_the_first_product(case: str) -> None:
    for layer in loaded(case).trace(input_ids=ids(9)).layers:
        block = fast_block.Block(layer)
        with torch.no_grad():
            for sources in (slice(0, 4), slice(4, 9)):
                tile = block.by_source[..., sources, :, :] @ block.head_vectors[..., sources, :, :]
                plain = block.after_attention(block.attention_output.unsqueeze(-3) - tile)
                # These norms of transformers round to float32 inside; ours does not.
                loose = 1e-5 if case in ROUNDED_NORMS else 1e-11
                torch.testing.assert_close(zeroing.without(block, sources, tile), plain, rtol=loose, atol=loose)


def test_families_with_one_norm_in_between_take_the_quick_way() -> None:
    """The others norm what attention wrote, or their feed-forward does not read it."""
    for case in CONFIGURATIONS:
        model = loaded(case)
        block = fast_block.Block(model.trace(input_ids=ids(5)).layers[1])
        slow = model.family.parallel or model.family.norm_on_attention is not None
        with torch.no_grad():
            assert (block.first_product is None) == slow, case
