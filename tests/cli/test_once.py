"""A command runs the model once, and decomposes and proves each layer once, whatever it shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import needs_fast
from test_cli import SENTENCE, run

import mixlens
from mixlens.cli import options as asked
from mixlens.fast import block
from mixlens.show import tables

DEPTH = 4  # layers of the embedded model

pytestmark = needs_fast


@pytest.fixture(scope="module")
def lens() -> mixlens.Model:
    return mixlens.load("agreement", dtype="float64")


@pytest.fixture
def counts(lens: mixlens.Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Forward passes and blocks of a command that finds its model loaded and proven."""
    counts = {"passes": 0, "blocks": 0}
    construct = block.Block.__init__

    def counted(self: block.Block, *arguments: Any, **options: Any) -> None:
        counts["blocks"] += 1
        construct(self, *arguments, **options)

    def passed(*_: Any) -> None:
        counts["passes"] += 1

    monkeypatch.setattr(asked.LoadOptions, "timed_load", lambda *_, **__: (lens, {}))
    monkeypatch.setattr(block.Block, "__init__", counted)
    hook = lens.hf_model.register_forward_pre_hook(passed)
    yield counts
    hook.remove()


@pytest.mark.parametrize(
    "words",
    [
        ("explain", SENTENCE),
        ("explain", SENTENCE, "--layers", "--map", "-1"),
        ("map", SENTENCE, "--rollout"),
        ("compare", SENTENCE, "--methods", "attention,globenc,alti,norm"),
    ],
    ids=["explain", "explain-layers-map", "map", "compare"],
)
def test_one_pass_and_one_block_a_layer(words: tuple[str, ...], counts: dict[str, int]) -> None:
    run(*words)
    assert counts == {"passes": 1, "blocks": DEPTH}


def test_methods_of_other_options_are_scored_apart(lens: mixlens.Model) -> None:
    """Each map is that of its own options, as alone (float64: the order of sums may differ)."""
    from mixlens.cli import scores as scored
    from mixlens.scoring import command_words

    trace = lens.trace(SENTENCE)
    requests = command_words.methods_of("alti,alti:variant=released,globenc,random:seed=3,random")
    for request, scores in zip(requests.values(), scored.maps_of(trace, requests.values()), strict=True):
        alone = mixlens.mix(trace, request.name, variant=request.variant, **request.options)
        torch.testing.assert_close(scores.scores, alone.scores, rtol=1e-10, atol=1e-12)
        assert scores.info["options"] == alone.info["options"]
        assert scores.info["variant"] == alone.info["variant"]


def test_tables_are_aligned_or_stacked() -> None:
    rows = [("name", "what it is"), ("a", "first"), ("longer", "")]
    assert tables.aligned(rows) == ["name    what it is", "a       first", "longer  "]
    assert tables.listed(rows, 18) == ["name    what it is", "a       first", "longer"]
    assert tables.listed(rows, 17) == ["name", "    what it is", "a", "    first", "longer"]
