"""Session timeouts of members of consumer groups and share groups, and other timeouts of consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from barnabas.broker.coordinator.backoff import backoff_ms
from barnabas.broker.coordinator.timers import Timers

_Key: TypeAlias = tuple[str, str, str]


class ExpiredTimeout(NamedTuple):
    """A member whose timeout has expired, and that must be fenced."""

    group_id: str
    member_id: str
    reason: str
    #: returns whether the member is still late: its request may arrive before the group's lock is free
    is_still_expired: Callable[[], bool]
    #: sets the timeout again, because the fencing could not be stored
    restart: Callable[[], None]


class Timeouts:
    """Timers for the members of one shard's consumer groups, or of its share groups."""

    def __init__(self, timers: Timers, fence: Callable[[ExpiredTimeout], None]) -> None:
        """Create the timeouts.

        `fence` is called with a late member when its timeout expires. `fence` must take the group's lock, and
        then remove the member if `ExpiredTimeout.is_still_expired` still returns true.
        """
        self._timers = timers
        self._fence = fence
        #: members whose timeout has expired, and whose fencing waits for the group's lock
        self._late: set[_Key] = set()

    def expect_heartbeat(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Restart the member's session timeout."""
        self._set("session", group_id, member_id, timeout_ms, "its session has expired")

    def expect_revocation(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Start the rebalance timeout of a member.

        If the member has not revoked its partitions after `timeout_ms` milliseconds, fence the member.
        """
        self._set("rebalance", group_id, member_id, timeout_ms, "it did not revoke partitions in time")

    def revoked(self, group_id: str, member_id: str) -> None:
        self._cancel("rebalance", group_id, member_id)

    def expect_join(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Start the timeout within which a classic member must join again, unless it has started already.

        If the member has not joined after `timeout_ms` milliseconds, fence the member.
        """
        if ("join", group_id, member_id) not in self._timers:
            self._set("join", group_id, member_id, timeout_ms, "it did not rejoin in time")

    def joined(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Cancel the join timeout of a classic member, and start its timeout for SyncGroup."""
        self._cancel("join", group_id, member_id)
        self._set("sync", group_id, member_id, timeout_ms, "it did not send SyncGroup in time")

    def synced(self, group_id: str, member_id: str) -> None:
        self._cancel("sync", group_id, member_id)

    def forget(self, group_id: str, member_id: str) -> None:
        """Cancel all timeouts of a removed member."""
        for kind in ("session", "rebalance", "join", "sync"):
            self._cancel(kind, group_id, member_id)

    def _set(
        self, kind: str, group_id: str, member_id: str, timeout_ms: int, reason: str, failures: int = 0
    ) -> None:
        key = (kind, group_id, member_id)
        late = ExpiredTimeout(
            group_id,
            member_id,
            reason,
            lambda: key in self._late,
            lambda: self._set(kind, group_id, member_id, backoff_ms(failures + 1), reason, failures + 1),
        )

        def expire() -> None:
            self._late.add(key)
            self._fence(late)

        self._late.discard(key)
        self._timers.set(key, timeout_ms, expire)

    def _cancel(self, kind: str, group_id: str, member_id: str) -> None:
        key = (kind, group_id, member_id)
        self._late.discard(key)
        self._timers.cancel(key)
