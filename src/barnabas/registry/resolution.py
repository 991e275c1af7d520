"""Resolves the references of a schema, so that workers need nothing else to parse it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from barnabas.registry import limits
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.limits import TooLargeError
from barnabas.registry.schema import Reference, Schema
from barnabas.registry.state import State, Version
from barnabas.registry.subjects import context_of, in_context
from barnabas.registry.worker import Source


def source_of(
    state: State, subject: str, schema: Schema, *, normalize: bool = False, is_new: bool = False
) -> Source:
    """Return a schema of `subject` together with the texts of all schemas that it refers to.

    With `normalize`, parts of the schema's canonical text whose order has no meaning are sorted. With
    `is_new`, the default values of Avro fields are checked when the schema is parsed.

    Raises:
        InvalidSchemaError: a reference is not registered.
        TooLargeError: the schema has more references than the limit.
    """
    return Source(schema.type, schema.text, _texts(state, subject, schema), normalize, is_new)


def source_of_version(state: State, version: Version) -> Source:
    """Return a registered schema together with the texts of all schemas that it refers to.

    The result is cached in `state`. Raises InvalidSchemaError and TooLargeError, as `source_of` does.
    """
    key = (version.subject, version.number)
    if key not in state.sources:
        state.sources[key] = source_of(state, version.subject, version.schema)
    source: Source = state.sources[key]
    return source


def pinned(state: State, subject: str, schema: Schema) -> Schema:
    """Return `schema` with the present version number in each reference to the latest version.

    Such a reference has a version of 0 or less, usually -1. A reference to a subject without versions does
    not change.
    """
    if all(reference.version > 0 for reference in schema.references):
        return schema
    return replace(
        schema, references=tuple(_pinned(state, subject, reference) for reference in schema.references)
    )


def _pinned(state: State, subject: str, reference: Reference) -> Reference:
    versions = state.versions(in_context(reference.subject, context_of(subject)))
    if reference.version > 0 or not versions:
        return reference
    return replace(reference, version=versions[-1].number)


def _texts(state: State, subject: str, schema: Schema) -> tuple[tuple[str, str], ...]:
    """Return the names and texts of all schemas that `schema` refers to, directly and indirectly.

    Each schema comes after the schemas that it refers to. The references of a version are read once, even if
    several paths or a cycle lead to the version. Raises InvalidSchemaError if a reference is not registered,
    and TooLargeError if the references exceed a limit.
    """
    found: dict[tuple[str, str], None] = {}
    length = 0
    entered: set[tuple[str, int]] = set()
    # The path from the schema to the current reference. For each: its references that are left, and its own
    # entry, which follows them in the result.
    stack: list[tuple[Iterator[tuple[Reference, Version]], tuple[str, str] | None]] = [
        (_referred(state, subject, schema), None)
    ]
    while stack:
        waiting, entry = stack[-1]
        following = next(waiting, None)
        if following is None:
            stack.pop()
            if entry is not None and entry not in found:
                found[entry] = None
                length += len(entry[1])
        else:
            reference, version = following
            mine = (reference.name, version.schema.text)
            key = (version.subject, version.number)
            inside = iter(()) if key in entered else _referred(state, version.subject, version.schema)
            entered.add(key)
            stack.append((inside, mine))
        if len(found) + len(stack) - 1 > limits.REFERENCES:
            raise TooLargeError(
                f"it refers, with what it refers to, to more than {limits.REFERENCES} schemas"
            )
        if length > limits.REFERENCED_TEXT:
            raise TooLargeError(
                f"the schemas that it refers to have more than {limits.REFERENCED_TEXT:,} characters"
            )
    return tuple(found)


def _referred(state: State, subject: str, schema: Schema) -> Iterator[tuple[Reference, Version]]:
    for reference in schema.references:
        referred = in_context(reference.subject, context_of(subject))
        version = state.version(referred, reference.version)
        if version is None:
            raise InvalidSchemaError(
                f"it refers to version {reference.version} of subject {reference.subject}, which is not there"
            )
        yield reference, version
