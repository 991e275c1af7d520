"""Draws the packages from their imports: all of Barnabas, the broker, and the broker's server."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tools.docs.floors import Room, draw
from tools.docs.imports import between, headline, imports, modules

_ROOT = "barnabas.broker.server.broker"
_COMPOSITION = "the composition root and the process around it"


def packages_drawing() -> str:
    """Return the drawing of the packages of Barnabas."""
    files, _ = _source()
    return _drawn(
        "The packages of Barnabas: each uses those below it",
        [name for name in files if name.count(".") == 1],
    )


def broker_drawing() -> str:
    """Return the drawing of the broker's packages, above the packages that they use."""
    files, _ = _source()
    inside = [name for name in files if name.startswith("barnabas.broker.") and name.count(".") == 2]
    below = ["barnabas.kafka", "barnabas.base"]
    return _drawn("The packages of the broker and what they use", [*inside, *below])


def server_drawing() -> str:
    """Return the drawing of the server's packages, and of the broker's packages that they use."""
    files, imported = _source()
    inside = {name for name in files if name.startswith("barnabas.broker.server.") and name.count(".") == 3}
    rooms = {name: _room(name, files) for name in inside if files[name].name == "__init__.py"}
    composed = {name for name in inside if name not in rooms}
    beside = ("controller", "coordinator", "replication", "logs", "metadata", "storage")
    rooms |= {name: _room(name, files) for name in [f"barnabas.broker.{each}" for each in beside]}
    rooms["barnabas.kafka"] = _room("barnabas.kafka", files)
    uses = between([*rooms, *composed], imported)
    merged = {name: uses[name] - composed for name in rooms}
    merged[_ROOT] = set().union(*(uses[name] for name in composed)) - composed
    rooms[_ROOT] = Room("server/broker, serving, run …", _COMPOSITION)
    return draw("The packages of the server and what they use", rooms, merged)


def _drawn(title: str, names: list[str]) -> str:
    files, imported = _source()
    return draw(title, {name: _room(name, files) for name in names}, between(names, imported))


@cache
def _source() -> tuple[dict[str, Path], dict[str, set[str]]]:
    files = modules()
    return files, imports(files)


def _room(name: str, files: dict[str, Path]) -> Room:
    is_package = files[name].name == "__init__.py"
    short = name.removeprefix("barnabas.").removeprefix("broker.").replace(".", "/")
    return Room(short + "/" if is_package else short + ".py", headline(files[name]))
