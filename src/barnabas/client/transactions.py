"""Transactions as an administrator sees them (KIP-664): listed, described, and ended when they hang.

librdkafka has no calls for these, so they are asked in the protocol itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from barnabas.client.addresses import parse_servers
from barnabas.client.connection import Connection
from barnabas.client.errors import ClientError, error_code
from barnabas.client.reach import require_broker
from barnabas.client.servers import security_for
from barnabas.client.settings import DEFAULT_BOOTSTRAP
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.schema import Request
from barnabas.types import TopicPartition

_TRANSACTIONAL_ID = 1


@dataclass(frozen=True, slots=True, order=True)
class TransactionListing:
    """A transactional id, and the broker that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """What the coordinator knows; `started_ms` is None where no transaction has begun."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer that a partition's leader remembers; `transaction_start` is None without an open one."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int | None


class Transactions:
    """The transactions of one cluster. Close it, or use it in a with block.

    Raises (every method):
        KafkaError: a broker refused, with its code.
        ClientError: a broker does not answer within `timeout` seconds.
    """

    def __init__(self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, *, timeout: float = 15.0) -> None:
        require_broker(bootstrap_servers)
        self._timeout = timeout
        self._security = security_for(bootstrap_servers)
        self._open = ExitStack()
        self._connections: dict[tuple[str, int], Connection] = {}
        self._entry = self._first(bootstrap_servers)

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- what there is ---

    def listings(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers: in one of `states`, of one of the producers, open for longer
        than so many milliseconds, and matching a regular expression; what is not given lets all pass."""
        request = ListTransactionsRequest(
            state_filters=[*states],
            producer_id_filters=[*producer_ids],
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        found = []
        for node_id, connection in self._brokers():
            response = connection.ask(request)
            _check(response.error_code)
            if response.unknown_state_filters:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"unknown states: {', '.join(response.unknown_state_filters)}"
                )
            found += [
                TransactionListing(item.transactional_id, node_id, item.producer_id, item.transaction_state)
                for item in response.transaction_states
            ]
        return sorted(found)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """One transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        node_id, connection = self._coordinator(transactional_id)
        (found,) = connection.ask(
            DescribeTransactionsRequest(transactional_ids=[transactional_id])
        ).transaction_states
        _check(found.error_code, f"transactional id {transactional_id}")
        return TransactionDescription(
            transactional_id,
            node_id,
            found.producer_id,
            found.producer_epoch,
            found.transaction_state,
            found.transaction_timeout_ms,
            None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
            tuple(TopicPartition(t.topic, number) for t in found.topics for number in sorted(t.partitions)),
        )

    def producers(self, partitions: Iterable[TopicPartition]) -> list[ProducerDescription]:
        """The producers that the leaders of `partitions` remember. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        found = []
        for connection, led in self._leaders(partitions):
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in led.items()]
            )
            for topic in connection.ask(request).topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    _check(result.error_code, str(partition))
                    found += [_producer(partition, state) for state in result.active_producers]
        return found

    def partitions(self, topics: Collection[str] = ()) -> list[TopicPartition]:
        """All partitions of these topics, or of every topic."""
        metadata = self._metadata(topics)
        return [
            TopicPartition(topic.name, partition.partition_index)
            for topic in metadata.topics
            for partition in topic.partitions
        ]

    def hanging(
        self, partitions: Iterable[TopicPartition], *, longer_than_ms: int, now_ms: int
    ) -> list[ProducerDescription]:
        """Open transactions in `partitions` that no coordinator will end.

        Silent for longer than the longest transaction may take, and their coordinator does not know them, or
        not that they have written to the partition.
        """
        silent = [
            producer
            for producer in self.producers(partitions)
            if producer.transaction_start is not None and now_ms - producer.last_timestamp_ms > longer_than_ms
        ]
        if not silent:
            return []
        known: dict[int, set[TopicPartition]] = {}
        for listing in self.listings(producer_ids=sorted({producer.producer_id for producer in silent})):
            known[listing.producer_id] = set(self.describe(listing.transactional_id).partitions)
        return [p for p in silent if p.partition not in known.get(p.producer_id, ())]

    # --- what ends one ---

    def abort(self, producer: ProducerDescription) -> None:
        """Write an abort marker for a producer's open transaction into its partition.

        For one that hangs: where a coordinator still knows it, that is at odds with the partition afterwards.
        """
        topic, number = producer.partition
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
            # -1 where none has written a marker yet: any is as good.
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        for connection, _ in self._leaders([producer.partition]):
            (answered,) = connection.ask(WriteTxnMarkersRequest(markers=[marker])).markers
            for result in (p for t in answered.topics for p in t.partitions):
                _check(result.error_code, str(producer.partition))

    # --- inside ---

    def _first(self, bootstrap_servers: str) -> Connection:
        error: ClientError | None = None
        for address in parse_servers(bootstrap_servers):
            try:
                return self._connect(*address)
            except ClientError as failed:
                error = failed
        assert error is not None
        raise error

    def _connect(self, host: str, port: int) -> Connection:
        connection = self._connections.get((host, port))
        if connection is None:
            connection = self._open.enter_context(
                Connection(host, port, self._timeout, security=self._security)
            )
            self._connections[host, port] = connection
        return connection

    def _metadata(self, topics: Collection[str]) -> Any:
        """Of these topics, or of all when none is named."""
        wanted = [MetadataRequestTopic(name=name) for name in topics] if topics else None
        return self._entry.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))

    def _brokers(self) -> Iterator[tuple[int, Connection]]:
        for broker in self._entry.ask(MetadataRequest(topics=[])).brokers:
            yield broker.node_id, self._connect(broker.host, broker.port)

    def _coordinator(self, transactional_id: str) -> tuple[int, Connection]:
        request: Request = FindCoordinatorRequest(
            key=transactional_id, key_type=_TRANSACTIONAL_ID, coordinator_keys=[transactional_id]
        )
        response = self._entry.ask(request)
        found = response.coordinators[0] if response.coordinators else response
        _check(found.error_code, f"the coordinator of {transactional_id}")
        return found.node_id, self._connect(found.host, found.port)

    def _leaders(
        self, partitions: Iterable[TopicPartition]
    ) -> Iterator[tuple[Connection, Mapping[str, list[int]]]]:
        """The partitions, by topic, with the connection to their leader."""
        wanted = list(partitions)
        metadata = self._metadata({topic for topic, _ in wanted})
        addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        leaders = {
            TopicPartition(topic.name, partition.partition_index): partition.leader_id
            for topic in metadata.topics
            for partition in topic.partitions
        }
        by_leader: dict[int, dict[str, list[int]]] = {}
        for partition in wanted:
            leader = leaders.get(partition)
            if leader is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
            if leader not in addresses:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
            by_leader.setdefault(leader, {}).setdefault(partition.topic, []).append(partition.partition)
        for leader, led in by_leader.items():
            yield self._connect(*addresses[leader]), led


def _producer(partition: TopicPartition, state: Any) -> ProducerDescription:
    return ProducerDescription(
        partition,
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        None if state.current_txn_start_offset < 0 else state.current_txn_start_offset,
    )


def _check(code: int, about: str = "") -> None:
    if code:
        known = error_code(code)
        raise KafkaError(known, f"{about}: {known.doc}" if about else None)
