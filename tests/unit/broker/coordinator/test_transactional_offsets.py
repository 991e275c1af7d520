"""Offsets in a transaction are not visible before it commits (KIP-98, KIP-447)."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.coordinator.conftest import topic_id

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ZERO_TOPIC_ID, ProducerIdentity
from barnabas.broker.coordinator import OffsetKey
from barnabas.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.kafka.records.control import EndTransaction

KEY = OffsetKey("g", "t", 0)
RESTARTED = pytest.mark.parametrize("restarted", [False, True])


def commit(
    groups,
    offset,
    producer=1,
    *,
    group="g",
    generation=-1,
    member="",
    instance=None,
    metadata="",
    check_transaction=lambda: None,
    topic_id=ZERO_TOPIC_ID,
):
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=producer,
        producer_epoch=0,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )
    try:
        answer = groups.coordinator.commit_in_transaction(request, {"t": topic_id}, check_transaction)
    except KafkaError as error:
        return error.code
    return answer if isinstance(answer, asyncio.Future) else code_of(answer)


def code_of(answer):
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def end(groups, producer=1, *, commit):
    return groups.coordinator.end_transaction(0, ProducerIdentity(producer, 0), EndTransaction(commit, 0))


def is_pending(groups):
    return KEY in groups.coordinator.pending_offsets("g")


@pytest.mark.parametrize(("commits", "expected"), [(True, 7), (False, 5)])
def test_offset_counts_when_its_transaction_commits(coordinate, commits, expected):
    async def scenario(groups):
        await groups.commit({("t", 0): 5})
        assert commit(groups, 7) == ErrorCode.NONE
        assert groups.committed() == 5 and is_pending(groups)
        assert end(groups, commit=commits) is None
        assert groups.committed() == expected and not is_pending(groups)

    coordinate(scenario)


@pytest.mark.parametrize(("commits", "expected"), [(True, 7), (False, None)])
def test_pending_offset_survives_a_restart(coordinate, commits, expected):
    async def scenario(groups):
        commit(groups, 7)
        again = await groups.restart()
        assert again.committed() is None and is_pending(again)
        end(again, commit=commits)
        assert again.committed() == expected
        assert (await again.restart()).committed() == expected

    coordinate(scenario)


@RESTARTED
def test_later_commit_outside_the_transaction_stays(coordinate, restarted):
    async def scenario(groups):
        commit(groups, 7)
        await groups.commit({("t", 0): 9})
        if restarted:
            groups = await groups.restart()
        assert groups.committed() == 9 and is_pending(groups), "until the transaction ends nobody is sure"
        end(groups, commit=True)
        assert groups.committed() == 9 and not is_pending(groups)

    coordinate(scenario)


def test_two_transactions_write_the_same_partition(coordinate):
    async def scenario(groups):
        commit(groups, 7, producer=1)
        commit(groups, 8, producer=2)
        end(groups, 2, commit=True)
        assert groups.committed() == 8 and is_pending(groups)
        end(groups, 1, commit=False)
        assert groups.committed() == 8 and not is_pending(groups)

    coordinate(scenario)


def test_marker_follows_the_offsets_however_late_they_are_committed(coordinate):
    async def scenario(groups):
        await groups.commit({("t", 0): 5})
        groups.log.hold = True
        committing = commit(groups, 7)
        ending = end(groups, commit=True)
        (first, *_), (second, *_) = groups.log.held
        # The replicas' news comes the wrong way round: the log's order counts.
        second.set_result(None)
        await asyncio.sleep(0.1)
        assert not ending.done()
        first.set_result(None)
        assert code_of(await committing) == ErrorCode.NONE
        await ending
        assert groups.committed() == 7 and not is_pending(groups)

    coordinate(scenario)


def test_offsets_are_checked_when_the_group_is_free(coordinate):
    """Their transaction may have ended while a member joined the group."""

    async def scenario(groups):
        ended = []

        def check_transaction():
            if ended:
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)

        groups.topics(t=1)
        groups.log.hold = True
        joining = asyncio.ensure_future(groups.enter("a", "t"))
        await asyncio.sleep(0)
        committing = commit(groups, 7, check_transaction=check_transaction)
        ending = end(groups, commit=False)
        ended.append(True)
        while groups.log.held:
            groups.log.commit_next()
            await asyncio.sleep(0)
        await asyncio.gather(joining, ending)
        with pytest.raises(KafkaError) as refused:
            await committing
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        assert not is_pending(groups)

    coordinate(scenario)


def test_member_commits_with_its_generation(coordinate):
    async def scenario(groups):
        (member,), generation = await groups.stable()
        assert commit(groups, 7, member=member, generation=generation) == ErrorCode.NONE
        assert commit(groups, 7) == ErrorCode.NONE, "older clients do not say who they are"
        assert commit(groups, 7, member=member, generation=generation - 1) == ErrorCode.ILLEGAL_GENERATION
        assert commit(groups, 7, member="stranger", generation=generation) == ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(groups, 7, member=member, generation=generation, instance="i") in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        )

    coordinate(scenario)


def test_member_of_a_group_that_is_gone_is_refused(coordinate):
    async def scenario(groups):
        assert commit(groups, 7, member="m", generation=3) == ErrorCode.ILLEGAL_GENERATION
        assert commit(groups, 7, group="") == ErrorCode.INVALID_GROUP_ID

    coordinate(scenario)


def test_only_a_producer_without_an_instance_id_commits_from_outside_a_consumer_group(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        await groups.enter("m", "t")
        assert commit(groups, 7) == ErrorCode.NONE
        assert commit(groups, 7, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID

    coordinate(scenario)


def test_member_of_the_consumer_protocol_commits_in_its_epoch(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        joined = await groups.enter("m", "t")
        assert commit(groups, 7, member="m", generation=joined.member_epoch) == ErrorCode.NONE
        # TxnOffsetCommit has no STALE_MEMBER_EPOCH.
        assert commit(groups, 7, member="m", generation=9) == ErrorCode.ILLEGAL_GENERATION

    coordinate(scenario)


def test_too_much_metadata_is_refused(coordinate):
    async def scenario(groups):
        assert commit(groups, 7, metadata="x" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert not is_pending(groups)

    coordinate(scenario)


def test_group_with_pending_offsets_does_not_expire(coordinate):
    async def scenario(groups):
        await groups.commit({("t", 0): 5})
        commit(groups, 7)
        await asyncio.sleep(3600 * 24 * 30)
        await groups.coordinator.expire()
        assert groups.committed() == 5
        end(groups, commit=False)
        await groups.coordinator.expire()
        assert groups.committed() is None

    coordinate(scenario)


@RESTARTED
def test_deleted_offset_does_not_come_back_with_the_commit(coordinate, restarted):
    async def scenario(groups):
        commit(groups, 7)
        assert await groups.delete_offsets(("t", 0)) == [ErrorCode.NONE]
        assert not is_pending(groups)
        if restarted:
            groups = await groups.restart()
        end(groups, commit=True)
        assert groups.committed() is None

    coordinate(scenario)


def test_pending_offsets_of_a_deleted_topic_are_forgotten(coordinate):
    async def scenario(groups):
        commit(groups, 7)
        groups.coordinator.forget_topics({"t"})
        assert not is_pending(groups)

    coordinate(scenario)


def test_pending_offsets_of_a_topic_that_was_made_again_are_not_forgotten_with_the_deleted_one(coordinate):
    async def scenario(groups):
        groups.topics(t=1)
        commit(groups, 7, topic_id=topic_id("t"))
        await groups.commit({("t", 1): 5})
        groups.coordinator.forget_topics({"t"})
        assert groups.committed("t", 1) is None
        assert end(groups, commit=True) is None
        assert groups.committed() == 7

    coordinate(scenario)


def test_the_offset_of_a_deleted_topic_takes_no_pending_one_of_the_new_topic_along(coordinate):
    async def scenario(groups):
        await groups.commit({("t", 0): 5}, topic_id=b"deleted topic...")
        groups.topics(t=1)
        commit(groups, 7, topic_id=topic_id("t"))
        groups.coordinator.forget_topics({"t"})
        assert end(groups, commit=True) is None
        assert groups.committed() == 7

    coordinate(scenario)


def test_a_group_id_too_long_for_a_record_is_refused_in_a_transaction_as_in_a_plain_commit(coordinate):
    async def scenario(groups):
        assert commit(groups, 7, group="g" * 40_000) == ErrorCode.INVALID_GROUP_ID

    coordinate(scenario)
