"""The history as the checks read it: sends, transactions, readers' sessions, commits, and the contents of the
logs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from soak.checker.deliveries import ShareHistory, ShareReader
from soak.history import Event

Place: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
NEVER = 2**63


#: the offset of a group that has none: members begin at the log's start
NOTHING_COMMITTED = 0


class Outcome(Enum):
    OK = "ok"
    #: it certainly did not happen
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Process:
    """One process of a client, and its description of itself."""

    name: str
    client: str = ""
    role: str = ""
    group: str = ""
    isolation: str = READ_UNCOMMITTED
    idempotent: bool = True
    transactional_id: str = ""
    transaction_timeout: int = NEVER
    """In nanoseconds."""
    began: int = 0
    """When, in nanoseconds."""

    @property
    def client_name(self) -> str:
        """Return the name that all successive processes of a client share, for example "produce-1" for
        "produce-1.3".
        """
        return self.name.rpartition(".")[0] or self.name


@dataclass(slots=True)
class Send:
    """One record that a client sends. A time is NEVER if the step did not happen."""

    id: str
    process: Process
    place: Place
    key: str
    at: int
    transaction: Transaction | None = None
    source: tuple[Place, int] | None = None
    done: int = NEVER
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1
    tombstone: bool = False
    #: whether a broker that still had the deleted topic of this name can have stored it there
    is_former: bool = False
    #: whether a broker may still get a copy that names the topic without its id
    is_on_its_way: bool = False


@dataclass(slots=True)
class Init:
    """A client's InitProducerId: the times of the call and of its return. The second is NEVER if it did not
    return.
    """

    at: int
    done: int = NEVER


@dataclass(slots=True)
class Transaction:
    process: Process
    number: int
    begun: int
    sends: list[Send] = field(default_factory=list)
    #: when commit or abort was first called for
    ending: int = NEVER
    #: when commit was called for
    committing: int = NEVER
    #: when abort was called for
    aborting: int = NEVER
    #: when the last call came back, well or not
    returned: int = NEVER
    #: OK: committed; FAILED: aborted, or never to be committed; UNKNOWN: commit was called for
    outcome: Outcome = Outcome.FAILED
    ended: int = NEVER


class Read(NamedTuple):
    """A record that a consumer received."""

    offset: int
    id: str
    at: int


@dataclass(slots=True)
class Session:
    """One consumer's reading of one partition, from an assignment or a seek on."""

    process: Process
    place: Place
    began: int
    #: where a seek put it; None: where its group had committed
    start: int | None = None
    reads: list[Read] = field(default_factory=list)


@dataclass(slots=True)
class Commit:
    """A group's commit of an offset for a partition."""

    process: Process
    place: Place
    offset: int
    at: int
    transaction: Transaction | None = None
    known: Outcome = Outcome.UNKNOWN
    finished: int = NEVER

    @property
    def outcome(self) -> Outcome:
        return self.known if self.transaction is None else self.transaction.outcome

    @property
    def done(self) -> int:
        return self.finished if self.transaction is None else self.transaction.ended


@dataclass(slots=True)
class Creation:
    """A creation of a topic, or the discovery that the topic existed already."""

    topic: str
    at: int
    done: int = NEVER
    topic_id: str | None = None


@dataclass(slots=True)
class Removal:
    """A deletion of a topic. `done` is NEVER while the outcome is unknown."""

    topic: str
    at: int
    done: int = NEVER
    #: whether the topic was there, or may have been removed by an earlier call of the same removal
    existed: bool = True


@dataclass(slots=True)
class Deletion:
    """A DeleteRecords call: requests the deletion of all records before `offset`."""

    place: Place
    offset: int
    at: int
    done: int = NEVER


@dataclass(slots=True)
class Bounds:
    """The log start and the high watermark of a log, as a client saw them between two times."""

    place: Place
    asked: int
    noted: int
    start: int
    end: int


@dataclass(slots=True)
class Scan:
    """All records that a reader found in a partition after the time `asked`."""

    place: Place
    asked: int
    noted: int
    ids: set[str]


@dataclass(frozen=True)
class Retention:
    """The retention of a topic by age (milliseconds) and by size (bytes). None means no limit."""

    ms: int | None = None
    bytes: int | None = None


