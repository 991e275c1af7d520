"""A broker's code uses the system only through its environment: this finds calls that need no import.

A contract in pyproject.toml forbids the imports.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[4] / "src" / "barnabas"
PACKAGES = ["broker", "kafka"]
#: a process around a broker, and a metadata store that an environment may replace
OUTSIDE = tuple(
    f"broker/{name}"
    for name in (
        "server/garbage.py",
        "server/run.py",
        "server/signals.py",
        "metadata/server/server.py",
        "metadata/zookeeper/",
        "config/files.py",
    )
)
#: of a module that is not forbidden as a whole, these may be used
ALLOWED = {"random": {"Random"}, "pathlib": {"Path", "PurePath", "PurePosixPath"}, "datetime": set()}
#: methods of event loops and of paths that go to threads, sockets and files
CALLS = {
    "create_connection", "create_server", "create_unix_connection", "create_unix_server", "exists",
    "getaddrinfo", "glob", "is_dir", "is_file", "iterdir", "mkdir", "new_event_loop", "open_connection",
    "read_bytes", "read_text", "resolve", "rmdir", "run_in_executor", "set_event_loop", "start_server",
    "subprocess_exec", "to_thread", "touch", "unlink", "write_bytes", "write_text",
}  # fmt: skip
#: methods of our own that have such a name
OURS = {("exists", "store"), ("exists", "target"), ("resolve", "regexes"), ("resolve", "sessions")}


def reaches_around(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.partition(".")[0] in ALLOWED:
                    yield node.lineno, f"import {name.name}"
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                if node.module in ALLOWED and name.name not in ALLOWED[node.module]:
                    yield node.lineno, f"from {node.module} import {name.name}"
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id == "open":
                yield node.lineno, "open()"
            elif isinstance(called, ast.Name) and called.id == "Random":
                yield node.lineno, "Random()"
            elif isinstance(called, ast.Attribute) and called.attr in CALLS:
                owner = called.value
                owner_name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if (called.attr, owner_name.strip("_")) not in OURS:
                    yield node.lineno, f"{ast.unparse(called)}()"


def test_a_brokers_code_reaches_nothing_around_its_environment():
    found = []
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            name = path.relative_to(SOURCE).as_posix()
            if not name.startswith(OUTSIDE):
                found += [
                    f"{name}:{line}: {what}" for line, what in reaches_around(ast.parse(path.read_text()))
                ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "import random",
        "from random import random",
        "x = Random()",
        "open('a')",
        "asyncio.to_thread(f)",
        "loop.run_in_executor(None, f)",
        "Path('a').exists()",
        "import datetime",
    ],
)
def test_the_check_finds_what_it_looks_for(code):
    assert list(reaches_around(ast.parse(code)))
