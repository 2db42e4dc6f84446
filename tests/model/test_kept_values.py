"""What is kept of modules between calls, and the probes that tell whether it may be used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixlens
from mixlens.base import rounding
from mixlens.fast import probes
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


def test_two_stores_share_nothing() -> None:
    module, calls, stores = nn.Linear(8, 8), [], (model_kept.Kept(), model_kept.Kept())
    assert [value_of(kept, [module], calls) for kept in stores] == [0, 1]
    stores[0].forget()
    assert [value_of(kept, [module], calls) for kept in stores] == [2, 1]


def test_values_of_several_modules_follow_each_of_them() -> None:
    kept, modules, calls = model_kept.Kept(), [nn.Linear(8, 8), nn.Linear(8, 8)], []
    assert [value_of(kept, modules, calls) for _ in range(2)] == [0, 0]
    with torch.no_grad():
        modules[1].weight.mul_(2)
    assert value_of(kept, modules, calls) == 1


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


def test_a_memory_that_is_held_outlives_forgetting() -> None:
    kept, module, calls = model_kept.Kept(), nn.Linear(8, 8), []
    value_of(kept, [module], calls)
    (memory,) = kept.memories_of([module])
    kept.forget()
    assert memory is not None
    assert memory.values
    assert kept.memories_of([module]) == [None]


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


def test_answers_of_one_kind_are_compared_at_once_and_the_largest_change_counts() -> None:
    """Whichever module changed, by its `.data`, which torch does not count."""
    modules = [nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)]
    kept, used, like = model_kept.Kept(), dict[Any, Any](), torch.zeros(1)
    value_of(kept, modules, [], used)
    assert probes.changes_of(used, like) == []
    for changed, by in zip(modules, (1e-3, 1e-2, 1e-4, 1e-1), strict=True):
        changed.weight.data[0] += by
        expected: dict[int, float] = {}
        for module, memory in used.items():
            now = model_kept.answer_of(module, memory.probe)
            change = rounding.gap(now, memory.answer) / rounding.SAME_ANSWER[torch.float32]
            expected[now.shape[-1]] = max(change, expected.get(now.shape[-1], 0.0))
        found = [float(one) for one in probes.changes_of(used, like)]
        # A kind whose answers are all the same is left out; float32, and the sums of a row in another order.
        assert found == pytest.approx([change for change in expected.values() if change], rel=1e-5)
        assert max(found) > 1
