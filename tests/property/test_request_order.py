"""The requests of a connection that may begin while earlier ones are unanswered: each pair of APIs, any
sequence.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.connections import host_of

from barnabas.base.environment.environment import Environment
from barnabas.broker.awaitables import LongPoll, SecondPhase
from barnabas.broker.server.handlers import load
from barnabas.broker.server.network.session import ClientSession
from barnabas.broker.server.network.turns import SLICE
from barnabas.broker.server.requests.api import Served
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import BETWEEN_BROKERS
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.kafka.protocol.messages.fetch import FetchRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.kafka.protocol.messages.produce import ProduceRequest
from barnabas.kafka.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

APIS = load()
LONG_WORK = LongWork(Environment.of_system())
#: how a handler answers: a coroutine works on, a future only waits, an acknowledgement is all that is missing
WORKING, WAITING, ACKNOWLEDGING, POLLING = "working", "waiting", "acknowledging", "polling"
WAYS = [WORKING, WAITING, ACKNOWLEDGING, POLLING]

#: AddPartitionsToTxn is a client's up to v3
REQUESTS = [(key, api.versions[1]) for key, api in APIS.items()] + [(AddPartitionsToTxnRequest.api_key, 3)]
PRODUCE, FETCH, METADATA = ProduceRequest.api_key, FetchRequest.api_key, MetadataRequest.api_key


def test_only_a_produce_is_acknowledged_in_a_second_phase():
    assert [api.name for api in APIS.values() if api.has_second_phase] == ["Produce"]


def is_of_brokers(key: int, version: int) -> bool:
    """Return whether only a broker may send such requests, on one connection for many clients."""
    needs = APIS[key].needs
    if key == AddPartitionsToTxnRequest.api_key:
        return version >= 4
    return needs == (BETWEEN_BROKERS,) or key == WriteTxnMarkersRequest.api_key


def may_begin_beside(earlier: tuple[int, int], how: str, later: tuple[int, int]) -> bool:
    """Return whether a request may begin beside an earlier one, by the rule in docs/reference/protocol.md."""
    return earlier[0] == later[0] and (how == ACKNOWLEDGING or is_of_brokers(*earlier))


class Transport(asyncio.Transport):
    """A transport that keeps the replies by the numbers of their requests."""

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

    A request takes effect with its answer. `seen` has, for each request, the effects that existed at its
    start.

    Args:
        requests: all requests, by key and version.
        ways: the way in which each request is answered.
        now: the clock that divides requests among turns of the event loop.
    """

    def __init__(
        self,
        requests: Sequence[tuple[int, int]],
        ways: Sequence[str],
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.answers: list[asyncio.Future[Any]] = []
        self.effects: set[int] = set()
        self.seen: list[set[int]] = []
        self._requests = requests
        self._ways = ways
        served = {key: Served(api, lambda _c, _r, api=api: self._handle(api)) for key, api in APIS.items()}
        dispatcher = Dispatcher(served, LONG_WORK)
        self.session = ClientSession(host_of(dispatcher, now), 1)
        self.transport = Transport()
        self.session.connection_made(self.transport)

    def _handle(self, api: Any) -> Any:
        number = len(self.seen)
        self.seen.append(set(self.effects))
        if self._ways[number] == POLLING:
            poll: LongPoll[Any] = LongPoll()
            poll.ended_by(lambda: poll.done() or self.answer(number))
            answer: asyncio.Future[Any] = poll
        elif self._ways[number] == ACKNOWLEDGING:
            answer = SecondPhase()
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
        """Return the requests that have begun and have no answer."""
        return [number for number, answer in enumerate(self.answers) if not answer.done()]

    def send(self, start: int, end: int) -> None:
        """Send some of the requests in one write. Their positions are their correlation ids."""
        data = bytearray()
        for number in range(start, end):
            key, version = self._requests[number]
            data += b"".join(encode_request(RequestHeader(key, version, number, "c"), APIS[key].request()))
        self.session.data_received(bytes(data))


async def turns(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", [WORKING, WAITING, ACKNOWLEDGING])
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
            connection = Connection([(FETCH, 18), later], [POLLING, WAITING])
            connection.send(0, 2)
            await turns()
            assert connection.seen == [set(), {0}], later

    asyncio.run(scenario())


def test_a_long_poll_waits_on_when_only_what_it_is_patient_with_comes_behind_it():
    async def scenario():
        poll: LongPoll[None] = LongPoll(FETCH)
        poll.ended_by(lambda: poll.set_result(None))
        poll.give_way(FETCH)
        assert not poll.done()
        poll.give_way(METADATA)
        assert poll.done()

    asyncio.run(scenario())


class Jumps:
    """A clock by which requests take very different times, so that slices end at random requests."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = 0.0

    def __call__(self) -> float:
        self._now += self._random.choice([0.0, 0.0, SLICE / 2, 2 * SLICE])
        return self._now


FEW = [(PRODUCE, 9), (FETCH, 12), (OffsetCommitRequest.api_key, 8), (WriteTxnMarkersRequest.api_key, 2)]


@given(
    st.lists(st.tuples(st.sampled_from(FEW), st.sampled_from(WAYS)), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_a_request_sees_the_effects_of_all_before_it(sequence, random):
    async def scenario():
        requests, ways = zip(*sequence, strict=True)
        connection = Connection(requests, ways, Jumps(random))
        sent = 0
        while len(connection.effects) < len(sequence):
            if sent < len(sequence) and connection.transport.is_reading and random.random() < 0.6:
                more = random.randint(1, len(sequence) - sent)
                connection.send(sent, sent + more)
                sent += more
            if connection.pending:
                connection.answer(random.choice(connection.pending))
            await turns(random.randint(1, 6))
        await turns()
        assert connection.transport.replied == list(range(len(sequence)))
        for later, seen in enumerate(connection.seen):
            for earlier in set(range(later)) - seen:
                assert may_begin_beside(requests[earlier], ways[earlier], requests[later])

    asyncio.run(scenario())
