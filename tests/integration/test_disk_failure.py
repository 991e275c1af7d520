"""Disks that fill up, fail and lose power under a running broker."""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from simulation.faulty_disk import FaultyDisk

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import BarnabasError, ConfigError, ErrorCode
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.records import all_records


class Mounts:
    """Several disks, each mounted at a folder. Parent folders do not matter."""

    def __init__(self, disks):
        self.disks = disks
        self.root = FaultyDisk()
        for folder in disks:
            self.root.make_directory(folder)

    def __getattr__(self, name):
        return lambda path, *args, **options: getattr(self._disk(path), name)(path, *args, **options)

    def max_open_files(self):
        return None

    def _disk(self, path):
        return next((disk for folder, disk in self.disks.items() if path.startswith(folder)), self.root)


@pytest.fixture
def start(tmp_path):
    """Start brokers on a file system."""
    running = []

    def start_broker(fs, *, log_dirs=(), **settings):
        config = BrokerConfig(
            listeners=("PLAINTEXT://127.0.0.1:0",), log_dirs=log_dirs or (str(tmp_path / "a"),), **settings
        )
        running.append(BrokerServer(config, replace(Environment.of_system(), filesystem=fs)).start())
        return running[-1]

    yield start_broker
    for broker in running:
        broker.stop()


def test_a_broken_disk_refuses_writes_and_is_still_read_and_the_others_go_on(
    tmp_path, start, connect, make_topic, produce, batch, fetch_request, read_values
):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    broken, healthy = FaultyDisk(), FaultyDisk()
    wire = connect(start(Mounts({paths[0]: broken, paths[1]: healthy}), log_dirs=tuple(paths)))
    topic = make_topic(2, by=wire)
    for partition in (0, 1):
        assert produce(topic, batch(b"before"), partition=partition, by=wire).error_code == 0

    broken.fail_writes = True
    codes = {p: produce(topic, batch(b"after"), partition=p, by=wire).error_code for p in (0, 1)}
    assert sorted(codes.values()) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    failed = next(p for p, code in codes.items() if code)

    broken.mend()  # what has failed once is trusted no more
    assert produce(topic, batch(b"x"), partition=failed, by=wire).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answers = wire(fetch_request(topic, {0: 0, 1: 0})).responses[0].partitions
    values = {a.partition_index: read_values(a) for a in answers}
    assert values == {failed: [b"before"], 1 - failed: [b"before", b"after"]}
    dirs = {r.log_dir: r.error_code for r in wire(DescribeLogDirsRequest(topics=None)).results}
    assert dirs == {paths[0]: ErrorCode.KAFKA_STORAGE_ERROR, paths[1]: 0}
    another = make_topic(2, by=wire)
    assert [produce(another, batch(b"y"), partition=p, by=wire).error_code for p in (0, 1)] == [0, 0]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EINVAL, errno.EACCES])
def test_what_is_no_fault_of_the_disk_refuses_requests_only_while_it_lasts(
    start, connect, make_topic, produce, batch, fetch_request, read_values, number
):
    disk = FaultyDisk()
    wire = connect(start(disk))
    topic, other = make_topic(by=wire), make_topic(by=wire)
    assert produce(topic, batch(b"before"), by=wire).error_code == 0

    def ask(operation, name):
        if operation in ("open", "write", "make_directory") and topic.name in name:
            return OSError(number, os.strerror(number))
        return None

    disk.refuse = ask
    for _ in range(3):
        assert produce(topic, batch(b"lost"), by=wire).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(other, batch(b"v"), by=wire).error_code == 0
    disk.mend()
    assert produce(topic, batch(b"after"), by=wire).base_offset == 1
    (data,) = wire(fetch_request(topic, {0: 0})).responses[0].partitions
    assert read_values(data) == [b"before", b"after"]
    assert [r.error_code for r in wire(DescribeLogDirsRequest(topics=None)).results] == [0]


def test_a_topic_made_on_a_full_disk_is_served_once_there_is_space(
    start, connect, make_topic, produce, batch
):
    disk = FaultyDisk()
    wire = connect(start(disk))
    refused = []

    def ask(operation, name):
        if operation == "make_directory" and len(refused) < 3:
            refused.append(name)
            return OSError(errno.ENOSPC, "no space left")
        return None

    disk.refuse = ask
    topic = make_topic(by=wire)  # which waits until its partition is served
    assert len(refused) == 3
    assert produce(topic, batch(b"x"), by=wire).error_code == 0


