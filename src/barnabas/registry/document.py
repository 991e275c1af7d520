"""Decodes JSON from clients strictly by RFC 8259, and within limits.

Python's own decoder also accepts NaN and Infinity, turns 1e999 into infinity, and keeps lone surrogates. None
of these can be encoded as JSON again.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from barnabas.registry import limits
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.limits import TooLargeError


class Elements:
    """Decodes JSON documents, and limits the number of JSON values in all of them together.

    Args:
        what: name of the document, for error messages.
        limit: largest number of JSON values.
        depth: largest depth of nested objects and arrays.
    """

    def __init__(self, what: str = "it", limit: int = limits.ELEMENTS, depth: int = limits.DEPTH) -> None:
        self._what = what
        self._limit = limit
        self._depth = depth
        self._left = limit

    def load(self, text: str | bytes) -> Any:
        """Return the JSON value in `text`.

        Raises:
            ValueError: the text is not JSON, or has a number that a float cannot hold.
            TooLargeError: this and earlier documents together have too many JSON values.
            InvalidSchemaError: the document is nested too deeply.
        """
        try:
            value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        except RecursionError:
            raise self._too_deep() from None
        self._count(value)
        return value

    def _count(self, value: Any) -> None:
        level, depth = [value], 0
        while level:
            self._left -= len(level)
            if self._left < 0:
                raise TooLargeError(f"{self._what} has more than {self._limit:,} JSON elements")
            if depth > self._depth:
                raise self._too_deep()
            below: list[Any] = []
            for item in level:
                if isinstance(item, dict):
                    below += item.values()
                elif isinstance(item, list):
                    below += item
            level, depth = below, depth + 1

    def _too_deep(self) -> InvalidSchemaError:
        return InvalidSchemaError(f"{self._what} is nested more than {self._depth} levels deep")


def body(data: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of a request.

    Raises:
        ValueError: the body is not a JSON object, or has a character that UTF-8 cannot encode.
        RegistryError: the body or the schema in it exceeds a limit.
    """
    value = Elements("the body", limits.BODY_ELEMENTS, limits.BODY_DEPTH).load(data)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    schema = value.get("schema")
    if isinstance(schema, str) and len(schema) > limits.TEXT:
        raise TooLargeError(f"it has {len(schema):,} characters, and the limit is {limits.TEXT:,}")
    if b"\\u" in data:  # only an escape can be a lone surrogate
        encoded(json.dumps(value, ensure_ascii=False))
    return value


def encoded(text: str) -> bytes:
    """Return `text` in UTF-8. Raises ValueError if `text` has a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        lone = text[error.start]
        raise ValueError(f"\\u{ord(lone):04x} is half of a surrogate pair") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{limits.shortened(text, 40)} is beyond the numbers that are served")
    return value
