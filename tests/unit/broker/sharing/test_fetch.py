"""A share fetch that waits for bytes of many share partitions: each step asks only a few of them."""

from __future__ import annotations

from barnabas.broker.sharing.fetch import ShareFetch
from barnabas.broker.sharing.in_flight import Acquired
from barnabas.broker.sharing.sessions import Member, Target
from barnabas.broker.sharing.share_partition import AcquiredRecords, FetchLimits

STEP = 64


class Source:
    """A share partition with some bytes. It notes each call."""

    def __init__(self, calls):
        self.waiting_fetches = {}
        self.bytes = 0
        self._calls = calls

    def wake(self):
        for fetch in list(self.waiting_fetches):
            fetch.try_now(self)

    def available_bytes(self, max_bytes):
        self._calls.append("count")
        return self.bytes

    def acquire(self, member, limits):
        self._calls.append("acquire")
        size, self.bytes = self.bytes, 0
        return AcquiredRecords(bytes(size), [Acquired(0, size - 1, 1)]) if size else None


class Waiting:
    """A fetch of 1,000 share partitions, and its calls to them."""

    def __init__(self, min_bytes=100):
        self.calls = []
        self.sources = [Source(self.calls) for _ in range(1000)]
        self.fetch = ShareFetch(
            Member("g", "a"),
            [Target(bytes(16), number) for number in range(1000)],
            self,
            lambda _: None,
            FetchLimits(2**20, True, 500, 0, False),
            min_bytes,
        )
        self.is_answered = False
        #: how many calls each step had
        self.steps = []
        self.left = []
        self.run(self.fetch.steps())

    def find(self, group, topic_id, partition):
        return self.sources[partition]

    def wait(self):
        self.fetch.wait(self._answer, self.left.append)
        self.run_left()

    def run_left(self):
        self._note()
        while self.left:
            self.run(self.left.pop())

    def run(self, steps):
        for _ in steps:
            self._note()
        self._note()

    def change(self, number, size):
        """Give a share partition other bytes, and let it tell the fetch."""
        self.sources[number].bytes = size
        result = self.fetch.try_now(self.sources[number])
        self._note()
        return result

    @property
    def got(self):
        return [len(each.records) for each in self.fetch.results]

    def _answer(self):
        self.is_answered = True
        self.fetch.leave()

    def _note(self):
        self.steps.append(len(self.calls))
        self.calls.clear()


def test_a_changed_share_partition_is_the_only_one_that_tells_its_bytes():
    waiting = Waiting()
    waiting.wait()
    waiting.steps.clear()
    assert not waiting.change(500, 60)
    assert not waiting.change(700, 30)
    assert waiting.steps == [1, 1]
    waiting.change(900, 10)
    waiting.run_left()
    assert waiting.got == [60, 30, 10] and waiting.is_answered


def test_no_step_asks_more_than_a_few_share_partitions():
    waiting = Waiting()
    waiting.wait()
    waiting.change(999, 60)
    waiting.fetch.end_wait()
    waiting.run_left()
    assert waiting.got == [60] and waiting.is_answered
    assert sum(waiting.steps) > 3000
    assert max(waiting.steps) <= STEP + 1


def test_bytes_that_another_member_has_acquired_do_not_count():
    waiting = Waiting()
    waiting.wait()
    waiting.change(1, 60)
    waiting.sources[1].bytes = 0
    waiting.change(2, 60)
    waiting.run_left()
    assert not waiting.is_answered and waiting.sources[2].bytes == 60
    waiting.change(1, 40)
    waiting.run_left()
    assert waiting.got == [40, 60]


def test_bytes_that_come_while_a_fetch_begins_to_wait_count():
    waiting = Waiting()
    waiting.sources[3].bytes = 100
    waiting.wait()
    assert waiting.got == [100] and waiting.is_answered


def test_a_fetch_whose_client_has_gone_acquires_nothing_more():
    waiting = Waiting()
    waiting.wait()
    waiting.sources[999].bytes = 60
    waiting.fetch.end_wait()
    waiting.fetch.leave()
    waiting.run_left()
    assert waiting.sources[999].bytes == 60 and not waiting.is_answered


def test_a_share_partition_that_ends_ends_the_wait_once():
    waiting = Waiting()
    waiting.wait()
    waiting.sources[0].bytes = 60
    waiting.fetch.end_wait()
    waiting.fetch.failed(waiting.sources[999], None)
    assert waiting.is_answered
    waiting.is_answered = False
    waiting.run_left()
    assert waiting.got == [60, 0] and not waiting.is_answered


def test_bytes_that_come_while_a_fetch_has_found_none_to_acquire_count():
    waiting = Waiting()
    waiting.wait()
    waiting.sources[0].acquire = lambda member, limits: None  # other members have acquired them meanwhile
    waiting.change(0, 100)
    del waiting.sources[0].acquire
    waiting.change(0, 100)
    waiting.run_left()
    assert waiting.got == [100] and waiting.is_answered
