"""Code that the clients of a soak share: their task, the stop signal, and their records."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from soak import witness
from soak.history import Recorder

Place: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Place, int]

#: how many of the records to a topic with tombstones are tombstones
TOMBSTONES = 0.1
#: after so many records the oldest key goes out of use, and a new one comes: its last value must stay
DRIFT = 40
#: the header with a record's id, where it has no value
ID = "id"
#: how long a client waits for an answer before it calls the outcome unknown
SECONDS = 20.0
SESSION_MS = 6000


@dataclass(frozen=True)
class Task:
    """The task of one client. It reads or writes `topics`; a loop writes to `outputs`."""

    name: str
    role: str
    client: str
    bootstrap: str
    history: str
    seed: int
    topics: dict[str, int]
    """Each topic's number of partitions."""
    outputs: dict[str, int] = field(default_factory=dict)
    group: str = ""
    isolation: str = "read_committed"
    protocol: str = "classic"
    assignor: str = ""
    """Of the classic protocol, where it is not the library's own choice."""
    transactional_id: str = ""
    transaction_timeout_ms: int = 10_000
    pause: float = 0.01
    """Seconds between two records, or two transactions."""
    keys: int = 40
    """How many different ones the records have at a time."""
    tombstones: list[str] = field(default_factory=list)
    """The topics that are given tombstones, too."""
    batch: int = 0
    """Records that a batch may have; 0: the library's own choice."""
    workers: int = 0
    """Number of members of the share group that the process runs."""
    is_alone: bool = False
    """Whether the broker is no member of a cluster."""
    configs: dict[str, str] = field(default_factory=dict)
    """Of the topics that the client creates."""

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Task:
        return cls(**json.loads(text))

    def recorder(self) -> Recorder:
        return Recorder(
            Path(self.history),
            name=self.name,
            role=self.role,
            client=self.client,
            group=self.group,
            isolation=self.isolation,
            transactional_id=self.transactional_id,
            transaction_timeout=self.transaction_timeout_ms * 1_000_000,
        )


class Stop:
    """A flag that SIGTERM sets. The client then finishes its current work and ends."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the soak, which then tells us

    def _ask(self, *_: Any) -> None:
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked


@dataclass(frozen=True)
class Draft:
    """A record to send. Its value is its id, so that a reader can identify it. The id of a tombstone is in
    its header `ID`.
    """

    id: str
    place: Place
    key: str
    tombstone: bool = False

    @property
    def value(self) -> bytes | None:
        return None if self.tombstone else self.id.encode()

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return [(ID, self.id.encode())] if self.tombstone else []


class Writer:
    """Records sends and their outcomes in the history. Every client sends a key to the same partition."""

    def __init__(self, task: Task, recorder: Recorder) -> None:
        self.random = random.Random(f"{task.seed} {task.name}")
        self._task = task
        self._recorder = recorder
        self._sent = 0
        #: monotonic time of the last outcome of a record, in seconds
        self.heard_at = time.monotonic()

    def draft(
        self, topics: dict[str, int], txn: int | None = None, source: tuple[Place, int] | None = None
    ) -> Draft:
        """Create a record, and note in the history that the client will send it."""
        self._sent += 1
        topic = self.random.choice(list(topics))
        number = self._sent // DRIFT + self.random.randrange(self._task.keys)
        tombstone = topic in self._task.tombstones and self.random.random() < TOMBSTONES
        place = (topic, number % topics[topic])
        draft = Draft(f"{self._task.name}:{self._sent}", place, f"k{number}", tombstone)
        came_from = [*source[0], source[1]] if source else None
        more = {"tombstone": True} if tombstone else {}
        self._recorder.note(
            "send", id=draft.id, to=draft.place, key=draft.key, txn=txn, source=came_from, **more
        )
        return draft

    def acknowledged(self, draft_id: str, offset: int | None) -> None:
        self.heard_at = time.monotonic()
        self._recorder.note("ack", id=draft_id, offset=-1 if offset is None or offset < 0 else offset)

    def failed(self, draft_id: str, error: object, *, unknown: bool = True) -> None:
        self.heard_at = time.monotonic()
        self._recorder.note("nack", id=draft_id, error=str(error), unknown=unknown)

    def to_former_topic(self, draft_id: str) -> None:
        """Note that the broker to which the record is sent still has the deleted topic of this name."""
        self._recorder.note("former", id=draft_id)

    def on_its_way(self, draft_id: str) -> None:
        """Note that a broker may still get a copy of the record, from a request that has no answer.

        If the request has no topic ids (before version 13 of Produce), the broker stores the copy in the
        topic that has this name by then.
        """
        self._recorder.note("on_its_way", id=draft_id)

    def gave_up(self, why: str, seconds: float, **cause: Any) -> None:
        """Note that this client waits forever, with the broker's state at this time. The state shows who
        causes the wait. `cause` has further fields of the history.
        """
        said = witness.ask(self._task.bootstrap, self._task.transactional_id)
        self._recorder.note("gave_up", why=why, seconds=seconds, **said, **cause)


class Transactions:
    """Notes the steps of one producer's transactions, with their numbers."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.number = 0

    def begin(self) -> int:
        self.number += 1
        self._recorder.note("begin", txn=self.number)
        return self.number

    def offsets(self, group: str, offsets: Offsets) -> None:
        self._recorder.note("offsets", txn=self.number, group=group, offsets=flat(offsets))

    def end(self, *, commit: bool) -> None:
        self._recorder.note("end", txn=self.number, commit=commit)

    def ended(self, *, commit: bool, error: object = None) -> None:
        said = None if error is None else str(error)
        self._recorder.note("ended", txn=self.number, commit=commit, ok=error is None, error=said)


