"""DescribeClientQuotas (key 48): list the quotas of users, client ids and addresses (KIP-546)."""

from barnabas.kafka.protocol.schema import (
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
)


class ComponentData(Struct):
    entity_type: String = ""
    # 0: the entity with this name; 1: the default; 2: any.
    match_type: Int8 = 0
    match: String | None = ""


class DescribeClientQuotasRequest(Request, key=48, versions=(0, 1), flexible=1):
    components: list[ComponentData] = []
    # Only quotas of entities with exactly these components.
    strict: Bool = False


class EntityData(Struct):
    entity_type: String = ""
    # Null for the default.
    entity_name: String | None = ""


class ValueData(Struct):
    key: String = ""
    value: Float64 = 0.0


class EntryData(Struct):
    entity: list[EntityData] = []
    values: list[ValueData] = []


class DescribeClientQuotasResponse(Response, to=DescribeClientQuotasRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    entries: list[EntryData] | None = []
