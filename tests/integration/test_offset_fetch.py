"""OffsetFetch as raw requests: one group or several, by name and by id."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

UNKNOWN_ID = b"no such topic id"


@pytest.fixture
def topic(make_topic):
    return make_topic(partitions=2)


@pytest.fixture
def bookmark(wire, topic, commit_request):
    """Commit offset 7, epoch 0 and metadata for partition 0."""
    wire(commit_request(topic, {0: 7}, metadata="bookmark", epoch=0))


@pytest.mark.usefixtures("bookmark")
@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_of_one_group(wire, topic, group_id, version):
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0, 1, 9]),
            OffsetFetchRequestTopic(name="no-such-topic", partition_indexes=[0]),
        ],
    )
    response = wire(request, version)
    assert response.error_code == 0
    epoch = 0 if version >= 5 else -1
    assert {
        (t.name, p.partition_index): (p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code)
        for t in response.topics
        for p in t.partitions
    } == {
        (topic.name, 0): (7, epoch, "bookmark", 0),
        (topic.name, 1): (-1, -1, "", 0),
        (topic.name, 9): (-1, -1, "", 0),
        ("no-such-topic", 0): (-1, -1, "", 0),
    }


@pytest.mark.usefixtures("bookmark")
@pytest.mark.parametrize("version", range(2, 8))
def test_all_offsets_of_one_group(wire, topic, group_id, version):
    response = wire(OffsetFetchRequest(group_id=group_id, topics=None), version)
    ((name, partitions),) = [(t.name, t.partitions) for t in response.topics]
    assert (name, [p.committed_offset for p in partitions]) == (topic.name, [7])


@pytest.mark.parametrize("version", range(1, 8))
def test_group_that_is_not_there_has_no_offsets(wire, topic, group_id, version):
    wanted = [OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0])]
    response = wire(OffsetFetchRequest(group_id=group_id, topics=wanted), version)
    (found,) = response.topics[0].partitions
    assert (response.error_code, found.committed_offset, found.error_code) == (0, -1, 0)
    if version >= 2:
        assert wire(OffsetFetchRequest(group_id=group_id, topics=None), version).topics == []


@pytest.mark.usefixtures("bookmark")
@pytest.mark.parametrize("version", [8, 9, 10])
def test_offsets_of_several_groups(wire, topic, group_id, version):
    wanted = [OffsetFetchRequestTopics(name=topic.name, topic_id=topic.id, partition_indexes=[0, 1])]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id=group_id, topics=wanted),
            OffsetFetchRequestGroup(group_id="nobody", topics=wanted),
            OffsetFetchRequestGroup(group_id=group_id, topics=None),
            OffsetFetchRequestGroup(group_id="nobody", topics=None),
        ],
        require_stable=True,
    )
    response = wire(request, version)
    assert [(g.group_id, g.error_code) for g in response.groups] == [
        (group_id, 0),
        ("nobody", 0),
        (group_id, 0),
        ("nobody", 0),
    ]
    offsets = [[p.committed_offset for t in g.topics for p in t.partitions] for g in response.groups]
    assert offsets == [[7, -1], [-1, -1], [7], []]
    named = (topic.id, "") if version >= 10 else (bytes(16), topic.name)
    assert {(t.topic_id, t.name) for g in response.groups for t in g.topics} == {named}


@pytest.mark.usefixtures("bookmark")
def test_unknown_topic_id_is_refused_alone(wire, topic, group_id):
    wanted = [
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        for topic_id in (topic.id, UNKNOWN_ID, bytes(16))
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=wanted)])
    (group,) = wire(request, 10).groups
    unknown = (-1, ErrorCode.UNKNOWN_TOPIC_ID)
    assert {t.topic_id: (p.committed_offset, p.error_code) for t in group.topics for p in t.partitions} == {
        topic.id: (7, 0),
        UNKNOWN_ID: unknown,
        bytes(16): unknown,
    }


@pytest.mark.usefixtures("bookmark")
def test_member_epoch_means_nothing_to_a_classic_group(wire, topic, group_id):
    wanted = [OffsetFetchRequestTopics(name=topic.name, partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id=group_id, member_id="ghost", member_epoch=5, topics=wanted)
    (answered,) = wire(OffsetFetchRequest(groups=[group]), 9).groups
    assert (answered.error_code, answered.topics[0].partitions[0].committed_offset) == (0, 7)
