"""Logs for which brokers partitions without a leader wait, if these brokers do not come back in time.

While a whole cluster starts, partitions have no leader until the other brokers have registered. A user who
started an unclean election then would lose records for nothing. So the log line waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId, TopicPartition

log = logger_of(__name__)

#: how many partitions a log line names
_NAMED = 20


class AwaitedBrokers:
    """Logs the awaited brokers of partitions that have waited for the same brokers for a long time.

    The broker logs this again only for other brokers, or when more partitions wait for these brokers.

    Args:
        waiting: returns the partitions without a leader, each with the brokers for which it waits; nothing if
            this broker is not the controller.
        patience: returns how long a partition must have waited, in seconds.
    """

    def __init__(
        self,
        waiting: Callable[[], Mapping[TopicPartition, tuple[BrokerId, ...]]],
        patience: Callable[[], float],
    ) -> None:
        self._waiting = waiting
        self._patience = patience
        #: each waiting partition with its awaited brokers, and the loop's time since which it waits for them
        self._since: dict[TopicPartition, tuple[tuple[BrokerId, ...], float]] = {}
        #: awaited brokers and their numbers of partitions, as logged last
        self._reported: dict[tuple[BrokerId, ...], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def update(self) -> None:
        """Compare with what waits now, and log what has waited for too long. A timer repeats this call."""
        self.stop()
        loop = asyncio.get_running_loop()
        now, patience = loop.time(), self._patience()
        before, self._since = self._since, {}
        overdue: dict[tuple[BrokerId, ...], list[TopicPartition]] = {}
        next_due: float | None = None
        for partition, brokers in self._waiting().items():
            awaited, since = before.get(partition, (brokers, now))
            if awaited != brokers:
                since = now
            self._since[partition] = brokers, since
            due = since + patience
            if due <= now:
                overdue.setdefault(brokers, []).append(partition)
            elif next_due is None or due < next_due:
                next_due = due
        if next_due is not None:
            self._timer = loop.call_at(next_due, self.update)
        reported, self._reported = self._reported, {brokers: len(each) for brokers, each in overdue.items()}
        for brokers, partitions in overdue.items():
            if len(partitions) > reported.get(brokers, 0):
                _report(brokers, partitions)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _report(brokers: tuple[BrokerId, ...], partitions: Sequence[TopicPartition]) -> None:
    log.warning(
        "%d partitions have no leader and wait for %s, which may have committed records that "
        "no other replica has: %s%s. If the missing replicas are lost permanently, `barnabas "
        "topics elect --unclean --all` elects other leaders, without these records",
        len(partitions),
        f"{'broker' if len(brokers) == 1 else 'brokers'} {', '.join(map(str, brokers))}",
        ", ".join(map(str, partitions[:_NAMED])),
        ", ..." if len(partitions) > _NAMED else "",
    )
