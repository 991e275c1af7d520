"""Share groups together with other features: the log changes while records are in
flight, or an ACL is deleted.
"""

from __future__ import annotations

import time
import uuid
from contextlib import closing

import pytest
from confluent_kafka import Producer
from tests.integration.acl_broker import AclBroker
from tests.integration.conftest import Wire, use_share_groups
from tests.integration.test_alter_replica_log_dirs import move
from tests.integration.test_dead_letters import EXPLICIT, GROUP_RESOURCE, MINE, configure, letters, reject
from tests.integration.test_share_consumer import Queue, some
from tests.integration.test_share_fetch import ACCEPT, NEVER, RELEASE, Group, Member

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.client import Admin
from barnabas.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.records import all_records
from barnabas.testing import BarnabasBroker

READ, ANY, ALLOW, LITERAL, TOPIC, GROUP = 3, 1, 3, 3, 2, 3
PATIENCE = 60.0


def eventually(probe) -> None:
    deadline = time.monotonic() + PATIENCE
    while not probe():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return [tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")]


@pytest.fixture(scope="module")
def broker(folders):
    config = BrokerConfig.from_text(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": ",".join(map(str, folders)),
            "log.cleaner.backoff.ms": "20",
            "log.retention.check.interval.ms": "50",
            "log.retention.ms": "-1",  # the batches of these tests are old
            "log.segment.delete.delay.ms": "0",
            "share.coordinator.state.topic.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
        }
    )
    with BrokerServer(config) as broker:
        yield broker


@pytest.fixture
def wire(broker, connect):
    return connect(broker)


@pytest.fixture
def make_group(wire, make_topic):
    def make(**configs: str) -> Group:
        return Group(wire, make_topic(by=wire, **configs), f"g-{uuid.uuid4().hex[:8]}")

    return make


def delete_records(wire, topic, before: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[partition])], timeout_ms=10_000
    )
    assert wire(request).topics[0].partitions[0].error_code == 0


def test_acknowledgements_of_deleted_records_are_accepted_and_the_rest_is_stored(
    make_group, wire, produce, batch
):
    group = make_group()
    for value in (b"a", b"b", b"c", b"d"):
        produce(group.topic, batch(value), by=wire)
    member = group.member()
    assert member.acquire()[0].first == 0
    delete_records(wire, group.topic, 2)
    assert member.acknowledged((0, 3, ACCEPT, ACCEPT, ACCEPT, RELEASE)) == 0
    assert member.acquire() == [(3, 3, 2)]
    assert member.acknowledged((3, 3, ACCEPT)) == 0
    member.fetch(share_session_epoch=-1)
    assert group.state() == (4, [])


def test_retention_takes_records_in_flight_and_the_group_goes_on(make_group, wire, produce, batch):
    group = make_group(**{"segment.bytes": "1000", "retention.bytes": "1500", "retention.ms": "-1"})
    produce(group.topic, batch(b"a" * 500), by=wire)
    member = group.member()
    assert member.acquire() == [(0, 0, 1)]
    admin = Admin(wire_address(wire))
    for _ in range(10):
        produce(group.topic, batch(b"b" * 500), by=wire)
    name = TopicPartition(group.topic.name, 0)
    eventually(lambda: admin.offsets([name], "earliest")[name] > 0)
    first = admin.offsets([name], "earliest")[name]
    admin.close()
    again = member.acquire()
    assert again[0].first >= first
    while again[-1].last < 10:
        again += member.acquire()
    assert member.acknowledged((0, 0, ACCEPT)) == 0  # too late: the record is gone, and nothing is wrong
    assert member.acknowledged((again[0].first, 10, ACCEPT)) == 0
    member.fetch(share_session_epoch=-1)
    assert group.state() == (11, [])


def wire_address(wire) -> str:
    host, port = wire.socket.getpeername()[:2]
    return f"{host}:{port}"


