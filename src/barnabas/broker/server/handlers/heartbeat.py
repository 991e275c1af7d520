"""Heartbeat v0-4: keeps a member of a classic group alive, and tells it to rejoin during a rebalance.

Static members are supported (KIP-345).
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.security.acls import Operation


def _failed(_request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # As in Apache Kafka: while the broker loads the group, no session can time out.
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error.code)


@handles(HeartbeatRequest, needs=[Group(Operation.READ)], on_error=_failed, confirmed_by=group_coordinator())
def heartbeat(
    groups: GroupCoordinator, _context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse:
    return groups.heartbeat(request)
