"""Opens logs in threads, and recovers them after a crash."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.base.environment.blocking import Pool
from barnabas.base.environment.environment import Environment
from barnabas.base.errors import KafkaError
from barnabas.base.text import FewLines, logger_of
from barnabas.base.types import TopicId, TopicPartition
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.logs.directory import LogDirectory
from barnabas.broker.logs.unopened import Postponed, UnopenedLogs
from barnabas.broker.storage import PartitionLog
from barnabas.broker.storage.harm import may_pass

log = logger_of(__name__)


class Wanted(NamedTuple):
    """A log to open."""

    topic_partition: TopicPartition
    topic_id: TopicId
    config: TopicConfig


class LogOpener:
    """Opens logs of log directories, each directory with threads of its own.

    Args:
        config: settings with which the broker was started.
        environment: provides the threads.
        unopened: gets the logs that `open_all` cannot open.
    """

    def __init__(self, config: BrokerConfig, environment: Environment, unopened: UnopenedLogs) -> None:
        self._threads = config.num_recovery_threads_per_data_dir
        self._acks_fsync = config.barnabas_acks_fsync
        self._blocking = environment.blocking
        self._unopened = unopened

    async def open_all(self, wanted: Mapping[LogDirectory, Sequence[Wanted]]) -> None:
        """Open the logs in `wanted`, and add them to their directories. Log the errors of the others."""
        failures = FewLines(log)
        pools = [self._blocking.pool("recovery", self._threads) for _ in wanted]
        opening: list[Coroutine[Any, Any, None]] = []
        for pool, (directory, logs) in zip(pools, wanted.items(), strict=True):
            shared, threads = deque(logs), min(self._threads, len(logs))
            opening += [self._open_some(directory, pool, shared, failures) for _ in range(threads)]
        await asyncio.gather(*opening)
        failures.end("logs cannot be opened")
        for pool in pools:
            await pool.close()

    async def open_in(
        self, directories: Iterable[LogDirectory], wanted: Wanted
    ) -> dict[LogDirectory, PartitionLog]:
        """Open one log in each of several directories. The caller adds the results to the directories.

        Raises:
            KafkaError: the log cannot be opened in one of the directories, and is closed in the others.
        """
        pool = self._blocking.pool("recovery", 1)
        opened: dict[LogDirectory, PartitionLog] = {}
        try:
            for directory in directories:
                opened[directory] = await pool.run(_open, directory, wanted, self._acks_fsync)
        except Exception:
            for other in opened.values():
                other.abandon()
            raise
        finally:
            await pool.close()
        return opened

    async def _open_some(
        self, directory: LogDirectory, pool: Pool, wanted: deque[Wanted], failures: FewLines
    ) -> None:
        """Take logs from `wanted` and open them in a thread of `pool`, until `wanted` is empty.

        Several calls, each with a thread of its own, share `wanted`.
        """
        opened, failed = await pool.run(_open_some, directory, wanted, self._acks_fsync, failures)
        for partition_log in opened:
            directory.adopt(partition_log)
        for topic_partition, postponed in failed.items():
            self._unopened.add(topic_partition, directory, postponed)


def _open_some(
    directory: LogDirectory, wanted: deque[Wanted], acks_fsync: bool, failures: FewLines
) -> tuple[list[PartitionLog], dict[TopicPartition, Postponed | None]]:
    """Take logs from `wanted` and open them, until `wanted` is empty. Other threads take from it, too.

    Return (open logs, failed logs). The failed logs are a dictionary by partition. The value is a `Postponed`
    if a later attempt may succeed, and None if it cannot.
    """
    opened: list[PartitionLog] = []
    failed: dict[TopicPartition, Postponed | None] = {}
    while True:
        try:
            each = wanted.popleft()
        except IndexError:  # the other threads have taken the rest
            return opened, failed
        try:
            opened.append(_open(directory, each, acks_fsync))
        except Exception as error:
            is_passing = may_pass(error.__cause__)
            failed[each.topic_partition] = Postponed(each.topic_id, each.config) if is_passing else None
            if is_passing and isinstance(error, KafkaError):
                line = "%s cannot be opened: %s: it is tried again"
                failures.log(line, each.topic_partition, error.message)
            elif isinstance(error, KafkaError):
                log.error("%s cannot be opened: %s", each.topic_partition, error.message)
            else:  # a bug, or unforeseen damage: the others are opened all the same
                log.error("%s cannot be opened", each.topic_partition, exc_info=error)


def _open(directory: LogDirectory, wanted: Wanted, acks_fsync: bool) -> PartitionLog:
    """Open one log. Flush the log if recovery has read at least one record and `acks_fsync` is true.

    Without `acks_fsync`, flush the log if recovery has read at least `flush.messages` records.

    Raises KafkaError if the log cannot be opened.
    """
    opened = directory.load(*wanted)
    every = 1 if acks_fsync else wanted.config.flush_messages
    if opened.log_end_offset - opened.recovery_point >= every:
        with contextlib.suppress(KafkaError):  # then it counts when it is fsynced later, if ever
            opened.flush()
    return opened
