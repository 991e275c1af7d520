"""Share sessions (KIP-932): what a member of a share group fetches from this broker, and how far it is.

A session belongs to a member and to its connection. When the connection closes, the session ends at once, and
the member's records are released. A later session of the same member replaces the earlier one, on whatever
connection: the end of the earlier connection means nothing then (KAFKA-19950).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicId

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1
#: what is longer is no UUID, which clients use
_LONGEST_MEMBER_ID = 64
#: how many partitions all sessions have at most, together
MAX_PARTITIONS = 100_000


class Member(NamedTuple):
    """A member of a share group."""

    group: str
    member_id: str


class Target(NamedTuple):
    """A partition in a session."""

    topic_id: TopicId
    partition: int


class Closable(Protocol):
    """A connection that tells when it has closed."""

    connection_id: int

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call back when the connection has closed."""


class ShareSession:
    """One member's session."""

    __slots__ = ("connection_id", "epoch", "member", "targets")

    def __init__(self, member: Member, connection_id: int) -> None:
        self.member = member
        self.connection_id = connection_id
        #: of the next request
        self.epoch = 1
        #: what the member fetches; those that were served last are last
        self.targets: dict[Target, None] = {}

    def was_served(self, target: Target) -> None:
        """Let the other partitions have their turn first."""
        if target in self.targets:
            del self.targets[target]
            self.targets[target] = None


class ShareSessions:
    """All share sessions of a broker. Owned by the event loop.

    Args:
        most: ``group.share.max.share.sessions``.
        on_end: told of a member whose session has ended, whether the records that it has count as delivered,
            and whether it was the last one of its group.
    """

    def __init__(self, most: Callable[[], int], on_end: Callable[[Member, bool, bool], None]) -> None:
        self._most = most
        self._on_end = on_end
        self._sessions: dict[Member, ShareSession] = {}
        self._partitions = 0
        #: how many sessions a group has
        self._groups: dict[str, int] = {}
        #: the members that have opened a session on a connection, by its number
        self._connections: dict[int, set[Member]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, member: Member, connection: Closable) -> ShareSession:
        """A new session in place of the member's earlier one; records that the member has stay with it.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED; INVALID_REQUEST for an impossible member.
        """
        if not member.group or not 0 < len(member.member_id) <= _LONGEST_MEMBER_ID:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "a group id and a member id of at most 64 characters are needed"
            )
        earlier = self._sessions.get(member)
        if earlier is None and len(self._sessions) >= self._most():
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        if earlier is None:
            self._groups[member.group] = self._groups.get(member.group, 0) + 1
        else:
            self._partitions -= len(earlier.targets)
        session = self._sessions[member] = ShareSession(member, connection.connection_id)
        members = self._connections.get(connection.connection_id)
        if members is None:
            number = connection.connection_id
            members = self._connections[number] = set()
            connection.when_closed(lambda: self._connection_closed(number))
        members.add(member)
        return session

    def find(self, member: Member, epoch: int) -> ShareSession:
        """The member's session, whose epoch is advanced; that of the last request stays.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
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
        """Let a member fetch other partitions.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED, there are too many partitions in all sessions.
        """
        targets = session.targets
        before = len(targets)
        for target in added:
            targets[target] = None
        for target in forgotten:
            targets.pop(target, None)
        self._partitions += len(targets) - before
        if self._partitions > MAX_PARTITIONS:
            self.close(session, counts=False)
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def close(self, session: ShareSession, *, counts: bool) -> None:
        """End a session, if it is still the member's."""
        member = session.member
        if self._sessions.get(member) is not session:
            return
        del self._sessions[member]
        self._partitions -= len(session.targets)
        left = self._groups[member.group] - 1
        if left:
            self._groups[member.group] = left
        else:
            del self._groups[member.group]
        self._on_end(member, counts, not left)

    def _connection_closed(self, number: int) -> None:
        # In the order of the sessions: a set's order is another one in each process.
        members = self._connections.pop(number, ())
        for member in sorted(members):
            session = self._sessions.get(member)
            if session is not None and session.connection_id == number:
                self.close(session, counts=True)
