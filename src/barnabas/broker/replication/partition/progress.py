"""Tracks a follower's progress, which the leader learns from the follower's fetches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from barnabas.base.types import UNKNOWN_OFFSET, BrokerId, Offset
from barnabas.broker.metadata.image import BrokerImage

_NO_BROKERS: Mapping[BrokerId, BrokerImage] = MappingProxyType({})

#: the time of an event that has not happened: earlier than any other
NEVER = float("-inf")


def _no_brokers() -> Mapping[BrokerId, BrokerImage]:
    return _NO_BROKERS


def _no_time() -> float:
    return 0.0


def _default_lag() -> float:
    return 30.0


@dataclass(frozen=True, slots=True)
class LeaderContext:
    """Settings and objects that all leaderships of a broker share.

    The defaults are for a broker without peers.
    """

    #: the brokers in the latest cluster image
    brokers: Callable[[], Mapping[BrokerId, BrokerImage]] = _no_brokers
    #: returns the seconds during which this broker could serve fetches, from some moment on
    now: Callable[[], float] = _no_time
    #: returns ``replica.lag.time.max.ms``, in seconds
    max_lag: Callable[[], float] = _default_lag


class FollowerProgress:
    """The progress of one follower in one leader epoch."""

    __slots__ = ("broker_epoch", "broker_id", "caught_up_at", "end", "fetched_at", "leader_end", "log_start")

    def __init__(self, broker_id: BrokerId, caught_up_at: float) -> None:
        self.broker_id = broker_id
        #: the broker epoch in which it fetched last (KIP-903)
        self.broker_epoch = -1
        #: the follower's log end; -1 before its first fetch of this leader epoch
        self.end: Offset = UNKNOWN_OFFSET
        #: the follower's log start; -1 until it has reported it
        self.log_start: Offset = UNKNOWN_OFFSET
        #: the latest time at which it had all of the leader's records, on the clock of `LeaderContext.now`
        self.caught_up_at = caught_up_at
        #: the time of its latest fetch, and the leader's log end then
        self.fetched_at = NEVER
        self.leader_end: Offset = UNKNOWN_OFFSET

    def __repr__(self) -> str:
        return f"<FollowerProgress of {self.broker_id} epoch {self.broker_epoch} at {self.end}>"

    def fetched(
        self, broker_epoch: int, offset: Offset, log_start: Offset, leader_end: Offset, now: float
    ) -> None:
        """Update the progress after a fetch.

        A fetch in another broker epoch resets the earlier progress, because the follower has restarted.

        Args:
            broker_epoch: broker epoch of the follower.
            offset: fetch offset, where the follower's log ends.
            log_start: start of the follower's log; -1 if the fetch does not contain it.
            leader_end: end of the leader's log at the time of the fetch.
            now: time of the fetch, in seconds.
        """
        if broker_epoch != self.broker_epoch:  # it has restarted: its earlier progress does not count
            self.broker_epoch = broker_epoch
            self.fetched_at = NEVER
            self.leader_end = self.log_start = UNKNOWN_OFFSET
        if offset >= leader_end:
            self.caught_up_at = now
        elif 0 <= self.leader_end <= offset:  # it has all records that the leader had at its last fetch
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.end = offset
        self.leader_end = leader_end
        self.fetched_at = now
        if log_start >= 0:
            self.log_start = log_start
