"""Faults of one source file, made by `ast`: each is one small change inside a function. For `recipes.mutants`.

Docstrings, messages (f-strings), annotations, decorators, imports, `raise` and `assert` are left alone.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..sources import parsed

ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.MatMult: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARISONS: dict[type, type] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_PAIRS = (
    ("mean", "sum"),
    ("max", "min"),
    ("amax", "amin"),
    ("argmax", "argmin"),
    ("all", "any"),
    ("maximum", "minimum"),
)
AGGREGATES = {**dict(_PAIRS), **{right: left for left, right in _PAIRS}}
# Calls that may be left out, so that what they were given stays.
METHODS = frozenset(
    (
        *(
            "abs",
            "abs_",
            "clamp",
            "clamp_",
            "clamp_min",
            "softmax",
            "log_softmax",
            "relu",
            "sqrt",
            "exp",
            "log",
            "round",
        ),
        *("square", "tril", "triu", "masked_fill", "strip", "rstrip", "lstrip", "lower", "sort"),
    )
)
FUNCTIONS = frozenset(("abs", "sorted", "round", "set", "reversed"))
TRANSPOSED = frozenset(("T", "mT", "mH"))
TRANSPOSING = frozenset(("transpose", "t", "movedim", "permute"))
# `strict=` and `stacklevel=` guard and describe: leaving them out changes nothing that a right program shows. `device=`
# is the
# default on a CPU, where these tests run.
SPARED_KEYWORDS = frozenset(("strict", "stacklevel", "device", "non_blocking"))
# Calls whose first two arguments may be swapped, or that say at once what is wrong if they are.
SYMMETRIC = frozenset(("max", "min", "maximum", "minimum", "isinstance", "getattr", "hasattr", "setattr"))
OPERATORS = (
    *("arithmetic", "comparison", "boolean", "constant", "axis", "negated condition", "dropped filter"),
    *("removed statement", "swapped arguments", "slice", "dropped call", "dropped keyword", "aggregate", "sign"),
    *("dropped term", "dropped factor", "dropped transpose", "early return"),
)


@dataclass(frozen=True)
class Fault:
    """One change. It is known by file, function and the changed text, not by its line, which moves."""

    file: str
    function: str
    operator: str
    before: str
    after: str
    number: int  # which of several equal texts of the function, from 0
    line: int
    start: int  # bytes of the source that are replaced
    end: int
    text: str  # by these

    @property
    def id(self) -> str:
        told = (self.file, self.function, self.operator, self.before, self.after, self.number)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:8]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a reviewed entry names."""
        return self.file, self.function, self.before, self.after

    def applied(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()


def faults(source: str, file: str) -> list[Fault]:
    """Every fault of a source text, in the order of the text."""
    found = _Finder(source, file)
    found.visit(parsed(source))
    numbered: dict[tuple[str, ...], int] = {}
    whole: list[Fault] = []
    for fault in sorted(found.faults, key=lambda one: (one.start, one.end, one.operator, one.after)):
        kind = (*fault.key, fault.operator)
        numbered[kind] = numbered.get(kind, -1) + 1
        fault = replace(fault, number=numbered[kind])
        whole.append(fault)
    return whole


def readable(fault: Fault, source: str) -> bool:
    """Whether the changed text is a program, and another one."""
    try:
        return ast.dump(parsed(fault.applied(source))) != ast.dump(parsed(source))
    except (SyntaxError, ValueError):
        return False


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str, file: str):
        self.file, self.faults = file, list[Fault]()
        self.data = source.encode()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.scope: list[str] = []
        self.depth = 0  # functions around

    # --- where --------------------------------------------------------------------------------------------------------

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _add(self, operator: str, node: ast.expr | ast.stmt, after: str, text: str | None = None) -> None:
        if not self.depth:
            return
        start, end = self._span(node)
        text = f"({after})" if text is None else text
        before = ast.unparse(node)
        self.faults.append(
            Fault(self.file, ".".join(self.scope), operator, before, after, 0, node.lineno, start, end, text)
        )

    def _changed(self, operator: str, node: ast.expr, change: Callable[..., object]) -> None:
        """The fault that `change` makes of a copy of the node: in place, or by what it returns."""
        other = copy.copy(node)
        for name, value in ast.iter_fields(other):
            if isinstance(value, list):
                setattr(other, name, list(value))
        made = change(other)
        try:
            self._add(operator, node, ast.unparse(made if isinstance(made, ast.expr) else other))
        except ValueError:  # a string that cannot be written back
            return

    # --- what is walked through ---------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.scope.append(node.name)
        self.depth += 1
        for default in (*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)):
            self.visit(default)
        self._early_return(node)
        self._body(node.body)
        self.depth -= 1
        self.scope.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.append(node.name)
        self._body(node.body)
        self.scope.pop()

    def _body(self, statements: list[ast.stmt]) -> None:
        for number, statement in enumerate(statements):
            if not (number == 0 and _is_text(statement)):
                self.visit(statement)

    def _left_alone(self, node: ast.AST) -> None:
        return

    visit_JoinedStr = visit_Raise = visit_Assert = visit_Import = visit_ImportFrom = _left_alone  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    # --- the faults ---------------------------------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if any(_is_string(side) for side in (node.left, node.right)):
            return
        if other := ARITHMETIC.get(type(node.op)):
            self._changed("arithmetic", node, lambda one: setattr(one, "op", other()))
        if isinstance(node.op, ast.Sub):
            self._changed("sign", node, lambda one: ast.BinOp(one.right, ast.Sub(), one.left))
        if isinstance(node.op, ast.Add | ast.Sub):
            self._changed("dropped term", node, lambda one: one.left)
        if isinstance(node.op, ast.Mult | ast.Div):
            self._changed("dropped factor", node, lambda one: one.left)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        for place, op in enumerate(node.ops):
            other = COMPARISONS[type(op)]
            self._changed("comparison", node, lambda one, place=place, other=other: one.ops.__setitem__(place, other()))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.generic_visit(node)
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        self._changed("boolean", node, lambda one: setattr(one, "op", other()))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if (
            isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
            and isinstance(node.operand.value, int)
        ):
            self._add("axis", node, f"-{node.operand.value + 1}")
            return
        self.generic_visit(node)
        if isinstance(node.op, ast.USub):
            self._changed("sign", node, lambda one: one.operand)
        elif isinstance(node.op, ast.Not):
            self._changed("negated condition", node, lambda one: one.operand)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", node, str(not node.value), str(not node.value))
        elif isinstance(node.value, int):
            self._add("constant", node, str(node.value + 1))
        elif isinstance(node.value, float) and abs(node.value) >= 1e-3:
            self._add("constant", node, repr(2 * node.value))

    def visit_If(self, node: ast.If) -> None:
        self.generic_visit(node)
        self._negated(node.test)
        if not node.orelse:
            self._removed(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.generic_visit(node)
        self._negated(node.test)

    def visit_While(self, node: ast.While) -> None:
        self.generic_visit(node)
        self._negated(node.test)

    def _negated(self, test: ast.expr) -> None:
        self._changed("negated condition", test, lambda one: ast.UnaryOp(ast.Not(), one))

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.generic_visit(node)
        for condition in node.ifs:
            self._add("dropped filter", condition, "True")

    def visit_Expr(self, node: ast.Expr) -> None:
        self.generic_visit(node)
        if isinstance(node.value, ast.Call | ast.Yield | ast.YieldFrom):
            self._removed(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        self._removed(node)
        if other := ARITHMETIC.get(type(node.op)):
            changed = copy.copy(node)
            changed.op = other()
            self._add("arithmetic", node, ast.unparse(changed), ast.unparse(changed))

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        rebound = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
        if all(
            isinstance(one, ast.Subscript | ast.Attribute) or getattr(one, "id", "") in rebound for one in node.targets
        ):
            self._removed(node)  # a new name that is not given would only crash

    def visit_Delete(self, node: ast.Delete) -> None:
        self._removed(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._removed(node)

    def _removed(self, node: ast.stmt) -> None:
        self._add("removed statement", node, "pass", "pass")

    def visit_Slice(self, node: ast.Slice) -> None:
        self.generic_visit(node)
        for bound in (node.lower, node.upper):
            if bound is not None:
                self._changed("slice", bound, lambda one: ast.BinOp(one, ast.Add(), ast.Constant(1)))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        if node.attr in TRANSPOSED:
            self._changed("dropped transpose", node, lambda one: one.value)

    def visit_Call(self, node: ast.Call) -> None:
        self._arguments(node)
        name, plain = _called(node), not any(isinstance(one, ast.Starred) for one in node.args[:2])
        if len(node.args) >= 2 and plain and name not in SYMMETRIC:
            self._changed("swapped arguments", node, lambda one: one.args.__setitem__(slice(0, 2), one.args[1::-1]))
        for place, keyword in enumerate(node.keywords):
            if keyword.arg is not None and keyword.arg not in SPARED_KEYWORDS:
                self._changed("dropped keyword", node, lambda one, place=place: one.keywords.__delitem__(place))
        if name in AGGREGATES:
            self._changed("aggregate", node, lambda one: _rename(one, AGGREGATES[name]))
        if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
            if name in METHODS:
                self._changed("dropped call", node, lambda one: one.func.value)
            if name in TRANSPOSING:
                self._changed("dropped transpose", node, lambda one: one.func.value)
        elif isinstance(node.func, ast.Name) and node.args and plain:
            if name in FUNCTIONS:
                self._changed("dropped call", node, lambda one: one.args[0])
            if name in ("max", "min") and len(node.args) == 2:
                self._changed("dropped call", node, lambda one: one.args[1])

    def _arguments(self, node: ast.Call) -> None:
        self.visit(node.func)
        for argument in node.args:
            if not (_called(node) == "isinstance" and argument is node.args[-1]):
                self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg not in SPARED_KEYWORDS:
                self.visit(keyword.value)

    def _early_return(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        statements = node.body[1:] if _is_text(node.body[0]) else node.body
        own = [one for one in _own(node) if isinstance(one, ast.Yield | ast.YieldFrom)]
        if not statements or own:
            return
        names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        names = [name for name in names if name not in ("self", "cls")]
        after = f"return {names[0]}" if names else "return None"
        first = statements[0]
        start, _ = self._span(first)
        text = f"{after}\n{' ' * first.col_offset}"
        self.faults.append(
            Fault(self.file, ".".join(self.scope), "early return", "", after, 0, first.lineno, start, start, text)
        )


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """Everything in a function but what is in functions of its own."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _own(child)


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_module(node: ast.expr) -> bool:
    """Whether a call is of a library, `torch.softmax(...)`, whose first argument is what a method would be called
    on."""
    return isinstance(node, ast.Name) and node.id in ("torch", "np", "math", "os")


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _rename(call: ast.Call, name: str) -> None:
    call.func = copy.copy(call.func)
    if isinstance(call.func, ast.Attribute):
        call.func.attr = name
    elif isinstance(call.func, ast.Name):
        call.func.id = name
