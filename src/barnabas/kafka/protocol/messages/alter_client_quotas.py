"""AlterClientQuotas (key 49): change quotas of users, client ids and addresses (KIP-546)."""

from barnabas.kafka.protocol.schema import Bool, Float64, Int16, Int32, Request, Response, String, Struct


class EntityData(Struct):
    entity_type: String = ""
    # Null: the default entity.
    entity_name: String | None = ""


class OpData(Struct):
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class EntryData(Struct):
    entity: list[EntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequest(Request, key=49, versions=(0, 1), flexible=1):
    entries: list[EntryData] = []
    validate_only: Bool = False


class EntityResult(Struct):
    entity_type: String = ""
    entity_name: String | None = ""


class EntryResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    entity: list[EntityResult] = []


class AlterClientQuotasResponse(Response, to=AlterClientQuotasRequest):
    throttle_time_ms: Int32 = 0
    entries: list[EntryResult] = []
