"""What is kept of modules between calls, and the probes that tell whether it may be used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixlens.fast.kept import answer_of, forget, probe_of, recall
from mixlens.rounding import SAME_ANSWER, gap


def kept(module: nn.Module, made: list[int], used: dict[Any, Any]) -> int:
    def make() -> int:
        made.append(len(made))
        return made[-1]

    return recall([module], ("x",), make, width=8, dtype=torch.float32, used=used)


def test_a_value_is_made_once_until_its_module_changes_or_is_forgotten() -> None:
    module, made = nn.Linear(8, 8), []
    used: dict[Any, Any] = {}
    assert [kept(module, made, used) for _ in range(3)] == [0, 0, 0]
    assert list(used) == [module]
    with torch.no_grad():
        module.weight.mul_(2)
    assert kept(module, made, used) == 1
    forget(nn.Linear(8, 8))
    assert kept(module, made, used) == 1, "another model's values were forgotten"
    forget(nn.Sequential(module))
    assert kept(module, made, used) == 2


def test_values_of_several_modules_follow_each_of_them() -> None:
    modules, made = [nn.Linear(8, 8), nn.Linear(8, 8)], []

    def value() -> int:
        return recall(modules, ("x",), lambda: made.append(1) or len(made), width=8, dtype=torch.float32, used={})

    assert value() == value() == 1
    with torch.no_grad():
        modules[1].weight.mul_(2)
    assert value() == 2


@pytest.mark.parametrize("change", ["one number of the weight", "one number of the bias", "eps", "eps of a norm"])
def test_a_probe_sees_small_changes(change: str) -> None:
    module: Any = nn.LayerNorm(64, eps=1e-12) if "eps" in change else nn.Linear(64, 64)
    probe = probe_of(64, torch.float32, torch.device("cpu"))
    assert probe.shape == (1, 2, 64)
    before = answer_of(module, probe)
    with torch.no_grad():
        if "eps" in change:
            module.eps = 1e-9  # beside a variance of 1 it is nothing, beside that of the small row it is something
        elif "bias" in change:
            module.bias[3] += 0.01
        else:
            module.weight[3, 5] += 0.01
    assert gap(answer_of(module, probe), before) > SAME_ANSWER[torch.float32]
    assert gap(answer_of(module, probe), answer_of(module, probe)) == 0


def test_the_answer_of_a_module_that_hands_out_more_is_its_first_part() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x + 1, x - 1

    probe = probe_of(4, torch.float64, torch.device("cpu"))
    assert torch.equal(answer_of(Two(), probe), probe + 1)
