"""A follower's fetch: the records that it gets, the time of its answer, and its session, which clients cannot
use.
"""

import asyncio
import random
from types import SimpleNamespace

import pytest
from simulation.clocks import ManualClock
from simulation.virtual_time import VirtualTimeLoop

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import is_awaitable
from barnabas.broker.config import BrokerConfig
from barnabas.broker.metrics.traffic import TopicTraffic
from barnabas.broker.replication.throttles import Throttle
from barnabas.broker.server.fetching.sessions import FetchSessions
from barnabas.broker.server.handlers import fetch as handler
from barnabas.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.kafka.security.acls import UNRESTRICTED

FOLLOWER, BROKER_EPOCH = 2, 77
TOPIC = b"t" * 16


class FakeLog:
    """A log with one byte for each offset."""

    def __init__(self):
        self.log_start_offset = self.high_watermark = self.log_end_offset = 0
        self.latest_epoch = 5

    @property
    def last_stable_offset(self):
        return self.high_watermark

    def read(self, offset, max_bytes, bound, min_one, may_wait=True):
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        size = min(max(max_bytes, int(min_one)), bound - offset)
        return SimpleNamespace(chunks=[bytes(size)] if size else [], size=size)


class FakePartition:
    def __init__(self):
        self.unavailable = None
        self.watchers, self.followers = {}, {}
        self.traffic = TopicTraffic()
        self.log = FakeLog()
        self.leader_epoch = 5
        #: by `followed`
        self.noted = []
        #: as of which a log of epoch 4 ends
        self.epoch_4_ends = 10**6
        self.refusal = None
        #: whether a follower that has all moves the high watermark
        self.follower_counts = False
        self.state = SimpleNamespace(replicas=(1, FOLLOWER))
        self.overtaken_by = []

    def overtaken(self, epoch):
        self.overtaken_by.append(epoch)

    def check_leader(self, epoch):
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)

    def followed(self, replica, broker_epoch, offset, log_start):
        if replica != FOLLOWER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.noted.append((broker_epoch, offset))
        if self.follower_counts:
            self.commit(offset)

    def end_offset_for_epoch(self, epoch):
        return (4, self.epoch_4_ends) if epoch == 4 else (5, self.log.log_end_offset)

    def append(self, size):
        self.log.log_end_offset += size
        for follower in self.followers:
            follower.appended(size)

    def commit(self, offset):
        moved = offset - self.log.high_watermark
        self.log.high_watermark = offset
        for watcher in self.watchers:
            watcher.progressed(moved)

    def change(self):
        for watcher in self.watchers:
            watcher.progressed(0)


class Leader:
    """A broker with partitions of one topic, and the requests of a follower in a session of its own."""

    def __init__(self, partitions=1, brokers=(1, FOLLOWER)):
        self.partitions = [FakePartition() for _ in range(partitions)]
        self.sessions = FetchSessions(2, ManualClock(), random.Random(1))
        self.ports = handler.Ports(
            SimpleNamespace(find=lambda topic, index: self.partitions[index]),
            self.sessions,
            SimpleNamespace(slices=slices),
            None,
            SimpleNamespace(config=BrokerConfig(), image=SimpleNamespace(brokers=dict.fromkeys(brokers))),
            SimpleNamespace(leader=Throttle(ManualClock())),
            SimpleNamespace(in_doubt=lambda partitions: []),
        )

    def send(self, wanted=(), session=(0, 0), *, forgotten=(), wait_ms=500, replica=FOLLOWER):
        """Send a fetch of {partition: offset} or of the fields in `wanted`. Return a future of the answer."""
        if not isinstance(wanted, dict):
            wanted = dict(wanted)
        partitions = [
            offset
            if isinstance(offset, FetchPartition)
            else FetchPartition(
                partition=number, fetch_offset=offset, current_leader_epoch=5, partition_max_bytes=1000
            )
            for number, offset in wanted.items()
        ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=replica, replica_epoch=BROKER_EPOCH),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=10_000,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(topic_id=TOPIC, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC, partitions=[p]) for p in forgotten],
        )
        context = SimpleNamespace(api_version=17, access=UNRESTRICTED)
        answer = handler.fetch.handle(self.ports, context, request)
        if is_awaitable(answer):
            return asyncio.ensure_future(answer)
        done = asyncio.get_running_loop().create_future()
        done.set_result(answer)
        return done

    async def open(self, wanted):
        """Return the session that the first fetch opens."""
        return (await self.send(wanted, wait_ms=0)).session_id


async def slices(steps):
    for step in steps:
        yield step


def answered(response):
    """Return the fields of each partition in a response."""
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


def records(response):
    return {index: sum(map(len, data.records)) for index, data in answered(response).items() if data.records}


def run(scenario):
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(scenario)
    finally:
        loop.close()


