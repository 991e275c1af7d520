"""Compares a compacted log with a model of its guarantees, on a disk that can lose power at any moment.

These conditions are true after any writes, cleanings and interruptions:

- A reader finds the last committed record of every key at its offset, unless it is an expired tombstone.
- Every record that a reader finds was written at this offset. Records of aborted transactions are never
  visible.
- A tombstone stays for `delete.retention.ms` after the first cleaning that has read it. It is removed only
  when no older record of its key is left.
- A transaction keeps its result for read_committed consumers, and the log keeps the states of producers.
- A power cut during a cleaning loses no flushed record.

BARNABAS_THOROUGH=1 runs many more examples.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk, PowerCut
from tests.effort import THOROUGH, examples

from barnabas.base.environment.blocking import Threads
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.storage import Cleaning, OpenFiles, Origin, Throttle, dirtiness
from barnabas.broker.storage.truncation import truncate_to
from barnabas.kafka.records import Compression, Record, batches, encode_batch
from barnabas.kafka.records.builder import batch_records
from barnabas.kafka.records.control import EndTransaction, decode_end_transaction, encode_end_transaction

DIRECTORY = "/data"
PARTITION = TopicPartition("model", 0)
TOPIC_ID = bytes(range(16))
START = 1_700_000_000_000
RETENTION = 1000
KEYS = [b"a", b"b", b"c", b"d", b"key of more than thirty-one bytes"]
PLAIN, IDEMPOTENT, TRANSACTIONAL = -1, 1, (2, 3)


@dataclass
class Written:
    """One batch that was acknowledged."""

    data: bytes
    records: list[Record]
    producer_id: int
    producer_epoch: int
    last_sequence: int
    #: None while its transaction is open
    counts: bool | None = True

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1


@dataclass
class Model:
    """All writes in order: batches, and markers as (offset, producer, commit)."""

    batches: list[Written] = field(default_factory=list)
    markers: list[tuple[int, int, bool]] = field(default_factory=list)
    #: a producer whose batches were lost begins another
    epochs: dict[int, int] = field(default_factory=lambda: dict.fromkeys((IDEMPOTENT, *TRANSACTIONAL), 0))

    def cut(self, end: int) -> None:
        """End the log at `end`, and decide again which transactions are committed."""
        for producer in {batch.producer_id for batch in self.batches if batch.end > end} - {PLAIN}:
            self.epochs[producer] += 1
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self.markers = [marker for marker in self.markers if marker[0] < end]
        for batch in self.batches:
            if batch.producer_id in TRANSACTIONAL:
                marker = self.marker_of(batch)
                batch.counts = None if marker is None else marker[2]

    def marker_of(self, batch: Written) -> tuple[int, int, bool] | None:
        """Return the marker that ends the batch's transaction."""
        return next((m for m in self.markers if m[1] == batch.producer_id and m[0] >= batch.end), None)

    def committed(self, stable: int) -> int:
        """Return the offset that must be committed, with later markers, to decide all transactions below
        `stable`.
        """
        begun = [b for b in self.batches if b.producer_id in TRANSACTIONAL and b.records[0].offset < stable]
        markers = [marker[0] + 1 for batch in begun if (marker := self.marker_of(batch)) is not None]
        return max([stable, *markers])

    def decided(self, below: int) -> dict[int, Record]:
        return {r.offset: r for b in self.batches if b.counts for r in b.records if r.offset < below}

    def last(self, producer: int) -> Written | None:
        """Return the last batch of a producer in its epoch."""
        epoch = self.epochs[producer]
        sent = [b for b in self.batches if b.producer_id == producer and b.producer_epoch == epoch]
        return sent[-1] if sent else None


class CompactionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.clock = ManualClock(START)
        self.chance = random.Random(0)
        self.model = Model()
        #: by offset: from when a tombstone may be gone, at the earliest
        self.horizons: dict[int, int] = {}
        self.flushed = 0
        #: what a cleaning has gone by: it is committed
        self.cleaned = 0

    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([300, 1000, 4000]),
        interval=st.sampled_from([0, 100, 4096]),
    )
    def start(self, seed: int, segment_bytes: int, interval: int) -> None:
        self.chance = random.Random(seed)
        self.config = TopicConfig(
            cleanup_policy=("compact",),
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            delete_retention_ms=RETENTION,
        )
        self.directory = self.open_directory()
        self.log = self.directory.create(PARTITION, TOPIC_ID, self.config)

    def open_directory(self) -> LogDirectory:
        files = OpenFiles(self.disk, capacity=3)
        return LogDirectory.open(
            files, DIRECTORY, simulated_environment(clock=self.clock), cluster_id="c", node_id=1
        )

    # --- write ---

    @rule(
        writes=st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=6),
        compression=st.sampled_from(Compression),
        producer=st.sampled_from((PLAIN, PLAIN, IDEMPOTENT, *TRANSACTIONAL)),
    )
    def write(self, writes: list[tuple[bytes, bool]], compression: Compression, producer: int) -> None:
        base = self.log.log_end_offset
        records = [
            Record(
                key,
                None if is_tombstone and self.chance.random() < 0.5 else b"%d" % (base + place) * 3,
                self.clock.now_ms() + self.chance.randint(-20, 20),
                offset=base + place,
            )
            for place, (key, is_tombstone) in enumerate(writes)
        ]
        last = self.model.last(producer) if producer > 0 else None
        sequence = (last.last_sequence + 1 if last else 0) if producer > 0 else -1
        epoch = self.model.epochs.get(producer, -1)
        data = encode_batch(
            records,
            compression=compression,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=producer in TRANSACTIONAL,
        )
        info = self.log.append_as_leader(data, 0)
        assert info.base_offset == base and not info.duplicate
        self.commit()
        is_open = producer in TRANSACTIONAL
        self.model.batches.append(
            Written(data, records, producer, epoch, sequence + len(records) - 1, None if is_open else True)
        )

    @rule(producer=st.sampled_from(TRANSACTIONAL), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        marker = encode_end_transaction(
            EndTransaction(commit, 0),
            producer_id=producer,
            producer_epoch=self.model.epochs[producer],
            timestamp=self.clock.now_ms(),
        )
        info = self.log.append_as_leader(marker, 0, origin=Origin.COORDINATOR)
        self.commit()
        self.model.markers.append((info.base_offset, producer, commit))
        for batch in self.model.batches:
            if batch.producer_id == producer and batch.counts is None:
                batch.counts = commit

    @rule()
    def send_again(self) -> None:
        """Send a producer's last batch again. The log recognizes it, although compaction may have removed its
        records.
        """
        for producer in (IDEMPOTENT, *TRANSACTIONAL):
            last = self.model.last(producer)
            if last is not None:
                info = self.log.append_as_leader(last.data, 0)
                assert info.duplicate and info.last_offset == last.end - 1

    @rule()
    def roll(self) -> None:
        if self.log.files.segments.active.size:
            self.log.roll()

    @rule(ms=st.sampled_from([1, 100, RETENTION // 2, RETENTION]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    def commit(self) -> None:
        self.log.advance_high_watermark(self.log.log_end_offset)

    # --- clean ---

    @rule(map_entries=st.sampled_from([1, 2, 3, 100, 100]), block_bytes=st.sampled_from([100, 1 << 16]))
    def clean(self, map_entries: int, block_bytes: int) -> None:
        self.get_dirty()
        self.run_cleaning(map_entries * 200, block_bytes)
        self.check_readers()

    @rule(
        changes=st.integers(0, 60),
        map_entries=st.sampled_from([2, 100]),
        kill=st.booleans(),
    )
    def clean_and_lose_power(self, changes: int, map_entries: int, kill: bool) -> None:
        """Cut the power, or kill the process, at any change that a cleaning makes on the disk."""
        self.get_dirty()
        self.log.flush()
        self.flushed = self.log.recovery_point
        if self.chance.random() < 0.7:  # what is written since may be lost, and needs a recovery
            self.write([(self.chance.choice(KEYS), False)], Compression.NONE, PLAIN)
        self.disk.changes_left = changes
        with suppress(PowerCut):
            self.run_cleaning(map_entries * 200, 1 << 16, flush=False)
        self.reopen(power=not kill)

    def get_dirty(self) -> None:
        """Write segments of all kinds, so that there is something to clean."""
        chance = self.chance
        for _ in range(chance.randint(0, 4)):
            writes = [(chance.choice(KEYS), chance.random() < 0.3) for _ in range(chance.randint(1, 4))]
            producer = chance.choice((PLAIN, PLAIN, IDEMPOTENT, *TRANSACTIONAL))
            self.write(writes, chance.choice(list(Compression)), producer)
            if producer in TRANSACTIONAL and chance.random() < 0.7:
                self.end_transaction(producer, chance.random() < 0.5)
            if chance.random() < 0.4:
                self.roll()
        if chance.random() < 0.8:
            for producer in TRANSACTIONAL:
                self.end_transaction(producer, chance.random() < 0.5)
        self.roll()

    def run_cleaning(self, map_bytes: int, block_bytes: int, *, flush: bool = True) -> None:
        log, directory, now = self.log, self.directory, self.clock.now_ms()
        if flush:
            log.flush()
            self.flushed = log.recovery_point
        dirt = dirtiness(log, directory.cleaned_to.get(PARTITION), now)
        if not dirt.dirty_bytes:
            return
        cleaning = Cleaning(
            log,
            dirt,
            now_ms=now,
            map_bytes=map_bytes,
            block_bytes=block_bytes,
            throttle=Throttle(self.clock, lambda: 1e300),
            cancelled=Threads().signal(),
        )
        cleaning.index()
        assert dirt.first_dirty < cleaning.end <= dirt.end
        for record in self.model.decided(cleaning.end).values():
            if record.value is None:
                self.horizons.setdefault(record.offset, now + RETENTION)
        directory.recovery_point_checkpoint().run()
        self.cleaned = max(self.cleaned, self.model.committed(dirt.end))  # all of it was looked at
        for group in cleaning.groups():
            cleaned = cleaning.clean(group)
            assert cleaned.size <= max(self.config.segment_bytes, 2 * sum(s.size for s in group))
            log.files.begin_swap(cleaned, group)
            self.disk.sync_directory(log.files.path)
            removal = log.files.finish_swap()
            assert removal is not None
            self.disk.sync_directory(log.files.path)
            if self.chance.random() < 0.7:  # else they lie there until the next start
                removal.run()
        directory.note_clean(PARTITION, cleaning.end)
        directory.cleaned_checkpoint().run()

    @rule(at=st.floats(0, 1))
    def truncate(self, at: float) -> None:
        # What is committed is never cut off.
        offset = self.cleaned + int(at * (self.log.log_end_offset - self.cleaned))
        if truncate_to(self.log, offset):
            self.follow_end()

    @precondition(lambda self: self.log.files.segments.active.base_offset)
    @rule()
    def truncate_while_a_segment_is_put_in_place(self) -> None:
        self.get_dirty()
        log = self.log
        log.flush()
        self.flushed = log.recovery_point
        dirt = dirtiness(log, None, self.clock.now_ms())
        if not dirt.dirty_bytes:
            return
        throttle = Throttle(self.clock, lambda: 1e300)
        cleaning = Cleaning(
            log,
            dirt,
            now_ms=self.clock.now_ms(),
            map_bytes=1 << 20,
            block_bytes=1 << 16,
            throttle=throttle,
            cancelled=Threads().signal(),
        )
        cleaning.index()
        group = cleaning.groups()[0]
        log.files.begin_swap(cleaning.clean(group), group)
        end = log.log_end_offset
        self.truncate(0.5)
        assert (log.files.swap is None) == (log.log_end_offset < end)
        log.files.cancel_swap()
        self.check_readers()

    # --- stop ---

    @rule()
    def restart(self) -> None:
        self.directory.close()
        self.open_again()

    @rule()
    def kill(self) -> None:
        self.reopen(power=False)

    @rule()
    def power_cut(self) -> None:
        self.reopen(power=True)

    def reopen(self, *, power: bool) -> None:
        self.disk.mend()
        self.log.abandon()
        self.directory._lock.release()
        if power:
            self.disk.crash(self.chance)
        end = self.log.log_end_offset
        self.open_again()
        assert self.log.log_end_offset >= (self.flushed if power else end)

    def open_again(self) -> None:
        self.directory = self.open_directory()
        if PARTITION in self.directory.found():
            self.log = self.directory.adopt(self.directory.load(PARTITION, TOPIC_ID, self.config))
        else:
            self.log = self.directory.create(PARTITION, TOPIC_ID, self.config)
        self.follow_end()
        folder = f"{DIRECTORY}/{PARTITION}"
        names = [entry.name for entry in self.disk.entries(folder)]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        self.check_indexes()
        self.check_readers()

    def follow_end(self) -> None:
        self.commit()
        end = self.log.log_end_offset
        self.model.cut(end)
        self.flushed = min(self.flushed, end)
        self.horizons = {offset: at for offset, at in self.horizons.items() if offset < end}

    # --- what always holds ---

    @invariant()
    def offsets_are_in_order(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
            assert self.disk.open_files <= 3

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.check_readers()
            self.kill()

    def check_readers(self) -> None:
        log, now = self.log, self.clock.now_ms()
        stable = log.last_stable_offset
        decided = self.model.decided(stable)
        found = self.read_committed(self.chance.choice([100, 10_000]))
        assert found.items() <= decided.items(), "something was read that was not written, or not committed"
        latest = {record.key: record for record in decided.values()}
        oldest_left = {record.key: record for record in reversed(found.values())}
        for key, record in latest.items():
            if record.offset in found:
                continue
            assert record.value is None, f"the last record of {key!r} is gone"
            assert self.horizons[record.offset] <= now, "a tombstone went before its time"
            assert key not in oldest_left, "a record has come back from behind its tombstone"
        self.check_times(found)

    def check_times(self, found: dict[int, Record]) -> None:
        """Check that a search by time finds every readable record. It may find those
        of aborted transactions.
        """
        for record in found.values():
            at = self.log.offset_for_timestamp(record.timestamp)
            assert at is not None and at.offset <= record.offset and at.timestamp >= record.timestamp

    def read_committed(self, max_bytes: int) -> dict[int, Record]:
        """Return the records that a read_committed consumer gets, fetch by fetch."""
        log = self.log
        found: dict[int, Record] = {}
        offset = log.log_start_offset
        while offset < log.last_stable_offset:
            fetched = log.read(offset, max_bytes, log.last_stable_offset)
            data = b"".join(map(bytes, fetched.chunks))
            aborted = log.aborted_transactions(offset, fetched.size)
            skipping = set()
            start = offset
            for position, header in batches(data):
                batch = memoryview(data)[position : position + header.size]
                while aborted and aborted[0].first_offset <= header.last_offset:
                    skipping.add(aborted.pop(0).producer_id)
                offset = header.next_offset
                if header.is_control:
                    marker = decode_end_transaction(header, batch)
                    if marker is not None and not marker.commit:
                        skipping.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in skipping):
                    found |= {record.offset: record for record in batch_records(header, batch)}
            if offset == start:
                break  # nothing is left up to the end
        return found

    def check_indexes(self) -> None:
        for segment in self.log.files.segments:
            headers = dict(segment.headers(0))
            for number in range(len(segment.offsets)):
                relative, position = segment.offsets.entry(number)
                assert headers[position].last_offset == segment.base_offset + relative
            for number in range(len(segment.times)):
                timestamp, relative = segment.times.entry(number)
                up_to = [h for h in headers.values() if h.last_offset <= segment.base_offset + relative]
                assert max(h.latest_record_timestamp for h in up_to) == timestamp
            if headers:
                latest = max(h.latest_record_timestamp for h in headers.values())
                assert segment.latest.timestamp == latest


TestCompactionModel = CompactionModel.TestCase
TestCompactionModel.settings = settings(
    max_examples=examples(60, 2000),
    stateful_step_count=60 if THOROUGH else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
