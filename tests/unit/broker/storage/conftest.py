"""A log directory on a disk in memory, with a clock that does not advance by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk

from barnabas.base.environment.blocking import Threads
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.storage import Cleaning, OpenFiles, PartitionLog, Throttle, dirtiness
from barnabas.kafka.records import Record, encode_batch

PARTITION = TopicPartition("logs", 0)
TOPIC_ID = bytes(range(16))
NOW = 1_700_000_000_000


class Bench:
    """One log directory with one log, and operations on it."""

    def __init__(self) -> None:
        self.disk = FaultyDisk()
        self.clock = ManualClock(NOW)
        self.config = TopicConfig()
        self.path = "/data"
        self.is_clustered = False
        self.directory = self.open()
        self.log: PartitionLog = self.directory.create(PARTITION, TOPIC_ID, self.config)

    def open(self) -> LogDirectory:
        return LogDirectory.open(
            OpenFiles(self.disk),
            "/data",
            simulated_environment(clock=self.clock),
            cluster_id="c1",
            node_id=1,
            is_clustered=self.is_clustered,
        )

    def configure(self, **settings: object) -> PartitionLog:
        self.config = self.log.config = TopicConfig(**settings)
        return self.log

    def append(self, *records: Record, epoch: int = 0, **header: object):
        """Append one batch and commit it."""
        info = self.log.append_as_leader(encode_batch(records or [Record(None, b"v", NOW)], **header), epoch)
        self.log.advance_high_watermark(self.log.log_end_offset)
        return info

    def fill(self, batches: int, size: int = 100, *, step_ms: int = 0) -> PartitionLog:
        """Append batches of one record each."""
        for _ in range(batches):
            self.append(Record(None, bytes(size), self.clock.now_ms()))
            self.clock.advance(step_ms)
        return self.log

    def stop(self) -> None:
        self.directory.close()

    def kill(self) -> None:
        """End the process without a clean stop. All written data stays."""
        self.log.abandon()
        self.directory._lock.release()

    def start(self) -> PartitionLog:
        self.directory = self.open()
        self.log = self.directory.adopt(self.directory.load(PARTITION, TOPIC_ID, self.config))
        self.log.advance_high_watermark(self.log.log_end_offset)
        return self.log

    def restart(self) -> PartitionLog:
        self.stop()
        return self.start()

    def crash(self) -> PartitionLog:
        """Kill the process and start again."""
        self.kill()
        return self.start()

    def clean(self, *, map_bytes: int = 1 << 20, block_bytes: int = 1 << 16) -> Cleaning | None:
        """Clean the log as far as possible, even if it is not due. Return None if nothing is dirty."""
        log, directory = self.log, self.directory
        log.flush()
        dirt = dirtiness(log, directory.cleaned_to.get(PARTITION), self.clock.now_ms())
        if not dirt.dirty_bytes:
            return None
        cleaning = Cleaning(
            log,
            dirt,
            now_ms=self.clock.now_ms(),
            map_bytes=map_bytes,
            block_bytes=block_bytes,
            throttle=Throttle(self.clock, lambda: 1e300),
            cancelled=Threads().signal(),
        )
        cleaning.index()
        directory.recovery_point_checkpoint().run()
        for group in cleaning.groups():
            log.files.begin_swap(cleaning.clean(group), group)
            self.disk.sync_directory(log.files.path)
            removal = log.files.finish_swap()
            assert removal is not None
            self.disk.sync_directory(log.files.path)
            removal.run()
        directory.note_clean(PARTITION, cleaning.end)
        directory.cleaned_checkpoint().run()
        return cleaning

    def base_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self.log.files.segments]

    def names(self, suffix: str) -> list[str]:
        folder = f"{self.path}/{PARTITION}"
        return sorted(entry.name for entry in self.disk.entries(folder) if entry.name.endswith(suffix))

    def rewrite(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Change a file of the log without the log's knowledge."""
        file = self.disk.open(f"{self.path}/{PARTITION}/{name}", create=True)
        content = change(file.read_at(1 << 30, 0))
        file.truncate(0)
        file.write_at([content], 0)
        file.close()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture(scope="session")
def make_bench() -> type[Bench]:
    """Return the class `Bench`. A property test makes one for each example."""
    return Bench


@pytest.fixture
def refused() -> Iterator[Callable[[ErrorCode], pytest.RaisesExc[KafkaError]]]:
    """`with refused(ErrorCode.X):` check that the block raises this code."""

    def refuse(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
        return pytest.raises(KafkaError, match=code.name)

    yield refuse
