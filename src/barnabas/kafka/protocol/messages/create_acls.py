"""CreateAcls (key 30): add access control rules (KIP-140, KIP-290)."""

from barnabas.kafka.protocol.schema import Int8, Int16, Int32, Request, Response, String, Struct


class AclCreation(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


# v3 differs from v2 by the resource type USER alone.
class CreateAclsRequest(Request, key=30, versions=(1, 3), flexible=2):
    creations: list[AclCreation] = []


class AclCreationResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""


class CreateAclsResponse(Response, to=CreateAclsRequest):
    throttle_time_ms: Int32 = 0
    # In the order of the request.
    results: list[AclCreationResult] = []
