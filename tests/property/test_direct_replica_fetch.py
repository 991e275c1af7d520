"""Compares the direct function of Fetch with the handler: any sequence of a follower's fetches gets the same.

Two brokers get the same bytes. On one of them, the direct function answers where possible. On the other one,
only the handler answers. Answers, sessions and the state of the partitions must be equal, byte for byte.
"""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation.virtual_time import run_virtual
from tests.effort import examples
from tests.property.connections import Replicas, connect, damaged_frame
from tests.property.test_plain_append import ME, OTHER, START, STATES, Replica

from barnabas.base.environment.environment import Environment
from barnabas.broker.config import BrokerConfig
from barnabas.broker.replication.fetch_layout import SessionLayout, UsualFetch
from barnabas.broker.replication.throttles import Throttle
from barnabas.broker.server.fetching import direct as direct_fetches
from barnabas.broker.server.fetching.sessions import FetchSessions
from barnabas.broker.server.handlers.fetch import Ports, fetch
from barnabas.broker.server.requests.api import Begun, Served
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.storage import Origin
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.kafka.records import Record, encode_batch

LONG_WORK = LongWork(Environment.of_system())
#: partition by index; the last one is of another topic
PARTITIONS = [("t", 0), ("t", 1), ("u", 0)]
TOPICS = {"t": bytes(range(16)), "u": bytes(range(1, 17))}
FOLLOWED = ((ME, OTHER), (ME, OTHER), ME)
#: the state of a partition in a follower's session
FACTS = ("key", "offset", "max_bytes", "current_leader_epoch", "last_fetched_epoch", "high_watermark")
FACTS += ("log_start_offset", "is_new", "replica_start")
#: the broker epoch of the follower, and its time limit in milliseconds
BROKER_EPOCH, WAIT_MS = 10 + OTHER, 500


class Side:
    """One broker with a connection of its follower, and another connection."""

    def __init__(self, *, is_direct: bool) -> None:
        self.parts = [Replica(False) for _ in PARTITIONS]
        found: dict[str, dict[int, Any]] = {"t": {}, "u": {}}
        for (topic, index), each in zip(PARTITIONS, self.parts, strict=True):
            each.partition.watchers.clear()
            each.partition.followers.clear()
            each.lead(FOLLOWED, 1)
            found[topic][index] = each.partition
        self.manager = Replicas(found, TOPICS)
        clock = self.parts[0].clock
        self.sessions = FetchSessions(10, clock, random.Random(1))
        self.throttle = Throttle(clock)
        self.view = SimpleNamespace(
            config=BrokerConfig(node_id=ME), image=SimpleNamespace(brokers=dict(self.parts[0].brokers))
        )
        ports = Ports(
            self.manager,  # type: ignore[arg-type]
            self.sessions,
            LONG_WORK,
            None,  # type: ignore[arg-type]
            self.view,  # type: ignore[arg-type]
            SimpleNamespace(leader=self.throttle),  # type: ignore[arg-type]
            SimpleNamespace(in_doubt=lambda partitions: []),  # type: ignore[arg-type]
        )
        served = fetch.using(ports)
        #: how many requests the direct function has answered, or will answer
        self.direct = 0
        served = self._counting(served) if is_direct else Served(fetch, served.handle)
        dispatcher = Dispatcher({1: served}, LONG_WORK)
        self.connections = [connect(dispatcher) for _ in range(2)]

    def _counting(self, served: Served) -> Served:
        direct = served.direct
        assert direct is not None

        def count(*args: Any) -> Any:
            outcome = direct(*args)
            self.direct += outcome is not None and not isinstance(outcome, Begun)
            return outcome

        return Served(fetch, served.handle, count)

    async def do(self, action: tuple[str, Any]) -> Any:
        name, *arguments = action
        outcome = None
        if name == "send":
            place, data = arguments
            self.connections[place][0].data_received(data)
        elif name == "sleep":
            await asyncio.sleep(arguments[0])
        elif name == "hurry":
            session = self.sessions.of_replica(OTHER)
            if session is not None:
                session.hurry(arguments[0])
        elif name == "throttle":
            self.throttle.set_rate(arguments[0])
            self.throttle.set_throttled("t", (0, 1))
        elif name == "limit":
            self.view.config = BrokerConfig(node_id=ME, fetch_max_bytes=arguments[0])
        elif name == "forget":
            self.view.image.brokers.pop(OTHER, None)
        else:
            place, *rest = arguments
            outcome = self.parts[place].do((name, *rest))
        for _ in range(6):
            await asyncio.sleep(0)
        return outcome

    def facts(self) -> Any:
        session = self.sessions.of_replica(OTHER)
        told = None
        if session is not None:
            told = session.epoch, [each.key for each in session.ready], len(session._fetches)
            told += tuple([getattr(target, name) for name in FACTS] for target in session.targets.values())
        followers = [
            (each.end, each.log_start, each.broker_epoch, each.leader_end)
            for part in self.parts
            for each in part.partition.progress
        ]
        sent = [(transport.sent, transport.is_open) for _, transport in self.connections]
        return sent, told, followers, [each.facts() for each in self.parts]


