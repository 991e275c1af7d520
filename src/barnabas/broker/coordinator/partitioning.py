"""Which partition of an internal topic keeps a key: Kafka's choice, so that either opens the other's data."""

from __future__ import annotations

from functools import lru_cache

#: a coordinator's records have no room for a longer key, in bytes of UTF-8
_LONGEST_KEY = 2**15 - 1
#: longer keys are hashed at every request: the cache keeps the keys that it knows
_LONGEST_CACHED = 256


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`, over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(encoded), 2):
        value = (31 * value + (encoded[index] << 8 | encoded[index + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


#: every request of a group or a transaction needs the hash, and few ids are in use at a time
cached_hash = lru_cache(maxsize=10_000)(java_string_hash)


def partition_for(key: str, partitions: int) -> int:
    """The partition that coordinates `key` (a group id, a transactional id).

    Kafka takes the hash's absolute value, and 0 for the smallest integer, which Java cannot negate. A key
    that no record can store gets partition 0 without a hash: 100 MB would hold the event loop for seconds.
    """
    if len(key) > _LONGEST_KEY:
        return 0
    value = cached_hash(key) if len(key) <= _LONGEST_CACHED else java_string_hash(key)
    return 0 if value == -(2**31) else abs(value) % partitions
