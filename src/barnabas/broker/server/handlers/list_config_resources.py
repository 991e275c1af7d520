"""ListConfigResources v0-1: lists topics, brokers, groups and client-metrics resources (KIP-1142).

The response has all topics and brokers, but only groups with settings of their own. v0 lists only
client-metrics resources (KIP-714). Broker loggers have no settings, so the response has none.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.controller.configs import ResourceType
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.kafka.security.acls import Operation

#: the first version whose requests have resource types
_TYPES_FROM = 1


@handles(
    ListConfigResourcesRequest,
    needs=[Cluster(Operation.DESCRIBE_CONFIGS)],
    listing="config_resources",
    unconfirmed="it tells what the image shows",
)
def list_config_resources(
    view: BrokerView, long_work: LongWork, context: RequestContext, request: ListConfigResourcesRequest
) -> MaybeAwaitable[ListConfigResourcesResponse]:
    image = view.image
    types = (
        set(request.resource_types) if context.api_version >= _TYPES_FROM else {ResourceType.CLIENT_METRICS}
    )
    unknown = types.difference(ResourceType)
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no resource type {min(unknown)}")
    return long_work.listed(
        [(kind, name) for kind in ResourceType if not types or kind in types for name in _names(image, kind)],
        lambda item: ConfigResource(resource_name=item[1], resource_type=item[0]),
        lambda resources: ListConfigResourcesResponse(config_resources=resources),
    )


def _names(image: ClusterImage, kind: ResourceType) -> Iterable[str]:
    if kind is ResourceType.TOPIC:
        return sorted(image.topics)
    if kind is ResourceType.BROKER:
        return map(str, image.brokers)
    if kind is ResourceType.GROUP:
        return sorted(image.group_configs)
    if kind is ResourceType.CLIENT_METRICS:
        return sorted(image.client_metrics)
    return ()
