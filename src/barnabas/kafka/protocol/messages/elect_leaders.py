"""ElectLeaders (key 43): elect leaders now, the preferred ones (KIP-183) or unclean ones (KIP-460)."""

from barnabas.kafka.protocol.schema import Int8, Int16, Int32, Request, Response, String, Struct, since


class TopicPartitions(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(Request, key=43, versions=(0, 2), flexible=2):
    # 0: the preferred leader; 1: if there is no leader, any replica that is alive.
    election_type: Int8 = since(1, default=0)
    # Null: all partitions.
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class PartitionResult(Struct):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReplicaElectionResult(Struct):
    topic: String = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(Response, to=ElectLeadersRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(1, default=0)
    replica_election_results: list[ReplicaElectionResult] = []
