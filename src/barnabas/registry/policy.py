"""Finds the compatibility level and the mode that apply to a subject, and decides about their changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.base.types import JsonObject
from barnabas.registry.decision import Decision
from barnabas.registry.errors import Code, RegistryError, not_permitted, subject_not_found
from barnabas.registry.levels import Level, Mode
from barnabas.registry.records import Key, Record
from barnabas.registry.state import State
from barnabas.registry.subjects import DEFAULT_CONTEXT, context_of

#: the supported fields of a CONFIG
_CONFIG_FIELDS = {"compatibility", "compatibilityLevel", "normalize"}


def config_of(state: State, subject: str | None) -> JsonObject:
    """Return the effective settings of a subject. For None, return the settings of the whole registry.

    A setting of the subject overrides the same setting of its context. A setting of the context overrides the
    same setting of the whole registry. The result always has ``compatibilityLevel``.
    """
    merged: JsonObject = {"compatibilityLevel": state.default_level}
    for scope in reversed(_scopes(subject)):
        merged |= state.configs.get(scope, {})
    return merged


def level_of(state: State, subject: str) -> Level:
    return Level(str(config_of(state, subject)["compatibilityLevel"]))


def mode_of(state: State, subject: str | None) -> Mode:
    """Return the effective mode of a subject; of the whole registry for None.

    A global READONLY_OVERRIDE overrides the mode of the subject.
    """
    if state.modes.get(None) == Mode.READONLY_OVERRIDE:
        return Mode.READONLY_OVERRIDE
    found = (state.modes[scope] for scope in _scopes(subject) if scope in state.modes)
    return Mode(next(found, Mode.READWRITE))


def require_writable(state: State, subject: str | None) -> Mode:
    """Return the effective mode of a subject; of the whole registry for None.

    Raises RegistryError OPERATION_NOT_PERMITTED if the mode is read-only.
    """
    mode = mode_of(state, subject)
    if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        what = "The registry" if subject is None else f"Subject {subject} in context {context_of(subject)}"
        raise not_permitted(f"{what} is in read-only mode")
    return mode


def set_config(state: State, subject: str | None, body: Mapping[str, Any]) -> Decision[JsonObject]:
    """Decide to change the settings in `body`, for a subject, or for the whole registry if `subject` is None.

    The response has all settings that apply then, with the level as ``compatibility``.

    Raises:
        RegistryError: 422, `body` has an unknown setting or a wrong type; INVALID_COMPATIBILITY_LEVEL, the
            level does not exist, or `body` has no setting; OPERATION_NOT_PERMITTED, the subject or the
            registry is read-only.
    """
    unknown = body.keys() - _CONFIG_FIELDS
    if any(body[name] is not None for name in unknown):
        raise RegistryError(422, f"not served here: {', '.join(sorted(unknown))}")
    config = dict(state.configs.get(subject, {}))
    level = body.get("compatibility", body.get("compatibilityLevel"))
    if level is not None:
        config["compatibilityLevel"] = _choice(Level, level, Code.INVALID_COMPATIBILITY_LEVEL).value
    normalize = body.get("normalize")
    if normalize is not None:
        if not isinstance(normalize, bool):
            raise RegistryError(422, f"normalize is true or false: {normalize!r}")
        config["normalize"] = normalize
    if level is None and normalize is None:
        raise RegistryError(
            Code.INVALID_COMPATIBILITY_LEVEL, f"Invalid compatibility level: {_choices(Level)}"
        )
    require_writable(state, subject)
    answer = {**config_of(state, subject), **config}
    answer["compatibility"] = answer.pop("compatibilityLevel")
    return Decision([Record(Key("CONFIG", subject), config)], answer)


def delete_config(state: State, subject: str | None) -> Decision[JsonObject]:
    """Decide to delete the settings of a subject. If `subject` is None, delete those of the whole registry.

    The response has the settings from before the deletion. If `subject` is None and the registry has no
    settings of its own, the response has the defaults, and the decision has no records.

    Raises:
        RegistryError: SUBJECT_NOT_FOUND, the subject has no settings of its own; OPERATION_NOT_PERMITTED, the
            subject or the registry is read-only.
    """
    if subject is not None and subject not in state.configs:
        raise subject_not_found(subject)
    require_writable(state, subject)
    before = config_of(state, subject) if subject is None else state.configs[subject]
    records = [Record(Key("CONFIG", subject), None)] if subject in state.configs else []
    return Decision(records, dict(before))


def set_mode(
    state: State, subject: str | None, body: Mapping[str, Any], *, force: bool
) -> Decision[JsonObject]:
    """Decide to set the mode of a subject. If `subject` is None, set the mode of the whole registry.

    The new mode is the field ``mode`` of `body`. The response has this field, too. To change to the mode
    IMPORT without `force`, the subject (the whole registry for None) must have no schemas.

    Raises:
        RegistryError: INVALID_MODE, the field is missing or is not a mode; OPERATION_NOT_PERMITTED, there are
            schemas, or the mode of a subject cannot be READONLY_OVERRIDE.
    """
    mode = _choice(Mode, body.get("mode"), Code.INVALID_MODE)
    if mode is Mode.READONLY_OVERRIDE and subject is not None:
        raise not_permitted("READONLY_OVERRIDE can be set for the whole registry only")
    if mode is Mode.IMPORT and not force and mode_of(state, subject) is not Mode.IMPORT:
        busy = state.versions(subject) if subject is not None else state.subjects
        if busy:
            raise not_permitted("Cannot import since found existing subjects: delete them, or use force=true")
    return Decision([Record(Key("MODE", subject), {"mode": mode.value})], {"mode": mode.value})


def delete_mode(state: State, subject: str | None) -> Decision[JsonObject]:
    """Decide to delete the mode of a subject. If `subject` is None, delete the mode of the whole registry.

    The response has the mode from before the deletion. If `subject` is None and the registry has no mode, the
    response has READWRITE, and the decision has no records. Raises RegistryError SUBJECT_NOT_FOUND if the
    subject has no mode of its own.
    """
    if subject is not None and subject not in state.modes:
        raise subject_not_found(subject)
    before = state.modes.get(subject, Mode.READWRITE)
    records = [Record(Key("MODE", subject), None)] if subject in state.modes else []
    return Decision(records, {"mode": str(before)})


def config_missing(subject: str) -> RegistryError:
    return RegistryError(
        Code.COMPATIBILITY_NOT_CONFIGURED,
        f"Subject '{subject}' does not have subject-level compatibility configured",
    )


def mode_missing(subject: str) -> RegistryError:
    return RegistryError(
        Code.MODE_NOT_CONFIGURED, f"Subject '{subject}' does not have subject-level mode configured"
    )


def _scopes(subject: str | None) -> list[str | None]:
    """Return the keys of settings that apply to a subject: subject, context, None for the registry."""
    if subject is None:
        return [None]
    context = context_of(subject)
    return [subject, None] if context == DEFAULT_CONTEXT else [subject, f":{context}:", None]


def _choice(kind: Any, given: object, code: Code) -> Any:
    try:
        return kind(str(given).upper())
    except ValueError:
        what = "mode" if kind is Mode else "compatibility level"
        raise RegistryError(code, f"Invalid {what} {given}: {_choices(kind)}") from None


def _choices(kind: Any) -> str:
    return "valid values are " + ", ".join(kind)
