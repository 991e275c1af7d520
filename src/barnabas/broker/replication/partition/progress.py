"""A follower's progress, as the leader learns it from the follower's fetches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from barnabas.base.types import UNKNOWN_OFFSET, BrokerId, Offset
from barnabas.broker.metadata.image import BrokerImage

_NO_BROKERS: Mapping[BrokerId, BrokerImage] = MappingProxyType({})

#: no time of catching up: earlier than any other
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
    #: seconds for which this broker has been able to serve fetches, since some moment
    now: Callable[[], float] = _no_time
    #: ``replica.lag.time.max.ms``, in seconds
    max_lag: Callable[[], float] = _default_lag


class FollowerProgress:
    """One follower's progress in one leader epoch."""

    __slots__ = ("broker_epoch", "broker_id", "caught_up_at", "end", "fetched_at", "leader_end", "log_start")

    def __init__(self, broker_id: BrokerId, caught_up_at: float) -> None:
        self.broker_id = broker_id
        #: the broker epoch in which it fetched last (KIP-903)
        self.broker_epoch = -1
        #: it has all before; -1 before its first fetch of this leader epoch
        self.end: Offset = UNKNOWN_OFFSET
        #: where its log starts, -1 when it has not said so
        self.log_start: Offset = UNKNOWN_OFFSET
        #: when it had last all that the leader had, on the clock of `LeaderContext.now`
        self.caught_up_at = caught_up_at
        #: when it fetched last, and where the leader's log ended then
        self.fetched_at = NEVER
        self.leader_end: Offset = UNKNOWN_OFFSET

    def __repr__(self) -> str:
        return f"<FollowerProgress of {self.broker_id} epoch {self.broker_epoch} at {self.end}>"

    def fetched(
        self, broker_epoch: int, offset: Offset, log_start: Offset, leader_end: Offset, now: float
    ) -> None:
        """Note a fetch from `offset` on, at a time when the leader's log ended at `leader_end`."""
        if broker_epoch != self.broker_epoch:  # a restart: what an earlier life had says nothing
            self.broker_epoch = broker_epoch
            self.fetched_at = NEVER
            self.leader_end = self.log_start = UNKNOWN_OFFSET
        if offset >= leader_end:
            self.caught_up_at = now
        elif 0 <= self.leader_end <= offset:  # it has all that there was at its last fetch
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.end = offset
        self.leader_end = leader_end
        self.fetched_at = now
        if log_start >= 0:
            self.log_start = log_start
