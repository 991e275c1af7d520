"""Compares kept fetches with new ones: any sequence gets the same answers.

Two connections send the same fetches for the same partitions. One keeps a repeated fetch, and the other makes
a new one each time. At the end, no fetch watches the partitions.
"""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation.clocks import ManualClock
from tests.effort import examples
from tests.property.connections import CONFIG, Replicas, Transport, connect
from tests.property.test_plain_append import START, STATES, Replica
from tests.views import view_of

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server.fetching.sessions import FetchSessions
from barnabas.broker.server.handlers.fetch import Ports, fetch
from barnabas.broker.server.requests.api import Begun, Served
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.records import Record, encode_batch

LONG_WORK = LongWork(Environment.of_system())
# on a slow machine, too, a request is appended in one turn
LONG_WORK.now = lambda: 0.0
TOPIC_ID = bytes(range(16))
PARTITIONS = 3
#: frames with a shorter one are too small to be kept
CLIENT_ID = "c" * 600


class World:
    """Partitions, a connection that keeps repeated fetches, and one that does not."""

    def __init__(self) -> None:
        clock = ManualClock(START)
        self.replicas = [Replica(False) for _ in range(PARTITIONS)]
        self.manager = Replicas(
            {"t": {n: each.partition for n, each in enumerate(self.replicas)}}, {"t": TOPIC_ID}
        )
        self.sessions = FetchSessions(10, clock, Random(1))
        self.view = view_of(config=CONFIG, clock=clock)
        loader = SimpleNamespace(in_doubt=lambda partitions: [])
        ports = Ports(
            self.manager,
            self.sessions,
            LONG_WORK,
            None,
            self.view,
            SimpleNamespace(),
            loader,  # type: ignore[arg-type]
        )
        served = fetch.using(ports)
        #: how many requests repeated one that was kept, or began to be kept
        self.kept = 0
        self.sides = [
            connect(Dispatcher({1: each}, LONG_WORK))
            for each in (self._counting(served), Served(fetch, served.handle))
        ]
        self.frame = b""
        self.number = 0

    def _counting(self, served: Served) -> Served:
        direct = served.direct
        assert direct is not None

        def count(*args: Any) -> Any:
            outcome = direct(*args)
            self.kept += isinstance(outcome, Begun)
            return outcome

        return Served(fetch, served.handle, count)

    @property
    def transports(self) -> list[Transport]:
        return [transport for _, transport in self.sides]

    async def do(self, action: tuple[Any, ...]) -> None:
        name, *arguments = action
        getattr(self, name)(*arguments)
        for _ in range(6):
            await asyncio.sleep(0)

    def fetch(self, version: int, lags: list[int], committed: bool, wait_ms: int, min_bytes: int) -> None:
        """Fetch all partitions, from positions that lag their ends."""
        wanted = [
            FetchPartition(
                partition=index,
                fetch_offset=max(replica.log.log_end_offset - lag, 0),
                partition_max_bytes=1 << 20,
            )
            for (index, replica), lag in zip(enumerate(self.replicas), lags, strict=True)
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            isolation_level=int(committed),
            topics=[FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=wanted)],
        )
        header = RequestHeader(1, version, 0, CLIENT_ID)
        self.frame = b"".join(map(bytes, encode_request(header, request)))
        self.repeat(1)

    def repeat(self, times: int) -> None:
        """Send the last request again, with new correlation ids."""
        if not self.frame:
            return
        for _ in range(times):
            self.number += 1
            data = self.frame[:8] + self.number.to_bytes(4) + self.frame[12:]
            for session, _ in self.sides:
                session.data_received(data)

    def each(self, index: int, *action: Any) -> None:
        self.replicas[index].do(action)

    def delete(self, index: int) -> None:
        """Delete a partition, so that later requests do not find it."""
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.manager.found = {
            topic: {n: each for n, each in partitions.items() if n != index}
            for topic, partitions in self.manager.found.items()
        }
        self.replicas[index].partition.close(error)

    def end(self) -> None:
        for session, _ in self.sides:
            session.connection_lost(None)


