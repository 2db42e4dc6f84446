"""What is kept of modules between calls, and the probes that tell whether it may be used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixlens
from mixlens.base import rounding
from mixlens.model import kept as model_kept


def value_of(
    kept: model_kept.Kept, modules: list[nn.Module], calls: list[int], used: dict[Any, Any] | None = None
) -> int:
    """The value kept for these modules: how many values had been made before it."""

    def make() -> int:
        calls.append(len(calls))
        return calls[-1]

    return kept.recall(modules, ("x",), make, width=8, dtype=torch.float32, used={} if used is None else used)


def test_a_value_is_made_once_until_its_module_changes_or_is_forgotten() -> None:
    kept, module, calls = model_kept.Kept(), nn.Linear(8, 8), []
    used: dict[Any, Any] = {}
    assert [value_of(kept, [module], calls, used) for _ in range(3)] == [0, 0, 0]
    assert list(used) == [module]
    with torch.no_grad():
        module.weight.mul_(2)
    assert value_of(kept, [module], calls) == 1
    kept.forget(nn.Linear(8, 8))
    assert value_of(kept, [module], calls) == 1, "another module's values were forgotten"
    kept.forget(nn.Sequential(module))
    assert value_of(kept, [module], calls) == 2
    kept.forget()
    assert value_of(kept, [module], calls) == 3


def test_folded_values_go_when_a_norm_changes() -> None:
    kept, norm, output = model_kept.Kept(), nn.LayerNorm(8), nn.Linear(8, 8)
    options: dict[str, Any] = {"width": 8, "dtype": torch.float32}
    for _ in range(2):
        kept.recall([norm], ("norm",), lambda: 1, **options, used={})
        kept.recall([output], ("folded",), lambda: torch.zeros(3), **options, used={})
        assert kept.numbers("folded") == 3
        with torch.no_grad():
            norm.weight.mul_(2)
        kept.recall([norm], ("norm",), lambda: 1, **options, used={})
        assert kept.numbers("folded") == 0


def test_the_layers_of_a_model_lead_to_its_store() -> None:
    first, second = (mixlens.load("agreement", check=False) for _ in range(2))
    assert all(parts.kept is first.kept for parts in first.parts)
    assert first.kept is not second.kept
    assert first.graphs is first.kept.graphs is first.graphs


@pytest.mark.parametrize("change", ["one number of the weight", "one number of the bias", "eps", "eps of a norm"])
def test_a_probe_sees_small_changes(change: str) -> None:
    module: Any = nn.LayerNorm(64, eps=1e-12) if "eps" in change else nn.Linear(64, 64)
    probe = model_kept.Kept().probe(64, torch.float32, torch.device("cpu"))
    assert probe.shape == (1, 2, 64)
    before = model_kept.answer_of(module, probe)
    with torch.no_grad():
        if "eps" in change:
            module.eps = 1e-9  # beside a variance of 1 it is nothing, beside that of the small row it is something
        elif "bias" in change:
            module.bias[3] += 0.01
        else:
            module.weight[3, 5] += 0.01
    assert rounding.gap(model_kept.answer_of(module, probe), before) > rounding.SAME_ANSWER[torch.float32]
    assert rounding.gap(model_kept.answer_of(module, probe), model_kept.answer_of(module, probe)) == 0


def test_the_answer_of_a_module_that_hands_out_more_is_its_first_part() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x + 1, x - 1

    probe = model_kept.Kept().probe(4, torch.float64, torch.device("cpu"))
    assert torch.equal(model_kept.answer_of(Two(), probe), probe + 1)