def append(part: Replica, count: int, size: int) -> Any:
    records = [Record(None, bytes(size), START)] * count
    return tuple(part.partition.append(encode_batch(records), 1, Origin.CLIENT))


Replica.put = append  # type: ignore[attr-defined]


class Follower:
    """Knows what a follower of the partitions would send next."""

    def __init__(self) -> None:
        self.ends = [0] * len(PARTITIONS)
        self.epochs = [1] * len(PARTITIONS)
        #: the leader epoch of the last record
        self.latest = [-1] * len(PARTITIONS)
        self.session_id = 0
        self.epoch = 0
        self.named: set[int] = set()
        self.number = 0


FIRST_SESSION = FetchSessions(10, SimpleNamespace(), random.Random(1))._new_id()  # type: ignore[arg-type]


def drawn_fetch(draw: Any, state: Follower, ends: list[int]) -> bytes:
    usual = draw(st.integers(0, 7)) > 0
    version = 17 if usual else draw(st.sampled_from([15, 16, 17, 18]))
    state.number += 1
    if not state.epoch or (not usual and draw(st.booleans())):
        state.epoch, state.named = 0, set()
        chosen = list(range(len(PARTITIONS)))[: draw(st.integers(1, 3))]
    else:
        chosen = sorted(draw(st.sets(st.sampled_from(range(len(PARTITIONS))), max_size=2)))
        chosen = [each for each in chosen if not usual or each in state.named]
    topics: dict[str, FetchTopic] = {}
    for each in chosen:
        topic, index = PARTITIONS[each]
        how = draw(st.sampled_from(["all"] * 6 + ["behind", "again", "beyond", "epoch", "last"]))
        offset = {"behind": max(ends[each] - 1, 0), "again": state.ends[each], "beyond": ends[each] + 5}.get(
            how, ends[each]
        )
        state.ends[each] = offset
        wanted = FetchPartition(
            partition=index,
            current_leader_epoch=state.epochs[each]
            + (draw(st.sampled_from([1, -1, 7])) if how == "epoch" else 0),
            fetch_offset=offset,
            last_fetched_epoch=draw(st.integers(-1, 3)) if how == "last" else state.latest[each],
            log_start_offset=draw(st.sampled_from([0, 0, 0, -1, 1])),
            partition_max_bytes=draw(st.sampled_from([1 << 20] * 4 + [100, 0, -1])),
        )
        part = topics.setdefault(topic, FetchTopic(topic_id=TOPICS[topic], topic=topic, partitions=[]))
        part.partitions.append(wanted)
        state.named.add(each)
    request = FetchRequest(
        replica_state=ReplicaState(
            replica_id=OTHER if usual else draw(st.sampled_from([OTHER, 9, -1])),
            replica_epoch=BROKER_EPOCH - (draw(st.integers(0, 12)) == 12),
        ),
        max_wait_ms=draw(st.sampled_from([WAIT_MS] * 8 + [0, 30])),
        min_bytes=draw(st.sampled_from([1] * 10 + [0, 200])),
        max_bytes=draw(st.sampled_from([1 << 20] * 6 + [100, 0])),
        session_id=FIRST_SESSION if state.epoch else 0,
        session_epoch=state.epoch if usual else draw(st.sampled_from([state.epoch, state.epoch + 1, -1])),
        topics=list(topics.values()),
    )
    if not usual and draw(st.booleans()):
        request.forgotten_topics_data = [ForgottenTopic(topic_id=TOPICS["t"], topic="t", partitions=[1])]
    state.epoch += 1
    header = RequestHeader(1, version, state.number, draw(st.sampled_from(["c"] * 8 + [None, ""])))
    frame = b"".join(map(bytes, encode_request(header, request)))
    return damaged_frame(draw, frame)


@st.composite
def actions(draw: Any) -> list[tuple[Any, ...]]:
    state = Follower()
    ends = [0] * len(PARTITIONS)
    found: list[tuple[Any, ...]] = []
    place = st.sampled_from(range(len(PARTITIONS)))
    for _ in range(draw(st.sampled_from([30, 10]))):
        kind = draw(st.sampled_from(["send"] * 8 + ["put"] * 6 + ["sleep"] * 2 + ["other"]))
        if kind == "send":
            connection = 0 if draw(st.integers(0, 9)) else 1
            found.append(("send", connection, drawn_fetch(draw, state, ends)))
        elif kind == "put":
            each, count = draw(place), draw(st.integers(1, 2))
            found.append(("put", each, count, draw(st.sampled_from([10, 10, 300, 1500]))))
            ends[each] += count
            state.latest[each] = state.epochs[each]
        elif kind == "sleep":
            found.append(("sleep", draw(st.sampled_from([0.01, 0.4, 0.6]))))
        else:
            each = draw(place)
            other = draw(st.integers(0, 6))
            if other == 0:
                found.append(("hurry", draw(st.integers(0, 2))))
            elif other == 1:
                found.append(("throttle", draw(st.sampled_from([100, 2**63 - 1]))))
            elif other == 2:
                found.append(("limit", draw(st.sampled_from([1024, 1 << 20]))))
            elif other == 3:
                epochs = draw(st.sampled_from([0, 1]))
                state.epochs[each] += epochs
                found.append(("lead", each, draw(st.sampled_from(STATES)), epochs))
            elif other == 4:
                found.append(("start_at", each, draw(st.integers(0, 1))))
            elif other == 5:
                found.append(("follow", each, 0))
            else:
                found.append(draw(st.sampled_from([("forget",), ("fail", each, 5, 0), ("flush", each)])))
    return found


