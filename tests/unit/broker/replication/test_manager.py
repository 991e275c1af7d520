"""New partitions are opened some at a time. A request for one that is not open yet opens it at once."""

import asyncio
import errno
import logging
from itertools import pairwise
from types import SimpleNamespace

import pytest
from immutables import Map
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.metadata.image import ClusterImage, ImageDelta, PartitionState, TopicImage
from barnabas.broker.replication import manager
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition

ME = 1
TOPIC_ID = b"t" * 16


class FakeLogs:
    """Notes the logs that were created and deleted."""

    def __init__(self):
        self.made = {}
        self.is_closed = False
        self.incomplete = ()
        #: the error of attempts to create a log, and the number of attempts
        self.full = None
        self.attempts = 0

    def __iter__(self):
        return iter(self.made.values())

    def get(self, topic_partition):
        return self.made.get(topic_partition)

    def create(self, topic_partition, topic_id, config):
        self.attempts += 1
        if self.full is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from self.full
        log = SimpleNamespace(
            topic_partition=topic_partition,
            topic_id=topic_id,
            log_start_offset=0,
            log_end_offset=0,
            recovery_point=0,
            failure=None,
            high_watermark=0,
            advance_high_watermark=lambda offset: False,
            config=TopicConfig(),
            files=SimpleNamespace(
                is_cut=False, has_rolled=False, has_unflushed_switch=False, is_flushing=False
            ),
        )
        self.made[topic_partition] = log
        return log

    def delete(self, topic_partition):
        self.made.pop(topic_partition, None)

    delete_moved = delete


@pytest.fixture
def logs():
    return FakeLogs()


def manager_of(logs, **options):
    configs = SimpleNamespace(topic_config=lambda image, topic: None)
    return ReplicaManager(
        ME,
        logs,
        configs,
        on_flush_due=lambda partition: None,
        on_isr_change_due=lambda partition: None,
        now=lambda: 0.0,
        max_lag=lambda: 30.0,
        **options,
    )


@pytest.fixture
def replicas(logs):
    return manager_of(logs)


def image_of(partitions):
    states = tuple(PartitionState((ME,), (ME,), ME) for _ in range(partitions))
    topics = {"t": TopicImage("t", TOPIC_ID, states)} if partitions else {}
    return ClusterImage(topics=topics, topic_names=dict.fromkeys([TOPIC_ID], "t") if topics else {})


def apply(replicas, before, after):
    replicas.apply(ImageDelta(before, after, topics=frozenset({"t"})))


async def turns():
    for _ in range(100):
        await asyncio.sleep(0)


def test_partitions_of_a_large_topic_are_opened_over_several_turns(logs, replicas):
    async def scenario():
        apply(replicas, ClusterImage(), image_of(500))
        await asyncio.sleep(0)
        assert 0 < len(logs.made) < 500
        await turns()
        assert len(logs.made) == 500
        assert [partition.topic_partition.partition for partition in replicas] == list(range(500))

    asyncio.run(scenario())


def test_partitions_may_come_and_go_while_somebody_goes_through_them(logs, replicas):
    async def scenario():
        apply(replicas, ClusterImage(), image_of(50))
        await turns()
        told = iter(replicas)
        next(told)
        apply(replicas, image_of(50), image_of(60))
        await turns()
        assert len({partition.topic_partition for partition in told}) >= 49
        told = iter(replicas)
        next(told)
        apply(replicas, image_of(60), image_of(0))
        await turns()
        assert len(list(told)) <= 59

    asyncio.run(scenario())


def test_what_is_in_sync_is_checked_over_several_turns(replicas, monkeypatch):
    checked = []
    monkeypatch.setattr(Partition, "check_in_sync", lambda each: checked.append(each.topic_partition))

    async def scenario():
        apply(replicas, ClusterImage(), image_of(500))
        await turns()
        checked.clear()
        replicas.check_in_sync()
        await asyncio.sleep(0)
        assert 0 < len(checked) < 500
        seen = len(checked)
        replicas.check_in_sync()  # the time has come again: it begins anew
        await turns()
        assert len(checked) == seen + 500
        replicas.check_in_sync()
        await turns()
        assert len(checked) == seen + 1000

    asyncio.run(scenario())


