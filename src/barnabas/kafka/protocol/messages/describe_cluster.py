"""DescribeCluster (key 60): return the brokers, the controller and the cluster id (KIP-700).

v1 can also be sent to a controller (KIP-919). v2 can include fenced brokers (KIP-1073).
"""

from barnabas.kafka.protocol.schema import Bool, Int8, Int16, Int32, Request, Response, String, Struct, since


class DescribeClusterRequest(Request, key=60, versions=(0, 2), flexible=0):
    include_cluster_authorized_operations: Bool = False
    # 1 brokers, 2 controllers.
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: Bool = since(2, default=False)


class DescribeClusterBroker(Struct):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Bool = since(2, default=False)


class DescribeClusterResponse(Response, to=DescribeClusterRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -(2**31)
