"""Compares the direct function of Produce with the handler: any sequence of requests gets the same answers.

Two connections send the same bytes. For one of them, the direct function answers where possible. For the
other one, only the handler answers. Answers, files and the state in memory must be equal, byte for byte.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.property.connections import Replicas, connect, damaged_frame
from tests.property.test_plain_append import ME, OTHER, START, STATES, Producer, Replica, damaged, varied
from tests.property.test_plain_append import SETTINGS as ALL_SETTINGS
from tests.views import view_of

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage, PartitionState, TopicImage
from barnabas.broker.server.handlers.produce import Ports, produce
from barnabas.broker.server.requests.api import Served
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import Record, encode_batch

LONG_WORK = LongWork(Environment.of_system())
# on a slow machine, too, a request is appended in one turn
LONG_WORK.now = lambda: 0.0
#: the timer of flush.ms must not fire between two connections on a slow machine
SETTINGS = [each | {"flush_ms": 3_600_000} if "flush_ms" in each else each for each in ALL_SETTINGS]
INTERNAL = "__consumer_offsets"
#: the topic of the replicas, one that does not exist, and one that no client may write to
TOPICS = {"t": bytes(range(16)), "u": bytes(range(1, 17)), INTERNAL: bytes(range(2, 18))}
PARTITIONS = 3
#: the other broker leads all partitions, which a response says after NOT_LEADER_OR_FOLLOWER (KIP-951)
LED_BY_THE_OTHER = ClusterImage(
    brokers={OTHER: BrokerImage(OTHER, (BrokerEndpoint("TEST", "other", 9092),))},
    topics={
        "t": TopicImage("t", TOPICS["t"], (PartitionState((ME, OTHER), (OTHER,), OTHER, 7),) * PARTITIONS)
    },
    topic_names={TOPICS["t"]: "t"},
)
VERSIONS = range(ProduceRequest.versions[0], ProduceRequest.versions[1] + 1)


class Side:
    """One broker with one connection."""

    def __init__(self, *, is_direct: bool) -> None:
        led = [Replica(False) for _ in range(PARTITIONS)]
        internal = Replica(False)
        internal.partition.topic_partition = TopicPartition(INTERNAL, 0)
        clock = internal.clock
        self.replicas = [*led, internal]
        self.manager = Replicas(
            {
                "t": {number: each.partition for number, each in enumerate(led)},
                INTERNAL: {0: internal.partition},
            },
            TOPICS,
        )
        ports = Ports(self.manager, None, LONG_WORK, view_of(LED_BY_THE_OTHER, clock=clock))  # type: ignore[arg-type]
        served = produce.using(ports)
        #: how many requests were answered directly
        self.direct = 0
        served = self._counting(served) if is_direct else Served(produce, served.handle)
        dispatcher = Dispatcher({0: served}, LONG_WORK)
        self.session, self.transport = connect(dispatcher)

    def _counting(self, served: Served) -> Served:
        direct = served.direct
        assert direct is not None

        def count(*args: Any) -> Any:
            outcome = direct(*args)
            self.direct += type(outcome) is bytes
            return outcome

        return Served(produce, served.handle, count)

    async def do(self, action: tuple[str, Any]) -> Any:
        name, *arguments = action
        if name == "send":
            self.session.data_received(arguments[0])
            outcome = None
        else:
            outcome = [each.do((name, *arguments)) for each in self.replicas]
        for _ in range(4):
            await asyncio.sleep(0)
        return outcome, self.transport.sent, self.transport.is_open

    def facts(self) -> list[dict[str, Any]]:
        return [each.facts() for each in self.replicas]


def frame(
    version: int,
    topics: list[tuple[str, list[tuple[int, bytes | None]]]],
    *,
    acks: int = -1,
    number: int = 1,
    client_id: str | None = "c",
    transactional_id: str | None = None,
) -> bytes:
    """Return the bytes of a request. Each topic has its batches by partition."""
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=TOPICS[name],
                partition_data=[PartitionProduceData(index=index, records=batch) for index, batch in batches],
            )
            for name, batches in topics
        ],
    )
    return b"".join(map(bytes, encode_request(RequestHeader(0, version, number, client_id), request)))


def drawn_frame(draw: Any, producers: dict[int, Producer], number: int) -> bytes:
    topics = []
    for _ in range(draw(st.sampled_from([1] * 8 + [0, 2]))):
        name = draw(st.sampled_from(["t"] * 10 + ["u", INTERNAL]))
        batches: list[tuple[int, bytes | None]] = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3, 0]))):
            index = draw(st.sampled_from([0, 0, 0, 1, 2, 9, -1]))
            batch = damaged(draw, varied(draw, producers)) if draw(st.integers(0, 15)) < 15 else None
            batches.append((index, batch))
        topics.append((name, batches))
    whole = frame(
        draw(st.sampled_from([7, 9, 12, 13, *VERSIONS])),
        topics,
        acks=draw(st.sampled_from([-1] * 6 + [1] * 6 + [0, 2])),
        number=number,
        client_id=draw(st.sampled_from(["c"] * 6 + [None, "", "d\n"])),
    )
    return damaged_frame(draw, whole)


CHANGES = st.one_of(
    st.tuples(st.just("configure"), st.one_of(st.just({}), st.sampled_from(SETTINGS))),
    st.tuples(st.just("advance"), st.sampled_from([1, 300, 3000])),
    st.tuples(st.just("lead"), st.sampled_from(STATES), st.sampled_from([0, 1, 1])),
    st.tuples(st.just("follow"), st.integers(0, 3)),
    st.tuples(st.just("mark"), st.sampled_from([1, 2]), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("flush")),
)


@st.composite
def actions(draw: Any) -> list[tuple[str, Any]]:
    producers = {number: Producer(number) for number in (1, 2)}
    found: list[tuple[str, Any]] = [("configure", draw(st.sampled_from([{}, {}, *SETTINGS])))]
    number = 0
    for _ in range(draw(st.sampled_from([12, 3]))):
        if draw(st.integers(0, 4)) == 4:
            found.append(draw(CHANGES))
            continue
        frames = []
        for _ in range(draw(st.integers(1, 5))):
            number += 1
            frames.append(drawn_frame(draw, producers, number))
        found.append(("send", b"".join(frames)))
    return found


async def compare(sequence: list[tuple[str, Any]]) -> int:
    """Return the number of requests that the direct function answered."""
    direct, general = Side(is_direct=True), Side(is_direct=False)
    for action in sequence:
        outcomes = await direct.do(action), await general.do(action)
        assert outcomes[0] == outcomes[1], action
        if not direct.transport.is_open:
            break
        assert direct.facts() == general.facts(), action
        assert direct.manager.noted == general.manager.noted, action
    for one, other in zip(direct.replicas, general.replicas, strict=True):
        assert one.files() == other.files()
    for side in (direct, general):
        side.session.connection_lost(None)
    return direct.direct


@settings(
    max_examples=examples(150, 2000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(actions())
def test_requests_answered_from_their_bytes_get_the_answers_of_the_handler(
    sequence: list[tuple[str, Any]],
) -> None:
    asyncio.run(compare(sequence))


def batch(sequence: int = -1, value: bytes = b"v") -> bytes:
    fields = {} if sequence < 0 else {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence}
    return encode_batch([Record(b"k", value, START)], **fields)


@pytest.mark.parametrize("version", range(5, VERSIONS.stop))
@pytest.mark.parametrize("acks", [1, -1])
def test_ordinary_requests_are_answered_from_their_bytes(version: int, acks: int) -> None:
    every = [(index, batch()) for index in range(PARTITIONS)]
    first = frame(version, [("t", every)], acks=acks)
    many = frame(version, [("t", every * 50)], acks=acks, number=2)
    one = [frame(version, [("t", [(0, batch())])], acks=acks, number=number) for number in range(3, 9)]
    idempotent = [frame(version, [("t", [(1, batch(number))])], acks=acks) for number in range(4)]
    large = frame(version, [("t", [(2, batch(value=bytes(20_000)))])], acks=acks)

    async def count(*sent: bytes) -> int:
        return await compare([("send", data) for data in sent])

    # the first batch of a log, and of a producer, is the handler's
    assert asyncio.run(count(first, many)) == 1
    assert asyncio.run(count(first, *one)) == 6
    assert asyncio.run(count(first, b"".join(one))) == 6
    assert asyncio.run(count(first, *idempotent)) == 3
    assert asyncio.run(count(first, b"".join(idempotent))) == 3
    assert asyncio.run(count(first, large)) == 1


@pytest.mark.parametrize("version", [7, 13])
def test_request_goes_on_in_the_handler_from_its_first_batch_that_is_not_plain(version: int) -> None:
    every = [(index, batch()) for index in range(PARTITIONS)]
    first = frame(version, [("t", every)])

    async def count(*actions: tuple[str, Any]) -> int:
        return await compare([("send", first), *actions])

    strange = [(0, batch()), (1, batch()[:-1] + b"x"), (2, batch()), (9, batch()), (0, batch())]
    assert asyncio.run(count(("send", frame(version, [("t", strange)])))) == 0
    # a follower has to have the records before they are acknowledged
    waiting = [("lead", STATES[1], 0), ("send", frame(version, [("t", every)]) * 3), ("follow", 0)]
    assert asyncio.run(count(*waiting, ("follow", 0))) == 0


@pytest.mark.parametrize("version", [9, 10, 13])
def test_leader_that_is_replaced_before_the_acknowledgement_names_the_next_one(version: int) -> None:
    first = ("send", frame(version, [("t", [(0, batch())])]))
    waiting = ("send", frame(version, [("t", [(0, batch())])], number=2))
    replaced = [first, ("lead", STATES[1], 0), waiting, ("lead", STATES[3], 1)]

    async def reply() -> bytes:
        await compare(replaced)
        side = Side(is_direct=True)
        sent = [(await side.do(action))[1] for action in replaced]
        side.session.connection_lost(None)
        assert sent[1] == sent[2]  # a follower has to have the records
        return sent[3][len(sent[2]) :]

    response = parse_response(RequestHeader(0, version, 2, "c"), asyncio.run(reply())[4:])
    (result,) = response.responses[0].partition_responses
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    expected = (OTHER, 7) if version >= 10 else (-1, -1)
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == expected
    named = [(each.node_id, each.host, each.port) for each in response.node_endpoints]
    assert named == ([(OTHER, "other", 9092)] if version >= 10 else [])


def test_requests_behind_one_that_waits_keep_their_order() -> None:
    mixed = [frame(7, [("t", [(index % 2, batch())])], number=index) for index in range(20)]

    async def scenario() -> None:
        first = ("send", frame(7, [("t", [(0, batch()), (1, batch())])]))
        await compare(
            [first, ("lead", STATES[1], 0), ("send", b"".join(mixed)), ("follow", 0), ("follow", 0)]
        )

    asyncio.run(scenario())


def test_disk_that_fails_gives_the_errors_of_the_handler() -> None:
    every = [(index, batch()) for index in range(PARTITIONS)]

    async def scenario() -> None:
        first, again = ("send", frame(9, [("t", every)])), ("send", frame(9, [("t", every)], number=2))
        await compare([first, ("fail", 28, 0), again, ("fail", 5, 0), again, again])

    asyncio.run(scenario())
