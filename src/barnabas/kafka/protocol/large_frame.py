"""A large frame, whose bytes are received into their final buffer, without a copy."""

from barnabas.base.types import Buffer

#: A frame of which more bytes are missing is worth it: the event loop reads about twice as many at a time.
LARGE = 128 * 1024
#: Allocates at most this multiple of the bytes received: the rest of a frame may never come.
_AHEAD = 4


class LargeFrame:
    """An incomplete frame.

    Args:
        size: size of the complete frame in bytes.
        beginning: the bytes received so far, fewer than `size`.
        trusted: whether to trust the sender. If true, the memory of the complete frame is allocated at once.
            If false, the buffer grows as bytes arrive, and each time the received bytes are copied.
    """

    __slots__ = ("_bytes", "_size", "filled")

    def __init__(self, size: int, beginning: Buffer, *, trusted: bool = False) -> None:
        self._size = size
        #: how many bytes have come
        self.filled = len(beginning)
        self._bytes = bytearray(size if trusted else min(size, _AHEAD * max(self.filled, LARGE)))
        memoryview(self._bytes)[: self.filled] = beginning  # a bytearray would copy it first

    @property
    def missing(self) -> int:
        """Return the number of bytes that have not arrived yet."""
        return self._size - self.filled

    def writable(self) -> memoryview:
        """Return the buffer for the next bytes. Call `received` before the next call of this method."""
        return memoryview(self._bytes)[self.filled :]

    def received(self, count: int) -> bytearray | None:
        """Note that `count` more bytes have arrived: they are in the buffer that `writable` has returned.

        Return the frame if it is complete; None if bytes are still missing.
        """
        self.filled += count
        if self.filled == self._size:
            return self._bytes
        if self.filled == len(self._bytes):
            # It cannot be resized: the event loop still has a view of it.
            grown = bytearray(min(self._size, _AHEAD * self.filled))
            grown[: self.filled] = self._bytes
            self._bytes = grown
        return None

    def append(self, data: Buffer) -> bytearray | None:
        """Copy `data`, at most `missing` bytes, into the frame.

        Return the frame if it is complete; None if bytes are still missing.
        """
        rest = memoryview(data)
        while rest:
            into = self.writable()
            count = min(len(into), len(rest))
            into[:count] = rest[:count]
            rest = rest[count:]
            whole = self.received(count)
            if whole is not None:
                return whole
        return None
