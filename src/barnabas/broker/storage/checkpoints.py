"""The small files of a log directory, all in Apache Kafka's formats.

The checkpoint files have an offset for each log:

- `recovery-point-offset-checkpoint`: the recovery point;
- `replication-offset-checkpoint`: the high watermark;
- `log-start-offset-checkpoint`: the log start offset;
- `cleaner-offset-checkpoint`: the offset up to which the log is compacted. The entry is written before the
  first compaction of the log begins.

A checkpoint file is text. It has a line "0" (the version), a line with the number of entries, and for each
entry a line "topic partition offset". Each line ends in a checksum and a tag, which Kafka ignores
(`barnabas.broker.storage.checked_lines`). The tag comes from the topic id: so a new topic ignores the entries
of a deleted topic with the same name.

The other files:

- `barnabas-segment-sizes`, which only Barnabas has, is text with the same two first lines. It has a line for
  every segment as of the last clean stop: "topic partition base-offset size index-bytes timeindex-bytes
  latest-timestamp latest-offset". The latest offset is the last one of the first batch that has the latest
  timestamp.
- `barnabas-logs-elsewhere`, which only Barnabas has, is text with the same two first lines. A clean stop of a
  broker with several log directories writes it to each of them. It has a line "topic partition topic-id" for
  each log with files in another directory (`barnabas.broker.logs.missing_directories`).
- `meta.properties` identifies the owner of the directory: version=1, cluster.id, node.id and directory.id
  (KIP-858). Only Barnabas writes two more properties: metadata.store=zookeeper in a broker of a cluster, and
  barnabas.log.dirs. The latter has the directory.id of each log directory of the broker (ID,ID,...). It is
  missing if there is only one. It is empty until a start has loaded the directory.
- `.kafka_cleanshutdown` exists between a clean stop and the next start. It is JSON, with the broker epoch
  (KIP-966). Only Barnabas writes the field logsElsewhere: the CRC-32C of the `barnabas-logs-elsewhere` that
  the same stop wrote. Another stop, such as one of Kafka, leaves the list as it was, but not this field.
- `partition.metadata`, in each partition's folder, has the topic id (KIP-516). A third line, which Kafka does
  not read, is the CRC-32C of the first two.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.base.types import Offset, TopicId, TopicPartition, topic_id_from_str, topic_id_to_str
from barnabas.broker.storage import checked_lines
from barnabas.kafka.records.crc import crc32c

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
SEGMENT_SIZES = "barnabas-segment-sizes"
LOGS_ELSEWHERE = "barnabas-logs-elsewhere"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"

#: the property of `meta.properties` that a cluster's broker has, and its value
METADATA_STORE = "metadata.store"
ZOOKEEPER = "zookeeper"
#: the property of `meta.properties` with the ids of all log directories of the broker
LOG_DIRS = "barnabas.log.dirs"

#: a larger number in a file is damage, not an offset
MAX_OFFSET = 2**62

#: the epoch of a broker that has none, or whose epoch is not known
NO_BROKER_EPOCH = -1


class CleanShutdown(NamedTuple):
    """The content of `.kafka_cleanshutdown`."""

    #: the broker's epoch at its stop, or NO_BROKER_EPOCH
    broker_epoch: int = NO_BROKER_EPOCH
    #: the CRC-32C of the `barnabas-logs-elsewhere` that the stop wrote; None if it wrote none
    logs_elsewhere: int | None = None


def encode_clean_shutdown(marker: CleanShutdown) -> bytes:
    """Return the content of `.kafka_cleanshutdown`, in Kafka's format (KIP-966)."""
    content = {"version": 0, "brokerEpoch": marker.broker_epoch}
    if marker.logs_elsewhere is not None:
        content["logsElsewhere"] = marker.logs_elsewhere
    return json.dumps(content, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> CleanShutdown:
    """Parse `.kafka_cleanshutdown`. A field that is missing or damaged has its default value."""
    try:
        content = json.loads(data)
        epoch, crc = content.get("brokerEpoch"), content.get("logsElsewhere")
    except (ValueError, AttributeError):
        return CleanShutdown()
    return CleanShutdown(
        epoch if type(epoch) is int and epoch >= 0 else NO_BROKER_EPOCH, crc if type(crc) is int else None
    )


def encode_logs(logs: Collection[tuple[TopicPartition, TopicId]]) -> bytes:
    """Return the content of `barnabas-logs-elsewhere`. A topic id that is not known is zero."""
    return checked_lines.encode(
        f"{topic} {partition} {topic_id_to_str(topic_id)}" for (topic, partition), topic_id in logs
    )


def decode_logs(content: bytes) -> frozenset[tuple[TopicPartition, TopicId]]:
    """Parse `barnabas-logs-elsewhere`.

    Raises:
        ValueError: the content is damaged, or has another format.
    """
    lines, damage = checked_lines.decode(content)
    if damage is not None:
        raise ValueError(damage)
    logs = set()
    for line in lines:
        topic, partition, topic_id = line.split()
        logs.add((TopicPartition(topic, int(partition)), topic_id_from_str(topic_id)))
    return frozenset(logs)


class CheckpointedOffsets(NamedTuple):
    """The entries of an offset checkpoint."""

    #: offsets in the undamaged lines
    offsets: dict[TopicPartition, Offset]
    #: tags of the topics (`tag_of_topic`) in those lines; lines that Kafka wrote have no tags
    tags: dict[TopicPartition, int]
    #: description of the first damage; None without damage
    damage: str | None


def tag_of_topic(topic_id: TopicId) -> int:
    """Return a number that distinguishes two topics of the same name in checkpoints."""
    return crc32c(topic_id)


def encode_offset(topic_partition: TopicPartition, offset: Offset, tag: int | None) -> bytes:
    """Return one line of an offset checkpoint.

    `tag` is the topic's tag, from `tag_of_topic`; None if the topic id is not known.
    """
    topic, partition = topic_partition
    line = f"{topic} {partition} {offset}"
    return checked_lines.encode_line(line if tag is None else checked_lines.tagged(line, tag))


def join_offsets(lines: Sequence[bytes], count: int) -> bytes:
    """Return the content of an offset checkpoint with `count` entries.

    An item of `lines` is a result of `encode_offset`, or several of them joined.
    """
    return b"".join([checked_lines.encode_head(count), *lines])


def encode_offsets(offsets: Mapping[TopicPartition, Offset], tags: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of an offset checkpoint.

    `tags` has the tag of each partition whose topic id is known, from `tag_of_topic`.
    """
    lines = [encode_offset(tp, offset, tags.get(tp)) for tp, offset in offsets.items()]
    return join_offsets(lines, len(lines))


def decode_offsets(content: bytes) -> CheckpointedOffsets:
    """Parse an offset checkpoint of Barnabas or Kafka. Damage raises no error: the result describes it."""
    lines, damage = checked_lines.decode(content)
    offsets = {}
    tags = {}
    for line in lines:
        try:
            topic, number, offset = line.split()
            if not 0 <= int(offset) <= MAX_OFFSET:
                raise ValueError("no offset")
            topic_partition = TopicPartition(topic, int(number))
        except ValueError:
            damage = damage or f"{line[:80]!r} is not a topic, a partition and an offset"
            continue
        offsets[topic_partition] = int(offset)
        tag = checked_lines.tag_of(line)
        if tag is not None:
            tags[topic_partition] = tag
    return CheckpointedOffsets(offsets, tags, damage)


class SegmentSizes(NamedTuple):
    """The state of a segment at a clean stop. Sizes are in bytes.

    `latest_offset` is the last offset of the first batch that has the latest timestamp.
    """

    size: int
    index_size: int
    time_index_size: int
    #: the largest timestamp in the segment, and the last offset of the first batch that has it
    latest_timestamp: int
    latest_offset: Offset


def encode_sizes(sizes: Iterable[tuple[TopicPartition, Offset, SegmentSizes]]) -> bytes:
    """Return the content of `barnabas-segment-sizes`: each segment's partition, base offset and sizes."""
    return checked_lines.encode(
        f"{topic} {partition} {base_offset} {' '.join(map(str, segment))}"
        for (topic, partition), base_offset, segment in sizes
    )


def decode_sizes(content: bytes) -> dict[TopicPartition, dict[Offset, SegmentSizes]] | None:
    """Return each segment's sizes by partition and base offset; None if the file is damaged.

    Raises:
        ValueError: an undamaged line does not have the fields of this file.
    """
    lines, damage = checked_lines.decode(content)
    if damage is not None:
        return None
    sizes: dict[TopicPartition, dict[Offset, SegmentSizes]] = {}
    for line in lines:
        topic, partition, *fields = line.split()
        base_offset, size, index, time_index, timestamp, offset = map(int, fields)
        of_partition = sizes.setdefault(TopicPartition(topic, int(partition)), {})
        of_partition[base_offset] = SegmentSizes(size, index, time_index, timestamp, offset)
    return sizes


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the content of a Java properties file. Names and values are not escaped."""
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()


def decode_properties(content: bytes) -> dict[str, str]:
    """Return the properties, by name, in a Java properties file such as Kafka's `meta.properties`.

    Comments and lines without "=" are ignored.

    Raises:
        ValueError: the content is not UTF-8, or has control characters.
    """
    properties = {}
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if any(not character.isprintable() for line in lines for character in line if character != "\t"):
        raise ValueError("it holds control characters")
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and not name.startswith(("#", "!")):
            properties[name.strip()] = value.strip()
    return properties


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    """Return the content of `partition.metadata`."""
    content = f"version: 0\ntopic_id: {topic_id_to_str(topic_id)}"
    return f"{content}\ncrc: {crc32c(content.encode()):08x}".encode()


def decode_partition_metadata(content: bytes) -> TopicId:
    """Return the topic id in a `partition.metadata` file of Barnabas or Kafka.

    Raises:
        ValueError: the content is damaged, or has another version.
    """
    try:
        lines = content.decode("ascii").splitlines()
        fields = dict(line.split(": ", 1) for line in lines)
    except ValueError:
        raise ValueError("not a partition.metadata") from None
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError("not a partition.metadata of version 0")
    if len(lines) > 2 and fields.get("crc") != f"{crc32c(chr(10).join(lines[:2]).encode()):08x}":
        raise ValueError("it does not match its checksum")
    return topic_id_from_str(fields["topic_id"])