class Reader:
    """Notes the records that a consumer receives and the offsets that it commits."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._commits = 0
        #: the offset after the last record of each partition that was read and not yet committed
        self.done: Offsets = {}
        #: the records that are up to there
        self.inputs: list[tuple[Place, int]] = []

    def assigned(self, places: Iterable[Place]) -> None:
        self._recorder.note("assigned", partitions=list(places))

    def revoked(self, places: Iterable[Place]) -> None:
        gone = dict.fromkeys(places)
        self._recorder.note("revoked", partitions=list(gone))
        self.done = {place: offset for place, offset in self.done.items() if place not in gone}
        self.inputs = [(place, offset) for place, offset in self.inputs if place not in gone]

    def moved(self, offsets: Offsets) -> None:
        self._recorder.note("seek", offsets=flat(offsets))
        self.taken()

    def read(self, records: list[tuple[str, int, int, str]]) -> None:
        if not records:
            return
        self._recorder.note("poll", records=records)
        for topic, partition, offset, _ in records:
            self.done[topic, partition] = offset + 1
            self.inputs.append(((topic, partition), offset))

    def taken(self) -> Offsets:
        """Return the offsets to commit for all records read so far."""
        offsets, self.done, self.inputs = self.done, {}, []
        return offsets

    def commit(self, offsets: Offsets) -> None:
        self._commits += 1
        self._recorder.note("commit", number=self._commits, offsets=flat(offsets))

    def committed(self, error: object = None) -> None:
        said = None if error is None else str(error)
        self._recorder.note("committed", number=self._commits, ok=error is None, error=said)

    def not_committed(self, offsets: Offsets, error: object, owned: Iterable[Place]) -> None:
        """Keep offsets whose commit failed for the next commit, if the member still owns their partitions."""
        self.committed(error)
        places = dict.fromkeys(owned)
        self.done = {place: offset for place, offset in offsets.items() if place in places} | self.done


def identity(value: bytes | None, headers: Iterable[tuple[str, bytes]] | None) -> str:
    """Return the id of a record with this value and these headers; empty if the record has none."""
    return (dict(headers or ()).get(ID, b"") if value is None else value).decode()


def flat(offsets: Offsets) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for (topic, partition), offset in offsets.items()]
