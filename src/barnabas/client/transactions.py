"""Transactions for an administrator (KIP-664): lists, describes and aborts hanging ones.

librdkafka has no functions for these requests, so this module sends them itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client.brokers import Brokers, CoordinatorType, check
from barnabas.client.connection import BrokerConnection
from barnabas.client.connection_pool import RESPONSE_TIMEOUT
from barnabas.client.errors import check_code
from barnabas.client.leaders import ask_leaders, by_topic, leaders_of
from barnabas.client.reach import require_broker
from barnabas.client.servers import servers_of
from barnabas.client.settings import DEFAULT_BOOTSTRAP
from barnabas.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.kafka.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


@dataclass(frozen=True, slots=True, order=True)
class TransactionListing:
    """A transactional id, and the broker that coordinates it.

    `state` is the state of its transaction, such as "Ongoing".
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The coordinator's state of a transactional id.

    Attributes:
        coordinator: id of the broker that coordinates the transactional id.
        state: state of the transaction, such as "Ongoing".
        timeout_ms: transaction timeout of the producer.
        started_ms: start of the transaction, in ms since 1970; None if none has begun.
        partitions: the partitions that the transaction has written to.
    """

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
    """The state of a producer in one partition, as the partition's leader remembers it.

    Attributes:
        last_sequence: sequence of the producer's last record; -1 if unknown.
        last_timestamp_ms: timestamp of that record, in ms since 1970; -1 if unknown.
        coordinator_epoch: epoch of the coordinator that wrote the producer's last marker; -1 if there is
            none.
        transaction_start: first offset of the producer's open transaction; None without one.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int | None


class Transactions:
    """The transactions of one cluster. Close it, or use it in a with block.

    If a broker dies during a call, the call succeeds if another broker answers in time.

    Every method raises KafkaError if a broker rejects the request, and ClientError if a broker does not
    answer within `timeout` seconds. The constructor raises ClientError if no broker answers.
    """

    def __init__(self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, *, timeout: float = 15.0) -> None:
        require_broker(bootstrap_servers)
        self._brokers = Brokers(servers_of(bootstrap_servers, {}), timeout)

    def close(self) -> None:
        self._brokers.close()

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
        """Return the transactional ids of the cluster that match all given filters.

        Args:
            states: allowed states; all if empty.
            producer_ids: allowed producer ids; all if empty.
            longer_than_ms: least age of an open transaction; -1 for any.
            pattern: regular expression for the id.

        Raises:
            KafkaError: a broker rejects the request, for example because it does not know one of `states`
                (INVALID_REQUEST).
        """
        request = ListTransactionsRequest(
            state_filters=[*states],
            producer_id_filters=[*producer_ids],
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )

        def attempt(deadline: float) -> list[TransactionListing]:
            answers = self._brokers.ask_every(request, deadline=deadline)
            for failure in answers.failures.values():
                raise failure
            found = []
            for broker, response in answers.responses.items():
                check_code(response.error_code)
                if unknown := response.unknown_state_filters:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown states: {', '.join(unknown)}")
                found += [
                    TransactionListing(
                        each.transactional_id, broker, each.producer_id, each.transaction_state
                    )
                    for each in response.transaction_states
                ]
            return sorted(found)

        return self._brokers.retry(attempt)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Return the state of one transactional id.

        Raises KafkaError (TRANSACTIONAL_ID_NOT_FOUND) if there is no such id.
        """

        def ask(connection: BrokerConnection, node_id: BrokerId) -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (found,) = connection.ask(request).transaction_states
            check(found.error_code, f"transactional id {transactional_id}")
            return TransactionDescription(
                transactional_id,
                node_id,
                found.producer_id,
                found.producer_epoch,
                found.transaction_state,
                found.transaction_timeout_ms,
                None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
                tuple(
                    TopicPartition(topic.topic, number)
                    for topic in found.topics
                    for number in sorted(topic.partitions)
                ),
            )

        return self._brokers.ask_coordinator(transactional_id, ask, CoordinatorType.TRANSACTION)

    def producers(self, partitions: Iterable[TopicPartition]) -> list[ProducerDescription]:
        """Return the producers that the leaders of `partitions` remember.

        Raises:
            KafkaError: a partition does not exist (UNKNOWN_TOPIC_OR_PARTITION).
        """
        results = ask_leaders(self._brokers, partitions, producers_request, response_timeout=RESPONSE_TIMEOUT)
        return [
            _producer(partition, state)
            for partition, result in results.items()
            for state in result.active_producers
        ]

    def partitions(self, topics: Collection[str] = ()) -> list[TopicPartition]:
        """Return all partitions of these topics; of every topic if `topics` is empty.

        Topics that do not exist are left out.
        """
        names = sorted(topics) or None
        metadata = self._brokers.retry(lambda deadline: self._brokers.metadata(names, deadline))
        return list(leaders_of(metadata.topics))

    def hanging(
        self, partitions: Iterable[TopicPartition], *, longer_than_ms: int, now_ms: int
    ) -> list[ProducerDescription]:
        """Return the producers with a hanging transaction in `partitions`, once for each of these partitions.

        A transaction hangs in a partition if both are true, because no coordinator will end it there:

        - The transaction is open, and its last record is more than `longer_than_ms` old.
        - The coordinator does not know the transaction, or does not know that it includes the partition.

        Args:
            longer_than_ms: longest transaction timeout in the cluster, in ms.
            now_ms: current time in ms since 1970.
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

        Use this only for a transaction that hangs. If a coordinator still knows the transaction, the
        coordinator and the partition then disagree.
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
        # A second marker, after a lost response, changes nothing.
        request = WriteTxnMarkersRequest(markers=[marker])
        ask_leaders(self._brokers, [producer.partition], lambda _: request, response_timeout=RESPONSE_TIMEOUT)


def producers_request(partitions: Sequence[TopicPartition]) -> DescribeProducersRequest:
    """Return the request for the producers that a leader remembers in some of its partitions."""
    topics = by_topic(partitions).items()
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=numbers) for name, numbers in topics]
    )


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
