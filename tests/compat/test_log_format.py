"""Log directories have Apache Kafka's format: its tools read them, and each broker
can use the other's files.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from bench.peers import PEERS, Kafka, Peer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.conftest import DUMP
from tests.compat.wire import Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# What is committed is what the test commits; brokers come and go here, so clients do not complain of it.
QUIET = {"enable.auto.commit": False, "log_level": 0}
# Several segments, dense indexes; and kept, though the records' own times are years ago.
SEGMENT = {"segment.bytes": "1048576", "index.interval.bytes": "1024", "retention.ms": "-1"}

pytestmark = pytest.mark.timeout(300)  # several brokers start, one after the other


class Record(NamedTuple):
    """The fields of a record that a consumer sees."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@pytest.fixture
def ours(classpath, tmp_path) -> Iterator[Peer]:
    """Return a broker of ours for this test, which does not run yet and can be restarted."""
    yield from _fresh(PEERS[os.environ.get("BARNABAS_COMPAT_BROKER", "barnabas")](tmp_path / "ours"))


@pytest.fixture
def theirs(classpath, tmp_path) -> Iterator[Peer]:
    """Return a broker of Apache Kafka for this test, which does not run yet."""
    yield from _fresh(Kafka(tmp_path / "theirs"))


def _fresh(peer: Peer) -> Iterator[Peer]:
    try:
        yield peer
    finally:
        peer.stop()


def create(peer: Peer, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1, config=SEGMENT)])[topic].result(30)


def fill(peer: Peer, topic: str, per_codec: int = 1500, idempotent: bool = True) -> None:
    """Write records with keys, headers and given times, in batches of every codec.

    If the log is from another cluster, the producer must not be idempotent: both clusters begin with the same
    producer id.
    """
    for number, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": peer.bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "batch.num.messages": 100,
                "log_level": 0,
            }
        )
        for index in range(per_codec):
            position = number * per_codec + index
            producer.produce(
                topic,
                None if index % 50 == 0 else os.urandom(250).hex().encode(),
                None if index % 7 == 0 else b"key %d" % position,
                0,
                timestamp=1_700_000_000_000 + position,
                headers=[("codec", codec.encode()), ("none", None)],
            )
        assert producer.flush(30) == 0


