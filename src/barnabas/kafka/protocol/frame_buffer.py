"""Cuts a stream into frames, for an `asyncio.BufferedProtocol`, which receives into a given buffer.

`framing.FrameDecoder` does the same for a protocol that gets the received bytes. Here the bytes of a large
frame are received into their final buffer, without a copy.
"""

from struct import Struct

from barnabas.base.errors import ProtocolError
from barnabas.kafka.protocol.large_frame import LargeFrame
from barnabas.kafka.protocol.wire import Readable

#: Small frames are received here, several at a time, and copied out.
_COMMON = 16 * 1024
#: A frame above this size, in bytes, gets memory of its own.
_SMALL = _COMMON // 2
_SIZE = Struct(">i")


class FrameBuffer:
    """Splits the stream of a trusted peer into frames. It allocates a frame's whole memory at once.

    Args:
        max_size: maximum size of a frame in bytes, without the size field.
    """

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._common = bytearray(_COMMON)
        self._view = memoryview(self._common)
        #: how much of `_common` is the beginning of a frame
        self._kept = 0
        self._large: LargeFrame | None = None

    def writable(self) -> memoryview:
        """Return the buffer for the next bytes. Call `received` before the next call of this method."""
        if self._large is not None:
            return self._large.writable()
        return self._view[self._kept :]

    def received(self, count: int) -> list[Readable]:
        """Return the frames that `count` more bytes complete, without their sizes.

        Raises:
            ProtocolError: a size is negative or above `max_size`. The rest of the stream is then unreadable.
        """
        if self._large is None:
            return self._cut(self._kept + count)
        whole = self._large.received(count)
        if whole is None:
            return []
        self._large = None
        return [whole]

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
                    self._large = LargeFrame(size, view[start + 4 : end], trusted=True)
                    start = end
                break
            frames.append(bytes(view[start + 4 : stop]))
            start = stop
        self._kept = end - start
        if start and self._kept:
            self._common[: self._kept] = view[start:end].tobytes()
        return frames
