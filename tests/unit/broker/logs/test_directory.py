"""Log directories on a real file system: locks, identity and contents."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment

from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.environment.randomness import new_topic_id, system_random
from barnabas.base.errors import ConfigError, KafkaError
from barnabas.base.system import locks
from barnabas.base.types import ZERO_TOPIC_ID, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import DirectoryLocked, LogDirectory
from barnabas.broker.storage import OpenFiles
from barnabas.broker.storage.checkpoints import (
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_offsets,
    encode_partition_metadata,
)
from barnabas.kafka.records import Record, encode_batch

NOW = 1_700_000_000_000
BATCH = encode_batch([Record(b"k", b"v", NOW)])


def open_directory(path: Path, *, cluster_id: str = "c1", node_id: int = 1) -> LogDirectory:
    return LogDirectory.open(
        OpenFiles(OsFileSystem()),
        str(path),
        simulated_environment(clock=ManualClock(NOW)),
        cluster_id=cluster_id,
        node_id=node_id,
    )


def test_a_second_broker_on_the_directory_gets_one_clear_line(tmp_path):
    directory = open_directory(tmp_path / "data")
    with pytest.raises(DirectoryLocked, match="in use by another broker"):
        open_directory(tmp_path / "data")
    directory.close()
    open_directory(tmp_path / "data").close()


@pytest.mark.skipif(locks.fcntl is None, reason="there are no POSIX record locks here")
def test_the_lock_shuts_out_another_process_and_record_locks_such_as_javas(tmp_path):
    directory = open_directory(tmp_path)
    script = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / ".lock")]
    assert b"BlockingIOError" in subprocess.run(command, capture_output=True, check=False).stderr
    directory.close()
    subprocess.run(command, check=True)


def test_a_lock_held_elsewhere_is_respected(tmp_path):
    open_directory(tmp_path).close()
    fd = os.open(tmp_path / ".lock", os.O_RDWR)
    locks.lock(fd)
    with pytest.raises(DirectoryLocked):
        open_directory(tmp_path)
    os.close(fd)


def test_the_directory_belongs_to_one_broker_of_one_cluster(tmp_path):
    open_directory(tmp_path).close()
    with pytest.raises(ConfigError, match=r"belongs to node\.id=1, this broker has node\.id=2"):
        open_directory(tmp_path, node_id=2)
    with pytest.raises(ConfigError, match=r"belongs to cluster\.id=c1"):
        open_directory(tmp_path, cluster_id="c2")
    found = decode_properties((tmp_path / "meta.properties").read_bytes())
    assert (found["version"], found["cluster.id"], found["node.id"]) == ("1", "c1", "1")
    directory = open_directory(tmp_path)
    assert directory.directory_id == found["directory.id"]
    directory.close()


def test_partitions_are_found_again_by_name_and_topic_id(tmp_path):
    ids = {TopicPartition(name, 0): new_topic_id(system_random()) for name in ("a", "b-1", "c.d_e-0")}
    directory = open_directory(tmp_path)
    for topic_partition, topic_id in ids.items():
        directory.create(topic_partition, topic_id, TopicConfig()).append_as_leader(BATCH, 0)
    directory.close()
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "a-1").write_text("not a folder")
    directory = open_directory(tmp_path)
    assert directory.found() == ids
    for topic_partition, topic_id in ids.items():
        assert directory.load(topic_partition, topic_id, TopicConfig()).log_end_offset == 1
    directory.close()


def test_a_torn_topic_id_is_unknown_and_written_anew(tmp_path):
    partition, topic_id = TopicPartition("a", 0), new_topic_id(system_random())
    directory = open_directory(tmp_path)
    directory.create(partition, topic_id, TopicConfig()).append_as_leader(BATCH, 0)
    directory.close()
    (tmp_path / "a-0" / "partition.metadata").write_text("version")
    directory = open_directory(tmp_path)
    assert directory.found() == {partition: ZERO_TOPIC_ID}
    directory.load(partition, topic_id, TopicConfig())
    assert directory.found() == {partition: topic_id}
    directory.close()


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(tmp_path):
    partition = TopicPartition("a", 0)
    directory = open_directory(tmp_path)
    directory.create(partition, new_topic_id(system_random()), TopicConfig()).append_as_leader(BATCH, 0)
    removal = directory.delete(partition)
    assert directory.found() == {} and partition not in directory.logs
    (folder,) = tmp_path.glob("*-delete")
    directory.create(partition, new_topic_id(system_random()), TopicConfig())
    removal.run()
    assert not folder.exists()
    assert list(directory.found()) == [partition]
    directory.close()


def test_deletions_that_a_stop_interrupted_are_found(tmp_path):
    directory = open_directory(tmp_path)
    directory.create(TopicPartition("x" * 249, 0), new_topic_id(system_random()), TopicConfig())
    directory.delete(TopicPartition("x" * 249, 0))
    directory.close()
    directory = open_directory(tmp_path)
    assert directory.found() == {}
    for removal in directory.folders.leftovers():
        removal.run()
    assert not list(tmp_path.glob("*-delete"))
    directory.close()


def test_only_folders_of_deleted_partitions_are_to_be_deleted(tmp_path):
    directory = open_directory(tmp_path)
    directory.create(TopicPartition("living", 0), new_topic_id(system_random()), TopicConfig())
    directory.create(TopicPartition("gone", 0), new_topic_id(system_random()), TopicConfig())
    directory.delete(TopicPartition("gone", 0))
    (folder,) = tmp_path.glob("gone-0.*-delete")
    (tmp_path / folder.name.replace("gone", "file")).write_text("not a folder")
    directory.close()
    directory = open_directory(tmp_path)
    assert [removal.path for removal in directory.folders.leftovers()] == [str(folder)]
    directory.close()


def test_clean_stop_writes_down_the_brokers_epoch_and_the_next_start_knows_it(tmp_path):
    marker = tmp_path / ".kafka_cleanshutdown"
    directory = open_directory(tmp_path)
    directory.broker_epoch = 42
    directory.close()
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":42}'
    directory = open_directory(tmp_path)
    assert (directory.was_clean, directory.previous_epoch) == (True, 42)
    directory.close()
    for content in (b"", b"{", b"[]", b'{"brokerEpoch":"x"}', b'{"brokerEpoch":-1}'):
        marker.write_bytes(content)
        directory = open_directory(tmp_path)
        assert (directory.was_clean, directory.previous_epoch) == (True, -1)
        directory.close()
    marker.unlink()
    directory = open_directory(tmp_path)
    assert (directory.was_clean, directory.previous_epoch) == (False, -1)
    directory.close()


def as_kafka_reads(path):
    """Return lines without spaces at the end: Kafka splits them at spaces."""
    return [line.rstrip(" \t") for line in path.read_text().splitlines()]


def test_a_log_begins_with_the_high_watermark_that_was_written_down(tmp_path):
    directory = open_directory(tmp_path)
    topic_partition, topic_id = TopicPartition("a", 3), new_topic_id(system_random())
    log = directory.create(topic_partition, topic_id, TopicConfig())
    for _ in range(3):
        log.append_as_leader(BATCH, 0)
    log.advance_high_watermark(2)
    directory.close()
    directory = open_directory(tmp_path)
    log = directory.load(topic_partition, topic_id, TopicConfig())
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 2, 3)
    log.close()
    directory.close()


def test_checkpoints_are_in_kafkas_format(tmp_path):
    directory = open_directory(tmp_path)
    log = directory.create(TopicPartition("a", 3), new_topic_id(system_random()), TopicConfig())
    log.append_as_leader(BATCH, 0)
    log.append_as_leader(BATCH, 0)
    log.advance_high_watermark(2)
    log.advance_log_start(1)
    directory.close()
    assert as_kafka_reads(tmp_path / "recovery-point-offset-checkpoint") == ["0", "1", "a 3 2"]
    assert as_kafka_reads(tmp_path / "replication-offset-checkpoint") == ["0", "1", "a 3 2"]
    assert as_kafka_reads(tmp_path / "log-start-offset-checkpoint") == ["0", "1", "a 3 1"]
    assert as_kafka_reads(tmp_path / "a-3" / "leader-epoch-checkpoint") == ["0", "1", "0 1"]
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    directory = open_directory(tmp_path)
    assert directory.high_watermarks == {TopicPartition("a", 3): 2}
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    directory.close()


def test_a_damaged_checkpoint_is_passed_over(tmp_path, caplog):
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\na 0 5\n")
    open_directory(tmp_path).close()
    assert "recovery-point-offset-checkpoint is damaged" in caplog.text


def test_offsets_and_topic_ids_come_back_from_their_files():
    offsets = {TopicPartition("a.b-c_d", 7): 2**62, TopicPartition("x", 0): 0}
    tags = {TopicPartition("x", 0): 2**32 - 1}
    assert decode_offsets(encode_offsets(offsets, tags)) == (offsets, tags, None)
    topic_id = new_topic_id(system_random())
    assert decode_partition_metadata(encode_partition_metadata(topic_id)) == topic_id


@pytest.mark.parametrize("content", [b"", b"0", b"1\n0\n", b"0\n1\n", b"0\n1\na 0\n", b"0\nx\n", b"\xff"])
def test_what_is_no_checkpoint_is_seen(content):
    offsets, tags, damage = decode_offsets(content)
    assert offsets == tags == {}
    assert damage is not None


def test_a_checkpoint_of_kafkas_is_read():
    assert decode_offsets(b"0\n1\na 0 5\n") == ({TopicPartition("a", 0): 5}, {}, None)


def test_any_flipped_bit_in_a_checkpoint_is_seen_and_other_lines_still_count():
    offsets = {TopicPartition("orders", 3): 1234567, TopicPartition("x", 0): 100}
    tags = {TopicPartition("orders", 3): 77, TopicPartition("x", 0): 1}
    whole = encode_offsets(offsets, tags)
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            found = decode_offsets(bytes(flipped))
            assert found.damage is not None
            assert found.offsets.items() <= offsets.items()
            assert found.tags.items() <= tags.items()
    for size in range(len(whole)):
        assert decode_offsets(whole[:size]).damage is not None


def test_any_flipped_bit_in_a_topic_id_is_seen():
    topic_id = new_topic_id(system_random())
    whole = encode_partition_metadata(topic_id)
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            try:
                found = decode_partition_metadata(bytes(flipped))
            except ValueError:
                continue
            assert found == topic_id


def test_kafkas_comments_in_meta_properties_are_passed_over(tmp_path):
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Nov 21 00:00:00 UTC 2026\ncluster.id=c1\ndirectory.id=abcdefghijklmnopqrstuv\n"
        "node.id=1\nversion=1\n"
    )
    directory = open_directory(tmp_path)
    assert directory.directory_id == "abcdefghijklmnopqrstuv"
    directory.close()


def test_a_partition_that_was_never_written_is_an_empty_folder_until_the_next_start(tmp_path):
    partition = TopicPartition("a", 0)
    directory = open_directory(tmp_path)
    directory.create(partition, new_topic_id(system_random()), TopicConfig())
    directory.close()
    assert list((tmp_path / "a-0").iterdir()) == []
    directory = open_directory(tmp_path)
    assert directory.found() == {}
    assert not (tmp_path / "a-0").exists()
    log = directory.create(partition, new_topic_id(system_random()), TopicConfig())
    assert log.append_as_leader(BATCH, 0).base_offset == 0
    assert directory.found() == {partition: log.topic_id}
    directory.close()


def test_idle_partitions_hold_no_open_files(tmp_path):
    directory = open_directory(tmp_path)
    for number in range(100):
        directory.create(TopicPartition("a", number), new_topic_id(system_random()), TopicConfig())
    assert len(directory.env.files) == 0
    directory.close()


class CaseBlind(OsFileSystem):
    """A file system that ignores case below its root, as is usual on macOS and Windows."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def _blind(self, path: str) -> str:
        return self._root + path.removeprefix(self._root).lower()

    def open(self, path, *, create=False):
        return super().open(self._blind(path), create=create)

    def entries(self, path):
        return super().entries(self._blind(path))

    def make_directory(self, path):
        return super().make_directory(self._blind(path))

    def rename(self, source, target):
        super().rename(self._blind(source), self._blind(target))


@pytest.mark.parametrize("is_written", [True, False])
def test_a_topic_does_not_take_the_folder_of_one_whose_name_differs_in_case_alone(
    tmp_path, caplog, is_written
):
    files = OpenFiles(CaseBlind(tmp_path))
    directory = LogDirectory.open(
        files, str(tmp_path), simulated_environment(clock=ManualClock(NOW)), cluster_id="c1", node_id=1
    )
    log = directory.create(TopicPartition("Orders", 0), new_topic_id(system_random()), TopicConfig())
    if is_written:
        log.append_as_leader(BATCH, 0)
    with pytest.raises(KafkaError, match="has the folder of orders-0"):
        directory.create(TopicPartition("orders", 0), new_topic_id(system_random()), TopicConfig())
    assert "Orders-0 has the folder of orders-0" in caplog.text
    log.append_as_leader(BATCH, 0)
    assert log.log_end_offset == 1 + is_written
    assert TopicPartition("orders", 0) not in directory.logs
    directory.create(TopicPartition("others", 0), new_topic_id(system_random()), TopicConfig())
    directory.close()
