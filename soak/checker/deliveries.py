"""Events of share groups in a history: records delivered to members, and their acknowledgements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from soak.history import Event

if TYPE_CHECKING:
    from soak.checker.model import Place, Process

NEVER = 2**63
#: acknowledgement types (KIP-932, KIP-1222)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
#: those after which a record is not delivered again
FINAL = frozenset({ACCEPT, REJECT})
#: errors of acknowledgements that have no effect. After other errors, a former leader may have stored them
_WITHOUT_EFFECT = frozenset(
    {"INVALID_RECORD_STATE", "INVALID_REQUEST", "INVALID_SHARE_SESSION_EPOCH", "SHARE_SESSION_NOT_FOUND"}
)

ShareRecord: TypeAlias = tuple[str, "Place", int]
"""A share group, a partition and an offset."""


@dataclass(slots=True)
class ShareRequest:
    """A request in a share session."""

    process: Process
    #: name of the session; all requests of a session have the same
    session: str
    at: int
    #: when the response arrived; NEVER without a response, or if the response says that the session has ended
    answered: int = NEVER


@dataclass(slots=True)
class Verdict:
    """A member's acknowledgement of one record, or the renewal of its lock."""

    request: ShareRequest
    kind: int
    #: None if it was accepted, or if no answer arrived: see `is_answered`
    error: str | None = None
    is_answered: bool = False
    answered: int = NEVER

    @property
    def at(self) -> int:
        return self.request.at

    @property
    def is_accepted(self) -> bool:
        return self.is_answered and self.error is None

    @property
    def may_count(self) -> bool:
        """Whether the broker may have stored the acknowledgement, although its member cannot know that."""
        return self.error not in _WITHOUT_EFFECT


@dataclass(slots=True)
class Delivery:
    """A record that a member has acquired."""

    request: ShareRequest
    place: Place
    offset: int
    id: str
    #: how often it was delivered, as the broker counts
    count: int
    #: names the leader of the partition in one leader epoch, and one life of its broker; None: it is not sure
    #: that the broker still led the partition
    lease: str | None
    #: in their order
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def asked(self) -> int:
        return self.request.at

    @property
    def at(self) -> int:
        return self.request.answered

    @property
    def accepted(self) -> Verdict | None:
        """The acknowledgement that ended the delivery and that the broker has
        confirmed; None if there is none.
        """
        return next((each for each in self.verdicts if each.is_accepted and each.kind != RENEW), None)


class ShareSettings(NamedTuple):
    """Settings of a share group."""

    #: the duration of a lock, in nanoseconds
    lock: int
    #: the delivery count limit
    limit: int
    isolation: str
    #: whether the group has a dead-letter queue
    has_letters: bool = False


class DeadLetter(NamedTuple):
    """A record of a dead-letter queue (KIP-1191)."""

    #: where it is
    place: Place
    offset: int
    #: the group that gave the record up, and the record
    source: ShareRecord
    #: how often the record was delivered
    deliveries: int
    #: the id of the record; empty if the dead letter has only headers
    id: str


@dataclass
class ShareHistory:
    """All that members of share groups did and got."""

    settings: dict[str, ShareSettings] = field(default_factory=dict)
    #: in the order of each member's requests
    deliveries: dict[ShareRecord, list[Delivery]] = field(default_factory=dict)
    #: by process and session
    sessions: dict[tuple[str, str], list[ShareRequest]] = field(default_factory=dict)
    #: by group: the start offset of each partition in the end
    start_offsets: dict[str, dict[Place, int]] = field(default_factory=dict)
    #: all dead letters in the end
    letters: dict[ShareRecord, list[DeadLetter]] = field(default_factory=dict)
    _unanswered: dict[str, list[int]] | None = None

    def unanswered(self, group: str, since: int, before: int = NEVER) -> int:
        """Return how many requests of a group, sent between two times, have no response."""
        if self._unanswered is None:
            self._unanswered = {}
            for requests in self.sessions.values():
                for each in requests:
                    if each.answered == NEVER:
                        self._unanswered.setdefault(each.process.group, []).append(each.at)
        return sum(since < at < before for at in self._unanswered.get(group, ()))


class ShareReader:
    """Reads one member's events into a `ShareHistory`."""

    def __init__(self, history: ShareHistory) -> None:
        self._history = history
        self._requests: dict[int, ShareRequest] = {}
        #: the verdicts in a request without a response, and the partition of each
        self._open: dict[int, list[tuple[Place, Verdict]]] = {}
        #: the member's latest delivery of each record
        self._latest: dict[tuple[Place, int], Delivery] = {}

    def request(self, process: Process, event: Event) -> None:
        number = event["number"]
        request = self._requests[number] = ShareRequest(process, event["session"], event["at"])
        self._history.sessions.setdefault((process.name, request.session), []).append(request)
        verdicts = self._open[number] = []
        for topic, partition, offset, kind in event["verdicts"]:
            verdict = Verdict(request, kind)
            verdicts.append(((topic, partition), verdict))
            delivery = self._latest.get(((topic, partition), offset))
            # A gap is a later delivery of the offset: without a record, which compaction has removed.
            if delivery is not None and kind != GAP:
                delivery.verdicts.append(verdict)

    def acknowledged(self, event: Event) -> None:
        results = {(topic, partition): error for topic, partition, error in event["results"]}
        for place, verdict in self._open[event["number"]]:
            if place in results:
                verdict.is_answered, verdict.error, verdict.answered = True, results[place], event["at"]

    def acquired(self, event: Event) -> None:
        request = self._requests[event["number"]]
        request.answered = event["at"]
        leases = {(topic, partition): lease for topic, partition, lease in event["leases"]}
        for topic, partition, offset, identity, count in event["records"]:
            place = (topic, partition)
            delivery = Delivery(request, place, offset, identity, count, leases.get(place))
            self._latest[place, offset] = delivery
            key = (request.process.group, place, offset)
            self._history.deliveries.setdefault(key, []).append(delivery)

    def settings(self, event: Event) -> None:
        settings = ShareSettings(
            event["lock"], event["limit"], event["isolation"], event.get("has_letters", False)
        )
        self._history.settings[event["group"]] = settings

    def offsets(self, event: Event) -> None:
        self._history.start_offsets[event["group"]] = {
            (topic, partition): offset for topic, partition, offset in event["offsets"]
        }

    def letters(self, event: Event) -> None:
        place = event["topic"], event["partition"]
        for at, group, topic, partition, offset, count, identity in event["letters"]:
            source = group, (topic, partition), offset
            letter = DeadLetter(place, at, source, count, identity)
            self._history.letters.setdefault(source, []).append(letter)