def test_partition_that_is_asked_for_before_its_turn_is_opened_at_once(logs, replicas):
    async def scenario():
        apply(replicas, ClusterImage(), image_of(500))
        assert replicas.find("t", 499).topic_partition == TopicPartition("t", 499)
        assert replicas.find(TOPIC_ID, 499) is replicas.find("t", 499)
        made = logs.made[TopicPartition("t", 499)]
        await turns()
        assert logs.made[TopicPartition("t", 499)] is made

    asyncio.run(scenario())


@pytest.mark.parametrize("is_closed", [False, True])
def test_partitions_that_are_no_longer_wanted_are_not_opened(logs, replicas, is_closed):
    async def scenario():
        now = image_of(500)
        apply(replicas, ClusterImage(), now)
        if is_closed:
            logs.is_closed = True
        else:
            apply(replicas, now, ClusterImage())
            with pytest.raises(KafkaError):
                replicas.find("t", 0)
        await turns()
        assert not logs.made

    asyncio.run(scenario())


def test_partitions_that_a_full_disk_kept_from_opening_are_opened_when_there_is_space(logs, caplog):
    """No client sends requests to a follower, so no request opens it."""

    async def scenario():
        changed = []
        replicas = manager_of(logs, on_change=changed.append)
        full = logs.full = OSError(errno.ENOSPC, "no space left")
        now = image_of(20)
        apply(replicas, ClusterImage(), now)
        await asyncio.sleep(60)
        assert not changed
        logs.full = None
        await asyncio.sleep(10)
        assert len(changed) == len(logs.made) == 20
        shown = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
        assert len(shown) == 11
        assert shown[10].startswith("10 more partitions cannot be opened")
        attempts = logs.attempts
        logs.full = full
        await asyncio.sleep(60)
        assert logs.attempts == attempts

    run_virtual(scenario())


@pytest.mark.parametrize("change", ["deleted", "moved", "closed", "broken"])
def test_partitions_that_could_not_be_opened_are_not_tried_for_ever(logs, replicas, change):
    async def scenario():
        logs.full = OSError(errno.ENOSPC, "no space left")
        now = image_of(1)
        apply(replicas, ClusterImage(), now)
        await asyncio.sleep(1)
        if change == "broken":
            logs.full = OSError(errno.EIO, "it cannot be written")
        elif change == "deleted":
            apply(replicas, now, ClusterImage())
        elif change == "moved":
            topic = TopicImage("t", TOPIC_ID, (PartitionState((2,), (2,), 2),))
            apply(replicas, now, ClusterImage(topics={"t": topic}, topic_names={TOPIC_ID: "t"}))
        logs.is_closed = change == "closed"
        await asyncio.sleep(30)
        attempts = logs.attempts
        await asyncio.sleep(60)
        assert logs.attempts == attempts

    run_virtual(scenario())


def test_partitions_that_cannot_be_opened_are_tried_again_once_in_a_while(logs, replicas):
    """One of them is broken for good. The next one that cannot be opened must not begin a second series."""

    async def scenario():
        full = logs.full = OSError(errno.ENOSPC, "no space left")
        apply(replicas, ClusterImage(), image_of(1))
        await asyncio.sleep(4)
        logs.full = OSError(errno.EIO, "it cannot be written")
        await asyncio.sleep(2)
        logs.full = full
        apply(replicas, image_of(1), image_of(2))
        await asyncio.sleep(10)
        attempts = logs.attempts
        await asyncio.sleep(50)
        assert logs.attempts - attempts == 20  # of both partitions

    run_virtual(scenario())


