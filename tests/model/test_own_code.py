"""A function of the user's is known by what it does: another body, another number or another helper is another function, in every
process the same; a moved line, a count of its calls and an address are not."""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
import textwrap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import hf_model
from torch import nn

import mixlens
from mixlens.model.described import module_facts
from mixlens.model.own_code import code_print

ONE = "def hook(module, args, output):\n    return output * 2.0\n"
METHOD = """
class Hook:
    def __call__(self, module, args, output):
        return self.scaled(output)

    def scaled(self, output):
        return output * 2

hook = Hook()
"""
STATIC = """
class Hook:
    moved = 0.5

    def __call__(self, module, args, output):
        return self.scaled(output) + self.moved

    @staticmethod
    def scaled(output):
        return output * 2

hook = Hook()
"""
ATTRIBUTE = """
class Hook:
    def __init__(self, by):
        self.by = by

    def on(self, module, args, output):
        return output * self.by

hook = Hook(2.0).on
"""
MODULE = """
from torch import nn

class hook(nn.Module):
    def forward(self, x):
        return self.moved(x)

    def moved(self, x):
        return x + 1
"""
BEFORE_AND_AFTER = {
    "a number": (ONE, ONE.replace("2.0", "3.0")),
    "an operation": (ONE, ONE.replace("*", "+")),
    "a name": ("def hook(m, a, o):\n    return o.sin()\n", "def hook(m, a, o):\n    return o.cos()\n"),
    "a default": ("def hook(m, a, o, by=2.0):\n    return o * by\n", "def hook(m, a, o, by=3.0):\n    return o * by\n"),
    "an option": (
        "def hook(m, a, o, *, by=2.0):\n    return o * by\n",
        "def hook(m, a, o, *, by=3.0):\n    return o * by\n",
    ),
    "a helper": (
        "def helper(x):\n    return x + 1\ndef hook(m, a, o):\n    return helper(o)\n",
        "def helper(x):\n    return x + 2\ndef hook(m, a, o):\n    return helper(o)\n",
    ),
    "a global": (
        "BY = 2.0\ndef hook(m, a, o):\n    return o * BY\n",
        "BY = 3.0\ndef hook(m, a, o):\n    return o * BY\n",
    ),
    "a variable of the function around it": (
        "def made(by):\n    def hook(m, a, o):\n        return o * by\n    return hook\nhook = made(2)\n",
        "def made(by):\n    def hook(m, a, o):\n        return o * by\n    return hook\nhook = made(3)\n",
    ),
    "a lambda": ("hook = lambda m, a, o: o * 2\n", "hook = lambda m, a, o: o * 3\n"),
    "a function inside": (
        "def hook(m, a, o):\n    return list(map(lambda x: x * 2, o))\n",
        "def hook(m, a, o):\n    return list(map(lambda x: x * 3, o))\n",
    ),
    "a method": (METHOD, METHOD.replace("* 2", "* 3")),
    "a static method": (STATIC, STATIC.replace("* 2", "* 3")),
    "a number of the class": (STATIC, STATIC.replace("0.5", "0.25")),
    "an attribute": (ATTRIBUTE, ATTRIBUTE.replace("2.0", "3.0")),
    "a whole attribute": (ATTRIBUTE.replace("2.0", "2"), ATTRIBUTE.replace("2.0", "3")),
}


def made(source: str) -> Any:
    """The function `hook` of a module of the user's."""
    names: dict[str, Any] = {"__name__": "of_the_user"}
    exec(compile(source, "of_the_user.py", "exec"), names)
    return names["hook"]


@pytest.mark.parametrize("what", BEFORE_AND_AFTER)
def test_another_function_of_the_same_name_has_another_print(what: str) -> None:
    before, after = map(made, BEFORE_AND_AFTER[what])
    assert getattr(before, "__qualname__", "Hook") == getattr(after, "__qualname__", "Hook")
    assert code_print(before) == code_print(made(BEFORE_AND_AFTER[what][0])), "the same source is another function"
    assert code_print(before) != code_print(after)
    assert code_print(functools.partial(before)) != code_print(functools.partial(after))


