"""Dead letters of one share partition: written once, whatever happens between two of its leaders."""

from __future__ import annotations

import tracemalloc
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
from barnabas.broker.coordinator import SharePartitionKey
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.image import PartitionState, TopicImage
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.dead_letters.leaders import LastBatch
from barnabas.broker.server.dead_letters.queue import DeadLetterQueues
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.sharing.in_flight import DeadLetters
from barnabas.broker.storage import OpenFiles, Origin
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.batch import batches, parse_header
from barnabas.kafka.records.builder import all_records, assemble_batch
from barnabas.kafka.records.compression import Compression
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction

ME = 1
SOURCE, DLQ = bytes(range(16)), bytes(range(1, 17))
KEY = SharePartitionKey("g", SOURCE, 0)
LED = PartitionState((ME,), (ME,), ME, 5, 0)
GROUP = {"errors.deadletterqueue.topic.name": "dlq.t"}
QUEUE = {"errors.deadletterqueue.group.enable": "true"}


def scenario(test):
    def run():
        run_virtual(test())

    run.__name__ = test.__name__
    return run


class World:
    """A source partition and a dead-letter queue on one broker. Each writer is the life of one leader."""

    def __init__(
        self, group: dict[str, str] | None = None, queue: dict[str, str] | None = None, index: int = 0
    ) -> None:
        self.key = KEY._replace(partition=index)
        clock = ManualClock()
        environment = simulated_environment(clock=clock)
        directory = LogDirectory.open(
            OpenFiles(FaultyDisk()), "/data", environment, cluster_id="c", node_id=ME
        )
        queue = {**QUEUE, **(queue or {})}

        def partition(name: str, index: int, topic_id: bytes, config: TopicConfig) -> Partition:
            log = directory.create(TopicPartition(name, index), topic_id, config)
            return Partition(log, LED, ME, on_flush_due=lambda partition: None)

        self.source = partition("t", index, SOURCE, TopicConfig())
        self.partitions = [partition("dlq.t", n, DLQ, TopicConfig.from_text(queue)) for n in range(4)]
        self.letters = self.partitions[0]
        image = ClusterImage(
            topics={
                "t": TopicImage("t", SOURCE, (LED,)),
                "dlq.t": TopicImage("dlq.t", DLQ, (LED,)),
            },
            topic_configs={"dlq.t": queue},
            group_configs={"g": {**GROUP, **(group or {})}},
        )
        self.view = view_of(image, clock=clock)
        self.view.node_id = ME
        self.created: list[str] = []
        self.queues = DeadLetterQueues(
            self.view,
            self,
            None,
            LongWork(environment),
            ColdReads(environment.blocking),
            self._create,
        )
        self.leader_epoch = 0
        #: a batch that comes just before the next append
        self.late: bytes | None = None
        #: what the appends to the dead-letter queue raise, and whether they append before
        self.failures: list[tuple[ErrorCode | Exception, bool]] = []
        real = self.queues.leader
        self.queues.leader = lambda target: Unreliable(self, real(target))

    async def _create(self, names, configs):
        self.created += names
        return {}

    def find(self, topic_id: bytes, index: int) -> Partition:
        return self.source if topic_id == SOURCE else self.partitions[index]

    def grow(self, partitions: int = 2) -> None:
        """Give the dead-letter queue more partitions."""
        topics = dict(self.view.image.topics)
        topics["dlq.t"] = TopicImage("dlq.t", DLQ, (LED,) * partitions)
        self.view.image = self.view.image._replace(topics=topics)

    def append(self, count: int, size: int = 1, **fields: Any) -> None:
        records = [Record(b"k", b"%d" % n * size, self.view.clock.now_ms()) for n in range(count)]
        self.source.append(encode_batch(records, **fields), -1, Origin.CLIENT)

    def writer(self, is_in_doubt: bool = False):
        """Return the writer of a new leader, whose epoch fences the earlier ones."""
        self.leader_epoch = epoch = self.leader_epoch + 1

        async def check_leader() -> None:
            if epoch != self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)

        return self.queues.writer(self.key, self.source, is_in_doubt, check_leader)

    def letter_records(self) -> list[Record]:
        """Return the dead letters in the queue."""
        log = self.letters.log
        found: list[Record] = []
        while len(found) < log.high_watermark:  # a read ends with its segment
            chunks = log.read(len(found), 2**24, log.high_watermark).chunks
            found += all_records(b"".join(map(bytes, chunks)))
        return found

    def written(self) -> list[int]:
        """Return, for each dead letter in the queue, the offset of its source record."""
        return [int(dict(letter.headers)["__dlq.errors.offset"]) for letter in self.letter_records()]


