"""A folder without any explained row blocks no other run; one with a row does."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mixlens
from mixlens.base.errors import InputError, MixlensError
from mixlens.runs.corpus import run

TEXTS = ["The keys were old.", "A dull film."]


@cache
def lens() -> Any:
    return mixlens.load("sentiment")


def done(out: Path, data: Any = TEXTS, **options: Any) -> Any:
    return run(data, model=lens(), methods="attention", out=out, progress=False, **options)


def names(out: Path) -> list[str]:
    return sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.name != ".lock")


def test_a_refused_query_leaves_nothing_that_blocks_the_corrected_one(tmp_path: Path) -> None:
    """Two kinds of reasons, so that a shard without rows is written."""
    texts = ["The keys were old.", "A dull film. " * 300]
    with pytest.raises(MixlensError, match="none of the 2 rows could be explained"):
        done(tmp_path, texts, query="zzz")
    assert (tmp_path / "errors.jsonl").read_text().count("\n") == 2
    assert len(list((tmp_path / "shards").iterdir())) == 1
    found = done(tmp_path, query=0)
    assert (found.rows, found.errors, found.aside) == (2, 0, ())
    assert len(list((tmp_path / "shards").iterdir())) == 1
    assert (tmp_path / "errors.jsonl").read_text() == ""
    assert json.loads((tmp_path / "manifest.json").read_text())["identity"]["options"]["query"] == 0


def test_a_strict_run_that_stopped_at_once_blocks_no_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="strict: nothing is left out"):
        done(tmp_path, ["A dull film. " * 300, *TEXTS], strict=True)
    fresh = tmp_path / "fresh"
    with pytest.raises(InputError, match="strict: nothing is left out"):
        done(fresh, ["A dull film. " * 300], strict=True, maps=True)
    assert done(fresh).rows == 2
    assert not (fresh / "maps").exists()


def test_a_folder_with_one_row_is_not_taken_over(tmp_path: Path) -> None:
    done(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path) if (tmp_path / name).is_file()}
    with pytest.raises(InputError, match="belongs to another run"):
        done(tmp_path, query=0)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_what_cannot_be_read_may_hold_rows(tmp_path: Path) -> None:
    done(tmp_path)
    (shard,) = (tmp_path / "shards").iterdir()
    shard.write_bytes(b"damaged")
    with pytest.raises(InputError, match="belongs to another run"):
        done(tmp_path, query=0)
    shard.unlink()  # the manifest still tells of its rows
    with pytest.raises(InputError, match="belongs to another run"):
        done(tmp_path, query=0)


def test_resume_never_takes_over(tmp_path: Path) -> None:
    with pytest.raises(MixlensError, match="none of the 2 rows"):
        done(tmp_path, query="zzz")
    with pytest.raises(InputError, match="belongs to another run"):
        done(tmp_path, query=0, resume=True)
    assert done(tmp_path, query=0).rows == 2
