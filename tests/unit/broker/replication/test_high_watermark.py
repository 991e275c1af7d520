"""The offset up to which a leader counts records as committed."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.storage import Origin
from barnabas.kafka.records import Record, encode_batch

ALL = (1, 2, 3)


def led(isr=ALL, epoch=5, partition_epoch=7, replicas=ALL, elr=()):
    return PartitionState(replicas, isr, 1, epoch, partition_epoch, elr)


def refused(code, call):
    with pytest.raises(KafkaError) as error:
        call()
    assert error.value.code is code


class Woken:
    def __init__(self):
        self.bytes = []

    def progressed(self, new_bytes):
        self.bytes.append(new_bytes)


def test_what_every_in_sync_replica_has_is_committed(lead, append, fetch):
    partition = lead(led())
    append(partition, count=3)
    fetch(partition, 2, 3)
    assert partition.log.high_watermark == 0
    fetch(partition, 3, 1)
    assert partition.log.high_watermark == 1
    fetch(partition, 3, 3)
    assert partition.log.high_watermark == 3


def test_a_replica_that_is_not_in_sync_holds_nothing_back(lead, append, fetch):
    partition = lead(led(isr=(1, 2)))
    append(partition, count=3)
    fetch(partition, 3, 1)
    fetch(partition, 2, 2)
    assert partition.log.high_watermark == 2


def test_a_follower_that_leaves_the_isr_holds_nothing_back_any_more(lead, append, fetch):
    partition = lead(led())
    append(partition, count=3)
    fetch(partition, 2, 3)
    partition.update(led(isr=(1, 2), partition_epoch=8))
    assert partition.log.high_watermark == 3


def test_waiting_fetches_hear_of_the_bytes_when_they_are_committed(lead, append, fetch):
    partition = lead(led(isr=(1, 2)))
    woken = Woken()
    partition.watchers[woken] = None
    append(partition, count=2)
    assert woken.bytes == []
    fetch(partition, 2, 2)
    assert len(woken.bytes) == 1
    assert woken.bytes[0] > 0


def test_waiting_fetches_hear_of_the_share_that_is_committed(lead, append, fetch):
    partition = lead(led(isr=(1, 2)))
    woken = Woken()
    partition.watchers[woken] = None
    append(partition, count=4)
    for offset in (1, 3, 4):
        fetch(partition, 2, offset)
    one = woken.bytes[0]
    assert one > 0
    assert woken.bytes == [one, 2 * one, one]


def test_records_of_an_earlier_leader_are_news_of_unknown_size(lead, append, fetch):
    partition = lead(led(isr=(1, 2)))
    append(partition, count=2)
    partition.update(led(isr=(1, 2), epoch=6, partition_epoch=8))
    woken = Woken()
    partition.watchers[woken] = None
    fetch(partition, 2, 2)
    assert woken.bytes == [0]


def test_below_min_isr_nothing_is_committed_so_the_last_replica_standing_loses_nothing(lead, append, fetch):
    """KIP-966: records that only the last in-sync replica has must not count as committed."""
    partition = lead(led(isr=(1, 2)), min_insync_replicas=2)
    append(partition, count=1)
    fetch(partition, 2, 1)
    partition.update(led(isr=(1,), partition_epoch=8))
    append(partition, acks=1, count=2)
    assert partition.log.high_watermark == 1
    partition.update(led(isr=(1, 2), partition_epoch=9))
    assert partition.log.high_watermark == 1
    fetch(partition, 2, 3)
    assert partition.log.high_watermark == 3


def test_while_the_elr_has_members_nothing_is_committed_even_if_the_leader_knows_a_lower_min_isr(
    lead, append, fetch
):
    """A model of elections: min.insync.replicas rose to 2, and the ISR shrank. The leader knew of the ISR by
    the answer to AlterPartition, and not of the new value yet.
    """
    partition = lead(led(isr=(1, 2)), min_insync_replicas=1)
    append(partition, count=2)
    fetch(partition, 2, 1)
    partition.update(led(isr=(1,), elr=(2,), partition_epoch=8))
    append(partition)
    assert partition.log.high_watermark == 1
    partition.update(led(isr=(1,), partition_epoch=9))
    assert partition.log.high_watermark == 3


def test_min_isr_above_the_number_of_replicas_asks_for_all_of_them(lead, append, fetch):
    partition = lead(led(isr=(1, 2), replicas=(1, 2)), min_insync_replicas=3)
    append(partition, acks=-1)
    fetch(partition, 2, 1)
    assert partition.log.high_watermark == 1


def test_a_leader_alone_in_the_isr_commits_at_once_where_one_is_enough(lead, append):
    partition = lead(led(isr=(1,)))
    append(partition)
    assert partition.log.high_watermark == 1


def test_a_lone_replica_that_begins_to_lead_commits_all_it_has(lead, append):
    partition = lead(led(replicas=(1, 2), isr=(1, 2)))
    append(partition, count=2)
    assert partition.log.high_watermark == 0
    partition.update(led(replicas=(1,), isr=(1,), epoch=6, partition_epoch=8))
    assert partition.log.high_watermark == 2


def test_fetches_of_an_earlier_leader_epoch_do_not_count(lead, append, fetch):
    partition = lead(led(isr=(1, 2)))
    append(partition, count=2)
    fetch(partition, 2, 1)
    partition.update(led(isr=(1, 2), epoch=6, partition_epoch=8))
    append(partition)
    assert partition.log.high_watermark == 1
    fetch(partition, 2, 3)
    assert partition.log.high_watermark == 3


def test_a_follower_that_was_started_again_counts_by_its_new_fetches(lead, append, fetch, brokers):
    partition = lead(led(isr=(1, 2, 3)))
    append(partition, count=3)
    fetch(partition, 2, 3)
    old = brokers.epoch(2)
    brokers.start(2)
    fetch(partition, 3, 3)
    assert partition.log.high_watermark == 0
    refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, lambda: partition.followed(2, old, 3))
    fetch(partition, 2, 2)
    assert partition.log.high_watermark == 2


def test_a_start_that_the_image_does_not_show_yet_counts_when_it_does(lead, append, brokers):
    partition = lead(led(isr=(1, 2)))
    append(partition)
    coming = brokers.epoch(2) + 10
    partition.followed(2, coming, 1)
    assert partition.log.high_watermark == 0
    refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, lambda: partition.followed(2, brokers.epoch(2), 1))
    brokers.start(2)
    partition.followed(2, coming, 1)
    assert partition.log.high_watermark == 1


def test_a_broker_that_holds_no_replica_is_refused(lead, brokers):
    partition = lead(led(replicas=(1, 2), isr=(1, 2)))
    refused(ErrorCode.UNKNOWN_LEADER_EPOCH, lambda: partition.followed(3, brokers.epoch(3), 0))


def test_a_follower_cannot_have_more_than_its_leader(lead, fetch):
    partition = lead(led())
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: fetch(partition, 2, 1))


def test_only_a_leader_is_followed(lead, fetch):
    partition = lead(led()._replace(leader=2))
    refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, lambda: fetch(partition, 3, 0))


def test_a_state_that_is_older_than_the_known_one_changes_nothing(lead, append, fetch):
    partition = lead(led(isr=(1, 2), partition_epoch=8))
    append(partition)
    partition.update(led(isr=(1,), partition_epoch=7))
    assert partition.state.isr == (1, 2)
    assert partition.log.high_watermark == 0


def test_a_new_leader_knows_what_is_committed_once_the_watermark_reaches_its_epochs_start(
    lead, append, fetch
):
    partition = lead(led(isr=(1, 2)))
    append(partition, count=2)
    assert partition.has_committed_former_epochs
    partition.update(led(isr=(1, 2), epoch=6, partition_epoch=8))
    append(partition)
    fetch(partition, 2, 1)
    assert not partition.has_committed_former_epochs
    fetch(partition, 2, 2)
    assert partition.has_committed_former_epochs


def test_a_batch_refused_for_want_of_replicas_is_not_overtaken_by_the_next_one_under_way(lead):
    """The log has no state of the producer, and would accept any of its batches as the first."""
    partition = lead(led(isr=(1,)), min_insync_replicas=2)
    first, second, third = (
        encode_batch(
            [Record(None, b"v", timestamp=1)], producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        for sequence in (0, 1, 2)
    )

    def send(batch):
        return partition.append(batch, ACKS_ALL, Origin.CLIENT).base_offset

    refused(ErrorCode.NOT_ENOUGH_REPLICAS, lambda: send(first))
    partition.update(led(isr=(1, 2), partition_epoch=8))
    refused(ErrorCode.NOT_ENOUGH_REPLICAS, lambda: send(second))
    assert [send(first), send(second)] == [0, 1]
    partition.update(led(isr=(1,), partition_epoch=9))
    refused(ErrorCode.NOT_ENOUGH_REPLICAS, lambda: send(second))  # its answer was lost
    partition.update(led(isr=(1, 2), partition_epoch=10))
    assert [send(second), send(third)] == [1, 2]


def test_a_request_that_comes_late_and_is_refused_for_want_of_replicas_holds_no_later_batch_up(lead):
    """Simulation seed 79510: the batch waited at a paused broker, and another broker had accepted it since.

    No client sends it again.
    """
    partition = lead(led(isr=(1, 2)), min_insync_replicas=2)
    batches = [
        encode_batch(
            [Record(None, b"v", timestamp=1)], producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        for sequence in range(3)
    ]

    def send(batch):
        return partition.append(batch, ACKS_ALL, Origin.CLIENT).base_offset

    assert [send(batches[0]), send(batches[1])] == [0, 1]
    partition.update(led(isr=(1,), partition_epoch=8))
    refused(ErrorCode.NOT_ENOUGH_REPLICAS, lambda: send(batches[0]))
    partition.update(led(isr=(1, 2), partition_epoch=9))
    assert send(batches[2]) == 2


def test_what_a_crash_has_left_is_committed_only_when_it_is_fsynced(lead, append):
    """Simulation seed 534: a killed process left unsynced data, which a power cut can still remove."""
    log = lead(led(isr=(1,), replicas=(1,))).log
    append_to(log, 2)
    log.flush()
    append_to(log, 3)
    due = []
    state = led(isr=(1,), replicas=(1,))
    partition = Partition(log, state, 1, flush_every=1, on_flush_due=due.append)
    assert due == [partition]
    assert log.high_watermark == 2
    log.flush()
    partition.check_in_sync()
    assert log.high_watermark == 5


def test_a_new_leader_requests_the_fsync_that_a_failed_truncation_left_out(lead, append):
    """Simulation seed 1000726: the truncation lowered the recovery point, then the disk was full. The replica
    became the leader, its coordinator waited for the high watermark, and so no client appended.
    """
    log = lead(led(isr=(1,), replicas=(1,))).log
    due = []
    partition = Partition(log, led(isr=(1,), replicas=(1,)), 1, flush_every=1, on_flush_due=due.append)
    append(partition, count=3)
    log.flush()
    partition.update(PartitionState(replicas=(1, 2), isr=(2,), leader=2, leader_epoch=6, partition_epoch=8))
    log.files.lower_recovery_point(1)
    due.clear()
    partition.update(led(isr=(1,), replicas=(1, 2), epoch=7, partition_epoch=9))
    assert due == [partition]
    log.flush()
    partition.check_in_sync()
    assert log.high_watermark == 3


def append_to(log, count):
    for _ in range(count):
        log.append_as_leader(encode_batch([Record(None, b"v", timestamp=1_700_000_000_000)]), 0)


def test_a_proposed_smaller_isr_moves_nothing_before_the_controller_agrees(lead, append, fetch, brokers):
    """The controller can reject the change, and elect the replica that was to leave."""
    partition = lead(led(), min_insync_replicas=2)
    append(partition, count=2)
    fetch(partition, 2, 2)
    brokers.time += 31
    fetch(partition, 2, 2)
    proposal = partition.propose()
    assert proposal.members == (1, 2)
    partition.check_in_sync()
    fetch(partition, 2, 2)
    assert partition.log.high_watermark == 0
    partition.settle_proposal(proposal, None)  # nobody knows what the controller did
    fetch(partition, 2, 2)
    assert partition.log.high_watermark == 0
    partition.update(led(isr=(1, 2), partition_epoch=8))
    assert partition.log.high_watermark == 2


def test_a_proposed_member_does_not_count_for_min_isr_before_the_controller_agrees(lead, append, fetch):
    """If the leader were alone in sync, it could lose acknowledged records (KIP-966)."""
    partition = lead(led(isr=(1,)), min_insync_replicas=2)
    append(partition, count=2)
    fetch(partition, 2, 2)
    proposal = partition.propose()
    assert proposal.members == (1, 2)
    for error in (None, ErrorCode.NOT_CONTROLLER):
        fetch(partition, 2, 2)
        assert partition.is_under_min_isr
        assert partition.log.high_watermark == 0
        refused(ErrorCode.NOT_ENOUGH_REPLICAS, lambda: append(partition, ACKS_ALL))
        partition.settle_proposal(proposal, error)
        proposal = partition.propose()
    partition.update(led(isr=(1, 2), partition_epoch=8))
    assert not partition.is_under_min_isr
    assert partition.log.high_watermark == 2