def read(peer: Peer, topic: str, count: int) -> list[Record]:
    consumer = Consumer(
        {"bootstrap.servers": peer.bootstrap, "group.id": "reader", "check.crcs": True, **QUIET}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records: list[Record] = []
    while len(records) < count:
        messages = consumer.consume(min(1000, count - len(records)), 20)
        assert messages, f"only {len(records)} of {count} records came back"
        records.extend(map(_record, messages))
    consumer.close()
    return records


def _record(message: Message) -> Record:
    assert message.error() is None, message.error()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(message.offset(), message.timestamp(), message.key(), message.value(), headers)


def _committed(consumer: Consumer, partition: TopicPartition) -> list[TopicPartition]:
    """Return the committed offset, when the restarted broker has loaded its offsets."""
    for _ in range(30):
        try:
            return consumer.committed([partition], timeout=30)
        except KafkaException as error:
            assert error.args[0].code() in (
                KafkaError.NOT_COORDINATOR,
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            )
            time.sleep(0.5)
    raise AssertionError("the group's coordinator did not come up")


def log_folder(peer: Peer, topic: str, partition: int = 0) -> Path:
    (found,) = peer.directory.rglob(f"{topic}-{partition}")
    return found


def transplant(topic: str, source: Peer, target: Peer, partition: int = 0) -> None:
    """Replace a stopped broker's log of a topic by that of another broker.

    partition.metadata stays: it has the topic's id in the target's own metadata.
    """
    folder = log_folder(target, topic, partition)
    for old in folder.iterdir():
        if old.name != "partition.metadata":
            old.unlink()
    for file in log_folder(source, topic, partition).iterdir():
        if file.name != "partition.metadata":
            shutil.copy(file, folder)


def dump(java, *arguments: str, files: list[Path]) -> str:
    assert files, "there is nothing to dump"
    return java.run(DUMP, *arguments, "--files", ",".join(map(str, sorted(files))))


@pytest.fixture
def written(ours) -> tuple[Peer, str]:
    """Return a stopped broker of ours, and the name of its topic with 7,500 records."""
    topic = f"t-{uuid.uuid4().hex[:8]}"
    ours.start()
    create(ours, topic)
    fill(ours, topic)
    ours.stop()
    return ours, topic


def test_dump_log_segments_finds_every_record_and_no_fault_in_our_files(java, written):
    peer, topic = written
    folder = log_folder(peer, topic)
    assert len(list(folder.glob("*.log"))) > 2

    batches = dump(java, "--deep-iteration", "--print-data-log", files=list(folder.glob("*.log")))
    assert "isvalid: false" not in batches
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", batches, re.MULTILINE)]
    assert offsets == list(range(len(CODECS) * 1500))
    assert {codec for codec in CODECS if f"compresscodec: {codec}" in batches} == set(CODECS)
    assert set(re.findall(r"partitionLeaderEpoch: (\S+)", batches)) == {"0"}

    indexes = [*folder.glob("*.index"), *folder.glob("*.timeindex")]
    checked = dump(java, "--index-sanity-check", files=indexes)
    assert checked.count("passed sanity check") == len(indexes)
    verified = dump(java, "--verify-index-only", files=indexes)
    assert "Mismatches" not in verified and "mismatch" not in verified, verified
    entries = dump(java, files=[index for index in indexes if index.suffix == ".index"])
    assert len(re.findall(r"^offset: \d+ position: \d+", entries, re.MULTILINE)) > 50


def test_dump_log_segments_reads_our_producer_snapshots(java, written):
    peer, topic = written
    snapshots = list(log_folder(peer, topic).glob("*.snapshot"))
    out = dump(java, files=snapshots)
    assert len(set(re.findall(r"producerId: (\d+)", out))) == len(CODECS)
    assert "CorruptSnapshot" not in out
    last = [line for line in out.splitlines() if "lastOffset" in line or "lastSequence" in line]
    assert any("1499" in line for line in last), out


def test_dump_log_segments_decodes_our_consumer_offsets(java, ours):
    topic, group = f"t-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    ours.start()
    create(ours, topic)
    consumer = Consumer({"bootstrap.servers": ours.bootstrap, "group.id": group, **QUIET})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 42, metadata="here")], asynchronous=False)
    consumer.close()
    ours.stop()
    logs = [log for log in ours.directory.rglob("__consumer_offsets-*/*.log") if log.stat().st_size]
    out = dump(java, "--offsets-decoder", files=logs)
    assert re.search(rf'"group":"{group}","topic":"{topic}","partition":0', out), out
    assert re.search(r'"offset":42\b', out) and '"metadata":"here' in out  # the client adds a NUL
    assert '"protocolType":"consumer"' in out


def test_apache_kafka_serves_a_log_that_we_wrote(written, theirs):
    peer, topic = written
    theirs.start()
    create(theirs, topic)
    theirs.stop()
    transplant(topic, peer, theirs)
    theirs.start()
    peer.start()
    count = len(CODECS) * 1500
    assert read(theirs, topic, count) == read(peer, topic, count)
    fill(theirs, topic, per_codec=1, idempotent=False)
    assert [record.offset for record in read(theirs, topic, count + 5)[count:]] == list(
        range(count, count + 5)
    )


@pytest.mark.parametrize("indexes", ["kept", "lost"])
def test_we_serve_a_log_that_apache_kafka_wrote(ours, theirs, indexes):
    topic = f"t-{uuid.uuid4().hex[:8]}"
    for peer in (theirs, ours):
        peer.start()
        create(peer, topic)
    fill(theirs, topic)
    ours.stop()
    theirs.stop()
    transplant(topic, theirs, ours)
    if indexes == "lost":
        for file in log_folder(ours, topic).iterdir():
            if file.suffix in (".index", ".timeindex", ".snapshot"):
                file.unlink()
    ours.start()
    theirs.start()
    count = len(CODECS) * 1500
    assert read(ours, topic, count) == read(theirs, topic, count)
    fill(ours, topic, per_codec=1, idempotent=False)
    assert [record.offset for record in read(ours, topic, count + 5)[count:]] == list(range(count, count + 5))


