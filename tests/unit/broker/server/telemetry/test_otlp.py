"""The parts of a push that the broker decodes, and those that it ignores."""

from __future__ import annotations

import struct

import pytest

from barnabas.broker.server.telemetry import otlp
from barnabas.broker.server.telemetry.otlp import OtlpError, Point, read_metrics


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(number: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(body)) + body


def text(number: int, value: str) -> bytes:
    return message(number, value.encode())


def attribute(name: str, value: bytes) -> bytes:
    return message(7, text(1, name), message(2, value))


def double(value: float, *attributes: bytes) -> bytes:
    return message(1, b"\x21" + struct.pack("<d", value), *attributes)


def whole(value: int, *attributes: bytes) -> bytes:
    return message(1, b"\x31" + struct.pack("<q", value), *attributes)


def gauge(name: str, *points: bytes) -> bytes:
    return message(2, text(1, name), message(5, *points))


def total(name: str, *points: bytes, temporality: int = 2, is_monotonic: bool = True) -> bytes:
    kind = b"\x10" + varint(temporality) + b"\x18" + bytes([is_monotonic])
    return message(2, text(1, name), message(7, *points, kind))


def pushed(*metrics: bytes) -> bytes:
    scope = message(1, text(1, "org.apache.kafka"))
    return message(1, message(1), message(2, scope, *metrics))


def test_gauges_and_sums_are_read_with_their_attributes() -> None:
    found = read_metrics(
        pushed(
            gauge(
                "a.b", double(1.5, attribute("node.id", text(1, "7")), attribute("client_id", text(1, "c")))
            ),
            total("c", whole(-3), temporality=1),
            total("d", whole(4)),
            total("e", whole(5), is_monotonic=False),
        )
    )
    assert found.points == [
        Point("a.b", (("client_id", "c"), ("node_id", "7")), 1.5, False, False),
        Point("c", (), -3, True, True),
        Point("d", (), 4, True, False),
        Point("e", (), 5, False, False),
    ]
    assert not found.is_cut


@pytest.mark.parametrize(
    "value, expected",
    [(b"\x10\x01", "true"), (b"\x18\x2a", "42"), (b"\x18" + varint(2**64 - 1), "-1")],
)
def test_values_of_attributes_that_are_no_texts_are_written_as_such(value: bytes, expected: str) -> None:
    (point,) = read_metrics(pushed(gauge("m", double(1, attribute("x", value))))).points
    assert point.attributes == (("x", expected),)


def test_names_and_texts_are_made_fit_to_be_shown() -> None:
    (point,) = read_metrics(
        pushed(gauge('x"\n{', double(1, attribute("a=b,", text(1, "\x1b[31m" + "y" * 999)))))
    ).points
    assert point.metric == "x___"
    ((name, value),) = point.attributes
    assert name == "a_b_" and value.isprintable() and len(value) == 200


def test_histograms_are_counted_and_unknown_fields_ignored() -> None:
    found = read_metrics(
        pushed(
            message(2, text(1, "h"), message(9)),
            message(2, text(1, "f"), text(99, "?"), b"\xfd\x01abcd", message(5, double(1))),
            message(2, message(5, double(1))),
            gauge("without a value", message(1)),
        )
    )
    assert found.others == 1
    assert [point.metric for point in found.points] == ["f"]


def test_no_more_points_and_fields_are_read_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    many = read_metrics(pushed(gauge("m", *[double(1)] * (otlp.MAX_POINTS + 1))))
    assert len(many.points) == otlp.MAX_POINTS and many.is_cut
    monkeypatch.setattr(otlp, "MAX_FIELDS", 50)
    few = read_metrics(pushed(*[gauge("m", double(1))] * 100))
    assert 0 < len(few.points) < 50 and few.is_cut


def test_what_is_cut_short_or_no_protobuf_is_refused() -> None:
    data = pushed(gauge("a.b", double(1.5, attribute("node.id", text(1, "7")))))
    for size in range(1, len(data)):
        with pytest.raises(OtlpError):
            read_metrics(data[:size])
    for wrong in (b"\x0f", b"\x0b", b"\x0a\x05a", b"\x08" + b"\xff" * 11, b"\x0a" + b"\xff" * 9 + b"\x01"):
        with pytest.raises(OtlpError):
            read_metrics(wrong)
    assert read_metrics(b"").points == []
