"""The repository has each file, folder, attribute and function that a page for developers names."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, place

pytestmark = pytest.mark.xdist_group("names")  # one worker reads the repository

FOR_DEVELOPERS = [
    page
    for page in PAGES
    if place(page).startswith(("docs/adr/", "docs/development/"))
    or place(page) in ("docs/architecture.md", "CONTRIBUTING.md")
]
#: the API of CONTRIBUTING's instructions, which does not exist
EXAMPLE = re.compile(r"list_?shards", re.IGNORECASE)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"([\w./-]+\.py)(?::(\w+))?")
FOLDER = re.compile(r"(?:[\w.-]+/)+")
ATTRIBUTE = re.compile(r"([A-Z]\w*[a-z]\w*)\.(\w+)(?:\(\))?")
FUNCTION = re.compile(r"(_?[a-z]+(?:_[a-z0-9]+)+)(?:\(\))?")


@pytest.mark.parametrize("page", FOR_DEVELOPERS, ids=place)
def test_names_of_the_code_in_a_page_exist(page: Path) -> None:
    quoted = QUOTED.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    assert [name for name in quoted if not EXAMPLE.search(name) and not _exists(name)] == []


def _exists(name: str) -> bool:
    """Whether the repository has this name. True if it is no file, folder, attribute or function."""
    if file := FILE.fullmatch(name):
        words = [words for path, words in _words().items() if f"/{path}".endswith(f"/{file[1]}")]
        return any(file[2] in (None, *each) for each in words)
    if FOLDER.fullmatch(name):
        return (ROOT / name).exists() or any(f"/{name}" in f"/{path}" for path in _words())
    if attribute := ATTRIBUTE.fullmatch(name):
        return attribute[2] in _words_of_class(attribute[1])
    if function := FUNCTION.fullmatch(name):
        return any(function[1] in words for words in _words().values())
    return True


@cache
def _sources() -> dict[str, str]:
    """Return the text of each Python file, by its path in the repository."""
    folders = ("src", "tests", "bench", "demo", "simulation", "soak", "examples", "tools")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    return {place(file): file.read_text(encoding="utf-8") for file in files}


@cache
def _words() -> dict[str, set[str]]:
    """Return all words of each Python file, by its path in the repository."""
    return {path: set(re.findall(r"\w+", source)) for path, source in _sources().items()}


@cache
def _words_of_class(name: str) -> set[str]:
    """Return all words in the bodies of the classes with this name."""
    found: set[str] = set()
    for source in _sources().values():
        if f"class {name}" in source:
            lines = source.splitlines()
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ClassDef) and node.name == name:
                    found.update(re.findall(r"\w+", "\n".join(lines[node.lineno : node.end_lineno])))
    return found
