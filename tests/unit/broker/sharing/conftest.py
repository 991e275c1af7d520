"""A partition on this broker, the state of its share groups in memory, and members that fetch from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.coordinator.share_state.persister import SharePartitionKey, ShareState, StateBatch
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.features import SHARE_VERSION, FinalizedFeatures
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.partition import Partition
from barnabas.broker.sharing.fetch import ShareFetch
from barnabas.broker.sharing.in_flight import ACCEPT, Acknowledgement
from barnabas.broker.sharing.sessions import Member, Target
from barnabas.broker.sharing.share_partition import FetchLimits
from barnabas.broker.sharing.share_partitions import SharePartitions
from barnabas.broker.storage import OpenFiles, Origin
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.batch import batches
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction

ME = 1
GROUP = "g"
TOPIC = bytes(range(16))
TARGET = Target(TOPIC, 0)
KEY = SharePartitionKey(GROUP, TOPIC, 0)
LED = PartitionState((ME,), (ME,), ME, 5, 0)


class Persister:
    """Stored states. A test can make it fail, or delay its answers."""

    def __init__(self):
        self.states = {KEY: ShareState(0, -1, 0, 0, ())}
        #: the start offset, the number of finished records and the batches of each write
        self.writes = []
        self.reads = 0
        #: for each read, whether the persister may try again for a long time
        self.retries = []
        #: what the next calls raise, first; None to succeed
        self.failures = []
        #: while it is cleared, no write is answered
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        #: while it is cleared, no read is answered
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def read(self, key, leader_epoch, *, retries=True):
        self.reads += 1
        self.retries.append(retries)
        await asyncio.sleep(0)
        self._fail()
        state = self.states[key]
        await self.may_read.wait()
        return state

    async def write(
        self,
        key,
        state_epoch,
        leader_epoch,
        start_offset,
        delivery_complete_count,
        batches,
        initialized_at=-1,
    ):
        self.writes.append((start_offset, delivery_complete_count, [tuple(batch) for batch in batches]))
        await self.may_answer.wait()
        self._fail()
        state = self.states[key]
        if not state.may_be_initialized_at(initialized_at):
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        offsets = {
            offset: batch
            for each in (state.batches, batches)
            for batch in each
            for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1)
        }
        self.states[key] = ShareState(
            state_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            tuple(StateBatch(offset, offset, *batch[2:]) for offset, batch in sorted(offsets.items())),
            state.initialized_at,
        )

    def _fail(self):
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure if isinstance(failure, Exception) else KafkaError(failure)


class Letters:
    """A dead-letter queue. A test makes it refuse, or hold its answers back."""

    def __init__(self):
        #: first offset, last offset, deliveries and whether rejected, of each run of dead letters
        self.written = []
        #: for each writer: whether dead letters were in doubt when it was made
        self.in_doubt = []
        #: what the next calls raise, first
        self.failures = []
        #: the number of calls, and of the first calls that write nothing
        self.calls = self.idle_calls = 0
        #: while it is cleared, no call is answered
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def write(self, due):
        first = due[0]
        await self.may_answer.wait()
        self.calls += 1
        if self.failures:
            failure = self.failures.pop(0)
            raise failure if isinstance(failure, Exception) else KafkaError(failure)
        if self.calls <= self.idle_calls:
            return []
        if not self.in_doubt[-1] or first[:2] not in [each[:2] for each in self.written]:
            self.written.append(tuple(first))  # else a former writer has written it
        return [(first.first, first.last)]


class Replicas:
    """Returns the only partition."""

    def __init__(self, partition):
        self.partition = partition

    def find(self, topic_id, index):
        if (topic_id, index) != TARGET:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if self.partition.unavailable is not None:
            raise self.partition.unavailable
        return self.partition


class Queue:
    """Share group `g` on partition 0, on the partition's leader."""

    def __init__(self, **settings: str) -> None:
        self.persister = Persister()
        self.letters = Letters()
        self.clock = ManualClock()
        features = FinalizedFeatures({SHARE_VERSION: 2})
        self.view = view_of(
            ClusterImage(group_configs={GROUP: settings}, features=features), clock=self.clock
        )
        environment = simulated_environment(clock=self.clock)
        self.disk = FaultyDisk()
        directory = LogDirectory.open(OpenFiles(self.disk), "/data", environment, cluster_id="c", node_id=ME)
        log = directory.create(TopicPartition("t", 0), TOPIC, TopicConfig())
        self.partition = Partition(log, LED, ME, on_flush_due=lambda partition: None)
        self.replicas = Replicas(self.partition)
        self.cold_reads = ColdReads(environment.blocking)
        self.partitions = SharePartitions(
            self.view, self.replicas, self.persister, self.cold_reads, self._find_offset, self._letter_writer
        )

    def _letter_writer(self, key, partition, is_in_doubt, check_leader):
        self.letters.in_doubt.append(is_in_doubt)
        self.letters.check_leader = check_leader
        return self.letters

    async def _find_offset(self, partition, timestamp):
        return partition.log.offset_for_timestamp(timestamp)

    @property
    def share_partition(self):
        return self.partitions.find(GROUP, *TARGET)

    def append(self, count: int = 1, value: bytes | None = None, **header: Any) -> None:
        """Append a batch of `count` records. The value of each is `value`, or its offset."""
        end = self.partition.log.log_end_offset
        records = [Record(None, value or b"%d" % (end + n), self.clock.now_ms()) for n in range(count)]
        self.partition.append(encode_batch(records, **header), -1, Origin.CLIENT)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        marker = encode_end_transaction(
            EndTransaction(commit, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=self.clock.now_ms(),
        )
        self.partition.append(marker, -1, Origin.COORDINATOR)

    def fetch(self, member: str = "a", min_bytes: int = 1, **fields: Any) -> Poll:
        """Send a fetch of a member, which waits until there are records."""
        limits = {"max_bytes": 2**20, "max_records": 500, "batch_size": 0, "is_strict": False} | fields
        return Poll(
            ShareFetch(
                Member(GROUP, member),
                [TARGET],
                self.partitions,
                lambda _: None,
                FetchLimits(min_one=True, **limits),
                min_bytes,
            )
        )

    async def acquire(self, member: str = "a", **fields: Any) -> list[tuple[int, int, int]]:
        """Return the first offset, last offset and delivery count of the records that a member acquires."""
        return await self.fetch(member, **fields).acquired

    def acknowledge(
        self, first: int, last: int, *types: int, member: str = "a"
    ) -> asyncio.Future[None] | None:
        return self.share_partition.acknowledge(member, [Acknowledgement(first, last, types or (ACCEPT,))])

    async def settle(self) -> None:
        """Run everything that waits for no timer."""
        for _ in range(20):
            await asyncio.sleep(0)


class Poll:
    """A fetch that is answered with its first result."""

    def __init__(self, fetch: ShareFetch) -> None:
        self.fetch = fetch
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for _ in fetch.steps():
            pass
        if fetch.results:
            self._answer()
        else:
            fetch.wait(self._answer, list)

    def _answer(self) -> None:
        self.fetch.leave()
        if not self.answered.done():
            self.answered.set_result(None)

    @property
    def is_waiting(self) -> bool:
        return not self.answered.done()

    @property
    async def acquired(self) -> list[tuple[int, int, int]]:
        await asyncio.wait_for(asyncio.shield(self.answered), 1000)
        (result,) = self.fetch.results
        if result.error is not None:
            raise result.error
        return [tuple(each) for each in result.acquired]

    def offsets(self) -> list[tuple[int, int]]:
        """Return the first and the last offset of each batch that was sent."""
        (result,) = self.fetch.results
        return [(header.base_offset, header.last_offset) for _, header in batches(bytes(result.records))]


@pytest.fixture
def run() -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    """Run a scenario in virtual time."""

    def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        run_virtual(scenario())

    return run
