"""Message indexes: the message of a registered Protobuf schema in a payload."""

from __future__ import annotations

import pytest

from barnabas.kafka.records.message_indexes import read_message_indexes, write_message_indexes


@pytest.mark.parametrize(
    ("indexes", "written"),
    [((0,), b"\0"), ((1,), b"\2\2"), ((0, 0), b"\4\0\0"), ((2, 64), b"\4\4\x80\1")],
)
def test_indexes_are_written_and_read(indexes: tuple[int, ...], written: bytes) -> None:
    assert write_message_indexes(indexes) == written
    assert read_message_indexes(b"head" + written + b"message", 4) == (indexes, 4 + len(written))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "it ends before its message begins"),
        (b"\2", "it ends before its message begins"),
        (b"\2\xff", "it ends before its message begins"),
        (b"\xff" * 11, "it ends before its message begins"),
        (b"\x7e", "63 levels deep"),
        (b"\1", "-1 levels deep"),
        (b"\2\1", "no message at -1"),
    ],
)
def test_indexes_of_no_message_are_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_message_indexes(payload, 0)
