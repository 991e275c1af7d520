"""UnregisterBroker v0: the controller removes from the metadata a broker that will not return (KIP-631)."""

from __future__ import annotations

from barnabas.broker.controller.unregistration import UnregistrationControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Cluster
from barnabas.kafka.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from barnabas.kafka.security.acls import Operation


@handles(UnregisterBrokerRequest, needs=[Cluster(Operation.ALTER)], is_forwarded=True, is_audited=True)
async def unregister_broker(
    unregistration: UnregistrationControl, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    await unregistration.unregister(request.broker_id)
    return UnregisterBrokerResponse()
