"""Usual scenarios of consumer groups, with every client and each of its assignors."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections import defaultdict

import pytest
from confluent_kafka import Producer
from tests.integration.group_members import (
    CLIENTS,
    CONSUMER_PROTOCOL,
    STRATEGIES,
    Member,
    Seen,
    stop_all,
    wait,
)

from barnabas.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.testing import BarnabasBroker

PARTITIONS = 3
KEYS = [b"key-%d" % n for n in range(7)]

every_strategy = pytest.mark.parametrize(
    ("client", "strategy"), STRATEGIES, ids=[f"{client} {strategy}" for client, strategy in STRATEGIES]
)
every_client = pytest.mark.parametrize("client", CLIENTS)


@pytest.fixture
def servers(barnabas_broker):
    return barnabas_broker.bootstrap_servers


@pytest.fixture
def topic(make_topic):
    return make_topic(partitions=PARTITIONS).name


@pytest.fixture
def write(servers, topic):
    """Write rounds of records, one for each key, with values that count up for each key."""
    producer = Producer({"bootstrap.servers": servers})
    written = 0

    def rounds(count):
        nonlocal written
        for _ in range(count):
            for key in KEYS:
                producer.produce(topic, b"%d" % written, key=key)
            written += 1
        assert producer.flush(60) == 0

    return rounds


class Group:
    """The members of one group, and the records that they have read together."""

    def __init__(self, servers, topic, client, strategy):
        self.log: list[Seen] = []
        self.members: list[Member] = []
        self.id = uuid.uuid4().hex
        self._settings = {"servers": servers, "group_id": self.id, "topic": topic, "strategy": strategy}
        self._client = CLIENTS[client]

    def join(self, **settings):
        self.members.append(Member(lambda: self._client(**self._settings, **settings), self.log))
        return self.members[-1]

    def leave(self, member):
        self.members.remove(member)
        member.stop()

    def wait(self, condition):
        wait(condition, *self.members)

    def wait_shares(self, *shares):
        """Wait until all partitions are assigned, with these numbers of partitions in any order."""
        self.wait(lambda: self._shares() == sorted(shares))

    def _shares(self):
        parts = [member.partitions for member in self.members]
        whole = sorted(partition for part in parts for partition in part) == list(range(PARTITIONS))
        return sorted(map(len, parts)) if whole else None

    def read(self, key):
        return [int(seen.value) for seen in self.log if seen.key == key]


@pytest.fixture
def open_group(servers, topic):
    opened = []

    def open_one(client, strategy):
        opened.append(Group(servers, topic, client, strategy))
        return opened[-1]

    yield open_one
    stop_all([member for group in opened for member in group.members])


@every_strategy
def test_three_partitions_feed_three_members_and_the_fourth_is_idle(open_group, client, strategy):
    group = open_group(client, strategy)
    for shares in ([3], [2, 1], [1, 1, 1], [1, 1, 1, 0]):
        group.join()
        group.wait_shares(*shares)
    group.leave(next(member for member in group.members if member.partitions))
    group.wait_shares(1, 1, 1)


@every_strategy
def test_each_key_is_read_once_and_in_order_while_members_come_and_go(open_group, write, client, strategy):
    """Each member commits before it leaves, so the rebalances (eager and cooperative) lose nothing."""
    group = open_group(client, strategy)
    first = group.join()
    write(20)
    group.wait(lambda: len(group.log) > 50)
    group.join()
    write(20)
    group.wait_shares(2, 1)
    write(20)
    group.leave(first)
    write(20)
    group.wait(lambda: len(group.log) >= 80 * len(KEYS))
    for key in KEYS:
        assert group.read(key) == list(range(80))


@every_client
def test_two_groups_each_receive_everything(open_group, write, client):
    groups = [open_group(client, "range"), open_group(client, "roundrobin")]
    write(10)
    groups[0].join()
    groups[1].join()
    groups[1].join()
    for group in groups:
        group.wait(lambda group=group: len(group.log) >= 20 * len(KEYS) // 2)
    for group in groups:
        for key in KEYS:
            assert group.read(key) == list(range(10))


# --- static members ---


def generation(wire, group_id):
    """Return the generation of a classic group: the one in which a member's heartbeat succeeds."""
    (described,) = wire(DescribeGroupsRequest(groups=[group_id])).groups
    assert described.group_state == "Stable"
    member = described.members[0]
    return next(
        number
        for number in range(1, 100)
        if not wire(
            HeartbeatRequest(
                group_id=group_id,
                generation_id=number,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
            )
        ).error_code
    )


