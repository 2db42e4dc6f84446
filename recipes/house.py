"""Prints the sizes of the project: what a person has to read, and how far a call goes.

    python -m recipes.house              # the package, its tests and docs, and two calls
    python -m recipes.house PACKAGE ...  # other folders of Python, one column each

Tokens are those of `tokenize`, without comments and layout. A private function with one caller is one whose name begins
with an underscore and stands in its file once besides its definition.
"""

from __future__ import annotations

import ast
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

from .sources import parsed

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mixlens"
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
SENTENCE = "The plot was dull, but the acting was wonderful."


@dataclass(frozen=True)
class House:
    """What is counted in one folder of Python."""

    files: int
    lines: int
    tokens: int
    lengths: list[int]  # of functions, in lines
    with_one_caller: int  # private functions


def tokens_of(text: str) -> int:
    """How many tokens a file has."""
    return sum(token.type not in LAYOUT for token in tokenize.generate_tokens(StringIO(text).readline))


def measured(folder: Path) -> House:
    """All Python files of a folder, counted."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))]
    lengths: list[int] = []
    with_one_caller = 0
    for text in texts:
        nodes = list(ast.walk(parsed(text)))
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        lengths += [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
        used = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        used.update(node.attr for node in nodes if isinstance(node, ast.Attribute))
        private = [node.name for node in functions if node.name.startswith("_") and not node.name.startswith("__")]
        with_one_caller += sum(used[name] == 1 for name in private)
    return House(
        len(texts), sum(len(text.splitlines()) for text in texts), sum(map(tokens_of, texts)), lengths, with_one_caller
    )


def names_imported(tests: Path) -> int:
    """How many names the tests import from modules of the package; those of `mixlens` itself are not counted."""
    trees = [parsed(path.read_text(encoding="utf-8")) for path in tests.rglob("*.py")]
    imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return len(
        {(node.module, a.name) for node in imports if (node.module or "").startswith("mixlens.") for a in node.names}
    )


def facts(folder: Path) -> dict[str, str]:
    """The rows of the table for one folder."""
    house = measured(folder)
    lengths = sorted(house.lengths) or [0]
    return {
        "files / lines": f"{house.files} / {house.lines:,}",
        "tokens": f"{house.tokens:,}",
        "functions": f"{len(house.lengths):,}",
        "function length, median / 90 %": f"{statistics.median(lengths):.0f} / {lengths[int(0.9 * (len(lengths) - 1))]}",  # noqa: E501
        "private functions with one caller, per 1,000 lines": f"{1000 * house.with_one_caller / max(house.lines, 1):.1f}",  # noqa: E501
    }


def called(work: Any, stop: str = "") -> tuple[set[tuple[str, str]], int]:
    """The functions of ours that a call goes through, and how many frames of ours lie above the first call of
    `stop`."""
    seen: set[tuple[str, str]] = set()
    above: list[int] = []

    def is_ours(frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(str(PACKAGE)) and not frame.f_code.co_name.startswith("<")

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not is_ours(frame):
            return
        seen.add((frame.f_code.co_filename, frame.f_code.co_name))
        if frame.f_code.co_name == stop and not above:
            outer, count = frame.f_back, 0
            while outer:
                count, outer = count + is_ours(outer), outer.f_back
            above.append(count)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen, above[0] if above else 0


def calls() -> dict[str, str]:
    """How far `mix` and `why` go, once everything is loaded."""
    import mixlens

    model = mixlens.load("sentiment")
    trace = model.trace(SENTENCE)
    other = model.trace("The acting was dull.")
    mixlens.mix(trace, "alti")
    mix, above = called(lambda: mixlens.mix(other, "alti"), "alti")
    model.why(SENTENCE)
    why, _ = called(lambda: model.why(SENTENCE))
    return {
        "frames of ours above ALTI's equation in `mix`": str(above),
        'functions of ours in a second `mix(trace, "alti")`': str(len(mix)),
        "functions of ours in a second `model.why(text)`": str(len(why)),
    }


def around() -> dict[str, str]:
    """What lies beside the package."""
    scripts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.js")]
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    return {
        "lines of JavaScript": f"{sum(len(text.splitlines()) for text in scripts):,}",
        "entries at the root of the package": str(sum(path.name != "__pycache__" for path in PACKAGE.iterdir())),
        "tokens of the tests": f"{measured(ROOT / 'tests').tokens:,}",
        "names of the package's modules that the tests import": str(names_imported(ROOT / "tests")),
        "words in `docs/`": f"{sum(len(text.split()) for text in pages):,}",
    }


def table(columns: dict[str, dict[str, str]]) -> str:
    """A table in Markdown, one column for each folder."""
    rows = [
        f"| {name} | {' | '.join(column[name] for column in columns.values())} |"
        for name in next(iter(columns.values()))
    ]
    return "\n".join([f"| | {' | '.join(columns)} |", "|---|" + "--:|" * len(columns), *rows])


def main(names: Sequence[str]) -> int:
    folders = [Path(name) for name in names] or [PACKAGE]
    empty = [folder for folder in folders if not any(folder.rglob("*.py"))]
    if empty:
        print(f"no Python file in {', '.join(map(str, empty))}", file=sys.stderr)
        return 2
    columns = {folder.name: facts(folder) for folder in folders}
    print(table(columns if names else {"mixlens": {**columns["mixlens"], **around(), **calls()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
