"""Records as text: the JSON lines that `consume --json` prints and `produce --json` reads, and templates."""

from __future__ import annotations

import base64
import json
import re
import string
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from barnabas.client.record import Record

_FIELDS = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}


class Outgoing(NamedTuple):
    """A record to be sent."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def to_json(record: Record) -> str:
    """One line. Bytes that are not UTF-8 come as {"base64": "..."}."""
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _bytes_to_json(record.key),
        "value": _bytes_to_json(record.value),
    }
    if record.headers:
        document["headers"] = [[name, _bytes_to_json(value)] for name, value in record.headers]
    return json.dumps(document, ensure_ascii=False)


def from_json(line: bytes) -> Outgoing:
    """What `to_json` prints, of which only `value` must be there; a value that is no text is sent as JSON.

    Raises:
        ValueError: the line is not that; the text says what is wrong.
    """
    try:
        document = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(document, dict) or "value" not in document:
        raise ValueError('not a record: write an object with at least "value"')
    headers = document.get("headers") or []
    if isinstance(headers, dict):
        headers = list(headers.items())
    for name in ("partition", "timestamp"):
        if not isinstance(document.get(name), int | None):
            raise ValueError(f'"{name}" must be a whole number')
    try:
        pairs = tuple((str(name), _bytes_from_json(value)) for name, value in headers)
    except (TypeError, ValueError):
        raise ValueError('"headers" must be an object, or a list of [name, value]') from None
    return Outgoing(
        _bytes_from_json(document["value"]),
        _bytes_from_json(document.get("key")),
        pairs,
        document.get("partition"),
        document.get("timestamp"),
    )


class Template:
    r"""`{key} {value}\n` and the like, filled with a record's fields.

    Raises:
        click.UsageError: a field is not known or the braces do not match.
    """

    def __init__(self, text: str) -> None:
        self._text = re.sub(r"\\[ntr0\\]", lambda match: _ESCAPES[match[0]], text)
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(self._text) if name is not None]
        except ValueError as error:
            raise click.UsageError(f"--format {text}: {error}") from None
        unknown = [name for name in names if name not in _FIELDS]
        if unknown:
            raise click.UsageError(
                f"--format {text}: there is no field {{{unknown[0]}}}: choose from "
                + ", ".join(f"{{{name}}}" for name in _FIELDS)
            )

    def fill(self, record: Record) -> str:
        return self._text.format(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp="" if record.timestamp_ms is None else record.timestamp_ms,
            time=iso_time(record.timestamp_ms),
            key=record.key_text or "",
            value=record.text or "",
            headers=",".join(
                f"{name}={(value or b'').decode(errors='replace')}" for name, value in record.headers
            ),
        )


def iso_time(timestamp_ms: int | None) -> str:
    """UTC, in milliseconds; empty where there is none."""
    if timestamp_ms is None:
        return ""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _bytes_to_json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes_from_json(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    return json.dumps(value, ensure_ascii=False).encode()
