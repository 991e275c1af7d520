"""Encodes the topics of a Metadata response without an object for each topic and each partition."""

from __future__ import annotations

import struct
from functools import lru_cache

from barnabas.base.types import INTERNAL_TOPICS, BrokerId
from barnabas.broker.metadata.image import ClusterImage, PartitionState, TopicImage
from barnabas.broker.server.responses.acls import NOT_ASKED
from barnabas.broker.server.responses.topics import TOPIC_OPERATIONS, metadata_error
from barnabas.kafka.protocol.messages.metadata import MetadataResponse
from barnabas.kafka.protocol.wire import ints, uvarint

#: the first versions of Metadata in which topics and partitions have these fields
_INTERNAL_SINCE = 1
_OFFLINE_SINCE = 5
_LEADER_EPOCHS_SINCE = 7
_OPERATIONS_SINCE = 8
_TOPIC_IDS_SINCE = 10
#: largest number of partitions of a topic whose encoded partitions an encoder keeps
_FEW = 3
#: largest number of entries in each of an encoder's two caches
_MAX_KEPT = 16_384

_NO_ERROR = bytes(2)
_pack_short = struct.Struct(">h").pack
_pack_int = struct.Struct(">i").pack
_pack_start = struct.Struct(">hiii").pack


def _pack_start_without_epoch(error: int, number: int, leader: BrokerId, _: int) -> bytes:
    return _pack_start(error, number, leader, 0)[:-4]


@lru_cache(maxsize=1024)
def _compact_length(length: int) -> bytes:
    """Return the length of a string or an array in a flexible version."""
    return uvarint(length + 1)


class TopicEncoder:
    """Encodes the topics of Metadata responses from one image, for clients of one listener.

    The bytes are those of the codec. The encoder encodes equal lists of brokers only once, and equal
    partitions of small topics, too. Any thread can use it, one at a time.

    Args:
        image: cluster image with the topics.
        listener: listener of the clients.
        version: version of the requests.
        operations: whether to add the operations that any client may use on a topic.
    """

    def __init__(self, image: ClusterImage, listener: str, version: int, *, operations: bool) -> None:
        self._image = image
        self._listener = listener
        self._version = version
        is_flexible = version >= MetadataResponse.flexible_from
        self._name_length = _compact_length if is_flexible else _pack_short
        self._array_length = _compact_length if is_flexible else _pack_int
        self._no_tags = b"\0" if is_flexible else b""
        self._has_ids = version >= _TOPIC_IDS_SINCE
        #: the field `is_internal`, by its value
        self._internal = (b"\0", b"\1") if version >= _INTERNAL_SINCE else (b"", b"")
        #: the bytes after a topic's partitions
        self._end = self._no_tags
        if version >= _OPERATIONS_SINCE:
            self._end = _pack_int(TOPIC_OPERATIONS if operations else NOT_ASKED) + self._no_tags
        #: packs error code, number, leader and leader epoch of a partition
        self._pack_start = _pack_start if version >= _LEADER_EPOCHS_SINCE else _pack_start_without_epoch
        #: the error codes of partitions, by leader
        self._errors: dict[BrokerId, int] = {}
        #: the bytes from the number of partitions to the end, by the partitions
        self._tails: dict[tuple[PartitionState, ...], bytes] = {}
        #: the rest of a partition, by replicas and ISR
        self._lists: dict[tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]], bytes] = {}

    def encode(self, topic: TopicImage) -> bytes:
        """Return the topic as the bytes of one element of the response's array."""
        text, topic_id, partitions = topic
        name = text.encode()
        tail = self._tails.get(partitions) if len(partitions) <= _FEW else None
        return b"".join(
            (
                _NO_ERROR,
                self._name_length(len(name)),
                name,
                topic_id if self._has_ids else b"",
                self._internal[text in INTERNAL_TOPICS],
                tail or self._encode_tail(partitions),
            )
        )

    def _encode_tail(self, partitions: tuple[PartitionState, ...]) -> bytes:
        chunks = [self._array_length(len(partitions))]
        pack, errors, lists = self._pack_start, self._errors, self._lists
        for number, state in enumerate(partitions):
            _, _, leader, epoch = state[:4]
            error = errors.get(leader)
            if error is None:
                error = errors[leader] = int(
                    metadata_error(self._image, state, self._listener, self._version)
                )
            chunks += pack(error, number, leader, epoch), lists.get(state[:2]) or self._encode_lists(state)
        chunks.append(self._end)
        tail = b"".join(chunks)
        if len(partitions) <= _FEW and len(self._tails) < _MAX_KEPT:
            self._tails[partitions] = tail
        return tail

    def _encode_lists(self, state: PartitionState) -> bytes:
        replicas, isr = state[:2]
        brokers, length = self._image.brokers, self._array_length
        encoded = length(len(replicas)) + ints("i", replicas) + length(len(isr)) + ints("i", isr)
        if self._version >= _OFFLINE_SINCE:
            offline = [replica for replica in replicas if replica not in brokers]
            encoded += length(len(offline)) + ints("i", offline)
        encoded += self._no_tags
        if len(self._lists) < _MAX_KEPT:
            self._lists[replicas, isr] = encoded
        return encoded
