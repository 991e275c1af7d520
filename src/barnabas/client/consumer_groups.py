"""Groups of the consumer protocol (KIP-848) with what librdkafka does not tell of them: their epochs."""

from __future__ import annotations

from barnabas.client.admin_types import GroupDescription, GroupMember
from barnabas.client.connection import Connection, Security
from barnabas.client.errors import error_code
from barnabas.errors import KafkaError
from barnabas.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    Member,
)
from barnabas.types import BrokerId, TopicPartition

_PROTOCOLS = {0: "classic", 1: "consumer"}


def describe_consumer_group(
    host: str,
    port: int,
    coordinator: BrokerId,
    group: str,
    timeout: float,
    security: Security | None = None,
) -> GroupDescription:
    """What the group's coordinator, which is at `host` and `port`, says of it.

    Raises:
        KafkaError: the coordinator refused, GROUP_ID_NOT_FOUND among others.
        ClientError: it does not answer within `timeout` seconds.
    """
    with Connection(host, port, timeout, security=security) as connection:
        (found,) = connection.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups
    if found.error_code:
        raise KafkaError(error_code(found.error_code), found.error_message)
    return GroupDescription(
        group,
        found.group_state,
        found.assignor_name,
        coordinator,
        tuple(map(_member, found.members)),
        "consumer",
        found.group_epoch,
        found.assignment_epoch,
    )


def _member(member: Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _places(member.assignment),
        _PROTOCOLS.get(member.member_type),
        member.member_epoch,
        _places(member.target_assignment),
        member.subscribed_topic_regex or None,
    )


def _places(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )
