"""ShareGroupHeartbeat v1: lets a client join, stay in and leave a share group (KIP-932).

The client generates its member id. A member gets a partition only after the share coordinator has created the
group's state for this partition. Until then, the response asks a member without partitions to send its next
heartbeat soon.
"""

from __future__ import annotations

from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.coordinator import Caller, GroupCoordinator
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group, checked_by_handler, refusal
from barnabas.broker.server.requests.new_names import NewGroups
from barnabas.kafka.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.kafka.security.acls import Operation, ResourceType


@handles(
    ShareGroupHeartbeatRequest,
    needs=[Group(Operation.READ), checked_by_handler("topic DESCRIBE of the subscribed topics")],
    confirmed_by=group_coordinator(),
    new_names=NewGroups,
    feature=SHARE_VERSION,
)
def share_group_heartbeat(
    groups: GroupCoordinator, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> MaybeAwaitable[ShareGroupHeartbeatResponse]:
    access = context.access
    if not access.is_unrestricted and not all(
        access.on_topic(Operation.DESCRIBE, topic) for topic in request.subscribed_topic_names or ()
    ):
        raise refusal(ResourceType.TOPIC)
    caller = Caller(context.api_version, context.client_id or "", context.client_host)
    return groups.share_heartbeat(request, caller)
