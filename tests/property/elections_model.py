"""A model of one partition whose brokers crash, with the real rules for leaders, epochs and truncations.

A log is a list of records, each with its leader epoch and a number of its own. A crash loses any part of the
log's end that was not flushed.

The states of the partition are real (`partition_changes`). So are the elections (`candidates`,
`choose_leader`), the leader epochs (`LeaderEpochs`), and the conclusions of leader and follower from them.
The model has its own fetches, high watermark, flushes and crashes.

A *program* of bytes says what happens. So a random program is a random history, and a shorter program is a
shorter history.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from barnabas.base.errors import KafkaError
from barnabas.broker.controller import replica_logs
from barnabas.broker.controller.partition_changes import (
    Eligibility,
    alter_isr,
    candidates,
    elect_longest_log,
    elect_preferred,
    elect_uncleanly,
    last_in_sync,
    last_in_sync_first,
    leave_isr,
    settle,
)
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.partition.follower import Follower
from barnabas.broker.replication.partition.leader import Leader
from barnabas.broker.server.fetching.replica_fetch import ReplicaFetch
from barnabas.broker.storage.epochs import LeaderEpochs
from barnabas.broker.storage.log_end import LogEnd


class ModelLog:
    """A log with the attributes of `PartitionLog` that the real rules read."""

    def __init__(self) -> None:
        self.base = 0
        self.records: list[tuple[int, int]] = []
        self.epochs = LeaderEpochs()
        self.log_start_offset = self.high_watermark = self.stored_start = 0
        self._flush_at(0)

    def _flush_at(self, end):
        self.flushed = end
        self.stored_epochs = list(self.epochs.entries)

    @property
    def log_end_offset(self):
        return self.base + len(self.records)

    @property
    def latest_epoch(self):
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch):
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def record(self, offset):
        return self.records[offset - self.base]

    def append(self, *records):
        for record in records:
            self.epochs.assign(record[0], self.log_end_offset)
            self.records.append(record)

    def flush(self):
        self._flush_at(self.log_end_offset)

    def advance_start(self, offset, *, removes=False):
        """DeleteRecords, or retention (`removes`), which also removes the records from the disk."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
        if removes and offset > self.base:
            del self.records[: offset - self.base]
            self.base = offset
            self.stored_start = max(self.stored_start, offset)

    def truncate(self, offset):
        """`LogManager.prepare_truncation`, `truncation.truncate_to`, and the flush that follows."""
        self.stored_start = min(self.stored_start, offset)
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(offset)
        elif offset < self.base:
            self.start_over(offset)
        else:
            del self.records[offset - self.base :]
            self.high_watermark = min(self.high_watermark, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self.epochs.truncate_from_end(offset)
        self.flush()

    def start_over(self, offset):
        self.base, self.records = offset, []
        self.log_start_offset = self.high_watermark = self.stored_start = offset
        self.epochs.truncate_from_end(0)
        self.flush()

    def crash(self, end):
        """Lose the records from `end` on, and recover as `opening.load_log` and `recovery.recover` do."""
        del self.records[end - self.base :]
        recovery_point = min(self.flushed, end)
        epochs = LeaderEpochs(list(self.stored_epochs))
        is_complete = self.base <= recovery_point
        begins_there = [e for e in epochs.entries if is_complete and e.start_offset == recovery_point]
        epochs.truncate_from_end(recovery_point if is_complete else 0)
        for offset in range(max(self.base, recovery_point if is_complete else 0), end):
            if self.record(offset)[0] > epochs.latest:
                epochs.assign(self.record(offset)[0], offset)
        if end == recovery_point:
            for epoch, offset in begins_there:
                if epoch > epochs.latest:
                    epochs.assign(epoch, offset)
        start = max(self.stored_start, self.base)
        if start > end and epochs.latest >= 0:  # `truncation.continue_at`
            self.base, self.records, end = start, [], start
        start = min(start, end)
        epochs.truncate_from_start(start)
        epochs.truncate_from_end(end if start < end else end + 1)
        self.epochs = epochs
        self.log_start_offset = start
        self.high_watermark = max(start, min(self.high_watermark, end))
        self.stored_start = start
        self._flush_at(end)


class Broker:
    def __init__(self, number, state):
        self.id = number
        self.log = ModelLog()
        self.is_alive = True
        #: epoch of its present session with the store, and of the last one that it stopped cleanly in
        self.epoch = 1
        self.is_clean = True
        #: the latest state and the latest brokers that it has received
        self.view: PartitionState = state
        self.known: dict[int, int] = {}
        self.min_isr = 0
        #: as a leader: the end and the start of each follower's log, by its last fetch, with its broker epoch
        self.progress: dict[int, tuple[int, int, int]] = {}
        self.epoch_start = 0
        #: whether records may be missing in its log, so that it must be emptied
        self.is_incomplete = False
        self.must_be_emptied = False

    @property
    def leads(self):
        return self.is_alive and self.view.leader == self.id


_is_under_min_isr: Any = Leader.is_under_min_isr.fget  # type: ignore[attr-defined]
_ELECTED = "elected {}, which lacks records; those that were in sync have {} of {}: {}"
_FETCH = "follower {} fetches from {} at {} after epoch {}: "


class LossError(AssertionError):
    """A record is lost, or differs, against the promise."""


class Elections:
    """One partition, its brokers and the controller. `run` executes a program."""

    def __init__(self, program: bytes) -> None:
        self._program = program
        self._position = 0
        self.trace: list[tuple[str, tuple[object, ...]]] = []
        count = 3 + self.choose(2)
        self.min_isr = 1 + self.choose(3)
        self.fsync = self.choose(8) == 7
        self.told_epochs = (100, 100, 2, 1)[self.choose(4)]
        numbers = tuple(range(1, count + 1))
        self.state = PartitionState(numbers, numbers, 1, 1)
        self.brokers = {n: Broker(n, self.state) for n in numbers}
        #: registered brokers and those that are admitted, with their epochs
        self.registered = dict.fromkeys(numbers, 1)
        self.admitted = dict(self.registered)
        for broker in self.brokers.values():
            broker.known, broker.min_isr = dict(self.registered), self.min_isr
        #: the committed records: None for one that a leader no longer had when it counted
        self.committed: list[tuple[int, int] | None] = []
        #: brokers that crashed, and that the controller has not treated as unclean yet
        self.dirty: set[int] = set()
        #: the leader epoch of the latest election that was requested
        self.unclean_epoch = 0
        self._ids = 0
        self._clock = 1
        self.elected = 0
        self.lost = 0
        self.note(
            "{} replicas, min.isr {}, fsync {}, tells {}", count, self.min_isr, self.fsync, self.told_epochs
        )

    # --- the program ---

    @property
    def is_over(self):
        return self._position >= len(self._program)

    def choose(self, count: int) -> int:
        if self.is_over:
            return 0
        self._position += 1
        return self._program[self._position - 1] % count

    def pick(self, items) -> Any:
        return items[self.choose(len(items))]

    def note(self, text: str, *args: object) -> None:
        self.trace.append((text, args))

    def run(self) -> None:
        try:
            while not self.is_over:
                step = _STEPS[self.choose(len(_STEPS))]
                step(self)
                self.check()
        except LossError as error:
            history = (text.format(*args) for text, args in self.trace)
            raise LossError("\n".join([*history, *self.describe(), str(error)])) from error

    def describe(self):
        yield f"state {self.state}"
        yield f"committed {self.committed}"
        for b in self.brokers.values():
            yield (
                f"broker {b.id} {'up' if b.is_alive else 'down'} {b.log.log_start_offset}.."
                f"{b.log.log_end_offset} {b.log.records} hw {b.log.high_watermark} {b.log.epochs.entries}"
            )

    # --- what is committed ---

    def kept(self, log: ModelLog) -> int:
        """The number of committed records that the log has, from the first one on; deleted ones count."""
        end = min(log.log_end_offset, len(self.committed))
        start = log.log_start_offset
        if log.records[start - log.base : end - log.base] == self.committed[start:end]:
            return end
        for offset in range(log.log_start_offset, end):
            if self.committed[offset] is not None and log.record(offset) != self.committed[offset]:
                return offset
        return end

    def _has_all(self, leader: int, kept: dict[int, int]) -> bool:
        """Whether a broker has the committed records that others still have, up to the offsets in `kept`.

        The broker may have or lack records that all of these have deleted.
        """
        log = self.brokers[leader].log
        return all(
            offset < log.log_start_offset
            or self.committed[offset] is None
            or (offset < log.log_end_offset and log.record(offset) == self.committed[offset])
            for number, end in kept.items()
            for offset in range(self.brokers[number].log.log_start_offset, end)
        )

    def lose(self, count):
        self.lost += len(self.committed) - count
        del self.committed[count:]

    def advance(self, leader: Broker) -> None:
        """Move the leader's high watermark, as `Leader._advance_to`."""
        state = leader.view
        config = SimpleNamespace(min_insync_replicas=leader.min_isr)
        if _is_under_min_isr(SimpleNamespace(state=state, _log=SimpleNamespace(config=config))):
            return
        log = leader.log
        end = log.flushed if self.fsync else log.log_end_offset
        for member in state.isr:
            if member != leader.id:
                epoch, its_end, _ = leader.progress.get(member, (-1, -1, -1))
                end = min(end, its_end if leader.known.get(member) == epoch else -1)
        if end <= log.high_watermark:
            return
        log.high_watermark = end
        if state.leader_epoch < self.unclean_epoch:
            return  # the requested election has given up what a former leader still commits
        for offset in range(log.log_start_offset, end):
            if offset < len(self.committed):
                self.require(
                    self.committed[offset] in (None, log.record(offset)),
                    "leader {} commits another record at {}",
                    leader.id,
                    offset,
                )
            else:
                self.committed.extend([None] * (offset - len(self.committed)))
                self.committed.append(log.record(offset))

    def require(self, condition: bool, text: str, *args: object) -> None:
        if not condition:
            raise LossError(text.format(*args))

    def check(self) -> None:
        for number in {*self.state.isr, *self.state.elr} - self.dirty:
            kept = self.kept(self.brokers[number].log)
            self.require(kept == len(self.committed), "broker {} is in sync and has {} records", number, kept)

    # --- steps of leaders and followers ---

    def alive(self):
        return [b for b in self.brokers.values() if b.is_alive]

    def leaders(self):
        return [b for b in self.brokers.values() if b.leads]

    def append(self):
        leaders = self.leaders()
        if leaders:
            leader = self.pick(leaders)
            count = 1 + self.choose(3)
            for _ in range(count):
                self._ids += 1
                leader.log.append((leader.view.leader_epoch, self._ids))
            self.note("leader {} appends {} in epoch {}", leader.id, count, leader.view.leader_epoch)
            self.advance(leader)

    def flush(self):
        broker = self.pick(list(self.brokers.values()))
        if broker.is_alive:
            broker.log.flush()
            self.note("broker {} flushes", broker.id)
            if broker.leads:
                self.advance(broker)

    def fetch(self):
        followers = [b for b in self.brokers.values() if self._leader_of(b)]
        if followers:
            follower = self.pick(followers)
            for _ in range(1 + self.choose(3)):
                self.follow(follower, self.choose(4))

    def fetch_all(self):
        """All followers catch up with their leaders."""
        for _ in range(3):
            for broker in self.brokers.values():
                if self._leader_of(broker):
                    self.follow(broker, 1000)

    def _leader_of(self, follower: Broker) -> Broker | None:
        if not follower.is_alive:
            return None
        leader = self.brokers.get(follower.view.leader)
        if leader is None or leader is follower or not leader.leads:
            return None
        return leader if leader.view.leader_epoch == follower.view.leader_epoch else None

    def follow(self, follower: Broker, count: int) -> None:
        leader = self._leader_of(follower)
        assert leader is not None
        log, theirs = follower.log, leader.log
        if follower.must_be_emptied:
            follower.must_be_emptied = False
            log.start_over(0)
            self.note("follower {} begins anew", follower.id)
        if self.fsync:
            log.flush()
        if follower.epoch < max(
            leader.known.get(follower.id, -1), leader.progress.get(follower.id, (-1,))[0]
        ):
            return
        offset, epoch = log.log_end_offset, log.latest_epoch
        answer = SimpleNamespace(diverging_epoch=None)
        partition = SimpleNamespace(
            log=theirs,
            end_offset_for_epoch=lambda epoch: Leader.end_offset_for_epoch(
                SimpleNamespace(_log=theirs, state=leader.view), epoch
            ),
        )
        target = SimpleNamespace(offset=offset, last_fetched_epoch=epoch)
        is_prefix = epoch == theirs.latest_epoch and offset <= theirs.log_end_offset
        what = (follower.id, leader.id, offset, epoch)
        try:
            parts_ways = ReplicaFetch._parts_ways
            if not is_prefix and epoch >= 0 and parts_ways(ReplicaFetch, partition, target, answer):
                self._truncate(follower, answer.diverging_epoch, what)
                return
            is_out_of_range = not theirs.log_start_offset <= offset <= theirs.log_end_offset
        except KafkaError:
            is_out_of_range = True
        if is_out_of_range:
            start = theirs.log_start_offset
            if start > offset or log.log_start_offset == offset:
                log.start_over(start)
                self.note(_FETCH + "out of range, starts at {}", *what, start)
            return
        first = max(log.log_start_offset, theirs.log_start_offset)
        mine, own = (
            log.records[first - log.base :],
            theirs.records[first - theirs.base : offset - theirs.base],
        )
        self.require(
            first >= offset or mine == own, "it accepts a fetch of {} from {} at {}, and they differ", *what
        )
        leader.progress[follower.id] = (follower.epoch, offset, log.stored_start)
        self.advance(leader)
        if leader.view.recovering or leader.view.last_known_elr:
            self._adopt_log_start(leader)
        records = theirs.records[offset - theirs.base :][:count]
        log.append(*records)
        log.high_watermark = max(log.high_watermark, min(theirs.high_watermark, log.log_end_offset))
        log.advance_start(min(theirs.log_start_offset, log.high_watermark))
        if self.choose(2):
            log.stored_start = log.log_start_offset
        self.note(_FETCH + "{} records, high watermark {}", *what, len(records), log.high_watermark)

    def _truncate(self, follower, diverging, what):
        log = follower.log
        before = log.latest_epoch, log.log_end_offset
        offset = Follower.offset_to_truncate_to(
            SimpleNamespace(_log=log), diverging.epoch, diverging.end_offset
        )
        log.truncate(offset)
        self.note(_FETCH + "{}, truncates to {}", *what, diverging, offset)
        self.require(
            before != (log.latest_epoch, log.log_end_offset), "follower {} cannot continue", follower.id
        )

    def _adopt_log_start(self, leader):
        last = set(leader.view.last_known_elr)
        starts = [
            s for b, (_, _, s) in leader.progress.items() if b in last and s <= leader.log.high_watermark
        ]
        leader.log.advance_start(max(starts, default=-1))

    def delete_records(self):
        leaders = self.leaders()
        if leaders:
            leader = self.pick(leaders)
            back = self.choose(4)
            offset = leader.log.high_watermark - back
            if offset > leader.log.log_start_offset:
                leader.log.advance_start(offset)
                leader.log.stored_start = offset
                self.note("leader {} deletes records before {}", leader.id, offset)

    def retain(self):
        broker = self.pick(list(self.brokers.values()))
        offset = broker.log.high_watermark - self.choose(4)
        if broker.is_alive and offset > broker.log.log_start_offset:
            broker.log.advance_start(offset, removes=True)
            self.note("broker {} removes records before {}", broker.id, offset)

    # --- steps of brokers ---

    def one_receives(self):
        """A broker receives the controller's latest decisions."""
        self.receive(self.pick(self.alive() or [None]))

    def all_receive(self):
        for broker in self.alive():
            self.receive(broker)

    def receive(self, broker):
        if broker is None or self.registered.get(broker.id) != broker.epoch:
            return
        before, broker.view = broker.view, self.state
        broker.known, broker.min_isr = dict(self.registered), self.min_isr
        if broker.view.leader == broker.id and (
            before.leader != broker.id or before.leader_epoch != broker.view.leader_epoch
        ):
            broker.progress = {}
            broker.epoch_start = broker.log.log_end_offset
            self.note("broker {} leads in epoch {}", broker.id, broker.view.leader_epoch)
        if broker.leads:
            self.advance(broker)

    def crash(self):
        broker = self.pick(list(self.brokers.values()))
        self.kill(broker)

    def cut_power(self):
        for broker in self.brokers.values():
            self.kill(broker)

    def kill(self, broker):
        if not broker.is_alive:
            return
        log = broker.log
        least = max(log.flushed, log.base)
        # most often all or nothing is lost
        end = (log.log_end_offset, log.log_end_offset, least)[self.choose(3)]
        if self.choose(4) == 3:
            end = least + self.choose(log.log_end_offset - least + 1)
        broker.is_alive = broker.is_clean = False
        self.dirty.add(broker.id)
        before = log.log_end_offset
        log.crash(end)
        broker.view = broker.view._replace(leader=-1)
        self.note("broker {} crashes, its log ended at {} and ends at {}", broker.id, before, end)

    def stop(self):
        broker = self.pick(list(self.brokers.values()))
        if broker.is_alive and self.registered.get(broker.id) == broker.epoch:
            self.note("broker {} stops cleanly", broker.id)
            self._settle(leaving={broker.id})
            broker.log.flush()
            broker.is_alive = False
            broker.view = broker.view._replace(leader=-1)
            self.end_session(broker)

    def fence(self):
        """The session of a broker ends, which may be alive."""
        self.end_session(self.pick(list(self.brokers.values())))

    def end_session(self, broker):
        if self.registered.pop(broker.id, None) is not None:
            self.note("the session of broker {} ends", broker.id)
            self._settle()

    def start(self):
        self.register(self.pick(list(self.brokers.values())))

    def start_all(self):
        for broker in self.brokers.values():
            self.register(broker)

    def lose_disk(self):
        broker = self.pick(list(self.brokers.values()))
        if not broker.is_alive and self.choose(4) == 0:
            broker.log = ModelLog()
            broker.is_incomplete = broker.must_be_emptied = True
            self.dirty.add(broker.id)
            self.note("broker {} loses its disk", broker.id)

    def register(self, broker):
        if self.registered.get(broker.id) == broker.epoch and broker.is_alive:
            return
        self.end_session(broker)
        self._clock += 1
        broker.epoch = self._clock
        is_unclean = not broker.is_clean
        broker.is_alive = broker.is_clean = True
        self.note("broker {} registers, unclean: {}", broker.id, is_unclean)
        self.registered[broker.id] = broker.epoch
        self._settle(unclean={broker.id} if is_unclean else set(), incomplete=broker.is_incomplete)
        self.dirty.discard(broker.id)
        self.admitted[broker.id] = broker.epoch
        self._settle()
        self.receive(broker)

    # --- steps of the controller ---

    def _running(self):
        return frozenset(n for n, epoch in self.registered.items() if self.admitted.get(n) == epoch)

    def _decide(self, state, text, *args):
        if state == self.state:
            return
        self.note(
            text + ": leader {} isr {} elr {} last {}",
            *args,
            state.leader,
            state.isr,
            state.elr,
            state.last_known_elr,
        )
        if state.leader != self.state.leader and state.leader >= 0 and state.leader not in self.dirty:
            leader = self.brokers[state.leader]
            kept = self.kept(leader.log)
            self.require(kept == len(self.committed), "leader {} has {} committed records", leader.id, kept)
        self.state = state._replace(partition_epoch=self.state.partition_epoch + 1)

    def _settle(self, *, leaving=frozenset(), unclean=frozenset(), incomplete=False):
        running = self._running() - leaving
        eligible = Eligibility(
            in_sync=running,
            electable=frozenset(self.registered) - leaving,
            leaving=frozenset(leaving),
            unclean=frozenset(unclean),
        )
        if incomplete:
            lacking = frozenset(
                n for n in self.registered if n not in running and self.brokers[n].is_incomplete
            )
            eligible = eligible.without(lacking)
        self._decide(settle(self.state, self.min_isr, eligible), "controller settles")

    def elect(self):
        """Elect the longest log, if an election is possible now. Some answers may be missing."""
        complete = frozenset(n for n in self._running() if not self.brokers[n].is_incomplete)
        asked = candidates(self.state, complete)
        logs = self._logs(asked, self.state.last_known_elr)
        if not logs or not logs.keys() >= set(self.state.last_known_elr):
            return
        leader = replica_logs.choose_leader(self.state, logs)
        kept = {n: self.kept(self.brokers[n].log) for n in last_in_sync(self.state) or logs}
        self.require(self._has_all(leader, kept), _ELECTED, leader, kept, len(self.committed), logs)
        own = self.kept(self.brokers[leader].log)
        self.elected += 1
        self.lose(own)
        self._decide(elect_longest_log(self.state, leader, self.min_isr), "elects {} of {}", leader, logs)

    def elect_as_requested(self):
        """`topics elect --unclean`, or unclean.leader.election.enable: the replicas that run are enough."""
        if self.choose(4) or self.leaders():
            return  # a user requests no unclean election while a former leader runs
        asked = candidates(self.state, self._running(), is_unclean_allowed=True)
        logs = self._logs(asked, ())
        if not logs:
            return
        lacking = {n for n in logs if self.brokers[n].is_incomplete}
        order = sorted(last_in_sync_first(self.state, logs), key=lambda n: n in lacking)
        leader = replica_logs.choose_leader(self.state, {n: logs[n] for n in order})
        self.elected += 1
        last = last_in_sync(self.state).intersection(logs) - lacking
        kept = {n: self.kept(self.brokers[n].log) for n in last}
        is_kept = bool(lacking) or self._has_all(leader, kept)
        self.require(is_kept, _ELECTED, leader, kept, len(self.committed), logs)
        own = self.kept(self.brokers[leader].log)
        self.lose(own)
        self._decide(elect_uncleanly(self.state, leader), "elects {} of {} as requested", leader, logs)
        self.unclean_epoch = self.state.leader_epoch

    def _logs(self, asked, needed):
        """The answers of `asked`; some of those that are not needed may be missing."""
        logs = {}
        for number in asked:
            broker = self.brokers[number]
            if not broker.is_alive or (number not in needed and self.choose(8) == 7):
                continue
            log = broker.log
            starts = tuple(
                (each.epoch, each.start_offset) for each in log.epochs.entries[-self.told_epochs :]
            )
            logs[number] = replica_logs.ReplicaLog(LogEnd(log.latest_epoch, log.log_end_offset), starts)
        return logs

    def prefer(self):
        state = elect_preferred(self.state, self._running())
        if state is not None:
            self._decide(state, "preferred election")

    def expand(self):
        """The leader proposes all followers that may join the ISR (`InSyncReplicas._may_join`)."""
        for leader in self.leaders():
            if leader.view != self.state:
                continue
            log = leader.log
            joining = [
                n
                for n, (epoch, end, start) in leader.progress.items()
                if n not in leader.view.isr
                and end >= max(log.high_watermark, leader.epoch_start)
                and leader.known.get(n) == epoch == self.registered.get(n) == self.admitted.get(n)
                and start >= log.log_start_offset
            ]
            if joining or self.state.recovering:
                isr = (*self.state.isr, *joining)
                self._decide(alter_isr(self.state, isr, self.min_isr), "leader {} expands", leader.id)
                for number in joining:
                    self.brokers[number].is_incomplete = False
                self._answer(leader)

    def shrink(self):
        for leader in self.leaders():
            if leader.view == self.state and len(self.state.isr) > 1:
                out = self.pick([n for n in self.state.isr if n != leader.id])
                isr = tuple(n for n in self.state.isr if n != out)
                self._decide(alter_isr(self.state, isr, self.min_isr), "leader {} shrinks", leader.id)
                self._answer(leader)

    def _answer(self, leader):
        """The answer to AlterPartition. It can be earlier than the image, which tells of the settings."""
        leader.view = self.state
        self.advance(leader)

    def set_min_isr(self):
        """Change min.insync.replicas. Before a lower value applies, the controller stores what it empties."""
        before, self.min_isr = self.min_isr, 1 + self.choose(3)
        if self.min_isr < before:
            self._settle()
        self.note("min.isr is {}", self.min_isr)

    def leave(self):
        broker = self.pick(list(self.brokers.values()))
        if broker.is_alive and broker.id in self.state.isr and broker.id in self._running():
            state = leave_isr(self.state, broker.id, self.min_isr, self._running())
            if state is not None:
                self._decide(state, "broker {} leaves", broker.id)


def _recover(model: Elections) -> None:
    """Start all brokers, and elect a leader if that is possible."""
    model.start_all()
    model.elect()
    model.all_receive()


def _catch_up(model: Elections) -> None:
    model.all_receive()
    model.fetch_all()
    model.expand()


def _take_over(model: Elections) -> None:
    """The leader's session ends, and another one leads, before the first one receives it."""
    leader = model.brokers.get(model.state.leader)
    if leader is not None:
        model.end_session(leader)
        now = model.brokers.get(model.state.leader)
        if now is not None and now.is_alive:
            model.receive(now)


def _nothing(model: Elections) -> None:
    """A step without effect, to which a shorter program can turn any other."""


_WEIGHTS: dict[Callable[[Elections], None], int] = {
    _nothing: 1,
    Elections.append: 14,
    Elections.fetch: 14,
    Elections.fetch_all: 4,
    Elections.flush: 4,
    Elections.one_receives: 8,
    Elections.all_receive: 4,
    Elections.crash: 5,
    Elections.cut_power: 3,
    Elections.stop: 2,
    Elections.fence: 5,
    Elections.start: 8,
    Elections.start_all: 3,
    Elections.lose_disk: 1,
    Elections.elect: 6,
    Elections.elect_as_requested: 1,
    Elections.prefer: 2,
    Elections.expand: 5,
    Elections.shrink: 2,
    Elections.leave: 1,
    Elections.set_min_isr: 1,
    Elections.delete_records: 2,
    Elections.retain: 2,
    _recover: 5,
    _catch_up: 5,
    _take_over: 6,
}
_STEPS = [step for step, weight in _WEIGHTS.items() for _ in range(weight)]