def test_compaction_under_records_in_flight_leaves_gaps_that_hold_nothing_up(
    make_group, wire, produce, batch, folders
):
    group = make_group(
        **{"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.01"}
    )
    producer = Producer({"bootstrap.servers": wire_address(wire), "linger.ms": 0})
    for number in range(12):
        producer.produce(group.topic.name, b"%d" % number * 200, b"k" if number else b"first")
        producer.flush()
    member = group.member()
    acquired = member.acquire(max_records=6)
    assert acquired[0].first == 0
    last = acquired[-1].last
    left = lambda: sorted(  # noqa: E731
        path.stat().st_size for folder in folders for path in folder.glob(f"{group.topic.name}-0/*.log")
    )
    eventually(lambda: sum(left()) < 3000)
    assert member.acknowledged((0, last, RELEASE)) == 0
    seen = []
    while not seen or seen[-1] < 11:
        partition = member.partition(max_wait_ms=NEVER)
        assert partition.error_code == 0, partition
        seen += [record.offset for record in all_records(partition.records)]
        for each in partition.acquired_records:
            assert member.acknowledged((each.first_offset, each.last_offset, ACCEPT)) == 0
    assert seen[0] == 0
    assert len(seen) < 12  # compaction took the rest before it was delivered again
    member.fetch(share_session_epoch=-1)
    assert group.state() == (12, [])


def test_a_log_moves_to_another_directory_under_records_in_flight(
    make_group, wire, produce, batch, folders, connect, broker
):
    group = make_group()
    produce(group.topic, batch(b"a", b"b"), by=wire)
    member = group.member()
    assert member.acquire() == [(0, 1, 1)]
    waiting = group.member(connect(broker))
    sent = waiting.send(max_wait_ms=NEVER)
    name = f"{group.topic.name}-0"
    (here,) = [folder for folder in folders if (folder / name).exists()]
    there = next(folder for folder in folders if folder != here)
    assert move(wire, str(there), (group.topic.name, 0)) == {(group.topic.name, 0): 0}
    eventually(lambda: (there / name).exists() and not (here / name).exists())
    assert member.acknowledged((0, 1, ACCEPT, RELEASE)) == 0
    response = waiting.wire.receive(sent)
    (acquired,) = response.responses[0].partitions[0].acquired_records
    assert (acquired.first_offset, acquired.last_offset, acquired.delivery_count) == (1, 1, 2)
    assert waiting.acknowledged((1, 1, ACCEPT)) == 0
    produce(group.topic, batch(b"c"), by=wire)
    assert member.acquire() == [(2, 2, 1)]


def test_a_topic_made_anew_under_its_name_has_none_of_the_deleted_ones_state(broker):
    queue = Queue(Running(broker))
    queue.write(6)
    consumer = queue.consumer(**EXPLICIT)
    assert some(consumer, until=1)  # never acknowledged
    admin = Admin(broker.bootstrap_servers)
    admin.delete_topic(queue.topic)
    eventually(lambda: queue.topic not in admin.topics())
    queue.leave(consumer)
    admin.create_topic(queue.topic, 2)
    queue.write(4)
    values = sorted(message.value() for _, message in some(queue.consumer(), until=4))
    assert values == [b"0", b"1", b"2", b"3"]
    queue.close()
    admin.close()


