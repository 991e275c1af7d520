"""Where Kafka keeps a key: values computed by Java's String.hashCode."""

import pytest

from barnabas.coordinator.partitioning import java_string_hash, partition_for


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


def test_negative_hashes_lose_their_sign_bit():
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50
