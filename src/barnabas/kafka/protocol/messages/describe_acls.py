"""DescribeAcls (key 29): list the rules that a filter selects (KIP-140, KIP-290)."""

from barnabas.kafka.protocol.schema import Int8, Int16, Int32, Request, Response, String, Struct


# v3 differs from v2 by the resource type USER alone. kafka-go encodes the filter as a nested struct. So its
# request ends with one more byte, the empty tagged fields of that struct, which `slack` allows.
class DescribeAclsRequest(Request, key=29, versions=(1, 3), flexible=2, slack=1):
    resource_type_filter: Int8 = 0
    # Null for every name.
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Struct):
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class DescribeAclsResponse(Response, to=DescribeAclsRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    resources: list[DescribeAclsResource] = []