class Unreliable:
    """A leader of the dead-letter queue that fails when the test wants it to."""

    def __init__(self, world: World, real: Any) -> None:
        self._world, self._real = world, real

    async def append(self, batch: bytes) -> None:
        if self._world.late is not None:
            late, self._world.late = self._world.late, None
            await self._real.append(late)
        failure, is_appended = self._world.failures.pop(0) if self._world.failures else (None, True)
        if is_appended:
            await self._real.append(batch)
        if failure is not None:
            raise failure if isinstance(failure, Exception) else KafkaError(failure)

    async def last_batch(self, producer_id: int, *, with_records: bool) -> LastBatch | None:
        return await self._real.last_batch(producer_id, with_records=with_records)


def run(first: int, last: int | None = None, deliveries: int = 5, is_rejected: bool = False) -> DeadLetters:
    return DeadLetters(first, first if last is None else last, deliveries, is_rejected)


@scenario
async def test_runs_of_records_share_a_batch():
    world = World()
    world.append(10)
    assert await world.writer().write([run(1, 2), run(5), run(7, 9)]) == ((1, 2), (5, 5), (7, 9))
    assert world.written() == [1, 2, 5, 7, 8, 9]
    assert len(list(batches(bytes(world.letters.log.read(0, 2**20, 6).chunks[0])))) == 1


@scenario
async def test_an_offset_without_a_record_has_no_dead_letter():
    world = World()
    world.append(1, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    marker = encode_end_transaction(
        EndTransaction(True, 0), producer_id=1, producer_epoch=0, timestamp=world.view.clock.now_ms()
    )
    world.source.append(marker, -1, Origin.COORDINATOR)
    world.append(1)
    assert await world.writer().write([run(0, 2)]) == ((0, 2),)
    assert world.written() == [0, 2]


@pytest.mark.parametrize("error", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER])
@pytest.mark.parametrize("is_appended", [True, False])
def test_a_batch_without_an_answer_is_repeated_and_written_once(error, is_appended):
    async def scenario():
        world = World()
        world.append(3)
        writer = world.writer()
        world.failures = [(error, is_appended)]
        with pytest.raises(KafkaError):
            await writer.write([run(1)])
        assert await writer.write([run(0), run(1)]) == ((1, 1),)  # first what was perhaps written
        assert await writer.write([run(0)]) == ((0, 0),)
        assert world.written() == [1, 0]

    run_virtual(scenario())


@pytest.mark.parametrize("is_written", [True, False])
def test_a_leader_that_dies_between_write_and_archive_doubles_nothing(is_written):
    async def scenario():
        world = World()
        world.append(4)
        former = world.writer()
        assert await former.write([run(3)]) == ((3, 3),)  # and stored as archived
        if is_written:
            await former.write([run(1)])  # and dead before it is stored
        writer = world.writer(is_in_doubt=True)
        due = [run(0), run(1), run(2)]
        settled: set[int] = set()
        while due:
            for first, last in await writer.write(due):
                settled |= set(range(first, last + 1))
            due = [each for each in due if each.first not in settled]
        assert sorted(world.written()) == [0, 1, 2, 3]

    run_virtual(scenario())


@pytest.mark.parametrize("due", [[run(1), run(2)], [run(2)], [run(1, 2)]])
def test_a_late_batch_of_the_former_leader_is_not_written_again(due):
    """It comes after the new leader has read the last batch, and before the new leader's first one."""

    async def scenario():
        world = World()
        world.append(4)
        former = world.writer()
        await former.write([run(3)])
        late = await former._make(await world.queues.find("g", 0), [run(2)])
        writer = world.writer(is_in_doubt=True)
        world.late = late.records
        left = due
        for _ in range(4):
            try:
                done = await writer.write(left)
            except KafkaError as error:
                assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                continue
            settled = {offset for first, last in done for offset in range(first, last + 1)}
            offsets = [o for each in left for o in range(each.first, each.last + 1) if o not in settled]
            left = [run(offset) for offset in offsets]
            if not left:
                break
        assert not left
        assert sorted(world.written()) == sorted(
            {3, 2} | {o for r in due for o in range(r.first, r.last + 1)}
        )

    run_virtual(scenario())


