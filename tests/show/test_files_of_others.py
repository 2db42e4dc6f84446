"""In Python, as on the command line, a result is not written over a file that is no result of mixlens, unless
`force`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made_values as made
import pytest
from typer.testing import CliRunner

import mixlens
from mixlens.base import errors
from mixlens.cli.app import app

TOLD = r"is there already and is no result of mixlens\. Give another name, or write over it: --force \(force=True\)\.$"
TEXT = "The keys [MASK] rusty."


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    trace = mixlens.load("agreement").trace(TEXT)
    whole = mixlens.mix(trace, "alti")
    heads = mixlens.mix(trace, "attention", head="all")
    return {"map": whole, "attribution": whole.readout(0), "heads": heads, "generation": made.generation()}


def ends_of(kind: str) -> list[tuple[str, str]]:
    """The writers of a kind of result, each with the end of its file."""
    more = [] if kind == "generation" else [("save", ".safetensors"), ("save", ".csv")]
    return [("save", ".json"), ("to_json", ".json"), ("to_csv", ".csv"), *more]


@pytest.mark.parametrize("kind", ["map", "attribution", "heads", "generation"])
def test_a_file_of_somebody_else_is_kept(kind: str, results: dict[str, Any], tmp_path: Path) -> None:
    for number, (writer, end) in enumerate(ends_of(kind)):
        place, write = tmp_path / f"{number}{end}", getattr(results[kind], writer)
        place.write_text("mine")
        with pytest.raises(errors.InputError, match=TOLD):
            write(place)
        assert place.read_text() == "mine"
        write(place, force=True)
        content = place.read_bytes()
        write(place)  # its own file is written again
        assert place.read_bytes() == content


def test_the_command_writes_over_a_file_where_it_is_told_to(tmp_path: Path) -> None:
    place = tmp_path / "x.json"
    for command in ("explain", "map"):
        place.write_text("mine")
        ran = CliRunner().invoke(app, [command, TEXT, "--save", str(place), "--force"])
        assert ran.exit_code == 0, ran.output
        assert place.read_text().startswith('{"kind": "')
