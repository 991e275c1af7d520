"""A fetch that is made in steps, between which partitions go on."""

from types import SimpleNamespace

from barnabas.server.fetching.fetch import Fetch


class FakePartition:
    def __init__(self):
        self.state = object()
        self.unavailable = None
        self.committed_bytes = 0
        self.log = SimpleNamespace(high_watermark=0, last_stable_offset=0, log_start_offset=0)

    def check_leader(self, epoch):
        pass


def begun_fetch():
    partitions = [FakePartition() for _ in range(200)]
    targets = [
        SimpleNamespace(
            topic="t", index=i, max_bytes=100, offset=0, current_leader_epoch=-1, last_fetched_epoch=-1
        )
        for i in range(200)
    ]
    replicas = SimpleNamespace(find=lambda topic, index: partitions[index])
    fetch = Fetch(replicas, targets, None, min_bytes=1, max_bytes=1000, committed=False)
    return fetch, fetch.steps(), partitions


def test_what_comes_behind_the_steps_is_not_slept_through():
    fetch, steps, partitions = begun_fetch()
    next(steps)
    partitions[0].committed_bytes = 10
    list(steps)
    assert fetch.outcome(False) is None
    assert fetch.has_moved()
    assert fetch.is_due(False)


def test_a_leader_that_changes_behind_the_steps_is_seen():
    fetch, steps, partitions = begun_fetch()
    next(steps)
    partitions[0].state = object()
    list(steps)
    assert fetch.outcome(False) is None
    assert fetch.has_moved()


def test_steps_that_missed_nothing_are_not_taken_again():
    fetch, steps, _ = begun_fetch()
    list(steps)
    assert fetch.outcome(False) is None
    assert not fetch.has_moved()
