"""AlterReplicaLogDirs (key 34): move replicas to other log directories of their broker (KIP-113)."""

from barnabas.kafka.protocol.schema import Int16, Int32, Request, Response, String, Struct


class AlterReplicaLogDirTopic(Struct):
    name: String = ""
    partitions: list[Int32] = []


class AlterReplicaLogDir(Struct):
    # The absolute path of the log directory.
    path: String = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirsRequest(Request, key=34, versions=(1, 2), flexible=2):
    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirsResponse(Response, to=AlterReplicaLogDirsRequest):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []
