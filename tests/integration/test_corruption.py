"""Damages every file of a broker in every way, after a clean stop and after a kill.

Three outcomes are permitted: the start repairs the damage; it fails with one line; or it serves the undamaged
data and reports the rest. The tests know which records were acknowledged. So they find lost records without a
report, tracebacks, and starts that hang. `make corruption` runs all cases. A normal run selects some by name.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.broker.storage.checkpoints import decode_offsets
from barnabas.broker.storage.timestamps import EARLIEST, MAX_TIMESTAMP
from barnabas.cli.app import app
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.kafka.records import all_records, batches, check_crc
from barnabas.kafka.records.control import decode_end_transaction
from barnabas.testing import BarnabasBroker
from barnabas.testing.broker import BrokerDied

THOROUGH = bool(os.environ.get("BARNABAS_THOROUGH"))
#: bytes of an entry of each index
ENTRY_SIZES = {".index": 8, ".timeindex": 12, ".txnindex": 34}
#: one in so many cases is played where not all are
SAMPLE = 24
GROUP = "billing"
TOPICS = ("many", "one", "txn", "rolled")
END = {"many": 40, "one": 5}
#: topics with transactions: each second one is aborted
TRANSACTIONS = {"txn": 2, "rolled": 8}
START = {"many": 3}


class Template(NamedTuple):
    """The data of a stopped broker, and the records that it had acknowledged."""

    stopped: Path
    killed: Path
    #: topic, offset: value
    records: dict[tuple[str, int], bytes]
    ends: dict[str, int]
    committed: int
    #: topic, offset: of the records of aborted transactions
    aborted: set[tuple[str, int]]


def config(path: Path) -> BrokerConfig:
    return BrokerConfig(
        listeners=("PLAINTEXT://127.0.0.1:0",),
        log_dirs=(str(path),),
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        replica_high_watermark_checkpoint_interval_ms=50,
        log_flush_offset_checkpoint_interval_ms=50,
        log_flush_start_offset_checkpoint_interval_ms=50,
        log_index_interval_bytes=0,
    )


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    folder = tmp_path_factory.mktemp("corruption")
    records: dict[tuple[str, int], bytes] = {}
    server = BrokerServer(config(folder / "live")).start()
    try:
        client = {"bootstrap.servers": server.bootstrap_servers}
        admin = AdminClient(client)
        made = [
            NewTopic(name, 1, 1, config={"segment.bytes": "300" if name == "rolled" else "1000"})
            for name in TOPICS
        ]
        for future in admin.create_topics(made).values():
            future.result(60)
        produced = Producer({**client, "linger.ms": 0})
        for topic, end in END.items():
            for number in range(end):
                produced.produce(
                    topic, b"%s value %d" % (topic.encode(), number), on_delivery=noting(records)
                )
                produced.flush()
        transactional = Producer({**client, "transactional.id": "t", "linger.ms": 0})
        transactional.init_transactions(60)
        aborted: set[tuple[str, int]] = set()
        ends = dict(END)
        for topic, count in TRANSACTIONS.items():
            for number in range(count):
                before = set(records)
                transactional.begin_transaction()
                value = b"in transaction %d" % number
                transactional.produce(topic, value, on_delivery=noting(records))
                transactional.flush()
                if number % 2:
                    transactional.commit_transaction(60)
                else:
                    aborted |= set(records) - before
                    transactional.abort_transaction(60)
            ends[topic] = 2 * count
        consumer = Consumer({**client, "group.id": GROUP})
        for number in range(1, 8):
            consumer.commit(offsets=[TopicPartition("many", 0, number)], asynchronous=False)
        consumer.close()
        admin.delete_records([TopicPartition("many", 0, START["many"])])
        point = folder / "live" / "replication-offset-checkpoint"
        deadline = time.monotonic() + 60
        while True:
            written = decode_offsets(point.read_bytes()).offsets
            known = {tp.topic: offset for tp, offset in written.items()}
            if ends.items() <= known.items() and known.get("__consumer_offsets", 0) >= 7:
                break
            assert time.monotonic() < deadline, known
            time.sleep(0.05)
        shutil.copytree(folder / "live", folder / "killed", ignore=shutil.ignore_patterns("*.tmp"))
    finally:
        server.stop()
    return Template(folder / "live", folder / "killed", records, ends, 7, aborted)


def noting(records: dict[tuple[str, int], bytes]) -> Callable[..., None]:
    def delivered(error, message) -> None:
        assert error is None
        records[message.topic(), message.offset()] = message.value()

    return delivered


# --- damage ---


def flip(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes() or b"\0")
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def cut(file: Path, chance: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: chance.randrange(len(content)) if content else 0])


def zero(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    start = chance.randrange(max(len(content), 1))
    content[start:] = bytes(len(content) - start)
    file.write_bytes(content)


def delete(file: Path, _: random.Random) -> None:
    file.unlink()


def extend(file: Path, chance: random.Random) -> None:
    file.write_bytes(file.read_bytes() + chance.randbytes(chance.choice((1, 100, 5000))))


def make_unreadable(file: Path, _: random.Random) -> None:
    """Replace the file by a folder, because root can read every file."""
    file.unlink()
    file.mkdir()


def flip_last_byte(file: Path, chance: random.Random) -> None:
    """Change the last entry of an index to another possible value."""
    content = bytearray(file.read_bytes() or b"\0")
    content[-1] ^= 1 << chance.randrange(4)
    file.write_bytes(content)


def drop_last_entry(file: Path, _: random.Random) -> None:
    """Remove the last entry of an index, so that the index ends too early."""
    content = file.read_bytes()
    file.write_bytes(content[: -ENTRY_SIZES.get(file.suffix, 1)])


DAMAGES = (flip, cut, zero, delete, extend, make_unreadable, flip_last_byte, drop_last_entry)
FILES = (
    "metadata-1.journal",
    "metadata-2.journal",
    "metadata.lock",
    "meta.properties",
    ".lock",
    ".kafka_cleanshutdown",
    "barnabas-segment-sizes",
    "rolled-0/barnabas-txnindex-checksums",
    *(f"{folder}-0/barnabas-sealed-segments" for folder in ("many", "rolled")),
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    *(
        f"{folder}-0/{name}"
        for folder in (*TOPICS, "__consumer_offsets", "__transaction_state")
        for name in (
            "partition.metadata",
            "leader-epoch-checkpoint",
            "last.snapshot",
            "last.log",
            "last.index",
        )
    ),
    *(
        f"many-0/{place}.{kind}"
        for place in ("first", "second")
        for kind in ("log", "index", "timeindex", "snapshot")
    ),
    "many-0/last.timeindex",
    *(f"rolled-0/{place}.txnindex" for place in ("first", "second", "last")),
)
CASES = [
    pytest.param(how, file, damage, id=f"{how}-{file}-{damage.__name__}")
    for how in ("stopped", "killed")
    for file in FILES
    for damage in DAMAGES
    if THOROUGH or zlib.crc32(f"{how}{file}{damage.__name__}".encode()) % SAMPLE == 0
]


def resolve(folder: Path, file: str) -> Path | None:
    """Return the path of a file in the log. `last.log` and similar names select one;
    None if there is none.
    """
    path = folder / file
    place = {"first": 0, "second": 1, "last": -1}.get(path.stem)
    if place is None:
        return path if path.is_file() else None
    found = sorted(path.parent.glob(f"*{path.suffix}"))
    return found[place] if len(found) > max(place, 0) else None


# --- the oracle ---


class Seen:
    """The records that a broker serves, and its log output."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int], bytes] = {}
        #: records that a reader of committed ones would take, of them
        self.committed_records: set[tuple[str, int]] = set()
        #: of them, by topic: the largest timestamp and the first offset that has it
        self.latest: dict[str, tuple[int, int]] = {}
        #: the same as the broker answers
        self.told_latest: dict[str, tuple[int, int]] = {}
        #: topics whose records cannot be had, and why
        self.errors: dict[str, str] = {}
        self.ends: dict[str, int] = {}
        self.committed: int | str = -1


