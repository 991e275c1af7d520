"""DeleteShareGroupState v0: deletes the state of a share group in partitions (KIP-932).

The group coordinator sends the request to the share coordinator. A missing state is no error.
A former group coordinator cannot delete a state that its successor has initialized. A late request cannot
delete a state that the same coordinator has initialized since.
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
from barnabas.kafka.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)


@handles(
    DeleteShareGroupStateRequest,
    needs=[BETWEEN_BROKERS],
    pieces=[Pieces("topics.partitions", "results.partitions", size=128)],
    order=BetweenBrokers(),
    confirmed_by=share_coordinator(),
    feature=SHARE_VERSION,
)
def delete_share_group_state(
    shares: ShareCoordinator, context: RequestContext, request: DeleteShareGroupStateRequest
) -> MaybeAwaitable[DeleteShareGroupStateResponse]:
    results = each_partition(
        request,
        DeleteStateResult,
        PartitionResult,
        lambda key, wanted: shares.delete(
            key, CoordinatorPosition(wanted.coordinator_epoch, wanted.coordinator_log_end)
        ),
    )
    return then(results, lambda results: DeleteShareGroupStateResponse(results=results))
