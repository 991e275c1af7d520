"""Compaction: the results of Barnabas and Apache Kafka for the same log, and each on the other's result."""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.peers import Barnabas, Kafka, Peer
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.conftest import DUMP

from barnabas.cli.app import app

SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "index.interval.bytes": "512",
    "min.cleanable.dirty.ratio": "0.01",
}
CLEAN = ("log.cleaner.backoff.ms=100",)
LEAVE = ("log.cleaner.enable=false",)

pytestmark = pytest.mark.timeout(300)  # several brokers start, one after the other

Records = dict[int, tuple[bytes, bytes | None]]


@pytest.fixture
def start(classpath, tmp_path) -> Callable[..., Peer]:
    """Start a broker with settings. Brokers of one name use the same directory."""
    peers: dict[str, Peer] = {}

    def run(kind: type[Peer], name: str, settings: tuple[str, ...]) -> Peer:
        peer = peers.setdefault(name, kind(tmp_path / name))
        peer.settings = settings
        peer.start()
        return peer

    yield run
    for peer in peers.values():
        peer.stop()


def create(peer: Peer, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1, config=CONFIG)])[topic].result(30)


def fill(peer: Peer, topic: str) -> None:
    """Write keys repeatedly with every codec, tombstones, and transactions that commit and abort."""
    for number, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": peer.bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "batch.num.messages": 20,
                "log_level": 0,
            }
        )
        for index in range(400):
            key = b"key %d" % (index * (number + 1) % 150)
            value = None if index % 23 == 0 else uuid.uuid4().hex.encode() * 20
            producer.produce(topic, value, key, 0)
        assert producer.flush(30) == 0
    transactional = Producer({"bootstrap.servers": peer.bootstrap, "transactional.id": topic, "log_level": 0})
    transactional.init_transactions(30)
    for number in range(6):
        transactional.begin_transaction()
        transactional.produce(topic, b"%d" % number, b"key %d" % number, 0)
        transactional.produce(topic, b"%d" % number, b"in a transaction", 0)
        transactional.flush(30)
        if number % 2:
            transactional.abort_transaction(30)
        else:
            transactional.commit_transaction(30)
    producer = Producer({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    for number in range(3):  # seals what came before
        producer.produce(topic, bytes(600_000), b"filler %d" % number, 0)
    assert producer.flush(30) == 0


def read(peer: Peer, topic: str) -> Records:
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records: Records = {}
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return records
        records[message.offset()] = (message.key(), message.value())


def folder(peer: Peer, topic: str) -> Path:
    (found,) = peer.directory.rglob(f"{topic}-0")
    return found


def transplant(topic: str, source: Peer, target: Peer) -> None:
    """Replace a stopped broker's log of a topic by that of another broker."""
    for old in folder(target, topic).iterdir():
        if old.name != "partition.metadata":
            old.unlink()
    for file in folder(source, topic).iterdir():
        if file.name != "partition.metadata" and not file.name.endswith(".deleted"):
            shutil.copy(file, folder(target, topic))


def wait_until_clean(peer: Peer, topic: str) -> None:
    """Wait until all segments but the active one are clean, by the checkpoint (our lines end in spaces)."""
    deadline = time.monotonic() + 60
    while True:
        active = max(int(log.stem) for log in folder(peer, topic).glob("*.log"))
        file = folder(peer, topic).parent / "cleaner-offset-checkpoint"
        cleaned = re.search(rf"^{topic} 0 (\d+)\s*$", file.read_text() if file.exists() else "", re.MULTILINE)
        if cleaned and int(cleaned[1]) == active:
            return
        assert time.monotonic() < deadline, "it is not cleaned"
        time.sleep(0.2)


@pytest.fixture
def written(start) -> tuple[Peer, str]:
    """Return a stopped broker of ours, whose log was never cleaned, and the name of its topic."""
    topic = f"t-{uuid.uuid4().hex[:8]}"
    peer = start(Barnabas, "ours", LEAVE)
    create(peer, topic)
    fill(peer, topic)
    peer.stop()
    return peer, topic


def test_both_leave_the_same_records_and_read_what_the_other_has_left(start, written):
    ours, topic = written
    theirs = start(Kafka, "theirs", LEAVE)
    create(theirs, topic)
    theirs.stop()
    transplant(topic, ours, theirs)
    theirs = start(Kafka, "theirs", LEAVE)
    everything = read(theirs, topic)
    theirs.stop()

    ours, theirs = start(Barnabas, "ours", CLEAN), start(Kafka, "theirs", CLEAN)
    for peer in (ours, theirs):
        wait_until_clean(peer, topic)
    left = read(ours, topic)
    assert left == read(theirs, topic)
    assert left.items() < everything.items()
    latest = dict(everything.values())  # ascending by offset
    assert dict(left.values()) == latest
    assert len({key for key, _ in left.values()}) + 3 > len(left)  # no key twice, but in the active segment

    other_ours, other_theirs = start(Barnabas, "other ours", LEAVE), start(Kafka, "other theirs", LEAVE)
    for peer in (other_ours, other_theirs):
        create(peer, topic)
    for peer in (ours, theirs, other_ours, other_theirs):
        peer.stop()
    transplant(topic, theirs, other_ours)
    transplant(topic, ours, other_theirs)
    assert read(start(Barnabas, "other ours", CLEAN), topic) == left
    assert read(start(Kafka, "other theirs", CLEAN), topic) == left


@pytest.mark.parametrize("moment", ["before it counts", "when it counts"])
def test_we_finish_a_cleaning_of_kafkas_that_a_crash_interrupted(start, written, moment):
    """The files are those of an interrupted swap of segments: the old ones beside the new ones."""
    uncleaned, topic = written
    theirs = start(Kafka, "theirs", LEAVE)
    create(theirs, topic)
    theirs.stop()
    transplant(topic, uncleaned, theirs)
    theirs = start(Kafka, "theirs", CLEAN)
    wait_until_clean(theirs, topic)
    left = read(theirs, topic)
    theirs.stop()

    ours = start(Barnabas, "ours", LEAVE)
    everything = read(ours, topic)
    ours.kill()
    suffixes = (".cleaned", ".swap") if moment == "before it counts" else (".swap", ".swap")
    first = min(folder(theirs, topic).glob("*.log")).stem
    for file in folder(theirs, topic).glob(f"{first}.*"):
        if file.suffix in SEGMENT_FILES:
            suffix = suffixes[file.suffix == ".index"]
            shutil.copy(file, folder(ours, topic) / (file.name + suffix))
    found = read(start(Barnabas, "ours", LEAVE), topic)
    if moment == "before it counts":
        assert found == everything
    else:
        assert found.items() >= left.items() and len(found) < len(everything)
    assert not [file for file in folder(ours, topic).iterdir() if file.suffix in (".swap", ".cleaned")]


def test_apache_kafka_finishes_a_cleaning_of_ours_that_a_crash_interrupted(start, written):
    uncleaned, topic = written
    saved = uncleaned.directory.parent / "saved"
    shutil.copytree(folder(uncleaned, topic), saved)
    ours = start(Barnabas, "ours", CLEAN)
    wait_until_clean(ours, topic)
    left = read(ours, topic)
    ours.stop()
    cleaned = [file for file in folder(ours, topic).glob(f"{0:020d}.*") if file.suffix in SEGMENT_FILES]
    swaps = {file.name: file.read_bytes() for file in cleaned}
    theirs = start(Kafka, "theirs", LEAVE)
    create(theirs, topic)
    deadline = time.monotonic() + 30
    while not any(theirs.directory.rglob(f"{topic}-0/partition.metadata")):  # Kafka makes it a moment later
        assert time.monotonic() < deadline, "its log is not created"
        time.sleep(0.05)
    theirs.kill()
    for file in saved.iterdir():
        if file.name != "partition.metadata":
            shutil.copy(file, folder(theirs, topic))
    for name, content in swaps.items():
        (folder(theirs, topic) / f"{name}.swap").write_bytes(content)
    found = read(start(Kafka, "theirs", LEAVE), topic)
    assert found.items() >= left.items()


def test_dump_log_segments_finds_no_fault_in_what_we_have_cleaned(java, start, written):
    _, topic = written
    ours = start(Barnabas, "ours", CLEAN)
    wait_until_clean(ours, topic)
    ours.stop()
    for log in sorted(folder(ours, topic).glob("*.log")):
        if not log.stat().st_size:
            continue
        out = java.run(DUMP, "--deep-iteration", "--print-data-log", "--files", str(log))
        assert "isvalid: false" not in out
        if int(log.stem) == 0:
            assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", out)
        mine = CliRunner().invoke(app, ["log", "dump", str(log), "--records"]).output.splitlines()
        assert mine == [line for line in out.splitlines() if not line.startswith("Log starting offset")]
        for suffix in (".index", ".timeindex"):
            index = log.with_suffix(suffix)
            verified = java.run(DUMP, "--verify-index-only", "--files", str(index))
            assert "ismatch" not in verified and "out of order" not in verified, verified
    for index in folder(ours, topic).glob("*.txnindex"):
        assert "producerId" in java.run(DUMP, "--files", str(index))