class Log:
    """The records of a partition that one isolation level shows at the end of the soak.

    Args:
        is_compacted_apart: whether each replica compacts its log at a different time. A reader of another
            replica may then miss a record with a later value for its key, or a tombstone.
    """

    def __init__(
        self,
        start: int,
        end: int,
        records: Sequence[tuple[int, str, str | None]],
        *,
        is_compacted_apart: bool = False,
    ) -> None:
        self.start = start
        self.end = end
        self.is_compacted_apart = is_compacted_apart
        self.records: dict[int, str] = {}
        self.places: dict[str, list[int]] = {}
        #: the offset of the last record of each key
        self.latest: dict[str | None, int] = {}
        for offset, identity, key in records:
            self.records[offset] = identity
            self.places.setdefault(identity, []).append(offset)
            self.latest[key] = max(offset, self.latest.get(key, -1))
        self._offsets = sorted(
            offset
            for offset, _, key in records
            if not is_compacted_apart or key is None or offset == self.latest[key]
        )

    def between(self, low: int, high: int) -> list[int]:
        """Return the offsets of records that a reader must receive, from `low` to `high` (exclusive)."""
        return self._offsets[bisect_left(self._offsets, low) : bisect_left(self._offsets, high)]


class History:
    """The events of all processes together. An event that contradicts the format raises KeyError."""

    def __init__(self, histories: Iterable[Iterable[Event]]) -> None:
        self.processes: dict[str, Process] = {}
        self.sends: dict[str, Send] = {}
        self.transactions: list[Transaction] = []
        #: the transactions of each transactional id for which abort was called
        self.aborted: dict[str, list[Transaction]] = {}
        self.inits: dict[str, list[Init]] = {}
        self.sessions: list[Session] = []
        self.commits: dict[tuple[str, Place], list[Commit]] = {}
        self.logs: dict[tuple[Place, str], Log] = {}
        #: those that could not be read to their end
        self.unreadable: list[tuple[Place, str]] = []
        self.group_offsets: dict[str, dict[Place, int]] = {}
        self.compacted: set[str] = set()
        #: those of them that have several replicas
        self.compacted_apart: set[str] = set()
        self.retention: dict[str, Retention] = {}
        self.creations: list[Creation] = []
        self.removals: dict[str, list[Removal]] = {}
        self.deletions: dict[Place, list[Deletion]] = {}
        self.bounds: dict[Place, list[Bounds]] = {}
        self.scans: list[Scan] = []
        #: the tombstones of each key in a partition
        self.tombstones: dict[tuple[Place, str], list[Send]] = {}
        #: when the logs were read at the end
        self.surveyed = NEVER
        self.faults: list[Event] = []
        self.calm = NEVER
        self.shares = ShareHistory()
        #: clients that waited for ever, with what they noted of it
        self.gave_up: list[tuple[Process, Event]] = []
        self.stopped: dict[str, int] = {}
        for events in histories:
            _Reader(self).read(events)

        self._settle_removals()

    def log(self, place: Place, isolation: str) -> Log | None:
        return self.logs.get((place, isolation))

    def may_be_deleted_to(self, place: Place) -> int:
        """Return the highest offset in a DeleteRecords, also in one that failed; 0 if there was none.

        A leader deletes records before its followers do. If it fails first, the next leader has them again. A
        share group does not go back to them.
        """
        return max((deletion.offset for deletion in self.deletions.get(place, ())), default=0)

    def may_be_removed(self, topic: str, since: int) -> bool:
        """Return whether a deletion of the topic can have taken effect after `since`."""
        return any(removal.done > since for removal in self.removals.get(topic, ()))

    def _settle_removals(self) -> None:
        """Decide deletions of unknown outcome: once a later deletion succeeded, an earlier one has no more
        effect.
        """
        for removals in self.removals.values():
            for removal in removals:
                if removal.done == NEVER:
                    removal.done = min(
                        (other.done for other in removals if other.at > removal.at), default=NEVER
                    )

    def places(self) -> list[Place]:
        return sorted({place for place, _ in self.logs})