@scenario
async def test_dead_letters_that_the_replicas_do_not_have_yet_are_not_written_again():
    world = World()
    world.append(1)
    world.letters.update(LED._replace(isr=(ME, 2), replicas=(ME, 2), partition_epoch=1))
    with pytest.raises(KafkaError):
        await world.writer().write([run(0)])
    successor = world.writer(is_in_doubt=True)
    for _ in range(20):
        with pytest.raises(KafkaError, match="not committed yet"):
            await successor.write([run(0)])
    world.letters.update(LED._replace(replicas=(ME, 2), partition_epoch=2))
    assert await successor.write([run(0)]) == [(0, 0)]
    assert world.written() == [0]


@scenario
async def test_a_record_that_the_disk_does_not_give_now_keeps_its_contents():
    world = World(group={"errors.deadletterqueue.copy.record.enable": "true"})
    world.append(1)
    writer = world.writer()

    def broken(*args):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world.source.log), "read", broken)
        with pytest.raises(KafkaError):
            await writer.write([run(0)])
    assert await writer.write([run(0)]) == ((0, 0),)
    assert [letter.value for letter in world.letter_records()] == [b"0"]


@scenario
async def test_a_damaged_batch_costs_no_other_record_its_contents():
    world = World(group={"errors.deadletterqueue.copy.record.enable": "true"})
    world.append(2)
    header = parse_header(encode_batch([Record(None, b"lost")] * 2, compression=Compression.ZSTD))
    world.source.append(assemble_batch(header, b"not zstd"), -1, Origin.CLIENT)
    world.append(2)
    writer = world.writer()
    assert await writer.write([run(1, 4)]) == ((1, 3),)
    assert await writer.write([run(4)]) == ((4, 4),)
    assert [letter.value for letter in world.letter_records()] == [b"1", None, None, b"0"]


@scenario
async def test_a_record_that_this_leader_does_not_show_yet_waits():
    world = World()
    world.source.update(LED._replace(isr=(ME, 2), replicas=(ME, 2), partition_epoch=1))
    world.append(1)
    with pytest.raises(KafkaError) as raised:
        await world.writer().write([run(0)])
    assert raised.value.code is ErrorCode.OFFSET_NOT_AVAILABLE


@scenario
async def test_reading_small_batches_of_large_records_takes_little_memory():
    """Only the records that are due stay in memory, and no more batches than one write needs."""
    world = World(group={"errors.deadletterqueue.copy.record.enable": "true"})
    zeros = encode_batch([Record(None, bytes(2**20))] * 2, compression=Compression.ZSTD)
    for _ in range(40):
        world.source.append(zeros, -1, Origin.CLIENT)
    due = [run(offset) for offset in range(0, 80, 2)]
    tracemalloc.start()
    spans = await world.writer().write(due)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert spans[0] == (0, 0)
    assert peak < 20 * 2**20


@scenario
async def test_an_error_without_a_code_leaves_open_whether_the_batch_was_appended():
    world = World()
    world.append(2)
    writer = world.writer()
    world.failures = [(ValueError("short response"), True)]
    with pytest.raises(ValueError, match="short"):
        await writer.write([run(0)])
    world.failures = [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)]
    with pytest.raises(KafkaError):
        await writer.write([run(1)])
    assert await writer.write([run(0), run(1)]) == [(0, 0)]
    assert await writer.write([run(1)]) == [(1, 1)]
    assert world.written() == [0, 1]


@pytest.mark.parametrize("had_written", [True, False])
def test_a_leader_that_was_paused_does_not_write_what_its_successors_have_written(had_written):
    async def scenario():
        world = World()
        world.append(4)
        paused = world.writer()
        if had_written:
            await paused.write([run(3)])
        successor = world.writer(is_in_doubt=True)
        await successor.write([run(0, 1)])
        await successor.write([run(2)])
        for _ in range(3):
            with pytest.raises(KafkaError) as raised:
                await paused.write([run(0)])
        assert raised.value.code is ErrorCode.FENCED_LEADER_EPOCH
        assert sorted(world.written()) == ([0, 1, 2, 3] if had_written else [0, 1, 2])

    run_virtual(scenario())


