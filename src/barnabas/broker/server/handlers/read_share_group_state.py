"""ReadShareGroupState v0: returns the state of a share group in partitions (KIP-932).

The leader of a partition sends the request to the share coordinator. The coordinator stores a new leader
epoch before it answers. So it fences earlier leaders, even after a failover of the coordinator.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.awaitables import MaybeAwaitable, then
from barnabas.broker.coordinator import ShareCoordinator, ShareState
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import share_coordinator
from barnabas.broker.server.requests.needs import BETWEEN_BROKERS
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.share_state import each_partition
from barnabas.kafka.protocol.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


@handles(
    ReadShareGroupStateRequest,
    needs=[BETWEEN_BROKERS],
    pieces=[Pieces("topics.partitions", "results.partitions", size=16, unique=True)],
    listing="results.partitions.state_batches",
    order=BetweenBrokers(),
    confirmed_by=share_coordinator(),
    feature=SHARE_VERSION,
)
def read_share_group_state(
    shares: ShareCoordinator, context: RequestContext, request: ReadShareGroupStateRequest
) -> MaybeAwaitable[ReadShareGroupStateResponse]:
    results = each_partition(
        request,
        ReadStateResult,
        PartitionResult,
        lambda key, wanted: shares.read_state(key, wanted.leader_epoch),
        _fields,
    )
    return then(results, lambda results: ReadShareGroupStateResponse(results=results))


def _fields(state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "initialized_at": state.initialized_at,
        "state_batches": [
            StateBatch(first_offset=first, last_offset=last, delivery_state=delivery, delivery_count=count)
            for first, last, delivery, count in state.batches
        ],
    }
