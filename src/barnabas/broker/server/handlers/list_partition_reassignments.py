"""ListPartitionReassignments v0: lists the current reassignments of all partitions, or of some (KIP-455).

As in Kafka, the response leaves out topics and partitions that do not exist. The handler ignores the
request's timeout.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.metadata.image import ClusterImage, PartitionState
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas.kafka.security.acls import Operation


@handles(
    ListPartitionReassignmentsRequest,
    needs=[Cluster(Operation.DESCRIBE)],
    listing="topics.partitions",
    unconfirmed="it tells what the image shows",
)
def list_partition_reassignments(
    view: BrokerView, long_work: LongWork, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> MaybeAwaitable[ListPartitionReassignmentsResponse]:
    image = view.image
    asked: dict[str, set[int]] = {}
    for topic in request.topics or ():
        asked.setdefault(topic.name, set()).update(topic.partition_indexes)
    return long_work.listed(
        sorted(image.topics) if request.topics is None else sorted(asked),
        lambda name: _topic(image, name, asked.get(name)),
        lambda topics: ListPartitionReassignmentsResponse(
            topics=[topic for topic in topics if topic.partitions]
        ),
    )


def _topic(image: ClusterImage, name: str, numbers: set[int] | None) -> OngoingTopicReassignment:
    ongoing = [
        OngoingPartitionReassignment(
            partition_index=number,
            replicas=list(state.replicas),
            adding_replicas=list(state.adding),
            removing_replicas=list(state.removing),
        )
        for number, state in _states(image, name, numbers)
        if state.adding or state.removing
    ]
    return OngoingTopicReassignment(name=name, partitions=ongoing)


def _states(image: ClusterImage, name: str, numbers: set[int] | None) -> Iterator[tuple[int, PartitionState]]:
    topic = image.topics.get(name)
    if topic is None:
        return
    for number, state in enumerate(topic.partitions):
        if numbers is None or number in numbers:
            yield number, state
