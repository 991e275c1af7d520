"""ListConfigResources (key 74): list the resources of a type that have settings (KIP-1142).

v0 was ListClientMetricsResources (KIP-714), for client metrics only; v1 adds the other types.
"""

from barnabas.kafka.protocol.schema import Int8, Int16, Int32, Request, Response, String, Struct, since


class ListConfigResourcesRequest(Request, key=74, versions=(0, 1), flexible=0):
    # Empty means all.
    resource_types: list[Int8] = since(1, default=[])


class ConfigResource(Struct):
    resource_name: String = ""
    resource_type: Int8 = since(1, default=16)


class ListConfigResourcesResponse(Response, to=ListConfigResourcesRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []
