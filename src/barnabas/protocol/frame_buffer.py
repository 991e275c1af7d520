"""Cuts a stream into frames as `framing.FrameDecoder` does, for a protocol that receives in place.

The bytes of a large frame are received where they stay: nothing of it is copied (`asyncio.BufferedProtocol`).
"""

from struct import Struct

from barnabas.errors import ProtocolError
from barnabas.protocol.wire import Readable

#: Small frames are received here, several at a time, and copied out.
_COMMON = 16 * 1024
#: A frame above this size, in bytes, gets memory of its own.
_SMALL = _COMMON // 2
#: So much more memory than was received is taken, unless the peer is trusted: the bytes may never come.
_STEP = 1 << 20
_SIZE = Struct(">i")


class FrameBuffer:
    """The frames of one connection.

    Args:
        max_size: of a frame in bytes, without the size itself.
        step: how much more memory than was received an incomplete frame may take, in bytes. A larger frame is
            copied as it grows.
    """

    def __init__(self, max_size: int, *, step: int = _STEP) -> None:
        self.max_size = max_size
        self._step = step
        self._common = bytearray(_COMMON)
        self._view = memoryview(self._common)
        #: how much of `_common` is the beginning of a frame
        self._kept = 0
        #: the incomplete frame that has memory of its own, its whole size, and how much of it was received
        self._frame: bytearray | None = None
        self._size = 0
        self._filled = 0

    def writable(self) -> memoryview:
        """Where the next bytes are to be received; `received` is called before this is called again."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return self._view[self._kept :]

    def received(self, count: int) -> list[Readable]:
        """The frames that `count` more bytes complete, without their sizes.

        Raises:
            ProtocolError: a size is negative or above `max_size`: the stream cannot be read on.
        """
        frame = self._frame
        if frame is None:
            return self._cut(self._kept + count)
        self._filled += count
        if self._filled < len(frame):
            return []
        if self._filled < self._size:
            # It cannot be resized: the event loop still has a view of it.
            self._frame = bytearray(min(self._size, self._filled + max(self._step, self._filled)))
            self._frame[: self._filled] = frame
            return []
        self._frame = None
        return [frame]

    def _cut(self, end: int) -> list[Readable]:
        frames: list[Readable] = []
        start = 0
        view = self._view
        while end - start >= 4:
            (size,) = _SIZE.unpack_from(view, start)
            if not 0 <= size <= self.max_size:
                raise ProtocolError(f"a frame of {size} bytes; 0 to {self.max_size} are allowed")
            stop = start + 4 + size
            if stop > end:
                if size > _SMALL:
                    self._give_own_memory(view[start + 4 : end], size)
                    start = end
                break
            frames.append(bytes(view[start + 4 : stop]))
            start = stop
        self._kept = end - start
        if start and self._kept:
            self._common[: self._kept] = view[start:end].tobytes()
        return frames

    def _give_own_memory(self, beginning: memoryview, size: int) -> None:
        self._size = size
        self._filled = len(beginning)
        self._frame = bytearray(min(size, self._filled + self._step))
        self._frame[: self._filled] = beginning
