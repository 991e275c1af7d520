"""Registers schemas. A new schema gets an id and a version if it is compatible with the existing versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from barnabas.registry import understanding
from barnabas.registry.decision import Decision
from barnabas.registry.errors import (
    Code,
    RegistryError,
    not_permitted,
    schema_not_found,
    subject_not_found,
)
from barnabas.registry.levels import Level, Mode
from barnabas.registry.policy import config_of, level_of, require_writable
from barnabas.registry.records import Key, Record
from barnabas.registry.resolution import pinned, source_of, source_of_version
from barnabas.registry.schema import AVRO, INT_MAX, PROTOBUF, Schema
from barnabas.registry.state import State, Version
from barnabas.registry.subjects import context_of


def register(
    state: State, subject: str, body: Mapping[str, Any], *, normalize: bool = False
) -> Decision[Version]:
    """Register a schema under `subject`: return the version that has it, and the record to write.

    If the subject has the schema already, return the existing version and no record. If not, return a new
    version and the record that stores it. This function changes nothing: the caller writes the record, and
    answers the request with the version.

    A new version takes what `body` lacks (text, metadata, rule set) from the subject's newest version. In the
    mode IMPORT it takes nothing.

    Args:
        state: the present contents of the registry.
        subject: the subject, for example ``orders-value``.
        body: the JSON object in the request: ``schema`` (the text), ``schemaType``, ``references``,
            ``metadata``, ``ruleSet``, ``id`` and ``version``. The mode IMPORT requires ``id``.
        normalize: whether to sort the parts of the schema's text whose order has no meaning first.

    Raises:
        RegistryError: INVALID_SCHEMA; INCOMPATIBLE_SCHEMA, an earlier version is not compatible;
            OPERATION_NOT_PERMITTED, the mode does not allow this; 422, a field of `body` has a wrong type;
            STORE_ERROR, no id or version is left.
        NotComputed: the schema has not been parsed or compared yet.
    """
    mode = require_writable(state, subject)
    wanted = _number(body, "id", 0)
    bodies = [body] if mode is Mode.IMPORT else _completed(state, subject, body)
    versions = [version for version in state.versions(subject) if wanted in (None, version.id)]
    schema, found = _search(state, subject, bodies, versions, normalize=normalize)
    if found is not None:
        return Decision([], found)
    if wanted is not None and mode is not Mode.IMPORT:
        raise not_permitted(f"Subject {subject} is not in import mode, and the schema comes with an id")
    if wanted is None and mode is Mode.IMPORT:
        raise not_permitted(f"Subject {subject} is in import mode, and the schema comes without an id")
    if mode is not Mode.IMPORT:
        check_new(state, subject, schema, normalize=normalize)
        reasons = conflicts(state, subject, schema, state.versions(subject))
        if reasons:
            words = f"Schema being registered is incompatible with an earlier schema for subject '{subject}'"
            raise RegistryError(Code.INCOMPATIBLE_SCHEMA, f"{words}, details: [{', '.join(reasons)}]")
    version = Version(
        subject,
        _version_number(state, subject, body, mode),
        _id(state, subject, schema, wanted),
        schema,
    )
    return Decision([schema_record(version)], version)


def lookup(state: State, subject: str, body: Mapping[str, Any], *, normalize: bool, deleted: bool) -> Version:
    """Return the version of `subject` that has the schema in a request.

    If there is none, and `body` has no metadata or no rule set, the search is repeated with those of the
    newest version.

    Args:
        state: the present contents of the registry.
        subject: the subject, for example ``orders-value``.
        body: the JSON object in the request, with ``schema`` (the text), ``schemaType`` and others.
        normalize: whether to sort the parts of the schema's text whose order has no meaning first.
        deleted: whether to search softly deleted versions, too.

    Raises:
        RegistryError: SUBJECT_NOT_FOUND, SCHEMA_NOT_FOUND, INVALID_SCHEMA; 422, a field has a wrong type.
        NotComputed: the schema has not been parsed yet.
    """
    versions = state.versions(subject, deleted=deleted)
    found = None
    if not _lacks_text(body):
        bodies = _completed(state, subject, body)
        _, found = _search(state, subject, bodies, versions, normalize=normalize)
    if found is None:
        raise schema_not_found() if versions else subject_not_found(subject)
    return found


def canonical(state: State, subject: str, schema: Schema, *, normalize: bool, is_new: bool = False) -> Schema:
    """Return the schema with its text in canonical form, so that equal schemas have the same fingerprint.

    A reference to a latest version gets the present number of this version. With `normalize`, or if the
    subject's setting ``normalize`` is true, parts whose order has no meaning are sorted. With `is_new`, the
    default values of Avro fields are checked, too. Raises NotComputed if no worker process has parsed the
    schema yet, and RegistryError if the schema is invalid.
    """
    schema = pinned(state, subject, schema)
    normalize = normalize or bool(config_of(state, subject).get("normalize"))
    source = source_of(state, subject, schema, normalize=normalize, is_new=is_new)
    return replace(schema, text=understanding.canonical(source))


def check_new(state: State, subject: str, schema: Schema, *, normalize: bool) -> None:
    """Check what is only checked in new schemas: the default values of Avro fields.

    A schema that has an id in the context of `subject` is not new. `schema` has its canonical text. Raises
    NotComputed and RegistryError as `canonical` does.
    """
    known = state.ids(context_of(subject)).by_fingerprint
    if schema.type == AVRO and schema.fingerprint not in known:
        canonical(state, subject, schema, normalize=normalize, is_new=True)


def conflicts(state: State, subject: str, schema: Schema, versions: Iterable[Version]) -> list[str]:
    """Return the reasons why `schema` is not compatible with `versions`; an empty list if it is compatible.

    The subject's compatibility level applies. `versions` are in ascending order. If the level is not
    transitive, only the last version is compared. If the level is NONE, the result is empty.

    The result has the reasons for only one version: the newest one that is not compatible. Two texts follow
    the reasons, for example ``{oldSchemaVersion: 3}`` and ``{compatibility: 'BACKWARD'}``.

    Raises:
        NotComputed: a comparison has not been made yet.
        RegistryError: a schema is invalid, or a comparison exceeds a limit.
    """
    level = level_of(state, subject)
    against = list(versions) if level.transitive else list(versions)[-1:]
    if level is Level.NONE or not against:
        return []
    against.reverse()
    conflict = understanding.first_conflict(
        source_of(state, subject, schema),
        [source_of_version(state, version) for version in against],
        backward=level.backward,
        forward=level.forward,
    )
    if conflict is None:
        return []
    number, found = conflict
    return [*found, f"{{oldSchemaVersion: {against[number].number}}}", f"{{compatibility: '{level}'}}"]


def schema_record(version: Version, *, deleted: bool = False) -> Record:
    """Return the record that stores `version`; with `deleted`, the record that deletes the version softly."""
    value = {
        "subject": version.subject,
        "version": version.number,
        "id": version.id,
        **version.schema.to_json(),
        "deleted": deleted,
    }
    return Record(Key("SCHEMA", version.subject, version.number), value)


def _completed(state: State, subject: str, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the JSON objects to search a subject for: `body`, and `body` with the fields that it lacks.

    `body` is the JSON object in a request. It can lack metadata, a rule set, and a schema (its text is
    empty). The second object takes these from the subject's newest version. If `body` lacks nothing, or the
    subject has no versions, the result is `body` alone. If `body` lacks a schema, the result does not have
    `body` itself.
    """
    versions = state.versions(subject)
    if not versions:
        return [body]
    newest = versions[-1].schema.to_json()
    taken = {name: newest.get(name) for name in ("metadata", "ruleSet") if body.get(name) is None}
    if _lacks_text(body):
        of_schema = {name: newest.get(name) for name in ("schema", "schemaType", "references")}
        return [{**body, **of_schema, **taken}]
    return [body, {**body, **taken}] if any(taken.values()) else [body]


def _lacks_text(body: Mapping[str, Any]) -> bool:
    text = body.get("schema")
    return text is None or (isinstance(text, str) and not text.strip())


def _search(
    state: State,
    subject: str,
    bodies: Iterable[Mapping[str, Any]],
    versions: Sequence[Version],
    *,
    normalize: bool,
) -> tuple[Schema, Version | None]:
    """Search `versions` for the schema of each of `bodies`, until a version has one of them.

    Return this schema, with canonical text, and the version. If no version has any of the schemas, return the
    schema of the last body, and None.

    `bodies` are one or more JSON objects with a schema, from `_completed`.
    """
    for body in bodies:
        schema = canonical(state, subject, Schema.from_request(body), normalize=normalize)
        found = _find(state, versions, schema)
        if found is not None:
            break
    return schema, found


def _find(state: State, versions: Sequence[Version], schema: Schema) -> Version | None:
    """Return the newest of `versions` whose schema equals `schema`; None if there is none.

    Confluent's registry prints Protobuf schemas differently. So if no text is equal, stored Protobuf schemas
    are printed again in this registry's canonical form, and compared in that form.
    """
    for version in reversed(versions):
        if version.schema.fingerprint == schema.fingerprint:
            return version
    for version in reversed(versions):
        # Confluent's registry prints .proto text differently.
        if (
            version.schema.type == schema.type == PROTOBUF
            and _respelled(state, version) == schema.fingerprint
        ):
            return version
    return None


