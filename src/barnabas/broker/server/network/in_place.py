"""Receives into buffers of our own: a large request where it stays, what TLS decrypts in a shared one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.kafka.protocol.large_frame import LargeFrame

#: how much of what was decrypted is taken at a time
SHARED_BYTES = 256 * 1024


class Receiver(asyncio.BufferedProtocol):
    """The transport's protocol in another's stead, who is told of everything but what is received."""

    def __init__(self, owner: asyncio.Protocol) -> None:
        self._owner = owner

    def eof_received(self) -> bool | None:
        return self._owner.eof_received()

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)


class SharedReceiver(Receiver):
    """Hands its owner a copy of what has come into a buffer that all connections of an event loop share.

    For TLS: without it uvloop and asyncio decrypt into 256 KB of new memory each time, which the system may
    have to map, clear and unmap for each request.

    Args:
        owner: given what is received, by `data_received`.
        buffer: `SHARED_BYTES`. A transport fills it and tells of it at once, before any other one does.
    """

    def __init__(self, owner: asyncio.Protocol, buffer: memoryview) -> None:
        super().__init__(owner)
        self._buffer = buffer

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._owner.data_received(bytes(self._buffer[:nbytes]))


class InPlaceReceiver(Receiver):
    """Receives until a frame is whole.

    Small requests are not received this way: it would cost them a call more.

    Args:
        owner: as `Receiver` has it.
        frame: what is to be received.
        on_more: called when some of it has come.
        on_whole: called with the frame when it is whole; puts another protocol in its own place.
    """

    def __init__(
        self,
        owner: asyncio.Protocol,
        frame: LargeFrame,
        on_more: Callable[[], None],
        on_whole: Callable[[bytearray], None],
    ) -> None:
        super().__init__(owner)
        self._frame = frame
        self._on_more = on_more
        self._on_whole = on_whole

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frame.writable()

    def buffer_updated(self, nbytes: int) -> None:
        frame = self._frame.received(nbytes)
        if frame is None:
            self._on_more()
        else:
            self._on_whole(frame)
