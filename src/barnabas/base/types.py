"""Types that all packages share."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

Offset: TypeAlias = int
LeaderEpoch: TypeAlias = int
ProducerId: TypeAlias = int
ProducerEpoch: TypeAlias = int
BrokerId: TypeAlias = int

#: A value that can be written as JSON. Code that reads JSON has Any until it has checked the value.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = dict[str, Json]

#: An object whose bytes can be read without a copy.
Buffer: TypeAlias = bytes | bytearray | memoryview


class StoredBytes(Protocol):
    """Bytes in a file, which `send_to` sends without a copy in this process.

    All methods raise OSError if the system reports an error.
    """

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes:
        """Return all bytes."""
        ...

    def read(self, start: int, size: int) -> bytes:
        """Return at most `size` bytes from `start` on.

        The result is empty only if the file has no byte at `start`.
        """
        ...

    def send_to(self, descriptor: int, start: int) -> int:
        """Send as many bytes from `start` on as the socket `descriptor` accepts.

        Return the number of bytes sent; it is 0 only if the file has no byte at `start`.

        Raises:
            BlockingIOError: the socket accepts none now.
        """
        ...


#: A piece of data to send.
Chunk: TypeAlias = Buffer | StoredBytes

#: A topic's id, 16 bytes as on the wire (KIP-516). A name can be used again after a deletion, an id cannot.
TopicId: TypeAlias = bytes

#: A topic as Fetch names it: by its name, or by its id from v13 on.
TopicKey: TypeAlias = str | TopicId

ZERO_TOPIC_ID: TopicId = bytes(16)
#: the id and the name of Kafka's own metadata topic
METADATA_TOPIC_ID: TopicId = bytes(15) + b"\x01"
METADATA_TOPIC = "__cluster_metadata"

UNKNOWN_OFFSET: Offset = -1
NO_LEADER_EPOCH: LeaderEpoch = -1
NO_PRODUCER_ID: ProducerId = -1
#: producer ids from here on are never allocated: brokers use them for batches of their own
FIRST_BROKER_PRODUCER_ID: ProducerId = 1 << 62
NO_PRODUCER_EPOCH: ProducerEpoch = -1
NO_BROKER: BrokerId = -1

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})


class TopicPartition(NamedTuple):
    """One partition of a topic, with the topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdentity(NamedTuple):
    """The identity of an idempotent producer in its batches (KIP-98)."""

    producer_id: ProducerId
    epoch: ProducerEpoch


def topic_id_to_str(topic_id: TopicId) -> str:
    """Return a topic id as Kafka's tools print it: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def topic_id_from_str(text: str) -> TopicId:
    """Return the topic id in a text from `topic_id_to_str`.

    Raises:
        ValueError: the text is not 16 bytes of URL-safe base64.
    """
    decoded = base64.urlsafe_b64decode(text + "==")
    if len(decoded) != 16:
        raise ValueError(f"a topic id is 16 bytes, {text!r} is {len(decoded)}")
    return decoded
