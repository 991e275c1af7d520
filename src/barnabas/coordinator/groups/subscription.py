"""The topics in a member's metadata, for groups whose protocol type is "consumer".

Metadata is opaque to the broker but for this (KIP-496, KIP-211): the subscribed topics, which every version
of the consumer protocol's subscription begins with: version (int16), topics (int32 count, each int16 length
and UTF-8). What follows differs by version and client and is not looked at.
"""

from __future__ import annotations

import struct

#: the protocol type of consumers that subscribe to topics
CONSUMER_PROTOCOL_TYPE = "consumer"

_START = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> set[str]:
    """The topics a consumer subscribes to.

    Raises:
        ValueError: the bytes are no subscription.
    """
    topics: set[str] = set()
    try:
        _, count = _START.unpack_from(metadata)
        position = _START.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                raise ValueError("a topic's name is cut short")
            topics.add(name.decode())
            position += length
    except struct.error as error:
        raise ValueError(f"the subscription is cut short: {error}") from error
    return topics
