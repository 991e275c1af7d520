"""Sends the requests of a partition's leader to the transaction coordinators of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TypeVar

from barnabas.base.errors import ErrorCode, KafkaError, error_code
from barnabas.base.types import NO_BROKER, TRANSACTION_STATE_TOPIC, BrokerId, ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.coordinator import TransactionCoordinator
from barnabas.broker.interbroker import BrokerClient, ChannelError
from barnabas.broker.server.requests.confirmed import held_back
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

T = TypeVar("T")

Verdicts = dict[TopicPartition, ErrorCode]

#: errors of a coordinator whose image lacks a partition that this leader has; they are retriable
_NOT_HEARD_OF = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED)


class TransactionCoordinators:
    """Implements `verification.Coordinators` with the transaction coordinators on all brokers.

    This class calls the coordinator on this broker directly, and sends AddPartitionsToTxn to coordinators on
    other brokers (KIP-890).

    Args:
        view: image of this broker.
        local: transaction coordinator on this broker.
        peers: the other brokers.
        confirm: called with a partition of `__transaction_state` that this broker leads. If another broker
            may lead it now, `confirm` returns a future that is done when the opposite is proven, or that
            raises KafkaError. If not, `confirm` returns None.
    """

    def __init__(
        self,
        view: BrokerView,
        local: TransactionCoordinator,
        peers: BrokerClient,
        confirm: Callable[[TopicPartition], asyncio.Future[bool] | None],
    ) -> None:
        self._view = view
        self._local = local
        self._peers = peers
        self._confirm = confirm

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        version: int,
    ) -> MaybeAwaitable[None]:
        """Add partitions to the producer's transaction (`verification.Coordinators.add_partitions`).

        Requests to other brokers always use transaction version 2, whatever `version` is.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, there is no coordinator, or the coordinator does not
                respond; any other code, the coordinator rejects the partitions. If the result is an
                awaitable, the awaitable can raise the error.
        """
        remote = self._remote(transactional_id)
        if remote is None:
            return self._confirmed(
                transactional_id,
                lambda: self._local.add_partitions(transactional_id, producer, partitions, version),
            )
        return self._add(remote, transactional_id, producer, partitions)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> MaybeAwaitable[Verdicts]:
        """Return an error code for each partition: NONE if the partition is in the producer's transaction.

        If the coordinator is on another broker, or must prove that it is no former one, return an awaitable
        of the codes. If another broker does not respond, each partition gets COORDINATOR_NOT_AVAILABLE.

        Raises:
            KafkaError: there is no coordinator, or the coordinator on this broker rejects the whole request.
                If the result is an awaitable, the awaitable can raise the error.
        """
        remote = self._remote(transactional_id)
        if remote is None:
            return self._confirmed(
                transactional_id,
                lambda: self._local.verify_partitions(transactional_id, producer, partitions),
            )
        return self._ask(remote, transactional_id, producer, partitions, verify_only=True)

    def _confirmed(self, transactional_id: str, local: Callable[[], MaybeAwaitable[T]]) -> MaybeAwaitable[T]:
        """Call `local`, an operation of the coordinator on this broker, and return its result.

        If another broker may be the coordinator now, the result waits for a proof (ADR 15). A former
        coordinator on the broker of a partition's leader could admit a write after the end of its
        transaction. It could also fence a producer that its successor knows.
        """
        return held_back(self._confirm(self._partition(transactional_id)), local, ErrorCode.NOT_COORDINATOR)

    def _partition(self, transactional_id: str) -> TopicPartition:
        return TopicPartition(TRANSACTION_STATE_TOPIC, self._local.partition_for(transactional_id))

    def _remote(self, transactional_id: str) -> BrokerId | None:
        """Return the broker that coordinates a transactional id; None for this broker.

        Also return None if the internal topic does not exist. The transaction coordinator on this broker then
        reports the error.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, the partition of the internal topic has no leader.
        """
        state = self._view.image.partition(self._partition(transactional_id))
        if state is None or state.leader == self._view.node_id:
            return None
        if state.leader == NO_BROKER:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return state.leader

    async def _add(
        self,
        broker: BrokerId,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
    ) -> None:
        verdicts = await self._ask(broker, transactional_id, producer, partitions, verify_only=False)
        for code in verdicts.values():
            if code is not ErrorCode.NONE:
                raise KafkaError(code)

    async def _ask(
        self,
        broker: BrokerId,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Verdicts:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, number in partitions:
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name, partitions=[])).partitions.append(
                number
            )
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=list(topics.values()),
        )
        try:
            response: AddPartitionsToTxnResponse = await self._peers.channel(broker, "transactions").send(
                AddPartitionsToTxnRequest(transactions=[transaction])
            )
        except ChannelError:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        # What is not answered counts as refused.
        verdicts = dict.fromkeys(
            partitions, error_code(response.error_code or ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )
        for result in response.results_by_transaction:
            for topic in result.topic_results:
                for answer in topic.results_by_partition:
                    code = error_code(answer.partition_error_code)
                    verdicts[TopicPartition(topic.name, answer.partition_index)] = (
                        ErrorCode.COORDINATOR_NOT_AVAILABLE if code in _NOT_HEARD_OF else code
                    )
        return verdicts
