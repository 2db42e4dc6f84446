"""Results to and from files and tables. safetensors only: nothing that is loaded can run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .disk import write
from .errors import MixlensError, ResultError
from .types import Attribution, Map, Result

if TYPE_CHECKING:
    import pandas

KINDS: dict[str, type[Map] | type[Attribution]] = {"Map": Map, "Attribution": Attribution}
SCHEMA = 1


def save(result: Result, path: str | os.PathLike[str]) -> None:
    """One file with the scores and all that is known about them, whole or not there."""
    place = Path(path)
    if place.suffix != ".safetensors":
        raise ResultError(f"a result is saved as .safetensors, not {place.name!r}. For a table use .to_pandas().")
    if not place.parent.is_dir():
        raise ResultError(f"no folder {str(place.parent)!r} to save in.")
    tensors = {"scores": result.scores.cpu().contiguous()}
    plain: dict[str, Any] = {}
    for key, value in result.info.items():
        if isinstance(value, Tensor):
            tensors[f"info.{key}"] = value.contiguous()
        else:
            plain[key] = value
    told = {
        "kind": type(result).__name__,
        "schema": SCHEMA,
        "tokens": list(result.tokens),
        "method": result.method,
        "info": plain,
        "special": list(result.special),
        "words": result.words,
    }
    head = {"mixlens": json.dumps(told, ensure_ascii=False)}
    try:
        write(place, lambda beside: save_file(tensors, beside, metadata=head))
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ResultError(f"the result could not be written to {str(place)!r}: {reason}.") from error


def load_result(path: str | os.PathLike[str]) -> Result:
    """The Map or Attribution that `.save` wrote, bit for bit."""
    place = Path(path)
    if not place.is_file():
        raise ResultError(f"no file {str(place)!r}.")
    try:
        with safe_open(place, framework="pt") as file:
            told = json.loads((file.metadata() or {})["mixlens"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
        if told["schema"] != SCHEMA:
            raise ResultError(f"{place.name!r} has schema {told['schema']}; this mixlens reads {SCHEMA}.")
        info = told["info"] | {key.removeprefix("info."): value for key, value in tensors.items() if key != "scores"}
        if "prediction" in info:
            info["prediction"] = [(word, probability) for word, probability in info["prediction"]]
        words = None if told["words"] is None else tuple((word, tuple(places)) for word, places in told["words"])
        return KINDS[told["kind"]](tensors["scores"], tuple(told["tokens"]), told["method"], info, tuple(told["special"]), words)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, MixlensError):
            raise
        raise ResultError(f"{place.name!r} is not a mixlens result (or is damaged): {type(error).__name__}.") from error


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise MixlensError("tables need pandas: pip install 'mixlens[pandas]'.") from None
    return pandas


def map_frame(scores: Map) -> pandas.DataFrame:
    depth, n, _ = scores.scores.shape
    layer, query, key = (axis.flatten().numpy() for axis in torch.meshgrid(*map(torch.arange, (depth, n, n)), indexing="ij"))
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


def attribution_frame(scores: Attribution) -> pandas.DataFrame:
    return _pandas().DataFrame({"position": range(len(scores.tokens)), "token": list(scores.tokens), "score": scores.to_numpy()})
