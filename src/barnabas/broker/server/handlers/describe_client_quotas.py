"""DescribeClientQuotas v0-1: returns the quotas of users, client ids and addresses (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.quotas import DEFAULT, Default, QuotaEntity, limits_of
from barnabas.broker.quotas.entities import Name
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from barnabas.kafka.security.acls import Operation

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_TYPES = ("user", "client-id", "ip")


def _failed(request: DescribeClientQuotasRequest, error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)


@handles(
    DescribeClientQuotasRequest,
    needs=[Cluster(Operation.DESCRIBE_CONFIGS)],
    on_error=_failed,
    listing="entries",
    unconfirmed="it tells what the image shows",
)
async def describe_client_quotas(
    view: BrokerView, long_work: LongWork, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    filters = _filters(request.components)
    quotas = view.image.client_quotas
    entries = await long_work.run(_entries, quotas, filters, request.strict)
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _entries(
    quotas: Mapping[QuotaEntity, Mapping[str, str]], filters: dict[str, ComponentData], strict: bool
) -> list[EntryData]:
    return [
        EntryData(
            entity=[
                EntityData(entity_type=kind, entity_name=None if isinstance(name, Default) else name)
                for kind, name in zip(_TYPES, entity, strict=True)
                if name is not None
            ],
            values=[ValueData(key=kind.value, value=limit) for kind, limit in limits.items()],
        )
        for entity in sorted(quotas, key=_order)
        if entity_matches(entity, filters, strict=strict) and (limits := limits_of(quotas[entity]))
    ]


def entity_matches(entity: QuotaEntity, filters: dict[str, ComponentData], *, strict: bool) -> bool:
    """Whether a quota entity matches all `filters`.

    The keys of `filters` are the types of the components: user, client id and address. If `strict`, an entity
    with a component of a type without a filter does not match.
    """
    for kind, name in zip(_TYPES, entity, strict=True):
        asked = filters.get(kind)
        if asked is None:
            if strict and name is not None:
                return False
        elif not _name_matches(name, asked):
            return False
    return True


def _name_matches(name: Name, asked: ComponentData) -> bool:
    if asked.match_type == _ANY:
        return name is not None
    return name == (DEFAULT if asked.match_type == _DEFAULT else asked.match)


def _filters(components: list[ComponentData]) -> dict[str, ComponentData]:
    filters: dict[str, ComponentData] = {}
    for component in components:
        kind = component.entity_type
        if kind in filters:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind} is asked for twice")
        if kind not in _TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there are no quotas of a '{kind}'")
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"there is no way {component.match_type} to match a {kind}"
            )
        if (component.match is None) is (component.match_type == _EXACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a {kind} is matched by a name, or is not named")
        filters[kind] = component
    if "ip" in filters and len(filters) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a quota of an address is of no user or client id")
    return filters


def _order(entity: QuotaEntity) -> tuple[tuple[int, str], ...]:
    """Return the sort key of a quota entity: by user, then client id, then address.

    In each of the three, entities without a value come first, then the default, then names.
    """
    return tuple(
        (0, "") if name is None else (1, "") if isinstance(name, Default) else (2, name) for name in entity
    )
