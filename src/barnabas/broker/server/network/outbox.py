"""Sends replies to one client, in order.

The kernel sends most record batches from the page cache (sendfile), as fast as the client receives them. So
the broker does not copy a large response or hold it in memory. uvloop has no sendfile, so `Outbox` and the
transport write to the same socket. `Outbox` writes only while the transport's buffer is empty.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from typing import get_args

from barnabas.base.environment.network import sendfile_descriptor
from barnabas.base.types import Buffer, Chunk
from barnabas.broker.server.requests.context import Chunks

#: bytes to read and write at a time if sendfile is not possible
PIECE_BYTES = 128 * 1024
_LENT = frozenset(get_args(Buffer))
#: a corked outbox keeps this number of small replies, ...
_MAX_CORKED = 64
#: ... each with at most this number of bytes
_SMALL = 4096


class Outbox:
    """Sends replies over a transport. The protocol's method `resume_writing` must call `resume`."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._descriptor = sendfile_descriptor(transport)
        #: chunks that were not given to the transport yet
        self.waiting: deque[Chunk] = deque()
        #: number of bytes of the first chunk that are sent
        self._sent = 0
        #: a transport with TLS pauses the writer as soon as its buffer reaches the limit, so with a limit of
        #: 0 it would always pause; other transports pause only above the limit
        self._lowest_limit = 0 if transport.get_extra_info("sslcontext") is None else 1
        #: a transport with TLS may call `resume` from within a write
        self._is_sending = False
        #: small replies that `uncork` sends; None if the outbox is not corked
        self._corked: list[Buffer] | None = None

    def cork(self) -> None:
        """Keep replies of at most `_SMALL` bytes until `uncork`, which sends them in one system call.

        A larger reply, or the `_MAX_CORKED`-th small one, sends the kept replies earlier. Replies keep their
        order.
        """
        if self._corked is None:
            self._corked = []

    def uncork(self) -> None:
        """Send the replies kept since `cork`, and keep no more. Do nothing if the outbox is not corked."""
        corked, self._corked = self._corked, None
        if corked:
            self.send([b"".join(corked)])

    def send(self, chunks: Chunks) -> None:
        """Send `chunks` after all earlier chunks. Keep the chunks that the client cannot receive yet.

        A chunk is a buffer, or a part of a file that is read when it is sent.

        Raises:
            OSError: a chunk's file cannot be read.
        """
        if self._corked is not None:
            corked = self._corked
            if len(chunks) == 1 and len(chunks[0]) <= _SMALL and isinstance(chunks[0], Buffer):
                corked.append(chunks[0])
                if len(corked) < _MAX_CORKED:
                    return
                chunks = []
            chunks = [*corked, *chunks]
            corked.clear()
        if self.waiting:
            self.waiting += chunks
        elif _LENT.issuperset(map(type, chunks)):
            self._transport.writelines(chunks)  # type: ignore[arg-type]
        else:
            self.waiting += chunks
            # From now on the transport reports when its buffer is empty.
            self._transport.set_write_buffer_limits(high=self._lowest_limit, low=0)
            self.resume()

    def resume(self) -> None:
        """Send the waiting chunks while the transport's buffer is empty.

        Raises:
            OSError: a chunk's file cannot be read.
        """
        waiting = self.waiting
        if not waiting or self._is_sending:
            return
        self._is_sending = True
        try:
            while waiting and not self._transport.get_write_buffer_size():
                if self._transport.is_closing():
                    waiting.clear()
                    return
                self._send_some(waiting[0])
        finally:
            self._is_sending = False
        if not waiting:
            self._transport.set_write_buffer_limits()

    def clear(self) -> None:
        """Drop all unsent chunks, because the client is gone."""
        self.waiting.clear()

    def _send_some(self, chunk: Chunk) -> None:
        if isinstance(chunk, Buffer):
            self._transport.write(chunk)
            self.waiting.popleft()
            return
        sent = 0
        if self._descriptor is not None:
            try:
                sent = chunk.send_to(self._descriptor, self._sent)
            except BlockingIOError:
                pass
            except ConnectionError:
                self._transport.abort()
                return
        if not sent:
            piece = chunk.read(self._sent, PIECE_BYTES)
            if not piece:
                raise OSError(errno.EIO, "bytes to be sent are no longer in their file")
            self._transport.write(piece)
            sent = len(piece)
        self._sent += sent
        if self._sent == len(chunk):
            self.waiting.popleft()
            self._sent = 0
