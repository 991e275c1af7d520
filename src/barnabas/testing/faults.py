"""Faults in the environment of one broker: a wrong clock, other routes, a full disk, a killed process."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from barnabas.base.environment.blocking import ThreadPool, Threads
from barnabas.base.environment.clock import SystemClock
from barnabas.base.environment.filesystem import Volume
from barnabas.base.environment.network import ProtocolFactory, ServerSocket, SocketNetwork
from barnabas.base.environment.os_filesystem import OsFile, OsFileSystem, OsLock
from barnabas.base.types import Buffer

P = TypeVar("P", bound=asyncio.BaseProtocol)


class AdjustableClock(SystemClock):
    """A clock that can be ahead of the machine's clock, or behind it."""

    def __init__(self) -> None:
        #: milliseconds ahead of the machine's clock
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class RoutedNetwork(SocketNetwork):
    """The system's network, but connections to some ports of this machine go to other ports instead.

    Args:
        routes: maps a requested port to the port to which a connection is made instead.
    """

    def __init__(self, routes: Mapping[int, int]) -> None:
        self._routes = routes
        self._listening: list[ServerSocket] = []
        self._opened: list[asyncio.Transport] = []
        self._is_dead = False

    def bind(self, host: str, port: int) -> ServerSocket:
        bound = super().bind(host, port)
        self._listening.append(bound)
        return bound

    async def connect(
        self, protocol_factory: ProtocolFactory[P], host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        if self._is_dead:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the broker was killed")
        transport, protocol = await super().connect(
            protocol_factory, host, self._routes.get(port, port), tls=tls
        )
        # Those of uvloop with TLS take no weak references.
        self._opened = [each for each in self._opened if not each.is_closing()] + [transport]
        return transport, protocol

    def die(self) -> None:
        """Close all sockets, as the system does when a process ends. Call this on the event loop."""
        self._is_dead = True
        for bound in self._listening:
            bound.close()
        for transport in self._opened:
            transport.abort()


class FillableDisk(OsFileSystem):
    """The system's files, on a disk that a test can fill, for a broker that a test can kill.

    While `is_full` is set, writes fail with ENOSPC. Any thread can use it.
    """

    def __init__(self) -> None:
        self.is_full = False
        self._is_dead = False
        self._files: weakref.WeakSet[FillableFile] = weakref.WeakSet()
        self._locks: weakref.WeakSet[KillableLock] = weakref.WeakSet()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        self.check(writes=create and not Path(path).exists())
        file = FillableFile(super().open(path, create=create), self)
        self._files.add(file)
        return file

    def make_directory(self, path: str) -> bool:
        self.check(writes=not Path(path).exists())
        return super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self.check()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.check()
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.check()
        super().remove_tree(path)

    def sync_directory(self, path: str) -> None:
        self.check()
        super().sync_directory(path)

    def lock(self, path: str) -> OsLock:
        self.check()
        lock = KillableLock(path)
        self._locks.add(lock)
        return lock

    def volume(self, path: str) -> Volume:
        found = super().volume(path)
        return Volume(found.size, 0) if self.is_full else found

    def check(self, *, writes: bool = False) -> None:
        """Raise OSError if the process is dead or, for a write, the disk is full."""
        if self._is_dead:
            raise OSError(errno.EIO, "the broker was killed")
        if writes and self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def die(self) -> None:
        """Make every later call fail, as if the broker's process had been killed."""
        self._is_dead = True

    def bury(self) -> None:
        """Close all open files and release all locks. Call this when no thread uses the files."""
        for file in list(self._files):
            file.close()
        for lock in list(self._locks):
            lock.release()


class FillableFile(OsFile):
    """A file on a `FillableDisk`."""

    __slots__ = ("__weakref__", "_disk")

    def __init__(self, file: OsFile, disk: FillableDisk) -> None:
        super().__init__(file._fd)
        self._disk = disk

    def read_at(self, size: int, position: int) -> bytes:
        self._disk.check()
        return super().read_at(size, position)

    def write_at(self, chunks: Sequence[Buffer], position: int) -> None:
        self._disk.check(writes=True)
        super().write_at(chunks, position)

    def truncate(self, size: int) -> None:
        self._disk.check()
        super().truncate(size)

    def sync(self) -> None:
        self._disk.check()
        super().sync()


class KillableLock(OsLock):
    """A lock that can be released more than once."""

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class KillableThreads(Threads):
    """The system's thread pools. A test can wait until all their threads have ended."""

    def __init__(self) -> None:
        self._pools: list[_Pool] = []

    def pool(self, name: str, threads: int) -> ThreadPool:
        self._pools.append(_Pool(name, threads))
        return self._pools[-1]

    def bury(self) -> None:
        """Start no more calls in any pool, and wait for the running calls."""
        for pool in self._pools:
            pool.abandon()
            pool.join()


class _Pool(ThreadPool):
    def join(self) -> None:
        self._executor.shutdown()
