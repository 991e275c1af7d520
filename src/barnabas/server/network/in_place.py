"""Receives a large request where it stays, instead of copying it piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.protocol.large_frame import LargeFrame


class InPlaceReceiver(asyncio.BufferedProtocol):
    """The transport's protocol in another's stead, until a frame is whole.

    Small requests are not received this way: it would cost them a call more.

    Args:
        owner: told of everything but what is received.
        frame: what is to be received.
        on_more: called when some of it has come.
        on_whole: called with the frame when it is whole; puts the owner back in its place.
    """

    def __init__(
        self,
        owner: asyncio.Protocol,
        frame: LargeFrame,
        on_more: Callable[[], None],
        on_whole: Callable[[bytearray], None],
    ) -> None:
        self._owner = owner
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

    def eof_received(self) -> bool | None:
        return self._owner.eof_received()

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)
