"""Finds registered subjects, versions and schemas in the state."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from barnabas.registry.errors import (
    Code,
    RegistryError,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from barnabas.registry.limits import shortened
from barnabas.registry.schema import INT_MAX
from barnabas.registry.state import State, Version
from barnabas.registry.subjects import DEFAULT_CONTEXT, context_of, unqualified

_INT_DIGITS = 10
#: means the subjects of every context
ALL_CONTEXTS = ":*:"


def version_number(text: str) -> int | None:
    """Parse the version in a URL. Return None for the latest version (``latest`` or ``-1``).

    Raises RegistryError INVALID_VERSION for any other text that is not a number from 1 to `INT_MAX`.
    """
    if text in ("latest", "-1"):
        return None
    # Python refuses to read numbers of thousands of digits.
    if text.isascii() and text.isdecimal() and len(text) <= _INT_DIGITS and 1 <= int(text) <= INT_MAX:
        return int(text)
    raise RegistryError(
        Code.INVALID_VERSION,
        f"The specified version '{shortened(text, 100)}' is not a valid version id. Allowed values are "
        'between [1, 2^31-1] and the string "latest"',
    )


def subjects(state: State, *, prefix: str, deleted: bool = False, deleted_only: bool = False) -> list[str]:
    """Return the sorted names of the subjects that begin with `prefix`, in the context of `prefix`.

    The prefix `ALL_CONTEXTS` means all subjects. A subject is softly deleted if all of its versions are. With
    `deleted`, softly deleted subjects are included. With `deleted_only`, only softly deleted subjects are
    returned.
    """
    context, prefix = context_of(prefix), unqualified(prefix)
    found = []
    for subject in sorted(state.subjects):
        live = any(not version.deleted for version in state.subjects[subject].values())
        if (live and deleted_only) or (not live and not deleted and not deleted_only):
            continue
        if prefix == ALL_CONTEXTS or (subject.startswith(prefix) and context_of(subject) == context):
            found.append(subject)
    return found


def version(state: State, subject: str, number: int | None, *, deleted: bool = False) -> Version:
    """Return a version of a subject; the latest version if `number` is None.

    With `deleted`, softly deleted versions are found too.

    Raises:
        RegistryError: SUBJECT_NOT_FOUND, VERSION_NOT_FOUND.
    """
    versions = state.versions(subject, deleted=deleted)
    if not versions:
        raise subject_not_found(subject)
    if number is None:
        return versions[-1]
    for found in versions:
        if found.number == number:
            return found
    raise version_not_found(number)


def version_numbers(
    state: State, subject: str, *, deleted: bool = False, deleted_only: bool = False
) -> list[int]:
    """Return the numbers of a subject's versions, in ascending order.

    With `deleted`, softly deleted versions are included. With `deleted_only`, only softly deleted versions
    are returned. Raises RegistryError SUBJECT_NOT_FOUND if the result would be empty.
    """
    versions = state.versions(subject, deleted=deleted or deleted_only)
    found = [version.number for version in versions if version.deleted or not deleted_only]
    if not found:
        raise subject_not_found(subject)
    return found


def latest_with_metadata(
    state: State, subject: str, wanted: Mapping[str, str], *, deleted: bool = False
) -> Version:
    """Return the newest version of a subject whose metadata has all properties of `wanted`.

    With `deleted`, softly deleted versions are found too.

    Raises:
        RegistryError: SUBJECT_NOT_FOUND, the subject has no version; SCHEMA_NOT_FOUND, no version has these
            properties.
    """
    versions = state.versions(subject, deleted=deleted)
    if not versions:
        raise subject_not_found(subject)
    for version in reversed(versions):
        metadata = version.schema.metadata
        properties = metadata.get("properties") if isinstance(metadata, dict) else None
        if isinstance(properties, dict) and wanted.items() <= properties.items():
            return version
    raise schema_not_found()


def schema_id(text: str) -> int:
    """Parse the id of a schema in a URL.

    Raises:
        RegistryError: 404, `text` is not a whole number; SCHEMA_NOT_FOUND, the number is too large for an id.
    """
    if not text.isascii() or not text.isdecimal():
        words = f"{shortened(text, 100)} is not the id of a schema: it is a whole number"
        raise RegistryError(404, words)
    digits = text.lstrip("0") or "0"
    if len(digits) > _INT_DIGITS:  # Python refuses to read numbers of thousands of digits
        raise schema_not_found(shortened(digits, 100))
    return int(digits)


def uses_of_id(state: State, id_: int, subject: str = "") -> list[Version]:
    """Return the versions whose schema has this id, in the context of `subject`.

    The result is in order of subject and number. Softly deleted versions are included. Without `subject`, the
    first context that has the id is used, beginning with the default context.

    Raises:
        RegistryError: SCHEMA_NOT_FOUND, no version has the id.
    """
    contexts = [context_of(subject)] if subject else [DEFAULT_CONTEXT, *state.contexts]
    for context in contexts:
        if id_ in state.ids(context).uses:
            return _uses(state, context, id_)
    raise schema_not_found(id_)


def uses_of_guid(state: State, guid: str) -> list[Version]:
    """Return the versions in all contexts whose schema has this GUID.

    Softly deleted versions are included. The result is in order of context, id, subject and number. Version
    0.2.0 of the registry had other GUIDs, the fingerprints; these are found, too. Raises RegistryError
    SCHEMA_NOT_FOUND if there are no such versions, or `guid` is not a GUID.
    """
    try:
        given = uuid.UUID(guid)
    except ValueError:
        raise schema_not_found(guid) from None
    found: list[Version] = []
    for context in state.contexts:
        ids = state.ids(context)
        matching = ids.by_guid.get(str(given), set())
        if not matching and given.bytes in ids.by_fingerprint:
            matching = {ids.by_fingerprint[given.bytes]}
        for id_ in sorted(matching):
            found += _uses(state, context, id_)
    if not found:
        raise schema_not_found(guid)
    return found


def versions_of_id(state: State, id_: int, *, subject: str = "", deleted: bool = False) -> list[Version]:
    """Return the versions whose schema has this id, in the context of `subject`.

    The result is in order of subject and number. With `deleted`, softly deleted versions are included. If
    `deleted` is false, the result can be empty. Without `subject`, the first context that has the id is used,
    beginning with the default context.

    Raises:
        RegistryError: SCHEMA_NOT_FOUND, no version has the id, not even a softly deleted one.
    """
    return [version for version in uses_of_id(state, id_, subject) if deleted or not version.deleted]


def referencing_ids(state: State, referred: Version) -> list[int]:
    """Return the sorted ids of the schemas that refer to the version `referred`.

    A schema whose version is softly deleted does not count.
    """
    referrers = state.referrers(referred.subject, referred.number)
    return sorted({referrer.id for referrer in referrers if not referrer.deleted})


def schemas(state: State, *, prefix: str, deleted: bool, latest_only: bool) -> list[Version]:
    """Return the versions of the subjects that begin with `prefix`, in the context of `prefix`.

    The result is in order of subject and number. The prefix `ALL_CONTEXTS` means all subjects. With
    `latest_only`, only the latest version of each subject is returned. With `deleted`, softly deleted
    versions are included.
    """
    found = []
    for subject in subjects(state, prefix=prefix, deleted=deleted):
        versions = state.versions(subject, deleted=deleted)
        found += versions[-1:] if latest_only else versions
    return found


def _uses(state: State, context: str, id_: int) -> list[Version]:
    return [state.subjects[subject][number] for subject, number in sorted(state.ids(context).uses[id_])]
