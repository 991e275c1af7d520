"""ReadShareGroupStateSummary v0-1: returns the state of a share group without its batches (KIP-932).

The group coordinator sends the request to describe the offsets of a group. From v1 on the response has the
number of finished records (KIP-1226). A missing state has the start offset -1.
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
from barnabas.kafka.protocol.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)


@handles(
    ReadShareGroupStateSummaryRequest,
    needs=[BETWEEN_BROKERS],
    pieces=[Pieces("topics.partitions", "results.partitions", size=128)],
    order=BetweenBrokers(),
    confirmed_by=share_coordinator(),
    feature=SHARE_VERSION,
)
def read_share_group_state_summary(
    shares: ShareCoordinator, context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> MaybeAwaitable[ReadShareGroupStateSummaryResponse]:
    results = each_partition(
        request, ReadStateSummaryResult, PartitionResult, lambda key, _wanted: shares.summary(key), _fields
    )
    return then(results, lambda results: ReadShareGroupStateSummaryResponse(results=results))


def _fields(state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.delivery_complete_count,
        "initialized_at": state.initialized_at,
    }