def test_the_records_of_a_deleted_topic_are_unknown_to_its_members(make_group, wire, produce, batch):
    group = make_group()
    produce(group.topic, batch(b"a"), by=wire)
    member = group.member()
    member.acquire()
    state = DeleteTopicState(topic_id=group.topic.id)
    assert wire(DeleteTopicsRequest(topics=[state], timeout_ms=10_000)).responses[0].error_code == 0
    assert member.acknowledged((0, 0, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert member.partition().error_code == ErrorCode.UNKNOWN_TOPIC_ID


class Running(BarnabasBroker):
    """A running `BrokerServer`, for helpers that want a `BarnabasBroker`."""

    def __init__(self, server: BrokerServer) -> None:
        self._running = server

    @property
    def bootstrap_servers(self) -> str:
        return self._running.bootstrap_servers


# --- states ---


def test_a_state_that_is_reset_holds_although_a_former_member_still_has_a_session(
    make_group, connect, broker, produce, batch
):
    group = make_group()
    produce(group.topic, batch(b"a", b"b", b"c"), by=group.wire)
    former = group.member()
    assert former.acquire() == [(0, 2, 1)]
    assert former.acknowledged((0, 2, ACCEPT)) == 0
    group.reset(state_epoch=2)

    def begins_anew() -> bool:
        wire = connect(broker)
        response = group.member(wire).fetch()
        found = [each for topic in response.responses for each in topic.partitions]
        acquired = [(each.first_offset, each.last_offset) for each in found for each in each.acquired_records]
        wire.close()
        return acquired == [(0, 2)]

    eventually(begins_anew)
    assert former.acknowledged((0, 2, ACCEPT)) != 0


# --- quotas ---


class SlowWire(Wire):
    """A connection of the client `slow`, which has a quota."""

    def send(self, request, version=None, *, client_id="slow"):
        return super().send(request, version, client_id=client_id)


def test_a_quota_delays_a_member_that_gets_each_record_once_and_counts_all_of_them(
    make_group, wire, produce, batch
):
    group = make_group()
    quota = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name="slow")],
        ops=[OpData(key="consumer_byte_rate", value=1000.0)],
    )
    assert wire(AlterClientQuotasRequest(entries=[quota])).entries[0].error_code == 0
    for number in range(3):
        produce(group.topic, batch(bytes([number]) * 9000), by=wire)
    throttles = []
    for number in range(3):
        with closing(SlowWire(wire_address(wire))) as slow:  # the broker does not listen to the last one now
            member = group.member(slow)
            response = member.fetch(max_wait_ms=NEVER)
            (partition,) = response.responses[0].partitions
            (acquired,) = partition.acquired_records
            assert (acquired.first_offset, acquired.last_offset) == (number, number)
            assert acquired.delivery_count == 1
            throttles.append(response.throttle_time_ms)
            assert wire(member.acknowledgement((number, number, ACCEPT))).error_code == 0
    assert throttles[0] == 0
    # In a window of 10 s, 27,000 bytes are 17 s too much. Without the second batch, they would be 8 s.
    assert throttles[1] < 10_000 < throttles[2]
    assert group.state() == (3, [])


# --- rules ---


def test_a_member_whose_rule_goes_gets_no_more_records(tmp_path, produce, batch, make_topic):
    with AclBroker(tmp_path / "acls") as broker:
        broker.add("alice")
        admin = Wire(broker.open_address)
        group = Group(admin, make_topic(by=admin), "workers")
        rules = [(TOPIC, group.topic.name), (GROUP, "workers")]
        creations = [
            AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=LITERAL,
                principal="User:alice",
                host="*",
                operation=READ,
                permission_type=ALLOW,
            )
            for kind, name in rules
        ]
        assert not any(each.error_code for each in admin(CreateAclsRequest(creations=creations)).results)
        produce(group.topic, batch(b"a", b"b"), by=admin)
        alice = Member(broker.connect("alice"), "workers", group.topic)
        assert alice.acquire() == [(0, 1, 1)]
        waiting = alice.send(max_wait_ms=NEVER)
        _delete_rule(admin, *rules[0])
        produce(group.topic, batch(b"c"), by=admin)
        other = Member(Wire(broker.open_address), "workers", group.topic)
        assert other.acquire()[0].first == 2
        denied = alice.wire.send(alice.acknowledgement((0, 0, ACCEPT)))  # ends the wait
        assert not any(
            partition.acquired_records
            for topic in alice.wire.receive(waiting).responses
            for partition in topic.partitions
        )
        (answer,) = alice.wire.receive(denied).responses[0].partitions
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        _delete_rule(admin, *rules[1])
        assert alice.fetch().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        alice.wire.close()  # its records go to others
        assert other.acquire() == [(0, 1, 2)]
        for wire in (other.wire, admin):
            wire.close()


