"""A follower's requests to its leader, and its treatment of the replies."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.unit.broker.replication.following.conftest import TOPIC_ID

from barnabas.base.environment.filesystem import read_file
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.storage import checkpoints
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.kafka.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData


def test_a_follower_copies_what_the_leader_has_and_appends(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        leader.produce(b"a")
        leader.produce(b"b", b"c")
        await cluster.settle(0.1)
        leader.produce(b"d")
        await cluster.settle(0.1)
        assert follower.content() == leader.content() == [(0, 0), (1, 0), (3, 0)]
        assert leader.log.high_watermark == 4

    scenario(story)


def test_an_append_reaches_the_follower_and_is_committed_within_two_journeys_there_and_back(scenario):
    async def story(cluster):
        leader, _follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        await cluster.settle(0.3)
        leader.produce(b"a")
        await asyncio.sleep(0.0021)
        assert leader.log.high_watermark == 1

    scenario(story)


def test_a_response_is_appended_and_the_next_fetch_sent_in_the_turn_in_which_it_arrives(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        submit, seen = cluster.submit, []

        def submit_and_look(source, target, request, then):
            cluster.sent = getattr(cluster, "sent", 0) + 1

            def then_look(future):
                sent = cluster.sent
                then(future)
                seen.append((follower.log.log_end_offset, cluster.sent - sent))

            return submit(source, target, request, then_look)

        cluster.submit = submit_and_look
        cluster.elect(1, 0)
        await cluster.settle(0.3)
        leader.produce(b"a")
        await asyncio.sleep(0.0011)
        assert seen[-1] == (1, 1)

    scenario(story)


def test_no_response_is_processed_once_a_fetcher_begins_to_close(scenario):
    async def story(cluster):
        _leader, follower = cluster.add(1, 2)
        submit, replies = cluster.submit, []

        def submit_and_keep(*request):
            replies.append(submit(*request))
            return replies[-1]

        cluster.submit = submit_and_keep
        cluster.elect(1, 0)
        await cluster.settle(0.1)
        assert not replies[-1].done()  # the leader delays it
        stopping = asyncio.create_task(follower.following.stop())
        await asyncio.sleep(0)  # the task begins
        await asyncio.sleep(0)  # the fetcher begins to close
        assert replies[-1].cancelled() and not stopping.done()
        await stopping

    scenario(story)


def test_the_followers_watermark_is_the_leaders_as_far_as_it_has_it(scenario):
    async def story(cluster):
        leader, follower, third = cluster.add(1, 2, 3)
        cluster.cut.add((3, 1))
        cluster.elect(1, 0)
        leader.produce(b"a", b"b")
        await cluster.settle()
        assert (follower.log.log_end_offset, follower.log.high_watermark) == (2, 0)
        cluster.cut.clear()
        await cluster.settle()
        assert follower.log.high_watermark == third.log.high_watermark == 2

    scenario(story)


def test_the_logs_start_follows_the_leaders(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        leader.produce(b"a")
        leader.produce(b"b")
        await cluster.settle()
        leader.log.advance_log_start(1)
        await cluster.settle()
        assert follower.log.log_start_offset == 1
        told = [p.log_start_offset for f in cluster.fetches(follower) for t in f.topics for p in t.partitions]
        assert told[-1] == 1  # DeleteRecords waits for it

    scenario(story)


def test_the_leader_hears_of_a_start_that_the_followers_own_retention_has_moved_first(scenario):
    """Simulation seed 200095: the follower never joined the ISR, because the leader knew its old start."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2, topic={"retention_bytes": 0})
        cluster.elect(1, 0, isr=[1])
        leader.produce(b"a")
        await cluster.settle()
        delete_old_segments(follower.log, 0)
        await cluster.settle()
        delete_old_segments(leader.log, 0)
        await cluster.settle()
        assert leader.log.log_start_offset == follower.log.log_start_offset == 1
        told = [p.log_start_offset for f in cluster.fetches(follower) for t in f.topics for p in t.partitions]
        assert told[-1] == 1
        assert 2 in leader.partition().propose().members

    scenario(story)


