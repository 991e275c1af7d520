"""DeleteAcls (key 31): delete the rules that filters select (KIP-140, KIP-290)."""

from barnabas.kafka.protocol.schema import Int8, Int16, Int32, Request, Response, String, Struct


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = 0
    # Null for every name.
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


# v3 differs from v2 by the resource type USER alone.
class DeleteAclsRequest(Request, key=31, versions=(1, 3), flexible=2):
    filters: list[DeleteAclsFilter] = []


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsResponse(Response, to=DeleteAclsRequest):
    throttle_time_ms: Int32 = 0
    # In the order of the request.
    filter_results: list[DeleteAclsFilterResult] = []
