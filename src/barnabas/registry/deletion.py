"""Deletes versions and subjects, first softly, then permanently. Ids still find softly deleted versions."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.registry.decision import Decision
from barnabas.registry.errors import Code, RegistryError, subject_not_found, version_not_found
from barnabas.registry.policy import require_writable
from barnabas.registry.records import Key, Record
from barnabas.registry.registration import schema_record
from barnabas.registry.state import State, Version


def delete_subject(state: State, subject: str, *, permanent: bool) -> Decision[list[int]]:
    """Decide to delete all versions of a subject. The response has the numbers of the deleted versions.

    If `permanent` is false, the versions are softly deleted, and the subject's own compatibility settings and
    mode are deleted. If it is true, the versions are deleted permanently. All versions must then be softly
    deleted already.

    Raises:
        RegistryError: SUBJECT_NOT_FOUND; SUBJECT_SOFT_DELETED, all versions are softly deleted already;
            SUBJECT_NOT_SOFT_DELETED, a permanent deletion before a soft one; REFERENCE_EXISTS, another schema
            refers to a version; OPERATION_NOT_PERMITTED, the subject or the registry is read-only.
    """
    versions, live = state.versions(subject, deleted=True), state.versions(subject)
    if not versions:
        raise subject_not_found(subject)
    require_writable(state, subject)
    if permanent:
        if live:
            raise RegistryError(
                Code.SUBJECT_NOT_SOFT_DELETED,
                f"Subject '{subject}' was not deleted first before being permanently deleted",
            )
        return Decision(_removal(state, versions), [version.number for version in versions])
    if not live:
        raise RegistryError(
            Code.SUBJECT_SOFT_DELETED,
            f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
        )
    _check_unreferenced(state, live)
    mark = Record(Key("DELETE_SUBJECT", subject), {"subject": subject, "version": live[-1].number})
    return Decision([mark, *_settings(state, subject)], [version.number for version in live])


def delete_version(state: State, subject: str, number: int | None, *, permanent: bool) -> Decision[int]:
    """Decide to delete one version of a subject. The response is the version's number.

    - If `permanent` is false, the version is softly deleted. If no other version is left, the subject's own
      compatibility settings and mode are deleted too.
    - If `permanent` is true, the version is deleted permanently. Before, it must be softly deleted.

    If `number` is None, the version is the latest one that is not softly deleted. If all versions are softly
    deleted, the version is the latest one.

    Raises:
        RegistryError: SUBJECT_NOT_FOUND; VERSION_NOT_FOUND; VERSION_SOFT_DELETED, the version is softly
            deleted already; VERSION_NOT_SOFT_DELETED, a permanent deletion before a soft one;
            REFERENCE_EXISTS, another schema refers to the version; OPERATION_NOT_PERMITTED, the subject or
            the registry is read-only.
    """
    version = _deletable(state, subject, number)
    require_writable(state, subject)
    if permanent:
        if not version.deleted:
            raise RegistryError(
                Code.VERSION_NOT_SOFT_DELETED,
                f"Subject '{subject}' Version {version.number} was not deleted first before being "
                "permanently deleted",
            )
        return Decision(_removal(state, [version]), version.number)
    if version.deleted:
        raise RegistryError(
            Code.VERSION_SOFT_DELETED,
            f"Subject '{subject}' Version {version.number} was soft deleted. Set permanent=true to delete "
            "permanently",
        )
    _check_unreferenced(state, [version])
    last = len(state.versions(subject)) == 1
    settings = _settings(state, subject) if last else []
    return Decision([schema_record(version, deleted=True), *settings], version.number)


def _deletable(state: State, subject: str, number: int | None) -> Version:
    versions = state.versions(subject, deleted=True)
    if not versions:
        raise subject_not_found(subject)
    if number is None:
        versions = state.versions(subject) or versions
        return versions[-1]
    found = state.version(subject, number)
    if found is None:
        raise version_not_found(number)
    return found


def _removal(state: State, versions: list[Version]) -> list[Record]:
    """Return the records that delete `versions` permanently: a NOOP record first, then tombstones.

    The NOOP record has the highest id of each context, because the registry must not assign it again.
    """
    _check_unreferenced(state, versions, deleted=True)
    highest = {context: state.ids(context).highest for context in state.contexts}
    tombstones = [Record(Key("SCHEMA", version.subject, version.number), None) for version in versions]
    return [Record(Key("NOOP"), {"maxIds": highest}), *tombstones]


def _settings(state: State, subject: str) -> list[Record]:
    """Return tombstones for the subject's own settings, which are deleted together with its last version."""
    config = [Record(Key("CONFIG", subject), None)] if subject in state.configs else []
    mode = [Record(Key("MODE", subject), None)] if subject in state.modes else []
    return config + mode


def _check_unreferenced(state: State, versions: Iterable[Version], *, deleted: bool = False) -> None:
    """Raise RegistryError REFERENCE_EXISTS if another schema refers to one of `versions`.

    With `deleted`, a softly deleted schema with such a reference counts too, because clients still find it by
    id.
    """
    for version in versions:
        for referrer in state.referrers(version.subject, version.number):
            if deleted or not referrer.deleted:
                raise RegistryError(
                    Code.REFERENCE_EXISTS,
                    f"One or more references exist to the schema {{subject={version.subject},"
                    f"version={version.number}}}: version {referrer.number} of {referrer.subject} has one",
                )
