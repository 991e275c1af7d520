"""The mark of a replica that lacks records, as it is on disk."""

from __future__ import annotations

import json

import pytest

from barnabas.broker.storage.incomplete import Mark, decode_mark, encode_mark

ID, OTHER = b"t" * 16, b"u" * 16


@pytest.mark.parametrize(
    "mark",
    [
        Mark("it was repaired"),
        Mark("it was discarded", is_emptied=True, topic_id=ID),
        Mark("a log directory is missing", directories=("a", "b"), topic_id=ID),
    ],
)
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert decode_mark(encode_mark(mark)) == mark


def test_a_mark_counts_for_its_topic_and_where_one_of_the_topics_is_not_known() -> None:
    mark = Mark("it was discarded", topic_id=ID)
    assert mark.is_of(ID) and mark.is_of(None) and mark.is_of(bytes(16))
    assert not mark.is_of(OTHER)
    assert Mark("it was repaired").is_of(OTHER)


def test_a_mark_of_0_2_0_counts_for_any_topic() -> None:
    mark = decode_mark(json.dumps({"version": 0, "reason": "it was repaired", "emptied": True}).encode())
    assert mark == Mark("it was repaired", is_emptied=True)
    assert mark.is_of(OTHER)


def test_a_flipped_bit_does_not_make_it_the_mark_of_another_topic() -> None:
    content = encode_mark(Mark("it was discarded", is_emptied=True, topic_id=ID))
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_mark(bytes(damaged)).is_of(ID), damaged
