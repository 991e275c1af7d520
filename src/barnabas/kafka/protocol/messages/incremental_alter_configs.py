"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from single settings (KIP-339)."""

from barnabas.kafka.protocol.schema import Bool, Int8, Int16, Int32, Request, Response, String, Struct


class AlterableConfig(Struct):
    name: String = ""
    # 0 set, 1 delete, 2 append, 3 subtract; the last two for lists.
    config_operation: Int8 = 0
    value: String | None = ""


class AlterConfigsResource(Struct):
    # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(Request, key=44, versions=(0, 1), flexible=1):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Response, to=IncrementalAlterConfigsRequest):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
