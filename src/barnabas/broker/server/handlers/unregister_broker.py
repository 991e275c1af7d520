"""UnregisterBroker v0: always refused, since a registration ends with the broker's session by itself."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Cluster
from barnabas.kafka.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from barnabas.kafka.security.acls import Operation


@handles(UnregisterBrokerRequest, needs=[Cluster(Operation.ALTER)])
def unregister_broker(
    image: Callable[[], ClusterImage], context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    if request.broker_id not in image().brokers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
    raise KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"broker {request.broker_id} is alive: its registration ends when it is stopped",
    )