def test_partitions_that_cannot_be_opened_are_tried_again_only_when_all_were_tried(
    logs, replicas, monkeypatch
):
    """With a full disk, attempts at thousands of partitions can last longer than the pause between them."""
    monkeypatch.setattr(manager, "_OPEN_AGAIN_SECONDS", 0)

    async def scenario():
        logs.full = OSError(errno.ENOSPC, "no space left")
        apply(replicas, ClusterImage(), image_of(500))
        await turns()
        await turns()
        logs.full = None
        logs.attempts = 0
        await turns()
        assert len(logs.made) == logs.attempts == 500
        assert not replicas._unopened

    asyncio.run(scenario())


def test_partition_stays_open_while_its_deletion_is_seen_in_part(logs, replicas):
    """Simulation seed 553: for a moment, the partition used a log that had been deleted."""

    async def scenario():
        held = image_of(1)
        noted = held._replace(deleted_topics=Map({TOPIC_ID: frozenset([ME])}))
        gone = ClusterImage(deleted_topics=noted.deleted_topics)
        apply(replicas, ClusterImage(), held)
        partition = replicas.find("t", 0)
        replicas.apply(ImageDelta(held, noted))
        assert logs.made and partition.unavailable is None
        apply(replicas, noted, gone)
        assert not logs.made and partition.unavailable is not None

    asyncio.run(scenario())


def test_a_deleted_partition_keeps_its_log_until_its_fsync_has_ended(logs, replicas):
    async def scenario():
        held = image_of(2)
        noted = held._replace(deleted_topics=Map({TOPIC_ID: frozenset([ME])}))
        gone = ClusterImage(deleted_topics=noted.deleted_topics)
        apply(replicas, ClusterImage(), held)
        replicas.find("t", 1)
        await turns()
        flushed = TopicPartition("t", 0)
        logs.made[flushed].files.is_flushing = True
        apply(replicas, noted, gone)
        await turns()
        assert [*logs.made] == [flushed]
        logs.made[flushed].files.is_flushing = False
        await asyncio.sleep(0.2)
        assert not logs.made

    run_virtual(scenario())


def image_of_state(state):
    return ClusterImage(topics={"t": TopicImage("t", TOPIC_ID, (state,))}, topic_names={TOPIC_ID: "t"})


def test_a_partition_whose_move_away_is_complete_is_closed_and_deleted(logs, replicas):
    async def scenario():
        held = image_of_state(PartitionState((ME,), (ME,), ME))
        moving = image_of_state(PartitionState((2, ME), (ME, 2), ME, adding=(2,), removing=(ME,)))
        moved = image_of_state(PartitionState((2,), (2,), 2, leader_epoch=1))
        apply(replicas, ClusterImage(), held)
        partition = replicas.find("t", 0)
        apply(replicas, held, moving)
        assert replicas.find("t", 0) is partition
        apply(replicas, moving, moved)
        assert not logs.made
        assert partition.unavailable is not None
        with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
            replicas.find("t", 0)
        apply(replicas, moved, held)
        assert replicas.find("t", 0) is not partition

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "state",
    [
        PartitionState((2,), (ME, 2), 2),
        PartitionState((2,), (2,), ME),
        PartitionState((2,), (), -1, elr=(ME,)),
        PartitionState((2,), (), -1, last_known_elr=(ME,)),
    ],
)
def test_a_replica_that_somebody_took_out_while_it_is_needed_is_kept(logs, replicas, state):
    async def scenario():
        held = image_of_state(PartitionState((ME, 2), (ME, 2), ME))
        apply(replicas, ClusterImage(), held)
        replicas.find("t", 0)
        apply(replicas, held, image_of_state(state))
        assert [*logs.made] == [TopicPartition("t", 0)]

    asyncio.run(scenario())


