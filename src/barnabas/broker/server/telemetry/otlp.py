"""Reads the metrics that clients push: OpenTelemetry's MetricsData 1.0 in protobuf's wire format.

This module reads the values of gauges and sums. It only counts histograms and summaries, because Kafka's
clients do not send them.

It uses no protobuf library: from a megabyte of tiny messages, a library would create hundreds of megabytes of
objects. This module reads at most `MAX_POINTS` values and `MAX_FIELDS` fields of a push, and ignores the
rest.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

#: largest numbers of values and of protobuf fields that are read from one push
MAX_POINTS, MAX_FIELDS = 2000, 100_000
#: largest number of attributes of a value, and of characters of a name or text
_MAX_ATTRIBUTES, _MAX_CHARS = 8, 200

_DOUBLE, _LONG = struct.Struct("<d"), struct.Struct("<q")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA = 1

_NOT_IN_NAMES, _NOT_IN_ATTRIBUTES = re.compile("[^a-zA-Z0-9_.-]"), re.compile("[^a-zA-Z0-9_]")

#: (number of the field, kind on the wire, its number or where it begins, where it ends)
_Field: TypeAlias = tuple[int, int, int, int]


class OtlpError(ValueError):
    """Raised for bytes that are not a valid MetricsData message."""


class Point(NamedTuple):
    """One value of a metric.

    Attributes:
        metric: name of the metric, for example ``org.apache.kafka.producer.connection.creation.total``.
        attributes: names (letters, digits and ``_``) and values, none empty, sorted by name.
        is_sum: whether the metric is a sum that only grows. If false, ``/metrics`` shows it as a gauge.
        is_delta: whether the value of such a sum is the difference from the last push; always false for a
            gauge.
    """

    metric: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_sum: bool
    is_delta: bool


@dataclass(slots=True)
class Pushed:
    """The content of one push.

    Attributes:
        points: values of the gauges and sums.
        is_cut: whether the push has more values or fields than the limit, so that some were not read.
        others: number of metrics that are neither gauges nor sums.
    """

    points: list[Point] = field(default_factory=list)
    is_cut: bool = False
    others: int = 0


def read_metrics(data: bytes) -> Pushed:
    """Return the values in a MetricsData message. Raises OtlpError if `data` is invalid.

    If the message has too many values or fields, return the first ones (`Pushed.is_cut`).
    """
    pushed = Pushed()
    reader = _Reader(data)
    try:
        for resource in reader.parts(0, len(data), 1):
            for scope in reader.parts(*resource, 2):
                for metric in reader.parts(*scope, 2):
                    _read_metric(reader, metric, pushed)
    except _Enough:
        pushed.is_cut = True
    except (IndexError, struct.error):
        raise OtlpError("it is cut short") from None
    return pushed


class _Enough(Exception):
    """Raised to stop the read when the push has more values or fields than the limit."""


class _Reader:
    """Reads protobuf fields of a message, and raises `_Enough` after `MAX_FIELDS` of them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = MAX_FIELDS

    def fields(self, at: int, end: int) -> Iterator[_Field]:
        data = self._data
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise _Enough
            tag, at = self._varint(at)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, at = self._varint(at)
                yield number, kind, value, at
                continue
            if kind == _BYTES:
                size, at = self._varint(at)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise OtlpError(f"there is no kind of field {kind}")
            if at + size > end:
                raise OtlpError("a field reaches beyond its message")
            yield number, kind, at, at + size
            at += size
        if at != end or end > len(data):
            raise OtlpError("a field reaches beyond its message")

    def parts(self, at: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of each submessage that a message has in its field `wanted`.

        `at` and `end` are the positions of the message's first byte and of the byte after its last one. The
        results are the same two positions for each submessage. `wanted` is a protobuf field number.
        """
        for number, kind, start, stop in self.fields(at, end):
            if number == wanted and kind == _BYTES:
                yield start, stop

    def text(self, at: int, end: int) -> str:
        """Return the text in the bytes from `at` up to, but without, `end`.

        The text is cut to `_MAX_CHARS` characters. Each unprintable character becomes ``?``.
        """
        text = self._data[at : min(end, at + 4 * _MAX_CHARS)].decode("utf-8", "replace")[:_MAX_CHARS]
        return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)

    def double(self, at: int) -> float:
        value: float = _DOUBLE.unpack_from(self._data, at)[0]
        return value

    def long(self, at: int) -> int:
        value: int = _LONG.unpack_from(self._data, at)[0]
        return value

    def _varint(self, at: int) -> tuple[int, int]:
        data = self._data
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        while True:
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (2**64 - 1), at + 1
            shift += 7
            if shift > 63:
                raise OtlpError("a number has more than ten bytes")


def _read_metric(reader: _Reader, bounds: tuple[int, int], pushed: Pushed) -> None:
    name = ""
    data: tuple[int, int, bool] | None = None
    for number, kind, at, end in reader.fields(*bounds):
        if kind != _BYTES:
            continue
        if number == 1:
            name = _NOT_IN_NAMES.sub("_", reader.text(at, end))
        elif number in (5, 7):  # a gauge, a sum
            data = at, end, number == 7
        elif number in (9, 10, 11):
            pushed.others += 1
    if data is None or not name:
        return
    at, end, may_be_sum = data
    is_monotonic = is_delta = False
    points = []
    for number, kind, start, stop in reader.fields(at, end):
        if number == 1 and kind == _BYTES:
            points.append((start, stop))
        elif may_be_sum and kind == _VARINT:
            is_delta = is_delta or (number == 2 and start == _DELTA)
            is_monotonic = is_monotonic or (number == 3 and start != 0)
    for point in points:
        if len(pushed.points) >= MAX_POINTS:
            raise _Enough
        found = _read_point(reader, point)
        if found is not None:
            value, attributes = found
            pushed.points.append(Point(name, attributes, value, is_monotonic, is_monotonic and is_delta))


def _read_point(reader: _Reader, bounds: tuple[int, int]) -> tuple[float, tuple[tuple[str, str], ...]] | None:
    value: float | None = None
    attributes: dict[str, str] = {}
    for number, kind, at, end in reader.fields(*bounds):
        if number == 4 and kind == _FIXED64:
            value = reader.double(at)
        elif number == 6 and kind == _FIXED64:
            value = reader.long(at)
        elif number == 7 and kind == _BYTES and len(attributes) < _MAX_ATTRIBUTES:
            key, text = _read_attribute(reader, at, end)
            if key and text:
                attributes[_NOT_IN_ATTRIBUTES.sub("_", key)] = text
    return None if value is None else (value, tuple(sorted(attributes.items())))


def _read_attribute(reader: _Reader, at: int, end: int) -> tuple[str, str]:
    key = text = ""
    for number, kind, start, stop in reader.fields(at, end):
        if number == 1 and kind == _BYTES:
            key = reader.text(start, stop)
        elif number == 2 and kind == _BYTES:
            text = _read_value(reader, start, stop)
    return key, text


def _read_value(reader: _Reader, at: int, end: int) -> str:
    """Return the OpenTelemetry AnyValue in the bytes `at` to `end` as text; "" if it is a list or a map."""
    text = ""
    for number, kind, start, stop in reader.fields(at, end):
        if number == 1 and kind == _BYTES:
            text = reader.text(start, stop)
        elif number == 2 and kind == _VARINT:
            text = "true" if start else "false"
        elif number == 3 and kind == _VARINT:
            text = str(start - 2**64 if start >= 2**63 else start)
        elif number == 4 and kind == _FIXED64:
            text = repr(reader.double(start))
    return text