def look(server: BrokerServer, connect: Callable[..., object], fetch_request, template: Template) -> Seen:
    seen = Seen()
    wire = connect(server)
    topics = {topic.name: topic for topic in wire(MetadataRequest(topics=None)).topics}
    for name in TOPICS:
        if name not in topics:
            seen.errors[name] = "unknown"
            continue
        topic = topics[name]
        result = list_offset(wire, name, EARLIEST)
        if result.error_code:
            seen.errors[name] = ErrorCode(result.error_code).name
            continue
        offset = result.offset
        while True:
            named = _Named(name, topic.topic_id)
            made = fetch_request(named, {0: offset}, partition_max_bytes=500, isolation_level=1)
            data = wire(made).responses[0].partitions[0]
            if data.error_code:
                seen.errors[name] = ErrorCode(data.error_code).name
                break
            seen.ends[name] = data.high_watermark
            content = bytes(data.records or b"")
            found = []
            try:
                found += batches(content)
                for position, header in found:
                    check_crc(header, content, position)  # as clients do
            except KafkaError as error:
                seen.errors[name] = f"the client refuses it: {error.message}"
                break
            if not found:
                break
            for record in all_records(content):
                seen.records[name, record.offset] = record.value
                if record.timestamp > seen.latest.get(name, (-1, -1))[0]:
                    seen.latest[name] = record.timestamp, record.offset
            seen.committed_records |= committed_of(name, content, found, data.aborted_transactions)
            assert found[-1][1].next_offset > offset, "the broker serves the same again"
            offset = found[-1][1].next_offset
        told = list_offset(wire, name, MAX_TIMESTAMP)
        if not told.error_code:
            seen.told_latest[name] = told.timestamp, told.offset
    response = wire(OffsetFetchRequest(group_id=GROUP, topics=None), 7)
    if response.error_code:
        seen.committed = ErrorCode(response.error_code).name
    else:
        offsets = [p.committed_offset for t in response.topics if t.name == "many" for p in t.partitions]
        seen.committed = offsets[0] if offsets else -1
    return seen


