"""Offset checkpoints are written in steps after a change."""

from types import SimpleNamespace

import pytest
from simulation.faulty_disk import FaultyDisk

from barnabas.base.types import TopicPartition
from barnabas.broker.logs.offset_checkpoint import CheckpointWrite, OffsetCheckpoint
from barnabas.broker.storage.checkpoints import CheckpointedOffsets, decode_offsets

PATH = "/data/checkpoint"
TOPIC_ID = b"t" * 16


@pytest.fixture
def disk():
    disk = FaultyDisk()
    disk.make_directory("/data")
    return disk


@pytest.fixture
def checkpoint(disk):
    return OffsetCheckpoint(disk, PATH, CheckpointedOffsets({}, {}, None))


def open_logs(count):
    return {
        TopicPartition("t", number): SimpleNamespace(offset=number, topic_id=TOPIC_ID)
        for number in range(count)
    }


def write(checkpoint, logs):
    """Write the checkpoint. Return whether there was a change."""
    task = CheckpointWrite(checkpoint, logs, lambda log: log.offset)
    task.run()
    return task.is_needed


def written(disk):
    file = disk.open(PATH)
    try:
        return {
            tp.partition: offset for tp, offset in decode_offsets(file.read_at(1 << 20, 0)).offsets.items()
        }
    finally:
        file.close()


def test_what_has_not_changed_is_not_written_again(disk, checkpoint):
    logs = open_logs(3)
    assert write(checkpoint, logs)
    assert not write(checkpoint, logs)
    logs[TopicPartition("t", 1)].offset = 7
    assert write(checkpoint, logs)
    assert written(disk) == {0: 0, 1: 7, 2: 2}


def test_a_log_that_is_left_out_is_written_as_gone(disk, checkpoint):
    logs = open_logs(3)
    write(checkpoint, logs)
    del logs[TopicPartition("t", 0)]
    assert not write(checkpoint, logs), "what is said of logs that are not open stays"
    checkpoint.forget(TopicPartition("t", 0))
    assert write(checkpoint, logs)
    assert written(disk) == {1: 1, 2: 2}


def test_a_log_that_need_not_be_named_any_more_is_not(disk, checkpoint):
    logs = open_logs(2)
    write(checkpoint, logs)
    logs[TopicPartition("t", 1)].offset = None
    assert write(checkpoint, logs)
    assert written(disk) == {0: 0}


def test_a_write_that_failed_is_made_again(disk, checkpoint, monkeypatch):
    def fail(*_):
        raise OSError("no")

    logs = open_logs(2)
    with monkeypatch.context() as broken:
        broken.setattr("barnabas.broker.logs.offset_checkpoint.replace_file", fail)
        with pytest.raises(OSError, match="no"):
            write(checkpoint, logs)
    assert write(checkpoint, logs)
    assert written(disk) == {0: 0, 1: 1}


def test_what_changes_between_the_steps_is_written_now_or_the_next_time(disk, checkpoint):
    logs = open_logs(2_000)
    task = CheckpointWrite(checkpoint, logs, lambda log: log.offset)
    steps = task.prepare()
    next(steps)
    gone, early, late = (TopicPartition("t", number) for number in (1_999, 1_998, 0))
    del logs[gone]
    logs[early].offset = logs[late].offset = 5_000
    assert len(list(steps)) > 10
    task.run()
    after = written(disk)
    assert (after.get(1_999), after[1_998], after[0]) == (None, 5_000, 0)
    assert write(checkpoint, logs)
    assert written(disk)[0] == 5_000
