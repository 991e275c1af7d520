"""Records as lines of JSON. Bytes are text if they are UTF-8, else ``{"base64": ...}``."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from barnabas.base.types import TopicPartition


def record_line(
    partition: TopicPartition, offset: int, timestamp_ms: int | None, content: Mapping[str, Any]
) -> str:
    """Return a record as one line, in the format of `barnabas consume --json` and `barnabas produce --json`.

    Args:
        partition: the topic and partition of the record.
        timestamp_ms: milliseconds since 1970; None is written as null.
        content: JSON values of "key", "value" and "headers", or some of them.
    """
    fields = {**partition._asdict(), "offset": offset, "timestamp": timestamp_ms}
    return json.dumps({**fields, **content}, ensure_ascii=False)


def bytes_to_json(data: bytes | None) -> Any:
    """Return the JSON value of bytes: a text if they are UTF-8, the value of `in_base64` if they are not.

    Return None for None.
    """
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return in_base64(data)


def in_base64(data: bytes) -> dict[str, str]:
    """Return the JSON value of bytes that are not text: ``{"base64": "..."}``."""
    return {"base64": base64.b64encode(data).decode()}


def is_base64(value: Any) -> bool:
    """Whether a JSON value is an object with one name, "base64"."""
    return isinstance(value, dict) and set(value) == {"base64"}


def from_base64(value: Any) -> bytes:
    """Return the bytes of the JSON value ``{"base64": "..."}``.

    Raises ValueError or TypeError if the text is not base64.
    """
    return base64.b64decode(value["base64"], validate=True)
