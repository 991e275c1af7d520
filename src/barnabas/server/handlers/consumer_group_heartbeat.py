"""ConsumerGroupHeartbeat v0-1: join, stay in and leave a group of the consumer protocol (KIP-848).

Subscriptions by regular expression and member ids that clients make from v1 on (KIP-1082).
"""

from __future__ import annotations

from barnabas.answers import Answer
from barnabas.coordinator import Caller, GroupCoordinator
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext


@handles(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(
    groups: GroupCoordinator, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Answer[ConsumerGroupHeartbeatResponse]:
    caller = Caller(context.api_version, context.client_id or "", context.client_host)
    return groups.consumer_heartbeat(request, caller)
