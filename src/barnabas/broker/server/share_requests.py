"""Functions that the handlers of ShareFetch and ShareAcknowledge share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.base.errors import KafkaError
from barnabas.broker.server.requests.api import DIRECT_ELEMENTS
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import refusal
from barnabas.broker.sharing.acknowledging import Acknowledging
from barnabas.broker.sharing.in_flight import Acknowledgement
from barnabas.broker.sharing.sessions import Member, ShareSessions, Target
from barnabas.broker.sharing.share_partitions import SharePartitions
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from barnabas.kafka.protocol.messages.share_fetch import ShareFetchRequest
from barnabas.kafka.security.acls import Operation, ResourceType


@dataclass(frozen=True, slots=True)
class SharePorts:
    """The dependencies of the handlers of ShareFetch and ShareAcknowledge."""

    partitions: SharePartitions
    sessions: ShareSessions
    long_work: LongWork
    view: BrokerView


def member_of(request: ShareFetchRequest | ShareAcknowledgeRequest) -> Member:
    """Return the group member that sends a request."""
    return Member(request.group_id or "", request.member_id or "")


def refuses(ports: SharePorts, context: RequestContext) -> Callable[[Target], KafkaError | None]:
    """Return a function that checks whether the client may read a partition.

    The function returns TOPIC_AUTHORIZATION_FAILED if the client may not read the partition. It returns None
    if the client may read the partition, or if the topic is unknown.
    """
    names, access = ports.view.image.topic_names, context.access

    def refused(target: Target) -> KafkaError | None:
        name = names.get(target.topic_id)
        if access.is_unrestricted or name is None or access.on_topic(Operation.READ, name):
            return None
        return refusal(ResourceType.TOPIC)

    return refused


def acknowledging_of(
    ports: SharePorts, context: RequestContext, request: ShareFetchRequest | ShareAcknowledgeRequest
) -> Acknowledging:
    """Return the acknowledgements in a request. The caller must apply them (`Acknowledging.steps`).

    An acknowledgement can renew acquisition locks if the field `is_renew_ack` of the request is true, and the
    settings of the group allow renewals.
    """
    member = member_of(request)
    by_target = [
        (
            Target(topic.topic_id, partition.partition_index),
            [
                Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in partition.acknowledgement_batches
            ],
        )
        for topic in request.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    ]
    may_renew = request.is_renew_ack and ports.view.group_config(member.group).share_renew_acknowledge_enable
    return Acknowledging(member, ports.partitions, refuses(ports, context), may_renew, by_target)


def lock_timeout_ms(ports: SharePorts, member: Member) -> int:
    """Return the acquisition lock timeout of the member's group, in milliseconds."""
    return ports.view.group_config(member.group).share_record_lock_duration_ms


def is_long(acknowledging: Acknowledging, targets: int = 0) -> bool:
    """Whether a request is so large that the broker must serve it in slices.

    Args:
        acknowledging: acknowledgements of the request.
        targets: number of partitions to fetch from.
    """
    return acknowledging.elements + targets > DIRECT_ELEMENTS


async def stored(acknowledging: Acknowledging) -> None:
    """Wait until the share coordinator has stored or rejected all acknowledgements."""
    known = asyncio.Event()
    acknowledging.when_stored(known.set)
    await known.wait()
