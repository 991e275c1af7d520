"""Records as text: the JSON lines that `consume --json` prints and `produce --json` reads, and templates."""

from __future__ import annotations

import codecs
import json
import re
import string
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.client.json_bytes import bytes_to_json, from_base64, is_base64, record_line

if TYPE_CHECKING:
    from barnabas.client.record import Record

_FIELDS = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers", "attempt")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}


class Outgoing(NamedTuple):
    """A record to be sent."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def to_json(record: Record) -> str:
    """Return a record as one line of JSON. Bytes that are not UTF-8 become {"base64": "..."}."""
    content = {"key": bytes_to_json(record.key), "value": bytes_to_json(record.value)}
    if record.headers:
        content["headers"] = [[name, bytes_to_json(value)] for name, value in record.headers]
    return record_line(record.topic_partition, record.offset, record.timestamp_ms, content)


#: makes bytes of a JSON value
Encode = Callable[[Any], bytes]


def from_json(line: bytes, encode_value: Encode | None = None, encode_key: Encode | None = None) -> Outgoing:
    """Parse a line in the format of `to_json`. Only `value` is required.

    A text is sent as UTF-8, null as null, ``{"base64": ...}`` as the decoded bytes, and any other value as
    JSON. The same conversion applies to the key.

    Args:
        encode_value: converts a value that is not null to bytes, instead of the default conversion.
        encode_key: the same for the key.

    Raises:
        UnfitError: `encode_value` rejects the value, or `encode_key` rejects the key.
        ValueError: the line is not valid; the text is the reason.
    """
    try:
        document = json.loads(line.removeprefix(codecs.BOM_UTF8))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte {error.start + 1} is 0x{error.object[error.start]:02x}") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    except RecursionError:
        raise ValueError("not a record: it is nested too deeply") from None
    if not isinstance(document, dict) or "value" not in document:
        raise ValueError('not a record: write an object with at least "value"')
    return Outgoing(
        _bytes_from_json("value", document["value"], encode_value),
        _bytes_from_json("key", document.get("key"), encode_key),
        _headers(document.get("headers")),
        _whole_number(document, "partition", 0, 2**31 - 1),
        # librdkafka takes 0 for "no timestamp", and would send the present time
        _whole_number(document, "timestamp", 1, 2**63 - 1),
    )


def _whole_number(document: dict[str, Any], name: str, minimum: int, maximum: int) -> int | None:
    number = document.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f'not a record: "{name}" must be a whole number')
    if not minimum <= number <= maximum:
        raise ValueError(f'not a record that can be sent: "{name}" must lie between {minimum} and {maximum}')
    return number


def _headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    if isinstance(headers, dict):
        headers = list(headers.items())
    wrong = ValueError('not a record: "headers" must be an object, or a list of [name, value]')
    if not isinstance(headers, list | None):
        raise wrong
    pairs = []
    for pair in headers or ():
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise wrong
        _bytes_from_json("headers", pair[0])
        pairs.append((pair[0], _bytes_from_json("headers", pair[1])))
    return tuple(pairs)


class Template:
    r"""A template such as `{key} {value}\n`, with the names of a record's fields in braces.

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
            attempt=getattr(record, "attempt", ""),  # only jobs of a share group have one
        )


def iso_time(timestamp_ms: int | None) -> str:
    """Return a time as ISO 8601 in UTC; an empty text for None, and the number after the year 9999."""
    if timestamp_ms is None:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _bytes_from_json(name: str, value: Any, encode: Encode | None = None) -> bytes | None:
    if value is None:
        return None
    if encode is not None:
        return encode(value)
    try:
        if isinstance(value, str):
            return value.encode()
        if is_base64(value):
            return from_base64(value)
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError(f'not a record that can be sent: "{name}" has half a surrogate pair') from None
    except (TypeError, ValueError):
        raise ValueError(f'not a record: the base64 of "{name}" cannot be read') from None
    except RecursionError:
        raise ValueError(f'not a record: "{name}" is nested too deeply') from None