def _delete_rule(admin: Wire, kind: int, name: str) -> None:
    wanted = DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    assert len(admin(DeleteAclsRequest(filters=[wanted])).filter_results[0].matching_acls) == 1


# --- dead letters ---


@pytest.fixture
def queue(broker):
    queue = Queue(Running(broker))
    queue.dlq = f"dlq.{queue.topic}"
    assert configure(broker, GROUP_RESOURCE, queue.group, errors_deadletterqueue_topic_name=queue.dlq) == 0
    yield queue
    queue.close()


def test_a_queue_that_is_deleted_and_made_anew_gets_the_dead_letters_from_then_on(queue):
    queue.broker.create_topic(queue.dlq, configs=MINE)
    queue.write(2)
    reject(queue, 2)
    assert len(letters(queue, 2)) == 2
    admin = Admin(queue.broker.bootstrap_servers)
    admin.delete_topic(queue.dlq)
    eventually(lambda: queue.dlq not in admin.topics())
    queue.write(1)
    reject(queue, 1)
    admin.create_topic(queue.dlq, 1, configs=MINE)
    assert len(letters(queue, 1)) == 1
    admin.close()


def test_records_of_an_aborted_transaction_have_no_dead_letters(queue):
    queue.broker.create_topic(queue.dlq, configs=MINE)
    configure(
        queue.broker,
        GROUP_RESOURCE,
        queue.group,
        share_isolation_level="read_committed",
        errors_deadletterqueue_copy_record_enable="true",
    )
    producer = Producer(
        {"bootstrap.servers": queue.broker.bootstrap_servers, "transactional.id": queue.topic}
    )
    producer.init_transactions()
    for value, ends in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(queue.topic, value, partition=0)
        producer.flush()
        ends()
    assert reject(queue, 1) == [b"committed"]
    assert [letter.value for letter in letters(queue, 1)] == [b"committed"]


def test_a_compacted_queue_takes_copies_with_keys_and_makes_those_without_wait(queue):
    queue.broker.create_topic(queue.dlq, configs={**MINE, "cleanup.policy": "compact"})
    configure(queue.broker, GROUP_RESOURCE, queue.group, errors_deadletterqueue_copy_record_enable="true")
    producer = Producer({"bootstrap.servers": queue.broker.bootstrap_servers})
    producer.produce(queue.topic, b"1", b"key", partition=0)
    producer.produce(queue.topic, b"2", partition=1)
    producer.flush()
    reject(queue, 2)
    assert [letter.value for letter in letters(queue, 1)] == [b"1"]
    admin = Admin(queue.broker.bootstrap_servers)
    admin.alter_configs("topic", queue.dlq, set={"cleanup.policy": "delete"})
    admin.close()
    assert sorted(letter.value for letter in letters(queue, 2)) == [b"1", b"2"]


def test_a_cluster_of_share_version_1_archives_and_has_dead_letters_after_its_upgrade(tmp_path):
    settings = {"share.coordinator.state.topic.num.partitions": "1"}
    with BarnabasBroker(settings, data=tmp_path / "data") as broker:
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire, level=1)
        wire.close()
        queue = Queue(broker)
        queue.dlq = "dlq.jobs"
        broker.create_topic(queue.dlq, configs=MINE)
        configure(broker, GROUP_RESOURCE, queue.group, errors_deadletterqueue_topic_name=queue.dlq)
        queue.write(1)
        reject(queue, 1)
        broker.restart()
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire, level=2)
        wire.close()
        queue.write(1)
        assert reject(queue, 1) == [b"0"]
        assert len(letters(queue, 1)) == 1
        admin = Admin(broker.bootstrap_servers)
        end = admin.offsets([TopicPartition(queue.dlq, 0)], "latest")
        assert list(end.values()) == [1]
        admin.close()
        queue.close()
