"""Disks that fill up, break and lose their power under a running broker."""

from __future__ import annotations

import random
import threading

import pytest

from barnabas.config import BrokerConfig
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.records import all_records
from barnabas.server.run import BrokerServer
from barnabas.testing.faulty_disk import FaultyDisk


class Mounts:
    """Several disks, each mounted at a folder; what lies above is of no interest."""

    def __init__(self, disks):
        self.disks = disks
        self.root = FaultyDisk()
        for folder in disks:
            self.root.make_directory(folder)

    def __getattr__(self, name):
        return lambda path, *args, **options: getattr(self._disk(path), name)(path, *args, **options)

    def _disk(self, path):
        return next((disk for folder, disk in self.disks.items() if path.startswith(folder)), self.root)


@pytest.fixture
def start(tmp_path):
    """Starts brokers on a file system; the metadata lies on a real disk."""
    running = []

    def start_broker(fs, *, log_dirs=(), **settings):
        config = BrokerConfig(
            listeners=("PLAINTEXT://127.0.0.1:0",), log_dirs=log_dirs or (str(tmp_path / "a"),), **settings
        )
        running.append(BrokerServer(config, fs=fs).start())
        return running[-1]

    yield start_broker
    for broker in running:
        broker.stop()


def test_a_full_disk_is_an_error_for_its_partitions_and_the_others_go_on(
    tmp_path, start, connect, make_topic, produce, batch, fetch_request
):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    full, healthy = FaultyDisk(), FaultyDisk()
    wire = connect(start(Mounts({paths[0]: full, paths[1]: healthy}), log_dirs=tuple(paths)))
    topic = make_topic(2, by=wire)
    for partition in (0, 1):
        assert produce(topic, batch(b"before"), partition=partition, by=wire).error_code == 0

    full.space = 10
    codes = {p: produce(topic, batch(b"after"), partition=p, by=wire).error_code for p in (0, 1)}
    assert sorted(codes.values()) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    failed = next(p for p, code in codes.items() if code)

    full.mend()  # what has failed once is trusted no more
    assert produce(topic, batch(b"x"), partition=failed, by=wire).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answers = wire(fetch_request(topic, {0: 0, 1: 0})).responses[0].partitions
    assert {a.partition_index: a.error_code for a in answers} == {
        failed: ErrorCode.KAFKA_STORAGE_ERROR,
        1 - failed: 0,
    }
    dirs = {r.log_dir: r.error_code for r in wire(DescribeLogDirsRequest(topics=None)).results}
    assert dirs == {paths[0]: ErrorCode.KAFKA_STORAGE_ERROR, paths[1]: 0}
    another = make_topic(2, by=wire)
    assert [produce(another, batch(b"y"), partition=p, by=wire).error_code for p in (0, 1)] == [0, 0]


def test_a_waiting_fetch_learns_that_the_disk_has_failed(
    start, connect, make_topic, produce, batch, fetch_request
):
    disk = FaultyDisk()
    broker = start(disk)
    wire, reader = connect(broker), connect(broker)
    topic = make_topic(by=wire)
    header = reader.send(fetch_request(topic, {0: 0}, max_wait_ms=15_000))
    disk.fail_writes = True
    assert produce(topic, batch(b"x"), by=wire).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (data,) = reader.receive(header).responses[0].partitions
    assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR


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
    assert disk.waiting.wait(10)
    (data,) = wire(fetch_request(topic, {0: 0})).responses[0].partitions
    assert (data.high_watermark, len(data.records)) == (0, 0)
    assert answers == []
    header = wire.send(fetch_request(topic, {0: 0}, max_wait_ms=15_000))
    disk.gate.set()
    thread.join(10)
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
            self.gate.wait(20)
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
    """Counts the fsyncs of logs."""

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
    """Have `folder` on the disk for sure."""
    disk.make_directory(str(folder))
    for parent in folder.parents:
        disk.sync_directory(str(parent))


def pull_the_plug(disk, broker, chance):
    """Nothing of what the broker would still write reaches the disk."""
    disk.fail_writes = disk.fail_syncs = True
    broker.stop()
    disk.crash(chance)
