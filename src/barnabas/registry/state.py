"""The state that the records of the topic `_schemas` describe. Only `State.replay` changes it."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from barnabas.base.types import JsonObject
from barnabas.registry.levels import Level, Mode
from barnabas.registry.limits import shortened
from barnabas.registry.records import Record, decode
from barnabas.registry.schema import INT_MAX, Schema
from barnabas.registry.subjects import context_of, in_context

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject: its number in the subject, and the id of its schema in the subject's context.

    After a soft delete, `deleted` is true.
    """

    subject: str
    number: int
    id: int
    schema: Schema
    deleted: bool = False


@dataclass(slots=True)
class Ids:
    """The schema ids of one context: schema by id, id by fingerprint, ids by GUID, and the highest id."""

    schemas: dict[int, Schema] = field(default_factory=dict)
    by_fingerprint: dict[bytes, int] = field(default_factory=dict)
    #: schemas of different types, or of different spellings of the same contract, can have one GUID
    by_guid: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    #: where each id is registered, as (subject, version)
    uses: dict[int, set[tuple[str, int]]] = field(default_factory=lambda: defaultdict(set))
    highest: int = 0


class State:
    """All subjects, ids and settings, in memory. Only the event loop may use the state.

    `default_level` is the compatibility level of a registry without a setting of its own.
    """

    def __init__(self, default_level: str = "BACKWARD") -> None:
        #: the default compatibility level
        self.default_level = default_level
        self.subjects: dict[str, dict[int, Version]] = {}
        self.configs: dict[str | None, JsonObject] = {}
        self.modes: dict[str | None, str] = {}
        self._contexts: dict[str, Ids] = {}
        #: the versions that refer to a version; both as (subject, version)
        self._referrers: dict[tuple[str, int], dict[tuple[str, int], None]] = {}
        #: values that other modules have computed of a version; dropped when it is replaced or removed
        self.sources: dict[tuple[str, int], Any] = {}

    # --- reading ---

    @property
    def contexts(self) -> list[str]:
        """Return the names of all contexts in order, always with the default context."""
        return sorted({".", *self._contexts})

    def ids(self, context: str) -> Ids:
        """Return the schema ids of a context. If the context does not exist, the result is empty."""
        return self._contexts.get(context) or Ids()

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return a subject's versions in order. Softly deleted versions are included only with `deleted`."""
        found = self.subjects.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def version(self, subject: str, number: int) -> Version | None:
        """Return a version, even if it is softly deleted; None if it does not exist."""
        return self.subjects.get(subject, {}).get(number)

    def referrers(self, subject: str, number: int) -> Iterator[Version]:
        """Yield the versions, of any subject, whose schemas refer to version `number` of `subject`.

        Softly deleted versions are included.
        """
        for name, version in self._referrers.get((subject, number), {}):
            yield self.subjects[name][version]

    # --- changing ---

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the topic.

        A record that cannot be applied is logged as a warning and ignored.
        """
        try:
            record = decode(key, value)
            _REPLAY.get(record.key.keytype, State._ignore)(self, record)
        except Exception as error:  # whatever is wrong with it, later records must be applied
            words = shortened(repr(key), 200), shortened(repr(error), 500)
            logger.warning("record with key %s in the schemas topic is skipped: %s", *words)

    def _schema(self, record: Record) -> None:
        subject, number = _text(record.key.subject), _number(record.key.version)
        before = self.subjects.get(subject, {}).get(number)
        after = None
        if record.value is not None:
            schema = Schema.from_json(record.value)
            deleted = bool(record.value.get("deleted"))
            after = Version(subject, number, _number(record.value["id"]), schema, deleted)
        if before is not None:
            self._unregister(before)
        if after is not None:
            self._register(after)

    def _register(self, version: Version) -> None:
        self.subjects.setdefault(version.subject, {})[version.number] = version
        ids = self._contexts.setdefault(context_of(version.subject), Ids())
        ids.schemas[version.id] = version.schema
        ids.by_fingerprint.setdefault(version.schema.fingerprint, version.id)
        ids.by_guid[version.schema.guid].add(version.id)
        ids.uses[version.id].add((version.subject, version.number))
        ids.highest = max(ids.highest, version.id)
        for referred in _referred(version):
            self._referrers.setdefault(referred, {})[version.subject, version.number] = None

    def _unregister(self, version: Version) -> None:
        versions = self.subjects[version.subject]
        del versions[version.number]
        if not versions:
            del self.subjects[version.subject]
        ids = self._contexts[context_of(version.subject)]
        ids.uses[version.id].discard((version.subject, version.number))
        if not ids.uses[version.id]:
            del ids.uses[version.id]
            schema = ids.schemas.pop(version.id)
            if ids.by_fingerprint.get(schema.fingerprint) == version.id:
                del ids.by_fingerprint[schema.fingerprint]
            ids.by_guid[schema.guid].discard(version.id)
            if not ids.by_guid[schema.guid]:
                del ids.by_guid[schema.guid]
        for referred in _referred(version):
            referrers = self._referrers.get(referred, {})
            referrers.pop((version.subject, version.number), None)
            if not referrers:
                self._referrers.pop(referred, None)
        self.sources.clear()

    def _delete_subject(self, record: Record) -> None:
        if record.value is None:
            return
        versions = self.subjects.get(_text(record.key.subject), {})
        last = _number(record.value["version"])
        for number, version in versions.items():
            if number <= last:
                versions[number] = replace(version, deleted=True)

    def _clear_subject(self, record: Record) -> None:
        if record.value is not None:
            for version in self.versions(_text(record.key.subject), deleted=True):
                if version.deleted:
                    self._unregister(version)

    def _config(self, record: Record) -> None:
        if record.value is None:
            self.configs.pop(record.key.subject, None)
            return
        said = {name: value for name, value in record.value.items() if value is not None}
        if "compatibilityLevel" in said:
            said["compatibilityLevel"] = Level(said["compatibilityLevel"]).value
        self.configs[record.key.subject] = said

    def _mode(self, record: Record) -> None:
        if record.value is None:
            self.modes.pop(record.key.subject, None)
        else:
            self.modes[record.key.subject] = Mode(record.value["mode"]).value

    def _noop(self, record: Record) -> None:
        said = (record.value or {}).get("maxIds") or {}
        for context, highest in [(_text(context), _number(highest)) for context, highest in said.items()]:
            ids = self._contexts.setdefault(context, Ids())
            ids.highest = max(ids.highest, highest)

    def _ignore(self, record: Record) -> None:
        words = shortened(repr(record.key.keytype), 200)
        logger.warning("skipped records of unknown type %s in the schemas topic", words)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shortened(repr(value), 100)} is not text")
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= INT_MAX:
        raise ValueError(f"{shortened(repr(value), 100)} is not a number from 0 to {INT_MAX}")
    return value


def _referred(version: Version) -> set[tuple[str, int]]:
    """Return the versions that a version's schema refers to directly, as (subject, version)."""
    context = context_of(version.subject)
    return {(in_context(r.subject, context), r.version) for r in version.schema.references}


_REPLAY = {
    "SCHEMA": State._schema,
    "CONFIG": State._config,
    "MODE": State._mode,
    "DELETE_SUBJECT": State._delete_subject,
    "CLEAR_SUBJECT": State._clear_subject,
    "NOOP": State._noop,
}
