"""ShareFetch, ShareAcknowledge and DescribeSharePartitions as raw requests: sessions, records, errors."""

from __future__ import annotations

import uuid
from typing import NamedTuple

import pytest
from tests.integration.conftest import use_share_groups

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.coordinator import SharePartitionKey
from barnabas.kafka.protocol.messages.describe_share_partitions import (
    DescribeSharePartitionsRequest,
    PartitionRequest,
    TopicRequest,
)
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from barnabas.kafka.protocol.messages.initialize_share_group_state import PartitionData as InitialState
from barnabas.kafka.protocol.messages.read_share_group_state import PartitionData as StatePartition
from barnabas.kafka.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadStateData,
)
from barnabas.kafka.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.kafka.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from barnabas.kafka.records import all_records
from barnabas.testing import BarnabasBroker

#: a wait in milliseconds that outlasts the test's own
NEVER = 2**31 - 1
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {"share.coordinator.state.topic.num.partitions": "1", "group.share.max.share.sessions": "8"}
    with BarnabasBroker(settings, data=tmp_path_factory.mktemp("share") / "data") as broker:
        yield broker


@pytest.fixture
def wire(broker, connect):
    wire = connect(broker)
    use_share_groups(wire)
    return wire


class Acquired(NamedTuple):
    first: int
    last: int
    count: int


class Member:
    """A member of a share group on one connection, with a session for one partition."""

    def __init__(self, wire, group, topic):
        self.wire = wire
        self.group = group
        self.topic = topic
        self.id = uuid.uuid4().hex[:22]
        self.epoch = 0

    def send(self, *acks, version=None, forget=False, partition=0, name=True, **fields):
        topics = [
            FetchTopic(
                topic_id=self.topic.id,
                partitions=[
                    FetchPartition(partition_index=partition, acknowledgement_batches=_batches(acks))
                ],
            )
        ]
        forgotten = [ForgottenTopic(topic_id=self.topic.id, partitions=[partition])] if forget else []
        values = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500} | fields
        values.setdefault("share_session_epoch", self.epoch)
        self.epoch += 1
        return self.wire.send(
            ShareFetchRequest(
                group_id=self.group,
                member_id=self.id,
                topics=topics if name else [],
                forgotten_topics_data=forgotten,
                **values,
            ),
            version,
        )

    def fetch(self, *acks, **options):
        """Fetch, and return the whole response."""
        return self.wire.receive(self.send(*acks, **options))

    def partition(self, *acks, **options):
        """Fetch, and return the answer for the partition."""
        response = self.fetch(*acks, **options)
        assert response.error_code == 0, response
        (topic,) = response.responses
        (partition,) = topic.partitions
        assert topic.topic_id == self.topic.id
        return partition

    def acquire(self, *acks, **options):
        """Fetch until records are acquired. Return the first offset, the last offset
        and the delivery count.
        """
        partition = self.partition(*acks, **({"max_wait_ms": NEVER} | options))
        assert partition.error_code == partition.acknowledge_error_code == 0, partition
        return [Acquired(r.first_offset, r.last_offset, r.delivery_count) for r in partition.acquired_records]

    def acknowledge(self, *acks, version=None, **fields):
        """Return the whole response to a ShareAcknowledge."""
        return self.wire(self.acknowledgement(*acks, **fields), version)

    def acknowledgement(self, *acks, **fields):
        """Return the next ShareAcknowledge of the session."""
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=_batches(acks))
        fields.setdefault("share_session_epoch", self.epoch)
        self.epoch += 1
        return ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.id,
            topics=[AcknowledgeTopic(topic_id=self.topic.id, partitions=[partition])] if acks else [],
            **fields,
        )

    def acknowledged(self, *acks, **fields):
        """Acknowledge, and return the error for the partition."""
        response = self.acknowledge(*acks, **fields)
        assert response.error_code == 0, response
        return response.responses[0].partitions[0].error_code


def _batches(acks):
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, *types in acks
    ]


@pytest.fixture
def group(wire, make_topic):
    """Create a share group that begins at offset 0 of a new topic."""
    return Group(wire, make_topic(by=wire), f"g-{uuid.uuid4().hex[:8]}")


