"""A Generation as plain JSON types, as text, as CSV, and read back."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...base.errors import ResultError
from ...base.files import refuse_foreign, write
from ...base.paths import is_file, is_folder
from ...scoring.provenance import public_name
from ...types import Attribution
from .leaving_out import Effects
from .text import Group, Word, WrittenText
from .wording import QUESTION, answer, group_title, own_shares, prompt_shares

if TYPE_CHECKING:
    from .value import Generation

SCHEMA = 1
KEPT = (  # facts of `.info` that go into the file, if they are plain
    *(
        "model",
        "revision",
        "family",
        "task",
        "dtype",
        "quantization",
        "versions",
        "check",
        "tolerance",
        "method",
        "paper",
    ),
    *("variant", "options", "score", "convention", "rollout", "layer", "gap", "causal", "precision"),
)


def to_dict(generation: Generation) -> dict[str, Any]:
    """Everything as plain JSON types."""
    text, info = generation.text, generation.info
    return {
        "kind": "generation",
        "schema": SCHEMA,
        "model": public_name(info.get("model") or ""),
        "task": "causal-lm",
        "text": text.prompt,
        "pair": text.pair,
        "written": text.written,
        "given": generation.given,
        "cut": generation.cut,
        "question": QUESTION,
        "sentence": generation.sentence,
        "parts": [list(part) for part in answer(generation).parts],
        "unit": text.unit,
        "tokens": list(text.tokens),
        "begin": text.begin,
        "words": [{**asdict(word), "tokens": list(word.tokens)} for word in text.words],
        "groups": [_group(group, number, text.groups) for number, group in enumerate(text.groups)],
        "spans": [_group(group, number, text.spans) for number, group in enumerate(text.spans)],
        "rows": _rows(generation),
        "filler": None if generation.effects is None else generation.effects.replacement,
        "signed": generation.signed,
        "is_map": generation.is_map,
        "method": {"id": generation.method, "paper": info.get("paper")},
        "probabilities": list(generation.probabilities),
        "scores": generation.scores.tolist(),
        "predictions": [_prediction(step.info) for step in generation.steps],
        "provenance": {key: _plain(info[key]) for key in KEPT if key in info},
    }


def _prediction(info: Mapping[str, Any]) -> list[list[Any]]:
    """The likeliest words of one step, each with its probability."""
    return [[word, share] for word, share in info.get("prediction") or []]


def _group(group: Group, number: int, groups: Sequence[Group]) -> dict[str, Any]:
    return {
        "kind": group.kind,
        "role": group.role,
        "name": group_title(group, number, groups),
        "words": list(group.words),
    }


def _rows(generation: Generation) -> list[dict[str, Any]]:
    """One entry for each written word: its shares of all words before, and what leaving out parts of the prompt does."""
    own, prompt, effects = own_shares(generation), prompt_shares(generation), generation.effects
    return [
        {
            "word": generation.text.first + number,
            "cut": generation.rows[number].cut,
            "probability": generation.row_probabilities[number],
            "own": float(own[number]),
            "prompt": float(prompt[number]),
            "shares": generation.matrix[number].tolist(),
            "scores": generation.word_scores[number].tolist(),
            "effects": None if effects is None else _numbers(effects.words[number]),
            "group_effects": None if effects is None else _numbers(effects.groups[number]),
        }
        for number in range(len(generation.rows))
    ]


def _numbers(row: Tensor) -> list[float | None]:
    """The numbers of a row; None for what is not a number, which JSON has not."""
    return [None if math.isnan(value) else value for value in row.tolist()]


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


# --- files ------------------------------------------------------------------------------------------------------------


def to_json(generation: Generation, path: str | os.PathLike[str] | None, *, force: bool = False) -> str:
    content = json.dumps(to_dict(generation), ensure_ascii=False, allow_nan=False)
    if path is not None:
        _write(content + "\n", path, ".json", force)
    return content


def is_generation(path: str | os.PathLike[str]) -> bool:
    """Whether a .json file says that it holds a Generation. What cannot be read does not."""
    if Path(path).suffix.lower() != ".json":
        return False
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("kind") == "generation"


def save(generation: Generation, path: str | os.PathLike[str], *, force: bool = False) -> None:
    to_json(generation, path, force=force)


def to_csv(generation: Generation, path: str | os.PathLike[str] | None, *, force: bool = False) -> str:
    """One line for each written word and each word before it."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["row", "written", "probability", "column", "word", "segment", "group", "score", "share", "effect"])
    table.writerows(_lines(generation))
    if path is not None:
        _write(out.getvalue(), path, ".csv", force)
    return out.getvalue()


def _lines(generation: Generation) -> list[list[Any]]:
    lines = []
    for number, row in enumerate(generation.rows):
        for column, word in enumerate(generation.columns[: generation.text.first + number + 1]):
            group = "" if word.group is None else word.group + 1
            scores = float(generation.word_scores[number, column]), float(generation.matrix[number, column])
            place = [
                number + 1,
                row.text,
                generation.row_probabilities[number],
                column + 1,
                word.text,
                word.segment,
                group,
            ]
            lines.append([*place, *scores, _effect(generation, number, column)])
    return lines


def _effect(generation: Generation, row: int, column: int) -> float | str:
    """What leaving out a word does; nothing where it was not left out."""
    if generation.effects is None or not generation.columns[column].counts:
        return ""
    value = float(generation.effects.words[row, column])
    return "" if math.isnan(value) else value


def _write(content: str, path: str | os.PathLike[str], suffix: str, force: bool) -> None:
    place = Path(path)
    if place.suffix.lower() != suffix:
        raise ResultError(f"this is saved as {suffix}, not {place.name!r}.")
    if not is_folder(place.parent):
        raise ResultError(f"no folder {str(place.parent)!r} to save in.")
    refuse_foreign(place, force=force)
    try:
        write(place, content.encode("utf-8"))
    except OSError as error:
        raise ResultError(f"the result could not be written to {str(place)!r}: {error.strerror}.") from error


# --- reading ----------------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Generation:
    """The Generation of a file. Whatever does not fit together is refused."""
    place = Path(path)
    if not is_file(place):
        raise ResultError(f"no file {str(place)!r}.")
    try:
        return from_dict(json.loads(place.read_text(encoding="utf-8")))
    except ResultError:
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
        RuntimeError,
        IndexError,
        AttributeError,
    ) as error:
        raise ResultError(
            f"{place.name!r} is not a mixlens generation (or is damaged): {type(error).__name__}."
        ) from error


def from_dict(content: Mapping[str, Any]) -> Generation:
    """The Generation that `to_dict` describes, without a model."""
    if content["kind"] != "generation" or content["schema"] != SCHEMA:
        raise ResultError(
            f"this is no generation of schema {SCHEMA}, but {content['kind']!r} of {content['schema']!r}."
        )
    text = _text(content)
    scores = torch.tensor(content["scores"], dtype=torch.float64)
    _refuse_shape(text, scores, content["probabilities"])
    steps = [_step(content, text, number, scores) for number in range(len(scores))]
    return _generation(content, text, scores, steps)


def _generation(
    content: Mapping[str, Any], text: WrittenText, scores: Tensor, steps: Sequence[Attribution]
) -> Generation:
    from .value import Generation

    return Generation(
        steps=tuple(steps),
        text=text,
        scores=scores,
        probabilities=tuple(map(float, content["probabilities"])),
        is_map=bool(content["is_map"]),
        given=bool(content["given"]),
        effects=_effects(content),
    )


def _text(content: Mapping[str, Any]) -> WrittenText:
    words = [Word(**{**word, "tokens": tuple(map(int, word["tokens"]))}) for word in content["words"]]
    groups, spans = (tuple(_read_group(group) for group in content[name]) for name in ("groups", "spans"))
    prompt, pair, written = (content[name] for name in ("text", "pair", "written"))
    tokens, begin, unit = tuple(map(str, content["tokens"])), int(content["begin"]), str(content["unit"])
    return WrittenText(prompt, pair, str(written), tokens, begin, tuple(words), groups, spans, unit)


def _read_group(group: Mapping[str, Any]) -> Group:
    return Group(str(group["kind"]), group["role"], tuple(map(int, group["words"])))


def _refuse_shape(text: WrittenText, scores: Tensor, probabilities: Sequence[Any]) -> None:
    """Refuse scores and words that do not fit the tokens."""
    n = len(text.tokens)
    fits = tuple(scores.shape) == (n - text.begin, n) and len(probabilities) == n - text.begin > 0
    places = sorted(place for word in text.words for place in word.tokens)
    if not fits or places != list(range(n)) or not bool(torch.isfinite(scores).all()):
        raise ResultError("its scores, words and tokens do not fit together.")


def _step(content: Mapping[str, Any], text: WrittenText, number: int, scores: Tensor) -> Attribution:
    """One written token's attribution, as far as a file tells it."""
    place = text.begin + number
    special = {one for word in text.words if word.special for one in word.tokens}
    info = {
        **content["provenance"],
        "prediction": [(str(word), float(share)) for word, share in content["predictions"][number]],
        "probability": content["probabilities"][number],
        "generated": text.tokens[place],
        "given": content["given"],
        "query": place - 1,
        "query_token": text.tokens[place - 1],
    }
    flags = tuple(one in special for one in range(place))
    return Attribution(scores[number, :place], text.tokens[:place], str(content["method"]["id"]), info, flags)


def _effects(content: Mapping[str, Any]) -> Effects | None:
    if content["filler"] is None:
        return None
    words, groups = (torch.tensor(_table(content, name), dtype=torch.float64) for name in ("effects", "group_effects"))
    return Effects(content["filler"], words, groups)


def _table(content: Mapping[str, Any], name: str) -> list[list[float]]:
    return [[math.nan if value is None else value for value in row[name]] for row in content["rows"]]
