"""OffsetDelete over the wire."""

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


def delete_request(group_id, *topics, partitions=(0,)):
    wanted = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=name, partitions=wanted) for name in topics]
    )


def outcome(response):
    return {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}


def test_offsets_of_an_unused_group_are_deleted(wire, topic, group_id, commit_request, committed):
    wire(commit_request(topic, {0: 7}))
    response = wire(delete_request(group_id, topic.name, "no-such-topic", partitions=(0, 9)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.error_code == 0
    assert outcome(response) == {
        (topic.name, 0): 0,
        (topic.name, 9): unknown,
        ("no-such-topic", 0): unknown,
        ("no-such-topic", 9): unknown,
    }
    assert committed(topic) == {}


def test_offsets_of_subscribed_topics_stay(wire, make_topic, group_id, join, commit_request, committed):
    used, unused = make_topic(), make_topic()
    member = join(topics=(used.name,))
    whose = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation}
    for topic in (used, unused):
        wire(commit_request(topic, {0: 7}, **whose))
    response = wire(delete_request(group_id, used.name, unused.name))
    assert outcome(response) == {(used.name, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, (unused.name, 0): 0}
    assert (committed(used), committed(unused)) == ({0: 7}, {})


def test_groups_that_have_none_to_delete(wire, topic, group_id, join):
    assert wire(delete_request("", topic.name)).error_code == ErrorCode.INVALID_GROUP_ID
    assert wire(delete_request(group_id, topic.name)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    join(protocol_type="connect")
    assert wire(delete_request(group_id, topic.name)).error_code == ErrorCode.NON_EMPTY_GROUP
