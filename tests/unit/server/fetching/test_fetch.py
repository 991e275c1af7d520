"""Which partitions a fetch reads: all at first, then those that have had news, in steps or at once."""

import random
from types import SimpleNamespace

import pytest

from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.server.fetching.fetch import Fetch
from barnabas.server.fetching.sessions import FetchSessions, requested
from barnabas.simulation.clocks import ManualClock


class FakePartition:
    """Holds `end` bytes, one of them for each offset; counts how often it is read."""

    def __init__(self):
        self.unavailable = None
        self.watchers = {}
        self.visits = 0
        self.log = SimpleNamespace(high_watermark=0, last_stable_offset=0, log_start_offset=0, read=self.read)

    def check_leader(self, epoch):
        self.visits += 1

    def read(self, offset, max_bytes, bound, min_one):
        size = min(max(max_bytes, int(min_one)), bound - offset)
        return SimpleNamespace(chunks=[bytes(size)] if size else [], size=size)

    def append(self, size, stable=True):
        self.log.high_watermark += size
        if stable:
            self.log.last_stable_offset = self.log.high_watermark
        self.progress(size)

    def progress(self, new_bytes=0):
        for watcher in self.watchers:
            watcher.progressed(new_bytes)


class Broker:
    """Some partitions of one topic, and the sessions with it."""

    def __init__(self, partitions):
        self.partitions = [FakePartition() for _ in range(partitions)]
        self.replicas = SimpleNamespace(find=lambda topic, index: self.partitions[index])
        self.sessions = FetchSessions(10, ManualClock(), random.Random(1))

    def fetch(self, wanted, *, min_bytes=1, max_bytes=1000, committed=False):
        return Fetch(self.replicas, wanted, min_bytes=min_bytes, max_bytes=max_bytes, committed=committed)

    def session(self):
        """A session with all partitions, whose first answer has come."""
        session = self.sessions.resolve(request(range(len(self.partitions)), epoch=0), False)
        assert self.fetch(session).attempt(True) is not None
        self.go_on(session)
        return session

    def go_on(self, session, offsets=(), forgotten=()):
        """The client's next request."""
        asked = request([], session.session_id, session.epoch, forgotten)
        asked.topics = [
            FetchTopic(topic="t", partitions=[FetchPartition(partition=p, fetch_offset=offset)])
            for p, offset in offsets
        ]
        return self.sessions.resolve(asked, False)

    def visited(self):
        """The partitions that were looked at since the last call."""
        visited = [number for number, partition in enumerate(self.partitions) if partition.visits]
        for partition in self.partitions:
            partition.visits = 0
        return visited


def request(partitions, session_id=0, epoch=-1, forgotten=()):
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[FetchPartition(partition=p, partition_max_bytes=100) for p in partitions],
            )
        ],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))],
    )


def sent(response):
    """The bytes of each partition in an answer, in its order."""
    return {
        partition.partition_index: sum(map(len, partition.records))
        for topic in response.responses
        for partition in topic.partitions
    }


@pytest.fixture
def broker():
    return Broker(200)


@pytest.fixture
def full_fetch(broker):
    return broker.fetch(list(requested(request(range(200)))))


def test_what_comes_behind_the_steps_is_not_slept_through(broker, full_fetch):
    steps = full_fetch.steps()
    next(steps)
    broker.partitions[0].append(10)
    list(steps)
    assert full_fetch.outcome(False) is None
    assert full_fetch.has_moved()
    assert full_fetch.is_due(False)


def test_a_leader_that_changes_behind_the_steps_is_seen(broker, full_fetch):
    steps = full_fetch.steps()
    next(steps)
    broker.partitions[0].progress()
    list(steps)
    assert full_fetch.outcome(False) is None
    assert full_fetch.has_moved()


def test_steps_that_missed_nothing_are_not_taken_again(full_fetch):
    list(full_fetch.steps())
    assert full_fetch.outcome(False) is None
    assert not full_fetch.has_moved()


def test_a_wake_up_reads_the_partition_that_woke_it_and_answers_for_all(broker, full_fetch):
    assert full_fetch.attempt(False) is None
    broker.visited()
    broker.partitions[7].append(10)
    response = full_fetch.attempt(False)
    assert broker.visited() == [7]
    assert sent(response) == {number: 10 if number == 7 else 0 for number in range(200)}
    assert list(sent(response)) == list(range(200))


