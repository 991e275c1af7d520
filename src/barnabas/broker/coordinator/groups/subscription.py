"""Decodes and encodes the metadata and assignments of classic consumers (protocol type "consumer").

The broker decodes the subscribed topics, because the expiry of offsets depends on them (KIP-496, KIP-211).
The broker decodes all other fields only when a group changes its protocol (KIP-848).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeVar

from barnabas.base.errors import ProtocolError
from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from barnabas.kafka.protocol.schema import Message

#: the protocol type of consumers that subscribe to topics
CONSUMER_PROTOCOL_TYPE = "consumer"

_START = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_VERSION = struct.Struct(">h")

M = TypeVar("M", bound=Message)


def subscribed_topics(metadata: bytes) -> set[str]:
    """Return the topics in a consumer's subscription. This works for every version of the protocol.

    Raises:
        ValueError: the bytes are not a subscription.
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


def subscription_version(metadata: bytes) -> int:
    """Return the version of the consumer protocol in a member's metadata; 0 if the metadata is malformed."""
    if len(metadata) < _VERSION.size:
        return 0
    (version,) = _VERSION.unpack_from(metadata)
    return max(int(version), 0)


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode a consumer's subscription with all its fields.

    Raises:
        ValueError: the bytes are not a subscription.
    """
    return _decode(ConsumerProtocolSubscription, metadata)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode a consumer's assignment. Empty bytes are an empty assignment.

    Raises:
        ValueError: the bytes are not an assignment.
    """
    return _decode(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def encode_assignment(assignment: Mapping[str, frozenset[int]], version: int) -> bytes:
    """Encode an assignment, which has partitions by topic name.

    `version` is the version of the consumer protocol. For a later version than the broker knows, use the
    latest known one.
    """
    version = min(version, ConsumerProtocolAssignment.versions[1])
    partitions = [
        TopicPartition(topic=topic, partitions=sorted(numbers)) for topic, numbers in assignment.items()
    ]
    return _VERSION.pack(version) + encode(
        ConsumerProtocolAssignment(assigned_partitions=partitions), version
    )


def _decode(message: type[M], data: bytes) -> M:
    try:
        (version,) = _VERSION.unpack_from(data)
        if version < 0:
            raise ValueError(f"there is no version {version}")
        return decode(message, min(version, message.versions[1]), data, _VERSION.size)
    except (struct.error, ProtocolError) as error:
        raise ValueError(str(error)) from error
