"""Prints the sizes of the package: files, lines, functions, complexity, and what is global.

    python -m recipes.house              # mixlens
    python -m recipes.house PACKAGE ...  # other folders of Python, one column each

Complexity is the number of branches of a function plus one: if, for, while, except, case, assert, conditional expressions, the
`for` and `if` of comprehensions, and each further `and` or `or`. A function inside another one counts by itself.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .sources import parsed

BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert, ast.match_case)
MUTABLE = ("dict", "list", "set", "defaultdict", "WeakKeyDictionary", "WeakValueDictionary", "OrderedDict", "Counter", "deque")
CACHES = ("cache", "lru_cache")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class House:
    """What is counted in one folder. `functions` are (length in lines, complexity)."""

    lines: list[int]
    functions: list[tuple[int, int]]
    context_variables: int
    caches: int
    empty_mutables: int


def name_of(node: ast.AST) -> str:
    """The last name of a call, a decorator or an annotation: `functools.cache` is "cache"."""
    if isinstance(node, ast.Call | ast.Subscript):
        return name_of(node.func if isinstance(node, ast.Call) else node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def inside(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function, without those of the functions inside it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function):
            waiting += ast.iter_child_nodes(node)


def branches(node: ast.AST) -> int:
    """How many branches one node adds."""
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return int(isinstance(node, BRANCHES))


def complexity(function: Function) -> int:
    """Branches of a function plus one."""
    return 1 + sum(map(branches, inside(function)))


def length(function: Function) -> int:
    """Lines from `def` to the end, decorators left out."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def is_empty_mutable(value: ast.AST | None) -> bool:
    """Is it {}, [], or a call like dict() without arguments?"""
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    return isinstance(value, ast.Call) and not value.args and not value.keywords and name_of(value) in MUTABLE


def empty_mutables(tree: ast.Module) -> int:
    """Names at the top of a file that begin empty and are filled later."""
    return sum(is_empty_mutable(node.value) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))


def measured(folder: Path) -> House:
    """All Python files of a folder, counted."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))]
    trees = [parsed(text) for text in texts]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, Function)]
    return House(
        lines=[len(text.splitlines()) for text in texts],
        functions=[(length(function), complexity(function)) for function in functions],
        context_variables=sum(isinstance(node, ast.Call) and name_of(node) == "ContextVar" for node in nodes),
        caches=sum(name_of(one) in CACHES for function in functions for one in function.decorator_list),
        empty_mutables=sum(map(empty_mutables, trees)),
    )


def share(values: Sequence[int], part: float) -> int:
    """The value that this part of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def facts(house: House) -> dict[str, str]:
    """The rows of the table."""
    lengths = [one for one, _ in house.functions] or [0]
    branching = [one for _, one in house.functions] or [0]
    return {
        "files / lines": f"{len(house.lines)} / {sum(house.lines):,}",
        "median / largest file": f"{statistics.median(house.lines):.0f} / {max(house.lines):,}",
        "files over 400 lines": str(sum(lines > 400 for lines in house.lines)),
        "functions": f"{len(house.functions):,}",
        "function length, median / 90 %": f"{statistics.median(lengths):.0f} / {share(lengths, 0.9)}",
        "complexity, mean / largest": f"{statistics.mean(branching):.2f} / {max(branching)}",
        "ContextVars / caches / empty mutable globals": f"{house.context_variables} / {house.caches} / {house.empty_mutables}",
    }


def table(folders: Sequence[Path]) -> str:
    """A table in Markdown, one column for each folder."""
    columns = [facts(measured(folder)) for folder in folders]
    rows = [f"| {name} | {' | '.join(column[name] for column in columns)} |" for name in columns[0]]
    return "\n".join([f"| | {' | '.join(folder.name for folder in folders)} |", "|---|" + "---|" * len(folders), *rows])


def main(names: Sequence[str]) -> int:
    folders = [Path(name) for name in names] or [Path(__file__).resolve().parents[1] / "mixlens"]
    empty = [folder for folder in folders if not any(folder.rglob("*.py"))]
    if empty:
        print(f"no Python file in {', '.join(map(str, empty))}", file=sys.stderr)
        return 2
    print(table(folders))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