def test_whoever_copies_a_partition_is_told_that_it_has_moved_away(logs):
    """Earlier, its fetcher asked the leader for it forever."""
    told = []

    async def scenario():
        replicas = manager_of(logs, on_change=lambda partition: told.append(partition.unavailable))
        held = image_of_state(PartitionState((2, ME), (2, ME), 2))
        moved = image_of_state(PartitionState((2, 3), (2, 3), 2, leader_epoch=1))
        apply(replicas, ClusterImage(), held)
        replicas.find("t", 0)
        told.clear()
        apply(replicas, held, moved)
        assert [error.code.name for error in told] == ["NOT_LEADER_OR_FOLLOWER"]

    asyncio.run(scenario())


def test_a_partition_that_moves_away_before_it_was_opened_is_not_opened(logs, replicas):
    async def scenario():
        held, moved = (image_of_state(PartitionState((each,), (each,), each)) for each in (ME, 2))
        apply(replicas, ClusterImage(), held)
        apply(replicas, held, moved)
        await turns()
        assert not logs.made

    asyncio.run(scenario())


def test_log_that_was_loaded_for_a_deleted_topic_is_not_the_next_ones_of_its_name(replicas, logs):
    async def scenario():
        earlier = logs.create(TopicPartition("t", 0), b"e" * 16, None)
        image = image_of(1)._replace(deleted_topics={b"e" * 16: frozenset({ME})})
        apply(replicas, ClusterImage(), image)
        log = replicas.find("t", 0).log
        assert log is not earlier
        assert log.topic_id == TOPIC_ID

    asyncio.run(scenario())


def test_log_of_another_topic_stays_when_nobody_has_deleted_that(replicas, logs):
    async def scenario():
        earlier = logs.create(TopicPartition("t", 0), b"e" * 16, None)
        apply(replicas, ClusterImage(), image_of(1))
        with pytest.raises(KafkaError, match="another topic"):
            replicas.find("t", 0)
        assert logs.get(TopicPartition("t", 0)) is earlier

    asyncio.run(scenario())


@pytest.mark.parametrize("is_deleted", [False, True])
def test_log_of_another_topic_stays_when_the_topic_of_its_name_is_on_other_brokers(
    replicas, logs, is_deleted
):
    """A user has removed the nodes of the earlier topic, and created a topic with its name."""

    async def scenario():
        earlier = logs.create(TopicPartition("t", 0), b"e" * 16, None)
        elsewhere = image_of_state(PartitionState((2,), (2,), 2))
        if is_deleted:
            elsewhere = elsewhere._replace(deleted_topics={b"e" * 16: frozenset({ME})})
        apply(replicas, ClusterImage(), elsewhere)
        assert list(logs) == ([] if is_deleted else [earlier])

    asyncio.run(scenario())


def test_the_broker_says_once_that_it_keeps_the_log_of_an_earlier_topic(replicas, logs, caplog):
    async def scenario():
        logs.create(TopicPartition("t", 0), b"e" * 16, None)
        before = ClusterImage()
        for epoch in range(3):
            elsewhere = image_of_state(PartitionState((2,), (2,), 2, leader_epoch=epoch))
            apply(replicas, before, elsewhere)
            before = elsewhere
        assert caplog.text.count("the log of t-0 is that of an earlier topic") == 1

    asyncio.run(scenario())


def test_logs_of_a_topic_that_is_merely_gone_are_kept_and_used_again(logs, replicas, caplog):
    """CMAK 900, KAFKA-14190: a broker deletes logs only if the deletion of the topic is recorded."""

    async def scenario():
        apply(replicas, ClusterImage(), image_of(3))
        await turns()
        made = dict(logs.made)
        before = replicas.find("t", 0)
        apply(replicas, image_of(3), ClusterImage())
        assert before.unavailable is not None
        with pytest.raises(KafkaError):
            replicas.find("t", 0)
        assert logs.made == made
        assert "topic t is gone from the metadata store, but was not deleted" in caplog.text
        apply(replicas, ClusterImage(), image_of(3))
        assert logs.made == made
        assert replicas.find("t", 0).log is made[TopicPartition("t", 0)]

    asyncio.run(scenario())


