"""The replicas that a leader counts as in sync, and its requests to the controller."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.metadata.image import BrokerState, PartitionState

ALL = (1, 2, 3)
LAG = 30.0


def led(isr=ALL, epoch=5, partition_epoch=7, replicas=ALL, **fields):
    return PartitionState(replicas, isr, 1, epoch, partition_epoch, **fields)


def proposed(partition):
    proposal = partition.propose()
    return None if proposal is None else proposal.members


# --- into the ISR ---


def test_a_follower_at_the_high_watermark_joins(lead, append, fetch):
    due = []
    partition = lead(led(isr=(1, 2)), due.append)
    append(partition, count=3)
    fetch(partition, 2, 2)
    fetch(partition, 3, 1)
    assert due == []
    fetch(partition, 3, 3)
    assert due == [partition]
    assert proposed(partition) == ALL


def test_a_proposal_names_the_broker_epochs(lead, append, fetch, brokers):
    partition = lead(led(isr=(1, 2)))
    fetch(partition, 3, 0)
    assert partition.propose().isr == ((1, brokers.epoch(1)), (2, -1), (3, brokers.epoch(3)))


def test_reaching_the_watermark_is_not_enough_before_the_epochs_start(lead, append, fetch):
    """Kip320.tla: committed records of a former leader can be between the two offsets."""
    partition = lead(led(isr=(1, 2)))
    append(partition, count=3)
    partition.update(led(isr=(1, 2), epoch=6, partition_epoch=8))
    assert partition.log.high_watermark == 0
    fetch(partition, 3, 2)
    assert partition.propose() is None
    fetch(partition, 3, 3)
    assert proposed(partition) == ALL


def test_a_fetch_of_an_earlier_leader_epoch_brings_nobody_in(lead, append, fetch):
    partition = lead(led(isr=(1, 2)))
    fetch(partition, 3, 0)
    partition.update(led(isr=(1, 2), epoch=6, partition_epoch=8))
    assert partition.propose() is None
    fetch(partition, 3, 0)
    assert proposed(partition) == ALL


def test_a_follower_joins_once_it_knows_what_was_deleted(lead, append, brokers):
    """As the next leader, it would bring the deleted records back (simulation seed 67 with three brokers)."""
    partition = lead(led(isr=(1,)), min_insync_replicas=1)
    append(partition, count=5)
    partition.check_in_sync()
    partition.log.advance_log_start(3)
    partition.followed(3, brokers.epoch(3), 5, 0)
    assert partition.propose() is None
    partition.followed(3, brokers.epoch(3), 5, 3)
    assert proposed(partition) == (1, 3)


def test_a_follower_joins_once_its_broker_runs(lead, fetch, brokers):
    due = []
    partition = lead(led(isr=(1, 2)), due.append)
    brokers.start(3, state=BrokerState.STARTING)
    fetch(partition, 3, 0)
    assert due == []
    assert partition.propose() is None
    brokers.alive[3] = brokers.alive[3]._replace(state=BrokerState.RUNNING)
    partition.check_in_sync()
    assert due == [partition]
    assert proposed(partition) == ALL


def test_a_broker_that_shuts_down_does_not_join(lead, fetch, brokers):
    partition = lead(led(isr=(1, 2)))
    fetch(partition, 3, 0)
    brokers.alive[3] = brokers.alive[3]._replace(state=BrokerState.SHUTTING_DOWN)
    assert partition.propose() is None


def test_a_rebooted_replica_does_not_join_by_its_earlier_fetch(lead, append, fetch, brokers):
    """KIP-903: it may have lost its data."""
    partition = lead(led(isr=(1, 2)))
    append(partition, count=2)
    fetch(partition, 2, 2)
    fetch(partition, 3, 2)
    brokers.start(3)
    assert partition.propose() is None
    fetch(partition, 3, 0)
    assert partition.propose() is None
    fetch(partition, 3, 2)
    assert proposed(partition) == ALL


def test_a_start_that_the_image_does_not_show_yet_brings_in_when_it_does(lead, brokers):
    due = []
    partition = lead(led(isr=(1, 2)), due.append)
    partition.followed(3, brokers.epoch(3) + 10, 0)
    assert partition.propose() is None
    brokers.start(3)
    partition.check_in_sync()
    assert due == [partition]
    assert proposed(partition) == ALL


def test_below_min_isr_a_follower_that_lags_does_not_flap(lead, append, fetch, brokers):
    """KAFKA-19996: it is at the high watermark, which does not advance, and the next
    check would remove it.
    """
    partition = lead(led(isr=(1,)), min_insync_replicas=2)
    append(partition, count=10)
    fetch(partition, 2, 2)
    brokers.time += LAG + 1
    append(partition, count=10)
    fetch(partition, 2, 4)
    assert partition.propose() is None
    fetch(partition, 2, 19)
    assert partition.propose() is None
    fetch(partition, 2, 20)
    assert proposed(partition) == (1, 2)


def test_a_follower_that_keeps_up_with_a_busy_leader_joins_without_ever_being_at_its_end(lead, append, fetch):
    partition = lead(led(isr=(1,)), min_insync_replicas=2)
    append(partition, count=10)
    fetch(partition, 2, 4)
    append(partition, count=10)
    fetch(partition, 2, 10)
    assert proposed(partition) == (1, 2)


# --- out of the ISR ---


def test_a_follower_that_does_not_catch_up_leaves(lead, append, fetch, brokers):
    due = []
    partition = lead(led(), due.append)
    append(partition)
    fetch(partition, 2, 1)
    brokers.time += LAG
    partition.check_in_sync()
    assert due == []
    brokers.time += 1
    partition.check_in_sync()
    assert due == [partition]
    assert proposed(partition) == (1, 2)


def test_a_follower_of_an_idle_partition_stays(lead, append, fetch, brokers):
    partition = lead(led())
    append(partition)
    for broker in (2, 3):
        fetch(partition, broker, 1)
    brokers.time += 100 * LAG
    partition.check_in_sync()
    assert partition.propose() is None
    append(partition)
    brokers.time += LAG
    partition.check_in_sync()
    assert partition.propose() is None
    brokers.time += 1
    assert proposed(partition) == (1,)


def test_a_follower_that_trails_a_busy_leader_stays(lead, append, fetch, brokers):
    partition = lead(led(isr=(1, 2)))
    end = 0
    for _ in range(10):
        append(partition, count=3)
        fetch(partition, 2, end)
        end += 3
        brokers.time += LAG / 2
        partition.check_in_sync()
        assert partition.propose() is None


def test_a_follower_that_never_fetched_in_this_epoch_leaves(lead, brokers):
    partition = lead(led(isr=(1, 2)))
    brokers.time += LAG + 1
    partition.check_in_sync()
    assert proposed(partition) == (1,)


def test_a_follower_that_was_started_again_and_does_not_fetch_leaves(lead, append, fetch, brokers):
    partition = lead(led(isr=(1, 2)))
    append(partition)
    fetch(partition, 2, 1)
    brokers.start(2)
    brokers.time += LAG + 1
    partition.check_in_sync()
    assert proposed(partition) == (1,)


def test_one_proposal_takes_out_and_brings_in(lead, append, fetch, brokers):
    partition = lead(led(isr=(1, 2)))
    append(partition)
    brokers.time += LAG + 1
    fetch(partition, 3, 1)
    assert proposed(partition) == (1, 3)


# --- what becomes of a proposal ---


def test_the_watermark_waits_for_a_replica_from_the_moment_it_is_proposed(lead, append, fetch):
    """KIP-497: the controller may have agreed, and may elect it, before this leader learns of it."""
    partition = lead(led(isr=(1, 2)))
    fetch(partition, 3, 0)
    assert proposed(partition) == ALL
    append(partition)
    fetch(partition, 2, 1)
    assert partition.log.high_watermark == 0
    fetch(partition, 3, 1)
    assert partition.log.high_watermark == 1


def test_a_replica_that_is_proposed_out_counts_until_the_controller_agrees(lead, append, fetch, brokers):
    partition = lead(led(isr=(1, 2)))
    append(partition)
    brokers.time += LAG + 1
    proposal = partition.propose()
    assert partition.log.high_watermark == 0
    partition.settle_proposal(proposal, ErrorCode.NONE, led(isr=(1,), partition_epoch=8))
    assert partition.state.isr == (1,)
    assert partition.log.high_watermark == 1


def test_there_is_one_proposal_at_a_time(lead, fetch, brokers):
    due = []
    partition = lead(led(isr=(1,)), due.append)
    fetch(partition, 2, 0)
    proposal = partition.propose()
    assert partition.propose() is None
    fetch(partition, 3, 0)
    assert len(due) == 1
    partition.settle_proposal(proposal, ErrorCode.NONE, led(isr=(1, 2), partition_epoch=8))
    assert len(due) == 2
    assert proposed(partition) == ALL


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_replica_that_was_refused_holds_nothing_back(lead, append, fetch, error):
    partition = lead(led(isr=(1, 2)))
    fetch(partition, 3, 0)
    proposal = partition.propose()
    append(partition)
    fetch(partition, 2, 1)
    partition.settle_proposal(proposal, error)
    assert partition.log.high_watermark == 1


@pytest.mark.parametrize(
    "error",
    [
        None,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_without_certainty_a_proposed_replica_counts_until_the_state_has_moved(lead, append, fetch, error):
    partition = lead(led(isr=(1, 2)))
    fetch(partition, 3, 0)
    partition.settle_proposal(partition.propose(), error)
    append(partition)
    fetch(partition, 2, 1)
    assert partition.log.high_watermark == 0
    partition.update(led(isr=(1, 2), partition_epoch=8))
    assert partition.log.high_watermark == 1


def test_what_became_of_a_proposal_is_asked_for_until_it_is_known(lead, append, fetch, brokers):
    partition = lead(led(isr=(1, 2)))
    fetch(partition, 3, 0)
    append(partition)
    fetch(partition, 2, 1)
    partition.settle_proposal(partition.propose(), None)
    brokers.time += LAG + 1  # the one that was to join has gone
    fetch(partition, 2, 1)
    again = partition.propose()
    assert again.members == (1, 2)
    assert partition.log.high_watermark == 0
    partition.settle_proposal(again, ErrorCode.NONE, led(isr=(1, 2), partition_epoch=8))
    assert partition.log.high_watermark == 1


def test_an_answer_that_comes_after_the_image_changes_nothing(lead, fetch):
    partition = lead(led(isr=(1,)))
    fetch(partition, 2, 0)
    proposal = partition.propose()
    partition.update(led(isr=(1, 2, 3), partition_epoch=9))
    partition.settle_proposal(proposal, ErrorCode.NONE, led(isr=(1, 2), partition_epoch=8))
    assert partition.state.isr == ALL


def test_an_answer_with_a_later_leader_epoch_ends_the_leadership(lead, fetch):
    partition = lead(led(isr=(1,)))
    fetch(partition, 2, 0)
    partition.settle_proposal(
        partition.propose(), ErrorCode.NONE, led(epoch=6, partition_epoch=9)._replace(leader=2)
    )
    assert not partition.is_leader


def test_an_answer_to_a_leader_that_has_been_replaced_changes_nothing(lead, fetch):
    partition = lead(led(isr=(1,)))
    fetch(partition, 2, 0)
    proposal = partition.propose()
    partition.update(led(isr=(1, 2), epoch=6, partition_epoch=8)._replace(leader=2))
    partition.settle_proposal(proposal, ErrorCode.NONE, led(isr=(1, 2), partition_epoch=8))
    assert not partition.is_leader


def test_a_leader_of_an_unclean_election_says_that_it_has_recovered(lead):
    due = []
    partition = lead(led(isr=(1,), recovering=True), due.append)
    assert due == [partition]
    assert proposed(partition) == (1,)


# --- the end of a leadership ---


def test_who_has_resigned_leads_again_in_a_new_epoch_only(lead, append):
    partition = lead(led(isr=(1,)))
    partition.resign()
    assert not partition.is_leader
    partition.update(led(isr=(1,), partition_epoch=8))
    assert not partition.is_leader
    partition.update(led(isr=(1,), epoch=6, partition_epoch=9))
    assert partition.is_leader
    assert append(partition).base_offset == 0


def test_a_partition_that_was_deleted_proposes_nothing(lead, fetch):
    partition = lead(led(isr=(1, 2)))
    fetch(partition, 3, 0)
    partition.close(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert partition.propose() is None


def test_a_newer_leader_epoch_heard_of_elsewhere_ends_the_leadership(lead):
    partition = lead(led())
    partition.overtaken(5)
    assert partition.is_leader
    partition.overtaken(6)
    assert not partition.is_leader


def test_reassignment_counts_new_replicas_by_their_fetches(lead, append, fetch, brokers):
    partition = lead(led(isr=(1,), replicas=(1,)))
    append(partition)
    partition.update(led(isr=(1,), replicas=(1, 2), adding=(2,), partition_epoch=8))
    append(partition)
    assert partition.log.high_watermark == 2
    fetch(partition, 2, 0)
    assert partition.propose() is None
    fetch(partition, 2, 2)
    assert proposed(partition) == (1, 2)


# --- who may have been elected, and the end of a leadership ---


def test_whoever_is_in_the_isr_or_the_elr_or_proposed_may_have_been_elected(lead, append, fetch):
    partition = lead(led(isr=(1, 2)))
    assert partition.successors == {2}
    fetch(partition, 3, 0)  # it is about to be proposed
    assert partition.successors == {2, 3}
    partition.settle_proposal(partition.propose(), None)  # nobody knows what the controller did
    assert partition.successors == {2, 3}
    partition.update(led(isr=(1,), partition_epoch=8, elr=(2,)))
    assert partition.successors == {2}
    partition.update(led(isr=(1,), partition_epoch=9))
    assert partition.successors == set()


def test_a_state_of_the_same_partition_epoch_forgets_no_proposal(lead, append, fetch):
    """Any other change of the topic comes with a state that the leader knows already."""
    partition = lead(led(isr=(1, 2)))
    append(partition, count=2)
    fetch(partition, 2, 2)
    fetch(partition, 3, 2)
    partition.settle_proposal(partition.propose(), None)  # nobody knows what the controller did
    append(partition)
    partition.update(led(isr=(1, 2)))
    fetch(partition, 2, 3)
    assert partition.log.high_watermark == 2
    fetch(partition, 3, 3)
    assert partition.log.high_watermark == 3


def test_follower_names_no_successors(lead):
    partition = lead(led())
    partition.resign()
    assert partition.successors == ()


def test_end_of_a_leadership_is_told_once_whoever_ends_it(lead):
    by_image, by_follower, anew = lead(led()), lead(led()), lead(led())
    by_image.update(led(epoch=6, partition_epoch=8)._replace(leader=2))
    by_follower.overtaken(6)
    by_follower.resign()
    anew.update(led(epoch=6, partition_epoch=8))
    assert lead.ended == [by_image, by_follower, anew]


def test_isolated_broker_does_not_join(lead, append, fetch, brokers):
    brokers.alive[3] = brokers.alive[3]._replace(is_isolated=True)
    partition = lead(led(isr=(1, 2)))
    fetch(partition, 3, 0)
    assert partition.propose() is None
    brokers.alive[3] = brokers.alive[3]._replace(is_isolated=False)
    fetch(partition, 3, 0)
    assert proposed(partition) == ALL
