"""Objects that all clients of a simulation share."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from simulation.connection import Segment
from simulation.network import SimulatedNetwork

from soak.history import Event, Recorder

PORT = 9092
NS = 1_000_000_000
#: the topic that is deleted and made again
RECYCLED = "recycled"
#: a dead-letter queue of share groups, and one that a broker creates when it has the first dead letter
LETTERS, MADE_LETTERS = "dlq.letters", "dlq.made"
#: the topics of which records are deleted, aged or compacted
SHRINKING = frozenset({"aged", "pruned", "latest"})
#: of a partition, where there are so many brokers
REPLICAS = 3
#: the folders of a broker's disk
FOLDERS = ("/data1", "/data2")
#: by how much the clock of a broker is wrong, at most, in milliseconds
SKEW_MS = 200


def host_of(broker_id: int) -> str:
    """Return the name of a broker's host. Each broker has its own."""
    return f"broker-{broker_id}"


def rack_of(broker_id: int) -> str:
    """Return the rack of a broker. There are three racks."""
    return f"rack-{broker_id % 3}"


def _nobody(random: Random) -> None:
    """Delay no broker. The default of `Stage.hold_back`."""


class Lead(NamedTuple):
    """The id of a partition's topic, and the partition's leader and leader epoch."""

    topic_id: bytes
    leader: int
    leader_epoch: int


class Trace:
    """A running hash of all events. Two equal runs of a seed have the same hash."""

    def __init__(self, *, keep: bool = False, is_off: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        #: whether the trace is left out, because no other run is compared with this one
        self.is_off = is_off
        #: the lines themselves, where they are wanted
        self.lines: list[str] | None = [] if keep else None

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def note(self, line: str) -> None:
        if self.is_off:
            return
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def segment(self, source: str, target: str, segment: Segment) -> None:
        """Add a segment that has arrived through the network."""
        now = asyncio.get_running_loop().time()
        if isinstance(segment, bytes):
            digest = hashlib.blake2b(segment, digest_size=6).hexdigest()
            self.note(f"{now:.6f} {source}>{target} {len(segment)} {digest}")
        else:
            self.note(f"{now:.6f} {source}>{target} {segment.value}")


class MemoryRecorder(Recorder):
    """Keeps the history of one process in memory."""

    def __init__(self, stage: Stage, **about: Any) -> None:
        self._stage = stage
        self.events: list[Event] = []
        stage.histories.append(self.events)
        self.note("process", **about)

    def note(self, what: str, **fields: Any) -> None:
        at = self._stage.now()
        self.events.append({"what": what, "at": at, **fields})
        if not self._stage.trace.is_off:
            self._stage.trace.note(f"{what} {at} {fields}")


@dataclass(frozen=True)
class Violation:
    """A violation that the simulation has found, in addition to the checker's findings."""

    kind: str
    text: str
    at: float


class Stage:
    """The common environment of one simulation.

    Args:
        seed: determines all random choices.
        trace: the hash to which each event is added.
        brokers: the number of brokers. Their ids begin with 1.
        is_unclean: whether a client requests unclean elections, which can lose committed records.
    """

    def __init__(self, seed: int, trace: Trace, brokers: int = 1, *, is_unclean: bool = False) -> None:
        self.seed = seed
        self.is_unclean = is_unclean
        self.trace = trace
        self.broker_ids = tuple(range(1, brokers + 1))
        self.network = SimulatedNetwork(self.random("network"), observe=self._observe)
        #: by client: how many of its requests get no answer, since its connections are reset first
        self.losing: dict[str, int] = {}
        self.histories: list[list[Event]] = []
        self.violations: list[Violation] = []
        #: has some brokers hear late, and at once, of what the cluster agrees on; while there are faults
        self.hold_back: Callable[[Random], None] = _nobody
        #: what the cluster has decided of a partition, and what one of the brokers knows of that
        self.decided: Callable[[str, int], Lead | None] = lambda topic, partition: None
        self.known_by: Callable[[int, str, int], Lead | None] = lambda broker_id, topic, partition: None
        #: the leader of a partition in a leader epoch, by the topic's id; -1 if the cluster never decided it.
        #: A lone broker decides nothing
        self.leader_in: Callable[[bytes, int, int], int] | None = None
        #: a name for a broker's leadership of a partition; None where another broker leads by what is decided
        self.lease: Callable[[int, str, int], str | None] = lambda broker_id, topic, partition: None
        #: whether the faults are over, and the clients need not come to an end yet
        self.is_calm = False
        #: whether brokers, disks or networks may fail now
        self.has_faults = True
        #: of the simulation itself, which is no process
        self.context = copy_context()
        self._last = 0
        self._loop = asyncio.get_running_loop()

    @property
    def replicas(self) -> int:
        """The number of replicas of each partition."""
        return min(len(self.broker_ids), REPLICAS)

    def _observe(self, source: str, target: str, segment: Segment) -> None:
        if not self.trace.is_off:
            self.trace.segment(source, target, segment)
        if self.losing and isinstance(segment, bytes) and self.losing.get(source):
            self.losing[source] -= 1
            self._loop.call_soon(self.network.reset, source, target)

    def random(self, name: str) -> Random:
        """Return a source of random numbers for this name. It does not affect the numbers of other names."""
        return Random(f"{self.seed} {name}")

    def now(self) -> int:
        """Return the virtual time in nanoseconds, larger at each call."""
        self._last = max(self._last + 1, round(self._loop.time() * NS))
        return self._last

    def leads(self, broker_id: int, topic: str, partition: int) -> bool:
        """Return whether a broker leads a partition, as far as this broker can know.

        A former leader leads until it knows that another broker replaced it, as in Apache Kafka. It returns
        records that were committed before, and none that were committed later.
        """
        decided = self.decided(topic, partition)
        return self.known_by(broker_id, topic, partition) == decided and (
            decided is None or decided.leader == broker_id
        )

    def complain(self, kind: str, text: str) -> None:
        """Report a violation that no client's history shows."""
        self.trace.note(f"violation {kind} {text}")
        self.violations.append(Violation(kind, text, self._loop.time()))
