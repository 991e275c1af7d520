"""A leader in doubt answers when all possible new leaders have fetched from it (ADR 15)."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import pytest
from simulation.clocks import ManualClock
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.server.fetching.read_index import ROUNDS, ReadIndex
from barnabas.broker.server.fetching.sessions import FetchSessions
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

TOPIC_ID = b"t" * 16
PLACE = TopicPartition("t", 0)
EPOCH = 5
#: five fetches that wait for 0.5 s, the default of ``replica.fetch.wait.max.ms``
PATIENCE = 2.5


class FakePartition:
    """A partition that is led in `EPOCH`. The other two of its three replicas can be elected."""

    def __init__(self, successors=(2, 3)):
        self.log = SimpleNamespace(topic_id=TOPIC_ID)
        self.topic_partition = PLACE
        self.leader_epoch = EPOCH
        self.unavailable = None
        self.is_leader = True
        self.successors = successors
        self.watchers = {}

    def check_leader(self, epoch):
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def resign(self):
        self.is_leader = False
        for watcher in self.watchers:
            watcher.progressed(0)


class Broker:
    """The leader, and its followers' fetches."""

    def __init__(self, partition):
        self.sessions = FetchSessions(10, ManualClock(), random.Random(1))
        self.index = ReadIndex(
            SimpleNamespace(find=lambda topic, number: partition),
            self.sessions,
            view_of(),
        )

    def confirm(self):
        return self.index.confirm([PLACE])

    def begin(self, follower, epoch=EPOCH):
        """Send a follower's first fetch, which names the partition."""
        return self._fetch(follower, epoch=epoch, begins=True)

    def fetch(self, follower, times=1, **options):
        for _ in range(times):
            self._fetch(follower, **options)

    def _fetch(self, follower, epoch=None, begins=False, forgets=False):
        session = None if begins else self.sessions.of_replica(follower)
        partition = FetchPartition(partition=0, current_leader_epoch=EPOCH if epoch is None else epoch)
        names = begins or epoch is not None
        request = FetchRequest(
            session_id=0 if session is None else session.session_id,
            session_epoch=0 if session is None else session.epoch,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])] if names else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC_ID, partitions=[0])] if forgets else [],
        )
        return self.sessions.resolve_replica(request, True, follower)


async def soon():
    await asyncio.sleep(0.01)


def play(scenario):
    def test():
        async def run():
            partition = FakePartition()
            broker = Broker(partition)
            for follower in partition.successors:
                broker.begin(follower)
                broker.fetch(follower, 5)
            await scenario(broker, partition)

        run_virtual(run())

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


@play
async def test_answer_waits_for_fetches_of_all_who_could_have_been_elected(broker, partition):
    confirming = broker.confirm()
    broker.fetch(2, ROUNDS)
    await soon()
    assert not confirming.done()
    broker.fetch(3, ROUNDS)
    await soon()
    assert confirming.result() is True


@play
async def test_fetch_that_may_have_been_sent_before_the_question_proves_nothing(broker, partition):
    """Two fetches can be in flight, and the follower may have been elected after it sent them."""
    confirming = broker.confirm()
    broker.fetch(2, ROUNDS)
    broker.fetch(3, ROUNDS - 1)
    await soon()
    assert not confirming.done()


@play
async def test_follower_that_follows_no_more_proves_nothing(broker, partition):
    confirming = broker.confirm()
    broker.fetch(2, ROUNDS)
    broker.fetch(3, forgets=True)
    broker.fetch(3, ROUNDS)
    await soon()
    assert not confirming.done()


@play
async def test_fetch_in_another_leader_epoch_proves_nothing(broker, partition):
    confirming = broker.confirm()
    broker.fetch(2, ROUNDS)
    broker.fetch(3, epoch=EPOCH - 1)
    broker.fetch(3, ROUNDS)
    await soon()
    assert not confirming.done()


@play
async def test_session_that_begins_anew_is_counted_from_its_beginning(broker, partition):
    broker.fetch(3, 50)
    confirming = broker.confirm()
    broker.fetch(2, ROUNDS)
    broker.begin(3)
    broker.fetch(3, ROUNDS - 1)
    await soon()
    assert not confirming.done()
    broker.fetch(3)
    await soon()
    assert confirming.done()


@play
async def test_next_question_needs_fetches_of_its_own(broker, partition):
    first = broker.confirm()
    broker.fetch(2, ROUNDS)
    broker.fetch(3, ROUNDS)
    await soon()
    assert first.done()
    second = broker.confirm()
    await soon()
    assert not second.done()


@play
async def test_question_is_refused_when_its_time_is_over(broker, partition):
    confirming = broker.confirm()
    broker.fetch(2, ROUNDS)
    await asyncio.sleep(PATIENCE - 0.1)
    assert not confirming.done()
    await asyncio.sleep(0.2)
    with pytest.raises(KafkaError) as refused:
        confirming.result()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@play
async def test_question_is_refused_as_soon_as_the_leadership_ends(broker, partition):
    confirming = broker.confirm()
    partition.resign()
    await soon()
    with pytest.raises(KafkaError) as refused:
        confirming.result()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@play
async def test_leader_without_possible_successors_has_nothing_to_wait_for(broker, partition):
    partition.successors = ()
    assert broker.confirm() is None


@play
async def test_partition_that_is_not_led_here_is_left_to_the_handler(broker, partition):
    partition.is_leader = False
    assert broker.confirm() is None


@play
async def test_parked_fetches_are_answered_at_once_only_until_the_question_is(broker, partition):
    parked = []
    session = broker.sessions.of_replica(2)
    session.parked = SimpleNamespace(expire=lambda: parked.append("expired"))
    broker.confirm()
    assert parked == ["expired"]
    hurried = []
    for _ in range(ROUNDS + 1):
        broker.fetch(2)
        hurried.append(session.is_hurried)
    assert hurried == [True] * (ROUNDS - 1) + [False] * 2
