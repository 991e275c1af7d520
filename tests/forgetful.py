"""Clients of other libraries that leave sockets and threads behind. These must not fail a test.

Python warns when it collects an open socket, in whatever test runs then, and a warning is an error. A client
of librdkafka that is not collected continues to look for its broker. It uses CPU time of later tests, writes
to their stderr, and connects to any server that gets its broker's port.
"""

from __future__ import annotations

import gc
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

#: whether such a client has connected since the last call of `collect`
_has_connected = False
#: as they are listed on Linux
_THREADS = Path("/proc/self/task")
#: so many more threads than after the last collection: about three clients of librdkafka
_MANY_THREADS = 12
_threads = 0


class _Forgotten(socket.socket):
    """A socket that is closed without a warning when its owner is collected."""

    def __del__(self) -> None:
        self.close()


@contextmanager
def forgiven() -> Iterator[None]:
    """Close sockets of kafka-python automatically, and note the connections of both clients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka.net.selector
        from aiokafka.conn import AIOKafkaConnection
        from kafka.net.inet import KafkaNetSocket
    connect = AIOKafkaConnection.connect

    def opened(_: Any, *kind: Any) -> socket.socket:
        _note()
        return _Forgotten(*kind)

    def pair() -> tuple[socket.socket, ...]:
        return tuple(_Forgotten(fileno=end.detach()) for end in socket.socketpair())

    async def noted(self: Any) -> Any:
        _note()
        return await connect(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaNetSocket, "socket", opened)
        patch.setattr(kafka.net.selector, "socket", SimpleNamespace(socketpair=pair))
        patch.setattr(AIOKafkaConnection, "connect", noted)
        yield


def collect() -> None:
    """Collect the clients that were dropped since the last call."""
    global _has_connected, _threads
    threads = _count_threads()
    if not _has_connected and threads < _threads + _MANY_THREADS:
        _threads = min(_threads, threads)
        return
    _has_connected = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    _threads = _count_threads()  # what is left is in use


def _count_threads() -> int:
    return len(list(_THREADS.iterdir())) if _THREADS.is_dir() else 0


def _note() -> None:
    global _has_connected
    _has_connected = True
