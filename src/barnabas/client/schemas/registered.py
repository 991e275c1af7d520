"""Finds registered schemas by id or by subject, with the schemas that they refer to. Registers schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.text import shown
from barnabas.client.schemas.registry import (
    RegistryDenied,
    RegistryError,
    RegistryRefused,
    SchemaRegistry,
    subject_path,
)

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
LATEST = "latest"
#: bounds on a schema's references, so that no registry delays its clients: schemas, depth, characters
MAX_REFERENCES, DEEPEST, MAX_TEXT = 200, 32, 8 << 20
_MAX_ID = 2**31 - 1
_IDS = "/schemas/ids/"


class SchemaNameError(BarnabasError):
    """The text is not a name of a schema: an id, SUBJECT/VERSION or SUBJECT."""


class SchemaError(BarnabasError):
    """A registered schema cannot be used."""


class Registered(NamedTuple):
    """A schema.

    Attributes:
        id: id in the registry; 0 if the schema is not registered yet.
        kind: format of the schema: AVRO, JSON or PROTOBUF.
        text: text of the schema. For Protobuf, the FileDescriptorProto in base64, which needs no compiler.
        references: name and text of each schema to which this one refers, directly or through another schema.
            A schema comes after the schemas to which it refers.
    """

    id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaReader(Protocol):
    """The part of a `SchemaRegistry` that finds schemas."""

    def get(self, path: str) -> Any:
        """Return the JSON of the response to GET `path`.

        Raises RegistryRefused if the registry refuses the request or does not have the item. Raises
        RegistryError if it does not answer, or fails.
        """
        ...


def versions_path(subject: str, version: int | str) -> str:
    """Return the path of a subject's version in the registry's API."""
    return f"/subjects/{subject_path(subject)}/versions/{version}"


def path_of(name: str) -> str:
    """Return the path of a schema in the registry's API.

    Args:
        name: ``ID``, ``SUBJECT/VERSION``, or ``SUBJECT`` for its latest version.

    Raises:
        SchemaNameError: `name` has none of these forms.
    """
    if name.isascii() and name.isdecimal():
        if len(name) > 10 or int(name) > _MAX_ID:
            raise SchemaNameError(f"schema {shown(name, 40)}: the largest id is {_MAX_ID}")
        return f"{_IDS}{int(name)}"
    subject, slash, version = name.rpartition("/")
    if not slash or not (version == LATEST or (version.isascii() and version.isdecimal())):
        subject, version = name, LATEST
    if not subject.strip() or subject in (".", "..") or len(version) > 10:
        raise SchemaNameError(
            f"schema {shown(name, 40)!r}: write an id, SUBJECT/VERSION, or SUBJECT for its latest version"
        )
    return versions_path(subject, version)


def find(registry: SchemaReader, name: str) -> tuple[Registered, str]:
    """Return a schema, and its fixed name: ``ID`` if `name` is an id, else ``SUBJECT/VERSION``.

    The fixed name means the same schema also when newer versions have been registered.

    Args:
        name: ``ID``, ``SUBJECT/VERSION``, or ``SUBJECT`` for its latest version.

    Raises:
        SchemaNameError: `name` has none of these forms.
        RegistryRefused: the registry does not have the schema, or one that it refers to.
        RegistryError: the registry does not answer, or its answer is malformed.
        SchemaError: the schema has too many references, they are nested too deeply, or their text is too
            long.
    """
    path = path_of(name)
    id_ = int(name) if path.startswith(_IDS) else None
    return _resolved(registry, path, f"schema {shown(name, 40)}", id_=id_)


def by_id(registry: SchemaReader, id_: int, kind: str = "") -> Registered:
    """Return the schema with an id. `kind` is the format that the schema must have; empty for any.

    Raises:
        RegistryRefused: the registry does not have the schema, or one that it refers to.
        RegistryError: the registry does not answer, or its answer is malformed.
        SchemaError: the schema has another format than `kind`, or its references exceed a limit.
    """
    return _resolved(registry, f"{_IDS}{id_}", f"schema id {id_}", kind, id_)[0]


def latest(registry: SchemaReader, subject: str, kind: str = "") -> Registered:
    """Return the newest version of a subject. `kind` is the format that it must have; empty for any.

    Raises:
        RegistryRefused: the registry does not have the subject, or a schema that it refers to.
        RegistryError: the registry does not answer, or its answer is malformed.
        SchemaError: the schema has another format than `kind`, or its references exceed a limit.
    """
    return _resolved(registry, versions_path(subject, LATEST), f"subject {subject}", kind)[0]


class Reference(NamedTuple):
    """A reference from a new schema to a registered version.

    `name` refers to the version inside the new schema: a file to import, a type's full name, or a ``$ref``.
    """

    name: str
    subject: str
    version: int

    @classmethod
    def parse(cls, name: str, where: str) -> Self:
        """Return the reference by `name` to the version `where`.

        Raises ConfigError if `where` is not ``SUBJECT/VERSION``.
        """
        subject, _, version = where.rpartition("/")
        if not subject or not version.isdecimal():
            raise ConfigError(f"reference {name}={where}: write SUBJECT/VERSION, such as items-value/1")
        return cls(name, subject, int(version))


def register(
    registry: SchemaRegistry, subject: str, text: str, kind: str = AVRO, references: Sequence[Reference] = ()
) -> int:
    """Register a schema, unless the subject already has it. Return the schema's id.

    Args:
        text: text of the schema.
        kind: format of the schema: AVRO, JSON or PROTOBUF.
        references: registered versions to which the schema refers.

    Raises:
        ConfigError: the registry rejects the schema.
        RegistryError: the registry does not answer, or denies the user the registration.
    """
    body: dict[str, Any] = {"schema": text}
    if kind != AVRO:  # registries from before other formats do not know the field
        body["schemaType"] = kind
    if references:
        body["references"] = [reference._asdict() for reference in references]
    try:
        answer = registry.send("POST", f"/subjects/{subject_path(subject)}/versions", body)
        return int(answer["id"])
    except RegistryDenied:
        raise
    except RegistryRefused as error:
        raise ConfigError(f"subject {subject} does not take the schema: {error}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise RegistryError(f"the registry's answer for subject {subject} is malformed: {error!r}") from None


def _resolved(
    registry: SchemaReader, path: str, item: str, kind: str = "", id_: int | None = None
) -> tuple[Registered, str]:
    """Return the schema at a path of the registry's API, and its fixed name.

    The fixed name is ``ID`` if `id_` is given, else ``SUBJECT/VERSION``. It means the same schema also when
    newer versions have been registered.

    Args:
        item: name of the schema in messages.
        kind: the required format; empty for any.
        id_: the schema's id; None for the path of a version.

    Raises:
        RegistryRefused: the registry does not have the schema, or one that it refers to.
        RegistryError: the registry does not answer, or its answer is malformed.
        SchemaError: the schema has another format than `kind`, or its references exceed a limit.
    """
    try:
        answer = registry.get(path + _form("?", kind))
        found = str(answer.get("schemaType", AVRO))
        if kind not in ("", found):
            raise SchemaError(f"its type is {shown(found, 40)}, not {kind}")
        name = str(id_)
        if id_ is None:
            id_, subject, version = int(answer["id"]), str(answer["subject"]), int(answer["version"])
            name, path = f"{subject}/{version}", versions_path(subject, version)
        if not kind and found == PROTOBUF:
            answer = registry.get(path + _form("?", found))
        references: dict[str, str] = {}
        room = MAX_TEXT
        for referred, text in _references(registry, answer, found, set(), 0):
            room -= len(text)
            if room < 0:
                raise SchemaError("it refers to too much text")
            references.setdefault(referred, text)
        return Registered(id_, found, str(answer["schema"]), tuple(references.items())), name
    except RegistryRefused as error:
        raise error.of(item) from None
    except SchemaError as error:
        raise SchemaError(f"{item} cannot be used: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RegistryError(f"{item} cannot be used: {shown(repr(error))}") from None


def _references(
    registry: SchemaReader, answer: Mapping[str, Any], kind: str, read: set[tuple[str, str]], depth: int
) -> Iterator[tuple[str, str]]:
    """Yield names and texts of all references at any depth, each once, before its dependents.

    Deleted versions are read, too: a registry keeps a deleted version while another schema refers to it.

    Args:
        answer: the registry's response with the schema whose references are yielded.
        kind: the format of all of these schemas.
        read: names and paths of the references that were read; this function adds to it.
        depth: the number of references that lead to the schema in `answer`.

    Raises:
        SchemaError: there are more references, or they are nested deeper, than the limit.
        RegistryRefused, RegistryError: the registry does not return a reference.
    """
    if depth > DEEPEST:
        raise SchemaError("its references are too deep")
    for reference in answer.get("references") or ():
        name = str(reference["name"])
        path = versions_path(reference["subject"], int(reference["version"]))
        if (name, path) in read:
            continue
        read.add((name, path))
        if len(read) > MAX_REFERENCES:
            raise SchemaError("it has too many references")
        try:
            referred = registry.get(f"{path}?deleted=true{_form('&', kind)}")
        except RegistryRefused as error:
            raise error.of(f"its reference {shown(name, 100)}") from None
        yield from _references(registry, referred, kind, read, depth + 1)
        yield name, str(referred["schema"])


def _form(joint: str, kind: str) -> str:
    return f"{joint}format=serialized" if kind == PROTOBUF else ""
