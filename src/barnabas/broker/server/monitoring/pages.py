"""Makes the pages of metrics as text, in slices of time, so that the event loop can serve requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import Volume
from barnabas.base.environment.process import ProcessUse
from barnabas.base.metrics.declaration import Page, Sample, written
from barnabas.base.types import Offset, TopicPartition
from barnabas.broker.metrics.catalogue import METRICS
from barnabas.broker.server.monitoring import broker_page, partition_page
from barnabas.broker.server.monitoring.census import Census
from barnabas.broker.server.monitoring.log_ends import EndHistory, ask_ends, known_end
from barnabas.broker.server.monitoring.partition_page import Committed, PartitionReading
from barnabas.broker.server.monitoring.sources import Sources
from barnabas.broker.server.requests.long_work import LongWork

R = TypeVar("R")

#: number of lines between two checks of the time slice: a tenth of a millisecond
_LINES_AT_ONCE = 20
#: time limit for values from the disks and the operating system, in seconds
_PATIENCE = 1.0
#: shortest time between two measurements of CPU use, in seconds
_SHORTEST_SPAN = 1.0


class Pages:
    """Makes the pages of metrics of one broker, in Prometheus' text format.

    Args:
        sources: parts of the broker from which the pages read their values.
        long_work: lets the event loop serve requests while a long page is made.
        environment: provides the sizes of the volumes, and the resources that the process uses.
    """

    def __init__(self, sources: Sources, long_work: LongWork, environment: Environment) -> None:
        self._sources = sources
        self._long_work = long_work
        self._environment = environment
        self._thread = environment.blocking.pool("metrics", 1)
        self._history = EndHistory()
        #: time and CPU seconds of the last measurement
        self._used = (-_SHORTEST_SPAN, 0.0)
        self._idle = 1.0
        self._is_asking_system = False

    async def stop(self) -> None:
        self._thread.abandon()

    async def broker(self) -> AsyncIterator[str]:
        """Yield the text of the page ``/metrics``, in parts."""
        census = Census(self._sources)
        async for _ in self._long_work.slices(census.steps()):
            pass
        process, volumes = await self._ask_system()
        reading = broker_page.Reading(self._sources, census, self._share_left(process), process, volumes)
        async for text in self._page(Page.BROKER, broker_page.SAMPLERS, reading):
            yield text

    async def partitions(self) -> AsyncIterator[str]:
        """Yield the text of the page ``/metrics/partitions``, in parts."""
        reading = PartitionReading(
            self._sources,
            [each for each in self._sources.replicas if each.unavailable is None],
            [
                found
                async for found in self._long_work.slices(partition_page.leaderless(self._sources))
                if found is not None
            ],
            await self._committed(),
        )
        async for text in self._page(Page.PARTITIONS, partition_page.SAMPLERS, reading):
            yield text

    async def _page(
        self, page: Page, samplers: Mapping[str, Callable[[R], Iterable[Sample]]], reading: R
    ) -> AsyncIterator[str]:
        lines = (
            line
            for metric in METRICS.values()
            if metric.page is page
            for line in written(metric, samplers[metric.name](reading))
        )
        async for text in self._long_work.slices(_joined(lines)):
            yield text

    async def _committed(self) -> list[Committed]:
        offsets = [
            (group, TopicPartition(topic, index), committed.offset)
            async for group, topics in self._long_work.slices(self._sources.groups.loaded_offsets())
            for topic, partitions in list(topics.items())
            for index, committed in list(partitions.items())
        ]
        ends = await self._ends({partition for _, partition, _ in offsets})
        now = self._sources.view.clock.monotonic()
        self._history.keep_only(ends)
        for partition, end in ends.items():
            if end is not None:
                self._history.note(partition, end, now)
        return [
            each
            async for each in self._long_work.slices(
                self._describe(group, partition, offset, ends[partition], now)
                for group, partition, offset in offsets
            )
        ]

    async def _ends(self, partitions: set[TopicPartition]) -> dict[TopicPartition, Offset | None]:
        """Return the high watermark of each partition; None if it is not known.

        If another broker leads the partition, request the high watermark from that broker. `ask_ends` lists
        the cases in which that fails.
        """
        replicas = self._sources.replicas
        ends: dict[TopicPartition, Offset | None] = {}
        async for partition in self._long_work.slices(partitions):
            ends[partition] = known_end(replicas, partition)
        unknown = [partition for partition, end in ends.items() if end is None]
        if unknown:
            ends |= await ask_ends(self._sources.peers, self._sources.view.image, unknown)
        return ends

    def _describe(
        self, group: str, partition: TopicPartition, offset: Offset, end: Offset | None, now: float
    ) -> Committed:
        topic, index = partition
        if end is None:
            return Committed(group, topic, str(index), offset, -1, None)
        seconds = self._history.seconds_behind(partition, offset, end, now)
        return Committed(group, topic, str(index), offset, max(0, end - offset), round(seconds, 3))

    async def _ask_system(self) -> tuple[ProcessUse | None, dict[str, Volume]]:
        """Return the resources that the process uses, and the volumes of the log directories by their paths.

        A thread asks the operating system. If it has no result after one second, for example because a disk
        hangs, return None and no volumes. Until the thread has a result, later calls return None and no
        volumes at once. The resources are also None on a system that does not report them.
        """
        if self._is_asking_system:
            return None, {}
        paths = [directory.path for directory in self._sources.logs.directories]
        self._is_asking_system = True
        asking = asyncio.ensure_future(self._thread.run(_look, self._environment, paths))
        asking.add_done_callback(self._asked_system)
        done, _ = await asyncio.wait([asking], timeout=_PATIENCE)
        return asking.result() if done else (None, {})

    def _asked_system(self, asking: asyncio.Future[tuple[ProcessUse | None, dict[str, Volume]]]) -> None:
        self._is_asking_system = False
        if not asking.cancelled():
            asking.exception()  # whoever still waits raises it

    def _share_left(self, process: ProcessUse | None) -> float:
        if process is None:
            return self._idle
        now = self._sources.view.clock.monotonic()
        before, used = self._used
        if now - before >= _SHORTEST_SPAN:
            self._idle = min(1.0, max(0.0, 1 - (process.cpu_seconds - used) / (now - before)))
            self._used = now, process.cpu_seconds
        return self._idle


def _look(environment: Environment, paths: list[str]) -> tuple[ProcessUse | None, dict[str, Volume]]:
    volumes = {}
    for path in paths:
        try:
            volumes[path] = environment.filesystem.volume(path)
        except OSError:
            continue
    return None if environment.process_use is None else environment.process_use(), volumes


def _joined(lines: Iterator[str]) -> Iterator[str]:
    while text := "".join(islice(lines, _LINES_AT_ONCE)):
        yield text