def list_offset(wire, name, timestamp):
    wanted = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    topics = [ListOffsetsTopic(name=name, partitions=wanted)]
    return wire(ListOffsetsRequest(replica_id=-1, topics=topics)).topics[0].partitions[0]


def committed_of(name, content, found, aborted) -> set[tuple[str, int]]:
    """Return the records that a read_committed client returns."""
    coming = sorted(aborted or (), key=lambda transaction: transaction.first_offset)
    skipping: set[int] = set()
    committed: set[tuple[str, int]] = set()
    for position, header in found:
        batch = content[position : position + header.size]
        while coming and coming[0].first_offset <= header.last_offset:
            skipping.add(coming.pop(0).producer_id)
        if header.is_control:
            marker = decode_end_transaction(header, batch)
            if marker is not None and not marker.commit:
                skipping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipping):
            committed |= {(name, record.offset) for record in all_records(batch)}
    return committed


class _Named(NamedTuple):
    name: str
    id: bytes


def judge(
    seen: Seen, said: list[logging.LogRecord], template: Template, how: str, *, lost_is_said: bool
) -> None:
    """Fail unless each missing record was reported, and each present record was acknowledged."""
    for record in said:
        assert record.exc_info is None, f"a traceback: {record.getMessage()}"
    lines = [record.getMessage() for record in said if record.levelno >= logging.WARNING]
    for place, value in seen.records.items():
        if place in template.records:
            assert template.records[place] == value, place
        else:
            assert place[0] in TRANSACTIONS, f"{place} was never written"
    for name in END:  # the others' markers have a time, too
        if name not in seen.errors and name in seen.latest:
            assert seen.told_latest.get(name) == seen.latest[name], "retention would go by another time"
    served = seen.committed_records & template.aborted
    assert not served, f"records of aborted transactions are served as committed: {served}"
    hidden = seen.records.keys() - seen.committed_records - template.aborted
    assert not hidden, f"committed records are told as aborted: {hidden}"
    for name in TOPICS:
        start = START.get(name, 0)
        expected = {offset for topic, offset in template.records if topic == name and offset >= start}
        missing = expected - {offset for topic, offset in seen.records if topic == name}
        if missing and not lost_is_said:
            assert seen.errors.get(name, "").startswith("the client refuses") or any(
                f"{name}-0" in line for line in lines
            ), f"{name} lacks {sorted(missing)} without a line: {lines}"
        if name in seen.ends and not missing and seen.ends[name] != template.ends[name]:  # a marker is gone
            if (
                seen.ends[name] > template.ends[name]
            ):  # a coordinator that forgot it has written a marker again
                assert name in TRANSACTIONS
                continue
            assert lost_is_said or any(f"{name}-0" in line for line in lines)
    if seen.committed != template.committed and not lost_is_said:
        assert any("__consumer_offsets" in line for line in lines), (seen.committed, lines)
        # a crash may cut off what was not fsynced; what was is not served in part
        assert isinstance(seen.committed, str) or how == "killed", "offsets are gone"


