"""ConsumerGroupHeartbeat v0-1: join, stay in and leave a group of the consumer protocol (KIP-848).

Subscriptions by regular expression and member ids that clients make from v1 on (KIP-1082).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from barnabas.coordinator import Caller
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.server.handlers import handles
from barnabas.server.requests.context import RequestContext

if TYPE_CHECKING:
    from barnabas.server.broker import Broker


@handles(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(
    broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    caller = Caller(context.api_version, context.client_id or "", context.client_host)
    return broker.groups.consumer_heartbeat(request, caller)
