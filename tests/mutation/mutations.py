"""Small bugs in functions, each a change of a module's text at one place.

The kinds are those of cosmic-ray: other comparisons and arithmetic operators, negated conditions, `and` for
`or`, `break` for `continue`, numbers one off, loops that never run, and removed `not` and minus signs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

_COMPARISONS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
#: what takes a comparison's place; `is` for `==` and the like would only tell equal objects apart
_EXCHANGED = {
    "==": ("!=", "<", ">="), "!=": ("==", "<", ">="), "<": ("<=", ">", "=="), "<=": ("<", ">", "=="),
    ">": (">=", "<", "=="), ">=": (">", "<", "=="), "is": ("is not",), "is not": ("is",),
    "in": ("not in",), "not in": ("in",),
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
}  # fmt: skip


class Edit(NamedTuple):
    """A part of a text, and its replacement."""

    start: int
    end: int
    text: str


def places(code: str) -> list[list[list[Edit]]]:
    """Return the mutations for each place that can be changed. Each is a list of edits from the start to the
    end.
    """
    return list(_Places(code).found())


def mutated(code: str, edits: list[Edit]) -> str:
    """Return the module with the bug."""
    for edit in reversed(edits):
        code = code[: edit.start] + edit.text + code[edit.end :]
    return code


class _Places:
    def __init__(self, code: str) -> None:
        self._code = code
        self._tree = ast.parse(code)
        self._lines = [0]
        for line in code.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def found(self) -> Iterator[list[list[Edit]]]:
        inert = {id(part) for node in ast.walk(self._tree) for part in _inert_parts(node)}
        for statement in _in_functions(self._tree):
            for node in ast.walk(statement):
                if id(node) in inert:
                    inert.update(id(child) for child in ast.walk(node))
                    continue
                mutations = list(self._of_node(node))
                if mutations:
                    yield mutations

    def _of_node(self, node: ast.AST) -> Iterator[list[Edit]]:
        match node:
            case ast.Compare():
                operands = [node.left, *node.comparators]
                for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
                    written = _COMPARISONS[type(operator)]
                    for other in _EXCHANGED[written]:
                        yield [self._between(left, right, written, other)]
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                yield [self._between(node.left, node.right, *_ARITHMETIC[type(node.op)])]
            case ast.BoolOp():
                exchange = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                pairs = zip(node.values, node.values[1:], strict=False)
                yield [self._between(left, right, *exchange) for left, right in pairs]
            case ast.UnaryOp(op=ast.Not()):
                yield [Edit(self._start(node), self._start(node) + len("not"), "")]
            case ast.UnaryOp(op=ast.USub()):
                yield [Edit(self._start(node), self._start(node) + 1, "+")]
            case ast.Constant(value=bool()):
                yield [Edit(self._start(node), self._end(node), str(not node.value))]
            case ast.Constant(value=int()):
                yield from (
                    [Edit(self._start(node), self._end(node), f"({node.value + by})")] for by in (1, -1)
                )
            case ast.Break() | ast.Continue():
                other = "continue" if isinstance(node, ast.Break) else "break"
                yield [Edit(self._start(node), self._end(node), other)]
            case ast.If() | ast.While() | ast.IfExp():
                yield [self._before(node.test, "not ("), self._behind(node.test, ")")]
            case ast.For() | ast.AsyncFor():
                yield [self._before(node.iter, "[] and ("), self._behind(node.iter, ")")]

    def _between(self, left: ast.expr, right: ast.expr, written: str, other: str) -> Edit:
        """Return an edit of the operator between two operands. There can be comments and parentheses, too."""
        start, end = self._end(left), self._start(right)
        gap = re.sub(r"#.*", lambda comment: " " * len(comment[0]), self._code[start:end])
        pattern = r"\b" + written.replace(" ", r"\s+") + r"\b" if written[0].isalpha() else re.escape(written)
        found = re.search(pattern, gap)
        assert found is not None
        return Edit(start + found.start(), start + found.end(), other)

    def _before(self, node: ast.expr, text: str) -> Edit:
        return Edit(self._start(node), self._start(node), text)

    def _behind(self, node: ast.expr, text: str) -> Edit:
        return Edit(self._end(node), self._end(node), text)

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._position(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._position(node.end_lineno, node.end_col_offset)

    def _position(self, line: int, column: int) -> int:
        """Return the index of a character, because the parser counts columns in bytes."""
        start = self._lines[line - 1]
        text = self._code[start : self._lines[line]]
        return start + len(text.encode()[:column].decode())


def _in_functions(node: ast.Module | ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements that run in a call of a function. All others run once,
    when a module is imported.
    """
    for statement in getattr(node, "body", ()):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from statement.body
        else:
            yield from _in_functions(statement)


def _inert_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield parts that no unit test checks: annotations, log calls and formatted texts."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() if node.returns is not None:
            yield node.returns
        case ast.arg() | ast.AnnAssign() if node.annotation is not None:
            yield node.annotation
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "logger")))):
            yield node
        case ast.JoinedStr():
            yield node
