"""OffsetCommit as raw requests: the clients that may commit, in each version."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

VERSIONS = range(2, 11)


@pytest.fixture
def errors(wire):
    """Send a commit, and return the error of each partition."""

    def send(request, version):
        response = wire(request, version)
        return {p.partition_index: p.error_code for topic in response.topics for p in topic.partitions}

    return send


@pytest.mark.parametrize("version", VERSIONS)
def test_member_commits(topic, join, group_id, commit_request, committed, errors, version):
    member = join()
    request = commit_request(
        topic, {0: 7, 5: 1}, member_id=member.member_id, generation_id_or_member_epoch=member.generation
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(request, version) == {0: 0, 5: unknown}
    assert committed(topic) == {0: 7}


@pytest.mark.parametrize("version", VERSIONS)
def test_consumer_without_a_group_commits(topic, commit_request, committed, errors, version):
    assert errors(commit_request(topic, {0: 7}), version) == {0: 0}
    assert committed(topic) == {0: 7}
    # Old clients may leave out the group id altogether.
    assert errors(commit_request(topic, {0: 7}, group_id=""), version) == {0: 0}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        pytest.param({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID, id="unknown-member"),
        pytest.param({"generation_id_or_member_epoch": 9}, ErrorCode.ILLEGAL_GENERATION, id="generation"),
        pytest.param({"generation_id_or_member_epoch": -1}, ErrorCode.ILLEGAL_GENERATION, id="no-generation"),
        pytest.param(
            {"member_id": "", "generation_id_or_member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID, id="outside"
        ),
    ],
)
def test_bad_commit_is_refused(topic, join, commit_request, committed, errors, version, fields, error):
    member = join()
    whose = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation}
    assert errors(commit_request(topic, {0: 7}, **{**whose, **fields}), version) == {0: error}
    assert committed(topic) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_generation_of_a_group_that_is_not_there(topic, commit_request, errors, version):
    request = commit_request(topic, {0: 7}, member_id="m", generation_id_or_member_epoch=3)
    missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert errors(request, version) == {0: missing}


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_topic_is_refused_alone(wire, topic, group_id, committed, version):
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    unknown_id = b"no such topic id"
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(name="no-such-topic", topic_id=unknown_id, partitions=partitions),
            OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=partitions),
        ],
    )
    response = wire(request, version)
    outcome = {t.topic_id if version >= 10 else t.name: t.partitions[0].error_code for t in response.topics}
    if version >= 10:
        assert outcome == {unknown_id: ErrorCode.UNKNOWN_TOPIC_ID, topic.id: 0}
    else:
        assert outcome == {"no-such-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name: 0}
    assert committed(topic) == {0: 7}


def test_metadata_too_long_is_refused_alone(make_topic, commit_request, committed, errors):
    topic = make_topic(partitions=2)
    too_long = commit_request(topic, {0: 1}, metadata="x" * 4097)
    too_long.topics[0].partitions += commit_request(topic, {1: 2}, metadata=None).topics[0].partitions
    assert errors(too_long, 9) == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE, 1: 0}
    assert committed(topic) == {1: 2}


def test_replaced_static_member_is_fenced(wire, topic, join, join_request, commit_request, errors):
    old = join(group_instance_id="i")
    wire(join_request(group_instance_id="i"))
    request = commit_request(
        topic,
        {0: 7},
        member_id=old.member_id,
        generation_id_or_member_epoch=old.generation,
        group_instance_id="i",
    )
    assert errors(request, 9) == {0: ErrorCode.FENCED_INSTANCE_ID}


def test_commit_of_nothing_is_answered_with_nothing(wire, group_id):
    assert wire(OffsetCommitRequest(group_id=group_id)).topics == []