def test_a_fetch_that_ends_watches_nothing_any_more(broker, full_fetch):
    assert full_fetch.attempt(False) is None
    assert full_fetch.attempt(True) is not None
    assert not any(partition.watchers for partition in broker.partitions)


def test_records_that_are_too_few_are_read_again_when_they_are_enough(broker):
    fetch = broker.fetch(list(requested(request(range(3)))), min_bytes=25)
    broker.partitions[1].append(10)
    assert fetch.attempt(False) is None
    broker.visited()
    broker.partitions[2].append(10)
    assert fetch.attempt(False) is None
    assert broker.visited() == []
    broker.partitions[1].append(5)
    assert sent(fetch.attempt(False)) == {0: 0, 1: 15, 2: 10}
    assert broker.visited() == [1, 2]


def test_a_session_reads_what_has_news_since_its_last_answer(broker):
    session = broker.session()
    broker.visited()
    broker.partitions[3].append(10)
    fetch = broker.fetch(session)
    assert sent(fetch.attempt(False)) == {3: 10}
    assert broker.visited() == [3]
    broker.go_on(session, [(3, 10)])
    fetch = broker.fetch(session)
    assert fetch.attempt(False) is None
    assert broker.visited() == [3]
    broker.partitions[5].append(1)
    assert sent(fetch.attempt(False)) == {5: 1}
    assert broker.visited() == [5]


def test_a_session_sends_again_what_its_client_does_not_go_on_from(broker):
    session = broker.session()
    broker.partitions[3].append(10)
    assert sent(broker.fetch(session).attempt(False)) == {3: 10}
    broker.go_on(session)
    assert sent(broker.fetch(session).attempt(False)) == {3: 10}


def test_partitions_that_do_not_fit_wait_for_their_turn_and_cost_nothing(broker):
    session = broker.session()
    for partition in broker.partitions:
        partition.append(100)
    broker.visited()
    seen = []
    offsets = []
    for _ in range(20):
        seen += sent(broker.fetch(session, max_bytes=1000).attempt(False))
        assert len(broker.visited()) == 10
        offsets = [(number, 100) for number in seen[-10:]]
        broker.go_on(session, offsets)
        for number, _ in offsets:
            broker.partitions[number].append(100)
    assert seen == list(range(200))


def test_news_between_a_steps_read_and_the_answer_are_told_by_the_next_one(broker):
    session = broker.session()
    broker.partitions[1].progress()
    broker.partitions[2].append(10)
    fetch = broker.fetch(session)
    list(fetch.steps())
    broker.partitions[1].append(5)
    assert sent(fetch.outcome(False)) == {2: 10}
    broker.go_on(session, [(2, 10)])
    assert sent(broker.fetch(session).attempt(False)) == {1: 5}


def test_what_a_waiting_fetch_was_not_answered_is_told_to_the_next_one(broker):
    session = broker.session()
    fetch = broker.fetch(session, min_bytes=100)
    broker.partitions[1].append(5)
    assert fetch.attempt(False) is None
    fetch.close()  # its client has gone
    broker.go_on(session)
    assert sent(broker.fetch(session).attempt(False)) == {1: 5}


def test_a_session_that_reads_committed_records_is_told_of_the_high_watermark(broker):
    session = broker.session()
    broker.partitions[1].append(5, stable=False)
    assert sent(broker.fetch(session, committed=True).attempt(True)) == {1: 0}
    broker.go_on(session)
    assert sent(broker.fetch(session, committed=True).attempt(True)) == {}
    broker.go_on(session)
    assert sent(broker.fetch(session).attempt(False)) == {1: 5}, "uncommitted records may go on"


def test_forgotten_partitions_and_closed_sessions_watch_nothing(broker):
    session = broker.session()
    assert all(partition.watchers for partition in broker.partitions)
    broker.go_on(session, forgotten=range(100))
    assert [bool(partition.watchers) for partition in broker.partitions] == [False] * 100 + [True] * 100
    broker.sessions.resolve(request([], session.session_id, -1), False)
    assert not any(partition.watchers for partition in broker.partitions)


def test_a_partition_that_comes_again_is_looked_up_again(broker):
    session = broker.session()
    gone = broker.partitions[1]
    broker.partitions[1] = FakePartition()
    gone.unavailable = Exception()
    gone.progress()
    assert sent(broker.fetch(session).attempt(True)) == {}
    broker.go_on(session)
    broker.partitions[1].append(5)
    assert sent(broker.fetch(session).attempt(False)) == {1: 5}
    assert not gone.watchers
