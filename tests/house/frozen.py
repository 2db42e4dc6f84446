"""The stored side of the freeze, and the command that writes it: `python -m tests.house.frozen`.

Without arguments it adds what is not stored yet. `--again NAME ...` makes the named configurations, or the parts
"info", "commands", "folders" and "face", anew; "all" stands for every one of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import freezing  # noqa: E402
import freezing_commands as commands  # noqa: E402

import mixlens  # noqa: E402

PATH = Path(__file__).with_name("frozen.json")
TELLS = "python -m tests.house.frozen"
PARTS = ("face", "info", "commands", "folders")


def read() -> dict[str, Any]:
    return json.loads(PATH.read_text()) if PATH.exists() else {"scores": {}}


def fingerprint_of(answer: Any) -> Any:
    """Numbers of 14 digits, or the class of the error."""
    return answer if isinstance(answer, str) else [float(f"{one:.14g}") for one in freezing.fingerprint(answer.scores)]


def answers(case: str, **options: Any) -> dict[str, Any]:
    return answers_of(freezing.loaded(case, freezing.head_of(case), **options), case)


def answers_of(model: Any, case: str) -> dict[str, Any]:
    """Every question of a configuration asked alone: label -> Map, Attribution or the class of an error."""
    trace = model.trace(input_ids=freezing.input_ids()[0])
    maps = {question.label: freezing.map_of(trace, question) for question in freezing.map_questions(case)}
    rows = {
        f"attribute {question.label}": freezing.attribution_of(trace, question)
        for question in freezing.attribution_questions()
    }
    return maps | rows


def scores(results: Mapping[str, Any]) -> dict[str, Any]:
    return {label: fingerprint_of(answer) for label, answer in results.items()}


def face() -> dict[str, Any]:
    """Public names, the methods and the options of every command."""
    return {"all": sorted(mixlens.__all__), "methods": sorted(mixlens.methods()), "options": commands.options()}


def info() -> dict[str, Any]:
    """Names in `.info`: those that all results of a kind have, and of each result those beyond."""
    results = {label: one for label, one in answers("bert").items() if not isinstance(one, str)}
    model = mixlens.load("agreement")
    trace = model.trace(commands.KEYS)
    results |= {
        "read out": mixlens.mix(trace, "alti").rollout().readout(6, keep_special=False),
        "by word": mixlens.attribute(trace, "attcat").by_word(),
        "streamed": model.mix(commands.KEYS, "globenc"),
        "explained": model.explain(commands.KEYS),
    }
    names = {label: set(one.info) for label, one in results.items()}
    kinds = {
        kind: [label for label, one in results.items() if type(one).__name__ == kind] for kind in ("Map", "Attribution")
    }
    common = {kind: set.intersection(*(names[label] for label in labels)) for kind, labels in kinds.items()}
    beyond = {label: sorted(names[label] - common[kind]) for kind, labels in kinds.items() for label in labels}
    return {"trace": sorted(trace.info), **{kind: sorted(keys) for kind, keys in common.items()}, "beyond": beyond}


def texts_and_folders() -> tuple[dict[str, Any], dict[str, Any]]:
    """What the commands print, and what they leave in folders."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = {name: commands.without_prose(name, text) for name, text in commands.outputs(folder)}
        figures = {path.name: commands.svg_text(path) for path in sorted(folder.glob("*.svg"))}
        kinds = ("corpus", "cues", "judged")
        return texts, {
            "files": {kind: commands.files(folder / kind) for kind in kinds},
            "columns": {kind: commands.schema(folder / kind) for kind in kinds},
            "manifest": {kind: commands.keys_of(folder / kind / "manifest.json") for kind in kinds},
            "tables": {kind: commands.headings(folder / kind) for kind in kinds},
            "drawn": figures,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", nargs="+", default=[], metavar="NAME", choices=[*freezing.CASES, *PARTS, "all"])
    names = parser.parse_args().again
    stored = read()
    anew = {*freezing.CASES, *PARTS} if "all" in names else set(names)
    for case in freezing.CASES:
        if case in anew or case not in stored["scores"]:
            stored["scores"][case] = scores(answers(case))
    stored["scores"] = {case: stored["scores"][case] for case in freezing.CASES}
    if "face" in anew or "face" not in stored:
        stored["face"] = face()
    if "info" in anew or "info" not in stored:
        stored["info"] = info()
    if anew & {"commands", "folders"} or not {"commands", "folders"} <= set(stored):
        stored["commands"], stored["folders"] = texts_and_folders()
    PATH.write_text(written(stored))


def written(stored: Mapping[str, Any]) -> str:
    """JSON with a line for each entry of the second level, so that a change shows in a diff."""
    lines = []
    for part, entries in stored.items():
        inner = ",\n".join(f"  {json.dumps(key)}: {_deeper(part, value)}" for key, value in entries.items())
        lines.append(f" {json.dumps(part)}: {{\n{inner}\n }}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _deeper(part: str, value: Any) -> str:
    """Scores have a line for each question too."""
    if part != "scores":
        return json.dumps(value)
    return "{\n" + ",\n".join(f"   {json.dumps(key)}: {json.dumps(one)}" for key, one in value.items()) + "\n  }"


if __name__ == "__main__":
    main()
