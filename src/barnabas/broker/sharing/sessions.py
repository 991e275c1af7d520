"""Share sessions (KIP-932): the partitions that a member of a share group fetches from this broker.

A session belongs to a member and to its connection. When the connection closes, the session ends at once, and
the member's records are released. A later session of the same member replaces the earlier one. If the later
session is on another connection, the end of the earlier connection does not end the later session
(KAFKA-19950).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicId

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1
#: in characters; clients use UUIDs, which are shorter
_MAX_MEMBER_ID_LENGTH = 64
#: the most partitions in all sessions together
MAX_PARTITIONS = 100_000


class Member(NamedTuple):
    """The identity of a share group's member: the group id and the member id."""

    group: str
    member_id: str


class Target(NamedTuple):
    """A partition in a share session: the topic id and the partition index."""

    topic_id: TopicId
    partition: int


class Closable(Protocol):
    """A connection that calls back when it closes."""

    connection_id: int

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection has closed, or at once if it already has."""


class ShareSession:
    """The share session of one member: its partitions, and the epoch of its next request."""

    __slots__ = ("connection_id", "epoch", "member", "targets")

    def __init__(self, member: Member, connection_id: int) -> None:
        self.member = member
        self.connection_id = connection_id
        #: the session epoch that the next request must have
        self.epoch = 1
        #: the partitions that the member fetches, the most recently served last
        self.targets: dict[Target, None] = {}

    def move_to_end(self, target: Target) -> None:
        """Move `target` to the end of `targets`, because a fetch got its records.

        So the next fetch tries it last.
        """
        if target in self.targets:
            del self.targets[target]
            self.targets[target] = None


class ShareSessions:
    """All share sessions of a broker. The event loop owns this object.

    Args:
        max_sessions: returns the number of sessions that may be open (``group.share.max.share.sessions``).
        on_end: called when a session ends, with its member, and whether it was the group's last session.
    """

    def __init__(self, max_sessions: Callable[[], int], on_end: Callable[[Member, bool], None]) -> None:
        self._max_sessions = max_sessions
        self._on_end = on_end
        self._sessions: dict[Member, ShareSession] = {}
        self._partitions = 0
        #: how many sessions a group has
        self._groups: dict[str, int] = {}
        #: the members with a session on a connection, by the connection's number
        self._connections: dict[int, set[Member]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions together."""
        return self._partitions

    def open(self, member: Member, connection: Closable) -> ShareSession:
        """Open a session, which replaces the member's earlier one. The member keeps its acquired records.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED, the broker has too many sessions; INVALID_REQUEST, the
                group id is empty or the member id does not have 1 to 64 characters; SHARE_SESSION_NOT_FOUND,
                the connection has already closed; an earlier session of the member then goes on.
        """
        if not member.group or not 0 < len(member.member_id) <= _MAX_MEMBER_ID_LENGTH:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "a group id and a member id of at most 64 characters are needed"
            )
        earlier = self._sessions.get(member)
        if earlier is None and len(self._sessions) >= self._max_sessions():
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        number = connection.connection_id
        if number not in self._connections:
            self._connections[number] = set()
            connection.when_closed(lambda: self._connection_closed(number))
            if number not in self._connections:  # it was called at once
                raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if earlier is None:
            self._groups[member.group] = self._groups.get(member.group, 0) + 1
        else:
            self._partitions -= len(earlier.targets)
            self._leave_connection(earlier)
        self._connections[number].add(member)
        session = self._sessions[member] = ShareSession(member, number)
        return session

    def find(self, member: Member, epoch: int) -> ShareSession:
        """Return the member's session, and advance its epoch unless `epoch` is `FINAL_EPOCH`.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND; INVALID_SHARE_SESSION_EPOCH, `epoch` is neither final nor the
                session's epoch.
        """
        session = self._sessions.get(member)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise KafkaError(
                    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                    f"the session's epoch is {session.epoch}, not {epoch}",
                )
            session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def change(self, session: ShareSession, added: Iterable[Target], forgotten: Iterable[Target]) -> None:
        """Add partitions to a session, and remove others from it.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED, all sessions together have too many partitions. The
                session is then closed.
        """
        targets = session.targets
        before = len(targets)
        for target in added:
            targets[target] = None
        for target in forgotten:
            targets.pop(target, None)
        self._partitions += len(targets) - before
        if self._partitions > MAX_PARTITIONS:
            self.close(session)
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def is_open(self, session: ShareSession) -> bool:
        """Whether a session has not ended, and no later session of the member has replaced it."""
        return self._sessions.get(session.member) is session

    def close(self, session: ShareSession) -> None:
        """End a session and call `on_end`, unless a later session of the member has replaced it."""
        if not self.is_open(session):
            return
        member = session.member
        del self._sessions[member]
        self._leave_connection(session)
        self._partitions -= len(session.targets)
        left = self._groups[member.group] - 1
        if left:
            self._groups[member.group] = left
        else:
            del self._groups[member.group]
        self._on_end(member, not left)

    def _leave_connection(self, session: ShareSession) -> None:
        # The connection calls back once. So its set stays, even if it is empty.
        self._connections.get(session.connection_id, set()).discard(session.member)

    def _connection_closed(self, number: int) -> None:
        # In the order of the sessions: a set's order is another one in each process.
        for member in sorted(self._connections.pop(number, ())):
            self.close(self._sessions[member])
