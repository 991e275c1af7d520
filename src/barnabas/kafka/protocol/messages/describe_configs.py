"""DescribeConfigs (key 32): return the settings of topics and brokers (KIP-133).

v1 gives each value's source and synonyms (KIP-226), v3 type and documentation (KIP-569).
"""

from barnabas.kafka.protocol.schema import Bool, Int8, Int16, Int32, Request, Response, String, Struct, since


class DescribeConfigsResource(Struct):
    # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    resource_type: Int8 = 0
    resource_name: String = ""
    # Null asks for all.
    configuration_keys: list[String] | None = []


class DescribeConfigsRequest(Request, key=32, versions=(1, 4), flexible=4):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: Bool = False
    include_documentation: Bool = since(3, default=False)


class DescribeConfigsSynonym(Struct):
    name: String = ""
    value: String | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    # 1 topic, 2 dynamic broker, 3 dynamic default broker, 4 static broker, 5 default, 6 broker logger, ...
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    # 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    config_type: Int8 = since(3, default=0)
    documentation: String | None = since(3, default="")


class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(Response, to=DescribeConfigsRequest):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []
