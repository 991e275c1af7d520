"""Converts the bytes of records to readable text: text, JSON, hex, or a value of a registered schema.

It makes control characters visible, and characters that change the direction of the text (CVE-2021-42574).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.client.json_bytes import bytes_to_json, in_base64

#: the most characters of a key, value or header on the records page, and on the page of one record
PREVIEW, MAX_SHOWN = 2048, 1 << 20
#: longer text is not parsed as JSON, in characters
_MAX_JSON = 1 << 20
#: characters of an added column
_CELL = 200
#: JSON up to so many characters stays on one line
_ONE_LINE = 90

FORMATS = ("auto", "text", "json", "hex")
#: function that decodes bytes by a registered schema: returns the format, the schema's id and the value
Decode = Callable[[bytes], tuple[str, int, Any] | None]
Masks = Sequence[Sequence[str]]

_KEPT = "\n\t"


def visible(text: str) -> str:
    """Return the text with \\u escapes for invisible characters and for those that change its direction."""
    if text.isprintable():  # nearly always; formatting characters are not printable
        return text
    return "".join(
        c
        if c in _KEPT or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        else _escaped(c)
        for c in text
    )


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def shown(
    data: bytes | None,
    how: str = "auto",
    decode: Decode | None = None,
    masks: Masks = (),
    max_chars: int = MAX_SHOWN,
) -> dict[str, Any]:
    """Convert the bytes of a key, a value or a header to JSON data for a page.

    Args:
        data: the bytes; None for null.
        how: "auto", "text", "json" or "hex".
        decode: decodes bytes by a registered schema; None if there is no registry.
        masks: paths in JSON to hide. If the value is not JSON, it is hidden completely, because the position
            of the secret is unknown.
        max_chars: largest number of characters of the text.

    Returns:
        ``{"is": "null"}``, ``{"is": "hidden"}``, or ``{"is": format, "text": ..., "bytes": size}``. The last
        has ``"cut": true`` if the text is incomplete, ``"masked": true`` if masks hide a part, and
        ``"schema": id`` if a registered schema has decoded the bytes.
    """
    if data is None:
        return {"is": "null"}
    size: dict[str, Any] = {"bytes": len(data)}
    decoded = decode(data) if decode is not None and (how == "auto" or masks) else None
    if decoded is not None:
        kind, schema, value = decoded
        return {"is": kind, "schema": schema, **size, **_json(value, masks, max_chars)}
    if masks or how in ("auto", "json"):
        value = parsed(data.decode(errors="replace"))
        if value is not NOT_JSON:
            return {"is": "json", **size, **_json(value, masks, max_chars)}
        if masks:
            return HIDDEN
    if how == "hex" or (how == "auto" and not _is_text(data)):
        return {
            "is": "hex",
            **size,
            **_cut(data[: max_chars // 3].hex(" "), max_chars, len(data) > max_chars // 3),
        }
    return {
        "is": "text",
        **size,
        **_cut(data[: max_chars * 4].decode(errors="backslashreplace"), max_chars, len(data) > max_chars * 4),
    }


def compared(data: bytes | None, decode: Decode | None = None, masks: Masks = ()) -> Any:
    """Return the value that a filter compares, from the bytes of a key, a value or a header; None for null.

    If the bytes begin with the id of a registered schema, `decode` gives the value. Other bytes are parsed as
    JSON. If they are not JSON either, the result is the bytes as text. With `masks`, the function replaces
    the masked parts of the value, and returns None instead of a text that is not JSON.
    """
    if data is None:
        return None
    decoded = decode(data) if decode is not None else None
    if decoded is not None:
        return masked(decoded[2], masks)
    text = data.decode(errors="replace")
    value = parsed(text)
    if value is NOT_JSON:
        return None if masks else text
    return masked(value, masks)


def cell(value: Any) -> str | None:
    """Return a value of a record as text of at most `_CELL` characters, for a column that the user adds.

    Return None for null.
    """
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_plain)
    return visible(text[:_CELL]) + ("…" if len(text) > _CELL else "")


def exported(data: bytes | None, decode: Decode | None = None, masks: Masks = ()) -> Any:
    """Convert the bytes of a key, a value or a header to a JSON value, for a line of JSON.

    Without `masks`, the result is a text, ``{"base64": "..."}`` if the bytes are not UTF-8, or None for None.
    With `masks`, the result is the masked JSON as a text. For this, `decode` decodes bytes of a registered
    schema. If the value is not JSON, the result is None, because masks then hide it completely.
    """
    if data is not None and masks:
        value = compared(data, decode, masks)
        return None if value is None else json.dumps(value, ensure_ascii=False, default=_plain)
    return bytes_to_json(data)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


HIDDEN: dict[str, Any] = {"is": "hidden"}
NOT_JSON = object()


def parsed(text: str) -> Any:
    """Return the value of a JSON text; `NOT_JSON` if the text is not JSON or is too long."""
    if len(text) > _MAX_JSON or not text or text[0] not in '{["-0123456789tfn':
        return NOT_JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return NOT_JSON


def _json(value: Any, masks: Masks, max_chars: int) -> dict[str, Any]:
    seen = masked(value, masks)
    is_masked = {"masked": True} if masks and seen != value else {}
    return {**_cut(_dumped(seen), max_chars), **is_masked}


def _dumped(value: Any) -> str:
    try:
        line = json.dumps(value, ensure_ascii=False, default=_plain)
        return (
            line
            if len(line) <= _ONE_LINE
            else json.dumps(value, ensure_ascii=False, indent=2, default=_plain)
        )
    except RecursionError:
        return "(nested too deeply to be shown)"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return in_base64(value)
    return str(value)


def _cut(text: str, max_chars: int, is_cut: bool = False) -> dict[str, Any]:
    if len(text) > max_chars:
        text, is_cut = text[:max_chars], True
    text = visible(text)
    return {"text": text, "cut": True} if is_cut else {"text": text}


def masked(value: Any, paths: Masks) -> Any:
    """Return the JSON value with ``***`` at each path."""
    for path in paths:
        value = _masked(value, path)
    return value


def _masked(value: Any, path: Sequence[str]) -> Any:
    if not path:
        return "***"
    if isinstance(value, Mapping) and path[0] in value:
        return {**value, path[0]: _masked(value[path[0]], path[1:])}
    if isinstance(value, list):
        return [_masked(each, path) for each in value]
    return value
