"""InitializeShareGroupState v0: creates the state of a share group in partitions (KIP-932).

The group coordinator sends the request to the share coordinator. It replaces an existing state, unless the
existing state has a higher state epoch, or a later request of a group coordinator has initialized it.
"""

from __future__ import annotations

from barnabas.broker.awaitables import MaybeAwaitable, then
from barnabas.broker.coordinator import CoordinatorPosition, ShareCoordinator
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import share_coordinator
from barnabas.broker.server.requests.needs import BETWEEN_BROKERS
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.share_state import each_partition
from barnabas.kafka.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)


@handles(
    InitializeShareGroupStateRequest,
    needs=[BETWEEN_BROKERS],
    pieces=[Pieces("topics.partitions", "results.partitions", size=128)],
    order=BetweenBrokers(),
    confirmed_by=share_coordinator(),
    feature=SHARE_VERSION,
)
def initialize_share_group_state(
    shares: ShareCoordinator, context: RequestContext, request: InitializeShareGroupStateRequest
) -> MaybeAwaitable[InitializeShareGroupStateResponse]:
    results = each_partition(
        request,
        InitializeStateResult,
        PartitionResult,
        lambda key, wanted: shares.initialize(
            key,
            wanted.state_epoch,
            wanted.start_offset,
            CoordinatorPosition(wanted.coordinator_epoch, wanted.coordinator_log_end),
            wanted.replaced,
        ),
    )
    return then(results, lambda results: InitializeShareGroupStateResponse(results=results))
