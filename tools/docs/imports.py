"""Finds which files of Barnabas import which. Imports inside functions and for types count, too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "barnabas"


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Return the file of each module below `root`, the folder of the package ``barnabas``, by the module's
    name.
    """
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return, for each module, the modules of `files` that it imports."""
    found = {}
    for name, path in files.items():
        known = (_known(wanted, files) for wanted in _wanted(path))
        found[name] = {module for module in known if module is not None and module != name}
    return found


def between(rooms: Iterable[str], imported: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return, for each room (a module or a whole package), the other rooms that it imports.

    A module belongs to the room with the longest name that contains it. Modules in no room are left out.
    """
    rooms = sorted(rooms, key=len, reverse=True)

    def room_of(module: str) -> str | None:
        return next((room for room in rooms if module == room or module.startswith(room + ".")), None)

    found: dict[str, set[str]] = {room: set() for room in sorted(rooms)}
    for module, targets in imported.items():
        room = room_of(module)
        if room is not None:
            found[room] |= {other for target in targets if (other := room_of(target)) not in (None, room)}
    return found


def headline(path: Path) -> str:
    """Return the first sentence of a module's docstring; "" if it has none."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = text.split("\n\n")[0].replace("\n", " ").replace("`", "")
    return first.split(". ")[0].rstrip(".")


def _wanted(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _known(wanted: str, files: Mapping[str, Path]) -> str | None:
    """Return the module of `files` that an import names, or that contains the imported name; None if there is
    none.
    """
    if wanted in files:
        return wanted
    parent = wanted.rpartition(".")[0]
    return parent if parent in files else None