def test_values_are_told_apart_where_that_is_cheap() -> None:
    def steering(by: Any) -> Callable[..., Any]:
        return lambda module, args, output: output + by

    told = [
        *(
            torch.ones(3),
            torch.zeros(3),
            torch.ones(4),
            torch.ones(3).double(),
            torch.ones(3).bfloat16(),
            torch.ones(3, device="meta"),
        ),
        *(
            1,
            1.0,
            2,
            True,
            "a",
            b"a",
            None,
            (1, 2),
            (1, 3),
            frozenset({1}),
            [],
            {},
            nn.Linear(2, 2),
            nn.ReLU(),
            torch.ones_like,
        ),
    ]
    prints = [code_print(steering(value)) for value in told]
    assert len(set(prints)) == len(told)
    assert prints == [code_print(steering(copy.deepcopy(value))) for value in told]
    assert code_print(functools.partial(made(ONE), 1)) != code_print(functools.partial(made(ONE), 2))
    assert code_print(functools.partial(made(ONE), by=1)) != code_print(functools.partial(made(ONE), by=2))


def test_what_changes_no_number_changes_no_print() -> None:
    moved = made("\n\n# a word\n" + ONE.replace("    return", "    # another\n    return"))
    assert code_print(moved) == code_print(made(ONE))
    count = 0
    kept: list[Any] = []

    def counting(module: Any, args: Any, output: Any) -> None:
        nonlocal count
        count += 1
        kept.append(output)

    class Counting:
        def __init__(self) -> None:
            self.calls, self.last = 0, None

        def __call__(self, module: Any, args: Any, output: Any) -> None:
            self.calls += 1
            self.last = output

    counts, state = Counting(), SimpleNamespace(last=None)

    def keeping(module: Any, args: Any, output: Any) -> None:
        state.last = output

    hooks = counting, counts, keeping
    before = list(map(code_print, hooks))
    for hook in hooks:
        hook(None, None, torch.ones(1))
    assert (count, len(kept), counts.calls, state.last, counts.last) == (1, 1, 1, torch.ones(1), torch.ones(1))
    assert list(map(code_print, hooks)) == before


def test_functions_that_hold_themselves_and_code_that_is_not_pythons_have_a_print() -> None:
    def around(module: Any, args: Any, output: Any) -> Any:
        return around

    again = made("def hook(m, a, o):\n    return hook\n")
    assert len({code_print(one) for one in (around, again, torch.relu, len, nn.ReLU().forward)}) == 5


def test_many_functions_that_call_one_another_are_told_once_each() -> None:
    source = "".join(
        f"def f{number}(x):\n    return f{(number + 1) % 40}(x) + f{(number + 2) % 40}(x) + f{(number * 7) % 40}(x)\n"
        for number in range(40)
    )
    one, other = (made(f"{source.replace('f39(x):', f'f39(x, y={y}):')}hook = f0\n") for y in (1, 2))
    assert code_print(one) != code_print(other)


def test_another_process_gives_the_same_print() -> None:
    """Sets in constants have another order in every process."""
    source = "def hook(m, a, o):\n    return o in {'a', 'b', 'c', 'd', 'e', 1, 2.0, (3, 4)}\n"
    code = f"names = {{'__name__': 'of_the_user'}}\nexec({source!r}, names)\nfrom mixlens.model.own_code import code_print\n"
    said = {
        subprocess.run(
            [sys.executable, "-c", f"{code}print(code_print(names['hook']))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(3)
    }
    assert said == {f"{code_print(made(source))}\n"}


def hook_on(source: str) -> list[str]:
    lens = mixlens.load(copy.deepcopy(hf_model("bert")), check=False)
    lens.hf_model.encoder.layer[1].register_forward_hook(made(textwrap.dedent(source)))
    return module_facts(lens)


def test_a_model_with_another_hook_of_the_same_name_and_place_is_another() -> None:
    assert hook_on(ONE) == hook_on(ONE)
    one, other = hook_on(ONE), hook_on(ONE.replace("2.0", "3.0"))
    assert len(set(one) ^ set(other)) == 2
    assert all(line.startswith("encoder.layer.1: hook: hook ") for line in set(one) ^ set(other))


def test_a_helper_method_of_a_module_of_the_users_is_part_of_it() -> None:
    facts = []
    for source in (MODULE, MODULE.replace("+ 1", "+ 2")):
        lens = mixlens.load(copy.deepcopy(hf_model("bert")), check=False)
        lens.hf_model.encoder.layer[1].intermediate.intermediate_act_fn = made(source)()
        facts.append(module_facts(lens))
    assert len(set(facts[0]) ^ set(facts[1])) == 2
