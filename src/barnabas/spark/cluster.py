"""A cluster as a reading process knows it: its brokers, who leads what, and a connection to each leader."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from barnabas.base.errors import ErrorCode
from barnabas.base.types import BrokerId, Offset, TopicId, TopicPartition
from barnabas.client.connection import Connection, Repeated
from barnabas.client.errors import AuthenticationError, ClientError, error_code
from barnabas.client.offset_requests import by_partition, offsets_request
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.spark.fetch_settings import FetchSettings


class Topic(NamedTuple):
    """What metadata says of a topic."""

    error: ErrorCode
    topic_id: TopicId
    #: by partition; -1 where there is none now
    leaders: dict[int, BrokerId]


def id_as_text(topic_id: TopicId) -> str:
    """As Kafka's tools write it, and checkpoints have it."""
    return base64.b64encode(topic_id).decode().rstrip("=")


def id_from_text(text: str) -> TopicId:
    """The inverse of `id_as_text`."""
    return base64.b64decode(text + "==")


class _Lookup:
    """A question for topics, and what was answered last."""

    def __init__(self, names: frozenset[str] | None) -> None:
        self.names = names
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in sorted(names)]
        self.question = Repeated(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        self.decoded: MetadataResponse | None = None
        self.topics: Mapping[str, Topic] = {}

    def take(self, answer: MetadataResponse) -> None:
        """`topics` stays the object that it is unless they have changed: an answer also tells of brokers."""
        self.decoded = answer
        topics = {
            each.name: Topic(
                error_code(each.error_code),
                each.topic_id,
                {partition.partition_index: partition.leader_id for partition in each.partitions},
            )
            for each in answer.topics
            if each.name is not None
        }
        if topics != self.topics:
            self.topics = topics


class Cluster:
    """Owned by one thread. Leaders have connections of their own, which may wait for records meanwhile.

    Raises:
        ClientError: a broker, or any of them, does not answer; it may the next time.
        AuthenticationError: it answers that it does not trust us, or is not trusted.
    """

    def __init__(self, settings: FetchSettings) -> None:
        self.settings = settings
        self._addresses: dict[BrokerId, tuple[str, int]] = {}
        self._connections: dict[BrokerId, Connection] = {}
        self._entry: Connection | None = None
        self._lookup: _Lookup | None = None

    def topics(self, names: Collection[str] | None) -> Mapping[str, Topic]:
        """These topics, or all, as they are now; the same object as before when nothing has changed."""
        wanted = None if names is None else frozenset(names)
        if self._lookup is None or self._lookup.names != wanted:
            self._lookup = _Lookup(wanted)
        entry = self._enter()
        try:
            entry.send_again(self._lookup.question)
            answer = entry.receive_again(self._lookup.question)
            if not answer.brokers:  # it has just started; that it has no topics either says nothing
                raise ClientError(f"the broker at {entry.address} knows of no brokers yet")
        except ClientError:
            entry.close()
            self._entry = None
            raise
        if answer is not self._lookup.decoded:
            self._addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
            self._lookup.take(answer)
        return self._lookup.topics

    def leader(self, node: BrokerId) -> Connection:
        """The connection to a broker that `topics` has named; one that is open outlives its broker's name."""
        if node not in self._connections:
            if node not in self._addresses:
                raise ClientError(f"broker {node} is not there")
            self._connections[node] = self._connect(*self._addresses[node])
        return self._connections[node]

    def leave(self, node: BrokerId) -> None:
        """Close the connection to a leader, if there is one; the next use opens a new one."""
        if (connection := self._connections.pop(node, None)) is not None:
            connection.close()

    def offset(self, tp: TopicPartition, node: BrokerId, which: int) -> tuple[ErrorCode, Offset]:
        """An end of a partition's log by its leader's word: `EARLIEST`, or `LATEST` that a reader may see."""
        request = offsets_request({tp: which}, committed=self.settings.read_committed)
        ((_, found),) = by_partition(self.leader(node).ask(request))
        return error_code(found.error_code), found.offset

    def close(self) -> None:
        """Close every connection."""
        for node in list(self._connections):
            self.leave(node)
        if self._entry is not None:
            self._entry.close()

    def _enter(self) -> Connection:
        """The connection for questions that any broker answers."""
        failure = ClientError("no server is named")
        for address in self._candidates() if self._entry is None else ():
            try:
                self._entry = self._connect(*address)
                break
            except AuthenticationError:
                raise
            except ClientError as error:
                failure = error
        if self._entry is None:
            raise failure
        return self._entry

    def _candidates(self) -> Iterator[tuple[str, int]]:
        yield from dict.fromkeys((*self._addresses.values(), *self.settings.servers))

    def _connect(self, host: str, port: int) -> Connection:
        settings = self.settings
        return Connection(
            host, port, settings.timeout_s, client_id=settings.client_id, security=settings.security
        )
