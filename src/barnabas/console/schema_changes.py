"""Makes the changes of subjects in the schema registry that pages request."""

from __future__ import annotations

from typing import Any

from barnabas.client.schemas.registry import subject_path
from barnabas.console.change import Change, ChangeFields, must_confirm, number_of, text_of, word_of
from barnabas.console.pages.query import QueryError
from barnabas.console.schemas import LEVELS, Schemas, level_of

_FORMATS = ("AVRO", "JSON", "PROTOBUF")
_MAX_VERSION = 2**31 - 1


def register_schema(registry: Schemas, fields: ChangeFields) -> Change:
    """Return the change that registers a version of a subject.

    `fields` has the fields ``subject``, ``schema``, ``type`` and ``references`` of a page's form. The preview
    says whether the subject's compatibility level allows the version. For that, this function asks the
    registry.

    Raises:
        QueryError: a field is missing or invalid.
        RegistryError: the registry does not answer, or refuses the schema.
    """
    name, path = _subject(fields)
    body: dict[str, Any] = {"schema": text_of(fields, "schema")}
    kind = word_of(fields, "type", _FORMATS) if fields.get("type") else "AVRO"
    if kind != "AVRO":  # registries from before other formats do not know the field
        body["schemaType"] = kind
    if references := _references(fields):
        body["references"] = references
    checked = registry.send("POST", f"/compatibility{path}/versions?verbose=true", body)
    reasons = [str(reason) for reason in checked.get("messages") or ()]
    level = level_of(registry, name, "?defaultToGlobal=true") or "the registry's level"
    if checked.get("is_compatible"):
        preview = {"possible": True, "says": [f"It fits the versions before, as {level} asks."]}
    else:
        preview = {
            "possible": False,
            "says": [f"It does not fit the versions before, as {level} asks.", *reasons],
        }
    return _change(registry, "POST", f"{path}/versions", body, preview)


def set_compatibility(registry: Schemas, fields: ChangeFields) -> Change:
    """Return the change that sets a subject's own compatibility level.

    `fields` has the fields ``subject`` and ``level`` of a page's form. An empty level removes the subject's
    own level, so that the registry's level applies.

    Raises:
        QueryError: a field is missing or invalid.
        RegistryError: the registry does not answer, or refuses the request for the present level.
    """
    name, path = _subject(fields)
    path = f"/config/{path.removeprefix('/subjects/')}"
    now = level_of(registry, name, "?defaultToGlobal=true")
    if not fields.get("level"):
        says = f"{now} now, the registry's then."
        return _change(registry, "DELETE", path, None, {"possible": True, "says": [says]})
    level = word_of(fields, "level", LEVELS)
    says = f"{now} now, {level} then."
    return _change(registry, "PUT", path, {"compatibility": level}, {"possible": True, "says": [says]})


def delete_schema(registry: Schemas, fields: ChangeFields) -> Change:
    """Return the change that deletes a subject or one of its versions.

    `fields` has fields of a page's form: ``subject``, ``version`` (without it, all versions), ``permanent``,
    and ``confirm``, which repeats the subject. The deletion is soft, unless ``permanent`` is true. The
    registry allows a permanent deletion only after a soft deletion. Raises QueryError if a field is missing
    or invalid.
    """
    name, path = _subject(fields)
    version = number_of(fields, "version", 1, _MAX_VERSION)
    permanent = fields.get("permanent") or False
    if not isinstance(permanent, bool):
        raise QueryError("permanent: write true or false")
    why = (
        "records that were written with it may never be read again"
        if permanent
        else "clients cannot write with it, and records stay readable"
    )
    must_confirm(fields, name, why)
    if version is not None:
        path += f"/versions/{version}"
    says = f"Deleted {'for good' if permanent else 'softly'}: {why}."
    preview = {"possible": True, "says": [says]}
    return _change(registry, "DELETE", path + ("?permanent=true" if permanent else ""), None, preview)


def _change(registry: Schemas, method: str, path: str, body: dict[str, Any] | None, preview: Any) -> Change:
    return Change(
        [], lambda: registry.send(method, path, body), preview, shell=registry.curl(method, path, body)
    )


def _subject(fields: ChangeFields) -> tuple[str, str]:
    """Return the name of the subject in a page's form, and its path in the registry's API.

    Raises QueryError if the name is missing, or is "." or "..", which a path cannot contain.
    """
    name = text_of(fields, "subject").strip()
    if name in (".", ".."):  # an address could not name them
        raise QueryError(f"subject={name}: no subject has this name")
    return name, f"/subjects/{subject_path(name)}"


def _references(fields: ChangeFields) -> list[dict[str, Any]]:
    """Return the schema's references in a page's form, each with ``name``, ``subject`` and ``version``.

    Raises QueryError if they have another form.
    """
    references = fields.get("references") or []
    if not isinstance(references, list) or not all(
        isinstance(each, dict)
        and set(each) == {"name", "subject", "version"}
        and isinstance(each["name"], str)
        and isinstance(each["subject"], str)
        and type(each["version"]) is int
        for each in references
    ):
        raise QueryError('references: write a list of {"name": TEXT, "subject": TEXT, "version": NUMBER}')
    return references
