"""The offset before which no live replica has records (KIP-107)."""

from __future__ import annotations

from barnabas.broker.metadata.image import PartitionState


class Woken:
    def __init__(self):
        self.times = 0

    def progressed(self, new_bytes):
        self.times += 1


def led(**fields):
    return PartitionState((1, 2, 3), (1, 2, 3), 1, 5, 7)._replace(**fields)


def test_it_is_the_least_log_start_of_the_replicas_whose_brokers_live(lead, append, fetch, brokers):
    partition = lead(led())
    append(partition, count=3)
    for broker in (2, 3):
        fetch(partition, broker, 3, log_start=0)
    partition.log.advance_log_start(2)
    woken = Woken()
    partition.watchers[woken] = None
    assert partition.low_watermark == 0
    fetch(partition, 2, 3, log_start=2)
    assert (partition.low_watermark, woken.times) == (0, 0)
    partition.update(led(isr=(1, 2), partition_epoch=8))
    del brokers.alive[3]
    partition.check_in_sync()
    assert (partition.low_watermark, woken.times) == (2, 1)


def test_replica_that_is_away_counts_as_long_as_it_may_be_elected(lead, append, fetch, brokers):
    """Simulation seed 8: a replica of the ELR led again with deleted records, although the deletion was
    confirmed.
    """
    partition = lead(led(), min_insync_replicas=3)
    append(partition, count=3)
    for broker in (2, 3):
        fetch(partition, broker, 3, log_start=0)
    partition.log.advance_log_start(2)
    fetch(partition, 2, 3, log_start=2)
    del brokers.alive[3]
    partition.check_in_sync()
    assert partition.low_watermark == 0
    partition.update(led(isr=(1, 2), elr=(3,), partition_epoch=8))
    assert partition.low_watermark == 0
    partition.update(led(isr=(1, 2), partition_epoch=9))
    assert partition.low_watermark == 2


def test_a_follower_that_has_not_said_where_its_log_starts_may_hold_everything(lead, append, fetch):
    partition = lead(led(replicas=(1, 2), isr=(1, 2)))
    append(partition)
    fetch(partition, 2, 1)
    partition.log.advance_log_start(1)
    assert partition.low_watermark == -1
    fetch(partition, 2, 1, log_start=1)
    assert partition.low_watermark == 1


def test_alone_it_is_where_the_log_starts(lead, append):
    partition = lead(led(replicas=(1,), isr=(1,)))
    append(partition, count=2)
    partition.log.advance_log_start(1)
    assert partition.low_watermark == 1


def test_who_does_not_lead_does_not_know(lead):
    assert lead(led(leader=2)).low_watermark == -1


def test_leader_with_the_longest_log_deletes_what_replicas_that_were_in_sync_have_deleted(
    lead, append, fetch
):
    """Simulation seeds 400335 and 400476: a former leader with records that were not committed led again. It
    had missed a deletion.
    """
    partition = lead(led(isr=(1,), last_known_elr=(3,), recovering=True), min_insync_replicas=2)
    append(partition, count=7)
    fetch(partition, 2, 7, log_start=6)
    fetch(partition, 3, 5, log_start=3)
    assert partition.log.log_start_offset == 0, "nothing is committed yet"
    partition.update(led(partition_epoch=8))
    partition.check_in_sync()
    assert (partition.log.log_start_offset, partition.log.high_watermark) == (3, 5)


def test_deletion_of_one_replica_counts_although_the_start_of_another_one_is_not_committed_yet(
    lead, append, fetch
):
    partition = lead(led(isr=(1,), last_known_elr=(2, 3), recovering=True), min_insync_replicas=2)
    append(partition, count=7)
    fetch(partition, 2, 7, log_start=6)
    fetch(partition, 3, 5, log_start=3)
    partition.update(led(partition_epoch=8))
    partition.check_in_sync()
    assert (partition.log.log_start_offset, partition.log.high_watermark) == (3, 5)


def test_leader_that_is_enough_alone_deletes_what_replicas_that_were_in_sync_have_deleted(
    lead, append, fetch
):
    partition = lead(led(isr=(1,), last_known_elr=(3,), recovering=True))
    append(partition, count=7)
    partition.update(led(isr=(1,), partition_epoch=8))
    fetch(partition, 2, 7, log_start=6)
    fetch(partition, 3, 5, log_start=3)
    assert partition.log.log_start_offset == 3


def test_after_an_ordinary_election_followers_delete_nothing(lead, append, fetch):
    partition = lead(led())
    append(partition, count=2)
    for broker in (2, 3):
        fetch(partition, broker, 2, log_start=1)
    assert partition.log.log_start_offset == 0