def test_a_follower_reads_what_is_not_committed_yet():
    async def scenario():
        leader = Leader()
        leader.partitions[0].append(30)
        response = await leader.send({0: 10})
        assert records(response) == {0: 20}
        assert answered(response)[0].high_watermark == 0
        assert leader.partitions[0].noted == [(BROKER_EPOCH, 10)]

    run(scenario())


def test_an_append_answers_a_fetch_that_waits_and_a_moved_high_watermark_does_not():
    async def scenario():
        leader = Leader()
        (partition,) = leader.partitions
        partition.append(10)
        session = await leader.open({0: 0})
        fetch = leader.send({0: 10}, (session, 1))
        partition.commit(10)
        await asyncio.sleep(0.2)
        assert not fetch.done()
        partition.append(5)
        response = await fetch
        assert asyncio.get_running_loop().time() == pytest.approx(0.2)
        assert records(response) == {0: 5}
        assert answered(response)[0].high_watermark == 10

    run(scenario())


def test_a_moved_high_watermark_is_told_when_the_time_is_up():
    async def scenario():
        leader = Leader()
        (partition,) = leader.partitions
        partition.append(10)
        session = await leader.open({0: 0})
        fetch = leader.send({0: 10}, (session, 1))
        partition.commit(10)
        response = await fetch
        assert asyncio.get_running_loop().time() == pytest.approx(0.5)
        assert answered(response)[0].high_watermark == 10
        assert answered(await leader.send({}, (session, 2))) == {}

    run(scenario())


def test_the_watermark_that_a_fetch_moves_is_in_its_own_answer():
    async def scenario():
        leader = Leader()
        (partition,) = leader.partitions
        partition.follower_counts = True
        partition.append(10)
        session = await leader.open({0: 0})
        response = await leader.send({0: 10}, (session, 1))
        assert answered(response)[0].high_watermark == 10
        assert partition.noted == [(BROKER_EPOCH, 0), (BROKER_EPOCH, 10)]

    run(scenario())


def test_a_fetch_that_waits_is_noted_once():
    async def scenario():
        leader = Leader()
        (partition,) = leader.partitions
        fetch = leader.send({0: 0})
        partition.append(10)
        assert records(await fetch) == {0: 10}
        assert partition.noted == [(BROKER_EPOCH, 0)]

    run(scenario())


def test_a_follower_that_diverges_is_told_where_and_has_nothing_noted():
    async def scenario():
        leader = Leader()
        (partition,) = leader.partitions
        partition.append(100)
        partition.epoch_4_ends = 40
        wanted = FetchPartition(
            partition=0, fetch_offset=60, current_leader_epoch=5, last_fetched_epoch=4, partition_max_bytes=9
        )
        data = answered(await leader.send({0: wanted}))[0]
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (4, 40)
        assert not data.records
        assert partition.noted == []

    run(scenario())


@pytest.mark.parametrize("offset", [9, 101])
def test_an_offset_out_of_range_is_refused_with_the_logs_start_and_not_noted(offset):
    async def scenario():
        leader = Leader()
        (partition,) = leader.partitions
        partition.append(100)
        partition.log.log_start_offset = 10
        data = answered(await leader.send({0: offset}))[0]
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert data.log_start_offset == 10
        assert partition.noted == []

    run(scenario())


def test_a_broker_that_holds_no_replica_is_refused():
    """KAFKA-13837."""

    async def scenario():
        leader = Leader(brokers=(1, FOLLOWER, 3))
        leader.partitions[0].append(1)
        data = answered(await leader.send({0: 0}, replica=3))[0]
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not data.records

    run(scenario())


def test_an_older_leader_epoch_is_refused_in_a_session_too():
    """KAFKA-9338: the session knows the follower's epoch."""

    async def scenario():
        leader = Leader()
        (partition,) = leader.partitions
        session = await leader.open({0: 0})
        partition.leader_epoch = 6
        fetch = leader.send({}, (session, 1))
        partition.change()
        assert answered(await fetch)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        again = FetchPartition(partition=0, current_leader_epoch=6, partition_max_bytes=9)
        assert answered(await leader.send({0: again}, (session, 2), wait_ms=0))[0].error_code == 0

    run(scenario())


def test_the_next_fetch_ends_the_one_that_waits_and_is_not_read_for_it():
    """A follower that begins to follow another partition does not wait for the delayed fetch."""

    async def scenario():
        leader = Leader(2)
        leader.partitions[1].append(7)
        session = await leader.open({0: 0})
        waits = leader.send({}, (session, 1))
        await asyncio.sleep(0.1)
        response = await leader.send({1: 0}, (session, 2))
        assert records(response) == {1: 7}
        assert answered(await waits) == {}
        assert asyncio.get_running_loop().time() == pytest.approx(0.1)

    run(scenario())


