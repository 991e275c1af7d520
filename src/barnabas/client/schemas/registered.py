"""A registered schema with all that it refers to, by its id or by its subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.text import shown
from barnabas.client.schemas.registry import RegistryError, SchemaRegistry, subject_path

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
LATEST = "latest"
#: bounds on a schema's references, so that no registry delays its clients: schemas, depth, characters
MOST_REFERENCES, DEEPEST, MOST_TEXT = 200, 32, 8 << 20
_LARGEST_ID = 2**31 - 1


class SchemaNameError(BarnabasError):
    """A text that names no schema."""


class Registered(NamedTuple):
    """A schema.

    Attributes:
        text: of Protobuf the FileDescriptorProto in base64, which needs no compiler.
        references: the schemas that it refers to by the names it does so by; needed ones stand first.
    """

    id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


def versions_path(subject: str, version: int | str) -> str:
    """Return the address of a version."""
    return f"/subjects/{subject_path(subject)}/versions/{version}"


def path_of(name: str) -> str:
    """Return the address of the schema with a name.

    Args:
        name: ``ID``, ``SUBJECT/VERSION``, or ``SUBJECT`` for its latest version.

    Raises:
        SchemaNameError: it has none of these forms.
    """
    if name.isascii() and name.isdecimal():
        if len(name) > 10 or int(name) > _LARGEST_ID:
            raise SchemaNameError(f"schema {shown(name, 40)}: the largest id is {_LARGEST_ID}")
        return f"/schemas/ids/{int(name)}"
    subject, slash, version = name.rpartition("/")
    if not slash or not (version == LATEST or (version.isascii() and version.isdecimal())):
        subject, version = name, LATEST
    if not subject.strip() or subject in (".", "..") or len(version) > 10:
        raise SchemaNameError(
            f"schema {shown(name, 40)!r}: write an id, SUBJECT/VERSION, or SUBJECT for its latest version"
        )
    return versions_path(subject, version)


def find(registry: SchemaRegistry, name: str) -> tuple[Registered, str]:
    """Return the schema with a name, as `path_of`, and the name that it keeps when newer versions come.

    Raises:
        SchemaNameError: no schema has such a name.
        RegistryError: the registry does not have it or does not answer, or the schema refers to too much.
    """
    answer = registry.get(path_of(name))
    try:
        if "subject" in answer and "version" in answer and "id" in answer:
            same = f"{answer['subject']}/{int(answer['version'])}"
            return _whole(
                registry, versions_path(answer["subject"], answer["version"]), answer, answer["id"]
            ), same
        return _whole(registry, path_of(name), answer, int(name)), str(int(name))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RegistryError(f"schema {shown(name, 40)} cannot be used: {shown(repr(error))}") from None


def by_id(registry: SchemaRegistry, id_: int) -> Registered:
    """Return the schema with an id. Raises as `find`."""
    return find(registry, str(id_))[0]


def _whole(registry: SchemaRegistry, path: str, answer: Mapping[str, Any], id_: int) -> Registered:
    kind = answer.get("schemaType", AVRO)
    form = "?format=serialized" if kind == PROTOBUF else ""
    if form:
        answer = registry.get(path + form)
    references: dict[str, str] = {}
    room = MOST_TEXT
    for name, text in _references(registry, answer, form, set(), 0):
        room -= len(text)
        if room < 0:
            raise ValueError("it refers to too much text")
        references.setdefault(name, text)
    return Registered(int(id_), str(kind), str(answer["schema"]), tuple(references.items()))


def _references(
    registry: SchemaRegistry, answer: Mapping[str, Any], form: str, read: set[tuple[str, str]], depth: int
) -> Iterator[tuple[str, str]]:
    """Yield names and texts of all references at any depth, each once, before its dependents.

    Args:
        read: names and addresses that were read.
    """
    if depth > DEEPEST:
        raise ValueError("its references are too deep")
    for reference in answer.get("references") or ():
        name = str(reference["name"])
        path = versions_path(reference["subject"], int(reference["version"])) + form
        if (name, path) in read:
            continue
        read.add((name, path))
        if len(read) > MOST_REFERENCES:
            raise ValueError("it has too many references")
        referred = registry.get(path)
        yield from _references(registry, referred, form, read, depth + 1)
        yield name, str(referred["schema"])
