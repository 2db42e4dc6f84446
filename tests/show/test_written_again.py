"""The files of a written text are known as results of mixlens, so that a command may write them again."""

from __future__ import annotations

from pathlib import Path

import made_values as made
import pytest

from mixlens.base import files


@pytest.mark.parametrize("name", ["x.csv", "x.CSV", "x.json"])
def test_a_written_text_may_be_written_again(name: str, tmp_path: Path) -> None:
    """Capital letters in the end of a file's name change nothing."""
    generation, place = made.generation(), tmp_path / name
    place.write_text(generation.to_csv() if name[2:].lower() == "csv" else generation.to_json(), encoding="utf-8")
    files.refuse_foreign(place, force=False)