def test_the_leader_hears_of_a_start_that_retention_has_moved_before_an_outdated_reply(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2, topic={"retention_bytes": 0})
        cluster.elect(1, 0)
        leader.produce(b"a")
        leader.produce(b"b")
        await cluster.settle()
        follower.threads.mean_delay = 0.5
        leader.log.advance_log_start(1)
        while follower.log.stored_start is None:
            await asyncio.sleep(0.001)
        release = cluster.hold(follower, leader)
        leader.log.advance_log_start(2)
        while follower.log.stored_start is not None:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        delete_old_segments(follower.log, 0)
        release.set()
        await cluster.settle()
        told = [p.log_start_offset for f in cluster.fetches(follower) for t in f.topics for p in t.partitions]
        assert told[-2:] == [1, 2]

    scenario(story)


def test_a_watermark_counts_that_came_after_the_partition_was_named_again(scenario):
    """Simulation seed 72030: the leader sends it once. A replica that had moved its log start stayed behind.

    It caught up only with the next record.
    """

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        leader.produce(b"a")
        await cluster.settle(0.25)
        leader.produce(b"b")
        leader.log.advance_log_start(1)
        await asyncio.sleep(0.1)
        log = follower.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1, 2, 2)

    scenario(story)


def test_a_log_start_that_moves_while_the_leader_changes_has_nothing_fetched_in_the_old_epoch(scenario):
    """Simulation seed 70166: the follower sent another request to the old leader."""

    async def story(cluster):
        leader, other, follower = cluster.add(1, 2, 3)
        cluster.elect(1, 0)
        leader.produce(b"a")
        leader.produce(b"b")
        await cluster.settle()
        follower.threads.mean_delay = 0.5
        leader.log.advance_log_start(1)
        while not follower.directory.checkpoints.planned_starts:
            await asyncio.sleep(0.01)
        cluster.elect(2, 1)
        cluster.fetches(follower)
        await cluster.settle()
        told = [p for f in cluster.fetches(follower) for t in f.topics for p in t.partitions]
        assert {partition.current_leader_epoch for partition in told} == {1}
        assert other.log.high_watermark == 2

    scenario(story)


def test_a_replica_that_cannot_store_a_log_start_leads_without_the_deleted_records(scenario):
    """Simulation seed 79343: its disk was full, and it served the deleted records again."""

    async def story(cluster):
        leader, other, follower = cluster.add(1, 2, 3)
        cluster.elect(1, 0)
        leader.produce(b"a")
        leader.produce(b"b")
        await cluster.settle()
        follower.disk.refuse = lambda operation, path: (
            OSError(errno.ENOSPC, "full") if "log-start" in path else None
        )
        leader.log.advance_log_start(1)
        await cluster.settle()
        cluster.elect(3, 1)
        await cluster.settle()
        assert follower.log.log_start_offset == 1
        assert other.log.log_start_offset == 1

    scenario(story)


