"""A share fetch whose connection has ended acquires nothing more."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

from barnabas.broker.server.handlers.share_fetch import _Exchange
from barnabas.broker.sharing.fetch import ShareFetch
from barnabas.broker.sharing.in_flight import Acquired
from barnabas.broker.sharing.sessions import Member, Target
from barnabas.broker.sharing.share_partition import AcquiredRecords, FetchLimits


class Source:
    """A share partition that gets a record after the fetch has begun to wait."""

    def __init__(self):
        self.waiting_fetches = {}
        self.acquired = []
        self.has_record = False

    def wake(self):
        """Try the first fetch in a later turn, as a `SharePartition` does."""
        asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self):
        for fetch in list(self.waiting_fetches):
            fetch.try_now(self)

    def acquire(self, member, limits):
        if not self.has_record:
            return None
        self.acquired.append(member)
        return AcquiredRecords(b"x", [Acquired(0, 0, 1)])


async def ended_while_it_waits():
    source = Source()
    exchange = object.__new__(_Exchange)
    exchange._waits = True
    exchange._request = SimpleNamespace(max_wait_ms=1000)
    exchange.acknowledging = SimpleNamespace(is_stored=True, when_stored=lambda then: then())
    limits = FetchLimits(2**20, True, 500, 0, False)
    partitions = SimpleNamespace(find=lambda *_: source)
    exchange._fetch = ShareFetch(
        Member("g", "a"), [Target(bytes(16), 0)], partitions, lambda _: None, limits, 1
    )
    for _ in exchange._fetch.steps():
        pass
    poll = exchange.answer()
    await asyncio.sleep(0)
    source.has_record = True
    source.wake()  # runs in the same turn as the end of the connection, after it
    poll.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return source.acquired


async def replaced_while_it_waits():
    source, answers = Source(), []
    is_open = [True, True]
    limits = FetchLimits(2**20, True, 500, 0, False)
    partitions = SimpleNamespace(find=lambda *_: source)
    fetches = []
    for number in range(2):
        fetch = ShareFetch(
            Member("g", f"m{number}"),
            [Target(bytes(16), 0)],
            partitions,
            lambda _: None,
            limits,
            is_open=lambda number=number: is_open[number],
        )
        for _ in fetch.steps():
            pass
        fetch.wait(partial(answers.append, number), lambda _: None)
        fetches.append(fetch)
    await asyncio.sleep(0)
    source.has_record, is_open[0] = True, False
    source.wake()
    await asyncio.sleep(0)
    return source.acquired, answers, [len(fetch.results) for fetch in fetches]


def test_share_fetch_of_a_replaced_session_ends_and_leaves_the_records_to_the_next_one():
    """The member opened its session again on another connection. This one may be dead."""
    assert asyncio.run(replaced_while_it_waits()) == (["m1"], [0, 1], [0, 1])


def test_share_fetch_whose_connection_has_ended_acquires_nothing():
    assert asyncio.run(ended_while_it_waits()) == []
