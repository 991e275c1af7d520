"""Transactions: Apache Kafka's tools on our files, and each broker on the other's files."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers import PEERS, Kafka, Peer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.conftest import DUMP

SECONDS = 30

pytestmark = pytest.mark.timeout(300)  # several brokers start, one after the other


@pytest.fixture
def ours(classpath, tmp_path) -> Iterator[Peer]:
    peer = PEERS[os.environ.get("BARNABAS_COMPAT_BROKER", "barnabas")](tmp_path / "ours")
    yield peer
    peer.stop()


@pytest.fixture
def theirs(classpath, tmp_path) -> Iterator[Peer]:
    peer = Kafka(tmp_path / "theirs")
    yield peer
    peer.stop()


def create(peer: Peer, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)


def transactional(peer: Peer, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": peer.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(SECONDS)
    return producer


def run(producer: Producer, topic: str, value: bytes, end: str | None) -> None:
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.flush(SECONDS)
    if end is not None:
        getattr(producer, f"{end}_transaction")(SECONDS)


def committed(peer: Peer, topic: str) -> list[bytes]:
    """Return the records that a read_committed consumer gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return found
        found.append(message.value())


def folders(peer: Peer, topic: str) -> list[Path]:
    return [folder for folder in peer.directory.rglob(f"{topic}-*") if folder.is_dir()]


def transplant(topic: str, source: Peer, target: Peer) -> None:
    """Give the logs of a topic to the stopped broker `target`. Its topic id stays, if it has one."""
    for folder in folders(target, topic):
        (origin,) = [f for f in folders(source, topic) if f.name == folder.name]
        metadata = folder / "partition.metadata"
        identity = metadata.read_bytes() if metadata.exists() else None
        shutil.rmtree(folder)
        shutil.copytree(origin, folder)
        metadata.unlink(missing_ok=True)
        if identity is not None:
            metadata.write_bytes(identity)
    for checkpoint in target.directory.rglob("*-checkpoint"):
        if checkpoint.parent == folders(target, topic)[0].parent:
            checkpoint.unlink()


def test_dump_log_segments_decodes_our_transactions(java, ours):
    ours.start()
    create(ours, "t")
    producer = transactional(ours, "x")
    run(producer, "t", b"kept", "commit")
    run(producer, "t", b"dropped", "abort")
    ours.stop()
    logs = [
        log for f in folders(ours, "__transaction_state") for log in f.glob("*.log") if log.stat().st_size
    ]
    out = java.run(DUMP, "--transaction-log-decoder", "--files", ",".join(map(str, logs)))
    statuses = re.findall(r'"transactionStatus":(\d)', out)
    assert statuses == ["0", "1", "2", "4", "1", "3", "5"]
    assert '"transactionalId":"x"' in out and '"topic":"t","partitionIds":[0]' in out
    files = [file for f in folders(ours, "t") for file in f.iterdir() if file.suffix in (".log", ".txnindex")]
    out = java.run(DUMP, "--print-data-log", "--files", ",".join(map(str, files)))
    assert "endTxnMarker: COMMIT coordinatorEpoch: 0" in out
    assert re.search(r"version: 0 producerId: \d+ firstOffset: 2 lastOffset: 3 lastStableOffset: 4", out), out


@pytest.mark.parametrize("writer", ["ours", "theirs"])
def test_transactions_of_one_broker_go_on_in_the_other(request, writer):
    """The other broker gets the logs and the state, with one aborted, one committed
    and one open transaction.
    """
    first = request.getfixturevalue(writer)
    second = request.getfixturevalue("theirs" if writer == "ours" else "ours")
    for peer in (first, second):
        peer.start()
        create(peer, "t")
        producer = transactional(peer, "x")
        if peer is first:
            run(producer, "t", b"kept", "commit")
            run(producer, "t", b"dropped", "abort")
            run(producer, "t", b"open", None)
        peer.stop()
    transplant("t", first, second)
    transplant("__transaction_state", first, second)
    second.start()
    assert committed(second, "t") == [b"kept"]
    successor = transactional(second, "x")  # fences the producer before, and aborts its open transaction
    run(successor, "t", b"more", "commit")
    assert committed(second, "t") == [b"kept", b"more"]
