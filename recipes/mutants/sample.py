"""How many faults do the tests see? Puts a fixed random sample of faults into copies of the core, one at a time, and
runs the tests of the area on each.

    python -m recipes.mutants                                   # 120 faults in all areas (`make mutants`)
    python -m recipes.mutants --area metrics --sample 30 --seed 7
    python -m recipes.mutants --only 3fb1c2d4                   # one fault again, by the name that the list gives it
    python -m recipes.mutants --list                            # what the sample is; nothing runs
    python -m recipes.mutants --file mixlens/base/text.py --sample 500     # faults of one file
    python -m recipes.mutants.covering                          # first, once: which tests run which line

A fault is one small change: an operator, a constant, an axis, a condition, a statement, an argument
(recipes/mutants/faults.py). A file gets a share of the sample by the square root of the number of its faults; in a file
the kind is drawn first, then the place. The working tree is only read. Faults that change nothing a user can see are in
recipes/mutants/equivalent.json, each with its reason; they are counted apart. Not part of `make test`: a fault costs
some seconds to some minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from . import covering
from . import run as mutants_run
from .faults import OPERATORS, Fault, faults, readable
from .run import Told
from .tests import AREAS, LEFT_OUT_FUNCTIONS, files_of, tests_of

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.json")
KEYS = ("file", "function", "before", "after")
Key = tuple[str, str, str, str]


def all_faults(root: Path, files: Sequence[str]) -> dict[str, list[Fault]]:
    """By file; without those of functions that no test on a CPU can reach."""
    found = {file: faults((root / file).read_text(), file) for file in files}
    return {
        file: [one for one in some if (file, one.function) not in LEFT_OUT_FUNCTIONS] for file, some in found.items()
    }


def sample(root: Path, found: Mapping[str, Sequence[Fault]], size: int, seed: int) -> list[Fault]:
    """The same for the same sources, size and seed. Each fault once."""
    drawn = random.Random(seed)
    left = {
        file: {kind: [one for one in some if one.operator == kind] for kind in OPERATORS}
        for file, some in found.items()
    }
    weights = {file: math.sqrt(len(some)) for file, some in found.items() if some}
    chosen: list[Fault] = []
    while weights and len(chosen) < size:
        file = drawn.choices(list(weights), list(weights.values()))[0]
        kinds = [kind for kind, some in left[file].items() if some]
        if not kinds:
            del weights[file]
            continue
        some = left[file][drawn.choice(kinds)]
        fault = some.pop(drawn.randrange(len(some)))
        if readable(fault, (root / file).read_text()):
            chosen.append(fault)
    return sorted(chosen, key=lambda one: (one.file, one.line, one.id))


def reviewed(path: Path) -> dict[Key, str]:
    """The faults judged to change nothing, and why."""
    entries = json.loads(path.read_text()) if path.exists() else []
    for entry in entries:
        if (
            set(entry) != {*KEYS, "reason"}
            or not all(isinstance(value, str) for value in entry.values())
            or not entry["reason"]
        ):
            raise SystemExit(
                f"{path.name}: an entry has the keys {', '.join(KEYS)} and a reason, all text, not {entry!r:.120}"
            )
    return {(entry["file"], entry["function"], entry["before"], entry["after"]): entry["reason"] for entry in entries}


def stale(entries: Mapping[Key, str], root: Path) -> list[Key]:
    """Entries that match no fault of the sources as they are now."""
    files = {key[0] for key in entries if (root / key[0]).exists()}
    known = {fault.key for some in all_faults(root, sorted(files)).values() for fault in some}
    return [key for key in entries if key not in known]


def described(fault: Fault) -> str:
    before, after = (" ".join(text.split()) for text in (fault.before, fault.after))
    return f"{fault.file}:{fault.line} {fault.function}: {fault.operator}, {before:.90} -> {after:.90}"


def score(results: Sequence[Told], same: Sequence[Fault], area_of: Mapping[str, str]) -> tuple[list[str], float]:
    """A table by area, and the share of faults seen among those that are not equivalent."""
    lines = [
        "| area | faults | killed | of these by the clock | survived | equivalent | killed / not equivalent |",
        "|" + "---|" * 7,
    ]
    areas = list(dict.fromkeys(area_of.values()))
    share = 1.0
    for area in (*areas, "all"):
        own = [one for one in results if area in ("all", area_of[one.fault.file])]
        killed, clock = (
            sum(one.status != "survived" for one in own),
            sum(one.status == "killed by the clock" for one in own),
        )
        left = sum(area in ("all", area_of[fault.file]) for fault in same)
        if area != "all" and not own and not left:
            continue
        share = killed / len(own) if own else 1.0
        told = f"{killed}/{len(own)} = {100 * share:.0f} %" if own else "-"
        lines.append(f"| {area} | {len(own) + left} | {killed} | {clock} | {len(own) - killed} | {left} | {told} |")
    return lines, share


def groups_of(fault: Fault, area: str, known: covering.Covering | None) -> list[list[str]]:
    """The tests for a fault. Where it is known which tests run a line: first the tests of files that are newer than
    that knowledge and are named for the fault's file, then those that run its line. Otherwise those named for its
    file."""
    named = list(tests_of(fault.file, area))
    if known is None:
        return [named]
    new = [one for one in named if one.split(":")[0] not in known.files]
    return ([new] if new else []) + known.stages(fault, (ROOT / fault.file).read_text(), named)


def parsed(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=120, metavar="N", help="how many faults (120)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="which sample (1)")
    parser.add_argument(
        "--area", action="append", choices=list(AREAS), help="one area; may be given several times (all)"
    )
    parser.add_argument(
        "--only", action="append", metavar="ID", help="this fault alone, also one judged equivalent; several times"
    )
    parser.add_argument("--file", action="append", metavar="PATTERN", help="files like this one alone; several times")
    parser.add_argument("--list", action="store_true", help="show the sample and run nothing")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time (2)")
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="time for one fault (600)")
    parser.add_argument("--least", type=float, default=0.95, help="exit status 1 below this share (0.95)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="results as lines of JSON")
    chosen = parser.parse_args(given)
    if chosen.sample < 1 or chosen.jobs < 1 or chosen.limit <= 0:
        parser.error("--sample and --jobs are at least 1, --limit is above 0")
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    chosen = parsed(given)
    area_of = files_of(ROOT, chosen.area or list(AREAS))
    if chosen.file:
        area_of = {file: area for file, area in area_of.items() if any(fnmatch(file, one) for one in chosen.file)}
    found = all_faults(ROOT, list(area_of))
    entries = reviewed(EQUIVALENT)
    for key in stale(entries, ROOT):
        print(f"{EQUIVALENT.name}: no fault is this any more: {key[0]} {key[1]}: {key[2]:.80} -> {key[3]:.80}")
    if chosen.only:
        every = {fault.id: fault for some in found.values() for fault in some}
        if unknown := [one for one in chosen.only if one not in every]:
            print(
                f"there is no fault {unknown[0]!r} in {', '.join(chosen.area or AREAS)}; --list shows the names.",
                file=sys.stderr,
            )
            return 2
        picked, same = [every[one] for one in chosen.only], list[Fault]()
    else:
        drawn = sample(ROOT, found, chosen.sample, chosen.seed)
        picked = [fault for fault in drawn if fault.key not in entries]
        same = [fault for fault in drawn if fault.key in entries]
    if chosen.list:
        for fault in (*picked, *same):
            print(f"{fault.id} {described(fault)}" + (f" [equivalent: {entries[fault.key]}]" if fault in same else ""))
        return 0
    print(f"{len(picked)} faults to try, {len(same)} judged equivalent; seed {chosen.seed}.", flush=True)
    known = covering.read()
    print(
        "tests: " + ("those that run the line of a fault" if known else "those of recipes/mutants/tests.py") + ".",
        flush=True,
    )
    mutants_run.preload()
    count = iter(range(1, len(picked) + 1))

    def told(one: Told) -> None:
        by = f" by {one.test}" if one.test else ""
        print(
            f"[{next(count)}/{len(picked)}] {one.fault.id} {one.status}{by}, {one.seconds:.0f} s: "
            f"{described(one.fault)}",
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        results = mutants_run.run(
            [(fault, groups_of(fault, area_of[fault.file], known)) for fault in picked],
            ROOT,
            Path(folder),
            jobs=chosen.jobs,
            limit=chosen.limit,
            told=told,
            said=lambda line: print(line, flush=True),
        )
    if chosen.out:
        mutants_run.write(chosen.out, results)
    lines, share = score(results, same, area_of)
    print("\n" + "\n".join(lines))
    survivors = [one.fault for one in results if one.status == "survived"]
    if survivors:
        print("\nNot seen by the tests (again: --only ID):")
        print("\n".join(f"{fault.id} {described(fault)}" for fault in survivors))
    return 0 if share >= chosen.least else 1


if __name__ == "__main__":
    sys.exit(main())
