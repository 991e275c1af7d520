"""Configures Python's garbage collector for the process of a broker, so that no collection takes long."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time

from barnabas.base.environment.process import memory_held

#: Here, a full collection scans only new objects (`short_collections`). With these thresholds it runs after
#: 6,300 new objects instead of 85,000, and takes two or three milliseconds. The thresholds do not change how
#: often each object is scanned.
_THRESHOLDS = (700, 2, 2)
#: A collection of all objects is due after so many of new ones ...
_NEW_ONES = 3000
#: ... and memory use has grown by this factor: uncollected circles add to it.
_GROWTH = 1.5
#: It is also due, whatever the number of new objects, when the process uses `_GROWTH` times the memory that
#: it used after the last one, and at least this many bytes more. A few objects can have buffers of many
#: megabytes.
_GROWN_BYTES = 64 << 20
#: How long the clients must have been silent, as a multiple of the time that the collection will take ...
SILENCE = 10
#: ... and in what share of the last second the process may have worked.
IDLE = 0.1
#: Seconds that the collector takes for one allocated block, until it has been measured.
_SECONDS_A_BLOCK = 4e-7


class Collections:
    """Decides when a collection of all objects is due, estimates its time, and runs it."""

    def __init__(self) -> None:
        self._new_ones = 0
        #: number of allocated blocks after the last collection of all objects
        self._blocks = 0
        #: memory of the process in bytes at that time
        self._bytes = 0
        self._seconds_a_block = _SECONDS_A_BLOCK
        self._collects_all = False

    @property
    def due(self) -> bool:
        """Whether the process should collect all objects soon.

        A collection is due if the process has many new objects, or uses much more memory than after the last
        collection of all objects.
        """
        if self._new_ones >= _NEW_ONES and sys.getallocatedblocks() >= _GROWTH * self._blocks:
            return True
        return memory_held() >= max(_GROWTH * self._bytes, self._bytes + _GROWN_BYTES)

    @property
    def seconds(self) -> float:
        """Expected duration of a collection of all objects, in seconds."""
        return self._seconds_a_block * sys.getallocatedblocks()

    def begin(self) -> None:
        """Enable collections, and treat all present objects as old. Call it when the broker has started."""
        gc.freeze()
        gc.enable()
        self._blocks = sys.getallocatedblocks()
        self._bytes = memory_held()

    def collect_all(self) -> None:
        """Collect all objects. This blocks the process: with 10,000 topics, for a quarter of a second."""
        self._collects_all = True
        began = perf_counter()
        try:
            gc.unfreeze()
            gc.collect()
        finally:
            self._collects_all = False
        self._blocks = sys.getallocatedblocks()
        self._bytes = memory_held()
        self._seconds_a_block = (perf_counter() - began) / self._blocks
        self._new_ones = 0

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Treat the objects that survived a full collection as old. This is a callback for `gc.callbacks`."""
        if phase != "stop" or info["generation"] != 2:
            return
        gc.freeze()
        if not self._collects_all:
            self._new_ones += 1


@contextmanager
def short_collections() -> Iterator[Collections]:
    """Within this context, a full garbage collection examines only objects created since the last one.

    So garbage collections stay short. This matters because each one blocks the whole process, and one large
    request can cause one. No collection runs before `Collections.begin`, because the broker keeps nearly all
    objects of its start.

    Python still frees an old object at once when nothing refers to it. Only old objects in a reference cycle
    wait for `Collections.collect_all`, which the caller must call. A broker has hardly any such cycles.
    """
    collections = Collections()
    thresholds = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    gc.disable()
    gc.callbacks.append(collections.collected)
    try:
        yield collections
    finally:
        gc.callbacks.remove(collections.collected)
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        gc.enable()


async def collect_all_when_idle(
    collections: Collections, silent_for: Callable[[], float], cpu_time: Callable[[], float] = process_time
) -> None:
    """Run a garbage collection of all objects whenever one is due and the broker is idle. Never returns.

    The broker is idle if it used little CPU time and no client has sent anything for some time. A broker that
    is never idle for long enough never runs a garbage collection of all objects.

    Args:
        collections: decides when a collection is due, and runs it.
        silent_for: returns the seconds since the last bytes from a client.
        cpu_time: returns the CPU time of the process in seconds.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        before = cpu_time()
        await asyncio.sleep(1)
        idle = cpu_time() - before <= IDLE
        silence = min(silent_for(), loop.time() - began)
        if idle and collections.due and silence >= SILENCE * collections.seconds:
            collections.collect_all()
