"""The settings of a topic (https://kafka.apache.org/documentation/#topicconfigs) that Barnabas supports.

The `synonyms` of a topic's setting are the broker's settings that give its default, the most specific first.
"""

from __future__ import annotations

from functools import cached_property

from barnabas.broker.config.declaration import (
    INT_MAX,
    LONG_MAX,
    Update,
    boolean,
    double,
    integer,
    long,
    string,
    text_list,
)
from barnabas.broker.config.layers import Settings

#: an item of a list of throttled replicas, and the words for one that is malformed
THROTTLED_REPLICA = (r"\*|[0-9]{1,10}:[0-9]{1,10}", "write PARTITION:BROKER for each replica, or * for all")


class TopicConfig(Settings, update=Update.CLUSTER_WIDE):
    """The settings of one topic: its own values, or else the broker's defaults."""

    cleanup_policy: tuple[str, ...] = text_list(
        "cleanup.policy",
        ("delete",),
        choices=("delete", "compact"),
        synonyms=("log.cleanup.policy",),
        doc="The removal of old records: delete removes them by age and size, and compact keeps the last "
        "record of each key.",
    )
    compression_type: str = string(
        "compression.type",
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=("compression.type",),
        doc="The compression of batches on disk; producer keeps the producer's compression, byte for byte.",
    )
    compression_gzip_level: int = integer(
        "compression.gzip.level",
        -1,
        choices=(-1, *range(1, 10)),
        synonyms=("compression.gzip.level",),
        doc="The level of gzip if the broker compresses a batch for compression.type; -1 is gzip's default.",
    )
    compression_lz4_level: int = integer(
        "compression.lz4.level",
        9,
        minimum=1,
        maximum=17,
        synonyms=("compression.lz4.level",),
        doc="The level of lz4 if the broker compresses a batch for compression.type. 1, 2 and 9 select the "
        "fast method, 3 to 8 high compression, and 10 to 17 the highest compression.",
    )
    compression_zstd_level: int = integer(
        "compression.zstd.level",
        3,
        minimum=-131_072,
        maximum=22,
        synonyms=("compression.zstd.level",),
        doc="The level of zstd if the broker compresses a batch for compression.type.",
    )
    delete_retention_ms: int = long(
        "delete.retention.ms",
        86_400_000,
        minimum=0,
        synonyms=("log.cleaner.delete.retention.ms",),
        doc="The time, in milliseconds, that compaction keeps a tombstone or a transaction marker that has "
        "no more effect.",
    )
    errors_deadletterqueue_group_enable: bool = boolean(
        "errors.deadletterqueue.group.enable",
        False,
        doc="Whether groups can use the topic as their dead-letter queue (KIP-1191).",
    )
    file_delete_delay_ms: int = long(
        "file.delete.delay.ms",
        60_000,
        minimum=0,
        synonyms=("log.segment.delete.delay.ms",),
        doc="The time, in milliseconds, that a deleted segment's files stay on disk for active readers.",
    )
    flush_messages: int = long(
        "flush.messages",
        LONG_MAX,
        minimum=1,
        synonyms=("log.flush.interval.messages",),
        doc="The number of records appended to a partition after which it is fsynced.",
    )
    flush_ms: int = long(
        "flush.ms",
        LONG_MAX,
        minimum=0,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="The longest time, in milliseconds, until an appended record is fsynced.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = text_list(
        "follower.replication.throttled.replicas",
        (),
        items=THROTTLED_REPLICA,
        doc="The replicas whose fetches are throttled: PARTITION:BROKER each, or * for all.",
    )
    index_interval_bytes: int = integer(
        "index.interval.bytes",
        4096,
        minimum=0,
        synonyms=("log.index.interval.bytes",),
        doc="The number of bytes of log between two entries of the offset index.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = text_list(
        "leader.replication.throttled.replicas",
        (),
        items=THROTTLED_REPLICA,
        doc="The replicas whose sends are throttled: PARTITION:BROKER each, or * for all.",
    )
    max_compaction_lag_ms: int = long(
        "max.compaction.lag.ms",
        LONG_MAX,
        minimum=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        doc="The time, in milliseconds, after which a record is compacted, even if little of the log "
        "is dirty.",
    )
    max_message_bytes: int = integer(
        "max.message.bytes",
        1_048_588,
        minimum=0,
        synonyms=("message.max.bytes",),
        doc="The largest batch that is accepted, in bytes, after compression.",
    )
    message_timestamp_after_max_ms: int = long(
        "message.timestamp.after.max.ms",
        3_600_000,
        minimum=0,
        synonyms=("log.message.timestamp.after.max.ms",),
        doc="The largest time, in milliseconds, by which a record's timestamp can be ahead of the broker's "
        "clock.",
    )
    message_timestamp_before_max_ms: int = long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        minimum=0,
        synonyms=("log.message.timestamp.before.max.ms",),
        doc="The largest time, in milliseconds, by which a record's timestamp can be behind the broker's "
        "clock.",
    )
    message_timestamp_type: str = string(
        "message.timestamp.type",
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
        doc="The source of a record's time: the producer (CreateTime) or the broker (LogAppendTime).",
    )
    min_cleanable_dirty_ratio: float = double(
        "min.cleanable.dirty.ratio",
        0.5,
        minimum=0,
        maximum=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
        doc="The part of a log that must be dirty (not compacted yet) before it is compacted.",
    )
    min_compaction_lag_ms: int = long(
        "min.compaction.lag.ms",
        0,
        minimum=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
        doc="The time, in milliseconds, after which a record can be compacted.",
    )
    min_insync_replicas: int = integer(
        "min.insync.replicas",
        1,
        minimum=1,
        synonyms=("min.insync.replicas",),
        doc="The number of replicas that must be in sync before the leader accepts a write with acks=all.",
    )
    unclean_leader_election_enable: bool = boolean(
        "unclean.leader.election.enable",
        False,
        synonyms=("unclean.leader.election.enable",),
        doc="If true, a replica that may lack acknowledged records can become the leader if no other "
        "can. The missing records are lost.",
    )
    retention_bytes: int = long(
        "retention.bytes",
        -1,
        synonyms=("log.retention.bytes",),
        doc="The size of a partition, in bytes, at which its oldest segments are deleted; -1 for no limit.",
    )
    retention_ms: int = long(
        "retention.ms",
        604_800_000,
        minimum=-1,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        doc="The time, in milliseconds, after which records are deleted; -1 for no limit.",
    )
    segment_bytes: int = integer(
        "segment.bytes",
        1_073_741_824,
        minimum=14,
        maximum=INT_MAX,
        synonyms=("log.segment.bytes",),
        doc="The size at which a segment is closed and a new one started, in bytes.",
    )
    segment_index_bytes: int = integer(
        "segment.index.bytes",
        10_485_760,
        minimum=4,
        synonyms=("log.index.size.max.bytes",),
        doc="The size of a segment's index, in bytes, at which the segment is rolled.",
    )
    segment_jitter_ms: int = long(
        "segment.jitter.ms",
        0,
        minimum=0,
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="The longest random time by which a segment is rolled earlier, in milliseconds.",
    )
    segment_ms: int = long(
        "segment.ms",
        604_800_000,
        minimum=1,
        synonyms=("log.roll.ms", "log.roll.hours"),
        doc="The age at which a segment is closed even if it is not full, in milliseconds.",
    )

    @cached_property
    def is_compacted(self) -> bool:
        """Whether the topic is compacted. The value is computed once, because every append needs it."""
        return "compact" in self.cleanup_policy
