"""DescribeLogDirs (key 35): list log directories and the partitions in them (KIP-113).

v3 added a top-level error, v4 the size of the volume (KIP-827).
"""

from barnabas.kafka.protocol.schema import Bool, Int16, Int32, Int64, Request, Response, String, Struct, since


class DescribableLogDirTopic(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(Request, key=35, versions=(1, 4), flexible=2):
    # Null asks for every partition.
    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    # The lag behind the high watermark; for a future replica, behind the current replica.
    offset_lag: Int64 = 0
    # Whether this is a copy that will replace the replica in another log directory.
    is_future_key: Bool = False


class DescribeLogDirsTopic(Struct):
    name: String = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Int64 = since(4, default=-1)
    usable_bytes: Int64 = since(4, default=-1)


class DescribeLogDirsResponse(Response, to=DescribeLogDirsRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(3, default=0)
    results: list[DescribeLogDirsResult] = []
