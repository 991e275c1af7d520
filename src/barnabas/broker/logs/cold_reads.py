"""Loads data for reads from the disk into memory, in threads, so that the event loop does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from barnabas.base.environment.blocking import Blocking
from barnabas.broker.storage import ColdRead
from barnabas.broker.storage.open_files import LogFile

R = TypeVar("R")

#: a disk serves several reads at once faster than one after the other
_THREADS = 4


class ColdReads:
    """Loads bytes of log files into the page cache, in threads. Only the event loop may use it."""

    def __init__(self, blocking: Blocking) -> None:
        self._pool = blocking.pool("cold reads", _THREADS)
        self._is_stopped = False

    async def warm(self, reads: Sequence[ColdRead]) -> None:
        """Load the bytes of `reads` into memory. If that fails, the next read reports the error.

        When the broker has stopped, raise CancelledError.
        """
        if self._is_stopped:
            raise asyncio.CancelledError
        pinned: list[LogFile] = []
        for read in reads:
            with suppress(OSError):
                read.file.pin()
                pinned.append(read.file)
        if len(pinned) < len(reads):
            reads = [read for read in reads if read.file in pinned]
        future = self._pool.run(_warm, reads)
        # not on our own cancellation: the thread continues, and its file descriptors must stay open
        future.add_done_callback(partial(_unpin, pinned))
        await asyncio.shield(future)

    async def retry(self, read: Callable[[bool], R], cold: ColdRead) -> R:
        """Load the bytes that `cold` names into memory. Then call `read`, and return its result.

        Args:
            read: function whose argument says whether it may wait for the disk. With False, it can raise
                `ColdRead`: the method then loads these bytes, too. The argument is True only if the system
                has removed the loaded bytes from memory.
            cold: the error that an earlier call of `read` has raised.
        """
        while True:
            await self.warm([cold])
            before = cold.extent
            try:
                return read(False)
            except ColdRead as another:
                if another.extent == before:
                    return read(True)
                cold = another

    def stop(self) -> None:
        """Start no more reads. Running ones end in their threads."""
        self._is_stopped = True
        self._pool.abandon()


def _warm(reads: Sequence[ColdRead]) -> None:
    for read in reads:
        with suppress(OSError):
            read.warm()


def _unpin(files: Sequence[LogFile], _done: asyncio.Future[None]) -> None:
    for file in files:
        file.unpin()
