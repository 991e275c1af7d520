"""Separates prose from code: returns the sentences of a Markdown page or of a Python file's docstrings.

The result has as many lines as the source, so that a finding has the line number of the source. Lines without
prose are empty. Code becomes a single `CODE` character, which rules ignore and which counts as one word.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

CODE = "⌘"
#: starts a paragraph, a list item, a table cell
UNIT = "¶"
#: starts a heading
HEADING = "◆"
#: starts a docstring
DOCSTRING = "§"

_QUOTED_CODE = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)
#: a line of a table or of a drawing
_DRAWING = re.compile(r"\S {3,}\S|>>>|^\s*[|+]")
_SECTION = re.compile(r"^(Args|Arguments|Parameters|Raises|Returns|Yields|Attributes):$")
_PAGES = MarkdownIt("commonmark").enable("table")


def prose(path: Path) -> str:
    """Return the prose of a file, line by line."""
    source = path.read_text(encoding="utf-8")
    lines = [""] * (source.count("\n") + 1)
    for line, text in _docstrings(source) if path.suffix == ".py" else _page(source):
        lines[line] += text
    return "\n".join(lines)


def _page(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each line of prose in a page."""
    before = ""
    line = 0
    for token in _PAGES.parse(source):
        if token.type == "inline":
            # a table's cells have no line of their own
            line = token.map[0] if token.map else line
            mark = HEADING if before == "heading_open" else UNIT
            text = _inline(token)
            if before == "td_open":  # a cell is often a list
                text = text.replace("; ", f" {UNIT} ")
            for number, part in enumerate(text.split("\n")):
                yield line + number, f" {mark} {part} " if number == 0 else part
        elif token.map:
            line = token.map[0]
        before = token.type


def _inline(token: Token) -> str:
    """Return the text that a reader sees, with code replaced."""
    parts = []
    for child in token.children or ():
        match child.type:
            case "text":
                parts.append(child.content)
            case "code_inline":
                parts.append(CODE)
            case "softbreak" | "hardbreak":
                parts.append("\n")
            case "image":
                parts.append(child.content)
    return "".join(parts)


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each line of prose in docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and (text := ast.get_docstring(node, clean=False)):
            yield from _docstring(node.body[0].lineno - 1, text)


def _docstring(first: int, text: str) -> Iterator[tuple[int, str]]:
    text = _QUOTED_CODE.sub(lambda code: CODE + "\n" * code[0].count("\n"), text)
    lines = text.split("\n")
    margin = min((_indent(line) for line in lines[1:] if line.strip()), default=0)
    literal = section = False
    after_blank = True
    for number, line in enumerate(lines):
        words = line.strip()
        indented = number > 0 and _indent(line) > margin
        if not words:
            after_blank = True
            continue
        if not indented:
            literal, section = words.endswith("::"), bool(_SECTION.match(words))
        elif after_blank and not section:
            literal = True
        if not literal and not _DRAWING.search(line):
            begins = after_blank or words[:2] in ("- ", "* ") or section
            mark = DOCSTRING if number == 0 else UNIT
            yield first + number, f"{mark} {words}" if begins else words
        after_blank = False


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