def test_groups_that_are_first_used_on_a_full_disk_work_once_there_is_space(start, connect, make_topic):
    disk = FaultyDisk()
    wire = connect(start(disk, offsets_topic_num_partitions=3))
    topic = make_topic(by=wire)
    disk.refuse = lambda operation, name: (
        OSError(errno.ENOSPC, "no space left") if "/__consumer_offsets-" in name else None
    )
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic.name, partitions=[partition])],
    )

    def committed():
        wire(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        return wire(commit, version=9).topics[0].partitions[0].error_code

    deadline = time.monotonic() + 10
    while committed() != ErrorCode.NOT_COORDINATOR:
        assert time.monotonic() < deadline
    assert committed() == ErrorCode.NOT_COORDINATOR
    disk.mend()
    deadline = time.monotonic() + 30
    while committed():
        assert time.monotonic() < deadline


@pytest.mark.parametrize("version", [12, 13])
def test_no_later_batch_takes_the_place_of_one_that_found_its_partition_unopened(
    start, connect, produce, batch, version
):
    disk = FaultyDisk()
    wire = connect(start(disk))
    is_full = True

    def ask(operation, name):
        if operation == "make_directory" and is_full:
            return OSError(errno.ENOSPC, "no space left")
        return None

    disk.refuse = ask
    (made,) = wire(
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    ).topics

    def send(sequence):
        records = batch(b"%d" % sequence, producer_id=5, producer_epoch=0, base_sequence=sequence)
        answer = produce(SimpleNamespace(name="t", id=made.topic_id), records, by=wire, version=version)
        return answer.error_code or answer.base_offset

    assert send(0) == ErrorCode.KAFKA_STORAGE_ERROR
    is_full = False
    assert send(1) == ErrorCode.KAFKA_STORAGE_ERROR  # it was on its way when the first was refused
    assert [send(0), send(1)] == [0, 1]


def test_fsyncs_that_fail_for_want_of_files_are_tried_again_and_the_answer_waits(
    start, connect, make_topic, produce, batch
):
    disk = FaultyDisk()
    broker = start(disk, barnabas_acks_fsync=True)
    wire = connect(broker)
    topic = make_topic(by=wire)
    refused = []

    def ask(operation, name):
        if operation == "sync_directory" and len(refused) < 2:
            refused.append(name)
            return OSError(errno.EMFILE, "too many open files")
        return None

    disk.refuse = ask
    assert produce(topic, batch(b"safe"), acks=-1, by=wire).error_code == 0
    assert len(refused) == 2


def test_a_start_on_a_full_disk_says_so_in_one_line_with_the_cure(tmp_path, caplog):
    disk = FaultyDisk()
    disk.space = 0
    data = str(tmp_path / "a")
    config = BrokerConfig(listeners=("PLAINTEXT://127.0.0.1:0",), log_dirs=(data,), metadata_store="memory")
    with pytest.raises(ConfigError) as refused:
        BrokerServer(config, replace(Environment.of_system(), filesystem=disk)).start()
    (line,) = str(refused.value).splitlines()
    assert data in line and "full" in line and "free some space" in line
    assert not [record for record in caplog.records if record.exc_info]


def test_a_directory_that_fails_before_the_broker_serves_harms_nothing_else(
    tmp_path, start, connect, make_topic, produce, batch, caplog
):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    disks = FaultyDisk(), FaultyDisk()
    mounts = Mounts(dict(zip(paths, disks, strict=True)))
    first = start(mounts, log_dirs=tuple(paths))
    wire = connect(first)
    topic = make_topic(2, by=wire)
    for partition in (0, 1):
        assert produce(topic, batch(b"v"), partition=partition, by=wire).error_code == 0
    disks[0].fail_writes = True  # nor can the stop be marked as clean
    first.stop()
    wire = connect(start(mounts, log_dirs=tuple(paths)))
    codes = [produce(topic, batch(b"w"), partition=p, by=wire).error_code for p in (0, 1)]
    assert sorted(codes) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_waiting_produce_learns_that_the_disk_has_failed(start, connect, make_topic, produce, batch):
    disk = GatedDisk()
    broker = start(disk, barnabas_acks_fsync=True)
    wire, writer = connect(broker), connect(broker)
    topic, other = make_topic(by=wire), make_topic(by=wire)
    disk.gate.clear()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(produce(topic, batch(b"v"), by=writer)))
    thread.start()
    assert disk.waiting.wait(60)
    disk.fail_writes = True
    assert produce(other, batch(b"x"), by=wire).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    thread.join(60)
    assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR]
    disk.gate.set()


