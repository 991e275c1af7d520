"""Compares a partition's log with a list, on a disk that loses, tears and refuses writes.

These conditions are true after any operations, and after a power cut at any time:

- An acknowledged append can be read unchanged, until it is truncated, deleted, or lost in a power cut.
- A power cut loses no flushed record. Of the others it removes only the last ones: there is no gap and no
  part of a batch.
- A kill of the process alone loses no acknowledged record.
- Indexes are right, and the states of producers survive.
- log start <= last stable offset <= high watermark <= log end.
- No two segments have the same base offset.

BARNABAS_THOROUGH=1 runs many more examples.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from tests.effort import THOROUGH, examples

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.storage import Flush, OpenFiles, PartitionLog, log_files
from barnabas.broker.storage.checkpoints import CLEAN_SHUTDOWN
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.broker.storage.truncation import truncate_to
from barnabas.kafka.records import Compression, Record, all_records, batches, encode_batch

DIRECTORY = "/data"
PARTITION = TopicPartition("model", 0)
TOPIC_ID = bytes(range(16))
START = 1_700_000_000_000
PRODUCERS = (1, 2)


@dataclass
class Batch:
    """The model's knowledge of one batch."""

    data: bytes
    base_offset: int
    records: list[Record]
    producer_id: int = -1
    sequence: int = -1

    @property
    def end(self) -> int:
        return self.base_offset + len(self.records)


class LogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self.disk = FaultyDisk()
        self.clock = ManualClock(START)
        self.chance = random.Random(0)
        self.epoch = 0
        self.batches: list[Batch] = []  # every batch that was answered and not truncated
        self.maybe: Batch | None = None  # one whose append failed: it may be there after a restart
        self.flushed = 0
        self.flushing: Flush | None = None
        self.next_sequence = dict.fromkeys(PRODUCERS, 0)
        self.refused: set[int] = set()  # producers whose next batch has been sent once, in vain
        self.config = TopicConfig()
        self.offline = False

    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([400, 1000, 4000]),
        interval=st.sampled_from([0, 100, 4096]),
        a_flush=st.sampled_from([1, 2, 64]),
    )
    def start(self, seed: int, segment_bytes: int, interval: int, a_flush: int) -> None:
        self.patches.setattr(log_files, "SEGMENTS_A_FLUSH", a_flush)
        self.chance = random.Random(seed)
        self.config = TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
        self.directory = self.open_directory()
        self.log = self.directory.create(PARTITION, TOPIC_ID, self.config)

    def open_directory(self) -> LogDirectory:
        # few files may be open at once, so that they are closed and opened again all the time
        files = OpenFiles(self.disk, capacity=3)
        return LogDirectory.open(
            files, DIRECTORY, simulated_environment(clock=self.clock), cluster_id="c", node_id=1
        )

    def reopen(self) -> None:
        self.directory = self.open_directory()
        found = self.directory.found()
        if PARTITION in found:
            self.log = self.directory.adopt(self.directory.load(PARTITION, TOPIC_ID, self.config))
        else:  # its folder was never safe
            self.log = self.directory.create(PARTITION, TOPIC_ID, self.config)
        self.directory.is_recovered = True  # as the log manager says once each log is open
        self.offline = False
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.check_indexes()

    # --- append ---

    @rule(
        sizes=st.lists(st.integers(0, 120), min_size=1, max_size=5),
        compression=st.sampled_from(Compression),
        producer=st.sampled_from((-1, *PRODUCERS)),
        step=st.integers(-50, 200),
    )
    def append(self, sizes: list[int], compression: Compression, producer: int, step: int) -> None:
        records = [
            Record(None, self.chance.randbytes(size), self.clock.now_ms() + step * place)
            for place, size in enumerate(sizes)
        ]
        sequence = -1 if producer < 0 else self.next_sequence[producer]
        data = encode_batch(
            records,
            compression=compression,
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=sequence,
        )
        if len(data) > self.config.segment_bytes:
            return
        batch = Batch(data, self.log.log_end_offset, records, producer, sequence)
        try:
            info = self.log.append_as_leader(data, self.epoch)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            self.refused.add(producer)
            if not self.offline and self.log.is_offline:
                self.maybe = batch
            self.offline = self.log.is_offline
            assert self.log.log_end_offset == batch.base_offset, "what is refused changes nothing"
            return
        assert not self.offline and not info.duplicate
        assert (info.base_offset, info.last_offset) == (batch.base_offset, batch.end - 1)
        self.batches.append(batch)
        self.refused.discard(producer)
        if producer >= 0:
            self.next_sequence[producer] = sequence + len(records)
        self.log.advance_high_watermark(self.log.log_end_offset)

    @rule(producer=st.sampled_from(PRODUCERS), back=st.integers(1, 5))
    def send_again(self, producer: int, back: int) -> None:
        """Send one of a producer's last five batches again. The answer has its offset."""
        sent = [batch for batch in self.batches if batch.producer_id == producer]
        if self.offline or len(sent) < back or sent[-back].base_offset < self.log.log_start_offset:
            return
        end = self.log.log_end_offset
        info = self.log.append_as_leader(sent[-back].data, self.epoch)
        assert info.duplicate and info.base_offset == sent[-back].base_offset
        assert self.log.log_end_offset == end

    @rule(producer=st.sampled_from(PRODUCERS))
    def skip_a_sequence(self, producer: int) -> None:
        known = self.log.producers.get(producer)
        if self.offline or known is None:
            return
        data = encode_batch(
            [Record(None, b"", START)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.next_sequence[producer] + 1,
        )
        with pytest.raises(KafkaError) as refused:
            self.log.append_as_leader(data, self.epoch)
        if producer in self.refused and refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR:
            return  # what was in flight behind the refused batch is answered as that one was
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    # --- read ---

    @precondition(lambda self: not self.log.closed)
    @rule(at=st.floats(0, 1), max_bytes=st.integers(0, 2000), bound=st.floats(0, 1), min_one=st.booleans())
    def read(self, at: float, max_bytes: int, bound: float, min_one: bool) -> None:
        log = self.log
        span = log.log_end_offset - log.log_start_offset
        offset = log.log_start_offset + int(at * span)
        max_offset = log.log_end_offset
        if bound < 0.5:  # a high watermark behind the end, at the end of some batch
            max_offset = self.chance.choice([batch.end for batch in self.batches] or [0])
        found = log.read(offset, max_bytes, max_offset, min_one)
        data = b"".join(found.chunks)
        assert len(data) == found.size
        expected = [b for b in self.batches if b.end > offset and b.end <= max_offset]
        whole = list(batches(data))
        assert len(data) <= max_bytes or (min_one and len(whole) == 1)
        if min_one and expected:
            assert whole, "a read that may must make progress"
        assert [header.base_offset for _, header in whole] == [b.base_offset for b in expected][: len(whole)]
        check_records(data, self.batches)

    @precondition(lambda self: not self.log.closed)
    @rule(before=st.booleans())
    def read_out_of_range(self, before: bool) -> None:
        offset = self.log.log_start_offset - 1 if before else self.log.log_end_offset + 1
        with pytest.raises(KafkaError) as refused:
            self.log.read(offset, 1000, self.log.log_end_offset)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @precondition(lambda self: not self.log.closed)
    @rule(delta=st.integers(-500, 3000))
    def look_up_a_time(self, delta: int) -> None:
        timestamp = START + delta
        visible = self.visible_records()
        expected = next(((r.timestamp, r.offset) for r in visible if r.timestamp >= timestamp), None)
        found = self.log.offset_for_timestamp(timestamp)
        assert (found and (found.timestamp, found.offset)) == expected

    @precondition(lambda self: not self.log.closed)
    @rule()
    def look_up_the_largest_time(self) -> None:
        visible = self.visible_records()
        largest = max((r.timestamp for r in visible), default=None)
        whole = self.log.files.segments[0].base_offset
        hidden = [
            r for b in self.batches for r in located(b) if whole <= r.offset < self.log.log_start_offset
        ]
        if any(largest is None or r.timestamp > largest for r in hidden):
            return  # a record before the log's start, still in its segment, bears it
        found = self.log.offset_for_timestamp(-3)
        first = next(((r.timestamp, r.offset) for r in visible if r.timestamp == largest), None)
        assert (found and (found.timestamp, found.offset)) == first

    # --- keep ---

    @rule()
    def begin_a_flush(self) -> None:
        if not self.flushing and not self.offline:
            self.flushing = self.log.prepare_flush()

    @precondition(lambda self: self.flushing)
    @rule()
    def end_a_flush(self) -> None:
        flush, self.flushing = self.flushing, None
        before = self.log.recovery_point
        flush.run()
        try:
            self.log.complete_flush(flush)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            self.offline = self.log.is_offline
            assert self.log.recovery_point == before
        else:
            self.flushed = max(self.flushed, self.log.recovery_point)

    @precondition(lambda self: not self.flushing)
    @rule()
    def flush(self) -> None:
        end = self.log.log_end_offset
        is_partial = True
        while is_partial and not self.offline:
            self.begin_a_flush()
            is_partial = self.flushing is not None and self.flushing.is_partial
            if self.flushing:
                self.end_a_flush()
        if self.disk.space is None:
            assert self.offline or self.log.recovery_point == self.flushed == end

    @rule()
    def write_checkpoints(self) -> None:
        if not self.offline:
            try:
                self.directory.recovery_point_checkpoint().run()
                self.directory.log_start_checkpoint().run()
            except OSError as error:
                self.directory.env.handle_error("a checkpoint", error)
                self.offline = self.log.is_offline

    @rule()
    def roll(self) -> None:
        active = self.log.files.segments.active
        is_empty = not active.size
        try:
            with self.log.guarded():
                self.log.roll()
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            self.offline = self.log.is_offline
            return
        assert (self.log.files.segments.active is active) is is_empty

    # --- drop ---

    @rule(ms=st.integers(0, 1000))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(retention_bytes=st.sampled_from([0, 500, 2000, 10_000]))
    def retain_by_size(self, retention_bytes: int) -> None:
        if self.retain(self.config.replace(retention_bytes=retention_bytes)):
            first = self.log.files.segments[0]
            assert self.log.size - first.size < retention_bytes or len(self.log.files.segments) == 1

    @rule(retention_ms=st.sampled_from([0, 100, 1000]))
    def retain_by_time(self, retention_ms: int) -> None:
        retained = self.retain(self.config.replace(retention_ms=retention_ms))
        first = self.log.files.segments[0]
        if retained and first.size:
            newest = max(
                r.timestamp for b in self.batches for r in located(b) if in_segment(self.log, r.offset)
            )
            assert self.clock.now_ms() - newest <= retention_ms

    def retain(self, config: TopicConfig) -> bool:
        """Run retention. Return False if a fault of the disk prevented it."""
        self.log.config = config
        try:
            removal = delete_old_segments(self.log, self.clock.now_ms())
            if removal and self.chance.random() < 0.7:  # else they lie there until the next start
                removal.run()
        except (KafkaError, OSError):
            self.offline = self.log.is_offline
            return False
        finally:
            self.log.config = self.config
        return not self.offline and self.disk.space is None

    @rule(at=st.floats(0, 1))
    def delete_records(self, at: float) -> None:
        log = self.log
        if self.offline:
            return
        target = log.log_start_offset + int(at * (log.high_watermark - log.log_start_offset))
        log.advance_log_start(target)
        assert log.log_start_offset == target

    @rule(at=st.floats(0, 1))
    def truncate(self, at: float) -> None:
        log = self.log
        offset = log.log_start_offset + int(at * (log.log_end_offset - log.log_start_offset))
        kept = [batch for batch in self.batches if batch.end <= offset]
        try:
            cut = truncate_to(log, offset)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            self.offline = log.is_offline
            if not log.closed:
                return  # it has changed nothing
            # how far it came only a restart shows: what remains is one of the batches' ends
            self.flushed = min(self.flushed, kept[-1].end if kept else log.files.segments[0].base_offset)
            return
        if cut:
            self.batches = kept
            self.flushed = min(self.flushed, log.log_end_offset)
            self.epoch += 1  # another leader goes on
            self.forget_lost_sequences()
            assert log.log_end_offset == (kept[-1].end if kept else log.log_end_offset)

    # --- stop ---

    @rule()
    def restart(self) -> None:
        if self.flushing:
            self.end_a_flush()
        was_offline = self.offline
        self.directory.close()
        if not any(entry.name == CLEAN_SHUTDOWN for entry in self.disk.entries(DIRECTORY)):
            disk = self.disk
            assert was_offline or disk.space is not None or disk.fail_writes or disk.fail_syncs
            self.restart_after_kill()
            return
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.disk.crash(self.chance)  # a clean stop needs nothing that is not on disk
        self.reopen()
        assert self.directory.was_clean
        assert (self.log.log_start_offset, self.log.log_end_offset) == (start, end)
        self.flushed = end

    @rule()
    def kill(self) -> None:
        """Kill the process and not the machine: all written data stays."""
        self.abandon()
        self.restart_after_kill()

    def restart_after_kill(self) -> None:
        if self.disk.has_lost_writes:  # the cache shows what the disk does not have: no restart can tell
            self.restart_after_power_cut()
            return
        self.disk.mend()
        end = self.batches[-1].end if self.batches else None
        was_offline, self.offline = self.offline, False
        self.reopen()
        self.settle()
        if end is not None and not was_offline:
            assert self.log.log_end_offset >= end
        assert self.log.log_end_offset >= self.flushed

    @rule()
    def power_cut(self) -> None:
        self.abandon()
        self.restart_after_power_cut()

    def restart_after_power_cut(self) -> None:
        self.disk.crash(self.chance)
        self.reopen()
        self.settle()
        assert self.log.log_end_offset >= self.flushed, "what was flushed was lost"

    def abandon(self) -> None:
        """Close the files and release the lock, as the end of a process does."""
        self.log.abandon()
        self.drop_flush()
        self.directory._lock.release()

    def drop_flush(self) -> None:
        flush, self.flushing = self.flushing, None
        if flush:
            for file in flush.files:
                file.unpin()
            for file in flush.small_files:
                file.close()

    def settle(self) -> None:
        """Check that the log after a crash has the first acknowledged batches, perhaps followed by a failed
        append.
        """
        end = self.log.log_end_offset
        if self.maybe and self.maybe.end == end:
            self.batches.append(self.maybe)
        self.maybe = None
        self.batches = [batch for batch in self.batches if batch.end <= end]
        if self.batches and self.batches[-1].end >= self.log.files.segments[0].base_offset:
            assert self.batches[-1].end == end or end == self.log.files.segments[0].base_offset
        self.forget_lost_sequences()
        self.epoch += 1
        self.check_everything()

    def forget_lost_sequences(self) -> None:
        for producer in PRODUCERS:
            sent = [batch for batch in self.batches if batch.producer_id == producer]
            known = self.log.producers.get(producer)
            if known is not None and known.batches:
                self.next_sequence[producer] = known.last_sequence + 1
            elif sent:
                self.next_sequence[producer] = sent[-1].sequence + len(sent[-1].records)

    # --- faults ---

    @rule(space=st.integers(0, 600))
    def disk_fills_up(self, space: int) -> None:
        self.disk.space = space

    @rule()
    def disk_cannot_sync(self) -> None:
        self.disk.fail_syncs = True

    @rule()
    def disk_cannot_write(self) -> None:
        self.disk.fail_writes = True

    # --- what always holds ---

    @invariant()
    def offsets_are_in_order(self) -> None:
        if hasattr(self, "log") and not self.log.closed:
            log = self.log
            assert log.files.segments[0].base_offset <= log.log_start_offset <= log.last_stable_offset
            assert log.last_stable_offset <= log.high_watermark <= log.log_end_offset
            assert log.recovery_point <= log.log_end_offset
            assert all(a.base_offset < b.base_offset for a, b in pairwise(log.files.segments))
            assert self.disk.open_files <= 3 + (len(self.flushing.files) if self.flushing else 0)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.abandon()
            self.restart_after_kill()
            self.abandon()
            assert self.disk.open_files == 0
        self.patches.undo()

    def check_everything(self) -> None:
        log = self.log
        offset = log.log_start_offset
        read = []
        while offset < log.log_end_offset:
            data = b"".join(log.read(offset, 1000, log.log_end_offset).chunks)
            found = list(all_records(data))
            assert found, f"nothing at {offset}"
            read += [record for record in found if record.offset >= log.log_start_offset]
            offset = found[-1].offset + 1
        assert read == self.visible_records()

    def check_indexes(self) -> None:
        for segment in self.log.files.segments:
            headers = dict(segment.headers(0))
            for number in range(len(segment.offsets)):
                relative, position = segment.offsets.entry(number)
                assert headers[position].last_offset == segment.base_offset + relative
            last = -1
            for number in range(len(segment.times)):
                timestamp, relative = segment.times.entry(number)
                offset = segment.base_offset + relative
                up_to = [h.max_timestamp for h in headers.values() if h.last_offset <= offset]
                assert max(up_to) == timestamp > last
                last = timestamp
            if headers:
                assert segment.latest.timestamp == max(h.max_timestamp for h in headers.values())

    def visible_records(self) -> list[Record]:
        return [r for batch in self.batches for r in located(batch) if r.offset >= self.log.log_start_offset]


def located(batch: Batch) -> list[Record]:
    return [r._replace(offset=batch.base_offset + place) for place, r in enumerate(batch.records)]


def in_segment(log: PartitionLog, offset: int) -> bool:
    segments = log.files.segments
    end = segments[1].base_offset if len(segments) > 1 else log.log_end_offset
    return segments[0].base_offset <= offset < end


def check_records(data: bytes, known: list[Batch]) -> None:
    by_offset = {record.offset: record for batch in known for record in located(batch)}
    for record in all_records(data):
        assert record == by_offset[record.offset]


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=examples(60, 2000),
    stateful_step_count=60 if THOROUGH else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