@pytest.mark.parametrize(("how", "file", "damage"), CASES)
def test_damage_is_healed_or_said(
    template, tmp_path, caplog, connect, fetch_request, how, file, damage
) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    data = tmp_path / "data"
    shutil.copytree(template.stopped if how == "stopped" else template.killed, data)
    path = resolve(data, file)
    if path is None:
        pytest.skip("there is no such file after this end")
    damage(path, random.Random(zlib.crc32(f"{how}{file}{damage.__name__}".encode())))

    damaged = tmp_path / "damaged"
    shutil.copytree(data, damaged)
    server = BrokerServer(config(data))
    try:
        server.start()
    except BarnabasError as error:
        assert "\n" not in str(error)
        assert str(path) in str(error) or str(data) in str(error)
    else:
        try:
            seen = look(server, connect, fetch_request, template)
        finally:
            server.stop()
        judge(seen, caplog.records, template, how, lost_is_said=False)

    # check finds it without changing anything; repair makes the rest servable
    before = {p: p.stat().st_mtime_ns for p in damaged.rglob("*") if p.is_file()}
    checked = CliRunner().invoke(app, ["log", "check", str(damaged)])
    assert checked.exception is None or isinstance(checked.exception, (SystemExit, BarnabasError)), (
        checked.output
    )
    assert before == {p: p.stat().st_mtime_ns for p in damaged.rglob("*") if p.is_file()}
    repaired = CliRunner().invoke(app, ["log", "repair", str(damaged)])
    assert repaired.exit_code == 0, (repaired.output, repaired.exception)
    caplog.clear()
    if path.name in (".lock", "metadata.lock") and damage is make_unreadable:
        return  # the refusal names the folder that lies there
    server = BrokerServer(config(damaged)).start()
    try:
        seen = look(server, connect, fetch_request, template)
    finally:
        server.stop()
    judge(seen, caplog.records, template, how, lost_is_said=True)
    if file.startswith("many-0/") and file.endswith(".log"):
        assert len([1 for topic, _ in seen.records if topic == "many"]) > 10, repaired.output
    elif not file.endswith(".log"):
        assert {
            place for place in template.records if place[1] >= START.get(place[0], 0)
        } <= seen.records.keys()
    assert not seen.errors, (seen.errors, repaired.output)


def test_a_process_that_was_killed_heals_one_copy_and_refuses_without_any(
    tmp_path, connect, make_topic, produce, batch
):
    """The same as other tests do in this process, once with a real process."""
    with BarnabasBroker(data=tmp_path / "data", mode="process") as broker:
        wire = connect(broker)
        topic = make_topic(by=wire)
        produce(topic, batch(b"kept"), by=wire)
        broker.kill()
        flip(broker.data / "metadata-1.journal", random.Random(1))
        broker.start()
        assert topic.name in {found.name for found in connect(broker)(MetadataRequest(topics=None)).topics}
        broker.kill()
        for name in ("metadata-1.journal", "metadata-2.journal"):
            cut(broker.data / name, random.Random(2))
        with pytest.raises(BrokerDied, match="barnabas log repair") as died:
            broker.start()
        assert "Traceback" not in str(died.value)
        assert CliRunner().invoke(app, ["log", "repair", str(broker.data)]).exit_code == 0
        broker.start()
        assert topic.name in {found.name for found in connect(broker)(MetadataRequest(topics=None)).topics}
