"""The shell completes the values of options: names of methods, metrics, experiments, papers and embedded models."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from mixlens import cli


def completed(words: str) -> list[str]:
    """What the Tab key offers in bash after these words; the last of them is being written."""
    count = len(words.split(" ")) - 1
    asked = {"_MIXLENS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    return CliRunner().invoke(cli.app, [], prog_name="mixlens", env=asked).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("mixlens explain x --model s", ["sentiment"]),
        ("mixlens why x -m a", ["agreement"]),
        ("mixlens experiment vz-accuracy --model s", ["sentiment"]),
        ("mixlens judge a", ["agreement"]),
        ("mixlens check a", ["agreement"]),
        ("mixlens explain x --method deep", ["deeplift"]),
        ("mixlens why x --method deep", ["deeplift"]),
        ("mixlens plot x --method alti,deep", ["alti,deeplift"]),
        ("mixlens compare x --methods alti,deep", ["alti,deeplift"]),
        ("mixlens report x --methods deep", ["deeplift"]),
        ("mixlens run x --methods deep", ["deeplift"]),
        ("mixlens judge sentiment --methods pe", ["peers"]),
        ("mixlens judge sentiment --metrics aopc,fil", ["aopc,fillers"]),
        ("mixlens judge sentiment --metrics decision", ["decision_flip"]),
        ("mixlens experiment vz-acc", ["vz-accuracy"]),
        ("mixlens reproduce glo", ["globenc"]),
        ("mixlens explain x --model folder", []),
    ],
)
def test_names_are_offered(words: str, offered: list[str]) -> None:
    assert completed(words) == offered
