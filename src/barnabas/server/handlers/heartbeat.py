"""Heartbeat v0-4: keep a member of a classic group alive, and tell it to rejoin during a rebalance. Static
members (KIP-345)."""

from __future__ import annotations

from barnabas.coordinator import GroupCoordinator
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.security.acls import Operation
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.needs import Group


def _failed(_request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # As Apache Kafka: nobody's session runs while the group is read, and nothing has to change.
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error.code)


@handles(HeartbeatRequest, needs=[Group(Operation.READ)], on_error=_failed)
def heartbeat(
    groups: GroupCoordinator, _context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse:
    return groups.heartbeat(request)