class Group:
    def __init__(self, wire, topic, name):
        self.wire, self.topic, self.name = wire, topic, name
        key = str(SharePartitionKey(name, topic.id, 0))
        find = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])  # it makes the internal topic
        while wire(find).coordinators[0].error_code:
            pass
        self.reset(state_epoch=1)

    def reset(self, state_epoch):
        """Let the group begin at offset 0."""
        data = InitialState(partition=0, state_epoch=state_epoch, start_offset=0)
        topics = [InitializeStateData(topic_id=self.topic.id, partitions=[data])]
        request = InitializeShareGroupStateRequest(group_id=self.name, topics=topics)
        while self.wire(request).results[0].partitions[0].error_code:
            pass  # until the coordinator has loaded it

    def member(self, wire=None):
        return Member(wire or self.wire, self.name, self.topic)

    def state(self):
        """Return the stored start offset and batches. Call this when no leader uses them any more."""
        data = StatePartition(partition=0, leader_epoch=2**20)
        topics = [ReadStateData(topic_id=self.topic.id, partitions=[data])]
        (topic,) = self.wire(ReadShareGroupStateRequest(group_id=self.name, topics=topics)).results
        (state,) = topic.partitions
        return state.start_offset, [
            (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in state.state_batches
        ]


@pytest.fixture
def write(group, produce, batch, wire):
    """Return a function that appends a batch of values to the group's topic."""
    return lambda *values: produce(group.topic, batch(*values), by=wire)


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_acquired_acknowledged_and_finished(group, write, version):
    write(b"a", b"b")
    member = group.member()
    partition = member.partition(version=version, max_wait_ms=NEVER)
    assert [record.value for record in all_records(partition.records)] == [b"a", b"b"]
    assert [(r.first_offset, r.last_offset, r.delivery_count) for r in partition.acquired_records] == [
        (0, 1, 1)
    ]
    assert member.acknowledged((0, 1, ACCEPT), version=version) == 0
    assert member.fetch(version=version).responses == []
    assert group.state() == (2, [])


def test_the_time_of_locks_is_told(group):
    member = group.member()
    assert member.fetch().acquisition_lock_timeout_ms == 30_000
    assert member.acknowledge().acquisition_lock_timeout_ms == 30_000


def test_members_share_the_records_of_a_partition(group, write, connect, broker):
    for value in (b"a", b"b"):
        write(value)
    first, second = group.member(), group.member(connect(broker))
    assert first.acquire(max_records=1) == [(0, 0, 1)]
    assert second.acquire(max_records=1) == [(1, 1, 1)]


def test_a_strict_limit_divides_a_batch(group, write):
    write(b"a", b"b", b"c")
    member = group.member()
    assert member.acquire(max_records=2, share_acquire_mode=1) == [(0, 1, 1)]
    assert member.acquire(max_records=2, share_acquire_mode=1) == [(2, 2, 1)]


def test_a_member_gets_one_small_batch_of_a_long_log(group, write):
    write(b"small")
    write(b"large" * 100_000)
    member = group.member()
    partition = member.partition(max_wait_ms=NEVER, max_records=1)
    assert [(r.first_offset, r.last_offset) for r in partition.acquired_records] == [(0, 0)]
    assert [record.value for record in all_records(partition.records)] == [b"small"]


def test_acknowledgements_ride_on_a_fetch(group, write):
    write(b"a")
    write(b"b")
    member = group.member()
    member.acquire(max_records=1)
    assert member.acquire((0, 0, ACCEPT), max_records=1) == [(1, 1, 1)]


def test_released_records_come_again(group, write):
    write(b"a", b"b")
    member = group.member()
    member.acquire()
    assert member.acknowledged((0, 1, ACCEPT, RELEASE)) == 0
    assert member.acquire() == [(1, 1, 2)]


def test_a_fetch_of_a_former_session_leaves_the_records_to_the_present_one(group, write, connect, broker):
    """The member has connected again. The broker does not know yet that the first connection is dead."""
    former, present = group.member(connect(broker)), group.member(connect(broker))
    present.id = former.id
    waiting = former.send(max_wait_ms=NEVER)
    present.fetch()
    write(b"a")
    assert present.acquire() == [(0, 0, 1)]
    assert former.wire.receive(waiting).responses == []


def test_a_fetch_waits_for_an_append(group, write, connect, broker, produce, batch):
    waiting = group.member(connect(broker))
    sent = waiting.send(max_wait_ms=NEVER)
    write(b"a")
    response = waiting.wire.receive(sent)
    assert response.responses[0].partitions[0].acquired_records[0].last_offset == 0


def test_a_fetch_waits_for_the_bytes_that_it_wants(group, write, connect, broker):
    waiting = group.member(connect(broker))
    sent = waiting.send(max_wait_ms=NEVER, min_bytes=1000, max_bytes=100_000)
    write(b"a" * 100)
    other = group.member(connect(broker))
    assert other.acquire() == [(0, 0, 1)]  # it keeps no records from others
    write(b"b" * 1000)
    response = waiting.wire.receive(sent)
    assert response.responses[0].partitions[0].acquired_records[0].last_offset == 1


def test_a_fetch_gets_fewer_bytes_at_its_time_limit(group, write):
    write(b"a")
    member = group.member()
    assert member.acquire(max_wait_ms=100, min_bytes=2**20, max_bytes=2**21) == [(0, 0, 1)]


def test_a_fetch_of_many_partitions_gets_fewer_bytes_at_its_time_limit(wire, make_topic, produce, batch):
    topic = make_topic(partitions=100, by=wire)
    member = Group(wire, topic, f"g-{uuid.uuid4().hex[:8]}").member()
    partitions = [FetchPartition(partition_index=index) for index in range(100)]
    produce(topic, batch(b"a"), by=wire)
    response = wire(
        ShareFetchRequest(
            group_id=member.group,
            member_id=member.id,
            topics=[FetchTopic(topic_id=topic.id, partitions=partitions)],
            max_wait_ms=1000,
            min_bytes=2**20,
            max_bytes=2**21,
            max_records=500,
        )
    )
    (found,) = response.responses[0].partitions
    assert [(r.first_offset, r.last_offset) for r in found.acquired_records] == [(0, 0)]


def test_a_fetch_that_waits_gives_way_to_acknowledgements(group, write):
    write(b"a")
    member = group.member()
    member.acquire()
    waiting = member.send(max_wait_ms=NEVER)
    batch = AcknowledgePartition(partition_index=0, acknowledgement_batches=_batches([(0, 0, ACCEPT)]))
    sent = member.wire.send(
        ShareAcknowledgeRequest(
            group_id=group.name,
            member_id=member.id,
            share_session_epoch=member.epoch,
            topics=[AcknowledgeTopic(topic_id=group.topic.id, partitions=[batch])],
        )
    )
    assert member.wire.receive(waiting).responses == []
    assert member.wire.receive(sent).responses[0].partitions[0].error_code == 0


def test_the_end_of_a_connection_releases_its_records_at_once(group, write, connect, broker):
    write(b"a")
    gone = group.member(connect(broker))
    gone.acquire()
    waiting = group.member(connect(broker))
    sent = waiting.send(max_wait_ms=NEVER)
    gone.wire.close()
    (acquired,) = waiting.wire.receive(sent).responses[0].partitions[0].acquired_records
    assert (acquired.first_offset, acquired.delivery_count) == (0, 2)


def test_a_member_that_ends_while_its_fetch_waits_holds_no_records(group, write, connect, broker):
    write(b"a")
    gone = group.member(connect(broker))
    gone.acquire()
    gone.send(max_wait_ms=NEVER)
    waiting = group.member(connect(broker))
    sent = waiting.send(max_wait_ms=NEVER)
    gone.wire.close()
    (acquired,) = waiting.wire.receive(sent).responses[0].partitions[0].acquired_records
    assert (acquired.first_offset, acquired.delivery_count) == (0, 2)


def test_the_final_epoch_releases_what_is_not_acknowledged_and_counts_it(group, write):
    write(b"a", b"b")
    member, other = group.member(), group.member()
    member.acquire()
    assert member.acknowledged((0, 0, ACCEPT), share_session_epoch=-1) == 0
    assert other.acquire() == [(1, 1, 2)]
    assert member.acknowledge(share_session_epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_fetch_can_close_the_session_too(group, write):
    write(b"a")
    member = group.member()
    member.acquire()
    response = member.fetch((0, 0, ACCEPT), share_session_epoch=-1)
    assert response.error_code == 0 and response.responses[0].partitions[0].acknowledge_error_code == 0
    assert group.state() == (1, [])


def test_a_renewal_fetches_nothing(group, write):
    write(b"a")
    write(b"b")
    member = group.member()
    member.acquire(max_records=1)
    nothing = {"is_renew_ack": True, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    partition = member.partition((0, 0, RENEW), **nothing)
    assert partition.acknowledge_error_code == 0 and partition.acquired_records == []
    assert member.fetch((0, 0, RENEW), is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST


def test_a_renewal_is_unknown_to_version_1(group, write):
    write(b"a")
    member = group.member()
    member.acquire()
    assert member.acknowledged((0, 0, RENEW), version=1) == ErrorCode.INVALID_REQUEST
    assert member.acknowledged((0, 0, RENEW), is_renew_ack=True) == 0


def test_a_request_says_that_it_has_renewals(group, write):
    write(b"a")
    member = group.member()
    member.acquire()
    assert member.acknowledged((0, 0, RENEW)) == ErrorCode.INVALID_REQUEST
    assert member.partition((0, 0, RENEW)).acknowledge_error_code == ErrorCode.INVALID_REQUEST
    assert member.acknowledged((0, 0, RENEW), is_renew_ack=True) == 0


@pytest.mark.parametrize(
    ("ack", "error"),
    [
        ((0, 0, ACCEPT), ErrorCode.INVALID_RECORD_STATE),
        ((7, 7, ACCEPT), ErrorCode.INVALID_REQUEST),
        ((1, 0, ACCEPT), ErrorCode.INVALID_REQUEST),
        ((1, 1, 9), ErrorCode.INVALID_REQUEST),
        ((1, 2, ACCEPT, ACCEPT, ACCEPT), ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_acknowledgements_change_nothing(group, write, ack, error):
    write(b"a", b"b", b"c")
    other, member = group.member(), group.member()
    other.acquire(max_records=1, share_acquire_mode=1)
    assert member.acquire() == [(1, 2, 1)]
    assert member.acknowledged(ack) == error
    assert member.partition(ack).acknowledge_error_code == error
    assert member.acknowledged((1, 2, ACCEPT)) == 0


def test_the_epochs_of_a_session_follow_each_other(group):
    member = group.member()
    assert member.fetch(share_session_epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge(share_session_epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(share_session_epoch=0).error_code == 0
    assert member.fetch(share_session_epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(share_session_epoch=1).error_code == 0
    assert member.acknowledge(share_session_epoch=2).error_code == 0


def test_a_new_session_has_nothing_to_acknowledge(group):
    assert group.member().fetch((0, 0, ACCEPT)).error_code == ErrorCode.INVALID_REQUEST


def test_an_unknown_acquire_mode_is_refused(group):
    assert group.member().fetch(share_acquire_mode=2).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("topic_id", "partition", "error"),
    [(bytes(15) + b"\x07", 0, ErrorCode.UNKNOWN_TOPIC_ID), (None, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
)
def test_a_partition_that_does_not_exist_is_told_at_once(group, topic_id, partition, error):
    member = group.member()
    if topic_id is not None:
        member.topic = group.topic._replace(id=topic_id)
    assert member.partition(partition=partition, max_wait_ms=NEVER).error_code == error


def test_a_forgotten_partition_is_fetched_no_more(group, write):
    member = group.member()
    member.fetch()
    write(b"a")
    assert member.fetch(name=False, forget=True).responses == []
    assert member.fetch(name=False).responses == []
    assert member.acquire() == [(0, 0, 1)]


def test_sessions_are_limited_in_number(group, connect, broker):
    wire = connect(broker)
    opened = [group.member(wire).fetch().error_code for _ in range(9)]
    assert opened == [0] * 8 + [ErrorCode.SHARE_SESSION_LIMIT_REACHED]
    wire.close()
    member = group.member()
    while member.fetch(share_session_epoch=0).error_code:
        pass  # until the broker has seen that the connection is gone


def test_a_restart_keeps_what_was_acknowledged_and_counts_the_deliveries(tmp_path, connect, produce, batch):
    from tests.integration.conftest import Topic

    settings = {"share.coordinator.state.topic.num.partitions": "1"}
    with BarnabasBroker(settings, data=tmp_path / "data") as broker:
        wire = connect(broker)
        use_share_groups(wire)
        broker.create_topic("t", 1)
        topic = Topic("t", _id_of(wire, "t"))
        group = Group(wire, topic, "g")
        produce(topic, batch(b"a", b"b", b"c"), by=wire)
        member = group.member()
        member.acquire()
        assert member.acknowledged((0, 2, RELEASE, ACCEPT, RELEASE)) == 0
    with BarnabasBroker(settings, data=tmp_path / "data") as broker:
        member = Member(connect(broker), "g", topic)
        assert member.acquire() == [(0, 0, 2), (2, 2, 2)]


def _id_of(wire, name):
    from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    (topic,) = wire(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics
    return topic.topic_id


def in_flight(group, index=0, name=None, first_offset=0, limit=2000):
    """Return the answer to DescribeSharePartitions for one partition."""
    partition = PartitionRequest(partition_index=index, first_offset=first_offset)
    topic = TopicRequest(name=name or group.topic.name, partitions=[partition])
    request = DescribeSharePartitionsRequest(group_id=group.name, topics=[topic], response_range_limit=limit)
    response = group.wire(request)
    return response.topics[0].partitions[0]


def test_the_leader_tells_who_has_locked_which_records(group, write):
    write(*[b"%d" % number for number in range(6)])
    first, second = group.member(), group.member()
    first.acquire()
    first.acknowledged((0, 0, ACCEPT), (1, 2, RELEASE), (3, 3, REJECT))
    second.acquire(max_records=1, share_acquire_mode=1)
    partition = in_flight(group)
    assert (partition.error_code, partition.start_offset, partition.end_offset) == (0, 1, 6)
    assert [
        (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count, b.member_id)
        for b in partition.state_batches
    ] == [(1, 1, 1, 2, second.id), (2, 2, 0, 1, ""), (3, 3, 4, 1, ""), (4, 5, 1, 1, first.id)]
    locks = [b.lock_timeout_ms for b in partition.state_batches]
    assert locks[1] == locks[2] == -1
    assert 0 < locks[3] <= locks[0] <= 30_000


def test_the_leader_tells_the_ranges_in_pages(group, write):
    write(*[b"x"] * 6)
    member = group.member()
    member.acquire()
    member.acknowledged((1, 1, RELEASE), (3, 3, RELEASE))
    first = in_flight(group, limit=2)
    assert [(b.first_offset, b.last_offset) for b in first.state_batches] == [(0, 0), (1, 1)]
    second = in_flight(group, first_offset=first.next_offset)
    assert [(b.first_offset, b.last_offset) for b in second.state_batches] == [(2, 2), (3, 3), (4, 5)]
    assert second.next_offset == -1


def test_a_partition_without_members_has_no_records_in_flight(group, write):
    write(b"a")
    partition = in_flight(group)
    assert (partition.error_code, partition.start_offset, partition.state_batches) == (0, -1, [])


def test_a_partition_that_does_not_exist_is_an_error(group):
    assert in_flight(group, index=7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert in_flight(group, name="missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_admin_client_counts_the_records_by_their_state(broker, group, write):
    write(b"a", b"b", b"c")
    place = TopicPartition(group.topic.name, 0)
    admin = broker.admin()
    assert admin.share_records(group.name, [place]) == {}
    member = group.member()
    member.acquire()
    member.acknowledged((1, 1, RELEASE))
    records = admin.share_records(group.name, [place])[place]
    assert (records.start, records.end, records.count("acquired"), records.count("available")) == (0, 3, 2, 1)
    assert [each.deliveries for each in records.waiting_again] == [1]
    assert {each.member for each in records.batches} == {member.id, None}
