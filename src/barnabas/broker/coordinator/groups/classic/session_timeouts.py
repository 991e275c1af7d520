"""Session timeouts: removes a member that sends no heartbeat within its session timeout (KIP-62)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from barnabas.broker.coordinator.groups.classic.group import ClassicGroup
from barnabas.broker.coordinator.groups.classic.member import ClassicMember
from barnabas.broker.coordinator.groups.codec import GroupRecord
from barnabas.broker.coordinator.timers import Timers

#: runs an operation under a group's lock and appends the records that it returns
Step: TypeAlias = Callable[[str, Callable[[], list[GroupRecord]]], None]

#: the longest wait of a new member for its first join phase, in milliseconds (as in Kafka)
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class SessionTimeouts:
    """The session timers of one shard's classic groups.

    Args:
        timers: the timers of the shard.
        write: called with a group id and a function without arguments. It calls the function under the
            group's lock, and appends the records that the function returns.
        expire: called with a group and the id of a member whose session has timed out. It removes the member,
            and returns the records to append.
    """

    def __init__(
        self, timers: Timers, write: Step, expire: Callable[[ClassicGroup, str], list[GroupRecord]]
    ) -> None:
        self._timers = timers
        self._write = write
        self._expire = expire

    def keep_alive(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Restart the session timeout, because the member has sent a request."""
        self.watch(group, member.member_id, member.session_timeout_ms)

    def watch(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Restart the session timeout of a member or a pending member.

        When `timeout_ms` milliseconds have passed without another restart, remove the member.
        """
        key = _key(group, member_id)

        def expire() -> list[GroupRecord]:
            # The member may have sent a request while this step waited for the group's lock.
            return [] if key in self._timers else self._expire(group, member_id)

        self._timers.set(key, timeout_ms, lambda: self._write(group.group_id, expire))

    def unwatch(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(_key(group, member_id))


def _key(group: ClassicGroup, member_id: str) -> tuple[str, str, str]:
    return "session", group.group_id, member_id
