"""Compares the plain append with the general one: any sequence of batches leaves two equal replicas.

The leader of one replica tries each batch with `append_plain` first, as Produce and `ReplicatedLog` do. The
other leader never does. Both get the same batches, valid and invalid ones, of clients and of coordinators,
with the same settings, faults and leader epochs.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from tests.effort import examples

from barnabas.base.errors import KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.metadata.image import BrokerImage, PartitionState
from barnabas.broker.metrics.traffic import TopicTraffic
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.replication.partition.progress import LeaderContext
from barnabas.broker.storage import LongValidation, OpenFiles, Origin
from barnabas.broker.storage.producer_snapshot import encode_snapshot
from barnabas.kafka.records import Compression, Record, encode_batch
from barnabas.kafka.records.batch import COMPRESSION_MASK, TRANSACTIONAL_FLAG
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction
from barnabas.kafka.records.crc import crc32c

ME, OTHER = 1, 2
START = 1_700_000_000_000
FLAGS = COMPRESSION_MASK | TRANSACTIONAL_FLAG
SETTINGS: list[dict[str, Any]] = [
    {},
    {"message_timestamp_type": "LogAppendTime"},
    {"cleanup_policy": ("compact",)},
    {"cleanup_policy": ("compact",), "max_compaction_lag_ms": 1000},
    {"compression_type": "zstd"},
    {"compression_type": "uncompressed"},
    {"max_message_bytes": 150},
    {"segment_bytes": 300},
    {"segment_bytes": 90},
    {"segment_ms": 1000},
    {"segment_ms": 1000, "segment_jitter_ms": 500},
    {"segment_index_bytes": 24, "index_interval_bytes": 0},
    {"index_interval_bytes": 100},
    {"flush_messages": 3},
    {"flush_ms": 50},
    {"min_insync_replicas": 2},
    {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 1000},
]


class Replica:
    """A partition on its own disk, and its notifications to others."""

    def __init__(self, is_plain: bool) -> None:
        self.is_plain = is_plain
        self.plain = 0
        self.told: list[Any] = []
        self.disk = FaultyDisk()
        self.clock = ManualClock(START)
        self.time = 0.0
        environment = simulated_environment(clock=self.clock)
        directory = LogDirectory.open(
            OpenFiles(self.disk, capacity=3), "/data", environment, cluster_id="c", node_id=ME
        )
        self.log = directory.create(TopicPartition("t", 0), bytes(range(16)), TopicConfig())
        self.brokers = {broker: BrokerImage(broker, (), epoch=10 + broker) for broker in (ME, OTHER)}
        self.state = PartitionState(replicas=(ME,), isr=(ME,), leader=ME, leader_epoch=0, partition_epoch=0)
        self.partition = Partition(
            self.log,
            self.state,
            ME,
            on_flush_due=lambda partition: self.told.append("flush is due"),
            on_isr_change_due=lambda partition: self.told.append("an ISR change is due"),
            context=LeaderContext(lambda: self.brokers, lambda: self.time),
        )
        self.partition.watchers[self] = None
        self.partition.followers[self] = None

    def progressed(self, new_bytes: int) -> None:
        self.told.append(("committed", new_bytes))

    def appended(self, new_bytes: int) -> None:
        self.told.append(("appended", new_bytes))

    def append(self, batch: bytes, acks: int, origin: Origin = Origin.CLIENT) -> Any:
        is_own = origin is Origin.COORDINATOR
        info = None
        if self.is_plain:
            flags, now_ms = 0 if is_own else FLAGS, self.clock.now_ms()
            info = self.partition.append_plain(batch, acks, flags, now_ms, has_keys=is_own)
            self.plain += info is not None
        if info is None:
            info = self.partition.append(batch, acks, origin)
        return tuple(info), self.partition.is_acknowledged(info.last_offset, acks)

    def do(self, action: tuple[str, Any]) -> Any:
        """Execute an action. Return the result or the error."""
        try:
            return getattr(self, action[0])(*action[1:])
        except KafkaError as error:
            return error.code, error.message
        except LongValidation:
            return "long"

    def configure(self, values: dict[str, Any]) -> None:
        self.log.config = TopicConfig(**values)
        self.partition.check_in_sync()

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.time += ms / 1000

    def lead(self, state: tuple[tuple[int, ...], tuple[int, ...], int], epochs: int) -> None:
        replicas, isr, leader = state
        self.state = PartitionState(
            replicas=replicas,
            isr=isr,
            leader=leader,
            leader_epoch=self.state.leader_epoch + epochs,
            partition_epoch=self.state.partition_epoch + 1,
        )
        self.partition.update(self.state)

    def follow(self, lag: int) -> None:
        offset = max(self.log.log_end_offset - lag, 0)
        self.partition.followed(OTHER, self.brokers[OTHER].epoch, offset)

    def mark(self, producer_id: int, epoch: int, commit: bool) -> Any:
        marker = encode_end_transaction(
            EndTransaction(commit, 0),
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=self.clock.now_ms(),
        )
        return tuple(self.partition.append(marker, ACKS_ALL, Origin.COORDINATOR))

    def expire(self) -> None:
        self.log.producers.expire(self.clock.now_ms(), 100)

    def start_at(self, lag: int) -> bool:
        return self.log.advance_log_start(self.log.high_watermark - lag)

    def flush(self) -> None:
        self.log.flush()

    def fail(self, number: int, after: int) -> None:
        """Let one write fail, after `after` others."""
        left = after

        def refuse(operation: str, path: str) -> OSError | None:
            nonlocal left
            if operation != "write":
                return None
            left -= 1
            return OSError(number, os.strerror(number)) if left == -1 else None

        self.disk.refuse = refuse

    def fill_up(self, space: int | None) -> None:
        self.disk.space = space

    def files(self) -> dict[str, bytes]:
        self.disk.refuse = None
        found = {}
        for entry in self.disk.entries(self.log.files.path):
            file = self.disk.open(f"{self.log.files.path}/{entry.name}")
            found[entry.name] = bytes(file.read_at(1 << 30, 0))
        return found

    def facts(self) -> dict[str, Any]:
        """Return the state in memory that appends change."""
        log, partition = self.log, self.partition
        segment = log.files.segments.active
        return {
            "bounds": (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.log_end_offset),
            "recovery point": log.recovery_point,
            "epochs": log.epochs.encode(),
            "producers": (encode_snapshot(log.producers), log.producers.end_offset),
            "refused": repr(log.producers._refused),
            "transactions": repr((log.producers._open_transactions, log.producers.ended_transactions)),
            "segments": [(each.base_offset, each.size) for each in log.files.segments],
            "active": (segment.latest, segment.first_timestamp, segment.modified_ms, segment._since_indexed),
            "recent": (dict(segment._recent), len(segment.offsets), len(segment.times)),
            "offline": (log.is_offline, str(log.failure), str(log.files.env.failure)),
            "uncommitted": getattr(partition._role, "_uncommitted_bytes", None),
            "due": partition._flushes._due,
            "leaving": partition._is_leaving,
            "traffic": {name: getattr(partition.traffic, name) for name in TopicTraffic.__slots__},
            "told": self.told,
        }


class Producer:
    """The producer of the generated batches. It knows its next sequence."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0


def varied(draw: Any, producers: dict[int, Producer]) -> bytes:
    """Generate one batch, usually a valid one."""
    count = draw(st.integers(1, 3))
    step = draw(st.sampled_from([0] * 8 + [1, -1, 500, -500, 2000, -2000, 10**12]))
    key = draw(st.sampled_from([b"k", b"k", None]))
    value = bytes(draw(st.sampled_from([0, 10, 60])))
    has_time = draw(st.integers(0, 15)) < 15
    records = [Record(key, value, START + step + place if has_time else -1) for place in range(count)]
    producer = producers.get(draw(st.sampled_from([-1, -1, 1, 1, 1, 2])))
    fields: dict[str, Any] = {}
    if producer is not None:
        if draw(st.integers(0, 20)) == 20:
            producer.epoch += draw(st.sampled_from([1, -1]))
            producer.sequence = 0
        sequence = producer.sequence + draw(st.sampled_from([0] * 16 + [-count, -2, 1, 5]))
        fields = {
            "producer_id": producer.producer_id,
            "producer_epoch": max(producer.epoch, -1),
            "base_sequence": max(sequence, -1),
            "transactional": (producer.producer_id == 2) is (draw(st.integers(0, 15)) < 15),
        }
        producer.sequence = max(producer.sequence, sequence + count)
    unusual = draw(st.sampled_from([None] * 24 + ["transactional", "control", "base_offset"]))
    if unusual is not None:
        fields[unusual] = 5 if unusual == "base_offset" else True
    codec = draw(st.sampled_from([Compression.NONE] * 4 + list(Compression)))
    return encode_batch(records, compression=codec, **fields)


def damaged(draw: Any, batch: bytes) -> bytes:
    how = draw(st.sampled_from(["whole"] * 40 + ["flip", "cut", "twice", "long", "empty"]))
    if how == "flip":
        place = draw(st.integers(0, len(batch) - 1))
        return batch[:place] + bytes([batch[place] ^ draw(st.integers(1, 255))]) + batch[place + 1 :]
    if how == "cut":
        return batch[: draw(st.integers(0, len(batch) - 1))]
    if how == "empty":
        return b""
    return {"whole": batch, "twice": batch + batch, "long": batch + b"\0"}[how]


STATES = [
    ((ME,), (ME,), ME),
    ((ME, OTHER), (ME, OTHER), ME),
    ((ME, OTHER), (ME,), ME),
    ((ME, OTHER), (ME, OTHER), OTHER),
]
OTHERS = st.one_of(
    st.tuples(st.just("configure"), st.one_of(st.just({}), st.sampled_from(SETTINGS))),
    st.tuples(st.just("advance"), st.sampled_from([1, 300, 3000])),
    st.tuples(st.just("lead"), st.sampled_from(STATES), st.sampled_from([0, 1, 1])),
    st.tuples(st.just("follow"), st.integers(0, 3)),
    st.tuples(st.just("mark"), st.sampled_from([1, 2]), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("expire")),
    st.tuples(st.just("start_at"), st.integers(-1, 3)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("fail"), st.sampled_from([errno.ENOSPC, errno.EMFILE, errno.EIO]), st.integers(0, 2)),
    st.tuples(st.just("fill_up"), st.sampled_from([None, 0, 100, 1000])),
)


@st.composite
def actions(draw: Any) -> list[tuple[Any, ...]]:
    producers = {number: Producer(number) for number in (1, 2)}
    found: list[tuple[Any, ...]] = [("configure", draw(st.sampled_from(SETTINGS)))]
    for _ in range(draw(st.sampled_from([20, 5, 40]))):
        if draw(st.integers(0, 7)) == 7:
            found.append(draw(OTHERS))
        else:
            batch = damaged(draw, varied(draw, producers))
            origin = draw(st.sampled_from([Origin.CLIENT] * 5 + [Origin.COORDINATOR]))
            acks = draw(st.sampled_from([ACKS_ALL, ACKS_ALL, 1, 0]))
            found.append(("append", batch, acks, origin))
    return found


async def compare(sequence: list[tuple[Any, ...]]) -> int:
    plain, general = Replica(True), Replica(False)
    for action in sequence:
        outcomes = plain.do(action), general.do(action)
        assert outcomes[0] == outcomes[1], action
        assert plain.facts() == general.facts(), action
    assert plain.files() == general.files()
    return plain.plain


