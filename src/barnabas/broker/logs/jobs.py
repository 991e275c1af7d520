"""Periodic jobs of a broker: retention, checkpoints, expiry of idle producers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial

from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import TopicPartition
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.view import BrokerView

log = logger_of(__name__)

#: between two attempts to open logs for which the start lacked space, memory or files
_OPEN_AGAIN_MS = 10_000


class Job:
    """Calls `work` again and again, from `start` until `stop`, each time after a pause of `interval_ms`.

    The job logs an exception of `work`, with its own `name`, and continues.
    """

    def __init__(self, name: str, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._interval = interval_ms / 1000
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = start_task(self._run(), self._name, is_vital=True)

    async def stop(self) -> None:
        await stop_tasks(self._task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._work()
            except Exception:
                log.exception("%s failed", self._name)


async def stop_all(jobs: Iterable[Job]) -> None:
    await asyncio.gather(*(job.stop() for job in jobs))


def upkeep(
    view: BrokerView,
    logs: LogManager,
    on_open: Callable[[Collection[TopicPartition]], None],
) -> list[Job]:
    """Return the periodic jobs for a broker's logs. The caller starts them.

    Each log directory has jobs of its own, so that a disk that hangs does not stop those of other disks. If
    there are several, the names of these jobs contain the directory's path.
    The jobs keep the intervals that the settings of `view` have now.
    `on_open` is called with partitions whose logs could not be opened before, and are open now.
    """

    async def drop_expired_producers() -> None:
        await logs.expire_producers(view.config.producer_id_expiration_ms)

    async def open_postponed() -> None:
        if opened := await logs.open_postponed():
            on_open(opened)

    now = view.config
    jobs = [
        Job("producer expiry", now.producer_id_expiration_check_interval_ms, drop_expired_producers),
        Job("postponed logs", _OPEN_AGAIN_MS, open_postponed),
    ]
    for directory in logs.directories:
        checkpoint = partial(logs.checkpoint, directory)
        where = f" of {directory.path}" if len(logs.directories) > 1 else ""
        jobs += [
            Job(
                f"retention{where}",
                now.log_retention_check_interval_ms,
                partial(logs.drop_expired, directory),
            ),
            Job(
                f"recovery point checkpoint{where}",
                now.log_flush_offset_checkpoint_interval_ms,
                partial(checkpoint, LogDirectory.recovery_point_checkpoint),
            ),
            Job(
                f"log start checkpoint{where}",
                now.log_flush_start_offset_checkpoint_interval_ms,
                partial(checkpoint, LogDirectory.log_start_checkpoint),
            ),
            Job(
                f"high watermark checkpoint{where}",
                now.replica_high_watermark_checkpoint_interval_ms,
                partial(checkpoint, LogDirectory.high_watermark_checkpoint),
            ),
        ]
    return jobs
