"""WriteShareGroupState v0-1: changes the state of a share group in partitions (KIP-932).

The leader of a partition sends the request to the share coordinator. In v1 the request has the number of
finished records (KIP-1226). If a record already has a state, the coordinator keeps the state with the higher
delivery count. With equal counts, the later state remains: available, archiving, acknowledged, archived.
"""

from __future__ import annotations

from barnabas.broker.awaitables import MaybeAwaitable, then
from barnabas.broker.coordinator import ShareCoordinator, SharePartitionKey, StateBatch
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import share_coordinator
from barnabas.broker.server.requests.needs import BETWEEN_BROKERS
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.share_state import each_partition
from barnabas.kafka.protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


@handles(
    WriteShareGroupStateRequest,
    needs=[BETWEEN_BROKERS],
    pieces=[Pieces("topics.partitions", "results.partitions", size=128)],
    order=BetweenBrokers(),
    confirmed_by=share_coordinator(),
    feature=SHARE_VERSION,
)
def write_share_group_state(
    shares: ShareCoordinator, context: RequestContext, request: WriteShareGroupStateRequest
) -> MaybeAwaitable[WriteShareGroupStateResponse]:
    def write(key: SharePartitionKey, wanted: PartitionData) -> MaybeAwaitable[None]:
        batches = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in wanted.state_batches
        ]
        return shares.write_state(
            key,
            wanted.state_epoch,
            wanted.leader_epoch,
            wanted.start_offset,
            wanted.delivery_complete_count,
            batches,
            wanted.initialized_at,
        )

    results = each_partition(request, WriteStateResult, PartitionResult, write)
    return then(results, lambda results: WriteShareGroupStateResponse(results=results))
