"""ShareGroupDescribe v1: describes share groups, with their members' assignments (KIP-932).

A group of another type gets GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator import GroupCoordinator, ShareGroup
from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.broker.coordinator.groups.share.member import ShareMember
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import checked_by_handler, each_group
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.acls import NOT_ASKED
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from barnabas.kafka.security.acls import Access, Operation, ResourceType

#: the one assignor of share groups
_ASSIGNOR = "simple"


@handles(
    ShareGroupDescribeRequest,
    needs=[
        each_group(Operation.DESCRIBE, "group_ids", "groups", name=""),
        checked_by_handler("topic DESCRIBE of all topics that the group uses"),
    ],
    pieces=[Pieces("group_ids", "groups", size=64, unique=True)],
    is_heavy=True,
    listing="groups.members",
    confirmed_by=group_coordinator("group_ids"),
    feature=SHARE_VERSION,
)
def share_group_describe(
    groups: GroupCoordinator, view: BrokerView, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    response = ShareGroupDescribeResponse()
    for group_id in request.group_ids:
        try:
            described = _describe(groups, view.image, group_id)
            _check_topics(described, context.access)
        except KafkaError as error:
            described = DescribedGroup(
                group_id=group_id,
                error_code=error.code,
                error_message=error.message,
                authorized_operations=NOT_ASKED,
            )
        else:
            if request.include_authorized_operations:
                described.authorized_operations = context.access.operations(ResourceType.GROUP, group_id)
        response.groups.append(described)
    return response


def _check_topics(group: DescribedGroup, access: Access) -> None:
    """Check that the client may describe all topics that members subscribe to or have partitions of.

    Raises:
        KafkaError: TOPIC_AUTHORIZATION_FAILED, the client may not describe one of them.
    """
    if access.is_unrestricted:
        return
    for member in group.members:
        assigned = (topic.topic_name for topic in member.assignment.topic_partitions)
        for name in {*member.subscribed_topic_names, *assigned}:
            if not access.on_topic(Operation.DESCRIBE, name):
                raise KafkaError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    "The group uses topics that the client is not authorised to describe.",
                )


def _describe(groups: GroupCoordinator, image: ClusterImage, group_id: str) -> DescribedGroup:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    group = groups.group(group_id)
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=_ASSIGNOR,
        members=[_member(member, image) for member in group.members.values()],
        authorized_operations=NOT_ASKED,
    )


def _member(member: ShareMember, image: ClusterImage) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=_assignment(member.assigned, image),
    )


def _assignment(partitions: Partitions, image: ClusterImage) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (topic := image.topic_by_id(topic_id)) is not None
        ]
    )
