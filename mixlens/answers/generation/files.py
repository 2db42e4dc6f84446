"""A Generation as plain JSON types, as CSV, and read back."""

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
from ...base.parts import Quote, Strong
from ...base.paths import is_file
from ...scoring.provenance import public_name
from ...types import Attribution
from .leaving_out import Effects
from .text import Group, Word, WrittenText
from .wording import QUESTION, answer, group_title, own_shares, prompt_shares

if TYPE_CHECKING:
    from .value import Generation

SCHEMA = 1
FAULTS = (OSError, ValueError, KeyError, TypeError, RecursionError, RuntimeError, IndexError, AttributeError)
KEPT = (  # facts of `.info` that go into the file, if they are plain
    *("model", "revision", "family", "task", "dtype", "quantization", "versions", "check", "tolerance", "method"),
    *("paper", "variant", "options", "score", "convention", "rollout", "layer", "gap", "causal", "precision", "signed"),
)


def to_dict(generation: Generation) -> dict[str, Any]:
    """Everything as plain JSON types."""
    text, info, effects = generation.text, generation.info, generation.effects
    own, prompt = own_shares(generation), prompt_shares(generation)
    rows = [
        {
            "word": text.first + number,
            "cut": row.cut,
            "probability": generation.row_probabilities[number],
            "own": float(own[number]),
            "prompt": float(prompt[number]),
            "shares": generation.matrix[number].tolist(),
            "scores": generation.word_scores[number].tolist(),
            "effects": None if effects is None else _numbers(effects.words[number]),
            "group_effects": None if effects is None else _numbers(effects.groups[number]),
        }
        for number, row in enumerate(generation.rows)
    ]
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
        "parts": parts_of(generation),
        "unit": text.unit,
        "tokens": list(text.tokens),
        "begin": text.begin,
        "words": [{**asdict(word), "tokens": list(word.tokens)} for word in text.words],
        "groups": groups_of(text.groups),
        "spans": groups_of(text.spans),
        "rows": rows,
        "filler": None if effects is None else effects.replacement,
        "signed": generation.signed,
        "is_map": generation.is_map,
        "method": {"id": generation.method, "paper": info.get("paper")},
        "probabilities": list(generation.probabilities),
        "scores": generation.scores.tolist(),
        "predictions": [[[*likely] for likely in step.info.get("prediction") or []] for step in generation.steps],
        "provenance": {key: json.loads(json.dumps(info[key], default=str)) for key in KEPT if key in info},
    }


def parts_of(generation: Generation) -> list[list[str]]:
    """The answer in parts: ["", words of ours], ["strong", ...] or ["quote", words of the model's text]."""
    kinds = {Strong: "strong", Quote: "quote"}
    return [
        ["", part] if isinstance(part, str) else [kinds[type(part)], part.text] for part in answer(generation).parts
    ]


def groups_of(groups: Sequence[Group]) -> list[dict[str, Any]]:
    return [
        {
            "kind": group.kind,
            "role": group.role,
            "name": group_title(group, number, groups),
            "words": list(group.words),
        }
        for number, group in enumerate(groups)
    ]


def _numbers(row: Tensor) -> list[float | None]:
    """The numbers of a row; None for what is not a number, which JSON has not."""
    return [None if math.isnan(value) else value for value in row.tolist()]


def table(generation: Generation) -> str:
    """CSV: one line for each written word and each word before it; no effect where a word was not left out."""
    out, effects = io.StringIO(), generation.effects
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["row", "written", "probability", "column", "word", "segment", "group", "score", "share", "effect"])
    for number, row in enumerate(generation.rows):
        for column, word in enumerate(generation.columns[: generation.text.first + number + 1]):
            effect = math.nan if effects is None or not word.counts else float(effects.words[number, column])
            lines.writerow(
                [
                    number + 1,
                    row.text,
                    generation.row_probabilities[number],
                    column + 1,
                    word.text,
                    word.segment,
                    "" if word.group is None else word.group + 1,
                    float(generation.word_scores[number, column]),
                    float(generation.matrix[number, column]),
                    "" if math.isnan(effect) else effect,
                ]
            )
    return out.getvalue()


# --- reading ----------------------------------------------------------------------------------------------------------


def is_generation(path: str | os.PathLike[str]) -> bool:
    """Whether a .json file says that it holds a Generation. What cannot be read does not."""
    if Path(path).suffix.lower() != ".json":
        return False
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("kind") == "generation"


def load(path: str | os.PathLike[str]) -> Generation:
    """The Generation of a file. Whatever does not fit together is refused."""
    place = Path(path)
    if not is_file(place):
        raise ResultError(f"no file {str(place)!r}.")
    try:
        return from_dict(json.loads(place.read_text(encoding="utf-8")))
    except ResultError:
        raise
    except FAULTS as error:
        raise ResultError(
            f"{place.name!r} is not a mixlens generation (or is damaged): {type(error).__name__}."
        ) from error


def from_dict(content: Mapping[str, Any]) -> Generation:
    """The Generation that `to_dict` describes, without a model."""
    from .value import Generation

    if content["kind"] != "generation" or content["schema"] != SCHEMA:
        raise ResultError(
            f"this is no generation of schema {SCHEMA}, but {content['kind']!r} of {content['schema']!r}."
        )
    tokens, begin = tuple(map(str, content["tokens"])), int(content["begin"])
    words = tuple(Word(**{**word, "tokens": tuple(map(int, word["tokens"]))}) for word in content["words"])
    groups, spans = (
        tuple(Group(str(one["kind"]), one["role"], tuple(map(int, one["words"]))) for one in content[name])
        for name in ("groups", "spans")
    )
    prompt, pair, written, unit = (content[name] for name in ("text", "pair", "written", "unit"))
    scores, n = torch.tensor(content["scores"], dtype=torch.float64), len(tokens)
    fits = tuple(scores.shape) == (n - begin, n) and len(content["probabilities"]) == n - begin > 0
    places = sorted(place for word in words for place in word.tokens)
    if not fits or places != list(range(n)) or not bool(torch.isfinite(scores).all()):
        raise ResultError("its scores, words and tokens do not fit together.")
    special = {place for word in words if word.special for place in word.tokens}
    steps = []
    for number, likely in zip(range(n - begin), content["predictions"], strict=True):
        place = begin + number
        info = {
            **content["provenance"],
            "prediction": [(str(word), float(share)) for word, share in likely],
            "probability": content["probabilities"][number],
            "generated": tokens[place],
            "given": content["given"],
            "query": place - 1,
            "query_token": tokens[place - 1],
        }
        flags = tuple(one in special for one in range(place))
        steps.append(Attribution(scores[number, :place], tokens[:place], str(content["method"]["id"]), info, flags))
    effects = None
    if content["filler"] is not None:
        names = ("effects", "group_effects")
        tables = [
            [[math.nan if one is None else one for one in row[name]] for row in content["rows"]] for name in names
        ]
        effects = Effects(content["filler"], *(torch.tensor(one, dtype=torch.float64) for one in tables))
    return Generation(
        steps=tuple(steps),
        text=WrittenText(prompt, pair, str(written), tokens, begin, words, groups, spans, str(unit)),
        scores=scores,
        probabilities=tuple(map(float, content["probabilities"])),
        is_map=bool(content["is_map"]),
        given=bool(content["given"]),
        effects=effects,
    )
