"""An error affects only its own log or directory, whatever the error and the operation are.

Three logs share a log directory: a compacted one, one with retention, and another one. Appends, rolls,
flushes, cleanings, retention, checkpoints and DeleteRecords run while one operation of the file system after
another fails, on the files of one log or on the checkpoints. These conditions are true:

- An error that is not the disk's fault takes no log directory offline, and no other log.
- The other logs accept appends and reads all the time.
- Neither the error nor a later kill loses an acknowledged record, and no rejected record exists.
- The only exceptions are rejections.
- The log output names the affected log or directory.

BARNABAS_THOROUGH=1 runs many more examples.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from tests.effort import examples
from tests.views import view_of

from barnabas.base.environment.blocking import Threads
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs.cleaner import LogCleaner
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.logs.shared_fsync import FsyncsByDirectory
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.partition import Partition
from barnabas.broker.storage import Origin, PartitionLog
from barnabas.broker.storage.dirtiness import roll_overdue
from barnabas.kafka.records import Record, batches, encode_batch
from barnabas.kafka.records.builder import batch_records

START = 1_700_000_000_000
COMPACTED, RETAINED, NEIGHBOUR = "compacted", "retained", "neighbour"
CONFIGS = {
    COMPACTED: TopicConfig(
        cleanup_policy=("compact",),
        segment_bytes=500,
        min_cleanable_dirty_ratio=0.01,
        file_delete_delay_ms=0,
        index_interval_bytes=0,
    ),
    RETAINED: TopicConfig(
        segment_bytes=500, retention_bytes=1500, file_delete_delay_ms=0, index_interval_bytes=0
    ),
    NEIGHBOUR: TopicConfig(segment_bytes=500, index_interval_bytes=100),
}
ERRORS = [
    *(
        OSError(number, os.strerror(number))
        for number in (
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EMFILE,
            errno.ENFILE,
            errno.ENOMEM,
            errno.EINVAL,
            errno.EACCES,
            errno.EFBIG,
            errno.ENAMETOOLONG,
            errno.EOVERFLOW,
        )
    ),
    OSError("an error without a number"),
]
OPERATIONS = ["open", "read", "write", "truncate", "rename", "remove", "sync_directory", "sync", "entries"]
STEPS = ["append", "append", "append", "roll", "flush", "clean", "retain", "checkpoint", "delete_records"]

faults = st.tuples(
    st.sampled_from(ERRORS),
    st.sets(st.sampled_from(OPERATIONS), min_size=1),
    st.sampled_from([COMPACTED, RETAINED, "checkpoint"]),
    st.integers(0, 12),  # so many operations go well before
    st.integers(1, 6),  # and so many fail
)


class Bench:
    """A broker's logs without a network. It notes the acknowledged records, which must exist."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = FaultyDisk()
        self.clock = ManualClock(START)
        self.config = BrokerConfig(log_dirs=("/data",), log_cleaner_backoff_ms=0)
        self.acknowledged: dict[str, dict[int, Record]] = {name: {} for name in CONFIGS}
        self.deleted_to = dict.fromkeys(CONFIGS, 0)
        self.failures: list[str] = []
        self.victim = ""

    async def open(self, load: bool) -> None:
        environment = simulated_environment(clock=self.clock, filesystem=self.disk, blocking=Threads())
        self.pool = environment.blocking.pool("disk", 1)
        self.logs = LogManager(self.config, environment, self.pool, self.failures.append)
        self.logs.open("c1")
        (self.directory,) = self.logs.directories
        self.commit = FsyncsByDirectory(environment.blocking)
        self.partitions = {}
        for name, config in CONFIGS.items():
            place, topic_id = TopicPartition(name, 0), name.encode().ljust(16)[:16]
            if load:
                log = self.directory.adopt(self.directory.load(place, topic_id, config))
            else:
                log = self.logs.create(place, topic_id, config)
            state = PartitionState((1,), (1,), 1)
            self.partitions[name] = Partition(log, state, 1, on_flush_due=self.commit.add)
        self.cleaner = LogCleaner(
            view_of(config=self.config), self.partitions.values(), self.logs, environment, self.commit.add
        )

    async def close(self) -> None:
        """Close the files as a kill does."""
        await self.cleaner.stop()
        await self.commit.stop()
        for removal in self.logs._removals:
            removal.cancel()
        await self.pool.close()
        for partition in self.partitions.values():
            partition.refuse_writes(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
            partition.log.abandon()
        self.directory._lock.release()

    def log(self, name: str) -> PartitionLog:
        return self.partitions[name].log

    # --- what goes on ---

    def append(self, name: str) -> bool:
        partition = self.partitions[name]
        offset = partition.log.log_end_offset
        record = Record(b"k%d" % self.chance.randrange(4), b"%d" % offset, self.clock.now_ms(), offset=offset)
        try:
            info = partition.append(encode_batch([record]), 1, Origin.CLIENT)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert partition.log.log_end_offset == offset
            return False
        assert info.base_offset == offset
        self.acknowledged[name][offset] = record
        return True

    async def step(self, what: str) -> None:
        name = self.chance.choice([COMPACTED, RETAINED])
        if what == "append":
            for _ in range(4):
                self.append(name)
        elif what == "roll":
            self.roll(name)
        elif what == "flush":
            self.commit.add(self.partitions[name])
            await self.commit.stop()
        elif what == "clean":
            await self.cleaner.clean_dirtiest()
            self.clock.advance(100_000)
        elif what == "retain":
            await self.logs.drop_expired(self.directory)
        elif what == "checkpoint":
            await self.logs.checkpoint(self.directory, LogDirectory.recovery_point_checkpoint)
            await self.logs.checkpoint(self.directory, LogDirectory.high_watermark_checkpoint)
        else:
            await self.delete_records()

    def roll(self, name: str) -> None:
        log = self.log(name)
        if log.files.segments.active.size:
            try:
                roll_overdue(log, log.files.segments.active.first_timestamp + (1 << 63))
            except KafkaError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR

    async def delete_records(self) -> None:
        log = self.log(RETAINED)
        target = self.chance.randint(log.log_start_offset, log.high_watermark)
        try:
            await self.logs.checkpoints.store_log_starts(self.directory, [(log, target)])
            log.advance_log_start(target)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            self.deleted_to[RETAINED] = max(self.deleted_to[RETAINED], target)

    # --- what must hold ---

    def read(self, name: str) -> dict[int, Record]:
        log = self.log(name)
        found, offset = {}, log.log_start_offset
        while offset < log.log_end_offset:
            data = b"".join(map(bytes, log.read(offset, 1 << 20, log.log_end_offset).chunks))
            if not data:
                break
            for position, header in batches(data):
                batch = memoryview(data)[position : position + header.size]
                found |= {
                    r.offset: r for r in batch_records(header, batch) if r.offset >= log.log_start_offset
                }
                offset = header.next_offset
        return {at: record for at, record in found.items() if at >= log.log_start_offset}

    def check(self, name: str) -> None:
        """Check that all acknowledged and not deleted records can be read, and no others."""
        log, found, acknowledged = self.log(name), self.read(name), self.acknowledged[name]
        values = {offset: (r.key, r.value) for offset, r in found.items()}
        expected = {
            offset: (r.key, r.value) for offset, r in acknowledged.items() if offset >= log.log_start_offset
        }
        assert values.items() <= expected.items(), f"{name}: something is read that was not acknowledged"
        if name == COMPACTED:
            latest = {r.key: offset for offset, r in acknowledged.items()}
            expected = {offset: expected[offset] for offset in latest.values()}
            expected |= {offset: kept for offset, kept in values.items() if offset not in expected}
        assert values == expected, f"{name}: something acknowledged is lost"
        assert log.log_start_offset >= self.deleted_to[name], "DeleteRecords was undone"
        if name != RETAINED:
            assert log.log_start_offset == 0


def failing(error: Exception, operations: set[str], where: str, after: int, times: int):
    calls = 0

    def ask(operation: str, path: str) -> Exception | None:
        nonlocal calls
        if operation not in operations or where not in path:
            return None
        calls += 1
        return error if after < calls <= after + times else None

    return ask


@given(
    seed=st.integers(0, 2**32),
    rounds=st.lists(
        st.tuples(faults, st.lists(st.sampled_from(STEPS), min_size=1, max_size=12)), min_size=1, max_size=5
    ),
)
@settings(max_examples=examples(60, 1500), suppress_health_check=[HealthCheck.too_slow])
def test_an_error_harms_no_more_than_what_it_is_about(seed, rounds):
    lines: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = lines.append
    logger = logging.getLogger("barnabas")
    logger.addHandler(handler)
    try:
        asyncio.run(_scenario(Bench(seed), rounds, lines))
    finally:
        logger.removeHandler(handler)


async def _scenario(bench: Bench, rounds: list, lines: list[logging.LogRecord]) -> None:
    await bench.open(load=False)
    for fault, steps in rounds:
        bench.disk.refuse = failing(*fault)
        for what in steps:
            await bench.step(what)
            assert bench.append(NEIGHBOUR), "a neighbour is harmed"
            bench.check(NEIGHBOUR)
        bench.disk.mend()
        assert bench.directory.failure is None and not bench.failures, "the directory is offline"
        assert not bench.log(NEIGHBOUR).is_offline
        for name in (COMPACTED, RETAINED):
            bench.check(name)  # offline or not, it is read
            if bench.log(name).is_offline:
                assert bench.log(name).failure is not None
                assert any(f"{name}-0 in /data is offline" in line.getMessage() for line in lines)
            else:
                assert bench.append(name), "the error has passed, the harm has not"
        if bench.chance.random() < 0.5:
            await bench.close()
            await bench.open(load=True)
            for partition in bench.partitions.values():
                partition.check_in_sync()
            for name in CONFIGS:
                bench.check(name)
                assert bench.append(name)
    bugs = [(line.getMessage(), line.exc_info[1]) for line in lines if line.exc_info]
    assert not bugs, "a bug was met"
    await bench.close()
