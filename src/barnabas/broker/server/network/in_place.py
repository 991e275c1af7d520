"""Protocols of asyncio that give the transport a buffer, so that asyncio allocates none for received data.

When the first part of a large request has arrived, the transport writes the other parts directly into the
request's buffer. It writes decrypted TLS data into one buffer, which all connections share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.kafka.protocol.large_frame import LargeFrame

#: size of the shared buffer for decrypted data, in bytes
SHARED_BYTES = 256 * 1024


class Receiver(asyncio.BufferedProtocol):
    """Base class of protocols that temporarily replace a transport's protocol to receive data differently.

    It passes all events except received data to the replaced protocol, `owner`.
    """

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
    """Receives into a buffer that all connections of an event loop share, and passes a copy to `owner`.

    Connections with TLS use this class. Without it, uvloop and asyncio would decrypt into 256 KB of new
    memory each time. The system may have to map, clear and unmap this memory for each request.

    Args:
        owner: protocol whose `data_received` gets the data.
        buffer: memory of `SHARED_BYTES` bytes. It is safe to share, because this class copies the data before
            another transport writes to the buffer.
    """

    def __init__(self, owner: asyncio.Protocol, buffer: memoryview) -> None:
        super().__init__(owner)
        self._buffer = buffer

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._owner.data_received(bytes(self._buffer[:nbytes]))


class InPlaceReceiver(Receiver):
    """Receives a large frame, of which the first part has arrived, directly into the frame's buffer.

    Small requests do not use this class, because it costs an additional call.

    Args:
        owner: protocol that this protocol replaces.
        frame: the frame, with the part that has arrived.
        on_more: called when a further part of the frame has arrived.
        on_whole: called with the complete frame; it must set another protocol for the transport.
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