def group_epoch(wire, group_id):
    (described,) = wire(ConsumerGroupDescribeRequest(group_ids=[group_id])).groups
    assert described.error_code == 0
    return described.group_epoch


@pytest.mark.parametrize(
    ("client", "strategy", "count"),
    [
        *((client, "range", generation) for client in CLIENTS),
        ("librdkafka", f"{CONSUMER_PROTOCOL}uniform", group_epoch),
    ],
    ids=[*CLIENTS, "librdkafka consumer"],
)
def test_rolling_restart_of_a_static_group_causes_no_rebalance(
    open_group, write, wire, client, strategy, count
):
    group = open_group(client, strategy)
    members = {name: group.join(group_instance_id=name) for name in "abc"}
    group.wait_shares(1, 1, 1)
    before = count(wire, group.id)
    owned = {name: member.partitions for name, member in members.items()}
    for name in "abc":
        write(5)
        group.leave(members[name])
        write(5)
        members[name] = group.join(group_instance_id=name)
        group.wait_shares(1, 1, 1)
    group.wait(lambda: len(group.log) >= 30 * len(KEYS))
    assert count(wire, group.id) == before
    assert {name: member.partitions for name, member in members.items()} == owned
    for key in KEYS:
        assert group.read(key) == list(range(30))


# --- dirty rebalances ---


#: over soon, and longer than a busy machine stands still: a survivor that loses its session reads twice
SESSION_MS = 6000


@pytest.fixture(scope="module")
def impatient_broker():
    """Start a broker on which members of all groups can have a session timeout of `SESSION_MS`."""
    settings = {
        "group.consumer.min.session.timeout.ms": str(SESSION_MS),
        "group.consumer.session.timeout.ms": str(SESSION_MS),
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
    }
    with BarnabasBroker(settings) as broker:
        yield broker


@every_strategy
def test_nothing_is_skipped_when_a_member_is_killed(impatient_broker, client, strategy):
    topic, group_id = f"topic-{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    impatient_broker.create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": impatient_broker.bootstrap_servers})
    each = 1000  # more than it reads while another joins
    for n in range(PARTITIONS * each):
        producer.produce(topic, b"%d" % n, partition=n % PARTITIONS)
    assert producer.flush(60) == 0
    settings = {
        "servers": impatient_broker.bootstrap_servers,
        "group_id": group_id,
        "topic": topic,
        "strategy": strategy,
    }
    if not strategy.startswith(CONSUMER_PROTOCOL):
        settings["session_timeout_ms"] = SESSION_MS
    command = [sys.executable, "-m", "tests.integration.group_members", client, json.dumps(settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        processed = {tuple(map(int, victim.stdout.readline().split())) for _ in range(60)}
        log: list[Seen] = []
        survivor = Member(lambda: CLIENTS[client](**settings), log)
        try:
            wait(lambda: bool(survivor.partitions), survivor)
            victim.kill()
            processed |= {tuple(map(int, line.split())) for line in victim.stdout}
            assert len(processed) < PARTITIONS * each, "it was killed too late to tell"
            everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(each)}
            wait(lambda: processed | {seen[:2] for seen in log} == everything, survivor)
        finally:
            survivor.stop()
    by_partition = defaultdict(list)
    for seen in log:
        by_partition[seen.partition].append(seen.offset)
    for offsets in by_partition.values():
        assert offsets == list(range(offsets[0], each)), "from what was committed to the end, in order"
