"""AlterConfigs (key 33): replace all dynamic settings of a topic or broker (KIP-133).

Superseded by IncrementalAlterConfigs, which keeps the settings that a request does not name.
"""

from barnabas.kafka.protocol.schema import Bool, Int8, Int16, Int32, Request, Response, String, Struct


class AlterableConfig(Struct):
    name: String = ""
    value: String | None = ""


class AlterConfigsResource(Struct):
    # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class AlterConfigsRequest(Request, key=33, versions=(0, 2), flexible=2):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Response, to=AlterConfigsRequest):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