@scenario
async def test_a_refused_batch_is_made_anew_with_the_settings_of_then():
    world = World(group={"errors.deadletterqueue.copy.record.enable": "true"})
    world.append(2)
    writer = world.writer()
    world.failures = [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)]
    with pytest.raises(KafkaError):
        await writer.write([run(0)])
    world.view.image = world.view.image._replace(group_configs={"g": GROUP})
    assert await writer.write([run(0, 1)]) == ((0, 1),)
    (record, _) = all_records(bytes(world.letters.log.read(0, 2**20, 2).chunks[0]))
    assert record.value is None


@scenario
async def test_a_batch_of_dead_letters_has_a_bound():
    world = World(group={"errors.deadletterqueue.copy.record.enable": "true"})
    world.append(100, size=5_000)
    writer, due, calls = world.writer(), [run(0, 99)], 0
    while due:
        (_, last) = (await writer.write(due))[-1]
        due = [run(last + 1, 99)] if last < 99 else []
        calls += 1
    assert world.written() == list(range(100))
    assert calls > 15
    assert all(
        header.size <= 2 * 64 * 1024
        for _, header in batches(bytes(world.letters.log.read(0, 2**24, 100).chunks[0]))
    )


@scenario
async def test_a_batch_of_dead_letters_fits_into_a_segment_of_the_queue():
    world = World(
        group={"errors.deadletterqueue.copy.record.enable": "true"}, queue={"segment.bytes": "16384"}
    )
    world.append(20, size=2_000)
    writer, due = world.writer(), [run(0, 19)]
    while due:
        (_, last) = (await writer.write(due))[-1]
        due = [run(last + 1, 19)] if last < 19 else []
    assert world.written() == list(range(20))


@scenario
async def test_a_queue_whose_name_lacks_the_prefix_is_refused():
    world = World(group={"errors.deadletterqueue.topic.name": "letters"})
    world.append(1)
    with pytest.raises(KafkaError, match=r"must begin with dlq\.") as refused:
        await world.writer().write([run(0)])
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert world.created == []


@scenario
async def test_a_queue_that_is_made_anew_gets_the_dead_letters_of_then():
    world = World()
    world.append(2)
    writer = world.writer()
    world.failures = [(ErrorCode.NETWORK_EXCEPTION, False)]
    with pytest.raises(KafkaError):
        await writer.write([run(0)])
    topics = {**world.view.image.topics, "dlq.t": TopicImage("dlq.t", SOURCE, (LED,))}
    world.view.image = world.view.image._replace(topics=topics)
    target = await world.queues.find("g", 0)
    assert target.topic_id == SOURCE
    assert await writer.write([run(0)]) == ((0, 0),)


@scenario
async def test_a_batch_without_an_answer_is_repeated_where_it_was_sent_though_its_queue_has_grown():
    world = World(index=1)
    world.append(2)
    writer = world.writer()
    world.failures = [(ErrorCode.NETWORK_EXCEPTION, True)]
    with pytest.raises(KafkaError):
        await writer.write([run(0)])
    world.grow()
    assert await writer.write([run(0), run(1)]) == ((0, 0),)
    assert await writer.write([run(1)]) == ((1, 1),)
    assert [partition.log.high_watermark for partition in world.partitions[:2]] == [1, 1]


@scenario
async def test_a_new_leader_looks_into_the_former_partition_of_a_queue_that_has_grown():
    world = World(index=1)
    world.append(2)
    await world.writer().write([run(0)])  # and dead before it is stored
    world.grow()
    writer = world.writer(is_in_doubt=True)
    assert await writer.write([run(0), run(1)]) == [(0, 0)]
    assert await writer.write([run(1)]) == [(1, 1)]
    assert [partition.log.high_watermark for partition in world.partitions[:2]] == [1, 1]


@scenario
async def test_a_former_partition_without_a_leader_matters_only_until_the_last_batch_is_found():
    world = World(index=5)
    world.append(2)
    world.grow(3)
    await world.writer().write([run(0)])  # to partition 2, and dead before it is stored
    world.grow(4)  # now to partition 1; formerly also to 0 and 2
    leaderless = {0}
    real = world.queues.leader

    def leader(target):
        if target.topic.partition in leaderless:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return real(target)

    world.queues.leader = leader
    assert await world.writer(is_in_doubt=True).write([run(0), run(1)]) == [(0, 0)]
    writer = world.writer(is_in_doubt=True)
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        await writer.write([run(1)])  # the last batch may be in partition 0
    leaderless.clear()
    assert await writer.write([run(1)]) == [(1, 1)]
    assert [partition.log.high_watermark for partition in world.partitions] == [0, 1, 1, 0]
