"""ConsumerGroupDescribe v0-1: describes groups of the consumer protocol and their members (KIP-848).

For each member it returns the current and the target assignment. From v1 on it also says by which protocol
each member joined (KIP-1099). A group of another type gets GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator import ConsumerGroup, GroupCoordinator
from barnabas.broker.coordinator.groups.consumer.member import ConsumerMember
from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import checked_by_handler, each_group
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.acls import NOT_ASKED
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from barnabas.kafka.security.acls import Access, Operation, ResourceType

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


@handles(
    ConsumerGroupDescribeRequest,
    needs=[
        each_group(Operation.DESCRIBE, "group_ids", "groups", name=""),
        checked_by_handler("topic DESCRIBE of all topics that the group uses"),
    ],
    pieces=[Pieces("group_ids", "groups", size=64, unique=True)],
    is_heavy=True,
    listing="groups.members",
    confirmed_by=group_coordinator("group_ids"),
)
def consumer_group_describe(
    groups: GroupCoordinator, view: BrokerView, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    groups.check_consumer_protocol()
    response = ConsumerGroupDescribeResponse()
    for group_id in request.group_ids:
        try:
            described = _describe(groups, view, group_id)
            _check_topics(described, context.access)
        except KafkaError as error:
            described = _failure(group_id, error)
        else:
            if request.include_authorized_operations:
                described.authorized_operations = context.access.operations(ResourceType.GROUP, group_id)
        response.groups.append(described)
    return response


def _check_topics(group: DescribedGroup, access: Access) -> None:
    """Check that the client may describe all topics that members subscribe to or have partitions of.

    The topics of target assignments count, too (KAFKA-18813).

    Raises:
        KafkaError: TOPIC_AUTHORIZATION_FAILED, the client may not describe one of them.
    """
    if access.is_unrestricted:
        return
    for member in group.members:
        assigned = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
        for name in {*member.subscribed_topic_names, *(topic.topic_name for topic in assigned)}:
            if not access.on_topic(Operation.DESCRIBE, name):
                raise KafkaError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    "The group uses topics that the client is not authorised to describe.",
                )


def _describe(groups: GroupCoordinator, view: BrokerView, group_id: str) -> DescribedGroup:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    group = groups.group(group_id)
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    image = view.image
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or view.config.group_consumer_assignors[0],
        members=[_member(member, group.target(member.member_id), image) for member in group.members.values()],
        authorized_operations=NOT_ASKED,
    )


def _member(member: ConsumerMember, target: Partitions, image: ClusterImage) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(member.assigned, image),
        target_assignment=_assignment(target, image),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Partitions, image: ClusterImage) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (topic := image.topic_by_id(topic_id)) is not None
        ]
    )


def _failure(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id, error_code=error.code, error_message=error.message, authorized_operations=NOT_ASKED
    )