def _respelled(state: State, version: Version) -> bytes | None:
    """Return the fingerprint of the schema of `version` in canonical form; None if the schema is invalid.

    Raises NotComputed if the schema has not been parsed yet, and RegistryError (status 500 or above) for
    other errors.
    """
    try:
        text = understanding.canonical(source_of_version(state, version))
    except RegistryError as error:
        if error.status >= 500:
            raise
        return None
    return replace(version.schema, text=text).fingerprint


def _id(state: State, subject: str, schema: Schema, wanted: int | None) -> int:
    ids = state.ids(context_of(subject))
    if wanted is None:
        known = ids.by_fingerprint.get(schema.fingerprint)
        if known is None and ids.highest >= INT_MAX:
            raise RegistryError(Code.STORE_ERROR, f"no id is left: the highest is {INT_MAX}")
        return ids.highest + 1 if known is None else known
    taken = ids.schemas.get(wanted)
    if taken is not None and taken.fingerprint != schema.fingerprint:
        raise not_permitted(f"Overwrite new schema with id {wanted} is not permitted.")
    return wanted


def _version_number(state: State, subject: str, body: Mapping[str, Any], mode: Mode) -> int:
    latest = max(state.subjects.get(subject, {0: None}))
    wanted = _number(body, "version", 1)
    if latest >= INT_MAX and (wanted is None or mode is not Mode.IMPORT):
        raise RegistryError(Code.STORE_ERROR, f"no version is left: the latest is {INT_MAX}")
    if wanted is None or wanted == latest + 1:
        return latest + 1
    if mode is not Mode.IMPORT:
        raise RegistryError(Code.INVALID_SCHEMA, f"Version is not one more than previous version {latest}")
    if state.version(subject, wanted) is not None:
        raise not_permitted(f"Version {wanted} of subject {subject} is there already")
    return wanted


def _number(body: Mapping[str, Any], name: str, minimum: int) -> int | None:
    """Return the number in the field `name` of a body; None if the field is missing or below `minimum`.

    Some clients send a lower number for a missing value. Raises RegistryError 422 for a value that is not a
    whole number, or is larger than `INT_MAX`.
    """
    value = body.get(name)
    if value is not None and type(value) is not int:
        raise RegistryError(422, f"{name} must be a whole number: {value!r}")
    if value is not None and value > INT_MAX:
        raise RegistryError(422, f"{name} is {INT_MAX} at the most")
    return None if value is None or value < minimum else value