def compare(sequence: list[tuple[Any, ...]]) -> int:
    """Return the number of requests that the direct function answered."""

    async def run() -> int:
        direct, general = Side(is_direct=True), Side(is_direct=False)
        for action in sequence:
            outcomes = await asyncio.gather(direct.do(action), general.do(action))
            assert outcomes[0] == outcomes[1], action
            assert direct.facts() == general.facts(), action
            if not all(transport.is_open for _, transport in direct.connections):
                break
        for side in (direct, general):
            for session, _ in side.connections:
                session.connection_lost(None)
        assert direct.facts() == general.facts()
        return direct.direct

    return run_virtual(run())


@settings(
    max_examples=examples(80, 2000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(actions())
def test_fetches_answered_from_their_bytes_get_the_answers_of_the_handler(
    sequence: list[tuple[Any, ...]],
) -> None:
    compare(sequence)


def opening(partitions: int = len(PARTITIONS)) -> bytes:
    """Return the frame of the request that opens the session."""
    topics = [
        FetchTopic(
            topic_id=TOPICS[topic], partitions=[FetchPartition(partition=index, current_leader_epoch=1)]
        )
        for topic, index in PARTITIONS[:partitions]
    ]
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=OTHER, replica_epoch=BROKER_EPOCH),
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        session_epoch=0,
        topics=topics,
    )
    return b"".join(map(bytes, encode_request(RequestHeader(1, 17, 1, "c"), request)))


def usual(epoch: int, **ends: int) -> bytes:
    """Return the frame of a usual request; `ends` are log ends by topic, of each topic's first partition."""
    layout = SessionLayout(b"c", OTHER, BROKER_EPOCH, FIRST_SESSION, (WAIT_MS, 1, 1 << 20))
    positions = [(TOPICS[topic], 0, 1, end, 1 if end else -1, 0, 1 << 20) for topic, end in ends.items()]
    return UsualFetch(layout, epoch, positions).encode(epoch)


def test_usual_fetches_are_answered_from_their_bytes() -> None:
    sequence = [
        ("send", 0, opening()),
        ("sleep", 0.01),
        ("send", 0, usual(1)),  # there is nothing: it waits
        ("put", 0, 1, 10),  # it is answered
        ("send", 0, usual(2, t=1)),  # the high watermark moves
        ("put", 2, 1, 10),
        ("put", 0, 1, 10),
        ("send", 0, usual(3, t=2, u=1)),
        ("sleep", 1.0),  # the time limit
        ("put", 0, 1, 10),
        ("send", 0, usual(4)),  # there are records already
        ("send", 0, usual(5, t=3)),
        ("send", 1, usual(6)),  # over another connection; the handler ends the wait of the other one first
    ]
    assert compare(sequence) == 5


def test_usual_fetch_goes_on_in_the_handler_when_it_meets_something_unusual() -> None:
    start = [("send", 0, opening()), ("put", 0, 1, 10), ("put", 2, 1, 10)]
    diverging = usual(1, t=1, u=0)
    assert compare([*start, ("lead", 0, FOLLOWED, 1), ("send", 0, diverging)]) == 0
    waiting = [*start, ("send", 0, usual(1, t=1, u=1))]
    for event in (
        ("lead", 0, FOLLOWED, 1),
        ("lead", 0, STATES[3], 1),
        ("throttle", 100),
        ("start_at", 0, 0),
        ("hurry", 1),
    ):
        after = [("put", 0, 1, 10), ("sleep", 1.0), ("send", 0, usual(2, t=2)), ("sleep", 1.0)]
        assert compare([*waiting, event, *after]) >= 1


@pytest.mark.parametrize("partitions", [1, 3])
def test_connection_that_ends_leaves_the_session_as_it_was(partitions: int) -> None:
    compare([("send", 0, opening(partitions)), ("sleep", 1.0), ("send", 0, usual(1)), ("sleep", 0.01)])


def test_response_with_too_many_partitions_is_the_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_fetches, "MAX_PARTITIONS", 1)
    start = [("send", 0, opening()), ("put", 0, 1, 10)]
    one = [("send", 0, usual(1, t=1)), ("put", 1, 1, 10), ("put", 2, 1, 10)]
    assert compare([*start, *one, ("sleep", 1.0), ("send", 0, usual(2)), ("sleep", 1.0)]) == 1