def test_what_the_follower_forgets_is_not_read():
    async def scenario():
        leader = Leader(2)
        session = await leader.open({0: 0, 1: 0})
        fetch = leader.send({}, (session, 1), forgotten=[1])
        leader.partitions[1].append(10)
        leader.partitions[0].append(10)
        assert records(await fetch) == {0: 10}
        assert not leader.partitions[1].followers
        assert not leader.partitions[1].watchers

    run(scenario())


def test_a_partition_that_the_follower_did_not_take_is_sent_again():
    async def scenario():
        leader = Leader(2)
        leader.partitions[0].append(10)
        session = await leader.open({0: 0, 1: 0})
        leader.partitions[1].append(10)
        assert records(await leader.send({}, (session, 1))) == {0: 10, 1: 10}
        assert records(await leader.send({0: 10}, (session, 2))) == {1: 10}

    run(scenario())


def test_a_follower_has_one_session_which_is_not_one_of_the_clients():
    async def scenario():
        leader = Leader()
        first = await leader.open({0: 0})
        second = await leader.open({0: 0})
        assert len(leader.sessions) == 0
        gone = await leader.send({}, (first, 1))
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(leader.partitions[0].followers) == 1
        stolen = FetchRequest(session_id=second, session_epoch=1)
        with pytest.raises(KafkaError) as refused:
            leader.sessions.resolve(stolen, True)
        assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (await leader.send({}, (second, 2))).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    run(scenario())


def test_who_says_a_number_that_no_broker_has_gets_no_session():
    async def scenario():
        leader = Leader()
        assert (await leader.send({0: 0}, replica=99, wait_ms=0)).session_id == 0
        assert not leader.partitions[0].followers

    run(scenario())


def test_a_thousand_idle_partitions_are_not_read_for_one_that_has_news():
    async def scenario():
        leader = Leader(1000)
        session = await leader.open(dict.fromkeys(range(1000), 0))
        for partition in leader.partitions:
            partition.noted.clear()
        fetch = leader.send({}, (session, 1))
        assert len(leader.sessions._of_replicas[FOLLOWER].ready) == 0
        leader.partitions[500].append(1)
        assert records(await fetch) == {500: 1}
        assert not any(partition.noted for partition in leader.partitions)

    run(scenario())


def test_a_leader_hears_of_a_later_epoch_from_its_replicas_alone():
    async def scenario():
        leader = Leader(brokers=(1, FOLLOWER, 3))
        (partition,) = leader.partitions
        later = FetchPartition(partition=0, current_leader_epoch=6, partition_max_bytes=9)
        partition.refusal = ErrorCode.UNKNOWN_LEADER_EPOCH
        await leader.send({0: later}, replica=3)
        assert partition.overtaken_by == []
        data = answered(await leader.send({0: later}))[0]
        assert (data.error_code, partition.overtaken_by) == (ErrorCode.UNKNOWN_LEADER_EPOCH, [6])

    run(scenario())


def test_a_followers_session_is_by_topic_id_or_by_name_from_its_first_fetch_on():
    async def scenario():
        leader = Leader()
        session = leader.sessions.resolve_replica(
            FetchRequest(session_epoch=0, topics=[named("t")]), False, 2
        )
        assert list(session.targets) == [("t", 0)]
        again = FetchRequest(session_id=session.session_id, session_epoch=1, topics=[named("u")])
        with pytest.raises(KafkaError) as refused:
            leader.sessions.resolve_replica(again, True, 2)
        assert refused.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        leader.sessions.resolve_replica(again, False, 2)
        assert list(session.targets) == [("t", 0), ("u", 0)]
        response = await leader.send({0: 0}, wait_ms=0)
        assert [topic.topic_id for topic in response.responses] == [TOPIC]

    def named(topic):
        return FetchTopic(topic=topic, partitions=[FetchPartition(partition=0)])

    run(scenario())


@pytest.mark.parametrize(("first", "second"), [(9998, 2), (9999, 1), (10_000, 0)])
def test_what_is_left_of_the_answers_size_is_used_to_the_last_byte(first, second):
    async def scenario():
        leader = Leader(2)
        for partition in leader.partitions:
            partition.append(20_000)
        wanted = {
            number: FetchPartition(partition=number, current_leader_epoch=5, partition_max_bytes=size)
            for number, size in ((0, first), (1, 1000))
        }
        expected = {0: first, 1: second} if second else {0: first}
        assert records(await leader.send(wanted)) == expected

    run(scenario())


def test_an_answer_without_records_tells_the_high_watermark_and_a_refusal_tells_none():
    async def scenario():
        leader = Leader(2)
        for partition in leader.partitions:
            partition.append(10)
            partition.commit(7)
        leader.partitions[1].refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answers = answered(await leader.send({0: 10, 1: 10}, wait_ms=0))
        assert [answers[number].high_watermark for number in (0, 1)] == [7, -1]

    run(scenario())
