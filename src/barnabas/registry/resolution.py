"""From a registered schema to one that is understood: its references found, itself parsed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.formats import Parsed, parse
from barnabas.registry.schema import Reference, Schema
from barnabas.registry.state import State, Version
from barnabas.registry.subjects import context_of, in_context


def understand(state: State, subject: str, schema: Schema, *, normalize: bool = False) -> Parsed:
    """Parse a schema of `subject`.

    Raises:
        InvalidSchemaError: it breaks its format's rules, or refers to what is not registered.
    """
    return parse(schema, tuple(_texts(state, subject, schema.references)), normalize=normalize)


def understand_version(state: State, version: Version) -> Parsed:
    """Parse a schema that is registered, or know it from the last time."""
    return _parse_registered(version.schema, tuple(_texts(state, version.subject, version.schema.references)))


def pinned(state: State, subject: str, schema: Schema) -> Schema:
    """The schema with references to the latest version (-1) made references to what that is now."""
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


def _texts(state: State, subject: str, references: Iterable[Reference]) -> dict[tuple[str, str], None]:
    """Names and texts of all that is referred to, what comes first is needed by what comes later."""
    found: dict[tuple[str, str], None] = {}
    for reference in references:
        referred = in_context(reference.subject, context_of(subject))
        version = state.version(referred, reference.version)
        if version is None:
            raise InvalidSchemaError(
                f"it refers to version {reference.version} of subject {reference.subject}, which is not there"
            )
        found |= _texts(state, referred, version.schema.references)
        found[reference.name, version.schema.text] = None
    return found


@lru_cache(maxsize=1024)
def _parse_registered(schema: Schema, references: tuple[tuple[str, str], ...]) -> Parsed:
    # By identity: the schema of a version is one object for as long as it is registered.
    return parse(schema, references)
