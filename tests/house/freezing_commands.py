"""What the freeze asks of the command line: each command on the embedded models, in a folder of its own, timings left
out."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet

KEYS = "The keys to the cabinet [MASK] rusty."
FILM = "The plot was dull but the acting was brilliant."
ROWS = (
    {"text": "The film was never boring.", "label": "positive"},
    {"text": "The plot was dull.", "label": "negative"},
    {"text": "The acting was not good.", "label": "negative"},
)
WIDTH = "100"
PICTURE = ("--dtype", "float64", "--no-color")
DOUBLE = ("--dtype", "float64")
EVERY_COMMAND = (
    *("explain", "data", "experiment", "judge", "run", "summarize", "map", "compare", "plot", "report", "serve"),
    *("methods", "families", "check"),
)
COMMANDS: dict[str, tuple[str, ...]] = {  # in this order: later ones read what earlier ones wrote
    "explain": ("explain", KEYS, *PICTURE),
    "explain json": ("explain", KEYS, *DOUBLE, "--json"),
    "explain layers": ("explain", KEYS, *PICTURE, "--layers", "--map", "2"),
    "explain words": (
        "explain",
        FILM,
        *PICTURE,
        "-m",
        "sentiment",
        "--method",
        "globenc",
        "--words",
        "--no-special",
        "--top",
        "3",
    ),
    "explain target": ("explain", KEYS, *PICTURE, "--method", "attcat", "--target", "were", "--foil", "was"),
    "explain score": (
        "explain",
        FILM,
        *DOUBLE,
        "-m",
        "sentiment",
        "--method",
        "deeplift",
        "--score",
        "probability",
        "--json",
    ),
    "explain latex": ("explain", KEYS, *DOUBLE, "--latex"),
    "explain save": ("explain", KEYS, *PICTURE, "--query", "cabinet", "--save", "saved.safetensors"),
    "compare": ("compare", KEYS, *PICTURE),
    "compare mixed": ("compare", KEYS, *PICTURE, "--methods", "alti:variant=released,grad_x_input,hta", "--no-special"),
    "compare json": ("compare", KEYS, *DOUBLE, "--json"),
    "map": ("map", KEYS, *PICTURE, "--layer", "3", "--method", "value_zeroing"),
    "map rollout": ("map", KEYS, *PICTURE, "--rollout", "--words"),
    "map row": ("map", KEYS, *PICTURE, "--query", "rusty", "--json"),
    "check": ("check", "agreement", *DOUBLE),
    "check sentiment": ("check", "sentiment", *DOUBLE, "--tokens", "9"),
    "methods": ("methods",),
    "families": ("families",),
    "data": ("data",),
    "experiments": ("experiment",),
    "plot": ("plot", KEYS, *DOUBLE, "-o", "strip.svg"),
    "plot matrix": ("plot", KEYS, *DOUBLE, "--kind", "matrix", "--layer", "3", "-o", "matrix.svg"),
    "plot bars": ("plot", KEYS, *DOUBLE, "--method", "attcat", "--kind", "bars", "-o", "bars.svg"),
    "plot layers": ("plot", KEYS, *DOUBLE, "--kind", "layers", "--rollout", "-o", "layers.svg"),
    "report": ("report", KEYS, *DOUBLE, "-o", "report.html"),
    "report saved": ("report", "--from", "saved.safetensors", "-o", "saved.html"),
    "run": (
        *("run", "rows.jsonl", "--out", "corpus", "--model", "sentiment", "--methods", "alti,attcat,globenc", "--maps"),
        *(*DOUBLE, "--columns", "label"),
    ),
    "run again json": (
        *("run", "rows.jsonl", "--out", "corpus", "--model", "sentiment", "--methods", "alti,attcat,globenc", "--maps"),
        *(*DOUBLE, "--columns", "label", "--resume", "--json"),
    ),
    "summarize": ("summarize", "corpus"),
    "summarize json": ("summarize", "corpus", "--json"),
    "report run": ("report", "corpus", "-o", "corpus.html"),
    "experiment": (
        *("experiment", "vz-cue-alignment", "--n", "3", "--out", "cues"),
        *("--methods", "random,attention,alti,value_zeroing,grad_x_input"),
    ),
    "judge": ("judge", "sentiment", "sentiment", "--n", "3", "--methods", "alti,attcat,globenc", "--out", "judged"),
    "refused method": ("explain", KEYS, "--method", "altii"),
    "refused target": ("explain", KEYS, "--target", "zzz", "--method", "attcat"),
}


def run_command(arguments: tuple[str, ...]) -> tuple[int, str]:
    """Exit code and standard output of one command, run in this process by the console script's own entry."""
    from mixlens.__main__ import main

    out, messages = io.StringIO(), io.StringIO()
    environment = {"COLUMNS": WIDTH, "HF_HUB_OFFLINE": "1"}
    code = 0
    with (
        mock.patch.object(sys, "argv", ["mixlens", *arguments]),
        mock.patch.dict(os.environ, environment),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(messages),
    ):
        warnings.simplefilter("ignore")
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    if code and not arguments[0].startswith("explain"):
        raise AssertionError(f"mixlens {' '.join(arguments)} ended with {code}: {messages.getvalue()[-2000:]}")
    return code, out.getvalue()


