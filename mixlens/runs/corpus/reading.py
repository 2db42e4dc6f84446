"""One pass over the shards of a run, finished or not."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...base.errors import MixlensError, ResultError
from ...base.files import RunFolder
from .counts import NAMES, drop_rarest
from .plan import WORDS
from .row_words import word_columns
from .shards import SCHEMA, CorpusFolder, facts_of, refuse_changed, rows_in, shard_files

KIND = 80  # letters of a reason


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, if it is a mapping; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def names(value: Any) -> list[str]:
    """The entries of a list as strings; none where it is no list."""
    return list(map(str, value)) if isinstance(value, list) else []


def manifest_of(out: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a corpus run; refused where the folder is none."""
    shard_files(out)
    manifest = RunFolder(Path(out)).manifest
    identity = mapping(manifest.get("identity"))
    if identity.get("kind") != "corpus" or not isinstance(identity.get("methods"), list):
        raise ResultError(f"{str(out)!r} is not the folder of a corpus run.")
    if manifest.get("schema") != SCHEMA:
        raise ResultError(f"{str(out)!r} has schema {manifest.get('schema')!r:.40}; this mixlens reads {SCHEMA}.")
    return manifest


def methods_of(manifest: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in manifest["identity"]["methods"]]


def visit_rows(
    out: str | os.PathLike[str], manifest: Mapping[str, Any], visitor: Callable[[Mapping[str, Any], str], Any]
) -> Counter[str]:
    """Call `visitor(row, file)` for every row there is. The reasons of rows that could not be explained, with their
    counts. The words of a row that an earlier version wrote are found again here."""
    reasons: Counter[str] = Counter()
    listed, _ = CorpusFolder(Path(out)).listed()
    for path in shard_files(out):
        refuse_changed(path, listed)
        facts = facts_of(path)
        if "run" in manifest and facts.get("run") != manifest["run"]:
            raise ResultError(
                f"{path.name!r} is a shard of another run. Give the run's command again: it is moved aside."
            )
        try:
            reasons.update(kind(str(row["reason"])) for row in facts["errors"])
            for row in rows_in(path):
                visitor(row if row.get(WORDS) is not None else {**row, **word_columns(row)}, path.name)
        except MixlensError:
            raise
        except (KeyError, TypeError, ValueError, IndexError) as error:
            said = f"{type(error).__name__}: {error!s:.80}"
            raise ResultError(f"{path.name!r} does not hold what a run writes ({said}).") from None
        drop_rarest(reasons, NAMES)
    return reasons


def kind(reason: str) -> str:
    """A reason without its numbers and values, so that rows that are alike count as one."""
    without = re.sub(r"""(holds \w+) (?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", r"\1", reason)
    kind_of = re.sub(r"0x[0-9a-f]+|\d+(,\d+)*", "N", without)
    return kind_of if len(kind_of) <= KIND else f"{kind_of[: KIND - 1]}…"
