"""The partitions that a fetch reads: first all, then the changed ones, in steps or at once."""

import random
from types import SimpleNamespace

import pytest
from simulation.clocks import ManualClock
from simulation.faulty_disk import FaultyDisk

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.metrics.traffic import TopicTraffic
from barnabas.broker.server.fetching.fetch import Fetch
from barnabas.broker.server.fetching.sessions import FetchSessions, requested
from barnabas.broker.storage import ColdRead, OpenFiles
from barnabas.broker.storage.open_files import LogFile
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic


class FakePartition:
    """A partition with `end` bytes, one for each offset. It counts its reads."""

    def __init__(self):
        self.unavailable = None
        self.watchers = {}
        self.traffic = TopicTraffic()
        self.visits = 0
        #: the reads that come first, each of the disk
        self.cold = []
        self.reads_waited = 0
        self.log = SimpleNamespace(
            high_watermark=0,
            last_stable_offset=0,
            log_start_offset=0,
            read=self.read,
            aborted_transactions=lambda *_: [],
        )

    def check_leader(self, epoch):
        self.visits += 1

    def read(self, offset, max_bytes, bound, min_one, may_wait=True):
        if self.cold and not may_wait:
            raise self.cold[0]
        self.reads_waited += bool(self.cold)
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
    """Some partitions of one topic, and their sessions."""

    def __init__(self, partitions):
        self.partitions = [FakePartition() for _ in range(partitions)]
        self.replicas = SimpleNamespace(find=lambda topic, index: self.partitions[index])
        self.sessions = FetchSessions(10, ManualClock(), random.Random(1))

    def fetch(self, wanted, *, min_bytes=1, max_bytes=1000, committed=False):
        return Fetch(self.replicas, wanted, min_bytes=min_bytes, max_bytes=max_bytes, committed=committed)

    def session(self):
        """Return a session with all partitions, whose first answer has arrived."""
        session = self.sessions.resolve(request(range(len(self.partitions)), epoch=0), False)
        assert self.fetch(session).attempt(True) is not None
        self.go_on(session)
        return session

    def go_on(self, session, offsets=(), forgotten=()):
        """Send the client's next request."""
        asked = request([], session.session_id, session.epoch, forgotten)
        asked.topics = [
            FetchTopic(topic="t", partitions=[FetchPartition(partition=p, fetch_offset=offset)])
            for p, offset in offsets
        ]
        return self.sessions.resolve(asked, False)

    def visited(self):
        """Return the partitions that were examined since the last call."""
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
    """Return the bytes of each partition in an answer, in its order."""
    return {
        partition.partition_index: sum(map(len, partition.records))
        for topic in response.responses
        for partition in topic.partitions
    }


def answer_of(fetch, final=False):
    """Run the steps of a fetch, and return its answer."""
    if not fetch.is_answered(final):
        return None
    list(fetch.last_steps())
    return fetch.response


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
    assert answer_of(full_fetch) is None
    assert full_fetch.must_run_again()
    assert full_fetch.is_ready(False)


def test_a_leader_that_changes_behind_the_steps_is_seen(broker, full_fetch):
    steps = full_fetch.steps()
    next(steps)
    broker.partitions[0].progress()
    list(steps)
    assert answer_of(full_fetch) is None
    assert full_fetch.must_run_again()


def test_steps_that_missed_nothing_are_not_taken_again(full_fetch):
    list(full_fetch.steps())
    assert answer_of(full_fetch) is None
    assert not full_fetch.must_run_again()


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
    assert sent(answer_of(fetch)) == {2: 10}
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


@pytest.mark.parametrize(("committed", "offset", "stable"), [(True, 0, False), (False, 5, False)])
def test_a_session_does_not_read_again_what_was_read_to_its_readers_bound(broker, committed, offset, stable):
    session = broker.session()
    broker.fetch(session, committed=committed).attempt(True)
    broker.partitions[1].append(5, stable=stable)
    broker.go_on(session, [(1, offset)])
    broker.fetch(session, committed=committed).attempt(True)
    broker.visited()
    broker.go_on(session)
    broker.fetch(session, committed=committed).attempt(True)
    assert broker.visited() == []


def test_the_end_of_a_transaction_lets_out_more_than_its_own_bytes(broker):
    fetch = broker.fetch(list(requested(request([1]))), min_bytes=10, committed=True)
    broker.partitions[1].append(20, stable=False)
    assert fetch.attempt(False) is None
    broker.partitions[1].append(1)
    assert sent(fetch.attempt(False)) == {1: 21}


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


def cold(position=0):
    return ColdRead(LogFile(OpenFiles(FaultyDisk()), "/log"), 100, position)


def test_a_fetch_that_would_wait_for_the_disk_says_for_what_and_answers_for_all_in_order(broker, full_fetch):
    for number in (2, 5, 7):
        broker.partitions[number].append(10)
    broker.partitions[5].cold = [cold()]
    assert full_fetch.attempt(True, may_wait=False) is None
    assert full_fetch.cold_reads == broker.partitions[5].cold
    broker.partitions[5].cold = []
    broker.visited()
    response = full_fetch.attempt(False, may_wait=False)
    assert broker.visited() == [2, 5, 7]
    assert list(sent(response)) == list(range(200))
    assert {number: size for number, size in sent(response).items() if size} == {2: 10, 5: 10, 7: 10}


def test_what_comes_while_the_disk_is_waited_for_is_answered_too(broker, full_fetch):
    broker.partitions[2].append(10)
    broker.partitions[2].cold = [cold()]
    assert full_fetch.attempt(False, may_wait=False) is None
    broker.partitions[3].append(5)
    broker.partitions[2].cold = []
    response = full_fetch.attempt(False, may_wait=False)
    assert {number: size for number, size in sent(response).items() if size} == {2: 10, 3: 5}
    assert not any(partition.watchers for partition in broker.partitions)