@settings(
    max_examples=examples(150, 2000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(actions())
def test_plain_and_general_appends_leave_the_same(sequence: list[tuple[Any, ...]]) -> None:
    asyncio.run(compare(sequence))


def test_ordinary_batches_are_plain() -> None:
    def batches(**fields: Any) -> list[tuple[Any, ...]]:
        sequence = [0, 2, 4, 6, 8, 10, 12]
        return [
            (
                "append",
                encode_batch(
                    [Record(None, b"v", START), Record(None, b"w", START)],
                    **{**fields, **({"base_sequence": number} if fields else {})},
                ),
                ACKS_ALL,
            )
            for number in sequence
        ]

    def count(*sequence: tuple[Any, ...]) -> int:
        return asyncio.run(compare(list(sequence)))

    idempotent = {"producer_id": 1, "producer_epoch": 0}
    followers = ("lead", STATES[1], 0)
    append_time = ("configure", {"message_timestamp_type": "LogAppendTime"})
    # the first batch of a log, and of a producer, is not plain
    assert count(*batches()) == 6
    assert count(*batches(**idempotent)) == 6
    assert count(*batches(**idempotent, transactional=True)) == 6
    assert count(followers, *batches(**idempotent)) == 6
    assert count(append_time, *batches(**idempotent)) == 6
    assert count(*batches(), ("configure", {"cleanup_policy": ("compact",)}), *batches()) == 6


def test_batches_of_a_coordinator_are_plain_in_a_compacted_topic() -> None:
    compacted = ("configure", {"cleanup_policy": ("compact",)})
    own = [(*good(), Origin.COORDINATOR)] * 7
    assert asyncio.run(compare([compacted, *own])) == 6
    of_transaction = [(*good(transactional=True, **IDEMPOTENT), Origin.COORDINATOR)] * 3
    assert asyncio.run(compare([compacted, *own, *of_transaction])) == 6


def good(step: int = 0, **fields: Any) -> tuple[Any, ...]:
    return ("append", encode_batch([Record(b"k", b"v" * 20, START + step)], **fields), ACKS_ALL)


def changed(place: int, value: int) -> tuple[Any, ...]:
    """Return a batch with another byte and a matching CRC."""
    batch = bytearray(good()[1])
    batch[place] = value
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return ("append", bytes(batch), ACKS_ALL)


NARROW = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 1000}
IDEMPOTENT = {"producer_id": 1, "producer_epoch": 0}
BEYOND: dict[str, list[tuple[Any, ...]]] = {
    "later than allowed": [("configure", NARROW), good(), good(2000)],
    "earlier than allowed": [("configure", NARROW), good(), good(-2000)],
    "without a time": [good(), ("advance", 500), ("append", encode_batch([Record(b"k", b"v", -1)]), 1)],
    "segment too old": [("configure", {"segment_ms": 1000}), good(), good(1500)],
    "first record of a compacted segment too old": [
        ("configure", {"cleanup_policy": ("compact",), "max_compaction_lag_ms": 1000}),
        (*good(), Origin.COORDINATOR),
        (*good(1500), Origin.COORDINATOR),
    ],
    "segment too full": [("configure", {"segment_bytes": 200}), good(), good(), good()],
    "batch too large": [good(), ("configure", {"max_message_bytes": 80}), good()],
    "larger than a segment": [good(), ("configure", {"segment_bytes": 80}), good()],
    "index full": [
        ("configure", {"segment_index_bytes": 24, "index_interval_bytes": 0}),
        *(good(step) for step in range(6)),
    ],
    "new leader epoch": [good(), ("lead", STATES[0], 1), good()],
    "not the leader": [good(), ("lead", STATES[3], 1), good()],
    "too few in sync": [good(), ("configure", {"min_insync_replicas": 2}), ("lead", STATES[2], 0), good()],
    "disk failed": [good(), ("fail", errno.EIO, 0), good(), good()],
    "disk full": [good(), good(base_sequence=0, **IDEMPOTENT), ("fail", errno.ENOSPC, 0),
                  good(base_sequence=1, **IDEMPOTENT), good(base_sequence=2, **IDEMPOTENT)],
    "control": [good(), good(control=True)],
    "other offset": [good(), good(base_offset=3)],
    "transactional without a producer": [good(), good(transactional=True)],
    "unknown codec": [good(), changed(22, 5)],
    "delete horizon": [good(), changed(22, 0x40)],
    "log append time": [good(), changed(22, 0x08)],
    "high attribute": [good(), changed(21, 1)],
    "no records": [good(), changed(60, 0)],
    "more offsets than records": [good(), changed(26, 3)],
    "other magic": [good(), changed(16, 1)],
    "wrong length": [good(), changed(11, 60)],
    "wrong CRC": [good(), ("append", good()[1][:-1] + b"x", ACKS_ALL)],
    "sequence wraps": [good(base_sequence=2**31 - 1, **IDEMPOTENT), good(base_sequence=0, **IDEMPOTENT)],
    "comes again": [good(base_sequence=0, **IDEMPOTENT)] * 2,
    "out of order": [good(base_sequence=0, **IDEMPOTENT), good(base_sequence=2, **IDEMPOTENT)],
    "second of a transaction outside it": [
        good(base_sequence=0, transactional=True, **IDEMPOTENT), good(base_sequence=1, **IDEMPOTENT)],
    "fenced": [good(base_sequence=0, producer_id=1, producer_epoch=1), good(base_sequence=1, **IDEMPOTENT)],
}  # fmt: skip


@pytest.mark.parametrize("actions", BEYOND.values(), ids=BEYOND)
def test_general_append_decides_about_a_batch_beyond_a_limit(actions: list[tuple[Any, ...]]) -> None:
    asyncio.run(compare([*actions, good(), good()]))
