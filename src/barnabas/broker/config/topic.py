"""The settings of a topic (https://kafka.apache.org/documentation/#topicconfigs): those Barnabas honours.

A topic setting's `synonyms` are the broker settings that give its default, best first.
"""

from __future__ import annotations

from functools import cached_property

from barnabas.broker.config.setting import INT_MAX, LONG_MAX, Type, Update, setting
from barnabas.broker.config.settings import Settings

#: an item of a list of throttled replicas, and the words for one that is malformed
THROTTLED_REPLICA = (r"\*|[0-9]{1,10}:[0-9]{1,10}", "write PARTITION:BROKER for each replica, or * for all")

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class TopicConfig(Settings):
    """The settings of one topic: its own values over the broker's defaults."""

    cleanup_policy: tuple[str, ...] = setting(
        Type.LIST,
        ("delete",),
        choices=("delete", "compact"),
        synonyms=("log.cleanup.policy",),
        update=Update.CLUSTER_WIDE,
        doc="How old records are removed: delete by age and size, compact all but the last of a key.",
    )
    compression_type: str = setting(
        Type.STRING,
        "producer",
        choices=COMPRESSION_TYPES,
        synonyms=("compression.type",),
        update=Update.CLUSTER_WIDE,
        doc="How batches are compressed on disk; producer keeps what the producer chose, byte for byte.",
    )
    delete_retention_ms: int = setting(
        Type.LONG,
        86_400_000,
        minimum=0,
        synonyms=("log.cleaner.delete.retention.ms",),
        update=Update.CLUSTER_WIDE,
        doc="How long compaction keeps a tombstone or a transaction marker that has done its work, in "
        "milliseconds.",
    )
    file_delete_delay_ms: int = setting(
        Type.LONG,
        60_000,
        minimum=0,
        synonyms=("log.segment.delete.delay.ms",),
        update=Update.CLUSTER_WIDE,
        doc="How long a deleted segment's files stay on disk for readers still at work, in milliseconds.",
    )
    flush_messages: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=1,
        synonyms=("log.flush.interval.messages",),
        update=Update.CLUSTER_WIDE,
        doc="How many records may be appended to a partition before it is fsynced.",
    )
    flush_ms: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=0,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        update=Update.CLUSTER_WIDE,
        doc="How long an appended record may wait for an fsync, in milliseconds.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        Type.LIST,
        (),
        items=THROTTLED_REPLICA,
        update=Update.CLUSTER_WIDE,
        doc="The replicas that are throttled while they fetch: PARTITION:BROKER each, or * for all.",
    )
    index_interval_bytes: int = setting(
        Type.INT,
        4096,
        minimum=0,
        synonyms=("log.index.interval.bytes",),
        update=Update.CLUSTER_WIDE,
        doc="How many bytes of log lie between two entries of the offset index.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        Type.LIST,
        (),
        items=THROTTLED_REPLICA,
        update=Update.CLUSTER_WIDE,
        doc="The replicas that are throttled in what they send: PARTITION:BROKER each, or * for all.",
    )
    max_compaction_lag_ms: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        update=Update.CLUSTER_WIDE,
        doc="After how long a record is compacted however little of the log is dirty, in milliseconds.",
    )
    max_message_bytes: int = setting(
        Type.INT,
        1_048_588,
        minimum=0,
        synonyms=("message.max.bytes",),
        update=Update.CLUSTER_WIDE,
        doc="The largest batch that is accepted, in bytes, after compression.",
    )
    message_timestamp_after_max_ms: int = setting(
        Type.LONG,
        3_600_000,
        minimum=0,
        synonyms=("log.message.timestamp.after.max.ms",),
        update=Update.CLUSTER_WIDE,
        doc="How far ahead of the broker's clock a record's timestamp may be, in milliseconds.",
    )
    message_timestamp_before_max_ms: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=0,
        synonyms=("log.message.timestamp.before.max.ms",),
        update=Update.CLUSTER_WIDE,
        doc="How far behind the broker's clock a record's timestamp may be, in milliseconds.",
    )
    message_timestamp_type: str = setting(
        Type.STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
        update=Update.CLUSTER_WIDE,
        doc="Whose time a record has: the producer's (CreateTime) or the broker's (LogAppendTime).",
    )
    min_cleanable_dirty_ratio: float = setting(
        Type.DOUBLE,
        0.5,
        minimum=0,
        maximum=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
        update=Update.CLUSTER_WIDE,
        doc="How much of a log must be dirty, not yet compacted, before it is compacted.",
    )
    min_compaction_lag_ms: int = setting(
        Type.LONG,
        0,
        minimum=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
        update=Update.CLUSTER_WIDE,
        doc="How long a record is safe from compaction, in milliseconds.",
    )
    min_insync_replicas: int = setting(
        Type.INT,
        1,
        minimum=1,
        synonyms=("min.insync.replicas",),
        update=Update.CLUSTER_WIDE,
        doc="How many replicas must be in sync for a write with acks=all to be taken.",
    )
    unclean_leader_election_enable: bool = setting(
        Type.BOOLEAN,
        False,
        synonyms=("unclean.leader.election.enable",),
        update=Update.CLUSTER_WIDE,
        doc="Whether a replica that may lack acknowledged records may lead when no other can: they are lost.",
    )
    retention_bytes: int = setting(
        Type.LONG,
        -1,
        synonyms=("log.retention.bytes",),
        update=Update.CLUSTER_WIDE,
        doc="How large a partition may grow before its oldest segments go, in bytes; -1 for no bound.",
    )
    retention_ms: int = setting(
        Type.LONG,
        604_800_000,
        minimum=-1,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        update=Update.CLUSTER_WIDE,
        doc="How long records are kept, in milliseconds; -1 for ever.",
    )
    segment_bytes: int = setting(
        Type.INT,
        1_073_741_824,
        minimum=14,
        maximum=INT_MAX,
        synonyms=("log.segment.bytes",),
        update=Update.CLUSTER_WIDE,
        doc="The size at which a segment is closed and a new one begun, in bytes.",
    )
    segment_index_bytes: int = setting(
        Type.INT,
        10_485_760,
        minimum=4,
        synonyms=("log.index.size.max.bytes",),
        update=Update.CLUSTER_WIDE,
        doc="How large a segment's index may grow before the segment is rolled, in bytes.",
    )
    segment_jitter_ms: int = setting(
        Type.LONG,
        0,
        minimum=0,
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        update=Update.CLUSTER_WIDE,
        doc="A random time, at most this long, by which a segment is rolled earlier, in milliseconds.",
    )
    segment_ms: int = setting(
        Type.LONG,
        604_800_000,
        minimum=1,
        synonyms=("log.roll.ms", "log.roll.hours"),
        update=Update.CLUSTER_WIDE,
        doc="The age at which a segment is closed even when it is not full, in milliseconds.",
    )

    @cached_property
    def is_compacted(self) -> bool:
        """Worked out once, since every append asks."""
        return "compact" in self.cleanup_policy
