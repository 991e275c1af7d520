"""Random numbers and unique ids, from a given generator or from the operating system."""

from __future__ import annotations

from random import Random, SystemRandom
from uuid import UUID

from barnabas.base.types import METADATA_TOPIC_ID, ZERO_TOPIC_ID, TopicId, topic_id_to_str


def system_random() -> Random:
    """Return a generator of the operating system's random numbers. Any thread can use it."""
    return SystemRandom()


def new_uuid(random: Random) -> UUID:
    """Return a random UUID (RFC 9562, version 4)."""
    return UUID(bytes=random.randbytes(16), version=4)


def new_topic_id(random: Random) -> TopicId:
    """Return a random topic id, but none that Kafka reserves, and none whose text starts with ``-``."""
    while True:
        candidate = new_uuid(random).bytes
        is_reserved = candidate in (ZERO_TOPIC_ID, METADATA_TOPIC_ID)
        if not is_reserved and not topic_id_to_str(candidate).startswith("-"):
            return candidate
