"""Whether a client can reach a partition's leader."""

from __future__ import annotations

from barnabas.errors import ErrorCode
from barnabas.metadata.image import ClusterImage, PartitionState


def leader_error(image: ClusterImage, state: PartitionState, listener: str) -> ErrorCode:
    """What a client that came by `listener` is told of the partition: NONE, LEADER_NOT_AVAILABLE, or
    LISTENER_NOT_FOUND when the leader has no such listener."""
    leader = image.brokers.get(state.leader)
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if leader.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.NONE