@pytest.mark.parametrize("group", ["orders-app", "billing"], ids=["positive hash", "negative hash"])
def test_we_go_on_from_offsets_that_apache_kafka_committed(ours, theirs, group):
    topic = f"t-{uuid.uuid4().hex[:8]}"
    for peer in (theirs, ours):
        peer.start()
        create(peer, topic)
        fill(peer, topic, per_codec=10)
        consumer = Consumer(
            {"bootstrap.servers": peer.bootstrap, "group.id": group, "auto.offset.reset": "earliest", **QUIET}
        )
        consumer.subscribe([topic])
        assert consumer.consume(1, 30)
        if peer is theirs:
            consumer.commit(offsets=[TopicPartition(topic, 0, 33, metadata="of Kafka")], asynchronous=False)
        consumer.close()
        peer.stop()
    for folder in ours.directory.rglob("__consumer_offsets-*"):
        transplant("__consumer_offsets", theirs, ours, int(folder.name.rpartition("-")[2]))

    ours.start()
    consumer = Consumer({"bootstrap.servers": ours.bootstrap, "group.id": group, **QUIET})
    (committed,) = _committed(consumer, TopicPartition(topic, 0))
    assert (committed.offset, committed.metadata) == (33, "of Kafka")
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, 30)
    assert message.offset() == 33
    consumer.close()


def test_an_idempotent_producer_is_known_to_the_broker_that_takes_over_its_log(java, written, theirs):
    """Apache Kafka reads the producer's state from our snapshot, and writes the same state again."""
    peer, topic = written
    theirs.start()
    create(theirs, topic)
    theirs.stop()
    transplant(topic, peer, theirs)
    theirs.start()
    theirs.stop()

    def state(of: Peer) -> set[str]:
        newest = max(log_folder(of, topic).glob("*.snapshot"))
        return set(
            re.findall(
                r"producerId: \d+ producerEpoch: \d+ .*?lastTimestamp: \d+", dump(java, files=[newest])
            )
        )

    assert len(state(peer)) == len(CODECS)
    assert state(peer) == state(theirs)


def heartbeat(wire: Wire, epoch: int, **fields) -> ConsumerGroupHeartbeatRequest:
    return wire.ask(
        ConsumerGroupHeartbeatRequest(
            group_id="new", member_id="m", member_epoch=epoch, instance_id="i", **fields
        ),
        1,
    )


COORDINATOR_LOADS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@pytest.mark.parametrize("writer", ["ours", "theirs"])
def test_each_goes_on_with_a_consumer_group_that_the_other_has_stored(request, writer):
    source = request.getfixturevalue(writer)
    target = request.getfixturevalue("theirs" if writer == "ours" else "ours")
    for peer in (source, target):
        peer.start()
        create(peer, "t")
        wire = Wire(peer.bootstrap, 0, "")
        wire.ask(FindCoordinatorRequest(key="new"), 0)
        while True:  # the coordinator is loaded after its topic is made
            joined = heartbeat(
                wire, 0, rebalance_timeout_ms=60_000, topic_partitions=[], subscribed_topic_regex="t.*"
            )
            if joined.error_code not in COORDINATOR_LOADS:
                break
            time.sleep(0.1)
        assert joined.error_code == 0
        while peer is source and joined.member_epoch < 2:  # until the expression is resolved
            time.sleep(0.1)
            joined = heartbeat(wire, joined.member_epoch, topic_partitions=[])
        heartbeat(wire, -2)
        wire.close()
        peer.stop()
    for folder in source.directory.rglob("__consumer_offsets-*"):
        transplant("__consumer_offsets", source, target, int(folder.name.rpartition("-")[2]))

    target.start()
    wire = Wire(target.bootstrap, 0, "")
    for _ in range(100):
        (group,) = wire.ask(ConsumerGroupDescribeRequest(group_ids=["new"]), 1).groups
        if group.error_code == 0:
            break
        time.sleep(0.1)
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (2, 2, "uniform")
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.member_epoch) == ("m", "i", -2)
    assert (member.subscribed_topic_regex, member.member_type) == ("t.*", 1)
    # The topic has another id here, so that it has to be assigned anew.
    back = heartbeat(wire, 0, rebalance_timeout_ms=60_000, topic_partitions=[], subscribed_topic_regex="t.*")
    assert back.error_code == 0
    assert back.member_epoch == 3
    assert [topic.partitions for topic in back.assignment.topic_partitions] == [[0]]
    wire.close()
