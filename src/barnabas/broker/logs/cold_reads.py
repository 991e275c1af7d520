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
    """Loads bytes for reads into the page cache. The event loop owns it."""

    def __init__(self, blocking: Blocking) -> None:
        self._pool = blocking.pool("cold reads", _THREADS)
        self._is_stopped = False

    async def warm(self, reads: Sequence[ColdRead]) -> None:
        """Wait until the bytes are in memory, or a read has failed. The next read reports the failure.

        The wait is cancelled when the broker has stopped.
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
        # not when we are cancelled: the thread goes on, and a file's number must not become another's
        future.add_done_callback(partial(_unpin, pinned))
        await asyncio.shield(future)

    async def retry(self, read: Callable[[bool], R], cold: ColdRead) -> R:
        """Return the result of `read`, as soon as the bytes that it needs are in memory.

        Args:
            read: called with whether it may wait for the disk. If not, it can raise `ColdRead`. It may wait
                if the loaded bytes are no longer in memory.
            the
                bytes just brought into memory are gone again.
        """
        while True:
            await self.warm([cold])
            before = cold.place
            try:
                return read(False)
            except ColdRead as another:
                if another.place == before:
                    return read(True)
                cold = another

    def stop(self) -> None:
        """Wait for running reads, and start no more."""
        self._is_stopped = True
        self._pool.abandon()


def _warm(reads: Sequence[ColdRead]) -> None:
    for read in reads:
        with suppress(OSError):
            read.warm()


def _unpin(files: Sequence[LogFile], _done: asyncio.Future[None]) -> None:
    for file in files:
        file.unpin()
