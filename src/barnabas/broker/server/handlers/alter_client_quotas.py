"""AlterClientQuotas v0-1: sets and removes quotas of users, client ids and addresses (KIP-546, KIP-612)."""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.controller.quotas import QuotaChange, QuotaControl
from barnabas.broker.quotas import DEFAULT, QuotaEntity
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.mutations import limit_changes
from barnabas.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityResult,
    EntryData,
    EntryResult,
)
from barnabas.kafka.security.acls import Operation

_FIELDS = {"user": "user", "client-id": "client_id", "ip": "ip"}


def _failed(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_result(entry, error) for entry in request.entries])


@handles(
    AlterClientQuotasRequest,
    needs=[Cluster(Operation.ALTER_CONFIGS)],
    on_error=_failed,
    pieces=[Pieces("entries", size=64, check=limit_changes("entries", "ops"))],
    is_heavy=True,
    is_forwarded=True,
    is_audited=True,
)
async def alter_client_quotas(
    quotas: QuotaControl, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    changes: dict[QuotaEntity, list[QuotaChange]] = {}
    entities: list[QuotaEntity | KafkaError] = []
    for entry in request.entries:
        try:
            entity = _entity(entry)
        except KafkaError as error:
            entities.append(error)
            continue
        entities.append(entity)
        changes.setdefault(entity, []).extend(
            QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops
        )
    errors = await quotas.alter(changes, validate_only=request.validate_only)
    return AlterClientQuotasResponse(
        entries=[
            _result(entry, entity if isinstance(entity, KafkaError) else errors.get(entity))
            for entry, entity in zip(request.entries, entities, strict=True)
        ]
    )


def _entity(entry: EntryData) -> QuotaEntity:
    names = {}
    for part in entry.entity:
        field = _FIELDS.get(part.entity_type)
        if field is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no quotas of a '{part.entity_type}'")
        if field in names:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a quota names its {part.entity_type} twice")
        names[field] = DEFAULT if part.entity_name is None else part.entity_name
    return QuotaEntity(**names)


def _result(entry: EntryData, error: KafkaError | None) -> EntryResult:
    entity = [EntityResult(entity_type=p.entity_type, entity_name=p.entity_name) for p in entry.entity]
    if error is None:
        return EntryResult(entity=entity)
    return EntryResult(error_code=error.code, error_message=error.message, entity=entity)
