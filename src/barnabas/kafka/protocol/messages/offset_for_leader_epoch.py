"""OffsetForLeaderEpoch (key 23): return the end offset of a leader epoch, for truncation (KIP-101, KIP-279).

v2 adds the current leader epoch (KIP-320), v3 the replica id, so that consumers can also send it (KIP-392).
"""

from barnabas.kafka.protocol.schema import Int16, Int32, Int64, Request, Response, String, Struct, since


class OffsetForLeaderPartition(Struct):
    partition: Int32 = 0
    # The broker rejects the request if this is not the leader's epoch; -1: no check.
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    topic: String = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(Request, key=23, versions=(2, 4), flexible=4):
    # -1 consumer, -2 debugging; before v3 only followers asked.
    replica_id: Int32 = since(3, default=-2)
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Struct):
    error_code: Int16 = 0
    partition: Int32 = 0
    # The epoch of end_offset: the requested epoch, or the largest one below it.
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: String = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(Response, to=OffsetForLeaderEpochRequest):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []
