"""The partition of a key, compared with values of Java's String.hashCode and Kafka's Utils.abs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.coordinator.partitioning import cached_hash, java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("my-consumer-group", 1513705513),
        ("polygenelubricants", -(2**31)),
        ("\u00fc\u20ac", 16176),
        ("\U0001f600", 1772899),
    ],
)
def test_java_string_hash(text, hash_code):
    assert java_string_hash(text) == hash_code


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("hello", 99162322 % 50),
        # negative hashes: made positive, not stripped of their sign bit
        ("my-group", 12),
        ("billing", 9),
        ("g-7be03747", 35),
        # the smallest integer has no positive counterpart
        ("polygenelubricants", 0),
    ],
)
def test_a_key_lies_in_the_partition_that_kafka_gives_it(key, partition):
    assert partition_for(key, 50) == partition


def test_a_key_that_no_record_can_store_is_neither_hashed_nor_kept():
    cached = cached_hash.cache_info()
    assert partition_for("g" * 2**15, 50) == 0
    assert partition_for("g" * (2**15 - 1), 50) == abs(java_string_hash("g" * (2**15 - 1))) % 50 != 0
    assert cached_hash.cache_info() == cached


def horner(text: str) -> int:
    """Return `String.hashCode` as Java's documentation defines it."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[index : index + 2], "big")) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@given(st.text(st.characters(), max_size=40), st.integers(0, 40))
def test_hash_by_blocks_is_the_hash_by_code_units(text, times):
    assert java_string_hash(text * times) == horner(text * times)
