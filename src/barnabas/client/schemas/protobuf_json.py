"""Converts JSON to Protobuf messages, by proto3's mapping. Errors have the path to the invalid value.

The package protobuf parses types with a special JSON form, such as ``google.protobuf.Timestamp``. Bytes may
also be ``{"base64": ...}``.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any

from barnabas.base.text import shown
from barnabas.client.json_bytes import is_base64
from barnabas.client.schemas.unfit import UnfitError, inside, require, value_text

_MAX_REASON = 200
_WELL_KNOWN = "google.protobuf."
_SPECIAL = ("NaN", "Infinity", "-Infinity")
_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_MAX_FLOAT = float.fromhex("0x1.fffffep+127")


def fill(message: Any, value: Any, path: str, pool: Any) -> None:
    """Fill an empty message with a JSON value.

    Args:
        path: name of the value, for the text of an error.
        pool: pool of descriptors for ``google.protobuf.Any``.

    Raises:
        UnfitError: the value does not fit the message.
    """
    try:
        _fill(message, value, path, pool)
    except RecursionError:
        raise UnfitError(f"{path}: it is nested too deeply") from None
    if missing := message.FindInitializationErrors():
        raise UnfitError(f"{path}.{missing[0]}: it is missing, and required")


def _fill(message: Any, value: Any, path: str, pool: Any) -> None:
    descriptor = message.DESCRIPTOR
    if descriptor.full_name.startswith(_WELL_KNOWN):
        return _parse(message, value, path, pool)
    require(isinstance(value, dict), path, value, f"an object ({descriptor.full_name})")
    fields = {field.json_name: field for field in descriptor.fields} | dict(descriptor.fields_by_name)
    given: dict[str, str] = {}
    for name, part in value.items():
        child_path = inside(path, name)
        field = fields.get(name)
        if field is None:
            known = ", ".join(each.name for each in descriptor.fields[:20])
            raise UnfitError(
                f"{child_path}: {descriptor.full_name} has no such field; its fields are {known or 'none'}"
            )
        if part is None and not _takes_null(field):
            continue
        choice = field.containing_oneof.name if field.containing_oneof else field.name
        if choice in given:
            raise UnfitError(f"{child_path}: it excludes {given[choice]}; write one of them")
        given[choice] = name
        _set(message, field, part, child_path, pool)
    return None


def _parse(message: Any, value: Any, path: str, pool: Any) -> None:
    from google.protobuf.json_format import ParseDict, ParseError

    try:
        ParseDict(value, message, descriptor_pool=pool)
    except (ParseError, TypeError, ValueError, AttributeError, KeyError) as error:
        reason = shown(" ".join(str(error).split()), _MAX_REASON)
        raise UnfitError(
            f"{path}: {value_text(value)} is no {message.DESCRIPTOR.full_name}: {reason}"
        ) from None


def _takes_null(field: Any) -> bool:
    kind = field.message_type or field.enum_type
    return kind is not None and kind.full_name in ("google.protobuf.Value", "google.protobuf.NullValue")


def _set(message: Any, field: Any, value: Any, path: str, pool: Any) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        require(isinstance(value, dict), path, value, "an object (map)")
        key_field, value_field = (field.message_type.fields_by_name[each] for each in ("key", "value"))
        entries = getattr(message, field.name)
        for name, part in value.items():
            child_path = inside(path, name)
            key = _key(key_field, name, child_path)
            if value_field.message_type is not None:
                _fill(entries[key], part, child_path, pool)
            else:
                entries[key] = _scalar(value_field, part, child_path)
    elif field.is_repeated:
        require(isinstance(value, list), path, value, "an array")
        items = getattr(message, field.name)
        for index, part in enumerate(value):
            child_path = inside(path, index)
            if field.message_type is not None:
                _fill(items.add(), part, child_path, pool)
            else:
                items.append(_scalar(field, part, child_path))
    elif field.message_type is not None:
        part = getattr(message, field.name)
        part.SetInParent()
        _fill(part, value, path, pool)
    else:
        setattr(message, field.name, _scalar(field, value, path))


def _key(field: Any, name: str, path: str) -> Any:
    """Convert the name of a JSON object's field to a key of a Protobuf map, with the type of `field`.

    Raises UnfitError if the name does not fit this type. `path` is the place in the error's text.
    """
    if field.cpp_type == field.CPPTYPE_BOOL:
        require(name in ("true", "false"), path, name, '"true" or "false"')
        return name == "true"
    return _scalar(field, name, path)


def _scalar(field: Any, value: Any, path: str) -> Any:
    if field.enum_type is not None:
        return _enum(field.enum_type, value, path)
    if field.type == field.TYPE_BYTES:
        return _bytes(value, path)
    if field.cpp_type == field.CPPTYPE_STRING:
        require(isinstance(value, str), path, value, "a string")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise UnfitError(f"{path}: it has half of a surrogate pair; write whole characters")
        return value
    if field.cpp_type == field.CPPTYPE_BOOL:
        require(isinstance(value, bool), path, value, "true or false")
        return value
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return _float(value, path, is_single=field.cpp_type == field.CPPTYPE_FLOAT)
    bits = 64 if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 32
    return _integer(value, path, bits, is_signed=field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64))


def _enum(kind: Any, value: Any, path: str) -> int:
    known = kind.values_by_name
    if isinstance(value, str) and value in known:
        return int(known[value].number)
    if value is None and kind.full_name == "google.protobuf.NullValue":
        return 0
    is_number = isinstance(value, int) and not isinstance(value, bool) and -(1 << 31) <= value < 1 << 31
    fits = is_number and (not kind.is_closed or value in kind.values_by_number)
    require(fits, path, value, f"one of {', '.join(list(known)[:20])} ({kind.full_name}), or its number")
    return int(value)


def _bytes(value: Any, path: str) -> bytes:
    text = value["base64"] if is_base64(value) else value
    try:
        # the mapping takes both alphabets, with and without padding
        plain = text.replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (AttributeError, ValueError):
        raise UnfitError(f"{path}: {value_text(value)} does not fit; write bytes as base64") from None


def _float(value: Any, path: str, *, is_single: bool) -> float:
    number: Any = value
    if isinstance(value, str):
        number = float(value) if value in _SPECIAL or _NUMBER.fullmatch(value) else None
    fits = isinstance(number, int | float) and not isinstance(number, bool)
    require(fits, path, value, 'a number, or "NaN", "Infinity" or "-Infinity"')
    try:
        found = float(number)
    except OverflowError:
        found = math.inf
    is_large = math.isinf(found) if not is_single else abs(found) > _MAX_FLOAT
    if is_large and value not in _SPECIAL:
        raise UnfitError(
            f"{path}: {value_text(value)} is too large for a {'float' if is_single else 'double'}"
        )
    return found


def _integer(value: Any, path: str, bits: int, *, is_signed: bool) -> int:
    minimum, end = (-(1 << bits - 1), 1 << bits - 1) if is_signed else (0, 1 << bits)
    number = value
    if (
        isinstance(value, str)
        and value.removeprefix("-").isdecimal()
        and value.isascii()
        and len(value) <= 20
    ):
        number = int(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    fits = isinstance(number, int) and not isinstance(number, bool) and minimum <= number < end
    require(fits, path, value, f"a whole number from {minimum} to {end - 1}")
    return int(number)