def outputs(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of every command, one after the other, in `folder`. Then that folder holds what they wrote."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with contextlib.chdir(folder):
        for name, arguments in COMMANDS.items():
            code, text = run_command(arguments)
            yield name, f"exit {code}\n{without_times(name, text)}"


# --- what differs from one run to the next ----------------------------------------------------------------------------

NOISE = ("versions", "seconds", "gap", "gaps", "check", "milliseconds", "rows_per_second", "slow", "loops")
TIME = re.compile(r"\b\d+(?:\.\d+)?(?= (?:ms|s|a second)\b)")


def without_times(name: str, text: str) -> str:
    """The text without durations, and without the order of rows by duration."""
    if name.endswith("json") or name in ("explain score", "map row"):
        return "\n".join(json.dumps(without_noise(json.loads(line))) for line in text.splitlines())
    text = re.sub(r"(slowest rows.*\n)(?:  row .*\n)+", r"\1", text)
    if name == "judge":  # its last column is seconds
        text = re.sub(r"(?m)(^rank .*seconds(?:\n.+)+)", lambda table: re.sub(r"(?m) +\d\.\d+$", "", table[0]), text)
    return TIME.sub("#", re.sub(r"done now, .*\)", "done now)", text))


def without_prose(name: str, text: str) -> str:
    """Tables that end in a sentence without it: sentences may be reworded."""
    if name == "methods":
        return re.sub(r"(?m)^    (\S.*?  \S.*?  \S.*?  \S.*?)  .*\n(?:    (?!map|to a).*\n)*", r"    \1\n", text)
    if name == "experiments":
        return "\n".join("  ".join(re.split(r" {2,}", line)[:4]) for line in text.splitlines())
    if name.startswith("check"):  # the gap is rounding, and so is the layer where it is largest
        rows = re.findall(r"(?m)^(\S+) .*?\d\.\de[-+]\d\d +(\S+)", text)
        return "\n".join([*text.splitlines()[:2], *(f"{verdict} {allowed}" for verdict, allowed in rows)])
    return text


def without_noise(value: Any) -> Any:
    """JSON without durations, versions, and gaps that are rounding alone."""
    if isinstance(value, dict):
        return {key: without_noise(one) for key, one in value.items() if not any(word in key for word in NOISE)}
    return [without_noise(one) for one in value] if isinstance(value, list) else value


# --- folders ----------------------------------------------------------------------------------------------------------


def columns(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """(kind and name, values) of every column of the Parquet files under a folder, without durations."""
    for path in sorted(folder.rglob("*.parquet")):
        table = pyarrow.parquet.read_table(path)
        rows = [row for row in table.to_pylist() if row.get("metric") != "seconds"]
        for name in table.column_names:
            if name != "seconds":
                yield f"{path.parent.name} {name}", [_info(row[name]) if name == "info" else row[name] for row in rows]


def _info(written: str) -> Any:
    """What a record says beside its value: JSON, without durations."""
    return without_noise(json.loads(written))


def schema(folder: Path) -> dict[str, dict[str, str]]:
    """Names and types of the columns of every kind of Parquet file under a folder."""
    paths = {path.parent.name: path for path in sorted(folder.rglob("*.parquet"))}
    read = {kind: pyarrow.parquet.read_schema(path) for kind, path in paths.items()}
    return {kind: {name: str(one.field(name).type) for name in one.names} for kind, one in read.items()}


def files(folder: Path) -> list[str]:
    """Paths of the files, with content addresses left out. Records are written every few seconds: their first file
    counts."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [
        re.sub(r"-[0-9a-f]{16}(?=\.)", "-#", path) for path in paths if not re.search(r"records/part-(?!00000)", path)
    ]


def keys_of(path: Path) -> list[str]:
    """The names in a JSON file, nested ones with dots between them."""

    def nested(value: Any, before: str) -> Iterator[str]:
        if isinstance(value, dict):
            for key, one in value.items():
                yield before + key
                yield from nested(one, f"{before}{key}.")

    return sorted(nested(json.loads(path.read_text()), ""))


# --- options ----------------------------------------------------------------------------------------------------------

HELP = """
import contextlib, io, json, sys
from mixlens.__main__ import main
pages = {}
for command in sys.argv[1:]:
    sys.argv = ["mixlens", *([command] if command != "mixlens" else []), "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as page, contextlib.suppress(SystemExit):
        main()
    pages[command] = page.getvalue()
assert "torch" not in sys.modules, "--help imports torch"
print(json.dumps(pages))
"""


def options() -> dict[str, list[str]]:
    """The options and arguments of every command, and the commands of `mixlens`, from the help pages, without torch."""
    command = [sys.executable, "-c", HELP, "mixlens", *EVERY_COMMAND]
    environment = {**os.environ, "COLUMNS": "300"}
    pages = json.loads(subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout)
    listed = {name: sorted(set(_of_a_page(page))) for name, page in pages.items()}
    return listed | {"mixlens": sorted(re.findall(r"(?m)^  ([a-z]+)  ", pages["mixlens"].partition("Commands:")[2]))}


def _of_a_page(page: str) -> Iterator[str]:
    usage, _, rest = page.partition("Options:")
    yield from re.findall(r"[\[{]([a-z]+)[\]}]", usage.splitlines()[0])
    for line in re.findall(r"(?m)^  (-.+)$", rest):
        yield from re.findall(r"(?<![\w-])--?[a-z][a-z-]*", re.split(r" {2,}", line)[0])


# --- figures and tables -----------------------------------------------------------------------------------------------


def svg_text(path: Path) -> str:
    """A figure without its coordinates: the kinds of its elements, their ids and colours, and its words."""
    drawing = re.sub(r' d="[^"]*"| (?:x|y|transform|width|height|viewBox)="[^"]*"', "", path.read_text())
    return f"{len(re.findall('<path', drawing))} paths; " + " | ".join(re.findall(r">([^<>]*\S[^<>]*)<", drawing))


def headings(folder: Path) -> dict[str, str]:
    """The first line of every table."""
    return {path.name: path.read_text().splitlines()[0] for path in sorted(folder.glob("*.csv"))}