def test_what_could_not_be_fsynced_is_not_acknowledged(
    start, connect, make_topic, produce, batch, fetch_request
):
    disk = FaultyDisk()
    wire = connect(start(disk, barnabas_acks_fsync=True))
    topic = make_topic(by=wire)
    assert produce(topic, batch(b"safe"), by=wire).error_code == 0
    disk.fail_syncs = True
    for acks in (1, -1):
        result = produce(topic, batch(b"lost"), acks=acks, by=wire)
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("how", ["broker", "topic"])
def test_an_answer_waits_for_its_fsync_and_so_do_consumers(
    start, connect, make_topic, batch, produce, fetch_request, read_values, how
):
    disk = GatedDisk()
    broker = start(disk, barnabas_acks_fsync=how == "broker")
    configs = {"flush.messages": "1"} if how == "topic" else {}
    wire, writer = connect(broker), connect(broker)
    topic = make_topic(by=wire, **configs)
    disk.gate.clear()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(produce(topic, batch(b"v"), by=writer)))
    thread.start()
    assert disk.waiting.wait(60)
    (data,) = wire(fetch_request(topic, {0: 0})).responses[0].partitions
    assert (data.high_watermark, len(data.records)) == (0, 0)
    assert answers == []
    header = wire.send(fetch_request(topic, {0: 0}, max_wait_ms=15_000))
    disk.gate.set()
    thread.join(60)
    assert [answer.error_code for answer in answers] == [0]
    assert read_values(wire.receive(header).responses[0].partitions[0]) == [b"v"]


class GatedDisk(FaultyDisk):
    """A disk whose fsyncs wait while the gate is closed."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def open(self, path, *, create=False):
        file = super().open(path, create=create)
        sync = file.sync

        def gated_sync():
            if not self.gate.is_set():
                self.waiting.set()
            self.gate.wait(60)
            sync()

        file.sync = gated_sync
        return file


def test_produce_requests_share_fsyncs(start, connect, make_topic, batch, produce):
    disk = CountingDisk()
    broker = start(disk, barnabas_acks_fsync=True)
    topic = make_topic(by=connect(broker))
    writers = [connect(broker) for _ in range(20)]
    before = disk.syncs

    def write(wire):
        for _ in range(10):
            assert produce(topic, batch(b"v"), by=wire).error_code == 0

    threads = [threading.Thread(target=write, args=(wire,)) for wire in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert disk.syncs - before < 200 / 2


class CountingDisk(FaultyDisk):
    """A disk that counts the fsyncs of logs."""

    def __init__(self):
        super().__init__()
        self.syncs = 0

    def open(self, path, *, create=False):
        file = super().open(path, create=create)
        if path.endswith(".log"):
            sync = file.sync

            def counted_sync():
                self.syncs += 1
                threading.Event().wait(0.01)  # what an fsync of a slow disk takes
                sync()

            file.sync = counted_sync
        return file


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_loses_nothing_that_was_acknowledged_with_fsync(
    tmp_path, start, connect, make_topic, produce, batch, fetch_request, seed
):
    disk = FaultyDisk()
    chance = random.Random(seed)
    mount(disk, tmp_path)
    broker = start(disk, barnabas_acks_fsync=True, log_segment_bytes=2000)
    wire = connect(broker)
    topic = make_topic(by=wire)
    acknowledged = {}
    for number in range(chance.randrange(1, 60)):
        data = batch(b"%d" % number * chance.randrange(1, 100))
        result = produce(topic, data, acks=chance.choice([1, -1]), by=wire)
        assert result.error_code == 0
        acknowledged[result.base_offset] = b"%d" % number
    pull_the_plug(disk, broker, chance)

    wire = connect(start(disk))
    found = {}
    offset = 0
    while data := wire(fetch_request(topic, {0: offset})).responses[0].partitions[0].records:
        found.update((record.offset, record.value) for record in all_records(data))
        offset = max(found) + 1
    assert {o: v for o, v in acknowledged.items() if not found.get(o, b"").startswith(v)} == {}
    assert len(found) == len(acknowledged)


def mount(disk, folder):
    """Create `folder` on the disk durably."""
    disk.make_directory(str(folder))
    for parent in folder.parents:
        disk.sync_directory(str(parent))


def pull_the_plug(disk, broker, chance):
    """Cut the power: no later write of the broker reaches the disk."""
    disk.fail_writes = disk.fail_syncs = True
    broker.stop()
    disk.crash(chance)


def test_a_start_without_space_for_the_metadata_says_so_in_one_line_with_the_cure(tmp_path):
    disk = FaultyDisk()
    disk.space = 0
    data = str(tmp_path / "a")
    with pytest.raises(BarnabasError) as refused:
        BrokerServer(
            BrokerConfig(listeners=("PLAINTEXT://127.0.0.1:0",), log_dirs=(data,)),
            replace(Environment.of_system(), filesystem=disk),
        ).start()
    (line,) = str(refused.value).splitlines()
    assert data in line and "full" in line and "free some space" in line
