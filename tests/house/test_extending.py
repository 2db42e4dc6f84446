"""What other packages add: a metric is one function, an experiment one declaration, and an entry point makes either
known."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import mixlens
from mixlens.base import errors
from mixlens.base import registry as registries

THEIR_METRIC = '''
from mixlens.metrics import metric

@metric(paper="Theirs 2026", needs=("scores",), better="higher")
def largest_share(scores, *, power: int = 1):
    """The largest score as a share of all."""
    values = abs(scores.to_numpy()) ** power
    return float(values.max() / values.sum())
'''
THEIR_EXPERIMENT = '''
import mixlens
from mixlens.runs.experiments import Table, experiment
from mixlens.types import Record

def finish(setup, records):
    rows = [(name, max(record.value for record in records if record.method == name)) for name in setup.methods]
    return [Table("largest", "The largest score", ("method", "largest"), tuple(rows))]

@experiment(
    name="theirs",
    paper="Theirs 2026",
    shows="Table 1",
    data="agreement",
    model="agreement",
    methods=("alti",),
    finish=finish,
)
def measure(setup, example):
    """How large the largest score is."""
    trace = setup.model.trace(example)
    return [Record(example.id, name, "largest", float(mixlens.mix(trace, name).scores.max())) for name in setup.methods]
'''


def package(folder: Path, name: str, source: str, group: str) -> None:
    """An installed package of one module, which it names as an entry point of the group."""
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}\n")


def run(folder: Path, code: str) -> list[str]:
    """The lines that a fresh Python prints, with the packages of the folder installed."""
    start = f"import sys\nsys.path.insert(0, {str(folder)!r})\n"
    command = [sys.executable, "-c", start + textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_metric_of_another_package_is_known_and_checked(tmp_path: Path) -> None:
    package(tmp_path, "their_metric", THEIR_METRIC, "mixlens.metrics")
    lines = run(
        tmp_path,
        """
        import torch
        from mixlens import MixlensError
        from mixlens.metrics import known, summary
        from mixlens.types import Attribution
        values = [Attribution(torch.tensor(row), ("a", "b"), "x") for row in ([3.0, 1.0], [1.0, 1.0])]
        print("largest_share" in known(), known()["largest_share"].summary)
        print(summary("largest_share", values).mean)
        for options in ({"power": "two"}, {"strength": 2}):
            try:
                summary("largest_share", values, **options)
            except MixlensError as error:
                print(error)
        """,
    )
    assert lines[0] == "True The largest score as a share of all."
    assert float(lines[1]) == 0.625  # (3/4 + 1/2) / 2, exact in binary
    assert lines[2] == "'power' of 'largest_share' is of type int, not str."
    assert lines[3].startswith("'largest_share' has no option 'strength'.")


def test_an_experiment_of_another_package_is_known_and_runs(tmp_path: Path) -> None:
    package(tmp_path, "their_experiment", THEIR_EXPERIMENT, "mixlens.experiments")
    lines = run(
        tmp_path,
        """
        from mixlens.runs.experiments import known, run
        print(known()["theirs"].summary)
        outcome = run("theirs", n=2, progress=False)
        (method, largest), = outcome.tables[0].rows
        print(len(outcome.records), method, largest == max(record.value for record in outcome.records) <= 1)
        """,
    )
    assert lines == ["How large the largest score is.", "2 alti True"]


@dataclass(frozen=True)
class Toy(registries.Registered):
    """An entry with nothing of its own."""


def toy(name: str, function: Any) -> Toy:
    return Toy(name, function, "Nobody 2026", ("paper", "released"), "0")


@pytest.fixture
def registry() -> registries.Registry[Toy]:
    """A registry whose folder registers nothing in it."""
    return registries.Registry("toy", folders=("mixlens.metrics",), group="mixlens.toys")


def test_a_function_is_registered_by_its_name_or_by_another(registry: registries.Registry[Toy]) -> None:
    @registry.register(toy)
    def first(values: Any, *, power: int = 2) -> None:
        """One line."""

    @registry.register(toy, name="second-toy")
    def second(values: Any) -> None: ...

    assert list(registry.known()) == ["first", "second-toy"]
    assert registry.find("first").function is first
    assert registry.find("second-toy").id == "second-toy"
    assert registry["first"].summary == "One line."
    assert registry["first"].arguments(None, {}) == {"power": 2}


@pytest.mark.parametrize("name", ["frist", 3, None, ["first"]])
def test_an_unknown_name_is_refused_with_the_nearest(registry: registries.Registry[Toy], name: Any) -> None:
    registry.add("first", toy("first", test_an_unknown_name_is_refused_with_the_nearest))
    with pytest.raises(errors.InputError, match=r"unknown toy .*Known: first\.") as refusal:
        registry.find(name)
    assert ("Did you mean 'first'?" in str(refusal.value)) == (name != 3 and name is not None)


def test_two_modules_do_not_share_a_name_and_one_may_register_again(registry: registries.Registry[Toy]) -> None:
    entry, other = toy("first", package), toy("first", textwrap.dedent)
    registry.add("first", entry)
    registry.add("first", toy("first", run))
    assert registry["first"].function is run
    with pytest.raises(mixlens.MixlensError, match=f"two toys are called 'first': in {__name__} and textwrap"):
        registry.add("first", other)


def test_the_order_of_a_registry_is_that_of_its_folder() -> None:
    """Whichever file was imported first: lists of methods are the same in every process."""
    code = "import importlib; importlib.import_module({!r}); from mixlens.scoring.maps import methods; print(methods())"
    orders = {
        subprocess.run([sys.executable, "-c", code.format(first)], capture_output=True, text=True, check=True).stdout
        for first in ("mixlens.methods.value_zeroing", "mixlens.methods.alti")
    }
    assert len(orders) == 1
