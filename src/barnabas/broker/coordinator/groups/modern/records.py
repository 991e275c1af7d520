"""The records of consumer groups and share groups. Each record stores one fact of a group.

A key begins with the number of the record's kind, and a value with its version: see
`barnabas.broker.coordinator.groups.codec`. A value of None deletes the fact that the key names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.broker.coordinator.record_prefix import PREFIX, decode_key, decode_value
from barnabas.kafka.protocol.codec import encode
from barnabas.kafka.protocol.records import consumer_group, share_group
from barnabas.kafka.protocol.records.consumer_group import TopicPartitions
from barnabas.kafka.protocol.schema import Message

M = TypeVar("M")

Key: TypeAlias = consumer_group.Key | share_group.Key
#: the classes of a key and its value
Pair: TypeAlias = tuple[type[Any], type[Any]]

#: the classes of key and value, by the number that begins the key
KINDS: Mapping[int, tuple[type[Key], type[Message]]] = {**consumer_group.KINDS, **share_group.KINDS}
_KIND_OF = {key: kind for kind, (key, _) in KINDS.items()}
#: the only version of these keys and values
_VERSION = 0


class ModernGroupRecord(NamedTuple):
    """One record of a consumer group or a share group. A value of None deletes the key."""

    key: Key
    value: Message | None

    def encode(self) -> tuple[bytes, bytes | None]:
        key, value = self
        encoded = encode(key, _VERSION, PREFIX.pack(_KIND_OF[type(key)]))
        return encoded, None if value is None else encode(value, _VERSION, PREFIX.pack(_VERSION))


def decode_record(kind: int, key: bytes, value: bytes | None) -> ModernGroupRecord:
    """Decode a record of one of the `KINDS`.

    Raises:
        ProtocolError: the record cannot be decoded, or its value has an unknown version.
    """
    key_class, value_class = KINDS[kind]
    key_message = decode_key(key_class, key)
    return ModernGroupRecord(key_message, None if value is None else decode_value(value_class, value))


@dataclass(frozen=True)
class RecordTypes(Generic[M]):
    """The record classes of consumer groups or of share groups, for the kinds of records that both have.

    Each `Pair` has the classes of a record's key and value. `M` is the class of the group's members. The
    fields that are functions convert a member to the values of its records, and back.
    """

    #: group epoch and metadata hash
    group: Pair
    #: the epoch of the target assignment
    assignment: Pair
    target: Pair
    #: a member's metadata and subscription
    subscription: Pair
    #: a member's epochs and partitions
    current: Pair
    new_member: Callable[[str], M]
    subscription_value: Callable[[M], Message]
    #: returns the member with the stored metadata and subscription
    subscribed: Callable[[M, Any], M]
    current_value: Callable[[M], Message]
    #: returns the member with the stored epochs and partitions
    advanced: Callable[[M, Any], M]


def to_topic_partitions(partitions: Partitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic, partitions=sorted(numbers)) for topic, numbers in partitions.items()
    ]


def from_topic_partitions(topics: Iterable[TopicPartitions]) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}
