"""The commands in pages, help and messages that install Barnabas: each must work today."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base import installation

ROOT = Path(__file__).parents[2]
_PLACES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "Makefile", "Dockerfile")
_TREES = ("docs", "src", "demo", "examples", "contrib", "tools", "soak", "bench")
_KINDS = {".md", ".py", ".toml", ".service", ".yaml", ".yml", ".sh", ".js", ".html", ""}
#: to the end of a line, a code span, a comment or a sentence
_COMMAND = re.compile(r"pip3? install +([^\n`#]*)")
_ITSELF = re.compile(r"(barnabas|\.)(?:\[([\w,]+)\])?")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the target of each command: "barnabas" or ".", and its extras."""
    for match in _COMMAND.finditer(text):
        for word in match[1].split():
            bare = word if word == "." else word.rstrip(";,)\"'.").lstrip("\"'(")
            itself = _ITSELF.fullmatch(bare)
            if itself is not None:
                yield itself[1], itself[2] or ""


def told() -> Iterator[tuple[str, str, str]]:
    paths = [ROOT / name for name in _PLACES]
    paths += [path for tree in _TREES for path in (ROOT / tree).rglob("*") if path.suffix in _KINDS]
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts:
            text = path.read_text(encoding="utf-8", errors="replace")
            for source, extras in commands(text):
                yield str(path.relative_to(ROOT)), source, extras


@pytest.mark.skipif(installation.PUBLISHED, reason="a package index has it")
def test_nothing_tells_to_install_from_a_package_index_that_lacks_it():
    assert [page for page, source, _ in told() if source == "barnabas"] == []


def test_each_extra_that_a_command_names_exists():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = [(page, extra) for page, _, extras in told() for extra in filter(None, extras.split(","))]
    assert found
    assert [each for each in found if each[1] not in known] == []


@pytest.mark.parametrize("published", [False, True])
def test_messages_tell_the_command_for_what_is_published(monkeypatch, published):
    monkeypatch.setattr(installation, "PUBLISHED", published)
    source = "barnabas" if published else "."
    assert list(commands(installation.pip_install("spark", "registry"))) == [(source, "spark,registry")]
    assert list(commands(installation.pip_install())) == [(source, "")]
    assert shlex.split(installation.pip_command("spark"))[-1] == f"{source}[spark]"
    assert ("checkout" in installation.pip_install("spark")) != published


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install barnabas pytest", [("barnabas", "")]),
        ("`packed/bin/pip install 'barnabas[registry]' pandas`", [("barnabas", "registry")]),
        ("run pip install barnabas, then start it", [("barnabas", "")]),
        ("(pip install 'barnabas[spark]').", [("barnabas", "spark")]),
        ("/opt/barnabas/bin/pip install -c constraints.txt .      # in a checkout of barnabas", [(".", "")]),
        ("pip install kafka-python # not barnabas", []),
    ],
)
def test_commands_are_found(text, found):
    assert list(commands(text)) == found