def test_a_log_start_that_was_not_stored_in_one_epoch_is_told_in_the_next_when_it_is_on_disk(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        leader.produce(b"a")
        leader.produce(b"b")
        await cluster.settle()
        follower.disk.refuse = lambda operation, path: (
            OSError(errno.ENOSPC, "full") if "log-start" in path else None
        )
        leader.log.advance_log_start(1)
        await cluster.settle()
        cluster.elect(1, 1)
        await cluster.settle()
        told = [p.log_start_offset for f in cluster.fetches(follower) for t in f.topics for p in t.partitions]
        assert set(told) == {0}
        follower.disk.refuse = lambda operation, path: None
        await asyncio.sleep(2.0)
        told = [p.log_start_offset for f in cluster.fetches(follower) for t in f.topics for p in t.partitions]
        assert told[-1] == 1
        assert follower.log.stored_start is None

    scenario(story)


def test_the_leader_hears_of_a_log_start_when_it_is_on_disk(scenario):
    """Simulation seed 121: all brokers were killed, and records that DeleteRecords had deleted were back."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        leader.produce(b"a")
        leader.produce(b"b")
        await cluster.settle()
        follower.disk.refuse = lambda operation, path: (
            OSError(errno.ENOSPC, "full") if "log-start" in path else None
        )
        leader.log.advance_log_start(1)
        await cluster.settle()
        told = [p.log_start_offset for f in cluster.fetches(follower) for t in f.topics for p in t.partitions]
        assert follower.log.log_start_offset == 1 and set(told) == {0}
        follower.disk.refuse = lambda operation, path: None
        await asyncio.sleep(2.0)
        told = [p.log_start_offset for f in cluster.fetches(follower) for t in f.topics for p in t.partitions]
        assert follower.log.log_start_offset == 1 and told[-1] == 1
        stored = checkpoints.decode_offsets(
            read_file(follower.disk, "/data/log-start-offset-checkpoint")
        ).offsets
        assert list(stored.values()) == [1]

    scenario(story)


def test_idle_partitions_are_named_in_no_request(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        for index in range(300):
            cluster.elect(1, 0, index=index)
        await cluster.settle()
        cluster.fetches(follower)
        leader.produce(b"a", index=7)
        await asyncio.sleep(1.0)
        fetches = cluster.fetches(follower)
        named = [p.partition for fetch in fetches for topic in fetch.topics for p in topic.partitions]
        assert named == [7]
        assert len(fetches) <= 4

    scenario(story)


def test_a_partition_that_is_followed_later_does_not_wait_for_the_fetch_that_is_parked(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        await cluster.settle(0.25)
        cluster.elect(1, 0, index=1)
        leader.produce(b"a", index=1)
        await asyncio.sleep(0.0061)
        assert leader.partition(1).log.high_watermark == 1
        assert follower.content(1) == [(0, 0)]

    scenario(story)


def test_a_leader_that_cannot_be_reached_is_tried_again_ever_more_rarely(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.cut.add((2, 1))
        cluster.elect(1, 0)
        await asyncio.sleep(20)
        assert 20 <= len(cluster.fetches(follower)) <= 30
        cluster.cut.clear()
        leader.produce(b"a")
        await asyncio.sleep(1.2)
        assert follower.content() == [(0, 0)]

    scenario(story)


def test_an_error_of_one_partition_holds_up_no_other(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0, only=[follower], index=0)
        cluster.elect(1, 0, index=1)
        leader.produce(b"a", index=1)
        await asyncio.sleep(0.1)
        assert follower.content(1) == [(0, 0)]
        await asyncio.sleep(10)
        assert len(cluster.fetches(follower)) <= 60
        cluster.elect(1, 0, only=[leader], index=0)
        leader.produce(b"b", index=0)
        await asyncio.sleep(1.2)
        assert follower.content(0) == [(0, 0)]

    scenario(story)


def test_a_session_that_the_leader_has_lost_is_begun_again(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        await cluster.settle()
        leader.sessions._close_replica(2)
        leader.produce(b"a")
        await cluster.settle(1.0)
        assert follower.content() == [(0, 0)]

    scenario(story)


def test_a_broker_that_has_registered_again_tells_its_leader_everything_again(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        leader.produce(b"a")
        await cluster.settle()
        cluster.fetches(follower)
        cluster.register(2)
        await cluster.settle(1.0)
        named = [
            (fetch.replica_state.replica_epoch, partition.fetch_offset)
            for fetch in cluster.fetches(follower)
            for topic in fetch.topics
            for partition in topic.partitions
        ]
        assert named == [(cluster.brokers[2].epoch, 1)]  # or it would not count for the ISR (KIP-903)

    scenario(story)


def test_nothing_is_asked_of_a_leader_that_leads_nothing_any_more(scenario):
    async def story(cluster):
        leader, follower, other = cluster.add(1, 2, 3)
        cluster.elect(1, 0)
        await cluster.settle()
        cluster.elect(3, 1)
        await cluster.settle()
        cluster.fetches(follower)
        await cluster.settle()
        assert {to for source, to, _ in cluster.requests if source == 2} <= {3}
        assert not leader.partition().followers
        other.produce(b"a")
        await cluster.settle()
        assert follower.content() == leader.content() == [(0, 1)]

    scenario(story)


def test_many_partitions_are_named_some_at_a_time(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        for index in range(1200):
            cluster.elect(1, 0, index=index)
        for index in (0, 700, 1199):
            leader.produce(b"a", index=index)
        await asyncio.sleep(0.05)
        named = [sum(len(topic.partitions) for topic in fetch.topics) for fetch in cluster.fetches(follower)]
        assert max(named) <= 503
        assert sum(named) == 1203
        assert all(leader.partition(index).log.high_watermark == 1 for index in (0, 700, 1199))

    scenario(story)


def test_an_unforeseen_error_does_not_end_the_copying(scenario, caplog):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        await cluster.settle()

        def spoil(source, target, request, response):
            response.responses = [None]

        cluster.alter = spoil
        await cluster.settle()
        cluster.alter = None
        leader.produce(b"a")
        await cluster.settle()
        assert follower.content() == [(0, 0)]
        assert "copying from broker 1 has failed" in caplog.text

    scenario(story)


def test_the_leader_is_asked_on_and_on_when_nothing_is_new(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        await cluster.settle(5)
        assert len(cluster.fetches(follower)) >= 9
        leader.produce(b"a")
        await asyncio.sleep(0.1)
        assert follower.content() == [(0, 0)]

    scenario(story)


def test_no_request_outlives_the_stop(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        cluster.hold(follower, leader)
        await cluster.settle(0.1)
        await follower.following.stop()
        await asyncio.sleep(0.1)
        assert not cluster.under_way(follower, leader)

    scenario(story)


def test_a_partition_that_was_taken_down_is_asked_for_no_more(scenario):
    """A replica that a reassignment had removed, and its leader, exchanged requests without a pause."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        cluster.elect(1, 0, index=1)
        leader.produce(b"a")
        await cluster.settle()
        follower.partition().close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"))
        cluster.elect(1, 1, isr=[1], only=[leader])
        cluster.fetches(follower)
        await cluster.settle(10.0)
        assert len(cluster.fetches(follower)) < 10.0 / 0.5 + 5
        leader.produce(b"b", index=1)
        await cluster.settle(0.1)
        assert follower.partition(1).log.log_end_offset == 1  # the others are copied on

    scenario(story)


@pytest.mark.parametrize("kind", ["empty", "unknown partition"])
def test_answers_that_come_at_once_and_bring_nothing_are_met_with_a_pause(scenario, kind):
    unknown = FetchableTopicResponse(
        topic_id=TOPIC_ID,
        partitions=[PartitionData(partition_index=77, error_code=ErrorCode.FENCED_LEADER_EPOCH)],
    )

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        leader.produce(b"a")
        await cluster.settle()
        cluster.fetches(follower)
        cluster.instead = lambda request: FetchResponse(
            session_id=request.session_id, responses=[unknown] if kind == "unknown partition" else []
        )
        await cluster.settle(10.0)
        assert len(cluster.fetches(follower)) < 40  # without a pause there are 5,000
        cluster.instead = None
        leader.produce(b"b")
        await cluster.settle()
        assert follower.log.log_end_offset == 2
        await cluster.settle(1.0)
        leader.produce(b"c")
        await cluster.settle(0.01)
        assert follower.log.log_end_offset == 3  # no pause is left of it

    scenario(story)
