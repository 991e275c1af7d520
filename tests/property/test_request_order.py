"""Which requests of a connection begin while earlier ones are unanswered: each pair of APIs, any sequence.

`BESIDE_ITS_LIKE` and `BETWEEN_BROKERS` say here once more what the handlers declare.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.environment.environment import Environment
from barnabas.broker.answers import LongPoll
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.handlers import load
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.session import Session
from barnabas.broker.server.requests.api import Served
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.registry import ApiKey

APIS = load()
CONFIG = BrokerConfig(connections_max_idle_ms=-1)
LONG_WORK = LongWork(Environment.of_system())
#: how a handler answers: a coroutine works on, a future only waits
WORKING, WAITING, POLLING = "working", "waiting", "polling"

#: appended in order, and acknowledged together
BESIDE_ITS_LIKE = {(ApiKey.PRODUCE, WAITING)}
#: one broker's connection has the requests of many clients; AddPartitionsToTxn is a client's up to v3
BETWEEN_BROKERS = {
    (ApiKey.ALTER_PARTITION, 3),
    (ApiKey.ENVELOPE, 0),
    (ApiKey.ALLOCATE_PRODUCER_IDS, 0),
    (ApiKey.GET_REPLICA_LOG_INFO, 0),
    (ApiKey.WRITE_TXN_MARKERS, 2),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 5),
}

REQUESTS = [(key, api.versions[1]) for key, api in APIS.items()] + [(ApiKey.ADD_PARTITIONS_TO_TXN, 3)]


def may_begin_beside(earlier: tuple[int, int], how: str, later: tuple[int, int]) -> bool:
    """The rule, in the words of docs/reference/protocol.md."""
    if earlier[0] != later[0]:
        return False
    return (earlier[0], how) in BESIDE_ITS_LIKE or earlier in BETWEEN_BROKERS


class Transport(asyncio.Transport):
    """Keeps the replies, by the numbers of their requests."""

    def __init__(self) -> None:
        super().__init__()
        self.replied: list[int] = []
        self.is_reading = True

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        data = b"".join(map(bytes, list_of_data))
        while data:
            size, number = struct.unpack_from(">ii", data)
            self.replied.append(number)
            data = data[4 + size :]

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def abort(self) -> None: ...


class Connection:
    """One connection whose handlers the test answers.

    A request takes effect when it is answered; `seen` has by request which effects were there as it began.

    Args:
        requests: all that will be sent, by key and version.
        ways: how each is answered.
    """

    def __init__(self, requests: Sequence[tuple[int, int]], ways: Sequence[str]) -> None:
        self.answers: list[asyncio.Future[Any]] = []
        self.effects: set[int] = set()
        self.seen: list[set[int]] = []
        self._requests = requests
        self._ways = ways
        served = {key: Served(api, lambda _c, _r, api=api: self._handle(api)) for key, api in APIS.items()}
        dispatcher = Dispatcher(served, LONG_WORK)
        host = SimpleNamespace(
            endpoint=Endpoint("TEST", "127.0.0.1", 0),
            config=CONFIG,
            busy_polling=None,
            first_request_bytes=1 << 20,
            begin=lambda: dispatcher.serve,
            admit=lambda session: 0.0,
            forget=lambda session: None,
        )
        self.session = Session(host, 1)
        self.transport = Transport()
        self.session.connection_made(self.transport)

    def _handle(self, api: Any) -> Any:
        number = len(self.seen)
        self.seen.append(set(self.effects))
        if self._ways[number] == POLLING:
            poll: LongPoll[Any] = LongPoll()
            poll.ended_by(lambda: poll.done() or self.answer(number))
            answer: asyncio.Future[Any] = poll
        else:
            answer = asyncio.get_running_loop().create_future()
        self.answers.append(answer)

        async def work() -> Any:
            return await answer

        return work() if self._ways[number] == WORKING else answer

    def answer(self, number: int) -> None:
        self.effects.add(number)
        self.answers[number].set_result(APIS[self._requests[number][0]].response())

    @property
    def pending(self) -> list[int]:
        """The requests that have begun and have no answer."""
        return [number for number, answer in enumerate(self.answers) if not answer.done()]

    def send(self, start: int, end: int) -> None:
        """Send some of the requests in one piece; each has its place for its number."""
        data = bytearray()
        for number in range(start, end):
            key, version = self._requests[number]
            data += b"".join(encode_request(RequestHeader(key, version, number, "c"), APIS[key].request()))
        self.session.data_received(bytes(data))


async def turns(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", [WORKING, WAITING])
def test_of_every_pair_of_apis_the_later_request_begins_when_the_rule_allows_it(how):
    async def scenario():
        wrong = []
        for earlier, later in itertools.product(REQUESTS, REQUESTS):
            pair = f"{APIS[earlier[0]].name} v{earlier[1]}, {APIS[later[0]].name} v{later[1]}"
            connection = Connection([earlier, later], [how, how])
            connection.send(0, 2)
            if (len(connection.seen) == 2) != may_begin_beside(earlier, how, later):
                wrong.append(f"{pair}: {len(connection.seen)} began")
            connection.answer(0)
            await turns()
            if len(connection.seen) < 2:
                wrong.append(f"{pair}: the second never began")
                continue
            connection.answer(1)
            await turns()
            if connection.transport.replied != [0, 1]:
                wrong.append(f"{pair}: replies to {connection.transport.replied}")
        assert not wrong

    asyncio.run(scenario())


def test_a_long_poll_is_answered_when_a_request_of_any_api_comes_behind_it():
    async def scenario():
        for later in REQUESTS:
            connection = Connection([(ApiKey.FETCH, 18), later], [POLLING, WAITING])
            connection.send(0, 2)
            await turns()
            assert connection.seen == [set(), {0}], later

    asyncio.run(scenario())


def test_a_long_poll_waits_on_when_only_what_it_is_patient_with_comes_behind_it():
    async def scenario():
        poll: LongPoll[None] = LongPoll(ApiKey.FETCH)
        poll.ended_by(lambda: poll.set_result(None))
        poll.give_way(ApiKey.FETCH)
        assert not poll.done()
        poll.give_way(ApiKey.METADATA)
        assert poll.done()

    asyncio.run(scenario())


FEW = [(ApiKey.PRODUCE, 9), (ApiKey.FETCH, 12), (ApiKey.OFFSET_COMMIT, 8), (ApiKey.WRITE_TXN_MARKERS, 2)]


@given(
    st.lists(
        st.tuples(st.sampled_from(FEW), st.sampled_from([WORKING, WAITING, POLLING])), min_size=1, max_size=30
    ),
    st.randoms(use_true_random=False),
)
def test_a_request_sees_the_effects_of_all_before_it(sequence, random):
    async def scenario():
        requests, ways = zip(*sequence, strict=True)
        connection = Connection(requests, ways)
        sent = 0
        while len(connection.effects) < len(sequence):
            if sent < len(sequence) and connection.transport.is_reading and random.random() < 0.6:
                more = random.randint(1, len(sequence) - sent)
                connection.send(sent, sent + more)
                sent += more
            if connection.pending:
                connection.answer(random.choice(connection.pending))
            await turns()
        assert connection.transport.replied == list(range(len(sequence)))
        for later, seen in enumerate(connection.seen):
            for earlier in set(range(later)) - seen:
                # A poll is a future, too: a request that only waits.
                how = WORKING if ways[earlier] == WORKING else WAITING
                assert may_begin_beside(requests[earlier], how, requests[later])

    asyncio.run(scenario())
