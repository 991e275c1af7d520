"""Avro's logical types: converts JSON values to values of the underlying types."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, localcontext
from typing import Any

from barnabas.client.json_bytes import is_base64
from barnabas.client.schemas.unfit import UnfitError, value_text

_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1).toordinal()
#: units in a second
_UNITS = {"millis": 1000, "micros": 1_000_000}
_MAX_DIGITS = 1000


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number: an int or a float, but not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_date(schema: Any, value: Any, path: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return date.fromisoformat(value).toordinal() - _EPOCH_DAY
    except ValueError:
        raise _unfit_time(path, value, "a date such as 2026-11-27, or days since 1970-01-01") from None


def _as_time(schema: Any, value: Any, path: str) -> Any:
    if not isinstance(value, str):
        return value
    unit = schema["logicalType"].rpartition("-")[2]
    try:
        at = time.fromisoformat(value)
        if at.tzinfo is not None:
            raise ValueError
    except ValueError:
        raise _unfit_time(path, value, f"a time such as 12:30:00.5, or {unit} since midnight") from None
    seconds = (at.hour * 60 + at.minute) * 60 + at.second
    return seconds * _UNITS[unit] + at.microsecond * _UNITS[unit] // 1_000_000


def _as_timestamp(schema: Any, value: Any, path: str) -> Any:
    if not isinstance(value, str):
        return value
    logical, _, unit = schema["logicalType"].rpartition("-")
    is_local = logical == "local-timestamp"
    try:
        at = datetime.fromisoformat(value)
        if (at.tzinfo is None) != is_local:
            raise ValueError
    except ValueError:
        example = "2026-11-27T12:30:00.5" + ("" if is_local else "Z")
        raise _unfit_time(path, value, f"a time such as {example}, or {unit} since 1970-01-01") from None
    passed = (at.replace(tzinfo=UTC) if is_local else at) - _EPOCH
    microseconds = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    return microseconds * _UNITS[unit] // 1_000_000


def _unfit_time(path: str, value: Any, allowed: str) -> UnfitError:
    return UnfitError(f"{path}: {value_text(value)} does not fit; write {allowed}")


def _as_decimal(schema: Any, value: Any, path: str) -> Any:
    if is_base64(value):
        return value
    precision, scale = schema["precision"], schema.get("scale", 0)
    allowed = f"a number with at most {precision} digits, {scale} of them behind the point (decimal)"
    try:
        if not (is_number(value) or isinstance(value, str)) or len(str(value)) > _MAX_DIGITS:
            raise ValueError
        with localcontext() as context:
            context.prec = _MAX_DIGITS
            unscaled = Decimal(str(value)).scaleb(scale)
            if not unscaled.is_finite() or unscaled.adjusted() >= precision or unscaled % 1:
                raise ValueError
    except (ArithmeticError, ValueError):
        raise UnfitError(f"{path}: {value_text(value)} does not fit; write {allowed}") from None
    whole = int(unscaled)
    size = schema["size"] if schema["type"] == "fixed" else whole.bit_length() // 8 + 1
    try:
        return whole.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise UnfitError(f"{path}: {value_text(value)} does not fit into {size} bytes") from None


def _as_uuid(schema: Any, value: Any, path: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        found = uuid.UUID(value)
    except ValueError:
        raise UnfitError(f"{path}: {value_text(value)} is not a UUID") from None
    return value if schema["type"] == "string" else found.bytes


#: by type and logical type, the function that turns a JSON value into a value of the type
LOGICAL: dict[tuple[str, str], Callable[[Any, Any, str], Any]] = {
    ("int", "date"): _as_date,
    ("int", "time-millis"): _as_time,
    ("long", "time-micros"): _as_time,
    ("long", "timestamp-millis"): _as_timestamp,
    ("long", "timestamp-micros"): _as_timestamp,
    ("long", "local-timestamp-millis"): _as_timestamp,
    ("long", "local-timestamp-micros"): _as_timestamp,
    ("bytes", "decimal"): _as_decimal,
    ("fixed", "decimal"): _as_decimal,
    ("string", "uuid"): _as_uuid,
    ("fixed", "uuid"): _as_uuid,
}