async def compare(actions: list[tuple[Any, ...]]) -> int:
    """Return the number of requests that began as repeated ones."""
    world = World()
    for action in actions:
        await world.do(action)
        kept, new = world.transports
        assert kept.sent == new.sent, action
        assert kept.is_open and new.is_open
    world.end()
    await world.do(("repeat", 0))
    for replica in world.replicas:
        assert list(replica.partition.watchers) == [replica]
    assert not world.sessions.partitions
    return world.kept


RECORD = encode_batch([Record(b"k", b"v", START)])
INDEX = st.integers(0, PARTITIONS - 1)
FETCH = st.tuples(
    st.just("fetch"),
    st.sampled_from([4, 7, 11, 12, 13]),
    st.one_of(
        st.just([0] * PARTITIONS),
        st.lists(st.sampled_from([0, 0, 0, 1, -1]), min_size=PARTITIONS, max_size=PARTITIONS),
    ),
    st.booleans(),
    st.sampled_from([0, 0, 60_000]),
    st.sampled_from([1, 1, 0, 100]),
)
REPEAT = st.tuples(st.just("repeat"), st.integers(1, 3))
CHANGE = st.one_of(
    st.tuples(st.just("each"), INDEX, st.just("append"), st.just(RECORD), st.just(1)),
    st.tuples(st.just("each"), INDEX, st.just("start_at"), st.integers(0, 2)),
    st.tuples(st.just("each"), INDEX, st.just("lead"), st.sampled_from(STATES), st.sampled_from([0, 1])),
    st.tuples(st.just("each"), INDEX, st.just("follow"), st.integers(0, 1)),
    st.tuples(st.just("delete"), INDEX),
)


@settings(
    max_examples=examples(150, 2000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(st.lists(st.one_of(FETCH, REPEAT, REPEAT, REPEAT, CHANGE), max_size=25))
def test_repeated_fetches_get_the_answers_of_new_ones(actions: list[tuple[Any, ...]]) -> None:
    asyncio.run(compare(actions))


EMPTY = ("fetch", 12, [0] * PARTITIONS, False, 0, 1)
AGAIN = ("repeat", 1)
APPEND = ("each", 0, "append", RECORD, 1)


@pytest.mark.parametrize("version", [4, 11, 13])
def test_fetch_without_records_is_kept_from_its_second_time_on(version: int) -> None:
    idle = ("fetch", version, [0] * PARTITIONS, True, 0, 1)
    assert asyncio.run(compare([idle, AGAIN, AGAIN, AGAIN])) == 3


@pytest.mark.parametrize(
    "change",
    [
        APPEND,
        ("each", 1, "lead", STATES[3], 1),
        ("delete", 2),
    ],
)
def test_change_of_a_partition_is_in_the_next_answer(change: tuple[Any, ...]) -> None:
    asyncio.run(compare([EMPTY, AGAIN, AGAIN, change, AGAIN, AGAIN, AGAIN]))


def test_kept_fetch_that_waits_is_answered_by_the_next_record() -> None:
    async def scenario() -> None:
        world = World()
        for action in [("fetch", 12, [0] * PARTITIONS, False, 60_000, 1), AGAIN, AGAIN]:
            await world.do(action)
        assert not world.transports[0].sent
        await world.do(APPEND)  # answers the first; the second asks for the same records
        kept, new = world.transports
        assert kept.sent and kept.sent == new.sent
        world.end()

    asyncio.run(scenario())


def test_start_of_a_log_that_moves_is_in_the_next_answer() -> None:
    asyncio.run(compare([APPEND, APPEND, EMPTY, AGAIN, AGAIN, ("each", 0, "start_at", 1), AGAIN, AGAIN]))
