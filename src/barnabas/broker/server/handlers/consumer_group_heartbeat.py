"""ConsumerGroupHeartbeat v0-1: lets a client join, stay in and leave a consumer group (KIP-848).

Subscriptions by regular expression are supported. From v1 on the client generates its member id (KIP-1082).
"""

from __future__ import annotations

from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.coordinator import Caller, GroupCoordinator
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group, checked_by_handler, refusal
from barnabas.broker.server.requests.new_names import NewGroups
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.kafka.security.acls import Operation, ResourceType


@handles(
    ConsumerGroupHeartbeatRequest,
    needs=[
        Group(Operation.READ),
        checked_by_handler(
            "topic DESCRIBE of the subscribed topics; a regular expression matches only such topics"
        ),
    ],
    confirmed_by=group_coordinator(),
    new_names=NewGroups,
)
def consumer_group_heartbeat(
    groups: GroupCoordinator, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> MaybeAwaitable[ConsumerGroupHeartbeatResponse]:
    def may_see(topic: str) -> bool:
        return access.on_topic(Operation.DESCRIBE, topic)

    access = context.access
    if not access.is_unrestricted and not all(map(may_see, request.subscribed_topic_names or ())):
        raise refusal(ResourceType.TOPIC)
    caller = Caller(context.api_version, context.client_id or "", context.client_host, may_see)
    return groups.consumer_heartbeat(request, caller)