class _Reader:
    """Reads the events of one process into a history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._who = Process("")
        self._init_under_way = Init(NEVER)
        self._transactions: dict[int, Transaction] = {}
        self._sessions: dict[Place, Session] = {}
        self._commits: dict[int, list[Commit]] = {}
        #: of the latest deletion of a group's offsets
        self._forgotten: list[Commit] = []
        self._deletions: dict[int, list[Deletion]] = {}
        self._creation = Creation("", NEVER)
        self._removal = Removal("", NEVER)
        self._shares = ShareReader(history.shares)

    def read(self, events: Iterable[Event]) -> None:
        for event in events:
            getattr(self, "_" + event["what"])(event)

    def _process(self, event: Event) -> None:
        known = {name: event[name] for name in Process.__slots__ if name in event}
        self._who = self._history.processes[event["name"]] = Process(**known, began=event["at"])

    def _send(self, event: Event) -> None:
        transaction = self._transactions.get(event["txn"]) if event.get("txn") is not None else None
        source = event.get("source")
        send = Send(
            event["id"],
            self._who,
            _place(event["to"]),
            event["key"],
            event["at"],
            transaction,
            (_place(source), source[2]) if source else None,
            tombstone=event.get("tombstone", False),
        )
        if send.tombstone:
            self._history.tombstones.setdefault((send.place, send.key), []).append(send)
        if transaction is not None:
            transaction.sends.append(send)
        self._history.sends[send.id] = send

    def _ack(self, event: Event) -> None:
        send = self._history.sends[event["id"]]
        send.outcome, send.done, send.offset = Outcome.OK, event["at"], event["offset"]

    def _nack(self, event: Event) -> None:
        send = self._history.sends[event["id"]]
        send.done = event["at"]
        send.outcome = Outcome.UNKNOWN if event["unknown"] else Outcome.FAILED

    def _former(self, event: Event) -> None:
        self._history.sends[event["id"]].is_former = True

    def _on_its_way(self, event: Event) -> None:
        self._history.sends[event["id"]].is_on_its_way = True

    def _init(self, event: Event) -> None:
        self._init_under_way = Init(event["at"])
        self._history.inits.setdefault(self._who.transactional_id, []).append(self._init_under_way)

    def _inited(self, event: Event) -> None:
        self._init_under_way.done = event["at"]

    def _begin(self, event: Event) -> None:
        transaction = Transaction(self._who, event["txn"], event["at"])
        self._transactions[event["txn"]] = transaction
        self._history.transactions.append(transaction)

    def _offsets(self, event: Event) -> None:
        transaction = self._transactions[event["txn"]]
        for place, offset in _offsets(event):
            self._add(event["group"], Commit(self._who, place, offset, event["at"], transaction))

    def _end(self, event: Event) -> None:
        transaction = self._transactions[event["txn"]]
        transaction.ending = min(transaction.ending, event["at"])
        if event["commit"]:
            transaction.committing = event["at"]
            transaction.outcome = Outcome.UNKNOWN
        else:
            transaction.aborting = min(transaction.aborting, event["at"])
            self._history.aborted.setdefault(self._who.transactional_id, []).append(transaction)

    def _ended(self, event: Event) -> None:
        transaction = self._transactions[event["txn"]]
        transaction.returned = event["at"]
        if event["ok"]:
            transaction.ended = event["at"]
            transaction.outcome = Outcome.OK if event["commit"] else Outcome.FAILED

    def _assigned(self, event: Event) -> None:
        for part in event["partitions"]:
            self._open(Session(self._who, _place(part), event["at"]))

    def _revoked(self, event: Event) -> None:
        for part in event["partitions"]:
            self._sessions.pop(_place(part), None)

    def _seek(self, event: Event) -> None:
        for place, offset in _offsets(event):
            self._open(Session(self._who, place, event["at"], offset))

    def _poll(self, event: Event) -> None:
        for topic, partition, offset, identity in event["records"]:
            session = self._sessions.get((topic, partition))
            if session is None:  # given to a consumer that has just lost the partition
                session = self._open(Session(self._who, (topic, partition), event["at"], offset))
            session.reads.append(Read(offset, identity, event["at"]))

    def _commit(self, event: Event) -> None:
        made = [Commit(self._who, place, offset, event["at"]) for place, offset in _offsets(event)]
        self._commits[event["number"]] = made
        for commit in made:
            self._add(self._who.group, commit)

    def _committed(self, event: Event) -> None:
        if event["ok"]:
            for commit in self._commits[event["number"]]:
                commit.known, commit.finished = Outcome.OK, event["at"]

    def _forget(self, event: Event) -> None:
        """Read a deletion of offsets, or of the group with its offsets: like a commit of offset 0."""
        self._forgotten = [
            Commit(self._who, (topic, number), NOTHING_COMMITTED, event["at"])
            for topic, count in event["topics"].items()
            for number in range(count)
        ]
        for commit in self._forgotten:
            self._add(self._who.group, commit)

    def _forgot(self, event: Event) -> None:
        for commit in self._forgotten:
            commit.known = Outcome.OK if event["ok"] else Outcome.FAILED
            commit.finished = event["at"]

    def _fault(self, event: Event) -> None:
        self._history.faults.append(event)

    def _stopped(self, event: Event) -> None:
        self._history.stopped[event["target"]] = event["at"]

    def _gave_up(self, event: Event) -> None:
        self._history.gave_up.append((self._who, event))

    def _calm(self, event: Event) -> None:
        self._history.calm = event["at"]

    def _log(self, event: Event) -> None:
        place = (event["topic"], event["partition"])
        self._history.surveyed = min(self._history.surveyed, event["at"])
        if not event.get("is_whole", True):
            self._history.unreadable.append((place, event["isolation"]))
        self._history.logs[place, event["isolation"]] = Log(
            event["start"],
            event["end"],
            event["records"],
            is_compacted_apart=place[0] in self._history.compacted_apart,
        )

    def _group(self, event: Event) -> None:
        self._history.group_offsets[event["group"]] = dict(_offsets(event))

    def _topic(self, event: Event) -> None:
        if event["compacted"]:
            self._history.compacted.add(event["name"])
            if event.get("replicas", 1) > 1:
                self._history.compacted_apart.add(event["name"])
        retention = Retention(event.get("retention_ms"), event.get("retention_bytes"))
        self._history.retention[event["name"]] = retention

    def _create(self, event: Event) -> None:
        self._creation = Creation(event["topic"], event["at"])
        self._history.creations.append(self._creation)

    def _created(self, event: Event) -> None:
        if event["ok"]:
            self._creation.done, self._creation.topic_id = event["at"], event["topic_id"]

    def _remove(self, event: Event) -> None:
        self._removal = Removal(event["topic"], event["at"])
        self._history.removals.setdefault(event["topic"], []).append(self._removal)

    def _removed(self, event: Event) -> None:
        if event["ok"]:
            self._removal.done, self._removal.existed = event["at"], event["existed"]

    def _delete(self, event: Event) -> None:
        made = [Deletion(place, offset, event["at"]) for place, offset in _offsets(event)]
        self._deletions[event["number"]] = made
        for deletion in made:
            self._history.deletions.setdefault(deletion.place, []).append(deletion)

    def _deleted(self, event: Event) -> None:
        if event["ok"]:
            for deletion in self._deletions[event["number"]]:
                deletion.done = event["at"]

    def _bounds(self, event: Event) -> None:
        for topic, partition, start, end in event["bounds"]:
            place = (topic, partition)
            noted = Bounds(place, event["asked"], event["at"], start, end)
            self._history.bounds.setdefault(place, []).append(noted)

    def _scan(self, event: Event) -> None:
        ids = {identity for _, identity, _ in event["records"]}
        place = (event["topic"], event["partition"])
        self._history.scans.append(Scan(place, event["asked"], event["at"], ids))

    def _share_request(self, event: Event) -> None:
        self._shares.request(self._who, event)

    def _acquired(self, event: Event) -> None:
        self._shares.acquired(event)

    def _acknowledged(self, event: Event) -> None:
        self._shares.acknowledged(event)

    def _share_settings(self, event: Event) -> None:
        self._shares.settings(event)

    def _share_offsets(self, event: Event) -> None:
        self._shares.offsets(event)

    def _letters(self, event: Event) -> None:
        self._shares.letters(event)

    def _open(self, session: Session) -> Session:
        self._sessions[session.place] = session
        self._history.sessions.append(session)
        return session

    def _add(self, group: str, commit: Commit) -> None:
        self._history.commits.setdefault((group, commit.place), []).append(commit)


def _place(value: list[Any]) -> Place:
    return value[0], value[1]


def _offsets(event: Event) -> list[tuple[Place, int]]:
    return [((topic, partition), offset) for topic, partition, offset in event["offsets"]]
