"""Fetch (key 1): read record batches, as a consumer or as a follower.

- v4: transactions (KIP-98).
- v5: the log start offset (KIP-107).
- v7: fetch sessions (KIP-227).
- v9: leader epochs (KIP-320).
- v10: zstd (KIP-110).
- v11: fetching from followers (KIP-392).
- v12: truncation on fetch (KIP-595).
- v13: topic ids (KIP-516).
- v15: the replica's state (KIP-903).
- v16: the endpoints of new leaders (KIP-951).
- v17: log directory ids (KIP-853).
- v18: the follower's high watermark (KIP-1166).
"""

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    RecordChunks,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
    tagged,
    until,
)


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = since(9, default=-1)
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = since(12, default=-1)
    # The log start offset of the follower; consumers send -1.
    log_start_offset: Int64 = since(5, default=-1)
    partition_max_bytes: Int32 = 0
    replica_directory_id: Uuid = tagged(0, since=17, default=ZERO_UUID)
    # The follower's high watermark; -1: unknown; the default: the follower cannot send it (KIP-1166).
    high_watermark: Int64 = tagged(1, since=18, default=2**63 - 1)


class FetchTopic(Struct):
    topic: String = until(12, default="")
    topic_id: Uuid = since(13, default=ZERO_UUID)
    partitions: list[FetchPartition] = []


class ForgottenTopic(Struct):
    topic: String = until(12, default="")
    topic_id: Uuid = since(13, default=ZERO_UUID)
    partitions: list[Int32] = []


class FetchRequest(Request, key=1, versions=(4, 18), flexible=12):
    cluster_id: String | None = tagged(0, since=12, default=None)
    # -1: a consumer. A follower sends its broker id here, and since v15 in replica_state.
    replica_id: Int32 = until(14, default=-1)
    replica_state: ReplicaState = tagged(1, since=15, default=ReplicaState())
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    # 0 read_uncommitted, 1 read_committed.
    isolation_level: Int8 = 0
    # 0 with epoch -1: no session; 0 with epoch 0: open one.
    session_id: Int32 = since(7, default=0)
    session_epoch: Int32 = since(7, default=-1)
    topics: list[FetchTopic] = []
    # Partitions to remove from the session.
    forgotten_topics_data: list[ForgottenTopic] = since(7, default=[])
    rack_id: String = since(11, default="")


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1)
    # Truncate to this epoch and offset: after it, the logs of follower and leader differ.
    diverging_epoch: EpochEndOffset = tagged(0, since=12, default=EpochEndOffset())
    # With NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH, if the broker knows the leader.
    current_leader: LeaderIdAndEpoch = tagged(1, since=12, default=LeaderIdAndEpoch())
    # Only for the metadata log (KRaft).
    snapshot_id: SnapshotId = tagged(2, since=12, default=SnapshotId())
    # Null for read_uncommitted; else by first offset.
    aborted_transactions: list[AbortedTransaction] | None = []
    # Fetch from this broker instead; -1: stay.
    preferred_read_replica: Int32 = since(11, default=-1)
    records: RecordChunks | None = None


class FetchableTopicResponse(Struct):
    topic: String = until(12, default="")
    topic_id: Uuid = since(13, default=ZERO_UUID)
    partitions: list[PartitionData] = []


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class FetchResponse(Response, to=FetchRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(7, default=0)
    session_id: Int32 = since(7, default=0)
    responses: list[FetchableTopicResponse] = []
    # The addresses of the brokers in current_leader.
    node_endpoints: list[NodeEndpoint] = tagged(0, since=16, default=[])
