"""Results to and from files and tables. Nothing that is loaded can run."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..base.errors import MixlensError, ResultError
from ..base.files import refuse_foreign, write
from ..base.optional import optional
from ..base.paths import is_file, is_folder, path_of
from ..base.wrong_kinds import wrong_kinds_in_one_line
from ..types import Attribution, HeadMaps, Map
from .result_facts import SCHEMA, Saved, WrongError, header_of, result_of
from .saving_text import content_of, csv_of, json_of

if TYPE_CHECKING:
    import pandas

WRITTEN = {".json": json_of, ".csv": csv_of}  # text files, by their ends
SUFFIXES = (".safetensors", *WRITTEN)
FAULTS = (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError, OverflowError)
ANSWER = "why"  # the kind of a JSON file that holds an answer


@wrong_kinds_in_one_line
def save(result: Saved, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write one file with the scores and all facts about them; .csv has the scores alone. It is whole, or it is not there. A file
    that is no result of mixlens is kept, unless `force`."""
    place = _checked_place(path)
    refuse_foreign(place, force=force)
    try:
        write(place, WRITTEN[place.suffix](result).encode() if place.suffix in WRITTEN else partial(_write, result))
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ResultError(f"the result could not be written to {str(place)!r}: {reason}.") from error


def _write(result: Saved, place: Path) -> None:
    """Write tensors and facts as safetensors."""
    metadata = {"mixlens": json.dumps(header_of(result), ensure_ascii=False)}
    tensors = {f"info.{key}": value.contiguous() for key, value in result.info.items() if isinstance(value, Tensor)}
    save_file({"scores": result.scores.cpu().contiguous(), **tensors}, place, metadata=metadata)


def _checked_place(path: str | os.PathLike[str]) -> Path:
    place = path_of(path)
    if place.suffix not in SUFFIXES:
        raise ResultError(f"a result is saved as .safetensors, .json or .csv, not {place.name!r}.")
    if not is_folder(place.parent):
        raise ResultError(f"no folder {str(place.parent)!r} to save in.")
    return place


def saved_or_text(
    result: Saved, path: str | os.PathLike[str] | None, suffix: str, *, force: bool = False
) -> str | None:
    """The text of a result; with a path nothing, and the text is written there."""
    if path is None:
        return WRITTEN[suffix](result)
    place = path_of(path)
    if place.suffix != suffix:
        raise ResultError(f"a file for this ends in {suffix}, and {place.name!r} does not.")
    save(result, place, force=force)
    return None


def load_result(path: str | os.PathLike[str]) -> Any:
    """The Map, HeadMaps or Attribution that `.save` wrote as .safetensors or .json, bit for bit; or the `Why` of a JSON file.

    A file with anything that these do not write is refused.
    """
    place = path_of(path)
    if not is_file(place):
        raise ResultError(f"no file {str(place)!r}.")
    if place.suffix == ".csv":
        raise ResultError(
            f"{place.name!r}: a table has the scores alone. Save a result as .safetensors or .json to load it again."
        )
    if place.suffix == ".json" and (answer := _answer(place)) is not None:
        return answer
    try:
        return result_of(*_content(place))
    except MixlensError:
        raise
    except FAULTS as error:
        fault = str(error) if isinstance(error, WrongError) else type(error).__name__
        raise ResultError(f"{place.name!r} is not a mixlens result (or is damaged): {fault}.") from error


def _answer(place: Path) -> Any:
    """The `Why` of a JSON file; None where the file does not say that it holds one."""
    from ..answers import from_dict

    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return None
    return from_dict(content) if isinstance(content, dict) and content.get("kind") == ANSWER else None


def _content(place: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a file, unchecked but for the schema."""
    if place.suffix == ".json":
        return content_of(place.read_text(encoding="utf-8"), place.name)
    with safe_open(place, framework="pt") as file:
        header = json.loads((file.metadata() or {})["mixlens"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    if header["schema"] != SCHEMA:
        raise ResultError(f"{place.name!r} has schema {header['schema']}; this mixlens reads {SCHEMA}.")
    return header, tensors


def _pandas() -> Any:
    return optional("pandas", "pandas", "pandas", what="tables", error=MixlensError)


def map_frame(scores: Map) -> pandas.DataFrame:
    """A table with one row per layer, query and key."""
    depth, n, _ = scores.scores.shape
    layer, query, key = (
        axis.flatten().numpy() for axis in torch.meshgrid(*map(torch.arange, (depth, n, n)), indexing="ij")
    )
    tokens = list(scores.tokens)
    return _pandas().DataFrame(
        {
            "layer": layer,
            "query": query,
            "key": key,
            "query_token": [tokens[i] for i in query],
            "key_token": [tokens[i] for i in key],
            "score": scores.to_numpy().reshape(-1),
        }
    )


def heads_frame(heads: HeadMaps) -> pandas.DataFrame:
    """A table with one row per layer, head, query and key."""
    counts = map(torch.arange, heads.scores.shape)
    layer, head, query, key = (axis.flatten().numpy() for axis in torch.meshgrid(*counts, indexing="ij"))
    names = {f"{side}_token": [heads.tokens[i] for i in places] for side, places in (("query", query), ("key", key))}
    places = {"layer": layer, "head": head, "query": query, "key": key}
    return _pandas().DataFrame({**places, **names, "score": heads.to_numpy().reshape(-1)})


def attribution_frame(scores: Attribution) -> pandas.DataFrame:
    """A table with one row per token."""
    return _pandas().DataFrame(
        {"position": range(len(scores.tokens)), "token": list(scores.tokens), "score": scores.to_numpy()}
    )
