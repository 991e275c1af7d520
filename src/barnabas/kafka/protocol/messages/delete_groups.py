"""DeleteGroups (key 42): delete empty groups and their offsets (KIP-229)."""

from barnabas.kafka.protocol.schema import Int16, Int32, Request, Response, String, Struct


class DeleteGroupsRequest(Request, key=42, versions=(0, 2), flexible=2):
    groups_names: list[String] = []


class DeletableGroupResult(Struct):
    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Response, to=DeleteGroupsRequest):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []
