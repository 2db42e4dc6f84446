"""The same bits before and after a change, on one machine: `python -m tests.house.bits OUT.json`, change the code, then
`python -m tests.house.bits --against OUT.json`, which prints what differs and ends with 1 if anything does.

A digest is kept of the raw bytes of every score tensor and every tensor of `.info` (float64 and float32; alone,
batched, streamed), of what every command prints (durations left out), of figures and pages, and of the tables of an
experiment folder and the columns of a corpus folder. Two processors need not agree: for that there is `test_freeze.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import freezing  # noqa: E402
import freezing_commands as commands  # noqa: E402

DTYPES = (torch.float64, torch.float32)
Entry = tuple[str, str]  # what it is, and its digest


def digest(content: bytes | str) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode()).hexdigest()[:24]


def tensor_digest(values: torch.Tensor) -> str:
    values = values.detach().cpu().contiguous()
    return digest(f"{values.dtype} {tuple(values.shape)} ".encode() + values.numpy().tobytes())


# --- scores -----------------------------------------------------------------------------------------------------------


def entries_of(label: str, answer: Any) -> Iterator[Entry]:
    """The scores and tensors of `.info` of a result, of a list of results, or the class of an error."""
    if isinstance(answer, str):
        yield label, answer
    elif isinstance(answer, list):
        for number, one in enumerate(answer):
            yield from entries_of(f"{label} [{number}]", one)
    else:
        yield label, tensor_digest(answer.scores)
        tensors = {key: value for key, value in answer.info.items() if isinstance(value, torch.Tensor)}
        yield from ((f"{label} .info[{key!r}]", tensor_digest(value)) for key, value in sorted(tensors.items()))


def scores(case: str, dtype: torch.dtype) -> Iterator[Entry]:
    model, ids = freezing.loaded(case, freezing.head_of(case), dtype), freezing.input_ids()
    alone, traces = model.trace(input_ids=ids[0]), model.trace(input_ids=ids)
    place = f"{case} {str(dtype).removeprefix('torch.')}"
    for question in freezing.map_questions(case):
        yield from entries_of(f"{place} alone {question.label}", freezing.map_of(alone, question))
        if question.streams:
            yield from entries_of(f"{place} streamed {question.label}", freezing.streamed(model, ids, question))
    for question in freezing.batched_maps(case):
        yield from entries_of(f"{place} batched {question.label}", freezing.map_of(traces, question))
    for question in freezing.attribution_questions():
        yield from entries_of(f"{place} alone attribute {question.label}", freezing.attribution_of(alone, question))
        if case in freezing.FULLY_BATCHED:
            yield from entries_of(
                f"{place} batched attribute {question.label}", freezing.attribution_of(traces, question)
            )


# --- commands and folders ---------------------------------------------------------------------------------------------


def written() -> Iterator[Entry]:
    """What the commands print, and what they leave behind."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from ((f"command {title}", digest(text)) for title, text in commands.outputs(folder))
        yield from files(folder)
        for kind in ("corpus", "cues", "judged"):
            yield from (
                (f"{kind} {column}", digest(json.dumps(values))) for column, values in commands.columns(folder / kind)
            )


def files(folder: Path) -> Iterator[Entry]:
    """Tables, figures and pages. A page of a run holds durations, so it is left out."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".csv", ".svg", ".md") or path.name in ("report.html", "saved.html"):
            yield f"file {path.relative_to(folder).as_posix()}", digest(path.read_bytes())


# --- the script -------------------------------------------------------------------------------------------------------


def everything() -> Iterator[Entry]:
    for case in freezing.CASES:
        for dtype in DTYPES:
            yield from scores(case, dtype)
        print(case, end=" ", file=sys.stderr, flush=True)
    yield from written()
    print(file=sys.stderr)


def differing(here: dict[str, str], there: dict[str, str]) -> Iterable[str]:
    for label in [*there, *(one for one in here if one not in there)]:
        if here.get(label) != there.get(label):
            yield f"{'gone' if label not in here else 'new' if label not in there else 'differs'}: {label}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT.json", help="write the digests here")
    parser.add_argument("--against", type=Path, metavar="OUT.json", help="compare with these")
    options = parser.parse_args()
    if options.out is None and options.against is None:
        parser.error("give OUT.json, --against OUT.json, or both.")
    there = {} if options.against is None else json.loads(options.against.read_text())
    torch.set_num_threads(1)  # more threads add in another order
    here = dict(everything())
    if options.out is not None:
        options.out.write_text(json.dumps(here, indent=0) + "\n")
    lines = [] if options.against is None else list(differing(here, there))
    print("\n".join([*lines, f"{len(here)} digests" + (f", {len(lines)} differ" if options.against else "")]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
