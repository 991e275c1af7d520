"""Offsets of a transaction that wait for the group, while the transaction ends."""

from __future__ import annotations

import asyncio

from soak.simulated.client import GROUP, TRANSACTION
from tests.simulation.scene import Scene, play

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

#: the last version before transactions v2, in which each transaction raises the producer's epoch
_TRANSACTIONS_V1 = 3


def test_offsets_that_waited_for_the_group_until_their_transaction_ended_do_not_join_the_next_one() -> None:
    """A member of the group joins meanwhile, and the followers are slow to copy that."""

    async def scenario(scene: Scene) -> None:
        survey = scene.survey
        coordinator = await scene.coordinator(GROUP, scene.group)
        of_transactions = await scene.coordinator(TRANSACTION, "writer")
        producer = await survey.ask(
            InitProducerIdRequest(transactional_id="writer", transaction_timeout_ms=60_000),
            broker=of_transactions,
        )
        added = await survey.ask(
            AddOffsetsToTxnRequest(
                transactional_id="writer",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                group_id=scene.group,
            ),
            broker=of_transactions,
            max_version=_TRANSACTIONS_V1,
        )
        assert not added.error_code

        async def commit(offset: int) -> ErrorCode:
            partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            request = TxnOffsetCommitRequest(
                transactional_id="writer",
                group_id=scene.group,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                topics=[TxnOffsetCommitRequestTopic(name="events", partitions=[partition])],
            )
            response = await survey.ask(
                request, broker=coordinator, purpose="offsets", timeout=10.0, max_version=_TRANSACTIONS_V1
            )
            return ErrorCode(response.topics[0].partitions[0].error_code)  # type: ignore[call-arg]

        assert await scene.commit(coordinator, 4) == 0
        assert await commit(5) is ErrorCode.NONE
        followers = [broker for number, broker in scene.cluster.brokers.items() if number != coordinator]
        for follower in followers:
            follower.pause()
        join = ConsumerGroupHeartbeatRequest(
            group_id=scene.group,
            member_id="a",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["events"],
            topic_partitions=[],
        )
        joining = asyncio.ensure_future(survey.ask(join, broker=coordinator, purpose="member", timeout=10.0))
        await survey.pause_for(0.2)
        committing = asyncio.ensure_future(commit(6))
        await survey.pause_for(0.2)
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[
                WritableTxnMarkerTopic(
                    name=scene.group_partition.topic, partition_indexes=[scene.group_partition.partition]
                )
            ],
        )
        ending = asyncio.ensure_future(
            survey.ask(
                WriteTxnMarkersRequest(markers=[marker]), broker=coordinator, purpose="markers", timeout=10.0
            )
        )
        await survey.pause_for(0.2)
        assert not any(each.done() for each in (joining, committing, ending))
        for follower in followers:
            follower.resume()
        assert not (await joining).error_code
        assert not (await ending).markers[0].topics[0].partitions[0].error_code
        assert await committing is ErrorCode.INVALID_TXN_STATE
        assert await scene.committed(coordinator) == 4

    play(scenario)
