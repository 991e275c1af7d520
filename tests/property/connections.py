"""A connection to a dispatcher without a network, and the partitions of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicKey
from barnabas.broker.config import BrokerConfig
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.session import ClientSession
from barnabas.broker.server.network.turns import Turns
from barnabas.broker.server.requests.dispatch import Dispatcher

CONFIG = BrokerConfig(node_id=1, connections_max_idle_ms=-1)


class Replicas:
    """The partitions of some topics (`ReplicaManager`).

    Args:
        topics: the partitions of each topic, by their indexes.
        ids: the ids of the topics.
    """

    def __init__(self, topics: Mapping[str, Mapping[int, Partition]], ids: Mapping[str, bytes]) -> None:
        self.found: dict[TopicKey, Mapping[int, Partition]] = dict(topics)
        self.found.update((ids[name], partitions) for name, partitions in topics.items())
        self.noted: list[Any] = []

    def partitions_of(self, topic: TopicKey) -> Mapping[int, Partition]:
        return self.found.get(topic, {})

    def find(self, topic: TopicKey, index: int) -> Partition:
        try:
            return self.found[topic][index]
        except KeyError:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None

    def note_rejected(self, topic: TopicKey, index: int, records: Any, code: ErrorCode) -> None:
        self.noted.append((topic, index, bytes(records), code))


class Transport(asyncio.Transport):
    """A transport that keeps the sent data."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_open = True

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        self.sent += b"".join(map(bytes, list_of_data))

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.is_open = False

    abort = close


def host_of(dispatcher: Dispatcher, now: Callable[[], float] = lambda: 0.0) -> Any:
    """Return a listener whose sessions the dispatcher serves. `now` is the clock that divides turns."""
    return SimpleNamespace(
        endpoint=Endpoint("TEST", "127.0.0.1", 0),
        config=CONFIG,
        busy_polling=None,
        turns=Turns(now),
        first_request_bytes=1 << 20,
        begin=lambda: dispatcher.serve,
        admit=lambda session: 0.0,
        forget=lambda session: None,
        close_log=SimpleNamespace(line=lambda host, reason, now: None),
    )


def connect(dispatcher: Dispatcher, host: Any = None) -> tuple[ClientSession, Transport]:
    """Return a session that the dispatcher serves, and the transport to which it sends."""
    session, transport = ClientSession(host or host_of(dispatcher), 1), Transport()
    session.connection_made(transport)
    return session, transport


def damaged_frame(draw: DrawFn, frame: bytes) -> bytes:
    """Return a request frame, rarely with another byte, or shorter, or longer."""
    how = draw(st.sampled_from(["whole"] * 30 + ["flip", "cut", "more"]))
    content = frame[4:]
    if how == "flip":
        place = draw(st.integers(0, len(content) - 1))
        content = content[:place] + bytes([content[place] ^ draw(st.integers(1, 255))]) + content[place + 1 :]
    elif how == "cut":
        content = content[: draw(st.integers(0, len(content) - 1))]
    elif how == "more":
        content += draw(st.binary(min_size=1, max_size=3))
    return len(content).to_bytes(4) + content
