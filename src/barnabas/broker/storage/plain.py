"""The limits within which `PartitionLog.append_plain` appends a batch.

Nearly every batch is plain: it is valid, and the active segment has room. It needs no change but its offset
and, with LogAppendTime, its time. `PartitionLog.append_as_leader` decides about the others
(docs/adr/0019-plain-batches-take-one-short-path.md).
"""

from __future__ import annotations

from barnabas.broker.config import TopicConfig
from barnabas.broker.storage.index import TimeIndex

#: the larger of the two indexes' entries: its file is full first
TIME_ENTRY_SIZE = TimeIndex.ENTRY.size
#: the most records of a plain batch: no sequence number can repeat within the producer's remembered batches
MOST_PLAIN_RECORDS = 2**24
_EVER = 2**63


class PlainLimits:
    """The limits by a topic's settings, computed once for each value of them.

    Args:
        config: the settings.
        has_keys: whether all records have keys, which a compacted topic demands: a coordinator's have.
    """

    __slots__ = (
        "after_ms",
        "before_ms",
        "config",
        "has_keys",
        "index_bytes",
        "index_interval",
        "is_log_append_time",
        "most_bytes",
        "segment_bytes",
        "segment_ms",
    )

    def __init__(self, config: TopicConfig, has_keys: bool) -> None:
        self.config = config
        self.has_keys = has_keys
        self.most_bytes = min(config.max_message_bytes, config.segment_bytes)
        if (config.is_compacted and not has_keys) or config.compression_type != "producer":
            self.most_bytes = 0  # records have to be decoded: no batch is plain
        self.is_log_append_time = config.message_timestamp_type == "LogAppendTime"
        #: how far a record's timestamp may lie before and after the broker's time
        self.before_ms = _EVER if self.is_log_append_time else config.message_timestamp_before_max_ms
        self.after_ms = _EVER if self.is_log_append_time else config.message_timestamp_after_max_ms
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.segment_ms
        if config.is_compacted:
            self.segment_ms = min(config.segment_ms, config.max_compaction_lag_ms)
        #: how large the time index may be before an append
        self.index_bytes = config.segment_index_bytes - TIME_ENTRY_SIZE
        self.index_interval = config.index_interval_bytes