def test_logs_of_a_topic_go_when_the_word_comes_after_it_was_gone(logs, replicas):
    async def scenario():
        apply(replicas, ClusterImage(), image_of(3))
        await turns()
        apply(replicas, image_of(3), ClusterImage())
        word = ClusterImage(deleted_topics={TOPIC_ID: frozenset({ME})})
        replicas.apply(ImageDelta(ClusterImage(), word))
        assert logs.made == {}

    asyncio.run(scenario())


def test_a_note_that_is_gone_again_deletes_the_logs_of_its_topic(logs, replicas, caplog):
    """The record of the deletion does not name a replica that moved away. It may learn of both changes
    together.
    """

    async def scenario():
        apply(replicas, ClusterImage(), image_of(3))
        await turns()
        deleted = frozenset({TOPIC_ID})
        replicas.apply(ImageDelta(image_of(3), ClusterImage(), topics=frozenset({"t"}), deleted=deleted))
        assert logs.made == {}
        assert not caplog.records

    asyncio.run(scenario())


def test_log_of_a_topic_that_was_deleted_while_it_was_loaded_goes(logs, replicas):
    async def scenario():
        logs.create(TopicPartition("t", 0), TOPIC_ID, None)
        kept = logs.create(TopicPartition("u", 0), b"u" * 16, None)
        word = ClusterImage(deleted_topics={TOPIC_ID: frozenset({ME})})
        replicas.apply(ImageDelta(ClusterImage(), word))
        assert logs.made == {TopicPartition("u", 0): kept}

    asyncio.run(scenario())


def test_a_failed_directory_takes_no_more_writes_and_others_do(logs, replicas):
    async def main():
        apply(replicas, image_of(0), image_of(2))
        await turns()
        logs.directory_of = lambda name: SimpleNamespace(path=f"/disk{name.partition}")
        replicas.take_offline("/disk1")

    asyncio.run(main())
    well, failed = replicas
    assert well.unwritable is None
    assert failed.unwritable.message == "/disk1 is offline"


def deleted(partitions):
    """Return the image after the deletion of the topic."""
    noted = Map({TOPIC_ID: frozenset([ME])})
    return image_of(partitions)._replace(deleted_topics=noted), ClusterImage(deleted_topics=noted)


def test_the_logs_of_a_large_deleted_topic_are_deleted_over_several_turns(logs, replicas):
    async def scenario():
        apply(replicas, ClusterImage(), image_of(500))
        await turns()
        partition = replicas.find("t", 499)
        noted, gone = deleted(500)
        replicas.apply(ImageDelta(image_of(500), noted))
        apply(replicas, noted, gone)
        assert partition.unavailable is not None
        with pytest.raises(KafkaError):
            replicas.find("t", 499)
        left = [len(logs.made)]
        while logs.made:
            await asyncio.sleep(0)
            left.append(len(logs.made))
        assert max(before - after for before, after in pairwise(left)) < 50
        assert len(left) > 10

    asyncio.run(scenario())


def test_a_topic_made_anew_while_its_namesake_is_deleted_keeps_its_logs(logs, replicas):
    async def scenario():
        apply(replicas, ClusterImage(), image_of(500))
        await turns()
        noted, gone = deleted(500)
        apply(replicas, noted, gone)
        other = TopicImage("t", b"n" * 16, image_of(500).topics["t"].partitions)
        again = gone._replace(topics={"t": other}, topic_names={other.id: "t"})
        apply(replicas, gone, again)
        assert replicas.find("t", 499).log.topic_id == other.id
        await turns()
        assert {log.topic_id for log in logs.made.values()} == {other.id}
        assert len(logs.made) == 500

    asyncio.run(scenario())