def test_what_is_cold_again_is_read_all_the_same(broker):
    fetch = broker.fetch(list(requested(request(range(2)))))
    broker.partitions[1].append(10)
    file = cold().file
    broker.partitions[1].cold = [ColdRead(file, 100, 0)]
    assert fetch.attempt(False, may_wait=False) is None
    broker.partitions[1].cold = [ColdRead(file, 100, 0)]
    assert sent(fetch.attempt(False, may_wait=False)) == {0: 0, 1: 10}
    assert broker.partitions[1].reads_waited == 1


def test_a_fetch_waits_for_some_reads_of_the_disk_at_a_time(broker, full_fetch):
    for partition in broker.partitions:
        partition.append(2)
        partition.cold = [cold()]
    rounds = 0
    while (response := full_fetch.attempt(False, may_wait=False)) is None:
        assert 0 < len(full_fetch.cold_reads) <= 16
        rounds += 1
        for partition in broker.partitions:
            if partition.cold and partition.cold[0] in full_fetch.cold_reads:
                partition.cold = []
    assert rounds == 13
    assert sent(response) == dict.fromkeys(range(200), 2)


def test_partitions_in_memory_do_not_keep_those_on_the_disk_from_their_turn(broker):
    session = broker.session()
    for partition in broker.partitions[:40]:
        partition.append(10)
        partition.cold = [cold()]
    broker.partitions[150].append(10)
    fetch = broker.fetch(session)
    assert fetch.attempt(False, may_wait=False) is None
    for partition in broker.partitions[:16]:
        partition.cold = []
    response = fetch.attempt(False, may_wait=False)
    assert sent(response) == dict.fromkeys([*range(16), 150], 10), "the rest is left to the next answer"
    broker.go_on(session, [(number, 10) for number in sent(response)])
    assert broker.fetch(session).attempt(False, may_wait=False) is None
    assert not any(broker.partitions[number].cold for number in range(16))


def test_steps_leave_the_disk_to_others_too(broker, full_fetch):
    broker.partitions[100].append(10)
    broker.partitions[100].cold = [cold()]
    list(full_fetch.steps())
    assert answer_of(full_fetch, final=True) is None
    assert len(full_fetch.cold_reads) == 1
    broker.partitions[100].cold = []
    list(full_fetch.steps())
    assert sent(answer_of(full_fetch))[100] == 10


def test_bytes_that_were_read_and_not_sent_are_not_counted():
    partition = FakePartition()
    partition.append(10)
    request = FetchRequest(
        max_wait_ms=1000,
        min_bytes=100,
        max_bytes=1000,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
    )
    replicas = SimpleNamespace(find=lambda topic, index: partition)
    fetch = Fetch(replicas, requested(request), min_bytes=100, max_bytes=1000, committed=False)
    assert fetch.attempt(final=False) is None
    assert partition.traffic.bytes_out == 0
    assert fetch.attempt(final=True) is not None
    assert partition.traffic.bytes_out == 10


def test_an_answer_made_in_steps_is_the_same_and_watches_nothing_any_more(broker, full_fetch):
    broker.partitions[70].append(10)
    list(full_fetch.steps())
    assert full_fetch.is_answered(False)
    steps = full_fetch.last_steps()
    next(steps)
    broker.partitions[199].append(5)  # for the next fetch
    assert len(list(steps)) > 5
    response = full_fetch.response
    assert sent(response) == {number: 10 if number == 70 else 0 for number in range(200)}
    assert list(sent(response)) == list(range(200))
    assert len(response.responses) == 1, "a topic is named once"
    assert not any(partition.watchers for partition in broker.partitions)


def test_news_between_the_steps_of_an_answer_are_told_by_the_next_one(broker):
    session = broker.session()
    for partition in broker.partitions:
        partition.progress()
    broker.partitions[0].append(10)
    fetch = broker.fetch(session)
    list(fetch.steps())
    assert fetch.is_answered(False)
    steps = fetch.last_steps()
    next(steps)
    broker.partitions[1].append(5)
    broker.partitions[190].append(6)
    list(steps)
    assert sent(fetch.response) == {0: 10}
    broker.go_on(session, [(0, 10)])
    assert sent(broker.fetch(session).attempt(False)) == {1: 5, 190: 6}


@pytest.mark.parametrize("offset", [-1, 4])
@pytest.mark.parametrize("is_in_doubt", [True, False])
def test_former_leader_in_doubt_does_not_say_that_an_offset_after_its_end_is_out_of_range(
    offset, is_in_doubt
):
    """The leader's log may reach further. A client would begin again at the start, and repeat its work."""
    broker = Broker(1)
    partition = broker.partitions[0]
    partition.topic_partition, log = TopicPartition("t", 0), partition.log

    def read(offset, *_):
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    log.read, log.log_end_offset = read, 3
    asked = request([0])
    asked.topics[0].partitions[0].fetch_offset = offset
    fetch = Fetch(
        broker.replicas,
        requested(asked),
        min_bytes=1,
        max_bytes=100,
        committed=True,
        is_in_doubt=lambda asked: is_in_doubt and asked == ("t", 0),
    )
    (topic,) = fetch.attempt(True).responses
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if offset > 3 and is_in_doubt else ErrorCode.OFFSET_OUT_OF_RANGE
    assert topic.partitions[0].error_code == code


def test_a_fetch_that_is_given_up_between_its_steps_watches_nothing_any_more(broker, full_fetch):
    steps = full_fetch.steps()
    next(steps)
    assert any(partition.watchers for partition in broker.partitions)
    full_fetch.close()
    assert not any(partition.watchers for partition in broker.partitions)
