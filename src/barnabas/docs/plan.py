"""The plan of the house: its packages, and the inside of the server, drawn from the imports."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from barnabas.docs.floors import Room, draw
from barnabas.docs.imports import between, headline, imports, modules

#: what every package uses: drawn as one room
_GROUND = (
    "barnabas",
    "barnabas.answers",
    "barnabas.errors",
    "barnabas.installation",
    "barnabas.text",
    "barnabas.types",
)
_GROUND_CAPTION = "what all others share"
_COMPOSITION = "the composition root and the process around it"


def packages_drawing() -> str:
    """The packages of Barnabas."""
    files, imported = _source()
    names = {name for name in files if name.count(".") == 1}
    rooms = {name: _room(name, files) for name in names if name not in _GROUND}
    uses = between(names, imported)
    merged = {name: {*uses[name]}.difference(_GROUND) for name in rooms}
    for name, used in merged.items():
        if uses[name].intersection(_GROUND):
            used.add(_GROUND[0])
    merged[_GROUND[0]] = set()
    rooms[_GROUND[0]] = Room("answers, errors, installation, text, types", _GROUND_CAPTION)
    return draw("The packages of Barnabas: each uses those below it", rooms, merged)


def server_drawing() -> str:
    """The rooms of the server, and the packages that they use."""
    files, imported = _source()
    inside = {name for name in files if name.startswith("barnabas.server.") and name.count(".") == 2}
    rooms = {name: _room(name, files) for name in inside if files[name].name == "__init__.py"}
    composed = {name for name in inside if name not in rooms}
    beside = ("controller", "coordinator", "replication", "logs", "metadata", "storage", "protocol")
    rooms |= {f"barnabas.{name}": _room(f"barnabas.{name}", files) for name in beside}
    uses = between([*rooms, *composed], imported)
    root = "barnabas.server.broker"
    merged = {name: uses[name] - composed for name in rooms}
    merged[root] = set().union(*(uses[name] for name in composed)) - composed
    rooms[root] = Room("server/broker, serving, run …", _COMPOSITION)
    return draw("The rooms of the server and what they use", rooms, merged)


@cache
def _source() -> tuple[dict[str, Path], dict[str, set[str]]]:
    files = modules()
    return files, imports(files)


def _room(name: str, files: dict[str, Path]) -> Room:
    is_package = files[name].name == "__init__.py"
    short = name.removeprefix("barnabas.").replace(".", "/")
    return Room(short + "/" if is_package else short + ".py", headline(files[name]))
