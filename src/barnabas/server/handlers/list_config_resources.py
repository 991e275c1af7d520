"""ListConfigResources v0-1: topics, brokers, and the groups that have settings of their own (KIP-1142).

Every topic and broker has settings, a group only those that it was given. Client metrics, which are all that
v0 lists, and broker loggers have no settings here, so none are listed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from barnabas.controller.configs import ResourceType
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.server.handlers import handles
from barnabas.server.requests.context import RequestContext

if TYPE_CHECKING:
    from barnabas.server.broker import Broker

#: from this version a request says which types it is about
_TYPES_FROM = 1


@handles(ListConfigResourcesRequest, listing="config_resources")
def list_config_resources(
    broker: Broker, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse | Awaitable[ListConfigResourcesResponse]:
    types = (
        set(request.resource_types) if context.api_version >= _TYPES_FROM else {ResourceType.CLIENT_METRICS}
    )
    unknown = types.difference(ResourceType)
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no resource type {min(unknown)}")
    return broker.long_work.listed(
        context,
        [
            (kind, name)
            for kind in ResourceType
            if not types or kind in types
            for name in _names(broker, kind)
        ],
        lambda item: ConfigResource(resource_name=item[1], resource_type=item[0]),
        lambda resources: ListConfigResourcesResponse(config_resources=resources),
    )


def _names(broker: Broker, kind: ResourceType) -> Iterable[str]:
    image = broker.image
    if kind is ResourceType.TOPIC:
        return sorted(image.topics)
    if kind is ResourceType.BROKER:
        return map(str, image.brokers)
    if kind is ResourceType.GROUP:
        return sorted(image.group_configs)
    return ()
