"""The small files of a log directory, all in Apache Kafka's formats.

- `recovery-point-offset-checkpoint`, `replication-offset-checkpoint` (high watermarks),
  `log-start-offset-checkpoint` and `cleaner-offset-checkpoint` (up to where logs are compacted) are text: a
  line "0" (the version), a line with the number of entries, then a line "topic partition offset" for each.
- `meta.properties` says whose directory it is: version=1, cluster.id, node.id, directory.id (KIP-858).
- `.kafka_cleanshutdown` exists between a clean stop and the next start.
- `partition.metadata`, in each partition's folder, holds the topic id (KIP-516).
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.types import Offset, TopicId, TopicPartition, topic_id_from_str, topic_id_to_str

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"

#: what Kafka writes into the marker when it has no broker epoch
CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """The content of an offset checkpoint."""
    lines = ["0", str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return ("\n".join(lines) + "\n").encode()


def decode_offsets(content: bytes) -> dict[TopicPartition, Offset]:
    """The inverse of `encode_offsets`.

    Raises:
        ValueError: the content is damaged.
    """
    lines = content.decode("ascii").splitlines()
    if len(lines) < 2 or lines[0] != "0" or int(lines[1]) != len(lines) - 2:
        raise ValueError("not an offset checkpoint of version 0")
    offsets = {}
    for line in lines[2:]:
        topic, partition, offset = line.split()
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """A Java properties file, for values that need no escapes."""
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()


def decode_properties(content: bytes) -> dict[str, str]:
    """The properties of a file as Kafka writes `meta.properties`; comments are left out."""
    properties = {}
    for line in content.decode().splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith(("#", "!")):
            properties[name.strip()] = value.strip()
    return properties


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    """The content of `partition.metadata`."""
    return f"version: 0\ntopic_id: {topic_id_to_str(topic_id)}".encode()


def decode_partition_metadata(content: bytes) -> TopicId:
    """The inverse of `encode_partition_metadata`.

    Raises:
        ValueError: the content is damaged.
    """
    fields = dict(line.split(": ", 1) for line in content.decode("ascii").splitlines())
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError("not a partition.metadata of version 0")
    return topic_id_from_str(fields["topic_id"])
